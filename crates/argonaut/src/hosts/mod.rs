//! `argonaut init`, `token`, `join`, `leave`: a cluster of several hosts, a command for each.
//!
//! A host has one directory ([`Layout`]) and one supervisor, as a cluster made by `up` has; its
//! daemons are `mon.HOST`, `mgr.HOST` and the OSDs of its disks. `init` makes the first monitor and
//! then joins as every other host does. A token lets one host in, once and for a time
//! (`mon/src/commands/hosts.rs`); from then on the host has a key for commands about itself alone.
//!
//! ```text
//! begin ── host join ── arrive ── mon-add ── mgr-add ── osd-new.. ── up      `join`, again: goes on
//! leave ── drain ── stop, osd-rm.. ── mgr ── mon-rm ── host leave ── remove  `leave`, again: goes on
//! ```

mod checks;
pub mod deploy;
mod enter;
mod host_conf;
mod leave;
mod old_conf;
mod state;
mod token;
mod who;

use std::fs::{self, File};
use std::io::Read;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use auth::{CryptoKey, KeyKind};
use conf::{ConfFile, Config, key};
use daemon::{write_durably, write_secret};
use env::Random;
use mon::Mkfs;
use rados::MON_PORTS;
use rt::OsRandom;
use rustix::fs::FlockOperation;
use serde_json::json;
use types::{AddrKind, AddrVec, EntityAddr, EntityKind, EntityName, UTime, Uuid};

use self::enter::Wish;
use self::state::{First, State};
use self::token::Token;
use self::who::Who;
use crate::layout::Layout;
use crate::remove::{Made, Marker};
use crate::{client, mon_daemon, supervise};

/// Where hosts keep what is theirs.
pub const DIR: &str = "/var/lib/argonaut";
/// How long the first monitor may take to lead.
const FIRST_MAX: Duration = Duration::from_secs(60);
/// Between two looks at where the monitors are.
const FOLLOW_PAUSE: Duration = Duration::from_secs(30);

/// A host's directory.
#[derive(clap::Args)]
pub struct Place {
    /// The host's directory.
    #[arg(long, default_value = DIR)]
    dir: PathBuf,
}

/// OSDs of a host.
#[derive(clap::Args)]
pub struct Disks {
    /// Disks that become OSDs: `all` that are free, or devices and existing files.
    #[arg(long, value_delimiter = ',', value_name = "all|DEVICE,..")]
    disks: Vec<PathBuf>,
    /// OSDs in files of the host's directory.
    #[arg(long, default_value_t = 0, value_name = "N")]
    osds: u32,
    /// Bytes of each such file, for example 12G.
    #[arg(long, value_parser = crate::size)]
    osd_bytes: Option<u64>,
    /// One more OSD in a file, however many there are.
    #[arg(long, hide = true)]
    add_file: bool,
    /// Overwrite what the disks hold; never one in use.
    #[arg(long)]
    force: bool,
}

impl Disks {
    fn wish(self, no_mon: bool, more_mons: bool, mds: bool) -> Wish {
        let (all, disks): (Vec<_>, Vec<_>) =
            self.disks.into_iter().partition(|d| d.as_os_str() == "all");
        Wish {
            disks,
            all_disks: !all.is_empty(),
            files: self.osds,
            one_more: self.add_file,
            bytes: self.osd_bytes,
            force: self.force,
            no_mon,
            more_mons,
            mds,
        }
    }
}

/// `argonaut init`.
#[derive(clap::Args)]
pub struct Init {
    #[command(flatten)]
    place: Place,
    /// The network of clients and daemons: 10.0.0.0/24.
    #[arg(long)]
    network: String,
    /// A network for traffic between OSDs alone.
    #[arg(long, default_value = "")]
    cluster_network: String,
    /// This host's name in the cluster [default: its host name].
    #[arg(long)]
    name: Option<String>,
    #[command(flatten)]
    disks: Disks,
    /// Copies of new pools, each on another host.
    #[arg(long, default_value_t = 3)]
    size: u32,
    /// Have a metadata server on this host.
    #[arg(long)]
    mds: bool,
    /// Sections of a ceph.conf (- is standard input) that go into that of each host.
    #[arg(long, value_name = "FILE")]
    options: Option<PathBuf>,
    /// Kind of the cluster's keys: aes, or aes256k.
    #[arg(long, value_parser = crate::key_kind, default_value = "aes")]
    auth: KeyKind,
}

