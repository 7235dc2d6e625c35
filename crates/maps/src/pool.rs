//! A pool as the OSD map describes it.

use std::collections::{BTreeMap, BTreeSet};

use types::{
    Bytes, DecodeError, Denc, EVersion, Epoch, Features, PgId, PoolId, Reader, SnapId, UTime,
    Writer, stable_mod,
};

use crate::wire::{SnapIntervals, plain, record};

/// How a pool keeps its objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PoolKind(pub u8);

impl PoolKind {
    /// Whole copies.
    pub const REPLICATED: Self = Self(1);
    /// Data and coding chunks.
    pub const ERASURE: Self = Self(3);

    /// `replicated`, `erasure`, or `???`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::REPLICATED => "replicated",
            Self::ERASURE => "erasure",
            _ => "???",
        }
    }
}

/// Flags of a pool; the peer's `pg_pool_t::FLAG_*`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PoolFlags(pub u64);

macro_rules! pool_flags {
    ($($(#[$doc:meta])* $name:ident = $bit:expr, $text:literal;)*) => {
        impl PoolFlags {
            $($(#[$doc])* pub const $name: Self = Self($bit);)*
            /// Flags and their names, in bit order.
            pub const NAMES: &'static [(Self, &'static str)] = &[$((Self::$name, $text)),*];
        }
    };
}
pool_flags! {
    /// PG numbers are hashed together with the pool id.
    HASHPSPOOL = 1, "hashpspool";
    /// Full; writes get ENOSPC or wait.
    FULL = 1 << 1, "full";
    /// Partial overwrites of erasure-coded objects.
    EC_OVERWRITES = 1 << 2, "ec_overwrites";
    /// Clones may be missing (cache tiers).
    INCOMPLETE_CLONES = 1 << 3, "incomplete_clones";
    /// The pool cannot be deleted.
    NODELETE = 1 << 4, "nodelete";
    /// `pg_num` and `pgp_num` cannot be changed.
    NOPGCHANGE = 1 << 5, "nopgchange";
    /// `size` and `min_size` cannot be changed.
    NOSIZECHANGE = 1 << 6, "nosizechange";
    /// Written data is not kept in cache.
    WRITE_FADVISE_DONTNEED = 1 << 7, "write_fadvise_dontneed";
    /// No scrubs.
    NOSCRUB = 1 << 8, "noscrub";
    /// No deep scrubs.
    NODEEP_SCRUB = 1 << 9, "nodeep-scrub";
    /// Full because of its quota.
    FULL_QUOTA = 1 << 10, "full_quota";
    /// Nearly full.
    NEARFULL = 1 << 11, "nearfull";
    /// Too full for backfill.
    BACKFILLFULL = 1 << 12, "backfillfull";
    /// Its clients manage snapshots.
    SELFMANAGED_SNAPS = 1 << 13, "selfmanaged_snaps";
    /// It has snapshots of its own.
    POOL_SNAPS = 1 << 14, "pool_snaps";
    /// Its PGs are being created.
    CREATING = 1 << 15, "creating";
    /// Operations fail with EIO.
    EIO = 1 << 16, "eio";
    /// Expected to become large.
    BULK = 1 << 17, "bulk";
    /// On crimson OSDs.
    CRIMSON = 1 << 18, "crimson";
    /// Erasure coding with release 20's optimizations.
    EC_OPTIMIZATIONS = 1 << 19, "ec_optimizations";
}

impl PoolFlags {
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
}

/// Comma-separated names, as the peer prints them; empty without flags.
impl std::fmt::Display for PoolFlags {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut first = true;
        for (flag, name) in Self::NAMES {
            if self.has(*flag) {
                if !first {
                    f.write_str(",")?;
                }
                first = false;
                f.write_str(name)?;
            }
        }
        Ok(())
    }
}

impl Denc for PoolFlags {
    fn encode(&self, w: &mut Writer) {
        w.u64(self.0);
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.u64().map(Self)
    }
}

record! {
    /// A snapshot of a whole pool. The peer's `pool_snap_info_t`.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    PoolSnapInfo "pool_snap_info_t", compat 2, known 2, |f| 2; {
        /// Its id.
        id: SnapId,
        /// When it was taken.
        stamp: UTime,
        /// Its name.
        name: String,
    }
}

