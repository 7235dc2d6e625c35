//! Whole connections between two machines in memory.

mod common;

use common::*;
use messages::Envelope;
use msgr::{ConMode, Event, Peer, Policy};
use stdx::BlockSums;
use types::{AddrVec, EntityAddr};

/// Every mode, every way to cut the stream into pieces, every shape of message.
#[test]
fn exchanges_messages() {
    let shapes = [
        (0, 0, 0),
        (1, 0, 0),
        (211, 0, 6),
        (48, 16, 0),
        (0, 0, 4096),
        (0, 7, 0),
        (300, 20, 5000),
        (5000, 0, 70_000),
        (9, 0, 1),
    ];
    for mode in [MODE_CRC, MODE_SECURE] {
        for step in [1, 7, 100, 4096, 1 << 20] {
            let mut a = client(mode, Policy::lossy_client(), None, 1);
            let mut b = server(Policy::stateless_server());
            let (mut at_a, mut at_b) = (vec![], vec![]);
            let sent: Vec<_> = shapes
                .iter()
                .enumerate()
                .map(|(i, &(f, m, d))| message(i as u64 + 1, f, m, d))
                .collect();
            for env in &sent {
                a.send(env.clone()).unwrap();
            }
            run(&mut a, &mut b, step, &mut at_a, &mut at_b).unwrap();
            assert!(a.is_ready() && b.is_ready(), "mode {mode} step {step}");
            assert!(messages(&at_b) == sent, "mode {mode} step {step}");
            for env in &sent {
                b.send(env.clone()).unwrap();
            }
            run(&mut a, &mut b, step, &mut at_a, &mut at_b).unwrap();
            assert!(messages(&at_a) == sent, "mode {mode} step {step}");
            let want = if mode == MODE_CRC { ConMode::Crc } else { ConMode::Secure };
            for (me, them) in [(&a, &b), (&b, &a)] {
                assert_eq!(me.peer().con_mode, want);
                assert_eq!(me.peer().identity.global_id, 77);
                assert!(me.peer().lossy && !them.peer().addrs.is_blank());
            }
            assert_eq!(b.peer().id.to_string(), "client.4498");
            assert_eq!(b.peer().addrs.to_string(), "any:127.0.0.1:0/77");
            assert_eq!(a.peer().id.to_string(), "osd.0");
        }
    }
}

/// The address by which caps judge has the IP of the socket, whatever was named; what was named is
/// kept behind it.
#[test]
fn addresses_are_seen() {
    let sock = |s: &str| s.parse().unwrap();
    let says = |s: &str| EntityAddr { nonce: 7, ..EntityAddr::msgr2(sock(s), 7) };
    let peer = |named: &[EntityAddr], seen: &str| Peer {
        addrs: AddrVec(named.to_vec()),
        sock: Some(sock(seen)),
        ..Peer::default()
    };
    let honest = peer(&[says("10.0.0.1:0")], "10.0.0.1:40000");
    assert_eq!(honest.seen_addr(), says("10.0.0.1:0"));
    assert_eq!(honest.seen_addrs(), honest.addrs);
    // A socket for both families shows version 4 within version 6.
    let mapped = peer(&[says("10.0.0.1:0")], "[::ffff:10.0.0.1]:40000");
    assert_eq!(mapped.seen_addrs(), mapped.addrs);
    let liar = peer(&[says("10.0.0.1:0")], "127.0.0.1:40000");
    assert_eq!(liar.seen_addr(), says("127.0.0.1:0"));
    assert_eq!(liar.seen_addrs().0, [says("127.0.0.1:0"), says("10.0.0.1:0")]);
    let blank = peer(&[EntityAddr::default()], "127.0.0.1:40000");
    assert_eq!(blank.seen_addr().sock, Some(sock("127.0.0.1:0")));
}

/// A long data segment arrives in one page-aligned buffer, in both modes.
#[test]
fn data_is_page_aligned() {
    for mode in [MODE_CRC, MODE_SECURE] {
        let mut a = client(mode, Policy::lossy_client(), None, 1);
        let mut b = server(Policy::stateless_server());
        let (mut at_a, mut at_b) = (vec![], vec![]);
        for data in [32_768, 32_769, 65_536, 1 << 20] {
            a.send(message(1, 211, 3, data)).unwrap();
        }
        run(&mut a, &mut b, 50_000, &mut at_a, &mut at_b).unwrap();
        let got = messages(&at_b);
        assert_eq!(got.len(), 4);
        for env in got {
            assert_eq!(env.data.as_ptr() as usize % 4096, 0, "mode {mode} {}", env.data.len());
        }
    }
}

