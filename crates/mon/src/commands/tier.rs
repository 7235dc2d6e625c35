//! `osd tier ...`: which pool is the cache of which, and how clients are led to it.
//!
//! Checks and sentences are the peer's (`OSDMonitor::{_check_become_tier,
//! _check_remove_tier, prepare_command_impl}`). What a tier takes over from its base is
//! added when the epoch ends (`osdinc`).

use conf::key;
use maps::{CacheMode, HitSetParams, Incremental, OsdMap, PgPool, PoolFlags};
use types::{PoolId, SnapId};

use super::{EBUSY, EINVAL, ENOTEMPTY, EOPNOTSUPP, EPERM, Fail, Run, change, fail, ok};
use crate::CommandCtx;

pub(super) fn run(ctx: &mut CommandCtx<'_>, what: &str) -> Run {
    match what {
        "add" => add(ctx),
        "add-cache" => add_cache(ctx),
        "rm" | "remove" => remove(ctx),
        "cache-mode" => cache_mode(ctx),
        "set-overlay" => set_overlay(ctx),
        "rm-overlay" | "remove-overlay" => rm_overlay(ctx),
        _ => Err(fail(EINVAL, "command not known")),
    }
}

/// A pool of a command.
struct Named {
    id: PoolId,
    name: String,
    pool: PgPool,
}

fn named(ctx: &CommandCtx<'_>, arg: &str) -> Result<Named, Fail> {
    let (id, pool) = ctx.need_pool(arg)?;
    Ok(Named { id, name: ctx.cmd.str_or_empty(arg)?.to_owned(), pool: pool.clone() })
}

fn name_of(map: &OsdMap, id: i64) -> &str {
    map.pool_name(PoolId(id)).unwrap_or_default()
}

fn used_by_fs(ctx: &CommandCtx<'_>, id: PoolId) -> bool {
    let uses = |m: &maps::MdsMap| m.metadata_pool == id || m.data_pools.contains(&id);
    ctx.state.fsmap.filesystems.iter().any(|fs| uses(&fs.mds_map))
}

/// Whether `tier` may become a tier of `base`; `Ok(false)` when it is already.
fn may_become_tier(ctx: &CommandCtx<'_>, base: &Named, tier: &Named) -> Result<bool, Fail> {
    let map = ctx.osdmap();
    if used_by_fs(ctx, tier.id) {
        return Err(fail(EBUSY, format!("pool '{}' is in use by CephFS", tier.name)));
    }
    if base.pool.tiers.contains(&(tier.id.0 as u64)) {
        return Ok(false);
    }
    if base.pool.is_tier() {
        let of = name_of(map, base.pool.tier_of);
        return Err(fail(
            EINVAL,
            format!(
                "pool '{}' is already a tier of '{of}', multiple tiers are not yet supported.",
                base.name
            ),
        ));
    }
    if !tier.pool.tiers.is_empty() {
        let tiers = tier.pool.tiers.iter();
        let tiers: String = tiers.map(|t| format!("'{}',", name_of(map, *t as i64))).collect();
        return Err(fail(
            EINVAL,
            format!(
                "pool '{}' has following tier(s) already:{tiers} multiple tiers are not yet supported.",
                tier.name
            ),
        ));
    }
    if tier.pool.is_tier() {
        let of = name_of(map, tier.pool.tier_of);
        let why = format!("tier pool '{}' is already a tier of '{of}'", tier.name);
        return Err(fail(EINVAL, why));
    }
    // The peer has no word for it: CRUSH and clients would go in a circle.
    if base.id == tier.id {
        return Err(fail(EINVAL, format!("pool '{}' cannot be a tier of itself", base.name)));
    }
    Ok(true)
}

fn refuse_erasure(tier: &Named) -> Result<(), Fail> {
    if !tier.pool.is_erasure() {
        return Ok(());
    }
    let why = format!("tier pool '{}' is an ec pool, which cannot be a tier", tier.name);
    Err(fail(EOPNOTSUPP, why))
}

