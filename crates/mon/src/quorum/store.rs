//! The monitor's file: the log, the vote and the last snapshot, in one redb database.
//!
//! Format 1, by table:
//! - `meta` (text -> bytes): `format` u32; `node` u64; `vote`, `purged`, `committed` as JSON of the raft
//!   library's types.
//! - `log` (u64 index -> bytes): u8 1, u64 term, u64 node, u8 kind, then nothing (0, blank),
//!   u64 origin ‖ u64 token ‖ payload (1), or JSON of a membership (2).
//! - `state` (text -> bytes): `meta`, JSON of what the snapshot covers; `data`, the
//!   snapshot itself. What `create` puts there covers the log's entry 0, which names the
//!   founders and is nowhere else; in a file made to join a cluster it covers nothing.
//!
//! A file comes into being whole: it is written aside, synced and renamed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use openraft::{
    BasicNode, CommittedLeaderId, Entry, EntryPayload, LogId, Membership, SnapshotMeta,
    StoredMembership, Vote,
};
use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition, WriteTransaction};

use super::memory::Memory;
use super::raft::{Config, Proposal};

const META: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("meta");
const LOG: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("log");
const STATE: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("state");

const FORMAT: u32 = 1;

/// Why the monitor's file cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The database refused.
    #[error("monitor store: {0}")]
    Db(Box<redb::Error>),
    /// The file system refused.
    #[error("monitor store {}: {source}", path.display())]
    Io {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The bytes are not what was written.
    #[error("monitor store: {0} is damaged")]
    Damaged(&'static str),
    /// Another version wrote it.
    #[error("monitor store: format {0} is not known here (known: {FORMAT})")]
    Format(u32),
    /// There is a file already.
    #[error("monitor store {} exists already", .0.display())]
    Exists(PathBuf),
}

impl<E: Into<redb::Error>> From<E> for StoreError {
    fn from(e: E) -> Self {
        Self::Db(Box::new(e.into()))
    }
}

/// The name of a row.
pub(super) type Text = &'static str;

/// One change of a file.
#[derive(Clone, Debug)]
pub(super) enum Change {
    Meta(Text, Bytes),
    State(Text, Bytes),
    Entry(u64, Bytes),
    /// This entry and all after it go.
    Truncate(u64),
    /// This entry and all before it go.
    Purge(u64),
}

fn apply(tx: &WriteTransaction, changes: &[Change]) -> Result<(), StoreError> {
    for change in changes {
        match change {
            Change::Meta(key, value) => drop(tx.open_table(META)?.insert(*key, &value[..])?),
            Change::State(key, value) => drop(tx.open_table(STATE)?.insert(*key, &value[..])?),
            Change::Entry(index, value) => drop(tx.open_table(LOG)?.insert(*index, &value[..])?),
            Change::Truncate(from) => tx.open_table(LOG)?.retain_in(*from.., |_, _| false)?,
            Change::Purge(upto) => tx.open_table(LOG)?.retain_in(..=*upto, |_, _| false)?,
        }
    }
    Ok(())
}

/// What is in a file from the beginning.
pub(super) fn founding(
    node: u64,
    founders: &BTreeMap<u64, String>,
    first_state: &Bytes,
) -> Vec<Change> {
    let mut changes = vec![
        Change::Meta("format", Bytes::copy_from_slice(&FORMAT.to_le_bytes())),
        Change::Meta("node", Bytes::copy_from_slice(&node.to_le_bytes())),
        Change::State("data", first_state.clone()),
    ];
    if founders.is_empty() {
        changes.push(Change::Meta("joins", Bytes::new()));
        return changes;
    }
    let first = LogId::new(CommittedLeaderId::new(0, 0), 0);
    let voters: BTreeSet<u64> = founders.keys().copied().collect();
    let nodes: BTreeMap<u64, BasicNode> =
        founders.iter().map(|(id, name)| (*id, BasicNode::new(name))).collect();
    let members = Membership::new(vec![voters], nodes);
    let covers = SnapshotMeta {
        last_log_id: Some(first),
        last_membership: StoredMembership::new(Some(first), members),
        snapshot_id: "founders".to_owned(),
    };
    changes.push(Change::State("meta", json(&covers)));
    changes.push(Change::Meta("purged", json(&first)));
    changes
}

/// One monitor's file, open.
#[derive(Clone)]
pub(super) struct Store {
    place: Place,
    /// How far the log is committed; written with the next entries.
    committed: Arc<Mutex<Option<LogId<u64>>>>,
}

/// Where a file is.
#[derive(Clone)]
enum Place {
    /// A database in a file.
    File(Arc<Database>),
    /// The simulator's.
    Memory(Memory),
}

/// Makes a monitor's file with a first state in it. `founders` are the monitors of a new
/// cluster, number to name, this one among them; empty for one that joins a cluster, which
/// is given its state and log by the leader.
///
/// # Errors
/// [`StoreError::Exists`] when there is one, and those of the disk.
pub fn create(
    path: &Path,
    node: u64,
    founders: &BTreeMap<u64, String>,
    first_state: &[u8],
) -> Result<(), StoreError> {
    create_with(path, &founding(node, founders, &Bytes::copy_from_slice(first_state)))
}

fn create_with(path: &Path, changes: &[Change]) -> Result<(), StoreError> {
    if path.exists() {
        return Err(StoreError::Exists(path.to_owned()));
    }
    let io = |source| StoreError::Io { path: path.to_owned(), source };
    let aside = path.with_extension("new");
    match std::fs::remove_file(&aside) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(io(e)),
        _ => {}
    }
    {
        let db = Database::create(&aside)?;
        let tx = db.begin_write()?;
        tx.open_table(LOG)?;
        apply(&tx, changes)?;
        tx.commit()?;
    }
    std::fs::File::open(&aside).and_then(|f| f.sync_all()).map_err(io)?;
    std::fs::rename(&aside, path).map_err(io)?;
    let dir = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    std::fs::File::open(dir).and_then(|d| d.sync_all()).map_err(io)
}

