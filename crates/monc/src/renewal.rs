//! Keeps a process's tickets and, in a daemon, its service's keys fresh.

use auth::{AuthError, RotatingKeys, SharedRandom, SharedRotatingKeys, SharedTickets, Tickets};
use bytes::Bytes;
use env::Now;

/// What keeps tickets and service keys fresh within a session.
pub trait Renewal {
    /// The payload of the next request, when something must be renewed by now.
    fn request(&mut self, now: Now) -> Option<Bytes>;

    /// Takes the answer to the last request.
    ///
    /// # Errors
    /// [`AuthError`] when it is refused or cannot be read: the session is opened anew.
    fn answer(&mut self, now: Now, result: i32, payload: &[u8]) -> Result<(), AuthError>;

    /// The monitors' auth epoch grew: service tickets and keys are worthless, get new ones.
    fn forget(&mut self) {}
}

/// How long a daemon waits between two requests for its service's keys, in milliseconds:
/// monitors that make new ones late are not asked all the time.
const KEYS_PAUSE_MS: u64 = 5_000;

/// A daemon's service keys to be kept fresh.
#[derive(Clone, Debug)]
pub struct ServiceKeys {
    /// Where they are kept; the daemon's connections read them there.
    pub keys: SharedRotatingKeys,
    /// `auth_service_ticket_ttl`.
    pub ticket_ttl_secs: u32,
}

/// The tickets and keys of one process. A ticket is renewed when three quarters of its life
/// are over; service keys are fetched when the current one has expired.
pub struct TicketRenewal {
    tickets: SharedTickets,
    wanted: u32,
    service: Option<ServiceKeys>,
    keys_asked_ms: Option<u64>,
    rng: SharedRandom,
}

impl TicketRenewal {
    /// `wanted`: mask of the services whose tickets are needed (`auth::service_mask`);
    /// `service`: a daemon's own keys.
    #[must_use]
    pub fn new(
        tickets: SharedTickets,
        wanted: u32,
        service: Option<ServiceKeys>,
        rng: SharedRandom,
    ) -> Self {
        Self { tickets, wanted, service, keys_asked_ms: None, rng }
    }

    /// The tickets it keeps.
    #[must_use]
    pub fn tickets(&self) -> &SharedTickets {
        &self.tickets
    }
}

impl Renewal for TicketRenewal {
    fn request(&mut self, now: Now) -> Option<Bytes> {
        if let Some(service) = &self.service {
            let paused = self.keys_asked_ms.is_some_and(|t| now.mono_ms() < t + KEYS_PAUSE_MS);
            let keys = service.keys.read().expect("no panic while held");
            if !paused && keys.needs_renewal(now, service.ticket_ttl_secs) {
                self.keys_asked_ms = Some(now.mono_ms());
                return Some(Tickets::rotating_request());
            }
        }
        let tickets = self.tickets.lock().expect("no panic while held");
        let mut rng = self.rng.lock().expect("no panic while held");
        // Without an AUTH ticket (method none) there is nothing to renew.
        tickets.renewal(now, self.wanted, &mut *rng).ok().flatten()
    }

    fn answer(&mut self, now: Now, result: i32, payload: &[u8]) -> Result<(), AuthError> {
        if result < 0 {
            return Err(AuthError::Refused { result, allowed_methods: Vec::new() });
        }
        let mut tickets = self.tickets.lock().expect("no panic while held");
        if let Some(secrets) = tickets.on_reply(now, payload)?
            && let Some(service) = &self.service
        {
            *service.keys.write().expect("no panic while held") = secrets.into();
        }
        Ok(())
    }

    fn forget(&mut self) {
        self.tickets.lock().expect("no panic while held").invalidate_services();
        if let Some(service) = &self.service {
            *service.keys.write().expect("no panic while held") = RotatingKeys::default();
        }
        self.keys_asked_ms = None;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex, RwLock};

