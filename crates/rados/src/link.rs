//! A process's session with the monitors: the monitor client on a real messenger, with
//! tickets and service keys kept fresh. Used by the client library and by OSD daemons.

use std::sync::{Arc, Mutex, RwLock};

use auth::{
    AuthorizerClientAuth, ClientAuth, ClientAuthSettings, CryptoKey, MonClientAuth, RotatingKeys,
    ServiceAuth, ServiceAuthSettings, SharedRandom, SharedRotatingKeys, SharedTickets, Tickets,
    service_mask,
};
use env::{ConnId, Now};
use messages::Envelope;
use monc::{Event, MonClient, Out, ServiceKeys, TicketRenewal};
use rt::{Messenger, NetEvent, OsRandom, Policy, Redial};
use types::{EntityAddr, EntityKind, EntityName, Uuid};

/// `auth_service_ticket_ttl`, by default.
const TICKET_TTL_SECS: u32 = 3600;

/// Who connects, and how.
#[derive(Clone, Debug)]
pub struct LinkConfig {
    /// Whose key it is.
    pub name: EntityName,
    /// The key.
    pub key: CryptoKey,
    /// Monitors to try.
    pub mons: Vec<EntityAddr>,
    /// The cluster; zero where unknown.
    pub fsid: Uuid,
    /// The host's name.
    pub hostname: String,
    /// Services whose tickets are needed.
    pub services: Vec<EntityKind>,
    /// Methods to authenticate by, in order of preference: `auth::method`.
    pub methods: Vec<u32>,
    /// Modes of connections to monitors, in order of preference: no other is taken.
    pub mon_modes: Vec<u32>,
    /// The same of connections to other daemons.
    pub modes: Vec<u32>,
}

/// See the module's page.
pub struct MonLink {
    messenger: Messenger,
    config: LinkConfig,
    client: MonClient,
    keeper: TicketRenewal,
    tickets: SharedTickets,
    wanted: u32,
    random: SharedRandom,
    conn: Option<ConnId>,
}

impl MonLink {
    /// A link that is not connected yet. `own_keys` are a daemon's service keys, which the
    /// link fills; `None` in clients.
    #[must_use]
    pub fn new(
        messenger: Messenger,
        config: LinkConfig,
        own_keys: Option<SharedRotatingKeys>,
    ) -> Self {
        let client = MonClient::new(
            config.mons.clone(),
            config.fsid,
            config.hostname.clone(),
            &mut OsRandom,
        );
        let tickets = Tickets::new(config.name.clone(), config.key.clone()).shared();
        let random: SharedRandom = Arc::new(Mutex::new(OsRandom));
        let wanted = service_mask(&config.services);
        let own_keys = own_keys.map(|keys| ServiceKeys { keys, ticket_ttl_secs: TICKET_TTL_SECS });
        let keeper = TicketRenewal::new(tickets.clone(), wanted, own_keys, random.clone());
        Self { messenger, config, client, keeper, tickets, wanted, random, conn: None }
    }

    /// A daemon's keys, empty until the monitors give them.
    #[must_use]
    pub fn new_keys() -> SharedRotatingKeys {
        Arc::new(RwLock::new(RotatingKeys::default()))
    }

    /// Makes the objects that check who connects to this daemon. `modes` are the
    /// connection modes accepted; none means all.
    pub fn door(
        service: EntityKind,
        keys: SharedRotatingKeys,
        none: bool,
        modes: &[u32],
    ) -> impl Fn() -> Box<dyn auth::ServerAuth> + use<> {
        let mut settings = ServiceAuthSettings::cephx(service);
        if none {
            settings.methods = vec![auth::handshake::method::NONE];
        }
        if !modes.is_empty() {
            settings.modes = modes.to_vec();
        }
        let random: SharedRandom = Arc::new(Mutex::new(OsRandom));
        move || Box::new(ServiceAuth::new(settings.clone(), keys.clone(), random.clone()))
    }

    /// The monitor client.
    #[must_use]
    pub fn client(&self) -> &MonClient {
        &self.client
    }

