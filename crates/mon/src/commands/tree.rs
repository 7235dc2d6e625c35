//! The CRUSH tree with OSDs on it: `osd tree`, `osd df`, `osd crush tree`.

use std::collections::{BTreeMap, BTreeSet};

use cli::Align::{Left, Right};
use cli::{Formatter, TextTable, bytes_u};
use maps::{OsdMap, OsdState, StoreStatfs};
use types::OsdId;

use super::{EINVAL, ENOENT, Fail, Run, df, fail, out, weight_float, weight_text};
use crate::CommandCtx;

/// One node, in the order in which the tree is written.
pub(super) struct Node {
    pub id: i32,
    pub depth: usize,
    pub weight: u32,
}

/// Children of a bucket: by class then id for OSDs, by name for buckets, as the peer sorts.
fn children(map: &OsdMap, id: i32) -> Vec<(i32, u32)> {
    let crush = &map.crush;
    let Some(bucket) = crush.bucket(id) else { return Vec::new() };
    let items = bucket.items().iter().enumerate();
    let mut list: Vec<(i32, u32)> = items.map(|(i, item)| (*item, bucket.item_weight(i))).collect();
    list.sort_by_key(|(item, _)| {
        if *item >= 0 {
            (format!("{}_osd.{item:08}", crush.class_name_of(*item).unwrap_or("")), 0)
        } else {
            (format!("_{}", crush.names().get(*item).unwrap_or("")), 0)
        }
    });
    list
}

/// The nodes below some roots, in order; `keep` says which are shown.
pub(super) fn walk(map: &OsdMap, roots: &[i32], keep: &dyn Fn(i32) -> bool) -> Vec<Node> {
    let mut nodes = Vec::new();
    let mut stack: Vec<(i32, usize, u32)> =
        roots.iter().rev().map(|id| (*id, 0, map.crush.item_weight(*id).unwrap_or(0))).collect();
    while let Some((id, depth, weight)) = stack.pop() {
        if depth > ::crush::DEPTH_MAX || !keep(id) {
            continue;
        }
        nodes.push(Node { id, depth, weight });
        for (item, weight) in children(map, id).into_iter().rev() {
            stack.push((item, depth + 1, weight));
        }
    }
    nodes
}

/// Roots without shadows, smallest id first, as the peer walks them.
pub(super) fn roots(map: &OsdMap, shadow: bool) -> Vec<i32> {
    let set: BTreeSet<i32> = if shadow { map.crush.roots() } else { map.crush.nonshadow_roots() };
    set.into_iter().collect()
}

fn name_of(map: &OsdMap, id: i32) -> String {
    if id >= 0 {
        return format!("osd.{id}");
    }
    map.crush.names().get(id).map_or_else(|| format!("bucket{}", -1 - id), str::to_owned)
}

fn kind_name(map: &OsdMap, id: i32) -> &str {
    let kind = map.crush.item_kind(id).unwrap_or(0);
    map.crush.type_name(kind).unwrap_or("unknown")
}

fn class_of(map: &OsdMap, id: i32) -> &str {
    if id >= 0 {
        return map.crush.class_name_of(id).unwrap_or("");
    }
    // A shadow bucket shows the class it is the shadow of.
    let class = map.crush.split_id_class(id).ok().and_then(|(_, class)| class);
    class.and_then(|c| map.crush.class_names().get(c)).unwrap_or("")
}

/// `    root default`, four blanks per level.
fn indented(map: &OsdMap, node: &Node) -> String {
    let blanks = " ".repeat(node.depth * 4);
    if node.id >= 0 {
        return format!("{blanks}osd.{}", node.id);
    }
    format!("{blanks}{} {}", kind_name(map, node.id), name_of(map, node.id))
}

fn node_weight(node: &Node) -> String {
    if node.weight == 0 && node.id < 0 { "0".to_owned() } else { weight_text(node.weight) }
}

