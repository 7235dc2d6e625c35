//! What the monitors are told: boot, alive, beacons, statistics.

use env::Now;
use maps::{
    ObjectStatCollection, ObjectStatSum, OsdStat, PgShard, PgStat, PgState, StorePerf, StoreStatfs,
};
use messages::{OsdAlive, OsdBeacon, OsdBoot, PgStats, PgTemp};
use types::{Denc, Epoch, PgId, PoolId, UTime};

use crate::backing::{PoolSpace, Space};
use crate::core::Osd;
use crate::outbox::Outbox;
use crate::pg::{Pg, State};

/// An unanswered boot is repeated after this long.
const BOOT_MS: u64 = 1_000;
/// How often a refused OSD says so in its log.
const REFUSAL_MS: u64 = 60_000;
/// An unanswered wish for `up_thru` is repeated after this long.
const ALIVE_MS: u64 = 2_000;
/// Every PG is reported at least this often.
const FRESH_MS: u64 = 60_000;

/// What was said last, and when.
#[derive(Debug, Default)]
pub struct Reports {
    boot_at_ms: u64,
    alive: (Epoch, u64),
    stats_at_ms: u64,
    fresh_at_ms: u64,
    beacon_at_ms: u64,
    refusal_at_ms: u64,
    seq: u64,
    /// PGs that were removed and not yet reported so.
    pub removed: Vec<PgId>,
}

impl Reports {
    /// Another monitor listens: everything is said again.
    pub fn on_session(&mut self) {
        let seq = self.seq;
        *self = Self { seq, removed: std::mem::take(&mut self.removed), ..Self::default() };
    }

    /// Statistics have arrived.
    pub fn on_ack(&mut self) {}
}

impl Osd {
    /// Says what is due.
    pub(crate) fn report(&mut self, now: Now, out: &mut Outbox) {
        let ms = now.mono_ms().max(1);
        if !self.c.booted {
            if !self.c.stopping && ms >= self.c.reports.boot_at_ms {
                self.c.reports.boot_at_ms = ms + BOOT_MS;
                self.tell_refusal(ms);
                self.send_boot(out);
            }
            return;
        }
        self.report_up_thru(now, out);
        if ms >= self.c.reports.stats_at_ms {
            self.c.reports.stats_at_ms = ms + self.c.conf.report_interval_ms;
            self.send_stats(now, ms, out);
        }
        if ms >= self.c.reports.beacon_at_ms {
            self.c.reports.beacon_at_ms = ms + self.c.conf.beacon_interval_ms.min(60_000);
            self.send_beacon(out);
        }
    }

    /// Says that this OSD lives, and which maps its PGs do not need any more.
    pub(crate) fn send_beacon(&self, out: &mut Outbox) {
        let clean = self.pgs.values().filter(|p| p.leads).map(|p| p.info.last_epoch_clean);
        out.mon(&OsdBeacon {
            osd: self.c.id.whoami,
            epoch: self.c.map.epoch,
            min_last_epoch_clean: clean.min().unwrap_or(self.c.map.epoch),
        });
    }

    /// Tells in the log why the cluster does not let this store in.
    fn tell_refusal(&mut self, ms: u64) {
        let (map, id) = (&self.c.map, &self.c.id);
        let (osd, known) = (id.whoami, map.uuid(id.whoami));
        let refused = map.exists(osd) && !known.is_zero() && known != id.uuid;
        if refused && ms >= self.c.reports.refusal_at_ms {
            self.c.reports.refusal_at_ms = ms + REFUSAL_MS;
            tracing::error!(
                "osd.{osd}'s store is {}, the cluster knows osd.{osd} with {known} and does not let \
                 this one in; if that one is lost: argonaut osd replace {osd}",
                id.uuid
            );
        }
    }

    fn send_boot(&self, out: &mut Outbox) {
        let id = &self.c.id;
        out.mon(&OsdBoot {
            osd: id.whoami,
            uuid: id.uuid,
            epoch: self.c.map.epoch,
            boot_epoch: self.c.boot_epoch,
            client: id.client.clone(),
            cluster: id.cluster.clone(),
            hb_front: id.hb_front.clone(),
            hb_back: id.hb_back.clone(),
            metadata: id.metadata.clone(),
            features: id.features,
            device_bytes: id.device_bytes,
            device_class: id.device_class.clone(),
            location: id.location.clone(),
        });
    }

