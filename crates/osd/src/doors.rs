//! Who may say what to an OSD, by which door: the table that the dispatcher reads before a message
//! is decoded.
//!
//! A kind of message that is in no line of [`Kind`] is not taken; a kind without a rule, or a rule
//! without a handler, does not compile. What a monitor says comes over the connection that this
//! OSD made to it, which is no door: [`crate::Osd::on_mon_message`] takes the kinds of [`MON_KINDS`].
//!
//! What may be trusted: the session's name and caps are those of its ticket, which is for `osd`, and
//! its door is the socket that it came by.

use messages::*;

use crate::session::Session;

/// By which address of this OSD a connection came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Door {
    /// That of clients.
    #[default]
    Public,
    /// That of OSDs and their heartbeats; also what this OSD dialled.
    Cluster,
}

/// Whose ticket it must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sender {
    /// Anybody's that was proven.
    Anybody,
    /// An OSD's, by its number.
    Osd,
}

/// What the sender's caps must hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Needs {
    /// Nothing: who sends it is enough.
    Nothing,
    /// What the contents ask for: the handler judges.
    Contents,
}

/// What a message occupies until it is done with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cost {
    /// Nothing beyond the call.
    Here,
    /// Its bytes and those that it will bring, counted to its connection ([`crate::load`]).
    Request,
    /// Its bytes until they are durable: as many as its sender, an OSD, has been let to send.
    Copy,
}

/// A line of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rule {
    pub door: Door,
    pub sender: Sender,
    pub needs: Needs,
    pub cost: Cost,
}

/// One line for each kind of message: name, and the rule.
macro_rules! kinds {
    ($($name:ident: $door:ident, $sender:ident, $needs:ident, $cost:ident;)*) => {
        /// A kind of message that OSDs take.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Kind {
            $($name,)*
        }

        impl Kind {
            #[cfg(test)]
            pub(crate) const ALL: &[(Self, u16)] = &[$((Self::$name, $name::KIND),)*];

            /// By a message's number; `None` for what no OSD takes.
            pub(crate) fn of(number: u16) -> Option<Self> {
                $(if number == $name::KIND {
                    return Some(Self::$name);
                })*
                None
            }

            /// Its line.
            pub(crate) fn rule(self) -> Rule {
                match self {
                    $(Self::$name => Rule {
                        door: Door::$door,
                        sender: Sender::$sender,
                        needs: Needs::$needs,
                        cost: Cost::$cost,
                    },)*
                }
            }
        }
    };
}

#[rustfmt::skip]
kinds! {
    MOsdOp:     Public,  Anybody, Contents, Request;
    Command:    Public,  Anybody, Contents, Here;
    Backoff:    Public,  Anybody, Nothing,  Here;
    RepOp:      Cluster, Osd,     Nothing,  Copy;
    RepOpReply: Cluster, Osd,     Nothing,  Here;
    OsdPeer:    Cluster, Osd,     Nothing,  Copy;
    OsdPart:    Cluster, Osd,     Nothing,  Copy;
    OsdPing:    Cluster, Osd,     Nothing,  Here;
    OsdMapMsg:  Cluster, Osd,     Nothing,  Here;
}

/// What is taken of monitors.
pub(crate) const MON_KINDS: &[u16] = &[
    OsdMapMsg::KIND,
    ClassModules::KIND,
    PgStatsAck::KIND,
    ForceRecovery::KIND,
    ScrubRequest::KIND,
];

impl Rule {
    /// Whether a message of this kind is taken from a session; `Err` says why not.
    pub(crate) fn admits(&self, session: &Session) -> Result<(), &'static str> {
        if self.door != session.door {
            return Err("not by this door");
        }
        if self.sender == Sender::Osd && session.osd().is_none() {
            return Err("from OSDs alone");
        }
        match self.needs {
            // Caps of which nothing could be read allow no contents; the handler says so.
            Needs::Nothing | Needs::Contents => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::caps::Caps;
    use types::{EntityAddr, EntityId, EntityKind, EntityName, Epoch, Features};

    fn session(kind: EntityKind, num: i64, door: Door) -> Session {
        Session {
            who: EntityId::new(kind, num),
            name: EntityName::new(kind, num.to_string()),
            addr: EntityAddr::default(),
            from: EntityAddr::default(),
            features: Features::ALL,
            caps: Caps::all(),
            epoch: Epoch(0),
            load: crate::load::Load::new(1),
            door,
            told: stdx::SayBudget::default(),
        }
    }

    /// Each kind has a number of its own, and is found by it.
    #[test]
    fn kinds_are_found() {
        for (kind, number) in Kind::ALL {
            assert_eq!(Kind::of(*number), Some(*kind), "two kinds have number {number:#x}");
        }
        assert_eq!(Kind::of(0), None);
        assert_eq!(Kind::of(MOsdOpReply::KIND), None);
    }

    /// Whatever its caps, a client is heard at the public door alone, and about no OSD's business;
    /// an OSD's key opens the cluster's door, and at the public one it is a client's. A key that
    /// names no number is no OSD's.
    #[test]
    fn each_door_has_its_guests() {
        let admitted = |kind, num, door| {
            let session = session(kind, num, door);
            let all = Kind::ALL.iter().filter(|(k, _)| k.rule().admits(&session).is_ok());
            all.map(|(k, _)| *k).collect::<Vec<_>>()
        };
        let of_clients = [Kind::MOsdOp, Kind::Command, Kind::Backoff];
        for kind in [EntityKind::CLIENT, EntityKind::MGR, EntityKind::MON, EntityKind::MDS] {
            assert_eq!(admitted(kind, 0, Door::Public), of_clients);
            assert_eq!(admitted(kind, 0, Door::Cluster), []);
        }
        assert_eq!(admitted(EntityKind::OSD, 0, Door::Public), of_clients);
        assert_eq!(admitted(EntityKind::OSD, -1, Door::Cluster), []);
        assert_eq!(admitted(EntityKind::OSD, 3, Door::Cluster).len(), Kind::ALL.len() - 3);
    }

    /// What clients may make an OSD hold is counted to their connections.
    #[test]
    fn what_clients_send_is_counted_or_costs_nothing() {
        for (kind, _) in Kind::ALL {
            let rule = kind.rule();
            let counted = matches!(rule.cost, Cost::Here | Cost::Request);
            assert!(rule.sender == Sender::Osd || counted, "{kind:?}");
        }
    }
}