/// The sums of large data of whole blocks come with it, unencrypted; what is sent with sums that
/// cannot be its own is summed anew.
#[test]
fn sums_come_with_large_data() {
    for (mode, known) in [(MODE_CRC, true), (MODE_SECURE, false)] {
        let mut a = client(mode, Policy::lossy_client(), None, 1);
        let mut b = server(Policy::stateless_server());
        let (mut at_a, mut at_b) = (vec![], vec![]);
        for data in [65_536, 65_537, 4096, 1 << 20] {
            a.send(message(1, 211, 3, data)).unwrap();
        }
        let whole = message(1, 211, 3, 65_536);
        let data_sums = BlockSums::of(&whole.data);
        a.send(Envelope { data_sums: data_sums.clone(), ..whole }).unwrap();
        a.send(Envelope { data_sums, ..message(1, 0, 0, 8192) }).unwrap();
        run(&mut a, &mut b, 50_000, &mut at_a, &mut at_b).unwrap();
        let got = messages(&at_b);
        assert_eq!(got.len(), 6);
        for env in got {
            let large = env.data.len() >= 65_536;
            let want = BlockSums::of(&env.data).filter(|_| known && large);
            assert_eq!(env.data_sums, want, "mode {mode} {}", env.data.len());
        }
    }
}

/// Beyond the budget no further message is read, until some are released.
#[test]
fn stops_reading_beyond_the_budget() {
    let mut a = client(MODE_CRC, Policy::lossy_client(), None, 1);
    let mut b = server(Policy::stateless_server().with_budget(10_000));
    let (mut at_a, mut at_b) = (vec![], vec![]);
    for tid in 0..10 {
        a.send(message(tid, 0, 0, 4000)).unwrap();
    }
    run(&mut a, &mut b, 1000, &mut at_a, &mut at_b).unwrap_or(());
    let first = messages(&at_b).len();
    assert_eq!(first, 3);
    assert!(!b.wants_read());
    b.release(4000);
    assert!(b.wants_read());
    give(&mut b, &[], &mut at_b).unwrap();
    assert_eq!(messages(&at_b).len(), 4);
}

#[test]
fn keepalives_are_answered() {
    let mut a = client(MODE_SECURE, Policy::lossy_client(), None, 1);
    let mut b = server(Policy::stateless_server());
    let (mut at_a, mut at_b) = (vec![], vec![]);
    run(&mut a, &mut b, 99, &mut at_a, &mut at_b).unwrap();
    let stamp = types::UTime { sec: 5, nsec: 6 };
    a.keepalive(stamp).unwrap();
    run(&mut a, &mut b, 99, &mut at_a, &mut at_b).unwrap();
    assert!(matches!(at_a.last(), Some(Event::KeepaliveAck(t)) if *t == stamp));
}

/// Bytes from live traffic of 16.2.15: what a client says first to v2:127.0.0.1:6800/11010.
#[test]
fn golden_beginning() {
    let hex = |text: &str| -> Vec<u8> {
        let text: String = text.split_whitespace().collect();
        let byte = |i: usize| u8::from_str_radix(&text[i..i + 2], 16).unwrap();
        (0..text.len()).step_by(2).map(byte).collect()
    };
    let banner = hex("63657068 2076320a 1000 0100000000000000 0000000000000000");
    let hello = hex("01 01 24000000 0800 0000000000000000 0000000000000000 0000 0000 3fbd6b06 \
         08 01 0101 1c000000 02000000 022b0000 10000000 0200 1a90 7f000001 0000000000000000 \
         c8341ca4");
    let mut a = client(MODE_CRC, Policy::lossy_client(), None, 1);
    assert_eq!(take(&mut a, usize::MAX), banner);
    give(&mut a, &banner, &mut vec![]).unwrap();
    assert_eq!(take(&mut a, usize::MAX), hello);
    let mut b = server(Policy::stateless_server());
    assert_eq!(take(&mut b, usize::MAX), banner);
    // The peers of release 18 and later also offer compression.
    let mut newer = banner.clone();
    newer[10] = 3;
    give(&mut b, &newer, &mut vec![]).unwrap();
    assert_eq!(take(&mut b, usize::MAX).len(), 72);
}
