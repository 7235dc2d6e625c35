//! Between monitors (and managers) and everybody else.

use std::collections::BTreeMap;

use bytes::Bytes;
use denc::{DecodeError, Denc, Reader, Writer};
use types::{EntityName, Epoch, SnapId, Uuid};

use crate::{Message, PRIO_HIGH, plain_message};

/// What older monitors needed to route a request; 18 bytes that still lead many messages.
/// The peer's `PaxosServiceMessage`: u64 version, i16 -1, u64 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Paxos {
    /// The version of the map the sender has, or the log version in [`LogMsg`].
    pub version: u64,
}

impl Denc for Paxos {
    fn encode(&self, w: &mut Writer) {
        w.u64(self.version);
        w.i16(-1);
        w.u64(0);
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let version = r.u64()?;
        let (_mon, _tid) = (r.i16()?, r.u64()?);
        Ok(Self { version })
    }
}

/// What is wanted of one map. The peer's `ceph_mon_subscribe_item`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Subscription {
    /// First version wanted; 0 is "the latest, whatever it is".
    pub start: u64,
    /// Bit 0: once only.
    pub flags: u8,
}

impl Subscription {
    /// Ends after the first answer.
    pub const ONETIME: u8 = 1;

    /// Whether it ends after the first answer.
    #[must_use]
    pub const fn is_onetime(self) -> bool {
        self.flags & Self::ONETIME != 0
    }
}

impl Denc for Subscription {
    fn encode(&self, w: &mut Writer) {
        w.u64(self.start);
        w.u8(self.flags);
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self { start: r.u64()?, flags: r.u8()? })
    }
}

plain_message! {
    /// The monitor map. `MMonMap`.
    MonMapMsg, 4, priority PRIO_HIGH;
    {
        /// Encoded `maps::MonMap`.
        monmap: Bytes,
    }
}
plain_message! {
    /// Asks for the monitor map. `MMonGetMap`.
    MonGetMap, 5;
    {}
}
plain_message! {
    /// Asks for OSD maps. `MMonGetOSDMap`.
    MonGetOsdMap, 6;
    {
        /// Leads the message.
        paxos: Paxos,
        /// First full map wanted.
        full_first: Epoch,
        /// Last full map wanted; 0 is none.
        full_last: Epoch,
        /// First incremental wanted.
        inc_first: Epoch,
        /// Last incremental wanted; 0 is none.
        inc_last: Epoch,
    }
}
plain_message! {
    /// A metadata server has removed snapshots, whose ids it gave itself. `MRemoveSnaps`.
    RemoveSnaps, 90;
    {
        /// Leads the message.
        paxos: Paxos,
        /// Ids by pool.
        snaps: BTreeMap<i32, Vec<SnapId>>,
    }
}
plain_message! {
    /// Asks for the cluster's usage, or one pool's. `MStatfs`.
    Statfs, 13, version 2;
    {
        /// Leads the message.
        paxos: Paxos,
        /// The cluster.
        fsid: Uuid,
        /// Usage of this pool only.
        data_pool: Option<i64>,
    }
}
plain_message! {
    /// Usage in KiB. `MStatfsReply`.
    StatfsReply, 14, priority PRIO_HIGH;
    {
        /// The cluster.
        fsid: Uuid,
        /// Version of the statistics.
        version: u64,
        /// Capacity.
        kb: u64,
        /// Used.
        kb_used: u64,
        /// Available.
        kb_avail: u64,
        /// Objects stored.
        num_objects: u64,
    }
}

/// Asks to be told of maps, now and when they change. `MMonSubscribe`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MonSubscribe {
    /// Map name to what is wanted of it.
    pub what: BTreeMap<String, Subscription>,
    /// The sender's host (v3).
    pub hostname: String,
}

