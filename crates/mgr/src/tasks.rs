//! `rbd task`: long work on images that the cluster does for whoever asked.
//!
//! Tasks are kept in the omap of the object `rbd_task` of their pool and namespace, by their
//! sequence as 16 digits, as json; one is done at a time, oldest first. What failed is tried
//! again after 30 s, then ever later up to 5 minutes.
//!
//! Source: the peer's `pybind/mgr/rbd_support/task.py`: names, sentences, retries.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use cli::Args;
use env::Random;
use rados::{Cluster, IoCtx, WriteOp};
use rbd::migration::{self, State};
use rbd::{Error, Image, Mode};
use serde_json::{Map, Value, json};
use types::Uuid;

use crate::{Answer, EINVAL, ENOENT, May, failed};

const OBJECT: &[u8] = b"rbd_task";
const RETRY_SECS: u64 = 30;
const RETRY_SECS_MAX: u64 = 300;
/// Finished tasks that a command sent again is still answered with.
const FINISHED_MAX: usize = 50;
/// How often the queue is looked at when nobody asks.
const LOOK: Duration = Duration::from_secs(5);

const EBUSY: i32 = 16;
const EOPNOTSUPP: i32 = 95;

#[derive(Clone, Debug)]
struct Task {
    sequence: u64,
    id: String,
    message: String,
    refs: Map<String, Value>,
    retry_message: Option<String>,
    retries: u64,
    /// Not before, monotonic ms.
    retry_ms: u64,
    progress: Option<f64>,
    canceled: bool,
}

impl Task {
    fn new(sequence: u64, id: String, message: String, refs: Map<String, Value>) -> Self {
        Self {
            sequence,
            id,
            message,
            refs,
            retry_message: None,
            retries: 0,
            retry_ms: 0,
            progress: None,
            canceled: false,
        }
    }

    /// What is kept, and what is told while nothing has happened yet.
    fn kept(&self) -> Map<String, Value> {
        let Value::Object(map) = json!({
            "sequence": self.sequence, "id": self.id, "message": self.message, "refs": self.refs,
        }) else {
            return Map::new();
        };
        map
    }

    fn shown(&self) -> Value {
        let mut map = self.kept();
        if let Some(why) = &self.retry_message {
            map.insert("retry_message".into(), json!(why));
        }
        if self.retries > 0 {
            map.insert("retry_attempts".into(), json!(self.retries));
        }
        if let Some(done) = self.progress {
            map.insert("in_progress".into(), json!(true));
            map.insert("progress".into(), json!(done));
        }
        if self.canceled {
            map.insert("canceled".into(), json!(true));
        }
        Value::Object(map)
    }

    fn parse(text: &[u8]) -> Option<Self> {
        let v: Value = serde_json::from_slice(text).ok()?;
        let text = |name: &str| v.get(name)?.as_str().map(str::to_owned);
        let (sequence, refs) = (v.get("sequence")?.as_u64()?, v.get("refs")?.as_object()?);
        Some(Self::new(sequence, text("id")?, text("message")?, refs.clone()))
    }

    fn key(&self) -> Bytes {
        format!("{:016X}", self.sequence).into()
    }

    fn of(&self, name: &str) -> &str {
        self.refs.get(name).and_then(Value::as_str).unwrap_or_default()
    }

    /// Whether a caller may know of it: the peer's modules say "no such task" of others'.
    fn is_open_to(&self, may: &May) -> bool {
        may(self.of("pool_name"), self.of("pool_namespace"))
    }

    /// Whether it does the same to the same image.
    fn is_for(&self, refs: &Map<String, Value>) -> bool {
        let mut mine = self.refs.clone();
        if !refs.contains_key("image_id") {
            mine.remove("image_id");
        }
        mine == *refs
    }
}

#[derive(Default)]
struct Queue {
    tasks: BTreeMap<u64, Task>,
    finished: VecDeque<Task>,
    sequence: u64,
}

