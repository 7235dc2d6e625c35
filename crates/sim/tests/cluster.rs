//! Whole clusters, by seed. The long run is `cargo xtask sim cluster --seeds 10000`.

use sim::{Plant, run};

/// A handful of seeds, so that the plain tests see at once what a change breaks.
#[test]
fn clusters_survive() {
    for seed in 1..=12 {
        let r = run(seed, None, false);
        assert!(r.wrong.is_empty(), "seed {seed}: {:?}", r.wrong);
        assert!(r.operations > 0 && r.epochs > 5, "seed {seed} did nothing: {r:?}");
    }
}

/// The same seed is the same run, to the last byte on every wire.
#[test]
fn seeds_replay() {
    let traces: Vec<u64> = (20..24).map(|seed| run(seed, None, false).trace).collect();
    let again: Vec<u64> = (20..24).map(|seed| run(seed, None, false).trace).collect();
    assert_eq!(traces, again);
    assert!(traces.windows(2).all(|w| w[0] != w[1]), "different seeds are different runs");
}

/// The checks find what is put there to be found.
#[test]
fn planted_bugs_are_found() {
    for plant in Plant::ALL {
        // Where it was found when this was written; later changes may move it.
        let first = match plant {
            Plant::LyingDisks => 42,
            Plant::FalsePings => 28,
            _ => 1,
        };
        let mut seeds = first..first + 150;
        let found = seeds.any(|seed| !run(seed, Some(plant), false).wrong.is_empty());
        assert!(found, "{} goes unnoticed", plant.name());
    }
}
