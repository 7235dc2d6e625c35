//! COPY_FROM: the primary of the target fetches the source from its primary, part by part,
//! and then executes the request with it.
//!
//! A source that is being written, recovered or peered is asked for again until it is quiet;
//! one that changes between two parts is fetched from the start. Each question has its own
//! number, so that an answer that comes twice or late is not taken for that of the next.

use std::collections::BTreeMap;

use bytes::{Bytes, BytesMut};
use denc::{Denc, Reader};
use env::Now;
use messages::{Answered, OsdOp, OsdPeer, PeerMsg, Push};
use types::{EVersion, Epoch, Errno, HObject, ObjectLocator, PgId, PoolId, ShardId, SnapId};

use maps::PgShard;

use crate::core::Osd;
use crate::exec::CopyContent;
use crate::object::{INFO_ATTR, ObjectInfo, ObjectState};
use crate::outbox::Outbox;

/// A question without an answer is asked again after this long.
const RETRY_MS: u64 = 300;
/// Bytes that all fetches hold. Beyond, the one that has most goes on alone, and ends.
const BYTES_MAX: usize = 256 << 20;

/// A fetch under way.
#[derive(Debug)]
struct Fetch {
    /// Where the request waits, and for which object.
    target: (types::SpgId, HObject),
    seq: u64,
    source: Source,
    version: Option<EVersion>,
    data: BytesMut,
    omap: Vec<(Bytes, Bytes)>,
    /// Bytes of `omap`.
    keys_bytes: usize,
    omap_after: Bytes,
    asked_ms: u64,
}

/// The answer for an object that nobody can read: all of it, without a record.
pub(crate) fn unreadable(oid: HObject, version: EVersion, off: u64) -> Push {
    Push { oid, version, off, last: true, ..Push::default() }
}

/// What is copied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Source {
    pub oid: Bytes,
    pub locator: ObjectLocator,
    /// [`SnapId::DIR`] for the head, also when it stands for clones alone.
    pub snap: SnapId,
    /// From that very pool, though a cache may be over it.
    pub direct: bool,
}

impl Source {
    /// The other object that an operation names, whichever operation names one.
    pub(crate) fn of(op: &OsdOp) -> Option<Self> {
        let names = matches!(op.code, messages::op::COPY_FROM | messages::op::COPY_FROM2);
        names.then(|| Self::parse(op)).flatten()
    }

    /// From the operation's input; `None` when it makes no sense.
    pub(crate) fn parse(op: &OsdOp) -> Option<Self> {
        let mut r = Reader::new(&op.data);
        let oid = r.blob().ok()?;
        let locator = ObjectLocator::decode(&mut r).ok()?;
        let direct = op.raw[16] & messages::copy_flag::IGNORE_OVERLAY != 0;
        Some(Self { oid, locator, snap: SnapId(op.u64(0)), direct })
    }
}

/// A request that waits for its source: told by the PG.
#[derive(Debug)]
pub(crate) struct CopyWanted {
    pub target: (types::SpgId, HObject),
    pub seq: u64,
    pub source: Source,
}

/// All fetches.
#[derive(Debug, Default)]
pub struct Copies {
    next: u64,
    running: BTreeMap<u64, Fetch>,
    pub(crate) wanted: Vec<CopyWanted>,
}

impl Copies {
    /// Whether a fetch may ask for its next part: a request of a few bytes may bring an object of
    /// `osd_max_object_size`, and there may be many of them.
    fn may_grow(&self, id: u64) -> bool {
        let held = |f: &Fetch| f.data.len() + f.keys_bytes;
        let all: usize = self.running.values().map(held).sum();
        let most = self.running.iter().max_by_key(|(id, f)| (held(f), std::cmp::Reverse(**id)));
        all <= BYTES_MAX || most.is_some_and(|(most, _)| *most == id)
    }

