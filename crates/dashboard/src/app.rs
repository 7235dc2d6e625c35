//! Which request is answered with which page: logins, sessions, what an account may see and do.
//!
//! Whoever is logged in is an account. What it sees is shown to whom the monitors let read (as its own entity), and
//! what it changes is a command that they get from that entity: they judge it and write it to the audit log.
//! Nothing changes by a GET; a POST carries its session's word and comes from our own pages.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use env::Random;
use maud::{Markup, html};
use mgr::Answer;
use serde_json::{Value, json};
use tokio::sync::{Notify, Semaphore, watch};

use crate::Standby;
use crate::accounts;
use crate::actions::{self, Action};
use crate::commands::{self, Mons};
use crate::form::Form;
use crate::history::History;
use crate::pages::{self, Frame};
use crate::rest;
use crate::session::{Logins, Session, Sessions, same};
use crate::state::{Answers, State};
use crate::why::Since;

const EACCES: i32 = 13;
/// Logins that may wait until the ones before are compared; more are refused.
const LOGINS_WAITING_MAX: usize = 8;
/// How long it counts that an account may read, in milliseconds.
const MAY_READ_MS: u64 = 30_000;
/// Longest name that somebody may log in with.
const NAME_MAX: usize = 64;
/// What was asked for so many seconds ago is new enough.
const FRESH_S: u64 = 10;
/// How long a page waits for what is newer.
const FRESH_MAX: Duration = Duration::from_secs(3);
/// How names of pools end that hold what an object store knows of its users and buckets.
const META_POOL: &str = ".rgw.meta";
/// Object stores that are shown.
const STORES_MAX: usize = 4;
/// Objects in such a pool up to which it is listed.
const NAMES_MAX: u64 = 100_000;
/// What has to be allowed for the pages of the cluster's state to be shown.
const READS: [&str; 3] = ["status", "osd stat", "pg stat"];

/// The cluster, as the manager and as accounts.
pub trait World: Mons {
    /// Sends a command as the entity of an account.
    fn ask_as(&self, user: &str, command: Value) -> impl Future<Output = Answer>;
    /// Users and buckets of the object store whose metadata is in a pool, as the entity of an account reads them.
    fn object_names(
        &self,
        user: &str,
        pool: &str,
    ) -> impl Future<Output = Result<ObjectNames, Answer>>;
    /// Images of all pools, by pool.
    fn images(&self) -> impl Future<Output = BTreeMap<i64, Vec<String>>>;
}

/// Who and what is in an object store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectNames {
    /// Names of users, sorted.
    pub users: Vec<String>,
    /// Names of buckets, sorted.
    pub buckets: Vec<String>,
}

/// A request, as far as it matters here.
#[derive(Clone, Debug, Default)]
pub struct Asked {
    /// Whether it may change something: POST, not GET.
    pub is_post: bool,
    /// The path.
    pub path: String,
    /// What follows the question mark.
    pub query: String,
    /// `Host`
    pub host: String,
    /// `Origin`
    pub origin: Option<String>,
    /// `Sec-Fetch-Site`
    pub site: Option<String>,
    /// The session's token: of the cookie.
    pub cookie: Option<String>,
    /// The session's token: of `Authorization: Bearer`.
    pub bearer: Option<String>,
    /// The whole body; empty: none.
    pub body: Bytes,
    /// The address that it comes from.
    pub from: String,
}

/// What a body is.
#[derive(Debug)]
pub enum Body {
    /// All of it.
    Whole(Bytes),
    /// What is live, again and again, while the session with this token goes on.
    Events(String),
}

/// An answer.
#[derive(Debug)]
pub struct Reply {
    /// The status.
    pub status: u16,
    /// `Content-Type`
    pub kind: &'static str,
    /// `Location`
    pub location: Option<String>,
    /// The session's token, for a cookie; empty: it is to be forgotten.
    pub cookie: Option<String>,
    /// What follows the head: bytes, or events without end.
    pub body: Body,
}

const HTML: &str = "text/html; charset=utf-8";
const JSON: &str = "application/json";

impl Reply {
    fn of(status: u16, kind: &'static str, body: impl Into<Bytes>) -> Self {
        Self { status, kind, location: None, cookie: None, body: Body::Whole(body.into()) }
    }

    fn page(status: u16, page: Markup) -> Self {
        Self::of(status, HTML, page.into_string())
    }

    fn json(status: u16, value: &Value) -> Self {
        Self::of(status, JSON, value.to_string())
    }

