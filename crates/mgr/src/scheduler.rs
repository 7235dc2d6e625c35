//! Work on images that comes again and again: `rbd trash purge schedule` and
//! `rbd mirror snapshot schedule`.
//!
//! Schedules are kept where the peer keeps them, so that either takes over from the other: a
//! pool's in the omap of an object in it, by level; the cluster's among the manager's settings.
//! Once a minute they are read anew, and with them what they are for.
//!
//! Source: the peer's `pybind/mgr/rbd_support/{trash_purge,mirror_snapshot}_schedule.py`.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use cli::Args;
use rados::{Cluster, IoCtx, WriteOp};
use rbd::{Error, Image, Mode, mirror};
use serde_json::{Value, json};
use types::PoolId;

use crate::schedule::{Level, LevelName, Schedules, Target, time_text};
use crate::{Answer, EINVAL, ENOENT, May};

const REFRESH_SECS: u64 = 60;
/// How long reading may take: a pool without its OSDs never answers.
const READ_MAX: Duration = Duration::from_secs(20);
/// As long as that may take twice, and a little.
const COMMAND_MAX: Duration = Duration::from_secs(50);
const ETIMEDOUT: i32 = 110;
/// Images whose mirror snapshots are made at once: `max_concurrent_snap_create`.
const SNAPS_AT_ONCE: usize = 10;

/// What is scheduled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Removing from the trash what may go.
    TrashPurge,
    /// Snapshots of images that are mirrored by them and primary here.
    MirrorSnapshot,
}

impl Kind {
    fn object(self) -> &'static [u8] {
        match self {
            Self::TrashPurge => b"rbd_trash_purge_schedule",
            Self::MirrorSnapshot => b"rbd_mirror_snapshot_schedule",
        }
    }

    fn setting(self) -> &'static str {
        match self {
            Self::TrashPurge => "mgr/rbd_support/trash_purge_schedule",
            Self::MirrorSnapshot => "mgr/rbd_support/mirror_snapshot_schedule",
        }
    }

    fn at_once(self) -> usize {
        if self == Self::TrashPurge { 1 } else { SNAPS_AT_ONCE }
    }
}

#[derive(Default)]
struct State {
    schedules: Schedules,
    /// What there is to do things to, and its names.
    targets: BTreeMap<Target, String>,
    /// When it is due, in seconds since 1970.
    due: BTreeMap<Target, u64>,
    /// What is being worked on.
    busy: BTreeSet<Target>,
    /// The cluster's schedule as it is kept, once it was read.
    global: Option<Bytes>,
    /// When all was read last, monotonic ms.
    read_ms: Option<u64>,
}

impl State {
    /// What has become due stays so; for all else the schedules are looked at anew.
    fn enqueue(&mut self, now: u64) {
        let due = std::mem::take(&mut self.due);
        for target in self.targets.keys() {
            let kept = due.get(target).copied().filter(|at| *at <= now);
            let next = || self.schedules.find(target).and_then(|s| s.next_run(now));
            if let Some(at) = kept.or_else(next) {
                self.due.insert(target.clone(), at);
            }
        }
    }

    /// What is due and not at work yet; each is due again later.
    fn take_due(&mut self, now: u64) -> Vec<Target> {
        let ripe: Vec<Target> =
            self.due.iter().filter(|(_, at)| **at <= now).map(|(t, _)| t.clone()).collect();
        for target in &ripe {
            match self.schedules.find(target).and_then(|s| s.next_run(now)) {
                Some(at) => self.due.insert(target.clone(), at),
                None => self.due.remove(target),
            };
        }
        ripe.into_iter().filter(|t| self.busy.insert(t.clone())).collect()
    }
}

struct Inner {
    cluster: Cluster,
    kind: Kind,
    state: RefCell<State>,
    /// Held while schedules are read or changed.
    turn: tokio::sync::Mutex<()>,
    slots: tokio::sync::Semaphore,
    more: tokio::sync::Notify,
}

/// The schedules of a kind. Clones share them.
#[derive(Clone)]
pub(crate) struct Scheduler(Rc<Inner>);

fn wall_secs() -> u64 {
    rt::now().wall_ns / 1_000_000_000
}

fn invalid(why: impl Into<String>) -> Answer {
    Answer::err(EINVAL, why)
}

