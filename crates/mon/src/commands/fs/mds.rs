//! `mds ...`: metadata servers and their ranks.

use std::collections::BTreeSet;

use maps::{FsMap, MdsState};

use super::{Run, commit, dump, lifecycle, no_such_server, parse_bool, remove_feature};
use crate::CommandCtx;
use crate::commands::{EBUSY, EINVAL, ENOENT, EPERM, Fail, fail, mons, ok, out, out_rs};
use crate::{Outcome, Reply};

pub(super) fn run(ctx: &mut CommandCtx<'_>, what: &str) -> Run {
    match what {
        "stat" => stat(ctx),
        "metadata" => metadata(ctx),
        "versions" => {
            let own = metadata_of_all(ctx);
            out(mons::count_text(ctx, "ceph_version", own.into_iter()).finish_line())
        }
        "count-metadata" => {
            let property = ctx.cmd.str_or_empty("property")?.to_owned();
            let own = metadata_of_all(ctx);
            out(mons::count_text(ctx, &property, own.into_iter()).finish_line())
        }
        "ok-to-stop" => ok_to_stop(ctx),
        "last-seen" => last_seen(ctx),
        "fail" => fail_one(ctx),
        "rm" => remove(ctx),
        "rmfailed" => forget_failed(ctx),
        "repaired" => repaired(ctx),
        "freeze" => freeze(ctx),
        "compat show" => compat_show(ctx),
        "compat rm_compat" => compat_remove(ctx, "compat"),
        "compat rm_incompat" => compat_remove(ctx, "incompat"),
        _ => Err(fail(EINVAL, "command not known")),
    }
}

/// A role, `[fs:]rank`, as number of the file system and rank.
fn parse_role(map: &FsMap, text: &str) -> Result<(i32, i32), Fail> {
    let (fs, rank) = match text.split_once(':') {
        Some((fs, rank)) => {
            let by_id = fs.parse().ok().and_then(|id| map.by_id(id));
            let fs = by_id.or_else(|| map.by_name(fs));
            (fs.ok_or_else(|| fail(ENOENT, "Invalid filesystem"))?, rank)
        }
        None => {
            let fs = map.by_id(map.legacy_client_fscid);
            (fs.ok_or_else(|| fail(ENOENT, "No filesystem selected"))?, text)
        }
    };
    let n: i32 = rank.parse().map_err(|_| fail(EINVAL, format!("Invalid rank '{rank}'")))?;
    let m = &fs.mds_map;
    if m.r#in.contains(&n) || m.failed.contains(&n) || m.damaged.contains(&n) {
        return Ok((fs.fscid, n));
    }
    Err(fail(ENOENT, format!("Rank '{n}' not found")))
}

/// A server by rank, session or name.
fn find(map: &FsMap, who: &str) -> Option<u64> {
    if let Ok((fscid, rank)) = parse_role(map, who)
        && let Some(gid) = map.by_id(fscid).and_then(|fs| fs.mds_map.up.get(&rank))
    {
        return Some(*gid);
    }
    match who.parse::<u64>() {
        Ok(gid) => map.mds_roles.contains_key(&gid).then_some(gid),
        Err(_) => map.server_named(who).map(|info| info.gid),
    }
}

fn stat(ctx: &mut CommandCtx<'_>) -> Run {
    let map = ctx.fsmap();
    let Some(mut f) = ctx.formatter() else {
        return out(dump::summary_text(&map) + "\n");
    };
    f.object("mds_stat", |f| {
        f.object("fsmap", |f| dump::fsmap(f, &map));
        f.int("mdsmap_first_committed", 1);
        f.int("mdsmap_last_committed", map.epoch.0);
    });
    out(f.finish_line())
}

/// What every server in the map said of itself.
pub(in crate::commands) fn metadata_of_all<'a>(
    ctx: &CommandCtx<'a>,
) -> Vec<&'a std::collections::BTreeMap<String, String>> {
    let state = ctx.state;
    state.fsmap.mds_roles.keys().filter_map(|gid| state.mds_metadata.get(gid)).collect()
}

