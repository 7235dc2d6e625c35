//! Counters, under the peer's names, and the operations in hand and behind.

use std::collections::VecDeque;

use env::Now;
use serde_json::{Value, json};

use crate::image_io::ImageIo;
use crate::session::ClientOp;

/// Sum and number of durations.
#[derive(Clone, Copy, Debug, Default)]
pub struct Latency {
    /// How many.
    pub count: u64,
    /// Together, ns.
    pub sum_ns: u64,
}

impl Latency {
    fn add(&mut self, ns: u64) {
        self.count += 1;
        self.sum_ns += ns;
    }

    fn json(self) -> Value {
        let sum = self.sum_ns as f64 / 1e9;
        let avg = if self.count == 0 { 0.0 } else { sum / self.count as f64 };
        json!({ "avgcount": self.count, "sum": sum, "avgtime": avg })
    }
}

/// A request that was answered.
#[derive(Clone, Debug)]
pub struct Past {
    /// Which, and what it asked.
    pub what: Box<ClientOp>,
    /// From arrival to answer, ns.
    pub took_ns: u64,
}

/// The OSD's counters.
#[derive(Debug, Default)]
#[allow(missing_docs)] // the peer's names and meanings
pub struct Perf {
    pub op: u64,
    pub op_in_bytes: u64,
    pub op_out_bytes: u64,
    pub op_latency: Latency,
    pub op_r: u64,
    pub op_r_out_bytes: u64,
    pub op_r_latency: Latency,
    pub op_w: u64,
    pub op_w_in_bytes: u64,
    pub op_w_latency: Latency,
    pub op_rw: u64,
    pub op_rw_in_bytes: u64,
    pub op_rw_out_bytes: u64,
    pub op_rw_latency: Latency,
    pub subop: u64,
    pub subop_in_bytes: u64,
    pub subop_w: u64,
    pub map_messages: u64,
    pub map_message_epochs: u64,
    pub map_message_epoch_dups: u64,
    pub recovery_ops: u64,
    pub recovery_bytes: u64,
    pub heartbeat_to_peers: u64,
    pub numpg: u64,
    pub numpg_primary: u64,
    pub numpg_replica: u64,
    pub numpg_stray: u64,
    pub messages_dropped: u64,
    pub caps_denied: u64,
    /// Requests that took longest, bounded.
    pub slowest: VecDeque<Past>,
    /// How many of them are kept.
    pub history_size: usize,
    pub images: ImageIo,
}

impl Perf {
    pub(crate) fn on_answer(&mut self, op: &ClientOp, out_bytes: u64, now: Now) {
        let took = now.mono_ns.saturating_sub(op.came_ns);
        let in_bytes: u64 = op.msg.ops.iter().map(|o| o.data.len() as u64).sum();
        let writes = op.may_write();
        let reads = op.msg.ops.iter().any(messages::OsdOp::is_read);
        self.op += 1;
        self.op_in_bytes += in_bytes;
        self.op_out_bytes += out_bytes;
        self.op_latency.add(took);
        match (reads, writes) {
            (true, true) => {
                self.op_rw += 1;
                self.op_rw_in_bytes += in_bytes;
                self.op_rw_out_bytes += out_bytes;
                self.op_rw_latency.add(took);
            }
            (_, true) => {
                self.op_w += 1;
                self.op_w_in_bytes += in_bytes;
                self.op_w_latency.add(took);
            }
            _ => {
                self.op_r += 1;
                self.op_r_out_bytes += out_bytes;
                self.op_r_latency.add(took);
            }
        }
        self.images.on_answer(op, in_bytes, out_bytes, now);
        self.remember(op, took);
    }

    /// Keeps the slowest.
    fn remember(&mut self, op: &ClientOp, took_ns: u64) {
        let full = self.slowest.len() >= self.history_size;
        if self.history_size == 0
            || full && self.slowest.back().is_none_or(|p| p.took_ns >= took_ns)
        {
            return;
        }
        let at = self.slowest.partition_point(|p| p.took_ns >= took_ns);
        // Names are kept; payload is not, nor does it count as in hand any more.
        let mut what = Box::new(op.clone());
        what.share = crate::load::Share::none();
        (what.copy, what.old, what.prefetched) = (None, None, Vec::new());
        what.msg.oid = bytes::Bytes::copy_from_slice(&what.msg.oid);
        what.oid = what.oid.detached();
        for o in &mut what.msg.ops {
            o.data = bytes::Bytes::new();
        }
        what.msg.locator = types::ObjectLocator::default();
        self.slowest.insert(at, Past { what, took_ns });
        self.slowest.truncate(self.history_size);
    }

    /// As `perf dump` shows them.
    #[must_use]
    pub fn json(&self) -> Value {
        json!({ "osd": {
            "op": self.op,
            "op_in_bytes": self.op_in_bytes,
            "op_out_bytes": self.op_out_bytes,
            "op_latency": self.op_latency.json(),
            "op_r": self.op_r,
            "op_r_out_bytes": self.op_r_out_bytes,
            "op_r_latency": self.op_r_latency.json(),
            "op_w": self.op_w,
            "op_w_in_bytes": self.op_w_in_bytes,
            "op_w_latency": self.op_w_latency.json(),
            "op_rw": self.op_rw,
            "op_rw_in_bytes": self.op_rw_in_bytes,
            "op_rw_out_bytes": self.op_rw_out_bytes,
            "op_rw_latency": self.op_rw_latency.json(),
            "subop": self.subop,
            "subop_in_bytes": self.subop_in_bytes,
            "subop_w": self.subop_w,
            "map_messages": self.map_messages,
            "map_message_epochs": self.map_message_epochs,
            "map_message_epoch_dups": self.map_message_epoch_dups,
            "recovery_ops": self.recovery_ops,
            "recovery_bytes": self.recovery_bytes,
            "heartbeat_to_peers": self.heartbeat_to_peers,
            "numpg": self.numpg,
            "numpg_primary": self.numpg_primary,
            "numpg_replica": self.numpg_replica,
            "numpg_stray": self.numpg_stray,
            "messages_dropped": self.messages_dropped,
            "caps_denied": self.caps_denied,
        } })
    }

    /// Back to zero; gauges stay.
    pub fn reset(&mut self) {
        let gauges = (self.numpg, self.numpg_primary, self.numpg_replica, self.numpg_stray);
        *self = Self { history_size: self.history_size, ..Self::default() };
        (self.numpg, self.numpg_primary, self.numpg_replica, self.numpg_stray) = gauges;
    }
}
