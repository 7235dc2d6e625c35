//! One run: a cluster is made, works, is troubled, heals, and is looked at.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};

use denc::Denc;
use maps::OsdMap;
use osd::Coll;
use serde_json::json;
use types::{OsdId, PgId};

use crate::history::{Ask, Doubt, History, Possible, Span};
use crate::operators::KEY_PREFIX;
use crate::plant::Plant;
use crate::world::{Event, SEC, Scenes, World};
use osd::memory::{Collection, Object};

/// Virtual seconds in which a new cluster must be clean.
const CREATE_SECS: u64 = 60;
/// Virtual seconds after the last fault in which all must be clean and answered.
const HEAL_SECS: u64 = 300;

/// Virtual seconds until what removed snapshots held is trimmed.
const TRIM_SECS: u64 = 120;

/// Counted among the faults: histories with too much open at a time to be checked.
const UNCHECKED: &str = "unchecked history";

/// What became of a run.
#[derive(Clone, Debug)]
pub struct Report {
    /// The seed.
    pub seed: u64,
    /// A hash of everything that happened.
    pub trace: u64,
    /// What is wrong; nothing when all is well.
    pub wrong: Vec<String>,
    /// Events handled.
    pub events: u64,
    /// Virtual nanoseconds.
    pub virtual_ns: u64,
    /// Operations asked.
    pub operations: u64,
    /// Maps made.
    pub epochs: u32,
    /// Faults, by name.
    pub faults: BTreeMap<&'static str, u64>,
    /// What real stores did, by name.
    pub deeds: BTreeMap<&'static str, u64>,
    /// Histories with too much open at a time to be checked.
    pub unchecked: u64,
    /// Virtual seconds from the end of trouble until all was clean.
    pub healed_secs: f64,
}

/// Runs one seed.
#[must_use]
pub fn run(seed: u64, plant: Option<Plant>, scenes: Scenes, verbose: bool) -> Report {
    let mut world = World::new(seed, plant, scenes);
    world.verbose = verbose;
    let mut healed = 0;
    let ended = catch_unwind(AssertUnwindSafe(|| healed = world.whole_run()));
    if let Err(e) = ended {
        let text = e
            .downcast_ref::<String>()
            .cloned()
            .or_else(|| e.downcast_ref::<&str>().map(|s| (*s).to_owned()))
            .unwrap_or_default();
        world.wrong.push(format!("panic: {text}"));
    }
    Report {
        seed,
        trace: world.trace(),
        events: world.events,
        virtual_ns: world.now,
        operations: world.asked,
        epochs: world.maps.last_key_value().map_or(0, |(e, _)| e.0),
        unchecked: world.faults.remove(UNCHECKED).unwrap_or(0),
        faults: std::mem::take(&mut world.faults),
        deeds: std::mem::take(&mut world.deeds),
        healed_secs: healed as f64 / 1e9,
        wrong: world.wrong,
    }
}

