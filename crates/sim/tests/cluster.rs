//! Whole clusters, by seed. Planted bugs and some hundred seeds are run by the test command in release; the long
//! run is `cargo xtask sim cluster --seeds 10000`.

use sim::{Plant, Scenes, run};

/// The real store under every OSD.
const REAL: Scenes = Scenes { coded: None, tier: None, class: None, real_store: Some(true) };

/// A handful of seeds, so that the plain tests see at once what a change breaks.
#[test]
fn clusters_survive() {
    for seed in 1..=12 {
        let r = run(seed, None, Scenes::default(), false);
        assert!(r.wrong.is_empty(), "seed {seed}: {:?}", r.wrong);
        assert!(r.operations > 0 && r.epochs > 5, "seed {seed} did nothing: {r:?}");
    }
}

/// The same over the real store, whose disks lose and tear what was not flushed.
#[test]
fn clusters_survive_on_the_real_store() {
    let mut deeds = std::collections::BTreeMap::<&str, u64>::new();
    for seed in 1..=6 {
        let r = run(seed, None, REAL, false);
        assert!(r.wrong.is_empty(), "seed {seed}: {:?}", r.wrong);
        assert!(r.operations > 0 && r.epochs > 5, "seed {seed} did nothing: {r:?}");
        r.deeds.iter().for_each(|(what, n)| *deeds.entry(what).or_default() += n);
    }
    for what in ["writes a checkpoint", "merges tables", "died in a checkpoint"] {
        assert!(deeds.contains_key(what), "no store {what}: {deeds:?}");
    }
}

/// The same seed is the same run, to the last byte on every wire.
#[test]
fn seeds_replay() {
    for scenes in [Scenes::default(), REAL] {
        let traces = || (20..24).map(|seed| run(seed, None, scenes, false).trace);
        let first: Vec<u64> = traces().collect();
        assert_eq!(first, traces().collect::<Vec<_>>());
        assert!(first.windows(2).all(|w| w[0] != w[1]), "different seeds are different runs");
    }
}

/// Disks that lie about what they flushed, and checkpoints whose order of writes nobody keeps:
/// the real store does not open then, or misses what it acknowledged.
#[test]
fn bugs_under_the_real_store_are_found() {
    for plant in [Plant::LyingDisks, Plant::LooseCheckpoints] {
        let found = (1..=20).any(|seed| !run(seed, Some(plant), REAL, false).wrong.is_empty());
        assert!(found, "{} is not found", plant.name());
    }
}
