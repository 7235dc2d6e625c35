//! Random edits, each done by both tools on the same map.

use std::path::Path;

use crush::{BucketAlg, CrushMap};
use denc::Denc;

use crate::generate::{Random, case};
use crate::{Peer, difference, ours, strings};

/// Some edits of one map; gives how many were compared.
pub fn check(seed: u64, peer: &Peer, stem: &Path) -> u64 {
    let map = case(seed).map;
    // Where the peer stops or writes what it never set: uniform buckets whose items come
    // one by one, trees that grow, weight sets with more positions than items.
    let fragile = |alg| matches!(alg, BucketAlg::Uniform | BucketAlg::Tree);
    let positions = map.choose_args().values().map(|args| args.positions()).max();
    if map.buckets().any(|b| fragile(b.alg())) || positions > Some(1) {
        return 0;
    }
    let path = |suffix: &str| stem.with_extension(suffix).to_str().unwrap().to_owned();
    let (before, theirs, mine) = (path("before"), path("theirs"), path("mine"));
    let r = &mut Random(seed ^ 0xed17);
    let mut map = map;
    let mut edits = 0;
    for _ in 0..6 {
        std::fs::write(&before, map.to_bytes()).unwrap();
        let edit = edit(r, &map);
        let with = |to: &str| {
            let mut args = strings(["-i", &before, "-o", to]);
            args.extend(edit.iter().cloned());
            args
        };
        for file in [&theirs, &mine] {
            let _ = std::fs::remove_file(file);
        }
        let (their_code, their_out, their_err) = peer.run(&with(&theirs));
        let (our_code, our_out, our_err) = ours(&with(&mine));
        if their_code.is_none_or(|code| code >= 128 && their_err.contains("Caught signal")) {
            continue; // the peer crashed
        }
        let context = format!(
            "seed {seed}: {edit:?}\n{}ours: {our_err}\ntheirs: {their_err}",
            crush::text::decompile(&map)
        );
        assert_eq!(Some(our_code), their_code, "{context}");
        assert_eq!(our_out, their_out, "{context}");
        edits += 1;
        match (std::fs::read(&mine), std::fs::read(&theirs)) {
            (Ok(a), Ok(b)) => {
                let (ours, theirs) = (read(&a), read(&b));
                let text = |map| crush::text::decompile(map);
                assert!(ours == theirs, "{context}\n{}", difference(&text(&ours), &text(&theirs)));
                assert!(a == b, "{context}: other bytes");
                map = ours;
            }
            (a, b) => assert_eq!(a.is_ok(), b.is_ok(), "{context}"),
        }
    }
    edits
}

fn read(bytes: &[u8]) -> CrushMap {
    CrushMap::from_bytes(bytes).unwrap()
}

fn edit(r: &mut Random, map: &CrushMap) -> Vec<String> {
    let names: Vec<(i32, String)> = map
        .names()
        .iter()
        .filter(|(id, _)| !map.is_shadow(*id))
        .map(|(id, name)| (id, name.to_owned()))
        .collect();
    let any = |r: &mut Random, good: &dyn Fn(i32) -> bool| {
        let names: Vec<&str> =
            names.iter().filter(|(id, _)| good(*id)).map(|(_, name)| name.as_str()).collect();
        if names.is_empty() { "none".to_owned() } else { r.pick(&names).to_owned() }
    };
    let osd = |id: i32| id >= 0;
    let of_kind = |kind: u16| move |id: i32| id < 0 && map.item_kind(id) == Some(kind);
    let weight = |r: &mut Random| (f64::from(r.range(0, 400)) / 64.0).to_string();
    let place = |r: &mut Random| {
        let mut out = Vec::new();
        if r.chance(85) {
            let host =
                if r.chance(70) { any(r, &of_kind(1)) } else { format!("new{}", r.below(4)) };
            out.extend(strings(["--loc", "host", &host]));
        }
        if r.chance(30) {
            let rack = if r.chance(60) { any(r, &of_kind(2)) } else { "rx".to_owned() };
            out.extend(strings(["--loc", "rack", &rack]));
        }
        if r.chance(85) {
            out.extend(strings(["--loc", "root", &any(r, &of_kind(3))]));
        }
        out
    };
    match r.below(14) {
        0 | 1 => {
            let id = r.range(0, 60);
            let mut out =
                strings(["--add-item", &id.to_string(), &weight(r), &format!("osd.{id}")]);
            out.extend(place(r));
            out
        }
        2 | 3 => {
            let name = any(r, &osd);
            let id = name.trim_start_matches("osd.").parse().unwrap_or(3);
            let mut out = strings(["--update-item", &id.to_string(), &weight(r), &name]);
            out.extend(place(r));
            out
        }
        4 => strings(["--remove-item", &any(r, &osd)]),
        5 => strings(["--remove-item", &any(r, &|id| id < 0)]),
        6 => strings(["--reweight-item", &any(r, &osd), &weight(r)]),
        7 => {
            let kind = r.pick(&["host", "rack", "root", "osd"]);
            let mut out = strings(["--add-bucket", &format!("b{}", r.below(5)), kind]);
            if r.chance(60) {
                out.extend(strings(["--loc", "root", &any(r, &of_kind(3))]));
            }
            out
        }
        8 | 9 => {
            let mut out = strings(["--move", &any(r, &of_kind(1))]);
            if r.chance(50) {
                out.extend(strings(["--loc", "rack", &any(r, &of_kind(2))]));
            }
            if r.chance(90) {
                out.extend(strings(["--loc", "root", &any(r, &of_kind(3))]));
            }
            out
        }
        10 => strings(["--reweight"]),
        11 => {
            let name = format!("new{}", r.below(3));
            let root = any(r, &of_kind(3));
            let kind = r.pick(&["osd", "host", "rack", "shelf"]);
            let mut out = if r.chance(50) {
                strings(["--create-replicated-rule", &name, &root, kind])
            } else {
                let mode = r.pick(&["firstn", "indep"]);
                strings(["--create-simple-rule", &name, &root, kind, mode])
            };
            if r.chance(40) {
                out.extend(strings(["--device-class", r.pick(&["hdd", "ssd", "none"])]));
            }
            out
        }
        12 => strings(["--remove-rule", &format!("rule-{}", r.below(4))]),
        _ => {
            let mut out = strings(["--rebuild-class-roots"]);
            if r.chance(60) {
                let class = r.pick(&["hdd", "ssd"]);
                out.extend(strings(["--set-subtree-class", &any(r, &|id| id < 0), class]));
            }
            out
        }
    }
}
