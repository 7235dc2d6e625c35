//! What clients with a session may say to a metadata server that holds a rank: messages of every
//! kind, well formed and then changed, over several sessions, some of them for other files than
//! their sender ever saw.
//!
//! Nothing of it may panic, nor end the server (`Effect::Respawn`). Afterwards an honest client is
//! answered, and a successor reads the journal and makes the same files of it.

use messages::fs::{
    CapReconnect, ClientCapRelease, ClientLease, ClientMetrics, ClientReclaim, ReleaseItem,
    ReleasedCap,
};
use messages::fuzz::Choices;

use super::*;

/// Things that one input does.
const STEPS_MAX: usize = 60;
/// Ticks after which nobody is waited for any more.
const RECONNECT_TICKS: usize = 200;
const LIAR: i64 = 88;
const PATHS: [&str; 14] =
    ["", "d", "d/f", "d/l", "f", "e", "e/g", "d/..", "/", "d//f", "f/x", "d//s", "d//s/f", "n"];
/// Numbers that the server knows.
const KNOWN: [u64; 8] = [1, 0x100, 0x3e8, 1 << 40, (1 << 40) + 1, 77, 88, 4_242];

fn path(c: &mut Choices<'_>) -> FilePath {
    let ino = Ino(*c.of(&[1, 1, 1, 1, 0, 2, 3, 0x100, 0x600, 1 << 40, (1 << 40) + 1, u64::MAX]));
    let text = *c.of(&PATHS);
    let path = match c.below(12) {
        0 => text.repeat(1 + c.below(200) as usize),
        1 => format!("{text}/{}", "n".repeat(c.below(300) as usize)),
        _ => text.to_owned(),
    };
    FilePath { ino, path: path.into_bytes().into() }
}

fn message(c: &mut Choices<'_>, inos: &[Ino]) -> Envelope {
    let all = Features::ALL;
    let ino = |c: &mut Choices<'_>| match c.below(5) {
        0 => Ino(c.edge(&KNOWN)),
        _ => *c.of(inos),
    };
    match c.below(12) {
        0..=4 => {
            let base = *c.of(&[0x100, 0x100, 0x1100, 0x1200, 0x1200, 0x1300, 0x1400]);
            let mut args = [0; 56];
            for _ in 0..c.below(4) {
                let at = c.below(48) as usize;
                args[at..at + 8].copy_from_slice(&c.edge(&KNOWN).to_le_bytes());
            }
            let release = ReleaseItem { ino: ino(c), ..ReleaseItem::default() };
            ClientRequest {
                op: base + c.below(0x20) as u32,
                args: messages::fs::RawArgs(args),
                path: path(c),
                path2: path(c),
                oldest_client_tid: c.edge(&[]),
                releases: vec![release; c.below(3) as usize],
                ..ClientRequest::default()
            }
            .envelope(all)
        }
        5 | 6 => ClientCaps {
            op: c.below(16) as u32,
            ino: ino(c),
            cap_id: c.edge(&[1, 2, 3, 4, 5]),
            seq: c.edge(&[1, 2]) as u32,
            caps: c.edge(&[0xfff]) as u32,
            wanted: c.edge(&[0xfff]) as u32,
            dirty: c.edge(&[0xfff]) as u32,
            snap_follows: types::SnapId(c.edge(&[1, 2])),
            ..ClientCaps::default()
        }
        .envelope(all),
        7 => {
            let cap = ReleasedCap { ino: ino(c), cap_id: c.edge(&[1, 2]), ..Default::default() };
            let caps = vec![cap; c.below(4) as usize];
            ClientCapRelease { caps, ..ClientCapRelease::default() }.envelope(all)
        }
        8 => {
            let cap = CapReconnect { cap_id: c.edge(&[1]), wanted: u32::MAX, ..Default::default() };
            let caps = (0..c.below(4)).map(|_| (ino(c), cap.clone())).collect();
            ClientReconnect { caps, ..ClientReconnect::default() }.envelope(all)
        }
        9 => ClientSession {
            op: c.below(14) as u32,
            seq: c.edge(&[]),
            detail: c.once_in(2).then(Box::default),
            ..ClientSession::default()
        }
        .envelope(all),
        10 => match c.below(3) {
            0 => ClientLease::default().envelope(all),
            1 => ClientMetrics::default().envelope(all),
            _ => ClientReclaim::default().envelope(all),
        },
        _ => Envelope { kind: c.edge(&[22, 23, 24, 26, 29, 0x310]) as u16, ..Envelope::default() },
    }
}

/// Takes an input as what clients do; see the module.
///
/// # Panics
/// When something of it breaks the server.
pub fn run(input: &[u8]) {
    let mut c = Choices::new(input);
    let mut w = World::new();
    let mut inos = vec![w.mkdir("d"), w.create("d/f"), w.create("f"), w.mkdir("e")];
    inos.push(w.create("e/g"));
    w.open(LIAR);
    let mut liar = w.conn();
    for _ in 0..STEPS_MAX {
        if c.is_over() {
            break;
        }
        if c.once_in(6) {
            w.ticks(1 + c.below(4) as usize);
            continue;
        }
        let envelope = message(&mut c, &inos);
        let envelope = match c.once_in(3) {
            true => c.changed_message(&envelope, &KNOWN),
            false => envelope,
        };
        let tid = u64::from(c.byte());
        let envelope = envelope.with_tid(tid);
        w.call(|m, now, out| m.on_message(now, liar, &peer(LIAR), envelope, out));
        w.heard.clear();
        // As the daemon does, which tells the server of it.
        if w.closed.contains(&liar) {
            w.call(|m, now, out| m.on_closed(now, liar, out));
            w.open(LIAR);
            liar = w.conn();
        }
    }
    w.ticks(4);
    w.call(|m, now, out| m.on_closed(now, liar, out));
    // The honest client's next connection, and another server's life.
    w.open(CLIENT);
    assert!(w.stat("").is_ok(), "the root");
    let root = w.names(mds_op::READDIR, "");
    w.heard.clear();
    w.mds = new_mds(w.options.clone());
    w.begin(MdsState::REPLAY);
    w.conns += 1;
    w.message(CLIENT, &ClientReconnect::default(), 0);
    // The other one does not come back.
    w.ticks(RECONNECT_TICKS);
    assert_eq!(w.state(), MdsState::ACTIVE);
    assert_eq!(w.names(mds_op::READDIR, ""), root, "after another took over");
}

#[cfg(test)]
mod tests {
    use env::{Random, Seeded};

    /// Bytes of one input.
    const INPUT: usize = 1_500;
    /// Inputs of each test run; `ARGONAUT_FUZZ` asks for more.
    const INPUTS: u64 = 60;

    #[test]
    fn a_rank_takes_whatever_clients_say() {
        let number = |name: &str| std::env::var(name).ok().and_then(|n| n.parse::<u64>().ok());
        let first = number("ARGONAUT_FUZZ_FROM").unwrap_or(0);
        let mut broke = Vec::new();
        for seed in first..first + number("ARGONAUT_FUZZ").unwrap_or(INPUTS) {
            let mut input = vec![0; INPUT];
            Seeded(seed).fill(&mut input);
            if std::panic::catch_unwind(|| super::run(&input)).is_err() {
                eprintln!("seed {seed}");
                broke.push(seed);
            }
        }
        assert!(broke.is_empty(), "of seeds {broke:?}");
    }
}
