//! Who is connected, and what they asked.

use denc::Denc;
use env::ConnId;
use messages::{MOsdOp, OsdOp, op, req_flag};
use stdx::FastMap;
use types::{EntityAddr, EntityId, EntityKind, EntityName, Epoch, Features, HObject, OsdId, ReqId};

use crate::caps::Caps;
use crate::doors::Door;
use crate::exec::Asker;
use crate::load::Load;

/// A connection of a client or daemon.
#[derive(Debug)]
pub struct Session {
    /// Who, by number.
    pub who: EntityId,
    /// Who, by the name of the key.
    pub name: EntityName,
    /// From where, as it says.
    pub addr: EntityAddr,
    /// From where, as its socket shows.
    pub from: EntityAddr,
    /// What it understands.
    pub features: Features,
    /// What it may do.
    pub caps: Caps,
    /// The newest map it is known to have; 0 when unknown.
    pub epoch: Epoch,
    /// What it has in hand.
    pub load: Load,
    /// By which address it came.
    pub door: Door,
    /// What of it is told in the log.
    pub told: stdx::SayBudget,
}

/// Lines of the log in a second that one connection may cause.
const LINES_PER_SECOND: u32 = 5;

impl Session {
    /// Whether what it did now is worth a line: then how many before it were left out.
    pub fn tells(&mut self, now: env::Now) -> Option<u64> {
        self.told.take(now.mono_ns, LINES_PER_SECOND)
    }

    /// Who asks, in a request of this session.
    #[must_use]
    pub fn asker(&self) -> Asker {
        Asker { who: self.who, addr: self.addr, from: self.from, features: self.features }
    }

    /// Which OSD it is, as its ticket proves.
    #[must_use]
    pub fn osd(&self) -> Option<OsdId> {
        let number = i32::try_from(self.who.num).ok().filter(|n| *n >= 0);
        number.filter(|_| self.who.kind == EntityKind::OSD).map(OsdId)
    }
}

/// All connections.
#[derive(Debug, Default)]
pub struct Sessions {
    /// By connection.
    pub by_conn: FastMap<ConnId, Session>,
    /// Large messages of OSDs that have not come to their end, by connection.
    pub parts: FastMap<ConnId, messages::Parts>,
}

/// The cache tier that a request came from, instead of from a client.
#[derive(Clone, Copy, Debug)]
pub struct Origin {
    /// Its OSD.
    pub osd: types::OsdId,
    /// That OSD's number for it.
    pub id: u64,
}

/// A request in hand.
#[derive(Clone, Debug)]
pub struct ClientOp {
    /// The order in which requests came.
    pub seq: u64,
    /// Where the answer goes.
    pub conn: ConnId,
    /// Who asks.
    pub by: Asker,
    /// The client's number for it.
    pub tid: u64,
    /// The request.
    pub msg: MOsdOp,
    /// The object; its bytes are the message's.
    pub oid: HObject,
    /// What recognises its resend.
    pub reqid: ReqId,
    /// What it was answered before, as the log said when it came: the log may forget it while
    /// this waits.
    pub dup: Option<Box<crate::pg::Dup>>,
    /// The source of its COPY_FROM, once it is here.
    pub copy: Option<std::sync::Arc<crate::exec::CopyContent>>,
    /// In erasure-coded pools: bytes of objects that were gathered for it, and where they lie.
    pub prefetched: Vec<(HObject, u64, bytes::Bytes)>,
    /// In erasure-coded pools: bytes of shards that its write has to know.
    pub old: Option<Vec<Option<bytes::Bytes>>>,
    /// Who is to be answered instead of a client.
    pub origin: Option<Origin>,
    /// It was noted as a use of its object.
    pub hit: bool,
    /// It had to wait for an object's recovery, or for the PG.
    pub waited: bool,
    /// When it came, monotonic ns.
    pub came_ns: u64,
    /// When it came, wall ns.
    pub came_wall_ns: u64,
    /// The classes as of then.
    pub classes: std::sync::Arc<cls::Registry>,
    /// Its part of what clients may have in hand.
    pub share: std::sync::Arc<crate::load::Share>,
}

/// Puts a request into a queue, where it belongs by the order in which requests came: one
/// that waited elsewhere before may be older than what waits here.
pub fn enqueue(queue: &mut std::collections::VecDeque<Box<ClientOp>>, op: Box<ClientOp>) {
    let at = queue.iter().rposition(|o| o.seq < op.seq).map_or(0, |i| i + 1);
    queue.insert(at, op);
}

