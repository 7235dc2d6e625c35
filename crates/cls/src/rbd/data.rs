//! Data objects of images: what clones copy from their parents, and holes.

use std::collections::BTreeMap;

use bytes::Bytes;
use types::{Errno, OpResult};

use crate::keys::absent;
use crate::{DONE, Object, Reply, params};

fn is_there(o: &mut dyn Object) -> OpResult<bool> {
    Ok(absent(o.stat())?.is_some())
}

/// Writes the parent's data, unless the object was written already.
pub(super) fn copyup(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    if !is_there(o)? {
        o.write(0, input.clone())?;
    }
    Ok(DONE)
}

pub(super) fn sparse_copyup(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let (extents, data): (BTreeMap<u64, u64>, Bytes) = params(input)?;
    if is_there(o)? {
        return Ok(DONE);
    }
    if extents.is_empty() {
        o.create(true)?;
    }
    let mut at = 0u64;
    for (off, len) in extents {
        let end =
            at.checked_add(len).filter(|end| *end <= data.len() as u64).ok_or(Errno::INVAL)?;
        o.write(off, data.slice(at as usize..end as usize))?;
        at = end;
    }
    Ok(DONE)
}

/// Gives back blocks of zeros.
pub(super) fn sparsify(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let (block, remove_empty): (u64, bool) = params(input)?;
    let (size, _) = o.stat()?;
    let data = o.read(0, size)?;
    let is_zero = |part: &[u8]| part.iter().all(|b| *b == 0);
    if is_zero(&data) {
        if remove_empty {
            o.remove()?;
        } else if !data.is_empty() {
            o.truncate(0)?;
        }
        return Ok(DONE);
    }
    let block = usize::try_from(block).ok().filter(|b| *b > 0).ok_or(Errno::INVAL)?;
    // Runs of blocks that are not all zeros.
    let mut runs: Vec<(usize, usize)> = Vec::new();
    let mut at = 0;
    for part in data.chunks(block) {
        let end = at + part.len();
        if !is_zero(part) {
            match runs.last_mut() {
                Some((_, run_end)) if *run_end == at => *run_end = end,
                _ => runs.push((at, end)),
            }
        }
        at = end;
    }
    if runs == [(0, data.len())] {
        return Ok(DONE);
    }
    o.truncate(0)?;
    for (from, to) in runs {
        o.write(from as u64, data.slice(from..to))?;
    }
    Ok(DONE)
}
