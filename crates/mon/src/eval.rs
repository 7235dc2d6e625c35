//! How evenly data is spread: a score from 0, which is perfect, towards 1.
//!
//! Source: the peer's `pybind/mgr/balancer/module.py`, `calc_stats` and `calc_eval`.

use std::collections::{BTreeMap, BTreeSet};

use maps::OsdMap;
use serde_json::{Map, Value, json};
use types::{OsdId, PgId, PoolId};

use crate::{PgMap, crushops};

/// What is counted.
const KINDS: [&str; 3] = ["pgs", "objects", "bytes"];

type Counts = BTreeMap<OsdId, u64>;

/// Average, deviation and score of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Stats {
    avg: f64,
    stddev: f64,
    sum_weight: f64,
    score: f64,
}

impl Stats {
    /// How far `counts` are from `target`, shares of each OSD that add up to 1. Only who has
    /// too much counts for the score, by its weight.
    fn of(counts: &Counts, target: &BTreeMap<OsdId, f64>) -> Self {
        let total: u64 = counts.values().sum();
        if total == 0 {
            return Self::default();
        }
        let num = target.len().max(1) as f64;
        let avg = total as f64 / num;
        let (mut dev, mut score, mut sum_weight) = (0.0, 0.0, 0.0);
        for (osd, count) in counts {
            let share = target.get(osd).copied().unwrap_or(0.0);
            let adjusted = if share > 0.0 { *count as f64 / share / num } else { 0.0 };
            if adjusted > avg {
                score += share * erf((adjusted - avg) / avg / std::f64::consts::SQRT_2);
                sum_weight += share;
            }
            dev += (avg - adjusted) * (avg - adjusted);
        }
        let stddev = (dev / (num - 1.0).max(1.0)).sqrt();
        Self { avg, stddev, sum_weight, score: score / f64::max(sum_weight, 1.0) }
    }

    fn json(self) -> Value {
        let Self { avg, stddev, sum_weight, score } = self;
        json!({"avg": avg, "stddev": stddev, "sum_weight": sum_weight, "score": score})
    }
}

/// The error function, to ten digits.
fn erf(x: f64) -> f64 {
    if x.abs() > 6.0 {
        return x.signum();
    }
    // 2/sqrt(pi) exp(-x²) sum of 2^n x^(2n+1) / (2n+1)!!: all terms have one sign.
    let (mut term, mut sum) = (x, x);
    for n in 1..200 {
        term *= 2.0 * x * x / f64::from(2 * n + 1);
        sum += term;
        if term.abs() < 1e-17 * sum.abs() {
            break;
        }
    }
    std::f64::consts::FRAC_2_SQRT_PI * (-x * x).exp() * sum
}

#[derive(Debug, Default)]
struct Root {
    target: BTreeMap<OsdId, f64>,
    counts: [Counts; 3],
}

/// How a map spreads what the PGs hold.
#[derive(Debug, Default)]
pub struct Eval {
    roots: BTreeMap<String, Root>,
    pools: BTreeMap<String, (String, [Counts; 3])>,
}

