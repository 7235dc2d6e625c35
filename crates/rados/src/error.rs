//! What can go wrong in a call.

/// Why a call did not do what it should.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The cluster answered with an errno.
    #[error("{what}: {} (errno {errno})", errno_name(*.errno))]
    Errno {
        /// What was asked.
        what: String,
        /// Positive.
        errno: i32,
    },
    /// No monitor opened a session in time.
    #[error("no monitor opened a session within {0} s: is the cluster up, and the key right?")]
    Timeout(u64),
    /// The answer's bytes are wrong.
    #[error("the answer cannot be read: {0}")]
    Decode(#[from] denc::DecodeError),
    /// Too much is in flight.
    #[error("too many requests wait")]
    Busy,
    /// The client is shutting down.
    #[error("the client is gone")]
    Gone,
}

/// The usual text of an errno.
fn errno_name(errno: i32) -> String {
    std::io::Error::from_raw_os_error(errno).to_string()
}

impl Error {
    pub(crate) fn errno(what: &str, r: i32) -> Self {
        Self::Errno { what: what.to_owned(), errno: -r }
    }

    /// The errno, when the cluster gave one.
    #[must_use]
    pub fn code(&self) -> Option<i32> {
        if let Self::Errno { errno, .. } = self { Some(*errno) } else { None }
    }
}

/// A call's outcome.
pub type Result<T> = std::result::Result<T, Error>;
