//! Types of options, and how their values are read.

/// What a value looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptionKind {
    /// Any text.
    Str,
    /// `true`/`false`, `1`/`0`, `yes`/`no`, `on`/`off`.
    Bool,
    /// A whole number, with sign.
    Int,
    /// A whole number from 0.
    Uint,
    /// Bytes: a number with `K`, `M`, `G`, `T` (times 1024), `Ki`, ..., or `B`.
    Size,
    /// A number.
    Float,
    /// Seconds.
    Secs,
}

impl OptionKind {
    /// The peer's name of the type.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Str => "str",
            Self::Bool => "bool",
            Self::Int => "int",
            Self::Uint => "uint",
            Self::Size => "size",
            Self::Float => "float",
            Self::Secs => "secs",
        }
    }

    /// Whether a value fits.
    ///
    /// # Errors
    /// What would fit.
    pub fn check(self, value: &str) -> Result<(), String> {
        let (fits, wanted) = match self {
            Self::Str => return Ok(()),
            Self::Bool => (parse_bool(value).is_some(), "true or false"),
            Self::Int => (value.parse::<i64>().is_ok(), "a whole number"),
            Self::Uint | Self::Secs => (value.parse::<u64>().is_ok(), "a whole number from 0"),
            Self::Size => (parse_size(value).is_some(), "bytes, for example 4096, 64K, 4G"),
            Self::Float => (value.parse::<f64>().is_ok_and(f64::is_finite), "a number"),
        };
        if fits { Ok(()) } else { Err(format!("'{value}' is not {wanted}")) }
    }
}

pub(crate) fn parse_bool(value: &str) -> Option<bool> {
    match value.to_ascii_lowercase().as_str() {
        "true" | "1" | "yes" | "on" => Some(true),
        "false" | "0" | "no" | "off" => Some(false),
        _ => None,
    }
}

/// Reads `4096`, `64K`, `4GiB`: bytes.
#[must_use]
pub fn parse_size(value: &str) -> Option<u64> {
    let value = value.trim();
    let digits = value.find(|c: char| !c.is_ascii_digit()).unwrap_or(value.len());
    let number: u64 = value[..digits].parse().ok()?;
    let shift = match value[digits..].trim().to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "ki" | "kib" | "kb" => 10,
        "m" | "mi" | "mib" | "mb" => 20,
        "g" | "gi" | "gib" | "gb" => 30,
        "t" | "ti" | "tib" | "tb" => 40,
        "p" | "pi" | "pib" | "pb" => 50,
        _ => return None,
    };
    number.checked_mul(1 << shift)
}