/// `argonaut join`.
#[derive(clap::Args)]
pub struct Join {
    /// What `argonaut init` or `argonaut token` printed (- is standard input); not needed any more once
    /// the host is let in.
    token: Option<String>,
    #[command(flatten)]
    place: Place,
    /// This host's name in the cluster [default: its host name].
    #[arg(long)]
    name: Option<String>,
    #[command(flatten)]
    disks: Disks,
    /// Be a monitor although there are three: up to five.
    #[arg(long)]
    mon: bool,
    /// Have a metadata server on this host.
    #[arg(long)]
    mds: bool,
    /// Be no monitor.
    #[arg(long, conflicts_with = "mon")]
    no_mon: bool,
}

/// `argonaut token`.
#[derive(clap::Args)]
pub struct TokenVerb {
    #[command(flatten)]
    connect: client::Connect,
    /// How long it is good, in minutes.
    #[arg(long, default_value_t = 120)]
    minutes: u32,
    /// Only for a host of this name.
    #[arg(long)]
    host: Option<String>,
    /// Give the host the key of client.admin, too.
    #[arg(long)]
    admin: bool,
    /// List the tokens that are good.
    #[arg(long, conflicts_with_all = ["host", "admin", "revoke"])]
    list: bool,
    /// Revoke a token by its name in the list.
    #[arg(long, value_name = "ID")]
    revoke: Option<String>,
}

/// `argonaut leave`.
#[derive(clap::Args)]
pub struct Leave {
    #[command(flatten)]
    place: Place,
    /// Do not wait until the data is elsewhere; refused where some of it would be out of reach.
    #[arg(long)]
    now: bool,
    /// Remove another host, which is lost; wants client.admin's key here.
    #[arg(long, value_name = "HOST", conflicts_with = "now")]
    lost: Option<String>,
}

fn wall() -> UTime {
    UTime::from_nanos(rt::now().wall_ns)
}

/// Nobody else changes this host meanwhile.
fn lock(layout: &Layout) -> Result<File> {
    let dir = File::open(&layout.dir).with_context(|| layout.dir.display().to_string())?;
    rustix::fs::flock(&dir, FlockOperation::NonBlockingLockExclusive)
        .map_err(|_| anyhow::anyhow!("another command changes {} now", layout.dir.display()))?;
    Ok(dir)
}

/// A directory that holds nothing, or only what an earlier run made of this cluster.
fn claim(layout: &Layout, fsid: &str) -> Result<()> {
    let dir = layout.dir.display();
    match Marker::read(layout)? {
        Some(marker) if marker.made != Made::Host => {
            bail!("{dir} holds a cluster that `argonaut up` made")
        }
        Some(marker) if marker.fsid != fsid => bail!("{dir} is of cluster {}", marker.fsid),
        Some(_) => {}
        None => {
            let mut there = fs::read_dir(&layout.dir).into_iter().flatten();
            if let Some(name) = there.find_map(|e| Some(e.ok()?.file_name())) {
                bail!("{dir} holds '{}' and no host: choose another --dir", name.display());
            }
            fs::create_dir_all(&layout.dir).with_context(|| format!("cannot make {dir}"))?;
            Marker { fsid: fsid.to_owned(), made: Made::Host }.write(layout)?;
        }
    }
    for dir in [layout.run(), layout.dir.join("log")] {
        fs::create_dir_all(&dir).with_context(|| dir.display().to_string())?;
    }
    for dir in [layout.dir.clone(), layout.run(), layout.dir.join("log")] {
        daemon::private::tighten_dir(&dir);
    }
    Ok(())
}

