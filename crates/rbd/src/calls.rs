//! Calls of the classes `rbd` and `lock`, in the forms that images need.

use bytes::Bytes;
use cls::client::{AssertOp, EXCLUSIVE};
use denc::{Denc, Reader};
use rados::{IoCtx, ReadOp, Reply, Slot, WriteOp};

use crate::error::Result;
use crate::names;

/// The image itself, where a snapshot's number is asked for.
pub(crate) const HEAD: u64 = types::SnapId::HEAD.0;

/// Adds a method's call to a reading operation.
pub(crate) fn ask(op: &mut ReadOp, method: &str, params: impl Denc) -> Slot<Bytes> {
    op.exec("rbd", method, &params.to_bytes())
}

/// The same without parameters.
pub(crate) fn ask_plain(op: &mut ReadOp, method: &str) -> Slot<Bytes> {
    op.exec("rbd", method, b"")
}

/// Adds a method's call to a writing operation.
pub(crate) fn tell(op: &mut WriteOp, method: &str, params: impl Denc) {
    op.exec("rbd", method, &params.to_bytes());
}

/// A method's answer. What is behind it is passed over.
pub(crate) fn answer<T: Denc>(reply: &Reply, slot: Slot<Bytes>) -> Result<T> {
    decode(&reply.get(slot)?)
}

/// Reads an answer.
pub(crate) fn decode<T: Denc>(data: &Bytes) -> Result<T> {
    Ok(T::decode(&mut Reader::shared(data))?)
}

/// One reading call by itself.
pub(crate) async fn get<T: Denc>(
    io: &IoCtx,
    object: &[u8],
    method: &str,
    params: &[u8],
) -> rados::Result<T> {
    let data = io.exec(object, "rbd", method, params).await?;
    T::decode(&mut Reader::shared(&data)).map_err(Into::into)
}

/// One writing call by itself.
pub(crate) async fn set(
    io: &IoCtx,
    object: &[u8],
    method: &str,
    params: impl Denc,
) -> rados::Result<()> {
    io.exec_write(object, "rbd", method, &params.to_bytes()).await
}

/// Makes an operation on an object map fail with EBUSY unless it is locked.
pub(crate) fn assert_locked(op: &mut WriteOp) {
    let assert = AssertOp {
        name: Bytes::from_static(names::LOCK.as_bytes()),
        kind: EXCLUSIVE,
        ..AssertOp::default()
    };
    op.exec("lock", "assert_locked", &assert.to_bytes());
}

/// Text as the classes take it.
pub(crate) fn text(s: &str) -> Bytes {
    Bytes::copy_from_slice(s.as_bytes())
}

/// Text that somebody stored; names that are not UTF-8 are shown as well as can be.
pub(crate) fn string(b: &Bytes) -> String {
    String::from_utf8_lossy(b).into_owned()
}

/// All of a listing that comes in pages: `page` gets what the last page ended with.
pub(crate) async fn pages<T: Denc>(
    io: &IoCtx,
    object: &[u8],
    method: &str,
) -> Result<Vec<(Bytes, T)>> {
    const PAGE: u64 = 1024;
    let mut found: Vec<(Bytes, T)> = Vec::new();
    loop {
        let after = found.last().map_or_else(Bytes::new, |(key, _)| key.clone());
        let params = (after, PAGE).to_bytes();
        let page: Vec<(Bytes, T)> =
            crate::error::absent(get(io, object, method, &params).await)?.unwrap_or_default();
        let more = page.len() as u64 == PAGE;
        found.extend(page);
        if !more {
            return Ok(found);
        }
    }
}
