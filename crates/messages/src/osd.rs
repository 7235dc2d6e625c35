//! Object operations: clients to OSDs and back.

use bytes::Bytes;
use denc::{DecodeError, Denc, Features, Reader, Writer};
use types::{EVersion, Epoch, ObjectLocator, PgId, ReqId, SnapId, SpgId, UTime};

use crate::{Message, plain_message};

/// Operation codes; the table with their meanings stands in `docs/protocols/osd-ops.md`.
#[allow(missing_docs)]
pub mod op {
    pub const READ: u16 = 0x1201;
    pub const STAT: u16 = 0x1202;
    pub const MAPEXT: u16 = 0x1203;
    pub const MASKTRUNC: u16 = 0x1204;
    pub const SPARSE_READ: u16 = 0x1205;
    pub const NOTIFY: u16 = 0x1206;
    pub const NOTIFY_ACK: u16 = 0x1207;
    pub const ASSERT_VER: u16 = 0x1208;
    pub const LIST_WATCHERS: u16 = 0x1209;
    pub const LIST_SNAPS: u16 = 0x120a;
    pub const SYNC_READ: u16 = 0x120b;
    pub const TMAPGET: u16 = 0x120c;
    pub const OMAPGETKEYS: u16 = 0x1211;
    pub const OMAPGETVALS: u16 = 0x1212;
    pub const OMAPGETHEADER: u16 = 0x1213;
    pub const OMAPGETVALSBYKEYS: u16 = 0x1214;
    pub const OMAP_CMP: u16 = 0x1219;
    pub const COPY_GET: u16 = 0x121e;
    pub const CHECKSUM: u16 = 0x121f;
    pub const CMPEXT: u16 = 0x1220;
    pub const ISDIRTY: u16 = 0x121d;
    pub const GETXATTR: u16 = 0x1301;
    pub const GETXATTRS: u16 = 0x1302;
    pub const CMPXATTR: u16 = 0x1303;
    pub const CALL: u16 = 0x1401;
    pub const PGLS: u16 = 0x1501;
    pub const PGLS_FILTER: u16 = 0x1502;
    pub const PG_HITSET_LS: u16 = 0x1503;
    pub const PG_HITSET_GET: u16 = 0x1504;
    pub const PGNLS: u16 = 0x1505;
    pub const PGNLS_FILTER: u16 = 0x1506;
    pub const SCRUBLS: u16 = 0x1507;
    pub const WRITE: u16 = 0x2201;
    pub const WRITEFULL: u16 = 0x2202;
    pub const TRUNCATE: u16 = 0x2203;
    pub const ZERO: u16 = 0x2204;
    pub const DELETE: u16 = 0x2205;
    pub const APPEND: u16 = 0x2206;
    pub const SETTRUNC: u16 = 0x2208;
    pub const TRIMTRUNC: u16 = 0x2209;
    pub const TMAPUP: u16 = 0x320a;
    pub const TMAPPUT: u16 = 0x220b;
    pub const CREATE: u16 = 0x220d;
    pub const ROLLBACK: u16 = 0x220e;
    pub const WATCH: u16 = 0x220f;
    pub const OMAPSETVALS: u16 = 0x2215;
    pub const OMAPSETHEADER: u16 = 0x2216;
    pub const OMAPCLEAR: u16 = 0x2217;
    pub const OMAPRMKEYS: u16 = 0x2218;
    pub const COPY_FROM: u16 = 0x221a;
    pub const UNDIRTY: u16 = 0x221c;
    pub const SETALLOCHINT: u16 = 0x2223;
    pub const CACHE_PIN: u16 = 0x2224;
    pub const CACHE_UNPIN: u16 = 0x2225;
    pub const WRITESAME: u16 = 0x2226;
    pub const OMAPRMKEYRANGE: u16 = 0x222c;
    pub const COPY_FROM2: u16 = 0x222d;
    pub const SETXATTR: u16 = 0x2301;
    pub const SETXATTRS: u16 = 0x2302;
    pub const RESETXATTRS: u16 = 0x2303;
    pub const RMXATTR: u16 = 0x2304;

    pub const CACHE_FLUSH: u16 = 0x821f;
    pub const CACHE_EVICT: u16 = 0x8220;
    pub const CACHE_TRY_FLUSH: u16 = 0x8221;

    /// Mode nibble: the operation reads.
    pub const MODE_RD: u16 = 0x1000;
    /// Mode nibble: the operation writes.
    pub const MODE_WR: u16 = 0x2000;
    /// Type nibble of operations on a whole PG.
    pub const TYPE_PG: u16 = 0x0500;
}

