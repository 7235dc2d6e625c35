//! Listing a pool's objects.

use bytes::Bytes;
use denc::{Denc, Reader};
use messages::{OsdOp, op, req_flag};
use types::{HObject, PgId, SnapId};

use crate::IoCtx;
use crate::error::{Error, Result};

/// One object of a listing.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Listed {
    /// Namespace.
    pub nspace: Bytes,
    /// Name.
    pub name: Bytes,
    /// Locator key.
    pub key: Bytes,
}

impl IoCtx {
    /// Every object of the namespace, PG by PG.
    ///
    /// # Errors
    /// As [`IoCtx::read_op`].
    pub async fn list(&self) -> Result<Vec<Listed>> {
        let mut found = Vec::new();
        let pgs = self.cluster().0.objecter.borrow().pg_count(self.pool_id());
        for ps in 0..pgs.ok_or_else(|| Error::errno("the pool is gone", -2))? {
            let mut cursor = HObject::min();
            loop {
                let mut list = OsdOp::new(op::PGNLS, cursor.to_bytes());
                list.put_u64(0, 1024);
                let object = HObject {
                    pool: self.pool_id(),
                    hash: PgId { pool: self.pool_id(), ps }.ps,
                    nspace: self.nspace().clone(),
                    snap: SnapId::HEAD,
                    ..HObject::min()
                };
                let flags = req_flag::READ | req_flag::IGNORE_OVERLAY;
                let reply = self.submit(object, Some(ps), vec![list], flags).await?;
                if reply.result < 0 {
                    return Err(Error::errno(
                        &format!("listing PG {}.{ps:x}", self.pool_id()),
                        reply.result,
                    ));
                }
                let data = reply.ops.into_iter().next().map(|op| op.data).unwrap_or_default();
                let mut r = Reader::shared(&data);
                let (next, names) = r.framed("pg_nls_response_t", 1, |r, _| {
                    let next: HObject = Denc::decode(r)?;
                    let names = r.seq(|r| {
                        Ok(Listed { nspace: r.blob()?, name: r.blob()?, key: r.blob()? })
                    })?;
                    Ok((next, names))
                })?;
                found.extend(names);
                if reply.result == 1 || next.max {
                    break;
                }
                cursor = next;
            }
        }
        Ok(found)
    }
}
