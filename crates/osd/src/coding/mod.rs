//! How an erasure-coded pool lays objects out: which bytes of an object lie where in which
//! shard, and what a write changes in each.
//!
//! An object is cut into stripes of `k` chunks; chunk `i` of each stripe is shard `i`'s, and
//! shards `k..k+m` hold what is computed of them. A shard's chunks lie back to back. All
//! shards of an object are equally long: whole chunks, as many as the object has stripes.
//! What lies beyond the object's end within the last stripe is zero, and codes as zero.

mod check;
mod plan;

use std::sync::Arc;

use bytes::Bytes;
use maps::{OsdMap, PgPool};

pub use check::shards_agree;
pub(crate) use plan::{Old, WritePlan};

/// So many bytes that a write to a shard replaces are kept beside it as they are; of more
/// their space.
pub(crate) const INLINE_MAX: u64 = 32 << 10;
/// Whole stripes are split so many bytes at a time.
const SPLIT_BYTES: usize = 128 << 10;

/// A pool's code and the size of its chunks.
pub(crate) struct Coding {
    /// Data shards.
    pub k: usize,
    /// Coding shards.
    pub m: usize,
    /// Bytes of a chunk.
    pub unit: u64,
    codec: ec::Codec,
}

impl std::fmt::Debug for Coding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}+{} of {}", self.k, self.m, self.unit)
    }
}

/// Pools with equal profiles code alike.
impl PartialEq for Coding {
    fn eq(&self, other: &Self) -> bool {
        self.unit == other.unit && self.codec.profile() == other.codec.profile()
    }
}

impl Eq for Coding {}

impl Coding {
    /// The code of a pool; `None` for a replicated one, and for one whose profile makes no
    /// sense, which cannot be served.
    pub fn of(map: &OsdMap, pool: &PgPool) -> Option<Arc<Self>> {
        let profile = map.erasure_code_profiles.get(&pool.erasure_code_profile)?;
        let made = ec::Profile::parse(profile).and_then(|p| ec::Codec::new(&p));
        let codec = match made {
            Ok(codec) => codec,
            Err(e) => {
                tracing::error!(profile = pool.erasure_code_profile, "{e}");
                return None;
            }
        };
        Self::new(codec, u64::from(pool.stripe_width)).map(Arc::new)
    }

    fn new(codec: ec::Codec, stripe: u64) -> Option<Self> {
        let (k, m) = (codec.k(), codec.m());
        let unit = stripe / k as u64;
        let odd = unit == 0
            || !stripe.is_multiple_of(k as u64)
            || !unit.is_multiple_of(codec.chunk_alignment() as u64);
        if odd {
            tracing::error!(stripe, k, "such stripes cannot be cut into chunks");
        }
        (!odd).then_some(Self { k, m, unit, codec })
    }

    /// Shards of a stripe.
    pub fn n(&self) -> usize {
        self.k + self.m
    }

    /// Bytes of a stripe.
    pub fn stripe(&self) -> u64 {
        self.unit * self.k as u64
    }

    /// Bytes of each shard of an object of `size` bytes.
    pub fn shard_size(&self, size: u64) -> u64 {
        size.div_ceil(self.stripe()) * self.unit
    }

    /// The stripes that a range of an object touches: the first, and the one behind the last.
    pub fn stripes(&self, off: u64, len: u64) -> (u64, u64) {
        (off / self.stripe(), (off + len).div_ceil(self.stripe()))
    }

    /// The data shards that a range of an object touches, and the range of them that covers
    /// it, offset and length.
    pub fn touched(&self, off: u64, len: u64) -> (Vec<usize>, u64, u64) {
        let (first, end) = (off / self.unit, (off + len).div_ceil(self.unit));
        let (k, chunks) = (self.k as u64, end - first);
        let mut shards: Vec<usize> =
            (first..first + chunks.min(k)).map(|c| (c % k) as usize).collect();
        shards.sort_unstable();
        let (from, to) = (first / k, end.div_ceil(k));
        (shards, from * self.unit, (to - from) * self.unit)
    }

