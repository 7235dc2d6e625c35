//! The codec: encode, update, rebuild.

use crate::matrix::{self, Rows, add_scaled};
use crate::plan::{Plan, Shape};
use crate::profile::{Plugin, Profile, ProfileError, Technique};

/// Why lost shards cannot be rebuilt.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// Fewer shards than data chunks. EIO to a client.
    #[error("{have} shards are there, {need} are needed")]
    TooFew {
        /// Shards there are.
        have: usize,
        /// Shards that would do.
        need: usize,
    },
    /// A shard number beyond `k + m`, or another number of slots than that.
    #[error("shard {shard} of {count}")]
    NoSuchShard {
        /// The number asked for.
        shard: usize,
        /// Shards the code has.
        count: usize,
    },
    /// Shards of different lengths, or not a multiple of [`Codec::chunk_alignment`].
    #[error("shards are {len} and {other} bytes, multiples of {alignment} expected")]
    Lengths {
        /// Length of one.
        len: usize,
        /// Length of another, or the same.
        other: usize,
        /// What it should be a multiple of.
        alignment: usize,
    },
}

/// An erasure code of one profile. Cheap to share, without state that changes.
#[derive(Clone)]
pub struct Codec {
    profile: Profile,
    shape: Shape,
    /// Coding rows: `m * block` by `k * block`.
    coding: Rows,
    encode: Plan,
    /// Per coding and data chunk, what one contributes to the other.
    cells: Vec<Vec<Plan>>,
}

impl std::fmt::Debug for Codec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Codec").field("profile", &self.profile).finish_non_exhaustive()
    }
}

impl Codec {
    /// The codec of a profile.
    ///
    /// # Errors
    /// Where the profile's numbers give no code; [`Profile::parse`] refuses those already.
    pub fn new(profile: &Profile) -> Result<Codec, ProfileError> {
        profile.check()?;
        let (k, m) = (profile.k, profile.m);
        let (shape, coding) = match (profile.plugin, profile.technique) {
            (Plugin::Isa, technique) => {
                let rows = match technique {
                    // isa's single parity is the plain sum, whatever the technique.
                    _ if m == 1 => vec![vec![1; k]],
                    Technique::Cauchy => matrix::isa_cauchy(k, m),
                    _ => matrix::isa_vandermonde(k, m),
                };
                (Shape::Bytes, rows)
            }
            (Plugin::Jerasure, technique) => {
                let field = profile.field()?;
                let w = profile.w as usize;
                let words = if w == 8 { Shape::Bytes } else { Shape::Words(field) };
                let packets = Shape::Packets { w, packet: profile.packetsize };
                match technique {
                    Technique::ReedSolR6Op => (words, matrix::raid6(field, k)),
                    Technique::CauchyOrig => {
                        (packets, matrix::to_bits(field, &matrix::cauchy(field, k, m)))
                    }
                    Technique::CauchyGood => {
                        (packets, matrix::to_bits(field, &matrix::cauchy_good(field, k, m)))
                    }
                    Technique::Liberation => (packets, matrix::liberation(k, w)),
                    Technique::BlaumRoth => (packets, matrix::blaum_roth(k, w)),
                    Technique::Liber8tion => (packets, matrix::liber8tion(k)),
                    Technique::ReedSolVan | Technique::Cauchy => {
                        (words, matrix::vandermonde(field, k, m))
                    }
                }
            }
        };
        let block = shape.block();
        assert_eq!(coding.len(), m * block, "rows of all coding chunks");
        let cell = |p: usize, d: usize| {
            let rows = &coding[p * block..(p + 1) * block];
            Plan::new(shape, &rows.iter().map(|r| r[d * block..(d + 1) * block].to_vec()).collect())
        };
        let cells = (0..m).map(|p| (0..k).map(|d| cell(p, d)).collect()).collect();
        let encode = Plan::new(shape, &coding);
        Ok(Codec { profile: profile.clone(), shape, coding, encode, cells })
    }

    /// Data chunks.
    #[must_use]
    pub fn k(&self) -> usize {
        self.profile.k
    }

