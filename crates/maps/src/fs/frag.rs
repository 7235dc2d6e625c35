//! Fragments of directories: which part of all hashes of names each holds.

use std::collections::BTreeMap;
use std::fmt;

use types::{DecodeError, Denc, Ino, Reader, Writer, str_hash};

/// How names are hashed; a directory's `dl_dir_hash`.
pub mod dir_hash {
    /// The hash of Linux' dentry cache, as it was.
    pub const LINUX: u8 = 1;
    /// Jenkins' hash: every directory's that releases since 2010 made.
    pub const RJENKINS: u8 = 2;
}

/// The hash of an entry's name; `kind` 0 is rjenkins, an unknown one hashes all alike.
///
/// Only the low 24 bits place the entry in a fragment.
#[must_use]
pub fn dentry_hash(kind: u8, name: &[u8]) -> u32 {
    match kind {
        0 | dir_hash::RJENKINS => str_hash(name),
        dir_hash::LINUX => name.iter().fold(0u32, |hash, c| {
            let c = u32::from(*c);
            hash.wrapping_add(c << 4).wrapping_add(c >> 4).wrapping_mul(11)
        }),
        _ => u32::MAX,
    }
}

/// A fragment: all hashes whose top bits, of 24, are the ones named. The peer's `frag_t`:
/// u32, number of bits in the top byte, their value below, aligned to bit 23.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Frag(u32);

impl Frag {
    /// All hashes.
    pub const ROOT: Self = Self(0);
    /// No fragment has more bits.
    pub const BITS_MAX: u32 = 24;
    const HASHES: u32 = 1 << Self::BITS_MAX;

    /// The fragment of the hashes that share `bits` bits with `hash`.
    ///
    /// # Panics
    /// With more than [`Frag::BITS_MAX`] bits.
    #[must_use]
    pub const fn new(hash: u32, bits: u32) -> Self {
        assert!(bits <= Self::BITS_MAX, "a fragment has at most 24 bits");
        Self(bits << 24 | hash & Self::mask_of(bits))
    }

    /// What the wire says; `None` for more bits than there are, or a value with other bits.
    #[must_use]
    pub const fn from_raw(raw: u32) -> Option<Self> {
        let bits = raw >> 24;
        if bits > Self::BITS_MAX || raw & (Self::HASHES - 1) & !Self::mask_of(bits) != 0 {
            return None;
        }
        Some(Self(raw))
    }

    /// As on the wire and in names of objects.
    #[must_use]
    pub const fn raw(self) -> u32 {
        self.0
    }

    const fn mask_of(bits: u32) -> u32 {
        (Self::HASHES - 1) & !((Self::HASHES >> bits) - 1)
    }

    /// How many bits all its hashes share.
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.0 >> 24
    }

    /// Its first hash.
    #[must_use]
    pub const fn value(self) -> u32 {
        self.0 & (Self::HASHES - 1)
    }

    /// The bits that its hashes share.
    #[must_use]
    pub const fn mask(self) -> u32 {
        Self::mask_of(self.bits())
    }

    /// How many hashes it holds.
    #[must_use]
    pub const fn span(self) -> u32 {
        Self::HASHES >> self.bits()
    }

    /// Whether it holds names with this hash.
    #[must_use]
    pub const fn contains_hash(self, hash: u32) -> bool {
        hash & self.mask() == self.value()
    }

    /// Whether it is `other` or holds all of it.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        other.bits() >= self.bits() && self.contains_hash(other.value())
    }

    /// What it is half of; `None` for all.
    #[must_use]
    pub const fn parent(self) -> Option<Self> {
        match self.bits() {
            0 => None,
            bits => Some(Self::new(self.value(), bits - 1)),
        }
    }

    /// The other half of its parent.
    #[must_use]
    pub const fn sibling(self) -> Option<Self> {
        match self.bits() {
            0 => None,
            bits => Some(Self(self.0 ^ Self::HASHES >> bits)),
        }
    }

    /// The fragment of the same size behind it; `None` for the last.
    #[must_use]
    pub const fn next(self) -> Option<Self> {
        let value = self.value() + self.span();
        if value < Self::HASHES { Some(Self(self.bits() << 24 | value)) } else { None }
    }

    /// The 2^by parts of it, ascending; none where there are no more bits.
    pub fn split(self, by: u32) -> impl Iterator<Item = Self> + use<> {
        let bits = self.bits().checked_add(by).filter(|bits| *bits <= Self::BITS_MAX);
        let parts = if bits.is_some() { 1u32 << by } else { 0 };
        let bits = bits.unwrap_or(0);
        (0..parts).map(move |i| Self::new(self.value() | i << (Self::BITS_MAX - bits), bits))
    }

    /// As commands name it: value in hex, slash, number of bits.
    #[must_use]
    pub fn text(self) -> String {
        format!("{:x}/{}", self.value(), self.bits())
    }

    /// What [`Frag::text`] gives; other bits of the value are dropped, as the peer does.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (value, bits) = text.split_once('/')?;
        let value = value.strip_prefix("0x").unwrap_or(value);
        let bits = bits.parse().ok().filter(|b| *b <= Self::BITS_MAX)?;
        Some(Self::new(u32::from_str_radix(value, 16).ok()?, bits))
    }
}

