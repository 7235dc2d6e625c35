//! Requests of clients: run from the start until all they need is there, and answered.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use auth::{MdsAccess, MdsMay};
use bytes::Bytes;
use env::ConnId;
use maps::fs::{DirFrag, Frag, inos};
use messages::fs::{
    Args, ClientCapRelease, ClientCaps, ClientReconnect, ClientRequest, ClientSession, FileLock,
    mds_op, request_flag,
};
use types::{Errno, Ino};

use crate::Peer;
use crate::capset::{Hold, bits};
use crate::errno;
use crate::flock::{FileLocks, LockQueue, Rule, TooMany};
use crate::gate::{Timed, Wait};
use crate::heat::Kind;
use crate::line::Line;
use crate::ops::Seen;
use crate::rank::Rank;
use crate::record::Change;
use crate::session::Life;
use crate::shared::Shared;
use crate::tags::SERVER;
use crate::track::{History, Trail};
use crate::tree::{Link, Missing, Txn};

/// Why a request does not go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// It fails.
    Fail(Errno),
    /// A fragment is not in memory.
    Frag(DirFrag),
    /// An inode is not.
    Ino(Ino),
    /// Somebody holds caps of this inode that it needs back.
    Caps(Ino),
    /// A lock on this file is held, and so this one cannot be had.
    Lock(Ino, Rule, FileLock),
    /// Its client was given too much lately.
    Throttled,
    /// Too much is not written back.
    Unwritten,
}

pub(crate) type Op<T> = Result<T, Stop>;

impl From<Missing> for Stop {
    fn from(m: Missing) -> Self {
        Self::Frag(m.0)
    }
}

impl From<Errno> for Stop {
    fn from(e: Errno) -> Self {
        Self::Fail(e)
    }
}

/// What an operation answers with.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    /// The entry: its directory and name.
    pub dentry: Option<(Ino, Bytes)>,
    pub target: Option<Ino>,
    pub extra: Extra,
    /// Caps that the client wants of the target, by opening it.
    pub wanted: u32,
    /// The target's extended attributes are shown.
    pub xattrs: bool,
    /// The target, where it is one that a snapshot has.
    pub seen: Option<Seen>,
    /// The entry's directory in that snapshot, and the name.
    pub seen_in: Option<(Seen, Bytes)>,
}

/// What is behind the trace.
#[derive(Debug, Default)]
pub(crate) enum Extra {
    #[default]
    None,
    Bytes(Bytes),
    /// An inode was made.
    Created(Ino),
    /// Entries of a directory's fragment: names with inodes, and flags.
    Listing(Frag, Vec<(Bytes, Ino, bool)>, u16),
    /// The same as a snapshot has it.
    Past(Frag, Vec<(Bytes, Seen)>, u16),
}

/// A request that is not answered yet.
#[derive(Debug)]
pub(crate) struct Request {
    pub client: i64,
    pub tid: u64,
    pub m: Arc<ClientRequest>,
    /// Inodes whose caps are withheld for it.
    pub holds: BTreeSet<Ino>,
    /// It was done before, and made this inode: only its answer is wanted.
    done: Option<Ino>,
    /// The inode whose caps or locks it waits for.
    waits_at: Option<Ino>,
    pub trail: Trail,
}

/// What comes too early.
#[derive(Debug)]
pub(crate) enum Later {
    Open(ClientSession),
    Request(u64, Box<ClientRequest>),
    Reconnect(Box<ClientReconnect>),
    Caps(u64, Box<ClientCaps>),
    Release(Box<ClientCapRelease>),
}

/// Requests of one client that wait at the same time: one that has more is evicted.
const WAITING_MAX: usize = 1 << 16;
/// Bytes of them, about; one alone may have more.
const WAITING_BYTES_MAX: usize = 32 << 20;
/// Messages that came before the rank was active: what comes beyond costs its connection.
const LATER_MAX: usize = 1 << 16;
/// Bytes of them, about. Clients of a large file system have millions of caps to tell of.
const LATER_BYTES_MAX: usize = 256 << 20;
/// Requests whose end is kept for one client, in case that it asks again. A client that never says
/// what it has heard of is evicted at this number: the peer's `mds_max_completed_requests`.
const DONE_MAX: usize = 100_000;

