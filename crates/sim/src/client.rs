//! A client: the project's own objecter, with random work for it.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use denc::{Denc, Features, Reader, Writer};
use maps::OsdMap;
use messages::{MOsdOpReply, OsdMapMsg, OsdOp, op, req_flag};
use osdc::{Objecter, Request};
use types::{HObject, ObjectLocator, OsdId, PoolId, SnapId, UTime};

use crate::history::{Ask, Model, Snaps, Told};

/// Where a value's number ends and its scale begins.
const SCALE: u32 = 40;

/// A value that takes so many times as much as another.
pub(crate) fn scaled(v: u64, scale: u64) -> u64 {
    v | (scale - 1) << SCALE
}

/// Words that a value takes, so that objects have all sizes.
fn words(v: u64) -> usize {
    let scale = 1 + (v >> SCALE) as usize;
    (1 + (v % 61) as usize) * scale
}

/// A value as it is written: often enough that a torn one shows.
fn body(v: u64) -> Bytes {
    let mut raw = Vec::with_capacity(8 * words(v));
    for _ in 0..words(v) {
        raw.extend_from_slice(&v.to_le_bytes());
    }
    raw.into()
}

/// The values of an object's data.
///
/// # Errors
/// When it is not made of whole values.
fn values(data: &[u8]) -> Result<Vec<u64>, String> {
    let mut all = Vec::new();
    let mut rest = data;
    while let Some((head, _)) = rest.split_first_chunk::<8>() {
        let v = u64::from_le_bytes(*head);
        let want = body(v);
        if !rest.starts_with(&want) {
            return Err(format!("value {v} is torn at byte {}", data.len() - rest.len()));
        }
        all.push(v);
        rest = &rest[want.len()..];
    }
    if rest.is_empty() { Ok(all) } else { Err("a part of a value".into()) }
}

fn attr(v: u64) -> OsdOp {
    let mut o = OsdOp::new(op::SETXATTR, Bytes::from([b"x", &v.to_le_bytes()[..]].concat()));
    o.put_u32(0, 1);
    o.put_u32(4, 8);
    o
}

fn omap(k: u8, v: u64) -> OsdOp {
    let one: BTreeMap<Bytes, Bytes> =
        [(Bytes::copy_from_slice(&[k]), Bytes::copy_from_slice(&v.to_le_bytes()))].into();
    OsdOp::new(op::OMAPSETVALS, one.to_bytes())
}

fn data(code: u16, v: u64) -> OsdOp {
    let body = body(v);
    OsdOp::extent(code, 0, body.len() as u64, body)
}

/// What an operation looks like on the wire, and whether it writes.
fn vector(pool: PoolId, ask: &Ask) -> (Vec<OsdOp>, bool) {
    let plain = |code| OsdOp::new(code, Bytes::new());
    let ops = match ask {
        Ask::Read | Ask::ReadAt(_) => {
            let mut w = Writer::new(Features::ALL);
            w.blob(&[]);
            w.u64(1000);
            w.blob(&[]);
            let vals = OsdOp::new(op::OMAPGETVALS, w.finish());
            let read = OsdOp::extent(op::READ, 0, 0, Bytes::new());
            return (vec![read, plain(op::GETXATTRS), vals], false);
        }
        Ask::WriteFull(v) => vec![data(op::WRITEFULL, *v)],
        Ask::Append(v) => vec![data(op::APPEND, *v)],
        Ask::SetAttr(v) => vec![attr(*v)],
        Ask::SetOmap(k, v) => vec![omap(*k, *v)],
        Ask::RmOmap(k) => {
            let keys = vec![Bytes::copy_from_slice(&[*k])];
            vec![plain(op::CREATE), OsdOp::new(op::OMAPRMKEYS, keys.to_bytes())]
        }
        Ask::All(k, v) => vec![data(op::APPEND, *v), attr(*v), omap(*k, *v)],
        Ask::Create => {
            let mut create = plain(op::CREATE);
            create.flags = 1;
            vec![create]
        }
        Ask::Delete => vec![plain(op::DELETE)],
        Ask::Call(v) => vec![crate::uploads::call(*v)],
        Ask::Rollback(snap) => {
            let mut back = plain(op::ROLLBACK);
            back.put_u64(0, *snap);
            vec![back]
        }
        Ask::CopyFrom(source) => {
            let mut w = Writer::new(Features::ALL);
            w.str(source);
            ObjectLocator { pool, ..ObjectLocator::default() }.encode(&mut w);
            let mut copy = OsdOp::new(op::COPY_FROM, w.finish());
            copy.put_u64(0, SnapId::HEAD.0);
            vec![copy]
        }
    };
    (ops, true)
}

fn word(raw: &[u8]) -> Result<u64, String> {
    raw.try_into().map(u64::from_le_bytes).map_err(|_| format!("{} bytes for a value", raw.len()))
}