    /// The id that the monitors gave this process; 0 before.
    #[must_use]
    pub fn global_id(&self) -> u64 {
        self.tickets.lock().expect("no panic while held").global_id
    }

    /// Shows this process's ticket to daemons of a kind.
    #[must_use]
    pub fn redial(&self, service: EntityKind) -> Redial {
        let settings = ClientAuthSettings {
            methods: self.config.methods.clone(),
            modes: self.config.modes.clone(),
        };
        let (tickets, random) = (self.tickets.clone(), self.random.clone());
        Box::new(move || -> Box<dyn ClientAuth> {
            let (tickets, random) = (tickets.clone(), random.clone());
            Box::new(AuthorizerClientAuth::new(settings.clone(), tickets, service, random))
        })
    }

    /// Begins to look for a monitor.
    pub fn start(&mut self, now: Now) -> Vec<Event> {
        self.with(|client, out| client.start(now, out))
    }

    /// To be called a few times a second.
    pub fn on_tick(&mut self, now: Now) -> Vec<Event> {
        let mut out = Vec::new();
        self.client.on_tick(now, &mut self.keeper, &mut out);
        self.carry_out(out)
    }

    /// Whether this connection is the monitors'.
    #[must_use]
    pub fn owns(&self, conn: ConnId) -> bool {
        self.conn == Some(conn)
    }

    /// Where the monitor sees this process, while a session is open.
    #[must_use]
    pub fn seen_as(&self) -> Option<std::net::SocketAddr> {
        self.messenger.seen_as(self.conn?)
    }

    /// An event of a connection that this link [`MonLink::owns`].
    pub fn on_event(&mut self, now: Now, event: NetEvent) -> Vec<Event> {
        let mut out = Vec::new();
        match event {
            NetEvent::Opened { .. } => {
                self.client.on_opened(now, &mut out);
                // A daemon's keys are needed before anybody can connect to it.
                self.client.on_tick(now, &mut self.keeper, &mut out);
            }
            NetEvent::Message { env, .. } => {
                self.client.on_message(now, env, &mut self.keeper, &mut out);
            }
            NetEvent::Closed { why, .. } => {
                tracing::debug!("monitor connection: {why}");
                self.conn = None;
                self.client.on_closed(now, &mut out);
            }
            NetEvent::Alive { .. } => {}
        }
        self.carry_out(out)
    }

    /// Calls the monitor client and does what it wants.
    pub fn with(&mut self, call: impl FnOnce(&mut MonClient, &mut Vec<Out>)) -> Vec<Event> {
        let mut out = Vec::new();
        call(&mut self.client, &mut out);
        self.carry_out(out)
    }

    /// Sends a message; lost when no session is open.
    pub fn send(&mut self, envelope: Envelope) {
        let mut out = Vec::new();
        self.client.send(envelope, &mut out);
        self.carry_out(out);
    }

    fn carry_out(&mut self, out: Vec<Out>) -> Vec<Event> {
        let mut events = Vec::new();
        for wish in out {
            match wish {
                Out::Connect(addr) => {
                    let settings = ClientAuthSettings {
                        methods: self.config.methods.clone(),
                        modes: self.config.mon_modes.clone(),
                    };
                    let (tickets, random) = (self.tickets.clone(), self.random.clone());
                    let wanted = self.wanted;
                    let redial: Redial = Box::new(move || -> Box<dyn ClientAuth> {
                        let (tickets, random) = (tickets.clone(), random.clone());
                        Box::new(MonClientAuth::new(settings.clone(), tickets, wanted, random))
                    });
                    let policy = Policy::lossy_client();
                    self.conn = Some(self.messenger.connect(addr, EntityKind::MON, policy, redial));
                }
                Out::Close => {
                    if let Some(conn) = self.conn.take() {
                        self.messenger.close(conn);
                    }
                }
                Out::Send(envelope) => {
                    if let Some(conn) = self.conn {
                        self.messenger.send(conn, envelope);
                    }
                }
                Out::Event(event) => events.push(event),
            }
        }
        events
    }
}
