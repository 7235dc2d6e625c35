//! The quorum: opaque proposals in, committed entries out, in one order on every monitor.
//!
//! Invariants:
//! - what [`Event::Committed`] tells is on disk on a majority, and is told once per start,
//!   in index order, beginning behind the state that [`start`] returns;
//! - a proposal that was not told committed may still be, later, until another monitor
//!   leads;
//! - a snapshot offered stands for every entry up to its index, which may then be dropped;
//! - whoever [`Event::Began`] names has every committed entry, and all before it were told;
//! - a monitor that follows a leader votes for nobody else until [`LEASE_MS`] after it last
//!   heard of that leader, also when it was started anew meanwhile: so a leader that was
//!   heard by a majority, counted from when it spoke, is the only one for that long.
//!
//! The owner carries [`Call`]s to the other monitors and gives what they ask to
//! [`Quorum::answer`].
//!
//! Source: the raft library chosen in `docs/adr/`; nothing of it shows outside.

#[cfg(test)]
mod cluster_tests;
pub mod memory;
mod net;
mod raft;
mod store;
#[cfg(test)]
mod tests;
mod wire;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use openraft::{BasicNode, ChangeMembers, Raft, Snapshot, SnapshotPolicy};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

pub use net::Call;
pub use store::{StoreError, Whole, create, create_alone, read_whole};
use wire::{Answer, Request, SnapshotPart};

/// How often a leader speaks.
const HEARTBEAT_MS: u64 = 150;
/// After so long without a leader an election may begin; some wait a little longer.
const ELECTION_MS: u64 = 400;
/// How long after hearing of a leader nobody else is voted for.
pub const LEASE_MS: u64 = 700;
/// How long a new member may take to catch up before the change is given up.
const JOIN_MS: u64 = 60_000;

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
    /// The first entry of a leader is committed, and with it all before.
    Began {
        /// Its place.
        index: u64,
        /// The election that it won.
        ballot: Ballot,
    },
    /// The newest election, or who leads after it as far as this monitor knows.
    Standing {
        /// The newest election heard of.
        ballot: Ballot,
        /// The leader; `None` while one is being elected.
        leader: Option<u64>,
    },
    /// Who takes part: number to name.
    Members {
        /// Those that count.
        voters: BTreeMap<u64, String>,
        /// Those that only listen.
        learners: BTreeMap<u64, String>,
    },
}

/// An election: of two, the later one counts. A term can see several, for votes are ordered
/// by the candidate's number in it: a later one ends the reign that an earlier one began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ballot {
    /// What Ceph calls the election's epoch.
    pub term: u64,
    /// The candidate.
    pub node: u64,
}