impl Eval {
    /// Of the pools named; of all if none is.
    #[must_use]
    pub fn new(map: &OsdMap, pgmap: &PgMap, only: &BTreeSet<PoolId>) -> Self {
        let mut e = Self::default();
        for (id, pool) in map.pools.iter() {
            if !only.is_empty() && !only.contains(id) {
                continue;
            }
            let rule = u32::from(pool.crush_rule);
            let takes = map.crush.rule(rule).map_or(&[][..], |r| &r.steps);
            let take = takes.iter().find(|s| s.known() == Some(crush::Op::Take));
            let Some(root) = take.and_then(|s| map.crush.names().get(s.arg1)) else { continue };
            let name = map.pool_names.get(id).cloned().unwrap_or_default();
            let at = e.roots.entry(root.to_owned()).or_default();
            if at.target.is_empty() {
                at.target = shares(map, rule);
            }
            let none: Counts = at.target.keys().map(|o| (*o, 0)).collect();
            let mut counts = [none.clone(), none.clone(), none.clone()];
            for ps in 0..pool.pg_num {
                let pg = PgId { pool: *id, ps };
                let sum = pgmap.pgs.get(&pg).map(|s| &s.stats.sum);
                let some = |n: i64| u64::try_from(n).unwrap_or(0);
                let objects = sum.map_or(0, |s| some(s.num_objects));
                let bytes = sum.map_or(0, |s| some(s.num_bytes));
                for osd in map.pg_to_up_acting(pg).up.iter().filter(|o| at.target.contains_key(o)) {
                    for (i, n) in [1, objects, bytes].into_iter().enumerate() {
                        *counts[i].entry(*osd).or_default() += n;
                        *at.counts[i].entry(*osd).or_insert(0) += n;
                    }
                }
            }
            for i in 0..3 {
                for osd in none.keys() {
                    at.counts[i].entry(*osd).or_insert(0);
                }
            }
            e.pools.insert(name, (root.to_owned(), counts));
        }
        e
    }

    fn stats(&self) -> BTreeMap<&str, [Stats; 3]> {
        let one = |r: &Root| [0, 1, 2].map(|i| Stats::of(&r.counts[i], &r.target));
        self.roots.iter().map(|(name, r)| (name.as_str(), one(r))).collect()
    }

    /// The average of all scores by root.
    #[must_use]
    pub fn score(&self) -> f64 {
        let stats = self.stats();
        // The sum of nothing is minus zero.
        let sum = stats.values().flatten().fold(0.0, |sum, s| sum + s.score);
        sum / (3 * stats.len()).max(1) as f64
    }

    /// For people: one line, or all there is.
    #[must_use]
    pub fn show(&self, of: &str, verbose: bool) -> String {
        let score = format!("score {:.6} (lower is better)\n", self.score());
        if !verbose {
            return format!("{of} {score}");
        }
        let by_kind = |f: &dyn Fn(usize) -> Value| {
            let kinds = KINDS.iter().enumerate().map(|(i, kind)| ((*kind).to_owned(), f(i)));
            Value::Object(kinds.collect::<Map<_, _>>())
        };
        let by_osd = |c: &Counts, total: u64| {
            let part = |n: u64| if total > 0 { n as f64 / total as f64 } else { 0.0 };
            let all = c.iter().map(|(o, n)| (o.0.to_string(), json!(part(*n))));
            Value::Object(all.collect::<Map<_, _>>())
        };
        let sums = |c: &[Counts; 3]| c.clone().map(|c| c.values().sum::<u64>());
        let actual = |c: &[Counts; 3]| by_kind(&|i| by_osd(&c[i], sums(c)[i].max(1)));
        let counted = |c: &[Counts; 3]| by_kind(&|i| json!(plain(&c[i])));
        let total = |c: &[Counts; 3]| by_kind(&|i| json!(sums(c)[i]));
        let pools = |f: &dyn Fn(&[Counts; 3]) -> Value| {
            let all = self.pools.iter().map(|(name, (_, c))| (name.clone(), f(c)));
            Value::Object(all.collect::<Map<_, _>>())
        };
        let roots = |f: &dyn Fn(&Root) -> Value| {
            let all = self.roots.iter().map(|(name, r)| (name.clone(), f(r)));
            Value::Object(all.collect::<Map<_, _>>())
        };
        let stats = |c: &[Counts; 3], t: &BTreeMap<OsdId, f64>| {
            let c = c.clone();
            by_kind(&|i| Stats::of(&c[i], t).json())
        };
        let score_of = |c: &[Counts; 3], t: &BTreeMap<OsdId, f64>| {
            let c = c.clone();
            by_kind(&|i| json!(Stats::of(&c[i], t).score))
        };
        let targets = roots(&|r| {
            let all = r.target.iter().map(|(o, t)| (o.0.to_string(), json!(t)));
            Value::Object(all.collect::<Map<_, _>>())
        });
        let pool_scores = self
            .pools
            .iter()
            .map(|(name, (root, c))| (name.clone(), score_of(c, &self.roots[root].target)));
        let pool_scores = Value::Object(pool_scores.collect::<Map<_, _>>());
        let lines = [
            ("target_by_root", targets),
            ("actual_by_pool", pools(&actual)),
            ("actual_by_root", roots(&|r| actual(&r.counts))),
            ("count_by_pool", pools(&counted)),
            ("count_by_root", roots(&|r| counted(&r.counts))),
            ("total_by_pool", pools(&total)),
            ("total_by_root", roots(&|r| total(&r.counts))),
            ("stats_by_root", roots(&|r| stats(&r.counts, &r.target))),
            ("score_by_pool", pool_scores),
            ("score_by_root", roots(&|r| score_of(&r.counts, &r.target))),
        ];
        let lines: String = lines.iter().map(|(name, v)| format!("{name} {v}\n")).collect();
        format!("{of}\n{lines}{score}")
    }
}