fn metadata(ctx: &mut CommandCtx<'_>) -> Run {
    let map = ctx.fsmap();
    let of = |gid: u64| ctx.state.mds_metadata.get(&gid);
    let mut f = ctx.formatter_or_pretty();
    if let Some(who) = ctx.cmd.str("who")? {
        let Some(gid) = find(&map, who) else {
            f.object("mds_metadata", |_| {});
            let why = if who.parse::<u64>().is_ok() { String::new() } else { no_such_server(who) };
            let text = f.finish_line();
            return Ok(Outcome::Reply(Reply { r: -EINVAL, rs: why, out: text.into() }));
        };
        f.object("mds_metadata", |f| {
            for (key, value) in of(gid).into_iter().flatten() {
                f.string(key, value);
            }
        });
        return out(f.finish_line());
    }
    f.array("mds_metadata", |f| {
        for info in map.servers() {
            f.object("mds", |f| {
                f.string("name", &info.name);
                for (key, value) in of(info.gid).into_iter().flatten() {
                    f.string(key, value);
                }
            });
        }
    });
    out(f.finish_line())
}

fn listed(gids: &BTreeSet<u64>) -> String {
    gids.iter().map(u64::to_string).collect::<Vec<_>>().join(",")
}

fn ok_to_stop(ctx: &mut CommandCtx<'_>) -> Run {
    let ids = ctx.cmd.list("ids")?;
    let map = ctx.fsmap();
    if ids.is_empty() {
        return Err(fail(EINVAL, "must specify mds id"));
    }
    if map.filesystems.iter().any(|fs| fs.mds_map.is_degraded()) {
        return Err(fail(EBUSY, "one or more filesystems is currently degraded"));
    }
    // Who is not there can be stopped: nothing misses it.
    let stopping: BTreeSet<u64> = ids.iter().filter_map(|id| find(&map, id)).collect();
    let (mut active, mut standby) = (BTreeSet::new(), BTreeSet::new());
    for gid in &stopping {
        let Some(info) = map.server(*gid) else { continue };
        match map.of_server(*gid) {
            None => drop(standby.insert(*gid)),
            Some(_) if info.state == MdsState::STANDBY_REPLAY => {}
            Some(fs) => {
                let follower = fs.mds_map.follower_of(info.rank).map(|i| i.gid);
                if follower.is_none_or(|gid| stopping.contains(&gid)) {
                    active.insert(*gid);
                }
            }
        }
    }
    if map.standby_daemons.len() - standby.len() < active.len() {
        return Err(fail(
            EBUSY,
            format!(
                "insufficent standby MDS daemons to stop active gids {} and/or standby gids {}",
                listed(&active),
                listed(&standby)
            ),
        ));
    }
    ok(format!("should be safe to stop [{}]", ids.join(",")))
}

fn last_seen(ctx: &mut CommandCtx<'_>) -> Run {
    let id = ctx.cmd.str_or_empty("id")?;
    if ctx.fsmap().server_named(id).is_some() {
        return out("0s\n");
    }
    match ctx.volatile.mds.left_ms(id) {
        Some(at) => {
            let ms = ctx.now.mono_ms().saturating_sub(at);
            out(format!("{}\n", cli::age(ms)))
        }
        None => Err(fail(ENOENT, format!("mds {id} not found in recent FSMaps"))),
    }
}

fn fail_one(ctx: &mut CommandCtx<'_>) -> Run {
    let who = ctx.cmd.str_or_empty("role_or_gid")?;
    let Some(gid) = find(&ctx.fsmap(), who) else {
        let unknown = if who.parse::<u64>().is_ok() { String::new() } else { no_such_server(who) };
        return ok(format!(
            "{unknown}MDS named '{who}' does not exist, is not up or you lack the permission to see."
        ));
    };
    ctx.may_change_server(gid)?;
    lifecycle::servers_may_fail(ctx)?;
    let mut edit = ctx.fs_edit();
    let name = edit.map.server(gid).map(maps::MdsInfo::human_name).unwrap_or_default();
    edit.info(format!("{name} marked failed by {}", ctx.session.name));
    edit.fail(gid);
    commit(edit, format!("failed mds gid {gid}"))
}

