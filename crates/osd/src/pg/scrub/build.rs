//! What one copy has in a range of objects: sizes and attributes, and for a deep scrub a
//! checksum of what data and omap read as.
//!
//! Data is read past the caches that hold what was just written, and without waiting where
//! the store can; a large omap is taken in steps.

use std::collections::VecDeque;

use bytes::Bytes;
use maps::PgShard;
use messages::{OmapDigest, ScrubObject};
use types::{HObject, SpgId};

use crate::backing::{Coll, Fetched, ObjectStore, StoreError};
use crate::pg::{Cx, own_from};

/// Data read at once.
const PART_BYTES: u64 = 1 << 20;
/// omap entries looked at before others get their turn.
const OMAP_STEP: usize = 50_000;
/// Objects of one page of a listing.
const PAGE: usize = 256;

#[derive(Debug)]
struct Reading {
    object: ScrubObject,
    off: u64,
    crc: u32,
    data_done: bool,
    fetch: Option<u64>,
    omap: OmapDigest,
    omap_after: Option<Bytes>,
}

/// A range being looked through.
#[derive(Debug)]
pub(crate) struct Builder {
    pub id: u32,
    /// Who asked; `None` for the primary itself.
    pub for_whom: Option<PgShard>,
    deep: bool,
    todo: VecDeque<HObject>,
    reading: Option<Reading>,
    pub done: Vec<ScrubObject>,
}

impl Builder {
    /// # Errors
    /// The objects cannot be listed.
    pub fn new(
        store: &dyn ObjectStore,
        coll: Coll,
        (id, for_whom, deep): (u32, Option<PgShard>, bool),
        begin: &HObject,
        end: &HObject,
    ) -> Result<Self, StoreError> {
        let mut todo: VecDeque<HObject> = VecDeque::new();
        let mut from = begin.clone();
        loop {
            let mut page = store.list(coll, &own_from(coll, &from), PAGE + 1)?;
            let next = (page.len() > PAGE).then(|| page.pop().expect("more than a page"));
            let past = page.iter().position(|o| o >= end);
            todo.extend(page.into_iter().take(past.unwrap_or(usize::MAX)));
            match next {
                Some(next) if past.is_none() && next < *end => from = next,
                _ => break,
            }
        }
        Ok(Self { id, for_whom, deep, todo, reading: None, done: Vec::new() })
    }

    /// Whether it waits for the store, which will say when it goes on.
    pub fn waits_for_store(&self) -> bool {
        self.reading.as_ref().is_some_and(|r| r.fetch.is_some())
    }

    /// Bytes that were waited for; whether they were this one's.
    pub fn on_fetched(&mut self, id: u64, data: &Result<Bytes, StoreError>) -> bool {
        let Some(r) = self.reading.as_mut().filter(|r| r.fetch == Some(id)) else { return false };
        r.fetch = None;
        r.take(data.as_ref().ok());
        true
    }

    /// Goes on as far as that goes without waiting; whether all is there.
    pub fn advance(&mut self, pg: SpgId, cx: &mut Cx<'_>) -> bool {
        let coll = Coll::Pg(pg);
        let mut omap_left = OMAP_STEP;
        loop {
            let Some(r) = &mut self.reading else {
                let Some(oid) = self.todo.pop_front() else { return true };
                let Some(object) = look(cx.store, coll, oid) else { continue };
                if self.deep && !object.stat_error {
                    self.reading = Some(Reading {
                        object,
                        off: 0,
                        crc: !0,
                        data_done: false,
                        fetch: None,
                        omap: OmapDigest { crc: !0, ..OmapDigest::default() },
                        omap_after: None,
                    });
                } else {
                    self.done.push(object);
                }
                continue;
            };
            if r.fetch.is_some() {
                return false;
            }
            if !r.data_done {
                if r.off >= r.object.size {
                    r.data_done = true;
                    continue;
                }
                cx.pace.charge(PART_BYTES.min(r.object.size - r.off), cx.now);
                match cx.store.fetch_verified(coll, &r.object.oid, r.off, PART_BYTES) {
                    Ok(Some(Fetched::Here(data))) => r.take(Some(&data)),
                    Ok(Some(Fetched::Later(id))) => {
                        cx.fetches.insert(id, pg);
                        r.fetch = Some(id);
                        return false;
                    }
                    Ok(None) | Err(_) => r.take(None),
                }
                continue;
            }
            if omap_left == 0 {
                return false;
            }
            if r.walk_omap(cx.store, coll, &mut omap_left) {
                let Reading { mut object, crc, omap, .. } =
                    self.reading.take().expect("looked at just now");
                if !object.read_error {
                    object.data = Some(crc);
                    object.omap = Some(omap);
                }
                self.done.push(object);
            }
        }
    }
}

impl Reading {
    fn take(&mut self, data: Option<&Bytes>) {
        match data {
            Some(data) if !data.is_empty() => {
                self.crc = stdx::crc32c(self.crc, data);
                self.off += data.len() as u64;
            }
            _ => {
                self.object.read_error = true;
                self.data_done = true;
            }
        }
    }

    /// Whether the omap is through.
    fn walk_omap(&mut self, store: &dyn ObjectStore, coll: Coll, left: &mut usize) -> bool {
        let oid = &self.object.oid;
        let mut digest = self.omap;
        let part = |digest: &mut OmapDigest, bytes: &[u8]| {
            digest.crc = stdx::crc32c(digest.crc, &(bytes.len() as u64).to_le_bytes());
            digest.crc = stdx::crc32c(digest.crc, bytes);
        };
        let from = match &self.omap_after {
            Some(after) => after.clone(),
            None => {
                match store.omap_header(coll, oid) {
                    Ok(header) => part(&mut digest, &header),
                    Err(_) => {
                        self.object.read_error = true;
                        return true;
                    }
                }
                Bytes::new()
            }
        };
        let mut more = None;
        let walked = store.omap_walk(coll, oid, &from, &mut |k, v| {
            if self.omap_after.as_deref() == Some(k) {
                return true; // the last of the step before
            }
            part(&mut digest, k);
            part(&mut digest, v);
            digest.keys += 1;
            digest.bytes += (k.len() + v.len()) as u64;
            *left -= 1;
            if *left == 0 {
                more = Some(Bytes::copy_from_slice(k));
            }
            *left > 0
        });
        self.omap = digest;
        match (walked, more) {
            (Err(_), _) => {
                self.object.read_error = true;
                true
            }
            (Ok(()), Some(last)) => {
                self.omap_after = Some(last);
                false
            }
            (Ok(()), None) => true,
        }
    }
}

/// Size and attributes; `None` when the object is gone.
fn look(store: &dyn ObjectStore, coll: Coll, oid: HObject) -> Option<ScrubObject> {
    let mut object = ScrubObject { oid: oid.detached(), ..ScrubObject::default() };
    match (store.size(coll, &oid), store.attrs(coll, &oid)) {
        (Ok(Some(size)), Ok(attrs)) => {
            object.size = size;
            object.attrs = attrs;
        }
        (Ok(None), _) => return None,
        _ => object.stat_error = true,
    }
    Some(object)
}
