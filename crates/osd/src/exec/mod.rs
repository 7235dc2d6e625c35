//! One operation vector on one object: the op table.
//!
//! Nothing is changed here. Reads are answered from the store with the vector's own earlier
//! changes laid over; changes are gathered as [`Mutation`]s. The caller makes them durable
//! when the whole vector succeeded and drops them otherwise, so a vector is all or nothing.
//!
//! Source: the peer's `PrimaryLogPG::do_osd_ops`; results checked against recorded traffic
//! (`testdata/golden_ops.txt`).

mod call;
mod checksum;
mod data;
mod keys;
mod tmap;

pub use call::{ClassList, call_writes, check_call, find_method};
pub use data::wanted;

use std::sync::Arc;

use bytes::Bytes;
use denc::Features;
use messages::{Mutation, OsdOp, op, op_flag};
use types::{EntityAddr, EntityId, HObject, UTime};

use crate::backing::{Coll, ObjectStore, StoreError};
use crate::object::{ObjectState, WatchRecord};
use types::{Errno, OpResult};

/// Watches of one object: all are in its record, which each new one writes anew.
const WATCHERS_MAX: usize = 8192;
/// And those of them that are one client's.
const OWN_WATCHERS_MAX: usize = 1024;

/// Limits of objects and requests.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// `osd_max_object_size`, bytes.
    pub object_size_max: u64,
    /// `osd_max_attr_name_len`, bytes.
    pub attr_name_max: usize,
    /// `osd_max_attr_size`, bytes; 0 is no limit.
    pub attr_size_max: u64,
    /// `osd_max_omap_entries_per_request`.
    pub omap_entries_max: u64,
    /// Bytes of omap in one answer: `osd_max_omap_bytes_per_request`.
    pub omap_bytes_max: usize,
    /// What methods of uploaded classes may use up in one request: `osd_class_fuel_max`,
    /// `osd_class_memory_max`.
    pub classes: cls::wasm::Budget,
    /// What is configured for built-in classes.
    pub settings: cls::Settings,
}

/// What happens to watches and notifications once the vector has succeeded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchEvent {
    /// A watch begins or goes on over this connection.
    Watch {
        /// The client's name for it.
        cookie: u64,
        /// Without a word for this long it ends.
        timeout_s: u32,
    },
    /// A watch ends.
    Unwatch(u64),
    /// The client is there.
    Ping(u64),
    /// Tell all watchers.
    Notify {
        /// The notifier's name for the answer.
        cookie: u64,
        /// How long to wait for watchers.
        timeout_s: u32,
        /// What to tell them.
        payload: Bytes,
        /// Its number, which the notifier has been told.
        id: u64,
    },
    /// A watcher's answer.
    Ack {
        /// To which notification.
        notify_id: u64,
        /// By which watch.
        cookie: u64,
        /// What.
        reply: Bytes,
    },
}

/// An object's content, for COPY_FROM.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CopyContent {
    /// Requests that made it what it is: their resends may come where the copy is.
    pub answered: Vec<messages::Answered>,
    /// Why it is not here: nobody can read it, or no write could bring it.
    pub failed: Option<Errno>,
    /// Its record and whether it exists.
    pub state: ObjectState,
    /// Its bytes.
    pub data: Bytes,
    /// Its attributes, users' only, with the store's names.
    pub attrs: Vec<(Bytes, Bytes)>,
    /// omap header.
    pub header: Bytes,
    /// omap.
    pub omap: Vec<(Bytes, Bytes)>,
}

/// Who asks, for watches and classes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Asker {
    /// The client.
    pub who: EntityId,
    /// Its address, as it says.
    pub addr: EntityAddr,
    /// Where it is, as its connection's socket says; nowhere where another OSD asks for it.
    pub from: EntityAddr,
    /// What it understands.
    pub features: Features,
}

impl Asker {
    /// Whether the map shuts it out: by either address.
    #[must_use]
    pub fn is_fenced(&self, map: &maps::OsdMap) -> bool {
        shuts_out(map, [self.addr, self.from])
    }
}

/// Whether the map shuts out a client that says it has the first address and really has the other.
pub(crate) fn shuts_out(map: &maps::OsdMap, addrs: [EntityAddr; 2]) -> bool {
    addrs.iter().any(|a| map.blocklisted_until(a).is_some())
}