impl Scheduler {
    /// Begins with what is kept.
    pub fn start(cluster: Cluster, kind: Kind) -> Self {
        let this = Self(Rc::new(Inner {
            cluster,
            kind,
            state: RefCell::default(),
            turn: tokio::sync::Mutex::new(()),
            slots: tokio::sync::Semaphore::new(kind.at_once()),
            more: tokio::sync::Notify::new(),
        }));
        let weak = Rc::downgrade(&this.0);
        tokio::task::spawn_local(async move {
            while let Some(inner) = weak.upgrade() {
                let wait = Self(inner.clone()).look().await;
                tokio::time::timeout(wait, inner.more.notified()).await.ok();
            }
        });
        this
    }

    /// Does what is due; how long to wait for the next.
    async fn look(&self) -> Duration {
        let refresh_ms = REFRESH_SECS * 1_000;
        let read_ms = self.0.state.borrow().read_ms;
        if read_ms.is_none_or(|at| rt::now().mono_ms() >= at + refresh_ms) {
            let _turn = self.0.turn.lock().await;
            self.refresh().await;
        }
        for target in self.0.state.borrow_mut().take_due(wall_secs()) {
            let this = self.clone();
            tokio::task::spawn_local(async move {
                let slot = this.0.slots.acquire().await;
                this.work(&target).await;
                drop(slot);
                this.0.state.borrow_mut().busy.remove(&target);
            });
        }
        let next = self.0.state.borrow().due.values().min().copied().unwrap_or(u64::MAX);
        Duration::from_secs(next.saturating_sub(wall_secs()).clamp(1, REFRESH_SECS))
    }

    /// Reads all anew; what cannot be read stays as it was until the next time.
    async fn refresh(&self) {
        match tokio::time::timeout(READ_MAX, self.read()).await {
            Err(_) => tracing::warn!(kind = ?self.0.kind, "schedules: a pool does not answer"),
            Ok(Ok((schedules, targets))) => {
                let mut state = self.0.state.borrow_mut();
                (state.schedules, state.targets) = (schedules, targets);
                state.enqueue(wall_secs());
            }
            Ok(Err(err)) => tracing::warn!(kind = ?self.0.kind, "schedules: {err}"),
        }
        self.0.state.borrow_mut().read_ms = Some(rt::now().mono_ms());
    }

    async fn read(&self) -> rbd::Result<(Schedules, BTreeMap<Target, String>)> {
        let mut schedules = Schedules::default();
        self.load_global(&mut schedules).await?;
        let pools = crate::image_pools(&self.0.cluster);
        for (pool, name) in &pools {
            let io = self.0.cluster.pool_by_id(*pool);
            self.load_pool(&io, name, &mut schedules).await?;
        }
        let mut targets = BTreeMap::new();
        if schedules.is_empty() {
            return Ok((schedules, targets));
        }
        for (pool, name) in pools.iter().filter(|(pool, _)| schedules.touch_pool(pool.0)) {
            let io = self.0.cluster.pool_by_id(*pool);
            for nspace in crate::namespaces(&io).await? {
                match self.0.kind {
                    Kind::TrashPurge => {
                        targets.insert(Target { pool: pool.0, nspace, image: None }, name.clone());
                    }
                    Kind::MirrorSnapshot => {
                        self.find_images(&io, name, &nspace, &schedules, &mut targets).await?;
                    }
                }
            }
        }
        Ok((schedules, targets))
    }

    /// Images that a schedule is for, mirrored by snapshots and primary here.
    async fn find_images(
        &self,
        io: &IoCtx,
        pool: &str,
        nspace: &str,
        schedules: &Schedules,
        targets: &mut BTreeMap<Target, String>,
    ) -> rbd::Result<()> {
        let io = io.namespace(nspace.to_owned());
        for id in mirror::images_by_snapshots(&io).await? {
            let target =
                Target { pool: io.pool_id().0, nspace: nspace.to_owned(), image: Some(id.clone()) };
            if schedules.find(&target).is_none() {
                continue;
            }
            let Some(name) = rbd::pool::name_of(&io, &id).await? else { continue };
            match Image::open_id(&io, &name, &id, Mode::Read).await {
                Ok(image) if mirror::is_primary(&image.header()) => {}
                Ok(_) | Err(Error::NoImage(_)) => continue,
                Err(err) => {
                    tracing::warn!("image {pool}/{name}: {err}");
                    continue;
                }
            }
            let nspace = if nspace.is_empty() { String::new() } else { format!("{nspace}/") };
            targets.insert(target, format!("{pool}/{nspace}{name}"));
        }
        Ok(())
    }

