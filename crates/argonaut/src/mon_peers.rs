//! What carries a monitor's messages to the others ([`mon::links`]): the messenger, with an
//! authorizer that is sealed with the monitors' own key.

use std::path::Path;
use std::sync::{Arc, Mutex};

use anyhow::{Context, Result};
use auth::{
    AuthorizerClientAuth, ClientAuth, ClientAuthSettings, CryptoKey, Keyring, SharedRandom,
};
use env::ConnId;
use messages::Envelope;
use mon::links::Wire;
use mon::vitals::Disk;
use rt::{Messenger, OsRandom, Policy, Redial};
use types::{AddrVec, EntityKind, EntityName};

/// See the module's page.
#[derive(Clone)]
pub struct PeerWire {
    /// This monitor's name.
    pub name: String,
    /// The key of `mon.`, as [`PeerWire::follow_key`] said last: of all clones.
    key: Arc<Mutex<CryptoKey>>,
    pub auth_none: bool,
    /// `ms_mon_cluster_mode`: no other is taken, nor offered.
    pub modes: Vec<u32>,
    pub messenger: Messenger,
    random: SharedRandom,
}

impl PeerWire {
    pub fn new(
        name: String,
        key: CryptoKey,
        auth_none: bool,
        modes: Vec<u32>,
        messenger: Messenger,
    ) -> Self {
        let (key, random) = (Arc::new(Mutex::new(key)), Arc::new(Mutex::new(OsRandom)));
        Self { name, key, auth_none, modes, messenger, random }
    }

    /// The key, which may have been rotated: connections from here on are made with it, and it is put
    /// into the data directory's keyring. The next start may know less of the log than the other monitors
    /// do, and is to know them all the same.
    ///
    /// # Errors
    /// When the keyring cannot be written.
    pub fn follow_key(&self, key: CryptoKey, data: &Path) -> Result<()> {
        let mut held = self.key.lock().expect("no panic while held");
        if *held == key {
            return Ok(());
        }
        let path = data.join("keyring");
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        let mut keyring = Keyring::parse(&text).unwrap_or_default();
        let entity = keyring.entities.entry(EntityName::new(EntityKind::MON, "")).or_default();
        entity.key = key.clone();
        daemon::write_secret(&path, &keyring.to_string())
            .with_context(|| format!("{} cannot be written", path.display()))?;
        *held = key;
        Ok(())
    }

    /// Whether a ticket proves the monitors' own key.
    pub fn proves(identity: &auth::PeerIdentity) -> bool {
        identity.name.kind == EntityKind::MON && identity.allow_all
    }

    fn redial(&self) -> Redial {
        let modes = self.modes.clone();
        let mut settings = ClientAuthSettings { modes, ..ClientAuthSettings::cephx(true) };
        if self.auth_none {
            settings.methods = vec![auth::handshake::method::NONE];
        }
        let name = EntityName::new(EntityKind::MON, self.name.clone());
        let (key, random) = (self.key.clone(), self.random.clone());
        Box::new(move || -> Box<dyn ClientAuth> {
            Box::new(AuthorizerClientAuth::between_mons(
                settings.clone(),
                name.clone(),
                key.lock().expect("no panic while held").clone(),
                random.clone(),
            ))
        })
    }
}

/// The key of `mon.` in a data directory's keyring; `None` where there is none that can be read.
pub fn kept_key(data: &Path) -> Option<CryptoKey> {
    let text = std::fs::read_to_string(data.join("keyring")).ok()?;
    let keyring = Keyring::parse(&text).ok()?;
    keyring.key(&EntityName::new(EntityKind::MON, "")).cloned()
}

/// Whether nobody listens at an address: its host says so. Waits for that for two seconds at most.
pub async fn refuses(addrs: &AddrVec) -> bool {
    const PATIENCE: std::time::Duration = std::time::Duration::from_secs(2);
    let Some(at) = addrs.0.iter().find_map(|addr| addr.sock) else { return false };
    let dialled = tokio::time::timeout(PATIENCE, tokio::net::TcpStream::connect(at)).await;
    matches!(dialled, Ok(Err(e)) if e.kind() == std::io::ErrorKind::ConnectionRefused)
}

/// How much room a monitor's data takes and has. What cannot be looked at counts as nothing.
///
/// Blocks for a look at each file of the directory.
pub fn disk(data: &Path) -> Disk {
    let files = std::fs::read_dir(data).into_iter().flatten().flatten();
    let sizes = files.filter_map(|f| f.metadata().ok()).filter(std::fs::Metadata::is_file);
    let own = sizes.map(|m| m.len()).sum();
    let Ok(fs) = rustix::fs::statvfs(data) else { return Disk { data: own, ..Disk::default() } };
    Disk { total: fs.f_blocks * fs.f_frsize, available: fs.f_bavail * fs.f_frsize, data: own }
}

impl Wire for PeerWire {
    fn dial(&mut self, addrs: &AddrVec) -> ConnId {
        let policy = Policy::lossy_client();
        self.messenger.connect(addrs.clone(), EntityKind::MON, policy, self.redial())
    }

    fn send(&mut self, conn: ConnId, env: Envelope) {
        self.messenger.send(conn, env);
    }

    fn close(&mut self, conn: ConnId) {
        self.messenger.close(conn);
    }
}
