//! The quorum: opaque proposals in, committed entries out, in one order on every monitor.
//!
//! Invariants:
//! - what [`Event::Committed`] tells is on disk on a majority, and is told once per start,
//!   in index order, beginning behind the state that [`start`] returns;
//! - a proposal that was not told committed may still be, later, until another monitor
//!   leads;
//! - a snapshot offered stands for every entry up to its index, which may then be dropped.
//!
//! Source: the raft library chosen in `docs/adr/`; nothing of it shows outside.

mod raft;
mod store;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use openraft::{BasicNode, Raft, SnapshotPolicy};
use tokio::sync::mpsc;

pub use store::{StoreError, create};

/// What the log tells its monitor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// An entry is committed.
    Committed {
        /// Its place.
        index: u64,
        /// Who proposed it.
        origin: u64,
        /// Which proposal it was.
        token: u64,
        /// The proposal.
        data: Bytes,
    },
    /// The state is to be replaced by one that covers every entry up to `index`.
    Restored {
        /// The last entry covered.
        index: u64,
        /// The state.
        state: Bytes,
    },
}

/// Why the log cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum QuorumError {
    /// The file.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The library gave up.
    #[error("quorum: {0}")]
    Raft(String),
}

/// A monitor's part in the quorum.
#[derive(Clone)]
pub struct Quorum {
    node: u64,
    raft: Raft<raft::Config>,
    machine: raft::Machine,
}

/// What [`start`] gives.
pub struct Started {
    /// The handle.
    pub quorum: Quorum,
    /// This monitor's number: the `origin` of its proposals.
    pub node: u64,
    /// The state before the first event.
    pub state: Bytes,
    /// What is committed from there on. All of the old log is in it already; it holds no
    /// more than the log does.
    pub events: mpsc::UnboundedReceiver<Event>,
}

/// Opens the log at `path` and takes part. Must be called on a tokio runtime (one thread
/// is enough); returns once this monitor leads and its old entries are on their way.
///
/// # Errors
/// Those of the disk, and of a log that is damaged.
pub async fn start(path: &Path) -> Result<Started, QuorumError> {
    let failed = |e: &dyn std::fmt::Display| QuorumError::Raft(e.to_string());
    let store = store::Store::open(path)?;
    let node = store.node()?;
    let (_, state) = store.state()?;
    let (tx, events) = mpsc::unbounded_channel();
    let machine = raft::Machine::new(store.clone(), tx)?;
    let config = openraft::Config {
        cluster_name: "mon".to_owned(),
        heartbeat_interval: 100,
        election_timeout_min: 300,
        election_timeout_max: 600,
        snapshot_policy: SnapshotPolicy::Never,
        max_in_snapshot_log_to_keep: 100,
        purge_batch_size: 64,
        ..openraft::Config::default()
    };
    let config = Arc::new(config.validate().map_err(|e| failed(&e))?);
    let (_, last) = store.log_ends()?;
    let raft = Raft::new(node, config, raft::Alone, raft::Log(store), machine.clone())
        .await
        .map_err(|e| failed(&e))?;
    if raft.is_initialized().await.map_err(|e| failed(&e))? {
        raft.trigger().elect().await.map_err(|e| failed(&e))?;
    } else {
        let members = BTreeMap::from([(node, BasicNode::default())]);
        raft.initialize(members).await.map_err(|e| failed(&e))?;
    }
    raft.wait(Some(Duration::from_secs(30)))
        .current_leader(node, "a quorum of one leads itself")
        .await
        .map_err(|e| failed(&e))?;
    raft.wait(Some(Duration::from_secs(60)))
        .applied_index_at_least(last.map(|id| id.index), "the old log is read again")
        .await
        .map_err(|e| failed(&e))?;
    Ok(Started { quorum: Quorum { node, raft, machine }, node, state, events })
}

