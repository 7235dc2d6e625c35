//! Snapshots of subvolumes.

use cli::Args;
use serde_json::{Map, Value, json};

use super::meta::{CLONES, of_snapshot};
use super::subvolume::{RETAINED, Sub, find};
use super::{EAGAIN, EEXIST, ENOENT, R, Vol, Volumes, date, dirs, done, group, name_list, no};
use crate::Answer;

/// ENOENT where a subvolume has no such snapshot.
pub(super) async fn check(vol: &Vol, sub: &Sub, snap: &str) -> R<fs::Stat> {
    if snap.starts_with('_') {
        return no(ENOENT, format!("snapshot '{snap}' does not exist"));
    }
    match vol.fs.stat(sub.snap(snap)).await {
        Err(err) if err.errno() == ENOENT => {
            no(ENOENT, format!("snapshot '{snap}' does not exist"))
        }
        stat => Ok(stat?),
    }
}

/// Where a snapshot's files are.
pub(super) async fn data(vol: &Vol, sub: &Sub, snap: &str) -> R<String> {
    let at = sub.snap(snap);
    if !sub.is_v2() {
        return Ok(at);
    }
    let id = sub.path().rsplit('/').next().unwrap_or_default();
    if !id.is_empty() && vol.fs.exists(format!("{at}/{id}")).await? {
        return Ok(format!("{at}/{id}"));
    }
    // Of an earlier incarnation of the subvolume.
    let found = dirs(vol, &at).await?.into_iter().find(|name| !name.starts_with('.'));
    match found {
        Some(id) => Ok(format!("{at}/{id}")),
        None => no(ENOENT, format!("snapshot '{snap}' has no files")),
    }
}

impl Volumes {
    pub(super) async fn snapshot_command(
        &self,
        vol: &Vol,
        words: &[&str],
        args: &Args,
    ) -> R<Answer> {
        let group = args.str_or_empty("group_name")?.to_owned();
        let name = args.need_str("sub_name")?.to_owned();
        let get = |op: &'static str| find(vol, &group, &name, op);
        if let ["ls"] = words {
            return Ok(name_list(get("snapshot-ls").await?.snapshots(vol).await?));
        }
        let snap = args.need_str("snap_name")?.to_owned();
        match words {
            ["create"] => {
                let sub = get("snapshot_create").await?;
                match vol.fs.mkdir(sub.snap(&snap), 0o755).await {
                    Err(err) if err.errno() != EEXIST => return Err(err.into()),
                    _ => {}
                }
                vol.fs.sync().await?;
                done()
            }
            ["rm"] => self.snapshot_rm(vol, &group, &name, &snap, args.flag("force")).await,
            ["info"] => {
                let sub = get("snapshot-info").await?;
                let stat = check(vol, &sub, &snap).await?;
                let at = stat.times.snap_btime;
                let id = |(_, s): &&(String, String)| *s == snap;
                let clones: Vec<_> = sub.meta.section(CLONES).iter().filter(id).collect();
                let mut map = Map::new();
                let pool = vol.fs.get_xattr(data(vol, &sub, &snap).await?, "ceph.dir.layout.pool");
                let pool = match pool.await {
                    Ok(pool) => String::from_utf8_lossy(&pool).into_owned(),
                    Err(_) => group::default_pool(vol),
                };
                map.insert(
                    "created_at".into(),
                    json!(format!("{}.{:06}", date(at), at.nsec / 1000)),
                );
                map.insert("data_pool".into(), json!(pool));
                let has = if clones.is_empty() { "no" } else { "yes" };
                map.insert("has_pending_clones".into(), json!(has));
                if !clones.is_empty() {
                    let mut named: Vec<Value> = Vec::new();
                    let mut orphans = 0;
                    for (id, _) in &clones {
                        match self.target_of(vol, id).await {
                            Some((group, name)) if group.is_empty() => {
                                named.push(json!({"name": name}));
                            }
                            Some((group, name)) => {
                                named.push(json!({"name": name, "target_group": group}));
                            }
                            None => orphans += 1,
                        }
                    }
                    map.insert("pending_clones".into(), json!(named));
                    if orphans > 0 {
                        map.insert("orphan_clones_count".into(), json!(orphans));
                    }
                }
                Ok(super::sorted(map))
            }
            ["getpath"] => {
                let sub = get("snapshot-getpath").await?;
                check(vol, &sub, &snap).await?;
                Ok(Answer::out(data(vol, &sub, &snap).await?))
            }
            [verb @ ("protect" | "unprotect")] => {
                check(vol, &get("snapshot-protect").await?, &snap).await?;
                let rs = format!(
                    "Deprecation warning: 'snapshot {verb}' call is deprecated and will be removed in a future release"
                );
                Ok(Answer { rs, ..Answer::default() })
            }
            ["clone"] => self.clone_create(vol, &get("snapshot-clone").await?, &snap, args).await,
            ["metadata", verb] => {
                let mut sub = get("snapshot-metadata").await?;
                check(vol, &sub, &snap).await?;
                let none = "snapshot metadata does not exist";
                self.words(vol, &mut sub, verb, &of_snapshot(&snap), none, args).await
            }
            _ => no(crate::EOPNOTSUPP, format!("{}: not built", args.prefix())),
        }
    }

    async fn snapshot_rm(
        &self,
        vol: &Vol,
        group: &str,
        name: &str,
        snap: &str,
        force: bool,
    ) -> R<Answer> {
        let mut sub = match find(vol, group, name, "snapshot-rm").await {
            Err(why) if why.0 == ENOENT && force => return done(),
            sub => sub?,
        };
        if sub.meta.section(CLONES).iter().any(|(_, s)| s == snap) {
            return no(EAGAIN, format!("snapshot '{snap}' has pending clones"));
        }
        match check(vol, &sub, snap).await {
            Err(why) if why.0 == ENOENT && force => return done(),
            stat => stat?,
        };
        vol.fs.rmdir(sub.snap(snap)).await?;
        if !sub.meta.section(&of_snapshot(snap)).is_empty() {
            sub.meta.remove_section(&of_snapshot(snap));
            sub.save(vol).await?;
        }
        if sub.state() == RETAINED && sub.snapshots(vol).await?.is_empty() {
            // Nothing is left that kept it.
            self.drop_sub(vol, &sub).await?;
        }
        vol.fs.sync().await?;
        done()
    }
}