impl World {
    /// Everything; how long healing took.
    fn whole_run(&mut self) -> u64 {
        for m in 0..self.settings.mons {
            self.start_mon(m);
        }
        self.add_operators();
        for _ in 0..self.settings.osds {
            self.add_osd();
        }
        let n = self.settings.osds;
        let all_up = |w: &mut Self| {
            w.osds.iter().filter(|o| o.role.as_ref().is_some_and(osd::Osd::is_up)).count() == n
        };
        if !self.run_until(CREATE_SECS, all_up) {
            self.complain("OSDs do not come up".into());
            return 0;
        }
        self.make_pool();
        if !self.run_until(CREATE_SECS, |w| w.find_pool() && w.is_clean()) {
            let why = self.why_not_clean();
            self.complain(format!("a new pool does not become clean: {why}"));
            return 0;
        }
        if self.settings.tier.is_some() {
            self.make_cache();
            let made = |w: &mut Self| w.operators_idle() && w.has_overlay() && w.is_clean();
            if !self.run_until(CREATE_SECS, made) {
                let why = self.why_not_clean();
                self.complain(format!("a new cache does not become clean: {why}"));
                return 0;
            }
        }
        if self.settings.class {
            self.put_class(crate::uploads::STEPS[0]);
        }
        self.working = true;
        self.allow_all();
        for _ in 0..self.settings.clients {
            let depth = match self.clients.len() % 3 {
                2 => 24,
                _ => self.chance.within(1, 5) as usize,
            };
            self.add_client(depth);
        }
        if self.has_drains() {
            self.play_drains();
        }
        self.trouble = true;
        self.some_snap();
        if self.settings.tier.as_ref().is_none_or(|plan| !plan.swaps) {
            self.add_watchers();
        }
        // A cache cannot be emptied of what somebody watches, nor a small disk of what nobody removes.
        if self.seed % 8 == 3 && self.settings.tier.is_none() && !self.has_small_disks() {
            self.add_hostile();
        }
        if self.has_small_disks() {
            self.remover = self.add_client(0);
            self.clients[self.remover].tries = true;
        }
        self.after(SEC, Event::Fault);
        let trouble = self.settings.trouble / SEC;
        self.run_until(trouble, |_| false);
        if !self.wrong.is_empty() {
            return 0;
        }
        self.working = false;
        self.heal();
        let began = self.now;
        if self.has_small_disks() {
            // What copies lack needs room before all can be removed.
            if self.run_until(HEAL_SECS, |w| w.is_clean()) {
                self.drain();
            }
        }
        let well = |w: &mut Self| {
            w.clients.iter().all(|c| c.open.is_empty()) && w.operators_idle() && w.is_clean()
        };
        if !self.run_until(HEAL_SECS, well) {
            let why = self.why_not_clean();
            self.complain(format!("not healed after {HEAL_SECS} s: {why}"));
            return 0;
        }
        let healed = self.now - began;
        let names: Vec<String> = self.histories.keys().cloned().collect();
        for name in names.into_iter().filter(|n| !n.starts_with(KEY_PREFIX)) {
            self.ask(0, name, Ask::Read);
        }
        if !self.run_until(60, |w| w.clients.iter().all(|c| c.open.is_empty())) {
            self.complain("the last reads are not answered".into());
        }
        if self.settings.class {
            self.call_all();
        }
        self.check_watches();
        self.empty_cache();
        // What strays held is removed.
        self.run_until(30, |w| w.is_clean() && w.strays().is_empty());
        self.run_until(TRIM_SECS, |w| w.is_clean() && w.clones_wrong().is_none());
        if !self.repair_all() {
            self.complain(format!("{} copies stay as they cannot be read", self.spoiled()));
        }
        let flipped = self.flip_some();
        self.mend_flipped(&flipped);
        // What shards keep for taking writes back goes a while after the last one; caches
        // write down and remove what was asked of them by themselves.
        self.run_until(30, |w| w.is_clean() && w.copies_wrong().is_none());
        if self.wrong.is_empty() {
            self.check_histories();
            if let Some(why) = self.copies_wrong() {
                self.complain(why);
            }
            self.check_strays();
            if let Some(why) = self.clones_wrong() {
                self.complain(why);
            }
            self.check_monitor();
            self.check_stores();
        }
        healed
    }

    fn make_pool(&mut self) {
        let s = &self.settings;
        let Some((k, m)) = s.coded else {
            self.command(json!({"prefix": "osd pool create", "pool": "p", "pg_num": s.pg_num,
                "pgp_num": s.pg_num, "size": s.size}));
            return;
        };
        let pg_num = s.pg_num;
        // Chunks as small as the objects here are.
        let profile = [
            "plugin=isa".to_owned(),
            format!("k={k}"),
            format!("m={m}"),
            "stripe_unit=32".to_owned(),
            "crush-failure-domain=osd".to_owned(),
        ];
        self.command(json!({"prefix": "osd erasure-code-profile set", "name": "e",
            "profile": profile, "force": true, "yes_i_really_mean_it": true}));
        self.command(json!({"prefix": "osd pool create", "pool": "p", "pg_num": pg_num,
            "pgp_num": pg_num, "pool_type": "erasure", "erasure_code_profile": "e"}));
        self.command(json!({"prefix": "osd pool set", "pool": "p", "var": "allow_ec_overwrites",
            "val": "true"}));
    }

    fn find_pool(&mut self) -> bool {
        let Some(map) = self.newest() else { return false };
        let found = map.pool_names.iter().find(|(_, n)| *n == "p").map(|(id, _)| *id);
        self.pool = found.unwrap_or_default();
        found.is_some()
    }

    /// The newest version of uploaded classes that a monitor has.
    pub(crate) fn newest_classes(&self) -> u64 {
        let all = self.mons.iter().filter_map(|p| Some(p.role()?.state().classes.version));
        all.max().unwrap_or(0)
    }

