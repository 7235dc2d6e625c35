//! Connections: streams in two directions between processes, with latency. What is sent
//! arrives in order, or the connection breaks and what was on it is lost.

use std::collections::VecDeque;

use messages::Envelope;
use stdx::crc32c;
use types::OsdId;

use crate::plant::Plant;
use crate::world::{Event, MS, Node, SEC, World};

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Line {
    /// Between OSDs: replication and peering.
    Peer(OsdId),
    /// Between OSDs: heartbeats, to the front or the back address.
    Beat(OsdId, bool),
    /// To a monitor.
    Mon,
    /// Between monitors.
    Quorum,
    /// From a client to an OSD.
    Client(OsdId),
}

/// A connection.
pub struct Conn {
    /// Who dialled, and whom.
    pub ends: [Node; 2],
    /// What for, as the dialling side sees it.
    pub line: Line,
    /// The nonce that the dialling side expects.
    pub nonce: u32,
    /// Both sides know of it.
    pub open: bool,
    /// Carries nothing any more.
    pub dead: bool,
    /// A side was told, or does not live to be told.
    told: [bool; 2],
    queue: [VecDeque<Envelope>; 2],
    /// When the last message that was sent arrives.
    last: [u64; 2],
    /// When a direction that carries nothing is tried again.
    retry: [u64; 2],
    /// Since when a direction carries nothing; 0 when it does.
    stuck: [u64; 2],
}

impl World {
    fn latency(&mut self) -> u64 {
        let (a, b) = self.settings.latency;
        if self.chance.one_in(200) {
            return self.chance.within(b, b * 20); // a lost packet
        }
        self.chance.within(a, b)
    }

    pub(crate) fn is_cut(&self, from: Node, to: Node) -> bool {
        self.cut.contains_key(&(from, to))
    }

    /// Dials; messages may be sent at once and go when it opens.
    pub(crate) fn dial(&mut self, from: Node, to: Node, line: Line, nonce: u32) -> usize {
        self.conns.push(Conn {
            ends: [from, to],
            line,
            nonce,
            open: false,
            dead: false,
            told: [false; 2],
            queue: Default::default(),
            last: [0; 2],
            retry: [0; 2],
            stuck: [0; 2],
        });
        let c = self.conns.len() - 1;
        let ns = self.latency() * 2;
        self.after(ns, Event::Dial(c));
        c
    }

    /// The other side is there, or not.
    pub(crate) fn dialled(&mut self, c: usize) {
        let [from, to] = self.conns[c].ends;
        if self.conns[c].dead {
            return;
        }
        let cut = self.is_cut(from, to) || self.is_cut(to, from);
        if cut || self.paused.contains_key(&to) {
            // Nobody answers: tried again, and given up in the end.
            let since = &mut self.conns[c].stuck[0];
            if *since == 0 {
                *since = self.now;
            }
            if cut && self.now >= *since + 5 * SEC {
                self.conns[c].dead = true;
                self.after(0, Event::Closed(c, 0, false));
            } else {
                self.after(200 * MS, Event::Dial(c));
            }
            return;
        }
        if !self.listens(to, &self.conns[c]) {
            self.conns[c].dead = true;
            let ns = self.latency();
            self.after(ns, Event::Closed(c, 0, true));
            return;
        }
        self.conns[c].open = true;
        self.conns[c].stuck = [0; 2];
        for dir in 0..2 {
            let n = self.conns[c].queue[dir].len();
            self.go(c, dir, n);
        }
        self.opened(c, 1);
        self.opened(c, 0);
    }

    /// Lets `n` more messages of a direction arrive, each no earlier than those before it.
    fn go(&mut self, c: usize, dir: usize, n: usize) {
        if self.conns[c].dead || !self.conns[c].open {
            return;
        }
        for _ in 0..n {
            let at = (self.now + self.latency()).max(self.conns[c].last[dir]);
            self.conns[c].last[dir] = at;
            self.after(at - self.now, Event::Deliver(c, dir));
        }
    }

    /// A side sends.
    pub(crate) fn send(&mut self, c: usize, side: usize, e: Envelope) {
        let conn = &mut self.conns[c];
        if conn.dead || conn.told[side] {
            return;
        }
        conn.queue[side].push_back(e);
        self.go(c, side, 1);
    }

    /// The side of a connection where a process is, when it is there.
    pub(crate) fn side_of(&self, c: usize, node: Node) -> Option<usize> {
        self.conns.get(c)?.ends.iter().position(|n| *n == node)
    }

