//! Shards that lack an object get it computed from others, part by part; only what is lacked
//! is written.

use std::collections::BTreeSet;

use bytes::Bytes;
use maps::PgShard;
use messages::{PeerMsg, Push};
use types::{EVersion, HObject};

use super::gather::{For, Record, Want};
use crate::backing::StoreOp;
use crate::object::INFO_ATTR;
use crate::pg::{Cx, Pg, Ticket};

/// Bytes of each shard in one part.
const PART_BYTES: u64 = 1 << 20;

/// An object being brought back.
#[derive(Debug)]
pub(crate) struct Rebuild {
    /// Which try it is: what was gathered for another is of no use.
    pub(super) number: u64,
    version: EVersion,
    /// Who lacks it.
    targets: Vec<PgShard>,
    /// First byte of the shards in the part under way.
    off: u64,
    /// Who has not applied it.
    open: BTreeSet<PgShard>,
    /// This was the last part.
    last: bool,
    pub since_ms: u64,
}

impl Rebuild {
    pub fn is_for(&self, copy: &PgShard) -> bool {
        self.targets.contains(copy)
    }
}

impl Pg {
    /// Shards elsewhere that are brought what they lack: acting ones, and those that follow where
    /// flags and their room allow.
    fn brought_up(&self, cx: &Cx<'_>) -> Vec<PgShard> {
        let copies = self.may_backfill(cx);
        let is = |c: &PgShard| self.acts(c) || copies && !self.is_full_at(c, cx);
        let peers = self.peers.iter().filter(|(c, p)| p.activated && is(c));
        peers.map(|(c, _)| *c).collect()
    }

    /// Objects that shards lack and of which nothing is under way; without a `turn` only what those
    /// lack that follow beside the acting ones.
    pub(crate) fn to_rebuild(&self, max: usize, turn: bool, cx: &Cx<'_>) -> Vec<HObject> {
        let own = self.missing.iter().filter(|_| turn);
        let lacks = |c: PgShard| self.peers.get(&c).into_iter().flat_map(|p| &p.missing);
        let peers = self.brought_up(cx).into_iter().filter(|c| turn || !self.acts(c));
        let all = own.chain(peers.flat_map(lacks));
        let mut found: Vec<HObject> = Vec::new();
        for (oid, v) in all {
            if found.len() >= max {
                break;
            }
            let busy = self.recovery.rebuilds.contains_key(oid) || found.contains(oid);
            if !busy && self.is_readable(oid, *v) {
                found.push(oid.clone());
            }
        }
        found
    }

    /// Begins to bring an object back.
    pub(crate) fn rebuild(&mut self, oid: &HObject, cx: &mut Cx<'_>) {
        let quiet = |o: &crate::pg::Obc| o.in_flight == 0 && !o.writer && o.readers == 0;
        if self.recovery.rebuilds.contains_key(oid) || !self.obcs.get(oid).is_none_or(quiet) {
            return;
        }
        let mut lack: Vec<(PgShard, EVersion)> =
            self.missing.get(oid).map(|v| (self.me(cx.me), *v)).into_iter().collect();
        let lacks = |c: PgShard| Some((c, *self.peers.get(&c)?.missing.get(oid)?));
        lack.extend(self.brought_up(cx).into_iter().filter_map(lacks));
        let Some(version) = lack.iter().map(|(_, v)| *v).max() else { return };
        if !self.is_readable(oid, version) {
            return;
        }
        let targets = lack.into_iter().filter(|(_, v)| *v == version).map(|(c, _)| c).collect();
        self.coded.next += 1;
        let rebuild = Rebuild {
            number: self.coded.next,
            version,
            targets,
            off: 0,
            open: BTreeSet::new(),
            last: false,
            since_ms: cx.now.mono_ms(),
        };
        self.recovery.rebuilds.insert(oid.clone(), rebuild);
        *cx.recoveries += 1;
        self.rebuild_part(oid, cx);
    }

    /// Whole chunks.
    fn part_bytes(&self) -> u64 {
        PART_BYTES.next_multiple_of(self.pool.coding.as_ref().map_or(1, |c| c.unit))
    }

    fn rebuild_part(&mut self, oid: &HObject, cx: &mut Cx<'_>) {
        let Some(r) = self.recovery.rebuilds.get(oid) else { return };
        // Who acts for a shard and who follows for it may both lack the object.
        let shards: BTreeSet<usize> = r.targets.iter().map(|c| c.shard.0 as usize).collect();
        let want = Want {
            oid: oid.clone(),
            version: r.version,
            off: r.off,
            len: self.part_bytes(),
            shards: shards.into_iter().collect(),
            attrs: true,
        };
        let purpose = For::Rebuild(oid.clone(), r.number);
        self.gather(want, purpose, cx);
    }

