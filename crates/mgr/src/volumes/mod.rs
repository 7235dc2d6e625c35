//! `fs volume`, `fs subvolumegroup`, `fs subvolume` and `fs clone`: what ceph-csi, Rook and Manila call.
//!
//! All state is in the file systems, in upstream's layout, so that another manager goes on where this
//! one ends, and so that stock's goes on with what ours left:
//!
//! | path | what |
//! |---|---|
//! | `/volumes/GROUP/SUB/UUID` | a subvolume's files; group `_nogroup` where none is named |
//! | `/volumes/GROUP/SUB/.meta` | its words ([`meta`]) |
//! | `/volumes/GROUP/SUB/.snap/S` | snapshots; those of version 1 are below `UUID` |
//! | `/volumes/_deleting` | what is to be removed: directories, or links to `.trash` of a subvolume |
//! | `/volumes/_index/clone` | links to clones that are under way |
//! | `/volumes/_legacy/MD5.meta` | words of subvolumes from before version 1 |
//! | `/volumes/$ID.meta`, `/volumes/_GROUP:SUB.meta` | keys and what they may mount |
//!
//! One command at a time changes something; copies and removals run beside them.
//!
//! Source: the peer's `pybind/mgr/volumes/`: layout, names, sentences, errnos.

mod auth;
mod clones;
mod group;
mod meta;
mod snapshot;
mod subvolume;
mod trash;
mod volume;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use cli::Args;
use fs::{Fs, Stat};
use rados::Cluster;
use serde_json::{Map, Value, json};
use types::UTime;

use crate::{Addrs, Answer, EINVAL, ENOENT, EOPNOTSUPP};

pub(crate) const EPERM: i32 = 1;
pub(crate) const EAGAIN: i32 = 11;
pub(crate) const EEXIST: i32 = 17;
const ENOTEMPTY: i32 = 39;
const ENOSYS: i32 = 38;
const ETIMEDOUT: i32 = 110;

/// A command that takes longer fails: a file system without a server would hold it for ever.
const COMMAND_MAX: Duration = Duration::from_secs(120);
/// A file system without an active server is mounted after this time at the latest.
const MOUNT_MAX: Duration = Duration::from_secs(30);
/// How often it is looked for work that nobody told of.
const LOOK: Duration = Duration::from_secs(10);
/// Longest name of a subvolume, group or snapshot.
const NAME_MAX: usize = 255;

pub(crate) const BASE: &str = "/volumes";
pub(crate) const NO_GROUP: &str = "_nogroup";

/// Why a command fails: errno, sentence.
#[derive(Clone, Debug)]
pub(crate) struct No(pub i32, pub String);

pub(crate) type R<T> = Result<T, No>;

pub(crate) fn no<T>(errno: i32, why: impl Into<String>) -> R<T> {
    Err(No(errno, why.into()))
}

impl From<fs::Error> for No {
    fn from(err: fs::Error) -> Self {
        Self(err.errno(), err.to_string())
    }
}

impl From<rados::Error> for No {
    fn from(err: rados::Error) -> Self {
        Self(err.code().unwrap_or(EAGAIN), err.to_string())
    }
}

impl From<cli::ArgError> for No {
    fn from(err: cli::ArgError) -> Self {
        Self(EINVAL, err.to_string())
    }
}

/// A file system that is mounted.
#[derive(Clone)]
pub(crate) struct Vol {
    pub name: String,
    pub fs: Fs,
}

pub(crate) struct Inner {
    cluster: Cluster,
    config: rados::Config,
    mounts: tokio::sync::Mutex<BTreeMap<String, Fs>>,
    /// Held while a command changes something.
    turn: tokio::sync::Mutex<()>,
    /// Where clients of this module are known from.
    known: Arc<Addrs>,
    work: tokio::sync::Notify,
    /// Copies under way: their entry in the index, and whether they are to end.
    copies: RefCell<BTreeMap<(String, String), clones::Copy>>,
    /// What is being removed.
    removals: RefCell<BTreeSet<(String, Vec<u8>)>>,
}

/// The module. Clones share it.
#[derive(Clone)]
pub(crate) struct Volumes(Rc<Inner>);

