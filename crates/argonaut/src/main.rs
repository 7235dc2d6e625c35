//! Argonaut: a Ceph cluster in one binary. The subcommands and what they wire together.

#[macro_use]
mod say;

mod ceph_verb;
mod classes;
mod client;
mod device;
mod exporter;
mod hosts;
mod layout;
mod lines;
mod manual;
mod mds_daemon;
mod mds_io;
mod memory;
mod mgr_daemon;
mod mgr_dashboard;
mod mgr_metrics;
mod mon_daemon;
mod mon_peers;
mod mon_rebuild;
mod mon_rescue;
mod names;
mod osd_daemon;
mod osd_mkfs;
mod osd_new;
mod rbd_verbs;
mod remove;
mod rgw_daemon;
mod s3_verbs;
mod signature;
mod store_tool;
mod supervise;
mod target;
mod up;
mod up_fs;
mod up_s3;
mod words;

use std::io::Read;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{CommandFactory, Parser, Subcommand};

#[derive(Parser)]
#[command(name = "argonaut", about = "A storage cluster that Ceph's own clients use")]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(clap::Args)]
struct Dir {
    /// The cluster's directory. Where there is none, that of a host that joined: /var/lib/argonaut.
    #[arg(long, default_value = "argonaut-data")]
    dir: PathBuf,
}

impl Dir {
    fn path(&self) -> PathBuf {
        hosts::or_host(&self.dir)
    }
}

#[derive(clap::Args)]
struct Daemon {
    /// The daemon's id: a for mon.a, 0 for osd.0.
    #[arg(short, long)]
    id: Option<String>,
    /// The cluster's ceph.conf.
    #[arg(short, long, env = "CEPH_CONF", default_value = "/etc/ceph/ceph.conf")]
    conf: PathBuf,
    /// Makes the daemon's data directory and ends.
    #[arg(long)]
    mkfs: bool,
    /// With --mkfs: the keyring to start from.
    #[arg(long)]
    keyring: Option<PathBuf>,
    /// With --mkfs of an OSD: overwrite what is there.
    #[arg(long, requires = "mkfs")]
    force: bool,
}

impl Daemon {
    // Not clap's to demand: it would of those who only name ceph.conf in the environment.
    fn id(&self) -> Result<&str> {
        self.id.as_deref().ok_or_else(|| anyhow::anyhow!("name the daemon: -i ID"))
    }

    fn options(&self, kind: &str) -> Result<conf::Config> {
        daemon::options(&self.conf, kind, self.id()?)
    }
}

#[derive(Subcommand)]
enum MonVerb {
    /// Make the data of a new monitor of a cluster that runs; then start it.
    Join {
        #[command(flatten)]
        daemon: Daemon,
        /// Where it will listen: v2:IP:PORT, or [v2:IP:PORT,v1:IP:PORT]. At port 3300 messenger v1
        /// has 6789, too.
        #[arg(long)]
        addr: String,
    },
}

#[derive(Subcommand)]
enum OsdVerb {
    /// Have the cluster know a new OSD and make its data; then start it.
    #[command(visible_alias = "prepare")]
    New {
        #[command(flatten)]
        connect: client::Connect,
        /// The device, or an existing file, to keep the store on; else a file is made in the
        /// data directory.
        #[arg(long)]
        device: Option<PathBuf>,
        /// Overwrite what the device or file holds; never one in use.
        #[arg(long)]
        force: bool,
    },
    /// Make a failed OSD anew, empty: it keeps its number, its place in the CRUSH map and its
    /// weight, and is filled from the others.
    Replace {
        #[command(flatten)]
        connect: client::Connect,
        /// Its number.
        id: u32,
        /// The new device, or an existing file; else the one it had.
        #[arg(long)]
        device: Option<PathBuf>,
        /// Overwrite what the device or file holds; never one in use.
        #[arg(long)]
        force: bool,
        /// Go on although it may hold the only copy of something.
        #[arg(long)]
        lose_data: bool,
    },
}

