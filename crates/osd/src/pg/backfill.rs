//! Bringing copies up without making clients wait: while a copy that CRUSH chose lacks much,
//! others act in its place (`pg_temp`), and it follows beside them.
//!
//! ```text
//!   peering: a chosen copy lacks much ─▶ WaitActing ─(map: pg_temp)─▶ peering ─▶ Active
//!   Active, for each chosen copy that does not act:
//!     Wait ─(slots here and there)─▶ Ask ─▶ (List ─▶) Activating ─▶ Following ─▶ whole
//!                                    its    what     log, and what           all whole:
//!                                    log    it has   it lacks                pg_temp ends
//! ```
//!
//! A copy that follows gets every write as the acting copies do. It does not apply one to an
//! object that it lacks: it then lacks the newer version, and both sides reckon so by the same
//! rule ([`follow`]). No write waits for it, and no answer depends on it; what it lacks stands
//! on its disk, so an interruption costs nothing but a look at its log.
//!
//! Source: the peer's `PeeringState::choose_acting`, `PrimaryLogPG::recover_backfill`.

use std::collections::{BTreeMap, BTreeSet};

use denc::Denc;
use maps::PgShard;
use messages::{LogKind, Mutation, ObjectChange, PeerMsg, PgInfo, PgLogEntry};
use types::{EVersion, HObject, OsdId, SpgId};

use super::peering::{compare, list_all};
use super::{Cx, Peer, Pg, Scan, State};
use crate::object::{INFO_ATTR, ObjectInfo};

/// Who does not answer is asked again.
const RETRY_MS: u64 = 3_000;
/// One whose slots are taken is asked again after this long, where it cannot say when it is
/// free.
const BUSY_MS: u64 = 500;
/// One that is too full is asked again after this long: the peer's
/// `osd_backfill_retry_interval`.
const TOO_FULL_MS: u64 = 30_000;
/// So often another acting set is asked for before peering goes on without it.
const TEMP_TRIES: u32 = 3;

/// Where the primary is with a copy that does not act.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Target {
    /// It acts, or is not needed.
    #[default]
    No,
    /// Waits for slots.
    Wait,
    /// Was asked for its slot.
    Slot,
    /// Was asked for its log.
    Ask,
    /// Is listed.
    List,
    /// Was told the log, which ended here.
    Activating(EVersion),
    /// Gets all writes.
    Following,
}

impl Target {
    /// Whether writes are sent to it.
    pub fn follows(&self) -> bool {
        matches!(self, Self::Activating(_) | Self::Following)
    }
}

/// What a change does to a copy that lacks `missing`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Apply,
    /// It lacks this version from now on, and the change is left out.
    Lacks(EVersion),
    /// It lacks nothing of the object any more, for it is gone.
    Gone,
}

/// See the module.
pub(crate) fn follow(
    missing: &BTreeMap<HObject, EVersion>,
    change: &ObjectChange,
    entry: &PgLogEntry,
) -> Step {
    let from_missing = change
        .mutations
        .iter()
        .any(|m| matches!(m, Mutation::CloneFrom(source) if missing.contains_key(source)));
    let lacks = missing.contains_key(&change.oid);
    if !lacks && !from_missing {
        return Step::Apply;
    }
    let record = change.mutations.iter().rev().find_map(|m| match m {
        Mutation::SetAttr(name, raw) if name == INFO_ATTR => ObjectInfo::from_bytes(raw).ok(),
        _ => None,
    });
    let removed = change.mutations.iter().rposition(|m| matches!(m, Mutation::Remove));
    match (record, removed) {
        (Some(info), _) => Step::Lacks(info.version),
        (None, Some(_)) => Step::Gone,
        (None, None) if entry.kind == LogKind::Delete && entry.oid == change.oid => Step::Gone,
        (None, None) => Step::Lacks(entry.version),
    }
}

