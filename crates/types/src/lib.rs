//! The nouns of the cluster: who (entities), where (addresses), when (epochs, versions)
//! and what (pools, PGs, objects), with their wire forms.
//!
//! Invariants: ids are types, so an OSD's number is never taken for a pool's; everything
//! here is a plain value without I/O. Names of objects, locators and namespaces are
//! bytes, as on the wire; names of entities, pools and classes are UTF-8.

mod addr;
mod caps;
mod entity;
mod errno;
mod ids;
mod object;
pub mod release;
mod time;

pub use addr::{AddrKind, AddrVec, EntityAddr};
pub use caps::{MdsCapAuth, MdsMatch};
pub use entity::{EntityId, EntityInst, EntityKind, EntityName};
pub use errno::{Errno, OpResult};
pub use ids::{EVersion, Epoch, Ino, OsdId, PgId, PoolId, ReqId, ShardId, SnapId, SpgId, Uuid};
pub use object::{HObject, ObjectLocator, reverse_bits, stable_mod, str_hash};
pub use time::UTime;

pub use denc::{Bytes, DecodeError, Denc, Features, Reader, Writer};
