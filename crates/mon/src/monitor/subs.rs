//! Subscriptions: what is told to whom, at once and when it changes.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use denc::{Denc, Features};
use env::ConnId;
use messages::{
    ConfigMsg, Envelope, LogMsg, LogPriority, MonMapMsg, MonSubscribe, MonSubscribeAck, OsdMapMsg,
    PRIO_HIGH, Paxos,
};
use types::Epoch;

use super::Monitor;
use crate::Subscription;
use crate::config::ConfigPlace;
use crate::doors::Topic;
use crate::state::Effects;

/// Increments in one message.
const INCREMENTALS_PER_MESSAGE: usize = 40;
/// Subscriptions of one session.
const SUBSCRIPTIONS_MAX: usize = 64;
/// Log lines in one message.
const LOG_LINES_PER_MESSAGE: usize = 250;

/// The features that OSD map encodings depend on. Peers that agree in them are sent the
/// same bytes.
const OSDMAP_FEATURES: Features = maps::SIGNIFICANT_FEATURES;

/// Maps as encoded for peers of other releases.
#[derive(Default)]
pub(super) struct MapCache {
    maps: BTreeMap<(Epoch, bool, u64), Bytes>,
    order: VecDeque<(Epoch, bool, u64)>,
}

impl MapCache {
    fn get(
        &mut self,
        key: (Epoch, bool, u64),
        make: impl FnOnce() -> Option<Bytes>,
    ) -> Option<Bytes> {
        if let Some(known) = self.maps.get(&key) {
            return Some(known.clone());
        }
        let made = make()?;
        if self.order.len() >= 256
            && let Some(old) = self.order.pop_front()
        {
            self.maps.remove(&old);
        }
        self.order.push_back(key);
        self.maps.insert(key, made.clone());
        Some(made)
    }
}

/// A message whose front is given as bytes.
fn front(kind: u16, front: Bytes) -> Envelope {
    Envelope { kind, priority: PRIO_HIGH, version: 1, compat: 1, front, ..Envelope::default() }
}

/// What a session was before something was said to it that still waits for its batch.
#[derive(Debug)]
pub(super) enum Unsaid {
    /// A subscription, by its name.
    Sub(ConnId, String, Subscription),
    /// The settings that it has.
    Config(ConnId, Option<BTreeMap<String, String>>),
}

impl Monitor {
    pub(super) fn on_subscribe(&mut self, conn: ConnId, msg: MonSubscribe) {
        let Some(session) = self.sessions.get_mut(&conn) else { return };
        if !msg.hostname.is_empty() {
            session.info.hostname = msg.hostname;
        }
        let features = session.info.features;
        let mut names = Vec::new();
        let mut firsts = None;
        for (name, wanted) in msg.what {
            if session.subs.len() >= SUBSCRIPTIONS_MAX && !session.subs.contains_key(&name) {
                continue;
            }
            if !Topic::of(&name).is_some_and(|topic| topic.is_open_to(session)) {
                tracing::debug!("{} may not subscribe to {name}", session.info.name);
                continue;
            }
            let sub = Subscription { next: wanted.start, onetime: wanted.is_onetime() };
            if name == "osdmap" && sub.next == 0 {
                firsts = Some(sub);
                continue;
            }
            if name == "config" {
                session.config_sent = None;
            }
            if name.starts_with("log-") {
                // A session watches the log at one level: the one it asked for last.
                session.subs.retain(|other, _| !other.starts_with("log-"));
            }
            session.subs.insert(name.clone(), sub);
            names.push(name);
        }
        for name in names {
            self.check_sub(conn, &name);
        }
        if let Some(sub) = firsts {
            self.subscribe_read(conn, sub);
        }
        if !features.has(Features::MON_STATEFUL_SUB) {
            let ack = MonSubscribeAck { interval_s: 300, fsid: self.state.fsid };
            self.tell(conn, 0, &ack);
        }
    }

    /// Begins a subscription to OSD maps with the newest.
    pub(super) fn subscribe_first(&mut self, conn: ConnId, sub: Subscription) {
        let Some(session) = self.sessions.get_mut(&conn) else { return };
        session.subs.insert("osdmap".to_owned(), sub);
        self.check_sub(conn, "osdmap");
    }

