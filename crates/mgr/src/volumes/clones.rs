//! Clones: subvolumes that are copied from a snapshot, a few at a time, also after another manager
//! took over: what is under way stands in `/volumes/_index/clone`.

use std::cell::Cell;
use std::rc::Rc;

use cli::Args;
use fs::Copied;
use serde::Serialize;
use serde_json::{Value, json};

use super::meta::{CLONES, FAILURE, GLOBAL, Meta, SOURCE};
use super::subvolume::{COMPLETE, Shape, Sub, find, make, uuid};
use super::{
    BASE, EAGAIN, EEXIST, EINVAL, ENOENT, EOPNOTSUPP, NO_GROUP, No, R, Vol, Volumes, check_pool,
    done, group, no, snapshot,
};
use crate::Answer;

const INDEX: &str = "/volumes/_index/clone";
/// So many are copied at once: `max_concurrent_clones`. More are refused, as with
/// `snapshot_clone_no_wait`.
const AT_ONCE: usize = 4;
const ECANCELED: i32 = 125;

/// A copy under way.
#[derive(Clone, Default)]
pub(super) struct Copy {
    cancel: Rc<Cell<bool>>,
    copied: Rc<Cell<Copied>>,
    /// Bytes and files of the source.
    all: Rc<Cell<(u64, u64)>>,
}

/// `/volumes/G/N`: a subvolume's group, empty for none, and name.
fn parse(target: &str) -> Option<(String, String)> {
    let (group, name) = target.strip_prefix(BASE)?.strip_prefix('/')?.split_once('/')?;
    let bad = |n: &str| n.is_empty() || n.contains('/') || n.starts_with("..");
    if bad(group) || bad(name) {
        return None;
    }
    let group = if group == NO_GROUP { "" } else { group };
    Some((group.to_owned(), name.to_owned()))
}

fn human(n: u64) -> String {
    const UNITS: [&str; 6] = ["", "K", "M", "G", "T", "P"];
    let mut x = n as f64;
    let mut unit = 0;
    while x >= 1024.0 && unit + 1 < UNITS.len() {
        x /= 1024.0;
        unit += 1;
    }
    if unit == 0 { n.to_string() } else { format!("{x:.1}{}", UNITS[unit]) }
}

impl Volumes {
    /// The subvolume that an entry of the index is about.
    pub(super) async fn target_of(&self, vol: &Vol, id: &str) -> Option<(String, String)> {
        let target = vol.fs.read_link(format!("{INDEX}/{id}")).await.ok()?;
        parse(&String::from_utf8_lossy(&target))
    }

    pub(super) async fn clone_create(
        &self,
        vol: &Vol,
        source: &Sub,
        snap: &str,
        args: &Args,
    ) -> R<Answer> {
        let (group, name) =
            (args.str_or_empty("target_group_name")?, args.need_str("target_sub_name")?);
        snapshot::check(vol, source, snap).await?;
        let at = snapshot::data(vol, source, snap).await?;
        if self.0.copies.borrow().keys().filter(|(v, _)| *v == vol.name).count() >= AT_ONCE {
            return no(EAGAIN, "all cloner threads are busy, please try again later");
        }
        match find(vol, group, name, "clone-status").await {
            Ok(_) => return no(EEXIST, format!("subvolume '{name}' exists")),
            Err(why) if why.0 == ENOENT && why.1.starts_with("subvolume '") => {}
            Err(why) => return Err(why),
        }
        let pool = match args.str("pool_layout")?.filter(|p| !p.is_empty()) {
            Some(pool) => {
                check_pool(vol, pool)?;
                Some(pool.to_owned())
            }
            None => {
                let own = vol.fs.get_xattr(&at, "ceph.dir.layout.pool").await.ok();
                own.map(|pool| String::from_utf8_lossy(&pool).into_owned())
            }
        };
        let stat = vol.fs.stat(&at).await?;
        let mut meta = Meta::default();
        for (key, value) in
            [("version", "2"), ("type", "clone"), ("path", ""), ("state", "pending")]
        {
            meta.set(GLOBAL, key, value);
        }
        meta.set(SOURCE, "volume", &vol.name);
        if !source.group.is_empty() {
            meta.set(SOURCE, "group", &source.group);
        }
        meta.set(SOURCE, "subvolume", &source.name);
        meta.set(SOURCE, "snapshot", snap);
        let id = uuid();
        let mut source = source.clone();
        source.meta.set(CLONES, &id, snap);
        source.save(vol).await?;
        let shape = Shape {
            mode: stat.mode & 0o7777,
            uid: Some(stat.uid),
            gid: Some(stat.gid),
            pool,
            ..Shape::default()
        };
        let made = async {
            let target = make(vol, group, name, &shape, meta).await?;
            vol.fs.mkdir_all(INDEX, 0o755).await?;
            vol.fs.symlink(&target.base, format!("{INDEX}/{id}")).await?;
            R::Ok(vol.fs.sync().await?)
        };
        if let Err(why) = made.await {
            self.untrack(vol, &source.group, &source.name, &id).await.ok();
            return Err(why);
        }
        self.0.work.notify_one();
        done()
    }

