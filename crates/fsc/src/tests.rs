//! Clients against a real metadata server with objects in memory, and its restarts.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use env::{ConnId, Now};
use maps::{MdsInfo, MdsMap, MdsState};
use mds::{Effect, Io, IoAnswer, IoData, IoOp, Mds, Options, OsdNews, Outbox, Peer};
use messages::fs::{Args, OpenArgs, mds_op};
use types::{
    EntityAddr, EntityId, EntityKind, EntityName, Epoch, Errno, Features, Ino, PoolId, SnapId,
};

use crate::{Ask, Client, Config, Listing, Out, Reply, open_flag, path_of};

const META: PoolId = PoolId(1);
const DATA: PoolId = PoolId(2);
const ROOT: Ino = Ino(1);

#[derive(Clone, Debug, Default)]
struct Object {
    data: Vec<u8>,
    header: Bytes,
    omap: BTreeMap<Bytes, Bytes>,
    xattrs: BTreeMap<String, Bytes>,
}

#[derive(Default)]
struct Pools(BTreeMap<(PoolId, String), Object>);

impl Pools {
    fn run(&mut self, io: &Io) -> Result<IoAnswer, Errno> {
        let key = (io.pool, io.object.clone());
        let mut object = self.0.get(&key).cloned();
        let writes = io.ops.iter().any(IoOp::is_write);
        if object.is_none() && (!writes || io.ops == [IoOp::Remove]) {
            return Err(Errno::NOENT);
        }
        let mut answers = Vec::new();
        for op in &io.ops {
            if matches!(op, IoOp::Remove) {
                object = None;
                answers.push(IoData::Done);
                continue;
            }
            let o = object.get_or_insert_with(Object::default);
            answers.push(match op {
                IoOp::Read { .. } => IoData::Bytes(o.data.clone().into()),
                IoOp::Stat => IoData::Stat { size: o.data.len() as u64, mtime_ns: 1 },
                IoOp::Write { off, data } => {
                    let end = *off as usize + data.len();
                    o.data.resize(o.data.len().max(end), 0);
                    o.data[*off as usize..end].copy_from_slice(data);
                    IoData::Done
                }
                IoOp::WriteFull(data) => {
                    o.data = data.to_vec();
                    IoData::Done
                }
                IoOp::OmapHeader => IoData::Bytes(o.header.clone()),
                IoOp::OmapRange { after, .. } => {
                    let pairs = o.omap.iter().filter(|(k, _)| *k > after || after.is_empty());
                    let pairs = pairs.map(|(k, v)| (k.clone(), v.clone())).collect();
                    IoData::Omap { pairs, more: false }
                }
                IoOp::OmapSet(pairs) => {
                    o.omap.extend(pairs.iter().cloned());
                    IoData::Done
                }
                IoOp::OmapRemove(keys) => {
                    keys.iter().for_each(|k| drop(o.omap.remove(k)));
                    IoData::Done
                }
                IoOp::OmapSetHeader(header) => {
                    o.header = header.clone();
                    IoData::Done
                }
                IoOp::OmapClear => {
                    o.omap.clear();
                    o.header = Bytes::new();
                    IoData::Done
                }
                IoOp::GetXattr(name) => {
                    IoData::Bytes(o.xattrs.get(name).cloned().ok_or(Errno::NODATA)?)
                }
                IoOp::SetXattr(name, value) => {
                    o.xattrs.insert(name.clone(), value.clone());
                    IoData::Done
                }
                _ => IoData::Done,
            });
        }
        match object {
            Some(o) => drop(self.0.insert(key, o)),
            None => drop(self.0.remove(&key)),
        }
        Ok(IoAnswer(answers))
    }
}

struct One {
    client: Client,
    conn: Option<ConnId>,
    done: BTreeMap<u64, Result<Box<Reply>, Errno>>,
}

/// A server, its pools, and clients of it.
struct World {
    mds: Mds,
    gid: u64,
    pools: Pools,
    map: MdsMap,
    osd: OsdNews,
    now_ms: u64,
    conns: u64,
    clients: Vec<One>,
    /// The server hears nothing of this client.
    cut: Option<usize>,
    to_clients: VecDeque<(ConnId, messages::Envelope)>,
}

fn new_mds(gid: u64) -> Mds {
    let options = Options { writeback_ms: 1_000, split_entries: 40, ..Options::default() };
    Mds::new(mds::Config { name: "a".into(), gid, options })
}

