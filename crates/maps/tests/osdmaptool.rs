//! The peer's `osdmaptool` and this crate place every PG of random maps alike, and read
//! each other's maps.
//!
//! `ARGONAUT_OSDMAPTOOL` is the command (words split at blanks); without it the tests say
//! so and pass. `ARGONAUT_OSDMAPTOOL_DIR` is a directory that both see under the same path
//! (`/tmp/ceph-share`), `ARGONAUT_OSDMAPTOOL_RUNS` the number of random maps (30).

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

use denc::{Bytes, Denc, Features, Writer};
use maps::*;
use types::*;

struct Tool {
    words: Vec<String>,
    dir: PathBuf,
}

impl Tool {
    fn new() -> Option<Self> {
        let Ok(command) = std::env::var("ARGONAUT_OSDMAPTOOL") else {
            println!("skipped: ARGONAUT_OSDMAPTOOL names no command");
            return None;
        };
        let dir = std::env::var("ARGONAUT_OSDMAPTOOL_DIR").unwrap_or("/tmp/ceph-share".into());
        fs::create_dir_all(&dir).expect("a directory both see");
        Some(Self { words: command.split_whitespace().map(Into::into).collect(), dir: dir.into() })
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.join(format!("argonaut-maps-{}-{name}", std::process::id()))
    }

    fn run(&self, args: &[&str]) -> String {
        let out = Command::new(&self.words[0])
            .args(&self.words[1..])
            .args(args)
            .output()
            .expect("the tool starts");
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        assert!(
            out.status.success(),
            "osdmaptool {args:?}: {text}{}",
            String::from_utf8_lossy(&out.stderr)
        );
        text
    }
}

/// Numbers that look random and come again.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11
    }
    fn below(&mut self, n: u64) -> u64 {
        self.next() % n.max(1)
    }
    fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
    fn osd(&mut self, n: u64) -> OsdId {
        OsdId(self.below(n) as i32)
    }
}

/// Hosts of straw2 buckets below a root, four rules: over hosts and over OSDs, firstn and
/// indep. Written by hand, so that the CRUSH crate has no part in making it.
fn random_crush(dice: &mut Dice, osds: u64) -> Bytes {
    let hosts = 1 + dice.below(osds.min(8));
    let mut w = Writer::new(SIGNIFICANT_FEATURES);
    w.u32(0x0001_0000);
    let buckets = hosts as i32 + 1;
    w.i32(buckets);
    w.u32(4);
    w.i32(osds as i32);
    let mut members: Vec<Vec<(i32, u32)>> = vec![vec![]; hosts as usize];
    for osd in 0..osds {
        let weight = if dice.chance(80) { 0x1_0000 } else { dice.below(0x4_0000) as u32 };
        members[dice.below(hosts) as usize].push((osd as i32, weight));
    }
    let host_items: Vec<(i32, u32)> = members
        .iter()
        .enumerate()
        .map(|(i, m)| (-2 - i as i32, m.iter().map(|x| x.1).sum()))
        .collect();
    let put = |w: &mut Writer, id: i32, kind: u16, items: &[(i32, u32)]| {
        w.u32(5);
        w.i32(id);
        w.u16(kind);
        w.u8(5);
        w.u8(0);
        w.u32(items.iter().map(|x| x.1).sum());
        w.u32(items.len() as u32);
        items.iter().for_each(|x| w.i32(x.0));
        items.iter().for_each(|x| w.u32(x.1));
    };
    put(&mut w, -1, 11, &host_items);
    for (i, m) in members.iter().enumerate() {
        put(&mut w, -2 - i as i32, 1, m);
    }
    // (op, arg1, arg2): take 1, choose firstn 2, indep 3, emit 4, chooseleaf 6 and 7,
    // set_choose_tries 8, set_chooseleaf_tries 9.
    type Steps = Vec<(u32, i32, i32)>;
    let rules: [(u8, Steps); 4] = [
        (1, vec![(1, -1, 0), (6, 0, 1), (4, 0, 0)]),
        (1, vec![(1, -1, 0), (2, 0, 0), (4, 0, 0)]),
        (3, vec![(9, 5, 0), (8, 100, 0), (1, -1, 0), (7, 0, 1), (4, 0, 0)]),
        (3, vec![(8, 100, 0), (1, -1, 0), (3, 0, 0), (4, 0, 0)]),
    ];
    for (id, (kind, steps)) in rules.iter().enumerate() {
        w.u32(1);
        w.u32(steps.len() as u32);
        w.raw(&[id as u8, *kind, 1, 100]);
        for (op, a, b) in steps {
            w.u32(*op);
            w.i32(*a);
            w.i32(*b);
        }
    }
    let names = |w: &mut Writer, names: Vec<(i32, String)>| {
        w.seq(names, |w, (id, name)| {
            w.i32(id);
            w.str(&name);
        });
    };
    names(&mut w, vec![(0, "osd".into()), (1, "host".into()), (11, "root".into())]);
    let mut items = vec![];
    for i in (0..hosts).rev() {
        items.push((-2 - i as i32, format!("host{i}")));
    }
    items.push((-1, "default".into()));
    items.extend((0..osds).map(|i| (i as i32, format!("osd.{i}"))));
    names(&mut w, items);
    names(&mut w, (0..4).map(|i| (i, format!("rule{i}"))).collect());
    let old = dice.chance(20); // hammer's tunables
    w.u32(0);
    w.u32(0);
    w.u32(if dice.chance(20) { 5 } else { 50 });
    w.u32(1);
    w.u8(1);
    w.u8(1);
    w.u32(54);
    w.u8(u8::from(!old));
    w.u32(0); // class_map, class_name, class_bucket
    w.u32(0);
    w.u32(0);
    if dice.chance(30) {
        // One weight set: for a pool or for all; only the root's weights differ.
        w.u32(1);
        w.i64(if dice.chance(50) { -1 } else { 1 });
        w.u32(1);
        w.u32(0);
        let positions = 1 + dice.below(3) as u32;
        w.u32(positions);
        for _ in 0..positions {
            w.u32(hosts as u32);
            (0..hosts).for_each(|_| w.u32(dice.below(0x8_0000) as u32));
        }
        w.u32(0);
    } else {
        w.u32(0);
    }
    w.finish()
}

