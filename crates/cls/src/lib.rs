//! Object classes: methods that run on one object where it is stored, inside the operation
//! that calls them.
//!
//! A [`Class`] is a name and a table of [`Method`]s. A method reads its object as it was
//! before the operation, and changes it through [`Object`]; nothing of a vector that fails is
//! kept. What it returns goes to the caller when the vector changes nothing, or
//! when the caller asked for results of writes.
//!
//! Invariants:
//! - a method marked as reading never writes, one marked as writing never reads: whoever
//!   implements [`Object`] refuses it (the peer answers EIO);
//! - parameters are a client's bytes: what cannot be decoded is EINVAL, what cannot be
//!   decoded of the object's own is EIO.
//!
//! Source: the peer's `src/cls/*`, `objclass/objclass.h`; parameter layouts there.

mod cas;
mod cephfs;
mod cmpomap;
mod fifo;
mod filter;
mod hello;
mod journal;
mod keys;
mod lock;
mod log;
mod numops;
mod otp;
mod queue;
mod rbd;
mod refcount;
mod registry;
mod rgw;
mod rgw_gc;
mod sem_set;
#[cfg(test)]
mod tests;
mod timeindex;
mod two_phase_queue;
mod user;
mod version;
pub mod wasm;

/// Parameters, answers and stored values that a class shares with those who call it.
pub mod client {
    pub use crate::lock::{
        AssertOp, BreakOp, EXCLUSIVE, Info, Lock, LockOp, Locker, MAY_RENEW, NameOp, SHARED,
        SetCookieOp, UnlockOp,
    };
    pub use crate::rbd::{
        ChildSpec, GroupImage, GroupImageStatus, GroupSpec, Migration, MirrorImage, MirrorPeer,
        MirrorSnap, ObjectMap, ParentSpec, SnapInfo, SnapKind, TrashSpec, feature, op_feature,
        state,
    };

    /// `rgw`: a bucket's index.
    pub mod rgw {
        pub use crate::rgw::client::*;
    }
    /// `rgw_gc`: tails to delete later.
    pub mod rgw_gc {
        pub use crate::rgw_gc::{Chain, Info, Init, List, Listed, Remove, SetEntry, Target};
    }
    /// `2pc_queue`: entries whose room is reserved before they come.
    pub mod two_phase_queue {
        pub use crate::queue::{Entry, InitOp, ListOp, Listed};
        pub use crate::two_phase_queue::{CommitOp, ExpireOp, Id, RemoveOp, ReserveOp};
    }
    /// `user`: the buckets of a user.
    pub mod user {
        pub use crate::user::{
            AccountHeader, Bucket, BucketEntry, ListOp, Listed, RemoveOp, Resource, ResourceAddOp,
            ResourceListOp, ResourceListed, ResourceOp, ResourceRet, SetOp,
        };
    }
    /// `version`: a version in an attribute, and conditions on it.
    pub mod version {
        pub use crate::version::{Condition, IncOp, SetOp, Version};
    }
    /// `refcount`: tags that keep an object.
    pub mod refcount {
        pub use crate::refcount::TagOp;
    }
}

pub use filter::Filter;
pub use registry::{Callable, Registry};

use bytes::Bytes;
use denc::{Denc, Features, Reader};
use types::{EntityAddr, EntityId, EntityInst, Errno, HObject, OpResult, UTime};

/// The method reads the object.
pub const READS: u8 = 1;
/// The method changes the object.
pub const WRITES: u8 = 2;

/// A method's flags for people: `r`, `w`, `rw` or `-`.
#[must_use]
pub fn flags_text(flags: u8) -> &'static str {
    match (flags & READS != 0, flags & WRITES != 0) {
        (true, true) => "rw",
        (true, false) => "r",
        (false, true) => "w",
        (false, false) => "-",
    }
}

/// What a method gives back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reply {
    /// The result; a negative one is an error that comes with output.
    pub value: i32,
    /// Output.
    pub data: Bytes,
}

impl From<Bytes> for Reply {
    fn from(data: Bytes) -> Self {
        Self { value: 0, data }
    }
}

/// Nothing to say.
pub const DONE: Reply = Reply { value: 0, data: Bytes::new() };

/// Entries of an omap and whether there are more.
pub type Page = (Vec<(Bytes, Bytes)>, bool);

/// What is configured for classes.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// `rgw_reshardlog_threshold`: so many logged changes stop writes to a bucket that is
    /// being resharded.
    pub reshardlog_threshold: u32,
    /// `rgw_pending_bucket_index_op_expiration`, seconds.
    pub pending_expiration_s: u64,
    /// `osd_max_omap_entries_per_request`.
    pub omap_entries_max: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self { reshardlog_threshold: 30_000, pending_expiration_s: 120, omap_entries_max: 1024 }
    }
}

