//! The monitors' database of keys: entities with their caps, and the rotating keys of the
//! services. A plain value: the monitor changes it by its replicated log.

use std::collections::BTreeMap;

use bytes::Bytes;
use denc::{DecodeError, Denc, Features, Reader, Writer};
use env::Random;
use types::{EntityKind, EntityName, UTime};

use crate::proto::RotatingSecrets;
use crate::{CryptoKey, KeyKind};

/// An entity's key and caps. The peer's `EntityAuth` (v3): u8 3, u64 all ones, key, map of
/// service to a bufferlist that holds an encoded string, pending key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EntityAuth {
    /// Proves who it is.
    pub key: CryptoKey,
    /// Service to caps text: `mon` to `allow r`.
    pub caps: BTreeMap<String, String>,
    /// Takes the key's place when it is first used; none as a rule.
    pub pending_key: CryptoKey,
}

impl Denc for EntityAuth {
    fn encode(&self, w: &mut Writer) {
        w.u8(3);
        w.u64(u64::MAX);
        self.key.encode(w);
        w.seq(&self.caps, |w, (service, caps)| {
            w.str(service);
            w.sized(|w| w.str(caps));
        });
        self.pending_key.encode(w);
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let version = r.u8()?;
        if version >= 2 {
            r.u64()?;
        }
        let key = Denc::decode(r)?;
        let caps = r.seq(|r| {
            let service = r.string()?;
            let caps = r.blob_ref()?;
            let caps = if caps.is_empty() { String::new() } else { Reader::new(caps).string()? };
            Ok((service, caps))
        })?;
        let pending_key = if version >= 3 { Denc::decode(r)? } else { CryptoKey::default() };
        Ok(Self { key, caps: caps.into_iter().collect(), pending_key })
    }
}

/// Every key. The peer's `KeyServerData`: u8 1, u64 version, u64 rotating version, map of
/// entities, map of services to [`RotatingSecrets`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyServer {
    /// Grows with every change of an entity.
    pub version: u64,
    /// Grows with every rotation.
    pub rotating_version: u64,
    /// By name.
    pub entities: BTreeMap<EntityName, EntityAuth>,
    /// By service, see [`EntityKind`].
    pub rotating: BTreeMap<u32, RotatingSecrets>,
}

impl Denc for KeyServer {
    fn encode(&self, w: &mut Writer) {
        w.u8(1);
        w.u64(self.version);
        w.u64(self.rotating_version);
        self.entities.encode(w);
        self.rotating.encode(w);
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let _version = r.u8()?;
        Ok(Self {
            version: r.u64()?,
            rotating_version: r.u64()?,
            entities: Denc::decode(r)?,
            rotating: Denc::decode(r)?,
        })
    }
}

/// Life times of tickets and kind of the keys they are sealed with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TicketPolicy {
    /// `auth_mon_ticket_ttl`: of the AUTH ticket.
    pub mon_ticket_ttl_secs: u32,
    /// `auth_service_ticket_ttl`: of the others.
    pub service_ticket_ttl_secs: u32,
    /// `auth_service_cipher`: kind of new rotating keys.
    pub service_cipher: KeyKind,
}

impl Default for TicketPolicy {
    fn default() -> Self {
        Self {
            mon_ticket_ttl_secs: 72 * 3600,
            service_ticket_ttl_secs: 3600,
            service_cipher: KeyKind::AES,
        }
    }
}

impl TicketPolicy {
    /// The life time of a ticket for `service`.
    #[must_use]
    pub fn ttl_secs(&self, service: EntityKind) -> u32 {
        // Half-lives below this would have clients renew without pause.
        let ttl = if service == EntityKind::AUTH {
            self.mon_ticket_ttl_secs
        } else {
            self.service_ticket_ttl_secs
        };
        ttl.max(1)
    }
}

impl KeyServer {
    /// The services that have rotating keys.
    pub const SERVICES: [EntityKind; 5] =
        [EntityKind::AUTH, EntityKind::MON, EntityKind::OSD, EntityKind::MDS, EntityKind::MGR];

    /// An entity.
    #[must_use]
    pub fn get(&self, name: &EntityName) -> Option<&EntityAuth> {
        self.entities.get(name)
    }

    /// Creates or replaces an entity.
    pub fn set(&mut self, name: EntityName, key: CryptoKey, caps: BTreeMap<String, String>) {
        self.version += 1;
        self.entities.insert(name, EntityAuth { key, caps, pending_key: CryptoKey::default() });
    }

    /// Forgets an entity; whether it was there.
    pub fn remove(&mut self, name: &EntityName) -> bool {
        self.version += 1;
        self.entities.remove(name).is_some()
    }

    /// The caps text of an entity for a service; `None`: no such entity, or none for it.
    #[must_use]
    pub fn caps(&self, name: &EntityName, service: EntityKind) -> Option<&str> {
        self.entities.get(name)?.caps.get(service.name()).map(String::as_str)
    }

    /// A service's rotating keys.
    #[must_use]
    pub fn rotating(&self, service: EntityKind) -> Option<&RotatingSecrets> {
        self.rotating.get(&u32::from(service.0))
    }

    /// What the leader should write to the log so that every service has the keys it needs
    /// at `now`: an encoded map of service to its new set. `None`: nothing to do.
    #[must_use]
    pub fn plan_rotation(
        &self,
        now: UTime,
        policy: &TicketPolicy,
        rng: &mut dyn Random,
    ) -> Option<Bytes> {
        let mut changed = BTreeMap::new();
        for service in Self::SERVICES {
            let id = u32::from(service.0);
            let set = self.rotating.get(&id);
            if set.is_none_or(|s| s.needs_new(now)) {
                let mut set = set.cloned().unwrap_or_default();
                set.extend(now, policy.ttl_secs(service), policy.service_cipher, rng);
                changed.insert(id, set);
            }
        }
        (!changed.is_empty()).then(|| changed.to_bytes())
    }

    /// What the leader should write to replace the keys of every service but AUTH: all
    /// service tickets become worthless. The peer's `wipe-rotating-service-keys`.
    #[must_use]
    pub fn plan_wipe(&self, now: UTime, policy: &TicketPolicy, rng: &mut dyn Random) -> Bytes {
        let mut changed = BTreeMap::new();
        for service in Self::SERVICES.into_iter().filter(|s| *s != EntityKind::AUTH) {
            let id = u32::from(service.0);
            let max_ver = self.rotating.get(&id).map_or(0, |s| s.max_ver);
            let mut set = RotatingSecrets { secrets: BTreeMap::new(), max_ver };
            set.extend(now, policy.ttl_secs(service), policy.service_cipher, rng);
            changed.insert(id, set);
        }
        changed.to_bytes()
    }

    /// Applies what [`KeyServer::plan_rotation`] or [`KeyServer::plan_wipe`] planned.
    ///
    /// # Errors
    /// [`DecodeError`]; nothing is changed then.
    pub fn apply_rotation(&mut self, planned: &[u8]) -> Result<(), DecodeError> {
        let changed = BTreeMap::<u32, RotatingSecrets>::from_bytes(planned)?;
        self.rotating.extend(changed);
        self.rotating_version += 1;
        Ok(())
    }

    /// All entities as a keyring.
    #[must_use]
    pub fn keyring(&self) -> crate::Keyring {
        crate::Keyring { entities: self.entities.clone() }
    }

    /// Encoded as a snapshot of the monitor's state keeps it.
    #[must_use]
    pub fn snapshot(&self) -> Bytes {
        self.to_bytes_for(Features::ALL)
    }
}
