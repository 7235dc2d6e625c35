//! `status` and `report`.

use std::collections::BTreeMap;
use std::fmt::Write;

use cli::{bytes_u, si_u};
use maps::{ObjectStatSum, PgState};

use super::{Run, df, health, manager, mons, osd, osd_dump, out};
use crate::CommandCtx;

/// PGs by state, the most frequent first.
pub(super) fn pgs_by_state(ctx: &CommandCtx<'_>) -> Vec<(PgState, usize)> {
    let mut counts: BTreeMap<PgState, usize> = BTreeMap::new();
    for stat in ctx.volatile.pgmap.pgs.values() {
        *counts.entry(stat.state).or_default() += 1;
    }
    let mut sorted: Vec<(PgState, usize)> = counts.into_iter().collect();
    sorted.sort_by_key(|(state, count)| (std::cmp::Reverse(*count), state.to_string()));
    sorted
}

/// Sums over all pools.
pub(super) fn pool_total(ctx: &CommandCtx<'_>) -> ObjectStatSum {
    let mut sum = ObjectStatSum::default();
    for pool in ctx.volatile.pgmap.pools.values() {
        sum.add(&pool.stats.sum);
    }
    sum
}

/// PGs nobody reports, and PGs that do not serve.
fn unknown_inactive(states: &[(PgState, usize)]) -> (usize, usize) {
    let of = |fits: &dyn Fn(PgState) -> bool| {
        states.iter().filter(|(s, _)| fits(*s)).map(|(_, n)| *n).sum::<usize>()
    };
    let unknown = of(&|s| s.0 == 0);
    let inactive = of(&|s| s.0 != 0 && !s.has(PgState::ACTIVE));
    (unknown, inactive)
}

fn quorum_age(ctx: &CommandCtx<'_>) -> u64 {
    ctx.now.mono_ms().saturating_sub(ctx.volatile.quorum.since_mono_ms)
}

pub(super) fn status(ctx: &mut CommandCtx<'_>) -> Run {
    if let Some(mut f) = ctx.formatter() {
        f.object("status", |f| fields(ctx, f));
        return out(f.finish_line());
    }
    out(text(ctx))
}

fn text(ctx: &CommandCtx<'_>) -> String {
    let mut t = String::new();
    let (state, quorum) = (ctx.state, &ctx.volatile.quorum);
    let _ = writeln!(t, "  cluster:\n    id:     {}", state.fsid);
    let _ = writeln!(t, "    health: {}", health::status_lines(ctx, "            "));
    let names = mons::quorum_names(ctx);
    let services = &ctx.volatile.services.map.services;
    let longest = services.keys().map(String::len).max().unwrap_or(0).max(3);
    let (pad, width) = (" ".repeat(longest - 3), longest + 2);
    let _ = write!(
        t,
        " \n  services:\n    mon: {pad}{} daemons, quorum {} (age {}) [leader: {}]",
        state.monmap.mons.len(),
        names.join(","),
        cli::age(quorum_age(ctx)),
        quorum.leader
    );
    let out_of: Vec<&str> = state
        .monmap
        .mons
        .keys()
        .map(String::as_str)
        .filter(|n| !names.iter().any(|q| q == n))
        .collect();
    if !out_of.is_empty() {
        let _ = write!(t, ", out of quorum: {}", out_of.join(", "));
    }
    let mgr = &state.mgrmap;
    if mgr.active_gid != 0 && mgr.available {
        let ms = ctx.now.wall_ns.saturating_sub(mgr.active_change.nanos()) / 1_000_000;
        let _ = write!(t, "\n    mgr: {pad}{}(active, since {})", mgr.active_name, cli::age(ms));
        if !mgr.standbys.is_empty() {
            let names: Vec<&str> = mgr.standbys.values().map(|s| s.name.as_str()).collect();
            let _ = write!(t, ", standbys: {}", names.join(", "));
        }
    } else {
        let _ = write!(t, "\n    mgr: {pad}no daemons active");
    }
    if let Some(line) = crate::fs::health::daemons_line(&state.fsmap) {
        let _ = write!(t, "\n    mds: {pad}{line}");
    }
    let _ = writeln!(t, "\n    osd: {pad}{}", osd::summary(ctx));
    let flags = maps::OsdMapFlags(ctx.osdmap().flags.0 & !maps::OsdMapFlags::FRESH.0);
    if flags.0 != 0 {
        let _ = writeln!(t, "         {pad}flags {flags}");
    }
    for (name, service) in services {
        let _ =
            writeln!(t, "    {:width$}{}", format!("{name}: "), crate::services::summary(service));
    }
    data(ctx, &mut t);
    t
}