impl World {
    fn new(clients: usize) -> Self {
        let gid = 4242;
        let mut map = MdsMap {
            metadata_pool: META,
            data_pools: vec![DATA],
            fs_name: "cephfs".into(),
            max_mds: 1,
            flags: maps::mds_flag::ALLOW_SNAPS,
            ..MdsMap::default()
        };
        map.up.insert(0, gid);
        map.mds_info.insert(gid, MdsInfo { gid, rank: 0, ..MdsInfo::default() });
        let pools = [(META, "meta".to_owned()), (DATA, "data".to_owned())].into();
        let snap_seqs = [(DATA, SnapId(0))].into();
        let osd = OsdNews { epoch: Epoch(5), pools, snap_seqs, ..OsdNews::default() };
        let one =
            || One { client: Client::new(Config::default()), conn: None, done: BTreeMap::new() };
        let mut world = Self {
            mds: new_mds(gid),
            gid,
            pools: Pools::default(),
            map,
            osd,
            now_ms: 1_000,
            conns: 0,
            clients: (0..clients).map(|_| one()).collect(),
            cut: None,
            to_clients: VecDeque::new(),
        };
        world.begin(MdsState::CREATING);
        world.ticks(4);
        assert_eq!(world.state(), MdsState::ACTIVE);
        world
    }

    fn state(&self) -> MdsState {
        self.map.mds_info[&self.gid].state
    }

    fn now(&self) -> Now {
        let ms = self.now_ms;
        Now { mono_ns: ms * 1_000_000, wall_ns: (1_700_000_000_000 + ms) * 1_000_000 }
    }

    fn begin(&mut self, state: MdsState) {
        self.map.epoch.0 += 1;
        self.map.mds_info.get_mut(&self.gid).expect("it is in the map").state = state;
        self.server(|m, now, out| m.on_start(now, out));
        let (map, osd) = (self.map.clone(), self.osd.clone());
        self.server(|m, now, out| m.on_osd_map(now, &osd, out));
        self.server(|m, now, out| m.on_map(now, &map, out));
        self.tell_map();
    }

    fn tell_map(&mut self) {
        for n in 0..self.clients.len() {
            let map = self.map.clone();
            self.call(n, |c, now, out| c.on_map(now, map, out));
        }
    }

    fn server(&mut self, event: impl FnOnce(&mut Mds, Now, &mut Outbox)) {
        let mut out = Outbox::new();
        let now = self.now();
        event(&mut self.mds, now, &mut out);
        let mut effects: VecDeque<Effect> = out.drain().collect();
        while let Some(effect) = effects.pop_front() {
            match effect {
                Effect::Send(conn, envelope) => self.to_clients.push_back((conn, envelope)),
                Effect::Beacon(beacon) => {
                    self.mds.on_beacon_ack(now, beacon.seq, &mut out);
                    let info = self.map.mds_info.get_mut(&self.gid).expect("it is in the map");
                    let asked = [MdsState::RECONNECT, MdsState::REJOIN, MdsState::ACTIVE];
                    if asked.contains(&beacon.state) && beacon.state != info.state {
                        info.state = beacon.state;
                        self.map.epoch.0 += 1;
                        let map = self.map.clone();
                        self.mds.on_map(now, &map, &mut out);
                    }
                }
                Effect::Io(io) => {
                    let answer = self.pools.run(&io);
                    self.mds.on_done(now, io.id, answer, &mut out);
                }
                Effect::Blocklist { id, .. } => {
                    self.mds.on_done(now, id, Ok(IoAnswer::default()), &mut out);
                }
                Effect::Respawn { why } => panic!("the server gives up: {why}"),
                _ => {}
            }
            effects.extend(out.drain());
        }
    }

    fn call<T>(&mut self, n: usize, event: impl FnOnce(&mut Client, Now, &mut Vec<Out>) -> T) -> T {
        let mut out = Vec::new();
        let now = self.now();
        let value = event(&mut self.clients[n].client, now, &mut out);
        let mut wishes: VecDeque<Out> = out.into();
        while let Some(wish) = wishes.pop_front() {
            let mut out = Vec::new();
            match wish {
                Out::Connect(rank, _) => {
                    self.conns += 1;
                    self.clients[n].conn = Some(ConnId(self.conns));
                    let client = &mut self.clients[n].client;
                    client.on_opened(now, rank, Features::ALL, &mut out);
                }
                Out::Close(_) => {
                    if let Some(conn) = self.clients[n].conn.take() {
                        self.server(|m, now, out| m.on_closed(now, conn, out));
                    }
                }
                Out::Send(_, envelope) => {
                    if let Some(conn) = self.clients[n].conn.filter(|_| self.cut != Some(n)) {
                        let peer = Peer {
                            name: EntityName::new(EntityKind::CLIENT, "admin"),
                            id: EntityId::new(EntityKind::CLIENT, 77 + n as i64),
                            caps: auth::MdsCap::allow_all(),
                            addr: EntityAddr::default(),
                            features: Features::ALL,
                        };
                        self.server(|m, now, out| m.on_message(now, conn, &peer, envelope, out));
                    }
                }
                Out::Done(tid, done) => drop(self.clients[n].done.insert(tid, done)),
                Out::Changed => {}
            }
            wishes.extend(out);
        }
        value
    }

