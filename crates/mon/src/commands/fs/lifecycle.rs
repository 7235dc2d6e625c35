//! File systems come, go, and get other names.

use maps::mds_flag;
use types::PoolId;

use super::{Run, commit, pools, set};
use crate::CommandCtx;
use crate::commands::{EINVAL, ENOENT, EPERM, Fail, fail, ok};
use crate::fs::{Edit, application, health};

/// What servers complain about while none of them is better lost.
const UNHEALTHY: &str = "MDS has one of two health warnings which could extend recovery: \
     MDS_TRIM or MDS_CACHE_OVERSIZED. MDS failover is not recommended since it might cause \
     unexpected file system unavailability. If you wish to proceed, pass --yes-i-really-mean-it";

/// Refuses to take servers away that would recover slowly, unless that is meant.
pub(super) fn servers_may_fail(ctx: &CommandCtx<'_>) -> Result<(), Fail> {
    let slow = ctx.volatile.mds.complains(&[health::TRIM, health::CACHE_OVERSIZED]);
    if slow && !ctx.cmd.flag("yes_i_really_mean_it") {
        return Err(fail(EPERM, UNHEALTHY));
    }
    Ok(())
}

fn confirmed(ctx: &CommandCtx<'_>, why: &str) -> Result<(), Fail> {
    if ctx.cmd.flag("yes_i_really_mean_it") { Ok(()) } else { Err(fail(EPERM, why)) }
}

