//! Who may say what here, by which door: the table that the dispatcher reads before a message
//! is decoded.
//!
//! A kind of message that is in no line of [`Kind`] is not taken; a kind without a rule, or a
//! rule without a handler, does not compile. The same holds for subscriptions ([`Topic`]).
//!
//! What may be trusted: the service that a session's ticket is for decides by which grammar
//! its caps are read. At the manager's door they are the manager's, and say nothing about
//! monitors; see [`crate::SessionInfo`].

use messages::fs::{MdsBeacon, MdsLoadTargets};
use messages::*;
use types::EntityKind;

use crate::session::Session;

/// By which addresses a message may come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Door {
    /// Those of the monitor: the ticket is for `mon`.
    Monitor,
    /// Those of the manager's role: the ticket is for `mgr`.
    Manager,
    /// The monitors' port and the manager's.
    Both,
}

/// Whose ticket it must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sender {
    /// Anybody's that was proven.
    Anybody,
    /// An OSD's; the handler compares the number.
    Osd,
    /// A metadata server's; the handler compares name and session.
    Mds,
    /// A manager's; the handler compares name and session.
    Mgr,
}

/// What the sender's caps must hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Needs {
    /// Needs no cap: whoever has a session may send it.
    Nothing,
    /// Rights (letters of `rwx`) on a service of the monitors.
    Cap(&'static str, &'static str),
    /// What the contents ask for: the handler judges.
    Contents,
}

/// What a message costs: where it is answered, and so what it occupies until then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cost {
    /// Answered by every monitor at once.
    Here,
    /// By every monitor that knows the log far enough.
    Read,
    /// By the leader: kept until it says that nothing more comes.
    Leader,
    /// By the leader; not kept, since it is soon said again.
    LeaderOnce,
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
    ($($name:ident: $door:ident, $sender:ident, $needs:expr, $cost:ident;)*) => {
        /// A kind of message that monitors take.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Kind {
            $($name,)*
        }

        impl Kind {
            #[cfg(test)]
            pub(crate) const ALL: &[(Self, u16)] = &[$((Self::$name, $name::KIND),)*];

            /// By a message's number; `None` for what no monitor takes.
            pub(crate) fn of(number: u16) -> Option<Self> {
                $(if number == $name::KIND {
                    return Some(Self::$name);
                })*
                None
            }

            /// Its line.
            pub(crate) fn rule(self) -> Rule {
                #[allow(clippy::enum_glob_use, reason = "the table reads as words")]
                use {Cost::*, Needs::*, Sender::*};
                match self {
                    $(Self::$name => Rule {
                        door: Door::$door,
                        sender: $sender,
                        needs: $needs,
                        cost: $cost,
                    },)*
                }
            }
        }
    };
}

#[rustfmt::skip]
kinds! {
    Ping:           Monitor, Anybody, Nothing,          Here;
    MonGetMap:      Monitor, Anybody, Nothing,          Here;
    MonSubscribe:   Monitor, Anybody, Contents,         Here;
    Auth:           Monitor, Anybody, Nothing,          Here;
    MonGetVersion:  Monitor, Anybody, Nothing,          Read;
    MonGetOsdMap:   Monitor, Anybody, Cap("osd", "r"),  Read;
    GetConfig:      Monitor, Anybody, Contents,         Read;
    Statfs:         Monitor, Anybody, Cap("pg", "r"),   Leader;
    GetPoolStats:   Monitor, Anybody, Cap("pg", "r"),   Leader;
    PoolOp:         Monitor, Anybody, Contents,         Leader;
    MonCommand:     Monitor, Anybody, Contents,         Leader;
    LogMsg:         Monitor, Anybody, Cap("log", "w"),  Leader;
    OsdBoot:        Monitor, Osd,     Cap("osd", "x"),  Leader;
    OsdAlive:       Monitor, Osd,     Cap("osd", "x"),  Leader;
    OsdFailure:     Monitor, Osd,     Cap("osd", "x"),  Leader;
    OsdMarkMeDown:  Monitor, Osd,     Cap("osd", "x"),  Leader;
    OsdBeacon:      Monitor, Osd,     Cap("osd", "x"),  LeaderOnce;
    PgTemp:         Monitor, Osd,     Cap("osd", "x"),  Leader;
    PgStats:        Monitor, Osd,     Cap("osd", "x"),  Leader;
    PgReadyToMerge: Monitor, Osd,     Cap("osd", "x"),  Leader;
    MdsBeacon:      Monitor, Mds,     Cap("mds", "x"),  LeaderOnce;
    MdsLoadTargets: Monitor, Mds,     Cap("mds", "x"),  LeaderOnce;
    RemoveSnaps:    Monitor, Mds,     Cap("mds", "x"),  LeaderOnce;
    MgrBeacon:      Monitor, Mgr,     Cap("mgr", "x"),  LeaderOnce;
    ManagerReport:  Monitor, Mgr,     Cap("mgr", "x"),  LeaderOnce;
    MgrCommandReply: Monitor, Mgr,    Cap("mgr", "x"),  LeaderOnce;
    Command:        Both,    Anybody, Contents,         Here;
    // Of this monitor's manager role, which the map names while it leads.
    MgrOpen:        Manager, Anybody, Nothing,          Here;
    MgrReport:      Manager, Anybody, Nothing,          Here;
    MgrClose:       Manager, Anybody, Nothing,          Here;
    MgrCommand:     Manager, Anybody, Contents,         Leader;
}

