//! A client takes over what one that died with the same uuid left: gateways that are started again.
//!
//! Source: the peer's `Server::reclaim_session`.

use bytes::Bytes;
use messages::fs::{ClientReclaim, ClientReclaimReply};
use types::{AddrVec, Errno};

use crate::rank::Rank;
use crate::session::Life;

impl Rank {
    /// The session with a uuid.
    fn session_of(&self, uuid: &Bytes) -> Option<i64> {
        let mut all = self.sessions.by_client.iter();
        let found = all.find(|(_, s)| s.info.metadata.kv.get(&b"uuid"[..]) == Some(uuid));
        found.map(|(client, _)| *client)
    }

    /// Whether another client has that uuid.
    pub fn has_uuid(&self, uuid: &Bytes, but: i64) -> bool {
        !uuid.is_empty() && self.session_of(uuid).is_some_and(|client| client != but)
    }

    pub fn on_reclaim(&mut self, client: i64, m: &ClientReclaim) {
        if m.flags & ClientReclaim::FINISH != 0 {
            return; // nothing is kept between the two: a session is reclaimed at once
        }
        let mut reply = ClientReclaimReply { epoch: self.world.osd.epoch, ..Default::default() };
        let Some(session) = self.sessions.by_client.get(&client) else { return };
        let name = session.info.auth_name.clone();
        if m.uuid.is_empty() {
            reply.result = Errno::INVAL.0;
        } else if m.flags != ClientReclaim::RESET {
            reply.result = Errno::OPNOTSUPP.0;
        } else if let Some(target) = self.session_of(&m.uuid).filter(|t| *t != client) {
            let from = &self.sessions.by_client[&target];
            if from.info.auth_name == name {
                self.sessions.reclaims.insert(target, client);
                if from.life != Life::Killing {
                    self.evict(target);
                }
                return;
            }
            reply.result = Errno::PERM.0;
        }
        self.send(client, &reply, 0);
    }

    /// A session ended: who waits for that hears which addresses it had.
    pub fn reclaimed(&mut self, target: i64, addr: types::EntityAddr) {
        let Some(client) = self.sessions.reclaims.remove(&target) else { return };
        let addrs = AddrVec(vec![addr]);
        let reply = ClientReclaimReply { result: 0, epoch: self.world.osd.epoch, addrs };
        self.send(client, &reply, 0);
    }
}
