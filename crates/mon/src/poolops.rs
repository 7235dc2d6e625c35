//! Pools: making, deleting, snapshots. Shared by commands and messages.

use maps::{Incremental, PgPool, PoolFlags, PoolKind, PoolSnapInfo};
use types::{Epoch, PoolId, SnapId, UTime};

use crate::ClusterState;

/// What new pools get unless somebody says otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolDefaults {
    /// `osd_pool_default_size`
    pub size: u8,
    /// `osd_pool_default_min_size`; 0 is size minus half of it.
    pub min_size: u8,
    /// `osd_pool_default_pg_num`
    pub pg_num: u32,
    /// `osd_pool_default_pgp_num`; 0 is as `pg_num`.
    pub pgp_num: u32,
    /// `mon_max_pg_per_osd`
    pub max_pg_per_osd: u32,
    /// `osd_pool_default_pg_autoscale_mode`: 0 off, 1 warn, 2 on.
    pub autoscale: u8,
}

/// A pool to be made; what is `None` is the default.
#[derive(Clone, Debug, Default)]
pub struct NewPool<'a> {
    /// Its name.
    pub name: &'a str,
    /// Erasure-coded, with this profile; replicated without one.
    pub erasure: Option<Erasure<'a>>,
    /// PGs.
    pub pg_num: Option<u32>,
    /// PGs for placement.
    pub pgp_num: Option<u32>,
    /// Copies.
    pub size: Option<u8>,
    /// Copies needed to serve.
    pub min_size: Option<u8>,
    /// CRUSH rule.
    pub rule: Option<u8>,
    /// 0 off, 1 warn, 2 on.
    pub autoscale: Option<u8>,
    /// More flags.
    pub flags: u64,
}

/// The shape of an erasure-coded pool.
#[derive(Clone, Copy, Debug)]
pub struct Erasure<'a> {
    /// The profile's name.
    pub profile: &'a str,
    /// Data chunks.
    pub k: u8,
    /// Coding chunks.
    pub m: u8,
    /// Bytes of a chunk in a stripe.
    pub stripe_unit: u32,
}

/// Why a pool cannot be changed like that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolError {
    /// Positive.
    pub errno: i32,
    /// For the user.
    pub text: String,
}

impl std::fmt::Display for PoolError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

fn refuse<T>(errno: i32, text: impl Into<String>) -> Result<T, PoolError> {
    Err(PoolError { errno, text: text.into() })
}

const ENOENT: i32 = 2;
const EPERM: i32 = 1;
const EBUSY: i32 = 16;
const EEXIST: i32 = 17;
const EINVAL: i32 = 22;
const ERANGE: i32 = 34;

/// The most PGs of one pool; `mon_max_pool_pg_num`.
pub const POOL_PG_NUM_MAX: u32 = 65_536;

/// The first rule for replicated pools.
#[must_use]
pub fn default_rule(crush: &crush::CrushMap) -> Option<u8> {
    let mut rules = crush.rules().filter(|(_, r)| r.kind == crush::RULE_TYPE_REPLICATED);
    rules.next().and_then(|(id, _)| u8::try_from(id).ok())
}