/// Bits of COPY_FROM's flags, byte 16 of its union.
#[allow(missing_docs)]
pub mod copy_flag {
    pub const FLUSH: u8 = 1;
    pub const IGNORE_OVERLAY: u8 = 2;
    pub const IGNORE_CACHE: u8 = 4;
    pub const MAP_SNAP_CLONE: u8 = 8;
}

/// Bits of [`OsdOp::flags`].
#[allow(missing_docs)]
pub mod op_flag {
    pub const EXCL: u32 = 1;
    pub const FAILOK: u32 = 2;
    pub const FADVISE_RANDOM: u32 = 4;
    pub const FADVISE_SEQUENTIAL: u32 = 8;
    pub const FADVISE_WILLNEED: u32 = 0x10;
    pub const FADVISE_DONTNEED: u32 = 0x20;
    pub const FADVISE_NOCACHE: u32 = 0x40;
}

/// Bits of [`MOsdOp::flags`] and [`MOsdOpReply::flags`].
#[allow(missing_docs)]
pub mod req_flag {
    pub const ACK: u32 = 1;
    pub const ONNVRAM: u32 = 2;
    pub const ONDISK: u32 = 4;
    pub const RETRY: u32 = 8;
    pub const READ: u32 = 0x10;
    pub const WRITE: u32 = 0x20;
    pub const ORDERSNAP: u32 = 0x40;
    pub const PEERSTAT_OLD: u32 = 0x80;
    pub const BALANCE_READS: u32 = 0x100;
    pub const PARALLELEXEC: u32 = 0x200;
    pub const PGOP: u32 = 0x400;
    pub const EXEC: u32 = 0x800;
    pub const LOCALIZE_READS: u32 = 0x2000;
    pub const RWORDERED: u32 = 0x4000;
    pub const IGNORE_CACHE: u32 = 0x8000;
    pub const SKIPRWLOCKS: u32 = 0x1_0000;
    pub const IGNORE_OVERLAY: u32 = 0x2_0000;
    pub const FLUSH: u32 = 0x4_0000;
    pub const MAP_SNAP_CLONE: u32 = 0x8_0000;
    pub const ENFORCE_SNAPC: u32 = 0x10_0000;
    pub const REDIRECTED: u32 = 0x20_0000;
    pub const KNOWN_REDIR: u32 = 0x40_0000;
    pub const FULL_TRY: u32 = 0x80_0000;
    pub const FULL_FORCE: u32 = 0x100_0000;
    pub const IGNORE_REDIRECT: u32 = 0x200_0000;
    pub const RETURNVEC: u32 = 0x400_0000;
    pub const SUPPORTSPOOLEIO: u32 = 0x800_0000;
}

/// One operation on an object: code, flags, a 28-byte union, and its input (in requests)
/// or output (in replies). The peer's `ceph_osd_op` (38 bytes with the payload length).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OsdOp {
    /// See [`op`].
    pub code: u16,
    /// See [`op_flag`].
    pub flags: u32,
    /// The arguments, by code; the accessors name them.
    pub raw: [u8; 28],
    /// Input, or output.
    pub data: Bytes,
}

impl OsdOp {
    /// An operation without arguments.
    #[must_use]
    pub fn new(code: u16, data: Bytes) -> Self {
        Self { code, data, ..Self::default() }
    }

    /// An operation on a byte range.
    #[must_use]
    pub fn extent(code: u16, off: u64, len: u64, data: Bytes) -> Self {
        let mut op = Self::new(code, data);
        op.put_u64(0, off);
        op.put_u64(8, len);
        op
    }

