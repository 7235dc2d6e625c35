//! What requests went through, those in hand and those that ended lately.
//!
//! Source: the peer's `src/common/TrackedOp.cc`, `MDRequestImpl::_dump`.

use std::collections::VecDeque;
use std::sync::Arc;

use messages::fs::{Args, ClientRequest, mds_op};
use serde_json::{Value, json};
use types::UTime;

use crate::capset::caps_text;
use crate::config::Options;

/// Requests that ended and are kept, whatever `mds_op_history_size` says.
const OP_HISTORY_MAX: usize = 1_000;
/// Events of one request that are kept.
const EVENTS_MAX: usize = 64;

/// When a request came, and what happened to it since.
#[derive(Clone, Debug)]
pub(crate) struct Trail {
    came: UTime,
    events: Vec<(UTime, &'static str)>,
}

impl Trail {
    pub fn begin(now: UTime) -> Self {
        Self { came: now, events: vec![(now, "initiated")] }
    }

    /// Notes an event; one that the last was too is noted once.
    pub fn note(&mut self, now: UTime, event: &'static str) {
        if self.events.len() < EVENTS_MAX && self.events.last().is_none_or(|(_, e)| *e != event) {
            self.events.push((now, event));
        }
    }

    /// When it came, in nanoseconds since 1970.
    pub const fn came_ns(&self) -> u64 {
        self.came.nanos()
    }

    /// Nanoseconds until `end`.
    pub const fn lasted(&self, end: UTime) -> u64 {
        end.nanos().saturating_sub(self.came.nanos())
    }
}

/// A request that has ended.
#[derive(Debug)]
struct Ended {
    client: i64,
    tid: u64,
    m: Arc<ClientRequest>,
    trail: Trail,
    result: i32,
    at: UTime,
}

/// Requests that ended lately: at most `mds_op_history_size`, for `mds_op_history_duration`.
#[derive(Debug, Default)]
pub(crate) struct History {
    ended: VecDeque<Ended>,
}

impl History {
    pub fn add(
        &mut self,
        (client, tid, m): (i64, u64, &Arc<ClientRequest>),
        trail: Trail,
        result: i32,
        (at, options): (UTime, &Options),
    ) {
        if options.op_history_size == 0 {
            return self.ended.clear();
        }
        self.forget(at, options);
        while self.ended.len() >= options.op_history_size.min(OP_HISTORY_MAX) {
            self.ended.pop_front();
        }
        self.ended.push_back(Ended { client, tid, m: Arc::clone(m), trail, result, at });
    }

    fn forget(&mut self, now: UTime, options: &Options) {
        let keep_ns = options.op_history_secs.saturating_mul(1_000_000_000);
        let old = |e: &Ended| now.nanos().saturating_sub(e.at.nanos()) > keep_ns;
        while self.ended.front().is_some_and(old) {
            self.ended.pop_front();
        }
    }

    /// As `dump_historic_ops` tells it; the slowest first on demand.
    pub fn dump(&mut self, now: UTime, options: &Options, by_duration: bool) -> Value {
        self.forget(now, options);
        let mut all: Vec<&Ended> = self.ended.iter().collect();
        if by_duration {
            all.sort_by_key(|e| std::cmp::Reverse(e.trail.lasted(e.at)));
        }
        let one =
            |e: &&Ended| dump((e.client, e.tid, &e.m), &e.trail, (now, Some((e.at, e.result))));
        json!({
            "size": options.op_history_size,
            "duration": options.op_history_secs,
            "ops": all.iter().map(one).collect::<Vec<_>>(),
        })
    }
}

/// A request with its events; `end` is when it ended, and with which result.
pub(crate) fn dump(
    (client, tid, m): (i64, u64, &ClientRequest),
    trail: &Trail,
    (now, end): (UTime, Option<(UTime, i32)>),
) -> Value {
    let seconds = |ns: u64| ns as f64 / 1e9;
    let event = |(at, event): &(UTime, &str)| json!({"time": at.to_string(), "event": event});
    let point = trail.events.last().map_or("", |(_, event)| event);
    json!({
        "description": describe(client, tid, m),
        "initiated_at": trail.came.to_string(),
        "age": seconds(trail.lasted(now)),
        "duration": seconds(trail.lasted(end.map_or(now, |(at, _)| at))),
        "continuous": false,
        "type_data": {
            "result": end.map_or(0, |(_, result)| result),
            "flag_point": point,
            "reqid": {"entity": {"type": "client", "num": client}, "tid": tid},
            "op_type": "client_request",
            "events": trail.events.iter().map(event).collect::<Vec<_>>(),
            "locks": [],
        },
    })
}

/// `client_request(client.6115:3 mkdir #0x10000000000/e 2026-11-29T20:51:37.901635+0000 caller_uid=0,
/// caller_gid=0{})`
fn describe(client: i64, tid: u64, m: &ClientRequest) -> String {
    let path = |p: &messages::fs::FilePath| {
        let text = String::from_utf8_lossy(&p.path);
        match (p.ino.0, text.is_empty()) {
            (0, _) => text.into_owned(),
            (ino, true) => format!("#{ino:#x}"),
            (ino, false) => format!("#{ino:#x}/{text}"),
        }
    };
    let mut words = vec![format!("client.{client}:{tid}"), mds_op::name(m.op).to_owned()];
    if let Ok(Args::Mask(mask)) = Args::read(m.op, &m.args) {
        words.push(caps_text(mask));
    }
    words.push(path(&m.path));
    if !m.path2.path.is_empty() || m.path2.ino.0 != 0 {
        words.push(path(&m.path2));
    }
    if !m.stamp.is_zero() {
        words.push(m.stamp.to_string());
    }
    if m.num_retry > 0 {
        words.push(format!("RETRY={}", m.num_retry));
    }
    let groups: String = m.caller.gids.iter().map(|g| format!("{g},")).collect();
    let (uid, gid) = (m.caller.uid, m.caller.gid);
    format!("client_request({} caller_uid={uid}, caller_gid={gid}{{{groups}}})", words.join(" "))
}
