//! S3 and Swift without I/O: what a request says, who may do it, and what an answer looks like.
//!
//! ```text
//!   Head ──> Target, Operation        what is asked (request, operation)
//!    └────> Claim ──secret──> Proof   who asks, and what of it is that user's word (sig)
//!   Operation + Proof + policies, ACLs ──> authorize ──> yes, or AccessDenied
//!   body ──> chunked, checksum ──> bytes and sums; XML of configurations (body)
//! ```
//!
//! Invariants: no input makes it panic; each input has a bound in bytes, depth and number of elements; an operation
//! that is not built is [`error::Code::NotImplemented`] and never another operation; sums and signatures are compared
//! in constant time.
//!
//! Source: AWS's S3 API reference; what stock radosgw 20.2.4 answers, where the two differ.

pub mod acl;
pub mod admin;
pub mod amqp;
pub mod authorize;
pub mod body;
pub mod checksum;
pub mod condition;
pub mod error;
mod fields;
pub mod form;
pub mod iam;
pub mod kafka;
pub mod name;
pub mod operation;
pub mod policy;
pub mod record;
pub mod request;
pub mod session;
pub mod sig;
pub mod sns;
pub mod swift;
pub mod time;
pub mod uri;
pub mod web_identity;
pub mod xml;

pub use error::{Code, Error, Result};
