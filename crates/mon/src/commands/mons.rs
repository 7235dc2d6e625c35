//! Monitors: `mon ...`, `quorum_status`, versions, features, the cluster's id.

use std::collections::BTreeMap;
use std::fmt::Write;

use cli::Formatter;
use conf::key;
use denc::Denc;
use maps::{MonFeatures, MonMap};
use types::{EntityKind, Features, UTime};

use super::{
    EBUSY, EINVAL, ENOENT, Fail, Run, dump_addrvec, fail, legacy_text, ok, out, out_rs,
    release_name,
};
use crate::{CommandCtx, HealthStatus, vitals};

/// What this monitor tells its peers that it knows.
const OWN_FEATURES: Features = Features(Features::REEF_WORD.0 | Features::CRUSH_MSR.0);

pub(super) fn has(prefix: &str) -> bool {
    matches!(
        prefix,
        "fsid"
            | "version"
            | "versions"
            | "features"
            | "quorum_status"
            | "mon_status"
            | "mon dump"
            | "mon stat"
            | "mon getmap"
            | "mon metadata"
            | "mon count-metadata"
            | "mon versions"
            | "mon feature ls"
            | "mon feature set"
            | "mon add"
            | "mon rm"
            | "mon remove"
            | "mon set-weight"
            | "mon set-addrs"
            | "mon enable-msgr2"
            | "mon scrub"
            | "mon set"
            | "mon set election_strategy"
            | "mon ok-to-stop"
            | "mon ok-to-add-offline"
            | "mon ok-to-rm"
            | "time-sync-status"
            | "node ls"
            | "sessions"
    )
}

pub(super) fn run(ctx: &mut CommandCtx<'_>, prefix: &str) -> Run {
    match prefix {
        "fsid" => match ctx.formatter() {
            None => out(format!("{}\n", ctx.state.fsid)),
            Some(mut f) => {
                f.object("fsid", |f| f.display("fsid", ctx.state.fsid));
                out(f.finish())
            }
        },
        "version" => match ctx.formatter() {
            None => out(format!("{}\n", version(ctx))),
            Some(mut f) => {
                f.object("version", |f| f.string("version", version(ctx)));
                out(f.finish_line())
            }
        },
        "versions" => versions(ctx),
        "features" => features(ctx),
        "quorum_status" => quorum_status(ctx),
        "mon_status" => mon_status(ctx),
        "mon dump" => dump(ctx),
        "mon stat" => stat(ctx),
        "mon getmap" => {
            check_epoch(ctx)?;
            let map = &ctx.state.monmap;
            let bytes = map.to_bytes_for(ctx.session.features);
            out_rs(format!("got monmap epoch {}", map.epoch), bytes)
        }
        "mon metadata" => metadata(ctx),
        "mon count-metadata" => {
            let property = ctx.cmd.str_or_empty("property")?.to_owned();
            out(count_text(ctx, &property, ctx.state.mon_metadata.values()).finish_line())
        }
        "mon versions" => {
            let all = ctx.state.mon_metadata.values();
            out(count_text(ctx, "ceph_version", all).finish_line())
        }
        "mon feature ls" => feature_ls(ctx),
        "mon feature set" => super::mon_change::feature_set(ctx),
        "mon add" => super::mon_change::add(ctx),
        "mon rm" | "mon remove" => super::mon_change::remove(ctx),
        "mon set-addrs" => super::mon_change::set_addrs(ctx),
        "mon set-weight" => super::mon_change::set_weight(ctx),
        "mon enable-msgr2" => super::mon_change::enable_msgr2(ctx),
        // What the monitors have is one log, and each entry of it is checked when it is read:
        // there are no copies that could differ in silence.
        "mon scrub" => ok(""),
        "mon set" => super::ciphers::set(ctx),
        "mon set election_strategy" => super::mon_change::strategy(ctx),
        "mon ok-to-stop" => ok_to_stop(ctx),
        "mon ok-to-add-offline" => ok_to_add(ctx),
        "mon ok-to-rm" => ok_to_rm(ctx),
        "time-sync-status" => time_sync(ctx),
        "node ls" => node_ls(ctx),
        _ => sessions(ctx),
    }
}

