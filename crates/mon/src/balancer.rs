//! The balancer: when it works, in which way, and plans that operators make by hand.
//!
//! Source: the peer's `pybind/mgr/balancer/module.py`: options, sentences, forms.

use std::collections::BTreeSet;
use std::fmt::Write;

use maps::OsdMap;
use serde_json::{Value, json};
use types::{EntityKind, EntityName, Epoch, PoolId};

use crate::balance::{self, Bounds};
use crate::primaries::{self, Leaders};
use crate::{ConfigDb, PgMap};

/// How it balances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Not at all.
    None,
    /// Copies.
    Upmap,
    /// Who leads.
    Read,
    /// Copies, then who leads.
    UpmapRead,
}

impl Mode {
    /// By the peer's name, those that are here.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "none" => Self::None,
            "upmap" => Self::Upmap,
            "read" => Self::Read,
            "upmap-read" => Self::UpmapRead,
            _ => return None,
        })
    }

    /// The peer's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Upmap => "upmap",
            Self::Read => "read",
            Self::UpmapRead => "upmap-read",
        }
    }

    /// The release that clients must be of, at least.
    fn release(self) -> u8 {
        match self {
            Self::None => 0,
            Self::Upmap => 12,
            Self::Read | Self::UpmapRead => 18,
        }
    }

    /// What is missing in the map for this mode.
    #[must_use]
    pub fn lacks(self, map: &OsdMap) -> Option<String> {
        if map.require_min_compat_client >= self.release() {
            return None;
        }
        let (name, what) = match self {
            Self::None | Self::Upmap => ("luminous", "pg-upmap"),
            Self::Read | Self::UpmapRead => ("reef", "pg-upmap-primary"),
        };
        Some(format!(
            "min_compat_client is below {name}, which is required for {what}. Try \"ceph osd \
             set-require-min-compat-client {name}\" before enabling this mode"
        ))
    }
}

/// What operators set.
#[derive(Clone, Debug)]
pub struct Options {
    /// It works by itself.
    pub active: bool,
    /// How.
    pub mode: Mode,
    /// How much at once.
    pub bounds: Bounds,
    /// Which pools; none: all.
    pub pools: BTreeSet<PoolId>,
    /// Part of the objects that may be on the move.
    pub misplaced_max: Option<f64>,
}

impl Options {
    /// From the manager's settings.
    #[must_use]
    pub fn read(config: &ConfigDb) -> Self {
        let mgr = EntityName::new(EntityKind::MGR, "x");
        let option = |name: &str| config.get(&mgr, &format!("mgr/balancer/{name}"));
        let number = |name: &str| -> Option<f64> { option(name)?.parse().ok() };
        let active = option("active").is_some_and(|v| matches!(v.as_str(), "true" | "1" | "yes"));
        let default = if active { Mode::Upmap } else { Mode::None };
        let changes = number("upmap_max_optimizations").unwrap_or(10.0).clamp(1.0, 1_000.0);
        let ids = option("pool_ids").unwrap_or_default();
        Self {
            active,
            mode: option("mode").map_or(default, |m| Mode::parse(&m).unwrap_or(Mode::None)),
            bounds: Bounds {
                deviation: number("upmap_max_deviation").unwrap_or(5.0).max(1.0),
                changes: changes as usize,
            },
            pools: ids.split(',').filter_map(|id| id.trim().parse().ok().map(PoolId)).collect(),
            misplaced_max: number("target_max_misplaced_ratio"),
        }
    }
}

/// What is to change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Its name.
    pub name: String,
    /// How it came about.
    pub mode: &'static str,
    /// The map it began with.
    pub epoch: Epoch,
    /// And that map's CRUSH map.
    pub crush: i32,
    /// The pools asked for; none: all.
    pub pools: BTreeSet<PoolId>,
    /// Exceptions to placement; empty ones end.
    pub items: balance::Plan,
    /// Exceptions to who leads.
    pub leaders: Leaders,
}

/// Nothing is left to do: the peer's sentence.
pub const EVEN: &str = "Unable to find further optimization, or pool(s) pg_num is decreasing, \
                        or distribution is already perfect";
/// A plan was made: the peer's sentence.
pub const MADE: &str = "Optimization plan created successfully";

const EAGAIN: i32 = 11;
const ENOEXEC: i32 = 8;
const EPERM: i32 = 1;
const EALREADY: i32 = 114;

/// Why nothing is to be moved now.
fn obstacle(pgmap: &PgMap, misplaced_max: f64) -> Option<String> {
    let mut sum = maps::ObjectStatSum::default();
    for pool in pgmap.pools.values() {
        sum.add(&pool.stats.sum);
    }
    let part = |n: i64| n as f64 / sum.num_object_copies.max(1) as f64;
    let unknown = pgmap.pgs.values().filter(|s| s.state.0 == 0).count();
    let inactive = pgmap.pgs.values().filter(|s| !s.state.has(maps::PgState::ACTIVE)).count();
    if unknown > 0 {
        return Some(format!("Some PGs ({unknown}) are unknown; try again later"));
    }
    if inactive > 0 {
        return Some(format!("Some PGs ({inactive}) are inactive; try again later"));
    }
    if sum.num_objects_degraded > 0 {
        let part = part(sum.num_objects_degraded);
        return Some(format!("Some objects ({part:.6}) are degraded; try again later"));
    }
    let part = part(sum.num_objects_misplaced);
    (part > misplaced_max).then(|| {
        format!("Too many objects ({part:.6} > {misplaced_max:.6}) are misplaced; try again later")
    })
}

