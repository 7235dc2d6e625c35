//! Why an edit was refused.

/// The class of a [`CrushError`]; one to one with the errno a command returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// `ENOENT`: the item, type, class or rule is not there.
    NotFound,
    /// `EEXIST`: the name or id is taken.
    Exists,
    /// `EINVAL`: the request makes no sense for this map.
    Invalid,
    /// `ENOTEMPTY`: the bucket has items.
    NotEmpty,
    /// `EBUSY`: a rule or class refers to it.
    Busy,
    /// `ELOOP`: the bucket would be beneath itself.
    Loop,
    /// `ENOTDIR`: a device where a bucket is needed.
    NotABucket,
    /// `EALREADY`: it was done before.
    Already,
    /// `ERANGE`: a weight or count out of range.
    Range,
    /// `EOVERFLOW`: a weight that fixed point cannot hold.
    Overflow,
}

impl ErrorKind {
    /// The positive errno.
    #[must_use]
    pub fn errno(self) -> i32 {
        match self {
            Self::NotFound => 2,
            Self::Exists => 17,
            Self::Invalid => 22,
            Self::NotEmpty => 39,
            Self::Busy => 16,
            Self::Loop => 40,
            Self::NotABucket => 20,
            Self::Already => 114,
            Self::Range => 34,
            Self::Overflow => 75,
        }
    }
}

/// An edit of the map was refused. What it did before it found out is not undone: edit a
/// copy, and keep the copy only when the edit succeeds.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct CrushError {
    /// What kind of refusal.
    pub kind: ErrorKind,
    /// For the operator.
    pub message: String,
}

impl CrushError {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }

    /// The positive errno.
    #[must_use]
    pub fn errno(&self) -> i32 {
        self.kind.errno()
    }
}
