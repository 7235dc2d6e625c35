//! `argonaut deploy`: `init`, `join` and `leave` on other hosts, over ssh, from one of them or from
//! outside. The program is there already; keys and tokens go through standard input, and stand in no
//! command line.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use super::old_conf::{self, Plan, Wanted};

/// What `argonaut deploy` is told.
#[derive(clap::Args)]
pub struct Deploy {
    /// Hosts as ssh knows them, the first of the cluster first; or start, stop, restart and what: mon,
    /// osd.3, nothing for all.
    words: Vec<String>,
    /// A ceph.conf that says on which host each daemon is, as mkcephfs took it.
    #[arg(short, long, value_name = "FILE")]
    conf: Option<PathBuf>,
    /// The network of clients and daemons of a new cluster.
    #[arg(long)]
    network: Option<String>,
    /// OSDs in files on each host that is named here.
    #[arg(long, default_value_t = 0, value_name = "N")]
    osds: u32,
    /// Bytes of each such file.
    #[arg(long, value_name = "SIZE")]
    osd_bytes: Option<String>,
    /// Disks of each host that is named here: `all`, or devices.
    #[arg(long, value_delimiter = ',')]
    disks: Vec<String>,
    /// One more OSD, on a disk or in a file of a host.
    #[arg(long, value_name = "HOST[:DISK]")]
    add_osd: Vec<String>,
    /// A monitor on a host, up to five.
    #[arg(long, value_name = "HOST")]
    add_mon: Vec<String>,
    /// A metadata server on a host.
    #[arg(long, value_name = "HOST")]
    add_mds: Vec<String>,
    /// A ceph.conf in /etc/ceph of a host, and the key of client.HOST, that may read and write.
    #[arg(long, value_name = "HOST")]
    add_client: Vec<String>,
    /// Have a host leave, with its data moved elsewhere first.
    #[arg(long, value_name = "HOST")]
    purge: Vec<String>,
    /// With start, stop and restart: on all hosts, not on this one.
    #[arg(short, long)]
    all: bool,
    /// For start, stop and restart, and for --add-...: the hosts of the cluster, the first one first.
    #[arg(long, value_delimiter = ',', value_name = "HOST,..")]
    hosts: Vec<String>,
    /// The directory on each host.
    #[arg(long, default_value = super::DIR)]
    dir: String,
    /// The program on each host.
    #[arg(long, default_value = "argonaut")]
    program: String,
    /// How a command is run on another host.
    #[arg(long, default_value = "ssh -o BatchMode=yes")]
    ssh: String,
}

/// For a shell.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

impl Deploy {
    /// Runs the program on a host; what it prints comes back, and is shown unless `quiet`.
    fn run(&self, host: &str, words: &[&str], input: &str, quiet: bool) -> Result<String> {
        let line: Vec<String> =
            [self.program.as_str()].iter().chain(words).map(|word| quoted(word)).collect();
        self.shell(host, &line.join(" "), input, quiet)
    }

