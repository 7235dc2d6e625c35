//! Power cuts: whatever part of the unflushed writes a disk did, in whatever order and torn
//! at sectors, the store opens, is sound, holds every acknowledged transaction whole, and of
//! the others a whole number, in order.
//!
//! `STORE_SEEDS` workloads (`STORE_SEED` for one); `cargo xtask sim store` tries many more.

mod common;

use common::explore::{Effort, Seen, explore};
use common::seeds;

#[test]
fn power_cuts_lose_nothing_acknowledged() {
    let mut seen = Seen::default();
    // Of each kind of work one, then the log elsewhere and nowhere.
    for seed in seeds(5).chain([5, 16]) {
        seen.add(&explore(seed, Effort { lives: 2, steps: 40, states: 3 }));
    }
    println!("{seen:?}");
    assert!(seen.recoveries > 0 && seen.merges > 0, "{seen:?}");
    assert!(seen.ahead > 0, "{seen:?}");
    assert!(seen.removals > 0 && seen.half_swept > 0, "{seen:?}");
}
