//! What clients do with each block device image, counted by the primary while somebody asks:
//! `rbd perf image`. Nothing is counted, and nothing kept, when nobody has asked for a minute.
//!
//! Source of names and meanings: the peer's `mgr/OSDPerfMetricTypes.h` and the query that its
//! module `rbd_support` makes.

use std::collections::BTreeMap;

use bytes::Bytes;
use env::Now;
use serde_json::{Value, json};

use crate::session::ClientOp;

/// Images counted at once: the quietest makes room.
const IMAGES_MAX: usize = 1024;
/// Nobody asked for so long: counting ends.
const ASKED_MS: u64 = 60_000;

/// Pool of the image's header, namespace, image's id.
type Key = (i64, Bytes, Bytes);

/// Operations, bytes and nanoseconds, each of writes and of reads, since counting began.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    ops: [u64; 2],
    bytes: [u64; 2],
    ns: [u64; 2],
}

/// The counters; empty while nobody asks.
#[derive(Debug, Default)]
pub struct ImageIo {
    asked_ms: Option<u64>,
    images: BTreeMap<Key, Counts>,
}

/// The image that a data object is of: its pool, when it is not the object's, and its id.
fn image_of(oid: &Bytes) -> Option<(Option<i64>, Bytes)> {
    let rest = [&b"rbd_data."[..], b"journal_data."].iter().find_map(|p| oid.strip_prefix(*p))?;
    let from = oid.len() - rest.len();
    let mut parts = rest.split(|b| *b == b'.');
    let (first, second, third) = (parts.next()?, parts.next()?, parts.next());
    let number = |text: &[u8]| std::str::from_utf8(text).ok()?.parse().ok();
    let (pool, at, len) = match third {
        Some(_) => (Some(number(first)?), from + first.len() + 1, second.len()),
        None => (None, from, first.len()),
    };
    (len > 0).then(|| (pool, oid.slice(at..at + len)))
}

impl ImageIo {
    /// A client's request was answered with so many bytes.
    pub(crate) fn on_answer(&mut self, op: &ClientOp, in_bytes: u64, out_bytes: u64, now: Now) {
        let Some(asked_ms) = self.asked_ms else { return };
        if now.mono_ms() > asked_ms + ASKED_MS {
            *self = Self::default();
            return;
        }
        let took_ns = now.mono_ns.saturating_sub(op.came_ns);
        let (pool, nspace) = (op.msg.pg.pg.pool.0, &op.msg.locator.nspace);
        let write = op.may_write();
        let bytes = if write { in_bytes } else { out_bytes };
        self.count(pool, nspace, &op.msg.oid, (write, bytes, took_ns));
    }

    fn count(&mut self, pool: i64, nspace: &Bytes, oid: &Bytes, io: (bool, u64, u64)) {
        let Some((header_pool, image)) = image_of(oid) else { return };
        let key = (header_pool.unwrap_or(pool), nspace.clone(), image);
        let (write, bytes, ns) = io;
        if let Some(counts) = self.images.get_mut(&key) {
            return counts.add(write, bytes, ns);
        }
        if self.images.len() >= IMAGES_MAX {
            let quietest = self.images.iter().min_by_key(|(_, c)| c.ops[0] + c.ops[1]);
            let quietest = quietest.map(|(key, _)| key.clone());
            quietest.and_then(|key| self.images.remove(&key));
        }
        // Names are kept without the message they came in.
        let key = (key.0, Bytes::copy_from_slice(&key.1), Bytes::copy_from_slice(&key.2));
        self.images.entry(key).or_default().add(write, bytes, ns);
    }

    /// All counters, and counting goes on for a minute.
    pub(crate) fn ask(&mut self, now: Now) -> Value {
        self.asked_ms = Some(now.mono_ms());
        let text = |b: &Bytes| String::from_utf8_lossy(b).into_owned();
        let one = |((pool, nspace, image), c): (&Key, &Counts)| {
            json!({
                "pool": pool,
                "namespace": text(nspace),
                "image": text(image),
                "counters": [c.ops[0], c.ops[1], c.bytes[0], c.bytes[1], c.ns[0], c.ns[1]],
            })
        };
        Value::Array(self.images.iter().map(one).collect())
    }
}

impl Counts {
    fn add(&mut self, write: bool, bytes: u64, ns: u64) {
        let which = usize::from(!write);
        self.ops[which] += 1;
        self.bytes[which] += bytes;
        self.ns[which] += ns;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_of_objects() {
        let of = |name: &'static str| {
            let (pool, id) = image_of(&Bytes::from_static(name.as_bytes()))?;
            Some((pool, String::from_utf8(id.to_vec()).unwrap()))
        };
        assert_eq!(of("rbd_data.10ab.0000000000000001"), Some((None, "10ab".to_owned())));
        assert_eq!(of("rbd_data.7.10ab.0000000000000001"), Some((Some(7), "10ab".to_owned())));
        assert_eq!(of("journal_data.3.10ab.5"), Some((Some(3), "10ab".to_owned())));
        for other in ["rbd_header.10ab", "rbd_data.", "rbd_data.10ab", "rbd_data..1", "x", ""] {
            assert_eq!(of(other), None, "{other}");
        }
        assert_eq!(of("rbd_data.x.10ab.1"), None);
    }

    /// The busy ones stay when there are too many; nothing grows without bound.
    #[test]
    fn bounded() {
        let mut io = ImageIo::default();
        let busy = Bytes::from_static(b"rbd_data.busy.0");
        io.count(1, &Bytes::new(), &busy, (true, 10, 5));
        io.count(1, &Bytes::new(), &busy, (false, 20, 7));
        for i in 0..3 * IMAGES_MAX {
            let oid = Bytes::from(format!("rbd_data.{i:x}z.0"));
            io.count(1, &Bytes::new(), &oid, (true, 1, 1));
        }
        assert_eq!(io.images.len(), IMAGES_MAX);
        let all = io.ask(Now { wall_ns: 0, mono_ns: 0 });
        let busy = all.as_array().unwrap().iter().find(|v| v["image"] == "busy").unwrap();
        assert_eq!(busy["counters"], json!([1, 1, 10, 20, 5, 7]));
    }
}
