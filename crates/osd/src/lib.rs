//! The OSD: placement groups with ordered writes, a log, peering and recovery, and the
//! operations of clients on objects, over an [`ObjectStore`].
//!
//! [`Osd`] is a value with one owner. Events go in with the time at which they happen, and
//! an [`Outbox`] comes out that the driver empties after each event:
//!
//! | event | when |
//! |---|---|
//! | [`Osd::on_start`] | once, when the driver can send to monitors |
//! | [`Osd::on_mon_session`] | a session with a monitor began (again) |
//! | [`Osd::on_mon_message`] | a monitor's message: maps, acks |
//! | [`Osd::on_open`], [`Osd::on_message`], [`Osd::on_closed`] | connections of clients **and** of OSDs, accepted or made by the driver for [`Effect::Osd`] and [`Effect::Heartbeat`] |
//! | [`Osd::on_osd_reset`] | what was sent to an OSD since its last message may be lost |
//! | [`Osd::on_refused`] | nobody listens where the map says an OSD is |
//! | [`Osd::poll_store`] | the store's waker was called: something is durable |
//! | [`Osd::on_tick`] | some time has passed; at least twice a second |
//! | [`Osd::on_admin`] | a command over the admin socket |
//! | [`Osd::on_config`] | options changed |
//! | [`Osd::on_stop`] | the OSD is about to stop: it asks to be marked down |
//!
//! Addresses of OSDs are looked up by the driver in [`Osd::map`]. Maps are subscribed to by
//! [`Effect::SubscribeMaps`]; the driver keeps the last one wished for alive.
//!
//! Invariants:
//! - a write is acknowledged when it is durable on every acting copy, and never before;
//! - answers of one PG's writes leave in the order of the writes;
//! - before the map says that this process is up, no PG serves or takes part in peering;
//! - nothing here reads a clock, waits, or talks to a device but through the store.
//!
//! Source: the peer's `src/osd/`; messages between OSDs and the form on disk are ours.

mod adapter;
pub mod backing;
mod backoffs;
pub(crate) mod bulk;
mod cache;
mod caps;
mod classes;
mod coding;
mod commands;
mod compression;
mod config;
mod copy;
mod core;
mod doors;
pub mod exec;
mod heartbeat;
mod image_io;
mod in_flight;
mod incoming;
mod inspect;
mod lease;
mod load;
mod maphist;
mod maps_in;
pub mod memory;
mod object;
mod outbox;
mod pace;
mod parked;
mod perf;
mod pg;
mod pings;
mod query;
mod report;
mod session;
mod slots;
mod snapset;
mod split;
#[cfg(any(test, fuzzing))]
mod tests;
mod tier;
mod unite;

pub use adapter::StoreBacking;
pub use backing::{Coll, ObjectStore, PoolSpace, Space, StoreError, StoreOp};
pub use cache::DataCache;
pub use coding::shards_agree;
pub use config::Config;
pub use core::{Identity, Osd, PeerInfo};
pub use doors::Door;
pub use inspect::{PgSummary, clones_fit, dirty, version_of};
pub use load::Load;
pub use maphist::KeptMaps;
pub use outbox::{Effect, Outbox};
#[cfg(fuzzing)]
pub use tests::proved::run as fuzz_proved;
