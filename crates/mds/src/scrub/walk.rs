//! The walk, step by step.

use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use denc::{Features, Writer};
use maps::fs::{Backtrace, DirFrag, ScrubMark, inos, object_name};
use types::{Denc, Errno, Ino, PoolId};

use super::{FLYING_MAX, Flying, Found, Frame, Start, State, Wish};
use crate::outbox::Severity;
use crate::rank::{Job, Rank};
use crate::tree::{Link, Txn};
use crate::trim::LOOK_MS;
use crate::{IoAnswer, IoData, IoOp};

/// Steps of one event at most. Most of them begin to read something, and end the event so.
const STEPS_MAX: usize = 1_000;

/// Where the walk goes from a directory.
enum Next {
    /// An inode whose first name is here.
    Child(Ino),
    /// A further name of an inode, with its path.
    Remote(Ino, String),
    /// A fragment is being read.
    Wait,
    /// All was visited.
    End,
}

impl Rank {
    /// Goes on, as far as nothing has to be waited for.
    pub fn scrub_on(&mut self) {
        let s = &self.scrubs;
        let is_idle = s.all.is_empty() && s.starts.is_empty() && s.controls.is_empty();
        if is_idle && s.frames.is_empty() && s.state != State::Running {
            return;
        }
        if !self.is_active() || self.boot.is_leaving() {
            return self.scrub_end_all();
        }
        self.find_starts();
        self.look_at_remotes();
        let s = &self.scrubs;
        let is_held = s.aborts || matches!(s.state, State::Pausing | State::Paused);
        if is_held {
            if self.scrubs.flying.is_empty() && self.scrubs.state != State::Paused {
                let pauses = self.scrubs.state == State::Pausing;
                if self.scrubs.aborts {
                    self.scrubs.frames.clear();
                    self.scrubs.aborts = false;
                }
                self.scrub_enter(if pauses { State::Paused } else { State::Idle });
                self.scrub_answer(Errno(0));
            }
            return;
        }
        for _ in 0..STEPS_MAX {
            if self.scrubs.frames.is_empty() || self.scrubs.flying.len() >= FLYING_MAX {
                break;
            }
            self.scrub_enter(State::Running);
            if !self.scrub_step() {
                break;
            }
        }
        if self.scrubs.frames.is_empty() && self.scrubs.flying.is_empty() {
            self.scrub_enter(State::Idle);
        }
    }

    /// Follows the paths of scrubs that are asked for.
    fn find_starts(&mut self) {
        let mut waiting = Vec::new();
        for mut start in std::mem::take(&mut self.scrubs.starts) {
            match self.follow_start(&mut start) {
                None => waiting.push(start),
                Some(Err(e)) => self.say_start(start.ask, Err(e)),
                Some(Ok(())) => {
                    let begun = self.scrub_begin(start.at, &start.tag, start.wish);
                    self.say_start(start.ask, begun.map(|()| start.tag));
                }
            }
        }
        waiting.append(&mut self.scrubs.starts);
        self.scrubs.starts = waiting;
    }

    /// `None` while something is being read.
    fn follow_start(&mut self, start: &mut Start) -> Option<Result<(), Errno>> {
        loop {
            if self.tree.node(start.at).is_none() {
                // The inode of a further name.
                if self.waiting.lost.remove(&start.at) {
                    return Some(Err(Errno::NOENT));
                }
                if !self.waiting.inos.contains_key(&start.at) {
                    self.open_ino(start.at, 0);
                }
                return None;
            }
            let Some(name) = start.rest.last() else { return Some(Ok(())) };
            if !self.tree.at(start.at).is_dir() {
                return Some(Err(crate::errno::NOTDIR));
            }
            let missing = match self.tree.lookup(start.at, name) {
                Ok(Some(entry)) => {
                    start.at = entry.link.ino();
                    start.rest.pop();
                    continue;
                }
                Ok(None) => return Some(Err(Errno::NOENT)),
                Err(missing) => missing.0,
            };
            if self.tree.damaged.has_frag(&missing) {
                return Some(Err(Errno::IO));
            }
            self.scrub_fetch(missing);
            return None;
        }
    }

