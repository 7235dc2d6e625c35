//! `osd pool ...`: making, removing, naming, snapshots, quotas, applications.

use std::collections::BTreeMap;
use std::fmt::Write;

use ::crush::CrushMap;
use conf::key;
use maps::{Incremental, OsdMap, PgPool, PoolFlags, PoolKind, PoolOpt, PoolSnapInfo};
use types::{OsdId, PgId, PoolId, SnapId};

use super::{
    EBUSY, EEXIST, EINVAL, ENOENT, EPERM, ERANGE, Fail, Run, change, fail, ok, osd_dump, out, pg,
};
use crate::{CommandCtx, autoscale, poolops};

/// Applications of a pool.
const APPLICATIONS_MAX: usize = 4;
/// Characters of an application's name, and of a key or value.
const APPLICATION_CHARS_MAX: usize = 128;

pub(super) fn run(ctx: &mut CommandCtx<'_>, what: &str) -> Run {
    match what {
        "create" => create(ctx),
        "rm" | "delete" => remove(ctx),
        "rename" => rename(ctx),
        "ls" => ls(ctx),
        "stats" => super::df::pool_stats(ctx),
        "mksnap" => mksnap(ctx),
        "rmsnap" => rmsnap(ctx),
        "set-quota" => set_quota(ctx),
        "get-quota" => get_quota(ctx),
        "autoscale-status" => autoscale_status(ctx),
        "get noautoscale" => {
            let on = ctx.osdmap().has_flag(maps::OsdMapFlags::NOAUTOSCALE);
            ok(format!("noautoscale is {}", if on { "on" } else { "off" }))
        }
        "set noautoscale" | "unset noautoscale" => {
            let on = what.starts_with("set");
            let mut flags = ctx.osdmap().flags;
            flags.set(maps::OsdMapFlags::NOAUTOSCALE, on);
            let mut inc = ctx.osd_change();
            inc.new_flags = Some(flags);
            change(inc, format!("noautoscale is {}", if on { "set" } else { "unset" }))
        }
        "application enable" => application_enable(ctx),
        "application disable" => application_disable(ctx),
        "application set" => application_set(ctx),
        "application rm" => application_rm(ctx),
        "application get" => application_get(ctx),
        "scrub" | "deep-scrub" | "repair" => pg::scrub_pools(ctx, what),
        "force-recovery" | "force-backfill" | "cancel-force-recovery" | "cancel-force-backfill" => {
            pg::force_pools(ctx, what)
        }
        _ => Err(fail(EINVAL, format!("'osd pool {what}' is not supported by this cluster"))),
    }
}

fn create(ctx: &mut CommandCtx<'_>) -> Run {
    let name = ctx.cmd.str_or_empty("pool")?.to_owned();
    if name.is_empty() {
        return Err(fail(EINVAL, "(22) Invalid argument"));
    }
    if name.starts_with('.') && !ctx.cmd.flag("yes_i_really_mean_it") {
        // The peer refuses with success, too.
        return ok("pool names beginning with . are not allowed");
    }
    let kind = match ctx.cmd.str_or_empty("pool_type")? {
        "" | "replicated" => Some(PoolKind::REPLICATED),
        "erasure" => Some(PoolKind::ERASURE),
        _ => None,
    };
    let map = ctx.osdmap();
    if let Some(pool) = map.pool_by_name(&name).and_then(|id| map.pool(id)) {
        if kind != Some(pool.kind) {
            let asked = match ctx.cmd.str_or_empty("pool_type")? {
                "" => "replicated",
                asked => asked,
            };
            return Err(fail(EINVAL, format!("pool '{name}' cannot change to type {asked}")));
        }
        return ok(format!("pool '{name}' already exists"));
    }
    let Some(kind) = kind else {
        let asked = ctx.cmd.str_or_empty("pool_type")?;
        return Err(fail(EINVAL, format!("unknown pool type '{asked}'")));
    };
    let number = |name: &str| -> Result<Option<u32>, Fail> {
        match ctx.cmd.int(name)? {
            None | Some(0) => Ok(None),
            Some(n) => u32::try_from(n)
                .map(Some)
                .map_err(|_| fail(EINVAL, format!("{name} {n} is out of range"))),
        }
    };
    let option = |key| u32::try_from(ctx.option(key)).unwrap_or(u32::MAX);
    let pg_num = number("pg_num")?.unwrap_or_else(|| option(key::OSD_POOL_DEFAULT_PG_NUM));
    let pgp_num = number("pgp_num")?.unwrap_or(pg_num);
    let mut inc = ctx.osd_change();
    if kind == PoolKind::ERASURE {
        let (pool, rule) = erasure_pool(ctx, &mut inc, &name, pg_num)?;
        check_pg_num(ctx, map, None, pg_num, u32::from(pool.size), rule)?;
        return create_with(ctx, inc, pool, name, pgp_num);
    }
    let size = number("size")?.unwrap_or_else(|| option(key::OSD_POOL_DEFAULT_SIZE));
    if size == 0 || size > 10 {
        return Err(fail(EINVAL, "pool size must be between 1 and 10"));
    }
    if size == 1 && number("size")?.is_some() && !ctx.option(key::MON_ALLOW_POOL_SIZE_ONE) {
        return Err(fail(EPERM, "configuring pool size as 1 is disabled by default."));
    }
    let rule = replicated_rule(ctx, map)?;
    check_pg_num(ctx, map, None, pg_num, size, rule)?;
    let size = size as u8; // at most 10
    let mut pool = PgPool::new(kind, size, default_min_size(ctx, size), rule, pg_num);
    if let Some(count) = positional_objects(ctx)? {
        pool.expected_num_objects = count;
    }
    create_with(ctx, inc, pool, name, pgp_num)
}

