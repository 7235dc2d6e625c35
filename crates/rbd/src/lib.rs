//! Block device images in RADOS: the format and the manners of the peer's `librbd` 16 to 20,
//! so that either reads and writes what the other made, at the same time.
//!
//! ```no_run
//! # async fn f(io: rados::IoCtx) -> Result<(), rbd::Error> {
//! use rbd::{Create, Image, Mode, pool};
//!
//! pool::create(&io, "disk", &Create { size: 10 << 30, ..Create::default() }).await?;
//! let image = Image::open(&io, "disk", Mode::Write).await?;
//! image.write(4096, "hello".into()).await?;
//! image.create_snap("first").await?;
//! image.close().await?;
//! # Ok(()) }
//! ```
//!
//! | module | what it is about |
//! | --- | --- |
//! | `layout` | which bytes are in which objects |
//! | `pool`, `trash` | images: made, listed, renamed, removed |
//! | `image` | an open image and its header |
//! | `io` | reading and writing; copy-up of clones |
//! | `lock`, `notify` | the exclusive lock, and what clients tell one another |
//! | `snap`, `clone`, `resize` | snapshots, clones, sizes |
//! | `migration`, `deep_copy` | images that move to another pool, name or layout |
//! | `mirror` | mirror snapshots of primary images |
//! | `diff` | what changed between snapshots |
//! | `stream`, `export` | images and differences as streams: the format; out and in |
//!
//! Invariants: nothing is written to an image with the feature exclusive-lock without holding
//! the lock; an object that is there is never marked absent in an object map that counts as
//! valid; a write that has returned is durable.
//!
//! Source: the peer's `librbd`; `docs/protocols/rbd.md`.

mod calls;
mod clone;
mod deep_copy;
mod diff;
mod error;
pub mod export;
mod image;
mod io;
mod layout;
mod lock;
pub mod migration;
pub mod mirror;
mod names;
pub mod notify;
pub mod pool;
mod resize;
mod snap;
pub mod stream;
pub mod trash;

pub use clone::{Kind, clone};
pub use cls::client::{SnapKind, feature, op_feature};
pub use diff::{Changed, object_changes};
pub use error::{Error, Result};
pub use image::{Header, Image, Mode, ParentInfo, Snapshot, image_id};
pub use io::is_zero;
pub use layout::{Layout, ORDERS, Piece};
pub use lock::Owner;
pub use names::{
    DEFAULT_FEATURES, FLAG_FAST_DIFF_INVALID, FLAG_OBJECT_MAP_INVALID, feature_bit, feature_names,
};
pub use pool::Create;
pub use trash::Trashed;
