//! PG, pool and OSD statistics as tables and fields. Source: the peer's `PGMap::dump*`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use cli::Align::{Left, Right};
use cli::{Align, Formatter, TextTable, bytes_u};
use maps::{ObjectStatSum, OsdStat, PgStat, PoolStat, StoreStatfs};
use types::{OsdId, PgId};

use super::{osd_list, pg};
use crate::CommandCtx;

const OMAP_NOTE: &str = "\n* NOTE: Omap statistics are gathered during deep scrub and may be inaccurate soon afterwards depending on utilization. See http://docs.ceph.com/en/latest/dev/placement-group/#omap-statistics for further details.\n";

/// Counts in the order and under the names in which the peer shows them.
pub(super) fn sum(f: &mut Formatter, s: &ObjectStatSum) {
    f.object("stat_sum", |f| {
        f.int("num_bytes", s.num_bytes);
        f.int("num_objects", s.num_objects);
        f.int("num_object_clones", s.num_object_clones);
        f.int("num_object_copies", s.num_object_copies);
        f.int("num_objects_missing_on_primary", s.num_objects_missing_on_primary);
        f.int("num_objects_missing", s.num_objects_missing);
        f.int("num_objects_degraded", s.num_objects_degraded);
        f.int("num_objects_misplaced", s.num_objects_misplaced);
        f.int("num_objects_unfound", s.num_objects_unfound);
        f.int("num_objects_dirty", s.num_objects_dirty);
        f.int("num_whiteouts", s.num_whiteouts);
        f.int("num_read", s.num_rd);
        f.int("num_read_kb", s.num_rd_kb);
        f.int("num_write", s.num_wr);
        f.int("num_write_kb", s.num_wr_kb);
        f.int("num_scrub_errors", s.num_scrub_errors);
        f.int("num_shallow_scrub_errors", s.num_shallow_scrub_errors);
        f.int("num_deep_scrub_errors", s.num_deep_scrub_errors);
        f.int("num_objects_recovered", s.num_objects_recovered);
        f.int("num_bytes_recovered", s.num_bytes_recovered);
        f.int("num_keys_recovered", s.num_keys_recovered);
        f.int("num_objects_omap", s.num_objects_omap);
        f.int("num_objects_hit_set_archive", s.num_objects_hit_set_archive);
        f.int("num_bytes_hit_set_archive", s.num_bytes_hit_set_archive);
        f.int("num_flush", s.num_flush);
        f.int("num_flush_kb", s.num_flush_kb);
        f.int("num_evict", s.num_evict);
        f.int("num_evict_kb", s.num_evict_kb);
        f.int("num_promote", s.num_promote);
        f.int("num_flush_mode_high", s.num_flush_mode_high);
        f.int("num_flush_mode_low", s.num_flush_mode_low);
        f.int("num_evict_mode_some", s.num_evict_mode_some);
        f.int("num_evict_mode_full", s.num_evict_mode_full);
        f.int("num_objects_pinned", s.num_objects_pinned);
        f.int("num_legacy_snapsets", s.num_legacy_snapsets);
        f.int("num_large_omap_objects", s.num_large_omap_objects);
        f.int("num_objects_manifest", s.num_objects_manifest);
        f.int("num_omap_bytes", s.num_omap_bytes);
        f.int("num_omap_keys", s.num_omap_keys);
        f.int("num_objects_repaired", s.num_objects_repaired);
    });
}

fn osds(f: &mut Formatter, name: &str, list: &[OsdId]) {
    f.array(name, |f| {
        for osd in list {
            f.int("osd", osd.0);
        }
    });
}

