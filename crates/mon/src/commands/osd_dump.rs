//! The OSD map as text and as fields. Source: the peer's `OSDMap::{print,dump}` and
//! `pg_pool_t::dump`.

use std::fmt::Write;

use cli::Formatter;
use maps::{CacheMode, OsdMap, PgPool, PoolOpt, PoolOpts};
use types::{OsdId, PoolId};

use super::{dump_addrvec, legacy_text, osd_list, release_name, weight_float};

const AUTOSCALE: [&str; 3] = ["off", "warn", "on"];

/// Text of a pool option.
fn option_text(value: &PoolOpt) -> String {
    match value {
        PoolOpt::Int(n) => n.to_string(),
        PoolOpt::Double(d) => cli::float_text(*d, 6),
        PoolOpt::Str(text) => text.clone(),
    }
}

fn options(pool: &PgPool) -> impl Iterator<Item = (&'static str, &PoolOpt)> {
    PoolOpts::KEYS.iter().filter_map(|(key, name, _)| Some((*name, pool.opts.0.get(key)?)))
}

/// One pool as a line of `osd dump` and `osd pool ls detail`.
pub(super) fn pool_line(text: &mut String, map: &OsdMap, id: PoolId, name: &str, pool: &PgPool) {
    let _ = write!(text, "pool {id} '{name}' {}", pool.kind.name());
    if pool.is_erasure() {
        let _ = write!(text, " profile {}", pool.erasure_code_profile);
    }
    let _ = write!(
        text,
        " size {} min_size {} crush_rule {} object_hash rjenkins pg_num {} pgp_num {}",
        pool.size, pool.min_size, pool.crush_rule, pool.pg_num, pool.pgp_num
    );
    if pool.pg_num_target != pool.pg_num {
        let _ = write!(text, " pg_num_target {}", pool.pg_num_target);
    }
    if pool.pgp_num_target != pool.pgp_num {
        let _ = write!(text, " pgp_num_target {}", pool.pgp_num_target);
    }
    if pool.pg_num_pending != pool.pg_num {
        let _ = write!(text, " pg_num_pending {}", pool.pg_num_pending);
    }
    if let Some(mode) = AUTOSCALE.get(usize::from(pool.pg_autoscale_mode)) {
        let _ = write!(text, " autoscale_mode {mode}");
    }
    let _ = write!(text, " last_change {}", pool.last_change);
    if pool.last_force_op_resend.0 != 0 {
        let _ = write!(
            text,
            " lfor {}/{}/{}",
            pool.last_force_op_resend_preluminous,
            pool.last_force_op_resend_prenautilus,
            pool.last_force_op_resend
        );
    }
    let flags = pool.flags.to_string();
    if !flags.is_empty() {
        let _ = write!(text, " flags {flags}");
    }
    if pool.quota_max_bytes != 0 {
        let _ = write!(text, " max_bytes {}", pool.quota_max_bytes);
    }
    if pool.quota_max_objects != 0 {
        let _ = write!(text, " max_objects {}", pool.quota_max_objects);
    }
    if !pool.tiers.is_empty() {
        let tiers: Vec<String> = pool.tiers.iter().map(u64::to_string).collect();
        let _ = write!(text, " tiers {}", tiers.join(","));
    }
    if pool.is_tier() {
        let _ = write!(text, " tier_of {}", pool.tier_of);
    }
    tier_words(text, pool);
    let _ = write!(text, " stripe_width {}", pool.stripe_width);
    if pool.expected_num_objects != 0 {
        let _ = write!(text, " expected_num_objects {}", pool.expected_num_objects);
    }
    if pool.fast_read {
        text.push_str(" fast_read 1");
    }
    let mut shown: Vec<(&str, &PoolOpt)> = options(pool).collect();
    shown.sort_unstable_by_key(|(name, _)| *name);
    for (name, value) in shown {
        let _ = write!(text, " {name} {}", option_text(value));
    }
    if !pool.application_metadata.is_empty() {
        let names: Vec<&str> = pool.application_metadata.keys().map(String::as_str).collect();
        let _ = write!(text, " application {}", names.join(","));
    }
    text.push('\n');
    for (snap, info) in &pool.snaps {
        let _ = writeln!(text, "\tsnap {snap} '{}' {}", info.name, info.stamp);
    }
    if let Some(queue) = map.removed_snaps_queue.get(&id).filter(|q| !q.is_empty()) {
        let _ = writeln!(text, "\tremoved_snaps_queue {}", intervals(queue.iter()));
    }
}