/// Whether a copy with `info` lacks so little of what the owner of the log has that it may act at
/// once: what it lacks is brought while clients wait for it.
pub(crate) fn can_act(info: &PgInfo, auth: &PgInfo, cx: &Cx<'_>) -> bool {
    let behind = auth.last_update.version.saturating_sub(info.last_update.version);
    info.last_update >= auth.log_tail && info.missing.saturating_add(behind) <= cx.conf.act_cost_max
}

/// Whether this OSD takes no more copies.
pub(crate) fn is_too_full_for_copies(cx: &Cx<'_>) -> bool {
    let bits = cx.map.state(cx.me);
    let (total, available) = cx.store.room();
    let used = total.saturating_sub(available) as f64;
    bits.has(maps::OsdState::BACKFILLFULL)
        || bits.has(maps::OsdState::FULL)
        || used > total as f64 * f64::from(cx.map.backfillfull_ratio).clamp(0.1, 1.0)
}

/// Lends `pg`, which another OSD leads, a slot for copies to here: whether it has one now, and
/// whether this OSD is too full to.
pub(crate) fn lend_slot(pg: SpgId, cx: &mut Cx<'_>) -> (bool, bool) {
    let full = is_too_full_for_copies(cx);
    (!full && cx.slots.backfills_lent.take(pg, cx.conf.backfills_max), full)
}

impl Peer {
    /// Whether it follows beside the acting copies and lacks nothing.
    pub(super) fn has_caught_up(&self) -> bool {
        self.target == Target::Following && self.missing.is_empty()
    }
}

impl Pg {
    /// Whether another acting set is wanted, and asked for: peering waits for the map.
    pub(crate) fn wants_other_acting(
        &mut self,
        infos: &BTreeMap<PgShard, PgInfo>,
        best: PgShard,
        cx: &mut Cx<'_>,
    ) -> bool {
        let Some(want) = self.plan_acting(infos, best, cx) else { return false };
        if self.temp_tries >= TEMP_TRIES {
            return false;
        }
        self.temp_tries += 1;
        tracing::debug!(pg = %self.id, acting = ?self.info.acting, ?want, "another acting set");
        self.state = State::WaitActing;
        self.retry_at_ms = cx.now.mono_ms() + RETRY_MS;
        cx.want_temp.insert(self.id.pg, want);
        true
    }

    /// The acting set that serves best, when it is not the present one; empty for what CRUSH
    /// chose.
    fn plan_acting(
        &self,
        infos: &BTreeMap<PgShard, PgInfo>,
        best: PgShard,
        cx: &Cx<'_>,
    ) -> Option<Vec<OsdId>> {
        let auth = infos.get(&best)?;
        if self.is_coded() {
            return self.plan_acting_shards(infos, auth, cx);
        }
        let infos: BTreeMap<OsdId, &PgInfo> = infos.iter().map(|(c, i)| (c.osd, i)).collect();
        let best = best.osd;
        let usable = |o: &OsdId| infos.get(o).is_some_and(|i| can_act(i, auth, cx));
        let up: Vec<OsdId> = self.info.up.iter().copied().filter(|o| *o != OsdId::NONE).collect();
        let mut want: Vec<OsdId> = Vec::new();
        // Whoever leads, or led, goes on: its clients need not look for another.
        let led = self.info.past.last().map_or(OsdId::NONE, |i| i.primary);
        let leads = [self.up_primary, self.info.primary, led];
        let first = leads.into_iter().find(usable).unwrap_or(best);
        let strays = infos.keys();
        for o in [first].iter().chain(&up).chain(&self.info.acting).chain(strays) {
            if want.len() < self.pool.size && usable(o) && cx.map.is_up(*o) && !want.contains(o) {
                want.push(*o);
            }
        }
        let set = |v: &[OsdId]| v.iter().copied().collect::<BTreeSet<OsdId>>();
        let acting = &self.info.acting;
        let has_temp = cx.map.pg_temp.contains_key(&self.id.pg);
        if set(&want) == set(&up) && want.first() == Some(&self.up_primary) {
            // What CRUSH chose, however it orders it.
            return (has_temp && set(acting) != set(&up)).then(Vec::new);
        }
        if want.len() < self.pool.min_size.max(1) {
            return None; // it would not serve at all
        }
        let same = set(&want) == set(acting) && want.first() == Some(&self.info.primary);
        (!same).then_some(want)
    }

