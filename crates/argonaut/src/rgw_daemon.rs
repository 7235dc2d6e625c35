//! `argonaut rgw`: the object gateway as a daemon.

use std::cell::RefCell;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use conf::{Config, Key, key};
use rados::Cluster;
use rgw::{
    Door, Masters, OnRados, Patience, Records, Sealer, Settings, SwiftPaths, SwiftSettings,
    TopicSettings, Work,
};
use rgw_core::gateway::Gateway;
use tokio::net::TcpListener;
use tokio::sync::watch;
use types::EntityName;

use crate::rbd_verbs::tls;

/// Where a gateway listens that is not told where.
const PORT: u16 = 7480;

/// Runs the gateway that is `client.NAME` until it is told to stop.
///
/// # Errors
/// When the options do not allow it, or the cluster has no zone.
pub fn main(config: Config, name: &str) -> Result<()> {
    daemon::start_log(&config)?;
    rt::run_local(run(config, name.to_owned()))?
}

async fn run(config: Config, name: String) -> Result<()> {
    rt::raise_open_files();
    let entity = format!("client.{name}").parse::<EntityName>();
    let entity = entity.map_err(|why| anyhow::anyhow!("the gateway's name: {why}"))?;
    let cluster = Cluster::connect(rados::Config::from_options(&config, &entity)?).await?;
    let zone = config.get(key::RGW_ZONE);
    let objects = OnRados::new(cluster);
    if zone.is_empty() || zone == "default" {
        rgw_core::realm::make_default(&objects).await.context("making the zone")?;
    }
    let gateway = Gateway::open(objects, &zone).await?;
    gateway.make_queues().await?;
    let mut dns_names = gateway.group.hostnames.clone();
    dns_names.extend(Some(config.get(key::RGW_DNS_NAME)).filter(|name| !name.is_empty()));
    let websites = websites(&config, &gateway.group.website_names);
    let part_bytes_min = config.get(key::RGW_MULTIPART_MIN_PART_SIZE);
    let fronts = fronts(&config.get(key::RGW_FRONTENDS))?;
    let tls = match &fronts.files {
        Some((chain, key)) => Some(Rc::new(RefCell::new(tls::of_files(chain, key)?))),
        None => None,
    };
    let mut doors = Vec::new();
    for (at, tls) in fronts
        .plain
        .iter()
        .map(|at| (at, None))
        .chain(fronts.tls.iter().map(|at| (at, tls.clone())))
    {
        let listener = TcpListener::bind(at).await.with_context(|| format!("listening on {at}"))?;
        let how = if tls.is_some() { "S3 over TLS" } else { "S3" };
        tracing::info!("zone {}: serving {how} on {at}", gateway.zone.name);
        doors.push(Door { listener, tls });
    }
    daemon::write_pid(&config)?;
    let access = config.get(key::RGW_OPS_LOG_FILE_PATH);
    let access = config.get(key::RGW_ENABLE_OPS_LOG).then(|| PathBuf::from(access));
    let access = access.filter(|path| !path.as_os_str().is_empty());
    let records = Records::open(config.get(key::RGW_ENABLE_USAGE_LOG), access.as_deref());
    let records = Rc::new(records.context(key::RGW_OPS_LOG_FILE_PATH.name())?);
    let reopened = records.clone();
    let (stop, stopped) = watch::channel(false);
    tokio::task::spawn_local(async move {
        while let Ok(signal) = rt::stop_signal().await {
            if matches!(signal, rt::Stop::Terminate) {
                break;
            }
            reopened.reopen();
            let (Some((chain, key)), Some(tls)) = (&fronts.files, &tls) else { continue };
            match tls::of_files(chain, key) {
                Ok(new) => {
                    tls.replace(new);
                    tracing::info!("the certificate was read anew");
                }
                Err(error) => {
                    tracing::warn!("the old certificate stays: {}", crate::say::Why(&error))
                }
            }
        }
        let _ = stop.send(true);
    });
    let settings = Settings {
        dns_names,
        websites,
        part_bytes_min,
        keys_want_tls: config.get(key::RGW_CRYPT_REQUIRE_SSL),
        admin_entry: admin_entry(&config),
        masters: masters(&config)?,
        sealer: sealer(&config)?,
        caches: config.get(key::RGW_CACHE_ENABLED),
        work: work(&config)?,
        records,
        swift: swift(&config)?,
        topics: topics(&config)?,
    };
    rgw::serve(gateway, settings, doors, stopped).await?;
    Ok(())
}