/// One PG's fields.
pub(super) fn pg(f: &mut Formatter, id: PgId, s: &PgStat, brief: bool) {
    f.display("pgid", id);
    if brief {
        f.display("state", s.state);
        osds(f, "up", &s.up);
        osds(f, "acting", &s.acting);
        f.int("up_primary", s.up_primary.0);
        f.int("acting_primary", s.acting_primary.0);
        return;
    }
    f.display("version", s.version);
    f.int("reported_seq", s.reported_seq);
    f.int("reported_epoch", s.reported_epoch.0);
    f.display("state", s.state);
    for (name, stamp) in s.stamps() {
        f.display(name, stamp);
    }
    f.int("mapping_epoch", s.mapping_epoch.0);
    f.display("log_start", s.log_start);
    f.display("ondisk_log_start", s.ondisk_log_start);
    f.int("created", s.created.0);
    f.int("last_epoch_clean", s.last_epoch_clean.0);
    f.display("parent", s.parent);
    f.int("parent_split_bits", s.parent_split_bits);
    f.display("last_scrub", s.last_scrub);
    f.display("last_scrub_stamp", s.last_scrub_stamp);
    f.display("last_deep_scrub", s.last_deep_scrub);
    f.display("last_deep_scrub_stamp", s.last_deep_scrub_stamp);
    f.display("last_clean_scrub_stamp", s.last_clean_scrub_stamp);
    f.int("objects_scrubbed", s.objects_scrubbed);
    f.int("log_size", s.log_size);
    f.int("log_dups_size", s.log_dups_size);
    f.int("ondisk_log_size", s.ondisk_log_size);
    f.bool("stats_invalid", s.stats_invalid);
    f.bool("dirty_stats_invalid", s.dirty_stats_invalid);
    f.bool("omap_stats_invalid", s.omap_stats_invalid);
    f.bool("hitset_stats_invalid", s.hitset_stats_invalid);
    f.bool("hitset_bytes_stats_invalid", s.hitset_bytes_stats_invalid);
    f.bool("pin_stats_invalid", s.pin_stats_invalid);
    f.bool("manifest_stats_invalid", s.manifest_stats_invalid);
    f.int("snaptrimq_len", s.snaptrimq_len);
    f.int("last_scrub_duration", s.last_scrub_duration);
    f.string("scrub_schedule", scrub_text(s));
    f.float("scrub_duration", s.scrub_duration);
    f.int("objects_trimmed", s.objects_trimmed);
    f.float("snaptrim_duration", s.snaptrim_duration);
    sum(f, &s.stats.sum);
    osds(f, "up", &s.up);
    osds(f, "acting", &s.acting);
    f.array("avail_no_missing", |f| {
        for shard in &s.avail_no_missing {
            f.display("shard", shard.osd);
        }
    });
    f.array("object_location_counts", |f| {
        for (shards, count) in &s.object_location_counts {
            f.object("entry", |f| {
                let names: Vec<String> = shards.iter().map(|s| s.osd.to_string()).collect();
                f.string("shards", names.join(","));
                f.int("objects", *count);
            });
        }
    });
    osds(f, "blocked_by", &s.blocked_by);
    f.int("up_primary", s.up_primary.0);
    f.int("acting_primary", s.acting_primary.0);
    f.array("purged_snaps", |f| {
        for (start, len) in s.purged_snaps.iter() {
            f.object("interval", |f| {
                f.string("start", format!("{start:x}"));
                f.string("length", format!("{len:x}"));
            });
        }
    });
}

fn statfs(f: &mut Formatter, name: &str, s: &StoreStatfs) {
    f.object(name, |f| {
        f.int("total", s.total);
        f.int("available", s.available);
        f.int("internally_reserved", s.internally_reserved);
        f.int("allocated", s.allocated);
        f.int("data_stored", s.data_stored);
        f.int("data_compressed", s.data_compressed);
        f.int("data_compressed_allocated", s.data_compressed_allocated);
        f.int("data_compressed_original", s.data_compressed_original);
        f.int("omap_allocated", s.omap_allocated);
        f.int("internal_metadata", s.internal_metadata);
    });
}

fn pool(f: &mut Formatter, s: &PoolStat) {
    sum(f, &s.stats.sum);
    statfs(f, "store_stats", &s.store_stats);
    f.int("log_size", s.log_size);
    f.int("ondisk_log_size", s.ondisk_log_size);
    f.int("up", s.up);
    f.int("acting", s.acting);
    f.int("num_store_stats", s.num_store_stats);
}

