//! The primary's way from a new interval to `Active`; the states are drawn in the module
//! above.

use std::collections::{BTreeMap, BTreeSet};

use denc::Denc;
use maps::PgShard;
use messages::{OsdPeer, PeerMsg, PgInfo, PgLogEntry};
use types::{EVersion, Epoch, HObject, OsdId, SpgId};

use super::choice::whose_log;
use super::merge::decode_entries;
use super::shards::copies_of;
use super::{Cx, Pg, Scan, State, Ticket, log_key};
use crate::backing::{ObjectStore, StoreError, StoreOp};
use crate::bulk::Marked;

/// After this long without an answer a question is asked again.
const RETRY_MS: u64 = 2_000;
/// Objects in one listing message.
const SCAN_OBJECTS: usize = 1_000;

impl Pg {
    pub(crate) fn say(&self, cx: &mut Cx<'_>, to: PgShard, body: PeerMsg) {
        let pg = SpgId { pg: self.id.pg, shard: to.shard };
        let (epoch, interval) = (cx.map.epoch, self.interval());
        cx.out.osd(
            to.osd,
            &OsdPeer { pg, from: self.id.shard, epoch, interval, felt: cx.felt(&body), body },
        );
    }

    /// A copy whose OSD does not lead tells the one that does.
    pub(crate) fn notify_primary(&mut self, cx: &mut Cx<'_>) {
        let times = if self.acts(&self.me(cx.me)) { 1 } else { 5 };
        self.retry_at_ms = cx.now.mono_ms() + times * RETRY_MS;
        let to = self.primary();
        let nobody = to.osd == OsdId::NONE || to == self.me(cx.me) || !cx.map.is_up(to.osd);
        if !self.flushed || nobody {
            return;
        }
        self.refresh_info();
        self.say(cx, to, PeerMsg::Info { known: true, info: self.info.clone() });
    }

    pub(crate) fn enter_get_info(&mut self, cx: &mut Cx<'_>) {
        self.state = State::GetInfo;
        self.stats_dirty = true;
        self.refresh_info();
        self.advance_peering(cx);
    }

    /// Whose answers are needed, and which down OSDs stand in the way.
    fn plan_queries(&self, cx: &Cx<'_>) -> (BTreeSet<PgShard>, Vec<OsdId>) {
        let mut ask: BTreeSet<PgShard> = self.acting_copies().chain(self.up_copies()).collect();
        let mut blocked_by = Vec::new();
        for i in &self.info.past {
            if !i.maybe_went_rw || i.last < self.info.history_les {
                continue;
            }
            if !self.is_coded() {
                // It may have led without acting (`primary_temp`), and is to say that it knows better.
                ask.insert(self.me(i.primary));
            }
            let (mut alive, mut gone, mut down) = (0, 0, Vec::new());
            for c in copies_of(&i.acting, self.is_coded()) {
                let o = c.osd;
                if cx.map.info(o).lost_at > i.first || !cx.map.exists(o) {
                    gone += 1;
                } else if cx.map.is_up(o) {
                    alive += 1;
                    ask.insert(c);
                } else {
                    down.push(o);
                }
            }
            // What it takes to read what was written then.
            let few = alive < self.pool.readable_by();
            if few && !down.is_empty() {
                blocked_by.extend(down);
            } else if few && gone > 0 {
                tracing::warn!(pg = %self.id, first = i.first.0, last = i.last.0,
                    "no OSD of this interval is left");
            }
        }
        ask.remove(&self.me(cx.me));
        ask.retain(|c| cx.map.is_up(c.osd));
        blocked_by.sort();
        blocked_by.dedup();
        (ask, blocked_by)
    }

