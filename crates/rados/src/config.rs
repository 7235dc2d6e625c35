//! From `ceph.conf` and keyrings to a [`crate::Config`].

use std::path::Path;
use std::time::Duration;

use auth::{CryptoKey, Keyring};
use conf::{ConfFile, Config, key};
use types::{AddrKind, AddrVec, EntityAddr, EntityName};

/// Why the configuration does not lead to a cluster.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A file cannot be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// Which.
        path: String,
        /// Why.
        source: std::io::Error,
    },
    /// ceph.conf is wrong.
    #[error("{path}: {source}")]
    Conf {
        /// Which.
        path: String,
        /// Which line, and how.
        source: conf::ConfError,
    },
    /// A keyring is wrong.
    #[error("{path}: {source}")]
    Keyring {
        /// Which.
        path: String,
        /// Which line, and how.
        source: auth::KeyringError,
    },
    /// A keyring has no key of that entity.
    #[error("{path} holds no key of {name}")]
    NoKey {
        /// Which keyring.
        path: String,
        /// Whose key was wanted.
        name: EntityName,
    },
    /// None of the keyrings is there.
    #[error("none of the keyrings exists: {0}")]
    NoKeyring(String),
    /// `mon_host` does not say where monitors are.
    #[error("mon_host: {0}")]
    MonHost(String),
}

fn read(path: &Path) -> Result<String, ConfigError> {
    std::fs::read_to_string(path)
        .map_err(|source| ConfigError::Read { path: path.display().to_string(), source })
}

/// A keyring file's key of `name`.
///
/// # Errors
/// [`ConfigError`].
pub fn key_in(path: &Path, name: &EntityName) -> Result<CryptoKey, ConfigError> {
    let shown = path.display().to_string();
    let keyring = Keyring::parse(&read(path)?)
        .map_err(|source| ConfigError::Keyring { path: shown.clone(), source })?;
    let no_key = || ConfigError::NoKey { path: shown, name: name.clone() };
    keyring.key(name).cloned().ok_or_else(no_key)
}

/// The key of `name` from the first of the configured keyrings that exists.
///
/// # Errors
/// [`ConfigError`].
pub fn configured_key(config: &Config, name: &EntityName) -> Result<CryptoKey, ConfigError> {
    let paths = config.get(key::KEYRING);
    let words = paths.split([',', ' ', ';']).map(str::trim).filter(|p| !p.is_empty());
    match words.map(Path::new).find(|p| p.exists()) {
        Some(path) => key_in(path, name),
        None => Err(ConfigError::NoKeyring(paths)),
    }
}

/// The ports of monitors: messenger v2 and v1.
pub const MON_PORTS: [u16; 2] = [3300, 6789];

/// What is between commas and spaces, and not within brackets.
fn hosts(text: &str) -> Vec<String> {
    let (mut words, mut depth) = (vec![String::new()], 0);
    for c in text.chars() {
        match c {
            ',' | ' ' | ';' | '\t' | '\n' if depth == 0 => words.push(String::new()),
            _ => {
                depth += i32::from(c == '[') - i32::from(c == ']');
                words.last_mut().expect("never empty").push(c);
            }
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

/// The monitors in `mon_host`: `[v2:IP:PORT,v1:IP:PORT],...`, or plain hosts. A host without a port
/// has both addresses at their ports; what has no v2 address is left out.
///
/// # Errors
/// [`ConfigError::MonHost`].
pub fn mon_members(config: &Config) -> Result<Vec<AddrVec>, ConfigError> {
    let text = config.get(key::MON_HOST);
    let mut members = Vec::new();
    for word in hosts(&text) {
        let list: Vec<&str> = word.split([',', ' ', ';']).filter(|w| !w.is_empty()).collect();
        let parsed: Result<AddrVec, _> = list.join(",").parse();
        let addrs = parsed.map_err(|why| ConfigError::MonHost(format!("'{word}': {why}")))?;
        members.push(with_ports(addrs, &word));
    }
    members.retain(|addrs| addrs.msgr2().is_some());
    if members.is_empty() {
        let how = "names no monitor; write 'mon host = v2:IP:PORT' into ceph.conf";
        return Err(ConfigError::MonHost(how.to_owned()));
    }
    Ok(members)
}

/// The addresses with ports where `text` gives none.
fn with_ports(mut addrs: AddrVec, text: &str) -> AddrVec {
    let lacks = |addr: &EntityAddr| addr.sock.is_some_and(|sock| sock.port() == 0);
    if let [one] = addrs.0[..]
        && lacks(&one)
        && !text.contains("v2:")
        && !text.contains("v1:")
    {
        addrs = AddrVec(vec![one, one.with_kind(AddrKind::LEGACY)]);
    }
    for addr in addrs.0.iter_mut().filter(|addr| lacks(addr)) {
        let port = MON_PORTS[usize::from(addr.kind == AddrKind::LEGACY)];
        addr.sock.iter_mut().for_each(|sock| sock.set_port(port));
    }
    addrs
}

/// The messenger v2 addresses in `mon_host`.
///
/// # Errors
/// [`ConfigError::MonHost`].
pub fn mon_addrs(config: &Config) -> Result<Vec<EntityAddr>, ConfigError> {
    Ok(mon_members(config)?.iter().filter_map(AddrVec::msgr2).collect())
}

/// Connection modes by their names in options: `crc secure`, in order of preference.
#[must_use]
pub fn modes(text: &str) -> Vec<u32> {
    use auth::handshake::con_mode::{CRC, SECURE};
    let by_name =
        |word: &str| [("crc", CRC), ("secure", SECURE)].iter().find(|m| m.0 == word).map(|m| m.1);
    text.split([' ', ',', ';']).filter_map(by_name).collect()
}

/// Authentication methods by their names in options: `cephx, none`, in order of preference.
#[must_use]
pub fn methods(text: &str) -> Vec<u32> {
    use auth::handshake::method::{CEPHX, NONE};
    let by_name =
        |word: &str| [("cephx", CEPHX), ("none", NONE)].iter().find(|m| m.0 == word).map(|m| m.1);
    text.split([' ', ',', ';']).filter_map(by_name).collect()
}

impl crate::Config {
    /// As the named entity, with the key and the monitors that a ceph.conf names.
    ///
    /// # Errors
    /// [`ConfigError`].
    pub fn from_conf(path: &Path, name: &EntityName) -> Result<Self, ConfigError> {
        let shown = path.display().to_string();
        let file = ConfFile::parse(&read(path)?)
            .map_err(|source| ConfigError::Conf { path: shown, source })?;
        let config = Config::new(&file, name.kind.name(), &name.id, "", std::process::id());
        Self::from_options(&config, name)
    }

    /// As the named entity, with the key and the monitors that its options name.
    ///
    /// # Errors
    /// [`ConfigError`].
    pub fn from_options(config: &Config, name: &EntityName) -> Result<Self, ConfigError> {
        Ok(Self {
            name: name.clone(),
            key: configured_key(config, name)?,
            mons: mon_addrs(config)?,
            methods: methods(&config.get(key::AUTH_CLIENT_REQUIRED)),
            mon_modes: modes(&config.get(key::MS_MON_CLIENT_MODE)),
            modes: modes(&config.get(key::MS_CLIENT_MODE)),
            connect_timeout: Duration::from_secs(30),
        })
    }
}