    /// Coding chunks: as many shards may be lost.
    #[must_use]
    pub fn m(&self) -> usize {
        self.profile.m
    }

    /// The profile it was made of.
    #[must_use]
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// Chunks, and ranges of chunks given to any method, start at and are long a multiple
    /// of this many bytes: the result of a range depends on nothing outside of it. 1 for
    /// byte-wise codes, `w * packetsize` for those of packets.
    #[must_use]
    pub fn chunk_alignment(&self) -> usize {
        self.shape.alignment()
    }

    /// Computes all coding chunks: `k` runs of one length in, `m` out.
    ///
    /// Cost: one pass over the data for each four coding chunks; no allocation per byte.
    ///
    /// # Panics
    /// On other numbers of runs, differing lengths, or lengths that are not a multiple of
    /// [`chunk_alignment`](Self::chunk_alignment).
    pub fn encode(&self, data: &[&[u8]], parity: &mut [&mut [u8]]) {
        assert_eq!(data.len(), self.k(), "k data chunks");
        assert_eq!(parity.len(), self.m(), "m coding chunks");
        self.assert_lengths(data, parity);
        self.encode.run(data, parity, false);
    }

    /// Adds to coding chunk `parity` (0..m) what a change of data chunk `shard` (0..k)
    /// does to it; `diff` is the old bytes XOR the new ones, `out` the coding chunk's bytes
    /// of the same range.
    ///
    /// # Panics
    /// On numbers out of range, differing lengths, or lengths that are not a multiple of
    /// [`chunk_alignment`](Self::chunk_alignment).
    pub fn delta(&self, shard: usize, diff: &[u8], parity: usize, out: &mut [u8]) {
        self.assert_lengths(&[diff], &[&mut *out]);
        self.cells[parity][shard].run(&[diff], &mut [out], true);
    }

    fn assert_lengths(&self, from: &[&[u8]], to: &[&mut [u8]]) {
        let len = from[0].len();
        assert!(from.iter().all(|run| run.len() == len), "inputs of one length");
        assert!(to.iter().all(|run| run.len() == len), "results of the same length");
        assert_eq!(len % self.chunk_alignment(), 0, "whole words or packets");
    }

    /// Which shards to read for the wanted ones: those themselves if all are available,
    /// else the first `k` available, in order of their numbers.
    ///
    /// # Errors
    /// When neither can be had.
    pub fn minimum(&self, want: &[usize], available: &[usize]) -> Result<Vec<usize>, DecodeError> {
        let count = self.k() + self.m();
        if let Some(&shard) = want.iter().chain(available).find(|&&shard| shard >= count) {
            return Err(DecodeError::NoSuchShard { shard, count });
        }
        let sorted = |shards: &[usize]| {
            let mut shards = shards.to_vec();
            shards.sort_unstable();
            shards.dedup();
            shards
        };
        let (want, mut available) = (sorted(want), sorted(available));
        if want.iter().all(|shard| available.contains(shard)) {
            return Ok(want);
        }
        if available.len() < self.k() {
            return Err(DecodeError::TooFew { have: available.len(), need: self.k() });
        }
        available.truncate(self.k());
        Ok(available)
    }