/// Bytes of an object from an offset on, so many.
pub type AtHand<'a> = dyn Fn(&HObject, u64, u64) -> Option<Bytes> + 'a;

/// A vector in execution.
pub struct Exec<'a> {
    /// Where reads come from.
    pub store: &'a dyn ObjectStore,
    /// The PG.
    pub coll: Coll,
    /// The object.
    pub oid: &'a HObject,
    /// The object before.
    pub base: &'a ObjectState,
    /// The object after what was executed so far.
    pub state: ObjectState,
    /// What to change.
    pub mutations: Vec<Mutation>,
    /// Whether the vector has changed what users see.
    pub user_modify: bool,
    /// Whether the vector may change the object at all.
    pub may_write: bool,
    /// Now.
    pub now: UTime,
    /// For what methods of classes take for random.
    pub seed: u64,
    /// Time of this write, as the client says.
    pub mtime: UTime,
    /// The PG's last version that users see, of before this vector.
    pub pg_version: u64,
    /// Which operation is executed, from 0 on.
    pub op_index: u32,
    /// While a module is called: how many mutations there were before.
    pub visible_from: Option<usize>,
    /// Who asks.
    pub asker: Asker,
    /// Limits.
    pub limits: &'a Limits,
    /// The classes whose methods can be called.
    pub classes: &'a cls::Registry,
    /// What methods of uploaded classes may still use up.
    pub budget: cls::wasm::Budget,
    /// Watches and notifications.
    pub events: Vec<WatchEvent>,
    /// Number for the next notification.
    pub next_notify_id: u64,
    /// The source of COPY_FROM, fetched ahead.
    pub copy: Option<&'a CopyContent>,
    /// The clone that the vector has rolled the object back to.
    pub rolled_back: Option<HObject>,
    /// Bytes of the object as it was before, from this offset on, read ahead.
    pub fetched: Option<(u64, Bytes)>,
    /// Bytes that WRITEs brought.
    pub bytes_written: u64,
    /// Bytes that READs gave.
    pub bytes_read: u64,
    /// Whether the pool has omap (not erasure-coded).
    pub has_omap: bool,
    /// In erasure-coded pools the store has no objects' bytes: these were gathered.
    pub gathered: Option<&'a [(HObject, u64, Bytes)]>,
    /// What else of objects is in memory there.
    pub at_hand: Option<&'a AtHand<'a>>,
    /// Bytes that the vector wants and that are not at hand: its result is void.
    pub lacks: Option<(HObject, u64, u64)>,
    /// Writes only append, from a multiple of this on.
    pub append_unit: Option<u64>,
}

/// Bytes of output of a whole vector: what one message takes, and some room in it.
const OUTPUT_MAX: usize = 90 << 20;

impl From<StoreError> for Errno {
    fn from(e: StoreError) -> Self {
        tracing::error!("{e}");
        Self::IO
    }
}

impl<'a> Exec<'a> {
    /// A vector on an object that is `base` now.
    #[must_use]
    pub fn new(
        store: &'a dyn ObjectStore,
        coll: Coll,
        oid: &'a HObject,
        base: &'a ObjectState,
        limits: &'a Limits,
        classes: &'a cls::Registry,
    ) -> Self {
        Self {
            store,
            coll,
            oid,
            base,
            state: base.clone(),
            mutations: Vec::new(),
            user_modify: false,
            may_write: false,
            now: UTime::ZERO,
            seed: 0,
            mtime: UTime::ZERO,
            pg_version: 0,
            op_index: 0,
            visible_from: None,
            asker: Asker::default(),
            limits,
            classes,
            budget: limits.classes,
            events: Vec::new(),
            next_notify_id: 0,
            copy: None,
            rolled_back: None,
            fetched: None,
            bytes_written: 0,
            bytes_read: 0,
            has_omap: true,
            gathered: None,
            at_hand: None,
            lacks: None,
            append_unit: None,
        }
    }

