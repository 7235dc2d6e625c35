//! `argonaut cls`: object classes as WebAssembly modules, for operators.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use clap::Subcommand;
use rados::Cluster;
use serde_json::{Value, json};
use types::OsdId;

use crate::client::{Connect, connect};

/// How long OSDs may take to follow.
const FOLLOW_MAX: Duration = Duration::from_secs(30);

/// `argonaut cls` verbs.
#[derive(Subcommand, Debug)]
pub enum ClsVerb {
    /// Take a module for a class; return when every OSD that is up has it.
    Put {
        /// The class.
        name: String,
        /// The module.
        file: PathBuf,
    },
    /// Write the module of a class into a file (- is standard output).
    Get {
        /// The class.
        name: String,
        /// The file.
        file: PathBuf,
    },
    /// List the modules with their methods.
    Ls,
    /// Remove the module of a class; return when every OSD that is up has let it go.
    Rm {
        /// The class.
        name: String,
    },
}

/// Runs one verb.
///
/// # Errors
/// What the cluster refused, or which OSDs did not follow.
pub fn run(how: &Connect, verb: &ClsVerb) -> Result<ExitCode> {
    rt::run_local(async {
        let cluster = connect(how).await?;
        match verb {
            ClsVerb::Put { name, file } => {
                let code = std::fs::read(file).with_context(|| file.display().to_string())?;
                let command = json!({ "prefix": "cls put", "name": name });
                tell!("{}", send(&cluster, &command, code.into()).await?.0);
                follow(&cluster).await?;
            }
            ClsVerb::Rm { name } => {
                let command = json!({ "prefix": "cls rm", "name": name });
                tell!("{}", send(&cluster, &command, Bytes::new()).await?.0);
                follow(&cluster).await?;
            }
            ClsVerb::Get { name, file } => {
                let command = json!({ "prefix": "cls get", "name": name });
                let (_, code) = send(&cluster, &command, Bytes::new()).await?;
                if file == Path::new("-") {
                    crate::say::out().write_all(&code)?;
                } else {
                    crate::target::output(file)?.write_all(&code)?;
                }
            }
            ClsVerb::Ls => {
                let command = json!({ "prefix": "cls ls" });
                let (_, text) = send(&cluster, &command, Bytes::new()).await?;
                crate::say::out().write_all(&text)?;
            }
        }
        Ok(ExitCode::SUCCESS)
    })?
}

async fn send(cluster: &Cluster, command: &Value, input: Bytes) -> Result<(String, Bytes)> {
    let (r, rs, out) = cluster.mon_command(&command.to_string(), input).await?;
    if r < 0 {
        bail!("{rs} ({})", std::io::Error::from_raw_os_error(-r));
    }
    Ok((rs, out))
}

/// Waits until all OSDs that are up know what the monitors know.
async fn follow(cluster: &Cluster) -> Result<()> {
    let command = json!({ "prefix": "cls ls", "format": "json" });
    let (_, state) = send(cluster, &command, Bytes::new()).await?;
    let state: Value = serde_json::from_slice(&state)?;
    let version = state["version"].as_u64().context("the monitors' version")?;
    let end = tokio::time::Instant::now() + FOLLOW_MAX;
    cluster.wait_for_latest_map().await?;
    let mut behind: Vec<OsdId> = (0..cluster.map().max_osd).map(OsdId).collect();
    loop {
        let mut still = Vec::new();
        let mut refused = Vec::new();
        for osd in behind {
            if !cluster.map().is_up(osd) {
                continue;
            }
            let ask = cluster.osd_command(osd, r#"{"prefix":"cls ls"}"#);
            let answer = match tokio::time::timeout(Duration::from_secs(5), ask).await {
                Ok(Ok((0, _, out))) => serde_json::from_slice::<Value>(&out).unwrap_or_default(),
                _ => Value::Null,
            };
            if answer["version"].as_u64().is_none_or(|v| v < version) {
                still.push(osd);
            } else if let Some(all) = answer["refused"].as_object() {
                refused.extend(all.iter().map(|(name, why)| format!("osd.{osd}: {name}: {why}")));
            }
        }
        if let Some(one) = refused.first() {
            bail!("not all OSDs can use it: {one}");
        }
        if still.is_empty() {
            return Ok(());
        }
        if tokio::time::Instant::now() > end {
            bail!("these OSDs have not followed yet, and will: {still:?}");
        }
        behind = still;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
