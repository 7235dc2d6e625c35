//! A rank in the hands of this server: what it knows, and how its parts reach the world.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use env::Now;
use maps::fs::DirFrag;
use maps::{MdsMap, MdsState};
use types::{Epoch, Errno, Ino, PoolId, SnapId, UTime};

use crate::boot::Boot;
use crate::commands::Flush;
use crate::counters::Counters;
use crate::gate::Gate;
use crate::journal::{self, Journal};
use crate::record::{Change, Record};
use crate::request::Requests;
use crate::scrub::Scrubs;
use crate::session::Sessions;
use crate::stray::Purger;
use crate::tables::Tables;
use crate::tags::SERVER;
use crate::tree::{Tree, Txn};
use crate::trim::Memory;
use crate::writeback::Writeback;
use crate::{Config, Effect, Io, IoAnswer, IoId, IoOp, OsdNews, Severity};

/// What an answer of the OSDs belongs to.
#[derive(Clone, Debug)]
pub(crate) enum Job {
    /// A part of the way to being active, by its tag.
    Boot(String),
    /// Records are durable.
    Append,
    /// The journal's head is written: these objects go.
    Trimmed(Vec<u64>),
    /// A fragment is being read: header and pairs so far.
    Fetch(DirFrag, Option<Bytes>, BTreeMap<Bytes, Bytes>),
    /// A backtrace is being read; pools that may have it, too.
    Trace(Ino, Vec<PoolId>),
    /// A part of a fragment is written back, of so many bytes; it began then, in ms.
    WroteFrag(DirFrag, usize, u64),
    /// So is a backtrace, which began then.
    WroteTrace(Ino, u64),
    /// So is a system inode.
    WroteSystem(Ino),
    /// So are tables.
    WroteTables,
    /// An object of a file whose writer is gone was looked at.
    Probed(Ino, u64),
    /// One object of a removed inode is gone.
    Purged(Ino),
    /// One object of a file that was cut is.
    Cut(Ino),
    /// The monitors blocklisted a client.
    Blocklisted(i64),
    /// The objects of a clean stop are written, step by step.
    Stopping,
    /// A scrub reads an inode's backtrace.
    Scrub(Ino),
    /// Nobody waits for it.
    Nothing,
}

/// Answers that are awaited.
#[derive(Debug, Default)]
pub(crate) struct Jobs {
    last: u64,
    waiting: BTreeMap<IoId, Job>,
}

/// What the world around is known to be.
#[derive(Debug)]
pub(crate) struct World {
    pub config: Config,
    pub map: MdsMap,
    pub osd: OsdNews,
    pub now: Now,
}

impl World {
    pub fn time(&self) -> UTime {
        UTime::from_nanos(self.now.wall_ns)
    }

    pub const fn ms(&self) -> u64 {
        self.now.mono_ms()
    }

    pub const fn meta(&self) -> PoolId {
        self.map.metadata_pool
    }

    pub fn data(&self) -> PoolId {
        self.map.data_pools.first().copied().unwrap_or(PoolId(-1))
    }
}

/// Who waits for what is not in memory.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    /// Requests by the fragment that is being read.
    pub frags: BTreeMap<DirFrag, BTreeSet<u64>>,
    /// Requests by the inode that is looked for.
    pub inos: BTreeMap<Ino, BTreeSet<u64>>,
    /// Inodes that are looked for, with the directories above as its backtrace says.
    pub traces: BTreeMap<Ino, Vec<(Ino, Bytes)>>,
    /// Inodes that are nowhere.
    pub lost: BTreeSet<Ino>,
    /// Where inodes are whose backtrace may not be stored yet.
    pub hints: BTreeMap<Ino, (Ino, Bytes)>,
    /// Caps that clients reported of inodes that are looked for.
    pub rejoining: BTreeSet<Ino>,
}

