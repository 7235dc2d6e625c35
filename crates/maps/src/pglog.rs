//! Entries of a PG's log.

use std::collections::BTreeMap;

use types::{Bytes, DecodeError, Denc, EVersion, HObject, Reader, ReqId, UTime, Writer};

use crate::pool::ShardSet;
use crate::wire::{SnapIntervals, plain, record, release};

/// What a log entry did. The peer's `pg_log_entry_t::op`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct LogOp(pub i32);

impl LogOp {
    /// Wrote an object.
    pub const MODIFY: Self = Self(1);
    /// Made a clone.
    pub const CLONE: Self = Self(2);
    /// Deleted an object.
    pub const DELETE: Self = Self(3);
    /// Turned a lost object back to an older version.
    pub const LOST_REVERT: Self = Self(5);
    /// Deleted a lost object.
    pub const LOST_DELETE: Self = Self(6);
    /// Marked an object lost.
    pub const LOST_MARK: Self = Self(7);
    /// Moved an object into place.
    pub const PROMOTE: Self = Self(8);
    /// Removed what had no data.
    pub const CLEAN: Self = Self(9);
    /// Failed, and remembers that for the client.
    pub const ERROR: Self = Self(10);

    /// Whether the object is gone after it.
    #[must_use]
    pub fn is_delete(self) -> bool {
        self == Self::DELETE || self == Self::LOST_DELETE
    }
}

/// How an entry is undone. The peer's `ObjectModDesc`, whose version and compat are those
/// of the newest step in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModDesc {
    /// Version needed to read the steps.
    pub version: u8,
    /// Whether it can be undone here.
    pub can_local_rollback: bool,
    /// Whether all steps are there.
    pub rollback_info_completed: bool,
    /// The steps, encoded.
    pub steps: Bytes,
}

impl Default for ModDesc {
    fn default() -> Self {
        Self {
            version: 1,
            can_local_rollback: true,
            rollback_info_completed: false,
            steps: Bytes::new(),
        }
    }
}

impl ModDesc {
    /// What cannot be undone, as in replicated pools.
    #[must_use]
    pub fn unrollbackable() -> Self {
        Self { can_local_rollback: false, ..Self::default() }
    }
}

impl Denc for ModDesc {
    fn encode(&self, w: &mut Writer) {
        w.framed(self.version, self.version, |w| {
            w.bool(self.can_local_rollback);
            w.bool(self.rollback_info_completed);
            w.blob(&self.steps);
        });
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("ObjectModDesc", 2, |r, version| {
            Ok(Self {
                version,
                can_local_rollback: r.bool()?,
                rollback_info_completed: r.bool()?,
                steps: r.blob()?,
            })
        })
    }
}

record! {
    /// What a write did **not** touch. The peer's `ObjectCleanRegions`.
    #[derive(Clone, Debug, PartialEq, Eq)]
    CleanRegions "ObjectCleanRegions", compat 1, known 1, |f| 1; {
        /// Byte ranges.
        offsets: SnapIntervals,
        /// omap.
        omap: bool,
        /// Whether the object is new.
        new_object: bool,
    }
}

impl Default for CleanRegions {
    /// Everything is untouched.
    fn default() -> Self {
        Self { offsets: SnapIntervals::from_iter([(0, u64::MAX)]), omap: true, new_object: false }
    }
}

plain! {
    /// What one operation of a write returned. The peer's `pg_log_op_return_item_t`.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    OpReturn {
        /// The result.
        rval: i32,
        /// The output.
        data: Bytes,
    }
}

