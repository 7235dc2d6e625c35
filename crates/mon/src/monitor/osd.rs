//! OSDs: coming up, going down, and what they report.
//!
//! An OSD is up from its boot until it says it stops, others say it is gone, or nothing
//! was heard of it for long; then it is out after a while, and its data moves.

use std::collections::{BTreeMap, BTreeSet};

use conf::key;
use denc::{DecodeError, Denc};
use env::ConnId;
use maps::OsdState;
use messages::{
    Envelope, LogPriority, Message, OsdAlive, OsdBeacon, OsdBoot, OsdFailure, OsdMarkMeDown,
    PgReadyToMerge, PgStats, PgStatsAck, PgTemp,
};
use types::{EntityKind, Epoch, OsdId};

use super::Monitor;
use crate::{Mutation, crushops, limits};

/// OSD numbers beyond this are refused.
const OSD_ID_MAX: i32 = 10_000;

/// After how long an OSD that was made and never came up is told in health: far longer than an
/// OSD's first start.
const NEW_GRACE_MS: u64 = 30_000;
/// How long it is told that an OSD asked to boot with a store that the map does not have; it asks
/// every second.
const REFUSED_MS: u64 = 10_000;

/// What the leader remembers of OSDs between reports.
#[derive(Default)]
pub(super) struct OsdService {
    /// Who says of whom that it is gone, and since when (monotonic milliseconds).
    failures: BTreeMap<OsdId, BTreeMap<OsdId, u64>>,
    /// When OSDs were last heard of (monotonic milliseconds).
    heard: BTreeMap<OsdId, u64>,
    /// Since when OSDs are down and in (monotonic milliseconds).
    down_since: BTreeMap<OsdId, u64>,
}

impl OsdService {
    /// A leader begins: what it remembers of an earlier time counts no more.
    pub(super) fn begin(&mut self) {
        self.failures.clear();
        self.heard.clear();
        self.down_since.clear();
    }
}

impl Monitor {
    /// The OSD behind a connection, when it is `claimed`.
    fn osd_of(&self, conn: ConnId, claimed: OsdId) -> bool {
        let Some(session) = self.sessions.get(&conn) else { return false };
        let name = &session.info.name;
        let fits = name.kind == EntityKind::OSD && name.id == claimed.to_string();
        if !fits {
            tracing::warn!("{name} may not speak for osd.{claimed}");
        }
        fits && (0..OSD_ID_MAX).contains(&claimed.0)
    }

    pub(super) fn on_osd_message(
        &mut self,
        conn: ConnId,
        env: &Envelope,
    ) -> Result<(), DecodeError> {
        match env.kind {
            OsdBoot::KIND => {
                let msg = OsdBoot::decode(env)?;
                if self.osd_of(conn, msg.osd) {
                    self.on_boot(conn, msg);
                }
            }
            OsdAlive::KIND => {
                let msg = OsdAlive::decode(env)?;
                if self.osd_of(conn, msg.osd) {
                    self.on_alive(conn, &msg);
                }
            }
            OsdFailure::KIND => {
                let msg = OsdFailure::decode(env)?;
                if self.osd_of(conn, msg.reporter) {
                    self.on_failure(conn, &msg);
                }
            }
            OsdBeacon::KIND => {
                let msg = OsdBeacon::decode(env)?;
                if self.osd_of(conn, msg.osd) {
                    self.osd.heard.insert(msg.osd, self.now.mono_ms());
                    self.map_use.on_epoch(msg.osd, msg.epoch);
                }
            }
            OsdMarkMeDown::KIND => {
                let msg = OsdMarkMeDown::decode(env)?;
                if self.osd_of(conn, msg.osd) {
                    self.on_mark_me_down(conn, &msg);
                }
            }
            PgTemp::KIND => {
                let msg = PgTemp::decode(env)?;
                if self.osd_of(conn, msg.osd) {
                    self.on_pg_temp(&msg);
                }
            }
            PgReadyToMerge::KIND => {
                let msg = PgReadyToMerge::decode(env)?;
                if self.osd_of(conn, msg.osd) {
                    self.on_ready_to_merge(&msg);
                }
            }
            PgStats::KIND => {
                let msg = PgStats::decode(env)?;
                if self.osd_of(conn, msg.osd) {
                    self.on_pg_stats(conn, env.tid, &msg)?;
                    self.tell_stats(&env.front);
                }
            }
            _ => tracing::debug!("message {:#x} is not for monitors", env.kind),
        }
        Ok(())
    }

