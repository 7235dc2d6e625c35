//! Numbers for people: sizes, counts, ages.
//!
//! Source: the peer's `include/types.h` (`byte_u_t`, `si_u_t`), `common/ceph_time.cc`,
//! `common/strtol.cc`.

fn scaled(value: u64, base: u64, units: [&str; 7]) -> String {
    let (mut n, mut index, mut mult) = (value, 0, 1u64);
    while n >= base && index < 6 {
        n /= base;
        index += 1;
        mult *= base;
    }
    let unit = units[index];
    if value.is_multiple_of(mult) {
        return format!("{n}{unit}");
    }
    let exact = value as f64 / mult as f64;
    for places in [2, 1] {
        let text = format!("{exact:.places$}{unit}");
        if text.len() <= 7 {
            return text;
        }
    }
    format!("{exact:.0}{unit}")
}

/// `512 B`, `1.5 KiB`, `6 GiB`: at most seven characters. The peer's `byte_u_t`.
#[must_use]
pub fn bytes_u(value: u64) -> String {
    scaled(value, 1024, [" B", " KiB", " MiB", " GiB", " TiB", " PiB", " EiB"])
}

/// `999`, `1.23k`, `5M`: at most seven characters. The peer's `si_u_t`.
#[must_use]
pub fn si_u(value: u64) -> String {
    scaled(value, 1000, ["", "k", "M", "G", "T", "P", "E"])
}

/// How long ago, in one unit: `2m`, `3h`, `5d`. The peer's `to_pretty_timedelta`.
#[must_use]
pub fn age(ms: u64) -> String {
    if ms < 1000 { format!("{ms}ms") } else { whole(ms / 1000) }
}

/// A span of time in one unit; below two seconds with its fraction. The peer's
/// `timespan_str`.
#[must_use]
pub fn timespan(ms: u64) -> String {
    if ms < 2000 {
        return format!("{}s", crate::float_text(ms as f64 / 1000.0, 6));
    }
    whole(ms / 1000)
}

fn whole(secs: u64) -> String {
    let (minutes, hours, days) = (secs / 60, secs / 3600, secs / 86_400);
    if secs < 120 {
        format!("{secs}s")
    } else if minutes < 120 {
        format!("{minutes}m")
    } else if hours < 48 {
        format!("{hours}h")
    } else if days < 14 {
        format!("{days}d")
    } else if days < 84 {
        format!("{}w", days / 7)
    } else if days < 720 {
        format!("{}M", days / 30)
    } else {
        format!("{}y", days / 365)
    }
}

/// Reads bytes: `4096`, `10K`, `10Ki`, `10KB`, `10KiB`, `4G`, in units of 1024. The peer's
/// `strict_iecstrtoll`.
///
/// # Errors
/// The peer's sentence.
pub fn parse_iec(text: &str) -> Result<u64, String> {
    const WHO: &str = "strict_iecstrtoll";
    let (number, unit) = split(text, WHO)?;
    let short = match unit {
        "B" => "",
        _ => unit.strip_suffix("iB").or(unit.strip_suffix(['B', 'i'])).unwrap_or(unit),
    };
    let Some(power) = power(short).filter(|p| *p > 0 || matches!(unit, "" | "B")) else {
        return Err(match unit.chars().count() {
            1 => format!("{WHO}: unit prefix not recognized '{unit}' "),
            2 => format!("{WHO}: illegal prefix '{unit}' "),
            _ => format!("{WHO}: illegal prefix (length > 2)"),
        });
    };
    scale(number, 1024, power, WHO)
}

/// Reads a count: `4096`, `10K`, `4G`, in units of 1000. The peer's `strict_sistrtoll`.
///
/// # Errors
/// The peer's sentence.
pub fn parse_si(text: &str) -> Result<u64, String> {
    const WHO: &str = "strict_sistrtoll";
    let (number, unit) = split(text, WHO)?;
    let power = power(unit).filter(|_| !number.is_empty());
    let power = power.ok_or("strict_si_cast: unit prefix not recognized")?;
    scale(number, 1000, power, WHO)
}

/// The digits, and what follows them.
fn split<'a>(text: &'a str, who: &str) -> Result<(&'a str, &'a str), String> {
    if text.is_empty() {
        return Err(format!("{who}: value not specified"));
    }
    let digits = text.strip_prefix('-').unwrap_or(text);
    if digits.len() < text.len() && digits.starts_with(|c: char| c.is_ascii_digit()) {
        return Err(format!("{who}: value should not be negative"));
    }
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    Ok(text.split_at(end))
}

fn power(prefix: &str) -> Option<u32> {
    if prefix.is_empty() {
        return Some(0);
    }
    let at = ["K", "M", "G", "T", "P", "E"].iter().position(|p| *p == prefix)?;
    u32::try_from(at + 1).ok()
}

fn scale(number: &str, base: u64, power: u32, who: &str) -> Result<u64, String> {
    if number.is_empty() {
        return Err(format!("Expected option value to be integer, got '{number}'"));
    }
    let scaled = number.parse::<u64>().ok().and_then(|n| n.checked_mul(base.pow(power)));
    scaled.ok_or_else(|| format!("{who}: value seems to be too large"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        for (n, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1 KiB"),
            (511_710, "500 KiB"),
            (85_323_776, "81 MiB"),
            (6_357_127_168, "5.9 GiB"),
            (6 << 30, "6 GiB"),
            (22_046, "22 KiB"),
            (157_153, "153 KiB"),
            (1_388_544, "1.3 MiB"),
            (u64::MAX, "16 EiB"),
        ] {
            assert_eq!(bytes_u(n), text);
        }
        assert_eq!(si_u(999), "999");
        assert_eq!(si_u(1234), "1.23k");
        assert_eq!(si_u(5_000_000), "5M");
    }

    #[test]
    fn ages() {
        for (ms, text) in
            [(5, "5ms"), (119_000, "119s"), (120_000, "2m"), (7_200_000, "2h"), (172_800_000, "2d")]
        {
            assert_eq!(age(ms), text);
        }
        assert_eq!(timespan(1500), "1.5s");
    }

    #[test]
    fn reads_sizes() {
        assert_eq!(parse_iec("10M"), Ok(10 << 20));
        assert_eq!(
            parse_iec("10x").unwrap_err(),
            "strict_iecstrtoll: unit prefix not recognized 'x' "
        );
        assert_eq!(parse_si("10K"), Ok(10_000));
        assert!(parse_iec("99999999999999999999").is_err());
        assert!(parse_iec("").is_err());
        assert!(parse_iec("17179869184G").is_err());
    }
}
