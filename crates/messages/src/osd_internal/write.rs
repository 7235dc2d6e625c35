//! Writes on their way to the copies, and heartbeats.

use bytes::Bytes;
use denc::{DecodeError, Denc, Reader, Writer};
use types::{EVersion, Epoch, OsdId, PgId, Uuid};

use super::change::{ObjectChange, decode_changes, encode_changes, join_writes};
use crate::{Message, plain_message};

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
