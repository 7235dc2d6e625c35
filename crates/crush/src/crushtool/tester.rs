//! `--test`, `--check` and `--compare`: many inputs mapped, and what came of them.

use std::collections::BTreeMap;

use super::args::Options;
use super::format::{General, List};
use super::{Exit, Io};
use crate::hash::hash32_2;
use crate::mapper::Scratch;
use crate::model::{CrushMap, ITEM_NONE};

/// Whether every item that a tree would show has a name and type; devices from `max_id`
/// on are too large, unless it is 0.
pub(super) fn check_names(map: &CrushMap, max_id: i32) -> Result<(), String> {
    let bad = |what: &str, id: i32| Err(format!("{what}: item#{id}"));
    let ids = map.tree(false, |_| true).into_iter().map(|node| node.id);
    for id in ids.chain([0]) {
        if id < 0 && !map.names.contains(id) {
            return bad("unknown item name", id);
        }
        if id >= 0 && max_id > 0 && id >= max_id {
            return bad("item id too large", id);
        }
        if map.item_kind(id).and_then(|kind| map.type_name(kind)).is_none() {
            return bad("unknown type name", id);
        }
    }
    Ok(())
}

/// The devices' weights for `is_out`: as told, else all that the hierarchy has are in.
fn weights(map: &CrushMap, opts: &Options) -> Vec<u32> {
    let mut present = vec![false; usize::try_from(map.max_devices).unwrap_or(0)];
    for item in map.buckets().flat_map(|b| &b.items) {
        if let Some(there) = usize::try_from(*item).ok().and_then(|i| present.get_mut(i)) {
            *there = true;
        }
    }
    let weight = |(i, there): (usize, bool)| {
        let told = opts.weights.get(&(i as i32)).copied();
        told.unwrap_or(if there { 0x10000 } else { 0 })
    };
    present.into_iter().enumerate().map(weight).collect()
}

/// The most devices that a rule can give, by how many buckets there are of the types it
/// chooses.
fn maximum_affected(map: &CrushMap, rule: &crate::Rule) -> i32 {
    let chosen = || rule.steps.iter().filter(|step| step.op >= 2 && step.op != 4);
    let asked: BTreeMap<i32, i32> = chosen().map(|step| (step.arg2, step.arg1)).collect();
    let mut most: BTreeMap<i32, i32> = BTreeMap::new();
    for step in chosen() {
        let of_kind =
            |(id, _): &(i32, &str)| map.bucket(*id).is_some_and(|b| i32::from(b.kind) == step.arg2);
        *most.entry(step.arg2).or_insert(0) += map.names.iter().filter(of_kind).count() as i32;
    }
    for step in chosen() {
        let most = most.entry(step.arg2).or_insert(0);
        let asked = asked[&step.arg2];
        if asked > 0 && asked < *most {
            *most = asked;
        }
    }
    let all = (map.max_buckets() as i32).max(map.max_devices);
    most.into_values().filter(|n| *n > 0).fold(all, i32::min)
}

fn reps(opts: &Options, io: &mut Io<'_>) -> Result<(i32, i32), Exit> {
    if opts.min_rep < 0 || opts.max_rep < 0 {
        let message = "must specify --num-rep or both --min-rep and --max-rep";
        return super::fail(io, message);
    }
    Ok((opts.min_rep, opts.max_rep))
}

fn range(opts: &Options) -> (i32, i32) {
    if opts.min_x < 0 || opts.max_x < 0 { (0, 1023) } else { (opts.min_x, opts.max_x) }
}

fn rule_range(map: &CrushMap, opts: &Options) -> std::ops::Range<u32> {
    let rules = map.max_rules() as i64;
    let (min, max) = if opts.min_rule < 0 || opts.max_rule < 0 {
        (0, rules - 1)
    } else {
        (i64::from(opts.min_rule), i64::from(opts.max_rule))
    };
    let end = (max + 1).min(rules).max(0);
    min.min(end) as u32..end as u32
}

fn input(opts: &Options, x: i32) -> u32 {
    match opts.pool_id {
        -1 => x as u32,
        pool => hash32_2(x as u32, pool as u32),
    }
}