    /// Maps an OSD lacks, where it does not hold a subscription for them.
    pub(super) fn catch_up(&mut self, conn: ConnId, has: Epoch) {
        if self.catch_up_there(conn, has, false) {
            return;
        }
        let Some(session) = self.sessions.get(&conn) else { return };
        if !session.subs.contains_key("osdmap") && has < self.state.osd_history.last {
            self.send_osdmaps(conn, Epoch(has.0 + 1));
        }
    }

    fn on_boot(&mut self, conn: ConnId, msg: OsdBoot) {
        let osd = msg.osd;
        let map = &self.state.osdmap;
        let state = map.state(osd);
        self.osd.heard.insert(osd, self.now.mono_ms());
        let same = map.is_up(osd) && map.osd_addrs(osd) == Some(&msg.client);
        if same && map.osd_cluster_addrs(osd) == Some(&msg.cluster) {
            return self.catch_up(conn, msg.epoch); // its request was sent twice
        }
        let known = map.uuid(osd);
        if map.exists(osd) && !known.is_zero() && known != msg.uuid {
            tracing::warn!("osd.{osd} boots as {}, the map has {known}", msg.uuid);
            let until_ms = self.now.mono_ms() + REFUSED_MS;
            self.volatile.refused_boots.insert(osd, until_ms);
            self.health_stale = true;
            return;
        }
        let noup = map.has_flag(maps::OsdMapFlags::NOUP) || state.has(OsdState::NOUP);
        if noup {
            tracing::info!("osd.{osd} may not boot: noup");
            return self.note_ended(&msg);
        }
        if state.has(OsdState::STOP) && map.osd_addrs(osd) == Some(&msg.client) {
            tracing::info!("osd.{osd} may not boot: it was stopped, and is to be started anew");
            return self.note_ended(&msg);
        }
        if map.is_up(osd) {
            // Its earlier life ends first, in an epoch of its own.
            let mut inc = self.state.osd_change();
            inc.new_state.insert(osd, OsdState::UP.0);
            self.propose(Mutation::Osd(Box::new(inc)));
            self.close_osd();
        }
        let map = &self.state.osdmap;
        let mut inc = self.state.osd_change();
        if osd.0 >= map.max_osd {
            inc.new_max_osd = Some(osd.0 + 1);
        }
        let state = map.state(osd);
        let is_new = !map.exists(osd) || state.has(OsdState::NEW);
        let mut xinfo = map.xinfo(osd);
        xinfo.features = msg.features;
        let noin = map.has_flag(maps::OsdMapFlags::NOIN) || state.has(OsdState::NOIN);
        if is_new && self.option(key::MON_OSD_AUTO_MARK_NEW_IN) && !noin {
            inc.new_weight.insert(osd, maps::WEIGHT_ONE);
        } else if state.has(OsdState::AUTOOUT)
            && self.option(key::MON_OSD_AUTO_MARK_AUTO_OUT_IN)
            && !noin
        {
            let weight = if xinfo.old_weight > 0 { xinfo.old_weight } else { maps::WEIGHT_ONE };
            inc.new_weight.insert(osd, weight);
            xinfo.old_weight = 0;
        }
        // A weight takes the marks of new and of automatically out OSDs away.
        inc.new_up_client.insert(osd, msg.client.clone());
        inc.new_up_cluster.insert(osd, msg.cluster.clone());
        inc.new_hb_back_up.insert(osd, msg.hb_back.clone());
        inc.new_hb_front_up.insert(osd, msg.hb_front.clone());
        if known != msg.uuid {
            inc.new_uuid.insert(osd, msg.uuid);
        }
        inc.new_xinfo.insert(osd, xinfo);
        // A process that was up before stays where an operator put it.
        if msg.boot_epoch == Epoch(0) && self.option_of_osd(osd, key::OSD_CRUSH_UPDATE_ON_START) {
            match crushops::create_or_move(&map.crush, &msg) {
                Ok(Some(crush)) => inc.crush = crush,
                Ok(None) => {}
                Err(e) => tracing::warn!("osd.{osd} is not placed in the CRUSH map: {e}"),
            }
            // What it says of its place and class may be of any length.
            if let Err(why) = limits::check(&inc) {
                tracing::warn!("osd.{osd} is not placed in the CRUSH map: {why}");
                inc.crush.clear();
            }
        }
        self.osd.failures.remove(&osd);
        self.volatile.refused_boots.remove(&osd);
        self.map_use.on_boot(osd, msg.epoch);
        self.propose(Mutation::Osd(Box::new(inc)));
        self.propose(Mutation::OsdMetadata { osd, metadata: Some(msg.metadata) });
        self.log(LogPriority::INFO, format!("osd.{osd} {} boot", msg.client));
        // The map that holds it, if it does not ask for maps by itself.
        self.osd_boot_waits(conn, msg.epoch);
    }

