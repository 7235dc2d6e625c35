//! Groups of subvolumes: directories below `/volumes`.

use cli::Args;
use fs::{SetAttr, Stat};
use serde_json::{Map, Value, json};

use super::{
    BASE, EINVAL, ENOENT, ENOSYS, ENOTEMPTY, EPERM, NO_GROUP, R, Vol, Volumes, check_pool, date,
    dirs, done, mode, name_list, new_size, no, pin, resize, sorted, usage, used,
};
use crate::Answer;

/// Directories below `/volumes` that are no groups.
const INTERNAL: [&str; 3] = ["_deleting", "_index", "_legacy"];

/// Where a group is.
pub(super) fn path(group: &str) -> String {
    format!("{BASE}/{}", if group.is_empty() { NO_GROUP } else { group })
}

/// Where a group is, if it is there; the group of those without one always is.
pub(super) async fn find(vol: &Vol, group: &str) -> R<String> {
    check(group)?;
    let path = path(group);
    if group.is_empty() {
        return Ok(path);
    }
    match vol.fs.stat(&path).await {
        Ok(stat) if fs::is_dir(&stat) => Ok(path),
        Err(err) if err.errno() != ENOENT => Err(err.into()),
        _ => no(ENOENT, format!("subvolume group '{group}' does not exist")),
    }
}

fn check(group: &str) -> R<()> {
    if group == NO_GROUP {
        let why =
            format!("Operation not permitted for group '{NO_GROUP}' as it is an internal group.");
        return no(EPERM, why);
    }
    if INTERNAL.contains(&group) {
        let why = format!("'{group}' is an internal directory and not a valid group name.");
        return no(EINVAL, why);
    }
    Ok(())
}

/// What groups and subvolumes say of themselves alike.
pub(super) async fn attributes(
    volumes: &Volumes,
    vol: &Vol,
    path: &str,
    stat: &Stat,
) -> R<Map<String, Value>> {
    let used = used(stat);
    let quota = u64::try_from(stat.dir.quota.max_bytes).unwrap_or(0);
    let (quota, part) = usage(used, quota);
    let text = |b: bytes::Bytes| String::from_utf8_lossy(&b).into_owned();
    let pool = match vol.fs.get_xattr(path, "ceph.dir.layout.pool").await {
        Ok(pool) => text(pool),
        Err(_) => default_pool(vol),
    };
    let charmap = vol.fs.get_xattr(path, "ceph.dir.normalization").await.map(text).ok();
    let sensitive = vol.fs.get_xattr(path, "ceph.dir.casesensitive").await.map(text).ok();
    let Value::Object(map) = json!({
        "atime": date(stat.times.atime),
        "bytes_pcent": part,
        "bytes_quota": quota,
        "bytes_used": used,
        "casesensitive": sensitive.is_none_or(|s| s != "0"),
        "created_at": date(stat.times.btime),
        "ctime": date(stat.times.ctime),
        "data_pool": pool,
        "gid": stat.gid,
        "mode": stat.mode,
        "mon_addrs": volumes.mon_addrs().await?,
        "mtime": date(stat.times.mtime),
        "normalization": charmap.filter(|c| !c.is_empty()).unwrap_or_else(|| "none".to_owned()),
        "uid": stat.uid,
    }) else {
        unreachable!("it is an object")
    };
    Ok(map)
}

/// The pool of files whose directories say nothing.
pub(super) fn default_pool(vol: &Vol) -> String {
    let pool = vol.fs.map().and_then(|m| m.data_pools.first().copied());
    pool.and_then(|p| vol.fs.cluster().map().pool_names.get(&p).cloned()).unwrap_or_default()
}

/// Sets how names in a new directory are compared, where that is asked for.
pub(super) async fn set_charmap(vol: &Vol, path: &str, args: &Args) -> R<()> {
    if let Some(how) = args.str("normalization")? {
        vol.fs.set_xattr(path, "ceph.dir.normalization", how.as_bytes(), None).await?;
    }
    if args.has("casesensitive") {
        let is = if args.flag("casesensitive") { b"1" } else { b"0" };
        vol.fs.set_xattr(path, "ceph.dir.casesensitive", is, None).await?;
    }
    Ok(())
}

