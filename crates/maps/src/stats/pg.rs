//! What a PG is, has and did, as its primary reports it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use types::{
    DecodeError, Denc, EVersion, Epoch, HObject, OsdId, PgId, Reader, ShardId, SpgId, UTime, Writer,
};

use super::ObjectStatCollection;
use crate::wire::{SnapIntervals, plain, record, release};

/// State bits of a PG; the peer's `PG_STATE_*`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PgState(pub u64);

macro_rules! states {
    ($($(#[$doc:meta])* $name:ident = $bit:literal, $text:literal;)*) => {
        impl PgState {
            $($(#[$doc])* pub const $name: Self = Self(1 << $bit);)*
            /// Bits and their names.
            pub const NAMES: &'static [(Self, &'static str)] = &[$((Self::$name, $text)),*];
        }
    };
}
states! {
    /// Being created.
    CREATING = 0, "creating";
    /// Serves.
    ACTIVE = 1, "active";
    /// Has all copies.
    CLEAN = 2, "clean";
    /// Members are missing without whom it cannot go on.
    DOWN = 4, "down";
    /// Waits for its recovery to be let in.
    RECOVERY_WAIT = 5, "recovery_wait";
    /// Its target is too full to backfill.
    BACKFILL_TOOFULL = 6, "backfill_toofull";
    /// Being scrubbed.
    SCRUBBING = 8, "scrubbing";
    /// Copies are missing.
    DEGRADED = 10, "degraded";
    /// Copies differ.
    INCONSISTENT = 11, "inconsistent";
    /// Members agree on its state.
    PEERING = 12, "peering";
    /// Being repaired.
    REPAIR = 13, "repair";
    /// Recovers.
    RECOVERING = 14, "recovering";
    /// Waits for its backfill to be let in.
    BACKFILL_WAIT = 15, "backfill_wait";
    /// Its history has holes.
    INCOMPLETE = 16, "incomplete";
    /// Nothing is heard of it.
    STALE = 17, "stale";
    /// On other OSDs than it should be.
    REMAPPED = 18, "remapped";
    /// Its scrub reads everything.
    DEEP_SCRUB = 19, "deep";
    /// Is backfilled.
    BACKFILLING = 20, "backfilling";
    /// Has too few members.
    UNDERSIZED = 22, "undersized";
    /// Could be activated, but has fewer than `min_size`.
    PEERED = 23, "peered";
    /// Trims snapshots.
    SNAPTRIM = 24, "snaptrim";
    /// Waits to trim snapshots.
    SNAPTRIM_WAIT = 25, "snaptrim_wait";
    /// Its recovery's target is too full.
    RECOVERY_TOOFULL = 26, "recovery_toofull";
    /// Could not trim.
    SNAPTRIM_ERROR = 27, "snaptrim_error";
    /// Recovers out of turn.
    FORCED_RECOVERY = 28, "forced_recovery";
    /// Backfills out of turn.
    FORCED_BACKFILL = 29, "forced_backfill";
    /// A repair failed.
    FAILED_REPAIR = 30, "failed_repair";
    /// Waits for a predecessor's lease to end.
    LAGGY = 31, "laggy";
    /// Waits for its own lease.
    WAIT = 32, "wait";
    /// Merged, and waits for the merge.
    PREMERGE = 3, "premerge";
}

impl PgState {
    /// Whether all bits of `other` are set.
    #[must_use]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Sets or clears the bits of `other`.
    pub const fn set(&mut self, other: Self, on: bool) {
        if on {
            self.0 |= other.0;
        } else {
            self.0 &= !other.0;
        }
    }

    /// The state with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::NAMES.iter().find(|x| x.1 == name).map(|x| x.0)
    }

    /// In the order in which the peer prints them.
    const PRINTED: &'static [Self] = &[
        Self::STALE,
        Self::CREATING,
        Self::ACTIVE,
        Self::CLEAN,
        Self::RECOVERY_WAIT,
        Self::RECOVERY_TOOFULL,
        Self::RECOVERING,
        Self::FORCED_RECOVERY,
        Self::DOWN,
        Self::UNDERSIZED,
        Self::DEGRADED,
        Self::REMAPPED,
        Self::PREMERGE,
        Self::SCRUBBING,
        Self::DEEP_SCRUB,
        Self::INCONSISTENT,
        Self::PEERING,
        Self::REPAIR,
        Self::BACKFILL_WAIT,
        Self::BACKFILLING,
        Self::FORCED_BACKFILL,
        Self::BACKFILL_TOOFULL,
        Self::INCOMPLETE,
        Self::PEERED,
        Self::SNAPTRIM,
        Self::SNAPTRIM_WAIT,
        Self::SNAPTRIM_ERROR,
        Self::FAILED_REPAIR,
        Self::LAGGY,
        Self::WAIT,
    ];
}

