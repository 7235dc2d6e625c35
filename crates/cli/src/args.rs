//! One command as a client sent it.
//!
//! Source: the peer's `common/cmdparse.cc`: which json values fit which argument, and the
//! sentences when they do not.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde_json::{Map, Value};
use types::OsdId;

use crate::Sig;

/// Why a command's words cannot be used; always EINVAL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArgError(pub String);

impl fmt::Display for ArgError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ArgError {}

impl ArgError {
    /// Whether a command was refused because it names none.
    #[must_use]
    pub fn is_about_prefix(&self) -> bool {
        self.0.starts_with("command ")
    }

    fn field(name: &str) -> Self {
        Self(format!("bad or missing field '{name}'"))
    }
}

/// A command's prefix and arguments.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Args {
    prefix: String,
    map: Map<String, Value>,
}

impl Args {
    /// Reads the strings of a command message: one json object, perhaps cut into pieces.
    ///
    /// # Errors
    /// The peer's sentence, to be answered with EINVAL.
    pub fn parse<S: AsRef<[u8]>>(cmd: &[S]) -> Result<Self, ArgError> {
        let text = cmd.iter().map(AsRef::as_ref).collect::<Vec<_>>().concat();
        let text = String::from_utf8_lossy(&text);
        // What stands behind the object is passed over, as the peer does: its own
        // `rbd perf image` sends a quotation mark too many.
        let mut values = serde_json::Deserializer::from_str(&text).into_iter::<Value>();
        let Some(Ok(Value::Object(map))) = values.next() else {
            return Err(ArgError(format!("unparseable JSON {}", cut(&text))));
        };
        let prefix = match map.get("prefix") {
            Some(Value::String(prefix)) => prefix.clone(),
            _ => return Err(ArgError("command prefix not found".into())),
        };
        if prefix.is_empty() {
            return Err(ArgError("command prefix must not be empty".into()));
        }
        // A prefix counts as it stands: two spaces between its words make it another.
        if prefix.split([' ', ';', ',', '\t', '\n']).all(str::is_empty) {
            return Err(ArgError("command requires a prefix to be valid".into()));
        }
        Ok(Self { prefix, map })
    }

    /// A command made here.
    #[must_use]
    pub fn new(prefix: &str) -> Self {
        let map = Map::from_iter([("prefix".to_owned(), Value::from(prefix))]);
        Self { prefix: prefix.to_owned(), map }
    }

