//! The server: which events go where.

use env::{ConnId, Now};
use maps::{MdsMap, MdsState};
use messages::fs::{
    ClientCapRelease, ClientCaps, ClientLease, ClientReclaim, ClientReconnect, ClientRequest,
    ClientSession,
};
use messages::{Envelope, Message};
use types::{Epoch, Errno};

use crate::beacon::Heart;
use crate::rank::Rank;
use crate::request::Later;
use crate::{AskId, Config, Effect, IoAnswer, IoId, OsdNews, Outbox, Peer};

/// A metadata server. See the crate's documentation for its events.
#[derive(Debug)]
pub struct Mds {
    config: Config,
    map: Option<MdsMap>,
    osd: OsdNews,
    heart: Heart,
    rank: Option<Box<Rank>>,
}

impl Mds {
    /// A server that no map knows yet.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let heart = Heart::new(config.options.beacon_interval_ms);
        Self { config, map: None, osd: OsdNews::default(), heart, rank: None }
    }

    /// Options have other values now. The beacons' interval stays.
    pub fn set_options(&mut self, options: &crate::Options) {
        self.config.options = options.clone();
        if let Some(rank) = &mut self.rank {
            rank.world.config.options = options.clone();
        }
    }

    /// The state that the newest map gives it; [`MdsState::BOOT`] before it is in one.
    #[must_use]
    pub fn state(&self) -> MdsState {
        let info = self.map.as_ref().and_then(|m| m.mds_info.get(&self.config.gid));
        info.map_or(MdsState::BOOT, |i| i.state)
    }

    /// The rank that the newest map gives it.
    #[must_use]
    pub fn rank(&self) -> Option<i32> {
        let info = self.map.as_ref()?.mds_info.get(&self.config.gid)?;
        (info.rank >= 0).then_some(info.rank)
    }

    fn epoch(&self) -> Epoch {
        self.map.as_ref().map_or(Epoch(0), |m| m.epoch)
    }

    /// The monitors can be talked to.
    pub fn on_start(&mut self, now: Now, out: &mut Outbox) {
        self.heart.tick(now, self.epoch(), out);
    }

    /// The monitors' newest MDS map of this server's file system, or, while it has none, the
    /// map that names it as a standby.
    pub fn on_map(&mut self, now: Now, map: &MdsMap, out: &mut Outbox) {
        if map.epoch <= self.epoch() && self.map.is_some() {
            return;
        }
        let known = self.state() != MdsState::BOOT;
        let (before, had) = (self.state(), self.rank());
        self.map = Some(map.clone());
        let state = self.state();
        if known && (state == MdsState::BOOT || had.is_some() && had != self.rank()) {
            let why = "the map has this server no longer, or as another".to_owned();
            out.push(Effect::Respawn { why });
            return;
        }
        if state != MdsState::BOOT {
            self.heart.wanted = state;
        }
        if self.rank.is_none()
            && let Some(rank) = self.rank()
            && matches!(state, MdsState::CREATING | MdsState::STARTING | MdsState::REPLAY)
        {
            let (config, osd) = (self.config.clone(), self.osd.clone());
            self.rank = Some(Box::new(Rank::new(rank, config, map.clone(), osd, now)));
        }
        self.with_rank(now, out, |r| {
            r.world.map = map.clone();
            if matches!(state, MdsState::CREATING | MdsState::STARTING | MdsState::REPLAY) {
                r.begin(state);
            } else if state != before {
                r.entered(state);
            }
        });
        self.heart.tick(now, self.epoch(), out);
    }

    /// Hands an event to the rank, and lets out what came of it.
    fn with_rank(&mut self, now: Now, out: &mut Outbox, event: impl FnOnce(&mut Rank)) {
        let epoch = self.epoch();
        let Some(rank) = &mut self.rank else { return };
        rank.count_left(rank.world.now.wall_ns);
        rank.world.now = now;
        event(rank);
        rank.pump();
        for effect in rank.fx.drain(..) {
            out.push(effect);
        }
        if let Some(wish) = rank.wish
            && wish != self.heart.wanted
        {
            self.heart.want(wish, now, epoch, out);
        }
    }

    /// What the last event wished for is on its way: the time of the answers among that is counted.
    pub fn on_sent(&mut self, now: Now) {
        if let Some(rank) = &mut self.rank {
            rank.count_left(now.wall_ns);
        }
    }

    /// A newer map of OSDs.
    pub fn on_osd_map(&mut self, now: Now, news: &OsdNews, out: &mut Outbox) {
        if news.epoch > self.osd.epoch {
            self.osd = news.clone();
            self.with_rank(now, out, |r| {
                r.world.osd = news.clone();
                r.boot_tick();
                r.end_blocklisted();
            });
        }
    }

    /// The monitors answered beacon `seq`.
    pub fn on_beacon_ack(&mut self, _now: Now, seq: u64, _out: &mut Outbox) {
        self.heart.acked(seq);
    }

    /// A message of a client. What is garbled, or is no client's, costs the connection.
    pub fn on_message(
        &mut self,
        now: Now,
        conn: ConnId,
        peer: &Peer,
        envelope: Envelope,
        out: &mut Outbox,
    ) {
        if self.rank.is_none() || peer.id.kind != types::EntityKind::CLIENT {
            out.push(Effect::Close(conn));
            return;
        }
        let mut garbled = None;
        if self.rank.as_ref().is_some_and(|r| r.boot.is_leaving()) {
            return; // whoever has the rank next hears it again
        }
        self.with_rank(now, out, |r| garbled = r.on_message(conn, peer, &envelope).err());
        if let Some(e) = garbled {
            tracing::warn!(kind = envelope.kind, %peer.id, %e, "a message cannot be read");
            out.push(Effect::Close(conn));
            self.with_rank(now, out, |r| r.on_closed(conn));
        }
    }

    /// A client's connection is gone for good: no message follows, and what was sent over it may
    /// be lost.
    pub fn on_closed(&mut self, now: Now, conn: ConnId, out: &mut Outbox) {
        self.with_rank(now, out, |r| r.on_closed(conn));
    }

    /// An [`crate::Io`] or [`Effect::Blocklist`] ended. ENOENT, and whatever else the OSDs said.
    pub fn on_done(
        &mut self,
        now: Now,
        id: IoId,
        result: Result<IoAnswer, Errno>,
        out: &mut Outbox,
    ) {
        self.with_rank(now, out, |r| r.on_done(id, result));
    }

    /// A command: an object with `prefix` and arguments.
    pub fn on_command(
        &mut self,
        now: Now,
        ask: AskId,
        command: &serde_json::Value,
        out: &mut Outbox,
    ) {
        if command["prefix"] == "status" {
            let status = serde_json::json!({
                "whoami": self.rank().unwrap_or(-1),
                "id": self.config.gid,
                "want_state": self.heart.wanted.name(),
                "state": self.state().name(),
                "mdsmap_epoch": self.epoch().0,
                "osdmap_epoch": self.osd.epoch.0,
                "osdmap_epoch_barrier": 0,
            });
            let output = serde_json::to_string_pretty(&status).unwrap_or_default().into();
            out.push(Effect::Answer { ask, r: 0, rs: String::new(), output });
            return;
        }
        let prefix = command["prefix"].as_str().unwrap_or_default();
        if self.rank.is_none() && prefix.starts_with("counter ") {
            // It counts nothing yet, and lives.
            out.push(Effect::Answer { ask, r: 0, rs: String::new(), output: "{}".into() });
            return;
        }
        if self.rank.is_none() {
            let rs = "this server has no rank".to_owned();
            let output = bytes::Bytes::new();
            out.push(Effect::Answer { ask, r: Errno::NOSYS.0, rs, output });
            return;
        }
        self.with_rank(now, out, |r| r.on_command(ask, command));
    }

    /// Some time has passed.
    pub fn on_tick(&mut self, now: Now, out: &mut Outbox) {
        let laggy = self.heart.is_laggy(now);
        self.with_rank(now, out, |r| {
            r.laggy = laggy;
            r.on_tick();
        });
        if self.heart.is_due(now) {
            self.heart.health = self.rank.as_ref().map(|r| r.health()).unwrap_or_default();
        }
        self.heart.tick(now, self.epoch(), out);
    }

    /// The process has taken so many bytes of memory, as its allocator counts them. To be told about
    /// once a second: it is what `mds_cache_memory_limit` is held against.
    pub fn on_memory(&mut self, taken: u64) {
        if let Some(rank) = &mut self.rank {
            rank.on_memory(taken);
        }
    }

    /// The process is asked to end. Where another server stands by, or this one serves nothing, the
    /// monitors hear of it at once. Where none does (`alone`), all is written to the tree first, the
    /// peer's journal is left clean and the sessions stay: the next server goes on with them. The
    /// driver goes on until a beacon says [`MdsState::DNE`], and ends.
    pub fn on_stop(&mut self, now: Now, alone: bool, out: &mut Outbox) {
        let mut leaves = false;
        if alone {
            self.with_rank(now, out, |r| leaves = r.leave());
        }
        if !leaves {
            self.heart.want(MdsState::DNE, now, self.epoch(), out);
        }
    }
}

