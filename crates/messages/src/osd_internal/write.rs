//! Writes on their way to the copies, and heartbeats.

use bytes::Bytes;
use denc::{DecodeError, Denc, Reader, Writer};
use types::{EVersion, Epoch, OsdId, ShardId, SpgId, Uuid};

use super::change::{ObjectChange, decode_changes, encode_changes, join_writes};
use crate::{Message, plain_message};

/// A write for a replica: the log entry and the changes, to be made durable together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepOp {
    /// The PG, and the receiver's shard of it.
    pub pg: SpgId,
    /// The sender's shard (v2).
    pub from: ShardId,
    /// The primary's map.
    pub epoch: Epoch,
    /// The interval the write belongs to.
    pub interval: Epoch,
    /// The log's head before it: a replica elsewhere has lost something.
    pub prev: EVersion,
    /// Log entries up to here may be forgotten.
    pub trim_to: EVersion,
    /// Writes up to here are durable on all acting copies: nobody will undo them (v2).
    pub settled: EVersion,
    /// The encoded [`PgLogEntry`].
    pub entry: Bytes,
    /// The changes.
    pub changes: Vec<ObjectChange>,
}

impl Message for RepOp {
    const KIND: u16 = 112;
    const VERSION: u16 = 2;

    fn encode_front(&self, w: &mut Writer) {
        self.pg.pg.encode(w);
        self.epoch.encode(w);
        self.interval.encode(w);
        self.prev.encode(w);
        self.trim_to.encode(w);
        w.blob(&self.entry);
        encode_changes(&self.changes, w);
        self.pg.shard.encode(w);
        self.from.encode(w);
        self.settled.encode(w);
    }

    fn data(&self) -> Bytes {
        join_writes(&self.changes)
    }

    fn decode_front(r: &mut Reader<'_>, v: u16, data: &Bytes) -> Result<Self, DecodeError> {
        let mut m = Self {
            pg: SpgId { pg: Denc::decode(r)?, shard: ShardId::NONE },
            from: ShardId::NONE,
            epoch: Denc::decode(r)?,
            interval: Denc::decode(r)?,
            prev: Denc::decode(r)?,
            trim_to: Denc::decode(r)?,
            settled: EVersion::ZERO,
            entry: r.blob()?,
            changes: decode_changes(r, data)?,
        };
        if v >= 2 {
            m.pg.shard = Denc::decode(r)?;
            m.from = Denc::decode(r)?;
            m.settled = Denc::decode(r)?;
        }
        Ok(m)
    }
}

/// A replica has made everything up to a version durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RepOpReply {
    /// The PG, and the receiver's shard of it.
    pub pg: SpgId,
    /// The replica's map.
    pub epoch: Epoch,
    /// The interval the writes belong to.
    pub interval: Epoch,
    /// Durable up to here.
    pub committed: EVersion,
    /// The sender's shard (v2).
    pub from: ShardId,
}

impl Message for RepOpReply {
    const KIND: u16 = 113;
    const VERSION: u16 = 2;

    fn encode_front(&self, w: &mut Writer) {
        self.pg.pg.encode(w);
        self.epoch.encode(w);
        self.interval.encode(w);
        self.committed.encode(w);
        self.pg.shard.encode(w);
        self.from.encode(w);
    }

    fn decode_front(r: &mut Reader<'_>, v: u16, _: &Bytes) -> Result<Self, DecodeError> {
        let mut m = Self {
            pg: SpgId { pg: Denc::decode(r)?, shard: ShardId::NONE },
            epoch: Denc::decode(r)?,
            interval: Denc::decode(r)?,
            committed: Denc::decode(r)?,
            from: ShardId::NONE,
        };
        if v >= 2 {
            m.pg.shard = Denc::decode(r)?;
            m.from = Denc::decode(r)?;
        }
        Ok(m)
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