/// The `min_size` that a replicated pool of `size` copies begins with, and has again whenever
/// its size is set: `osd_pool_default_min_size`, or more than half of the copies.
pub(super) fn default_min_size(ctx: &CommandCtx<'_>, size: u8) -> u8 {
    match ctx.option(key::OSD_POOL_DEFAULT_MIN_SIZE) {
        0 => size - size / 2,
        least => size.min(u8::try_from(least).unwrap_or(u8::MAX)),
    }
}

/// `osd pool create NAME PGS PGPS replicated RULE OBJECTS`: the rule lands in the profile's
/// place and the number of objects in the rule's. `None` where the words are named.
///
/// # Errors
/// `EINVAL` where that word is no number from 0.
fn positional_objects(ctx: &CommandCtx<'_>) -> Result<Option<u64>, Fail> {
    let word = ctx.cmd.str_or_empty("rule")?;
    if ctx.cmd.str_or_empty("erasure_code_profile")?.is_empty() || word.is_empty() {
        return Ok(None);
    }
    let count = super::pool_set::whole(word)?;
    let negative = |_| fail(EINVAL, "'expected_num_objects' must be non-negative");
    u64::try_from(count).map(Some).map_err(negative)
}

/// The rest of making a pool: what does not depend on its kind.
fn create_with(
    ctx: &mut CommandCtx<'_>,
    mut inc: Incremental,
    mut pool: PgPool,
    name: String,
    pgp_num: u32,
) -> Run {
    let (map, pg_num) = (ctx.osdmap(), pool.pg_num);
    if pgp_num > pg_num {
        return Err(fail(
            ERANGE,
            format!(
                "'pgp_num' must be greater than 0 and lower or equal than 'pg_num', which in this case is {pg_num}"
            ),
        ));
    }
    pool.flags.set(PoolFlags::CREATING, false);
    pool.pgp_num = pgp_num;
    pool.pgp_num_target = pgp_num;
    pool.last_change = inc.epoch;
    pool.create_time = ctx.wall();
    pool.pg_autoscale_mode = match ctx.cmd.str_or_empty("autoscale_mode")? {
        "on" => 2,
        "warn" => 1,
        _ => 0,
    };
    if ctx.option(key::OSD_POOL_DEFAULT_FLAG_NODELETE) {
        pool.flags.set(PoolFlags::NODELETE, true);
    }
    if ctx.cmd.flag("bulk") {
        pool.flags.set(PoolFlags::BULK, true);
    }
    for option in ["pg_num_min", "pg_num_max", "target_size_bytes"] {
        if let Some(value) = ctx.cmd.int(option)?.filter(|v| *v > 0) {
            pool.opts.set(option, PoolOpt::Int(value));
        }
    }
    if let Some(ratio) = ctx.cmd.float("target_size_ratio")?.filter(|v| *v > 0.0) {
        pool.opts.set("target_size_ratio", PoolOpt::Double(ratio));
    }
    if let Some(count) = ctx.cmd.int("expected_num_objects")?.and_then(|n| u64::try_from(n).ok())
        && pool.expected_num_objects == 0
    {
        pool.expected_num_objects = count;
    }
    let id = i64::from(map.pool_max) + 1;
    inc.new_pool_max = Some(id);
    inc.new_pools.insert(PoolId(id), pool);
    inc.new_pool_names.insert(PoolId(id), name.clone());
    change(inc, format!("pool '{name}' created"))
}

