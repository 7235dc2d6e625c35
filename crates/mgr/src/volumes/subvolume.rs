//! Subvolumes: made, described, limited, removed.

use cli::Args;
use env::Random;
use fs::SetAttr;
use md5::{Digest, Md5};
use serde_json::{Map, Value, json};
use types::Uuid;

use super::group::{self, attributes, set_charmap};
use super::meta::{self, GLOBAL, Meta, SOURCE, USER};
use super::{
    BASE, EAGAIN, EEXIST, EINVAL, ENOENT, ENOTEMPTY, NO_GROUP, R, Vol, Volumes, check_pool, dirs,
    done, mode, name_list, new_size, no, pin, resize, sorted,
};
use crate::Answer;

pub(super) const COMPLETE: &str = "complete";
pub(super) const RETAINED: &str = "snapshot-retained";
const EARMARK: &str = "user.ceph.subvolume.earmark";

/// A subvolume.
#[derive(Clone, Debug)]
pub(super) struct Sub {
    pub name: String,
    /// Empty for none.
    pub group: String,
    /// The directory of all that it has.
    pub base: String,
    pub meta: Meta,
    /// From before version 1: its words are elsewhere, or nowhere.
    is_legacy: bool,
}

pub(super) fn uuid() -> String {
    let mut raw = [0; 16];
    rt::OsRandom.fill(&mut raw);
    raw[6] = raw[6] & 0x0f | 0x40;
    raw[8] = raw[8] & 0x3f | 0x80;
    Uuid(raw).to_string()
}

impl Sub {
    pub fn state(&self) -> &str {
        self.meta.get(GLOBAL, "state").unwrap_or(COMPLETE)
    }

    /// What is mounted of it; empty where only snapshots are left.
    pub fn path(&self) -> &str {
        self.meta.get(GLOBAL, "path").unwrap_or_default()
    }

    pub fn kind(&self) -> &str {
        self.meta.get(GLOBAL, "type").unwrap_or("subvolume")
    }

    pub fn is_v2(&self) -> bool {
        self.meta.get(GLOBAL, "version") == Some("2")
    }

    /// The directory that its snapshots are of.
    pub fn snapped(&self) -> &str {
        if self.is_v2() { &self.base } else { self.path() }
    }

    /// A snapshot's directory.
    pub fn snap(&self, name: &str) -> String {
        format!("{}/.snap/{name}", self.snapped())
    }

    fn meta_path(&self) -> String {
        match self.is_legacy {
            false => format!("{}/.meta", self.base),
            true => legacy_path(&self.base),
        }
    }

    /// Keeps its words; durable when it returns.
    pub async fn save(&self, vol: &Vol) -> R<()> {
        let at = self.meta_path();
        if self.is_legacy {
            vol.fs.mkdir_all(format!("{BASE}/_legacy"), 0o755).await?;
        }
        let new = format!("{at}.tmp");
        vol.fs.write_file(&new, self.meta.text().as_bytes(), 0o640).await?;
        vol.fs.rename(&new, &at).await?;
        Ok(vol.fs.sync().await?)
    }

    /// EAGAIN, ENOENT where its state does not allow an operation.
    pub fn may(&self, op: &str) -> R<()> {
        let retained_may = ["create", "rm", "rm-force", "info", "clone-status", "clone-create"];
        match self.state() {
            COMPLETE => Ok(()),
            RETAINED if retained_may.contains(&op) || op.starts_with("snapshot-") => Ok(()),
            RETAINED => {
                let why = format!(
                    "subvolume \"{}\" is removed and has only snapshots retained",
                    self.name
                );
                no(ENOENT, why)
            }
            "failed" | "canceled" if matches!(op, "rm-force" | "clone-status" | "clone-cancel") => {
                Ok(())
            }
            _ if matches!(op, "clone-status" | "clone-cancel") => Ok(()),
            "pending" | "in-progress" if op == "rm-force" => {
                no(EAGAIN, "clone in-progress -- please cancel the clone and retry")
            }
            _ => {
                let why =
                    format!("subvolume \"{}\" is not ready for operation \"{op}\"", self.name);
                no(EAGAIN, why)
            }
        }
    }