fn random_osd_states(dice: &mut Dice, map: &mut OsdMap, n: u64) {
    map.set_max_osd(n as i32);
    let healthy = dice.chance(30);
    for i in 0..n as usize {
        let mut state = 0;
        if healthy || dice.chance(95) {
            state |= OsdState::EXISTS.0;
        }
        if healthy || dice.chance(85) {
            state |= OsdState::UP.0;
        }
        Arc::make_mut(&mut map.osd_state)[i] = OsdState(state);
        Arc::make_mut(&mut map.osd_weight)[i] = match dice.below(10) {
            0 => 0,
            1 | 2 => dice.below(0x1_0000) as u32,
            _ => 0x1_0000,
        };
        let addr: EntityAddr =
            format!("v2:10.0.0.{}:{}/{i}", i % 250 + 1, 6800 + i).parse().expect("an address");
        Arc::make_mut(&mut map.client_addrs)[i] = addr.into();
        Arc::make_mut(&mut map.osd_uuid)[i] = Uuid([i as u8; 16]);
    }
    if dice.chance(50) {
        for i in 0..n as i32 {
            let affinity = match dice.below(4) {
                0 => 0,
                1 => dice.below(0x1_0000) as u32,
                _ => WEIGHT_ONE,
            };
            map.set_primary_affinity(OsdId(i), affinity);
        }
    }
}