/// A new erasure-coded pool of the profile that is asked for, and its rule; one that is not
/// there is made along with the pool, as the profile says.
fn erasure_pool(
    ctx: &CommandCtx<'_>,
    inc: &mut Incremental,
    name: &str,
    pg_num: u32,
) -> Result<(PgPool, u8), Fail> {
    let map = ctx.osdmap();
    let profile_name = match ctx.cmd.str_or_empty("erasure_code_profile")? {
        "" => "default",
        name => name,
    };
    let (pairs, profile) = super::ec::stored_or_default(ctx, inc, profile_name)?;
    let (k, size) = (profile.k as u8, (profile.k + profile.m) as u8); // both at most 127
    let narrow = |id: u32| {
        u8::try_from(id).map_err(|_| fail(ERANGE, format!("crush rule {id} is beyond 255")))
    };
    let named = ctx.cmd.str_or_empty("rule")?;
    let own = if profile_name == "default" { "erasure-code" } else { name };
    let found = map.crush.rule_names().id(if named.is_empty() { own } else { named });
    let found = found.and_then(|id| u32::try_from(id).ok());
    let rule = match found {
        Some(id) => {
            if !map.crush.rule_serves(id, PoolKind::ERASURE.0) {
                return Err(fail(EINVAL, format!("crush rule {id} type does not match pool")));
            }
            narrow(id)?
        }
        None if !named.is_empty() => {
            return Err(fail(ENOENT, format!("specified rule {named} doesn't exist")));
        }
        None => {
            let mut crush = (**map.crush.map()).clone();
            let id = super::crush::add_erasure_rule(map, &mut crush, own, &pairs)?;
            inc.crush = super::crush::bytes_of(&crush);
            narrow(id)?
        }
    };
    let unit = match profile.stripe_unit {
        0 => ctx.option(key::OSD_POOL_ERASURE_CODE_STRIPE_UNIT),
        unit => unit,
    };
    let width = profile.chunk_size(unit.saturating_mul(profile.k as u64)) * profile.k as u64;
    let min_size = k + u8::from(profile.m > 1);
    let mut pool = PgPool::new(PoolKind::ERASURE, size, min_size, rule, pg_num);
    profile_name.clone_into(&mut pool.erasure_code_profile);
    pool.stripe_width = u32::try_from(width)
        .map_err(|_| fail(EINVAL, format!("a stripe of {width} bytes is too wide")))?;
    pool.fast_read = ctx.option(key::OSD_POOL_DEFAULT_EC_FAST_READ);
    Ok((pool, rule))
}

/// The CRUSH rule of a new replicated pool: named, or the default one.
fn replicated_rule(ctx: &CommandCtx<'_>, map: &OsdMap) -> Result<u8, Fail> {
    // `osd pool create NAME PGS PGPS [replicated] RULE`: the rule lands in the profile's place.
    let mut named = ctx.cmd.str_or_empty("erasure_code_profile")?;
    if named.is_empty() {
        named = ctx.cmd.str_or_empty("rule")?;
    } else {
        positional_objects(ctx)?;
    }
    if !named.is_empty() {
        let id = map.crush.rule_names().id(named).and_then(|id| u8::try_from(id).ok());
        let id = id.ok_or_else(|| fail(ENOENT, format!("specified rule {named} doesn't exist")))?;
        if !map.crush.rule_serves(u32::from(id), PoolKind::REPLICATED.0) {
            return Err(fail(EINVAL, format!("crush rule {id} type does not match pool")));
        }
        return Ok(id);
    }
    let default = ctx.option(key::OSD_POOL_DEFAULT_CRUSH_RULE);
    let id = if default >= 0 { u32::try_from(default).ok() } else { map.crush.first_rule(1) };
    id.filter(|id| map.crush.rule_serves(*id, PoolKind::REPLICATED.0))
        .and_then(|id| u8::try_from(id).ok())
        .ok_or_else(|| {
            fail(
                ENOENT,
                "No suitable CRUSH rule exists, check 'osd pool default crush *' config options",
            )
        })
}