    /// Rebuilds the wanted shards in place from any `k` present; `shards` has a slot for
    /// each of the `k + m`. Wanted shards that are present stay as they are, others that
    /// are absent stay absent.
    ///
    /// Cost: one pass over `k` shards for each four rebuilt, and a matrix of as many
    /// columns as data chunks are lost.
    ///
    /// # Errors
    /// Too few shards, shards of different or odd lengths, numbers out of range; nothing
    /// is changed then.
    pub fn decode(
        &self,
        shards: &mut [Option<Vec<u8>>],
        want: &[usize],
    ) -> Result<(), DecodeError> {
        let (k, count) = (self.k(), self.k() + self.m());
        if shards.len() != count {
            return Err(DecodeError::NoSuchShard { shard: shards.len(), count });
        }
        if let Some(&shard) = want.iter().find(|&&shard| shard >= count) {
            return Err(DecodeError::NoSuchShard { shard, count });
        }
        let mut lost: Vec<usize> =
            want.iter().copied().filter(|&shard| shards[shard].is_none()).collect();
        lost.sort_unstable();
        lost.dedup();
        if lost.is_empty() {
            return Ok(());
        }
        let present: Vec<usize> = (0..count).filter(|&i| shards[i].is_some()).collect();
        if present.len() < k {
            return Err(DecodeError::TooFew { have: present.len(), need: k });
        }
        let sources = &present[..k];
        let runs: Vec<&[u8]> =
            sources.iter().map(|&i| shards[i].as_deref().expect("present")).collect();
        let (len, alignment) = (runs[0].len(), self.chunk_alignment());
        let odd = |run: &&[u8]| run.len() != len || !run.len().is_multiple_of(alignment);
        if let Some(run) = runs.iter().find(|run| odd(run)) {
            return Err(DecodeError::Lengths { len, other: run.len(), alignment });
        }
        let plan = Plan::new(self.shape, &self.rebuilding_rows(sources, &lost));
        let mut rebuilt = vec![vec![0; len]; lost.len()];
        let mut to: Vec<&mut [u8]> = rebuilt.iter_mut().map(Vec::as_mut_slice).collect();
        plan.run(&runs, &mut to, false);
        for (shard, bytes) in lost.into_iter().zip(rebuilt) {
            shards[shard] = Some(bytes);
        }
        Ok(())
    }

    /// The lost shards as combinations of `k` sources (sorted).
    ///
    /// With D the lost data, H the data among the sources and P the coding chunks among
    /// them, P = A D + B H; so D = A⁻¹ (P - B H), where A has as many columns as data
    /// chunks are lost.
    fn rebuilding_rows(&self, sources: &[usize], lost: &[usize]) -> Rows {
        let (k, block, field) = (self.k(), self.shape.block(), self.shape.field());
        let width = k * block;
        let position = |shard: usize| sources.iter().position(|&s| s == shard);
        let absent: Vec<usize> = (0..k).filter(|&d| position(d).is_none()).collect();
        let coding: Vec<usize> = sources.iter().copied().filter(|&s| s >= k).collect();
        assert_eq!(absent.len(), coding.len(), "k sources: a coding chunk per absent data chunk");
        let cells = |p: usize, l: usize, d: usize| -> &[u32] {
            &self.coding[(p - k) * block + l][d * block..(d + 1) * block]
        };
        let mut a = Rows::new();
        // P - B H, each row over the sources.
        let mut right = Rows::new();
        for &p in &coding {
            for l in 0..block {
                a.push(absent.iter().flat_map(|&d| cells(p, l, d)).copied().collect());
                let mut row = vec![0; width];
                row[position(p).expect("a source") * block + l] = 1;
                for (at, &d) in sources.iter().enumerate().filter(|&(_, &d)| d < k) {
                    row[at * block..(at + 1) * block].copy_from_slice(cells(p, l, d));
                }
                right.push(row);
            }
        }
        let inverse = matrix::invert(field, a).expect("any k shards determine the data");
        let solved: Rows = inverse
            .iter()
            .map(|row| {
                let mut sum = vec![0; width];
                for (&factor, right) in row.iter().zip(&right) {
                    add_scaled(field, &mut sum, right, factor);
                }
                sum
            })
            .collect();
        // A data chunk's row `l` over the sources.
        let data_row = |d: usize, l: usize| -> Vec<u32> {
            match absent.iter().position(|&x| x == d) {
                Some(at) => solved[at * block + l].clone(),
                None => {
                    let mut row = vec![0; width];
                    row[position(d).expect("a source") * block + l] = 1;
                    row
                }
            }
        };
        let mut rows = Rows::new();
        for &shard in lost {
            for l in 0..block {
                if shard < k {
                    rows.push(data_row(shard, l));
                    continue;
                }
                let mut sum = vec![0; width];
                for (at, &factor) in self.coding[(shard - k) * block + l].iter().enumerate() {
                    if factor != 0 {
                        add_scaled(field, &mut sum, &data_row(at / block, at % block), factor);
                    }
                }
                rows.push(sum);
            }
        }
        rows
    }
}
