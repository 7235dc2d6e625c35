//! Explores crash states: `sim [--states N] [--seed S] [--seeds N]`.
//!
//! From seed S on (0), as many as it takes to try N states. What fails says its seed, with
//! which it can be repeated: `sim --seed S --seeds 1`.
#![allow(clippy::disallowed_methods)] // tells how long it took

#[path = "../tests/common/mod.rs"]
mod common;

use std::time::Instant;

use common::explore::{Effort, Seen, explore};

fn main() {
    let (mut states, mut seed, mut seeds) = (100_000u64, 0u64, u64::MAX);
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let value = args.next().and_then(|v| v.parse().ok());
        let value = value.unwrap_or_else(|| panic!("{arg} wants a number"));
        match arg.as_str() {
            "--states" => states = value,
            "--seed" => seed = value,
            "--seeds" => seeds = value,
            _ => panic!("unknown option {arg}; there are --states, --seed, --seeds"),
        }
    }
    let (start, first) = (Instant::now(), seed);
    let mut seen = Seen::default();
    while seen.states < states && seed - first < seeds {
        let result =
            std::panic::catch_unwind(|| explore(seed, Effort { lives: 4, steps: 120, states: 12 }));
        match result {
            Ok(some) => seen.add(&some),
            Err(_) => {
                println!(
                    "FAILED: seed {seed}; again with: cargo xtask sim store --seed {seed} --seeds 1"
                );
                std::process::exit(1);
            }
        }
        seed += 1;
        if (seed - first).is_multiple_of(20) {
            println!("seeds {first}..{seed}: {} states, {:?}", seen.states, start.elapsed());
        }
    }
    println!("seeds {first}..{seed}, {:.1?}: {seen:?}", start.elapsed());
}
