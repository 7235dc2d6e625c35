//! The seeded world: a whole cluster in one process on virtual time. Monitor, OSDs and
//! clients are the roles as they are; network, disks, clocks and chance are played.
//!
//! # Parts
//! - [`World`]: time, events, processes. One seed replays everything byte for byte; its
//!   trace tells.
//! - connections with latency, cuts by direction, resets; processes that die, lose what
//!   they had not flushed, stand still; disks that are slow; clocks that run apart and step.
//! - the menu of faults and operators' commands.
//! - [`history`]: what clients were told, checked for linearizability per object.
//! - [`run()`]: one seed from `mkfs` to the last check; [`Plant`]: bugs put there on
//!   purpose, which the checks must find.
//!
//! # What is checked
//! - Every answer fits one order of all operations on its object: nothing acknowledged is
//!   lost, done twice or reordered, and nothing stale is read.
//! - After trouble ends all PGs become active and clean in bounded time, every operation
//!   is answered, and the monitor hears of it.
//! - Then all copies are equal in data, attributes, omap and versions, and no copy is left
//!   where nobody needs it.
//! - While operators drain OSDs and nothing else is wrong, no object loses a copy or shard.
//! - Map epochs never fall in a process' life, and each epoch is one map for everybody.
//! - No role panics, whatever a hostile client sends: every eighth seed has one.
//!
//! The page is `docs/protocols/simulation.md`.

mod client;
pub mod disk;
mod drains;
mod faults;
mod flips;
pub mod history;
mod hostile;
mod menu;
mod mons;
mod net;
mod operators;
mod osds;
mod plant;
pub mod real;
pub mod remap;
mod room;
mod run;
mod show;
mod snaps;
pub mod stores;
mod tiers;
mod uploads;
mod users;
mod watch;
mod world;

pub use plant::Plant;
pub use run::{Report, run};
pub use world::{Scenes, Settings, World};
