//! `pg ...`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use maps::{PgStat, PgState};
use messages::{Envelope, ForceRecovery, Message, ScrubRequest};
use types::{OsdId, PgId, PoolId};

use super::{
    EAGAIN, EINVAL, ENOENT, Fail, Run, df, fail, osd_list, out, out_rs, pg_dump, status, upmap,
};
use crate::{CommandCtx, Outcome, Reply};

/// Milliseconds after which a PG in an unwanted state is stuck; `mon_pg_stuck_threshold`.
const STUCK_SECS: i64 = 60;

pub(super) fn run(ctx: &mut CommandCtx<'_>, what: &str) -> Run {
    match what {
        "stat" => stat(ctx),
        "dump" => dump(ctx),
        "dump_json" => {
            let words = ctx.cmd.list("dumpcontents")?;
            dump_as(ctx, Some(cli::Formatter::json()), &words)
        }
        "dump_pools_json" => dump_as(ctx, Some(cli::Formatter::json()), &["pools".to_owned()]),
        "ls" | "ls-by-pool" | "ls-by-osd" | "ls-by-primary" => ls(ctx, what),
        "dump_stuck" => dump_stuck(ctx),
        "map" => map(ctx),
        "debug" => debug(ctx),
        "scrub" | "deep-scrub" | "repair" => scrub(ctx, what),
        "force-recovery" | "force-backfill" | "cancel-force-recovery" | "cancel-force-backfill" => {
            force(ctx, what)
        }
        _ => Err(fail(EINVAL, "command not known")),
    }
}

fn scrub(ctx: &mut CommandCtx<'_>, what: &str) -> Run {
    let text = ctx.cmd.str_or_empty("pgid")?;
    let pg: PgId = text.parse().map_err(|_| fail(EINVAL, format!("invalid pgid '{text}'")))?;
    if !ctx.osdmap().have_pg(pg) {
        return Err(fail(ENOENT, format!("pg {pg} does not exist")));
    }
    let primary = ctx.osdmap().pg_to_up_acting(pg).acting_primary;
    let Some(osd) = primary.filter(|o| ctx.osdmap().is_up(*o)) else {
        return Err(fail(EAGAIN, format!("pg {pg} has no primary osd")));
    };
    let order = scrub_order(what, vec![pg]);
    Ok(Outcome::Send {
        to: vec![(osd, order)],
        then: Reply::ok(format!("instructing pg {pg} on osd.{osd} to {what}")),
    })
}

fn scrub_order(what: &str, pgs: Vec<PgId>) -> Envelope {
    let m = ScrubRequest { pgs, deep: what != "scrub", repair: what == "repair" };
    m.envelope(denc::Features::ALL)
}

pub(super) fn scrub_osd(ctx: &mut CommandCtx<'_>, what: &str) -> Run {
    let who = ctx.cmd.str_or_empty("who")?;
    if !matches!(who, "*" | "all" | "any") {
        let osd = ctx.cmd.need_osd("who").map_err(|_| {
            fail(
                EINVAL,
                format!("Expected option value to be integer, got '{who}'invalid osd '{who}'"),
            )
        })?;
        if !ctx.osdmap().is_up(osd) {
            return Err(fail(EAGAIN, format!("osd.{osd} is not up")));
        }
        return Ok(Outcome::Send {
            to: vec![(osd, scrub_order(what, Vec::new()))],
            then: Reply::ok(format!("instructed osd(s) {osd} to {what}")),
        });
    }
    let map = ctx.osdmap();
    let up: Vec<OsdId> = map.osds().filter(|o| map.is_up(*o)).collect();
    let names: Vec<String> = up.iter().map(ToString::to_string).collect();
    Ok(Outcome::Send {
        to: up.into_iter().map(|o| (o, scrub_order(what, Vec::new()))).collect(),
        then: Reply::ok(format!("instructed osd(s) {} to {what}", names.join(","))),
    })
}

