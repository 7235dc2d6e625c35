//! What file systems there are.

use std::fmt::Write;

use super::{Run, dump};
use crate::CommandCtx;
use crate::commands::{EINVAL, ENOENT, fail, ok, out, out_rs};

pub(super) fn dump(ctx: &mut CommandCtx<'_>) -> Run {
    let epoch = ctx.cmd.int("epoch")?.unwrap_or(0);
    let map = ctx.fsmap();
    if epoch != 0 && epoch != i64::from(map.epoch.0) {
        return Err(fail(ENOENT, format!("there is no map for epoch {epoch}")));
    }
    let rs = format!("dumped fsmap epoch {}", map.epoch);
    let Some(mut f) = ctx.formatter() else { return out_rs(rs, dump::fsmap_text(&map)) };
    f.object("fsmap", |f| dump::fsmap(f, &map));
    out_rs(rs, f.finish_line())
}

pub(super) fn get(ctx: &mut CommandCtx<'_>) -> Run {
    let fs = ctx.shown_fs()?;
    let Some(mut f) = ctx.formatter() else { return out(dump::filesystem_text(fs)) };
    f.object("filesystem", |f| dump::filesystem(f, fs));
    out(f.finish_line())
}

pub(super) fn ls(ctx: &mut CommandCtx<'_>) -> Run {
    let pool = |id| ctx.osdmap().pool_name(id).unwrap_or_default();
    let map = ctx.fsmap();
    let all = &map.filesystems;
    let Some(mut f) = ctx.formatter() else {
        if all.is_empty() {
            return out("No filesystems enabled\n");
        }
        let mut t = String::new();
        for m in all.iter().map(|fs| &fs.mds_map) {
            let data: String = m.data_pools.iter().map(|id| format!("{} ", pool(*id))).collect();
            let (name, meta) = (&m.fs_name, pool(m.metadata_pool));
            let _ = writeln!(t, "name: {name}, metadata pool: {meta}, data pools: [{data}]");
        }
        return out(t);
    };
    f.array("filesystems", |f| {
        for m in all.iter().map(|fs| &fs.mds_map) {
            f.object("filesystem", |f| {
                f.string("name", &m.fs_name);
                f.string("metadata_pool", pool(m.metadata_pool));
                f.int("metadata_pool_id", m.metadata_pool.0);
                f.array("data_pool_ids", |f| {
                    for id in &m.data_pools {
                        f.int("data_pool_id", id.0);
                    }
                });
                f.array("data_pools", |f| {
                    for id in &m.data_pools {
                        f.string("data_pool", pool(*id));
                    }
                });
            });
        }
    });
    out(f.finish_line())
}

pub(super) fn lsflags(ctx: &mut CommandCtx<'_>) -> Run {
    let flags = ctx.shown_fs()?.mds_map.flags;
    let Some(mut f) = ctx.formatter() else { return out(dump::flags_text(flags) + "\n") };
    f.object("flags_state", |f| dump::flags_state(f, flags));
    out(f.finish_line())
}

pub(super) fn compat(ctx: &mut CommandCtx<'_>) -> Run {
    let compat = &ctx.shown_fs()?.mds_map.compat;
    let Some(mut f) = ctx.formatter() else { return out(dump::compat_text(compat) + "\n") };
    dump::compat(&mut f, "mds_compat", compat);
    out(f.finish_line())
}