struct Inner {
    cluster: Cluster,
    queue: RefCell<Queue>,
    /// All pools were looked at for tasks of those who led before.
    loaded: Cell<bool>,
    more: tokio::sync::Notify,
}

/// The queue. Clones share it.
#[derive(Clone)]
pub(crate) struct Tasks(Rc<Inner>);

/// What is done next to an image that migrates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Execute,
    Commit,
    Abort,
}

impl Step {
    fn action(self) -> &'static str {
        match self {
            Self::Execute => "migrate execute",
            Self::Commit => "migrate commit",
            Self::Abort => "migrate abort",
        }
    }

    /// What comes behind the image's name where it cannot be done.
    fn refuses(self, state: State) -> Option<&'static str> {
        match (self, state) {
            (Self::Execute, State::Prepared | State::Executing)
            | (Self::Commit, State::Executed)
            | (Self::Abort, _) => None,
            (Self::Execute, _) => Some("is not in ready state"),
            (Self::Commit, _) => Some("has not completed migration"),
        }
    }
}

/// Pool, namespace, and image or its id: `[POOL/[NAMESPACE/]]NAME`.
struct Spec {
    pool: String,
    nspace: String,
    name: String,
}

impl Spec {
    fn parse(text: &str) -> Result<Self, Answer> {
        let bad = || Answer::err(EINVAL, format!("Invalid image spec: {text}"));
        let parts: Vec<&str> = text.split('/').collect();
        let (pool, nspace, name) = match parts.as_slice() {
            [name] => ("rbd", "", *name),
            [pool, name] => (*pool, "", *name),
            [pool, nspace, name] if !nspace.is_empty() => (*pool, *nspace, *name),
            _ => return Err(bad()),
        };
        if pool.is_empty() || name.is_empty() || name.contains('@') {
            return Err(bad());
        }
        Ok(Self { pool: pool.to_owned(), nspace: nspace.to_owned(), name: name.to_owned() })
    }

    fn shown(&self) -> String {
        let nspace = if self.nspace.is_empty() { "" } else { "/" };
        format!("{}{nspace}{}/{}", self.pool, self.nspace, self.name)
    }

    fn refs(&self, action: &str) -> Map<String, Value> {
        Map::from_iter([
            ("action".to_owned(), json!(action)),
            ("pool_name".to_owned(), json!(self.pool)),
            ("pool_namespace".to_owned(), json!(self.nspace)),
        ])
    }
}

fn new_id() -> String {
    let mut bytes = [0; 16];
    rt::OsRandom.fill(&mut bytes);
    Uuid::from_random(bytes).to_string()
}

impl Tasks {
    /// Begins with what is in the pools.
    pub fn start(cluster: Cluster) -> Self {
        let this = Self(Rc::new(Inner {
            cluster,
            queue: RefCell::default(),
            loaded: Cell::new(false),
            more: tokio::sync::Notify::new(),
        }));
        let weak = Rc::downgrade(&this.0);
        tokio::task::spawn_local(async move {
            while let Some(inner) = weak.upgrade() {
                let this = Self(inner);
                this.look().await;
                tokio::time::timeout(LOOK, this.0.more.notified()).await.ok();
            }
        });
        this
    }

    async fn io(&self, pool: &str, nspace: &str) -> rados::Result<IoCtx> {
        Ok(self.0.cluster.pool(pool).await?.namespace(nspace.to_owned()))
    }

    /// The answer to `rbd task ...`.
    pub async fn command(&self, args: &Args, may: &May) -> Answer {
        if !self.0.loaded.get()
            && let Err(err) = self.load().await
        {
            return failed(&err);
        }
        let text = |name| args.str_or_empty(name).unwrap_or_default();
        let done = match args.prefix() {
            "rbd task list" => Ok(self.list(text("task_id"), may)),
            "rbd task cancel" => Ok(self.cancel(text("task_id"), may).await),
            "rbd task add trash remove" => match Spec::parse(text("image_id_spec")) {
                Ok(spec) => self.add_trash_remove(&spec).await,
                Err(bad) => Ok(bad),
            },
            prefix => match Spec::parse(text("image_spec")) {
                Ok(spec) => self.add_by_name(prefix, &spec).await,
                Err(bad) => Ok(bad),
            },
        };
        done.unwrap_or_else(|err| failed(&err))
    }

