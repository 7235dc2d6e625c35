//! Sessions.

use bytes::Bytes;
use denc::{DecodeError, Denc, Features, Reader, Writer};
use maps::FeatureBits;
use maps::fs::{ByteMap, MetricSpec};
use types::UTime;

use crate::Message;

/// What a [`ClientSession`] says. The peer's `CEPH_SESSION_*`.
#[allow(missing_docs)]
pub mod session_op {
    pub const REQUEST_OPEN: u32 = 0;
    pub const OPEN: u32 = 1;
    pub const REQUEST_CLOSE: u32 = 2;
    pub const CLOSE: u32 = 3;
    pub const REQUEST_RENEWCAPS: u32 = 4;
    pub const RENEWCAPS: u32 = 5;
    pub const STALE: u32 = 6;
    pub const RECALL_STATE: u32 = 7;
    pub const FLUSHMSG: u32 = 8;
    pub const FLUSHMSG_ACK: u32 = 9;
    pub const FORCE_RO: u32 = 10;
    pub const REJECT: u32 = 11;
    pub const REQUEST_FLUSH_MDLOG: u32 = 12;
}

/// Opens, renews, closes a session, or asks something of all of it. `MClientSession`.
///
/// Version 1 without [`Self::detail`]; else 5 for peers of release 16, 7 for later ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientSession {
    /// [`session_op`].
    pub op: u32,
    /// By op: which renewal, flush or push.
    pub seq: u64,
    /// When it was sent; mostly zero.
    pub stamp: UTime,
    /// For [`session_op::RECALL_STATE`]: as many caps may stay.
    pub max_caps: u32,
    /// As many leases.
    pub max_leases: u32,
    /// What stands in messages that open a session, or refuse to.
    pub detail: Option<Box<SessionDetail>>,
}

/// Who a client or server is and what it knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionDetail {
    /// Words and values; `error_string` when refused.
    pub metadata: ByteMap,
    /// Features of file systems: see [`maps::fs::FEATURE_NAMES`] (v3).
    pub features: FeatureBits,
    /// Measurements wanted or sent (v4).
    pub metrics: MetricSpec,
    /// 1: the client is blocklisted (v5).
    pub flags: u32,
    /// What the client may do, for its own checks (v6).
    pub cap_auths: Vec<types::MdsCapAuth>,
    /// No request below is resent; `u64::MAX` when not said (v7).
    pub oldest_client_tid: u64,
}

impl Default for SessionDetail {
    fn default() -> Self {
        Self {
            metadata: ByteMap::new(),
            features: FeatureBits::default(),
            metrics: MetricSpec::default(),
            flags: 0,
            cap_auths: Vec::new(),
            oldest_client_tid: u64::MAX,
        }
    }
}

impl Message for ClientSession {
    const KIND: u16 = 22;
    const VERSION: u16 = 7;

    fn version_for(&self, features: Features) -> u16 {
        match &self.detail {
            None => 1,
            Some(_) if maps::release(features) == 16 => 5,
            Some(_) => Self::VERSION,
        }
    }

    fn encode_front(&self, w: &mut Writer) {
        w.u32(self.op);
        w.u64(self.seq);
        self.stamp.encode(w);
        w.u32(self.max_caps);
        w.u32(self.max_leases);
        let version = self.version_for(w.features());
        if let Some(detail) = &self.detail {
            detail.metadata.encode(w);
            detail.features.encode(w);
            detail.metrics.encode(w);
            w.u32(detail.flags);
            if version >= 6 {
                detail.cap_auths.encode(w);
                w.u64(detail.oldest_client_tid);
            }
        }
    }

    fn decode_front(r: &mut Reader<'_>, version: u16, _: &Bytes) -> Result<Self, DecodeError> {
        let mut session = Self {
            op: r.u32()?,
            seq: r.u64()?,
            stamp: Denc::decode(r)?,
            max_caps: r.u32()?,
            max_leases: r.u32()?,
            detail: None,
        };
        if version >= 2 {
            let mut detail = SessionDetail { metadata: Denc::decode(r)?, ..Default::default() };
            if version >= 3 {
                detail.features = Denc::decode(r)?;
            }
            if version >= 4 {
                detail.metrics = Denc::decode(r)?;
            }
            if version >= 5 {
                detail.flags = r.u32()?;
            }
            if version >= 6 {
                detail.cap_auths = Denc::decode(r)?;
            }
            if version >= 7 {
                detail.oldest_client_tid = r.u64()?;
            }
            session.detail = Some(Box::new(detail));
        }
        Ok(session)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How a server of 20.2.4 opens the session of a client that may do all.
    #[test]
    fn open_of_release_20() {
        let mut front = vec![1, 0, 0, 0];
        front.resize(28, 0);
        front.extend(b"\0\0\0\0\x08\0\0\0\xff\xff\xff\0\0\0\0\0\x01\x01\x0c\0\0\0\x08\0\0\0\xff\xff\0\0\0\0\0\0");
        front.extend(b"\0\0\0\0\x01\0\0\0\x01\x01\x1d\0\0\0\x01\x01\x15\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff");
        front.extend(b"\0\0\0\0\0\0\0\0\0\0\0\0\0\x01\x01\xff\xff\xff\xff\xff\xff\xff\xff");
        assert_eq!(front.len(), 113);
        let front = Bytes::from(front);
        let open = ClientSession::decode_front(&mut Reader::new(&front), 7, &Bytes::new()).unwrap();
        let grant = &open.detail.as_ref().unwrap().cap_auths[0];
        assert!(grant.readable && grant.writeable && grant.matches.uid == -1);
        let written = open.envelope(Features::TENTACLE_WORD);
        assert_eq!((written.version, written.front), (7, front));
        let to_16 = open.envelope(Features::PACIFIC_WORD);
        assert_eq!((to_16.version, to_16.front.len()), (5, 66));
        assert_eq!(ClientSession::default().envelope(Features::ALL).front.len(), 28);
    }
}