/// All requests in hand.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    last: u64,
    pub all: BTreeMap<u64, Request>,
    by_client: BTreeMap<i64, Asked>,
    ready: BTreeSet<u64>,
    caps: BTreeMap<Ino, BTreeSet<u64>>,
    locks: BTreeMap<Ino, LockQueue>,
    /// Those whose clients are held back, by when they are tried again.
    throttled: BTreeSet<(u64, u64)>,
    /// Changes that wait until more is written back.
    pub line: Line,
    pub history: History,
    interrupted: BTreeSet<u64>,
    pub shared: Shared,
    /// Inodes of which a client was told in an answer that it has what it has to give back.
    pub too_much: BTreeSet<Ino>,
    /// The request that is being answered.
    pub answering: Option<Timed>,
    pub later: Vec<(ConnId, Peer, Later)>,
    /// Of those, about.
    later_bytes: usize,
}

/// What one client waits for.
#[derive(Debug, Default)]
struct Asked {
    /// Its numbers for them.
    tids: BTreeSet<u64>,
    bytes: usize,
}

/// What a request takes in memory, about.
fn held(m: &ClientRequest) -> usize {
    let parts = [&m.path.path, &m.path2.path, &m.alternate_name, &m.data];
    let releases = m.releases.len() * size_of::<messages::fs::ReleaseItem>();
    size_of::<Request>() + parts.iter().map(|p| p.len()).sum::<usize>() + releases
}

impl Later {
    /// What it takes in memory, about.
    fn held(&self) -> usize {
        match self {
            Self::Open(m) => m.detail.as_ref().map_or(0, |d| bytes_of(&d.metadata)) + EACH,
            Self::Request(_, m) => held(m),
            Self::Reconnect(m) => (m.caps.len() + m.realms.len() + 1) * EACH,
            Self::Caps(_, m) => m.attrs.xattrs.len() + m.snap_trace.len() + 2 * EACH,
            Self::Release(m) => (m.caps.len() + 1) * size_of::<messages::fs::ReleasedCap>(),
        }
    }
}

/// What a client's words of itself take in memory, about.
pub(crate) fn bytes_of(metadata: &maps::fs::ByteMap) -> usize {
    metadata.iter().map(|(k, v)| k.len() + v.len() + EACH).sum()
}

/// What a part of a message takes beside what is counted of it, about.
const EACH: usize = 256;

impl Requests {
    pub fn wake(&mut self, requests: impl IntoIterator<Item = u64>) {
        self.ready.extend(requests);
    }

    pub fn wake_caps(&mut self, ino: Ino) {
        let waiting = self.caps.remove(&ino).unwrap_or_default();
        self.wake(waiting);
    }

    /// Locks of a file changed: in a range, or those of a client that is gone.
    pub fn wake_locks(&mut self, ino: Ino, locks: &FileLocks, changed: Option<(Rule, &FileLock)>) {
        let Some(queue) = self.locks.get_mut(&ino) else { return };
        self.ready.extend(queue.take_free(locks, changed));
        if queue.is_empty() {
            self.locks.remove(&ino);
        }
    }

    /// Tries those again that were held back until now.
    pub fn wake_throttled(&mut self, now_ms: u64) {
        while let Some((until, id)) = self.throttled.first().copied().filter(|(t, _)| *t <= now_ms)
        {
            self.throttled.remove(&(until, id));
            self.ready.insert(id);
        }
    }

    /// A client gives up waiting for a lock.
    pub fn interrupt(&mut self, client: i64, ino: Ino, lock: &FileLock) {
        let Some(queue) = self.locks.get_mut(&ino) else { return };
        let gave_up = queue.take_of(client, lock.owner, lock.pid);
        if queue.is_empty() {
            self.locks.remove(&ino);
        }
        self.interrupted.extend(&gave_up);
        self.ready.extend(gave_up);
    }

    /// Has a request wait until caps of an inode come back.
    fn wait_for_caps(&mut self, id: u64, ino: Ino) {
        let Some(request) = self.all.get_mut(&id) else { return };
        request.waits_at = Some(ino);
        self.caps.entry(ino).or_default().insert(id);
    }

    /// Has a request wait for a lock of a file.
    ///
    /// # Errors
    /// When its client has too many that do.
    fn wait_for_lock(
        &mut self,
        id: u64,
        ino: Ino,
        rule: Rule,
        lock: FileLock,
    ) -> Result<(), TooMany> {
        let Some(request) = self.all.get_mut(&id) else { return Ok(()) };
        request.waits_at = Some(ino);
        self.locks.entry(ino).or_default().add(id, rule, lock)
    }