/// `active+clean`; `unknown` without any bit.
impl fmt::Display for PgState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut first = true;
        for state in Self::PRINTED {
            if self.has(*state) {
                let name = Self::NAMES.iter().find(|x| x.0 == *state).map_or("", |x| x.1);
                write!(f, "{}{name}", if first { "" } else { "+" })?;
                first = false;
            }
        }
        if first { f.write_str("unknown") } else { Ok(()) }
    }
}

impl Denc for PgState {
    fn encode(&self, w: &mut Writer) {
        w.u64(self.0);
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.u64().map(Self)
    }
}

record! {
    /// An OSD and which shard it holds. The peer's `pg_shard_t`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    PgShard "pg_shard_t", compat 1, known 1, |f| 1; {
        /// The OSD.
        osd: OsdId,
        /// The shard; [`ShardId::NONE`] in replicated pools.
        shard: ShardId,
    }
}

impl fmt::Display for PgShard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.osd)?;
        if self.shard == ShardId::NONE { Ok(()) } else { write!(f, "({})", self.shard) }
    }
}

impl Default for PgShard {
    fn default() -> Self {
        Self { osd: OsdId(-1), shard: ShardId::NONE }
    }
}

/// When and how a PG is scrubbed next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScrubSchedule {
    /// When.
    pub scheduled_at: UTime,
    /// How long the running one takes already, or the last took; seconds.
    pub duration_seconds: i32,
    /// The peer's `pg_scrub_sched_status_t`.
    pub status: u16,
    /// Whether one runs.
    pub is_active: bool,
    /// Whether it reads everything.
    pub is_deep: bool,
    /// Whether nobody asked for it.
    pub is_periodic: bool,
    /// The OSD whose answer is awaited (v30).
    pub osd_to_respond: u16,
    /// Which one that is (v30).
    pub ordinal_of_replica: u8,
    /// Of how many (v30).
    pub num_to_reserve: u8,
}