fn nonce() -> String {
    let mut raw = [0; 16];
    OsRandom.fill(&mut raw);
    raw.iter().map(|b| format!("{b:02x}")).collect()
}

fn name_or_host(name: Option<String>) -> String {
    name.unwrap_or_else(daemon::hostname)
}

/// This host's address in a network.
fn address_in(network: &str) -> Result<IpAddr> {
    let text = format!("[global]\n{} = {network}\n", key::PUBLIC_NETWORK.name());
    let conf = ConfFile::parse(&text).map_err(|e| anyhow::anyhow!("--network {network}: {e}"))?;
    let found = daemon::address(&Config::new(&conf, "client", "admin", "", 0), "public");
    found.with_context(|| format!("--network {network}"))
}

/// A monitor's addresses at the usual ports.
fn mon_addrs(addr: IpAddr) -> AddrVec {
    let [v2, v1] = MON_PORTS.map(|port| EntityAddr::msgr2((addr, port).into(), 0));
    AddrVec(vec![v2, v1.with_kind(AddrKind::LEGACY)])
}

fn admin(layout: &Layout, state: &State) -> Result<Who> {
    let name = EntityName::new(EntityKind::CLIENT, "admin");
    Who::of_file(&layout.dir.join("keyring"), name, host_conf::mons(layout, state))
}

/// Makes a cluster of which this host is the first, and prints a token for the next one.
///
/// # Errors
/// At the step that fails; the same command goes on there.
pub fn init(words: Init) -> Result<()> {
    let layout = Layout::new(&words.place.dir)?;
    let size = words.size;
    let options = own_options(words.options.as_deref())?;
    let wish = words.disks.wish(false, false, words.mds);
    let mut state = match State::read(&layout)? {
        Some(state) if state.first.is_some() => state,
        Some(state) => {
            bail!(
                "{} is host {} of cluster {} already; more disks: argonaut join --disks, another \
                 host: argonaut token",
                layout.dir.display(),
                state.name,
                state.fsid
            )
        }
        None => {
            let addr = address_in(&words.network)?;
            checks::ports(addr)?;
            checks::disks(&wish.named(&[])?, wish.force)?;
            if size == 0 || size > 10 {
                bail!("--size is 1 to 10");
            }
            let mut raw = [0; 16];
            OsRandom.fill(&mut raw);
            let key = || CryptoKey::generate(words.auth, wall(), &mut OsRandom);
            State {
                fsid: Uuid::from_random(raw).to_string(),
                name: name_or_host(words.name),
                addr,
                network: words.network,
                cluster_network: words.cluster_network,
                mons: vec![(addr, MON_PORTS[0]).into()],
                nonce: nonce(),
                token: None,
                first: Some(First { mon: key(), admin: key() }),
                leaving: false,
                osds: Vec::new(),
            }
        }
    };
    // A run that was ended before it wrote its state left the marker of a cluster that is none.
    if let Some(Marker { made: Made::Host, fsid }) = Marker::read(&layout)?
        && State::read(&layout)?.is_none()
    {
        state.fsid = fsid;
    }
    claim(&layout, &state.fsid)?;
    let _lock = lock(&layout)?;
    state.write(&layout)?;
    found(&layout, &state, u64::from(size), &options)?;
    supervise::launch(&layout)?;
    let who = admin(&layout, &state)?;
    enter::wait(FIRST_MAX, || {
        Ok(who.json(&json!({"prefix": "quorum_status", "format": "json"})).ok())
    })?
    .context("the first monitor does not lead: argonaut logs says why")?;
    if state.token.is_none() && !layout.dir.join("host.keyring").exists() {
        let shared = json!({"network": state.network, "size": size,
            "osd_network": state.cluster_network, "options": options});
        let set = json!({"prefix": "config-key set", "key": "argonaut/hosts",
            "val": shared.to_string()});
        who.ask(&set, String::new())?;
        let told = who.json(&json!({"prefix": "host token", "name": state.name}))?;
        state.token = Some(Token::of(&told, &state.network)?);
        state.write(&layout)?;
    }
    enter::enter(&layout, &mut state, &wish)?;
    let token = who.json(&json!({"prefix": "host token"}))?;
    let token = Token::of(&token, &state.network)?;
    state.first = None;
    state.write(&layout)?;
    say!("cluster {} is there, with host {} in {}", state.fsid, state.name, layout.dir.display());
    say!("export CEPH_CONF={}", layout.conf().display());
    say!("On the next host, within two hours (argonaut token prints one for each further host):");
    say!("argonaut join {token}");
    Ok(())
}