    /// An OSD that may not boot, and knows that the map shows it down, serves no more: nobody has to
    /// wait until the leases end that it had. The peer's `MOSDMarkMeDead`.
    fn note_ended(&mut self, msg: &OsdBoot) {
        let (map, osd) = (&self.state.osdmap, msg.osd);
        let knows = map.exists(osd) && map.is_down(osd) && msg.epoch >= map.info(osd).down_at;
        let mut xinfo = map.xinfo(osd);
        if !knows || xinfo.dead_epoch >= map.up_from(osd) {
            return;
        }
        let mut inc = self.state.osd_change();
        xinfo.dead_epoch = inc.epoch;
        inc.new_xinfo.insert(osd, xinfo);
        self.propose(Mutation::Osd(Box::new(inc)));
    }

    pub(super) fn osd_boot_waits(&mut self, conn: ConnId, has: Epoch) {
        if self.catch_up_there(conn, has, true) {
            return;
        }
        let Some(session) = self.sessions.get_mut(&conn) else { return };
        session
            .subs
            .entry("osdmap".to_owned())
            .or_insert(crate::Subscription { next: u64::from(has.0) + 1, onetime: false });
    }

    fn on_alive(&mut self, conn: ConnId, msg: &OsdAlive) {
        self.osd.heard.insert(msg.osd, self.now.mono_ms());
        let map = &self.state.osdmap;
        if !map.is_up(msg.osd) {
            return self.catch_up(conn, msg.epoch);
        }
        if map.info(msg.osd).up_thru >= msg.want_up_thru {
            return self.catch_up(conn, msg.epoch);
        }
        let upto = msg.epoch.max(msg.want_up_thru).min(map.epoch);
        let mut inc = self.state.osd_change();
        inc.new_up_thru.insert(msg.osd, upto);
        self.propose(Mutation::Osd(Box::new(inc)));
    }

    /// Whether the cluster's flags let an OSD be marked down.
    fn may_mark_down(&self, osd: OsdId) -> bool {
        let map = &self.state.osdmap;
        if self.is_held_up(osd) {
            return false;
        }
        let (known, up, _) = map.osd_counts();
        let ratio = up as f64 / known.max(1) as f64;
        if ratio < self.option(key::MON_OSD_MIN_UP_RATIO) {
            tracing::info!("osd.{osd} is not marked down: too few are up");
            return false;
        }
        true
    }

    /// Whether flags keep it from being marked down, whoever says that it is.
    pub(super) fn is_held_up(&self, osd: OsdId) -> bool {
        let map = &self.state.osdmap;
        let held = map.has_flag(maps::OsdMapFlags::NODOWN) || map.state(osd).has(OsdState::NODOWN);
        if held {
            tracing::info!("osd.{osd} is not marked down: nodown");
        }
        held
    }

    /// `ended` says that the process does not serve any more, so nobody has to wait until its
    /// leases end.
    pub(super) fn mark_down(&mut self, osd: OsdId, ended: bool) {
        let mut inc = self.state.osd_change();
        inc.new_state.insert(osd, OsdState::UP.0);
        let mut xinfo = self.state.osdmap.xinfo(osd);
        xinfo.down_stamp = self.wall();
        if ended {
            xinfo.dead_epoch = inc.epoch;
        }
        inc.new_xinfo.insert(osd, xinfo);
        self.osd.failures.remove(&osd);
        self.propose(Mutation::Osd(Box::new(inc)));
    }

