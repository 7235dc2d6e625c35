//! Two machines back to back in memory, with an authentication that only makes keys.
#![allow(dead_code)]

use std::io::IoSlice;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use auth::{
    AuthDone, AuthError, ClientAuth, ClientDone, ClientStart, PeerIdentity, ServerAuth, ServerStep,
};
use bytes::{BufMut, Bytes};
use denc::Features;
use env::Now;
use messages::Envelope;
use msgr::{Acceptor, Connection, Dial, Event, Fault, Local, Policy, Session};
use types::{AddrVec, EntityAddr, EntityKind};

pub const MODE_CRC: u32 = 1;
pub const MODE_SECURE: u32 = 2;

/// Two rounds, then keys made from what the client sent.
struct TestServer;

fn done(mode: u32) -> ServerStep {
    ServerStep::Done(Box::new(AuthDone {
        global_id: 77,
        con_mode: mode,
        payload: Bytes::from_static(b"done"),
        session_key: Bytes::from_static(&[3; 16]),
        connection_secret: Bytes::from(vec![9; if mode == MODE_SECURE { 64 } else { 0 }]),
        peer: PeerIdentity { global_id: 77, caps: "allow *".into(), ..PeerIdentity::default() },
    }))
}

impl ServerAuth for TestServer {
    fn request(
        &mut self,
        _now: Now,
        _kind: EntityKind,
        _addr: &EntityAddr,
        method: u32,
        modes: &[u32],
        _payload: &[u8],
    ) -> ServerStep {
        if method != 2 {
            return ServerStep::Refuse {
                result: -95,
                allowed_methods: vec![2],
                allowed_modes: vec![MODE_CRC, MODE_SECURE],
            };
        }
        ServerStep::More(Bytes::copy_from_slice(&modes[0].to_le_bytes()))
    }
    fn more(&mut self, _now: Now, payload: &[u8]) -> ServerStep {
        done(u32::from(payload[0]))
    }
}

/// Tries method 9 first, so that AUTH_BAD_METHOD is seen too.
struct TestClient(u32);

impl ClientAuth for TestClient {
    fn start(&mut self, _now: Now) -> Result<ClientStart, AuthError> {
        Ok(ClientStart { method: 9, modes: vec![self.0], payload: Bytes::from_static(b"hi") })
    }
    fn bad_method(
        &mut self,
        _now: Now,
        _method: u32,
        _result: i32,
        methods: &[u32],
        _modes: &[u32],
    ) -> Result<ClientStart, AuthError> {
        Ok(ClientStart { method: methods[0], modes: vec![self.0], payload: Bytes::new() })
    }
    fn more(&mut self, _now: Now, payload: &[u8]) -> Result<Bytes, AuthError> {
        Ok(Bytes::copy_from_slice(payload))
    }
    fn done(&mut self, _now: Now, id: u64, mode: u32, _p: &[u8]) -> Result<ClientDone, AuthError> {
        Ok(ClientDone {
            global_id: id,
            session_key: Bytes::from_static(&[3; 16]),
            connection_secret: Bytes::from(vec![9; if mode == MODE_SECURE { 64 } else { 0 }]),
        })
    }
}

struct Accept(Policy);

impl Acceptor for Accept {
    fn auth(&self, _kind: EntityKind, _from: SocketAddr) -> Box<dyn ServerAuth> {
        Box::new(TestServer)
    }
    fn policy(&self, _kind: EntityKind) -> Policy {
        self.0
    }
}

pub fn server_addr() -> EntityAddr {
    "v2:127.0.0.1:6800/11010".parse().unwrap()
}

pub fn sock() -> SocketAddr {
    "127.0.0.1:40000".parse().unwrap()
}

pub fn server(policy: Policy) -> Connection {
    let local = Local {
        kind: EntityKind::OSD,
        num: 0,
        addrs: AddrVec(vec![server_addr()]),
        nonce: 11010,
        features: Features::PACIFIC_WORD,
    };
    Connection::accept(Arc::new(local), Rc::new(Accept(policy)), sock())
}

pub fn client(mode: u32, policy: Policy, session: Option<Session>, global_seq: u64) -> Connection {
    let local = Local {
        kind: EntityKind::CLIENT,
        num: 4498,
        addrs: AddrVec::default(),
        nonce: 77,
        features: Features::PACIFIC_WORD,
    };
    let dial = Dial {
        addr: server_addr(),
        addrs: server_addr().into(),
        kind: EntityKind::OSD,
        policy,
        global_seq,
        cookie: 55,
    };
    let to = server_addr().sock.unwrap();
    Connection::dial(Arc::new(local), dial, Box::new(TestClient(mode)), session, to)
}

/// Takes up to `max` bytes that `from` wants written.
pub fn take(from: &mut Connection, max: usize) -> Vec<u8> {
    from.prepare().unwrap();
    let mut slices = [IoSlice::new(&[]); 16];
    let n = from.slices(&mut slices);
    let mut out = Vec::new();
    for slice in &slices[..n] {
        out.extend_from_slice(&slice[..slice.len().min(max - out.len())]);
    }
    from.advance(out.len());
    out
}

/// Gives bytes to `to` and collects what came of them.
pub fn give(to: &mut Connection, mut bytes: &[u8], events: &mut Vec<Event>) -> Result<(), Fault> {
    while !bytes.is_empty() {
        let mut buf = to.read_buf();
        let n = bytes.len().min(buf.remaining_mut());
        buf.put_slice(&bytes[..n]);
        bytes = &bytes[n..];
        while let Some(event) = to.poll(Now::default())? {
            events.push(event);
        }
    }
    while let Some(event) = to.poll(Now::default())? {
        events.push(event);
    }
    Ok(())
}

/// Moves bytes both ways in pieces of `step` until both are silent.
pub fn run(
    a: &mut Connection,
    b: &mut Connection,
    step: usize,
    a_events: &mut Vec<Event>,
    b_events: &mut Vec<Event>,
) -> Result<(), Fault> {
    loop {
        let to_b = take(a, step);
        give(b, &to_b, b_events)?;
        let to_a = take(b, step);
        give(a, &to_a, a_events)?;
        if to_a.is_empty() && to_b.is_empty() {
            return Ok(());
        }
    }
}

/// A message with recognizable segments of these sizes.
pub fn message(tid: u64, front: usize, middle: usize, data: usize) -> Envelope {
    let bytes = |salt: u64, n: usize| -> Bytes {
        (0..n as u64).map(|i| (i * 31 + tid * 7 + salt) as u8).collect()
    };
    Envelope {
        tid,
        kind: 42,
        priority: 63,
        version: 8,
        compat: 3,
        data_off: 5,
        front: bytes(1, front),
        middle: bytes(2, middle),
        data: bytes(3, data),
        data_sums: None,
    }
}

pub fn messages(events: &[Event]) -> Vec<Envelope> {
    events
        .iter()
        .filter_map(|e| match e {
            Event::Message { env, .. } => Some(env.clone()),
            _ => None,
        })
        .collect()
}
