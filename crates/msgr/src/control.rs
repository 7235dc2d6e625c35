//! Payloads of control frames.
//!
//! All addresses are in their newest form: who speaks messenger v2 knows it.

use bytes::Bytes;
use denc::{DecodeError, Denc, Features, Reader, Writer};
use types::{AddrVec, EntityAddr, EntityKind};

/// The connection forgets everything on failure.
pub(crate) const FLAG_LOSSY: u64 = 1;

macro_rules! payload {
    ($(#[$doc:meta])* $name:ident { $($field:ident: $t:ty,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub(crate) struct $name {
            $(pub(crate) $field: $t,)*
        }
        impl Denc for $name {
            fn encode(&self, w: &mut Writer) {
                $(self.$field.encode(w);)*
            }
            /// Bytes that a later release appended are left unread.
            fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
                Ok(Self { $($field: Denc::decode(r)?,)* })
            }
        }
    };
}

payload! {
    /// Who the sender is, and how it sees the receiver.
    Hello { kind: u8, addr: EntityAddr, }
}
payload! {
    AuthRequest { method: u32, modes: Vec<u32>, payload: Bytes, }
}
payload! {
    AuthBadMethod { method: u32, result: i32, methods: Vec<u32>, modes: Vec<u32>, }
}
payload! {
    AuthDone { global_id: u64, mode: u32, payload: Bytes, }
}
payload! {
    ClientIdent {
        addrs: AddrVec,
        target: EntityAddr,
        gid: i64,
        global_seq: u64,
        supported: u64,
        required: u64,
        flags: u64,
        cookie: u64,
    }
}
payload! {
    ServerIdent {
        addrs: AddrVec,
        gid: i64,
        global_seq: u64,
        supported: u64,
        required: u64,
        flags: u64,
        cookie: u64,
    }
}
payload! {
    Reconnect {
        addrs: AddrVec,
        client_cookie: u64,
        server_cookie: u64,
        global_seq: u64,
        connect_seq: u64,
        msg_seq: u64,
    }
}

impl Hello {
    pub(crate) fn kind(&self) -> EntityKind {
        EntityKind(self.kind)
    }
}

/// The payload's bytes.
pub(crate) fn encode(payload: &impl Denc) -> Bytes {
    payload.to_bytes_for(Features::ALL)
}

/// Reads a payload; what a later release appended is ignored.
pub(crate) fn decode<T: Denc>(bytes: &Bytes) -> Result<T, DecodeError> {
    T::decode(&mut Reader::shared(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(text: &str) -> Bytes {
        let text: String = text.split_whitespace().collect();
        (0..text.len())
            .step_by(2)
            .map(|i| u8::from_str_radix(&text[i..i + 2], 16).unwrap())
            .collect()
    }

    /// Bytes from live traffic of 16.2.15: an OSD's client introduces itself.
    #[test]
    fn golden_client_ident() {
        let raw =
            hex("02 01000000 01 0101 1c000000 03000000 91e03e25 10000000 0200 0000 7f000001 \
             0000000000000000 01 0101 1c000000 02000000 022b0000 10000000 0200 1a90 7f000001 \
             0000000000000000 9211000000000000 0300000000000000 fffffdffbdcf013f \
             0010000000000008 0100000000000000 0000000000000000");
        let ident: ClientIdent = decode(&raw).unwrap();
        assert_eq!(ident.target.to_string(), "v2:127.0.0.1:6800/11010");
        assert_eq!(ident.addrs.to_string(), "any:127.0.0.1:0/624877713");
        assert_eq!((ident.gid, ident.flags, ident.cookie), (0x1192, FLAG_LOSSY, 0));
        assert_eq!(Features(ident.supported), Features::PACIFIC_WORD);
        assert_eq!(encode(&ident), raw);
    }
}