    fn deliver(&mut self) {
        while let Some((conn, envelope)) = self.to_clients.pop_front() {
            let n = self.clients.iter().position(|one| one.conn == Some(conn));
            if let Some(n) = n {
                self.call(n, |c, now, out| c.on_message(now, 0, &envelope, out)).expect("bytes");
            }
        }
    }

    fn ticks(&mut self, n: usize) {
        for _ in 0..n {
            self.now_ms += 300;
            self.deliver();
            self.server(|m, now, out| m.on_tick(now, out));
            self.tell_map();
            for n in 0..self.clients.len() {
                self.call(n, |c, now, out| c.on_tick(now, out));
            }
            self.deliver();
        }
    }

    fn ask(&mut self, n: usize, ask: Ask) -> Result<Reply, i32> {
        let tid = self.call(n, |c, now, out| c.request(now, ask, out));
        for _ in 0..60 {
            self.deliver();
            if let Some(done) = self.clients[n].done.remove(&tid) {
                return done.map(|r| *r).map_err(|e| e.0);
            }
            self.ticks(1);
        }
        panic!("no answer to request {tid}");
    }

    fn op(&mut self, n: usize, op: u32, path: &str, args: Args) -> Result<Reply, i32> {
        self.ask(n, Ask::new(op, path_of(ROOT, path.as_bytes()), args))
    }

    fn open(&mut self, n: usize, path: &str, flags: u32) -> Ino {
        let create = flags & open_flag::CREAT != 0;
        let op = if create { mds_op::CREATE } else { mds_op::OPEN };
        let args = OpenArgs { flags, mode: 0o644, pool: -1, ..OpenArgs::default() };
        let mut ask = Ask::new(op, path_of(ROOT, path.as_bytes()), Args::Open(args));
        ask.opens = Some(flags);
        self.ask(n, ask).expect("it opens").answer.target.expect("an inode").ino
    }

    /// Writes up to `end`; the bytes are nobody's business here.
    fn write(&mut self, n: usize, ino: Ino, end: u64) {
        for _ in 0..40 {
            if self.call(n, |c, _, out| c.may_write(ino, end, out)).expect("it is open") {
                self.call(n, |c, now, out| c.end_write(now, ino, end, out));
                return;
            }
            self.ticks(1);
        }
        panic!("client {n} may not write up to {end}: {:?}", self.clients[n].client.file(ino));
    }

    fn flush(&mut self, n: usize, ino: Ino) {
        for _ in 0..40 {
            self.call(n, |c, _, out| c.flush(ino, out)).expect("it is open");
            self.deliver();
            if self.clients[n].client.is_flushed(ino).expect("it is open") {
                return;
            }
            self.ticks(1);
        }
        panic!("nothing is flushed");
    }

    fn size(&mut self, n: usize, path: &str) -> Result<u64, i32> {
        let reply = self.op(n, mds_op::GETATTR, path, Args::Mask(0x100))?;
        Ok(reply.answer.target.expect("an inode").size.size)
    }

    /// The server dies, and another one takes its rank.
    fn failover(&mut self) {
        let dead = self.gid;
        self.gid += 1;
        self.map.mds_info.remove(&dead);
        self.map.up.insert(0, self.gid);
        let info = MdsInfo { gid: self.gid, rank: 0, ..MdsInfo::default() };
        self.map.mds_info.insert(self.gid, info);
        self.to_clients.clear();
        self.mds = new_mds(self.gid);
        self.begin(MdsState::REPLAY);
        self.ticks(20);
        assert_eq!(self.state(), MdsState::ACTIVE, "after the failover");
    }

    fn names(&mut self, n: usize, path: &str, snaps: bool) -> Vec<String> {
        let mut listing = Listing::new(path_of(ROOT, path.as_bytes()), snaps);
        let mut names = Vec::new();
        while let Some(ask) = listing.next() {
            let reply = self.ask(n, ask).expect("a listing");
            let text = |e: &messages::fs::DirEntry| String::from_utf8_lossy(&e.name).into_owned();
            names.extend(listing.take(reply).iter().map(text));
        }
        names
    }
}