    /// A request is gone: nothing is left of it where it waits.
    fn forget(&mut self, id: u64, request: &Request) {
        self.line.forget(request.client, id);
        let Some(ino) = request.waits_at else { return };
        if let Some(waiting) = self.caps.get_mut(&ino) {
            waiting.remove(&id);
            if waiting.is_empty() {
                self.caps.remove(&ino);
            }
        }
        if let Some(queue) = self.locks.get_mut(&ino) {
            queue.remove(id);
            if queue.is_empty() {
                self.locks.remove(&ino);
            }
        }
    }

    /// Whether a client's request is in hand.
    pub fn has(&self, client: i64, tid: u64) -> bool {
        self.by_client.get(&client).is_some_and(|asked| asked.tids.contains(&tid))
    }

    pub fn take_interrupted(&mut self, id: u64) -> bool {
        self.interrupted.remove(&id)
    }

    /// Forgets a client's requests. Returns them with the inodes whose caps are withheld for each.
    pub fn drop_client(&mut self, client: i64) -> Vec<(u64, BTreeSet<Ino>)> {
        self.by_client.remove(&client);
        let of_client = |(id, r): (&u64, &Request)| (r.client == client).then_some(*id);
        let ids: Vec<u64> = self.all.iter().filter_map(of_client).collect();
        let take = |id| {
            let request = self.all.remove(&id)?;
            self.forget(id, &request);
            Some((id, request.holds))
        };
        ids.into_iter().filter_map(take).collect()
    }

    /// Takes what came too early and is wanted now.
    pub fn take_later(
        &mut self,
        mut wanted: impl FnMut(ConnId, &Peer, &Later) -> bool,
    ) -> Vec<(ConnId, Peer, Later)> {
        let taken: Vec<_> =
            self.later.extract_if(.., |(conn, peer, what)| wanted(*conn, peer, what)).collect();
        self.later_bytes -= taken.iter().map(|(_, _, what)| what.held()).sum::<usize>();
        taken
    }

    /// A request is answered. Returns the inodes whose caps were withheld for it, and what it went
    /// through.
    fn take(&mut self, id: u64) -> (BTreeSet<Ino>, Option<Trail>) {
        let Some(request) = self.all.remove(&id) else { return (BTreeSet::new(), None) };
        self.forget(id, &request);
        if let Some(asked) = self.by_client.get_mut(&request.client)
            && asked.tids.remove(&request.tid)
        {
            asked.bytes -= held(&request.m);
        }
        self.interrupted.remove(&id);
        (request.holds, Some(request.trail))
    }
}

/// A request while it runs.
pub(crate) struct Call {
    pub id: u64,
    pub client: i64,
    pub m: Arc<ClientRequest>,
    pub txn: Txn,
}

impl Rank {
    pub fn on_request(&mut self, conn: ConnId, peer: &Peer, tid: u64, m: ClientRequest) {
        if !self.boot.is_done() || self.state() != maps::MdsState::ACTIVE {
            self.later(conn, peer, Later::Request(tid, Box::new(m)));
            return;
        }
        let client = peer.id.num;
        let Some(session) = self.sessions.by_client.get(&client) else { return };
        if session.conn == Some(conn) {
            self.accept(client, tid, m);
        }
    }

    /// Takes a request of a client that has a session.
    pub fn accept(&mut self, client: i64, tid: u64, m: ClientRequest) {
        self.counted.mds.request += 1;
        self.counted.server.handle_client_request += 1;
        let now = self.world.ms();
        let Some(session) = self.sessions.by_client.get_mut(&client) else { return };
        if session.life == Life::Killing {
            return;
        }
        session.renewed_ms = now;
        session.info.completed_requests.retain(|t, _| *t >= m.oldest_client_tid);
        let before = session.info.completed_requests.get(&tid).copied();
        let done = session.info.completed_requests.len();
        for release in &m.releases {
            self.on_release_item(client, release);
        }
        let replayed = m.flags & request_flag::REPLAY != 0;
        if let Some(ino) = before.filter(|ino| replayed || *ino == Ino(0)) {
            // It may have been done a moment ago.
            self.reply_done(client, tid, m.op, ino, Wait::All);
            return;
        }
        let asked = self.requests.by_client.entry(client).or_default();
        if asked.tids.contains(&tid) {
            return;
        }
        let (waiting, bytes) = (asked.tids.len(), asked.bytes + held(&m));
        let much = waiting >= WAITING_MAX || waiting > 0 && bytes > WAITING_BYTES_MAX;
        if much || done >= DONE_MAX {
            tracing::warn!(client, waiting, bytes, done, "a client asks without end");
            self.evict(client);
            return;
        }
        asked.tids.insert(tid);
        asked.bytes = bytes;
        self.requests.last += 1;
        let id = self.requests.last;
        let holds = BTreeSet::new();
        let trail = Trail::begin(self.world.time());
        let request =
            Request { client, tid, m: Arc::new(m), holds, done: before, waits_at: None, trail };
        self.requests.all.insert(id, request);
        self.requests.ready.insert(id);
    }

