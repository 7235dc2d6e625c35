//! Keyring files.
//!
//! ```text
//! [client.admin]
//!         key = AQ...==
//!         caps mon = "allow *"
//! ```
//!
//! Read as the peer reads them: `#` and `;` start comments (not inside quotes), values may
//! be quoted, a backslash at the end joins lines, words in keys may be separated by spaces
//! or underscores. What is not a section, `key`, `caps SERVICE` or `auid` is refused with
//! its line number.

use std::collections::BTreeMap;
use std::fmt;

use denc::{DecodeError, Denc, Reader, Writer};
use types::EntityName;

use crate::{CryptoKey, EntityAuth, KeyError};

/// Keys by entity. The peer's `KeyRing`; its binary form is the map itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Keyring {
    /// By name.
    pub entities: BTreeMap<EntityName, EntityAuth>,
}

/// Why a keyring's text cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("keyring line {line}: {reason}")]
pub struct KeyringError {
    /// From 1.
    pub line: usize,
    /// What is wrong there.
    pub reason: KeyringFault,
}

/// What is wrong in a line of a keyring.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyringFault {
    /// A section that is no entity.
    #[error("{0}")]
    Entity(&'static str),
    /// A setting before the first section.
    #[error("a setting before the first [entity]")]
    NoSection,
    /// Neither section nor setting.
    #[error("neither [entity] nor NAME = VALUE")]
    NotASetting,
    /// A section without its closing bracket.
    #[error("a section is [entity]")]
    OpenSection,
    /// A quote that does not end.
    #[error("a quote that does not end")]
    OpenQuote,
    /// Something behind the closing quote.
    #[error("something behind the closing quote")]
    BehindQuote,
    /// A setting that means nothing here.
    #[error("unknown setting {0:?}: known are key and caps SERVICE")]
    Unknown(String),
    /// A key that is none.
    #[error(transparent)]
    Key(#[from] KeyError),
}

impl Denc for Keyring {
    fn encode(&self, w: &mut Writer) {
        self.entities.encode(w);
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self { entities: Denc::decode(r)? })
    }
}

impl Keyring {
    /// A keyring of one key.
    #[must_use]
    pub fn of(name: EntityName, key: CryptoKey) -> Self {
        Self { entities: [(name, EntityAuth { key, ..Default::default() })].into() }
    }

    /// An entity's key.
    #[must_use]
    pub fn key(&self, name: &EntityName) -> Option<&CryptoKey> {
        self.entities.get(name).map(|e| &e.key)
    }

    /// Reads a keyring's text.
    ///
    /// # Errors
    /// [`KeyringError`], with the line.
    pub fn parse(text: &str) -> Result<Self, KeyringError> {
        let mut out = Self::default();
        let mut section: Option<EntityName> = None;
        let mut lines = text.lines().enumerate();
        while let Some((at, first)) = lines.next() {
            let mut joined = first.to_owned();
            while joined.ends_with('\\') {
                joined.pop();
                match lines.next() {
                    Some((_, more)) => joined.push_str(more),
                    None => break,
                }
            }
            let fail = |reason| KeyringError { line: at + 1, reason };
            match parse_line(&joined).map_err(fail)? {
                Line::Blank => {}
                Line::Section(name) => {
                    let name: EntityName =
                        name.parse().map_err(|e| fail(KeyringFault::Entity(e)))?;
                    out.entities.entry(name.clone()).or_default();
                    section = Some(name);
                }
                Line::Setting(name, value) => {
                    let who = section.as_ref().ok_or_else(|| fail(KeyringFault::NoSection))?;
                    let entity = out.entities.get_mut(who).expect("entered with its section");
                    let words: Vec<&str> =
                        name.split([' ', '\t', '_']).filter(|w| !w.is_empty()).collect();
                    match words.as_slice() {
                        ["key"] => {
                            entity.key =
                                CryptoKey::from_base64(&value).map_err(|e| fail(e.into()))?;
                        }
                        ["caps", service] => {
                            entity.caps.insert((*service).to_owned(), value);
                        }
                        ["auid"] => {} // long without meaning
                        _ => return Err(fail(KeyringFault::Unknown(name))),
                    }
                }
            }
        }
        Ok(out)
    }
}

enum Line {
    Blank,
    Section(String),
    Setting(String, String),
}