/// Makes a plan for the pools named; for all if none is.
///
/// # Errors
/// Errno, positive, and why there is none: [`EVEN`] when all is as it should be.
pub fn optimize(
    name: &str,
    map: &OsdMap,
    pgmap: &PgMap,
    options: &Options,
    pools: &BTreeSet<PoolId>,
    misplaced_max: f64,
) -> Result<Plan, (i32, String)> {
    let mode = options.mode;
    if mode == Mode::None {
        let why = "Please do \"ceph balancer mode\" to choose a valid mode first";
        return Err((ENOEXEC, why.to_owned()));
    }
    if let Some(why) = obstacle(pgmap, options.misplaced_max.unwrap_or(misplaced_max)) {
        return Err((EAGAIN, why));
    }
    if let Some(why) = mode.lacks(map) {
        return Err((EPERM, why));
    }
    let mut plan = Plan {
        name: name.to_owned(),
        mode: mode.name(),
        epoch: map.epoch,
        crush: map.crush_version,
        pools: pools.clone(),
        items: balance::Plan::new(),
        leaders: Leaders::new(),
    };
    if mode != Mode::Read {
        plan.items = balance::plan(map, &options.bounds, pools).0;
    }
    // Who leads is worth a thought once the copies are where they shall be.
    if mode == Mode::Read || (mode == Mode::UpmapRead && plan.items.is_empty()) {
        plan.leaders = primaries::plan(map, options.bounds.changes, pools);
    }
    if plan.items.is_empty() && plan.leaders.is_empty() {
        return Err((EALREADY, EVEN.to_owned()));
    }
    Ok(plan)
}

impl Plan {
    /// The change it makes to a map; what is no longer true of the map is left out.
    pub fn put(&self, map: &OsdMap, inc: &mut maps::Incremental) {
        for (pg, items) in self.items.iter().filter(|(pg, _)| map.have_pg(**pg)) {
            if items.is_empty() {
                inc.old_pg_upmap_items.insert(*pg);
            } else if items.iter().all(|(a, b)| map.exists(*a) && map.exists(*b)) {
                inc.new_pg_upmap_items.insert(*pg, items.clone());
            }
        }
        for (pg, leader) in self.leaders.iter().filter(|(pg, _)| map.have_pg(**pg)) {
            match leader {
                None => drop(inc.old_pg_upmap_primary.insert(*pg)),
                Some(osd) if map.pg_to_up_acting(*pg).up.contains(osd) => {
                    inc.new_pg_upmap_primary.insert(*pg, *osd);
                }
                Some(_) => {}
            }
        }
    }

    /// The commands that would do the same.
    #[must_use]
    pub fn show(&self) -> String {
        let mut t = format!(
            "# starting osdmap epoch {}\n# starting crush version {}\n# mode {}\n",
            self.epoch, self.crush, self.mode
        );
        for (pg, items) in &self.items {
            if items.is_empty() {
                let _ = writeln!(t, "ceph osd rm-pg-upmap-items {pg}");
                continue;
            }
            let pairs: Vec<String> = items.iter().map(|(a, b)| format!("{a} {b}")).collect();
            let _ = writeln!(t, "ceph osd pg-upmap-items {pg} {}", pairs.join(" "));
        }
        for (pg, leader) in &self.leaders {
            let _ = match leader {
                Some(osd) => writeln!(t, "ceph osd pg-upmap-primary {pg} {osd}"),
                None => writeln!(t, "ceph osd rm-pg-upmap-primary {pg}"),
            };
        }
        t
    }

    /// The change to the map, by the names of its fields.
    #[must_use]
    pub fn dump(&self) -> Value {
        let (old, new): (Vec<_>, Vec<_>) = self.items.iter().partition(|(_, i)| i.is_empty());
        let pair = |(a, b): &(types::OsdId, types::OsdId)| json!({"from": a.0, "to": b.0});
        let item = |(pg, items): (&types::PgId, &Vec<_>)| {
            json!({
                "pgid": pg.to_string(),
                "mappings": items.iter().map(pair).collect::<Vec<_>>(),
            })
        };
        let name = |pg: &types::PgId| json!(pg.to_string());
        let leader = |(pg, osd): (&types::PgId, &Option<types::OsdId>)| {
            Some(json!({"pgid": pg.to_string(), "primary_osd": (*osd)?.0}))
        };
        let ended = self.leaders.iter().filter(|(_, osd)| osd.is_none());
        json!({
            "epoch": self.epoch.0 + 1,
            "new_pg_upmap_items": new.into_iter().map(item).collect::<Vec<_>>(),
            "old_pg_upmap_items": old.iter().map(|(pg, _)| name(pg)).collect::<Vec<_>>(),
            "new_pg_upmap_primaries": self.leaders.iter().filter_map(leader).collect::<Vec<_>>(),
            "old_pg_upmap_primaries": ended.map(|(pg, _)| name(pg)).collect::<Vec<_>>(),
        })
    }
}
