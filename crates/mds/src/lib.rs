//! The metadata server: the tree of a file system, the sessions of its clients and what they
//! may cache.
//!
//! [`Mds`] is a value with one owner. Events go in with the time at which they happen, and an
//! [`Outbox`] comes out that the driver empties after each event:
//!
//! | event | when |
//! |---|---|
//! | [`Mds::on_start`] | once, when the driver can send to monitors |
//! | [`Mds::on_map`] | the monitors sent an MDS map |
//! | [`Mds::on_osd_map`] | the driver has a newer map of OSDs: for each one |
//! | [`Mds::on_beacon_ack`] | the monitors answered a beacon |
//! | [`Mds::on_message`], [`Mds::on_closed`] | connections of clients, accepted by the driver |
//! | [`Mds::on_done`] | an [`Io`] or [`Effect::Blocklist`] ended |
//! | [`Mds::on_sent`] | the outbox of an event is empty; may be left out |
//! | [`Mds::on_command`] | a command over the admin socket or from `ceph tell` |
//! | [`Mds::set_options`] | an option that may change meanwhile has another value |
//! | [`Mds::on_tick`] | some time has passed; at least four times a second |
//! | [`Mds::on_stop`] | the process is asked to end; once more when that takes too long |
//!
//! Invariants:
//! - nothing leaves for a client before every record that others made of what it says is durable;
//!   what a client changed itself is answered at once, and answered again when it is durable;
//! - nothing is written to the tree before the record of it is durable;
//! - nothing is read or written before the map of OSDs is here that blocklists the predecessor;
//! - nothing here reads a clock, waits, or talks to anybody but through the outbox.
//!
//! Source: the peer's `src/mds/`; the journal is ours, the tree is the peer's to the byte.

mod answer;
mod beacon;
mod boot;
mod caps;
mod capset;
mod commands;
mod config;
mod core;
mod counters;
mod damage;
mod errno;
mod fetch;
mod flock;
mod frags;
mod gate;
mod health;
mod heat;
mod journal;
mod line;
mod ops;
mod outbox;
mod pack;
mod rank;
mod realm;
mod reclaim;
mod record;
mod recover;
mod replay;
mod request;
mod scrub;
mod session;
mod shared;
mod snap;
mod stray;
mod tables;
mod tags;
#[cfg(any(test, fuzzing))]
mod tests;
mod track;
mod tree;
mod trim;
mod writeback;

pub use commands::COMMANDS;
pub use config::{Config, Options, OsdNews, Peer, Throttle};
pub use core::Mds;
pub use outbox::{AskId, Beacon, Effect, Io, IoAnswer, IoData, IoId, IoOp, Outbox, Severity};
#[cfg(fuzzing)]
pub use tests::proved::run as fuzz_proved;
