//! `osd reweight-by-utilization`, `osd reweight-by-pg` and what they would do.
//!
//! Source: the peer's `mon/OSDMonitor.cc`, `reweight_by_utilization`; numbers and sentences as
//! release 20.2.4 gives them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use conf::key;
use maps::{OsdMap, WEIGHT_ONE};
use types::{OsdId, PgId, PoolId};

use super::{EINVAL, ENOENT, Fail, Run, fail, out_rs, weight_float};
use crate::{CommandCtx, Mutation, Outcome, Reply};

/// The peer's "domain of function": too little is known to judge by.
const EDOM: i32 = 33;
/// KiB that must be used for utilization to mean something.
const USED_KIB_MIN: u64 = 1024 * 1024;
/// PGs for each OSD that there must be.
const PGS_PER_OSD_MIN: usize = 10;

pub(super) fn has(prefix: &str) -> bool {
    matches!(
        prefix,
        "osd reweight-by-utilization"
            | "osd reweight-by-pg"
            | "osd test-reweight-by-utilization"
            | "osd test-reweight-by-pg"
    )
}

/// What is asked for.
struct Asked {
    by_pg: bool,
    /// Percent of the average above which an OSD is too full.
    load: i64,
    change_max: f64,
    osds_max: i64,
    no_increasing: bool,
    pools: BTreeSet<PoolId>,
}

impl Asked {
    fn read(ctx: &CommandCtx<'_>, prefix: &str) -> Result<Self, Fail> {
        let map = ctx.osdmap();
        let mut pools = BTreeSet::new();
        for name in ctx.cmd.list("pools")? {
            let id = map.pool_by_name(&name);
            pools.insert(id.ok_or_else(|| fail(ENOENT, format!("pool '{name}' does not exist")))?);
        }
        let number = |name, default| Ok::<f64, Fail>(ctx.cmd.float(name)?.unwrap_or(default));
        let asked = Self {
            by_pg: prefix.ends_with("-pg"),
            load: ctx.cmd.int("oload")?.unwrap_or(120),
            change_max: number("max_change", ctx.option(key::MON_REWEIGHT_MAX_CHANGE))?,
            osds_max: ctx.cmd.int("max_osds")?.unwrap_or(4),
            no_increasing: ctx.cmd.flag("no_increasing"),
            pools,
        };
        if asked.change_max.is_nan() || asked.change_max <= 0.0 {
            let shown = cli::float_text(asked.change_max, 6);
            return Err(fail(EINVAL, format!("max_change {shown} must be positive")));
        }
        if asked.osds_max <= 0 {
            return Err(fail(EINVAL, format!("max_osds {} must be positive", asked.osds_max)));
        }
        if asked.load <= 100 {
            return Err(refused(
                EINVAL,
                "You must give a percentage higher than 100. The reweighting threshold will be calculated as <average-utilization> times <input-percentage>. For example, an argument of 200 would reweight OSDs which are twice as utilized as the average OSD.",
            ));
        }
        Ok(asked)
    }

    fn counts(&self, pg: PgId) -> bool {
        self.pools.is_empty() || self.pools.contains(&pg.pool)
    }
}

/// The peer names one of the commands for all.
fn refused(errno: i32, why: &str) -> Fail {
    fail(errno, format!("{why}\nFAILED reweight-by-pg"))
}

/// PGs of each OSD that is in.
fn pgs_of(map: &OsdMap, asked: &Asked) -> BTreeMap<OsdId, usize> {
    let mut count = BTreeMap::new();
    for (id, pool) in map.pools.iter() {
        for pg in (0..pool.pg_num).map(|ps| PgId { pool: *id, ps }).filter(|pg| asked.counts(*pg)) {
            for osd in map.pg_to_up_acting(pg).up.into_iter().filter(|o| *o != OsdId::NONE) {
                *count.entry(osd).or_insert(0) += 1;
            }
        }
    }
    count
}