    /// The cluster's: only commands change it, so it is read once.
    async fn load_global(&self, to: &mut Schedules) -> rbd::Result<()> {
        let known = self.0.state.borrow().global.clone();
        let kept = match known {
            Some(kept) => kept,
            None => {
                let name = self.0.kind.setting();
                let ask = json!({"prefix": "config get", "who": "mgr", "key": name});
                match self.0.cluster.mon(&ask.to_string()).await {
                    Err(err) if err.code() == Some(ENOENT) => Bytes::new(),
                    other => other?,
                }
            }
        };
        self.0.state.borrow_mut().global = Some(kept.clone());
        if !kept.trim_ascii().is_empty() && !to.load(Level::default(), &kept) {
            tracing::error!(setting = self.0.kind.setting(), "a schedule makes no sense");
        }
        Ok(())
    }

    /// A pool's; those of what is gone are removed.
    async fn load_pool(&self, io: &IoCtx, pool: &str, to: &mut Schedules) -> rbd::Result<()> {
        let kept = crate::all_omap(io, self.0.kind.object()).await?;
        let mut stale = BTreeSet::new();
        for (key, text) in kept {
            let level = Level::from_id(&String::from_utf8_lossy(&key));
            let level = level.filter(|l| l.pool == Some(io.pool_id().0));
            let level = match level {
                Some(level) => self.look_up(io, pool, level).await?,
                None => None,
            };
            match level {
                Some(level) => {
                    if !to.load(level, &text) {
                        tracing::error!(pool, ?key, "a schedule makes no sense");
                    }
                }
                None => drop(stale.insert(key)),
            }
        }
        if !stale.is_empty() {
            let mut op = WriteOp::new();
            op.rm_omap_keys(&stale);
            io.write_op(self.0.kind.object(), op).await?;
        }
        Ok(())
    }

    /// A level with its name, if what it is for is there.
    async fn look_up(&self, io: &IoCtx, pool: &str, level: Level) -> rbd::Result<Option<Level>> {
        let nspace = level.nspace.clone().unwrap_or_default();
        if !nspace.is_empty() && self.refuses_namespace(io, &nspace).await?.is_some() {
            return Ok(None);
        }
        let Some(id) = level.image.clone() else { return Ok(Some(level.named(pool, None))) };
        let io = io.namespace(nspace);
        let Some(name) = rbd::pool::name_of(&io, &id).await? else { return Ok(None) };
        if !self.takes_image(&io, &id).await? {
            return Ok(None);
        }
        Ok(Some(level.named(pool, Some(&name))))
    }

    async fn refuses_namespace(&self, io: &IoCtx, nspace: &str) -> rbd::Result<Option<String>> {
        if !rbd::pool::namespaces(io).await?.iter().any(|n| n == nspace) {
            return Ok(Some(format!("namespace {nspace} does not exist")));
        }
        let by_image = match self.0.kind {
            Kind::TrashPurge => true,
            Kind::MirrorSnapshot => {
                mirror::mode(&io.namespace(nspace.to_owned())).await? == mirror::MODE_IMAGE
            }
        };
        Ok((!by_image).then(|| format!("namespace {nspace} is not in mirror image mode")))
    }

    async fn takes_image(&self, io: &IoCtx, id: &str) -> rbd::Result<bool> {
        let found = mirror::image(io, id).await?;
        Ok(self.0.kind == Kind::MirrorSnapshot
            && found.is_some_and(|m| m.mode == mirror::BY_SNAPSHOTS))
    }

    async fn work(&self, target: &Target) {
        let io = self.0.cluster.pool_by_id(PoolId(target.pool));
        let io = io.namespace(target.nspace.clone());
        let done = match &target.image {
            None => purge(&io).await,
            Some(id) => self.snapshot(&io, id, target).await,
        };
        match done {
            Ok(()) | Err(Error::NoImage(_)) => {}
            Err(err) => tracing::warn!(?target, kind = ?self.0.kind, "{err}"),
        }
    }

