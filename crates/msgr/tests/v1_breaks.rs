//! Sessions of messenger v1 over connections that break at any byte, where either side may notice late:
//! every message arrives once and in order, or a side is told that its session was reset.
//!
//! The server is the real one. The client is written after the rules of the peer's `ProtocolV1.cc` and of
//! the kernel's `messenger_v1.c`, since nothing here dials by v1.

#[path = "common/v1.rs"]
mod common;

use std::collections::VecDeque;

use bytes::Bytes;
use common::*;
use env::{Random, Seeded};
use messages::Envelope;
use msgr::v1::{Accepted, judge_connect};
use msgr::{Event, Session, Verdict};

/// What a message says: in which session of its sender it was sent, and its place there, from 1.
type Word = (u32, u32);

/// A fault that is put into the accepting side, for the test to find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Plant {
    None,
    /// A client that comes back gets a new session under the old one's number.
    Fresh,
    /// What arrived since the connection was adopted is forgotten with it.
    Stale,
    /// The old connection goes on beside the one that took its session over.
    Shared,
}

fn front(word: Word) -> Vec<u8> {
    [word.0.to_le_bytes(), word.1.to_le_bytes()].concat()
}

fn data(word: Word) -> Vec<u8> {
    vec![word.1 as u8; word.1 as usize * 37 % 400]
}

fn word_of(front: &[u8]) -> Word {
    let at = |i: usize| u32::from_le_bytes(front[i..i + 4].try_into().unwrap());
    (at(0), at(4))
}

/// What became of the messages of one side.
#[derive(Default)]
struct Told {
    /// The sender's session.
    session: u32,
    /// Messages sent in it.
    sent: u32,
    /// What arrived, by the receiver's sessions.
    arrived: Vec<Vec<Word>>,
}

impl Told {
    fn next(&mut self) -> Word {
        self.sent += 1;
        (self.session, self.sent)
    }

    /// The sender's session was reset.
    fn begin(&mut self) {
        (self.session, self.sent) = (self.session + 1, 0);
    }

    /// In each session of the receiver: messages of one session, from its first on, each once, in order.
    fn check(&self) -> Result<(), String> {
        for all in &self.arrived {
            let first = all.first().map_or(0, |word| word.0);
            let fits = |(i, word): (usize, &Word)| *word == (first, i as u32 + 1);
            if !all.iter().enumerate().all(fits) {
                return Err(format!("arrived: {all:?}"));
            }
        }
        Ok(())
    }
}

/// How far a client's connection is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Banner,
    Reply,
    Seq,
    Open,
}

/// The client: what outlasts a connection, and the connection it has.
struct Client {
    global_seq: u32,
    connect_seq: u32,
    out_seq: u64,
    in_seq: u64,
    sent: VecDeque<(u64, Word)>,
    queue: VecDeque<(u64, Word)>,
    state: State,
    /// Bytes that arrived and are no whole thing yet.
    read: Vec<u8>,
}

fn reply_word(raw: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(raw[at..at + 4].try_into().unwrap())
}

impl Client {
    fn new() -> Self {
        Self {
            global_seq: 0,
            connect_seq: 0,
            out_seq: 0,
            in_seq: 0,
            sent: VecDeque::new(),
            queue: VecDeque::new(),
            state: State::Banner,
            read: vec![],
        }
    }

    fn ask(&self) -> Vec<u8> {
        connect(&Connect { seqs: [self.global_seq, self.connect_seq], ..TO_MDS })
    }

    /// The first bytes of a new connection.
    fn dial(&mut self) -> Vec<u8> {
        self.global_seq += 1;
        self.state = State::Banner;
        self.read.clear();
        while let Some(sent) = self.sent.pop_back() {
            self.queue.push_front(sent);
        }
        [banner(), self.ask()].concat()
    }

    fn forget(&mut self) {
        let global_seq = self.global_seq;
        let (state, read) = (self.state, std::mem::take(&mut self.read));
        *self = Self { global_seq, state, read, ..Self::new() };
    }

    fn push(&mut self, word: Word) {
        self.out_seq += 1;
        self.queue.push_back((self.out_seq, word));
    }

    /// What it writes now.
    fn write(&mut self) -> Vec<u8> {
        let mut out = vec![];
        while self.state == State::Open
            && let Some((seq, word)) = self.queue.pop_front()
        {
            out.extend(message(seq, 24, [&front(word), b"", &data(word)], Some(&KEY)));
            self.sent.push_back((seq, word));
        }
        out
    }