/// All that a monitor's file holds, whether it is known to be committed or not.
pub struct Whole {
    /// Its number in the quorum.
    pub node: u64,
    /// The newest election that it heard of.
    pub term: u64,
    /// The last snapshot.
    pub state: Bytes,
    /// The proposals after it.
    pub proposals: Vec<Bytes>,
}

/// Reads the file of a monitor that does not run.
///
/// # Errors
/// Those of the disk, and of a file that is damaged or in use.
pub fn read_whole(path: &Path) -> Result<Whole, StoreError> {
    let store = Store::open(path)?;
    let (covers, state) = store.state()?;
    let after = covers.and_then(|meta| meta.last_log_id).map_or(0, |id| id.index + 1);
    let proposals = store.entries(after..)?.into_iter().filter_map(|entry| match entry.payload {
        EntryPayload::Normal(proposal) => Some(Bytes::from(proposal.data)),
        EntryPayload::Blank | EntryPayload::Membership(_) => None,
    });
    let term = store.vote()?.map_or(0, |vote| vote.leader_id.term);
    Ok(Whole { node: store.node()?, term, state, proposals: proposals.collect() })
}

/// Makes the file of a monitor that goes on alone, as `name`, from a state; its next election comes
/// after `term`.
///
/// # Errors
/// As [`create`].
pub fn create_alone(
    path: &Path,
    (node, name): (u64, &str),
    term: u64,
    state: &Bytes,
) -> Result<(), StoreError> {
    let founders = BTreeMap::from([(node, name.to_owned())]);
    let mut changes = founding(node, &founders, state);
    changes.push(Change::Meta("vote", json(&Vote::<u64>::new(term, node))));
    create_with(path, &changes)
}

fn json<T: serde::Serialize>(value: &T) -> Bytes {
    serde_json::to_vec(value).expect("the raft library's types have a JSON form").into()
}

impl Store {
    /// Opens a monitor's file.
    pub(super) fn open(path: &Path) -> Result<Self, StoreError> {
        if !path.exists() {
            let source = std::io::Error::from(std::io::ErrorKind::NotFound);
            return Err(StoreError::Io { path: path.to_owned(), source });
        }
        Self::checked(Place::File(Arc::new(Database::open(path)?)))
    }

    /// The simulator's file.
    pub(super) fn in_memory(file: Memory) -> Result<Self, StoreError> {
        Self::checked(Place::Memory(file))
    }

    fn checked(place: Place) -> Result<Self, StoreError> {
        let store = Self { place, committed: Arc::default() };
        let format = store.meta("format")?.ok_or(StoreError::Damaged("format"))?;
        let format: [u8; 4] = format[..].try_into().map_err(|_| StoreError::Damaged("format"))?;
        match u32::from_le_bytes(format) {
            FORMAT => Ok(store),
            other => Err(StoreError::Format(other)),
        }
    }

    /// The number this monitor has in the quorum.
    pub(super) fn node(&self) -> Result<u64, StoreError> {
        let raw = self.meta("node")?.ok_or(StoreError::Damaged("node"))?;
        Ok(u64::from_le_bytes(raw[..].try_into().map_err(|_| StoreError::Damaged("node"))?))
    }

