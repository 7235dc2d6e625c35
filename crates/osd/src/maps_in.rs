//! Maps as they come: kept, applied epoch by epoch to every PG, and passed on.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use denc::{Denc, Features};
use env::{ConnId, Now};
use maps::{Incremental, OsdMap, PgMapping, PgSets};
use messages::{Message, OsdMapMsg, PgInfo};
use types::{EVersion, EntityKind, Epoch, OsdId, PgId, ShardId, SpgId};

use crate::core::{Core, Osd};
use crate::maphist;
use crate::outbox::{Effect, Outbox};
use crate::pg::shards::copies_of;
use crate::pg::{Pg, PoolView};

/// Epochs in one message.
const SHARED_MAX: u32 = 40;

/// PGs of a pool, in any map that is taken; the monitors' own bound is `mon_max_pool_pg_num`.
const PG_NUM_MAX: u32 = 1 << 20;

/// Whether no PG can be anywhere else in `b` than in `a`, or takes other writes.
fn same_placement(a: &OsdMap, b: &OsdMap) -> bool {
    let full = |m: &OsdMap| m.flags.has(maps::OsdMapFlags::FULL);
    full(a) == full(b)
        && Arc::ptr_eq(&a.pools, &b.pools)
        && Arc::ptr_eq(&a.osd_state, &b.osd_state)
        && Arc::ptr_eq(&a.osd_weight, &b.osd_weight)
        && Arc::ptr_eq(&a.pg_temp, &b.pg_temp)
        && Arc::ptr_eq(&a.primary_temp, &b.primary_temp)
        && Arc::ptr_eq(&a.primary_affinity, &b.primary_affinity)
        && Arc::ptr_eq(a.crush.map(), b.crush.map())
        && Arc::ptr_eq(&a.pg_upmap, &b.pg_upmap)
        && Arc::ptr_eq(&a.pg_upmap_items, &b.pg_upmap_items)
        && Arc::ptr_eq(&a.pg_upmap_primaries, &b.pg_upmap_primaries)
}

/// Which copies of a PG an OSD should have.
fn copies_at(sets: &PgSets, osd: OsdId, coded: bool) -> BTreeSet<ShardId> {
    let all = copies_of(&sets.acting, coded).chain(copies_of(&sets.up, coded));
    all.filter(|c| c.osd == osd).map(|c| c.shard).collect()
}

impl Osd {
    /// Maps of a monitor, or of another OSD. Only monitors say which steps there are no more: an
    /// OSD may not have those that a PG needs here to know since when it is where it is.
    pub(crate) fn on_maps(&mut self, now: Now, m: &OsdMapMsg, by_mon: bool, out: &mut Outbox) {
        if m.fsid != self.c.id.fsid {
            tracing::error!(theirs = %m.fsid, "maps of another cluster are refused");
            return;
        }
        self.c.perf.osd.map_messages += 1;
        self.c.perf.osd.map_message_epochs += (m.incrementals.len() + m.fulls.len()) as u64;
        let (Some(first), Some(last)) = (m.first(), m.last()) else { return };
        let have = self.c.map.epoch;
        if last <= have {
            self.c.perf.osd.map_message_epoch_dups += 1;
            return;
        }
        let mut ops = Vec::new();
        let mut interval: BTreeSet<SpgId> = BTreeSet::new();
        let mut from = Epoch(have.0 + 1);
        if first > from || !m.incrementals.contains_key(&from) && !m.fulls.contains_key(&from) {
            // The way from here to there is not in the message.
            let jump = m.fulls.keys().find(|e| **e > have).copied();
            let Some(jump) = jump.filter(|_| have.0 == 0 || by_mon && m.oldest > from) else {
                out.push(Effect::SubscribeMaps(from));
                return;
            };
            from = jump;
        }
        for e in (from.0..=last.0).map(Epoch) {
            let next = match self.next_map(m, e) {
                Ok(Some(next)) => next,
                Ok(None) => break,
                Err(why) => {
                    tracing::error!(epoch = e.0, "map: {why}");
                    break;
                }
            };
            let first = self.c.sb.oldest == Epoch(0) || next.epoch.0 > self.c.map.epoch.0 + 1;
            if first {
                self.c.sb.oldest = next.epoch;
            }
            maphist::save_step(m.incrementals.get(&e), &next, first, &mut ops);
            self.step(&next, &mut interval);
        }
        if self.c.map.epoch == have {
            out.push(Effect::SubscribeMaps(Epoch(have.0 + 1)));
            return;
        }
        self.c.follow_compression();
        self.c.sb.newest = self.c.map.epoch;
        self.c.sb.unborn = self.c.unborn.iter().copied().collect();
        self.trim_maps(&mut ops);
        self.c.sb.save(&mut ops);
        self.c.submit(ops);
        self.after_maps(now, interval, out);
        // The sender has more than fits one message.
        if m.newest > self.c.map.epoch {
            out.push(Effect::SubscribeMaps(Epoch(self.c.map.epoch.0 + 1)));
        }
    }

