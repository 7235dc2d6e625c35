//! `pg query` and `list_unfound`: all that an OSD knows of one PG, in the peer's form.
//!
//! What the peer shows and this role does not keep (intervals of splits and of pools' ends,
//! positions within a backfill, which goes object by object here) is left out, not made up.
//!
//! Source: the peer's `PrimaryLogPG::do_command`, `PeeringState`'s `QueryState` reactions,
//! `pg_info_t::dump`, `pg_history_t::dump`, `pg_stat_t::dump`.

use env::Now;
use maps::{OsdMap, PgStat};
use messages::PgInfo;
use serde_json::{Map, Value, json};
use types::{Epoch, HObject, OsdId, UTime};

use crate::pg::{Pg, State, Target};

fn osds(all: &[OsdId]) -> Value {
    Value::Array(all.iter().map(|o| json!(o.0)).collect())
}

fn stamp(ns: u64) -> String {
    UTime::from_nanos(ns).to_string()
}

/// First epoch of the interval that an epoch lies in, where it is known.
fn interval_of(i: &PgInfo, epoch: Epoch) -> Option<u32> {
    if epoch >= i.same_interval_since {
        return Some(i.same_interval_since.0);
    }
    i.past.iter().find(|p| p.first <= epoch && epoch <= p.last).map(|p| p.first.0)
}

fn history(i: &PgInfo) -> Value {
    let mut h = Map::new();
    let mut put = |name: &str, v: Value| drop(h.insert(name.to_owned(), v));
    put("epoch_created", json!(i.created.0));
    put("last_epoch_started", json!(i.history_les.0));
    if let Some(first) = interval_of(i, i.history_les) {
        put("last_interval_started", json!(first));
    }
    put("last_epoch_clean", json!(i.last_epoch_clean.0));
    if let Some(first) = interval_of(i, i.last_epoch_clean) {
        put("last_interval_clean", json!(first));
    }
    put("same_up_since", json!(i.same_up_since.0));
    put("same_interval_since", json!(i.same_interval_since.0));
    put("same_primary_since", json!(i.same_primary_since.0));
    put("last_scrub", json!(i.scrub.last.to_string()));
    put("last_scrub_stamp", json!(stamp(i.scrub.last_ns)));
    put("last_deep_scrub", json!(i.scrub.last_deep.to_string()));
    put("last_deep_scrub_stamp", json!(stamp(i.scrub.last_deep_ns)));
    put("last_clean_scrub_stamp", json!(stamp(i.scrub.last_clean_ns)));
    Value::Object(h)
}

/// The peer's names of the counters.
fn sum(s: &maps::ObjectStatSum) -> Value {
    let name = |field: &str| match field {
        "num_rd" => "num_read".to_owned(),
        "num_rd_kb" => "num_read_kb".to_owned(),
        "num_wr" => "num_write".to_owned(),
        "num_wr_kb" => "num_write_kb".to_owned(),
        other => other.to_owned(),
    };
    Value::Object(s.fields().into_iter().map(|(k, v)| (name(k), json!(v))).collect())
}

fn stats(s: &PgStat) -> Value {
    let mut t = Map::new();
    let mut put = |name: &str, v: Value| drop(t.insert(name.to_owned(), v));
    put("version", json!(s.version.to_string()));
    put("reported_seq", json!(s.reported_seq));
    put("reported_epoch", json!(s.reported_epoch.0));
    put("state", json!(s.state.to_string()));
    for (name, at) in s.stamps() {
        put(name, json!(at.to_string()));
    }
    put("mapping_epoch", json!(s.mapping_epoch.0));
    put("log_start", json!(s.log_start.to_string()));
    put("ondisk_log_start", json!(s.ondisk_log_start.to_string()));
    put("created", json!(s.created.0));
    put("last_epoch_clean", json!(s.last_epoch_clean.0));
    put("parent", json!(s.parent.to_string()));
    put("parent_split_bits", json!(s.parent_split_bits));
    put("last_scrub", json!(s.last_scrub.to_string()));
    put("last_scrub_stamp", json!(s.last_scrub_stamp.to_string()));
    put("last_deep_scrub", json!(s.last_deep_scrub.to_string()));
    put("last_deep_scrub_stamp", json!(s.last_deep_scrub_stamp.to_string()));
    put("last_clean_scrub_stamp", json!(s.last_clean_scrub_stamp.to_string()));
    put("objects_scrubbed", json!(s.objects_scrubbed));
    put("log_size", json!(s.log_size));
    put("log_dups_size", json!(s.log_dups_size));
    put("ondisk_log_size", json!(s.ondisk_log_size));
    put("snaptrimq_len", json!(s.snaptrimq_len));
    put("last_scrub_duration", json!(s.last_scrub_duration));
    put("scrub_duration", json!(s.scrub_duration));
    put("objects_trimmed", json!(s.objects_trimmed));
    put("stat_sum", sum(&s.stats.sum));
    put("up", osds(&s.up));
    put("acting", osds(&s.acting));
    let avail = s.avail_no_missing.iter().map(|shard| json!(shard.osd.to_string()));
    put("avail_no_missing", avail.collect());
    put("blocked_by", osds(&s.blocked_by));
    put("up_primary", json!(s.up_primary.0));
    put("acting_primary", json!(s.acting_primary.0));
    put("purged_snaps", purged(s));
    Value::Object(t)
}

