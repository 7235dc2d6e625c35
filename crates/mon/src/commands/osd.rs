//! `osd ...` that only looks.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use bytes::Bytes;
use cli::{Align, TextTable};
use maps::OsdMap;
use types::{Epoch, ObjectLocator, OsdId, PgId};

use super::{
    EAGAIN, EBUSY, EINVAL, ENOENT, Fail, OsdWord, Run, dump_addrvec, fail, legacy_text, ok,
    osd_dump, osd_list, osd_word, out, out_rs, pg, release_name, tree,
};
use crate::CommandCtx;

pub(super) fn run(ctx: &mut CommandCtx<'_>, what: &str) -> Run {
    match what {
        "dump" => dump(ctx),
        "stat" => stat(ctx),
        "ls" => ls(ctx),
        "ls-tree" => ls_tree(ctx),
        "tree" => tree::osd_tree(ctx, None),
        "tree-from" => {
            let bucket = ctx.cmd.str_or_empty("bucket")?.to_owned();
            tree::osd_tree(ctx, Some(&bucket))
        }
        "df" => tree::osd_df(ctx),
        "getmap" => getmap(ctx),
        "getmaxosd" => getmaxosd(ctx),
        "find" => find(ctx),
        "info" => info(ctx),
        "map" => map_object(ctx),
        "metadata" => metadata(ctx),
        "count-metadata" => {
            let property = ctx.cmd.str_or_empty("property")?.to_owned();
            super::mons::count(ctx, &property, ctx.state.osd_metadata.values())
        }
        "versions" => super::mons::count(ctx, "ceph_version", ctx.state.osd_metadata.values()),
        "perf" => perf(ctx),
        "blocked-by" => blocked_by(ctx),
        "blocklist ls" | "blacklist ls" => blocklist_ls(ctx),
        "get-require-min-compat-client" => {
            out(format!("{}\n", release_name(ctx.osdmap().require_min_compat_client)))
        }
        "last-stat-seq" => {
            let osd = ctx.cmd.need_osd("id")?;
            let seq = ctx.volatile.pgmap.osds.get(&osd).map_or(0, |s| s.seq);
            out(format!("{seq}\n"))
        }
        "utilization" => utilization(ctx),
        "numa-status" => numa_status(ctx),
        "ok-to-stop" => ok_to_stop(ctx),
        "safe-to-destroy" => safe_to_destroy(ctx),
        "scrub" | "deep-scrub" | "repair" => pg::scrub_osd(ctx, what),
        "status" => status(ctx),
        _ => Err(fail(EINVAL, "command not known")),
    }
}

/// The OSD map of an epoch: the newest, or one out of history.
pub(super) fn map_at(ctx: &CommandCtx<'_>) -> Result<OsdMap, Fail> {
    let Some(epoch) = ctx.cmd.int("epoch")?.filter(|e| *e != 0) else {
        return Ok(ctx.osdmap().clone());
    };
    let missing = || fail(ENOENT, format!("there is no map for epoch {epoch}"));
    let epoch = u32::try_from(epoch).map(Epoch).map_err(|_| missing())?;
    if epoch == ctx.osdmap().epoch {
        return Ok(ctx.osdmap().clone());
    }
    ctx.state.osd_history.map(epoch).ok_or_else(missing)
}

fn dump(ctx: &mut CommandCtx<'_>) -> Run {
    let map = map_at(ctx)?;
    let Some(mut f) = ctx.formatter() else { return out(osd_dump::text(&map)) };
    f.object("osdmap", |f| osd_dump::dump(f, &map));
    out(f.finish_line())
}

fn getmap(ctx: &mut CommandCtx<'_>) -> Run {
    let map = map_at(ctx)?;
    let bytes = map.encode_with_crc(ctx.session.features).0;
    out_rs(format!("got osdmap epoch {}", map.epoch), bytes)
}

