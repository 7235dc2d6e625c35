//! Operations that change nothing: lookups, attributes, listings, opening.

use auth::MdsMay;
use bytes::Bytes;
use maps::fs::{Frag, dentry_hash};
use messages::fs::{OpenArgs, ReaddirArgs, readdir_flag};
use types::{Errno, Ino};

use super::snap::Place;
use crate::capset::bits;
use crate::errno;
use crate::rank::Rank;
use crate::request::{Answer, Call, Extra, Op, Stop};
use crate::tree::Link;

/// Entries that one answer has at most, where the client leaves it to the server.
pub(super) const ENTRIES_MAX: usize = 4096;
/// Bytes of an answer that are aimed at: the peer's 512 KiB.
pub(super) const LISTING_BYTES: usize = 512 << 10;
/// Bytes of one listed entry without its name, about.
pub(super) const ENTRY_BYTES: usize = 420;

/// `CEPH_O_*`.
pub(super) mod oflag {
    pub const WRONLY: u32 = 1;
    pub const RDWR: u32 = 2;
    pub const EXCL: u32 = 0o200;
    pub const TRUNC: u32 = 0o1000;
    pub const DIRECTORY: u32 = 0o200_000;
}

/// What a client wants of a file that it opens so. The peer's `ceph_caps_for_mode`.
pub(crate) const fn wanted_of(flags: u32) -> u32 {
    use bits::*;
    let read = FS | FR | FC;
    let write = FX | FW | FB | AS | AX | XS | XX;
    match flags & 3 {
        oflag::WRONLY => PIN | write,
        oflag::RDWR => PIN | read | write,
        _ => PIN | read,
    }
}

/// Whether a file that is opened so changes by that: its maker may write, or it is cut.
pub(crate) const fn is_open_for_change(flags: u32) -> bool {
    flags & (3 | oflag::TRUNC) != 0
}

/// Entries and bytes that the answer of a listing may have.
pub(super) fn listing_bounds(args: &ReaddirArgs) -> (usize, usize) {
    let or = |asked: u32, own: usize| if asked == 0 { own } else { asked as usize };
    (or(args.max_entries, ENTRIES_MAX).min(ENTRIES_MAX), or(args.max_bytes, LISTING_BYTES))
}

/// The flags of a listing's answer: `whole` to the fragment's end, `first` from its beginning. A
/// client that `asked` without bit 0 knows no others than these two.
pub(super) const fn listing_flags(whole: bool, first: bool, asked: u16) -> u16 {
    let mut flags = readdir_flag::HASH_ORDER | readdir_flag::OFFSET_HASH;
    if whole {
        flags |= readdir_flag::FRAG_END;
        if first {
            flags |= readdir_flag::FRAG_COMPLETE;
        }
    }
    if asked & 1 == 0 {
        flags &= readdir_flag::FRAG_END | readdir_flag::FRAG_COMPLETE;
    }
    flags
}

/// The fragment that a listing goes on in.
pub(super) fn frag_asked(tree: &maps::fs::FragTree, asked: Frag, offset: u32) -> Frag {
    if tree.is_leaf(asked) { asked } else { tree.leaf_of(offset.max(asked.value()) & 0xff_ffff) }
}

impl Rank {
    pub(super) fn op_lookup(&mut self, call: &Call, mask: u32) -> Op<Answer> {
        if let Some(answer) = self.lookup_seen(call)? {
            return Ok(answer);
        }
        let (dir, name) = self.parent(call.m.path.ino, &call.m.path.path)?;
        self.check(call, dir, MdsMay::READ)?;
        let target = self.child(dir, &name)?.ok_or(Errno::NOENT)?;
        self.need_read(call, target, mask)?;
        let xattrs = mask & bits::XS != 0;
        Ok(Answer { dentry: Some((dir, name)), target: Some(target), xattrs, ..Answer::default() })
    }

    pub(super) fn op_getattr(&mut self, call: &Call, mask: u32) -> Op<Answer> {
        let ino = match self.place_of(call.m.path.ino, &call.m.path.path)? {
            Place::Now(ino) | Place::Snaps(ino) => ino,
            Place::Then(seen) => return self.answer_seen(call, seen),
        };
        self.check(call, ino, MdsMay::READ)?;
        self.need_read(call, ino, mask)?;
        let xattrs = mask & bits::XS != 0;
        Ok(Answer { target: Some(ino), xattrs, ..Answer::default() })
    }

