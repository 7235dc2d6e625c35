//! A daemon that is a client of the cluster, too: its operations come from the address and with the
//! ticket by which the monitors know the daemon, so that a blocklist entry for it stops them.
//!
//! One session with the monitors serves both: the daemon gets the messages that are not the
//! client's, and keeps the doors' keys fresh by it.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use auth::SharedRotatingKeys;
use maps::OsdMap;
use messages::Envelope;
use osdc::Objecter;
use rt::{Messenger, NetEvent};

use crate::inner::Inner;
use crate::{Cluster, LinkConfig, MonLink};

/// What a daemon hears by its session with the monitors. Calls of [`Cluster`] are allowed from
/// within.
#[derive(Debug)]
pub enum News {
    /// A session is open, the first or a later one: the daemon has its number now. What was sent
    /// over an earlier one may be lost.
    Session,
    /// A message that is not the client's own: settings, other maps, answers to what the daemon
    /// sent. Tell [`Cluster::got`] which version of a map is held.
    Message(Envelope),
    /// There is a newer OSD map: [`Cluster::newest_map`].
    OsdMap,
}

impl Cluster {
    /// A client within a daemon, on the daemon's messenger. Nothing is sent before
    /// [`Cluster::start`]. The daemon hands all events of the messenger to [`Cluster::on_event`].
    #[must_use]
    pub fn join(
        messenger: Messenger,
        link: LinkConfig,
        keys: SharedRotatingKeys,
        listener: impl Fn(News) + 'static,
    ) -> Self {
        let link = MonLink::new(messenger.clone(), link, Some(keys));
        let listener: Box<dyn Fn(News)> = Box::new(listener);
        let inner = Inner::of(messenger, link, Objecter::new(), Some(listener));
        let cluster = Self(Rc::new(inner));
        cluster.keep_ticking();
        cluster
    }

    /// Begins to look for a monitor, and subscribes to OSD maps, monitor maps and what is named.
    pub fn start(&self, also: &[&str]) {
        let events = self.0.link.borrow_mut().start(rt::now());
        self.0.on_mon_events(events);
        for what in ["osdmap", "monmap"].iter().chain(also) {
            self.subscribe(what, 0);
        }
    }

    pub(crate) fn keep_ticking(&self) {
        let weak = Rc::downgrade(&self.0);
        tokio::task::spawn_local(async move {
            loop {
                tokio::time::sleep(Duration::from_millis(200)).await;
                let Some(inner) = weak.upgrade() else { return };
                let events = inner.link.borrow_mut().on_tick(rt::now());
                inner.on_mon_events(events);
            }
        });
    }

    /// Takes an event of a connection that this client made; gives back one of any other.
    pub fn on_event(&self, event: NetEvent) -> Option<NetEvent> {
        self.0.on_event(event)
    }

    /// Sends a message to the monitors; lost when no session is open.
    pub fn send_mon(&self, envelope: Envelope) {
        self.0.link.borrow_mut().send(envelope);
    }

    /// Wants maps or settings from a version on, in this session and later ones.
    pub fn subscribe(&self, what: &str, from: u64) {
        let events = self.0.link.borrow_mut().with(|c, out| c.subscribe(what, from, false, out));
        self.0.on_mon_events(events);
    }

    /// Says that a version of what was subscribed to is here: later sessions begin behind it.
    pub fn got(&self, what: &str, version: u64) {
        let events = self.0.link.borrow_mut().with(|c, _| c.got(what, version));
        debug_assert!(events.is_empty(), "noting a version sends nothing");
    }

    /// The newest OSD map; none before the first session's.
    #[must_use]
    pub fn newest_map(&self) -> Option<Arc<OsdMap>> {
        self.0.objecter.borrow().map().cloned()
    }
}
