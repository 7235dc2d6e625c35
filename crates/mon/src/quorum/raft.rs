//! The raft library behind the seam: its storage on our store, its state machine as a
//! stream of committed entries.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::RangeBounds;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use openraft::storage::{LogFlushed, RaftLogStorage, RaftStateMachine};
use openraft::{
    BasicNode, Entry, EntryPayload, LogId, LogState, Membership, OptionalSend, RaftLogReader,
    RaftSnapshotBuilder, Snapshot, SnapshotMeta, StorageError, StorageIOError, StoredMembership,
    Vote,
};
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, watch};

use super::store::{Store, StoreError};
use super::{Ballot, Event};

/// What is proposed: bytes of the role's own, and which proposal it was to whom.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proposal {
    pub(super) origin: u64,
    pub(super) token: u64,
    pub(super) data: Vec<u8>,
}

impl fmt::Debug for Proposal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{} of {} bytes", self.origin, self.token, self.data.len())
    }
}

openraft::declare_raft_types!(
    /// The types the raft library is used with.
    pub Config:
        D = Proposal,
        R = (),
        NodeId = u64,
        Node = BasicNode,
        SnapshotData = Bytes,
);

type Stored<T> = Result<T, StorageError<u64>>;

fn on_write(e: StoreError) -> StorageError<u64> {
    StorageIOError::write(&e).into()
}

fn on_read(e: StoreError) -> StorageError<u64> {
    StorageIOError::read(&e).into()
}

/// The log half.
#[derive(Clone)]
pub(super) struct Log {
    store: Store,
    /// How far a saved state reaches: nothing behind that is dropped.
    covered: watch::Receiver<Option<u64>>,
    /// Shared with the machine: the log is being opened, and nobody saves states yet.
    replays: Arc<AtomicBool>,
}

impl Log {
    pub(super) fn new(store: Store, machine: &Machine) -> Self {
        let replays = Arc::clone(&machine.replays);
        Self { store, covered: machine.covered.subscribe(), replays }
    }
}

/// Bytes of entries in one message to another monitor, but for a single larger one.
const APPEND_BYTES_MAX: usize = 4 << 20;

impl RaftLogReader<Config> for Log {
    async fn try_get_log_entries<RB: RangeBounds<u64> + Clone + fmt::Debug + OptionalSend>(
        &mut self,
        range: RB,
    ) -> Stored<Vec<Entry<Config>>> {
        self.store.entries(range).map_err(on_read)
    }

    /// What goes to another monitor in one message, which has a bound.
    async fn limited_get_log_entries(
        &mut self,
        start: u64,
        end: u64,
    ) -> Stored<Vec<Entry<Config>>> {
        self.store.first_entries(start..end, APPEND_BYTES_MAX).map_err(on_read)
    }
}

impl RaftLogStorage<Config> for Log {
    type LogReader = Self;

    async fn get_log_state(&mut self) -> Stored<LogState<Config>> {
        let (last_purged_log_id, last_log_id) = self.store.log_ends().map_err(on_read)?;
        Ok(LogState { last_purged_log_id, last_log_id })
    }

    async fn get_log_reader(&mut self) -> Self {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote<u64>) -> Stored<()> {
        self.store.save_vote(vote).await.map_err(on_write)
    }

    async fn read_vote(&mut self) -> Stored<Option<Vote<u64>>> {
        self.store.vote().map_err(on_read)
    }

