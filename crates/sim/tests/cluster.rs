//! Whole clusters, by seed. Planted bugs and some hundred seeds are run by the test command in release; the long
//! run is `cargo xtask sim cluster --seeds 10000`.

use sim::{Scenes, run};

/// A handful of seeds, so that the plain tests see at once what a change breaks.
#[test]
fn clusters_survive() {
    for seed in 1..=12 {
        let r = run(seed, None, Scenes::default(), false);
        assert!(r.wrong.is_empty(), "seed {seed}: {:?}", r.wrong);
        assert!(r.operations > 0 && r.epochs > 5, "seed {seed} did nothing: {r:?}");
    }
}

/// The same seed is the same run, to the last byte on every wire.
#[test]
fn seeds_replay() {
    let traces: Vec<u64> =
        (20..24).map(|seed| run(seed, None, Scenes::default(), false).trace).collect();
    let again: Vec<u64> =
        (20..24).map(|seed| run(seed, None, Scenes::default(), false).trace).collect();
    assert_eq!(traces, again);
    assert!(traces.windows(2).all(|w| w[0] != w[1]), "different seeds are different runs");
}