/// What a PG's primary reports. The peer's `pg_stat_t`.
///
/// Wire: compat 22; v30 for peers of release 20, v29 for 18 and 19, else v26. Read from 26.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PgStat {
    /// Its last write.
    pub version: EVersion,
    /// Counts reports, within [`Self::reported_epoch`].
    pub reported_seq: u64,
    /// Epoch of the report.
    pub reported_epoch: Epoch,
    /// State.
    pub state: PgState,
    /// Where its log begins.
    pub log_start: EVersion,
    /// Where its log on disk begins.
    pub ondisk_log_start: EVersion,
    /// When it was created.
    pub created: Epoch,
    /// When it was clean last.
    pub last_epoch_clean: Epoch,
    /// The PG it was split from.
    pub parent: PgId,
    /// By how many bits.
    pub parent_split_bits: u32,
    /// What the last scrub covered.
    pub last_scrub: EVersion,
    /// When that was.
    pub last_scrub_stamp: UTime,
    /// Objects.
    pub stats: ObjectStatCollection,
    /// Log entries.
    pub log_size: i64,
    /// Log entries on disk.
    pub ondisk_log_size: i64,
    /// Who should serve it.
    pub up: Vec<OsdId>,
    /// Who does.
    pub acting: Vec<OsdId>,
    /// When it was reported.
    pub last_fresh: UTime,
    /// When its state changed.
    pub last_change: UTime,
    /// When it was active last.
    pub last_active: UTime,
    /// When it was clean last.
    pub last_clean: UTime,
    /// When it was not stale last.
    pub last_unstale: UTime,
    /// Epoch since when it is where it is.
    pub mapping_epoch: Epoch,
    /// What the last deep scrub covered.
    pub last_deep_scrub: EVersion,
    /// When that was.
    pub last_deep_scrub_stamp: UTime,
    /// Whether the counts are estimates.
    pub stats_invalid: bool,
    /// When a scrub found nothing.
    pub last_clean_scrub_stamp: UTime,
    /// When it became active.
    pub last_became_active: UTime,
    /// Whether the count of dirty objects is an estimate.
    pub dirty_stats_invalid: bool,
    /// Primary of `up`.
    pub up_primary: OsdId,
    /// Primary.
    pub acting_primary: OsdId,
    /// Whether the count of objects with omap is an estimate.
    pub omap_stats_invalid: bool,
    /// Whether the count of hit sets is an estimate.
    pub hitset_stats_invalid: bool,
    /// OSDs it waits for.
    pub blocked_by: Vec<OsdId>,
    /// When it was not degraded last.
    pub last_undegraded: UTime,
    /// When it had all members last.
    pub last_fullsized: UTime,
    /// Whether the bytes of hit sets are an estimate.
    pub hitset_bytes_stats_invalid: bool,
    /// When it was peered last.
    pub last_peered: UTime,
    /// When it became peered.
    pub last_became_peered: UTime,
    /// Whether the count of pinned objects is an estimate.
    pub pin_stats_invalid: bool,
    /// Snapshots to trim.
    pub snaptrimq_len: u32,
    /// Snapshots trimmed.
    pub purged_snaps: SnapIntervals,
    /// Whether the count of objects with manifests is an estimate.
    pub manifest_stats_invalid: bool,
    /// Members that miss nothing.
    pub avail_no_missing: Vec<PgShard>,
    /// How many objects are on which members.
    pub object_location_counts: BTreeMap<BTreeSet<PgShard>, i32>,
    /// Seconds the last scrub took (v27).
    pub last_scrub_duration: i32,
    /// The next scrub (v27).
    pub scrub: ScrubSchedule,
    /// Objects scrubbed (v28).
    pub objects_scrubbed: i64,
    /// Seconds (v28).
    pub scrub_duration: f64,
    /// Objects trimmed (v28).
    pub objects_trimmed: i64,
    /// Seconds (v28).
    pub snaptrim_duration: f64,
    /// Remembered request ids beyond the log (v29).
    pub log_dups_size: i64,
}