    use auth::{
        CryptoKey, KeyKind, KeyServer, MonAuth, MonAuthSettings, PeerIdentity, ServerStep,
        TicketPolicy, service_mask,
    };
    use env::Seeded;
    use types::{EntityAddr, EntityKind, UTime};

    use super::*;

    fn at(secs: u64) -> Now {
        Now { mono_ns: secs * 1_000_000_000, wall_ns: (1_700_000_000 + secs) * 1_000_000_000 }
    }

    fn login(mon: &MonAuth, tickets: &SharedTickets, wanted: u32, now: Now) -> PeerIdentity {
        let rng: SharedRandom = Arc::new(Mutex::new(Seeded(8)));
        let settings = auth::ClientAuthSettings::cephx(true);
        let mut client = auth::MonClientAuth::new(settings, tickets.clone(), wanted, rng);
        let client: &mut dyn auth::ClientAuth = &mut client;
        let mut server = mon.connection();
        let addr: EntityAddr = "127.0.0.1:1".parse().unwrap();
        let start = client.start(now).unwrap();
        let first =
            server.request(now, EntityKind::OSD, &addr, start.method, &start.modes, &start.payload);
        let ServerStep::More(challenge) = first else { panic!("{first:?}") };
        let answer = client.more(now, &challenge).unwrap();
        let last = server.more(now, &answer);
        let ServerStep::Done(done) = last else { panic!("{last:?}") };
        client.done(now, done.global_id, done.con_mode, &done.payload).unwrap();
        done.peer
    }

    /// Over ten days no ticket and no service key ever runs out, and nothing is asked for
    /// without need; a monitor that is late with its keys does not starve the tickets.
    #[test]
    fn never_runs_out() {
        let mut seed = Seeded(3);
        let policy = TicketPolicy::default();
        let key = CryptoKey::generate(KeyKind::AES, UTime::ZERO, &mut seed);
        let mut keys = KeyServer::default();
        let caps = [("mon".to_owned(), "allow profile osd".to_owned())];
        keys.set("osd.0".parse().unwrap(), key.clone(), caps.into());
        let mon = MonAuth::new(MonAuthSettings::default(), Arc::new(Mutex::new(Seeded(4))));
        mon.add_global_ids(1..100);
        let wall = |now: Now| UTime::from_nanos(now.wall_ns);
        let mut rotate = |keys: &mut KeyServer, now| {
            if let Some(planned) = keys.plan_rotation(wall(now), &policy, &mut seed) {
                keys.apply_rotation(&planned).unwrap();
                mon.set_keys(keys.clone());
            }
        };
        rotate(&mut keys, at(0));

        let services = [EntityKind::MON, EntityKind::OSD, EntityKind::MGR];
        let wanted = service_mask(&services);
        let tickets = Tickets::new("osd.0".parse().unwrap(), key).shared();
        let mut peer = login(&mon, &tickets, wanted, at(1));
        let own = Arc::new(RwLock::new(RotatingKeys::default()));
        let mut renewal = TicketRenewal::new(
            tickets.clone(),
            wanted,
            Some(ServiceKeys { keys: own.clone(), ticket_ttl_secs: 3600 }),
            Arc::new(Mutex::new(Seeded(5))),
        );
        let mut asked = 0;
        for t in (10..10 * 86_400).step_by(10) {
            let now = at(t);
            // In the fifth day the monitors are half an hour late.
            let late = if (4 * 86_400..5 * 86_400).contains(&t) { 1800 } else { 0 };
            rotate(&mut keys, at(t - late.min(t)));
            if let Some(request) = renewal.request(now) {
                let answer = mon.on_mauth(now, &peer, &request);
                renewal.answer(now, answer.result, &answer.payload).unwrap();
                peer = answer.peer.unwrap_or(peer);
                asked += u32::from(late == 0);
            }
            let tickets = tickets.lock().unwrap();
            if t > 20 {
                assert!(!own.read().unwrap().is_empty());
                for service in services {
                    assert!(tickets.has(now, service), "{} at {t}", service.name());
                }
            }
        }
        assert!(asked < 1500, "{asked} requests in nine days");
    }
}
