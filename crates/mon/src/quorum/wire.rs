//! What monitors' logs say to each other: requests and answers as bytes, format 1.
//!
//! The page is `docs/protocols/quorum.md`. Whoever sends these is a monitor of the same
//! cluster; even so, bytes that cannot be read are refused and never panic.

use bytes::Bytes;
use denc::{DecodeError, Denc, Features, Reader, Writer};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, VoteRequest, VoteResponse,
};
use openraft::{BasicNode, CommittedLeaderId, Entry, LogId, SnapshotMeta, Vote};

use super::raft::Config;
use super::store::{entry_bytes, entry_from};

/// Bytes of state in one request.
pub(super) const SNAPSHOT_PART: usize = 1 << 20;
/// Bytes of a state that are taken from another monitor at most.
pub(super) const SNAPSHOT_MAX: u64 = 4 << 30;

/// What one monitor asks of another's log.
#[derive(Debug)]
pub(super) enum Request {
    Append(AppendEntriesRequest<Config>),
    Vote(VoteRequest<u64>),
    Snapshot(SnapshotPart),
}

/// A piece of a snapshot; the last one makes the receiver take it.
#[derive(Debug)]
pub(super) struct SnapshotPart {
    pub vote: Vote<u64>,
    pub meta: SnapshotMeta<u64, BasicNode>,
    pub total: u64,
    pub offset: u64,
    pub data: Bytes,
}

/// The answers, one for one.
#[derive(Debug)]
pub(super) enum Answer {
    Append(AppendEntriesResponse<u64>),
    Vote(VoteResponse<u64>),
    Snapshot(SnapshotResponse<u64>),
    /// Not now: nothing was changed.
    Refused,
}

fn put_vote(w: &mut Writer, vote: &Vote<u64>) {
    w.u64(vote.leader_id.term);
    w.u64(vote.leader_id.node_id);
    w.bool(vote.committed);
}

fn get_vote(r: &mut Reader<'_>) -> Result<Vote<u64>, DecodeError> {
    let (term, node) = (r.u64()?, r.u64()?);
    Ok(if r.bool()? { Vote::new_committed(term, node) } else { Vote::new(term, node) })
}

fn put_id(w: &mut Writer, id: Option<&LogId<u64>>) {
    w.bool(id.is_some());
    if let Some(id) = id {
        w.u64(id.leader_id.term);
        w.u64(id.leader_id.node_id);
        w.u64(id.index);
    }
}

fn get_id(r: &mut Reader<'_>) -> Result<Option<LogId<u64>>, DecodeError> {
    if !r.bool()? {
        return Ok(None);
    }
    let (term, node, index) = (r.u64()?, r.u64()?, r.u64()?);
    Ok(Some(LogId::new(CommittedLeaderId::new(term, node), index)))
}

fn invalid(rule: &'static str) -> DecodeError {
    DecodeError::Invalid { what: "quorum message", rule }
}

impl Request {
    pub(super) fn to_bytes(&self) -> Bytes {
        let mut w = Writer::new(Features::ALL);
        match self {
            Self::Append(a) => {
                w.u8(1);
                put_vote(&mut w, &a.vote);
                put_id(&mut w, a.prev_log_id.as_ref());
                put_id(&mut w, a.leader_commit.as_ref());
                w.seq(&a.entries, |w, e| {
                    w.u64(e.log_id.index);
                    w.blob(&entry_bytes(e));
                });
            }
            Self::Vote(v) => {
                w.u8(2);
                put_vote(&mut w, &v.vote);
                put_id(&mut w, v.last_log_id.as_ref());
            }
            Self::Snapshot(s) => {
                w.u8(3);
                put_vote(&mut w, &s.vote);
                let meta = serde_json::to_vec(&s.meta).expect("the library's types have JSON");
                w.blob(&meta);
                w.u64(s.total);
                w.u64(s.offset);
                s.data.encode(&mut w);
            }
        }
        w.finish()
    }

    pub(super) fn from_bytes(bytes: &Bytes) -> Result<Self, DecodeError> {
        let mut r = Reader::shared(bytes);
        let request = match r.u8()? {
            1 => {
                let vote = get_vote(&mut r)?;
                let prev_log_id = get_id(&mut r)?;
                let leader_commit = get_id(&mut r)?;
                let entries = r.seq(|r| -> Result<Entry<Config>, DecodeError> {
                    let index = r.u64()?;
                    let raw = r.blob_ref()?;
                    entry_from(index, raw).map_err(|_| invalid("its entries can be read"))
                })?;
                Self::Append(AppendEntriesRequest { vote, prev_log_id, entries, leader_commit })
            }
            2 => Self::Vote(VoteRequest { vote: get_vote(&mut r)?, last_log_id: get_id(&mut r)? }),
            3 => {
                let vote = get_vote(&mut r)?;
                let meta = serde_json::from_slice(r.blob_ref()?)
                    .map_err(|_| invalid("its snapshot mark can be read"))?;
                let (total, offset, data) = (r.u64()?, r.u64()?, r.blob()?);
                Self::Snapshot(SnapshotPart { vote, meta, total, offset, data })
            }
            _ => return Err(invalid("its kind is known")),
        };
        r.finish()?;
        Ok(request)
    }
}

