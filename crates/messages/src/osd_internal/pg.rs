//! A PG's log entries and what an OSD knows of its copy; also their form on disk.

use super::ScrubHistory;
use bytes::Bytes;
use denc::{DecodeError, Denc, Reader, Writer};
use types::{EVersion, Epoch, HObject, OsdId, ReqId, UTime};

/// What an entry of the PG log says about its object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogKind {
    /// The object was written.
    #[default]
    Modify,
    /// The object was removed.
    Delete,
    /// Nothing changed: the operation failed, and its resend must fail alike.
    Error,
}

impl LogKind {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        match r.u8()? {
            0 => Ok(Self::Modify),
            1 => Ok(Self::Delete),
            2 => Ok(Self::Error),
            _ => Err(DecodeError::Invalid { what: "PgLogEntry", rule: "a known kind" }),
        }
    }
}

/// Counters of a PG that live with its log: each entry holds them as they are after it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PgCounts {
    /// Objects.
    pub objects: i64,
    /// Their bytes.
    pub bytes: i64,
    /// Objects with omap entries.
    pub omap_objects: i64,
    /// Write operations.
    pub writes: i64,
    /// Bytes written.
    pub write_bytes: i64,
    /// How many of the objects are clones. Not among the others on the wire: what holds
    /// counters says whether it follows.
    pub clones: i64,
    /// How many of the objects a cache tier need not flush. As `clones`.
    pub clean: i64,
}

impl Denc for PgCounts {
    fn encode(&self, w: &mut Writer) {
        for x in [self.objects, self.bytes, self.omap_objects, self.writes, self.write_bytes] {
            w.i64(x);
        }
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            objects: r.i64()?,
            bytes: r.i64()?,
            omap_objects: r.i64()?,
            writes: r.i64()?,
            write_bytes: r.i64()?,
            clones: 0,
            clean: 0,
        })
    }
}

/// Another object that a write changed: a clone made, trimmed or removed with its head.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Touched {
    /// The object.
    pub oid: HObject,
    /// What happened to it.
    pub kind: LogKind,
    /// Its version before; zero when it did not exist.
    pub prior: EVersion,
}

impl Denc for Touched {
    fn encode(&self, w: &mut Writer) {
        self.oid.encode(w);
        w.u8(self.kind as u8);
        self.prior.encode(w);
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self { oid: Denc::decode(r)?, kind: LogKind::decode(r)?, prior: Denc::decode(r)? })
    }
}

/// A request that changed an object where it was before, and what it was told: so that its
/// resend is recognised where the object is now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Answered {
    /// The request.
    pub reqid: ReqId,
    /// The object's version for users.
    pub user_version: u64,
    /// The result.
    pub result: i32,
    /// The object's hash, where the entry that tells of the request is of no object.
    pub hash: u32,
}

/// Without the hash.
impl Denc for Answered {
    fn encode(&self, w: &mut Writer) {
        self.reqid.encode(w);
        w.u64(self.user_version);
        w.i32(self.result);
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self { reqid: Denc::decode(r)?, user_version: r.u64()?, result: r.i32()?, hash: 0 })
    }
}

/// One ordered write of a PG. Also what recognises its resend, so it carries the result.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PgLogEntry {
    /// Its place.
    pub version: EVersion,
    /// The object's version before; zero when it did not exist.
    pub prior: EVersion,
    /// What happened.
    pub kind: LogKind,
    /// The object.
    pub oid: HObject,
    /// Who asked.
    pub reqid: ReqId,
    /// The object's version as users count it.
    pub user_version: u64,
    /// When the client wrote.
    pub mtime: UTime,
    /// What the client was told.
    pub result: i32,
    /// Result and output of each operation, kept for requests that asked for them.
    pub returns: Vec<(i32, Bytes)>,
    /// The PG's counters from here on.
    pub counts: PgCounts,
    /// The other objects that changed with it; of the same name, and so in the same PG.
    pub also: Vec<Touched>,
    /// Requests that came to be known with this entry: the object came from another tier, or the
    /// entry tells of nothing else.
    pub answered: Vec<Answered>,
}

impl PgLogEntry {
    /// Every object that the write changed, what happened to it, and its version before.
    pub fn touched(&self) -> impl Iterator<Item = (&HObject, LogKind, EVersion)> {
        std::iter::once((&self.oid, self.kind, self.prior))
            .chain(self.also.iter().map(|t| (&t.oid, t.kind, t.prior)))
    }

