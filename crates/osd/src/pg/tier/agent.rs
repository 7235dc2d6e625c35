//! The agent: flushes what is dirty beyond the pool's ratio and evicts what is beyond its
//! target, in the background, one PG's part of the targets at a time.
//!
//! | mode | when (parts of the PG's share of `target_max_*`) | what |
//! |---|---|---|
//! | idle | below `cache_target_dirty_ratio`, `cache_target_full_ratio` | nothing |
//! | flush | dirty beyond the ratio | flushes; twice as many at once beyond the high ratio |
//! | evict | beyond the full ratio | evicts what is clean, what was used lately last |
//! | full | beyond the target | evicts whatever is clean; what is not here waits |
//!
//! Source: the peer's `PrimaryLogPG::{agent_work, agent_choose_mode}`.

use maps::OsdMapFlags;
use types::HObject;

use super::CacheView;
use super::hits::INTERNAL_NAMESPACE;
use crate::pg::{Cx, Pg, State, own_from};

/// Objects looked at in one go.
const LOOK_MAX: usize = 64;
/// What evicting an object counts for beside clients, bytes.
const EVICT_COST: u64 = 16 << 10;

#[derive(Debug, Default)]
pub(super) struct Agent {
    /// The PG holds more than its target.
    pub full: bool,
    /// Flushes under way.
    running: usize,
    /// Where it looks next.
    cursor: Option<HObject>,
    /// Whether it did anything since it began at the PG's first object.
    did: bool,
    /// The last look at all objects brought nothing: what is warm goes, too.
    desperate: bool,
}

impl Agent {
    pub fn reset(&mut self) {
        self.running = 0;
    }
}

/// What is to be done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Mode {
    flush: bool,
    hurry: bool,
    evict: bool,
    full: bool,
}

/// Millionths of the targets that so many objects and bytes are; the larger of both.
fn part(view: &CacheView, objects: u64, bytes: u64) -> u64 {
    let of = |n: u64, target: u64| match target {
        0 => 0,
        t => (u128::from(n) * 1_000_000 / u128::from(t)) as u64,
    };
    of(objects, view.objects_target).max(of(bytes, view.bytes_target))
}

impl Pg {
    fn agent_mode(&self, view: &CacheView) -> Mode {
        let c = self.counts();
        let positive = |n: i64| u64::try_from(n).unwrap_or(0);
        // Archives of hit sets are not users' objects; they are clean.
        let (archives, archive_bytes) = self.tier.hits.archived();
        let (objects, clean) = (positive(c.objects - archives), c.clean - archives);
        let bytes = positive(c.bytes - archive_bytes);
        let dirty = positive(c.objects - c.clean).saturating_sub(self.tier.agent.running as u64);
        let dirty_bytes = bytes.checked_div(objects).unwrap_or(0) * dirty;
        let (is_dirty, has) = (part(view, dirty, dirty_bytes), part(view, objects, bytes));
        let evict = has > view.full_micro && view.full_micro > 0;
        Mode {
            // Nothing but flushing helps where all is dirty.
            flush: is_dirty > view.dirty_micro || (evict && dirty > 0 && clean <= 0),
            hurry: is_dirty > view.dirty_high_micro.max(view.dirty_micro),
            evict,
            full: has > 1_000_000,
        }
    }

    /// Goes on as far as it may.
    pub(crate) fn kick_agent(&mut self, cx: &mut Cx<'_>) {
        let Some(view) = self.pool.cache.clone() else { return };
        if self.state != State::Active || !self.is_serving() || !self.may_read(cx) {
            return;
        }
        let mut mode = self.agent_mode(&view);
        self.tier.agent.full = mode.full;
        if !mode.full && !self.tier.full.is_empty() {
            let ops = std::mem::take(&mut self.tier.full);
            self.go_on(ops, cx);
        }
        if cx.map.flags.has(OsdMapFlags::NOTIERAGENT) || !self.missing.is_empty() {
            return;
        }
        let from = self.tier.agent.cursor.take().unwrap_or_else(HObject::min);
        if from == HObject::min() {
            self.tier.agent.did = false;
        }
        let mut looked = 0;
        let mut at = from;
        while mode.flush || mode.evict {
            let most = cx.conf.agent_ops_max.max(1) / if mode.hurry { 1 } else { 2 };
            if looked >= LOOK_MAX || (mode.flush && self.tier.agent.running >= most.max(1)) {
                self.tier.agent.cursor = Some(at);
                return;
            }
            if !cx.may_start() {
                self.tier.agent.cursor = Some(at);
                cx.pace.wait(self.id);
                return;
            }
            let listed = cx.store.list(self.coll, &own_from(self.coll, &at), 2);
            let Ok(mut page) = listed else { return };
            let next = if page.len() > 1 { page.pop() } else { None };
            if let Some(oid) = page.pop() {
                looked += 1;
                if self.agent_look(&oid, mode, &view, cx) {
                    self.tier.agent.did = true;
                    mode = self.agent_mode(&view);
                }
            }
            match next {
                Some(next) => at = next,
                None => {
                    // The end; it begins anew with the next tick.
                    self.tier.agent.desperate = !self.tier.agent.did;
                    return;
                }
            }
        }
        self.tier.agent.desperate = false;
    }

    /// Flushes or evicts the object if that is right; whether it does.
    fn agent_look(&mut self, oid: &HObject, mode: Mode, view: &CacheView, cx: &mut Cx<'_>) -> bool {
        let head = oid.with_snap(types::SnapId::HEAD).detached();
        let quiet = self.obcs.get(&head).is_none_or(|o| o.in_flight == 0 && o.waiting.is_empty());
        if !quiet
            || oid.nspace == INTERNAL_NAMESPACE
            || self.blocked.contains_key(&head)
            || self.tier.flushes.contains_key(oid)
            || self.is_degraded(&head)
            || self.is_degraded(oid)
            || self.scrub.blocks(&head)
            || self.load_obc(&head, cx).is_err()
        {
            return false;
        }
        let Ok(state) = self.state_of(oid, cx) else { return false };
        if !state.is_stored() || state.info.pinned {
            return false;
        }
        let age_s = cx.now.wall_ns.saturating_sub(state.info.mtime.nanos()) / 1_000_000_000;
        let old = |least: u32| mode.full || age_s >= u64::from(least);
        if !state.info.clean {
            let begins = mode.flush
                && old(view.flush_age_s)
                && self.begin_flush(oid, &state, false, view, cx).is_ok();
            if begins {
                self.tier.agent.running += 1;
                cx.pace.charge(state.info.size, cx.now);
            }
            return begins;
        }
        let warm = view.hit_kind != 0 && self.tier.hits.is_warm(&head);
        let spared = warm && !mode.full && !self.tier.agent.desperate;
        let evicts = mode.evict
            && old(view.evict_age_s)
            && !spared
            && self.may_evict(oid, &state, cx).is_ok();
        if evicts {
            self.evict(oid, None, cx);
            cx.pace.charge(EVICT_COST, cx.now);
        }
        evicts
    }

    /// A flush of the agent's has ended.
    pub(super) fn agent_done(&mut self, cx: &mut Cx<'_>) {
        self.tier.agent.running = self.tier.agent.running.saturating_sub(1);
        self.kick_agent(cx);
    }
}
