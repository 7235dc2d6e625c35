//! What OSDs tell each other about a PG besides writes.

use bytes::Bytes;
use denc::{DecodeError, Denc, Reader, Writer};
use types::{EVersion, EntityAddr, EntityId, Epoch, HObject, ShardId, SpgId};

use super::{Answered, Listed, PgInfo, Push, ScrubMsg};
use crate::{MOsdOp, MOsdOpReply, Message};

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
        /// Bytes of its store's log that one write may take (v4); 0 when it does not say.
        record_max: u64,
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
        /// With the last part: requests that changed the object and were answered.
        answered: Vec<Answered>,
    },
    /// Do this to an object that you lead, for a cache tier. Answered by `TierTold`.
    TierAsk {
        /// Whose question.
        id: u64,
        /// For whom.
        who: EntityId,
        /// Where that client is.
        addr: EntityAddr,
        /// What.
        op: Box<MOsdOp>,
    },
    /// It is done, or cannot be.
    TierTold {
        /// Whose question.
        id: u64,
        /// The answer.
        reply: Box<MOsdOpReply>,
    },
    /// The log of an activation has nothing in common with the own one.
    Unrelated {
        /// Which attempt.
        round: u32,
    },
    /// See [`ScrubMsg`].
    Scrub(ScrubMsg),
    /// May objects be copied to you now? Answered by `BackfillSlot`.
    BackfillAsk,
    /// Yes, until `BackfillEnd` or the next interval; or no, being busy or too full.
    BackfillSlot {
        /// Yes.
        granted: bool,
        /// No, and not for a while.
        full: bool,
    },
    /// Nothing is copied any more.
    BackfillEnd,
    /// Erasure-coded pools: send bytes of your shard of an object. Answered by `ShardData`.
    ShardRead {
        /// Whose question.
        id: u64,
        /// The object.
        oid: HObject,
        /// The version it must have.
        version: EVersion,
        /// First byte of the shard.
        off: u64,
        /// How many.
        len: u64,
        /// All attributes, too.
        attrs: bool,
    },
    /// The bytes; fewer than asked for at the shard's end.
    ShardData {
        /// Whose question.
        id: u64,
        /// 0, or -errno: ENOENT without an object of that version, EIO for a damaged one.
        result: i32,
        /// Bytes of the whole shard.
        size: u64,
        /// The attributes, when asked for.
        attrs: Vec<(Bytes, Bytes)>,
        /// The bytes.
        data: Bytes,
    },
    /// Writes up to here are durable on all acting copies: nobody will undo them.
    Settled(EVersion),
    /// To a shard that does not act: this is the log. What it has beyond is void and taken
    /// back, so that what it has can be read.
    Follow {
        /// The log after this version follows.
        since: EVersion,
        /// Encoded entries.
        entries: Vec<Bytes>,
    },
    /// May what you lack be brought now? Answered by `RecoverySlot`, when it is so.
    RecoveryAsk,
    /// Yes, until nothing is lacking, `RecoveryEnd` or the next interval.
    RecoverySlot,
    /// Nothing is brought any more.
    RecoveryEnd,
    /// A copy's store takes no more data, or does again.
    Room {
        /// It takes none.
        full: bool,
        /// Not even clones fit, which the removal of what has snapshots needs.
        bare: bool,
    },
}

/// A client's message within one of ours: its front as a blob; its data is ours.
fn front<M: Message>(m: &M, w: &mut Writer) {
    let mut inner = Writer::new(denc::Features::ALL);
    m.encode_front(&mut inner);
    w.blob(&inner.finish());
}

fn from_front<M: Message>(r: &mut Reader<'_>, data: &Bytes) -> Result<M, DecodeError> {
    let front = r.blob()?;
    M::decode_front(&mut Reader::shared(&front), M::VERSION, data)
}

/// [`PeerMsg`] and where it belongs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OsdPeer {
    /// The PG, and the receiver's shard of it.
    pub pg: SpgId,
    /// The sender's shard (v2).
    pub from: ShardId,
    /// The sender's map.
    pub epoch: Epoch,
    /// The interval it belongs to, as the sender sees it.
    pub interval: Epoch,
    /// How many times as long as usual clients of the sender wait, in hundredths; 0 when it
    /// says nothing of that (v3).
    pub felt: u16,
    /// What it says.
    pub body: PeerMsg,
}

impl Message for OsdPeer {
    const KIND: u16 = 0x4101;
    const VERSION: u16 = 4;

