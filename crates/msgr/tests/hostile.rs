//! Bytes that no honest peer sends.

mod common;

use common::*;
use env::{Now, Random, Seeded};
use msgr::{Connection, Event, Fault, Policy, fuzz_frames};
use proptest::prelude::*;

/// What each side says in a whole connection with some messages: (client's, server's).
fn transcript(mode: u32) -> (Vec<u8>, Vec<u8>) {
    let mut a = client(mode, Policy::lossy_client(), None, 1);
    let mut b = server(Policy::stateless_server());
    let (mut from_a, mut from_b) = (vec![], vec![]);
    for tid in 1..5 {
        a.send(message(tid, 200, 5, 5000)).unwrap();
        b.send(message(tid, 20, 0, 100)).unwrap();
    }
    loop {
        let to_b = take(&mut a, 1 << 20);
        let to_a = take(&mut b, 1 << 20);
        if to_a.is_empty() && to_b.is_empty() {
            return (from_a, from_b);
        }
        from_a.extend_from_slice(&to_b);
        from_b.extend_from_slice(&to_a);
        give(&mut b, &to_b, &mut vec![]).unwrap();
        give(&mut a, &to_a, &mut vec![]).unwrap();
    }
}

/// Feeds `bytes` piece by piece; memory must stay within what was fed and one stage.
fn feed(to: &mut Connection, bytes: &[u8], step: usize) -> Result<Vec<Event>, Fault> {
    let mut events = vec![];
    for piece in bytes.chunks(step.max(1)) {
        let out = give(to, piece, &mut events);
        assert!(to.held() <= 4 * bytes.len() + (64 << 10), "{} bytes held", to.held());
        out?;
        take(to, usize::MAX);
    }
    Ok(events)
}

fn both(mode: u32) -> [(Connection, Vec<u8>); 2] {
    let (from_a, from_b) = transcript(mode);
    [
        (server(Policy::stateless_server()), from_a),
        (client(mode, Policy::lossy_client(), None, 1), from_b),
    ]
}

/// The transcripts are good ones: replayed as they are, both sides become ready.
#[test]
fn transcripts_replay() {
    for mode in [MODE_CRC, MODE_SECURE] {
        for (mut side, bytes) in both(mode) {
            let events = feed(&mut side, &bytes, 999).unwrap();
            assert_eq!(messages(&events).len(), 4);
        }
    }
}

/// One bit anywhere: never a panic, and never a message with other contents.
#[test]
fn no_flipped_bit_is_believed() {
    for mode in [MODE_CRC, MODE_SECURE] {
        let honest: Vec<_> = (1..5).map(|tid| message(tid, 200, 5, 5000)).collect();
        let (from_a, _) = transcript(mode);
        let mut rng = Seeded(mode.into());
        for at in 0..from_a.len() {
            // Of long payloads a sample is enough.
            if at > 1500 && at % 37 != 0 {
                continue;
            }
            let mut bytes = from_a.clone();
            bytes[at] ^= 1 << (rng.u64() % 8);
            let mut side = server(Policy::stateless_server());
            let mut events = vec![];
            let _ = give(&mut side, &bytes, &mut events);
            let got = messages(&events);
            assert!(got.len() <= 4 && got == honest[..got.len()], "mode {mode} byte {at}");
        }
    }
}

/// A stranger gets no memory for what it announces, nor for an endless handshake.
#[test]
fn strangers_get_little() {
    let (from_a, _) = transcript(MODE_CRC);
    let mut side = server(Policy::stateless_server());
    let mut events = vec![];
    give(&mut side, &from_a[..26], &mut events).unwrap();
    let mut frame = vec![2, 1, 1, 0, 1, 0, 8, 0]; // AUTH_REQUEST of 64 KiB + 1
    frame.resize(28, 0);
    let crc = stdx::crc32c(0, &frame);
    frame.extend_from_slice(&crc.to_le_bytes());
    assert!(matches!(give(&mut side, &frame, &mut events), Err(Fault::Frame(_))));

    let mut side = server(Policy::stateless_server());
    give(&mut side, &from_a[..26 + 72], &mut events).unwrap(); // banner and HELLO
    let request = {
        // The first AUTH_REQUEST, which is refused: over and over.
        let len = u32::from_le_bytes(from_a[100..104].try_into().unwrap()) as usize;
        from_a[98..98 + 32 + len + 4].to_vec()
    };
    assert_eq!(request[0], 2);
    let mut sent = 0;
    while give(&mut side, &request, &mut events).is_ok() {
        take(&mut side, usize::MAX);
        sent += request.len();
        assert!(sent < 1 << 20, "somewhere it ends");
    }
}