/// This monitor's version, as it says of itself.
pub(super) fn version(ctx: &CommandCtx<'_>) -> String {
    let own = ctx.state.mon_metadata.get(&ctx.volatile.quorum.name);
    own.and_then(|m| m.get("ceph_version")).cloned().unwrap_or_else(types::release::version)
}

/// Names of the monitors that agree.
pub(super) fn quorum_names(ctx: &CommandCtx<'_>) -> Vec<String> {
    let map = &ctx.state.monmap;
    let names = ctx.volatile.quorum.quorum.iter();
    names.filter_map(|r| map.by_rank(*r as usize)).map(|m| m.name.clone()).collect()
}

/// Counts daemons by what they say of themselves.
pub(super) fn count<'a>(
    ctx: &CommandCtx<'_>,
    property: &str,
    all: impl Iterator<Item = &'a BTreeMap<String, String>>,
) -> Run {
    out(count_text(ctx, property, all).finish())
}

/// As [`count`], not ended yet.
pub(super) fn count_text<'a>(
    ctx: &CommandCtx<'_>,
    property: &str,
    all: impl Iterator<Item = &'a BTreeMap<String, String>>,
) -> Formatter {
    let mut f = ctx.formatter_or_pretty();
    f.object(property, |f| {
        for (value, n) in counts(property, all) {
            f.int(&value, n);
        }
    });
    f
}

fn counts<'a>(
    property: &str,
    all: impl Iterator<Item = &'a BTreeMap<String, String>>,
) -> BTreeMap<String, u32> {
    let mut counts = BTreeMap::new();
    for metadata in all {
        let value = metadata.get(property).map_or("unknown", String::as_str);
        *counts.entry(value.to_owned()).or_default() += 1;
    }
    counts
}

fn versions(ctx: &mut CommandCtx<'_>) -> Run {
    let state = ctx.state;
    let mut f = ctx.formatter_or_pretty();
    let mons = counts("ceph_version", state.mon_metadata.values());
    let osds = counts("ceph_version", state.osd_metadata.values());
    let mgrs = super::manager::all_metadata(ctx);
    let mgrs = counts("ceph_version", mgrs.into_values());
    let servers = super::fs::metadata_of_all(ctx);
    let servers = counts("ceph_version", servers.into_iter());
    let mut groups = vec![("mon", &mons), ("mgr", &mgrs), ("osd", &osds)];
    if !servers.is_empty() {
        groups.push(("mds", &servers));
    }
    let mut overall: BTreeMap<String, u32> = BTreeMap::new();
    f.open_object("version");
    for (name, group) in groups {
        f.object(name, |f| {
            for (version, n) in group {
                f.int(version, *n);
                *overall.entry(version.clone()).or_default() += n;
            }
        });
    }
    f.object("overall", |f| {
        for (version, n) in &overall {
            f.int(version, *n);
        }
    });
    f.close();
    out(f.finish())
}

/// The oldest release whose clients need no more than these features: how the peer names
/// clients, so that 12 to 18 are all `luminous`.
pub(super) fn release_of(features: Features) -> u8 {
    let reached = RELEASES.iter().take_while(|(needs, _)| features.has(*needs)).last();
    reached.map_or(0, |(_, release)| *release)
}

/// Whether a client with these features follows what maps of `release` may hold. Releases that
/// brought nothing for clients ask for what those before them did: nobody tells a client of
/// release 18 from one of release 12 by its features.
pub(super) fn can_follow(features: Features, release: u8) -> bool {
    RELEASES.iter().filter(|(_, since)| *since <= release).all(|(needs, _)| features.has(*needs))
}