    async fn append<I>(&mut self, entries: I, callback: LogFlushed<Config>) -> Stored<()>
    where
        I: IntoIterator<Item = Entry<Config>> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let done = self.store.append(entries.into_iter().collect()).await;
        match done {
            Ok(()) => {
                callback.log_io_completed(Ok(()));
                Ok(())
            }
            Err(e) => {
                callback.log_io_completed(Err(std::io::Error::other(e.to_string())));
                Err(on_write(e))
            }
        }
    }

    async fn truncate(&mut self, log_id: LogId<u64>) -> Stored<()> {
        self.store.truncate(log_id.index).await.map_err(on_write)
    }

    async fn save_committed(&mut self, committed: Option<LogId<u64>>) -> Stored<()> {
        self.store.note_committed(committed);
        Ok(())
    }

    async fn read_committed(&mut self) -> Stored<Option<LogId<u64>>> {
        self.store.committed().map_err(on_read)
    }

    async fn purge(&mut self, log_id: LogId<u64>) -> Stored<()> {
        // A snapshot that was sent is taken by another task: were the log gone before it is
        // saved, a crash would leave neither.
        if self.replays.load(Ordering::Relaxed) && *self.covered.borrow() < Some(log_id.index) {
            return Err(on_write(StoreError::Damaged(
                "it ends before what was committed; the log",
            )));
        }
        let saved = self.covered.wait_for(|covered| *covered >= Some(log_id.index)).await;
        saved.map_err(|_| gone())?;
        self.store.purge(log_id).await.map_err(on_write)
    }
}

/// What the state machine half and its snapshots share.
#[derive(Default)]
struct Applied {
    last: Option<LogId<u64>>,
    membership: StoredMembership<u64, BasicNode>,
    /// Ids of applied entries that a snapshot may still be named after.
    ids: BTreeMap<u64, LogId<u64>>,
    /// What the role offered: the state right after entry `index`.
    offered: Option<(u64, Bytes)>,
}

/// The state machine half: it keeps no state of its own, but tells the role what was
/// committed, and keeps the snapshots that the role makes.
#[derive(Clone)]
pub(super) struct Machine {
    store: Store,
    applied: Arc<Mutex<Applied>>,
    events: mpsc::UnboundedSender<Event>,
    covered: Arc<watch::Sender<Option<u64>>>,
    /// What was committed in an earlier life is being told.
    pub(super) replays: Arc<AtomicBool>,
}

impl Machine {
    pub(super) fn new(
        store: Store,
        events: mpsc::UnboundedSender<Event>,
    ) -> Result<Self, StoreError> {
        let mut applied = Applied::default();
        if let (Some(meta), _) = store.state()? {
            applied.last = meta.last_log_id;
            applied.membership = meta.last_membership;
            let event = members_event(applied.membership.membership());
            events.send(event).map_err(|_| StoreError::Damaged("nobody listens; the log"))?;
        }
        let covered = applied.last.map(|id| id.index);
        Ok(Self {
            store,
            applied: Arc::new(Mutex::new(applied)),
            events,
            covered: Arc::new(watch::channel(covered).0),
            replays: Arc::new(AtomicBool::new(true)),
        })
    }

    fn applied(&self) -> std::sync::MutexGuard<'_, Applied> {
        self.applied.lock().expect("nobody panics while holding it")
    }

    /// The state right after entry `index`, for the next snapshot.
    pub(super) fn offer(&self, index: u64, data: Bytes) {
        self.applied().offered = Some((index, data));
    }
}

fn members_event(m: &Membership<u64, BasicNode>) -> Event {
    let voters: BTreeSet<u64> = m.voter_ids().collect();
    let named = |(id, node): (&u64, &BasicNode)| (*id, node.addr.clone());
    let (voters, learners) = m.nodes().map(named).partition(|(id, _)| voters.contains(id));
    Event::Members { voters, learners }
}

fn gone() -> StorageError<u64> {
    let gone = std::io::Error::other("the monitor stopped listening to its log");
    StorageIOError::write_state_machine(&gone).into()
}

impl RaftStateMachine<Config> for Machine {
    type SnapshotBuilder = Self;

    async fn applied_state(
        &mut self,
    ) -> Stored<(Option<LogId<u64>>, StoredMembership<u64, BasicNode>)> {
        let applied = self.applied();
        Ok((applied.last, applied.membership.clone()))
    }

