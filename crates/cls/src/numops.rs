//! `numops`: arithmetic on decimal numbers in an omap.

use bytes::Bytes;
use types::{Errno, OpResult};

use crate::{Class, DONE, Object, READS, Reply, WRITES, method, params};

pub(crate) const CLASS: Class = Class {
    name: "numops",
    methods: &[
        method("add", READS | WRITES, |o, input| change(o, input, |a, b| a + b)),
        method("mul", READS | WRITES, |o, input| change(o, input, |a, b| a * b)),
    ],
};

/// As C's `strtod` on the whole text; an empty one is 0.
fn number(text: &[u8]) -> Option<f64> {
    let text = std::str::from_utf8(text).ok()?.trim_start();
    if text.is_empty() { Some(0.0) } else { text.parse().ok() }
}

/// As C's `%.10g`.
fn decimal(x: f64) -> String {
    const DIGITS: i32 = 10;
    if x == 0.0 || !x.is_finite() {
        return if x == 0.0 { "0".to_owned() } else { x.to_string().to_lowercase() };
    }
    let scientific = format!("{x:.*e}", DIGITS as usize - 1);
    let (mantissa, exponent) = scientific.split_once('e').expect("the form has an exponent");
    let exponent: i32 = exponent.parse().expect("an integer");
    let trim = |s: &str| {
        if s.contains('.') {
            s.trim_end_matches('0').trim_end_matches('.').to_owned()
        } else {
            s.to_owned()
        }
    };
    if (-4..DIGITS).contains(&exponent) {
        trim(&format!("{x:.*}", (DIGITS - 1 - exponent).max(0) as usize))
    } else {
        let sign = if exponent < 0 { '-' } else { '+' };
        format!("{}e{sign}{:02}", trim(mantissa), exponent.abs())
    }
}

fn change(o: &mut dyn Object, input: &Bytes, f: fn(f64, f64) -> f64) -> OpResult<Reply> {
    let (key, operand): (Bytes, Bytes) = params(input)?;
    let operand = number(&operand).ok_or(Errno::INVAL)?;
    let value = match o.omap_get(&key) {
        Ok(raw) => number(&raw).ok_or(Errno::BADMSG)?,
        Err(Errno::NOENT | Errno::NODATA) => 0.0,
        Err(e) => return Err(e),
    };
    o.omap_set(vec![(key, decimal(f(value, operand)).into())])?;
    Ok(DONE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_c_does() {
        for (x, text) in [
            (0.0, "0"),
            (6.0, "6"),
            (-1.5, "-1.5"),
            (0.1 + 0.2, "0.3"),
            (1e9, "1000000000"),
            (1e10, "1e+10"),
            (12_345_678_901.0, "1.23456789e+10"),
            (0.0001, "0.0001"),
            (0.000_012_5, "1.25e-05"),
        ] {
            assert_eq!(decimal(x), text);
        }
        assert_eq!(number(b" 4.25"), Some(4.25));
        assert_eq!(number(b"4 apples"), None);
    }
}
