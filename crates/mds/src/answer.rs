//! Answers to requests: how they look, and when they leave.

use bytes::Bytes;
use maps::fs::{InodeStore, OptMetadata};
use messages::fs::{
    ClientReply, CreatedInode, DirStat, FscryptBlobs, InodeStat, LeaseStat, ReplyCap, StatDir,
    StatSize, StatTimes, TraceDentry,
};
use types::{Denc, Epoch, Ino, SnapId};

use crate::capset::bits;
use crate::gate::{EARLY_MAX, Wait};
use crate::ops::Seen;
use crate::rank::Rank;
use crate::realm::GLOBAL;
use crate::request::{Answer, Extra};
use crate::tree::{Link, Sums};

impl Rank {
    /// An answer without anything in it.
    pub fn safe_reply(&self, op: u32, result: i32) -> ClientReply {
        let mdsmap_epoch = self.epoch();
        ClientReply { op, result, mdsmap_epoch, safe: true, ..ClientReply::default() }
    }

    pub fn send_reply(&mut self, client: i64, tid: u64, reply: ClientReply, wait: Wait) {
        let asked = self.requests.answering.take();
        self.send_answer(client, &reply, tid, (wait, asked));
    }

    /// Says that a request is done for good, and which inode it made.
    pub fn reply_done(&mut self, client: i64, tid: u64, op: u32, ino: Ino, wait: Wait) {
        let mut reply = self.safe_reply(op, 0);
        if ino != Ino(0) {
            reply.extra = ino.to_bytes();
        }
        self.send_reply(client, tid, reply, wait);
    }

    /// Whether a request whose record is `made` is answered before that is durable, once `newest` is:
    /// then an answer follows that says that it is safe.
    fn is_early(&self, client: i64, made: u64, newest: u64) -> bool {
        let conn = self.sessions.by_client.get(&client).and_then(|s| s.conn);
        self.world.config.options.early_reply
            && newest < made
            && !self.is_full()
            // What waits for the same write as the record itself is answered once.
            && self.journal.is_written(newest)
            && conn.is_some_and(|c| self.gate.waiting(c) < EARLY_MAX)
    }

