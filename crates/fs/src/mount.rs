//! A mount: the maps it follows, its connections to metadata servers, requests and their answers.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::rc::{Rc, Weak};
use std::time::Duration;

use denc::Denc;
use env::ConnId;
use fsc::{Ask, Client, Out, Reply, path_of};
use maps::{FsMapUser, MdsMap};
use messages::fs::{Args, FilePath, mds_op};
use messages::{Envelope, FsMapUserMsg, MdsMapMsg, Message};
use rados::{Cluster, News};
use rt::{NetEvent, Policy};
use tokio::sync::{oneshot, watch};
use types::{EntityKind, Errno, Ino};

use crate::{Error, Result, Stat};

/// How often the client is reminded of the time.
const TICK: Duration = Duration::from_millis(250);
/// How long a session may take to end.
const UNMOUNT_MAX: Duration = Duration::from_secs(10);
/// Symbolic links on one path, as Linux has it.
const LINKS_MAX: usize = 40;
/// All that an answer can show of an inode.
pub(crate) const ALL: u32 = 0x155;

/// What to mount.
#[derive(Clone, Debug)]
pub struct Options {
    /// Which file system; none for the cluster's default one.
    pub fs_name: Option<String>,
    /// The directory that paths begin at.
    pub root: String,
    /// How long the mount may take.
    pub timeout: Duration,
    /// For whom: user, group.
    pub owner: (u32, u32),
    /// Words that servers show of the client, beside `entity_id` and `root`.
    pub metadata: BTreeMap<String, String>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            fs_name: None,
            root: "/".to_owned(),
            timeout: Duration::from_secs(30),
            owner: (0, 0),
            metadata: BTreeMap::new(),
        }
    }
}

type Answer = std::result::Result<Box<Reply>, Errno>;

pub(crate) struct Inner {
    cluster: OnceCell<Cluster>,
    pub client: RefCell<Client>,
    conns: RefCell<BTreeMap<i32, ConnId>>,
    answers: RefCell<HashMap<u64, oneshot::Sender<Answer>>>,
    /// Counts changes of what callers wait for.
    changed: watch::Sender<u64>,
    all: RefCell<Option<FsMapUser>>,
    fscid: Cell<i32>,
    pub root: Cell<Ino>,
}

/// A mount. Clones share it; it ends with [`Fs::unmount`], or with the last of them, when servers wait
/// for a while until they forget it.
#[derive(Clone)]
pub struct Fs(pub(crate) Rc<Inner>);

impl Fs {
    /// Mounts a file system.
    ///
    /// # Errors
    /// [`Error::NoFs`], [`Error::Timeout`]; ENOENT without the root; EPERM, EBLOCKLISTED where servers
    /// refuse the key.
    pub async fn mount(config: rados::Config, options: Options) -> Result<Self> {
        let mut metadata = options.metadata.clone();
        metadata.insert("entity_id".to_owned(), config.name.id.clone());
        metadata.insert("root".to_owned(), options.root.clone());
        let caller = messages::fs::Caller {
            uid: options.owner.0,
            gid: options.owner.1,
            ..messages::fs::Caller::default()
        };
        let client = Client::new(fsc::Config { metadata, caller });
        let fs = Self(Rc::new(Inner {
            cluster: OnceCell::new(),
            client: RefCell::new(client),
            conns: RefCell::default(),
            answers: RefCell::default(),
            changed: watch::channel(0).0,
            all: RefCell::default(),
            fscid: Cell::new(-1),
            root: Cell::new(Ino(1)),
        }));
        let weak = Rc::downgrade(&fs.0);
        let to = weak.clone();
        let news = move |news| {
            if let Some(inner) = to.upgrade() {
                inner.on_news(news);
            }
        };
        let to = weak.clone();
        let events = move |event| {
            if let Some(inner) = to.upgrade() {
                inner.on_event(event);
            }
        };
        let services = [EntityKind::MDS];
        let cluster = Cluster::connect_beside(config, &services, news, events).await?;
        // The session may have been opened before there was somebody to tell.
        let id = cluster.global_id();
        cluster.messenger().set_local(|local| local.num = id as i64);
        fs.0.cluster.set(cluster).ok();
        let seconds = options.timeout.as_secs();
        let begun = tokio::time::timeout(options.timeout, fs.begin(&options)).await;
        begun.map_err(|_| Error::Timeout(seconds))??;
        Ok(fs)
    }

