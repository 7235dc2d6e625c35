//! Numbers of errors that clients of file systems see, and others do not.

use types::Errno;

pub(crate) const INTR: Errno = Errno(-4);
pub(crate) const XDEV: Errno = Errno(-18);
pub(crate) const NOTDIR: Errno = Errno(-20);
pub(crate) const ISDIR: Errno = Errno(-21);
pub(crate) const ROFS: Errno = Errno(-30);
pub(crate) const NOLCK: Errno = Errno(-37);
pub(crate) const NOTEMPTY: Errno = Errno(-39);
pub(crate) const SHUTDOWN: Errno = Errno(-108);
pub(crate) const STALE: Errno = Errno(-116);
pub(crate) const CANCELED: Errno = Errno(-125);