fn add(ctx: &mut CommandCtx<'_>) -> Run {
    let (mut base, mut tier) = (named(ctx, "pool")?, named(ctx, "tierpool")?);
    let done = format!("pool '{}' is now (or already was) a tier of '{}'", tier.name, base.name);
    if !may_become_tier(ctx, &base, &tier)? {
        return ok(done);
    }
    let force = ctx.cmd.flag("force_nonempty")
        || ctx.cmd.str("force_nonempty").is_ok_and(|text| text == Some("--force-nonempty"));
    if super::df::pool_sum(ctx, tier.id).num_objects != 0 && !force {
        let why = format!("tier pool '{}' is not empty; --force-nonempty to force", tier.name);
        return Err(fail(ENOTEMPTY, why));
    }
    refuse_erasure(&tier)?;
    let p = &tier.pool;
    let snaps = p.is_pool_snaps_mode() || p.is_unmanaged_snaps_mode() || p.snap_seq != SnapId(0);
    if snaps && !(force && ctx.option(key::MON_DEBUG_UNSAFE_ALLOW_TIER_WITH_NONEMPTY_SNAPS)) {
        return Err(fail(
            ENOTEMPTY,
            format!(
                "tier pool '{}' has snapshot state; it cannot be added as a tier without breaking the pool",
                tier.name
            ),
        ));
    }
    let mut inc = ctx.osd_change();
    join(&mut base, &mut tier, &inc);
    put(&mut inc, [base, tier]);
    change(inc, done)
}

/// What both pools say of each other.
fn join(base: &mut Named, tier: &mut Named, inc: &Incremental) {
    base.pool.tiers.insert(tier.id.0 as u64);
    base.pool.snap_epoch = inc.epoch; // the tier takes over what snapshots there are
    tier.pool.tier_of = base.id.0;
}

fn put(inc: &mut Incremental, pools: impl IntoIterator<Item = Named>) {
    for mut p in pools {
        p.pool.last_change = inc.epoch;
        inc.new_pools.insert(p.id, p.pool);
    }
}

fn add_cache(ctx: &mut CommandCtx<'_>) -> Run {
    let (mut base, mut tier) = (named(ctx, "pool")?, named(ctx, "tierpool")?);
    let done =
        format!("pool '{}' is now (or already was) a cache tier of '{}'", tier.name, base.name);
    if !may_become_tier(ctx, &base, &tier)? {
        return ok(done);
    }
    let size = ctx.cmd.need_int("size")?;
    let size = u64::try_from(size).map_err(|_| fail(EINVAL, "size is negative"))?;
    if super::df::pool_sum(ctx, tier.id).num_objects != 0 {
        return Err(fail(ENOTEMPTY, format!("tier pool '{}' is not empty", tier.name)));
    }
    refuse_erasure(&tier)?;
    let mode = ctx.option(key::OSD_TIER_DEFAULT_CACHE_MODE);
    let Some(mode) = CacheMode::from_name(&mode) else {
        let why = format!("osd tier cache default mode '{mode}' is not a valid cache mode");
        return Err(fail(EINVAL, why));
    };
    let kind = ctx.option(key::OSD_TIER_DEFAULT_CACHE_HIT_SET_TYPE);
    let hits = HitSetParams::from_name(&kind, default_fpp(ctx)).filter(HitSetParams::is_some);
    let Some(hits) = hits else {
        let why = format!("osd tier cache default hit set type '{kind}' is not a known type");
        return Err(fail(EINVAL, why));
    };
    let number = |key| u32::try_from(ctx.option(key)).unwrap_or(u32::MAX);
    let period = ctx.option(key::OSD_TIER_DEFAULT_CACHE_HIT_SET_PERIOD);
    let mut inc = ctx.osd_change();
    join(&mut base, &mut tier, &inc);
    lead_to(&mut base, tier.id.0, &inc);
    let p = &mut tier.pool;
    p.set_last_force_op_resend(inc.epoch);
    p.cache_mode = mode as u8;
    p.hit_set_params = hits;
    p.hit_set_count = number(key::OSD_TIER_DEFAULT_CACHE_HIT_SET_COUNT);
    p.hit_set_period = u32::try_from(period.as_secs()).unwrap_or(u32::MAX);
    p.min_read_recency_for_promote =
        number(key::OSD_TIER_DEFAULT_CACHE_MIN_READ_RECENCY_FOR_PROMOTE);
    p.min_write_recency_for_promote =
        number(key::OSD_TIER_DEFAULT_CACHE_MIN_WRITE_RECENCY_FOR_PROMOTE);
    p.hit_set_grade_decay_rate = number(key::OSD_TIER_DEFAULT_CACHE_HIT_SET_GRADE_DECAY_RATE);
    p.hit_set_search_last_n = number(key::OSD_TIER_DEFAULT_CACHE_HIT_SET_SEARCH_LAST_N);
    p.target_max_bytes = size;
    p.flags.set(PoolFlags::INCOMPLETE_CLONES, true);
    put(&mut inc, [base, tier]);
    change(inc, done)
}

