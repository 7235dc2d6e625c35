//! What a client holds, told to the successor of its server.

use std::collections::BTreeMap;

use bytes::Bytes;
use denc::{DecodeError, Denc, Features, Reader, Writer};
use types::{Ino, SnapId};

use crate::Message;

/// A cap that a client holds. The peer's `cap_reconnect_t`, 2/1.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CapReconnect {
    /// Its path from [`Self::pathbase`], where the client knows one.
    pub path: Bytes,
    /// The cap's number.
    pub cap_id: u64,
    /// What it wants.
    pub wanted: u32,
    /// What it holds.
    pub issued: u32,
    /// The inode's realm.
    pub snaprealm: Ino,
    /// Where the path begins.
    pub pathbase: Ino,
    /// An encoded [`super::HeldLocks`], or empty.
    pub flock: Bytes,
    /// The newest snapshot that its unwritten changes are not part of (v2).
    pub snap_follows: SnapId,
}

impl Denc for CapReconnect {
    fn encode(&self, w: &mut Writer) {
        w.framed(2, 1, |w| {
            w.blob(&self.path);
            w.u64(self.cap_id);
            w.u32(self.wanted);
            w.u32(self.issued);
            self.snaprealm.encode(w);
            self.pathbase.encode(w);
            w.blob(&self.flock);
            self.snap_follows.encode(w);
        });
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("cap_reconnect_t", 2, |r, v| {
            Ok(Self {
                path: r.blob()?,
                cap_id: r.u64()?,
                wanted: r.u32()?,
                issued: r.u32()?,
                snaprealm: Denc::decode(r)?,
                pathbase: Denc::decode(r)?,
                flock: r.blob()?,
                snap_follows: if v >= 2 { Denc::decode(r)? } else { SnapId(0) },
            })
        })
    }
}

/// A realm that a client knows. The peer's `snaprealm_reconnect_t`, 1/1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RealmReconnect {
    /// Its directory.
    pub ino: Ino,
    /// Its newest change, as the client knows.
    pub seq: SnapId,
    /// The realm above.
    pub parent: Ino,
}

impl RealmReconnect {
    fn decode_bare(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self { ino: Denc::decode(r)?, seq: Denc::decode(r)?, parent: Denc::decode(r)? })
    }
}

impl Denc for RealmReconnect {
    fn encode(&self, w: &mut Writer) {
        w.framed(1, 1, |w| {
            self.ino.encode(w);
            self.seq.encode(w);
            self.parent.encode(w);
        });
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("snaprealm_reconnect_t", 1, |r, _| Self::decode_bare(r))
    }
}

/// All that a client holds, or a part. `MClientReconnect`, 5/4; versions 3 and 4 are read.
/// The struct is the data segment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientReconnect {
    /// Caps by inode.
    pub caps: BTreeMap<Ino, CapReconnect>,
    /// Realms that it knows.
    pub realms: Vec<RealmReconnect>,
    /// Another message follows (v5).
    pub more: bool,
}

impl Message for ClientReconnect {
    const KIND: u16 = 23;
    const VERSION: u16 = 5;
    const COMPAT: u16 = 4;

    fn encode_front(&self, _: &mut Writer) {}

    fn data(&self) -> Bytes {
        let mut w = Writer::new(Features::ALL);
        self.caps.encode(&mut w);
        self.realms.encode(&mut w);
        w.bool(self.more);
        w.finish()
    }

    fn decode_front(_: &mut Reader<'_>, version: u16, data: &Bytes) -> Result<Self, DecodeError> {
        let r = &mut Reader::shared(data);
        r.require(version >= 3, "reconnects are read from version 3 on")?;
        let mut m = Self { caps: Denc::decode(r)?, ..Self::default() };
        if version >= 4 {
            m.realms = Denc::decode(r)?;
            m.more = version >= 5 && r.bool()?;
        } else {
            while r.left() > 0 {
                m.realms.push(RealmReconnect::decode_bare(r)?);
            }
        }
        Ok(m)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions() {
        let realm = RealmReconnect { ino: Ino(1), seq: SnapId(2), parent: Ino(0) };
        let cap = CapReconnect { path: "a/b".into(), issued: 1, ..CapReconnect::default() };
        let m = ClientReconnect {
            caps: BTreeMap::from([(Ino(5), cap)]),
            realms: vec![realm; 2],
            more: true,
        };
        let env = m.envelope(Features::ALL);
        assert!(env.front.is_empty());
        assert_eq!(ClientReconnect::decode(&env), Ok(m.clone()));
        let mut w = Writer::new(Features::ALL);
        m.caps.encode(&mut w);
        for x in [1u64, 2, 0, 1, 2, 0] {
            w.u64(x);
        }
        let old = crate::Envelope { version: 3, compat: 0, data: w.finish(), ..env };
        assert_eq!(ClientReconnect::decode(&old), Ok(ClientReconnect { more: false, ..m }));
    }
}
