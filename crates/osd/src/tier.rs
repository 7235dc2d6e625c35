//! What cache tiers ask of their bases: requests of one OSD to the primaries of objects in
//! another pool, sent again until they are answered.
//!
//! A request goes out anew when the base PG is led by another OSD or process, when messages
//! to it may be lost, and after a while without an answer; the base recognises writes that
//! it did already by their request ids. Promotions are fetched as copies (`copy`).
//!
//! Only who leads the cache's PG is heard, by the map of the base, which is as new as that of
//! the last who asked: one who was cut off and has a successor may have old things to say.
//!
//! Source: the part of the peer's `Objecter` within its OSD.

use std::collections::BTreeMap;

use env::{ConnId, Now};
use maps::OsdMap;
use messages::{MOsdOp, MOsdOpReply, OsdPeer, PeerMsg};
use types::{
    EntityAddr, EntityId, EntityKind, Epoch, Features, OsdId, PgId, PoolId, ReqId, ShardId, SpgId,
    stable_mod,
};

use crate::core::Osd;
use crate::exec::Asker;
use crate::outbox::Outbox;
use crate::session::{ClientOp, Origin};
use types::Errno;

/// What is not answered is asked again after this long, also when nothing else changed.
const RETRY_MS: u64 = 5_000;
/// Stands for the connection of a request that came from a cache tier.
const NO_CONN: ConnId = ConnId(u64::MAX - 1);

/// A request of a cache PG.
#[derive(Debug)]
pub(crate) struct AskWanted {
    /// Who wants it, and the PG's name for it.
    pub from: (SpgId, u64),
    /// The pool that it is about.
    pub base: PoolId,
    /// For which client.
    pub who: EntityId,
    pub addr: EntityAddr,
    pub op: MOsdOp,
}

/// Where a request was sent to: the PG, its primary, and since when that is up.
type Target = (PgId, OsdId, Epoch);

#[derive(Debug)]
struct Ask {
    wanted: AskWanted,
    sent: Option<Target>,
    asked_ms: u64,
}

/// All requests under way.
#[derive(Debug, Default)]
pub struct Asks {
    next: u64,
    running: BTreeMap<u64, Ask>,
    led: Led,
    pub(crate) wanted: Vec<AskWanted>,
}

/// Of PGs of caches that asked here: when the interval began in which one did last.
#[derive(Debug, Default)]
struct Led {
    began: BTreeMap<PgId, Epoch>,
    /// How many PGs there were then.
    pgs: BTreeMap<PoolId, u32>,
}

impl Led {
    /// Whether the primary of `pg`, one of `pg_num`, is heard in the interval that began at
    /// `interval`: if none asked in a later one. A PG that divides or merges begins an interval,
    /// so for every object intervals only rise.
    fn hears(&mut self, pg: PgId, pg_num: u32, interval: Epoch) -> bool {
        self.follow(pg.pool, pg_num);
        let began = self.began.entry(pg).or_default();
        *began = interval.max(*began);
        interval == *began
    }

    /// A part is where the whole was, and what merged where the furthest was.
    fn follow(&mut self, pool: PoolId, pg_num: u32) {
        let was = self.pgs.insert(pool, pg_num).unwrap_or(pg_num);
        for ps in was..pg_num {
            let whole = PgId { pool, ps: stable_mod(ps, was) };
            if let Some(began) = self.began.get(&whole).copied() {
                self.began.insert(PgId { pool, ps }, began);
            }
        }
        for ps in pg_num..was {
            if let Some(began) = self.began.remove(&PgId { pool, ps }) {
                let into = PgId { pool, ps: stable_mod(ps, pg_num) };
                let into = self.began.entry(into).or_default();
                *into = began.max(*into);
            }
        }
    }
}

/// The PG of a cache for which that OSD asks, as its primary; `None` when it is none.
pub(crate) fn asker(map: &OsdMap, osd: OsdId, op: &MOsdOp) -> Option<PgId> {
    let tiers = map.pool(op.pg.pg.pool)?.tiers.iter().map(|t| PoolId(*t as i64));
    let mut pgs = tiers.filter_map(|pool| map.raw_pg_to_pg(PgId { pool, ps: op.hash }));
    pgs.find(|pg| map.pg_to_up_acting(*pg).acting_primary == Some(osd))
}

fn target(map: &OsdMap, mapping: &maps::PgMapping, w: &AskWanted) -> Option<Target> {
    let pg = map.raw_pg_to_pg(PgId { pool: w.base, ps: w.op.hash })?;
    let osd = mapping.get(pg)?.acting_primary?;
    Some((pg, osd, map.up_from(osd)))
}

impl Osd {
    /// Sends what PGs want.
    pub(crate) fn pump_asks(&mut self, now: Now, out: &mut Outbox) {
        while !self.c.asks.wanted.is_empty() {
            for mut wanted in std::mem::take(&mut self.c.asks.wanted) {
                let asks = &mut self.c.asks;
                // Answers to an earlier process must not fit.
                asks.next = asks.next.max(now.wall_ns) + 1;
                if wanted.op.reqid.tid == 0 {
                    let num = i64::from(self.c.id.whoami.0);
                    let client = EntityId::new(EntityKind::OSD, num);
                    wanted.op.reqid = ReqId { client, tid: asks.next, inc: 0 };
                }
                let id = asks.next;
                asks.running.insert(id, Ask { wanted, sent: None, asked_ms: 0 });
                self.ask_base(now, id, out);
            }
        }
    }

