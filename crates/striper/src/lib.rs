//! How the bytes of a file or an image lie in objects.
//!
//! Stripe units go round over `stripe_count` objects, an object set; a set that is full is
//! followed by the next. With one object to a set this is cutting the file into objects.
//!
//! Invariants: a [`Striping`] has been checked, so nothing here divides by zero; no function
//! fails or loops without end for any offset or length, up to `u64::MAX`; what is walked is
//! an iterator, so that a length that a peer sent allocates nothing.
//!
//! Source: the peer's `file_layout_t`, `ceph_file_layout` and `Striper`.

mod layout;
mod striping;

pub use layout::FileLayout;
pub use striping::{LayoutError, ObjectExtent, Piece, Striping};