    fn encode_front(&self, w: &mut Writer) {
        self.pg.pg.encode(w);
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
            PeerMsg::Activated { round, missing, record_max: _ } => {
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
            PeerMsg::CopyPart { id, push, answered } => {
                // An older receiver knows the form without requests.
                w.u8(if answered.is_empty() { 16 } else { 28 });
                w.u64(*id);
                push.encode(w);
                if !answered.is_empty() {
                    answered.encode(w);
                }
            }
            PeerMsg::TierAsk { id, who, addr, op } => {
                w.u8(29);
                w.u64(*id);
                who.encode(w);
                addr.encode(w);
                front(&**op, w);
            }
            PeerMsg::TierTold { id, reply } => {
                w.u8(30);
                w.u64(*id);
                front(&**reply, w);
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
            PeerMsg::Scrub(m) => {
                w.u8(17);
                m.encode(w);
            }
            PeerMsg::BackfillAsk => w.u8(18),
            PeerMsg::BackfillSlot { granted, full } => {
                w.u8(19);
                w.bool(*granted);
                w.bool(*full);
            }
            PeerMsg::BackfillEnd => w.u8(20),
            PeerMsg::ShardRead { id, oid, version, off, len, attrs } => {
                w.u8(21);
                w.u64(*id);
                oid.encode(w);
                version.encode(w);
                w.u64(*off);
                w.u64(*len);
                w.bool(*attrs);
            }
            PeerMsg::ShardData { id, result, size, attrs, data: _ } => {
                w.u8(22);
                w.u64(*id);
                w.i32(*result);
                w.u64(*size);
                attrs.encode(w);
            }
            PeerMsg::Settled(v) => {
                w.u8(23);
                v.encode(w);
            }
            PeerMsg::Follow { since, entries } => {
                w.u8(24);
                since.encode(w);
                entries.encode(w);
            }
            PeerMsg::RecoveryAsk => w.u8(25),
            PeerMsg::RecoverySlot => w.u8(26),
            PeerMsg::RecoveryEnd => w.u8(27),
            PeerMsg::Room { full, bare } => {
                w.u8(31);
                w.bool(*full);
                w.bool(*bare);
            }
        }
        self.pg.shard.encode(w);
        self.from.encode(w);
        w.u16(self.felt);
        w.u64(match &self.body {
            PeerMsg::Activated { record_max, .. } => *record_max,
            _ => 0,
        });
    }

    fn data(&self) -> Bytes {
        match &self.body {
            PeerMsg::Push(push) | PeerMsg::CopyPart { push, .. } => push.data.clone(),
            PeerMsg::ShardData { data, .. } => data.clone(),
            PeerMsg::TierAsk { op, .. } => op.data(),
            PeerMsg::TierTold { reply, .. } => reply.data(),
            _ => Bytes::new(),
        }
    }

    fn decode_front(r: &mut Reader<'_>, v: u16, data: &Bytes) -> Result<Self, DecodeError> {
        let (pg, epoch, interval) = (Denc::decode(r)?, Denc::decode(r)?, Denc::decode(r)?);
        let mut body = match r.u8()? {
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
            8 => PeerMsg::Activated { round: r.u32()?, missing: Denc::decode(r)?, record_max: 0 },
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
            16 => PeerMsg::CopyPart {
                id: r.u64()?,
                push: Push::decode(r, data)?,
                answered: Vec::new(),
            },
            28 => PeerMsg::CopyPart {
                id: r.u64()?,
                push: Push::decode(r, data)?,
                answered: Denc::decode(r)?,
            },
            29 => PeerMsg::TierAsk {
                id: r.u64()?,
                who: Denc::decode(r)?,
                addr: Denc::decode(r)?,
                op: Box::new(from_front(r, data)?),
            },
            30 => PeerMsg::TierTold { id: r.u64()?, reply: Box::new(from_front(r, data)?) },
            17 => PeerMsg::Scrub(Denc::decode(r)?),
            18 => PeerMsg::BackfillAsk,
            19 => PeerMsg::BackfillSlot { granted: r.bool()?, full: r.bool()? },
            20 => PeerMsg::BackfillEnd,
            21 => PeerMsg::ShardRead {
                id: r.u64()?,
                oid: Denc::decode(r)?,
                version: Denc::decode(r)?,
                off: r.u64()?,
                len: r.u64()?,
                attrs: r.bool()?,
            },
            22 => PeerMsg::ShardData {
                id: r.u64()?,
                result: r.i32()?,
                size: r.u64()?,
                attrs: Denc::decode(r)?,
                data: data.clone(),
            },
            23 => PeerMsg::Settled(Denc::decode(r)?),
            24 => PeerMsg::Follow { since: Denc::decode(r)?, entries: Denc::decode(r)? },
            25 => PeerMsg::RecoveryAsk,
            26 => PeerMsg::RecoverySlot,
            27 => PeerMsg::RecoveryEnd,
            31 => PeerMsg::Room { full: r.bool()?, bare: r.bool()? },
            _ => {
                return Err(DecodeError::Invalid { what: "OsdPeer", rule: "a kind from 1 to 31" });
            }
        };
        let (shard, from) = if v >= 2 {
            (Denc::decode(r)?, Denc::decode(r)?)
        } else {
            (ShardId::NONE, ShardId::NONE)
        };
        let felt = if v >= 3 { r.u16()? } else { 0 };
        let taken = if v >= 4 { r.u64()? } else { 0 };
        if let PeerMsg::Activated { record_max, .. } = &mut body {
            *record_max = taken;
        }
        Ok(Self { pg: SpgId { pg, shard }, from, epoch, interval, felt, body })
    }
}