/// `(since 2m)`, empty when never.
fn since(ctx: &CommandCtx<'_>, stamp: types::UTime) -> String {
    if stamp.is_zero() {
        return String::new();
    }
    let ms = ctx.now.wall_ns.saturating_sub(stamp.nanos()) / 1_000_000;
    format!(" (since {})", cli::age(ms))
}

/// `3 osds: 3 up (since 2m), 3 in (since 2m)`.
pub(super) fn summary(ctx: &CommandCtx<'_>) -> String {
    let map = ctx.osdmap();
    let (all, up, inn) = map.osd_counts();
    let remapped = remapped(ctx);
    let mut text = format!(
        "{all} osds: {up} up{}, {inn} in{}",
        since(ctx, map.last_up_change),
        since(ctx, map.last_in_change)
    );
    if remapped > 0 {
        let _ = write!(text, "; {remapped} remapped pgs");
    }
    text
}

/// PGs that are not where CRUSH puts them.
fn remapped(ctx: &CommandCtx<'_>) -> usize {
    ctx.volatile.mapping.iter().filter(|(_, sets)| sets.up != sets.acting).count()
}

/// The fields of `osd stat`, behind the epoch.
pub(super) fn dump_summary(ctx: &CommandCtx<'_>, f: &mut cli::Formatter) {
    let map = ctx.osdmap();
    let (all, up, inn) = map.osd_counts();
    f.int("epoch", map.epoch.0);
    f.len("num_osds", all);
    f.len("num_up_osds", up);
    f.int("osd_up_since", map.last_up_change.sec);
    f.len("num_in_osds", inn);
    f.int("osd_in_since", map.last_in_change.sec);
    f.len("num_remapped_pgs", remapped(ctx));
}

fn stat(ctx: &mut CommandCtx<'_>) -> Run {
    let Some(mut f) = ctx.formatter() else {
        let mut text = format!("{}; epoch: e{}\n", summary(ctx), ctx.osdmap().epoch);
        let shown = ctx.osdmap().flags;
        let always = maps::OsdMapFlags::FRESH.0;
        let rest = maps::OsdMapFlags(shown.0 & !always);
        if rest.0 != 0 {
            let _ = writeln!(text, "flags {rest}");
        }
        return out(text);
    };
    f.object("osdmap", |f| dump_summary(ctx, f));
    out(f.finish())
}

fn dump_ids(ctx: &CommandCtx<'_>, ids: &BTreeSet<i32>) -> Run {
    let Some(mut f) = ctx.formatter() else {
        let mut text = String::new();
        for id in ids {
            let _ = writeln!(text, "{id}");
        }
        return out(text);
    };
    f.array("osds", |f| {
        for id in ids {
            f.int("osd", *id);
        }
    });
    out(f.finish_line())
}

fn ls(ctx: &mut CommandCtx<'_>) -> Run {
    let map = map_at(ctx)?;
    let ids: BTreeSet<i32> = map.osds().map(|o| o.0).collect();
    dump_ids(ctx, &ids)
}

fn ls_tree(ctx: &mut CommandCtx<'_>) -> Run {
    let name = ctx.cmd.str_or_empty("name")?;
    let map = ctx.osdmap();
    let Some(id) = map.crush.names().id(name) else {
        return Err(fail(ENOENT, format!("\"{name}\" does not exist")));
    };
    dump_ids(ctx, &map.crush.leaves(id))
}

fn getmaxosd(ctx: &mut CommandCtx<'_>) -> Run {
    let map = ctx.osdmap();
    let Some(mut f) = ctx.formatter() else {
        return out(format!("max_osd = {} in epoch {}\n", map.max_osd, map.epoch));
    };
    f.object("getmaxosd", |f| {
        f.int("epoch", map.epoch.0);
        f.int("max_osd", map.max_osd);
    });
    out(f.finish())
}

/// An OSD of the map that an argument names.
fn need_osd(ctx: &CommandCtx<'_>, name: &str) -> Result<OsdId, Fail> {
    let osd = ctx.cmd.need_osd(name)?;
    if !ctx.osdmap().exists(osd) {
        return Err(fail(ENOENT, format!("osd.{osd} does not exist")));
    }
    Ok(osd)
}

