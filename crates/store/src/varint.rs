//! Numbers in as few bytes as they need: seven bits in each, the lowest first; the top bit
//! says that more follow.

use denc::{DecodeError, Reader, Writer};

/// The bytes of a number, and how many they are.
pub(crate) fn bytes(mut n: u64) -> ([u8; 10], usize) {
    let (mut raw, mut len) = ([0; 10], 1);
    while n >= 0x80 {
        raw[len - 1] = n as u8 | 0x80;
        n >>= 7;
        len += 1;
    }
    raw[len - 1] = n as u8;
    (raw, len)
}

pub(crate) fn put(w: &mut Writer, n: u64) {
    let (raw, len) = bytes(n);
    w.raw(&raw[..len]);
}

/// # Errors
/// Bytes that end too soon, or say more than 64 bits.
pub(crate) fn get(r: &mut Reader<'_>) -> Result<u64, DecodeError> {
    let mut n = 0;
    for shift in (0..64).step_by(7) {
        let byte = r.u8()?;
        let bits = u64::from(byte & 0x7f);
        r.require((bits << shift) >> shift == bits, "a number has 64 bits")?;
        n |= bits << shift;
        if byte < 0x80 {
            return Ok(n);
        }
    }
    r.require(false, "a number has ten bytes")?;
    Ok(n)
}

/// Small numbers of either sign to small ones.
pub(crate) fn fold(n: i64) -> u64 {
    (n << 1 ^ n >> 63) as u64
}

pub(crate) fn unfold(n: u64) -> i64 {
    (n >> 1) as i64 ^ -((n & 1) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use denc::Features;
    use proptest::prelude::*;

    fn bytes(n: u64) -> Vec<u8> {
        let mut w = Writer::new(Features::ALL);
        put(&mut w, n);
        w.finish().to_vec()
    }

    proptest! {
        #[test]
        fn numbers_come_back(n: u64, shift in 0u32..64, signed: i64) {
            let n = n >> shift;
            let raw = bytes(n);
            let mut r = Reader::new(&raw);
            prop_assert_eq!(get(&mut r), Ok(n));
            prop_assert!(r.finish().is_ok());
            prop_assert_eq!(raw.len(), ((64 - n.leading_zeros()).max(1) as usize).div_ceil(7));
            prop_assert_eq!(unfold(fold(signed)), signed);
        }
    }

    #[test]
    fn what_is_no_number_is_refused() {
        for raw in [&[][..], &[0x80], &[0xff; 10], &[0x80; 11]] {
            assert!(get(&mut Reader::new(raw)).is_err(), "{raw:?}");
        }
    }
}