    async fn begin(&self, options: &Options) -> Result<()> {
        keep_ticking(Rc::downgrade(&self.0));
        self.cluster().subscribe("fsmap.user", 0);
        let fscid = self
            .wait(|inner| {
                let all = inner.all.borrow();
                let all = all.as_ref()?;
                let by_name = |name: &String| all.filesystems.iter().find(|f| f.name == *name);
                Some(match &options.fs_name {
                    Some(name) => by_name(name).map(|f| f.fscid),
                    None => Some(all.legacy_client_fscid).filter(|id| *id >= 0),
                })
            })
            .await;
        let fscid =
            fscid.ok_or_else(|| Error::NoFs(options.fs_name.clone().unwrap_or_default()))?;
        self.0.fscid.set(fscid);
        self.cluster().subscribe(&format!("mdsmap.{fscid}"), 0);
        let path = path_of(Ino(1), options.root.as_bytes());
        let reply =
            self.ask(&options.root, Ask::new(mds_op::GETATTR, path, Args::Mask(ALL))).await?;
        let root = reply.answer.target.ok_or_else(|| Error::of(&options.root, Errno::IO))?;
        if !crate::is_dir(&root) {
            return Err(Error::of(&options.root, Errno(-20)));
        }
        self.0.root.set(root.ino);
        Ok(())
    }

    /// The session with monitors and OSDs.
    ///
    /// # Panics
    /// Never: a mount has one.
    #[must_use]
    pub fn cluster(&self) -> &Cluster {
        self.0.cluster.get().expect("a mount has a session")
    }

    /// The file system's newest map.
    #[must_use]
    pub fn map(&self) -> Option<MdsMap> {
        self.0.client.borrow().map().cloned()
    }

    /// The file system's number.
    #[must_use]
    pub fn fscid(&self) -> i32 {
        self.0.fscid.get()
    }

    /// Whether servers have shut this client out: only another mount gets further.
    #[must_use]
    pub fn is_shut_out(&self) -> bool {
        self.0.client.borrow().refused().is_some() || self.cluster().is_blocklisted()
    }

    /// Sends one request as it is, and waits for the answer. `what` is named by errors.
    ///
    /// # Errors
    /// What the server refuses it with; [`Error::Gone`].
    pub async fn ask(&self, what: impl AsRef<[u8]>, ask: Ask) -> Result<Box<Reply>> {
        let (answer, answered) = oneshot::channel();
        let inner = &self.0;
        inner.with(|c, out| {
            let tid = c.request(rt::now(), ask, out);
            inner.answers.borrow_mut().insert(tid, answer);
        });
        match answered.await {
            Ok(Ok(reply)) => Ok(reply),
            Ok(Err(errno)) => Err(Error::of(what, errno)),
            Err(_) => Err(Error::Gone),
        }
    }

    /// Runs a request on paths from the root; once more by the way without symbolic links where that
    /// fails with ENOTDIR.
    pub(crate) async fn on(
        &self,
        path: &[u8],
        make: impl Fn(FilePath) -> Ask,
    ) -> Result<Box<Reply>> {
        match self.ask(path, make(self.path(path).await?)).await {
            Err(err) if err.errno() == 20 => {
                let real = self.real(path, false).await?;
                if real == path {
                    return Err(err);
                }
                self.ask(path, make(self.path(&real).await?)).await
            }
            done => done,
        }
    }

    /// A path as stock servers take it: one into a snapshot begins at the directory that it is of.
    pub(crate) async fn path(&self, path: &[u8]) -> Result<FilePath> {
        let whole = path_of(self.0.root.get(), path);
        let all: Vec<&[u8]> = names(path).collect();
        match all.iter().position(|name| *name == fsc::SNAP_DIR) {
            Some(at) if at > 0 => {
                let dir = path_of(whole.ino, &all[..at].join(&b'/'));
                let ask = Ask::new(mds_op::GETATTR, dir, Args::Mask(ALL));
                let dir = self.ask(path, ask).await?.answer.target;
                let ino = dir.ok_or_else(|| Error::of(path, Errno::IO))?.ino;
                Ok(path_of(ino, &all[at..].join(&b'/')))
            }
            _ => Ok(whole),
        }
    }