fn find(ctx: &mut CommandCtx<'_>) -> Run {
    let osd = need_osd(ctx, "id")?;
    let map = ctx.osdmap();
    let mut f = ctx.formatter_or_pretty();
    f.object("osd_location", |f| {
        f.int("osd", osd.0);
        let empty = types::AddrVec::default();
        dump_addrvec(f, "addrs", map.osd_addrs(osd).unwrap_or(&empty));
        f.display("osd_fsid", map.uuid(osd));
        if let Some(meta) = ctx.state.osd_metadata.get(&osd) {
            if let Some(host) = meta.get("hostname") {
                f.string("host", host);
            }
            for key in ["pod_name", "pod_namespace", "container_name"] {
                if let Some(value) = meta.get(key) {
                    f.string(key, value);
                }
            }
        }
        f.object("crush_location", |f| {
            for (kind, name) in map.crush.full_location(osd.0) {
                f.string(&kind, name);
            }
        });
    });
    out(f.finish())
}

fn info(ctx: &mut CommandCtx<'_>) -> Run {
    let map = ctx.osdmap();
    let osds: Vec<OsdId> =
        if ctx.cmd.has("id") { vec![need_osd(ctx, "id")?] } else { map.osds().collect() };
    let one = ctx.cmd.has("id");
    let Some(mut f) = ctx.formatter() else {
        let mut text = String::new();
        for osd in osds {
            osd_dump::osd_line(&mut text, map, osd);
        }
        return out(text);
    };
    if one {
        for osd in osds {
            osd_dump::dump_osd(&mut f, map, osd);
        }
    } else {
        f.array("osds", |f| {
            for osd in osds {
                osd_dump::dump_osd(f, map, osd);
            }
        });
    }
    out(f.finish_line())
}

fn map_object(ctx: &mut CommandCtx<'_>) -> Run {
    let map = ctx.osdmap();
    let pool = ctx.cmd.str_or_empty("pool")?;
    let object = ctx.cmd.str_or_empty("object")?;
    let nspace = ctx.cmd.str_or_empty("nspace")?;
    let Some(id) = map.pool_by_name(pool) else {
        return Err(fail(ENOENT, format!("pool {pool} does not exist")));
    };
    let locator =
        ObjectLocator { pool: id, nspace: nspace.to_owned().into(), ..ObjectLocator::default() };
    let raw = map.object_to_raw_pg(object.as_bytes(), &locator);
    let Some((raw, pgid)) = raw.and_then(|raw| Some((raw, map.raw_pg_to_pg(raw)?))) else {
        return Err(fail(EINVAL, format!("'{object}' cannot be mapped")));
    };
    let sets = map.pg_to_up_acting(pgid);
    let shown = if nspace.is_empty() { object.to_owned() } else { format!("{nspace}/{object}") };
    let primary = |p: Option<OsdId>| p.map_or(-1, |o| o.0);
    let Some(mut f) = ctx.formatter() else {
        return out(format!(
            "osdmap e{} pool '{pool}' ({id}) object '{shown}' -> pg {raw} ({pgid}) -> up ({}, p{}) acting ({}, p{})\n",
            map.epoch,
            osd_list(&sets.up, "NONE"),
            primary(sets.up_primary),
            osd_list(&sets.acting, "NONE"),
            primary(sets.acting_primary),
        ));
    };
    f.object("osd_map", |f| {
        f.int("epoch", map.epoch.0);
        f.string("pool", pool);
        f.int("pool_id", id.0);
        f.string("objname", &shown);
        f.display("raw_pgid", raw);
        f.display("pgid", pgid);
        for (name, osds, first) in
            [("up", &sets.up, sets.up_primary), ("acting", &sets.acting, sets.acting_primary)]
        {
            f.array(name, |f| {
                for osd in osds {
                    f.int("osd", osd.0);
                }
            });
            f.int(&format!("{name}_primary"), primary(first));
        }
    });
    out(f.finish())
}