    /// u64 at byte `at` of the union.
    ///
    /// # Panics
    /// When the field does not lie within the union; all offsets are constants.
    #[must_use]
    pub fn u64(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.raw[at..at + 8].try_into().expect("eight bytes"))
    }

    /// u32 at byte `at` of the union.
    ///
    /// # Panics
    /// As [`OsdOp::u64`].
    #[must_use]
    pub fn u32(&self, at: usize) -> u32 {
        u32::from_le_bytes(self.raw[at..at + 4].try_into().expect("four bytes"))
    }

    /// Sets the u64 at byte `at`.
    pub fn put_u64(&mut self, at: usize, x: u64) {
        self.raw[at..at + 8].copy_from_slice(&x.to_le_bytes());
    }

    /// Sets the u32 at byte `at`.
    pub fn put_u32(&mut self, at: usize, x: u32) {
        self.raw[at..at + 4].copy_from_slice(&x.to_le_bytes());
    }

    /// extent.offset.
    #[must_use]
    pub fn off(&self) -> u64 {
        self.u64(0)
    }

    /// extent.length.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.u64(8)
    }

    /// Whether the extent is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// extent.truncate_size.
    #[must_use]
    pub fn truncate_size(&self) -> u64 {
        self.u64(16)
    }

    /// extent.truncate_seq.
    #[must_use]
    pub fn truncate_seq(&self) -> u32 {
        self.u32(24)
    }

    /// Whether it changes the object.
    #[must_use]
    pub const fn is_write(&self) -> bool {
        self.code & op::MODE_WR != 0
    }

    /// Whether it reads the object.
    #[must_use]
    pub const fn is_read(&self) -> bool {
        self.code & op::MODE_RD != 0
    }

    fn encode_head(&self, w: &mut Writer) {
        w.u16(self.code);
        w.u32(self.flags);
        w.raw(&self.raw);
        w.u32(self.data.len() as u32);
    }

    /// Reads the head; the payload follows elsewhere and has the length returned.
    fn decode_head(r: &mut Reader<'_>) -> Result<(Self, usize), DecodeError> {
        let (code, flags, raw, len) = (r.u16()?, r.u32()?, r.array()?, r.u32()? as usize);
        Ok((Self { code, flags, raw, data: Bytes::new() }, len))
    }
}

/// Heads in the front, payloads one after another in the data segment.
fn decode_ops(r: &mut Reader<'_>, n: u32, data: &Bytes) -> Result<Vec<OsdOp>, DecodeError> {
    const HEAD: usize = 38;
    if n as usize * HEAD > r.left() {
        return Err(DecodeError::Invalid { what: "ops", rule: "the count fits the message" });
    }
    let mut ops = Vec::with_capacity(n as usize);
    let mut at = 0usize;
    for _ in 0..n {
        let (mut op, len) = OsdOp::decode_head(r)?;
        let end = at.checked_add(len).filter(|end| *end <= data.len());
        let Some(end) = end else {
            return Err(DecodeError::Short {
                what: "op data",
                at,
                need: len,
                left: data.len() - at,
            });
        };
        if len > 0 {
            op.data = data.slice(at..end);
        }
        at = end;
        ops.push(op);
    }
    Ok(ops)
}

/// Payloads of `ops` joined; not copied where only one is not empty.
fn join_data(ops: &[OsdOp]) -> Bytes {
    let mut filled = ops.iter().filter(|op| !op.data.is_empty());
    let Some(first) = filled.next() else { return Bytes::new() };
    if filled.next().is_none() {
        return first.data.clone();
    }
    let mut all = Vec::with_capacity(ops.iter().map(|op| op.data.len()).sum());
    for op in ops {
        all.extend_from_slice(&op.data);
    }
    all.into()
}

/// A client's operations on one object. `MOSDOp`, v8 (v9 from peers with SERVER_SQUID).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MOsdOp {
    /// The PG, folded.
    pub pg: SpgId,
    /// The object's full hash.
    pub hash: u32,
    /// The map the client looked at.
    pub epoch: Epoch,
    /// See [`req_flag`].
    pub flags: u32,
    /// All zero from clients: the connection's peer and the header's tid count then.
    pub reqid: ReqId,
    /// The client's incarnation.
    pub client_inc: u32,
    /// When the client wrote.
    pub mtime: UTime,
    /// Pool, key, namespace.
    pub locator: ObjectLocator,
    /// The object's name.
    pub oid: Bytes,
    /// What to do, in order, all or nothing.
    pub ops: Vec<OsdOp>,
    /// Which snapshot to read; [`SnapId::HEAD`] for the object.
    pub snapid: SnapId,
    /// Snapshot context: newest snapshot.
    pub snap_seq: SnapId,
    /// Snapshot context: snapshots, newest first.
    pub snaps: Vec<SnapId>,
    /// 0 the first time.
    pub retry_attempt: i32,
    /// What the client can decode.
    pub features: u64,
}

impl Message for MOsdOp {
    const KIND: u16 = 42;
    const VERSION: u16 = 9;
    const COMPAT: u16 = 3;
    const PRIORITY: u16 = 63;

    fn version_for(&self, features: Features) -> u16 {
        if features.has(Features::SERVER_SQUID) { 9 } else { 8 }
    }

