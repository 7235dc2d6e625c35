//! Managers: their beacons, what the active one reports, and what it is asked.

use conf::key;
use env::ConnId;
use messages::{ManagerAsk, ManagerReport, MgrBeacon, MgrCommandReply};
use types::{EntityKind, Epoch};

use super::Monitor;
use crate::commands::EAGAIN;
use crate::managers::{self, Edit, OwnRole, Watch};
use crate::{Mutation, Reply};

/// Bytes of what a manager says of itself.
const METADATA_BYTES_MAX: usize = 64 << 10;
/// Modules, services and clients that a beacon may name.
const NAMED_MAX: usize = 256;
/// In a manager's metadata: what tells ours from others', whose statistics come by messages that
/// our OSDs do not send.
const IMPLEMENTATION: &str = "implementation";

impl Monitor {
    fn managers_edit(&self) -> Edit {
        let own = OwnRole {
            name: self.config.name.clone(),
            rank: self.rank,
            addrs: self.config.mgr_addrs.clone().unwrap_or_default(),
        };
        Edit::new(&self.state.mgrmap, own, self.wall())
    }

    /// Takes a change in. Whoever lost the role is shut out by the OSD map's part, which goes first.
    fn managers_commit(&mut self, edit: Edit) {
        for (prio, line) in &edit.lines {
            self.log(*prio, line.clone());
        }
        if !edit.is_dirty() {
            return;
        }
        let blocked_s = self.option(key::MON_MGR_BLOCKLIST_INTERVAL).max(0.0) as u64;
        let fenced = edit.osd_change(&self.state, blocked_s).map(|inc| {
            self.propose(Mutation::Osd(Box::new(inc)));
            Epoch(self.state.osd_history.last.0 + 1)
        });
        let before = self.state.mgrmap.active_gid;
        self.propose(Mutation::MgrMap(Box::new(edit.finish(fenced))));
        self.health_stale = true;
        if before != self.state.mgrmap.active_gid {
            self.volatile.services = Default::default();
            self.give_up_asks();
        }
    }

    /// The leader begins: nobody was heard yet.
    pub(super) fn managers_begin(&mut self) {
        self.volatile.managers = Watch::default();
        let mut edit = self.managers_edit();
        edit.serve_self();
        self.managers_commit(edit);
    }

    pub(super) fn managers_round(&mut self) {
        let map = &self.state.mgrmap;
        if !managers::is_registered(map) && map.standbys.is_empty() {
            return;
        }
        let grace_s = self.option(key::MON_MGR_BEACON_GRACE).clamp(1.0, 1e9);
        let mut edit = self.managers_edit();
        let grace_ms = (grace_s * 1000.0) as u64;
        edit.round(&mut self.volatile.managers, self.now.mono_ms(), grace_ms);
        self.managers_commit(edit);
    }

    /// `mgr fail`. The answer goes when the change is committed.
    pub(super) fn managers_fail(&mut self, who: &str) -> Reply {
        let mut edit = self.managers_edit();
        let said = edit.fail(&mut self.volatile.managers, who);
        self.managers_commit(edit);
        Reply::ok(said)
    }

    pub(super) fn on_mgr_beacon(&mut self, conn: ConnId, msg: &MgrBeacon) {
        let Some(session) = self.sessions.get(&conn) else { return };
        let info = &session.info;
        if msg.fsid != self.state.fsid {
            return tracing::warn!("a beacon of {} is for cluster {}", info.name, msg.fsid);
        }
        // Nobody speaks for another.
        if info.global_id != msg.gid || info.name.id != msg.name {
            return tracing::warn!("{} speaks for mgr.{} {}", info.name, msg.name, msg.gid);
        }
        let bytes = msg.metadata.iter().map(|(k, v)| k.len() + v.len()).sum::<usize>();
        let named = msg.modules.len().max(msg.services.len()).max(msg.clients.len());
        if bytes > METADATA_BYTES_MAX || named > NAMED_MAX {
            return tracing::warn!("a beacon of {} says too much", info.name);
        }
        if msg.metadata.get(IMPLEMENTATION).is_none_or(|it| !it.starts_with("argonaut")) {
            return tracing::warn!(
                "{} is not a manager of this implementation: OSDs send it no statistics",
                info.name
            );
        }
        let mut edit = self.managers_edit();
        edit.take(&mut self.volatile.managers, msg, self.now.mono_ms());
        self.managers_commit(edit);
        if self.state.mgr_metadata.get(&msg.name) != Some(&msg.metadata) {
            let (name, metadata) = (msg.name.clone(), Some(msg.metadata.clone()));
            self.propose(Mutation::MgrMetadata { name, metadata });
        }
    }

    /// What the active manager has heard of services' daemons.
    pub(super) fn on_manager_report(&mut self, conn: ConnId, msg: ManagerReport) {
        if self.manager_conn() == Some(conn) && msg.gid == self.state.mgrmap.active_gid {
            self.volatile.services.replace(msg);
        }
    }

    /// The session of the active manager's process.
    fn manager_conn(&self) -> Option<ConnId> {
        let is_its = |s: &crate::session::Session| !s.at_mgr && self.is_active_manager(&s.info);
        // The last one, where it has just changed its monitor.
        self.sessions.iter().filter(|(_, s)| is_its(s)).map(|(conn, _)| *conn).next_back()
    }

    /// Whether a peer is the active manager: commands that it sends were judged by it.
    pub(super) fn is_active_manager(&self, info: &crate::SessionInfo) -> bool {
        let map = &self.state.mgrmap;
        info.name.kind == EntityKind::MGR
            && managers::is_registered(map)
            && info.global_id == map.active_gid
    }

    /// Asks the manager's process; `false` where there is none. Where it is not there yet, or
    /// between two sessions, the caller is to ask again.
    pub(super) fn ask_manager(&mut self, id: u64, ask: &ManagerAsk) -> Result<bool, Reply> {
        if !managers::is_registered(&self.state.mgrmap) {
            return Ok(false);
        }
        let Some(conn) = self.manager_conn().filter(|_| self.state.mgrmap.available) else {
            let name = &self.state.mgrmap.active_name;
            let why = format!("manager daemon {name} does not serve yet: ask again");
            return Err(Reply::err(EAGAIN, why));
        };
        self.tell(conn, id, ask);
        Ok(true)
    }

    /// What a module in the manager's process answers.
    pub(super) fn on_manager_answer(&mut self, conn: ConnId, id: u64, msg: MgrCommandReply) {
        if self.manager_conn() == Some(conn) {
            let reply = Reply { r: msg.r, rs: msg.rs, out: msg.output };
            self.on_module_answer(self.now, id, reply);
        }
    }
}

/// The command for a manager's module, as one message.
pub(super) fn ask_of(
    cmd: &[bytes::Bytes],
    input: &bytes::Bytes,
    caller: &::auth::MgrCaller,
    perm: &str,
) -> ManagerAsk {
    ManagerAsk {
        cmd: cmd.to_vec(),
        name: caller.name.clone(),
        addr: caller.addr,
        caps: caller.caps.text().to_owned(),
        perm: perm.to_owned(),
        input: input.clone(),
    }
}