/// How hits on a cache tier are recorded. The peer's `HitSet::Params`, 1/1: u8 kind, then
/// the kind's own parameters, kept as they came.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HitSetParams {
    /// 0 none, 1 explicit hashes, 2 explicit objects, 3 bloom filter.
    pub kind: u8,
    /// The kind's parameters, encoded.
    pub body: Bytes,
}

impl Denc for HitSetParams {
    fn encode(&self, w: &mut Writer) {
        w.framed(1, 1, |w| {
            w.u8(self.kind);
            w.raw(&self.body);
        });
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("HitSet::Params", 1, |r, _| Ok(Self { kind: r.u8()?, body: r.rest() }))
    }
}

record! {
    /// What the OSDs agreed on before two PGs were merged. The peer's `pg_merge_meta_t`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    PgMergeMeta "pg_merge_meta_t", compat 1, known 1, |f| 1; {
        /// The PG that was merged away.
        source: PgId,
        /// Epoch in which both were ready.
        ready_epoch: Epoch,
        /// Oldest last-started of the two.
        last_epoch_started: Epoch,
        /// Oldest last-clean of the two.
        last_epoch_clean: Epoch,
        /// Version of the source.
        source_version: EVersion,
        /// Version of the target.
        target_version: EVersion,
    }
}

/// A value of a pool option.
#[derive(Clone, Debug, PartialEq)]
pub enum PoolOpt {
    /// Text.
    Str(String),
    /// A number.
    Int(i64),
    /// A ratio.
    Double(f64),
}

/// Options few pools set. The peer's `pool_opts_t`, 2/1: key, kind and value of each.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PoolOpts(pub BTreeMap<i32, PoolOpt>);

/// What kind of value an option takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolOptKind {
    /// Text.
    Str,
    /// A number.
    Int,
    /// A ratio.
    Double,
}

impl PoolOpts {
    /// Key, name and kind of every option known to release 20.
    pub const KEYS: &'static [(i32, &'static str, PoolOptKind)] = &[
        (0, "scrub_min_interval", PoolOptKind::Double),
        (1, "scrub_max_interval", PoolOptKind::Double),
        (2, "deep_scrub_interval", PoolOptKind::Double),
        (3, "recovery_priority", PoolOptKind::Int),
        (4, "recovery_op_priority", PoolOptKind::Int),
        (5, "scrub_priority", PoolOptKind::Int),
        (6, "compression_mode", PoolOptKind::Str),
        (7, "compression_algorithm", PoolOptKind::Str),
        (8, "compression_required_ratio", PoolOptKind::Double),
        (9, "compression_max_blob_size", PoolOptKind::Int),
        (10, "compression_min_blob_size", PoolOptKind::Int),
        (11, "csum_type", PoolOptKind::Int),
        (12, "csum_max_block", PoolOptKind::Int),
        (13, "csum_min_block", PoolOptKind::Int),
        (14, "fingerprint_algorithm", PoolOptKind::Str),
        (15, "pg_num_min", PoolOptKind::Int),
        (16, "target_size_bytes", PoolOptKind::Int),
        (17, "target_size_ratio", PoolOptKind::Double),
        (18, "pg_autoscale_bias", PoolOptKind::Double),
        (19, "read_lease_interval", PoolOptKind::Double),
        (20, "dedup_tier", PoolOptKind::Int),
        (21, "dedup_chunk_algorithm", PoolOptKind::Str),
        (22, "dedup_cdc_chunk_size", PoolOptKind::Int),
        (23, "pg_num_max", PoolOptKind::Int),
        (24, "read_ratio", PoolOptKind::Int),
        (25, "pct_update_delay", PoolOptKind::Int),
    ];

    /// Key and kind of the option with this name.
    #[must_use]
    pub fn key(name: &str) -> Option<(i32, PoolOptKind)> {
        Self::KEYS.iter().find(|k| k.1 == name).map(|k| (k.0, k.2))
    }

    /// The value of the option with this name, when it is set.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&PoolOpt> {
        self.0.get(&Self::key(name)?.0)
    }

    /// Sets the option with this name; `None` when there is no such option.
    pub fn set(&mut self, name: &str, value: PoolOpt) -> Option<()> {
        self.0.insert(Self::key(name)?.0, value);
        Some(())
    }

    /// Unsets the option with this name.
    pub fn unset(&mut self, name: &str) {
        if let Some((key, _)) = Self::key(name) {
            self.0.remove(&key);
        }
    }
}

