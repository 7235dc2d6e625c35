//! The object gateway: S3 and Swift over HTTP, on RADOS.
//!
//! ```text
//!   connection ── hyper ── Head ── who (signature, user) ── what (operation) ── may they (authorize) ── operation ── answer
//!                                                                                      │
//!                                                                              rgw_core::Gateway over RADOS
//! ```
//!
//! Invariants: no operation runs that [`rgw_proto::authorize`] did not allow for that sender, bucket and object; a body
//! is read as it comes, with a bound, and only once its request is allowed; an error says what to change.

mod acl;
mod admin;
mod amqp;
mod answer;
mod append;
mod body;
mod buckets;
mod config;
mod copies;
mod crypt;
mod deliver;
mod iam;
mod issuers;
mod kafka;
mod lines;
mod memory;
mod notifications;
mod objects;
mod on_rados;
mod post;
mod push;
mod record;
mod request;
mod server;
mod site;
mod source;
mod stall;
mod sums;
mod swift;
mod uploads;
mod watching;
mod worker;

pub use crypt::Masters;
pub use deliver::Patience;
pub use notifications::TopicSettings;
pub use on_rados::OnRados;
pub use record::Records;
pub use rgw_proto::session::Sealer;
pub use rgw_proto::swift::request::Paths as SwiftPaths;
pub use server::{Door, Settings, serve};
pub use swift::Settings as SwiftSettings;
pub use worker::Work;
