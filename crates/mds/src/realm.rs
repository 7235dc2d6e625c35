//! Realms: directories with limits or snapshots, by which clients know what a file belongs to.

use bytes::Bytes;
use denc::{Denc, Features, Writer};
use maps::fs::{SnapRealm, SnapRealmInfo, inos};
use messages::fs::{ClientSnap, snap_op};
use types::{Ino, SnapId};

use crate::rank::Rank;
use crate::request::Call;

impl Rank {
    fn is_realm(&self, ino: Ino) -> bool {
        self.tree.node(ino).is_some_and(|n| n.is_dir() && !n.store.snap_realm.is_empty())
    }

    /// The realm that an inode belongs to: the nearest one from itself upward.
    pub fn realm_of(&self, ino: Ino) -> Ino {
        let mut up = std::iter::once(ino).chain(self.tree.ancestors(ino));
        up.find(|i| self.is_realm(*i)).unwrap_or(inos::ROOT)
    }

    /// An inode's realm and all above, as clients are told.
    pub fn snap_trace(&self, ino: Ino) -> Bytes {
        let mut w = Writer::new(Features::ALL);
        let mut at = self.realm_of(ino);
        loop {
            let blob = self.tree.node(at).map(|n| n.store.snap_realm.clone()).unwrap_or_default();
            let realm = SnapRealm::from_shared(&blob).unwrap_or_default();
            let above = self.tree.node(at).and_then(|n| n.at.as_ref()).map(|(dir, _)| *dir);
            let parent = above.map_or(Ino(0), |dir| self.realm_of(dir));
            let mut snaps: Vec<SnapId> = realm.snaps.keys().copied().collect();
            let mut prior: Vec<SnapId> = realm.past_parent_snaps.iter().copied().collect();
            snaps.reverse();
            prior.reverse();
            SnapRealmInfo {
                ino: at,
                created: realm.created,
                parent,
                parent_since: realm.current_parent_since,
                seq: SnapId(realm.seq.0.max(1)),
                snaps,
                prior_parent_snaps: prior,
            }
            .encode(&mut w);
            if parent.0 == 0 {
                return w.finish();
            }
            at = parent;
        }
    }

    /// Makes a directory a realm, unless it is one; clients hear which inodes are in it now.
    pub fn begin_realm(&mut self, call: &mut Call, ino: Ino) {
        if self.is_realm(ino) {
            return;
        }
        let last = self.tables.snaps.table.last_created.0.max(1);
        let realm = SnapRealm {
            seq: SnapId(last),
            created: SnapId(last),
            current_parent_since: SnapId(last + 1),
            ..SnapRealm::default()
        };
        self.tree.at_mut(ino).store.snap_realm = realm.to_bytes();
        self.tree.touch(&mut call.txn, ino);
        let trace = self.snap_trace(ino);
        let clients: Vec<i64> = self.sessions.by_client.keys().copied().collect();
        for client in clients {
            let Some(session) = self.sessions.by_client.get(&client) else { continue };
            let held = session.caps.iter().copied();
            let split_inos: Vec<Ino> = held.filter(|i| self.realm_of(*i) == ino).collect();
            if split_inos.is_empty() {
                continue;
            }
            let message = ClientSnap {
                op: snap_op::SPLIT,
                split: ino,
                split_inos,
                split_realms: Vec::new(),
                trace: trace.clone(),
            };
            if let Some(session) = self.sessions.by_client.get_mut(&client) {
                session.pushes += 1;
            }
            self.send(client, &message, 0);
        }
    }
}
