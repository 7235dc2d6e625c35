//! Plain requests: versions, usage, maps by number, the log, settings.

use bytes::Bytes;
use denc::DecodeError;
use env::ConnId;
use messages::*;
use types::{EntityKind, Epoch};

use super::Monitor;
use crate::Mutation;

/// Maps that one request may ask for.
const MAPS_PER_REQUEST: u32 = 100;
/// Log lines taken from one message.
const LOG_LINES_MAX: usize = 1000;

impl Monitor {
    /// Hands a message to its handler.
    pub(super) fn dispatch(&mut self, conn: ConnId, env: &Envelope) -> Result<(), DecodeError> {
        match env.kind {
            Ping::KIND => self.on_ping(conn, env.tid),
            MonGetMap::KIND => self.send_monmap(conn, env.tid),
            MonSubscribe::KIND => self.on_subscribe(conn, MonSubscribe::decode(env)?),
            MonGetVersion::KIND => self.on_get_version(conn, env.tid, &Message::decode(env)?),
            Statfs::KIND => self.on_statfs(conn, env.tid, &Message::decode(env)?),
            GetPoolStats::KIND => self.on_pool_stats(conn, env.tid, &Message::decode(env)?),
            PoolOp::KIND => self.on_pool_op(conn, env.tid, &Message::decode(env)?),
            MonCommand::KIND => self.on_mon_command(conn, env.tid, Message::decode(env)?),
            MgrCommand::KIND => self.on_mgr_command(conn, env.tid, Message::decode(env)?),
            MgrOpen::KIND => self.on_mgr_open(conn, env.tid, MgrOpen::decode(env)?),
            MgrReport::KIND => match MgrReport::decode(env) {
                Ok(report) => self.on_mgr_report(conn, report),
                Err(e) => tracing::debug!("a daemon's report: {e}"),
            },
            MgrClose::KIND => self.on_mgr_close(conn, env.tid, &MgrClose::decode(env)?),
            Command::KIND => self.on_tell(conn, env)?,
            LogMsg::KIND => self.on_log(conn, env.tid, Message::decode(env)?),
            Auth::KIND => self.on_auth(conn, env.tid, &Message::decode(env)?),
            MonGetOsdMap::KIND => self.on_get_osdmap(conn, env.tid, &Message::decode(env)?),
            GetConfig::KIND => self.on_get_config(conn, env.tid, &Message::decode(env)?),
            OsdBoot::KIND..=PgStatsAck::KIND | PgReadyToMerge::KIND => {
                self.on_osd_message(conn, env)?;
            }
            _ => tracing::debug!("message {:#x} is not for monitors", env.kind),
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

    fn may_read(&self, conn: ConnId, service: &str) -> bool {
        self.sessions.get(&conn).is_some_and(|s| s.may(service, "r"))
    }

    fn on_statfs(&mut self, conn: ConnId, tid: u64, msg: &Statfs) {
        if !self.may_read(conn, "pg") || msg.fsid != self.state.fsid {
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
        if !self.may_read(conn, "pg") || msg.fsid != self.state.fsid {
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
        if !self.may_read(conn, "osd") {
            return;
        }
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
        let config = self.config_of(&msg.name, &msg.host);
        self.tell(conn, tid, &ConfigMsg { config });
    }

    /// Lines for the cluster log from daemons and clients.
    fn on_log(&mut self, conn: ConnId, tid: u64, msg: LogMsg) {
        let Some(session) = self.sessions.get(&conn) else { return };
        if !session.may("log", "w") && session.info.entity.kind == EntityKind::CLIENT {
            tracing::warn!("{} may not write to the cluster log", session.info.name);
            return;
        }
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