fn data(ctx: &CommandCtx<'_>, t: &mut String) {
    let map = ctx.osdmap();
    let sum = pool_total(ctx);
    let states = pgs_by_state(ctx);
    let pgs: usize = states.iter().map(|(_, n)| n).sum();
    let (total, avail, used) = df::totals(ctx);
    let positive = |n: i64| u64::try_from(n).unwrap_or(0);
    let _ = writeln!(t, " \n  data:");
    if let Some(line) = crate::fs::health::volumes_line(&ctx.state.fsmap) {
        let _ = writeln!(t, "    volumes: {line}");
    }
    let _ = writeln!(t, "    pools:   {} pools, {pgs} pgs", map.pools.len());
    let _ = writeln!(
        t,
        "    objects: {} objects, {}",
        si_u(positive(sum.num_objects)),
        bytes_u(positive(sum.num_bytes) + positive(sum.num_omap_bytes))
    );
    let _ = writeln!(
        t,
        "    usage:   {} used, {} / {} avail",
        bytes_u(used),
        bytes_u(avail),
        bytes_u(total)
    );
    t.push_str("    pgs:     ");
    let (unknown, inactive) = unknown_inactive(&states);
    let mut lines = Vec::new();
    for (n, what) in [(unknown, "unknown"), (inactive, "not active")] {
        if n > 0 && pgs > 0 {
            lines.push(format!("{:.3}% pgs {what}", n as f64 * 100.0 / pgs as f64));
        }
    }
    lines.extend(df::recovery_lines(&sum));
    let width = states.iter().map(|(_, n)| n.to_string().len()).max().unwrap_or(0);
    lines.extend(states.iter().map(|(state, n)| format!("{n:<width$} {state}")));
    t.push_str(&lines.join("\n             "));
    t.push_str("\n \n");
    let rates = &ctx.volatile.pgmap.rates;
    let (client, recovery) = (df::client_io(rates), df::recovery_io(rates));
    if !client.is_empty() || !recovery.is_empty() {
        t.push_str("  io:\n");
        if !client.is_empty() {
            let _ = writeln!(t, "    client:   {client}");
        }
        if !recovery.is_empty() {
            let _ = writeln!(t, "    recovery: {recovery}");
        }
        t.push_str(" \n");
    }
    if let Some(e) = &ctx.volatile.progress.event {
        let _ = writeln!(t, "  progress:\n    {}\n ", e.lines(6));
    }
}

