//! From one epoch to the next.

use std::sync::Arc;

use types::{AddrVec, DecodeError, Denc, Epoch, OsdId, UTime, Uuid};

use super::{CrushPart, Incremental, OsdInfo, OsdMap, OsdMapFlags, OsdState, OsdXInfo, WEIGHT_ONE};

/// Why a delta does not fit a map. The map is as it was.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ApplyError {
    /// It is another cluster's.
    #[error("the delta is of cluster {delta}, the map of {map}")]
    WrongCluster {
        /// The delta's.
        delta: Uuid,
        /// The map's.
        map: Uuid,
    },
    /// Epochs are missing between, or it was applied already.
    #[error("the delta leads to epoch {delta}, the map is at {map}")]
    WrongEpoch {
        /// The delta's.
        delta: Epoch,
        /// The map's.
        map: Epoch,
    },
    /// It changes an OSD there is no room for.
    #[error("the delta changes osd.{0}, which the map has no room for")]
    NoRoom(OsdId),
    /// A map in it cannot be read.
    #[error("a map inside the delta: {0}")]
    Decode(#[from] DecodeError),
}

impl OsdMap {
    /// Turns this map into the next epoch's.
    ///
    /// # Errors
    /// [`ApplyError`]; the map is unchanged then.
    ///
    /// # Source
    /// `OSDMap::apply_incremental`, order of the steps included.
    pub fn apply_incremental(&mut self, inc: &Incremental) -> Result<(), ApplyError> {
        if inc.epoch.0 != 1 && inc.fsid != self.fsid {
            return Err(ApplyError::WrongCluster { delta: inc.fsid, map: self.fsid });
        }
        if self.epoch.0.checked_add(1) != Some(inc.epoch.0) {
            return Err(ApplyError::WrongEpoch { delta: inc.epoch, map: self.epoch });
        }
        if !inc.fullmap.is_empty() {
            *self = Self::from_shared(&inc.fullmap)?;
            return Ok(());
        }
        self.check_room(inc)?;
        let crush =
            if inc.crush.is_empty() { None } else { Some(CrushPart::from_bytes(&inc.crush)?) };

        if inc.epoch.0 == 1 {
            self.fsid = inc.fsid;
        }
        self.epoch = inc.epoch;
        self.modified = inc.modified;
        if let Some(flags) = inc.new_flags {
            self.flags = flags;
        }
        if let Some(max) = inc.new_max_osd {
            self.set_max_osd(max);
        }
        if let Some(max) = inc.new_pool_max {
            self.pool_max = max as i32;
        }
        self.apply_pools(inc);
        self.apply_osds(inc);
        self.apply_pgs(inc);
        self.apply_rest(inc);
        if let Some(crush) = crush {
            self.crush = crush;
            if self.require_osd_release >= 12 {
                self.crush_version += 1;
            }
            let crush = &self.crush;
            self.device_class_flags.retain(|class, _| crush.class_names().get(*class).is_some());
        }
        Ok(())
    }

    /// Whether all OSDs that the delta names fit below its `max_osd`.
    fn check_room(&self, inc: &Incremental) -> Result<(), ApplyError> {
        /// Far beyond any cluster; keeps a bad delta from taking all memory.
        const OSDS_MAX: i32 = 1 << 20;
        let max = inc.new_max_osd.unwrap_or(self.max_osd);
        if max > OSDS_MAX {
            return Err(ApplyError::NoRoom(OsdId(max)));
        }
        let all = inc
            .new_weight
            .keys()
            .chain(inc.new_primary_affinity.keys())
            .chain(inc.new_state.keys())
            .chain(inc.new_up_client.keys())
            .chain(inc.new_up_cluster.keys())
            .chain(inc.new_hb_back_up.keys())
            .chain(inc.new_hb_front_up.keys())
            .chain(inc.new_up_thru.keys())
            .chain(inc.new_last_clean_interval.keys())
            .chain(inc.new_lost.keys())
            .chain(inc.new_xinfo.keys())
            .chain(inc.new_uuid.keys());
        for osd in all {
            if osd.0 < 0 || osd.0 >= max {
                return Err(ApplyError::NoRoom(*osd));
            }
        }
        Ok(())
    }

