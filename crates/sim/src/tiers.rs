//! A cache tier over the pool: set up, changed by operators in trouble, emptied, taken away and
//! set again; and what must hold of it in the end.
//!
//! Taking an overlay away goes as the peer's page for operators says: the cache mode `proxy`, so
//! that nothing comes any more; all flushed and evicted; then the overlay goes. It is set again
//! over an empty cache, and only then the mode is `writeback` again.

use bytes::Bytes;
use messages::{OsdOp, op, req_flag};
use osd::Coll;
use osdc::Request;
use serde_json::json;
use types::{HObject, PgId, PoolId, SnapId, UTime};

use crate::history::Ask;
use crate::operators::KEY_PREFIX;
use crate::world::{Chance, Node, World};

/// Virtual seconds in which a cache is emptied when nothing stands in its way.
const EMPTY_SECS: u64 = 200;

/// What a cache is like at the start.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Copies.
    pub size: usize,
    /// PGs.
    pub pg_num: u32,
    /// Kind of hit sets; empty for none.
    pub hits: &'static str,
    /// `min_read_recency_for_promote` and the same for writes.
    pub recency: u64,
    /// `target_max_objects`.
    pub objects: u64,
    /// The overlay is taken away and set again; nobody watches, for what is watched stays in
    /// the cache, and nothing is copied, for that promotes in every mode.
    pub swaps: bool,
}

impl Plan {
    pub(crate) fn draw(chance: &mut Chance, osds: usize) -> Self {
        Self {
            size: chance.of(&[2, 3, 3]).min(osds),
            pg_num: chance.within(1, 7) as u32,
            hits: chance.of(&["", "bloom", "explicit_hash", "explicit_object"]),
            recency: chance.below(3),
            objects: chance.within(1, 12),
            swaps: chance.one_in(2),
        }
    }
}

/// Where the overlay is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// Clients are led to the cache.
    #[default]
    Over,
    /// They are, and it is being emptied.
    Emptying,
    /// They are not.
    Off,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Tiering {
    state: State,
}

impl World {
    /// The base and its cache.
    pub(crate) fn pools(&self) -> impl Iterator<Item = PoolId> + use<> {
        std::iter::once(self.pool).chain(self.cache)
    }

    fn set_cache(&mut self, var: &str, val: &str) {
        self.command(json!({"prefix": "osd pool set", "pool": "c", "var": var, "val": val}));
    }

    fn cache_mode(&mut self, mode: &str) {
        self.command(json!({"prefix": "osd tier cache-mode", "pool": "c", "mode": mode}));
    }

    /// Makes the cache that the plan wants.
    pub(crate) fn make_cache(&mut self) {
        let Some(plan) = self.settings.tier.clone() else { return };
        self.command(json!({"prefix": "osd pool create", "pool": "c", "pg_num": plan.pg_num,
            "pgp_num": plan.pg_num, "size": plan.size}));
        self.command(json!({"prefix": "osd tier add", "pool": "p", "tierpool": "c"}));
        self.cache_mode("writeback");
        self.set_targets(false);
        self.set_hits(plan.hits);
        for var in ["min_read_recency_for_promote", "min_write_recency_for_promote"] {
            self.set_cache(var, &plan.recency.to_string());
        }
        self.command(json!({"prefix": "osd tier set-overlay", "pool": "p", "overlaypool": "c"}));
    }

    fn set_hits(&mut self, kind: &str) {
        if kind.is_empty() {
            return self.set_cache("hit_set_count", "0");
        }
        self.set_cache("hit_set_type", kind);
        self.set_cache("hit_set_count", "3");
        self.set_cache("hit_set_period", "7");
    }

    /// How much the cache may hold; all that is there must leave it when it is to be `empty`.
    fn set_targets(&mut self, empty: bool) {
        let Some(plan) = &self.settings.tier else { return };
        let objects = if empty { 1 } else { plan.objects * u64::from(plan.pg_num) };
        self.set_cache("target_max_objects", &objects.to_string());
        let (dirty, full) = if empty { ("0", "0.000001") } else { ("0.4", "0.8") };
        self.set_cache("cache_target_dirty_ratio", dirty);
        self.set_cache("cache_target_full_ratio", full);
    }

