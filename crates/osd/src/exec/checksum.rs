//! CHECKSUM: crc32c as everywhere, and xxHash in 32 and 64 bits.
//!
//! Source: the peer's `common/Checksummer.h`.

use bytes::Bytes;
use denc::{Features, Reader, Writer};
use stdx::{xxh32, xxh64};
use types::{Errno, OpResult};

/// u32 count, then one checksum for each `chunk` bytes (all of them when 0). `input` is the
/// initial value, as wide as the result.
///
/// # Errors
/// EINVAL for an unknown kind or a missing initial value.
pub fn checksums(kind: u8, input: &Bytes, data: &Bytes, chunk: usize) -> OpResult<Bytes> {
    let chunk = if chunk == 0 { data.len().max(1) } else { chunk };
    let mut r = Reader::new(input);
    let mut w = Writer::new(Features::ALL);
    w.u32(data.len().div_ceil(chunk) as u32);
    match kind {
        0 => {
            let seed = r.u32().map_err(|_| Errno::INVAL)?;
            data.chunks(chunk).for_each(|c| w.u32(xxh32(seed, c)));
        }
        1 => {
            let seed = r.u64().map_err(|_| Errno::INVAL)?;
            data.chunks(chunk).for_each(|c| w.u64(xxh64(seed, c)));
        }
        2 => {
            let seed = r.u32().map_err(|_| Errno::INVAL)?;
            data.chunks(chunk).for_each(|c| w.u32(stdx::crc32c(seed, c)));
        }
        _ => return Err(Errno::INVAL),
    }
    Ok(w.finish())
}