impl Ballot {
    fn of(id: &openraft::LeaderId<u64>) -> Self {
        Self { term: id.term, node: id.node_id }
    }
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

fn failed(e: impl std::fmt::Display) -> QuorumError {
    QuorumError::Raft(e.to_string())
}

/// A monitor's part in the quorum.
#[derive(Clone)]
pub struct Quorum {
    node: u64,
    raft: Raft<raft::Config>,
    store: store::Store,
    machine: raft::Machine,
    /// Before this nobody is voted for: an earlier life may have heard of a leader.
    votes_from: Option<Instant>,
    incoming: Arc<Mutex<Incoming>>,
}

/// A snapshot that comes in pieces.
#[derive(Default)]
struct Incoming {
    id: String,
    data: BytesMut,
}

/// What [`start`] gives.
pub struct Started {
    /// The handle.
    pub quorum: Quorum,
    /// This monitor's number: the `origin` of its proposals.
    pub node: u64,
    /// The state before the first event.
    pub state: Bytes,
    /// What is committed from there on, and who leads.
    pub events: mpsc::UnboundedReceiver<Event>,
    /// What is to be carried to other monitors.
    pub calls: mpsc::UnboundedReceiver<Call>,
}

/// Opens the log at `path` and takes part. Must be called on a tokio runtime (one thread
/// is enough). A lone monitor elects itself at once; with others, somebody has to allow
/// elections ([`Quorum::allow_elections`]) or begin one ([`Quorum::elect`]).
///
/// # Errors
/// Those of the disk, and of a log that is damaged.
pub async fn start(path: &Path) -> Result<Started, QuorumError> {
    start_on(store::Store::open(path)?, ELECTION_MS..LEASE_MS).await
}

/// As [`start`], for the simulator: with its file in memory and `patience_ms` between
/// hearing of a leader and asking for an election drawn by the caller.
///
/// # Errors
/// As [`start`].
pub async fn start_in_memory(
    file: memory::Memory,
    patience_ms: u64,
) -> Result<Started, QuorumError> {
    start_on(store::Store::in_memory(file)?, patience_ms..patience_ms + 1).await
}

/// How long an election may wait at least and at most, for a caller that draws it itself.
#[must_use]
pub fn patience_ms() -> std::ops::Range<u64> {
    ELECTION_MS..LEASE_MS
}

async fn start_on(
    store: store::Store,
    patience_ms: std::ops::Range<u64>,
) -> Result<Started, QuorumError> {
    let node = store.node()?;
    let (covers, state) = store.state()?;
    let (_, last) = store.log_ends()?;
    // The library lets a leader that was started anew go on in its term, and no entry would
    // tell where its old log ends: it has to stand for election.
    if let Some(vote) = store.vote()?
        && vote.committed
        && vote.leader_id.node_id == node
    {
        store.save_vote(&openraft::Vote::new(vote.leader_id.term, node)).await?;
    }
    let (tx, events) = mpsc::unbounded_channel();
    let (calls_tx, calls) = mpsc::unbounded_channel();
    let machine = raft::Machine::new(store.clone(), tx.clone())?;
    let config = openraft::Config {
        cluster_name: "mon".to_owned(),
        heartbeat_interval: HEARTBEAT_MS,
        election_timeout_min: patience_ms.start,
        election_timeout_max: patience_ms.end,
        snapshot_policy: SnapshotPolicy::Never,
        max_in_snapshot_log_to_keep: 100,
        purge_batch_size: 64,
        enable_elect: false,
        ..openraft::Config::default()
    };
    let config = Arc::new(config.validate().map_err(failed)?);
    let fresh = last.is_none_or(|id| id.index == 0);
    let log = raft::Log::new(store.clone(), &machine);
    let raft =
        Raft::new(node, config, net::Net(calls_tx), log, machine.clone()).await.map_err(failed)?;
    machine.replays.store(false, std::sync::atomic::Ordering::Relaxed);
    if covers.is_none() && last.is_none() && store.is_old_founder()? {
        // Made before the founders were named in the file.
        let members = BTreeMap::from([(node, BasicNode::default())]);
        raft.initialize(members).await.map_err(failed)?;
    }
    let metrics = raft.metrics();
    let voters = raft.with_raft_state(|state| {
        state.membership_state.effective().voter_ids().collect::<Vec<u64>>()
    });
    let lone = voters.await.map_err(failed)? == [node];
    if lone {
        raft.runtime_config().elect(true);
        raft.trigger().elect().await.map_err(failed)?;
    }
    tokio::spawn(watch_standing(metrics, tx));
    let votes_from = (!lone && !fresh).then(|| Instant::now() + Duration::from_millis(LEASE_MS));
    let incoming = Arc::default();
    let quorum = Quorum { node, raft, store, machine, votes_from, incoming };
    Ok(Started { quorum, node, state, events, calls })
}

async fn watch_standing(
    mut metrics: watch::Receiver<openraft::RaftMetrics<u64, BasicNode>>,
    events: mpsc::UnboundedSender<Event>,
) {
    let mut told = None;
    loop {
        let now = {
            let m = metrics.borrow_and_update();
            (Ballot::of(&m.vote.leader_id), m.current_leader)
        };
        if told != Some(now) {
            told = Some(now);
            let (ballot, leader) = now;
            if events.send(Event::Standing { ballot, leader }).is_err() {
                return;
            }
        }
        if metrics.changed().await.is_err() {
            return;
        }
    }
}

impl Quorum {
    /// Proposes; [`Event::Committed`] with this `token` tells when it is in the log.
    /// Nothing happens while another monitor leads.
    ///
    /// # Errors
    /// [`QuorumError::Raft`] when this monitor no longer takes part.
    pub async fn propose(&self, token: u64, data: Bytes) -> Result<(), QuorumError> {
        let proposal = raft::Proposal { origin: self.node, token, data: data.into() };
        let sent = self.raft.client_write_ff(proposal).await.map_err(failed)?;
        tokio::spawn(async move {
            if let Ok(Err(e)) = sent.await {
                tracing::info!("a proposal was refused: {e}");
            }
        });
        Ok(())
    }