impl PgStat {
    /// When it was in which state last, by the names and in the order in which the peer shows them.
    #[must_use]
    pub fn stamps(&self) -> [(&'static str, UTime); 10] {
        [
            ("last_fresh", self.last_fresh),
            ("last_change", self.last_change),
            ("last_active", self.last_active),
            ("last_peered", self.last_peered),
            ("last_clean", self.last_clean),
            ("last_became_active", self.last_became_active),
            ("last_became_peered", self.last_became_peered),
            ("last_unstale", self.last_unstale),
            ("last_undegraded", self.last_undegraded),
            ("last_fullsized", self.last_fullsized),
        ]
    }
}

impl Denc for PgStat {
    fn encode(&self, w: &mut Writer) {
        let v = match release(w.features()) {
            20.. => 30,
            18..=19 => 29,
            _ => 26,
        };
        w.framed(v, 22, |w| {
            self.version.encode(w);
            w.u64(self.reported_seq);
            self.reported_epoch.encode(w);
            w.u32(self.state.0 as u32); // the upper half stands further down
            self.log_start.encode(w);
            self.ondisk_log_start.encode(w);
            self.created.encode(w);
            self.last_epoch_clean.encode(w);
            self.parent.encode(w);
            w.u32(self.parent_split_bits);
            self.last_scrub.encode(w);
            self.last_scrub_stamp.encode(w);
            self.stats.encode(w);
            w.i64(self.log_size);
            w.i64(self.ondisk_log_size);
            self.up.encode(w);
            self.acting.encode(w);
            self.last_fresh.encode(w);
            self.last_change.encode(w);
            self.last_active.encode(w);
            self.last_clean.encode(w);
            self.last_unstale.encode(w);
            self.mapping_epoch.encode(w);
            self.last_deep_scrub.encode(w);
            self.last_deep_scrub_stamp.encode(w);
            w.bool(self.stats_invalid);
            self.last_clean_scrub_stamp.encode(w);
            self.last_became_active.encode(w);
            w.bool(self.dirty_stats_invalid);
            self.up_primary.encode(w);
            self.acting_primary.encode(w);
            w.bool(self.omap_stats_invalid);
            w.bool(self.hitset_stats_invalid);
            self.blocked_by.encode(w);
            self.last_undegraded.encode(w);
            self.last_fullsized.encode(w);
            w.bool(self.hitset_bytes_stats_invalid);
            self.last_peered.encode(w);
            self.last_became_peered.encode(w);
            w.bool(self.pin_stats_invalid);
            w.u32(self.snaptrimq_len);
            w.u32((self.state.0 >> 32) as u32);
            self.purged_snaps.encode(w);
            w.bool(self.manifest_stats_invalid);
            self.avail_no_missing.encode(w);
            self.object_location_counts.encode(w);
            if v >= 29 {
                w.i32(self.last_scrub_duration);
                self.scrub.scheduled_at.encode(w);
                w.i32(self.scrub.duration_seconds);
                w.u16(self.scrub.status);
                w.bool(self.scrub.is_active);
                w.bool(self.scrub.is_deep);
                w.bool(self.scrub.is_periodic);
                w.i64(self.objects_scrubbed);
                w.f64(self.scrub_duration);
                w.i64(self.objects_trimmed);
                w.f64(self.snaptrim_duration);
                w.i64(self.log_dups_size);
            }
            if v >= 30 {
                w.u16(self.scrub.osd_to_respond);
                w.u8(self.scrub.ordinal_of_replica);
                w.u8(self.scrub.num_to_reserve);
            }
        });
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("pg_stat_t", 30, |r, v| {
            r.require(v >= 26, "PG statistics are read from version 26 on")?;
            let mut s = Self {
                version: Denc::decode(r)?,
                reported_seq: r.u64()?,
                reported_epoch: Denc::decode(r)?,
                state: PgState(r.u32()?.into()),
                log_start: Denc::decode(r)?,
                ondisk_log_start: Denc::decode(r)?,
                created: Denc::decode(r)?,
                last_epoch_clean: Denc::decode(r)?,
                parent: Denc::decode(r)?,
                parent_split_bits: r.u32()?,
                last_scrub: Denc::decode(r)?,
                last_scrub_stamp: Denc::decode(r)?,
                stats: Denc::decode(r)?,
                log_size: r.i64()?,
                ondisk_log_size: r.i64()?,
                up: Denc::decode(r)?,
                acting: Denc::decode(r)?,
                last_fresh: Denc::decode(r)?,
                last_change: Denc::decode(r)?,
                last_active: Denc::decode(r)?,
                last_clean: Denc::decode(r)?,
                last_unstale: Denc::decode(r)?,
                mapping_epoch: Denc::decode(r)?,
                last_deep_scrub: Denc::decode(r)?,
                last_deep_scrub_stamp: Denc::decode(r)?,
                stats_invalid: r.bool()?,
                last_clean_scrub_stamp: Denc::decode(r)?,
                last_became_active: Denc::decode(r)?,
                dirty_stats_invalid: r.bool()?,
                up_primary: Denc::decode(r)?,
                acting_primary: Denc::decode(r)?,
                omap_stats_invalid: r.bool()?,
                hitset_stats_invalid: r.bool()?,
                blocked_by: Denc::decode(r)?,
                last_undegraded: Denc::decode(r)?,
                last_fullsized: Denc::decode(r)?,
                hitset_bytes_stats_invalid: r.bool()?,
                last_peered: Denc::decode(r)?,
                last_became_peered: Denc::decode(r)?,
                pin_stats_invalid: r.bool()?,
                snaptrimq_len: r.u32()?,
                ..Self::default()
            };
            s.state.0 |= u64::from(r.u32()?) << 32;
            s.purged_snaps = Denc::decode(r)?;
            s.manifest_stats_invalid = r.bool()?;
            s.avail_no_missing = Denc::decode(r)?;
            s.object_location_counts = Denc::decode(r)?;
            if v >= 27 {
                s.last_scrub_duration = r.i32()?;
                s.scrub.scheduled_at = Denc::decode(r)?;
                s.scrub.duration_seconds = r.i32()?;
                s.scrub.status = r.u16()?;
                s.scrub.is_active = r.bool()?;
                s.scrub.is_deep = r.bool()?;
                s.scrub.is_periodic = r.bool()?;
            }
            if v >= 28 {
                s.objects_scrubbed = r.i64()?;
                s.scrub_duration = r.f64()?;
                s.objects_trimmed = r.i64()?;
                s.snaptrim_duration = r.f64()?;
            }
            if v >= 29 {
                s.log_dups_size = r.i64()?;
            }
            if v >= 30 {
                s.scrub.osd_to_respond = r.u16()?;
                s.scrub.ordinal_of_replica = r.u8()?;
                s.scrub.num_to_reserve = r.u8()?;
            }
            Ok(s)
        })
    }
}

record! {
    /// What matters of a PG's past. The peer's `pg_history_t`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    PgHistory "pg_history_t", compat 4, known 10, |f| 10; {
        /// When the PG was created.
        epoch_created: Epoch,
        /// It was active in this epoch, as far as is known.
        last_epoch_started: Epoch,
        /// It was clean in this epoch.
        last_epoch_clean: Epoch,
        /// When it was split last.
        last_epoch_split: Epoch,
        /// Since when acting and up sets are as they are.
        same_interval_since: Epoch,
        /// Since when the up set is as it is.
        same_up_since: Epoch,
        /// Since when the primary is.
        same_primary_since: Epoch,
        /// What the last scrub covered.
        last_scrub: EVersion,
        /// When that was.
        last_scrub_stamp: UTime,
        /// What the last deep scrub covered.
        5 => last_deep_scrub: EVersion,
        /// When that was.
        5 => last_deep_scrub_stamp: UTime,
        /// When a scrub found nothing.
        6 => last_clean_scrub_stamp: UTime,
        /// When its pool was full last.
        7 => last_epoch_marked_full: Epoch,
        /// First epoch of the interval of `last_epoch_started`.
        8 => last_interval_started: Epoch,
        /// First epoch of the interval of `last_epoch_clean`.
        8 => last_interval_clean: Epoch,
        /// When its pool was created.
        9 => epoch_pool_created: Epoch,
        /// How long a predecessor may still serve reads.
        10 => prior_readable_until_ub: UTime,
    }
}