    fn shell(&self, host: &str, line: &str, input: &str, quiet: bool) -> Result<String> {
        let mut ssh = self.ssh.split_whitespace();
        let mut run = Command::new(ssh.next().context("--ssh names a program")?)
            .args(ssh)
            .arg("--")
            .arg(host)
            .arg(line)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot run {}", self.ssh))?;
        let mut to = run.stdin.take().context("piped")?;
        // A host that reads nothing of it has ended, and says why.
        to.write_all(input.as_bytes()).ok();
        drop(to);
        let out = run.wait_with_output()?;
        let (said, told) =
            (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
        if !out.status.success() {
            bail!("{host}: {}", told.trim().lines().last().unwrap_or("it failed without a word"));
        }
        if !quiet {
            for line in said.lines().chain(told.lines()) {
                say!("{host}: {line}");
            }
        }
        Ok(said.into_owned())
    }

    /// As [`Deploy::run`] of a verb with the directory.
    fn verb(&self, host: &str, verb: &str, words: &[&str], input: &str) -> Result<String> {
        let all: Vec<&str> =
            [verb, "--dir", self.dir.as_str()].iter().chain(words).copied().collect();
        // Tokens are for no eyes but the next host's.
        self.run(host, &all, input, verb == "init")
    }

    /// Every host can be reached and has the program, before anything is made anywhere.
    fn ready(&self, hosts: &[String]) -> Result<()> {
        let look = |host: &String| self.run(host, &["--version"], "", true).err();
        let why: Vec<String> =
            hosts.iter().filter_map(look).map(|err| crate::say::Why(&err).to_string()).collect();
        if why.is_empty() { Ok(()) } else { bail!("nothing is made: {}", why.join("; ")) }
    }

    fn ceph_conf(&self) -> String {
        format!("{}/ceph.conf", self.dir)
    }

    /// A token of the cluster whose first host it is; `None` where the host is of none.
    fn token(&self, first: &str) -> Result<Option<String>> {
        let conf = self.ceph_conf();
        let there = format!("test -e {}/argonaut-host && echo there || true", quoted(&self.dir));
        if !self.shell(first, &there, "", true)?.contains("there") {
            return Ok(None);
        }
        let said = self.run(first, &["token", "-c", &conf, "--minutes", "10"], "", true);
        let token = said.ok().as_deref().and_then(token_in);
        Ok(token)
    }

    fn disks_of(&self, wanted: &Wanted) -> Vec<String> {
        let mut words = Vec::new();
        if !wanted.disks.is_empty() {
            words.push(format!("--disks={}", wanted.disks.join(",")));
        }
        if wanted.files > 0 {
            words.push(format!("--osds={}", wanted.files));
            words.extend(self.osd_bytes.iter().map(|bytes| format!("--osd-bytes={bytes}")));
        }
        if wanted.mds {
            words.push("--mds".to_owned());
        }
        words
    }

    /// Has a host join the cluster of the first, or gives it more when it has.
    fn join(&self, first: &str, host: &str, more: &[String]) -> Result<()> {
        let token = self.token(first)?;
        let token = token.with_context(|| format!("{first} is no host of a cluster"))?;
        let words: Vec<&str> = more.iter().map(String::as_str).chain(["-"]).collect();
        let joined = self.verb(host, "join", &words, &format!("{token}\n"));
        // A host that was in already leaves it unused.
        if let Some(id) = token.split('_').nth(3) {
            let conf = self.ceph_conf();
            self.run(first, &["token", "-c", &conf, "--revoke", id], "", true)?;
        }
        joined.map(drop)
    }

    fn make(&self, plan: &Plan) -> Result<()> {
        let hosts: Vec<String> = plan.hosts.iter().map(|(host, _)| host.clone()).collect();
        self.ready(&hosts)?;
        let Some(((first, wanted), others)) = plan.hosts.split_first() else { return Ok(()) };
        if self.token(first)?.is_none() {
            let network = self.network.clone().or_else(|| plan.network.clone()).context(
                "which network the cluster is to use is not said: --network 10.0.0.0/24",
            )?;
            let mut words = vec![format!("--network={network}"), "--options=-".to_owned()];
            words.extend(plan.cluster_network.iter().map(|n| format!("--cluster-network={n}")));
            words.extend(self.disks_of(wanted));
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            self.verb(first, "init", &words, &plan.options)?;
            say!("{first}: the cluster is there");
        } else {
            self.join(first, first, &self.disks_of(wanted))?;
        }
        for (host, wanted) in others {
            self.join(first, host, &self.disks_of(wanted))?;
        }
        let conf = self.ceph_conf();
        self.run(first, &["ceph", "-c", &conf, "status"], "", false).map(drop)
    }

    fn add_client(&self, first: &str, host: &str) -> Result<()> {
        let (conf, name) = (self.ceph_conf(), host.rsplit('@').next().unwrap_or(host));
        let client = format!("client.{name}");
        let ask = ["ceph", "-c", &conf, "auth", "get-or-create", &client];
        let caps = ["mon", "allow r", "osd", "allow rw", "mds", "allow rw"];
        let words: Vec<&str> = ask.into_iter().chain(caps).collect();
        let keyring = self.run(first, &words, "", true)?;
        let minimal =
            self.run(first, &["ceph", "-c", &conf, "config", "generate-minimal-conf"], "", true)?;
        let put = |path: &str, mode: &str, text: &str| {
            let at = quoted(path);
            let line = format!("umask 077; mkdir -p /etc/ceph && cat >{at} && chmod {mode} {at}");
            self.shell(host, &line, text, true)
        };
        put("/etc/ceph/ceph.conf", "644", &minimal)?;
        put(&format!("/etc/ceph/ceph.{client}.keyring"), "600", &keyring)?;
        say!("{host}: /etc/ceph/ceph.conf and the key of {client}: ceph --name {client}");
        Ok(())
    }

    /// `start`, `stop`, `restart` of what is named, on this host or on all.
    fn daemons(&self, action: &str, what: &str, hosts: &[String]) -> Result<()> {
        let words: Vec<&str> = if what.is_empty() { Vec::new() } else { vec![what] };
        if self.all {
            if hosts.is_empty() {
                bail!("which hosts are all is not said: -c FILE or --hosts HOST,..");
            }
            for host in hosts {
                self.verb(host, action, &words, "")?;
            }
            return Ok(());
        }
        let status = Command::new(crate::supervise::program()?)
            .args([action, "--dir", &self.dir])
            .args(words)
            .status()?;
        if !status.success() {
            bail!("{action} has failed on this host");
        }
        Ok(())
    }
}

fn token_in(said: &str) -> Option<String> {
    said.lines().rev().find_map(|line| line.strip_prefix("argonaut join ").map(str::to_owned))
}

/// Makes or changes a cluster over ssh, host by host.
///
/// # Errors
/// When a host cannot be reached, before anything is made; else what fails there. The same command
/// goes on.
pub fn deploy(words: &Deploy) -> Result<()> {
    let mut plan = Plan::default();
    if let Some(path) = &words.conf {
        let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
        plan = old_conf::read(&text).with_context(|| path.display().to_string())?;
    }
    let action = words.words.first().filter(|w| matches!(w.as_str(), "start" | "stop" | "restart"));
    let mut hosts: Vec<String> = plan.hosts.iter().map(|(host, _)| host.clone()).collect();
    hosts.extend(words.hosts.iter().cloned());
    if let Some(action) = action {
        let what = words.words.get(1).map_or("", String::as_str);
        return words.daemons(action, what, &hosts);
    }
    plan.said.iter().for_each(|line| tell!("{line}"));
    for host in &words.words {
        let wanted = Wanted { disks: words.disks.clone(), files: words.osds, ..Wanted::default() };
        plan.hosts.push((host.clone(), wanted));
        hosts.push(host.clone());
    }
    let is_change =
        [&words.add_osd, &words.add_mon, &words.add_mds, &words.add_client, &words.purge]
            .iter()
            .any(|all| !all.is_empty());
    let first = hosts.first().context("no host is named: HOST.., --hosts HOST,.. or -c FILE")?;
    if !is_change || !words.words.is_empty() {
        words.make(&plan)?;
    }
    for osd in &words.add_osd {
        let (host, disk) = osd.split_once(':').map_or((osd.as_str(), None), |(h, d)| (h, Some(d)));
        let more = match disk {
            Some(disk) => vec![format!("--disks={disk}")],
            None => vec!["--add-file".to_owned()]
                .into_iter()
                .chain(words.osd_bytes.iter().map(|bytes| format!("--osd-bytes={bytes}")))
                .collect(),
        };
        words.join(first, host, &more)?;
    }
    for host in &words.add_mon {
        words.join(first, host, &["--mon".to_owned()])?;
    }
    for host in &words.add_mds {
        words.join(first, host, &["--mds".to_owned()])?;
    }
    for host in &words.add_client {
        words.add_client(first, host)?;
    }
    for host in &words.purge {
        words.verb(host, "leave", &[], "")?;
    }
    Ok(())
}
