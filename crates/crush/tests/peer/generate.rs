//! Random maps that the peer's tool survives.

use std::fmt::Write as _;

use crush::{BucketAlg, CrushMap, Op, Profile, Rule, Step, text};
use denc::Denc;

pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        // splitmix64
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    pub fn range(&mut self, low: i32, high: i32) -> i32 {
        low + self.below((high - low + 1) as u64) as i32
    }

    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }
}

/// A map and what else decides its mappings.
pub struct Case {
    pub map: CrushMap,
    /// Arguments of the test: ranges and device weights.
    pub args: Vec<String>,
}

const HOST: u16 = 1;
const RACK: u16 = 2;
const ROOT: u16 = 3;

pub fn case(seed: u64) -> Case {
    let r = &mut Random(seed);
    let mut map = CrushMap::default();
    for (kind, name) in [(0, "osd"), (HOST, "host"), (RACK, "rack"), (ROOT, "root")] {
        map.set_type_name(kind, name);
    }
    tunables(r, &mut map);
    // MSR rules are for well-formed maps: the peer's tool stops at empty buckets.
    let msr = r.chance(30);
    let algs: &[BucketAlg] = match r.below(4) {
        0 | 1 => &[BucketAlg::Straw2],
        2 if !msr => &BucketAlg::ALL,
        _ => &[BucketAlg::Straw2, BucketAlg::List, BucketAlg::Straw, BucketAlg::Tree],
    };
    let classes = !algs.contains(&BucketAlg::Uniform) && r.chance(50);
    let racks = r.chance(50);
    let hosts = r.range(if msr { 2 } else { 1 }, 9);
    let mut osd = 0;
    let mut level = Vec::new();
    for h in 0..hosts {
        let n = if !msr && r.chance(4) { 0 } else { r.range(1, 8) };
        let mut items = Vec::new();
        for _ in 0..n {
            if r.chance(10) {
                osd += r.range(1, 3); // holes among the ids
            }
            items.push((osd, weight(r)));
            map.set_item_name(osd, &format!("osd.{osd}")).unwrap();
            osd += 1;
        }
        level.push(bucket(r, &mut map, algs, HOST, &format!("h{h}"), items));
    }
    if racks {
        let per = r.range(1, 4) as usize;
        let hosts = std::mem::take(&mut level);
        for (n, items) in hosts.chunks(per).enumerate() {
            level.push(bucket(r, &mut map, algs, RACK, &format!("r{n}"), items.to_vec()));
        }
    }
    let root = bucket(r, &mut map, algs, ROOT, "default", level).0;
    if classes {
        let names: Vec<(i32, String)> =
            map.names().iter().filter(|(id, _)| *id >= 0).map(|(id, n)| (id, n.into())).collect();
        for (id, _) in names {
            if r.chance(85) {
                map.update_device_class(id, r.pick(&["hdd", "ssd", "nvme"])).unwrap();
            }
        }
    }
    weight_sets(r, &mut map);
    rules(r, &mut map, root, racks, msr);
    // As it is read: the counts that follow from the rest are right.
    let map = CrushMap::from_bytes(&map.to_bytes()).unwrap();
    let map = with_ids(r, map);
    let args = arguments(r, osd);
    Case { map, args }
}

fn tunables(r: &mut Random, map: &mut CrushMap) {
    let profile = r.pick(&[
        Profile::Argonaut,
        Profile::Bobtail,
        Profile::Firefly,
        Profile::Hammer,
        Profile::Jewel,
        Profile::Default,
    ]);
    let t = map.tunables_mut();
    t.set_profile(profile);
    t.straw_calc_version = r.below(2) as u8;
    if r.chance(40) {
        t.choose_local_tries = r.below(4) as u32;
        t.choose_local_fallback_tries = r.below(6) as u32;
        t.choose_total_tries = r.range(1, 60) as u32;
        t.chooseleaf_descend_once = r.below(2) as u32;
        t.chooseleaf_vary_r = r.below(5) as u8;
        t.chooseleaf_stable = r.below(2) as u8;
        t.msr_descents = r.range(1, 100) as u32;
        t.msr_collision_tries = r.range(1, 100) as u32;
    }
}

