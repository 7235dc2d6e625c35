//! Removed snapshots of clones that are not here.
//!
//! Trimming finds clones by their index, which only those have that are here. A head also
//! names clones that were evicted, and a flush names their snapshots to the base: of these
//! the removed ones must be forgotten before the snapshot counts as gone, or the base would
//! make a clone for it that nobody trims. A clone that is evicted behind the walk forgets its own.

use messages::Mutation;
use stdx::IntervalSet;
use types::{HObject, SnapId};

use crate::backing::StoreError;
use crate::pg::{Cx, Pg, own_from};
use crate::snapset;

/// Objects looked at in one go.
const LOOK_MAX: usize = 256;

/// A walk over all heads.
#[derive(Debug, Default)]
pub(super) struct Sweep {
    /// For these snapshots.
    of: IntervalSet,
    /// Where it goes on; nowhere when it is through.
    next: Option<HObject>,
}

impl Pg {
    /// Whether no head names these snapshots for a clone that is not here; otherwise it goes
    /// on looking with the next call. Always so in a pool that is no cache.
    pub(crate) fn sweep_absent(
        &mut self,
        left: &IntervalSet,
        cx: &mut Cx<'_>,
    ) -> Result<bool, StoreError> {
        if self.pool.cache.is_none() {
            return Ok(true);
        }
        if self.tier.sweep.of.intersection(left) != *left {
            self.tier.sweep = Sweep { of: left.clone(), next: Some(HObject::min()) };
        }
        let Some(from) = self.tier.sweep.next.clone() else { return Ok(true) };
        let mut page = cx.store.list(self.coll, &own_from(self.coll, &from), LOOK_MAX + 1)?;
        let next = if page.len() > LOOK_MAX { page.pop() } else { None };
        for head in page.into_iter().filter(HObject::is_head) {
            if self.is_degraded(&head) || self.tier.flushes_some(&head) {
                self.tier.sweep.next = Some(head);
                return Ok(false);
            }
            self.forget_absent(&head, cx)?;
        }
        let done = next.is_none();
        self.tier.sweep.next = next;
        Ok(done)
    }

    /// Snapshots that were removed go from the clones that the head names and that are not here.
    pub(super) fn forget_absent(
        &mut self,
        head: &HObject,
        cx: &mut Cx<'_>,
    ) -> Result<(), StoreError> {
        let mut state = self.state_of(head, cx)?;
        let Some(mut set) = state.info.snaps.as_deref().cloned() else { return Ok(()) };
        let mut changed = false;
        for (clone, snaps) in set.clone_snaps.clone() {
            let stays: Vec<SnapId> =
                snaps.iter().copied().filter(|s| !self.is_removed(*s, cx)).collect();
            if stays.len() == snaps.len() || self.has_object(&head.with_snap(clone), cx)? {
                continue;
            }
            changed = true;
            if stays.is_empty() {
                snapset::remove_clone(&mut set, clone);
            } else {
                set.clone_snaps.insert(clone, stays);
            }
        }
        if changed {
            self.load_obc(head, cx)?;
            state.info.snaps = Some(set.into());
            self.tier_write(head, vec![Mutation::Touch], state, Vec::new(), None, cx)?;
            self.note_trim();
        }
        Ok(())
    }
}