    /// Whether it is of no object, and tells only of requests, which may be of any: the hash of
    /// its object is that of its own request.
    #[must_use]
    pub fn is_of_requests(&self) -> bool {
        self.kind == LogKind::Error && self.oid.name.is_empty()
    }

    /// Bytes it takes in memory; encoded it takes no more. Follows from its content alone, but
    /// not from the counters.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let names = |o: &HObject| o.name.len() + o.key.len() + o.nspace.len();
        let also = self.also.iter().map(|t| size_of::<Touched>() + names(&t.oid));
        let returns = self.returns.iter().map(|(_, out)| size_of::<(i32, Bytes)>() + out.len());
        let answered = self.answered.len() * size_of::<Answered>();
        let parts = also.chain(returns).sum::<usize>();
        size_of::<Self>() + names(&self.oid) + parts + answered
    }

    /// With how it is encoded.
    #[must_use]
    pub fn with_bytes(self) -> (Self, Bytes) {
        let bytes = self.to_bytes();
        (self, bytes)
    }

    /// A copy whose names share no memory with the message it came from.
    #[must_use]
    pub fn detached(mut self) -> Self {
        self.oid = self.oid.detached();
        for t in &mut self.also {
            t.oid = t.oid.detached();
        }
        self
    }
}

/// Version 1; version 2 with the other objects and the number of clones, version 3 with the
/// number of clean objects and requests of other tiers, where there are any, version 4 with the
/// hashes of the requests' objects where it is of none.
impl Denc for PgLogEntry {
    fn encode(&self, w: &mut Writer) {
        let tiers = !self.answered.is_empty() || self.counts.clean != 0;
        let clones = tiers || !self.also.is_empty() || self.counts.clones != 0;
        let hashes = tiers && self.is_of_requests();
        w.u8(1 + u8::from(clones) + u8::from(tiers) + u8::from(hashes));
        w.u8(self.kind as u8);
        self.version.encode(w);
        self.prior.encode(w);
        self.oid.encode(w);
        self.reqid.client.encode(w);
        w.u64(self.reqid.tid);
        w.i32(self.reqid.inc);
        w.u64(self.user_version);
        self.mtime.encode(w);
        w.i32(self.result);
        self.returns.encode(w);
        self.counts.encode(w);
        if clones {
            self.also.encode(w);
            w.i64(self.counts.clones);
        }
        if tiers {
            w.i64(self.counts.clean);
            self.answered.encode(w);
        }
        if hashes {
            for a in &self.answered {
                w.u32(a.hash);
            }
        }
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let v = r.u8()?;
        r.require((1..=4).contains(&v), "a log entry is version 1 to 4")?;
        let mut entry = Self {
            kind: LogKind::decode(r)?,
            version: Denc::decode(r)?,
            prior: Denc::decode(r)?,
            oid: Denc::decode(r)?,
            reqid: ReqId { client: Denc::decode(r)?, tid: r.u64()?, inc: r.i32()? },
            user_version: r.u64()?,
            mtime: Denc::decode(r)?,
            result: r.i32()?,
            returns: Denc::decode(r)?,
            counts: Denc::decode(r)?,
            also: Vec::new(),
            answered: Vec::new(),
        };
        if v >= 2 {
            entry.also = Denc::decode(r)?;
            entry.counts.clones = r.i64()?;
        }
        if v >= 3 {
            entry.counts.clean = r.i64()?;
            entry.answered = Denc::decode(r)?;
        }
        if v >= 4 {
            for a in &mut entry.answered {
                a.hash = r.u32()?;
            }
        }
        Ok(entry)
    }
}

/// A stretch of epochs with one acting set. The peer's `PastIntervals::pg_interval_t`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interval {
    /// First epoch.
    pub first: Epoch,
    /// Last epoch.
    pub last: Epoch,
    /// Who CRUSH chose.
    pub up: Vec<OsdId>,
    /// Who served.
    pub acting: Vec<OsdId>,
    /// Who ordered the writes.
    pub primary: OsdId,
    /// Whether writes may have been acknowledged in it.
    pub maybe_went_rw: bool,
}

impl Denc for Interval {
    fn encode(&self, w: &mut Writer) {
        self.first.encode(w);
        self.last.encode(w);
        self.up.encode(w);
        self.acting.encode(w);
        self.primary.encode(w);
        w.bool(self.maybe_went_rw);
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            first: Denc::decode(r)?,
            last: Denc::decode(r)?,
            up: Denc::decode(r)?,
            acting: Denc::decode(r)?,
            primary: Denc::decode(r)?,
            maybe_went_rw: r.bool()?,
        })
    }
}

