//! What a client owns, and where its events go.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use denc::Denc;
use env::ConnId;
use maps::{Incremental, OsdMap};
use messages::{
    Backoff, Command, CommandReply, Envelope, MOsdOpReply, Message, MonCommandAck, OsdMapMsg,
    WatchNotify,
};
use monc::Event;
use osdc::{Objecter, Out, Request};
use rt::{Messenger, NetEvent, Policy};
use tokio::sync::{oneshot, watch};
use types::{EntityKind, Epoch, HObject, OsdId};

use crate::error::{Error, Result};
use crate::watch::Lingering;
use crate::{MonLink, News};

pub(crate) struct Inner {
    pub(crate) messenger: Messenger,
    pub(crate) link: RefCell<MonLink>,
    pub(crate) objecter: RefCell<Objecter>,
    osds: RefCell<Osds>,
    ops: RefCell<HashMap<u64, oneshot::Sender<Result<MOsdOpReply>>>>,
    pub(crate) commands: RefCell<HashMap<u64, oneshot::Sender<MonCommandAck>>>,
    answers: RefCell<HashMap<u64, oneshot::Sender<Envelope>>>,
    pub(crate) daemon_commands: RefCell<BTreeMap<ConnId, DaemonCommand>>,
    waiting_maps: RefCell<Vec<(Epoch, oneshot::Sender<()>)>>,
    pub(crate) lingering: RefCell<Lingering>,
    /// Counts maps and connections: watches look then whether they must be renewed.
    changes: watch::Sender<u64>,
    /// A daemon's ear; none in clients.
    listener: Option<Box<dyn Fn(News)>>,
    /// Why the last connection to a monitor ended.
    pub(crate) refusal: RefCell<Option<String>>,
}

pub(crate) struct DaemonCommand {
    pub(crate) command: Command,
    pub(crate) answer: oneshot::Sender<CommandReply>,
}

#[derive(Default)]
struct Osds {
    by_osd: BTreeMap<OsdId, ConnId>,
    by_conn: HashMap<ConnId, OsdId>,
}

/// Where an object's operations go now: a watch holds as long as this stays the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Whereabouts {
    place: osdc::Place,
    conn: ConnId,
}

impl Inner {
    pub(crate) fn of(
        messenger: Messenger,
        link: MonLink,
        objecter: Objecter,
        listener: Option<Box<dyn Fn(News)>>,
    ) -> Self {
        Self {
            messenger,
            link: RefCell::new(link),
            objecter: RefCell::new(objecter),
            osds: RefCell::default(),
            ops: RefCell::default(),
            commands: RefCell::default(),
            answers: RefCell::default(),
            daemon_commands: RefCell::default(),
            waiting_maps: RefCell::default(),
            lingering: RefCell::default(),
            changes: watch::channel(0).0,
            listener,
            refusal: RefCell::default(),
        }
    }

    /// Wakes at each map and each connection that opens or closes.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// None where nobody serves the object, or no connection to its OSD is there.
    pub(crate) fn whereabouts(&self, object: &HObject) -> Option<Whereabouts> {
        let place = self.objecter.borrow().place(object)?;
        let conn = *self.osds.borrow().by_osd.get(&place.osd)?;
        Some(Whereabouts { place, conn })
    }

    /// As [`Inner::whereabouts`], when that did not change since `before` was looked up: what
    /// an answer that came in between says of its OSD holds then.
    pub(crate) fn still_there(
        &self,
        object: &HObject,
        before: Option<osdc::Place>,
    ) -> Option<Whereabouts> {
        self.whereabouts(object).filter(|now| Some(&now.place) == before.as_ref())
    }

    /// Sends operations on an object, and waits for the answer.
    pub(crate) async fn submit(&self, request: Request) -> Result<MOsdOpReply> {
        self.begin(request).await.map_err(|_| Error::Gone)?
    }

    /// Sends operations on an object, before it returns.
    pub(crate) fn begin(&self, request: Request) -> oneshot::Receiver<Result<MOsdOpReply>> {
        let (done, answered) = oneshot::channel();
        let mut out = Vec::new();
        let tid = self.objecter.borrow_mut().submit(request, &mut out);
        self.ops.borrow_mut().insert(tid, done);
        self.carry_out(out);
        answered
    }