impl Rank {
    fn on_message(
        &mut self,
        conn: ConnId,
        peer: &Peer,
        envelope: &Envelope,
    ) -> Result<(), denc::DecodeError> {
        let client = peer.id.num;
        let known = self.sessions.by_conn.get(&conn) == Some(&client);
        match envelope.kind {
            ClientSession::KIND => {
                self.on_session(conn, peer, &ClientSession::decode(envelope)?);
            }
            ClientReconnect::KIND => {
                self.on_reconnect(conn, peer, &ClientReconnect::decode(envelope)?);
            }
            ClientRequest::KIND => {
                self.on_request(conn, peer, envelope.tid, ClientRequest::decode(envelope)?);
            }
            ClientCaps::KIND => {
                let m = ClientCaps::decode(envelope)?;
                if self.is_too_early(Some(m.ino), client) {
                    self.later(conn, peer, Later::Caps(envelope.tid, Box::new(m)));
                } else if known {
                    self.on_caps(client, &m, envelope.tid);
                }
            }
            ClientCapRelease::KIND => {
                let m = ClientCapRelease::decode(envelope)?;
                if self.is_too_early(None, client) {
                    self.later(conn, peer, Later::Release(Box::new(m)));
                } else if known {
                    self.on_cap_release(client, &m);
                }
            }
            ClientLease::KIND if known => self.on_lease(client, &ClientLease::decode(envelope)?),
            ClientReclaim::KIND if known => {
                self.on_reclaim(client, &ClientReclaim::decode(envelope)?);
            }
            // Measurements, and what sessions that ended had on their way.
            kind => tracing::debug!(kind, %peer.id, "a message that nobody waits for"),
        }
        Ok(())
    }
}