    /// Its snapshots' names.
    pub async fn snapshots(&self, vol: &Vol) -> R<Vec<String>> {
        if self.snapped().is_empty() {
            return Ok(Vec::new());
        }
        let mut all = dirs(vol, &format!("{}/.snap", self.snapped())).await?;
        // Those of directories above.
        all.retain(|name| !name.starts_with('_'));
        Ok(all)
    }
}

fn legacy_path(base: &str) -> String {
    let sum = Md5::digest(base.as_bytes());
    let hex: String = sum.iter().map(|b| format!("{b:02x}")).collect();
    format!("{BASE}/_legacy/{hex}.meta")
}

/// A subvolume that is there, and may be worked on so.
pub(super) async fn find(vol: &Vol, group: &str, name: &str, op: &str) -> R<Sub> {
    let base = format!("{}/{name}", group::find(vol, group).await?);
    let gone = || no(ENOENT, format!("subvolume '{name}' does not exist"));
    match vol.fs.lstat(&base).await {
        Ok(stat) if fs::is_dir(&stat) => {}
        Ok(_) => return gone(),
        Err(err) if err.errno() == ENOENT => return gone(),
        Err(err) => return Err(err.into()),
    }
    let mut sub = Sub {
        name: name.to_owned(),
        group: group.to_owned(),
        base: base.clone(),
        meta: Meta::default(),
        is_legacy: false,
    };
    let mut text = read(vol, &sub.meta_path()).await?;
    if text.is_none() {
        sub.is_legacy = true;
        text = read(vol, &sub.meta_path()).await?;
    }
    match text {
        Some(text) => sub.meta = Meta::parse(&text),
        None => {
            // As the first releases made them: the directory is the subvolume.
            for (key, value) in [("version", "1"), ("type", "subvolume"), ("state", COMPLETE)] {
                sub.meta.set(GLOBAL, key, value);
            }
            sub.meta.set(GLOBAL, "path", &base);
        }
    }
    sub.may(op)?;
    Ok(sub)
}

async fn read(vol: &Vol, path: &str) -> R<Option<String>> {
    match vol.fs.read_file(path, meta::BYTES_MAX).await {
        Ok(text) => Ok(Some(String::from_utf8_lossy(&text).into_owned())),
        Err(err) if err.errno() == ENOENT => Ok(None),
        Err(err) => Err(err.into()),
    }
}

/// What a new subvolume is like.
#[derive(Clone, Debug, Default)]
pub(super) struct Shape {
    pub mode: u32,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub size: u64,
    pub pool: Option<String>,
    pub isolated: bool,
}

/// Makes the directories of a subvolume, or of one whose snapshots alone are left; its words are in
/// `meta` but the path, and kept.
pub(super) async fn make(
    vol: &Vol,
    group: &str,
    name: &str,
    shape: &Shape,
    mut meta: Meta,
) -> R<Sub> {
    let at = group::find(vol, group).await?;
    vol.fs.mkdir_all(&at, 0o755).await?;
    let base = format!("{at}/{name}");
    let path = format!("{base}/{}", uuid());
    let is_new = !vol.fs.exists(&base).await?;
    meta.set(GLOBAL, "path", &path);
    let sub = Sub {
        name: name.to_owned(),
        group: group.to_owned(),
        base: base.clone(),
        meta,
        is_legacy: false,
    };
    let made = async {
        if is_new {
            vol.fs.mkdir(&base, shape.mode).await?;
            vol.fs.set_xattr(&base, "ceph.dir.subvolume", b"1", None).await?;
        }
        vol.fs.mkdir(&path, shape.mode).await?;
        let (uid, gid) = (shape.uid, shape.gid);
        let attrs = SetAttr { mode: Some(shape.mode), uid, gid, ..SetAttr::default() };
        vol.fs.set_attr(&path, attrs).await?;
        if shape.size > 0 {
            let size = shape.size.to_string();
            vol.fs.set_xattr(&path, "ceph.quota.max_bytes", size.as_bytes(), None).await?;
        }
        if let Some(pool) = &shape.pool {
            vol.fs.set_xattr(&path, "ceph.dir.layout.pool", pool.as_bytes(), None).await?;
        }
        if shape.isolated {
            let group = if group.is_empty() { NO_GROUP } else { group };
            let ns = format!("fsvolumens__{group}_{name}");
            let attr = "ceph.dir.layout.pool_namespace";
            vol.fs.set_xattr(&path, attr, ns.as_bytes(), None).await?;
        }
        sub.save(vol).await
    };
    if let Err(why) = made.await {
        let what = if is_new { &base } else { &path };
        vol.fs.remove_tree(what, || true).await.ok();
        return Err(why);
    }
    Ok(sub)
}

