//! Keys that may mount a subvolume: their caps, and what is kept of them.
//!
//! A key's file is marked `dirty` before its caps change and not any more after: a mark that stays says
//! that a manager ended in between, and the command is to be given again.

use bytes::Bytes;
use cli::Args;
use rados::Cluster;
use serde_json::{Map, Value, json};
use types::EntityKind;

use super::meta::BYTES_MAX;
use super::subvolume::Sub;
use super::{BASE, EINVAL, ENOENT, EPERM, R, Vol, Volumes, check_name, done, group, no};
use crate::Answer;

const VERSION: u32 = 6;

pub(super) fn of_sub(sub: &Sub) -> String {
    format!("{BASE}/_{}:{}.meta", sub.group, sub.name)
}

fn of_id(id: &str) -> String {
    format!("{BASE}/${id}.meta")
}

/// A subvolume's name in a key's file.
fn key_of(sub: &Sub) -> String {
    let group = if sub.group.is_empty() { "None" } else { &sub.group };
    format!("{group}/{}", sub.name)
}

async fn load(vol: &Vol, path: &str) -> R<Option<Map<String, Value>>> {
    match vol.fs.read_file(path, BYTES_MAX).await {
        Ok(text) => match serde_json::from_slice(&text) {
            Ok(Value::Object(map)) => Ok(Some(map)),
            // Stock makes it empty before it is used.
            _ if text.is_empty() => Ok(None),
            _ => no(EINVAL, format!("{path} holds no words about keys")),
        },
        Err(err) if err.errno() == ENOENT => Ok(None),
        Err(err) => Err(err.into()),
    }
}

async fn store(vol: &Vol, path: &str, map: &Map<String, Value>) -> R<()> {
    let text = Value::Object(map.clone()).to_string();
    Ok(vol.fs.write_file(path, text.as_bytes(), 0o755).await?)
}

fn entry<'a>(map: &'a mut Map<String, Value>, name: &str) -> &'a mut Map<String, Value> {
    let slot = map.entry(name).or_insert_with(|| json!({}));
    if !slot.is_object() {
        *slot = json!({});
    }
    slot.as_object_mut().expect("just made one")
}

/// Caps without some grants, and with one.
fn merged(old: &str, without: &[String], with: Option<&str>) -> String {
    let grants = old.split(',').map(str::trim).filter(|g| !g.is_empty());
    let mut all: Vec<&str> = grants.filter(|g| !without.iter().any(|w| w == g)).collect();
    if let Some(with) = with.filter(|w| !all.contains(w)) {
        all.push(with);
    }
    all.join(", ")
}

/// The grants that a subvolume takes, for a level of access: of metadata servers, of OSDs.
async fn grants(vol: &Vol, sub: &Sub, level: &str) -> (String, String) {
    let text = |b: bytes::Bytes| String::from_utf8_lossy(&b).into_owned();
    let pool = vol.fs.get_xattr(sub.path(), "ceph.dir.layout.pool").await.map(text);
    let pool = pool.unwrap_or_else(|_| group::default_pool(vol));
    let ns = vol.fs.get_xattr(sub.path(), "ceph.dir.layout.pool_namespace").await.map(text);
    let ns = ns.ok().filter(|ns| !ns.is_empty()).map(|ns| format!(" namespace={ns}"));
    let osd = format!("allow {level} pool={pool}{}", ns.unwrap_or_default());
    (format!("allow {level} path={}", sub.path()), osd)
}

impl Volumes {
    /// A key's secret and caps; none where there is no such key.
    async fn key(&self, id: &str) -> R<Option<Value>> {
        let ask = json!({"prefix": "auth get", "entity": format!("client.{id}"), "format": "json"});
        match self.mon_json(ask).await {
            Ok(all) => Ok(all.get(0).cloned()),
            Err(why) if why.0 == ENOENT => Ok(None),
            Err(why) => Err(why),
        }
    }

    async fn set_caps(&self, id: &str, mds: &str, osd: &str, mon: &str) -> R<()> {
        let caps: Vec<&str> = [("mds", mds), ("osd", osd), ("mon", mon)]
            .into_iter()
            .filter(|(_, cap)| !cap.is_empty())
            .flat_map(|(service, cap)| [service, cap])
            .collect();
        let entity = format!("client.{id}");
        let prefix = if self.key(id).await?.is_some() { "auth caps" } else { "auth get-or-create" };
        self.mon(json!({"prefix": prefix, "entity": entity, "caps": caps})).await.map(drop)
    }

