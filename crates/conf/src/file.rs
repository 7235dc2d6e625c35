//! The text of a `ceph.conf`.

use std::collections::BTreeMap;

use crate::normalize;

/// Why a file cannot be used: which line, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct ConfError {
    /// Counted from 1.
    pub line: usize,
    /// A sentence.
    pub what: String,
}

/// Sections of names and values. Names are normalized; a later value replaces an earlier.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfFile {
    sections: BTreeMap<String, BTreeMap<String, String>>,
}

impl ConfFile {
    /// Reads `[section]` lines and `name = value` lines. `;` and `#` start a comment, at
    /// the start of a line or behind white space; a backslash at a line's end joins the
    /// next one; a value may stand in single or double quotes, and then keeps `;` and `#`.
    ///
    /// # Errors
    /// [`ConfError`] for the first line that is neither.
    pub fn parse(text: &str) -> Result<Self, ConfError> {
        let mut out = Self::default();
        let mut section: Option<String> = None;
        let mut lines = text.lines().enumerate();
        while let Some((at, first)) = lines.next() {
            let fail = |what: String| Err(ConfError { line: at + 1, what });
            let mut joined = first.trim_end().to_owned();
            while joined.ends_with('\\') {
                joined.pop();
                match lines.next() {
                    Some((_, next)) => joined.push_str(next.trim()),
                    None => break,
                }
            }
            let line = joined.trim();
            if line.is_empty() || line.starts_with([';', '#']) {
                continue;
            }
            if let Some(rest) = line.strip_prefix('[') {
                let Some((name, behind)) = rest.split_once(']') else {
                    return fail("a section's name ends with ']'".into());
                };
                let behind = behind.trim();
                if !behind.is_empty() && !behind.starts_with([';', '#']) {
                    return fail(format!(
                        "nothing may follow a section's name, here stands '{behind}'"
                    ));
                }
                let name = name.trim();
                if name.is_empty() {
                    return fail(
                        "a section has a name: global, mon, osd, client, or TYPE.ID".into(),
                    );
                }
                section = Some(name.to_owned());
                out.sections.entry(name.to_owned()).or_default();
                continue;
            }
            let Some((name, value)) = line.split_once('=') else {
                return fail(format!(
                    "expected '[section]' or 'name = value', here stands '{line}'"
                ));
            };
            let name = normalize(name);
            if name.is_empty() {
                return fail("a value has a name: 'name = value'".into());
            }
            let Some(section) = &section else {
                return fail(format!("'{name}' stands before any section: begin with '[global]'"));
            };
            let value = match Self::value(value) {
                Ok(value) => value,
                Err(what) => return fail(what),
            };
            out.sections.entry(section.clone()).or_default().insert(name, value);
        }
        Ok(out)
    }

    fn value(text: &str) -> Result<String, String> {
        let text = text.trim();
        if let Some(quote) = text.chars().next().filter(|c| matches!(c, '"' | '\'')) {
            let body = &text[1..];
            let mut value = String::new();
            let mut chars = body.chars();
            while let Some(c) = chars.next() {
                match c {
                    '\\' => value.extend(chars.next()),
                    c if c == quote => {
                        let behind = chars.as_str().trim();
                        if behind.is_empty() || behind.starts_with([';', '#']) {
                            return Ok(value);
                        }
                        return Err(format!(
                            "nothing may follow the closing quote, here stands '{behind}'"
                        ));
                    }
                    c => value.push(c),
                }
            }
            return Err(format!("the quote {quote} is not closed"));
        }
        let mut end = text.len();
        let mut spaced = true;
        for (at, c) in text.char_indices() {
            if matches!(c, ';' | '#') && spaced {
                end = at;
                break;
            }
            spaced = c.is_whitespace();
        }
        Ok(text[..end].trim_end().to_owned())
    }

    /// Names and values of one section, in order of names.
    pub fn section<'a>(&'a self, name: &str) -> impl Iterator<Item = (&'a str, &'a str)> {
        let section = self.sections.get(name);
        section.into_iter().flatten().map(|(k, v)| (k.as_str(), v.as_str()))
    }

    /// The sections' names.
    pub fn sections(&self) -> impl Iterator<Item = &str> {
        self.sections.keys().map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_the_line() {
        let cases = [
            ("fsid = 1\n", 1, "before any section"),
            ("[global]\nnonsense\n", 2, "name = value"),
            ("[global\n", 1, "ends with ']'"),
            ("[]\n", 1, "has a name"),
            ("[global]\n\n\na = \"b\n", 4, "not closed"),
            ("[global] x\n", 1, "nothing may follow"),
            ("[global]\n = 4\n", 2, "has a name"),
        ];
        for (text, line, what) in cases {
            let err = ConfFile::parse(text).unwrap_err();
            assert!(err.line == line && err.what.contains(what), "{text:?}: {err}");
        }
    }

    #[test]
    fn comments_quotes_and_joins() {
        let text = "[global] ; here\na = x;y # z\nb = 'p # q' # r\nc = 1 \\\n  2\nd=\n# e = 1\n";
        let file = ConfFile::parse(text).unwrap();
        let got: Vec<_> = file.section("global").collect();
        assert_eq!(got, [("a", "x;y"), ("b", "p # q"), ("c", "1 2"), ("d", "")]);
    }

    /// Whatever the bytes, parsing ends with a value or an error.
    #[test]
    fn survives_noise() {
        let seed = "[global]\nfsid = 'a' ; b\nmon host = [v2:1.2.3.4:5]\\\n,x\n";
        let mut state = 7u64;
        for _ in 0..20_000 {
            let mut bytes = seed.as_bytes().to_vec();
            for _ in 0..3 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let at = (state >> 33) as usize % bytes.len();
                bytes[at] = (state >> 20) as u8;
            }
            let _ = ConfFile::parse(&String::from_utf8_lossy(&bytes));
        }
    }
}