    async fn snapshot(&self, io: &IoCtx, id: &str, target: &Target) -> rbd::Result<()> {
        let Some(name) = rbd::pool::name_of(io, id).await? else { return Ok(()) };
        let image = Image::open_id(io, &name, id, Mode::Write).await?;
        let made = image.create_mirror_snap().await;
        let closed = image.close().await;
        let snap = made?;
        tracing::info!(?target, snap, "made a mirror snapshot");
        closed
    }

    /// The answer to `rbd ... schedule ...`.
    pub async fn command(&self, args: &Args, may: &May) -> Answer {
        let done = tokio::time::timeout(COMMAND_MAX, self.run(args, may)).await;
        done.unwrap_or_else(|_| Answer::err(ETIMEDOUT, "a pool does not answer"))
    }

    async fn run(&self, args: &Args, may: &May) -> Answer {
        let _turn = self.0.turn.lock().await;
        let text = |name| args.str_or_empty(name).unwrap_or_default();
        let level = match self.level(text("level_spec")).await {
            Ok(Ok(level)) => level,
            Ok(Err(why)) => return invalid(why),
            Err(err) => return crate::failed(&err),
        };
        let verb = args.prefix().rsplit(' ').next().unwrap_or_default();
        if self.0.state.borrow().read_ms.is_none() {
            self.refresh().await;
        }
        let done = match verb {
            "list" => {
                let open = self.open_to(may);
                let shown = self.0.state.borrow().schedules.shown(&level, |l| {
                    l.pool.is_none_or(|pool| open(pool, l.nspace.as_deref().unwrap_or_default()))
                });
                return Answer::out(crate::python(&shown));
            }
            "status" => return Answer::out(crate::python(&self.status(&level, may))),
            "add" => self.add(&level, text("interval"), text("start_time")).await,
            "remove" => self.remove(&level, text("interval"), text("start_time")).await,
            other => return invalid(format!("there is no schedule command '{other}'")),
        };
        self.0.more.notify_one();
        done.unwrap_or_else(|err| crate::failed(&err))
    }

