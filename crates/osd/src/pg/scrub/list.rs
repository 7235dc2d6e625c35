//! SCRUBLS: what the last scrub found, as `rados list-inconsistent-obj` asks for it.

use bytes::Bytes;
use denc::{DecodeError, Denc, Reader, Writer};
use types::{Errno, HObject, OpResult, SnapId};

use crate::pg::{Cx, Pg};
use crate::session::ClientOp;

/// The peer's `scrub_ls_arg_t`, 1/1.
struct Ask {
    interval: u32,
    snapsets: bool,
    /// After this one: namespace, name, snapshot.
    after: (Bytes, Bytes, SnapId),
    max: u64,
}

impl Ask {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("scrub_ls_arg_t", 1, |r, _| {
            let (interval, snapsets) = (r.u32()?, r.u32()? != 0);
            let (name, nspace, snap) = (r.blob()?, r.blob()?, SnapId(r.u64()?));
            Ok(Self { interval, snapsets, after: (nspace, name, snap), max: r.u64()? })
        })
    }
}

impl Pg {
    /// The output: the interval, and a `inconsistent_obj_t` for each.
    pub(crate) fn scrub_ls(&self, op: &ClientOp, input: &Bytes, cx: &Cx<'_>) -> OpResult<Bytes> {
        let ask = Ask::decode(&mut Reader::shared(input)).map_err(|_| Errno::INVAL)?;
        let interval = self.interval();
        if ask.interval != 0 && ask.interval != interval.0 {
            return Err(Errno::AGAIN);
        }
        if !self.scrub.known {
            return Err(Errno::NOENT);
        }
        let place = |o: &HObject| (o.nspace.clone(), o.name.clone(), o.snap);
        // What concerns snapshots as a whole is not looked at by itself.
        let mut found: Vec<_> = self.scrub.found.values().filter(|_| !ask.snapsets).collect();
        found.sort_by_key(|f| place(&f.oid));
        let first = ask.after.1.is_empty();
        let wanted = found.into_iter().filter(|f| first || place(&f.oid) > ask.after);
        let vals: Vec<Bytes> = wanted
            .take(usize::try_from(ask.max).unwrap_or(usize::MAX).min(1_024))
            .map(|f| f.encode(self.me(cx.me), op.by.features))
            .collect();
        let mut w = Writer::new(op.by.features);
        w.framed(1, 1, |w| {
            interval.encode(w);
            vals.encode(w);
        });
        Ok(w.finish())
    }
}
