//! What monitors say to each other beside their logs: who they are and whom they follow,
//! clients' messages on their way to the leader, and the answers on their way back.
//!
//! Ours, version 1; the page is `docs/protocols/quorum.md`. Three kinds of message travel
//! between monitors: [`LOG_ASK`] and [`LOG_ANSWER`] belong to [`crate::quorum`], told apart
//! by their tid; [`SAYS`] holds a [`PeerSays`].

use bytes::Bytes;
use denc::{DecodeError, Denc, Features, Reader, Writer};
use env::ConnId;
use messages::Envelope;
use types::{AddrVec, EntityId, EntityName, Epoch, UTime, Uuid};

use crate::Mutation;
use crate::links::own_message;

/// A request to the other's log; the front is the request.
pub const LOG_ASK: u16 = 0x8100;
/// Its answer, under the same tid.
pub const LOG_ANSWER: u16 = 0x8101;
/// A [`PeerSays`].
pub const SAYS: u16 = 0x8102;

/// Who is behind a client's connection, as the monitor it came to knows.
#[derive(Clone, Debug, PartialEq)]
pub struct Who {
    pub(crate) name: EntityName,
    pub(crate) entity: EntityId,
    pub(crate) global_id: u64,
    pub(crate) caps: String,
    pub(crate) allow_all: bool,
    pub(crate) features: Features,
    pub(crate) addrs: AddrVec,
    pub(crate) at_mgr: bool,
    pub(crate) hostname: String,
}

/// Which monitors agree, as the leader sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QuorumNews {
    /// The election's number, as upstream's tools show it: even.
    pub election_epoch: u32,
    /// The leader's name.
    pub leader: String,
    /// Names of those that agree.
    pub names: Vec<String>,
    /// For how long these have agreed, in milliseconds.
    pub age_ms: u64,
}

/// One thing said by one monitor to another.
#[derive(Clone, Debug)]
pub enum PeerSays {
    /// The first on a connection, both ways.
    Hello {
        /// The cluster.
        fsid: Uuid,
        /// The sender's number in the quorum.
        node: u64,
        /// Its name in the monitor map.
        name: String,
    },
    /// Whom the sender follows.
    Status {
        /// Of its log.
        term: u64,
        /// The leader it has heard of lately.
        leader: Option<u64>,
    },
    /// From the leader: who agrees.
    Quorum(QuorumNews),
    /// To the leader: a client's message.
    Forward {
        /// The sender's number for it.
        rid: u64,
        /// The client's connection there.
        conn: ConnId,
        /// Who the client is; once for each connection and leader is enough.
        who: Option<Box<Who>>,
        /// The message.
        env: Envelope,
    },
    /// To the leader: a client is gone.
    Gone {
        /// Its connection.
        conn: ConnId,
    },
    /// From the leader: something for a client, once the entry `index` is known there;
    /// nothing closes its connection.
    Route {
        /// The client's connection.
        conn: ConnId,
        /// The entry to wait for.
        index: u64,
        /// The message.
        env: Option<Envelope>,
    },
    /// From the leader: nothing more comes for that message.
    Done {
        /// Its number.
        rid: u64,
    },
    /// From the leader: the client has OSD maps up to `has`; give it the newer ones.
    CatchUp {
        /// The client's connection.
        conn: ConnId,
        /// The entry to wait for.
        index: u64,
        /// The newest map it has.
        has: Epoch,
        /// Subscribe it too, if it is not.
        subscribe: bool,
    },
    /// To the leader: how far must one know the log to answer a read now?
    ReadAsk {
        /// Comes back.
        id: u64,
    },
    /// From the leader: so far.
    ReadAt {
        /// Of the question.
        id: u64,
        /// The entry.
        index: u64,
    },
    /// To the leader: changes that the sender itself wants.
    Wish(Vec<Mutation>),
    /// To the leader: global ids are running out.
    IdsAsk,
    /// From the leader: these are the receiver's alone.
    Ids {
        /// The first.
        from: u64,
        /// Behind the last.
        below: u64,
    },
    /// From the leader: an OSD's statistics, as it sent them.
    Stats {
        /// The front of the message.
        front: Bytes,
    },
    /// Statistics of all OSDs are wanted: the sender has none.
    StatsAsk,
    /// From who knows a leader: the receiver is not in the monitor map, and does not count.
    Removed {
        /// Of the map.
        epoch: Epoch,
    },
}

fn put_env(w: &mut Writer, env: &Envelope) {
    w.u64(env.tid);
    for word in [env.kind, env.priority, env.version, env.compat, env.data_off] {
        w.u16(word);
    }
    for segment in [&env.front, &env.middle, &env.data] {
        w.blob(segment);
    }
}

