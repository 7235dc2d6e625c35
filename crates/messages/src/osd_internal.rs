//! Between OSDs: our own messages, version 1 each.
//!
//! Invariants: every message may be sent twice and may be lost; the receiver tells by the
//! versions inside what it has seen already. Payload of writes travels in the data
//! segment and is shared, not copied, when one write carries it all.
//!
//! Source: ours. The kinds 70, 112 and 113 are the numbers the peer gives to messages of
//! the same purpose; clients never see any of these.

use bytes::Bytes;
use denc::{DecodeError, Denc, Reader, Writer};
use types::{EVersion, Epoch, HObject, OsdId, PgId, ReqId, UTime, Uuid};

use crate::{Message, plain_message};

/// One change to one object, as it is replicated and given to the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mutation {
    /// The object exists from here on.
    Touch,
    /// Bytes at an offset; grows the object.
    Write {
        /// Where.
        off: u64,
        /// What.
        data: Bytes,
    },
    /// Zeroes within or beyond the object; grows it.
    Zero {
        /// Where.
        off: u64,
        /// How many.
        len: u64,
    },
    /// The object ends here from now on.
    Truncate(u64),
    /// No such object any more: data, attributes and omap are gone.
    Remove,
    /// Sets an attribute; names are the store's, with the prefix that keeps users' apart.
    SetAttr(Bytes, Bytes),
    /// Removes one.
    RmAttr(Bytes),
    /// Sets the omap header.
    OmapHeader(Bytes),
    /// Sets omap entries.
    OmapSet(Vec<(Bytes, Bytes)>),
    /// Removes omap entries.
    OmapRm(Vec<Bytes>),
    /// Removes the omap entries from the first key on, up to and without the second.
    OmapRmRange(Bytes, Bytes),
    /// Removes header and entries.
    OmapClear,
    /// The object becomes a copy of another of the same PG, as that is now.
    CloneFrom(HObject),
}

impl Mutation {
    fn encode(&self, w: &mut Writer) {
        match self {
            Self::Touch => w.u8(1),
            Self::Write { off, data } => {
                w.u8(2);
                w.u64(*off);
                w.u32(data.len() as u32);
            }
            Self::Zero { off, len } => {
                w.u8(3);
                w.u64(*off);
                w.u64(*len);
            }
            Self::Truncate(size) => {
                w.u8(4);
                w.u64(*size);
            }
            Self::Remove => w.u8(5),
            Self::SetAttr(name, value) => {
                w.u8(6);
                w.blob(name);
                w.blob(value);
            }
            Self::RmAttr(name) => {
                w.u8(7);
                w.blob(name);
            }
            Self::OmapHeader(header) => {
                w.u8(8);
                w.blob(header);
            }
            Self::OmapSet(entries) => {
                w.u8(9);
                entries.encode(w);
            }
            Self::OmapRm(keys) => {
                w.u8(10);
                keys.encode(w);
            }
            Self::OmapRmRange(begin, end) => {
                w.u8(11);
                w.blob(begin);
                w.blob(end);
            }
            Self::OmapClear => w.u8(12),
            Self::CloneFrom(oid) => {
                w.u8(13);
                oid.encode(w);
            }
        }
    }

    /// `at` is how much of the data segment earlier writes have taken.
    fn decode(r: &mut Reader<'_>, data: &Bytes, at: &mut usize) -> Result<Self, DecodeError> {
        Ok(match r.u8()? {
            1 => Self::Touch,
            2 => {
                let (off, len) = (r.u64()?, r.u32()? as usize);
                let end = at.checked_add(len).filter(|end| *end <= data.len());
                let Some(end) = end else {
                    let left = data.len() - *at;
                    return Err(DecodeError::Short {
                        what: "write data",
                        at: *at,
                        need: len,
                        left,
                    });
                };
                let data = data.slice(*at..end);
                *at = end;
                Self::Write { off, data }
            }
            3 => Self::Zero { off: r.u64()?, len: r.u64()? },
            4 => Self::Truncate(r.u64()?),
            5 => Self::Remove,
            6 => Self::SetAttr(r.blob()?, r.blob()?),
            7 => Self::RmAttr(r.blob()?),
            8 => Self::OmapHeader(r.blob()?),
            9 => Self::OmapSet(Denc::decode(r)?),
            10 => Self::OmapRm(Denc::decode(r)?),
            11 => Self::OmapRmRange(r.blob()?, r.blob()?),
            12 => Self::OmapClear,
            13 => Self::CloneFrom(Denc::decode(r)?),
            _ => {
                return Err(DecodeError::Invalid { what: "Mutation", rule: "a kind from 1 to 13" });
            }
        })
    }
}

