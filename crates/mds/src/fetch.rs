//! Getting into memory what is not: fragments, and inodes by number.

use std::collections::BTreeMap;

use bytes::Bytes;
use maps::fs::{Backtrace, DirFrag, object_name};
use types::{Denc, Errno, Ino, PoolId};

use crate::heat::Kind;
use crate::rank::{Job, Rank};
use crate::{Effect, IoAnswer, IoData, IoOp, Severity};

/// Entries that one read asks for.
const KEYS_MAX: u64 = 16_384;

impl Rank {
    /// Reads a fragment, unless that is on its way. `request` is run again afterwards; 0 for none.
    pub fn fetch(&mut self, dir: DirFrag, request: u64) {
        let waiting = self.waiting.frags.entry(dir).or_default();
        let begun = !waiting.is_empty();
        waiting.insert(request);
        if !begun {
            self.read_frag(dir, None, BTreeMap::new());
        }
    }

    fn read_frag(&mut self, dir: DirFrag, header: Option<Bytes>, pairs: BTreeMap<Bytes, Bytes>) {
        let after = pairs.last_key_value().map(|(k, _)| k.clone()).unwrap_or_default();
        let ops = vec![IoOp::OmapHeader, IoOp::OmapRange { after, max: KEYS_MAX }];
        let object = object_name(dir.ino, dir.frag.raw().into());
        self.meta_io(object, ops, Job::Fetch(dir, header, pairs));
    }

    pub fn fetched(
        &mut self,
        dir: DirFrag,
        header: Option<Bytes>,
        mut pairs: BTreeMap<Bytes, Bytes>,
        result: Result<IoAnswer, Errno>,
    ) {
        let is_missing = result.as_ref().is_err_and(|e| *e == Errno::NOENT);
        let answer = match result.as_ref().map(|a| &a.0[..]) {
            Ok([IoData::Bytes(h), IoData::Omap { pairs: more_pairs, more }]) => {
                pairs.extend(more_pairs.iter().map(|(k, v)| (k.clone(), v.clone())));
                if *more && !more_pairs.is_empty() {
                    let header = header.unwrap_or_else(|| h.clone());
                    self.read_frag(dir, Some(header), pairs);
                    return;
                }
                Ok(header.unwrap_or_else(|| h.clone()))
            }
            Ok(_) => Err("the answer is of another form".to_owned()),
            Err(e) => Err(format!("{e:?}")),
        };
        let loaded = answer.and_then(|header| {
            if self.tree.fragment(dir).is_some() {
                return Ok(());
            }
            self.purger.forget |= self.tables.snaps.table.last_destroyed.0 > 1
                && pairs.keys().any(|k| !k.ends_with(b"_head"));
            self.tree.load(dir, &header, pairs).map_err(|e| e.to_string())
        });
        if loaded.is_ok() {
            self.counted.mds.dir_fetch_complete += 1;
            self.tree.warm(dir, Kind::Fetch, self.world.ms());
            let entries = self.tree.fragment(dir).into_iter().flat_map(|f| f.entries.values());
            let inodes: Vec<Ino> = entries.map(|e| e.link.ino()).collect();
            self.find_cuts(inodes);
        }
        if let Err(why) = loaded {
            tracing::error!(%dir, why, "a directory cannot be read");
            if self.tree.damaged.add_frag(dir) {
                self.tell_damage(dir, &why, is_missing);
            }
        }
        let waiting = self.waiting.frags.remove(&dir).unwrap_or_default();
        self.requests.wake(waiting);
        self.look_on();
    }

    /// Operators hear of a fragment that cannot be read, in the peer's words.
    fn tell_damage(&mut self, dir: DirFrag, why: &str, is_missing: bool) {
        let path = self.path_text(dir.ino);
        let ino = dir.ino;
        let (severity, text) = if is_missing {
            let text = format!("dir {dir} object missing on disk; some files may be lost ({path})");
            (Severity::Error, text)
        } else {
            (Severity::Warning, format!("Corrupt fnode header in {ino:#x}: {why} ({path})"))
        };
        self.fx.push(Effect::ClusterLog { severity, text });
    }