    /// Keeps what came before the rank was active.
    pub fn later(&mut self, conn: ConnId, peer: &Peer, what: Later) {
        let bytes = self.requests.later_bytes + what.held();
        if self.requests.later.len() < LATER_MAX && bytes <= LATER_BYTES_MAX {
            self.requests.later.push((conn, peer.clone(), what));
            self.requests.later_bytes = bytes;
            return;
        }
        self.fx.push(crate::Effect::Close(conn));
        self.on_closed(conn);
    }

    /// Answers a request that was done before and made an inode: as a lookup of what it made, which
    /// is opened where the client opens it.
    fn answer_again(&self, m: &ClientRequest, ino: Ino) -> Op<Answer> {
        if self.tree.node(ino).is_none() {
            // Where it is gone since, there is nothing to show.
            let is_lost = self.waiting.lost.contains(&ino);
            return if is_lost { Ok(Answer::default()) } else { Err(Stop::Ino(ino)) };
        }
        let node = self.tree.at(ino);
        let mut answer = Answer { target: Some(ino), ..Answer::default() };
        answer.dentry = node.at.clone().filter(|_| !node.is_stray());
        if m.op == mds_op::CREATE {
            answer.extra = Extra::Created(ino);
        }
        if let Ok(Args::Open(args)) = Args::read(m.op, &m.args) {
            answer.wanted = crate::ops::wanted_of(args.flags);
        }
        Ok(answer)
    }

    pub fn run_requests(&mut self) {
        while let Some(id) = self.requests.ready.pop_first() {
            let Some(request) = self.requests.all.get(&id) else { continue };
            let txn = Txn::at(self.stamp(&request.m));
            let (client, tid, done) = (request.client, request.tid, request.done);
            let mut call = Call { id, client, m: Arc::clone(&request.m), txn };
            let outer = self.tree.tags.begin(client);
            self.hold_messages();
            let result = match done {
                Some(ino) => {
                    // Its record is on its way at most, and the answer is a safe one.
                    self.tree.tags.note(self.journal.submitted);
                    self.answer_again(&call.m, ino)
                }
                None if self.has_to_wait(client, &call.m) => Err(Stop::Unwritten),
                None => self.execute(&mut call),
            };
            if result.is_err() {
                self.let_messages_go(client, None, 0);
            }
            let waits = match &result {
                Err(Stop::Frag(_)) => "waiting for a directory",
                Err(Stop::Ino(_)) => "waiting for an inode",
                Err(Stop::Caps(_)) => "failed to rdlock, waiting",
                Err(Stop::Lock(..)) => "waiting for a file lock",
                Err(Stop::Throttled) => "cap_acquisition_throttle",
                Err(Stop::Unwritten) => "waiting for changes to be written back",
                Err(Stop::Fail(_)) | Ok(_) => "acquired locks",
            };
            self.note_event(id, waits);
            match result {
                Err(Stop::Frag(dir)) if self.tree.damaged.has_frag(&dir) => {
                    self.finish(id, client, tid, call, Err(Errno::IO));
                }
                Err(Stop::Frag(dir)) => self.fetch(dir, id),
                Err(Stop::Ino(ino)) if self.waiting.lost.remove(&ino) => {
                    self.finish(id, client, tid, call, Err(errno::STALE));
                }
                Err(Stop::Ino(ino)) => self.open_ino(ino, id),
                Err(Stop::Caps(ino)) => self.requests.wait_for_caps(id, ino),
                Err(Stop::Lock(ino, rule, lock)) => {
                    if self.requests.wait_for_lock(id, ino, rule, lock).is_err() {
                        self.finish(id, client, tid, call, Err(errno::NOLCK));
                    }
                }
                Err(Stop::Throttled) => {
                    let until = self.world.ms() + self.world.config.options.throttle.retry_ms;
                    self.requests.throttled.insert((until, id));
                }
                Err(Stop::Unwritten) => self.wait_in_line(id, client),
                Err(Stop::Fail(e)) => self.finish(id, client, tid, call, Err(e)),
                Ok(answer) => self.finish(id, client, tid, call, Ok(answer)),
            }
            self.tree.tags.end(outer);
        }
    }

