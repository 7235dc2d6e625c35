//! An async, typed client library for RADOS: pools, objects, attributes, omap, commands.
//!
//! Invariants: a future that is dropped leaves its operation to the cluster: it may still
//! happen. Every error is an [`Error`]; no call blocks the thread.

mod client;
mod config;
mod link;

pub use client::{Cluster, Config, Error, IoCtx, Listed, ObjectStat};
pub use config::{ConfigError, configured_key, key_in, methods, modes, mon_addrs};
pub use link::{LinkConfig, MonLink};