    /// Offers the state right after entry `index`, so that older entries can be dropped.
    ///
    /// # Errors
    /// [`QuorumError::Raft`] when this monitor no longer takes part.
    pub async fn offer_snapshot(&self, index: u64, state: Bytes) -> Result<(), QuorumError> {
        self.machine.offer(index, state);
        self.raft.trigger().snapshot().await.map_err(failed)
    }

    /// Answers another monitor's log.
    pub async fn answer(&self, body: &Bytes) -> Bytes {
        let answer = match Request::from_bytes(body) {
            Ok(Request::Append(r)) => self.raft.append_entries(r).await.ok().map(Answer::Append),
            Ok(Request::Vote(_)) if self.votes_from.is_some_and(|t| Instant::now() < t) => None,
            // One that was removed, and does not know, is no candidate.
            Ok(Request::Vote(r)) if self.is_stranger(r.vote.leader_id.node_id) => None,
            Ok(Request::Vote(r)) => self.raft.vote(r).await.ok().map(Answer::Vote),
            Ok(Request::Snapshot(part)) => self.take_part(part).await,
            Err(e) => {
                tracing::warn!("from another monitor's log: {e}");
                None
            }
        };
        answer.unwrap_or(Answer::Refused).to_bytes()
    }

    fn is_stranger(&self, node: u64) -> bool {
        let metrics = self.raft.metrics();
        let members = Arc::clone(&metrics.borrow().membership_config);
        let stranger = members.voter_ids().all(|id| id != node);
        stranger && members.voter_ids().next().is_some()
    }

    async fn take_part(&self, part: SnapshotPart) -> Option<Answer> {
        let vote = part.vote;
        let data = {
            let mut incoming = self.incoming.lock().expect("no panic while held");
            if part.offset == 0 {
                *incoming = Incoming { id: part.meta.snapshot_id.clone(), data: BytesMut::new() };
            }
            let fits = incoming.id == part.meta.snapshot_id
                && incoming.data.len() as u64 == part.offset
                && part.total <= wire::SNAPSHOT_MAX
                && part.offset + part.data.len() as u64 <= part.total;
            if !fits {
                return None;
            }
            incoming.data.extend_from_slice(&part.data);
            if (incoming.data.len() as u64) < part.total {
                let known = self.raft.metrics().borrow().vote;
                let vote = if known > vote { known } else { vote };
                return Some(Answer::Snapshot(openraft::raft::SnapshotResponse::new(vote)));
            }
            std::mem::take(&mut *incoming).data.freeze()
        };
        let snapshot = Snapshot { meta: part.meta, snapshot: Box::new(data) };
        self.raft.install_full_snapshot(vote, snapshot).await.ok().map(Answer::Snapshot)
    }

    /// Whether this monitor begins an election by itself when it hears of no leader. To be
    /// denied while it reaches no majority: elections that it cannot win disturb those that
    /// stand.
    pub fn allow_elections(&self, allowed: bool) {
        self.raft.runtime_config().elect(allowed);
    }

    /// Begins an election now.
    ///
    /// # Errors
    /// [`QuorumError::Raft`] when this monitor no longer takes part.
    pub async fn elect(&self) -> Result<(), QuorumError> {
        self.raft.trigger().elect().await.map_err(failed)
    }

    /// The state after entry `index` as the log has it, later than that where the log
    /// begins later: a state, the proposals behind it, and how far they reach.
    ///
    /// # Errors
    /// Those of the disk, and of a log that is damaged.
    pub fn state_after(&self, index: u64) -> Result<(Bytes, Vec<Bytes>, u64), StoreError> {
        let (covers, state) = self.store.state()?;
        let covered = covers.and_then(|c| c.last_log_id).map_or(0, |id| id.index);
        let index = index.max(covered);
        let entries = self.store.entries(covered + 1..index + 1)?.into_iter();
        let proposals = entries.filter_map(|entry| match entry.payload {
            openraft::EntryPayload::Normal(p) => Some(p.data.into()),
            _ => None,
        });
        Ok((state, proposals.collect(), index))
    }

