//! What can go wrong with an image.

/// Why a call did not do what it should.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The cluster's word.
    #[error(transparent)]
    Rados(#[from] rados::Error),
    /// No image of that name, or id.
    #[error("there is no image '{0}'")]
    NoImage(String),
    /// No snapshot of that name.
    #[error("there is no snapshot '{0}'")]
    NoSnap(String),
    /// The name is taken.
    #[error("'{0}' is there already")]
    Exists(String),
    /// Somebody uses it, or it has what must go first; who or what.
    #[error("busy: {0}")]
    Busy(String),
    /// What was asked makes no sense.
    #[error("{0}")]
    Invalid(String),
    /// The image has what this client does not do.
    #[error("not supported: {0}")]
    Unsupported(String),
    /// The image was opened to be read, or a snapshot was to be written.
    #[error("opened read-only")]
    ReadOnly,
    /// Beyond the image's end.
    #[error("{off}~{len} lies beyond the image's end at {size}")]
    Beyond {
        /// First byte.
        off: u64,
        /// Bytes.
        len: u64,
        /// Of the image, in bytes.
        size: u64,
    },
    /// What the image's objects hold is wrong.
    #[error("the image's objects cannot be read: {0}")]
    Decode(#[from] denc::DecodeError),
    /// An export or a diff is not what it should be.
    #[error("the stream is damaged: {0}")]
    Stream(String),
    /// A file.
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

/// A call's outcome.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// The errno that goes best with it.
    #[must_use]
    pub fn errno(&self) -> i32 {
        match self {
            Self::Rados(err) => err.code().unwrap_or(5),
            Self::NoImage(_) | Self::NoSnap(_) => 2,
            Self::Exists(_) => 17,
            Self::Busy(_) => 16,
            Self::Invalid(_) | Self::Beyond { .. } => 22,
            Self::Unsupported(_) => 95,
            Self::ReadOnly => 30,
            Self::Decode(_) | Self::Stream(_) => 74,
            Self::Io(err) => err.raw_os_error().unwrap_or(5),
        }
    }
}

/// Whether the cluster answered with this errno.
pub(crate) fn is(result: &rados::Error, errno: i32) -> bool {
    result.code() == Some(errno)
}

pub(crate) const ENOENT: i32 = 2;
pub(crate) const EBUSY: i32 = 16;
pub(crate) const EEXIST: i32 = 17;
pub(crate) const EINVAL: i32 = 22;
pub(crate) const EOPNOTSUPP: i32 = 95;
pub(crate) const ESTALE: i32 = 116;

/// A missing object is none.
pub(crate) fn absent<T>(result: rados::Result<T>) -> rados::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(err) if is(&err, ENOENT) => Ok(None),
        Err(err) => Err(err),
    }
}