    /// Moves on as far as what is known allows; asks for what is not.
    pub(crate) fn advance_peering(&mut self, cx: &mut Cx<'_>) {
        if self.state == State::GetInfo {
            let (ask, blocked_by) = self.plan_queries(cx);
            self.blocked_by = blocked_by;
            let mut open = !self.blocked_by.is_empty() || !self.flushed;
            for o in ask {
                let known = self.peers.contains_key(&o);
                let peer = self.peers.entry(o).or_default();
                if !peer.answered {
                    open = true;
                    if !known {
                        self.say(cx, o, PeerMsg::Query);
                        // What comes from those that have answered does not put it off.
                        self.retry_at_ms = cx.now.mono_ms() + RETRY_MS;
                    }
                }
            }
            if open {
                return;
            }
            self.retry_at_ms = cx.now.mono_ms() + RETRY_MS;
            self.choose_log(cx);
        }
        if self.state == State::Scan {
            self.advance_scan(cx);
        }
        if self.state == State::WaitUpThru {
            let have = cx.map.info(cx.me).up_thru;
            if have < self.interval() {
                *cx.want_up_thru = (*cx.want_up_thru).max(self.interval());
                return;
            }
            // Whoever led before may still be reading, without knowing better.
            let (now, until) = (cx.now.mono_ms(), self.others_read_until(cx));
            if now < until {
                self.retry_at_ms = self.retry_at_ms.min(until);
                return;
            }
            self.activate(cx);
        }
    }

    pub(crate) fn retry_peering(&mut self, cx: &mut Cx<'_>) {
        self.retry_at_ms = cx.now.mono_ms() + RETRY_MS;
        match self.state {
            State::GetInfo => {
                let open: Vec<PgShard> =
                    self.peers.iter().filter(|(_, p)| !p.answered).map(|(o, _)| *o).collect();
                for o in open.into_iter().filter(|c| cx.map.is_up(c.osd)) {
                    self.say(cx, o, PeerMsg::Query);
                }
                self.advance_peering(cx);
            }
            State::GetLog => self.ask_log(cx),
            State::Scan => {
                let open: Vec<(PgShard, HObject)> = self
                    .peers
                    .iter()
                    .filter_map(|(o, p)| {
                        p.scan.as_ref().filter(|s| !s.done).map(|s| (*o, s.next.clone()))
                    })
                    .collect();
                for (o, next) in open {
                    self.say(cx, o, PeerMsg::Scan(next));
                }
            }
            State::WaitUpThru => self.advance_peering(cx),
            State::WaitActing => {
                self.state = State::GetInfo;
                self.advance_peering(cx);
            }
            State::Activating => self.send_activates(cx),
            State::Inactive | State::Active => {}
        }
    }

    /// Another copy tells what it is.
    pub(crate) fn on_info(&mut self, from: PgShard, known: bool, info: PgInfo, cx: &mut Cx<'_>) {
        if !self.leads {
            return;
        }
        if self.state == State::Active
            && self.peers.get(&from).is_some_and(|p| p.target == super::backfill::Target::Ask)
        {
            self.on_target_info(from, known.then_some(info), cx);
            return;
        }
        match self.state {
            State::GetInfo => {
                self.adopt_history(&info, known);
                let peer = self.peers.entry(from).or_default();
                peer.answered = true;
                peer.answered_ms = cx.now.mono_ms();
                peer.info = known.then_some(info);
                self.advance_peering(cx);
            }
            State::Active => {
                if known && !self.acts(&from) && !self.is_chosen(&from) {
                    if self.is_unneeded(from) {
                        self.say(cx, from, PeerMsg::Remove);
                    } else {
                        let peer = self.peers.entry(from).or_default();
                        peer.answered = true;
                        peer.info = Some(info);
                        self.send_log_to_strays(Some(from), cx);
                        self.kick_recovery(cx);
                    }
                }
            }
            _ => {
                if known && !self.acts(&from) {
                    let peer = self.peers.entry(from).or_default();
                    peer.answered = true;
                    peer.info = Some(info);
                }
            }
        }
    }

    /// Whether nobody needs the copy of that OSD, as this one, which leads, sees it.
    pub(crate) fn is_unneeded(&self, osd: PgShard) -> bool {
        self.is_clean() && !self.acts(&osd) && !self.is_chosen(&osd)
    }