    fn encode_front(&self, w: &mut Writer) {
        self.pg.encode(w);
        w.u32(self.hash);
        self.epoch.encode(w);
        w.u32(self.flags);
        self.reqid.encode(w);
        w.raw(&[0; 24]); // tracing ids
        if w.has(Features::SERVER_SQUID) {
            w.framed(1, 1, |w| w.bool(false)); // no span
        }
        w.u32(self.client_inc);
        self.mtime.encode(w);
        self.locator.encode(w);
        w.blob(&self.oid);
        w.u16(u16::try_from(self.ops.len()).expect("ops fit u16"));
        for op in &self.ops {
            op.encode_head(w);
        }
        self.snapid.encode(w);
        self.snap_seq.encode(w);
        self.snaps.encode(w);
        w.i32(self.retry_attempt);
        w.u64(self.features);
    }

    fn data(&self) -> Bytes {
        join_data(&self.ops)
    }

    fn decode_front(r: &mut Reader<'_>, version: u16, data: &Bytes) -> Result<Self, DecodeError> {
        r.require(version >= 8, "osd_op is version 8 or later")?;
        let pg = Denc::decode(r)?;
        let hash = r.u32()?;
        let epoch = Denc::decode(r)?;
        let flags = r.u32()?;
        let reqid = Denc::decode(r)?;
        r.skip(24)?;
        if version >= 9 {
            r.framed("jspan_context", 1, |_, _| Ok(()))?;
        }
        let client_inc = r.u32()?;
        let mtime = Denc::decode(r)?;
        let locator = Denc::decode(r)?;
        let oid = r.blob()?;
        let n = r.u16()?;
        let ops = decode_ops(r, u32::from(n), data)?;
        Ok(Self {
            pg,
            hash,
            epoch,
            flags,
            reqid,
            client_inc,
            mtime,
            locator,
            oid,
            ops,
            snapid: Denc::decode(r)?,
            snap_seq: Denc::decode(r)?,
            snaps: Denc::decode(r)?,
            retry_attempt: r.i32()?,
            features: r.u64()?,
        })
    }
}

/// The answer to [`MOsdOp`]. `MOSDOpReply`, v8.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MOsdOpReply {
    /// The object's name.
    pub oid: Bytes,
    /// The PG, folded.
    pub pg: PgId,
    /// The request's, with ACK and ONDISK.
    pub flags: u32,
    /// 0 or more, or -errno.
    pub result: i32,
    /// The version written, for old clients.
    pub bad_replay_version: EVersion,
    /// The OSD's map.
    pub epoch: Epoch,
    /// The request's operations with outputs as data, as many as were asked.
    pub ops: Vec<OsdOp>,
    /// The request's.
    pub retry_attempt: i32,
    /// Result per operation, as long as `ops`.
    pub rvals: Vec<i32>,
    /// The version written; zero for reads.
    pub replay_version: EVersion,
    /// The object's version.
    pub user_version: u64,
}

impl Message for MOsdOpReply {
    const KIND: u16 = 43;
    const VERSION: u16 = 8;
    const COMPAT: u16 = 2;

    fn encode_front(&self, w: &mut Writer) {
        assert!(self.rvals.len() == self.ops.len(), "a result for each operation");
        w.blob(&self.oid);
        self.pg.encode(w);
        w.i64(i64::from(self.flags));
        w.i32(self.result);
        self.bad_replay_version.encode(w);
        self.epoch.encode(w);
        w.u32(self.ops.len() as u32);
        for op in &self.ops {
            op.encode_head(w);
        }
        w.i32(self.retry_attempt);
        for rval in &self.rvals {
            w.i32(*rval);
        }
        self.replay_version.encode(w);
        w.u64(self.user_version);
        w.bool(false); // no redirect
        w.raw(&[0; 24]); // tracing ids
    }

    fn data(&self) -> Bytes {
        join_data(&self.ops)
    }