/// Its bits and a star, as the peer prints fragments: `*`, `0*`, `101*`.
impl fmt::Display for Frag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for bit in 0..self.bits() {
            f.write_str(if self.value() & 1 << (23 - bit) == 0 { "0" } else { "1" })?;
        }
        f.write_str("*")
    }
}

impl fmt::Debug for Frag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Denc for Frag {
    fn encode(&self, w: &mut Writer) {
        w.u32(self.0);
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Self::from_raw(r.u32()?).ok_or(DecodeError::Invalid {
            what: "frag_t",
            rule: "a fragment has at most 24 bits and a value within them",
        })
    }
}

/// A fragment of a directory. The peer's `dirfrag_t`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DirFrag {
    /// The directory.
    pub ino: Ino,
    /// The fragment.
    pub frag: Frag,
}

/// As the peer prints it: `0x10000000000`, or with a fragment `0x10000000000.10*`.
impl fmt::Display for DirFrag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.ino)?;
        if self.frag == Frag::ROOT { Ok(()) } else { write!(f, ".{}", self.frag) }
    }
}

impl Denc for DirFrag {
    fn encode(&self, w: &mut Writer) {
        self.ino.encode(w);
        self.frag.encode(w);
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self { ino: Denc::decode(r)?, frag: Denc::decode(r)? })
    }
}

/// Into which fragments a directory is split. The peer's `fragtree_t`: map of the fragments
/// that are split (u32) to the number of bits by which (i32). Empty: the root is the only one.
///
/// A split that no other leads to has no effect, as at the peer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FragTree {
    splits: BTreeMap<Frag, u32>,
}

