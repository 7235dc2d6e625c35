//! Data that is durable before the transaction that writes it is queued.
//!
//! A group waits for its data, and with it every transaction behind it; and a device that has
//! taken much at once makes the next flush wait, whoever's it is. So data that nobody waits for
//! goes to free space ahead, in steps that are each durable before the next, and the
//! transaction only refers to it. Until then that space is nobody's: a crash forgets it, and no
//! checkpoint counts it as used.

use bytes::Bytes;

use crate::alloc::Area;
use crate::fetch::write_ahead;
use crate::onode::BLOCK;
use crate::submit::LARGE;
use crate::{Fetch, FetchId, Store, StoreError};

/// Data at its place, or on its way there.
pub(crate) struct Staged {
    /// Of what is on its way.
    id: Option<FetchId>,
    data: Bytes,
    runs: Vec<(u64, u64)>,
}

impl Staged {
    /// Runs of blocks that are taken, and nobody's yet.
    pub(crate) fn runs(&self) -> impl Iterator<Item = (u64, u64)> {
        self.runs.iter().copied()
    }
}

fn is_same(a: &Bytes, b: &Bytes) -> bool {
    (a.as_ptr(), a.len()) == (b.as_ptr(), b.len())
}

impl Store {
    /// Begins to make `data` durable ahead of a transaction that writes it: these very bytes, to
    /// whole blocks. [`Store::fetched`] tells when that may be submitted, and gives the data
    /// back; [`Fetch::Ready`] is at once. The caller ends it by [`Store::unstage`], whatever has
    /// become of the transaction. `None` where it would not help: it is not large or not
    /// in blocks, or there is no room to spare.
    ///
    /// Cost: a clone of the data's handle; its memory until the end.
    ///
    /// # Errors
    /// [`StoreError::Io`]; without threads, the device's.
    pub fn stage(&mut self, data: &Bytes) -> Result<Option<Fetch>, StoreError> {
        let len = data.len() as u64;
        let room = self.state.available(0, self.merge_blocks());
        if len < LARGE || !len.is_multiple_of(BLOCK) || self.stopped || room < 4 * len {
            return Ok(None);
        }
        let runs = self.state.space.alloc(len / BLOCK, Area::Data)?;
        let begun = match self.threads {
            Some(_) => self.fetches.begin_ahead(data, &runs, self.freed_runs).map(Some),
            None => write_ahead(&*self.state.space.disk, data, &runs).map(|()| None),
        };
        let id = match begun {
            Ok(id) => id,
            Err(e) => {
                self.release_runs(&runs);
                return Err(e);
            }
        };
        self.staged.push(Staged { id, data: data.clone(), runs });
        Ok(Some(id.map_or_else(|| Fetch::Ready(data.clone()), Fetch::Later)))
    }

    /// What was staged is not kept any longer for a transaction to come. Nothing when it was
    /// used, or is nowhere.
    pub fn unstage(&mut self, data: &Bytes) {
        if let Some(runs) = self.take_staged(data) {
            self.release_runs(&runs);
        }
    }

    /// Something was done; whatever it was, it is not under way any longer.
    pub(crate) fn stage_done(&mut self, id: FetchId, durable: bool) {
        let Some(i) = self.staged.iter().position(|s| s.id == Some(id)) else { return };
        self.staged[i].id = None;
        if !durable {
            let staged = self.staged.swap_remove(i);
            self.release_runs(&staged.runs);
        }
    }

    /// Where `data` is, durable, if it was staged; the caller's from now on.
    pub(crate) fn take_staged(&mut self, data: &Bytes) -> Option<Vec<(u64, u64)>> {
        let fits = |s: &Staged| s.id.is_none() && is_same(&s.data, data);
        let i = self.staged.iter().position(fits)?;
        Some(self.staged.swap_remove(i).runs)
    }

    fn release_runs(&self, runs: &[(u64, u64)]) {
        runs.iter().for_each(|(start, len)| self.state.space.release(*start, *len));
    }
}