fn id(args: &Args, name: &str) -> R<Option<u32>> {
    match args.int(name)? {
        None => Ok(None),
        Some(n) => match u32::try_from(n) {
            Ok(n) => Ok(Some(n)),
            Err(_) => no(EINVAL, format!("{name} {n} is no id")),
        },
    }
}

impl Volumes {
    pub(super) async fn subvolume_command(
        &self,
        vol: &Vol,
        words: &[&str],
        args: &Args,
    ) -> R<Answer> {
        let group = args.str_or_empty("group_name")?.to_owned();
        if let ["ls"] | ["exist"] = words {
            let all = dirs(vol, &group::find(vol, &group).await?).await?;
            return Ok(match (words, all.is_empty()) {
                (["ls"], _) => name_list(all),
                (_, true) => Answer::out("no subvolume exists".to_owned()),
                (_, false) => Answer::out("subvolume exists".to_owned()),
            });
        }
        let name = args.need_str("sub_name")?.to_owned();
        let get = |op: &'static str| find(vol, &group, &name, op);
        match words {
            ["create"] => self.create(vol, &group, &name, args).await,
            ["rm"] => self.remove(vol, &group, &name, args).await,
            ["info"] => self.info(vol, &get("info").await?).await,
            ["getpath"] => Ok(Answer::out(get("getpath").await?.path().to_owned())),
            ["resize"] => {
                let sub = get("resize").await?;
                let size = new_size(args.need_str("new_size")?)?;
                resize(vol, sub.path(), size, args.flag("no_shrink")).await
            }
            ["pin"] => pin(vol, get("pin").await?.path(), args).await,
            ["metadata", verb] => {
                let mut sub = get("user-metadata").await?;
                self.words(vol, &mut sub, verb, USER, "subvolume metadata does not exist", args)
                    .await
            }
            ["earmark", verb] => {
                let sub = get("earmark").await?;
                let path = sub.path();
                match *verb {
                    "set" => {
                        let value = args.need_str("earmark")?;
                        vol.fs.set_xattr(path, EARMARK, value.as_bytes(), None).await?;
                        vol.fs.sync().await?;
                        done()
                    }
                    "get" => Ok(Answer::out(earmark(vol, path).await)),
                    _ => {
                        vol.fs.set_xattr(path, EARMARK, b"", None).await?;
                        done()
                    }
                }
            }
            ["authorize"] => self.authorize(vol, &get("allow-access").await?, args).await,
            ["deauthorize"] => self.deauthorize(vol, &get("deny-access").await?, args).await,
            ["authorized_list"] => self.authorized(vol, &get("auth-list").await?).await,
            ["evict"] => self.evict(vol, &get("evict").await?, args).await,
            _ => no(crate::EOPNOTSUPP, format!("{}: not built", args.prefix())),
        }
    }

