//! Lossless sessions over connections that break anywhere.

mod common;

use common::*;
use env::{Now, Random, Seeded};
use msgr::{Connection, Event, Fault, Peer, Policy, Session, Verdict, judge_ident, judge_resume};

/// The accepting side's memory between connections.
#[derive(Default)]
struct Door {
    kept: Option<(Session, Peer)>,
    resets: usize,
}

impl Door {
    /// Answers requests for sessions as a driver does, passes other events on.
    fn act(&mut self, b: &mut Connection, events: &mut Vec<Event>) -> Result<(), Fault> {
        while let Some(event) = b.poll(Now::default())? {
            let kept = self.kept.as_ref().map(|(session, _)| session);
            let verdict = match &event {
                Event::Ident(ask) => judge_ident(kept, false, server_addr(), ask),
                Event::Resume(ask) => judge_resume(kept, false, server_addr(), true, ask),
                _ => {
                    events.push(event);
                    continue;
                }
            };
            self.resets += usize::from(matches!(verdict, Verdict::Reset { .. }));
            let session = match verdict {
                Verdict::Adopt | Verdict::AdoptReset => self.kept.take(),
                _ => None,
            };
            b.decide(verdict, session, 1000)?;
        }
        Ok(())
    }
}

/// Both ends of a session and what was delivered at each.
struct World {
    mode: u32,
    session: Option<Session>,
    door: Door,
    global_seq: u64,
    at_a: Vec<Event>,
    at_b: Vec<Event>,
    /// Messages yet to be sent, by each side.
    todo_a: Vec<u64>,
    todo_b: Vec<u64>,
}

impl World {
    fn new(mode: u32, n: u64) -> Self {
        let todo: Vec<u64> = (1..=n).rev().collect();
        Self {
            mode,
            session: None,
            door: Door::default(),
            global_seq: 0,
            at_a: vec![],
            at_b: vec![],
            todo_a: todo.clone(),
            todo_b: todo,
        }
    }

    /// One TCP connection that dies after `bytes` bytes in all, taken in pieces of `step`.
    /// Whether it came to rest before.
    fn connect(&mut self, mut bytes: usize, step: usize) -> bool {
        self.global_seq += 1;
        let policy = Policy::lossless_client();
        let mut a = client(self.mode, policy, self.session.take(), self.global_seq);
        let mut b = server(Policy::stateful_server());
        let rest = loop {
            // One new message a side and round, so that breaks find all kinds of queues.
            if let Some(tid) = self.todo_a.pop() {
                a.send(message(tid, tid as usize * 9, 0, tid as usize * 50)).unwrap();
            }
            if b.is_ready()
                && let Some(tid) = self.todo_b.pop()
            {
                b.send(message(tid, 3, 0, 70)).unwrap();
            }
            let to_b = take(&mut a, step.min(bytes));
            bytes -= to_b.len();
            let to_a = take(&mut b, step.min(bytes));
            bytes -= to_a.len();
            give_raw(&mut b, &to_b);
            self.door.act(&mut b, &mut self.at_b).unwrap();
            give(&mut a, &to_a, &mut self.at_a).unwrap();
            if bytes == 0 {
                break false;
            }
            let over = self.todo_a.is_empty() && self.todo_b.is_empty();
            if to_a.is_empty() && to_b.is_empty() && over && b.unwritten() + a.unwritten() == 0 {
                break true;
            }
        };
        let ready = b.is_ready();
        let peer = b.peer().clone();
        self.session = Some(a.into_session());
        if ready {
            self.door.kept = Some((b.into_session(), peer));
        }
        rest
    }

    fn check(&self, n: u64, what: &str) {
        for (side, events) in [("client", &self.at_a), ("server", &self.at_b)] {
            let got: Vec<u64> = messages(events).iter().map(|env| env.tid).collect();
            assert_eq!(got, (1..=n).collect::<Vec<_>>(), "{what}: at the {side}");
        }
    }
}

fn give_raw(to: &mut Connection, mut bytes: &[u8]) {
    use bytes::BufMut;
    while !bytes.is_empty() {
        let mut buf = to.read_buf();
        let n = bytes.len().min(buf.remaining_mut());
        buf.put_slice(&bytes[..n]);
        bytes = &bytes[n..];
    }
}

/// A break after any byte of the whole exchange: nothing is lost, doubled or out of order.
#[test]
fn one_break_anywhere() {
    for mode in [MODE_CRC, MODE_SECURE] {
        let mut at = 0;
        loop {
            let mut world = World::new(mode, 6);
            let whole = world.connect(at, 1000);
            for _ in 0..9 {
                if world.connect(1 << 30, 1000) {
                    break;
                }
            }
            world.check(6, &format!("mode {mode} cut {at}"));
            if whole {
                break;
            }
            at += 1;
        }
        assert!(at > 2000, "the exchange has {at} bytes");
    }
}

/// Breaks again and again, in handshakes, reconnections and messages.
#[test]
fn many_breaks() {
    for seed in 0..300 {
        let mut rng = Seeded(seed);
        let mode = if seed % 2 == 0 { MODE_CRC } else { MODE_SECURE };
        let mut world = World::new(mode, 40);
        for _ in 0..30 {
            let bytes = (rng.u64() % 4000) as usize;
            let step = 1 + (rng.u64() % 700) as usize;
            world.connect(bytes, step);
        }
        for _ in 0..9 {
            if world.connect(1 << 30, 5000) {
                break;
            }
        }
        world.check(40, &format!("seed {seed}"));
    }
}

/// A server that lost its memory tells so, and the client starts anew.
#[test]
fn a_restarted_server_resets() {
    let mut world = World::new(MODE_CRC, 3);
    assert!(world.connect(1 << 30, 500));
    world.door = Door::default();
    assert!(world.connect(1 << 30, 500));
    assert_eq!(world.door.resets, 1);
    assert!(world.at_a.iter().any(|event| matches!(event, Event::RemoteReset)));
    assert!(matches!(world.at_a.last(), Some(Event::Ready { resumed: false })));
}
