//! Daemons that are not the cluster's own, at the manager: gateways, mirrors and whatever
//! calls `rados_service_register`.
//!
//! Source: the peer's `MMgrOpen`, `MMgrConfigure`, `MMgrReport`, `MMgrClose`.

use std::collections::BTreeMap;

use bytes::Bytes;
use denc::{DecodeError, Denc, Reader, Writer};
use maps::{ModuleInfo, ServiceMap};
use types::{AddrVec, EntityAddr, EntityName, UTime, Uuid};

use crate::{Message, PRIO_HIGH, Paxos, plain_message};

/// A daemon is there, or a client. `MMgrOpen`, v2 is read; later versions add its settings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MgrOpen {
    /// Which daemon of the service.
    pub daemon: String,
    /// The service; empty for what the cluster knows anyway.
    pub service: String,
    /// For a service's daemon: what it says of itself, and how it is.
    pub registered: Option<(BTreeMap<String, String>, BTreeMap<String, String>)>,
}

impl Message for MgrOpen {
    const KIND: u16 = 0x700;
    const VERSION: u16 = 2;

    fn encode_front(&self, w: &mut Writer) {
        self.daemon.encode(w);
        self.service.encode(w);
        w.bool(self.registered.is_some());
        if let Some((metadata, status)) = &self.registered {
            metadata.encode(w);
            status.encode(w);
        }
    }

    fn decode_front(r: &mut Reader<'_>, version: u16, _: &Bytes) -> Result<Self, DecodeError> {
        let mut open = Self { daemon: Denc::decode(r)?, ..Self::default() };
        if version >= 2 {
            open.service = Denc::decode(r)?;
            if r.bool()? {
                open.registered = Some((Denc::decode(r)?, Denc::decode(r)?));
            }
        }
        Ok(open)
    }
}

/// How often to report. `MMgrConfigure`, v2; later versions ask for more statistics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MgrConfigure {
    /// Seconds between reports.
    pub stats_period_s: u32,
    /// Counters of at least this priority.
    pub stats_threshold: u32,
}

impl Message for MgrConfigure {
    const KIND: u16 = 0x701;
    const VERSION: u16 = 2;

    fn encode_front(&self, w: &mut Writer) {
        w.u32(self.stats_period_s);
        w.u32(self.stats_threshold);
    }

    fn decode_front(r: &mut Reader<'_>, version: u16, _: &Bytes) -> Result<Self, DecodeError> {
        let stats_period_s = r.u32()?;
        let stats_threshold = if version >= 2 { r.u32()? } else { 0 };
        Ok(Self { stats_period_s, stats_threshold })
    }
}

/// How a daemon is. `MMgrReport`; of its counters nothing is read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MgrReport {
    /// Which daemon of the service.
    pub daemon: String,
    /// The service.
    pub service: String,
    /// Its status, when it changed.
    pub status: Option<BTreeMap<String, String>>,
}

impl Message for MgrReport {
    const KIND: u16 = 0x702;
    const VERSION: u16 = 4;

    fn encode_front(&self, w: &mut Writer) {
        self.daemon.encode(w);
        w.u32(0); // counters declared
        w.u32(0); // their values
        w.u32(0); // counters withdrawn
        self.service.encode(w);
        w.bool(self.status.is_some());
        if let Some(status) = &self.status {
            status.encode(w);
        }
    }

    fn decode_front(r: &mut Reader<'_>, version: u16, _: &Bytes) -> Result<Self, DecodeError> {
        let daemon = Denc::decode(r)?;
        r.seq(|r| r.framed("PerfCounterType", u8::MAX, |_, _| Ok(())))?;
        r.blob_ref()?;
        let _: Vec<Bytes> = Denc::decode(r)?;
        let service = if version >= 3 { Denc::decode(r)? } else { String::new() };
        let status = if version >= 4 && r.bool()? { Some(Denc::decode(r)?) } else { None };
        Ok(Self { daemon, service, status })
    }
}

plain_message! {
    /// A daemon ends, or the manager has noted that. `MMgrClose`.
    MgrClose, 0x708;
    {
        /// Which daemon of the service.
        daemon: String,
        /// The service.
        service: String,
    }
}