/// The pairs of `set max_mds 2 ...` behind `fs new`.
fn settings(words: &[String]) -> Result<Vec<(String, String)>, Fail> {
    let Some((first, pairs)) = words.split_first() else { return Ok(Vec::new()) };
    if first != "set" {
        return Err(fail(EINVAL, "invalid command"));
    }
    if pairs.is_empty() || pairs.len() % 2 != 0 {
        let why = format!("incomplete list of key-val pairs provided {}", pairs.len());
        return Err(fail(EINVAL, why));
    }
    Ok(pairs.chunks(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect())
}

fn pool_named(ctx: &CommandCtx<'_>, arg: &str) -> Result<PoolId, Fail> {
    let name = ctx.cmd.str_or_empty(arg)?;
    let found = ctx.osdmap().pool_by_name(name);
    found.ok_or_else(|| fail(ENOENT, format!("pool '{name}' does not exist")))
}

pub(super) fn new(ctx: &mut CommandCtx<'_>) -> Run {
    let refuse = |why: String| Err(fail(EINVAL, why));
    let (meta, data) = (pool_named(ctx, "metadata")?, pool_named(ctx, "data")?);
    let (force, overlay) =
        (ctx.cmd.flag("force"), ctx.cmd.flag("allow_dangerous_metadata_overlay"));
    if data.0 == 0 {
        let name = ctx.cmd.str_or_empty("data")?;
        return refuse(format!(
            "pool '{name}' has id 0, which CephFS does not allow. Use another pool or recreate it to get a non-zero pool id."
        ));
    }
    let name = ctx.cmd.str_or_empty("fs_name")?.to_owned();
    if name.is_empty() {
        return refuse("Filesystem name may not be empty".to_owned());
    }
    ctx.may_change(&name)?;
    let map = &ctx.state.fsmap;
    if let Some(fs) = map.by_name(&name) {
        let m = &fs.mds_map;
        return if m.metadata_pool == meta && m.data_pools.first() == Some(&data) {
            ok(format!("filesystem '{name}' already exists"))
        } else {
            refuse(format!("filesystem already exists with name '{name}'"))
        };
    }
    let objects = ctx.volatile.pgmap.pools.get(&meta).map_or(0, |p| p.stats.sum.num_objects);
    if !force && objects > 0 {
        let pool = ctx.cmd.str_or_empty("metadata")?;
        return refuse(format!(
            "pool '{pool}' already contains some objects. Use an empty pool instead."
        ));
    }
    if !map.filesystems.is_empty() && !map.enable_multiple {
        return refuse("Creation of multiple filesystems is disabled.  To enable this experimental feature, use 'ceph fs flag set enable_multiple true'".to_owned());
    }
    if !overlay && (map.by_pool(data).is_some() || map.by_pool(meta).is_some()) {
        return refuse(format!(
            "Filesystem '{name}' is already using one of the specified RADOS pools. This should ONLY be done in emergencies and after careful reading of the documentation. Pass --allow-dangerous-metadata-overlay to permit this."
        ));
    }
    let fscid = ctx.cmd.int("fscid")?;
    if fscid.is_some() && !force {
        return refuse("Pass --force to create a file system with a specific ID".to_owned());
    }
    let fscid = match fscid {
        Some(id) => match i32::try_from(id) {
            Ok(id) if map.by_id(id).is_none() => Some(id),
            _ => return refuse(format!("filesystem already exists with id '{id}'")),
        },
        None => None,
    };
    let settings = settings(&ctx.cmd.list("set")?)?;
    let lax = (force, overlay);
    let mut said = pools::check(ctx.osdmap(), data, pools::Use::FirstData, lax)?;
    said += &pools::check(ctx.osdmap(), meta, pools::Use::Metadata, lax)?;
    let recover = ctx.cmd.flag("recover");
    let mut edit = ctx.fs_edit();
    let fscid = edit.create(&name, (meta, data), fscid, recover);
    said += &format!("new fs with metadata pool {} and data pool {}", meta.0, data.0);
    for (var, value) in settings {
        said += "; ";
        said += &set::apply(ctx, &mut edit, fscid, &var, &value)?;
    }
    if let Some(pool) = edit.pool(ctx.state, data) {
        application(pool, "data", &name);
    }
    if let Some(pool) = edit.pool(ctx.state, meta) {
        application(pool, "metadata", &name);
        pool.opts.set("recovery_priority", maps::PoolOpt::Int(5));
        pool.opts.set("pg_num_min", maps::PoolOpt::Int(16));
        pool.opts.set("pg_autoscale_bias", maps::PoolOpt::Double(4.0));
    }
    if !recover {
        first_ranks(&mut edit, fscid);
    }
    commit(edit, said)
}

/// Standbys get the ranks of a new file system at once.
fn first_ranks(edit: &mut Edit, fscid: i32) {
    let ranks = edit.map.by_id(fscid).map_or(0, |fs| fs.mds_map.max_mds);
    for rank in 0..ranks {
        let Some(fs) = edit.map.by_id(fscid) else { return };
        let Some(info) = edit.map.replacement_for(fs, rank) else { return };
        let (gid, who, name) = (info.gid, info.human_name(), fs.mds_map.fs_name.clone());
        edit.info(format!("{who} assigned to filesystem {name} as rank {rank}"));
        edit.promote(gid, fscid, rank);
    }
}

pub(super) fn remove(ctx: &mut CommandCtx<'_>) -> Run {
    let name = ctx.cmd.str_or_empty("fs_name")?;
    ctx.may_change(name)?; // as on the peer, also where there is none
    let Some(fs) = ctx.state.fsmap.by_name(name) else {
        return ok(format!("filesystem '{name}' does not exist"));
    };
    if !fs.mds_map.up.is_empty() {
        return Err(fail(
            EINVAL,
            "all MDS daemons must be inactive/failed before removing filesystem. See `ceph fs fail`.",
        ));
    }
    confirmed(
        ctx,
        "this is a DESTRUCTIVE operation and will make data in your filesystem permanently inaccessible.  Add --yes-i-really-mean-it if you are sure you wish to continue.",
    )?;
    let fscid = fs.fscid;
    let mut edit = ctx.fs_edit();
    edit.remove(fscid);
    commit(
        edit,
        "If there are active snapshot schedules associated with this file-system, you might see EIO errors in the mgr logs or at the snap-schedule command-line due to the missing file-system. However, these errors are transient and will get auto-resolved.",
    )
}

pub(super) fn reset(ctx: &mut CommandCtx<'_>) -> Run {
    let fs = ctx.need_fs()?;
    if !fs.mds_map.up.is_empty() {
        return Err(fail(
            EINVAL,
            "all MDS daemons must be inactive before resetting filesystem: set the cluster_down flag and use `ceph mds fail` to make this so",
        ));
    }
    confirmed(
        ctx,
        "this is a potentially destructive operation, only for use by experts in disaster recovery.  Add --yes-i-really-mean-it if you are sure you wish to continue.",
    )?;
    let fscid = fs.fscid;
    let mut edit = ctx.fs_edit();
    edit.reset(fscid);
    commit(edit, "")
}

pub(super) fn fail_all(ctx: &mut CommandCtx<'_>) -> Run {
    let fs = ctx.need_fs()?;
    servers_may_fail(ctx)?;
    let (fscid, name) = (fs.fscid, fs.mds_map.fs_name.clone());
    let servers: Vec<u64> = fs.mds_map.mds_info.keys().copied().collect();
    let mut edit = ctx.fs_edit();
    if let Some(map) = edit.mds_map(fscid) {
        map.flags |= mds_flag::NOT_JOINABLE;
    }
    for gid in servers {
        edit.fail(gid);
    }
    commit(
        edit,
        format!(
            "{name} marked not joinable; MDS cannot join the cluster. All MDS ranks marked failed."
        ),
    )
}

pub(super) fn set_default(ctx: &mut CommandCtx<'_>) -> Run {
    let fscid = ctx.need_fs()?.fscid;
    let mut edit = ctx.fs_edit();
    edit.map.legacy_client_fscid = fscid;
    edit.touch();
    commit(edit, "")
}

/// Gives a file system another name, and its pools' applications too.
fn give_name(ctx: &CommandCtx<'_>, edit: &mut Edit, fscid: i32, name: &str) {
    let Some(map) = edit.mds_map(fscid) else { return };
    name.clone_into(&mut map.fs_name);
    let (meta, data) = (map.metadata_pool, map.data_pools.clone());
    for id in data {
        if let Some(pool) = edit.pool(ctx.state, id) {
            application(pool, "data", name);
        }
    }
    if let Some(pool) = edit.pool(ctx.state, meta) {
        application(pool, "metadata", name);
    }
}

pub(super) fn rename(ctx: &mut CommandCtx<'_>) -> Run {
    let refuse = |errno, why: String| Err(fail(errno, why));
    let (old, new) = (ctx.cmd.str_or_empty("fs_name")?, ctx.cmd.str_or_empty("new_fs_name")?);
    ctx.may_change(old)?;
    let taken = ctx.state.fsmap.by_name(new).is_some();
    let Some(fs) = ctx.state.fsmap.by_name(old) else {
        if taken {
            return ok(format!(
                "File system may already have been renamed. Desired file system '{new}' exists."
            ));
        }
        return refuse(ENOENT, format!("File system '{old}' does not exist"));
    };
    if taken {
        return refuse(EINVAL, format!("Desired file system name '{new}' already in use"));
    }
    if fs.mirror.mirrored {
        return refuse(
            EPERM,
            format!(
                "Mirroring is enabled on file system '{old}'. Disable mirroring on the file system after ensuring it's OK to do so, and then retry to rename."
            ),
        );
    }
    confirmed(
        ctx,
        "this is a potentially disruptive operation, clients' cephx credentials need reauthorized to access the file system and its pools with the new name. Add --yes-i-really-mean-it if you are sure you wish to continue.",
    )?;
    if !fs.mds_map.up.is_empty() {
        return refuse(
            EPERM,
            format!(
                "CephFS '{old}' is not offline. Before renaming a CephFS, it must be marked as down. See `ceph fs fail`."
            ),
        );
    }
    if !fs.mds_map.has_flag(mds_flag::REFUSE_CLIENT_SESSION) {
        return refuse(
            EPERM,
            format!(
                "CephFS '{old}' doesn't refuse clients. Before renaming a CephFS, flag 'refuse_client_session' must be set. See `ceph fs set`."
            ),
        );
    }
    let fscid = fs.fscid;
    let mut edit = ctx.fs_edit();
    give_name(ctx, &mut edit, fscid, new);
    commit(
        edit,
        "File system is renamed. cephx credentials authorized to old file system name need to be reauthorized to new file system name.",
    )
}

pub(super) fn swap(ctx: &mut CommandCtx<'_>) -> Run {
    confirmed(
        ctx,
        "This is a potentially disruptive operation, client's cephx credentials may need to be reauthorized to access the file systems and its pools. Add --yes-i-really-mean-it if you are sure you wish to continue.",
    )?;
    let names = [ctx.cmd.str_or_empty("fs1_name")?, ctx.cmd.str_or_empty("fs2_name")?];
    let ids = [ctx.cmd.int("fs1_id")?.unwrap_or(-1), ctx.cmd.int("fs2_id")?.unwrap_or(-1)];
    for name in names {
        ctx.may_change(name)?;
    }
    let map = &ctx.state.fsmap;
    let (a, b) = match names.map(|name| map.by_name(name)) {
        [Some(a), Some(b)] => (a, b),
        [None, None] => {
            return Err(fail(
                ENOENT,
                format!(
                    "Neither file system '{}' nor file system '{}' exists on this Ceph cluster.",
                    names[0], names[1]
                ),
            ));
        }
        [a, _] => {
            let missing = if a.is_none() { names[0] } else { names[1] };
            let why = format!("File system '{missing}' doesn't exist on this Ceph cluster.");
            return Err(fail(ENOENT, why));
        }
    };
    let real = [i64::from(a.fscid), i64::from(b.fscid)];
    match [ids[0] == real[0], ids[1] == real[1]] {
        [true, true] => {}
        [false, false] if ids == [real[1], real[0]] => {
            return ok(
                "FSCIDs provided in command arguments are swapped; perhaps `ceph fs swap` has been run before.",
            );
        }
        [false, false] => {
            return Err(fail(EINVAL, "FSCIDs provided for both the CephFSs is incorrect."));
        }
        [first, _] => {
            let name = if first { names[1] } else { names[0] };
            return Err(fail(EINVAL, format!("FSCID provided for '{name}' is incorrect.")));
        }
    }
    // What must hold of both, told for the one or for both.
    let both = |bad: [bool; 2], one: &str, two: &str| match bad {
        [false, false] => Ok(()),
        [true, true] => Err(fail(EPERM, two.replace("{1}", names[0]).replace("{2}", names[1]))),
        [first, _] => Err(fail(EPERM, one.replace("{1}", if first { names[0] } else { names[1] }))),
    };
    both(
        [a.mirror.mirrored, b.mirror.mirrored],
        "Mirroring is enabled on file system '{1}'. Disable mirroring on the file system after ensuring it's OK to do so, and then re-try swapping.",
        "Mirroring is enabled on file systems '{1}' and '{2}'. Disable mirroring on both the file systems after ensuring it's OK to do so, and then re-try swapping.",
    )?;
    both(
        [!a.mds_map.up.is_empty(), !b.mds_map.up.is_empty()],
        "CephFS '{1}' is not offline. Before swapping CephFS names, both CephFSs should be marked as failed. See `ceph fs fail`.",
        "CephFSs '{1}' and '{2}' are not offline. Before swapping CephFS names, both CephFSs should be marked as failed. See `ceph fs fail`.",
    )?;
    let refuses = |fs: &maps::Filesystem| fs.mds_map.has_flag(mds_flag::REFUSE_CLIENT_SESSION);
    both(
        [!refuses(a), !refuses(b)],
        "CephFS '{1}' doesn't refuse clients. Before swapping CephFS names, flag 'refuse_client_session' must be set. See `ceph fs set`.",
        "CephFSs '{1}' and '{2}' do not refuse clients. Before swapping CephFS names, flag 'refuse_client_session' must be set. See `ceph fs set`.",
    )?;
    let (one, two) = (a.fscid, b.fscid);
    let ids_too = ctx.cmd.str_or_empty("swap_fscids")? == "yes";
    let mut edit = ctx.fs_edit();
    give_name(ctx, &mut edit, one, names[1]);
    give_name(ctx, &mut edit, two, names[0]);
    if ids_too {
        for fs in &mut edit.map.filesystems {
            fs.fscid = match fs.fscid {
                id if id == one => two,
                id if id == two => one,
                id => id,
            };
        }
        edit.map.filesystems.sort_by_key(|fs| fs.fscid);
    }
    let what = if ids_too { "and FSCIDs " } else { "" };
    commit(
        edit,
        format!(
            "File system names {what} have been swapped; cephx credentials may need an upgrade."
        ),
    )
}