    /// Asks again where it is time.
    pub(crate) fn tick_asks(&mut self, now: Now, out: &mut Outbox) {
        let ms = now.mono_ms();
        let (map, mapping) = (&self.c.map, &self.c.mapping);
        let due = self.c.asks.running.iter().filter(|(_, a)| {
            ms >= a.asked_ms + RETRY_MS || a.sent != target(map, mapping, &a.wanted)
        });
        let due: Vec<u64> = due.map(|(id, _)| *id).collect();
        for id in due {
            self.ask_base(now, id, out);
        }
        self.pump_asks(now, out);
    }

    /// What was sent to that OSD may be lost.
    pub(crate) fn asks_lost(&mut self, osd: OsdId) {
        for a in self.c.asks.running.values_mut() {
            if a.sent.is_some_and(|(_, to, _)| to == osd) {
                a.sent = None;
            }
        }
    }

    fn ask_base(&mut self, now: Now, id: u64, out: &mut Outbox) {
        let Some(a) = self.c.asks.running.get_mut(&id) else { return };
        let (from, token) = a.wanted.from;
        let Some(pg) = self.pgs.get(&from).filter(|pg| pg.leads && pg.tier.awaits(token)) else {
            self.c.asks.running.remove(&id); // it begins anew, or is led elsewhere
            return;
        };
        // Not since when its primary leads: that may be longer ago than of a PG it took in.
        let interval = pg.info.same_interval_since;
        a.asked_ms = now.mono_ms();
        if self.c.map.pool(a.wanted.base).is_none() {
            let reply = MOsdOpReply { result: Errno::NOENT.0, ..MOsdOpReply::default() };
            self.on_tier_told(now, id, reply, out);
            return;
        }
        a.sent = target(&self.c.map, &self.c.mapping, &a.wanted);
        let Some((pg, osd, _)) = a.sent else { return };
        let mut op = a.wanted.op.clone();
        let (who, addr) = (a.wanted.who, a.wanted.addr);
        let epoch = self.c.map.epoch;
        let pg = self.c.spg_of(pg, osd);
        (op.pg, op.epoch) = (pg, epoch);
        let body = PeerMsg::TierAsk { id, who, addr, op: Box::new(op) };
        out.osd(osd, &OsdPeer { pg, from: ShardId::NONE, epoch, interval, felt: 0, body });
    }

    /// A cache tier wants something of an object led here.
    pub(crate) fn on_tier_ask(&mut self, now: Now, from: OsdId, m: OsdPeer, out: &mut Outbox) {
        let PeerMsg::TierAsk { id, who, addr, op } = m.body else { return };
        if !self.c.booted || self.c.stopping || self.c.map.pool(op.pg.pg.pool).is_none() {
            return;
        }
        let Some(cache) = asker(&self.c.map, from, &op) else { return };
        let Some(pgs) = self.c.map.pool(cache.pool).map(|pool| pool.pg_num) else { return };
        // Releases before this one say nothing.
        if m.interval != Epoch(0) && !self.c.asks.led.hears(cache, pgs, m.interval) {
            return; // it is asked again, if it is still wanted
        }
        let by = Asker { who, addr, features: Features::ALL, ..Asker::default() };
        let mut op = self.c.client_op(now, NO_CONN, by, 0, *op, 0);
        op.origin = Some(Origin { osd: from, id });
        self.admit_op(now, op, None, out);
    }

    /// The base has answered.
    pub(crate) fn on_tier_told(&mut self, now: Now, id: u64, reply: MOsdOpReply, out: &mut Outbox) {
        let Some(a) = self.c.asks.running.remove(&id) else { return };
        let (from, token) = a.wanted.from;
        self.with_pg(now, from, out, |pg, cx| pg.on_base_answer(token, reply, cx));
        self.pump_asks(now, out);
        self.pump_copies(now, out);
    }
}

impl ClientOp {
    /// Answers the cache tier it came from; `false` when it came from a client.
    pub(crate) fn tell_tier(&self, reply: MOsdOpReply, epoch: Epoch, out: &mut Outbox) -> bool {
        let Some(o) = self.origin else { return false };
        let body = PeerMsg::TierTold { id: o.id, reply: Box::new(reply) };
        let pg = SpgId { pg: self.msg.pg.pg, shard: ShardId::NONE };
        out.osd(
            o.osd,
            &OsdPeer { pg, from: ShardId::NONE, epoch, interval: Epoch(0), felt: 0, body },
        );
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POOL: PoolId = PoolId(2);

    fn hears(led: &mut Led, ps: u32, pg_num: u32, interval: u32) -> bool {
        led.hears(PgId { pool: POOL, ps }, pg_num, Epoch(interval))
    }

    #[test]
    fn who_led_before_another_asked_is_not_heard() {
        let mut led = Led::default();
        assert!(hears(&mut led, 1, 2, 10) && hears(&mut led, 1, 2, 10));
        assert!(hears(&mut led, 1, 2, 12));
        assert!(!hears(&mut led, 1, 2, 10));
        assert!(hears(&mut led, 0, 2, 10), "another PG");
    }

    /// A PG is told of by what it took in, too; and by what it was a part of.
    #[test]
    fn pgs_that_divide_and_merge_are_followed() {
        let mut led = Led::default();
        assert!(hears(&mut led, 0, 2, 10) && hears(&mut led, 1, 2, 20));
        assert!(!hears(&mut led, 0, 1, 19), "it was asked for a part at 20");
        assert!(hears(&mut led, 0, 1, 30));
        assert!(!hears(&mut led, 3, 4, 29), "it was asked for the whole at 30");
        assert!(hears(&mut led, 0, 4, 50));
        assert!(hears(&mut led, 1, 4, 40), "parts go on by themselves");
    }
}
