//! `argonaut ceph WORDS`: upstream's command line for monitors, managers and single daemons.
//!
//! Source: the peer's `ceph.in` and `pybind/ceph_argparse.py`: who answers a command is said by its
//! description (flag `mgr`), by `tell NAME`, or by `daemon NAME`.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use conf::key;
use messages::{Command, CommandReply, LogMsg, Message};
use rados::{Cluster, News};
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;
use types::{AddrVec, EntityKind, EntityName, Features, OsdId};

use crate::client::Connect;
use crate::words::{Matched, match_words};

/// The bit of a description's `flags` by which the manager answers a command.
const FLAG_MGR: u64 = 8;
/// How long a daemon may take to answer at its socket.
const SOCKET_MAX: Duration = Duration::from_secs(60);
/// How long one monitor may take to open a session and to answer.
const TELL_MAX: Duration = Duration::from_secs(30);
const DESCRIPTIONS: &str = r#"{"prefix":"get_command_descriptions"}"#;

/// A command line, without what says who asks.
#[derive(Debug, Default, PartialEq, Eq)]
struct Line {
    words: Vec<String>,
    format: Option<String>,
    /// `-i FILE`: what goes with the command.
    input: Option<PathBuf>,
    /// `-o FILE`: where the output goes.
    output: Option<PathBuf>,
    /// `-w`, `--watch-warn`, …: the log from here on, from that level.
    watch: Option<&'static str>,
}

impl Line {
    fn parse(given: &[String]) -> Result<Self> {
        let mut line = Self::default();
        let mut given = given.iter();
        while let Some(word) = given.next() {
            let (flag, joined) = match word.split_once('=').filter(|_| word.starts_with("--")) {
                Some((flag, value)) => (flag, Some(value.to_owned())),
                None => (word.as_str(), None),
            };
            let mut value = || {
                joined
                    .clone()
                    .or_else(|| given.next().cloned())
                    .context(format!("{flag} wants a value"))
            };
            match flag {
                "-i" | "--in-file" => line.input = Some(value()?.into()),
                "-o" | "--out-file" => line.output = Some(value()?.into()),
                "-f" | "--format" => line.format = Some(value()?),
                "-s" | "--status" => line.words.push("status".into()),
                "-w" | "--watch" | "--watch-info" => line.watch = Some("log-info"),
                "--watch-debug" => line.watch = Some("log-debug"),
                "--watch-sec" => line.watch = Some("log-sec"),
                "--watch-warn" => line.watch = Some("log-warn"),
                "--watch-error" => line.watch = Some("log-error"),
                _ => line.words.push(word.clone()),
            }
        }
        if line.watch.is_some() && line.words.is_empty() {
            line.words.push("status".into());
        }
        Ok(line)
    }

    fn input(&self) -> Result<Bytes> {
        let Some(path) = &self.input else { return Ok(Bytes::new()) };
        let mut all = Vec::new();
        crate::client::open(path)?.read_to_end(&mut all)?;
        Ok(all.into())
    }

    /// Finds the command that `words` mean, with the format that is asked for.
    /// Returns its JSON, and whether it is the manager's.
    fn command(&self, described: &[u8], words: &[String]) -> Result<(String, bool)> {
        let Matched { mut command, flags } =
            match_words(described, words).map_err(anyhow::Error::msg)?;
        if let Some(format) = &self.format {
            command.insert("format".to_owned(), format.as_str().into());
        }
        Ok((Value::Object(command).to_string(), flags & FLAG_MGR != 0))
    }
}

/// An answer: result code, line for people, output.
type Answer = (i32, String, Bytes);

/// Runs a command line. Prints what is answered; the exit code is the errno.
///
/// # Errors
/// When nobody answers, or no command is meant.
pub fn ceph(how: &Connect, words: &[String], format: Option<&str>) -> Result<ExitCode> {
    let mut line = Line::parse(words)?;
    line.format = line.format.or_else(|| format.map(str::to_owned));
    if line.words.first().is_some_and(|w| w == "daemon") {
        return daemon(how, &line);
    }
    rt::run_local(async {
        let services = [EntityKind::MGR, EntityKind::OSD, EntityKind::MDS];
        let (news, mut told) = mpsc::unbounded_channel();
        let config = how.config()?;
        let cluster = Cluster::connect_beside(
            config.clone(),
            &services,
            move |one| {
                news.send(one).ok();
            },
            |_| {},
        )
        .await?;
        if line.words.first().is_some_and(|w| w == "tell") {
            return tell_daemons(&cluster, &config, &line).await;
        }
        let code = whole(&cluster, &line).await?;
        if let Some(level) = line.watch {
            cluster.subscribe(level, 0);
            say!("");
            while let Some(news) = told.recv().await {
                let News::Message(env) = news else { continue };
                if env.kind != LogMsg::KIND {
                    continue;
                }
                let log = LogMsg::decode(&env)?;
                cluster.got(level, log.paxos.version + 1);
                for entry in log.entries {
                    say!("{} {} [{}] {}", entry.stamp, entry.name, entry.prio.short(), entry.msg);
                }
            }
        }
        Ok(code)
    })?
}

