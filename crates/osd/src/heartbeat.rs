//! Who of the OSDs that share PGs with this one is alive.
//!
//! Each is pinged on both its addresses; one that leaves a ping unanswered for the grace
//! time is reported to the monitors, and taken back when it answers again.

use std::collections::BTreeMap;

use env::{ConnId, Now};
use messages::{Message, OsdFailure, OsdPing};
use types::{Epoch, Features, OsdId};

use crate::core::Osd;
use crate::outbox::{Effect, Outbox};
use crate::pings::Pings;

/// At least so many are watched, as far as there are.
const PEERS_MIN: usize = 10;
/// A silent OSD is reported again after this long.
const REPEAT_MS: u64 = 5_000;
/// The bit of a ping's stamp that tells the cluster's network from the public one: the answer has the
/// stamp of the question.
const BACK: u64 = 1;

#[derive(Clone, Copy, Debug, Default)]
struct Side {
    /// The newest ping that was answered, by its stamp, monotonic ms.
    answered_ms: u64,
    /// The oldest ping since then; 0 when all are answered.
    waiting_since_ms: u64,
}

#[derive(Clone, Debug, Default)]
struct Peer {
    front: Side,
    back: Side,
    /// When it was reported, monotonic ms; 0 when it is not.
    reported_ms: u64,
    up_from: Epoch,
    pings: Pings,
}

/// The OSDs that are watched.
#[derive(Debug, Default)]
pub struct Heartbeats {
    peers: BTreeMap<OsdId, Peer>,
    next_ms: u64,
}

impl Heartbeats {
    /// Who is watched.
    pub fn peers(&self) -> impl Iterator<Item = OsdId> + '_ {
        self.peers.keys().copied()
    }

    /// How long each takes to answer.
    pub(crate) fn pings(&self) -> impl Iterator<Item = (OsdId, &Pings)> {
        self.peers.iter().map(|(osd, peer)| (*osd, &peer.pings))
    }
}

impl Osd {
    /// The map or the PGs have changed.
    pub(crate) fn update_heartbeat_peers(&mut self, _now: Now) {
        let (me, map) = (self.c.id.whoami, &self.c.map);
        let mut wanted: BTreeMap<OsdId, Epoch> = BTreeMap::new();
        let mut want = |o: OsdId| {
            if o != me && map.is_up(o) {
                wanted.insert(o, map.up_from(o));
            }
        };
        for pg in self.pgs.values() {
            pg.info.acting.iter().chain(&pg.info.up).for_each(|o| want(*o));
        }
        // Neighbours by number, so that nobody is watched by no one.
        let up: Vec<OsdId> = map.osds().filter(|o| *o != me && map.is_up(*o)).collect();
        let at = up.partition_point(|o| *o < me);
        for o in up[at..].iter().chain(&up[..at]).take(PEERS_MIN) {
            want(*o);
        }
        self.c.heartbeats.peers.retain(|o, p| wanted.get(o) == Some(&p.up_from));
        let before = self.c.heartbeats.peers.len();
        for (o, up_from) in wanted {
            let new = || Peer { up_from, ..Peer::default() };
            self.c.heartbeats.peers.entry(o).or_insert_with(new);
        }
        if self.c.heartbeats.peers.len() > before {
            self.c.heartbeats.next_ms = 0; // nobody waits long for a new one's promise
        }
    }

