//! Whether the shards of a PG fit each other, for worlds that see all disks at once.

use std::collections::BTreeMap;

use denc::Denc;
use maps::OsdMap;
use types::{HObject, PoolId};

use super::Coding;
use crate::memory::Object;
use crate::object::{INFO_ATTR, ObjectInfo};

/// All shards of a PG, by their numbers, hold the same objects with the same attributes, as
/// long as they should be; what is coded agrees with the data; nothing is kept for taking
/// writes back.
///
/// # Errors
/// What is wrong.
pub fn shards_agree(
    map: &OsdMap,
    pool: PoolId,
    shards: &[BTreeMap<HObject, Object>],
) -> Result<(), String> {
    let coding = map.pool(pool).and_then(|p| Coding::of(map, p)).ok_or("no such code")?;
    if let Some((i, kept)) = shards.iter().enumerate().find_map(|(i, s)| {
        s.keys().find(|o| o.pool != pool).map(|o| (i, o)) //
    }) {
        return Err(format!("shard {i}: {kept} is left"));
    }
    for (oid, first) in &shards[0] {
        let raw = first.attrs.get(INFO_ATTR).ok_or_else(|| format!("{oid} has no record"))?;
        let info = ObjectInfo::from_bytes(raw).map_err(|e| format!("{oid}: {e}"))?;
        let mut data = Vec::new();
        for (i, objects) in shards.iter().enumerate() {
            let o = objects.get(oid).ok_or_else(|| format!("shard {i} lacks {oid}"))?;
            if o.attrs != first.attrs {
                return Err(format!("{oid}: attributes of shard {i} differ from those of 0"));
            }
            if o.data.len() as u64 != coding.shard_size(info.size) {
                return Err(format!("{oid}: shard {i} has {} bytes", o.data.len()));
            }
            data.push(Some(o.data.clone().freeze()));
        }
        let odd = if first.data.is_empty() { Vec::new() } else { coding.agrees(&data) };
        if !odd.is_empty() {
            return Err(format!("{oid}: shards {odd:?} are not what the data makes"));
        }
    }
    match shards.iter().position(|s| s.len() != shards[0].len()) {
        Some(i) => Err(format!("shard {i} has objects that shard 0 has not")),
        None => Ok(()),
    }
}