/// What `up` starts beside monitors and OSDs.
#[derive(clap::Args)]
struct Roles {
    /// Make a file system `cephfs`, where there is none [default of a new cluster].
    #[arg(long)]
    fs: bool,
    /// Make no file system.
    #[arg(long, conflicts_with = "fs")]
    no_fs: bool,
    /// Start an object gateway (S3) from port 7480 on, and make a user `demo` [default of a new
    /// cluster].
    #[arg(long)]
    s3: bool,
    /// Start no object gateway.
    #[arg(long, conflicts_with = "s3")]
    no_s3: bool,
    /// Start only monitors, OSDs and what else is asked for by name.
    #[arg(long)]
    minimal: bool,
}

impl Roles {
    /// Whether a file system and a gateway are wanted; `None` where nothing was said.
    fn asked(&self) -> (Option<bool>, Option<bool>) {
        let said = |yes: bool, no: bool| (yes || no).then_some(yes);
        (said(self.fs, self.no_fs), said(self.s3, self.no_s3))
    }
}

#[derive(Subcommand)]
enum Verb {
    /// Start a cluster on this machine; make it first if the directory has none.
    Up {
        #[command(flatten)]
        dir: Dir,
        /// Monitors of a new cluster: 1, 3, 5, 7 or 9 [default: 3].
        #[arg(long)]
        mons: Option<u32>,
        /// OSDs; more than there are makes the others [default of a new cluster: 3].
        #[arg(long)]
        osds: Option<u32>,
        /// Metadata servers; more than there are makes the others [default with a file system: 2].
        #[arg(long)]
        mds: Option<u32>,
        /// Managers; more than there are makes the others; with 0 the leading monitor serves light
        /// manager commands [default of a new cluster: 2].
        #[arg(long)]
        mgrs: Option<u32>,
        #[command(flatten)]
        roles: Roles,
        /// Replicas of new pools of a new cluster [default: 3].
        #[arg(long)]
        size: Option<u32>,
        /// Bytes of the block file of each OSD that is made, for example 12G [default: 12G].
        #[arg(long, value_parser = size)]
        osd_bytes: Option<u64>,
        /// The first monitor's port in a new cluster; where it is in use, it is P + 100, P + 200, ...
        /// [default: 3300].
        #[arg(long)]
        port: Option<u16>,
        /// Address of this machine that all daemons of a new cluster use, for clients on others
        /// [default: 127.0.0.1].
        #[arg(long)]
        addr: Option<std::net::Ipv4Addr>,
        /// Kind of a new cluster's keys: `aes`, which all clients know, or `aes256k` alone, as in new
        /// clusters of Ceph 20.2.4; kernels before 7.0 and clients before 19.2.6 cannot log in then
        /// [default: aes].
        #[arg(long, value_parser = key_kind)]
        auth: Option<auth::KeyKind>,
        /// Stay, and stop the cluster on Ctrl-C.
        #[arg(long)]
        foreground: bool,
    },
    /// Stop the cluster; its data stays.
    Down(Dir),
    /// Stop daemons of the cluster; they stay stopped until `start` or the next `up`.
    Stop {
        #[command(flatten)]
        dir: Dir,
        /// mon.a, osd.0, ..., or all of a type: osd; by default all.
        daemon: Option<String>,
    },
    /// Start daemons that were stopped.
    Start {
        #[command(flatten)]
        dir: Dir,
        /// mon.a, osd.0, ..., or all of a type: osd; by default all.
        daemon: Option<String>,
    },
    /// Stop daemons and start them again, one after the other.
    Restart {
        #[command(flatten)]
        dir: Dir,
        /// mon.a, osd.0, ..., or all of a type: osd; by default all.
        daemon: Option<String>,
    },
    /// Show the daemons and the cluster's status.
    Status(Dir),
    /// Print the daemons' logs.
    Logs {
        #[command(flatten)]
        dir: Dir,
        /// Only this daemon's: mon.a, osd.0, supervise.
        daemon: Option<String>,
        /// Go on as they grow.
        #[arg(short, long)]
        follow: bool,
    },
    /// Stop the cluster and remove its data.
    Rm {
        #[command(flatten)]
        dir: Dir,
        /// Do not ask.
        #[arg(long)]
        yes: bool,
    },
    /// Run one monitor, or make one that joins a cluster.
    #[command(args_conflicts_with_subcommands = true)]
    Mon {
        #[command(subcommand)]
        join: Option<MonVerb>,
        #[command(flatten)]
        daemon: Daemon,
    },
    /// Run one object gateway, as client.rgw.ID: S3 on the cluster.
    Rgw {
        #[command(flatten)]
        daemon: Daemon,
    },
    /// Run one OSD, or make one of a cluster that runs.
    #[command(args_conflicts_with_subcommands = true)]
    Osd {
        #[command(subcommand)]
        new: Option<OsdVerb>,
        #[command(flatten)]
        daemon: Daemon,
    },
    /// Run one metadata server.
    Mds {
        /// Its name: a for mds.a.
        #[arg(short, long)]
        id: String,
        /// The cluster's ceph.conf.
        #[arg(short, long, env = "CEPH_CONF", default_value = "/etc/ceph/ceph.conf")]
        conf: PathBuf,
    },
    /// Run one manager: metrics, and tasks in the background. Several of them: one serves, the others
    /// wait.
    Mgr {
        /// Its name: x for mgr.x.
        #[arg(short, long)]
        id: String,
        /// The cluster's ceph.conf.
        #[arg(short, long, env = "CEPH_CONF", default_value = "/etc/ceph/ceph.conf")]
        conf: PathBuf,
    },
    /// Serve the counters of this host's daemons for Prometheus, as `ceph-exporter`.
    Exporter {
        /// Where their admin sockets are, in place of `exporter_sock_dir`.
        #[arg(long)]
        sock_dir: Option<PathBuf>,
        /// The cluster's ceph.conf.
        #[arg(short, long, env = "CEPH_CONF", default_value = "/etc/ceph/ceph.conf")]
        conf: PathBuf,
    },
    /// Make a cluster of which this host is the first; other hosts join it.
    Init(hosts::Init),
    /// Have this host join a cluster, or give it more disks when it has joined.
    Join(hosts::Join),
    /// Make a token by which one host may join; list or revoke tokens.
    Token(hosts::TokenVerb),
    /// Have this host leave its cluster, with its data moved elsewhere first; or forget a lost host.
    Leave(hosts::Leave),
    /// Make a cluster on several hosts, or change it, over ssh from one place; start, stop and restart
    /// its daemons.
    Deploy(hosts::deploy::Deploy),
    /// Keep a cluster's daemons running (started by `up`).
    #[command(hide = true)]
    Supervise(Dir),
    /// Send a command to the monitors, as `ceph` does.
    Ceph {
        #[command(flatten)]
        connect: client::Connect,
        /// json, json-pretty, ...
        #[arg(short, long)]
        format: Option<String>,
        /// The command's words.
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<String>,
    },
    /// Read and write objects, as `rados` does.
    Rados {
        #[command(flatten)]
        connect: client::Connect,
        /// The pool.
        #[arg(short, long)]
        pool: Option<String>,
        /// The namespace.
        #[arg(short = 'N', long, default_value = "")]
        namespace: String,
        #[command(subcommand)]
        verb: client::RadosVerb,
    },
    /// Block device images, as `rbd` does.
    Rbd {
        #[command(flatten)]
        connect: client::Connect,
        /// No progress on standard error.
        #[arg(long)]
        no_progress: bool,
        #[command(subcommand)]
        verb: Box<rbd_verbs::Verb>,
    },
    /// Users, keys and buckets of the object gateway.
    S3 {
        #[command(flatten)]
        connect: client::Connect,
        #[command(subcommand)]
        verb: s3_verbs::Verb,
    },
    /// Object classes of your own: WebAssembly modules that run inside the OSDs.
    Cls {
        #[command(flatten)]
        connect: client::Connect,
        #[command(subcommand)]
        verb: classes::ClsVerb,
    },
    /// Look at and change the store of an OSD that is down.
    Store(store_tool::StoreTool),
    /// Read, write, edit and test CRUSH maps, as crushtool does.
    Crushtool {
        /// crushtool's arguments.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Print what a shell reads to complete these commands.
    Completions {
        /// The shell.
        shell: manual::Shell,
    },
    /// Write the manual pages of all commands to a directory.
    #[command(hide = true)]
    Man {
        /// The directory.
        dir: PathBuf,
    },
}

/// Reads the kind of a key.
fn key_kind(text: &str) -> Result<auth::KeyKind, String> {
    auth::KeyKind::cipher_named(text)
        .ok_or_else(|| format!("'{text}' is no kind of key: aes or aes256k"))
}

fn size(text: &str) -> Result<u64, String> {
    conf::parse_size(text).ok_or_else(|| "bytes, for example 4096, 64K, 4G".to_owned())
}

fn main() -> ExitCode {
    types::release::set_commit(env!("ARGONAUT_COMMIT"));
    if let Some((program, args)) = names::called(std::env::args_os()) {
        return program.run(&args);
    }
    let first = std::env::args_os().nth(1).unwrap_or_default();
    if ["--version", "-V", "-v"].iter().any(|flag| first == *flag) {
        say!("{}", types::release::version());
        return ExitCode::SUCCESS;
    }
    match run(Cli::parse().verb) {
        Ok(code) => code,
        Err(err) => {
            tell!("argonaut: {}", crate::say::Why(&err));
            ExitCode::FAILURE
        }
    }
}

fn run(verb: Verb) -> Result<ExitCode> {
    // Files that a client's verb writes for its user are as the user's umask wants them.
    let is_client = matches!(
        verb,
        Verb::Ceph { .. }
            | Verb::Rados { .. }
            | Verb::Rbd { .. }
            | Verb::S3 { .. }
            | Verb::Cls { .. }
            | Verb::Crushtool { .. }
            | Verb::Man { .. }
    );
    if !is_client {
        daemon::private::umask();
    }
    match verb {
        Verb::Up {
            dir,
            mons,
            osds,
            mds,
            mgrs,
            roles,
            size,
            osd_bytes,
            port,
            addr,
            auth,
            foreground,
        } => {
            let (fs, s3) = roles.asked();
            let mut asked =
                layout::Asked { mons, osds, mds, mgrs, fs, s3, size, osd_bytes, port, addr, auth };
            if roles.minimal {
                asked = asked.minimal();
            }
            up::up(&dir.dir, &asked, foreground)?;
        }
        Verb::Init(words) => hosts::init(words)?,
        Verb::Join(words) => hosts::join(words)?,
        Verb::Token(words) => hosts::token(&words)?,
        Verb::Leave(words) => hosts::leave(words)?,
        Verb::Deploy(words) => hosts::deploy::deploy(&words)?,
        Verb::Down(dir) => up::down(&dir.path())?,
        Verb::Stop { dir, daemon } => {
            let layout = up::existing(&dir.path())?;
            for one in supervise::meant(&layout, daemon.as_deref())? {
                supervise::stop_one(&layout, &one)?;
            }
        }
        Verb::Start { dir, daemon } => {
            let layout = up::existing(&dir.path())?;
            hosts::launch(&layout)?;
            for one in supervise::meant(&layout, daemon.as_deref())? {
                supervise::start_one(&layout, &one)?;
            }
        }
        Verb::Restart { dir, daemon } => {
            let layout = up::existing(&dir.path())?;
            for one in supervise::meant(&layout, daemon.as_deref())? {
                supervise::stop_one(&layout, &one)?;
                supervise::start_one(&layout, &one)?;
            }
        }
        Verb::Status(dir) => up::status(&dir.path())?,
        Verb::Logs { dir, daemon, follow } => up::logs(&dir.path(), daemon.as_deref(), follow)?,
        Verb::Rm { dir, yes } => remove::remove(&dir.dir, yes)?,
        Verb::Mon { join: Some(MonVerb::Join { daemon, addr }), .. } => {
            mon_daemon::join(&daemon.conf, daemon.id()?, daemon.keyring.as_deref(), &addr)?;
        }
        Verb::Mon { daemon, .. } => {
            let (config, id) = (daemon.options("mon")?, daemon.id()?);
            if daemon.mkfs {
                mon_daemon::mkfs_one(&config, id, daemon.keyring.as_deref())?;
            } else {
                mon_daemon::main(config, id)?;
            }
        }
        Verb::Osd { new: Some(OsdVerb::New { connect, device, force }), .. } => {
            let id = osd_new::new(&connect, device.as_deref(), force)?;
            say!("{id}");
            tell!("osd.{id} is made; start it: argonaut osd -i {id}");
        }
        Verb::Osd {
            new: Some(OsdVerb::Replace { connect, id, device, force, lose_data }), ..
        } => {
            osd_new::replace(&connect, id, device.as_deref(), force, lose_data)?;
            say!(
                "osd.{id} is made anew; start it: argonaut osd -i {id}, in a cluster of `up` argonaut start osd.{id}"
            );
        }
        Verb::S3 { connect, verb } => return s3_verbs::run(&connect, verb),
        Verb::Rgw { daemon } => {
            let name = format!("rgw.{}", daemon.id()?);
            rgw_daemon::main(daemon::options(&daemon.conf, "client", &name)?, &name)?;
        }
        Verb::Osd { daemon, .. } => {
            let (config, id) = (daemon.options("osd")?, daemon.id()?);
            if daemon.mkfs {
                osd_mkfs::main(&config, id, daemon.keyring.as_deref(), daemon.force)?;
            } else {
                osd_daemon::main(config, id)?;
            }
        }
        Verb::Mds { id, conf } => mds_daemon::main(daemon::options(&conf, "mds", &id)?, &id)?,
        Verb::Exporter { sock_dir, conf } => {
            exporter::main(daemon::options(&conf, "client", "ceph-exporter")?, sock_dir)?;
        }
        Verb::Mgr { id, conf } => mgr_daemon::main(daemon::options(&conf, "mgr", &id)?, &id)?,
        Verb::Supervise(dir) => supervise::run(&layout::Layout::new(&dir.dir)?)?,
        Verb::Ceph { connect, format, words } => {
            return ceph_verb::ceph(&connect, &words, format.as_deref());
        }
        Verb::Rados { connect, pool, namespace, verb } => {
            return client::rados(&connect, pool.as_deref(), &namespace, &verb);
        }
        Verb::Rbd { connect, no_progress, verb } => {
            return rbd_verbs::run(&connect, &verb, no_progress);
        }
        Verb::Cls { connect, verb } => return classes::run(&connect, &verb),
        Verb::Store(tool) => return store_tool::run(&tool),
        Verb::Crushtool { args } => return Ok(ExitCode::from(crushtool(&args))),
        Verb::Completions { shell } => manual::completions(Cli::command(), shell),
        Verb::Man { dir } => manual::pages(Cli::command(), &dir)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// The files of this machine, for `crushtool`.
struct LocalFiles;

impl crush::crushtool::Files for LocalFiles {
    fn read(&mut self, path: &str) -> std::io::Result<Vec<u8>> {
        if path == "-" {
            let mut data = Vec::new();
            std::io::stdin().read_to_end(&mut data)?;
            return Ok(data);
        }
        std::fs::read(path)
    }

    fn write(&mut self, path: &str, data: &[u8]) -> std::io::Result<()> {
        use std::io::Write;
        target::output(path.as_ref()).map_err(std::io::Error::other)?.write_all(data)
    }
}

fn crushtool(args: &[String]) -> u8 {
    let (mut out, mut err) = (crate::say::out(), std::io::stderr().lock());
    let mut io = crush::crushtool::Io { out: &mut out, err: &mut err, files: &mut LocalFiles };
    crush::crushtool::main(args, &mut io).clamp(0, 255) as u8
}
