//! The monitor's file: the log, the vote and the last snapshot, in one redb database.
//!
//! Format 1, by table:
//! - `meta` (text -> bytes): `format` u32; `node` u64; `vote`, `purged` as JSON of the raft
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
use std::sync::Arc;

use bytes::Bytes;
use openraft::{
    BasicNode, CommittedLeaderId, Entry, EntryPayload, LogId, Membership, SnapshotMeta,
    StoredMembership, Vote,
};
use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition, WriteTransaction};

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

/// One monitor's file, open.
#[derive(Clone)]
pub(super) struct Store {
    db: Arc<Database>,
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
        {
            let mut meta = tx.open_table(META)?;
            meta.insert("format", FORMAT.to_le_bytes().as_slice())?;
            meta.insert("node", node.to_le_bytes().as_slice())?;
            tx.open_table(LOG)?;
            let mut state = tx.open_table(STATE)?;
            state.insert("data", first_state)?;
            if founders.is_empty() {
                meta.insert("joins", [].as_slice())?;
            } else {
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
                state.insert("meta", json(&covers).as_slice())?;
                meta.insert("purged", json(&first).as_slice())?;
            }
        }
        tx.commit()?;
    }
    std::fs::File::open(&aside).and_then(|f| f.sync_all()).map_err(io)?;
    std::fs::rename(&aside, path).map_err(io)?;
    let dir = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    std::fs::File::open(dir).and_then(|d| d.sync_all()).map_err(io)
}

fn json<T: serde::Serialize>(value: &T) -> Vec<u8> {
    serde_json::to_vec(value).expect("the raft library's types have a JSON form")
}

impl Store {
    /// Opens a monitor's file.
    pub(super) fn open(path: &Path) -> Result<Self, StoreError> {
        if !path.exists() {
            let source = std::io::Error::from(std::io::ErrorKind::NotFound);
            return Err(StoreError::Io { path: path.to_owned(), source });
        }
        let store = Self { db: Arc::new(Database::open(path)?) };
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

    fn meta(&self, key: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let tx = self.db.begin_read()?;
        Ok(tx.open_table(META)?.get(key)?.map(|v| v.value().to_vec()))
    }

    /// Runs `change` in a durable transaction, off the caller's thread.
    async fn write(
        &self,
        change: impl FnOnce(&WriteTransaction) -> Result<(), StoreError> + Send + 'static,
    ) -> Result<(), StoreError> {
        let db = Arc::clone(&self.db);
        let done = tokio::task::spawn_blocking(move || {
            let tx = db.begin_write()?;
            change(&tx)?;
            tx.commit()?;
            Ok(())
        });
        done.await.unwrap_or(Err(StoreError::Damaged("a write was cut off; the store")))
    }

    pub(super) async fn save_vote(&self, vote: &Vote<u64>) -> Result<(), StoreError> {
        let raw = json(vote);
        self.write(move |tx| {
            tx.open_table(META)?.insert("vote", raw.as_slice())?;
            Ok(())
        })
        .await
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
        let tx = self.db.begin_read()?;
        let log = tx.open_table(LOG)?;
        let last = match log.last()? {
            Some((index, raw)) => Some(entry_from(index.value(), raw.value())?.log_id),
            None => purged,
        };
        Ok((purged, last))
    }

    pub(super) async fn append(&self, entries: Vec<Entry<Config>>) -> Result<(), StoreError> {
        self.write(move |tx| {
            let mut log = tx.open_table(LOG)?;
            for entry in &entries {
                log.insert(entry.log_id.index, entry_bytes(entry).as_slice())?;
            }
            Ok(())
        })
        .await
    }

    pub(super) fn entries(
        &self,
        range: impl std::ops::RangeBounds<u64>,
    ) -> Result<Vec<Entry<Config>>, StoreError> {
        let tx = self.db.begin_read()?;
        let log = tx.open_table(LOG)?;
        let mut out = Vec::new();
        for row in log.range(range)? {
            let (index, raw) = row?;
            out.push(entry_from(index.value(), raw.value())?);
        }
        Ok(out)
    }

    /// Forgets `from` and everything after it.
    pub(super) async fn truncate(&self, from: u64) -> Result<(), StoreError> {
        self.write(move |tx| {
            tx.open_table(LOG)?.retain_in(from.., |_, _| false)?;
            Ok(())
        })
        .await
    }

    /// Forgets `upto` and everything before it.
    pub(super) async fn purge(&self, upto: LogId<u64>) -> Result<(), StoreError> {
        self.write(move |tx| {
            tx.open_table(META)?.insert("purged", json(&upto).as_slice())?;
            tx.open_table(LOG)?.retain_in(..=upto.index, |_, _| false)?;
            Ok(())
        })
        .await
    }

    pub(super) async fn save_state(
        &self,
        meta: SnapshotMeta<u64, openraft::BasicNode>,
        data: Bytes,
    ) -> Result<(), StoreError> {
        self.write(move |tx| {
            let mut state = tx.open_table(STATE)?;
            state.insert("meta", json(&meta).as_slice())?;
            state.insert("data", &data[..])?;
            Ok(())
        })
        .await
    }

    /// The last snapshot; without a meta it is the first state of all.
    #[allow(clippy::type_complexity)]
    pub(super) fn state(
        &self,
    ) -> Result<(Option<SnapshotMeta<u64, openraft::BasicNode>>, Bytes), StoreError> {
        let tx = self.db.begin_read()?;
        let state = tx.open_table(STATE)?;
        let data = state.get("data")?.ok_or(StoreError::Damaged("state"))?;
        let data = Bytes::copy_from_slice(data.value());
        let meta = match state.get("meta")? {
            Some(raw) => Some(
                serde_json::from_slice(raw.value())
                    .map_err(|_| StoreError::Damaged("snapshot mark"))?,
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