/// What a pool's line says of its part in a cache.
fn tier_words(text: &mut String, pool: &PgPool) {
    if pool.read_tier >= 0 {
        let _ = write!(text, " read_tier {}", pool.read_tier);
    }
    if pool.write_tier >= 0 {
        let _ = write!(text, " write_tier {}", pool.write_tier);
    }
    if pool.cache_mode != 0 {
        let mode = CacheMode::of(pool.cache_mode).map_or("unknown", CacheMode::name);
        let _ = write!(text, " cache_mode {mode}");
    }
    if pool.target_max_bytes != 0 {
        let _ = write!(text, " target_bytes {}", pool.target_max_bytes);
    }
    if pool.target_max_objects != 0 {
        let _ = write!(text, " target_objects {}", pool.target_max_objects);
    }
    let hits = &pool.hit_set_params;
    if hits.is_some() {
        let _ = write!(text, " hit_set {}{{", hits.name());
        if let Some(b) = hits.bloom() {
            let fpp = cli::float_text(f64::from(b.fpp_micro) / 1e6, 6);
            let (size, seed) = (b.target_size, b.seed);
            let _ = write!(
                text,
                "false_positive_probability: {fpp}, target_size: {size}, seed: {seed}"
            );
        }
        let _ = write!(
            text,
            "}} {}s x{} decay_rate {} search_last_n {}",
            pool.hit_set_period,
            pool.hit_set_count,
            pool.hit_set_grade_decay_rate,
            pool.hit_set_search_last_n
        );
    }
    if pool.min_read_recency_for_promote != 0 {
        let n = pool.min_read_recency_for_promote;
        let _ = write!(text, " min_read_recency_for_promote {n}");
    }
    if pool.min_write_recency_for_promote != 0 {
        let n = pool.min_write_recency_for_promote;
        let _ = write!(text, " min_write_recency_for_promote {n}");
    }
}

/// `[1~2,5~1]` in hex, as the peer prints runs of snapshots.
fn intervals(runs: impl Iterator<Item = (u64, u64)>) -> String {
    let runs: Vec<String> = runs.map(|(start, len)| format!("{start:x}~{len:x}")).collect();
    format!("[{}]", runs.join(","))
}

