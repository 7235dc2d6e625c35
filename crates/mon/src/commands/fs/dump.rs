//! File systems and metadata servers as text and as fields.

use std::fmt::Write;

use cli::Formatter;
use maps::{CompatSet, FeatureBits, FeatureSet, FsMap, MdsInfo, MdsMap, MdsState, mds_flag};

use crate::commands::{dump_addrvec, legacy_text, status::fs_time};

fn feature_set(f: &mut Formatter, name: &str, set: &FeatureSet) {
    f.object(name, |f| {
        for (number, name) in &set.names {
            f.string(&format!("feature_{number}"), name);
        }
    });
}

/// The three sets of features, under this name.
pub(super) fn compat(f: &mut Formatter, name: &str, compat: &CompatSet) {
    f.object(name, |f| {
        feature_set(f, "compat", &compat.compat);
        feature_set(f, "ro_compat", &compat.ro_compat);
        feature_set(f, "incompat", &compat.incompat);
    });
}

pub(super) fn compat_text(compat: &CompatSet) -> String {
    let set = |set: &FeatureSet| {
        let all: Vec<String> = set.names.iter().map(|(n, name)| format!("{n}={name}")).collect();
        all.join(",")
    };
    format!(
        "compat={{{}}},rocompat={{{}}},incompat={{{}}}",
        set(&compat.compat),
        set(&compat.ro_compat),
        set(&compat.incompat)
    )
}

fn bits(features: &FeatureBits) -> impl Iterator<Item = usize> {
    (0..features.0.len() * 64).filter(|bit| features.has(*bit))
}

/// Each flag and whether it holds.
pub(super) fn flags_state(f: &mut Formatter, flags: u32) {
    for (name, on) in mds_flag::states(flags) {
        f.bool(name, on);
    }
}

/// The names of the flags that hold, each behind a space.
pub(super) fn flags_text(flags: u32) -> String {
    let on = mds_flag::states(flags).filter(|(_, on)| *on);
    on.map(|(name, _)| format!(" {name}")).collect()
}

/// The address that old clients are shown.
fn legacy_addr(info: &MdsInfo) -> String {
    legacy_text(&info.addrs.legacy())
}

fn info(f: &mut Formatter, info: &MdsInfo) {
    f.int("gid", info.gid);
    f.string("name", &info.name);
    f.int("rank", info.rank);
    f.int("incarnation", info.inc);
    f.string("state", info.state.name());
    f.int("state_seq", info.state_seq);
    f.string("addr", legacy_addr(info));
    dump_addrvec(f, "addrs", &info.addrs);
    if info.is_laggy() {
        f.display("laggy_since", info.laggy_since);
    }
    f.int("join_fscid", info.join_fscid);
    f.array("export_targets", |f| {
        for rank in &info.export_targets {
            f.int("mds", *rank);
        }
    });
    f.int("features", info.features);
    f.int("flags", info.flags);
    compat(f, "compat", &info.compat);
}