    /// Answers one subscription as far as there is something new.
    fn check_sub(&mut self, conn: ConnId, name: &str) {
        let Some(session) = self.sessions.get(&conn) else { return };
        let Some(&sub) = session.subs.get(name) else { return };
        let features = session.info.features;
        match name {
            "monmap" => {
                let epoch = self.state.monmap.epoch;
                if self.newer(conn, name, sub, epoch) {
                    self.send_monmap(conn, 0);
                }
            }
            "config" => self.send_config(conn, false),
            "osdmap" => self.send_osdmap_sub(conn, sub),
            "cls" => {
                let version = self.state.classes.version;
                if version >= sub.next {
                    let news = self.state.classes.since(sub.next);
                    self.moved_on(conn, name, sub, version + 1);
                    for part in news {
                        self.tell(conn, 0, &part);
                    }
                }
            }
            "mgrmap" => {
                let epoch = self.state.mgrmap.epoch;
                if self.newer(conn, name, sub, epoch) {
                    let map = self.state.mgrmap.to_bytes_for(features);
                    self.send(conn, front(0x704, map));
                }
            }
            "fsmap" | "fsmap.user" => {
                let epoch = self.state.fsmap.epoch;
                if self.newer(conn, name, sub, epoch) {
                    let mut w = denc::Writer::new(features);
                    epoch.encode(&mut w);
                    let Some(session) = self.sessions.get(&conn) else { return };
                    let map = crate::fs::visible(&self.state.fsmap, &session.info);
                    if name == "fsmap" {
                        map.encode(&mut w);
                        self.send(conn, front(45, w.finish()));
                    } else {
                        map.user_map().encode(&mut w);
                        self.send(conn, front(103, w.finish()));
                    }
                }
            }
            "servicemap" => {
                let map = &self.volatile.services.map;
                let epoch = map.epoch;
                let bytes = map.to_bytes_for(features);
                if self.newer(conn, name, sub, epoch) {
                    self.send(conn, front(0x707, bytes));
                }
            }
            _ if name == "mdsmap" || name.starts_with("mdsmap.") => {
                self.send_mdsmap(conn, name, sub)
            }
            _ if name.starts_with("log-") => self.send_log(conn, name, sub),
            _ => {} // osd_pg_creates, mgrdigest, kv: nothing is ever sent
        }
    }

    /// Whether `epoch` is wanted; if so the subscription moves on behind it.
    pub(super) fn newer(
        &mut self,
        conn: ConnId,
        name: &str,
        sub: Subscription,
        epoch: Epoch,
    ) -> bool {
        if u64::from(epoch.0) < sub.next {
            return false;
        }
        self.moved_on(conn, name, sub, u64::from(epoch.0) + 1);
        true
    }

    fn moved_on(&mut self, conn: ConnId, name: &str, sub: Subscription, next: u64) {
        self.note_unsaid(|| Unsaid::Sub(conn, name.to_owned(), sub));
        let Some(session) = self.sessions.get_mut(&conn) else { return };
        if sub.onetime {
            session.subs.remove(name);
        } else {
            session.subs.insert(name.to_owned(), Subscription { next, ..sub });
        }
    }

    /// What is said now waits for its batch, if any: what was before it.
    fn note_unsaid(&mut self, before: impl FnOnce() -> Unsaid) {
        if let Some(seq) = self.gate() {
            self.unsaid.push_back((seq, before()));
        }
    }

    /// What waited to be said never will be: sessions are where they were before it.
    pub(super) fn unsay(&mut self) {
        for (_, unsaid) in std::mem::take(&mut self.unsaid).into_iter().rev() {
            let (Unsaid::Sub(conn, ..) | Unsaid::Config(conn, _)) = unsaid;
            let Some(session) = self.sessions.get_mut(&conn) else { continue };
            match unsaid {
                Unsaid::Sub(_, name, sub) => drop(session.subs.insert(name, sub)),
                Unsaid::Config(_, sent) => session.config_sent = sent,
            }
        }
    }

    pub(super) fn send_monmap(&mut self, conn: ConnId, tid: u64) {
        let Some(session) = self.sessions.get(&conn) else { return };
        let monmap = self.state.monmap.to_bytes_for(session.info.features);
        self.tell(conn, tid, &MonMapMsg { monmap });
    }

