//! The shapes of frames: preamble, message header, epilogue, limits.
//!
//! A frame is a preamble of 32 bytes, one to four segments and, where there is more than
//! one, an epilogue. All are little-endian; crcs are CRC-32C without final inversion.
//!
//! Source: the peer's `msg/async/frames_v2.h`, `include/msgr.h`.

use stdx::crc32c;

use crate::Fault;

/// The first bytes of a connection, from both sides.
pub(crate) const BANNER: &[u8; 8] = b"ceph v2\n";
/// Banner feature: framing of revision 2.1, the only one spoken here.
pub(crate) const REVISION_1: u64 = 1;

/// Tags of frames.
pub(crate) mod tag {
    pub(crate) const HELLO: u8 = 1;
    pub(crate) const AUTH_REQUEST: u8 = 2;
    pub(crate) const AUTH_BAD_METHOD: u8 = 3;
    pub(crate) const AUTH_REPLY_MORE: u8 = 4;
    pub(crate) const AUTH_REQUEST_MORE: u8 = 5;
    pub(crate) const AUTH_DONE: u8 = 6;
    pub(crate) const AUTH_SIGNATURE: u8 = 7;
    pub(crate) const CLIENT_IDENT: u8 = 8;
    pub(crate) const SERVER_IDENT: u8 = 9;
    pub(crate) const IDENT_MISSING_FEATURES: u8 = 10;
    pub(crate) const SESSION_RECONNECT: u8 = 11;
    pub(crate) const SESSION_RESET: u8 = 12;
    pub(crate) const SESSION_RETRY: u8 = 13;
    pub(crate) const SESSION_RETRY_GLOBAL: u8 = 14;
    pub(crate) const SESSION_RECONNECT_OK: u8 = 15;
    pub(crate) const WAIT: u8 = 16;
    pub(crate) const MESSAGE: u8 = 17;
    pub(crate) const KEEPALIVE2: u8 = 18;
    pub(crate) const KEEPALIVE2_ACK: u8 = 19;
    pub(crate) const ACK: u8 = 20;
}

/// Bytes of a preamble.
pub(crate) const PREAMBLE_LEN: usize = 32;
/// Bytes of the message header.
pub(crate) const HEADER_LEN: usize = 41;
/// Bytes of the epilogue in crc mode.
pub(crate) const EPILOGUE_LEN: usize = 13;
/// Late status of a frame that is whole.
pub(crate) const COMPLETE: u8 = 0x0e;
/// Late status of a frame whose sender gave up on it.
pub(crate) const ABORTED: u8 = 0x01;

/// The largest segments taken from a peer.
pub(crate) const CONTROL_MAX: u32 = 1 << 20;
/// Largest control segment before the peer has proved who it is.
pub(crate) const HANDSHAKE_MAX: u32 = 64 << 10;
/// Largest front or middle segment.
pub(crate) const FRONT_MAX: u32 = 16 << 20;
/// Largest data segment.
pub(crate) const DATA_MAX: u32 = 96 << 20;

/// A verified preamble: the tag and the logical lengths of the segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Preamble {
    pub(crate) tag: u8,
    pub(crate) count: u8,
    pub(crate) lens: [u32; 4],
}

impl Preamble {
    /// For segments of these lengths; trailing empty ones are dropped, the first stays.
    pub(crate) fn new(tag: u8, lens: [u32; 4]) -> Self {
        let count = 1 + (1..4).rev().find(|&i| lens[i] > 0).unwrap_or(0) as u8;
        Self { tag, count, lens }
    }

    pub(crate) fn encode(&self) -> [u8; PREAMBLE_LEN] {
        let mut raw = [0; PREAMBLE_LEN];
        raw[0] = self.tag;
        raw[1] = self.count;
        for i in 0..usize::from(self.count) {
            let align: u16 = if i == 3 { 4096 } else { 8 };
            raw[2 + 6 * i..6 + 6 * i].copy_from_slice(&self.lens[i].to_le_bytes());
            raw[6 + 6 * i..8 + 6 * i].copy_from_slice(&align.to_le_bytes());
        }
        let crc = crc32c(0, &raw[..28]);
        raw[28..].copy_from_slice(&crc.to_le_bytes());
        raw
    }

    /// Checks the crc, then everything else; `ready` says whether the peer may send
    /// messages and long control frames yet.
    pub(crate) fn parse(raw: &[u8; PREAMBLE_LEN], ready: bool) -> Result<Self, Fault> {
        let crc = u32::from_le_bytes([raw[28], raw[29], raw[30], raw[31]]);
        if crc32c(0, &raw[..28]) != crc {
            return Err(Fault::Crc("preamble"));
        }
        let (tag, count) = (raw[0], raw[1]);
        if !(1..=4).contains(&count) {
            return Err(Fault::Frame("a frame has one to four segments"));
        }
        if raw[26] & 1 != 0 {
            return Err(Fault::Frame("compression was not offered"));
        }
        let lens = std::array::from_fn(|i| {
            let at = 2 + 6 * i;
            u32::from_le_bytes([raw[at], raw[at + 1], raw[at + 2], raw[at + 3]])
        });
        if lens[usize::from(count)..].iter().any(|&len| len != 0) {
            return Err(Fault::Frame("unused segments are empty"));
        }
        if count > 1 && lens[usize::from(count) - 1] == 0 {
            return Err(Fault::Frame("the last of several segments is not empty"));
        }
        let max = if tag == tag::MESSAGE {
            if !ready {
                return Err(Fault::Unexpected { tag });
            }
            if lens[0] as usize != HEADER_LEN {
                return Err(Fault::Frame("a message header has 41 bytes"));
            }
            [HEADER_LEN as u32, FRONT_MAX, FRONT_MAX, DATA_MAX]
        } else if count > 1 {
            return Err(Fault::Frame("a control frame has one segment"));
        } else {
            [if ready { CONTROL_MAX } else { HANDSHAKE_MAX }, 0, 0, 0]
        };
        if lens.iter().zip(max).any(|(&len, max)| len > max) {
            return Err(Fault::Frame("a segment is too large"));
        }
        Ok(Self { tag, count, lens })
    }