    pub(crate) fn tick_heartbeats(&mut self, now: Now, out: &mut Outbox) {
        let ms = now.mono_ms().max(1);
        let (me, epoch, fsid) = (self.c.id.whoami, self.c.map.epoch, self.c.id.fsid);
        let grace = self.c.conf.heartbeat_grace_ms;
        if ms >= self.c.heartbeats.next_ms {
            self.c.heartbeats.next_ms = ms + self.c.conf.heartbeat_interval_ms;
            let ping = |back: bool| {
                let stamp_ns = now.mono_ns & !BACK | u64::from(back);
                OsdPing { fsid, from: me, epoch, op: 0, stamp_ns }.envelope(Features::ALL)
            };
            let pings = (ping(false), ping(true));
            for (osd, peer) in &mut self.c.heartbeats.peers {
                for (back, side) in [(false, &mut peer.front), (true, &mut peer.back)] {
                    if side.waiting_since_ms == 0 {
                        side.waiting_since_ms = ms;
                    }
                    let envelope = if back { &pings.1 } else { &pings.0 }.clone();
                    out.push(Effect::Heartbeat { osd: *osd, back, envelope });
                }
            }
            self.c.perf.osd.heartbeat_to_peers.0 = self.c.heartbeats.peers.len() as u64;
        }
        let mut silent = Vec::new();
        for (osd, peer) in &mut self.c.heartbeats.peers {
            let since = [peer.front.waiting_since_ms, peer.back.waiting_since_ms];
            let since = since.into_iter().filter(|s| *s > 0).min();
            let Some(since) = since.filter(|s| ms >= s + grace) else { continue };
            if peer.reported_ms == 0 || ms >= peer.reported_ms + REPEAT_MS {
                peer.reported_ms = ms;
                silent.push((*osd, ms - since));
            }
        }
        for (osd, failed_for_ms) in silent {
            tracing::warn!(%osd, failed_for_ms, "no answer to heartbeats");
            self.report_failure(osd, failed_for_ms, false, false, out);
        }
    }

    fn report_failure(
        &self,
        target: OsdId,
        failed_for_ms: u64,
        alive: bool,
        immediate: bool,
        out: &mut Outbox,
    ) {
        out.mon(&OsdFailure {
            reporter: self.c.id.whoami,
            target,
            target_addrs: self.c.map.osd_addrs(target).cloned().unwrap_or_default(),
            failed_for_ms,
            alive,
            immediate,
            epoch: self.c.map.epoch,
        });
    }

    /// What waited for promises goes on, where they are there.
    fn resume(&mut self, now: Now, out: &mut Outbox) {
        for pg in self.pgs.values_mut().filter(|pg| pg.leads) {
            pg.resume(&mut self.c.cx(now, out));
        }
    }

    /// Nobody listens at the address that the map has for this OSD.
    pub fn on_refused(&mut self, _now: Now, osd: OsdId, out: &mut Outbox) {
        if self.c.booted && self.c.map.is_up(osd) {
            self.report_failure(osd, 0, false, true, out);
        }
    }

    pub(crate) fn on_ping(
        &mut self,
        now: Now,
        conn: ConnId,
        from: OsdId,
        m: &OsdPing,
        out: &mut Outbox,
    ) {
        if m.fsid != self.c.id.fsid {
            return;
        }
        self.share_map(conn, m.epoch, out);
        match m.op {
            0 => {
                // One that the map has buried is not comforted.
                let op = if self.c.map.is_up(from) { 1 } else { 2 };
                if op == 1 {
                    self.c.leases.give(from, now.mono_ms());
                }
                let me = self.c.id.whoami;
                let reply = OsdPing { from: me, epoch: self.c.map.epoch, op, ..m.clone() };
                out.conn(conn, reply.envelope(Features::ALL));
            }
            1 => {
                let ms = (m.stamp_ns / 1_000_000).max(1);
                self.c.leases.on_promise(from, ms, m.epoch, self.c.map.epoch);
                self.resume(now, out);
                let Some(peer) = self.c.heartbeats.peers.get_mut(&from) else { return };
                let took_ns = now.mono_ns.saturating_sub(m.stamp_ns);
                peer.pings.add(now, m.stamp_ns & BACK != 0, took_ns);
                // Which side it came back on is not told apart: both ends are one process.
                for side in [&mut peer.front, &mut peer.back] {
                    side.answered_ms = side.answered_ms.max(ms);
                    if side.waiting_since_ms <= ms {
                        side.waiting_since_ms = 0;
                    }
                }
                if peer.reported_ms > 0 {
                    peer.reported_ms = 0;
                    tracing::info!(osd = %from, "answers heartbeats again");
                    self.report_failure(from, 0, true, false, out);
                }
            }
            _ => {
                // The other side's map says that this OSD is down; a newer map will tell.
                let next = Epoch(self.c.map.epoch.0 + 1);
                out.push(Effect::SubscribeMaps(next));
            }
        }
    }
}