/// A pool's fields behind its id and name.
pub(super) fn dump_pool(f: &mut Formatter, _map: &OsdMap, _id: PoolId, pool: &PgPool) {
    f.display("create_time", pool.create_time);
    f.int("flags", pool.flags.0);
    f.display("flags_names", pool.flags);
    f.int("type", pool.kind.0);
    f.int("size", pool.size);
    f.int("min_size", pool.min_size);
    f.int("crush_rule", pool.crush_rule);
    let peering = pool.peering_crush.unwrap_or(maps::PeeringCrush {
        mandatory_member: 0x7fff_ffff,
        ..maps::PeeringCrush::default()
    });
    f.int("peering_crush_bucket_count", peering.bucket_count);
    f.int("peering_crush_bucket_target", peering.bucket_target);
    f.int("peering_crush_bucket_barrier", peering.bucket_barrier);
    f.int("peering_crush_bucket_mandatory_member", peering.mandatory_member);
    f.bool("is_stretch_pool", pool.peering_crush.is_some_and(|p| p.bucket_count != 0));
    f.int("object_hash", pool.object_hash);
    let mode = AUTOSCALE.get(usize::from(pool.pg_autoscale_mode)).copied().unwrap_or("???");
    f.string("pg_autoscale_mode", mode);
    f.int("pg_num", pool.pg_num);
    f.int("pg_placement_num", pool.pgp_num);
    f.int("pg_placement_num_target", pool.pgp_num_target);
    f.int("pg_num_target", pool.pg_num_target);
    f.int("pg_num_pending", pool.pg_num_pending);
    let merge = &pool.last_pg_merge_meta;
    f.object("last_pg_merge_meta", |f| {
        f.display("source_pgid", merge.source);
        f.int("ready_epoch", merge.ready_epoch.0);
        f.int("last_epoch_started", merge.last_epoch_started.0);
        f.int("last_epoch_clean", merge.last_epoch_clean.0);
        f.display("source_version", merge.source_version);
        f.display("target_version", merge.target_version);
    });
    f.display("last_change", pool.last_change);
    f.display("last_force_op_resend", pool.last_force_op_resend);
    f.display("last_force_op_resend_prenautilus", pool.last_force_op_resend_prenautilus);
    f.display("last_force_op_resend_preluminous", pool.last_force_op_resend_preluminous);
    f.int("auid", pool.auid);
    f.string("snap_mode", if pool.is_pool_snaps_mode() { "pool" } else { "selfmanaged" });
    f.int("snap_seq", pool.snap_seq.0);
    f.int("snap_epoch", pool.snap_epoch.0);
    f.array("pool_snaps", |f| {
        for (snap, info) in &pool.snaps {
            f.object("pool_snap_info", |f| {
                f.int("snapid", snap.0);
                f.display("stamp", info.stamp);
                f.string("name", &info.name);
            });
        }
    });
    f.string("removed_snaps", intervals(pool.removed_snaps.iter()));
    f.int("quota_max_bytes", pool.quota_max_bytes);
    f.int("quota_max_objects", pool.quota_max_objects);
    f.array("tiers", |f| {
        for tier in &pool.tiers {
            f.int("pool_id", *tier);
        }
    });
    f.int("tier_of", pool.tier_of);
    f.int("read_tier", pool.read_tier);
    f.int("write_tier", pool.write_tier);
    f.string("cache_mode", CacheMode::of(pool.cache_mode).map_or("unknown", CacheMode::name));
    f.int("target_max_bytes", pool.target_max_bytes);
    f.int("target_max_objects", pool.target_max_objects);
    f.int("cache_target_dirty_ratio_micro", pool.cache_target_dirty_ratio_micro);
    f.int("cache_target_dirty_high_ratio_micro", pool.cache_target_dirty_high_ratio_micro);
    f.int("cache_target_full_ratio_micro", pool.cache_target_full_ratio_micro);
    f.int("cache_min_flush_age", pool.cache_min_flush_age);
    f.int("cache_min_evict_age", pool.cache_min_evict_age);
    f.string("erasure_code_profile", &pool.erasure_code_profile);
    f.object("hit_set_params", |f| {
        f.string("type", pool.hit_set_params.name());
        if let Some(b) = pool.hit_set_params.bloom() {
            f.float("false_positive_probability", f64::from(b.fpp_micro) / 1e6);
            f.int("target_size", b.target_size);
            f.int("seed", b.seed);
        }
    });
    f.int("hit_set_period", pool.hit_set_period);
    f.int("hit_set_count", pool.hit_set_count);
    f.bool("use_gmt_hitset", pool.use_gmt_hitset);
    f.int("min_read_recency_for_promote", pool.min_read_recency_for_promote);
    f.int("min_write_recency_for_promote", pool.min_write_recency_for_promote);
    f.int("hit_set_grade_decay_rate", pool.hit_set_grade_decay_rate);
    f.int("hit_set_search_last_n", pool.hit_set_search_last_n);
    f.array("grade_table", |_| {});
    f.int("stripe_width", pool.stripe_width);
    f.int("expected_num_objects", pool.expected_num_objects);
    f.bool("fast_read", pool.fast_read);
    let shards: Vec<String> =
        (0..128).filter(|s| pool.nonprimary_shards.contains(*s)).map(|s| s.to_string()).collect();
    f.string("nonprimary_shards", format!("{{{}}}", shards.join(",")));
    f.object("options", |f| {
        let mut shown: Vec<(&str, &PoolOpt)> = options(pool).collect();
        shown.sort_unstable_by_key(|(name, _)| *name);
        for (name, value) in shown {
            match value {
                PoolOpt::Int(n) => f.int(name, *n),
                PoolOpt::Double(d) => f.float(name, *d),
                PoolOpt::Str(text) => f.string(name, text),
            }
        }
    });
    f.object("application_metadata", |f| {
        for (app, pairs) in &pool.application_metadata {
            f.object(app, |f| {
                for (key, value) in pairs {
                    f.string(key, value);
                }
            });
        }
    });
}

/// The oldest release whose clients can follow the map.
pub(super) fn min_compat_client(map: &OsdMap) -> u8 {
    if map.crush.has_msr_rules() || map.crush.tunables().need_msr() {
        19
    } else if !map.pg_upmap_primaries.is_empty() {
        18
    } else if !map.pg_upmap.is_empty()
        || !map.pg_upmap_items.is_empty()
        || !map.crush.choose_args().is_empty()
    {
        12
    } else if map.crush.tunables().chooseleaf_stable != 0 {
        10
    } else {
        8
    }
}

