//! `argonaut osd new`: a new OSD of a cluster that runs, on a device or a file.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use auth::{CryptoKey, KeyKind, Keyring};
use bytes::Bytes;
use env::Random;
use rt::OsRandom;
use types::{EntityKind, EntityName, UTime, Uuid};

use crate::mon_daemon::write_secret;
use crate::target::Target;
use crate::{client, daemon, osd_mkfs};

/// Has the cluster give it a number and know its key (`osd new`), and makes its data: a
/// store on `device`, or on a file in the data directory. By `force` what `device` holds is overwritten. It is started by
/// `argonaut osd -i ID`. Gives the number.
///
/// # Errors
/// When the cluster does not answer, or the data cannot be made; then the number is given
/// back.
pub fn new(how: &client::Connect, device: Option<&Path>, force: bool) -> Result<u32> {
    if let Some(device) = device {
        fs::metadata(device).with_context(|| device.display().to_string())?;
        Target::inspect(device, force)?; // before the cluster gives a number for it
    }
    let mut raw = [0; 16];
    OsRandom.fill(&mut raw);
    let uuid = Uuid::from_random(raw);
    let now = UTime::from_nanos(rt::now().wall_ns);
    let key = CryptoKey::generate(KeyKind::AES, now, &mut OsRandom);
    let ask = |words: serde_json::Value, input: String| -> Result<Bytes> {
        let (r, rs, out) = rt::run_local(async {
            let cluster = client::connect(how).await?;
            anyhow::Ok(cluster.mon_command(&words.to_string(), Bytes::from(input)).await?)
        })??;
        if r < 0 {
            bail!("{}: {rs}: {}", words["prefix"], std::io::Error::from_raw_os_error(-r));
        }
        Ok(out)
    };
    let secret = serde_json::json!({"cephx_secret": key.to_base64()}).to_string();
    let words = serde_json::json!({"prefix": "osd new", "uuid": uuid.to_string()});
    let out = ask(words, secret)?;
    let text = String::from_utf8_lossy(&out);
    let id: u32 = text.trim().parse().with_context(|| format!("osd new said {text:?}"))?;
    let made = make(&how.conf, id, uuid, key, device, force);
    if let Err(err) = &made {
        tell!("{err:#}; osd.{id} is given back");
        let words = serde_json::json!({"prefix": "osd purge", "id": id,
            "yes_i_really_mean_it": true});
        ask(words, String::new())?;
    }
    made.map(|()| id)
}

fn make(
    conf: &Path,
    id: u32,
    uuid: Uuid,
    key: CryptoKey,
    device: Option<&Path>,
    force: bool,
) -> Result<()> {
    let config = daemon::options(conf, "osd", &id.to_string())?;
    let data = PathBuf::from(config.get("osd_data"));
    if data.join("ready").exists() {
        bail!("{} holds an OSD already", data.display());
    }
    fs::create_dir_all(&data).with_context(|| data.display().to_string())?;
    if let Some(device) = device {
        let block = data.join("block");
        match fs::symlink_metadata(&block) {
            Ok(meta) if meta.is_symlink() => fs::remove_file(&block)?,
            Ok(_) => bail!("{} is there already and no link: move it away", block.display()),
            Err(_) => {}
        }
        std::os::unix::fs::symlink(std::path::absolute(device)?, &block)
            .with_context(|| block.display().to_string())?;
    }
    let fsid = config.get("fsid").parse().map_err(|why| anyhow::anyhow!("fsid: {why}"))?;
    osd_mkfs::mkfs(&data, fsid, id as i32, uuid, &config, force)?;
    let mut keyring = Keyring::default();
    let name = EntityName::new(EntityKind::OSD, id.to_string());
    keyring.entities.entry(name).or_default().key = key;
    write_secret(&data.join("keyring"), &keyring.to_string())?;
    osd_mkfs::finish(&data)
}
