//! How long a map change takes on a large cluster: 1,000 OSDs, 20,000 PGs. On real time.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::time::Instant;

use anyhow::{Result, bail, ensure};
use maps::{Incremental, OsdMap, PgMapping, PgPool, PoolKind};
use types::{AddrVec, Denc, EntityAddr, Epoch, Features, OsdId, PoolId, Uuid};

/// OSDs, twenty on each host.
pub const OSDS: i32 = 1_000;
/// PGs, of three copies each.
pub const PGS: u32 = 20_000;
const POOL: PoolId = PoolId(1);
/// Changes of each kind that are measured.
const ROUNDS: i32 = 20;

struct Files(BTreeMap<String, Vec<u8>>);

impl crush::crushtool::Files for Files {
    fn read(&mut self, path: &str) -> io::Result<Vec<u8>> {
        self.0.get(path).cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn write(&mut self, path: &str, data: &[u8]) -> io::Result<()> {
        self.0.insert(path.to_owned(), data.to_vec());
        Ok(())
    }
}

fn crush_map() -> Result<Vec<u8>> {
    let words = "-o map --build --num_osds 1000 host straw2 20 root straw2 0";
    let args: Vec<String> = words.split(' ').map(str::to_owned).collect();
    let (mut out, mut err, mut files) = (Vec::new(), Vec::new(), Files(BTreeMap::new()));
    let mut io = crush::crushtool::Io { out: &mut out, err: &mut err, files: &mut files };
    if crush::crushtool::main(&args, &mut io) != 0 {
        bail!("crushtool: {}", String::from_utf8_lossy(&err));
    }
    Ok(files.0.remove("map").unwrap_or_default())
}

/// The map of such a cluster.
///
/// # Errors
/// When it cannot be made.
pub fn large_map() -> Result<OsdMap> {
    let mut map = OsdMap::default();
    let first = Epoch(map.epoch.0 + 1);
    let mut inc = Incremental::new(Uuid::default(), first);
    inc.crush = crush_map()?.into();
    inc.new_max_osd = Some(OSDS);
    inc.new_pool_max = Some(POOL.0);
    inc.new_pools.insert(POOL, PgPool::new(PoolKind::REPLICATED, 3, 2, 0, PGS));
    inc.new_pool_names.insert(POOL, "p".to_owned());
    for i in 0..OSDS {
        let at = SocketAddr::from(([10, 0, (i / 250) as u8, (i % 250) as u8], 6_800));
        inc.new_up_client.insert(OsdId(i), AddrVec(vec![EntityAddr::msgr2(at, 1)]));
        inc.new_weight.insert(OsdId(i), 0x1_0000);
    }
    map.apply_incremental(&inc)?;
    let mut up = Incremental::new(Uuid::default(), Epoch(first.0 + 1));
    up.new_state = (0..OSDS).filter(|i| !map.is_up(OsdId(*i))).map(|i| (OsdId(i), 1 | 2)).collect();
    map.apply_incremental(&up)?;
    Ok(map)
}

/// A change of the map.
#[derive(Clone, Copy)]
enum Change {
    Down,
    Out,
    In,
    /// Its weight in CRUSH falls: the only one of these that may move any PG.
    Reweight,
}

impl Change {
    fn of(self, map: &OsdMap, osd: OsdId) -> Result<Incremental> {
        let mut inc = Incremental::new(Uuid::default(), Epoch(map.epoch.0 + 1));
        match self {
            Self::Down => drop(inc.new_state.insert(osd, 0)),
            Self::Out => drop(inc.new_weight.insert(osd, 0)),
            Self::In => drop(inc.new_weight.insert(osd, 0x1_0000)),
            Self::Reweight => {
                let mut crush = crush::CrushMap::clone(map.crush.map());
                crush.adjust_item_weight(osd.0, 0x8000, false)?;
                inc.crush = crush.to_bytes_for(Features::TENTACLE_WORD);
            }
        }
        Ok(inc)
    }
}

/// Prints how long an OSD takes for a change, from its bytes to where all PGs are; the
/// slowest of [`ROUNDS`] of each kind, milliseconds.
///
/// # Errors
/// When the map cannot be made, does not place its PGs, or a change that moves few takes
/// 50 ms.
#[allow(clippy::disallowed_methods, reason = "a measurement on real time")]
pub fn measure() -> Result<()> {
    let mut map = large_map()?;
    let mut mapping = PgMapping::new(&map);
    let whole = mapping.iter().filter(|(_, sets)| sets.acting.len() == 3).count();
    ensure!(whole as u32 == PGS, "{whole} of {PGS} PGs have three copies");
    println!("{OSDS} OSDs, {PGS} PGs; the slowest of {ROUNDS} changes of each kind:");
    let mut slowest = 0.0f64;
    for (change, name) in [
        (Change::Down, "an OSD goes down"),
        (Change::Out, "an OSD goes out"),
        (Change::In, "an OSD comes in"),
        (Change::Reweight, "an OSD's CRUSH weight changes"),
    ] {
        let (mut apply_ms, mut map_ms, mut moved) = (0.0f64, 0.0f64, 0);
        for round in 0..ROUNDS {
            // As it comes over the wire, to the map in use.
            let bytes = change.of(&map, OsdId(round * 7))?.to_bytes_for(Features::TENTACLE_WORD);
            let t = Instant::now();
            let inc = Incremental::from_shared(&bytes)?;
            let mut next = map.clone();
            next.apply_incremental(&inc)?;
            apply_ms = apply_ms.max(t.elapsed().as_secs_f64() * 1e3);
            let t = Instant::now();
            let next_mapping = mapping.next(&next);
            map_ms = map_ms.max(t.elapsed().as_secs_f64() * 1e3);
            moved += mapping.iter().zip(next_mapping.iter()).filter(|(a, b)| a != b).count();
            (map, mapping) = (next, next_mapping);
        }
        println!(
            "  {name}: applied {apply_ms:.2} ms, all PGs mapped {map_ms:.1} ms; {moved} moved"
        );
        let whole_ms = apply_ms + map_ms;
        // With so much to spare that a busy machine does not matter.
        ensure!(matches!(change, Change::Reweight) || whole_ms < 50.0, "{name}: {whole_ms:.1} ms");
        slowest = slowest.max(whole_ms);
    }
    println!("  at most {slowest:.1} ms for one change (50 asked)");
    Ok(())
}