    /// What another copy knows of the PG's history counts here too.
    pub(crate) fn adopt_history(&mut self, info: &PgInfo, known: bool) {
        if !known {
            return;
        }
        self.info.history_les = self.info.history_les.max(info.history_les);
        self.info.last_epoch_clean = self.info.last_epoch_clean.max(info.last_epoch_clean);
        if self.info.created == Epoch(0) {
            self.info.created = info.created;
            for i in &info.past {
                if !self.info.past.iter().any(|p| p.first <= i.last && i.first <= p.last) {
                    self.info.past.push(i.clone());
                }
            }
            self.info.past.sort_by_key(|i| i.first);
        }
        if info.scrub.last_ns.max(info.scrub.last_deep_ns)
            > self.info.scrub.last_ns.max(self.info.scrub.last_deep_ns)
        {
            self.info.scrub = info.scrub;
        }
        let clean = self.info.last_epoch_clean;
        self.info.past.retain(|i| i.last >= clean);
    }

    fn choose_log(&mut self, cx: &mut Cx<'_>) {
        let me = self.me(cx.me);
        let mine = self.info.clone();
        let infos: BTreeMap<PgShard, &PgInfo> = self
            .peers
            .iter()
            .filter_map(|(o, p)| p.info.as_ref().map(|i| (*o, i)))
            .chain([(self.me(cx.me), &mine)])
            .collect();
        let best = match whose_log(&infos, &self.info.past, self.is_coded(), me) {
            Ok(best) => best,
            Err(les) => {
                self.state = State::GetInfo; // waits for a copy of that interval
                self.blocked_by = Vec::new();
                tracing::warn!(pg = %self.id, les = les.0, "no copy of the last interval answers");
                return;
            }
        };
        let infos: BTreeMap<PgShard, PgInfo> =
            infos.into_iter().map(|(o, i)| (o, i.clone())).collect();
        if self.wants_other_acting(&infos, best, cx) {
            return;
        }
        self.auth = Some(best);
        if best == me {
            self.enter_scan(cx);
        } else {
            self.state = State::GetLog;
            self.ask_log(cx);
        }
    }

    /// From where the own and the other acting logs go on.
    fn log_wanted_since(&self, me: OsdId) -> EVersion {
        let others = self.others(me).filter_map(|o| self.peers.get(&o)?.info.as_ref());
        let tail = self
            .auth
            .and_then(|o| self.peers.get(&o)?.info.as_ref())
            .map_or(EVersion::ZERO, |i| i.log_tail);
        // Copies below the tail are compared; their state does not lower the bound.
        others
            .map(|i| i.last_update)
            .chain([self.log.head()])
            .filter(|v| *v >= tail)
            .min()
            .unwrap_or(tail)
    }

    fn ask_log(&mut self, cx: &mut Cx<'_>) {
        let Some(auth) = self.auth.filter(|c| *c != self.me(cx.me)) else { return };
        let force = self.peers.get(&auth).is_some_and(|p| p.force_scan);
        let since = if force { EVersion::ZERO } else { self.log_wanted_since(cx.me) };
        self.say(cx, auth, PeerMsg::GetLog(since));
    }

    /// The log that counts has come.
    pub(crate) fn on_log(
        &mut self,
        from: PgShard,
        since: EVersion,
        info: PgInfo,
        raw: &[bytes::Bytes],
        missing: Vec<(HObject, EVersion)>,
        cx: &mut Cx<'_>,
    ) {
        if self.state != State::GetLog || self.auth != Some(from) {
            return;
        }
        let entries = match decode_entries(raw) {
            Ok(entries) => entries,
            Err(e) => {
                tracing::error!(pg = %self.id, %from, "log: {e}");
                return;
            }
        };
        self.adopt_history(&info, true);
        let peer = self.peers.entry(from).or_default();
        peer.missing = missing.iter().cloned().collect();
        peer.info = Some(info.clone());
        let mut steps = Marked::default();
        let was_empty = self.log.head() == EVersion::ZERO && self.info.last_epoch_started.0 == 0;
        if !was_empty || since == EVersion::ZERO {
            let merged = self.merge_log(since, entries, &mut steps, cx.store);
            self.save_info(&mut steps.ops);
            cx.submit_marked(steps, Ticket::None);
            match merged {
                Ok(()) => {
                    self.enter_scan(cx);
                    return;
                }
                Err(_) if since > info.log_tail => {
                    // Ask for all of it before copies are compared.
                    self.say(cx, from, PeerMsg::GetLog(info.log_tail));
                    return;
                }
                Err(_) => {}
            }
        } else if since > info.log_tail {
            self.say(cx, from, PeerMsg::GetLog(info.log_tail));
            return;
        }
        // The own copy has nothing in common with the log: compare with its owner.
        let entries = decode_entries(raw).unwrap_or_default();
        self.pending_reset = Some((since, entries));
        let peer = self.peers.entry(from).or_default();
        peer.scan = Some(Scan::default());
        self.enter_scan(cx);
    }