/// All changes of one operation to one object, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectChange {
    /// The object.
    pub oid: HObject,
    /// What happens to it.
    pub mutations: Vec<Mutation>,
}

fn encode_changes(changes: &[ObjectChange], w: &mut Writer) {
    w.seq(changes, |w, change| {
        change.oid.encode(w);
        w.seq(&change.mutations, |w, m| m.encode(w));
    });
}

fn decode_changes(r: &mut Reader<'_>, data: &Bytes) -> Result<Vec<ObjectChange>, DecodeError> {
    let mut at = 0;
    r.seq(|r| {
        let oid = Denc::decode(r)?;
        Ok(ObjectChange { oid, mutations: r.seq(|r| Mutation::decode(r, data, &mut at))? })
    })
}

/// Payloads of all writes joined; not copied where there is only one.
fn join_writes(changes: &[ObjectChange]) -> Bytes {
    let writes = || {
        changes.iter().flat_map(|c| &c.mutations).filter_map(|m| match m {
            Mutation::Write { data, .. } if !data.is_empty() => Some(data),
            _ => None,
        })
    };
    let mut it = writes();
    match (it.next(), it.next()) {
        (None, _) => Bytes::new(),
        (Some(one), None) => one.clone(),
        _ => {
            let mut all = Vec::with_capacity(writes().map(Bytes::len).sum());
            writes().for_each(|data| all.extend_from_slice(data));
            all.into()
        }
    }
}

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
        })
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
}

impl Denc for PgLogEntry {
    fn encode(&self, w: &mut Writer) {
        w.u8(1);
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
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let v = r.u8()?;
        r.require(v == 1, "a log entry is version 1")?;
        let kind = match r.u8()? {
            0 => LogKind::Modify,
            1 => LogKind::Delete,
            2 => LogKind::Error,
            _ => return Err(DecodeError::Invalid { what: "PgLogEntry", rule: "a known kind" }),
        };
        Ok(Self {
            kind,
            version: Denc::decode(r)?,
            prior: Denc::decode(r)?,
            oid: Denc::decode(r)?,
            reqid: ReqId { client: Denc::decode(r)?, tid: r.u64()?, inc: r.i32()? },
            user_version: r.u64()?,
            mtime: Denc::decode(r)?,
            result: r.i32()?,
            returns: Denc::decode(r)?,
            counts: Denc::decode(r)?,
        })
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
}

impl Denc for PgInfo {
    fn encode(&self, w: &mut Writer) {
        w.framed(1, 1, |w| {
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
        });
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("PgInfo", 1, |r, _| {
            Ok(Self {
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
            })
        })
    }
}

/// A write for a replica: the log entry and the changes, to be made durable together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepOp {
    /// The PG.
    pub pg: PgId,
    /// The primary's map.
    pub epoch: Epoch,
    /// The interval the write belongs to.
    pub interval: Epoch,
    /// The log's head before it: a replica elsewhere has lost something.
    pub prev: EVersion,
    /// Log entries up to here may be forgotten.
    pub trim_to: EVersion,
    /// The encoded [`PgLogEntry`].
    pub entry: Bytes,
    /// The changes.
    pub changes: Vec<ObjectChange>,
}

impl Message for RepOp {
    const KIND: u16 = 112;

    fn encode_front(&self, w: &mut Writer) {
        self.pg.encode(w);
        self.epoch.encode(w);
        self.interval.encode(w);
        self.prev.encode(w);
        self.trim_to.encode(w);
        w.blob(&self.entry);
        encode_changes(&self.changes, w);
    }

    fn data(&self) -> Bytes {
        join_writes(&self.changes)
    }

