//! Usage below directories with limits.

use maps::fs::Quota;
use types::{Ino, UTime};

use crate::plain_message;

plain_message! {
    /// What is below a directory, and its limits. `MClientQuota`.
    ClientQuota, 0x314;
    {
        /// The directory.
        ino: Ino,
        /// The newest change below.
        rctime: UTime,
        /// Bytes below.
        rbytes: i64,
        /// Files below.
        rfiles: i64,
        /// Directories below, itself included.
        rsubdirs: i64,
        /// Its limits.
        quota: Quota,
    }
}