impl Rule {
    /// Whether a message of this kind is taken from a session; `Err` says why not.
    pub(crate) fn admits(&self, session: &Session) -> Result<(), &'static str> {
        let here = match self.door {
            Door::Monitor => !session.at_mgr,
            Door::Manager => session.at_mgr,
            Door::Both => true,
        };
        if !here {
            return Err("not by this door");
        }
        match self.sender {
            Sender::Osd if session.info.name.kind != EntityKind::OSD => {
                return Err("from OSDs alone");
            }
            Sender::Mds if session.info.name.kind != EntityKind::MDS => {
                return Err("from metadata servers alone");
            }
            Sender::Mgr if session.info.name.kind != EntityKind::MGR => {
                return Err("from managers alone");
            }
            Sender::Anybody | Sender::Osd | Sender::Mds | Sender::Mgr => {}
        }
        match self.needs {
            Needs::Cap(service, what) if !session.may(service, what) => Err("access denied"),
            Needs::Cap(..) | Needs::Nothing | Needs::Contents => Ok(()),
        }
    }
}

/// What can be subscribed to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Topic {
    MonMap,
    Config,
    OsdMap,
    PgCreates,
    Classes,
    MgrMap,
    MgrDigest,
    FsMap,
    MdsMap,
    ServiceMap,
    Log,
    KeyValue,
}

impl Topic {
    /// By a subscription's name.
    pub(crate) fn of(name: &str) -> Option<Self> {
        Some(match name {
            "monmap" => Self::MonMap,
            "config" => Self::Config,
            "osdmap" => Self::OsdMap,
            "osd_pg_creates" => Self::PgCreates,
            "cls" => Self::Classes,
            "mgrmap" => Self::MgrMap,
            "mgrdigest" => Self::MgrDigest,
            "fsmap" | "fsmap.user" => Self::FsMap,
            "mdsmap" => Self::MdsMap,
            "servicemap" => Self::ServiceMap,
            _ if name.starts_with("mdsmap.") => Self::MdsMap,
            _ if name.starts_with("log-") => Self::Log,
            _ if name.starts_with("kv:") => Self::KeyValue,
            _ => return None,
        })
    }

