//! The client: one messenger, one monitor session, one objecter, and futures on top.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use auth::CryptoKey;
use bytes::Bytes;
use denc::{Denc, Features, Reader, Writer};
use env::{ConnId, Random};
use maps::{Incremental, OsdMap};
use messages::{
    Command, CommandReply, MOsdOpReply, Message, MonCommandAck, OsdMapMsg, OsdOp, WatchNotify, op,
    op_flag, req_flag,
};
use monc::Event;
use osdc::{Objecter, Out, Request};
use rt::{Messenger, NetEvent, OsRandom, Policy};
use tokio::sync::oneshot;
use types::{
    AddrVec, EntityAddr, EntityKind, EntityName, Epoch, HObject, OsdId, PgId, PoolId, SnapId,
    UTime, Uuid,
};

use crate::{LinkConfig, MonLink};

/// How to reach a cluster, and as whom.
#[derive(Clone, Debug)]
pub struct Config {
    /// Whose key it is.
    pub name: EntityName,
    /// The key.
    pub key: CryptoKey,
    /// Monitors to try.
    pub mons: Vec<EntityAddr>,
    /// Methods to authenticate by, in order of preference: `auth::handshake::method`.
    pub methods: Vec<u32>,
    /// Prefer encrypted connections to OSDs too.
    pub secure: bool,
    /// How long [`Cluster::connect`] may take.
    pub connect_timeout: Duration,
}

/// Why a call did not do what it should.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The cluster answered with an errno.
    #[error("{what}: {} (errno {errno})", errno_name(*.errno))]
    Errno {
        /// What was asked.
        what: String,
        /// Positive.
        errno: i32,
    },
    /// No monitor opened a session in time.
    #[error("no monitor opened a session within {0} s: is the cluster up, and the key right?")]
    Timeout(u64),
    /// The answer's bytes are wrong.
    #[error("the answer cannot be read: {0}")]
    Decode(#[from] denc::DecodeError),
    /// Too much is in flight.
    #[error("too many requests wait")]
    Busy,
    /// The client is shutting down.
    #[error("the client is gone")]
    Gone,
}

/// The usual text of an errno.
fn errno_name(errno: i32) -> String {
    std::io::Error::from_raw_os_error(errno).to_string()
}

impl Error {
    fn errno(what: &str, r: i32) -> Self {
        Self::Errno { what: what.to_owned(), errno: -r }
    }

    /// The errno, when the cluster gave one.
    #[must_use]
    pub fn code(&self) -> Option<i32> {
        if let Self::Errno { errno, .. } = self { Some(*errno) } else { None }
    }
}

type Result<T> = std::result::Result<T, Error>;

/// What [`IoCtx::stat`] gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectStat {
    /// Bytes.
    pub size: u64,
    /// When it was last written.
    pub mtime: UTime,
}

/// One object of a listing.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Listed {
    /// Namespace.
    pub nspace: Bytes,
    /// Name.
    pub name: Bytes,
    /// Locator key.
    pub key: Bytes,
}

struct Inner {
    messenger: Messenger,
    link: RefCell<MonLink>,
    objecter: RefCell<Objecter>,
    osds: RefCell<Osds>,
    ops: RefCell<HashMap<u64, oneshot::Sender<Result<MOsdOpReply>>>>,
    commands: RefCell<HashMap<u64, oneshot::Sender<MonCommandAck>>>,
    daemon_commands: RefCell<BTreeMap<ConnId, DaemonCommand>>,
    waiting_maps: RefCell<Vec<(Epoch, oneshot::Sender<()>)>>,
}

struct DaemonCommand {
    command: Command,
    answer: oneshot::Sender<CommandReply>,
}

#[derive(Default)]
struct Osds {
    by_osd: BTreeMap<OsdId, ConnId>,
    by_conn: HashMap<ConnId, OsdId>,
}

/// A connected client. Clones share it. Lives on one thread, within [`rt::run_local`].
#[derive(Clone)]
pub struct Cluster(Rc<Inner>);

