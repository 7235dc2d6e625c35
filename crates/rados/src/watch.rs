//! Watch and notify: whoever watches an object is told what others say about it.
//!
//! A watch is renewed by itself when the object's OSD changes or its connection breaks, and
//! gives a sign of life every [`PING`]. When the OSD has given it up (it heard nothing for the
//! watch's timeout), [`WatchEvent::Lost`] says so and the watch is over: what was said in
//! between is not known, so its owner looks at the object and watches anew.
//!
//! ```no_run
//! # async fn f(io: rados::IoCtx) -> Result<(), rados::Error> {
//! use rados::WatchEvent;
//!
//! let mut watch = io.watch(b"object", std::time::Duration::ZERO).await?;
//! while let Some(WatchEvent::Notify(said)) = watch.next().await {
//!     println!("client.{} says {:?}", said.notifier, said.payload);
//!     said.ack(&io, b"object", "heard".into()).await?;
//! }
//! // Lost: look at the object, and watch it anew.
//! # Ok(()) }
//! ```
//!
//! There are no callbacks and so nothing to flush: what came stands in the watch's queue until its
//! owner takes it.
//!
//! Source: the peer's `Objecter::LingerOp`; `docs/protocols/osd.md`.

use std::cell::Cell;
use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use denc::{Denc, Features, Writer};
use messages::{OsdOp, WatchNotify, op};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use crate::error::{Error, Result};
use crate::inner::{Inner, Whereabouts};
use crate::{IoCtx, ReadOp};

/// Between two signs of life.
const PING: Duration = Duration::from_secs(5);
/// Before a watch whose OSD changed while it was registered is registered once more.
const AGAIN: Duration = Duration::from_millis(50);
/// Notifications that wait for the watch's owner; the notifier of one more sees its timeout.
const EVENTS_MAX: usize = 1024;

const UNWATCH: u8 = 0;
const WATCH: u8 = 3;
const RECONNECT: u8 = 5;
const SIGN_OF_LIFE: u8 = 7;

const NOTIFY: u8 = 1;
const NOTIFY_COMPLETE: u8 = 2;
const DISCONNECT: u8 = 3;

const ENOTCONN: i32 = 107;
const ETIMEDOUT: i32 = 110;

/// What a watch brings.
#[derive(Debug)]
#[non_exhaustive]
pub enum WatchEvent {
    /// Somebody says something. Whoever notifies waits for [`Notification::ack`].
    Notify(Notification),
    /// The watch is over, and notifications may have been missed: ENOTCONN when the OSD gave
    /// it up, ENOENT when the object is gone.
    Lost(Error),
}

/// What somebody says about an object.
#[derive(Debug)]
pub struct Notification {
    /// Which notification.
    pub id: u64,
    /// The watch it came to.
    pub cookie: u64,
    /// Who said it: `client.N`.
    pub notifier: u64,
    /// What.
    pub payload: Bytes,
}

impl Notification {
    /// Answers it; the notifier gets `reply`.
    ///
    /// # Errors
    /// As [`IoCtx::read_op`].
    pub async fn ack(&self, io: &IoCtx, object: &[u8], reply: Bytes) -> Result<()> {
        let mut w = Writer::new(Features::ALL);
        w.u64(self.id);
        w.u64(self.cookie);
        reply.encode(&mut w);
        let ack = ReadOp { ops: vec![OsdOp::new(op::NOTIFY_ACK, w.finish())] };
        io.read_op(object, ack).await.map(drop)
    }
}

/// Answers to a notification, and who gave none in time; watches are (client, cookie).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NotifyReply {
    /// Answers.
    pub acks: Vec<((u64, u64), Bytes)>,
    /// Watches that did not answer.
    pub timeouts: Vec<(u64, u64)>,
}

/// Watches and notifications of a client that wait for OSDs' words.
#[derive(Default)]
pub(crate) struct Lingering {
    next_cookie: u64,
    watches: HashMap<u64, mpsc::Sender<WatchEvent>>,
    notifies: HashMap<u64, oneshot::Sender<WatchNotify>>,
}

impl Lingering {
    fn cookie(&mut self) -> u64 {
        self.next_cookie += 1;
        self.next_cookie
    }