fn purged(s: &PgStat) -> Value {
    let one = |(start, len)| json!({"start": format!("{start:x}"), "length": format!("{len:x}")});
    s.purged_snaps.iter().map(one).collect()
}

/// Whether a copy is taken to have what its log says, but for what it is known to lack.
fn info(id: &str, i: &PgInfo, lacks: usize, compared: bool) -> Map<String, Value> {
    let complete = if lacks == 0 { i.last_update } else { i.log_tail };
    let v = json!({
        "pgid": id,
        "last_update": i.last_update.to_string(),
        "last_complete": complete.to_string(),
        "log_tail": i.log_tail.to_string(),
        "last_backfill": if compared { "MAX" } else { "MIN" },
        "history": history(i),
        "empty": i64::from(i.last_update.version == 0),
        "dne": i64::from(i.created.0 == 0),
        "incomplete": i64::from(!compared),
        "last_epoch_started": i.last_epoch_started.0,
    });
    if let Value::Object(map) = v { map } else { Map::new() }
}

/// All there is to know of a PG.
pub(crate) fn query(pg: &mut Pg, me: OsdId, map: &OsdMap, now: Now) -> Value {
    let epoch = map.epoch;
    pg.refresh_info();
    let stat = pg.stat(me, epoch, now);
    let id = pg.id.to_string();
    let i = &pg.info;
    let mut own = info(&id, i, pg.missing.len(), true);
    own.insert("last_user_version".to_owned(), json!(pg.last_user_version()));
    own.insert("purged_snaps".to_owned(), purged(&stat));
    own.insert("stats".to_owned(), stats(&stat));
    let peers: Vec<Value> = pg
        .peers
        .iter()
        .map(|(o, p)| {
            let mut v = Map::new();
            v.insert("peer".to_owned(), json!(o.to_string()));
            let compared =
                matches!(p.target, Target::No | Target::Activating(_) | Target::Following);
            if let Some(i) = &p.info {
                v.extend(info(&id, i, p.missing.len(), compared));
            }
            v.insert("activated".to_owned(), json!(p.activated));
            v.insert("missing".to_owned(), json!(p.missing.len()));
            v.insert("last_complete_ondisk".to_owned(), json!(p.committed.to_string()));
            Value::Object(v)
        })
        .collect();
    let following = pg.followers().map(|o| o.to_string());
    let acting: Vec<String> = pg.acting_copies().map(|o| o.to_string()).chain(following).collect();
    json!({
        "snap_trimq": "[]",
        "snap_trimq_len": stat.snaptrimq_len,
        "state": stat.state.to_string(),
        "epoch": epoch.0,
        "up": osds(&i.up),
        "acting": osds(&i.acting),
        "acting_recovery_backfill": acting,
        "info": own,
        "peer_info": peers,
        "recovery_state": recovery_state(pg, map),
        "agent_state": {},
    })
}

/// The states it is in, from the inmost, with what each has to tell.
fn recovery_state(pg: &Pg, map: &OsdMap) -> Value {
    let i = &pg.info;
    let since =
        |active: bool| stamp(if active { pg.stamps.became_active } else { pg.stamps.change });
    let peering = |name: &str| format!("Started/Primary/Peering/{name}");
    let name = match pg.state {
        State::Inactive => "Started/Stray".to_owned(),
        State::GetInfo => peering("GetInfo"),
        State::GetLog => peering("GetLog"),
        State::Scan => peering("GetMissing"),
        State::WaitActing => "Started/Primary/WaitActingChange".to_owned(),
        State::WaitUpThru => peering("WaitUpThru"),
        State::Activating => "Started/Primary/Active/Activating".to_owned(),
        State::Active if pg.leads => "Started/Primary/Active".to_owned(),
        State::Active => "Started/ReplicaActive".to_owned(),
    };
    let is_active = matches!(pg.state, State::Active | State::Activating) && pg.leads;
    let mut inmost = Map::new();
    inmost.insert("name".to_owned(), json!(name));
    inmost.insert("enter_time".to_owned(), json!(since(is_active)));
    match pg.state {
        State::GetInfo | State::Scan => {
            let asked = pg.peers.iter().filter(|(_, p)| !p.answered);
            let asked: Vec<Value> = asked.map(|(o, _)| json!({"osd": o.to_string()})).collect();
            inmost.insert("requested_info_from".to_owned(), Value::Array(asked));
        }
        _ if is_active => {
            inmost.insert("might_have_unfound".to_owned(), might_have_unfound(pg, map));
            inmost.insert("recovery_progress".to_owned(), progress(pg));
        }
        _ => {}
    }
    let mut all = vec![Value::Object(inmost)];
    if name.contains("/Peering/") || pg.state == State::WaitActing {
        all.push(peering_state(pg, map, &since(false)));
    }
    if pg.state != State::Inactive || i.primary != OsdId::NONE {
        all.push(json!({"name": "Started", "enter_time": since(is_active)}));
    }
    Value::Array(all)
}

