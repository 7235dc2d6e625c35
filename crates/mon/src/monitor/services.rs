//! Daemons that registered themselves with the manager's role: who they are and how they do.
//!
//! The leader keeps them in memory only, as long as their connections last: with another
//! leader the manager is elsewhere, clients connect there, and register again.
//!
//! Source: the peer's `DaemonServer::{handle_open, handle_report, handle_close}`.

use env::ConnId;
use messages::{MgrClose, MgrConfigure, MgrOpen, MgrReport};

use super::Monitor;

/// Services' daemons at once; more are not kept.
const DAEMONS_MAX: usize = 10_000;
/// Seconds between reports: `mgr_stats_period`.
const REPORT_S: u32 = 5;
/// `mgr_stats_threshold`.
const THRESHOLD: u32 = 5;

impl Monitor {
    pub(super) fn on_mgr_open(&mut self, conn: ConnId, tid: u64, msg: MgrOpen) {
        let Some(session) = self.sessions.get(&conn) else { return };
        let (gid, addr) = (session.info.global_id, session.info.addrs.front());
        if let Some((metadata, status)) = msg.registered {
            let now = self.wall();
            let services = &mut self.volatile.services;
            if !msg.service.is_empty() && services.len() < DAEMONS_MAX {
                let daemon = maps::ServiceDaemon {
                    gid,
                    addr,
                    start_epoch: self.state.osdmap.epoch,
                    start_stamp: now,
                    metadata,
                    ..maps::ServiceDaemon::default()
                };
                services.register(conn, msg.service, msg.daemon, daemon, status, now);
            }
        }
        let configure = MgrConfigure { stats_period_s: REPORT_S, stats_threshold: THRESHOLD };
        self.tell(conn, tid, &configure);
    }

    pub(super) fn on_mgr_report(&mut self, conn: ConnId, msg: MgrReport) {
        let now = self.wall();
        self.volatile.services.report(conn, msg.status, now);
    }

    pub(super) fn on_mgr_close(&mut self, conn: ConnId, tid: u64, msg: &MgrClose) {
        self.volatile.services.forget(conn);
        self.tell(conn, tid, msg);
    }
}
