//! How often a peer may make this process say something.

/// Lines of a log that one peer may cause in a second. What is beyond is counted.
#[derive(Clone, Copy, Debug, Default)]
pub struct SayBudget {
    second: u64,
    said: u32,
    left_out: u64,
}

impl SayBudget {
    /// Whether one more of at most `max` lines in a second may be said at `now_ns` of any clock that
    /// does not go back: then the number of those that were left out before it.
    pub fn take(&mut self, now_ns: u64, max: u32) -> Option<u64> {
        let second = now_ns / 1_000_000_000;
        if second != self.second {
            (self.second, self.said) = (second, 0);
        }
        if self.said >= max {
            self.left_out += 1;
            return None;
        }
        self.said += 1;
        Some(std::mem::take(&mut self.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_so_many_in_a_second() {
        let mut b = SayBudget::default();
        let said: Vec<_> = (0..5).map(|n| b.take(7_000_000_000 + n, 3)).collect();
        assert_eq!(said, [Some(0), Some(0), Some(0), None, None]);
        assert_eq!(b.take(7_999_999_999, 3), None);
        assert_eq!(b.take(8_000_000_000, 3), Some(3));
        assert_eq!(b.take(8_000_000_001, 3), Some(0));
    }
}