pub(super) fn scrub_pools(ctx: &mut CommandCtx<'_>, what: &str) -> Run {
    let mut by_osd: BTreeMap<OsdId, Vec<PgId>> = BTreeMap::new();
    for name in ctx.cmd.list("who")? {
        let map = ctx.osdmap();
        let id = map.pool_by_name(&name);
        let Some((id, pool)) = id.and_then(|id| Some((id, map.pool(id)?))) else {
            return Err(fail(ENOENT, format!("unrecognized pool '{name}'")));
        };
        for ps in 0..pool.pg_num {
            let pg = PgId { pool: id, ps };
            let primary = map.pg_to_up_acting(pg).acting_primary;
            if let Some(osd) = primary.filter(|o| map.is_up(*o)) {
                by_osd.entry(osd).or_default().push(pg);
            }
        }
    }
    let to = by_osd.into_iter().map(|(osd, pgs)| (osd, scrub_order(what, pgs))).collect();
    Ok(Outcome::Send { to, then: Reply::default() })
}

/// `pg force-recovery PG...` and its kin.
fn force(ctx: &mut CommandCtx<'_>, what: &str) -> Run {
    let mut pgs = Vec::new();
    for text in ctx.cmd.list("pgid")? {
        let pg: PgId = text.parse().map_err(|_| fail(EINVAL, format!("invalid pgid '{text}'")))?;
        if !ctx.osdmap().have_pg(pg) {
            return Err(fail(ENOENT, format!("pg {pg} does not exist")));
        }
        pgs.push(pg);
    }
    force_all(ctx, what, pgs)
}

/// `osd pool force-recovery POOL...` and its kin.
pub(super) fn force_pools(ctx: &mut CommandCtx<'_>, what: &str) -> Run {
    let mut pgs = Vec::new();
    for name in ctx.cmd.list("who")? {
        let map = ctx.osdmap();
        let id = map.pool_by_name(&name);
        let Some((id, pool)) = id.and_then(|id| Some((id, map.pool(id)?))) else {
            return Err(fail(ENOENT, format!("unrecognized pool '{name}'")));
        };
        pgs.extend((0..pool.pg_num).map(|ps| PgId { pool: id, ps }));
    }
    force_all(ctx, what, pgs)
}

/// Of these, those that have something to recover.
fn force_all(ctx: &mut CommandCtx<'_>, what: &str, pgs: Vec<PgId>) -> Run {
    let on = !what.starts_with("cancel-");
    let (word, bits) = if what.ends_with("backfill") {
        ("backfill", [PgState::BACKFILLING, PgState::BACKFILL_WAIT, PgState::REMAPPED])
    } else {
        ("recovery", [PgState::RECOVERING, PgState::RECOVERY_WAIT, PgState::DEGRADED])
    };
    let forced =
        if word == "backfill" { PgState::FORCED_BACKFILL } else { PgState::FORCED_RECOVERY };
    let (mut said, mut by_osd) = (Vec::new(), BTreeMap::<OsdId, Vec<PgId>>::new());
    for pg in pgs {
        let state = ctx.volatile.pgmap.pgs.get(&pg).map(|s| s.state).unwrap_or_default();
        let why = if on && !bits.iter().any(|b| state.has(*b)) {
            Some(format!("pg {pg} doesn't require {word}"))
        } else if on && state.has(forced) {
            Some(format!("pg {pg} {word} already forced"))
        } else if !on && !state.has(forced) {
            Some(format!("pg {pg} {word} not forced"))
        } else {
            None
        };
        if let Some(why) = why {
            said.push(why);
            continue;
        }
        let primary = ctx.osdmap().pg_to_up_acting(pg).acting_primary;
        if let Some(osd) = primary.filter(|o| ctx.osdmap().is_up(*o)) {
            by_osd.entry(osd).or_default().push(pg);
        }
    }
    for pgs in by_osd.values() {
        let names: Vec<String> = pgs.iter().map(ToString::to_string).collect();
        let verb = if on { "force-" } else { "cancel-force-" };
        said.push(format!("instructing pg(s) [{}] to {verb}{word}; ", names.join(",")));
    }
    let to = by_osd
        .into_iter()
        .map(|(osd, pgs)| (osd, ForceRecovery { pgs, on }.envelope(denc::Features::ALL)));
    Ok(Outcome::Send { to: to.collect(), then: Reply::ok(said.join("\n")) })
}