    /// Sends a request to the monitors, and waits for the answer.
    pub(crate) async fn ask_mon(&self, envelope: Envelope) -> Result<Envelope> {
        let (answer, answered) = oneshot::channel();
        let mut tid = None;
        let events = self.link.borrow_mut().with(|c, out| tid = c.request(envelope, out));
        self.answers.borrow_mut().insert(tid.ok_or(Error::Busy)?, answer);
        self.on_mon_events(events);
        answered.await.map_err(|_| Error::Gone)
    }

    pub(crate) fn wait_map(&self, epoch: Epoch) -> oneshot::Receiver<()> {
        let (done, waiting) = oneshot::channel();
        if self.objecter.borrow().map().is_some_and(|m| m.epoch >= epoch) {
            done.send(()).ok();
        } else {
            self.waiting_maps.borrow_mut().push((epoch, done));
        }
        waiting
    }

    /// Takes an event of a connection that was made here; gives back one of any other.
    pub(crate) fn on_event(&self, event: NetEvent) -> Option<NetEvent> {
        let conn = event.conn();
        if self.link.borrow().owns(conn) {
            if let NetEvent::Closed { why, .. } = &event {
                *self.refusal.borrow_mut() = Some(why.to_string());
            }
            let events = self.link.borrow_mut().on_event(rt::now(), event);
            self.on_mon_events(events);
            return None;
        }
        if self.daemon_commands.borrow().contains_key(&conn) {
            self.on_daemon(conn, event);
            return None;
        }
        let Some(osd) = self.osds.borrow().by_conn.get(&conn).copied() else { return Some(event) };
        self.on_osd(osd, event);
        None
    }

    fn epoch(&self) -> Option<Epoch> {
        self.objecter.borrow().map().map(|m| m.epoch)
    }

    fn tell(&self, news: News) {
        if let Some(listener) = &self.listener {
            listener(news);
        }
    }

    fn on_osd(&self, osd: OsdId, event: NetEvent) {
        let before = self.epoch();
        let mut out = Vec::new();
        match event {
            NetEvent::Opened { peer, .. } => {
                self.objecter.borrow_mut().on_opened(osd, peer.features, &mut out);
                self.changes.send_modify(|n| *n += 1);
            }
            NetEvent::Message { env, .. } => match env.kind {
                MOsdOpReply::KIND => match MOsdOpReply::decode(&env) {
                    Ok(reply) => self.objecter.borrow_mut().on_reply(osd, env.tid, reply, &mut out),
                    Err(err) => tracing::warn!("osd.{osd}: {err}"),
                },
                OsdMapMsg::KIND => self.on_maps(&env, &mut out),
                WatchNotify::KIND => match WatchNotify::decode(&env) {
                    Ok(message) => self.lingering.borrow_mut().on_message(message),
                    Err(err) => tracing::warn!("osd.{osd}: {err}"),
                },
                Backoff::KIND => match Backoff::decode(&env) {
                    Ok(b) => self.objecter.borrow_mut().on_backoff(osd, b, &mut out),
                    Err(err) => tracing::warn!("osd.{osd}: {err}"),
                },
                kind => tracing::debug!("osd.{osd}: message of type {kind}"),
            },
            NetEvent::Closed { why, .. } => {
                tracing::debug!("osd.{osd}: {why}");
                self.forget(osd);
                self.objecter.borrow_mut().on_closed(osd, &mut out);
                self.changes.send_modify(|n| *n += 1);
            }
            NetEvent::Alive { .. } => {}
        }
        self.carry_out(out);
        if self.epoch() != before {
            self.tell(News::OsdMap);
        }
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

    pub(crate) fn on_mon_events(&self, events: Vec<Event>) {
        let before = self.epoch();
        let mut out = Vec::new();
        let mut news = Vec::new();
        for event in events {
            match event {
                Event::Opened if self.listener.is_some() => news.push(News::Session),
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
                Event::Answer { tid, envelope } => {
                    if let Some(answer) = self.answers.borrow_mut().remove(&tid) {
                        answer.send(envelope).ok();
                    }
                }
                Event::Message(env) => news.push(News::Message(env)),
                Event::Version { .. } => {}
                Event::RenewalFailed(err) => tracing::warn!("tickets: {err}"),
            }
        }
        self.carry_out(out);
        if self.epoch() != before {
            self.tell(News::OsdMap);
        }
        for one in news {
            self.tell(one);
        }
    }

    fn on_maps(&self, env: &Envelope, out: &mut Vec<Out>) {
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
        self.changes.send_modify(|n| *n += 1);
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

    pub(crate) fn carry_out(&self, out: Vec<Out>) {
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
