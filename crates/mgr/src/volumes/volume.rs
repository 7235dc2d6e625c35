//! File systems with pools of their own.

use cli::Args;
use serde_json::{Map, Value, json};

use super::{BASE, EINVAL, ENOENT, EPERM, NO_GROUP, R, Volumes, dirs, no, sorted, used};
use crate::Answer;

/// `11.3G`, ` 849k`, ` 262 `: five places. The peer's `format_bytes(n, 4)`.
fn human(n: u64) -> String {
    const UNITS: [&str; 7] = [" ", "k", "M", "G", "T", "P", "E"];
    let (mut x, mut unit) = (n as f64, 0);
    while x >= 1000.0 && unit + 1 < UNITS.len() {
        x /= 1024.0;
        unit += 1;
    }
    let whole = x as u64;
    let digits = match (unit, whole) {
        (0, _) | (_, 100..) => format!("{whole:>4}"),
        (_, 10..) => format!("{x:.1}"),
        _ => format!("{x:.2}"),
    };
    format!("{digits}{}", UNITS[unit])
}

fn shown(n: u64, is_human: bool) -> Value {
    if is_human { json!(human(n)) } else { json!(n) }
}

/// Names of a file system's pools: of metadata, of data.
struct Pools {
    meta: String,
    data: Vec<String>,
    is_offline: bool,
}

impl Volumes {
    async fn pools(&self, volume: &str) -> R<Pools> {
        let all = self.mon_json(json!({"prefix": "fs ls", "format": "json"})).await?;
        let found = all.as_array().and_then(|all| all.iter().find(|f| f["name"] == volume));
        let Some(found) = found else { return no(ENOENT, format!("FS '{volume}' not found")) };
        let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
        let data = found["data_pools"].as_array().into_iter().flatten().map(text).collect();
        let map =
            self.mon_json(json!({"prefix": "fs get", "fs_name": volume, "format": "json"})).await?;
        let is_offline = map["mdsmap"]["flags_state"]["joinable"] == json!(false);
        Ok(Pools { meta: text(&found["metadata_pool"]), data, is_offline })
    }

    pub(super) async fn volume_command(&self, verb: &str, volume: &str, args: &Args) -> R<Answer> {
        match verb {
            "create" => self.volume_create(args).await,
            "info" => self.volume_info(volume, args.flag("human_readable")).await,
            "rm" => {
                let sure = args.str("yes-i-really-mean-it")?.unwrap_or_default();
                if !sure.ends_with("yes-i-really-mean-it") {
                    let why = format!(
                        "WARNING: this will *PERMANENTLY DESTROY* all data stored in the filesystem '{volume}'. If you are *ABSOLUTELY CERTAIN* that is what you want, re-issue the command followed by --yes-i-really-mean-it."
                    );
                    return no(EPERM, why);
                }
                self.volume_rm(volume).await
            }
            "rename" => {
                let to = args.need_str("new_vol_name")?;
                if !args.flag("yes_i_really_mean_it") {
                    let why = "WARNING: This will rename the filesystem and possibly its pools. It is a potentially disruptive operation, clients' cephx credentials need reauthorized to access the file system and its pools with the new name. Add --yes-i-really-mean-it if you are sure you wish to continue.";
                    return no(EPERM, why);
                }
                self.volume_rename(volume, to).await
            }
            _ => no(crate::EOPNOTSUPP, format!("{}: not built", args.prefix())),
        }
    }

    async fn volume_create(&self, args: &Args) -> R<Answer> {
        let name = args.need_str("name")?;
        super::check_name(name, true)?;
        let (meta, data) = (args.str("meta_pool")?, args.str("data_pool")?);
        if meta.is_some() != data.is_some() {
            return no(EINVAL, "--meta-pool and --data-pool are given together, or neither");
        }
        if args.str("placement")?.is_some_and(|p| !p.is_empty()) {
            let why = "no orchestrator places metadata servers: 'argonaut mds -i NAME' starts one";
            return no(EINVAL, why);
        }
        let own = [format!("cephfs.{name}.meta"), format!("cephfs.{name}.data")];
        let [meta, data] = match (meta, data) {
            (Some(meta), Some(data)) => [meta.to_owned(), data.to_owned()],
            _ => {
                for (pool, bulk) in [(&own[0], false), (&own[1], true)] {
                    let ask = json!({"prefix": "osd pool create", "pool": pool, "bulk": bulk});
                    self.mon(ask).await?;
                }
                own
            }
        };
        let ask = json!({"prefix": "fs new", "fs_name": name, "metadata": meta, "data": data});
        self.mon(ask).await?;
        let rs = "Volume created successfully (no MDS daemons created)".to_owned();
        Ok(Answer { rs, ..Answer::default() })
    }

