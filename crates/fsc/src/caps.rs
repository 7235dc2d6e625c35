//! Files that are open: what the client may do with them, and what it tells of them.
//!
//! A read needs `Fr`, a write `Fw` and room below `max_size`. Data goes to the OSDs at once, sizes and
//! times stay here as *dirty* until a flush, a revoke or a close. What is taken back is given back at
//! once, except what a read or write under way needs.

use denc::DecodeError;
use env::Now;
use maps::fs::InlineData;
use messages::fs::{CapAttrs, CapFile, CapTail, ClientCaps, InodeStat, ReleasedCap, cap_op};
use striper::FileLayout;
use types::{Errno, Ino, SnapId, UTime};

use crate::client::stamp;
use crate::realms::Context;
use crate::{Client, Out, errno};

/// Caps. The peer's `CEPH_CAP_*`.
#[allow(missing_docs)]
pub mod bits {
    pub const PIN: u32 = 1;
    pub const AS: u32 = 4;
    pub const LS: u32 = 0x10;
    pub const XS: u32 = 0x40;
    pub const FS: u32 = 0x100;
    pub const FX: u32 = 0x200;
    pub const FR: u32 = 0x800;
    pub const FW: u32 = 0x1000;
}
use bits::{FR, FS, FW, FX, PIN};

/// Modes and flags of opens. The peer's `CEPH_O_*`.
#[allow(missing_docs)]
pub mod open_flag {
    pub const RDONLY: u32 = 0;
    pub const WRONLY: u32 = 1;
    pub const RDWR: u32 = 2;
    pub const MODE: u32 = 3;
    pub const CREAT: u32 = 0o100;
    pub const EXCL: u32 = 0o200;
    pub const TRUNC: u32 = 0o1000;
}

/// What is wanted of a file that is open so.
#[must_use]
pub const fn wanted_of(flags: u32) -> u32 {
    match flags & open_flag::MODE {
        open_flag::WRONLY => PIN | FW,
        open_flag::RDWR => PIN | FS | FR | FW,
        _ => PIN | FS | FR,
    }
}

const fn writes(flags: u32) -> bool {
    flags & open_flag::MODE != open_flag::RDONLY
}

/// Snapshots whose state of a file was told and not confirmed; the file counts as lost beyond.
const SNAPS_MAX: usize = 64;
/// `CLIENT_CAPS_NO_CAPSNAP`: nothing is left to tell of earlier snapshots.
const NO_CAPSNAP: u32 = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cap {
    pub rank: i32,
    pub id: u64,
    pub seq: u32,
    pub issue_seq: u32,
    pub mseq: u32,
    /// What the server says it holds.
    pub issued: u32,
    /// What it holds in truth: more, until it gives back.
    pub held: u32,
}

/// What is told of a file as it was when a snapshot was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SnapFlush {
    pub follows: SnapId,
    tid: u64,
    file: CapFile,
    change_attr: u64,
    /// A write was under way: it is told when that ended.
    waits: bool,
}

/// A file that is open.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct File {
    /// Size in bytes, as far as it is known: exactly with `Fs` or `Fx`.
    pub size: u64,
    /// Where its data is.
    pub layout: FileLayout,
    /// How often it was cut, and to what size: OSDs are told.
    pub truncate: (u32, u64),
    pub(crate) cap: Option<Cap>,
    pub(crate) wanted: u32,
    pub(crate) is_lost: bool,
    pub(crate) realm: Ino,
    pub(crate) flushing: Option<u64>,
    pub(crate) flushing_snaps: Vec<SnapFlush>,
    opens: [u32; 2],
    io: [u32; 2],
    max_size: u64,
    wish: u64,
    times: [UTime; 3],
    time_warp_seq: u32,
    change_attr: u64,
    inline_version: u64,
    dirty: bool,
}

const MTIME: usize = 0;
const ATIME: usize = 1;
const CTIME: usize = 2;

impl File {
    fn values(&self) -> CapFile {
        CapFile {
            size: self.size,
            max_size: 0,
            truncate_size: self.truncate.1,
            truncate_seq: self.truncate.0,
            mtime: self.times[MTIME],
            atime: self.times[ATIME],
            ctime: self.times[CTIME],
            layout: self.layout.clone(),
            time_warp_seq: self.time_warp_seq,
        }
    }

    fn in_use(&self) -> u32 {
        let of = |n: u32, cap: u32| if n > 0 { cap } else { 0 };
        of(self.io[0], FR) | of(self.io[1], FW)
    }