    /// The map of epoch `e` from the message; `None` when it is not there.
    fn next_map(&self, m: &OsdMapMsg, e: Epoch) -> Result<Option<OsdMap>, String> {
        if let Some(raw) = m.incrementals.get(&e).filter(|_| self.c.map.epoch.0 + 1 == e.0) {
            let inc = Incremental::from_shared(raw).map_err(|x| x.to_string())?;
            let mut next = OsdMap::clone(&self.c.map);
            match next.apply_incremental(&inc) {
                Ok(()) => return self.sound(next, e).map(Some),
                Err(x) if !m.fulls.contains_key(&e) => return Err(x.to_string()),
                Err(_) => {}
            }
        }
        let Some(raw) = m.fulls.get(&e) else { return Ok(None) };
        let next = OsdMap::from_shared(raw).map_err(|x| x.to_string())?;
        self.sound(next, e).map(Some)
    }

    /// A map is what it was sent as, and one that monitors make: other OSDs pass maps on, and one of
    /// them may be in wrong hands.
    fn sound(&self, map: OsdMap, e: Epoch) -> Result<OsdMap, String> {
        if map.epoch != e || map.fsid != self.c.id.fsid {
            return Err(format!("it is map {} of {}", map.epoch.0, map.fsid));
        }
        for (id, pool) in map.pools.iter() {
            let sizes = pool.size > 0 && (1..=PG_NUM_MAX).contains(&pool.pg_num);
            if !sizes || pool.pg_num_pending > pool.pg_num {
                return Err(format!("pool {} has {} PGs, {} copies", id.0, pool.pg_num, pool.size));
            }
        }
        Ok(map)
    }

    /// Goes on to `next`: every PG takes the step, new ones are made, old ones removed.
    fn step(&mut self, next: &OsdMap, interval: &mut BTreeSet<SpgId>) {
        let prev = Arc::clone(&self.c.map);
        let moved = !same_placement(&prev, next);
        if moved {
            self.c.mapping = Arc::new(self.c.mapping.next(next));
        }
        self.c.map = Arc::new(next.clone());
        if !moved {
            for pg in self.pgs.values_mut() {
                pg.info.epoch = pg.info.epoch.max(next.epoch);
            }
            return;
        }
        let gone: Vec<SpgId> =
            self.pgs.keys().filter(|id| next.pool(id.pg.pool).is_none()).copied().collect();
        for id in gone {
            tracing::info!(pg = %id, "its pool was deleted");
            self.drop_pg(id);
            interval.remove(&id);
        }
        for (id, pool) in next.pools.iter() {
            if prev.pool(*id).is_some_and(|p| p.pg_num < pool.pg_num) {
                interval.extend(self.split_pgs(*id, pool.pg_num, next.epoch));
            }
            if prev.pool(*id).is_some_and(|p| p.pg_num > pool.pg_num) {
                let meta = &pool.last_pg_merge_meta;
                interval.extend(self.unite_pgs(*id, pool.pg_num, meta, next.epoch));
                interval.retain(|pg| pg.pg.pool != *id || pg.pg.ps < pool.pg_num);
            }
        }
        for (id, pg) in &mut self.pgs {
            let Some(pool) = next.pool(id.pg.pool) else { continue };
            let place = self.c.mapping.get(id.pg).map(Core::place).unwrap_or_default();
            if pg.advance(&prev, next, PoolView::of(next, pool), place) {
                interval.insert(*id);
            }
        }
        self.new_pgs(&prev, next, interval);
        self.c.pg_count = self.pgs.len();
    }

