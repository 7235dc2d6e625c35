//! The exclusive lock: one writer at a time, who alone keeps the object map.
//!
//! ```text
//!              first write                     lock taken, header read, object map locked
//!   not owned ------------> wanted ------------------------------------------> owned
//!       ^                     | somebody has it: ask for it and wait; is the     |
//!       |                     | owner gone, shut it out and break its lock       |
//!       +---------------------+--------------------------------------------------+
//!                               asked for, or closed: writes end first
//! ```
//!
//! Whoever writes holds the gate for reading while it does; taking and giving back hold it
//! for writing. So nothing is written without the lock, and a lock is given back only when
//! nothing is being written.
//!
//! Source: the peer's `librbd/ManagedLock`, `ExclusiveLock`, `ImageWatcher`;
//! `docs/protocols/rbd.md`.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use bytes::Bytes;
use cls::client::{
    BreakOp, EXCLUSIVE, Lock as StoredLock, LockOp, NameOp, ObjectMap, SetCookieOp, UnlockOp,
    feature, state,
};
use denc::{Denc, Reader};
use rados::{IoCtx, Watch, WatchEvent, WriteOp};
use tokio::sync::{Notify, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::error::{EBUSY, EEXIST, ENOENT, Error, Result, absent, is};
use crate::image::Image;
use crate::notify::{self, ClientId, Notice};
use crate::{calls, names};

/// How long the owner may take to release the lock, and watchers to answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often an owner is asked before its silence is told.
const ASK_MAX: usize = 6;
/// Between tries to watch a header again.
const REWATCH: Duration = Duration::from_secs(1);
const EROFS: i32 = 30;

/// What the owner of the lock has.
#[derive(Default)]
pub(crate) struct Owned {
    pub(crate) locked: bool,
    /// Absent without the feature, and when the map is not to be trusted.
    pub(crate) map: RefCell<Option<ObjectMap>>,
}

impl Owned {
    /// Whether an object may be there, by the map; without one anything may.
    pub(crate) fn may_exist(&self, object: u64) -> bool {
        self.map.borrow().as_ref().is_none_or(|map| map.state(object) != state::NONEXISTENT)
    }
}

/// See the module's page.
#[derive(Default)]
pub(crate) struct Lock {
    gate: RwLock<Owned>,
    /// As `Owned::locked`, to be seen while the gate is closed.
    owner: Cell<bool>,
    /// The cookie of the watch on the header; 0 while there is none.
    watch: Cell<u64>,
    /// The cookie under which the lock was taken.
    cookie: RefCell<String>,
    /// Somebody gave the lock back, or the header changed.
    news: Notify,
    /// Whoever asks for the lock is refused.
    keep: Cell<bool>,
    closed: Cell<bool>,
    close: Notify,
    ended: Notify,
}

fn lock_name() -> Bytes {
    Bytes::from_static(names::LOCK.as_bytes())
}

async fn take(io: &IoCtx, object: &[u8], cookie: &str, tag: &str) -> rados::Result<()> {
    let op = LockOp {
        name: lock_name(),
        kind: EXCLUSIVE,
        cookie: calls::text(cookie),
        tag: calls::text(tag),
        ..LockOp::default()
    };
    io.exec_write(object, "lock", "lock", &op.to_bytes()).await
}

async fn give_back(io: &IoCtx, object: &[u8], cookie: &str) -> rados::Result<()> {
    let op = UnlockOp { name: lock_name(), cookie: calls::text(cookie) };
    io.exec_write(object, "lock", "unlock", &op.to_bytes()).await
}

async fn lockers(io: &IoCtx, object: &[u8]) -> Result<StoredLock> {
    let op = NameOp { name: lock_name() };
    let data = io.exec(object, "lock", "get_info", &op.to_bytes()).await?;
    Ok(StoredLock::decode(&mut Reader::shared(&data))?)
}

fn watch_cookie(cookie: &Bytes) -> Option<u64> {
    std::str::from_utf8(cookie).ok()?.strip_prefix("auto ")?.parse().ok()
}

/// Who has an image's lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// `client.N`.
    pub who: String,
    /// Under which cookie.
    pub cookie: String,
    /// From where.
    pub addr: String,
    /// Its tag: `internal` when a client took it by itself.
    pub tag: String,
}

impl Image {
    /// Whether this client has the lock now.
    #[must_use]
    pub fn is_lock_owner(&self) -> bool {
        self.0.lock.owner.get()
    }