/// One line, joined already.
fn parse_line(line: &str) -> Result<Line, KeyringFault> {
    let line = line.trim();
    if line.is_empty() || line.starts_with(['#', ';']) {
        return Ok(Line::Blank);
    }
    if let Some(rest) = line.strip_prefix('[') {
        let (name, behind) = rest.split_once(']').ok_or(KeyringFault::OpenSection)?;
        let behind = behind.trim();
        if !behind.is_empty() && !behind.starts_with(['#', ';']) {
            return Err(KeyringFault::NotASetting);
        }
        return Ok(Line::Section(name.trim().to_owned()));
    }
    let (name, value) = line.split_once('=').ok_or(KeyringFault::NotASetting)?;
    if name.trim().is_empty() {
        return Err(KeyringFault::NotASetting);
    }
    let value = value.trim();
    let quote = value.chars().next().filter(|c| matches!(c, '"' | '\''));
    let mut out = String::with_capacity(value.len());
    let mut chars = value.chars();
    if quote.is_some() {
        chars.next();
    }
    loop {
        match chars.next() {
            None if quote.is_some() => return Err(KeyringFault::OpenQuote),
            None => break,
            Some('\\') => out.extend(chars.next()),
            Some(c) if Some(c) == quote => {
                let behind = chars.as_str().trim();
                if !behind.is_empty() && !behind.starts_with(['#', ';']) {
                    return Err(KeyringFault::BehindQuote);
                }
                return Ok(Line::Setting(name.trim().to_owned(), out));
            }
            Some('#' | ';') if quote.is_none() => break,
            Some(c) => out.push(c),
        }
    }
    Ok(Line::Setting(name.trim().to_owned(), out.trim_end().to_owned()))
}

/// The text, as `auth export` and keyring files have it.
impl fmt::Display for Keyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, entity) in &self.entities {
            writeln!(f, "[{name}]")?;
            if !entity.key.is_none() {
                writeln!(f, "\tkey = {}", entity.key.to_base64())?;
            }
            for (service, caps) in &entity.caps {
                let caps = caps.replace('\\', "\\\\").replace('"', "\\\"");
                writeln!(f, "\tcaps {service} = \"{caps}\"")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::KeyKind;
    use types::UTime;

    #[test]
    fn reads_what_the_peer_writes() {
        let text = "# made by hand\n[client.admin]\n\tkey = AQAaQ2dl+FnaLxAAGZwuWS2kKoIIU0pIVCWjtQ==\n\tcaps mds = \"allow *\"\n\
             caps_mon = 'allow \"x y\" *' ; why\n\n[osd.0]\n  key=AQAaQ2dl+FnaLxAAGZwuWS2kKoIIU0pIVCWjtQ==\n caps osd = allow \\\n *  # all\n";
        let ring = Keyring::parse(text).unwrap();
        assert_eq!(ring.entities.len(), 2);
        let admin = &ring.entities[&"client.admin".parse().unwrap()];
        assert_eq!(admin.key.kind, KeyKind::AES);
        assert_eq!(admin.caps["mds"], "allow *");
        assert_eq!(admin.caps["mon"], "allow \"x y\" *");
        assert_eq!(ring.entities[&"osd.0".parse().unwrap()].caps["osd"], "allow  *");
        let printed = ring.to_string();
        assert!(
            printed.starts_with("[osd.0]\n\tkey = AQAa")
                || printed.starts_with("[client.admin]\n\tkey")
        );
        assert_eq!(Keyring::parse(&printed), Ok(ring.clone()));
        assert_eq!(Keyring::from_bytes(&ring.to_bytes()), Ok(ring));
    }

    #[test]
    fn refuses_with_the_line() {
        for (text, line) in [
            ("key = x", 1),
            ("[client.a]\nkey = x", 2),
            ("[client.a]\n\nwhat = x", 3),
            ("[client.a]\ngibberish", 2),
            ("[nobody]", 1),
            ("[client.a", 1),
            ("[client.a]\ncaps mon = \"allow", 2),
            ("[client.a]\ncaps mon = \"allow\" x", 2),
        ] {
            let err = Keyring::parse(text).unwrap_err();
            assert_eq!(err.line, line, "{text:?}: {err}");
        }
    }

    /// Any caps text survives printing and reading.
    #[test]
    fn caps_survive() {
        let key = CryptoKey::generate(KeyKind::AES256K, UTime::ZERO, &mut env::Seeded(3));
        for caps in ["", "allow *", "a\"b", "a'b\\", "# x", "allow command \"x\" with a='b c'"] {
            let mut ring = Keyring::of("client.x".parse().unwrap(), key.clone());
            let entity = ring.entities.values_mut().next().unwrap();
            entity.caps.insert("osd".into(), caps.into());
            assert_eq!(Keyring::parse(&ring.to_string()), Ok(ring));
        }
    }
}