/// A command of the whole cluster: the monitors', or the manager's.
async fn whole(cluster: &Cluster, line: &Line) -> Result<ExitCode> {
    let described = cluster.mon(DESCRIPTIONS).await?;
    let (json, is_mgr) = line.command(&described, &line.words)?;
    let answer = match is_mgr {
        true => {
            cluster
                .daemon_command(mgr(cluster).await?, EntityKind::MGR, &json, line.input()?)
                .await?
        }
        false => cluster.mon_command(&json, line.input()?).await?,
    };
    show(line, "", answer)
}

/// The active manager's addresses.
async fn mgr(cluster: &Cluster) -> Result<AddrVec> {
    let dump = ask_json(cluster, "mgr dump").await?;
    addrs(&dump["active_addrs"]).context("no manager is active: `argonaut ceph mgr stat`")
}

async fn ask_json(cluster: &Cluster, prefix: &str) -> Result<Value> {
    let command = json!({"prefix": prefix, "format": "json"}).to_string();
    Ok(serde_json::from_slice(&cluster.mon(&command).await?)?)
}

/// Addresses in the peer's JSON; none where nobody listens.
pub fn addrs(value: &Value) -> Option<AddrVec> {
    let all = value["addrvec"].as_array()?;
    let one = |a: &Value| {
        let text = format!("{}:{}/{}", a["type"].as_str()?, a["addr"].as_str()?, a["nonce"]);
        text.parse::<types::EntityAddr>().ok()
    };
    let all: Vec<_> = all.iter().filter_map(one).collect();
    (!all.is_empty()).then_some(AddrVec(all))
}

/// Prints an answer, or puts it into the file that is asked for.
fn show(line: &Line, who: &str, (r, rs, out): Answer) -> Result<ExitCode> {
    match &line.output {
        Some(path) if r >= 0 && path.as_os_str() != "-" => {
            crate::target::output(path)?.write_all(&out)?;
        }
        _ => {
            if !who.is_empty() && !out.is_empty() {
                say!("{who}:");
            }
            crate::say::out().write_all(&out)?;
            if !out.is_empty() && !out.ends_with(b"\n") {
                say!("");
            }
        }
    }
    if r < 0 {
        let said = std::io::Error::from_raw_os_error(-r);
        let who = if who.is_empty() { String::new() } else { format!("{who}: ") };
        tell!("Error: {who}{rs} ({said})");
        return Ok(ExitCode::from((-r).clamp(1, 255) as u8));
    }
    if !rs.is_empty() {
        tell!("{rs}");
    }
    Ok(ExitCode::SUCCESS)
}

/// One daemon to be told something.
#[derive(Debug)]
struct Addressee {
    name: String,
    kind: EntityKind,
    addrs: AddrVec,
}

/// `tell NAME WORDS`: `osd.3`, `mds.a`, `mds.0`, `mds.cephfs:0`, `mon.a`, `mgr`, `mgr.x`, and `TYPE.*`.
async fn tell_daemons(cluster: &Cluster, config: &rados::Config, line: &Line) -> Result<ExitCode> {
    let Some((name, words)) = line.words[1..].split_first().filter(|(_, w)| !w.is_empty()) else {
        bail!("wanted: tell NAME COMMAND, as `tell osd.0 perf dump`");
    };
    let (kind, id) = name.split_once('.').unwrap_or((name, ""));
    let all = match kind {
        "osd" => osds(cluster, id)?,
        "mds" => servers(&ask_json(cluster, "fs dump").await?, id)?,
        "mgr" => managers(&ask_json(cluster, "mgr dump").await?, id)?,
        "mon" => monitors(&ask_json(cluster, "mon dump").await?, id)?,
        _ => bail!("'{name}' is no daemon that can be told: osd.ID, mds.NAME, mon.NAME or mgr"),
    };
    let mut worst = ExitCode::SUCCESS;
    let several = all.len() > 1;
    for one in all {
        let ask = |json: String, input: Bytes| ask_one(cluster, config, &one, json, input);
        let (r, rs, described) = ask(DESCRIPTIONS.to_owned(), Bytes::new()).await?;
        if r < 0 {
            return show(line, &one.name, (r, rs, described));
        }
        let (command, _) = line.command(&described, words)?;
        let answer = ask(command, line.input()?).await?;
        let failed = answer.0 < 0;
        let code = show(line, if several { &one.name } else { "" }, answer)?;
        if failed {
            worst = code;
        }
    }
    Ok(worst)
}

