//! The object gateway's state in RADOS: users, buckets, objects, in upstream's own formats, and the sequences of
//! operations that change it.
//!
//! ```text
//!   Gateway ── users, buckets (meta) ──┐
//!     │                                ├──> Objects (a trait: RADOS, or anything that keeps its promises)
//!     └── put, get, delete, copy, list, uploads, versions ──> index (class rgw), heads, tails, gc
//! ```
//!
//! Invariants: what is written is byte for byte what release 20.2 writes, and what releases 16 to 20 wrote is read; a
//! change of an object is announced in its bucket's index before, and completed or cancelled there after; a tail is
//! never removed while a head names it.
//!
//! Source: `docs/protocols/rgw.md`; upstream's `rgw_rados.cc`.

pub mod accounts;
pub mod append;
pub mod cache;
pub mod crypt;
pub mod expiry;
pub mod formats;
pub mod gateway;
pub mod gc;
pub mod groups;
pub mod index;
pub mod lifecycle;
pub mod list;
mod manifest;
pub mod meta;
pub mod multipart;
pub mod names;
pub mod notify;
pub mod object;
pub mod objects;
pub mod owners;
pub mod providers;
pub mod put;
pub mod quota;
pub mod ratelimit;
pub mod realm;
pub mod roles;
#[cfg(test)]
mod tests;
pub mod together;
pub mod topics;
pub mod usage;
pub mod users;
pub mod versions;
