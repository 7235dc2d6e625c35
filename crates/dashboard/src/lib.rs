//! The dashboard: pages that say how a cluster is, why, what may be lost, and what to do next.
//!
//! [`pages`] are functions from a [`state::State`] to HTML and know no clock, socket or cluster. [`app`] says which
//! request gets which page, over the trait [`app::World`]; [`door`] is HTTP and TLS. All of it runs on a thread of
//! its own in the manager's process, so that a slow browser holds up nobody else: the manager sends what is asked for
//! as itself, and accounts have sessions with the monitors of their own, whose caps judge and whose names are in
//! the audit log.
//!
//! Every page works without JavaScript; `static/live.js` renews the overview.

pub mod accounts;
pub mod actions;
pub mod app;
pub mod cert;
pub mod commands;
pub mod door;
pub mod form;
pub mod history;
pub mod pages;
pub mod rest;
pub mod safe;
pub mod session;
pub mod state;
pub mod why;
mod world;

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use app::App;
use bytes::Bytes;
use cli::Args;
use commands::{Caller, Mons, Own, Then};
use door::Door;
use mgr::Answer;
use serde_json::{Value, json};
use state::Answers;
use tokio::sync::{Notify, mpsc, oneshot};
pub use world::Ask;
use world::OnRados;

/// The port with TLS, as stock's.
pub const TLS_PORT: u16 = 8443;
/// The port without.
pub const PORT: u16 = 8080;

/// Between two looks at the cluster while somebody watches.
const LOOK: Duration = Duration::from_secs(5);
/// Between two looks while nobody does: for the last day's history.
const LOOK_IDLE: Duration = Duration::from_secs(60);
/// Somebody watches who asked for a page within so many milliseconds.
const WATCHED_MS: u64 = 30_000;
/// Lines of the cluster's log in which the beginning of health checks is looked for.
const LOG_LINES: u32 = 1_000;
/// Between two tries to listen.
const RETRY: Duration = Duration::from_secs(5);
/// PGs of which each is looked at when some lack copies.
const PGS_MAX: u64 = 20_000;

/// Where the dashboard listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The first port that is tried.
    pub at: SocketAddr,
    /// Whether TLS is spoken.
    pub is_tls: bool,
    /// Seconds after which a login ends.
    pub ttl_s: u64,
    /// Where another manager is active: what browsers are told. `None`: this one is.
    pub standby: Option<Standby>,
}

/// What a manager that waits answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standby {
    /// That the dashboard is there; `None`: nowhere yet.
    Redirect(Option<String>),
    /// This status.
    Error(u16),
}

/// The manager that it is part of.
#[derive(Clone, Debug)]
pub struct Me {
    /// By which name the monitors know it.
    pub mgr: String,
    /// The host's name, for its certificate.
    pub host: String,
}

impl Me {
    fn own(&self) -> Own<'_> {
        Own { mgr: &self.mgr, host: &self.host, now_s: now_s() }
    }
}

enum Told {
    Serve(Option<Settings>),
    Command(Args, Bytes, Caller, oneshot::Sender<Answer>),
}

#[derive(Debug, Default)]
struct Shared {
    at: Mutex<Option<(SocketAddr, bool)>>,
    changed: Notify,
}

impl Shared {
    fn set(&self, at: Option<(SocketAddr, bool)>) {
        *self.at.lock().expect("no panic while held") = at;
        self.changed.notify_one();
    }
}

/// The dashboard at work, on a thread of its own; it ends with this.
#[derive(Clone)]
pub struct Dashboard {
    told: mpsc::UnboundedSender<Told>,
    shared: Arc<Shared>,
}