    /// Whether there is nothing to do.
    pub(crate) fn is_idle(&self) -> bool {
        self.running.is_empty() && self.wanted.is_empty()
    }

    /// The parts of objects that other OSDs were asked for, as `objecter_requests` shows requests.
    pub(crate) fn json(&self) -> Vec<serde_json::Value> {
        let one = |(id, f): (&u64, &Fetch)| {
            serde_json::json!({
                "tid": id, "object_id": String::from_utf8_lossy(&f.source.oid),
                "object_locator": format!("@{}", f.source.locator.pool.0),
                "snapid": f.source.snap.to_string(), "attempts": 1, "osd_ops": ["copy-get"],
            })
        };
        self.running.iter().map(one).collect()
    }

    /// The fetch goes on under a new number: what still answers its last question is late.
    fn renumber(&mut self, id: u64) -> Option<u64> {
        let fetch = self.running.remove(&id)?;
        self.next += 1;
        self.running.insert(self.next, fetch);
        Some(self.next)
    }
}

impl Osd {
    /// Starts what PGs want and asks again for what did not come.
    pub(crate) fn pump_copies(&mut self, now: Now, out: &mut Outbox) {
        // What ends makes PGs go on, and these may want more; each request only once.
        while !self.c.copies.wanted.is_empty() {
            for w in std::mem::take(&mut self.c.copies.wanted) {
                self.c.copies.next += 1;
                let fetch = Fetch {
                    target: w.target,
                    seq: w.seq,
                    source: w.source,
                    version: None,
                    data: BytesMut::new(),
                    omap: Vec::new(),
                    keys_bytes: 0,
                    omap_after: Bytes::new(),
                    asked_ms: 0,
                };
                self.c.copies.running.insert(self.c.copies.next, fetch);
            }
            let ms = now.mono_ms();
            let due = self.c.copies.running.iter();
            let due: Vec<u64> = due
                .filter(|(_, f)| f.asked_ms == 0 || ms >= f.asked_ms + RETRY_MS)
                .map(|(id, _)| *id)
                .collect();
            for id in due {
                self.ask_part(now, id, out);
            }
        }
    }

    /// Sends what PGs want of others, if they want anything.
    pub(crate) fn pump_copies_and_asks(&mut self, now: Now, out: &mut Outbox) {
        if !self.c.copies.is_idle() {
            self.pump_copies(now, out);
        }
        self.pump_asks(now, out);
    }

    /// As [`Osd::pump_copies`], once in a while.
    pub(crate) fn tick_copies(&mut self, now: Now, out: &mut Outbox) {
        let ms = now.mono_ms();
        let due = self.c.copies.running.iter();
        let due: Vec<u64> =
            due.filter(|(_, f)| ms >= f.asked_ms + RETRY_MS).map(|(id, _)| *id).collect();
        for id in due {
            self.ask_part(now, id, out);
        }
        self.pump_copies(now, out);
    }

    fn ask_part(&mut self, now: Now, id: u64, out: &mut Outbox) {
        let Some(f) = self.c.copies.running.get_mut(&id) else { return };
        f.asked_ms = now.mono_ms().max(1);
        let waits =
            self.pgs.get(&f.target.0).is_some_and(|pg| pg.waits_for_copy(&f.target.1, f.seq));
        if !waits {
            self.c.copies.running.remove(&id); // its request is gone, or begins anew
            return;
        }
        if !self.c.copies.may_grow(id) {
            return; // it is tried again
        }
        let Some(f) = self.c.copies.running.get(&id) else { return };
        let map = &self.c.map;
        let (off, omap_after) = (f.data.len() as u64, f.omap_after.clone());
        let mut locator = f.source.locator.clone();
        if let Some(pool) = map.pool(locator.pool).filter(|p| !f.source.direct && p.read_tier >= 0)
        {
            locator.pool = PoolId(pool.read_tier);
        }
        let pg = map.object_to_pg(&f.source.oid, &locator);
        let primary = pg.and_then(|pg| self.c.mapping.get(pg)).and_then(|s| s.acting_primary);
        let Some(pg) = pg else {
            // No such pool.
            self.finish_copy(now, id, CopyContent::default(), out);
            return;
        };
        let l = &f.source.locator;
        let mut oid = HObject::head(pg.pool, l.nspace.clone(), l.key.clone(), f.source.oid.clone());
        oid.snap = f.source.snap;
        match primary {
            Some(osd) if osd == self.c.id.whoami => self.local_parts(now, id, pg, oid, out),
            Some(osd) => {
                let body = PeerMsg::CopyGet { id, oid, off, omap_after };
                let epoch = self.c.map.epoch;
                let (pg, from) = (self.c.spg_of(pg, osd), ShardId::NONE);
                out.osd(osd, &OsdPeer { pg, from, epoch, interval: Epoch(0), felt: 0, body });
            }
            None => {}
        }
    }