impl Message for MonSubscribe {
    const KIND: u16 = 15;
    const VERSION: u16 = 3;
    fn encode_front(&self, w: &mut Writer) {
        self.what.encode(w);
        w.str(&self.hostname);
    }
    fn decode_front(r: &mut Reader<'_>, version: u16, _: &Bytes) -> Result<Self, DecodeError> {
        let what = Denc::decode(r)?;
        let hostname = if version >= 3 { r.string()? } else { String::new() };
        Ok(Self { what, hostname })
    }
}

plain_message! {
    /// For peers whose subscriptions must be renewed. `MMonSubscribeAck`.
    MonSubscribeAck, 16, priority PRIO_HIGH;
    {
        /// Seconds until renewal.
        interval_s: u32,
        /// The cluster.
        fsid: Uuid,
    }
}
/// cephx within a session: renewal of tickets; by messenger v1 all of it. `MAuth`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Auth {
    /// Leads the message.
    pub paxos: Paxos,
    /// 2 is cephx; 0 where the client offers several.
    pub protocol: u32,
    /// The request.
    pub payload: Bytes,
    /// The monitor map the sender has; kernels leave it out.
    pub monmap_epoch: Epoch,
}

impl Message for Auth {
    const KIND: u16 = 17;

    fn encode_front(&self, w: &mut Writer) {
        self.paxos.encode(w);
        w.u32(self.protocol);
        self.payload.encode(w);
        self.monmap_epoch.encode(w);
    }

    fn decode_front(r: &mut Reader<'_>, _version: u16, _data: &Bytes) -> Result<Self, DecodeError> {
        let (paxos, protocol, payload) = (Denc::decode(r)?, r.u32()?, Denc::decode(r)?);
        let monmap_epoch = if r.left() == 0 { Epoch::default() } else { Denc::decode(r)? };
        Ok(Self { paxos, protocol, payload, monmap_epoch })
    }
}

plain_message! {
    /// Answer to [`Auth`]. `MAuthReply`.
    AuthReply, 18, priority PRIO_HIGH;
    {
        /// 2 is cephx.
        protocol: u32,
        /// 0 or -errno.
        result: i32,
        /// The session's id.
        global_id: u64,
        /// The response.
        payload: Bytes,
        /// For humans.
        message: String,
    }
}
plain_message! {
    /// Asks for the newest version of a map. `MMonGetVersion`.
    MonGetVersion, 19;
    {
        /// Repeated in the answer.
        handle: u64,
        /// The map's name.
        what: String,
    }
}
plain_message! {
    /// Answer to [`MonGetVersion`]. `MMonGetVersionReply`.
    MonGetVersionReply, 20, version 2, priority PRIO_HIGH;
    {
        /// The request's.
        handle: u64,
        /// Newest version.
        version: u64,
        /// Oldest kept.
        oldest: u64,
    }
}
plain_message! {
    /// A file system's map. `MMDSMap`.
    MdsMapMsg, 21, version 2, priority PRIO_HIGH;
    {
        /// The cluster.
        fsid: Uuid,
        /// Its epoch.
        epoch: Epoch,
        /// Encoded `maps::MdsMap`.
        map: Bytes,
        /// Which file system.
        fs_name: String,
    }
}
plain_message! {
    /// A change to a pool by its users. `MPoolOp`.
    PoolOp, 49, version 4, compat 2;
    {
        /// Leads the message.
        paxos: Paxos,
        /// The cluster.
        fsid: Uuid,
        /// Pool id; 0 for creation.
        pool: u32,
        /// What to do: [`pool_op`].
        op: u32,
        /// Owner, long without meaning.
        auid: u64,
        /// Snapshot to delete.
        snapid: SnapId,
        /// Pool or snapshot name.
        name: String,
        /// Long without meaning.
        pad: u8,
        /// -1 is the default rule.
        crush_rule: i16,
    }
}