/// Sections that an operator wants in each host's ceph.conf. What says where a host keeps its files, or
/// who it is, is not taken.
fn own_options(path: Option<&Path>) -> Result<String> {
    let Some(path) = path else { return Ok(String::new()) };
    let mut text = String::new();
    client::open(path)?.read_to_string(&mut text)?;
    let file = ConfFile::parse(&text).map_err(|e| anyhow::anyhow!("{}: {e}", path.display()))?;
    for section in file.sections() {
        if let Some((name, _)) = file.section(section).find(|(n, _)| host_conf::KEPT.contains(n)) {
            bail!("{}: {name} is for each host itself to say", path.display());
        }
    }
    Ok(format!("\n{}\n", text.trim_end()))
}

/// ceph.conf, the administrator's keyring and the first monitor, where they are not there.
fn found(layout: &Layout, state: &State, size: u64, options: &str) -> Result<()> {
    let Some(first) = &state.first else { return Ok(()) };
    let addrs = mon_addrs(state.addr);
    if !layout.exists() {
        let mons = addrs.to_string().replace("/0", "");
        let text = host_conf::text(layout, state, &mons, size) + options;
        write_durably(&layout.conf(), text.as_bytes())?;
    }
    let fsid: Uuid = state.fsid.parse().map_err(|why| anyhow::anyhow!("fsid: {why}"))?;
    let mut mkfs = Mkfs { fsid, now: wall(), ..Mkfs::default() };
    let admin = EntityName::new(EntityKind::CLIENT, "admin");
    mkfs.add_key(EntityName::new(EntityKind::MON, ""), first.mon.clone());
    mkfs.add_key(admin.clone(), first.admin.clone());
    let keyring = layout.dir.join("keyring");
    if !keyring.exists() {
        let own = Who { name: admin, key: first.admin.clone(), mons: Vec::new() };
        write_secret(&keyring, &own.keyring())?;
    }
    let data = layout.data(&format!("mon.{}", state.name));
    if data.join("ready").exists() {
        return Ok(());
    }
    fs::remove_file(data.join("store")).ok();
    let mon = EntityName::new(EntityKind::MON, "");
    let kept = Who { name: mon, key: first.mon.clone(), mons: Vec::new() }.keyring();
    let config = daemon::options(&layout.conf(), "mon", &state.name)?;
    let members = vec![(state.name.clone(), addrs)];
    let first = mon_daemon::First { fsid, members, keyring: mkfs.keyring, kept };
    mon_daemon::make_founder(&config, &state.name, first)?;
    say!("mon.{} is made", state.name);
    Ok(())
}

