//! Speed on one core, in data bytes per second, of encoding and of rebuilding lost data
//! chunks: `speed [PROFILE...]`, profiles as `plugin=isa,k=4,m=2`. With `ARGONAUT_EC_BENCH` naming the command that runs the peer's
//! `ceph_erasure_code_benchmark`, its figure stands beside that of encoding.

#![allow(clippy::disallowed_methods)] // a bench reads the clock

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Instant;

use ec::{Codec, Profile};

const PROFILES: &[&str] = &[
    "plugin=isa,technique=reed_sol_van,k=4,m=2",
    "plugin=isa,technique=reed_sol_van,k=8,m=3",
    "plugin=isa,technique=cauchy,k=10,m=4",
    "plugin=jerasure,technique=reed_sol_van,k=4,m=2",
    "plugin=jerasure,technique=reed_sol_van,k=4,m=2,w=16",
    "plugin=jerasure,technique=cauchy_good,k=4,m=2",
    "plugin=jerasure,technique=cauchy_good,k=8,m=3",
    "plugin=jerasure,technique=liberation,k=4,m=2",
];
/// Bytes encoded at once: in cache, as an OSD's stripes are, and beyond it.
const SIZES: [usize; 2] = [1 << 20, 16 << 20];

fn ours(codec: &Codec, size: usize, lost: usize) -> f64 {
    let len = codec.profile().chunk_size(size as u64) as usize;
    let data: Vec<Vec<u8>> = (0..codec.k()).map(|c| vec![c as u8 + 1; len]).collect();
    let runs: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
    let mut parity = vec![vec![0u8; len]; codec.m()];
    let mut to: Vec<&mut [u8]> = parity.iter_mut().map(Vec::as_mut_slice).collect();
    codec.encode(&runs, &mut to);
    let mut shards: Vec<Option<Vec<u8>>> = data.iter().chain(&parity).cloned().map(Some).collect();
    let wanted: Vec<usize> = (0..lost).collect();
    let mut best = 0f64;
    for _ in 0..5 {
        let (start, mut rounds) = (Instant::now(), 0);
        while start.elapsed().as_millis() < 150 {
            if lost == 0 {
                let mut to: Vec<&mut [u8]> = parity.iter_mut().map(Vec::as_mut_slice).collect();
                codec.encode(&runs, &mut to);
            } else {
                for &shard in &wanted {
                    shards[shard] = None;
                }
                codec.decode(&mut shards, &wanted).expect("k are left");
            }
            rounds += 1;
        }
        best = best.max((len * codec.k() * rounds) as f64 / start.elapsed().as_secs_f64() / 1e9);
    }
    best
}

/// Encoding in gigabytes per second by the peer's benchmark, which prints seconds and KiB.
fn theirs(command: &str, profile: &str, size: usize) -> Option<f64> {
    let mut words = command.split_whitespace();
    let iterations = (4 << 30) / size;
    let mut run = Command::new(words.next()?);
    run.args(words).args(["-w", "encode", "-s", &size.to_string()]);
    run.args(["-i", &iterations.to_string()]);
    for pair in profile.split(',') {
        match pair.strip_prefix("plugin=") {
            Some(plugin) => run.args(["-p", plugin]),
            None => run.args(["-P", pair]),
        };
    }
    let said = String::from_utf8(run.output().ok()?.stdout).ok()?;
    let mut figures = said.split_whitespace().filter_map(|word| word.parse::<f64>().ok());
    let (seconds, kib) = (figures.next()?, figures.next()?);
    Some(kib * 1024.0 / seconds / 1e9)
}

fn main() {
    let named: Vec<String> = std::env::args().skip(1).collect();
    let list = if named.is_empty() { PROFILES.iter().map(|&p| p.into()).collect() } else { named };
    let bench = std::env::var("ARGONAUT_EC_BENCH").ok();
    println!("{:<58} {:>7} {:>6} {:>9} {:>9}", "profile", "MiB", "lost", "GB/s", "peer");
    for text in list {
        let pairs: BTreeMap<String, String> = text
            .split(',')
            .filter_map(|pair| pair.split_once('='))
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect();
        let codec = match Profile::parse(&pairs).and_then(|profile| Codec::new(&profile)) {
            Ok(codec) => codec,
            Err(why) => {
                println!("{text:<58} {why}");
                continue;
            }
        };
        for size in SIZES {
            for lost in [0, 1, codec.m()] {
                let peer = bench.as_ref().filter(|_| lost == 0);
                let peer = peer.and_then(|command| theirs(command, &text, size));
                let peer = peer.map_or("-".into(), |gb| format!("{gb:.2}"));
                let gb = ours(&codec, size, lost);
                println!("{text:<58} {:>7} {lost:>6} {gb:>9.2} {peer:>9}", size >> 20);
            }
        }
    }
}