    /// Copies that CRUSH chose and that do not act, to be brought up beside those that do. A shard
    /// for which nobody acts is not written, and nobody can follow it.
    fn targets(&self) -> Vec<PgShard> {
        let can = |c: &PgShard| !self.is_without(c.shard) && !self.is_bound(c.shard);
        self.up_copies().filter(|c| !self.acts(c) && can(c)).collect()
    }

    /// Copies beside the acting ones that get all writes.
    pub(crate) fn followers(&self) -> impl Iterator<Item = PgShard> + '_ {
        self.peers.iter().filter(|(_, p)| p.target.follows()).map(|(o, _)| *o)
    }

    /// Whether objects are being copied to a copy that does not act, or wait for it.
    pub(crate) fn backfill_state(&self) -> (bool, bool, bool) {
        let of = |f: fn(&Target) -> bool| self.peers.values().any(|p| f(&p.target));
        (
            of(|t| !matches!(t, Target::No | Target::Wait | Target::Slot)),
            of(|t| matches!(t, Target::Wait | Target::Slot)),
            self.target_full,
        )
    }

    /// Objects that lie elsewhere than they should and are not lacking.
    pub(crate) fn misplaced(&self) -> i64 {
        let objects = self.counts().objects;
        let lacking = |o: &PgShard| match self.peers.get(o) {
            Some(p) if p.target == Target::Following => p.missing.len() as i64,
            _ => objects,
        };
        if !self.is_full_sized() {
            return 0;
        }
        let targets = self.targets();
        if targets.is_empty() {
            // CRUSH finds too few places: the others have theirs elsewhere.
            let elsewhere = self.acting_copies().filter(|o| !self.is_chosen(o)).count();
            return elsewhere as i64 * objects;
        }
        targets.iter().map(lacking).sum()
    }

    /// Goes on with copies that do not act; ends `pg_temp` when nothing is left to do.
    pub(crate) fn tick_backfill(&mut self, cx: &mut Cx<'_>) {
        if self.state != State::Active || !self.leads {
            return;
        }
        let targets = self.targets();
        let now = cx.now.mono_ms();
        if targets.is_empty() {
            self.end_backfill(cx);
        }
        let allowed = self.may_backfill(cx);
        let hurries = self.forced || !self.is_full_sized();
        for o in &targets {
            if !cx.map.is_up(o.osd) {
                continue;
            }
            let peer = self.peers.entry(*o).or_default();
            if peer.target == Target::No {
                peer.target = Target::Wait;
                peer.activated = false;
                self.stats_dirty = true;
            }
            let late = now >= peer.target_ms;
            match &peer.target {
                Target::Wait if allowed && late => {
                    if !hurries && !cx.pace.may_copy(cx.now) {
                        cx.slots.backfills.put_off();
                        continue;
                    }
                    if !cx.slots.backfills.take(self.id, cx.conf.backfills_max) && !self.forced {
                        continue;
                    }
                    cx.pace.copy_begun(cx.now);
                    peer.target = Target::Slot;
                    peer.target_ms = now + RETRY_MS;
                    self.say(cx, *o, PeerMsg::BackfillAsk);
                }
                Target::Slot if late => {
                    peer.target_ms = now + RETRY_MS;
                    self.say(cx, *o, PeerMsg::BackfillAsk);
                }
                Target::Ask if late => {
                    peer.target_ms = now + RETRY_MS;
                    self.say(cx, *o, PeerMsg::Query);
                }
                Target::List if late => {
                    peer.target_ms = now + RETRY_MS;
                    if let Some(next) = peer.scan.as_ref().map(|s| s.next.clone()) {
                        self.say(cx, *o, PeerMsg::Scan(next));
                    }
                }
                Target::Activating(_) if late => self.ask_target(*o, cx),
                _ => {}
            }
        }
        self.maybe_end_temp(cx);
    }

    /// Whether flags and the state of things let copies be made.
    pub(crate) fn may_backfill(&self, cx: &Cx<'_>) -> bool {
        use maps::OsdMapFlags as F;
        let whole = self.is_full_sized();
        let put_off = cx.map.has_flag(F::NOREBALANCE) && whole;
        !cx.map.has_flag(F::NOBACKFILL) && !put_off
    }

    fn ask_target(&mut self, osd: PgShard, cx: &mut Cx<'_>) {
        self.forget_pushes_to(osd, cx);
        let now = cx.now.mono_ms();
        let Some(peer) = self.peers.get_mut(&osd) else { return };
        peer.target = Target::Ask;
        peer.target_ms = now + RETRY_MS;
        peer.activated = false;
        peer.scan = None;
        peer.reset = None;
        self.say(cx, osd, PeerMsg::Query);
    }

    /// A copy lends its slot, or does not.
    pub(crate) fn on_backfill_slot(
        &mut self,
        from: PgShard,
        yes: bool,
        full: bool,
        cx: &mut Cx<'_>,
    ) {
        let now = cx.now.mono_ms();
        let waits = self.leads && self.peers.get(&from).is_some_and(|p| p.target == Target::Slot);
        if !waits {
            if yes && !self.peers.get(&from).is_some_and(|p| p.target != Target::No) {
                self.say(cx, from, PeerMsg::BackfillEnd);
            }
            return;
        }
        self.stats_dirty = true;
        self.target_full = full;
        if yes {
            if let Some(peer) = self.peers.get_mut(&from) {
                peer.slot = true;
            }
            self.ask_target(from, cx);
            return;
        }
        let peer = self.peers.get_mut(&from).expect("just seen");
        peer.target = Target::Wait;
        peer.target_ms = now + if full { TOO_FULL_MS } else { BUSY_MS };
        if !self.peers.values().any(|p| !matches!(p.target, Target::No | Target::Wait)) {
            cx.slots.backfills.give_back(self.id);
        }
    }

    /// The primary asks for this copy's slot.
    pub(crate) fn on_backfill_ask(&mut self, from: PgShard, cx: &mut Cx<'_>) {
        if !self.is_led_by(&from) {
            return;
        }
        let (granted, full) = lend_slot(self.id, cx);
        // Who has to wait for others is answered when it is its turn.
        self.slot_wanted = !granted && !full;
        if !self.slot_wanted {
            self.say(cx, from, PeerMsg::BackfillSlot { granted, full });
        }
    }

    /// A slot of this OSD is free: which PGs are asked first, if they want it.
    pub(crate) fn slot_priority(&self) -> Option<(bool, bool, i64)> {
        let waits =
            self.slot_wanted || self.leads && self.peers.values().any(|p| p.target == Target::Wait);
        let whole = self.is_full_sized();
        waits.then_some((!self.forced, whole, -self.pool.recovery_priority))
    }

    /// An operator wants it done before others.
    pub(crate) fn force(&mut self, on: bool, cx: &mut Cx<'_>) {
        if !self.leads || on && self.is_clean() {
            return;
        }
        self.forced = on;
        self.stats_dirty = true;
        self.tick_backfill(cx);
        self.kick_recovery(cx);
    }

    /// It is this PG's turn.
    pub(crate) fn on_slot_free(&mut self, cx: &mut Cx<'_>) {
        if self.leads {
            self.tick_backfill(cx);
        } else if self.slot_wanted {
            self.on_backfill_ask(self.primary(), cx);
        }
    }

    /// A copy that does not act tells what it has.
    pub(crate) fn on_target_info(&mut self, from: PgShard, info: Option<PgInfo>, cx: &mut Cx<'_>) {
        let now = cx.now.mono_ms();
        let Some(peer) = self.peers.get_mut(&from).filter(|p| p.target == Target::Ask) else {
            return;
        };
        peer.answered = true;
        peer.info = info;
        peer.target_ms = now + RETRY_MS;
        let meets = peer.info.as_ref().is_some_and(|i| i.last_update >= self.log.tail);
        if meets && !peer.force_scan {
            self.activate_target(from, cx);
        } else if peer.info.is_some() {
            peer.target = Target::List;
            peer.scan = Some(Scan::default());
            self.say(cx, from, PeerMsg::Scan(HObject::min()));
        } else {
            peer.scan = Some(Scan { done: true, ..Scan::default() });
            self.compare_target(from, cx);
        }
    }

    /// All that it has is known; whether it was being listed.
    pub(crate) fn on_target_listed(&mut self, from: PgShard, cx: &mut Cx<'_>) {
        let now = cx.now.mono_ms();
        let Some(peer) = self.peers.get_mut(&from).filter(|p| p.target == Target::List) else {
            return;
        };
        peer.target_ms = now + RETRY_MS;
        if peer.scan.as_ref().is_some_and(|s| s.done) {
            self.compare_target(from, cx);
        }
    }

    fn compare_target(&mut self, osd: PgShard, cx: &mut Cx<'_>) {
        let Ok(mut should) = list_all(cx.store, self.coll) else {
            tracing::error!(pg = %self.id, "the own objects cannot be listed");
            return;
        };
        should.extend(self.missing.iter().map(|(o, v)| (o.clone(), *v)));
        let Some(peer) = self.peers.get_mut(&osd) else { return };
        let Some(scan) = peer.scan.take() else { return };
        peer.reset = Some(compare(&should, &scan.objects, &BTreeMap::new()));
        self.activate_target(osd, cx);
    }

    fn activate_target(&mut self, osd: PgShard, cx: &mut Cx<'_>) {
        self.round += 1;
        let head = self.log.head();
        let now = cx.now.mono_ms();
        self.refresh_info();
        let body = self.activation_for(osd, cx);
        let Some(peer) = self.peers.get_mut(&osd) else { return };
        peer.target = Target::Activating(head);
        peer.target_ms = now + 4 * RETRY_MS;
        peer.target_round = self.round;
        peer.committed = EVersion::ZERO;
        peer.since.clear();
        peer.unsure = false;
        self.say(cx, osd, body);
    }

    /// A copy that does not act has taken the log over; what it lacks.
    pub(crate) fn on_target_activated(
        &mut self,
        from: PgShard,
        round: u32,
        missing: Vec<(HObject, EVersion)>,
        cx: &mut Cx<'_>,
    ) {
        let Some(peer) = self.peers.get_mut(&from) else { return };
        let Target::Activating(head) = peer.target else { return };
        if peer.target_round != round {
            return;
        }
        if head < self.log.tail || peer.unsure {
            self.ask_target(from, cx); // what it was sent since is not known any more
            return;
        }
        // What was written since was sent behind the log, and may be in its answer or not.
        let mut lacks: BTreeMap<HObject, EVersion> =
            missing.into_iter().map(|(o, v)| (o.detached(), v)).collect();
        for (oid, v) in std::mem::take(&mut peer.since) {
            match v {
                Some(v) if lacks.contains_key(&oid) => drop(lacks.insert(oid, v)),
                Some(_) => {}
                None => drop(lacks.remove(&oid)),
            }
        }
        peer.missing = lacks;
        peer.activated = true;
        peer.force_scan = false;
        peer.reset = None;
        peer.target = Target::Following;
        self.stats_dirty = true;
        self.free_backfill_slots(cx);
        self.maybe_end_temp(cx);
        self.kick_recovery(cx);
    }

    /// It cannot follow the log: it is compared instead.
    pub(crate) fn on_target_unrelated(&mut self, from: PgShard, round: u32, cx: &mut Cx<'_>) {
        let Some(peer) = self.peers.get_mut(&from) else { return };
        if matches!(peer.target, Target::Activating(_)) && peer.target_round == round {
            peer.force_scan = true;
            self.ask_target(from, cx);
        }
    }

    /// What was sent to it may be lost: it is asked what it has.
    pub(crate) fn reset_target(&mut self, osd: PgShard, cx: &mut Cx<'_>) {
        if self.peers.get(&osd).is_some_and(|p| p.target != Target::No && p.target != Target::Wait)
        {
            let slot = self.peers[&osd].target == Target::Slot;
            if slot {
                self.say(cx, osd, PeerMsg::BackfillAsk);
            } else {
                self.ask_target(osd, cx);
            }
        }
    }

    /// A write goes to copies that follow: what they lack after it. `changes` are those of a copy.
    pub(crate) fn note_followers(
        &mut self,
        entry: &PgLogEntry,
        changes: &dyn Fn(&PgShard) -> Vec<ObjectChange>,
        cx: &mut Cx<'_>,
    ) {
        let mut stale = Vec::new();
        let lacking = |p: &super::Peer| p.target.follows() || p.activated && !p.missing.is_empty();
        for (osd, peer) in self.peers.iter_mut().filter(|(_, p)| lacking(p)) {
            for change in &changes(osd) {
                if let Target::Activating(_) = peer.target {
                    // What it lacks is not known yet.
                    let clones = |m: &Mutation| matches!(m, Mutation::CloneFrom(_));
                    peer.unsure |= change.mutations.iter().any(clones);
                    let all = BTreeMap::from([(change.oid.clone(), EVersion::ZERO)]);
                    match follow(&all, change, entry) {
                        Step::Lacks(v) => peer.since.push((change.oid.detached(), Some(v))),
                        _ => peer.since.push((change.oid.detached(), None)),
                    }
                    continue;
                }
                match follow(&peer.missing, change, entry) {
                    Step::Apply => continue,
                    Step::Lacks(v) => drop(peer.missing.insert(change.oid.detached(), v)),
                    Step::Gone => drop(peer.missing.remove(&change.oid)),
                }
                stale.push((*osd, change.oid.detached()));
            }
        }
        for key in stale {
            self.forget_push(&key, cx);
            if self.recovery.rebuilds.get(&key.1).is_some_and(|r| r.is_for(&key.0)) {
                self.forget_rebuild(&key.1, cx);
            }
        }
    }

    /// When every copy that CRUSH chose is whole, it acts again.
    pub(crate) fn maybe_end_temp(&mut self, cx: &mut Cx<'_>) {
        let now = cx.now.mono_ms();
        let targets = self.targets();
        let has_temp = cx.map.pg_temp.contains_key(&self.id.pg);
        let whole = |o: &PgShard| self.peers.get(o).is_some_and(Peer::has_caught_up);
        if !has_temp || self.state != State::Active || !self.missing.is_empty() {
            return;
        }
        if self.is_coded() {
            return self.maybe_end_shard_temp(cx);
        }
        // CRUSH may choose too few, as long as an OSD is down and not yet out: what others
        // have goes on to count, or it would be asked for again at once.
        let few = self.info.up.iter().filter(|o| **o != OsdId::NONE).count() < self.pool.size;
        if few && self.acting_copies().any(|o| !self.is_chosen(&o)) {
            return self.maybe_act_beside(cx);
        }
        let back = self.up_copies().all(|o| self.acts(&o) || whole(&o));
        let good = targets.iter().all(|o| cx.map.is_up(o.osd));
        if back && good && now >= self.temp_asked_ms + RETRY_MS && !self.info.up.is_empty() {
            self.temp_asked_ms = now;
            cx.want_temp.insert(self.id.pg, Vec::new());
        }
    }

    /// Once all copies that CRUSH chose are whole, and are too few, they act, beside as many of those
    /// that act now as the pool asks for.
    fn maybe_act_beside(&mut self, cx: &mut Cx<'_>) {
        let now = cx.now.mono_ms();
        let whole = |o: &PgShard| match self.peers.get(o) {
            Some(p) if self.acts(o) => p.missing.is_empty(),
            Some(p) => p.has_caught_up(),
            None => o.osd == cx.me,
        };
        let all: Vec<PgShard> = self.up_copies().chain(self.acting_copies()).collect();
        let ready = all.iter().all(|o| whole(o) && cx.map.is_up(o.osd));
        if !ready || self.targets().is_empty() || now < self.temp_asked_ms + RETRY_MS {
            return;
        }
        let mut want: Vec<OsdId> = vec![self.up_primary];
        for o in all {
            if want.len() < self.pool.size && !want.contains(&o.osd) {
                want.push(o.osd);
            }
        }
        self.temp_asked_ms = now;
        cx.want_temp.insert(self.id.pg, want);
    }

    fn end_backfill(&mut self, cx: &mut Cx<'_>) {
        if !self.peers.values().any(|p| p.target != Target::No) {
            return;
        }
        cx.slots.backfills.give_back(self.id);
        for p in self.peers.values_mut() {
            p.target = Target::No;
        }
    }

    /// A copy that follows is whole: its slot is free for others.
    pub(crate) fn free_backfill_slots(&mut self, cx: &mut Cx<'_>) {
        let done: Vec<PgShard> = self
            .peers
            .iter_mut()
            .filter(|(_, p)| p.slot && p.has_caught_up())
            .map(|(o, p)| {
                p.slot = false;
                *o
            })
            .collect();
        let open = self.peers.values().any(|p| p.target != Target::No && !p.has_caught_up());
        for o in done {
            self.say(cx, o, PeerMsg::BackfillEnd);
        }
        if !open {
            cx.slots.backfills.give_back(self.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn oid(name: &'static str) -> HObject {
        HObject { name: Bytes::from_static(name.as_bytes()), ..HObject::min() }
    }

    /// Both sides reckon alike what a copy lacks after a write.
    #[test]
    fn what_a_write_leaves_lacking() {
        let (v1, v2) = (EVersion::new(1, 1), EVersion::new(1, 2));
        let missing = BTreeMap::from([(oid("a"), v1)]);
        let entry = |kind| PgLogEntry { version: v2, kind, oid: oid("a"), ..PgLogEntry::default() };
        let change = |name, mutations| ObjectChange { oid: oid(name), mutations };
        let info = ObjectInfo { version: EVersion::new(1, 9), ..ObjectInfo::default() };
        let record = Mutation::SetAttr(Bytes::from_static(INFO_ATTR), info.to_bytes());
        let step = |c: &ObjectChange, kind| follow(&missing, c, &entry(kind));
        let write = change("b", vec![Mutation::Touch]);
        assert_eq!(step(&write, LogKind::Modify), Step::Apply);
        let write = change("a", vec![Mutation::Touch, record.clone()]);
        assert_eq!(step(&write, LogKind::Modify), Step::Lacks(info.version));
        let clone = change("c", vec![Mutation::CloneFrom(oid("a")), record]);
        assert_eq!(step(&clone, LogKind::Modify), Step::Lacks(info.version));
        let remove = change("a", vec![Mutation::Remove]);
        assert_eq!(step(&remove, LogKind::Delete), Step::Gone);
        let odd = change("a", vec![Mutation::Touch]);
        assert_eq!(step(&odd, LogKind::Modify), Step::Lacks(v2));
    }
}
