//! The two superblocks and the manifest they point to.
//!
//! A superblock is one block at 0 and the same at 64 KiB, written one after the other; of
//! valid ones the higher generation counts. It names the manifest, which describes one
//! checkpoint. No space of the checkpoint before is used again until both are written.

use bytes::Bytes;
use denc::{DecodeError, Denc, Reader, Writer};
use env::Disk;
use types::{OsdId, Uuid};

use crate::StoreError;
use crate::bitmap::Bitmap;
use crate::header::Header;
use crate::log::Place;
use crate::onode::BLOCK;
use crate::placement::LogPlacement;
use crate::space::{Runs, Space, Stream, read_past_caches};
use crate::table::Meta;
use crate::usedmap::UsedMap;

/// `ARGOSTOR`
const HEADER: Header = Header { name: "superblock", magic: 0x524f_5453_4f47_5241, format: 1 };
const PLACES: [u64; 2] = [0, 64 << 10];
/// Runs of blocks that a superblock names.
const RUNS_MAX: usize = 240;
/// Where the log starts.
pub(crate) const LOG_OFF: u64 = 1 << 20;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Superblock {
    pub generation: u64,
    pub fsid: Uuid,
    pub osd: OsdId,
    pub osd_uuid: Uuid,
    pub size: u64,
    pub log_len: u64,
    pub salt: u64,
    pub placement: LogPlacement,
    /// Counts openings.
    pub mount: u64,
    /// Whether every block of the log has been written.
    pub log_ready: bool,
    /// The manifest; where that is in more runs than fit, a list that names it.
    pub manifest: Stream,
    /// So many lists, each of which names the next.
    pub lists: u8,
}

impl Denc for Superblock {
    fn encode(&self, w: &mut Writer) {
        // Version 2 has the log's place: readers of 1 look for it on the device. Version 3 has
        // lists: readers of 2 take one for the manifest.
        let version = match (self.lists, self.placement) {
            (0, LogPlacement::Device) => 1,
            (0, _) => 2,
            _ => 3,
        };
        w.framed(version, version, |w| {
            w.u64(self.generation);
            self.fsid.encode(w);
            self.osd.encode(w);
            self.osd_uuid.encode(w);
            w.u64(self.size);
            w.u64(self.log_len);
            w.u64(self.salt);
            w.u64(self.mount);
            w.bool(self.log_ready);
            self.manifest.encode(w);
            if version >= 2 {
                w.u8(self.placement.number());
            }
            if version >= 3 {
                w.u8(self.lists);
            }
        });
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("superblock", 3, |r, version| {
            let mut sb = Self {
                generation: r.u64()?,
                fsid: Denc::decode(r)?,
                osd: Denc::decode(r)?,
                osd_uuid: Denc::decode(r)?,
                size: r.u64()?,
                log_len: r.u64()?,
                salt: r.u64()?,
                placement: LogPlacement::Device,
                mount: r.u64()?,
                log_ready: r.bool()?,
                manifest: Denc::decode(r)?,
                lists: 0,
            };
            if version >= 2 {
                let placement = LogPlacement::from_number(r.u8()?);
                r.require(placement.is_some(), "the log's place is known")?;
                sb.placement = placement.unwrap_or_default();
            }
            if version >= 3 {
                sb.lists = r.u8()?;
            }
            Ok(sb)
        })
    }
}

impl Superblock {
    /// The first block behind the superblocks and, where it is there, the log.
    pub fn first_block(&self) -> u64 {
        match self.placement {
            LogPlacement::Device => (LOG_OFF + self.log_len) / BLOCK,
            LogPlacement::Own | LogPlacement::Memory => LOG_OFF / BLOCK,
        }
    }

    /// Writes both copies, one after the other.
    pub fn write(&self, disk: &dyn Disk) -> Result<(), StoreError> {
        let buf = HEADER.seal(&self.to_bytes());
        // The only good copy is not touched before there is another: a crash may have left
        // the other one torn.
        let generation = |place| Self::read_at(disk, place).ok().flatten().map(|s| s.generation);
        let mut places = PLACES;
        places.sort_by_key(|place| generation(*place));
        for place in places {
            disk.commit(&[(place, &buf)]).map_err(StoreError::io("writing the superblock"))?;
        }
        Ok(())
    }

    /// Whether something is there that only we could have written.
    pub fn is_present(disk: &dyn Disk) -> bool {
        PLACES.iter().any(|place| {
            let mut raw = [0; 8];
            disk.read(*place, &mut raw).is_ok() && raw == HEADER.magic.to_le_bytes()
        })
    }

    /// The copy at `place`; `None` where nothing of ours is.
    fn read_at(disk: &dyn Disk, place: u64) -> Result<Option<Self>, StoreError> {
        let mut raw = [0; BLOCK as usize];
        read_past_caches(disk, place, &mut raw)
            .map_err(StoreError::io("reading the superblock"))?;
        let Some(body) = HEADER.unseal(&raw)? else { return Ok(None) };
        Self::from_bytes(body).map(Some).map_err(|e| HEADER.broken(&e.to_string()))
    }