/// A rank.
#[derive(Debug)]
pub(crate) struct Rank {
    pub id: i32,
    pub world: World,
    /// Wishes of the event being handled.
    pub fx: Vec<Effect>,
    /// Wishes that wait for records to be durable.
    pub gate: Gate,
    jobs: Jobs,
    pub boot: Boot,
    pub tree: Tree,
    pub journal: Journal,
    pub tables: Tables,
    pub sessions: Sessions,
    pub requests: Requests,
    pub waiting: Waiting,
    pub writeback: Writeback,
    pub purger: Purger,
    pub scrubs: Scrubs,
    pub counted: Counters,
    /// The state that is wished for, when it is not the map's.
    pub wish: Option<MdsState>,
    /// Why nothing may be changed.
    pub read_only: Option<String>,
    /// Commands that wait for all to be written back.
    pub flushes: Vec<Flush>,
    pub last_tick_ms: u64,
    pub memory: Memory,
    /// The monitors do not answer: nobody is evicted meanwhile.
    pub laggy: bool,
}

impl Rank {
    pub fn new(id: i32, config: Config, map: MdsMap, osd: OsdNews, now: Now) -> Self {
        Self {
            id,
            world: World { config, map, osd, now },
            fx: Vec::new(),
            gate: Gate::default(),
            jobs: Jobs::default(),
            boot: Boot::default(),
            tree: Tree { first: SnapId(2), ..Tree::default() },
            journal: Journal::default(),
            tables: Tables::default(),
            sessions: Sessions::default(),
            requests: Requests::default(),
            waiting: Waiting::default(),
            writeback: Writeback::default(),
            purger: Purger::default(),
            scrubs: Scrubs::default(),
            counted: Counters::default(),
            wish: None,
            read_only: None,
            flushes: Vec::new(),
            last_tick_ms: 0,
            memory: Memory::default(),
            laggy: false,
        }
    }

    pub fn state(&self) -> MdsState {
        let info = self.world.map.mds_info.get(&self.world.config.gid);
        info.map_or(MdsState::NULL, |i| i.state)
    }

    pub fn is_active(&self) -> bool {
        self.state() == MdsState::ACTIVE && self.boot.is_done()
    }

    /// Asks for I/O now.
    pub fn io(&mut self, pool: PoolId, object: String, ops: Vec<IoOp>, job: Job) -> IoId {
        let id = self.job(job);
        let snapc = (SnapId(0), Vec::new());
        self.fx.push(Effect::Io(Io { id, pool, object, nspace: Bytes::new(), snapc, ops }));
        id
    }

    pub fn job(&mut self, job: Job) -> IoId {
        self.jobs.last += 1;
        let id = IoId(self.jobs.last);
        self.jobs.waiting.insert(id, job);
        id
    }

    /// Asks for I/O in the metadata pool.
    pub fn meta_io(&mut self, object: String, ops: Vec<IoOp>, job: Job) -> IoId {
        self.io(self.world.meta(), object, ops, job)
    }

    /// As [`Rank::io`], once all records so far are durable.
    pub fn io_behind(&mut self, io: Io) {
        self.behind(Effect::Io(io));
    }

    /// Makes a transaction a record that everybody waits for who sees what it changed. Nothing is
    /// kept of an empty one.
    pub fn commit(&mut self, txn: Txn) {
        self.commit_of(txn, SERVER);
    }

    /// The same for a client: it sees at once what it changed, where it may see what that was made of.
    pub fn commit_of(&mut self, txn: Txn, author: i64) {
        if txn.is_empty() {
            return;
        }
        let changes = self.tree.changes(&txn);
        let object = self.journal.submit(&mut Record { seq: 0, changes });
        self.tree.leave_tags(&txn, self.journal.submitted, author);
        let now = self.world.ms();
        self.tree.mark(&txn, object, now);
        self.tables.dirty_since.get_or_insert(object);
    }

    /// Records something beside the tree.
    pub fn note(&mut self, change: Change) {
        let mut txn = Txn::at(self.world.time());
        txn.other.push(change);
        self.commit(txn);
    }

    /// Runs what can run, writes what is to be written, lets out what may leave.
    pub fn pump(&mut self) {
        if !self.boot.is_leaving() {
            self.look_at_line();
            self.run_requests();
            self.replay_on();
        }
        if self.is_active() {
            self.cut_all();
        }
        self.scrub_on();
        if let Some(append) = self.journal.next() {
            let object = journal::data_object(self.id, append.object);
            let op = IoOp::Write { off: append.off, data: append.data };
            self.meta_io(object, vec![op], Job::Append);
        }
    }