    fn scrub_fetch(&mut self, dir: DirFrag) {
        if !self.waiting.frags.contains_key(&dir) {
            self.fetch(dir, 0);
        }
    }

    /// One step; `false` where something is waited for.
    fn scrub_step(&mut self) -> bool {
        let Some(frame) = self.scrubs.frames.last() else { return false };
        let (tag, ino, is_checked) = (frame.tag.clone(), frame.ino, frame.is_checked);
        let wish = self.scrubs.all.get(&tag).map(|s| s.wish);
        let is_gone = self.tree.node(ino).is_none() || self.purger.active.contains_key(&ino);
        let Some(wish) = wish.filter(|_| !is_gone) else {
            self.scrubs.frames.pop();
            return true;
        };
        let is_dir = self.tree.at(ino).is_dir();
        if !is_checked {
            if self.scrubs.flying.contains_key(&ino) {
                return false; // another name leads to it
            }
            if is_dir && !self.scrub_has_frags(ino, wish.repair) {
                return false;
            }
            if let Some(frame) = self.scrubs.frames.last_mut() {
                frame.is_checked = true;
            }
            if !is_dir || !wish.recursive {
                self.scrubs.frames.pop();
            }
            self.scrub_inode(&tag, ino, wish);
            return true;
        }
        match self.next_child() {
            Next::Child(child) => self.scrubs.frames.push(Frame::new(tag, child)),
            Next::Remote(child, path) if self.tree.node(child).is_none() => {
                self.waiting.lost.remove(&child);
                self.open_ino(child, 0);
                self.scrubs.flying.insert(child, Flying::Remote { tag, path });
            }
            // Its first name's turn says what is wrong with it.
            Next::Remote(..) => {}
            Next::Wait => return false,
            Next::End => drop(self.scrubs.frames.pop()),
        }
        true
    }

    /// Has all fragments of a directory read that can be. `false` while one is being read.
    fn scrub_has_frags(&mut self, ino: Ino, repair: bool) -> bool {
        let leaves: Vec<_> = self.tree.at(ino).store.fragtree.leaves().collect();
        let mut has_all = true;
        for frag in leaves {
            let dir = DirFrag { ino, frag };
            if self.tree.fragment(dir).is_some() {
                continue;
            }
            if self.tree.damaged.has_frag(&dir) {
                let frame = self.scrubs.frames.last_mut();
                if !repair || frame.is_none_or(|f| !f.tried.insert(frag)) {
                    continue;
                }
                // Perhaps a tool has mended it.
                self.tree.damaged.forget_frag(&dir);
            }
            has_all = false;
            if !self.waiting.frags.contains_key(&dir) && self.scrub_has_room() {
                self.fetch(dir, 0);
            }
        }
        has_all
    }

    /// Whether a fragment may be read. While memory is full one is for each look at memory, which
    /// drops what nobody uses: the walk goes on where clients use all there is, and stays slow.
    fn scrub_has_room(&mut self) -> bool {
        if !self.is_full() {
            return true;
        }
        let now = self.world.ms();
        let is_due = now >= self.scrubs.squeezed_ms + LOOK_MS;
        if is_due {
            self.scrubs.squeezed_ms = now;
        }
        is_due
    }

    fn next_child(&mut self) -> Next {
        let Some(frame) = self.scrubs.frames.last_mut() else { return Next::End };
        let ino = frame.ino;
        loop {
            let Some(node) = self.tree.node(ino) else { return Next::End };
            if frame.at.is_none() {
                let leaf = node.store.fragtree.leaves().find(|f| !frame.done.contains(f));
                let Some(leaf) = leaf else { return Next::End };
                frame.at = Some((leaf, Bytes::new()));
            }
            let Some((frag, after)) = &mut frame.at else { return Next::End };
            let dir = DirFrag { ino, frag: *frag };
            let Some(fragment) = node.frags.get(frag) else {
                if node.store.fragtree.is_leaf(*frag) && !self.tree.damaged.has_frag(&dir) {
                    self.scrub_fetch(dir);
                    return Next::Wait;
                }
                frame.done.insert(*frag);
                frame.at = None;
                continue;
            };
            fragment.used_ms.set(self.tree.clock);
            let behind = (Bound::Excluded(after.clone()), Bound::Unbounded);
            let Some((name, entry)) = fragment.entries.range::<Bytes, _>(behind).next() else {
                frame.done.insert(*frag);
                frame.at = None;
                continue;
            };
            *after = name.clone();
            return match entry.link {
                Link::Primary(child) => Next::Child(child),
                Link::Remote { ino: child, .. } => {
                    let name = String::from_utf8_lossy(name).into_owned();
                    let above = self.path_text(ino);
                    Next::Remote(child, format!("{}/{name}", above.trim_end_matches('/')))
                }
            };
        }
    }