/// Whether the cluster can take that many PGs.
pub(super) fn check_pg_num(
    ctx: &CommandCtx<'_>,
    map: &OsdMap,
    skip: Option<PoolId>,
    pg_num: u32,
    size: u32,
    rule: u8,
) -> Result<(), Fail> {
    let max = ctx.option(key::MON_MAX_POOL_PG_NUM);
    if pg_num == 0 || u64::from(pg_num) > max {
        return Err(fail(
            ERANGE,
            format!(
                "'pg_num' must be greater than 0 and less than or equal to {max} (you may adjust 'mon max pool pg num' for higher values)"
            ),
        ));
    }
    let Some(weights) = map.crush.rule_weight_osd_map(u32::from(rule)) else { return Ok(()) };
    let osds = weights.keys().filter(|o| map.is_in(OsdId(**o))).count().max(3) as u64;
    let others: u64 = map
        .pools
        .iter()
        .filter(|(id, _)| Some(**id) != skip)
        .map(|(_, p)| u64::from(p.pg_num_target) * u64::from(p.size))
        .sum();
    let total = others + u64::from(pg_num) * u64::from(size);
    let limit = ctx.option(key::MON_MAX_PG_PER_OSD);
    if limit > 0 && total / osds > limit {
        return Err(fail(
            ERANGE,
            format!(
                "pg_num {pg_num} size {size} for this pool would result in {} cumulative PGs per OSD ({total} total PG replicas on {osds} 'in' root OSDs by crush rule) which exceeds the mon_max_pg_per_osd value of {limit}",
                total / osds
            ),
        ));
    }
    Ok(())
}

fn remove(ctx: &mut CommandCtx<'_>) -> Run {
    let name = ctx.cmd.str_or_empty("pool")?.to_owned();
    let map = ctx.osdmap();
    let Some(id) = map.pool_by_name(&name) else {
        return ok(format!("pool '{name}' does not exist"));
    };
    let sure = ctx.cmd.flag("yes_i_really_really_mean_it")
        || ctx.cmd.flag("yes_i_really_really_mean_it_not_faking");
    if ctx.cmd.str_or_empty("pool2")? != name || !sure {
        return Err(fail(
            EPERM,
            format!(
                "WARNING: this will *PERMANENTLY DESTROY* all data stored in pool {name}.  If you are *ABSOLUTELY CERTAIN* that is what you want, pass the pool name *twice*, followed by --yes-i-really-really-mean-it."
            ),
        ));
    }
    let pool = map.pool(id).ok_or_else(|| fail(ENOENT, format!("unrecognized pool '{name}'")))?;
    if ctx.state.fsmap.by_pool(id).is_some() {
        return Err(fail(EBUSY, format!("pool '{name}' is in use by CephFS")));
    }
    if pool.tier_of >= 0 {
        return Err(fail(
            EBUSY,
            format!(
                "pool '{name}' is a tier of '{}'",
                map.pool_name(PoolId(pool.tier_of)).unwrap_or_default()
            ),
        ));
    }
    if !pool.tiers.is_empty() {
        let tiers: Vec<&str> =
            pool.tiers.iter().filter_map(|t| map.pool_name(PoolId(*t as i64))).collect();
        return Err(fail(EBUSY, format!("pool '{name}' has tiers {}", tiers.join(", "))));
    }
    if !ctx.option(key::MON_ALLOW_POOL_DELETE) {
        return Err(fail(
            EPERM,
            "pool deletion is disabled; you must first set the mon_allow_pool_delete config option to true before you can destroy a pool",
        ));
    }
    if pool.has_flag(PoolFlags::NODELETE) {
        return Err(fail(
            EPERM,
            "pool deletion is disabled; you must unset nodelete flag for the pool first",
        ));
    }
    let mut inc = ctx.osd_change();
    drop_pool(map, id, &mut inc);
    change(inc, format!("pool '{name}' removed"))
}

/// Removes a pool and every exception made for its PGs.
fn drop_pool(map: &OsdMap, id: PoolId, inc: &mut Incremental) {
    inc.old_pools.insert(id);
    poolops::drop_rule(map, id, inc);
    let of_pool = |pg: &&PgId| pg.pool == id;
    for pg in map.pg_temp.keys().filter(of_pool) {
        inc.new_pg_temp.insert(*pg, Vec::new());
    }
    for pg in map.primary_temp.keys().filter(of_pool) {
        inc.new_primary_temp.insert(*pg, OsdId(-1));
    }
    inc.old_pg_upmap.extend(map.pg_upmap.keys().filter(of_pool));
    inc.old_pg_upmap_items.extend(map.pg_upmap_items.keys().filter(of_pool));
    inc.old_pg_upmap_primary.extend(map.pg_upmap_primaries.keys().filter(of_pool));
    if map.crush.choose_args().contains_key(&id.0) {
        let mut crush: CrushMap = match denc::Denc::from_shared(&inc.crush) {
            Ok(changed) => changed, // the rule went
            Err(_) => (**map.crush.map()).clone(),
        };
        crush.remove_choose_args(id.0);
        inc.crush = super::crush::bytes_of(&crush);
    }
}