    fn to(path: &str) -> Self {
        Self { location: Some(path.to_owned()), ..Self::of(303, HTML, Bytes::new()) }
    }
}

/// What was seen last.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// Answers of the monitors.
    pub answers: Answers,
    /// What they say.
    pub state: State,
}

/// What is known over time.
#[derive(Debug, Default)]
struct Past {
    now: Rc<Seen>,
    before: Option<Rc<Seen>>,
    history: History,
    since: Since,
}

/// Everything that pages are made of.
pub struct App<W> {
    /// The cluster.
    pub world: W,
    sessions: RefCell<Sessions>,
    logins: RefCell<Logins>,
    past: RefCell<Past>,
    may_read: RefCell<BTreeMap<String, u64>>,
    live: watch::Sender<Bytes>,
    comparing: Semaphore,
    waiting: Cell<usize>,
    /// Milliseconds after which a session ends.
    ttl_ms: Cell<u64>,
    asked_ms: Cell<u64>,
    fresh: Fresh,
    standby: RefCell<Option<Standby>>,
    rng: RefCell<Box<dyn Random>>,
}

/// How what is known is renewed when somebody begins to look.
#[derive(Default)]
struct Fresh {
    /// Whether anybody renews it.
    is_collected: Cell<bool>,
    wanted: Notify,
    came: watch::Sender<u64>,
}

/// Says that something waits, while it is there.
struct Waiting<'a>(&'a Cell<usize>);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

/// Whether a request comes from a page of ours, as far as the browser says.
fn is_from_here(asked: &Asked) -> bool {
    if let Some(site) = &asked.site {
        return site == "same-origin" || site == "none";
    }
    let host = asked.origin.as_ref().map(|origin| origin.split("://").nth(1).unwrap_or(origin));
    host.is_none_or(|host| host == asked.host)
}

impl<W: World> App<W> {
    /// Knows nothing yet.
    pub fn new(world: W, rng: Box<dyn Random>) -> Self {
        Self {
            world,
            sessions: RefCell::default(),
            logins: RefCell::default(),
            past: RefCell::default(),
            may_read: RefCell::default(),
            live: watch::Sender::new(Bytes::new()),
            comparing: Semaphore::new(1),
            waiting: Cell::default(),
            ttl_ms: Cell::new(8 * 3_600_000),
            asked_ms: Cell::default(),
            fresh: Fresh::default(),
            standby: RefCell::default(),
            rng: RefCell::new(rng),
        }
    }

    /// Sessions that begin from now on end after `seconds`: `mgr/dashboard/jwt_token_ttl`.
    pub fn set_ttl(&self, seconds: u64) {
        self.ttl_ms.set(seconds.clamp(60, 30 * 86_400) * 1_000);
    }

    /// Answers as a manager that waits; `None`: as the active one.
    pub fn stand_by(&self, standby: Option<Standby>) {
        self.standby.replace(standby);
    }

    /// Ends all sessions of an account.
    pub fn end_all_of(&self, user: &str) {
        self.sessions.borrow_mut().end_all_of(user);
        self.may_read.borrow_mut().remove(user);
    }

    /// Whether somebody has asked for something within so many milliseconds.
    #[must_use]
    pub fn is_watched(&self, now_ms: u64, within_ms: u64) -> bool {
        let recently = now_ms.saturating_sub(self.asked_ms.get()) < within_ms;
        self.live.receiver_count() > 0 || (self.asked_ms.get() > 0 && recently)
    }

    /// Takes in what the cluster is like now.
    pub fn take(&self, answers: Answers) {
        let state = State::of(&answers);
        let mut past = self.past.borrow_mut();
        let is_first = past.before.is_none() && past.now.state.at_s == 0;
        past.history.take(&state);
        past.since.take(&state, is_first);
        if self.live.receiver_count() > 0 {
            self.live.send_replace(pages::live(&state).into_string().into());
        }
        let before = std::mem::replace(&mut past.now, Rc::new(Seen { answers, state }));
        past.before = (before.state.at_s > 0).then_some(before);
        self.fresh.came.send_modify(|times| *times += 1);
    }

    /// Takes in the cluster's log, which tells since when checks hold that held before.
    pub fn take_log(&self, lines: &Value) {
        self.past.borrow_mut().since.take_log(lines);
    }

    /// Waits until somebody wants what is newer than what is known. From now on requests wait for it.
    pub async fn wanted(&self) {
        self.fresh.is_collected.set(true);
        self.fresh.wanted.notified().await;
    }

