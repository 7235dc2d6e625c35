//! The shapes of messenger v1: banner, connect, reply, message header and footer, limits.
//!
//! All are little-endian and packed, but for the addresses in the handshake, which are the legacy
//! form of `entity_addr_t`. Source: the peer's `include/msgr.h`.

use stdx::crc32c;

use crate::Fault;
use crate::frame::{DATA_MAX, FRONT_MAX, HANDSHAKE_MAX};

/// The first bytes of a connection, from both sides.
pub(super) const BANNER: &[u8; 9] = b"ceph v027";
/// Bytes of an address in the handshake.
pub(super) const ADDR_LEN: usize = 136;
/// Bytes of [`Connect`].
pub(super) const CONNECT_LEN: usize = 33;
/// Bytes of a message's header.
pub(super) const HEADER_LEN: usize = 53;
/// Bytes of a message's footer between peers with MSG_AUTH.
pub(super) const FOOTER_LEN: usize = 21;
/// Bytes of a message's footer between others.
pub(super) const FOOTER_OLD_LEN: usize = 13;

/// In `flags` of connect and reply: a break ends the session.
pub(super) const FLAG_LOSSY: u8 = 1;

/// Tags: what follows in the stream, or what a connect is answered.
pub(super) mod tag {
    pub(in crate::v1) const READY: u8 = 1;
    pub(in crate::v1) const RESETSESSION: u8 = 2;
    pub(in crate::v1) const WAIT: u8 = 3;
    pub(in crate::v1) const RETRY_SESSION: u8 = 4;
    pub(in crate::v1) const RETRY_GLOBAL: u8 = 5;
    pub(in crate::v1) const CLOSE: u8 = 6;
    pub(in crate::v1) const MSG: u8 = 7;
    pub(in crate::v1) const ACK: u8 = 8;
    pub(in crate::v1) const KEEPALIVE: u8 = 9;
    pub(in crate::v1) const BADPROTOVER: u8 = 10;
    pub(in crate::v1) const BADAUTHORIZER: u8 = 11;
    pub(in crate::v1) const FEATURES: u8 = 12;
    pub(in crate::v1) const SEQ: u8 = 13;
    pub(in crate::v1) const KEEPALIVE2: u8 = 14;
    pub(in crate::v1) const KEEPALIVE2_ACK: u8 = 15;
    pub(in crate::v1) const CHALLENGE_AUTHORIZER: u8 = 16;
}

/// In a footer's flags.
pub(super) mod flag {
    /// The message is whole.
    pub(in crate::v1) const COMPLETE: u8 = 1;
    /// The checksum of the data was left out.
    pub(in crate::v1) const NOCRC: u8 = 2;
    /// There is a signature.
    pub(in crate::v1) const SIGNED: u8 = 4;
}

fn word<const N: usize>(raw: &[u8], at: &mut usize) -> [u8; N] {
    let part = raw[*at..*at + N].try_into().expect("lengths are constants");
    *at += N;
    part
}

/// What a client asks for. The peer's `ceph_msg_connect`, without the authorizer behind it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Connect {
    pub(super) features: u64,
    pub(super) host_type: u32,
    pub(super) global_seq: u32,
    pub(super) connect_seq: u32,
    pub(super) protocol_version: u32,
    pub(super) authorizer_protocol: u32,
    pub(super) authorizer_len: u32,
    pub(super) flags: u8,
}

impl Connect {
    pub(super) fn parse(raw: &[u8; CONNECT_LEN]) -> Self {
        let at = &mut 0;
        Self {
            features: u64::from_le_bytes(word(raw, at)),
            host_type: u32::from_le_bytes(word(raw, at)),
            global_seq: u32::from_le_bytes(word(raw, at)),
            connect_seq: u32::from_le_bytes(word(raw, at)),
            protocol_version: u32::from_le_bytes(word(raw, at)),
            authorizer_protocol: u32::from_le_bytes(word(raw, at)),
            authorizer_len: u32::from_le_bytes(word(raw, at)),
            flags: raw[32],
        }
    }
}

/// The answer. The peer's `ceph_msg_connect_reply`, without the authorizer's reply behind it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ConnectReply {
    pub(super) tag: u8,
    pub(super) features: u64,
    pub(super) global_seq: u32,
    pub(super) connect_seq: u32,
    pub(super) protocol_version: u32,
    pub(super) authorizer_len: u32,
    pub(super) flags: u8,
}

impl ConnectReply {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut raw = Vec::with_capacity(26);
        raw.push(self.tag);
        raw.extend_from_slice(&self.features.to_le_bytes());
        for word in [self.global_seq, self.connect_seq, self.protocol_version, self.authorizer_len]
        {
            raw.extend_from_slice(&word.to_le_bytes());
        }
        raw.push(self.flags);
        raw
    }
}

