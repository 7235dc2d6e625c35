//! Which pools a file system may have.

use maps::{OsdMap, PgPool, PoolFlags};
use types::PoolId;

use super::{Run, commit};
use crate::CommandCtx;
use crate::commands::{EINVAL, ENOENT, EOPNOTSUPP, Fail, fail, ok};
use crate::fs::application;

/// What a pool is to be for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    Metadata,
    FirstData,
    MoreData,
}

/// Refuses a pool that cannot serve. `force` takes what only is unwise, `overlay` what another file
/// system has.
pub(super) fn check(
    map: &OsdMap,
    id: PoolId,
    use_for: Use,
    (force, overlay): (bool, bool),
) -> Result<String, Fail> {
    let n = id.0;
    let pool = map.pool(id).ok_or_else(|| fail(ENOENT, format!("pool id '{n}' does not exist")))?;
    if !pool.snaps.is_empty() {
        let why = format!("pool({n}) already has mon-managed snaps; can't attach pool to fs");
        return Err(fail(EOPNOTSUPP, why));
    }
    let name = map.pool_name(id).unwrap_or_default();
    let refuse = |why: String| Err(fail(EINVAL, why));
    let apps = &pool.application_metadata;
    if !overlay && !force && !apps.is_empty() {
        let Some(pairs) = apps.get("cephfs") else {
            return refuse(format!(
                "RADOS pool '{name}' has another non-CephFS application enabled."
            ));
        };
        let used = pairs.get_key_value("data").or_else(|| pairs.get_key_value("metadata"));
        if let Some((kind, by)) = used {
            return refuse(format!(
                "RADOS pool '{name}' is already used by filesystem '{by}' as a '{kind}' pool for application 'cephfs'"
            ));
        }
    }
    if pool.is_erasure() {
        coded(map, pool, &format!("pool '{name}' (id '{n}')"), use_for, force)?;
    }
    if pool.tier_of >= 0 {
        return refuse(format!(" pool '{name}' (id '{n}') is already in use as a cache tier."));
    }
    let on = pool.pg_autoscale_mode == 2;
    if use_for != Use::Metadata && on && !pool.has_flag(PoolFlags::BULK) {
        return Ok(format!(
            "  Pool '{name}' (id '{n}') has pg autoscale mode 'on' but is not marked as bulk.\n  Consider setting the flag by running\n    # ceph osd pool set {name} bulk true\n"
        ));
    }
    Ok(String::new())
}

fn coded(map: &OsdMap, pool: &PgPool, who: &str, use_for: Use, force: bool) -> Result<(), Fail> {
    let refuse = |why: &str| Err(fail(EINVAL, format!("{who} is an erasure-coded pool{why}")));
    match use_for {
        Use::Metadata => {
            return refuse(".  Use of erasure-coded pools for CephFS metadata is not permitted");
        }
        Use::FirstData if !force => {
            return refuse(
                ". Use of an EC pool for the default data pool is discouraged; see the online CephFS documentation for more information. Use --force to override.",
            );
        }
        _ => {}
    }
    // Files are written in place: by the pool, or by a cache that takes writes.
    let tiered = pool.read_tier >= 0
        && map.pool(PoolId(pool.write_tier)).is_some_and(|tier| {
            let mode = maps::CacheMode::of(tier.cache_mode);
            !matches!(mode, Some(maps::CacheMode::Forward | maps::CacheMode::Readonly))
        });
    if !pool.has_flag(PoolFlags::EC_OVERWRITES) && !tiered {
        return refuse(", with no overwrite support");
    }
    Ok(())
}

/// A pool by name or number.
fn pool_arg(ctx: &CommandCtx<'_>) -> Result<PoolId, Fail> {
    let name = ctx.cmd.str_or_empty("pool")?;
    let known = ctx.osdmap().pool_by_name(name).or_else(|| name.parse().ok().map(PoolId));
    known.ok_or_else(|| fail(ENOENT, format!("pool '{name}' does not exist")))
}

pub(super) fn add(ctx: &mut CommandCtx<'_>) -> Run {
    let fs = ctx.need_fs()?;
    let id = pool_arg(ctx)?;
    let hint = check(ctx.osdmap(), id, Use::MoreData, (false, false))?;
    let (fscid, name) = (fs.fscid, fs.mds_map.fs_name.clone());
    if fs.mds_map.data_pools.contains(&id) {
        return ok(format!("{hint}data pool {} is already on fs {name}", id.0));
    }
    let mut edit = ctx.fs_edit();
    if let Some(pool) = edit.pool(ctx.state, id) {
        application(pool, "data", &name);
    }
    if let Some(map) = edit.mds_map(fscid) {
        map.data_pools.push(id);
    }
    commit(edit, format!("{hint}added data pool {} to fsmap", id.0))
}

pub(super) fn remove(ctx: &mut CommandCtx<'_>) -> Run {
    let fs = ctx.need_fs()?;
    let id = pool_arg(ctx)?;
    if id.0 < 0 {
        return Err(fail(EINVAL, format!("invalid pool id '{}'", id.0)));
    }
    let pools = &fs.mds_map.data_pools;
    if pools.first() == Some(&id) {
        return Err(fail(EINVAL, "cannot remove default data pool"));
    }
    if !pools.contains(&id) {
        return ok("");
    }
    let fscid = fs.fscid;
    let mut edit = ctx.fs_edit();
    if let Some(map) = edit.mds_map(fscid) {
        map.data_pools.retain(|pool| *pool != id);
    }
    commit(edit, format!("removed data pool {} from fsmap", id.0))
}