/// Features that clients must have, by the release that needs them first.
const RELEASES: [(Features, u8); 8] = [
    (Features::CRUSH_TUNABLES, 1),
    (Features(Features::CRUSH_TUNABLES2.0 | Features::OSDHASHPSPOOL.0), 4),
    (Features::CRUSH_TUNABLES3, 6),
    (Features::CRUSH_V4, 8),
    (Features::CRUSH_TUNABLES5, 10),
    (Features::MSG_ADDR2, 11),
    (Features::SERVER_LUMINOUS, 12),
    (Features::CRUSH_MSR, 19),
];

fn dump_features(ctx: &CommandCtx<'_>, f: &mut Formatter, name: &str) {
    f.object(name, |f| {
        let kinds = [
            EntityKind::MON,
            EntityKind::MDS,
            EntityKind::OSD,
            EntityKind::CLIENT,
            EntityKind::MGR,
        ];
        for kind in kinds {
            let own = kind == EntityKind::MON;
            let mut groups: BTreeMap<u64, u32> = BTreeMap::new();
            for group in ctx.volatile.groups.iter().filter(|g| g.kind == kind) {
                *groups.entry(group.features.0).or_default() += group.count;
            }
            if own {
                *groups.entry(OWN_FEATURES.0).or_default() += 1;
            }
            if groups.is_empty() {
                continue;
            }
            f.array(kind.name(), |f| {
                for (features, count) in groups {
                    f.object("group", |f| {
                        f.string("features", format!("0x{features:x}"));
                        f.string("release", release_name(release_of(Features(features))));
                        f.int("num", count);
                    });
                }
            });
        }
    });
}

fn features(ctx: &mut CommandCtx<'_>) -> Run {
    let mut f = ctx.formatter_or_pretty();
    dump_features(ctx, &mut f, "features");
    out(f.finish())
}

pub(super) fn feature_names(features: MonFeatures) -> Vec<&'static str> {
    let names = MonFeatures::NAMES.iter();
    names.filter(|(bit, _)| features.bits >> bit & 1 == 1).map(|(_, name)| *name).collect()
}

fn dump_feature_names(f: &mut Formatter, name: &str, features: MonFeatures) {
    f.array(name, |f| {
        for name in feature_names(features) {
            f.string("bit_flag", name);
        }
    });
}

fn zulu(time: UTime) -> String {
    time.to_string().replace("+0000", "Z")
}

fn cipher_name(kind: i32) -> &'static str {
    u16::try_from(kind).map_or("unknown", |k| ::auth::KeyKind(k).name())
}

/// The fields of a monitor map.
pub(super) fn dump_monmap(f: &mut Formatter, map: &MonMap) {
    f.int("epoch", map.epoch.0);
    if let Some(auth) = &map.auth {
        f.int("auth_epoch", auth.epoch);
        let cipher = |f: &mut Formatter, name: &str, kind: i32| {
            f.object(name, |f| {
                f.string("name", cipher_name(kind));
                f.int("value", kind);
            });
        };
        cipher(f, "auth_service_cipher", auth.service_cipher);
        f.array("auth_allowed_ciphers", |f| {
            for kind in &auth.allowed_ciphers {
                cipher(f, "key_type", *kind);
            }
        });
        cipher(f, "auth_preferred_cipher", auth.preferred_cipher);
    }
    f.display("fsid", map.fsid);
    f.string("modified", zulu(map.last_changed));
    f.string("created", zulu(map.created));
    f.int("min_mon_release", map.min_mon_release);
    f.string("min_mon_release_name", release_name(map.min_mon_release));
    f.int("election_strategy", map.strategy);
    let names: Vec<&str> = map.disallowed_leaders.iter().map(String::as_str).collect();
    f.string("disallowed_leaders", names.join(","));
    f.bool("stretch_mode", map.stretch_mode);
    f.string("tiebreaker_mon", &map.tiebreaker);
    let ranks: Vec<String> = map.removed_ranks.iter().map(u32::to_string).collect();
    f.string("removed_ranks", ranks.join(","));
    f.object("features", |f| {
        dump_feature_names(f, "persistent", map.persistent_features);
        dump_feature_names(f, "optional", map.optional_features);
    });
    f.array("mons", |f| {
        for (rank, mon) in map.iter() {
            f.object("mon", |f| {
                f.len("rank", rank);
                f.string("name", &mon.name);
                dump_addrvec(f, "public_addrs", &mon.addrs);
                let legacy = legacy_text(&mon.addrs.legacy());
                f.string("addr", &legacy);
                f.string("public_addr", &legacy);
                f.int("priority", mon.priority);
                f.int("weight", mon.weight);
                if let Some(added) = mon.time_added {
                    f.string("time_added", super::status::fs_time(added));
                }
                f.array("crush_location", |f| {
                    for (kind, name) in &mon.crush_loc {
                        f.object("loc", |f| {
                            f.string("key", kind);
                            f.string("value", name);
                        });
                    }
                });
            });
        }
    });
}

