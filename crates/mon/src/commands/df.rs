//! Space: `df`, and what pools do: `osd pool stats`.

use std::collections::BTreeMap;
use std::fmt::Write;

use cli::Align::{Left, Right};
use cli::{Formatter, TextTable, bytes_u, si_u};
use maps::{ObjectStatSum, PgPool, StoreStatfs};
use types::{OsdId, PoolId};

use super::{EINVAL, ENOENT, Run, fail, out};
use crate::{CommandCtx, Rates};

/// Total, free and used bytes of the cluster.
pub(super) fn totals(ctx: &CommandCtx<'_>) -> (u64, u64, u64) {
    let mut sum = StoreStatfs::default();
    for stat in ctx.volatile.pgmap.osds.values() {
        sum.add(&stat.statfs);
    }
    (sum.total, sum.available, sum.used())
}

/// What a pool's PGs count.
pub(super) fn pool_sum(ctx: &CommandCtx<'_>, id: PoolId) -> ObjectStatSum {
    ctx.volatile.pgmap.pools.get(&id).map(|p| p.stats.sum).unwrap_or_default()
}

/// Space one pool takes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Used {
    /// As users wrote it, data.
    pub data: u64,
    /// As users wrote it, omap.
    pub omap: u64,
    /// On all OSDs together.
    pub raw: u64,
    /// Of that, compressed.
    pub compressed: u64,
    /// What that is when it is read.
    pub uncompressed: u64,
}

/// Space a pool takes, from its PGs' counts.
pub(super) fn pool_used(ctx: &CommandCtx<'_>, id: PoolId) -> Used {
    let sum = pool_sum(ctx, id);
    let positive = |n: i64| u64::try_from(n).unwrap_or(0);
    let (data, omap) = (positive(sum.num_bytes), positive(sum.num_omap_bytes));
    let (compressed, uncompressed) = ctx.volatile.pgmap.pool_compressed(id);
    let raw = ctx.volatile.pgmap.pool_raw_used(ctx.osdmap(), id);
    Used { data, omap, raw, compressed, uncompressed }
}

fn percent(part: f64) -> String {
    let text = format!("{:.2}", part * 100.0);
    if text == "0.00" { "0".to_owned() } else { text }
}

#[derive(Default)]
struct Class {
    statfs: StoreStatfs,
    osds: u32,
}

fn by_class(ctx: &CommandCtx<'_>) -> BTreeMap<String, Class> {
    let map = ctx.osdmap();
    let mut classes: BTreeMap<String, Class> = BTreeMap::new();
    for (osd, stat) in &ctx.volatile.pgmap.osds {
        if !map.exists(*osd) {
            continue;
        }
        let name = map.crush.class_name_of(osd.0).unwrap_or("").to_owned();
        let class = classes.entry(name).or_default();
        class.statfs.add(&stat.statfs);
        class.osds += 1;
    }
    classes
}

pub(super) fn df(ctx: &mut CommandCtx<'_>) -> Run {
    let detail = ctx.cmd.str_or_empty("detail")?;
    if !detail.is_empty() && detail != "detail" {
        return Err(fail(EINVAL, format!("unrecognized detail '{detail}'")));
    }
    let detail = !detail.is_empty();
    let classes = by_class(ctx);
    match ctx.formatter() {
        Some(f) => out(fields(ctx, f, &classes, detail)),
        None => out(text(ctx, &classes, detail)),
    }
}

