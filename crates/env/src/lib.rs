//! What the outside world gives to code that must not touch it: the time, chance, and
//! names for connections. A role receives these as values and never asks for them. A
//! [`Disk`] is what a store writes to, so that one which loses and tears can take its place.

mod disk;

pub use disk::Disk;

/// The time at which an event is handled, from one reading of the clocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Now {
    /// Nanoseconds on a clock that never steps; its zero means nothing.
    pub mono_ns: u64,
    /// Nanoseconds since 1970; may step.
    pub wall_ns: u64,
}

impl Now {
    /// Monotonic milliseconds.
    #[must_use]
    pub const fn mono_ms(self) -> u64 {
        self.mono_ns / 1_000_000
    }
}

/// One connection of one process; never used twice in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnId(pub u64);

/// A source of bytes nobody can guess (`rt`) or everybody can repeat (`sim`).
pub trait Random: Send {
    /// Fills `out`.
    fn fill(&mut self, out: &mut [u8]);

    /// A random number.
    fn u64(&mut self) -> u64 {
        let mut raw = [0; 8];
        self.fill(&mut raw);
        u64::from_le_bytes(raw)
    }
}

/// A seeded source for tests and simulations: SplitMix64, the same on every machine.
#[derive(Clone, Debug)]
pub struct Seeded(pub u64);

impl Random for Seeded {
    fn fill(&mut self, out: &mut [u8]) {
        for chunk in out.chunks_mut(8) {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = self.0;
            z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            chunk.copy_from_slice(&(z ^ z >> 31).to_le_bytes()[..chunk.len()]);
        }
    }
}
