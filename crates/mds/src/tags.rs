//! Who may see what before it is durable.
//!
//! Every record leaves a tag at what it changed: at inodes, at names (also at those that are gone),
//! at the sums of directories. While an answer is made, or a message about caps, a watch notes the
//! newest record that others made of all that is looked at, and what was made of it leaves when that
//! record is durable. What a client changed itself it may see at once, as far as it might see what it
//! was made of. Without records on their way there are no tags, and nothing is noted.
//!
//! | what | noted by | changed by |
//! |---|---|---|
//! | an inode | [`Tree::node`](crate::tree::Tree::node), `at`, `at_mut` | the record that has its entry |
//! | a name | [`Tree::lookup`](crate::tree::Tree::lookup) | the record that sets or removes it |
//! | a directory's sums and listing | `Tree::fragment`, `Tree::totals` | any record of a fragment of it |
//! | all that is inherited from above, and snapshots | every answer | a record that is hard: all wait |
//!
//! Who changes an entry hears of the directory, too. Where others change it as well, that would be a wait
//! for their records with each change: so such an answer has the sums that are durable
//! ([`Tree::sums_after`](crate::tree::Tree::sums_after)), and no caps that make them last.
//!
//! What is inherited from directories above (the place, the realm, layout, quota) is not noted
//! one by one: a record that changes any of it is hard, and holds back everybody's answers.

use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use types::Ino;

use crate::tree::Sums;

/// The author of what no client changed.
pub(crate) const SERVER: i64 = i64::MIN;

/// The newest record of something.
#[derive(Clone, Copy, Debug)]
struct Tag {
    seq: u64,
    author: i64,
    /// The newest record that the author itself has to wait for.
    under: u64,
}

impl Tag {
    /// The record that a client has to wait for.
    const fn before(&self, client: i64) -> u64 {
        if self.author == client { self.under } else { self.seq }
    }

    /// The tag of the next record.
    fn then(old: Option<&Self>, seq: u64, author: i64, under: u64) -> Self {
        let under = under.max(old.map_or(0, |t| t.before(author)));
        Self { seq, author, under: if author == SERVER { seq } else { under } }
    }
}

/// What a tag is at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Inode(Ino),
    Name(Ino, Bytes),
    Sums(Ino),
}

/// Whose answer is being made, and the newest record that it waits for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Watch {
    client: i64,
    newest: u64,
}

/// All tags.
#[derive(Debug, Default)]
pub(crate) struct Tags {
    inodes: BTreeMap<Ino, Tag>,
    names: BTreeMap<Ino, BTreeMap<Bytes, Tag>>,
    sums: BTreeMap<Ino, Tag>,
    /// What those directories add up to after each record on its way, and after the newest durable
    /// one before these.
    kept: BTreeMap<Ino, VecDeque<(u64, Sums)>>,
    /// The newest durable record.
    durable: u64,
    /// Where tags are, by the record that left them, the oldest first.
    left: VecDeque<(u64, Place)>,
    /// The newest record that all answers wait for.
    hard: u64,
    watch: Cell<Option<Watch>>,
}

impl Tags {
    /// Begins to note what is looked at for a client. Returns the watch that goes on afterwards.
    pub fn begin(&self, client: i64) -> Option<Watch> {
        self.watch.replace(Some(Watch { client, newest: 0 }))
    }

    /// Ends the watch. Returns the record that what was made of all that has to wait for.
    pub fn end(&self, outer: Option<Watch>) -> u64 {
        let newest = self.newest();
        self.watch.set(outer);
        newest
    }

    /// The record that what was made so far has to wait for; what was durable long ago where there is
    /// none.
    pub fn newest(&self) -> u64 {
        self.watch.get().map_or(0, |w| w.newest).max(self.hard)
    }

    /// Something depends on a record beside the tree.
    pub fn note(&self, seq: u64) {
        if let Some(mut watch) = self.watch.get() {
            watch.newest = watch.newest.max(seq);
            self.watch.set(Some(watch));
        }
    }

    fn see(&self, tag: impl FnOnce() -> Option<Tag>) {
        if self.left.is_empty() {
            return;
        }
        if let Some(watch) = self.watch.get()
            && let Some(tag) = tag()
        {
            self.note(tag.before(watch.client));
        }
    }

    pub fn see_inode(&self, ino: Ino) {
        self.see(|| self.inodes.get(&ino).copied());
    }

    pub fn see_name(&self, dir: Ino, name: &[u8]) {
        self.see(|| self.names.get(&dir)?.get(name).copied());
    }

    pub fn see_sums(&self, dir: Ino) {
        self.see(|| self.sums.get(&dir).copied());
    }

    /// Whether others than this client changed what a directory adds up to, and it is not durable.
    pub fn others_changed(&self, dir: Ino, client: i64) -> bool {
        self.sums.get(&dir).is_some_and(|tag| tag.before(client) > self.durable)
    }