fn text(ctx: &CommandCtx<'_>, classes: &BTreeMap<String, Class>, detail: bool) -> String {
    let mut raw = TextTable::with(&[
        ("CLASS", Left, Left),
        ("SIZE", Right, Right),
        ("AVAIL", Right, Right),
        ("USED", Right, Right),
        ("RAW USED", Right, Right),
        ("%RAW USED", Right, Right),
    ]);
    let mut all = StoreStatfs::default();
    let mut row = |name: &str, s: &StoreStatfs| {
        let ratio = if s.total == 0 { 0.0 } else { s.used() as f64 / s.total as f64 };
        raw.row(vec![
            name.to_owned(),
            bytes_u(s.total),
            bytes_u(s.available),
            bytes_u(s.used()),
            bytes_u(s.used()),
            percent(ratio),
        ]);
    };
    for (name, class) in classes {
        if !name.is_empty() {
            row(name, &class.statfs);
        }
        all.add(&class.statfs);
    }
    row("TOTAL", &all);
    let mut pools = TextTable::new();
    for (name, head) in [("POOL", Left), ("ID", Right), ("PGS", Right)] {
        pools.column(name, head, head);
    }
    let mut columns = vec!["STORED"];
    if detail {
        columns.extend(["(DATA)", "(OMAP)"]);
    }
    columns.extend(["OBJECTS", "USED"]);
    if detail {
        columns.extend(["(DATA)", "(OMAP)"]);
    }
    columns.extend(["%USED", "MAX AVAIL"]);
    if detail {
        columns.extend(["QUOTA OBJECTS", "QUOTA BYTES", "DIRTY", "USED COMPR", "UNDER COMPR"]);
    }
    for name in columns {
        pools.column(name, Right, Right);
    }
    let map = ctx.osdmap();
    for (id, pool) in map.pools.iter() {
        let used = pool_used(ctx, *id);
        let sum = pool_sum(ctx, *id);
        let avail = ctx.volatile.pgmap.max_avail(map, pool);
        let mut cells = vec![
            map.pool_name(*id).unwrap_or("<unknown>").to_owned(),
            id.to_string(),
            pool.pg_num.to_string(),
            bytes_u(used.data + used.omap),
        ];
        if detail {
            cells.extend([bytes_u(used.data), bytes_u(used.omap)]);
        }
        cells.push(si_u(sum.num_objects.max(0) as u64));
        cells.push(bytes_u(used.raw));
        if detail {
            let (data, omap) = split_raw(&used);
            cells.extend([bytes_u(data), bytes_u(omap)]);
        }
        cells.push(percent(pool_ratio(pool, &used, avail)));
        cells.push(bytes_u(avail));
        if detail {
            let quota = |n: u64, text: String| if n == 0 { "N/A".to_owned() } else { text };
            cells.push(quota(pool.quota_max_objects, si_u(pool.quota_max_objects)));
            cells.push(quota(pool.quota_max_bytes, bytes_u(pool.quota_max_bytes)));
            cells.push("N/A".to_owned());
            cells.extend([bytes_u(used.compressed), bytes_u(used.uncompressed)]);
        }
        pools.row(cells);
    }
    format!("--- RAW STORAGE ---\n{} \n--- POOLS ---\n{}", raw.render(), pools.render())
}

fn split_raw(used: &Used) -> (u64, u64) {
    let stored = used.data + used.omap;
    if stored == 0 {
        return (used.raw, 0);
    }
    let data = (used.raw as f64 * (used.data as f64 / stored as f64)) as u64;
    (data, used.raw - data.min(used.raw))
}

/// How full a pool is: what it has of what it has and could still get.
fn pool_ratio(pool: &PgPool, used: &Used, avail: u64) -> f64 {
    let rate = f64::from(pool.size.max(1));
    let whole = used.raw as f64 + avail as f64 * rate;
    if whole <= 0.0 { 0.0 } else { used.raw as f64 / whole }
}

fn dump_statfs(f: &mut Formatter, s: &StoreStatfs) {
    f.int("total_bytes", s.total);
    f.int("total_avail_bytes", s.available);
    f.int("total_used_bytes", s.used());
    f.int("total_used_raw_bytes", s.used());
    let ratio = if s.total == 0 { 0.0 } else { s.used() as f64 / s.total as f64 };
    f.float("total_used_raw_ratio", ratio);
}

fn fields(
    ctx: &CommandCtx<'_>,
    mut f: Formatter,
    classes: &BTreeMap<String, Class>,
    detail: bool,
) -> String {
    let mut all = StoreStatfs::default();
    let mut osds = 0;
    for class in classes.values() {
        all.add(&class.statfs);
        osds += class.osds;
    }
    f.open_object("stats");
    f.object("stats", |f| {
        dump_statfs(f, &all);
        f.int("num_osds", osds);
        f.int("num_per_pool_osds", osds);
        f.int("num_per_pool_omap_osds", osds);
    });
    f.object("stats_by_class", |f| {
        for (name, class) in classes.iter().filter(|(name, _)| !name.is_empty()) {
            f.object(name, |f| dump_statfs(f, &class.statfs));
        }
    });
    let map = ctx.osdmap();
    f.array("pools", |f| {
        for (id, pool) in map.pools.iter() {
            f.object("pool", |f| {
                f.string("name", map.pool_name(*id).unwrap_or("<unknown>"));
                f.int("id", id.0);
                f.object("stats", |f| pool_fields(ctx, f, *id, pool, detail));
            });
        }
    });
    f.finish_line()
}