    /// A part has been computed, or cannot be.
    pub(super) fn on_rebuilt_part(
        &mut self,
        (oid, number): (&HObject, u64),
        got: Option<(Vec<Option<Bytes>>, Option<Record>)>,
        failed: BTreeSet<PgShard>,
        cx: &mut Cx<'_>,
    ) {
        let me = self.me(cx.me);
        let (repair, part) = (self.mending.number(oid), self.part_bytes());
        let Some(r) = self.recovery.rebuilds.get_mut(oid).filter(|r| r.number == number) else {
            return;
        };
        let Some((shards, Some((attrs, size)))) = got else {
            self.forget_rebuild(oid, cx);
            self.looked_in_vain(oid, failed);
            self.stats_dirty = true;
            return;
        };
        if !attrs.iter().any(|(name, _)| name == INFO_ATTR) {
            tracing::error!(pg = %self.id, %oid, "a shard without a record");
            self.forget_rebuild(oid, cx);
            return;
        }
        let len = part.min(size.saturating_sub(r.off));
        r.last = r.off + len >= size;
        r.since_ms = cx.now.mono_ms();
        r.open = r.targets.iter().copied().collect();
        let (off, last, version) = (r.off, r.last, r.version);
        let mut mine = None;
        for target in r.targets.clone() {
            let data = shards[target.shard.0 as usize].as_ref().expect("it was wanted");
            let push = Push {
                oid: oid.clone(),
                version,
                first: off == 0,
                off,
                size,
                attrs: if last { attrs.clone() } else { Vec::new() },
                last,
                repair,
                data: data.slice(..len as usize),
                ..Push::default()
            };
            if target == me {
                mine = Some(push);
            } else {
                self.count_recovered(0, len, cx);
                self.say(cx, target, PeerMsg::Push(push));
            }
        }
        let Some(push) = mine else { return };
        if self.is_too_large(&push, cx) || self.is_too_much(&push, cx) {
            return; // as for a shard elsewhere that has no room: asked for again after a while
        }
        self.count_recovered(0, len, cx);
        let mut ops: Vec<StoreOp> = Vec::new();
        self.apply_part(&push, &mut ops, cx);
        if last {
            let done = Ticket::Recovered(self.id, self.interval(), oid.clone(), version);
            cx.submit(ops, done);
        } else {
            cx.submit(ops, Ticket::None);
            self.on_shard_applied(me, oid, version, cx);
        }
    }

    /// A shard has the whole object, as a try before this one brought it: it is not needed for it
    /// any more, and the object may be written from now on.
    pub(crate) fn on_shard_whole(
        &mut self,
        from: PgShard,
        oid: &HObject,
        version: EVersion,
        cx: &mut Cx<'_>,
    ) {
        let rebuild = self.recovery.rebuilds.get_mut(oid);
        let Some(r) = rebuild.filter(|r| r.version == version && !r.open.contains(&from)) else {
            return;
        };
        r.targets.retain(|c| *c != from);
        if r.targets.is_empty() {
            self.forget_rebuild(oid, cx);
            self.stats_dirty = true;
            self.after_recovery_of(oid, cx);
        }
    }

    /// A shard has applied a part.
    pub(crate) fn on_shard_applied(
        &mut self,
        from: PgShard,
        oid: &HObject,
        version: EVersion,
        cx: &mut Cx<'_>,
    ) {
        let part = self.part_bytes();
        let Some(r) = self.recovery.rebuilds.get_mut(oid).filter(|r| r.version == version) else {
            return;
        };
        if !r.open.remove(&from) {
            return; // it came twice
        }
        r.since_ms = cx.now.mono_ms();
        if !r.open.is_empty() {
            return;
        }
        if r.last {
            self.forget_rebuild(oid, cx);
            self.stats_dirty = true;
            self.after_recovery_of(oid, cx);
            return;
        }
        r.off += part;
        self.rebuild_part(oid, cx);
    }

    pub(crate) fn forget_rebuild(&mut self, oid: &HObject, cx: &mut Cx<'_>) {
        if self.recovery.rebuilds.remove(oid).is_some() {
            *cx.recoveries -= 1.min(*cx.recoveries);
        }
    }

    /// A shard cannot be read: it is computed anew.
    pub(crate) fn shard_is_damaged(
        &mut self,
        copy: PgShard,
        oid: &HObject,
        version: EVersion,
        cx: &mut Cx<'_>,
    ) {
        let lacks = if copy == self.me(cx.me) {
            self.missing.contains_key(oid)
        } else {
            self.peers.get(&copy).is_none_or(|p| p.missing.contains_key(oid))
        };
        let busy = self.obcs.get(oid).is_some_and(|o| o.in_flight > 0);
        if lacks || busy {
            return;
        }
        let text = format!("{} shard {copy} of {oid} cannot be read, rebuilding it", self.id);
        cx.out.push(crate::outbox::Effect::ClusterLog { error: true, text });
        self.info.scrub.repaired += 1;
        self.mark_damaged(copy, oid, version, cx);
        self.recover_first(oid, cx);
    }
}