    /// Bytes of the segments behind the first.
    pub(crate) fn body_len(&self) -> usize {
        self.lens[1..].iter().map(|&len| len as usize).sum()
    }
}

/// The header of a message, segment 0 of its frame; the peer's `ceph_msg_header2`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) seq: u64,
    pub(crate) tid: u64,
    pub(crate) kind: u16,
    pub(crate) priority: u16,
    pub(crate) version: u16,
    pub(crate) data_off: u16,
    /// Highest seq received from the peer.
    pub(crate) ack_seq: u64,
    pub(crate) compat: u16,
}

impl Header {
    pub(crate) fn encode(&self) -> [u8; HEADER_LEN] {
        let mut raw = [0; HEADER_LEN];
        raw[..8].copy_from_slice(&self.seq.to_le_bytes());
        raw[8..16].copy_from_slice(&self.tid.to_le_bytes());
        raw[16..18].copy_from_slice(&self.kind.to_le_bytes());
        raw[18..20].copy_from_slice(&self.priority.to_le_bytes());
        raw[20..22].copy_from_slice(&self.version.to_le_bytes());
        raw[26..28].copy_from_slice(&self.data_off.to_le_bytes());
        raw[28..36].copy_from_slice(&self.ack_seq.to_le_bytes());
        raw[36] = 3; // "complete, no crc": what the peer writes and nobody reads
        raw[37..39].copy_from_slice(&self.compat.to_le_bytes());
        raw
    }

    pub(crate) fn parse(raw: &[u8; HEADER_LEN]) -> Self {
        let u16_at = |i: usize| u16::from_le_bytes([raw[i], raw[i + 1]]);
        let u64_at = |i: usize| u64::from_le_bytes(raw[i..i + 8].try_into().expect("eight bytes"));
        Self {
            seq: u64_at(0),
            tid: u64_at(8),
            kind: u16_at(16),
            priority: u16_at(18),
            version: u16_at(20),
            data_off: u16_at(26),
            ack_seq: u64_at(28),
            compat: u16_at(37),
        }
    }
}

/// The size of a secure-mode segment: whole AES blocks.
pub(crate) const fn padded(len: u32) -> usize {
    (len as usize + 15) & !15
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes from live traffic of 16.2.15.
    #[test]
    fn golden_preambles() {
        let hello = Preamble::new(tag::HELLO, [36, 0, 0, 0]);
        let mut raw = [0; 32];
        raw[..8].copy_from_slice(&[1, 1, 0x24, 0, 0, 0, 8, 0]);
        raw[28..].copy_from_slice(&[0x3f, 0xbd, 0x6b, 0x06]);
        assert_eq!(hello.encode(), raw);
        assert_eq!(Preamble::parse(&raw, false), Ok(hello));
        let message = Preamble::new(tag::MESSAGE, [41, 211, 0, 6]).encode();
        let seen = [
            0x11, 4, 0x29, 0, 0, 0, 8, 0, 0xd3, 0, 0, 0, 8, 0, 0, 0, 0, 0, 8, 0, 6, 0, 0, 0, 0, 16,
        ];
        assert_eq!(message[..26], seen);
        assert!(Preamble::parse(&message, false).is_err(), "no message before the handshake");
        assert!(Preamble::parse(&message, true).is_ok());
    }

    #[test]
    fn refuses_large_and_odd() {
        for (tag, lens) in [
            (tag::MESSAGE, [41, FRONT_MAX + 1, 0, 0]),
            (tag::MESSAGE, [41, 0, 0, DATA_MAX + 1]),
            (tag::MESSAGE, [40, 0, 0, 0]),
            (tag::ACK, [8, 1, 0, 0]),
            (tag::ACK, [CONTROL_MAX + 1, 0, 0, 0]),
        ] {
            assert!(Preamble::parse(&Preamble::new(tag, lens).encode(), true).is_err());
        }
        for (at, byte) in [(1, 0), (1, 5), (1, 4), (26, 1), (28, 0)] {
            let mut raw = Preamble::new(tag::MESSAGE, [41, 1, 0, 0]).encode();
            raw[at] = byte;
            if at < 28 {
                let crc = crc32c(0, &raw[..28]);
                raw[28..].copy_from_slice(&crc.to_le_bytes());
            }
            assert!(Preamble::parse(&raw, true).is_err(), "byte {at}");
        }
    }

    #[test]
    fn headers_round_trip() {
        let header = Header {
            seq: 1,
            tid: 2,
            kind: 42,
            priority: 63,
            version: 8,
            data_off: 7,
            ack_seq: 9,
            compat: 3,
        };
        assert_eq!(Header::parse(&header.encode()), header);
    }
}
