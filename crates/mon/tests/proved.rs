//! A share of what `cargo xtask fuzz mon_role` does: peers with a key say whatever they like.

mod alone;

use env::{Random, Seeded};

/// Bytes of one input.
const INPUT: usize = 1_500;
/// Inputs of each test run; `ARGONAUT_FUZZ` asks for more.
const INPUTS: u64 = 200;

#[test]
fn a_leader_takes_whatever_proved_peers_say() {
    let more = std::env::var("ARGONAUT_FUZZ").ok().and_then(|n| n.parse().ok());
    let first: u64 =
        std::env::var("ARGONAUT_FUZZ_FROM").ok().and_then(|n| n.parse().ok()).unwrap_or(0);
    let mut broke = Vec::new();
    let mut all = alone::proved::Seen::default();
    for seed in first..first + more.unwrap_or(INPUTS) {
        let mut input = vec![0; INPUT];
        Seeded(seed).fill(&mut input);
        match std::panic::catch_unwind(|| alone::proved::run(&input)) {
            Ok(seen) => {
                all.messages += seen.messages;
                all.closed += seen.closed;
                all.entries += seen.entries;
                all.done += seen.done;
                all.refused += seen.refused;
            }
            Err(_) => {
                eprintln!("seed {seed}");
                broke.push(seed);
            }
        }
    }
    assert!(broke.is_empty(), "of seeds {broke:?}");
    // The inputs reach something: commands are done, the log grows, broken bytes close.
    assert!(all.done > 100 && all.entries > 1_000 && all.closed > 10, "{all:?}");
}