fn osd(f: &mut Formatter, s: &OsdStat) {
    f.int("up_from", s.up_from.0);
    f.int("seq", s.seq);
    f.int("num_pgs", s.num_pgs);
    f.int("num_osds", s.num_osds);
    f.int("num_per_pool_osds", s.num_per_pool_osds);
    f.int("num_per_pool_omap_osds", s.num_per_pool_omap_osds);
    let positive = |n: i64| u64::try_from(n).unwrap_or(0);
    f.int("kb", s.statfs.total >> 10);
    f.int("kb_used", s.statfs.total.saturating_sub(s.statfs.available) >> 10);
    f.int("kb_used_data", positive(s.statfs.allocated) >> 10);
    f.int("kb_used_omap", positive(s.statfs.omap_allocated) >> 10);
    f.int("kb_used_meta", positive(s.statfs.internal_metadata) >> 10);
    f.int("kb_avail", s.statfs.available >> 10);
    statfs(f, "statfs", &s.statfs);
    osds(f, "hb_peers", &s.hb_peers);
    f.int("snap_trim_queue_len", s.snap_trim_queue_len);
    f.int("num_snap_trimming", s.num_snap_trimming);
    f.int("num_shards_repaired", s.num_shards_repaired);
    f.object("op_queue_age_hist", |f| {
        f.array("histogram", |f| {
            for count in &s.op_queue_age_hist.buckets {
                f.int("count", *count);
            }
        });
        let bits = s.op_queue_age_hist.buckets.len().min(62);
        f.int("upper_bound", 1i64 << bits);
    });
    f.object("perf_stat", |f| {
        let perf = &s.os_perf_stat;
        f.int("commit_latency_ms", perf.commit_latency_ns / 1_000_000);
        f.int("apply_latency_ms", perf.apply_latency_ns / 1_000_000);
        f.int("commit_latency_ns", perf.commit_latency_ns);
        f.int("apply_latency_ns", perf.apply_latency_ns);
    });
    f.array("alerts", |_| {});
}

fn pools_total(ctx: &CommandCtx<'_>) -> PoolStat {
    let mut all = PoolStat::default();
    for pool in ctx.volatile.pgmap.pools.values() {
        all.add(pool);
    }
    all
}

fn osds_total(ctx: &CommandCtx<'_>) -> OsdStat {
    let mut all = OsdStat::default();
    for stat in ctx.volatile.pgmap.osds.values() {
        all.add(stat);
    }
    all
}

fn basic(ctx: &CommandCtx<'_>, f: &mut Formatter) {
    let pgmap = &ctx.volatile.pgmap;
    f.int("version", pgmap.version);
    f.display("stamp", pgmap.stamp);
    f.int("last_osdmap_epoch", 0);
    f.int("last_pg_scan", 0);
    f.object("pg_stats_sum", |f| pool(f, &pools_total(ctx)));
    f.object("osd_stats_sum", |f| osd(f, &osds_total(ctx)));
}

/// Changes per second, in place of the changes that the peer keeps.
fn delta(ctx: &CommandCtx<'_>, f: &mut Formatter) {
    let rates = &ctx.volatile.pgmap.rates;
    f.object("pg_stats_delta", |f| {
        let mut all = PoolStat::default();
        let s = &mut all.stats.sum;
        s.num_rd = rates.rd_ops as i64;
        s.num_rd_kb = (rates.rd_bytes / 1024.0) as i64;
        s.num_wr = rates.wr_ops as i64;
        s.num_wr_kb = (rates.wr_bytes / 1024.0) as i64;
        s.num_objects_recovered = rates.recovered_objects as i64;
        s.num_bytes_recovered = rates.recovered_bytes as i64;
        s.num_keys_recovered = rates.recovered_keys as i64;
        pool(f, &all);
        f.string("stamp_delta", "1.000000");
    });
}

fn pgs(ctx: &CommandCtx<'_>, f: &mut Formatter, brief: bool) {
    f.array("pg_stats", |f| {
        for (id, stat) in &ctx.volatile.pgmap.pgs {
            f.object("pg_stat", |f| pg(f, *id, stat, brief));
        }
    });
}

fn pools(ctx: &CommandCtx<'_>, f: &mut Formatter) {
    f.array("pool_stats", |f| {
        for (id, stat) in &ctx.volatile.pgmap.pools {
            let count = ctx.osdmap().pool(*id).map_or(0, |p| p.pg_num);
            f.object("pool_stat", |f| {
                f.int("poolid", id.0);
                f.int("num_pg", count);
                pool(f, stat);
            });
        }
    });
}