    fn note_event(&mut self, id: u64, event: &'static str) {
        let now = self.world.time();
        if let Some(request) = self.requests.all.get_mut(&id) {
            request.trail.note(now, event);
        }
    }

    /// The client's time where it is near to ours, so that its files are not from the future.
    fn stamp(&self, m: &ClientRequest) -> types::UTime {
        if m.stamp.is_zero() { self.world.time() } else { m.stamp }
    }

    fn finish(
        &mut self,
        id: u64,
        client: i64,
        tid: u64,
        mut call: Call,
        result: Result<Answer, Errno>,
    ) {
        let (holds, trail) = self.requests.take(id);
        if let Some(mut trail) = trail {
            let now = self.world.time();
            trail.note(now, "done");
            let errno = result.as_ref().map_or_else(|e| e.0, |_| 0);
            self.requests.answering = Some((call.m.op, trail.came_ns()));
            let options = &self.world.config.options;
            self.requests.history.add((client, tid, &call.m), trail, errno, (now, options));
        }
        self.let_holds_go(id, &holds);
        let m = Arc::clone(&call.m);
        if let Ok(answer) = &result {
            self.warm(m.op, answer);
        }
        let mut made = None;
        if let Ok(answer) = &result
            && !call.txn.is_empty()
        {
            let ino = match &answer.extra {
                Extra::Created(ino) => *ino,
                _ if m.op & mds_op::WRITE != 0 => answer.target.unwrap_or(Ino(0)),
                _ => Ino(0),
            };
            self.tables.sessions += 1;
            if let Some(session) = self.sessions.by_client.get_mut(&client) {
                session.info.completed_requests.insert(tid, ino);
                session.dirty = true;
            }
            let version = self.tables.sessions;
            call.txn.other.push(Change::Request { version, client, tid, ino });
            let mut txn = std::mem::take(&mut call.txn);
            txn.hard |= !is_plain(&m);
            let author = if txn.hard { SERVER } else { client };
            self.commit_of(txn, author);
            self.count_change(client);
            made = Some(self.journal.submitted);
        }
        self.let_messages_go(client, made, self.tree.tags.newest());
        if m.flags & request_flag::REPLAY != 0
            && let Ok(answer) = &result
        {
            let ino = answer.target.unwrap_or(Ino(0));
            self.adopt(ino);
            self.reply_done(client, tid, m.op, ino, Wait::All);
            self.after(&holds);
            return;
        }
        let result = match result {
            Err(e) if e == Errno::NOENT && m.flags & request_flag::WANT_DENTRY != 0 => {
                match self.missing_dentry(&m) {
                    Some(dentry) => {
                        let answer = Answer { dentry: Some(dentry), ..Answer::default() };
                        self.reply_with(client, tid, m.op, (e.0, None), answer);
                        self.after(&holds);
                        return;
                    }
                    None => Err(e),
                }
            }
            other => other,
        };
        match result {
            Ok(answer) => self.reply_with(client, tid, m.op, (0, made), answer),
            Err(e) => {
                let wait = Wait::For(self.tree.tags.newest());
                self.send_reply(client, tid, self.safe_reply(m.op, e.0), wait);
            }
        }
        self.after(&holds);
    }

    /// Counts an operation at the fragment that it was about.
    fn warm(&self, op: u32, answer: &Answer) {
        let (at, kind) = match &answer.extra {
            Extra::Listing(frag, ..) => {
                let dir = answer.target.map(|ino| DirFrag { ino, frag: *frag });
                (dir, Kind::List)
            }
            _ => {
                let kind = if op & mds_op::WRITE == 0 { Kind::Read } else { Kind::Write };
                let above = answer.target.and_then(|ino| self.tree.frag_above(ino));
                let named =
                    answer.dentry.as_ref().filter(|(dir, _)| self.tree.node(*dir).is_some());
                let named = named.map(|(dir, name)| self.tree.dirfrag(*dir, name));
                (named.or(above), kind)
            }
        };
        if let Some(dir) = at {
            self.tree.warm(dir, kind, self.world.ms());
        }
    }

