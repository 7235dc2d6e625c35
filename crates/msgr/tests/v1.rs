//! Messenger v1 for clients: what a client says by hand, and what it is answered.

#[path = "common/v1.rs"]
mod common;

use auth::MessageSigner;
use common::*;
use denc::Features;
use env::{Random, Seeded};
use messages::Envelope;
use msgr::v1::{Accepted, Ask, Rules, fuzz_v1, judge_connect};
use msgr::{Event, Fault, Policy, Session, Verdict};
use stdx::crc32c;
use types::{AddrKind, EntityKind};

fn hex(raw: &[u8]) -> String {
    raw.iter().map(|b| format!("{b:02x}")).collect()
}

/// Past banner and challenge, with the features and sequence numbers of `last`. The events of the
/// last step.
fn knock(side: &mut Accepted, last: &Connect<'_>) -> Vec<Event> {
    take(side);
    give(side, &[banner(), connect(last)].concat()).unwrap();
    let challenge = take(side);
    assert_eq!((challenge[0], challenge.len()), (16, 26 + 9), "CHALLENGE_AUTHORIZER");
    give(side, &connect(last)).unwrap()
}

fn ready_osd() -> Accepted {
    let mut side = osd();
    knock(&mut side, &TO_OSD);
    take(&mut side);
    let events = give(&mut side, &[0; 8]).unwrap();
    assert!(matches!(events[..], [Event::Ready { resumed: false }]), "{events:?}");
    side
}

fn received(events: &[Event]) -> Vec<&Envelope> {
    let mut out = vec![];
    for event in events {
        if let Event::Message { env, .. } = event {
            out.push(env);
        }
    }
    out
}

/// As a 16.2.15 monitor was seen to answer a client's connect, and its first MAuth.
#[test]
fn a_monitor_answers_as_upstreams() {
    let mut side = mon();
    let hello = take(&mut side);
    assert_eq!((&hello[..9], hello.len()), (&b"ceph v027"[..], 9 + 2 * 136));
    assert_eq!(hex(&hello[9..25]), "000000000b00000000021a917f000001", "its v1 address");
    assert_eq!(hex(&hello[145..161]), "000000000000000000029c407f000001", "the client's");
    give(&mut side, &banner()).unwrap();
    give(&mut side, &connect(&TO_MON)).unwrap();
    let reply = hex(&take(&mut side));
    let seen = "0dfffffdffbdcf013f01000000010000000f0000000000000001";
    assert_eq!(reply, format!("{seen}0000000000000000"));
    assert!(!side.is_ready());

    let mut auth = vec![0; 8];
    auth.extend_from_slice(&[0xff; 2]);
    auth.extend_from_slice(&[0; 12]);
    let claim = [&[1, 1, 0, 0, 0, 2, 0, 0, 0, 8, 0, 0, 0, 5, 0, 0, 0][..], b"admin", &[0; 8]];
    let claim = claim.concat();
    auth.extend_from_slice(&(claim.len() as u32).to_le_bytes());
    auth.extend_from_slice(&claim);
    auth.extend_from_slice(&[0; 4]);
    // Before anything else it may ask after the monitor; other messages are passed over.
    let early = [&[0; 8][..], &message(1, 15, [b"subscribe", b"", b""], None)].concat();
    assert!(give(&mut side, &early).unwrap().is_empty());
    give(&mut side, &message(2, 17, [&auth, b"", b""], None)).unwrap();
    let reply = take(&mut side);
    let header = "0701000000000000000000000000000000 1200 c400 0100 21000000 00000000 00000000 0000 \
                  01 0000000000000000 0100 0000";
    assert_eq!(hex(&reply[..50]), header.replace(' ', ""));
    // A client begins anew when it hears of another global id later.
    let front = "02000000 00000000 3112000000000000 09000000 01 d01026e642256102 00000000";
    assert_eq!(hex(&reply[54..54 + 33]), front.replace(' ', ""));
    let footer = &reply[87..];
    assert_eq!((footer.len(), &footer[4..]), (21, &[&[0; 16][..], &[1]].concat()[..]));

    // The answer to the challenge; only then the connection opens.
    let answer = |payload: &[u8]| {
        let mut auth = vec![0; 8];
        auth.extend_from_slice(&[0xff; 2]);
        auth.extend_from_slice(&[0; 8]);
        auth.extend_from_slice(&2u32.to_le_bytes());
        auth.extend_from_slice(&(payload.len() as u32).to_le_bytes());
        auth.extend_from_slice(payload);
        auth // as kernels do, without the epoch of a monitor map
    };
    let events = give(&mut side, &message(3, 17, [&answer(b"mine"), b"", b""], None)).unwrap();
    assert!(matches!(events[..], [Event::Ready { resumed: false }]), "{events:?}");
    let peer = side.peer();
    assert_eq!((peer.id.num, peer.identity.global_id), (0x1231, 0x1231));
    assert_eq!(peer.addrs.to_string(), "v1:127.0.0.1:0/77");
    let reply = take(&mut side);
    assert_eq!(hex(&reply[54..70]), "02000000000000003112000000000000");
    // From then on MAuth is the role's.
    let events = give(&mut side, &message(4, 17, [&answer(b"renew"), b"", b""], None)).unwrap();
    assert_eq!(received(&events)[0].kind, 17);
}