/// Part of wrong answers of hit sets that nobody set.
pub(super) fn default_fpp(ctx: &CommandCtx<'_>) -> f64 {
    ctx.option(key::OSD_POOL_DEFAULT_HIT_SET_BLOOM_FPP)
}

/// Clients of `base` go to that pool from now on; -1 for the base itself.
fn lead_to(base: &mut Named, tier: i64, inc: &Incremental) {
    (base.pool.read_tier, base.pool.write_tier) = (tier, tier);
    base.pool.set_last_force_op_resend(inc.epoch);
}

/// Whether CephFS can do without the base's tier.
fn may_lose_tier(ctx: &CommandCtx<'_>, base: &Named, tier: Option<&PgPool>) -> Result<(), Fail> {
    if !used_by_fs(ctx, base.id) {
        return Ok(());
    }
    let name = &base.name;
    let overwrites = [PoolFlags::EC_OVERWRITES, PoolFlags::EC_OPTIMIZATIONS];
    if base.pool.is_erasure() && !overwrites.iter().any(|f| base.pool.has_flag(*f)) {
        return Err(fail(EBUSY, format!("pool '{name}' is in use by CephFS via its tier")));
    }
    if tier.is_some_and(|t| t.mode() == CacheMode::Writeback) {
        return Err(fail(
            EBUSY,
            format!(
                "pool '{name}' is in use by CephFS, and this tier is still in use as a writeback cache.  Change the cache mode and flush the cache before removing it"
            ),
        ));
    }
    Ok(())
}

fn remove(ctx: &mut CommandCtx<'_>) -> Run {
    let (mut base, mut tier) = (named(ctx, "pool")?, named(ctx, "tierpool")?);
    may_lose_tier(ctx, &base, Some(&tier.pool))?;
    let done =
        format!("pool '{}' is now (or already was) not a tier of '{}'", tier.name, base.name);
    if !base.pool.tiers.contains(&(tier.id.0 as u64)) {
        return ok(done);
    }
    if base.pool.read_tier == tier.id.0 || base.pool.write_tier == tier.id.0 {
        let why = format!(
            "tier pool '{}' is the overlay for '{}'; please remove-overlay first",
            tier.name, base.name
        );
        return Err(fail(EBUSY, why));
    }
    let mut inc = ctx.osd_change();
    base.pool.tiers.remove(&(tier.id.0 as u64));
    tier.pool.clear_tier();
    put(&mut inc, [base, tier]);
    change(inc, done)
}

