//! Which of an image's data objects exist: two bits each.
//!
//! ```text
//! u32 14 | 1 1 u32 8, u64 count | bits, four to a byte, the first highest |
//! u32 length | crc of the header, u32 n, crc of each 4 KiB of bits |
//! ```
//!
//! Without crcs the length at the end is 0; so maps are sent, never stored. The peer's
//! `BitVector<2>`.

use bytes::{Bytes, BytesMut};
use denc::{DecodeError, Denc, Reader, Writer};
use stdx::crc32c;
use types::{Errno, OpResult};

use crate::keys::absent;
use crate::{DONE, Object, Reply, STALE, params};

const HEADER_LEN: u64 = 18;
const BLOCK: usize = 4096;
/// The peer's bound on a map's objects.
const COUNT_MAX: u64 = 256_000_000;

use state::{EXISTS, EXISTS_CLEAN};

/// What a map says of an object. `OBJECT_*`.
pub mod state {
    /// It is not there.
    pub const NONEXISTENT: u8 = 0;
    /// It may be there, and may have changed since the last snapshot.
    pub const EXISTS: u8 = 1;
    /// It is being removed.
    pub const PENDING: u8 = 2;
    /// It is there, as the last snapshot shows it.
    pub const EXISTS_CLEAN: u8 = 3;
}

/// States of objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectMap {
    count: u64,
    bits: BytesMut,
    without_crcs: bool,
}

fn header(count: u64) -> [u8; HEADER_LEN as usize] {
    let mut raw = [0; HEADER_LEN as usize];
    raw[..10].copy_from_slice(&[14, 0, 0, 0, 1, 1, 8, 0, 0, 0]);
    raw[10..].copy_from_slice(&count.to_le_bytes());
    raw
}

/// The count in a header, and the header's crc.
fn read_header(r: &mut Reader<'_>) -> Result<(u64, u32), DecodeError> {
    let raw = r.blob_ref()?;
    let count = Reader::new(raw).framed("BitVector", 1, |r, _| r.u64())?;
    Ok((count, crc32c(0, raw)))
}

fn get(bits: &[u8], i: u64) -> u8 {
    bits[(i / 4) as usize] >> (6 - i % 4 * 2) & 3
}

fn set(bits: &mut [u8], i: u64, state: u8) {
    let shift = 6 - i % 4 * 2;
    let byte = &mut bits[(i / 4) as usize];
    *byte = *byte & !(3 << shift) | (state & 3) << shift;
}

impl ObjectMap {
    /// A map of objects that are all in one state, as it is sent: without crcs.
    #[must_use]
    pub fn new(count: u64, state: u8) -> Self {
        let fill = (0..4).fold(0, |byte, _| byte << 2 | state & 3);
        let bits = BytesMut::from(&vec![fill; count.div_ceil(4) as usize][..]);
        let mut map = Self { count, bits, without_crcs: true };
        // Bits behind the last object are zero.
        for i in count..count.div_ceil(4) * 4 {
            set(&mut map.bits, i, 0);
        }
        map
    }

    /// How many objects it knows.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// An object's state; one that it does not know is not there.
    #[must_use]
    pub fn state(&self, i: u64) -> u8 {
        if i < self.count { get(&self.bits, i) } else { 0 }
    }

    /// Sets an object's state; one that it does not know stays unknown.
    pub fn set_state(&mut self, i: u64, state: u8) {
        if i < self.count {
            set(&mut self.bits, i, state);
        }
    }

    fn load(o: &mut dyn Object) -> OpResult<Self> {
        let (size, _) = o.stat()?;
        if size == 0 {
            return Err(Errno::NOENT);
        }
        params(&o.read(0, size)?)
    }

    fn save(&self, o: &mut dyn Object) -> OpResult<Reply> {
        o.write_full(self.to_bytes())?;
        Ok(DONE)
    }

    fn resize(&mut self, count: u64) {
        self.count = count;
        self.bits.resize(count.div_ceil(4) as usize, 0);
    }
}