    pub(super) fn op_lookup_ino(&mut self, call: &Call) -> Op<Answer> {
        use messages::fs::mds_op;
        let asked = call.m.path.ino;
        if call.m.op == mds_op::LOOKUPINO
            && let Some(answer) = self.lookup_vino(call, asked)?
        {
            return Ok(answer);
        }
        let ino = self.inode(asked)?;
        match call.m.op {
            mds_op::LOOKUPPARENT => {
                let at = self.tree.at(ino).at.as_ref().map(|(dir, _)| *dir);
                let dir = at.filter(|_| !self.tree.at(ino).is_stray()).ok_or(Errno::NOENT)?;
                self.check(call, dir, MdsMay::READ)?;
                Ok(Answer { target: Some(dir), ..Answer::default() })
            }
            mds_op::LOOKUPNAME => {
                // The name of the inode in a directory: path is the parent, path2 the inode.
                let child = self.inode(call.m.path2.ino)?;
                self.check(call, child, MdsMay::READ)?;
                let at = self.tree.at(child).at.clone();
                let at = at.filter(|(dir, _)| *dir == ino).ok_or(Errno::NOENT)?;
                Ok(Answer { dentry: Some(at), target: Some(child), ..Answer::default() })
            }
            mds_op::LOOKUPHASH => Err(Errno::OPNOTSUPP.into()),
            _ => {
                self.check(call, ino, MdsMay::READ)?;
                if self.tree.at(ino).is_stray() && self.tree.at(ino).store.inode.nlink == 0 {
                    return Err(errno::STALE.into());
                }
                let dentry = self.tree.at(ino).at.clone().filter(|_| !self.tree.at(ino).is_stray());
                Ok(Answer { dentry, target: Some(ino), ..Answer::default() })
            }
        }
    }

    /// Holds back a client that lists faster than it gives back what listings gave it.
    pub(super) fn need_pace(&self, call: &Call) -> Op<()> {
        let options = &self.world.config.options;
        let throttle = &options.throttle;
        let Some(session) = self.sessions.by_client.get(&call.client) else { return Ok(()) };
        let held = session.caps.len() as f64;
        let acquired = session.acquired.get(self.world.ms(), throttle.half_life_ms);
        let many = held > options.caps_per_client_max as f64 * throttle.held_ratio;
        if many && acquired >= throttle.acquired as f64 { Err(Stop::Throttled) } else { Ok(()) }
    }

    /// Counts inodes that a listing tells its client of.
    pub(super) fn count_listed(&mut self, call: &Call, inodes: usize) {
        let (now, half_life_ms) =
            (self.world.ms(), self.world.config.options.throttle.half_life_ms);
        if let Some(session) = self.sessions.by_client.get_mut(&call.client) {
            session.acquired.add(inodes, now, half_life_ms);
        }
    }