impl Volumes {
    /// Begins, with what an earlier manager left to do.
    pub fn start(cluster: Cluster, config: rados::Config, known: Arc<Addrs>) -> Self {
        let this = Self(Rc::new(Inner {
            cluster,
            config,
            mounts: tokio::sync::Mutex::default(),
            turn: tokio::sync::Mutex::default(),
            known,
            work: tokio::sync::Notify::new(),
            copies: RefCell::default(),
            removals: RefCell::default(),
        }));
        let worker = this.clone();
        tokio::task::spawn_local(async move {
            loop {
                // Weak would end with the last command: the module ends with its runtime.
                for name in worker.names().await.unwrap_or_default() {
                    if let Ok(vol) = worker.mount(&name).await {
                        worker.look_for_clones(&vol).await;
                        worker.look_for_trash(&vol).await;
                    }
                }
                tokio::time::timeout(LOOK, worker.0.work.notified()).await.ok();
            }
        });
        this
    }

    /// Names of file systems, and whether each has a server.
    async fn all(&self) -> R<BTreeMap<String, bool>> {
        let map = self.mon_json(json!({"prefix": "fs dump", "format": "json"})).await?;
        let one = |f: &Value| {
            let info = f["mdsmap"]["info"].as_object();
            let is_served = info.is_some_and(|i| i.values().any(|m| m["state"] == "up:active"));
            Some((f["mdsmap"]["fs_name"].as_str()?.to_owned(), is_served))
        };
        Ok(map["filesystems"].as_array().into_iter().flatten().filter_map(one).collect())
    }

    /// Names of file systems that have a server.
    async fn names(&self) -> R<Vec<String>> {
        let all = self.all().await?.into_iter();
        Ok(all.filter(|(_, is_served)| *is_served).map(|(name, _)| name).collect())
    }

    pub async fn command(&self, args: &Args) -> Answer {
        let done = tokio::time::timeout(COMMAND_MAX, self.run(args)).await;
        match done {
            Ok(Ok(mut answer)) => {
                if !answer.out.is_empty() && !answer.out.ends_with(b"\n") {
                    answer.out = [&answer.out[..], b"\n"].concat().into();
                }
                answer
            }
            Ok(Err(No(errno, why))) => Answer::err(errno, why),
            Err(_) => Answer::err(
                ETIMEDOUT,
                "the file system did not answer in time: has it an active metadata server?",
            ),
        }
    }

    async fn run(&self, args: &Args) -> R<Answer> {
        let words: Vec<&str> = args.prefix().split(' ').collect();
        let volume = args.str("vol_name")?.unwrap_or_default().to_owned();
        if let ["fs", "volume", verb] = words.as_slice() {
            let _turn = self.0.turn.lock().await;
            return self.volume_command(verb, &volume, args).await;
        }
        if words.get(1) == Some(&"quiesce") {
            return no(EOPNOTSUPP, "fs quiesce: metadata servers of ours do not quiesce yet");
        }
        for name in ["group_name", "sub_name", "snap_name", "target_sub_name", "target_group_name"]
        {
            let is_new = matches!(words.last(), Some(&"create" | &"clone"));
            check_name(args.str(name)?.unwrap_or_default(), is_new)?;
        }
        let vol = self.mount(&volume).await?;
        let _turn = self.0.turn.lock().await;
        match words.as_slice() {
            ["fs", "subvolumegroup", rest @ ..] => self.group_command(&vol, rest, args).await,
            ["fs", "subvolume", "snapshot", rest @ ..] => {
                self.snapshot_command(&vol, rest, args).await
            }
            ["fs", "subvolume", rest @ ..] => self.subvolume_command(&vol, rest, args).await,
            ["fs", "clone", rest @ ..] => self.clone_command(&vol, rest, args).await,
            _ => no(EOPNOTSUPP, format!("{}: not built", args.prefix())),
        }
    }

    /// A file system's mount, anew where servers shut the last one out.
    async fn mount(&self, name: &str) -> R<Vol> {
        let mut mounts = self.0.mounts.lock().await;
        if mounts.get(name).is_some_and(Fs::is_shut_out) {
            mounts.remove(name);
        }
        if let Some(fs) = mounts.get(name) {
            return Ok(Vol { name: name.to_owned(), fs: fs.clone() });
        }
        match self.all().await?.get(name) {
            None => return no(ENOENT, format!("FS '{name}' not found")),
            Some(false) => {
                return no(EAGAIN, format!("FS '{name}' has no active metadata server: try again"));
            }
            Some(true) => {}
        }
        let options = fs::Options {
            fs_name: Some(name.to_owned()),
            timeout: MOUNT_MAX,
            ..fs::Options::default()
        };
        let fs = match Fs::mount(self.0.config.clone(), options).await {
            Err(fs::Error::NoFs(_)) => return no(ENOENT, format!("FS '{name}' not found")),
            mounted => mounted?,
        };
        mounts.insert(name.to_owned(), fs.clone());
        let addrs = mounts.values().filter_map(|fs| fs.cluster().addr()).collect();
        self.0.known.set_mounts(addrs);
        Ok(Vol { name: name.to_owned(), fs })
    }