    /// Before a PG serves, the map must admit that it may have.
    pub(crate) fn report_up_thru(&mut self, now: Now, out: &mut Outbox) {
        self.report_pg_temp(out);
        let want = self.c.want_up_thru;
        if !self.c.booted || self.c.map.info(self.c.id.whoami).up_thru >= want {
            return;
        }
        let ms = now.mono_ms();
        let (said, at) = self.c.reports.alive;
        if said >= want && ms < at + ALIVE_MS {
            return;
        }
        self.c.reports.alive = (want, ms);
        let (osd, epoch) = (self.c.id.whoami, self.c.map.epoch);
        out.mon(&OsdAlive { osd, epoch, want_up_thru: want });
    }

    /// PGs whose copies are not ready ask for others to act in their place.
    pub(crate) fn report_pg_temp(&mut self, out: &mut Outbox) {
        if self.c.want_temp.is_empty() {
            return;
        }
        let pgs = std::mem::take(&mut self.c.want_temp);
        if self.c.booted {
            let (osd, epoch) = (self.c.id.whoami, self.c.map.epoch);
            out.mon(&PgTemp { osd, epoch, pgs });
        }
    }

    fn send_stats(&mut self, now: Now, ms: u64, out: &mut Outbox) {
        let all = ms >= self.c.reports.fresh_at_ms;
        if all {
            self.c.reports.fresh_at_ms = ms + FRESH_MS;
        }
        let (mut primary, mut replica, mut stray) = (0, 0, 0);
        let mut m = PgStats {
            osd: self.c.id.whoami,
            epoch: self.c.map.epoch,
            removed: std::mem::take(&mut self.c.reports.removed),
            ..PgStats::default()
        };
        let (me, epoch) = (self.c.id.whoami, self.c.map.epoch);
        for (id, pg) in &mut self.pgs {
            if !pg.leads {
                let counter = if pg.acts(&pg.me(me)) { &mut replica } else { &mut stray };
                *counter += 1;
                continue;
            }
            primary += 1;
            if all || pg.stats_dirty {
                pg.stats_dirty = false;
                m.pgs.insert(id.pg, pg.stat(me, epoch, now).to_bytes());
            }
        }
        let counters = &mut self.c.perf.osd;
        counters.numpg.0 = self.pgs.len() as u64;
        counters.numpg_primary.0 = primary;
        counters.numpg_replica.0 = replica;
        counters.numpg_stray.0 = stray;
        self.c.reports.seq += 1;
        let mut stat = OsdStat::new(statfs(&self.c.store.space()));
        stat.hb_peers = self.c.heartbeats.peers().collect();
        stat.up_from = self.c.map.up_from(me);
        stat.seq = u64::from(stat.up_from.0) << 32 | self.c.reports.seq;
        stat.num_pgs = self.pgs.len() as u32;
        let pings = self.c.heartbeats.pings();
        stat.hb_pingtime = pings.filter_map(|(osd, p)| Some((osd.0, p.times()?))).collect();
        let latency = self.c.pace.commit_latency_ns();
        stat.os_perf_stat = StorePerf { commit_latency_ns: latency, apply_latency_ns: latency };
        stat.num_shards_repaired = self.c.perf.own.copies_repaired.0;
        m.osd_stat = stat.to_bytes();
        (m.slow_ops, m.slow_ms) = self.slow_ops(now);
        m.compressed = self.c.store.compressed().into_iter().map(compressed).collect();
        out.mon(&m);
    }
}

fn compressed((pool, s): (PoolId, PoolSpace)) -> (PoolId, (u64, u64)) {
    (pool, (s.compressed, s.uncompressed))
}

