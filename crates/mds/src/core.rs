//! The server: which events go where.

use env::{ConnId, Now};
use maps::{MdsMap, MdsState};
use messages::Envelope;
use types::{Epoch, Errno};

use crate::beacon::Heart;
use crate::{AskId, Config, Effect, IoAnswer, IoId, OsdNews, Outbox, Peer};

/// A metadata server. See the crate's documentation for its events.
#[derive(Debug)]
pub struct Mds {
    config: Config,
    map: Option<MdsMap>,
    osd: OsdNews,
    heart: Heart,
}

impl Mds {
    /// A server that no map knows yet.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let heart = Heart::new(config.options.beacon_interval_ms);
        Self { config, map: None, osd: OsdNews::default(), heart }
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
        self.map = Some(map.clone());
        let state = self.state();
        if known && state == MdsState::BOOT {
            let why = "the map has this server no longer".to_owned();
            out.push(Effect::Respawn { why });
            return;
        }
        if state != MdsState::BOOT {
            self.heart.wanted = state;
        }
        self.heart.tick(now, self.epoch(), out);
    }

    /// A newer map of OSDs.
    pub fn on_osd_map(&mut self, _now: Now, news: &OsdNews, _out: &mut Outbox) {
        if news.epoch > self.osd.epoch {
            self.osd = news.clone();
        }
    }

    /// The monitors answered beacon `seq`.
    pub fn on_beacon_ack(&mut self, _now: Now, seq: u64, _out: &mut Outbox) {
        self.heart.acked(seq);
    }

    /// A message of a client.
    pub fn on_message(
        &mut self,
        _now: Now,
        conn: ConnId,
        peer: &Peer,
        envelope: Envelope,
        out: &mut Outbox,
    ) {
        tracing::debug!(kind = envelope.kind, %peer.id, "no rank is served");
        out.push(Effect::Close(conn));
    }

    /// A client's connection is gone for good: no message follows, and what was sent over it may
    /// be lost.
    pub fn on_closed(&mut self, _now: Now, _conn: ConnId, _out: &mut Outbox) {}

    /// An [`crate::Io`] or [`Effect::Blocklist`] ended. ENOENT, and whatever else the OSDs said.
    pub fn on_done(
        &mut self,
        _now: Now,
        id: IoId,
        _result: Result<IoAnswer, Errno>,
        _out: &mut Outbox,
    ) {
        tracing::debug!(io = id.0, "an answer to nothing");
    }

    /// A command: an object with `prefix` and arguments.
    pub fn on_command(
        &mut self,
        _now: Now,
        ask: AskId,
        command: &serde_json::Value,
        out: &mut Outbox,
    ) {
        let prefix = command["prefix"].as_str().unwrap_or_default();
        out.push(Effect::Answer {
            ask,
            r: Errno::NOSYS.0,
            rs: format!("unknown command '{prefix}'"),
            output: bytes::Bytes::new(),
        });
    }

    /// Some time has passed.
    pub fn on_tick(&mut self, now: Now, out: &mut Outbox) {
        self.heart.tick(now, self.epoch(), out);
    }

    /// The process is asked to end: the monitors give the rank to another. The driver sends what
    /// comes out, and ends.
    pub fn on_stop(&mut self, now: Now, out: &mut Outbox) {
        self.heart.want(MdsState::DNE, now, self.epoch(), out);
    }
}