    /// Reads the tasks of all pools that have some.
    async fn load(&self) -> rbd::Result<()> {
        for pool in crate::image_pools(&self.0.cluster).into_keys() {
            let io = self.0.cluster.pool_by_id(pool);
            for nspace in crate::namespaces(&io).await? {
                self.load_from(&io.namespace(nspace)).await?;
            }
        }
        let mut queue = self.0.queue.borrow_mut();
        queue.sequence = queue.tasks.keys().next_back().copied().unwrap_or(0).max(queue.sequence);
        drop(queue);
        self.0.loaded.set(true);
        Ok(())
    }

    async fn load_from(&self, io: &IoCtx) -> rbd::Result<()> {
        for (key, text) in crate::all_omap(io, OBJECT).await? {
            match Task::parse(&text) {
                Some(task) => drop(self.0.queue.borrow_mut().tasks.insert(task.sequence, task)),
                None => tracing::error!(?key, "a task on an image makes no sense"),
            }
        }
        Ok(())
    }

    fn list(&self, id: &str, may: &May) -> Answer {
        let queue = self.0.queue.borrow();
        if id.is_empty() {
            let all: Vec<Value> =
                queue.tasks.values().filter(|t| t.is_open_to(may)).map(Task::shown).collect();
            return Answer::out(Value::Array(all).to_string());
        }
        match queue.tasks.values().find(|t| t.id == id && t.is_open_to(may)) {
            Some(task) => Answer::out(task.shown().to_string()),
            None => Answer::err(ENOENT, format!("No such task {id}")),
        }
    }

    /// A flattening or a migration's copying under way ends at once; all else goes on to its end.
    async fn cancel(&self, id: &str, may: &May) -> Answer {
        let found = {
            let mut queue = self.0.queue.borrow_mut();
            let task = queue.tasks.values_mut().find(|t| t.id == id && t.is_open_to(may));
            task.map(|task| {
                task.canceled = true;
                task.clone()
            })
        };
        let Some(task) = found else {
            return Answer::err(ENOENT, format!("No such task {id}"));
        };
        if task.progress.is_none() {
            self.forget(&task).await;
        }
        Answer::out(task.shown().to_string())
    }

    /// The task that does this already, or has just done it.
    fn same(&self, refs: &Map<String, Value>) -> Option<Answer> {
        let queue = self.0.queue.borrow();
        let mut all = queue.tasks.values().rev().chain(queue.finished.iter().rev());
        all.find(|t| t.is_for(refs)).map(|t| Answer::out(t.shown().to_string()))
    }

    async fn add(
        &self,
        io: &IoCtx,
        message: String,
        refs: Map<String, Value>,
    ) -> rbd::Result<Answer> {
        let task = {
            let mut queue = self.0.queue.borrow_mut();
            queue.sequence += 1;
            Task::new(queue.sequence, new_id(), message, refs)
        };
        let text = Value::Object(task.kept()).to_string();
        io.set_omap(OBJECT, BTreeMap::from([(task.key(), Bytes::from(text.clone()))])).await?;
        self.0.queue.borrow_mut().tasks.insert(task.sequence, task);
        self.0.more.notify_one();
        Ok(Answer::out(text))
    }

