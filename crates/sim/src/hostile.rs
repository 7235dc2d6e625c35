//! A client that means harm, in every eighth seed: huge attributes, many attributes, watches and
//! notifications that nobody needs, requests for maps that will never be, bytes that are no message,
//! messages that are OSDs' alone. What it asks has no history; what must hold for all others holds
//! beside it, and for the copies of its objects.

use bytes::Bytes;
use denc::{Features, Writer};
use messages::{Envelope, MOsdOp, Message, OsdOp, OsdPing, op, req_flag};
use osdc::Request;
use types::{HObject, ObjectLocator, OsdId, SnapId, UTime};

use crate::net::Line;
use crate::world::{Event, MS, Node, SEC, World};

/// Objects that it works on.
const OBJECTS: u64 = 4;

fn set_attr(name: &str, len: usize) -> OsdOp {
    let mut o = OsdOp::new(op::SETXATTR, [name.as_bytes(), &vec![b'h'; len]].concat().into());
    o.put_u32(0, name.len() as u32);
    o.put_u32(4, len as u32);
    o
}

fn watch(cookie: u64) -> OsdOp {
    let mut o = OsdOp::new(op::WATCH, Bytes::new());
    o.put_u64(0, cookie);
    o.raw[16] = 3;
    o.put_u32(21, 10);
    o
}

fn notify(payload: usize) -> OsdOp {
    let mut w = Writer::new(Features::ALL);
    w.u32(1);
    w.u32(20);
    w.blob(&vec![b'n'; payload]);
    OsdOp::new(op::NOTIFY, w.finish())
}

impl World {
    pub(crate) fn add_hostile(&mut self) {
        self.hostile = Some(self.add_client(0));
        self.after(SEC, Event::Hostile);
    }

    /// It does some of what it can, and will again.
    pub(crate) fn hostile_work(&mut self) {
        let Some(i) = self.hostile.filter(|_| self.working) else { return };
        for _ in 0..self.chance.within(1, 12) {
            match self.chance.below(10) {
                0 => self.hostile_raw(i),
                _ => self.hostile_request(i),
            }
        }
        let ns = self.chance.within(5 * MS, 800 * MS);
        self.after(ns, Event::Hostile);
    }

    fn hostile_request(&mut self, i: usize) {
        self.value += 1;
        let n = self.value;
        let coded = self.settings.coded.is_some();
        let (ops, flags) = match self.chance.below(9) {
            0 => (vec![set_attr("huge", 300_000)], req_flag::WRITE),
            1 => ((0..40).map(|k| set_attr(&format!("a{n}-{k}"), 50)).collect(), req_flag::WRITE),
            2 => ((0..20).map(|k| watch(n * 100 + k)).collect(), req_flag::WRITE),
            3 => (vec![notify(self.chance.within(0, 200_000) as usize)], req_flag::READ),
            4 => (vec![OsdOp::new(op::DELETE, Bytes::new())], req_flag::WRITE),
            5 => (vec![OsdOp::new(0x2fff, Bytes::from_static(b"no operation"))], req_flag::WRITE),
            6 => {
                // A short write beside what does not belong to it.
                let short = OsdOp::extent(op::APPEND, 0, 1, Bytes::from_static(b"h"));
                let wrong = OsdOp::new(op::CMPXATTR, vec![b'x'; 100_000].into());
                (vec![short, wrong], req_flag::WRITE)
            }
            7 if !coded => {
                let odd = Bytes::from_static(&[0xff; 64]);
                (vec![OsdOp::new(op::OMAPSETVALS, odd)], req_flag::WRITE)
            }
            _ => {
                let whole = OsdOp::extent(op::READ, 0, u64::MAX, Bytes::new());
                (vec![whole; 30], req_flag::READ)
            }
        };
        let name = Bytes::from(format!("x{}", self.chance.below(OBJECTS)));
        let hash = HObject::hash_of(b"", &name);
        let object = HObject { pool: self.pool, hash, name, snap: SnapId::HEAD, ..HObject::min() };
        let wall = self.clock(Node::Client(i)).wall_ns;
        let mtime = UTime::from_nanos(wall);
        let snaps = (SnapId(0), Vec::new());
        let request = Request { object, pg: None, ops, flags, mtime, snaps };
        self.client_do(i, |o, out| o.submit(request, out));
        *self.faults.entry("hostile request").or_default() += 1;
    }

    /// Something over a connection that no client's library sends.
    fn hostile_raw(&mut self, i: usize) {
        let lines: Vec<(OsdId, usize)> =
            self.clients[i].lines.iter().map(|(osd, c)| (*osd, *c)).collect();
        if lines.is_empty() {
            return;
        }
        let (osd, c) = lines[self.chance.index(lines.len())];
        if self.conns[c].line != Line::Client(osd) {
            return;
        }
        let epoch = self.maps.last_key_value().map_or(types::Epoch(0), |(e, _)| *e);
        let envelope = match self.chance.below(3) {
            0 => {
                let name = Bytes::from_static(b"x0");
                let hash = HObject::hash_of(b"", &name);
                let ahead = self.chance.of(&[2, 500, 1_000_000]);
                MOsdOp {
                    pg: types::PgId { pool: self.pool, ps: 0 }.into(),
                    hash,
                    epoch: types::Epoch(epoch.0 + ahead),
                    flags: req_flag::WRITE,
                    locator: ObjectLocator { pool: self.pool, ..ObjectLocator::default() },
                    oid: name,
                    ops: vec![OsdOp::extent(op::APPEND, 0, 3, Bytes::from_static(b"hhh"))],
                    snapid: SnapId::HEAD,
                    features: Features::TENTACLE_WORD.0,
                    reqid: types::ReqId::default(),
                    client_inc: 0,
                    mtime: UTime::ZERO,
                    snap_seq: SnapId(0),
                    snaps: Vec::new(),
                    retry_attempt: 0,
                }
                .envelope(Features::TENTACLE_WORD)
                .with_tid(1 << 40)
            }
            1 => Envelope {
                kind: self.chance.of(&[MOsdOp::KIND, 97, 112, 113, 0x4101]),
                front: vec![0xee; self.chance.within(0, 300) as usize].into(),
                ..Envelope::default()
            },
            _ => {
                let dead = OsdPing { fsid: self.fsid, from: osd, epoch, op: 2, stamp_ns: self.now };
                dead.envelope(Features::ALL)
            }
        };
        self.send(c, 0, envelope);
        *self.faults.entry("hostile message").or_default() += 1;
    }
}