    /// Refuses from now on to give the lock to others who ask for it.
    pub fn keep_lock(&self, keep: bool) {
        self.0.lock.keep.set(keep);
    }

    /// Who has the lock, by the header.
    ///
    /// # Errors
    /// As the cluster says.
    pub async fn lock_owners(&self) -> Result<Vec<Owner>> {
        let lock = lockers(self.io(), &self.header_object()).await?;
        let owner = |(locker, info): (&cls::client::Locker, &cls::client::Info)| Owner {
            who: locker.who.to_string(),
            cookie: calls::string(&locker.cookie),
            addr: info.addr.to_string(),
            tag: calls::string(&lock.tag),
        };
        Ok(lock.lockers.iter().map(owner).collect())
    }

    /// Waits until something about the image may have changed.
    pub async fn changed(&self) {
        self.0.lock.news.notified().await;
    }

    pub(crate) fn me(&self) -> ClientId {
        ClientId { gid: self.io().cluster().global_id(), handle: self.0.lock.watch.get() }
    }

    /// Tells the other clients of the image; those that are silent do not matter.
    pub(crate) async fn tell(&self, notice: Notice) -> Result<Vec<Bytes>> {
        let head = self.header_object();
        let reply = self.io().notify(&head, notice.to_bytes(), PATIENCE).await?;
        Ok(reply.acks.into_iter().map(|(_, answer)| answer).collect())
    }

    /// Says that the header changed.
    pub(crate) async fn tell_update(&self) -> Result<()> {
        self.tell(Notice::HeaderUpdate).await.map(drop)
    }

    /// Watches the header, and answers what others say there, as long as the image is open.
    pub(crate) async fn start_watch(&self) -> Result<()> {
        let watch = self.io().watch(&self.header_object(), Duration::ZERO).await?;
        self.0.lock.watch.set(watch.cookie());
        let (weak, io, head) = (self.weak(), self.io().clone(), self.header_object());
        tokio::task::spawn_local(async move {
            let mut watch = Some(watch);
            loop {
                let Some(image) = weak.get() else { break };
                if image.0.lock.closed.get() {
                    break;
                }
                let Some(open) = watch.as_mut() else {
                    // Not a strong handle while waiting.
                    drop(image);
                    tokio::time::sleep(REWATCH).await;
                    if let Some(image) = weak.get() {
                        watch = image.watch_again().await;
                    }
                    continue;
                };
                let close = image.0.clone();
                drop(image);
                let event = tokio::select! {
                    event = open.next() => event,
                    () = close.lock.close.notified() => None,
                    () = tokio::time::sleep(Duration::from_secs(5)) => continue,
                };
                drop(close);
                let Some(image) = weak.get() else { break };
                match event {
                    Some(WatchEvent::Notify(n)) => image.on_notice(&io, &head, n),
                    _ if image.0.lock.closed.get() => break,
                    _ => {
                        image.0.lock.watch.set(0);
                        watch = None;
                    }
                }
            }
            if let Some(watch) = watch {
                watch.unwatch().await.ok();
            }
            if let Some(image) = weak.get() {
                image.0.lock.ended.notify_one();
            }
        });
        Ok(())
    }

    /// The OSD gave the watch up. A new one has another cookie, and the lock must name it:
    /// others judge by it whether its owner lives.
    async fn watch_again(&self) -> Option<Watch> {
        let watch = match self.io().watch(&self.header_object(), Duration::ZERO).await {
            Ok(watch) => watch,
            Err(err) => {
                tracing::warn!("image {}: no watch: {err}", self.id());
                return None;
            }
        };
        self.0.lock.watch.set(watch.cookie());
        let mut owned = self.0.lock.gate.write().await;
        if owned.locked {
            let cookie = format!("auto {}", watch.cookie());
            let op = SetCookieOp {
                name: lock_name(),
                kind: EXCLUSIVE,
                cookie: calls::text(&self.0.lock.cookie.borrow()),
                tag: calls::text(names::LOCK_TAG),
                new_cookie: calls::text(&cookie),
            };
            let head = self.header_object();
            match self.io().exec_write(&head, "lock", "set_cookie", &op.to_bytes()).await {
                Ok(()) => *self.0.lock.cookie.borrow_mut() = cookie,
                Err(err) => {
                    tracing::warn!("image {}: the lock is lost: {err}", self.id());
                    *owned = Owned::default();
                    self.0.lock.owner.set(false);
                }
            }
        }
        drop(owned);
        if let Err(err) = self.refresh().await {
            tracing::warn!("image {}: {err}", self.id());
        }
        self.0.lock.news.notify_waiters();
        Some(watch)
    }