    /// Executes `ops` in order. Afterwards each op's data is its output; `rvals` has the
    /// result of each. Returns the vector's result: that of the last op, or of the first
    /// that failed, after which nothing more was executed.
    pub fn run(&mut self, ops: &mut [OsdOp], rvals: &mut [i32]) -> i32 {
        let (mut result, mut failed, mut bytes) = (0, false, 0);
        for (n, (op, rval)) in (0..).zip(ops.iter_mut().zip(rvals.iter_mut())) {
            self.op_index = n;
            let input = std::mem::take(&mut op.data);
            if failed {
                continue; // not reached, and so without output
            }
            result = match self.one(op, input) {
                Ok(value) => value,
                Err(e) => e.0,
            };
            *rval = result;
            bytes += op.data.len();
            if bytes > OUTPUT_MAX {
                (op.data, *rval, result) = (Bytes::new(), Errno::MSGSIZE.0, Errno::MSGSIZE.0);
                failed = true;
            } else if result < 0 {
                if op.flags & op_flag::FAILOK != 0 {
                    result = 0;
                } else {
                    failed = true;
                }
            }
        }
        result
    }

    fn one(&mut self, op: &mut OsdOp, input: Bytes) -> OpResult<i32> {
        if op.is_write() && !self.has_omap && is_omap_op(op.code) {
            return Err(Errno::OPNOTSUPP);
        }
        if self.gathered.is_some() && matches!(op.code, op::SYNC_READ | op::MAPEXT | op::TMAPGET) {
            return Err(Errno::OPNOTSUPP);
        }
        match op.code {
            op::READ | op::SYNC_READ | op::TMAPGET => self.read(op),
            op::SPARSE_READ => self.sparse_read(op),
            op::MAPEXT => self.mapext(op),
            op::STAT => self.stat(op),
            op::CHECKSUM => self.checksum(op, &input),
            op::CMPEXT => self.cmpext(op, &input),
            op::ASSERT_VER => self.assert_ver(op),
            op::ISDIRTY => {
                self.must_exist()?;
                op.data = if self.state.info.clean { &b"\0"[..] } else { &b"\x01"[..] }.into();
                Ok(0)
            }
            op::UNDIRTY => {
                if self.state.exists && !self.state.info.clean {
                    self.state.info.clean = true;
                    self.touch_info();
                }
                Ok(0)
            }
            op::CACHE_PIN => self.pin(true),
            op::CACHE_UNPIN => self.pin(false),
            op::LIST_SNAPS => self.list_snaps(op),
            op::GETXATTR => self.getxattr(op, &input),
            op::GETXATTRS => self.getxattrs(op),
            op::CMPXATTR => self.cmpxattr(op, &input),
            op::SETXATTR => self.setxattr(op, &input),
            op::RMXATTR => self.rmxattr(op, &input),
            op::OMAPGETKEYS => self.omap_get_keys(op, &input),
            op::OMAPGETVALS => self.omap_get_vals(op, &input),
            op::OMAPGETHEADER => self.omap_get_header(op),
            op::OMAPGETVALSBYKEYS => self.omap_get_vals_by_keys(op, &input),
            op::OMAP_CMP => self.omap_cmp(&input),
            op::OMAPSETVALS => self.omap_set_vals(&input),
            op::OMAPSETHEADER => self.omap_set_header(input),
            op::OMAPCLEAR => self.omap_clear(),
            op::OMAPRMKEYS => self.omap_rm_keys(&input),
            op::OMAPRMKEYRANGE => self.omap_rm_key_range(&input),
            op::WRITE => self.write(op, input),
            op::WRITEFULL => self.write_full(op, input),
            op::APPEND => {
                op.put_u64(0, self.state.info.size);
                self.write(op, input)
            }
            op::WRITESAME => self.write_same(op, input),
            op::TMAPUP => self.tmap_update(&input),
            op::TMAPPUT => self.tmap_put(&input),
            op::ZERO => self.zero(op),
            op::TRUNCATE => self.truncate(op),
            op::TRIMTRUNC => {
                op.put_u64(0, op.truncate_size());
                self.truncate(op)
            }
            op::CREATE => self.create(op),
            op::DELETE => self.delete(),
            op::SETALLOCHINT => self.set_alloc_hint(op),
            op::COPY_FROM | op::COPY_FROM2 => self.copy_from(op),
            op::ROLLBACK => self.rollback(op),
            op::CALL => self.call(op, &input),
            op::WATCH => self.watch(op),
            op::NOTIFY => self.notify(op, &input),
            op::NOTIFY_ACK => self.notify_ack(&input),
            op::LIST_WATCHERS => self.list_watchers(op),
            _ => Err(Errno::OPNOTSUPP),
        }
    }