    /// Takes over a size that a server says: of a later cut, or larger. The peer's
    /// `Client::update_inode_file_size`.
    fn take_size(&mut self, size: u64, seq: u32, truncate_size: u64) {
        if seq > self.truncate.0 || (seq == self.truncate.0 && size > self.size) {
            self.size = size;
        }
        if seq > self.truncate.0 {
            self.truncate = (seq, truncate_size);
        }
    }

    fn take_times(&mut self, warp: u32, times: [UTime; 3]) {
        if !self.dirty || warp > self.time_warp_seq {
            self.times = times;
        } else {
            for (own, told) in self.times.iter_mut().zip(times) {
                *own = (*own).max(told);
            }
        }
        self.time_warp_seq = self.time_warp_seq.max(warp);
    }
}

impl Client {
    /// A file that is open.
    #[must_use]
    pub fn file(&self, ino: Ino) -> Option<&File> {
        self.files.get(&ino)
    }

    /// The snapshots that a write to a file has to keep: newest change, and all, newest first.
    #[must_use]
    pub fn snap_context(&self, ino: Ino) -> Context {
        self.files.get(&ino).map_or_else(Default::default, |f| self.realms.context(f.realm))
    }

    pub(crate) fn open_file(&mut self, stat: &InodeStat, flags: u32) {
        let file = self.files.entry(stat.ino).or_default();
        file.opens[usize::from(writes(flags))] += 1;
        file.wanted |= wanted_of(flags);
        if file.is_lost && file.cap.is_none() && file.opens.iter().sum::<u32>() == 1 {
            file.is_lost = false;
        }
    }

    /// What an answer says of a file that is open.
    pub(crate) fn file_heard(&mut self, rank: i32, stat: &InodeStat, out: &mut Vec<Out>) {
        let Some(file) = self.files.get_mut(&stat.ino) else { return };
        let (size, times) = (&stat.size, &stat.times);
        file.take_size(size.size, size.truncate_seq, size.truncate_size);
        file.take_times(times.time_warp_seq, [times.mtime, times.atime, times.ctime]);
        file.layout = stat.layout.clone();
        file.change_attr = file.change_attr.max(times.change_attr);
        file.inline_version = stat.inline.version;
        let told = stat.cap;
        if told.cap_id == 0 {
            return;
        }
        file.max_size = size.max_size;
        file.realm = told.realm;
        match &mut file.cap {
            Some(cap) if cap.id == told.cap_id && cap.rank == rank => {
                // An answer takes nothing back.
                cap.issued |= told.caps;
                cap.held |= told.caps;
                (cap.seq, cap.issue_seq, cap.mseq) = (told.seq, told.seq, told.mseq);
            }
            cap => {
                *cap = Some(Cap {
                    rank,
                    id: told.cap_id,
                    seq: told.seq,
                    issue_seq: told.seq,
                    mseq: told.mseq,
                    issued: told.caps,
                    held: told.caps,
                });
            }
        }
        out.push(Out::Changed);
    }