/// Space in the form of the statistics.
pub(crate) fn statfs(s: &Space) -> StoreStatfs {
    StoreStatfs {
        total: s.total,
        available: s.available,
        internally_reserved: 0,
        allocated: s.data as i64,
        data_stored: s.stored as i64,
        omap_allocated: s.omap as i64,
        internal_metadata: s.internal as i64,
        ..StoreStatfs::default()
    }
}

impl Pg {
    /// The PG's state as the peer names it.
    pub(crate) fn reported_state(&self) -> PgState {
        let mut s = PgState::default();
        let mut on = |bit| s.set(bit, true);
        let members = self.members();
        if members < self.pool.size {
            on(PgState::UNDERSIZED);
        }
        match self.state {
            State::Active => {
                if self.is_merging() {
                    on(PgState::PREMERGE);
                }
                if self.is_serving() {
                    on(PgState::ACTIVE);
                } else {
                    on(PgState::PEERED);
                }
                let acts = |o: &PgShard| self.acts(o);
                let lacking =
                    self.peers.iter().any(|(o, p)| acts(o) && p.activated && !p.missing.is_empty());
                let absent = members < self.pool.size && self.counts().objects > 0;
                if absent || !self.missing.is_empty() || lacking {
                    on(PgState::DEGRADED);
                }
                if !self.is_placed() {
                    on(PgState::REMAPPED);
                }
                if !self.missing.is_empty() || lacking {
                    on(match self.recovery_waits() {
                        (_, true) => PgState::RECOVERY_TOOFULL,
                        (true, _) => PgState::RECOVERY_WAIT,
                        _ => PgState::RECOVERING,
                    });
                }
                let (copied, waits, full) = self.backfill_state();
                if copied {
                    on(PgState::BACKFILLING);
                } else if full {
                    on(PgState::BACKFILL_TOOFULL);
                } else if waits {
                    on(PgState::BACKFILL_WAIT);
                }
                if self.forced && !self.is_clean() {
                    on(PgState::FORCED_RECOVERY);
                    on(PgState::FORCED_BACKFILL);
                }
                if self.is_clean() {
                    on(PgState::CLEAN);
                }
                if self.trim.running {
                    on(PgState::SNAPTRIM);
                }
                if self.waits_to_trim() {
                    on(PgState::SNAPTRIM_WAIT);
                }
                if self.trim.failed {
                    on(PgState::SNAPTRIM_ERROR);
                }
                if let Some(order) = self.scrub.running() {
                    on(PgState::SCRUBBING);
                    if order.deep {
                        on(PgState::DEEP_SCRUB);
                    }
                    if order.repair {
                        on(PgState::REPAIR);
                    }
                }
            }
            State::GetInfo if !self.blocked_by.is_empty() => on(PgState::DOWN),
            _ if self.info.history_les == Epoch(0) && self.log.head().version == 0 => {
                on(PgState::CREATING);
                on(PgState::PEERING);
            }
            _ => on(PgState::PEERING),
        }
        if self.leads && self.info.scrub.errors() > 0 {
            on(PgState::INCONSISTENT);
        }
        if self.scrub.repair_failed {
            on(PgState::FAILED_REPAIR);
        }
        s
    }