impl Denc for PoolOpts {
    fn encode(&self, w: &mut Writer) {
        let version = if w.has(Features::SERVER_NAUTILUS) { 2 } else { 1 };
        w.framed(version, 1, |w| {
            w.seq(&self.0, |w, (key, value)| {
                w.i32(*key);
                match value {
                    PoolOpt::Str(s) => {
                        w.i32(0);
                        w.str(s);
                    }
                    PoolOpt::Int(i) => {
                        w.i32(1);
                        if version >= 2 { w.i64(*i) } else { w.i32(*i as i32) }
                    }
                    PoolOpt::Double(d) => {
                        w.i32(2);
                        w.f64(*d);
                    }
                }
            });
        });
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("pool_opts_t", 2, |r, v| {
            let opts = r.seq(|r| {
                let (key, kind) = (r.i32()?, r.i32()?);
                let value = match kind {
                    0 => PoolOpt::Str(r.string()?),
                    1 if v >= 2 => PoolOpt::Int(r.i64()?),
                    1 => PoolOpt::Int(i64::from(r.i32()?)),
                    2 => PoolOpt::Double(r.f64()?),
                    _ => {
                        return Err(DecodeError::Invalid {
                            what: "pool_opts_t",
                            rule: "a value is a string, an integer or a double",
                        });
                    }
                };
                Ok((key, value))
            })?;
            Ok(Self(opts.into_iter().collect()))
        })
    }
}

plain! {
    /// Where the copies of a stretch pool must lie before it serves.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    PeeringCrush {
        /// Buckets of the barrier type that must be up; 0 in ordinary pools.
        bucket_count: u32,
        /// Buckets over which copies are spread.
        bucket_target: u32,
        /// Type of those buckets.
        bucket_barrier: u32,
        /// A bucket that must take part; `0x7fffffff` for none.
        mandatory_member: i32,
    }
}

/// A set of shards, 0 to 127. The peer's `shard_id_set`: two 64-bit words, low first, each
/// as a varint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ShardSet(pub u128);

impl ShardSet {
    /// Whether `shard` is in it.
    #[must_use]
    pub const fn contains(self, shard: u8) -> bool {
        shard < 128 && self.0 >> shard & 1 == 1
    }
}

impl Denc for ShardSet {
    fn encode(&self, w: &mut Writer) {
        for mut word in [self.0 as u64, (self.0 >> 64) as u64] {
            while word >= 0x80 {
                w.u8(word as u8 | 0x80);
                word >>= 7;
            }
            w.u8(word as u8);
        }
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let mut varint = || {
            let (mut word, mut shift) = (0u64, 0);
            loop {
                let byte = r.u8()?;
                if shift < 64 {
                    word |= u64::from(byte & 0x7f) << shift;
                }
                shift += 7;
                if byte & 0x80 == 0 {
                    return Ok(word);
                }
                if shift >= 70 {
                    return Err(DecodeError::Invalid {
                        what: "shard_id_set",
                        rule: "a varint has at most ten bytes",
                    });
                }
            }
        };
        let (low, high) = (varint()?, varint()?);
        Ok(Self(u128::from(low) | u128::from(high) << 64))
    }
}

