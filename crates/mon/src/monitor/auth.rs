//! Keys and tickets: the handshakes' copy of the key database, rotation, global ids.

use ::auth::{CryptoKey, KeyKind, MonAuth, MonAuthSettings, TicketPolicy, handshake};
use conf::key;
use env::ConnId;
use messages::{Auth, AuthReply, LogPriority};
use types::EntityKind;

use super::Monitor;
use crate::{AuthChange, Mutation};

/// Global ids taken from the log at a time.
const GLOBAL_ID_BATCH: u64 = 1000;
/// Fewer left than this, and more are taken.
pub(super) const GLOBAL_IDS_LOW: u64 = 500;

impl Monitor {
    /// What makes handshakes for new connections: `MonAuth::connection` gives one for
    /// each. It stays current by itself.
    #[must_use]
    pub fn auth(&self) -> MonAuth {
        self.auth.clone()
    }

    fn ticket_policy(&self) -> TicketPolicy {
        let defaults = TicketPolicy::default();
        let auth = self.state.monmap.auth.as_ref();
        let cipher = auth.and_then(|a| KeyKind::cipher(a.service_cipher));
        let secs =
            |key| u32::try_from(self.option::<conf::key::Secs>(key).as_secs()).unwrap_or(u32::MAX);
        TicketPolicy {
            mon_ticket_ttl_secs: secs(key::AUTH_MON_TICKET_TTL),
            service_ticket_ttl_secs: secs(key::AUTH_SERVICE_TICKET_TTL),
            service_cipher: cipher.unwrap_or(defaults.service_cipher),
        }
    }

    /// The key by which monitors know each other: the store's, or that of the data directory's keyring
    /// where it was made later.
    #[must_use]
    pub fn mon_key(&self) -> Option<CryptoKey> {
        let mon = types::EntityName::new(EntityKind::MON, "");
        let stored = self.state.auth.get(&mon).map(|e| &e.key);
        let kept = self.config.kept_key.as_ref();
        let kept = kept.filter(|kept| stored.is_none_or(|stored| kept.created > stored.created));
        kept.or(stored).cloned()
    }

    pub(super) fn refresh_auth_settings(&mut self) {
        let mut settings = MonAuthSettings {
            policy: self.ticket_policy(),
            allow_insecure_reclaim: self.option(key::AUTH_ALLOW_INSECURE_GLOBAL_ID_RECLAIM),
            mon_key: self.mon_key(),
            ..MonAuthSettings::default()
        };
        let modes = |key| handshake::con_mode::by_names(&self.option::<conf::key::Str>(key));
        let (service, cluster) = (modes(key::MS_MON_SERVICE_MODE), modes(key::MS_MON_CLUSTER_MODE));
        if !service.is_empty() {
            settings.modes = service;
        }
        if !cluster.is_empty() {
            settings.cluster_modes = cluster;
        }
        if let Some(kinds) = self.allowed_kinds() {
            settings.allowed_ciphers = kinds;
        }
        if self.config.auth_none {
            settings.methods = vec![handshake::method::NONE];
        }
        self.auth.set_settings(settings);
    }

    /// Kinds of keys that may log in: what this monitor's own configuration says in an emergency, else
    /// the map. None where neither does.
    fn allowed_kinds(&self) -> Option<Vec<KeyKind>> {
        let auth = self.state.monmap.auth.as_ref();
        let of_map = |a: &maps::MonMapAuth| {
            a.allowed_ciphers.iter().filter_map(|kind| KeyKind::cipher(*kind)).collect()
        };
        self.emergency_kinds().or_else(|| auth.map(of_map))
    }

    /// Ciphers that are allowed whatever the map says: the way back for an operator who is locked out.
    /// `mon_auth_emergency_allowed_ciphers` of the monitor's own configuration alone; none where it names
    /// no cipher.
    pub(super) fn emergency_kinds(&self) -> Option<Vec<KeyKind>> {
        let text = self.config.options.get(key::MON_AUTH_EMERGENCY_ALLOWED_CIPHERS.name())?;
        let names = text.split([',', ' ']);
        let kinds: Vec<_> = names.filter_map(|name| KeyKind::cipher_named(name.trim())).collect();
        (!kinds.is_empty()).then_some(kinds)
    }

    /// The committed key database goes to the handshakes.
    pub(super) fn refresh_auth_keys(&mut self) {
        self.auth.set_keys(self.state.auth.clone());
        self.auth_stale = false;
    }

    /// Service keys are renewed and global ids taken in time.
    pub(super) fn auth_round(&mut self) {
        let now = self.wall();
        let policy = self.ticket_policy();
        if let Some(secrets) = self.state.auth.plan_rotation(now, &policy, &mut *self.rng) {
            self.propose(Mutation::Auth(AuthChange::Rotate { at: now, secrets }));
        }
        if self.ids_asked.is_none() && self.auth.global_ids_left() < GLOBAL_IDS_LOW {
            let (from, below) = self.take_ids();
            self.propose(Mutation::GlobalIds { below });
            self.ids_asked = Some((self.seq, from..below));
        }
    }

    /// The next global ids: to be taken by a change of the state.
    pub(super) fn take_ids(&self) -> (u64, u64) {
        let from = self.state.global_ids_below;
        (from, from + GLOBAL_ID_BATCH)
    }

    /// A batch was committed: what it gave the handshakes.
    pub(super) fn auth_committed(&mut self) {
        if let Some((seq, ids)) = self.ids_asked.take() {
            if seq <= self.done {
                self.auth.add_global_ids(ids);
            } else {
                self.ids_asked = Some((seq, ids));
            }
        }
        if self.auth_stale && !self.open.auth {
            self.refresh_auth_keys();
        }
    }

    /// Tickets are renewed within a session.
    pub(super) fn on_auth(&mut self, conn: ConnId, tid: u64, msg: &Auth) {
        let Some(session) = self.sessions.get_mut(&conn) else { return };
        let answer = self.auth.on_mauth(self.now, &session.identity, &msg.payload);
        if let Some(peer) = answer.peer {
            session.identity = peer;
        }
        let global_id = session.info.global_id;
        if let Some(why) = &answer.refusal {
            tracing::warn!("authentication refused: {why}");
            let line = format!("authentication of {} refused: {why}", session.info.name);
            self.audit(LogPriority::WARN, line);
        }
        let reply = AuthReply {
            protocol: msg.protocol.max(handshake::method::CEPHX),
            result: answer.result,
            global_id,
            payload: answer.payload,
            message: String::new(),
        };
        self.tell(conn, tid, &reply);
    }
}