    /// Has what is old renewed, and waits for it a while.
    async fn freshen(&self) {
        let now_s = rt::now().wall_ns / 1_000_000_000;
        let at_s = self.past.borrow().now.state.at_s;
        if self.fresh.is_collected.get() && now_s > at_s + FRESH_S {
            let mut came = self.fresh.came.subscribe();
            self.fresh.wanted.notify_one();
            tokio::time::timeout(FRESH_MAX, came.changed()).await.ok();
        }
    }

    /// What is live, as it changes.
    pub fn live(&self) -> watch::Receiver<Bytes> {
        self.live.subscribe()
    }

    /// Whether a token's session goes on.
    pub fn holds(&self, token: &str, now_ms: u64) -> bool {
        self.sessions.borrow().holds(token, now_ms)
    }

    /// Answers a request.
    pub async fn answer(&self, asked: &Asked) -> Reply {
        let now = rt::now();
        match &*self.standby.borrow() {
            None => {}
            Some(Standby::Redirect(Some(url))) => return Reply::to(url),
            Some(Standby::Redirect(None)) => {
                return Reply::of(503, "text/plain", "no manager is active\n");
            }
            Some(Standby::Error(status)) => {
                return Reply::of(*status, "text/plain", "another manager is active\n");
            }
        }
        if let Some(reply) = fixed(asked) {
            return reply;
        }
        if asked.is_post && !is_from_here(asked) {
            return Reply::of(403, "text/plain", "this came from another site\n");
        }
        if asked.path == "/api/auth" && asked.is_post {
            return self.login_by_json(asked).await;
        }
        if asked.path.starts_with("/api/") {
            return self.api(asked, now.mono_ms()).await;
        }
        if asked.path == "/login" {
            return if asked.is_post {
                self.login(asked).await
            } else {
                Reply::page(200, pages::login(None))
            };
        }
        let token = asked.cookie.clone().unwrap_or_default();
        let session = self.sessions.borrow_mut().get(&token, now.mono_ms());
        let Some(session) = session else { return Reply::to("/login") };
        self.asked_ms.set(now.mono_ms());
        if asked.is_post {
            return self.post(asked, &session, &token).await;
        }
        self.get(asked, &session, &token).await
    }

    // ----- logins -----

    /// Begins a session. The error: a status, and a sentence.
    async fn begin(&self, user: &str, password: &str, from: &str) -> Result<String, (u16, String)> {
        let wrong = || (401, "Account or password is wrong.".to_owned());
        if user.is_empty() || user.len() > NAME_MAX {
            return Err(wrong());
        }
        let wait_ms = self.logins.borrow().wait_ms(user, from, rt::now().mono_ms());
        if wait_ms > 0 {
            let why = format!("Too many logins failed: wait {} s.", wait_ms.div_ceil(1_000));
            return Err((429, why));
        }
        if self.waiting.get() >= LOGINS_WAITING_MAX {
            return Err((429, "Too many log in at once: try again.".to_owned()));
        }
        self.waiting.set(self.waiting.get() + 1);
        let waiting = Waiting(&self.waiting);
        let place = self.comparing.acquire().await.expect("it is never closed");
        // Those that waited here, too, count as guesses.
        if self.logins.borrow().wait_ms(user, from, rt::now().mono_ms()) > 0 {
            return Err((429, "Too many logins failed: wait.".to_owned()));
        }
        let accounts = commands::load(&self.world).await.map_err(|answer| (503, answer.rs))?;
        let known = accounts.get(user).ok();
        let known = known.filter(|known| known.is_open(rt::now().wall_ns / 1_000_000_000));
        let hash = known.and_then(|known| known.password.clone());
        let (is_known, hash) =
            (hash.is_some(), hash.unwrap_or_else(|| accounts::NOBODY.to_owned()));
        let password = password.to_owned();
        let compared =
            tokio::task::spawn_blocking(move || accounts::verify(&password, &hash)).await;
        drop((place, waiting));
        let now_ms = rt::now().mono_ms();
        if !(is_known && compared.unwrap_or(false)) {
            tracing::warn!("a login as {user:?} from {from} failed");
            self.logins.borrow_mut().failed(user, from, now_ms);
            return Err(wrong());
        }
        self.logins.borrow_mut().succeeded(user);
        tracing::info!("{user} logged in from {from}");
        let mut rng = self.rng.borrow_mut();
        let mut sessions = self.sessions.borrow_mut();
        Ok(sessions.begin(user, now_ms, self.ttl_ms.get(), &mut **rng))
    }

