//! The few REST paths that monitoring reads (Netdata's collector of stock's dashboard).
//!
//! Source: [s] of stock's `controllers/{health,osd,pool,monitor}.py`; counters of single OSDs (`stats`) are
//! not the manager's, and left out.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::state::{Answers, State};

/// The answer at a path below `/api/`; `None`: there is none. `before` are the answers before these, for rates.
#[must_use]
pub fn answer(path: &str, state: &State, now: &Answers, before: Option<&Answers>) -> Option<Value> {
    match path {
        "health/get_cluster_fsid" => Some(json!(state.fsid)),
        "health/minimal" => Some(minimal(state, now)),
        "monitor" => Some(monitor(now)),
        "osd" => Some(osds(state, now)),
        "pool" => Some(pools(now, before)),
        _ => None,
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn minimal(state: &State, now: &Answers) -> Value {
    let (digest, rates, objects) = (&now.digest, &state.rates, &state.objects);
    let checks = state.checks.iter().map(|check| {
        let detail: Vec<Value> = check.detail.iter().map(|text| json!({"message": text})).collect();
        json!({
            "severity": check.severity, "summary": {"message": check.summary, "count": detail.len()},
            "detail": detail, "muted": check.is_muted, "type": check.code,
        })
    });
    // One count for each combination of states, as far as the digest tells: of each state alone.
    let states: Map<String, Value> = state
        .pg_states()
        .into_iter()
        .filter(|(name, _)| *name != "total")
        .map(|(name, n)| (name.to_owned(), json!(n)))
        .collect();
    let osds = list(&digest["osd"]["osds"]).iter();
    let osds: Vec<Value> =
        osds.map(|osd| json!({"in": osd["in"], "up": osd["up"], "state": osd["state"]})).collect();
    let up = osds.iter().filter(|osd| osd["up"] == 1).count().max(1);
    let copies: u64 = state.osds.values().map(|osd| osd.pgs).sum();
    let is_scrubbing = state.pg_states().keys().any(|name| *name == "scrubbing");
    let gateways = digest["services"]["services"]["rgw"]["daemons"].as_object();
    let gateways = gateways.map_or(0, |all| all.keys().filter(|name| *name != "summary").count());
    let mons: Vec<&Value> = list(&digest["quorum"]["monmap"]["mons"]).iter().collect();
    let pools: Vec<Value> =
        state.pools.values().map(|pool| json!({"pool": pool.id, "pool_name": pool.name})).collect();
    json!({
        "client_perf": {
            "read_bytes_sec": rates.read, "read_op_per_sec": rates.reads,
            "recovering_bytes_per_sec": rates.recovered,
            "write_bytes_sec": rates.written, "write_op_per_sec": rates.writes,
        },
        "df": {"stats": {
            "total_avail_bytes": digest["df"]["stats"]["total_avail_bytes"],
            "total_bytes": state.capacity.total,
            "total_used_raw_bytes": state.capacity.used,
        }},
        "health": {"status": state.health, "checks": checks.collect::<Vec<_>>(), "mutes": digest["health"]["mutes"]},
        "hosts": state.hosts().len(),
        "iscsi_daemons": {"up": 0, "down": 0},
        "mgr_map": {"active_name": state.members.mgr, "standbys": state.members.standbys},
        "mon_status": {"monmap": {"mons": mons}, "quorum": digest["quorum"]["quorum"]},
        "osd_map": {"osds": osds},
        "pg_info": {
            "object_stats": {
                "num_objects": objects.all, "num_object_copies": objects.copies,
                "num_objects_degraded": objects.degraded, "num_objects_misplaced": objects.misplaced,
                "num_objects_unfound": objects.unfound,
            },
            "pgs_per_osd": copies as f64 / up as f64,
            "statuses": states,
        },
        "pools": pools,
        "rgw": gateways,
        "scrub_status": if is_scrubbing { "Active" } else { "Inactive" },
    })
}

fn monitor(now: &Answers) -> Value {
    let quorum = &now.digest["quorum"];
    let within = list(&quorum["quorum"]);
    let (inside, outside): (Vec<&Value>, Vec<&Value>) =
        list(&quorum["monmap"]["mons"]).iter().partition(|mon| within.contains(&mon["rank"]));
    json!({
        "mon_status": {"monmap": quorum["monmap"], "quorum": quorum["quorum"]},
        "in_quorum": inside, "out_quorum": outside,
    })
}

fn osds(state: &State, now: &Answers) -> Value {
    let all = list(&now.digest["osd"]["osds"]).iter();
    let uuids: BTreeMap<i64, &Value> =
        all.filter_map(|osd| Some((osd["osd"].as_i64()?, &osd["uuid"]))).collect();
    let all = state.osds.values().map(|osd| {
        let is = if osd.is_up && osd.is_in { "working" } else { "unmanaged" };
        json!({
            "id": osd.id, "osd": osd.id, "uuid": uuids.get(&osd.id),
            "up": u8::from(osd.is_up), "in": u8::from(osd.is_in), "operational_status": is,
            "host": {"name": osd.host},
            "osd_stats": {
                "statfs": {"total": osd.size, "available": osd.size.saturating_sub(osd.used)},
                "perf_stat": {"commit_latency_ms": osd.commit_ms, "apply_latency_ms": osd.commit_ms},
            },
            "tree": {"device_class": osd.class, "type": "osd", "name": format!("osd.{}", osd.id)},
        })
    });
    Value::Array(all.collect())
}

fn pools(now: &Answers, before: Option<&Answers>) -> Value {
    const STATS: [&str; 8] =
        ["objects", "avail_raw", "bytes_used", "percent_used", "rd", "rd_bytes", "wr", "wr_bytes"];
    let of = |answers: &Answers, id: &Value, name: &str| {
        let pool = list(&answers.digest["df"]["pools"]).iter().find(|pool| pool["id"] == *id);
        pool.and_then(|pool| pool["stats"][name].as_f64())
    };
    let all = list(&now.digest["df"]["pools"]).iter().map(|pool| {
        let id = &pool["id"];
        let stats = STATS.map(|name| {
            let latest = of(now, id, name).unwrap_or(0.0);
            let earlier = before.and_then(|b| Some((b.at_s, of(b, id, name)?)));
            let took = earlier.map_or(0, |(at_s, _)| now.at_s.saturating_sub(at_s));
            let rate = match earlier {
                Some((_, value)) if took > 0 => (latest - value) / took as f64,
                _ => 0.0,
            };
            let points = earlier.into_iter().chain([(now.at_s, latest)]);
            let points: Vec<Value> = points.map(|(at_s, value)| json!([at_s, value])).collect();
            (name.to_owned(), json!({"latest": latest, "rate": rate, "rates": points}))
        });
        json!({"pool": id, "pool_name": pool["name"], "stats": Map::from_iter(stats)})
    });
    Value::Array(all.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::tests::answers;

    /// What the collector reads is there, and is what the commands say.
    #[test]
    fn what_is_read_is_there() {
        let now = answers();
        let state = State::of(&now);
        let get = |path: &str| answer(path, &state, &now, None).unwrap();
        assert_eq!(get("health/get_cluster_fsid"), now.digest["osd"]["fsid"]);
        let minimal = get("health/minimal");
        assert_eq!(minimal["df"]["stats"]["total_bytes"], now.digest["df"]["stats"]["total_bytes"]);
        assert_eq!(minimal["health"]["status"], "HEALTH_WARN");
        assert_eq!(minimal["osd_map"]["osds"][0]["state"], json!(["exists", "up"]));
        assert_eq!(minimal["pg_info"]["statuses"]["active"], 24);
        assert_eq!(minimal["pg_info"]["pgs_per_osd"], 16.0, "48 copies on three OSDs");
        assert_eq!(get("osd")[0]["tree"]["name"], "osd.0");
        assert_eq!(get("osd")[0]["uuid"], now.digest["osd"]["osds"][0]["uuid"]);
        assert_eq!(get("monitor")["in_quorum"].as_array().unwrap().len(), state.members.mons.len());
        assert_eq!(answer("host", &state, &now, None), None);
    }

    #[test]
    fn rates_are_of_two_answers() {
        let mut now = answers();
        let before = answers();
        now.at_s += 10;
        let wr = before.digest["df"]["pools"][0]["stats"]["wr"].as_u64().unwrap();
        now.digest["df"]["pools"][0]["stats"]["wr"] = json!(wr + 50);
        let state = State::of(&now);
        let pools = answer("pool", &state, &now, Some(&before)).unwrap();
        let own = &pools[0]["stats"]["wr"];
        assert_eq!((&own["latest"], &own["rate"]), (&json!((wr + 50) as f64), &json!(5.0)));
        assert_eq!(own["rates"].as_array().unwrap().len(), 2);
        assert_eq!(answer("pool", &state, &now, None).unwrap()[0]["stats"]["wr"]["rate"], 0.0);
    }
}