    fn enter_scan(&mut self, cx: &mut Cx<'_>) {
        self.state = State::Scan;
        if self.pending_reset.is_none() {
            self.start_peer_scans(cx);
        } else if let Some(auth) = self.auth {
            self.say(cx, auth, PeerMsg::Scan(HObject::min()));
        }
        self.advance_scan(cx);
    }

    /// Copies whose log ends below our tail are listed.
    fn start_peer_scans(&mut self, cx: &mut Cx<'_>) {
        let others: Vec<PgShard> = self.others(cx.me).collect();
        for o in others {
            let tail = self.log.tail;
            let peer = self.peers.entry(o).or_default();
            let last = peer.info.as_ref().map_or(EVersion::ZERO, |i| i.last_update);
            if last >= tail && !peer.force_scan {
                continue;
            }
            // Without a copy there is nothing to list.
            let done = peer.info.is_none();
            peer.scan = Some(Scan { done, ..Scan::default() });
            if !done {
                self.say(cx, o, PeerMsg::Scan(HObject::min()));
            }
        }
    }

    /// Part of a listing has come.
    pub(crate) fn on_objects(
        &mut self,
        from: PgShard,
        begin: &HObject,
        end: HObject,
        objects: Vec<(HObject, EVersion)>,
        cx: &mut Cx<'_>,
    ) {
        let listed = self.state == State::Active;
        if self.state != State::Scan && !listed {
            return;
        }
        let Some(scan) = self.peers.get_mut(&from).and_then(|p| p.scan.as_mut()) else { return };
        if scan.done || scan.next != *begin {
            return; // an answer that came twice
        }
        scan.objects.extend(objects);
        scan.done = end.max;
        scan.next = end;
        let next = (!scan.done).then(|| scan.next.clone());
        if let Some(next) = next {
            self.say(cx, from, PeerMsg::Scan(next));
        }
        if listed {
            self.on_target_listed(from, cx);
            return;
        }
        self.retry_at_ms = cx.now.mono_ms() + RETRY_MS;
        self.advance_peering(cx);
    }

    fn advance_scan(&mut self, cx: &mut Cx<'_>) {
        if let Some(auth) = self.auth.filter(|_| self.pending_reset.is_some()) {
            let done = self.peers.get(&auth).and_then(|p| p.scan.as_ref()).is_some_and(|s| s.done);
            if !done {
                return;
            }
            let peer = self.peers.get_mut(&auth).expect("just seen");
            let mut should = peer.scan.take().expect("just seen").objects;
            should.extend(peer.missing.iter().map(|(o, v)| (o.clone(), *v)));
            let Ok(have) = list_all(cx.store, self.coll) else {
                tracing::error!(pg = %self.id, "the own objects cannot be listed");
                return;
            };
            let (missing, surplus) = compare(&should, &have, &self.missing);
            let (tail, entries) = self.pending_reset.take().expect("checked");
            let mut ops = Vec::new();
            let entries = entries.into_iter().map(PgLogEntry::with_bytes);
            self.replace_log(tail, entries, missing, surplus, &mut ops, cx.store);
            self.save_info(&mut ops);
            cx.submit(ops, Ticket::None);
            self.start_peer_scans(cx);
        }
        if self.peers.values().any(|p| p.scan.as_ref().is_some_and(|s| !s.done)) {
            return;
        }
        if self.peers.values().any(|p| p.scan.is_some()) {
            let Ok(mut should) = list_all(cx.store, self.coll) else {
                tracing::error!(pg = %self.id, "the own objects cannot be listed");
                return;
            };
            should.extend(self.missing.iter().map(|(o, v)| (o.clone(), *v)));
            for peer in self.peers.values_mut() {
                if let Some(scan) = peer.scan.take() {
                    peer.reset = Some(compare(&should, &scan.objects, &BTreeMap::new()));
                }
            }
        }
        self.state = State::WaitUpThru;
        self.advance_peering(cx);
    }

