//! Keys of a kind that can be broken: health, once an operator asked for the better kind.
//!
//! Source: the peer's `mon/AuthMonitor.cc`, `check_health`; live 20.2.4. There a new cluster knows the
//! better kind alone. Here it takes both, since kernels before 7.0 and clients before 19.2.6 know no
//! other, and these checks begin with the first `mon set` that names `aes256k`.

use auth::{KeyKind, KeyServer};
use maps::{MonMap, MonMapAuth};
use types::EntityKind;

use crate::{ClusterState, HealthReport, HealthStatus};

/// The kind of key that can be broken.
pub(crate) const INSECURE: i32 = KeyKind::AES.0 as i32;
/// The better kind.
const SECURE: i32 = KeyKind::AES256K.0 as i32;

/// Whether such keys may log in.
pub(crate) fn insecure_may_log_in(map: &MonMap) -> bool {
    map.auth.as_ref().is_none_or(|auth| auth.allowed_ciphers.contains(&INSECURE))
}

/// Settings that the checks go by.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Options {
    /// Whether keys of the kind that can be broken may be made: `mon_auth_allow_insecure_key`, and unless
    /// that is set, whether they may log in.
    pub makes_insecure: bool,
    /// Whether `mon_auth_emergency_allowed_ciphers` is set here.
    pub emergency: bool,
}

/// Whether an operator asked for the better kind anywhere.
fn is_wanted(auth: &MonMapAuth) -> bool {
    auth.service_cipher == SECURE
        || auth.preferred_cipher == SECURE
        || !auth.allowed_ciphers.contains(&INSECURE)
}

pub(crate) fn check(cluster: &ClusterState, options: Options, report: &mut HealthReport) {
    use HealthStatus::{Err, Warn};
    if options.emergency {
        let summary = "Monitors are configured with emergency allowed ciphers".to_owned();
        report.add("AUTH_EMERGENCY_CIPHERS_SET", Warn, 1, summary, Vec::new());
    }
    let Some(auth) = cluster.monmap.auth.as_ref().filter(|auth| is_wanted(auth)) else { return };
    if insecure_may_log_in(&cluster.monmap) {
        let summary = "Monitors are configured to allow auth using insecure key types".to_owned();
        let detail = vec!["insecure cipher aes allowed for auth".to_owned()];
        report.add("AUTH_INSECURE_KEYS_ALLOWED", Warn, 1, summary, detail);
    }
    if options.makes_insecure {
        let summary = "Monitors are configured to allow creation of insecure key types".to_owned();
        report.add("AUTH_INSECURE_KEYS_CREATABLE", Warn, 1, summary, Vec::new());
    }
    if auth.service_cipher == INSECURE {
        let summary = "Monitors are configured to issue insecure service tickets".to_owned();
        report.add("AUTH_INSECURE_SERVICE_TICKETS", Err, 1, summary, Vec::new());
    }
    check_keys(&cluster.auth, report);
}

fn check_keys(keys: &KeyServer, report: &mut HealthReport) {
    use HealthStatus::{Err, Warn};
    let (mut clients, mut services) = (Vec::new(), Vec::new());
    for (name, _) in keys.entities.iter().filter(|(_, e)| e.key.kind == KeyKind::AES) {
        let line = format!("entity {name} using insecure key type: aes");
        match name.kind {
            EntityKind::CLIENT => clients.push(line),
            _ => services.push(line),
        }
    }
    let of = |kind: &str, n: usize| format!("{n} auth {kind} entities with insecure key types");
    if !clients.is_empty() {
        let summary = of("client", clients.len());
        report.add("AUTH_INSECURE_CLIENT_KEY_TYPE", Warn, clients.len(), summary, clients);
    }
    if !services.is_empty() {
        let summary = of("service", services.len());
        report.add("AUTH_INSECURE_SERVICE_KEY_TYPE", Err, services.len(), summary, services);
    }
    let is_old = |service: &&EntityKind| {
        let set = keys.rotating(**service);
        set.is_some_and(|set| set.secrets.values().any(|s| s.key.kind == KeyKind::AES))
    };
    let rotating: Vec<String> = KeyServer::SERVICES
        .iter()
        .filter(is_old)
        .map(|s| format!("rotating service keys for {} using insecure key type: aes", s.name()))
        .collect();
    if !rotating.is_empty() {
        let n = rotating.len();
        let summary = format!("{n} rotating auth service keys using insecure key types");
        report.add("AUTH_INSECURE_ROTATING_SERVICE_KEY_TYPE", Warn, n, summary, rotating);
    }
}