fn random_pg_tables(dice: &mut Dice, map: &mut OsdMap, n: u64) {
    // Mostly OSDs that could be; now and then one that could not.
    let any = |dice: &mut Dice| match dice.below(30) {
        0 => OsdId(n as i32 + dice.below(3) as i32),
        1 => OsdId::NONE,
        _ => dice.osd(n),
    };
    let pools: Vec<_> = map.pools.iter().map(|(id, p)| (*id, p.clone())).collect();
    for (id, pool) in pools {
        for ps in 0..pool.pg_num {
            let pg = PgId { pool: id, ps };
            let some = |dice: &mut Dice, holes: bool| -> Vec<OsdId> {
                // The peer insists on whole sets in erasure-coded pools.
                let size = if holes { pool.size.into() } else { 1 + dice.below(pool.size.into()) };
                (0..size)
                    .map(|_| if holes && dice.chance(10) { OsdId::NONE } else { dice.osd(n) })
                    .collect()
            };
            if dice.chance(10) {
                let osds = some(dice, pool.is_erasure());
                Arc::make_mut(&mut map.pg_temp).insert(pg, osds);
            }
            if dice.chance(8) {
                let osd = dice.osd(n);
                Arc::make_mut(&mut map.primary_temp).insert(pg, osd);
            }
            if dice.chance(10) {
                let osds = (0..pool.size).map(|_| any(dice)).collect();
                Arc::make_mut(&mut map.pg_upmap).insert(pg, osds);
            }
            if dice.chance(25) {
                // Pairs that start at an OSD of the PG have an effect.
                let raw = map.pg_to_raw(pg);
                let from = |dice: &mut Dice| match raw.get(dice.below(4) as usize) {
                    Some(osd) => *osd,
                    None => any(dice),
                };
                let pairs = (0..1 + dice.below(3)).map(|_| (from(dice), any(dice))).collect();
                Arc::make_mut(&mut map.pg_upmap_items).insert(pg, pairs);
            }
            if dice.chance(10) {
                let raw = map.pg_to_raw_upmap(pg);
                let primary = match raw.get(dice.below(3) as usize) {
                    Some(osd) => *osd,
                    None => any(dice),
                };
                Arc::make_mut(&mut map.pg_upmap_primaries).insert(pg, primary);
            }
        }
    }
}

fn random_map(seed: u64) -> OsdMap {
    let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    for _ in 0..10 {
        dice.next();
    }
    let most = if dice.chance(20) { 60 } else { 16 };
    let n = 1 + dice.below(most);
    let now = UTime { sec: 1_700_000_000, nsec: 5 };
    let mut map = OsdMap::new(Uuid([7; 16]), Epoch(1 + dice.below(1000) as u32), now, 20);
    map.crush = CrushPart::from_bytes(&random_crush(&mut dice, n)).expect("a CRUSH map");
    random_osd_states(&mut dice, &mut map, n);
    for id in 1..=1 + dice.below(3) as i64 {
        let erasure = dice.chance(50);
        let (kind, rule) = if erasure {
            (PoolKind::ERASURE, 2 + dice.below(2) as u8)
        } else {
            (PoolKind::REPLICATED, dice.below(2) as u8)
        };
        let size = 1 + dice.below(6) as u8;
        let pg_num = 1 + dice.below(40) as u32;
        let mut pool = PgPool::new(kind, size, 1, rule, pg_num);
        if dice.chance(30) {
            pool.pgp_num = 1 + dice.below(u64::from(pg_num)) as u32;
        }
        pool.flags.set(PoolFlags::HASHPSPOOL, dice.chance(90));
        if erasure {
            pool.erasure_code_profile = "p".into();
            if dice.chance(30) {
                pool.flags.set(PoolFlags::EC_OPTIMIZATIONS, true);
                pool.nonprimary_shards = ShardSet(u128::from(dice.next()) & ((1 << size) - 1) & !1);
            }
        }
        Arc::make_mut(&mut map.pools).insert(PoolId(id), pool);
        Arc::make_mut(&mut map.pool_names).insert(PoolId(id), format!("pool{id}"));
        map.pool_max = id as i32;
    }
    if erasures(&map) {
        let profile = BTreeMap::from([("k".into(), "2".into()), ("m".into(), "1".into())]);
        Arc::make_mut(&mut map.erasure_code_profiles).insert("p".into(), profile);
    }
    random_pg_tables(&mut dice, &mut map, n);
    map
}

fn erasures(map: &OsdMap) -> bool {
    map.pools.values().any(PgPool::is_erasure)
}

fn show(osds: &[OsdId]) -> String {
    let all: Vec<_> = osds
        .iter()
        .map(|o| if *o == OsdId::NONE { "NONE".to_owned() } else { o.to_string() })
        .collect();
    format!("[{}]", all.join(","))
}

fn primary(osd: Option<OsdId>) -> i32 {
    osd.map_or(-1, |o| o.0)
}

/// What `--test-map-pgs-dump-all` prints of a map.
fn expected(map: &OsdMap) -> Vec<String> {
    PgMapping::new(map)
        .iter()
        .map(|(pg, sets)| {
            assert_eq!(*sets, map.pg_to_up_acting(pg), "the cache and the map agree on {pg}");
            let raw = map.pg_to_raw(pg);
            let raw_primary = raw.iter().copied().find(|o| *o != OsdId::NONE);
            format!(
                "{pg} raw ({}, p{}) up ({}, p{}) acting ({}, p{})",
                show(&raw),
                primary(raw_primary),
                show(&sets.up),
                primary(sets.up_primary),
                show(&sets.acting),
                primary(sets.acting_primary)
            )
        })
        .collect()
}

