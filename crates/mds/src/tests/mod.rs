//! The whole server against objects in memory: a client's requests, and crashes between any two
//! writes of it. Fuzz targets use some of it.
#![cfg_attr(fuzzing, allow(missing_docs, dead_code, unused_imports, reason = "a world of tests"))]

#[cfg(test)]
mod charmap;
#[cfg(test)]
mod commands;
#[cfg(test)]
mod crash;
#[cfg(test)]
mod early;
#[cfg(test)]
mod frags;
#[cfg(test)]
mod kernel;
#[cfg(test)]
mod liars;
#[cfg(test)]
mod line;
#[cfg(test)]
mod memory;
pub mod proved;
#[cfg(test)]
mod replay;
#[cfg(test)]
mod scrub;
#[cfg(test)]
mod snaps;
#[cfg(test)]
mod takeover;
#[cfg(test)]
mod writeback;

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use env::{ConnId, Now};
use maps::{MdsInfo, MdsMap, MdsState};
use messages::fs::{
    Args, ClientCaps, ClientReconnect, ClientReply, ClientRequest, ClientSession, FilePath,
    OpenArgs, SetattrArgs, cap_op, mds_op, session_op,
};
use messages::{Envelope, Message};
use types::{
    Denc, EntityAddr, EntityId, EntityKind, EntityName, Epoch, Errno, Features, Ino, PoolId, UTime,
};

use crate::{Config, Effect, Io, IoAnswer, IoData, IoOp, Mds, Options, OsdNews, Outbox, Peer};

const META: PoolId = PoolId(1);
const DATA: PoolId = PoolId(2);
const GID: u64 = 4242;
const CLIENT: i64 = 77;

#[derive(Clone, Debug, Default, PartialEq)]
struct Object {
    data: Vec<u8>,
    header: Bytes,
    omap: BTreeMap<Bytes, Bytes>,
    xattrs: BTreeMap<String, Bytes>,
}

/// Objects by pool and name.
#[derive(Clone, Debug, Default)]
struct Pools {
    objects: BTreeMap<(PoolId, String), Object>,
}

impl Pools {
    fn run(&mut self, io: &Io) -> Result<IoAnswer, Errno> {
        let key = (io.pool, io.object.clone());
        let mut object = self.objects.get(&key).cloned();
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
                IoOp::TrimTruncate { size, .. } => {
                    o.data.truncate(*size as usize);
                    IoData::Done
                }
                IoOp::SetXattr(name, value) => {
                    o.xattrs.insert(name.clone(), value.clone());
                    IoData::Done
                }
                _ => IoData::Done,
            });
        }
        match object {
            Some(o) => drop(self.objects.insert(key, o)),
            None => drop(self.objects.remove(&key)),
        }
        Ok(IoAnswer(answers))
    }
}

/// A server, its pools, the map, and what a client heard.
struct World {
    mds: Mds,
    options: Options,
    pools: Pools,
    map: MdsMap,
    now_ms: u64,
    tid: u64,
    /// Writes that are let through; then the server is as good as dead.
    writes_left: Option<usize>,
    heard: VecDeque<(ConnId, Envelope)>,
    conns: u64,
    removed: Vec<BTreeMap<i32, Vec<types::SnapId>>>,
    closed: Vec<ConnId>,
    osd: OsdNews,
    /// The monitors take their time with what the server asks for.
    slow_map: bool,
    /// The server has said its last word.
    ended: bool,
    /// What commands were answered with: errno, sentence, output.
    said: Vec<(i32, String, Bytes)>,
    /// What the last beacon said is wrong.
    ills: Vec<String>,
    /// Lines of the cluster log.
    logged: Vec<String>,
    /// Objects are not read.
    deaf: bool,
    /// Reads of backtraces are kept here, and not answered.
    deaf_to: Option<Vec<Io>>,
    /// Writes to the journal are kept here, and not answered.
    journal: Option<VecDeque<Io>>,
    /// Writes to the tree, and of backtraces, are kept here, and not answered.
    tree: Option<VecDeque<Io>>,
    /// Clients that the server had blocklisted.
    blocklisted: usize,
}

fn options() -> Options {
    Options { writeback_ms: 1_000, ..Options::default() }
}