fn stat(ctx: &mut CommandCtx<'_>) -> Run {
    let states = status::pgs_by_state(ctx);
    let pgs: usize = states.iter().map(|(_, n)| n).sum();
    let sum = status::pool_total(ctx);
    let (total, avail, used) = df::totals(ctx);
    let rates = &ctx.volatile.pgmap.rates;
    let bytes = u64::try_from(sum.num_bytes + sum.num_omap_bytes).unwrap_or(0);
    if let Some(mut f) = ctx.formatter() {
        f.object("pg_info", |f| {
            f.bool("pg_ready", true);
            f.object("pg_summary", |f| {
                f.array("num_pg_by_state", |f| {
                    for (state, count) in &states {
                        f.object("state", |f| {
                            f.display("name", state);
                            f.len("num", *count);
                        });
                    }
                });
                f.len("num_pgs", pgs);
                f.int("num_bytes", bytes);
                f.int("total_bytes", total);
                f.int("total_avail_bytes", avail);
                f.int("total_used_bytes", used);
                f.int("total_used_raw_bytes", used);
                if rates.rd_bytes >= 1.0 {
                    f.int("read_bytes_sec", rates.rd_bytes as u64);
                }
                if rates.wr_bytes >= 1.0 {
                    f.int("write_bytes_sec", rates.wr_bytes as u64);
                }
                if rates.rd_ops + rates.wr_ops >= 1.0 {
                    f.int("io_sec", (rates.rd_ops + rates.wr_ops) as u64);
                }
                df::dump_recovery(f, &sum);
            });
        });
        return out(f.finish());
    }
    let states: Vec<String> = states.iter().map(|(s, n)| format!("{n} {s}")).collect();
    let mut text = format!(
        "{pgs} pgs: {}; {} data, {} used, {} / {} avail",
        states.join(", "),
        cli::bytes_u(bytes),
        cli::bytes_u(used),
        cli::bytes_u(avail),
        cli::bytes_u(total)
    );
    let mut io = Vec::new();
    if rates.rd_bytes >= 1.0 {
        io.push(format!("{}/s rd", cli::bytes_u(rates.rd_bytes as u64)));
    }
    if rates.wr_bytes >= 1.0 {
        io.push(format!("{}/s wr", cli::bytes_u(rates.wr_bytes as u64)));
    }
    let ops = rates.rd_ops + rates.wr_ops;
    if !io.is_empty() || ops >= 1.0 {
        io.push(format!("{} op/s", cli::si_u(ops as u64)));
    }
    if !io.is_empty() {
        let _ = write!(text, "; {}", io.join(", "));
    }
    for line in df::recovery_lines(&sum) {
        let _ = write!(text, "; {line}");
    }
    let recovery = df::recovery_io(rates);
    if !recovery.is_empty() {
        let _ = write!(text, "; {recovery} recovering");
    }
    out(text + "\n")
}

fn dump(ctx: &mut CommandCtx<'_>) -> Run {
    let words = ctx.cmd.list("dumpcontents")?;
    let f = ctx.formatter();
    dump_as(ctx, f, &words)
}