const MODE: Args = Args::Mode(0o755);

#[test]
fn paths_as_servers_take_them() {
    let of = |path: &str| String::from_utf8(path_of(ROOT, path.as_bytes()).path.to_vec()).unwrap();
    for (path, wire) in [
        ("/", ""),
        ("a//b/./c/", "a/b/c"),
        ("/a/.snap/s/c", "a//s/c"),
        (".snap/s", "/s"),
        ("a/.snap", "a/"),
    ] {
        assert_eq!(of(path), wire, "{path}");
    }
}

#[test]
fn names_are_made_and_removed() {
    let mut w = World::new(2);
    w.op(0, mds_op::MKDIR, "d", MODE).unwrap();
    assert_eq!(w.op(1, mds_op::MKDIR, "d", MODE), Err(-17));
    w.op(1, mds_op::MKDIR, "d/e", MODE).unwrap();
    assert_eq!(w.op(0, mds_op::RMDIR, "d", Args::None), Err(-39));
    assert_eq!(w.names(0, "d", false), ["e"]);
    w.op(0, mds_op::RMDIR, "d/e", Args::None).unwrap();
    assert_eq!(w.names(1, "d", false), [""; 0]);
    assert_eq!(w.op(1, mds_op::GETATTR, "d/e", Args::Mask(0)), Err(-2));
}

/// Two clients write one file in turn, and each knows what the other wrote.
#[test]
fn sizes_are_told_when_caps_are_taken() {
    let mut w = World::new(2);
    let ino = w.open(0, "f", open_flag::CREAT | open_flag::RDWR);
    w.write(0, ino, 10);
    assert_eq!(w.size(1, "f"), Ok(10), "the writer is asked");
    w.write(0, ino, 20);
    let same = w.open(1, "f", open_flag::RDWR);
    assert_eq!(same, ino);
    w.write(1, ino, 30);
    assert_eq!(w.size(0, "f"), Ok(30));
    w.write(0, ino, 40);
    w.flush(0, ino);
    w.flush(1, ino);
    assert_eq!(w.size(1, "f"), Ok(40));
    for n in [0, 1] {
        w.call(n, |c, _, out| c.forget(ino, open_flag::RDWR, out));
    }
    w.ticks(4);
    assert_eq!(w.size(0, "f"), Ok(40));
    assert!(w.clients.iter().all(|one| one.client.files.is_empty()));
}

/// A write far behind the end asks for room.
#[test]
fn room_is_asked_for() {
    let mut w = World::new(1);
    let ino = w.open(0, "f", open_flag::CREAT | open_flag::WRONLY);
    for end in [1 << 20, 64 << 20, 1 << 30] {
        w.write(0, ino, end);
    }
    w.flush(0, ino);
    assert_eq!(w.size(0, "f"), Ok(1 << 30));
}

/// What a client holds and wrote outlives its server.
#[test]
fn files_outlive_a_failover() {
    let mut w = World::new(2);
    let ino = w.open(0, "f", open_flag::CREAT | open_flag::WRONLY);
    w.write(0, ino, 10);
    w.failover();
    w.write(0, ino, 20);
    w.flush(0, ino);
    assert_eq!(w.size(1, "f"), Ok(20));
    // A request that the dead server never heard is sent to the next one.
    w.cut = Some(1);
    let tid = {
        let ask = Ask::new(mds_op::MKDIR, path_of(ROOT, b"d"), MODE);
        w.call(1, |c, now, out| c.request(now, ask, out))
    };
    w.cut = None;
    w.failover();
    w.ticks(4);
    assert!(w.clients[1].done.remove(&tid).expect("an answer").is_ok());
    assert_eq!(w.clients[0].client.lost(), 0);
}

/// The connection ends before the map tells of another server, as where the next process at a dead
/// server's address answers: what is held is held.
#[test]
fn a_session_outlives_its_connection() {
    let mut w = World::new(2);
    let ino = w.open(0, "f", open_flag::CREAT | open_flag::WRONLY);
    w.write(0, ino, 10);
    // The server hears nothing any more, also not by a connection made anew.
    w.cut = Some(0);
    w.call(0, |c, _, out| c.on_closed(0, out));
    for _ in 0..3 {
        w.now_ms += 300;
        w.call(0, Client::on_tick);
        w.call(0, |c, _, out| c.on_closed(0, out));
    }
    w.cut = None;
    w.failover();
    w.write(0, ino, 20);
    w.flush(0, ino);
    assert_eq!((w.size(1, "f"), w.clients[0].client.lost()), (Ok(20), 0));
}