    /// Lets a file system go.
    async fn forget(&self, name: &str) {
        if let Some(fs) = self.0.mounts.lock().await.remove(name) {
            fs.unmount().await.ok();
        }
    }

    /// Unmounts all. Nothing is mounted any more afterwards.
    pub async fn end(&self) {
        // Held until the end, so that nobody mounts one anew meanwhile.
        let mut mounts = self.0.mounts.lock().await;
        for fs in std::mem::take(&mut *mounts).into_values() {
            fs.unmount().await.ok();
        }
    }

    /// What the monitors answer; every error is one.
    async fn mon(&self, command: Value) -> R<String> {
        let asked = self.0.cluster.mon_command(&command.to_string(), bytes::Bytes::new()).await?;
        match asked {
            (r, rs, _) if r < 0 => Err(No(-r, rs)),
            (_, _, out) => Ok(String::from_utf8_lossy(&out).into_owned()),
        }
    }

    async fn mon_json(&self, command: Value) -> R<Value> {
        let text = self.mon(command).await?;
        serde_json::from_str(&text).map_err(|err| No(EINVAL, err.to_string()))
    }

    /// `ip:port` of each monitor, of messenger v1 where it has one.
    async fn mon_addrs(&self) -> R<Value> {
        let map = self.mon_json(json!({"prefix": "mon dump", "format": "json"})).await?;
        let of = |mon: &Value| {
            let all = mon["public_addrs"]["addrvec"].as_array()?;
            let v1 = all.iter().find(|a| a["type"] == "v1").or(all.first())?;
            Some(v1["addr"].clone())
        };
        Ok(map["mons"].as_array().into_iter().flatten().filter_map(of).collect())
    }
}

/// EINVAL for what is no name of a directory; a new one is no more than what shells and URLs take.
fn check_name(name: &str, is_new: bool) -> R<()> {
    let bad = name.chars().find(|c| *c == '/' || c.is_control());
    let strange = |c: char| !(c.is_ascii_alphanumeric() || "-_.".contains(c));
    let bad = bad.or_else(|| name.chars().find(|c| is_new && strange(*c)));
    if let Some(c) = bad {
        return no(EINVAL, format!("invalid chars {c} in {name}"));
    }
    match name {
        "." | ".." | ".snap" => no(EINVAL, format!("'{name}' is no name")),
        _ if name.len() > NAME_MAX => no(EINVAL, "the name is longer than 255 bytes"),
        _ => Ok(()),
    }
}

/// Names as lists of them are printed.
pub(crate) fn name_list(names: Vec<String>) -> Answer {
    if names.is_empty() {
        return Answer::out("[]".to_owned());
    }
    let all: Value = names.into_iter().map(|name| json!({"name": name})).collect();
    Answer::out(crate::python(&all))
}

/// A value as the peer prints it: keys sorted.
pub(crate) fn sorted(map: Map<String, Value>) -> Answer {
    let all: BTreeMap<String, Value> = map.into_iter().collect();
    Answer::out(crate::python(&json!(all)))
}

pub(crate) fn done() -> R<Answer> {
    Ok(Answer::default())
}

