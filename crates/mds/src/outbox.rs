//! What a role wants done: the only way out of it.

use std::collections::BTreeMap;

use bytes::Bytes;
use env::ConnId;
use maps::MdsState;
use maps::fs::MdsHealth;
use messages::Envelope;
use types::{EntityAddr, Epoch, PoolId, SnapId};

/// Names one request for I/O; never used twice in a server's life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IoId(pub u64);

/// Names one command; chosen by the driver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AskId(pub u64);

/// One step on an object. All steps of one [`Io`] happen, or none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IoOp {
    /// Reads bytes; fewer at the end of the object. Answer: [`IoData::Bytes`].
    Read {
        /// The first byte.
        off: u64,
        /// How many; 0 for all.
        len: u64,
    },
    /// Answer: [`IoData::Stat`]; ENOENT where there is no object.
    Stat,
    /// Writes bytes at a place.
    Write {
        /// The first byte.
        off: u64,
        /// The bytes.
        data: Bytes,
    },
    /// Makes these bytes the whole object.
    WriteFull(Bytes),
    /// Writes at the end.
    Append(Bytes),
    /// Cuts or stretches to this many bytes.
    Truncate(u64),
    /// Cuts to `size` bytes, unless a cut of this or a later `seq` was done: the peer's
    /// `CEPH_OSD_OP_TRIMTRUNC`.
    TrimTruncate {
        /// As many bytes stay.
        size: u64,
        /// Counts cuts of the file.
        seq: u32,
    },
    /// Makes bytes zero.
    Zero {
        /// The first byte.
        off: u64,
        /// How many.
        len: u64,
    },
    /// Makes the object, which may be there unless it is exclusive (EEXIST).
    Create {
        /// It must not be there.
        exclusive: bool,
    },
    /// Removes the object (ENOENT where there is none).
    Remove,
    /// Reads the header of the omap. Answer: [`IoData::Bytes`].
    OmapHeader,
    /// Reads keys and values behind a key, in order of bytes. Answer: [`IoData::Omap`].
    OmapRange {
        /// Only keys above this one; empty for all.
        after: Bytes,
        /// As many at most.
        max: u64,
    },
    /// Reads these keys that are there. Answer: [`IoData::Omap`].
    OmapKeys(Vec<Bytes>),
    /// Sets keys.
    OmapSet(Vec<(Bytes, Bytes)>),
    /// Removes keys; those that are not there do not matter.
    OmapRemove(Vec<Bytes>),
    /// Sets the header.
    OmapSetHeader(Bytes),
    /// Removes all keys and the header.
    OmapClear,
    /// Reads an extended attribute (ENODATA). Answer: [`IoData::Bytes`].
    GetXattr(String),
    /// Sets an extended attribute.
    SetXattr(String, Bytes),
    /// Removes an extended attribute.
    RmXattr(String),
    /// Fails with ERANGE or EOVERFLOW unless the object has this version.
    AssertVersion(u64),
}

impl IoOp {
    /// Whether it changes the object.
    #[must_use]
    pub const fn is_write(&self) -> bool {
        !matches!(
            self,
            Self::Read { .. }
                | Self::Stat
                | Self::OmapHeader
                | Self::OmapRange { .. }
                | Self::OmapKeys(_)
                | Self::GetXattr(_)
                | Self::AssertVersion(_)
        )
    }
}

/// A request for I/O on one object, answered by [`crate::Mds::on_done`] in any order.
/// Requests on one object are executed in the order in which they were wished for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Io {
    /// Its number.
    pub id: IoId,
    /// The pool.
    pub pool: PoolId,
    /// The object.
    pub object: String,
    /// Its namespace; mostly empty.
    pub nspace: Bytes,
    /// For writes: the newest snapshot and all, newest first. Zero and none in the metadata pool.
    pub snapc: (SnapId, Vec<SnapId>),
    /// The steps.
    pub ops: Vec<IoOp>,
}

/// What one step answered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum IoData {
    /// It was done, and has nothing to say.
    #[default]
    Done,
    /// Bytes that were read.
    Bytes(Bytes),
    /// Size in bytes and the time of the last write in nanoseconds since 1970.
    Stat {
        /// The size.
        size: u64,
        /// When it was written.
        mtime_ns: u64,
    },
    /// Keys and values.
    Omap {
        /// The keys and values that were found, sorted by key.
        pairs: BTreeMap<Bytes, Bytes>,
        /// There are more.
        more: bool,
    },
}

/// What an [`Io`] answered: one for each step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IoAnswer(pub Vec<IoData>);

/// What the monitors shall hear. The driver adds who it is: fsid, gid, name, compat, and
/// `sys_info` in [`MdsState::BOOT`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Beacon {
    /// The state that the server is in or wants.
    pub state: MdsState,
    /// Counts beacons from 1; an answer repeats it ([`crate::Mds::on_beacon_ack`]).
    pub seq: u64,
    /// The newest map that the server has.
    pub epoch: Epoch,
    /// What it complains about.
    pub health: MdsHealth,
}

/// How bad it is what a line of the cluster log says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// It is as it should be.
    Info,
    /// Something may have to be done.
    Warning,
    /// Something is broken.
    Error,
}

/// One wish.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Send over this connection of a client, in order; dropped when it is gone.
    Send(ConnId, Envelope),
    /// Close this connection; no [`crate::Mds::on_closed`] follows.
    Close(ConnId),
    /// Send to the monitors; the last one wished for replaces earlier ones that were not sent.
    Beacon(Beacon),
    /// Do this.
    Io(Io),
    /// Ask the monitors to blocklist a client's address, for as long as they do by themselves;
    /// answered by [`crate::Mds::on_done`] with an empty answer when they agreed, before or
    /// after the map that has it.
    Blocklist {
        /// Its number.
        id: IoId,
        /// The address to put on the blocklist.
        addr: EntityAddr,
    },
    /// The maps of OSDs are wanted from this epoch on: one of them, or a later one, is
    /// awaited ([`crate::Mds::on_osd_map`]).
    WantOsdMap(Epoch),
    /// Tell the monitors of removed snapshots, by pool; told again until each pool's number in
    /// [`crate::OsdNews::snap_seqs`] has reached the newest.
    RemoveSnaps(BTreeMap<i32, Vec<SnapId>>),
    /// The answer to [`crate::Mds::on_command`].
    Answer {
        /// The command that is answered.
        ask: AskId,
        /// 0 or -errno.
        r: i32,
        /// For stderr.
        rs: String,
        /// For stdout.
        output: Bytes,
    },
    /// A line for the cluster log.
    ClusterLog {
        /// How bad it is.
        severity: Severity,
        /// The line, without its end.
        text: String,
    },
    /// The process ends, and begins anew with nothing of this value.
    Respawn {
        /// The reason, for the log.
        why: String,
    },
}

/// Wishes in the order in which they came up. The driver empties it after every event.
#[derive(Debug, Default)]
pub struct Outbox {
    effects: Vec<Effect>,
}

impl Outbox {
    /// An empty one.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// All of them, oldest first; none are left.
    pub fn drain(&mut self) -> std::vec::Drain<'_, Effect> {
        self.effects.drain(..)
    }

    pub(crate) fn push(&mut self, effect: Effect) {
        self.effects.push(effect);
    }
}