    /// Ends a request in hand: its client hears EINTR. `false` where there is none by these numbers.
    pub fn kill_request(&mut self, client: i64, tid: u64) -> bool {
        let named = |(_, r): &(&u64, &Request)| (r.client, r.tid) == (client, tid);
        let Some((id, m)) = self.requests.all.iter().find(named).map(|(id, r)| (*id, r.m.clone()))
        else {
            return false;
        };
        self.note_event(id, "killing request");
        let call = Call { id, client, m, txn: Txn::at(self.world.time()) };
        self.finish(id, client, tid, call, Err(errno::INTR));
        true
    }

    /// A request withholds no caps any more.
    pub fn let_holds_go(&mut self, id: u64, holds: &BTreeSet<Ino>) {
        for ino in holds {
            if let Some(node) = self.tree.nodes.get_mut(ino) {
                node.caps.holds.remove(&id);
            }
        }
    }

    pub fn after(&mut self, holds: &BTreeSet<Ino>) {
        for ino in holds {
            self.eval(*ino);
            self.requests.wake_caps(*ino);
            self.eval_stray(*ino);
        }
    }

    /// The name that is not there, where its directory is.
    fn missing_dentry(&self, m: &ClientRequest) -> Option<(Ino, Bytes)> {
        let (dir, name) = (m.path.ino, &m.path.path);
        let simple = !name.is_empty() && !name.contains(&b'/');
        let node = self.tree.node(dir)?;
        (simple && node.is_dir() && self.tree.lookup(dir, name).is_ok_and(|e| e.is_none()))
            .then(|| (dir, name.clone()))
    }

    // What operations are made of.

    /// An inode in memory.
    pub fn inode(&self, ino: Ino) -> Op<Ino> {
        if inos::is_private(ino) {
            return Err(errno::STALE.into());
        }
        self.tree.node(ino).map(|_| ino).ok_or(Stop::Ino(ino))
    }

    /// Follows a path; every name has to be there.
    pub fn walk(&self, base: Ino, path: &[u8]) -> Op<Ino> {
        let mut at = self.inode(base)?;
        if path.is_empty() {
            return Ok(at);
        }
        for name in path.split(|b| *b == b'/') {
            if name.is_empty() {
                // What is below is a snapshot's: nothing there can be changed.
                return Err(errno::ROFS.into());
            }
            at = self.child(at, name)?.ok_or(Errno::NOENT)?;
        }
        Ok(at)
    }

    /// The inode that a name leads to.
    pub fn child(&self, dir: Ino, name: &[u8]) -> Op<Option<Ino>> {
        if !self.tree.at(dir).is_dir() {
            return Err(errno::NOTDIR.into());
        }
        if name.len() > 255 {
            return Err(Errno::NAMETOOLONG.into());
        }
        let Some(entry) = self.tree.lookup(dir, name)? else { return Ok(None) };
        let ino = self.inode(entry.link.ino())?;
        if matches!(entry.link, Link::Remote { .. }) && self.tree.at(ino).is_stray() {
            // This name can be its first one.
            let name = Bytes::copy_from_slice(name);
            self.purger.named.borrow_mut().insert(ino, (dir, name));
        }
        Ok(Some(ino))
    }

    /// The directory and the last name of a path.
    pub fn parent(&self, base: Ino, path: &Bytes) -> Op<(Ino, Bytes)> {
        if path.starts_with(b"/") {
            // Below a snapshot, or one itself.
            return Err(errno::ROFS.into());
        }
        let (up, name) = match path.iter().rposition(|b| *b == b'/') {
            Some(at) => (&path[..at], path.slice(at + 1..)),
            None => (&path[..0], path.clone()),
        };
        if name.is_empty() || &name[..] == b"." || &name[..] == b".." {
            return Err(Errno::INVAL.into());
        }
        if name.len() > 255 {
            return Err(Errno::NAMETOOLONG.into());
        }
        let dir = self.walk(base, up)?;
        if !self.tree.at(dir).is_dir() {
            return Err(errno::NOTDIR.into());
        }
        Ok((dir, name))
    }

    /// Whether the client's key allows it; EACCES.
    pub fn check(&self, call: &Call, ino: Ino, wants: MdsMay) -> Op<()> {
        self.check_owner(call, ino, wants, 0, 0)
    }