/// Unknown and misplaced frames end the connection.
#[test]
fn misplaced_frames_end_it() {
    let (from_a, _) = transcript(MODE_CRC);
    for tag in [0u8, 6, 8, 9, 11, 16, 17, 18, 20, 21, 200] {
        let mut side = server(Policy::stateless_server());
        let mut events = vec![];
        give(&mut side, &from_a[..26 + 72], &mut events).unwrap();
        let mut frame = vec![tag, 1];
        frame.resize(28, 0);
        let crc = stdx::crc32c(0, &frame);
        frame.extend_from_slice(&crc.to_le_bytes());
        assert!(give(&mut side, &frame, &mut events).is_err(), "tag {tag}");
    }
    let mut side = server(Policy::stateless_server());
    assert_eq!(give(&mut side, b"SSH-2.0", &mut vec![]), Err(Fault::Banner));
    assert!(side.poll(Now::default()).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Cut, doubled, overwritten and spliced transcripts.
    #[test]
    fn mutated_streams(
        secure in any::<bool>(),
        edits in prop::collection::vec((any::<prop::sample::Index>(), 0u8..5, any::<u64>()), 1..6),
        step in 1usize..3000,
    ) {
        let mode = if secure { MODE_SECURE } else { MODE_CRC };
        for (mut side, mut bytes) in both(mode) {
            for (at, what, salt) in &edits {
                let at = at.index(bytes.len().max(1));
                match what {
                    0 => bytes.truncate(at.max(1)),
                    1 => bytes[at] = *salt as u8,
                    2 => bytes.insert(at, *salt as u8),
                    3 => drop(bytes.remove(at)),
                    _ => {
                        let tail = bytes[at..].to_vec();
                        bytes.extend_from_slice(&tail);
                    }
                }
                if bytes.is_empty() {
                    bytes.push(0);
                }
            }
            let _ = feed(&mut side, &bytes, step);
        }
    }

    /// Noise, alone and behind an honest beginning.
    #[test]
    fn noise(seed in any::<u64>(), len in 1usize..5000, honest in any::<prop::sample::Index>()) {
        let mut raw = vec![0; len];
        Seeded(seed).fill(&mut raw);
        fuzz_frames(&raw);
        for (mut side, mut bytes) in both(MODE_CRC) {
            bytes.truncate(honest.index(bytes.len()));
            bytes.extend_from_slice(&raw);
            let _ = feed(&mut side, &bytes, 700);
        }
    }

    /// Frames with good checksums and random contents.
    #[test]
    fn well_formed_nonsense(seed in any::<u64>(), n in 1usize..20) {
        let mut rng = Seeded(seed);
        let mut raw = vec![];
        for _ in 0..n {
            let count = 1 + rng.u64() % 5;
            let mut frame = vec![(rng.u64() % 23) as u8, count as u8];
            for _ in 0..4 {
                let len = if rng.u64().is_multiple_of(4) { rng.u64() as u32 } else { rng.u64() as u32 % 60 };
                frame.extend_from_slice(&len.to_le_bytes());
                frame.extend_from_slice(&[8, 0]);
            }
            frame.extend_from_slice(&[0; 2]);
            let crc = stdx::crc32c(0, &frame);
            frame.extend_from_slice(&crc.to_le_bytes());
            let mut body = vec![0; (rng.u64() % 300) as usize];
            rng.fill(&mut body);
            frame.extend_from_slice(&body);
            raw.extend_from_slice(&frame);
        }
        fuzz_frames(&raw);
        for (mut side, bytes) in both(MODE_CRC) {
            let _ = feed(&mut side, &bytes[..26], 26);
            let _ = feed(&mut side, &raw, 500);
        }
    }
}
