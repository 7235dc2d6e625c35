//! The object gateway's state in RADOS: users, buckets, objects, in upstream's own formats.
//!
//! So far the formats alone ([`formats`]) and the names of objects ([`names`]). What is written is byte for byte what
//! release 20.2 writes; what releases 16 to 20 wrote is read.

pub mod formats;
pub mod names;