/// One OSD as a line of `osd dump` and `osd info`.
pub(super) fn osd_line(text: &mut String, map: &OsdMap, osd: OsdId) {
    let info = map.info(osd);
    let _ = write!(
        text,
        "osd.{osd} {} {} weight {}",
        if map.is_up(osd) { "up  " } else { "down" },
        if map.is_in(osd) { "in " } else { "out" },
        cli::float_text(weight_float(map.weight(osd)), 6)
    );
    if map.affinity(osd) != maps::WEIGHT_ONE {
        let _ = write!(
            text,
            " primary_affinity {}",
            cli::float_text(weight_float(map.affinity(osd)), 6)
        );
    }
    let _ = write!(
        text,
        " up_from {} up_thru {} down_at {} last_clean_interval [{},{})",
        info.up_from, info.up_thru, info.down_at, info.last_clean_begin, info.last_clean_end
    );
    if info.lost_at.0 != 0 {
        let _ = write!(text, " lost_at {}", info.lost_at);
    }
    let empty = types::AddrVec::default();
    let addrs = map.osd_addrs(osd).unwrap_or(&empty);
    let cluster = map.osd_cluster_addrs(osd).unwrap_or(&empty);
    let _ = write!(text, " {} {} {}", bracketed(addrs), bracketed(cluster), map.state(osd));
    if !map.uuid(osd).is_zero() {
        let _ = write!(text, " {}", map.uuid(osd));
    }
    text.push('\n');
}

fn bracketed(addrs: &types::AddrVec) -> String {
    let list: Vec<String> = addrs.0.iter().map(ToString::to_string).collect();
    if list.len() <= 1 { list.concat() } else { format!("[{}]", list.join(",")) }
}

/// One OSD's fields.
pub(super) fn dump_osd(f: &mut Formatter, map: &OsdMap, osd: OsdId) {
    let info = map.info(osd);
    f.object("osd_info", |f| {
        f.int("osd", osd.0);
        f.display("uuid", map.uuid(osd));
        f.int("up", i32::from(map.is_up(osd)));
        f.int("in", i32::from(map.is_in(osd)));
        f.float("weight", weight_float(map.weight(osd)));
        f.float("primary_affinity", weight_float(map.affinity(osd)));
        f.int("last_clean_begin", info.last_clean_begin.0);
        f.int("last_clean_end", info.last_clean_end.0);
        f.int("up_from", info.up_from.0);
        f.int("up_thru", info.up_thru.0);
        f.int("down_at", info.down_at.0);
        f.int("lost_at", info.lost_at.0);
        let empty = types::AddrVec::default();
        let public = map.osd_addrs(osd).unwrap_or(&empty);
        let cluster = map.osd_cluster_addrs(osd).unwrap_or(&empty);
        let (back, front) = map.osd_hb_addrs(osd).unwrap_or((&empty, &empty));
        dump_addrvec(f, "public_addrs", public);
        dump_addrvec(f, "cluster_addrs", cluster);
        dump_addrvec(f, "heartbeat_back_addrs", back);
        dump_addrvec(f, "heartbeat_front_addrs", front);
        f.string("public_addr", legacy_text(&public.legacy()));
        f.string("cluster_addr", legacy_text(&cluster.legacy()));
        f.string("heartbeat_back_addr", legacy_text(&back.legacy()));
        f.string("heartbeat_front_addr", legacy_text(&front.legacy()));
        f.array("state", |f| {
            for state in map.state(osd).to_string().split(',').filter(|s| !s.is_empty()) {
                f.string("state", state);
            }
        });
    });
}

