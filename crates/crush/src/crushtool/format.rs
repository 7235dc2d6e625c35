//! How the peer's streams print things.

use std::fmt;

/// A float with six significant digits, as `%g`; or with those that a precision says.
pub(super) struct General(pub f32);

impl fmt::Display for General {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let x = f64::from(self.0);
        let digits = f.precision().unwrap_or(6).max(1) as i32;
        if x == 0.0 {
            return f.write_str(if x.is_sign_negative() { "-0" } else { "0" });
        }
        if !x.is_finite() {
            return f.write_str(match (x.is_nan(), x > 0.0) {
                (true, _) => "nan",
                (_, true) => "inf",
                _ => "-inf",
            });
        }
        let scientific = format!("{x:.*e}", digits as usize - 1);
        let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
        let exponent: i32 = exponent.parse().unwrap_or(0);
        let trim = |s: &str| {
            if s.contains('.') {
                s.trim_end_matches('0').trim_end_matches('.').to_owned()
            } else {
                s.to_owned()
            }
        };
        if (-4..digits).contains(&exponent) {
            let decimals = (digits - 1 - exponent) as usize;
            f.write_str(&trim(&format!("{x:.decimals$}")))
        } else {
            let sign = if exponent < 0 { '-' } else { '+' };
            write!(f, "{}e{sign}{:02}", trim(mantissa), exponent.abs())
        }
    }
}

/// `[1,2,3]`.
pub(super) struct List<'a>(pub &'a [i32]);

impl fmt::Display for List<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (i, x) in self.0.iter().enumerate() {
            if i > 0 {
                f.write_str(",")?;
            }
            write!(f, "{x}")?;
        }
        f.write_str("]")
    }
}

/// `{host=a,root=b}`.
pub(super) struct Location<'a>(pub &'a crate::Location);

impl fmt::Display for Location<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pairs: Vec<String> = self.0.iter().map(|(k, v)| format!("{k}={v}")).collect();
        write!(f, "{{{}}}", pairs.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn general_floats() {
        for (x, want) in [
            (0.0, "0"),
            (1.0, "1"),
            (1.5, "1.5"),
            (341.333_34, "341.333"),
            (0.000_012_345_678, "1.23457e-05"),
            (1_234_567.0, "1.23457e+06"),
            (999_999.9, "1e+06"),
            (123_456.0, "123456"),
            (0.0001, "0.0001"),
            (-2.25, "-2.25"),
        ] {
            assert_eq!(General(x).to_string(), want);
        }
        assert_eq!(format!("{:.17}", General(1.350_021_4)), "1.3500213623046875");
    }
}