    pub fn read(disk: &dyn Disk) -> Result<Self, StoreError> {
        let mut best: Option<Self> = None;
        let mut why = StoreError::Format("not an object store: no superblock".to_owned());
        for place in PLACES {
            match Self::read_at(disk, place) {
                Ok(Some(s)) => {
                    if best.as_ref().is_none_or(|b| b.generation < s.generation) {
                        best = Some(s);
                    }
                }
                Ok(None) => {}
                Err(e @ StoreError::NewerFormat { .. }) => return Err(e),
                Err(e) => why = e,
            }
        }
        let best = best.ok_or(why)?;
        if best.size > disk.size() {
            return Err(StoreError::Format(format!(
                "the device has {} bytes, the store was made for {}",
                disk.size(),
                best.size
            )));
        }
        Ok(best)
    }
}

/// A pool's number; objects, bytes stored, bytes allocated.
type PoolLine = (i64, (u64, (u64, u64)));

/// Used blocks, but for those of manifest and map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Used {
    /// Before version 4: a bit for each block, in u64 words.
    Here(Bytes),
    Apart(UsedMap),
}

impl Used {
    /// The map, of so many blocks.
    pub fn read(&self, disk: &dyn Disk, blocks: u64) -> Result<Bitmap, StoreError> {
        match self {
            Self::Here(raw) => Bitmap::from_bytes(blocks, raw).ok_or_else(|| {
                StoreError::Format("the map of used blocks has a wrong size".into())
            }),
            Self::Apart(map) => map.read(disk, blocks),
        }
    }
}

/// One checkpoint: all of the store's state but for what later log records change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Manifest {
    /// The last transaction in it.
    pub seq: u64,
    /// Where the log goes on, see [`Manifest::place`].
    pub log_group: u64,
    pub log_pos: u64,
    pub next_id: u64,
    pub next_coll: u32,
    pub next_table: u64,
    /// Oldest first.
    pub tables: Vec<Meta>,
    pub pools: Vec<PoolLine>,
    /// Pools with compressed data: bytes it takes, bytes it is.
    pub packed: Vec<(i64, (u64, u64))>,
    pub used: Used,
    /// The mount that made the checkpoint; 0 where it was not noted, before version 3. What goes
    /// on behind it in the log is of this mount or of later ones.
    pub mount: u64,
}

impl Denc for Manifest {
    fn encode(&self, w: &mut Writer) {
        let (version, compat) = match &self.used {
            Used::Here(_) => (3, 1),
            Used::Apart(_) => (4, 4),
        };
        w.framed(version, compat, |w| {
            w.u64(self.seq);
            w.u64(self.log_group);
            w.u64(self.log_pos);
            w.u64(self.next_id);
            w.u32(self.next_coll);
            w.u64(self.next_table);
            self.tables.encode(w);
            self.pools.encode(w);
            match &self.used {
                Used::Here(raw) => raw.encode(w),
                Used::Apart(map) => map.encode(w),
            }
            self.packed.encode(w);
            w.u64(self.mount);
        });
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("manifest", 4, |r, version| {
            Ok(Self {
                seq: r.u64()?,
                log_group: r.u64()?,
                log_pos: r.u64()?,
                next_id: r.u64()?,
                next_coll: r.u32()?,
                next_table: r.u64()?,
                tables: Denc::decode(r)?,
                pools: Denc::decode(r)?,
                used: match version {
                    ..4 => Used::Here(Denc::decode(r)?),
                    _ => Used::Apart(Denc::decode(r)?),
                },
                packed: if version >= 2 { Denc::decode(r)? } else { Vec::new() },
                mount: if version >= 3 { r.u64()? } else { 0 },
            })
        })
    }
}

impl Manifest {
    /// Where the log goes on.
    pub fn place(&self) -> Place {
        Place { group: self.log_group, pos: self.log_pos }
    }

    /// What `sb` leads to, and the blocks that hold it.
    pub fn read(disk: &dyn Disk, sb: &Superblock) -> Result<(Self, Runs), StoreError> {
        let broken = |e: DecodeError| StoreError::Format(format!("manifest: {e}"));
        let mut stream = sb.manifest.clone();
        let mut blocks = stream.runs.clone();
        for _ in 0..sb.lists {
            let list = stream.read(disk, "list of the manifest's blocks")?;
            stream = Stream::from_shared(&list).map_err(broken)?;
            blocks.extend(&stream.runs);
        }
        let raw = stream.read(disk, "manifest")?;
        Ok((Self::from_shared(&raw).map_err(broken)?, blocks))
    }

