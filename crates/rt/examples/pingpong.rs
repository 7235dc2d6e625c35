//! What a request and its reply cost: `pingpong [PAYLOAD [INFLIGHT [SECONDS [crc|secure]]]]`.
//!
//! Client and server are threads of their own over loopback; the CPU time of each is
//! printed per request.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::mpsc;
use std::time::Duration;

use auth::{
    AuthDone, AuthError, ClientAuth, ClientDone, ClientStart, PeerIdentity, ServerAuth, ServerStep,
};
use bytes::Bytes;
use denc::Features;
use env::Now;
use messages::Envelope;
use rt::{Config, Limits, Local, Messenger, NetEvent, Policy, run_local};
use types::{AddrVec, EntityAddr, EntityKind};

struct Open;

impl ServerAuth for Open {
    fn request(
        &mut self,
        _now: Now,
        _kind: EntityKind,
        _addr: &EntityAddr,
        _method: u32,
        modes: &[u32],
        _payload: &[u8],
    ) -> ServerStep {
        ServerStep::Done(Box::new(AuthDone {
            global_id: 5,
            con_mode: modes[0],
            payload: Bytes::new(),
            session_key: Bytes::from_static(&[1; 16]),
            connection_secret: Bytes::from_static(&[2; 64]),
            peer: PeerIdentity::default(),
        }))
    }
    fn more(&mut self, _now: Now, _payload: &[u8]) -> ServerStep {
        ServerStep::Refuse { result: -22, allowed_methods: vec![], allowed_modes: vec![] }
    }
}

struct Knock(u32);

impl ClientAuth for Knock {
    fn start(&mut self, _now: Now) -> Result<ClientStart, AuthError> {
        Ok(ClientStart { method: 2, modes: vec![self.0], payload: Bytes::new() })
    }
    fn bad_method(
        &mut self,
        _now: Now,
        _method: u32,
        result: i32,
        _methods: &[u32],
        _modes: &[u32],
    ) -> Result<ClientStart, AuthError> {
        Err(AuthError::Refused { result, allowed_methods: vec![] })
    }
    fn more(&mut self, _now: Now, _payload: &[u8]) -> Result<Bytes, AuthError> {
        Err(AuthError::Protocol("one round only"))
    }
    fn done(&mut self, _now: Now, id: u64, _mode: u32, _p: &[u8]) -> Result<ClientDone, AuthError> {
        Ok(ClientDone {
            global_id: id,
            session_key: Bytes::from_static(&[1; 16]),
            connection_secret: Bytes::from_static(&[2; 64]),
        })
    }
}

fn messenger(kind: EntityKind) -> Messenger {
    Messenger::new(Config {
        local: Local {
            kind,
            num: 3,
            addrs: AddrVec::default(),
            nonce: 99,
            features: Features::PACIFIC_WORD,
        },
        policy: Box::new(|_| Policy::stateless_server()),
        auth: Box::new(|_, _| Box::new(Open)),
        limits: Limits::default(),
    })
}

/// CPU seconds of this thread so far.
fn cpu() -> f64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    stat.split(' ').next().unwrap().parse::<f64>().unwrap() / 1e9
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let number = |i: usize, or: usize| args.get(i).map_or(or, |s| s.parse().unwrap());
    let (payload, inflight, seconds) = (number(1, 4096), number(2, 1), number(3, 3));
    let mode = if args.get(4).is_some_and(|s| s == "secure") { 2 } else { 1 };
    let (tell, told) = mpsc::channel();
    let (tell_end, told_end) = mpsc::channel();
    let server = std::thread::spawn(move || {
        run_local(async move {
            let m = messenger(EntityKind::OSD);
            let at = m.bind("127.0.0.1:0".parse().unwrap()).unwrap();
            let addr = EntityAddr::msgr2(at, 99);
            m.set_local(|local| local.addrs = addr.into());
            let back = m.clone();
            let done = Rc::new(Cell::new(false));
            let end = done.clone();
            m.set_handler(move |event| match event {
                NetEvent::Message { conn, env, .. } => {
                    back.send(conn, Envelope { data: Bytes::new(), data_sums: None, ..env });
                }
                NetEvent::Closed { .. } => end.set(true),
                _ => {}
            });
            tell.send(addr).unwrap();
            let before = cpu();
            while !done.get() {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            tell_end.send(cpu() - before).unwrap();
        })
        .unwrap();
    });
    let addr = told.recv().unwrap();
    run_local(async move {
        let m = messenger(EntityKind::CLIENT);
        let data = Bytes::from(vec![7; payload]);
        let front = Bytes::from(vec![1; 200]);
        let count = Rc::new(Cell::new(0u64));
        let (back, counter) = (m.clone(), count.clone());
        let again = data.clone();
        m.set_handler(move |event| {
            if let NetEvent::Message { conn, env, .. } = event {
                counter.set(counter.get() + 1);
                back.send(conn, Envelope { data: again.clone(), data_sums: None, ..env });
            }
        });
        let redial: rt::Redial = Box::new(move || Box::new(Knock(mode)));
        let conn = m.connect(addr, EntityKind::OSD, Policy::lossy_client(), redial);
        for tid in 0..inflight as u64 {
            let env = Envelope { tid, kind: 42, front: front.clone(), data: data.clone(), ..Envelope::default() };
            m.send(conn, env);
        }
        let (start, before) = (rt::now(), cpu());
        tokio::time::sleep(Duration::from_secs(seconds as u64)).await;
        let (n, mine) = (count.get() as f64, cpu() - before);
        let rate = n * 1e9 / (rt::now().mono_ns - start.mono_ns) as f64;
        m.close(conn);
        tokio::time::sleep(Duration::from_millis(200)).await;
        let theirs = told_end.recv().unwrap();
        println!(
            "{payload} bytes, {inflight} in flight, mode {mode}: {rate:.0} requests/s; CPU per request: \
             server {:.2} us, client {:.2} us; {:.2} GB/s",
            theirs / n * 1e6,
            mine / n * 1e6,
            rate * payload as f64 / 1e9,
        );
    })
    .unwrap();
    server.join().unwrap();
}
