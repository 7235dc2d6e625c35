//! Browsers' uploads: a form with fields, then a file; and the policy that bounds it.
//!
//! ```text
//!   preamble ──boundary──> headers of a part ──empty line──> field ──boundary──> headers …
//!                                                      └───> file ──boundary──> done
//! ```
//!
//! Fields are held, and bounded; the file's bytes come out as they come in. What stands behind the file is not read.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use crate::error::{Code, Error, Result};
use crate::time::Time;

/// Bytes of all fields and of the headers of parts.
const FIELDS_BYTES_MAX: usize = 1 << 20;
/// Fields of a form.
const FIELDS_MAX: usize = 100;
/// Bytes of a boundary (RFC 2046).
const BOUNDARY_BYTES_MAX: usize = 70;

fn malformed(text: &str) -> Error {
    Error::new(Code::InvalidRequest, text)
}

/// The fields of a form, by name in lower case.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fields(Vec<(String, String)>);

impl Fields {
    /// A field's value.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }

    /// All fields.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(n, v)| (n.as_str(), v.as_str()))
    }

    fn add(&mut self, name: &str, value: String) -> Result<()> {
        let name = name.to_ascii_lowercase();
        if self.get(&name).is_some() || self.0.len() == FIELDS_MAX {
            return Err(malformed(&format!(
                "The form has the field {name} twice, or more than 100 fields."
            )));
        }
        self.0.push((name, value));
        Ok(())
    }

    /// The key that the file gets: `${filename}` stands for its name.
    ///
    /// # Errors
    /// [`Code::InvalidArgument`] where there is no key.
    pub fn key(&self, file_name: &str) -> Result<String> {
        let key = self
            .get("key")
            .ok_or_else(|| Error::new(Code::InvalidArgument, "The form has no field key."))?;
        Ok(key.replace("${filename}", file_name))
    }
}

#[derive(Debug, PartialEq, Eq)]
enum State {
    Preamble,
    /// Headers of a part.
    Headers,
    Field(String),
    File,
    Done,
}

/// Takes the bytes of a form.
#[derive(Debug)]
pub struct Decoder {
    state: State,
    /// CR LF, two dashes and the boundary.
    mark: Vec<u8>,
    /// Bytes that are not judged yet.
    held: Vec<u8>,
    /// Bytes of `held` in which nothing was found: a client that sends byte by byte must not cost a search of all.
    seen: usize,
    /// Bytes of fields and headers so far.
    taken: usize,
    fields: Fields,
    file_name: String,
    file_type: String,
}

impl Decoder {
    /// Takes the boundary from `Content-Type: multipart/form-data; boundary=…`.
    ///
    /// # Errors
    /// [`Code::InvalidRequest`].
    pub fn new(content_type: &str) -> Result<Self> {
        let boundary = content_type.split(';').filter_map(|p| p.trim().split_once('='));
        let boundary =
            boundary.into_iter().find(|(n, _)| n.trim().eq_ignore_ascii_case("boundary"));
        let boundary = boundary.map(|(_, b)| b.trim().trim_matches('"')).unwrap_or_default();
        if boundary.is_empty() || boundary.len() > BOUNDARY_BYTES_MAX {
            return Err(malformed("The form's Content-Type has no boundary of 1 to 70 bytes."));
        }
        let mark = format!("\r\n--{boundary}").into_bytes();
        // The first boundary may stand at the very beginning.
        let held = b"\r\n".to_vec();
        let (file_name, file_type) = (String::new(), String::new());
        Ok(Self {
            state: State::Preamble,
            mark,
            held,
            seen: 0,
            taken: 0,
            fields: Fields::default(),
            file_name,
            file_type,
        })
    }