    pub(crate) fn deliver(&mut self, c: usize, dir: usize) {
        let [a, b] = self.conns[c].ends;
        let (from, to) = if dir == 0 { (a, b) } else { (b, a) };
        if self.conns[c].dead {
            return;
        }
        if self.is_cut(from, to) {
            let now = self.now;
            let since = &mut self.conns[c].stuck[dir];
            if *since == 0 {
                *since = now;
            }
            if now >= *since + 15 * SEC && self.plant != Some(Plant::FalsePings) {
                self.break_conn(c); // nothing was acknowledged for long
            } else if now >= self.conns[c].retry[dir] {
                self.conns[c].retry[dir] = now + 100 * MS;
                self.after(100 * MS, Event::Deliver(c, dir));
            }
            return;
        }
        let stood = std::mem::take(&mut self.conns[c].stuck[dir]) != 0;
        let Some(e) = self.conns[c].queue[dir].pop_front() else { return };
        if stood {
            let n = self.conns[c].queue[dir].len();
            self.go(c, dir, n);
        }
        self.mix(u64::from(e.kind) << 32 | u64::from(crc32c(0, &e.front)));
        self.mix(u64::from(crc32c(0, &e.data)) << 16 | c as u64);
        self.tell(|| format!("{from:?} -> {to:?} #{c} {}", crate::show::envelope(&e)));
        self.arrive(c, 1 - dir, e);
    }

    /// A connection breaks; each side learns it when it does.
    pub(crate) fn break_conn(&mut self, c: usize) {
        if self.conns[c].dead {
            return;
        }
        self.conns[c].dead = true;
        for queue in &mut self.conns[c].queue {
            queue.clear();
        }
        for side in 0..2 {
            if !self.conns[c].told[side] {
                let ns = self.chance.within(0, 300 * MS);
                self.after(ns, Event::Closed(c, side, false));
            }
        }
    }

    /// A side ends a connection.
    pub(crate) fn hang_up(&mut self, c: usize, side: usize) {
        self.conns[c].told[side] = true;
        if self.conns[c].open && !self.conns[c].dead {
            self.conns[c].dead = true;
            let ns = self.latency();
            self.after(ns, Event::Closed(c, 1 - side, false));
        }
        self.conns[c].dead = true;
    }

    /// All connections of a process that has died.
    pub(crate) fn drop_conns(&mut self, node: Node) {
        for c in 0..self.conns.len() {
            let Some(side) = self.side_of(c, node) else { continue };
            if self.conns[c].told[side] || side == 1 && !self.conns[c].open {
                continue; // who still dials will be refused
            }
            self.conns[c].told[side] = true;
            if self.conns[c].dead {
                continue;
            }
            self.conns[c].dead = true;
            if self.conns[c].open {
                let other = self.conns[c].ends[1 - side];
                let ns = if self.is_cut(node, other) { 15 * SEC } else { self.latency() };
                self.after(ns, Event::Closed(c, 1 - side, false));
            }
        }
    }

    pub(crate) fn closed(&mut self, c: usize, side: usize, refused: bool) {
        if self.conns[c].told[side] {
            return;
        }
        self.conns[c].told[side] = true;
        let opened = self.conns[c].open;
        let node = self.conns[c].ends[side];
        self.tell(|| format!("{node:?} #{c} closed{}", if refused { ", refused" } else { "" }));
        match node {
            Node::Mon(m) => self.mon_closed(m, c),
            Node::Operator(k) => self.operator_closed(k, c),
            Node::Osd(i) => self.osd_closed(i, c, side, opened, refused),
            Node::Client(i) => self.client_closed(i, c),
        }
    }

    fn opened(&mut self, c: usize, side: usize) {
        match self.conns[c].ends[side] {
            Node::Mon(m) => self.mon_opened(m, c),
            Node::Operator(k) => self.operator_opened(k, c),
            Node::Osd(i) => self.osd_opened(i, c, side),
            Node::Client(i) => self.client_opened(i, c),
        }
    }

    fn arrive(&mut self, c: usize, side: usize, e: Envelope) {
        match self.conns[c].ends[side] {
            Node::Mon(m) => self.mon_message(m, c, &e),
            Node::Operator(k) => self.operator_message(k, c, &e),
            Node::Osd(i) => self.osd_message(i, c, e),
            Node::Client(i) => self.client_message(i, c, &e),
        }
    }
}
