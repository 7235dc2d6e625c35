//! How long a map change takes on a large cluster: 1,000 OSDs, 20,000 PGs. On real time.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::time::Instant;

use anyhow::{Result, bail, ensure};
use maps::{Incremental, OsdMap, PgPool, PoolKind};
use types::{AddrVec, Denc, EntityAddr, Epoch, Features, OsdId, PgId, PoolId, Uuid};

/// OSDs, twenty on each host.
pub const OSDS: i32 = 1_000;
/// PGs, of three copies each.
pub const PGS: u32 = 20_000;
const POOL: PoolId = PoolId(1);
/// Changes that are measured.
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

/// Prints how long the steps take; the slowest of [`ROUNDS`], milliseconds.
///
/// # Errors
/// When the map cannot be made, or does not place its PGs.
#[allow(clippy::disallowed_methods, reason = "a measurement on real time")]
pub fn measure() -> Result<()> {
    let mut map = large_map()?;
    let place = |map: &OsdMap, ps: u32| map.pg_to_up_acting(PgId { pool: POOL, ps }).acting;
    let whole = (0..PGS).filter(|ps| place(&map, *ps).len() == 3).count();
    ensure!(whole as u32 == PGS, "{whole} of {PGS} PGs have three copies");
    let (mut apply_ms, mut all_ms, mut own_ms) = (0.0f64, 0.0f64, 0.0f64);
    let mut moved = 0;
    for round in 0..ROUNDS {
        let before: Vec<Vec<OsdId>> = (0..PGS).map(|ps| place(&map, ps)).collect();
        // One OSD goes out: as it comes over the wire, to the map in use.
        let mut inc = Incremental::new(Uuid::default(), Epoch(map.epoch.0 + 1));
        inc.new_weight.insert(OsdId(round * 7), 0);
        let bytes = inc.to_bytes_for(Features::TENTACLE_WORD);
        let t = Instant::now();
        let inc = Incremental::from_shared(&bytes)?;
        let mut next = map.clone();
        next.apply_incremental(&inc)?;
        apply_ms = apply_ms.max(t.elapsed().as_secs_f64() * 1e3);
        let t = Instant::now();
        let after: Vec<Vec<OsdId>> = (0..PGS).map(|ps| place(&next, ps)).collect();
        all_ms = all_ms.max(t.elapsed().as_secs_f64() * 1e3);
        let own: Vec<u32> =
            (0..PGS).filter(|ps| after[*ps as usize].contains(&OsdId(999))).collect();
        let t = Instant::now();
        let same = own.iter().filter(|ps| place(&next, **ps) == before[**ps as usize]).count();
        own_ms = own_ms.max(t.elapsed().as_secs_f64() * 1e3);
        moved += own.len() - same + after.iter().zip(&before).filter(|(a, b)| a != b).count();
        map = next;
    }
    println!(
        "{OSDS} OSDs, {PGS} PGs, the slowest of {ROUNDS} changes: the change read and applied \
         {apply_ms:.2} ms; all PGs mapped anew {all_ms:.1} ms ({:.2} us each); the PGs of one OSD \
         {own_ms:.2} ms; {moved} placements changed",
        all_ms * 1e3 / f64::from(PGS)
    );
    ensure!(apply_ms + own_ms < 50.0, "an OSD needs more than 50 ms for a map");
    Ok(())
}
