//! Conditions of statements.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde_json::Value;

use super::glob::Pattern;
use super::{malformed, texts};
use crate::error::Result;
use crate::time::Time;

/// Condition keys that bind a statement to known senders: with a fixed value of one of them, a policy for everybody
/// is not public.
const NARROW: &[&str] = &[
    "aws:principalarn",
    "aws:sourceaccount",
    "aws:sourcearn",
    "aws:sourceip",
    "aws:userid",
    "aws:username",
];

/// Values of condition keys, by key in lower case.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Context(BTreeMap<String, Vec<String>>);

impl Context {
    /// Adds a value to a key.
    pub fn add(&mut self, key: &str, value: impl Into<String>) {
        self.0.entry(key.to_ascii_lowercase()).or_default().push(value.into());
    }

    /// A key's values; none where it is not there.
    #[must_use]
    pub fn values(&self, key: &str) -> &[String] {
        self.0.get(key).map_or(&[], Vec::as_slice)
    }

    fn has(&self, key: &str) -> bool {
        self.0.contains_key(key)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Equal,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
}

impl Order {
    fn holds<T: PartialOrd>(self, ours: &T, theirs: &T) -> bool {
        match self {
            Self::Equal => ours == theirs,
            Self::Less => ours < theirs,
            Self::LessEqual => ours <= theirs,
            Self::Greater => ours > theirs,
            Self::GreaterEqual => ours >= theirs,
        }
    }
}

/// What is compared, with the policy's values read.
#[derive(Clone, Debug, PartialEq)]
enum Test {
    Text {
        ignore_case: bool,
        values: Vec<Pattern>,
    },
    Arn(Vec<[Pattern; 6]>),
    Number(Order, Vec<f64>),
    Date(Order, Vec<Time>),
    Bool(Vec<bool>),
    Network(Vec<(IpAddr, u8)>),
    /// Whether the key is missing.
    Null(bool),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Each {
    /// Of a key with one value.
    One,
    /// `ForAllValues:`.
    All,
    /// `ForAnyValue:`.
    Any,
}

/// One operator with one key.
#[derive(Clone, Debug, PartialEq)]
pub struct Condition {
    key: String,
    each: Each,
    if_exists: bool,
    /// `NotEquals` and its like.
    negated: bool,
    test: Test,
}

impl Eq for Condition {}

/// Reads `{OPERATOR: {KEY: VALUES}}`.
pub fn parse(value: &Value) -> Result<Vec<Condition>> {
    let Value::Object(operators) = value else { return Err(malformed("Condition is an object.")) };
    let mut out = Vec::new();
    for (operator, keys) in operators {
        let Value::Object(keys) = keys else {
            return Err(malformed(format!("{operator} is an object.")));
        };
        for (key, values) in keys {
            out.push(one(operator, key, values)?);
        }
    }
    Ok(out)
}

/// Texts; numbers and flags count as theirs.
fn values(value: &Value) -> Result<Vec<String>> {
    let text = |v: &Value| match v {
        Value::Bool(b) => Some(b.to_string()),
        Value::Number(n) => Some(n.to_string()),
        _ => None,
    };
    match value {
        Value::Array(all) if all.iter().any(|v| text(v).is_some()) => {
            let each = all.iter().map(|v| text(v).or_else(|| v.as_str().map(str::to_owned)));
            each.collect::<Option<_>>()
                .ok_or_else(|| malformed("A value of a condition is a text, number or flag."))
        }
        value => match text(value) {
            Some(text) => Ok(vec![text]),
            None => Ok(texts(value)?.into_iter().map(str::to_owned).collect()),
        },
    }
}

fn one(operator: &str, key: &str, value: &Value) -> Result<Condition> {
    let values = values(value)?;
    let (each, name) = if let Some(name) = operator.strip_prefix("ForAllValues:") {
        (Each::All, name)
    } else if let Some(name) = operator.strip_prefix("ForAnyValue:") {
        (Each::Any, name)
    } else {
        (Each::One, operator)
    };
    let (name, if_exists) = name.strip_suffix("IfExists").map_or((name, false), |n| (n, true));
    let unknown = || malformed(format!("The operator {operator:?} is not known."));
    let read = |what: &str, ok: Option<Test>| {
        ok.ok_or_else(|| malformed(format!("{operator}: a value of {key} is no {what}.")))
    };
    let patterns = |wild: bool, lower: bool| {
        let fold = |v: &String| if lower { v.to_lowercase() } else { v.clone() };
        let pattern = |v: &String| {
            if wild { Pattern::with_variables(&fold(v)) } else { Pattern::literal(&fold(v)) }
        };
        Test::Text { ignore_case: lower, values: values.iter().map(pattern).collect() }
    };
    let arns = || {
        let parts = values.iter().map(|v| {
            let parts = <[&str; 6]>::try_from(v.splitn(6, ':').collect::<Vec<_>>()).ok()?;
            Some(parts.map(Pattern::with_variables))
        });
        parts.collect::<Option<Vec<_>>>().map(Test::Arn)
    };
    let (number, date) = (name.strip_prefix("Numeric"), name.strip_prefix("Date"));
    let (negated, test) = match name {
        "StringEquals" => (false, patterns(false, false)),
        "StringNotEquals" => (true, patterns(false, false)),
        "StringEqualsIgnoreCase" => (false, patterns(false, true)),
        "StringNotEqualsIgnoreCase" => (true, patterns(false, true)),
        "StringLike" => (false, patterns(true, false)),
        "StringNotLike" => (true, patterns(true, false)),
        // Both sides are base64 of bytes: equal texts are equal bytes.
        "BinaryEquals" => (false, patterns(false, false)),
        "ArnEquals" | "ArnLike" => (false, read("ARN", arns())?),
        "ArnNotEquals" | "ArnNotLike" => (true, read("ARN", arns())?),
        "Bool" => {
            let flags =
                values.iter().map(|v| v.to_ascii_lowercase().parse().ok()).collect::<Option<_>>();
            (false, read("flag", flags.map(Test::Bool))?)
        }
        "IpAddress" | "NotIpAddress" => {
            let networks = values.iter().map(|v| network(v)).collect::<Option<_>>();
            (name == "NotIpAddress", read("network", networks.map(Test::Network))?)
        }
        "Null" => {
            let flag =
                values.first().filter(|_| values.len() == 1 && !if_exists && each == Each::One);
            (
                false,
                read(
                    "flag",
                    flag.and_then(|v| v.to_ascii_lowercase().parse().ok()).map(Test::Null),
                )?,
            )
        }
        _ => {
            let (negated, order) =
                order(number.or(date).ok_or_else(unknown)?).ok_or_else(unknown)?;
            let test = if number.is_some() {
                let numbers = values
                    .iter()
                    .map(|v| v.parse::<f64>().ok().filter(|n| n.is_finite()))
                    .collect::<Option<_>>();
                read("number", numbers.map(|n| Test::Number(order, n)))?
            } else {
                let dates = values.iter().map(|v| time(v)).collect::<Option<_>>();
                read("date", dates.map(|d| Test::Date(order, d)))?
            };
            (negated, test)
        }
    };
    Ok(Condition { key: key.to_ascii_lowercase(), each, if_exists, negated, test })
}

fn order(name: &str) -> Option<(bool, Order)> {
    Some(match name {
        "Equals" => (false, Order::Equal),
        "NotEquals" => (true, Order::Equal),
        "LessThan" => (false, Order::Less),
        "LessThanEquals" => (false, Order::LessEqual),
        "GreaterThan" => (false, Order::Greater),
        "GreaterThanEquals" => (false, Order::GreaterEqual),
        _ => return None,
    })
}

fn time(text: &str) -> Option<Time> {
    Time::parse_iso(text).or_else(|| text.parse().ok().map(Time))
}

/// An address, with or without the length of its prefix.
fn network(text: &str) -> Option<(IpAddr, u8)> {
    let (address, bits) = text.split_once('/').map_or((text, None), |(a, b)| (a, Some(b)));
    let address: IpAddr = address.parse().ok()?;
    let most = if address.is_ipv4() { 32 } else { 128 };
    let bits = bits.map_or(Some(most), |b| b.parse().ok())?;
    (bits <= most).then_some((address, bits))
}

fn within(address: IpAddr, (network, bits): (IpAddr, u8)) -> bool {
    let cut = |left: u128, right: u128, width: u32| {
        let shift = width - u32::from(bits);
        shift == 128 || left >> shift == right >> shift
    };
    match (address, network) {
        (IpAddr::V4(a), IpAddr::V4(n)) => cut(u32::from(a).into(), u32::from(n).into(), 32),
        (IpAddr::V6(a), IpAddr::V6(n)) => cut(a.into(), n.into(), 128),
        _ => false,
    }
}

impl Condition {
    /// Whether it holds for a request.
    pub fn holds(&self, context: &Context) -> bool {
        if let Test::Null(missing) = self.test {
            return context.has(&self.key) != missing;
        }
        if !context.has(&self.key) {
            return self.if_exists
                || self.each == Each::All
                || (self.negated && self.each == Each::One);
        }
        let mut values = context.values(&self.key).iter();
        let fits = |value: &String| self.test.fits(value, context) != self.negated;
        match self.each {
            Each::All => values.all(fits),
            Each::Any => values.any(fits),
            // Of several values each must differ from those named, or one be among them.
            Each::One if self.negated => values.all(fits),
            Each::One => values.any(fits),
        }
    }

