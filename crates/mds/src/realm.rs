//! Realms: directories with limits or snapshots, by which clients know what a file belongs to.

use std::collections::BTreeSet;

use bytes::Bytes;
use denc::{Denc, Features, Writer};
use maps::fs::{SnapRealm, SnapRealmInfo, SnapRealmInfoNew};
use messages::fs::{ClientSnap, snap_op};
use types::{Ino, SnapId};

use crate::capset::bits;
use crate::rank::Rank;
use crate::request::Call;
use crate::session::NEW_SNAPREALM_INFO;

/// The realm of everything that has several names. The peer's `CEPH_INO_GLOBAL_SNAPREALM`.
pub(crate) const GLOBAL: Ino = Ino(3);

impl Rank {
    /// The realm that an inode belongs to: the nearest one from itself upward.
    pub fn realm_of(&self, ino: Ino) -> Ino {
        self.tree.realm_of(ino)
    }

    /// An inode's realm and all above, as this client is told.
    pub fn snap_trace(&self, ino: Ino, client: i64) -> Bytes {
        let is_new = self.knows_new_realms(client);
        let mut w = Writer::new(Features::ALL);
        let mut at = self.realm_of(ino);
        loop {
            let realm = self.tree.above(at).map(crate::tree::Node::realm).unwrap_or_default();
            let global = realm.flags & SnapRealm::PARENT_GLOBAL != 0;
            let parent = if global { Some(GLOBAL) } else { self.tree.realm_above(at) };
            let exists = |s: &&SnapId| self.tree.snaps.contains_key(s);
            let mut snaps: Vec<SnapId> = realm.snaps.keys().copied().collect();
            let mut prior: Vec<SnapId> =
                realm.past_parent_snaps.iter().filter(exists).copied().collect();
            snaps.reverse();
            prior.reverse();
            let info = SnapRealmInfo {
                ino: at,
                created: realm.created,
                parent: parent.unwrap_or(Ino(0)),
                parent_since: realm.current_parent_since,
                seq: SnapId(realm.seq.0.max(1)),
                snaps,
                prior_parent_snaps: prior,
            };
            if is_new {
                let (last_modified, change_attr) = (realm.last_modified, realm.change_attr);
                SnapRealmInfoNew { info, last_modified, change_attr, flags: None }.encode(&mut w);
            } else {
                info.encode(&mut w);
            }
            match parent {
                None => return w.finish(),
                Some(GLOBAL) => {
                    w.raw(&self.global_trace(client));
                    return w.finish();
                }
                Some(above) => at = above,
            }
        }
    }

    fn knows_new_realms(&self, client: i64) -> bool {
        let session = self.sessions.by_client.get(&client);
        session.is_some_and(|s| s.info.metadata.features.has(NEW_SNAPREALM_INFO))
    }

    /// The realm of what has several names, as this client is told.
    pub fn global_trace(&self, client: i64) -> Bytes {
        let snaps = self.tree.snaps.keys().rev().copied().collect();
        let seq = self.tree.follows();
        let info = SnapRealmInfo { ino: GLOBAL, seq, snaps, ..SnapRealmInfo::default() };
        if self.knows_new_realms(client) {
            return SnapRealmInfoNew { info, ..SnapRealmInfoNew::default() }.to_bytes();
        }
        info.to_bytes()
    }

    /// Makes a directory a realm, unless it is one; clients hear which inodes are in it now.
    pub fn begin_realm(&mut self, call: &mut Call, ino: Ino) {
        if self.tree.is_realm(ino) {
            return;
        }
        let last = self.tree.follows();
        let realm = SnapRealm {
            seq: last,
            created: last,
            current_parent_since: self.tree.at(ino).oldest(),
            ..SnapRealm::default()
        };
        self.tree.at_mut(ino).store.snap_realm = realm.to_bytes();
        self.tree.touch(&mut call.txn, ino);
        call.txn.hard = true;
        self.tell_split(ino);
    }

    fn tell_snap(&mut self, client: i64, message: &ClientSnap) {
        if let Some(session) = self.sessions.by_client.get_mut(&client) {
            session.pushes += 1;
        }
        self.send(client, message, 0);
    }