/// `2026-11-28 23:01:29`, of UTC.
pub(crate) fn date(t: UTime) -> String {
    let (days, secs) = (i64::from(t.sec) / 86_400, t.sec % 86_400);
    // Years of 365.2425 days that begin in March.
    let z = days + 719_468;
    let era = z / 146_097;
    let doe = z - era * 146_097;
    let yoe = (doe - doe / 1460 + doe / 36_524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let day = doy - (153 * mp + 2) / 5 + 1;
    let month = if mp < 10 { mp + 3 } else { mp - 9 };
    let year = yoe + era * 400 + i64::from(month <= 2);
    let (h, m, s) = (secs / 3600, secs / 60 % 60, secs % 60);
    format!("{year:04}-{month:02}-{day:02} {h:02}:{m:02}:{s:02}")
}

/// Bytes of files below a directory.
pub(crate) fn used(stat: &Stat) -> u64 {
    u64::try_from(stat.dir.rbytes).unwrap_or(0)
}

/// Usage by a directory's limit: bytes, limit, part.
pub(crate) fn usage(used: u64, quota: u64) -> (Value, Value) {
    match quota {
        0 => (json!("infinite"), json!("undefined")),
        q => (json!(q), json!(format!("{:.2}", used as f64 * 100.0 / q as f64))),
    }
}

/// What `new_size` of a resize says: bytes, or 0 for no limit.
pub(crate) fn new_size(text: &str) -> R<u64> {
    if matches!(text, "inf" | "infinite") {
        return Ok(0);
    }
    match text.parse::<i64>() {
        Ok(n) if n > 0 => Ok(n as u64),
        Ok(_) => no(EINVAL, "Invalid subvolume size"),
        Err(_) => no(EINVAL, format!("invalid size option '{text}'")),
    }
}

/// An octal mode.
pub(crate) fn mode(text: Option<&str>, default: u32) -> R<u32> {
    let Some(text) = text.filter(|t| !t.is_empty()) else { return Ok(default) };
    match u32::from_str_radix(text, 8) {
        Ok(mode) if mode <= 0o7777 => Ok(mode),
        _ => no(EINVAL, format!("Invalid mode '{text}'")),
    }
}

/// The limit of a directory and of what is below it, changed; what `resize` prints.
pub(crate) async fn resize(vol: &Vol, path: &str, size: u64, no_shrink: bool) -> R<Answer> {
    let stat = vol.fs.stat(path).await?;
    let used = used(&stat);
    if no_shrink && size > 0 && used > size {
        let why = format!(
            "Can't resize the subvolume. The new size '{size}' would be lesser than the current used size '{used}'"
        );
        return no(EINVAL, why);
    }
    vol.fs.set_xattr(path, "ceph.quota.max_bytes", size.to_string().as_bytes(), None).await?;
    vol.fs.sync().await?;
    let (_, part) = usage(used, size);
    let all = json!([{"bytes_used": used}, {"bytes_quota": size}, {"bytes_pcent": part}]);
    Ok(Answer::out(crate::python(&all)))
}

/// Binds a directory to ranks.
pub(crate) async fn pin(vol: &Vol, path: &str, args: &Args) -> R<Answer> {
    let (kind, value) = (args.need_str("pin_type")?, args.need_str("pin_setting")?);
    let name = match kind {
        "export" => "ceph.dir.pin",
        "distributed" => "ceph.dir.pin.distributed",
        "random" => "ceph.dir.pin.random",
        _ => return no(EINVAL, format!("{kind} not in export|distributed|random")),
    };
    vol.fs.set_xattr(path, name, value.as_bytes(), None).await?;
    Ok(Answer::out("{}".to_owned()))
}

/// Names of entries that are directories, in the server's order.
pub(crate) async fn dirs(vol: &Vol, path: &str) -> R<Vec<String>> {
    let mut dir = match vol.fs.open_dir(path).await {
        Err(err) if err.errno() == ENOENT => return Ok(Vec::new()),
        dir => dir?,
    };
    let mut names = Vec::new();
    loop {
        let page = dir.page().await?;
        if page.is_empty() {
            return Ok(names);
        }
        let dirs = page.into_iter().filter(|e| fs::is_dir(&e.inode));
        names.extend(dirs.map(|e| String::from_utf8_lossy(&e.name).into_owned()));
    }
}

/// Whether a pool is one of a file system's for files.
pub(crate) fn check_pool(vol: &Vol, pool: &str) -> R<()> {
    let map = vol.fs.cluster().map();
    let id = map.pool_by_name(pool);
    let pools = vol.fs.map().map(|m| m.data_pools).unwrap_or_default();
    match id.is_some_and(|id| pools.contains(&id)) {
        true => Ok(()),
        false => no(EINVAL, format!("invalid pool layout '{pool}'--need a valid data pool")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_as_the_peer_prints_them() {
        let at = |sec| date(UTime { sec, nsec: 0 });
        assert_eq!(at(0), "1970-01-01 00:00:00");
        assert_eq!(at(951_782_400), "2000-02-29 00:00:00");
        assert_eq!(at(1_795_906_879), "2026-11-28 23:01:19");
    }

    #[test]
    fn sizes_and_modes() {
        assert_eq!(new_size("inf").unwrap(), 0);
        assert_eq!(new_size("7").unwrap(), 7);
        assert_eq!(new_size("-5").unwrap_err().1, "Invalid subvolume size");
        assert_eq!(new_size("abc").unwrap_err().1, "invalid size option 'abc'");
        assert_eq!(mode(Some("750"), 0).unwrap(), 0o750);
        assert_eq!(mode(Some("99"), 0).unwrap_err().1, "Invalid mode '99'");
        assert!(check_name("a/b", false).is_err() && check_name("..", false).is_err());
        assert!(check_name("a b", true).is_err() && check_name("a b", false).is_ok());
    }
}