/// Names below which buckets are websites; `None` where they are not served.
fn websites(config: &Config, of_group: &[String]) -> Option<Vec<String>> {
    if !config.get(key::RGW_ENABLE_STATIC_WEBSITE) || !serves(config, "s3website") {
        return None;
    }
    let own = Some(config.get(key::RGW_DNS_S3WEBSITE_NAME)).filter(|name| !name.is_empty());
    Some(of_group.iter().cloned().chain(own).map(|name| name.to_ascii_lowercase()).collect())
}

/// What seals sessions.
fn sealer(config: &Config) -> Result<Option<Rc<Sealer>>> {
    if !config.get(key::RGW_S3_AUTH_USE_STS) {
        return Ok(None);
    }
    match Sealer::new(&config.get(key::RGW_STS_KEY)) {
        Some(sealer) => Ok(Some(Rc::new(sealer))),
        None => bail!("rgw_s3_auth_use_sts wants an rgw_sts_key of 16 characters or more"),
    }
}

/// The master keys of objects that stock's options give.
fn masters(config: &Config) -> Result<Masters> {
    let backend = config.get(key::RGW_CRYPT_S3_KMS_BACKEND);
    let kms = config.get(key::RGW_CRYPT_S3_KMS_ENCRYPTION_KEYS);
    let kms = if backend == "testing" { kms } else { String::new() };
    let default = config.get(key::RGW_CRYPT_DEFAULT_ENCRYPTION_KEY);
    Masters::parse(&kms, &default).map_err(anyhow::Error::msg)
}

/// Whether `rgw_enable_apis` has an API.
fn serves(config: &Config, api: &str) -> bool {
    let apis = config.get(key::RGW_ENABLE_APIS);
    apis.trim().is_empty() || apis.split([',', ' ']).any(|word| word.trim() == api)
}

/// How Swift is served; `None` where `rgw_enable_apis` has neither it nor its logins.
fn swift(config: &Config) -> Result<Option<SwiftSettings>> {
    let (storage, auth) = (serves(config, "swift"), serves(config, "swift_auth"));
    if !storage && !auth {
        return Ok(None);
    }
    let word = |key: Key<key::Str>| -> Result<String> {
        let (name, text) = (key.name(), config.get(key));
        let text = text.trim_matches('/');
        if text.contains('/') || text.contains(char::is_whitespace) {
            bail!("{name} = {text} is not one part of a path");
        }
        Ok(text.to_owned())
    };
    let prefix = match config.get(key::RGW_SWIFT_URL_PREFIX).as_str() {
        "" => "swift".to_owned(),
        _ => word(key::RGW_SWIFT_URL_PREFIX)?,
    };
    let auth_entry = Some(word(key::RGW_SWIFT_AUTH_ENTRY)?).filter(|entry| !entry.is_empty());
    let auth_entry = auth_entry.unwrap_or_else(|| "auth".to_owned());
    if prefix == auth_entry {
        bail!("rgw_swift_url_prefix and rgw_swift_auth_entry are both {prefix}: one path for both");
    }
    let account_in_url = config.get(key::RGW_SWIFT_ACCOUNT_IN_URL);
    Ok(Some(SwiftSettings {
        paths: SwiftPaths { prefix, auth_entry, account_in_url },
        serves_storage: storage,
        serves_auth: auth,
        url: config.get(key::RGW_SWIFT_URL),
        token_s: config.get(key::RGW_SWIFT_TOKEN_EXPIRATION),
        needs_stats: config.get(key::RGW_SWIFT_NEED_STATS),
        has_versions: config.get(key::RGW_SWIFT_VERSIONING_ENABLED),
    }))
}

/// How topics of notifications are served.
fn topics(config: &Config) -> Result<TopicSettings> {
    let number = |key: Key<key::Uint>| {
        let n = config.get(key);
        u32::try_from(n).with_context(|| format!("{} = {n}", key.name()))
    };
    Ok(TopicSettings {
        are_served: serves(config, "notifications"),
        secrets_in_clear: config.get(key::RGW_ALLOW_NOTIFICATION_SECRETS_IN_CLEARTEXT),
        publish_wants_policy: config.get(key::RGW_TOPIC_REQUIRE_PUBLISH_POLICY),
        patience: Patience {
            keep_s: number(key::RGW_TOPIC_PERSISTENCY_TIME_TO_LIVE)?,
            retries: number(key::RGW_TOPIC_PERSISTENCY_MAX_RETRIES)?,
            sleep_s: number(key::RGW_TOPIC_PERSISTENCY_SLEEP_DURATION)?,
        },
    })
}

/// Where the Admin API is served: `rgw_admin_entry`, where `rgw_enable_apis` has it.
fn admin_entry(config: &Config) -> Option<String> {
    let is_served = serves(config, "admin");
    let entry = config.get(key::RGW_ADMIN_ENTRY);
    let entry = if entry.is_empty() { "admin".to_owned() } else { entry };
    is_served.then_some(entry)
}