    pub(crate) fn on_caps(
        &mut self,
        rank: i32,
        m: ClientCaps,
        tid: u64,
        out: &mut Vec<Out>,
    ) -> Result<(), DecodeError> {
        self.take_trace(&m.snap_trace)?;
        let Some(file) = self.files.get_mut(&m.ino) else {
            self.not_held(rank, &m, out);
            return Ok(());
        };
        match m.op {
            cap_op::FLUSH_ACK => {
                if file.flushing == Some(tid) {
                    file.flushing = None;
                }
            }
            cap_op::FLUSHSNAP_ACK => file.flushing_snaps.retain(|s| s.tid != tid || s.waits),
            cap_op::EXPORT => {
                let moved = file.cap.filter(|c| c.rank == rank && c.id == m.cap_id);
                if let (Some(cap), Some(peer)) = (moved, m.peer) {
                    file.cap = (peer.cap_id != 0).then_some(Cap {
                        rank: peer.mds,
                        id: peer.cap_id,
                        seq: peer.seq,
                        issue_seq: peer.seq,
                        mseq: peer.mseq,
                        ..cap
                    });
                    file.is_lost = file.cap.is_none();
                    self.need_session(peer.mds, out);
                }
            }
            cap_op::IMPORT => {
                let newer = file.cap.is_none_or(|c| c.mseq <= m.migrate_seq);
                if newer {
                    let held = file.cap.map_or(0, |c| c.held) | m.caps;
                    file.cap = Some(Cap {
                        rank,
                        id: m.cap_id,
                        seq: m.seq,
                        issue_seq: m.issue_seq,
                        mseq: m.migrate_seq,
                        issued: m.caps,
                        held,
                    });
                    file.realm = m.realm;
                    self.settle(m.ino, true, out);
                }
            }
            cap_op::GRANT | cap_op::REVOKE | cap_op::TRUNC => {
                let known = file.cap.as_mut().filter(|c| c.rank == rank && c.id == m.cap_id);
                let Some(cap) = known else {
                    self.not_held(rank, &m, out);
                    return Ok(());
                };
                if m.op == cap_op::TRUNC {
                    cap.seq = m.seq;
                } else {
                    let taken = cap.issued & !m.caps;
                    (cap.seq, cap.issue_seq, cap.mseq) = (m.seq, m.issue_seq, m.migrate_seq);
                    cap.issued = m.caps;
                    cap.held |= m.caps;
                    if m.file.max_size > file.max_size {
                        file.wish = 0;
                    }
                    file.max_size = m.file.max_size;
                    file.realm = m.realm;
                    let had_all = taken == 0 && m.op == cap_op::GRANT;
                    let f = &m.file;
                    file.take_size(f.size, f.truncate_seq, f.truncate_size);
                    file.take_times(f.time_warp_seq, [f.mtime, f.atime, f.ctime]);
                    file.change_attr = file.change_attr.max(m.attrs.change_attr);
                    if !had_all {
                        self.settle(m.ino, true, out);
                    }
                    out.push(Out::Changed);
                    return Ok(());
                }
                let f = &m.file;
                file.take_size(f.size, f.truncate_seq, f.truncate_size);
            }
            op => tracing::debug!("rank {rank}: caps message {op}"),
        }
        out.push(Out::Changed);
        Ok(())
    }

    /// A server speaks of a cap that was given back, perhaps before it was heard: once more.
    fn not_held(&mut self, rank: i32, m: &ClientCaps, out: &mut Vec<Out>) {
        if matches!(m.op, cap_op::GRANT | cap_op::REVOKE | cap_op::TRUNC | cap_op::IMPORT) {
            let cap = ReleasedCap {
                ino: m.ino,
                cap_id: m.cap_id,
                migrate_seq: m.migrate_seq,
                seq: m.issue_seq,
            };
            self.release(rank, cap, out);
            // The server may be waiting for it.
            self.send_releases(rank, out);
        }
    }

    /// Gives back what the server took and nothing here needs; `asked`: the server waits for an answer.
    pub(crate) fn settle(&mut self, ino: Ino, asked: bool, out: &mut Vec<Out>) {
        let Some(file) = self.files.get_mut(&ino) else { return };
        let in_use = file.in_use();
        let Some(cap) = &mut file.cap else { return };
        let (rank, before) = (cap.rank, cap.held);
        let loses_write = cap.held & !cap.issued & FW != 0 && in_use & FW == 0;
        cap.held = cap.issued | (cap.held & in_use);
        if (cap.held == before && !asked)
            || !self.sessions.get(&rank).is_some_and(|s| s.life == crate::sessions::Life::Open)
        {
            return;
        }
        let dirty = loses_write && file.dirty;
        self.tell(ino, dirty, 0, out);
    }

    /// After a reconnect: what was to be given back is, by a new word of the server alone.
    pub(crate) fn settle_all(&mut self, rank: i32, out: &mut Vec<Out>) {
        let of_rank = |f: &File| f.cap.is_some_and(|c| c.rank == rank);
        let inos: Vec<Ino> =
            self.files.iter().filter(|(_, f)| of_rank(f)).map(|(ino, _)| *ino).collect();
        for ino in inos {
            self.settle(ino, false, out);
        }
    }

    /// Tells what is held, wanted, and, if `flush`, what changed.
    fn tell(&mut self, ino: Ino, flush: bool, wish: u64, out: &mut Vec<Out>) {
        let Some(file) = self.files.get_mut(&ino) else { return };
        let Some(cap) = file.cap else { return };
        let mut tid = 0;
        if flush {
            self.last_flush += 1;
            tid = self.last_flush;
            file.flushing = Some(tid);
            file.dirty = false;
        }
        self.send_caps(ino, cap, tid, wish, out);
    }

