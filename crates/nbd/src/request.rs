//! What a client asks of an export.

use crate::Error;

const MAGIC: u32 = 0x2560_9513;

/// Bytes of a request's head; the data of a write follows it.
pub const REQUEST_LEN: usize = 28;

/// Bits of [`Request::flags`].
#[allow(missing_docs)]
pub mod command_flag {
    pub const FUA: u16 = 1;
    pub const NO_HOLE: u16 = 1 << 1;
    pub const DF: u16 = 1 << 2;
    pub const REQ_ONE: u16 = 1 << 3;
    pub const FAST_ZERO: u16 = 1 << 4;
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Read.
    Read,
    /// Write; the data follows.
    Write,
    /// End the connection.
    Disconnect,
    /// Make what was written durable.
    Flush,
    /// The range is not needed any more.
    Trim,
    /// Make the range zeros.
    WriteZeroes,
    /// Tell what is allocated.
    BlockStatus,
    /// One of those that are not offered.
    Other(u16),
}

/// A request's head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// See [`command_flag`].
    pub flags: u16,
    /// What to do.
    pub command: Command,
    /// Comes back with the answer.
    pub cookie: u64,
    /// First byte.
    pub off: u64,
    /// Bytes.
    pub len: u32,
}

impl Request {
    /// Reads a head.
    ///
    /// # Errors
    /// [`Error::Protocol`] when it is none: where the next one begins is not known then.
    pub fn decode(raw: &[u8; REQUEST_LEN]) -> Result<Self, Error> {
        let part =
            |from: usize, to: usize| raw[from..to].iter().fold(0u64, |x, b| x << 8 | u64::from(*b));
        if part(0, 4) as u32 != MAGIC {
            return Err(Error::Protocol("a request does not begin as one does"));
        }
        let command = match part(6, 8) as u16 {
            0 => Command::Read,
            1 => Command::Write,
            2 => Command::Disconnect,
            3 => Command::Flush,
            4 => Command::Trim,
            6 => Command::WriteZeroes,
            7 => Command::BlockStatus,
            other => Command::Other(other),
        };
        Ok(Self {
            flags: part(4, 6) as u16,
            command,
            cookie: part(8, 16),
            off: part(16, 24),
            len: part(24, 28) as u32,
        })
    }

    /// Whether a flag is set.
    #[must_use]
    pub fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_read() {
        let mut raw = [0; REQUEST_LEN];
        raw[..4].copy_from_slice(&MAGIC.to_be_bytes());
        raw[5] = 1;
        raw[7] = 6;
        raw[15] = 9;
        raw[22..24].copy_from_slice(&[0x10, 0]);
        raw[26] = 2;
        let expected = Request {
            flags: command_flag::FUA,
            command: Command::WriteZeroes,
            cookie: 9,
            off: 4096,
            len: 512,
        };
        assert_eq!(Request::decode(&raw), Ok(expected));
        raw[0] = 0;
        assert!(Request::decode(&raw).is_err());
    }
}