    /// PGs that come to be with this map, and those that wait for their first OSD.
    fn new_pgs(&mut self, prev: &OsdMap, next: &OsdMap, interval: &mut BTreeSet<SpgId>) {
        self.c.unborn.retain(|id| next.pool(id.pool).is_some());
        let seen_all = prev.epoch.0 > 0 || next.epoch.0 <= 1;
        if seen_all {
            for (id, pool) in next.pools.iter() {
                let before = prev.pool(*id).map_or(0, |p| p.pg_num);
                if before == 0 {
                    self.c.unborn.extend((0..pool.pg_num).map(|ps| PgId { pool: *id, ps }));
                }
            }
        }
        let me = self.c.id.whoami;
        let mapping = Arc::clone(&self.c.mapping);
        let born: Vec<PgId> = self
            .c
            .unborn
            .iter()
            .filter(|id| mapping.get(**id).is_some_and(|s| s.acting_primary.is_some()))
            .copied()
            .collect();
        for id in born {
            self.c.unborn.remove(&id);
            let sets = mapping.get(id).expect("just found");
            let Some(pool) = next.pool(id.pool) else { continue };
            let copies = copies_at(sets, me, pool.is_erasure());
            let copies = copies.into_iter().map(|shard| SpgId { pg: id, shard });
            let info = PgInfo {
                created: next.epoch,
                last_epoch_clean: next.epoch,
                history_les: Epoch(0),
                pg_num: pool.pg_num,
                primary: OsdId::NONE,
                ..PgInfo::default()
            };
            for id in copies {
                if self.pgs.contains_key(&id) {
                    continue;
                }
                let mut pg = Pg::new(id, info.clone(), PoolView::of(next, pool));
                pg.advance(prev, next, PoolView::of(next, pool), Core::place(sets));
                self.pgs.insert(id, pg);
                interval.insert(id);
            }
        }
    }

    /// PGs loaded from disk take the steps they missed.
    pub(crate) fn catch_up_pgs(&mut self) -> Result<(), String> {
        let newest = self.c.map.epoch;
        let deleted: Vec<SpgId> =
            self.pgs.keys().filter(|id| self.c.map.pool(id.pg.pool).is_none()).copied().collect();
        if newest > Epoch(0) {
            for id in deleted {
                self.drop_pg(id);
            }
        }
        let Some(oldest) = self.pgs.values().map(|pg| pg.info.epoch).min() else { return Ok(()) };
        let view = |pgs: &mut std::collections::BTreeMap<SpgId, Pg>, map: &OsdMap| {
            // The view of the pool, which is not kept on disk.
            for (id, pg) in pgs.iter_mut().filter(|(_, pg)| pg.info.epoch <= map.epoch) {
                if let Some(pool) = map.pool(id.pg.pool).filter(|_| pg.pool == PoolView::default())
                {
                    pg.pool = PoolView::of(map, pool);
                }
            }
        };
        view(&mut self.pgs, &Arc::clone(&self.c.map));
        if oldest >= newest {
            return Ok(());
        }
        let oldest = oldest.max(self.c.sb.oldest);
        let mut prev = maphist::map_at(&*self.c.store, oldest)?;
        for pg in self.pgs.values_mut() {
            pg.pool = PoolView::default();
        }
        let mut mapping = PgMapping::default();
        if self.pgs.values().any(|pg| pg.info.epoch < prev.epoch) {
            // It ended between stepping over maps and saving what that meant for its PGs.
            mapping = mapping.next(&prev);
            self.advance_behind(&prev, &prev, &mapping);
        }
        while prev.epoch < newest {
            let next = maphist::next(&*self.c.store, &prev)?;
            view(&mut self.pgs, &prev);
            for (id, pool) in next.pools.iter() {
                if prev.pool(*id).is_some_and(|p| p.pg_num < pool.pg_num) {
                    self.split_pgs(*id, pool.pg_num, next.epoch);
                }
                if prev.pool(*id).is_some_and(|p| p.pg_num > pool.pg_num) {
                    self.unite_pgs(*id, pool.pg_num, &pool.last_pg_merge_meta, next.epoch);
                }
            }
            if same_placement(&prev, &next) {
                for pg in self.pgs.values_mut().filter(|pg| pg.info.epoch < next.epoch) {
                    pg.info.epoch = next.epoch;
                }
            } else {
                mapping = mapping.next(&next);
                self.advance_behind(&prev, &next, &mapping);
            }
            prev = next;
        }
        view(&mut self.pgs, &prev);
        Ok(())
    }

    /// PGs that have not seen `next` take the step to it.
    fn advance_behind(&mut self, prev: &OsdMap, next: &OsdMap, mapping: &PgMapping) {
        for (id, pg) in self.pgs.iter_mut().filter(|(_, pg)| pg.info.epoch < next.epoch) {
            if let Some(pool) = next.pool(id.pg.pool) {
                let place = mapping.get(id.pg).map(Core::place).unwrap_or_default();
                pg.advance(prev, next, PoolView::of(next, pool), place);
            }
        }
    }

