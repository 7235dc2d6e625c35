//! Clients that were asked to hold back what they want of a PG.
//!
//! What comes for a PG that cannot serve for long (too few copies, or one that peering waits for is
//! down) is dropped, and its client told so by a `MOSDBackoff`: it keeps what it has for that range,
//! and sends it again when it is told to go on. Nothing of it is in hand here meanwhile, so a client
//! that gave up leaves no slow request behind.
//!
//! ```text
//!  (none) ──block──▶ New ──its ack──▶ Held ──release──▶ (none)
//!                     └──release──▶ Leaving ──its ack──▶ (none)
//! ```
//! What may be trusted: while a client's PG is in any of the three states, all that it sends for that
//! range is dropped, and it sends it again after the release. In `Leaving` the client may not know yet
//! that it was to hold back, so what comes was sent before what it is about to send again.
//!
//! Source: the peer's `PG::add_backoff`, `PG::release_backoffs`, `Session::check_backoff`.

use std::collections::{BTreeMap, BTreeSet};

use env::ConnId;
use messages::{Backoff, Envelope, Message as _};
use stdx::FastMap;
use types::{Epoch, Features, HObject, SnapId, SpgId};

use crate::outbox::Outbox;

/// Values of [`Backoff::op`].
mod op {
    pub const BLOCK: u8 = 1;
    pub const ACK_BLOCK: u8 = 2;
    pub const UNBLOCK: u8 = 3;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The client was told, and has not said that it heard.
    New,
    /// The client holds back.
    Held,
    /// It was told to go on before it had said so.
    Leaving,
}

#[derive(Debug)]
struct Held {
    id: u64,
    state: State,
    begin: HObject,
    end: HObject,
    features: Features,
}

/// All of them. One for each connection and PG at most.
#[derive(Debug, Default)]
pub struct Backoffs {
    last_id: u64,
    by_conn: FastMap<ConnId, BTreeMap<SpgId, Held>>,
    by_pg: BTreeMap<SpgId, BTreeSet<ConnId>>,
}

/// First object of a PG, and the one behind its last, in a pool of `pg_num`.
fn range(pg: SpgId, pg_num: u32) -> (HObject, HObject) {
    let (start, end) = pg.pg.hash_range(pg_num);
    let at = |reversed: u64| HObject {
        pool: pg.pg.pool,
        hash: (reversed as u32).reverse_bits(),
        snap: SnapId::HEAD,
        ..HObject::min()
    };
    (at(start), if end > u64::from(u32::MAX) { HObject::max() } else { at(end) })
}

impl Backoffs {
    /// Whether a client of these features holds back when it is told to.
    #[must_use]
    pub fn understands(features: Features) -> bool {
        features.has(Features::SERVER_LUMINOUS)
    }

    /// Whether what a client sends of an object is dropped: it was asked to hold it back.
    #[must_use]
    pub fn drops(&self, conn: ConnId, pg: SpgId, oid: &HObject) -> bool {
        let held = self.by_conn.get(&conn).and_then(|pgs| pgs.get(&pg));
        held.is_some_and(|h| h.begin <= *oid && *oid < h.end)
    }

    /// Asks a client to hold back all of a PG, unless it was asked already.
    pub fn block(
        &mut self,
        (conn, features): (ConnId, Features),
        (pg, pg_num): (SpgId, u32),
        epoch: Epoch,
        out: &mut Outbox,
    ) {
        let pgs = self.by_conn.entry(conn).or_default();
        if pgs.contains_key(&pg) {
            return;
        }
        self.last_id += 1;
        let (begin, end) = range(pg, pg_num);
        let held = Held { id: self.last_id, state: State::New, begin, end, features };
        out.conn(conn, held.message(pg, epoch, op::BLOCK));
        pgs.insert(pg, held);
        self.by_pg.entry(pg).or_default().insert(conn);
    }

    /// The PG serves, or is not led here any more: its clients go on.
    pub fn release(&mut self, pg: SpgId, epoch: Epoch, out: &mut Outbox) {
        for conn in self.by_pg.remove(&pg).unwrap_or_default() {
            let Some(pgs) = self.by_conn.get_mut(&conn) else { continue };
            let Some(held) = pgs.get_mut(&pg) else { continue };
            out.conn(conn, held.message(pg, epoch, op::UNBLOCK));
            if held.state == State::New {
                held.state = State::Leaving;
            } else {
                pgs.remove(&pg);
            }
        }
    }

    /// A client says that it holds back.
    pub fn on_ack(&mut self, conn: ConnId, m: &Backoff) {
        if m.op != op::ACK_BLOCK {
            return; // nothing else is for an OSD
        }
        let Some(pgs) = self.by_conn.get_mut(&conn) else { return };
        let Some(held) = pgs.get_mut(&m.pg).filter(|h| h.id == m.id) else { return };
        match held.state {
            State::New => held.state = State::Held,
            State::Held => {}
            State::Leaving => drop(pgs.remove(&m.pg)),
        }
    }

    /// A connection is gone.
    pub fn on_closed(&mut self, conn: ConnId) {
        for pg in self.by_conn.remove(&conn).unwrap_or_default().into_keys() {
            if let Some(conns) = self.by_pg.get_mut(&pg) {
                conns.remove(&conn);
                if conns.is_empty() {
                    self.by_pg.remove(&pg);
                }
            }
        }
    }

    /// Whether somebody holds something of the PG back.
    #[must_use]
    pub fn has(&self, pg: SpgId) -> bool {
        self.by_pg.contains_key(&pg)
    }
}

impl Held {
    fn message(&self, pg: SpgId, epoch: Epoch, op: u8) -> Envelope {
        let (begin, end) = (self.begin.clone(), self.end.clone());
        Backoff { pg, epoch, op, id: self.id, begin, end }.envelope(self.features)
    }
}