fn remove(ctx: &mut CommandCtx<'_>) -> Run {
    let n = ctx.cmd.need_int("gid")?;
    let gid = u64::try_from(n).unwrap_or(0);
    let Some(info) = ctx.state.fsmap.server(gid) else {
        return ok(format!("mds gid {n} does not exist"));
    };
    ctx.may_change_server(gid)?;
    if info.state.0 > 0 {
        let why = format!("cannot remove active mds.{} rank {}", info.name, info.rank);
        return Err(fail(EBUSY, why));
    }
    let mut edit = ctx.fs_edit();
    // Who makes a rank may write already.
    edit.fail(gid);
    commit(edit, format!("removed mds gid {gid}"))
}

fn forget_failed(ctx: &mut CommandCtx<'_>) -> Run {
    if !ctx.cmd.flag("yes_i_really_mean_it") {
        return Err(fail(
            EPERM,
            "WARNING: this can make your filesystem inaccessible! Add --yes-i-really-mean-it if you are sure you wish to continue.",
        ));
    }
    let role = ctx.cmd.str_or_empty("role")?;
    let (fscid, rank) = parse_role(&ctx.fsmap(), role)
        .map_err(|e| fail(EINVAL, format!("{}invalid role '{role}'", e.why)))?;
    ctx.may_change_id(fscid)?;
    let mut edit = ctx.fs_edit();
    if let Some(map) = edit.mds_map(fscid) {
        map.failed.remove(&rank);
    }
    commit(edit, format!("removed failed mds.{fscid}:{rank}"))
}

fn repaired(ctx: &mut CommandCtx<'_>) -> Run {
    let (fscid, rank) = parse_role(&ctx.fsmap(), ctx.cmd.str_or_empty("role")?)?;
    ctx.may_change_id(fscid)?;
    let mut edit = ctx.fs_edit();
    if !edit.undamaged(fscid, rank) {
        return ok("nothing to do: rank is not damaged");
    }
    commit(edit, format!("repaired: restoring rank {fscid}:{rank}"))
}

fn freeze(ctx: &mut CommandCtx<'_>) -> Run {
    let who = ctx.cmd.str_or_empty("role_or_gid")?;
    let gid = find(&ctx.fsmap(), who).ok_or_else(|| fail(EINVAL, no_such_server(who)))?;
    ctx.may_change_server(gid)?;
    let on = parse_bool(ctx.cmd.str_or_empty("val")?)?;
    let mut edit = ctx.fs_edit();
    if let Some(info) = edit.server(gid) {
        info.flags = if on { info.flags | 1 } else { info.flags & !1 };
    }
    commit(edit, format!("{} mds.{gid}", if on { "freezing" } else { "unfreezing" }))
}

fn compat_show(ctx: &mut CommandCtx<'_>) -> Run {
    let compat = &ctx.state.fsmap.default_compat;
    let Some(mut f) = ctx.formatter() else { return out(dump::compat_text(compat) + "\n") };
    dump::compat(&mut f, "mds_compat", compat);
    out(f.finish_line())
}

fn compat_remove(ctx: &mut CommandCtx<'_>, kind: &str) -> Run {
    let feature = ctx.cmd.need_int("feature")?;
    let mut edit = ctx.fs_edit();
    let there =
        u64::try_from(feature).is_ok_and(|n| remove_feature(&mut edit.map.default_compat, kind, n));
    if !there {
        let all = dump::compat_text(&ctx.state.fsmap.default_compat);
        return out_rs(format!("{kind} feature {feature} not present in {all}"), "");
    }
    edit.touch();
    commit(edit, format!("removing {kind} feature {feature}"))
}