fn new_mds(options: Options) -> Mds {
    Mds::new(Config { name: "a".into(), gid: GID, options })
}

fn peer(client: i64) -> Peer {
    Peer {
        name: EntityName::new(EntityKind::CLIENT, "admin"),
        id: EntityId::new(EntityKind::CLIENT, client),
        caps: auth::MdsCap::allow_all(),
        addr: EntityAddr::default(),
        features: Features::ALL,
    }
}

impl World {
    /// A new file system, with a client's session.
    fn new() -> Self {
        let mut map = MdsMap {
            metadata_pool: META,
            data_pools: vec![DATA],
            fs_name: "cephfs".into(),
            session_timeout: 60,
            session_autoclose: 300,
            max_file_size: 1 << 40,
            max_xattr_size: 65_536,
            flags: maps::mds_flag::ALLOW_SNAPS,
            ..MdsMap::default()
        };
        map.mds_info.insert(GID, MdsInfo { gid: GID, rank: 0, ..MdsInfo::default() });
        let pools = [(META, "meta".to_owned()), (DATA, "data".to_owned())].into();
        let snap_seqs = [(DATA, types::SnapId(0))].into();
        let osd = OsdNews { epoch: Epoch(5), pools, snap_seqs, ..OsdNews::default() };
        let mut world = Self {
            mds: new_mds(options()),
            options: options(),
            pools: Pools::default(),
            map,
            now_ms: 1_000,
            tid: 0,
            writes_left: None,
            heard: VecDeque::new(),
            conns: 0,
            removed: Vec::new(),
            closed: Vec::new(),
            osd,
            slow_map: false,
            ended: false,
            said: Vec::new(),
            ills: Vec::new(),
            logged: Vec::new(),
            deaf: false,
            deaf_to: None,
            journal: None,
            tree: None,
            blocklisted: 0,
        };
        world.begin(MdsState::CREATING);
        assert_eq!(world.state(), MdsState::ACTIVE);
        world.open(CLIENT);
        world
    }

    fn state(&self) -> MdsState {
        self.map.mds_info[&GID].state
    }

    fn now(&self) -> Now {
        Now {
            mono_ns: self.now_ms * 1_000_000,
            wall_ns: (1_700_000_000_000 + self.now_ms) * 1_000_000,
        }
    }

    fn call(&mut self, event: impl FnOnce(&mut Mds, Now, &mut Outbox)) {
        let mut out = Outbox::new();
        let now = self.now();
        event(&mut self.mds, now, &mut out);
        let mut effects: VecDeque<Effect> = out.drain().collect();
        while let Some(effect) = effects.pop_front() {
            let now = self.now();
            match effect {
                Effect::Send(conn, envelope) => self.heard.push_back((conn, envelope)),
                Effect::Beacon(beacon) => {
                    let ills = beacon.health.metrics.iter();
                    self.ills = ills.map(|m| format!("{} {}", m.kind, m.message)).collect();
                    self.mds.on_beacon_ack(now, beacon.seq, &mut out);
                    let info = self.map.mds_info.get_mut(&GID).expect("it is in the map");
                    assert_ne!(beacon.state, MdsState::DAMAGED);
                    let asked = [
                        MdsState::RECONNECT,
                        MdsState::REJOIN,
                        MdsState::CLIENTREPLAY,
                        MdsState::ACTIVE,
                        MdsState::STOPPED,
                    ];
                    self.ended |= beacon.state == MdsState::DNE;
                    let is_new = beacon.state != info.state && !self.slow_map;
                    if asked.contains(&beacon.state) && is_new {
                        info.state = beacon.state;
                        self.map.epoch.0 += 1;
                        let map = self.map.clone();
                        self.mds.on_map(now, &map, &mut out);
                    }
                }
                Effect::Io(io) => {
                    if io.ops.iter().any(IoOp::is_write)
                        && let Some(left) = &mut self.writes_left
                    {
                        if *left == 0 {
                            continue; // the server is dead: nobody answers
                        }
                        *left -= 1;
                    }
                    if self.deaf {
                        continue;
                    }
                    if let Some(kept) = &mut self.journal
                        && io.object.starts_with("argo.journal.")
                    {
                        kept.push_back(io);
                        continue;
                    }
                    if let Some(kept) = &mut self.tree
                        && io.ops.iter().any(writes_tree)
                    {
                        kept.push_back(io);
                        continue;
                    }
                    if let Some(kept) = &mut self.deaf_to
                        && matches!(io.ops[..], [IoOp::GetXattr(_)])
                    {
                        kept.push(io);
                        continue;
                    }
                    let answer = self.pools.run(&io);
                    self.mds.on_done(now, io.id, answer, &mut out);
                }
                Effect::Blocklist { id, .. } => {
                    self.blocklisted += 1;
                    self.mds.on_done(now, id, Ok(IoAnswer::default()), &mut out);
                }
                Effect::RemoveSnaps(snaps) => self.removed.push(snaps),
                Effect::ClusterLog { severity, text } => {
                    self.logged.push(format!("{severity:?} {text}"));
                }
                Effect::Respawn { why } => panic!("the server gives up: {why}"),
                Effect::Close(conn) => self.closed.push(conn),
                Effect::Answer { r, rs, output, .. } => self.said.push((r, rs, output)),
                _ => {}
            }
            effects.extend(out.drain());
        }
    }