impl Cluster {
    /// Opens a session with a monitor and waits for the first OSD map.
    ///
    /// # Errors
    /// [`Error::Timeout`].
    pub async fn connect(config: Config) -> Result<Self> {
        let local = rt::Local {
            kind: EntityKind::CLIENT,
            num: -1,
            addrs: AddrVec::default(),
            nonce: OsRandom.u64() as u32,
            features: Features::PACIFIC_WORD,
        };
        let keys = MonLink::new_keys();
        let door = MonLink::door(EntityKind::CLIENT, keys, false, &[]);
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
            secure: config.secure,
        };
        let cluster = Self(Rc::new(Inner {
            link: RefCell::new(MonLink::new(messenger.clone(), link, None)),
            messenger: messenger.clone(),
            objecter: RefCell::new(Objecter::new()),
            osds: RefCell::default(),
            ops: RefCell::default(),
            commands: RefCell::default(),
            daemon_commands: RefCell::default(),
            waiting_maps: RefCell::default(),
        }));
        let weak = Rc::downgrade(&cluster.0);
        messenger.set_handler(move |event| {
            if let Some(inner) = weak.upgrade() {
                inner.on_event(event);
            }
        });
        let weak = Rc::downgrade(&cluster.0);
        tokio::task::spawn_local(async move {
            loop {
                tokio::time::sleep(Duration::from_millis(200)).await;
                let Some(inner) = weak.upgrade() else { return };
                let events = inner.link.borrow_mut().on_tick(rt::now());
                inner.on_mon_events(events);
            }
        });
        let first_map = cluster.0.wait_map(Epoch(1));
        let events = cluster.0.link.borrow_mut().start(rt::now());
        cluster.0.on_mon_events(events);
        let events = cluster.0.link.borrow_mut().with(|c, out| {
            c.subscribe("osdmap", 0, false, out);
            c.subscribe("monmap", 0, false, out);
        });
        cluster.0.on_mon_events(events);
        match tokio::time::timeout(config.connect_timeout, first_map).await {
            Ok(Ok(())) => Ok(cluster),
            _ => Err(Error::Timeout(config.connect_timeout.as_secs())),
        }
    }

    /// The newest OSD map this client has.
    ///
    /// # Panics
    /// Never: a connected client has a map.
    #[must_use]
    pub fn map(&self) -> Arc<OsdMap> {
        self.0.objecter.borrow().map().cloned().expect("a connected client has a map")
    }

    /// Sends a command to the monitors: `{"prefix": "status"}`. Result code, line for
    /// people, output.
    ///
    /// # Errors
    /// [`Error::Busy`], [`Error::Gone`]; a refused command is an answer, not an error.
    pub async fn mon_command(&self, json: &str, input: Bytes) -> Result<(i32, String, Bytes)> {
        let (answer, answered) = oneshot::channel();
        let mut tid = None;
        let events = self.0.link.borrow_mut().with(|c, out| tid = c.command(json, input, out));
        self.0.commands.borrow_mut().insert(tid.ok_or(Error::Busy)?, answer);
        self.0.on_mon_events(events);
        let ack = answered.await.map_err(|_| Error::Gone)?;
        Ok((ack.r, ack.rs, ack.output))
    }

    /// As [`Cluster::mon_command`], where everything but success is an error; the output.
    ///
    /// # Errors
    /// [`Error::Errno`] too.
    pub async fn mon(&self, json: &str) -> Result<Bytes> {
        let (r, rs, out) = self.mon_command(json, Bytes::new()).await?;
        if r < 0 { Err(Error::errno(&rs, r)) } else { Ok(out) }
    }

    /// Sends a command to an OSD. As [`Cluster::mon_command`].
    ///
    /// # Errors
    /// [`Error::Errno`] with ENXIO when the OSD is down; [`Error::Gone`] when the
    /// connection breaks.
    pub async fn osd_command(&self, osd: OsdId, json: &str) -> Result<(i32, String, Bytes)> {
        let map = self.map();
        let addrs = map.osd_addrs(osd).filter(|_| map.is_up(osd)).cloned();
        let addrs = addrs.ok_or_else(|| Error::errno(&format!("osd.{osd} is not up"), -6))?;
        let redial = self.0.link.borrow().redial(EntityKind::OSD);
        let conn = self.0.messenger.connect(addrs, EntityKind::OSD, Policy::lossy_client(), redial);
        let command = Command {
            fsid: map.fsid,
            cmd: vec![Bytes::copy_from_slice(json.as_bytes())],
            input: Bytes::new(),
        };
        let (answer, answered) = oneshot::channel();
        self.0.daemon_commands.borrow_mut().insert(conn, DaemonCommand { command, answer });
        let reply = answered.await.map_err(|_| Error::Gone)?;
        Ok((reply.r, reply.rs, reply.output))
    }

    /// Waits until this client has the newest OSD map the monitors have.
    ///
    /// # Errors
    /// [`Error::Gone`].
    pub async fn wait_for_latest_map(&self) -> Result<()> {
        let out = self.mon(r#"{"prefix":"osd stat","format":"json"}"#).await?;
        let text = String::from_utf8_lossy(&out);
        let digits = text.split("\"epoch\":").nth(1).unwrap_or_default();
        let digits: String = digits
            .chars()
            .filter(|c| !c.is_whitespace())
            .take_while(char::is_ascii_digit)
            .collect();
        let epoch = Epoch(digits.parse().unwrap_or(0));
        self.0.wait_map(epoch).await.map_err(|_| Error::Gone)
    }

    /// A pool by name, looked up in the newest map when this client's does not have it.
    ///
    /// # Errors
    /// [`Error::Errno`] with ENOENT.
    pub async fn pool(&self, name: &str) -> Result<IoCtx> {
        if self.map().pool_by_name(name).is_none() {
            self.wait_for_latest_map().await?;
        }
        let pool = self.map().pool_by_name(name);
        let pool = pool.ok_or_else(|| Error::errno(&format!("no pool '{name}'"), -2))?;
        Ok(IoCtx { cluster: self.clone(), pool, nspace: Bytes::new() })
    }
}