    fn decode_front(r: &mut Reader<'_>, _: u16, data: &Bytes) -> Result<Self, DecodeError> {
        Ok(Self {
            pg: Denc::decode(r)?,
            epoch: Denc::decode(r)?,
            interval: Denc::decode(r)?,
            prev: Denc::decode(r)?,
            trim_to: Denc::decode(r)?,
            entry: r.blob()?,
            changes: decode_changes(r, data)?,
        })
    }
}

plain_message! {
    /// A replica has made everything up to a version durable.
    RepOpReply, 113;
    {
        /// The PG.
        pg: PgId,
        /// The replica's map.
        epoch: Epoch,
        /// The interval the writes belong to.
        interval: Epoch,
        /// Durable up to here.
        committed: EVersion,
    }
}

plain_message! {
    /// Asks whether the receiver lives, or says that the sender does.
    OsdPing, 70;
    {
        /// The cluster.
        fsid: Uuid,
        /// Who sends it.
        from: OsdId,
        /// The sender's map.
        epoch: Epoch,
        /// 0 ping, 1 reply, 2 "the map says you are dead".
        op: u8,
        /// The pinging side's monotonic clock, repeated in the reply.
        stamp_ns: u64,
    }
}

/// One object of a listing: name and version.
pub type Listed = (HObject, EVersion);

/// Part of an object on its way to a copy that lacks it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Push {
    /// The object.
    pub oid: HObject,
    /// Its version.
    pub version: EVersion,
    /// The first part: what is there goes.
    pub first: bool,
    /// Where `data` lies.
    pub off: u64,
    /// Size of the whole object.
    pub size: u64,
    /// All attributes; with the last part.
    pub attrs: Vec<(Bytes, Bytes)>,
    /// The omap header; with the last part.
    pub header: Bytes,
    /// omap entries of this part.
    pub omap: Vec<(Bytes, Bytes)>,
    /// The key after which the next part's omap entries start; what a pull repeats.
    pub omap_after: Bytes,
    /// Nothing of the object follows.
    pub last: bool,
    /// The object does not exist at the source.
    pub absent: bool,
    /// Bytes from `off` on.
    pub data: Bytes,
}

impl Push {
    /// All but `data`, which is the message's data segment.
    fn encode(&self, w: &mut Writer) {
        self.oid.encode(w);
        self.version.encode(w);
        w.bool(self.first);
        w.u64(self.off);
        w.u64(self.size);
        self.attrs.encode(w);
        w.blob(&self.header);
        self.omap.encode(w);
        w.blob(&self.omap_after);
        w.bool(self.last);
        w.bool(self.absent);
    }

    fn decode(r: &mut Reader<'_>, data: &Bytes) -> Result<Self, DecodeError> {
        Ok(Self {
            oid: Denc::decode(r)?,
            version: Denc::decode(r)?,
            first: r.bool()?,
            off: r.u64()?,
            size: r.u64()?,
            attrs: Denc::decode(r)?,
            header: r.blob()?,
            omap: Denc::decode(r)?,
            omap_after: r.blob()?,
            last: r.bool()?,
            absent: r.bool()?,
            data: data.clone(),
        })
    }
}