    /// Makes all copies what the log says. Too few to serve acknowledge nothing, and no later interval
    /// asks about theirs: `last_epoch_started` stays what the log's source had.
    fn activate(&mut self, cx: &mut Cx<'_>) {
        self.state = State::Activating;
        self.stats_dirty = true;
        let auth = self.auth.and_then(|o| self.peers.get(&o)?.info.as_ref());
        let vouched = auth.map_or(Epoch(0), |i| i.last_epoch_started);
        let started = if self.has_enough() { self.interval() } else { vouched };
        self.info.last_epoch_started = self.info.last_epoch_started.max(started);
        let mut ops = Vec::new();
        self.save_info(&mut ops);
        self.self_activated = false;
        self.round += 1;
        self.activate_ms = cx.now.mono_ms();
        cx.submit(ops, Ticket::Activated(self.id, self.interval(), self.round));
        for o in self.others(cx.me).collect::<Vec<_>>() {
            self.peers.entry(o).or_default().activated = false;
        }
        self.send_activates(cx);
    }

    fn send_activates(&mut self, cx: &mut Cx<'_>) {
        self.refresh_info();
        for o in self.others(cx.me).collect::<Vec<_>>() {
            if self.peers.get(&o).is_some_and(|p| !p.activated) {
                let body = self.activation_for(o, cx);
                self.say(cx, o, body);
            }
        }
    }

    /// What that copy is told to become what the PG is.
    pub(crate) fn activation_for(&self, osd: PgShard, cx: &Cx<'_>) -> PeerMsg {
        let peer = self.peers.get(&osd);
        let (round, info) = (self.round, self.info.clone());
        if let Some((missing, surplus)) = peer.and_then(|p| p.reset.as_ref()) {
            let (since, entries) = self.log_for_anew(cx);
            return PeerMsg::Activate {
                round,
                info,
                since,
                reset: true,
                entries,
                missing: missing.clone(),
                surplus: surplus.clone(),
            };
        }
        let last = peer.and_then(|p| p.info.as_ref()).map_or(EVersion::ZERO, |i| i.last_update);
        let since = self.log.floor(last).unwrap_or(self.log.tail);
        PeerMsg::Activate {
            round,
            info,
            since,
            reset: false,
            entries: self.log.after(since),
            missing: Vec::new(),
            surplus: Vec::new(),
        }
    }

    /// A copy is durable as the log says.
    pub(crate) fn on_activated(
        &mut self,
        from: PgShard,
        round: u32,
        missing: Vec<(HObject, EVersion)>,
        cx: &mut Cx<'_>,
    ) {
        if self.leads && self.state == State::Active {
            self.on_target_activated(from, round, missing, cx);
            return;
        }
        if !self.leads || self.state != State::Activating || round != self.round {
            return;
        }
        let head = self.log.head();
        let Some(peer) = self.peers.get_mut(&from) else { return };
        peer.activated = true;
        peer.reset = None;
        peer.force_scan = false;
        peer.committed = head;
        peer.missing = missing.into_iter().map(|(o, v)| (o.detached(), v)).collect();
        self.maybe_active(cx);
    }

    /// A copy could not follow the log: it is compared instead.
    pub(crate) fn on_unrelated(&mut self, from: PgShard, round: u32, cx: &mut Cx<'_>) {
        if self.leads && self.state == State::Active {
            self.on_target_unrelated(from, round, cx);
            return;
        }
        if !self.leads || self.state != State::Activating || round != self.round {
            return;
        }
        let Some(peer) = self.peers.get_mut(&from) else { return };
        if peer.info.is_none() {
            peer.info = Some(PgInfo::default()); // it has a copy by now
        }
        peer.force_scan = true;
        self.enter_scan(cx);
    }

