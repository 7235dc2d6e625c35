//! Why the store could not do what it was asked.

use std::io;

/// What the store answers when it cannot.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// No object of that name in the collection (`ENOENT`).
    #[error("no object {0}")]
    NoObject(String),
    /// No such collection (`ENOENT`).
    #[error("no collection {0}")]
    NoCollection(crate::Coll),
    /// Not enough room; nothing of the transaction was applied (`ENOSPC`).
    #[error("needs {need} bytes, {available} are available")]
    NoSpace {
        /// Bytes the transaction may need.
        need: u64,
        /// Bytes left for data.
        available: u64,
    },
    /// The transaction's record is larger than the log can ever take; nothing of it was
    /// applied (`EMSGSIZE`).
    #[error("the transaction takes {record} bytes of the log, which has room for {max}")]
    TooLarge {
        /// Bytes of its record, at most.
        record: u64,
        /// Bytes that one may have.
        max: u64,
    },
    /// What the device returned is not what was written (`EIO`); the layer above repairs
    /// it from a replica.
    #[error("{what}: checksum mismatch at offset {offset}, device position {device:#x}")]
    Corrupt {
        /// The object or structure.
        what: String,
        /// Offset in it.
        offset: u64,
        /// Where on the device.
        device: u64,
    },
    /// The device failed (`EIO`).
    #[error("{what}: {source}")]
    Io {
        /// What was being done.
        what: &'static str,
        /// The system's reason.
        source: io::Error,
    },
    /// The device is not ours to open, in words for the operator.
    #[error("{0}")]
    Format(String),
    /// Another process has it open (`EBUSY`).
    #[error("{0}: in use by another process")]
    InUse(String),
    /// An export of another cluster (`EINVAL`).
    #[error("the export is of cluster {found}, this store of {mine}")]
    Foreign {
        /// The export's.
        found: types::Uuid,
        /// The store's.
        mine: types::Uuid,
    },
    /// A later version made the store (`EINVAL`).
    #[error("the store has format {found}, this version knows {known} and below")]
    NewerFormat {
        /// The store's.
        found: u32,
        /// The newest that this version reads.
        known: u32,
    },
    /// The request breaks a rule of the store (`EINVAL`).
    #[error("{0}")]
    Invalid(&'static str),
    /// An earlier write failed: nothing is accepted any more, and nothing unacknowledged
    /// will be acknowledged (`EIO`).
    #[error("the store has stopped after an error: {0}")]
    Stopped(String),
}

impl StoreError {
    /// The errno a client would see.
    #[must_use]
    pub fn errno(&self) -> i32 {
        match self {
            Self::NoObject(_) | Self::NoCollection(_) => 2,
            Self::NoSpace { .. } => 28,
            Self::TooLarge { .. } => 90,
            Self::Invalid(_)
            | Self::Format(_)
            | Self::NewerFormat { .. }
            | Self::Foreign { .. } => 22,
            Self::InUse(_) => 16,
            Self::Corrupt { .. } | Self::Io { .. } | Self::Stopped(_) => 5,
        }
    }

    pub(crate) fn io(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { what, source }
    }
}