/// A monitor tells a refusal, and takes another try on the same connection.
#[test]
fn a_monitor_refuses_by_message() {
    let mut side = mon();
    take(&mut side);
    give(&mut side, &[banner(), connect(&TO_MON), vec![0; 8]].concat()).unwrap();
    take(&mut side);
    let first = |methods: &[u32]| {
        let mut claim = vec![1];
        claim.extend_from_slice(&(methods.len() as u32).to_le_bytes());
        methods.iter().for_each(|m| claim.extend_from_slice(&m.to_le_bytes()));
        let mut auth = vec![0; 22];
        auth.extend_from_slice(&(claim.len() as u32).to_le_bytes());
        auth.extend_from_slice(&claim);
        auth.extend_from_slice(&[0; 4]);
        auth
    };
    for (seq, methods, result) in [(1, &[1][..], -95), (2, &[7], -95), (3, &[1, 2], 0)] {
        give(&mut side, &message(seq, 17, [&first(methods), b"", b""], None)).unwrap();
        let reply = take(&mut side);
        assert_eq!(i32::from_le_bytes(reply[58..62].try_into().unwrap()), result, "{methods:?}");
    }
    assert!(!side.is_ready());
}

#[test]
fn an_osd_speaks_signed() {
    let mut side = osd();
    let events = knock(&mut side, &TO_OSD);
    assert!(events.is_empty() && side.is_authenticated() && !side.is_ready());
    let reply = take(&mut side);
    assert_eq!((reply[0], reply.len()), (13, 26 + 5 + 8), "SEQ, proof, number");
    assert_eq!(&reply[26..31], b"proof");
    give(&mut side, &[0; 8]).unwrap();
    assert!(side.is_ready());

    let data = vec![7; 100_000];
    let signed = message(1, 42, [b"front", b"mid", &data], Some(&KEY));
    let events = give(&mut side, &signed).unwrap();
    let got = received(&events);
    assert_eq!((&got[0].front[..], &got[0].middle[..]), (&b"front"[..], &b"mid"[..]));
    assert_eq!((got[0].data.len(), got[0].tid, got[0].kind), (100_000, 9, 42));

    // What it says is signed in the same way.
    side.send(got[0].clone()).unwrap();
    let said = take(&mut side);
    assert_eq!(said.len(), 1 + 53 + 5 + 3 + 100_000 + 21);
    assert_eq!(said[said.len() - 1], 5, "complete, signed");
    let word = |at: usize| u32::from_le_bytes(said[at..at + 4].try_into().unwrap());
    let foot = said.len() - 21;
    let words = [word(50), word(foot), 5, word(foot + 4), 3, word(foot + 8), 100_000, 1];
    assert_eq!(word(foot + 8), crc32c(0, &data));
    let sig = u64::from_le_bytes(said[foot + 12..foot + 20].try_into().unwrap());
    assert_eq!(sig, MessageSigner::new(&KEY).unwrap().sign(words));

    // Keepalives are answered with their stamp; it need not be 42's turn.
    give(&mut side, &[14, 1, 2, 3, 4, 5, 6, 7, 8]).unwrap();
    assert_eq!(take(&mut side), [15, 1, 2, 3, 4, 5, 6, 7, 8]);
    // A second copy is passed over, and so is what its sender gave up on.
    assert!(received(&give(&mut side, &signed).unwrap()).is_empty());
    let mut torn = message(2, 42, [b"front", b"", b""], None);
    *torn.last_mut().unwrap() = 0;
    assert!(give(&mut side, &torn).unwrap().is_empty());
    assert!(matches!(give(&mut side, &[6]), Err(Fault::Closed)));
}

