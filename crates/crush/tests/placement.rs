//! Placements and bytes taken from live clusters.

use crush::{CrushMap, ITEM_NONE, Scratch};
use denc::{Denc, Features};

/// Pool 7 with 8 PGs on a cluster of release 20: placement seeds and what was up.
#[test]
fn live_placements() {
    let osds = [(0, 766), (1, 766), (2, 766)];
    let map = CrushMap::build_simple("node", &osds, true).unwrap();
    let mut scratch = Scratch::default();
    let mut out = Vec::new();
    for (pps, want) in [
        (0xb376_7d5e, [1, 2, 0]),
        (0x766a_37aa, [2, 1, 0]),
        (0xf3f0_b185, [1, 2, 0]),
        (0x2170_7a02, [0, 2, 1]),
        (0xd68a_f6de, [0, 1, 2]),
    ] {
        assert_eq!(map.do_rule(0, pps, 3, &[0x10000; 3], Some(7)), want);
        map.do_rule_into(0, pps, 3, &[0x10000; 3], None, &mut scratch, &mut out);
        assert_eq!(out, want);
        assert!(!map.do_rule(0, pps, 3, &[0x10000, 0, 0x10000], None).contains(&1));
    }
    assert!(map.do_rule(1, 0, 3, &[0x10000; 3], None).is_empty(), "no such rule");
    assert!(map.do_rule(0, 0, 0, &[0x10000; 3], None).is_empty(), "no room");
    assert!(map.do_rule(0, 0, 3, &[], None).is_empty(), "all out");
    assert!(!map.do_rule(0, 0, 3, &[0x10000; 3], None).contains(&ITEM_NONE));
}

/// With each reader's features the map comes back, and bytes are stable.
#[test]
fn round_trips() {
    let map = CrushMap::build_simple("node", &[(0, 766), (1, 766), (5, 1 << 16)], false).unwrap();
    assert_eq!(map.max_devices(), 6);
    for features in
        [Features::ALL, Features::PACIFIC_WORD, Features::REEF_WORD, Features::TENTACLE_WORD]
    {
        let bytes = map.to_bytes_for(features);
        let back = CrushMap::from_bytes(&bytes).unwrap();
        assert_eq!(back, map);
        assert_eq!(back.to_bytes_for(features), bytes);
        for cut in 0..bytes.len() {
            let _ = CrushMap::from_bytes(&bytes[..cut]);
        }
    }
    let msr = map.to_bytes_for(Features::ALL);
    assert!(msr.ends_with(&[100, 0, 0, 0, 100, 0, 0, 0]));
    assert_eq!(map.to_bytes_for(Features::REEF_WORD).len() + 8, msr.len());
}

/// What `osdmaptool --createsimple 3` of release 20.2.4 exports, in hex.
const CREATED: &str = "\
    0000010008000000010000000300000005000000ffffffff0b0005000000030001000000fdffffff00000300\
    05000000feffffff010005000000030003000000000000000100000002000000000001000000010000000100\
    05000000fdffffff030005000000030001000000feffffff0000030000000000000000000000000000000000\
    0000000001000000030000000001016401000000ffffffff0000000006000000000000000100000004000000\
    00000000000000000c00000000000000030000006f73640100000004000000686f7374020000000700000063\
    68617373697303000000040000007261636b0400000003000000726f77050000000300000070647506000000\
    03000000706f640700000004000000726f6f6d080000000a0000006461746163656e74657209000000040000\
    007a6f6e650a00000006000000726567696f6e0b00000004000000726f6f7406000000fdffffff090000006c\
    6f63616c7261636bfeffffff090000006c6f63616c686f7374ffffffff0700000064656661756c7400000000\
    050000006f73642e3001000000050000006f73642e3102000000050000006f73642e3201000000000000000f\
    0000007265706c6963617465645f72756c650000000000000000320000000100000001013600000001000000\
    000000000000000000000000006400000064000000";

/// The map that a new cluster begins with, and three OSDs put into it: the peer's bytes.
#[test]
fn created_as_the_peer_does() {
    let mut map = CrushMap::build_initial(1);
    let location =
        crush::parse_location(&["host=localhost", "rack=localrack", "root=default"]).unwrap();
    for osd in 0..3 {
        map.insert_item(osd, 0x10000, &format!("osd.{osd}"), &location, true).unwrap();
    }
    let hex: String = map.to_bytes().iter().map(|b| format!("{b:02x}")).collect();
    assert_eq!(hex, CREATED);
}
