//! The client as a whole: its parts, and where events go.

use std::collections::BTreeMap;

use denc::DecodeError;
use env::Now;
use maps::{MdsInfo, MdsMap, MdsState};
use messages::fs::{
    Caller, ClientCaps, ClientLease, ClientQuota, ClientReply, ClientRequestForward, ClientSession,
    ClientSnap, lease_action,
};
use messages::{Envelope, Message};
use types::{Errno, Features, Ino, UTime};

use crate::Out;
use crate::caps::File;
use crate::realms::Realms;
use crate::requests::Request;
use crate::sessions::{Life, Session};

/// Who the client is.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// What servers show of it: `hostname`, `entity_id`, `root`, …; `root` is judged by the key's caps.
    pub metadata: BTreeMap<String, String>,
    /// For whom requests are made.
    pub caller: Caller,
}

/// See the crate's page.
#[derive(Debug, Default)]
pub struct Client {
    pub(crate) config: Config,
    pub(crate) map: Option<MdsMap>,
    pub(crate) sessions: BTreeMap<i32, Session>,
    pub(crate) requests: BTreeMap<u64, Request>,
    pub(crate) files: BTreeMap<Ino, File>,
    pub(crate) realms: Realms,
    pub(crate) last_tid: u64,
    pub(crate) last_flush: u64,
    /// Why no server takes this client: it is shut out, or its key does not allow it.
    pub(crate) refused: Option<Errno>,
    /// Requests that were answered before they were durable, and lost with their server's session.
    pub(crate) lost: u64,
    pub(crate) closing: bool,
}

impl Client {
    /// Without a map.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self { config, ..Self::default() }
    }

    /// The newest map of the file system.
    #[must_use]
    pub fn map(&self) -> Option<&MdsMap> {
        self.map.as_ref()
    }

    /// Why servers refuse this client, if they do.
    #[must_use]
    pub fn refused(&self) -> Option<Errno> {
        self.refused
    }

    /// How many changes were answered and then lost with the session of their server.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// The server of a rank.
    pub(crate) fn info(&self, rank: i32) -> Option<&MdsInfo> {
        let map = self.map.as_ref()?;
        map.mds_info.get(map.up.get(&rank)?)
    }

    /// The first rank that serves.
    pub(crate) fn some_rank(&self) -> Option<i32> {
        let map = self.map.as_ref()?;
        let serves = |rank: &&i32| self.info(**rank).is_some_and(|i| i.state == MdsState::ACTIVE);
        map.up.keys().find(serves).copied()
    }

    /// A newer map: sessions follow their ranks to other servers, requests go out that waited.
    pub fn on_map(&mut self, now: Now, map: MdsMap, out: &mut Vec<Out>) {
        if self.map.as_ref().is_some_and(|old| old.epoch >= map.epoch) {
            return;
        }
        self.map = Some(map);
        let ranks: Vec<i32> = self.sessions.keys().copied().collect();
        for rank in ranks {
            self.follow(rank, out);
        }
        self.send_requests(now, out);
        out.push(Out::Changed);
    }

    /// The connection to a rank is ready.
    pub fn on_opened(&mut self, now: Now, rank: i32, features: Features, out: &mut Vec<Out>) {
        let Some(session) = self.sessions.get_mut(&rank) else { return };
        session.features = Some(features);
        match session.life {
            Life::Opening => self.ask_open(rank, out),
            Life::Reconnecting => self.reconnect(now, rank, out),
            // The messenger made the connection good.
            Life::Open | Life::Closing | Life::Away => {}
        }
    }

    /// The connection to a rank ended for good. At the next tick the rank's server is asked, by a
    /// connection of its own, whether it still knows this client.
    pub fn on_closed(&mut self, rank: i32, out: &mut Vec<Out>) {
        self.cut_off(rank, out);
        out.push(Out::Changed);
    }

    /// A message of a rank.
    ///
    /// # Errors
    /// [`DecodeError`]: the driver closes the connection and calls [`Client::on_closed`].
    pub fn on_message(
        &mut self,
        now: Now,
        rank: i32,
        env: &Envelope,
        out: &mut Vec<Out>,
    ) -> Result<(), DecodeError> {
        if !self.sessions.contains_key(&rank) {
            return Ok(());
        }
        match env.kind {
            ClientSession::KIND => {
                self.on_session(now, rank, ClientSession::decode(env)?, out);
            }
            ClientReply::KIND => self.on_reply(now, rank, env, out)?,
            ClientRequestForward::KIND => {
                self.on_forward(now, env.tid, ClientRequestForward::decode(env)?, out);
            }
            ClientCaps::KIND => {
                let m = ClientCaps::decode(env)?;
                self.pushed(rank, out);
                self.on_caps(rank, m, env.tid, out)?;
            }
            ClientSnap::KIND => {
                let m = ClientSnap::decode(env)?;
                self.pushed(rank, out);
                self.on_snap(m, out)?;
            }
            ClientLease::KIND => {
                let m = ClientLease::decode(env)?;
                self.pushed(rank, out);
                // No entry is cached, so that all of them can be taken back.
                if m.action == lease_action::REVOKE {
                    let answer = ClientLease { action: lease_action::RELEASE, ..m };
                    self.send(rank, &answer, 0, out);
                }
            }
            ClientQuota::KIND => self.pushed(rank, out),
            kind => tracing::debug!("rank {rank} sent a message of type {kind:#x}"),
        }
        Ok(())
    }

    /// Renews sessions, gives back caps that were not needed.
    pub fn on_tick(&mut self, now: Now, out: &mut Vec<Out>) {
        let ranks: Vec<i32> = self.sessions.keys().copied().collect();
        for rank in ranks {
            self.come_back(rank, out);
            self.renew(now, rank, out);
            self.send_releases(rank, out);
        }
        self.send_requests(now, out);
    }

    /// Sends to a rank whose session has a connection; else the message is lost.
    pub(crate) fn send<M: Message>(&self, rank: i32, m: &M, tid: u64, out: &mut Vec<Out>) {
        if let Some(features) = self.sessions.get(&rank).and_then(|s| s.features) {
            out.push(Out::Send(rank, m.envelope(features).with_tid(tid)));
        }
    }
}

/// The time as messages have it.
pub(crate) fn stamp(now: Now) -> UTime {
    UTime::from_nanos(now.wall_ns)
}