/// What OSDs tell each other about a PG besides writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerMsg {
    /// What do you know of this PG? Answered by `Info`.
    Query,
    /// This; `known` is false where the sender has no copy.
    Info {
        /// Whether there is a copy.
        known: bool,
        /// It.
        info: PgInfo,
    },
    /// Send the log after this version, and what is missing. Answered by `Log`.
    GetLog(EVersion),
    /// The log after `since`, oldest first.
    Log {
        /// What was asked for; below the sender's tail, the whole log follows.
        since: EVersion,
        /// The sender's copy.
        info: PgInfo,
        /// Encoded entries.
        entries: Vec<Bytes>,
        /// Objects its copy lacks, with the version wanted.
        missing: Vec<Listed>,
    },
    /// List objects from here on. Answered by `Objects`.
    Scan(HObject),
    /// Objects in order, up to but without `end`.
    Objects {
        /// What was asked for.
        begin: HObject,
        /// Where to go on; the largest value when complete.
        end: HObject,
        /// The objects.
        objects: Vec<Listed>,
    },
    /// This is the PG from now on: take over log and missing objects, make it durable.
    Activate {
        /// Counts the primary's attempts in this interval; a later one voids the earlier.
        round: u32,
        /// The primary's copy, with the history that counts.
        info: PgInfo,
        /// The log after this version follows; the receiver's entries after it are void
        /// unless they are repeated.
        since: EVersion,
        /// Forget the own log: it has nothing in common with this one.
        reset: bool,
        /// Encoded entries.
        entries: Vec<Bytes>,
        /// With `reset`: all objects that the receiver must fetch.
        missing: Vec<Listed>,
        /// With `reset`: objects that the receiver has and nobody should.
        surplus: Vec<HObject>,
    },
    /// Done: durable. Carries what the receiver lacks.
    Activated {
        /// Which attempt.
        round: u32,
        /// Objects its copy lacks, with the version wanted.
        missing: Vec<Listed>,
    },
    /// All acting copies are active (`history_les`), or all are whole (`last_epoch_clean`).
    Settle {
        /// See [`PgInfo::history_les`].
        history_les: Epoch,
        /// See [`PgInfo::last_epoch_clean`].
        last_epoch_clean: Epoch,
    },
    /// Send this object, from this part on. Answered by `Push`.
    Pull {
        /// The object.
        oid: HObject,
        /// The version wanted.
        version: EVersion,
        /// First byte.
        off: u64,
        /// omap entries after this key.
        omap_after: Bytes,
    },
    /// A part of an object. From the primary answered by `Pushed`.
    Push(Push),
    /// The part is applied, and durable when it was the last.
    Pushed {
        /// The object.
        oid: HObject,
        /// Its version.
        version: EVersion,
        /// First byte wanted next.
        off: u64,
        /// omap entries after this key are wanted next.
        omap_after: Bytes,
        /// The object is whole and durable.
        last: bool,
    },
    /// Your copy is no longer needed.
    Remove,
    /// Send a part of an object that you lead: it is being copied. Answered by `CopyPart`,
    /// or not at all while it is not quiet.
    CopyGet {
        /// Whose question.
        id: u64,
        /// The object.
        oid: HObject,
        /// First byte.
        off: u64,
        /// omap entries after this key.
        omap_after: Bytes,
    },
    /// The part.
    CopyPart {
        /// Whose question.
        id: u64,
        /// It.
        push: Push,
    },
    /// The log of an activation has nothing in common with the own one.
    Unrelated {
        /// Which attempt.
        round: u32,
    },
}

/// [`PeerMsg`] and where it belongs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OsdPeer {
    /// The PG.
    pub pg: PgId,
    /// The sender's map.
    pub epoch: Epoch,
    /// The interval it belongs to, as the sender sees it.
    pub interval: Epoch,
    /// What it says.
    pub body: PeerMsg,
}

impl Message for OsdPeer {
    const KIND: u16 = 0x4101;

    fn encode_front(&self, w: &mut Writer) {
        self.pg.encode(w);
        self.epoch.encode(w);
        self.interval.encode(w);
        match &self.body {
            PeerMsg::Query => w.u8(1),
            PeerMsg::Info { known, info } => {
                w.u8(2);
                w.bool(*known);
                info.encode(w);
            }
            PeerMsg::GetLog(since) => {
                w.u8(3);
                since.encode(w);
            }
            PeerMsg::Log { since, info, entries, missing } => {
                w.u8(4);
                since.encode(w);
                info.encode(w);
                entries.encode(w);
                missing.encode(w);
            }
            PeerMsg::Scan(begin) => {
                w.u8(5);
                begin.encode(w);
            }
            PeerMsg::Objects { begin, end, objects } => {
                w.u8(6);
                begin.encode(w);
                end.encode(w);
                objects.encode(w);
            }
            PeerMsg::Activate { round, info, since, reset, entries, missing, surplus } => {
                w.u8(7);
                w.u32(*round);
                info.encode(w);
                since.encode(w);
                w.bool(*reset);
                entries.encode(w);
                missing.encode(w);
                surplus.encode(w);
            }
            PeerMsg::Activated { round, missing } => {
                w.u8(8);
                w.u32(*round);
                missing.encode(w);
            }
            PeerMsg::Settle { history_les, last_epoch_clean } => {
                w.u8(9);
                history_les.encode(w);
                last_epoch_clean.encode(w);
            }
            PeerMsg::Pull { oid, version, off, omap_after } => {
                w.u8(10);
                oid.encode(w);
                version.encode(w);
                w.u64(*off);
                w.blob(omap_after);
            }
            PeerMsg::Push(push) => {
                w.u8(11);
                push.encode(w);
            }
            PeerMsg::CopyGet { id, oid, off, omap_after } => {
                w.u8(15);
                w.u64(*id);
                oid.encode(w);
                w.u64(*off);
                w.blob(omap_after);
            }
            PeerMsg::CopyPart { id, push } => {
                w.u8(16);
                w.u64(*id);
                push.encode(w);
            }
            PeerMsg::Pushed { oid, version, off, omap_after, last } => {
                w.u8(12);
                oid.encode(w);
                version.encode(w);
                w.u64(*off);
                w.blob(omap_after);
                w.bool(*last);
            }
            PeerMsg::Remove => w.u8(13),
            PeerMsg::Unrelated { round } => {
                w.u8(14);
                w.u32(*round);
            }
        }
    }