    fn on_mark_me_down(&mut self, conn: ConnId, msg: &OsdMarkMeDown) {
        if !self.state.osdmap.is_up(msg.osd) {
            return self.catch_up(conn, msg.epoch);
        }
        if !self.may_mark_down(msg.osd) {
            return;
        }
        self.log(LogPriority::INFO, format!("osd.{} marked itself down", msg.osd));
        let map = &self.state.osdmap;
        let (from, until) = (map.up_from(msg.osd), Epoch(self.state.osd_history.last.0));
        self.mark_down(msg.osd, true);
        let mut inc = self.state.osd_change();
        inc.new_last_clean_interval.insert(msg.osd, (from, until));
        self.propose(Mutation::Osd(Box::new(inc)));
    }

    fn on_failure(&mut self, conn: ConnId, msg: &OsdFailure) {
        let map = &self.state.osdmap;
        self.osd.heard.insert(msg.reporter, self.now.mono_ms());
        if !map.is_up(msg.reporter) || !map.is_up(msg.target) || msg.reporter == msg.target {
            return self.catch_up(conn, msg.epoch);
        }
        // About an earlier life of it.
        if map.osd_addrs(msg.target) != Some(&msg.target_addrs)
            && map.osd_cluster_addrs(msg.target) != Some(&msg.target_addrs)
        {
            return self.catch_up(conn, msg.epoch);
        }
        if msg.alive {
            if let Some(reports) = self.osd.failures.get_mut(&msg.target)
                && reports.remove(&msg.reporter).is_some()
            {
                self.log(
                    LogPriority::DEBUG,
                    format!("osd.{} failure report canceled by osd.{}", msg.target, msg.reporter),
                );
            }
            return;
        }
        let (target, reporter) = (msg.target, msg.reporter);
        if msg.immediate {
            self.log(
                LogPriority::DEBUG,
                format!("osd.{target} reported immediately failed by osd.{reporter}"),
            );
            if self.may_mark_down(target) {
                let place = crushops::place_text(&self.state.osdmap.crush, target);
                self.log(
                    LogPriority::INFO,
                    format!(
                        "osd.{target} failed ({place}) (connection refused reported by osd.{reporter})"
                    ),
                );
                self.mark_down(target, true);
            }
            return;
        }
        self.log(LogPriority::DEBUG, format!("osd.{target} reported failed by osd.{reporter}"));
        let since = self.now.mono_ms().saturating_sub(msg.failed_for_ms);
        let reports = self.osd.failures.entry(target).or_default();
        let known = reports.entry(reporter).or_insert(since);
        *known = since.min(*known);
        self.judge_failure(target);
    }

    /// Marks an OSD down when enough others have missed it for long enough.
    fn judge_failure(&mut self, target: OsdId) {
        let Some(reports) = self.osd.failures.get(&target) else { return };
        let map = &self.state.osdmap;
        let level = self.option(key::MON_OSD_REPORTER_SUBTREE_LEVEL);
        let wanted = self.option(key::MON_OSD_MIN_DOWN_REPORTERS).max(1) as usize;
        let subtree = |osd: OsdId| crushops::location(&map.crush, osd.0).remove(&level);
        let places = |osds: &[OsdId]| -> BTreeSet<String> {
            osds.iter().map(|o| subtree(*o).unwrap_or_else(|| format!("osd.{o}"))).collect()
        };
        let up_others: Vec<OsdId> = map.osds().filter(|o| map.is_up(*o) && *o != target).collect();
        // Where all stand in fewer places than are asked for, each OSD counts by itself:
        // a small cluster must notice its failures too.
        let spread = places(&up_others).len() >= wanted;
        let reporters: Vec<OsdId> = reports.keys().copied().filter(|o| map.is_up(*o)).collect();
        let (count, wanted) = if spread {
            (places(&reporters).len(), wanted)
        } else {
            (reporters.len(), wanted.min(up_others.len().max(1)))
        };
        let Some(since) = reports.values().copied().max() else { return };
        let grace_ms = self.option(key::OSD_HEARTBEAT_GRACE).as_millis() as u64;
        let failed_ms = self.now.mono_ms().saturating_sub(since);
        if count < wanted || failed_ms < grace_ms || !self.may_mark_down(target) {
            return;
        }
        let place = crushops::place_text(&map.crush, target);
        let line = format!(
            "osd.{target} failed ({place}) ({} reporters from different {} after {:.6} >= grace {:.6})",
            reporters.len(),
            if spread { level } else { "osd".to_owned() },
            failed_ms as f64 / 1000.0,
            grace_ms as f64 / 1000.0
        );
        self.log(LogPriority::INFO, line);
        self.mark_down(target, false);
    }