fn peering_state(pg: &Pg, map: &OsdMap, since: &str) -> Value {
    let i = &pg.info;
    let past: Vec<Value> = i
        .past
        .iter()
        .map(|p| {
            json!({ "first": p.first.0, "last": p.last.0, "up": osds(&p.up),
                    "acting": osds(&p.acting), "primary": p.primary.0,
                    "maybe_went_rw": p.maybe_went_rw })
        })
        .collect();
    let probing: Vec<String> = pg.peers.keys().map(ToString::to_string).collect();
    let mut v = json!({
        "name": "Started/Primary/Peering",
        "enter_time": since,
        "past_intervals": past,
        "probing_osds": probing,
        "down_osds_we_would_probe": osds(&pg.blocked_by),
        "peering_blocked_by": pg.blocked_by.iter().map(|osd| blocker(*osd, map)).collect::<Vec<_>>(),
    });
    if !pg.blocked_by.is_empty() {
        v["blocked"] = json!("peering is blocked due to down osds");
    }
    v
}

/// An OSD that peering waits for.
fn blocker(osd: OsdId, map: &OsdMap) -> Value {
    let lost_at = map.info(osd).lost_at.0;
    let comment = "starting or marking this osd lost may let us proceed";
    json!({"osd": osd.0, "current_lost_at": lost_at, "comment": comment})
}

fn progress(pg: &Pg) -> Value {
    let targets = pg.peers.iter().filter(|(_, p)| p.target != Target::No);
    let names = |waits: bool| -> Vec<String> {
        let is = |t: &Target| matches!(t, Target::Wait | Target::Slot) || !waits;
        targets.clone().filter(|(_, p)| is(&p.target)).map(|(o, _)| o.to_string()).collect()
    };
    let peers: Vec<Value> = targets
        .clone()
        .map(|(o, p)| {
            let state = format!("{:?}", p.target).to_lowercase();
            json!({"osd": o.to_string(), "state": state, "missing": p.missing.len()})
        })
        .collect();
    json!({
        "backfill_targets": names(false),
        "waiting_on_backfill": names(true),
        "peer_backfill_info": peers,
        "recovering": pg.recovery.objects().into_iter().map(|o| o.to_string()).collect::<Vec<_>>(),
        "missing": pg.missing.len(),
    })
}

/// Unfound objects listed at once.
const UNFOUND_LISTED: usize = 1_024;

fn might_have_unfound(pg: &Pg, map: &OsdMap) -> Value {
    let all = pg.might_have_unfound(map).into_iter();
    Value::Array(all.map(|(o, why)| json!({ "osd": o.to_string(), "status": why })).collect())
}

/// What nobody up has.
pub(crate) fn list_unfound(pg: &Pg, map: &OsdMap) -> Value {
    let one = |(o, v): (&HObject, &types::EVersion)| {
        json!({
            "oid": { "oid": String::from_utf8_lossy(&o.name),
                     "key": String::from_utf8_lossy(&o.key), "snapid": o.snap.0 as i64,
                     "hash": o.hash, "max": 0, "pool": o.pool.0,
                     "namespace": String::from_utf8_lossy(&o.nspace) },
            "need": v.to_string(),
            "have": "0'0",
            "flags": "none",
            "locations": [],
        })
    };
    let unfound = pg.unfound();
    let objects: Vec<Value> = pg.unfound_objects().take(UNFOUND_LISTED).map(one).collect();
    json!({ "num_missing": pg.missing.len(), "num_unfound": unfound, "objects": objects,
            "state": pg.reported_state().to_string(), "available_might_have_unfound": true,
            "might_have_unfound": might_have_unfound(pg, map),
            "more": unfound > UNFOUND_LISTED })
}
