//! What clients of the OSD map can bear: changes that would lead beyond are refused.
//!
//! Kernels before their fixes ran over the end of an array on an acting set of more than 32
//! OSDs, and through a null pointer on a bucket whose type has no name. Libraries keep names in
//! structures of 255 bytes.

use denc::Denc;
use maps::Incremental;

/// OSDs of one PG: the kernel's `CEPH_PG_MAX_SIZE`.
pub(crate) const PG_SIZE_MAX: usize = 32;
/// Bytes of a name of a pool, bucket, type, class or rule.
pub(crate) const NAME_BYTES_MAX: usize = 255;

/// Whether clients can follow a change of the OSD map.
///
/// # Errors
/// A sentence that says what they cannot bear: to be answered with EINVAL.
pub(crate) fn check(inc: &Incremental) -> Result<(), String> {
    let long = |what: &str, pg: types::PgId, len: usize| {
        (len > PG_SIZE_MAX).then(|| {
            format!("{what} of {pg} names {len} OSDs, and clients take no more than {PG_SIZE_MAX}")
        })
    };
    let temps = inc.new_pg_temp.iter().filter_map(|(pg, l)| long("pg_temp", *pg, l.len()));
    let maps = inc.new_pg_upmap.iter().filter_map(|(pg, l)| long("pg_upmap", *pg, l.len()));
    let items = inc.new_pg_upmap_items.iter();
    let items = items.filter_map(|(pg, l)| long("pg_upmap_items", *pg, l.len()));
    if let Some(why) = temps.chain(maps).chain(items).next() {
        return Err(why);
    }
    for (id, pool) in inc.new_pools.iter() {
        if usize::from(pool.size) > PG_SIZE_MAX {
            let size = pool.size;
            return Err(format!(
                "pool {id} of size {size}: clients take no more than {PG_SIZE_MAX}"
            ));
        }
    }
    if let Some(name) = inc.new_pool_names.values().find(|n| n.len() > NAME_BYTES_MAX) {
        return Err(too_long("pool", name));
    }
    if inc.crush.is_empty() {
        return Ok(());
    }
    let map = crush::CrushMap::from_shared(&inc.crush).map_err(|e| e.to_string())?;
    check_crush(&map)
}

fn too_long(what: &str, name: &str) -> String {
    format!("a {what} name has {} bytes, and no more than {NAME_BYTES_MAX} are taken", name.len())
}

/// Whether clients can follow a CRUSH map.
///
/// # Errors
/// As [`check`].
fn check_crush(map: &crush::CrushMap) -> Result<(), String> {
    for bucket in map.buckets() {
        let kind = bucket.kind();
        if map.types().get(i32::from(kind)).is_none() {
            return Err(format!("bucket {} is of type {kind}, which has no name", bucket.id()));
        }
    }
    let all = [
        ("type", map.types()),
        ("bucket", map.names()),
        ("rule", map.rule_names()),
        ("class", map.class_names()),
    ];
    for (what, names) in all {
        if let Some((_, name)) = names.iter().find(|(_, name)| name.len() > NAME_BYTES_MAX) {
            return Err(too_long(what, name));
        }
    }
    // Each bucket has a shadow for each class, named after both; it may not be made yet.
    let own = map.names().iter().filter(|(id, _)| *id < 0 && !map.is_shadow(*id));
    let bucket = own.map(|(_, name)| name).max_by_key(|name| name.len()).unwrap_or("");
    let class = map.class_names().iter().map(|(_, name)| name).max_by_key(|name| name.len());
    match class.map(|class| format!("{bucket}~{class}")) {
        Some(shadow) if shadow.len() > NAME_BYTES_MAX => Err(too_long("shadow bucket", &shadow)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use types::{OsdId, PgId, PoolId};

    use super::*;

    /// The last value that is well, and the first that is not, of each list and name.
    #[test]
    fn each_limit() {
        let pg = PgId::new(1, 0);
        let osds = |n: usize| (0..n as i32).map(OsdId).collect::<Vec<_>>();
        type Fill = fn(&mut Incremental, PgId, Vec<OsdId>);
        let fills: [Fill; 4] = [
            |inc, pg, osds| drop(inc.new_pg_temp.insert(pg, osds)),
            |inc, pg, osds| drop(inc.new_pg_upmap.insert(pg, osds)),
            |inc, pg, osds| {
                let pairs = osds.into_iter().map(|o| (o, OsdId(99))).collect();
                inc.new_pg_upmap_items.insert(pg, pairs);
            },
            |inc, pg, osds| {
                let size = osds.len() as u8;
                inc.new_pools.insert(pg.pool, maps::PgPool { size, ..maps::PgPool::default() });
            },
        ];
        for fill in fills {
            for (n, well) in [(0, true), (32, true), (33, false), (200, false)] {
                let mut inc = Incremental::default();
                fill(&mut inc, pg, osds(n));
                assert_eq!(check(&inc).is_ok(), well, "{n}: {:?}", check(&inc));
            }
        }
        for (n, well) in [(255, true), (256, false)] {
            let mut inc = Incremental::default();
            inc.new_pool_names.insert(PoolId(1), "n".repeat(n));
            assert_eq!(check(&inc).is_ok(), well, "{n}");
        }
        assert!(check_crush(&crush::CrushMap::build_initial(1)).is_ok());
    }
}