    /// What the monitors show of the PG.
    pub(crate) fn stat(&mut self, me: types::OsdId, epoch: Epoch, now: Now) -> PgStat {
        self.reported_seq += 1;
        let state = self.reported_state();
        let t = now.wall_ns;
        let st = &mut self.stamps;
        for (bit, stamp) in [(PgState::ACTIVE, &mut st.active), (PgState::CLEAN, &mut st.clean)] {
            if state.has(bit) {
                *stamp = t;
            }
        }
        st.unstale = t;
        if state.has(PgState::ACTIVE) || state.has(PgState::PEERED) {
            st.peered = t;
        }
        if !state.has(PgState::DEGRADED) {
            st.undegraded = t;
        }
        if !state.has(PgState::UNDERSIZED) {
            st.fullsized = t;
        }
        let c = self.counts();
        let copies = self.pool.size as i64;
        let missing = self.missing.len() as i64;
        let acting = self.peers.iter().filter(|(o, _)| self.acts(o));
        let peers_missing: i64 = acting.map(|(_, p)| p.missing.len() as i64).sum();
        let absent = copies - self.members().min(self.pool.size) as i64;
        let scrub = self.info.scrub;
        let (archives, archive_bytes) = self.tier.hits.archived();
        let sum = ObjectStatSum {
            num_bytes: c.bytes,
            num_objects: c.objects,
            num_object_clones: c.clones,
            num_object_copies: c.objects * copies,
            num_objects_missing_on_primary: missing,
            num_objects_missing: missing,
            num_objects_degraded: missing + peers_missing + c.objects * absent,
            num_objects_misplaced: self.misplaced(),
            num_objects_unfound: self.unfound() as i64,
            num_rd: self.reads as i64,
            num_rd_kb: (self.read_bytes >> 10) as i64,
            num_wr: c.writes,
            num_wr_kb: c.write_bytes >> 10,
            num_objects_recovered: self.recovered.0 as i64,
            num_bytes_recovered: self.recovered.1 as i64,
            num_objects_dirty: c.objects - c.clean,
            num_objects_omap: c.omap_objects,
            num_objects_hit_set_archive: archives,
            num_bytes_hit_set_archive: archive_bytes,
            num_scrub_errors: i64::from(scrub.errors()),
            num_shallow_scrub_errors: i64::from(scrub.shallow_errors),
            num_deep_scrub_errors: i64::from(scrub.deep_errors),
            num_objects_repaired: scrub.repaired as i64,
            num_omap_keys: scrub.omap.0 as i64,
            num_omap_bytes: scrub.omap.1 as i64,
            ..ObjectStatSum::default()
        };
        let at = UTime::from_nanos;
        let whole =
            self.peers.iter().filter(|(o, p)| self.acts(o) && p.activated && p.missing.is_empty());
        let mut avail: Vec<PgShard> = whole.map(|(o, _)| *o).collect();
        if self.missing.is_empty() && self.state == State::Active {
            avail.push(self.me(me));
        }
        avail.sort();
        PgStat {
            version: self.log.head(),
            reported_seq: self.reported_seq,
            reported_epoch: epoch,
            state,
            log_start: self.log.tail,
            ondisk_log_start: self.log.tail,
            created: self.info.created,
            last_epoch_clean: self.info.last_epoch_clean,
            stats: ObjectStatCollection { sum, ..ObjectStatCollection::default() },
            log_size: self.log.entries.len() as i64,
            ondisk_log_size: self.log.entries.len() as i64,
            log_dups_size: self.log.old_len() as i64,
            snaptrimq_len: u32::try_from(self.trim.queued).unwrap_or(u32::MAX),
            purged_snaps: maps::SnapIntervals(self.trim.purged.clone()),
            objects_trimmed: self.trim.trimmed as i64,
            up: self.info.up.clone(),
            acting: self.info.acting.clone(),
            up_primary: self.up_primary,
            acting_primary: self.info.primary,
            blocked_by: self.blocked_by.clone(),
            mapping_epoch: self.info.same_interval_since,
            last_fresh: at(t),
            last_change: at(self.stamps.change),
            last_active: at(self.stamps.active),
            last_clean: at(self.stamps.clean),
            last_unstale: at(self.stamps.unstale),
            last_undegraded: at(self.stamps.undegraded),
            last_fullsized: at(self.stamps.fullsized),
            last_peered: at(self.stamps.peered),
            last_became_active: at(self.stamps.became_active),
            last_became_peered: at(self.stamps.became_peered),
            avail_no_missing: avail,
            last_scrub: scrub.last,
            last_scrub_stamp: at(scrub.last_ns),
            last_deep_scrub: scrub.last_deep,
            last_deep_scrub_stamp: at(scrub.last_deep_ns),
            last_clean_scrub_stamp: at(scrub.last_clean_ns),
            last_scrub_duration: scrub.duration_ms.div_ceil(1_000) as i32,
            objects_scrubbed: scrub.objects as i64,
            scrub_duration: scrub.duration_ms as f64 / 1_000.0,
            scrub: self.scrub_schedule(now),
            ..PgStat::default()
        }
    }
}