/// The PG lines of the tool's dump, in its order.
fn pg_lines(text: &str) -> Vec<String> {
    text.lines()
        .filter(|l| l.contains(" acting ("))
        .map(|l| l.replace("2147483647", "NONE"))
        .collect()
}

/// Every PG of random maps is placed as the peer places it; the peer reads our maps,
/// written for any release, and prints what is in them.
#[test]
fn places_like_the_peer() {
    let Some(tool) = Tool::new() else { return };
    let runs: u64 =
        std::env::var("ARGONAUT_OSDMAPTOOL_RUNS").ok().and_then(|n| n.parse().ok()).unwrap_or(30);
    let file = tool.file("random");
    let path = file.to_str().expect("a path in UTF-8").to_owned();
    let (mut pgs, mut different) = (0, 0);
    for seed in 1..=runs {
        let mut map = random_map(seed);
        let features = match seed % 3 {
            // Older forms have no primaries by hand and no optimized pools.
            1 => {
                map.pg_upmap_primaries = Arc::default();
                for pool in Arc::make_mut(&mut map.pools).values_mut() {
                    pool.flags.set(PoolFlags::EC_OPTIMIZATIONS, false);
                    pool.nonprimary_shards = ShardSet::default();
                }
                Features(SIGNIFICANT_FEATURES_PACIFIC.0 & !(1 << 31))
            }
            _ => SIGNIFICANT_FEATURES,
        };
        fs::write(&file, map.to_bytes_for(features)).expect("written");
        let printed = tool.run(&["--print", &path]);
        assert!(printed.contains(&format!("epoch {}\n", map.epoch)), "{printed}");
        assert!(printed.contains(&format!("max_osd {}\n", map.max_osd)), "{printed}");
        assert!(printed.contains(&format!("flags {}\n", map.flags)), "{printed}");
        for (id, pool) in map.pools.iter() {
            let line = format!(
                "pool {id} 'pool{id}' {} {}size {} ",
                pool.kind.name(),
                if pool.is_erasure() { "profile p " } else { "" },
                pool.size
            );
            assert!(printed.contains(&line), "{line} in {printed}");
        }
        let theirs = pg_lines(&tool.run(&["--test-map-pgs-dump-all", &path]));
        let ours = expected(&map);
        assert_eq!(ours.len(), theirs.len(), "seed {seed}");
        pgs += ours.len();
        for (our, their) in ours.iter().zip(&theirs) {
            if our != their {
                different += 1;
                if different <= 20 {
                    println!("seed {seed}\n  ours   {our}\n  theirs {their}");
                }
            }
        }
    }
    let _ = fs::remove_file(&file);
    println!("{runs} maps, {pgs} PGs, {different} differences");
    assert_eq!(different, 0);
}

/// The peer's own maps are read, and written again they print the same.
#[test]
fn reads_the_peers_maps() {
    let Some(tool) = Tool::new() else { return };
    let (file, again) = (tool.file("simple"), tool.file("again"));
    let (path, again_path) = (file.to_str().expect("UTF-8"), again.to_str().expect("UTF-8"));
    for n in [1, 3, 9] {
        let n = n.to_string();
        tool.run(&["--createsimple", &n, "--with-default-pool", "--clobber", path]);
        let bytes = Bytes::from(fs::read(&file).expect("the tool's map"));
        let map = OsdMap::from_shared(&bytes).expect("the peer's map is read");
        assert_eq!(map.max_osd.to_string(), n);
        assert_eq!(map.pool_by_name("rbd"), Some(PoolId(1)));
        fs::write(&again, map.to_bytes_for(SIGNIFICANT_FEATURES)).expect("written");
        let strip = |s: String| s.replace(path, "").replace(again_path, "");
        assert_eq!(strip(tool.run(&["--print", path])), strip(tool.run(&["--print", again_path])));
        assert_eq!(
            strip(tool.run(&["--tree=plain", path])),
            strip(tool.run(&["--tree=plain", again_path]))
        );
        let theirs = pg_lines(&tool.run(&["--test-map-pgs-dump-all", path]));
        assert_eq!(expected(&map), theirs);
    }
    let _ = (fs::remove_file(&file), fs::remove_file(&again));
}

