//! The cluster log: entries from daemons and clients, pushes to whoever watches.

use types::Uuid;

use crate::{Paxos, plain_message};

pub use maps::{LogEntry, LogPrio as LogPriority};

plain_message! {
    /// Log entries. `MLog`.
    LogMsg, 52;
    {
        /// Leads the message; version of the log when a monitor pushes.
        paxos: Paxos,
        /// The cluster.
        fsid: Uuid,
        /// In order.
        entries: Vec<LogEntry>,
    }
}