    fn apply_pools(&mut self, inc: &Incremental) {
        if !inc.new_pools.is_empty() {
            let pools = Arc::make_mut(&mut self.pools);
            for (id, pool) in &inc.new_pools {
                let mut pool = pool.clone();
                pool.last_change = self.epoch;
                pools.insert(*id, pool);
            }
        }
        self.new_removed_snaps.clone_from(&inc.new_removed_snaps);
        self.new_purged_snaps.clone_from(&inc.new_purged_snaps);
        if !inc.new_removed_snaps.is_empty() || !inc.new_purged_snaps.is_empty() {
            let queue = Arc::make_mut(&mut self.removed_snaps_queue);
            for (pool, snaps) in &inc.new_removed_snaps {
                queue.entry(*pool).or_default().union(snaps);
            }
            for (pool, snaps) in &inc.new_purged_snaps {
                if let Some(left) = queue.get_mut(pool) {
                    left.subtract(snaps);
                    if left.is_empty() {
                        queue.remove(pool);
                    }
                }
            }
        }
        if inc.new_last_up_change != UTime::ZERO {
            self.last_up_change = inc.new_last_up_change;
        }
        if inc.new_last_in_change != UTime::ZERO {
            self.last_in_change = inc.new_last_in_change;
        }
        if !inc.new_pool_names.is_empty() {
            let names = Arc::make_mut(&mut self.pool_names);
            for (id, name) in &inc.new_pool_names {
                names.insert(*id, name.clone());
            }
        }
        if !inc.old_pools.is_empty() {
            let pools = Arc::make_mut(&mut self.pools);
            let names = Arc::make_mut(&mut self.pool_names);
            for id in &inc.old_pools {
                pools.remove(id);
                names.remove(id);
            }
        }
    }

    fn apply_osds(&mut self, inc: &Incremental) {
        if !inc.new_weight.is_empty() {
            let weights = Arc::make_mut(&mut self.osd_weight);
            let states = Arc::make_mut(&mut self.osd_state);
            let xinfo = Arc::make_mut(&mut self.osd_xinfo);
            for (osd, weight) in &inc.new_weight {
                let i = osd.0 as usize;
                weights[i] = *weight;
                if *weight != 0 {
                    states[i].0 |= OsdState::EXISTS.0;
                    states[i].0 &= !(OsdState::AUTOOUT.0 | OsdState::NEW.0);
                    xinfo[i].old_weight = 0;
                }
            }
        }
        for (osd, affinity) in &inc.new_primary_affinity {
            self.set_primary_affinity(*osd, *affinity);
        }
        if !inc.old_erasure_code_profiles.is_empty() || !inc.new_erasure_code_profiles.is_empty() {
            let profiles = Arc::make_mut(&mut self.erasure_code_profiles);
            for name in &inc.old_erasure_code_profiles {
                profiles.remove(name);
            }
            for (name, profile) in &inc.new_erasure_code_profiles {
                profiles.insert(name.clone(), profile.clone());
            }
        }
        for (osd, bits) in &inc.new_state {
            self.apply_state(*osd, if *bits == 0 { OsdState::UP.0 } else { *bits });
        }
        if !inc.new_up_client.is_empty() {
            let states = Arc::make_mut(&mut self.osd_state);
            let infos = Arc::make_mut(&mut self.osd_info);
            let client = Arc::make_mut(&mut self.client_addrs);
            let back = Arc::make_mut(&mut self.hb_back_addrs);
            let front = Arc::make_mut(&mut self.hb_front_addrs);
            for (osd, addrs) in &inc.new_up_client {
                let i = osd.0 as usize;
                states[i].0 |= OsdState::EXISTS.0 | OsdState::UP.0;
                states[i].0 &= !OsdState::STOP.0;
                client[i].clone_from(addrs);
                back[i] = inc.new_hb_back_up.get(osd).cloned().unwrap_or_default();
                front[i] = inc.new_hb_front_up.get(osd).cloned().unwrap_or_default();
                infos[i].up_from = self.epoch;
            }
        }
        if !inc.new_up_cluster.is_empty() {
            let cluster = Arc::make_mut(&mut self.cluster_addrs);
            for (osd, addrs) in &inc.new_up_cluster {
                cluster[osd.0 as usize].clone_from(addrs);
            }
        }
        if !(inc.new_up_thru.is_empty()
            && inc.new_last_clean_interval.is_empty()
            && inc.new_lost.is_empty())
        {
            let infos = Arc::make_mut(&mut self.osd_info);
            for (osd, epoch) in &inc.new_up_thru {
                infos[osd.0 as usize].up_thru = *epoch;
            }
            for (osd, (begin, end)) in &inc.new_last_clean_interval {
                let info = &mut infos[osd.0 as usize];
                (info.last_clean_begin, info.last_clean_end) = (*begin, *end);
            }
            for (osd, epoch) in &inc.new_lost {
                infos[osd.0 as usize].lost_at = *epoch;
            }
        }
        if !inc.new_xinfo.is_empty() {
            let all = Arc::make_mut(&mut self.osd_xinfo);
            for (osd, xinfo) in &inc.new_xinfo {
                all[osd.0 as usize] = *xinfo;
            }
        }
        if !inc.new_uuid.is_empty() {
            let all = Arc::make_mut(&mut self.osd_uuid);
            for (osd, uuid) in &inc.new_uuid {
                all[osd.0 as usize] = *uuid;
            }
        }
    }