    fn data(&self) -> Bytes {
        match &self.body {
            PeerMsg::Push(push) | PeerMsg::CopyPart { push, .. } => push.data.clone(),
            _ => Bytes::new(),
        }
    }

    fn decode_front(r: &mut Reader<'_>, _: u16, data: &Bytes) -> Result<Self, DecodeError> {
        let (pg, epoch, interval) = (Denc::decode(r)?, Denc::decode(r)?, Denc::decode(r)?);
        let body = match r.u8()? {
            1 => PeerMsg::Query,
            2 => PeerMsg::Info { known: r.bool()?, info: Denc::decode(r)? },
            3 => PeerMsg::GetLog(Denc::decode(r)?),
            4 => PeerMsg::Log {
                since: Denc::decode(r)?,
                info: Denc::decode(r)?,
                entries: Denc::decode(r)?,
                missing: Denc::decode(r)?,
            },
            5 => PeerMsg::Scan(Denc::decode(r)?),
            6 => PeerMsg::Objects {
                begin: Denc::decode(r)?,
                end: Denc::decode(r)?,
                objects: Denc::decode(r)?,
            },
            7 => PeerMsg::Activate {
                round: r.u32()?,
                info: Denc::decode(r)?,
                since: Denc::decode(r)?,
                reset: r.bool()?,
                entries: Denc::decode(r)?,
                missing: Denc::decode(r)?,
                surplus: Denc::decode(r)?,
            },
            8 => PeerMsg::Activated { round: r.u32()?, missing: Denc::decode(r)? },
            9 => PeerMsg::Settle {
                history_les: Denc::decode(r)?,
                last_epoch_clean: Denc::decode(r)?,
            },
            10 => PeerMsg::Pull {
                oid: Denc::decode(r)?,
                version: Denc::decode(r)?,
                off: r.u64()?,
                omap_after: r.blob()?,
            },
            11 => PeerMsg::Push(Push::decode(r, data)?),
            12 => PeerMsg::Pushed {
                oid: Denc::decode(r)?,
                version: Denc::decode(r)?,
                off: r.u64()?,
                omap_after: r.blob()?,
                last: r.bool()?,
            },
            13 => PeerMsg::Remove,
            14 => PeerMsg::Unrelated { round: r.u32()? },
            15 => PeerMsg::CopyGet {
                id: r.u64()?,
                oid: Denc::decode(r)?,
                off: r.u64()?,
                omap_after: r.blob()?,
            },
            16 => PeerMsg::CopyPart { id: r.u64()?, push: Push::decode(r, data)? },
            _ => {
                return Err(DecodeError::Invalid { what: "OsdPeer", rule: "a kind from 1 to 16" });
            }
        };
        Ok(Self { pg, epoch, interval, body })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use denc::Features;

    fn repop(datas: &[&'static [u8]]) -> RepOp {
        let oid = HObject { hash: 7, name: Bytes::from_static(b"o"), ..HObject::min() };
        let mut mutations = vec![
            Mutation::Touch,
            Mutation::Zero { off: 1, len: 2 },
            Mutation::Truncate(9),
            Mutation::SetAttr(Bytes::from_static(b"_"), Bytes::from_static(b"info")),
            Mutation::RmAttr(Bytes::from_static(b"x")),
            Mutation::OmapHeader(Bytes::from_static(b"h")),
            Mutation::OmapSet(vec![(Bytes::from_static(b"k"), Bytes::from_static(b"v"))]),
            Mutation::OmapRm(vec![Bytes::from_static(b"k")]),
            Mutation::OmapRmRange(Bytes::from_static(b"a"), Bytes::from_static(b"b")),
            Mutation::OmapClear,
            Mutation::CloneFrom(oid.clone()),
        ];
        for data in datas {
            mutations.push(Mutation::Write { off: 5, data: Bytes::from_static(data) });
        }
        let entry = PgLogEntry { oid: oid.clone(), result: -2, ..PgLogEntry::default() };
        RepOp {
            pg: PgId::new(3, 1),
            epoch: Epoch(9),
            interval: Epoch(8),
            prev: EVersion::new(8, 1),
            trim_to: EVersion::ZERO,
            entry: entry.to_bytes(),
            changes: vec![ObjectChange { oid, mutations }],
        }
    }

    /// What a replica reads is what the primary wrote; one payload is shared end to end.
    #[test]
    fn repop_round_trips() {
        let (abc, defg): (&'static [u8], &'static [u8]) = (b"abc", b"defg");
        for datas in [vec![], vec![abc], vec![abc, b"", defg]] {
            let m = repop(&datas);
            let env = m.envelope(Features::ALL);
            assert_eq!(RepOp::decode(&env), Ok(m.clone()));
            if let [one] = datas[..] {
                assert_eq!(env.data.as_ptr(), one.as_ptr());
            }
            assert_eq!(PgLogEntry::from_bytes(&m.entry).unwrap().result, -2);
        }
    }

    /// Every kind of peer message is read back, and no cut-off copy is accepted.
    #[test]
    fn peer_messages_round_trip() {
        let (v, oid) = (EVersion::new(3, 4), HObject::min());
        let k = Bytes::from_static(b"k");
        let bodies = [
            PeerMsg::Query,
            PeerMsg::Info { known: true, info: PgInfo { epoch: Epoch(4), ..PgInfo::default() } },
            PeerMsg::GetLog(v),
            PeerMsg::Log {
                since: v,
                info: PgInfo { past: vec![Interval::default()], ..PgInfo::default() },
                entries: vec![PgLogEntry::default().to_bytes()],
                missing: vec![(oid.clone(), v)],
            },
            PeerMsg::Scan(oid.clone()),
            PeerMsg::Objects { begin: oid.clone(), end: HObject::max(), objects: vec![] },
            PeerMsg::Activate {
                round: 3,
                info: PgInfo::default(),
                since: v,
                reset: true,
                entries: vec![],
                missing: vec![(oid.clone(), v)],
                surplus: vec![oid.clone()],
            },
            PeerMsg::Activated { round: 3, missing: vec![] },
            PeerMsg::Unrelated { round: 3 },
            PeerMsg::CopyGet { id: 4, oid: oid.clone(), off: 5, omap_after: k.clone() },
            PeerMsg::CopyPart { id: 4, push: Push { last: true, ..Push::default() } },
            PeerMsg::Settle { history_les: Epoch(1), last_epoch_clean: Epoch(2) },
            PeerMsg::Pull { oid: oid.clone(), version: v, off: 5, omap_after: k.clone() },
            PeerMsg::Push(Push { data: Bytes::from_static(b"data"), ..Push::default() }),
            PeerMsg::Pushed { oid, version: v, off: 4, omap_after: k, last: true },
            PeerMsg::Remove,
        ];
        for body in bodies {
            let m = OsdPeer { pg: PgId::new(1, 2), epoch: Epoch(3), interval: Epoch(2), body };
            let env = m.envelope(Features::ALL);
            assert_eq!(OsdPeer::decode(&env), Ok(m));
            for cut in 0..env.front.len() {
                let short = crate::Envelope { front: env.front.slice(..cut), ..env.clone() };
                assert!(OsdPeer::decode(&short).is_err());
            }
        }
    }

    /// A write that claims more payload than there is is refused.
    #[test]
    fn repop_with_lost_data_is_refused() {
        let mut env = repop(&[b"abc", b"defg"]).envelope(Features::ALL);
        env.data = env.data.slice(..5);
        assert!(RepOp::decode(&env).is_err());
    }
}