    fn send_caps(&self, ino: Ino, cap: Cap, tid: u64, wish: u64, out: &mut Vec<Out>) {
        let Some(file) = self.files.get(&ino) else { return };
        let mut m = ClientCaps {
            op: cap_op::UPDATE,
            ino,
            cap_id: cap.id,
            seq: cap.seq,
            issue_seq: cap.issue_seq,
            caps: cap.held,
            wanted: file.wanted,
            dirty: if tid == 0 { 0 } else { FW },
            migrate_seq: cap.mseq,
            snap_follows: self.realms.context(file.realm).0,
            attrs: CapAttrs { change_attr: file.change_attr, ..CapAttrs::default() },
            file: CapFile { max_size: wish, ..file.values() },
            inline: InlineData { version: file.inline_version, ..InlineData::default() },
            tail: CapTail { oldest_flush_tid: self.oldest_flush(), ..CapTail::default() },
            ..ClientCaps::default()
        };
        if file.flushing_snaps.is_empty() {
            m.tail.flags = NO_CAPSNAP;
        }
        self.send(cap.rank, &m, tid, out);
    }

    fn oldest_flush(&self) -> u64 {
        let snaps = self.files.values().flat_map(|f| f.flushing_snaps.iter().map(|s| s.tid));
        let tids = self.files.values().filter_map(|f| f.flushing).chain(snaps);
        tids.filter(|t| *t != 0).min().unwrap_or(self.last_flush + 1)
    }

    /// What was not confirmed is told again to a rank's next server.
    pub(crate) fn resend_flushes(&mut self, rank: i32, out: &mut Vec<Out>) {
        for (ino, file) in &self.files {
            let Some(cap) = file.cap.filter(|c| c.rank == rank) else { continue };
            for flush in file.flushing_snaps.iter().filter(|s| !s.waits) {
                self.send_snap(*ino, cap, flush, out);
            }
            if let Some(tid) = file.flushing {
                self.send_caps(*ino, cap, tid, 0, out);
            }
        }
    }

    fn send_snap(&self, ino: Ino, cap: Cap, flush: &SnapFlush, out: &mut Vec<Out>) {
        let m = ClientCaps {
            op: cap_op::FLUSHSNAP,
            ino,
            cap_id: cap.id,
            seq: cap.seq,
            issue_seq: cap.issue_seq,
            caps: cap.held,
            dirty: FW,
            migrate_seq: cap.mseq,
            snap_follows: flush.follows,
            attrs: CapAttrs { change_attr: flush.change_attr, ..CapAttrs::default() },
            file: flush.file.clone(),
            tail: CapTail { oldest_flush_tid: self.oldest_flush(), ..CapTail::default() },
            ..ClientCaps::default()
        };
        self.send(cap.rank, &m, flush.tid, out);
    }

    /// A snapshot was made: what is unwritten of a file is part of it.
    pub(crate) fn keep_for_snap(&mut self, ino: Ino, follows: SnapId, out: &mut Vec<Out>) {
        let Some(file) = self.files.get_mut(&ino) else { return };
        let waits = file.io[1] > 0;
        if !file.dirty && file.flushing.is_none() && !waits {
            return;
        }
        if file.flushing_snaps.len() >= SNAPS_MAX {
            file.is_lost = true;
            return;
        }
        self.last_flush += 1;
        let flush = SnapFlush {
            follows,
            tid: self.last_flush,
            file: file.values(),
            change_attr: file.change_attr,
            waits,
        };
        file.flushing_snaps.push(flush.clone());
        let cap = file.cap;
        if let Some(cap) = cap.filter(|_| !waits) {
            self.send_snap(ino, cap, &flush, out);
        }
    }

    // ----- I/O -----

    fn ready(&self, file: &File) -> Result<Option<Cap>, Errno> {
        if file.is_lost {
            return Err(errno::STALE);
        }
        if let Some(why) = self.refused {
            return Err(why);
        }
        Ok(file.cap.filter(|c| self.counts(c.rank)))
    }

    /// Whether the file may be read now, and whether [`File::size`] is exact. Begins the read.
    ///
    /// # Errors
    /// ESTALE where the server forgot this client; EBLOCKLISTED; EBADF where it is not open.
    pub fn may_read(&mut self, ino: Ino) -> Result<Option<bool>, Errno> {
        let file = self.files.get(&ino).ok_or(Errno(-9))?;
        let Some(cap) = self.ready(file)?.filter(|c| c.issued & FR != 0) else { return Ok(None) };
        if let Some(file) = self.files.get_mut(&ino) {
            file.io[0] += 1;
        }
        Ok(Some(cap.issued & (FS | FX) != 0))
    }