    /// A PG that others have becomes known here. Only when the map still says what they
    /// say; otherwise they will say it again.
    pub(crate) fn adopt_pg(&mut self, id: SpgId, info: &PgInfo, interval: Epoch) -> bool {
        let me = self.c.id.whoami;
        let Some(pool) = self.c.map.pool(id.pg.pool) else { return false };
        let Some(sets) = self.c.mapping.get(id.pg) else { return false };
        let place = Core::place(sets);
        let belongs = copies_at(sets, me, pool.is_erasure()).contains(&id.shard);
        if !belongs
            || info.same_interval_since != interval
            || (&info.up, &info.acting, info.primary) != (&place.up, &place.acting, place.primary)
            || !self.same_interval_until_now(id.pg, info)
        {
            return false;
        }
        let info = PgInfo {
            last_update: EVersion::ZERO,
            log_tail: EVersion::ZERO,
            last_epoch_started: Epoch(0),
            missing: 0,
            counts: messages::PgCounts::default(),
            epoch: self.c.map.epoch,
            pg_num: pool.pg_num,
            ..info.clone()
        };
        let mut pg = Pg::new(id, info, PoolView::of(&self.c.map, pool));
        pg.up_primary = place.up_primary;
        self.pgs.insert(id, pg);
        self.c.unborn.remove(&id.pg);
        self.c.pg_count = self.pgs.len();
        true
    }

    /// Whether the PG's sets stayed the same from `info.epoch` to the newest map.
    fn same_interval_until_now(&self, id: PgId, info: &PgInfo) -> bool {
        if info.epoch >= self.c.map.epoch {
            return true;
        }
        let Ok(mut map) = maphist::map_at(&*self.c.store, info.epoch) else { return false };
        while map.epoch < self.c.map.epoch {
            let Ok(next) = maphist::next(&*self.c.store, &map) else { return false };
            if !same_placement(&map, &next) {
                let place = Core::place(&next.pg_to_up_acting(id));
                let pool = |map: &OsdMap| map.pool(id.pool).map(|pool| PoolView::of(map, pool));
                let same_pool = match (pool(&map), pool(&next)) {
                    (Some(a), Some(b)) => a.same_interval(&b, id),
                    _ => false,
                };
                let sets = (&place.up, &place.acting, place.primary);
                if !same_pool || sets != (&info.up, &info.acting, info.primary) {
                    return false;
                }
            }
            map = next;
        }
        true
    }

    /// The newest map is in force.
    fn after_maps(&mut self, now: Now, mut interval: BTreeSet<SpgId>, out: &mut Outbox) {
        let me = self.c.id.whoami;
        let map = Arc::clone(&self.c.map);
        let mine = map.is_up(me)
            && map.osd_addrs(me) == Some(&self.c.id.client)
            && map.osd_cluster_addrs(me) == Some(&self.c.id.cluster);
        let serve = mine && !self.c.stopping;
        if serve && !self.c.booted {
            tracing::info!(epoch = map.epoch.0, up_from = map.up_from(me).0, "up");
            if self.c.boot_epoch == Epoch(0) {
                self.c.boot_epoch = map.up_from(me);
            }
            interval = self.pgs.keys().copied().collect();
        } else if !serve && self.c.booted {
            tracing::warn!(epoch = map.epoch.0, "the map says that this OSD is down");
            interval = self.pgs.keys().copied().collect();
        }
        self.c.booted = serve;
        self.c.leases.on_map(map.epoch);
        self.note_merges();
        let mut dropped: Vec<(ConnId, Epoch)> = Vec::new();
        for id in interval {
            let mut cx = self.c.cx(now, out);
            if let Some(pg) = self.pgs.get_mut(&id) {
                pg.on_interval(serve, &mut cx);
                dropped.append(&mut pg.dropped);
            }
        }
        if serve {
            for pg in self.pgs.values_mut() {
                pg.on_map(&mut self.c.cx(now, out));
            }
        }
        let mapping = Arc::clone(&self.c.mapping);
        let stays =
            |id: &PgId| serve && mapping.get(*id).and_then(|s| s.acting_primary) == Some(me);
        for (_, ops) in self.c.homeless.extract_if(.., |id, _| !stays(id)) {
            dropped.extend(ops.iter().map(|op| (op.conn, op.msg.epoch)));
        }
        // Clients of which nobody else has heard: without this map they would wait for another.
        for (conn, known) in dropped {
            self.share_map(conn, known, out);
        }
        let here = |id: &&PgId| self.pgs.contains_key(&self.c.spg_of(**id, me));
        let housed: Vec<PgId> = self.c.homeless.keys().filter(here).copied().collect();
        for id in housed {
            self.run_homeless(now, id, out);
        }
        // Who was to copy here may be gone.
        let pgs = &self.pgs;
        self.c.slots.backfills_lent.retain(|id| pgs.contains_key(id));
        self.update_heartbeat_peers(now);
        self.run_waiting(now, out);
        self.report_up_thru(now, out);
        self.report_merges(now, out);
        self.report(now, out);
    }