/// What an OSD knows of its copy of a PG. The peer's `pg_info_t` with `pg_history_t` and
/// `PastIntervals`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PgInfo {
    /// The last write in its log.
    pub last_update: EVersion,
    /// Writes up to here are no longer in the log.
    pub log_tail: EVersion,
    /// The last interval this copy was activated in.
    pub last_epoch_started: Epoch,
    /// When the PG came to be.
    pub created: Epoch,
    /// The last interval that is known to have been activated on all of its acting set.
    pub history_les: Epoch,
    /// The last epoch in which every copy was whole.
    pub last_epoch_clean: Epoch,
    /// First epoch with the present up and acting sets.
    pub same_interval_since: Epoch,
    /// First epoch with the present up set.
    pub same_up_since: Epoch,
    /// First epoch with the present primary.
    pub same_primary_since: Epoch,
    /// The map up to which this was computed.
    pub epoch: Epoch,
    /// The sets of `same_interval_since`.
    pub up: Vec<OsdId>,
    /// See `up`.
    pub acting: Vec<OsdId>,
    /// See `up`.
    pub primary: OsdId,
    /// Objects of this copy that are not what the log says.
    pub missing: u64,
    /// Intervals since `last_epoch_clean`.
    pub past: Vec<Interval>,
    /// Counters at `last_update`.
    pub counts: PgCounts,
    /// `pg_num` of the pool when this was last split.
    pub pg_num: u32,
    /// The counters are an estimate since a split: whoever leads the PG counts anew once
    /// nothing is missing.
    pub recount: bool,
    /// What scrubs found (v3).
    pub scrub: ScrubHistory,
}

impl Denc for PgInfo {
    fn encode(&self, w: &mut Writer) {
        w.framed(4, 1, |w| {
            self.last_update.encode(w);
            self.log_tail.encode(w);
            for e in [
                self.last_epoch_started,
                self.created,
                self.history_les,
                self.last_epoch_clean,
                self.same_interval_since,
                self.same_up_since,
                self.same_primary_since,
                self.epoch,
            ] {
                e.encode(w);
            }
            self.up.encode(w);
            self.acting.encode(w);
            self.primary.encode(w);
            w.u64(self.missing);
            self.past.encode(w);
            self.counts.encode(w);
            w.u32(self.pg_num);
            w.bool(self.recount);
            w.i64(self.counts.clones);
            self.scrub.encode(w);
            w.i64(self.counts.clean);
        });
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("PgInfo", 4, |r, v| {
            let mut info = Self {
                last_update: Denc::decode(r)?,
                log_tail: Denc::decode(r)?,
                last_epoch_started: Denc::decode(r)?,
                created: Denc::decode(r)?,
                history_les: Denc::decode(r)?,
                last_epoch_clean: Denc::decode(r)?,
                same_interval_since: Denc::decode(r)?,
                same_up_since: Denc::decode(r)?,
                same_primary_since: Denc::decode(r)?,
                epoch: Denc::decode(r)?,
                up: Denc::decode(r)?,
                acting: Denc::decode(r)?,
                primary: Denc::decode(r)?,
                missing: r.u64()?,
                past: Denc::decode(r)?,
                counts: Denc::decode(r)?,
                pg_num: r.u32()?,
                recount: r.bool()?,
                scrub: ScrubHistory::default(),
            };
            if v >= 2 {
                info.counts.clones = r.i64()?;
            }
            if v >= 3 {
                info.scrub = Denc::decode(r)?;
            }
            if v >= 4 {
                info.counts.clean = r.i64()?;
            }
            Ok(info)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What an entry is counted for grows with all its parts, and is never less than what it takes
    /// encoded.
    #[test]
    fn entries_are_counted_for_what_they_take() {
        let name = |n: usize| Bytes::from(vec![b'n'; n]);
        let oid = HObject { name: name(1_900), key: name(300), ..HObject::min() };
        let mut e = PgLogEntry::default();
        let mut last = 0;
        let mut grew = |e: &PgLogEntry, by: usize| {
            assert!(e.bytes() >= e.to_bytes().len() && e.bytes() >= last + by, "{}", e.bytes());
            last = e.bytes();
        };
        grew(&e, 0);
        e.oid = oid.clone();
        grew(&e, 2_200);
        e.returns = vec![(0, name(64)); 3];
        grew(&e, 3 * 64);
        e.also = vec![Touched { oid, ..Touched::default() }; 10];
        grew(&e, 22_000);
        e.answered = vec![Answered::default(); 100];
        e.counts.clean = 1;
        grew(&e, 2_000);
    }
}