    pub(super) async fn authorize(&self, vol: &Vol, sub: &Sub, args: &Args) -> R<Answer> {
        let id = args.need_str("auth_id")?;
        let id = id.strip_prefix("client.").unwrap_or(id);
        check_name(id, false)?;
        let level = args.str("access_level")?.unwrap_or("rw");
        if id.is_empty() || !matches!(level, "r" | "rw") {
            return no(EINVAL, "the access level is r or rw");
        }
        let tenant = args.str("tenant_id")?.filter(|t| !t.is_empty());
        let key = self.key(id).await?;
        let known = load(vol, &of_id(id)).await?;
        if known.is_none() && key.is_some() && !args.flag("allow_existing_id") {
            let why = format!(
                "auth ID: {id} exists and not created by mgr plugin. Not allowed to modify"
            );
            return no(EPERM, why);
        }
        let mut mine = known.unwrap_or_else(|| {
            let fresh = json!({
                "dirty": true, "tenant_id": tenant, "subvolumes": {},
                "compat_version": VERSION, "version": VERSION,
            });
            fresh.as_object().cloned().unwrap_or_default()
        });
        if mine.get("tenant_id").and_then(Value::as_str) != tenant {
            return no(EPERM, format!("auth ID: {id} is already in use"));
        }
        let state = |dirty: bool| json!({"access_level": level, "dirty": dirty});
        mine.insert("dirty".into(), json!(true));
        entry(&mut mine, "subvolumes").insert(key_of(sub), state(true));
        store(vol, &of_id(id), &mine).await?;
        let cap = |service: &str| {
            let caps = key.as_ref().and_then(|k| k["caps"][service].as_str());
            caps.unwrap_or_default().to_owned()
        };
        let (mds, osd) = grants(vol, sub, level).await;
        let (old_mds, old_osd) = grants(vol, sub, if level == "r" { "rw" } else { "r" }).await;
        let mon = if cap("mon").is_empty() { "allow r".to_owned() } else { cap("mon") };
        let mds = merged(&cap("mds"), &[old_mds], Some(&mds));
        let osd = merged(&cap("osd"), &[old_osd], Some(&osd));
        self.set_caps(id, &mds, &osd, &mon).await?;
        let mut theirs = load(vol, &of_sub(sub)).await?.unwrap_or_default();
        entry(&mut theirs, "auths").insert(id.to_owned(), state(false));
        theirs.insert("compat_version".into(), json!(1));
        theirs.insert("version".into(), json!(VERSION));
        store(vol, &of_sub(sub), &theirs).await?;
        mine.insert("dirty".into(), json!(false));
        entry(&mut mine, "subvolumes").insert(key_of(sub), state(false));
        store(vol, &of_id(id), &mine).await?;
        // Manila alone, which names a tenant, is given the secret.
        let Some(key) = self.key(id).await?.filter(|_| tenant.is_some()) else { return done() };
        Ok(Answer::out(key["key"].as_str().unwrap_or_default().to_owned()))
    }

    pub(super) async fn deauthorize(&self, vol: &Vol, sub: &Sub, args: &Args) -> R<Answer> {
        let id = args.need_str("auth_id")?;
        let id = id.strip_prefix("client.").unwrap_or(id);
        check_name(id, false)?;
        let Some(mut mine) = load(vol, &of_id(id)).await? else {
            return no(ENOENT, format!("auth ID: {id} doesn't exist"));
        };
        if !entry(&mut mine, "subvolumes").contains_key(&key_of(sub)) {
            return done();
        }
        mine.insert("dirty".into(), json!(true));
        store(vol, &of_id(id), &mine).await?;
        if let Some(key) = self.key(id).await? {
            let cap = |service: &str| key["caps"][service].as_str().unwrap_or_default().to_owned();
            let (r, rw) = (grants(vol, sub, "r").await, grants(vol, sub, "rw").await);
            let mds = merged(&cap("mds"), &[r.0, rw.0], None);
            let osd = merged(&cap("osd"), &[r.1, rw.1], None);
            match mds.is_empty() {
                true => {
                    let entity = format!("client.{id}");
                    self.mon(json!({"prefix": "auth rm", "entity": entity})).await?;
                }
                false => self.set_caps(id, &mds, &osd, &cap("mon")).await?,
            }
        }
        if let Some(mut theirs) = load(vol, &of_sub(sub)).await? {
            entry(&mut theirs, "auths").remove(id);
            store(vol, &of_sub(sub), &theirs).await?;
        }
        let subs = entry(&mut mine, "subvolumes");
        subs.remove(&key_of(sub));
        if subs.is_empty() {
            vol.fs.unlink(of_id(id)).await?;
        } else {
            mine.insert("dirty".into(), json!(false));
            store(vol, &of_id(id), &mine).await?;
        }
        done()
    }

    /// Ends a key's mounts of a subvolume at every rank.
    pub(super) async fn evict(&self, vol: &Vol, sub: &Sub, args: &Args) -> R<Answer> {
        let id = args.need_str("auth_id")?;
        let id = id.strip_prefix("client.").unwrap_or(id);
        check_name(id, false)?;
        let filters = [format!("auth_name={id}"), format!("client_metadata.root={}", sub.path())];
        let ask = json!({"prefix": "client evict", "filters": filters}).to_string();
        let map = vol.fs.map().unwrap_or_default();
        // A client of its own: a server takes a second connection of the mount for the mount's.
        let config = self.0.config.clone();
        let teller = Cluster::connect_beside(config, &[EntityKind::MDS], |_| {}, |_| {}).await?;
        for (rank, gid) in &map.up {
            let Some(info) = map.mds_info.get(gid) else { continue };
            let told =
                teller.daemon_command(info.addrs.clone(), EntityKind::MDS, &ask, Bytes::new());
            let (r, rs, _) = told.await?;
            if r < 0 {
                return no(-r, format!("rank {rank}: {rs}"));
            }
        }
        done()
    }

    pub(super) async fn authorized(&self, vol: &Vol, sub: &Sub) -> R<Answer> {
        let mut theirs = load(vol, &of_sub(sub)).await?.unwrap_or_default();
        let auths = entry(&mut theirs, "auths");
        let all: Vec<Value> = auths.iter().map(|(id, a)| json!({id: a["access_level"]})).collect();
        Ok(Answer::out(match all.is_empty() {
            true => "[]".to_owned(),
            false => crate::python(&json!(all)),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grants_are_added_once_and_replaced() {
        let r = "allow r path=/a".to_owned();
        assert_eq!(merged("", &[], Some("allow rw path=/a")), "allow rw path=/a");
        assert_eq!(
            merged(
                "allow r path=/a, allow rw path=/b",
                std::slice::from_ref(&r),
                Some("allow rw path=/a")
            ),
            "allow rw path=/b, allow rw path=/a"
        );
        assert_eq!(merged("allow rw path=/b", &[r], Some("allow rw path=/b")), "allow rw path=/b");
    }
}
