//! Plain requests: versions, usage, maps by number, the log, settings.

use bytes::Bytes;
use denc::DecodeError;
use env::ConnId;
use messages::*;
use types::Epoch;

use super::Monitor;
use crate::Mutation;
use crate::doors::Kind;

/// Maps that one request may ask for.
const MAPS_PER_REQUEST: u32 = 100;
/// Log lines taken from one message.
const LOG_LINES_MAX: usize = 1000;

impl Monitor {
    /// Hands a message to its handler, where its line in the table of doors lets it in.
    pub(super) fn dispatch(&mut self, conn: ConnId, env: &Envelope) -> Result<(), DecodeError> {
        let Some(session) = self.sessions.get(&conn) else { return Ok(()) };
        let Some(kind) = Kind::of(env.kind) else {
            tracing::debug!("message {:#x} is not for monitors", env.kind);
            return Ok(());
        };
        if let Err(why) = kind.rule().admits(session) {
            tracing::warn!("{kind:?} of {}: {why}", session.info.name);
            return Ok(()); // as the peer: no answer
        }
        match kind {
            Kind::Ping => self.on_ping(conn, env.tid),
            Kind::MonGetMap => self.send_monmap(conn, env.tid),
            Kind::MonSubscribe => self.on_subscribe(conn, MonSubscribe::decode(env)?),
            Kind::MonGetVersion => self.on_get_version(conn, env.tid, &Message::decode(env)?),
            Kind::Statfs => self.on_statfs(conn, env.tid, &Message::decode(env)?),
            Kind::GetPoolStats => self.on_pool_stats(conn, env.tid, &Message::decode(env)?),
            Kind::PoolOp => self.on_pool_op(conn, env.tid, &Message::decode(env)?),
            Kind::MonCommand => self.on_mon_command(conn, env.tid, Message::decode(env)?),
            Kind::MgrCommand => self.on_mgr_command(conn, env.tid, &Message::decode(env)?),
            Kind::MgrOpen => self.on_mgr_open(conn, env.tid, MgrOpen::decode(env)?),
            Kind::MgrReport => match MgrReport::decode(env) {
                Ok(report) => self.on_mgr_report(conn, report),
                Err(e) => tracing::debug!("a daemon's report: {e}"),
            },
            Kind::MgrClose => self.on_mgr_close(conn, env.tid, &MgrClose::decode(env)?),
            Kind::Command => self.on_tell(conn, env)?,
            Kind::LogMsg => self.on_log(conn, env.tid, Message::decode(env)?),
            Kind::Auth => self.on_auth(conn, env.tid, &Message::decode(env)?),
            Kind::MonGetOsdMap => self.on_get_osdmap(conn, env.tid, &Message::decode(env)?),
            Kind::GetConfig => self.on_get_config(conn, env.tid, &Message::decode(env)?),
            Kind::MdsBeacon => self.on_mds_beacon(conn, env.tid, Message::decode(env)?),
            Kind::MdsLoadTargets => self.on_mds_targets(conn, &Message::decode(env)?),
            Kind::MgrBeacon => self.on_mgr_beacon(conn, &Message::decode(env)?),
            Kind::ManagerReport => self.on_manager_report(conn, Message::decode(env)?),
            Kind::MgrCommandReply => {
                self.on_manager_answer(conn, env.tid, Message::decode(env)?);
            }
            Kind::RemoveSnaps => self.on_remove_snaps(&Message::decode(env)?),
            Kind::OsdBoot
            | Kind::OsdAlive
            | Kind::OsdFailure
            | Kind::OsdMarkMeDown
            | Kind::OsdBeacon
            | Kind::PgTemp
            | Kind::PgStats
            | Kind::PgReadyToMerge => self.on_osd_message(conn, env)?,
        }
        Ok(())
    }

    /// Says how this monitor is, whoever leads.
    fn on_ping(&mut self, conn: ConnId, tid: u64) {
        let text = self.pong();
        let mut w = denc::Writer::new(denc::Features::ALL);
        w.str(&text);
        let env = Envelope { front: w.finish(), ..Ping::default().envelope(denc::Features::ALL) };
        self.send(conn, env.with_tid(tid));
    }

    fn on_get_version(&mut self, conn: ConnId, tid: u64, msg: &MonGetVersion) {
        let state = &self.state;
        let same = |e: Epoch| (u64::from(e.0), 1);
        let (version, oldest) = match msg.what.as_str() {
            "osdmap" => (u64::from(state.osd_history.last.0), u64::from(state.osd_history.first.0)),
            "monmap" => same(state.monmap.epoch),
            "mgrmap" => same(state.mgrmap.epoch),
            "fsmap" | "mdsmap" => same(state.fsmap.epoch),
            "config" => (state.config.version, 1),
            "log" | "logm" => (state.log.version, 1),
            _ => (0, 0),
        };
        let reply = MonGetVersionReply { handle: msg.handle, version, oldest };
        self.tell(conn, tid, &reply);
    }

