//! Answers to requests: simple ones, or chunks where the client asked for structured replies.

const SIMPLE: u32 = 0x6744_6698;
const CHUNK: u32 = 0x668e_33ef;

const DONE: u16 = 1;
const NONE: u16 = 0;
const OFFSET_DATA: u16 = 1;
const OFFSET_HOLE: u16 = 2;
const BLOCK_STATUS: u16 = 5;
const ERROR: u16 = 0x8001;

/// An extent is not allocated.
pub const HOLE: u32 = 1;
/// An extent reads as zeros.
pub const ZERO: u32 = 2;

fn chunk(kind: u16, last: bool, cookie: u64, len: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(20 + 12);
    out.extend(CHUNK.to_be_bytes());
    out.extend(if last { DONE } else { 0 }.to_be_bytes());
    out.extend(kind.to_be_bytes());
    out.extend(cookie.to_be_bytes());
    out.extend((len as u32).to_be_bytes());
    out
}

/// The head of a simple answer; a successful read's data follows it.
#[must_use]
pub fn simple(cookie: u64, error: u32) -> Vec<u8> {
    let mut out = Vec::with_capacity(16);
    out.extend(SIMPLE.to_be_bytes());
    out.extend(error.to_be_bytes());
    out.extend(cookie.to_be_bytes());
    out
}

/// Done, with nothing to say.
#[must_use]
pub fn done(cookie: u64) -> Vec<u8> {
    chunk(NONE, true, cookie, 0)
}

/// An error, with words for people.
#[must_use]
pub fn failed(cookie: u64, error: u32, why: &str) -> Vec<u8> {
    let end = why.floor_char_boundary(why.len().min(4000));
    let why = &why.as_bytes()[..end];
    let mut out = chunk(ERROR, true, cookie, 6 + why.len());
    out.extend(error.to_be_bytes());
    out.extend((why.len() as u16).to_be_bytes());
    out.extend(why);
    out
}

/// The head of a chunk with `len` bytes of data, which follow it.
#[must_use]
pub fn data(cookie: u64, off: u64, len: u32, last: bool) -> Vec<u8> {
    let mut out = chunk(OFFSET_DATA, last, cookie, 8 + len as usize);
    out.extend(off.to_be_bytes());
    out
}

/// A run of zeros.
#[must_use]
pub fn hole(cookie: u64, off: u64, len: u32, last: bool) -> Vec<u8> {
    let mut out = chunk(OFFSET_HOLE, last, cookie, 12);
    out.extend(off.to_be_bytes());
    out.extend(len.to_be_bytes());
    out
}

/// What is allocated, of a metadata context: lengths and [`HOLE`], [`ZERO`] bits.
#[must_use]
pub fn status(cookie: u64, context: u32, extents: &[(u32, u32)]) -> Vec<u8> {
    let mut out = chunk(BLOCK_STATUS, true, cookie, 4 + 8 * extents.len());
    out.extend(context.to_be_bytes());
    for (len, flags) in extents {
        out.extend(len.to_be_bytes());
        out.extend(flags.to_be_bytes());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each head says how long what follows is.
    #[test]
    fn lengths_are_right() {
        let len = |out: &[u8]| u32::from_be_bytes(out[16..20].try_into().unwrap()) as usize;
        let status = status(1, 7, &[(512, HOLE | ZERO), (512, 0)]);
        for (out, data) in [
            (done(1), 0),
            (failed(1, 5, "no"), 0),
            (data(1, 4096, 100, true), 100),
            (hole(1, 0, 512, false), 0),
            (status, 0),
        ] {
            assert_eq!(out.len() + data, 20 + len(&out));
            assert_eq!(out[8..16], 1u64.to_be_bytes());
        }
        assert_eq!(simple(3, 22).len(), 16);
    }

    #[test]
    fn long_words_are_cut_between_characters() {
        let out = failed(1, 5, &"ä".repeat(5000));
        assert!(std::str::from_utf8(&out[26..]).is_ok());
    }
}