impl Inner {
    fn wait_map(&self, epoch: Epoch) -> oneshot::Receiver<()> {
        let (done, waiting) = oneshot::channel();
        if self.objecter.borrow().map().is_some_and(|m| m.epoch >= epoch) {
            done.send(()).ok();
        } else {
            self.waiting_maps.borrow_mut().push((epoch, done));
        }
        waiting
    }

    fn on_event(&self, event: NetEvent) {
        let conn = event.conn();
        if self.link.borrow().owns(conn) {
            let events = self.link.borrow_mut().on_event(rt::now(), event);
            return self.on_mon_events(events);
        }
        if self.daemon_commands.borrow().contains_key(&conn) {
            return self.on_daemon(conn, event);
        }
        let Some(osd) = self.osds.borrow().by_conn.get(&conn).copied() else { return };
        let mut out = Vec::new();
        match event {
            NetEvent::Opened { peer, .. } => {
                self.objecter.borrow_mut().on_opened(osd, peer.features, &mut out);
            }
            NetEvent::Message { env, .. } => match env.kind {
                MOsdOpReply::KIND => match MOsdOpReply::decode(&env) {
                    Ok(reply) => self.objecter.borrow_mut().on_reply(osd, env.tid, reply, &mut out),
                    Err(err) => tracing::warn!("osd.{osd}: {err}"),
                },
                OsdMapMsg::KIND => self.on_maps(&env, &mut out),
                WatchNotify::KIND => {}
                kind => tracing::debug!("osd.{osd}: message of type {kind}"),
            },
            NetEvent::Closed { why, .. } => {
                tracing::debug!("osd.{osd}: {why}");
                self.forget(osd);
                self.objecter.borrow_mut().on_closed(osd, &mut out);
            }
            NetEvent::Alive { .. } => {}
        }
        self.carry_out(out);
    }

    fn on_daemon(&self, conn: ConnId, event: NetEvent) {
        match event {
            NetEvent::Opened { peer, .. } => {
                if let Some(one) = self.daemon_commands.borrow().get(&conn) {
                    self.messenger.send(conn, one.command.envelope(peer.features).with_tid(1));
                }
            }
            NetEvent::Message { env, .. } if env.kind == CommandReply::KIND => {
                let one = self.daemon_commands.borrow_mut().remove(&conn);
                if let (Some(one), Ok(reply)) = (one, CommandReply::decode(&env)) {
                    one.answer.send(reply).ok();
                }
                self.messenger.close(conn);
            }
            NetEvent::Closed { .. } => {
                self.daemon_commands.borrow_mut().remove(&conn);
            }
            _ => {}
        }
    }

