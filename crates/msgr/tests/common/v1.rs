//! The accepting side of messenger v1 with an authentication that everybody passes, and what a client says
//! by hand.
#![allow(dead_code)]

use std::io::IoSlice;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use auth::{AuthDone, MessageSigner, PeerIdentity, ServerAuth, ServerStep};
use bytes::{BufMut, Bytes};
use denc::{Denc, Features};
use env::Now;
use msgr::v1::{Accepted, Rules};
use msgr::{Acceptor, Event, Fault, Local, Policy};
use stdx::crc32c;
use types::{AddrVec, EntityAddr, EntityKind};

pub const KEY: [u8; 16] = [3; 16];
pub const WORD: u64 = Features::PACIFIC_WORD.0;
pub const MSG_AUTH: u64 = Features::MSG_AUTH.0;
pub const RECONNECT_SEQ: u64 = 1 << 6;

/// One challenge, whatever the authorizer; "no" is refused.
struct TestServer;

pub const GLOBAL_ID: u64 = 0x1231;

impl ServerAuth for TestServer {
    fn request(
        &mut self,
        _now: Now,
        _kind: EntityKind,
        _from: &EntityAddr,
        method: u32,
        modes: &[u32],
        payload: &[u8],
    ) -> ServerStep {
        assert_eq!(modes, [1], "nothing is encrypted in v1");
        if method != 2 || payload.starts_with(b"no") {
            let result = if method == 2 { -13 } else { -95 };
            return ServerStep::Refuse { result, allowed_methods: vec![2], allowed_modes: vec![1] };
        }
        ServerStep::More(Bytes::from_static(&[1, 0xd0, 0x10, 0x26, 0xe6, 0x42, 0x25, 0x61, 2]))
    }
    fn more(&mut self, _now: Now, payload: &[u8]) -> ServerStep {
        if payload.starts_with(b"no") {
            return ServerStep::Refuse {
                result: -13,
                allowed_methods: vec![2],
                allowed_modes: vec![1],
            };
        }
        ServerStep::Done(Box::new(AuthDone {
            global_id: GLOBAL_ID,
            con_mode: 1,
            payload: Bytes::from_static(b"proof"),
            session_key: Bytes::from_static(&KEY),
            connection_secret: Bytes::new(),
            peer: PeerIdentity { global_id: GLOBAL_ID, ..PeerIdentity::default() },
        }))
    }
    fn global_id(&self) -> u64 {
        GLOBAL_ID
    }
}

pub struct Door(pub Policy);

impl Acceptor for Door {
    fn auth(&self, _kind: EntityKind, _from: SocketAddr) -> Box<dyn ServerAuth> {
        Box::new(TestServer)
    }
    fn policy(&self, _kind: EntityKind) -> Policy {
        self.0
    }
}

pub fn sock() -> SocketAddr {
    "127.0.0.1:40000".parse().unwrap()
}

pub fn legacy(addr: &str) -> EntityAddr {
    addr.parse().unwrap()
}

pub fn server_by(kind: EntityKind, policy: Policy, rules: Rules) -> Accepted {
    let addrs = vec![legacy("v2:127.0.0.1:6800/11"), legacy("v1:127.0.0.1:6801/11")];
    let features = Features::PACIFIC_WORD;
    let local = Local { kind, num: 0, addrs: AddrVec(addrs), nonce: 11, features };
    Accepted::new(Arc::new(local), Rc::new(Door(policy)), rules, sock())
}

pub fn mon() -> Accepted {
    server_by(EntityKind::MON, Policy::stateless_server(), Rules::default())
}

pub fn osd() -> Accepted {
    server_by(EntityKind::OSD, Policy::stateless_server(), Rules::default())
}

pub fn mds() -> Accepted {
    server_by(EntityKind::MDS, Policy::stateful_server(), Rules::default())
}

pub fn banner() -> Vec<u8> {
    let mut raw = b"ceph v027".to_vec();
    raw.extend(legacy("v1:127.0.0.1:0/77").to_bytes_for(Features::NONE));
    raw
}

pub struct Connect<'a> {
    pub features: u64,
    pub kind: u32,
    pub protocol: u32,
    pub seqs: [u32; 2],
    pub method: u32,
    pub authorizer: &'a [u8],
}

pub const TO_OSD: Connect<'static> =
    Connect { features: WORD, kind: 8, protocol: 24, seqs: [1, 0], method: 2, authorizer: b"hi" };
pub const TO_MDS: Connect<'static> = Connect { protocol: 32, ..TO_OSD };
pub const TO_MON: Connect<'static> = Connect { protocol: 15, method: 0, authorizer: b"", ..TO_OSD };

pub fn connect(c: &Connect<'_>) -> Vec<u8> {
    let mut raw = c.features.to_le_bytes().to_vec();
    let len = c.authorizer.len() as u32;
    for word in [c.kind, c.seqs[0], c.seqs[1], c.protocol, c.method, len] {
        raw.extend_from_slice(&word.to_le_bytes());
    }
    raw.push(1);
    raw.extend_from_slice(c.authorizer);
    raw
}

pub fn message(seq: u64, kind: u16, segments: [&[u8]; 3], key: Option<&[u8]>) -> Vec<u8> {
    let mut header = seq.to_le_bytes().to_vec();
    header.extend_from_slice(&9u64.to_le_bytes());
    for word in [kind, 127, 1] {
        header.extend_from_slice(&word.to_le_bytes());
    }
    for segment in segments {
        header.extend_from_slice(&(segment.len() as u32).to_le_bytes());
    }
    header.extend_from_slice(&[0, 0, 8]);
    header.extend_from_slice(&[0; 8]);
    header.extend_from_slice(&[1, 0, 0, 0]);
    let header_crc = crc32c(0, &header);
    header.extend_from_slice(&header_crc.to_le_bytes());
    assert_eq!(header.len(), 53);
    let mut raw = vec![7];
    raw.extend_from_slice(&header);
    let mut words = vec![header_crc];
    for segment in segments {
        raw.extend_from_slice(segment);
        words.extend([crc32c(0, segment), segment.len() as u32]);
    }
    words.push(seq as u32);
    for i in [1, 3, 5] {
        raw.extend_from_slice(&words[i].to_le_bytes());
    }
    let sig = key.map(|key| MessageSigner::new(key).unwrap().sign(words.try_into().unwrap()));
    raw.extend_from_slice(&sig.unwrap_or(0).to_le_bytes());
    raw.push(if sig.is_some() { 5 } else { 1 });
    raw
}

pub fn take(side: &mut Accepted) -> Vec<u8> {
    side.prepare();
    let mut out = vec![];
    while side.unwritten() > 0 {
        let mut slices = [IoSlice::new(&[]); 8];
        let n = side.slices(&mut slices);
        let before = out.len();
        slices[..n].iter().for_each(|s| out.extend_from_slice(s));
        side.advance(out.len() - before);
    }
    out
}

pub fn give(side: &mut Accepted, mut raw: &[u8]) -> Result<Vec<Event>, Fault> {
    let mut events = vec![];
    while !raw.is_empty() {
        let mut buf = side.read_buf();
        let n = raw.len().min(buf.remaining_mut());
        buf.put_slice(&raw[..n]);
        raw = &raw[n..];
        while let Some(event) = side.poll(Now::default())? {
            events.push(event);
        }
    }
    Ok(events)
}
