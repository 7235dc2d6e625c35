//! Makes bytes short that are much like those before them: records of a journal.
//!
//! What is packed is a sequence of parts, each behind those before it. A part is steps, a lead byte
//! each, and may go back 65,535 bytes, into parts before it, too:
//!
//! | lead | step |
//! |---|---|
//! | below 0x80 | so many bytes and one more follow as they are |
//! | 0x80 to 0xbf | 3 to 66 bytes again, from as far back as the step of this kind or the next before it |
//! | from 0xc0 | 4 to 67 bytes again, from as far back as u16 says that follows |

/// How far back a step may go.
const BACK_MAX: usize = 0xffff;
/// The fewest bytes that are worth a step back as far as before, and as far as it says.
const AGAIN_MIN: usize = 3;
const BACK_MIN: usize = 4;
/// More bytes that one step gives, and literals.
const STEP_MORE: usize = 0x3f;
const LITERALS_MAX: usize = 0x80;
/// Bits of the number of places that are remembered.
const TABLE_BITS: u32 = 13;
/// A repeat of so many bytes is taken without a look for a longer one.
const GOOD: usize = 32;
/// Bytes that are kept before those too old to be gone back to are dropped.
const KEPT_MAX: usize = 4 * (BACK_MAX + 1);

/// Packs parts, and knows those before. Memory: 256 KiB at most beside the part.
#[derive(Debug, Default)]
pub(crate) struct Packer {
    /// The end of all parts so far.
    data: Vec<u8>,
    /// How many bytes were before that.
    dropped: usize,
    /// Where four bytes of a kind were last, counted from 1.
    table: Vec<u32>,
    back: usize,
}

fn kind(bytes: &[u8]) -> usize {
    let word = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    (word.wrapping_mul(0x9e37_79b1) >> (32 - TABLE_BITS)) as usize
}

/// How many bytes at `at` are those `back` before.
fn same(data: &[u8], at: usize, back: usize) -> usize {
    if back == 0 || back > at {
        return 0;
    }
    data[at..].iter().zip(&data[at - back..]).take_while(|(a, b)| a == b).count()
}

fn literals(out: &mut Vec<u8>, bytes: &[u8]) {
    for run in bytes.chunks(LITERALS_MAX) {
        out.push((run.len() - 1) as u8);
        out.extend_from_slice(run);
    }
}

impl Packer {
    /// The first part is the next one.
    pub fn clear(&mut self) {
        self.data.clear();
        self.table.clear();
        (self.dropped, self.back) = (0, 0);
    }

    /// Packs a part. Costs one look at each byte.
    pub fn pack(&mut self, part: &[u8]) -> Vec<u8> {
        self.table.resize(1 << TABLE_BITS, 0);
        let mut at = self.data.len();
        let mut from = at;
        self.data.extend_from_slice(part);
        let mut out = Vec::with_capacity(part.len() / 4);
        while at < self.data.len() {
            let (len, back) = self.find(at);
            if len == 0 {
                self.remember(at);
                at += 1;
                continue;
            }
            literals(&mut out, &self.data[from..at]);
            let mut left = len;
            if back != self.back {
                let n = left.min(BACK_MIN + STEP_MORE);
                out.push(0xc0 + (n - BACK_MIN) as u8);
                out.extend_from_slice(&(back as u16).to_le_bytes());
                (left, self.back) = (left - n, back);
            }
            while left >= AGAIN_MIN {
                let n = left.min(AGAIN_MIN + STEP_MORE);
                out.push(0x80 + (n - AGAIN_MIN) as u8);
                left -= n;
            }
            for place in at..at + len - left {
                self.remember(place);
            }
            at += len - left;
            from = at;
        }
        literals(&mut out, &self.data[from..]);
        if self.data.len() > KEPT_MAX {
            let old = self.data.len() - (BACK_MAX + 1);
            self.data.drain(..old);
            self.dropped += old;
        }
        out
    }

    fn remember(&mut self, at: usize) {
        if let Some(bytes) = self.data.get(at..at + 4) {
            self.table[kind(bytes)] = (self.dropped + at + 1) as u32;
        }
    }