fn get_env(r: &mut Reader<'_>) -> Result<Envelope, DecodeError> {
    Ok(Envelope {
        tid: r.u64()?,
        kind: r.u16()?,
        priority: r.u16()?,
        version: r.u16()?,
        compat: r.u16()?,
        data_off: r.u16()?,
        front: r.blob()?,
        middle: r.blob()?,
        data: r.blob()?,
        data_sums: None,
    })
}

impl Who {
    fn encode(&self, w: &mut Writer) {
        self.name.encode(w);
        self.entity.encode(w);
        w.u64(self.global_id);
        w.str(&self.caps);
        w.bool(self.allow_all);
        w.u64(self.features.0);
        self.addrs.encode(w);
        w.bool(self.at_mgr);
        w.str(&self.hostname);
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            name: Denc::decode(r)?,
            entity: Denc::decode(r)?,
            global_id: r.u64()?,
            caps: r.string()?,
            allow_all: r.bool()?,
            features: Features(r.u64()?),
            addrs: Denc::decode(r)?,
            at_mgr: r.bool()?,
            hostname: r.string()?,
        })
    }
}

impl PeerSays {
    /// As a message.
    #[must_use]
    pub fn envelope(&self) -> Envelope {
        let mut w = Writer::new(Features::ALL);
        self.encode(&mut w);
        own_message(SAYS, 0, w.finish())
    }

    /// Reads a message of the kind [`SAYS`].
    ///
    /// # Errors
    /// [`DecodeError`].
    pub fn decode(env: &Envelope) -> Result<Self, DecodeError> {
        let mut r = Reader::shared(&env.front);
        let says = Self::read(&mut r)?;
        r.finish()?;
        Ok(says)
    }

    fn encode(&self, w: &mut Writer) {
        match self {
            Self::Hello { fsid, node, name } => {
                w.u8(1);
                fsid.encode(w);
                w.u64(*node);
                w.str(name);
            }
            Self::Status { term, leader } => {
                w.u8(2);
                w.u64(*term);
                w.bool(leader.is_some());
                w.u64(leader.unwrap_or(0));
            }
            Self::Quorum(q) => {
                w.u8(3);
                w.u32(q.election_epoch);
                w.str(&q.leader);
                w.seq(&q.names, |w, n| w.str(n));
                w.u64(q.age_ms);
            }
            Self::Forward { rid, conn, who, env } => {
                w.u8(4);
                w.u64(*rid);
                w.u64(conn.0);
                w.bool(who.is_some());
                if let Some(who) = who {
                    who.encode(w);
                }
                put_env(w, env);
            }
            Self::Gone { conn } => {
                w.u8(5);
                w.u64(conn.0);
            }
            Self::Route { conn, index, env } => {
                w.u8(6);
                w.u64(conn.0);
                w.u64(*index);
                w.bool(env.is_some());
                if let Some(env) = env {
                    put_env(w, env);
                }
            }
            Self::Done { rid } => {
                w.u8(7);
                w.u64(*rid);
            }
            Self::CatchUp { conn, index, has, subscribe } => {
                w.u8(8);
                w.u64(conn.0);
                w.u64(*index);
                has.encode(w);
                w.bool(*subscribe);
            }
            Self::ReadAsk { id } => {
                w.u8(9);
                w.u64(*id);
            }
            Self::ReadAt { id, index } => {
                w.u8(10);
                w.u64(*id);
                w.u64(*index);
            }
            Self::Wish(mutations) => {
                w.u8(11);
                mutations.encode(w);
            }
            Self::IdsAsk => w.u8(12),
            Self::Ids { from, below } => {
                w.u8(13);
                w.u64(*from);
                w.u64(*below);
            }
            Self::Stats { front } => {
                w.u8(14);
                w.blob(front);
            }
            Self::StatsAsk => w.u8(15),
            Self::Removed { epoch } => {
                w.u8(16);
                epoch.encode(w);
            }
        }
    }