pub(super) fn test(map: &CrushMap, opts: &Options, io: &mut Io<'_>) -> Result<(), Exit> {
    let (min_rep, max_rep) = reps(opts, io)?;
    let (min_x, max_x) = range(opts);
    let statistics = opts.show_statistics || opts.show_utilization || opts.show_utilization_all;
    let weights = weights(map, opts);
    if opts.show_utilization_all {
        let hex: Vec<String> = weights.iter().map(|w| format!("{w:x}")).collect();
        writeln!(io.out, "devices weights (hex): [{}]", hex.join(","))?;
    }
    let total_tries = map.tunables().choose_total_tries;
    let mut scratch = Scratch::default();
    if opts.show_choose_tries {
        let entries = (total_tries as usize).saturating_add(1).min(1 << 20);
        scratch.choose_tries = Some(vec![0; entries]);
    }
    let mut out = Vec::new();
    for id in rule_range(map, opts) {
        let Some(rule) = map.rule(id) else {
            if statistics {
                writeln!(io.out, "rule {id} dne")?;
            }
            continue;
        };
        let name = map.rule_names.get(id as i32).unwrap_or("");
        if statistics {
            writeln!(
                io.out,
                "rule {id} ({name}), x = {min_x}..{max_x}, numrep = {min_rep}..{max_rep}"
            )?;
        }
        for reps in min_rep..=max_rep {
            let total = weights.iter().fold(0i32, |sum, w| sum.wrapping_add(*w as i32));
            if total == 0 {
                continue;
            }
            let objects = max_x.wrapping_sub(min_x).wrapping_add(1);
            let affected = maximum_affected(map, rule);
            let expected = reps.min(affected).wrapping_mul(objects) as f32;
            let mut stored = vec![0u32; weights.len()];
            let mut sizes: BTreeMap<usize, u32> = BTreeMap::new();
            for x in min_x..=max_x {
                let max = reps.max(0) as usize;
                let real = input(opts, x);
                map.do_rule_into(id, real, max, &weights, Some(0), &mut scratch, &mut out);
                if opts.show_mappings {
                    writeln!(io.out, "CRUSH rule {id} x {x} {}", List(&out))?;
                }
                for item in &out {
                    if let Some(n) = usize::try_from(*item).ok().and_then(|i| stored.get_mut(i)) {
                        *n += 1;
                    }
                }
                *sizes.entry(out.len()).or_insert(0) += 1;
                if opts.show_bad_mappings && (out.len() != max || out.contains(&ITEM_NONE)) {
                    writeln!(
                        io.out,
                        "bad mapping rule {id} x {x} num_rep {reps} result {}",
                        List(&out)
                    )?;
                }
            }
            if !statistics {
                continue;
            }
            for (size, n) in sizes {
                writeln!(
                    io.out,
                    "rule {id} ({name}) num_rep {reps} result size == {size}:\t{n}/{objects}"
                )?;
            }
            for (i, (stored, weight)) in stored.iter().zip(&weights).enumerate() {
                let expected = *weight as f32 / total as f32 * expected;
                let used = expected > 0.0 && *stored > 0;
                if (opts.show_utilization && used)
                    || (!opts.show_utilization && opts.show_utilization_all)
                {
                    writeln!(
                        io.out,
                        "  device {i}:\t\t stored : {stored}\t expected : {}",
                        General(expected)
                    )?;
                }
            }
        }
    }
    for (i, n) in scratch.choose_tries.iter().flatten().take(total_tries as usize).enumerate() {
        writeln!(io.out, "{i:>2}: {n:>9}")?;
    }
    Ok(())
}

/// Maps the same inputs by two maps, and tells how many differ.
pub(super) fn compare(
    map: &CrushMap,
    other: &CrushMap,
    opts: &Options,
    io: &mut Io<'_>,
) -> Result<(), Exit> {
    let (min_rep, max_rep) = reps(opts, io)?;
    let (min_x, max_x) = range(opts);
    let weights = weights(map, opts);
    let mut same = true;
    for id in rule_range(map, opts) {
        if map.rule(id).is_none() {
            if opts.show_statistics {
                writeln!(io.out, "rule {id} dne")?;
            }
            continue;
        }
        let (mut bad, mut all) = (0u64, 0u64);
        for reps in min_rep..=max_rep {
            for x in min_x..=max_x {
                let (reps, real) = (reps.max(0) as usize, input(opts, x));
                let a = map.do_rule(id, real, reps, &weights, Some(0));
                let b = other.do_rule(id, real, reps, &weights, Some(0));
                bad += u64::from(a != b);
                all += 1;
            }
        }
        let ratio = if all == 0 { 0.0 } else { bad as f64 / all as f64 };
        writeln!(
            io.out,
            "rule {id} had {bad}/{all} mismatched mappings ({})",
            General(ratio as f32)
        )?;
        same &= bad == 0;
    }
    if same {
        writeln!(io.out, "maps appear equivalent")?;
        Ok(())
    } else {
        writeln!(io.out, "warning: maps are NOT equivalent")?;
        Err(Exit(1))
    }
}