    /// A server that gets the rank in this state.
    fn begin(&mut self, state: MdsState) {
        self.map.epoch.0 += 1;
        self.map.mds_info.get_mut(&GID).expect("it is in the map").state = state;
        let (map, osd) = (self.map.clone(), self.osd.clone());
        self.call(|m, now, out| m.on_start(now, out));
        self.call(|m, now, out| m.on_osd_map(now, &osd, out));
        self.call(|m, now, out| m.on_map(now, &map, out));
        self.ticks(4);
    }

    fn ticks(&mut self, n: usize) {
        for _ in 0..n {
            self.now_ms += 300;
            self.call(|m, now, out| m.on_tick(now, out));
        }
    }

    fn conn(&self) -> ConnId {
        ConnId(self.conns)
    }

    fn message<M: Message>(&mut self, client: i64, message: &M, tid: u64) {
        let envelope = Envelope { tid, ..message.envelope(Features::ALL) };
        let conn = self.conn();
        self.call(|m, now, out| m.on_message(now, conn, &peer(client), envelope, out));
    }

    fn open(&mut self, client: i64) {
        self.open_with(client, maps::FeatureBits::default());
    }

    /// A session of a client that knows these features.
    fn open_with(&mut self, client: i64, features: maps::FeatureBits) {
        self.conns += 1;
        let detail = messages::fs::SessionDetail { features, ..Default::default() };
        let open = ClientSession {
            op: session_op::REQUEST_OPEN,
            detail: Some(Box::new(detail)),
            ..ClientSession::default()
        };
        self.message(client, &open, 0);
    }

    /// The server dies and another takes over; the client comes back.
    fn restart(&mut self) {
        self.writes_left = None;
        self.heard.clear();
        self.mds = new_mds(self.options.clone());
        self.begin(MdsState::REPLAY);
        assert_eq!(self.state(), MdsState::RECONNECT, "after replay");
        self.conns += 1;
        self.message(CLIENT, &ClientReconnect::default(), 0);
        self.ticks(8);
        assert_eq!(self.state(), MdsState::ACTIVE, "after reconnect");
    }

    /// The next write to the journal is done. `false` where there is none.
    fn write_journal(&mut self) -> bool {
        let Some(io) = self.journal.as_mut().and_then(VecDeque::pop_front) else { return false };
        let answer = self.pools.run(&io);
        self.call(|m, now, out| m.on_done(now, io.id, answer, out));
        true
    }

    /// All writes to the tree that are on their way are done, and those that follow them.
    fn write_tree(&mut self) {
        while let Some(io) = self.tree.as_mut().and_then(VecDeque::pop_front) {
            let answer = self.pools.run(&io);
            self.call(|m, now, out| m.on_done(now, io.id, answer, out));
        }
    }

