//! Keys of an index shard.
//!
//! ```text
//! NAME                              plain entry; placeholder where the object has versions
//! NAME 0 v EPOCH 0 i INSTANCE       a version, the newest first
//! 80 0_ ID                          log of the index
//! 80 1000_ NAME 0 i INSTANCE [0 d]  a version, to be found by its instance
//! 80 1001_ NAME                     which version is current
//! 80 2001_ KEY                      log of a reshard
//! ```
//!
//! Keys are ordered as bytes. No UTF-8 text begins with 0x80, but such text lies before it
//! and behind it: plain entries have two regions.

use bytes::Bytes;

use super::types::{DirEntry, Key, bi};

/// First byte of the keys that are no plain entries.
pub(super) const SPECIAL: u8 = 0x80;
pub(super) const LOG: &[u8] = b"\x800_";
pub(super) const INSTANCE: &[u8] = b"\x801000_";
pub(super) const OLH: &[u8] = b"\x801001_";
pub(super) const RESHARD_LOG: &[u8] = b"\x802001_";
/// Behind all special keys; never stored.
pub(super) const SPECIAL_END: &[u8] = b"\x809999_";

pub(super) fn is_plain(key: &[u8]) -> bool {
    key.first() != Some(&SPECIAL)
}

/// Place of the key's kind among kinds; special keys of no known kind come first.
fn kind(key: &[u8]) -> i32 {
    if is_plain(key) {
        return 0;
    }
    let kinds = [LOG, INSTANCE, OLH, RESHARD_LOG, SPECIAL_END];
    (1..).zip(kinds).find(|(_, prefix)| key.starts_with(prefix)).map_or(-1, |(n, _)| n)
}

/// Whether `a` comes after `b`: by kind, then by bytes.
pub(super) fn is_after(a: &[u8], b: &[u8]) -> bool {
    (kind(a), a) > (kind(b), b)
}

/// The type in a [`super::types::BiEntry`] of a key.
pub(super) fn bi_type(key: &[u8]) -> u8 {
    match kind(key) {
        ..0 => bi::INVALID,
        0 => bi::PLAIN,
        n => n as u8,
    }
}

/// A number as text that comes the earlier, the greater the number is.
fn decreasing(n: u64) -> String {
    match n {
        0..0x10 => format!("9{:02}", 0xF - n),
        0x10..0x100 => format!("8{:03}", 0xFF - n),
        0x100..0x1000 => format!("7{:04}", 0xFFF - n),
        0x1000..0x1_0000 => format!("6{:05}", 0xFFFF - n),
        0x1_0000..0x1_0000_0000 => format!("5{:010}", 0xFFFF_FFFF - n),
        _ => format!("4{:020}", n.wrapping_neg() as i64),
    }
}

/// The key under which a version is listed.
pub(super) fn list_key(entry: &DirEntry) -> Bytes {
    let epoch = decreasing(entry.versioned_epoch);
    [&entry.key.name[..], b"\0v", epoch.as_bytes(), b"\0i", &entry.key.instance].concat().into()
}

/// The key of a version's own entry.
pub(super) fn instance_key(key: &Key) -> Bytes {
    [INSTANCE, &key.name, b"\0i", &key.instance].concat().into()
}

/// The same, of a delete marker without an instance.
pub(super) fn marker_key(key: &Key) -> Bytes {
    [INSTANCE, &key.name, b"\0i", &key.instance, b"\0d"].concat().into()
}

/// The key of an object, or of one of its versions.
pub(super) fn entry_key(key: &Key) -> Bytes {
    if key.instance.is_empty() { key.name.clone() } else { instance_key(key) }
}

pub(super) fn olh_key(name: &[u8]) -> Bytes {
    [OLH, name].concat().into()
}

/// Behind all keys of an object and its versions.
pub(super) fn after_versions(name: &[u8]) -> Bytes {
    [name, b"\x01"].concat().into()
}

/// Behind all names that begin so, where this ends with a delimiter.
pub(super) fn after_delimiter(prefix: &[u8]) -> Bytes {
    [prefix, b"\xff"].concat().into()
}

/// The name in a plain entry's key; `None` where nothing is behind the name's end.
pub(super) fn name_of(key: &Bytes) -> Option<Bytes> {
    match key.iter().position(|b| *b == 0) {
        None => Some(key.clone()),
        Some(at) if at + 1 < key.len() => Some(key.slice(..at)),
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn greater_epochs_come_first() {
        let epochs = [0, 1, 15, 16, 255, 256, 4095, 4096, 65535, 65536, 1 << 31, (1 << 32) - 1];
        for pair in epochs.windows(2) {
            assert!(decreasing(pair[0]) > decreasing(pair[1]), "{pair:?}");
        }
        assert_eq!(decreasing(2), "913");
        assert_eq!(decreasing(1 << 32), "4-0000000004294967296");
    }

    #[test]
    fn kinds_have_an_order() {
        let keys: [&[u8]; 6] =
            [b"zz", b"\x800_9", b"\x801000_a", b"\x801001_a", b"\x802001_a", b"\x809999_"];
        for pair in keys.windows(2) {
            assert!(is_after(pair[1], pair[0]), "{pair:?}");
        }
        assert!(is_after(b"", b"\x80strange"));
        assert_eq!(bi_type(b"\x80strange"), bi::INVALID);
        assert_eq!(bi_type(b"\xc3\xa4"), bi::PLAIN);
        assert_eq!(bi_type(b"\x801001_x"), bi::OLH);
    }
}
