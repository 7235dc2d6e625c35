//! Time and chance.

use std::sync::OnceLock;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use env::{Now, Random};

/// One reading of both clocks.
#[must_use]
#[allow(clippy::disallowed_methods)] // here time enters
pub fn now() -> Now {
    static START: OnceLock<Instant> = OnceLock::new();
    let start = *START.get_or_init(Instant::now);
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    // The monotonic clock starts at one second, so that zero can mean "never".
    let mono_ns = start.elapsed().as_nanos() as u64 + 1_000_000_000;
    Now { mono_ns, wall_ns: wall.as_nanos() as u64 }
}

/// Bytes nobody can guess, from the system's generator.
#[derive(Clone, Copy, Debug, Default)]
pub struct OsRandom;

impl Random for OsRandom {
    fn fill(&mut self, out: &mut [u8]) {
        aws_lc_rs::rand::fill(out).expect("the system gives random bytes");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moves_on() {
        let (a, b) = (now(), now());
        assert!(a.mono_ns >= 1_000_000_000 && b.mono_ns >= a.mono_ns);
        assert!(a.wall_ns > 1_700_000_000_000_000_000);
        assert_ne!(OsRandom.u64(), OsRandom.u64());
    }
}