    /// Whether the cache is there and clients are led to it.
    pub(crate) fn has_overlay(&mut self) -> bool {
        let Some(map) = self.newest() else { return false };
        let found = map.pool_names.iter().find(|(_, n)| *n == "c").map(|(id, _)| *id);
        self.cache = found;
        found.is_some() && map.pool(self.pool).map(|p| PoolId(p.read_tier)) == found
    }

    /// Something happens to the cache: by an operator, one thing at a time.
    pub(crate) fn tier_step(&mut self) {
        let Some(plan) = self.settings.tier.clone() else { return };
        self.move_some();
        if !self.operators_idle() {
            return;
        }
        match self.tiering.state {
            State::Over => match self.chance.below(8) {
                0..=2 if plan.swaps => {
                    self.begin_emptying();
                    self.note("empty a cache");
                }
                3 => {
                    let mode = self.chance.of(&["writeback", "writeback", "readproxy", "proxy"]);
                    self.cache_mode(mode);
                    self.note("cache mode");
                }
                4 => {
                    let n = self.chance.within(1, 9);
                    self.set_cache("target_max_objects", &n.to_string());
                    self.note("cache target");
                }
                5 => {
                    let kind = self.chance.of(&["", "bloom", "explicit_hash", "explicit_object"]);
                    self.set_hits(kind);
                    self.note("hit sets");
                }
                6 => {
                    let n = self.chance.within(1, 9).to_string();
                    for var in ["pg_num", "pgp_num"] {
                        self.command(json!({"prefix": "osd pool set", "pool": "c", "var": var,
                            "val": n, "yes_i_really_mean_it": true}));
                    }
                    self.note("other PGs of a cache");
                }
                _ => {}
            },
            State::Emptying if self.is_cache_empty() => {
                self.command(json!({"prefix": "osd tier remove-overlay", "pool": "p"}));
                self.tiering.state = State::Off;
                self.note("remove an overlay");
            }
            State::Emptying if self.chance.one_in(12) => self.begin_caching(),
            State::Off if self.chance.one_in(3) && self.is_cache_empty() => {
                self.begin_caching();
                self.note("set an overlay");
            }
            _ => {}
        }
    }

    /// A cache that is full of what cannot leave, as objects that are watched, keeps requests
    /// waiting as long as it is told to: not any more.
    pub(crate) fn tier_heal(&mut self) {
        if self.cache.is_some() {
            self.set_cache("target_max_objects", "0");
        }
    }

    fn note(&mut self, what: &'static str) {
        *self.faults.entry(what).or_default() += 1;
        self.tell(|| format!("cache: {what}"));
    }

    fn begin_emptying(&mut self) {
        self.cache_mode("proxy");
        self.set_targets(true);
        if self.tiering.state == State::Over {
            self.tiering.state = State::Emptying;
        }
    }

    fn begin_caching(&mut self) {
        self.command(json!({"prefix": "osd tier set-overlay", "pool": "p", "overlaypool": "c"}));
        self.cache_mode("writeback");
        self.set_targets(false);
        self.tiering.state = State::Over;
    }

    /// A client asks for an object to be flushed or evicted, as `rados cache-flush` does.
    fn move_some(&mut self) {
        let (Some(pool), false) = (self.cache, self.histories.is_empty()) else { return };
        for _ in 0..self.chance.below(3) {
            let i = self.chance.index(self.settings.clients);
            let name = Bytes::from(format!("o{}", self.chance.index(self.settings.objects)));
            let code = self.chance.of(&[op::CACHE_FLUSH, op::CACHE_TRY_FLUSH, op::CACHE_EVICT]);
            let snap = match self.chance.below(3) {
                0 => self.snaps.some(&mut self.chance).map_or(SnapId::HEAD, SnapId),
                _ => SnapId::HEAD,
            };
            let hash = HObject::hash_of(b"", &name);
            let wall = self.clock(Node::Client(i)).wall_ns;
            let past = req_flag::IGNORE_CACHE | req_flag::IGNORE_OVERLAY | req_flag::SKIPRWLOCKS;
            let request = Request {
                object: HObject { pool, hash, name, snap, ..HObject::min() },
                pg: None,
                ops: vec![OsdOp::new(code, Bytes::new())],
                flags: req_flag::READ | past,
                mtime: UTime::from_nanos(wall),
                snaps: (SnapId(0), Vec::new()),
            };
            let tid = self.client_do(i, |o, out| o.submit(request, out));
            self.tell(|| format!("client {i} moves by {code:x}, tid {tid}"));
        }
    }