/// A manager is there. `MMgrBeacon`, 11/8; read from v8 on. What releases before 20 said of their
/// commands is skipped: the monitors have their own table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MgrBeacon {
    /// Leads the message.
    pub paxos: Paxos,
    /// Where it listens.
    pub addrs: AddrVec,
    /// Its session with the monitors.
    pub gid: u64,
    /// Whether it serves as the active one.
    pub available: bool,
    /// Its name.
    pub name: String,
    /// The cluster.
    pub fsid: Uuid,
    /// What `ceph mgr metadata` shows.
    pub metadata: BTreeMap<String, String>,
    /// URLs of what its modules serve, by module.
    pub services: BTreeMap<String, String>,
    /// Modules that it has.
    pub modules: Vec<ModuleInfo>,
    /// Its feature word (v9).
    pub features: u64,
    /// Its own clients, by name, with their addresses: shut out together with it (v10, names v11).
    pub clients: Vec<(String, AddrVec)>,
}

impl Message for MgrBeacon {
    const KIND: u16 = 0x703;
    const VERSION: u16 = 11;
    const COMPAT: u16 = 8;
    const PRIORITY: u16 = PRIO_HIGH;

    fn encode_front(&self, w: &mut Writer) {
        self.paxos.encode(w);
        self.addrs.encode(w);
        w.u64(self.gid);
        w.bool(self.available);
        w.str(&self.name);
        self.fsid.encode(w);
        w.seq(&self.modules, |w, module| w.str(&module.name));
        w.u32(0); // descriptions of commands
        self.metadata.encode(w);
        self.services.encode(w);
        self.modules.encode(w);
        w.u64(self.features);
        w.seq(&self.clients, |w, (_, addrs)| addrs.encode(w));
        w.seq(&self.clients, |w, (name, _)| w.str(name));
    }

    fn decode_front(r: &mut Reader<'_>, version: u16, _: &Bytes) -> Result<Self, DecodeError> {
        r.require(version >= 8, "a manager's beacons are read from version 8 on")?;
        let mut m = Self {
            paxos: Denc::decode(r)?,
            addrs: Denc::decode(r)?,
            gid: r.u64()?,
            available: r.bool()?,
            name: r.string()?,
            fsid: Denc::decode(r)?,
            ..Self::default()
        };
        let _: Vec<String> = Denc::decode(r)?;
        r.seq(|r| r.framed("MonCommand", u8::MAX, |_, _| Ok(())))?;
        m.metadata = Denc::decode(r)?;
        m.services = Denc::decode(r)?;
        m.modules = Denc::decode(r)?;
        if version >= 9 {
            m.features = r.u64()?;
        }
        let addrs: Vec<AddrVec> = if version >= 10 { Denc::decode(r)? } else { Vec::new() };
        let mut names: Vec<String> = if version >= 11 { Denc::decode(r)? } else { Vec::new() };
        r.require(version == 10 || names.len() == addrs.len(), "each client has a name")?;
        names.resize(addrs.len(), String::new());
        m.clients = names.into_iter().zip(addrs).collect();
        Ok(m)
    }
}

plain_message! {
    /// A command for a module of the active manager, from the monitors; answered by
    /// [`crate::MgrCommandReply`] with the same tid. Between Argonaut's own daemons alone.
    ManagerAsk, 0xa730;
    {
        /// The command, one JSON object.
        cmd: Vec<Bytes>,
        /// Whose it is.
        name: EntityName,
        /// From where.
        addr: EntityAddr,
        /// The caller's caps at the manager, as text.
        caps: String,
        /// The rights that the command takes, of `rwx`.
        perm: String,
    } data input
}

/// What the active manager has heard of daemons that registered with it. Between Argonaut's own
/// daemons alone; stock's `MMonMgrReport` carries the same map.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ManagerReport {
    /// The manager's session.
    pub gid: u64,
    /// Who they are.
    pub map: ServiceMap,
    /// By service and daemon: when its status came, when it was heard, the status.
    pub status: Vec<ServiceSaid>,
}

/// How one daemon of a service is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServiceSaid {
    /// The kind of service, `rgw`.
    pub service: String,
    /// Which daemon of the service.
    pub daemon: String,
    /// When the status came.
    pub stamp: UTime,
    /// When it was heard last.
    pub heard: UTime,
    /// What it said.
    pub status: BTreeMap<String, String>,
}