/// Values of [`PoolOp::op`].
pub mod pool_op {
    /// Create a pool.
    pub const CREATE: u32 = 0x01;
    /// Delete a pool.
    pub const DELETE: u32 = 0x02;
    /// Long without meaning.
    pub const AUID_CHANGE: u32 = 0x03;
    /// Snapshot of a pool.
    pub const CREATE_SNAP: u32 = 0x11;
    /// Delete one.
    pub const DELETE_SNAP: u32 = 0x12;
    /// A snapshot id for the client's own use.
    pub const CREATE_UNMANAGED_SNAP: u32 = 0x21;
    /// Delete one.
    pub const DELETE_UNMANAGED_SNAP: u32 = 0x22;
}

plain_message! {
    /// A command, as JSON. `MMonCommand`.
    MonCommand, 50;
    {
        /// Leads the message.
        paxos: Paxos,
        /// The cluster.
        fsid: Uuid,
        /// One JSON object; the peer's type is a vector for old reasons.
        cmd: Vec<Bytes>,
    } data input
}
plain_message! {
    /// Answer to [`MonCommand`]. `MMonCommandAck`.
    MonCommandAck, 51, priority PRIO_HIGH;
    {
        /// Leads the message.
        paxos: Paxos,
        /// 0 or more, or -errno.
        r: i32,
        /// For humans: stderr of the client's tool.
        rs: String,
        /// The command.
        cmd: Vec<Bytes>,
    } data output
}
plain_message! {
    /// Up to where log entries are kept. `MLogAck`.
    LogAck, 53, priority PRIO_HIGH;
    {
        /// The cluster.
        fsid: Uuid,
        /// The last sequence number kept.
        last: u64,
        /// Which log.
        channel: String,
    }
}
plain_message! {
    /// Asks for pools' statistics. `MGetPoolStats`.
    GetPoolStats, 58;
    {
        /// Leads the message.
        paxos: Paxos,
        /// The cluster.
        fsid: Uuid,
        /// Pool names.
        pools: Vec<String>,
    }
}
plain_message! {
    /// Options for this client from the monitors' database. `MConfig`.
    ConfigMsg, 62, priority PRIO_HIGH;
    {
        /// Option to value.
        config: BTreeMap<String, String>,
    }
}
plain_message! {
    /// Asks for options before a daemon starts. `MGetConfig`.
    GetConfig, 63;
    {
        /// Who.
        name: EntityName,
        /// Its host.
        host: String,
        /// Its device class.
        device_class: String,
    }
}
plain_message! {
    /// A command to an OSD or MDS. `MCommand`.
    Command, 97;
    {
        /// The cluster.
        fsid: Uuid,
        /// One JSON object.
        cmd: Vec<Bytes>,
    } data input
}
plain_message! {
    /// Answer to [`Command`]. `MCommandReply`.
    CommandReply, 98;
    {
        /// 0 or -errno.
        r: i32,
        /// For humans.
        rs: String,
    } data output
}
plain_message! {
    /// A command to the manager. `MMgrCommand`.
    MgrCommand, 0x709;
    {
        /// The cluster; releases up to 20 send zeros.
        fsid: Uuid,
        /// One JSON object.
        cmd: Vec<Bytes>,
    } data input
}
plain_message! {
    /// Answer to [`MgrCommand`]. `MMgrCommandReply`.
    MgrCommandReply, 0x70a;
    {
        /// 0 or -errno.
        r: i32,
        /// For humans.
        rs: String,
    } data output
}
plain_message! {
    /// Nothing; shows that the connection works. `MPing`.
    Ping, 2;
    {}
}

