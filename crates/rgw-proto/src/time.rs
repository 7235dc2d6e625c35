//! Points in time, and the three spellings that S3 has for them.

use std::fmt;

/// Seconds since 1970, UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time(pub i64);

const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];

/// Days from 1970-01-01 to a date of the Gregorian calendar.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year - era * 400;
    let of_year = (153 * (month + if month > 2 { -3 } else { 9 }) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// Year, month and day of a day since 1970.
fn date(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year + era * 400 + i64::from(month <= 2), month, day)
}

/// A number of exactly these digits.
fn digits(text: &str) -> Option<i64> {
    let all = !text.is_empty() && text.len() <= 9 && text.bytes().all(|b| b.is_ascii_digit());
    text.parse().ok().filter(|_| all)
}

impl Time {
    fn at(date: (i64, i64, i64), clock: (i64, i64, i64)) -> Option<Self> {
        let ((year, month, day), (hour, minute, second)) = (date, clock);
        let fits =
            (1970..=9999).contains(&year) && (1..=12).contains(&month) && (1..=31).contains(&day);
        let fits = fits
            && (0..24).contains(&hour)
            && (0..60).contains(&minute)
            && (0..=60).contains(&second);
        let day_number = fits.then(|| days(year, month, day))?;
        // The 31st of a shorter month is another day.
        (self::date(day_number) == date)
            .then_some(Self(day_number * 86_400 + hour * 3_600 + minute * 60 + second))
    }

    /// `20260102T030405Z`, as signatures of version 4 have it.
    #[must_use]
    pub fn parse_basic(text: &str) -> Option<Self> {
        if text.len() != 16 || !text.is_ascii() || &text[8..9] != "T" || &text[15..] != "Z" {
            return None;
        }
        let n = |from: usize, to: usize| digits(&text[from..to]);
        Self::at((n(0, 4)?, n(4, 6)?, n(6, 8)?), (n(9, 11)?, n(11, 13)?, n(13, 15)?))
    }

    /// `2026-01-02T03:04:05.678Z`, fraction optional and cut off; also a date alone.
    #[must_use]
    pub fn parse_iso(text: &str) -> Option<Self> {
        if !text.is_ascii() || text.len() < 10 || &text[4..5] != "-" || &text[7..8] != "-" {
            return None;
        }
        let n = |from: usize, to: usize| text.get(from..to).and_then(digits);
        let day = (n(0, 4)?, n(5, 7)?, n(8, 10)?);
        let Some(clock) = text.get(10..).filter(|c| !c.is_empty()) else {
            return Self::at(day, (0, 0, 0));
        };
        let colons = clock.get(3..4) == Some(":") && clock.get(6..7) == Some(":");
        if !clock.starts_with('T') || !colons {
            return None;
        }
        let rest = clock.get(9..)?;
        let (fraction, zone) = rest.split_at(rest.find(['Z', '+', '-'])?);
        if !(fraction.is_empty() || fraction.strip_prefix('.').is_some_and(|f| digits(f).is_some()))
        {
            return None;
        }
        let ahead_s = match zone.as_bytes() {
            [b'Z'] => 0,
            [sign, _, _, b':', _, _] => {
                let s = digits(&zone[1..3])? * 3_600 + digits(&zone[4..6])? * 60;
                if *sign == b'-' { -s } else { s }
            }
            _ => return None,
        };
        Some(Self(Self::at(day, (n(11, 13)?, n(14, 16)?, n(17, 19)?))?.0 - ahead_s))
    }

    /// `Fri, 02 Jan 2026 03:04:05 GMT`, as HTTP has it; `+0000` for `GMT`, too.
    #[must_use]
    pub fn parse_http(text: &str) -> Option<Self> {
        let (_, rest) = text.split_once(", ")?;
        let words: Vec<&str> = rest.split(' ').collect();
        let [day, month, year, clock, zone] = words[..] else { return None };
        if !matches!(zone, "GMT" | "UTC" | "+0000" | "-0000") {
            return None;
        }
        let month = i64::try_from(MONTHS.iter().position(|m| *m == month)? + 1).ok()?;
        let clock: Vec<&str> = clock.split(':').collect();
        let [hour, minute, second] = clock[..] else { return None };
        Self::at(
            (digits(year)?, month, digits(day)?),
            (digits(hour)?, digits(minute)?, digits(second)?),
        )
    }

    fn parts(self) -> (i64, i64, i64, i64, i64, i64) {
        let (year, month, day) = date(self.0.div_euclid(86_400));
        let s = self.0.rem_euclid(86_400);
        (year, month, day, s / 3_600, s / 60 % 60, s % 60)
    }

    /// `20260102T030405Z`.
    #[must_use]
    pub fn basic(self) -> String {
        let (y, mo, d, h, mi, s) = self.parts();
        format!("{y:04}{mo:02}{d:02}T{h:02}{mi:02}{s:02}Z")
    }

    /// `Fri, 02 Jan 2026 03:04:05 GMT`.
    #[must_use]
    pub fn http(self) -> String {
        let (y, mo, d, h, mi, s) = self.parts();
        let day = DAYS[usize::try_from(self.0.div_euclid(86_400).rem_euclid(7)).expect("below 7")];
        let month = MONTHS[usize::try_from(mo - 1).expect("1 to 12")];
        format!("{day}, {d:02} {month} {y:04} {h:02}:{mi:02}:{s:02} GMT")
    }
}

/// `2026-01-02T03:04:05.000Z`, as XML answers have it.
impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (y, mo, d, h, mi, s) = self.parts();
        write!(f, "{y:04}-{mo:02}-{d:02}T{h:02}:{mi:02}:{s:02}.000Z")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Each spelling comes back, over 8,000 years.
        #[test]
        fn spellings_come_back(s in 0i64..253_402_300_800) {
            let time = Time(s);
            prop_assert_eq!(Time::parse_basic(&time.basic()), Some(time));
            prop_assert_eq!(Time::parse_http(&time.http()), Some(time));
            prop_assert_eq!(Time::parse_iso(&time.to_string()), Some(time));
        }

        /// No text makes a parser panic.
        #[test]
        fn any_text_is_read_or_refused(text in any::<String>()) {
            let _ = (Time::parse_basic(&text), Time::parse_http(&text), Time::parse_iso(&text));
        }
    }

    #[test]
    fn known_times() {
        assert_eq!(Time::parse_http("Fri, 24 May 2013 00:00:00 GMT"), Some(Time(1_369_353_600)));
        assert_eq!(Time::parse_basic("20130524T000000Z"), Some(Time(1_369_353_600)));
        assert_eq!(Time::parse_iso("2013-05-24T02:00:00.123+02:00"), Some(Time(1_369_353_600)));
        assert_eq!(Time::parse_iso("2013-05-24"), Some(Time(1_369_353_600)));
        for bad in [
            "2013-02-30T00:00:00Z",
            "2013-05-24T00:00:00",
            "2013-05-24T25:00:00Z",
            "2013-05-24T00:00:00.Z",
        ] {
            assert_eq!(Time::parse_iso(bad), None, "{bad}");
        }
    }
}