impl Dashboard {
    /// Begins. `config` is that of the manager as a client; `asks` takes what it is to send by its own session.
    ///
    /// # Errors
    /// When there can be no further thread.
    pub fn start(
        config: rados::Config,
        me: Me,
        asks: mpsc::UnboundedSender<Ask>,
    ) -> std::io::Result<Self> {
        let (told, hears) = mpsc::unbounded_channel();
        let shared = Arc::new(Shared::default());
        let known = shared.clone();
        std::thread::Builder::new().name("mgr-dashboard".into()).spawn(move || {
            if let Err(err) = rt::run_local(run(OnRados::new(config, asks), me, hears, known)) {
                tracing::error!("the dashboard: {err}");
            }
        })?;
        Ok(Self { told, shared })
    }

    /// Listens there from now on; `None`: nowhere.
    pub fn serve(&self, settings: Option<Settings>) {
        self.told.send(Told::Serve(settings)).ok();
    }

    /// Where it listens, and whether it speaks TLS.
    #[must_use]
    pub fn at(&self) -> Option<(SocketAddr, bool)> {
        *self.shared.at.lock().expect("no panic while held")
    }

    /// Waits until [`Dashboard::at`] returns something else than before.
    pub async fn changed(&self) {
        self.shared.changed.notified().await;
    }

    /// The answer to `ceph dashboard …`, which was judged by the manager's caps.
    pub async fn command(&self, args: Args, input: Bytes, caller: Caller) -> Answer {
        let (to, answered) = oneshot::channel();
        let gone =
            || Answer { r: -11, rs: "the dashboard is not running".into(), ..Answer::default() };
        if self.told.send(Told::Command(args, input, caller, to)).is_err() {
            return gone();
        }
        answered.await.unwrap_or_else(|_| gone())
    }
}

async fn run(
    world: OnRados,
    me: Me,
    mut hears: mpsc::UnboundedReceiver<Told>,
    shared: Arc<Shared>,
) {
    let app = Rc::new(App::new(world, Box::new(rt::OsRandom)));
    let door = Door::new(app.clone());
    let mut wanted: Option<Settings> = None;
    let mut collects: Option<tokio::task::JoinHandle<()>> = None;
    // What was asked for where it listens, and where that is.
    let mut open: Option<(SocketAddr, SocketAddr)> = None;
    // Whether it has yet to listen as is wanted.
    let mut is_due = false;
    loop {
        let told = if is_due {
            tokio::time::timeout(RETRY, hears.recv()).await
        } else {
            Ok(hears.recv().await)
        };
        match told {
            Ok(None) => return door.close().await,
            Ok(Some(Told::Serve(settings))) if settings == wanted => continue,
            Ok(Some(Told::Serve(settings))) => {
                wanted = settings;
                is_due = true;
            }
            Ok(Some(Told::Command(args, input, caller, to))) => {
                let own = me.own();
                let mut rng = rt::OsRandom;
                let ran = commands::run(&app.world, &args, &input, &caller, &own, &mut rng).await;
                let (answer, then) = ran.unwrap_or_else(|failed| (failed, Then::Nothing));
                match then {
                    Then::Nothing => {}
                    Then::End(user) => {
                        app.end_all_of(&user);
                        app.world.forget(&user);
                    }
                    Then::Certificate => is_due = wanted.is_some(),
                }
                to.send(answer).ok();
            }
            Err(_) => {}
        }
        if !is_due {
            continue;
        }
        let Some(settings) = &wanted else {
            door.close().await;
            open = None;
            shared.set(None);
            collects.take().inspect(tokio::task::JoinHandle::abort);
            is_due = false;
            continue;
        };
        app.set_ttl(settings.ttl_s);
        app.stand_by(settings.standby.clone());
        if settings.standby.is_some() {
            collects.take().inspect(tokio::task::JoinHandle::abort);
        } else if collects.is_none() {
            collects = Some(tokio::task::spawn_local(collect(app.clone())));
        }
        match listen(&app, &door, settings, &me, open).await {
            Ok(at) => {
                let scheme = if settings.is_tls { "https" } else { "http" };
                if open.replace((settings.at, at)) != Some((settings.at, at)) {
                    tracing::info!("the dashboard is served at {scheme}://{at}/");
                }
                shared.set(Some((at, settings.is_tls)));
                is_due = false;
            }
            Err(why) => {
                tracing::error!("the dashboard cannot be served at {}: {why}", settings.at);
                door.close().await;
                open = None;
                shared.set(None);
            }
        }
    }
}

