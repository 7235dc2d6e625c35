//! Objects that come from the base.

use std::sync::Arc;

use messages::Mutation;
use types::{HObject, ObjectLocator, SnapId};

use super::{Busy, CacheView};
use crate::backing::StoreError;
use crate::copy::{CopyWanted, Source};
use crate::exec::CopyContent;
use crate::object::{ObjectInfo, ObjectState};
use crate::pg::ops::Answer;
use crate::pg::{Cx, Pg};
use crate::session::{ClientOp, enqueue};
use crate::snapset;

/// How many answered requests move with an object.
const ANSWERED_MAX: usize = 64;

/// Changes that make an empty object this content; its record is the caller's affair.
fn mutations_of(c: &CopyContent) -> Vec<Mutation> {
    let mut all = vec![Mutation::Touch];
    if !c.data.is_empty() {
        all.push(Mutation::Write { off: 0, data: c.data.clone() });
    }
    if c.state.info.size > c.data.len() as u64 {
        all.push(Mutation::Truncate(c.state.info.size));
    }
    for (name, value) in &c.attrs {
        all.push(Mutation::SetAttr(name.clone(), value.clone()));
    }
    if !c.header.is_empty() {
        all.push(Mutation::OmapHeader(c.header.clone()));
    }
    if !c.omap.is_empty() {
        all.push(Mutation::OmapSet(c.omap.clone()));
    }
    all
}

/// The record of a promoted object: what users see of it, and that it is clean.
fn record_of(c: &CopyContent) -> ObjectInfo {
    ObjectInfo {
        version: types::EVersion::ZERO,
        watchers: Default::default(),
        snaps: None,
        clone_snaps: Vec::new(),
        whiteout: !c.state.exists,
        clean: true,
        pinned: false,
        ..c.state.info.clone()
    }
}

impl Pg {
    /// Fetches an object or a clone from the base; `op` waits for it.
    pub(super) fn promote(
        &mut self,
        op: Option<Box<ClientOp>>,
        oid: HObject,
        view: &Arc<CacheView>,
        cx: &mut Cx<'_>,
    ) {
        let head = oid.with_snap(SnapId::HEAD).detached();
        // It is a write, which all copies must be able to follow.
        let degraded = [&head, &oid].into_iter().find(|o| self.is_degraded(o)).cloned();
        if let Some(lacks) = degraded {
            if let Some(mut op) = op {
                op.waited = true;
                enqueue(self.blocked.entry(head).or_default(), op);
                self.recover_first(&lacks, cx);
            }
            return;
        }
        let seq = self.tier.token();
        let locator = ObjectLocator {
            pool: view.base,
            key: oid.key.clone(),
            nspace: oid.nspace.clone(),
            ..ObjectLocator::default()
        };
        // Of a head its record is wanted also when there are only clones.
        let snap = if oid.is_head() { SnapId::DIR } else { oid.snap };
        let source = Source { oid: oid.name.clone(), locator, snap, direct: true };
        self.hold_for(&head, Busy::Promote(oid.clone(), seq));
        if let Some(op) = op {
            enqueue(self.blocked.entry(head).or_default(), op);
        }
        cx.copies.push(CopyWanted { target: (self.id, oid), seq, source });
    }

    /// It is here, or the base has none.
    pub(crate) fn on_promoted(&mut self, oid: &HObject, content: CopyContent, cx: &mut Cx<'_>) {
        let head = oid.with_snap(SnapId::HEAD).detached();
        // What this cache's logs do not take stays in the base.
        let taken = || {
            let (none, record) = (ObjectState::default(), record_of(&content));
            let after = ObjectState { exists: true, info: record };
            self.require_log(oid, &none, &after, &mutations_of(&content), cx)
        };
        if let Some(e) = content.failed.or_else(|| taken().err()) {
            self.tier.busy.remove(&head);
            for op in self.blocked.remove(&head).unwrap_or_default() {
                Answer::error(&op, e).send(&op, cx);
            }
            return;
        }
        if [&head, oid].into_iter().all(|o| !self.is_degraded(o))
            && let Err(e) = self.install(oid, content, cx)
        {
            tracing::error!(pg = %self.id, %oid, "promoting: {e}");
        }
        self.let_go(&head, cx);
    }

    fn install(
        &mut self,
        oid: &HObject,
        c: CopyContent,
        cx: &mut Cx<'_>,
    ) -> Result<(), StoreError> {
        let head = oid.with_snap(SnapId::HEAD).detached();
        self.load_obc(&head, cx)?;
        let was = self.obcs[&head].state.clone();
        let mut state = ObjectState { exists: c.state.exists, info: record_of(&c) };
        let mutations = mutations_of(&c);
        if oid.is_head() {
            if was.is_stored() {
                return Ok(()); // written with IGNORE_CACHE meanwhile
            }
            if !state.exists {
                let user_version = state.info.user_version;
                state.info =
                    ObjectInfo { user_version, whiteout: true, clean: true, ..Default::default() };
            }
            state.info.snaps = c.state.info.snaps.clone();
            return self.tier_write(oid, mutations, state, c.answered, None, cx);
        }
        let Some(set) = was.info.snaps.as_deref() else { return Ok(()) };
        let Some(serves) = set.clone_snaps.get(&oid.snap) else { return Ok(()) };
        if self.has_object(oid, cx)? {
            return Ok(());
        }
        if !state.exists {
            // Trimmed there: nobody asks for it again.
            let mut after = was.clone();
            let mut set = set.clone();
            snapset::remove_clone(&mut set, oid.snap);
            after.info.snaps = Some(set.into());
            return self.tier_write(&head, vec![Mutation::Touch], after, Vec::new(), None, cx);
        }
        state.info.clone_snaps.clone_from(serves);
        self.tier_write(oid, mutations, state, Vec::new(), None, cx)
    }

    /// What goes with the last part of an object that is copied from here, where it may be on
    /// its way to another tier.
    pub(crate) fn answered_with(
        &self,
        part: &messages::Push,
        cx: &Cx<'_>,
    ) -> Vec<messages::Answered> {
        let pool = cx.map.pool(self.id.pg.pool);
        let tiers = pool.is_some_and(|p| p.is_tier() || !p.tiers.is_empty());
        if !tiers || !(part.last || part.absent) {
            return Vec::new();
        }
        self.requests_of(&part.oid)
    }

    /// Requests that changed the object, for where it goes.
    pub(super) fn requests_of(&self, oid: &HObject) -> Vec<messages::Answered> {
        self.log.answered(&oid.with_snap(SnapId::HEAD), ANSWERED_MAX)
    }

    /// An object that is to be copied from here is not here: it comes, and is asked for again.
    pub(crate) fn promote_to_copy(&mut self, oid: &HObject, cx: &mut Cx<'_>) {
        let head = oid.with_snap(SnapId::HEAD);
        if let Some(view) = self.pool.cache.clone()
            && !self.blocked.contains_key(&head)
        {
            self.promote(None, oid.detached(), &view, cx);
        }
    }
}
