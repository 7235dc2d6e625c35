//! `kill -9` of a real process under load, `STORE_KILLS` times (8 unless told): what it was
//! told to be durable is there when the store is opened again, and nothing in part.
#![allow(clippy::disallowed_methods)] // a test may wait

mod common;

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use bytes::Bytes;
use common::{Dice, Model, Scale, difference};
use store::{Coll, MkfsOptions, OpenOptions, Store};
use types::Uuid;

const CHILD: &str = "STORE_KILL_CHILD";
/// Set where the owner says when groups begin, and has the log's part under way itself.
const GATHERS: &str = "STORE_KILL_GATHERS";
const SCALE: Scale = Scale { objects: 30, size: 300_000 };

fn open(path: &Path, gather: bool) -> Store {
    let options = OpenOptions { checkpoint_bytes: 1 << 20, gather, ..OpenOptions::default() };
    Store::open(path, options).expect("opens")
}

/// How many transactions the store holds; the same number is in each of them.
fn count(store: &Store) -> u64 {
    let n = store.coll_get(Coll::Meta, b"n").ok().flatten();
    n.map_or(0, |n| u64::from_le_bytes(n[..].try_into().expect("eight bytes")))
}

/// The model after `n` transactions, and the dice that go on from there.
fn after(n: u64, seed: u64) -> (Model, Dice) {
    let (mut model, mut dice) = (Model::default(), Dice::new(seed));
    for _ in 0..n {
        model.random(&mut dice, SCALE);
    }
    (model, dice)
}

/// Works until killed; prints what is durable.
fn child(path: &Path, seed: u64) {
    let gathers = std::env::var_os(GATHERS).is_some();
    let mut store = open(path, gathers);
    let mut n = count(&store);
    let (mut model, mut dice) = after(n, seed);
    let mut waiting = std::collections::VecDeque::new();
    let mut out = std::io::stdout().lock();
    loop {
        n += 1;
        let mut txn = model.random(&mut dice, SCALE);
        txn.create_collection(Coll::Meta);
        txn.coll_set(Coll::Meta, "n", Bytes::copy_from_slice(&n.to_le_bytes()));
        waiting.push_back((store.submit(txn).expect("submits"), n));
        while waiting.len() > 16 || waiting.front().is_some_and(|(s, _)| *s <= store.durable()) {
            if gathers {
                store.kick();
                store.wait_written();
            }
            store.complete().expect("goes well");
            match waiting.front() {
                Some((seq, n)) if *seq <= store.durable() => {
                    writeln!(out, "durable {n}").expect("somebody reads");
                    waiting.pop_front();
                }
                _ => std::thread::yield_now(),
            }
        }
    }
}

#[test]
fn killed_processes_lose_nothing_acknowledged() {
    if let Some(path) = std::env::var_os(CHILD) {
        let (path, seed) = (PathBuf::from(&path), 7);
        child(&path, seed);
        return;
    }
    let dir = std::env::temp_dir().join(format!("store-kill-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let path = dir.join("block");
    let options = MkfsOptions {
        fsid: Uuid([1; 16]),
        osd_uuid: Uuid([2; 16]),
        size: 128 << 20,
        log_bytes: 4 << 20,
        ..MkfsOptions::default()
    };
    Store::mkfs(&path, &options).unwrap();
    let rounds = std::env::var("STORE_KILLS").ok().and_then(|v| v.parse().ok()).unwrap_or(8u64);
    let (mut total, mut reached) = (0, 0);
    for round in 0..rounds {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "killed_processes_lose_nothing_acknowledged", "--nocapture"])
            .env(CHILD, &path)
            .envs((round % 2 == 0).then_some((GATHERS, "1")))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdout = BufReader::new(process.stdout.take().unwrap());
        let reader = std::thread::spawn(move || {
            let mut last = 0;
            for line in stdout.lines().map_while(Result::ok) {
                // The harness' own words may stand before the first.
                if let Some((_, n)) = line.split_once("durable ") {
                    last = n.trim().parse().unwrap_or(last);
                }
            }
            last
        });
        std::thread::sleep(Duration::from_millis(120 + round * 37 % 200));
        assert_eq!(process.try_wait().unwrap(), None, "round {round}: it works until killed");
        process.kill().unwrap();
        process.wait().unwrap();
        let acked: u64 = reader.join().unwrap();
        let mut store = open(&path, false);
        let n = count(&store);
        assert!(n >= acked, "round {round}: {n} are there, {acked} were durable");
        let (mut model, _) = after(n, 7);
        if let Some(meta) = (n > 0).then_some(Coll::Meta) {
            let keys = [(Bytes::from("n"), Bytes::copy_from_slice(&n.to_le_bytes()))].into();
            let meta = model.colls.entry(meta).or_default();
            meta.keys = keys;
        }
        assert_eq!(difference(&store, &model), None, "round {round}, {n} transactions");
        assert_eq!(store.fsck(true).unwrap().errors, Vec::<String>::new(), "round {round}");
        drop(store);
        total += 1;
        reached = n;
    }
    println!("{total} kills, {reached} transactions");
    std::fs::remove_dir_all(&dir).unwrap();
}