#[test]
fn unsigned_and_altered_messages_end_it() {
    let bad = [
        message(1, 42, [b"front", b"", b""], None),
        message(1, 42, [b"front", b"", b""], Some(&[4; 16])),
    ];
    for raw in bad {
        let out = give(&mut ready_osd(), &raw);
        assert!(matches!(out, Err(Fault::Unsigned(_))), "{out:?}");
    }
    // A client without the feature does not sign, unless it must; without a key nobody can.
    let old = Connect { features: WORD & !MSG_AUTH, ..TO_OSD };
    let mut side = osd();
    knock(&mut side, &old);
    give(&mut side, &[0; 8]).unwrap();
    let mut raw = message(1, 42, [b"front", b"", b""], None);
    raw.drain(raw.len() - 9..raw.len() - 1);
    assert_eq!(received(&give(&mut side, &raw).unwrap()).len(), 1);
    let must = Rules { require_signatures: true, ..Rules::default() };
    let mut side = server_by(EntityKind::OSD, Policy::stateless_server(), must);
    take(&mut side);
    give(&mut side, &[banner(), connect(&old)].concat()).unwrap();
    let reply = take(&mut side);
    let features = u64::from_le_bytes(reply[1..9].try_into().unwrap());
    assert_eq!((reply[0], features & MSG_AUTH), (12, MSG_AUTH), "FEATURES names what it lacks");
    let not = Rules { sign: false, ..Rules::default() };
    let mut side = server_by(EntityKind::OSD, Policy::stateless_server(), not);
    knock(&mut side, &TO_OSD);
    give(&mut side, &[0; 8]).unwrap();
    let raw = message(1, 42, [b"front", b"", b""], None);
    assert_eq!(received(&give(&mut side, &raw).unwrap()).len(), 1);
}

#[test]
fn refusals_leave_another_try() {
    let mut side = osd();
    take(&mut side);
    give(&mut side, &banner()).unwrap();
    let no = Connect { authorizer: b"no", ..TO_OSD };
    let cases = [
        (Connect { protocol: 23, ..TO_OSD }, 10),
        (Connect { features: WORD & !Features::MSG_ADDR2.0, ..TO_OSD }, 12),
        (Connect { features: WORD & !Features::CEPHX_V2.0, ..TO_OSD }, 12),
        (Connect { method: 0, authorizer: b"", ..TO_OSD }, 11),
        (Connect { ..no }, 11),
        (TO_OSD, 16),
        (Connect { authorizer: b"no", ..TO_OSD }, 11),
        (TO_OSD, 16),
        (TO_OSD, 13),
    ];
    for (i, (ask, tag)) in cases.iter().enumerate() {
        give(&mut side, &connect(ask)).unwrap();
        assert_eq!(take(&mut side)[0], *tag, "case {i}");
    }
    // Daemons are no clients.
    let mut side = osd();
    let daemon = [banner(), connect(&Connect { kind: 4, ..TO_OSD })].concat();
    assert!(matches!(give(&mut side, &daemon), Err(Fault::WrongPeer(_))));
    assert!(matches!(give(&mut osd(), b"ceph v2\n"), Err(Fault::Banner)));
    let long = connect(&TO_OSD)[..28].to_vec();
    let long = [banner(), long, vec![0xff, 0xff, 0xff, 0, 0]].concat();
    assert!(matches!(give(&mut osd(), &long), Err(Fault::Frame(_))));
    // Nobody goes on for ever.
    let mut side = osd();
    let mut out = give(&mut side, &banner());
    for _ in 0..10_000 {
        out = out.and_then(|_| give(&mut side, &connect(&no)));
        take(&mut side);
    }
    assert!(matches!(out, Err(Fault::Frame(_))), "{out:?}");
}