/// Has this host join a cluster, or gives a host that joined what else is asked for.
///
/// # Errors
/// When it is refused, before anything is made; else at the step that fails: the same command goes
/// on there.
pub fn join(words: Join) -> Result<()> {
    let layout = Layout::new(&words.place.dir)?;
    let token = match words.token.as_deref() {
        Some("-") => {
            let mut line = String::new();
            std::io::stdin().read_line(&mut line)?;
            Some(line.parse::<Token>()?)
        }
        given => given.map(str::parse::<Token>).transpose()?,
    };
    let wish = words.disks.wish(words.no_mon, words.mon, words.mds);
    let state = State::read(&layout)?;
    let dir = layout.dir.display();
    let mut state = match (state, token) {
        (None, None) => {
            bail!("{dir} holds no host: argonaut join TOKEN; init and token print tokens")
        }
        (Some(state), _) if state.leaving => {
            bail!("host {} is leaving: argonaut leave goes on with it", state.name)
        }
        (Some(state), _) if state.first.is_some() => {
            bail!("host {} is making its cluster: argonaut init goes on with it", state.name)
        }
        (Some(state), Some(token)) if state.fsid != token.fsid => {
            bail!("{dir} is a host of cluster {}, the token is of {}", state.fsid, token.fsid)
        }
        (Some(state), _) if words.name.as_ref().is_some_and(|n| *n != state.name) => {
            bail!("{dir} joined, or began to, as host {}", state.name)
        }
        // The one it began with may be over by now.
        (Some(state), Some(token)) if state.token.is_some() => {
            State { token: Some(token), ..state }
        }
        (Some(state), _) => state,
        (None, Some(token)) => begin(&layout, token, name_or_host(words.name), &wish)?,
    };
    checks::disks(&wish.named(&state.osds)?, wish.force)?;
    claim(&layout, &state.fsid)?;
    let _lock = lock(&layout)?;
    state.write(&layout)?;
    enter::enter(&layout, &mut state, &wish)?;
    say!("host {} is of cluster {}; its directory is {dir}", state.name, state.fsid);
    Ok(())
}

/// What a host looks at before it makes anything.
fn begin(layout: &Layout, token: Token, name: String, wish: &Wish) -> Result<State> {
    let to = checks::reach(&token.mons)?;
    let addr = if token.network.is_empty() { to } else { address_in(&token.network)? };
    token.proves(&token.who().json(&json!({"prefix": "host time"}))?)?;
    checks::clock(&token.who())?;
    if !wish.no_mon {
        checks::ports(addr)?;
    }
    if let Some(Marker { fsid, .. }) = Marker::read(layout)?
        && fsid != token.fsid
    {
        bail!("{} is of cluster {fsid}, the token is of {}", layout.dir.display(), token.fsid);
    }
    Ok(State {
        fsid: token.fsid.clone(),
        name,
        addr,
        network: token.network.clone(),
        cluster_network: String::new(),
        mons: token.mons.clone(),
        nonce: nonce(),
        token: Some(token),
        first: None,
        leaving: false,
        osds: Vec::new(),
    })
}

/// Makes a token, lists them or revokes one.
///
/// # Errors
/// What the monitors refuse; when none answers.
pub fn token(words: &TokenVerb) -> Result<()> {
    let mut connect = words.connect.clone();
    let own = Path::new(DIR).join("ceph.conf");
    if !connect.conf.exists() && own.exists() {
        connect.conf = own;
    }
    let config = connect.config()?;
    let mons = config.mons.iter().filter_map(|a| a.sock).collect();
    let who = Who { name: config.name, key: config.key, mons };
    if words.list {
        let all = who.ask(&json!({"prefix": "host token-ls"}), String::new())?;
        say!("{}", String::from_utf8_lossy(&all).trim_end());
        return Ok(());
    }
    if let Some(id) = &words.revoke {
        who.ask(&json!({"prefix": "host token-rm", "id": id}), String::new())?;
        say!("token {id} is good for nothing any more");
        return Ok(());
    }
    let mut ask = json!({"prefix": "host token", "ttl": u64::from(words.minutes) * 60});
    if let Some(name) = &words.host {
        ask["name"] = name.as_str().into();
    }
    if words.admin {
        ask["with_admin"] = true.into();
    }
    let told = who.json(&ask)?;
    let network = told["shared"]["network"].as_str().unwrap_or_default().to_owned();
    say!("argonaut join {}", Token::of(&told, &network)?);
    Ok(())
}