/// The object that a method works on. Attributes and omap are read as they were before the
/// vector that holds the call, whatever the vector or the method itself has changed since;
/// whether the object exists, and its size, are those of now. So a method writes the last
/// value of each key, and two calls of one vector that change the same value lose the first.
///
/// Errors of methods here are the operation's: ENOENT when the object is not there, EIO when the store fails or the method is not marked for
/// what it does.
pub trait Object {
    /// Its name and place.
    fn id(&self) -> &HObject;

    /// Size in bytes and time of the last change.
    ///
    /// # Errors
    /// ENOENT.
    fn stat(&mut self) -> OpResult<(u64, UTime)>;

    /// The version that users see, of before this operation.
    fn version(&self) -> u64;

    /// The version that users saw last of any object in the PG, of before this operation: it
    /// grows when an object is removed and made anew.
    fn pg_version(&self) -> u64;

    /// Which operation of its vector this is, from 0 on.
    fn op_index(&self) -> u32;

    /// What is configured for classes.
    fn settings(&self) -> Settings;

    /// When this operation is executed.
    fn now(&self) -> UTime;

    /// Who called, and from where.
    fn caller(&self) -> (EntityId, EntityAddr);

    /// What the caller understands.
    fn features(&self) -> Features;

    /// Bytes that are hardly the same twice; no secrets.
    fn random(&mut self, out: &mut [u8]);

    /// Data from `off`, at most `len` bytes, less at its end.
    ///
    /// # Errors
    /// ENOENT.
    fn read(&mut self, off: u64, len: u64) -> OpResult<Bytes>;

    /// Writes; creates the object.
    ///
    /// # Errors
    /// EFBIG beyond the largest object.
    fn write(&mut self, off: u64, data: Bytes) -> OpResult<()>;

    /// Replaces all data; creates the object.
    ///
    /// # Errors
    /// As [`Object::write`].
    fn write_full(&mut self, data: Bytes) -> OpResult<()>;

    /// Zeros.
    ///
    /// # Errors
    /// As [`Object::write`].
    fn zero(&mut self, off: u64, len: u64) -> OpResult<()>;

    /// Cuts or grows.
    ///
    /// # Errors
    /// As [`Object::write`].
    fn truncate(&mut self, size: u64) -> OpResult<()>;

    /// Creates it.
    ///
    /// # Errors
    /// EEXIST when it must be new and is not.
    fn create(&mut self, exclusive: bool) -> OpResult<()>;

    /// Removes it.
    ///
    /// # Errors
    /// ENOENT.
    fn remove(&mut self) -> OpResult<()>;

    /// An attribute.
    ///
    /// # Errors
    /// ENODATA without it; ENOENT.
    fn attr(&mut self, name: &[u8]) -> OpResult<Bytes>;

    /// All attributes, by name.
    ///
    /// # Errors
    /// ENOENT.
    fn attrs(&mut self) -> OpResult<Vec<(Bytes, Bytes)>>;

    /// Sets an attribute; creates the object.
    ///
    /// # Errors
    /// Beyond limits: EFBIG, ENAMETOOLONG.
    fn set_attr(&mut self, name: &[u8], value: Bytes) -> OpResult<()>;

    /// Removes one.
    ///
    /// # Errors
    /// ENOENT.
    fn rm_attr(&mut self, name: &[u8]) -> OpResult<()>;

    /// The omap's header.
    ///
    /// # Errors
    /// ENOENT.
    fn omap_header(&mut self) -> OpResult<Bytes>;

    /// Sets it; creates the object.
    ///
    /// # Errors
    /// EOPNOTSUPP in pools without omap; so all changes of omap.
    fn omap_set_header(&mut self, header: Bytes) -> OpResult<()>;

    /// A value of the omap.
    ///
    /// # Errors
    /// ENOENT: no such key, or no such object.
    fn omap_get(&mut self, key: &[u8]) -> OpResult<Bytes>;

    /// Pairs whose keys come after `after` and begin with `prefix`, in order.
    ///
    /// # Errors
    /// ENOENT.
    fn omap_page(&mut self, after: &[u8], prefix: &[u8], max: u64) -> OpResult<Page>;

    /// Sets pairs; creates the object.
    ///
    /// # Errors
    /// As [`Object::omap_set_header`].
    fn omap_set(&mut self, pairs: Vec<(Bytes, Bytes)>) -> OpResult<()>;

    /// Removes keys.
    ///
    /// # Errors
    /// ENOENT.
    fn omap_rm(&mut self, keys: Vec<Bytes>) -> OpResult<()>;

    /// Removes the keys from `from` on, up to and without `to`.
    ///
    /// # Errors
    /// ENOENT.
    fn omap_rm_range(&mut self, from: Bytes, to: Bytes) -> OpResult<()>;

