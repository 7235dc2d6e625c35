//! What can go wrong in a call.

use types::Errno;

/// Why a call did not do what it should.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A server answered with an errno, or this client did.
    #[error("{what}: {}", std::io::Error::from_raw_os_error(*.errno))]
    Errno {
        /// What was asked.
        what: String,
        /// Its number, above 0.
        errno: i32,
    },
    /// There is no such file system.
    #[error("no file system '{0}'")]
    NoFs(String),
    /// It was not mounted in time.
    #[error("no metadata server answered within {0} s: is the file system up?")]
    Timeout(u64),
    /// The monitors or OSDs.
    #[error(transparent)]
    Rados(#[from] rados::Error),
    /// The mount has ended.
    #[error("the mount has ended")]
    Gone,
}

impl Error {
    pub(crate) fn of(what: impl AsRef<[u8]>, errno: Errno) -> Self {
        let what = String::from_utf8_lossy(what.as_ref()).into_owned();
        Self::Errno { what, errno: errno.0.abs() }
    }

    /// Its errno, positive.
    #[must_use]
    pub fn errno(&self) -> i32 {
        match self {
            Self::Errno { errno, .. } => *errno,
            Self::NoFs(_) => 2,
            Self::Timeout(_) => 110,
            Self::Rados(err) => err.code().unwrap_or(5),
            Self::Gone => 108,
        }
    }
}

/// A call's outcome.
pub type Result<T> = std::result::Result<T, Error>;
