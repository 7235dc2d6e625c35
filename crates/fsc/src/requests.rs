//! Requests: sent, answered, sent again.

use bytes::Bytes;
use denc::{DecodeError, Denc};
use env::Now;
use messages::Envelope;
use messages::Message;
use messages::fs::{
    Args, ClientReply, ClientRequest, ClientRequestForward, DirListing, FilePath, InodeStat,
    ReleasedCap, mds_op,
};
use types::{Errno, SnapId};

use crate::sessions::Life;
use crate::{Client, Out};

/// So many are under way at servers at once, those included that are answered and not durable; others
/// wait here.
const UNDER_WAY_MAX: usize = 256;
/// A request that servers send to and fro so often fails with EIO.
const FORWARDS_MAX: u32 = 32;

/// What is asked of a server.
#[derive(Clone, Debug)]
pub struct Ask {
    /// `messages::fs::mds_op`.
    pub op: u32,
    /// Its arguments.
    pub args: Args,
    /// The inode, or the new name: [`crate::path_of`].
    pub path: FilePath,
    /// The second inode, old name, target or attribute's name.
    pub path2: FilePath,
    /// An attribute's value, or what is said of a snapshot.
    pub data: Bytes,
    /// The file that the answer names is open then, in this mode (`open_flag`), until
    /// [`Client::forget`].
    pub opens: Option<u32>,
}

impl Ask {
    /// An operation on one path.
    #[must_use]
    pub fn new(op: u32, path: FilePath, args: Args) -> Self {
        Self { op, args, path, path2: FilePath::default(), data: Bytes::new(), opens: None }
    }
}

/// The answer to a request.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reply {
    /// As the server sent it; its result is 0.
    pub answer: ClientReply,
    /// The entries, of a listing.
    pub listing: Option<DirListing>,
}

#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub m: ClientRequest,
    opens: Option<u32>,
    /// Another server named this rank.
    towards: Option<i32>,
    /// The rank that it was sent to.
    sent: Option<i32>,
    /// It was answered by this rank and is not durable there.
    pub unsafe_at: Option<i32>,
}

impl Client {
    /// Takes a request; its number comes back with the answer in [`Out::Done`].
    pub fn request(&mut self, now: Now, ask: Ask, out: &mut Vec<Out>) -> u64 {
        self.last_tid += 1;
        let tid = self.last_tid;
        let why = if self.closing { Some(crate::errno::STALE) } else { self.refused };
        if let Some(why) = why {
            out.push(Out::Done(tid, Err(why)));
            return tid;
        }
        let m = ClientRequest {
            head_version: 1,
            op: ask.op,
            caller: self.config.caller.clone(),
            args: ask.args.to_raw(),
            path: ask.path,
            path2: ask.path2,
            stamp: crate::client::stamp(now),
            data: ask.data,
            ..ClientRequest::default()
        };
        let request = Request { m, opens: ask.opens, towards: None, sent: None, unsafe_at: None };
        self.requests.insert(tid, request);
        self.send_requests(now, out);
        tid
    }

    /// Changes that were answered and are not durable yet.
    #[must_use]
    pub fn unsafe_count(&self) -> usize {
        self.requests.values().filter(|r| r.unsafe_at.is_some()).count()
    }

    pub(crate) fn oldest_tid(&self) -> u64 {
        self.requests.first_key_value().map_or(self.last_tid, |(tid, _)| *tid)
    }

    /// What was sent to a rank and not answered is to be sent again.
    pub(crate) fn unsend(&mut self, rank: i32) {
        for request in self.requests.values_mut().filter(|r| r.unsafe_at.is_none()) {
            if request.sent == Some(rank) {
                request.sent = None;
                request.m.num_retry += 1;
            }
            if request.towards == Some(rank) {
                request.towards = None;
            }
        }
    }

