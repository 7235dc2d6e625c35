//! What clients hold, and hear of it: caps given, taken back, flushed.

use std::collections::BTreeMap;

use maps::fs::{ByteMap, ClientRange, Inode, InodeStore};
use messages::fs::{
    CapAttrs, CapFile, CapTail, ClientCapRelease, ClientCaps, ClientLease, FscryptBlobs,
    ReleaseItem, ReplyCap, cap_op, lease_action,
};
use types::{Denc, Ino, SnapId};

use crate::capset::{Cap, CapSet, Hold, Together, bits, caps_text};
use crate::gate::Wait;
use crate::rank::Rank;
use crate::record::Change;
use crate::session::Life;
use crate::tree::Txn;

/// A client may write so many objects ahead of a file's end.
const AHEAD_OBJECTS: u64 = 1024;

impl Rank {
    fn allowed(&self, ino: Ino, all: &Together, client: i64) -> u32 {
        let node = self.tree.at(ino);
        let mut caps = node.caps.allowed(all, client, node.is_dir());
        if !node.is_dir() && self.is_unsettled(ino) {
            caps &= !bits::F; // nobody knows its size
        }
        if node.is_dir() && self.requests.shared.has(ino) {
            caps &= !bits::F;
        }
        if self.read_only.is_some() { caps & !bits::EXCLUSIVE } else { caps }
    }

    /// Records how far a client may write, before it hears that it may.
    fn grant_range(&mut self, ino: Ino, client: i64, wish: u64) {
        let inode = &self.tree.at(ino).store.inode;
        let wish = wish.min(self.world.map.max_file_size);
        let (end, file) = (range_end(inode, wish), &inode.file);
        let now = file.client_ranges.get(&client).map_or(0, |r| r.last);
        // Half of what was given is left: not yet.
        if now >= end || (now > 0 && wish <= now && file.size < now / 2) {
            return;
        }
        let range = ClientRange { first: 0, last: end, follows: SnapId(1) };
        let mut txn = Txn::at(self.world.time());
        let file = &mut self.tree.at_mut(ino).store.inode.file;
        file.client_ranges.insert(client, range);
        file.max_size_ever = file.max_size_ever.max(end);
        self.tree.touch(&mut txn, ino);
        self.commit(txn);
    }

    /// A client no longer writes.
    pub fn drop_range(&mut self, ino: Ino, client: i64) {
        let mut txn = Txn::at(self.world.time());
        let ranges = &mut self.tree.at_mut(ino).store.inode.file.client_ranges;
        ranges.remove(&client);
        if ranges.is_empty() {
            *ranges = BTreeMap::new(); // one that held something keeps its memory
        }
        self.tree.touch(&mut txn, ino);
        self.commit_of(txn, client);
    }

    /// Caps for an answer that has this inode: what the client wants or likes of what it may
    /// have. `wanted` is added to what it wants.
    pub fn issue(&mut self, ino: Ino, client: i64, wanted: u32) -> ReplyCap {
        let now = self.world.ms();
        match self.sessions.by_client.get_mut(&client) {
            Some(session) if session.life == Life::Open => {
                session.caps.insert(ino);
            }
            _ => return ReplyCap::default(),
        }
        let next = &mut self.sessions.next_cap;
        let node = self.tree.at_mut(ino);
        let is_dir = node.is_dir();
        let fresh = !node.caps.by_client.contains_key(&client);
        let cap = node.caps.by_client.entry(client).or_insert_with(|| {
            *next += 1;
            Box::new(Cap { id: *next, ..Cap::default() })
        });
        cap.wanted |= wanted;
        let allowed = self.allowed(ino, &self.tree.at(ino).caps.together(), client);
        let node = self.tree.at_mut(ino);
        let cap = node.caps.by_client.get_mut(&client).expect("it was put there");
        // An answer takes nothing back: clients add what it says to what they have.
        let too_much = cap.pending & !allowed != 0;
        let caps = if cap.is_revoking() || too_much {
            cap.pending
        } else {
            (cap.wanted | CapSet::liked(is_dir) | cap.pending) & allowed
        };
        let seq = cap.tell(caps, now);
        cap.issue_seq = seq;
        if caps & bits::FW != 0 {
            self.grant_range(ino, client, 0);
        }
        if too_much {
            self.requests.too_much.insert(ino);
        }
        if fresh {
            self.eval_others(ino, client);
        }
        let realm = self.realm_of(ino);
        let cap = &self.tree.at(ino).caps.by_client[&client];
        ReplyCap {
            caps: cap.pending,
            wanted: cap.wanted,
            cap_id: cap.id,
            seq,
            mseq: cap.mseq,
            realm,
            flags: 1,
        }
    }