/// The fields every tree's node begins with.
fn dump_node(f: &mut Formatter, map: &OsdMap, node: &Node) {
    f.int("id", node.id);
    if node.id >= 0 {
        let class = class_of(map, node.id);
        if !class.is_empty() {
            f.string("device_class", class);
        }
    }
    f.string("name", name_of(map, node.id));
    f.string("type", kind_name(map, node.id));
    f.int("type_id", map.crush.item_kind(node.id).unwrap_or(0));
    if node.id >= 0 {
        f.float("crush_weight", weight_float(node.weight));
        f.len("depth", node.depth);
    }
    if node.depth > 0 {
        f.object("pool_weights", |f| {
            let Some(parent) = map.crush.parent(node.id) else { return };
            let at = parent.items().iter().position(|i| *i == node.id);
            let (parent, Some(at)) = (parent.id(), at) else { return };
            for (set, args) in map.crush.choose_args() {
                let name = if *set == ::crush::DEFAULT_CHOOSE_ARGS {
                    "(compat)".to_owned()
                } else {
                    let pool = types::PoolId(*set);
                    map.pool_name(pool).map_or_else(|| set.to_string(), str::to_owned)
                };
                if let Some(arg) = args.get(parent) {
                    f.array(&name, |f| {
                        for weights in arg.weight_set() {
                            if let Some(weight) = weights.get(at) {
                                f.float("weight", weight_float(*weight));
                            }
                        }
                    });
                }
            }
        });
    }
}

fn dump_children(f: &mut Formatter, map: &OsdMap, node: &Node, keep: &dyn Fn(i32) -> bool) {
    if node.id < 0 {
        f.array("children", |f| {
            for (child, _) in children(map, node.id).iter().rev().filter(|(c, _)| keep(*c)) {
                f.int("child", *child);
            }
        });
    }
}

/// OSDs of the map that are nowhere in the tree.
fn stray(map: &OsdMap) -> Vec<OsdId> {
    map.osds().filter(|o| !map.crush.is_in_a_bucket(o.0)).collect()
}

/// Which OSDs `osd tree up` and its like show.
fn filter(ctx: &CommandCtx<'_>, map: &OsdMap) -> Result<Option<BTreeSet<OsdId>>, Fail> {
    let words = ctx.cmd.list("states")?;
    if words.is_empty() {
        return Ok(None);
    }
    let (mut liveness, mut membership) = (Vec::new(), Vec::new());
    for word in &words {
        match word.as_str() {
            "up" | "down" | "destroyed" => liveness.push(word.as_str()),
            "in" | "out" => membership.push(word.as_str()),
            _ => return Err(fail(EINVAL, format!("unrecognized state '{word}'"))),
        }
    }
    if membership.len() > 1 {
        return Err(fail(EINVAL, "cannot specify both 'in' and 'out'"));
    }
    if liveness.len() > 1 {
        return Err(fail(EINVAL, "can specify only one of 'up', 'down' and 'destroyed'"));
    }
    let fits = |osd: &OsdId| {
        let destroyed = map.state(*osd).has(OsdState::DESTROYED);
        liveness.iter().all(|word| match *word {
            "up" => map.is_up(*osd),
            "down" => map.is_down(*osd) && !destroyed,
            _ => destroyed,
        }) && membership.iter().all(|word| (*word == "in") == map.is_in(*osd))
    };
    Ok(Some(map.osds().filter(fits).collect()))
}

fn start(map: &OsdMap, bucket: Option<&str>) -> Result<Vec<i32>, Fail> {
    let Some(bucket) = bucket else { return Ok(roots(map, false)) };
    match map.crush.names().id(bucket) {
        Some(id) if id < 0 => Ok(vec![id]),
        Some(_) => Err(fail(EINVAL, format!("bucket '{bucket}' is not a bucket"))),
        None => Err(fail(ENOENT, format!("bucket '{bucket}' does not exist"))),
    }
}