fn dump_metadata(f: &mut cli::Formatter, osd: OsdId, meta: &BTreeMap<String, String>) {
    f.int("id", osd.0);
    for (key, value) in meta {
        f.string(key, value);
    }
}

fn metadata(ctx: &mut CommandCtx<'_>) -> Run {
    let mut f = ctx.formatter_or_pretty();
    if ctx.cmd.has("id") {
        let osd = need_osd(ctx, "id")?;
        let none = BTreeMap::new();
        let meta = ctx.state.osd_metadata.get(&osd).unwrap_or(&none);
        f.object("osd_metadata", |f| dump_metadata(f, osd, meta));
        return out(f.finish());
    }
    let none = BTreeMap::new();
    f.array("osd_metadata", |f| {
        for osd in ctx.osdmap().osds() {
            let meta = ctx.state.osd_metadata.get(&osd).unwrap_or(&none);
            f.object("osd", |f| dump_metadata(f, osd, meta));
        }
    });
    out(f.finish())
}

fn perf(ctx: &mut CommandCtx<'_>) -> Run {
    let osds = &ctx.volatile.pgmap.osds;
    let Some(mut f) = ctx.formatter() else {
        let mut table = TextTable::with(&[
            ("osd", Align::Left, Align::Right),
            ("commit_latency(ms)", Align::Left, Align::Right),
            ("apply_latency(ms)", Align::Left, Align::Right),
        ]);
        for (osd, stat) in osds {
            let perf = &stat.os_perf_stat;
            table.row(vec![
                osd.to_string(),
                (perf.commit_latency_ns / 1_000_000).to_string(),
                (perf.apply_latency_ns / 1_000_000).to_string(),
            ]);
        }
        return out(table.render());
    };
    f.object("pg_info", |f| {
        f.bool("pg_ready", true);
        f.object("osdstats", |f| {
            f.array("osd_perf_infos", |f| {
                for (osd, stat) in osds {
                    let perf = &stat.os_perf_stat;
                    f.object("osd", |f| {
                        f.int("id", osd.0);
                        f.object("perf_stats", |f| {
                            f.int("commit_latency_ms", perf.commit_latency_ns / 1_000_000);
                            f.int("apply_latency_ms", perf.apply_latency_ns / 1_000_000);
                            f.int("commit_latency_ns", perf.commit_latency_ns);
                            f.int("apply_latency_ns", perf.apply_latency_ns);
                        });
                    });
                }
            });
        });
    });
    out(f.finish())
}

fn blocked_by(ctx: &mut CommandCtx<'_>) -> Run {
    let mut counts: BTreeMap<OsdId, u32> = BTreeMap::new();
    for pg in ctx.volatile.pgmap.pgs.values() {
        for osd in &pg.blocked_by {
            *counts.entry(*osd).or_default() += 1;
        }
    }
    let Some(mut f) = ctx.formatter() else {
        let mut table = TextTable::with(&[
            ("osd", Align::Left, Align::Right),
            ("num_blocked", Align::Left, Align::Right),
        ]);
        for (osd, count) in counts {
            table.row(vec![osd.to_string(), count.to_string()]);
        }
        return out(table.render());
    };
    f.object("pg_info", |f| {
        f.bool("pg_ready", true);
        f.object("osd_blocked_by", |f| {
            f.array("osd_blocked_by_infos", |f| {
                for (osd, count) in counts {
                    f.object("osd", |f| {
                        f.int("id", osd.0);
                        f.int("num_blocked", count);
                    });
                }
            });
        });
    });
    out(f.finish())
}