impl Answer {
    pub(super) fn to_bytes(&self) -> Bytes {
        let mut w = Writer::new(Features::ALL);
        match self {
            Self::Append(AppendEntriesResponse::Success) => w.u8(1),
            Self::Append(AppendEntriesResponse::PartialSuccess(id)) => {
                w.u8(2);
                put_id(&mut w, id.as_ref());
            }
            Self::Append(AppendEntriesResponse::Conflict) => w.u8(3),
            Self::Append(AppendEntriesResponse::HigherVote(vote)) => {
                w.u8(4);
                put_vote(&mut w, vote);
            }
            Self::Vote(v) => {
                w.u8(5);
                put_vote(&mut w, &v.vote);
                w.bool(v.vote_granted);
                put_id(&mut w, v.last_log_id.as_ref());
            }
            Self::Snapshot(s) => {
                w.u8(6);
                put_vote(&mut w, &s.vote);
            }
            Self::Refused => w.u8(0),
        }
        w.finish()
    }

    pub(super) fn from_bytes(bytes: &Bytes) -> Result<Self, DecodeError> {
        let mut r = Reader::shared(bytes);
        let answer = match r.u8()? {
            0 => Self::Refused,
            1 => Self::Append(AppendEntriesResponse::Success),
            2 => Self::Append(AppendEntriesResponse::PartialSuccess(get_id(&mut r)?)),
            3 => Self::Append(AppendEntriesResponse::Conflict),
            4 => Self::Append(AppendEntriesResponse::HigherVote(get_vote(&mut r)?)),
            5 => Self::Vote(VoteResponse {
                vote: get_vote(&mut r)?,
                vote_granted: r.bool()?,
                last_log_id: get_id(&mut r)?,
            }),
            6 => Self::Snapshot(SnapshotResponse::new(get_vote(&mut r)?)),
            _ => return Err(invalid("its kind is known")),
        };
        r.finish()?;
        Ok(answer)
    }

    /// Whether it admits that the asker leads.
    pub(super) fn admits(bytes: &[u8]) -> bool {
        matches!(bytes.first(), Some(1..=3))
    }
}

#[cfg(test)]
mod tests {
    use super::super::raft::Proposal;
    use super::*;
    use openraft::EntryPayload;

    fn id(term: u64, index: u64) -> LogId<u64> {
        LogId::new(CommittedLeaderId::new(term, 7), index)
    }

    /// Every request and answer reads back as the same bytes; every cut-off copy is refused.
    #[test]
    fn messages_round_trip() {
        let proposal = Proposal { origin: 1, token: 2, data: b"abc".to_vec() };
        let requests = [
            Request::Append(AppendEntriesRequest {
                vote: Vote::new_committed(3, 1),
                prev_log_id: Some(id(2, 9)),
                entries: vec![
                    Entry { log_id: id(3, 10), payload: EntryPayload::Blank },
                    Entry { log_id: id(3, 11), payload: EntryPayload::Normal(proposal) },
                ],
                leader_commit: None,
            }),
            Request::Vote(VoteRequest { vote: Vote::new(4, 2), last_log_id: Some(id(3, 11)) }),
            Request::Snapshot(SnapshotPart {
                vote: Vote::new_committed(4, 2),
                meta: SnapshotMeta::default(),
                total: 5,
                offset: 2,
                data: Bytes::from_static(b"xyz"),
            }),
        ];
        for request in requests {
            let bytes = request.to_bytes();
            assert_eq!(Request::from_bytes(&bytes).unwrap().to_bytes(), bytes);
            for cut in 0..bytes.len() {
                assert!(Request::from_bytes(&bytes.slice(..cut)).is_err());
            }
        }
        let answers = [
            Answer::Append(AppendEntriesResponse::Success),
            Answer::Append(AppendEntriesResponse::PartialSuccess(Some(id(1, 1)))),
            Answer::Append(AppendEntriesResponse::Conflict),
            Answer::Append(AppendEntriesResponse::HigherVote(Vote::new(9, 9))),
            Answer::Vote(VoteResponse {
                vote: Vote::new(4, 2),
                vote_granted: true,
                last_log_id: None,
            }),
            Answer::Snapshot(SnapshotResponse::new(Vote::new(1, 1))),
            Answer::Refused,
        ];
        for answer in answers {
            let bytes = answer.to_bytes();
            assert_eq!(Answer::from_bytes(&bytes).unwrap().to_bytes(), bytes);
            for cut in 0..bytes.len() {
                assert!(Answer::from_bytes(&bytes.slice(..cut)).is_err());
            }
        }
    }
}