fn check_epoch(ctx: &CommandCtx<'_>) -> Result<(), Fail> {
    let epoch = ctx.cmd.int("epoch")?.unwrap_or(0);
    if epoch != 0 && epoch != i64::from(ctx.state.monmap.epoch.0) {
        return Err(fail(ENOENT, format!("there is no map for epoch {epoch}")));
    }
    Ok(())
}

fn dump(ctx: &mut CommandCtx<'_>) -> Run {
    check_epoch(ctx)?;
    let map = &ctx.state.monmap;
    let rs = format!("dumped monmap epoch {}", map.epoch);
    if let Some(mut f) = ctx.formatter() {
        f.object("monmap", |f| {
            dump_monmap(f, map);
            f.array("quorum", |f| {
                for rank in &ctx.volatile.quorum.quorum {
                    f.int("mon", *rank);
                }
            });
        });
        return out_rs(rs, f.finish_line());
    }
    let mut t = String::new();
    let _ = writeln!(t, "epoch {}\nfsid {}", map.epoch, map.fsid);
    let _ = writeln!(t, "last_changed {}\ncreated {}", map.last_changed, map.created);
    let release = map.min_mon_release;
    let _ = writeln!(t, "min_mon_release {release} ({})", release_name(release));
    let _ = writeln!(t, "election_strategy: {}", map.strategy);
    for (rank, mon) in map.iter() {
        let _ = writeln!(t, "{rank}: {} mon.{}", addrs_text(&mon.addrs), mon.name);
    }
    if let Some(auth) = &map.auth {
        let _ = writeln!(t, "auth_epoch {}", auth.epoch);
        let _ = writeln!(t, "auth_service_cipher {}", cipher_name(auth.service_cipher));
        let allowed: Vec<&str> = auth.allowed_ciphers.iter().map(|k| cipher_name(*k)).collect();
        let _ = writeln!(t, "auth_allowed_ciphers {}", allowed.join(", "));
        let _ = writeln!(t, "auth_preferred_cipher {}", cipher_name(auth.preferred_cipher));
    }
    out_rs(rs, t)
}

pub(super) fn addrs_text(addrs: &types::AddrVec) -> String {
    let list: Vec<String> = addrs.0.iter().map(ToString::to_string).collect();
    if list.len() == 1 { list.concat() } else { format!("[{}]", list.join(",")) }
}

fn leader_rank(ctx: &CommandCtx<'_>) -> usize {
    ctx.state.monmap.rank_of(&ctx.volatile.quorum.leader).unwrap_or(0)
}