fn dump_as(ctx: &CommandCtx<'_>, f: Option<cli::Formatter>, words: &[String]) -> Run {
    let mut what: BTreeSet<&str> = words.iter().map(String::as_str).collect();
    if what.is_empty() || what.contains("all") {
        what = BTreeSet::from(["all"]);
    }
    let names = ["all", "summary", "sum", "delta", "pools", "osds", "pgs", "pgs_brief"];
    if let Some(unknown) = what.iter().find(|w| !names.contains(w)) {
        return Err(fail(EINVAL, format!("cannot dump '{unknown}'")));
    }
    let said: Vec<&str> = what.iter().copied().collect();
    let rs = format!("dumped {}", said.join(","));
    let text = match f {
        Some(f) => pg_dump::fields(ctx, f, &what),
        None => pg_dump::text(ctx, &what),
    };
    out_rs(rs, text)
}

/// A PG's states that a command asks for: any of those in one word, all in a joined one.
fn wanted_states(ctx: &CommandCtx<'_>) -> Result<Vec<PgState>, Fail> {
    let mut wanted = Vec::new();
    for word in ctx.cmd.list("states")? {
        if word == "all" {
            continue;
        }
        let mut all = PgState(0);
        for name in word.split('+') {
            if name == "unknown" {
                continue;
            }
            let Some(state) = PgState::from_name(name) else {
                let known: Vec<&str> = PgState::NAMES.iter().map(|(_, name)| *name).collect();
                return Err(fail(
                    EINVAL,
                    format!(
                        "'{name}' is not a valid pg state, available choices: {}",
                        known.join("+")
                    ),
                ));
            };
            all.set(state, true);
        }
        wanted.push(all);
    }
    Ok(wanted)
}

fn fits(state: PgState, wanted: &[PgState]) -> bool {
    let one = |want: &PgState| if want.0 == 0 { state.0 == 0 } else { state.has(*want) };
    wanted.is_empty() || wanted.iter().any(one)
}

fn ls(ctx: &mut CommandCtx<'_>, what: &str) -> Run {
    let states = wanted_states(ctx)?;
    let map = ctx.osdmap();
    let osd = if ctx.cmd.has("osd") {
        Some(ctx.cmd.need_osd("osd")?)
    } else if ctx.cmd.has("id") {
        Some(ctx.cmd.need_osd("id")?)
    } else {
        None
    };
    if let Some(osd) = osd.filter(|o| !map.exists(*o)) {
        return Err(fail(ENOENT, format!("osd {osd} does not exist")));
    }
    let pool = match ctx.cmd.str("poolstr")? {
        Some(name) => {
            let id = map.pool_by_name(name);
            Some(id.ok_or_else(|| fail(ENOENT, format!("pool {name} does not exist")))?)
        }
        None => ctx.cmd.int("pool")?.filter(|p| *p >= 0).map(PoolId),
    };
    if let Some(id) = pool.filter(|id| map.pool(*id).is_none()) {
        return Err(fail(ENOENT, format!("pool {id} does not exist")));
    }
    let primary_only = what == "ls-by-primary";
    let here = |stat: &PgStat| match osd {
        None => true,
        Some(osd) if primary_only => stat.acting_primary == osd,
        Some(osd) => stat.up.contains(&osd) || stat.acting.contains(&osd),
    };
    let found: Vec<(&PgId, &PgStat)> = ctx
        .volatile
        .pgmap
        .pgs
        .iter()
        .filter(|(id, stat)| {
            pool.is_none_or(|p| id.pool == p) && here(stat) && fits(stat.state, &states)
        })
        .collect();
    match ctx.formatter() {
        Some(mut f) => {
            f.object("pg_info", |f| {
                f.bool("pg_ready", true);
                // As the peer: no list where there is nothing to list.
                if found.is_empty() {
                    return;
                }
                f.array("pg_stats", |f| {
                    for (id, stat) in &found {
                        f.object("pg_stat", |f| pg_dump::pg(f, **id, stat, false));
                    }
                });
            });
            out(f.finish())
        }
        None => out(pg_dump::ls_table(ctx, &found)),
    }
}