/// Whether so many PGs more are too many for the OSDs there are. `without`: a pool whose
/// present PGs do not count.
///
/// # Errors
/// `ERANGE` with the peer's sentence.
pub fn check_pg_num(
    state: &ClusterState,
    without: Option<PoolId>,
    pg_num: u32,
    size: u8,
    max_pg_per_osd: u32,
) -> Result<(), PoolError> {
    let map = &state.osdmap;
    let have: u64 = map
        .pools
        .iter()
        .filter(|(id, _)| Some(**id) != without)
        .map(|(_, p)| u64::from(p.pg_num_target.max(p.pg_num)) * u64::from(p.size))
        .sum();
    let total = have + u64::from(pg_num) * u64::from(size);
    let (_, _, r#in) = map.osd_counts();
    let osds = (r#in as u64).max(3); // a small cluster is taken for one that will grow
    if total > u64::from(max_pg_per_osd) * osds {
        return refuse(
            ERANGE,
            format!(
                " pg_num {pg_num} size {size} for this pool would result in {} cumulative PGs per \
                 OSD ({total} total PG replicas on {osds} 'in' root OSDs by crush rule) which \
                 exceeds the mon_max_pg_per_osd value of {max_pg_per_osd}",
                total / osds
            ),
        );
    }
    Ok(())
}

/// The change that makes a pool. A pool of that name is no error here but `EEXIST`, which
/// callers may take for success.
///
/// # Errors
/// [`PoolError`] with the peer's errno.
pub fn plan_create(
    state: &ClusterState,
    now: UTime,
    wanted: &NewPool<'_>,
    defaults: &PoolDefaults,
) -> Result<Incremental, PoolError> {
    let map = &state.osdmap;
    if wanted.name.is_empty() {
        return refuse(EINVAL, "pool name may not be empty");
    }
    if map.pool_by_name(wanted.name).is_some() {
        return refuse(EEXIST, format!("pool '{}' already exists", wanted.name));
    }
    let crush = &map.crush;
    let rule = match wanted.rule {
        Some(rule) => rule,
        None => match default_rule(crush) {
            Some(rule) => rule,
            None => return refuse(EINVAL, "no suitable CRUSH rule exists"),
        },
    };
    let Some(found) = crush.rule(u32::from(rule)) else {
        return refuse(ENOENT, format!("specified rule {rule} doesn't exist"));
    };
    let replicated =
        matches!(found.kind, crush::RULE_TYPE_REPLICATED | crush::RULE_TYPE_MSR_FIRSTN);
    if replicated == wanted.erasure.is_some() {
        return refuse(EINVAL, format!("rule {rule} is not for pools of this type"));
    }
    let (kind, size, min_size) = match wanted.erasure {
        Some(e) => {
            let size = e.k + e.m;
            (PoolKind::ERASURE, size, e.k + u8::from(e.m > 1).min(e.m))
        }
        None => {
            let size = wanted.size.unwrap_or(defaults.size);
            let default_min =
                if defaults.min_size > 0 { defaults.min_size.min(size) } else { size - size / 2 };
            (PoolKind::REPLICATED, size, default_min)
        }
    };
    if size == 0 || size > 20 {
        return refuse(EINVAL, "pool size must be between 1 and 10");
    }
    let min_size = wanted.min_size.unwrap_or(min_size);
    let pg_num = wanted.pg_num.filter(|n| *n > 0).unwrap_or(defaults.pg_num);
    let pgp_default = if defaults.pgp_num > 0 { defaults.pgp_num.min(pg_num) } else { pg_num };
    let pgp_num = wanted.pgp_num.filter(|n| *n > 0).unwrap_or(pgp_default);
    if pg_num == 0 || pg_num > POOL_PG_NUM_MAX {
        return refuse(
            ERANGE,
            format!(
                "'pg_num' must be greater than 0 and less than or equal to {POOL_PG_NUM_MAX} (you may adjust 'mon max pool pg num' for higher values)"
            ),
        );
    }
    if pgp_num > pg_num {
        return refuse(
            ERANGE,
            "'pgp_num' must be greater than 0 and lower or equal than 'pg_num'".to_owned()
                + &format!(", which in this case is {pg_num}"),
        );
    }
    check_pg_num(state, None, pg_num, size, defaults.max_pg_per_osd)?;

    let mut inc = state.osd_change();
    let id = PoolId(i64::from(map.pool_max) + 1);
    let mut pool = PgPool::new(kind, size, min_size, rule, pg_num);
    pool.pgp_num = pgp_num;
    pool.pgp_num_target = pgp_num;
    pool.flags.set(PoolFlags::CREATING, false); // OSDs make PGs from the map at once
    pool.flags.0 |= wanted.flags;
    pool.last_change = inc.epoch;
    pool.create_time = now;
    pool.pg_autoscale_mode = wanted.autoscale.unwrap_or(defaults.autoscale);
    if let Some(e) = wanted.erasure {
        pool.erasure_code_profile = e.profile.to_owned();
        pool.stripe_width = u32::from(e.k) * e.stripe_unit;
    }
    inc.new_pool_max = Some(id.0);
    inc.new_pools.insert(id, pool);
    inc.new_pool_names.insert(id, wanted.name.to_owned());
    Ok(inc)
}

/// Gives a pool another number of PGs to go to. More come at once; fewer one by one, when each
/// may go; placement follows in steps.
pub fn aim_pg_num(pool: &mut PgPool, n: u32) {
    // Who set placement apart keeps it apart.
    if pool.pgp_num_target == pool.pg_num_target {
        pool.pgp_num_target = n;
    }
    pool.pgp_num_target = pool.pgp_num_target.min(n);
    pool.pg_num_target = n;
    pool.pg_num = pool.pg_num.max(n);
    if pool.pg_num <= n {
        pool.pg_num_pending = n;
    }
}

/// The change that deletes a pool and all in it.
///
/// # Errors
/// [`PoolError`] with the peer's errno.
pub fn plan_delete(state: &ClusterState, id: PoolId) -> Result<Incremental, PoolError> {
    let map = &state.osdmap;
    let Some(pool) = map.pool(id) else { return refuse(ENOENT, "pool does not exist") };
    let name = map.pool_name(id).unwrap_or_default();
    if pool.has_flag(PoolFlags::NODELETE) {
        return refuse(
            EPERM,
            format!(
                "pool deletion is disabled; you must unset nodelete flag for the pool first: \
                 {name}"
            ),
        );
    }
    if pool.tier_of >= 0 {
        return refuse(EBUSY, format!("pool '{name}' is a tier of another pool"));
    }
    if !pool.tiers.is_empty() {
        return refuse(EBUSY, format!("pool '{name}' has tiers"));
    }
    let mut inc = state.osd_change();
    inc.old_pools.insert(id);
    drop_rule(map, id, &mut inc);
    Ok(inc)
}

/// With the last erasure-coded pool of a CRUSH rule goes the rule, as with the peer: it was
/// most likely made along with the pool.
pub fn drop_rule(map: &maps::OsdMap, id: PoolId, inc: &mut Incremental) {
    let Some(pool) = map.pool(id).filter(|pool| pool.is_erasure()) else { return };
    let rule = pool.crush_rule;
    if map.pools.iter().any(|(other, p)| *other != id && p.crush_rule == rule) {
        return;
    }
    let mut crush = (**map.crush.map()).clone();
    if crush.remove_rule(u32::from(rule)).is_ok() {
        inc.crush = denc::Denc::to_bytes(&crush);
    }
}

/// Takes a snapshot of a whole pool.
pub fn add_snap(pool: &mut PgPool, name: &str, now: UTime, epoch: Epoch) -> SnapId {
    let id = SnapId(pool.snap_seq.0 + 1);
    pool.flags.set(PoolFlags::POOL_SNAPS, true);
    pool.snap_seq = id;
    pool.snap_epoch = epoch;
    pool.last_change = epoch;
    pool.snaps.insert(id, PoolSnapInfo { id, stamp: now, name: name.to_owned() });
    id
}

/// Removes a snapshot of a whole pool. The caller adds it to the change's
/// `new_removed_snaps`.
pub fn remove_snap(pool: &mut PgPool, snap: SnapId, epoch: Epoch) {
    pool.snaps.remove(&snap);
    pool.snap_seq = SnapId(pool.snap_seq.0 + 1);
    pool.snap_epoch = epoch;
    pool.last_change = epoch;
}

/// Hands out a snapshot id for a client's own use; the first of a pool is 2.
pub fn add_unmanaged_snap(pool: &mut PgPool, epoch: Epoch) -> SnapId {
    if pool.snap_seq == SnapId(0) {
        pool.snap_seq = SnapId(1);
    }
    pool.flags.set(PoolFlags::SELFMANAGED_SNAPS, true);
    pool.snap_seq = SnapId(pool.snap_seq.0 + 1);
    pool.snap_epoch = epoch;
    pool.last_change = epoch;
    pool.snap_seq
}