    fn on_notice(&self, io: &IoCtx, head: &[u8], n: rados::Notification) {
        let notice = Notice::decode(&mut Reader::shared(&n.payload));
        let lock = &self.0.lock;
        let owner = self.is_lock_owner();
        let mut answer = Bytes::new();
        match notice {
            Ok(Notice::RequestLock { client, force }) if owner && client != self.me() => {
                if lock.keep.get() && !force {
                    answer = notify::response(-EROFS);
                } else {
                    answer = notify::response(0);
                    let image = self.clone();
                    tokio::task::spawn_local(async move {
                        if let Err(err) = image.release_lock().await {
                            tracing::warn!("image {}: giving the lock back: {err}", image.id());
                        }
                    });
                }
            }
            Ok(Notice::HeaderUpdate) => {
                let image = self.clone();
                tokio::task::spawn_local(async move {
                    if let Err(err) = image.refresh().await {
                        tracing::warn!("image {}: {err}", image.id());
                    }
                    image.0.lock.news.notify_waiters();
                });
            }
            Ok(Notice::ReleasedLock(_)) => lock.news.notify_waiters(),
            Ok(Notice::Other(what)) if owner && notify::is_request(what) => {
                answer = notify::response(-crate::error::EOPNOTSUPP);
            }
            Ok(_) => {}
            Err(err) => tracing::debug!("image {}: a notice: {err}", self.id()),
        }
        let (io, head) = (io.clone(), head.to_vec());
        tokio::task::spawn_local(async move {
            n.ack(&io, &head, answer).await.ok();
        });
    }