fn blocklist_ls(ctx: &mut CommandCtx<'_>) -> Run {
    let map = ctx.osdmap();
    let rs = format!("listed {} entries", map.blocklist.len() + map.range_blocklist.len());
    let Some(mut f) = ctx.formatter() else {
        let mut text = String::new();
        for (addr, until) in map.blocklist.iter() {
            let _ = writeln!(text, "{} {until}", legacy_text(addr));
        }
        for (addr, until) in &map.range_blocklist {
            let _ = writeln!(text, "{addr} {until}");
        }
        return out_rs(rs, text);
    };
    f.array("blocklist", |f| {
        for (addr, until) in map.blocklist.iter() {
            f.object("entry", |f| {
                f.string("addr", legacy_text(addr));
                f.display("until", until);
            });
        }
        // The peer writes these as a second document, which no json reader takes.
        for (addr, until) in &map.range_blocklist {
            f.object("entry", |f| {
                f.string("range", addr.to_string().trim_start_matches("cidr:"));
                f.display("until", until);
            });
        }
    });
    out_rs(rs, f.finish())
}

/// PGs by OSD that are in, as the map places them.
fn pgs_by_osd(ctx: &CommandCtx<'_>) -> BTreeMap<OsdId, u32> {
    let map = ctx.osdmap();
    let mut counts: BTreeMap<OsdId, u32> =
        map.osds().filter(|o| map.is_in(*o)).map(|o| (o, 0)).collect();
    for (_, sets) in ctx.volatile.mapping.iter() {
        for osd in &sets.up {
            if let Some(count) = counts.get_mut(osd) {
                *count += 1;
            }
        }
    }
    counts
}

fn utilization(ctx: &mut CommandCtx<'_>) -> Run {
    let counts = pgs_by_osd(ctx);
    let n = counts.len() as f64;
    if counts.is_empty() {
        return out("");
    }
    let total: u32 = counts.values().sum();
    let avg = f64::from(total) / n;
    let dev = (counts.values().map(|c| (f64::from(*c) - avg).powi(2)).sum::<f64>() / n).sqrt();
    let expected = (f64::from(total) * (1.0 / n) * (1.0 - 1.0 / n)).sqrt();
    let min = counts.iter().min_by_key(|(_, c)| **c).map_or((OsdId(-1), 0), |(o, c)| (*o, *c));
    let max =
        counts.iter().rev().max_by_key(|(_, c)| **c).map_or((OsdId(-1), 0), |(o, c)| (*o, *c));
    let g = |v: f64| cli::float_text(v, 6);
    let Some(mut f) = ctx.formatter() else {
        let share = |count: u32| if avg > 0.0 { f64::from(count) / avg } else { 0.0 };
        return out(format!(
            "avg {}\nstddev {} (expected baseline {})\nmin osd.{} with {} pgs ({} * mean)\nmax osd.{} with {} pgs ({} * mean)\n",
            g(avg),
            g(dev),
            g(expected),
            min.0,
            min.1,
            g(share(min.1)),
            max.0,
            max.1,
            g(share(max.1))
        ));
    };
    f.object("utilization", |f| {
        f.float("avg_pgs", avg);
        f.float("std_dev", dev);
        f.float("expected_baseline_std_dev", expected);
        f.int("min_osd", min.0.0);
        f.int("min_osd_pgs", min.1);
        f.int("max_osd", max.0.0);
        f.int("max_osd_pgs", max.1);
    });
    out(f.finish())
}

fn numa_status(ctx: &mut CommandCtx<'_>) -> Run {
    let map = ctx.osdmap();
    let host = |osd: OsdId| {
        let meta = ctx.state.osd_metadata.get(&osd);
        meta.and_then(|m| m.get("hostname")).cloned().unwrap_or_default()
    };
    let Some(mut f) = ctx.formatter() else {
        let mut table = TextTable::with(&[
            ("OSD", Align::Left, Align::Right),
            ("HOST", Align::Left, Align::Left),
            ("NETWORK", Align::Right, Align::Right),
            ("STORAGE", Align::Right, Align::Right),
            ("AFFINITY", Align::Right, Align::Right),
            ("CPUS", Align::Left, Align::Left),
        ]);
        for osd in map.osds().filter(|o| map.is_up(*o)) {
            let dash = || "-".to_owned();
            table.row(vec![osd.to_string(), host(osd), dash(), dash(), dash(), dash()]);
        }
        return out(table.render());
    };
    f.array("osds", |f| {
        for osd in map.osds().filter(|o| map.is_up(*o)) {
            f.object("osd", |f| {
                f.int("osd", osd.0);
                f.string("host", host(osd));
            });
        }
    });
    out(f.finish())
}

