//! Whose turn it is to recover: slots of the primary's OSD, and those that acting copies lend.

use maps::PgShard;
use messages::PeerMsg;

use super::recovery::Lends;
use super::{Cx, Peer, Pg};

/// Who does not lend its slot is asked again after this long: the question may be lost.
const ASK_AGAIN_MS: u64 = 3_000;

impl Pg {
    /// Whether an acting copy lacks something.
    pub(super) fn lacks_acting(&self) -> bool {
        let lacks =
            |(o, p): (&PgShard, &Peer)| p.activated && !p.missing.is_empty() && self.acts(o);
        !self.missing.is_empty() || self.peers.iter().any(lacks)
    }

    /// Whether the PG has its slots to bring acting copies what they lack; those of copies
    /// are asked for. What operations wait for needs none.
    pub(super) fn take_turn(&mut self, cx: &mut Cx<'_>) -> bool {
        if !self.lacks_acting() {
            self.end_turn(cx);
            return false;
        }
        let full = self.recovery_lacks_room(cx);
        let turn = !full && cx.slots.recoveries.take(self.id, cx.conf.backfills_max);
        if (self.recovery.too_full, self.recovery.turn_wanted) != (full, !turn) {
            (self.recovery.too_full, self.recovery.turn_wanted) = (full, !turn);
            self.stats_dirty = true;
        }
        if !turn && !self.forced {
            return false;
        }
        let now = cx.now.mono_ms();
        let mut ask = Vec::new();
        let acting: Vec<PgShard> = self.acting_copies().collect();
        for (o, p) in &mut self.peers {
            let lacks = p.activated && !p.missing.is_empty() && acting.contains(o);
            match p.lends {
                Lends::Yes if !lacks => {
                    p.lends = Lends::No;
                    ask.push((*o, PeerMsg::RecoveryEnd));
                }
                Lends::Asked(at) if lacks && now < at + ASK_AGAIN_MS => {}
                Lends::No | Lends::Asked(_) if lacks => {
                    p.lends = Lends::Asked(now);
                    ask.push((*o, PeerMsg::RecoveryAsk));
                }
                _ => {}
            }
        }
        for (osd, body) in ask {
            self.say(cx, osd, body);
        }
        true
    }

    /// All acting copies are whole: slots are for others.
    pub(super) fn end_turn(&mut self, cx: &mut Cx<'_>) {
        cx.slots.recoveries.give_back(self.id);
        (self.recovery.too_full, self.recovery.turn_wanted) = (false, false);
        let lent = self.peers.iter_mut().filter(|(_, p)| p.lends != Lends::No);
        let lent: Vec<PgShard> = lent
            .map(|(o, p)| {
                p.lends = Lends::No;
                *o
            })
            .collect();
        for osd in lent {
            self.say(cx, osd, PeerMsg::RecoveryEnd);
        }
    }

    /// A slot of this OSD is free: whether this PG wants it.
    pub(crate) fn waits_to_recover(&self) -> bool {
        self.recovery.turn_wanted
    }

    /// It is this PG's turn.
    pub(crate) fn on_recovery_turn(&mut self, cx: &mut Cx<'_>) {
        if self.leads {
            self.kick_recovery(cx);
        } else if self.recovery.turn_wanted {
            self.on_recovery_ask(self.primary(), cx);
        }
    }

    /// The primary asks for this copy's slot.
    pub(crate) fn on_recovery_ask(&mut self, from: PgShard, cx: &mut Cx<'_>) {
        if !self.is_led_by(&from) {
            return;
        }
        let lent = cx.slots.recoveries_lent.take(self.id, cx.conf.backfills_max);
        self.recovery.turn_wanted = !lent;
        if lent {
            self.say(cx, from, PeerMsg::RecoverySlot);
        }
    }

    /// A copy lends its slot.
    pub(crate) fn on_recovery_slot(&mut self, from: PgShard, cx: &mut Cx<'_>) {
        if !self.leads {
            return;
        }
        match self.peers.get_mut(&from) {
            Some(peer) if peer.lends != Lends::No => {
                peer.lends = Lends::Yes;
                self.kick_recovery(cx);
            }
            _ => self.say(cx, from, PeerMsg::RecoveryEnd),
        }
    }

    /// Whether acting copies lack something and this waits: for slots, or for space.
    pub(crate) fn recovery_waits(&self) -> (bool, bool) {
        let unlent = |(o, p): (&PgShard, &Peer)| {
            self.acts(o) && !p.missing.is_empty() && p.lends != Lends::Yes
        };
        let waits = self.recovery.active() == 0
            && (self.recovery.turn_wanted
                || self.missing.is_empty() && self.peers.iter().any(unlent));
        (waits, self.recovery.too_full)
    }
}