    /// Sends a request; what came as answer when it is safe, none when the server is dead.
    fn ask(&mut self, m: &ClientRequest) -> Option<ClientReply> {
        self.tid += 1;
        let tid = self.tid;
        let m = ClientRequest { stamp: UTime::from_nanos(self.now().wall_ns), ..m.clone() };
        self.message(CLIENT, &m, tid);
        let mut early = None;
        for _ in 0..4 {
            self.ticks(1);
            let heard = std::mem::take(&mut self.heard);
            for (_, e) in heard.iter().filter(|(_, e)| e.kind == ClientCaps::KIND) {
                self.give_back(&ClientCaps::decode(e).expect("caps"));
            }
            let is_it = |(_, e): &&(ConnId, Envelope)| e.kind == ClientReply::KIND && e.tid == tid;
            for (_, e) in heard.iter().filter(is_it) {
                let reply = ClientReply::decode(e).expect("an answer");
                if reply.safe {
                    return Some(early.unwrap_or(reply));
                }
                early = Some(reply);
            }
        }
        None
    }

    /// Gives back what is taken.
    fn give_back(&mut self, m: &ClientCaps) {
        if m.op != cap_op::REVOKE {
            return;
        }
        let (ino, cap_id, seq, caps) = (m.ino, m.cap_id, m.seq, m.caps);
        let m = ClientCaps { op: cap_op::UPDATE, ino, cap_id, seq, caps, ..ClientCaps::default() };
        self.message(CLIENT, &m, 0);
    }

    fn op(&mut self, op: u32, ino: u64, path: &str, args: &Args) -> Option<ClientReply> {
        self.ask(&request(op, ino, path, args))
    }

    fn done(&mut self, op: u32, ino: u64, path: &str, args: &Args) -> ClientReply {
        let reply = self.op(op, ino, path, args).expect("an answer");
        assert_eq!(reply.result, 0, "{op:#x} of {path}");
        reply
    }

    fn mkdir(&mut self, path: &str) -> Ino {
        target(&self.done(mds_op::MKDIR, 1, path, &Args::Mode(0o755)))
    }

    fn create(&mut self, path: &str) -> Ino {
        let args = OpenArgs { flags: 0o101, mode: 0o644, pool: -1, ..OpenArgs::default() };
        target(&self.done(mds_op::CREATE, 1, path, &Args::Open(args)))
    }

    fn two(&mut self, op: u32, path: &str, path2: &str) -> ClientReply {
        let mut m = request(op, 1, path, &Args::None);
        m.path2 = FilePath { ino: Ino(1), path: Bytes::copy_from_slice(path2.as_bytes()) };
        let reply = self.ask(&m).expect("an answer");
        assert_eq!(reply.result, 0, "{op:#x} of {path} {path2}");
        reply
    }

    fn chmod(&mut self, path: &str, mode: u32) {
        let args = SetattrArgs { mode, mask: SetattrArgs::MODE, ..SetattrArgs::default() };
        self.done(mds_op::SETATTR, 1, path, &Args::Setattr(args));
    }

    /// Mode and size of what a path leads to; the errno otherwise.
    fn stat(&mut self, path: &str) -> Result<(u32, u64), i32> {
        let reply = self.op(mds_op::GETATTR, 1, path, &Args::Mask(0)).expect("an answer");
        match reply.target {
            Some(stat) if reply.result == 0 => Ok((stat.mode, stat.size.size)),
            _ => Err(reply.result),
        }
    }

    fn names(&mut self, op: u32, path: &str) -> Vec<String> {
        let reply = self.done(op, 1, path, &Args::Readdir(messages::fs::ReaddirArgs::default()));
        let listing = messages::fs::DirListing::from_shared(&reply.extra).expect("a listing");
        let text = |e: &messages::fs::DirEntry| String::from_utf8_lossy(&e.name).into_owned();
        let mut names: Vec<String> = listing.entries.iter().map(text).collect();
        names.sort();
        names
    }
}

fn writes_tree(op: &IoOp) -> bool {
    matches!(op, IoOp::OmapSetHeader(_) | IoOp::OmapSet(_) | IoOp::SetXattr(..))
}

fn request(op: u32, ino: u64, path: &str, args: &Args) -> ClientRequest {
    ClientRequest {
        op,
        args: args.to_raw(),
        path: FilePath { ino: Ino(ino), path: Bytes::copy_from_slice(path.as_bytes()) },
        ..ClientRequest::default()
    }
}

fn target(reply: &ClientReply) -> Ino {
    reply.target.as_ref().expect("an inode").ino
}
