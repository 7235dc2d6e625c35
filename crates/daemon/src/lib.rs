//! What every daemon does beside its role: options, log, pid file, admin socket, files, who it is
//! to its peers.
//!
//! | module | what it is about |
//! | --- | --- |
//! | `start` | options from `ceph.conf`, addresses, log, pid file, what a daemon tells of its host |
//! | [`asok`] | the admin socket, from both sides |
//! | [`commands`] | options, version and help, by socket and `ceph tell` |
//! | [`node`] | link and connections of a daemon that is a client of its cluster, settings, a new beginning |
//! | `net` | messengers, the link to the monitors, the cluster's log |
//! | `identity` | features, and what a ticket proves |
//! | `log_file` | the file that is opened anew at SIGHUP |
//! | `log_lines` | how events become lines of a log |
//! | `files`, [`private`] | files that are there whole, and their owner's alone |
//!
//! A daemon's `main` reads its options, starts the log and runs its role by [`rt::run_local`]; all
//! else here is called from within.

pub mod asok;
pub mod commands;
mod files;
mod identity;
mod log_file;
mod log_lines;
mod made;
mod net;
pub mod node;
pub mod private;
mod start;

pub use asok::local_text;
pub use files::{write_durably, write_secret};
pub use identity::{FEATURES, proven_id};
pub use made::{interface_of, made, mark_made, process};
pub use net::{ClusterLog, Doors, bind, fsid, link_config, v1_rules};
pub use start::{
    address, hostname, metadata, options, read_conf, replace_pid_file, require_security, start_log,
    when_up, write_pid,
};