    fn part(&mut self, len: usize) -> Option<Vec<u8>> {
        (self.read.len() >= len).then(|| self.read.drain(..len).collect())
    }

    fn on_ack(&mut self, seq: u64) {
        self.sent.retain(|(sent, _)| *sent > seq);
        self.queue.retain(|(sent, _)| *sent > seq);
    }

    /// Takes what arrived; what it answers. `is_reset` tells that the server reset the session.
    fn take(&mut self, told: &mut Told, is_reset: &mut bool) -> Result<Vec<u8>, String> {
        let mut out = vec![];
        loop {
            match self.state {
                State::Banner => {
                    let Some(_) = self.part(9 + 2 * 136) else { return Ok(out) };
                    self.state = State::Reply;
                }
                State::Reply => {
                    let Some(head) = self.read.get(..26).map(<[u8]>::to_vec) else {
                        return Ok(out);
                    };
                    let behind = reply_word(&head, 21) as usize;
                    let Some(_) = self.part(26 + behind) else { return Ok(out) };
                    match head[0] {
                        16 => {}
                        2 => {
                            self.forget();
                            *is_reset = true;
                        }
                        4 => self.connect_seq = reply_word(&head, 13),
                        5 => self.global_seq = self.global_seq.max(reply_word(&head, 9)) + 1,
                        13 => {
                            self.connect_seq += 1;
                            if reply_word(&head, 13) != self.connect_seq {
                                return Err(format!("connect_seq is not {}", self.connect_seq));
                            }
                            self.state = State::Seq;
                            continue;
                        }
                        tag => return Err(format!("answered {tag}")),
                    }
                    out.extend(self.ask());
                }
                State::Seq => {
                    let Some(raw) = self.part(8) else { return Ok(out) };
                    self.on_ack(u64::from_le_bytes(raw.try_into().unwrap()));
                    out.extend(self.in_seq.to_le_bytes());
                    self.state = State::Open;
                }
                State::Open => match self.read.first() {
                    None => return Ok(out),
                    Some(8) => {
                        let Some(raw) = self.part(9) else { return Ok(out) };
                        self.on_ack(u64::from_le_bytes(raw[1..].try_into().unwrap()));
                    }
                    Some(7) => {
                        let Some(head) = self.read.get(1..54) else { return Ok(out) };
                        let lens = [22, 26, 30].map(|at| reply_word(head, at) as usize);
                        let seq = u64::from_le_bytes(head[..8].try_into().unwrap());
                        let whole = 54 + lens.iter().sum::<usize>() + 21;
                        let Some(raw) = self.part(whole) else { return Ok(out) };
                        let (front, rest) = raw[54..].split_at(lens[0]);
                        let word = word_of(front);
                        if rest[..lens[2]] != data(word) {
                            return Err(format!("{word:?} came with other bytes"));
                        }
                        // Upstream drops the connection where a number is left out.
                        match seq.checked_sub(self.in_seq + 1) {
                            None => continue,
                            Some(0) => self.in_seq = seq,
                            Some(_) => return Err(format!("{seq} behind {}", self.in_seq)),
                        }
                        told.arrived.last_mut().expect("a session").push(word);
                        out.push(8);
                        out.extend(self.in_seq.to_le_bytes());
                    }
                    Some(tag) => return Err(format!("said {tag}")),
                },
            }
        }
    }
}

/// A connection as the server has it.
struct Line {
    side: Accepted,
    /// Under way to the server.
    there: VecDeque<u8>,
    /// Under way to the client.
    back: VecDeque<u8>,
    /// The client has another one, or none.
    is_left: bool,
    has_session: bool,
    /// The session as it was when this connection got it.
    before: Option<Session>,
}

struct World {
    rng: Seeded,
    plant: Plant,
    client: Client,
    /// Of the client.
    is_dialled: bool,
    /// The client's is the last; those before it are what the server has not noticed to be over.
    lines: Vec<Line>,
    /// The session between connections.
    kept: Option<Session>,
    /// Whether the server keeps a session whose first handshake did not end.
    keeps_early: bool,
    has_server_session: bool,
    from_client: Told,
    from_server: Told,
    resets: usize,
}

impl World {
    fn new(seed: u64, plant: Plant) -> Self {
        let mut told = Told::default();
        told.arrived.push(vec![]);
        Self {
            rng: Seeded(seed),
            plant,
            client: Client::new(),
            is_dialled: false,
            lines: vec![],
            kept: None,
            keeps_early: seed.is_multiple_of(2),
            has_server_session: false,
            from_client: Told::default(),
            from_server: told,
            resets: 0,
        }
    }