fn now_s() -> u64 {
    rt::now().wall_ns / 1_000_000_000
}

async fn listen(
    app: &App<OnRados>,
    door: &Door<OnRados>,
    settings: &Settings,
    me: &Me,
    open: Option<(SocketAddr, SocketAddr)>,
) -> Result<SocketAddr, String> {
    let tls = match settings.is_tls {
        false => None,
        true => {
            let pair = commands::certificate(&app.world, &me.own(), settings.standby.is_none())
                .await
                .map_err(|answer| answer.rs)?;
            Some(cert::acceptor(&pair)?)
        }
    };
    door.speak(tls);
    if let Some((_, at)) = open.filter(|(asked, _)| *asked == settings.at) {
        return Ok(at);
    }
    door.listen(settings.at).await.map_err(|err| err.to_string())
}

/// Looks at the cluster again and again.
async fn collect(app: Rc<App<OnRados>>) {
    let mut has_log = false;
    loop {
        let began_ms = rt::now().mono_ms();
        match answers(&app.world).await {
            Ok(answers) => {
                app.take(answers);
                if !has_log {
                    let log = json!({
                        "prefix": "log last", "num": LOG_LINES, "level": "info",
                        "channel": "cluster", "format": "json",
                    });
                    let log = app.world.ask(log, Bytes::new()).await;
                    app.take_log(&serde_json::from_slice(&log.out).unwrap_or_default());
                    has_log = true;
                }
            }
            Err(why) => tracing::warn!("the dashboard sees nothing new: {why}"),
        }
        // A large cluster is looked at less often than it takes to look.
        let took = Duration::from_millis(rt::now().mono_ms() - began_ms);
        let pause = match app.is_watched(rt::now().mono_ms(), WATCHED_MS) {
            true => LOOK.max(took * 2),
            false => LOOK_IDLE,
        };
        tokio::time::timeout(pause, app.wanted()).await.ok();
    }
}

/// Asks for everything that pages are made of.
async fn answers(mons: &impl Mons) -> Result<Answers, String> {
    let ask = async |command: Value| {
        let answer = mons.ask(command, Bytes::new()).await;
        if answer.r != 0 {
            return Err(answer.rs);
        }
        serde_json::from_slice::<Value>(&answer.out).map_err(|err| err.to_string())
    };
    let digest = ask(json!({"prefix": "mgr digest"})).await?;
    let osd_df = ask(json!({"prefix": "osd df", "format": "json"})).await?;
    let rules = ask(json!({"prefix": "osd crush rule dump", "format": "json"})).await?;
    let mut answers = Answers { digest, osd_df, rules, pgs: Value::Null, at_s: now_s() };
    if (1..=PGS_MAX).contains(&lacking(&answers.digest)) {
        let brief = json!({"prefix": "pg dump", "dumpcontents": ["pgs_brief"], "format": "json"});
        answers.pgs = ask(brief).await?;
    }
    Ok(answers)
}

/// How many PGs there are, where some of them lack copies; else 0.
fn lacking(digest: &Value) -> u64 {
    let pools = || digest["pgs"].as_object().into_iter().flatten().map(|(_, states)| states);
    let lacks = pools().any(|states| states["undersized"].as_u64().unwrap_or(0) > 0);
    if lacks { pools().map(|states| states["total"].as_u64().unwrap_or(0)).sum() } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pgs_are_asked_for_where_copies_lack() {
        let whole = json!({"pgs": {"1": {"total": 8, "active": 8}, "2": {"total": 4}}});
        assert_eq!(lacking(&whole), 0);
        let mut reduced = whole;
        reduced["pgs"]["2"]["undersized"] = json!(1);
        assert_eq!(lacking(&reduced), 12);
        assert_eq!(lacking(&Value::Null), 0);
    }
}