    pub(crate) fn newest(&self) -> Option<OsdMap> {
        let maps = self.mons.iter().filter_map(|p| Some(&p.role()?.state().osdmap));
        maps.max_by_key(|map| map.epoch).cloned()
    }

    pub(crate) fn pgs(&self, map: &OsdMap) -> Vec<PgId> {
        let of = |pool| {
            let n = map.pool(pool).map_or(0, |p: &maps::PgPool| p.pg_num);
            (0..n).map(move |ps| PgId { pool, ps })
        };
        self.pools().flat_map(of).collect()
    }

    /// Whether every PG is active and clean by the newest map, and everybody has it.
    pub(crate) fn is_clean(&self) -> bool {
        self.first_not_clean().is_none()
    }

    fn first_not_clean(&self) -> Option<String> {
        let Some(map) = self.newest() else { return Some("no monitor".into()) };
        // Without monitors nobody has noticed, and PGs pass for whole.
        if let Some(i) = self.gone.iter().find(|i| map.is_up(OsdId(**i as i32))) {
            return Some(format!("osd.{i} is gone, and up by the map"));
        }
        for (i, p) in self.osds.iter().enumerate().filter(|(i, _)| !self.gone.contains(i)) {
            let Some(role) = &p.role else { return Some(format!("osd.{i} is dead")) };
            if role.map().epoch != map.epoch || !role.is_up() {
                return Some(format!(
                    "osd.{i} up {} has map {} of {}",
                    role.is_up(),
                    role.map().epoch,
                    map.epoch
                ));
            }
        }
        let on_its_way = |p: &&maps::PgPool| {
            (p.pg_num, p.pgp_num, p.pg_num_pending)
                != (p.pg_num_target, p.pgp_num_target, p.pg_num_target)
        };
        if let Some(p) = self.pools().filter_map(|id| map.pool(id)).find(on_its_way) {
            let (n, to, place) = (p.pg_num, p.pg_num_target, p.pgp_num);
            return Some(format!("{n} PGs placed as {place} are to be {to}"));
        }
        for pg in self.pgs(&map) {
            let sets = map.pg_to_up_acting(pg);
            let Some(primary) = sets.acting_primary else {
                return Some(format!("{pg} has no primary"));
            };
            let role = self.osds.get(Self::osd_index(primary)).and_then(|p| p.role.as_ref());
            let Some(role) = role else { return Some(format!("{pg}: osd.{primary} is dead")) };
            match role.pg_summaries().into_iter().find(|s| s.id.pg == pg && s.leads) {
                Some(s) if s.clean => {}
                Some(s) => {
                    return Some(format!(
                        "{pg} {} up {:?} acting {:?}: {}",
                        s.state,
                        sets.up.iter().map(|o| o.0).collect::<Vec<_>>(),
                        s.acting.iter().map(|o| o.0).collect::<Vec<_>>(),
                        s.why
                    ));
                }
                None => return Some(format!("{pg} is not led by its primary osd.{primary}")),
            }
        }
        None
    }

    pub(crate) fn why_not_clean(&self) -> String {
        let open: Vec<String> = self
            .clients
            .iter()
            .enumerate()
            .flat_map(|(i, c)| c.open.iter().map(move |(t, o)| (i, t, o)))
            .take(4)
            .map(|(i, t, o)| format!("client {i} tid {t} {} {:?}", o.name, o.ask))
            .collect();
        let led = self.osds.iter().enumerate().filter_map(|(i, p)| Some((i, p.role.as_ref()?)));
        let busy: Vec<String> = led
            .flat_map(|(i, role)| role.pg_summaries().into_iter().map(move |s| (i, s)))
            .filter(|(_, s)| s.leads && !s.quiet)
            .map(|(i, s)| format!("{} on osd.{i}: {}", s.id, s.why))
            .collect();
        let asked = if self.operators_idle() { "" } else { "; commands wait" };
        format!(
            "{}; open: {open:?}{asked}; busy: {busy:?}; {}{}",
            self.first_not_clean().unwrap_or_else(|| "clean".into()),
            self.why_not_heard(),
            self.why_no_quorum()
        )
    }