/// The object that a request names.
pub(crate) fn object_of(msg: &MOsdOp) -> HObject {
    HObject {
        pool: msg.pg.pg.pool,
        hash: msg.hash,
        nspace: msg.locator.nspace.clone(),
        key: msg.locator.key.clone(),
        name: msg.oid.clone(),
        snap: types::SnapId::HEAD,
        max: false,
    }
}

impl crate::core::Core {
    /// A request that has come: of whom, with his number for it, and its bytes on the wire.
    pub(crate) fn client_op(
        &mut self,
        now: env::Now,
        conn: ConnId,
        by: Asker,
        tid: u64,
        msg: MOsdOp,
        bytes: usize,
    ) -> Box<ClientOp> {
        let mut reqid = msg.reqid;
        if reqid.tid == 0 {
            reqid = ReqId { client: by.who, tid, inc: msg.reqid.inc };
        }
        self.seq += 1;
        let bytes = bytes + crate::load::expected(&msg.ops);
        let load = self.sessions.by_conn.get(&conn).map_or(&self.load_bytes, |s| &s.load);
        let share = load.share(bytes, crate::load::copied(&msg.ops));
        Box::new(ClientOp {
            seq: self.seq,
            conn,
            by,
            tid,
            oid: object_of(&msg),
            msg,
            reqid,
            copy: None,
            dup: None,
            prefetched: Vec::new(),
            old: None,
            origin: None,
            hit: false,
            waited: false,
            came_ns: now.mono_ns,
            came_wall_ns: now.wall_ns,
            classes: self.classes.all.clone(),
            share,
        })
    }
}

impl ClientOp {
    /// Whether its client is shut out, by the address that it says it has or by the one that it
    /// really has: the map alone says so, and until when. A clock that is ahead here lets nobody in.
    ///
    /// Source: the peer's `OSDMap::is_blocklisted`, asked whenever a request is begun.
    #[must_use]
    pub fn is_fenced(&self, map: &maps::OsdMap) -> bool {
        self.by.is_fenced(map)
    }

    /// Whether one of its operations may change the object.
    #[must_use]
    pub fn may_write(&self) -> bool {
        let writes = |o: &OsdOp| {
            o.is_write()
                || crate::pg::tier::is_cache_op(o.code)
                || (o.code == op::CALL && crate::exec::call_writes(o, &self.classes))
        };
        self.msg.ops.iter().any(writes)
    }

    /// Why a class that it calls cannot be called, where built-in ones are those `allowed`.
    #[must_use]
    pub fn refused_call(&self, allowed: &crate::exec::ClassList) -> Option<types::Errno> {
        let mut calls = self.msg.ops.iter().filter(|o| o.code == op::CALL);
        calls.find_map(|o| crate::exec::check_call(o, allowed, &self.classes).err())
    }

    /// Whether it asks about the PG instead of an object.
    #[must_use]
    pub fn is_pg_op(&self) -> bool {
        self.msg.flags & req_flag::PGOP != 0
            || self.msg.ops.first().is_some_and(|o| o.code & 0x0f00 == op::TYPE_PG)
    }

    /// As it was when it came; what was executed on it is void.
    #[must_use]
    pub fn afresh(mut self: Box<Self>) -> Box<Self> {
        self.copy = None;
        self.prefetched.clear();
        self.old = None;
        self.waited = true;
        self
    }

    /// The content that a cache tier flushes, once it is here.
    #[must_use]
    pub fn flushed(&self) -> Option<&crate::exec::CopyContent> {
        let flushes = |o: &OsdOp| {
            matches!(o.code, op::COPY_FROM | op::COPY_FROM2)
                && o.raw[16] & messages::copy_flag::FLUSH != 0
        };
        self.copy.as_deref().filter(|_| self.msg.ops.iter().any(flushes))
    }

    fn is_tiers_own(&self) -> bool {
        self.origin.is_some() && self.by.who == EntityId::default()
    }

    /// Requests that a cache tier did and of which it tells the base: with the content that it
    /// flushes, or with the delete of what is gone.
    #[must_use]
    pub fn told_requests(&self) -> Vec<messages::Answered> {
        if let Some(content) = self.flushed() {
            return content.answered.clone();
        }
        match &self.msg.ops[..] {
            // What it passes on for a client may have any input.
            [only] if only.code == op::DELETE && self.is_tiers_own() => {
                Vec::from_bytes(&only.data).unwrap_or_default()
            }
            _ => Vec::new(),
        }
    }

    /// Whether resource limits do not count.
    #[must_use]
    pub fn is_full_forced(&self) -> bool {
        self.msg.flags & req_flag::FULL_FORCE != 0
    }
}
