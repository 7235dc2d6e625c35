//! Values under keys of an omap, as most classes keep them.

use bytes::Bytes;
use denc::Denc;
use types::{Errno, OpResult};

use crate::{DONE, Object, Reply, stored};

/// How many pairs are read at once where all are walked.
const PAGE: u64 = 64;

/// The value under a key.
///
/// # Errors
/// ENOENT without key or object; EIO when it cannot be decoded.
pub(crate) fn read<T: Denc>(o: &mut dyn Object, key: &[u8]) -> OpResult<T> {
    stored(&o.omap_get(key)?)
}

/// As [`read`]; `None` without key or object.
pub(crate) fn read_if<T: Denc>(o: &mut dyn Object, key: &[u8]) -> OpResult<Option<T>> {
    absent(read(o, key))
}

/// Whether the key is there.
pub(crate) fn exists(o: &mut dyn Object, key: &[u8]) -> OpResult<bool> {
    Ok(absent(o.omap_get(key))?.is_some())
}

/// ENOENT as `None`.
pub(crate) fn absent<T>(result: OpResult<T>) -> OpResult<Option<T>> {
    match result {
        Ok(x) => Ok(Some(x)),
        Err(Errno::NOENT) => Ok(None),
        Err(e) => Err(e),
    }
}

/// Sets a key; creates the object.
pub(crate) fn write<T: Denc>(o: &mut dyn Object, key: &[u8], value: &T) -> OpResult<()> {
    o.omap_set(vec![(Bytes::copy_from_slice(key), value.to_bytes())])
}

/// Removes a key, of an object that is there.
pub(crate) fn remove(o: &mut dyn Object, key: &[u8]) -> OpResult<()> {
    o.omap_rm(vec![Bytes::copy_from_slice(key)])
}

/// Removes a key if there is one.
pub(crate) fn remove_if(o: &mut dyn Object, key: &[u8]) -> OpResult<()> {
    absent(remove(o, key)).map(drop)
}

/// A key of a prefix and a name.
pub(crate) fn key(prefix: &[u8], name: &[u8]) -> Bytes {
    [prefix, name].concat().into()
}

/// A key of a prefix and a number, whose order is that of the numbers.
pub(crate) fn hex_key(prefix: &str, n: u64) -> Bytes {
    format!("{prefix}{n:016x}").into()
}

/// The number of a key of [`hex_key`].
pub(crate) fn hex_of(key: &[u8], prefix: &[u8]) -> Option<u64> {
    let digits = key.strip_prefix(prefix)?;
    u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

/// Walks the pairs whose keys come after `after` and begin with `prefix`, until `each`
/// says that it has enough.
///
/// # Errors
/// ENOENT without the object; those of `each`.
pub(crate) fn walk(
    o: &mut dyn Object,
    after: &[u8],
    prefix: &[u8],
    mut each: impl FnMut(&Bytes, &Bytes) -> OpResult<Step>,
) -> OpResult<()> {
    let mut after = Bytes::copy_from_slice(after);
    loop {
        let (pairs, more) = o.omap_page(&after, prefix, PAGE)?;
        for (key, value) in &pairs {
            if each(key, value)? == Step::Enough {
                return Ok(());
            }
        }
        let Some((last, _)) = pairs.into_iter().next_back().filter(|_| more) else {
            return Ok(());
        };
        after = last;
    }
}

/// How a walk goes on.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// To the next pair.
    Next,
    /// Not at all.
    Enough,
}

/// Pairs after `start`, at most `max`: names without the prefix, values decoded.
///
/// # Errors
/// ENOENT without the object; EIO for values that cannot be decoded.
pub(crate) fn list<T: Denc>(
    o: &mut dyn Object,
    prefix: &[u8],
    start: &[u8],
    max: u64,
) -> OpResult<Vec<(Bytes, T)>> {
    let mut found = Vec::new();
    if max == 0 {
        o.stat()?;
        return Ok(found);
    }
    walk(o, &key(prefix, start), prefix, |key, value| {
        found.push((key.slice(prefix.len()..), stored(value)?));
        Ok(if found.len() as u64 >= max { Step::Enough } else { Step::Next })
    })?;
    Ok(found)
}

/// An answer of one value.
pub(crate) fn answer<T: Denc>(value: &T) -> OpResult<Reply> {
    Ok(value.to_bytes().into())
}

/// Nothing to say after what was done.
pub(crate) fn done((): ()) -> Reply {
    DONE
}