/// A pool. The peer's `pg_pool_t`.
///
/// Wire: compat 5; v32 for peers with SERVER_TENTACLE; else 29, or 30 for stretch pools;
/// 27 without NAUTILUS, 26 without MIMIC, 24 without LUMINOUS, 21 without
/// NEW_OSDOP_ENCODING. Read from version 21 on.
/// Source: `pg_pool_t::encode`; corpus of four releases.
#[derive(Clone, Debug, PartialEq)]
pub struct PgPool {
    /// Replicated or erasure-coded.
    pub kind: PoolKind,
    /// Copies, or chunks.
    pub size: u8,
    /// The CRUSH rule that places it.
    pub crush_rule: u8,
    /// How names are hashed; 2 is rjenkins.
    pub object_hash: u8,
    /// PGs.
    pub pg_num: u32,
    /// PGs as placement counts them.
    pub pgp_num: u32,
    /// Epoch of the last change to this struct.
    pub last_change: Epoch,
    /// The newest snapshot id handed out.
    pub snap_seq: SnapId,
    /// Epoch in which `snap_seq` changed last.
    pub snap_epoch: Epoch,
    /// Snapshots of the whole pool.
    pub snaps: BTreeMap<SnapId, PoolSnapInfo>,
    /// Deleted snapshots, as before release 14; only [`Self::snap_seq`]'s companion since.
    pub removed_snaps: SnapIntervals,
    /// An owner's number, long without meaning.
    pub auid: u64,
    /// Flags.
    pub flags: PoolFlags,
    /// Copies that must be there before the pool serves.
    pub min_size: u8,
    /// Most bytes; 0 is no limit.
    pub quota_max_bytes: u64,
    /// Most objects; 0 is no limit.
    pub quota_max_objects: u64,
    /// Pools that cache this one.
    pub tiers: BTreeSet<u64>,
    /// The pool that this one caches; -1 for none.
    pub tier_of: i64,
    /// How this tier caches.
    pub cache_mode: u8,
    /// Tier that reads go to; -1 for none.
    pub read_tier: i64,
    /// Tier that writes go to; -1 for none.
    pub write_tier: i64,
    /// Without meaning.
    pub properties: BTreeMap<String, String>,
    /// How hits are recorded.
    pub hit_set_params: HitSetParams,
    /// Seconds per hit set.
    pub hit_set_period: u32,
    /// Hit sets kept.
    pub hit_set_count: u32,
    /// Bytes of one stripe of an erasure-coded object; 0 in replicated pools.
    pub stripe_width: u32,
    /// Flush and evict beyond so many bytes.
    pub target_max_bytes: u64,
    /// Flush and evict beyond so many objects.
    pub target_max_objects: u64,
    /// Millionths.
    pub cache_target_dirty_ratio_micro: u32,
    /// Millionths.
    pub cache_target_full_ratio_micro: u32,
    /// Seconds.
    pub cache_min_flush_age: u32,
    /// Seconds.
    pub cache_min_evict_age: u32,
    /// Name of the erasure-code profile; empty in replicated pools.
    pub erasure_code_profile: String,
    /// As [`Self::last_force_op_resend`], for clients before release 12.
    pub last_force_op_resend_preluminous: Epoch,
    /// Hit sets an object must be in to be promoted on read.
    pub min_read_recency_for_promote: u32,
    /// Objects expected; 0 is unknown.
    pub expected_num_objects: u64,
    /// Millionths.
    pub cache_target_dirty_high_ratio_micro: u32,
    /// Hit sets an object must be in to be promoted on write.
    pub min_write_recency_for_promote: u32,
    /// Hit sets are named by UTC.
    pub use_gmt_hitset: bool,
    /// Reads of erasure-coded objects ask all shards.
    pub fast_read: bool,
    /// Percent per hit set.
    pub hit_set_grade_decay_rate: u32,
    /// Hit sets searched.
    pub hit_set_search_last_n: u32,
    /// Options.
    pub opts: PoolOpts,
    /// As [`Self::last_force_op_resend`], for clients before release 14.
    pub last_force_op_resend_prenautilus: Epoch,
    /// What the pool is used for, by application.
    pub application_metadata: BTreeMap<String, BTreeMap<String, String>>,
    /// When it was created.
    pub create_time: UTime,
    /// Where `pg_num` goes, step by step.
    pub pg_num_target: u32,
    /// Where `pgp_num` goes, step by step.
    pub pgp_num_target: u32,
    /// `pg_num` once the current merge is done.
    pub pg_num_pending: u32,
    /// Operations sent in an earlier epoch must be sent again.
    pub last_force_op_resend: Epoch,
    /// 0 off, 1 warn, 2 on.
    pub pg_autoscale_mode: u8,
    /// The last merge.
    pub last_pg_merge_meta: PgMergeMeta,
    /// Stretch rules; `None` in ordinary pools.
    pub peering_crush: Option<PeeringCrush>,
    /// Shards that never are primary (erasure coding with optimizations).
    pub nonprimary_shards: ShardSet,
}