impl Denc for ObjectMap {
    fn encode(&self, w: &mut Writer) {
        let header = header(self.count);
        w.raw(&header);
        w.raw(&self.bits);
        if self.without_crcs {
            w.u32(0);
            return;
        }
        let blocks = self.bits.len().div_ceil(BLOCK) as u32;
        w.u32(8 + 4 * blocks);
        w.u32(crc32c(0, &header[4..]));
        w.u32(blocks);
        for block in self.bits.chunks(BLOCK) {
            w.u32(crc32c(0, block));
        }
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let (count, crc) = read_header(r)?;
        let len = usize::try_from(count.div_ceil(4)).unwrap_or(usize::MAX);
        let bits = BytesMut::from(r.take("object map", len)?);
        let footer = r.blob_ref()?;
        if !footer.is_empty() {
            let mut f = Reader::new(footer);
            let stored = f.u32()?;
            f.require(stored == crc, "the header has its crc")?;
            let stored = f.seq(Reader::u32)?;
            f.require(
                stored.iter().copied().eq(bits.chunks(BLOCK).map(|block| crc32c(0, block))),
                "blocks have their crcs",
            )?;
        }
        Ok(Self { count, bits, without_crcs: footer.is_empty() })
    }
}

pub(super) fn load(o: &mut dyn Object, _: &Bytes) -> OpResult<Reply> {
    let map = ObjectMap { without_crcs: true, ..ObjectMap::load(o)? };
    Ok(map.to_bytes().into())
}

pub(super) fn save(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let map: ObjectMap = params(input)?;
    ObjectMap { without_crcs: false, ..map }.save(o)
}

pub(super) fn resize(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let (count, state): (u64, u8) = params(input)?;
    if count > COUNT_MAX {
        return Err(Errno::INVAL);
    }
    let mut map = absent(ObjectMap::load(o))?.unwrap_or_default();
    let old = map.count;
    // What is cut off must not exist any more.
    if (count..old).any(|i| get(&map.bits, i) != state) {
        return Err(STALE);
    }
    map.resize(count);
    for i in old..count {
        set(&mut map.bits, i, state);
    }
    map.save(o)
}

/// Changes states in a range, touching only its blocks.
pub(super) fn update(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let ((start, end), (new, current)): ((u64, u64), (u8, Option<u8>)) = params(input)?;
    o.stat()?;
    let raw = o.read(0, HEADER_LEN)?;
    let (count, _) = read_header(&mut Reader::new(&raw)).map_err(|_| Errno::INVAL)?;
    if start >= end || end > count {
        return Err(Errno::RANGE);
    }
    let len = count.div_ceil(4);
    let block = BLOCK as u64;
    let (first, last) = (start / 4 / block, (end - 1) / 4 / block);
    let from = first * block;
    let to = ((last + 1) * block).min(len);
    let mut bits = BytesMut::from(&o.read(HEADER_LEN + from, to - from)?[..]);
    if bits.len() as u64 != to - from {
        return Err(Errno::INVAL);
    }
    // Behind the bits: length, crc of the header, number of crcs.
    let crcs_at = HEADER_LEN + len + 12 + first * 4;
    let crcs = o.read(crcs_at, (last - first + 1) * 4)?;
    let expected: Vec<u8> = bits.chunks(BLOCK).flat_map(|b| crc32c(0, b).to_le_bytes()).collect();
    let sound = crcs == expected;
    if !sound {
        return Err(Errno::INVAL);
    }
    let mut changed = false;
    for i in start..end {
        let i = i - from * 4;
        let state = get(&bits, i);
        let matches = current
            .is_none_or(|current| state == current || current == EXISTS && state == EXISTS_CLEAN);
        if matches && state != new {
            set(&mut bits, i, new);
            changed = true;
        }
    }
    if changed {
        let crcs: Bytes = bits.chunks(BLOCK).flat_map(|b| crc32c(0, b).to_le_bytes()).collect();
        o.write(HEADER_LEN + from, bits.freeze())?;
        o.write(crcs_at, crcs)?;
    }
    Ok(DONE)
}

/// A snapshot was taken: what exists is clean.
pub(super) fn snap_add(o: &mut dyn Object, _: &Bytes) -> OpResult<Reply> {
    let mut map = ObjectMap::load(o)?;
    let mut changed = false;
    for i in 0..map.count {
        if get(&map.bits, i) == EXISTS {
            set(&mut map.bits, i, EXISTS_CLEAN);
            changed = true;
        }
    }
    if changed { map.save(o) } else { Ok(DONE) }
}

/// A snapshot goes: what it alone had seen written is no longer clean.
pub(super) fn snap_remove(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let of_snap: ObjectMap = params(input)?;
    let mut map = ObjectMap::load(o)?;
    let mut changed = false;
    for i in 0..map.count {
        let was_written = i >= of_snap.count || get(&of_snap.bits, i) == EXISTS;
        if was_written && get(&map.bits, i) == EXISTS_CLEAN {
            set(&mut map.bits, i, EXISTS);
            changed = true;
        }
    }
    if changed { map.save(o) } else { Ok(DONE) }
}
