//! `argonaut exporter`: the counters of all daemons of this host, for Prometheus, as upstream's
//! `ceph-exporter` serves them. It asks every admin socket in a directory.
//!
//! Source: upstream's `exporter/`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use conf::key;
use metrics::Exposition;
use mgr::web::{Page, Web};
use serde_json::Value;

/// How long one daemon may take to answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// Sockets that are asked; more are left out, and the log says so.
const SOCKETS_MAX: usize = 1_000;

/// Serves until it is told to stop.
///
/// # Errors
/// When the address is none, or no port is free.
pub fn main(config: conf::Config, dir: Option<PathBuf>) -> Result<()> {
    daemon::start_log(&config)?;
    rt::run_local(run(config, dir))?
}

async fn run(config: conf::Config, dir: Option<PathBuf>) -> Result<()> {
    let dir = dir.unwrap_or_else(|| config.get(key::EXPORTER_SOCK_DIR).into());
    let addr = config.get(key::EXPORTER_ADDR);
    let addr = addr.parse().with_context(|| format!("exporter_addr = {addr}"))?;
    let port = config.get(key::EXPORTER_HTTP_PORT);
    let port = u16::try_from(port).with_context(|| format!("exporter_http_port = {port}"))?;
    let period = Duration::from_secs(config.get(key::EXPORTER_STATS_PERIOD).max(1) as u64);
    let least = config.get(key::EXPORTER_PRIO_LIMIT).max(0) as u64;
    let web = Web::default();
    let at = web.listen(SocketAddr::new(addr, port)).await?;
    tracing::info!("counters of the daemons in {} at http://{at}/metrics", dir.display());
    daemon::write_pid(&config)?;
    let mut tick = tokio::time::interval(period);
    let stop = rt::told_to_stop();
    tokio::pin!(stop);
    loop {
        tokio::select! {
            _ = tick.tick() => {
                let dir = dir.clone();
                let text = tokio::task::spawn_blocking(move || collect(&dir, least)).await?;
                // One round may be missed.
                let until = rt::now().mono_ms() + 2 * period.as_millis() as u64 + 5_000;
                web.show(Page::Metrics(text.into(), until));
            }
            told = &mut stop => return Ok(told?),
        }
    }
}

/// What every daemon tells at this moment; those that do not answer are left out.
fn collect(dir: &Path, least: u64) -> String {
    let mut all = Exposition::default();
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let mut sockets: Vec<PathBuf> = entries
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|e| e == "asok"))
        .collect();
    sockets.sort();
    if sockets.len() > SOCKETS_MAX {
        tracing::warn!("{} sockets in {}: {SOCKETS_MAX} are asked", sockets.len(), dir.display());
    }
    for path in sockets.iter().take(SOCKETS_MAX) {
        let Some(name) = daemon_of(path) else { continue };
        let labels = format!("ceph_daemon=\"{name}\"");
        let about = "Reports on health of Ceph Daemon";
        let told = ask(path, "counter dump").and_then(|d| Ok((d, ask(path, "counter schema")?)));
        match told {
            Ok((dump, schema)) => {
                all.add(&name, &dump, &schema, least);
                all.gauge("ceph_daemon_socket_up", about, &labels, 1);
            }
            Err(why) => {
                tracing::debug!("{}: {}", path.display(), crate::say::Why(&why));
                all.gauge("ceph_daemon_socket_up", about, &labels, 0);
            }
        }
    }
    all.text()
}

/// `ceph-osd.0.asok`, and what clusters and process ids add to it, as `osd.0`.
fn daemon_of(path: &Path) -> Option<String> {
    let name = path.file_stem()?.to_str()?;
    let (_cluster, name) = name.split_once('-')?;
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    (name.contains('.') && name.chars().all(plain)).then(|| name.to_owned())
}

fn ask(path: &Path, prefix: &str) -> Result<Value> {
    let command = serde_json::json!({ "prefix": prefix, "format": "json" }).to_string();
    let text = daemon::asok::ask(path, &command, PATIENCE)?;
    serde_json::from_str(&text).with_context(|| format!("{prefix}: {text:.200}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_have_daemons_names() {
        let of = |path: &str| daemon_of(Path::new(path));
        assert_eq!(of("/run/ceph/ceph-osd.0.asok").as_deref(), Some("osd.0"));
        assert_eq!(of("ceph-client.rgw.a.asok").as_deref(), Some("client.rgw.a"));
        assert_eq!(of("ceph-mds.a-b.asok").as_deref(), Some("mds.a-b"));
        assert_eq!(of("ceph-x\"y.0.asok"), None);
        assert_eq!(of("supervise.asok"), None);
    }

    /// A socket at which nobody listens is down; other files are no sockets.
    #[test]
    fn silent_daemons_are_down() {
        let dir = std::env::temp_dir().join(format!("argonaut-exporter-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join("ceph-osd.3.asok"), b"").unwrap();
        std::fs::write(dir.join("ceph.conf"), b"").unwrap();
        let told = collect(&dir, 5);
        std::fs::remove_dir_all(&dir).unwrap();
        assert!(told.ends_with("ceph_daemon_socket_up{ceph_daemon=\"osd.3\"} 0\n"), "{told}");
    }
}