fn all_osds(ctx: &CommandCtx<'_>, f: &mut Formatter) {
    f.array("osd_stats", |f| {
        for (id, stat) in &ctx.volatile.pgmap.osds {
            f.object("osd_stat", |f| {
                f.int("osd", id.0);
                osd(f, stat);
            });
        }
    });
    f.array("pool_statfs", |_| {});
}

/// `pg dump` as fields.
pub(super) fn fields(ctx: &CommandCtx<'_>, mut f: Formatter, what: &BTreeSet<&str>) -> String {
    f.open_object("pg_info");
    f.bool("pg_ready", true);
    if what.contains("all") {
        f.object("pg_map", |f| {
            basic(ctx, f);
            delta(ctx, f);
            pgs(ctx, f, false);
            pools(ctx, f);
            all_osds(ctx, f);
        });
    } else {
        if what.contains("summary") || what.contains("sum") {
            f.object("pg_map", |f| {
                basic(ctx, f);
                delta(ctx, f);
            });
        }
        if what.contains("delta") {
            f.object("delta", |f| delta(ctx, f));
        }
        if what.contains("pools") {
            pools(ctx, &mut f);
        }
        if what.contains("osds") {
            all_osds(ctx, &mut f);
        }
        if what.contains("pgs") {
            pgs(ctx, &mut f, false);
        }
        if what.contains("pgs_brief") {
            pgs(ctx, &mut f, true);
        }
    }
    f.close();
    f.finish()
}

fn table(columns: &[&str], align: impl Fn(&str) -> Align) -> TextTable {
    let mut table = TextTable::new();
    for name in columns {
        table.column(name, Left, align(name));
    }
    table
}

/// PG, state and sets.
pub(super) fn brief_table(list: &[(&PgId, &PgStat)]) -> String {
    let columns = ["PG_STAT", "STATE", "UP", "UP_PRIMARY", "ACTING", "ACTING_PRIMARY"];
    let mut table = table(&columns, |name| if name == "PG_STAT" { Left } else { Right });
    for (id, stat) in list {
        table.row(vec![
            id.to_string(),
            stat.state.to_string(),
            osd_list(&stat.up, "NONE"),
            stat.up_primary.to_string(),
            osd_list(&stat.acting, "NONE"),
            stat.acting_primary.to_string(),
        ]);
    }
    table.render()
}

/// What is known of a PG's scrubs, in the peer's words.
fn scrub_text(stat: &PgStat) -> String {
    let s = &stat.scrub;
    let deep = if s.is_deep { "deep " } else { "" };
    match s.status {
        // The peer's unknown and not queued; active; queued; scheduled.
        2 => format!("{deep}scrubbing for {}s", s.duration_seconds),
        4 => format!("queued for {deep}scrub"),
        3 if !s.scheduled_at.is_zero() => {
            let kind = if s.is_periodic { "periodic" } else { "user requested" };
            format!("{kind} {deep}scrub scheduled @ {}", s.scheduled_at)
        }
        _ => "--".to_owned(),
    }
}

/// `pg ls`.
pub(super) fn ls_table(ctx: &CommandCtx<'_>, list: &[(&PgId, &PgStat)]) -> String {
    let columns = [
        "PG",
        "OBJECTS",
        "DEGRADED",
        "MISPLACED",
        "UNFOUND",
        "BYTES",
        "OMAP_BYTES*",
        "OMAP_KEYS*",
        "LOG",
        "LOG_DUPS",
        "STATE",
        "SINCE",
        "VERSION",
        "REPORTED",
        "UP",
        "ACTING",
        "SCRUB_STAMP",
        "DEEP_SCRUB_STAMP",
        "LAST_SCRUB_DURATION",
        "SCRUB_SCHEDULING",
    ];
    let left = ["PG", "SCRUB_SCHEDULING"];
    let mut table = table(&columns, |name| if left.contains(&name) { Left } else { Right });
    for (id, stat) in list {
        let s = &stat.stats.sum;
        let since = ctx.now.wall_ns.saturating_sub(stat.last_change.nanos()) / 1_000_000;
        table.row(vec![
            id.to_string(),
            s.num_objects.to_string(),
            s.num_objects_degraded.to_string(),
            s.num_objects_misplaced.to_string(),
            s.num_objects_unfound.to_string(),
            s.num_bytes.to_string(),
            s.num_omap_bytes.to_string(),
            s.num_omap_keys.to_string(),
            stat.log_size.to_string(),
            stat.log_dups_size.to_string(),
            stat.state.to_string(),
            cli::timespan(since),
            stat.version.to_string(),
            format!("{}:{}", stat.reported_epoch, stat.reported_seq),
            pg::set_text(&stat.up, stat.up_primary),
            pg::set_text(&stat.acting, stat.acting_primary),
            stat.last_scrub_stamp.to_string(),
            stat.last_deep_scrub_stamp.to_string(),
            stat.last_scrub_duration.to_string(),
            scrub_text(stat),
        ]);
    }
    table.render() + OMAP_NOTE
}