    /// Holds the gate for writing data: with the lock, where the image has the feature.
    pub(crate) async fn enter(&self) -> Result<RwLockReadGuard<'_, Owned>> {
        self.check_writable()?;
        loop {
            let owned = self.0.lock.gate.read().await;
            if owned.locked || !self.header().has(feature::EXCLUSIVE_LOCK) {
                return Ok(owned);
            }
            drop(owned);
            self.acquire_lock().await?;
        }
    }

    /// What the owner of the lock has, while nothing changes it.
    pub(crate) fn try_owned(&self) -> Option<RwLockReadGuard<'_, Owned>> {
        self.0.lock.gate.try_read().ok()
    }

    /// Holds the gate against all writes, with the lock: for what changes the image as a
    /// whole.
    pub(crate) async fn enter_alone(&self) -> Result<RwLockWriteGuard<'_, Owned>> {
        self.check_writable()?;
        loop {
            let owned = self.0.lock.gate.write().await;
            if owned.locked || !self.header().has(feature::EXCLUSIVE_LOCK) {
                if !owned.locked {
                    self.refresh().await?;
                }
                return Ok(owned);
            }
            drop(owned);
            self.acquire_lock().await?;
        }
    }

    /// Takes the lock now rather than at the first write.
    ///
    /// # Errors
    /// [`Error::Busy`] when its owner refuses or does not answer, or a user locked the image.
    pub async fn acquire_lock(&self) -> Result<()> {
        self.check_writable()?;
        if !self.header().has(feature::EXCLUSIVE_LOCK) {
            return Ok(());
        }
        let lock = &self.0.lock;
        let head = self.header_object();
        let mut asked = 0;
        loop {
            let mut owned = lock.gate.write().await;
            if owned.locked {
                return Ok(());
            }
            if lock.watch.get() == 0 {
                drop(owned);
                tokio::time::sleep(REWATCH).await;
                continue;
            }
            let cookie = format!("auto {}", lock.watch.get());
            match take(self.io(), &head, &cookie, names::LOCK_TAG).await {
                // A resend of this very request may have found the lock taken by it.
                Err(err) if is(&err, EEXIST) => {}
                Err(err) if is(&err, EBUSY) => {
                    drop(owned);
                    asked += 1;
                    self.ask_for_lock(asked).await?;
                    continue;
                }
                other => other?,
            }
            *lock.cookie.borrow_mut() = cookie;
            if let Err(err) = self.on_locked(&mut owned).await {
                let cookie = lock.cookie.take();
                give_back(self.io(), &head, &cookie).await.ok();
                return Err(err);
            }
            drop(owned);
            let (image, me) = (self.clone(), self.me());
            tokio::task::spawn_local(async move {
                image.tell(Notice::AcquiredLock(me)).await.ok();
            });
            return Ok(());
        }
    }

    /// With the lock: what the header says now, and the object map.
    async fn on_locked(&self, owned: &mut Owned) -> Result<()> {
        self.refresh().await?;
        owned.map = RefCell::default();
        if self.header().has(feature::OBJECT_MAP) {
            owned.map = RefCell::new(self.open_object_map().await?);
        }
        owned.locked = true;
        self.0.lock.owner.set(true);
        Ok(())
    }

    /// Somebody else has the lock: asks for it, or breaks it when its owner is gone.
    async fn ask_for_lock(&self, asked: usize) -> Result<()> {
        let head = self.header_object();
        let lock = lockers(self.io(), &head).await?;
        let Some((locker, info)) = lock.lockers.iter().next() else { return Ok(()) };
        let who = format!("{} at {} has the lock", locker.who, info.addr);
        let cookie = watch_cookie(&locker.cookie).filter(|_| lock.tag == names::LOCK_TAG);
        let Some(cookie) = cookie.filter(|_| lock.kind == EXCLUSIVE) else {
            return Err(Error::Busy(format!("locked by its user: {who}")));
        };
        let is_owner = |w: &rados::Watcher| {
            w.cookie == cookie && w.addr.nonce == info.addr.nonce && w.addr.sock == info.addr.sock
        };
        if !self.watchers().await?.iter().any(is_owner) {
            tracing::info!(
                "image {}: breaking the lock of {} which is gone",
                self.id(),
                locker.who
            );
            self.io().cluster().blocklist_add(info.addr, None).await?;
            let op = BreakOp { name: lock_name(), who: locker.who, cookie: locker.cookie.clone() };
            return match self.io().exec_write(&head, "lock", "break_lock", &op.to_bytes()).await {
                Err(err) if !is(&err, ENOENT) => Err(err.into()),
                _ => Ok(()),
            };
        }
        if asked > ASK_MAX {
            return Err(Error::Busy(format!("{who} and does not give it back")));
        }
        let news = self.0.lock.news.notified();
        let answers = self.tell(Notice::RequestLock { client: self.me(), force: false }).await?;
        let mut accepted = false;
        for answer in answers {
            match notify::read_response(&answer) {
                Ok(Some(0)) => accepted = true,
                Ok(Some(r)) if r != -crate::error::EOPNOTSUPP => {
                    return Err(Error::Busy(format!("{who} and refuses to give it back")));
                }
                _ => {}
            }
        }
        let wait = if accepted { PATIENCE } else { Duration::from_millis(500) };
        tokio::time::timeout(wait, news).await.ok();
        Ok(())
    }

    /// Locks the object map and loads it; none where it is marked as not to be trusted, or
    /// does not fit the image, which is then marked.
    async fn open_object_map(&self) -> Result<Option<ObjectMap>> {
        let object = names::object_map(self.id(), None);
        loop {
            match take(self.io(), &object, "", "").await {
                Err(err) if is(&err, EBUSY) => {
                    // Its owner had the image's lock before, and has it no more.
                    for locker in lockers(self.io(), &object).await?.lockers.into_keys() {
                        let op =
                            BreakOp { name: lock_name(), who: locker.who, cookie: locker.cookie };
                        let op = op.to_bytes();
                        self.io().exec_write(&object, "lock", "break_lock", &op).await.ok();
                    }
                }
                Err(err) if is(&err, EEXIST) => break,
                other => {
                    other?;
                    break;
                }
            }
        }
        if self.header().flags & names::FLAG_OBJECT_MAP_INVALID != 0 {
            return Ok(None);
        }
        let loaded: Result<ObjectMap> = self.load_object_map(None).await;
        let wanted = self.layout().object_count(self.size());
        match loaded {
            Ok(map) if map.count() == wanted => Ok(Some(map)),
            Ok(map) if map.count() > wanted => {
                // A shrink that was not finished: the map is cut last.
                Ok(Some(map))
            }
            other => {
                let why =
                    other.map_or_else(|e| e.to_string(), |m| format!("{} objects", m.count()));
                tracing::warn!("image {}: its object map is wrong: {why}", self.id());
                self.invalidate_map(None).await?;
                Ok(None)
            }
        }
    }

    pub(crate) async fn load_object_map(&self, snap: Option<u64>) -> Result<ObjectMap> {
        let object = names::object_map(self.id(), snap);
        Ok(calls::get(self.io(), &object, "object_map_load", b"").await?)
    }

    /// Marks an object map as not to be trusted.
    pub(crate) async fn invalidate_map(&self, snap: Option<u64>) -> Result<()> {
        let fast_diff = self.header().has(feature::FAST_DIFF);
        let bits = names::FLAG_OBJECT_MAP_INVALID
            | if fast_diff { names::FLAG_FAST_DIFF_INVALID } else { 0 };
        let params = ((bits, bits), snap.unwrap_or(calls::HEAD));
        calls::set(self.io(), &self.header_object(), "set_flags", params).await?;
        self.refresh().await
    }

    /// Marks an object in the map of a snapshot.
    pub(crate) async fn mark_snap(&self, snap: u64, object: u64, to: u8) -> Result<()> {
        let params = ((object, object + 1), (to, None::<u8>));
        let map = names::object_map(self.id(), Some(snap));
        if let Err(err) = calls::set(self.io(), &map, "object_map_update", params).await {
            tracing::warn!("image {}: object map of snapshot {snap}: {err}", self.id());
            self.invalidate_map(Some(snap)).await?;
        }
        Ok(())
    }

    /// Marks objects from `first` to before `end` in the map, before they change (to
    /// [`state::EXISTS`], [`state::PENDING`]; to [`state::EXISTS_CLEAN`] what is not there yet
    /// and comes as older snapshots show it) or after (to [`state::NONEXISTENT`], from pending
    /// only).
    pub(crate) async fn mark(&self, owned: &Owned, first: u64, end: u64, to: u8) -> Result<()> {
        let from = match to {
            state::NONEXISTENT => Some(state::PENDING),
            state::EXISTS_CLEAN => Some(state::NONEXISTENT),
            _ => None,
        };
        let matters = |s: u8| match to {
            state::NONEXISTENT => s == state::PENDING,
            state::EXISTS_CLEAN => s == state::NONEXISTENT,
            state::PENDING => s != state::NONEXISTENT && s != state::PENDING,
            _ => s != to,
        };
        let needed = match owned.map.borrow().as_ref() {
            None => return Ok(()),
            Some(map) => (first..end).any(|i| matters(map.state(i))),
        };
        if !needed {
            return Ok(());
        }
        let mut op = WriteOp::new();
        calls::assert_locked(&mut op);
        calls::tell(&mut op, "object_map_update", ((first, end), (to, from)));
        let object = names::object_map(self.id(), None);
        if let Err(err) = self.io().write_op(&object, op).await {
            if matches!(err.code(), Some(EBUSY | 108)) {
                return Err(err.into());
            }
            tracing::warn!("image {}: its object map: {err}", self.id());
            self.invalidate_map(None).await?;
            owned.map.borrow_mut().take();
            return Ok(());
        }
        if let Some(map) = owned.map.borrow_mut().as_mut() {
            for i in first..end {
                if from.is_none_or(|from| map.state(i) == from) {
                    map.set_state(i, to);
                }
            }
        }
        Ok(())
    }

    /// Gives the lock back, when nothing is being written any more.
    ///
    /// # Errors
    /// As the cluster says; the lock counts as given back all the same.
    pub async fn release_lock(&self) -> Result<()> {
        let mut owned = self.0.lock.gate.write().await;
        if !owned.locked {
            return Ok(());
        }
        let had_map = self.header().has(feature::OBJECT_MAP);
        *owned = Owned::default();
        self.0.lock.owner.set(false);
        if had_map {
            let object = names::object_map(self.id(), None);
            absent(give_back(self.io(), &object, "").await)?;
        }
        let cookie = self.0.lock.cookie.take();
        absent(give_back(self.io(), &self.header_object(), &cookie).await)?;
        drop(owned);
        self.tell(Notice::ReleasedLock(self.me())).await.map(drop)
    }

    /// Ends all: the lock is given back, the header watched no more.
    ///
    /// # Errors
    /// As the cluster says; the image is closed all the same.
    pub async fn close(self) -> Result<()> {
        if self.0.read_only || self.0.lock.closed.get() {
            return Ok(());
        }
        let released = self.release_lock().await;
        self.0.lock.closed.set(true);
        self.0.lock.close.notify_one();
        tokio::time::timeout(PATIENCE, self.0.lock.ended.notified()).await.ok();
        match released {
            // Removed while it was open.
            Err(Error::Rados(err)) if is(&err, ENOENT) => Ok(()),
            other => other,
        }
    }
}
