//! The manager's modules and its metrics.
//!
//! [`Modules`] are clients of the cluster themselves: they run in the manager's process, or beside the
//! monitor that leads where none is registered, on a thread of their own, so that their work never
//! holds it up. A module answers commands and keeps what it must remember in the cluster's own objects.
//!
//! [`metrics`] makes the families that Prometheus reads out of one answer of the monitors; [`web`]
//! serves them, in the manager's process alone.

pub mod metrics;
mod perf;
mod schedule;
mod scheduler;
mod tasks;
mod volumes;
pub mod web;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
pub use cli::Args;
use rados::{Cluster, IoCtx};
use scheduler::{Kind, Scheduler};
use tokio::sync::{Notify, mpsc, oneshot};
use types::{AddrVec, EntityAddr, PoolId};

pub(crate) const ENOENT: i32 = 2;
pub(crate) const EINVAL: i32 = 22;
const EOPNOTSUPP: i32 = 95;

/// What a command is answered with: an errno, negative, or 0; a line for people; output.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// 0, or a negative errno.
    pub r: i32,
    /// For people.
    pub rs: String,
    /// For programs.
    pub out: Bytes,
}

impl Answer {
    fn out(text: String) -> Self {
        Self { out: text.into(), ..Self::default() }
    }

    fn err(errno: i32, rs: impl Into<String>) -> Self {
        Self { r: -errno, rs: rs.into(), ..Self::default() }
    }
}

/// Whether the command's caller may see and change images of a pool and namespace.
pub type May = Box<dyn Fn(&str, &str) -> bool + Send>;

type Ask = (Args, May, oneshot::Sender<Answer>);

/// The modules at work; they end with it.
#[derive(Clone, Debug)]
pub struct Modules {
    asks: mpsc::UnboundedSender<Ask>,
    addrs: Arc<Addrs>,
    life: Arc<Life>,
    /// Whether they are in a manager's process, where file systems are served, too.
    has_volumes: bool,
}

/// By which addresses the modules' clients are known: their own, and those of mounts of file systems.
#[derive(Debug, Default)]
pub(crate) struct Addrs {
    own: Mutex<Option<EntityAddr>>,
    mounts: Mutex<Vec<EntityAddr>>,
    changed: Notify,
}

impl Addrs {
    /// Keeps the addresses of all mounts.
    pub fn set_mounts(&self, addrs: Vec<EntityAddr>) {
        *self.mounts.lock().expect("no panic while held") = addrs;
        self.changed.notify_one();
    }
}

/// Tells the modules' thread to end, and whoever waits that it has ended.
#[derive(Debug, Default)]
struct Life {
    stop: Notify,
    ended: Notify,
}

/// Images of all pools that are for them, by pool: their names, as many as metrics show. A pool that
/// cannot be read has none.
pub async fn image_names(cluster: &Cluster) -> BTreeMap<i64, Vec<String>> {
    let (mut all, mut count) = (BTreeMap::new(), 0);
    for pool in image_pools(cluster).into_keys() {
        if count >= metrics::IMAGES_MAX {
            break;
        }
        let io = cluster.pool_by_id(pool);
        let list = tokio::time::timeout(LIST_MAX, rbd::pool::list(&io)).await;
        let Ok(Ok(images)) = list else { continue };
        count += images.len();
        all.insert(pool.0, images.into_iter().map(|(name, _)| name).collect());
    }
    all
}

/// How long a pool's directory of images may take.
const LIST_MAX: Duration = Duration::from_secs(5);

