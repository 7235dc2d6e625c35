//! A key of the ordered store, made to be compared.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;

/// Bytes in their order. The first 24 are also kept as numbers: most comparisons end there
/// and touch no memory but the map's own. A clone shares the bytes.
#[derive(Clone)]
pub(crate) struct Key {
    head: [u64; 3],
    bytes: Arc<[u8]>,
}

fn head(bytes: &[u8]) -> [u64; 3] {
    // Shorter keys are filled with zeros: where that makes heads equal, all is compared.
    let mut raw = [0; 24];
    let n = bytes.len().min(24);
    raw[..n].copy_from_slice(&bytes[..n]);
    let word = |i: usize| u64::from_be_bytes(raw[i..i + 8].try_into().expect("eight bytes"));
    [word(0), word(8), word(16)]
}

impl From<&[u8]> for Key {
    fn from(bytes: &[u8]) -> Self {
        Self { head: head(bytes), bytes: bytes.into() }
    }
}

impl From<Vec<u8>> for Key {
    fn from(bytes: Vec<u8>) -> Self {
        bytes.as_slice().into()
    }
}

impl Deref for Key {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Order, equality and hash are those of the bytes.
impl Borrow<[u8]> for Key {
    fn borrow(&self) -> &[u8] {
        &self.bytes
    }
}

impl Ord for Key {
    fn cmp(&self, other: &Self) -> Ordering {
        self.head.cmp(&other.head).then_with(|| self.bytes.cmp(&other.bytes))
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.head == other.head && self.bytes == other.bytes
    }
}

impl Eq for Key {}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.bytes.hash(state);
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.bytes.escape_ascii())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bytes() -> impl Strategy<Value = Vec<u8>> {
        // Of few values and around the head's length, so that beginnings are often alike.
        prop_oneof![
            prop::collection::vec(0u8..2, 0..30),
            prop::collection::vec(0u8..2, 0..3).prop_map(|end| [vec![1; 23], end].concat()),
        ]
    }

    proptest! {
        #[test]
        fn order_is_that_of_the_bytes(a in bytes(), b in bytes()) {
            let (ka, kb) = (Key::from(a.clone()), Key::from(b.clone()));
            prop_assert_eq!(ka.cmp(&kb), a.cmp(&b));
            prop_assert_eq!(ka == kb, a == b);
        }
    }
}