    async fn untrack(&self, vol: &Vol, group: &str, name: &str, id: &str) -> R<()> {
        let mut source = find(vol, group, name, "snapshot-clone").await?;
        if source.meta.remove(CLONES, id) {
            source.save(vol).await?;
        }
        Ok(())
    }

    /// Begins copies that wait, the oldest first.
    pub(super) async fn look_for_clones(&self, vol: &Vol) {
        let Ok(mut all) = vol.fs.read_dir(INDEX).await else { return };
        all.sort_by_key(|e| e.inode.times.mtime);
        for entry in all {
            let id = String::from_utf8_lossy(&entry.name).into_owned();
            let key = (vol.name.clone(), id.clone());
            let copy = Copy::default();
            {
                let mut copies = self.0.copies.borrow_mut();
                if copies.contains_key(&key) {
                    continue;
                }
                if copies.keys().filter(|(v, _)| *v == vol.name).count() >= AT_ONCE {
                    return;
                }
                copies.insert(key.clone(), copy.clone());
            }
            let (this, vol) = (self.clone(), vol.clone());
            tokio::task::spawn_local(async move {
                if let Err(No(errno, why)) = this.copy(&vol, &id, &copy).await {
                    tracing::warn!("{}: clone {id}: {why} ({errno})", vol.name);
                }
                this.0.copies.borrow_mut().remove(&key);
                this.0.work.notify_one();
            });
        }
    }

    async fn copy(&self, vol: &Vol, id: &str, copy: &Copy) -> R<()> {
        let entry = format!("{INDEX}/{id}");
        let found = match self.target_of(vol, id).await {
            Some((group, name)) => find(vol, &group, &name, "clone-status").await,
            None => no(ENOENT, "it leads nowhere"),
        };
        let target = match found {
            Ok(target) => target,
            Err(why) if why.0 == ENOENT => {
                vol.fs.unlink(&entry).await?;
                return Ok(());
            }
            Err(why) => return Err(why),
        };
        let of = |key: &str| target.meta.get(SOURCE, key).unwrap_or_default().to_owned();
        let (group, name, snap) = (of("group"), of("subvolume"), of("snapshot"));
        if matches!(target.state(), "pending" | "in-progress") {
            let copied = self.fill(vol, &target, (&group, &name, &snap), copy).await;
            let _turn = self.0.turn.lock().await;
            let mut target = find(vol, &target.group, &target.name, "clone-status").await?;
            let state = match copied {
                Ok(()) => COMPLETE,
                Err(_) if copy.cancel.get() => "canceled",
                // Another client of this manager goes on.
                Err(No(108, why)) => return no(108, why),
                Err(No(errno, why)) => {
                    target.meta.set(FAILURE, "errno", &errno.to_string());
                    target.meta.set(FAILURE, "error_msg", &why);
                    "failed"
                }
            };
            target.meta.set(GLOBAL, "state", state);
            target.save(vol).await?;
        }
        let _turn = self.0.turn.lock().await;
        match self.untrack(vol, &group, &name, id).await {
            Err(why) if why.0 != ENOENT => return Err(why),
            _ => {}
        }
        vol.fs.unlink(&entry).await?;
        Ok(vol.fs.sync().await?)
    }

    async fn fill(
        &self,
        vol: &Vol,
        target: &Sub,
        (group, name, snap): (&str, &str, &str),
        copy: &Copy,
    ) -> R<()> {
        let source = find(vol, group, name, "snapshot-clone").await?;
        let from = snapshot::data(vol, &source, snap).await?;
        let stat = vol.fs.stat(&from).await?;
        copy.all.set((super::used(&stat), u64::try_from(stat.dir.rfiles).unwrap_or(0)));
        if target.state() == "pending" {
            let _turn = self.0.turn.lock().await;
            let mut target = find(vol, &target.group, &target.name, "clone-status").await?;
            if target.state() != "pending" {
                return no(ECANCELED, "it was cancelled");
            }
            target.meta.set(GLOBAL, "state", "in-progress");
            target.save(vol).await?;
        }
        let (cancel, copied) = (copy.cancel.clone(), copy.copied.clone());
        let go = move |so_far| {
            copied.set(so_far);
            !cancel.get()
        };
        vol.fs.copy_tree(&from, target.path(), go).await?;
        let attrs = fs::SetAttr {
            mode: Some(stat.mode & 0o7777),
            uid: Some(stat.uid),
            gid: Some(stat.gid),
            ..fs::SetAttr::default()
        };
        vol.fs.set_attr(target.path(), attrs).await?;
        if stat.dir.quota.max_bytes > 0 {
            let size = stat.dir.quota.max_bytes.to_string();
            let attr = "ceph.quota.max_bytes";
            vol.fs.set_xattr(target.path(), attr, size.as_bytes(), None).await?;
        }
        Ok(vol.fs.sync().await?)
    }