    /// The source is led here.
    fn local_parts(&mut self, now: Now, mut id: u64, pg: PgId, oid: HObject, out: &mut Outbox) {
        loop {
            if !self.c.copies.may_grow(id) {
                return; // the next tick goes on
            }
            let Some(f) = self.c.copies.running.get(&id) else { return };
            let (off, after) = (f.data.len() as u64, f.omap_after.clone());
            let home = self.c.spg_of(pg, self.c.id.whoami);
            let mut cx = self.c.cx(now, out);
            let Some(pg) = self.pgs.get_mut(&home) else { return };
            let Some(part) = pg.copy_part(&oid, off, &after, &mut cx) else { return };
            let answered = pg.answered_with(&part, &cx);
            let Some(next) = self.on_copy_part(now, id, part, answered, out) else { return };
            id = next;
        }
    }

    /// Another OSD wants a part of an object led here; without an answer it asks again.
    pub(crate) fn on_copy_get(&mut self, now: Now, from: PgShard, m: &OsdPeer, out: &mut Outbox) {
        let PeerMsg::CopyGet { id, oid, off, omap_after } = &m.body else { return };
        let mut cx = self.c.cx(now, out);
        let Some(pg) = self.pgs.get_mut(&m.pg) else { return };
        if let Some(part) = pg.copy_part(oid, *off, omap_after, &mut cx) {
            let answered = pg.answered_with(&part, &cx);
            let body = PeerMsg::CopyPart { id: *id, push: part, answered };
            let epoch = self.c.map.epoch;
            let (pg, shard) = (types::SpgId { shard: from.shard, ..m.pg }, m.pg.shard);
            out.osd(
                from.osd,
                &OsdPeer { pg, from: shard, epoch, interval: Epoch(0), felt: 0, body },
            );
        }
    }

    /// A part has come from elsewhere.
    pub(crate) fn on_copy_answer(
        &mut self,
        now: Now,
        id: u64,
        push: Push,
        answered: Vec<Answered>,
        out: &mut Outbox,
    ) {
        if let Some(next) = self.on_copy_part(now, id, push, answered, out) {
            self.ask_part(now, next, out);
        }
        self.pump_copies(now, out);
    }