    /// Answers a request, whose record is `made`.
    pub fn reply_with(
        &mut self,
        client: i64,
        tid: u64,
        op: u32,
        (result, made): (i32, Option<u64>),
        answer: Answer,
    ) {
        let mut reply = self.safe_reply(op, result);
        let Some(features) = self.sessions.by_client.get(&client).map(|s| s.peer.features) else {
            return;
        };
        let of = answer.target.or(answer.dentry.as_ref().map(|(dir, _)| *dir));
        if let Some(ino) = of {
            reply.snap_trace = self.snap_trace(ino, client);
        }
        if let Some((dir, name)) = answer.dentry {
            let cap = self.issue(dir, client, 0);
            let primary = matches!(
                self.tree.lookup(dir, &name),
                Ok(Some(e)) if matches!(e.link, Link::Primary(_))
            );
            let frag =
                DirStat { frag: self.tree.at(dir).frag_of(&name), auth: -1, ..DirStat::default() };
            let dir = match made {
                Some(_) => self.stat_after(dir, client, cap),
                None => self.stat(dir, client, cap, false),
            };
            let lease = self.no_lease(&name, &dir, primary);
            reply.dentry = Some(Box::new(TraceDentry { dir, frag, name, lease }));
        }
        if let Some(ino) = answer.target {
            let cap = self.issue(ino, client, answer.wanted);
            reply.target = Some(Box::new(self.stat(ino, client, cap, answer.xattrs)));
        }
        if let Some((dir, name)) = answer.seen_in {
            let frag = self.tree.node(dir.ino()).map(|n| n.frag_of(&name)).unwrap_or_default();
            let frag = DirStat { frag, auth: -1, ..DirStat::default() };
            let dir = self.stat_seen(&dir);
            let lease = LeaseStat::default();
            reply.dentry = Some(Box::new(TraceDentry { dir, frag, name, lease }));
        }
        if let Some(seen) = &answer.seen {
            if seen.ino() == GLOBAL {
                // Linux goes on asking until this inode is in the realm that it is.
                reply.snap_trace = self.global_trace(client);
            }
            reply.target = Some(Box::new(self.stat_seen(seen)));
        }
        reply.extra = match answer.extra {
            Extra::Past(frag, entries, flags) => {
                let entries = entries
                    .into_iter()
                    .map(|(name, seen)| {
                        let lease = LeaseStat {
                            mask: LeaseStat::VALID | LeaseStat::PRIMARY,
                            duration_ms: u32::MAX,
                            ..LeaseStat::default()
                        };
                        let inode = self.stat_seen(&seen);
                        messages::fs::DirEntry { name, lease, inode }
                    })
                    .collect();
                let frag = DirStat { frag, auth: -1, ..DirStat::default() };
                messages::fs::DirListing { frag, flags, entries }.to_bytes_for(features)
            }
            Extra::None => Bytes::new(),
            Extra::Bytes(bytes) => bytes,
            Extra::Created(ino) => {
                CreatedInode { ino, ..CreatedInode::default() }.to_bytes_for(features)
            }
            Extra::Listing(frag, entries, flags) => {
                // The answer tells of the directory's realm alone: what is in another one comes without
                // caps, which name theirs.
                let realm = of.map(|dir| self.realm_of(dir));
                let entries = entries
                    .into_iter()
                    .map(|(name, ino, primary)| {
                        let told = !self.tree.is_realm(ino)
                            && (primary || Some(self.realm_of(ino)) == realm);
                        let cap =
                            if told { self.issue(ino, client, 0) } else { ReplyCap::default() };
                        let inode = self.stat(ino, client, cap, true);
                        let lease = self.no_lease(&name, &inode, primary);
                        messages::fs::DirEntry { name, lease, inode }
                    })
                    .collect();
                let frag = DirStat { frag, auth: -1, ..DirStat::default() };
                messages::fs::DirListing { frag, flags, entries }.to_bytes_for(features)
            }
        };
        let newest = self.tree.tags.newest();
        match made.filter(|made| self.is_early(client, *made, newest)) {
            Some(_) => {
                (reply.safe, reply.mdsmap_epoch) = (false, Epoch(0));
                self.send_reply(client, tid, reply, Wait::For(newest));
                let safe = self.safe_reply(op, result);
                self.send_reply(client, tid, safe, Wait::Loose);
            }
            None => {
                let wait = Wait::For(newest.max(made.unwrap_or(0)));
                self.send_reply(client, tid, reply, wait);
            }
        }
        for ino in std::mem::take(&mut self.requests.too_much) {
            self.eval(ino);
        }
    }

    fn no_lease(&self, _name: &Bytes, _dir: &InodeStat, primary: bool) -> LeaseStat {
        LeaseStat { mask: if primary { LeaseStat::PRIMARY } else { 0 }, ..LeaseStat::default() }
    }

    /// An inode as a client sees it.
    pub fn stat(&self, ino: Ino, client: i64, cap: ReplyCap, xattrs: bool) -> InodeStat {
        stat_with(&self.tree.at(ino).store, self.tree.totals(ino), client, cap, xattrs)
    }

    /// A directory as a client sees it that has just changed it. See [`crate::tree::Tree::sums_after`].
    fn stat_after(&self, dir: Ino, client: i64, cap: ReplyCap) -> InodeStat {
        let sums = match cap.caps & bits::F {
            0 => self.tree.sums_after(dir, client),
            _ => self.tree.totals(dir),
        };
        stat_with(&self.tree.at(dir).store, sums, client, cap, false)
    }

