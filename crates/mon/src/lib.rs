//! The monitor: keeps the cluster's maps, keys, settings and log in one replicated state,
//! and serves them to clients and daemons. The manager's functions are here too.
//!
//! # Parts
//! - [`ClusterState`]: all that is replicated. Only [`ClusterState::apply`] changes it, from
//!   a [`Mutation`], and the same mutations give the same state everywhere.
//! - [`Volatile`]: what the leader knows and may lose: PG statistics, sessions, health.
//! - [`Monitor`]: the role, without I/O. Events go in, an [`Outbox`] comes out.
//! - [`quorum`]: the log: opaque proposals in, committed entries out, in one order.
//! - [`commands`]: what `ceph ...` runs, one function per command, from a [`CommandCtx`]
//!   to an [`Outcome`].
//!
//! # Invariants
//! - `Monitor::state` is the head: it holds every mutation made so far, committed or not.
//!   Nothing computed from it leaves before what it depends on is committed: each output
//!   carries the number of the batch it must wait for. So a read never shows what a crash
//!   could take back, and a mutation is validated against all before it.
//! - At most one batch is being committed; what comes meanwhile gathers in the next. All
//!   OSD map changes of a batch become one epoch.
//!
//! # Driving it
//! ```text
//! let s = quorum::start(path).await?;              // on a tokio runtime, one thread
//! let mut mon = Monitor::new(config, &s.state, now, rng, auth_rng)?;
//! while let Ok(e) = s.events.try_recv() { mon.on_quorum(now, e)?; }   // the old log
//! // it leads once the log tells that it began: quorum::Event::Began
//! // new connections: mon.auth().connection() is the ServerAuth of each
//! loop {
//!     // connection opened / message / closed: mon.on_opened, on_message, on_closed
//!     // s.events.recv():                       mon.on_quorum
//!     // ten times a second:                    mon.on_tick
//!     // admin socket:                          mon.on_admin_command
//!     for output in mon.poll() {                // after each of them
//!         // Send, Close: to the messenger; Propose: s.quorum.propose(token, data);
//!         // Snapshot: s.quorum.offer_snapshot(index, state); Local: the admin socket
//!     }
//! }
//! ```
//! Proposals must reach the log in the order they come out. The manager's role is the same
//! value: connections that came to its addresses are opened with `at_mgr` set, under ids
//! that no other connection has, and those addresses are named in [`MonConfig`].
//!
//! Source: the peer's `mon/`; layouts in `docs/protocols/`.

pub mod autoscale;
pub mod balance;
pub mod balancer;
mod classes;
mod clean;
mod commands;
mod config;
mod crushops;
mod ctx;
mod doors;
pub mod eval;
pub mod fs;
mod health;
mod health_auth;
mod health_codes;
mod health_reports;
pub mod known_map;
mod limits;
mod lines;
pub mod links;
pub mod managers;
mod mkfs;
mod monitor;
mod mutation;
mod osdinc;
pub mod peer;
mod pgmap;
pub mod poolops;
pub mod primaries;
mod progress;
pub mod quorum;
mod security;
pub mod services;
mod session;
mod state;
mod temp;
pub mod vitals;
mod volatile;

pub use classes::{ClassModule, Classes};
pub use config::{ConfigDb, ConfigMask, ConfigPlace, ConfigSection, normalize, parse_who};
pub use ctx::{BalancerStep, CommandCtx, Outcome, Reply, Wait};
pub use mkfs::{Mkfs, REQUIRE_OSD_RELEASE};
pub use monitor::{Elections, MembershipStep, MonConfig, MonError, Monitor, Output, PeerInfo};
pub use mutation::{AuthChange, Mutation};
pub use pgmap::{PgMap, Rates, Usage, raw_used_rate, used_ratio};
pub use progress::Progress;
pub use security::refusal as security_refusal;
pub use session::{SessionInfo, Subscription, judge_at_mgr, no_handler, rights};
pub use state::{Answered, ClusterLog, ClusterState, HealthMute, OsdHistory};
pub use volatile::{HealthCheck, HealthReport, HealthStatus, QuorumInfo, SessionGroup, Volatile};