fn stat(ctx: &mut CommandCtx<'_>) -> Run {
    let map = &ctx.state.monmap;
    let quorum = &ctx.volatile.quorum;
    if let Some(mut f) = ctx.formatter() {
        f.object("monmap", |f| {
            f.int("epoch", map.epoch.0);
            f.string("min_mon_release_name", release_name(map.min_mon_release));
            f.len("num_mons", map.mons.len());
            f.string("leader", &quorum.leader);
            f.array("quorum", |f| {
                for rank in &quorum.quorum {
                    f.object("mon", |f| {
                        f.int("rank", *rank);
                        f.string("name", map.by_rank(*rank as usize).map_or("", |m| &m.name));
                    });
                }
            });
        });
        return out(f.finish_line());
    }
    let mons: Vec<String> =
        map.mons.values().map(|m| format!("{}={}", m.name, addrs_text(&m.addrs))).collect();
    let ranks: Vec<String> = quorum.quorum.iter().map(u32::to_string).collect();
    let removed: Vec<String> = map.removed_ranks.iter().map(u32::to_string).collect();
    let disallowed: Vec<&str> = map.disallowed_leaders.iter().map(String::as_str).collect();
    out(format!(
        "e{}: {} mons at {{{}}} removed_ranks: {{{}}} disallowed_leaders: {{{}}}, election epoch {}, leader {} {}, quorum {} {}\n",
        map.epoch,
        map.mons.len(),
        mons.join(","),
        removed.join(","),
        disallowed.join(","),
        quorum.election_epoch,
        leader_rank(ctx),
        quorum.leader,
        ranks.join(","),
        quorum_names(ctx).join(",")
    ))
}

fn quorum_age_secs(ctx: &CommandCtx<'_>) -> u64 {
    ctx.now.mono_ms().saturating_sub(ctx.volatile.quorum.since_mono_ms) / 1000
}

fn quorum_status(ctx: &mut CommandCtx<'_>) -> Run {
    // The peer's plain form is json on one line.
    let mut f = ctx.formatter().unwrap_or_else(Formatter::json);
    let quorum = &ctx.volatile.quorum;
    f.object("quorum_status", |f| {
        f.int("election_epoch", quorum.election_epoch);
        f.array("quorum", |f| {
            for rank in &quorum.quorum {
                f.int("mon", *rank);
            }
        });
        f.array("quorum_names", |f| {
            for name in quorum_names(ctx) {
                f.string("mon", name);
            }
        });
        f.string("quorum_leader_name", &quorum.leader);
        f.int("quorum_age", quorum_age_secs(ctx));
        f.object("features", |f| {
            f.display("quorum_con", OWN_FEATURES.0);
            dump_feature_names(f, "quorum_mon", ctx.state.monmap.persistent_features);
        });
        f.object("monmap", |f| dump_monmap(f, &ctx.state.monmap));
    });
    out(f.finish_line())
}

pub(super) fn mon_status(ctx: &mut CommandCtx<'_>) -> Run {
    let mut f = ctx.formatter_or_pretty();
    f.object("mon_status", |f| status_fields(ctx, f));
    out(f.finish())
}

/// This monitor's place among the others.
pub(super) fn status_fields(ctx: &CommandCtx<'_>, f: &mut Formatter) {
    let quorum = &ctx.volatile.quorum;
    let map = &ctx.state.monmap;
    f.string("name", &quorum.name);
    f.int("rank", quorum.rank);
    let state = if quorum.leader == quorum.name {
        "leader"
    } else if quorum.quorum.contains(&quorum.rank) {
        "peon"
    } else {
        "probing"
    };
    f.string("state", state);
    f.int("election_epoch", quorum.election_epoch);
    f.int("uptime", ctx.now.mono_ms().saturating_sub(quorum.started_mono_ms));
    f.array("quorum", |f| {
        for rank in &quorum.quorum {
            f.int("mon", *rank);
        }
    });
    f.int("quorum_age", quorum_age_secs(ctx));
    f.object("features", |f| {
        f.display("required_con", 0);
        dump_feature_names(f, "required_mon", map.persistent_features);
        f.display("quorum_con", OWN_FEATURES.0);
        dump_feature_names(f, "quorum_mon", map.persistent_features);
    });
    f.array("outside_quorum", |f| {
        for (rank, mon) in map.iter() {
            if !quorum.quorum.contains(&(rank as u32)) {
                f.string("mon", &mon.name);
            }
        }
    });
    f.array("extra_probe_peers", |_| {});
    f.array("sync_provider", |_| {});
    f.object("monmap", |f| dump_monmap(f, map));
    dump_features(ctx, f, "feature_map");
    f.bool("stretch_mode", map.stretch_mode);
}