fn weight(r: &mut Random) -> u32 {
    match r.below(10) {
        0 => 0,
        1..=4 => 0x10000,
        5..=7 => r.range(1, 0x30000) as u32,
        8 => r.range(1, 50) as u32 * 0x10000,
        _ => r.range(1, 100) as u32,
    }
}

fn bucket(
    r: &mut Random,
    map: &mut CrushMap,
    algs: &[BucketAlg],
    kind: u16,
    name: &str,
    mut items: Vec<(i32, u32)>,
) -> (i32, u32) {
    let alg = r.pick(algs);
    match alg {
        BucketAlg::Uniform => {
            let same = weight(r).max(1);
            items.iter_mut().for_each(|(_, w)| *w = same);
        }
        // The peer's walk through a tree without weight ends beyond its items.
        BucketAlg::Tree if items.iter().all(|(_, w)| *w == 0) => {
            items.iter_mut().for_each(|(_, w)| *w = 0x8000);
        }
        _ => {}
    }
    let id = r.chance(20).then(|| {
        let mut id = -r.range(1, 60);
        while map.bucket(id).is_some() {
            id -= 1;
        }
        id
    });
    let id = map.add_bucket(id, Some(alg), kind, &items).unwrap();
    map.set_item_name(id, name).unwrap();
    (id, map.bucket(id).unwrap().weight())
}

fn weight_sets(r: &mut Random, map: &mut CrushMap) {
    if !r.chance(40) {
        return;
    }
    let positions = r.range(1, 3) as usize;
    let set = r.pick(&[-1, -1, 0, 7]);
    map.create_choose_args(set, positions);
    let osds: Vec<i32> = map.names().iter().map(|(id, _)| id).filter(|id| *id >= 0).collect();
    for osd in osds {
        if r.chance(50) {
            let weights: Vec<u32> = (0..positions).map(|_| weight(r)).collect();
            let _ = map.choose_args_adjust_item_weight(set, osd, &weights);
        }
    }
}

/// Gives some weight sets ids, which only text can; weights are rounded by that.
fn with_ids(r: &mut Random, map: CrushMap) -> CrushMap {
    if !r.chance(15) {
        return map;
    }
    let mut said = text::decompile(&map);
    let end = said.find("\n# end crush map").unwrap();
    said.truncate(end);
    let mut section = String::from("\nchoose_args 99 {\n");
    for b in map.buckets().filter(|b| b.alg() == BucketAlg::Straw2 && !map.is_shadow(b.id())) {
        if r.chance(50) && !b.items().is_empty() {
            let ids: Vec<String> = b.items().iter().map(|_| r.range(-50, 50).to_string()).collect();
            let _ = writeln!(section, "{{ bucket_id {} ids [ {} ] }}", b.id(), ids.join(" "));
        }
    }
    section.push_str("}\n");
    said.push_str(&section);
    text::compile("ids", &said).unwrap_or_else(|e| panic!("{e}\n{said}")).map
}

fn rules(r: &mut Random, map: &mut CrushMap, root: i32, racks: bool, msr: bool) {
    let mut roots = vec![root];
    for shadows in map.class_buckets().values() {
        roots.extend(shadows.values());
    }
    let n = r.range(2, 4);
    for i in 0..n {
        let rule =
            if msr && i == 0 { msr_rule(r, root, racks) } else { rule(r, map, &roots, racks) };
        let id = r.chance(20).then(|| r.range(5 + 3 * i, 7 + 3 * i) as u32);
        map.add_rule(id, &format!("rule-{i}"), rule).unwrap();
    }
}