    /// The same with one more argument.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.map.insert(name.to_owned(), value.into());
        self
    }

    /// The words that name the command.
    #[must_use]
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The output format asked for; `plain` when none.
    #[must_use]
    pub fn format(&self) -> &str {
        match self.map.get("format") {
            Some(Value::String(format)) if !format.is_empty() => format,
            _ => "plain",
        }
    }

    /// Whether an argument was given.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.map.get(name).is_some_and(|v| !v.is_null())
    }

    /// Everything, as json: for the audit log.
    #[must_use]
    pub fn to_json(&self) -> String {
        Value::Object(self.map.clone()).to_string()
    }

    /// Names and values as text, for caps (`allow command "x" with k=v`).
    #[must_use]
    pub fn strings(&self) -> BTreeMap<String, String> {
        let text = |value: &Value| match value {
            Value::Array(items) => items.iter().map(plain).collect::<Vec<_>>().join(" "),
            other => plain(other),
        };
        self.map.iter().map(|(name, value)| (name.clone(), text(value))).collect()
    }

    /// What a grant's conditions on a command (`allow command "x" with k=v`) are held against:
    /// its arguments by the signature, as text, and `caps_SERVICE` of each pair in `caps`.
    /// What else a caller wrote into the command counts for nothing.
    #[must_use]
    pub fn judged(&self, sig: &Sig) -> BTreeMap<String, String> {
        let mut all = self.strings();
        all.retain(|name, _| sig.args().any(|arg| arg.name == name));
        if sig.args().any(|arg| arg.name == "caps")
            && let Ok(words) = self.list("caps")
        {
            let pairs = caps_pairs(&words).into_iter();
            all.extend(pairs.map(|(service, cap)| (format!("caps_{service}"), cap)));
        }
        all
    }

    /// Forgets arguments that the signature does not have.
    pub fn keep_known(&mut self, sig: &Sig) {
        let always = ["prefix", "format", "target"];
        self.map.retain(|name, _| {
            always.contains(&name.as_str()) || sig.args().any(|arg| arg.name == name)
        });
    }

    /// A text, where given.
    ///
    /// # Errors
    /// When it is something else.
    pub fn str(&self, name: &str) -> Result<Option<&str>, ArgError> {
        match self.map.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(ArgError::field(name)),
        }
    }

    /// A text that must be there.
    ///
    /// # Errors
    /// When it is missing or something else.
    pub fn need_str(&self, name: &str) -> Result<&str, ArgError> {
        self.str(name)?.ok_or_else(|| ArgError::field(name))
    }

    /// A text or the empty one.
    ///
    /// # Errors
    /// When it is something else.
    pub fn str_or_empty(&self, name: &str) -> Result<&str, ArgError> {
        Ok(self.str(name)?.unwrap_or_default())
    }

    /// A whole number, where given.
    ///
    /// # Errors
    /// When it is something else.
    pub fn int(&self, name: &str) -> Result<Option<i64>, ArgError> {
        match self.map.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::Number(n)) => n.as_i64().map(Some).ok_or_else(|| ArgError::field(name)),
            Some(_) => Err(ArgError::field(name)),
        }
    }

    /// A whole number that must be there.
    ///
    /// # Errors
    /// When it is missing or something else.
    pub fn need_int(&self, name: &str) -> Result<i64, ArgError> {
        self.int(name)?.ok_or_else(|| ArgError::field(name))
    }

    /// A number, where given.
    ///
    /// # Errors
    /// When it is something else.
    pub fn float(&self, name: &str) -> Result<Option<f64>, ArgError> {
        match self.map.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::Number(n)) => n.as_f64().map(Some).ok_or_else(|| ArgError::field(name)),
            Some(_) => Err(ArgError::field(name)),
        }
    }

    /// A number that must be there.
    ///
    /// # Errors
    /// When it is missing or something else.
    pub fn need_float(&self, name: &str) -> Result<f64, ArgError> {
        self.float(name)?.ok_or_else(|| ArgError::field(name))
    }

    /// A switch: true, `"true"`, or the old spelling as a text (`"--yes-i-really-mean-it"`).
    #[must_use]
    pub fn flag(&self, name: &str) -> bool {
        match self.map.get(name) {
            Some(Value::Bool(on)) => *on,
            Some(Value::String(text)) => {
                text == "true" || text.trim_start_matches('-').replace('-', "_") == name
            }
            Some(Value::Array(items)) => items.iter().any(|v| {
                v.as_str().is_some_and(|t| t.trim_start_matches('-').replace('-', "_") == name)
            }),
            _ => false,
        }
    }

    /// A list of texts; empty when missing. Numbers in it become text.
    ///
    /// # Errors
    /// When it is no list.
    pub fn list(&self, name: &str) -> Result<Vec<String>, ArgError> {
        match self.map.get(name) {
            None | Some(Value::Null) => Ok(Vec::new()),
            Some(Value::Array(items)) => Ok(items.iter().map(plain).collect()),
            Some(_) => Err(ArgError::field(name)),
        }
    }

    /// A list of whole numbers.
    ///
    /// # Errors
    /// When it is no list, or anything in it is not one.
    pub fn ints(&self, name: &str) -> Result<Vec<i64>, ArgError> {
        match self.map.get(name) {
            None | Some(Value::Null) => Ok(Vec::new()),
            Some(Value::Array(items)) => items
                .iter()
                .map(|v| v.as_i64().or_else(|| v.as_str()?.parse().ok()))
                .collect::<Option<_>>()
                .ok_or_else(|| ArgError::field(name)),
            Some(_) => Err(ArgError::field(name)),
        }
    }

    /// Anything that is read from text: a PG, a UUID.
    ///
    /// # Errors
    /// When it is missing or cannot be read.
    pub fn need_parsed<T: FromStr>(&self, name: &str) -> Result<T, ArgError> {
        let text = self.need_str(name)?;
        text.parse().map_err(|_| ArgError(format!("invalid {name} '{text}'")))
    }

    /// An OSD: `3`, `osd.3`, or a number.
    ///
    /// # Errors
    /// When it is missing or neither.
    pub fn need_osd(&self, name: &str) -> Result<OsdId, ArgError> {
        match self.map.get(name) {
            Some(Value::Number(n)) => n
                .as_i64()
                .and_then(|n| i32::try_from(n).ok())
                .map(OsdId)
                .ok_or_else(|| ArgError::field(name)),
            Some(Value::String(text)) => parse_osd(text)
                .ok_or_else(|| ArgError(format!("unable to parse osd id value '{text}'"))),
            Some(_) => Err(ArgError::field(name)),
            None => Err(ArgError(String::from("unable to parse osd id value ''"))),
        }
    }
}