    /// Sends the settings of that peer, where they differ from what it has.
    fn send_config(&mut self, conn: ConnId, changed_only: bool) {
        let Some(session) = self.sessions.get(&conn) else { return };
        let name = session.info.name.clone();
        let config = self.config_of(&name, &session.info.hostname);
        let Some(session) = self.sessions.get_mut(&conn) else { return };
        // Who asked and heard nothing yet is told: what was to be said is taken back with a lost lead.
        let waits = session.subs.contains_key("config");
        if session.config_sent.as_ref() == Some(&config)
            || (changed_only && session.config_sent.is_none() && !waits)
        {
            return;
        }
        let before = session.config_sent.replace(config.clone());
        let sub = session.subs.get("config").copied();
        self.note_unsaid(|| Unsaid::Config(conn, before));
        if let Some(sub) = sub {
            self.moved_on(conn, "config", sub, self.state.config.version + 1);
        }
        self.tell(conn, 0, &ConfigMsg { config });
    }

    /// The central settings as they apply to an entity.
    pub(super) fn config_of(
        &self,
        name: &types::EntityName,
        host: &str,
    ) -> BTreeMap<String, String> {
        let place = self.place_of(name, host);
        let all = self.state.config.effective(name, &place);
        all.into_iter().map(|(k, (v, _))| (k, v)).collect()
    }

    fn place_of(&self, name: &types::EntityName, host: &str) -> ConfigPlace {
        let mut place = ConfigPlace::default();
        if !host.is_empty() {
            place.location.insert("host".to_owned(), host.to_owned());
        }
        if name.kind == types::EntityKind::OSD
            && let Ok(id) = name.id.parse::<i32>()
        {
            let crush = &self.state.osdmap.crush;
            place.location.extend(crate::crushops::location(crush, id));
            if let Some(class) = crate::crushops::class_of(crush, id) {
                place.device_class = class;
            }
        }
        place
    }

    // ----- OSD maps -----

    fn send_osdmap_sub(&mut self, conn: ConnId, sub: Subscription) {
        let last = self.state.osd_history.last;
        if u64::from(last.0) < sub.next {
            return;
        }
        if sub.next == 0 {
            self.send_full_osdmap(conn, last);
        } else {
            self.send_osdmaps(conn, Epoch(sub.next.min(u64::from(u32::MAX)) as u32));
        }
        self.moved_on(conn, "osdmap", sub, u64::from(last.0) + 1);
    }

    fn osdmap_msg(&self) -> OsdMapMsg {
        OsdMapMsg {
            fsid: self.state.fsid,
            oldest: self.state.osd_history.first,
            newest: self.state.osd_history.last,
            ..OsdMapMsg::default()
        }
    }

    fn send_full_osdmap(&mut self, conn: ConnId, epoch: Epoch) {
        let mut msg = self.osdmap_msg();
        if let Some(map) = self.full_for(conn, epoch) {
            msg.fulls.insert(epoch, map);
            self.tell(conn, 0, &msg);
        }
    }

    /// Sends all that leads from `first` to the newest epoch, also to who asked once: a client with
    /// a request that is not answered asks every five seconds. With one message each time, as from
    /// the peer, it would never catch up with maps that are made faster.
    pub(super) fn send_osdmaps(&mut self, conn: ConnId, first: Epoch) {
        let history = &self.state.osd_history;
        let (oldest, last) = (history.first, history.last);
        let mut next = first;
        if first <= oldest {
            self.send_full_osdmap(conn, oldest);
            next = Epoch(oldest.0 + 1);
        }
        while next <= last {
            let mut msg = self.osdmap_msg();
            while next <= last && msg.incrementals.len() < INCREMENTALS_PER_MESSAGE {
                let Some(inc) = self.incremental_for(conn, next) else { return };
                msg.incrementals.insert(next, inc);
                next = Epoch(next.0 + 1);
            }
            self.tell(conn, 0, &msg);
        }
    }