    pub(crate) fn on_self_activated(&mut self, cx: &mut Cx<'_>) {
        self.committed = self.committed.max(self.info.last_update);
        if self.leads {
            self.self_activated = true;
            self.maybe_active(cx);
        } else {
            let missing = self.missing.iter().map(|(o, v)| (o.clone(), *v)).collect();
            self.state = State::Active;
            self.tell_room(cx); // before the first write comes
            self.say(
                cx,
                self.primary(),
                PeerMsg::Activated {
                    round: self.round,
                    missing,
                    record_max: cx.store.record_max(),
                },
            );
        }
    }

    fn maybe_active(&mut self, cx: &mut Cx<'_>) {
        let all = self.others(cx.me).all(|o| self.peers.get(&o).is_some_and(|p| p.activated));
        if self.state != State::Activating || !self.self_activated || !all {
            return;
        }
        self.state = State::Active;
        self.stats_dirty = true;
        self.stamps.became_active = cx.now.wall_ns;
        self.stamps.became_peered = cx.now.wall_ns;
        self.committed = self.log.head();
        self.committed_by_all = self.log.head();
        self.info.history_les = self.info.history_les.max(self.info.last_epoch_started);
        self.begin_scrub_times(cx);
        self.settle(cx);
        self.send_log_to_strays(None, cx);
        self.check_clean(cx);
        self.tick_backfill(cx);
        self.kick_recovery(cx);
        // All others have promised since the attempt began.
        self.lease_until_ms = cx.leases.good_until(self.activate_ms);
        self.resume(cx);
    }

    /// Saves the history and tells it to the other copies.
    fn settle(&mut self, cx: &mut Cx<'_>) {
        let mut ops = Vec::new();
        self.save_info(&mut ops);
        cx.submit(ops, Ticket::None);
        let body = PeerMsg::Settle {
            history_les: self.info.history_les,
            last_epoch_clean: self.info.last_epoch_clean,
        };
        for o in self.others(cx.me).collect::<Vec<_>>() {
            self.say(cx, o, body.clone());
        }
    }

    /// When all copies are whole the past does not count any more.
    pub(crate) fn check_clean(&mut self, cx: &mut Cx<'_>) {
        if !self.is_clean() {
            return;
        }
        self.forced = false;
        if self.info.recount {
            self.recount(cx);
        }
        if self.info.last_epoch_clean >= self.interval() {
            return;
        }
        self.info.last_epoch_clean = cx.map.epoch;
        self.info.past.clear();
        self.stats_dirty = true;
        self.settle(cx);
        let acting: Vec<PgShard> = self.acting_copies().collect();
        let strays: Vec<PgShard> = self
            .peers
            .iter()
            .filter(|(o, p)| !acting.contains(o) && !self.is_chosen(o) && p.info.is_some())
            .map(|(o, _)| *o)
            .collect();
        for o in strays {
            self.say(cx, o, PeerMsg::Remove);
            self.peers.remove(&o);
        }
    }

    /// Counts the PG's objects. The store shows every write that is in the log.
    fn recount(&mut self, cx: &mut Cx<'_>) {
        let Ok(found) = crate::split::count(cx.store, self.coll) else {
            tracing::error!(pg = %self.id, "the objects cannot be counted");
            return;
        };
        let before = self.counts();
        let writes = (before.writes, before.write_bytes);
        let counts = messages::PgCounts { writes: writes.0, write_bytes: writes.1, ..found };
        self.info.recount = false;
        self.info.counts = counts;
        let mut ops = Vec::new();
        if let Some(last) = self.log.entries.back_mut() {
            last.counts = counts;
            ops.push(StoreOp::Put(self.coll, log_key(last.version), last.to_bytes()));
        }
        self.save_info(&mut ops);
        cx.submit(ops, Ticket::None);
    }

