//! An async client library for CephFS: names, attributes, snapshots, and files read and written
//! straight at the OSDs. Nothing is cached, so that two clients see one another's changes at once.
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use fs::{Fs, Options};
//!
//! let config = rados::Config::from_conf("/etc/ceph/ceph.conf".as_ref(), &"client.admin".parse()?)?;
//! rt::run_local(async {
//!     let fs = Fs::mount(config, Options::default()).await?;
//!     fs.mkdir_all("a/b", 0o755).await?;
//!     fs.write_file("a/b/greeting", b"hello", 0o644).await?;
//!     assert_eq!(fs.read_file("a/b/greeting", 100).await?, "hello");
//!     fs.unmount().await
//! })??;
//! # Ok(()) }
//! ```
//!
//! Paths are bytes from the mount's root, with `.snap` for a directory's snapshots: `mkdir`, `rmdir`,
//! `rename` below it make, remove and rename them. Symbolic links on the way are followed.
//!
//! A change is seen by everybody when its call returns; it outlasts a crash of the metadata server when
//! [`Fs::sync`] or [`File::fsync`] returns. Quotas are shown and set, and not enforced by this client.
//!
//! Invariants: a call whose future is dropped may still happen. All lives on one thread, within
//! [`rt::run_local`].
//!
//! | module | what it is about |
//! | --- | --- |
//! | `mount` | a mount: maps, connections, requests and their answers |
//! | `names` | names, attributes, snapshots |
//! | `file` | files that are open |
//! | `xattr` | extended attributes, and those that stand for something else |
//! | `tree` | whole trees: copied, removed |

mod error;
mod file;
mod mount;
mod names;
mod tree;
mod xattr;

pub use error::{Error, Result};
pub use file::File;
pub use fsc::open_flag;
pub use messages::StatfsReply as Usage;
pub use messages::fs::{DirEntry, InodeStat as Stat};
pub use mount::{Fs, Options};
pub use names::{Dir, SetAttr, is_dir, is_file, is_symlink};
pub use tree::Copied;