fn pg_table(ctx: &CommandCtx<'_>) -> String {
    let columns = [
        "PG_STAT",
        "OBJECTS",
        "MISSING_ON_PRIMARY",
        "DEGRADED",
        "MISPLACED",
        "UNFOUND",
        "BYTES",
        "OMAP_BYTES*",
        "OMAP_KEYS*",
        "LOG",
        "LOG_DUPS",
        "DISK_LOG",
        "STATE",
        "STATE_STAMP",
        "VERSION",
        "REPORTED",
        "UP",
        "UP_PRIMARY",
        "ACTING",
        "ACTING_PRIMARY",
        "LAST_SCRUB",
        "SCRUB_STAMP",
        "LAST_DEEP_SCRUB",
        "DEEP_SCRUB_STAMP",
        "SNAPTRIMQ_LEN",
        "LAST_SCRUB_DURATION",
        "SCRUB_SCHEDULING",
        "OBJECTS_SCRUBBED",
        "OBJECTS_TRIMMED",
    ];
    let left = ["PG_STAT", "SCRUB_SCHEDULING"];
    let mut table = table(&columns, |name| if left.contains(&name) { Left } else { Right });
    for (id, stat) in &ctx.volatile.pgmap.pgs {
        let s = &stat.stats.sum;
        table.row(vec![
            id.to_string(),
            s.num_objects.to_string(),
            s.num_objects_missing_on_primary.to_string(),
            s.num_objects_degraded.to_string(),
            s.num_objects_misplaced.to_string(),
            s.num_objects_unfound.to_string(),
            s.num_bytes.to_string(),
            s.num_omap_bytes.to_string(),
            s.num_omap_keys.to_string(),
            stat.log_size.to_string(),
            stat.log_dups_size.to_string(),
            stat.ondisk_log_size.to_string(),
            stat.state.to_string(),
            stat.last_change.to_string(),
            stat.version.to_string(),
            format!("{}:{}", stat.reported_epoch, stat.reported_seq),
            osd_list(&stat.up, "NONE"),
            stat.up_primary.to_string(),
            osd_list(&stat.acting, "NONE"),
            stat.acting_primary.to_string(),
            stat.last_scrub.to_string(),
            stat.last_scrub_stamp.to_string(),
            stat.last_deep_scrub.to_string(),
            stat.last_deep_scrub_stamp.to_string(),
            stat.snaptrimq_len.to_string(),
            stat.last_scrub_duration.to_string(),
            scrub_text(stat),
            stat.objects_scrubbed.to_string(),
            stat.objects_trimmed.to_string(),
        ]);
    }
    table.render()
}

fn sum_cells(head: String, stat: &PoolStat) -> Vec<String> {
    let s = &stat.stats.sum;
    vec![
        head,
        s.num_objects.to_string(),
        s.num_objects_missing_on_primary.to_string(),
        s.num_objects_degraded.to_string(),
        s.num_objects_misplaced.to_string(),
        s.num_objects_unfound.to_string(),
        s.num_bytes.to_string(),
        s.num_omap_bytes.to_string(),
        s.num_omap_keys.to_string(),
        stat.log_size.to_string(),
        stat.ondisk_log_size.to_string(),
    ]
}