    /// Words that users keep with a subvolume or a snapshot.
    pub(super) async fn words(
        &self,
        vol: &Vol,
        sub: &mut Sub,
        verb: &str,
        section: &str,
        none: &str,
        args: &Args,
    ) -> R<Answer> {
        if verb == "ls" {
            let all: Map<String, Value> =
                sub.meta.section(section).iter().map(|(k, v)| (k.clone(), json!(v))).collect();
            return Ok(match all.is_empty() {
                true => Answer::out("{}".to_owned()),
                false => Answer::out(crate::python(&Value::Object(all))),
            });
        }
        let key = args.need_str("key_name")?;
        let missing = || no(ENOENT, format!("key '{key}' does not exist."));
        match verb {
            "get" => match sub.meta.get(section, key) {
                Some(value) => Ok(Answer::out(value.to_owned())),
                None => missing(),
            },
            "set" => {
                let value = args.need_str("value")?;
                if !meta::is_key(key) {
                    return no(
                        EINVAL,
                        format!("'{key}' cannot be a key: no = : [ ] and no blanks at its ends"),
                    );
                }
                sub.meta.set(section, key, value);
                if sub.meta.text().len() as u64 > meta::BYTES_MAX {
                    return no(7, "too much is kept with the subvolume");
                }
                sub.save(vol).await?;
                done()
            }
            _ if sub.meta.section(section).is_empty() && !args.flag("force") => no(ENOENT, none),
            _ => match sub.meta.remove(section, key) {
                true => {
                    sub.save(vol).await?;
                    done()
                }
                false if args.flag("force") => done(),
                false => missing(),
            },
        }
    }

    async fn create(&self, vol: &Vol, group: &str, name: &str, args: &Args) -> R<Answer> {
        let pool = args.str("pool_layout")?.filter(|p| !p.is_empty()).map(str::to_owned);
        let size = args.int("size")?;
        if size.is_some_and(|n| n < 0) {
            return no(EINVAL, "Invalid subvolume size");
        }
        let mut shape = Shape {
            mode: mode(args.str("mode")?, 0o755)?,
            uid: id(args, "uid")?,
            gid: id(args, "gid")?,
            size: size.unwrap_or(0) as u64,
            pool,
            isolated: args.flag("namespace_isolated"),
        };
        if let Some(pool) = &shape.pool {
            check_pool(vol, pool)?;
        }
        let meta = match find(vol, group, name, "create").await {
            Ok(sub) if sub.state() == RETAINED => {
                if !dirs(vol, &format!("{}/.trash", sub.base)).await?.is_empty() {
                    return no(EAGAIN, "asynchronous purge of subvolume in progress");
                }
                sub.meta
            }
            Ok(sub) => {
                // What is said of one that is there changes it.
                let attrs = SetAttr {
                    mode: args.has("mode").then_some(shape.mode),
                    uid: shape.uid,
                    gid: shape.gid,
                    ..SetAttr::default()
                };
                if attrs != SetAttr::default() {
                    vol.fs.set_attr(sub.path(), attrs).await?;
                }
                if size.is_some() {
                    let size = shape.size.to_string();
                    let attr = "ceph.quota.max_bytes";
                    vol.fs.set_xattr(sub.path(), attr, size.as_bytes(), None).await?;
                }
                vol.fs.sync().await?;
                return done();
            }
            Err(why) if why.0 == ENOENT && group::find(vol, group).await.is_ok() => Meta::default(),
            Err(why) => return Err(why),
        };
        let mut meta = meta;
        for (key, value) in
            [("version", "2"), ("type", "subvolume"), ("path", ""), ("state", COMPLETE)]
        {
            meta.set(GLOBAL, key, value);
        }
        meta.remove_section(SOURCE);
        if shape.uid.is_none() {
            (shape.uid, shape.gid) = (Some(0), shape.gid.or(Some(0)));
        }
        let sub = make(vol, group, name, &shape, meta).await?;
        if let Some(mark) = args.str("earmark")?.filter(|m| !m.is_empty()) {
            vol.fs.set_xattr(sub.path(), EARMARK, mark.as_bytes(), None).await?;
        }
        set_charmap(vol, sub.path(), args).await?;
        vol.fs.sync().await?;
        done()
    }