    /// The rights that it takes, all of them; everything but monitor map, own settings and
    /// OSD maps takes `mon r` too, as with the peer.
    fn needs(self) -> &'static [(&'static str, &'static str)] {
        const MON: (&str, &str) = ("mon", "r");
        match self {
            Self::MonMap | Self::Config => &[],
            Self::OsdMap => &[("osd", "r")],
            Self::Classes => &[MON, ("osd", "r")],
            Self::PgCreates => &[MON, ("osd", "w")],
            Self::MgrMap | Self::ServiceMap => &[MON],
            Self::MgrDigest => &[MON, ("mgr", "x")],
            Self::FsMap | Self::MdsMap => &[MON, ("mds", "r")],
            Self::Log => &[MON, ("log", "r")],
            Self::KeyValue => &[MON, ("config-key", "r")],
        }
    }

    /// Whether a session may know of it.
    pub(crate) fn is_open_to(self, session: &Session) -> bool {
        self.needs().iter().all(|(service, what)| session.may(service, what))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PeerInfo;
    use env::ConnId;

    fn session(name: &str, caps: &str, at_mgr: bool) -> Session {
        let identity = auth::PeerIdentity {
            name: name.parse().unwrap(),
            caps: caps.into(),
            ..auth::PeerIdentity::default()
        };
        Session::new(ConnId(1), PeerInfo { identity, at_mgr, ..PeerInfo::default() })
    }

    /// Each kind has a number of its own, and is found by it.
    #[test]
    fn kinds_are_found() {
        for (kind, number) in Kind::ALL {
            assert_eq!(Kind::of(*number), Some(*kind), "two kinds have number {number:#x}");
        }
        assert_eq!(Kind::of(0), None);
        assert_eq!(Kind::of(MonCommandAck::KIND), None);
    }

    /// At the manager's door whatever is said of monitors is not taken, whatever the caps there.
    #[test]
    fn doors_keep_apart() {
        for caps in ["allow *", "allow rwx", "profile osd", "allow service osd rwx"] {
            for name in ["client.m", "osd.0"] {
                let at_mgr = session(name, caps, true);
                let at_mon = session(name, caps, false);
                for (kind, _) in Kind::ALL {
                    let rule = kind.rule();
                    if rule.door == Door::Monitor {
                        assert!(rule.admits(&at_mgr).is_err(), "{kind:?} of {name}, {caps}");
                    }
                    if rule.door == Door::Manager {
                        assert!(rule.admits(&at_mon).is_err(), "{kind:?} of {name}, {caps}");
                    }
                }
                assert!(!at_mgr.may("auth", "r") && !at_mgr.may("mon", "r"));
            }
        }
    }

    /// What OSDs say is not taken from others, nor from an OSD whose caps lack it.
    #[test]
    fn only_osds_speak_for_osds() {
        let admits = |name, caps| {
            let session = session(name, caps, false);
            let osd = Kind::ALL.iter().filter(|(k, _)| k.rule().sender == Sender::Osd);
            let admitted: Vec<bool> = osd.map(|(k, _)| k.rule().admits(&session).is_ok()).collect();
            assert!(admitted.len() > 6 && admitted.iter().all(|a| *a == admitted[0]));
            admitted[0]
        };
        assert!(admits("osd.0", "allow profile osd"));
        assert!(!admits("osd.0", "allow rw"));
        assert!(!admits("client.admin", "allow *"));
    }

    /// What metadata servers say is not taken from others, nor from one whose caps lack it.
    #[test]
    fn only_servers_speak_for_servers() {
        for (name, caps, want) in [
            ("mds.a", "allow profile mds", true),
            ("mds.a", "allow *", true),
            ("mds.a", "allow rw", false),
            ("osd.0", "allow *", false),
            ("client.admin", "allow *", false),
        ] {
            for kind in [Kind::MdsBeacon, Kind::MdsLoadTargets, Kind::RemoveSnaps] {
                let admitted = kind.rule().admits(&session(name, caps, false)).is_ok();
                assert_eq!(admitted, want, "{kind:?} of {name} with {caps}");
            }
        }
    }

    /// Every subscription takes the caps that it should; what is unknown is open to nobody.
    #[test]
    fn topics_take_caps() {
        let may = |caps, name| {
            Topic::of(name).is_some_and(|t| t.is_open_to(&session("client.x", caps, false)))
        };
        for (name, none, r, rbd, mon) in [
            ("monmap", true, true, true, true),
            ("config", true, true, true, true),
            ("osdmap", false, true, true, false),
            ("cls", false, true, true, false),
            ("mgrmap", false, true, true, true),
            ("servicemap", false, true, true, true),
            ("fsmap.user", false, true, false, false),
            ("mdsmap.a", false, true, false, false),
            ("log-info", false, true, false, false),
            ("osd_pg_creates", false, false, false, false),
            ("mgrdigest", false, false, false, false),
            ("kv:config/", false, false, false, false),
            ("nothing", false, false, false, false),
        ] {
            assert_eq!(may("", name), none, "{name} without caps");
            assert_eq!(may("allow r", name), r, "{name} with r");
            assert_eq!(may("profile rbd", name), rbd, "{name} with profile rbd");
            assert_eq!(may("allow service mon r", name), mon, "{name} with mon r");
            assert_eq!(may("allow *", name), name != "nothing", "{name} with all");
        }
    }
}