/// A message whose front ends with a map's encoding, without a length before it.
macro_rules! map_message {
    ($(#[$doc:meta])* $name:ident, $kind:expr; { $($(#[$fdoc:meta])* $f:ident: $t:ty,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct $name {
            $($(#[$fdoc])* pub $f: $t,)*
            /// The map, encoded for the peer.
            pub map: Bytes,
        }
        impl Message for $name {
            const KIND: u16 = $kind;
            const PRIORITY: u16 = PRIO_HIGH;
            fn encode_front(&self, w: &mut Writer) {
                $(self.$f.encode(w);)*
                w.raw(&self.map);
            }
            fn decode_front(r: &mut Reader<'_>, _: u16, _: &Bytes) -> Result<Self, DecodeError> {
                Ok(Self { $($f: Denc::decode(r)?,)* map: r.rest() })
            }
        }
    };
}
map_message! {
    /// All file systems. `MFSMap`.
    FsMapMsg, 45;
    {
        /// Its epoch.
        epoch: Epoch,
    }
}
map_message! {
    /// Entry points of all file systems. `MFSMapUser`.
    FsMapUserMsg, 103;
    {
        /// Its epoch.
        epoch: Epoch,
    }
}
map_message! {
    /// Where the manager is. `MMgrMap`.
    MgrMapMsg, 0x704;
    {}
}
map_message! {
    /// Daemons that registered themselves. `MServiceMap`.
    ServiceMapMsg, 0x707;
    {}
}

/// Answer to [`PoolOp`]. `MPoolOpReply`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolOpReply {
    /// Leads the message.
    pub paxos: Paxos,
    /// The cluster.
    pub fsid: Uuid,
    /// 0 or -errno.
    pub r: i32,
    /// The map that holds the change.
    pub epoch: Epoch,
    /// A new snapshot id, encoded.
    pub data: Option<Bytes>,
}

impl Message for PoolOpReply {
    const KIND: u16 = 48;
    const PRIORITY: u16 = PRIO_HIGH;
    fn encode_front(&self, w: &mut Writer) {
        self.paxos.encode(w);
        self.fsid.encode(w);
        w.i32(self.r);
        self.epoch.encode(w);
        self.data.encode(w);
    }
    fn decode_front(r: &mut Reader<'_>, _: u16, _: &Bytes) -> Result<Self, DecodeError> {
        Ok(Self {
            paxos: Denc::decode(r)?,
            fsid: Denc::decode(r)?,
            r: r.i32()?,
            epoch: Denc::decode(r)?,
            data: Denc::decode(r)?,
        })
    }
}

/// OSD maps: full ones and increments, by epoch. `MOSDMap`, v4.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OsdMapMsg {
    /// The cluster.
    pub fsid: Uuid,
    /// Encoded `maps::Incremental` by the epoch it makes.
    pub incrementals: BTreeMap<Epoch, Bytes>,
    /// Encoded `maps::OsdMap`.
    pub fulls: BTreeMap<Epoch, Bytes>,
    /// Oldest and newest epoch the sender has.
    pub oldest: Epoch,
    /// Newest epoch the sender has.
    pub newest: Epoch,
}

impl OsdMapMsg {
    /// The first epoch inside.
    #[must_use]
    pub fn first(&self) -> Option<Epoch> {
        self.incrementals.keys().chain(self.fulls.keys()).min().copied()
    }

    /// The last epoch inside.
    #[must_use]
    pub fn last(&self) -> Option<Epoch> {
        self.incrementals.keys().chain(self.fulls.keys()).max().copied()
    }
}

impl Message for OsdMapMsg {
    const KIND: u16 = 41;
    const VERSION: u16 = 4;
    const COMPAT: u16 = 3;
    fn encode_front(&self, w: &mut Writer) {
        self.fsid.encode(w);
        self.incrementals.encode(w);
        self.fulls.encode(w);
        self.oldest.encode(w);
        self.newest.encode(w);
        w.u32(0); // removed snapshots across gaps: none are sent
    }
    fn decode_front(r: &mut Reader<'_>, version: u16, _: &Bytes) -> Result<Self, DecodeError> {
        let fsid = Denc::decode(r)?;
        let incrementals = Denc::decode(r)?;
        let fulls = Denc::decode(r)?;
        let (oldest, newest) =
            if version >= 2 { (Denc::decode(r)?, Denc::decode(r)?) } else { Default::default() };
        Ok(Self { fsid, incrementals, fulls, oldest, newest })
    }
}