    /// Whether it binds its statement to senders that are named by fixed values.
    pub fn is_narrow(&self) -> bool {
        let fixed = match &self.test {
            Test::Text { values, .. } => !values.iter().any(Pattern::is_wild),
            Test::Arn(values) => !values.iter().flatten().any(Pattern::is_wild),
            Test::Network(values) => values.iter().all(|(_, bits)| *bits >= 8),
            _ => false,
        };
        fixed
            && !self.negated
            && !self.if_exists
            && self.each != Each::All
            && NARROW.contains(&self.key.as_str())
    }
}

impl Test {
    fn fits(&self, value: &str, context: &Context) -> bool {
        match self {
            Self::Text { ignore_case: true, values } => {
                let value = value.to_lowercase();
                values.iter().any(|p| p.fits(&value, context))
            }
            Self::Text { values, .. } => values.iter().any(|p| p.fits(value, context)),
            Self::Arn(values) => {
                let parts = <[&str; 6]>::try_from(value.splitn(6, ':').collect::<Vec<_>>());
                let fits = |patterns: &[Pattern; 6], parts: [&str; 6]| {
                    patterns.iter().zip(parts).all(|(p, t)| p.fits(t, context))
                };
                parts.is_ok_and(|parts| values.iter().any(|v| fits(v, parts)))
            }
            Self::Number(order, values) => {
                value.parse().is_ok_and(|n: f64| values.iter().any(|v| order.holds(&n, v)))
            }
            Self::Date(order, values) => {
                time(value).is_some_and(|t| values.iter().any(|v| order.holds(&t, v)))
            }
            Self::Bool(values) => value.parse().is_ok_and(|b: bool| values.contains(&b)),
            Self::Network(values) => {
                value.parse().is_ok_and(|a: IpAddr| values.iter().any(|n| within(a, *n)))
            }
            Self::Null(_) => false,
        }
    }
}