impl PgHistory {
    /// Takes over what `other` knows better. Whether anything changed.
    ///
    /// Source: the peer's `pg_history_t::merge`.
    pub fn merge(&mut self, other: &Self) -> bool {
        let before = *self;
        if self.epoch_created < other.epoch_created {
            self.epoch_created = other.epoch_created;
        }
        if self.epoch_pool_created < other.epoch_pool_created {
            self.epoch_pool_created = other.epoch_pool_created;
        }
        if self.last_epoch_started < other.last_epoch_started {
            self.last_epoch_started = other.last_epoch_started;
        }
        if self.last_interval_started < other.last_interval_started {
            self.last_interval_started = other.last_interval_started;
            // A newer interval knows how long reads may go on elsewhere.
            self.prior_readable_until_ub = other.prior_readable_until_ub;
        } else if self.last_interval_started == other.last_interval_started
            && self.prior_readable_until_ub < other.prior_readable_until_ub
        {
            self.prior_readable_until_ub = other.prior_readable_until_ub;
        }
        if self.last_epoch_clean < other.last_epoch_clean {
            self.last_epoch_clean = other.last_epoch_clean;
        }
        if self.last_interval_clean < other.last_interval_clean {
            self.last_interval_clean = other.last_interval_clean;
        }
        if self.last_epoch_split < other.last_epoch_split {
            self.last_epoch_split = other.last_epoch_split;
        }
        if self.last_epoch_marked_full < other.last_epoch_marked_full {
            self.last_epoch_marked_full = other.last_epoch_marked_full;
        }
        if self.last_scrub < other.last_scrub {
            self.last_scrub = other.last_scrub;
        }
        if self.last_scrub_stamp < other.last_scrub_stamp {
            self.last_scrub_stamp = other.last_scrub_stamp;
        }
        if self.last_deep_scrub < other.last_deep_scrub {
            self.last_deep_scrub = other.last_deep_scrub;
        }
        if self.last_deep_scrub_stamp < other.last_deep_scrub_stamp {
            self.last_deep_scrub_stamp = other.last_deep_scrub_stamp;
        }
        if self.last_clean_scrub_stamp < other.last_clean_scrub_stamp {
            self.last_clean_scrub_stamp = other.last_clean_scrub_stamp;
        }
        *self != before
    }
}