    fn read(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(match r.u8()? {
            1 => Self::Hello { fsid: Denc::decode(r)?, node: r.u64()?, name: r.string()? },
            2 => {
                let (term, known, leader) = (r.u64()?, r.bool()?, r.u64()?);
                Self::Status { term, leader: known.then_some(leader) }
            }
            3 => Self::Quorum(QuorumNews {
                election_epoch: r.u32()?,
                leader: r.string()?,
                names: r.seq(|r| r.string())?,
                age_ms: r.u64()?,
            }),
            4 => {
                let (rid, conn) = (r.u64()?, ConnId(r.u64()?));
                let who = if r.bool()? { Some(Box::new(Who::decode(r)?)) } else { None };
                Self::Forward { rid, conn, who, env: get_env(r)? }
            }
            5 => Self::Gone { conn: ConnId(r.u64()?) },
            6 => {
                let (conn, index) = (ConnId(r.u64()?), r.u64()?);
                let env = if r.bool()? { Some(get_env(r)?) } else { None };
                Self::Route { conn, index, env }
            }
            7 => Self::Done { rid: r.u64()? },
            8 => Self::CatchUp {
                conn: ConnId(r.u64()?),
                index: r.u64()?,
                has: Denc::decode(r)?,
                subscribe: r.bool()?,
            },
            9 => Self::ReadAsk { id: r.u64()? },
            10 => Self::ReadAt { id: r.u64()?, index: r.u64()? },
            11 => Self::Wish(Denc::decode(r)?),
            12 => Self::IdsAsk,
            13 => Self::Ids { from: r.u64()?, below: r.u64()? },
            14 => Self::Stats { front: r.blob()? },
            15 => Self::StatsAsk,
            16 => Self::Removed { epoch: Denc::decode(r)? },
            _ => {
                return Err(DecodeError::Invalid {
                    what: "monitor's message",
                    rule: "its kind is known",
                });
            }
        })
    }
}

/// A session's identity for the leader.
pub(crate) fn who(session: &crate::session::Session) -> Box<Who> {
    let (info, identity) = (&session.info, &session.identity);
    Box::new(Who {
        name: info.name.clone(),
        entity: info.entity,
        global_id: info.global_id,
        caps: identity.caps.clone(),
        allow_all: identity.allow_all,
        features: info.features,
        addrs: info.addrs.clone(),
        at_mgr: session.at_mgr,
        hostname: info.hostname.clone(),
    })
}

/// The leader's side of it.
pub(crate) fn peer_info(who: Who) -> (crate::PeerInfo, String) {
    let identity = auth::PeerIdentity {
        name: who.name,
        global_id: who.global_id,
        caps: who.caps,
        allow_all: who.allow_all,
        created: UTime::ZERO,
        expires: UTime::ZERO,
        ..auth::PeerIdentity::default()
    };
    let info = crate::PeerInfo {
        identity,
        entity: who.entity,
        features: who.features,
        addrs: who.addrs,
        at_mgr: who.at_mgr,
    };
    (info, who.hostname)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Everything reads back as the same bytes; every cut-off copy is refused.
    #[test]
    fn messages_round_trip() {
        let env = Envelope {
            tid: 9,
            kind: 50,
            front: Bytes::from_static(b"front"),
            data: Bytes::from_static(b"data"),
            ..Envelope::default()
        };
        let who = Who {
            name: "client.admin".parse().unwrap(),
            entity: EntityId::default(),
            global_id: 4100,
            caps: "allow *".into(),
            allow_all: false,
            features: Features::ALL,
            addrs: AddrVec::default(),
            at_mgr: true,
            hostname: "h".into(),
        };
        let conn = ConnId(7);
        let news = QuorumNews {
            election_epoch: 4,
            leader: "a".into(),
            names: vec!["a".into(), "b".into()],
            age_ms: 5,
        };
        let all = [
            PeerSays::Hello { fsid: Uuid([3; 16]), node: 1, name: "b".into() },
            PeerSays::Status { term: 3, leader: Some(2) },
            PeerSays::Quorum(news),
            PeerSays::Forward { rid: 1, conn, who: Some(Box::new(who)), env: env.clone() },
            PeerSays::Forward { rid: 1, conn, who: None, env: env.clone() },
            PeerSays::Gone { conn },
            PeerSays::Route { conn, index: 4, env: Some(env) },
            PeerSays::Route { conn, index: 4, env: None },
            PeerSays::Done { rid: 1 },
            PeerSays::CatchUp { conn, index: 4, has: Epoch(3), subscribe: true },
            PeerSays::ReadAsk { id: 1 },
            PeerSays::ReadAt { id: 1, index: 2 },
            PeerSays::Wish(vec![Mutation::GlobalIds { below: 9 }]),
            PeerSays::IdsAsk,
            PeerSays::Ids { from: 1, below: 2 },
            PeerSays::Stats { front: Bytes::from_static(b"s") },
            PeerSays::StatsAsk,
            PeerSays::Removed { epoch: Epoch(7) },
        ];
        for says in all {
            let env = says.envelope();
            assert_eq!(PeerSays::decode(&env).unwrap().envelope(), env);
            for cut in 0..env.front.len() {
                let short = Envelope { front: env.front.slice(..cut), ..env.clone() };
                assert!(PeerSays::decode(&short).is_err());
            }
        }
    }
}