    fn trim_maps(&mut self, ops: &mut Vec<crate::backing::StoreOp>) {
        let sb = &self.c.sb;
        if sb.newest.0 < sb.oldest.0 + maphist::KEPT + 100 {
            return;
        }
        // PGs that say on disk that they stand further back are moved up first.
        let to = Epoch(sb.newest.0 - maphist::KEPT);
        for pg in self.pgs.values_mut() {
            ops.push(crate::backing::StoreOp::Create(pg.coll)); // it may be as new as the map
            pg.save_info(ops);
        }
        if let Some(oldest) = maphist::trim(&*self.c.store, to, ops) {
            self.c.sb.oldest = oldest;
        }
    }

    /// The other end of a connection has map `known`: it gets what it lacks, once.
    pub(crate) fn share_map(&mut self, conn: ConnId, known: Epoch, out: &mut Outbox) {
        let newest = self.c.map.epoch;
        let Some(session) = self.c.sessions.by_conn.get_mut(&conn) else { return };
        session.epoch = session.epoch.max(known);
        if session.epoch >= newest || known == Epoch(0) {
            return;
        }
        let (from, features, kind) = (session.epoch, session.features, session.who.kind);
        session.epoch = newest;
        let is_osd = kind == EntityKind::OSD;
        let features = if is_osd { Features::ALL } else { features };
        let messages = self.maps_after(from, features, is_osd);
        for m in messages {
            out.conn(conn, m.envelope(features));
        }
    }

    fn map_message(&self) -> OsdMapMsg {
        OsdMapMsg {
            fsid: self.c.id.fsid,
            oldest: self.c.sb.oldest,
            newest: self.c.map.epoch,
            ..OsdMapMsg::default()
        }
    }

    /// All steps from `from` to the newest map, or that map whole where they are not kept any more; a
    /// client is told then that it is the oldest there is, for one that could have steps passes
    /// over a whole map. An OSD far behind gets no more than word of it: it takes every
    /// step, and asks the monitors for what is missing.
    fn maps_after(&self, from: Epoch, features: Features, is_osd: bool) -> Vec<OsdMapMsg> {
        let near = from.0 + SHARED_MAX >= self.c.map.epoch.0;
        let mut steps = if near || !is_osd { self.steps_after(from, features) } else { Vec::new() };
        if steps.is_empty() {
            let mut m = self.map_message();
            m.oldest = if is_osd { m.oldest } else { m.newest };
            m.fulls.insert(m.newest, self.c.map.to_bytes_for(features));
            steps.push(m);
        }
        steps
    }

    /// The steps from `from` to the newest map as that peer reads them; nothing when one is not
    /// kept.
    fn steps_after(&self, from: Epoch, features: Features) -> Vec<OsdMapMsg> {
        let significant = |f: Features| f.0 & maps::SIGNIFICANT_FEATURES.0;
        let same = significant(features) == significant(Features::TENTACLE_WORD);
        let read = |e: Epoch| -> Option<Bytes> {
            let raw = maphist::delta(&*self.c.store, e)?;
            if same {
                return Some(raw);
            }
            Incremental::from_shared(&raw).ok()?.reencode(features).ok()
        };
        let mut messages: Vec<OsdMapMsg> = Vec::new();
        for (i, e) in (from.0 + 1..=self.c.map.epoch.0).map(Epoch).enumerate() {
            let Some(raw) = read(e) else { return Vec::new() };
            if i.is_multiple_of(SHARED_MAX as usize) {
                messages.push(self.map_message());
            }
            messages.last_mut().expect("just begun").incrementals.insert(e, raw);
        }
        messages
    }
}