    /// Looks at an inode, and asks for its backtrace.
    fn scrub_inode(&mut self, tag: &Arc<str>, ino: Ino, wish: Wish) {
        let node = self.tree.at(ino);
        let (is_dir, at) = (node.is_dir(), node.at.clone());
        let pool = if is_dir { self.world.meta() } else { node.store.inode.layout.pool };
        let counted = &mut self.counted.mds;
        let kind =
            if is_dir { &mut counted.scrub_dir_inodes } else { &mut counted.scrub_file_inodes };
        kind.0 += 1;
        if at.is_none() {
            counted.scrub_dir_base_inodes.0 += 1;
        } else if is_dir {
            counted.scrub_dirfrag_rstats.0 += 1;
        }
        let mut found = Found::default();
        if is_dir {
            self.scrub_sums(ino, wish, &mut found);
        }
        found.is_wrong |= self.tree.is_wrong_realm(ino);
        self.scrub_number(ino, wish);
        if ino == inos::mds_dir(self.id as u64) {
            // It has no backtrace.
            return self.scrubbed(ino, found);
        }
        self.counted.mds.scrub_backtrace_fetch.0 += 1;
        let ops = vec![IoOp::GetXattr("parent".to_owned())];
        self.io(pool, object_name(ino, 0), ops, Job::Scrub(ino));
        let flying = Flying::Trace { tag: tag.clone(), at, found };
        self.scrubs.flying.insert(ino, flying);
    }

    /// Compares a directory's sums, and mends them.
    fn scrub_sums(&mut self, ino: Ino, wish: Wish, found: &mut Found) {
        let node = self.tree.at(ino);
        let is_whole = node.store.fragtree.leaves().all(|f| node.frags.contains_key(&f));
        let wrong = self.tree.wrong_frags(ino);
        let is_wrong = is_whole && self.tree.is_wrong_dir(ino);
        found.is_wrong = !is_whole;
        if wrong.is_empty() && !is_wrong {
            return;
        }
        tracing::warn!(%ino, frags = ?wrong, inode = is_wrong, "sums of a directory are wrong");
        if wish.repair && is_whole && self.read_only.is_none() {
            let mut txn = Txn::at(self.world.time());
            self.tree.mend_sums(&mut txn, ino, &wrong);
            self.commit(txn);
            found.is_mended = true;
            return;
        }
        found.is_wrong |= is_wrong;
        if !wrong.is_empty() {
            found.is_wrong = true;
            self.scrub_error("dir", ino);
        }
    }

    /// An inode's number must not be given to another one.
    fn scrub_number(&mut self, ino: Ino, wish: Wish) {
        if !self.tables.inos.table.free.contains(ino.0) {
            return;
        }
        let text = format!("scrub: inode wrongly marked free: {ino:#x}");
        self.say_log(Severity::Error, text);
        if wish.repair && self.read_only.is_none() {
            self.tables.inos.table.free.remove(ino.0, 1);
            self.tables.inos.version += 1;
            let newest = self.journal.span().1;
            self.tables.dirty_since.get_or_insert(newest);
            self.counted.mds.scrub_inotable_repaired.0 += 1;
            let text = format!("inode table repaired for inode: {ino:#x}");
            self.say_log(Severity::Error, text);
        }
    }

