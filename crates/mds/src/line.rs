//! Back pressure: changes wait in line while too much of the memory is not written back.
//!
//! What is not written back cannot be dropped, so that without a line a client that makes more than
//! can be written passes `mds_cache_memory_limit`. Reads, releases and flushes of caps, and messages
//! about sessions never wait here. What waits has changed nothing, is in no record, and withholds no
//! caps from others: whoever has the rank next hears it again from its client.
//!
//! Who makes much waits first: a session waits where its share of the changes lately is at least half
//! of an average one. So one that makes most always waits, and those that pass make less than half of
//! what is made.
//!
//! Source: the peer has no such line; its `mds_log_max_segments` and `MDCache::trim` do part of it.

use std::collections::{BTreeMap, BTreeSet};

use messages::fs::{Args, ClientRequest, mds_op, request_flag};

use crate::ops::is_open_for_change;
use crate::rank::Rank;

/// Of what fits in memory, one part in so many that is not written: all is written at once then.
const WRITE_PART: usize = 4;
/// The same: changes wait.
const CLOSE_PART: usize = 2;
/// They go on at so many sixteenths of what fits.
const REOPEN_16THS: usize = 6;
/// The same of [`WRITE_PART`], [`CLOSE_PART`] and the end of it where memory is full: little is dirty
/// then, so that whole fragments get clean and can be dropped.
const FULL_WRITE_PART: usize = 16;
const FULL_CLOSE_PART: usize = 8;
const FULL_REOPEN_PART: usize = 64;
/// Changes of a session count half after this time.
const HALF_LIFE_MS: u64 = 4_000;

/// Requests that wait until more is written back.
#[derive(Debug, Default)]
pub(crate) struct Line {
    /// By client.
    waiting: BTreeMap<i64, BTreeSet<u64>>,
    /// Changes wait.
    closed: bool,
    /// What a session may have made lately and still need not wait.
    share: f64,
}

impl Line {
    /// A request is gone.
    pub fn forget(&mut self, client: i64, request: u64) {
        if let Some(waiting) = self.waiting.get_mut(&client) {
            waiting.remove(&request);
            if waiting.is_empty() {
                self.waiting.remove(&client);
            }
        }
    }

    /// Takes so many requests, one of each client after another; `clients` first.
    fn take(&mut self, clients: &[i64], mut most: usize) -> Vec<u64> {
        let mut taken = Vec::new();
        let is_there = |line: &Self| clients.iter().any(|client| line.waiting.contains_key(client));
        while most > 0 && is_there(self) {
            for client in clients {
                let Some(waiting) = self.waiting.get_mut(client).filter(|_| most > 0) else {
                    continue;
                };
                taken.extend(waiting.pop_first());
                most -= 1;
                if waiting.is_empty() {
                    self.waiting.remove(client);
                }
            }
        }
        taken
    }
}

/// How much is not written back, of what fits in memory.
#[derive(Clone, Copy, Debug)]
struct Load {
    /// Inodes and entries that are not written back.
    unwritten: usize,
    /// Inodes that fit.
    fits: usize,
    /// No more do.
    is_full: bool,
}

impl Load {
    const fn writes_all(self) -> bool {
        let part = if self.is_full { FULL_WRITE_PART } else { WRITE_PART };
        self.unwritten >= self.fits / part
    }

    const fn closes(self) -> bool {
        self.unwritten >= self.most()
    }

    /// What may be unwritten while changes go on.
    const fn most(self) -> usize {
        self.fits / if self.is_full { FULL_CLOSE_PART } else { CLOSE_PART }
    }

    const fn reopens(self) -> bool {
        if self.is_full {
            self.unwritten <= self.fits / FULL_REOPEN_PART
        } else {
            self.unwritten <= self.fits / 16 * REOPEN_16THS
        }
    }
}

impl Rank {
    fn load(&self) -> Load {
        let inodes = self.tree.nodes.len();
        let fits = self.inodes_fitting();
        Load { unwritten: self.tree.unwritten(), fits, is_full: inodes >= fits }
    }