    fn on_pg_temp(&mut self, msg: &PgTemp) {
        let map = &self.state.osdmap;
        if !map.is_up(msg.osd) {
            return;
        }
        let mut inc = self.state.osd_change();
        for (pg, osds) in &msg.pgs {
            let known = map.pg_temp.get(pg);
            let known_osd = |o: &OsdId| *o == OsdId::NONE || map.exists(*o);
            let sane = osds.len() <= limits::PG_SIZE_MAX && osds.iter().all(known_osd);
            let changes = match known {
                Some(known) => known != osds,
                None => !osds.is_empty(),
            };
            if map.have_pg(*pg) && sane && changes {
                inc.new_pg_temp.insert(*pg, osds.clone());
            }
        }
        if !inc.new_pg_temp.is_empty() {
            // It is alive in the epoch it asks from.
            let upto = msg.epoch.min(map.epoch);
            if map.info(msg.osd).up_thru < upto {
                inc.new_up_thru.insert(msg.osd, upto);
            }
            self.propose(Mutation::Osd(Box::new(inc)));
        }
    }

    fn on_pg_stats(&mut self, conn: ConnId, tid: u64, msg: &PgStats) -> Result<(), DecodeError> {
        self.osd.heard.insert(msg.osd, self.now.mono_ms());
        self.map_use.on_epoch(msg.osd, msg.epoch);
        self.take_stats(msg)?;
        let ack = PgStatsAck { pgs: msg.pgs.keys().copied().collect() };
        if let Some(session) = self.sessions.get(&conn) {
            // Statistics are the leader's own: nobody waits for a commit.
            let env = ack.envelope(session.info.features).with_tid(tid);
            self.out.push(super::Output::Send { conn, env }.into());
        }
        Ok(())
    }

    fn take_stats(&mut self, msg: &PgStats) -> Result<(), DecodeError> {
        let osd_stat = maps::OsdStat::from_shared(&msg.osd_stat)?;
        let mut pgs = Vec::with_capacity(msg.pgs.len());
        for (pg, stat) in &msg.pgs {
            pgs.push((*pg, maps::PgStat::from_shared(stat)?));
        }
        let stamp = self.wall();
        let now = self.now.mono_ms();
        self.volatile.pgmap.report(stamp, now, &self.state.osdmap, msg.osd, osd_stat, pgs);
        self.volatile.pgmap.compressed.insert(msg.osd, msg.compressed.clone());
        let slow = &mut self.volatile.pgmap.slow;
        if msg.slow_ops > 0 {
            slow.insert(msg.osd, (msg.slow_ops, msg.slow_ms));
        } else {
            slow.remove(&msg.osd);
        }
        self.health_stale = true;
        Ok(())
    }

    /// What is known of all OSDs, in the form in which they report it.
    pub(super) fn stats_for_peers(&self) -> Vec<bytes::Bytes> {
        let pgmap = &self.volatile.pgmap;
        let mut all: BTreeMap<OsdId, PgStats> = BTreeMap::new();
        for (osd, stat) in &pgmap.osds {
            let osd_stat = stat.to_bytes();
            let compressed = pgmap.compressed.get(osd).cloned().unwrap_or_default();
            all.insert(*osd, PgStats { osd: *osd, osd_stat, compressed, ..PgStats::default() });
        }
        for (pg, stat) in &pgmap.pgs {
            if let Some(m) = all.get_mut(&stat.acting_primary) {
                m.pgs.insert(*pg, stat.to_bytes());
            }
        }
        all.values().map(|m| m.envelope(denc::Features::ALL).front).collect()
    }

    /// Statistics that the leader was told: whoever leads next has them already.
    pub(super) fn on_peer_stats(&mut self, front: &bytes::Bytes) {
        let msg = PgStats::decode_front(&mut denc::Reader::shared(front), 1, &bytes::Bytes::new());
        if let Err(e) = msg.and_then(|msg| self.take_stats(&msg)) {
            tracing::warn!("statistics from the leader: {e}");
        }
    }

