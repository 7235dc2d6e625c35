//! A client that can send any envelope to any daemon, and need not read the answers.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use denc::Denc as _;
use env::{ConnId, Random};
use maps::OsdMap;
use messages::{Envelope, MOsdOp, Message, OsdMapMsg, OsdOp};
use monc::Event;
use rados::{Config, LinkConfig, MonLink};
use rt::{Hold, Messenger, NetEvent, OsRandom, Policy};
use types::{AddrVec, EntityKind, Epoch, Features, HObject, OsdId, PoolId, SnapId, Uuid};

use crate::{Result, Setting};

/// How long the cluster may take to let a client in.
const CONNECT: Duration = Duration::from_secs(20);

/// A session with the monitors and connections to OSDs.
pub struct Raw {
    pub messenger: Messenger,
    link: RefCell<MonLink>,
    map: RefCell<Option<OsdMap>>,
    osds: RefCell<BTreeMap<OsdId, ConnId>>,
    /// Answers that are not read further: as long as they are held, the socket is not read.
    held: RefCell<Vec<Hold>>,
    pub reads: Cell<bool>,
    pub answers: Cell<u64>,
    pub closed: Cell<u64>,
    tid: Cell<u64>,
}

impl Raw {
    /// Connects and waits for the OSD map.
    ///
    /// # Errors
    /// When the configuration is wrong, or nobody lets the client in within 20 s.
    pub async fn connect(setting: &Setting) -> Result<Rc<Self>> {
        let config = Config::from_conf(&setting.conf, &setting.entity)?;
        let local = rt::Local {
            kind: EntityKind::CLIENT,
            num: -1,
            addrs: AddrVec::default(),
            nonce: OsRandom.u64() as u32,
            features: Features::PACIFIC_WORD,
        };
        let door = MonLink::door(EntityKind::CLIENT, MonLink::new_keys(), false, &[]);
        let messenger = Messenger::new(rt::Config {
            local,
            policy: Box::new(|_| Policy::stateless_server()),
            auth: Box::new(move |_, _| door()),
            limits: rt::Limits::default(),
        });
        let link = LinkConfig {
            name: config.name,
            key: config.key,
            mons: config.mons,
            fsid: Uuid::default(),
            hostname: String::new(),
            services: vec![EntityKind::MON, EntityKind::OSD, EntityKind::MGR],
            methods: config.methods,
            mon_modes: config.mon_modes,
            modes: config.modes,
        };
        let raw = Rc::new(Self {
            link: RefCell::new(MonLink::new(messenger.clone(), link, None)),
            messenger,
            map: RefCell::default(),
            osds: RefCell::default(),
            held: RefCell::default(),
            reads: Cell::new(true),
            answers: Cell::new(0),
            closed: Cell::new(0),
            tid: Cell::new(1),
        });
        let weak = Rc::downgrade(&raw);
        raw.messenger.set_handler(move |event| {
            if let Some(raw) = weak.upgrade() {
                raw.on_event(event);
            }
        });
        let weak = Rc::downgrade(&raw);
        tokio::task::spawn_local(async move {
            while let Some(raw) = weak.upgrade() {
                let events = raw.link.borrow_mut().on_tick(rt::now());
                raw.on_mon(events);
                drop(raw);
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        });
        let events = raw.link.borrow_mut().start(rt::now());
        raw.on_mon(events);
        let events = raw.link.borrow_mut().with(|c, out| c.subscribe("osdmap", 0, false, out));
        raw.on_mon(events);
        let end = rt::now().mono_ns + CONNECT.as_nanos() as u64;
        while raw.map.borrow().is_none() {
            if rt::now().mono_ns > end {
                return Err("no OSD map came".into());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(raw)
    }

    fn on_event(&self, event: NetEvent) {
        if self.link.borrow().owns(event.conn()) {
            let events = self.link.borrow_mut().on_event(rt::now(), event);
            return self.on_mon(events);
        }
        match event {
            NetEvent::Message { hold, .. } => {
                self.answers.set(self.answers.get() + 1);
                if !self.reads.get() {
                    self.held.borrow_mut().push(hold);
                }
            }
            NetEvent::Closed { conn, .. } => {
                self.closed.set(self.closed.get() + 1);
                self.osds.borrow_mut().retain(|_, c| *c != conn);
            }
            NetEvent::Opened { .. } | NetEvent::Alive { .. } => {}
        }
    }

    fn on_mon(&self, events: Vec<Event>) {
        for event in events {
            match event {
                Event::Opened => {
                    let id = self.link.borrow().global_id();
                    self.messenger.set_local(|local| local.num = id as i64);
                }
                Event::Message(env) if env.kind == OsdMapMsg::KIND => {
                    let full = OsdMapMsg::decode(&env).ok().and_then(|mut m| m.fulls.pop_last());
                    if let Some(map) = full.and_then(|(_, bytes)| OsdMap::from_shared(&bytes).ok())
                    {
                        *self.map.borrow_mut() = Some(map);
                    }
                }
                Event::Message(_) | Event::Command { .. } | Event::Answer { .. } => {
                    self.answers.set(self.answers.get() + 1);
                }
                Event::Version { .. } | Event::RenewalFailed(_) => {}
            }
        }
    }

    /// The pool's id.
    ///
    /// # Errors
    /// When there is no such pool.
    pub fn pool(&self, name: &str) -> Result<PoolId> {
        let map = self.map.borrow();
        let found = map.as_ref().and_then(|m| m.pool_by_name(name));
        found.ok_or_else(|| format!("no pool {name}").into())
    }

    /// The epoch of the newest map this client has.
    pub fn epoch(&self) -> Epoch {
        self.map.borrow().as_ref().map_or(Epoch(0), |m| m.epoch)
    }

    /// Sends any message to the monitors.
    pub fn to_mon(&self, envelope: Envelope) {
        self.link.borrow_mut().send(envelope);
    }

    /// A request on one object, as an honest client would address it.
    pub fn request(&self, pool: PoolId, name: &str, flags: u32, ops: Vec<OsdOp>) -> MOsdOp {
        let object = HObject::head(pool, "".into(), "".into(), name.to_owned().into());
        let map = self.map.borrow();
        let pg = map.as_ref().and_then(|m| Some(m.pool(pool)?.raw_pg_to_pg(pool, object.hash)));
        MOsdOp {
            pg: pg.unwrap_or(types::PgId { pool, ps: 0 }).into(),
            hash: object.hash,
            epoch: self.epoch(),
            flags,
            locator: types::ObjectLocator { pool, ..types::ObjectLocator::default() },
            oid: name.to_owned().into(),
            ops,
            snapid: SnapId::HEAD,
            features: Features::PACIFIC_WORD.0,
            reqid: types::ReqId::default(),
            client_inc: 0,
            mtime: types::UTime::ZERO,
            snap_seq: SnapId(0),
            snaps: Vec::new(),
            retry_attempt: 0,
        }
    }

    /// Sends a request to the OSD that leads its PG. False where none does.
    pub fn submit(&self, request: &MOsdOp) -> bool {
        let osd = self
            .map
            .borrow()
            .as_ref()
            .and_then(|m| m.pg_to_up_acting(request.pg.pg).acting_primary);
        let Some(osd) = osd else { return false };
        self.to_osd(osd, request.envelope(Features::PACIFIC_WORD));
        true
    }

    /// Sends any message to an OSD, by a connection that is opened when there is none.
    pub fn to_osd(&self, osd: OsdId, envelope: Envelope) {
        let known = self.osds.borrow().get(&osd).copied();
        let conn = known.unwrap_or_else(|| self.dial(osd));
        self.tid.set(self.tid.get() + 1);
        self.messenger.send(conn, envelope.with_tid(self.tid.get()));
    }

    /// Opens one more connection to an OSD.
    pub fn dial(&self, osd: OsdId) -> ConnId {
        let addrs =
            self.map.borrow().as_ref().and_then(|m| m.osd_addrs(osd).cloned()).unwrap_or_default();
        let redial = self.link.borrow().redial(EntityKind::OSD);
        let conn = self.messenger.connect(addrs, EntityKind::OSD, Policy::lossy_client(), redial);
        self.osds.borrow_mut().insert(osd, conn);
        conn
    }

    /// What waits here to be sent to all OSDs, in bytes.
    pub fn backlog(&self) -> usize {
        self.osds.borrow().values().map(|c| self.messenger.backlog(*c)).sum()
    }
}
