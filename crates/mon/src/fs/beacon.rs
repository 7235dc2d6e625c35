//! What a server's beacon changes.
//!
//! Source: the peer's `MDSMonitor::{preprocess_beacon, prepare_beacon}`.

use maps::fs::MdsHealth;
use maps::{FsMap, MdsInfo, MdsState};
use messages::LogPriority;
use messages::fs::MdsBeacon;
use types::AddrVec;

use super::{Edit, Watch};

/// What a server is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The beacon came; this epoch counts for its server.
    Ack(u32),
    /// The beacon came and changed the map: the newest epoch counts.
    Taken,
    /// It has no place in the map: it starts anew.
    NullMap,
    /// Nothing.
    Silence,
}

/// Complaints of one server that are kept.
pub(super) const COMPLAINTS_MAX: usize = 256;

/// Bytes of a complaint's text, and of its words and values together, that are kept.
pub(super) const COMPLAINT_BYTES_MAX: usize = 4096;

/// What is kept of a server's complaints: the monitors hold it until the next beacon.
fn bounded(health: &MdsHealth) -> MdsHealth {
    let mut kept = health.clone();
    kept.metrics.truncate(COMPLAINTS_MAX);
    for metric in &mut kept.metrics {
        metric.message.truncate(metric.message.floor_char_boundary(COMPLAINT_BYTES_MAX));
        let mut left = COMPLAINT_BYTES_MAX;
        metric.metadata.retain(|word, value| {
            let bytes = word.len() + value.len();
            let fits = bytes <= left;
            left = left.saturating_sub(bytes);
            fits
        });
    }
    kept
}

/// The epoch that a server should know: its file system's, or the one in which it last changed
/// while it waits.
pub(crate) fn effective_epoch(map: &FsMap, gid: u64) -> Option<u32> {
    match map.of_server(gid) {
        Some(fs) => Some(fs.mds_map.epoch.0),
        None => map.standby_epochs.get(&gid).map(|e| e.0),
    }
}

fn preferred(map: &FsMap, name: &str) -> i32 {
    map.by_name(name).map_or(-1, |fs| fs.fscid)
}

/// Takes a beacon in; what it changes is in `edit`, which begins with the newest map.
/// `unique`: a server that starts replaces one of its name.
pub(crate) fn take(
    edit: &mut Edit,
    watch: &mut Watch,
    msg: &MdsBeacon,
    addrs: &AddrVec,
    (unique, now_ms): (bool, u64),
) -> Answer {
    let gid = msg.gid;
    let Some(info) = edit.map.server(gid).cloned() else {
        if msg.state != MdsState::BOOT {
            return Answer::NullMap;
        }
        boot(edit, msg, addrs, unique);
        watch.note(gid, now_ms);
        watch.health.insert(gid, bounded(&msg.health));
        return Answer::Taken;
    };
    if msg.state == MdsState::DNE {
        edit.fail(gid);
        return Answer::Ack(effective_epoch(&edit.map, gid).unwrap_or(edit.map.epoch.0));
    }
    if info.state_seq > msg.seq {
        return Answer::Silence;
    }
    let Some(epoch) = effective_epoch(&edit.map, gid) else { return Answer::Silence };
    watch.note(gid, now_ms);
    let current = u64::from(epoch) == msg.paxos.version;
    if current && msg.state == MdsState::BOOT && !info.is_laggy() {
        return Answer::Silence; // it came before
    }
    if current && msg.state != MdsState::BOOT {
        complaints(edit, watch, msg, &info);
        if let Some(answer) = state(edit, msg, &info) {
            return answer;
        }
    }
    if info.is_laggy()
        && let Some(info) = edit.server(gid)
    {
        info.laggy_since = types::UTime::ZERO;
    }
    if edit.is_dirty() { Answer::Taken } else { Answer::Ack(epoch) }
}

/// A server starts: it waits for a rank.
fn boot(edit: &mut Edit, msg: &MdsBeacon, addrs: &AddrVec, unique: bool) {
    while unique && let Some(old) = edit.map.server_named(&msg.name) {
        let (gid, line) = (old.gid, format!("{} restarted", old.human_name()));
        edit.info(line);
        edit.fail(gid);
    }
    edit.insert(MdsInfo {
        gid: msg.gid,
        name: msg.name.clone(),
        addrs: addrs.clone(),
        features: msg.features,
        state: MdsState::STANDBY,
        state_seq: msg.seq,
        compat: msg.compat.clone(),
        join_fscid: preferred(&edit.map, &msg.fs),
        ..MdsInfo::default()
    });
}

/// Remembers what a server complains about; what it no longer does is told.
fn complaints(edit: &mut Edit, watch: &mut Watch, msg: &MdsBeacon, info: &MdsInfo) {
    let old = watch.health.insert(msg.gid, bounded(&msg.health)).unwrap_or_default();
    for metric in old.metrics {
        if !msg.health.metrics.iter().any(|new| new.kind == metric.kind) {
            let who = match info.rank {
                -1 => format!("mds.{}", info.gid),
                rank => format!("mds.{rank}"),
            };
            edit.info(format!("MDS health message cleared ({who}): {}", metric.message));
        }
    }
}

/// The state that a server is in or wants, and the file system it prefers.
fn state(edit: &mut Edit, msg: &MdsBeacon, info: &MdsInfo) -> Option<Answer> {
    let (gid, next) = (msg.gid, msg.state);
    if msg.compat != info.compat {
        let line = format!("{} compat changed unexpectedly", info.human_name());
        edit.lines.push((LogPriority::WARN, line));
        edit.fail(gid);
        return Some(Answer::NullMap);
    }
    let legal = match info.state {
        MdsState::STANDBY => next == info.state,
        // Whoever follows a rank may find its journal damaged.
        MdsState::STANDBY_REPLAY => next == info.state || next == MdsState::DAMAGED,
        from => from.may_become(next),
    };
    if !legal {
        let who = info.human_name();
        tracing::warn!("{who} may not go from {} to {next}", info.state);
        edit.fail(gid);
        return Some(Answer::NullMap);
    }
    let join = preferred(&edit.map, &msg.fs);
    if info.join_fscid != join
        && let Some(info) = edit.server(gid)
    {
        info.join_fscid = join;
    }
    if next == info.state {
        return None;
    }
    let fs = edit.map.of_server(gid)?;
    let (name, ranks) = (fs.mds_map.fs_name.clone(), fs.mds_map.r#in.len());
    match next {
        MdsState::STOPPED => {
            edit.info(format!(
                "{} finished stopping rank {} in filesystem {name} (now has {} ranks)",
                info.human_name(),
                info.rank,
                ranks.saturating_sub(1)
            ));
            edit.stop(gid);
            return Some(Answer::NullMap);
        }
        MdsState::DAMAGED => {
            edit.damaged(gid);
            return None;
        }
        _ => {}
    }
    if next == MdsState::ACTIVE {
        edit.info(format!(
            "{} is now active in filesystem {name} as rank {}",
            info.human_name(),
            info.rank
        ));
    }
    let info = edit.server(gid)?;
    (info.state, info.state_seq) = (next, msg.seq);
    None
}