fn rename(ctx: &mut CommandCtx<'_>) -> Run {
    let from = ctx.cmd.str_or_empty("srcpool")?.to_owned();
    let to = ctx.cmd.str_or_empty("destpool")?.to_owned();
    let map = ctx.osdmap();
    if to.is_empty() {
        return Err(fail(EINVAL, "a pool's name cannot be empty"));
    }
    if to.starts_with('.') && !ctx.cmd.flag("yes_i_really_mean_it") {
        return ok("pool names beginning with . are not allowed");
    }
    match (map.pool_by_name(&from), map.pool_by_name(&to)) {
        (Some(_), Some(_)) => Err(fail(EEXIST, format!("pool '{to}' already exists"))),
        (Some(id), None) => {
            let mut inc = ctx.osd_change();
            inc.new_pool_names.insert(id, to.clone());
            change(inc, format!("pool '{from}' renamed to '{to}'"))
        }
        (None, Some(_)) => ok(format!(
            "pool '{from}' does not exist; pool '{to}' does -- assuming successful rename"
        )),
        (None, None) => Err(fail(ENOENT, format!("unrecognized pool '{from}'"))),
    }
}

fn ls(ctx: &mut CommandCtx<'_>) -> Run {
    let detail = ctx.cmd.str_or_empty("detail")? == "detail";
    let map = ctx.osdmap();
    let Some(mut f) = ctx.formatter() else {
        let mut text = String::new();
        for (id, name) in map.pool_names.iter() {
            match map.pool(*id) {
                Some(pool) if detail => osd_dump::pool_line(&mut text, map, *id, name, pool),
                _ => {
                    let _ = writeln!(text, "{name}");
                }
            }
        }
        if detail {
            text.push('\n');
        }
        return out(text);
    };
    f.open_array("pools");
    for (id, name) in map.pool_names.iter() {
        match map.pool(*id) {
            Some(pool) if detail => f.object("pool", |f| {
                f.int("pool_id", id.0);
                f.string("pool_name", name);
                osd_dump::dump_pool(f, map, *id, pool);
            }),
            _ => f.string("pool_name", name),
        }
    }
    f.close();
    out(f.finish())
}

pub(super) fn lspools(ctx: &mut CommandCtx<'_>) -> Run {
    let names = &ctx.osdmap().pool_names;
    let Some(mut f) = ctx.formatter() else {
        let lines: Vec<String> = names.iter().map(|(id, name)| format!("{id} {name}")).collect();
        return out(lines.join("\n") + "\n");
    };
    f.array("pools", |f| {
        for (id, name) in names.iter() {
            f.object("pool", |f| {
                f.int("poolnum", id.0);
                f.string("poolname", name);
            });
        }
    });
    out(f.finish_line())
}

/// Pool and change of a command that edits one pool.
fn edit(ctx: &CommandCtx<'_>) -> Result<(PoolId, String, PgPool, Incremental), Fail> {
    let name = ctx.cmd.str_or_empty("pool")?.to_owned();
    let (id, pool) = ctx.need_pool("pool")?;
    Ok((id, name, pool.clone(), ctx.osd_change()))
}

fn mksnap(ctx: &mut CommandCtx<'_>) -> Run {
    let (id, name, mut pool, mut inc) = edit(ctx)?;
    let snap = ctx.cmd.str_or_empty("snap")?.to_owned();
    if pool.is_unmanaged_snaps_mode() {
        return Err(fail(EINVAL, format!("pool {name} is in unmanaged snaps mode")));
    }
    if pool.snap_by_name(&snap).is_some() {
        return ok(format!("pool {name} snap {snap} already exists"));
    }
    if pool.is_tier() {
        return Err(fail(EINVAL, format!("pool {name} is a cache tier")));
    }
    pool.flags.set(PoolFlags::POOL_SNAPS, true);
    let snap_id = SnapId(pool.snap_seq.0 + 1);
    pool.snap_seq = snap_id;
    pool.snap_epoch = inc.epoch;
    let info = PoolSnapInfo { id: snap_id, stamp: ctx.wall(), name: snap.clone() };
    pool.snaps.insert(snap_id, info);
    inc.new_pools.insert(id, pool);
    change(inc, format!("created pool {name} snap {snap}"))
}