/// When the gateway's workers work, by stock's options.
fn work(config: &Config) -> Result<Work> {
    // A time before now is none: the default.
    let seconds = |key: Key<key::Int>| {
        let asked = Some(config.get(key)).filter(|s| *s >= 0);
        asked.unwrap_or_else(|| key.default()).max(1) as u64
    };
    let gc_s = seconds(key::RGW_GC_PROCESSOR_PERIOD);
    let day_s = u64::try_from(config.get(key::RGW_LC_DEBUG_INTERVAL)).ok().filter(|s| *s > 0);
    let end_s = config.get(key::RGW_OBJEXP_GC_INTERVAL).max(1);
    let usage_s = seconds(key::RGW_USAGE_LOG_TICK_INTERVAL);
    let hours = match config.get(key::RGW_LIFECYCLE_WORK_TIME).as_str() {
        "" => (0, 6 * 60),
        text => Work::parse_hours(text)
            .with_context(|| format!("rgw_lifecycle_work_time = {text} is not HH:MM-HH:MM"))?,
    };
    Ok(Work {
        gc_every: config.get(key::RGW_ENABLE_GC_THREADS).then(|| Duration::from_secs(gc_s)),
        day_s: config.get(key::RGW_ENABLE_LC_THREADS).then(|| day_s.unwrap_or(86_400)),
        end_every: Duration::from_secs(end_s),
        usage_every: Duration::from_secs(usage_s),
        hours,
    })
}

/// Where and how a gateway listens.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fronts {
    /// Plain HTTP.
    pub plain: Vec<SocketAddr>,
    /// Where TLS is spoken.
    pub tls: Vec<SocketAddr>,
    /// PEM files of the certificates and of the key; the key may stand in the first one.
    pub files: Option<(PathBuf, PathBuf)>,
}

/// Reads stock's front-end option: `beast endpoint=ADDR[:PORT] port=PORT ssl_endpoint=... ssl_port=...
/// ssl_certificate=FILE ssl_private_key=FILE`, each as often as is wanted. What tunes stock's server means nothing
/// here.
///
/// # Errors
/// For addresses that are none, and TLS without a certificate.
pub fn fronts(text: &str) -> Result<Fronts> {
    let mut out = Fronts::default();
    let (mut certificate, mut key) = (None, None);
    for word in text.split_whitespace() {
        let Some((name, value)) = word.split_once('=') else { continue };
        let bad = || format!("rgw_frontends: {word}");
        let at = |default: u16| -> Result<SocketAddr> {
            match value.parse::<SocketAddr>() {
                Ok(at) => Ok(at),
                Err(_) => Ok((value.parse::<IpAddr>().with_context(bad)?, default).into()),
            }
        };
        let port = || -> Result<SocketAddr> {
            Ok((Ipv4Addr::UNSPECIFIED, value.parse::<u16>().with_context(bad)?).into())
        };
        match name {
            "endpoint" => out.plain.push(at(80)?),
            "port" => out.plain.push(port()?),
            "ssl_endpoint" => out.tls.push(at(443)?),
            "ssl_port" => out.tls.push(port()?),
            "ssl_certificate" => certificate = Some(PathBuf::from(value)),
            "ssl_private_key" => key = Some(PathBuf::from(value)),
            _ => {}
        }
    }
    if out.plain.is_empty() && out.tls.is_empty() {
        out.plain.push((Ipv4Addr::UNSPECIFIED, PORT).into());
    }
    out.files = certificate.map(|file| (file.clone(), key.unwrap_or(file)));
    if !out.tls.is_empty() && out.files.is_none() {
        bail!("rgw_frontends: ssl_endpoint and ssl_port want ssl_certificate=FILE");
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn front_ends_say_where() {
        let of = |text: &str| fronts(text).unwrap();
        assert_eq!(of("").plain, ["0.0.0.0:7480".parse().unwrap()]);
        assert_eq!(of("beast port=80").plain, ["0.0.0.0:80".parse().unwrap()]);
        let both =
            of("beast endpoint=127.0.0.1:81 tcp_nodelay=1 ssl_endpoint=::1 ssl_certificate=c.pem");
        assert_eq!(both.plain, ["127.0.0.1:81".parse().unwrap()]);
        assert_eq!(both.tls, ["[::1]:443".parse().unwrap()]);
        assert_eq!(both.files, Some(("c.pem".into(), "c.pem".into())));
        for bad in ["beast endpoint=nowhere:x", "beast port=x", "beast ssl_port=443"] {
            assert!(fronts(bad).is_err(), "{bad}");
        }
    }
}