/// What the peer's manager counts of its servers' counters is not there: they report to it, and
/// this manager keeps none of that.
pub(super) fn status(ctx: &mut CommandCtx<'_>) -> Run {
    let map = ctx.fsmap();
    let asked = ctx.cmd.str("fs")?;
    if let Some(name) = asked
        && map.by_name(name).is_none()
    {
        return Err(fail(EINVAL, format!("Invalid filesystem: {name}")));
    }
    let json = matches!(ctx.cmd.format(), "json" | "json-pretty");
    let chosen =
        || map.filesystems.iter().filter(|fs| asked.is_none_or(|n| n == fs.mds_map.fs_name));
    if map.filesystems.is_empty() && map.standby_daemons.is_empty() {
        return if json { out("{}\n") } else { ok("") };
    }
    let usage = |id: types::PoolId| ctx.volatile.pgmap.pools.get(&id);
    if json {
        let mut servers = Vec::new();
        let mut pools = Vec::new();
        for fs in chosen() {
            for info in fs.mds_map.mds_info.values() {
                servers.push(serde_json::json!({
                    "name": info.name, "rank": info.rank,
                    "state": info.state.name().trim_start_matches("up:"),
                }));
            }
            let m = &fs.mds_map;
            for (id, kind) in std::iter::once((m.metadata_pool, "metadata"))
                .chain(m.data_pools.iter().map(|id| (*id, "data")))
            {
                pools.push(serde_json::json!({
                    "id": id.0, "type": kind,
                    "name": ctx.osdmap().pool_name(id).unwrap_or_default(),
                    "used": usage(id).map_or(0, |p| p.stats.sum.num_bytes),
                }));
            }
        }
        for info in map.standby_daemons.values() {
            servers.push(serde_json::json!({"name": info.name, "state": "standby"}));
        }
        let all = serde_json::json!({"mdsmap": servers, "pools": pools});
        return out(format!("{all}\n"));
    }
    let mut t = String::new();
    for fs in chosen() {
        let m = &fs.mds_map;
        let _ = writeln!(t, "{}", m.fs_name);
        for info in m.mds_info.values() {
            let state = info.state.name().trim_start_matches("up:");
            let _ = writeln!(t, "  rank {}: {state} {}", info.rank, info.name);
        }
        for rank in m.failed.iter().chain(&m.damaged) {
            let state = if m.failed.contains(rank) { "failed" } else { "damaged" };
            let _ = writeln!(t, "  rank {rank}: {state}");
        }
        let pools = std::iter::once((m.metadata_pool, "metadata"))
            .chain(m.data_pools.iter().map(|id| (*id, "data")));
        for (id, kind) in pools {
            let bytes = usage(id).map_or(0, |p| p.stats.sum.num_bytes);
            let name = ctx.osdmap().pool_name(id).unwrap_or_default();
            let bytes = cli::bytes_u(u64::try_from(bytes).unwrap_or(0));
            let _ = writeln!(t, "  {kind} pool {name}: {bytes}");
        }
    }
    let names: Vec<&str> = map.standby_daemons.values().map(|i| i.name.as_str()).collect();
    if !names.is_empty() {
        let _ = writeln!(t, "standby: {}", names.join(" "));
    }
    out(t)
}

pub(super) fn features(ctx: &mut CommandCtx<'_>) -> Run {
    let names = maps::fs::FEATURE_NAMES.iter().enumerate();
    let Some(mut f) = ctx.formatter() else {
        return out(names.map(|(i, name)| format!("{i} {name}\n")).collect::<String>());
    };
    f.array("cephfs_features", |f| {
        for (i, name) in names {
            f.object("feature", |f| {
                f.len("index", i);
                f.string("name", name);
            });
        }
    });
    out(f.finish_line())
}

pub(super) fn volumes(ctx: &mut CommandCtx<'_>) -> Run {
    let map = ctx.fsmap();
    let all = &map.filesystems;
    if all.is_empty() {
        return out("[]\n");
    }
    let names = all.iter().map(|fs| serde_json::json!({"name": fs.mds_map.fs_name}));
    let list = serde_json::Value::Array(names.collect());
    let mut text = Vec::new();
    let pretty = serde_json::ser::PrettyFormatter::with_indent(b"    ");
    let mut to = serde_json::Serializer::with_formatter(&mut text, pretty);
    let written = serde::Serialize::serialize(&list, &mut to);
    written.map_err(|e| fail(EINVAL, e.to_string()))?;
    text.push(b'\n');
    out(text)
}