fn ask_of(events: &[Event]) -> Ask {
    match events {
        [Event::Connect(ask)] => ask.clone(),
        other => panic!("{other:?}"),
    }
}

/// A break loses nothing and repeats nothing, whichever way.
#[test]
fn a_session_goes_on() {
    let mut side = mds();
    let ask = ask_of(&knock(&mut side, &TO_MDS));
    assert_eq!(ask.addrs.to_string(), "v1:127.0.0.1:0/77");
    assert!(!side.wants_read());
    side.decide(judge_connect(None, false, false, &ask), None).unwrap();
    let reply = take(&mut side);
    assert_eq!((reply[0], reply[25]), (13, 0), "not lossy");
    assert_eq!(reply[13..17], [1, 0, 0, 0], "connect_seq");
    give(&mut side, &[0; 8]).unwrap();
    for seq in 1..=2 {
        give(&mut side, &message(seq, 24, [b"ask", b"", b""], Some(&KEY))).unwrap();
    }
    assert_eq!(take(&mut side), [8, 2, 0, 0, 0, 0, 0, 0, 0], "an ACK of both");
    for tid in 1..=3 {
        side.send(Envelope { tid, kind: 26, ..Envelope::default() }).unwrap();
    }
    let said = take(&mut side);
    assert_eq!(said.len(), 3 * (1 + 53 + 21));
    give(&mut side, &[8, 1, 0, 0, 0, 0, 0, 0, 0]).unwrap();
    let session = side.into_session();

    // The client comes back: it had received two.
    let judge = |seqs, same, open| {
        let mut side = mds();
        let ask = ask_of(&knock(&mut side, &Connect { seqs, ..TO_MDS }));
        (judge_connect(Some(&session), same, open, &ask), side)
    };
    assert_eq!(judge([1, 1], true, true).0, Verdict::Retry(2));
    assert_eq!(judge([0, 2], true, true).0, Verdict::RetryGlobal(1));
    assert_eq!(judge([1, 0], true, true).0, Verdict::AdoptReset);
    assert_eq!(judge([1, 2], false, true).0, Verdict::Reset { full: true });
    assert_eq!(judge([1, 0], false, true).0, Verdict::Fresh);
    let (verdict, mut side) = judge([1, 1], true, true);
    side.decide(verdict, None).unwrap();
    let retry = take(&mut side);
    assert_eq!((retry[0], retry[13]), (4, 2), "RETRY_SESSION with the next number");
    // The answered challenge counts on the same connection.
    let events = give(&mut side, &connect(&Connect { seqs: [2, 2], ..TO_MDS })).unwrap();
    let ask = ask_of(&events);
    let verdict = judge_connect(Some(&session), true, true, &ask);
    assert_eq!(verdict, Verdict::Adopt);
    side.decide(verdict, Some(session.clone())).unwrap();
    side.send(Envelope { tid: 4, kind: 26, ..Envelope::default() }).unwrap();
    let reply = take(&mut side);
    assert_eq!((reply[0], reply[13]), (13, 3));
    assert_eq!(reply[31..], [2, 0, 0, 0, 0, 0, 0, 0], "what this side received");
    let events = give(&mut side, &[2, 0, 0, 0, 0, 0, 0, 0]).unwrap();
    assert!(matches!(events[..], [Event::Ready { resumed: true }]), "{events:?}");
    let said = take(&mut side);
    let heads: Vec<_> = said.chunks(75).map(|m| (m[1], m[9])).collect();
    assert_eq!(heads, [(3, 3), (4, 4)], "numbers and tids of what the client lacks");
    let events = give(&mut side, &message(2, 24, [b"ask", b"", b""], Some(&KEY))).unwrap();
    assert!(received(&events).is_empty(), "received before the break");
    let events = give(&mut side, &message(3, 24, [b"ask", b"", b""], Some(&KEY))).unwrap();
    assert_eq!(received(&events).len(), 1);
}

