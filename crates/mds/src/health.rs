//! What a server says of its own state in beacons.
//!
//! Source: the peer's `Beacon::notify_health`, `MDSHealthMetric`.

use maps::fs::{MdsHealth, MdsHealthMetric};

use crate::rank::Rank;

/// Kinds of what may be wrong; the peer's `mds_metric_t`.
mod kind {
    pub const DAMAGE: u16 = 8;
    pub const READ_ONLY: u16 = 9;
    pub const SLOW_REQUEST: u16 = 10;
    pub const CACHE_OVERSIZED: u16 = 11;
}

/// The peer's `health_status_t`.
const ERROR: u8 = 0;
const WARNING: u8 = 1;

impl Rank {
    pub fn health(&self) -> MdsHealth {
        let mut health = MdsHealth::default();
        let mut say = |kind, severity, message: String| {
            health.metrics.push(MdsHealthMetric {
                kind,
                severity,
                message,
                ..MdsHealthMetric::default()
            });
        };
        let (slow, secs) = self.slow_requests();
        if slow > 0 {
            say(
                kind::SLOW_REQUEST,
                WARNING,
                format!("{slow} slow requests are blocked > {secs:.0} secs"),
            );
        }
        if !self.tree.damaged.is_empty() {
            say(kind::DAMAGE, ERROR, "Metadata damage detected".to_owned());
        }
        if self.read_only.is_some() {
            say(kind::READ_ONLY, WARNING, "MDS in read-only mode".to_owned());
        }
        if self.is_oversized() {
            say(kind::CACHE_OVERSIZED, WARNING, "MDS cache is too large".to_owned());
        }
        health
    }

    /// Requests that have been in hand for `mds_op_complaint_time`, and that time in seconds.
    pub fn slow_requests(&self) -> (usize, f64) {
        let (now, secs) = (self.world.time(), self.world.config.options.op_complaint_secs);
        // The oldest come first.
        let slow = self.requests.all.values();
        (slow.take_while(|r| r.trail.lasted(now) as f64 >= secs * 1e9).count(), secs)
    }
}