    /// A connection to that OSD was lost, and with it perhaps messages.
    pub(crate) fn on_osd_reset(&mut self, osd: OsdId, cx: &mut Cx<'_>) {
        if !self.leads {
            if self.info.primary == osd {
                self.retry_at_ms = 0;
                if self.state == State::Active {
                    self.acknowledge(cx); // its last answer may be lost
                }
            }
            return;
        }
        if self.state != State::Active {
            self.retry_peering(cx);
            return;
        }
        let here: Vec<PgShard> = self.peers.keys().filter(|c| c.osd == osd).copied().collect();
        for copy in here {
            self.send_again(copy, cx);
            self.send_log_to_strays(Some(copy), cx);
            self.reset_target(copy, cx);
            self.restart_recovery_of(copy, cx);
            self.reset_gathers(copy, cx);
        }
    }

    /// All writes that a copy has not acknowledged; it tells which it has.
    pub(crate) fn send_again(&mut self, osd: PgShard, cx: &mut Cx<'_>) {
        let acts = self.acts(&osd);
        let Some(peer) = self.peers.get(&osd).filter(|p| p.activated && acts) else { return };
        let committed = peer.committed;
        for f in self.in_flight.iter().filter(|f| f.version > committed) {
            let theirs = |s: &&(Option<PgShard>, _)| s.0.is_none_or(|c| c == osd);
            if let Some((_, envelope)) = f.sent.iter().find(theirs) {
                cx.out.push(crate::outbox::Effect::Osd(osd.osd, envelope.clone()));
            }
        }
    }
}

/// All objects of a copy with their versions; zero for one that is not whole.
pub(crate) fn list_all(
    store: &dyn ObjectStore,
    coll: crate::backing::Coll,
) -> Result<BTreeMap<HObject, EVersion>, StoreError> {
    let (mut all, mut from) = (BTreeMap::new(), HObject::min());
    loop {
        let (page, next) = list_page(store, coll, &from)?;
        all.extend(page);
        if next.max {
            return Ok(all);
        }
        from = next;
    }
}

/// Where a listing from `from` on has its first object of the pool: what is kept for taking
/// writes back sorts before.
pub(crate) fn own_from(coll: crate::backing::Coll, from: &HObject) -> HObject {
    match coll {
        crate::backing::Coll::Pg(spg) if spg.shard != types::ShardId::NONE => {
            from.clone().max(HObject { pool: spg.pg.pool, ..HObject::min() })
        }
        _ => from.clone(),
    }
}

/// One page of objects with their versions, and where the next begins.
pub(crate) fn list_page(
    store: &dyn ObjectStore,
    coll: crate::backing::Coll,
    from: &HObject,
) -> Result<(Vec<(HObject, EVersion)>, HObject), StoreError> {
    let mut found = store.list(coll, &own_from(coll, from), SCAN_OBJECTS + 1)?;
    let next = if found.len() > SCAN_OBJECTS {
        found.pop().expect("more than a page")
    } else {
        HObject::max()
    };
    let mut page = Vec::with_capacity(found.len());
    for oid in found {
        let state = Pg::read_state(store, coll, &oid)?;
        page.push((oid, state.info.version));
    }
    Ok((page, next))
}

/// What a copy lacks, and what it has too much.
pub(crate) type Difference = (Vec<(HObject, EVersion)>, Vec<HObject>);

/// What a copy that has `have` lacks of `should`, and what it has too much.
pub(crate) fn compare(
    should: &BTreeMap<HObject, EVersion>,
    have: &BTreeMap<HObject, EVersion>,
    untrusted: &BTreeMap<HObject, EVersion>,
) -> Difference {
    let missing = should
        .iter()
        .filter(|(o, v)| untrusted.contains_key(*o) || have.get(*o) != Some(*v))
        .map(|(o, v)| (o.clone(), *v))
        .collect();
    let surplus = have.keys().filter(|o| !should.contains_key(*o)).cloned().collect();
    (missing, surplus)
}

/// A log that waits until copies are compared: its tail and its entries.
pub(crate) type PendingReset = (EVersion, Vec<PgLogEntry>);