impl Modules {
    /// Begins, as a client with this configuration. A client that is shut out (blocklisted) is
    /// followed by another: as a new instance, with what is kept in the pools.
    ///
    /// # Errors
    /// When there can be no further thread.
    pub fn start(config: rados::Config, has_volumes: bool) -> std::io::Result<Self> {
        let (asks, mut asked) = mpsc::unbounded_channel();
        let (addrs, life): (Arc<Addrs>, Arc<Life>) = Default::default();
        let known = Known { addrs: addrs.clone(), life: life.clone(), has_volumes };
        std::thread::Builder::new().name("mgr-modules".into()).spawn(move || {
            loop {
                // All tasks of an instance end with its runtime, whatever they wait for.
                match rt::run_local(run(config.clone(), &mut asked, &known)) {
                    Ok(true) => tracing::warn!("the manager's modules were shut out: once more"),
                    Ok(false) => break,
                    Err(err) => break tracing::error!("the manager's modules: {err}"),
                }
            }
            known.life.ended.notify_one();
        })?;
        Ok(Self { asks, addrs, life, has_volumes })
    }

    /// Ends the modules: file systems are unmounted, so that their servers do not wait for these
    /// clients at their next start. Takes [`END_MAX`] at most.
    pub async fn end(&self) {
        self.life.stop.notify_one();
        tokio::time::timeout(END_MAX, self.life.ended.notified()).await.ok();
    }

    /// Waits until [`Modules::addrs`] returns other addresses than before.
    pub async fn addrs_changed(&self) {
        self.addrs.changed.notified().await;
    }

    /// By which addresses their clients are to be shut out; none before they have a session.
    #[must_use]
    pub fn addrs(&self) -> Option<AddrVec> {
        let addr = *self.addrs.own.lock().expect("no panic while held");
        let mounts = self.addrs.mounts.lock().expect("no panic while held").clone();
        addr.map(|addr| AddrVec(std::iter::once(addr).chain(mounts).collect()))
    }

    /// Whether there is still somebody to ask.
    #[must_use]
    pub fn is_running(&self) -> bool {
        !self.asks.is_closed()
    }

    /// The answer to a command that a module has. What names a pool was judged before; lists show
    /// what its caller `may` see.
    pub async fn command(&self, args: Args, may: May) -> Answer {
        let gone = || Answer::err(11, "the manager's modules are not running, try again");
        let is_here = match args.prefix().split(' ').next() {
            Some("rbd") => true,
            Some("fs") => self.has_volumes,
            _ => false,
        };
        if !is_here {
            return Self::nothing(&args);
        }
        let (answer, answered) = oneshot::channel();
        if self.asks.send((args, may, answer)).is_err() {
            return gone();
        }
        answered.await.unwrap_or_else(|_| gone())
    }

    /// The answer where no pool is for images: there is nothing to list, and nothing to do.
    #[must_use]
    pub fn nothing(args: &Args) -> Answer {
        let out = |text: &str| Answer::out(text.to_owned());
        // All others serve what a manager's process collects.
        if args.prefix().split(' ').next() != Some("rbd") {
            let why = "no manager process is registered: argonaut mgr -i NAME starts one";
            return Answer::err(EOPNOTSUPP, why);
        }
        match args.prefix() {
            "rbd task list" => out("[]"),
            "rbd trash purge schedule list" | "rbd mirror snapshot schedule list" => out("{}"),
            "rbd trash purge schedule status" => out("{\"scheduled\": []}"),
            "rbd mirror snapshot schedule status" => out("{\"scheduled_images\": []}"),
            _ => {
                Answer::err(ENOENT, "no pool is for RBD images: 'rbd pool init POOL' makes one so")
            }
        }
    }
}

/// A cluster that just came up may need a while: this long between two tries.
const RETRY: Duration = Duration::from_secs(3);
/// How often it is looked whether this client is shut out.
const LOOK: Duration = Duration::from_secs(1);

/// How long [`Modules::end`] waits.
const END_MAX: Duration = Duration::from_secs(2);

/// What the thread of modules is told, and tells.
struct Known {
    addrs: Arc<Addrs>,
    life: Arc<Life>,
    has_volumes: bool,
}