    /// Looks for an inode that is not in memory. `request` is run again afterwards; 0 for none.
    pub fn open_ino(&mut self, ino: Ino, request: u64) {
        let waiting = self.waiting.inos.entry(ino).or_default();
        let begun = !waiting.is_empty();
        waiting.insert(request);
        if begun || self.waiting.traces.contains_key(&ino) {
            return;
        }
        if let Some((dir, name)) = self.waiting.hints.get(&ino).cloned() {
            self.waiting.traces.insert(ino, vec![(dir, name)]);
            self.look_on();
            return;
        }
        self.read_trace(ino, self.world.meta(), self.world.map.data_pools.clone());
    }

    fn read_trace(&mut self, ino: Ino, pool: PoolId, rest: Vec<PoolId>) {
        let ops = vec![IoOp::GetXattr("parent".to_owned())];
        self.io(pool, object_name(ino, 0), ops, Job::Trace(ino, rest));
    }

    pub fn traced(&mut self, ino: Ino, mut rest: Vec<PoolId>, result: Result<IoAnswer, Errno>) {
        let trace = match result.as_ref().map(|a| &a.0[..]) {
            Ok([IoData::Bytes(b)]) => Backtrace::from_shared(b).ok(),
            _ => None,
        };
        match trace {
            Some(trace) if !trace.ancestors.is_empty() => {
                let up = trace.ancestors.into_iter().map(|a| (a.dirino, a.dname)).collect();
                self.waiting.traces.insert(ino, up);
            }
            _ if !rest.is_empty() => {
                let pool = rest.remove(0);
                self.read_trace(ino, pool, rest);
                return;
            }
            _ => {
                self.waiting.lost.insert(ino);
                self.ended_looking(ino);
            }
        }
        self.look_on();
    }

    fn ended_looking(&mut self, ino: Ino) {
        self.waiting.traces.remove(&ino);
        let waiting = self.waiting.inos.remove(&ino).unwrap_or_default();
        self.requests.wake(waiting);
        self.rejoined(ino);
    }

    /// Goes on with each inode that is looked for, as far as what is in memory leads.
    fn look_on(&mut self) {
        let looking: Vec<Ino> = self.waiting.traces.keys().copied().collect();
        for ino in looking {
            if self.tree.node(ino).is_some() {
                self.ended_looking(ino);
                continue;
            }
            let Some(up) = self.waiting.traces.get(&ino).cloned() else { continue };
            // The nearest directory above that is in memory.
            let Some((dir, name)) = up.iter().find(|(d, _)| self.tree.node(*d).is_some()) else {
                // None is: its directory is looked for first, and then this goes on.
                if let Some((dir, _)) = up.first().cloned() {
                    if self.waiting.lost.contains(&dir) {
                        self.waiting.lost.insert(ino);
                        self.ended_looking(ino);
                    } else if !self.waiting.inos.contains_key(&dir) {
                        self.open_ino(dir, 0);
                    }
                }
                continue;
            };
            if !self.tree.at(*dir).is_dir() {
                self.waiting.lost.insert(ino);
                self.ended_looking(ino);
                continue;
            }
            let at = self.tree.dirfrag(*dir, name);
            let read = self.tree.fragment(at).is_some();
            if read || self.tree.damaged.has_frag(&at) {
                // That name leads elsewhere now: the backtrace is old. What is nearer is asked by
                // number before this is given up.
                let nearer = up.iter().position(|(d, _)| d == dir).unwrap_or(0);
                let child = if nearer == 0 { None } else { Some(up[nearer - 1].0) };
                match child {
                    Some(child) if !self.waiting.lost.contains(&child) => {
                        if !self.waiting.inos.contains_key(&child) {
                            self.open_ino(child, 0);
                        }
                    }
                    _ => {
                        self.waiting.lost.insert(ino);
                        self.ended_looking(ino);
                    }
                }
                continue;
            }
            self.fetch(at, 0);
        }
    }
}
