//! Trivial maps: a header and a sorted map, kept in an object's bytes. They are older than
//! omap; RBD images of format 1 list themselves in one.
//!
//! Bytes of a map: blob header, u32 number of keys, then string key and blob value of each.
//! An update is a sequence of steps: u8 `h` with a blob for the header, or u8 `s` (set), `c`
//! (create), `r` (remove), `R` (remove if there) with a string key, the first two with a blob.
//!
//! Source: the peer's `PrimaryLogPG::do_tmapup` and `do_tmapput`, `include/rados.h`.

use std::collections::BTreeMap;

use bytes::Bytes;
use denc::{DecodeError, Features, Reader, Writer};
use messages::{OsdOp, op};
use types::{Errno, OpResult};

use super::Exec;

#[derive(Default)]
struct Tmap {
    header: Bytes,
    keys: BTreeMap<Bytes, Bytes>,
}

impl Tmap {
    /// No bytes are an empty map.
    fn decode(bytes: &Bytes) -> Result<Self, DecodeError> {
        if bytes.is_empty() {
            return Ok(Self::default());
        }
        let mut r = Reader::shared(bytes);
        let header = r.blob()?;
        let mut keys = BTreeMap::new();
        for _ in 0..r.u32()? {
            let key = r.blob()?;
            keys.insert(key, r.blob()?);
        }
        Ok(Self { header, keys })
    }

    fn encode(&self) -> Bytes {
        let mut w = Writer::new(Features::ALL);
        w.blob(&self.header);
        w.u32(self.keys.len() as u32);
        for (key, value) in &self.keys {
            w.blob(key);
            w.blob(value);
        }
        w.finish()
    }

    fn update(&mut self, steps: &Bytes) -> OpResult<()> {
        let bad = |_: DecodeError| Errno::INVAL;
        let mut r = Reader::shared(steps);
        while r.left() > 0 {
            let step = r.u8().map_err(bad)?;
            let name = r.blob().map_err(bad)?;
            match step {
                b'h' => self.header = name,
                b'c' if self.keys.contains_key(&name) => return Err(Errno::EXIST),
                b's' | b'c' => {
                    let value = r.blob().map_err(bad)?;
                    self.keys.insert(name, value);
                }
                b'r' if self.keys.remove(&name).is_none() => return Err(Errno::NOENT),
                b'r' => {}
                b'R' => {
                    self.keys.remove(&name);
                }
                _ => return Err(Errno::INVAL),
            }
        }
        Ok(())
    }
}

impl Exec<'_> {
    /// An object that is not there is an empty map, and is made.
    pub(super) fn tmap_update(&mut self, steps: &Bytes) -> OpResult<i32> {
        if steps.is_empty() {
            return Ok(0);
        }
        let size = if self.state.exists { self.state.info.size } else { 0 };
        let bytes = self.bytes_at(0, size)?;
        let mut map = Tmap::decode(&bytes).map_err(|_| Errno::INVAL)?;
        map.update(steps)?;
        self.tmap_store(&map)
    }

    /// Replaces the whole map, sorted.
    pub(super) fn tmap_put(&mut self, bytes: &Bytes) -> OpResult<i32> {
        let map = Tmap::decode(bytes).map_err(|_| Errno::INVAL)?;
        self.tmap_store(&map)
    }

    fn tmap_store(&mut self, map: &Tmap) -> OpResult<i32> {
        let bytes = map.encode();
        let write = OsdOp::extent(op::WRITEFULL, 0, bytes.len() as u64, Bytes::new());
        self.write_full(&write, bytes)
    }
}
