//! OSDs whose connection to the monitors ended: where nobody listens at their address either, they
//! are dead, though no other OSD may be left to say so.
//!
//! A closed connection alone is no death: an OSD changes its monitor, and its monitor may be gone. So
//! the leader waits a moment for it to come back, and then has its address dialled. What does not
//! answer is left to heartbeats; what refuses is marked down.

use std::collections::BTreeMap;

use env::{ConnId, Now};
use messages::LogPriority;
use types::{AddrVec, EntityKind, OsdId};

use super::{Monitor, Output};
use crate::crushops;

/// An OSD that is alive is back by another connection within this time, ms.
const BACK_MS: u64 = 300;

/// OSDs that left, and since when (monotonic milliseconds).
#[derive(Debug, Default)]
pub(super) struct Probes {
    left: BTreeMap<OsdId, u64>,
}

impl Monitor {
    /// A connection ends; its session is still there.
    pub(super) fn note_left(&mut self, conn: ConnId) {
        let session = self.sessions.get(&conn).filter(|s| !s.at_mgr && self.leads());
        let name = session.map(|s| &s.info.name).filter(|name| name.kind == EntityKind::OSD);
        if let Some(osd) = name.and_then(|name| name.id.parse().ok()).map(OsdId)
            && self.state.osdmap.is_up(osd)
        {
            self.probes.left.insert(osd, self.now.mono_ms());
        }
    }

    /// Has those dialled that did not come back.
    pub(super) fn probe_tick(&mut self) {
        let now_ms = self.now.mono_ms();
        let due = |since: &u64| now_ms >= since + BACK_MS;
        let due: Vec<OsdId> =
            self.probes.left.iter().filter(|(_, since)| due(since)).map(|(osd, _)| *osd).collect();
        for osd in due {
            self.probes.left.remove(&osd);
            let map = &self.state.osdmap;
            let addrs = map.osd_addrs(osd).filter(|_| map.is_up(osd)).cloned();
            if let Some(addrs) = addrs.filter(|_| self.conns_of_osd(osd).is_empty()) {
                self.out.push(Output::Probe { osd, addrs }.into());
            }
        }
    }

    /// Nobody listens where an OSD is by the map ([`Output::Probe`]). That is certain, so however few
    /// are left (`mon_osd_min_up_ratio`), it is marked down.
    pub fn on_refused(&mut self, now: Now, osd: OsdId, addrs: &AddrVec) {
        self.now = now;
        let map = &self.state.osdmap;
        let same = map.is_up(osd) && map.osd_addrs(osd) == Some(addrs);
        if !self.leads() || !same || !self.conns_of_osd(osd).is_empty() || self.is_held_up(osd) {
            return;
        }
        let place = crushops::place_text(&self.state.osdmap.crush, osd);
        let line =
            format!("osd.{osd} failed ({place}) (its connection ended and its address refuses)");
        self.log(LogPriority::INFO, line);
        self.mark_down(osd, true);
    }
}
