//! Entry point for fuzzing: a hostile client of messenger v1.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use auth::{AuthDone, PeerIdentity, ServerAuth, ServerStep};
use bytes::{BufMut, Bytes};
use denc::Features;
use env::Now;
use types::{AddrVec, EntityAddr, EntityKind};

use super::{Accepted, Rules};
use crate::connection::{Acceptor, Event, Local};
use crate::frame::DATA_MAX;
use crate::session::{Policy, Verdict};

/// Lets everybody in whose second word is even.
struct Doorman;

impl ServerAuth for Doorman {
    fn request(
        &mut self,
        _now: Now,
        _kind: EntityKind,
        _from: &EntityAddr,
        method: u32,
        _modes: &[u32],
        _payload: &[u8],
    ) -> ServerStep {
        if method != 2 {
            return ServerStep::Refuse {
                result: -95,
                allowed_methods: vec![2],
                allowed_modes: vec![1],
            };
        }
        ServerStep::More(Bytes::from_static(b"who are you?"))
    }
    fn more(&mut self, _now: Now, payload: &[u8]) -> ServerStep {
        if payload.first().is_none_or(|byte| byte % 2 != 0) {
            return ServerStep::Refuse {
                result: -13,
                allowed_methods: vec![2],
                allowed_modes: vec![1],
            };
        }
        ServerStep::Done(Box::new(AuthDone {
            global_id: 7,
            con_mode: 1,
            payload: Bytes::from_static(b"welcome"),
            session_key: Bytes::new(), // a fuzzer cannot sign
            connection_secret: Bytes::new(),
            peer: PeerIdentity { global_id: 7, ..PeerIdentity::default() },
        }))
    }
}

struct Door(Policy);

impl Acceptor for Door {
    fn auth(&self, _kind: EntityKind, _from: SocketAddr) -> Box<dyn ServerAuth> {
        Box::new(Doorman)
    }
    fn policy(&self, _kind: EntityKind) -> Policy {
        self.0
    }
}

/// Feeds `bytes` to a monitor's, an OSD's and a metadata server's side, in pieces whose sizes the
/// bytes themselves choose. Must neither panic nor hold more than what was fed, and what one message
/// may announce.
pub fn fuzz_v1(bytes: &[u8]) {
    for kind in [EntityKind::MON, EntityKind::OSD, EntityKind::MDS] {
        let sock = SocketAddr::from(([127, 0, 0, 1], 6789));
        let addr = EntityAddr::msgr2(sock, 1).with_kind(types::AddrKind::LEGACY);
        let policy = match kind {
            EntityKind::MDS => Policy::stateful_server(),
            _ => Policy::stateless_server(),
        };
        let local = Arc::new(Local {
            kind,
            num: 0,
            addrs: AddrVec(vec![addr]),
            nonce: 1,
            features: Features::PACIFIC_WORD,
        });
        let mut side = Accepted::new(local, Rc::new(Door(policy)), Rules::default(), sock);
        feed(&mut side, bytes);
    }
}

fn feed(side: &mut Accepted, mut bytes: &[u8]) {
    let mut seed = 0;
    while let Some(&step) = bytes.first() {
        let mut buf = side.read_buf();
        let n = bytes.len().min(usize::from(step) + 1).min(buf.remaining_mut());
        buf.put_slice(&bytes[..n]);
        bytes = &bytes[n..];
        loop {
            match side.poll(Now::default()) {
                Err(_) => return,
                Ok(None) => break,
                Ok(Some(Event::Connect(ask))) => {
                    seed += 1;
                    let verdict = match (ask.connect_seq + seed) % 4 {
                        0 => Verdict::Reset { full: true },
                        1 => Verdict::Retry(ask.connect_seq + 1),
                        2 => Verdict::RetryGlobal(ask.global_seq + 1),
                        _ => Verdict::Fresh,
                    };
                    if side.decide(verdict, None).is_err() {
                        return;
                    }
                }
                Ok(Some(Event::Message { env, cost })) => {
                    if side.send(env).is_err() {
                        return;
                    }
                    side.release(cost);
                }
                Ok(Some(_)) => {}
            }
        }
        side.prepare();
        let n = side.unwritten();
        side.advance(n);
        assert!(side.held() <= DATA_MAX as usize * 2, "memory is bounded");
    }
}