impl Default for PgPool {
    /// What the peer's constructor gives.
    fn default() -> Self {
        Self {
            kind: PoolKind::default(),
            size: 0,
            crush_rule: 0,
            object_hash: 2,
            pg_num: 0,
            pgp_num: 0,
            last_change: Epoch(0),
            snap_seq: SnapId(0),
            snap_epoch: Epoch(0),
            snaps: BTreeMap::new(),
            removed_snaps: SnapIntervals::default(),
            auid: 0,
            flags: PoolFlags::default(),
            min_size: 0,
            quota_max_bytes: 0,
            quota_max_objects: 0,
            tiers: BTreeSet::new(),
            tier_of: -1,
            cache_mode: 0,
            read_tier: -1,
            write_tier: -1,
            properties: BTreeMap::new(),
            hit_set_params: HitSetParams::default(),
            hit_set_period: 0,
            hit_set_count: 0,
            stripe_width: 0,
            target_max_bytes: 0,
            target_max_objects: 0,
            cache_target_dirty_ratio_micro: 0,
            cache_target_full_ratio_micro: 0,
            cache_min_flush_age: 0,
            cache_min_evict_age: 0,
            erasure_code_profile: String::new(),
            last_force_op_resend_preluminous: Epoch(0),
            min_read_recency_for_promote: 0,
            expected_num_objects: 0,
            cache_target_dirty_high_ratio_micro: 0,
            min_write_recency_for_promote: 0,
            use_gmt_hitset: true,
            fast_read: false,
            hit_set_grade_decay_rate: 0,
            hit_set_search_last_n: 0,
            opts: PoolOpts::default(),
            last_force_op_resend_prenautilus: Epoch(0),
            application_metadata: BTreeMap::new(),
            create_time: UTime::ZERO,
            pg_num_target: 0,
            pgp_num_target: 0,
            pg_num_pending: 0,
            last_force_op_resend: Epoch(0),
            pg_autoscale_mode: 0,
            last_pg_merge_meta: PgMergeMeta::default(),
            peering_crush: None,
            nonprimary_shards: ShardSet::default(),
        }
    }
}

impl PgPool {
    /// A pool as `ceph osd pool create` makes it, flags and options aside that the
    /// monitor's configuration adds.
    #[must_use]
    pub fn new(kind: PoolKind, size: u8, min_size: u8, crush_rule: u8, pg_num: u32) -> Self {
        Self {
            kind,
            size,
            min_size,
            crush_rule,
            pg_num,
            pgp_num: pg_num,
            pg_num_target: pg_num,
            pgp_num_target: pg_num,
            pg_num_pending: pg_num,
            flags: PoolFlags(PoolFlags::HASHPSPOOL.0 | PoolFlags::CREATING.0),
            cache_target_dirty_ratio_micro: 400_000,
            cache_target_dirty_high_ratio_micro: 600_000,
            cache_target_full_ratio_micro: 800_000,
            pg_autoscale_mode: 2,
            ..Self::default()
        }
    }

    /// Whether a flag is set.
    #[must_use]
    pub const fn has_flag(&self, flag: PoolFlags) -> bool {
        self.flags.has(flag)
    }

    /// Whether it keeps whole copies.
    #[must_use]
    pub fn is_replicated(&self) -> bool {
        self.kind == PoolKind::REPLICATED
    }

    /// Whether it keeps chunks.
    #[must_use]
    pub fn is_erasure(&self) -> bool {
        self.kind == PoolKind::ERASURE
    }

    /// Whether a hole in a PG's set stays a hole (erasure coding) instead of closing up.
    #[must_use]
    pub fn can_shift_osds(&self) -> bool {
        self.is_replicated()
    }

    /// Whether it caches another pool.
    #[must_use]
    pub const fn is_tier(&self) -> bool {
        self.tier_of >= 0
    }

    /// Whether its clients make snapshots of their own.
    #[must_use]
    pub fn is_unmanaged_snaps_mode(&self) -> bool {
        self.has_flag(PoolFlags::SELFMANAGED_SNAPS)
    }