    fn must_exist(&self) -> OpResult<()> {
        if self.state.exists { Ok(()) } else { Err(Errno::NOENT) }
    }

    /// Ops that create do so here.
    fn maybe_create(&mut self) {
        if !self.state.exists {
            self.state.exists = true;
            self.mutations.push(Mutation::Touch);
        }
    }

    fn user_modified(&mut self) {
        self.user_modify = true;
        self.state.info.clean = false;
    }

    /// A cache tier keeps the object, or need not any more.
    fn pin(&mut self, on: bool) -> OpResult<i32> {
        self.must_exist()?;
        if self.state.info.pinned != on {
            self.state.info.pinned = on;
            self.touch_info();
        }
        Ok(0)
    }

    fn stat(&mut self, op: &mut OsdOp) -> OpResult<i32> {
        self.must_exist()?;
        let mut out = [0; 16];
        out[..8].copy_from_slice(&self.state.info.size.to_le_bytes());
        out[8..12].copy_from_slice(&self.state.info.mtime.sec.to_le_bytes());
        out[12..].copy_from_slice(&self.state.info.mtime.nsec.to_le_bytes());
        op.data = Bytes::copy_from_slice(&out);
        Ok(0)
    }

    fn assert_ver(&self, op: &OsdOp) -> OpResult<i32> {
        let wanted = op.u64(8);
        match wanted.cmp(&self.state.info.user_version) {
            _ if wanted == 0 => Err(Errno::INVAL),
            std::cmp::Ordering::Less => Err(Errno::RANGE),
            std::cmp::Ordering::Greater => Err(Errno::OVERFLOW),
            std::cmp::Ordering::Equal => Ok(0),
        }
    }

    /// Where the store has what the object was before the changes of this vector.
    fn origin(&self) -> Option<&HObject> {
        match &self.rolled_back {
            Some(clone) => Some(clone),
            None if self.base.exists => Some(self.oid),
            None => None,
        }
    }

    /// The clones, oldest first, and the head: `obj_list_snap_response_t`.
    fn list_snaps(&self, op: &mut OsdOp) -> OpResult<i32> {
        let none = maps::SnapSet::default();
        let set = self.base.info.snaps.as_deref().unwrap_or(&none);
        if !self.base.exists && !self.base.info.whiteout {
            return Err(Errno::NOENT);
        }
        let mut w = denc::Writer::new(denc::Features::ALL);
        w.framed(2, 1, |w| {
            w.u32(set.clones.len() as u32 + u32::from(self.base.exists));
            for clone in &set.clones {
                w.framed(1, 1, |w| {
                    w.u64(clone.0);
                    let snaps = set.clone_snaps.get(clone).map_or(&[][..], |s| s);
                    w.u32(snaps.len() as u32);
                    snaps.iter().rev().for_each(|s| w.u64(s.0));
                    let overlap = set.clone_overlap.get(clone);
                    w.u32(overlap.map_or(0, |o| o.run_count() as u32));
                    for (start, len) in overlap.iter().flat_map(|o| o.iter()) {
                        w.u64(start);
                        w.u64(len);
                    }
                    w.u64(set.clone_size.get(clone).copied().unwrap_or(0));
                });
            }
            if self.base.exists {
                w.framed(1, 1, |w| {
                    w.u64(types::SnapId::HEAD.0);
                    w.u32(0); // snaps
                    w.u32(0); // overlap
                    w.u64(self.state.info.size);
                });
            }
            w.u64(set.seq.0);
        });
        op.data = w.finish();
        Ok(0)
    }