fn rule(r: &mut Random, map: &CrushMap, roots: &[i32], racks: bool) -> Rule {
    let mut steps = Vec::new();
    for (op, high) in [
        (Op::SetChooseTries, 110),
        (Op::SetChooseleafTries, 8),
        (Op::SetChooseLocalTries, 3),
        (Op::SetChooseLocalFallbackTries, 5),
        (Op::SetChooseleafVaryR, 4),
        (Op::SetChooseleafStable, 1),
    ] {
        if r.chance(15) {
            let low = i32::from(matches!(op, Op::SetChooseTries | Op::SetChooseleafTries));
            steps.push(Step::new(op, r.range(low, high), 0));
        }
    }
    for _ in 0..(if r.chance(20) { 2 } else { 1 }) {
        // A whole root more often than a part, and now and then one device.
        let take = if r.chance(5) {
            map.names().iter().map(|(id, _)| id).rfind(|id| *id >= 0).unwrap_or(-1)
        } else if r.chance(60) {
            roots[0]
        } else {
            r.pick(roots)
        };
        steps.push(Step::new(Op::Take, take, 0));
        let count = |r: &mut Random| r.pick(&[0, 0, 0, 1, 2, 3, -1, -2]);
        let kind = |r: &mut Random| match r.below(4) {
            0 => 0,
            1 if racks => RACK.into(),
            _ => HOST.into(),
        };
        let firstn = r.chance(50);
        let (choose, leaf) = if firstn {
            (Op::ChooseFirstn, Op::ChooseleafFirstn)
        } else {
            (Op::ChooseIndep, Op::ChooseleafIndep)
        };
        match r.below(5) {
            0 => steps.push(Step::new(choose, count(r), 0)),
            1 => {
                let above = if racks && r.chance(50) { RACK } else { HOST };
                steps.push(Step::new(choose, r.range(1, 3), above.into()));
                steps.push(Step::new(r.pick(&[choose, leaf]), r.range(1, 2), 0));
            }
            2 if racks => {
                steps.push(Step::new(choose, r.range(1, 3), RACK.into()));
                steps.push(Step::new(leaf, r.range(1, 3), HOST.into()));
            }
            _ => steps.push(Step::new(leaf, count(r), kind(r))),
        }
        steps.push(Step::new(Op::Emit, 0, 0));
    }
    Rule::new(r.pick(&[1, 3]), steps)
}

fn msr_rule(r: &mut Random, root: i32, racks: bool) -> Rule {
    let mut steps = Vec::new();
    if r.chance(30) {
        steps.push(Step::new(Op::SetMsrDescents, r.range(1, 50), 0));
    }
    if r.chance(30) {
        steps.push(Step::new(Op::SetMsrCollisionTries, r.range(1, 50), 0));
    }
    for _ in 0..(if r.chance(15) { 2 } else { 1 }) {
        steps.push(Step::new(Op::Take, root, 0));
        if racks && r.chance(50) {
            steps.push(Step::new(Op::ChooseMsr, r.range(1, 3), RACK.into()));
        }
        if r.chance(85) {
            steps.push(Step::new(Op::ChooseMsr, r.range(1, 4), HOST.into()));
        }
        let low = i32::from(r.chance(70));
        steps.push(Step::new(Op::ChooseMsr, r.range(low, 3), 0));
        steps.push(Step::new(Op::Emit, 0, 0));
    }
    Rule::new(r.pick(&[crush::RULE_TYPE_MSR_FIRSTN, crush::RULE_TYPE_MSR_INDEP]), steps)
}

fn arguments(r: &mut Random, osds: i32) -> Vec<String> {
    let min_rep = r.range(1, 4);
    let min_x = r.range(0, 100_000);
    let mut out: Vec<String> = vec![
        "--test".into(),
        "--show-mappings".into(),
        "--show-statistics".into(),
        format!("--min-rep={min_rep}"),
        format!("--max-rep={}", min_rep + r.range(0, 5)),
        format!("--min-x={min_x}"),
        format!("--max-x={}", min_x + 40),
    ];
    for option in ["--show-bad-mappings", "--show-utilization", "--show-choose-tries"] {
        if r.chance(30) {
            out.push(option.into());
        }
    }
    if r.chance(20) {
        out.push(format!("--pool-id={}", r.pick(&[0, 7, 99, 1234])));
    }
    for osd in 0..osds {
        if r.chance(15) {
            let weight = f64::from(r.pick(&[0, 0, 0x4000, 0x8000, 0xc000, 0xffff])) / 65536.0;
            out.extend(["--weight".into(), osd.to_string(), weight.to_string()]);
        }
    }
    out
}