fn dump_own(f: &mut Formatter, map: &BTreeMap<String, String>) {
    for (key, value) in map {
        f.string(key, value);
    }
}

fn metadata(ctx: &mut CommandCtx<'_>) -> Run {
    let mut f = ctx.formatter_or_pretty();
    let all = ctx.state.mon_metadata.iter().map(|(name, own)| {
        let mut own = own.clone();
        if let Some(info) = ctx.state.monmap.mons.get(name) {
            own.insert("addrs".to_owned(), info.addrs.to_string());
        }
        (name.as_str(), own)
    });
    let all: BTreeMap<&str, BTreeMap<String, String>> = all.collect();
    if let Some(name) = ctx.cmd.str("id")? {
        if !ctx.state.monmap.mons.contains_key(name) {
            return Err(fail(ENOENT, "requested mon not found"));
        }
        let own = all.get(name).ok_or_else(|| fail(ENOENT, "no metadata yet"))?;
        f.object("mon_metadata", |f| dump_own(f, own));
        return out(f.finish_line());
    }
    f.array("mon_metadata", |f| {
        for name in ctx.state.monmap.mons.keys() {
            f.object("mon", |f| {
                f.string("name", name);
                if let Some(own) = all.get(name.as_str()) {
                    dump_own(f, own);
                }
            });
        }
    });
    out(f.finish_line())
}

fn feature_ls(ctx: &mut CommandCtx<'_>) -> Run {
    let map = &ctx.state.monmap;
    let known = map.persistent_features;
    if let Some(mut f) = ctx.formatter() {
        f.object("features", |f| {
            f.object("all", |f| {
                dump_feature_names(f, "supported", known);
                dump_feature_names(f, "persistent", known);
            });
            f.object("monmap", |f| {
                dump_feature_names(f, "persistent", map.persistent_features);
                dump_feature_names(f, "optional", map.optional_features);
                dump_feature_names(f, "required", map.persistent_features);
            });
        });
        return out(f.finish_line());
    }
    let names = feature_names(known).join(",");
    out(format!(
        "all features\n\tsupported: [{names}]\n\tpersistent: [{names}]\non current monmap (epoch {})\n\tpersistent: [{names}]\n\trequired: [{names}]\n",
        map.epoch
    ))
}

/// Who would be left of the quorum without these.
fn left_without(ctx: &CommandCtx<'_>, ids: &[String]) -> Vec<String> {
    quorum_names(ctx).into_iter().filter(|name| !ids.contains(name)).collect()
}

fn ok_to_stop(ctx: &mut CommandCtx<'_>) -> Run {
    let ids = ctx.cmd.list("ids")?;
    if ids.is_empty() {
        return ok("");
    }
    let left = left_without(ctx, &ids);
    let (names, ids) = (left.join(","), ids.join(","));
    if left.len() >= ctx.state.monmap.quorum_min() {
        return ok(format!("quorum should be preserved ({names}) after stopping [{ids}]"));
    }
    let why =
        format!("not enough monitors would be available ({names}) after stopping mons [{ids}]");
    Err(fail(EBUSY, why))
}

fn ok_to_add(ctx: &mut CommandCtx<'_>) -> Run {
    // The peer's reckoning, for scripts. Here a new monitor counts only once it is there.
    let need = ctx.state.monmap.mons.len().div_ceil(2) + 1;
    if ctx.volatile.quorum.quorum.len() >= need {
        return ok("adding another monitor that is not yet available would not break quorum");
    }
    Err(fail(EBUSY, "adding a monitor may break quorum (until that monitor starts)"))
}

fn ok_to_rm(ctx: &mut CommandCtx<'_>) -> Run {
    let id = ctx.cmd.str_or_empty("id")?.to_owned();
    let map = &ctx.state.monmap;
    if !map.mons.contains_key(&id) {
        return ok(format!("mon.{id} does not exist"));
    }
    let need = (map.mons.len() - 1) / 2 + 1;
    if left_without(ctx, std::slice::from_ref(&id)).len() >= need {
        return ok(format!("safe to remove mon.{id}"));
    }
    Err(fail(EBUSY, format!("removing mon.{id} would break quorum")))
}

