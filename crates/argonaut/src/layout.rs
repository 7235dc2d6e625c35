//! Where a cluster made by `argonaut up` keeps its files, and what its `ceph.conf` says.

use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use auth::KeyKind;
use rados::MON_PORTS;
use types::{AddrKind, AddrVec, EntityAddr};

/// Kinds of daemons that a cluster's directory may hold, in the order in which they start.
pub const KINDS: [&str; 5] = ["mon", "osd", "mds", "mgr", "rgw"];

/// A cluster's directory.
#[derive(Clone, Debug)]
pub struct Layout {
    /// Absolute.
    pub dir: PathBuf,
}

/// What `argonaut up` was asked for; what is not given is as in the cluster that is there, or as
/// in [`Asked::of_new`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Asked {
    /// As [`Wanted::mons`].
    pub mons: Option<u32>,
    /// As [`Wanted::osds`].
    pub osds: Option<u32>,
    /// Metadata servers.
    pub mds: Option<u32>,
    /// Manager processes: one of them serves.
    pub mgrs: Option<u32>,
    /// Whether to make a file system, where there is none.
    pub fs: Option<bool>,
    /// Whether to start an object gateway, where there is none.
    pub s3: Option<bool>,
    /// As [`Wanted::size`].
    pub size: Option<u32>,
    /// As [`Wanted::osd_bytes`].
    pub osd_bytes: Option<u64>,
    /// As [`Wanted::port`].
    pub port: Option<u16>,
    /// As [`Wanted::addr`].
    pub addr: Option<Ipv4Addr>,
    /// As [`Wanted::auth`].
    pub auth: Option<KeyKind>,
}

impl Asked {
    /// Metadata servers: a file system has one, and one that stands by.
    #[must_use]
    pub fn servers(&self) -> u32 {
        self.mds.unwrap_or(if self.fs == Some(true) { SERVERS } else { 0 })
    }

    /// The same for a cluster that is new, whose defaults stand for what was not said.
    #[must_use]
    pub fn whole(&self) -> Self {
        let fs = self.fs.unwrap_or(self.mds != Some(0));
        let with_fs = Self { fs: Some(fs), ..*self };
        Self {
            mds: Some(with_fs.servers()),
            mgrs: Some(self.mgrs.unwrap_or(MANAGERS)),
            s3: Some(self.s3.unwrap_or(true)),
            ..with_fs
        }
    }

    /// The same without what clients of objects and images do not need, where it was not asked for.
    #[must_use]
    pub fn minimal(self) -> Self {
        let (fs, s3) = (self.fs.or(Some(false)), self.s3.or(Some(false)));
        Self { mgrs: self.mgrs.or(Some(0)), fs, s3, ..self }
    }

    /// What a new cluster has.
    #[must_use]
    pub fn of_new(&self) -> Wanted {
        let roles = self.whole();
        Wanted {
            mds: roles.servers(),
            mgrs: roles.mgrs.unwrap_or(0),
            mons: self.mons.unwrap_or(3),
            osds: self.osds.unwrap_or(3),
            size: self.size.unwrap_or(3),
            osd_bytes: self.osd_bytes.unwrap_or(12 << 30),
            port: self.port.unwrap_or(MON_PORTS[0]),
            v1_port: match self.port {
                None => MON_PORTS[1],
                Some(port) => port.saturating_add(V1_BESIDE),
            },
            addr: self.addr.unwrap_or(Ipv4Addr::LOCALHOST),
            auth: self.auth.unwrap_or(KeyKind::AES),
        }
    }
}

/// Metadata servers of a cluster with a file system.
const SERVERS: u32 = 2;
/// Managers of a new cluster.
const MANAGERS: u32 = 2;

/// What a new cluster has from the beginning.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// Monitors.
    pub mons: u32,
    /// OSDs.
    pub osds: u32,
    /// As [`Asked::mds`].
    pub mds: u32,
    /// As [`Asked::mgrs`].
    pub mgrs: u32,
    /// Replicas of new pools.
    pub size: u32,
    /// Bytes of each OSD's block file.
    pub osd_bytes: u64,
    /// The first monitor's port; the next ones follow.
    pub port: u16,
    /// The first monitor's port of messenger v1; the next ones follow.
    pub v1_port: u16,
    /// What all daemons listen at and are known by.
    pub addr: Ipv4Addr,
    /// The kind of its keys.
    pub auth: KeyKind,
}

/// From a port that was given for v2 to that of messenger v1.
const V1_BESIDE: u16 = 50;

impl Wanted {
    /// Where a monitor listens.
    #[must_use]
    pub fn mon_addrs(&self, i: u32) -> AddrVec {
        let at = |port: u16| EntityAddr::msgr2((self.addr, port + i as u16).into(), 0);
        AddrVec(vec![at(self.port), at(self.v1_port).with_kind(AddrKind::LEGACY)])
    }
}

impl Layout {
    /// The layout in `dir`, which may not exist yet.
    ///
    /// # Errors
    /// When the current directory cannot be told.
    pub fn new(dir: &Path) -> Result<Self> {
        Ok(Self { dir: std::path::absolute(dir)? })
    }

    /// `ceph.conf`.
    #[must_use]
    pub fn conf(&self) -> PathBuf {
        self.dir.join("ceph.conf")
    }

    /// Sockets and process ids.
    #[must_use]
    pub fn run(&self) -> PathBuf {
        self.dir.join("run")
    }

    /// A daemon's data: `mon.a`, `osd.0`.
    #[must_use]
    pub fn data(&self, daemon: &str) -> PathBuf {
        self.dir.join(daemon)
    }