fn fields(ctx: &CommandCtx<'_>, f: &mut cli::Formatter) {
    let (state, quorum) = (ctx.state, &ctx.volatile.quorum);
    f.display("fsid", state.fsid);
    f.object("health", |f| health::dump(ctx, f, false));
    f.int("election_epoch", quorum.election_epoch);
    f.array("quorum", |f| {
        for rank in &quorum.quorum {
            f.int("rank", *rank);
        }
    });
    f.array("quorum_names", |f| {
        for name in mons::quorum_names(ctx) {
            f.string("id", name);
        }
    });
    f.int("quorum_age", quorum_age(ctx) / 1000);
    f.object("monmap", |f| {
        f.int("epoch", state.monmap.epoch.0);
        f.string("min_mon_release_name", super::release_name(state.monmap.min_mon_release));
        f.len("num_mons", state.monmap.mons.len());
    });
    f.object("osdmap", |f| osd::dump_summary(ctx, f));
    f.object("pgmap", |f| pgmap(ctx, f));
    f.object("fsmap", |f| {
        super::fs::summary(f, &state.fsmap);
    });
    f.object("mgrmap", |f| {
        f.bool("available", state.mgrmap.available);
        f.len("num_standbys", state.mgrmap.standbys.len());
        f.array("modules", |f| {
            for module in &state.mgrmap.modules {
                f.string("module", module);
            }
        });
        f.object("services", |f| {
            for (name, url) in &state.mgrmap.services {
                f.string(name, url);
            }
        });
    });
    manager::service_map(ctx, f, "servicemap");
    f.object("progress_events", |f| {
        if let Some(e) = &ctx.volatile.progress.event {
            f.object(&e.id.to_string(), |f| {
                f.string("message", e.lines(6));
                f.float("progress", e.progress);
                f.bool("add_to_ceph_s", true);
            });
        }
    });
}

/// The peer prints this time with a colon before the fraction.
pub(super) fn fs_time(time: types::UTime) -> String {
    let text = time.to_string();
    match text.rfind('.') {
        Some(at) if text.contains('T') => format!("{}:{}", &text[..at], &text[at + 1..]),
        _ => text,
    }
}

/// The fields of PGs, space and traffic.
fn pgmap(ctx: &CommandCtx<'_>, f: &mut cli::Formatter) {
    let states = pgs_by_state(ctx);
    let pgs: usize = states.iter().map(|(_, n)| n).sum();
    let sum = pool_total(ctx);
    let (total, avail, used) = df::totals(ctx);
    f.array("pgs_by_state", |f| {
        for (state, count) in &states {
            f.object("pgs_by_state_element", |f| {
                f.display("state_name", state);
                f.len("count", *count);
            });
        }
    });
    f.len("num_pgs", pgs);
    f.len("num_pools", ctx.osdmap().pools.len());
    f.int("num_objects", sum.num_objects);
    f.int("data_bytes", sum.num_bytes + sum.num_omap_bytes);
    f.int("bytes_used", used);
    f.int("bytes_avail", avail);
    f.int("bytes_total", total);
    let (unknown, inactive) = unknown_inactive(&states);
    if pgs > 0 && unknown > 0 {
        f.float("unknown_pgs_ratio", unknown as f64 / pgs as f64);
    }
    if pgs > 0 && inactive > 0 {
        f.float("inactive_pgs_ratio", inactive as f64 / pgs as f64);
    }
    df::dump_recovery(f, &sum);
    df::dump_recovery_io(f, &ctx.volatile.pgmap.rates);
    df::dump_client_io(f, &ctx.volatile.pgmap.rates);
}

pub(super) fn report(ctx: &mut CommandCtx<'_>) -> Run {
    let mut f = ctx.formatter_or_pretty();
    f.object("report", |f| {
        f.display("cluster_fingerprint", ctx.state.fsid);
        f.string("version", mons::version(ctx));
        f.string("commit", "");
        f.display("timestamp", ctx.wall());
        f.object("health", |f| health::dump(ctx, f, true));
        f.int("monmap_first_committed", 1);
        f.int("monmap_last_committed", ctx.state.monmap.epoch.0);
        f.object("monmap", |f| mons::dump_monmap(f, &ctx.state.monmap));
        f.array("quorum", |f| {
            for rank in &ctx.volatile.quorum.quorum {
                f.int("rank", *rank);
            }
        });
        f.int("osdmap_first_committed", ctx.state.osd_history.first.0);
        f.int("osdmap_last_committed", ctx.state.osd_history.last.0);
        f.object("osdmap", |f| osd_dump::dump(f, ctx.osdmap()));
        f.object("pgmap", |f| pgmap(ctx, f));
    });
    out(f.finish())
}
