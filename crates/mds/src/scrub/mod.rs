//! Scrub: a walk of the tree that compares what is stored with what it has to be, and mends it on
//! demand, through the journal, as any other change.
//!
//! ```text
//!            scrub start                    pause
//!   Idle ◀──────────────▶ Running ─▶ Pausing ─▶ Paused
//!         all is looked at   ▲ abort: Idle, once nothing is being read
//!                            └─────────── resume ───┘
//! ```
//!
//! The walk goes depth first. Its memory is one [`Frame`] for each directory on the way down, and
//! at most [`FLYING_MAX`] inodes whose backtrace is being read. Requests of clients run first. Each
//! scrub looks at all: none leaves out what did not change since the last one.
//!
//! Source: the peer's `ScrubStack.cc`, `CInode::validate_disk_state`.

mod check;
mod walk;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use maps::fs::{Frag, inos};
use types::{Errno, Ino, UTime};

use crate::outbox::Severity;
use crate::rank::Rank;
use crate::{AskId, Effect};

/// Inodes whose backtrace is being read at the same time: the peer's
/// `mds_max_scrub_ops_in_progress`.
const FLYING_MAX: usize = 5;
/// Scrubs that are asked for and whose path is not found yet.
const STARTS_MAX: usize = 64;
/// Scrubs that are told of by `scrub status` after their end.
const STATS_MAX: usize = 1_000;
/// For so long: the peer's `mds_scrub_stats_review_period`.
const STATS_NS: u64 = 24 * 3600 * 1_000_000_000;

/// Whether the walk goes on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum State {
    #[default]
    Idle,
    Running,
    /// What is being read is waited for.
    Pausing,
    Paused,
}

impl State {
    pub const fn text(self) -> &'static str {
        match self {
            Self::Idle => "IDLE",
            Self::Running => "RUNNING",
            Self::Pausing => "PAUSING",
            Self::Paused => "PAUSED",
        }
    }
}

/// What a scrub was asked to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wish {
    pub recursive: bool,
    pub repair: bool,
    pub force: bool,
    /// The rank's own directory with strays, too.
    pub mds_dir: bool,
    /// The tag is the operator's: it is left at the first object of each inode.
    pub tagged: bool,
}

impl Wish {
    /// `recursive,repair,force,scrub_mdsdir`
    pub fn text(&self) -> String {
        let words = [
            (self.recursive, "recursive"),
            (self.repair, "repair"),
            (self.force, "force"),
            (self.mds_dir, "scrub_mdsdir"),
        ];
        words.iter().filter(|(on, _)| *on).map(|(_, w)| *w).collect::<Vec<_>>().join(",")
    }
}

/// One scrub that runs or waits.
#[derive(Debug)]
pub(crate) struct Scrub {
    pub origin: Ino,
    pub wish: Wish,
}

/// An inode on the way down.
#[derive(Debug)]
struct Frame {
    tag: Arc<str>,
    ino: Ino,
    /// It was looked at itself; its children are next.
    is_checked: bool,
    /// Fragments whose entries were all visited.
    done: BTreeSet<Frag>,
    /// The fragment that is being visited, and the last name of it that was.
    at: Option<(Frag, Bytes)>,
    /// Damaged fragments that were read again.
    tried: BTreeSet<Frag>,
}

impl Frame {
    fn new(tag: Arc<str>, ino: Ino) -> Self {
        let (done, tried) = (BTreeSet::new(), BTreeSet::new());
        Self { tag, ino, is_checked: false, done, at: None, tried }
    }
}

/// What is waited for.
#[derive(Debug)]
enum Flying {
    /// An inode's backtrace is being read; it was there when that began.
    Trace { tag: Arc<str>, at: Option<(Ino, Bytes)>, found: Found },
    /// The inode that a further name leads to is looked for; the name's path.
    Remote { tag: Arc<str>, path: String },
}

impl Flying {
    fn tag(&self) -> &Arc<str> {
        match self {
            Self::Trace { tag, .. } | Self::Remote { tag, .. } => tag,
        }
    }
}

/// What was found of an inode before its backtrace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Found {
    /// Sums are wrong, and were not mended.
    is_wrong: bool,
    /// Something was wrong, and was mended.
    is_mended: bool,
}

