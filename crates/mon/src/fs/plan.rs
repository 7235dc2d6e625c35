//! What the leader does with ranks and servers as time passes: state in, one [`Edit`] out.
//!
//! Source: the peer's `MDSMonitor::{check_health, maybe_resize_cluster, maybe_promote_standby}`.

use std::collections::BTreeMap;

use maps::fs::MdsHealth;
use maps::{Filesystem, FsMap, MdsInfo, MdsState, mds_flag};
use messages::LogPriority;

use super::Edit;

/// What this leader heard of servers, and may lose: a later one gives each a whole grace.
#[derive(Clone, Debug, Default)]
pub struct Watch {
    /// When each was heard last (monotonic milliseconds).
    heard: BTreeMap<u64, u64>,
    /// What each complains about.
    pub(crate) health: BTreeMap<u64, MdsHealth>,
    /// Servers that left the map, by name, and when.
    left: BTreeMap<String, u64>,
    looked_ms: Option<u64>,
}

/// Names of servers that left which are remembered.
const LEFT_MAX: usize = 1000;

impl Watch {
    /// Notes that a server was heard.
    pub(crate) fn note(&mut self, gid: u64, now_ms: u64) {
        self.heard.insert(gid, now_ms);
    }

    /// A server is no longer in the map.
    pub(crate) fn forget(&mut self, gid: u64, name: &str, now_ms: u64) {
        self.heard.remove(&gid);
        self.health.remove(&gid);
        if self.left.len() < LEFT_MAX {
            self.left.insert(name.to_owned(), now_ms);
        }
    }

    /// When a server that is no longer in the map left it.
    pub(crate) fn left_ms(&self, name: &str) -> Option<u64> {
        self.left.get(name).copied()
    }

    /// Whether any server complains about one of these kinds.
    pub(crate) fn complains(&self, kinds: &[u16]) -> bool {
        self.health.values().flat_map(|h| &h.metrics).any(|m| kinds.contains(&m.kind))
    }
}

/// What the plan goes by besides the maps; milliseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    /// `mds_beacon_grace`: silence that makes a server laggy.
    pub grace_ms: u64,
    /// `mds_beacon_interval`
    pub interval_ms: u64,
    /// `mds_beacon_mon_down_grace`: silence that is borne while beacons may go to a monitor that
    /// does not agree with this one.
    pub mon_down_grace_ms: u64,
    /// Whether a monitor is missing, or the quorum is younger than that grace.
    pub quorum_is_shaken: bool,
    /// Monotonic.
    pub now_ms: u64,
}

/// One round: `edit` begins with the newest map, which is `before`.
pub(crate) fn round(edit: &mut Edit, watch: &mut Watch, terms: &Terms, before: &FsMap) {
    want_standbys(edit);
    drop_silent(edit, watch, terms);
    prefer_affine(edit);
    for fscid in ids(&edit.map) {
        resize(edit, before, fscid);
    }
    for fscid in ids(&edit.map) {
        give_failed_ranks(edit, fscid);
        give_followers(edit, fscid);
    }
    watch.looked_ms = Some(terms.now_ms);
}

fn ids(map: &FsMap) -> Vec<i32> {
    map.filesystems.iter().map(|fs| fs.fscid).collect()
}

/// A file system that was once served with somebody to spare wants a standby from then on.
fn want_standbys(edit: &mut Edit) {
    let standbys = edit.map.standby_daemons.len();
    for fscid in ids(&edit.map) {
        let Some(fs) = edit.map.by_id(fscid) else { continue };
        let map = &fs.mds_map;
        let spare = standbys + map.count(MdsState::STANDBY_REPLAY) > 0;
        if map.standby_count_wanted == -1
            && map.count(MdsState::ACTIVE) > 0
            && spare
            && let Some(map) = edit.mds_map(fscid)
        {
            map.standby_count_wanted = 1;
        }
    }
}

/// Servers that were not heard for the grace are laggy, and replaced where that can be judged:
/// some other was heard meanwhile, so it is not this monitor that hears nobody.
fn drop_silent(edit: &mut Edit, watch: &mut Watch, terms: &Terms) {
    let now_ms = terms.now_ms;
    let slow = terms.grace_ms.saturating_sub(terms.interval_ms);
    if watch.looked_ms.is_some_and(|last| now_ms.saturating_sub(last) > slow) {
        // This monitor itself was late, or somebody else led: nobody is blamed for that.
        watch.heard.values_mut().for_each(|at| *at = now_ms);
    }
    for gid in edit.map.mds_roles.keys() {
        watch.heard.entry(*gid).or_insert(now_ms);
    }
    watch.heard.retain(|gid, _| edit.map.mds_roles.contains_key(gid));
    watch.health.retain(|gid, _| edit.map.mds_roles.contains_key(gid));
    let newest = watch.heard.values().max().copied().unwrap_or(0);
    let may_replace = now_ms.saturating_sub(newest) < terms.interval_ms.max(terms.grace_ms / 2);
    let silent: Vec<u64> = watch
        .heard
        .iter()
        .filter(|(_, at)| {
            let silence = now_ms.saturating_sub(**at);
            let borne = terms.quorum_is_shaken && silence < terms.mon_down_grace_ms;
            silence >= terms.grace_ms && !borne
        })
        .map(|(gid, _)| *gid)
        .collect();
    let now = edit.map.btime;
    for gid in &silent {
        let laggy = edit.map.server(*gid).is_some_and(MdsInfo::is_laggy);
        if !laggy && let Some(info) = edit.server(*gid) {
            info.laggy_since = now;
        }
    }
    if !may_replace {
        return;
    }
    for gid in silent {
        let Some(info) = edit.map.server(gid).cloned() else { continue };
        let by = match edit.map.of_server(gid) {
            Some(fs) if info.rank >= 0 => edit.map.replacement_for(fs, info.rank),
            _ => None,
        };
        let by = by.filter(|by| by.gid != gid).cloned();
        if replace(edit, &info, by.as_ref()) {
            let who = info.human_name();
            // The peer says it with this word before the name.
            edit.info(format!("MDS {who} is removed because it is dead or otherwise unavailable."));
        }
    }
}

