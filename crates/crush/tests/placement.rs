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
