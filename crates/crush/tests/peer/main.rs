//! Random maps against the peer's own `crushtool`: mappings, text and bytes, with zero
//! differences.
//!
//! - `ARGONAUT_CRUSHTOOL`: the command that runs the peer's tool (release 20 or later).
//! - `ARGONAUT_CRUSHTOOL_DIR`: a directory that it sees under the same path; by default
//!   `/tmp/ceph-share`.
//! - `ARGONAUT_CRUSH_MAPS`: how many maps, by default 100.
//! - `ARGONAUT_CRUSH_SEED`: the first map's seed, by default 1.

mod edits;
mod generate;
mod words;

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use crush::crushtool::{Files, Io};
use crush::{BucketAlg, text};
use denc::Denc;

use generate::{Case, case};

struct Disk;

impl Files for Disk {
    fn read(&mut self, path: &str) -> io::Result<Vec<u8>> {
        std::fs::read(path)
    }

    fn write(&mut self, path: &str, data: &[u8]) -> io::Result<()> {
        std::fs::write(path, data)
    }
}

fn ours(args: &[String]) -> (i32, String, String) {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let mut io = Io { out: &mut out, err: &mut err, files: &mut Disk };
    let code = crush::crushtool::main(args, &mut io);
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (code, text(out), text(err))
}

struct Peer {
    command: Vec<String>,
}

impl Peer {
    fn run(&self, args: &[String]) -> (Option<i32>, String, String) {
        let mut command = Command::new(&self.command[0]);
        command.args(&self.command[1..]).args(args);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().unwrap();
        // When it crashes it may hang on its way out.
        let (done, output) = mpsc::channel();
        std::thread::spawn(move || done.send(child.wait_with_output()));
        let Ok(output) = output.recv_timeout(Duration::from_secs(60)) else {
            return (None, String::new(), format!("no end of {args:?}"));
        };
        let output = output.unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        (output.status.code(), text(output.stdout), text(output.stderr))
    }
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().map_or(default, |n| n.parse().expect("a number"))
}

/// Where two texts part.
fn difference(ours: &str, theirs: &str) -> String {
    let mut lines = ours.lines().zip(theirs.lines()).enumerate();
    match lines.find(|(_, (a, b))| a != b) {
        Some((i, (a, b))) => format!("line {}:\n  ours:   {a}\n  theirs: {b}", i + 1),
        None => format!("{} against {} lines", ours.lines().count(), theirs.lines().count()),
    }
}

fn strings<const N: usize>(words: [&str; N]) -> Vec<String> {
    words.map(str::to_owned).to_vec()
}

/// Runs `one` for each seed, on two threads; gives the sum of what it gives, or nothing
/// where there is no peer.
fn for_each_seed(
    what: &str,
    maps: u64,
    one: impl Fn(u64, &Peer, &Path) -> u64 + Sync,
) -> Option<u64> {
    let Ok(command) = std::env::var("ARGONAUT_CRUSHTOOL") else {
        eprintln!("skipped: ARGONAUT_CRUSHTOOL is not set");
        return None;
    };
    let peer = Peer { command: command.split_whitespace().map(str::to_owned).collect() };
    let shared = std::env::var("ARGONAUT_CRUSHTOOL_DIR");
    let dir = PathBuf::from(shared.unwrap_or_else(|_| "/tmp/ceph-share".into()))
        .join(format!("argonaut-crush-{what}-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let first = number("ARGONAUT_CRUSH_SEED", 1);
    let (next, sum) = (AtomicU64::new(first), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let worker = |n: u64| {
            let (peer, stem, next, sum, one) = (&peer, dir.join(n.to_string()), &next, &sum, &one);
            move || {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= first + maps {
                        return;
                    }
                    sum.fetch_add(one(seed, peer, &stem), Ordering::Relaxed);
                }
            }
        };
        let workers = [0, 1].map(|n| scope.spawn(worker(n)));
        for worker in workers {
            worker.join().expect("no difference");
        }
    });
    std::fs::remove_dir_all(&dir).unwrap();
    Some(sum.into_inner())
}

/// Mappings, text, trees and bytes.
#[test]
fn random_maps() {
    let maps = number("ARGONAUT_CRUSH_MAPS", 100);
    if let Some(mappings) = for_each_seed("maps", maps, check) {
        eprintln!("{maps} maps, {mappings} mappings, no difference");
    }
}

/// What else the tool says: dumps, places, checks, built maps, and complaints about text.
#[test]
fn random_words() {
    let maps = number("ARGONAUT_CRUSH_MAPS", 100).div_ceil(10);
    if let Some(runs) = for_each_seed("words", maps, words::check) {
        eprintln!("{runs} runs, no difference");
    }
}

/// Maps after edits.
#[test]
fn random_edits() {
    let maps = number("ARGONAUT_CRUSH_MAPS", 100).div_ceil(4);
    if let Some(edits) = for_each_seed("edits", maps, edits::check) {
        eprintln!("{maps} maps, {edits} edits, no difference");
    }
}

/// One map; gives how many mappings were compared.
fn check(seed: u64, peer: &Peer, stem: &Path) -> u64 {
    let Case { map, args } = case(seed);
    let path = |suffix: &str| stem.with_extension(suffix).to_str().unwrap().to_owned();
    let binary = path("bin");
    std::fs::write(&binary, map.to_bytes()).unwrap();

    // Text, tree and mappings in one go.
    let mut show = strings(["-d", &binary, "--tree"]);
    show.extend(args.iter().cloned());
    let (code, their_out, their_err) = peer.run(&show);
    assert_eq!(code, Some(0), "seed {seed}: {show:?}: {}", &their_err[..their_err.len().min(2000)]);
    let (code, our_out, our_err) = ours(&show);
    assert_eq!(code, 0, "seed {seed}: {our_err}");
    assert!(our_out == their_out, "seed {seed}: {show:?}: {}", difference(&our_out, &their_out));

    // Bytes: read, changed by nothing, and written.
    if seed.is_multiple_of(2) {
        let again = path("again");
        let _ = std::fs::remove_file(&again);
        let tries = map.tunables().choose_total_tries.to_string();
        let (code, ..) =
            peer.run(&strings(["-i", &binary, "--set-choose-total-tries", &tries, "-o", &again]));
        assert_eq!(code, Some(0), "seed {seed}");
        assert!(std::fs::read(&again).unwrap() == map.to_bytes(), "seed {seed}: other bytes");
    }

    // Text back to bytes; but for shadows of trees, where the peer writes nodes that it
    // never set.
    let wild = map.buckets().any(|b| b.alg() == BucketAlg::Tree && map.is_shadow(b.id()));
    if seed.is_multiple_of(3) && !wild {
        let source = path("txt");
        std::fs::write(&source, text::decompile(&map)).unwrap();
        let (theirs, mine) = (path("theirs"), path("mine"));
        for file in [&theirs, &mine] {
            let _ = std::fs::remove_file(file);
        }
        let (their_code, _, their_err) = peer.run(&strings(["-c", &source, "-o", &theirs]));
        let (our_code, _, our_err) = ours(&strings(["-c", &source, "-o", &mine]));
        assert_eq!(Some(our_code), their_code, "seed {seed}: {our_err} / {their_err}");
        if our_code == 0 {
            let same = std::fs::read(&theirs).unwrap() == std::fs::read(&mine).unwrap();
            assert!(same, "seed {seed}: compiled otherwise: {source}");
        } else {
            assert_eq!(our_err, their_err, "seed {seed}");
        }
    }
    our_out.lines().filter(|line| line.starts_with("CRUSH rule")).count() as u64
}