    /// Sends all that waits, where there is an open session for it.
    pub(crate) fn send_requests(&mut self, _: Now, out: &mut Vec<Out>) {
        let epoch = self.map.as_ref().map_or_else(Default::default, |m| m.epoch);
        let oldest = self.oldest_tid();
        let under_way = self.requests.values().filter(|r| r.sent.is_some()).count();
        if under_way >= UNDER_WAY_MAX {
            return self.flush_requests(out);
        }
        let waiting = self.requests.iter().filter(|(_, r)| r.sent.is_none());
        let tids: Vec<u64> = waiting.map(|(tid, _)| *tid).take(UNDER_WAY_MAX - under_way).collect();
        for tid in tids {
            let towards = self.requests[&tid].towards;
            let Some(rank) = towards.or_else(|| self.some_rank()) else { return };
            self.need_session(rank, out);
            if !self.sessions.get(&rank).is_some_and(|s| s.life == Life::Open) {
                continue;
            }
            let Some(request) = self.requests.get_mut(&tid) else { continue };
            request.sent = Some(rank);
            request.m.oldest_client_tid = oldest;
            request.m.mdsmap_epoch = epoch;
            let m = request.m.clone();
            self.send(rank, &m, tid, out);
        }
    }

    pub(crate) fn on_forward(
        &mut self,
        now: Now,
        tid: u64,
        m: ClientRequestForward,
        out: &mut Vec<Out>,
    ) {
        let Some(request) = self.requests.get_mut(&tid) else { return };
        if request.unsafe_at.is_some() || request.sent.is_none() {
            return;
        }
        request.m.num_fwd += 1;
        if request.m.num_fwd > FORWARDS_MAX || m.dest_mds < 0 {
            self.requests.remove(&tid);
            out.push(Out::Done(tid, Err(Errno::IO)));
            return;
        }
        request.sent = None;
        request.towards = Some(m.dest_mds);
        self.send_requests(now, out);
    }

    pub(crate) fn on_reply(
        &mut self,
        now: Now,
        rank: i32,
        env: &Envelope,
        out: &mut Vec<Out>,
    ) -> Result<(), DecodeError> {
        let answer = ClientReply::decode(env)?;
        let tid = env.tid;
        let Some(request) = self.requests.get_mut(&tid).filter(|r| r.sent == Some(rank)) else {
            return Ok(());
        };
        if request.unsafe_at.is_some() {
            if answer.safe {
                self.requests.remove(&tid);
                self.send_requests(now, out);
                out.push(Out::Changed);
            }
            return Ok(());
        }
        let lists =
            matches!(request.m.op, mds_op::READDIR | mds_op::LSSNAP | mds_op::READDIR_SNAPDIFF);
        let listing = match lists && answer.result == 0 {
            true => Some(DirListing::from_shared(&answer.extra)?),
            false => None,
        };
        let opens = request.opens.filter(|_| answer.result == 0);
        if answer.safe {
            self.requests.remove(&tid);
        } else {
            request.unsafe_at = Some(rank);
            if let Some(target) = &answer.target {
                request.m.ino = target.ino;
            }
        }
        self.take_trace(&answer.snap_trace)?;
        if let Some(dentry) = &answer.dentry {
            self.take_inode(rank, &dentry.dir, None, out);
        }
        if let Some(target) = &answer.target {
            self.take_inode(rank, target, opens, out);
        }
        for entry in listing.iter().flat_map(|l| &l.entries) {
            self.take_inode(rank, &entry.inode, None, out);
        }
        let done = match answer.result {
            0.. => Ok(Box::new(Reply { answer, listing })),
            r => Err(Errno(r)),
        };
        out.push(Out::Done(tid, done));
        self.send_requests(now, out);
        Ok(())
    }

    /// Takes over what an answer says of an inode: of files that are open; others' caps go back.
    fn take_inode(&mut self, rank: i32, stat: &InodeStat, opens: Option<u32>, out: &mut Vec<Out>) {
        if stat.snapid != SnapId::HEAD {
            return;
        }
        if let Some(flags) = opens {
            self.open_file(stat, flags);
        }
        if self.files.contains_key(&stat.ino) {
            self.file_heard(rank, stat, out);
        } else if stat.cap.cap_id != 0 {
            let cap = ReleasedCap {
                ino: stat.ino,
                cap_id: stat.cap.cap_id,
                migrate_seq: stat.cap.mseq,
                seq: stat.cap.seq,
            };
            self.release(rank, cap, out);
        }
    }
}