    /// Whether it has snapshots as a whole.
    #[must_use]
    pub fn is_pool_snaps_mode(&self) -> bool {
        self.has_flag(PoolFlags::POOL_SNAPS)
    }

    /// The PG that holds objects with this hash.
    #[must_use]
    pub fn raw_pg_to_pg(&self, pool: PoolId, hash: u32) -> PgId {
        PgId { pool, ps: stable_mod(hash, self.pg_num) }
    }

    /// The snapshot of the whole pool with this name.
    #[must_use]
    pub fn snap_by_name(&self, name: &str) -> Option<SnapId> {
        self.snaps.iter().find(|(_, s)| s.name == name).map(|(id, _)| *id)
    }

    /// Makes clients send again what they sent before `epoch`.
    pub const fn set_last_force_op_resend(&mut self, epoch: Epoch) {
        self.last_force_op_resend = epoch;
        self.last_force_op_resend_prenautilus = epoch;
        self.last_force_op_resend_preluminous = epoch;
    }

    fn version_for(&self, features: Features) -> u8 {
        if !features.has(Features::NEW_OSDOP_ENCODING) {
            21
        } else if !features.has(Features::SERVER_LUMINOUS) {
            24
        } else if !features.has(Features::SERVER_MIMIC) {
            26
        } else if !features.has(Features::SERVER_NAUTILUS) {
            27
        } else if features.has(Features::SERVER_TENTACLE) {
            32
        } else if self.peering_crush.is_some() {
            30
        } else {
            29
        }
    }
}

