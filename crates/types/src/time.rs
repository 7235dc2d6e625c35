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

    /// As the peer printed times before release 15, and still does in names of objects:
    /// `2026-11-20 13:49:00.123456Z`.
    #[must_use]
    pub fn legacy(self) -> String {
        self.to_string().replace('T', " ").replace("+0000", "Z")
    }

    /// What such a text says; `None` where it is none. Times print and read alike, to the
    /// microsecond.
    #[must_use]
    pub fn from_legacy(text: &str) -> Option<Self> {
        let digits = |s: &str, most: u64| {
            let all = !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
            s.parse().ok().filter(|n: &u64| all && *n <= most)
        };
        let (whole, micros) = text.strip_suffix('Z').unwrap_or(text).split_once('.')?;
        let sec = match whole.split_once(' ') {
            None => digits(whole, u64::from(u32::MAX))?,
            Some((date, time)) => {
                let mut date = date.splitn(3, '-').map(|s| digits(s, 9_999));
                let (y, m, d) = (date.next()??, date.next()??, date.next()??);
                let mut time = time.splitn(3, ':').map(|s| digits(s, 60));
                let (h, min, s) = (time.next()??, time.next()??, time.next()??);
                // Days since 1970 of a civil date, the year counted from March.
                let y = y.checked_sub(u64::from(m <= 2))?;
                let doy = (153 * ((m + 9) % 12) + 2) / 5 + d.checked_sub(1)?;
                let days = (y * 365 + y / 4 - y / 100 + y / 400 + doy).checked_sub(719_468)?;
                days * 86_400 + h * 3_600 + min * 60 + s
            }
        };
        let nsec = digits(micros, 999_999)? as u32 * 1_000;
        let at = Self { sec: u32::try_from(sec).ok()?, nsec };
        // Dates that are none, and forms that nobody writes.
        (at.legacy() == text).then_some(at)
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

    /// What the older form prints it reads, leap days and small times too; and nothing else.
    #[test]
    fn legacy_times_are_read_back() {
        assert_eq!(
            UTime { sec: 1_700_000_000, nsec: 5_000_000 }.legacy(),
            "2023-11-14 22:13:20.005000Z"
        );
        for sec in (0..u32::MAX).step_by(86_399 * 7) {
            let t = UTime { sec, nsec: sec % 1_000_000 * 1_000 };
            assert_eq!(UTime::from_legacy(&t.legacy()), Some(t));
        }
        for text in ["", "x", "2023-02-30 00:00:00.000000Z", "2023-1-2 0:0:0.0Z", "9999999999.0"] {
            assert_eq!(UTime::from_legacy(text), None, "{text}");
        }
    }
}