    /// Takes the next bytes; appends those of the file to `out`.
    ///
    /// # Errors
    /// [`Code::InvalidRequest`] for what is no form, or has fields beyond their bounds.
    pub fn push(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<()> {
        self.held.extend_from_slice(input);
        while self.step(out)? {}
        if matches!(self.state, State::Headers | State::Field(_) | State::Preamble)
            && self.taken + self.held.len() > FIELDS_BYTES_MAX + input.len()
        {
            return Err(malformed("The form's fields have more than 1 MiB."));
        }
        Ok(())
    }

    /// One move; whether another may follow.
    fn step(&mut self, out: &mut Vec<u8>) -> Result<bool> {
        if self.taken > FIELDS_BYTES_MAX {
            return Err(malformed("The form's fields have more than 1 MiB."));
        }
        match &self.state {
            State::Done => {
                self.held.clear();
                Ok(false)
            }
            State::Headers => {
                // The rest of the boundary's line: CR LF, or two dashes at the end.
                if self.held.starts_with(b"--") {
                    return Err(Error::new(Code::InvalidArgument, "The form has no file."));
                }
                let Some(at) = self.find(false) else { return Ok(false) };
                let head = String::from_utf8(self.held[..at].to_vec())
                    .map_err(|_| malformed("A part's headers are no UTF-8."))?;
                self.consume(at + 4);
                self.begin(&head)?;
                Ok(true)
            }
            State::Preamble => {
                let Some(at) = self.find(true) else { return Ok(false) };
                self.consume(at + self.mark.len());
                self.state = State::Headers;
                Ok(true)
            }
            State::Field(name) => {
                let name = name.clone();
                let Some(at) = self.find(true) else { return Ok(false) };
                let value = String::from_utf8(self.held[..at].to_vec())
                    .map_err(|_| malformed("A field is no UTF-8."))?;
                self.fields.add(&name, value)?;
                self.consume(at + self.mark.len());
                self.state = State::Headers;
                Ok(true)
            }
            State::File => {
                if let Some(at) = find(&self.held, &self.mark) {
                    out.extend_from_slice(&self.held[..at]);
                    self.held.clear();
                    self.state = State::Done;
                } else {
                    // What may be the beginning of the boundary waits.
                    let sure = self.held.len().saturating_sub(self.mark.len() - 1);
                    out.extend(self.held.drain(..sure));
                }
                Ok(false)
            }
        }
    }

    /// Where the boundary, or the end of a part's headers, begins.
    fn find(&mut self, boundary: bool) -> Option<usize> {
        let what: &[u8] = if boundary { &self.mark } else { b"\r\n\r\n" };
        let from = self.seen.saturating_sub(what.len());
        let at = find(&self.held[from..], what).map(|at| from + at);
        self.seen = self.held.len();
        at
    }

    fn consume(&mut self, n: usize) {
        self.seen = 0;
        self.taken += n;
        self.held.drain(..n);
    }

    fn begin(&mut self, head: &str) -> Result<()> {
        let header = |name: &str| {
            let mut lines = head.lines().filter_map(|l| l.split_once(':'));
            lines.find(|(n, _)| n.trim().eq_ignore_ascii_case(name)).map(|(_, v)| v.trim())
        };
        let disposition = header("content-disposition").unwrap_or_default();
        let name = parameter(disposition, "name")
            .ok_or_else(|| malformed("A part of the form has no name."))?;
        if !name.eq_ignore_ascii_case("file") {
            self.state = State::Field(name);
            return Ok(());
        }
        let path = parameter(disposition, "filename").unwrap_or_default();
        self.file_name = path.rsplit(['/', '\\']).next().unwrap_or_default().to_owned();
        self.file_type = header("content-type").unwrap_or_default().to_owned();
        self.state = State::File;
        Ok(())
    }

    /// Whether all fields are there: the file's bytes follow.
    #[must_use]
    pub fn has_fields(&self) -> bool {
        matches!(self.state, State::File | State::Done)
    }

    /// The fields so far.
    #[must_use]
    pub fn fields(&self) -> &Fields {
        &self.fields
    }

    /// The file's name without directories, and its content type; both may be empty.
    #[must_use]
    pub fn file(&self) -> (&str, &str) {
        (&self.file_name, &self.file_type)
    }

    /// Ends the form.
    ///
    /// # Errors
    /// [`Code::InvalidRequest`] where the file did not end by the boundary.
    pub fn finish(self) -> Result<Fields> {
        if self.state == State::Done {
            Ok(self.fields)
        } else {
            Err(malformed("The form ends too early."))
        }
    }
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|w| w == what)
}

/// A parameter of a header, `name="value"`, quoted or not.
fn parameter(header: &str, name: &str) -> Option<String> {
    let mut rest = header;
    while let Some((_, after)) = rest.split_once(';') {
        let (key, value) = after.split_once('=')?;
        let value = value.trim_start();
        let (text, next) = match value.strip_prefix('"') {
            Some(quoted) => {
                let mut text = String::new();
                let mut chars = quoted.char_indices();
                let end = loop {
                    match chars.next()? {
                        (at, '"') => break at + 1,
                        (_, '\\') => text.push(chars.next()?.1),
                        (_, c) => text.push(c),
                    }
                };
                (text, &quoted[end..])
            }
            None => {
                let end = value.find(';').unwrap_or(value.len());
                (value[..end].trim().to_owned(), &value[end..])
            }
        };
        if key.trim().eq_ignore_ascii_case(name) {
            return Some(text);
        }
        rest = next;
    }
    None
}

/// What a condition of a policy wants of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Want {
    Equal(String, String),
    Begins(String, String),
    Length(u64, u64),
}

/// The policy of a form: what may be uploaded, and until when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    expiration: Time,
    wants: Vec<Want>,
}