    /// Clients hear which of the inodes that they hold are in a new realm.
    pub fn tell_split(&mut self, realm: Ino) {
        let clients: Vec<i64> = self.sessions.by_client.keys().copied().collect();
        for client in clients {
            let Some(session) = self.sessions.by_client.get(&client) else { continue };
            let (mut split_inos, mut split_realms) = (Vec::new(), BTreeSet::new());
            for ino in session.caps.iter().copied() {
                let at = self.realm_of(ino);
                if at == realm {
                    split_inos.push(ino);
                } else if self.tree.realm_above(at) == Some(realm) {
                    split_realms.insert(at);
                }
            }
            if split_inos.is_empty() && split_realms.is_empty() {
                continue;
            }
            let message = ClientSnap {
                op: snap_op::SPLIT,
                split: realm,
                split_inos,
                split_realms: split_realms.into_iter().collect(),
                trace: self.snap_trace(realm, client),
            };
            self.tell_snap(client, &message);
        }
        self.tell_global();
    }

    /// An inode that is a realm has another place: it may be a realm since then.
    pub fn tell_realm_moved(&mut self, before: Ino, realm: Ino) {
        if before == realm {
            self.tell_realm(realm, snap_op::UPDATE);
        } else {
            self.tell_split(realm);
        }
    }

    /// Clients that hold something in or below a realm hear what it is now.
    pub fn tell_realm(&mut self, realm: Ino, op: u32) {
        for client in self.holders_below(realm) {
            let trace = self.snap_trace(realm, client);
            let message = ClientSnap { op, trace, ..ClientSnap::default() };
            self.tell_snap(client, &message);
        }
        self.tell_global();
    }

    /// Clients that hold something with several names hear of all snapshots.
    fn tell_global(&mut self) {
        let holds = |session: &crate::session::Session| {
            session.caps.iter().any(|ino| {
                let node = self.tree.node(*ino);
                node.is_some_and(|n| n.realm().flags & SnapRealm::PARENT_GLOBAL != 0)
            })
        };
        if self.tree.follows().0 <= 1 {
            return;
        }
        let all = self.sessions.by_client.iter();
        let clients: Vec<i64> = all.filter(|(_, s)| holds(s)).map(|(c, _)| *c).collect();
        for client in clients {
            let trace = self.global_trace(client);
            let op = snap_op::UPDATE;
            let message = ClientSnap { op, split: GLOBAL, trace, ..ClientSnap::default() };
            self.tell_snap(client, &message);
        }
    }

    /// A client that came back hears what its realms are now.
    pub fn tell_realms_again(&mut self, client: i64, realms: impl Iterator<Item = Ino>) {
        for realm in realms {
            if self.tree.is_realm(realm) {
                let trace = self.snap_trace(realm, client);
                let message = ClientSnap { op: snap_op::UPDATE, trace, ..ClientSnap::default() };
                self.tell_snap(client, &message);
            }
        }
    }

    fn is_below(&self, ino: Ino, realm: Ino) -> bool {
        let mut at = Some(self.realm_of(ino));
        while let Some(r) = at {
            if r == realm {
                return true;
            }
            at = self.tree.realm_above(r);
        }
        false
    }

    fn holders_below(&self, realm: Ino) -> Vec<i64> {
        let below = |s: &crate::session::Session| s.caps.iter().any(|i| self.is_below(*i, realm));
        let all = self.sessions.by_client.iter();
        all.filter(|(_, s)| below(s)).map(|(client, _)| *client).collect()
    }

    /// A snapshot was made: those who may have changes of files that are not told yet will tell
    /// them, before anybody reads there.
    pub fn note_writers(&mut self, realm: Ino, snap: SnapId) {
        let mut writers = Vec::new();
        for (client, session) in &self.sessions.by_client {
            for ino in &session.caps {
                let Some(node) = self.tree.node(*ino).filter(|n| !n.is_dir()) else { continue };
                let cap = node.caps.by_client.get(client);
                let writes = cap.is_some_and(|c| (c.issued | c.pending) & bits::EXCLUSIVE != 0);
                if writes && self.tree.snaps_of(*ino).contains(&snap) {
                    writers.push((*client, *ino));
                }
            }
        }
        tracing::debug!(%realm, snap = snap.0, writers = writers.len(), "a snapshot");
        for (client, ino) in writers {
            self.tree.at_mut(ino).unflushed.insert(client, snap);
        }
    }
}
