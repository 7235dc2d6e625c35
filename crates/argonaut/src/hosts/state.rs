//! What a host keeps of its joining: `argonaut-host` in its directory. Each step is written down
//! before the cluster hears of it, so that the same command goes on where it was ended.

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use anyhow::{Context, Result};
use auth::CryptoKey;
use daemon::write_secret;
use serde_json::{Value, json};
use types::Uuid;

use super::token::Token;
use crate::layout::Layout;

/// An OSD of this host, also while it is being made.
#[derive(Clone, Debug)]
pub struct Disk {
    /// The device or file; none: a file in the OSD's directory.
    pub device: Option<PathBuf>,
    /// Bytes of that file.
    pub bytes: Option<u64>,
    pub uuid: Uuid,
    pub key: CryptoKey,
    /// Its number, once the cluster gave one.
    pub id: Option<u32>,
}

/// The keys of a cluster that is being made.
#[derive(Clone, Debug)]
pub struct First {
    pub mon: CryptoKey,
    pub admin: CryptoKey,
}

/// See the module's page.
#[derive(Clone, Debug)]
pub struct State {
    pub fsid: String,
    pub name: String,
    pub addr: IpAddr,
    /// `public network`.
    pub network: String,
    pub cluster_network: String,
    /// Where monitors were when it joined; later `ceph.conf` tells.
    pub mons: Vec<SocketAddr>,
    /// By it the monitors know this host again that uses its token a second time.
    pub nonce: String,
    /// Until it has arrived.
    pub token: Option<Token>,
    /// While `init` makes the cluster.
    pub first: Option<First>,
    /// `leave` has begun.
    pub leaving: bool,
    pub osds: Vec<Disk>,
}

fn path(layout: &Layout) -> PathBuf {
    layout.dir.join("argonaut-host")
}

fn key(value: &Value) -> Option<CryptoKey> {
    CryptoKey::from_base64(value.as_str()?).ok()
}

fn disk(value: &Value) -> Option<Disk> {
    Some(Disk {
        device: value["device"].as_str().map(PathBuf::from),
        bytes: value["bytes"].as_u64(),
        uuid: value["uuid"].as_str()?.parse().ok()?,
        key: key(&value["key"])?,
        id: value["id"].as_u64().and_then(|id| u32::try_from(id).ok()),
    })
}

impl State {
    /// That of a directory; `None` where it holds no host.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn read(layout: &Layout) -> Result<Option<Self>> {
        let path = path(layout);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(e).with_context(|| path.display().to_string()),
        };
        let value: Value =
            serde_json::from_str(&text).with_context(|| path.display().to_string())?;
        Self::of(&value).map(Some).with_context(|| format!("{} lacks something", path.display()))
    }

    fn of(value: &Value) -> Option<Self> {
        let text = |name: &str| value[name].as_str().map(str::to_owned);
        let list = |name: &str| value[name].as_array().into_iter().flatten();
        let first = match &value["first"] {
            Value::Null => None,
            first => Some(First { mon: key(&first["mon"])?, admin: key(&first["admin"])? }),
        };
        let token = match value["token"].as_str() {
            None => None,
            Some(text) => Some(text.parse().ok()?),
        };
        Some(Self {
            fsid: text("fsid")?,
            name: text("name")?,
            addr: text("addr")?.parse().ok()?,
            network: text("network")?,
            cluster_network: text("osd_network")?,
            mons: list("mons").map(|m| m.as_str()?.parse().ok()).collect::<Option<_>>()?,
            nonce: text("nonce")?,
            token,
            first,
            leaving: value["leaving"].as_bool()?,
            osds: list("osds").map(disk).collect::<Option<_>>()?,
        })
    }

    /// Writes it, durably.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, layout: &Layout) -> Result<()> {
        let disk = |d: &Disk| {
            json!({"device": d.device.as_ref().map(|p| p.to_string_lossy()), "bytes": d.bytes, "uuid": d.uuid.to_string(),
                "key": d.key.to_base64(), "id": d.id})
        };
        let first = self.first.as_ref();
        let first = first.map(|f| json!({"mon": f.mon.to_base64(), "admin": f.admin.to_base64()}));
        let value = json!({
            "fsid": self.fsid, "name": self.name, "addr": self.addr.to_string(),
            "network": self.network, "osd_network": self.cluster_network,
            "mons": self.mons.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "nonce": self.nonce, "token": self.token.as_ref().map(ToString::to_string),
            "first": first, "leaving": self.leaving,
            "osds": self.osds.iter().map(disk).collect::<Vec<_>>(),
        });
        write_secret(&path(layout), &format!("{value:#}\n"))
    }
}