async fn ask_one(
    cluster: &Cluster,
    config: &rados::Config,
    one: &Addressee,
    json: String,
    input: Bytes,
) -> Result<Answer> {
    if one.kind != EntityKind::MON {
        return Ok(cluster.daemon_command(one.addrs.clone(), one.kind, &json, input).await?);
    }
    // One monitor is asked in a session of its own.
    let at = one.addrs.msgr2().context("this monitor has no address of messenger v2")?;
    let config = rados::Config { mons: vec![at], connect_timeout: TELL_MAX, ..config.clone() };
    let (news, mut told) = mpsc::unbounded_channel();
    let tell = move |one| {
        news.send(one).ok();
    };
    let session = Cluster::connect_beside(config, &[], tell, |_| {}).await?;
    let cmd = vec![Bytes::from(json)];
    let command = Command { fsid: session.map().fsid, cmd, input };
    session.send_mon(command.envelope(Features::ALL).with_tid(1));
    let answer = async {
        while let Some(news) = told.recv().await {
            if let News::Message(env) = news
                && env.kind == CommandReply::KIND
            {
                let reply = CommandReply::decode(&env)?;
                return Ok((reply.r, reply.rs, reply.output));
            }
        }
        bail!("{} went away", one.name)
    };
    tokio::time::timeout(TELL_MAX, answer).await.context(format!("{} does not answer", one.name))?
}

fn osds(cluster: &Cluster, id: &str) -> Result<Vec<Addressee>> {
    let map = cluster.map();
    let up = |id: OsdId| {
        let addrs = map.osd_addrs(id).filter(|_| map.is_up(id)).cloned()?;
        Some(Addressee { name: format!("osd.{id}"), kind: EntityKind::OSD, addrs })
    };
    if id == "*" {
        return Ok((0..map.max_osd).filter_map(|id| up(OsdId(id))).collect());
    }
    let id = OsdId(id.parse().ok().with_context(|| format!("'{id}' is no OSD's number"))?);
    Ok(vec![up(id).with_context(|| format!("osd.{id} is not up"))?])
}

/// Metadata servers by name, rank, or file system and rank.
fn servers(dump: &Value, id: &str) -> Result<Vec<Addressee>> {
    let mut all = Vec::new();
    let of = |info: &Value| {
        let name = format!("mds.{}", info["name"].as_str()?);
        Some(Addressee { name, kind: EntityKind::MDS, addrs: addrs(&info["addrs"])? })
    };
    for fs in dump["filesystems"].as_array().into_iter().flatten() {
        let fs_name = fs["mdsmap"]["fs_name"].as_str().unwrap_or_default();
        for info in fs["mdsmap"]["info"].as_object().into_iter().flat_map(Map::values) {
            let rank = info["rank"].as_i64().unwrap_or(-1);
            let is_it = id == "*"
                || info["name"] == id
                || rank >= 0 && (id == rank.to_string() || id == format!("{fs_name}:{rank}"));
            all.extend(of(info).filter(|_| is_it));
        }
    }
    let standbys = dump["standbys"].as_array().into_iter().flatten();
    all.extend(standbys.filter(|i| id == "*" || i["name"] == id).filter_map(of));
    if all.is_empty() && id != "*" {
        bail!("no metadata server is '{id}': `argonaut ceph fs status`");
    }
    Ok(all)
}