fn rmsnap(ctx: &mut CommandCtx<'_>) -> Run {
    let (id, name, mut pool, mut inc) = edit(ctx)?;
    let snap = ctx.cmd.str_or_empty("snap")?.to_owned();
    if pool.is_unmanaged_snaps_mode() {
        return Err(fail(EINVAL, format!("pool {name} is in unmanaged snaps mode")));
    }
    let Some(snap_id) = pool.snap_by_name(&snap) else {
        return ok(format!("pool {name} snap {snap} does not exist"));
    };
    pool.snaps.remove(&snap_id);
    pool.snap_epoch = inc.epoch;
    inc.new_removed_snaps.entry(id).or_default().insert(snap_id.0, 1);
    inc.new_pools.insert(id, pool);
    change(inc, format!("removed pool {name} snap {snap}"))
}

fn set_quota(ctx: &mut CommandCtx<'_>) -> Run {
    let (id, name, mut pool, mut inc) = edit(ctx)?;
    let field = ctx.cmd.str_or_empty("field")?;
    let text = ctx.cmd.str_or_empty("val")?;
    let read = match field {
        "max_bytes" => cli::parse_iec(text),
        "max_objects" => cli::parse_si(text),
        _ => return Err(fail(EINVAL, format!("unrecognized option '{field}'"))),
    };
    let value = read.map_err(|why| fail(EINVAL, format!("error parsing value '{text}': {why}")))?;
    if field == "max_bytes" {
        pool.quota_max_bytes = value;
    } else {
        pool.quota_max_objects = value;
    }
    pool.last_change = inc.epoch;
    inc.new_pools.insert(id, pool);
    change(inc, format!("set-quota {field} = {value} for pool {name}"))
}

fn get_quota(ctx: &mut CommandCtx<'_>) -> Run {
    let name = ctx.cmd.str_or_empty("pool")?.to_owned();
    let (id, pool) = ctx.need_pool("pool")?;
    let sum = super::df::pool_sum(ctx, id);
    let (objects, bytes) = (sum.num_objects.max(0) as u64, sum.num_bytes.max(0) as u64);
    let Some(mut f) = ctx.formatter() else {
        let objects = match pool.quota_max_objects {
            0 => "N/A".to_owned(),
            max => format!("{} objects  (current num objects: {objects} objects)", cli::si_u(max)),
        };
        let bytes = match pool.quota_max_bytes {
            0 => "N/A".to_owned(),
            max => format!("{}  (current num bytes: {bytes} bytes)", cli::bytes_u(max)),
        };
        return out(format!(
            "quotas for pool '{name}':\n  max objects: {objects}\n  max bytes  : {bytes}\n"
        ));
    };
    f.object("pool_quotas", |f| {
        f.string("pool_name", &name);
        f.int("pool_id", id.0);
        f.int("quota_max_objects", pool.quota_max_objects);
        f.int("current_num_objects", objects);
        f.int("quota_max_bytes", pool.quota_max_bytes);
        f.int("current_num_bytes", bytes);
    });
    out(f.finish_line())
}