fn dump_stuck(ctx: &mut CommandCtx<'_>) -> Run {
    let words = ctx.cmd.list("stuckops")?;
    let threshold = ctx.cmd.int("threshold")?.unwrap_or(STUCK_SECS).max(0);
    let kinds: Vec<&str> =
        if words.is_empty() { vec!["unclean"] } else { words.iter().map(String::as_str).collect() };
    for kind in &kinds {
        if !["inactive", "unclean", "undersized", "degraded", "stale"].contains(kind) {
            return out_rs("failed", format!("Unknown type: {kind}\n"));
        }
    }
    let threshold_ns = (threshold as u64).saturating_mul(1_000_000_000);
    let cutoff = ctx.now.wall_ns.saturating_sub(threshold_ns);
    let long = |stamp: types::UTime| stamp.nanos() < cutoff;
    let stuck = |stat: &PgStat| {
        kinds.iter().any(|kind| match *kind {
            "inactive" => !stat.state.has(PgState::ACTIVE) && long(stat.last_active),
            "undersized" => stat.state.has(PgState::UNDERSIZED) && long(stat.last_fullsized),
            "degraded" => stat.state.has(PgState::DEGRADED) && long(stat.last_undegraded),
            "stale" => stat.state.has(PgState::STALE) && long(stat.last_unstale),
            _ => !stat.state.has(PgState::CLEAN) && long(stat.last_clean),
        })
    };
    let found: Vec<(&PgId, &PgStat)> =
        ctx.volatile.pgmap.pgs.iter().filter(|(_, stat)| stuck(stat)).collect();
    match ctx.formatter() {
        Some(mut f) => {
            f.object("pg_info", |f| {
                f.bool("pg_ready", true);
                f.array("stuck_pg_stats", |f| {
                    for (id, stat) in &found {
                        f.object("pg_stat", |f| pg_dump::pg(f, **id, stat, false));
                    }
                });
            });
            out_rs("ok", f.finish())
        }
        None if found.is_empty() => out_rs("ok", ""),
        None => out_rs("ok", pg_dump::brief_table(&found)),
    }
}

fn map(ctx: &mut CommandCtx<'_>) -> Run {
    let pg = upmap::need_pg(ctx)?;
    let map = ctx.osdmap();
    let folded = map.raw_pg_to_pg(pg).unwrap_or(pg);
    let sets = map.pg_to_up_acting(folded);
    if let Some(mut f) = ctx.formatter() {
        f.object("pg_map", |f| {
            f.int("epoch", map.epoch.0);
            f.display("raw_pgid", pg);
            f.display("pgid", folded);
            for (name, osds) in [("up", &sets.up), ("acting", &sets.acting)] {
                f.array(name, |f| {
                    for osd in osds {
                        f.int(&format!("{name}_osd"), osd.0);
                    }
                });
            }
        });
        return out(f.finish());
    }
    out(format!(
        "osdmap e{} pg {pg} ({folded}) -> up {} acting {}\n",
        map.epoch,
        osd_list(&sets.up, "NONE"),
        osd_list(&sets.acting, "NONE")
    ))
}

fn debug(ctx: &mut CommandCtx<'_>) -> Run {
    let pgs = ctx.volatile.pgmap.pgs.values();
    let yes = match ctx.cmd.str_or_empty("debugop")? {
        "unfound_objects_exist" => pgs.map(|s| s.stats.sum.num_objects_unfound).any(|n| n > 0),
        "degraded_pgs_exist" => pgs.map(|s| s.stats.sum.num_objects_degraded).any(|n| n > 0),
        other => return Err(fail(EINVAL, format!("unknown operation '{other}'"))),
    };
    let mut text = if yes { "TRUE\n" } else { "FALSE\n" }.to_owned();
    if let Some(mut f) = ctx.formatter() {
        f.object("pg_info", |f| f.bool("pg_ready", true));
        text += &f.finish();
    }
    out(text)
}

/// `[0,1,2]p0`.
pub(super) fn set_text(osds: &[OsdId], primary: OsdId) -> String {
    format!("{}p{primary}", osd_list(osds, "NONE"))
}