record! {
    /// One hit set of a cache tier. The peer's `pg_hit_set_info_t`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    HitSetInfo "pg_hit_set_info_t", compat 1, known 2, |f| 2; {
        /// From when.
        begin: UTime,
        /// To when.
        end: UTime,
        /// The log entry that made it.
        version: EVersion,
        /// Named by UTC.
        2 => using_gmt: bool,
    }
}

impl Default for HitSetInfo {
    fn default() -> Self {
        Self { begin: UTime::ZERO, end: UTime::ZERO, version: EVersion::ZERO, using_gmt: true }
    }
}

record! {
    /// The hit sets of a PG. The peer's `pg_hit_set_history_t`.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    HitSetHistory "pg_hit_set_history_t", compat 1, known 1, |f| 1; {
        /// Last update of the current one.
        current_last_update: EVersion,
        /// When that was.
        current_last_stamp: UTime,
        /// The current one.
        current: HitSetInfo,
        /// Those before.
        history: Vec<HitSetInfo>,
    }
}

/// A PG as one OSD holds it. The peer's `pg_info_t`.
///
/// Wire: compat 26; v34 for peers of release 20, else v32. Read from v30.
#[derive(Clone, Debug, PartialEq)]
pub struct PgInfo {
    /// Which PG and shard.
    pub pgid: SpgId,
    /// Its last write here.
    pub last_update: EVersion,
    /// Everything up to it is here.
    pub last_complete: EVersion,
    /// Where its log begins.
    pub log_tail: EVersion,
    /// Statistics.
    pub stats: PgStat,
    /// Its past.
    pub history: PgHistory,
    /// Snapshots trimmed.
    pub purged_snaps: SnapIntervals,
    /// It was active here in this epoch.
    pub last_epoch_started: Epoch,
    /// The last version users saw.
    pub last_user_version: u64,
    /// Hit sets.
    pub hit_set: HitSetHistory,
    /// Objects below are here; max when backfill is over.
    pub last_backfill: HObject,
    /// First epoch of the interval of `last_epoch_started`.
    pub last_interval_started: Epoch,
    /// Writes that left some shards alone (v33).
    pub partial_writes_last_complete: BTreeMap<ShardId, (EVersion, EVersion)>,
    /// Epoch of that (v34).
    pub partial_writes_last_complete_epoch: Epoch,
}