    pub fn on_done(&mut self, id: IoId, result: Result<IoAnswer, Errno>) {
        let Some(job) = self.jobs.waiting.remove(&id) else {
            tracing::debug!(io = id.0, "an answer to nothing");
            return;
        };
        if let Err(crate::errno::SHUTDOWN) = result {
            self.fx.push(Effect::Respawn { why: "this server is blocklisted".to_owned() });
            return;
        }
        match job {
            Job::Boot(tag) => self.boot_done(tag, result),
            Job::Append => match result {
                Ok(_) => {
                    self.journal.appended();
                    self.let_out();
                }
                Err(e) => self.give_up(format!("the journal cannot be written: {e:?}")),
            },
            Job::Trimmed(gone) => {
                if result.is_ok() {
                    for n in gone {
                        let object = journal::data_object(self.id, n);
                        self.meta_io(object, vec![IoOp::Remove], Job::Nothing);
                    }
                }
            }
            Job::Fetch(dir, header, pairs) => self.fetched(dir, header, pairs, result),
            Job::Trace(ino, pools) => self.traced(ino, pools, result),
            Job::WroteFrag(dir, bytes, began_ms) => {
                self.wrote_frag(dir, (bytes, began_ms), result.map(drop));
            }
            Job::WroteTrace(ino, began_ms) => self.wrote_trace(ino, began_ms, result.map(drop)),
            Job::WroteSystem(ino) => self.wrote_system(ino, result.map(drop)),
            Job::WroteTables => self.wrote_tables(result.map(drop)),
            Job::Probed(ino, object) => self.size_probed(ino, object, result),
            Job::Purged(ino) => self.purged(ino, result.map(drop)),
            Job::Cut(ino) => self.cut_done(ino, result.map(drop)),
            // A server that leaves keeps the session: the next one ends it.
            Job::Blocklisted(_) if self.boot.is_leaving() => {}
            Job::Blocklisted(client) => self.end_session(client, true),
            Job::Stopping => self.stop_step(result.map(drop)),
            Job::Scrub(ino) => self.scrub_traced(ino, result),
            Job::Nothing => {}
        }
    }

    /// The rank cannot go on here.
    pub fn give_up(&mut self, why: String) {
        self.fx.push(Effect::ClusterLog { severity: Severity::Error, text: why.clone() });
        self.fx.push(Effect::Respawn { why });
    }

    /// The objects of this rank cannot be served by anybody.
    pub fn damaged(&mut self, why: String) {
        tracing::error!(rank = self.id, why, "the rank is damaged");
        self.fx.push(Effect::ClusterLog { severity: Severity::Error, text: why });
        self.wish = Some(MdsState::DAMAGED);
    }

    pub fn on_tick(&mut self) {
        let now = self.world.ms();
        if !self.boot.is_done() {
            self.boot_tick();
            return;
        }
        if self.boot.is_ending() {
            return; // the tree is whole: nothing may change it
        }
        if now >= self.last_tick_ms + 250 {
            self.last_tick_ms = now;
            self.requests.wake_throttled(now);
            for dir in self.requests.shared.take_quiet(now) {
                self.eval(dir);
            }
            match self.state() {
                _ if self.boot.is_leaving() => {}
                MdsState::ACTIVE | MdsState::CLIENTREPLAY if !self.laggy => self.session_tick(),
                MdsState::RECONNECT => self.reconnect_check(),
                _ => {}
            }
            let mut txn = Txn::at(self.world.time());
            self.tree.settle_all(&mut txn);
            self.commit(txn);
            if self.is_active() || self.boot.is_stopping() {
                self.recover_tick();
                self.purge_tick();
            }
            self.remove_snaps();
            self.trim_tick();
            self.fragment_tick();
            self.scrub_tick();
            self.tree.count_unwritten();
            self.share_line();
            self.write_back();
            self.stop_tick();
        }
    }

    pub fn epoch(&self) -> Epoch {
        self.world.map.epoch
    }
}