    fn watch(&mut self, op: &OsdOp) -> OpResult<i32> {
        self.must_exist()?;
        let (cookie, kind, timeout_s) = (op.u64(0), op.raw[16], op.u32(21));
        let timeout_s = if timeout_s == 0 { 30 } else { timeout_s };
        let at = self
            .state
            .info
            .watchers
            .iter()
            .position(|w| w.cookie == cookie && w.who == self.asker.who);
        match kind {
            0 => {
                if let Some(at) = at {
                    Arc::make_mut(&mut self.state.info.watchers).remove(at);
                    self.touch_info();
                }
                self.events.push(WatchEvent::Unwatch(cookie));
            }
            1 | 3 => {
                let record =
                    WatchRecord { who: self.asker.who, cookie, timeout_s, addr: self.asker.addr };
                match at {
                    Some(at) => Arc::make_mut(&mut self.state.info.watchers)[at] = record,
                    None => {
                        let all = &self.state.info.watchers;
                        let own = all.iter().filter(|w| w.who == self.asker.who).count();
                        if all.len() >= WATCHERS_MAX || own >= OWN_WATCHERS_MAX {
                            return Err(Errno::MFILE);
                        }
                        Arc::make_mut(&mut self.state.info.watchers).push(record);
                    }
                }
                self.touch_info();
                self.events.push(WatchEvent::Watch { cookie, timeout_s });
            }
            5 => {
                if at.is_none() {
                    return Err(Errno::NOTCONN);
                }
                self.touch_info();
                self.events.push(WatchEvent::Watch { cookie, timeout_s });
            }
            7 => {
                if at.is_none() {
                    return Err(Errno::NOTCONN);
                }
                self.events.push(WatchEvent::Ping(cookie));
            }
            _ => return Err(Errno::INVAL),
        }
        Ok(0)
    }

    /// The record changes though no byte does.
    fn touch_info(&mut self) {
        if self.mutations.is_empty() {
            self.mutations.push(Mutation::Touch);
        }
    }

    fn notify(&mut self, op: &mut OsdOp, input: &Bytes) -> OpResult<i32> {
        self.must_exist()?;
        let parsed = || -> Result<_, denc::DecodeError> {
            let mut r = denc::Reader::shared(input);
            let _version = r.u32()?;
            let timeout_s = r.u32()?;
            Ok((timeout_s, r.blob()?))
        };
        let (timeout_s, payload) = parsed().unwrap_or((0, Bytes::new()));
        let timeout_s = if timeout_s == 0 { 30 } else { timeout_s };
        let id = self.next_notify_id;
        self.next_notify_id += 1;
        op.data = Bytes::copy_from_slice(&id.to_le_bytes());
        self.events.push(WatchEvent::Notify { cookie: op.u64(0), timeout_s, payload, id });
        Ok(0)
    }

    fn notify_ack(&mut self, input: &Bytes) -> OpResult<i32> {
        let parsed = || -> Result<_, denc::DecodeError> {
            let mut r = denc::Reader::shared(input);
            let (notify_id, cookie) = (r.u64()?, r.u64()?);
            let reply = if r.left() > 0 { r.blob()? } else { Bytes::new() };
            Ok(WatchEvent::Ack { notify_id, cookie, reply })
        };
        self.events.push(parsed().map_err(|_| Errno::INVAL)?);
        Ok(0)
    }

    fn list_watchers(&self, op: &mut OsdOp) -> OpResult<i32> {
        use denc::Denc;
        self.must_exist()?;
        let mut w = denc::Writer::new(denc::Features::ALL);
        w.framed(1, 1, |w| {
            w.seq(&*self.state.info.watchers, |w, watch| {
                w.framed(2, 1, |w| {
                    watch.who.encode(w);
                    w.u64(watch.cookie);
                    w.u32(watch.timeout_s);
                    watch.addr.encode(w);
                });
            });
        });
        op.data = w.finish();
        Ok(0)
    }
}

/// Whether it needs an omap.
fn is_omap_op(code: u16) -> bool {
    matches!(
        code,
        op::OMAPSETVALS
            | op::OMAPSETHEADER
            | op::OMAPCLEAR
            | op::OMAPRMKEYS
            | op::OMAPRMKEYRANGE
            | op::OMAP_CMP
            | op::TMAPUP
            | op::TMAPPUT
    )
}

/// Bytes that no one may take for a name: too long, or none.
///
/// # Errors
/// ENAMETOOLONG, EINVAL.
pub fn check_name(oid: &HObject) -> OpResult<()> {
    if oid.name.len() > 2048 || oid.key.len() > 2048 || oid.nspace.len() > 256 {
        return Err(Errno::NAMETOOLONG);
    }
    if oid.name.is_empty() { Err(Errno::INVAL) } else { Ok(()) }
}