/// The OSDs an argument lists.
pub(super) fn osds_of(ctx: &CommandCtx<'_>, name: &str) -> Result<BTreeSet<OsdId>, Fail> {
    let map = ctx.osdmap();
    let mut osds = BTreeSet::new();
    for word in ctx.cmd.list(name)? {
        match osd_word(&word) {
            Ok(OsdWord::All) => osds.extend(map.osds()),
            Ok(OsdWord::One(osd)) => {
                osds.insert(osd);
            }
            Err(_) => {
                let why = format!("Expected option value to be integer, got '{word}'");
                return Err(fail(EINVAL, format!("{why}invalid osd id '{word}'")));
            }
        }
    }
    if osds.is_empty() {
        return Err(fail(EINVAL, "must specify one or more OSDs"));
    }
    Ok(osds)
}

/// PGs by what stopping some OSDs would do to them.
#[derive(Default)]
struct Stopping {
    already_inactive: Vec<PgId>,
    become_inactive: Vec<PgId>,
    become_degraded: Vec<PgId>,
    become_more_degraded: Vec<PgId>,
    untroubled: usize,
}

impl Stopping {
    fn of(ctx: &CommandCtx<'_>, osds: &BTreeSet<OsdId>) -> Self {
        let mut out = Self::default();
        for (pgid, stat) in &ctx.volatile.pgmap.pgs {
            let Some(pool) = ctx.osdmap().pool(pgid.pool) else { continue };
            if !stat.acting.iter().any(|o| osds.contains(o)) {
                continue;
            }
            let there = stat.acting.iter().filter(|o| **o != OsdId::NONE).count();
            let left =
                stat.acting.iter().filter(|o| **o != OsdId::NONE && !osds.contains(o)).count();
            if !stat.state.has(maps::PgState::ACTIVE) {
                out.already_inactive.push(*pgid);
            } else if left < usize::from(pool.min_size) {
                out.become_inactive.push(*pgid);
            } else if there < usize::from(pool.size) {
                out.become_more_degraded.push(*pgid);
            } else if left < usize::from(pool.size) {
                out.become_degraded.push(*pgid);
            } else {
                out.untroubled += 1;
            }
        }
        out
    }

    fn bad(&self) -> usize {
        self.already_inactive.len() + self.become_inactive.len()
    }

    fn good(&self) -> usize {
        self.untroubled + self.become_degraded.len() + self.become_more_degraded.len()
    }
}

fn ok_to_stop(ctx: &mut CommandCtx<'_>) -> Run {
    let osds = osds_of(ctx, "ids")?;
    let stopping = Stopping::of(ctx, &osds);
    let fine = stopping.bad() == 0;
    // The peer's plain form is json.
    let mut f = ctx.formatter().unwrap_or_else(cli::Formatter::json);
    f.object("ok_to_stop", |f| {
        f.bool("ok_to_stop", fine);
        f.array("osds", |f| {
            for osd in &osds {
                f.int("osd", osd.0);
            }
        });
        f.len("num_ok_pgs", stopping.good());
        f.len("num_not_ok_pgs", stopping.bad());
        for (name, pgs) in [
            ("bad_already_inactive", &stopping.already_inactive),
            ("bad_become_inactive", &stopping.become_inactive),
            ("ok_become_degraded", &stopping.become_degraded),
            ("ok_become_more_degraded", &stopping.become_more_degraded),
        ] {
            if !pgs.is_empty() {
                f.array(name, |f| {
                    for pgid in pgs {
                        f.display("pgid", pgid);
                    }
                });
            }
        }
    });
    let text = f.finish_line();
    if fine {
        return out(text);
    }
    let why = format!(
        "unsafe to stop osd(s) at this time ({} PGs are or would become offline)",
        stopping.bad()
    );
    Ok(crate::Outcome::Reply(crate::Reply { r: -EBUSY, rs: why, out: Bytes::from(text) }))
}