    /// Whether all that is dirty is written at once, because of memory.
    pub fn is_loaded(&self) -> bool {
        self.requests.line.closed || self.load().writes_all()
    }

    /// Whether changes wait in line.
    pub fn is_closed(&self) -> bool {
        self.requests.line.closed
    }

    /// Closes the line, or opens it; lets go who need not wait any more.
    pub fn look_at_line(&mut self) {
        let load = self.load();
        // Who stops writes what is dirty, and takes no more from clients.
        let held = self.is_active() && !self.boot.is_stopping();
        let line = &mut self.requests.line;
        let was = line.closed;
        line.closed = held && if was { !load.reopens() } else { load.closes() };
        if line.closed && !was {
            tracing::debug!(load.unwritten, load.fits, "changes wait for what is written back");
            self.share_line();
        }
        let line = &self.requests.line;
        if !line.closed && !line.waiting.is_empty() {
            let room = if held { load.most().saturating_sub(load.unwritten) } else { usize::MAX };
            self.let_go(room);
        }
    }

    /// Sees anew who makes much. Costs a look at each session.
    pub fn share_line(&mut self) {
        let now = self.world.ms();
        let made = self.sessions.by_client.values().map(|s| s.made.get(now, HALF_LIFE_MS));
        let (count, sum) =
            made.filter(|made| *made >= 1.0).fold((0, 0.0), |(n, all), made| (n + 1, all + made));
        self.requests.line.share = sum / f64::from(2 * count.max(1));
        if self.requests.line.closed {
            // Those that make little by now, as many as leave it little.
            let share = self.requests.line.share;
            let room =
                |client: &i64| (*client, (share - self.made(*client)).ceil().max(0.0) as usize);
            let rooms: Vec<_> = self.requests.line.waiting.keys().map(room).collect();
            for (client, room) in rooms {
                let freed = self.requests.line.take(&[client], room);
                self.requests.wake(freed);
            }
        }
    }

    /// Changes of a client lately.
    fn made(&self, client: i64) -> f64 {
        let session = self.sessions.by_client.get(&client);
        session.map_or(0.0, |s| s.made.get(self.world.ms(), HALF_LIFE_MS))
    }

    fn makes_much(&self, client: i64) -> bool {
        self.made(client) >= self.requests.line.share
    }

    /// Who made least goes first.
    fn let_go(&mut self, room: usize) {
        let mut clients: Vec<i64> = self.requests.line.waiting.keys().copied().collect();
        clients.sort_by_cached_key(|client| self.made(*client) as u64);
        let freed = self.requests.line.take(&clients, room);
        self.requests.wake(freed);
    }

    /// A client's request or flush of caps was carried out and changed something.
    pub fn count_change(&mut self, client: i64) {
        let now = self.world.ms();
        if let Some(session) = self.sessions.by_client.get_mut(&client) {
            session.made.add(1, now, HALF_LIFE_MS);
        }
    }

    /// Whether a request has to wait in line.
    pub fn has_to_wait(&mut self, client: i64, m: &ClientRequest) -> bool {
        self.look_at_line();
        self.requests.line.closed
            && changes(m)
            && m.flags & request_flag::REPLAY == 0
            // Refused ones are refused at once.
            && self.writable().is_ok()
            && (self.makes_much(client) || self.tree.unwritten() >= self.inodes_fitting())
    }

    /// Has a request wait in line, and gives back meanwhile what it withholds from others.
    pub fn wait_in_line(&mut self, id: u64, client: i64) {
        self.requests.line.waiting.entry(client).or_default().insert(id);
        let Some(request) = self.requests.all.get_mut(&id) else { return };
        let holds = std::mem::take(&mut request.holds);
        self.let_holds_go(id, &holds);
        self.after(&holds);
    }
}

/// Whether a request makes inodes dirty.
fn changes(m: &ClientRequest) -> bool {
    match m.op {
        mds_op::SETFILELOCK => false,
        mds_op::OPEN => {
            matches!(Args::read(m.op, &m.args), Ok(Args::Open(args)) if is_open_for_change(args.flags))
        }
        op => op & mds_op::WRITE != 0,
    }
}
