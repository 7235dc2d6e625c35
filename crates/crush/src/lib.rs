//! CRUSH: which devices hold what, computed from a map and a number instead of looked up.
//!
//! - [`CrushMap`] is the map: buckets, rules, types, names, device classes, weight sets,
//!   tunables; with its binary form ([`denc::Denc`]), its text form ([`text`]) and the
//!   edits that operators make.
//! - [`CrushMap::do_rule`] is the mapping: integer arithmetic only, the same answer
//!   everywhere, bit for bit the peer's.
//! - [`crushtool`] is the peer's tool of that name as a function.
//!
//! Invariants of every map, decoded, compiled or edited:
//! - the bucket in slot `i` has id `-1 - i`; its lists are as long as its items;
//! - no bucket is beneath itself, at most [`DEPTH_MAX`] buckets stand in one another, and
//!   the tree, unfolded, has at most [`NODES_MAX`] nodes: every walk ends;
//! - device ids are below [`DEVICES_MAX`];
//! - mapping never panics, whatever the rule says: what the peer would crash on counts as
//!   a bad item.
//!
//! Source: the peer's `crush/` (`mapper.c`, `builder.c`, `CrushWrapper`, `CrushCompiler`,
//! `CrushTester`) and `tools/crushtool.cc`.

mod builder;
mod class;
pub mod crushtool;
pub mod dump;
mod edit;
mod error;
mod features;
mod hash;
mod ln;
mod ln_table;
mod mapper;
mod model;
mod msr;
mod names;
mod query;
mod rules;
mod simple;
pub mod text;
mod tunables;
mod verify;
mod walk;
mod weight;
mod wire;

pub use error::{CrushError, ErrorKind};
pub use hash::{HASH_RJENKINS1, hash32, hash32_2, hash32_3, hash32_4};
pub use ln::ln;
pub use mapper::Scratch;
pub use model::{
    Bucket, BucketAlg, ChooseArg, ChooseArgs, CrushMap, DEFAULT_CHOOSE_ARGS, DEPTH_MAX,
    DEVICES_MAX, ITEM_NONE, ITEM_UNDEF, NODES_MAX, Op, RULE_TYPE_ERASURE, RULE_TYPE_MSR_FIRSTN,
    RULE_TYPE_MSR_INDEP, RULE_TYPE_REPLICATED, Rule, Step,
};
pub use names::NameMap;
pub use query::{Location, is_valid_name, parse_location};
pub use rules::Spread;
pub use simple::DEFAULT_TYPES;
pub use tunables::{Profile, Tunables};
pub use walk::TreeNode;
pub use weight::fixed_weight;

/// What fuzzers call: bytes from anywhere, never a panic.
pub mod fuzz {
    use crate::CrushMap;
    use denc::Denc;

    /// Decodes a map and, when it is one, encodes it and does both again.
    ///
    /// # Panics
    /// When what was written is not read back the same: a bug here.
    pub fn decode(bytes: &[u8]) {
        if let Ok(map) = CrushMap::from_bytes(bytes) {
            let written = map.to_bytes();
            let again = CrushMap::from_bytes(&written).expect("what was written is read");
            assert!(again.to_bytes() == written, "a round trip changes nothing");
        }
    }

    /// Compiles a map's text and, when it is one, encodes, decodes and decompiles it.
    ///
    /// # Panics
    /// When what was written is not read back: a bug here.
    pub fn compile(bytes: &[u8]) {
        let Ok(input) = std::str::from_utf8(bytes) else { return };
        if let Ok(compiled) = crate::text::compile("fuzz", input) {
            let bytes = compiled.map.to_bytes();
            let map = CrushMap::from_bytes(&bytes).expect("what was written is read");
            let _ = crate::text::decompile(&map);
        }
    }
}
