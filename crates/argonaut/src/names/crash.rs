//! `ceph-crash`: brings what daemons left in the crash directory to the cluster.
//!
//! A crash is a directory with `meta` (JSON) and, once it is whole, `done`; what was brought moves to
//! `posted`.
//!
//! Source: upstream's `ceph-crash.in`.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use bytes::Bytes;
use conf::key;
use rados::Cluster;
use types::EntityName;

use super::flags::{Own, with_value};
use super::setup::{self, Kind};
use super::{Done, Failed};
use crate::say::Why;

const FLAGS: &[Own] = &[
    with_value(&["--path", "-p"]),
    with_value(&["--delay", "-d"]),
    with_value(&["--log-level", "-l"]),
];

const KIND: Kind = Kind {
    entity: "client",
    id: "",
    defaults: &[],
    flags: FLAGS,
    usage: "usage: ceph-crash [flags]
  -p, --path DIR       where crashes are (/var/lib/ceph/crash)
  -d, --delay MINUTES  between two looks (10); 0 ends after one

",
};

/// Bytes of a report.
const META_BYTES_MAX: u64 = 1 << 20;
/// Minutes between two looks.
const DELAY: u64 = 10;

/// `ceph-crash`.
pub fn run(args: &[String]) -> Done {
    let Some(ready) = setup::ready(&KIND, args)? else { return Ok(0) };
    if let Some(word) = ready.given.rest.first() {
        return Err(Failed::said(format!("ceph-crash: error: unrecognized arguments: {word}")));
    }
    let dir = PathBuf::from(ready.given.value("--path").unwrap_or("/var/lib/ceph/crash"));
    let delay = ready.given.value("--delay").map(str::parse::<u64>);
    let delay = match delay.transpose() {
        Ok(delay) => delay.unwrap_or(DELAY),
        Err(_) => return Err(Failed::Said("ceph-crash: error: --delay wants minutes".into(), 2)),
    };
    fs::create_dir_all(dir.join("posted")).with_context(|| dir.display().to_string())?;
    let names = match (&ready.given.name, &ready.given.id) {
        (None, None) => {
            let host = daemon::hostname();
            vec![format!("client.crash.{host}"), "client.crash".into(), "client.admin".into()]
        }
        _ => vec![ready.config.expand("$name")],
    };
    setup::become_daemon(&ready.config)?;
    rt::run_local(async {
        loop {
            for crash in waiting(&dir) {
                match post(&ready.config, &names, &crash).await {
                    Ok(()) => tell!("posted {}", crash.display()),
                    Err(why) => tell!("ceph-crash: {}: {}", crash.display(), Why(&why)),
                }
            }
            if delay == 0 {
                return Ok::<u8, Failed>(0);
            }
            let pause = tokio::time::sleep(Duration::from_secs(delay.saturating_mul(60)));
            tokio::select! {
                () = pause => {}
                told = rt::told_to_stop() => {
                    told?;
                    return Ok(0);
                }
            }
        }
    })?
}

/// Crashes that are whole and were not brought yet, by name.
fn waiting(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut all: Vec<PathBuf> =
        entries.filter(|path| path.join("meta").is_file() && path.join("done").exists()).collect();
    all.sort();
    all
}

/// Brings one by the first of the names that has a key and may.
async fn post(config: &conf::Config, names: &[String], crash: &Path) -> Result<()> {
    let meta = crash.join("meta");
    if fs::metadata(&meta)?.len() > META_BYTES_MAX {
        anyhow::bail!("more than {META_BYTES_MAX} bytes are no report");
    }
    let report = Bytes::from(fs::read(&meta)?);
    let mut last = None;
    for name in names {
        match post_as(config, name, report.clone()).await {
            Ok(()) => {
                let posted = crash.parent().unwrap_or(crash).join("posted");
                let name = crash.file_name().unwrap_or_default();
                return Ok(fs::rename(crash, posted.join(name))?);
            }
            Err(why) => last = Some(why.context(name.clone())),
        }
    }
    Err(last.unwrap_or_else(|| anyhow::anyhow!("nobody to bring it")))
}

async fn post_as(config: &conf::Config, name: &str, report: Bytes) -> Result<()> {
    let name: EntityName = name.parse().map_err(anyhow::Error::msg)?;
    // The keyring option names this entity's file.
    let file = conf::ConfFile::default();
    let mut own = conf::Config::new(&file, name.kind.name(), &name.id, "", std::process::id())
        .with_cluster(config.cluster());
    for (option, value, source) in config.overridden() {
        if source != conf::Source::Default && option != key::KEYRING.name() {
            own.set(conf::Source::File, &option, &value).ok();
        }
    }
    if let Some((keyring, source)) = config.raw(key::KEYRING.name())
        && source != conf::Source::Default
    {
        own.set(conf::Source::File, key::KEYRING.name(), keyring).map_err(anyhow::Error::msg)?;
    }
    let cluster = Cluster::connect(rados::Config::from_options(&own, &name)?).await?;
    let (r, rs, _) = cluster.mon_command(r#"{"prefix":"crash post"}"#, report).await?;
    match r {
        0.. => Ok(()),
        _ => anyhow::bail!("crash post: {rs}: {}", std::io::Error::from_raw_os_error(-r)),
    }
}