    fn below(&mut self, n: usize) -> usize {
        (self.rng.u64() % n as u64) as usize
    }

    fn dial(&mut self) {
        let there = self.client.dial().into();
        let line = Line {
            side: mds(),
            there,
            back: VecDeque::new(),
            is_left: false,
            has_session: false,
            before: None,
        };
        self.lines.push(line);
        self.is_dialled = true;
    }

    /// The client's connection is over. The server hears of it behind a part of what was under way: now or
    /// later.
    fn hang_up(&mut self, is_heard: bool) -> Result<(), String> {
        let at = self.lines.len() - 1;
        let n = self.below(self.lines[at].there.len() + 1);
        self.is_dialled = false;
        self.lines[at].is_left = true;
        self.lines[at].there.truncate(n);
        if is_heard { self.serve(at, n) } else { Ok(()) }
    }

    /// The server's side of a connection ends.
    fn end(&mut self, at: usize) {
        let line = self.lines.remove(at);
        if !line.is_left {
            self.is_dialled = false;
        }
        if line.has_session {
            let early = !line.side.is_ready() && line.before.is_none();
            let session = match (self.plant, line.before) {
                (Plant::Stale, Some(before)) => before,
                _ => line.side.into_session(),
            };
            self.kept = Some(session).filter(|_| !early || self.keeps_early);
        }
    }

    fn holder(&self) -> Option<usize> {
        self.lines.iter().position(|line| line.has_session)
    }

    /// The server judges who asks for a session, as its messenger does.
    fn on_ask(&mut self, at: usize, ask: &msgr::v1::Ask) -> Result<(), String> {
        let holder = self.holder();
        let (existing, open) = match holder {
            Some(holder) => {
                let side = &self.lines[holder].side;
                (Some(side.session()), side.is_ready())
            }
            None => (self.kept.as_ref(), true),
        };
        let verdict = match judge_connect(existing, true, open, ask) {
            Verdict::Adopt if self.plant == Plant::Fresh => Verdict::Fresh,
            verdict => verdict,
        };
        let mut session = None;
        if matches!(verdict, Verdict::Adopt | Verdict::Fresh | Verdict::AdoptReset) {
            let old = holder.map(|holder| {
                // Its connection is closed.
                self.is_dialled &= holder + 1 != self.lines.len();
                let line = &mut self.lines[holder];
                (line.has_session, line.is_left) = (false, true);
                if self.plant == Plant::Shared {
                    return line.side.session().clone();
                }
                line.there.clear();
                std::mem::replace(&mut line.side, mds()).into_session()
            });
            session = old.or(self.kept.take());
        }
        if matches!(verdict, Verdict::Fresh | Verdict::AdoptReset) {
            session = None;
            self.has_server_session = true;
            self.from_server.begin();
            self.from_client.arrived.push(vec![]);
        }
        let line = &mut self.lines[at];
        line.before.clone_from(&session);
        line.has_session = matches!(verdict, Verdict::Adopt | Verdict::Fresh | Verdict::AdoptReset);
        line.side.decide(verdict, session).map_err(|fault| fault.to_string())
    }

    /// `n` bytes arrive at the server.
    fn serve(&mut self, at: usize, n: usize) -> Result<(), String> {
        let n = n.min(self.lines[at].there.len());
        let bytes: Vec<u8> = self.lines[at].there.drain(..n).collect();
        let events = give_all(&mut self.lines[at].side, &bytes);
        for event in events.map_err(|fault| fault.to_string())? {
            match event {
                Event::Connect(ask) => self.on_ask(at, &ask)?,
                Event::Message { env, cost } => {
                    let word = word_of(&env.front);
                    if env.data[..] != data(word) {
                        return Err(format!("{word:?} came with other bytes"));
                    }
                    self.from_client.arrived.last_mut().expect("a session").push(word);
                    self.lines[at].side.release(cost);
                }
                _ => {}
            }
        }
        let back = take(&mut self.lines[at].side);
        self.lines[at].back.extend(back);
        if self.lines[at].is_left && self.lines[at].there.is_empty() {
            self.end(at);
        }
        Ok(())
    }

