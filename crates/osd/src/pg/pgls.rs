//! Listing a PG's objects.

use bytes::Bytes;
use cls::Filter;
use denc::{Denc, Features, Reader, Writer};
use messages::op;
use types::{HObject, SnapId};

use super::ops::Answer;
use super::tier::hits::INTERNAL_NAMESPACE;
use super::{Cx, Pg};
use crate::session::ClientOp;
use crate::snapset::{self, Found};
use types::{Errno, OpResult};

/// `osd_max_pgls`.
const ENTRIES_MAX: u64 = 1_024;
/// The namespace that stands for all.
const ALL_NAMESPACES: &[u8] = b"\x01";

/// The filter of a listing and the place to go on from.
fn parse_filter(input: &Bytes) -> OpResult<(Filter, HObject)> {
    let mut r = Reader::shared(input);
    // Two names that the peer sends and does not use.
    for _ in 0..2 {
        r.blob().map_err(|_| Errno::INVAL)?;
    }
    let filter = Filter::parse(&mut r)?;
    Ok((filter, HObject::decode(&mut r).map_err(|_| Errno::INVAL)?))
}

impl Pg {
    pub(super) fn do_pg_op(&mut self, op: Box<ClientOp>, cx: &mut Cx<'_>) {
        if !self.missing.is_empty() {
            self.waiting_whole.push_back(op); // until all names are here
            return;
        }
        let mut answer = Answer::error(&op, Errno(0));
        answer.user_version = self.last_user_version();
        let ends = |(out, end): (Bytes, bool)| (out, i32::from(end));
        for (i, asked) in op.msg.ops.iter().enumerate() {
            let done = match asked.code {
                op::PGNLS => {
                    let cursor = HObject::decode(&mut Reader::new(&asked.data));
                    let cursor = cursor.map_err(|_| Errno::INVAL);
                    cursor.and_then(|at| self.pgnls(&op, asked.u64(0), at, None, cx)).map(ends)
                }
                op::PGNLS_FILTER => parse_filter(&asked.data)
                    .and_then(|(f, at)| self.pgnls(&op, asked.u64(0), at, Some(&f), cx))
                    .map(ends),
                op::PG_HITSET_LS => Ok((self.hit_set_list(cx), 0)),
                op::PG_HITSET_GET => {
                    let at = types::UTime { sec: asked.u32(0), nsec: asked.u32(4) };
                    self.hit_set_get(at, cx).map(|out| (out.clone(), out.len() as i32))
                }
                op::SCRUBLS => self.scrub_ls(&op, &asked.data, cx).map(|out| (out, 0)),
                _ => Err(Errno::OPNOTSUPP),
            };
            match done {
                Ok((out, result)) => {
                    answer.ops[i].data = out;
                    answer.result = result;
                }
                Err(e) => {
                    answer.result = e.0;
                    break;
                }
            }
        }
        answer.send(&op, cx);
    }

    /// First and end of the PG's objects.
    fn bounds(&self) -> (HObject, HObject) {
        let (start, end) = self.id.pg.hash_range(self.pool.pg_num);
        let at = |reversed: u64, snap| HObject {
            pool: self.id.pg.pool,
            hash: (reversed as u32).reverse_bits(),
            snap,
            ..HObject::min()
        };
        let first = at(start, SnapId(0));
        let end = if end > u64::from(u32::MAX) { HObject::max() } else { at(end, SnapId::HEAD) };
        (first, end)
    }

    /// Whether the object exists, or did at that snapshot. A head may be kept for clones
    /// alone; where there are none its record is not looked at.
    fn is_there(&self, head: &HObject, at: SnapId, cx: &Cx<'_>) -> OpResult<bool> {
        let now = matches!(at, SnapId::HEAD | SnapId::DIR);
        // Of a cache all is shown that is in it, whiteouts too.
        if !self.pool.had_snaps || (now && self.pool.cache.is_some()) {
            return Ok(true);
        }
        let state = Self::read_state(cx.store, self.coll, head)?;
        Ok(match at {
            SnapId::HEAD | SnapId::DIR => state.exists,
            at => snapset::find(&state, at) != Found::Nowhere,
        })
    }

    /// The answer, and whether it ends the PG.
    fn pgnls(
        &self,
        op: &ClientOp,
        count: u64,
        cursor: HObject,
        filter: Option<&Filter>,
        cx: &Cx<'_>,
    ) -> OpResult<(Bytes, bool)> {
        let (first, end) = self.bounds();
        let mut cursor = if cursor == HObject::min() { first.clone() } else { cursor };
        if cursor < first || cursor >= end {
            return Err(Errno::INVAL);
        }
        let wanted = &op.msg.locator.nspace;
        let max = count.min(ENTRIES_MAX) as usize;
        let mut found: Vec<HObject> = Vec::new();
        let next = loop {
            let page = cx.store.list(self.coll, &cursor, 512)?;
            let full = page.len() == 512;
            let mut stop = None;
            for oid in page {
                if full && found.len() < max {
                    cursor = oid.with_snap(SnapId(oid.snap.0.saturating_add(1)));
                }
                let skipped = oid.snap != SnapId::HEAD
                    || oid.nspace == INTERNAL_NAMESPACE
                    || (wanted != ALL_NAMESPACES && oid.nspace != *wanted);
                if skipped || !self.is_there(&oid, op.msg.snapid, cx)? {
                    continue;
                }
                if let Some(filter) = filter {
                    let attr = match filter.attr() {
                        Some(name) => cx.store.attr(self.coll, &oid, name)?,
                        None => None,
                    };
                    if !filter.passes(&oid.name, attr.as_ref()) {
                        continue;
                    }
                }
                if found.len() >= max {
                    stop = Some(oid);
                    break;
                }
                found.push(oid);
            }
            if let Some(oid) = stop {
                break oid;
            }
            if !full {
                break end.clone();
            }
        };
        let done = next == end;
        let mut w = Writer::with_capacity(Features::ALL, 64 + found.len() * 48);
        w.framed(1, 1, |w| {
            next.encode(w);
            w.seq(&found, |w, o| {
                w.blob(&o.nspace);
                w.blob(&o.name);
                w.blob(&o.key);
            });
        });
        Ok((w.finish(), done))
    }
}
