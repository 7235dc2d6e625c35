//! An async, typed client library for RADOS: pools, objects, operations put together, class
//! methods, attributes, omap, snapshots, watch and notify, commands.
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use rados::{Cluster, Config, WriteOp};
//!
//! let config = Config::from_conf("/etc/ceph/ceph.conf".as_ref(), &"client.admin".parse()?)?;
//! rt::run_local(async {
//!     let io = Cluster::connect(config).await?.pool("rbd").await?;
//!     let mut op = WriteOp::new();
//!     op.create(true).write(0, "hello".into()).set_xattr("lang", b"en");
//!     io.write_op(b"greeting", op).await?;
//!     assert_eq!(io.read(b"greeting", 0, 100).await?, "hello");
//!     Ok::<_, rados::Error>(())
//! })??;
//! # Ok(()) }
//! ```
//!
//! | module | what it is about |
//! | --- | --- |
//! | `cluster`, `config` | a session: whom, where, commands, maps, blocklist |
//! | `ioctx`, `ops` | one object: single calls, and many steps in one operation |
//! | `list` | all objects |
//! | `snaps` | snapshots of pools and of clients' own making |
//! | `watch` | watch and notify |
//! | `joined` | the same session within a daemon: its messenger, its keys, its maps |
//! | `inner`, `link` | where events of connections go |
//!
//! Invariants: a future that is dropped leaves its operation to the cluster: it may still
//! happen. Every error is an [`Error`]; no call blocks the thread.

mod cluster;
mod config;
mod error;
mod inner;
mod ioctx;
mod joined;
mod link;
mod list;
mod ops;
mod snaps;
mod watch;

pub use cluster::{Cluster, Config};
pub use config::{
    ConfigError, MON_PORTS, configured_key, key_in, methods, modes, mon_addrs, mon_members,
};
pub use error::{Error, Result};
pub use ioctx::{IoCtx, Pending};
pub use joined::News;
pub use link::{LinkConfig, MonLink};
pub use list::Listed;
pub use ops::{
    Checksum, Cmp, ObjectClone, ObjectSnaps, ObjectStat, ReadOp, Reply, Slot, Sparse, Watcher,
    WriteOp,
};
pub use snaps::{PoolSnap, SnapContext};
pub use watch::{Notification, NotifyReply, Watch, WatchEvent};