    /// What a directory added up to when all was durable that is; `None` where others changed nothing
    /// since, or that is not known.
    pub fn durable_sums(&self, dir: Ino, client: i64) -> Option<Sums> {
        let (seq, sums) = self.kept.get(&dir)?.front()?;
        (self.others_changed(dir, client) && *seq <= self.durable).then_some(*sums)
    }

    /// A directory adds up to this after record `seq`.
    pub fn keep_sums(&mut self, dir: Ino, seq: u64, sums: Sums) {
        self.kept.entry(dir).or_default().push_back((seq, sums));
    }

    /// Record `seq` of `author`, who waited for `under`, changed these places.
    pub fn leave(&mut self, (seq, author, under): (u64, i64, u64), places: Vec<Place>) {
        for place in places {
            let put = |old: Option<&Tag>| Tag::then(old, seq, author, under);
            match &place {
                Place::Inode(ino) => {
                    let tag = put(self.inodes.get(ino));
                    self.inodes.insert(*ino, tag);
                }
                Place::Sums(ino) => {
                    let tag = put(self.sums.get(ino));
                    self.sums.insert(*ino, tag);
                }
                Place::Name(dir, name) => {
                    let names = self.names.entry(*dir).or_default();
                    let tag = put(names.get(name));
                    names.insert(name.clone(), tag);
                }
            }
            self.left.push_back((seq, place));
        }
    }

    /// All answers wait for this record.
    pub fn leave_hard(&mut self, seq: u64) {
        self.hard = self.hard.max(seq);
    }

    /// All records up to this one are durable: their tags go.
    pub fn durable(&mut self, seq: u64) {
        self.durable = seq;
        while let Some((_, place)) = self.left.pop_front_if(|(s, _)| *s <= seq) {
            let old = |t: &Tag| t.seq <= seq;
            match place {
                Place::Inode(ino) => {
                    if self.inodes.get(&ino).is_some_and(old) {
                        self.inodes.remove(&ino);
                    }
                }
                Place::Sums(ino) => {
                    if self.sums.get(&ino).is_some_and(old) {
                        self.sums.remove(&ino);
                        self.kept.remove(&ino);
                    } else if let Some(kept) = self.kept.get_mut(&ino) {
                        while kept.get(1).is_some_and(|(s, _)| *s <= seq) {
                            kept.pop_front();
                        }
                    }
                }
                Place::Name(dir, name) => {
                    let Some(names) = self.names.get_mut(&dir) else { continue };
                    if names.get(&name).is_some_and(old) {
                        names.remove(&name);
                    }
                    if names.is_empty() {
                        self.names.remove(&dir);
                    }
                }
            }
        }
    }

    /// How many tags there are.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.inodes.len() + self.sums.len() + self.names.values().map(BTreeMap::len).sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(tags: &Tags, client: i64, look: impl FnOnce(&Tags)) -> u64 {
        let outer = tags.begin(client);
        look(tags);
        tags.end(outer)
    }

    #[test]
    fn an_author_waits_for_what_was_under_its_change() {
        let mut tags = Tags::default();
        let place = || vec![Place::Inode(Ino(7))];
        tags.leave((1, 10, 0), place());
        assert_eq!(
            (seen(&tags, 10, |t| t.see_inode(Ino(7))), seen(&tags, 11, |t| t.see_inode(Ino(7)))),
            (0, 1)
        );
        // Another changes it on top, and then the first one again.
        tags.leave((2, 11, 1), place());
        tags.leave((3, 10, 2), place());
        assert_eq!(seen(&tags, 10, |t| t.see_inode(Ino(7))), 2);
        assert_eq!(seen(&tags, 11, |t| t.see_inode(Ino(7))), 3);
        // What the author looked at elsewhere counts, too.
        tags.leave((4, 12, 3), vec![Place::Name(Ino(1), "a".into())]);
        assert_eq!(seen(&tags, 12, |t| t.see_name(Ino(1), b"a")), 3);
        assert_eq!(seen(&tags, 12, |t| t.see_name(Ino(1), b"b")), 0);
        tags.leave((5, SERVER, 0), vec![Place::Sums(Ino(1))]);
        assert_eq!(seen(&tags, SERVER, |t| t.see_sums(Ino(1))), 5);
        tags.durable(3);
        assert_eq!((tags.len(), seen(&tags, 11, |t| t.see_inode(Ino(7)))), (2, 0));
        tags.leave_hard(9);
        assert_eq!(seen(&tags, 12, |_| {}), 9);
        tags.durable(9);
        assert_eq!(tags.len(), 0);
    }

    #[test]
    fn a_watch_within_another() {
        let mut tags = Tags::default();
        tags.leave((4, 1, 0), vec![Place::Inode(Ino(1))]);
        tags.leave((6, 2, 0), vec![Place::Inode(Ino(2))]);
        let none = tags.begin(2);
        tags.see_inode(Ino(1));
        assert_eq!(seen(&tags, 1, |t| t.see_inode(Ino(2))), 6);
        assert_eq!((tags.newest(), tags.end(none), tags.newest()), (4, 4, 0));
    }
}