    /// Removes all keys and the header.
    ///
    /// # Errors
    /// ENOENT.
    fn omap_clear(&mut self) -> OpResult<()>;

    /// Who watches the object: needed for the health of mirroring daemons.
    ///
    /// # Errors
    /// ENOENT; EOPNOTSUPP where objects cannot be watched.
    fn watchers(&mut self) -> OpResult<Vec<EntityInst>> {
        Err(Errno::OPNOTSUPP)
    }

    /// The newest snapshot that the object has seen (`SnapSet::seq`).
    ///
    /// # Errors
    /// ENOENT; EOPNOTSUPP where objects have no snapshots.
    fn snapset_seq(&mut self) -> OpResult<u64> {
        Err(Errno::OPNOTSUPP)
    }
}

/// What a method does.
pub type Run = fn(&mut dyn Object, &Bytes) -> OpResult<Reply>;

/// One method of a class.
#[derive(Clone, Copy)]
pub struct Method {
    /// Its name.
    pub name: &'static str,
    /// [`READS`], [`WRITES`], both or none.
    pub flags: u8,
    /// What it does.
    pub run: Run,
}

const fn method(name: &'static str, flags: u8, run: Run) -> Method {
    Method { name, flags, run }
}

/// Methods under one name.
pub struct Class {
    /// Its name.
    pub name: &'static str,
    /// Its methods.
    pub methods: &'static [Method],
}

/// All classes, by name.
pub static CLASSES: &[Class] = &[
    cas::CLASS,
    cephfs::CLASS,
    cmpomap::CLASS,
    fifo::CLASS,
    hello::CLASS,
    journal::CLASS,
    lock::CLASS,
    log::CLASS,
    numops::CLASS,
    otp::CLASS,
    queue::CLASS,
    rbd::CLASS,
    refcount::CLASS,
    rgw::CLASS,
    rgw_gc::CLASS,
    sem_set::CLASS,
    timeindex::CLASS,
    two_phase_queue::CLASS,
    user::CLASS,
    version::CLASS,
];

/// Error numbers that only classes answer with.
const NOEXEC: Errno = Errno(-8);
const BADF: Errno = Errno(-9);
const XDEV: Errno = Errno(-18);
const NXIO: Errno = Errno(-6);
const NOMSG: Errno = Errno(-42);
const NOLINK: Errno = Errno(-67);
const USERS: Errno = Errno(-87);
const STALE: Errno = Errno(-116);

/// A method of a class.
///
/// # Errors
/// EOPNOTSUPP: there is no such class, or it has no such method.
pub fn find(class: &[u8], method: &[u8]) -> OpResult<&'static Method> {
    CLASSES
        .iter()
        .find(|c| c.name.as_bytes() == class)
        .and_then(|c| c.methods.iter().find(|m| m.name.as_bytes() == method))
        .ok_or(Errno::OPNOTSUPP)
}

/// Parameters of a call. What is behind them is passed over, as the peer does.
fn params<T: Denc>(input: &Bytes) -> OpResult<T> {
    T::decode(&mut Reader::shared(input)).map_err(|_| Errno::INVAL)
}

/// What a method left in the object.
fn stored<T: Denc>(raw: &Bytes) -> OpResult<T> {
    T::decode(&mut Reader::shared(raw)).map_err(|_| Errno::IO)
}

/// The next parameter of a call whose last ones may be missing.
fn arg<T: Denc>(r: &mut Reader<'_>) -> OpResult<T> {
    T::decode(r).map_err(|_| Errno::INVAL)
}

/// A versioned struct of plain fields, in order: its wire form in one line. A field
/// `name: T = 2` came with version 2; of older writers it has the default.
macro_rules! record {
    (@get $r:ident $v:ident) => { denc::Denc::decode($r)? };
    (@get $r:ident $v:ident $since:literal) => {
        if $v >= $since { denc::Denc::decode($r)? } else { Default::default() }
    };
    ($(#[$doc:meta])* $name:ident($version:literal, $compat:literal) {
        $($field:ident: $t:ty $(= $since:literal)?,)*
    }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        #[allow(missing_docs)] // the fields are the peer's
        pub struct $name { $(pub $field: $t,)* }

        impl denc::Denc for $name {
            #[allow(unused_variables)]
            fn encode(&self, w: &mut denc::Writer) {
                w.framed($version, $compat, |w| {
                    $(denc::Denc::encode(&self.$field, w);)*
                });
            }
            fn decode(r: &mut denc::Reader<'_>) -> Result<Self, denc::DecodeError> {
                r.framed(stringify!($name), $version, |_r, _v| {
                    $(let $field = crate::record!(@get _r _v $($since)?);)*
                    Ok(Self { $($field,)* })
                })
            }
        }
    };
}
pub(crate) use record;