    /// Lists a directory. A client that has too much waits ([`Options`](crate::Options::throttle)).
    pub(super) fn op_readdir(&mut self, call: &Call, args: &ReaddirArgs) -> Op<Answer> {
        self.need_pace(call)?;
        let dir = match self.place_of(call.m.path.ino, &call.m.path.path)? {
            Place::Now(dir) => dir,
            Place::Snaps(_) => return Err(Errno::INVAL.into()),
            Place::Then(seen) => return self.list_seen(call, args, seen),
        };
        if !self.tree.at(dir).is_dir() {
            return Err(errno::NOTDIR.into());
        }
        self.check(call, dir, MdsMay::READ)?;
        self.need_listing(call, dir)?;
        let asked = Frag::from_raw(args.frag).ok_or(Errno::INVAL)?;
        let tree = &self.tree.at(dir).store.fragtree;
        let after = &call.m.path2.path;
        let kind = self.tree.at(dir).store.inode.dir.hash;
        let hash = |name: &[u8]| dentry_hash(kind, name) & 0xff_ffff;
        let offset = if after.is_empty() { args.offset_hash } else { hash(after) };
        let frag = frag_asked(tree, asked, offset);
        let at = maps::fs::DirFrag { ino: dir, frag };
        let fragment = self.tree.fragment(at).ok_or(Stop::Frag(at))?;
        fragment.used_ms.set(self.tree.clock);
        let mut names: Vec<(u32, &Bytes)> = fragment.entries.keys().map(|n| (hash(n), n)).collect();
        names.sort_unstable();
        let begin = if !after.is_empty() {
            names.partition_point(|(h, n)| (*h, &n[..]) <= (hash(after), &after[..]))
        } else {
            names.partition_point(|(h, _)| *h < args.offset_hash)
        };
        let (limit, bytes_max) = listing_bounds(args);
        let mut entries = Vec::new();
        let mut bytes = 0;
        let mut whole = true;
        for (_, name) in &names[begin..] {
            bytes += ENTRY_BYTES + name.len();
            if entries.len() >= limit || (!entries.is_empty() && bytes > bytes_max) {
                whole = false;
                break;
            }
            let entry = &fragment.entries[*name];
            let ino = entry.link.ino();
            if self.tree.node(ino).is_none() {
                // A link whose inode is nowhere is left out rather than hiding all others.
                if self.waiting.lost.contains(&ino) {
                    continue;
                }
                return Err(Stop::Ino(ino));
            }
            entries.push(((*name).clone(), ino, matches!(entry.link, Link::Primary(_))));
        }
        let flags = listing_flags(whole, begin == 0, args.flags);
        let (now, half_life_ms) =
            (self.world.ms(), self.world.config.options.throttle.half_life_ms);
        if let Some(session) = self.sessions.by_client.get_mut(&call.client) {
            session.acquired.add(entries.len(), now, half_life_ms);
        }
        let extra = Extra::Listing(frag, entries, flags);
        Ok(Answer { target: Some(dir), extra, ..Answer::default() })
    }

    pub(super) fn op_open(&mut self, call: &mut Call, args: &OpenArgs) -> Op<Answer> {
        let ino = match self.place_of(call.m.path.ino, &call.m.path.path)? {
            Place::Now(ino) => ino,
            Place::Snaps(_) => return Err(Errno::INVAL.into()),
            Place::Then(seen) => {
                if args.flags & (3 | oflag::TRUNC) != 0 {
                    return Err(errno::ROFS.into());
                }
                if args.flags & oflag::DIRECTORY != 0 && !seen.store.inode.is_dir() {
                    return Err(errno::NOTDIR.into());
                }
                // By its name where it has one: Linux opens what it has not looked up.
                return match self.lookup_seen(call)? {
                    Some(answer) => Ok(answer),
                    None => self.answer_seen(call, seen),
                };
            }
        };
        let path = &call.m.path.path;
        let dentry = if path.is_empty() { None } else { Some(self.parent(call.m.path.ino, path)?) };
        let wanted = self.open_inode(call, ino, args)?;
        Ok(Answer { dentry, target: Some(ino), wanted, ..Answer::default() })
    }

    /// Opens what is there. Returns what the client wants of it.
    pub(super) fn open_inode(&mut self, call: &mut Call, ino: Ino, args: &OpenArgs) -> Op<u32> {
        let (is_dir, is_file) = {
            let i = &self.tree.at(ino).store.inode;
            (i.is_dir(), i.is_file())
        };
        let writes = args.flags & 3 != 0;
        if is_dir && writes {
            return Err(errno::ISDIR.into());
        }
        if !is_dir && args.flags & oflag::DIRECTORY != 0 {
            return Err(errno::NOTDIR.into());
        }
        self.check(call, ino, if writes { MdsMay::WRITE } else { MdsMay::READ })?;
        if writes {
            self.writable()?;
        }
        if is_file {
            self.need_size(ino)?;
        }
        let wanted = if is_dir { bits::PIN | bits::FS } else { wanted_of(args.flags) };
        if is_file && args.flags & oflag::TRUNC != 0 {
            self.check(call, ino, MdsMay::WRITE)?;
            self.writable()?;
            self.need(call, ino, bits::F & !bits::FS, bits::F)?;
            self.truncate(call, ino, 0);
        } else if is_file {
            self.need_read(call, ino, bits::FS)?;
        }
        Ok(wanted)
    }
}
