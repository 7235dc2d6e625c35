//! Grants for metadata servers, as keys hold them and as clients are told them.

use denc::{DecodeError, Denc, Reader, Writer};

/// Which callers and files a grant is about. The peer's `MDSCapMatch`: 1/1 { i64 uid,
/// vector of u32 gids, string path, string file system, u8 root_squash }.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MdsMatch {
    /// The caller's user; -1 is any.
    pub uid: i64,
    /// The caller's groups, sorted; empty is any.
    pub gids: Vec<u32>,
    /// Without leading slashes; empty is the root. Caps are UTF-8, and so is this.
    pub path: String,
    /// Empty is any.
    pub fs_name: String,
    /// User and group 0 may not write.
    pub root_squash: bool,
}

impl Default for MdsMatch {
    fn default() -> Self {
        Self {
            uid: -1,
            gids: vec![],
            path: String::new(),
            fs_name: String::new(),
            root_squash: false,
        }
    }
}

impl Denc for MdsMatch {
    fn encode(&self, w: &mut Writer) {
        w.framed(1, 1, |w| {
            w.i64(self.uid);
            self.gids.encode(w);
            w.str(&self.path);
            w.str(&self.fs_name);
            w.bool(self.root_squash);
        });
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("MDSCapMatch", 1, |r, _| {
            Ok(Self {
                uid: r.i64()?,
                gids: Denc::decode(r)?,
                path: r.string()?,
                fs_name: r.string()?,
                root_squash: r.bool()?,
            })
        })
    }
}

impl MdsMatch {
    /// Whether `path` is the granted one or below it.
    #[must_use]
    pub fn matches_path(&self, path: &str) -> bool {
        let own = self.path.trim_end_matches('/');
        match path.strip_prefix(own) {
            Some(rest) => own.is_empty() || rest.is_empty() || rest.starts_with('/'),
            None => false,
        }
    }
}

/// A grant as clients are told it. The peer's `MDSCapAuth`: 1/1 { match, u8, u8 }.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MdsCapAuth {
    /// Whom and what it is about.
    pub matches: MdsMatch,
    /// May read.
    pub readable: bool,
    /// May write.
    pub writeable: bool,
}

impl Denc for MdsCapAuth {
    fn encode(&self, w: &mut Writer) {
        w.framed(1, 1, |w| {
            self.matches.encode(w);
            w.bool(self.readable);
            w.bool(self.writeable);
        });
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("MDSCapAuth", 1, |r, _| {
            Ok(Self { matches: Denc::decode(r)?, readable: r.bool()?, writeable: r.bool()? })
        })
    }
}