impl FragTree {
    /// Whether the directory is one fragment.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.splits.is_empty()
    }

    /// The fragments that are split, and by how many bits each.
    pub fn splits(&self) -> impl Iterator<Item = (Frag, u32)> {
        self.splits.iter().map(|(f, by)| (*f, *by))
    }

    /// By how many bits a fragment is split; 0 for a leaf.
    #[must_use]
    pub fn split_of(&self, frag: Frag) -> u32 {
        self.splits.get(&frag).copied().unwrap_or(0)
    }

    /// The leaf that holds names with this hash.
    #[must_use]
    pub fn leaf_of(&self, hash: u32) -> Frag {
        let mut at = Frag::ROOT;
        loop {
            match self.split_of(at) {
                0 => return at,
                by => at = Frag::new(hash, at.bits() + by),
            }
        }
    }

    /// Whether a fragment is one of the directory's.
    #[must_use]
    pub fn is_leaf(&self, frag: Frag) -> bool {
        self.leaf_of(frag.value()) == frag
    }

    /// The leaves that hold a part of `frag`, by hash: its parts, or the one it is part of.
    pub fn leaves_under(&self, frag: Frag) -> impl Iterator<Item = Frag> {
        let end = frag.value() + frag.span();
        let mut at = Some(frag.value());
        std::iter::from_fn(move || {
            let leaf = self.leaf_of(at?);
            at = Some(leaf.value() + leaf.span()).filter(|next| *next < end);
            Some(leaf)
        })
    }

    /// All leaves, by hash.
    pub fn leaves(&self) -> impl Iterator<Item = Frag> {
        self.leaves_under(Frag::ROOT)
    }

    /// Whether every split is reached from the root.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.splits.keys().all(|frag| {
            let mut at = Frag::ROOT;
            while at != *frag {
                match self.split_of(at) {
                    by if by > 0 && at.bits() + by <= frag.bits() => {
                        at = Frag::new(frag.value(), at.bits() + by);
                    }
                    _ => return false,
                }
            }
            true
        })
    }

    /// The nearest split above `frag`, or the root.
    fn branch_above(&self, frag: Frag) -> Frag {
        let mut at = frag;
        while let Some(parent) = at.parent() {
            at = parent;
            if self.split_of(at) > 0 {
                break;
            }
        }
        at
    }

    /// Splits a leaf into 2^by. `false`, and nothing happens, when it is none or too small.
    pub fn split(&mut self, leaf: Frag, by: u32) -> bool {
        if by == 0 || by > Frag::BITS_MAX - leaf.bits() || !self.is_leaf(leaf) {
            return false;
        }
        self.splits.insert(leaf, by);
        self.unite_splits(self.branch_above(leaf));
        true
    }

    /// Makes `frag` a leaf: what is below is merged, what is above is split as far as needed.
    /// The peer's `force_to_leaf`. `false` when it was one.
    pub fn merge(&mut self, frag: Frag) -> bool {
        if self.is_leaf(frag) {
            return false;
        }
        // A split above that passes `frag` over is one in two steps, with `frag`'s as the first.
        let mut above = Frag::ROOT;
        while above.bits() < frag.bits() {
            let by = self.split_of(above);
            let spread = frag.bits() - above.bits();
            if by == 0 {
                self.splits.insert(above, spread);
                break;
            }
            if by > spread {
                self.splits.insert(above, spread);
                // Bounded by the fragments that there are: each of them has a part.
                for part in above.split(spread) {
                    self.splits.insert(part, by - spread);
                }
                break;
            }
            above = Frag::new(frag.value(), above.bits() + by);
        }
        self.splits.retain(|at, _| !frag.contains(*at));
        debug_assert!(self.is_leaf(frag), "a merged fragment is a leaf");
        true
    }

    /// A split whose parts are all split alike becomes one split by more bits.
    fn unite_splits(&mut self, at: Frag) {
        let by = self.split_of(at);
        // Cheap where most are: as many entries as parts are needed.
        if by == 0 || self.splits.len() <= 1 << by {
            return;
        }
        let mut parts = at.split(by).map(|part| self.split_of(part));
        let first = parts.next().unwrap_or(0);
        if first > 0 && parts.all(|more| more == first) {
            for part in at.split(by) {
                self.splits.remove(&part);
            }
            self.splits.insert(at, by + first);
        }
    }
}

