//! Messages of file systems: recorded ones are read and written again to the same bytes; and
//! so are the corpus' objects of types that only messages have. Changed ones never panic.
//!
//! `ARGONAUT_CORPUS` names a directory `RELEASE/objects/TYPE/HASH`; without it that part says
//! so and passes.

use std::panic::catch_unwind;

use denc::{Bytes, DecodeError, Denc, Features};
use messages::fs::*;
use messages::{Envelope, Message};

fn again<M: Message>(env: &Envelope) -> Result<Envelope, DecodeError> {
    M::decode(env).map(|m| m.envelope(Features::PACIFIC_WORD))
}

fn by_kind(env: &Envelope) -> Result<Envelope, DecodeError> {
    match env.kind {
        22 => again::<ClientSession>(env),
        24 => again::<ClientRequest>(env),
        26 => again::<ClientReply>(env),
        0x310 => again::<ClientCaps>(env),
        0x311 => again::<ClientLease>(env),
        0x312 => again::<ClientSnap>(env),
        0x313 => again::<ClientCapRelease>(env),
        0x314 => again::<ClientQuota>(env),
        kind => panic!("no message of kind {kind}"),
    }
}

fn recorded() -> Vec<(Envelope, String)> {
    let text = include_str!("../../../vectors/messages/cephfs-16.2.15.txt");
    let bytes = |hex: &str| -> Bytes {
        let digit = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).expect("hex");
        if hex == "-" { Bytes::new() } else { (0..hex.len()).step_by(2).map(digit).collect() }
    };
    let lines = text.lines().filter(|l| !l.is_empty() && !l.starts_with('#'));
    lines
        .map(|line| {
            let f: Vec<&str> = line.splitn(7, ' ').collect();
            let number = |at: usize| f[at].parse().expect("a number");
            let env = Envelope {
                kind: number(0),
                version: number(1),
                compat: number(2),
                priority: messages::PRIO_DEFAULT,
                front: bytes(f[3]),
                middle: bytes(f[4]),
                data: bytes(f[5]),
                ..Envelope::default()
            };
            (env, f[6].to_owned())
        })
        .collect()
}

/// What a client and a server of 16.2.15 said is read whole and written to the same bytes.
#[test]
fn recorded_messages() {
    let all = recorded();
    assert!(all.len() > 60, "{}", all.len());
    let mut kinds = std::collections::BTreeSet::new();
    for (env, what) in &all {
        kinds.insert(env.kind);
        let written = by_kind(env).unwrap_or_else(|e| panic!("{what}: {e}"));
        assert_eq!(written.version, env.version, "{what}");
        let at = written.front.iter().zip(&env.front).position(|(a, b)| a != b);
        assert!(written == *env, "{what}: another front at {at:?}, or middle or data");
    }
    assert_eq!(kinds.len(), 8);
}

/// What stands in recorded answers has a type, too.
#[test]
fn recorded_answers() {
    let mut seen = std::collections::BTreeMap::new();
    for (env, what) in recorded() {
        let trace = match env.kind {
            26 => {
                let m = ClientReply::decode(&env).unwrap();
                let same = |again: Bytes| assert_eq!(again, m.extra, "{what}");
                let features = Features::PACIFIC_WORD;
                match m.op {
                    _ if m.extra.is_empty() => {}
                    mds_op::READDIR | mds_op::LSSNAP => {
                        same(DirListing::from_bytes(&m.extra).unwrap().to_bytes_for(features));
                        *seen.entry("listing").or_insert(0) += 1;
                    }
                    mds_op::CREATE => {
                        same(CreatedInode::from_bytes(&m.extra).unwrap().to_bytes());
                        *seen.entry("created").or_insert(0) += 1;
                    }
                    mds_op::GETFILELOCK => {
                        same(FileLock::from_bytes(&m.extra).unwrap().to_bytes());
                        *seen.entry("lock").or_insert(0) += 1;
                    }
                    op => panic!("{what}: extra of {op:x}"),
                }
                m.snap_trace
            }
            24 => {
                let m = ClientRequest::decode(&env).unwrap();
                let args = Args::read(m.op, &m.args).unwrap();
                assert_eq!(args.to_raw(), m.args, "{what}: {args:?}");
                continue;
            }
            0x312 => ClientSnap::decode(&env).unwrap().trace,
            _ => continue,
        };
        let realms = read_snap_trace(&trace).unwrap();
        if let Some(root) = realms.last() {
            assert_eq!(root.parent.0, 0, "{what}: a trace ends at the root's realm");
            *seen.entry("trace").or_insert(0) += 1;
        }
    }
    assert_eq!(seen.len(), 4, "{seen:?}");
}

/// Changed at random, every recorded message is read or refused.
#[test]
fn recorded_messages_survive_mutations() {
    let mut x = 0x9e37_79b9_7f4a_7c15u64;
    let mut next = move || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        x as usize
    };
    for (env, what) in recorded() {
        for _ in 0..200 {
            let mut front = env.front.to_vec();
            for _ in 0..1 + next() % 3 {
                let at = next() % front.len();
                front[at] = [0, 0xff, front[at].wrapping_add(1), next() as u8][next() % 4];
            }
            if next() % 4 == 0 {
                front.truncate(next() % front.len());
            }
            let hostile = Envelope { front: front.into(), ..env.clone() };
            let outcome = catch_unwind(|| {
                let _ = by_kind(&hostile).map(|written| by_kind(&written).expect("it is read"));
                let _ = DirListing::from_bytes(&hostile.front);
                let _ = read_snap_trace(&hostile.front);
            });
            assert!(outcome.is_ok(), "{what}");
        }
    }
}

fn check<T: Denc>(name: &str, corpus: &std::path::Path) -> usize {
    let mut read = 0;
    for release in std::fs::read_dir(corpus).unwrap().flatten() {
        let features = match release.file_name().to_string_lossy().split('.').next() {
            Some("16") => Features::PACIFIC_WORD,
            Some("18" | "19") => Features::REEF_WORD,
            _ => Features::TENTACLE_WORD,
        };
        let objects = release.path().join("objects").join(name);
        for file in std::fs::read_dir(objects).into_iter().flatten().flatten() {
            let bytes = std::fs::read(file.path()).unwrap();
            let value = T::from_bytes(&bytes).unwrap_or_else(|e| panic!("{file:?}: {e}"));
            assert_eq!(value.to_bytes_for(features), bytes, "{file:?}");
            read += 1;
        }
    }
    read
}

#[test]
fn corpus() {
    let Some(dir) = std::env::var_os("ARGONAUT_CORPUS").map(std::path::PathBuf::from) else {
        println!("skipped: ARGONAUT_CORPUS names no directory RELEASE/objects/TYPE/HASH");
        return;
    };
    assert!(check::<ReleaseItem>("MClientRequest::Release", &dir) > 0);
    assert!(check::<CapReconnect>("cap_reconnect_t", &dir) > 0);
    assert!(check::<ClientMetric>("ClientMetricMessage", &dir) > 0);
}