    fn on_mon_events(&self, events: Vec<Event>) {
        let mut out = Vec::new();
        for event in events {
            match event {
                Event::Opened => {
                    let id = self.link.borrow().global_id();
                    self.messenger.set_local(|local| local.num = id as i64);
                }
                Event::Command { tid, ack } => {
                    if let Some(answer) = self.commands.borrow_mut().remove(&tid) {
                        answer.send(ack).ok();
                    }
                }
                Event::Message(env) if env.kind == OsdMapMsg::KIND => self.on_maps(&env, &mut out),
                Event::Message(_) | Event::Version { .. } | Event::Answer { .. } => {}
                Event::RenewalFailed(err) => tracing::warn!("tickets: {err}"),
            }
        }
        self.carry_out(out);
    }

    fn on_maps(&self, env: &messages::Envelope, out: &mut Vec<Out>) {
        let Ok(message) = OsdMapMsg::decode(env) else { return };
        let mut current = self.objecter.borrow().map().cloned();
        if let Some((_, full)) = message.fulls.last_key_value()
            && let Ok(map) = OsdMap::from_shared(full)
            && current.as_ref().is_none_or(|c| c.epoch < map.epoch)
        {
            current = Some(Arc::new(map));
        }
        for (epoch, bytes) in &message.incrementals {
            let Some(old) = &current else { break };
            if epoch.0 != old.epoch.0 + 1 {
                continue;
            }
            let mut next = OsdMap::clone(old);
            match Incremental::from_shared(bytes).map(|inc| next.apply_incremental(&inc)) {
                Ok(Ok(())) => current = Some(Arc::new(next)),
                _ => tracing::warn!("OSD map increment {epoch} does not apply"),
            }
        }
        let Some(map) = current else { return };
        let epoch = map.epoch;
        let fsid = map.fsid;
        let events = self.link.borrow_mut().with(|c, _| {
            c.set_fsid(fsid);
            c.got("osdmap", u64::from(epoch.0));
        });
        debug_assert!(events.is_empty(), "noting a version sends nothing");
        self.objecter.borrow_mut().on_map(map, out);
        self.waiting_maps.borrow_mut().retain_mut(|(wanted, done)| {
            if *wanted > epoch {
                return true;
            }
            let (unused, _) = oneshot::channel();
            std::mem::replace(done, unused).send(()).ok();
            false
        });
    }

    fn forget(&self, osd: OsdId) {
        let mut osds = self.osds.borrow_mut();
        if let Some(conn) = osds.by_osd.remove(&osd) {
            osds.by_conn.remove(&conn);
        }
    }

    fn carry_out(&self, out: Vec<Out>) {
        for wish in out {
            match wish {
                Out::Connect(osd, addrs) => {
                    let redial = self.link.borrow().redial(EntityKind::OSD);
                    let policy = Policy::lossy_client();
                    let conn = self.messenger.connect(addrs, EntityKind::OSD, policy, redial);
                    let mut osds = self.osds.borrow_mut();
                    osds.by_osd.insert(osd, conn);
                    osds.by_conn.insert(conn, osd);
                }
                Out::Close(osd) => {
                    let conn = self.osds.borrow().by_osd.get(&osd).copied();
                    self.forget(osd);
                    if let Some(conn) = conn {
                        self.messenger.close(conn);
                    }
                }
                Out::Send(osd, env) => {
                    if let Some(conn) = self.osds.borrow().by_osd.get(&osd) {
                        self.messenger.send(*conn, env);
                    }
                }
                Out::Done(tid, reply) => {
                    if let Some(done) = self.ops.borrow_mut().remove(&tid) {
                        done.send(Ok(*reply)).ok();
                    }
                }
                Out::Failed(tid, r) => {
                    if let Some(done) = self.ops.borrow_mut().remove(&tid) {
                        done.send(Err(Error::errno("the pool is gone", r))).ok();
                    }
                }
                // The subscription is standing: newer maps come by themselves.
                Out::WantMap(_) => {}
            }
        }
    }
}

/// A pool, and a namespace in it.
#[derive(Clone)]
pub struct IoCtx {
    cluster: Cluster,
    pool: PoolId,
    nspace: Bytes,
}

impl IoCtx {
    /// The pool's id.
    #[must_use]
    pub fn pool_id(&self) -> PoolId {
        self.pool
    }

    /// The same pool, another namespace.
    #[must_use]
    pub fn namespace(&self, nspace: impl Into<Bytes>) -> Self {
        Self { nspace: nspace.into(), ..self.clone() }
    }

    fn object(&self, name: &[u8]) -> HObject {
        HObject::head(self.pool, self.nspace.clone(), Bytes::new(), Bytes::copy_from_slice(name))
    }