pub(super) fn osd_tree(ctx: &mut CommandCtx<'_>, bucket: Option<&str>) -> Run {
    let map = &super::osd::map_at(ctx)?;
    let shown = filter(ctx, map)?;
    let start = start(map, bucket)?;
    let keep = |id: i32| match &shown {
        None => true,
        Some(set) if id >= 0 => set.contains(&OsdId(id)),
        Some(set) => map.crush.leaves(id).into_iter().any(|o| set.contains(&OsdId(o))),
    };
    let nodes = walk(map, &start, &keep);
    let stray: Vec<OsdId> = if bucket.is_some() {
        Vec::new()
    } else {
        stray(map).into_iter().filter(|o| keep(o.0)).collect()
    };
    let status = |osd: OsdId| {
        if map.is_up(osd) {
            "up"
        } else if map.state(osd).has(OsdState::DESTROYED) {
            "destroyed"
        } else if map.exists(osd) {
            "down"
        } else {
            "DNE"
        }
    };
    if let Some(mut f) = ctx.formatter() {
        f.open_object("tree");
        let dump = |f: &mut Formatter, node: &Node| {
            f.object("item", |f| {
                dump_node(f, map, node);
                if node.id >= 0 {
                    let osd = OsdId(node.id);
                    f.int("exists", i32::from(map.exists(osd)));
                    f.string("status", status(osd));
                    f.float("reweight", weight_float(map.weight(osd)));
                    f.float("primary_affinity", weight_float(map.affinity(osd)));
                }
                dump_children(f, map, node, &keep);
            });
        };
        f.array("nodes", |f| {
            for node in &nodes {
                dump(f, node);
            }
        });
        f.array("stray", |f| {
            for osd in &stray {
                dump(f, &Node { id: osd.0, depth: 0, weight: 0 });
            }
        });
        f.close();
        return out(f.finish_line());
    }
    let mut table = TextTable::with(&[
        ("ID", Left, Right),
        ("CLASS", Left, Right),
        ("WEIGHT", Left, Right),
        ("TYPE NAME", Left, Left),
        ("STATUS", Left, Right),
        ("REWEIGHT", Left, Right),
        ("PRI-AFF", Left, Right),
    ]);
    let strays = stray.iter().map(|o| Node { id: o.0, depth: 0, weight: 0 });
    for node in nodes.into_iter().chain(strays) {
        let mut row = vec![
            node.id.to_string(),
            class_of(map, node.id).to_owned(),
            node_weight(&node),
            indented(map, &node),
        ];
        if node.id >= 0 {
            let osd = OsdId(node.id);
            row.push(status(osd).to_owned());
            if map.exists(osd) {
                row.push(weight_text(map.weight(osd)));
                row.push(weight_text(map.affinity(osd)));
            } else {
                row.extend(["0".to_owned(), String::new()]);
            }
        }
        table.row(row);
    }
    out(table.render())
}

/// `osd crush tree`.
pub(super) fn crush_tree(ctx: &mut CommandCtx<'_>) -> Run {
    let map = ctx.osdmap();
    let shadow = ctx.cmd.flag("show_shadow") || ctx.cmd.str("shadow").is_ok_and(|s| s.is_some());
    let roots = roots(map, shadow);
    let nodes = walk(map, &roots, &|_| true);
    if let Some(mut f) = ctx.formatter() {
        f.open_object("crush_tree");
        f.array("nodes", |f| {
            for node in &nodes {
                f.object("item", |f| {
                    dump_node(f, map, node);
                    dump_children(f, map, node, &|_| true);
                });
            }
        });
        f.array("stray", |f| {
            for osd in stray(map) {
                f.object("item", |f| {
                    dump_node(f, map, &Node { id: osd.0, depth: 0, weight: 0 });
                });
            }
        });
        f.close();
        return out(f.finish());
    }
    let mut table = TextTable::with(&[
        ("ID", Left, Right),
        ("CLASS", Left, Right),
        ("WEIGHT", Left, Right),
        ("TYPE NAME", Left, Left),
    ]);
    for node in nodes {
        table.row(vec![
            node.id.to_string(),
            class_of(map, node.id).to_owned(),
            node_weight(&node),
            indented(map, &node),
        ]);
    }
    out(table.render())
}

/// An OSD's or a bucket's space, for `osd df`.
#[derive(Clone, Copy, Default)]
struct Space {
    statfs: StoreStatfs,
}

impl Space {
    fn utilization(&self) -> f64 {
        if self.statfs.total == 0 {
            return 0.0;
        }
        let used = self.statfs.total.saturating_sub(self.statfs.available);
        used as f64 * 100.0 / self.statfs.total as f64
    }