    /// The same as a snapshot has it. Nobody changes that: all that is shared may be cached.
    pub fn stat_seen(&self, seen: &Seen) -> InodeStat {
        use bits::*;
        // `Fa` of a directory stands for its sums: clients ask for those by a path that leads to nothing
        // where a difference between two snapshots has the directory of the other one.
        let file = if seen.store.inode.is_dir() { FS | FA } else { FS | FC | FR };
        let caps = PIN | AS | LS | XS | file;
        // The realm of what has several names is the only one of now, and one of its own.
        let realm = if seen.snap == SnapId::HEAD { seen.ino() } else { Ino(0) };
        let cap = ReplyCap { caps, flags: 1, realm, ..ReplyCap::default() };
        let mut stat = stat_of(&seen.store, -1, cap, true);
        stat.snapid = seen.snap;
        if let Some(info) = self.tree.snaps.get(&seen.snap) {
            stat.times.snap_btime = info.stamp;
            stat.snap_metadata = info.metadata.clone();
        }
        stat
    }
}

/// An inode that adds up to `sums`, as a client sees it.
fn stat_with(
    store: &InodeStore,
    sums: Sums,
    client: i64,
    cap: ReplyCap,
    xattrs: bool,
) -> InodeStat {
    let mut stat = stat_of(store, client, cap, xattrs);
    (stat.times.mtime, stat.times.ctime) = (sums.mtime, sums.ctime);
    stat.times.change_attr = sums.changes;
    (stat.dir.nfiles, stat.dir.nsubdirs) = (sums.files, sums.dirs);
    (stat.dir.rbytes, stat.dir.rctime) = (sums.nest.rbytes, sums.nest.rctime);
    (stat.dir.rfiles, stat.dir.rsubdirs) = (sums.nest.rfiles, sums.nest.rsubdirs);
    stat
}

/// An inode as it stands, as a client sees it.
fn stat_of(store: &InodeStore, client: i64, cap: ReplyCap, xattrs: bool) -> InodeStat {
    let (i, d) = (&store.inode, &store.inode.dir);
    let with_xattrs = xattrs || cap.caps & bits::XS != 0;
    InodeStat {
        ino: i.ino,
        snapid: SnapId::HEAD,
        rdev: i.rdev,
        version: i.versions.version * 2,
        xattr_version: if with_xattrs { i.versions.xattr } else { 0 },
        cap,
        layout: i.layout.clone(),
        times: StatTimes {
            ctime: i.times.ctime,
            mtime: i.times.mtime,
            atime: i.times.atime,
            time_warp_seq: i.times.time_warp_seq,
            btime: i.times.btime,
            change_attr: i.versions.change_attr,
            ..StatTimes::default()
        },
        size: StatSize {
            size: i.file.size,
            max_size: i.file.client_ranges.get(&client).map_or(0, |r| r.last),
            truncate_size: i.file.truncate.size,
            truncate_seq: i.file.truncate.seq,
        },
        mode: i.mode,
        uid: i.uid,
        gid: i.gid,
        nlink: i.nlink.max(0) as u32,
        dir: StatDir {
            nfiles: d.dirstat.nfiles,
            nsubdirs: d.dirstat.nsubdirs,
            rbytes: d.rstat.rbytes,
            rfiles: d.rstat.rfiles,
            rsubdirs: d.rstat.rsubdirs,
            rsnaps: d.rstat.rsnaps.max(0) as u64,
            rctime: d.rstat.rctime,
            hash: d.hash,
            quota: d.quota,
            pin: i.pins.export_pin,
        },
        fragtree: store.fragtree.clone(),
        symlink: store.symlink.clone(),
        xattrs: if with_xattrs { store.xattrs.to_bytes() } else { Bytes::new() },
        inline: i.file.inline.clone(),
        fscrypt: FscryptBlobs { auth: i.fscrypt.auth.clone(), file: i.fscrypt.file.clone() },
        optmetadata: OptMetadata(i.optmetadata.0.clone()),
        ..InodeStat::default()
    }
}