    /// Whether maps as they are stored read well for a peer with `features`.
    fn same_form(&self, features: Features) -> bool {
        let stored = self.state.osdmap.canonical_features();
        features.0 & OSDMAP_FEATURES.0 == stored.0 & OSDMAP_FEATURES.0
    }

    pub(super) fn full_for(&mut self, conn: ConnId, epoch: Epoch) -> Option<Bytes> {
        let features = self.sessions.get(&conn)?.info.features;
        if self.same_form(features) {
            if epoch == self.state.osd_history.last {
                return self.state.osd_history.full(epoch);
            }
            let history = &self.state.osd_history;
            let key = (epoch, true, features.0 & OSDMAP_FEATURES.0);
            return self.map_cache.get(key, || history.full(epoch));
        }
        let bytes = self.state.osd_history.full(epoch)?;
        self.map_cache.get((epoch, true, features.0 & OSDMAP_FEATURES.0), || {
            let map = maps::OsdMap::from_shared(&bytes).ok()?;
            Some(map.to_bytes_for(features))
        })
    }

    pub(super) fn incremental_for(&mut self, conn: ConnId, epoch: Epoch) -> Option<Bytes> {
        let features = self.sessions.get(&conn)?.info.features;
        let bytes = self.state.osd_history.incrementals.get(&epoch)?.clone();
        if self.same_form(features) {
            return Some(bytes);
        }
        self.map_cache.get((epoch, false, features.0 & OSDMAP_FEATURES.0), || {
            let inc = maps::Incremental::from_shared(&bytes).ok()?;
            inc.reencode(features).ok()
        })
    }

    /// Tells everybody who waits for OSD maps.
    pub(super) fn push_osdmap(&mut self) {
        self.push_all("osdmap");
    }

    fn push_all(&mut self, name: &str) {
        let conns: Vec<ConnId> = self
            .sessions
            .iter()
            .filter(|(_, s)| s.subs.contains_key(name))
            .map(|(c, _)| *c)
            .collect();
        for conn in conns {
            self.check_sub(conn, name);
        }
    }

    /// Tells everybody what a change of the state concerns.
    pub(super) fn push_effects(&mut self, effects: Effects) {
        if effects.monmap {
            self.push_all("monmap");
        }
        if effects.mgrmap {
            self.push_all("mgrmap");
        }
        if effects.fsmap {
            for name in ["fsmap", "fsmap.user"] {
                self.push_all(name);
            }
            self.push_matching("mdsmap");
        }
        if effects.classes {
            self.push_all("cls");
        }
        if effects.log {
            self.push_matching("log-");
        }
        if effects.config {
            let conns: Vec<ConnId> = self.sessions.keys().copied().collect();
            for conn in conns {
                self.send_config(conn, true);
            }
        }
    }

    fn push_matching(&mut self, prefix: &str) {
        let mut todo = Vec::new();
        for (conn, session) in &self.sessions {
            let names = session.subs.keys().filter(|n| n.starts_with(prefix));
            todo.extend(names.map(|n| (*conn, n.clone())));
        }
        for (conn, name) in todo {
            self.check_sub(conn, &name);
        }
    }

    // ----- the log -----

    fn send_log(&mut self, conn: ConnId, name: &str, sub: Subscription) {
        let level = match &name["log-".len()..] {
            "debug" => LogPriority::DEBUG,
            "info" => LogPriority::INFO,
            "sec" => LogPriority::SEC,
            "warn" => LogPriority::WARN,
            "error" => LogPriority::ERROR,
            _ => return,
        };
        let log = &self.state.log;
        if sub.next == 0 {
            // From now on.
            let next = log.version + 1;
            return self.moved_on(conn, name, Subscription { onetime: false, ..sub }, next);
        }
        let lines: Vec<_> = log
            .entries
            .iter()
            .filter(|(version, line)| *version >= sub.next && line.prio >= level)
            .map(|(_, line)| line.clone())
            .collect();
        let version = log.version;
        if version < sub.next {
            return;
        }
        self.moved_on(conn, name, sub, version + 1);
        for part in lines.chunks(LOG_LINES_PER_MESSAGE) {
            let msg =
                LogMsg { paxos: Paxos { version }, fsid: self.state.fsid, entries: part.to_vec() };
            self.tell(conn, 0, &msg);
        }
    }
}
