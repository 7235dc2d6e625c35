//! The module `dashboard` of `argonaut mgr`: when it is there, where it listens, its commands.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use bytes::Bytes;
use conf::{Config, Source};
use dashboard::commands::Caller;
use dashboard::{Ask, Dashboard, PORT, Settings, Standby, TLS_PORT};
use mon::Reply;
use rados::Cluster;
use tokio::sync::mpsc;
use types::Errno;

use crate::mgr_metrics::url;

/// Seconds after which a login ends: `mgr/dashboard/jwt_token_ttl`.
const TTL_S: u64 = 28_800;

/// The module, once it was turned on.
#[derive(Default)]
pub struct Module(RefCell<Option<Dashboard>>);

/// The text of an option: of this manager alone, else of all.
fn told(config: &Config, name: &str, option: &str) -> Option<String> {
    let of = |option: &str| config.raw(option).filter(|(_, by)| *by != Source::Default);
    let found = of(&format!("mgr/dashboard/{name}/{option}"));
    let found = found.or_else(|| of(&format!("mgr/dashboard/{option}")));
    found.map(|(text, _)| text.trim().to_owned()).filter(|text| !text.is_empty())
}

/// What a manager that waits answers; `url` is that of the active one's dashboard.
fn standby(config: &Config, name: &str, url: Option<String>) -> Standby {
    if told(config, name, "standby_behaviour").is_none_or(|text| text != "error") {
        return Standby::Redirect(url);
    }
    let status = told(config, name, "standby_error_status_code");
    let status = status.and_then(|text| text.parse().ok()).filter(|s| (400..600).contains(s));
    Standby::Error(status.unwrap_or(500))
}

/// Where the options say that it listens; without a word of the operator's at the manager's own address.
fn settings(config: &Config, name: &str, ip: IpAddr) -> Settings {
    let is_off = |text: String| ["false", "no", "off", "0"].contains(&&*text.to_lowercase());
    let is_tls = !told(config, name, "ssl").is_some_and(is_off);
    let (option, port) = if is_tls { ("ssl_server_port", TLS_PORT) } else { ("server_port", PORT) };
    let port = told(config, name, option).and_then(|text| text.parse().ok()).unwrap_or(port);
    let addr = told(config, name, "server_addr").and_then(|text| text.parse().ok()).unwrap_or(ip);
    let ttl = told(config, name, "jwt_token_ttl").and_then(|text| text.parse().ok());
    Settings { at: SocketAddr::new(addr, port), is_tls, ttl_s: ttl.unwrap_or(TTL_S), standby: None }
}

impl Module {
    /// Serves, or serves no more, as options and map say. `waits`: another manager is active, whose dashboard is
    /// there. `begin` starts it, the first time.
    pub fn set_up(
        &self,
        (config, name, ip): (&Config, &str, IpAddr),
        is_on: bool,
        waits: Option<Option<String>>,
        begin: impl FnOnce() -> std::io::Result<Dashboard>,
    ) {
        let mut known = self.0.borrow_mut();
        if known.is_none() && is_on {
            match begin() {
                Ok(begun) => *known = Some(begun),
                Err(err) => return tracing::error!("the dashboard does not start: {err}"),
            }
        }
        if let Some(dashboard) = &*known {
            let standby = waits.map(|url| standby(config, name, url));
            let all = Settings { standby, ..settings(config, name, ip) };
            dashboard.serve(is_on.then_some(all));
        }
    }

    /// `dashboard` and its URL, once it listens.
    pub fn services(&self) -> BTreeMap<String, String> {
        let at = self.0.borrow().as_ref().and_then(Dashboard::at);
        let of = |(at, is_tls)| url(if is_tls { "https" } else { "http" }, at);
        at.map(|at| ("dashboard".to_owned(), of(at))).into_iter().collect()
    }

    /// Answers `ceph dashboard …`, while the module is on.
    pub async fn command(&self, is_on: bool, args: cli::Args, input: Bytes, from: Caller) -> Reply {
        let known = self.0.borrow().clone().filter(|_| is_on);
        let Some(dashboard) = known else {
            let prefix = args.prefix();
            let why = format!(
                "Module 'dashboard' is not enabled (required by command '{prefix}'): use \
                 `ceph mgr module enable dashboard` to enable it"
            );
            return Reply::err(Errno::OPNOTSUPP.0.abs(), why);
        };
        crate::mgr_daemon::reply_of(dashboard.command(args, input, from).await)
    }
}

/// Sends what the dashboard asks for by the manager's own session, each as it comes.
pub async fn ask_for(cluster: Cluster, mut asks: mpsc::UnboundedReceiver<Ask>) {
    while let Some((json, input, to)) = asks.recv().await {
        let cluster = cluster.clone();
        tokio::task::spawn_local(async move {
            let answer = match cluster.mon_command(&json, input).await {
                Ok((r, rs, out)) => mgr::Answer { r, rs, out },
                Err(err) => mgr::Answer { r: -11, rs: err.to_string(), ..mgr::Answer::default() },
            };
            to.send(answer).ok();
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(lines: &[(&str, &str)]) -> Config {
        let mut config = Config::new(&conf::ConfFile::default(), "mgr", "x", "h", 1);
        let lines = lines.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        config.set_mon_layer(lines.collect());
        config
    }

    /// Defaults are stock's, but for the address; one manager's own options come first.
    #[test]
    fn options() {
        let ip = IpAddr::from([10, 0, 0, 1]);
        let of = |lines: &[(&str, &str)]| settings(&config(lines), "x", ip);
        let plain = of(&[]);
        assert_eq!((plain.at.to_string().as_str(), plain.is_tls), ("10.0.0.1:8443", true));
        assert_eq!(plain.ttl_s, TTL_S);
        let open = of(&[("mgr/dashboard/ssl", "false"), ("mgr/dashboard/server_port", "7000")]);
        assert_eq!((open.at.to_string().as_str(), open.is_tls), ("10.0.0.1:7000", false));
        let own = of(&[
            ("mgr/dashboard/server_addr", "127.0.0.1"),
            ("mgr/dashboard/x/server_addr", "127.0.0.2"),
            ("mgr/dashboard/y/ssl_server_port", "1"),
            ("mgr/dashboard/ssl_server_port", "9000"),
        ]);
        assert_eq!(own.at.to_string(), "127.0.0.2:9000");
        let url = Some("https://h/".to_owned());
        let of = |lines: &[(&str, &str)]| standby(&config(lines), "x", url.clone());
        assert_eq!(of(&[]), Standby::Redirect(url.clone()));
        let error = ("mgr/dashboard/standby_behaviour", "error");
        assert_eq!(of(&[error]), Standby::Error(500));
        let status = ("mgr/dashboard/standby_error_status_code", "404");
        assert_eq!(of(&[error, status]), Standby::Error(404));
    }
}