/// Takes a server out, and has another take its rank, if it had one; `false` where that may not be.
fn replace(edit: &mut Edit, info: &MdsInfo, by: Option<&MdsInfo>) -> bool {
    if info.is_frozen() {
        return false;
    }
    if matches!(info.state, MdsState::STANDBY | MdsState::STANDBY_REPLAY) {
        edit.fail(info.gid);
        return true;
    }
    let Some(fs) = edit.map.of_server(info.gid) else { return false };
    let (fscid, joinable) = (fs.fscid, fs.mds_map.is_joinable());
    let Some(by) = by.filter(|_| joinable && info.rank >= 0) else { return false };
    let line = format!(
        "Replacing {} as rank {} with standby {}",
        info.human_name(),
        info.rank,
        by.human_name()
    );
    edit.lines.push((LogPriority::WARN, line));
    edit.fail(info.gid);
    edit.promote(by.gid, fscid, info.rank);
    true
}

/// Where a standby prefers a file system more than who serves or follows it, that one goes: one a
/// round and file system.
fn prefer_affine(edit: &mut Edit) {
    for fscid in ids(&edit.map) {
        let Some(fs) = edit.map.by_id(fscid) else { continue };
        if !fs.mds_map.is_joinable() || !fs.mds_map.is_resizeable() {
            continue;
        }
        let Some((info, by)) = worse(&edit.map, fs) else { continue };
        let who = info.human_name();
        if info.state == MdsState::STANDBY_REPLAY {
            edit.info(format!(
                "Dropping low affinity standby-replay {who} in favor of higher affinity standby."
            ));
            edit.fail(info.gid);
        } else {
            edit.info(format!(
                "Dropping low affinity active {who} in favor of higher affinity standby."
            ));
            replace(edit, &info, Some(&by));
        }
    }
}

fn worse(map: &FsMap, fs: &Filesystem) -> Option<(MdsInfo, MdsInfo)> {
    let settled = |i: &&MdsInfo| i.join_fscid == fs.fscid || i.is_frozen();
    for info in fs.mds_map.mds_info.values().filter(|i| !settled(i)) {
        let by = match info.state {
            MdsState::ACTIVE => map.replacement_for(fs, info.rank),
            _ => map.standby_for(fs),
        }?;
        let better = by.join_fscid == fs.fscid || (info.join_fscid != -1 && by.join_fscid == -1);
        if better {
            return Some((info.clone(), by.clone()));
        }
    }
    None
}

/// One rank more or less, towards `max_mds`.
fn resize(edit: &mut Edit, before: &FsMap, fscid: i32) {
    // A change of this round counts, and one that is not known to everybody yet too.
    let settled = |map: &FsMap| map.by_id(fscid).is_some_and(|fs| fs.mds_map.is_resizeable());
    if !settled(before) || !settled(&edit.map) {
        return;
    }
    let Some(fs) = edit.map.by_id(fscid) else { return };
    let map = &fs.mds_map;
    let there = i32::try_from(map.r#in.len()).unwrap_or(i32::MAX);
    if there < map.max_mds && map.is_joinable() {
        let Some(rank) = (0..).find(|rank| !map.r#in.contains(rank)) else { return };
        let Some(info) = edit.map.replacement_for(fs, rank) else { return };
        let line = format!(
            "{} assigned to filesystem {} as rank {rank} (now has {} ranks)",
            info.human_name(),
            map.fs_name,
            there + 1
        );
        let gid = info.gid;
        edit.info(line);
        edit.promote(gid, fscid, rank);
    } else if there > map.max_mds {
        let Some(last) = map.r#in.last().and_then(|rank| map.server_of(*rank)) else { return };
        if last.state == MdsState::ACTIVE {
            let (gid, line) = (last.gid, format!("stopping {}", last.human_name()));
            edit.info(line);
            if let Some(info) = edit.server(gid) {
                info.state = MdsState::STOPPING;
            }
        }
    }
}

fn give_failed_ranks(edit: &mut Edit, fscid: i32) {
    let Some(fs) = edit.map.by_id(fscid).filter(|fs| fs.mds_map.is_joinable()) else { return };
    for rank in fs.mds_map.failed.clone() {
        let Some(fs) = edit.map.by_id(fscid) else { return };
        let Some(info) = edit.map.replacement_for(fs, rank) else { return };
        let line = format!(
            "Standby {} assigned to filesystem {} as rank {rank}",
            info.human_name(),
            fs.mds_map.fs_name
        );
        let gid = info.gid;
        edit.info(line);
        edit.promote(gid, fscid, rank);
    }
}

/// Standbys that are left follow ranks, where that is wanted.
fn give_followers(edit: &mut Edit, fscid: i32) {
    loop {
        let Some(fs) = edit.map.by_id(fscid) else { return };
        let map = &fs.mds_map;
        let wanted = map.has_flag(mds_flag::ALLOW_STANDBY_REPLAY);
        if !wanted || !map.is_joinable() || !map.is_resizeable() {
            return;
        }
        let Some(rank) = map.r#in.iter().copied().find(|rank| map.is_followable(*rank)) else {
            return;
        };
        let Some(gid) = edit.map.standby_for(fs).map(|info| info.gid) else { return };
        edit.follow(gid, fscid, rank);
    }
}
