//! Byte for byte the peer: random data through its `ceph-erasure-code-tool`, over plugins,
//! techniques and sizes. Runs where `ARGONAUT_EC_TOOL` is the command that runs the tool;
//! `ARGONAUT_EC_TOOL_DIR` is a directory it sees under the same path, by default
//! `/tmp/ceph-share`.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use ec::{Codec, Profile};

const STRIPES: usize = 3;

/// Profiles to compare, as the tool takes them.
fn profiles() -> Vec<String> {
    let mut list = Vec::new();
    for (k, m) in [
        (2, 1),
        (2, 2),
        (3, 2),
        (4, 2),
        (5, 3),
        (6, 4),
        (8, 3),
        (8, 4),
        (10, 4),
        (12, 1),
        (21, 4),
        (32, 3),
    ] {
        list.push(format!("plugin=isa,technique=reed_sol_van,k={k},m={m}"));
        list.push(format!("plugin=isa,technique=cauchy,k={k},m={m}"));
        for w in [8, 16, 32] {
            list.push(format!("plugin=jerasure,technique=reed_sol_van,k={k},m={m},w={w}"));
        }
        if m == 2 {
            for w in [8, 16, 32] {
                list.push(format!("plugin=jerasure,technique=reed_sol_r6_op,k={k},m=2,w={w}"));
            }
        }
        for technique in ["cauchy_orig", "cauchy_good"] {
            for (w, packet) in [(8, 32), (5, 16), (11, 8), (12, 8), (16, 4), (8, 2048)] {
                if k + m <= 1 << w && (packet < 2048 || k < 9) {
                    list.push(format!("plugin=jerasure,technique={technique},k={k},m={m},w={w},packetsize={packet}"));
                }
            }
        }
    }
    for (k, m) in [(40, 12), (60, 30), (100, 27)] {
        list.push(format!("plugin=isa,technique=cauchy,k={k},m={m}"));
        list.push(format!("plugin=jerasure,technique=reed_sol_van,k={k},m={m},w=8"));
    }
    for w in [3, 4, 6, 7, 9, 10, 13, 14, 15] {
        for technique in ["cauchy_orig", "cauchy_good"] {
            for (k, m) in [(4, 2), (5, 3)] {
                list.push(format!(
                    "plugin=jerasure,technique={technique},k={k},m={m},w={w},packetsize=8"
                ));
            }
        }
    }
    for k in 2..=8 {
        list.push(format!("plugin=jerasure,technique=liber8tion,k={k},m=2,packetsize=8"));
        for (technique, w) in
            [("liberation", 7), ("liberation", 11), ("blaum_roth", 6), ("blaum_roth", 10)]
        {
            if k <= w {
                list.push(format!(
                    "plugin=jerasure,technique={technique},k={k},m=2,w={w},packetsize=8"
                ));
            }
        }
    }
    list.push(
        "plugin=jerasure,technique=reed_sol_van,k=7,m=3,jerasure-per-chunk-alignment=true".into(),
    );
    list
}

fn random(len: usize, mut state: u64) -> Vec<u8> {
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..len).map(|_| next()).collect()
}

/// So many at the same time.
const PARTS: usize = 2;

/// Chunk sizes and all chunks of every profile.
#[test]
fn chunks_are_the_peers() {
    let Ok(command) = std::env::var("ARGONAUT_EC_TOOL") else {
        eprintln!("skipped: ARGONAUT_EC_TOOL is not set");
        return;
    };
    let shared = std::env::var("ARGONAUT_EC_TOOL_DIR").unwrap_or("/tmp/ceph-share".into());
    let dir = Path::new(&shared).join(format!("argonaut-ec-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let run = |args: &[&str]| -> String {
        let done = Command::new("timeout")
            .arg("20")
            .args(command.split_whitespace())
            .args(args)
            .output()
            .expect("the tool runs");
        assert!(done.status.success(), "{args:?}: {}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8(done.stdout).unwrap()
    };
    let list = profiles();
    // The tool's start takes most of the time.
    let check = |part: usize| {
        let dir = dir.join(part.to_string());
        std::fs::create_dir_all(&dir).unwrap();
        let mut chunks = 0;
        for (n, text) in list.iter().enumerate().filter(|(n, _)| n % PARTS == part) {
            let pairs: BTreeMap<String, String> = text
                .split(',')
                .map(|pair| pair.split_once('=').unwrap())
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .collect();
            let profile = Profile::parse(&pairs).unwrap_or_else(|why| panic!("{text}: {why}"));
            let codec = Codec::new(&profile).unwrap();
            let (k, m) = (codec.k(), codec.m());
            // The peer works in pages and never ends where groups of packets do not fit in one:
            // those get chunks of whole pages and groups.
            let pages = if profile.packetsize > 0 { profile.w as usize } else { 0 };
            let width = (1 + n * 997 % 20_000).max(k * 200).max(k * pages * 4096);
            let unit = profile.chunk_size(width as u64) as usize;
            let said = run(&["calc-chunk-size", text, &width.to_string()]);
            assert_eq!(said.trim(), unit.to_string(), "{text}: chunk size of {width}");

            let object = random(k * unit * STRIPES, n as u64 + 1);
            let data: Vec<Vec<u8>> = (0..k)
                .map(|c| object.chunks(unit).skip(c).step_by(k).flatten().copied().collect())
                .collect();
            let runs: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
            let mut parity = vec![vec![0; unit * STRIPES]; m];
            let mut to: Vec<&mut [u8]> = parity.iter_mut().map(Vec::as_mut_slice).collect();
            codec.encode(&runs, &mut to);
            for (i, chunk) in data.iter().chain(&parity).enumerate() {
                std::fs::write(dir.join(format!("object.{i}")), chunk).unwrap();
            }
            // 20.2.4's `encode` writes no coding chunks, so the proof goes by `decode`: it is given
            // all data chunks but one, and one coding chunk; what it rebuilds
            // from them is right if and only if that coding chunk is its own, byte for byte.
            let file = dir.join("object");
            for p in 0..m {
                let lost = (n + p) % k;
                let given: Vec<String> =
                    (0..k).filter(|&c| c != lost).chain([k + p]).map(|c| c.to_string()).collect();
                run(&["decode", text, &unit.to_string(), &given.join(","), file.to_str().unwrap()]);
                let rebuilt =
                    std::fs::read(&file).unwrap_or_else(|why| panic!("{text} {p}: {why}"));
                // 20.2.4 writes from the first byte it was given to the last.
                let start = if lost == 0 { unit } else { 0 };
                let end = object.len() - if lost + 1 == k { unit } else { 0 };
                assert!(rebuilt == object[start..end], "{text}: coding chunk {p} differs");
                std::fs::remove_file(&file).unwrap();
                chunks += 1;
            }
        }
        chunks
    };
    let chunks: usize = std::thread::scope(|s| {
        let check = &check;
        let all: Vec<_> = (0..PARTS).map(|part| s.spawn(move || check(part))).collect();
        all.into_iter().map(|t| t.join().unwrap()).sum()
    });
    std::fs::remove_dir_all(&dir).unwrap();
    eprintln!("{} profiles, {chunks} chunks, no difference", list.len());
}