    /// What is left in the cache, that is not one of its own archives; `None` when nothing is,
    /// nothing is under way, and everybody knows that nothing comes. With `watched`, what was
    /// flushed of the objects that somebody watches may stay.
    fn left_in_cache(&self, watched: bool) -> Option<String> {
        let cache = self.cache?;
        let Some(map) = self.newest() else { return Some("no monitor says what there is".into()) };
        let mode = map.pool(cache).map(maps::PgPool::mode);
        if mode != Some(maps::CacheMode::Proxy) {
            return Some(format!("the cache is {mode:?}"));
        }
        for (i, p) in self.osds.iter().enumerate() {
            let Some(role) = &p.role else { continue };
            if role.map().pool(cache).map(maps::PgPool::mode) != mode {
                return Some(format!("osd.{i} has an older map"));
            }
            let busy = |s: &osd::PgSummary| s.id.pg.pool == cache && !s.quiet;
            if let Some(s) = role.pg_summaries().into_iter().find(busy) {
                return Some(format!("{} is at work on osd.{i}: {}", s.id, s.why));
            }
        }
        for ps in 0..map.pool(cache).map_or(0, |p| p.pg_num) {
            let pg = PgId { pool: cache, ps };
            let Some(primary) = map.pg_to_up_acting(pg).acting_primary else {
                return Some(format!("{pg} has no primary"));
            };
            let Some(p) = self.osds.get(Self::osd_index(primary)) else { continue };
            let Some(role) = &p.role else { return Some(format!("{primary} is dead")) };
            let leads = |s: &osd::PgSummary| s.id.pg == pg && s.leads && s.missing == 0;
            if !role.pg_summaries().iter().any(leads) {
                return Some(format!("{pg} is not led"));
            }
            let left = p.store.with(Coll::Pg(pg.into()), |copy| {
                let copy = copy?;
                let dirty = osd::dirty(copy);
                let stays = |o: &HObject| {
                    o.nspace == ".ceph-internal"
                        || (watched && o.name.starts_with(b"w") && !dirty.contains(o))
                };
                let oid = copy.objects.keys().find(|o| o.pool.0 >= 0 && !stays(o))?;
                let what = if dirty.contains(oid) { "dirty" } else { "clean" };
                Some(format!("{oid} is {what} on osd.{primary}"))
            });
            if left.is_some() {
                return left;
            }
        }
        None
    }

    fn is_cache_empty(&self) -> bool {
        self.left_in_cache(false).is_none()
    }

    /// All has healed: the cache is emptied, its overlay goes, and every object is read in the
    /// base.
    pub(crate) fn empty_cache(&mut self) {
        let Some(plan) = self.settings.tier.clone() else { return };
        self.begin_emptying();
        let watched = !plan.swaps;
        if !self.run_until(EMPTY_SECS, |w| w.left_in_cache(watched).is_none()) {
            let why = self.left_in_cache(watched).unwrap_or_default();
            return self.complain(format!("the cache is not emptied: {why}"));
        }
        if watched {
            return;
        }
        self.command(json!({"prefix": "osd tier remove-overlay", "pool": "p"}));
        let known = |w: &mut Self| {
            let pool = w.pool;
            let gone = |map: &maps::OsdMap| map.pool(pool).is_some_and(|p| p.read_tier < 0);
            w.clients[0].objecter.map().is_some_and(|map| gone(map)) && w.is_clean()
        };
        if !self.run_until(60, known) {
            return self.complain("clients do not hear that the overlay is gone".into());
        }
        let names: Vec<String> = self.histories.keys().cloned().collect();
        for name in names.into_iter().filter(|n| !n.starts_with(KEY_PREFIX)) {
            self.ask(0, name, Ask::Read);
        }
        if !self.run_until(60, |w| w.clients.iter().all(|c| c.open.is_empty())) {
            self.complain("the base does not answer the last reads".into());
        }
    }
}
