//! The cluster log: entries from daemons and clients, pushes to whoever watches.

use denc::{DecodeError, Denc, Reader, Writer};
use types::{AddrVec, EntityId, EntityName, UTime, Uuid};

use crate::{Paxos, plain_message};

/// How serious a log entry is. The peer's `clog_type`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct LogPriority(pub u16);

impl LogPriority {
    /// Debugging.
    pub const DEBUG: Self = Self(0);
    /// Information.
    pub const INFO: Self = Self(1);
    /// Security.
    pub const SEC: Self = Self(2);
    /// Warning.
    pub const WARN: Self = Self(3);
    /// Error.
    pub const ERROR: Self = Self(4);

    /// `DBG`, `INF`, `SEC`, `WRN`, `ERR`.
    #[must_use]
    pub const fn tag(self) -> &'static str {
        match self {
            Self::DEBUG => "DBG",
            Self::INFO => "INF",
            Self::SEC => "SEC",
            Self::WARN => "WRN",
            Self::ERROR => "ERR",
            _ => "UNKNOWN",
        }
    }
}

/// One line of the cluster log. The peer's `LogEntry`, v5/5.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogEntry {
    /// Who says it.
    pub name: EntityName,
    /// Who says it, by number.
    pub rank: EntityId,
    /// Where it runs.
    pub addrs: AddrVec,
    /// When.
    pub stamp: UTime,
    /// Counts the sender's entries.
    pub seq: u64,
    /// How serious it is.
    pub prio: LogPriority,
    /// The line.
    pub msg: String,
    /// `cluster` or `audit`.
    pub channel: String,
}

impl Denc for LogEntry {
    fn encode(&self, w: &mut Writer) {
        w.framed(5, 5, |w| {
            self.name.encode(w);
            self.rank.encode(w);
            self.addrs.encode(w);
            self.stamp.encode(w);
            w.u64(self.seq);
            w.u16(self.prio.0);
            w.str(&self.msg);
            w.str(&self.channel);
        });
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("LogEntry", 5, |r, v| {
            r.require(v >= 5, "log entries are version 5 or later")?;
            Ok(Self {
                name: Denc::decode(r)?,
                rank: Denc::decode(r)?,
                addrs: Denc::decode(r)?,
                stamp: Denc::decode(r)?,
                seq: r.u64()?,
                prio: LogPriority(r.u16()?),
                msg: String::from_utf8_lossy(r.blob_ref()?).into_owned(),
                channel: r.string()?,
            })
        })
    }
}

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