fn plain(counts: &Counts) -> BTreeMap<String, u64> {
    counts.iter().map(|(o, n)| (o.0.to_string(), *n)).collect()
}

/// What part of a rule's data each OSD should have.
fn shares(map: &OsdMap, rule: u32) -> BTreeMap<OsdId, f64> {
    let weights = crushops::rule_weights(&map.crush, rule);
    let weight = |o: &OsdId, w: f64| w * f64::from(map.weight(*o)) / 65_536.0;
    let weights = weights.iter().map(|(o, w)| (*o, weight(o, *w))).filter(|(_, w)| *w > 0.0);
    let weights: BTreeMap<OsdId, f64> = weights.collect();
    let total: f64 = weights.values().sum();
    weights.into_iter().map(|(o, w)| (o, w / total)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_function() {
        for (x, want) in [
            (0.0, 0.0),
            (0.5, 0.520_499_877_8),
            (1.0, 0.842_700_792_9),
            (3.0, 0.999_977_909_5),
            (9.0, 1.0),
        ] {
            assert!((erf(x) - want).abs() < 1e-9, "{x}: {}", erf(x));
        }
    }

    /// Numbers worked out from the peer's formulas by hand.
    #[test]
    fn scores() {
        let target = BTreeMap::from([(OsdId(0), 0.5), (OsdId(1), 0.5)]);
        let counts = |a, b| BTreeMap::from([(OsdId(0), a), (OsdId(1), b)]);
        assert_eq!(Stats::of(&counts(10, 10), &target).score, 0.0);
        let s = Stats::of(&counts(15, 5), &target);
        assert_eq!((s.avg, s.sum_weight), (10.0, 0.5));
        assert!((s.stddev - 50f64.sqrt()).abs() < 1e-9);
        assert!((s.score - 0.5 * 0.382_924_922_5).abs() < 1e-9, "{}", s.score);
        assert_eq!(Stats::of(&counts(0, 0), &target), Stats::default());
    }

    /// What is worse gets more, and a plan of the balancer makes it less.
    #[test]
    fn of_maps() {
        let mut map = crate::balance::tests::hosts(5, 2, 128);
        let before = Eval::new(&map, &PgMap::default(), &BTreeSet::new());
        assert!(before.score() > 0.0 && before.score() < 1.0);
        for _ in 0..50 {
            let bounds = crate::balance::Bounds { deviation: 1.0, changes: 20 };
            for (pg, items) in crate::balance::plan(&map, &bounds, &BTreeSet::new()).0 {
                std::sync::Arc::make_mut(&mut map.pg_upmap_items).insert(pg, items);
            }
        }
        let after = Eval::new(&map, &PgMap::default(), &BTreeSet::new());
        assert!(after.score() < before.score(), "{} {}", before.score(), after.score());
        assert!(after.show("x", false).starts_with("x score 0.0"));
        assert!(after.show("x", true).contains("\ncount_by_pool {\"p\":{\"pgs\":{"));
        let none = Eval::new(&map, &PgMap::default(), &BTreeSet::from([PoolId(9)]));
        assert_eq!(none.show("x", false), "x score 0.000000 (lower is better)\n");
    }
}