    async fn login(&self, asked: &Asked) -> Reply {
        let form = std::str::from_utf8(&asked.body).ok().and_then(Form::parse);
        let Some(form) = form else { return Reply::page(400, pages::login(None)) };
        match self.begin(form.get("username"), form.get("password"), &asked.from).await {
            Ok(token) => {
                // A session that was there before is another's, or is not needed any more.
                if let Some(old) = &asked.cookie {
                    self.sessions.borrow_mut().end(old);
                }
                Reply { cookie: Some(token), ..Reply::to("/") }
            }
            Err((status, why)) => Reply::page(status, pages::login(Some(&why))),
        }
    }

    async fn login_by_json(&self, asked: &Asked) -> Reply {
        let given: Value = serde_json::from_slice(&asked.body).unwrap_or_default();
        let word = |name: &str| given[name].as_str().unwrap_or_default();
        match self.begin(word("username"), word("password"), &asked.from).await {
            Ok(token) => Reply::json(
                201,
                &json!({"token": token, "username": word("username"), "sso": false,
                    "pwdExpirationDate": null, "pwdUpdateRequired": false}),
            ),
            Err((status, why)) => Reply::json(status, &json!({"detail": why})),
        }
    }

    // ----- what is shown -----

    /// Whether the monitors let an account's entity read; the error is their refusal.
    async fn may_read(&self, user: &str) -> Result<(), Answer> {
        let now_ms = rt::now().mono_ms();
        if self.may_read.borrow().get(user).is_some_and(|until_ms| now_ms < *until_ms) {
            return Ok(());
        }
        for prefix in READS {
            let answer = self.world.ask_as(user, json!({"prefix": prefix, "format": "json"})).await;
            if answer.r != 0 {
                return Err(answer);
            }
        }
        let mut known = self.may_read.borrow_mut();
        known.retain(|_, until_ms| now_ms < *until_ms);
        known.insert(user.to_owned(), now_ms + MAY_READ_MS);
        Ok(())
    }

    async fn api(&self, asked: &Asked, now_ms: u64) -> Reply {
        // A cookie does not count here: other sites could make a browser send it.
        let token = asked.bearer.clone().unwrap_or_default();
        let session = self.sessions.borrow_mut().get(&token, now_ms);
        let Some(session) = session else {
            return Reply::json(401, &json!({"detail": "log in first: POST /api/auth"}));
        };
        self.asked_ms.set(now_ms);
        let path = &asked.path["/api/".len()..];
        if path == "auth/logout" && asked.is_post {
            self.sessions.borrow_mut().end(&token);
            return Reply::json(200, &json!({"redirect_url": "/login"}));
        }
        if asked.is_post {
            return Reply::json(405, &json!({"detail": "read only"}));
        }
        if let Err(refusal) = self.may_read(&session.user).await {
            return Reply::json(status_of(&refusal), &json!({"detail": refusal.rs}));
        }
        self.freshen().await;
        let (now, before) = {
            let past = self.past.borrow();
            (past.now.clone(), past.before.clone())
        };
        if now.state.at_s == 0 {
            return Reply::json(503, &json!({"detail": "the monitors have not answered yet"}));
        }
        let before = before.as_ref().map(|seen| &seen.answers);
        match rest::answer(path, &now.state, &now.answers, before) {
            Some(value) => Reply::json(200, &value),
            None => Reply::json(404, &json!({"detail": "not served"})),
        }
    }

    fn seen(&self) -> Rc<Seen> {
        self.past.borrow().now.clone()
    }

    async fn get(&self, asked: &Asked, session: &Session, token: &str) -> Reply {
        if asked.path == "/events" {
            return match self.may_read(&session.user).await {
                Ok(()) => Reply {
                    body: Body::Events(token.to_owned()),
                    ..Reply::of(200, "text/event-stream", Bytes::new())
                },
                Err(refusal) => Reply::of(status_of(&refusal), "text/plain", refusal.rs),
            };
        }
        self.freshen().await;
        let seen = self.seen();
        let note = self.sessions.borrow_mut().take_note(token);
        let frame = Frame {
            user: &session.user,
            csrf: &session.csrf,
            note: note.as_deref(),
            now_s: rt::now().wall_ns / 1_000_000_000,
            at_s: seen.state.at_s,
        };
        let query = Form::parse(&asked.query).unwrap_or_default();
        let done = match self.may_read(&session.user).await {
            Ok(()) => self.show(asked, &frame, &seen, &query).await,
            Err(refusal) => Err(refusal),
        };
        match done {
            Ok(Some(page)) => Reply::page(200, page),
            Ok(None) => {
                Reply::page(404, pages::says(&frame, "Not found", "There is no such page."))
            }
            Err(refusal) => refused(&frame, &refusal),
        }
    }