fn pool_table(ctx: &CommandCtx<'_>, heads: bool) -> String {
    let mut table = if heads {
        let columns = [
            "POOLID",
            "OBJECTS",
            "MISSING_ON_PRIMARY",
            "DEGRADED",
            "MISPLACED",
            "UNFOUND",
            "BYTES",
            "OMAP_BYTES*",
            "OMAP_KEYS*",
            "LOG",
            "DISK_LOG",
        ];
        table(&columns, |name| if name == "POOLID" { Left } else { Right })
    } else {
        bare_table()
    };
    for (id, stat) in ctx.volatile.pgmap.pools.iter().rev() {
        table.row(sum_cells(id.to_string(), stat));
    }
    table.render()
}

fn bare_table() -> TextTable {
    let mut table = TextTable::new();
    table.column("", Left, Left);
    for _ in 0..10 {
        table.column("", Left, Right);
    }
    table
}

fn sum_table(ctx: &CommandCtx<'_>) -> String {
    let mut table = bare_table();
    table.row(sum_cells("sum".to_owned(), &pools_total(ctx)));
    table.render()
}

fn osd_table(ctx: &CommandCtx<'_>) -> String {
    let columns =
        ["OSD_STAT", "USED", "AVAIL", "USED_RAW", "TOTAL", "HB_PEERS", "PG_SUM", "PRIMARY_PG_SUM"];
    let mut table = table(&columns, |name| if name == "OSD_STAT" { Left } else { Right });
    let mut counts: BTreeMap<OsdId, (u32, u32)> = BTreeMap::new();
    for (_, sets) in ctx.volatile.mapping.iter() {
        for osd in &sets.acting {
            counts.entry(*osd).or_default().0 += 1;
        }
        if let Some(primary) = sets.acting_primary {
            counts.entry(primary).or_default().1 += 1;
        }
    }
    let sizes = |s: &StoreStatfs| {
        [bytes_u(s.used()), bytes_u(s.available), bytes_u(s.used()), bytes_u(s.total)]
    };
    for (id, stat) in ctx.volatile.pgmap.osds.iter().rev() {
        let (all, primary) = counts.get(id).copied().unwrap_or_default();
        let mut row = vec![id.to_string()];
        row.extend(sizes(&stat.statfs));
        row.push(osd_list(&stat.hb_peers, "NONE"));
        row.extend([all.to_string(), primary.to_string()]);
        table.row(row);
    }
    let mut row = vec!["sum".to_owned()];
    row.extend(sizes(&osds_total(ctx).statfs));
    table.row(row);
    table.render()
}

fn basic_text(ctx: &CommandCtx<'_>) -> String {
    let pgmap = &ctx.volatile.pgmap;
    format!(
        "version {}\nstamp {}\nlast_osdmap_epoch 0\nlast_pg_scan 0\n",
        pgmap.version, pgmap.stamp
    )
}

/// `pg dump` in plain text.
pub(super) fn text(ctx: &CommandCtx<'_>, what: &BTreeSet<&str>) -> String {
    if what.contains("all") {
        return format!(
            "{}{}\n{}\n{}{}{OMAP_NOTE}",
            basic_text(ctx),
            pg_table(ctx),
            pool_table(ctx, false),
            sum_table(ctx),
            osd_table(ctx)
        );
    }
    let mut text = String::new();
    if what.contains("summary") || what.contains("sum") {
        text += &basic_text(ctx);
        text += &sum_table(ctx);
    }
    if what.contains("pgs_brief") {
        let list: Vec<(&PgId, &PgStat)> = ctx.volatile.pgmap.pgs.iter().collect();
        text += &brief_table(&list);
    }
    if what.contains("pgs") {
        text += &pg_table(ctx);
        text += OMAP_NOTE;
    }
    if what.contains("pools") {
        text += &pool_table(ctx, true);
        text += OMAP_NOTE;
    }
    if what.contains("osds") {
        text += &osd_table(ctx);
    }
    if what.contains("delta") {
        let rates = &ctx.volatile.pgmap.rates;
        let _ = writeln!(text, "{} op/s rd, {} op/s wr", rates.rd_ops as u64, rates.wr_ops as u64);
    }
    text
}