    fn used(&self) -> u64 {
        self.statfs.total.saturating_sub(self.statfs.available)
    }

    fn part(n: i64) -> u64 {
        u64::try_from(n).unwrap_or(0)
    }
}

fn two_digits(value: f64) -> String {
    let text = format!("{value:.2}");
    if text == "0.00" { "0".to_owned() } else { text }
}

#[allow(clippy::too_many_lines)]
pub(super) fn osd_df(ctx: &mut CommandCtx<'_>) -> Run {
    let map = ctx.osdmap();
    let tree = ctx.cmd.str("output_method")? == Some("tree");
    let wanted = ctx.cmd.str_or_empty("filter")?;
    // Like the peer: the name of a pool, a node or a class, whatever `filter_by` says.
    let shown: Option<BTreeSet<i32>> = if wanted.is_empty() {
        None
    } else if let Some(pool) = map.pool_by_name(wanted).and_then(|id| map.pool(id)) {
        let takes = map.crush.takes_of_rule(u32::from(pool.crush_rule));
        Some(takes.into_iter().flat_map(|take| map.crush.leaves(take)).collect())
    } else if let Some(id) = map.crush.names().id(wanted) {
        Some(map.crush.leaves(id))
    } else if map.crush.class_names().id(wanted).is_some() {
        Some(map.crush.devices_of_class(wanted))
    } else {
        let why = format!("'{wanted}' not a pool, crush node or device class name");
        return Err(fail(EINVAL, why));
    };
    let keep = |id: i32| match &shown {
        None => true,
        Some(set) if id >= 0 => set.contains(&id),
        Some(set) => map.crush.leaves(id).iter().any(|o| set.contains(o)),
    };
    let nodes = walk(map, &roots(map, false), &keep);
    let mut pgs: BTreeMap<OsdId, u32> = BTreeMap::new();
    for (_, sets) in ctx.volatile.mapping.iter() {
        for osd in &sets.acting {
            *pgs.entry(*osd).or_default() += 1;
        }
    }
    let space_of = |id: i32| {
        let mut space = Space::default();
        for osd in map.crush.leaves(id) {
            if keep(osd) && map.exists(OsdId(osd)) {
                space.statfs.add(&df::osd_statfs(ctx, OsdId(osd)));
            }
        }
        space
    };
    let stray: Vec<OsdId> = stray(map).into_iter().filter(|o| keep(o.0)).collect();
    let mut all = Space::default();
    let mut osds: BTreeSet<i32> = nodes.iter().filter(|n| n.id >= 0).map(|n| n.id).collect();
    osds.extend(stray.iter().map(|o| o.0));
    for osd in &osds {
        all.statfs.add(&df::osd_statfs(ctx, OsdId(*osd)));
    }
    let average = all.utilization();
    let var = |space: &Space| if average > 0.0 { space.utilization() / average } else { 0.0 };
    let (mut min, mut max, mut sum, mut weights) = (f64::INFINITY, 0f64, 0f64, 0f64);
    for osd in &osds {
        let id = OsdId(*osd);
        let space = Space { statfs: df::osd_statfs(ctx, id) };
        if space.statfs.total == 0 || map.weight(id) == 0 {
            continue;
        }
        min = min.min(var(&space));
        max = max.max(var(&space));
        let weight =
            f64::from(map.crush.item_weight(*osd).unwrap_or(0)) * weight_float(map.weight(id));
        sum += weight * (space.utilization() - average).powi(2);
        weights += weight;
    }
    let min = if min.is_finite() { min } else { 0.0 };
    let dev = if weights > 0.0 { (sum / weights).sqrt() } else { 0.0 };
    let status = |osd: OsdId| if map.is_up(osd) { "up" } else { "down" };
    if let Some(mut f) = ctx.formatter() {
        f.open_object("df");
        let dump = |f: &mut Formatter, node: &Node| {
            f.object("item", |f| {
                dump_node(f, map, node);
                let osd = OsdId(node.id);
                let space = space_of(node.id);
                let s = &space.statfs;
                let reweight = if node.id >= 0 { weight_float(map.weight(osd)) } else { -1.0 };
                f.float("reweight", reweight);
                f.int("kb", s.total >> 10);
                f.int("kb_used", space.used() >> 10);
                f.int("kb_used_data", Space::part(s.allocated) >> 10);
                f.int("kb_used_omap", Space::part(s.omap_allocated) >> 10);
                f.int("kb_used_meta", Space::part(s.internal_metadata) >> 10);
                f.int("kb_avail", s.available >> 10);
                f.float("utilization", space.utilization());
                f.float("var", var(&space));
                if node.id >= 0 {
                    f.int("pgs", pgs.get(&osd).copied().unwrap_or(0));
                    f.string("status", status(osd));
                } else {
                    f.int("pgs", 0);
                    dump_children(f, map, node, &keep);
                }
            });
        };
        f.array("nodes", |f| {
            for node in nodes.iter().filter(|n| tree || n.id >= 0) {
                dump(f, node);
            }
        });
        f.array("stray", |f| {
            for osd in &stray {
                dump(f, &Node { id: osd.0, depth: 0, weight: 0 });
            }
        });
        f.object("summary", |f| {
            let s = &all.statfs;
            f.int("total_kb", s.total >> 10);
            f.int("total_kb_used", all.used() >> 10);
            f.int("total_kb_used_data", Space::part(s.allocated) >> 10);
            f.int("total_kb_used_omap", Space::part(s.omap_allocated) >> 10);
            f.int("total_kb_used_meta", Space::part(s.internal_metadata) >> 10);
            f.int("total_kb_avail", s.available >> 10);
            f.float("average_utilization", average);
            f.float("min_var", min);
            f.float("max_var", max);
            f.float("dev", dev);
        });
        f.close();
        return out(f.finish_line());
    }
    let mut table = TextTable::with(&[
        ("ID", Left, Right),
        ("CLASS", Left, Right),
        ("WEIGHT", Left, Right),
        ("REWEIGHT", Left, Right),
        ("SIZE", Left, Right),
        ("RAW USE", Left, Right),
        ("DATA", Left, Right),
        ("OMAP", Left, Right),
        ("META", Left, Right),
        ("AVAIL", Left, Right),
        ("%USE", Left, Right),
        ("VAR", Left, Right),
        ("PGS", Left, Right),
        ("STATUS", Left, Right),
    ]);
    if tree {
        table.column("TYPE NAME", Left, Left);
    }
    let sizes = |space: &Space| {
        let s = &space.statfs;
        vec![
            bytes_u(s.total),
            bytes_u(space.used()),
            bytes_u(Space::part(s.allocated)),
            bytes_u(Space::part(s.omap_allocated)),
            bytes_u(Space::part(s.internal_metadata)),
            bytes_u(s.available),
        ]
    };
    let strays = stray.iter().map(|o| Node { id: o.0, depth: 0, weight: 0 });
    for node in nodes.into_iter().chain(strays).filter(|n| tree || n.id >= 0) {
        let osd = OsdId(node.id);
        let space = space_of(node.id);
        let mut row = vec![
            node.id.to_string(),
            class_of(map, node.id).to_owned(),
            node_weight(&node),
            if node.id >= 0 { weight_or_zero(map.weight(osd)) } else { "-".to_owned() },
        ];
        row.extend(sizes(&space));
        row.push(two_digits(space.utilization()));
        row.push(two_digits(var(&space)));
        if node.id >= 0 {
            row.push(pgs.get(&osd).copied().unwrap_or(0).to_string());
            row.push(status(osd).to_owned());
        } else {
            row.extend(["-".to_owned(), String::new()]);
        }
        if tree {
            row.push(indented(map, &node));
        }
        table.row(row);
    }
    let mut total = vec![String::new(), String::new(), String::new(), "TOTAL".to_owned()];
    total.extend(sizes(&all));
    total.push(two_digits(average));
    table.row(total);
    out(format!(
        "{}MIN/MAX VAR: {}/{}  STDDEV: {}",
        table.render(),
        two_digits(min),
        two_digits(max),
        if dev < 0.005 { "0".to_owned() } else { two_digits(dev) }
    ) + "\n")
}

fn weight_or_zero(weight: u32) -> String {
    if weight == 0 { "0".to_owned() } else { weight_text(weight) }
}