impl Policy {
    /// Reads the field `policy`: base64 of JSON.
    ///
    /// # Errors
    /// [`Code::InvalidArgument`].
    pub fn parse(text: &str) -> Result<Self> {
        let bad =
            |text: &str| Error::new(Code::InvalidArgument, format!("The form's policy: {text}"));
        let json = STANDARD.decode(text.trim()).map_err(|_| bad("it is no base64."))?;
        let json: Value =
            serde_json::from_slice(&json).map_err(|e| bad(&format!("it is no JSON: {e}.")))?;
        let expiration = json["expiration"].as_str().and_then(Time::parse_iso);
        let expiration =
            expiration.ok_or_else(|| bad("expiration is like 2026-01-02T03:04:05Z."))?;
        let conditions =
            json["conditions"].as_array().ok_or_else(|| bad("conditions is a list."))?;
        let mut wants = Vec::new();
        for condition in conditions {
            match condition {
                Value::Object(fields) => {
                    for (name, value) in fields {
                        let value = value.as_str().ok_or_else(|| bad("a value is text."))?;
                        wants.push(Want::Equal(name.to_ascii_lowercase(), value.into()));
                    }
                }
                Value::Array(parts) => wants.push(want(parts).ok_or_else(|| {
                    bad("a condition is eq, starts-with or content-length-range.")
                })?),
                _ => return Err(bad("a condition is an object or a list.")),
            }
        }
        Ok(Self { expiration, wants })
    }

    /// Checks a form against it: its time, each condition, and that each field is named by one. `key` is the key that
    /// the file gets.
    ///
    /// # Errors
    /// [`Code::AccessDenied`], with the field.
    pub fn check(&self, fields: &Fields, bucket: &str, key: &str, now: Time) -> Result<()> {
        let denied = |text: String| Err(Error::new(Code::AccessDenied, text));
        if now > self.expiration {
            return denied("The form's policy has expired.".into());
        }
        let value = |name: &str| match name {
            "bucket" => bucket,
            "key" => key,
            name => fields.get(name).unwrap_or_default(),
        };
        for want in &self.wants {
            match want {
                Want::Equal(name, text) if value(name) != text => {
                    return denied(format!("The policy wants the field {name} to be another one."));
                }
                Want::Begins(name, text) if !value(name).starts_with(text.as_str()) => {
                    return denied(format!(
                        "The policy wants the field {name} to begin in another way."
                    ));
                }
                _ => {}
            }
        }
        let free = ["policy", "signature", "awsaccesskeyid", "x-amz-signature", "file"];
        let named = |name: &str| {
            self.wants
                .iter()
                .any(|w| matches!(w, Want::Equal(n, _) | Want::Begins(n, _) if n == name))
        };
        let unnamed =
            |name: &&str| !free.contains(name) && !name.starts_with("x-ignore-") && !named(name);
        if let Some(name) = fields.0.iter().map(|(n, _)| n.as_str()).find(unnamed) {
            return denied(format!("The policy has no condition for the field {name}."));
        }
        Ok(())
    }

    /// The bytes that the file may have, from and to.
    #[must_use]
    pub fn length(&self) -> (u64, u64) {
        let ranges = self.wants.iter().filter_map(|w| match w {
            Want::Length(from, to) => Some((*from, *to)),
            _ => None,
        });
        ranges.fold((0, u64::MAX), |(from, to), (f, t)| (from.max(f), to.min(t)))
    }

    /// Checks the file's length, at its end.
    ///
    /// # Errors
    /// [`Code::EntityTooSmall`], [`Code::EntityTooLarge`].
    pub fn check_length(&self, len: u64) -> Result<()> {
        let (from, to) = self.length();
        if len < from {
            return Err(Code::EntityTooSmall.into());
        }
        if len > to { Err(Code::EntityTooLarge.into()) } else { Ok(()) }
    }
}

