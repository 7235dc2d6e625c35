//! The raft library's way to other monitors: a queue of calls that the owner carries.

use std::future::Future;
use std::time::Duration;

use bytes::Bytes;
use openraft::error::{
    Fatal, NetworkError, RPCError, RaftError, ReplicationClosed, StreamingError, Unreachable,
};
use openraft::network::{Backoff, RPCOption, RaftNetwork, RaftNetworkFactory};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, VoteRequest, VoteResponse,
};
use openraft::{BasicNode, OptionalSend, Snapshot, Vote};
use tokio::sync::{mpsc, oneshot};

use super::raft::Config;
use super::wire::{Answer, Request, SNAPSHOT_PART, SnapshotPart};

/// Pause after a call that could not be carried.
const RETRY_MS: u64 = 100;
/// How long one piece of a snapshot may take.
const PART_MS: u64 = 10_000;

/// A request to another monitor's log, to be carried there; its answer goes back by
/// `answer`, which is dropped when there is none.
#[derive(Debug)]
pub struct Call {
    /// The other monitor's number.
    pub to: u64,
    /// The request.
    pub body: Bytes,
    /// Where the answer goes.
    pub answer: oneshot::Sender<Bytes>,
}

impl Call {
    /// Whether an answer says that its sender follows whoever made the call.
    #[must_use]
    pub fn admits(answer: &[u8]) -> bool {
        Answer::admits(answer)
    }
}

/// Makes the links.
pub(super) struct Net(pub mpsc::UnboundedSender<Call>);

impl RaftNetworkFactory<Config> for Net {
    type Network = Link;

    async fn new_client(&mut self, target: u64, _node: &BasicNode) -> Link {
        Link { to: target, calls: self.0.clone() }
    }
}

/// One monitor's link to another.
pub(super) struct Link {
    to: u64,
    calls: mpsc::UnboundedSender<Call>,
}

fn unreachable() -> Unreachable {
    Unreachable::new(&NetworkError::new(&std::io::Error::from(std::io::ErrorKind::HostUnreachable)))
}

impl Link {
    async fn ask(&self, request: &Request, within: Duration) -> Result<Answer, Unreachable> {
        let (answer, answered) = oneshot::channel();
        let call = Call { to: self.to, body: request.to_bytes(), answer };
        self.calls.send(call).map_err(|_| unreachable())?;
        let bytes = tokio::time::timeout(within, answered).await;
        let bytes = bytes.ok().and_then(Result::ok).ok_or_else(unreachable)?;
        Answer::from_bytes(&bytes).map_err(|e| Unreachable::new(&e))
    }
}

type Rpc<T> = Result<T, RPCError<u64, BasicNode, RaftError<u64>>>;

impl RaftNetwork<Config> for Link {
    async fn append_entries(
        &mut self,
        rpc: AppendEntriesRequest<Config>,
        option: RPCOption,
    ) -> Rpc<AppendEntriesResponse<u64>> {
        match self.ask(&Request::Append(rpc), option.hard_ttl()).await {
            Ok(Answer::Append(answer)) => Ok(answer),
            Ok(_) => Err(RPCError::Unreachable(unreachable())),
            Err(e) => Err(RPCError::Unreachable(e)),
        }
    }

    async fn vote(&mut self, rpc: VoteRequest<u64>, option: RPCOption) -> Rpc<VoteResponse<u64>> {
        match self.ask(&Request::Vote(rpc), option.hard_ttl()).await {
            Ok(Answer::Vote(answer)) => Ok(answer),
            Ok(_) => Err(RPCError::Unreachable(unreachable())),
            Err(e) => Err(RPCError::Unreachable(e)),
        }
    }

    async fn full_snapshot(
        &mut self,
        vote: Vote<u64>,
        snapshot: Snapshot<Config>,
        cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        _option: RPCOption,
    ) -> Result<SnapshotResponse<u64>, StreamingError<Config, Fatal<u64>>> {
        let data = *snapshot.snapshot;
        let total = data.len() as u64;
        let mut cancel = std::pin::pin!(cancel);
        let mut offset = 0;
        loop {
            let end = data.len().min(offset + SNAPSHOT_PART);
            let part = Request::Snapshot(SnapshotPart {
                vote,
                meta: snapshot.meta.clone(),
                total,
                offset: offset as u64,
                data: data.slice(offset..end),
            });
            let answer = tokio::select! {
                answer = self.ask(&part, Duration::from_millis(PART_MS)) => answer,
                closed = &mut cancel => return Err(closed.into()),
            };
            match answer {
                // A higher vote ends it early.
                Ok(Answer::Snapshot(s)) if end == data.len() || s.vote > vote => return Ok(s),
                Ok(Answer::Snapshot(_)) => offset = end,
                Ok(_) => return Err(StreamingError::Unreachable(unreachable())),
                Err(e) => return Err(StreamingError::Unreachable(e)),
            }
        }
    }

    fn backoff(&self) -> Backoff {
        Backoff::new(std::iter::repeat(Duration::from_millis(RETRY_MS)))
    }
}