impl Denc for FragTree {
    fn encode(&self, w: &mut Writer) {
        w.seq(&self.splits, |w, (frag, by)| {
            frag.encode(w);
            w.u32(*by);
        });
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let splits: BTreeMap<Frag, u32> = Denc::decode(r)?;
        let fits = |(frag, by): (&Frag, &u32)| *by > 0 && *by <= Frag::BITS_MAX - frag.bits();
        r.require(splits.iter().all(fits), "a fragment is split by 1 bit or more, to 24 at most")?;
        Ok(Self { splits })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fragments() {
        let root = Frag::ROOT;
        assert_eq!((root.to_string(), root.text()), ("*".into(), "0/0".into()));
        let parts: Vec<_> = root.split(2).collect();
        let texts: Vec<_> = parts.iter().map(Frag::to_string).collect();
        assert_eq!(texts, ["00*", "01*", "10*", "11*"]);
        assert_eq!(parts[3].raw(), 0x02c0_0000);
        assert_eq!(parts[1].next(), Some(parts[2]));
        assert_eq!(parts[3].next(), None);
        assert_eq!(parts[2].sibling(), Some(parts[3]));
        assert_eq!(parts[2].parent().unwrap().text(), "800000/1");
        assert_eq!(Frag::parse("800000/1"), parts[2].parent());
        assert_eq!(Frag::parse("800000/25"), None);
        assert!(parts[2].contains_hash(0x1280_1234), "bits above the 24 do not count");
        assert!(root.contains(parts[0]) && !parts[0].contains(root));
        let smallest = Frag::new(0xff_ffff, 24);
        assert_eq!((smallest.span(), smallest.next(), smallest.split(1).count()), (1, None, 0));
        for raw in [0x1900_0000, 0xff00_0000, 0x0000_0001, 0x0140_0000] {
            assert!(Frag::from_bytes(&u32::to_le_bytes(raw)).is_err(), "{raw:x}");
        }
        let frag = DirFrag { ino: Ino(0x100_0000_0000), frag: parts[2] };
        assert_eq!(frag.to_string(), "0x10000000000.10*");
    }

    /// `ls` of hashes; the second kind by its definition, byte after byte.
    #[test]
    fn hashes() {
        assert_eq!(dentry_hash(2, b"foo"), str_hash(b"foo"));
        assert_eq!(dentry_hash(0, b"foo"), str_hash(b"foo"));
        assert_eq!(dentry_hash(1, b""), 0);
        assert_eq!(dentry_hash(1, b"a"), (0x610 + 6) * 11);
        assert_eq!(dentry_hash(9, b"a"), u32::MAX);
    }

    #[test]
    fn trees_split_and_merge() {
        let mut tree = FragTree::default();
        let leaves = |tree: &FragTree| tree.leaves().map(|f| f.to_string()).collect::<Vec<_>>();
        assert_eq!(leaves(&tree), ["*"]);
        assert!(tree.split(Frag::ROOT, 1));
        let [left, right] = [0, 1].map(|n| Frag::new(n << 23, 1));
        assert!(!tree.split(Frag::ROOT, 1), "it is split");
        assert!(tree.split(right, 2));
        assert_eq!(leaves(&tree), ["0*", "100*", "101*", "110*", "111*"]);
        assert_eq!(tree.leaf_of(0xe0_0000).to_string(), "111*");
        assert_eq!(tree.leaves_under(left).count(), 1);
        assert_eq!(tree.leaves_under(Frag::new(0, 5)).next(), Some(left));
        // All halves split alike are one split.
        assert!(tree.split(left, 2));
        assert_eq!(tree.splits().collect::<Vec<_>>(), [(Frag::ROOT, 3)]);
        assert!(tree.is_whole());
        assert_eq!(FragTree::from_bytes(&tree.to_bytes()), Ok(tree.clone()));
        // A fragment that the split passes over becomes a leaf, the rest stays split.
        assert!(tree.merge(right));
        assert_eq!(leaves(&tree), ["000*", "001*", "010*", "011*", "1*"]);
        assert!(tree.is_whole());
        assert!(tree.merge(Frag::new(0, 4)), "what is smaller than a leaf is made by a split");
        assert!(tree.is_leaf(Frag::new(0, 4)) && tree.is_leaf(right));
        assert!(tree.merge(Frag::ROOT));
        assert!(tree.is_empty());
        assert!(!tree.merge(Frag::ROOT));
    }

    /// Any order of splits and merges leaves a partition: leaves follow one another.
    #[test]
    fn leaves_are_a_partition() {
        let mut x = 1u32;
        let mut next = move || {
            x ^= x << 13;
            x ^= x >> 17;
            x ^= x << 5;
            x
        };
        let mut tree = FragTree::default();
        for _ in 0..2000 {
            let (hash, bits, by) = (next(), next() % 6, next() % 4);
            match next() % 3 {
                0 => {
                    tree.merge(Frag::new(hash, bits));
                }
                _ => {
                    let leaf = tree.leaf_of(hash);
                    let fits = leaf.bits() + by <= 10;
                    assert_eq!(fits && tree.split(leaf, by), fits && by > 0);
                }
            }
            assert!(tree.is_whole(), "{tree:?}");
            let end = tree.leaves().fold(0, |at, leaf| {
                assert_eq!(leaf.value(), at, "{tree:?}");
                assert_eq!(tree.leaf_of(at + leaf.span() - 1), leaf);
                at + leaf.span()
            });
            assert_eq!(end, 1 << 24);
        }
    }

    #[test]
    fn hostile_trees_are_refused() {
        for (frag, by) in [(0u32, 0u32), (0, 25), (0, u32::MAX), (0x1800_0000, 1)] {
            let mut bytes = vec![1, 0, 0, 0];
            bytes.extend(frag.to_le_bytes());
            bytes.extend(by.to_le_bytes());
            assert!(FragTree::from_bytes(&bytes).is_err(), "{frag:x} by {by}");
        }
        // One that leads nowhere is read and has no effect.
        let mut bytes = vec![1, 0, 0, 0];
        bytes.extend(0x0180_0000u32.to_le_bytes());
        bytes.extend(1u32.to_le_bytes());
        let tree = FragTree::from_bytes(&bytes).unwrap();
        assert!(!tree.is_whole());
        assert_eq!(tree.leaves().count(), 1);
    }
}