    /// Gives and takes back what changed with who wants what.
    pub fn eval(&mut self, ino: Ino) {
        self.eval_others(ino, -1);
    }

    fn eval_others(&mut self, ino: Ino, except: i64) {
        let Some(node) = self.tree.node(ino) else { return };
        let is_dir = node.is_dir();
        let clients: Vec<i64> = node.caps.by_client.keys().copied().collect();
        let mut all = node.caps.together();
        for client in clients.into_iter().filter(|c| *c != except) {
            let allowed = self.allowed(ino, &all, client);
            let Some(cap) = self.tree.at(ino).caps.by_client.get(&client) else { continue };
            let (op, caps) = if cap.pending & !allowed != 0 {
                let keep = (cap.wanted | CapSet::liked(is_dir)) & allowed & cap.pending;
                (cap_op::REVOKE, keep)
            } else if !cap.is_revoking() && cap.wanted & allowed & !cap.pending != 0 {
                let session = self.sessions.by_client.get(&client);
                if session.is_none_or(|s| s.life != Life::Open) {
                    continue;
                }
                let give = (cap.wanted | CapSet::liked(is_dir)) & allowed | cap.pending;
                (cap_op::GRANT, give)
            } else {
                continue;
            };
            let before = cap.held();
            self.tell(ino, client, op, caps);
            if let Some(cap) = self.tree.at(ino).caps.by_client.get(&client) {
                all.changed(before, cap.held());
            }
        }
    }

    /// Tells a client what it holds from now on.
    fn tell(&mut self, ino: Ino, client: i64, op: u32, caps: u32) {
        let now = self.world.ms();
        if caps & bits::FW != 0 {
            self.grant_range(ino, client, 0);
        }
        let Some(cap) = self.tree.at_mut(ino).caps.by_client.get_mut(&client) else { return };
        cap.tell(caps, now);
        self.send_caps(ino, client, op);
    }

    /// The newest values of an inode with what the client holds.
    pub fn send_caps(&mut self, ino: Ino, client: i64, op: u32) {
        let outer = self.tree.tags.begin(client);
        let message = self.caps_message(ino, client, op);
        let wait = Wait::For(self.tree.tags.end(outer));
        if let Some(message) = message
            && let Some(session) = self.sessions.by_client.get_mut(&client)
        {
            session.pushes += 1;
            self.send_at(client, &message, 0, wait);
        }
    }

    fn caps_message(&self, ino: Ino, client: i64, op: u32) -> Option<ClientCaps> {
        let node = self.tree.at(ino);
        let cap = node.caps.by_client.get(&client)?;
        let i = &node.store.inode;
        let sums = self.tree.totals(ino);
        let is_dir = node.is_dir();
        Some(ClientCaps {
            op,
            ino,
            snap_trace: self.snap_trace(ino, client),
            realm: self.realm_of(ino),
            cap_id: cap.id,
            seq: cap.seq,
            issue_seq: cap.issue_seq,
            caps: cap.pending,
            wanted: cap.wanted,
            migrate_seq: cap.mseq,
            attrs: CapAttrs {
                uid: i.uid,
                gid: i.gid,
                mode: i.mode,
                nlink: i.nlink.max(0) as u32,
                xattr_version: i.versions.xattr,
                xattrs: node.store.xattrs.to_bytes(),
                btime: i.times.btime,
                change_attr: sums.changes,
            },
            file: CapFile {
                size: i.file.size,
                max_size: i.file.client_ranges.get(&client).map_or(0, |r| r.last),
                truncate_size: i.file.truncate.size,
                truncate_seq: i.file.truncate.seq,
                mtime: sums.mtime,
                atime: i.times.atime,
                ctime: sums.ctime,
                layout: i.layout.clone(),
                time_warp_seq: i.times.time_warp_seq,
            },
            tail: CapTail {
                osd_epoch_barrier: 0,
                nfiles: if is_dir { sums.files } else { -1 },
                nsubdirs: if is_dir { sums.dirs } else { -1 },
                ..CapTail::default()
            },
            inline: i.file.inline.clone(),
            fscrypt: FscryptBlobs { auth: i.fscrypt.auth.clone(), file: i.fscrypt.file.clone() },
            ..ClientCaps::default()
        })
    }