    /// What the leading monitor believes of PGs, where it is not what is.
    fn why_not_heard(&self) -> String {
        let Some(mon) = self.leader().and_then(|m| self.mons[m].role()) else {
            return String::new();
        };
        let (map, pgmap) = (&mon.state().osdmap, &mon.volatile().pgmap);
        let mut told = String::new();
        for pg in self.pgs(map) {
            let sets = map.pg_to_up_acting(pg);
            match pgmap.pgs.get(&pg) {
                Some(s) if (&s.up, &s.acting) == (&sets.up, &sets.acting) => {
                    let sum = &s.stats.sum;
                    if sum.num_objects_degraded > 0 || sum.num_objects_misplaced > 0 {
                        let (d, m) = (sum.num_objects_degraded, sum.num_objects_misplaced);
                        told += &format!(
                            "{pg} is said to be {}: {d} degraded, {m} misplaced; ",
                            s.state
                        );
                    }
                }
                Some(s) => {
                    told += &format!("{pg} was last heard of with {:?}, {:?}; ", s.up, s.acting)
                }
                None => told += &format!("{pg} was never heard of; "),
            }
        }
        told
    }

    fn check_histories(&mut self) {
        let histories = std::mem::take(&mut self.histories);
        // Copies, by source; then what each may be of, by target.
        let mut spans: BTreeMap<&str, Vec<(&str, usize, Span)>> = BTreeMap::new();
        for (name, history) in &histories {
            for (id, r) in history.records.iter().enumerate() {
                if let Ask::CopyFrom(source) = &r.ask {
                    spans.entry(source).or_default().push((name, id, r.times));
                }
            }
        }
        let mut copies: BTreeMap<&str, BTreeMap<usize, Possible>> = BTreeMap::new();
        let mut unknown = BTreeSet::new();
        for (source, all) in spans {
            let times: Vec<Span> = all.iter().map(|c| c.2).collect();
            let absent = History::default();
            let possible = histories.get(source).unwrap_or(&absent).possible(&times);
            for (nth, (name, id, _)) in all.into_iter().enumerate() {
                match &possible {
                    Ok(p) => drop(copies.entry(name).or_default().insert(id, p[nth].clone())),
                    Err(_) => drop(unknown.insert(name)), // its own check tells
                }
            }
        }
        let nothing = BTreeMap::new();
        for (name, history) in &histories {
            let checked = match copies.get(name.as_str()) {
                _ if unknown.contains(name.as_str()) => Err(Doubt::TooMuch),
                copies => history.check(copies.unwrap_or(&nothing)),
            };
            match checked {
                Ok(_) => {}
                Err(Doubt::Wrong(e)) => return self.complain(format!("{name}: {e}")),
                Err(Doubt::TooMuch) => *self.faults.entry(UNCHECKED).or_default() += 1,
            }
        }
    }

    /// All copies of a PG hold the same, to the last byte.
    fn copies_wrong(&self) -> Option<String> {
        let map = self.newest()?;
        if self.settings.coded.is_some() {
            return self.shards_wrong();
        }
        for pg in self.pgs(&map) {
            let mut first: Option<(OsdId, BTreeMap<types::HObject, Object>)> = None;
            for osd in map.pg_to_up_acting(pg).acting {
                let compare = |copy: Option<&Collection>| {
                    let Some(copy) = copy else { return Some(format!("{pg} is not on osd.{osd}")) };
                    let objects = &copy.objects;
                    match &first {
                        Some((_, f)) if f == objects => {}
                        Some((o, f)) => {
                            let name = f
                                .keys()
                                .chain(objects.keys())
                                .find(|k| f.get(*k) != objects.get(*k))
                                .map(ToString::to_string);
                            return Some(format!("{pg}: osd.{o} and osd.{osd} differ in {name:?}"));
                        }
                        None => first = Some((osd, objects.clone())),
                    }
                    None
                };
                let Some(p) = self.osds.get(Self::osd_index(osd)) else {
                    return Some(format!("{pg} is on osd.{osd}, which is not there"));
                };
                let wrong = p.store.with(Coll::Pg(pg.into()), compare);
                if wrong.is_some() {
                    return wrong;
                }
            }
        }
        None
    }

    /// Shards of a PG that do not hold the same objects, or do not fit each other.
    fn shards_wrong(&self) -> Option<String> {
        self.settings.coded?;
        let map = self.newest()?;
        for pg in self.pgs(&map) {
            let mut shards = Vec::new();
            for (at, osd) in map.pg_to_up_acting(pg).acting.into_iter().enumerate() {
                let spg = self.shard(pg, at);
                let all = |copy: Option<&Collection>| copy.map(|c| c.objects.clone());
                let p = self.osds.get(Self::osd_index(osd));
                let copy = p.and_then(|p| p.store.with(Coll::Pg(spg), all));
                let Some(objects) = copy else {
                    return Some(format!("{spg} is not on osd.{osd}"));
                };
                shards.push(objects);
            }
            if let Err(why) = osd::shards_agree(&map, pg.pool, &shards) {
                return Some(format!("{pg}: {why}"));
            }
        }
        None
    }

