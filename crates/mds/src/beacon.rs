//! What the monitors hear of this server, and whether they answer.

use env::Now;
use maps::MdsState;
use maps::fs::MdsHealth;
use types::Epoch;

use crate::{Beacon, Effect, Outbox};

/// Beacons are answered within this time, or the server takes itself for cut off.
const GRACE_MS: u64 = 15_000;

/// The state that is wished for, and when beacons were sent and answered.
#[derive(Debug)]
pub(crate) struct Heart {
    pub wanted: MdsState,
    pub health: MdsHealth,
    seq: u64,
    interval_ms: u64,
    sent_ms: u64,
    /// When the last beacon that was answered had been sent.
    heard_ms: u64,
    in_flight: Vec<(u64, u64)>,
}

impl Heart {
    pub fn new(interval_ms: u64) -> Self {
        Self {
            wanted: MdsState::BOOT,
            health: MdsHealth::default(),
            seq: 0,
            interval_ms,
            sent_ms: 0,
            heard_ms: 0,
            in_flight: Vec::new(),
        }
    }

    /// Says it now.
    pub fn send(&mut self, now: Now, epoch: Epoch, out: &mut Outbox) {
        self.seq += 1;
        self.sent_ms = now.mono_ms();
        if self.in_flight.len() > 64 {
            self.in_flight.remove(0);
        }
        self.in_flight.push((self.seq, now.mono_ms()));
        out.push(Effect::Beacon(Beacon {
            state: self.wanted,
            seq: self.seq,
            epoch,
            health: self.health.clone(),
        }));
    }

    /// Wishes for another state.
    pub fn want(&mut self, state: MdsState, now: Now, epoch: Epoch, out: &mut Outbox) {
        self.wanted = state;
        self.send(now, epoch, out);
    }

    /// Whether [`Heart::tick`] says it now.
    pub fn is_due(&self, now: Now) -> bool {
        self.seq == 0 || now.mono_ms() >= self.sent_ms + self.interval_ms
    }

    pub fn tick(&mut self, now: Now, epoch: Epoch, out: &mut Outbox) {
        if self.is_due(now) {
            self.send(now, epoch, out);
        }
    }

    pub fn acked(&mut self, seq: u64) {
        if let Some(at) = self.in_flight.iter().position(|(s, _)| *s == seq) {
            self.heard_ms = self.heard_ms.max(self.in_flight[at].1);
            self.in_flight.drain(..=at);
        }
    }

    /// Whether the monitors may have given the rank to another server.
    pub fn is_laggy(&self, now: Now) -> bool {
        self.heard_ms > 0 && now.mono_ms() > self.heard_ms + GRACE_MS
    }
}