fn autoscale_status(ctx: &mut CommandCtx<'_>) -> Run {
    use cli::Align::{Left, Right};
    let map = ctx.osdmap();
    let bounds = autoscale::Bounds {
        per_osd: ctx.option(key::MON_TARGET_PG_PER_OSD) as f64,
        threshold: autoscale::threshold(&ctx.state.config),
    };
    let plans = autoscale::plan(map, &ctx.volatile.pgmap, &bounds);
    let pools = || plans.iter().filter_map(|p| Some((p, map.pool(p.id)?)));
    let mode = |pool: &PgPool| {
        ["off", "warn", "on"].get(usize::from(pool.pg_autoscale_mode)).copied().unwrap_or("off")
    };
    if let Some(mut f) = ctx.formatter() {
        f.open_array("pools");
        for (p, pool) in pools() {
            f.object("pool", |f| {
                f.float("actual_capacity_ratio", p.used_ratio);
                f.int("actual_raw_used", p.raw_used);
                f.float("bias", p.bias);
                f.bool("bulk", p.bulk);
                f.float("capacity_ratio", p.ratio);
                f.int("crush_root_id", p.root);
                f.float("effective_target_ratio", p.effective_ratio);
                f.float("logical_used", p.raw_used as f64 / p.rate);
                f.string("pg_autoscale_mode", mode(pool));
                f.int("pg_num_final", p.last);
                f.int("pg_num_ideal", p.ideal as i64);
                f.int("pg_num_target", p.now);
                f.int("pool_id", p.id.0);
                f.string("pool_name", map.pool_name(p.id).unwrap_or_default());
                f.float("raw_used", p.raw_expected);
                f.float("raw_used_rate", p.rate);
                f.int("subtree_capacity", p.capacity);
                f.int("target_bytes", p.target_bytes);
                f.float("target_ratio", p.target_ratio);
                f.bool("would_adjust", p.adjust);
            });
        }
        f.close();
        return out(f.finish_line());
    }
    let mut table = cli::TextTable::with(&[
        ("POOL", Left, Left),
        ("SIZE", Right, Right),
        ("TARGET SIZE", Right, Right),
        ("RATE", Right, Right),
        ("RAW CAPACITY", Right, Right),
        ("RATIO", Right, Right),
        ("TARGET RATIO", Right, Right),
        ("EFFECTIVE RATIO", Right, Right),
        ("BIAS", Right, Right),
        ("PG_NUM", Right, Right),
        ("NEW PG_NUM", Right, Right),
        ("AUTOSCALE", Left, Left),
        ("BULK", Left, Left),
    ]);
    let space = |n: u64| cli::bytes_u(n).replace(' ', "").replace("iB", "");
    let some = |there: bool, text: String| if there { text } else { String::new() };
    for (p, pool) in pools() {
        table.row(vec![
            map.pool_name(p.id).unwrap_or_default().to_owned(),
            space((p.raw_used as f64 / p.rate) as u64),
            some(p.target_bytes > 0, space(p.target_bytes)),
            format!("{:?}", p.rate),
            space(p.capacity),
            format!("{:.4}", p.ratio),
            some(p.target_ratio > 0.0, format!("{:.4}", p.target_ratio)),
            some(p.effective_ratio > 0.0, format!("{:.4}", p.effective_ratio)),
            format!("{:.1}", p.bias),
            p.now.to_string(),
            some(p.adjust, p.last.to_string()),
            mode(pool).to_owned(),
            if p.bulk { "True" } else { "False" }.to_owned(),
        ]);
    }
    out(table.render())
}

fn application_name(ctx: &CommandCtx<'_>) -> Result<String, Fail> {
    let app = ctx.cmd.str_or_empty("app")?;
    if app.is_empty() {
        return Err(fail(EINVAL, "application name not provided"));
    }
    if app.chars().count() > APPLICATION_CHARS_MAX {
        return Err(fail(
            EINVAL,
            format!("application name '{app}' too long; max length {APPLICATION_CHARS_MAX}"),
        ));
    }
    Ok(app.to_owned())
}

fn application_enable(ctx: &mut CommandCtx<'_>) -> Run {
    let (id, name, mut pool, mut inc) = edit(ctx)?;
    let apps = &pool.application_metadata;
    let raw = ctx.cmd.str_or_empty("app")?;
    if raw.is_empty() {
        return Err(fail(EINVAL, "application name must be provided"));
    }
    if !apps.is_empty() && !apps.contains_key(raw) && !ctx.cmd.flag("yes_i_really_mean_it") {
        return Err(fail(
            EPERM,
            format!(
                "Are you SURE? Pool '{name}' already has an enabled application; pass --yes-i-really-mean-it to proceed anyway"
            ),
        ));
    }
    let app = application_name(ctx)?;
    if pool.is_tier() {
        return Err(fail(EINVAL, "application must be enabled on base tier"));
    }
    if !apps.contains_key(&app) && apps.len() >= APPLICATIONS_MAX {
        return Err(fail(
            EINVAL,
            format!("too many enabled applications on pool '{name}'; max {APPLICATIONS_MAX}"),
        ));
    }
    let done = format!("enabled application '{app}' on pool '{name}'");
    if apps.contains_key(&app) {
        return ok(done);
    }
    pool.application_metadata.insert(app, BTreeMap::new());
    pool.last_change = inc.epoch;
    inc.new_pools.insert(id, pool);
    change(inc, done)
}

