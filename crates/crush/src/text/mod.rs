//! The map as text, for editors: [`decompile`] writes it, [`compile`] reads it back.
//!
//! The text is the peer's, byte for byte. It does not hold everything: weights have five
//! decimals, and shadow buckets only their ids.
//!
//! Source: the peer's `CrushCompiler` and `crush/grammar.h`.

mod compile;
mod decompile;
mod parse;

pub use compile::{CompileError, Compiled, compile};
pub use decompile::decompile;