    /// Whether the file was made by the first version, which left the founders out: all of
    /// those were lone monitors. Files made to join a cluster say so.
    pub(super) fn is_old_founder(&self) -> Result<bool, StoreError> {
        Ok(self.meta("joins")?.is_none())
    }

    fn meta(&self, key: Text) -> Result<Option<Bytes>, StoreError> {
        match &self.place {
            Place::File(db) => {
                let tx = db.begin_read()?;
                Ok(tx.open_table(META)?.get(key)?.map(|v| Bytes::copy_from_slice(v.value())))
            }
            Place::Memory(file) => Ok(file.tables(|t| t.meta.get(key).cloned())),
        }
    }

    fn state_row(&self, key: Text) -> Result<Option<Bytes>, StoreError> {
        match &self.place {
            Place::File(db) => {
                let tx = db.begin_read()?;
                Ok(tx.open_table(STATE)?.get(key)?.map(|v| Bytes::copy_from_slice(v.value())))
            }
            Place::Memory(file) => Ok(file.tables(|t| t.state.get(key).cloned())),
        }
    }

    /// Makes changes together and durably, off the caller's thread.
    async fn write(&self, changes: Vec<Change>) -> Result<(), StoreError> {
        let db = match &self.place {
            Place::File(db) => Arc::clone(db),
            Place::Memory(file) => return file.write(changes).await,
        };
        let done = tokio::task::spawn_blocking(move || {
            let tx = db.begin_write()?;
            apply(&tx, &changes)?;
            tx.commit()?;
            Ok(())
        });
        done.await.unwrap_or(Err(StoreError::Damaged("a write was cut off; the store")))
    }

    pub(super) async fn save_vote(&self, vote: &Vote<u64>) -> Result<(), StoreError> {
        self.write(vec![Change::Meta("vote", json(vote))]).await
    }

    pub(super) fn vote(&self) -> Result<Option<Vote<u64>>, StoreError> {
        match self.meta("vote")? {
            Some(raw) => {
                serde_json::from_slice(&raw).map(Some).map_err(|_| StoreError::Damaged("vote"))
            }
            None => Ok(None),
        }
    }

    /// What was purged last, and the last entry there is.
    #[allow(clippy::type_complexity)]
    pub(super) fn log_ends(&self) -> Result<(Option<LogId<u64>>, Option<LogId<u64>>), StoreError> {
        let purged = match self.meta("purged")? {
            Some(raw) => {
                Some(serde_json::from_slice(&raw).map_err(|_| StoreError::Damaged("purge mark"))?)
            }
            None => None,
        };
        let last = match &self.place {
            Place::File(db) => {
                let tx = db.begin_read()?;
                let log = tx.open_table(LOG)?;
                let last = log.last()?;
                last.map(|(index, raw)| entry_from(index.value(), raw.value())).transpose()?
            }
            Place::Memory(file) => file
                .tables(|t| t.log.last_key_value().map(|(index, raw)| entry_from(*index, raw)))
                .transpose()?,
        };
        Ok((purged, last.map(|e| e.log_id).or(purged)))
    }

    pub(super) async fn append(&self, entries: Vec<Entry<Config>>) -> Result<(), StoreError> {
        let row = |e: &Entry<Config>| Change::Entry(e.log_id.index, entry_bytes(e).into());
        let mut changes: Vec<Change> = entries.iter().map(row).collect();
        let committed = *self.committed.lock().expect("no panic while held");
        changes.extend(committed.map(|id| Change::Meta("committed", json(&id))));
        self.write(changes).await
    }

    /// The log is committed so far. What is lost of this is told again by the next leader.
    pub(super) fn note_committed(&self, upto: Option<LogId<u64>>) {
        *self.committed.lock().expect("no panic while held") = upto;
    }

    /// How far the log is known to be committed, as far as its entries are here.
    pub(super) fn committed(&self) -> Result<Option<LogId<u64>>, StoreError> {
        let Some(raw) = self.meta("committed")? else { return Ok(None) };
        serde_json::from_slice(&raw).map(Some).map_err(|_| StoreError::Damaged("commit mark"))
    }