/// A session that was recorded, and whose server died before it said so: the next one waits for
/// nobody.
#[test]
fn a_session_that_was_asked_for_comes_back() {
    let mut w = World::new(1);
    let ask = Ask::new(mds_op::MKDIR, path_of(ROOT, b"d"), MODE);
    let tid = w.call(0, |c, now, out| c.request(now, ask, out));
    assert!(w.clients[0].client.has_sessions() && !w.clients[0].done.contains_key(&tid));
    w.failover();
    w.ticks(4);
    assert!(w.clients[0].done.remove(&tid).expect("an answer").is_ok());
}

/// A client that its server has forgotten knows that what was open is gone, and goes on.
#[test]
fn a_forgotten_client_begins_anew() {
    let mut w = World::new(1);
    let ino = w.open(0, "f", open_flag::CREAT | open_flag::WRONLY);
    w.write(0, ino, 10);
    w.call(0, |c, _, out| c.on_closed(0, out));
    w.ticks(2);
    let stale = w.call(0, |c, _, out| c.may_write(ino, 20, out));
    assert_eq!(stale, Err(Errno(-116)));
    w.call(0, |c, _, out| c.forget(ino, open_flag::WRONLY, out));
    assert_eq!(w.size(0, "f"), Ok(0), "what was not flushed is lost");
    assert_eq!(w.open(0, "f", open_flag::WRONLY), ino);
    w.write(0, ino, 20);
}

/// What was written before a snapshot is in it, what was written after is not.
#[test]
fn snapshots_have_what_was_written_before() {
    let mut w = World::new(2);
    w.op(0, mds_op::MKDIR, "d", MODE).unwrap();
    let ino = w.open(0, "d/f", open_flag::CREAT | open_flag::WRONLY);
    w.write(0, ino, 10);
    assert_eq!(w.clients[0].client.snap_context(ino).1, []);
    let mut ask = Ask::new(mds_op::MKSNAP, path_of(ROOT, b"d/.snap/s"), MODE);
    ask.data = Bytes::from_static(b"\x01\x01\x04\0\0\0\0\0\0\0");
    w.ask(1, ask).unwrap();
    w.ticks(2);
    assert_eq!(w.clients[0].client.snap_context(ino).1.len(), 1, "writes keep the snapshot");
    w.write(0, ino, 30);
    w.flush(0, ino);
    assert_eq!(w.size(1, "d/f"), Ok(30));
    assert_eq!(w.size(1, "d/.snap/s/f"), Ok(10));
    assert_eq!(w.names(1, "d", true), ["s"]);
    assert_eq!(w.names(1, "d/.snap/s", false), ["f"]);
}

/// Each name comes once, also where the directory is divided meanwhile.
#[test]
fn a_listing_has_each_name_once() {
    let mut w = World::new(1);
    w.op(0, mds_op::MKDIR, "d", MODE).unwrap();
    for n in 0..200 {
        w.op(0, mds_op::MKDIR, &format!("d/{n}"), MODE).unwrap();
    }
    w.ticks(20);
    let dir = w.op(0, mds_op::GETATTR, "d", Args::Mask(0)).unwrap().answer.target.unwrap();
    assert!(!dir.fragtree.is_empty(), "the directory was divided");
    for page in [1, 7, 1024] {
        let mut listing = Listing::new(path_of(ROOT, b"d"), false).by(page);
        let mut names = Vec::new();
        while let Some(ask) = listing.next() {
            let reply = w.ask(0, ask).expect("a listing");
            names.extend(listing.take(reply).into_iter().map(|e| e.name));
        }
        let all = names.len();
        names.sort();
        names.dedup();
        assert_eq!((all, names.len()), (200, 200), "pages of {page}");
    }
}

/// Sessions end when they are asked to, also where something crossed the close.
#[test]
fn sessions_end() {
    let mut w = World::new(2);
    let ino = w.open(0, "f", open_flag::CREAT | open_flag::WRONLY);
    w.write(0, ino, 10);
    w.open(1, "f", open_flag::RDONLY);
    w.call(0, |c, _, out| c.forget(ino, open_flag::WRONLY, out));
    w.call(0, |c, _, out| c.close(out));
    w.ticks(4);
    assert!(!w.clients[0].client.has_sessions());
    assert_eq!(w.size(1, "f"), Ok(10));
}