    /// `n` bytes arrive at the client.
    fn hear(&mut self, n: usize) -> Result<(), String> {
        if !self.is_dialled {
            return Ok(());
        }
        let line = self.lines.last_mut().expect("it dialled");
        let n = n.min(line.back.len());
        self.client.read.extend(line.back.drain(..n));
        let mut is_reset = false;
        let said = self.client.take(&mut self.from_server, &mut is_reset)?;
        if is_reset {
            self.resets += 1;
            self.from_client.begin();
            self.from_server.arrived.push(vec![]);
        }
        let said = [said, self.client.write()].concat();
        self.lines.last_mut().expect("it dialled").there.extend(said);
        Ok(())
    }

    fn say(&mut self) -> Result<(), String> {
        if self.below(2) == 0 {
            let word = self.from_client.next();
            self.client.push(word);
            return self.hear(0);
        }
        if !self.has_server_session || (self.holder().is_none() && self.kept.is_none()) {
            return Ok(());
        }
        let word = self.from_server.next();
        let (front, data) = (Bytes::from(front(word)), Bytes::from(data(word)));
        let env = Envelope { kind: 26, front, data, ..Envelope::default() };
        let sent = match (self.holder(), &mut self.kept) {
            (Some(at), _) => self.lines[at].side.send(env),
            (None, Some(kept)) => kept.send(env),
            (None, None) => unreachable!("there is a session"),
        };
        sent.map_err(|fault| fault.to_string())
    }

    fn step(&mut self, restarts: bool) -> Result<(), String> {
        if !self.is_dialled {
            self.dial();
        }
        let last = self.lines.len() - 1;
        match self.below(40) {
            0..12 => {
                let n = self.below(600);
                self.serve(last, n)?;
            }
            12..24 => {
                let n = self.below(600);
                self.hear(n)?;
            }
            24..34 => self.say()?,
            34 | 35 => self.hang_up(true)?,
            36 => self.hang_up(false)?,
            // What was under way on a connection that is over.
            37 | 38 if last > 0 => {
                let (at, n) = (self.below(last), self.below(300));
                self.serve(at, n)?;
            }
            39 if restarts && self.below(3) == 0 => {
                if self.below(2) == 0 {
                    self.lines.clear();
                    (self.kept, self.is_dialled, self.has_server_session) = (None, false, false);
                } else {
                    self.hang_up(false)?;
                    self.client.forget();
                    self.from_client.begin();
                    self.from_server.arrived.push(vec![]);
                }
            }
            _ => {}
        }
        self.from_client.check()?;
        self.from_server.check()
    }

    /// Nothing breaks any more.
    fn rest(&mut self) -> Result<(), String> {
        for _ in 0..200 {
            while self.lines.len() > usize::from(self.is_dialled) {
                self.serve(0, usize::MAX)?;
            }
            if !self.is_dialled {
                self.dial();
            }
            self.serve(0, usize::MAX)?;
            self.hear(usize::MAX)?;
        }
        self.from_client.check()?;
        self.from_server.check()?;
        for (told, who) in [(&self.from_client, "client"), (&self.from_server, "server")] {
            let arrived = told.arrived.last().map_or(0, Vec::len);
            if arrived as u32 != told.sent {
                return Err(format!("of the {who}'s {} messages {arrived} arrived", told.sent));
            }
        }
        Ok(())
    }
}

/// Gives bytes and collects events up to the one that waits for a verdict.
fn give_all(side: &mut Accepted, bytes: &[u8]) -> Result<Vec<Event>, msgr::Fault> {
    let mut events = give(side, bytes)?;
    while let Some(event) = side.poll(env::Now::default())? {
        events.push(event);
    }
    Ok(events)
}

/// The number of resets, or what went wrong.
fn run(seed: u64, plant: Plant) -> Result<usize, String> {
    let mut world = World::new(seed, plant);
    for _ in 0..250 {
        world.step(seed % 4 > 1)?;
    }
    world.rest()?;
    Ok(world.resets)
}

#[test]
fn sessions_outlast_breaks() {
    let mut resets = 0;
    for seed in 0..1_000 {
        let told = run(seed, Plant::None).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        // Nobody lost a session where neither side began anew and the server keeps them all.
        assert!(told == 0 || seed % 4 > 0, "seed {seed}: {told} resets");
        resets += told;
    }
    assert!(resets > 100, "{resets} resets: restarts are met");
}

#[test]
fn planted_faults_are_found() {
    for plant in [Plant::Fresh, Plant::Stale, Plant::Shared] {
        let found = (0..200).filter(|seed| run(*seed, plant).is_err()).count();
        assert!(found > 10, "{plant:?} is found by {found} seeds");
    }
}
