//! Clusters over several hosts, each a network namespace: `tests/hosts.sh` makes them.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::cluster::binary;
use crate::report::{LeftOut, Report};
use crate::{lab, sh};

/// What the script ends with where the machine does not let it work.
const CANNOT: i32 = 77;

fn script(dir: &Path, mode: Option<&str>) -> Result<Command> {
    let mut bash = Command::new("bash");
    bash.arg(sh::repo().join("tests/hosts.sh")).arg(binary()?).arg(dir).args(mode);
    Ok(bash)
}

/// Four hosts, some of which are cut off and come back. `short`: less than a minute on a quiet
/// machine. Left out where namespaces cannot be made.
#[must_use]
pub fn hosts(short: bool) -> Report {
    let mut report = Report::default();
    report.check("four hosts", || {
        let dir = Path::new(lab::SHARE).join("argonaut-hosts");
        let out = script(&dir, short.then_some("short"))?
            .stdin(Stdio::null())
            .output()
            .context("bash")?;
        std::fs::remove_dir_all(&dir).ok();
        let text = String::from_utf8_lossy(&out.stdout);
        if out.status.code() == Some(CANNOT) {
            return Err(LeftOut(text.trim().to_owned()).into());
        }
        if !out.status.success() {
            let err = String::from_utf8_lossy(&out.stderr);
            bail!("hosts.sh ended with {}\n{text}\n{err}", out.status);
        }
        for line in text.lines() {
            println!("        {line}");
        }
        Ok(())
    });
    report
}

/// Hosts that join by commands of their own and leave: `tests/join.sh`, or some of its parts. Left out
/// where namespaces cannot be made, or sshd is not there.
///
/// # Errors
/// When there is no such part.
pub fn join(only: &[&str]) -> Result<Report> {
    const PARTS: [(&str, &str); 4] = [
        ("six", "three hosts in six commands"),
        ("refuse", "hosts that are refused"),
        ("again", "join and leave killed and cut off at their steps"),
        ("deploy", "hosts over ssh"),
    ];
    if let Some(other) = only.iter().find(|o| PARTS.iter().all(|(part, _)| part != *o)) {
        bail!("no part is named {other}: six, refuse, again, deploy");
    }
    let mut report = Report::default();
    for (part, name) in PARTS.iter().filter(|(p, _)| only.is_empty() || only.contains(p)) {
        report.check(name, || {
            let dir = Path::new(lab::SHARE).join("argonaut-join");
            let mut bash = Command::new("bash");
            let out = bash
                .arg(sh::repo().join("tests/join.sh"))
                .arg(binary()?)
                .args([dir.as_os_str(), part.as_ref()])
                .stdin(Stdio::null())
                .output()
                .context("bash")?;
            std::fs::remove_dir_all(&dir).ok();
            let text = String::from_utf8_lossy(&out.stdout);
            if out.status.code() == Some(CANNOT) {
                return Err(LeftOut(text.trim().to_owned()).into());
            }
            if !out.status.success() {
                let err = String::from_utf8_lossy(&out.stderr);
                bail!("join.sh {part} ended with {}\n{text}\n{err}", out.status);
            }
            Ok(())
        });
    }
    Ok(report)
}

/// A host of [`Hosts`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Host(u64);

impl Host {
    /// That of an OSD, 0 to 3.
    pub fn osd(osd: u64) -> Self {
        Self(1 + osd)
    }

    /// That of a monitor, 0 to 2.
    pub fn mon(mon: u64) -> Self {
        Self(5 + mon)
    }

    /// Where clients are.
    pub const CLIENTS: Self = Self(8);
}

/// Four OSDs and three monitors on a host each, and one for clients. Daemons that end are
/// started again. Stopped when dropped.
pub struct Hosts {
    script: Child,
    /// What namespaces' names begin with.
    name: String,
    /// The first three numbers of all addresses.
    net: String,
}

impl Hosts {
    /// Starts them in a directory, with stores of that size.
    ///
    /// # Errors
    /// [`LeftOut`] where namespaces cannot be made; when the cluster does not come up, its words.
    pub fn up(dir: &Path, osd_bytes: &str) -> Result<Self> {
        let mut script = script(dir, Some("keep"))?
            .env("OSD_BYTES", osd_bytes)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("bash")?;
        let mut text = String::new();
        for line in BufReader::new(script.stdout.take().expect("piped")).lines() {
            let line = line?;
            if let ["READY", name, net] = line.split(' ').collect::<Vec<_>>()[..] {
                return Ok(Self { script, name: name.to_owned(), net: net.to_owned() });
            }
            text += &line;
            text.push('\n');
        }
        let status = script.wait()?;
        if status.code() == Some(CANNOT) {
            return Err(LeftOut(text.trim().to_owned()).into());
        }
        bail!("hosts.sh ended with {status}\n{text}")
    }

    /// The network namespace of a host.
    pub fn netns(&self, host: Host) -> String {
        format!("{}-h{}", self.name, host.0)
    }

    /// Loses without a word all that `from` sends to each of `to`; what these send arrives.
    ///
    /// # Errors
    /// When `ip` fails.
    pub fn cut(&self, from: Host, to: &[Host]) -> Result<()> {
        // To a station that there is none.
        let line = |to: &Host| {
            format!(
                "neigh replace {}.{} lladdr 02:00:5e:00:00:01 nud permanent dev eth0\n",
                self.net, to.0
            )
        };
        self.ip(from, &to.iter().filter(|to| **to != from).map(line).collect::<String>())
    }

    /// Nothing that `from` sends is lost any more.
    ///
    /// # Errors
    /// When `ip` fails.
    pub fn join(&self, from: Host) -> Result<()> {
        let out = sh::output(Command::new("ip").args(["-n", &self.netns(from), "neigh", "show"]))?;
        let lost = out.lines().filter(|l| l.contains("PERMANENT"));
        let line = |l: &str| {
            let addr = l.split(' ').next().unwrap_or_default();
            format!("neigh del {addr} dev eth0\n")
        };
        self.ip(from, &lost.map(line).collect::<String>())
    }

    fn ip(&self, host: Host, lines: &str) -> Result<()> {
        let netns = self.netns(host);
        sh::output(&mut sh::bash(&format!("ip -n {netns} -batch - <<'END'\n{lines}END\n")))
            .map(drop)
    }

    /// Stops all daemons in good order.
    ///
    /// # Errors
    /// When the script does not end well.
    pub fn down(&mut self) -> Result<()> {
        drop(self.script.stdin.take());
        let status = self.script.wait()?;
        if !status.success() {
            bail!("hosts.sh ended with {status}");
        }
        Ok(())
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        self.down().ok();
    }
}