/// `mon 'allow r' osd 'allow *'` by service. Of a service that is named twice the first counts,
/// as with the peer; a last word without a second is passed over.
#[must_use]
pub fn caps_pairs(words: &[String]) -> BTreeMap<String, String> {
    let mut caps = BTreeMap::new();
    for pair in words.chunks_exact(2) {
        caps.entry(pair[0].clone()).or_insert_with(|| pair[1].clone());
    }
    caps
}

/// `3` or `osd.3`.
pub(crate) fn parse_osd(text: &str) -> Option<OsdId> {
    let digits = text.strip_prefix("osd.").unwrap_or(text);
    digits.parse::<i32>().ok().filter(|n| *n >= 0).map(OsdId)
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Number(n) if n.is_f64() => crate::float_text(n.as_f64().unwrap_or_default(), 6),
        other => other.to_string(),
    }
}

/// What fits a log line and an answer.
fn cut(text: &str) -> &str {
    let end = text.char_indices().nth(1024).map_or(text.len(), |(at, _)| at);
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rules that `ceph_test_rados_api_cmd` asks for; sentences from
    /// `vectors/commands/bad.txt`.
    #[test]
    fn what_stands_behind_is_passed_over() {
        let args = Args::parse(&["\n {\"prefix\": \"rbd perf image stats\", \"a\": 1}\""]).unwrap();
        assert_eq!((args.prefix(), args.int("a").unwrap()), ("rbd perf image stats", Some(1)));
    }

    #[test]
    fn refuses_what_is_no_command() {
        for (cmd, why) in [
            ("asdfqwer", "unparseable JSON asdfqwer"),
            ("", "unparseable JSON "),
            ("[]", "unparseable JSON []"),
            ("{}", "command prefix not found"),
            ("{\"foo\":1}", "command prefix not found"),
            ("{\"prefix\":[\"a\"]}", "command prefix not found"),
            ("{\"prefix\":\"\"}", "command prefix must not be empty"),
            ("{\"prefix\":\"  \"}", "command requires a prefix to be valid"),
            ("{\"prefix\":\";;;,,,\"}", "command requires a prefix to be valid"),
            (";;;,,,", "unparseable JSON ;;;,,,"),
        ] {
            assert_eq!(Args::parse(&[cmd]), Err(ArgError(why.into())), "{cmd}");
        }
        let deep = "[".repeat(100_000);
        assert!(Args::parse(&[deep]).is_err());
    }

    #[test]
    fn typed_access() {
        let args = Args::parse(&[
            r#"{"prefix":"osd in","ids":["0","osd.1",2],"id":7,"w":1,"f":0.5,"#,
            r#""yes_i_really_mean_it":true,"sure":"--yes-i-really-really-mean-it","t":"x"}"#,
        ])
        .unwrap();
        assert_eq!(args.prefix(), "osd in");
        assert_eq!(args.format(), "plain");
        assert_eq!(args.list("ids").unwrap(), ["0", "osd.1", "2"]);
        assert_eq!(args.need_osd("id"), Ok(OsdId(7)));
        assert_eq!(args.float("w"), Ok(Some(1.0)));
        assert_eq!(args.int("f"), Err(ArgError("bad or missing field 'f'".into())));
        assert_eq!(args.need_str("none"), Err(ArgError("bad or missing field 'none'".into())));
        assert!(args.flag("yes_i_really_mean_it") && !args.flag("t") && !args.flag("none"));
        let old =
            Args::new("x").with("yes_i_really_really_mean_it", "--yes-i-really-really-mean-it");
        assert!(old.flag("yes_i_really_really_mean_it"));
        assert_eq!(args.need_osd("t").unwrap_err().0, "unable to parse osd id value 'x'");
    }
}
