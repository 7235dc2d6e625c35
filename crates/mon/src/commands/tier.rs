//! `osd tier ...`: which pool is the cache of which. The relation is kept for clients that
//! ask for it; OSDs here move nothing between pools, so no overlay can be put in place.

use maps::PgPool;
use types::{PoolId, SnapId};

use super::{EBUSY, EINVAL, ENOTEMPTY, EOPNOTSUPP, EPERM, Fail, Run, change, fail, ok};
use crate::CommandCtx;

const MODES: [&str; 7] =
    ["none", "writeback", "forward", "readonly", "readforward", "readproxy", "proxy"];

pub(super) fn run(ctx: &mut CommandCtx<'_>, what: &str) -> Run {
    match what {
        "add" => add(ctx),
        "rm" | "remove" => remove(ctx),
        "cache-mode" => cache_mode(ctx),
        "rm-overlay" | "remove-overlay" => rm_overlay(ctx),
        "set-overlay" => {
            ctx.need_pool("pool")?;
            ctx.need_pool("overlaypool")?;
            Err(fail(EOPNOTSUPP, "cache tiers are not supported by this cluster"))
        }
        _ => Err(fail(EINVAL, "command not known")),
    }
}

/// Base and cache of a command: id, name and pool of each.
type Pair = ((PoolId, String, PgPool), (PoolId, String, PgPool));

fn pair(ctx: &CommandCtx<'_>) -> Result<Pair, Fail> {
    let one = |arg: &str| -> Result<(PoolId, String, PgPool), Fail> {
        let (id, pool) = ctx.need_pool(arg)?;
        Ok((id, ctx.cmd.str_or_empty(arg)?.to_owned(), pool.clone()))
    };
    Ok((one("pool")?, one("tierpool")?))
}

fn add(ctx: &mut CommandCtx<'_>) -> Run {
    let ((id, name, mut base), (tier_id, tier_name, mut tier)) = pair(ctx)?;
    let done = format!("pool '{tier_name}' is now (or already was) a tier of '{name}'");
    if id == tier_id {
        return Err(fail(EINVAL, format!("tier pool '{tier_name}' is the base pool itself")));
    }
    if base.tiers.contains(&(tier_id.0 as u64)) {
        return ok(done);
    }
    if base.is_tier() {
        return Err(fail(EINVAL, format!("pool '{name}' is already a tier of another pool")));
    }
    if tier.is_tier() {
        let of = ctx.osdmap().pool_name(PoolId(tier.tier_of)).unwrap_or_default();
        return Err(fail(EINVAL, format!("tier pool '{tier_name}' is already a tier of '{of}'")));
    }
    if !tier.tiers.is_empty() {
        return Err(fail(EINVAL, format!("tier pool '{tier_name}' has tier(s) already")));
    }
    if tier.is_erasure() {
        let why = format!("tier pool '{tier_name}' is an ec pool, which cannot be a tier");
        return Err(fail(EOPNOTSUPP, why));
    }
    let force = ctx.cmd.flag("force_nonempty")
        || ctx.cmd.str("force_nonempty").is_ok_and(|text| text == Some("--force-nonempty"));
    let objects = super::df::pool_sum(ctx, tier_id).num_objects;
    if objects != 0 && !force {
        let why = format!("tier pool '{tier_name}' is not empty; --force-nonempty to force");
        return Err(fail(ENOTEMPTY, why));
    }
    if tier.is_pool_snaps_mode() || tier.is_unmanaged_snaps_mode() || tier.snap_seq != SnapId(0) {
        let why = format!(
            "tier pool '{tier_name}' has snapshot state; it cannot be added as a tier without breaking the pool"
        );
        return Err(fail(ENOTEMPTY, why));
    }
    let mut inc = ctx.osd_change();
    base.tiers.insert(tier_id.0 as u64);
    base.snap_epoch = inc.epoch;
    base.last_change = inc.epoch;
    tier.tier_of = id.0;
    tier.last_change = inc.epoch;
    inc.new_pools.insert(id, base);
    inc.new_pools.insert(tier_id, tier);
    change(inc, done)
}

fn remove(ctx: &mut CommandCtx<'_>) -> Run {
    let ((id, name, mut base), (tier_id, tier_name, mut tier)) = pair(ctx)?;
    let done = format!("pool '{tier_name}' is now (or already was) not a tier of '{name}'");
    if !base.tiers.contains(&(tier_id.0 as u64)) {
        return ok(done);
    }
    if base.read_tier == tier_id.0 || base.write_tier == tier_id.0 {
        let why = format!(
            "tier pool '{tier_name}' is the overlay for '{name}'; please remove-overlay first"
        );
        return Err(fail(EBUSY, why));
    }
    let mut inc = ctx.osd_change();
    base.tiers.remove(&(tier_id.0 as u64));
    base.last_change = inc.epoch;
    tier.tier_of = -1;
    tier.cache_mode = 0;
    tier.last_change = inc.epoch;
    inc.new_pools.insert(id, base);
    inc.new_pools.insert(tier_id, tier);
    change(inc, done)
}

fn cache_mode(ctx: &mut CommandCtx<'_>) -> Run {
    let name = ctx.cmd.str_or_empty("pool")?.to_owned();
    let (id, pool) = ctx.need_pool("pool")?;
    let mut pool = pool.clone();
    if !pool.is_tier() {
        return Err(fail(EINVAL, format!("pool '{name}' is not a tier")));
    }
    let mode = ctx.cmd.str_or_empty("mode")?;
    let Some(number) = MODES.iter().position(|m| *m == mode) else {
        return Err(fail(EINVAL, format!("'{mode}' is not a valid cache mode")));
    };
    let sure = ctx.cmd.flag("yes_i_really_mean_it");
    if !sure && !matches!(mode, "none" | "writeback" | "proxy" | "readproxy") {
        let why = format!(
            "'{mode}' is not a well-supported cache mode and may corrupt your data.  pass --yes-i-really-mean-it to force."
        );
        return Err(fail(EPERM, why));
    }
    let mut inc = ctx.osd_change();
    pool.cache_mode = number as u8;
    pool.last_change = inc.epoch;
    inc.new_pools.insert(id, pool);
    change(inc, format!("set cache-mode for pool '{name}' to {mode}"))
}

fn rm_overlay(ctx: &mut CommandCtx<'_>) -> Run {
    let name = ctx.cmd.str_or_empty("pool")?.to_owned();
    let (id, pool) = ctx.need_pool("pool")?;
    let done = format!("there is now (or already was) no overlay for '{name}'");
    if pool.read_tier < 0 && pool.write_tier < 0 {
        return ok(done);
    }
    let mut pool = pool.clone();
    let mut inc = ctx.osd_change();
    pool.read_tier = -1;
    pool.write_tier = -1;
    pool.last_change = inc.epoch;
    pool.set_last_force_op_resend(inc.epoch);
    inc.new_pools.insert(id, pool);
    change(inc, done)
}