    /// Makes room for a request: takes back what it needs back. `false` while somebody still
    /// holds it; the request is run again when that changes.
    pub fn withhold(&mut self, request: u64, ino: Ino, client: i64, own: u32, others: u32) -> bool {
        let node = self.tree.at_mut(ino);
        let hold = node.caps.holds.entry(request).or_default();
        hold.client = client;
        hold.own |= own;
        hold.others |= others;
        let hold: Hold = *hold;
        if !node.caps.blocks(&hold) {
            return true;
        }
        self.eval(ino);
        false
    }

    /// A client says what it holds, what it wants, and what it changed.
    pub fn on_caps(&mut self, client: i64, m: &ClientCaps, tid: u64) {
        self.hear_caps(client, m, tid, 0);
    }

    /// The same, kept from before the rank was active: a client sends once more what it flushed when it
    /// gave caps back to the server before this one. It does not claim them any more, and held them.
    pub fn on_early_caps(&mut self, client: i64, m: &ClientCaps, tid: u64) {
        let flushed = if tid == 0 { 0 } else { m.dirty & bits::EXCLUSIVE };
        self.hear_caps(client, m, tid, flushed);
    }

    /// `before` counts as held when it says what it changed.
    fn hear_caps(&mut self, client: i64, m: &ClientCaps, tid: u64, before: u32) {
        self.counted.mds.handle_client_caps += 1;
        self.counted.mds.handle_client_caps_dirty += u64::from(m.dirty != 0);
        let now = self.world.ms();
        if let Some(session) = self.sessions.by_client.get_mut(&client) {
            session.renewed_ms = now;
            session.info.completed_flushes.retain(|t| *t >= m.tail.oldest_flush_tid);
        }
        if m.op == cap_op::FLUSHSNAP {
            self.flush_snap(client, m, tid);
            let ack = ClientCaps {
                op: cap_op::FLUSHSNAP_ACK,
                ino: m.ino,
                snap_follows: m.snap_follows,
                ..ClientCaps::default()
            };
            self.acknowledge(client, &ack, tid);
            return;
        }
        let known = self.tree.node(m.ino).and_then(|n| n.caps.by_client.get(&client));
        let known = known.filter(|cap| cap.id == m.cap_id).map(|cap| cap.issued);
        if known.is_none() && m.dirty == 0 {
            return;
        }
        let held = known.unwrap_or(0);
        let repeated =
            tid != 0 && self.sessions.by_client[&client].info.completed_flushes.contains(&tid);
        let dirty = m.dirty & (held | before);
        if known.is_some() && dirty != 0 && !repeated && self.read_only.is_none() {
            self.count_change(client);
            self.take_values(client, m, dirty, tid);
        } else if m.dirty != 0 && !repeated {
            let (dirty, held) = (caps_text(m.dirty), caps_text(held));
            tracing::warn!(client, ino = %m.ino, dirty, held, "changes under caps that it does not hold");
        }
        if m.dirty != 0 {
            let ack = ClientCaps {
                op: cap_op::FLUSH_ACK,
                ino: m.ino,
                cap_id: m.cap_id,
                seq: m.seq,
                caps: m.caps,
                dirty: m.dirty,
                ..ClientCaps::default()
            };
            self.acknowledge(client, &ack, tid);
        }
        if held == 0 {
            return;
        }
        let node = self.tree.at_mut(m.ino);
        let is_file = node.store.inode.is_file();
        let Some(cap) = node.caps.by_client.get_mut(&client) else { return };
        if m.op == cap_op::DROP || m.op == cap_op::RELEASE {
            self.remove_cap(m.ino, client);
            return;
        }
        cap.confirm(m.seq, m.caps);
        cap.wanted = m.wanted;
        let (pending, wanted) = (cap.pending, cap.wanted);
        if cap.issued & bits::EXCLUSIVE == 0 {
            node.unflushed.remove(&client);
        }
        let writes = is_file && pending & bits::FW != 0;
        if writes && m.file.max_size > 0 {
            let before = self.range_of(m.ino, client);
            if m.file.max_size > before {
                self.grant_range(m.ino, client, m.file.max_size);
                if self.range_of(m.ino, client) > before {
                    self.tell(m.ino, client, cap_op::GRANT, pending);
                }
            }
        } else if writes
            && self.tree.at(m.ino).store.inode.file.size > self.range_of(m.ino, client) / 2
        {
            let before = self.range_of(m.ino, client);
            self.grant_range(m.ino, client, 0);
            if self.range_of(m.ino, client) > before {
                self.tell(m.ino, client, cap_op::GRANT, pending);
            }
        }
        let done = wanted & bits::WANTS_WRITE == 0
            && self.tree.at(m.ino).caps.by_client[&client].issued & bits::FW == 0;
        if done && self.range_of(m.ino, client) > 0 {
            self.drop_range(m.ino, client);
        }
        self.eval(m.ino);
        self.requests.wake_caps(m.ino);
    }