    /// Clones that should not be, or are not as their heads say.
    fn clones_wrong(&self) -> Option<String> {
        let map = self.newest()?;
        for pg in self.pgs(&map) {
            for (at, osd) in map.pg_to_up_acting(pg).acting.into_iter().enumerate() {
                let id = self.shard(pg, at);
                let fit = |copy: Option<&Collection>| {
                    let is_cache = Some(pg.pool) == self.cache;
                    copy.map_or(Ok(()), |c| osd::clones_fit(c, &self.snaps.trimmed(), is_cache))
                };
                let p = self.osds.get(Self::osd_index(osd))?;
                if let Err(why) = p.store.with(Coll::Pg(id), fit) {
                    return Some(format!("{id} on osd.{osd}: {why}"));
                }
            }
        }
        None
    }

    /// Copies that nobody needs.
    fn strays(&self) -> Vec<String> {
        let Some(map) = self.newest() else { return Vec::new() };
        let mut found = Vec::new();
        for (i, p) in self.osds.iter().enumerate().filter(|(i, _)| !self.gone.contains(i)) {
            for coll in p.store.collections() {
                let Coll::Pg(pg) = coll else { continue };
                let acting = map.pg_to_up_acting(pg.pg).acting;
                let at = usize::try_from(pg.shard.0);
                let needed = match at {
                    Ok(at) => acting.get(at) == Some(&OsdId(i as i32)),
                    Err(_) => acting.contains(&OsdId(i as i32)),
                };
                if !needed {
                    found.push(format!("{pg} on osd.{i}"));
                }
            }
        }
        found
    }

    fn check_strays(&mut self) {
        let found = self.strays();
        if !found.is_empty() {
            self.complain(format!("copies that nobody needs are left: {}", found.join(", ")));
        }
    }

    /// The monitor has heard that all is well.
    fn check_monitor(&mut self) {
        let heard = |w: &mut Self| {
            let Some(mon) = w.leader().and_then(|m| w.mons[m].role()) else { return false };
            if mon.volatile().quorum.quorum.len() != mon.state().monmap.mons.len() {
                return false;
            }
            let now = &mon.state().monmap.mons;
            // Each of them knows who leads, and that the others agree.
            let (leader, quorum) = (&mon.volatile().quorum.name, &mon.volatile().quorum.quorum);
            let roles = w.mons.iter().filter_map(|p| p.role());
            let mut known =
                roles.map(|role| &role.volatile().quorum).filter(|q| now.contains_key(&q.name));
            if !known.all(|q| q.leader == *leader && q.quorum == *quorum) {
                return false;
            }
            if w.mons.iter().any(|p| p.should_end(now)) {
                return false;
            }
            let map = &mon.state().osdmap;
            w.pgs(map).iter().all(|pg| {
                mon.volatile().pgmap.pgs.get(pg).is_some_and(|s| {
                    s.state.has(maps::PgState::ACTIVE) && s.state.has(maps::PgState::CLEAN)
                })
            })
        };
        if !self.run_until(60, heard) {
            let why = self.why_no_quorum();
            self.complain(format!("the monitors do not agree that all PGs are clean: {why}"));
        }
        self.check_mon_states();
    }

    /// Monitors that know the log equally far hold the same state, to the last byte.
    fn check_mon_states(&mut self) {
        let mut known: BTreeMap<u64, (usize, bytes::Bytes)> = BTreeMap::new();
        for (m, p) in self.mons.iter().enumerate() {
            let Some(role) = p.role() else { continue };
            if role.leads() && !role.is_settled() || role.applied() == 0 {
                continue; // it holds what is not in the log yet, or was never let in
            }
            let state = role.state().to_bytes();
            match known.get(&role.applied()) {
                Some((other, s)) if *s != state => {
                    let what = format!("monitors {other} and {m} differ at {}", role.applied());
                    return self.complain(what);
                }
                _ => drop(known.insert(role.applied(), (m, state))),
            }
        }
    }
}