    pub fn check_owner(
        &self,
        call: &Call,
        ino: Ino,
        wants: MdsMay,
        new_uid: u32,
        new_gid: u32,
    ) -> Op<()> {
        let Some(session) = self.sessions.by_client.get(&call.client) else {
            return Err(Errno::PERM.into());
        };
        let peer = &session.peer;
        if peer.caps.is_allow_all() {
            return Ok(());
        }
        let path = self.tree.path(ino);
        let inode = &self.tree.at(ino).store.inode;
        let access = MdsAccess {
            fs_name: &self.world.map.fs_name,
            path: &String::from_utf8_lossy(&path),
            inode_uid: inode.uid,
            inode_gid: inode.gid,
            inode_mode: inode.mode,
            caller_uid: call.m.caller.uid,
            caller_gid: call.m.caller.gid,
            caller_gids: &call.m.caller.gids,
            wants,
            new_uid,
            new_gid,
            addr: &peer.addr,
        };
        if peer.caps.is_capable(&access) { Ok(()) } else { Err(Errno::ACCES.into()) }
    }

    /// Whether anything may be changed at all; EROFS, ENOSPC.
    pub fn writable(&self) -> Op<()> {
        if self.read_only.is_some() {
            return Err(errno::ROFS.into());
        }
        if self.world.osd.full.contains(&self.world.meta()) {
            return Err(Errno::NOSPC.into());
        }
        Ok(())
    }

    /// Takes back caps of `ino` that the request needs: `own` from its client, `others` from all
    /// others.
    pub fn need(&mut self, call: &Call, ino: Ino, own: u32, others: u32) -> Op<()> {
        if let Some(request) = self.requests.all.get_mut(&call.id) {
            request.holds.insert(ino);
        }
        if self.withhold(call.id, ino, call.client, own, others) {
            Ok(())
        } else {
            Err(Stop::Caps(ino))
        }
    }

    /// Others must have told what they changed under these shared caps.
    pub fn need_read(&mut self, call: &Call, ino: Ino, mask: u32) -> Op<()> {
        let mut others = 0;
        if mask & bits::AS != 0 {
            others |= bits::AX;
        }
        if mask & bits::XS != 0 {
            others |= bits::XX;
        }
        if mask & bits::F != 0 && !self.tree.at(ino).is_dir() {
            others |= bits::WRITES;
        }
        if mask & bits::F != 0 && !self.tree.at(ino).is_dir() {
            self.need_size(ino)?;
        }
        if others == 0 { Ok(()) } else { self.need(call, ino, 0, others) }
    }

    /// A directory is listed: its client gets `Fs` with the answer, and waits where that is withheld
    /// from it.
    pub fn need_listing(&mut self, call: &Call, dir: Ino) -> Op<()> {
        self.requests.shared.end(dir);
        match self.tree.at(dir).caps.withheld(call.client, bits::FS) {
            true => Err(Stop::Caps(dir)),
            false => Ok(()),
        }
    }

    /// A directory's entries are about to change.
    pub fn need_dir(&mut self, call: &Call, dir: Ino) -> Op<()> {
        let cap = self.tree.at(dir).caps.by_client.get(&call.client);
        let own = if cap.is_some_and(|c| c.issued & bits::FX != 0) { 0 } else { bits::FS };
        let others = bits::FS | bits::FX;
        let hold = Hold { client: call.client, own: 0, others };
        if self.tree.at(dir).caps.blocks(&hold) || self.tree.tags.others_changed(dir, call.client) {
            self.requests.shared.note(dir, self.world.ms());
        }
        self.need(call, dir, own, others)
    }
}

/// Whether what a request changes is noted by tags, so that its own client may hear of it at once.
/// Others are answered when they are durable, and all wait for them: they change what is inherited
/// by all below, or snapshots; and so are kinds that are not named here.
fn is_plain(m: &ClientRequest) -> bool {
    let own_attr = || !m.path2.path.starts_with(b"ceph.");
    match m.op {
        mds_op::CREATE
        | mds_op::OPEN
        | mds_op::MKNOD
        | mds_op::MKDIR
        | mds_op::SYMLINK
        | mds_op::LINK
        | mds_op::UNLINK
        | mds_op::RMDIR
        | mds_op::RENAME
        | mds_op::SETATTR => true,
        mds_op::SETXATTR | mds_op::RMXATTR => own_attr(),
        _ => false,
    }
}