    fn range_of(&self, ino: Ino, client: i64) -> u64 {
        let file = &self.tree.at(ino).store.inode.file;
        file.client_ranges.get(&client).map_or(0, |r| r.last)
    }

    /// Says that what a client changed is durable, once it is. Nothing that follows waits for this.
    fn acknowledge(&mut self, client: i64, message: &ClientCaps, tid: u64) {
        if let Some(session) = self.sessions.by_client.get_mut(&client) {
            session.pushes += 1;
        }
        self.send_at(client, message, tid, Wait::Loose);
    }

    /// Takes over values that a client changed under caps that it holds.
    fn take_values(&mut self, client: i64, m: &ClientCaps, dirty: u32, tid: u64) {
        let mut txn = Txn::at(self.world.time());
        self.tree.cow(&mut txn, m.ino);
        put_values(&mut self.tree.at_mut(m.ino).store, m, dirty);
        self.tree.touch(&mut txn, m.ino);
        self.note_flush(&mut txn, client, tid);
        self.commit_of(txn, client);
    }

    /// Remembers with `txn` that a client's flush is done, so that one that is sent again changes
    /// nothing; flush 0 is none.
    fn note_flush(&mut self, txn: &mut Txn, client: i64, tid: u64) {
        if tid != 0
            && let Some(session) = self.sessions.by_client.get_mut(&client)
        {
            session.info.completed_flushes.insert(tid);
            session.dirty = true;
            self.tables.sessions += 1;
            txn.other.push(Change::Flush { version: self.tables.sessions, client, tid });
        }
    }

    /// A client tells what it had changed of a file when a snapshot was made.
    fn flush_snap(&mut self, client: i64, m: &ClientCaps, tid: u64) {
        let Some(node) = self.tree.node(m.ino) else { return };
        // Clients name no cap here.
        let held = node.caps.by_client.contains_key(&client);
        let done =
            tid != 0 && self.sessions.by_client[&client].info.completed_flushes.contains(&tid);
        let snaps = self.tree.snaps_of(m.ino);
        let next = snaps.range(SnapId(m.snap_follows.0.saturating_add(1))..).next().copied();
        let Some(snap) = next.filter(|_| held) else { return };
        let node = self.tree.at_mut(m.ino);
        if node.unflushed.get(&client).is_some_and(|newest| *newest <= snap) {
            node.unflushed.remove(&client);
        }
        let dirty = m.dirty & bits::EXCLUSIVE;
        if dirty != 0 && !done && self.read_only.is_none() {
            let mut txn = Txn::at(self.world.time());
            self.tree.cow(&mut txn, m.ino);
            self.tree.change_version(&mut txn, m.ino, snap, |store| {
                // Nor how often the file was cut: it has not been since.
                let mut m = m.clone();
                m.file.truncate_seq = store.inode.file.truncate.seq;
                put_values(store, &m, dirty);
            });
            self.note_flush(&mut txn, client, tid);
            self.commit(txn);
        }
        self.requests.wake_caps(m.ino);
    }

    /// A client holds nothing of an inode any more.
    pub fn remove_cap(&mut self, ino: Ino, client: i64) {
        if let Some(session) = self.sessions.by_client.get_mut(&client) {
            session.caps.remove(&ino);
        }
        let Some(node) = self.tree.nodes.get_mut(&ino) else { return };
        node.caps.by_client.remove(&client);
        node.unflushed.remove(&client);
        if self.range_of(ino, client) > 0 {
            self.drop_range(ino, client);
        }
        self.eval(ino);
        self.requests.wake_caps(ino);
        self.eval_stray(ino);
    }