    /// Whether a caller may know of what is planned for a pool, by its number, and namespace.
    fn open_to<'m>(&self, may: &'m May) -> impl Fn(i64, &str) -> bool + 'm {
        let pools = crate::image_pools(&self.0.cluster);
        move |pool, nspace| pools.get(&PoolId(pool)).is_some_and(|name| may(name, nspace))
    }

    /// What a level's name means; or why it means nothing.
    async fn level(&self, text: &str) -> rbd::Result<Result<Level, String>> {
        let parts = match LevelName::parse(text) {
            Ok(parts) => parts,
            Err(why) => return Ok(Err(why)),
        };
        if parts.image.is_some() && self.0.kind == Kind::TrashPurge {
            return Ok(Err(format!("invalid name {text}: image level is not allowed")));
        }
        let Some(pool) = parts.pool else { return Ok(Ok(Level::default())) };
        let io = match self.0.cluster.pool(pool).await {
            Err(err) if err.code() == Some(ENOENT) => {
                return Ok(Err(format!("pool {pool} does not exist")));
            }
            other => other?,
        };
        if !crate::image_pools(&self.0.cluster).contains_key(&io.pool_id()) {
            return Ok(Err(format!("{pool} is not an RBD pool")));
        }
        let nspace = parts.nspace.unwrap_or_default();
        if !nspace.is_empty()
            && let Some(why) = self.refuses_namespace(&io, nspace).await?
        {
            return Ok(Err(why));
        }
        let mut level = Level {
            name: String::new(),
            pool: Some(io.pool_id().0),
            nspace: parts.nspace.map(str::to_owned),
            image: None,
        };
        if let Some(image) = parts.image {
            let io = io.namespace(nspace.to_owned());
            let id = match rbd::image_id(&io, image).await {
                Err(Error::NoImage(_)) => return Ok(Err(format!("image {image} does not exist"))),
                other => other?,
            };
            if !self.takes_image(&io, &id).await? {
                return Ok(Err(format!("image {image} is not in snapshot mirror mode")));
            }
            level.image = Some(id);
        }
        Ok(Ok(level.named(pool, parts.image)))
    }

    async fn add(&self, level: &Level, every: &str, start: &str) -> rbd::Result<Answer> {
        let mut schedules = self.0.state.borrow().schedules.clone();
        match schedules.add(level, every, start) {
            Ok(text) => self.save(level, Some(text)).await?,
            Err(why) => return Ok(invalid(why)),
        }
        self.0.state.borrow_mut().schedules = schedules;
        self.refresh().await;
        Ok(Answer::default())
    }

    async fn remove(&self, level: &Level, every: &str, start: &str) -> rbd::Result<Answer> {
        let mut schedules = self.0.state.borrow().schedules.clone();
        match schedules.remove(level, every, start) {
            Ok(left) => self.save(level, left).await?,
            Err(why) => return Ok(invalid(why)),
        }
        self.0.state.borrow_mut().schedules = schedules;
        self.refresh().await;
        Ok(Answer::default())
    }

    async fn save(&self, level: &Level, text: Option<String>) -> rbd::Result<()> {
        let Some(pool) = level.pool else {
            let name = self.0.kind.setting();
            let ask = match text {
                Some(text) => {
                    json!({"prefix": "config set", "who": "mgr", "name": name, "value": text})
                }
                None => json!({"prefix": "config rm", "who": "mgr", "name": name}),
            };
            self.0.state.borrow_mut().global = None;
            self.0.cluster.mon(&ask.to_string()).await?;
            return Ok(());
        };
        let io = self.0.cluster.pool_by_id(PoolId(pool));
        let (object, key) = (self.0.kind.object(), Bytes::from(level.id()));
        if let Some(text) = text {
            io.set_omap(object, BTreeMap::from([(key, text.into())])).await?;
            return Ok(());
        }
        let mut op = WriteOp::new();
        op.rm_omap_keys(&BTreeSet::from([key]));
        match io.write_op(object, op).await {
            Err(err) if err.code() != Some(ENOENT) => Err(err.into()),
            _ => Ok(()),
        }
    }

    fn status(&self, level: &Level, may: &May) -> Value {
        let open = self.open_to(may);
        let state = self.0.state.borrow();
        let mut due: Vec<(u64, &Target)> = state.due.iter().map(|(t, at)| (*at, t)).collect();
        due.sort_unstable();
        let wanted = due.into_iter().filter(|(_, t)| level.matches(t) && open(t.pool, &t.nspace));
        let shown = wanted.filter_map(|(at, target)| {
            let (time, name) = (time_text(at), state.targets.get(target)?);
            Some(match target.image {
                Some(_) => json!({"image": name, "schedule_time": time}),
                None => json!({
                    "namespace": target.nspace,
                    "pool_id": target.pool.to_string(),
                    "pool_name": name,
                    "schedule_time": time,
                }),
            })
        });
        let shown: Vec<Value> = shown.collect();
        match self.0.kind {
            Kind::TrashPurge => json!({"scheduled": shown}),
            Kind::MirrorSnapshot => json!({"scheduled_images": shown}),
        }
    }
}

async fn purge(io: &IoCtx) -> rbd::Result<()> {
    let (gone, why) = rbd::trash::purge(io).await?;
    let (pool, nspace) = (io.pool_id(), io.nspace());
    if gone > 0 {
        tracing::info!(?pool, ?nspace, gone, "purged the trash");
    }
    if let Some(why) = why {
        tracing::info!(?pool, ?nspace, "not all of the trash could go: {why}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(nspace: &str) -> Target {
        Target { pool: 1, nspace: nspace.to_owned(), image: None }
    }

    /// What became due is done once, even when it is looked at late and schedules change; what
    /// is at work is not begun again, but is due again.
    #[test]
    fn due_once() {
        let mut s = State::default();
        let all = Level::default();
        s.schedules.add(&all, "10m", "").unwrap();
        s.targets = BTreeMap::from([(target(""), "p".into()), (target("n"), "p".into())]);
        s.enqueue(1_000);
        assert_eq!(s.due[&target("")], 1_200);
        assert!(s.take_due(1_199).is_empty());
        s.enqueue(1_250); // late
        assert_eq!(s.take_due(1_250), [target(""), target("n")]);
        assert_eq!(s.due[&target("")], 1_800);
        s.busy.remove(&target("n"));
        assert_eq!(s.take_due(1_800), [target("n")]);
        assert_eq!(s.due[&target("")], 2_400);
        s.busy.clear();
        s.schedules.remove(&all, "", "").unwrap();
        s.enqueue(1_900);
        assert!(s.due.is_empty() && s.take_due(9_999).is_empty());
    }
}
