//! Metadata that only some inodes have.

use bytes::Bytes;
use types::{DecodeError, Denc, Reader, Writer};

use crate::wire::record;

record! {
    /// How names in a directory are compared. The peer's `charmap_md_t`.
    #[derive(Clone, Debug, PartialEq, Eq)]
    Charmap "charmap_md_t", compat 1, known 1, |f| 1; {
        /// Whether case counts.
        case_sensitive: bool,
        /// The normal form: `nfd`, `nfc`, `nfkd`, `nfkc`.
        normalization: Bytes,
        /// The encoding: `utf8`.
        encoding: Bytes,
    }
}

/// One piece of optional metadata.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OptItem {
    /// Kind 1.
    Charmap(Charmap),
    /// A kind that is not known here: kept as it is.
    Other {
        /// Its number.
        kind: u64,
        /// The struct's version.
        version: u8,
        /// The struct's compat.
        compat: u8,
        /// The struct's body.
        body: Bytes,
    },
}

/// What only some inodes have. The peer's `optmetadata_multiton`, 1/1: list of u64 kind and
/// a versioned struct; 10 bytes when empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OptMetadata(pub Vec<OptItem>);

const CHARMAP: u64 = 1;

impl OptMetadata {
    /// How names are compared, where that was set.
    #[must_use]
    pub fn charmap(&self) -> Option<&Charmap> {
        self.0.iter().find_map(|item| match item {
            OptItem::Charmap(charmap) => Some(charmap),
            OptItem::Other { .. } => None,
        })
    }

    /// Sets or removes how names are compared.
    pub fn set_charmap(&mut self, charmap: Option<Charmap>) {
        self.0.retain(|item| !matches!(item, OptItem::Charmap(_)));
        self.0.extend(charmap.map(OptItem::Charmap));
    }
}

impl Denc for OptItem {
    fn encode(&self, w: &mut Writer) {
        match self {
            Self::Charmap(charmap) => {
                w.u64(CHARMAP);
                charmap.encode(w);
            }
            Self::Other { kind, version, compat, body } => {
                w.u64(*kind);
                w.framed(*version, *compat, |w| w.raw(body));
            }
        }
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        match r.u64()? {
            CHARMAP => Ok(Self::Charmap(Denc::decode(r)?)),
            kind => {
                let (version, compat) = (r.u8()?, r.u8()?);
                let body = r.blob()?;
                Ok(Self::Other { kind, version, compat, body })
            }
        }
    }
}

impl Denc for OptMetadata {
    fn encode(&self, w: &mut Writer) {
        w.framed(1, 1, |w| self.0.encode(w));
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("optmetadata_multiton", 1, |r, _| Denc::decode(r).map(Self))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As 20.2.4 stored a directory that ignores case; and a kind from the future.
    #[test]
    fn items() {
        let stock = b"\x01\x01\x22\0\0\0\x01\0\0\0\x01\0\0\0\0\0\0\0\x01\x01\x10\0\0\0\0\
            \x03\0\0\0nfd\x04\0\0\0utf8";
        let opt = OptMetadata::from_bytes(stock).unwrap();
        assert_eq!(opt.to_bytes(), &stock[..]);
        let charmap = opt.charmap().unwrap();
        assert!(!charmap.case_sensitive && charmap.normalization == "nfd");
        let mut later = opt.clone();
        later.0.push(OptItem::Other { kind: 9, version: 3, compat: 2, body: "x".into() });
        assert_eq!(OptMetadata::from_bytes(&later.to_bytes()), Ok(later.clone()));
        later.set_charmap(None);
        assert_eq!(later.0.len(), 1);
        assert_eq!(OptMetadata::default().to_bytes().len(), 10);
    }
}