    /// Writes it to free space, for a superblock to name.
    pub fn write(&self, space: &Space) -> Result<Named, StoreError> {
        Named::write(space, &self.to_bytes(), RUNS_MAX)
    }
}

/// A manifest that was written: what its superblock says of it, and the blocks that hold it.
pub(crate) struct Named {
    pub stream: Stream,
    pub lists: u8,
    pub blocks: Runs,
}

impl Named {
    /// With as many lists as it takes until `most` runs are enough.
    fn write(space: &Space, bytes: &[u8], most: usize) -> Result<Self, StoreError> {
        let mut stream = space.write_stream(bytes)?;
        let (mut blocks, mut lists) = (stream.runs.clone(), 0);
        while stream.runs.len() > most {
            stream = space.write_stream(&stream.to_bytes())?;
            blocks.extend(&stream.runs);
            lists += 1;
        }
        Ok(Self { stream, lists, blocks })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::SimDisk;
    use crate::alloc::Alloc;

    const BLOCKS: u64 = 16 << 10;

    /// Where no two free blocks are next to one another.
    fn space() -> Space {
        let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(BLOCKS * BLOCK, false));
        let mut used = Bitmap::new(BLOCKS);
        used.set(0, LOG_OFF / BLOCK);
        (0..BLOCKS).step_by(2).for_each(|at| {
            used.set(at, 1);
        });
        Space { disk, alloc: Arc::new(Mutex::new(Alloc::new(used))), ledger: None }
    }

    fn superblock(named: &Named) -> Superblock {
        Superblock {
            generation: 1,
            fsid: Uuid([1; 16]),
            osd: OsdId(2),
            osd_uuid: Uuid([3; 16]),
            size: BLOCKS * BLOCK,
            log_len: 1 << 20,
            salt: 4,
            placement: LogPlacement::Own,
            mount: 5,
            log_ready: true,
            manifest: named.stream.clone(),
            lists: named.lists,
        }
    }

    /// A manifest with a table in so many runs.
    fn manifest(runs: u64) -> Manifest {
        let mut many = Runs::default();
        (0..runs).for_each(|i| many.push(2 * i, 1));
        let table = Meta {
            id: 1,
            runs: many,
            entries: 0,
            omap_bytes: 0,
            index_off: 0,
            index_len: 0,
            index_crc: 0,
            in_parts: true,
        };
        let empty = crate::checkpoint::empty(UsedMap::default());
        Manifest { tables: vec![table], ..empty }
    }

    fn comes_back(space: &Space, manifest: &Manifest, named: &Named) {
        let free = space.alloc.lock().expect("nobody panics").free();
        assert_eq!(BLOCKS / 2 - LOG_OFF / BLOCK / 2 - free, named.blocks.blocks());
        superblock(named).write(&*space.disk).expect("it is one block");
        let read = Superblock::read(&*space.disk).expect("it was written");
        assert_eq!(read, superblock(named));
        let (found, blocks) = Manifest::read(&*space.disk, &read).expect("it was written");
        assert_eq!((&found, blocks.len()), (manifest, named.blocks.len()));
        let mut both = [&blocks, &named.blocks].map(|b| b.iter().collect::<Vec<_>>());
        both.iter_mut().for_each(|runs| runs.sort_unstable());
        assert_eq!(both[0], both[1]);
    }

    /// However much of it there is, and in however many places.
    #[test]
    fn a_manifest_in_many_pieces_has_lists() {
        for (runs, lists) in [(10, 0), (61_000, 0), (100_000, 1)] {
            let (space, manifest) = (space(), manifest(runs));
            let named = manifest.write(&space).expect("there is room");
            assert_eq!(named.lists, lists, "{runs} runs");
            comes_back(&space, &manifest, &named);
        }
        let (space, manifest) = (space(), manifest(100_000));
        let named = Named::write(&space, &manifest.to_bytes(), 1).expect("there is room");
        assert_eq!(named.lists, 2);
        comes_back(&space, &manifest, &named);
    }

    /// A list that is damaged is no manifest, and nothing that goes on for ever.
    #[test]
    fn a_damaged_list_is_told() {
        let (space, manifest) = (space(), manifest(100_000));
        let named = manifest.write(&space).expect("there is room");
        let mut sb = superblock(&named);
        let at = named.stream.runs.device(0);
        let mut block = vec![0; BLOCK as usize];
        space.disk.read(at, &mut block).expect("it is there");
        block[100] ^= 1;
        space.disk.write(at, &block).expect("it is there");
        let wrong = Manifest::read(&*space.disk, &sb).expect_err("it is damaged");
        assert!(wrong.to_string().contains("list of the manifest"), "{wrong}");
        // One that says of itself that it is longer than its blocks.
        sb.manifest.len = u64::MAX;
        let wrong = Manifest::read(&*space.disk, &sb).expect_err("it is too long");
        assert!(wrong.to_string().contains("shorter"), "{wrong}");
    }
}