/// `osd dump` in plain text.
pub(super) fn text(map: &OsdMap) -> String {
    let mut t = String::new();
    let ratio = |r: f32| cli::float_text(f64::from(r), 6);
    let _ = writeln!(t, "epoch {}\nfsid {}", map.epoch, map.fsid);
    let _ = writeln!(t, "created {}\nmodified {}", map.created, map.modified);
    let _ = writeln!(t, "flags {}\ncrush_version {}", map.flags, map.crush_version);
    let _ = writeln!(t, "full_ratio {}", ratio(map.full_ratio));
    let _ = writeln!(t, "backfillfull_ratio {}", ratio(map.backfillfull_ratio));
    let _ = writeln!(t, "nearfull_ratio {}", ratio(map.nearfull_ratio));
    if map.require_min_compat_client > 0 {
        let required = release_name(map.require_min_compat_client);
        let _ = writeln!(t, "require_min_compat_client {required}");
    }
    let _ = writeln!(t, "min_compat_client {}", release_name(min_compat_client(map)));
    if map.require_osd_release > 0 {
        let _ = writeln!(t, "require_osd_release {}", release_name(map.require_osd_release));
    }
    let _ = writeln!(t, "stretch_mode_enabled {}", map.stretch.enabled);
    if !map.cluster_snapshot.is_empty() {
        let _ = writeln!(t, "cluster_snapshot {}", map.cluster_snapshot);
    }
    for (id, pool) in map.pools.iter() {
        pool_line(&mut t, map, *id, map.pool_name(*id).unwrap_or("<unknown>"), pool);
    }
    let _ = writeln!(t, "max_osd {}", map.max_osd);
    for osd in map.osds() {
        osd_line(&mut t, map, osd);
    }
    for (pg, osds) in map.pg_upmap.iter() {
        let _ = writeln!(t, "pg_upmap {pg} {}", osd_list(osds, "NONE"));
    }
    for (pg, pairs) in map.pg_upmap_items.iter() {
        let pairs: Vec<String> = pairs.iter().map(|(a, b)| format!("{a},{b}")).collect();
        let _ = writeln!(t, "pg_upmap_items {pg} [{}]", pairs.join(","));
    }
    for (pg, osd) in map.pg_upmap_primaries.iter() {
        let _ = writeln!(t, "pg_upmap_primary {pg} {osd}");
    }
    for (pg, osds) in map.pg_temp.iter() {
        let _ = writeln!(t, "pg_temp {pg} {}", osd_list(osds, "2147483647"));
    }
    for (pg, osd) in map.primary_temp.iter() {
        let _ = writeln!(t, "primary_temp {pg} {osd}");
    }
    for (addr, until) in map.blocklist.iter() {
        let _ = writeln!(t, "blocklist {} expires {until}", legacy_text(addr));
    }
    for (addr, until) in &map.range_blocklist {
        let _ = writeln!(t, "range blocklist {addr} expires {until}");
    }
    t
}