    pub(crate) fn on_message(&mut self, msg: WatchNotify) {
        match msg.opcode {
            NOTIFY => {
                let Some(events) = self.watches.get(&msg.cookie) else { return };
                let event = WatchEvent::Notify(Notification {
                    id: msg.notify_id,
                    cookie: msg.cookie,
                    notifier: msg.notifier_gid,
                    payload: msg.payload,
                });
                if events.try_send(event).is_err() {
                    tracing::warn!("watch {}: a notification is dropped", msg.cookie);
                }
            }
            NOTIFY_COMPLETE => {
                if let Some(done) = self.notifies.remove(&msg.cookie) {
                    done.send(msg).ok();
                }
            }
            DISCONNECT => self.lost(msg.cookie, Error::errno("watch", -ENOTCONN)),
            other => tracing::debug!("watch {}: message of kind {other}", msg.cookie),
        }
    }

    fn lost(&mut self, cookie: u64, why: Error) {
        if let Some(events) = self.watches.remove(&cookie) {
            events.try_send(WatchEvent::Lost(why)).ok();
        }
    }
}

fn watch_op(cookie: u64, what: u8, generation: u32, timeout_secs: u32) -> OsdOp {
    let mut op = OsdOp::new(op::WATCH, Bytes::new());
    op.put_u64(0, cookie);
    op.raw[16] = what;
    op.put_u32(17, generation);
    op.put_u32(21, timeout_secs);
    op
}

/// A watch; it ends with [`Watch::unwatch`]. One that is only dropped is given up by the OSD
/// after its timeout.
pub struct Watch {
    io: IoCtx,
    object: Bytes,
    cookie: u64,
    events: mpsc::Receiver<WatchEvent>,
    confirmed: Confirmed,
    _alive: oneshot::Sender<()>,
}

impl Watch {
    /// Which watch of this client it is.
    #[must_use]
    pub fn cookie(&self) -> u64 {
        self.cookie
    }

    /// How long ago the OSD last said that it holds the watch: what is known by it is not older than this and the OSD's
    /// patience. Upstream's `watch_check`.
    #[must_use]
    pub fn unconfirmed_for(&self) -> Duration {
        self.confirmed.get().elapsed()
    }

    /// What comes next; `None` behind [`WatchEvent::Lost`].
    pub async fn next(&mut self) -> Option<WatchEvent> {
        self.events.recv().await
    }

    /// Ends it.
    ///
    /// # Errors
    /// As [`IoCtx::write_op`].
    pub async fn unwatch(self) -> Result<()> {
        self.io.cluster().0.lingering.borrow_mut().watches.remove(&self.cookie);
        let op = watch_op(self.cookie, UNWATCH, 0, 0);
        self.io.raw_write(&self.object, vec![op]).await.map(drop)
    }
}

/// When an OSD last said that it holds a watch: not later than it was asked.
type Confirmed = Rc<Cell<Instant>>;

/// Registers a watch; with whom, unless that changed meanwhile.
async fn register(io: &IoCtx, object: &Bytes, op: OsdOp) -> Result<Option<Whereabouts>> {
    let inner = &io.cluster().0;
    let id = io.object(object);
    let before = inner.objecter.borrow().place(&id);
    io.raw_write(object, vec![op]).await?;
    Ok(inner.still_there(&id, before))
}

/// Keeps a watch: renews it where its OSD may have forgotten it, and gives signs of life.
async fn keep(
    io: IoCtx,
    object: Bytes,
    cookie: u64,
    timeout_secs: u32,
    (mut registered, confirmed): (Option<Whereabouts>, Confirmed),
    mut ended: oneshot::Receiver<()>,
) {
    let inner: Rc<Inner> = io.cluster().0.clone();
    let mut changes = inner.changes();
    let id = io.object(&object);
    let mut generation = 0;
    loop {
        let due = tokio::select! {
            _ = &mut ended => return,
            changed = changes.changed(), if registered.is_some() => {
                if changed.is_err() {
                    return;
                }
                false
            }
            () = tokio::time::sleep(PING), if registered.is_some() => true,
            () = tokio::time::sleep(AGAIN), if registered.is_none() => false,
        };
        if !inner.lingering.borrow().watches.contains_key(&cookie) {
            return;
        }
        let here = inner.whereabouts(&id);
        let mut renew = here.is_none() || here != registered;
        if !renew && due {
            let ping = watch_op(cookie, SIGN_OF_LIFE, generation, timeout_secs);
            let asked = Instant::now();
            match io.raw_write(&object, vec![ping]).await {
                Ok(_) => confirmed.set(asked),
                Err(err) if matches!(err.code(), Some(ENOTCONN | ETIMEDOUT)) => renew = true,
                Err(err) => return inner.lingering.borrow_mut().lost(cookie, err),
            }
        }
        if renew {
            generation += 1;
            let again = watch_op(cookie, RECONNECT, generation, timeout_secs);
            let asked = Instant::now();
            match register(&io, &object, again).await {
                Ok(with) => {
                    registered = with;
                    confirmed.set(asked);
                }
                Err(err) => return inner.lingering.borrow_mut().lost(cookie, err),
            }
        }
    }
}