fn time_sync(ctx: &mut CommandCtx<'_>) -> Run {
    let mut f = ctx.formatter_or_pretty();
    let (round, quorum) = (&ctx.volatile.vitals, &ctx.volatile.quorum);
    let drift_s = ctx.option(key::MON_CLOCK_DRIFT_ALLOWED);
    f.object("time_sync", |f| {
        if quorum.quorum.len() > 1 {
            f.object("time_skew_status", |f| {
                for (name, known) in &round.known {
                    f.object(name, |f| {
                        f.float("skew", known.skew_s);
                        f.float("latency", known.latency_s);
                        let why = vitals::skew_text(known, drift_s);
                        let status =
                            if why.is_some() { HealthStatus::Warn } else { HealthStatus::Ok };
                        f.string("health", status.name());
                        if let Some(why) = why {
                            f.string("details", why);
                        }
                    });
                }
            });
        }
        f.object("timechecks", |f| {
            f.int("epoch", quorum.election_epoch);
            f.int("round", round.number);
            f.string(
                "round_status",
                if round.awaited.is_empty() { "finished" } else { "on-going" },
            );
        });
    });
    out(f.finish())
}

fn node_ls(ctx: &mut CommandCtx<'_>) -> Run {
    let mut f = ctx.formatter_or_pretty();
    let asked = ctx.cmd.str("type")?.unwrap_or("all");
    let host = |m: &BTreeMap<String, String>| m.get("hostname").cloned().unwrap_or_default();
    let mut mons: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, meta) in &ctx.state.mon_metadata {
        mons.entry(host(meta)).or_default().push(name.clone());
    }
    let mut osds: BTreeMap<String, Vec<i32>> = BTreeMap::new();
    for (osd, meta) in &ctx.state.osd_metadata {
        osds.entry(host(meta)).or_default().push(osd.0);
    }
    let mut servers: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for info in ctx.state.fsmap.servers() {
        let at = ctx.state.mds_metadata.get(&info.gid).map(host).unwrap_or_default();
        servers.entry(at).or_default().push(info.name.clone());
    }
    let mut mgrs: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, own) in super::manager::all_metadata(ctx) {
        mgrs.entry(host(own)).or_default().push(name.to_owned());
    }
    let names = |f: &mut Formatter, what: &str, hosts: &BTreeMap<String, Vec<String>>| {
        f.object(what, |f| {
            for (host, names) in hosts {
                f.array(host, |f| {
                    for name in names {
                        f.string(what, name);
                    }
                });
            }
        });
    };
    let ids = |f: &mut Formatter| {
        f.object("osd", |f| {
            for (host, ids) in &osds {
                f.array(host, |f| {
                    for id in ids {
                        f.int("osd", *id);
                    }
                });
            }
        });
    };
    match asked {
        "all" => f.object("nodes", |f| {
            names(f, "mon", &mons);
            ids(f);
            names(f, "mds", &servers);
            names(f, "mgr", &mgrs);
        }),
        "mon" => names(&mut f, "mon", &mons),
        "osd" => ids(&mut f),
        "mds" => names(&mut f, "mds", &servers),
        "mgr" => names(&mut f, "mgr", &mgrs),
        _ => return Err(fail(EINVAL, format!("unknown type '{asked}'"))),
    }
    out(f.finish_line())
}

/// Who is connected, as far as this is known: types and features.
fn sessions(ctx: &mut CommandCtx<'_>) -> Run {
    let mut f = ctx.formatter_or_pretty();
    f.array("sessions", |f| {
        for group in &ctx.volatile.groups {
            f.object("session", |f| {
                f.string("con_type", group.kind.name());
                f.int("con_features", group.features.0);
                f.string("con_features_hex", format!("{:x}", group.features.0));
                f.string("con_features_release", release_name(release_of(group.features)));
                f.int("num", group.count);
            });
        }
    });
    out(f.finish())
}