impl Quorum {
    /// Proposes; [`Event::Committed`] with this `token` tells when it is in the log.
    ///
    /// # Errors
    /// [`QuorumError::Raft`] when this monitor no longer takes part.
    pub async fn propose(&self, token: u64, data: Bytes) -> Result<(), QuorumError> {
        let proposal = raft::Proposal { origin: self.node, token, data: data.into() };
        let sent = self.raft.client_write_ff(proposal).await;
        sent.map_err(|e| QuorumError::Raft(e.to_string()))
    }

    /// Offers the state right after entry `index`, so that older entries can be dropped.
    ///
    /// # Errors
    /// [`QuorumError::Raft`] when this monitor no longer takes part.
    pub async fn offer_snapshot(&self, index: u64, state: Bytes) -> Result<(), QuorumError> {
        self.machine.offer(index, state);
        let asked = self.raft.trigger().snapshot().await;
        asked.map_err(|e| QuorumError::Raft(e.to_string()))
    }

    /// The current term: grows with each election.
    #[must_use]
    pub fn term(&self) -> u64 {
        self.raft.metrics().borrow().current_term
    }

    /// Ends taking part; what is committed stays.
    pub async fn stop(&self) {
        if let Err(e) = self.raft.shutdown().await {
            tracing::error!("quorum: {e}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(name: &str) -> std::path::PathBuf {
        let dir =
            std::env::temp_dir().join(format!("argonaut-quorum-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).unwrap();
        dir.join("mon.redb")
    }

    fn run<T>(f: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(f)
    }

    async fn next(events: &mut mpsc::UnboundedReceiver<Event>) -> Event {
        tokio::time::timeout(Duration::from_secs(10), events.recv()).await.unwrap().unwrap()
    }

    /// Entries come back in order, survive a restart, and are dropped behind a snapshot.
    #[test]
    fn commits_restarts_and_snapshots() {
        let path = path("restart");
        create(&path, 7, b"first").unwrap();
        assert!(matches!(create(&path, 7, b"x"), Err(StoreError::Exists(_))));
        let mut last = 0;
        run(async {
            let mut s = start(&path).await.unwrap();
            assert_eq!((s.node, &s.state[..]), (7, &b"first"[..]));
            for token in 0..200u64 {
                s.quorum.propose(token, Bytes::from(format!("e{token}"))).await.unwrap();
            }
            for want in 0..200u64 {
                let Event::Committed { index, origin, token, data } = next(&mut s.events).await
                else {
                    panic!("an entry")
                };
                assert_eq!((origin, token, data), (7, want, Bytes::from(format!("e{want}"))));
                assert!(index > last);
                last = index;
            }
            s.quorum.stop().await;
        });
        run(async {
            let mut s = start(&path).await.unwrap();
            assert_eq!(&s.state[..], b"first");
            for want in 0..200u64 {
                let Event::Committed { token, index, .. } = next(&mut s.events).await else {
                    panic!("an entry")
                };
                assert_eq!(token, want);
                last = index;
            }
            s.quorum.offer_snapshot(last, Bytes::from_static(b"second")).await.unwrap();
            s.quorum.propose(1, Bytes::from_static(b"after")).await.unwrap();
            assert!(matches!(next(&mut s.events).await, Event::Committed { token: 1, .. }));
            for _ in 0..200 {
                tokio::time::sleep(Duration::from_millis(10)).await;
                if s.quorum.raft.metrics().borrow().snapshot.is_some() {
                    break;
                }
            }
            s.quorum.stop().await;
        });
        run(async {
            let mut s = start(&path).await.unwrap();
            assert_eq!(&s.state[..], b"second");
            let Event::Committed { data, .. } = next(&mut s.events).await else {
                panic!("an entry")
            };
            assert_eq!(&data[..], b"after");
            s.quorum.stop().await;
        });
        let (purged, last) = store::Store::open(&path).unwrap().log_ends().unwrap();
        let (purged, last) = (purged.expect("old entries are gone").index, last.unwrap().index);
        assert!(purged >= 64 && last > 200, "{purged} {last}");
    }
}