impl IoCtx {
    /// Watches an object. `timeout` is how long its OSD waits for a sign of life before it
    /// gives the watch up, in whole seconds; zero is the OSD's default (30 s).
    ///
    /// # Errors
    /// ENOENT when there is no such object; as [`IoCtx::write_op`].
    pub async fn watch(&self, object: &[u8], timeout: Duration) -> Result<Watch> {
        let (sender, events) = mpsc::channel(EVENTS_MAX);
        let inner = &self.cluster().0;
        let cookie = {
            let mut lingering = inner.lingering.borrow_mut();
            let cookie = lingering.cookie();
            lingering.watches.insert(cookie, sender);
            cookie
        };
        let timeout_secs = timeout.as_secs() as u32;
        let object = Bytes::copy_from_slice(object);
        let op = watch_op(cookie, WATCH, 0, timeout_secs);
        let confirmed = Rc::new(Cell::new(Instant::now()));
        let registered = match register(self, &object, op).await {
            Ok(with) => with,
            Err(err) => {
                inner.lingering.borrow_mut().watches.remove(&cookie);
                return Err(err);
            }
        };
        let (_alive, ended) = oneshot::channel();
        let held = (registered, confirmed.clone());
        let keeper = keep(self.clone(), object.clone(), cookie, timeout_secs, held, ended);
        tokio::task::spawn_local(keeper);
        Ok(Watch { io: self.clone(), object, cookie, events, confirmed, _alive })
    }

    /// Tells all who watch an object, and waits until they have answered or `timeout` (whole
    /// seconds) is over.
    ///
    /// # Errors
    /// ENOENT when there is no such object; as [`IoCtx::read_op`]. Watchers that do not
    /// answer are no error, they are in the reply.
    pub async fn notify(
        &self,
        object: &[u8],
        payload: Bytes,
        timeout: Duration,
    ) -> Result<NotifyReply> {
        let inner = self.cluster().0.clone();
        let mut changes = inner.changes();
        let id = self.object(object);
        loop {
            let (done, mut completed) = oneshot::channel();
            let cookie = inner.lingering.borrow_mut().cookie();
            inner.lingering.borrow_mut().notifies.insert(cookie, done);
            let mut w = Writer::new(Features::ALL);
            w.u32(1);
            w.u32(timeout.as_secs().max(1) as u32);
            payload.encode(&mut w);
            let mut notify = OsdOp::new(op::NOTIFY, w.finish());
            notify.put_u64(0, cookie);
            let before = inner.objecter.borrow().place(&id);
            let sent = self.read_op(object, ReadOp { ops: vec![notify] }).await;
            if let Err(err) = sent {
                inner.lingering.borrow_mut().notifies.remove(&cookie);
                return Err(err);
            }
            let sent_to = inner.still_there(&id, before);
            let msg = loop {
                // The OSD that would have told the end is not there any more.
                if sent_to.is_none() || inner.whereabouts(&id) != sent_to {
                    break completed.try_recv().ok();
                }
                tokio::select! {
                    msg = &mut completed => break Some(msg.map_err(|_| Error::Gone)?),
                    changed = changes.changed() => {
                        changed.map_err(|_| Error::Gone)?;
                    }
                }
            };
            inner.lingering.borrow_mut().notifies.remove(&cookie);
            let Some(msg) = msg else { continue };
            if msg.return_code < 0 && msg.return_code != -ETIMEDOUT {
                return Err(Error::errno("notify", msg.return_code));
            }
            let data = if msg.replies.is_empty() { &msg.payload } else { &msg.replies };
            let mut r = denc::Reader::shared(data);
            let acks: Vec<((u64, u64), Bytes)> = Denc::decode(&mut r)?;
            return Ok(NotifyReply { acks, timeouts: Denc::decode(&mut r)? });
        }
    }
}