    pub(super) fn entries(
        &self,
        range: impl std::ops::RangeBounds<u64>,
    ) -> Result<Vec<Entry<Config>>, StoreError> {
        match &self.place {
            Place::File(db) => {
                let tx = db.begin_read()?;
                let log = tx.open_table(LOG)?;
                let rows = log.range(range)?.map(|row| {
                    let (index, raw) = row?;
                    entry_from(index.value(), raw.value())
                });
                rows.collect()
            }
            Place::Memory(file) => file.tables(|t| {
                t.log.range(range).map(|(index, raw)| entry_from(*index, raw)).collect()
            }),
        }
    }

    /// The first entries of `range` that have so many bytes together; at least one where there
    /// is any.
    pub(super) fn first_entries(
        &self,
        range: std::ops::Range<u64>,
        bytes_max: usize,
    ) -> Result<Vec<Entry<Config>>, StoreError> {
        let mut bytes = 0;
        let mut fits = |len: usize| {
            let first = bytes == 0;
            bytes += len;
            first || bytes <= bytes_max
        };
        match &self.place {
            Place::File(db) => {
                let tx = db.begin_read()?;
                let log = tx.open_table(LOG)?;
                let mut found = Vec::new();
                for row in log.range(range)? {
                    let (index, raw) = row?;
                    if !fits(raw.value().len()) {
                        break;
                    }
                    found.push(entry_from(index.value(), raw.value())?);
                }
                Ok(found)
            }
            Place::Memory(file) => file.tables(|t| {
                let rows = t.log.range(range).take_while(|(_, raw)| fits(raw.len()));
                rows.map(|(index, raw)| entry_from(*index, raw)).collect()
            }),
        }
    }

    /// Forgets `from` and everything after it.
    pub(super) async fn truncate(&self, from: u64) -> Result<(), StoreError> {
        self.write(vec![Change::Truncate(from)]).await
    }

    /// Forgets `upto` and everything before it.
    pub(super) async fn purge(&self, upto: LogId<u64>) -> Result<(), StoreError> {
        self.write(vec![Change::Meta("purged", json(&upto)), Change::Purge(upto.index)]).await
    }

    pub(super) async fn save_state(
        &self,
        meta: SnapshotMeta<u64, openraft::BasicNode>,
        data: Bytes,
    ) -> Result<(), StoreError> {
        self.write(vec![Change::State("meta", json(&meta)), Change::State("data", data)]).await
    }

    /// The last snapshot; without a meta it is the first state of all.
    #[allow(clippy::type_complexity)]
    pub(super) fn state(
        &self,
    ) -> Result<(Option<SnapshotMeta<u64, openraft::BasicNode>>, Bytes), StoreError> {
        let data = self.state_row("data")?.ok_or(StoreError::Damaged("state"))?;
        let meta = match self.state_row("meta")? {
            Some(raw) => Some(
                serde_json::from_slice(&raw).map_err(|_| StoreError::Damaged("snapshot mark"))?,
            ),
            None => None,
        };
        Ok((meta, data))
    }
}

pub(super) fn entry_bytes(entry: &Entry<Config>) -> Vec<u8> {
    let leader = &entry.log_id.leader_id;
    let mut out = vec![1];
    out.extend(leader.term.to_le_bytes());
    out.extend(leader.node_id.to_le_bytes());
    match &entry.payload {
        EntryPayload::Blank => out.push(0),
        EntryPayload::Normal(p) => {
            out.push(1);
            out.extend(p.origin.to_le_bytes());
            out.extend(p.token.to_le_bytes());
            out.extend_from_slice(&p.data);
        }
        EntryPayload::Membership(m) => {
            out.push(2);
            out.extend(json(m));
        }
    }
    out
}

pub(super) fn entry_from(index: u64, raw: &[u8]) -> Result<Entry<Config>, StoreError> {
    const DAMAGED: StoreError = StoreError::Damaged("a log entry");
    let num = |at: usize| -> Result<u64, StoreError> {
        let raw = raw.get(at..at + 8).ok_or(DAMAGED)?;
        Ok(u64::from_le_bytes(raw.try_into().expect("eight bytes")))
    };
    let (term, node) = (num(1)?, num(9)?);
    let body = raw.get(18..).ok_or(DAMAGED)?;
    let payload = match (raw[0], raw[17]) {
        (1, 0) => EntryPayload::Blank,
        (1, 1) => EntryPayload::Normal(Proposal {
            origin: num(18)?,
            token: num(26)?,
            data: body.get(16..).ok_or(DAMAGED)?.to_vec(),
        }),
        (1, 2) => EntryPayload::Membership(serde_json::from_slice(body).map_err(|_| DAMAGED)?),
        _ => return Err(DAMAGED),
    };
    Ok(Entry { log_id: LogId::new(CommittedLeaderId::new(term, node), index), payload })
}