fn pool_fields(ctx: &CommandCtx<'_>, f: &mut Formatter, id: PoolId, pool: &PgPool, detail: bool) {
    let used = pool_used(ctx, id);
    let sum = pool_sum(ctx, id);
    let avail = ctx.volatile.pgmap.max_avail(ctx.osdmap(), pool);
    f.int("stored", used.data + used.omap);
    if detail {
        f.int("stored_data", used.data);
        f.int("stored_omap", used.omap);
    }
    f.int("objects", sum.num_objects);
    f.int("kb_used", used.raw.div_ceil(1024));
    f.int("bytes_used", used.raw);
    if detail {
        let (data, omap) = split_raw(&used);
        f.int("data_bytes_used", data);
        f.int("omap_bytes_used", omap);
    }
    f.float("percent_used", pool_ratio(pool, &used, avail));
    f.int("max_avail", avail);
    if detail {
        f.int("quota_objects", pool.quota_max_objects);
        f.int("quota_bytes", pool.quota_max_bytes);
        f.int("dirty", 0);
        f.int("rd", sum.num_rd);
        f.int("rd_bytes", sum.num_rd_kb << 10);
        f.int("wr", sum.num_wr);
        f.int("wr_bytes", sum.num_wr_kb << 10);
        f.int("compress_bytes_used", used.compressed);
        f.int("compress_under_bytes", used.uncompressed);
        f.int("stored_raw", used.raw);
        f.int("avail_raw", (avail as f64 * crate::raw_used_rate(ctx.osdmap(), pool)) as u64);
    }
}

/// `5.4 KiB/s wr, 0 op/s rd, 1 op/s wr`; empty when nothing happens.
pub(super) fn client_io(rates: &Rates) -> String {
    let mut text = String::new();
    if rates.rd_bytes >= 1.0 {
        let _ = write!(text, "{}/s rd, ", bytes_u(rates.rd_bytes as u64));
    }
    if rates.wr_bytes >= 1.0 {
        let _ = write!(text, "{}/s wr, ", bytes_u(rates.wr_bytes as u64));
    }
    if !text.is_empty() || rates.rd_ops >= 1.0 || rates.wr_ops >= 1.0 {
        let (rd, wr) = (si_u(rates.rd_ops as u64), si_u(rates.wr_ops as u64));
        let _ = write!(text, "{rd} op/s rd, {wr} op/s wr");
    }
    text
}

/// `12 MiB/s, 3 objects/s`; empty when nothing is recovered.
pub(super) fn recovery_io(rates: &Rates) -> String {
    let mut parts = Vec::new();
    if rates.recovered_bytes >= 1.0 {
        parts.push(format!("{}/s", bytes_u(rates.recovered_bytes as u64)));
    }
    if rates.recovered_keys >= 1.0 {
        parts.push(format!("{} keys/s", si_u(rates.recovered_keys as u64)));
    }
    if rates.recovered_objects >= 1.0 {
        parts.push(format!("{} objects/s", si_u(rates.recovered_objects as u64)));
    }
    parts.join(", ")
}

/// What clients do, as fields.
pub(super) fn dump_client_io(f: &mut Formatter, rates: &Rates) {
    if rates.rd_bytes >= 1.0 {
        f.int("read_bytes_sec", rates.rd_bytes as u64);
    }
    if rates.wr_bytes >= 1.0 {
        f.int("write_bytes_sec", rates.wr_bytes as u64);
    }
    if rates.rd_bytes >= 1.0 || rates.wr_bytes >= 1.0 || rates.rd_ops + rates.wr_ops >= 1.0 {
        f.int("read_op_per_sec", rates.rd_ops as u64);
        f.int("write_op_per_sec", rates.wr_ops as u64);
    }
}

