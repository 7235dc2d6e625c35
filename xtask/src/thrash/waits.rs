//! What clients wait for, seen at their admin sockets: a request that takes long is told while it
//! waits, with what each OSD knows of it.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::sh;

/// How often clients are asked.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// What takes longer is told, and again each time that it has taken as long once more.
const LONG: Duration = Duration::from_secs(25);
/// A process that is stopped does not answer.
const ANSWER_MAX: Duration = Duration::from_millis(300);

/// Arguments that give a client a socket of its own in `dir`.
pub(super) fn args(dir: &Path) -> String {
    format!("--admin-socket={}/client.$pid.$cctid.asok", dir.display())
}

/// Looks after clients' requests.
pub(super) struct Waits {
    /// Where the sockets are.
    dir: PathBuf,
    next: Instant,
    /// When a request was seen first, and when it is told next.
    seen: BTreeMap<(PathBuf, u64), (Instant, Instant)>,
}

impl Waits {
    pub(super) fn new(dir: PathBuf) -> Self {
        Self { dir, next: sh::now(), seen: BTreeMap::new() }
    }

    /// Asks all clients, when it is time, and tells what takes long.
    pub(super) fn look(&mut self) -> Result<()> {
        if sh::now() < self.next {
            return Ok(());
        }
        let (clients, osds) = sockets(&self.dir)?;
        let before = std::mem::take(&mut self.seen);
        for client in clients {
            let Ok(all) = ask(&client, &json!({"prefix": "objecter_requests", "format": "json"}))
            else {
                continue;
            };
            for op in all["ops"].as_array().into_iter().flatten() {
                let key = (client.clone(), op["tid"].as_u64().unwrap_or_default());
                let now = sh::now();
                let (first, mut tell) = before.get(&key).copied().unwrap_or((now, now + LONG));
                if now >= tell {
                    tell = now + LONG;
                    println!("        waits for {} s: {op}", (now - first).as_secs());
                    told_by(&client, key.1, op["pg"].as_str().unwrap_or_default(), &osds);
                }
                self.seen.insert(key, (first, tell));
            }
        }
        self.next = sh::now() + LOOK_EVERY;
        Ok(())
    }
}

/// What the client and the OSDs know of a request.
fn told_by(client: &Path, tid: u64, pg: &str, osds: &[PathBuf]) {
    let plain = |prefix: &str| json!({"prefix": prefix, "format": "json"});
    let map = ask(client, &plain("perf dump")).map(|p| p["objecter"]["map_epoch"].clone());
    println!("            the client's map: {}", map.unwrap_or_default());
    for osd in osds {
        let name = osd.file_stem().unwrap_or_default().display();
        let known = ask(osd, &plain("status"))
            .and_then(|s| Ok((s, ask(osd, &plain("dump_ops_in_flight"))?)));
        let Ok((status, ops)) = known else {
            println!("            {name} does not answer");
            continue;
        };
        let ops = ops["ops"].as_array().map(Vec::as_slice).unwrap_or_default();
        let is_it = |o: &&Value| {
            let what = o["description"].as_str().unwrap_or_default();
            what.contains(&format!(":{tid} "))
        };
        let it: Vec<String> = ops.iter().filter(is_it).map(Value::to_string).collect();
        println!("            {name}: {status}; {} in flight; {}", ops.len(), it.join("; "));
        let it = candidates(pg).into_iter().find_map(|id| {
            let query = json!({"prefix": "query", "pgid": id, "format": "json"});
            ask(osd, &query).ok().filter(|q| q["state"].is_string()).map(|q| (id, q))
        });
        if let Some((id, q)) = it {
            println!(
                "            {id} there: {} {} {}",
                q["state"], q["acting"], q["recovery_state"]
            );
        }
    }
}

/// How each monitor sees the quorum, and how many clients it has.
pub(super) fn tell_monitors(dir: &Path) {
    for name in ["a", "b", "c"] {
        let socket = dir.join(format!("ceph-mon.{name}.asok"));
        let plain = |prefix: &str| ask(&socket, &json!({"prefix": prefix, "format": "json"}));
        let sessions = plain("sessions").map(|s| s.as_array().map_or(0, Vec::len));
        match plain("mon_status") {
            Ok(s) => println!(
                "            mon.{name}: {} since {} s, quorum {}, epoch {}; {} clients",
                s["state"],
                s["quorum_age"],
                s["quorum"],
                s["election_epoch"],
                sessions.unwrap_or_default()
            ),
            Err(e) => println!("            mon.{name} does not answer: {e}"),
        }
    }
}

/// Where an object is whose hash a client shows as `POOL.HASH`: one of these PGs, by how many the
/// pool has.
fn candidates(raw: &str) -> Vec<String> {
    let Some((pool, hash)) = raw.split_once('.') else { return Vec::new() };
    let Ok(hash) = u32::from_str_radix(hash, 16) else { return Vec::new() };
    let mut all: Vec<String> =
        (0..=10).rev().map(|bits| format!("{pool}.{:x}", hash & ((1 << bits) - 1))).collect();
    all.dedup();
    all
}

/// Clients' sockets and OSDs'.
fn sockets(dir: &Path) -> Result<(Vec<PathBuf>, Vec<PathBuf>)> {
    let (mut clients, mut osds) = (Vec::new(), Vec::new());
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        match name.strip_suffix(".asok") {
            Some(n) if n.starts_with("client.") => clients.push(path),
            Some(n) if n.starts_with("ceph-osd.") => osds.push(path),
            _ => {}
        }
    }
    osds.sort();
    Ok((clients, osds))
}

/// A daemon's or client's answer at its admin socket: a line that ends with 0, then a length
/// (u32, big endian) and as many bytes.
fn ask(socket: &Path, command: &Value) -> Result<Value> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(ANSWER_MAX))?;
    stream.set_write_timeout(Some(ANSWER_MAX))?;
    stream.write_all(format!("{command}\0").as_bytes())?;
    let mut len = [0; 4];
    stream.read_exact(&mut len)?;
    let mut text = vec![0; u32::from_be_bytes(len) as usize];
    stream.read_exact(&mut text)?;
    serde_json::from_slice(&text).context("an answer at an admin socket")
}