/// A file system's map.
pub(super) fn mds_map(f: &mut Formatter, m: &MdsMap) {
    let ranks = |f: &mut Formatter, name: &str, ranks: &std::collections::BTreeSet<i32>| {
        f.array(name, |f| {
            for rank in ranks {
                f.int("mds", *rank);
            }
        });
    };
    f.int("epoch", m.epoch.0);
    f.int("flags", m.flags);
    f.object("flags_state", |f| flags_state(f, m.flags));
    f.int("ever_allowed_features", m.ever_allowed_features);
    f.int("explicitly_allowed_features", m.explicitly_allowed_features);
    f.display("created", m.created);
    f.display("modified", m.modified);
    f.int("tableserver", m.tableserver);
    f.int("root", m.root);
    f.int("session_timeout", m.session_timeout);
    f.int("session_autoclose", m.session_autoclose);
    f.object("required_client_features", |f| {
        for bit in bits(&m.required_client_features) {
            f.string(&format!("feature_{bit}"), maps::fs::feature_name(bit));
        }
    });
    f.int("max_file_size", m.max_file_size);
    f.int("max_xattr_size", m.max_xattr_size);
    f.int("last_failure", m.last_failure.0);
    f.int("last_failure_osd_epoch", m.last_failure_osd_epoch.0);
    compat(f, "compat", &m.compat);
    f.int("max_mds", m.max_mds);
    ranks(f, "in", &m.r#in);
    f.object("up", |f| {
        for (rank, gid) in &m.up {
            f.int(&format!("mds_{rank}"), *gid);
        }
    });
    ranks(f, "failed", &m.failed);
    ranks(f, "damaged", &m.damaged);
    ranks(f, "stopped", &m.stopped);
    f.object("info", |f| {
        for (gid, one) in &m.mds_info {
            f.object(&format!("gid_{gid}"), |f| info(f, one));
        }
    });
    f.array("data_pools", |f| {
        for pool in &m.data_pools {
            f.int("pool", pool.0);
        }
    });
    f.int("metadata_pool", m.metadata_pool.0);
    f.bool("enabled", m.enabled);
    f.string("fs_name", &m.fs_name);
    f.string("balancer", &m.balancer);
    f.string("bal_rank_mask", &m.bal_rank_mask);
    f.int("standby_count_wanted", m.standby_count_wanted.max(0));
    f.int("qdb_leader", m.qdb_cluster_leader);
    f.array("qdb_cluster", |f| {
        for gid in &m.qdb_cluster_members {
            f.int("member", *gid);
        }
    });
}

/// A file system, as `fs get` shows it.
pub(super) fn filesystem(f: &mut Formatter, fs: &maps::Filesystem) {
    f.object("mdsmap", |f| mds_map(f, &fs.mds_map));
    f.int("id", fs.fscid);
    if !fs.mirror.mirrored {
        return;
    }
    f.object("mirror_info", |f| {
        f.object("peers", |f| {
            for peer in &fs.mirror.peers {
                f.object(&peer.uuid, |f| {
                    f.object("remote", |f| {
                        f.string("client_name", &peer.remote.client_name);
                        f.string("cluster_name", &peer.remote.cluster_name);
                        f.string("fs_name", &peer.remote.fs_name);
                    });
                });
            }
        });
    });
}

/// Everything.
pub(super) fn fsmap(f: &mut Formatter, map: &FsMap) {
    f.int("epoch", map.epoch.0);
    f.string("btime", fs_time(map.btime));
    f.int("default_fscid", map.legacy_client_fscid);
    compat(f, "compat", &map.default_compat);
    f.object("feature_flags", |f| {
        f.bool("enable_multiple", map.enable_multiple);
        f.bool("ever_enabled_multiple", map.ever_enabled_multiple);
    });
    f.array("standbys", |f| {
        for (gid, one) in &map.standby_daemons {
            f.object("info", |f| {
                info(f, one);
                f.int("epoch", map.standby_epochs.get(gid).map_or(0, |e| e.0));
            });
        }
    });
    f.array("filesystems", |f| {
        for fs in &map.filesystems {
            f.object("filesystem", |f| filesystem(f, fs));
        }
    });
}

fn joined<T: ToString>(all: impl IntoIterator<Item = T>, by: &str) -> String {
    all.into_iter().map(|one| one.to_string()).collect::<Vec<_>>().join(by)
}

fn info_line(info: &MdsInfo) -> String {
    let mask = |set: &FeatureSet| format!("[{:x}]", set.mask() | 1);
    let mut line = format!("[mds.{}{{{}:{}}}", info.name, info.rank, info.gid);
    let _ = write!(line, " state {} seq {}", info.state, info.state_seq);
    if info.is_laggy() {
        let _ = write!(line, " laggy since {}", info.laggy_since);
    }
    if info.join_fscid != -1 {
        let _ = write!(line, " join_fscid={}", info.join_fscid);
    }
    if !info.export_targets.is_empty() {
        let _ = write!(line, " export targets {}", joined(&info.export_targets, ","));
    }
    if info.is_frozen() {
        line += " frozen";
    }
    let c = &info.compat;
    let _ = write!(
        line,
        " addr {} compat {{c={},r={},i={}}}]",
        info.addrs,
        mask(&c.compat),
        mask(&c.ro_compat),
        mask(&c.incompat)
    );
    line
}

/// A file system for people, as `fs get` and `fs dump` show it.
pub(super) fn filesystem_text(fs: &maps::Filesystem) -> String {
    let m = &fs.mds_map;
    let features = bits(&m.required_client_features);
    let features = joined(features.map(|b| format!("{b}={}", maps::fs::feature_name(b))), ",");
    let up = joined(m.up.iter().map(|(rank, gid)| format!("{rank}={gid}")), ",");
    let rows = [
        ("fs_name", m.fs_name.clone()),
        ("epoch", m.epoch.to_string()),
        ("flags", format!("{:x}{}", m.flags, flags_text(m.flags))),
        ("created", m.created.to_string()),
        ("modified", m.modified.to_string()),
        ("tableserver", m.tableserver.to_string()),
        ("root", m.root.to_string()),
        ("session_timeout", m.session_timeout.to_string()),
        ("session_autoclose", m.session_autoclose.to_string()),
        ("max_file_size", m.max_file_size.to_string()),
        ("max_xattr_size", m.max_xattr_size.to_string()),
        ("required_client_features", format!("{{{features}}}")),
        ("last_failure", m.last_failure.to_string()),
        ("last_failure_osd_epoch", m.last_failure_osd_epoch.to_string()),
        ("compat", compat_text(&m.compat)),
        ("max_mds", m.max_mds.to_string()),
        ("in", joined(&m.r#in, ",")),
        ("up", format!("{{{up}}}")),
        ("failed", joined(&m.failed, ",")),
        ("damaged", joined(&m.damaged, ",")),
        ("stopped", joined(&m.stopped, ",")),
        ("data_pools", format!("[{}]", joined(m.data_pools.iter().map(|p| p.0), ","))),
        ("metadata_pool", m.metadata_pool.0.to_string()),
        ("inline_data", if m.inline_data { "enabled" } else { "disabled" }.to_owned()),
        ("balancer", m.balancer.clone()),
        ("bal_rank_mask", m.bal_rank_mask.clone()),
        ("standby_count_wanted", m.standby_count_wanted.max(0).to_string()),
    ];
    let mut t = format!("Filesystem '{}' ({})\n", m.fs_name, fs.fscid);
    for (name, value) in rows {
        let _ = writeln!(t, "{name}\t{value}");
    }
    let members = joined(&m.qdb_cluster_members, ",");
    let _ = writeln!(t, "qdb_cluster\tleader: {} members: {members}", m.qdb_cluster_leader);
    let mut servers: Vec<&MdsInfo> = m.mds_info.values().collect();
    servers.sort_by_key(|i| (i.rank, i.state == MdsState::STANDBY_REPLAY, i.gid));
    for info in servers {
        let _ = writeln!(t, "{}", info_line(info));
    }
    if fs.mirror.mirrored {
        let peers = fs.mirror.peers.iter().map(|p| {
            let r = &p.remote;
            let remote = format!(
                "{{client_name={}, cluster_name={}, fs_name={}}}",
                r.client_name, r.cluster_name, r.fs_name
            );
            format!("{{uuid={}, remote_cluster={remote}}}", p.uuid)
        });
        let _ = writeln!(t, "[peers={{{}}}]", joined(peers, ", "));
    }
    t
}

/// Everything, for people.
pub(super) fn fsmap_text(map: &FsMap) -> String {
    let mut t = format!(
        "e{}\nbtime {}\nenable_multiple, ever_enabled_multiple: {},{}\ndefault compat: {}\nlegacy client fscid: {}\n \n",
        map.epoch,
        fs_time(map.btime),
        u8::from(map.enable_multiple),
        u8::from(map.ever_enabled_multiple),
        compat_text(&map.default_compat),
        map.legacy_client_fscid
    );
    if map.filesystems.is_empty() {
        t += "No filesystems configured\n";
    }
    for fs in &map.filesystems {
        t += &filesystem_text(fs);
        t += " \n \n";
    }
    if !map.standby_daemons.is_empty() {
        t += "Standby daemons:\n \n";
        for info in map.standby_daemons.values() {
            let _ = writeln!(t, "{}", info_line(info));
        }
    }
    t
}

fn state_text(info: &MdsInfo) -> String {
    let laggy = if info.is_laggy() { "(laggy or crashed)" } else { "" };
    format!("{}{laggy}", info.state)
}

/// How many servers that hold no rank there are in each state: who waits, then who follows.
fn unranked(map: &FsMap) -> [(MdsState, usize); 2] {
    let followers = map.filesystems.iter().map(|fs| fs.mds_map.count(MdsState::STANDBY_REPLAY));
    [(MdsState::STANDBY_REPLAY, followers.sum()), (MdsState::STANDBY, map.standby_daemons.len())]
}

fn lost(map: &FsMap) -> [(&'static str, usize); 2] {
    let sum = |of: &dyn Fn(&MdsMap) -> usize| {
        map.filesystems.iter().map(|fs| of(&fs.mds_map)).sum::<usize>()
    };
    [("failed", sum(&|m| m.failed.len())), ("damaged", sum(&|m| m.damaged.len()))]
}

/// The short form, as `status` has it.
pub(in crate::commands) fn summary(f: &mut Formatter, map: &FsMap) {
    f.int("epoch", map.epoch.0);
    f.string("btime", fs_time(map.btime));
    for fs in &map.filesystems {
        f.int("id", fs.fscid);
        f.len("up", fs.mds_map.up.len());
        f.len("in", fs.mds_map.r#in.len());
        f.int("max", fs.mds_map.max_mds);
    }
    f.array("by_rank", |f| {
        for (gid, fscid) in map.mds_roles.iter().filter(|(_, fscid)| **fscid != -1) {
            let Some(info) = map.server(*gid) else { continue };
            f.object("mds", |f| {
                f.int("filesystem_id", *fscid);
                f.int("rank", info.rank);
                f.string("name", &info.name);
                f.string("status", state_text(info));
                f.int("gid", *gid);
            });
        }
    });
    f.len("up:standby", map.standby_daemons.len());
    for (what, n) in lost(map) {
        if n > 0 {
            f.len(what, n);
        }
    }
}

/// `cephfs:1 {0=a=up:active} 1 up:standby`
pub(super) fn summary_text(map: &FsMap) -> String {
    let counts = |m: &MdsMap| match m.is_degraded() {
        true => format!("{}:{}/{}", m.fs_name, m.up.len(), m.r#in.len()),
        false => format!("{}:{}", m.fs_name, m.r#in.len()),
    };
    let all = map.filesystems.iter().map(|fs| &fs.mds_map);
    let mut t = if map.filesystems.len() <= 3 {
        joined(all.map(counts), " ")
    } else {
        let degraded: Vec<String> = all.filter(|m| m.is_degraded()).map(counts).collect();
        let degraded = match degraded.len() {
            0 => String::new(),
            1..=3 => format!(" (degraded: {})", degraded.join(", ")),
            n => format!(" (degraded: {n} fs)"),
        };
        format!("{} fs{degraded}", map.filesystems.len())
    };
    let several = map.filesystems.len() > 1;
    let mut ranks = Vec::new();
    for fs in &map.filesystems {
        for info in fs.mds_map.up.keys().filter_map(|rank| fs.mds_map.server_of(*rank)) {
            let of = if several { format!("{}:", fs.mds_map.fs_name) } else { String::new() };
            ranks.push(format!("{of}{}={}={}", info.rank, info.name, state_text(info)));
        }
    }
    if (1..5).contains(&ranks.len()) {
        let _ = write!(t, " {{{}}}", ranks.join(","));
    }
    for (state, n) in unranked(map).into_iter().filter(|(_, n)| *n > 0) {
        let _ = write!(t, " {n} {state}");
    }
    for (what, n) in lost(map).into_iter().filter(|(_, n)| *n > 0) {
        let _ = write!(t, ", {n} {what}");
    }
    t
}
