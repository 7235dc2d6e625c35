//! A legitimate but limited client that costs or lies as much as it can, and an honest one
//! beside it. `cargo xtask hostile` runs them against a cluster and watches its daemons.
//!
//! ```text
//! hostile list                                    scenes: name, mon caps, osd caps, MiB
//! hostile play SCENE CONF ENTITY POOL SECS        one scene
//! hostile honest CONF ENTITY POOL SECS            "ENDED_S MICROSECONDS" per operation
//! ```
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program of tests")]

mod honest;
mod raw;
mod scenes;

use std::time::Duration;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// What every scene is given.
pub struct Setting {
    /// The cluster's ceph.conf.
    pub conf: std::path::PathBuf,
    /// As whom.
    pub entity: types::EntityName,
    /// The pool that the entity's caps name.
    pub pool: String,
    /// How long.
    pub time: Duration,
}

fn setting(words: &[String]) -> Result<Setting> {
    let [conf, entity, pool, secs] = words else {
        return Err("wanted: CONF ENTITY POOL SECS".into());
    };
    Ok(Setting {
        conf: conf.into(),
        entity: entity.parse()?,
        pool: pool.clone(),
        time: Duration::from_secs(secs.parse()?),
    })
}

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.first().map(String::as_str) {
        Some("list") => {
            for s in scenes::ALL {
                println!("{}\t{}\t{}\t{}\t{}", s.name, s.mon, s.osd, s.mgr, s.grows_mib);
            }
            Ok(())
        }
        Some("play") if words.len() == 6 => {
            let scene = scenes::ALL.iter().find(|s| s.name == words[1]).ok_or("no such scene")?;
            let setting = setting(&words[2..])?;
            let told = rt::run_local(scenes::play(scene, setting))??;
            println!("{told}");
            Ok(())
        }
        Some("honest") => {
            let setting = setting(&words[1..])?;
            rt::run_local(honest::run(setting))?
        }
        _ => Err("wanted: list, play or honest".into()),
    }
}