/// Has this host leave its cluster, or a lost one be forgotten.
///
/// # Errors
/// When data would be lost, at the step that fails; the same command goes on there.
pub fn leave(words: Leave) -> Result<()> {
    let layout = Layout::new(&words.place.dir)?;
    let Some(mut state) = State::read(&layout)? else {
        let dir = layout.dir.display();
        bail!("{dir} holds no host that joined a cluster; argonaut rm removes what `up` made")
    };
    let lock = lock(&layout)?;
    match words.lost {
        Some(host) => leave::lost(&admin(&layout, &state)?, &host),
        None => {
            leave::leave(&layout, &mut state, words.now)?;
            drop(lock);
            Ok(())
        }
    }
}

/// Starts a host's daemons, where its directory is one.
///
/// # Errors
/// When the supervisor cannot be started.
pub fn start(layout: &Layout) -> Result<bool> {
    let Some(state) = State::read(layout)? else { return Ok(false) };
    supervise::launch(layout)?;
    say!("host {} is started; its directory is {}", state.name, layout.dir.display());
    Ok(true)
}

/// The supervisor of a host, where the directory is one and it does not run.
///
/// # Errors
/// When it cannot be started.
pub fn launch(layout: &Layout) -> Result<()> {
    if is_host(layout) { supervise::launch(layout) } else { Ok(()) }
}

/// What the cluster says of itself, asked by the host's own key.
///
/// # Errors
/// When the directory is no host's, or no monitor answers.
pub fn status(layout: &Layout) -> Result<String> {
    let state = State::read(layout)?.context("this is no host that joined")?;
    let out = enter::own(layout, &state)?.ask(&json!({"prefix": "status"}), String::new())?;
    Ok(String::from_utf8_lossy(&out).into_owned())
}

/// # Errors
/// When a host is not the whole of its cluster, so that removing it would leave things behind.
pub fn may_remove(layout: &Layout) -> Result<()> {
    let Some(state) = State::read(layout)? else { return Ok(()) };
    let dir = layout.dir.display();
    let has_key = layout.dir.join("host.keyring").exists();
    if !has_key && state.first.is_some() {
        return Ok(()); // nobody else can have heard of this cluster
    }
    if !has_key {
        bail!("host {} has begun to join: argonaut leave --dir {dir}", state.name);
    }
    let all = enter::own(layout, &state)?
        .json(&json!({"prefix": "host ls", "format": "json"}))
        .with_context(|| {
            format!("whether other hosts are of this cluster is not known: argonaut up --dir {dir}")
        })?;
    match all.as_array().map_or(0, Vec::len) {
        0 | 1 => Ok(()),
        n => bail!("the cluster has {n} hosts: argonaut leave --dir {dir} takes this one out"),
    }
}

/// In the supervisor of a host: has its ceph.conf follow the monitors, for ever.
#[allow(clippy::disallowed_methods, reason = "the edge of the world: it waits for real time")]
pub fn keep_following(layout: &Layout) {
    loop {
        if let Ok(Some(state)) = State::read(layout)
            && let Ok(who) = enter::own(layout, &state)
            && let Err(why) = host_conf::follow(layout, &who)
        {
            tell!("ceph.conf stays as it is: {}", crate::say::Why(&why));
        }
        std::thread::sleep(FOLLOW_PAUSE);
    }
}

/// Whether a directory is a host's.
#[must_use]
pub fn is_host(layout: &Layout) -> bool {
    matches!(Marker::read(layout), Ok(Some(Marker { made: Made::Host, .. })))
}

/// The path of a host's directory where no other is named, and none of `up` is here.
#[must_use]
pub fn or_host(dir: &Path) -> PathBuf {
    let host = Path::new(DIR);
    let is_named = dir != Path::new("argonaut-data");
    if is_named || dir.exists() || !host.join("argonaut-host").exists() {
        return dir.to_owned();
    }
    host.to_owned()
}