    /// Periodic work: OSDs not heard of, OSDs down for long, and what their use asks for.
    pub(super) fn osd_round(&mut self) {
        let now = self.now.mono_ms();
        let targets: Vec<OsdId> = self.osd.failures.keys().copied().collect();
        for target in targets {
            if self.state.osdmap.is_up(target) {
                self.judge_failure(target);
            } else {
                self.osd.failures.remove(&target);
            }
        }
        let timeout = self.option(key::MON_OSD_REPORT_TIMEOUT).as_millis() as u64;
        let osds: Vec<OsdId> = self.state.osdmap.osds().collect();
        for &osd in &osds {
            if !self.state.osdmap.is_up(osd) {
                continue;
            }
            let heard = *self.osd.heard.entry(osd).or_insert(now);
            if now.saturating_sub(heard) > timeout && self.may_mark_down(osd) {
                let secs = now.saturating_sub(heard) / 1000;
                self.log(
                    LogPriority::INFO,
                    format!("osd.{osd} marked down after no beacon for {secs} seconds"),
                );
                self.mark_down(osd, false);
            }
        }
        self.mark_out(&osds);
        let map = &self.state.osdmap;
        let waits = |osd: &&OsdId| {
            let since = self.osd.down_since.get(osd);
            map.state(**osd).has(OsdState::NEW)
                && since.is_some_and(|since| now.saturating_sub(*since) >= NEW_GRACE_MS)
        };
        self.volatile.refused_boots.retain(|_, until_ms| *until_ms > now);
        self.volatile.never_up = osds.iter().filter(waits).copied().collect();
        self.osd_full_states();
    }

    /// Marks OSDs out that have been down for long.
    fn mark_out(&mut self, osds: &[OsdId]) {
        let now = self.now.mono_ms();
        let interval = self.option(key::MON_OSD_DOWN_OUT_INTERVAL).max(0) as u64;
        let min_in = self.option(key::MON_OSD_MIN_IN_RATIO);
        for &osd in osds {
            let map = &self.state.osdmap;
            if map.is_up(osd) || !map.is_in(osd) {
                self.osd.down_since.remove(&osd);
                continue;
            }
            let since = *self.osd.down_since.entry(osd).or_insert_with(|| {
                // Another leader may have seen it go down.
                let stamp = map.xinfo(osd).down_stamp.nanos();
                let ms = self.now.wall_ns.saturating_sub(stamp) / 1_000_000;
                if stamp == 0 { now } else { now.saturating_sub(ms) }
            });
            let secs = now.saturating_sub(since) / 1000;
            let (known, _, r#in) = map.osd_counts();
            let kept = map.has_flag(maps::OsdMapFlags::NOOUT)
                || map.state(osd).has(OsdState::NOOUT)
                || (r#in as f64 / known.max(1) as f64) < min_in;
            if interval == 0 || secs < interval || kept {
                continue;
            }
            let mut inc = self.state.osd_change();
            let mut xinfo = map.xinfo(osd);
            xinfo.old_weight = map.weight(osd);
            inc.new_xinfo.insert(osd, xinfo);
            inc.new_weight.insert(osd, 0);
            if !map.state(osd).has(OsdState::AUTOOUT) {
                inc.new_state.insert(osd, OsdState::AUTOOUT.0);
            }
            self.log(
                LogPriority::INFO,
                format!("Marking osd.{osd} out (has been down for {secs} seconds)"),
            );
            self.propose(Mutation::Osd(Box::new(inc)));
        }
    }

    /// Marks OSDs full, too full for backfill, nearly full, by what they report.
    fn osd_full_states(&mut self) {
        let map = &self.state.osdmap;
        let mut inc = self.state.osd_change();
        let bits = OsdState::FULL.0 | OsdState::BACKFILLFULL.0 | OsdState::NEARFULL.0;
        for (&osd, stat) in &self.volatile.pgmap.osds {
            if !map.is_up(osd) {
                continue;
            }
            let Some(used) = crate::pgmap::used_ratio(stat) else { continue };
            let want = if used >= f64::from(map.full_ratio) {
                OsdState::FULL.0
            } else if used >= f64::from(map.backfillfull_ratio) {
                OsdState::BACKFILLFULL.0
            } else if used >= f64::from(map.nearfull_ratio) {
                OsdState::NEARFULL.0
            } else {
                0
            };
            let flip = (map.state(osd).0 & bits) ^ want;
            if flip != 0 {
                inc.new_state.insert(osd, flip);
            }
        }
        if !inc.new_state.is_empty() {
            self.propose(Mutation::Osd(Box::new(inc)));
        }
    }
}
