//! What differs between two snapshots of a directory.
//!
//! Names of both are told in the order of listings. A directory that the later one has is always
//! among them, for something below it may differ; a file only where it was written in between. What
//! only the earlier one has is told as it was there, with the earlier snapshot's number; so is what
//! was replaced by another inode of the same name, ahead of that.
//!
//! Source: the peer's `Server::build_snap_diff`.

use auth::MdsMay;
use bytes::Bytes;
use maps::fs::{DirFrag, Frag, dentry_hash};
use messages::fs::ReaddirArgs;
use types::{Errno, Ino, SnapId};

use super::read::{ENTRY_BYTES, frag_asked, listing_bounds, listing_flags};
use super::snap::{Place, Seen};
use crate::errno;
use crate::rank::Rank;
use crate::request::{Answer, Call, Extra, Op, Stop};

/// What is told of one name: what was removed, and what is there.
type Told = [Option<Seen>; 2];

fn told(before: Option<Seen>, after: Option<Seen>) -> Told {
    let (Some(b), Some(a)) = (&before, &after) else { return [before, after] };
    if b.ino() != a.ino() {
        return [before, after]; // another one of the same name
    }
    let (was, is) = (&b.store.inode, &a.store.inode);
    let same = !is.is_dir() && was.times.mtime == is.times.mtime;
    [None, after.filter(|_| !same)]
}

impl Rank {
    /// One side of a name; a link whose inode is nowhere is left out rather than hiding all others.
    /// `waits` becomes the inode whose writers were asked here for what they have.
    fn side(
        &mut self,
        call: &Call,
        dir: &Seen,
        name: &Bytes,
        waits: &mut Option<Ino>,
    ) -> Op<Option<Seen>> {
        let seen = match self.seen_child(dir, name) {
            Err(Stop::Ino(lost)) if self.waiting.lost.contains(&lost) => None,
            other => other?,
        };
        if let Some(seen) = &seen {
            match self.need_flushed(call, seen) {
                Err(Stop::Caps(ino)) => *waits = Some(ino),
                other => other?,
            }
        }
        Ok(seen)
    }

    /// Lists what differs between the snapshot that the path leads into and `snap_other`.
    /// EINVAL where it leads into none, or both are the same.
    pub(super) fn op_snapdiff(&mut self, call: &Call, args: &ReaddirArgs) -> Op<Answer> {
        let Place::Then(dir) = self.place_of(call.m.path.ino, &call.m.path.path)? else {
            return Err(Errno::INVAL.into());
        };
        let other = SnapId(args.snap_other);
        if other == dir.snap {
            return Err(Errno::INVAL.into());
        }
        if !dir.store.inode.is_dir() {
            return Err(errno::NOTDIR.into());
        }
        self.need_pace(call)?;
        self.check_seen(call, &dir, MdsMay::READ)?;
        let ino: Ino = self.inode(dir.ino())?;
        let side = |snap| Seen { snap, store: dir.store.clone() };
        let (before, after) = (side(dir.snap.min(other)), side(dir.snap.max(other)));
        let asked = Frag::from_raw(args.frag).ok_or(Errno::INVAL)?;
        let node = self.tree.at(ino);
        let kind = node.store.inode.dir.hash;
        let hash = |name: &[u8]| dentry_hash(kind, name) & 0xff_ffff;
        let from = &call.m.path2.path;
        let offset = if from.is_empty() { args.offset_hash } else { hash(from) };
        let frag = frag_asked(&node.store.fragtree, asked, offset);
        let at = DirFrag { ino, frag };
        let fragment = self.tree.fragment(at).ok_or(Stop::Frag(at))?;
        let mut names = fragment.names_at(before.snap);
        names.extend(fragment.names_at(after.snap));
        let mut names: Vec<(u32, Bytes)> = names.into_iter().map(|n| (hash(&n), n)).collect();
        names.sort_unstable();
        let begin = if from.is_empty() {
            names.partition_point(|(h, _)| *h < args.offset_hash)
        } else {
            names.partition_point(|(h, n)| (*h, &n[..]) <= (hash(from), &from[..]))
        };
        let (limit, bytes_max) = listing_bounds(args);
        let (mut entries, mut bytes, mut whole) = (Vec::new(), 0, true);
        // The writers of all files are asked before the first is waited for.
        let mut waits = None;
        for (_, name) in &names[begin..] {
            let was = self.side(call, &before, name, &mut waits)?;
            let is = self.side(call, &after, name, &mut waits)?;
            let told: Vec<Seen> = told(was, is).into_iter().flatten().collect();
            bytes += told.len() * (ENTRY_BYTES + name.len());
            // Both of one name are in one answer: the next goes on behind the name.
            let full = entries.len() + told.len() > limit || bytes > bytes_max;
            if !told.is_empty() && !entries.is_empty() && full {
                whole = false;
                break;
            }
            entries.extend(told.into_iter().map(|seen| (name.clone(), seen)));
        }
        if let Some(ino) = waits {
            return Err(Stop::Caps(ino));
        }
        self.count_listed(call, entries.len());
        let flags = listing_flags(whole, begin == 0, args.flags);
        let extra = Extra::Past(frag, entries, flags);
        // The answer's inode is the other side's: a client of 20.2.4 that finds the one it asked about
        // ends with a segmentation fault where nothing differs.
        let seen = Some(Seen { snap: other, ..dir });
        Ok(Answer { seen, extra, ..Answer::default() })
    }
}
