//! `argonaut rgw`: the object gateway as a daemon.

use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Context, Result};
use conf::Config;
use rados::Cluster;
use rgw::{OnRados, Settings};
use rgw_core::gateway::Gateway;
use tokio::net::TcpListener;
use tokio::sync::watch;
use types::EntityName;

use crate::daemon;

/// Where a gateway listens that is not told where.
const PORT: u16 = 7480;

/// Runs the gateway `client.rgw.ID` until it is told to stop.
///
/// # Errors
/// When the options do not allow it, or the cluster has no zone.
pub fn main(conf: &Path, id: &str) -> Result<()> {
    let name = format!("rgw.{id}");
    let config = daemon::options(conf, "client", &name)?;
    daemon::start_log(&config)?;
    rt::run_local(run(conf.to_owned(), config, name))?
}

async fn run(conf: std::path::PathBuf, config: Config, name: String) -> Result<()> {
    rt::raise_open_files();
    let entity = format!("client.{name}").parse::<EntityName>();
    let entity = entity.map_err(|why| anyhow::anyhow!("the gateway's name: {why}"))?;
    let cluster = Cluster::connect(rados::Config::from_conf(&conf, &entity)?).await?;
    let zone = config.get("rgw_zone");
    let gateway = Gateway::open(OnRados::new(cluster), &zone).await?;
    let mut dns_names = gateway.group.hostnames.clone();
    dns_names.extend(Some(config.get("rgw_dns_name")).filter(|name| !name.is_empty()));
    let part_min = config.get("rgw_multipart_min_part_size");
    let part_bytes_min = if part_min.is_empty() { 5 << 20 } else { part_min.parse()? };
    let at = listen(&config.get("rgw_frontends"))?;
    let listener = TcpListener::bind(at).await.with_context(|| format!("listening on {at}"))?;
    tracing::info!("zone {}: serving S3 on {at}", gateway.zone.name);
    daemon::write_pid(&config)?;
    let (stop, stopped) = watch::channel(false);
    tokio::task::spawn_local(async move {
        while let Ok(signal) = rt::stop_signal().await {
            if matches!(signal, rt::Stop::Terminate) {
                break;
            }
        }
        let _ = stop.send(true);
    });
    rgw::serve(gateway, Settings { dns_names, part_bytes_min }, listener, stopped).await?;
    Ok(())
}

/// Where stock's front-end option says that it listens: `beast endpoint=ADDR:PORT` or `beast port=PORT`.
fn listen(frontends: &str) -> Result<SocketAddr> {
    let mut at = SocketAddr::from(([0, 0, 0, 0], PORT));
    for word in frontends.split_whitespace() {
        match word.split_once('=') {
            Some(("endpoint", value)) if value.contains(':') => {
                at = value.parse().with_context(|| format!("rgw_frontends: endpoint={value}"))?;
            }
            Some(("endpoint", value)) => {
                let ip = value.parse().with_context(|| format!("rgw_frontends: endpoint={value}"))?;
                at.set_ip(ip);
            }
            Some(("port", value)) => {
                at.set_port(value.parse().with_context(|| format!("rgw_frontends: port={value}"))?);
            }
            // What tunes stock's server means nothing here.
            _ => {}
        }
    }
    Ok(at)
}

#[cfg(test)]
mod tests {
    use super::listen;

    #[test]
    fn front_ends_say_where() {
        assert_eq!(listen("beast port=80").unwrap().to_string(), "0.0.0.0:80");
        let at = listen("beast endpoint=127.0.0.1:81 tcp_nodelay=1").unwrap();
        assert_eq!(at.to_string(), "127.0.0.1:81");
        assert!(listen("beast endpoint=nowhere:x").is_err());
    }
}