    /// The bytes `off..off+len` of an object of which `shards` have these of their ranges from
    /// `at` on.
    ///
    /// # Panics
    /// When a shard that is touched is not there.
    pub fn join(&self, shards: &[Option<Bytes>], at: u64, off: u64, len: u64) -> Bytes {
        let unit = self.unit;
        let chunk_of = |chunk: u64| {
            let (shard, row) = ((chunk % self.k as u64) as usize, chunk / self.k as u64);
            let from = (row * unit - at) as usize;
            (shards[shard].as_ref().expect("it was read"), from)
        };
        if off / unit == (off + len - 1) / unit {
            let (data, from) = chunk_of(off / unit);
            let from = from + (off % unit) as usize;
            return data.slice(from..from + len as usize);
        }
        let mut out = Vec::with_capacity(len as usize);
        let mut pos = off;
        while pos < off + len {
            let (data, from) = chunk_of(pos / unit);
            let skip = pos % unit;
            let take = (unit - skip).min(off + len - pos) as usize;
            out.extend_from_slice(&data[from + skip as usize..][..take]);
            pos += take as u64;
        }
        out.into()
    }

    /// What each shard has of whole stripes, coding shards behind the data shards.
    pub fn split(&self, stripes: &[u8]) -> Vec<Bytes> {
        let (unit, len) = (self.unit as usize, stripes.len() / self.k);
        let mut out: Vec<Vec<u8>> = (0..self.n()).map(|_| Vec::with_capacity(len)).collect();
        // So few at a time that they are in the processor's cache from their copying to
        // their coding.
        let rows = (SPLIT_BYTES / (unit * self.k)).max(1);
        let mut scratch = vec![vec![0; rows * unit]; self.m];
        for part in stripes.chunks(rows * unit * self.k) {
            let (data, coded) = out.split_at_mut(self.k);
            let at = data[0].len();
            for (i, to) in data.iter_mut().enumerate() {
                let own = part.chunks_exact(unit).skip(i).step_by(self.k);
                own.for_each(|chunk| to.extend_from_slice(chunk));
            }
            let data: Vec<&[u8]> = data.iter().map(|d| &d[at..]).collect();
            let take = data[0].len();
            let mut to: Vec<&mut [u8]> = scratch.iter_mut().map(|s| &mut s[..take]).collect();
            self.codec.encode(&data, &mut to);
            coded.iter_mut().zip(to).for_each(|(coded, new)| coded.extend_from_slice(new));
        }
        out.into_iter().map(Bytes::from).collect()
    }

    /// Which shards are to be read for the wanted ones.
    pub fn minimum(&self, want: &[usize], available: &[usize]) -> Option<Vec<usize>> {
        self.codec.minimum(want, available).ok()
    }

    /// Computes the wanted shards that are not there from `k` that are.
    pub fn rebuild(&self, shards: &mut [Option<Bytes>], want: &[usize]) -> bool {
        if want.iter().all(|w| shards[*w].is_some()) {
            return true;
        }
        let mut all: Vec<Option<Vec<u8>>> =
            shards.iter().map(|s| s.as_ref().map(|b| b.to_vec())).collect();
        if let Err(e) = self.codec.decode(&mut all, want) {
            tracing::error!("decoding: {e}");
            return false;
        }
        for w in want {
            if shards[*w].is_none() {
                shards[*w] = all[*w].take().map(Bytes::from);
            }
        }
        true
    }

    /// The one shard that is wrong, when the others agree without it and with none other left
    /// out; all are there, and do not agree.
    pub fn odd_one(&self, shards: &[Option<Bytes>]) -> Option<usize> {
        let agree_without = |j: &usize| {
            let mut all = shards.to_vec();
            all[*j] = None;
            self.rebuild(&mut all, &[*j]) && self.agrees(&all).is_empty()
        };
        let mut found = (0..self.n()).filter(agree_without);
        match (found.next(), found.next()) {
            (Some(one), None) => Some(one),
            _ => None,
        }
    }

    /// The coding shards that are not what the data shards make; all are there.
    pub fn agrees(&self, shards: &[Option<Bytes>]) -> Vec<usize> {
        let there = |s| Option::<&Bytes>::expect(s, "all shards").as_ref();
        let data: Vec<&[u8]> = shards[..self.k].iter().map(|s| there(s.as_ref())).collect();
        let mut coded = vec![vec![0; data[0].len()]; self.m];
        let mut out: Vec<&mut [u8]> = coded.iter_mut().map(Vec::as_mut_slice).collect();
        self.codec.encode(&data, &mut out);
        let differs = |i: &usize| shards[*i].as_deref().is_some_and(|s| s != coded[*i - self.k]);
        (self.k..self.n()).filter(differs).collect()
    }
}