    /// A command's json as an account, or the refusal.
    async fn json_as(&self, user: &str, mut command: Value) -> Result<Value, Answer> {
        command["format"] = json!("json");
        let answer = self.world.ask_as(user, command).await;
        if answer.r != 0 {
            return Err(answer);
        }
        Ok(serde_json::from_slice(&answer.out).unwrap_or_default())
    }

    async fn show(
        &self,
        asked: &Asked,
        frame: &Frame<'_>,
        seen: &Seen,
        query: &Form,
    ) -> Result<Option<Markup>, Answer> {
        let (state, user) = (&seen.state, frame.user);
        let at = query.get("page").parse().unwrap_or(0).min(1_000_000);
        Ok(Some(match asked.path.as_str() {
            "/" => pages::overview(frame, state, &self.past.borrow().history),
            "/why" => pages::why(frame, state, &self.past.borrow().since),
            "/osds" => pages::osds(frame, state, at),
            "/osds/host" => pages::host(frame, state, query.get("name"), at),
            "/pools" => pages::pools(frame, state, at),
            "/placement" => pages::placement(frame, state, &self.stuck(user).await?),
            "/images" => {
                // The manager lists them: whoever may not ask it for tasks on images does not see them.
                self.json_as(user, json!({"prefix": "rbd task list"})).await?;
                pages::images(frame, state, &self.world.images().await, at)
            }
            "/files" => {
                let name = query.get("fs");
                let shown = match state.file_systems.iter().any(|fs| fs.name == name) {
                    false => None,
                    true => {
                        let ls = json!({"prefix": "fs subvolume ls", "vol_name": name});
                        Some(self.json_as(user, ls).await.map_err(|answer| answer.rs))
                    }
                };
                pages::files(frame, state, shown.as_ref().map(|shown| (name, shown)))
            }
            "/objects" => {
                let services = &seen.answers.digest["services"];
                pages::objects(frame, state, services, &self.stores(user, state).await, at)
            }
            "/log" => {
                let channel = if query.get("channel") == "audit" { "audit" } else { "cluster" };
                let last =
                    json!({"prefix": "log last", "num": 200, "level": "info", "channel": channel});
                pages::log(frame, &self.json_as(user, last).await?, channel)
            }
            "/settings" => {
                let all = self.json_as(user, json!({"prefix": "config dump"})).await?;
                pages::settings(frame, &all, at)
            }
            "/keys" => {
                let all = self.json_as(user, json!({"prefix": "auth ls"})).await?;
                pages::keys(frame, &all, at)
            }
            path => match path.strip_prefix("/confirm/") {
                Some(name) => return Ok(self.confirm(frame, name, query).await),
                None => return Ok(None),
            },
        }))
    }

    /// Object stores by the pool of their metadata: what is in them, or why that is not shown.
    async fn stores(
        &self,
        user: &str,
        state: &State,
    ) -> Vec<(String, Result<ObjectNames, String>)> {
        let mut all = Vec::new();
        let pools = state.pools.values().filter(|pool| pool.name.ends_with(META_POOL));
        for pool in pools.take(STORES_MAX) {
            let names = match pool.objects {
                0..=NAMES_MAX => self.world.object_names(user, &pool.name).await.map_err(|a| a.rs),
                _ => Err(format!("more than {NAMES_MAX} users and buckets are not listed")),
            };
            all.push((pool.name.clone(), names));
        }
        all
    }

    /// PGs that are not clean, or whose copies differ.
    async fn stuck(&self, user: &str) -> Result<Vec<(String, String, String)>, Answer> {
        let ops = ["inactive", "unclean", "undersized", "degraded", "stale"];
        let stuck = json!({"prefix": "pg dump_stuck", "stuckops": ops});
        let stuck = self.json_as(user, stuck).await?;
        let differ = json!({"prefix": "pg ls", "states": ["inconsistent"]});
        let differ = self.json_as(user, differ).await?;
        let lists = [&stuck["stuck_pg_stats"], &differ["pg_stats"]];
        let mut all: Vec<_> = lists
            .into_iter()
            .flat_map(|list| list.as_array().into_iter().flatten())
            .map(|pg| {
                let word = |name: &str| pg[name].as_str().unwrap_or_default().to_owned();
                (word("pgid"), word("state"), pg["acting"].to_string())
            })
            .collect();
        all.sort();
        all.dedup();
        Ok(all)
    }