    /// Runs operations on one object, all or nothing.
    ///
    /// # Errors
    /// [`Error::Errno`] as the OSD says.
    pub async fn operate(&self, name: &[u8], ops: Vec<OsdOp>) -> Result<MOsdOpReply> {
        let write = ops.iter().any(OsdOp::is_write);
        let flags = if write { req_flag::WRITE } else { req_flag::READ };
        let reply = self.submit(self.object(name), None, ops, flags).await?;
        if reply.result < 0 {
            return Err(Error::errno(&String::from_utf8_lossy(name), reply.result));
        }
        Ok(reply)
    }

    async fn submit(
        &self,
        object: HObject,
        pg: Option<u32>,
        ops: Vec<OsdOp>,
        flags: u32,
    ) -> Result<MOsdOpReply> {
        let write = flags & req_flag::WRITE != 0;
        let mtime = if write { UTime::from_nanos(rt::now().wall_ns) } else { UTime::ZERO };
        let request = Request { object, pg, ops, flags, mtime, snaps: (SnapId(0), Vec::new()) };
        let inner = &self.cluster.0;
        let (done, answered) = oneshot::channel();
        let mut out = Vec::new();
        let tid = inner.objecter.borrow_mut().submit(request, &mut out);
        inner.ops.borrow_mut().insert(tid, done);
        inner.carry_out(out);
        answered.await.map_err(|_| Error::Gone)?
    }

    /// Replaces the object's content.
    ///
    /// # Errors
    /// As [`IoCtx::operate`].
    pub async fn write_full(&self, name: &[u8], data: Bytes) -> Result<()> {
        let len = data.len() as u64;
        self.operate(name, vec![OsdOp::extent(op::WRITEFULL, 0, len, data)]).await.map(drop)
    }

    /// Writes at an offset.
    ///
    /// # Errors
    /// As [`IoCtx::operate`].
    pub async fn write(&self, name: &[u8], off: u64, data: Bytes) -> Result<()> {
        let len = data.len() as u64;
        self.operate(name, vec![OsdOp::extent(op::WRITE, off, len, data)]).await.map(drop)
    }

    /// Writes at the end.
    ///
    /// # Errors
    /// As [`IoCtx::operate`].
    pub async fn append(&self, name: &[u8], data: Bytes) -> Result<()> {
        let len = data.len() as u64;
        self.operate(name, vec![OsdOp::extent(op::APPEND, 0, len, data)]).await.map(drop)
    }

    /// Makes the object; fails with EEXIST when it is there and `exclusive`.
    ///
    /// # Errors
    /// As [`IoCtx::operate`].
    pub async fn create(&self, name: &[u8], exclusive: bool) -> Result<()> {
        let mut create = OsdOp::new(op::CREATE, Bytes::new());
        create.flags = if exclusive { op_flag::EXCL } else { 0 };
        self.operate(name, vec![create]).await.map(drop)
    }

    /// Cuts or extends.
    ///
    /// # Errors
    /// As [`IoCtx::operate`].
    pub async fn truncate(&self, name: &[u8], size: u64) -> Result<()> {
        self.operate(name, vec![OsdOp::extent(op::TRUNCATE, size, 0, Bytes::new())]).await.map(drop)
    }

    /// Removes the object.
    ///
    /// # Errors
    /// As [`IoCtx::operate`]; ENOENT when there is none.
    pub async fn remove(&self, name: &[u8]) -> Result<()> {
        self.operate(name, vec![OsdOp::new(op::DELETE, Bytes::new())]).await.map(drop)
    }

    /// Reads at most `len` bytes from `off`, fewer at the object's end.
    ///
    /// # Errors
    /// As [`IoCtx::operate`].
    pub async fn read(&self, name: &[u8], off: u64, len: u64) -> Result<Bytes> {
        self.one(name, OsdOp::extent(op::READ, off, len, Bytes::new())).await
    }

    async fn one(&self, name: &[u8], op: OsdOp) -> Result<Bytes> {
        let reply = self.operate(name, vec![op]).await?;
        Ok(reply.ops.into_iter().next().map(|op| op.data).unwrap_or_default())
    }

    /// Size and time.
    ///
    /// # Errors
    /// As [`IoCtx::operate`].
    pub async fn stat(&self, name: &[u8]) -> Result<ObjectStat> {
        let data = self.one(name, OsdOp::new(op::STAT, Bytes::new())).await?;
        let mut r = Reader::new(&data);
        Ok(ObjectStat { size: r.u64()?, mtime: Denc::decode(&mut r)? })
    }