fn cache_mode(ctx: &mut CommandCtx<'_>) -> Run {
    use CacheMode as M;
    let mut tier = named(ctx, "pool")?;
    let name = tier.name.clone();
    if !tier.pool.is_tier() {
        return Err(fail(EINVAL, format!("pool '{name}' is not a tier")));
    }
    let text = ctx.cmd.str_or_empty("mode")?;
    let Some(mode) = M::from_name(text) else {
        return Err(fail(EINVAL, format!("'{text}' is not a valid cache mode")));
    };
    if matches!(mode, M::Forward | M::Readforward) {
        return Err(fail(EPERM, format!("'{text}' is no longer a supported cache mode")));
    }
    let sure = ctx.cmd.flag("yes_i_really_mean_it");
    if !sure && !matches!(mode, M::None | M::Writeback | M::Proxy | M::Readproxy) {
        let why = format!(
            "'{text}' is not a well-supported cache mode and may corrupt your data.  pass --yes-i-really-mean-it to force."
        );
        return Err(fail(EPERM, why));
    }
    let done = format!("set cache-mode for pool '{name}' to {text}");
    let old = tier.pool.mode();
    if old == mode {
        return ok(done);
    }
    // What is dirty would be forgotten with the mode.
    let keeps_dirty = matches!(mode, M::Writeback | M::Proxy | M::Readproxy);
    if old == M::Writeback && !matches!(mode, M::Proxy | M::Readproxy) {
        let why = format!(
            "unable to set cache-mode '{text}' on a 'writeback' pool; only 'proxy','readproxy' allowed."
        );
        return Err(fail(EINVAL, why));
    }
    let dirty = super::df::pool_sum(ctx, tier.id).num_objects_dirty;
    if matches!(old, M::Readproxy | M::Proxy) && !keeps_dirty && dirty > 0 {
        let why =
            format!("unable to set cache-mode '{text}' on pool '{name}': dirty objects found");
        return Err(fail(EBUSY, why));
    }
    let mut inc = ctx.osd_change();
    tier.pool.cache_mode = mode as u8;
    // Also when it ends: a cache may have evicted clones.
    tier.pool.flags.set(PoolFlags::INCOMPLETE_CLONES, true);
    put(&mut inc, [tier]);
    change(inc, done)
}

fn set_overlay(ctx: &mut CommandCtx<'_>) -> Run {
    let (mut base, mut tier) = (named(ctx, "pool")?, named(ctx, "overlaypool")?);
    let (name, over) = (base.name.clone(), tier.name.clone());
    if !base.pool.tiers.contains(&(tier.id.0 as u64)) {
        let why = format!("tier pool '{over}' is not a tier of '{name}'");
        return Err(fail(EINVAL, why));
    }
    let mut done = format!("overlay for '{name}' is now (or already was) '{over}'");
    if base.pool.read_tier == tier.id.0 {
        return ok(done);
    }
    if base.pool.read_tier >= 0 {
        let has = name_of(ctx.osdmap(), base.pool.read_tier);
        let why = format!("pool '{name}' has overlay '{has}'; please remove-overlay first");
        return Err(fail(EINVAL, why));
    }
    if tier.pool.mode() == CacheMode::None {
        done += " (WARNING: overlay pool cache_mode is still NONE)";
    }
    let mut inc = ctx.osd_change();
    lead_to(&mut base, tier.id.0, &inc);
    tier.pool.set_last_force_op_resend(inc.epoch);
    put(&mut inc, [base, tier]);
    change(inc, done)
}

fn rm_overlay(ctx: &mut CommandCtx<'_>) -> Run {
    let mut base = named(ctx, "pool")?;
    let done = format!("there is now (or already was) no overlay for '{}'", base.name);
    if base.pool.read_tier < 0 {
        return ok(done);
    }
    may_lose_tier(ctx, &base, None)?;
    let mut inc = ctx.osd_change();
    for id in [base.pool.read_tier, base.pool.write_tier].map(PoolId) {
        if let Some(pool) = ctx.osdmap().pool(id) {
            let mut tier = Named { id, name: String::new(), pool: pool.clone() };
            tier.pool.set_last_force_op_resend(inc.epoch);
            put(&mut inc, [tier]);
        }
    }
    lead_to(&mut base, -1, &inc);
    put(&mut inc, [base]);
    change(inc, done)
}