/// How much each OSD that is up and in has: the share of its space that is used, or its PGs for
/// each unit of its weight in CRUSH. And the average of all.
fn loads(ctx: &CommandCtx<'_>, asked: &Asked) -> Result<(BTreeMap<OsdId, f64>, f64), Fail> {
    let map = ctx.osdmap();
    let there: Vec<OsdId> = map.osds().filter(|o| map.is_up(*o) && map.is_in(*o)).collect();
    let mut loads = BTreeMap::new();
    if !asked.by_pg {
        let (mut used, mut total) = (0u64, 0u64);
        for osd in &there {
            let Some(stat) = ctx.volatile.pgmap.osds.get(osd) else { continue };
            let Some(ratio) = crate::used_ratio(stat) else { continue };
            used += stat.statfs.total.saturating_sub(stat.statfs.available) / 1024;
            total += stat.statfs.total / 1024;
            loads.insert(*osd, ratio);
        }
        if used < USED_KIB_MIN {
            let why = format!("Refusing to reweight: we only have {used} kb used across all osds!");
            return Err(refused(EDOM, &why));
        }
        return Ok((loads, used as f64 / total.max(1) as f64));
    }
    let pgs = pgs_of(map, asked);
    let all: usize = pgs.values().sum();
    let (mut held, mut weights) = (0usize, 0.0);
    for osd in &there {
        let weight = weight_float(map.crush.item_weight(osd.0).unwrap_or(0));
        if weight <= 0.0 {
            continue;
        }
        let n = pgs.get(osd).copied().unwrap_or(0);
        held += n;
        weights += weight;
        loads.insert(*osd, n as f64 / weight);
    }
    if loads.is_empty() || all < loads.len() * PGS_PER_OSD_MIN {
        let n = loads.len();
        let why = format!("Refusing to reweight: we only have {all} PGs across {n} osds!\n");
        return Err(refused(EDOM, why.trim_end()));
    }
    Ok((loads, held as f64 / weights))
}

/// OSDs and their weights after, most loaded first.
fn plan(
    map: &OsdMap,
    asked: &Asked,
    loads: &BTreeMap<OsdId, f64>,
    average: f64,
) -> Vec<(OsdId, u32)> {
    let over = average * asked.load as f64 / 100.0;
    let mut by_load: Vec<(OsdId, f64)> = loads.iter().map(|(o, l)| (*o, *l)).collect();
    by_load.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    let mut changes = Vec::new();
    for (osd, load) in by_load {
        if changes.len() as i64 >= asked.osds_max {
            break;
        }
        let now = weight_float(map.weight(osd));
        if load > over {
            let aim = (average / load * now).max(now - asked.change_max);
            changes.push((osd, fixed(aim)));
        } else if load <= average && !asked.no_increasing && map.weight(osd) < WEIGHT_ONE {
            let aim = (average / load.max(f64::MIN_POSITIVE) * now).min(now + asked.change_max);
            changes.push((osd, fixed(aim.min(1.0))));
        }
    }
    changes.retain(|(osd, weight)| *weight != map.weight(*osd));
    changes
}

fn fixed(weight: f64) -> u32 {
    (weight * f64::from(WEIGHT_ONE)) as u32
}

/// How even PGs are.
struct Spread {
    by_osd: BTreeMap<OsdId, usize>,
    average: f64,
    deviation: f64,
    /// What chance alone would give.
    expected: f64,
}

impl Spread {
    fn of(by_osd: BTreeMap<OsdId, usize>, osds: &[OsdId]) -> Self {
        let by_osd: BTreeMap<OsdId, usize> =
            osds.iter().map(|osd| (*osd, by_osd.get(osd).copied().unwrap_or(0))).collect();
        let n = by_osd.len().max(1) as f64;
        let average = by_osd.values().sum::<usize>() as f64 / n;
        let squares: f64 = by_osd.values().map(|pgs| (*pgs as f64 - average).powi(2)).sum();
        let expected = (average * (1.0 - 1.0 / n)).sqrt();
        Self { by_osd, average, deviation: (squares / n).sqrt(), expected }
    }

    fn least(&self) -> Option<(OsdId, usize)> {
        self.by_osd.iter().map(|(o, n)| (*o, *n)).min_by_key(|(_, n)| *n)
    }

    fn most(&self) -> Option<(OsdId, usize)> {
        self.by_osd.iter().map(|(o, n)| (*o, *n)).rev().max_by_key(|(_, n)| *n)
    }
}