    /// The best repeat for what is at `at`: how many bytes, from how far back.
    fn find(&self, at: usize) -> (usize, usize) {
        let again = same(&self.data, at, self.back);
        let again = if again < AGAIN_MIN { 0 } else { again };
        let Some(bytes) = self.data.get(at..at + 4).filter(|_| again < GOOD) else {
            return (again, self.back);
        };
        let place = self.table[kind(bytes)] as usize;
        let Some(before) = place.checked_sub(self.dropped + 1).filter(|p| *p < at) else {
            return (again, self.back);
        };
        let back = at - before;
        let len = if back <= BACK_MAX { same(&self.data, at, back) } else { 0 };
        // A step that says how far costs two bytes more.
        if len >= BACK_MIN && len > again + 2 { (len, back) } else { (again, self.back) }
    }
}

/// Unpacks parts in their order.
#[derive(Debug, Default)]
pub(crate) struct Unpacker {
    data: Vec<u8>,
    back: usize,
}

impl Unpacker {
    /// Unpacks the next part, which has `len` bytes; none where it is garbled.
    pub fn unpack(&mut self, mut packed: &[u8], len: usize) -> Option<&[u8]> {
        if self.data.len() > KEPT_MAX {
            self.data.drain(..self.data.len() - (BACK_MAX + 1));
        }
        let from = self.data.len();
        while let Some((lead, rest)) = packed.split_first() {
            packed = rest;
            let lead = usize::from(*lead);
            if lead < LITERALS_MAX {
                let (bytes, rest) = packed.split_at_checked(lead + 1)?;
                self.data.extend_from_slice(bytes);
                packed = rest;
            } else {
                let mut count = (lead & STEP_MORE) + AGAIN_MIN;
                if lead >= 0xc0 {
                    let (back, rest) = packed.split_first_chunk::<2>()?;
                    self.back = usize::from(u16::from_le_bytes(*back));
                    packed = rest;
                    count = (lead & STEP_MORE) + BACK_MIN;
                }
                if self.back == 0 || self.back > self.data.len() {
                    return None;
                }
                for _ in 0..count {
                    self.data.push(self.data[self.data.len() - self.back]);
                }
            }
            if self.data.len() - from > len {
                return None;
            }
        }
        (self.data.len() - from == len).then(|| &self.data[from..])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_packed_is_unpacked() {
        let mut random = 7u64;
        let mut next = move |n: usize| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            (random >> 20) as usize % n
        };
        for kinds in [1, 2, 4, 200] {
            let (mut packer, mut unpacker) = (Packer::default(), Unpacker::default());
            let mut before: Vec<u8> = Vec::new();
            for _ in 0..400 {
                let mut part: Vec<u8> = (0..next(80)).map(|_| next(kinds) as u8).collect();
                let long = if next(20) == 0 { 9000 } else { 300 };
                part.extend((0..next(long)).map(|i| before.get(i).copied().unwrap_or(i as u8)));
                if let Some(at) = (!part.is_empty()).then(|| next(part.len())) {
                    part[at] = next(256) as u8;
                }
                let packed = packer.pack(&part);
                assert_eq!(unpacker.unpack(&packed, part.len()), Some(&part[..]));
                before = part;
            }
            assert!(packer.data.len() <= KEPT_MAX && unpacker.data.len() < KEPT_MAX + 9200);
        }
        // Far apart, near the end of what can be gone back to.
        let mut packer = Packer::default();
        let mut unpacker = Unpacker::default();
        for far in [BACK_MAX - 8, BACK_MAX - 7, BACK_MAX, BACK_MAX + 1] {
            let mut part = b"far apart".to_vec();
            part.extend((0..far).map(|_| next(256) as u8));
            part.extend_from_slice(b"far apart");
            let packed = packer.pack(&part);
            assert_eq!(unpacker.unpack(&packed, part.len()), Some(&part[..]));
        }
    }

    #[test]
    fn garbled_parts() {
        let unpack =
            |packed: &[u8], len| Unpacker::default().unpack(packed, len).map(<[u8]>::to_vec);
        assert_eq!(unpack(&[1, 7, 8, 0x81], 6), None, "nothing was gone back to");
        assert_eq!(unpack(&[1, 7, 8, 0xc0, 2, 0], 6), Some(vec![7, 8, 7, 8, 7, 8]));
        assert_eq!(unpack(&[1, 7, 8, 0xc0, 3, 0], 6), None, "before the first byte");
        assert_eq!(unpack(&[1, 7, 8, 0xc0, 0, 0], 6), None);
        assert_eq!(unpack(&[1, 7, 8, 0xc0, 2, 0], 5), None, "too long");
        assert_eq!(unpack(&[1, 7, 8, 0xc0, 2, 0], 7), None, "too short");
        assert_eq!(unpack(&[1, 7], 2), None);
        assert_eq!(unpack(&[0xff, 7], 2), None);
    }
}