    pub fn on_cap_release(&mut self, client: i64, m: &ClientCapRelease) {
        self.counted.mds.handle_client_cap_release += 1;
        for r in &m.caps {
            let cap = self.tree.node(r.ino).and_then(|n| n.caps.by_client.get(&client));
            if cap.is_some_and(|c| c.id == r.cap_id && c.issue_seq <= r.seq) {
                self.remove_cap(r.ino, client);
            }
        }
    }

    /// What a request gives back before it asks.
    pub fn on_release_item(&mut self, client: i64, r: &ReleaseItem) {
        self.counted.mds.process_request_cap_release += 1;
        let Some(node) = self.tree.nodes.get_mut(&r.ino) else { return };
        let Some(cap) = node.caps.by_client.get_mut(&client) else { return };
        if cap.id != r.cap_id || r.cap_id == 0 {
            return;
        }
        cap.confirm(r.seq, r.caps);
        cap.wanted = r.wanted;
        self.eval(r.ino);
        self.requests.wake_caps(r.ino);
    }

    /// No leases are given; one that a client believes in is taken back or not renewed.
    pub fn on_lease(&mut self, client: i64, m: &ClientLease) {
        if m.action == lease_action::RENEW {
            let answer = ClientLease { action: lease_action::REVOKE, ..m.clone() };
            if let Some(session) = self.sessions.by_client.get_mut(&client) {
                session.pushes += 1;
            }
            self.send(client, &answer, 0);
        }
    }

    /// The file was cut: every client that has something of it hears how.
    pub fn send_truncate(&mut self, ino: Ino) {
        let clients: Vec<i64> = self.tree.at(ino).caps.by_client.keys().copied().collect();
        for client in clients {
            self.send_caps(ino, client, cap_op::TRUNC);
        }
    }
}

/// How far a client may write a file that gets `Fw`, and wishes for that many bytes: at least as far
/// as it wishes, for some clients ask once and wait.
pub(crate) fn range_end(inode: &Inode, wish: u64) -> u64 {
    let size = inode.file.size.max(wish);
    let object = u64::from(inode.layout.object_size).max(1);
    let period = object * u64::from(inode.layout.stripe_count).max(1);
    let ahead = size.saturating_add(AHEAD_OBJECTS * object);
    let end = (size.saturating_add(1).saturating_mul(2)).min(ahead);
    end.div_ceil(period).saturating_mul(period)
}

/// Takes over values that a client changed.
fn put_values(store: &mut InodeStore, m: &ClientCaps, dirty: u32) {
    let is_file = store.inode.is_file();
    let i = &mut store.inode;
    i.times.ctime = i.times.ctime.max(m.file.ctime);
    i.versions.change_attr = i.versions.change_attr.max(m.attrs.change_attr);
    if dirty & (bits::FW | bits::FX) != 0 {
        let all = dirty & bits::FX != 0;
        if all || m.file.mtime > i.times.mtime {
            i.times.mtime = m.file.mtime;
        }
        if all {
            i.times.atime = m.file.atime;
        }
        i.times.time_warp_seq = i.times.time_warp_seq.max(m.file.time_warp_seq);
        if !m.fscrypt.file.is_empty() {
            i.fscrypt.file = m.fscrypt.file.clone();
        }
        // Linux does not tell how often the file was cut: it sends 0.
        let seq = m.file.truncate_seq;
        let is_newest = seq == 0 || seq >= i.file.truncate.seq;
        if is_file && is_newest && m.file.size > i.file.size {
            i.file.size = m.file.size;
            i.file.max_size_ever = i.file.max_size_ever.max(m.file.size);
            i.dir.rstat.rbytes = m.file.size as i64;
        }
    }
    if dirty & bits::AX != 0 {
        i.uid = m.attrs.uid;
        i.gid = m.attrs.gid;
        i.mode = i.mode & 0o170_000 | m.attrs.mode & 0o7777;
        i.times.btime = m.attrs.btime;
        if !m.fscrypt.auth.is_empty() {
            i.fscrypt.auth = m.fscrypt.auth.clone();
        }
    }
    i.dir.rstat.rctime = i.dir.rstat.rctime.max(i.times.ctime);
    if dirty & bits::XX != 0
        && m.attrs.xattr_version > i.versions.xattr
        && let Ok(xattrs) = ByteMap::from_shared(&m.attrs.xattrs)
    {
        i.versions.xattr = m.attrs.xattr_version;
        store.xattrs = xattrs;
    }
}
