//! What waits for records to be durable: messages, and whatever else goes out.
//!
//! Messages over one connection keep their order, for those about caps count. Loose ones alone do
//! not: what says no more than that a record is durable. They go as soon as it is, and are never
//! ahead of what they follow, which does not wait for later records than they.

use std::collections::{BTreeMap, VecDeque};

use env::ConnId;
use messages::{Envelope, Message};
use types::Features;

use crate::Effect;
use crate::rank::Rank;
use crate::tags::SERVER;

/// Answers to one client that are not safe yet: beyond this its requests are answered once.
pub(crate) const EARLY_MAX: usize = 4096;

/// Which record a message waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// All records that there are.
    All,
    /// The record of this number.
    For(u64),
    /// All that there are; nothing that follows waits for this message.
    Loose,
}

/// What was asked, and when: the time until its answer leaves is counted.
pub(crate) type Timed = (u32, u64);

#[derive(Debug)]
struct Parcel {
    wait: u64,
    loose: bool,
    asked: Option<Timed>,
    envelope: Envelope,
}

/// What waits to go over one connection, in order.
#[derive(Debug, Default)]
struct Lane {
    parcels: Vec<Parcel>,
    /// How many of them are not loose.
    firm: usize,
}

/// A message that a request had sent before its record was made.
#[derive(Debug)]
struct Held {
    client: i64,
    conn: ConnId,
    wait: Wait,
    envelope: Envelope,
}

/// All that waits.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    lanes: BTreeMap<ConnId, Lane>,
    effects: VecDeque<(u64, Effect)>,
    held: Option<Vec<Held>>,
    /// Answers that left in the event being handled.
    pub left: Vec<Timed>,
}

impl Gate {
    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.effects.is_empty() && self.lanes.is_empty()
    }

    /// How many messages wait to go over a connection.
    pub fn waiting(&self, conn: ConnId) -> usize {
        self.lanes.get(&conn).map_or(0, |lane| lane.parcels.len())
    }

    /// A connection is gone.
    pub fn close(&mut self, conn: ConnId) {
        self.lanes.remove(&conn);
    }
}

impl Rank {
    /// Does it once all records so far are durable.
    pub fn behind(&mut self, effect: Effect) {
        if self.journal.is_settled() && self.gate.is_empty() {
            self.fx.push(effect);
        } else {
            self.gate.effects.push_back((self.journal.submitted, effect));
        }
    }

    /// Sends to a client, once all records so far are durable.
    pub fn send<M: Message>(&mut self, client: i64, message: &M, tid: u64) {
        self.send_at(client, message, tid, Wait::All);
    }

    /// Sends to a client, once what the message is made of is durable.
    pub fn send_at<M: Message>(&mut self, client: i64, message: &M, tid: u64, wait: Wait) {
        self.send_answer(client, message, tid, (wait, None));
    }

    /// Sends the first answer to a request.
    pub fn send_answer<M: Message>(
        &mut self,
        client: i64,
        message: &M,
        tid: u64,
        (wait, asked): (Wait, Option<Timed>),
    ) {
        let Some(session) = self.sessions.by_client.get(&client) else { return };
        let Some(conn) = session.conn else { return };
        let mut envelope = message.envelope(session.peer.features);
        envelope.tid = tid;
        self.deliver(client, conn, wait, envelope, asked);
    }

    /// As [`Rank::send`], to somebody who may have no session.
    pub fn send_to<M: Message>(&mut self, conn: ConnId, message: &M, features: Features, tid: u64) {
        let mut envelope = message.envelope(features);
        envelope.tid = tid;
        self.deliver(SERVER, conn, Wait::All, envelope, None);
    }

    fn deliver(
        &mut self,
        client: i64,
        conn: ConnId,
        wait: Wait,
        envelope: Envelope,
        asked: Option<Timed>,
    ) {
        if let Some(held) = &mut self.gate.held {
            held.push(Held { client, conn, wait, envelope });
            return;
        }
        let loose = wait == Wait::Loose;
        let wait = match wait {
            Wait::All | Wait::Loose => self.journal.submitted,
            Wait::For(seq) => seq,
        };
        let is_clear = || self.gate.lanes.get(&conn).is_none_or(|lane| lane.firm == 0);
        if wait <= self.journal.durable && (loose || is_clear()) {
            self.fx.push(Effect::Send(conn, envelope));
            self.gate.left.extend(asked);
        } else {
            let lane = self.gate.lanes.entry(conn).or_default();
            lane.firm += usize::from(!loose);
            lane.parcels.push(Parcel { wait, loose, asked, envelope });
        }
    }

    /// A request begins to run: what it has sent is held until its record is made.
    pub fn hold_messages(&mut self) {
        self.gate.held = Some(Vec::new());
    }

    /// The request's record is `made`, or there is none: what it had sent goes on its way. Its own
    /// client waits for no more than the answer does (`own`).
    pub fn let_messages_go(&mut self, client: i64, made: Option<u64>, own: u64) {
        for held in self.gate.held.take().unwrap_or_default() {
            let mut wait = held.wait;
            if let (Wait::For(seq), Some(made)) = (wait, made) {
                wait = Wait::For(seq.max(if held.client == client { own } else { made }));
            }
            self.deliver(held.client, held.conn, wait, held.envelope, None);
        }
    }

    /// Counts answers that left until `now_ns`.
    pub fn count_left(&mut self, now_ns: u64) {
        for (op, came_ns) in self.gate.left.drain(..) {
            self.counted.answered(op, now_ns.saturating_sub(came_ns));
        }
    }

    /// More records are durable: what waited for them goes out.
    pub fn let_out(&mut self) {
        let durable = self.journal.durable;
        self.tree.tags.durable(durable);
        let (fx, left) = (&mut self.fx, &mut self.gate.left);
        self.gate.lanes.retain(|conn, lane| {
            let mut blocked = false;
            let goes = |p: &mut Parcel| {
                let is_due = p.wait <= durable && (p.loose || !blocked);
                blocked |= !is_due && !p.loose;
                is_due
            };
            for parcel in lane.parcels.extract_if(.., goes) {
                lane.firm -= usize::from(!parcel.loose);
                fx.push(Effect::Send(*conn, parcel.envelope));
                left.extend(parcel.asked);
            }
            !lane.parcels.is_empty()
        });
        while let Some((_, effect)) = self.gate.effects.pop_front_if(|(seq, _)| *seq <= durable) {
            self.fx.push(effect);
        }
    }
}