/// `osd dump` as fields.
#[allow(clippy::too_many_lines)]
pub(super) fn dump(f: &mut Formatter, map: &OsdMap) {
    f.int("epoch", map.epoch.0);
    f.display("fsid", map.fsid);
    f.display("created", map.created);
    f.display("modified", map.modified);
    f.display("last_up_change", map.last_up_change);
    f.display("last_in_change", map.last_in_change);
    let flags = map.flags.to_string();
    f.string("flags", &flags);
    f.int("flags_num", map.flags.0);
    f.array("flags_set", |f| {
        let mut names: Vec<&str> = flags.split(',').filter(|n| !n.is_empty()).collect();
        names.sort_unstable();
        for name in names {
            f.string("flag", name);
        }
    });
    f.int("crush_version", map.crush_version);
    f.float("full_ratio", f64::from(map.full_ratio));
    f.float("backfillfull_ratio", f64::from(map.backfillfull_ratio));
    f.float("nearfull_ratio", f64::from(map.nearfull_ratio));
    f.string("cluster_snapshot", &map.cluster_snapshot);
    f.int("pool_max", map.pool_max);
    f.int("max_osd", map.max_osd);
    f.string("require_min_compat_client", release_name(map.require_min_compat_client));
    f.string("min_compat_client", release_name(min_compat_client(map)));
    f.string("require_osd_release", release_name(map.require_osd_release));
    f.bool("allow_crimson", map.allow_crimson);
    f.array("pools", |f| {
        for (id, pool) in map.pools.iter() {
            f.object("pool", |f| {
                f.int("pool", id.0);
                f.string("pool_name", map.pool_name(*id).unwrap_or("<unknown>"));
                dump_pool(f, map, *id, pool);
            });
        }
    });
    f.array("osds", |f| {
        for osd in map.osds() {
            dump_osd(f, map, osd);
        }
    });
    f.array("osd_xinfo", |f| {
        for osd in map.osds() {
            let x = map.xinfo(osd);
            f.object("xinfo", |f| {
                f.int("osd", osd.0);
                f.display("down_stamp", x.down_stamp);
                f.float("laggy_probability", f64::from(x.laggy_probability) / f64::from(u32::MAX));
                f.int("laggy_interval", x.laggy_interval);
                f.int("features", x.features);
                f.float("old_weight", f64::from(x.old_weight));
                f.display("last_purged_snaps_scrub", x.last_purged_snaps_scrub);
                f.int("dead_epoch", x.dead_epoch.0);
            });
        }
    });
    let dump_osds = |f: &mut Formatter, name: &str, osds: &[OsdId]| {
        f.array(name, |f| {
            for osd in osds {
                f.int("osd", osd.0);
            }
        });
    };
    f.array("pg_upmap", |f| {
        for (pg, osds) in map.pg_upmap.iter() {
            f.object("mapping", |f| {
                f.display("pgid", pg);
                dump_osds(f, "osds", osds);
            });
        }
    });
    f.array("pg_upmap_items", |f| {
        for (pg, pairs) in map.pg_upmap_items.iter() {
            f.object("mapping", |f| {
                f.display("pgid", pg);
                f.array("mappings", |f| {
                    for (from, to) in pairs {
                        f.object("mapping", |f| {
                            f.int("from", from.0);
                            f.int("to", to.0);
                        });
                    }
                });
            });
        }
    });
    f.array("pg_upmap_primaries", |f| {
        for (pg, osd) in map.pg_upmap_primaries.iter() {
            f.object("primary_mapping", |f| {
                f.display("pgid", pg);
                f.int("primary_osd", osd.0);
            });
        }
    });
    f.array("pg_temp", |f| {
        for (pg, osds) in map.pg_temp.iter() {
            f.object("osds", |f| {
                f.display("pgid", pg);
                dump_osds(f, "osds", osds);
            });
        }
    });
    f.array("primary_temp", |f| {
        for (pg, osd) in map.primary_temp.iter() {
            f.display("pgid", pg);
            f.int("osd", osd.0);
        }
    });
    f.object("blocklist", |f| {
        for (addr, until) in map.blocklist.iter() {
            f.display(&legacy_text(addr), until);
        }
    });
    f.object("range_blocklist", |f| {
        for (addr, until) in &map.range_blocklist {
            f.display(&addr.to_string(), until);
        }
    });
    f.object("erasure_code_profiles", |f| {
        for (name, pairs) in map.erasure_code_profiles.iter() {
            f.object(name, |f| {
                for (key, value) in pairs {
                    f.string(key, value);
                }
            });
        }
    });
    let snaps = |f: &mut Formatter,
                 name: &str,
                 sets: &std::collections::BTreeMap<PoolId, maps::SnapIntervals>| {
        f.array(name, |f| {
            for (pool, runs) in sets {
                f.object("pool", |f| {
                    f.int("pool", pool.0);
                    f.array("snaps", |f| {
                        for (start, len) in runs.iter() {
                            f.object("interval", |f| {
                                f.int("begin", start);
                                f.int("length", len);
                            });
                        }
                    });
                });
            }
        });
    };
    snaps(f, "removed_snaps_queue", &map.removed_snaps_queue);
    snaps(f, "new_removed_snaps", &map.new_removed_snaps);
    snaps(f, "new_purged_snaps", &map.new_purged_snaps);
    f.object("crush_node_flags", |f| {
        for (node, flags) in &map.crush_node_flags {
            let name = map.crush.names().get(*node).map_or_else(|| node.to_string(), str::to_owned);
            dump_state_flags(f, &name, *flags);
        }
    });
    f.object("device_class_flags", |f| {
        for (class, flags) in &map.device_class_flags {
            let name = map.crush.class_names().get(*class).unwrap_or("").to_owned();
            dump_state_flags(f, &name, *flags);
        }
    });
    f.object("stretch_mode", |f| {
        f.bool("stretch_mode_enabled", map.stretch.enabled);
        f.int("stretch_bucket_count", map.stretch.bucket_count);
        f.int("degraded_stretch_mode", map.stretch.degraded);
        f.int("recovering_stretch_mode", map.stretch.recovering);
        f.int("stretch_mode_bucket", map.stretch.bucket);
    });
}

fn dump_state_flags(f: &mut Formatter, name: &str, flags: u32) {
    f.array(name, |f| {
        for flag in maps::OsdState(flags).to_string().split(',').filter(|s| !s.is_empty()) {
            f.string("flag", flag);
        }
    });
}