/// `["eq", "$field", "value"]` and its like.
fn want(parts: &[Value]) -> Option<Want> {
    let [kind, a, b] = parts else { return None };
    let number = |v: &Value| v.as_u64().or_else(|| v.as_str()?.parse().ok());
    let field = || a.as_str()?.strip_prefix('$').map(str::to_ascii_lowercase);
    match kind.as_str()? {
        "eq" => Some(Want::Equal(field()?, b.as_str()?.into())),
        "starts-with" => Some(Want::Begins(field()?, b.as_str()?.into())),
        "content-length-range" => Some(Want::Length(number(a)?, number(b)?)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TYPE: &str = "multipart/form-data; boundary=\"frontier\"";

    fn form(fields: &[(&str, &str)], file: &[u8]) -> Vec<u8> {
        let mut out = String::new();
        for (name, value) in fields {
            out += &format!(
                "--frontier\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n"
            );
        }
        out += "--frontier\r\nContent-Disposition: form-data; name=\"file\"; filename=\"C:\\\\dir\\\\na\\\"me.txt\"\r\nContent-Type: text/x\r\n\r\n";
        [out.as_bytes(), file, b"\r\n--frontier--\r\n"].concat()
    }

    fn decode(body: &[u8], step: usize) -> Result<(Fields, Vec<u8>, String)> {
        let mut decoder = Decoder::new(TYPE)?;
        let mut out = Vec::new();
        for piece in body.chunks(step) {
            decoder.push(piece, &mut out)?;
        }
        let name = decoder.file().0.to_owned();
        Ok((decoder.finish()?, out, name))
    }

    proptest! {
        /// Fields and file come out as they were, however the bytes are cut.
        #[test]
        fn forms_come_back(file in any::<Vec<u8>>(), value in "[ -~\r\n]{0,30}", step in 1usize..99) {
            prop_assume!(!value.contains("--frontier"));
            let body = form(&[("key", "a/${filename}"), ("X-Amz-Meta-A", &value)], &file);
            let (fields, data, name) = decode(&body, step).unwrap();
            prop_assert_eq!(data, file);
            prop_assert_eq!(fields.get("x-amz-meta-a"), Some(value.as_str()));
            prop_assert_eq!(fields.key(&name).unwrap(), "a/na\"me.txt");
        }

        /// No bytes make it panic.
        #[test]
        fn any_bytes(body in any::<Vec<u8>>(), text in any::<String>(), step in 1usize..20) {
            let _ = (decode(&body, step), Decoder::new(&text), Policy::parse(&text), parameter(&text, "name"));
            let _ = decode(&[b"--frontier\r\n", text.as_bytes(), b"\r\n\r\n"].concat(), step);
        }
    }

    #[test]
    fn what_is_refused() {
        let good = form(&[("key", "k")], b"data");
        for cut in 0..good.len() - 6 {
            assert!(decode(&good[..cut], 7).is_err(), "cut at {cut}");
        }
        assert!(decode(&form(&[("key", "k"), ("Key", "l")], b""), 99).is_err());
        assert!(decode(&form(&[("key", &"k".repeat(FIELDS_BYTES_MAX + 1))], b""), 4_096).is_err());
        assert!(decode(&vec![b'x'; 2 * FIELDS_BYTES_MAX], 4_096).is_err());
        assert!(decode(b"--frontier--\r\n", 99).is_err());
        assert!(Decoder::new("multipart/form-data").is_err());
    }

    #[test]
    fn policies() {
        let parse = |json: &str| Policy::parse(&STANDARD.encode(json));
        let policy = parse(
            r#"{"expiration": "2026-01-02T03:04:05Z", "conditions": [{"bucket": "b"}, ["starts-with", "$key", "u/"],
            ["eq", "$acl", "private"], ["content-length-range", 1, "10"]]}"#,
        )
        .unwrap();
        let now = Time::parse_iso("2026-01-02T03:04:05Z").unwrap();
        let check = |all: &[(&str, &str)], bucket: &str, key: &str, now| {
            let mut fields = Fields::default();
            for (name, value) in all {
                fields.add(name, (*value).into()).unwrap();
            }
            policy.check(&fields, bucket, key, now).is_ok()
        };
        let good =
            [("key", "u/${filename}"), ("acl", "private"), ("policy", "x"), ("x-ignore-a", "1")];
        assert!(check(&good, "b", "u/f", now));
        assert!(
            !check(&good, "c", "u/f", now)
                && !check(&good, "b", "v/f", now)
                && !check(&good, "b", "u/f", Time(now.0 + 1))
        );
        assert!(!check(&good[..1], "b", "u/f", now), "a condition without its field");
        let more = [good[0], good[1], ("x-amz-meta-a", "1")];
        assert!(!check(&more, "b", "u/f", now), "a field without its condition");
        assert_eq!(policy.check_length(0).unwrap_err().code, Code::EntityTooSmall);
        assert_eq!(policy.check_length(11).unwrap_err().code, Code::EntityTooLarge);
        assert!(policy.check_length(10).is_ok());
        for bad in [
            "",
            "{}",
            r#"{"expiration": "2026-01-02T03:04:05Z"}"#,
            r#"{"expiration": "x", "conditions": []}"#,
            r#"{"expiration": "2026-01-02T03:04:05Z", "conditions": [["in", "$a", "b"]]}"#,
            r#"{"expiration": "2026-01-02T03:04:05Z", "conditions": [["eq", "a", "b"]]}"#,
        ] {
            assert_eq!(parse(bad).unwrap_err().code, Code::InvalidArgument, "{bad}");
        }
    }
}