fn application_disable(ctx: &mut CommandCtx<'_>) -> Run {
    let (id, name, mut pool, mut inc) = edit(ctx)?;
    if !ctx.cmd.flag("yes_i_really_mean_it") {
        return Err(fail(
            EPERM,
            "Are you SURE? Disabling an application within a pool might result in loss of application functionality; pass --yes-i-really-mean-it to proceed anyway",
        ));
    }
    let app = ctx.cmd.str_or_empty("app")?.to_owned();
    if pool.application_metadata.remove(&app).is_none() {
        return ok(format!("application '{app}' is not enabled on pool '{name}'"));
    }
    pool.last_change = inc.epoch;
    inc.new_pools.insert(id, pool);
    change(inc, format!("disable application '{app}' on pool '{name}'"))
}

fn application_set(ctx: &mut CommandCtx<'_>) -> Run {
    let (id, name, mut pool, mut inc) = edit(ctx)?;
    let app = ctx.cmd.str_or_empty("app")?.to_owned();
    let key = ctx.cmd.str_or_empty("key")?.to_owned();
    let value = ctx.cmd.str_or_empty("value")?.to_owned();
    let Some(pairs) = pool.application_metadata.get_mut(&app) else {
        return Err(fail(ENOENT, format!("application '{app}' is not enabled on pool '{name}'")));
    };
    if key.is_empty() {
        return Err(fail(EINVAL, "key must be provided"));
    }
    for (what, text) in [("key", &key), ("value", &value)] {
        if text.chars().count() > APPLICATION_CHARS_MAX {
            let why = format!("{what} '{text}' too long; max length {APPLICATION_CHARS_MAX}");
            return Err(fail(EINVAL, why));
        }
    }
    if !pairs.contains_key(&key) && pairs.len() >= 64 {
        return Err(fail(
            EINVAL,
            format!("too many keys set for application '{app}' on pool '{name}'; max 64"),
        ));
    }
    pairs.insert(key.clone(), value.clone());
    pool.last_change = inc.epoch;
    inc.new_pools.insert(id, pool);
    change(inc, format!("set application '{app}' key '{key}' to '{value}' on pool '{name}'"))
}

fn application_rm(ctx: &mut CommandCtx<'_>) -> Run {
    let (id, name, mut pool, mut inc) = edit(ctx)?;
    let app = application_name(ctx)?;
    let key = ctx.cmd.str_or_empty("key")?.to_owned();
    let Some(pairs) = pool.application_metadata.get_mut(&app) else {
        return Err(fail(ENOENT, format!("application '{app}' is not enabled on pool '{name}'")));
    };
    if pairs.remove(&key).is_none() {
        return ok(format!("application '{app}' on pool '{name}' does not have key '{key}'"));
    }
    pool.last_change = inc.epoch;
    inc.new_pools.insert(id, pool);
    change(inc, format!("removed application '{app}' key '{key}' on pool '{name}'"))
}

fn application_get(ctx: &mut CommandCtx<'_>) -> Run {
    let map = ctx.osdmap();
    let mut f = ctx.formatter_or_pretty();
    let name = ctx.cmd.str_or_empty("pool")?;
    let dump = |f: &mut cli::Formatter, name: &str, pool: &PgPool| {
        f.object(name, |f| {
            for (app, pairs) in &pool.application_metadata {
                f.object(app, |f| {
                    for (key, value) in pairs {
                        f.string(key, value);
                    }
                });
            }
        });
    };
    if name.is_empty() {
        f.open_object("pools");
        for (id, pool) in map.pools.iter() {
            dump(&mut f, map.pool_name(*id).unwrap_or_default(), pool);
        }
        f.close();
        return out(f.finish());
    }
    let (_, pool) = ctx.need_pool("pool")?;
    let app = ctx.cmd.str_or_empty("app")?;
    if app.is_empty() {
        dump(&mut f, name, pool);
        return out(f.finish());
    }
    let Some(pairs) = pool.application_metadata.get(app) else {
        return Err(fail(ENOENT, format!("pool '{name}' has no application '{app}'")));
    };
    let key = ctx.cmd.str_or_empty("key")?;
    if key.is_empty() {
        f.object(app, |f| {
            for (key, value) in pairs {
                f.string(key, value);
            }
        });
        return out(f.finish());
    }
    let value = pairs.get(key).ok_or_else(|| {
        fail(ENOENT, format!("application '{app}' on pool '{name}' does not have key '{key}'"))
    })?;
    match ctx.formatter() {
        None => out(format!("{value}\n")),
        Some(mut f) => {
            f.string("value", value);
            out(f.finish())
        }
    }
}