    /// Flips state bits of one OSD.
    fn apply_state(&mut self, osd: OsdId, bits: u32) {
        let i = osd.0 as usize;
        let bits = OsdState(bits);
        let before = self.osd_state[i];
        if before.has(OsdState::UP) && bits.has(OsdState::UP) {
            Arc::make_mut(&mut self.osd_info)[i].down_at = self.epoch;
            Arc::make_mut(&mut self.osd_xinfo)[i].down_stamp = self.modified;
        }
        if before.has(OsdState::EXISTS) && bits.has(OsdState::EXISTS) {
            // Purged: nothing of it stays.
            Arc::make_mut(&mut self.osd_uuid)[i] = Uuid::default();
            Arc::make_mut(&mut self.osd_info)[i] = OsdInfo::default();
            Arc::make_mut(&mut self.osd_xinfo)[i] = OsdXInfo::default();
            self.set_primary_affinity(osd, WEIGHT_ONE);
            for addrs in [
                &mut self.client_addrs,
                &mut self.cluster_addrs,
                &mut self.hb_front_addrs,
                &mut self.hb_back_addrs,
            ] {
                Arc::make_mut(addrs)[i] = AddrVec::default();
            }
            Arc::make_mut(&mut self.osd_state)[i] = OsdState::default();
        } else {
            Arc::make_mut(&mut self.osd_state)[i].0 ^= bits.0;
        }
    }

    fn apply_pgs(&mut self, inc: &Incremental) {
        if !inc.new_pg_temp.is_empty() {
            let temp = Arc::make_mut(&mut self.pg_temp);
            for (pg, osds) in &inc.new_pg_temp {
                if osds.is_empty() {
                    temp.remove(pg);
                } else {
                    temp.insert(*pg, osds.clone());
                }
            }
        }
        if !inc.new_primary_temp.is_empty() {
            let temp = Arc::make_mut(&mut self.primary_temp);
            for (pg, osd) in &inc.new_primary_temp {
                if osd.0 == -1 {
                    temp.remove(pg);
                } else {
                    temp.insert(*pg, *osd);
                }
            }
        }
        if !inc.new_pg_upmap.is_empty() || !inc.old_pg_upmap.is_empty() {
            let map = Arc::make_mut(&mut self.pg_upmap);
            map.extend(inc.new_pg_upmap.iter().map(|(pg, osds)| (*pg, osds.clone())));
            map.retain(|pg, _| !inc.old_pg_upmap.contains(pg));
        }
        if !inc.new_pg_upmap_items.is_empty() || !inc.old_pg_upmap_items.is_empty() {
            let map = Arc::make_mut(&mut self.pg_upmap_items);
            map.extend(inc.new_pg_upmap_items.iter().map(|(pg, items)| (*pg, items.clone())));
            map.retain(|pg, _| !inc.old_pg_upmap_items.contains(pg));
        }
        if !inc.new_pg_upmap_primary.is_empty() || !inc.old_pg_upmap_primary.is_empty() {
            let map = Arc::make_mut(&mut self.pg_upmap_primaries);
            map.extend(&inc.new_pg_upmap_primary);
            map.retain(|pg, _| !inc.old_pg_upmap_primary.contains(pg));
        }
    }