    /// The backtrace of an inode was read, or could not be.
    pub fn scrub_traced(&mut self, ino: Ino, result: Result<IoAnswer, Errno>) {
        let Some(Flying::Trace { tag, at, mut found }) = self.scrubs.flying.remove(&ino) else {
            return;
        };
        let wish = self.scrubs.all.get(&tag).map(|s| s.wish);
        let Some(node) = self.tree.node(ino).filter(|_| !self.purger.active.contains_key(&ino))
        else {
            return;
        };
        let wish = wish.unwrap_or_default();
        let is_object = result.as_ref().map_or_else(|e| *e != Errno::NOENT, |_| true);
        let trace = match result.as_ref().map(|a| &a.0[..]) {
            Ok([IoData::Bytes(b)]) => Backtrace::from_shared(b).ok(),
            _ => None,
        };
        let has_moved = node.at != at;
        let is_right = trace.is_some_and(|trace| self.tree.is_right_trace(ino, &trace));
        let pool = if node.is_dir() { self.world.meta() } else { node.store.inode.layout.pool };
        // A directory whose first object cannot be read gets none: it would seem to be empty.
        let first = DirFrag { ino, frag: maps::fs::Frag::ROOT };
        let is_lost = self.tree.damaged.has_frag(&first);
        if is_right || has_moved || self.tree.is_trace_due(ino) {
            if wish.repair {
                self.tree.damaged.forget_trace(ino);
            }
        } else if wish.repair && self.read_only.is_none() && !is_lost {
            let path = self.path_text(ino);
            let text = format!("bad backtrace on inode {ino:#x}({path}), rewriting it");
            self.say_log(Severity::Warning, text);
            let mut txn = Txn::at(self.world.time());
            self.tree.touch(&mut txn, ino);
            txn.traces.insert(ino);
            self.commit(txn);
            self.tree.damaged.forget_trace(ino);
            self.counted.mds.scrub_backtrace_repaired.0 += 1;
            found.is_mended = true;
        } else {
            found.is_wrong = true;
            if !is_lost {
                let path = self.path_text(ino);
                self.tree.damaged.add_trace(ino, path);
            }
        }
        if wish.tagged && is_object && self.read_only.is_none() {
            self.leave_tag(ino, pool, &tag);
        }
        self.scrubbed(ino, found);
    }

    /// Leaves the operator's tag at an inode's first object: tools find by it what no scrub saw.
    fn leave_tag(&mut self, ino: Ino, pool: PoolId, tag: &str) {
        let mut w = Writer::new(Features::ALL);
        w.str(tag);
        let ops = vec![IoOp::SetXattr("scrub_tag".to_owned(), w.finish())];
        self.io(pool, object_name(ino, 0), ops, Job::Nothing);
        self.counted.mds.scrub_set_tag.0 += 1;
    }

    /// All of an inode was looked at.
    fn scrubbed(&mut self, ino: Ino, found: Found) {
        if found.is_wrong {
            self.scrub_error("inode", ino);
        } else if found.is_mended {
            let path = self.path_text(ino);
            self.say_log(Severity::Info, format!("Scrub repaired inode {ino:#x} ({path})"));
        }
        let stamp = self.world.time();
        if let Some(node) = self.tree.nodes.get_mut(&ino) {
            // Stored with the next change of it.
            let version = node.store.inode.versions.version;
            node.store.inode.scrub = ScrubMark { version, stamp };
        }
    }

    fn scrub_error(&mut self, what: &str, ino: Ino) {
        let (path, name) = (self.path_text(ino), &self.world.config.name);
        let text = format!(
            "Scrub error on {what} {ino:#x} ({path}) see mds.{name} log and `damage ls` output \
             for details"
        );
        self.say_log(Severity::Warning, text);
    }

    /// Ends the search for inodes of further names that are found, or nowhere.
    fn look_at_remotes(&mut self) {
        let is_ended = |(ino, f): (&Ino, &Flying)| {
            let is_remote = matches!(f, Flying::Remote { .. });
            let is_sought = self.waiting.inos.contains_key(ino);
            (is_remote && (self.tree.node(*ino).is_some() || !is_sought)).then_some(*ino)
        };
        let ended: Vec<Ino> = self.scrubs.flying.iter().filter_map(is_ended).collect();
        for ino in ended {
            let Some(Flying::Remote { tag, path }) = self.scrubs.flying.remove(&ino) else {
                continue;
            };
            tracing::debug!(%ino, path, %tag, "a further name's inode was looked for");
            if self.tree.node(ino).is_none() {
                self.waiting.lost.remove(&ino);
                self.tree.damaged.add_trace(ino, path);
            }
        }
    }
}