    fn on_statfs(&mut self, conn: ConnId, tid: u64, msg: &Statfs) {
        if msg.fsid != self.state.fsid {
            return; // as the peer: no answer
        }
        let pgmap = &self.volatile.pgmap;
        let usage = match msg.data_pool {
            Some(pool) => {
                let Some(found) = self.state.osdmap.pools.get(&types::PoolId(pool)) else {
                    return;
                };
                pgmap.pool_statfs(&self.state.osdmap, types::PoolId(pool), found)
            }
            None => pgmap.statfs(),
        };
        let reply = StatfsReply {
            fsid: self.state.fsid,
            version: pgmap.version,
            kb: usage.kb,
            kb_used: usage.kb_used,
            kb_avail: usage.kb_avail,
            num_objects: usage.num_objects,
        };
        self.tell(conn, tid, &reply);
    }

    fn on_pool_stats(&mut self, conn: ConnId, tid: u64, msg: &GetPoolStats) {
        if msg.fsid != self.state.fsid {
            return;
        }
        let Some(session) = self.sessions.get(&conn) else { return };
        let front =
            self.volatile.pgmap.pool_stats_reply(&self.state, &msg.pools, session.info.features);
        let env = Envelope {
            tid,
            kind: 59,
            priority: PRIO_HIGH,
            version: 2,
            compat: 1,
            front,
            ..Envelope::default()
        };
        self.send(conn, env);
    }

    fn on_get_osdmap(&mut self, conn: ConnId, tid: u64, msg: &MonGetOsdMap) {
        let mut reply = OsdMapMsg {
            fsid: self.state.fsid,
            oldest: self.state.osd_history.first,
            newest: self.state.osd_history.last,
            ..OsdMapMsg::default()
        };
        let range = |first: Epoch, last: Epoch, history: &crate::OsdHistory| {
            let first = first.max(history.first);
            let last = last.min(history.last).0.min(first.0.saturating_add(MAPS_PER_REQUEST - 1));
            first.0..=last
        };
        if msg.full_last.0 > 0 {
            for e in range(msg.full_first, msg.full_last, &self.state.osd_history) {
                if let Some(map) = self.full_for(conn, Epoch(e)) {
                    reply.fulls.insert(Epoch(e), map);
                }
            }
        }
        if msg.inc_last.0 > 0 {
            for e in range(msg.inc_first, msg.inc_last, &self.state.osd_history) {
                if let Some(inc) = self.incremental_for(conn, Epoch(e)) {
                    reply.incrementals.insert(Epoch(e), inc);
                }
            }
        }
        self.tell(conn, tid, &reply);
    }

    fn on_get_config(&mut self, conn: ConnId, tid: u64, msg: &GetConfig) {
        let Some(session) = self.sessions.get(&conn) else { return };
        // Everybody may know his own settings, by the name that he proved; those of others may
        // hold passwords.
        let name = if session.may("config", "r") { &msg.name } else { &session.info.name };
        let config = self.config_of(name, &msg.host);
        self.tell(conn, tid, &ConfigMsg { config });
    }

    /// Lines for the cluster log from daemons and clients.
    fn on_log(&mut self, conn: ConnId, tid: u64, msg: LogMsg) {
        let Some(session) = self.sessions.get(&conn) else { return };
        let (name, entity, addrs) =
            (session.info.name.clone(), session.info.entity, session.info.addrs.clone());
        let mut entries = msg.entries;
        entries.truncate(LOG_LINES_MAX);
        let Some(last) = entries.last() else { return };
        let (seq, channel) = (last.seq, last.channel.clone());
        // Nobody speaks in another's name.
        for entry in &mut entries {
            entry.name = name.clone();
            entry.rank = entity;
            entry.addrs = addrs.clone();
        }
        self.propose(Mutation::Log(entries));
        let ack = LogAck { fsid: self.state.fsid, last: seq, channel };
        self.tell(conn, tid, &ack);
    }

    pub(super) fn reply_pool_op(
        &mut self,
        conn: ConnId,
        tid: u64,
        r: i32,
        epoch: Epoch,
        data: Option<Bytes>,
    ) {
        let reply = PoolOpReply {
            paxos: Paxos { version: u64::from(epoch.0) },
            fsid: self.state.fsid,
            r,
            epoch,
            data,
        };
        self.tell(conn, tid, &reply);
    }
}
