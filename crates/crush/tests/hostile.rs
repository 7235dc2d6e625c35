//! Broken and hostile maps: refused or harmless, and never a panic.

use crush::{BucketAlg, CrushMap, Op, Rule, Step, fuzz, parse_location, text};
use denc::Denc;

struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % n as u64) as usize
    }
}

/// A map with some of everything.
fn sample() -> CrushMap {
    let mut map = CrushMap::build_initial(1);
    for osd in 0..9 {
        let loc = parse_location(&[format!("host=h{}", osd / 3), "root=default".into()]).unwrap();
        map.insert_item(osd, 0x10000, &format!("osd.{osd}"), &loc, true).unwrap();
        map.update_device_class(osd, if osd % 2 == 0 { "ssd" } else { "hdd" }).unwrap();
    }
    for (i, alg) in BucketAlg::ALL.into_iter().enumerate() {
        let items = [(0, 0x10000), (1, 0x10000), (2, 0x10000)];
        let id = map.add_bucket(None, Some(alg), 3, &items).unwrap();
        map.set_item_name(id, &format!("rack{i}")).unwrap();
    }
    map.create_choose_args(-1, 2);
    map.add_replicated_rule("fast", "default", "host", "ssd").unwrap();
    let spread =
        crush::Spread { root: "default", failure_domain: "host", failure_domains: 2, class: "" };
    map.add_erasure_rule("ec", spread, 2).unwrap();
    map
}

/// Whatever rules and tunables say, mapping and edits end; the bounds here are on time.
fn use_map(mut map: CrushMap) {
    let t = map.tunables_mut();
    t.choose_total_tries = t.choose_total_tries.min(20);
    t.choose_local_tries = t.choose_local_tries.min(5);
    t.choose_local_fallback_tries = t.choose_local_fallback_tries.min(5);
    t.msr_descents = t.msr_descents.min(20);
    t.msr_collision_tries = t.msr_collision_tries.min(20);
    let rules: Vec<(u32, Rule)> = map.rules().map(|(id, rule)| (id, rule.clone())).collect();
    for (id, rule) in rules {
        let sane = |step: &Step| step.arg1.unsigned_abs() < 64;
        if rule.steps.iter().all(|s| sane(s) || s.known() == Some(Op::Take)) {
            for x in 0..4 {
                let out = map.do_rule(id, x, 5, &[0x10000, 0x8000, 0, 0x10000], Some(-1));
                assert!(out.len() <= 5);
            }
        }
    }
    let _ = map.tree(true, |_| true);
    let _ = map.dump();
    let _ = text::decompile(&map);
    let loc = parse_location(&["host=h1", "root=default"]).unwrap();
    let edits: [fn(&mut CrushMap, &crush::Location); 9] = [
        |m, l| drop(m.insert_item(20, 5, "osd.20", l, true)),
        |m, l| drop(m.create_or_move_item(3, 5, "osd.3", l, true)),
        |m, l| drop(m.move_bucket(-2, l)),
        |m, _| drop(m.remove_item(4, false)),
        |m, _| drop(m.swap_bucket(-2, -3)),
        |m, _| drop(m.reweight()),
        |m, _| drop(m.adjust_subtree_weight(-1, 7, true)),
        |m, _| drop(m.rebuild_roots_with_classes()),
        |m, _| drop(m.add_named_bucket("fresh", "rack")),
    ];
    for edit in edits {
        let mut copy = map.clone();
        edit(&mut copy, &loc);
        // What edits make can be read again.
        let again = CrushMap::from_bytes(&copy.to_bytes());
        assert!(again.is_ok(), "{:?}", again.err());
    }
}