/// A command that looks for its path.
#[derive(Debug)]
pub(crate) struct Start {
    pub ask: AskId,
    /// The inode so far, and the names behind it, the last one first.
    pub at: Ino,
    pub rest: Vec<Bytes>,
    pub tag: String,
    pub wish: Wish,
}

/// What is told of a scrub also after its end.
#[derive(Debug)]
pub(crate) struct Stat {
    pub began: UTime,
    pub path: String,
}

/// All scrubs.
#[derive(Debug, Default)]
pub(crate) struct Scrubs {
    pub state: State,
    /// An abort waits for what is being read.
    pub aborts: bool,
    pub all: BTreeMap<Arc<str>, Scrub>,
    /// What to look at; the last one is next.
    frames: Vec<Frame>,
    flying: BTreeMap<Ino, Flying>,
    starts: Vec<Start>,
    /// Commands that wait for a pause or an abort.
    controls: Vec<AskId>,
    /// When a fragment was last read although memory was full.
    squeezed_ms: u64,
    pub stats: BTreeMap<Arc<str>, Stat>,
    /// Counts tags that are made here.
    tags: u64,
}

impl Scrubs {
    /// Inodes that stay in memory meanwhile.
    pub fn pinned(&self) -> impl Iterator<Item = Ino> {
        let frames = self.frames.iter().map(|f| f.ino);
        frames.chain(self.flying.keys().copied()).chain(self.starts.iter().map(|s| s.at))
    }

    /// Inodes on the way down.
    pub fn stacked(&self) -> usize {
        self.frames.len()
    }

    fn is_at_work(&self, tag: &Arc<str>) -> bool {
        self.frames.iter().any(|f| f.tag == *tag) || self.flying.values().any(|f| f.tag() == tag)
    }

    fn has(&self, ino: Ino) -> bool {
        self.frames.iter().any(|f| f.ino == ino) || self.flying.contains_key(&ino)
    }
}

impl Rank {
    /// A tag of the form of a UUID that no other scrub has: of this server's number, the time, and
    /// how many there were.
    pub fn new_scrub_tag(&mut self) -> String {
        self.scrubs.tags += 1;
        let (gid, ns) = (self.world.config.gid, self.world.now.wall_ns);
        let mix = |n: u64| (n ^ n >> 29).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let (a, b) = (mix(ns ^ gid.rotate_left(32)), mix(gid ^ self.scrubs.tags << 48 ^ ns));
        format!(
            "{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
            a >> 32,
            a >> 16 & 0xffff,
            a & 0xfff,
            b >> 48 & 0x3fff | 0x8000,
            b & 0xffff_ffff_ffff
        )
    }

    /// Looks for the path of a scrub, which begins then. `false`: too many are looked for.
    pub fn scrub_start(&mut self, start: Start) -> bool {
        let is_room = self.scrubs.starts.len() < STARTS_MAX;
        if is_room {
            self.scrubs.starts.push(start);
        }
        is_room
    }

    /// Begins a scrub. EAGAIN while others are being aborted, EEXIST where one has that tag, EBUSY
    /// where one is at that inode.
    fn scrub_begin(&mut self, origin: Ino, tag: &str, wish: Wish) -> Result<(), Errno> {
        let scrubs = &mut self.scrubs;
        if scrubs.aborts {
            return Err(Errno::AGAIN);
        }
        let tag: Arc<str> = tag.into();
        if scrubs.all.contains_key(&tag) {
            return Err(Errno::EXIST);
        }
        let own = inos::mds_dir(self.id as u64);
        if scrubs.has(origin) || wish.mds_dir && scrubs.has(own) {
            return Err(Errno::BUSY);
        }
        scrubs.all.insert(tag.clone(), Scrub { origin, wish });
        // Those that began before go first.
        scrubs.frames.insert(0, Frame::new(tag.clone(), origin));
        if wish.mds_dir {
            scrubs.frames.insert(1, Frame::new(tag.clone(), own));
        }
        let (path, began) = (self.path_text(origin), self.world.time());
        self.say_log(Severity::Info, format!("scrub queued for path: {path}"));
        let path = if origin == own { "~mdsdir".to_owned() } else { path };
        self.scrubs.stats.insert(tag, Stat { began, path });
        self.scrub_summary();
        Ok(())
    }

