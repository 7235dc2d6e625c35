//! What is on the wire, for people.

use denc::Denc;
use messages::{
    Envelope, MOsdOp, MOsdOpReply, Message, OsdMapMsg, OsdPeer, OsdPing, PeerMsg, PgReadyToMerge,
    PgStats, PgTemp, RepOp, RepOpReply,
};

fn peer(m: &OsdPeer) -> String {
    let body = match &m.body {
        PeerMsg::Info { known, info } => format!(
            "Info known {known} lu {} tail {} les {} hles {} lec {} missing {} since {} past {:?}",
            info.last_update,
            info.log_tail,
            info.last_epoch_started,
            info.history_les,
            info.last_epoch_clean,
            info.missing,
            info.same_interval_since,
            info.past
                .iter()
                .map(|i| (i.first.0, i.last.0, i.acting.iter().map(|o| o.0).collect::<Vec<_>>()))
                .collect::<Vec<_>>()
        ),
        PeerMsg::Log { since, entries, missing, .. } => {
            format!("Log since {since} +{} missing {}", entries.len(), missing.len())
        }
        PeerMsg::Activate { round, since, reset, entries, missing, surplus, .. } => format!(
            "Activate round {round} since {since} reset {reset} +{} missing {} surplus {}",
            entries.len(),
            missing.len(),
            surplus.len()
        ),
        PeerMsg::Objects { objects, .. } => format!("Objects {}", objects.len()),
        PeerMsg::Push(p) => format!("Push {} {} absent {}", p.oid, p.version, p.absent),
        other => {
            let mut text = format!("{other:?}");
            text.truncate(160);
            text
        }
    };
    format!("{} e{} i{} {body}", m.pg, m.epoch, m.interval)
}

/// One line.
#[must_use]
pub fn envelope(e: &Envelope) -> String {
    match e.kind {
        OsdPeer::KIND => OsdPeer::decode(e).map(|m| peer(&m)),
        OsdPing::KIND => OsdPing::decode(e).map(|m| format!("ping op {} e{}", m.op, m.epoch)),
        RepOp::KIND => RepOp::decode(e).map(|m| {
            let entry = <messages::PgLogEntry as types::Denc>::from_bytes(&m.entry);
            let what = entry.map(|e| format!("{} {} {:?}", e.version, e.oid, e.kind));
            format!("rep_op {} i{} {what:?}", m.pg, m.interval)
        }),
        RepOpReply::KIND => RepOpReply::decode(e)
            .map(|m| format!("rep_reply {} i{} {}", m.pg, m.interval, m.committed)),
        MOsdOp::KIND => MOsdOp::decode(e).map(|m| {
            let ops: Vec<u16> = m.ops.iter().map(|o| o.code).collect();
            let name = String::from_utf8_lossy(&m.oid).into_owned();
            format!(
                "osd_op tid {} {name} {} e{} {ops:x?} try {}",
                e.tid, m.pg.pg, m.epoch, m.retry_attempt
            )
        }),
        MOsdOpReply::KIND => MOsdOpReply::decode(e).map(|m| {
            format!(
                "osd_op_reply tid {} r {} v {} try {}",
                e.tid, m.result, m.replay_version, m.retry_attempt
            )
        }),
        OsdMapMsg::KIND => OsdMapMsg::decode(e)
            .map(|m| format!("osd_map {:?}..{:?}", m.first().map(|e| e.0), m.last().map(|e| e.0))),
        PgTemp::KIND => {
            PgTemp::decode(e).map(|m| format!("pg_temp from {} e{} {:?}", m.osd, m.epoch, m.pgs))
        }
        PgStats::KIND => PgStats::decode(e).map(|m| {
            let stats = m.pgs.iter().filter_map(|(pg, raw)| {
                let stat = maps::PgStat::from_bytes(raw).ok()?;
                let trimmed = &stat.purged_snaps.0;
                Some(format!("{pg} e{} {} trimmed {trimmed:?}", stat.reported_epoch, stat.state))
            });
            format!("pg_stats from {} {:?}", m.osd, stats.collect::<Vec<_>>())
        }),
        PgReadyToMerge::KIND => PgReadyToMerge::decode(e).map(|m| format!("{m:?}")),
        kind => return format!("kind {kind:#x}, {} bytes", e.front.len()),
    }
    .unwrap_or_else(|e| format!("broken: {e}"))
}