    /// Takes a part; under which number the next is to be asked for, if there is one.
    fn on_copy_part(
        &mut self,
        now: Now,
        id: u64,
        push: Push,
        answered: Vec<Answered>,
        out: &mut Outbox,
    ) -> Option<u64> {
        let most = self.c.store.record_max();
        let f = self.c.copies.running.get_mut(&id)?;
        if push.absent {
            let content = CopyContent { answered, ..CopyContent::default() };
            self.finish_copy(now, id, content, out);
            return None;
        }
        if f.version.is_some_and(|v| v != push.version) {
            f.version = None;
            f.data.clear();
            f.omap.clear();
            f.keys_bytes = 0;
            f.omap_after = Bytes::new();
            return self.c.copies.renumber(id); // it was written: from the start
        }
        if push.off != f.data.len() as u64 {
            return None; // not what was asked for
        }
        f.version = Some(push.version);
        f.data.extend_from_slice(&push.data);
        let copied = push.omap.iter();
        f.omap.extend(copied.map(|(k, v)| (Bytes::copy_from_slice(k), Bytes::copy_from_slice(v))));
        f.omap_after = Bytes::copy_from_slice(&push.omap_after);
        // What no write could bring is not gathered to its end.
        let pairs = |all: &[(Bytes, Bytes)]| all.iter().map(|(k, v)| k.len() + v.len()).sum();
        let grown: usize = pairs(&push.omap);
        f.keys_bytes += grown;
        let rest: usize = pairs(&push.attrs);
        if (f.keys_bytes + rest + push.header.len()) as u64 > most {
            tracing::warn!(oid = %push.oid, "an object is not copied: its attributes and omap are too large");
            let content = CopyContent { failed: Some(Errno::MSGSIZE), ..CopyContent::default() };
            self.finish_copy(now, id, content, out);
            return None;
        }
        if !push.last {
            return self.c.copies.renumber(id);
        }
        let record = push.attrs.iter().find(|(name, _)| name == INFO_ATTR);
        let Some(info) = record.and_then(|(_, raw)| ObjectInfo::from_bytes(raw).ok()) else {
            tracing::error!(oid = %push.oid, "an object that is to be copied cannot be read");
            let content = CopyContent { failed: Some(Errno::IO), ..CopyContent::default() };
            self.finish_copy(now, id, content, out);
            return None;
        };
        let f = self.c.copies.running.get_mut(&id).expect("looked at");
        let content = CopyContent {
            answered,
            failed: None,
            state: ObjectState { exists: !info.whiteout, info },
            data: std::mem::take(&mut f.data).freeze(),
            attrs: push.attrs.iter().filter(|(n, _)| n != INFO_ATTR).cloned().collect(),
            header: push.header.clone(),
            omap: std::mem::take(&mut f.omap),
        };
        self.finish_copy(now, id, content, out);
        None
    }

    fn finish_copy(&mut self, now: Now, id: u64, content: CopyContent, out: &mut Outbox) {
        let Some(f) = self.c.copies.running.remove(&id) else { return };
        self.with_pg(now, f.target.0, out, |pg, cx| pg.on_copied(&f.target.1, f.seq, content, cx));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// However many objects are copied at once, they take no more than the bound and one object.
    #[test]
    fn fetches_are_bounded_in_sum() {
        let mut copies = Copies::default();
        for id in 0..100 {
            let fetch = Fetch {
                target: (types::SpgId::default(), HObject::min()),
                seq: id,
                source: Source {
                    oid: Bytes::new(),
                    locator: ObjectLocator::default(),
                    snap: SnapId::HEAD,
                    direct: false,
                },
                version: None,
                data: BytesMut::new(),
                omap: Vec::new(),
                keys_bytes: 0,
                omap_after: Bytes::new(),
                asked_ms: 0,
            };
            copies.running.insert(id, fetch);
        }
        // By counts instead of bytes: nothing is taken.
        let (part, object) = (8 << 20, 128 << 20);
        let mut ended = 0;
        while !copies.running.is_empty() {
            let ids: Vec<u64> = copies.running.keys().copied().collect();
            let mut grew = false;
            for id in ids {
                if !copies.may_grow(id) {
                    continue;
                }
                grew = true;
                let f = copies.running.get_mut(&id).expect("just seen");
                f.keys_bytes += part;
                if f.keys_bytes == object {
                    copies.running.remove(&id);
                    ended += 1;
                }
                let all: usize = copies.running.values().map(|f| f.keys_bytes).sum();
                assert!(all <= BYTES_MAX + object, "{all}");
            }
            assert!(grew, "somebody goes on");
        }
        assert_eq!(ended, 100);
    }
}