impl Message for ManagerReport {
    const KIND: u16 = 0xa731;

    fn encode_front(&self, w: &mut Writer) {
        w.u64(self.gid);
        self.map.encode(w);
        w.seq(&self.status, |w, said| {
            w.str(&said.service);
            w.str(&said.daemon);
            said.stamp.encode(w);
            said.heard.encode(w);
            said.status.encode(w);
        });
    }

    fn decode_front(r: &mut Reader<'_>, _: u16, _: &Bytes) -> Result<Self, DecodeError> {
        let (gid, map) = (r.u64()?, Denc::decode(r)?);
        let status = r.seq(|r| {
            Ok(ServiceSaid {
                service: r.string()?,
                daemon: r.string()?,
                stamp: Denc::decode(r)?,
                heard: Denc::decode(r)?,
                status: Denc::decode(r)?,
            })
        })?;
        Ok(Self { gid, map, status })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use denc::Features;

    /// Both sides read what the other writes; a cut-off copy is refused.
    #[test]
    fn round_trips() {
        let pairs = BTreeMap::from([("a".to_owned(), "b".to_owned())]);
        let open = MgrOpen {
            daemon: "x".into(),
            service: "laundry".into(),
            registered: Some((pairs.clone(), BTreeMap::new())),
        };
        assert_eq!(MgrOpen::decode(&open.envelope(Features::ALL)), Ok(open));
        let report =
            MgrReport { daemon: "x".into(), service: "laundry".into(), status: Some(pairs) };
        let mut env = report.envelope(Features::ALL);
        assert_eq!(MgrReport::decode(&env), Ok(report));
        env.front.truncate(env.front.len() - 1);
        assert!(MgrReport::decode(&env).is_err());
        let configure = MgrConfigure { stats_period_s: 5, stats_threshold: 5 };
        assert_eq!(MgrConfigure::decode(&configure.envelope(Features::ALL)), Ok(configure));
    }

    /// A beacon is read back; one of before v10 has no clients; lists of unequal length are refused.
    #[test]
    fn beacons() {
        let m = MgrBeacon {
            gid: 4123,
            available: true,
            name: "x".into(),
            metadata: BTreeMap::from([("arch".into(), "x86_64".into())]),
            services: BTreeMap::from([("prometheus".into(), "http://h:9283/".into())]),
            modules: vec![ModuleInfo { name: "status".into(), ..ModuleInfo::default() }],
            features: 7,
            clients: vec![("rbd_support".into(), AddrVec::default())],
            ..MgrBeacon::default()
        };
        let env = m.envelope(Features::ALL);
        assert_eq!((env.kind, env.version, env.compat, env.priority), (0x703, 11, 8, 196));
        assert_eq!(MgrBeacon::decode(&env), Ok(m.clone()));
        let mut w = Writer::new(Features::ALL);
        m.encode_front(&mut w);
        let front = w.finish();
        let names = 4 + 4 + "rbd_support".len();
        let mut r = Reader::new(&front[..front.len() - names]);
        assert!(MgrBeacon::decode_front(&mut r, 11, &Bytes::new()).is_err(), "no names");
        let mut r = Reader::new(&front[..front.len() - names]);
        let old = MgrBeacon::decode_front(&mut r, 10, &Bytes::new()).expect("as v10");
        assert_eq!(old.clients[0].0, "");
        let mut r = Reader::new(&front);
        assert!(MgrBeacon::decode_front(&mut r, 7, &Bytes::new()).is_err(), "too old");
    }

    /// What goes between the monitors and a manager of ours.
    #[test]
    fn private_ones() {
        let report = ManagerReport {
            gid: 5,
            status: vec![ServiceSaid { service: "rgw".into(), ..ServiceSaid::default() }],
            ..ManagerReport::default()
        };
        assert_eq!(ManagerReport::decode(&report.envelope(Features::ALL)), Ok(report));
        let ask = ManagerAsk {
            cmd: vec![Bytes::from_static(b"{}")],
            caps: "allow r".into(),
            perm: "r".into(),
            input: Bytes::from_static(b"in"),
            ..ManagerAsk::default()
        };
        assert_eq!(ManagerAsk::decode(&ask.envelope(Features::ALL)), Ok(ask));
    }
}
