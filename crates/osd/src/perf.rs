//! Counters, under the peer's names, and the operations in hand and behind.

use std::collections::VecDeque;

use env::Now;
use metrics::{Axis, Histogram};
use serde_json::{Value, json};

use crate::image_io::ImageIo;
use crate::session::ClientOp;

/// A request that was answered.
#[derive(Clone, Debug)]
pub struct Past {
    /// Which, and what it asked.
    pub what: Box<ClientOp>,
    /// From arrival to answer, ns.
    pub took_ns: u64,
}

metrics::group! {
    /// What an OSD counts.
    pub struct Counters "osd" {
        op_wip Level 5 "" "Requests of clients in hand"
        op Count 10 "ops" "Requests of clients"
        op_in_bytes Bytes 8 "wr" "Bytes that requests brought"
        op_out_bytes Bytes 8 "rd" "Bytes that answers took"
        op_latency Time 9 "l" "Time of requests, from arrival to answer"
        op_r Count 5 "" "Reads"
        op_r_out_bytes Bytes 5 "" "Bytes that reads took"
        op_r_latency Time 5 "" "Time of reads"
        op_w Count 5 "" "Writes"
        op_w_in_bytes Count 5 "" "Bytes that writes brought"
        op_w_latency Time 5 "" "Time of writes"
        op_rw Count 5 "" "Requests that read and write"
        op_rw_in_bytes Bytes 5 "" "Bytes that these brought"
        op_rw_out_bytes Bytes 5 "" "Bytes that these took"
        op_rw_latency Time 5 "" "Time of these"
        subop Count 0 "" "Changes ordered by leading OSDs"
        subop_in_bytes Bytes 0 "" "Bytes of these"
        subop_w Count 0 "" "Writes ordered by leading OSDs"
        subop_w_in_bytes Bytes 0 "" "Bytes of these writes"
        recovery_ops Count 8 "rop" "Objects recovered here or by this OSD"
        recovery_bytes Count 8 "rbt" "Bytes of these"
        numpg Level 5 "pgs" "PGs"
        numpg_primary Level 0 "" "PGs that this OSD leads"
        numpg_replica Level 0 "" "PGs of which it holds a copy"
        numpg_stray Level 0 "" "PGs that it holds and should not"
        heartbeat_to_peers Level 0 "" "Peers that it pings"
        map_messages Count 0 "" "Messages with maps"
        map_message_epochs Count 0 "" "Maps in these"
        map_message_epoch_dups Count 0 "" "Maps that were known"
        stat_bytes LevelBytes 5 "size" "Size of the device"
        stat_bytes_used LevelBytes 5 "used" "Used of it"
        stat_bytes_avail LevelBytes 0 "" "Free of it"
    }
}

metrics::group! {
    /// What no OSD of upstream counts.
    pub struct Own "argonaut" {
        messages_dropped Count 5 "" "Messages that could not be read or were not allowed"
        caps_denied Count 5 "" "Requests beyond their sender's caps"
        copies_repaired Count 5 "" "Copies here that could not be read and were made anew"
    }
}

/// An OSD's counters, and what stands beside them.
#[derive(Debug)]
pub struct Perf {
    /// Under upstream's names.
    pub osd: Counters,
    /// Under our own.
    pub own: Own,
    /// Requests that took longest, bounded.
    pub slowest: VecDeque<Past>,
    /// How many of them are kept.
    pub history_size: usize,
    /// What images do.
    pub images: ImageIo,
    reads: Histogram,
    writes: Histogram,
    both_in: Histogram,
    both_out: Histogram,
}

impl Perf {
    /// Nothing counted; `history_size` of the slowest requests are kept.
    pub(crate) fn new(history_size: usize) -> Self {
        const TIME: Axis = Axis { name: "Latency (usec)", min: 0, quantum: 100_000, buckets: 32 };
        const SIZE: Axis = Axis { name: "Request size (bytes)", min: 0, quantum: 512, buckets: 32 };
        let empty = || Histogram::new([TIME, SIZE]);
        Self {
            osd: Counters::default(),
            own: Own::default(),
            slowest: VecDeque::new(),
            history_size,
            images: ImageIo::default(),
            reads: empty(),
            writes: empty(),
            both_in: empty(),
            both_out: empty(),
        }
    }

    pub(crate) fn on_answer(&mut self, op: &ClientOp, out_bytes: u64, now: Now) {
        let took = now.mono_ns.saturating_sub(op.came_ns);
        let in_bytes: u64 = op.msg.ops.iter().map(|o| o.data.len() as u64).sum();
        let writes = op.may_write();
        let reads = op.msg.ops.iter().any(messages::OsdOp::is_read);
        let c = &mut self.osd;
        c.op += 1;
        c.op_in_bytes += in_bytes;
        c.op_out_bytes += out_bytes;
        c.op_latency.add(took);
        match (reads, writes) {
            (true, true) => {
                c.op_rw += 1;
                c.op_rw_in_bytes += in_bytes;
                c.op_rw_out_bytes += out_bytes;
                c.op_rw_latency.add(took);
                self.both_in.add(took, in_bytes);
                self.both_out.add(took, out_bytes);
            }
            (_, true) => {
                c.op_w += 1;
                c.op_w_in_bytes += in_bytes;
                c.op_w_latency.add(took);
                self.writes.add(took, in_bytes);
            }
            _ => {
                c.op_r += 1;
                c.op_r_out_bytes += out_bytes;
                c.op_r_latency.add(took);
                self.reads.add(took, out_bytes);
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

    /// Every counter.
    #[must_use]
    pub fn groups(&self) -> Vec<metrics::Group> {
        vec![self.osd.group(), self.own.group()]
    }

    /// As `perf histogram dump` tells them: by time in ns and bytes.
    #[must_use]
    pub fn histograms(&self) -> Value {
        json!({ "osd": {
            "op_r_latency_out_bytes_histogram": self.reads.json(),
            "op_w_latency_in_bytes_histogram": self.writes.json(),
            "op_rw_latency_in_bytes_histogram": self.both_in.json(),
            "op_rw_latency_out_bytes_histogram": self.both_out.json(),
        } })
    }

    /// Back to zero; gauges stay.
    pub fn reset(&mut self) {
        self.osd.reset();
        self.own.reset();
        self.slowest.clear();
        self.images = ImageIo::default();
        for histogram in [&mut self.reads, &mut self.writes, &mut self.both_in, &mut self.both_out]
        {
            histogram.reset();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_upstreams() {
        let schema = metrics::labelled(&Perf::new(20).groups(), true);
        let recorded = include_str!("../../../vectors/metrics/counters-20.2.4.tsv");
        assert_eq!(metrics::differences("osd", &schema, recorded), Vec::<String>::new());
    }
}