pub(super) fn run(ctx: &mut CommandCtx<'_>, prefix: &str) -> Run {
    let dry = prefix.contains("test-");
    let asked = Asked::read(ctx, prefix)?;
    let (loads, average) = loads(ctx, &asked)?;
    let map = ctx.osdmap();
    let changes = plan(map, &asked, &loads, average);
    let mut after = map.clone();
    for (osd, weight) in &changes {
        // OSDs that are up have a place in the list of weights.
        std::sync::Arc::make_mut(&mut after.osd_weight)[osd.0 as usize] = *weight;
    }
    let osds: Vec<OsdId> = map.osds().filter(|o| map.is_in(*o)).collect();
    let before = Spread::of(pgs_of(map, &asked), &osds);
    let then = Spread::of(pgs_of(&after, &asked), &osds);
    let (moved, total) = moves(map, &after, &asked);
    let over = average * asked.load as f64 / 100.0;
    let text = match ctx.formatter() {
        None => {
            let share = if total > 0 { moved as f64 * 100.0 / total as f64 } else { 0.0 };
            let number = |n: f64| cli::float_text(n, 6);
            let mut t = format!("moved {moved} / {total} ({}%)\n", number(share));
            let _ = writeln!(t, "avg {}", number(before.average));
            let _ = writeln!(
                t,
                "stddev {} -> {} (expected baseline {})",
                number(before.deviation),
                number(then.deviation),
                number(before.expected)
            );
            for (word, end) in [("min", before.least()), ("max", before.most())] {
                let Some((osd, was)) = end else { continue };
                let is = then.by_osd.get(&osd).copied().unwrap_or(0);
                let part = |n: usize| number(n as f64 / before.average.max(f64::MIN_POSITIVE));
                let _ = writeln!(
                    t,
                    "{word} osd.{osd} with {was} -> {is} pgs ({} -> {} * mean)",
                    part(was),
                    part(is)
                );
            }
            let _ = write!(
                t,
                "\noload {}\nmax_change {}\nmax_change_osds {}\naverage_utilization {average:.4}\noverload_utilization {over:.4}\n",
                asked.load,
                number(asked.change_max),
                asked.osds_max
            );
            for (osd, weight) in &changes {
                let (was, is) = (weight_float(map.weight(*osd)), weight_float(*weight));
                let _ = writeln!(t, "osd.{osd} weight {was:.4} -> {is:.4}");
            }
            t
        }
        Some(mut f) => {
            f.object("reweight", |f| {
                f.int("overload_min", asked.load);
                f.float("max_change", asked.change_max);
                f.int("max_change_osds", asked.osds_max);
                f.float("average_utilization", average);
                f.float("overload_utilization", over);
                f.array("reweights", |f| {
                    for (osd, weight) in &changes {
                        f.object("change", |f| {
                            f.int("osd", osd.0);
                            f.float("weight", weight_float(map.weight(*osd)));
                            f.float("new_weight", weight_float(*weight));
                        });
                    }
                });
                f.object("utilization", |f| {
                    f.len("moved_pgs", moved);
                    f.len("total_pgs", total);
                    f.float("avg_pgs", before.average);
                    f.float("std_dev", before.deviation);
                    f.float("expected_baseline_std_dev", before.expected);
                    f.float("new_std_dev", then.deviation);
                    for (word, end) in [("min", before.least()), ("max", before.most())] {
                        let Some((osd, was)) = end else { continue };
                        let is = then.by_osd.get(&osd).copied().unwrap_or(0);
                        f.int(&format!("{word}_osd"), osd.0);
                        f.len(&format!("{word}_osd_pgs"), was);
                        f.len(&format!("new_{word}_osd_pgs"), is);
                    }
                });
            });
            f.finish_line()
        }
    };
    if changes.is_empty() {
        return out_rs("no change", text);
    }
    // The peer tells by its code that something would change.
    if dry {
        let rs = "no change".to_owned();
        return Ok(Outcome::Reply(Reply { r: 1, rs, out: text.into() }));
    }
    let mut inc = ctx.osd_change();
    inc.new_weight.extend(changes);
    let then = Reply { r: 0, rs: String::new(), out: text.into() };
    Ok(Outcome::Propose { mutation: Mutation::Osd(Box::new(inc)), then })
}

/// Copies that would be elsewhere, and all copies.
fn moves(before: &OsdMap, after: &OsdMap, asked: &Asked) -> (usize, usize) {
    let (mut moved, mut total) = (0, 0);
    for (id, pool) in before.pools.iter() {
        for pg in (0..pool.pg_num).map(|ps| PgId { pool: *id, ps }).filter(|pg| asked.counts(*pg)) {
            let (was, is) = (before.pg_to_up_acting(pg).up, after.pg_to_up_acting(pg).up);
            total += was.len();
            moved += was.iter().filter(|osd| !is.contains(osd)).count();
        }
    }
    (moved, total)
}
