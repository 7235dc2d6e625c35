//! The OSD's object store: one log and one space of extents on one file or device.
//!
//! A [`Transaction`] over any number of objects is applied in memory at once, so that reads
//! see it, and is durable when the group it was committed with has been flushed. Small
//! data and all metadata ride in the log; data from 64 KiB on is written once, to free
//! extents, before the record that names it counts. A checkpoint in the background moves
//! what the log holds to its place and frees the log.
//!
//! Invariants:
//! - what is durable is a prefix of what was submitted, whole transactions in order, and
//!   contains every acknowledged one;
//! - nothing that a durable checkpoint refers to is ever overwritten: every block, table
//!   and manifest goes to free space, and its old space is free once the new one is durable;
//! - every byte on the device has a crc32c which is verified when it is read.
//!
//! A removed collection is gone at once; what it held is let go in steps behind, see `sweep`.
//!
//! One thread owns a [`Store`]; its calls block only for reads that miss memory, and for
//! submits while the log is full. [`Store::fetch`] reads without blocking. Formats: `docs/formats/store.md`.

mod ahead;
mod alloc;
mod apply;
mod attrs;
mod behind;
mod bitmap;
mod buf;
mod cache;
mod checkpoint;
mod commit;
mod discard;
mod error;
mod export;
mod fetch;
mod file;
mod fsck;
mod header;
mod install;
mod key;
mod keys;
mod known;
mod label;
mod log;
mod logring;
mod lower;
mod merge;
mod onode;
mod open;
mod overlay;
mod pack;
mod part;
mod placement;
mod reads;
mod record;
mod simdisk;
mod space;
mod stage;
mod state;
mod store;
mod submit;
mod superblock;
mod sweep;
mod table;
mod transaction;
mod uring;
mod usedmap;
mod varint;

pub use buf::AlignedBuf;
pub use error::StoreError;
pub use export::Exported;
pub use fetch::{Fetch, FetchId, Summed};
pub use file::FileDisk;
pub use fsck::FsckReport;
pub use known::KnownSums;
pub use label::{Label, Peeked, peek, write_label};
pub use pack::{Algorithm, Compressible, Compression};
pub use placement::LogPlacement;
pub use simdisk::{DiskEvent, DiskFault, SimDisk, SimPart};
pub use store::{
    Listing, Memory, MkfsOptions, OpenOptions, PoolStats, Seq, Stat, StatFs, Store, Waker,
};
pub use transaction::{Coll, Transaction};
