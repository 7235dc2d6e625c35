//! The cluster log.

use std::collections::BTreeMap;
use std::fmt;

use types::{
    AddrVec, DecodeError, Denc, EntityId, EntityInst, EntityName, Features, Reader, UTime, Writer,
};

use crate::wire::{plain, release};

/// How much a log entry matters. The peer's `clog_type`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogPrio(pub u16);

impl LogPrio {
    /// Of use to developers.
    pub const DEBUG: Self = Self(0);
    /// Something happened.
    pub const INFO: Self = Self(1);
    /// Concerns security.
    pub const SEC: Self = Self(2);
    /// Something may be wrong.
    pub const WARN: Self = Self(3);
    /// Something is wrong.
    pub const ERROR: Self = Self(4);

    /// `debug`, `info`, `sec`, `warn`, `error`; anything else `unknown`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::DEBUG => "debug",
            Self::INFO => "info",
            Self::SEC => "sec",
            Self::WARN => "warn",
            Self::ERROR => "error",
            _ => "unknown",
        }
    }

    /// `DBG`, `INF`, `SEC`, `WRN`, `ERR`, as `ceph -w` prints it.
    #[must_use]
    pub const fn short(self) -> &'static str {
        match self {
            Self::DEBUG => "DBG",
            Self::INFO => "INF",
            Self::SEC => "SEC",
            Self::WARN => "WRN",
            Self::ERROR => "ERR",
            _ => "UNKNOWN",
        }
    }

    /// The priority with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::DEBUG, Self::INFO, Self::SEC, Self::WARN, Self::ERROR]
            .into_iter()
            .find(|p| p.name() == name)
    }
}

/// One line of the cluster log. The peer's `LogEntry`, 5/5 (4/2 without NAUTILUS).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogEntry {
    /// Whose key speaks.
    pub name: EntityName,
    /// Which daemon or client it is.
    pub rank: EntityId,
    /// Its addresses.
    pub addrs: AddrVec,
    /// When.
    pub stamp: UTime,
    /// Counts the sender's entries.
    pub seq: u64,
    /// How much it matters.
    pub prio: LogPrio,
    /// The text.
    pub msg: String,
    /// `cluster` or `audit`.
    pub channel: String,
}

/// `2026-11-20T13:49:00.123456+0000 mon.a (mon.0) 12 : cluster [INF] text`
impl fmt::Display for LogEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} {} ({}) {} : {} [{}] {}",
            self.stamp,
            self.name,
            self.rank,
            self.seq,
            self.channel,
            self.prio.short(),
            self.msg
        )
    }
}

impl Denc for LogEntry {
    fn encode(&self, w: &mut Writer) {
        if !w.has(Features::SERVER_NAUTILUS) {
            return w.framed(4, 2, |w| {
                EntityInst { name: self.rank, addr: self.addrs.legacy() }.encode(w);
                self.stamp.encode(w);
                w.u64(self.seq);
                w.u16(self.prio.0);
                w.str(&self.msg);
                w.str(&self.channel);
                self.name.encode(w);
            });
        }
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
            let mut e = Self::default();
            if v >= 5 {
                e.name = Denc::decode(r)?;
                e.rank = Denc::decode(r)?;
                e.addrs = Denc::decode(r)?;
            } else {
                e.rank = Denc::decode(r)?;
                e.addrs = Denc::decode(r)?;
            }
            e.stamp = Denc::decode(r)?;
            e.seq = r.u64()?;
            e.prio = LogPrio(r.u16()?);
            e.msg = r.string()?;
            if v >= 3 {
                e.channel = r.string()?;
            }
            if v == 4 {
                e.name = Denc::decode(r)?;
            }
            Ok(e)
        })
    }
}

plain! {
    /// Tells log entries apart. The peer's `LogEntryKey`: rank, stamp, seq.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
    LogEntryKey {
        /// Who.
        rank: EntityId,
        /// When.
        stamp: UTime,
        /// Its count.
        seq: u64,
    }
}

impl LogEntry {
    /// What tells it from others.
    #[must_use]
    pub const fn key(&self) -> LogEntryKey {
        LogEntryKey { rank: self.rank, stamp: self.stamp, seq: self.seq }
    }
}

/// The state of the log. The peer's `LogSummary`: v3/3 keeps the newest entries of every
/// channel; v4/3, since release 17, where entries are stored on their own, adds each
/// channel's range of them and the newest entries' keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogSummary {
    /// Version of the log.
    pub version: u64,
    /// Entries seen in all, as v3 counts.
    pub seq: u64,
    /// Entries by channel, each with its number, oldest first; empty in v4.
    pub tail: BTreeMap<String, Vec<(u64, LogEntry)>>,
    /// First and behind-last number of each channel's entries (v4).
    pub channels: BTreeMap<String, (u64, u64)>,
    /// Keys of the newest entries, oldest first, so that repeated ones are noticed (v4).
    pub recent: Vec<LogEntryKey>,
}

impl Denc for LogSummary {
    fn encode(&self, w: &mut Writer) {
        let version = if release(w.features()) >= 18 { 4 } else { 3 };
        w.framed(version, 3, |w| {
            w.u64(self.version);
            w.u64(self.seq);
            self.tail.encode(w);
            if version >= 4 {
                self.channels.encode(w);
                w.framed(1, 1, |w| self.recent.encode(w));
            }
        });
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("LogSummary", 4, |r, v| {
            r.require(v >= 3, "log summaries are read from version 3 on")?;
            let mut s = Self {
                version: r.u64()?,
                seq: r.u64()?,
                tail: Denc::decode(r)?,
                ..Self::default()
            };
            if v >= 4 {
                s.channels = Denc::decode(r)?;
                s.recent = r.framed("LRUSet", 1, |r, _| Denc::decode(r))?;
            }
            Ok(s)
        })
    }
}