    async fn apply<I>(&mut self, entries: I) -> Stored<Vec<()>>
    where
        I: IntoIterator<Item = Entry<Config>> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let mut out = Vec::new();
        for entry in entries {
            let index = entry.log_id.index;
            {
                let mut applied = self.applied();
                applied.last = Some(entry.log_id);
                applied.ids.insert(index, entry.log_id);
                while applied.ids.len() > 10_000 {
                    applied.ids.pop_first();
                }
            }
            match entry.payload {
                // The first entry of a leader: all before it are committed. Those of earlier
                // ones are history.
                EntryPayload::Blank => {
                    let leader = entry.log_id.leader_id;
                    let vote = self.store.vote().map_err(on_read)?;
                    let replays = self.replays.load(Ordering::Relaxed);
                    if vote.is_some_and(|v| v.leader_id == leader) && !replays {
                        let event = Event::Began { index, ballot: Ballot::of(&leader) };
                        self.events.send(event).map_err(|_| gone())?;
                    }
                }
                EntryPayload::Normal(p) => {
                    let data = Bytes::from(p.data);
                    let event = Event::Committed { index, origin: p.origin, token: p.token, data };
                    self.events.send(event).map_err(|_| gone())?;
                }
                EntryPayload::Membership(m) => {
                    let event = members_event(&m);
                    self.applied().membership = StoredMembership::new(Some(entry.log_id), m);
                    self.events.send(event).map_err(|_| gone())?;
                }
            }
            out.push(());
        }
        Ok(out)
    }

    async fn get_snapshot_builder(&mut self) -> Self {
        self.clone()
    }

    async fn begin_receiving_snapshot(&mut self) -> Stored<Box<Bytes>> {
        Ok(Box::new(Bytes::new()))
    }

    async fn install_snapshot(
        &mut self,
        meta: &SnapshotMeta<u64, BasicNode>,
        snapshot: Box<Bytes>,
    ) -> Stored<()> {
        self.store.save_state(meta.clone(), (*snapshot).clone()).await.map_err(on_write)?;
        {
            let mut applied = self.applied();
            applied.last = meta.last_log_id;
            applied.membership = meta.last_membership.clone();
            applied.ids.clear();
            applied.offered = None;
        }
        let index = meta.last_log_id.map_or(0, |id| id.index);
        self.covered.send_replace(Some(index));
        self.events.send(Event::Restored { index, state: *snapshot }).map_err(|_| gone())?;
        self.events.send(members_event(meta.last_membership.membership())).map_err(|_| gone())
    }

    async fn get_current_snapshot(&mut self) -> Stored<Option<Snapshot<Config>>> {
        let (meta, data) = self.store.state().map_err(on_read)?;
        Ok(meta.map(|meta| Snapshot { meta, snapshot: Box::new(data) }))
    }
}

impl RaftSnapshotBuilder<Config> for Machine {
    async fn build_snapshot(&mut self) -> Stored<Snapshot<Config>> {
        let ready = {
            let mut applied = self.applied();
            let membership = applied.membership.clone();
            match applied.offered.take() {
                Some((index, data)) => {
                    let id = applied.ids.get(&index).copied();
                    // A membership newer than the state would be told twice, which is
                    // harmless; one older cannot be, as it changes only here.
                    id.map(|id| (id, membership, data))
                }
                None => None,
            }
        };
        let Some((id, last_membership, data)) = ready else {
            return match self.get_current_snapshot().await? {
                Some(current) => Ok(current),
                None => Err(on_read(StoreError::Damaged("no state was offered; the snapshot"))),
            };
        };
        let meta = SnapshotMeta {
            last_log_id: Some(id),
            last_membership,
            snapshot_id: format!("{}-{}", id.leader_id, id.index),
        };
        self.store.save_state(meta.clone(), data.clone()).await.map_err(on_write)?;
        self.covered.send_replace(Some(id.index));
        let mut applied = self.applied();
        applied.ids = applied.ids.split_off(&id.index);
        drop(applied);
        Ok(Snapshot { meta, snapshot: Box::new(data) })
    }
}
