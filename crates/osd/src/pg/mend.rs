//! Copies of objects that are damaged: found by a scrub, or by a read that failed. Such a
//! copy counts as missing from then on, and recovery brings it back from the others; what
//! asked for it waits, and never gets the error while one copy is whole.

use std::collections::HashMap;

use maps::PgShard;
use types::{EVersion, Errno, HObject};

use super::{Cx, Pg, State, Ticket};
use crate::backing::{Coll, ObjectStore, StoreError};
use crate::session::ClientOp;

/// What is being mended.
#[derive(Debug, Default)]
pub(crate) struct Mending {
    /// Counts the times something was found.
    next: u32,
    /// Objects whose other copies do not know that they are damaged, until all are whole.
    of: HashMap<HObject, u32>,
    /// As a copy: which of the primary's findings were heard of.
    heard: HashMap<HObject, u32>,
}

impl Mending {
    /// The number a push of this object carries; 0 when its receiver knows by itself.
    pub fn number(&self, oid: &HObject) -> u32 {
        self.of.get(oid).copied().unwrap_or(0)
    }

    /// Whether the copy here was found damaged.
    pub fn knows(&self, oid: &HObject) -> bool {
        self.of.contains_key(oid) || self.heard.contains_key(oid)
    }

    /// The object is whole everywhere.
    pub fn done(&mut self, oid: &HObject) {
        self.of.remove(oid);
    }

    /// The primary says that the copy here is damaged; whether that is news.
    pub fn hears(&mut self, oid: &HObject, number: u32) -> bool {
        let known = self.heard.entry(oid.detached()).or_default();
        let news = number > *known;
        *known = number.max(*known);
        news
    }
}

/// Whether all of the object can be read.
fn read_all(store: &dyn ObjectStore, coll: Coll, oid: &HObject) -> Result<(), StoreError> {
    let Some(size) = store.size(coll, oid)? else { return Ok(()) };
    store.attrs(coll, oid)?;
    store.omap_header(coll, oid)?;
    store.omap_walk(coll, oid, b"", &mut |_, _| true)?;
    const PART: u64 = 4 << 20;
    for off in (0..size).step_by(PART as usize) {
        store.read(coll, oid, off, PART)?;
    }
    Ok(())
}

impl Pg {
    /// A copy is not what it should be: `version` of the object is.
    pub(crate) fn mark_damaged(
        &mut self,
        osd: PgShard,
        oid: &HObject,
        version: EVersion,
        cx: &mut Cx<'_>,
    ) {
        let oid = oid.detached();
        if osd == self.me(cx.me) {
            cx.perf.own.copies_repaired += 1;
            let mut ops = Vec::new();
            self.set_missing(oid.clone(), version, &mut ops);
            cx.submit(ops, Ticket::None);
            if let Some(obc) = self.obcs.get_mut(&oid) {
                let waiting = std::mem::take(&mut obc.waiting);
                if !obc.writer && obc.readers == 0 {
                    self.obcs.remove(&oid);
                }
                self.blocked.entry(oid.clone()).or_default().extend(waiting);
            }
        } else if let Some(peer) = self.peers.get_mut(&osd) {
            peer.missing.insert(oid.clone(), version);
        }
        self.mending.next += 1;
        self.mending.of.insert(oid, self.mending.next);
        self.stats_dirty = true;
    }

    /// The own copy could not be read: it counts as missing, when another is there. `false`
    /// when it stays as it is.
    pub(crate) fn mend_own(&mut self, oid: &HObject, cx: &mut Cx<'_>) -> bool {
        let have = self.peers.values().filter(|p| p.activated && !p.missing.contains_key(oid));
        let other = have.count() >= self.pool.readable_by();
        let busy = self.obcs.get(oid).is_some_and(|o| o.in_flight > 0);
        if self.state != State::Active || !self.leads || !other || busy {
            return false;
        }
        let Some(version) = self.version_of(oid, cx) else { return false };
        tracing::warn!(pg = %self.id, %oid, "the copy here cannot be read: another takes its place");
        let text =
            format!("{} missing primary copy of {oid}, will try copies on the others", self.id);
        cx.out.push(crate::outbox::Effect::ClusterLog { error: true, text });
        self.info.scrub.repaired += 1;
        self.mark_damaged(self.me(cx.me), oid, version, cx);
        self.recover_first(oid, cx);
        true
    }

    /// A request met an error of the store. It waits for a whole copy, or is given back when
    /// there is none, or nothing is wrong with the object.
    pub(crate) fn wait_for_mending(
        &mut self,
        op: Box<ClientOp>,
        cx: &mut Cx<'_>,
    ) -> Option<Box<ClientOp>> {
        let op = self.behind_writes(op)?;
        let oid = op.oid.detached();
        if !self.missing.contains_key(&oid)
            && (read_all(cx.store, self.coll, &oid).is_ok() || !self.mend_own(&oid, cx))
        {
            return Some(op);
        }
        self.blocked.entry(oid).or_default().push_back(op);
        None
    }

    /// Whether a result may be the store's error.
    pub(crate) fn is_store_error(result: i32) -> bool {
        result == Errno::IO.0
    }
}
