//! Realms: which snapshots a write has to keep.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use denc::DecodeError;
use maps::fs::SnapRealmInfo;
use messages::fs::{ClientSnap, RealmReconnect, read_snap_trace, snap_op};
use types::{Ino, SnapId};

use crate::{Client, Out};

/// Realms are forgotten from this many on that no open file is in.
const KEPT: usize = 64;
/// A realm has at most so many above it.
const DEPTH_MAX: usize = 1_000;

#[derive(Clone, Debug, Default)]
pub(crate) struct Realms(BTreeMap<Ino, SnapRealmInfo>);

/// Newest change, and snapshots, newest first.
pub(crate) type Context = (SnapId, Vec<SnapId>);

impl Realms {
    /// The realms from one upward.
    fn above(&self, ino: Ino) -> impl Iterator<Item = &SnapRealmInfo> {
        let parent = |r: &&SnapRealmInfo| self.0.get(&r.parent);
        std::iter::successors(self.0.get(&ino), parent).take(DEPTH_MAX)
    }

    /// What writes to a file in a realm have to keep.
    pub fn context(&self, ino: Ino) -> Context {
        let mut seq = SnapId(0);
        let mut snaps = BTreeSet::new();
        let mut since = SnapId(0);
        for realm in self.above(ino) {
            seq = seq.max(realm.seq);
            snaps.extend(realm.snaps.iter().filter(|s| **s >= since));
            snaps.extend(realm.prior_parent_snaps.iter().filter(|s| **s >= since));
            since = since.max(realm.parent_since);
        }
        let mut snaps: Vec<SnapId> = snaps.into_iter().filter(|s| *s <= seq).collect();
        snaps.reverse();
        (seq, snaps)
    }

    /// What a rank's next server is told.
    pub fn told(&self) -> Vec<RealmReconnect> {
        let one = |r: &SnapRealmInfo| RealmReconnect { ino: r.ino, seq: r.seq, parent: r.parent };
        self.0.values().map(one).collect()
    }

    /// Takes over what is newer.
    fn take(&mut self, realms: Vec<SnapRealmInfo>) {
        for realm in realms {
            if self.0.get(&realm.ino).is_none_or(|old| old.seq <= realm.seq) {
                self.0.insert(realm.ino, realm);
            }
        }
    }

    /// Forgets what none of these is in.
    fn prune(&mut self, used: impl Iterator<Item = Ino>) {
        if self.0.len() <= KEPT {
            return;
        }
        let keep: BTreeSet<Ino> =
            used.flat_map(|ino| self.above(ino).map(|r| r.ino).collect::<Vec<_>>()).collect();
        self.0.retain(|ino, _| keep.contains(ino));
    }
}

impl Client {
    pub(crate) fn take_trace(&mut self, trace: &Bytes) -> Result<(), DecodeError> {
        if !trace.is_empty() {
            self.realms.take(read_snap_trace(trace)?);
            self.realms.prune(self.files.values().map(|f| f.realm));
        }
        Ok(())
    }

    /// A realm changed: what is unwritten of files in it is told as of before the newest snapshot.
    pub(crate) fn on_snap(&mut self, m: ClientSnap, out: &mut Vec<Out>) -> Result<(), DecodeError> {
        let contexts = |c: &Self| -> Vec<(Ino, Context)> {
            c.files.iter().map(|(ino, f)| (*ino, c.realms.context(f.realm))).collect()
        };
        let before = contexts(self);
        if m.op == snap_op::SPLIT {
            for ino in &m.split_inos {
                if let Some(file) = self.files.get_mut(ino) {
                    file.realm = m.split;
                }
            }
        }
        self.take_trace(&m.trace)?;
        for ((ino, old), (_, new)) in before.into_iter().zip(contexts(self)) {
            if new.1.first() > old.1.first() {
                self.keep_for_snap(ino, old.0, out);
            }
        }
        Ok(())
    }
}