    async fn confirm(&self, frame: &Frame<'_>, name: &str, query: &Form) -> Option<Markup> {
        let Action { asks, what, back, .. } = actions::action(name, query).ok()?;
        let says = match asks {
            None => html! {},
            Some(command) => {
                let prefix = command["prefix"].as_str().unwrap_or_default().to_owned();
                let answer = self.world.ask_as(frame.user, command).await;
                let out: Value = serde_json::from_slice(&answer.out).unwrap_or_default();
                let pgs = |name: &str| out[name].as_array().map_or(0, Vec::len);
                let fewer = pgs("ok_become_degraded") + pgs("ok_become_more_degraded");
                html! {
                    p class=(if answer.r == 0 { "good" } else { "bad" }) {
                        code { (prefix) } ": "
                        @if answer.r == 0 { "yes. " } @else { "no. " }
                        (answer.rs)
                    }
                    @if let Some(fine) = out["num_ok_pgs"].as_u64() {
                        p {
                            "While it is away, " (fine) " PGs that it has a copy of go on, " (fewer)
                            " of them with fewer copies; " (out["num_not_ok_pgs"].as_u64().unwrap_or(0))
                            " do not."
                        }
                    }
                }
            }
        };
        let fields: Vec<(&str, &str)> = query.fields().collect();
        Some(pages::confirm(frame, &what, &says, name, &fields, back))
    }

    // ----- what is changed -----

    async fn post(&self, asked: &Asked, session: &Session, token: &str) -> Reply {
        let form = std::str::from_utf8(&asked.body).ok().and_then(Form::parse).unwrap_or_default();
        let frame = Frame {
            user: &session.user,
            csrf: &session.csrf,
            note: None,
            now_s: rt::now().wall_ns / 1_000_000_000,
            at_s: self.seen().state.at_s.max(1),
        };
        if !same(form.get("csrf"), &session.csrf) {
            let why = "The form is not of this session: load its page again.";
            return Reply::page(403, pages::says(&frame, "Refused", why));
        }
        if asked.path == "/logout" {
            self.sessions.borrow_mut().end(token);
            return Reply { cookie: Some(String::new()), ..Reply::to("/login") };
        }
        let Some(name) = asked.path.strip_prefix("/do/") else {
            return Reply::page(404, pages::says(&frame, "Not found", "There is no such page."));
        };
        let action = match actions::action(name, &form) {
            Ok(action) => action,
            Err(why) => return Reply::page(400, pages::says(&frame, "Refused", &why)),
        };
        let answer = self.world.ask_as(&session.user, action.command).await;
        if answer.r != 0 {
            return refused(&frame, &answer);
        }
        let said = if answer.rs.is_empty() { "done".to_owned() } else { answer.rs };
        self.sessions.borrow_mut().note(token, format!("{}: {said}", action.what));
        Reply::to(action.back)
    }
}

/// What needs no login.
fn fixed(asked: &Asked) -> Option<Reply> {
    if asked.is_post {
        return None;
    }
    match asked.path.as_str() {
        "/static/style.css" => {
            Some(Reply::of(200, "text/css; charset=utf-8", include_str!("../static/style.css")))
        }
        "/static/live.js" => {
            let kind = "text/javascript; charset=utf-8";
            Some(Reply::of(200, kind, include_str!("../static/live.js")))
        }
        "/favicon.ico" => Some(Reply::of(404, "text/plain", "there is none\n")),
        _ => None,
    }
}

/// The status for a refusal of the monitors.
const fn status_of(answer: &Answer) -> u16 {
    match -answer.r {
        EACCES | 1 => 403,
        2 => 404,
        11 | 110 => 503,
        _ => 409,
    }
}

fn refused(frame: &Frame<'_>, answer: &Answer) -> Reply {
    let status = status_of(answer);
    let text = match status {
        403 => format!(
            "{} may not do this: {}. Its caps are judged by the monitors; 'ceph auth caps' changes them.",
            accounts::entity(frame.user),
            answer.rs
        ),
        _ => answer.rs.clone(),
    };
    let title = if status == 403 { "Refused" } else { "It did not work" };
    Reply::page(status, pages::says(frame, title, &text))
}

#[cfg(test)]
pub(crate) mod tests;