impl Denc for PgPool {
    fn encode(&self, w: &mut Writer) {
        let v = self.version_for(w.features());
        w.framed(v, 5, |w| {
            w.u8(self.kind.0);
            w.u8(self.size);
            w.u8(self.crush_rule);
            w.u8(self.object_hash);
            w.u32(self.pg_num);
            w.u32(self.pgp_num);
            w.u32(0); // localized PGs, long gone
            w.u32(0);
            self.last_change.encode(w);
            self.snap_seq.encode(w);
            self.snap_epoch.encode(w);
            self.snaps.encode(w);
            self.removed_snaps.encode(w);
            w.u64(self.auid);
            let mut flags = self.flags;
            if v < 27 {
                flags.set(PoolFlags::SELFMANAGED_SNAPS, false);
                flags.set(PoolFlags::POOL_SNAPS, false);
                flags.set(PoolFlags::CREATING, false);
            }
            flags.encode(w);
            w.u32(0); // crash replay interval
            w.u8(self.min_size);
            w.u64(self.quota_max_bytes);
            w.u64(self.quota_max_objects);
            self.tiers.encode(w);
            w.i64(self.tier_of);
            w.u8(self.cache_mode);
            w.i64(self.read_tier);
            w.i64(self.write_tier);
            self.properties.encode(w);
            self.hit_set_params.encode(w);
            w.u32(self.hit_set_period);
            w.u32(self.hit_set_count);
            w.u32(self.stripe_width);
            w.u64(self.target_max_bytes);
            w.u64(self.target_max_objects);
            w.u32(self.cache_target_dirty_ratio_micro);
            w.u32(self.cache_target_full_ratio_micro);
            w.u32(self.cache_min_flush_age);
            w.u32(self.cache_min_evict_age);
            w.str(&self.erasure_code_profile);
            self.last_force_op_resend_preluminous.encode(w);
            w.u32(self.min_read_recency_for_promote);
            w.u64(self.expected_num_objects);
            w.u32(self.cache_target_dirty_high_ratio_micro);
            w.u32(self.min_write_recency_for_promote);
            w.bool(self.use_gmt_hitset);
            if v >= 22 {
                w.bool(self.fast_read);
            }
            if v >= 23 {
                w.u32(self.hit_set_grade_decay_rate);
                w.u32(self.hit_set_search_last_n);
            }
            if v >= 24 {
                self.opts.encode(w);
            }
            if v >= 25 {
                self.last_force_op_resend_prenautilus.encode(w);
            }
            if v >= 26 {
                self.application_metadata.encode(w);
            }
            if v >= 27 {
                self.create_time.encode(w);
            }
            if v >= 28 {
                w.u32(self.pg_num_target);
                w.u32(self.pgp_num_target);
                w.u32(self.pg_num_pending);
                w.u32(0); // were the last merge's epochs in 14.2.0
                w.u32(0);
                self.last_force_op_resend.encode(w);
                w.u8(self.pg_autoscale_mode);
            }
            if v >= 29 {
                self.last_pg_merge_meta.encode(w);
            }
            if v == 30 {
                self.peering_crush.unwrap_or_default().encode(w);
            }
            if v >= 31 {
                self.peering_crush.encode(w);
            }
            if v >= 32 {
                self.nonprimary_shards.encode(w);
            }
        });
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("pg_pool_t", 32, |r, v| {
            r.require(v >= 21, "pools are read from version 21 on")?;
            let mut p = Self {
                kind: PoolKind(r.u8()?),
                size: r.u8()?,
                crush_rule: r.u8()?,
                object_hash: r.u8()?,
                pg_num: r.u32()?,
                pgp_num: r.u32()?,
                ..Self::default()
            };
            r.skip(8)?;
            p.last_change = Denc::decode(r)?;
            p.snap_seq = Denc::decode(r)?;
            p.snap_epoch = Denc::decode(r)?;
            p.snaps = Denc::decode(r)?;
            p.removed_snaps = Denc::decode(r)?;
            p.auid = r.u64()?;
            p.flags = Denc::decode(r)?;
            r.skip(4)?;
            p.min_size = r.u8()?;
            p.quota_max_bytes = r.u64()?;
            p.quota_max_objects = r.u64()?;
            p.tiers = Denc::decode(r)?;
            p.tier_of = r.i64()?;
            p.cache_mode = r.u8()?;
            p.read_tier = r.i64()?;
            p.write_tier = r.i64()?;
            p.properties = Denc::decode(r)?;
            p.hit_set_params = Denc::decode(r)?;
            p.hit_set_period = r.u32()?;
            p.hit_set_count = r.u32()?;
            p.stripe_width = r.u32()?;
            p.target_max_bytes = r.u64()?;
            p.target_max_objects = r.u64()?;
            p.cache_target_dirty_ratio_micro = r.u32()?;
            p.cache_target_full_ratio_micro = r.u32()?;
            p.cache_min_flush_age = r.u32()?;
            p.cache_min_evict_age = r.u32()?;
            p.erasure_code_profile = r.string()?;
            p.last_force_op_resend_preluminous = Denc::decode(r)?;
            p.min_read_recency_for_promote = r.u32()?;
            p.expected_num_objects = r.u64()?;
            p.cache_target_dirty_high_ratio_micro = r.u32()?;
            p.min_write_recency_for_promote = r.u32()?;
            p.use_gmt_hitset = r.bool()?;
            if v >= 22 {
                p.fast_read = r.bool()?;
            }
            if v >= 23 {
                p.hit_set_grade_decay_rate = r.u32()?;
                p.hit_set_search_last_n = r.u32()?;
            }
            if v >= 24 {
                p.opts = Denc::decode(r)?;
            }
            p.last_force_op_resend_prenautilus =
                if v >= 25 { Denc::decode(r)? } else { p.last_force_op_resend_preluminous };
            if v >= 26 {
                p.application_metadata = Denc::decode(r)?;
            }
            if v >= 27 {
                p.create_time = Denc::decode(r)?;
            }
            if v >= 28 {
                p.pg_num_target = r.u32()?;
                p.pgp_num_target = r.u32()?;
                p.pg_num_pending = r.u32()?;
                r.skip(8)?;
                p.last_force_op_resend = Denc::decode(r)?;
                p.pg_autoscale_mode = r.u8()?;
            } else {
                p.pg_num_target = p.pg_num;
                p.pgp_num_target = p.pgp_num;
                p.pg_num_pending = p.pg_num;
                p.last_force_op_resend = p.last_force_op_resend_prenautilus;
            }
            if v >= 29 {
                p.last_pg_merge_meta = Denc::decode(r)?;
            }
            if v == 30 {
                p.peering_crush = Some(Denc::decode(r)?);
            }
            if v >= 31 {
                p.peering_crush = Denc::decode(r)?;
            }
            if v >= 32 {
                p.nonprimary_shards = Denc::decode(r)?;
            }
            Ok(p)
        })
    }
}