fn safe_to_destroy(ctx: &mut CommandCtx<'_>) -> Run {
    let osds = osds_of(ctx, "ids")?;
    let map = ctx.osdmap();
    let (mut active, mut missing, mut stored) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    let mut safe = BTreeSet::new();
    let mut pg_count = 0;
    let clean = ctx
        .volatile
        .pgmap
        .pgs
        .values()
        .all(|s| s.state.has(maps::PgState::ACTIVE) && s.state.has(maps::PgState::CLEAN));
    for osd in &osds {
        if !map.exists(*osd) {
            safe.insert(osd.0);
            continue;
        }
        let pgs = ctx.volatile.pgmap.pgs.values();
        let here = pgs.filter(|s| s.up.contains(osd) || s.acting.contains(osd)).count();
        // What a dead one said last may be older than what it holds; that of one that is out is gone.
        let said = ctx.volatile.pgmap.osds.get(osd).filter(|_| map.is_up(*osd));
        let held = said.map(|s| s.num_pgs);
        if here > 0 {
            active.insert(osd.0);
            pg_count += here;
        } else if let Some(n) = held.filter(|n| *n > 0 && !clean) {
            stored.insert(osd.0);
            pg_count += n as usize;
        } else if held.is_none() && !clean {
            missing.insert(osd.0);
        } else {
            safe.insert(osd.0);
        }
    }
    let list = |set: &BTreeSet<i32>| set.iter().map(i32::to_string).collect::<Vec<_>>().join(",");
    if let Some(mut f) = ctx.formatter() {
        f.object("osd_status", |f| {
            for (name, set) in [
                ("safe_to_destroy", &safe),
                ("active", &active),
                ("missing_stats", &missing),
                ("stored_pgs", &stored),
            ] {
                f.array(name, |f| {
                    for osd in set {
                        f.int("osd", *osd);
                    }
                });
            }
        });
        return out(f.finish());
    }
    if !active.is_empty() {
        let why =
            format!("OSD(s) {} have {pg_count} pgs currently mapped to them. ", list(&active));
        return Err(fail(EBUSY, why));
    }
    if !missing.is_empty() {
        let why = format!(
            "OSD(s) {} have no reported stats, and not all PGs are active+clean; we cannot draw any conclusions. ",
            list(&missing)
        );
        return Err(fail(EAGAIN, why));
    }
    if !stored.is_empty() {
        let why = format!(
            "OSD(s) {} last reported they still store some PG data, and not all PGs are active+clean; we cannot be sure they aren't still needed.",
            list(&stored)
        );
        return Err(fail(EBUSY, why));
    }
    ok(format!("OSD(s) {} are safe to destroy without reducing data durability.", list(&safe)))
}

fn status(ctx: &mut CommandCtx<'_>) -> Run {
    let map = ctx.osdmap();
    let mut table = TextTable::with(&[
        ("ID", Align::Left, Align::Right),
        ("HOST", Align::Left, Align::Left),
        ("USED", Align::Right, Align::Right),
        ("AVAIL", Align::Right, Align::Right),
        ("STATE", Align::Left, Align::Left),
    ]);
    for osd in map.osds() {
        let host = ctx.state.osd_metadata.get(&osd).and_then(|m| m.get("hostname")).cloned();
        let statfs = ctx.volatile.pgmap.osds.get(&osd).map(|s| s.statfs).unwrap_or_default();
        table.row(vec![
            osd.to_string(),
            host.unwrap_or_default(),
            cli::bytes_u(statfs.used()),
            cli::bytes_u(statfs.available),
            map.state(osd).to_string(),
        ]);
    }
    out(table.render())
}
