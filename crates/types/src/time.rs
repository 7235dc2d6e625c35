//! Wall-clock time on the wire.

use std::fmt;

use denc::{DecodeError, Denc, Reader, Writer};

/// Seconds and nanoseconds since 1970, or a duration. The peer's `utime_t` and
/// `ceph_timespec`: u32, u32.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UTime {
    /// Whole seconds.
    pub sec: u32,
    /// Below 1,000,000,000 in times made here; a peer may send more.
    pub nsec: u32,
}

impl UTime {
    /// Zero: unset, or the epoch.
    pub const ZERO: Self = Self { sec: 0, nsec: 0 };

    /// From nanoseconds since 1970.
    #[must_use]
    pub const fn from_nanos(ns: u64) -> Self {
        Self { sec: (ns / 1_000_000_000) as u32, nsec: (ns % 1_000_000_000) as u32 }
    }

    /// Nanoseconds since 1970.
    #[must_use]
    pub const fn nanos(self) -> u64 {
        self.sec as u64 * 1_000_000_000 + self.nsec as u64
    }

    /// Seconds as a float.
    #[must_use]
    pub fn seconds(self) -> f64 {
        f64::from(self.sec) + f64::from(self.nsec) / 1e9
    }

    /// `self + secs`, ending at the largest time.
    #[must_use]
    pub const fn plus_secs(self, secs: u32) -> Self {
        Self { sec: self.sec.saturating_add(secs), nsec: self.nsec }
    }

    /// Whether it is zero.
    #[must_use]
    pub const fn is_zero(self) -> bool {
        self.sec == 0 && self.nsec == 0
    }
}

/// `2026-11-20T13:49:00.123456+0000`, as the peer prints times; always UTC. Zero and
/// durations below ten years print as `sec.micros`, as the peer's do.
impl fmt::Display for UTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micros = self.nsec / 1000;
        if self.sec < 60 * 60 * 24 * 365 * 10 {
            return write!(f, "{}.{micros:06}", self.sec);
        }
        let (days, rest) = (i64::from(self.sec / 86_400), self.sec % 86_400);
        // Civil date from day number, by 400-year eras counted from March.
        let z = days + 719_468;
        let (era, doe) = (z.div_euclid(146_097), z.rem_euclid(146_097));
        let yoe = (doe - doe / 1460 + doe / 36_524 - doe / 146_096) / 365;
        let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
        let mp = (5 * doy + 2) / 153;
        let (day, month) = (doy - (153 * mp + 2) / 5 + 1, if mp < 10 { mp + 3 } else { mp - 9 });
        let year = yoe + era * 400 + i64::from(month <= 2);
        write!(
            f,
            "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.{micros:06}+0000",
            rest / 3600,
            rest / 60 % 60,
            rest % 60
        )
    }
}

impl fmt::Debug for UTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Denc for UTime {
    fn encode(&self, w: &mut Writer) {
        w.u32(self.sec);
        w.u32(self.nsec);
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self { sec: r.u32()?, nsec: r.u32()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_like_the_peer() {
        let t = UTime { sec: 1_700_000_000, nsec: 5_000_000 };
        assert_eq!(t.to_string(), "2023-11-14T22:13:20.005000+0000");
        assert_eq!(
            UTime { sec: 951_782_400, nsec: 0 }.to_string(),
            "2000-02-29T00:00:00.000000+0000"
        );
        assert_eq!(UTime::ZERO.to_string(), "0.000000");
    }
}