/// Whether to begin anew, as another instance.
async fn run(
    config: rados::Config,
    asked: &mut mpsc::UnboundedReceiver<Ask>,
    known: &Known,
) -> bool {
    let cluster = loop {
        match Cluster::connect(config.clone()).await {
            Ok(cluster) => break cluster,
            Err(err) => tracing::warn!("the manager's modules cannot connect: {err}"),
        }
        if asked.is_closed() {
            return false;
        }
        tokio::select! {
            () = tokio::time::sleep(RETRY) => {}
            () = known.life.stop.notified() => return false,
        }
    };
    *known.addrs.own.lock().expect("no panic while held") = cluster.addr();
    known.addrs.changed.notify_one();
    let volumes = known
        .has_volumes
        .then(|| volumes::Volumes::start(cluster.clone(), config.clone(), known.addrs.clone()));
    let tasks = tasks::Tasks::start(cluster.clone());
    let purges = Scheduler::start(cluster.clone(), Kind::TrashPurge);
    let snaps = Scheduler::start(cluster.clone(), Kind::MirrorSnapshot);
    let perf = perf::Perf::new(cluster.clone());
    loop {
        let next = tokio::select! {
            next = tokio::time::timeout(LOOK, asked.recv()) => next,
            () = known.life.stop.notified() => Ok(None),
        };
        if cluster.is_blocklisted() {
            // Who asked hears that it is to try again.
            return true;
        }
        let (args, may, answer) = match next {
            Ok(Some(ask)) => ask,
            Ok(None) => {
                if let Some(volumes) = volumes {
                    volumes.end().await;
                }
                return false;
            }
            Err(_) => continue,
        };
        let (tasks, perf, volumes) = (tasks.clone(), perf.clone(), volumes.clone());
        let (purges, snaps) = (purges.clone(), snaps.clone());
        tokio::task::spawn_local(async move {
            let words: Vec<&str> = args.prefix().split(' ').collect();
            let done = match words.as_slice() {
                ["rbd", "trash", "purge", "schedule", ..] => purges.command(&args, &may).await,
                ["rbd", "mirror", "snapshot", "schedule", ..] => snaps.command(&args, &may).await,
                ["rbd", "perf", ..] => perf.command(&args).await,
                ["fs", ..] => match volumes {
                    Some(volumes) => volumes.command(&args).await,
                    None => Modules::nothing(&args),
                },
                _ => tasks.command(&args, &may).await,
            };
            answer.send(done).ok();
        });
    }
}

pub(crate) fn failed(err: &rbd::Error) -> Answer {
    Answer::err(err.errno(), err.to_string())
}

/// Pools that are for images, with their names.
pub(crate) fn image_pools(cluster: &Cluster) -> BTreeMap<PoolId, String> {
    let map = cluster.map();
    let pools = map.pools.iter().filter(|(_, p)| p.application_metadata.contains_key("rbd"));
    let name = |id: &PoolId| map.pool_names.get(id).cloned().unwrap_or_default();
    pools.map(|(id, _)| (*id, name(id))).collect()
}

/// The namespaces of a pool, its default one first.
pub(crate) async fn namespaces(io: &IoCtx) -> rbd::Result<Vec<String>> {
    let mut all = vec![String::new()];
    all.extend(rbd::pool::namespaces(io).await?);
    Ok(all)
}

/// All keys and values of an object; none where it is not there.
pub(crate) async fn all_omap(io: &IoCtx, object: &[u8]) -> rados::Result<Vec<(Bytes, Bytes)>> {
    let mut all: Vec<(Bytes, Bytes)> = Vec::new();
    loop {
        let after = all.last().map_or_else(Bytes::new, |(key, _)| key.clone());
        let (page, more) = match io.get_omap(object, &after, 128).await {
            Ok(page) => page,
            Err(err) if err.code() == Some(ENOENT) => return Ok(all),
            Err(err) => return Err(err),
        };
        let is_last = !more || page.is_empty();
        all.extend(page);
        if is_last {
            return Ok(all);
        }
    }
}

/// Json as the peer's modules write it.
pub(crate) fn python(value: &serde_json::Value) -> String {
    use serde::Serialize;
    let mut text = Vec::new();
    let form = serde_json::ser::PrettyFormatter::with_indent(b"    ");
    let mut to = serde_json::Serializer::with_formatter(&mut text, form);
    value.serialize(&mut to).expect("numbers and text into memory");
    String::from_utf8(text).expect("json is text")
}