/// What an answer says.
///
/// # Errors
/// When it says what no object can be.
fn told(ask: &Ask, reply: &MOsdOpReply) -> Result<Told, String> {
    if !ask.is_read() || reply.result < 0 {
        return Ok(Told::Code(reply.result));
    }
    let [read, attrs, vals] = &reply.ops[..] else { return Err("not three answers".into()) };
    let mut m = Model { exists: true, data: values(&read.data)?, ..Model::default() };
    let attrs = BTreeMap::<Bytes, Bytes>::from_bytes(&attrs.data).map_err(|e| e.to_string())?;
    if let Some(raw) = attrs.get(&b"x"[..]) {
        m.attr = Some(word(raw)?);
    }
    let mut r = Reader::shared(&vals.data);
    let vals: BTreeMap<Bytes, Bytes> = Denc::decode(&mut r).map_err(|e| e.to_string())?;
    for (k, v) in vals {
        m.omap.insert(k[0], word(&v)?);
    }
    Ok(Told::Object(m))
}

/// An operation that was sent.
#[derive(Debug)]
pub struct Open {
    /// The object.
    pub name: String,
    /// Its number in the object's history.
    pub record: usize,
    /// What was asked.
    pub ask: Ask,
}

/// One client.
pub struct Client {
    /// Its number, unique in the life of the cluster.
    pub gid: u64,
    /// Finds OSDs and sends again.
    pub objecter: Objecter,
    /// What has no answer yet, by tid.
    pub open: BTreeMap<u64, Open>,
    /// The connection that serves each OSD's session.
    pub lines: BTreeMap<OsdId, usize>,
    /// The sessions that are wanted, by number.
    pub wanted: BTreeMap<OsdId, u64>,
    /// Counts sessions.
    pub sessions: u64,
    /// Its session with the monitor.
    pub mon: Option<usize>,
    /// Operations at a time.
    pub depth: usize,
    /// It wants to be told when there is no room, instead of waiting.
    pub tries: bool,
}

impl Client {
    /// One that knows nothing yet.
    #[must_use]
    pub fn new(gid: u64, depth: usize) -> Self {
        Self {
            gid,
            objecter: Objecter::new(),
            open: BTreeMap::new(),
            lines: BTreeMap::new(),
            wanted: BTreeMap::new(),
            sessions: 0,
            mon: None,
            depth,
            tries: gid.is_multiple_of(4),
        }
    }

    /// A request as the objecter takes it.
    #[must_use]
    pub fn request(pool: PoolId, name: &str, ask: &Ask, snaps: &Snaps, now_ns: u64) -> Request {
        let name = Bytes::copy_from_slice(name.as_bytes());
        let (ops, writes) = vector(pool, ask);
        Request {
            object: HObject {
                pool,
                hash: HObject::hash_of(b"", &name),
                name,
                snap: match ask {
                    Ask::ReadAt(snap) => SnapId(*snap),
                    _ => SnapId::HEAD,
                },
                ..HObject::min()
            },
            pg: None,
            ops,
            flags: if writes { req_flag::WRITE } else { req_flag::READ },
            mtime: UTime::from_nanos(now_ns),
            snaps: (SnapId(snaps.seq), snaps.kept.iter().map(|s| SnapId(*s)).collect()),
        }
    }

    /// An answer, and what it answers.
    ///
    /// # Errors
    /// When it says what no object can be.
    pub fn done(&mut self, tid: u64, reply: &MOsdOpReply) -> Result<Option<(Open, Told)>, String> {
        let Some(open) = self.open.remove(&tid) else { return Ok(None) };
        match told(&open.ask, reply) {
            Ok(told) => Ok(Some((open, told))),
            Err(e) => Err(format!("{} {:?}: {e}", open.name, open.ask)),
        }
    }

    /// The map after a message of maps; `None` when nothing in it follows the newest.
    #[must_use]
    pub fn next_map(&self, m: &OsdMapMsg) -> Option<Arc<OsdMap>> {
        let mut map = self.objecter.map().map(|m| OsdMap::clone(m));
        let have = map.as_ref().map_or(0, |m| m.epoch.0);
        if let Some((e, raw)) = m.fulls.last_key_value()
            && e.0 > have
            && (map.is_none() || !m.incrementals.contains_key(&types::Epoch(have + 1)))
        {
            map = OsdMap::from_shared(raw).ok();
        }
        let mut map = map?;
        for (e, raw) in &m.incrementals {
            if e.0 == map.epoch.0 + 1 {
                let inc = maps::Incremental::from_shared(raw).ok()?;
                map.apply_incremental(&inc).ok()?;
            }
        }
        (map.epoch.0 > have).then(|| Arc::new(map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn torn_values_show() {
        let whole = [body(5), body(77)].concat();
        assert_eq!(values(&whole).unwrap(), [5, 77]);
        assert!(values(&whole[..whole.len() - 8]).is_err());
        assert!(values(&whole[..9]).is_err());
        let mut wrong = whole;
        wrong[17] ^= 1;
        assert!(values(&wrong).is_err());
    }
}