    pub(super) async fn clone_command(&self, vol: &Vol, words: &[&str], args: &Args) -> R<Answer> {
        let (group, name) = (args.str_or_empty("group_name")?, args.need_str("clone_name")?);
        group::find(vol, group).await?;
        let op = if words == ["status"] { "clone-status" } else { "clone-cancel" };
        let mut sub = find(vol, group, name, op).await?;
        if sub.kind() != "clone" {
            let why = format!(
                "operation '{op}' is not allowed on subvolume '{name}' of type {}",
                sub.kind()
            );
            return no(EOPNOTSUPP, why);
        }
        let id = self.id_of(vol, &sub).await;
        let copy = id.and_then(|id| self.0.copies.borrow().get(&(vol.name.clone(), id)).cloned());
        if op == "clone-status" {
            return Ok(status(&sub, copy.as_ref()));
        }
        if !matches!(sub.state(), "pending" | "in-progress") {
            return no(EINVAL, "cannot cancel -- clone finished (check clone status)");
        }
        if let Some(copy) = copy {
            copy.cancel.set(true);
        }
        sub.meta.set(GLOBAL, "state", "canceled");
        sub.save(vol).await?;
        self.0.work.notify_one();
        done()
    }

    /// A clone's entry in the index.
    async fn id_of(&self, vol: &Vol, sub: &Sub) -> Option<String> {
        let all = vol.fs.read_dir(INDEX).await.ok()?;
        let found = all.into_iter().find(|e| e.inode.symlink == sub.base.as_bytes())?;
        Some(String::from_utf8_lossy(&found.name).into_owned())
    }
}

fn status(sub: &Sub, copy: Option<&Copy>) -> Answer {
    let mut status = serde_json::Map::new();
    status.insert("state".into(), json!(sub.state()));
    if sub.state() != COMPLETE {
        let mut source = serde_json::Map::new();
        for key in ["volume", "subvolume", "snapshot", "group"] {
            if let Some(value) = sub.meta.get(SOURCE, key) {
                source.insert(key.into(), json!(value));
            }
        }
        status.insert("source".into(), Value::Object(source));
    }
    if let Some(copy) = copy.filter(|_| sub.state() == "in-progress") {
        let (copied, (bytes, files)) = (copy.copied.get(), copy.all.get());
        let part = (copied.bytes * 100).checked_div(bytes).unwrap_or(0).min(100);
        status.insert(
            "progress_report".into(),
            json!({
                "percentage cloned": format!("{part}%"),
                "amount cloned": format!("{}/{}", human(copied.bytes), human(bytes)),
                "files cloned": format!("{}/{files}", copied.files),
            }),
        );
    }
    if let (Some(errno), Some(why)) =
        (sub.meta.get(FAILURE, "errno"), sub.meta.get(FAILURE, "error_msg"))
    {
        status.insert("failure".into(), json!({"errno": errno, "error_msg": why}));
    }
    let mut text = Vec::new();
    let form = serde_json::ser::PrettyFormatter::with_indent(b"  ");
    let mut to = serde_json::Serializer::with_formatter(&mut text, form);
    json!({"status": status}).serialize(&mut to).expect("text into memory");
    Answer::out(String::from_utf8(text).expect("json is text"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_below_volumes() {
        let of = |group: &str, name: &str| Some((group.to_owned(), name.to_owned()));
        assert_eq!(parse("/volumes/_nogroup/c1"), of("", "c1"));
        assert_eq!(parse("/volumes/g/c1"), of("g", "c1"));
        for bad in
            ["/volumes/c1", "/etc/passwd", "/volumes/../x", "/volumes/g/a/b", "/volumesx/g/a"]
        {
            assert_eq!(parse(bad), None, "{bad}");
        }
        assert_eq!((human(172), human(3 << 19)), ("172".to_owned(), "1.5M".to_owned()));
    }
}