    fn apply_rest(&mut self, inc: &Incremental) {
        if !inc.new_blocklist.is_empty() || !inc.old_blocklist.is_empty() {
            let list = Arc::make_mut(&mut self.blocklist);
            for (addr, until) in &inc.new_blocklist {
                list.entry(*addr).or_insert(*until); // an entry's time never changes
            }
            for addr in &inc.old_blocklist {
                list.remove(addr);
            }
        }
        for (addr, until) in &inc.new_range_blocklist {
            self.range_blocklist.entry(*addr).or_insert(*until);
        }
        for addr in &inc.old_range_blocklist {
            self.range_blocklist.remove(addr);
        }
        for (flags, new) in [
            (&mut self.crush_node_flags, &inc.new_crush_node_flags),
            (&mut self.device_class_flags, &inc.new_device_class_flags),
        ] {
            for (id, bits) in new {
                if *bits == 0 {
                    flags.remove(id);
                } else {
                    flags.insert(*id, *bits);
                }
            }
        }
        self.cluster_snapshot.clone_from(&inc.cluster_snapshot);
        self.cluster_snapshot_epoch =
            if inc.cluster_snapshot.is_empty() { Epoch(0) } else { inc.epoch };
        if let Some(ratio) = inc.new_nearfull_ratio {
            self.nearfull_ratio = ratio;
        }
        if let Some(ratio) = inc.new_backfillfull_ratio {
            self.backfillfull_ratio = ratio;
        }
        if let Some(ratio) = inc.new_full_ratio {
            self.full_ratio = ratio;
        }
        if let Some(release) = inc.new_require_min_compat_client.filter(|r| *r > 0) {
            self.require_min_compat_client = release;
        }
        if let Some(release) = inc.new_require_osd_release {
            self.require_osd_release = release;
            if release >= 12 {
                let legacy = OsdMapFlags(
                    OsdMapFlags::REQUIRE_JEWEL.0
                        | OsdMapFlags::REQUIRE_KRAKEN.0
                        | OsdMapFlags::REQUIRE_LUMINOUS.0,
                );
                self.flags.set(legacy, false);
                self.flags.set(OsdMapFlags::RECOVERY_DELETES, true);
            }
            if release >= 14 {
                self.flags.set(OsdMapFlags::PGLOG_HARDLIMIT, true);
            }
        }
        if let Some(stretch) = inc.new_stretch {
            self.stretch = stretch;
        }
        if let Some(allow) = inc.new_allow_crimson {
            self.allow_crimson = allow;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{PgPool, PoolKind, SIGNIFICANT_FEATURES};
    use types::{EntityAddr, PgId, PoolId};

    const FSID: Uuid = Uuid([3; 16]);

    fn next(map: &OsdMap, change: impl FnOnce(&mut Incremental)) -> OsdMap {
        let mut inc = Incremental::new(FSID, Epoch(map.epoch.0 + 1));
        inc.modified = UTime { sec: map.epoch.0 + 100, nsec: 0 };
        change(&mut inc);
        let sealed = inc.seal(map, SIGNIFICANT_FEATURES).expect("the delta fits");
        // What is stored says the same as what was computed.
        let (stored, crc) =
            OsdMap::decode_with_crc(&mut denc::Reader::new(&sealed.full)).expect("readable");
        assert_eq!((&stored, crc), (&sealed.map, sealed.crc));
        let read = Incremental::from_shared(&sealed.incremental).expect("readable");
        assert_eq!(read.full_crc, sealed.crc);
        assert_eq!(read, inc);
        sealed.map
    }

    fn addr(port: u16) -> AddrVec {
        let addr: EntityAddr = format!("v2:10.0.0.1:{port}/1").parse().expect("an address");
        addr.into()
    }

    /// An OSD is made, boots, goes down, comes back, and is purged.
    #[test]
    fn an_osds_life() {
        let osd = OsdId(1);
        let map = OsdMap::new(FSID, Epoch(1), UTime::ZERO, 18);
        let map = next(&map, |inc| {
            inc.new_max_osd = Some(2);
            inc.new_state.insert(osd, OsdState::EXISTS.0 | OsdState::NEW.0);
            inc.new_uuid.insert(osd, Uuid([9; 16]));
        });
        assert!(map.exists(osd) && !map.is_up(osd) && !map.exists(OsdId(0)));
        let map = next(&map, |inc| {
            inc.new_up_client.insert(osd, addr(6800));
            inc.new_hb_back_up.insert(osd, addr(6801));
            inc.new_hb_front_up.insert(osd, addr(6802));
            inc.new_up_cluster.insert(osd, addr(6803));
            inc.new_weight.insert(osd, WEIGHT_ONE);
        });
        assert!(map.is_up(osd) && map.is_in(osd) && !map.state(osd).has(OsdState::NEW));
        assert_eq!((map.up_from(osd), map.osd_addrs(osd)), (Epoch(3), Some(&addr(6800))));
        let up = map.clone();
        let map = next(&map, |inc| {
            inc.new_state.insert(osd, 0); // nothing named: up is flipped
        });
        assert!(map.is_down(osd) && map.exists(osd) && up.is_up(osd), "clones stay as they are");
        assert_eq!(map.info(osd).down_at, Epoch(4));
        assert_eq!(map.xinfo(osd).down_stamp.sec, 103);
        let map = next(&map, |inc| {
            inc.new_state.insert(osd, OsdState::EXISTS.0);
        });
        assert!(!map.exists(osd) && map.uuid(osd).is_zero());
        assert_eq!(map.osd_addrs(osd), Some(&AddrVec::default()));
        assert_eq!(map.info(osd), OsdInfo::default());
    }

    /// Pools, snapshots that are removed and trimmed, temporary sets, shut-out clients.
    #[test]
    fn pools_and_lists() {
        let pool = PoolId(5);
        let map = OsdMap::new(FSID, Epoch(7), UTime::ZERO, 18);
        let client: EntityAddr = "any:10.0.0.9:0/77".parse().expect("an address");
        let pg = PgId { pool, ps: 3 };
        let map = next(&map, |inc| {
            inc.new_pool_max = Some(5);
            inc.new_pools.insert(pool, PgPool::new(PoolKind::REPLICATED, 3, 2, 0, 8));
            inc.new_pool_names.insert(pool, "p".into());
            inc.new_removed_snaps.insert(pool, [(4, 3)].into_iter().collect());
            inc.new_pg_temp.insert(pg, vec![OsdId(1)]);
            inc.new_blocklist.insert(client, UTime { sec: 50, nsec: 0 });
        });
        assert_eq!(map.pool_by_name("p"), Some(pool));
        assert_eq!(map.pool(pool).map(|p| p.last_change), Some(Epoch(8)));
        assert_eq!(map.removed_snaps_queue[&pool].size(), 3);
        let v1 = "v1:10.0.0.9:0/77".parse().expect("an address");
        assert!(map.blocklisted_until(&v1).is_some(), "whatever the protocol");
        let other = "v2:10.0.0.9:0/78".parse().expect("an address");
        assert_eq!(map.blocklisted_until(&other), None);
        let map = next(&map, |inc| {
            inc.new_purged_snaps.insert(pool, [(4, 3)].into_iter().collect());
            inc.new_pg_temp.insert(pg, vec![]);
            inc.old_blocklist.push(client);
            inc.pool_mut(&map, pool).expect("there").size = 2;
        });
        assert!(map.removed_snaps_queue.is_empty() && map.pg_temp.is_empty());
        assert!(map.blocklist.is_empty() && map.new_removed_snaps.is_empty());
        assert_eq!(map.pool(pool).map(|p| p.size), Some(2));
        let map = next(&map, |inc| {
            inc.old_pools.insert(pool);
        });
        assert!(map.pools.is_empty() && map.pool_names.is_empty());
    }

    /// What does not fit is refused, and changes nothing.
    #[test]
    fn refuses_misfits() {
        let before = OsdMap::new(FSID, Epoch(4), UTime::ZERO, 18);
        let mut map = before.clone();
        let inc = |fsid, epoch| Incremental::new(fsid, Epoch(epoch));
        let wrong = map.apply_incremental(&inc(Uuid([1; 16]), 5));
        assert!(matches!(wrong, Err(ApplyError::WrongCluster { .. })));
        for epoch in [3, 4, 6] {
            let wrong = map.apply_incremental(&inc(FSID, epoch));
            assert!(matches!(wrong, Err(ApplyError::WrongEpoch { .. })), "{epoch}");
        }
        let mut far = inc(FSID, 5);
        far.new_weight.insert(OsdId(0), 1);
        assert_eq!(map.apply_incremental(&far), Err(ApplyError::NoRoom(OsdId(0))));
        far.new_max_osd = Some(i32::MAX);
        assert!(map.apply_incremental(&far).is_err());
        let mut bad = inc(FSID, 5);
        bad.crush = denc::Bytes::from_static(b"no CRUSH map");
        assert!(matches!(map.apply_incremental(&bad), Err(ApplyError::Decode(_))));
        assert_eq!(map, before);
    }
}