/// What a client says that does not know RECONNECT_SEQ.
#[test]
fn old_clients_are_ready_at_once() {
    let mut side = osd();
    knock(&mut side, &Connect { features: WORD & !RECONNECT_SEQ, ..TO_OSD });
    assert!(side.is_ready());
    let reply = take(&mut side);
    assert_eq!((reply[0], reply.len()), (1, 26 + 5), "READY");
}

/// A v2 client cannot take a v1 session by naming its address.
#[test]
fn sessions_do_not_change_the_protocol() {
    let mut side = mds();
    let ask = ask_of(&knock(&mut side, &TO_MDS));
    side.decide(Verdict::Fresh, None).unwrap();
    let session: Session = side.into_session();
    assert_eq!(judge_connect(Some(&session), true, true, &ask), Verdict::AdoptReset);
    let other = Session::new(Policy::stateful_server());
    assert_eq!(judge_connect(Some(&other), true, true, &ask), Verdict::Fresh);
    let kind = ask.addrs.front().kind;
    assert_eq!(kind, AddrKind::LEGACY);
}

/// One bit anywhere: never a panic, and never a message with other contents.
#[test]
fn no_flipped_bit_is_believed() {
    let mut honest = vec![];
    for seq in 1..4 {
        honest.extend(message(seq, 42, [b"some front", b"m", &[9; 300]], Some(&KEY)));
    }
    let mut rng = Seeded(4);
    for at in 0..honest.len() {
        let mut raw = honest.clone();
        raw[at] ^= 1 << (rng.u64() % 8);
        let mut side = ready_osd();
        let mut events = vec![];
        for piece in raw.chunks(41) {
            match give(&mut side, piece) {
                Ok(more) => events.extend(more),
                Err(_) => break,
            }
        }
        for got in received(&events) {
            assert_eq!((&got.front[..], got.data.len()), (&b"some front"[..], 300), "byte {at}");
            assert!(got.data.iter().all(|&b| b == 9));
        }
    }
}

#[test]
fn seeded_strangers() {
    let hello = [banner(), connect(&TO_OSD), connect(&TO_OSD), vec![0; 8]].concat();
    let talk = message(1, 42, [b"front", b"", &[1; 50]], None);
    for seed in 0..3_000 {
        let mut rng = Seeded(seed);
        let mut raw = hello.clone();
        if seed % 2 == 0 {
            let protocol = [15, 24, 32][rng.u64() as usize % 3];
            raw[145 + 20] = protocol;
            raw[145 + 35 + 20] = protocol;
        }
        (0..rng.u64() % 4).for_each(|_| raw.extend_from_slice(&talk));
        for _ in 0..rng.u64() % 6 {
            let at = rng.u64() as usize % raw.len();
            match rng.u64() % 3 {
                0 => raw[at] = rng.u64() as u8,
                1 => drop(raw.drain(at..(at + rng.u64() as usize % 40).min(raw.len()))),
                _ => raw.insert(at, rng.u64() as u8),
            }
        }
        fuzz_v1(&raw);
    }
}
