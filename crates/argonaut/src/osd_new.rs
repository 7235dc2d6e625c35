//! `argonaut osd new`: a new OSD of a cluster that runs, on a device or a file.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use auth::{CryptoKey, KeyKind, Keyring};
use bytes::Bytes;
use conf::key;
use daemon::write_secret;
use env::Random;
use rt::OsRandom;
use types::{EntityKind, EntityName, UTime, Uuid};

use crate::target::Target;
use crate::{client, osd_mkfs};

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
    let new = Secrets::draw(preferred(how)?);
    let ask = |words, input| ask(how, words, input);
    let words = serde_json::json!({"prefix": "osd new", "uuid": new.uuid.to_string()});
    let out = ask(words, new.input())?;
    let text = String::from_utf8_lossy(&out);
    let id: u32 = text.trim().parse().with_context(|| format!("osd new said {text:?}"))?;
    let made = make(&how.conf, id, new, device, Room { force, ..Room::default() });
    if let Err(err) = &made {
        tell!("{}; osd.{id} is given back", crate::say::Why(err));
        let words = serde_json::json!({"prefix": "osd purge", "id": id,
            "yes_i_really_mean_it": true});
        ask(words, String::new())?;
    }
    made.map(|()| id)
}

/// Makes an OSD of the cluster anew, empty, under its number, place and weight: `osd destroy`,
/// `osd new` with the number, and its data on `device` or where it was. By `force` what is there is
/// overwritten.
///
/// # Errors
/// When it runs, when the cluster may need its data (unless `lose_data`), when the cluster does not
/// answer, or when the data cannot be made; then the OSD stays destroyed, and this can be
/// done again.
pub fn replace(
    how: &client::Connect,
    id: u32,
    device: Option<&Path>,
    force: bool,
    lose_data: bool,
) -> Result<()> {
    let config = daemon::options(&how.conf, "osd", &id.to_string())?;
    let data = PathBuf::from(config.get(key::OSD_DATA));
    let block = data.join("block");
    if crate::target::is_in_use(&block) {
        bail!("osd.{id} runs: stop it first");
    }
    if let Some(device) = device {
        fs::metadata(device).with_context(|| device.display().to_string())?;
    }
    Target::inspect(device.unwrap_or(&block), force)?; // before the cluster forgets the old one
    let ask = |words, input| ask(how, words, input);
    let ids = [id.to_string()];
    if !lose_data {
        let words = serde_json::json!({"prefix": "osd safe-to-destroy", "ids": ids});
        ask(words, String::new()).with_context(|| {
            format!(
                "the cluster may need what osd.{id} holds; wait until it is recovered elsewhere, or \
                 say --lose-data"
            )
        })?;
    }
    let words = serde_json::json!({"prefix": "osd destroy", "id": id, "force": true,
        "yes_i_really_mean_it": true});
    ask(words, String::new())?;
    let new = Secrets::draw(preferred(how)?);
    let words = serde_json::json!({"prefix": "osd new", "uuid": new.uuid.to_string(), "id": id});
    ask(words, new.input())?;
    fs::remove_file(data.join("ready")).ok();
    if device.is_some() && fs::symlink_metadata(&block).is_ok_and(|m| m.is_file()) {
        fs::remove_file(&block).with_context(|| block.display().to_string())?;
    }
    make(&how.conf, id, new, device, Room { force, ..Room::default() })
        .with_context(|| format!("osd.{id} stays destroyed; run this again"))
}

/// What the cluster is to know of a new OSD.
pub struct Secrets {
    pub uuid: Uuid,
    pub key: CryptoKey,
}

/// Of an OSD's store.
#[derive(Clone, Copy, Debug, Default)]
pub struct Room {
    /// Bytes of its file, where it has one; none: `osd_device_bytes`.
    pub bytes: Option<u64>,
    /// What is there is overwritten.
    pub force: bool,
}

impl Secrets {
    /// New ones.
    #[must_use]
    pub fn draw(kind: KeyKind) -> Self {
        let mut raw = [0; 16];
        OsRandom.fill(&mut raw);
        let now = UTime::from_nanos(rt::now().wall_ns);
        let key = CryptoKey::generate(kind, now, &mut OsRandom);
        Self { uuid: Uuid::from_random(raw), key }
    }

    /// What goes with `osd new`.
    #[must_use]
    pub fn input(&self) -> String {
        serde_json::json!({"cephx_secret": self.key.to_base64()}).to_string()
    }
}

/// The kind of key that the cluster makes.
fn preferred(how: &client::Connect) -> Result<KeyKind> {
    let map = ask(how, serde_json::json!({"prefix": "mon dump", "format": "json"}), String::new())?;
    let map: serde_json::Value = serde_json::from_slice(&map)?;
    let kind = map["auth_preferred_cipher"]["value"].as_u64().and_then(|k| u16::try_from(k).ok());
    Ok(kind.map_or(KeyKind::AES, KeyKind))
}

fn ask(how: &client::Connect, words: serde_json::Value, input: String) -> Result<Bytes> {
    let (r, rs, out) = rt::run_local(async {
        let cluster = client::connect(how).await?;
        anyhow::Ok(cluster.mon_command(&words.to_string(), Bytes::from(input)).await?)
    })??;
    if r < 0 {
        bail!("{}: {rs}: {}", words["prefix"], std::io::Error::from_raw_os_error(-r));
    }
    Ok(out)
}

/// Makes the data of an OSD that the cluster knows: its store on `device` or in a file, its keyring.
///
/// # Errors
/// When there is one, the device cannot be used, or files cannot be written.
pub fn make(
    conf_path: &Path,
    id: u32,
    new: Secrets,
    device: Option<&Path>,
    room: Room,
) -> Result<()> {
    let mut config = daemon::options(conf_path, "osd", &id.to_string())?;
    if let Some(bytes) = room.bytes {
        let (source, name) = (conf::Source::CommandLine, key::OSD_DEVICE_BYTES.name());
        config.set(source, name, &bytes.to_string()).map_err(anyhow::Error::msg)?;
    }
    let data = PathBuf::from(config.get(key::OSD_DATA));
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
    let fsid = config.get(key::FSID).parse().map_err(|why| anyhow::anyhow!("fsid: {why}"))?;
    osd_mkfs::mkfs(&data, fsid, id as i32, new.uuid, &config, room.force)?;
    let mut keyring = Keyring::default();
    let name = EntityName::new(EntityKind::OSD, id.to_string());
    keyring.entities.entry(name).or_default().key = new.key;
    write_secret(&data.join("keyring"), &keyring.to_string())?;
    osd_mkfs::finish(&data)
}
