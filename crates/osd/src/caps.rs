//! Whether a client may do what it asks.

use auth::{ClassCall, OsdAccess, OsdCap};
use maps::OsdMap;
use messages::op;
use types::EntityAddr;

use crate::copy::Source;
use crate::session::ClientOp;

/// What a connection may do.
#[derive(Clone, Debug, Default)]
pub struct Caps(OsdCap);

impl Caps {
    /// Everything.
    #[must_use]
    pub fn all() -> Self {
        Self(OsdCap::allow_all())
    }

    /// From the text in a ticket; what cannot be read allows nothing.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        Self(OsdCap::parse_lenient(text))
    }

    /// Whether nothing is allowed, whatever the map says.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.grants().is_empty()
    }

    /// Whether commands are allowed from there.
    #[must_use]
    pub fn is_allow_all(&self, addr: &EntityAddr) -> bool {
        self.0.is_allow_all(addr)
    }

    /// Whether all images in all pools may be read.
    #[must_use]
    pub fn reads_images(&self, addr: &EntityAddr) -> bool {
        self.0.is_capable(&OsdAccess {
            pool: "",
            nspace: b"",
            apps: &auth::caps::PoolApps::new(),
            object: b"rbd_data.",
            read: true,
            write: false,
            calls: &[],
            addr,
        })
    }

    /// Whether the request is allowed to somebody at `from`: what it does to its object, and that each other object which
    /// it names may be read. The peer does not ask for the latter.
    #[must_use]
    pub fn allows(&self, request: &ClientOp, from: &EntityAddr, map: &OsdMap) -> bool {
        let mut sources = request.msg.ops.iter().filter_map(Source::of);
        self.allows_target(request, from, map) && sources.all(|s| self.reads(from, &s, map))
    }

    /// Whether an object may be read. One of a pool that is not there is for the request to miss.
    fn reads(&self, from: &EntityAddr, source: &Source, map: &OsdMap) -> bool {
        let id = source.locator.pool;
        let Some(pool) = map.pool(id) else { return true };
        self.0.is_capable(&OsdAccess {
            pool: map.pool_name(id).unwrap_or(""),
            nspace: &source.locator.nspace,
            apps: &pool.application_metadata,
            object: &source.oid,
            read: true,
            write: false,
            calls: &[],
            addr: from,
        })
    }

    fn allows_target(&self, request: &ClientOp, from: &EntityAddr, map: &OsdMap) -> bool {
        let id = request.msg.pg.pg.pool;
        let Some(in_map) = map.pool(id) else { return false };
        let (pool, apps) = (map.pool_name(id).unwrap_or(""), &in_map.application_metadata);
        let mut access = OsdAccess {
            pool,
            nspace: &request.msg.locator.nspace,
            apps,
            object: &request.msg.oid,
            read: false,
            write: false,
            calls: &[],
            addr: from,
        };
        let mut calls = Vec::new();
        for o in &request.msg.ops {
            match o.code {
                op::CALL => {
                    let (class, method) = (usize::from(o.raw[0]), usize::from(o.raw[1]));
                    let text = |from: usize, to: usize| {
                        o.data.get(from..to).and_then(|b| std::str::from_utf8(b).ok()).unwrap_or("")
                    };
                    let flags =
                        crate::exec::find_method(o, &request.classes).map_or(0, |m| m.flags());
                    calls.push(ClassCall {
                        class: text(0, class),
                        method: text(class, class + method),
                        read: flags & cls::READS != 0,
                        write: flags & cls::WRITES != 0,
                        allowed: true,
                    });
                }
                // The peer takes a notification for a read, a watch for both.
                op::WATCH => {
                    access.read = true;
                    access.write |= o.raw[16] != 7;
                }
                _ => {
                    access.read |= o.is_read();
                    access.write |= o.is_write() || crate::pg::tier::is_cache_op(o.code);
                }
            }
        }
        access.calls = &calls;
        self.0.is_capable(&access)
    }
}