/// One entry of a PG's log. The peer's `pg_log_entry_t`: compat 4; v15 for peers of release
/// 20, else v14. Read from v14.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PgLogEntry {
    /// What it did.
    pub op: LogOp,
    /// To which object.
    pub soid: HObject,
    /// Its place.
    pub version: EVersion,
    /// The object's version before.
    pub prior_version: EVersion,
    /// For [`LogOp::LOST_REVERT`]: the version it went back to.
    pub reverting_to: EVersion,
    /// Who asked.
    pub reqid: ReqId,
    /// When.
    pub mtime: UTime,
    /// For clones: the snapshots they serve, encoded.
    pub snaps: Bytes,
    /// The version users see.
    pub user_version: u64,
    /// How to undo it.
    pub mod_desc: ModDesc,
    /// Other requests done by it.
    pub extra_reqids: Vec<(ReqId, u64)>,
    /// Their results where not 0, by place.
    pub extra_reqid_return_codes: BTreeMap<u32, i32>,
    /// What it did not touch.
    pub clean_regions: CleanRegions,
    /// The result.
    pub return_code: i32,
    /// What its operations returned.
    pub op_returns: Vec<OpReturn>,
    /// Shards written (v15).
    pub written_shards: ShardSet,
    /// Shards there were (v15).
    pub present_shards: ShardSet,
}

impl Denc for PgLogEntry {
    fn encode(&self, w: &mut Writer) {
        let v = if release(w.features()) >= 20 { 15 } else { 14 };
        w.framed(v, 4, |w| {
            w.i32(self.op.0);
            self.soid.encode(w);
            self.version.encode(w);
            // Older readers know one field for both.
            if self.op == LogOp::LOST_REVERT {
                self.reverting_to.encode(w);
            } else {
                self.prior_version.encode(w);
            }
            self.reqid.encode(w);
            self.mtime.encode(w);
            if self.op == LogOp::LOST_REVERT {
                self.prior_version.encode(w);
            }
            w.blob(&self.snaps);
            w.u64(self.user_version);
            self.mod_desc.encode(w);
            self.extra_reqids.encode(w);
            if self.op == LogOp::ERROR {
                w.i32(self.return_code);
            }
            if !self.extra_reqids.is_empty() {
                self.extra_reqid_return_codes.encode(w);
            }
            self.clean_regions.encode(w);
            if self.op != LogOp::ERROR {
                w.i32(self.return_code);
            }
            self.op_returns.encode(w);
            if v >= 15 {
                self.written_shards.encode(w);
                self.present_shards.encode(w);
            }
        });
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("pg_log_entry_t", 15, |r, v| {
            r.require(v >= 14, "log entries are read from version 14 on")?;
            let mut e = Self {
                op: LogOp(r.i32()?),
                soid: Denc::decode(r)?,
                version: Denc::decode(r)?,
                ..Self::default()
            };
            let revert = e.op == LogOp::LOST_REVERT;
            *(if revert { &mut e.reverting_to } else { &mut e.prior_version }) = Denc::decode(r)?;
            e.reqid = Denc::decode(r)?;
            e.mtime = Denc::decode(r)?;
            if revert {
                e.prior_version = Denc::decode(r)?;
            }
            e.snaps = r.blob()?;
            e.user_version = r.u64()?;
            e.mod_desc = Denc::decode(r)?;
            e.extra_reqids = Denc::decode(r)?;
            if e.op == LogOp::ERROR {
                e.return_code = r.i32()?;
            }
            if !e.extra_reqids.is_empty() {
                e.extra_reqid_return_codes = Denc::decode(r)?;
            }
            e.clean_regions = Denc::decode(r)?;
            if e.op != LogOp::ERROR {
                e.return_code = r.i32()?;
            }
            e.op_returns = Denc::decode(r)?;
            if v >= 15 {
                e.written_shards = Denc::decode(r)?;
                e.present_shards = Denc::decode(r)?;
            }
            Ok(e)
        })
    }
}

record! {
    /// What is remembered of a write beyond the log. The peer's `pg_log_dup_t`.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    PgLogDup "pg_log_dup_t", compat 1, known 2, |f| 2; {
        /// Who asked.
        reqid: ReqId,
        /// Its place.
        version: EVersion,
        /// The version users saw.
        user_version: u64,
        /// The result.
        return_code: i32,
        /// What its operations returned.
        2 => op_returns: Vec<OpReturn>,
    }
}