    fn decode_front(r: &mut Reader<'_>, version: u16, data: &Bytes) -> Result<Self, DecodeError> {
        r.require(version >= 7, "osd_op_reply is version 7 or later")?;
        let oid = r.blob()?;
        let pg = Denc::decode(r)?;
        let flags = r.i64()? as u32;
        let result = r.i32()?;
        let bad_replay_version = Denc::decode(r)?;
        let epoch = Denc::decode(r)?;
        let n = r.u32()?;
        let ops = decode_ops(r, n, data)?;
        let retry_attempt = r.i32()?;
        let rvals = ops.iter().map(|_| r.i32()).collect::<Result<_, _>>()?;
        let replay_version = Denc::decode(r)?;
        let user_version = r.u64()?;
        let redirected = r.bool()?;
        r.require(!redirected, "redirects are for cache tiers, which are not spoken here")?;
        Ok(Self {
            oid,
            pg,
            flags,
            result,
            bad_replay_version,
            epoch,
            ops,
            retry_attempt,
            rvals,
            replay_version,
            user_version,
        })
    }
}

plain_message! {
    /// A notification to a watcher, or its completion to the notifier. `MWatchNotify`, v3.
    WatchNotify, 44, version 3;
    {
        /// 1.
        pad: u8,
        /// 1 notify, 2 complete, 3 disconnect.
        opcode: u8,
        /// The watch's or the notifier's.
        cookie: u64,
        /// Version of the object, long without meaning.
        ver: u64,
        /// Which notification.
        notify_id: u64,
        /// The notifier's message.
        payload: Bytes,
        /// 0 or -ETIMEDOUT.
        return_code: i32,
        /// The notifier's global id.
        notifier_gid: u64,
    } data replies
}

plain_message! {
    /// Asks a client to hold operations on a range of objects, or to go on. `MOSDBackoff`.
    Backoff, 61;
    {
        /// The PG.
        pg: SpgId,
        /// The map.
        epoch: Epoch,
        /// 1 block, 2 acknowledges, 3 unblock.
        op: u8,
        /// Which.
        id: u64,
        /// First object.
        begin: types::HObject,
        /// Behind the last.
        end: types::HObject,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::{EntityId, PoolId};

    fn request() -> MOsdOp {
        MOsdOp {
            pg: SpgId { pg: PgId::new(5, 7), ..SpgId::default() },
            hash: 0xe1ce_0e07,
            epoch: Epoch(24),
            flags: req_flag::WRITE | req_flag::ONDISK | req_flag::KNOWN_REDIR,
            reqid: ReqId { client: EntityId::default(), tid: 0, inc: 0 },
            client_inc: 0,
            mtime: UTime { sec: 1, nsec: 2 },
            locator: ObjectLocator { pool: PoolId(5), ..ObjectLocator::default() },
            oid: Bytes::from_static(b"w1"),
            ops: vec![
                OsdOp::new(op::SETALLOCHINT, Bytes::new()),
                OsdOp::extent(op::WRITE, 4096, 3, Bytes::from_static(b"abc")),
            ],
            snapid: SnapId::HEAD,
            snap_seq: SnapId(0),
            snaps: vec![],
            retry_attempt: 0,
            features: 0,
        }
    }

    /// Both header versions carry the same request, and payloads share the data segment.
    #[test]
    fn osd_op_round_trips() {
        for features in [Features::PACIFIC_WORD, Features::TENTACLE_WORD] {
            let env = request().envelope(features);
            assert_eq!(env.version, if features == Features::PACIFIC_WORD { 8 } else { 9 });
            let back = MOsdOp::decode(&env).unwrap();
            assert_eq!(back, request());
            assert_eq!(back.ops[1].data.as_ptr(), env.data.as_ptr());
        }
    }

    /// A reply with one operation and a two-byte name has 146 bytes, as 16.2.15's.
    #[test]
    fn reply_has_the_peers_size() {
        let reply = MOsdOpReply {
            oid: Bytes::from_static(b"w1"),
            ops: vec![OsdOp::default()],
            rvals: vec![0],
            ..MOsdOpReply::default()
        };
        let env = reply.envelope(Features::ALL);
        assert_eq!(env.front.len(), 146);
        assert_eq!(MOsdOpReply::decode(&env), Ok(reply));
    }

    /// No cut-off or changed copy of a request makes the decoder panic.
    #[test]
    fn broken_requests_are_refused() {
        let env = request().envelope(Features::PACIFIC_WORD);
        for cut in 0..env.front.len() {
            let short = Envelope { front: env.front.slice(..cut), ..env.clone() };
            assert!(MOsdOp::decode(&short).is_err(), "{cut}");
        }
        for at in 0..env.front.len() {
            for bit in 0..8 {
                let mut front = env.front.to_vec();
                front[at] ^= 1 << bit;
                let _ = MOsdOp::decode(&Envelope { front: front.into(), ..env.clone() });
            }
        }
    }

    use crate::Envelope;
}