impl Default for PgInfo {
    fn default() -> Self {
        Self {
            pgid: SpgId::default(),
            last_update: EVersion::ZERO,
            last_complete: EVersion::ZERO,
            log_tail: EVersion::ZERO,
            stats: PgStat::default(),
            history: PgHistory::default(),
            purged_snaps: SnapIntervals::default(),
            last_epoch_started: Epoch(0),
            last_user_version: 0,
            hit_set: HitSetHistory::default(),
            last_backfill: HObject::max(),
            last_interval_started: Epoch(0),
            partial_writes_last_complete: BTreeMap::new(),
            partial_writes_last_complete_epoch: Epoch(0),
        }
    }
}

impl PgInfo {
    /// Whether nothing was ever written.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.last_update.version == 0
    }

    /// Whether the PG does not exist here.
    #[must_use]
    pub fn dne(&self) -> bool {
        self.history.epoch_created.0 == 0
    }

    /// Whether objects are missing here, backfill aside.
    #[must_use]
    pub fn has_missing(&self) -> bool {
        self.last_complete != self.last_update
    }

    /// Whether backfill is not over.
    #[must_use]
    pub const fn is_incomplete(&self) -> bool {
        !self.last_backfill.max
    }
}

impl Denc for PgInfo {
    fn encode(&self, w: &mut Writer) {
        let v = if release(w.features()) >= 20 { 34 } else { 32 };
        w.framed(v, 26, |w| {
            self.pgid.pg.encode(w);
            self.last_update.encode(w);
            self.last_complete.encode(w);
            self.log_tail.encode(w);
            HObject::min().encode(w); // last_backfill in an order long gone
            self.stats.encode(w);
            self.history.encode(w);
            self.purged_snaps.encode(w);
            self.last_epoch_started.encode(w);
            w.u64(self.last_user_version);
            self.hit_set.encode(w);
            self.pgid.shard.encode(w);
            self.last_backfill.encode(w);
            w.bool(true); // last_backfill is in the order of all hashes
            self.last_interval_started.encode(w);
            if v >= 34 {
                self.partial_writes_last_complete.encode(w);
                self.partial_writes_last_complete_epoch.encode(w);
            }
        });
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("pg_info_t", 34, |r, v| {
            r.require(v >= 32, "PG infos are read from version 32 on")?;
            let mut i = Self::default();
            i.pgid.pg = Denc::decode(r)?;
            i.last_update = Denc::decode(r)?;
            i.last_complete = Denc::decode(r)?;
            i.log_tail = Denc::decode(r)?;
            let _ = HObject::decode(r)?;
            i.stats = Denc::decode(r)?;
            i.history = Denc::decode(r)?;
            i.purged_snaps = Denc::decode(r)?;
            i.last_epoch_started = Denc::decode(r)?;
            i.last_user_version = r.u64()?;
            i.hit_set = Denc::decode(r)?;
            i.pgid.shard = Denc::decode(r)?;
            i.last_backfill = Denc::decode(r)?;
            let _ = r.bool()?;
            i.last_interval_started = Denc::decode(r)?;
            if v >= 33 {
                i.partial_writes_last_complete = Denc::decode(r)?;
            }
            if v >= 34 {
                i.partial_writes_last_complete_epoch = Denc::decode(r)?;
            }
            Ok(i)
        })
    }
}

plain! {
    /// How many PGs an OSD has. The peer's `PGMapDigest::pg_count`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    PgCount {
        /// In acting sets.
        acting: i32,
        /// In up sets only.
        up_not_acting: i32,
        /// As primary.
        primary: i32,
    }
}