    async fn volume_rm(&self, volume: &str) -> R<Answer> {
        let ask = json!({"prefix": "config get", "who": "mon", "key": "mon_allow_pool_delete"});
        if self.mon(ask).await?.trim() != "true" {
            let why = "pool deletion is disabled; you must first set the mon_allow_pool_delete config option to true before volumes can be deleted";
            return no(EPERM, why);
        }
        let pools = self.pools(volume).await?;
        self.forget(volume).await;
        let sure = true;
        self.mon(json!({"prefix": "fs fail", "fs_name": volume, "yes_i_really_mean_it": sure}))
            .await?;
        self.mon(json!({"prefix": "fs rm", "fs_name": volume, "yes_i_really_mean_it": sure}))
            .await?;
        for pool in pools.data.iter().chain([&pools.meta]) {
            let ask = json!({
                "prefix": "osd pool rm", "pool": pool, "pool2": pool,
                "yes_i_really_really_mean_it": true,
            });
            self.mon(ask).await?;
        }
        let data: Vec<String> = pools.data.iter().map(|p| format!("'{p}'")).collect();
        let out =
            format!("metadata pool: {} data pool: [{}] removed.\n", pools.meta, data.join(", "));
        Ok(Answer::out(out))
    }

    async fn volume_rename(&self, from: &str, to: &str) -> R<Answer> {
        super::check_name(to, true)?;
        let pools = self.pools(from).await?;
        if !pools.is_offline {
            let why = format!(
                "Failed to rename file system '{from}' to '{to}'; CephFS '{from}' is not offline. Before renaming a CephFS, it must be marked as down. See `ceph fs fail`."
            );
            return no(EPERM, why);
        }
        self.forget(from).await;
        self.mon(json!({
            "prefix": "fs rename", "fs_name": from, "new_fs_name": to,
            "yes_i_really_mean_it": true,
        }))
        .await?;
        // Pools that have another name stay.
        for (kind, pool) in [("meta", Some(&pools.meta)), ("data", pools.data.first())] {
            let old = format!("cephfs.{from}.{kind}");
            if pool == Some(&old) {
                let new = format!("cephfs.{to}.{kind}");
                let ask = json!({"prefix": "osd pool rename", "srcpool": old, "destpool": new});
                self.mon(ask).await?;
            }
        }
        Ok(Answer::default())
    }

    async fn volume_info(&self, volume: &str, is_human: bool) -> R<Answer> {
        let pools = self.pools(volume).await?;
        let df = self.mon_json(json!({"prefix": "df", "format": "json"})).await?;
        let of = |name: &String| {
            let all = df["pools"].as_array().into_iter().flatten();
            let stats = all.clone().find(|p| p["name"] == **name).map(|p| &p["stats"]);
            let get = |key: &str| stats.and_then(|s| s[key].as_u64()).unwrap_or(0);
            json!({
                "avail": shown(get("max_avail"), is_human),
                "name": name,
                "used": shown(get("bytes_used"), is_human),
            })
        };
        let data: Vec<Value> = pools.data.iter().map(of).collect();
        let mut map = Map::new();
        map.insert("mon_addrs".into(), self.mon_addrs().await?);
        map.insert("pools".into(), json!({"data": data, "metadata": [of(&pools.meta)]}));
        let served = self.names().await?.iter().any(|name| name == volume);
        if served
            && let Ok(vol) = self.mount(volume).await
            && let Ok(stat) = vol.fs.stat(BASE).await
        {
            let groups = dirs(&vol, BASE).await?;
            let has_any = groups.iter().any(|g| g == NO_GROUP || !g.starts_with('_'));
            if has_any {
                let pending = vol.fs.read_dir(super::trash::DIR).await.map_or(0, |all| all.len());
                map.insert("pending_subvolume_deletions".into(), json!(pending));
                map.insert("used_size".into(), shown(used(&stat), is_human));
            }
        }
        Ok(sorted(map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_as_the_peer_prints_them() {
        for (n, text) in
            [(262, " 262 "), (16_384, "16.0k"), (869_779, " 849k"), (12_211_755_008, "11.4G")]
        {
            assert_eq!(human(n), text);
        }
    }
}