    /// Sets an attribute.
    ///
    /// # Errors
    /// As [`IoCtx::operate`].
    pub async fn set_xattr(&self, name: &[u8], attr: &str, value: &[u8]) -> Result<()> {
        let mut data = attr.as_bytes().to_vec();
        data.extend_from_slice(value);
        let mut set = OsdOp::new(op::SETXATTR, data.into());
        set.put_u32(0, attr.len() as u32);
        set.put_u32(4, value.len() as u32);
        self.operate(name, vec![set]).await.map(drop)
    }

    /// One attribute.
    ///
    /// # Errors
    /// As [`IoCtx::operate`]; ENODATA when it has none of that name.
    pub async fn get_xattr(&self, name: &[u8], attr: &str) -> Result<Bytes> {
        let mut get = OsdOp::new(op::GETXATTR, Bytes::copy_from_slice(attr.as_bytes()));
        get.put_u32(0, attr.len() as u32);
        self.one(name, get).await
    }

    /// All attributes.
    ///
    /// # Errors
    /// As [`IoCtx::operate`].
    pub async fn get_xattrs(&self, name: &[u8]) -> Result<BTreeMap<Bytes, Bytes>> {
        let data = self.one(name, OsdOp::new(op::GETXATTRS, Bytes::new())).await?;
        Ok(BTreeMap::from_bytes(&data)?)
    }

    /// Sets omap pairs.
    ///
    /// # Errors
    /// As [`IoCtx::operate`].
    pub async fn set_omap(&self, name: &[u8], pairs: BTreeMap<Bytes, Bytes>) -> Result<()> {
        let data = pairs.to_bytes();
        let set = OsdOp::extent(op::OMAPSETVALS, 0, data.len() as u64, data);
        self.operate(name, vec![set]).await.map(drop)
    }

    /// Omap pairs behind `after`, at most `max`; whether there are more.
    ///
    /// # Errors
    /// As [`IoCtx::operate`].
    pub async fn get_omap(
        &self,
        name: &[u8],
        after: &[u8],
        max: u64,
    ) -> Result<(BTreeMap<Bytes, Bytes>, bool)> {
        let mut w = Writer::new(Features::ALL);
        w.blob(after);
        w.u64(max);
        w.blob(&[]);
        let input = w.finish();
        let data =
            self.one(name, OsdOp::extent(op::OMAPGETVALS, 0, input.len() as u64, input)).await?;
        let mut r = Reader::shared(&data);
        Ok((Denc::decode(&mut r)?, r.bool()?))
    }

    /// Every object of the namespace, PG by PG.
    ///
    /// # Errors
    /// As [`IoCtx::operate`].
    pub async fn list(&self) -> Result<Vec<Listed>> {
        let mut found = Vec::new();
        let pgs = self.cluster.0.objecter.borrow().pg_count(self.pool);
        for ps in 0..pgs.ok_or_else(|| Error::errno("the pool is gone", -2))? {
            let mut cursor = HObject::min();
            loop {
                let mut list = OsdOp::new(op::PGNLS, cursor.to_bytes());
                list.put_u64(0, 1024);
                let object = HObject {
                    pool: self.pool,
                    hash: PgId { pool: self.pool, ps }.ps,
                    nspace: self.nspace.clone(),
                    snap: SnapId::HEAD,
                    ..HObject::min()
                };
                let flags = req_flag::READ | req_flag::IGNORE_OVERLAY;
                let reply = self.submit(object, Some(ps), vec![list], flags).await?;
                if reply.result < 0 {
                    return Err(Error::errno(
                        &format!("listing PG {}.{ps:x}", self.pool),
                        reply.result,
                    ));
                }
                let data = reply.ops.into_iter().next().map(|op| op.data).unwrap_or_default();
                let mut r = Reader::shared(&data);
                let (next, names) = r.framed("pg_nls_response_t", 1, |r, _| {
                    let next: HObject = Denc::decode(r)?;
                    let names = r.seq(|r| {
                        Ok(Listed { nspace: r.blob()?, name: r.blob()?, key: r.blob()? })
                    })?;
                    Ok((next, names))
                })?;
                found.extend(names);
                if reply.result == 1 || next.max {
                    break;
                }
                cursor = next;
            }
        }
        Ok(found)
    }
}