/// Bytes changed at random.
#[test]
fn mutated_bytes() {
    let good = sample().to_bytes();
    let r = &mut Random(0x5eed);
    for _ in 0..1500 {
        let mut bytes = good.to_vec();
        for _ in 0..=r.below(4) {
            let at = r.below(bytes.len());
            match r.below(5) {
                0 => bytes[at] = r.below(256) as u8,
                1 => bytes[at] ^= 1 << r.below(8),
                2 => bytes.truncate(at),
                3 => bytes.insert(at, [0, 1, 0xff, 0x80][r.below(4)]),
                _ => bytes[at] = [0, 1, 0xff, 0x7f][r.below(4)],
            }
            if bytes.is_empty() {
                break;
            }
        }
        fuzz::decode(&bytes);
        if let Ok(map) = CrushMap::from_bytes(&bytes) {
            use_map(map);
        }
    }
}

/// Text changed at random.
#[test]
fn mutated_text() {
    let good = text::decompile(&sample());
    let words: Vec<&str> = good.split_inclusive(char::is_whitespace).collect();
    let r = &mut Random(0x7e47);
    for _ in 0..1000 {
        let mut words = words.clone();
        for _ in 0..=r.below(4) {
            let (a, b) = (r.below(words.len()), r.below(words.len()));
            match r.below(5) {
                0 => words[a] = words[b],
                1 => drop(words.remove(a)),
                2 => words.insert(a, words[b]),
                3 => words[a] = ["99999999999999 ", "-5 ", "{ ", "1e38 ", "~ ", "\n"][r.below(6)],
                _ => words.truncate(a.max(1)),
            }
        }
        let input = words.concat();
        fuzz::compile(input.as_bytes());
        if let Ok(compiled) = text::compile("t", &input) {
            use_map(compiled.map);
        }
    }
    fuzz::compile(b"\xff\xfe");
    fuzz::compile("# ü\n ü \n".as_bytes());
}

/// A bucket in a bucket in a bucket: `links` gives each one's items.
fn chain(links: &[&[i32]]) -> Vec<u8> {
    let mut b = Vec::new();
    let mut put = |n: u32| b.extend(n.to_le_bytes());
    put(0x0001_0000);
    put(links.len() as u32);
    put(0);
    put(0);
    for (i, items) in links.iter().enumerate() {
        put(5);
        put((-1 - i as i32) as u32);
        put(1 | 5 << 16);
        put(0x10000);
        put(items.len() as u32);
        for item in *items {
            put(*item as u32);
        }
        for _ in *items {
            put(0x10000);
        }
    }
    for _ in 0..3 {
        put(0);
    }
    b
}

/// Cycles, towers and trees that unfold without end are refused.
#[test]
fn shapes() {
    let refused = |bytes: &[u8], why: &str| {
        let e = CrushMap::from_bytes(bytes).unwrap_err().to_string();
        assert!(e.contains(why), "{e}");
    };
    assert!(CrushMap::from_bytes(&chain(&[&[-2], &[0]])).is_ok());
    assert!(CrushMap::from_bytes(&chain(&[&[-9, 3], &[0]])).is_ok(), "holes are lived with");
    refused(&chain(&[&[-1]]), "beneath itself");
    refused(&chain(&[&[-2], &[-3], &[-1]]), "beneath itself");
    let next: Vec<[i32; 1]> = (0..100_000).map(|i| [-2 - i]).collect();
    let tower: Vec<&[i32]> = next.iter().map(|items| &items[..]).collect();
    refused(&chain(&tower), "nested too deep");
    let twice: Vec<[i32; 2]> = (0..60).map(|i| [-2 - i, -2 - i]).collect();
    let fan: Vec<&[i32]> = twice.iter().map(|items| &items[..]).collect();
    refused(&chain(&fan), "too large");
}

/// Counts beyond the bytes are refused before anything is made for them.
#[test]
fn counts() {
    for at in [4, 8] {
        let mut bytes = chain(&[&[0]]);
        bytes[at..at + 4].copy_from_slice(&0x7fff_ffffu32.to_le_bytes());
        assert!(CrushMap::from_bytes(&bytes).is_err());
        bytes[at..at + 4].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(CrushMap::from_bytes(&bytes).is_err());
    }
}
