//! Objects that no copy can give: who might still have them, and giving them up.
//!
//! An operator gives them up: `delete` forgets them, `revert` goes back to the version that
//! is still here. Both are writes like others, so all copies agree, and a copy that comes back
//! with the lost version finds it void.
//!
//! Source: the peer's `PrimaryLogPG::mark_all_unfound_lost`; texts are its own.

use std::collections::BTreeMap;

use messages::{LogKind, Mutation, ObjectChange, PgLogEntry};
use types::{EVersion, Errno, HObject, OsdId};

use super::{Cx, Pg, State, Ticket, missing_key};
use crate::backing::StoreOp;
use crate::object::ObjectState;

impl Pg {
    /// Objects that no copy is known to have.
    pub(crate) fn unfound_objects(&self) -> impl Iterator<Item = (&HObject, &EVersion)> {
        let acting = self.peers.iter().filter(|(c, p)| p.activated && self.acts(c));
        let others = acting.flat_map(|(_, p)| p.missing.iter()).filter(|_| self.is_coded());
        let mut all: BTreeMap<&HObject, &EVersion> = self.missing.iter().collect();
        all.extend(others);
        all.into_iter().filter(|(o, v)| {
            if self.is_coded() { !self.is_readable(o, **v) } else { self.source_of(o).is_none() }
        })
    }

    /// Who may have what is not found, and why it is not known: OSDs of the intervals since
    /// all copies were whole.
    pub(crate) fn might_have_unfound(&self, map: &maps::OsdMap) -> Vec<(OsdId, &'static str)> {
        let mut all: Vec<OsdId> = self
            .info
            .past
            .iter()
            .filter(|i| i.maybe_went_rw)
            .flat_map(|i| i.acting.iter().copied())
            .filter(|o| *o != OsdId::NONE && *o != self.info.primary)
            .collect();
        all.sort_unstable();
        all.dedup();
        let status = |o: OsdId| {
            if !map.exists(o) || map.info(o).lost_at > types::Epoch(0) && map.is_down(o) {
                "already probed"
            } else if map.is_down(o) {
                "osd is down"
            } else if self.peers.iter().any(|(c, p)| c.osd == o && p.answered) {
                "already probed"
            } else {
                "not queried"
            }
        };
        all.into_iter().map(|o| (o, status(o))).collect()
    }

    /// Gives up what is not found. The sentence for the operator.
    pub(crate) fn mark_unfound_lost(
        &mut self,
        revert: bool,
        cx: &mut Cx<'_>,
    ) -> Result<String, (Errno, String)> {
        if self.state != State::Active || !self.leads || self.is_merging() {
            return Err((Errno::AGAIN, format!("pg {} is not active", self.id)));
        }
        let lost: Vec<(HObject, EVersion)> =
            self.unfound_objects().map(|(o, v)| (o.clone(), *v)).collect();
        let n = lost.len();
        if n == 0 {
            return Err((Errno::NOENT, "pg has no unfound objects".to_owned()));
        }
        let open = |s: &(OsdId, &str)| s.1 == "osd is down" || s.1 == "not queried";
        if self.might_have_unfound(cx.map).iter().any(open) {
            let why = format!(
                "pg has {n} unfound objects but we haven't probed all sources, not marking lost"
            );
            return Err((Errno::INVAL, why));
        }
        for (oid, _) in lost {
            self.give_up(&oid, revert, cx);
        }
        Ok(format!("pg has {n} objects unfound and apparently lost marking"))
    }

    fn give_up(&mut self, oid: &HObject, revert: bool, cx: &mut Cx<'_>) {
        // An object that is being brought back has no record before it is whole.
        let old = Self::read_state(cx.store, self.coll, oid).unwrap_or_default();
        let back = revert && old.is_stored();
        self.missing.remove(oid);
        cx.submit(vec![StoreOp::Rm(self.coll, missing_key(oid))], Ticket::None);
        self.obcs.remove(oid);
        let version = self.next_version(cx);
        let mut entry = PgLogEntry { prior: old.info.version, ..self.own_delete(oid, version, cx) };
        let (mutations, state) = if back {
            entry.kind = LogKind::Modify;
            let mut state = old;
            state.info.version = version;
            (vec![Mutation::Touch], state)
        } else {
            (vec![Mutation::Remove], ObjectState::default())
        };
        let change = ObjectChange { oid: oid.clone(), mutations };
        self.submit_write(None, change, entry, state, Vec::new(), cx);
        if back {
            // Whatever the others have, it is not this.
            for osd in self.others(cx.me).collect::<Vec<_>>() {
                self.mark_damaged(osd, oid, version, cx);
            }
        }
        // What it counted for is not known any more.
        self.info.recount = true;
        self.stats_dirty = true;
        self.given_up(oid, cx);
    }
}