fn managers(dump: &Value, id: &str) -> Result<Vec<Addressee>> {
    let active = dump["active_name"].as_str().unwrap_or_default();
    if !id.is_empty() && id != "*" && id != active {
        bail!("mgr.{id} is not active: only the active manager, '{active}', answers");
    }
    let addrs = addrs(&dump["active_addrs"]).context("no manager is active")?;
    Ok(vec![Addressee { name: format!("mgr.{active}"), kind: EntityKind::MGR, addrs }])
}

fn monitors(dump: &Value, id: &str) -> Result<Vec<Addressee>> {
    let all = dump["mons"].as_array().into_iter().flatten();
    let rank = id.parse::<u64>().ok();
    let is_it =
        |m: &&Value| id == "*" || m["name"] == id || rank.is_some() && m["rank"].as_u64() == rank;
    let of = |m: &Value| {
        let name = format!("mon.{}", m["name"].as_str()?);
        Some(Addressee { name, kind: EntityKind::MON, addrs: addrs(&m["public_addrs"])? })
    };
    let all: Vec<_> = all.filter(is_it).filter_map(of).collect();
    if all.is_empty() {
        bail!("no monitor is '{id}': `argonaut ceph mon dump`");
    }
    Ok(all)
}

/// `daemon NAME WORDS`: by the admin socket of a daemon of this host.
fn daemon(how: &Connect, line: &Line) -> Result<ExitCode> {
    let Some((name, words)) = line.words[1..].split_first().filter(|(_, w)| !w.is_empty()) else {
        bail!(
            "wanted: daemon NAME COMMAND, as `daemon osd.0 perf dump`; NAME may be a socket's path"
        );
    };
    let socket = match name.contains('/') {
        true => PathBuf::from(name),
        false => {
            let name: EntityName = name.parse().map_err(anyhow::Error::msg)?;
            socket_of(&how.conf, &name)?
        }
    };
    let described = ::daemon::asok::ask(&socket, DESCRIPTIONS, SOCKET_MAX)?;
    let (command, _) = line.command(described.as_bytes(), words)?;
    let answer = ::daemon::asok::ask(&socket, &command, SOCKET_MAX)?;
    show(line, "", (0, String::new(), answer.into()))
}

/// Where a daemon of this host has its socket, by its ceph.conf.
fn socket_of(conf: &Path, name: &EntityName) -> Result<PathBuf> {
    let config = ::daemon::options(conf, name.kind.name(), &name.id)?;
    Ok(config.get(key::ADMIN_SOCKET).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> Result<Line> {
        Line::parse(&text.split(' ').map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn options_stand_anywhere() {
        let osd = line("osd getcrushmap -o out --format=json").unwrap();
        assert_eq!(osd.words, ["osd", "getcrushmap"]);
        assert_eq!((osd.output, osd.format), (Some("out".into()), Some("json".into())));
        let pool = line("osd pool create x --size=3 -i in").unwrap();
        assert_eq!(pool.words, ["osd", "pool", "create", "x", "--size=3"]);
        assert_eq!(pool.input, Some("in".into()));
        assert_eq!(line("-s").unwrap().words, ["status"]);
        let watch = line("--watch-warn").unwrap();
        assert_eq!((watch.words, watch.watch), (vec!["status".to_owned()], Some("log-warn")));
        assert!(line("osd dump -f").unwrap_err().to_string().contains("-f wants a value"));
    }

    #[test]
    fn servers_are_named_in_upstream_s_ways() {
        let at = |port| json!({"addrvec": [{"type": "v2", "addr": format!("127.0.0.1:{port}"), "nonce": 5}]});
        let dump = json!({
            "standbys": [{"name": "b", "rank": -1, "addrs": at(2)}],
            "filesystems": [{"mdsmap": {"fs_name": "one", "info": {
                "gid_1": {"name": "a", "rank": 0, "addrs": at(1)}}}}],
        });
        let names = |id: &str| -> Vec<String> {
            servers(&dump, id)
                .map(|all| all.into_iter().map(|a| a.name).collect())
                .unwrap_or_default()
        };
        assert_eq!(names("a"), ["mds.a"]);
        assert_eq!(names("0"), ["mds.a"]);
        assert_eq!(names("one:0"), ["mds.a"]);
        assert_eq!(names("b"), ["mds.b"]);
        assert_eq!(names("*"), ["mds.a", "mds.b"]);
        assert!(names("two:0").is_empty() && names("-1").is_empty());
        let addrs = servers(&dump, "b").unwrap().remove(0).addrs;
        assert_eq!(addrs.to_string(), "v2:127.0.0.1:2/5");
    }
}
