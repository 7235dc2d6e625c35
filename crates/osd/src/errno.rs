//! The error numbers that clients see.

pub use types::{Errno, OpResult};