/// One change of a map, of any kind that moves PGs.
fn random_change(dice: &mut Dice, map: &mut OsdMap) {
    let n = map.max_osd as u64;
    let osd = dice.below(n) as usize;
    match dice.below(12) {
        0 => map.crush = CrushPart::from_bytes(&random_crush(dice, n)).expect("a CRUSH map"),
        1 => map.set_max_osd(1 + dice.below(n + 2) as i32),
        2 => Arc::make_mut(&mut map.osd_state)[osd] = OsdState(dice.below(4) as u32),
        3 | 4 => {
            let mut pools = map.pools.values().cloned().collect::<Vec<_>>();
            let pool = &mut pools[0];
            match dice.below(4) {
                0 => pool.size = 1 + dice.below(6) as u8,
                1 => pool.pg_num = 1 + dice.below(40) as u32,
                2 => pool.pgp_num = 1 + dice.below(u64::from(pool.pg_num)) as u32,
                _ => pool.crush_rule = dice.below(5) as u8,
            }
            let id = *map.pools.keys().next().expect("a pool");
            Arc::make_mut(&mut map.pools).insert(id, pool.clone());
        }
        _ => {
            let weight = [0, dice.below(0x1_0000) as u32, 0x1_0000][dice.below(3) as usize];
            Arc::make_mut(&mut map.osd_weight)[osd] = weight;
        }
    }
}

/// A rule that has chosen more than it has room for.
fn with_a_rule_of_two_parts(map: &OsdMap) -> CrushPart {
    let mut crush = crush::CrushMap::clone(map.crush.map());
    let step = |op, a, b| crush::Step::new(op, a, b);
    let (take, emit) = (step(crush::Op::Take, -1, 0), step(crush::Op::Emit, 0, 0));
    let (one, more) = (step(crush::Op::ChooseIndep, 1, 0), step(crush::Op::ChooseIndep, 5, 0));
    let steps = vec![take, one, emit, take, more, emit];
    let rule = crush::Rule::new(crush::RULE_TYPE_ERASURE, steps);
    crush.add_rule(Some(4), "rule4", rule).expect("a fifth rule");
    CrushPart::new(crush)
}

/// A mapping that follows a map through changes is at each step what a new one would be.
#[test]
fn a_mapping_follows_its_map() {
    for seed in 1..=20 {
        let mut map = random_map(seed);
        let mut dice = Dice(seed.wrapping_mul(0x2545_f491_4f6c_dd1d) | 1);
        if dice.chance(50) {
            map.crush = with_a_rule_of_two_parts(&map);
            for pool in Arc::make_mut(&mut map.pools).values_mut() {
                (pool.crush_rule, pool.size) = (4, 3);
            }
        }
        let mut mapping = PgMapping::new(&map);
        for step in 0..20 {
            random_change(&mut dice, &mut map);
            mapping = mapping.next(&map);
            let pgs: usize = map.pools.values().map(|p| p.pg_num as usize).sum();
            assert_eq!(mapping.len(), pgs, "seed {seed}, step {step}");
            for (pg, sets) in mapping.iter() {
                assert_eq!(*sets, map.pg_to_up_acting(pg), "seed {seed}, step {step}, {pg}");
            }
        }
    }
}

/// A pool of so many PGs that threads share them is placed like any other.
#[test]
fn a_large_pool_is_placed_like_a_small_one() {
    for (seed, pgs) in [(1, 4_096), (2, 4_097), (3, 9_999)] {
        let mut map = random_map(seed);
        for pool in Arc::make_mut(&mut map.pools).values_mut().take(1) {
            (pool.pg_num, pool.pgp_num) = (pgs, pgs - 5);
        }
        let mapping = PgMapping::new(&map);
        for changed in [false, true] {
            if changed {
                // What was kept by several threads is found again.
                Arc::make_mut(&mut map.osd_weight)[0] = 0;
            }
            let mapping = mapping.next(&map);
            assert!(mapping.len() >= pgs as usize);
            for (pg, sets) in mapping.iter() {
                assert_eq!(*sets, map.pg_to_up_acting(pg), "seed {seed}, {pg}");
            }
        }
    }
}