    /// Lets what is being read end, and goes no further: answered then. EINVAL while all
    /// are being aborted.
    pub fn scrub_pause(&mut self, ask: AskId) -> Option<Errno> {
        if self.scrubs.aborts {
            return Some(Errno::INVAL);
        }
        if matches!(self.scrubs.state, State::Running | State::Pausing) {
            self.scrubs.controls.push(ask);
            self.scrub_enter(State::Pausing);
            return None;
        }
        self.scrub_enter(State::Paused);
        Some(Errno(0))
    }

    /// Drops all scrubs, once nothing is being read: answered then.
    pub fn scrub_abort(&mut self, ask: AskId) -> Option<Errno> {
        self.scrubs.aborts = true;
        if matches!(self.scrubs.state, State::Running | State::Pausing) {
            self.scrubs.controls.push(ask);
            return None;
        }
        self.scrub_drop();
        Some(Errno(0))
    }

    pub fn scrub_resume(&mut self) -> Errno {
        if self.scrubs.aborts {
            return Errno::INVAL;
        }
        match self.scrubs.state {
            State::Pausing => {
                self.scrub_enter(State::Running);
                self.scrub_answer(crate::errno::CANCELED);
            }
            State::Paused => self.scrub_enter(State::Running),
            State::Idle | State::Running => {}
        }
        Errno(0)
    }

    /// Forgets what is still to be looked at.
    fn scrub_drop(&mut self) {
        self.scrubs.frames.clear();
        self.scrubs.aborts = false;
        if self.scrubs.state != State::Paused {
            self.scrub_enter(State::Idle);
        }
    }

    fn scrub_answer(&mut self, result: Errno) {
        for ask in std::mem::take(&mut self.scrubs.controls) {
            self.say_control(ask, result);
        }
    }

    fn scrub_enter(&mut self, state: State) {
        if self.scrubs.state != state {
            self.scrubs.state = state;
            self.scrub_summary();
        }
    }

    /// A rank that is not served any more scrubs nothing.
    fn scrub_end_all(&mut self) {
        for start in std::mem::take(&mut self.scrubs.starts) {
            self.say_start(start.ask, Err(Errno::AGAIN));
        }
        self.scrub_answer(crate::errno::CANCELED);
        let tags = self.scrubs.tags;
        self.scrubs = Scrubs { tags, ..Scrubs::default() };
    }

    fn scrub_summary(&mut self) {
        let s = &self.scrubs;
        let mut text = match (s.state, s.aborts) {
            (State::Idle, _) if s.all.is_empty() => "idle",
            (State::Idle, false) => "idle+waiting",
            (State::Idle, true) => "idle+waiting+aborting",
            (State::Running, false) => "active",
            (State::Running, true) => "aborting",
            (State::Pausing, false) => "pausing",
            (State::Pausing, true) => "pausing+aborting",
            (State::Paused, false) => "paused",
            (State::Paused, true) => "paused+aborting",
        }
        .to_owned();
        if !s.all.is_empty() {
            let paths: Vec<String> = s.all.values().map(|s| self.scrub_path(s.origin)).collect();
            text = format!("{text} paths [{}]", paths.join(","));
        }
        self.say_log(Severity::Info, format!("scrub summary: {text}"));
    }

    /// The path of a scrub's first inode; its number where that is gone.
    pub fn scrub_path(&self, origin: Ino) -> String {
        match self.tree.node(origin) {
            Some(_) => self.path_text(origin),
            None => format!("#{origin:#x}"),
        }
    }

    fn say_log(&mut self, severity: Severity, text: String) {
        self.fx.push(Effect::ClusterLog { severity, text });
    }

    /// Forgets scrubs that have ended, and what is told of them a day later.
    pub fn scrub_tick(&mut self) {
        let ended: Vec<Arc<str>> =
            self.scrubs.all.keys().filter(|tag| !self.scrubs.is_at_work(tag)).cloned().collect();
        for tag in &ended {
            self.scrubs.all.remove(tag);
        }
        if !ended.is_empty() {
            self.scrub_summary();
        }
        let now = self.world.time().nanos();
        let (all, stats) = (&self.scrubs.all, &mut self.scrubs.stats);
        let old = |s: &Stat| now.saturating_sub(s.began.nanos()) > STATS_NS;
        stats.retain(|tag, s| all.contains_key(tag) || !old(s));
        while stats.len() > STATS_MAX {
            stats.pop_first();
        }
    }
}