/// A message's header. The peer's `ceph_msg_header`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) seq: u64,
    pub(super) tid: u64,
    pub(super) kind: u16,
    pub(super) priority: u16,
    pub(super) version: u16,
    pub(super) front_len: u32,
    pub(super) middle_len: u32,
    pub(super) data_len: u32,
    pub(super) data_off: u16,
    /// Kind and number of the sender; nobody believes them.
    pub(super) src: (u8, i64),
    pub(super) compat: u16,
    /// Of the 49 bytes before it.
    pub(super) crc: u32,
}

impl Header {
    /// Checks the crc and the lengths; before the peer has proved itself (`ready` is false) only
    /// short messages are taken.
    pub(super) fn parse(raw: &[u8; HEADER_LEN], ready: bool) -> Result<Self, Fault> {
        let at = &mut 0;
        let mut header = Self {
            seq: u64::from_le_bytes(word(raw, at)),
            tid: u64::from_le_bytes(word(raw, at)),
            kind: u16::from_le_bytes(word(raw, at)),
            priority: u16::from_le_bytes(word(raw, at)),
            version: u16::from_le_bytes(word(raw, at)),
            front_len: u32::from_le_bytes(word(raw, at)),
            middle_len: u32::from_le_bytes(word(raw, at)),
            data_len: u32::from_le_bytes(word(raw, at)),
            data_off: u16::from_le_bytes(word(raw, at)),
            src: (word::<1>(raw, at)[0], i64::from_le_bytes(word(raw, at))),
            compat: u16::from_le_bytes(word(raw, at)),
            crc: 0,
        };
        *at += 2;
        header.crc = u32::from_le_bytes(word(raw, at));
        if header.crc != crc32c(0, &raw[..HEADER_LEN - 4]) {
            return Err(Fault::Crc("header"));
        }
        let (front_max, data_max) =
            if ready { (FRONT_MAX, DATA_MAX) } else { (HANDSHAKE_MAX, HANDSHAKE_MAX) };
        if header.front_len > front_max
            || header.middle_len > front_max
            || header.data_len > data_max
        {
            return Err(Fault::Frame("a message is too large"));
        }
        Ok(header)
    }

    /// Sets the crc, too.
    pub(super) fn encode(&mut self) -> [u8; HEADER_LEN] {
        let mut raw = Vec::with_capacity(HEADER_LEN);
        raw.extend_from_slice(&self.seq.to_le_bytes());
        raw.extend_from_slice(&self.tid.to_le_bytes());
        for short in [self.kind, self.priority, self.version] {
            raw.extend_from_slice(&short.to_le_bytes());
        }
        for len in [self.front_len, self.middle_len, self.data_len] {
            raw.extend_from_slice(&len.to_le_bytes());
        }
        raw.extend_from_slice(&self.data_off.to_le_bytes());
        raw.push(self.src.0);
        raw.extend_from_slice(&self.src.1.to_le_bytes());
        raw.extend_from_slice(&self.compat.to_le_bytes());
        raw.extend_from_slice(&[0; 2]);
        self.crc = crc32c(0, &raw);
        raw.extend_from_slice(&self.crc.to_le_bytes());
        raw.try_into().expect("53 bytes")
    }
}

/// A message's footer. The peer's `ceph_msg_footer`; the old form has no signature.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Footer {
    /// Of front, middle, data; 0 where there is none.
    pub(super) crcs: [u32; 3],
    pub(super) signature: u64,
    pub(super) flags: u8,
}

impl Footer {
    pub(super) fn parse(raw: &[u8], old: bool) -> Self {
        let at = &mut 0;
        Self {
            crcs: std::array::from_fn(|_| u32::from_le_bytes(word(raw, at))),
            signature: if old { 0 } else { u64::from_le_bytes(word(raw, at)) },
            flags: raw[*at],
        }
    }

    pub(super) fn encode(&self, old: bool) -> Vec<u8> {
        let mut raw = Vec::with_capacity(FOOTER_LEN);
        for crc in self.crcs {
            raw.extend_from_slice(&crc.to_le_bytes());
        }
        if !old {
            raw.extend_from_slice(&self.signature.to_le_bytes());
        }
        raw.push(self.flags);
        raw
    }

    /// What a signature covers.
    pub(super) fn signed_words(&self, header: &Header) -> [u32; 8] {
        [
            header.crc,
            self.crcs[0],
            header.front_len,
            self.crcs[1],
            header.middle_len,
            self.crcs[2],
            header.data_len,
            header.seq as u32,
        ]
    }
}