/// What recovery does, as fields.
pub(super) fn dump_recovery_io(f: &mut Formatter, rates: &Rates) {
    if rates.recovered_objects >= 1.0 || rates.recovered_bytes >= 1.0 {
        f.int("recovering_objects_per_sec", rates.recovered_objects as u64);
        f.int("recovering_bytes_per_sec", rates.recovered_bytes as u64);
        f.int("recovering_keys_per_sec", rates.recovered_keys as u64);
        f.int("num_objects_recovered", rates.recovered_objects as u64);
        f.int("num_bytes_recovered", rates.recovered_bytes as u64);
        f.int("num_keys_recovered", rates.recovered_keys as u64);
    }
}

/// What is degraded, misplaced or lost: fields and lines alike.
pub(super) fn dump_recovery(f: &mut Formatter, sum: &ObjectStatSum) {
    let copies = sum.num_object_copies;
    for (count, what, of, total) in [
        (sum.num_objects_degraded, "degraded", copies, true),
        (sum.num_objects_misplaced, "misplaced", copies, true),
        (sum.num_objects_unfound, "unfound", sum.num_objects, true),
    ] {
        if count > 0 && of > 0 {
            f.int(&format!("{what}_objects"), count);
            if total {
                f.int(&format!("{what}_total"), of);
            }
            f.float(&format!("{what}_ratio"), count as f64 / of as f64);
        }
    }
}

/// The same as lines.
pub(super) fn recovery_lines(sum: &ObjectStatSum) -> Vec<String> {
    let copies = sum.num_object_copies;
    let mut lines = Vec::new();
    for (count, what, of) in [
        (sum.num_objects_degraded, "degraded", copies),
        (sum.num_objects_misplaced, "misplaced", copies),
        (sum.num_objects_unfound, "unfound", sum.num_objects),
    ] {
        if count > 0 && of > 0 {
            let share = count as f64 * 100.0 / of as f64;
            lines.push(format!("{count}/{of} objects {what} ({share:.3}%)"));
        }
    }
    lines
}

pub(super) fn pool_stats(ctx: &mut CommandCtx<'_>) -> Run {
    let map = ctx.osdmap();
    let name = ctx.cmd.str_or_empty("pool_name")?;
    let ids: Vec<PoolId> = if name.is_empty() {
        map.pools.keys().copied().collect()
    } else {
        let id = map.pool_by_name(name);
        vec![id.ok_or_else(|| fail(ENOENT, format!("unrecognized pool '{name}'")))?]
    };
    let rates_of = |id: PoolId| ctx.volatile.pgmap.pool_rates.get(&id).cloned().unwrap_or_default();
    let Some(mut f) = ctx.formatter() else {
        let mut text = String::new();
        if ids.is_empty() {
            return out("there are no pools!\n");
        }
        for id in ids {
            let (rates, sum) = (rates_of(id), pool_sum(ctx, id));
            let _ = writeln!(text, "pool {} id {id}", map.pool_name(id).unwrap_or_default());
            let lines = recovery_lines(&sum);
            for line in &lines {
                let _ = writeln!(text, "  {line}");
            }
            let (recovery, io) = (recovery_io(&rates), client_io(&rates));
            if !recovery.is_empty() {
                let _ = writeln!(text, "  recovery io {recovery}");
            }
            if !io.is_empty() {
                let _ = writeln!(text, "  client io {io}");
            }
            if lines.is_empty() && recovery.is_empty() && io.is_empty() {
                text.push_str("  nothing is going on\n");
            }
            text.push('\n');
        }
        return out(text);
    };
    f.array("pool_stats", |f| {
        for id in ids {
            let (rates, sum) = (rates_of(id), pool_sum(ctx, id));
            f.object("pool", |f| {
                f.string("pool_name", map.pool_name(id).unwrap_or_default());
                f.int("pool_id", id.0);
                f.object("recovery", |f| dump_recovery(f, &sum));
                f.object("recovery_rate", |f| dump_recovery_io(f, &rates));
                f.object("client_io_rate", |f| dump_client_io(f, &rates));
            });
        }
    });
    out(f.finish())
}

/// An OSD's space.
pub(super) fn osd_statfs(ctx: &CommandCtx<'_>, osd: OsdId) -> StoreStatfs {
    ctx.volatile.pgmap.osds.get(&osd).map(|s| s.statfs).unwrap_or_default()
}