    async fn info(&self, vol: &Vol, sub: &Sub) -> R<Answer> {
        let features: &[&str] = match sub.is_v2() {
            true => &["snapshot-clone", "snapshot-autoprotect", "snapshot-retention"],
            false => &["snapshot-clone", "snapshot-autoprotect"],
        };
        let mut map = match sub.state() {
            RETAINED => [("mon_addrs".to_owned(), self.mon_addrs().await?)].into_iter().collect(),
            _ => {
                let stat = vol.fs.stat(sub.path()).await?;
                let mut map = attributes(self, vol, sub.path(), &stat).await?;
                let ns = vol.fs.get_xattr(sub.path(), "ceph.dir.layout.pool_namespace").await;
                let ns = ns.unwrap_or_default();
                map.insert("pool_namespace".into(), json!(String::from_utf8_lossy(&ns)));
                map.insert("path".into(), json!(sub.path()));
                map.insert("earmark".into(), json!(earmark(vol, sub.path()).await));
                map
            }
        };
        map.insert("features".into(), json!(features));
        map.insert("flavor".into(), json!(if sub.is_v2() { 2 } else { 1 }));
        map.insert("state".into(), json!(sub.state()));
        map.insert("type".into(), json!(sub.kind()));
        if sub.kind() == "clone" && sub.state() != RETAINED {
            let of = |key: &str| sub.meta.get(SOURCE, key).unwrap_or(NO_GROUP);
            map.insert(
                "source".into(),
                json!({
                    "group": of("group"), "snapshot": of("snapshot"),
                    "subvolume": of("subvolume"), "volume": of("volume"),
                }),
            );
        }
        Ok(sorted(map))
    }

    async fn remove(&self, vol: &Vol, group: &str, name: &str, args: &Args) -> R<Answer> {
        let force = args.flag("force");
        let op = if force { "rm-force" } else { "rm" };
        let mut sub = match find(vol, group, name, op).await {
            Err(why) if why.0 == ENOENT && force => return done(),
            sub => sub?,
        };
        let has_snaps = !sub.snapshots(vol).await?.is_empty();
        if !has_snaps {
            self.drop_sub(vol, &sub).await?;
            return done();
        }
        if !args.flag("retain_snapshots") || !sub.is_v2() {
            return no(ENOTEMPTY, format!("subvolume '{name}' has snapshots"));
        }
        if sub.state() == RETAINED {
            return done();
        }
        let old = sub.path().to_owned();
        let id = old.rsplit('/').next().unwrap_or_default().to_owned();
        let trash = format!("{}/.trash", sub.base);
        vol.fs.mkdir_all(&trash, 0o700).await?;
        vol.fs.mkdir_all(super::trash::DIR, 0o755).await?;
        sub.meta.set(GLOBAL, "path", "");
        sub.meta.set(GLOBAL, "state", RETAINED);
        sub.save(vol).await?;
        let at = format!("{trash}/{id}");
        vol.fs.rename(&old, &at).await?;
        match vol.fs.symlink(&at, format!("{}/{id}", super::trash::DIR)).await {
            Err(err) if err.errno() != EEXIST => return Err(err.into()),
            _ => {}
        }
        vol.fs.sync().await?;
        self.0.work.notify_one();
        done()
    }

    /// Removes all of a subvolume without snapshots: by one rename, the rest later.
    pub(super) async fn drop_sub(&self, vol: &Vol, sub: &Sub) -> R<()> {
        vol.fs.mkdir_all(super::trash::DIR, 0o755).await?;
        vol.fs.rename(&sub.base, format!("{}/{}", super::trash::DIR, uuid())).await?;
        for path in [legacy_path(&sub.base), super::auth::of_sub(sub)] {
            match vol.fs.unlink(path).await {
                Err(err) if err.errno() != ENOENT => return Err(err.into()),
                _ => {}
            }
        }
        vol.fs.sync().await?;
        self.0.work.notify_one();
        Ok(())
    }
}

async fn earmark(vol: &Vol, path: &str) -> String {
    let value = vol.fs.get_xattr(path, EARMARK).await.unwrap_or_default();
    String::from_utf8_lossy(&value).into_owned()
}