    /// Whether the file may be written up to `end` now. Begins the write, or asks for room.
    ///
    /// # Errors
    /// As [`Client::may_read`].
    pub fn may_write(&mut self, ino: Ino, end: u64, out: &mut Vec<Out>) -> Result<bool, Errno> {
        let file = self.files.get(&ino).ok_or(Errno(-9))?;
        let Some(cap) = self.ready(file)?.filter(|c| c.issued & FW != 0) else { return Ok(false) };
        let has_room = end <= file.max_size;
        let asks = !has_room && file.wish < end;
        let Some(file) = self.files.get_mut(&ino) else { return Ok(false) };
        if has_room {
            file.io[1] += 1;
            return Ok(true);
        }
        if asks && cap.held == cap.issued {
            file.wish = end;
            self.tell(ino, false, end, out);
        }
        Ok(false)
    }

    /// A read ended.
    pub fn end_read(&mut self, ino: Ino, out: &mut Vec<Out>) {
        self.end_io(ino, 0, out);
    }

    /// A write ended that reached `end`; 0 where it failed.
    pub fn end_write(&mut self, now: Now, ino: Ino, end: u64, out: &mut Vec<Out>) {
        if let Some(file) = self.files.get_mut(&ino)
            && end > 0
        {
            file.size = file.size.max(end);
            file.times[MTIME] = stamp(now);
            file.times[CTIME] = stamp(now);
            file.change_attr += 1;
            file.dirty = true;
        }
        self.end_io(ino, 1, out);
    }

    fn end_io(&mut self, ino: Ino, kind: usize, out: &mut Vec<Out>) {
        let Some(file) = self.files.get_mut(&ino) else { return };
        file.io[kind] = file.io[kind].saturating_sub(1);
        if kind == 1 && file.io[1] == 0 {
            let (values, attr, cap) = (file.values(), file.change_attr, file.cap);
            let mut told = Vec::new();
            for flush in file.flushing_snaps.iter_mut().filter(|s| s.waits) {
                (flush.waits, flush.file, flush.change_attr) = (false, values.clone(), attr);
                told.push(flush.clone());
            }
            for flush in told {
                if let Some(cap) = cap {
                    self.send_snap(ino, cap, &flush, out);
                }
            }
        }
        self.settle(ino, false, out);
        out.push(Out::Changed);
    }

    /// Tells the server size and times, where they changed; [`Client::is_flushed`] says when it
    /// confirmed that they are durable.
    ///
    /// # Errors
    /// As [`Client::may_read`].
    pub fn flush(&mut self, ino: Ino, out: &mut Vec<Out>) -> Result<(), Errno> {
        let file = self.files.get(&ino).ok_or(Errno(-9))?;
        let cap = self.ready(file)?;
        if file.dirty && file.flushing.is_none() && cap.is_some() {
            self.tell(ino, true, 0, out);
        }
        Ok(())
    }

    /// Whether nothing of a file is left to tell; [`Client::flush`] is to be called again meanwhile.
    ///
    /// # Errors
    /// As [`Client::may_read`].
    pub fn is_flushed(&self, ino: Ino) -> Result<bool, Errno> {
        let file = self.files.get(&ino).ok_or(Errno(-9))?;
        self.ready(file)?;
        Ok(!file.dirty && file.flushing.is_none() && file.flushing_snaps.is_empty())
    }

    /// Ends one opening of a file in a mode. What is dirty is to be flushed before: it is told once
    /// more, and nobody waits for the answer.
    pub fn forget(&mut self, ino: Ino, flags: u32, out: &mut Vec<Out>) {
        let Some(file) = self.files.get_mut(&ino) else { return };
        let opens = &mut file.opens[usize::from(writes(flags))];
        *opens = opens.saturating_sub(1);
        if file.opens != [0, 0] {
            return;
        }
        if file.dirty && file.cap.is_some() {
            self.tell(ino, true, 0, out);
        }
        let Some(file) = self.files.remove(&ino) else { return };
        if let Some(cap) = file.cap {
            let released =
                ReleasedCap { ino, cap_id: cap.id, migrate_seq: cap.mseq, seq: cap.issue_seq };
            self.release(cap.rank, released, out);
            self.send_releases(cap.rank, out);
        }
    }
}
