//! Deep scrubs of erasure-coded PGs: whether the shards of an object agree with each other.
//! That each is as it was written its store tells; that what is coded is what the data makes,
//! only reading all of them.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use types::{EVersion, HObject};

use super::compare::{Finding, Shard, object, shard};
use super::{Phase, record_of};
use crate::pg::coded::{For, Want};
use crate::pg::{Cx, Pg};

/// Bytes of each shard read at once.
const PART_BYTES: u64 = 1 << 20;

/// Where a chunk's objects are looked through.
#[derive(Debug, Default)]
pub(super) struct Agree {
    begun: bool,
    /// An object, its version, and how long its shards are.
    todo: VecDeque<(HObject, EVersion, u64)>,
    off: u64,
    waits: bool,
    /// Objects whose shards do not agree, and the one that is wrong where that can be told.
    pub odd: BTreeMap<HObject, Option<usize>>,
}

impl Pg {
    /// Goes on with the chunk; whether all of it has been looked at.
    pub(super) fn look_whether_shards_agree(&mut self, cx: &mut Cx<'_>) -> bool {
        let Some(coding) = self.pool.coding.clone() else { return true };
        let me = self.me(cx.me);
        let Some(run) = &mut self.scrub.run else { return true };
        let number = coding.n();
        if !run.order.deep || run.maps.len() < number {
            return true;
        }
        if !run.agree.begun {
            run.agree.begun = true;
            let sound = |oid: &HObject| {
                run.maps.values().all(|objects| {
                    let at = objects.binary_search_by(|o| o.oid.cmp(oid));
                    at.is_ok_and(|i| !objects[i].read_error && !objects[i].stat_error)
                })
            };
            let own = run.maps.get(&me).into_iter().flatten();
            let found = own.filter(|o| o.size > 0 && sound(&o.oid)).filter_map(|o| {
                let info = record_of(o)?;
                Some((o.oid.clone(), info.version, o.size))
            });
            run.agree.todo = found.collect();
        }
        let lacking = |oid: &HObject| {
            self.missing.contains_key(oid)
                || self.peers.values().any(|p| p.missing.contains_key(oid))
        };
        while run.agree.todo.front().is_some_and(|(oid, ..)| lacking(oid)) {
            run.agree.todo.pop_front();
        }
        if run.agree.waits {
            return false;
        }
        let Some((oid, version, size)) = run.agree.todo.front().cloned() else { return true };
        let off = run.agree.off;
        run.agree.waits = true;
        let len = PART_BYTES.next_multiple_of(coding.unit).min(size - off);
        let shards = (0..number).collect();
        let want = Want { oid, version, off, len, shards, attrs: false };
        self.gather(want, For::Scrub(self.scrub.id), cx);
        false
    }

    /// A part of all shards of an object; nothing when they cannot be had, which others find.
    pub(crate) fn on_scrub_gathered(
        &mut self,
        id: u32,
        shards: Option<Vec<Option<Bytes>>>,
        cx: &mut Cx<'_>,
    ) {
        let (current, coding) = (self.scrub.id, self.pool.coding.clone());
        let Some(run) = self.scrub.run.as_mut().filter(|_| id == current) else { return };
        let (Phase::Gather, Some(coding)) = (&run.phase, coding) else { return };
        run.agree.waits = false;
        let Some((oid, _, size)) = run.agree.todo.front().cloned() else { return };
        run.agree.off += PART_BYTES.next_multiple_of(coding.unit);
        let odd = shards.as_ref().is_some_and(|s| !coding.agrees(s).is_empty());
        if odd && let Some(shards) = &shards {
            run.agree.odd.insert(oid, coding.odd_one(shards));
        }
        if odd || shards.is_none() || run.agree.off >= size {
            run.agree.todo.pop_front();
            run.agree.off = 0;
        }
        self.drive_scrub(cx);
    }
}

impl Finding {
    /// The shards of an object do not agree; `odd` is the one that is wrong, if that is known.
    pub(super) fn not_agreeing(mut shards: Vec<Shard>, oid: &HObject, odd: Option<usize>) -> Self {
        let info = shards.iter().filter_map(|s| s.object.as_ref()).find_map(record_of);
        for s in &mut shards {
            match odd {
                Some(odd) if s.osd.shard.0 as usize == odd => s.errors |= shard::EC_HASH,
                Some(_) => {}
                None => s.differs |= object::DATA_DIGEST,
            }
        }
        let errors = if odd.is_none() { object::DATA_DIGEST } else { 0 };
        Self {
            oid: oid.clone(),
            errors,
            shards,
            version: odd.and(info.as_ref().map(|i| i.version)),
            user_version: info.map_or(0, |i| i.user_version),
            surplus: false,
        }
    }
}