impl Volumes {
    pub(super) async fn group_command(&self, vol: &Vol, words: &[&str], args: &Args) -> R<Answer> {
        if let ["ls"] | ["exist"] = words {
            let mut all = dirs(vol, BASE).await?;
            all.retain(|name| name != NO_GROUP && !INTERNAL.contains(&name.as_str()));
            return Ok(match (words, all.is_empty()) {
                (["ls"], _) => name_list(all),
                (_, true) => Answer::out("no subvolumegroup exists".to_owned()),
                (_, false) => Answer::out("subvolumegroup exists".to_owned()),
            });
        }
        let group = args.need_str("group_name")?.to_owned();
        match words {
            ["create"] => self.group_create(vol, &group, args).await,
            ["rm"] => {
                match find(vol, &group).await {
                    Err(no) if no.0 == ENOENT && args.flag("force") => return done(),
                    found => found?,
                };
                match vol.fs.rmdir(path(&group)).await {
                    Err(err) if err.errno() == ENOTEMPTY => {
                        let why = format!(
                            "subvolume group {group} contains subvolume(s) or retained snapshots of deleted subvolume(s)"
                        );
                        no(ENOTEMPTY, why)
                    }
                    Err(err) if err.errno() != ENOENT => Err(err.into()),
                    _ => done(),
                }
            }
            ["info"] => {
                let path = find(vol, &group).await?;
                let stat = vol.fs.stat(&path).await?;
                Ok(sorted(attributes(self, vol, &path, &stat).await?))
            }
            ["getpath"] => Ok(Answer::out(find(vol, &group).await?)),
            ["resize"] => {
                let path = find(vol, &group).await?;
                let size = new_size(args.need_str("new_size")?)?;
                resize(vol, &path, size, args.flag("no_shrink")).await
            }
            ["pin"] => pin(vol, &find(vol, &group).await?, args).await,
            ["snapshot", "ls"] => {
                let path = find(vol, &group).await?;
                let mut all = dirs(vol, &format!("{path}/.snap")).await?;
                all.retain(|name| !name.starts_with('_'));
                Ok(name_list(all))
            }
            ["snapshot", "create"] => no(ENOSYS, "subvolume group snapshots are not supported"),
            ["snapshot", "rm"] => {
                let (path, snap) = (find(vol, &group).await?, args.need_str("snap_name")?);
                match vol.fs.rmdir(format!("{path}/.snap/{snap}")).await {
                    Err(err) if err.errno() == ENOENT && args.flag("force") => done(),
                    Err(err) if err.errno() == ENOENT => {
                        no(ENOENT, format!("snapshot '{snap}' does not exist"))
                    }
                    removed => {
                        removed?;
                        done()
                    }
                }
            }
            _ => no(crate::EOPNOTSUPP, "not built"),
        }
    }

    async fn group_create(&self, vol: &Vol, group: &str, args: &Args) -> R<Answer> {
        check(group)?;
        let path = path(group);
        let bits = mode(args.str("mode")?, 0o755)?;
        if let Some(pool) = args.str("pool_layout")? {
            check_pool(vol, pool)?;
        }
        let is_new = !vol.fs.exists(&path).await?;
        vol.fs.mkdir_all(BASE, 0o755).await?;
        if is_new {
            vol.fs.mkdir(&path, bits).await?;
        }
        let set = async {
            let id = |name: &str| args.int(name).map(|n| n.and_then(|n| u32::try_from(n).ok()));
            let (uid, gid) = (id("uid")?, id("gid")?);
            let has_mode = is_new || args.has("mode");
            let attrs = SetAttr { mode: has_mode.then_some(bits), uid, gid, ..SetAttr::default() };
            vol.fs.set_attr(&path, attrs).await?;
            if let Some(size) = args.int("size")?.filter(|n| *n > 0) {
                let size = size.to_string();
                vol.fs.set_xattr(&path, "ceph.quota.max_bytes", size.as_bytes(), None).await?;
            }
            if let Some(pool) = args.str("pool_layout")? {
                vol.fs.set_xattr(&path, "ceph.dir.layout.pool", pool.as_bytes(), None).await?;
            }
            set_charmap(vol, &path, args).await?;
            R::Ok(vol.fs.sync().await?)
        };
        if let Err(why) = set.await {
            if is_new {
                vol.fs.rmdir(&path).await.ok();
            }
            return Err(why);
        }
        done()
    }
}
