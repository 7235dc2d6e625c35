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
use crate::header::Header;
use crate::log::Place;
use crate::onode::BLOCK;
use crate::placement::LogPlacement;
use crate::space::{Runs, read_past_caches};
use crate::table::Meta;

/// `ARGOSTOR`
const HEADER: Header = Header { name: "superblock", magic: 0x524f_5453_4f47_5241, format: 1 };
const PLACES: [u64; 2] = [0, 64 << 10];
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
    pub manifest: Runs,
    pub manifest_len: u64,
    pub manifest_crc: u32,
}

impl Denc for Superblock {
    fn encode(&self, w: &mut Writer) {
        // Version 2 has the log's place: readers of 1 look for it on the device.
        let version = if self.placement == LogPlacement::Device { 1 } else { 2 };
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
            w.u64(self.manifest_len);
            w.u32(self.manifest_crc);
            if version >= 2 {
                w.u8(self.placement.number());
            }
        });
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("superblock", 2, |r, version| {
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
                manifest_len: r.u64()?,
                manifest_crc: r.u32()?,
            };
            if version >= 2 {
                let placement = LogPlacement::from_number(r.u8()?);
                r.require(placement.is_some(), "the log's place is known")?;
                sb.placement = placement.unwrap_or_default();
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
    /// Used blocks, but for the manifest's own.
    pub used: Bytes,
    /// The mount that made the checkpoint; 0 where it was not noted, before version 3. What goes
    /// on behind it in the log is of this mount or of later ones.
    pub mount: u64,
}

impl Denc for Manifest {
    fn encode(&self, w: &mut Writer) {
        w.framed(3, 1, |w| {
            w.u64(self.seq);
            w.u64(self.log_group);
            w.u64(self.log_pos);
            w.u64(self.next_id);
            w.u32(self.next_coll);
            w.u64(self.next_table);
            self.tables.encode(w);
            self.pools.encode(w);
            self.used.encode(w);
            self.packed.encode(w);
            w.u64(self.mount);
        });
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("manifest", 3, |r, version| {
            Ok(Self {
                seq: r.u64()?,
                log_group: r.u64()?,
                log_pos: r.u64()?,
                next_id: r.u64()?,
                next_coll: r.u32()?,
                next_table: r.u64()?,
                tables: Denc::decode(r)?,
                pools: Denc::decode(r)?,
                used: Denc::decode(r)?,
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

    pub fn read(disk: &dyn Disk, sb: &Superblock) -> Result<Self, StoreError> {
        let place = (0, sb.manifest_len as usize);
        let what = || "manifest".to_owned();
        let raw = sb.manifest.read_verified(disk, place, sb.manifest_crc, &what)?;
        Self::from_shared(&raw).map_err(|e| StoreError::Format(format!("manifest: {e}")))
    }
}