    /// The path without symbolic links on the way, and at its end if `last`.
    ///
    /// # Errors
    /// ELOOP; what a `stat` can fail with.
    pub(crate) async fn real(&self, path: &[u8], last: bool) -> Result<Vec<u8>> {
        let mut todo: Vec<Vec<u8>> = names(path).rev().map(<[u8]>::to_vec).collect();
        let mut done: Vec<Vec<u8>> = Vec::new();
        let mut links = 0;
        while let Some(name) = todo.pop() {
            if name == b".." {
                done.pop();
                continue;
            }
            done.push(name);
            let at = done.join(&b'/');
            if (todo.is_empty() && !last) || at.ends_with(fsc::SNAP_DIR) {
                continue;
            }
            let stat = match self.lstat_plain(&at).await {
                Ok(stat) => stat,
                // What does not exist is the caller's business.
                Err(err) if err.errno() == 2 && todo.is_empty() => continue,
                Err(err) => return Err(err),
            };
            if !crate::is_symlink(&stat) {
                continue;
            }
            links += 1;
            if links > LINKS_MAX {
                return Err(Error::of(path, Errno(-40)));
            }
            done.pop();
            if stat.symlink.starts_with(b"/") {
                done.clear();
            }
            todo.extend(names(&stat.symlink).rev().map(<[u8]>::to_vec));
        }
        Ok(done.join(&b'/'))
    }

    pub(crate) async fn lstat_plain(&self, path: &[u8]) -> Result<Stat> {
        let ask = Ask::new(mds_op::GETATTR, self.path(path).await?, Args::Mask(ALL));
        let reply = self.ask(path, ask).await?;
        reply.answer.target.map(|t| *t).ok_or_else(|| Error::of(path, Errno::IO))
    }

    /// Waits until `look` has something.
    pub(crate) async fn wait<T>(&self, look: impl Fn(&Inner) -> Option<T>) -> T {
        let mut changed = self.0.changed.subscribe();
        loop {
            if let Some(found) = look(&self.0) {
                return found;
            }
            changed.changed().await.ok();
        }
    }

    /// Wakes when something changed that callers wait for.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.0.changed.subscribe()
    }

    /// Calls the client and does what it wants.
    pub(crate) fn with<T>(&self, call: impl FnOnce(&mut Client, &mut Vec<Out>) -> T) -> T {
        self.0.with(call)
    }

    /// Waits until all changes made so far outlast a crash of their servers.
    ///
    /// # Errors
    /// EIO where a server lost a change that it had answered.
    pub async fn sync(&self) -> Result<()> {
        let before = self.0.client.borrow().lost();
        self.with(|c, out| c.flush_requests(out));
        self.wait(|inner| (inner.client.borrow().unsafe_count() == 0).then_some(())).await;
        match self.0.client.borrow().lost() == before {
            true => Ok(()),
            false => Err(Error::of("sync", Errno::IO)),
        }
    }

    /// Ends the mount. Files are to be closed before.
    ///
    /// # Errors
    /// As [`Fs::sync`].
    pub async fn unmount(&self) -> Result<()> {
        let synced = match self.is_shut_out() {
            true => Ok(()),
            false => tokio::time::timeout(UNMOUNT_MAX, self.sync()).await.unwrap_or(Ok(())),
        };
        self.with(Client::close);
        let closed = self.wait(|inner| (!inner.client.borrow().has_sessions()).then_some(()));
        tokio::time::timeout(UNMOUNT_MAX, closed).await.ok();
        synced
    }
}

/// The names of a path.
pub(crate) fn names(path: &[u8]) -> impl DoubleEndedIterator<Item = &[u8]> {
    path.split(|b| *b == b'/').filter(|n| !n.is_empty() && *n != b".")
}

fn keep_ticking(inner: Weak<Inner>) {
    tokio::task::spawn_local(async move {
        loop {
            tokio::time::sleep(TICK).await;
            let Some(inner) = inner.upgrade() else { return };
            inner.with(|c, out| c.on_tick(rt::now(), out));
        }
    });
}

impl Inner {
    fn cluster(&self) -> Option<&Cluster> {
        self.cluster.get()
    }

