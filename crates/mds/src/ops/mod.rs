//! What requests ask for. An operation looks at all it needs, and only then changes anything: it
//! may be run again from the start any number of times before that.

mod attr;
mod drop;
mod make;
mod read;
mod snap;
mod snapdiff;
mod vxattr;

pub(crate) use read::{is_open_for_change, wanted_of};
pub(crate) use snap::Seen;

use messages::fs::{Args, mds_op};
use types::Errno;

use crate::rank::Rank;
use crate::request::{Answer, Call, Op};

impl Rank {
    /// Runs a request as far as it goes.
    pub fn execute(&mut self, call: &mut Call) -> Op<Answer> {
        let op = call.m.op;
        let args = Args::read(op, &call.m.args).map_err(|_| Errno::INVAL)?;
        if op & mds_op::WRITE != 0 && op != mds_op::SETFILELOCK {
            self.writable()?;
        }
        match (op, args) {
            (mds_op::LOOKUP, Args::Mask(mask)) => self.op_lookup(call, mask),
            (mds_op::GETATTR, Args::Mask(mask)) => self.op_getattr(call, mask),
            (
                mds_op::LOOKUPINO | mds_op::LOOKUPPARENT | mds_op::LOOKUPNAME | mds_op::LOOKUPHASH,
                _,
            ) => self.op_lookup_ino(call),
            (mds_op::GETVXATTR, _) => self.op_getvxattr(call),
            (mds_op::READDIR, Args::Readdir(args)) => self.op_readdir(call, &args),
            (mds_op::READDIR_SNAPDIFF, Args::Readdir(args)) => self.op_snapdiff(call, &args),
            (mds_op::LOOKUPSNAP, _) => self.op_lookupsnap(call),
            (mds_op::LSSNAP, Args::Readdir(args)) => self.op_lssnap(call, &args),
            (mds_op::MKSNAP, _) => self.op_mksnap(call),
            (mds_op::RMSNAP, _) => self.op_rmsnap(call),
            (mds_op::RENAMESNAP, _) => self.op_renamesnap(call),
            (mds_op::OPEN, Args::Open(args)) => self.op_open(call, &args),
            (mds_op::CREATE, Args::Open(args)) => self.op_create(call, &args),
            (mds_op::MKNOD, Args::Mknod { mode, rdev }) => self.op_mknod(call, mode, rdev),
            (mds_op::MKDIR, Args::Mode(mode)) => self.op_mkdir(call, mode),
            (mds_op::SYMLINK, _) => self.op_symlink(call),
            (mds_op::LINK, _) => self.op_link(call),
            (mds_op::UNLINK, _) => self.op_unlink(call, false),
            (mds_op::RMDIR, _) => self.op_unlink(call, true),
            (mds_op::RENAME, _) => self.op_rename(call),
            (mds_op::SETATTR, Args::Setattr(args)) => self.op_setattr(call, &args),
            (mds_op::SETXATTR, Args::Setxattr { flags, .. }) => self.op_setxattr(call, flags),
            (mds_op::RMXATTR, _) => self.op_rmxattr(call),
            (mds_op::SETLAYOUT, Args::Layout(l)) => self.op_setlayout(call, l, false),
            (mds_op::SETDIRLAYOUT, Args::Layout(l)) => self.op_setlayout(call, l, true),
            (mds_op::SETFILELOCK, Args::FileLock { rule, wait, lock }) => {
                self.op_setfilelock(call, rule, wait, lock)
            }
            (mds_op::GETFILELOCK, Args::FileLock { rule, lock, .. }) => {
                self.op_getfilelock(call, rule, lock)
            }
            // Inline data is not made by this server.
            _ => Err(Errno::OPNOTSUPP.into()),
        }
    }
}