    /// A daemon's log.
    #[must_use]
    pub fn log(&self, daemon: &str) -> PathBuf {
        self.dir.join("log").join(format!("{daemon}.log"))
    }

    /// A daemon's pid file.
    #[must_use]
    pub fn pid_file(&self, daemon: &str) -> PathBuf {
        self.run().join(format!("{daemon}.pid"))
    }

    /// A daemon's admin socket.
    #[must_use]
    pub fn asok(&self, daemon: &str) -> PathBuf {
        self.run().join(format!("ceph-{daemon}.asok"))
    }

    /// There while an operator has stopped a daemon: its supervisor leaves it alone.
    #[must_use]
    pub fn stopped(&self, daemon: &str) -> PathBuf {
        self.run().join(format!("{daemon}.stopped"))
    }

    /// Whether a cluster was made here.
    #[must_use]
    pub fn exists(&self) -> bool {
        self.conf().exists()
    }

    /// The daemons that were made here: monitors, OSDs, metadata servers, managers, gateways, each in
    /// order.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub fn daemons(&self) -> Result<Vec<String>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.dir).with_context(|| self.dir.display().to_string())? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let Some((kind, id)) = name.split_once('.') else { continue };
            // The mark is written last: a half-made daemon is made anew.
            let Some(order) = KINDS.iter().position(|k| *k == kind) else {
                continue;
            };
            if entry.path().join("ready").exists() {
                found.push((order, id.parse::<u64>().unwrap_or(0), name));
            }
        }
        found.sort();
        Ok(found.into_iter().map(|(_, _, name)| name).collect())
    }

    /// The process of a daemon, when it runs.
    #[must_use]
    pub fn running(&self, daemon: &str) -> Option<u32> {
        let pid: u32 = fs::read_to_string(self.pid_file(daemon)).ok()?.trim().parse().ok()?;
        // A pid file outlives kill -9, and its number may be somebody else's by now.
        let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        let line = String::from_utf8_lossy(&line);
        let (kind, id) = daemon.split_once('.').unwrap_or((daemon, ""));
        let words: Vec<&str> = line.split('\0').collect();
        let ours = words.iter().any(|w| w.contains(&*self.dir.to_string_lossy()))
            && words.contains(&kind)
            && (id.is_empty() || words.contains(&id));
        ours.then_some(pid)
    }

    /// The text of a new cluster's `ceph.conf`.
    #[must_use]
    pub fn conf_text(&self, fsid: &str, wanted: &Wanted) -> String {
        let dir = self.dir.display();
        let mon_host: Vec<String> =
            (0..wanted.mons).map(|i| wanted.mon_addrs(i).to_string().replace("/0", "")).collect();
        let members: Vec<String> = (0..wanted.mons).map(mon_id).collect();
        let (mon_host, members) = (mon_host.join(","), members.join(","));
        let (size, bytes, addr) = (wanted.size, wanted.osd_bytes, wanted.addr);
        let (mds, mgr) = (section("mds", &self.dir), section("mgr", &self.dir));
        format!(
            "\
# A cluster on one machine, made by `argonaut up`. Any Ceph client reads this file:
#   ceph -c {dir}/ceph.conf -s
[global]
    fsid = {fsid}
    mon initial members = {members}
    mon host = {mon_host}
    auth cluster required = cephx
    auth service required = cephx
    auth client required = cephx
    keyring = {dir}/keyring
    run dir = {dir}/run
    admin socket = {dir}/run/ceph-$name.asok
    public addr = {addr}
    cluster addr = {addr}
    # One machine: replicas go to different OSDs instead of different hosts.
    osd crush chooseleaf type = 0
    osd pool default size = {size}
    osd pool default pg num = 8
    osd pool default pg autoscale mode = off
    mon allow pool delete = true
    mon allow pool size one = true
    mon max pg per osd = 2000

[mon]
    # The disk is shared with whatever else is on this machine.
    mon data avail warn = 5
    mon data avail crit = 2
    mon data = {dir}/mon.$id
    keyring = {dir}/mon.$id/keyring
    log file = {dir}/log/$name.log
    pid file = {dir}/run/$name.pid

[osd]
    osd data = {dir}/osd.$id
    keyring = {dir}/osd.$id/keyring
    log file = {dir}/log/$name.log
    pid file = {dir}/run/$name.pid
    osd device bytes = {bytes}
    # `rados put` keeps a file in one object; the peer's default would end it at 128 MiB.
    osd max object size = 4G
    # Every object class that is built in.
    osd class load list = *

{mds}
{mgr}
[client]
    # Clients neither listen nor log here.
    admin socket =
    log file =
"
        )
    }
}

/// The part of `ceph.conf` that says where daemons of a kind, `mds` or `mgr`, keep their keys.
#[must_use]
pub fn section(kind: &str, dir: &Path) -> String {
    let dir = dir.display();
    format!(
        "\
[{kind}]
    {kind} data = {dir}/{kind}.$id
    keyring = {dir}/{kind}.$id/keyring
    log file = {dir}/log/$name.log
    pid file = {dir}/run/$name.pid
"
    )
}

/// `a`, `b`, ...: names of monitors and metadata servers.
#[must_use]
pub fn mon_id(index: u32) -> String {
    char::from(b'a' + (index % 26) as u8).to_string()
}

/// `x`, `y`, `z`, `a`, ...: names of managers.
#[must_use]
pub fn mgr_id(index: u32) -> String {
    mon_id(index + 23)
}
