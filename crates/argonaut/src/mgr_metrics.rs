//! The module `prometheus` of `argonaut mgr`: where it listens, when it collects, and its commands.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use conf::{Config, Source};
use maps::MgrMap;
use mgr::metrics::{self, Seen};
use mgr::web::{PORT, Page, Web};
use mon::Reply;
use rados::Cluster;
use serde_json::Value;

/// Seconds between two collections: `mgr/prometheus/scrape_interval`.
const INTERVAL_S: f64 = 15.0;
/// How long the monitors may take to answer.
const ANSWER_MAX: Duration = Duration::from_secs(30);
/// What was collected counts for so many intervals; then it is better to say that nothing comes.
const STALE: f64 = 2.0;
/// Health codes that are remembered: `healthcheck_history_max_entries`.
const HISTORY_MAX: usize = 1_000;
/// A host's name that is no answer to where something listens.
const ANY: [&str; 2] = ["0.0.0.0", "::"];

/// When a health code was seen.
#[derive(Clone, Debug, Default, PartialEq)]
struct Noted {
    severity: String,
    first_s: u64,
    last_s: u64,
    count: u64,
    is_active: bool,
}

/// What the module knows, and where it serves it.
#[derive(Clone)]
pub struct Metrics(Rc<State>);

struct State {
    web: Web,
    /// What was asked for, and where it listens.
    at: RefCell<Option<(SocketAddr, Option<SocketAddr>)>>,
    interval: Cell<f64>,
    is_collecting: Cell<bool>,
    history: RefCell<BTreeMap<String, Noted>>,
    took: RefCell<BTreeMap<&'static str, (f64, u64)>>,
}

impl Metrics {
    /// Nothing is listened at yet.
    pub fn new(web: Web) -> Self {
        Self(Rc::new(State {
            web,
            at: RefCell::default(),
            interval: Cell::new(INTERVAL_S),
            is_collecting: Cell::default(),
            history: RefCell::default(),
            took: RefCell::default(),
        }))
    }

    /// Listens where the options say, or nowhere while the module is off.
    pub fn set_up(&self, config: &Config, ip: IpAddr, is_on: bool) {
        let number = |name: &str| config.text(name).trim().parse::<f64>().ok();
        let interval = number("mgr/prometheus/scrape_interval").unwrap_or(INTERVAL_S);
        self.0.interval.set(interval.clamp(1.0, 3_600.0));
        // Without a word of the operator's it is the manager's own address, not every one.
        let told = config.raw("mgr/prometheus/server_addr");
        let told = told.filter(|(_, by)| *by != Source::Default);
        let addr = told.and_then(|(addr, _)| addr.trim().parse().ok()).unwrap_or(ip);
        let port = config.text("mgr/prometheus/server_port").trim().parse().unwrap_or(PORT);
        let wanted = SocketAddr::new(addr, port);
        if !is_on {
            if self.0.at.borrow_mut().take().is_some() {
                self.0.web.close();
            }
            return;
        }
        if self.0.at.borrow().is_some_and(|(asked, _)| asked == wanted) {
            return;
        }
        *self.0.at.borrow_mut() = Some((wanted, None));
        let state = self.0.clone();
        tokio::task::spawn_local(async move {
            match state.web.listen(wanted).await {
                Ok(at) => {
                    tracing::info!("metrics are served at http://{at}/metrics");
                    let mut known = state.at.borrow_mut();
                    if known.is_some_and(|(asked, _)| asked == wanted) {
                        *known = Some((wanted, Some(at)));
                    }
                }
                Err(err) => tracing::error!("metrics cannot be served at {wanted}: {err}"),
            }
        });
    }

    /// `prometheus` and its URL, once it listens.
    pub fn services(&self) -> BTreeMap<String, String> {
        let at = self.0.at.borrow().and_then(|(_, at)| at);
        at.map(|at| ("prometheus".to_owned(), url("http", at))).into_iter().collect()
    }

    /// Another manager is active, and serves there.
    pub fn wait(&self, active: Option<String>) {
        self.0.web.show(Page::Standby(active));
    }

    /// Collects again and again; `told` is called after each time.
    pub fn collect(&self, cluster: Cluster, told: impl Fn() + 'static) {
        if self.0.is_collecting.replace(true) {
            return;
        }
        self.0.web.show(Page::Collecting);
        let state = Rc::downgrade(&self.0);
        tokio::task::spawn_local(async move {
            loop {
                let Some(state) = state.upgrade() else { return };
                if state.at.borrow().is_none() {
                    return state.is_collecting.set(false); // it was turned off
                }
                let began = rt::now().mono_ms();
                if let Err(why) = state.collect_once(&cluster).await {
                    tracing::warn!("metrics were not collected: {why}");
                }
                told();
                let took = (rt::now().mono_ms() - began) as f64 / 1e3;
                let pause = (state.interval.get() - took).max(0.2);
                drop(state);
                tokio::time::sleep(Duration::from_secs_f64(pause)).await;
            }
        });
    }

    /// Answers the module's own commands; `None` for those of others.
    pub fn command(&self, args: &cli::Args, map: &MgrMap) -> Option<Reply> {
        let out = |text: String| Some(Reply { out: text.into(), ..Reply::default() });
        match args.prefix() {
            "prometheus file_sd_config" => {
                let url = map.services.get("prometheus");
                let at = url.map(|url| url.trim_start_matches("http://").trim_end_matches('/'));
                let at: Vec<&str> = at.into_iter().collect();
                out(format!("[{{\"targets\": {}, \"labels\": {{}}}}]", serde_json::json!(at)))
            }
            "healthcheck history ls" => out(self.0.history(args.format())),
            "healthcheck history clear" => {
                self.0.history.borrow_mut().clear();
                out("healthcheck history cleared".to_owned())
            }
            _ => None,
        }
    }
}

