//! Requests in hand and those that ended lately.
//!
//! Source: the peer's `OpTracker::dump_ops_in_flight`, `dump_historic_ops`.

use serde_json::{Value, json};
use types::Errno;

use super::{Done, Said, fail};
use crate::rank::Rank;
use crate::request::Request;
use crate::track;

impl Rank {
    /// Requests that have been in hand for so many seconds or longer.
    fn in_hand(&self, secs: f64) -> Vec<Value> {
        let now = self.world.time();
        let old = |r: &&Request| r.trail.lasted(now) as f64 >= secs * 1e9;
        let show = |r: &Request| track::dump((r.client, r.tid, &r.m), &r.trail, (now, None));
        self.requests.all.values().filter(old).map(show).collect()
    }

    pub(super) fn ops_in_flight(&self) -> Said {
        let ops = self.in_hand(0.0);
        let num_ops = ops.len();
        Said::Value(json!({"ops": ops, "num_ops": num_ops}))
    }

    pub(super) fn blocked_ops(&self) -> Said {
        let secs = self.world.config.options.op_complaint_secs;
        let ops = self.in_hand(secs);
        let num = ops.len();
        Said::Value(json!({"ops": ops, "complaint_time": secs, "num_blocked_ops": num}))
    }

    pub(super) fn blocked_count(&self) -> Said {
        let (slow, secs) = self.slow_requests();
        Said::Value(json!({"complaint_time": secs, "num_blocked_ops": slow}))
    }

    pub(super) fn historic(&mut self, by_duration: bool) -> Said {
        let now = self.world.time();
        Said::Value(self.requests.history.dump(now, &self.world.config.options, by_duration))
    }

    /// One request in hand, by `client.4120:12`.
    pub(super) fn op_get(&self, command: &Value) -> Done {
        let id = command["id"].as_str().unwrap_or_default();
        let named = |r: &&Request| format!("client.{}:{}", r.client, r.tid) == id;
        let now = self.world.time();
        match self.requests.all.values().find(named) {
            Some(r) => Ok(Said::Value(track::dump((r.client, r.tid, &r.m), &r.trail, (now, None)))),
            None => fail(Errno::NOENT, "request does not exist"),
        }
    }

    /// Ends one request in hand, by `client.4120:12`: its client hears EINTR.
    pub(super) fn op_kill(&mut self, command: &Value) -> Done {
        let id = command["id"].as_str().unwrap_or_default();
        let numbers = id.strip_prefix("client.").and_then(|rest| rest.split_once(':'));
        let numbers = numbers.and_then(|(c, t)| Some((c.parse().ok()?, t.parse().ok()?)));
        let is_killed = numbers.is_some_and(|(client, tid)| self.kill_request(client, tid));
        if is_killed {
            return Ok(Said::Words(String::new()));
        }
        fail(Errno::NOENT, "request does not exist")
    }
}