    /// Who takes part: number to name, voters first, then those that only listen.
    #[must_use]
    pub fn members(&self) -> (BTreeMap<u64, String>, BTreeMap<u64, String>) {
        let metrics = self.raft.metrics();
        let now = metrics.borrow();
        let voters: BTreeSet<u64> = now.membership_config.voter_ids().collect();
        let nodes = now.membership_config.nodes();
        nodes.map(|(id, n)| (*id, n.addr.clone())).partition(|(id, _)| voters.contains(id))
    }

    /// Whether a new member can be brought up: its first state comes as a snapshot, which
    /// the leader sends where its own log no longer begins at the beginning.
    #[must_use]
    pub fn can_grow(&self) -> bool {
        self.raft.metrics().borrow().purged.is_some()
    }

    /// Drops what the last snapshot covers.
    ///
    /// # Errors
    /// [`QuorumError::Raft`] when this monitor no longer takes part.
    pub async fn drop_covered(&self) -> Result<(), QuorumError> {
        let covered = self.raft.metrics().borrow().snapshot.map(|id| id.index);
        match covered {
            Some(index) => self.raft.trigger().purge_log(index).await.map_err(failed),
            None => Ok(()),
        }
    }

    /// As the leader: makes `wanted`, itself among them, the monitors that count. Returns when
    /// that is committed; a monitor that is added has caught up before it counts.
    ///
    /// # Errors
    /// [`QuorumError::Raft`] when it cannot be done now; part of it may have been.
    pub async fn change_members(&self, wanted: &BTreeMap<u64, String>) -> Result<(), QuorumError> {
        let (voters, learners) = self.members();
        for (id, name) in wanted {
            if voters.get(id).or(learners.get(id)).is_some_and(|known| known == name) {
                continue;
            }
            let nodes = BTreeMap::from([(*id, BasicNode::new(name))]);
            let known = voters.contains_key(id) || learners.contains_key(id);
            if known {
                let change = ChangeMembers::SetNodes(nodes);
                self.raft.change_membership(change, true).await.map_err(failed)?;
            } else {
                let added = self.raft.add_learner(*id, BasicNode::new(name), true);
                let added = tokio::time::timeout(Duration::from_millis(JOIN_MS), added).await;
                added.map_err(failed)?.map_err(failed)?;
            }
        }
        let wanted: BTreeSet<u64> = wanted.keys().copied().collect();
        let count: BTreeSet<u64> = voters.keys().copied().collect();
        if wanted != count {
            let change = ChangeMembers::ReplaceAllVoters(wanted.clone());
            self.raft.change_membership(change, false).await.map_err(failed)?;
        }
        let (voters, learners) = self.members();
        let gone: BTreeSet<u64> = learners.into_keys().filter(|id| !wanted.contains(id)).collect();
        if !gone.is_empty() && voters.contains_key(&self.node) {
            let change = ChangeMembers::RemoveNodes(gone);
            self.raft.change_membership(change, false).await.map_err(failed)?;
        }
        Ok(())
    }

    /// As a leader that is to leave: lets `node` lead, once it has the whole log, by voting for it
    /// in the next term. Removing itself, a leader could be the only one that knows of it, and
    /// would neither stand for election nor vote for those who do not. Whether it was done.
    ///
    /// # Errors
    /// [`QuorumError::Raft`] when this monitor no longer takes part.
    pub async fn yield_to(&self, node: u64) -> Result<bool, QuorumError> {
        let (term, last, has) = {
            let metrics = self.raft.metrics();
            let now = metrics.borrow();
            let has = now.replication.as_ref().and_then(|all| *all.get(&node)?);
            (now.current_term, now.last_log_index, has)
        };
        if has.is_none() || has.map(|id| id.index) != last {
            return Ok(false);
        }
        let vote = openraft::raft::VoteRequest::new(openraft::Vote::new(term + 1, node), has);
        Ok(self.raft.vote(vote).await.map_err(failed)?.vote_granted)
    }

    /// Why this monitor takes no part any more, where it did not end by itself: its file cannot be
    /// written, as on a full disk, or read. Only another process does; there is no way back here.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        match &self.raft.metrics().borrow().running_state {
            Ok(()) | Err(openraft::error::Fatal::Stopped) => None,
            Err(why) => Some(why.to_string()),
        }
    }

    /// Ends taking part; what is committed stays.
    pub async fn stop(&self) {
        if let Err(e) = self.raft.shutdown().await {
            tracing::error!("quorum: {e}");
        }
    }
}