/// Where others find what listens at `at`: by the host's name where it listens at all addresses.
pub fn url(scheme: &str, at: SocketAddr) -> String {
    let host = match at.ip().to_string() {
        any if ANY.contains(&&*any) => daemon::hostname(),
        ip if at.is_ipv6() => format!("[{ip}]"),
        ip => ip,
    };
    format!("{scheme}://{host}:{}/", at.port())
}

impl State {
    fn note(&self, part: &'static str, began_ns: u64) {
        let seconds = (rt::now().mono_ns - began_ns) as f64 / 1e9;
        let mut took = self.took.borrow_mut();
        let known = took.entry(part).or_default();
        *known = (known.0 + seconds, known.1 + 1);
    }

    async fn collect_once(&self, cluster: &Cluster) -> Result<(), String> {
        let began = rt::now().mono_ns;
        let ask = cluster.mon(r#"{"prefix":"mgr digest"}"#);
        let answer = tokio::time::timeout(ANSWER_MAX, ask).await;
        let answer = answer.map_err(|_| "no answer of the monitors".to_owned())?;
        let answer = answer.map_err(|err| err.to_string())?;
        let digest: Value = serde_json::from_slice(&answer).map_err(|err| err.to_string())?;
        self.note("get_digest", began);
        let began = rt::now().mono_ns;
        let images = mgr::image_names(cluster).await;
        self.note("get_rbd_images", began);
        let began = rt::now().mono_ns;
        self.remember(&digest["health"]["checks"]);
        let gone = self.history.borrow();
        let gone = gone.iter().filter(|(_, noted)| !noted.is_active);
        let inactive = gone.map(|(code, noted)| (code.clone(), noted.severity.clone())).collect();
        let seen = Seen { digest, inactive, images, took: self.took.borrow().clone() };
        let text = metrics::render(&metrics::families(&seen));
        self.note("render", began);
        let for_ms = (self.interval.get() * STALE * 1000.0) as u64;
        self.web.show(Page::Metrics(Bytes::from(text), rt::now().mono_ms() + for_ms));
        Ok(())
    }

    fn remember(&self, checks: &Value) {
        let now_s = rt::now().wall_ns / 1_000_000_000;
        let mut history = self.history.borrow_mut();
        for (code, noted) in history.iter_mut() {
            noted.is_active &= checks.get(code).is_some();
        }
        for (code, check) in checks.as_object().into_iter().flatten() {
            if !history.contains_key(code) && history.len() >= HISTORY_MAX {
                let oldest = history.iter().min_by_key(|(_, n)| (n.is_active, n.last_s));
                let Some(code) = oldest.map(|(code, _)| code.clone()) else { continue };
                history.remove(&code);
            }
            let noted = history.entry(code.clone()).or_default();
            if !noted.is_active {
                noted.count += 1;
            }
            if noted.first_s == 0 {
                noted.first_s = now_s;
            }
            noted.severity = check["severity"].as_str().unwrap_or_default().to_owned();
            (noted.last_s, noted.is_active) = (now_s, true);
        }
    }

    fn history(&self, format: &str) -> String {
        let history = self.history.borrow();
        if format.starts_with("json") {
            let all = history.iter().map(|(code, n)| {
                let one = serde_json::json!({
                    "name": code, "severity": n.severity, "first_seen": n.first_s as f64,
                    "last_seen": n.last_s as f64, "count": n.count, "active": n.is_active,
                });
                (code.clone(), one)
            });
            return Value::Object(all.collect()).to_string();
        }
        if history.is_empty() {
            return "No healthchecks have been recorded".to_owned();
        }
        let mut out = format!(
            "{:<25} {:<20}  {:<20}  {:>5}  {:<6}\n",
            "Healthcheck Name", "First Seen (UTC)", "Last seen (UTC)", "Count", "Active"
        );
        let when = |s: u64| {
            let text = types::UTime { sec: s as u32, nsec: 0 }.to_string();
            text.get(..19).unwrap_or(&text).replace('-', "/").replace('T', " ")
        };
        for (code, n) in history.iter() {
            let active = if n.is_active { "Yes" } else { "No" };
            let (first, last, count) = (when(n.first_s), when(n.last_s), n.count);
            out += &format!("{code:<25} {first:<20}  {last:<20}  {count:>5}  {active:^6}\n");
        }
        out + &format!("{} health check(s) listed", history.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// A code that clears and comes back is counted twice; it stays listed when it is gone.
    #[test]
    fn health_is_remembered() {
        let metrics = Metrics::new(Web::default());
        let down = json!({"OSD_DOWN": {"severity": "HEALTH_WARN"}});
        for checks in [&down, &down, &json!({}), &down, &json!({})] {
            metrics.0.remember(checks);
        }
        let noted = metrics.0.history.borrow()["OSD_DOWN"].clone();
        assert_eq!((noted.count, noted.is_active), (2, false));
        let text = metrics.0.history("plain");
        assert!(text.contains("OSD_DOWN") && text.contains("No"), "{text}");
        assert!(text.ends_with("1 health check(s) listed"), "{text}");
        let all: Value = serde_json::from_str(&metrics.0.history("json")).expect("json");
        assert_eq!(all["OSD_DOWN"]["count"], 2);
    }

    #[test]
    fn urls_name_what_answers() {
        let of = |text: &str| url("http", text.parse().expect("an address"));
        assert_eq!(of("127.0.0.1:9283"), "http://127.0.0.1:9283/");
        assert_eq!(of("[::1]:9284"), "http://[::1]:9284/");
        assert!(!of("0.0.0.0:9283").contains("0.0.0.0"));
    }
}