    fn with<T>(&self, call: impl FnOnce(&mut Client, &mut Vec<Out>) -> T) -> T {
        let mut out = Vec::new();
        let value = call(&mut self.client.borrow_mut(), &mut out);
        self.carry_out(out);
        value
    }

    fn carry_out(&self, out: Vec<Out>) {
        let mut changed = false;
        for wish in out {
            match wish {
                Out::Connect(rank, addrs) => {
                    let Some(cluster) = self.cluster() else { continue };
                    self.hang_up(rank);
                    let redial = cluster.redial(EntityKind::MDS);
                    let policy = Policy::lossless_client();
                    let messenger = cluster.messenger();
                    let conn = messenger.connect(addrs, EntityKind::MDS, policy, redial);
                    self.conns.borrow_mut().insert(rank, conn);
                }
                Out::Close(rank) => self.hang_up(rank),
                Out::Send(rank, env) => {
                    let conn = self.conns.borrow().get(&rank).copied();
                    if let (Some(conn), Some(cluster)) = (conn, self.cluster()) {
                        cluster.messenger().send(conn, env);
                    }
                }
                Out::Done(tid, answer) => {
                    if let Some(to) = self.answers.borrow_mut().remove(&tid) {
                        to.send(answer).ok();
                    }
                }
                Out::Changed => changed = true,
            }
        }
        if changed {
            self.changed.send_modify(|n| *n += 1);
        }
    }

    fn hang_up(&self, rank: i32) {
        let conn = self.conns.borrow_mut().remove(&rank);
        if let (Some(conn), Some(cluster)) = (conn, self.cluster()) {
            cluster.messenger().close(conn);
        }
    }

    fn on_news(&self, news: News) {
        match news {
            News::Session => {
                if let Some(cluster) = self.cluster() {
                    let id = cluster.global_id();
                    cluster.messenger().set_local(|local| local.num = id as i64);
                }
            }
            News::OsdMap => self.changed.send_modify(|n| *n += 1),
            News::Message(env) => self.on_map(&env),
        }
    }

    fn on_map(&self, env: &Envelope) {
        let Some(cluster) = self.cluster() else { return };
        match env.kind {
            FsMapUserMsg::KIND => {
                let read = FsMapUserMsg::decode(env).map(|m| FsMapUser::from_shared(&m.map));
                let Ok(Ok(map)) = read else { return };
                cluster.got("fsmap.user", u64::from(map.epoch.0));
                *self.all.borrow_mut() = Some(map);
                self.changed.send_modify(|n| *n += 1);
            }
            MdsMapMsg::KIND => {
                let read = MdsMapMsg::decode(env).map(|m| MdsMap::from_shared(&m.map));
                let map = match read {
                    Ok(Ok(map)) => map,
                    Ok(Err(err)) | Err(err) => {
                        return tracing::warn!("a file system's map: {err}");
                    }
                };
                let what = format!("mdsmap.{}", self.fscid.get());
                cluster.got(&what, u64::from(map.epoch.0));
                self.with(|c, out| c.on_map(rt::now(), map, out));
            }
            kind => tracing::debug!("the monitors sent a message of type {kind}"),
        }
    }

    fn on_event(&self, event: NetEvent) {
        let conn = event.conn();
        let rank = self.conns.borrow().iter().find(|(_, c)| **c == conn).map(|(rank, _)| *rank);
        let Some(rank) = rank else { return };
        match event {
            NetEvent::Opened { peer, .. } => {
                self.with(|c, out| c.on_opened(rt::now(), rank, peer.features, out));
            }
            NetEvent::Message { env, .. } => {
                let read = self.with(|c, out| c.on_message(rt::now(), rank, &env, out));
                if let Err(err) = read {
                    tracing::warn!("rank {rank}: {err}");
                    self.hang_up(rank);
                    self.with(|c, out| c.on_closed(rank, out));
                }
            }
            NetEvent::Closed { why, .. } => {
                tracing::debug!("rank {rank}: {why}");
                self.conns.borrow_mut().remove(&rank);
                self.with(|c, out| c.on_closed(rank, out));
            }
            NetEvent::Alive { .. } => {}
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let Some(cluster) = self.cluster.get() else { return };
        for conn in self.conns.borrow().values() {
            cluster.messenger().close(*conn);
        }
    }
}