    /// Queues work on an image, unless it is there already; `refuses` says why the image as it
    /// is cannot be worked on: errno, and what comes behind its name.
    async fn add_for_image(
        &self,
        spec: &Spec,
        (action, doing): (&str, &str),
        refuses: fn(&rbd::Header) -> Option<(i32, &'static str)>,
    ) -> rbd::Result<Answer> {
        let mut refs = spec.refs(action);
        refs.insert("image_name".to_owned(), json!(spec.name));
        let io = self.io(&spec.pool, &spec.nspace).await?;
        let refused = match Image::open(&io, &spec.name, Mode::Read).await {
            Ok(image) => {
                refs.insert("image_id".to_owned(), json!(image.id()));
                refuses(&image.header())
            }
            Err(Error::NoImage(_)) => Some((ENOENT, "does not exist")),
            Err(err) => return Err(err),
        };
        if let Some(same) = self.same(&refs) {
            return Ok(same);
        }
        let shown = spec.shown();
        match refused {
            Some((errno, why)) => Ok(Answer::err(errno, format!("Image {shown} {why}"))),
            None => self.add(&io, format!("{doing} image {shown}"), refs).await,
        }
    }

    async fn add_by_name(&self, prefix: &str, spec: &Spec) -> rbd::Result<Answer> {
        match prefix {
            "rbd task add flatten" => self.add_flatten(spec).await,
            "rbd task add remove" => self.add_remove(spec).await,
            "rbd task add migration execute" => self.add_migration(spec, Step::Execute).await,
            "rbd task add migration commit" => self.add_migration(spec, Step::Commit).await,
            "rbd task add migration abort" => self.add_migration(spec, Step::Abort).await,
            other => Ok(Answer::err(EOPNOTSUPP, format!("there is no command '{other}'"))),
        }
    }

    async fn add_flatten(&self, spec: &Spec) -> rbd::Result<Answer> {
        let refuses =
            |h: &rbd::Header| h.parent.is_none().then_some((ENOENT, "does not have a parent"));
        self.add_for_image(spec, ("flatten", "Flattening"), refuses).await
    }

    async fn add_remove(&self, spec: &Spec) -> rbd::Result<Answer> {
        let refuses = |h: &rbd::Header| (!h.snaps.is_empty()).then_some((EBUSY, "has snapshots"));
        self.add_for_image(spec, ("remove", "Removing"), refuses).await
    }

    async fn add_migration(&self, spec: &Spec, step: Step) -> rbd::Result<Answer> {
        let mut refs = spec.refs(step.action());
        refs.insert("image_name".to_owned(), json!(spec.name));
        let io = self.io(&spec.pool, &spec.nspace).await?;
        let found = match migration::find(&io, &spec.name).await {
            Ok(found) => Some(found),
            Err(Error::NoImage(_) | Error::Invalid(_)) => None,
            Err(err) => return Err(err),
        };
        if let Some(found) = &found {
            refs.insert("image_id".to_owned(), json!(found.dest.id));
        }
        if let Some(same) = self.same(&refs) {
            return Ok(same);
        }
        let shown = spec.shown();
        let refused = match &found {
            None => Some("is not migrating"),
            Some(found) => step.refuses(found.state),
        };
        match (refused, found) {
            (None, Some(found)) => {
                let message = match step {
                    Step::Execute => {
                        let (from, to) = (self.side(&found.source), self.side(&found.dest));
                        format!("Migrating image {from} to {to}")
                    }
                    Step::Commit => format!("Committing image migration for {shown}"),
                    Step::Abort => format!("Aborting image migration for {shown}"),
                };
                self.add(&io, message, refs).await
            }
            (why, _) => {
                let why = why.unwrap_or("is not migrating");
                Ok(Answer::err(EINVAL, format!("Image {shown} {why}")))
            }
        }
    }

    fn side(&self, side: &migration::Side) -> String {
        let map = self.0.cluster.map();
        let pool = map.pool_name(side.io.pool_id()).unwrap_or("<unknown>").to_owned();
        let nspace = String::from_utf8_lossy(side.io.nspace()).into_owned();
        Spec { pool, nspace, name: side.name.clone() }.shown()
    }

    async fn add_trash_remove(&self, spec: &Spec) -> rbd::Result<Answer> {
        let mut refs = spec.refs("trash remove");
        refs.insert("image_id".to_owned(), json!(spec.name));
        if let Some(same) = self.same(&refs) {
            return Ok(same);
        }
        let io = self.io(&spec.pool, &spec.nspace).await?;
        let shown = spec.shown();
        if !rbd::trash::list(&io).await?.iter().any(|t| t.id == spec.name) {
            return Ok(Answer::err(ENOENT, format!("Image {shown} is not in the trash")));
        }
        self.add(&io, format!("Removing image {shown} from trash"), refs).await
    }

    /// Does what is due.
    async fn look(&self) {
        if !self.0.loaded.get()
            && let Err(err) = self.load().await
        {
            tracing::warn!("tasks on images: {err}");
            return;
        }
        loop {
            let now = rt::now().mono_ms();
            let next = {
                let mut queue = self.0.queue.borrow_mut();
                let due = queue.tasks.values_mut().find(|t| t.retry_ms <= now);
                due.map(|task| {
                    task.progress = Some(0.0);
                    task.clone()
                })
            };
            let Some(task) = next else { return };
            tracing::info!(task = task.id, "{}", task.message);
            self.execute(&task).await;
        }
    }

    async fn execute(&self, task: &Task) {
        let done = if task.canceled { Ok(()) } else { self.work(task).await };
        let canceled = self.with(task, |t| t.progress = None).is_none_or(|t| t.canceled);
        let pool_gone = matches!(done, Err(Error::Rados(_))) && self.pool_is_gone(task).await;
        match done {
            _ if canceled => self.forget(task).await,
            Ok(()) => {
                self.forget(task).await;
                let mut queue = self.0.queue.borrow_mut();
                queue.finished.push_back(Task { progress: None, ..task.clone() });
                if queue.finished.len() > FINISHED_MAX {
                    queue.finished.pop_front();
                }
            }
            // Whoever asked could not have wanted more.
            Err(err @ (Error::NoImage(_) | Error::Invalid(_))) => {
                tracing::info!(task = task.id, "{}: {err}", task.message);
                self.forget(task).await;
            }
            Err(_) if pool_gone => drop(self.0.queue.borrow_mut().tasks.remove(&task.sequence)),
            Err(err) => self.later(task, &err),
        }
    }

    /// Tries again, later each time.
    fn later(&self, task: &Task, err: &Error) {
        tracing::warn!(task = task.id, "{}: {err}", task.message);
        self.with(task, |t| {
            t.retries += 1;
            t.retry_message = Some(err.to_string());
            let secs = (RETRY_SECS * t.retries).min(RETRY_SECS_MAX);
            t.retry_ms = rt::now().mono_ms() + secs * 1_000;
        });
    }

    async fn pool_is_gone(&self, task: &Task) -> bool {
        let found = self.0.cluster.pool(task.of("pool_name")).await;
        found.is_err_and(|err| err.code() == Some(ENOENT))
    }

    fn with(&self, task: &Task, f: impl FnOnce(&mut Task)) -> Option<Task> {
        let mut queue = self.0.queue.borrow_mut();
        let found = queue.tasks.get_mut(&task.sequence)?;
        f(found);
        Some(found.clone())
    }

    async fn work(&self, task: &Task) -> rbd::Result<()> {
        let io = self.io(task.of("pool_name"), task.of("pool_namespace")).await?;
        let (name, id) = (task.of("image_name"), task.of("image_id"));
        let mut progress = |done: u64, all: u64| {
            self.with(task, |t| t.progress = Some(done as f64 / all.max(1) as f64));
        };
        match task.of("action") {
            "flatten" => {
                let image = Image::open(&io, name, Mode::Write).await?;
                let done = tokio::select! {
                    done = image.flatten(&mut progress) => done,
                    () = self.canceled(task) => Ok(()),
                };
                // It gives back the lock, however it ended.
                done.and(image.close().await)
            }
            "migrate execute" => {
                let work = migration::open(&io, name).await?;
                let done = tokio::select! {
                    done = work.run(&mut progress) => done,
                    () = self.canceled(task) => Ok(()),
                };
                done.and(work.close().await)
            }
            "migrate commit" => migration::commit(&io, name, &mut progress).await,
            "migrate abort" => migration::abort(&io, name, &mut progress).await,
            // What is half gone is of no use: it is not broken off.
            "remove" => rbd::pool::remove(&io, name, &mut progress).await,
            "trash remove" => rbd::trash::remove(&io, id, false, &mut progress).await,
            other => Err(Error::Invalid(format!("there is no task '{other}'"))),
        }
    }

    /// Ends when somebody cancels the task.
    async fn canceled(&self, task: &Task) {
        while self.0.queue.borrow().tasks.get(&task.sequence).is_some_and(|t| !t.canceled) {
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// Takes it out of the queue. One that cannot be taken out of the pool is tried again, so
    /// that nobody after this does it anew.
    async fn forget(&self, task: &Task) {
        match self.take_out(task).await {
            Err(err) if err.code() != Some(ENOENT) => self.later(task, &err.into()),
            _ => drop(self.0.queue.borrow_mut().tasks.remove(&task.sequence)),
        }
    }

    async fn take_out(&self, task: &Task) -> rados::Result<()> {
        let io = self.io(task.of("pool_name"), task.of("pool_namespace")).await?;
        let mut op = WriteOp::new();
        op.rm_omap_keys(&BTreeSet::from([task.key()]));
        io.write_op(OBJECT, op).await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Specs as the peer's tools write them, and what is none.
    #[test]
    fn specs() {
        let shown = |text: &str| Spec::parse(text).map(|s| s.shown()).map_err(|a| a.r);
        assert_eq!(shown("a"), Ok("rbd/a".to_owned()));
        assert_eq!(shown("p/a"), Ok("p/a".to_owned()));
        assert_eq!(shown("p/n/a"), Ok("p/n/a".to_owned()));
        for bad in ["", "/", "p/", "/a", "p//a", "p/n/a/b", "p/a@s"] {
            assert_eq!(shown(bad), Err(-EINVAL), "{bad}");
        }
    }

    /// What is kept is read again; what makes no sense is not.
    #[test]
    fn kept_tasks() {
        let mut refs = Spec::parse("p/a").unwrap().refs("flatten");
        refs.insert("image_name".to_owned(), json!("a"));
        refs.insert("image_id".to_owned(), json!("10ab"));
        let text = json!({"sequence": 26, "id": "x", "message": "m", "refs": refs}).to_string();
        let task = Task::parse(text.as_bytes()).unwrap();
        assert_eq!((task.key(), task.of("image_id")), (Bytes::from("000000000000001A"), "10ab"));
        assert_eq!(Value::Object(task.kept()).to_string(), text);
        let mut by_name = refs.clone();
        by_name.remove("image_id");
        assert!(task.is_for(&refs) && task.is_for(&by_name));
        by_name.insert("action".to_owned(), json!("remove"));
        assert!(!task.is_for(&by_name));
        assert!(Task::parse(b"{\"sequence\": 1}").is_none() && Task::parse(b"[").is_none());
    }

    /// As the peer's module refuses.
    #[test]
    fn steps_of_migrations() {
        let ready = Some("is not in ready state");
        let done = Some("has not completed migration");
        for (state, execute, commit) in [
            (State::Error, ready, done),
            (State::Preparing, ready, done),
            (State::Prepared, None, done),
            (State::Executing, None, done),
            (State::Executed, ready, None),
            (State::Aborting, ready, done),
        ] {
            assert_eq!(Step::Execute.refuses(state), execute, "{state:?}");
            assert_eq!(Step::Commit.refuses(state), commit, "{state:?}");
            assert_eq!(Step::Abort.refuses(state), None, "{state:?}");
        }
    }

    #[test]
    fn ids_are_uuids() {
        let id = new_id();
        assert_eq!((id.len(), id.as_bytes()[14]), (36, b'4'));
        assert_ne!(id, new_id());
    }
}
