//! Erasure codes: `k` data chunks in, `m` coding chunks out, any `m` of them lost and
//! rebuilt. Chunks are byte for byte those of the peer's plugins `jerasure` and `isa`.
//!
//! No I/O and no object layout: how an object is cut into stripes and chunks is the OSD's
//! matter. A [`Codec`] sees one run of bytes per shard.
//!
//! - [`Profile`]: what the operator asks for, checked and filled in as the peer does.
//! - [`Codec`]: encode, update parity by a difference, rebuild.
//!
//! Invariant: a codec that was made can rebuild any `m` lost shards; profiles whose code
//! could not are refused.
//!
//! Sources: matrices of jerasure 2 (`reed_sol.c`, `cauchy.c`, `liberation.c`) and isa-l
//! (`ec_base.c`); proof in `tests/peer.rs`, against the peer's own tool.

mod codec;
mod gf;
mod matrix;
mod plan;
mod profile;
mod region;

pub use codec::{Codec, DecodeError};
pub use profile::{Plugin, Profile, ProfileError, Technique};
