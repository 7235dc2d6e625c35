//! From a rank to a server that serves it: a new tree, or what is on disk and in the journal.
//!
//! | stage | what happens | then |
//! |---|---|---|
//! | fence | the map of OSDs that blocklists the predecessor is awaited | create or probe |
//! | create | a new tree is written | active |
//! | probe | tables, root, both journals' heads are read | read, or take over |
//! | read | records are read, object by object | fragments |
//! | fragments | what records change is read | write back |
//! | write back | the changes are applied and written | take over |
//! | take over | our journal begins behind the last object | reconnect, or active |

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use maps::MdsState;
use maps::fs::{
    DentryKey, DentryLink, DentryValue, DirFrag, Fnode, Frag, InodeStore, JournalEntry,
    JournalHeader, JournalPointer, LogEvent, OpenFilesHeader, SessionInfo, SessionMapHeader,
    SnapRealm, SystemInode, inos, object_name, system_inode_object,
};
use messages::fs::CapReconnect;
use striper::FileLayout;
use types::{Denc, Errno, Features, Ino, SnapId};

use crate::flock::CLIENT_LOCKS_MAX;
use crate::journal::{self, Head, Journal, MAGIC};
use crate::rank::{Job, Rank};
use crate::record::{Change, Record};
use crate::replay::Replays;
use crate::request::Later;
use crate::session;
use crate::tables::{
    SNAPTABLE_OBJECT, Tables, inotable_object, openfiles_object, sessionmap_object,
};
use crate::tree::{Node, Txn};
use crate::{Effect, IoAnswer, IoData, IoOp};

/// The stream format that no reader of the peer knows.
const FOREIGN_FORMAT: u8 = 127;
/// Entries that one read of a fragment or the session map asks for.
const KEYS_MAX: u64 = 1 << 20;

/// How far it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Stage {
    #[default]
    Idle,
    Fence,
    Create,
    Probe,
    Stock,
    Read,
    Fragments,
    WriteBack,
    TakeOver,
    /// The tree can be served.
    Ready,
    Stopping,
    Stopped,
}

/// A fragment as it is read for the journal's changes.
#[derive(Debug, Default)]
struct Raw {
    fnode: Option<Fnode>,
    entries: BTreeMap<Bytes, Bytes>,
    /// Keys that changes touched.
    touched: BTreeSet<Bytes>,
    gone: bool,
    /// Its entries went elsewhere; what it has are later ones.
    cleared: bool,
    fresh: bool,
    /// Something of it is to be written.
    changed: bool,
}

/// What is under way until the rank is active, and when it stops.
#[derive(Debug, Default)]
pub(crate) struct Boot {
    pub stage: Stage,
    begun: MdsState,
    left: usize,
    results: BTreeMap<String, Result<IoAnswer, Errno>>,
    head: Option<Head>,
    records: Vec<Record>,
    objects: VecDeque<(u64, u32, u64)>,
    sum: u32,
    next_object: u64,
    raw: BTreeMap<DirFrag, Raw>,
    sessions: BTreeMap<i64, SessionInfo>,
    /// Caps of clients by inodes that are not in memory yet.
    pub reconnects: BTreeMap<Ino, Vec<(i64, CapReconnect)>>,
    pub replays: Replays,
    stop_step: u32,
    /// It stops with the sessions left as they are.
    leaves: bool,
}

impl Boot {
    pub fn is_done(&self) -> bool {
        matches!(self.stage, Stage::Ready | Stage::Stopping)
    }

    pub fn is_stopping(&self) -> bool {
        matches!(self.stage, Stage::Stopping | Stage::Stopped)
    }

    /// Whether it stops and has ended no session: nothing that clients say is taken any more.
    pub fn is_leaving(&self) -> bool {
        self.leaves
    }

    /// Whether everything is in the tree, and the journal is being given up.
    pub fn is_ending(&self) -> bool {
        self.stop_step > 0
    }
}

impl Rank {
    /// The map gives this server the rank, in a state from which it has to begin.
    pub fn begin(&mut self, state: MdsState) {
        if self.boot.stage != Stage::Idle {
            return;
        }
        self.boot.begun = state;
        self.boot.stage = Stage::Fence;
        let fence = self.world.map.last_failure_osd_epoch;
        if self.world.osd.epoch < fence {
            self.fx.push(Effect::WantOsdMap(fence));
        }
        self.boot_tick();
    }

    pub fn boot_tick(&mut self) {
        let fenced = self.world.osd.epoch >= self.world.map.last_failure_osd_epoch;
        if self.boot.stage == Stage::Fence && fenced {
            match self.boot.begun {
                MdsState::CREATING => self.create(),
                _ => self.probe(),
            }
        }
    }

    fn boot_io(&mut self, tag: impl Into<String>, object: String, ops: Vec<IoOp>) {
        self.boot.left += 1;
        self.meta_io(object, ops, Job::Boot(tag.into()));
    }

    pub fn boot_done(&mut self, tag: String, result: Result<IoAnswer, Errno>) {
        self.boot.results.insert(tag, result);
        self.boot.left -= 1;
        if self.boot.left > 0 {
            return;
        }
        let results = std::mem::take(&mut self.boot.results);
        let next = match self.boot.stage {
            Stage::Create => self.wrote(&results).map(|()| self.take_over()),
            Stage::Probe => self.probed(&results),
            Stage::Stock => self.stock_read(&results),
            Stage::Read => self.journal_read(&results),
            Stage::Fragments => self.fragments_read(&results),
            Stage::WriteBack => self.wrote(&results).map(|()| self.installed()),
            Stage::TakeOver => self.wrote(&results).map(|()| self.ready()),
            _ => Ok(()),
        };
        if let Err(why) = next {
            self.damaged(why);
        }
    }

    fn wrote(&self, results: &BTreeMap<String, Result<IoAnswer, Errno>>) -> Result<(), String> {
        match results.iter().find_map(|(tag, r)| r.as_ref().err().map(|e| (tag, e))) {
            Some((tag, e)) => Err(format!("{tag} cannot be written: {e:?}")),
            None => Ok(()),
        }
    }

    // A new tree.

    fn create(&mut self) {
        self.boot.stage = Stage::Create;
        let rank = self.id as u64;
        let mut txn = Txn::at(self.world.time());
        let system = |ino: Ino, mode: u32, layout: FileLayout| {
            let mut store = InodeStore::default();
            let i = &mut store.inode;
            (i.ino, i.mode, i.nlink, i.layout) = (ino, mode, 1, layout);
            let t = txn.time;
            (i.times.ctime, i.times.mtime, i.times.btime) = (t, t, t);
            i.dir.hash = maps::fs::dir_hash::RJENKINS;
            i.dir.rstat.rsubdirs = 1;
            i.dir.rstat.rctime = t;
            i.dir.accounted_rstat = i.dir.rstat;
            i.versions.version = 1;
            i.versions.xattr = 1;
            i.file.inline.version = 1;
            store
        };
        let realm =
            SnapRealm { seq: SnapId(1), current_parent_since: SnapId(1), ..SnapRealm::default() };
        let mut bases = vec![(inos::mds_dir(rank), 0o040_500, FileLayout::default())];
        if rank == 0 {
            bases.push((inos::ROOT, 0o040_755, FileLayout::plain(self.world.data())));
        }
        let strays: Vec<InodeStore> = (0..inos::STRAYS)
            .map(|i| system(inos::stray(rank, i), 0o040_500, FileLayout::default()))
            .collect();
        let bases: Vec<InodeStore> = bases
            .into_iter()
            .map(|(ino, mode, layout)| {
                let mut store = system(ino, mode, layout);
                store.snap_realm = realm.to_bytes();
                store
            })
            .collect();
        for store in bases {
            let ino = store.inode.ino;
            self.tree.nodes.insert(ino, Box::new(Node::new(store, None)));
            self.tree.begin_dir(&mut txn, ino);
        }
        for (i, store) in strays.into_iter().enumerate() {
            let ino = store.inode.ino;
            let name = Bytes::from(format!("stray{i}"));
            let dir = inos::mds_dir(rank);
            self.tree.link(&mut txn, dir, &name, Node::new(store, None), Bytes::new());
            self.tree.begin_dir(&mut txn, ino);
        }
        self.tree.settle_all(&mut txn);
        self.tables = Tables::fresh(rank);
        for (object, ops) in self.first_writes() {
            self.boot_io(object.clone(), object, ops);
        }
        for node in self.tree.nodes.values_mut() {
            for fragment in node.frags.values_mut() {
                fragment.fresh = false;
            }
        }
        let meta = self.world.meta();
        let id = self.id;
        let pointer = JournalPointer { front: inos::journal(rank).0, back: 0 };
        let whole = |bytes: Bytes| vec![IoOp::WriteFull(bytes)];
        let purge = object_name(inos::purge_queue(rank), 0);
        let mut writes = vec![
            (object_name(inos::journal_pointer(rank), 0), whole(pointer.to_bytes())),
            (purge, whole(JournalHeader::empty(meta).to_bytes())),
            (inotable_object(id), whole(self.tables.inos.to_bytes())),
            (sessionmap_object(id), empty_omap(self.tables.sessions_header())),
            (openfiles_object(id), empty_omap(OpenFilesHeader::default().to_bytes())),
        ];
        if rank == 0 {
            writes.push((SNAPTABLE_OBJECT.to_owned(), whole(self.tables.snaps.to_bytes())));
        }
        for (object, ops) in writes {
            self.boot_io(object.clone(), object, ops);
        }
    }

    // What is on disk.

    fn probe(&mut self) {
        self.boot.stage = Stage::Probe;
        let (id, rank) = (self.id, self.id as u64);
        let whole = || vec![IoOp::Read { off: 0, len: 0 }];
        self.boot_io("inotable", inotable_object(id), whole());
        let omap = vec![IoOp::OmapHeader, IoOp::OmapRange { after: Bytes::new(), max: KEYS_MAX }];
        self.boot_io("sessions", sessionmap_object(id), omap);
        self.boot_io("snaps", SNAPTABLE_OBJECT.to_owned(), whole());
        self.boot_io("mdsdir", system_inode_object(inos::mds_dir(rank)), whole());
        self.boot_io("root", system_inode_object(inos::ROOT), whole());
        self.boot_io("header", object_name(inos::journal(rank), 0), whole());
        self.boot_io("head", journal::head_object(id), whole());
    }

    fn probed(
        &mut self,
        results: &BTreeMap<String, Result<IoAnswer, Errno>>,
    ) -> Result<(), String> {
        let read = |tag: &str| bytes_of(results, tag);
        let text = |tag: &'static str| move |e: types::DecodeError| format!("{tag}: {e}");
        self.tables.inos = Denc::from_shared(&read("inotable")?).map_err(text("inotable"))?;
        self.tables.snaps = Denc::from_shared(&read("snaps")?).map_err(text("snaptable"))?;
        for (tag, ino) in [("mdsdir", inos::mds_dir(self.id as u64)), ("root", inos::ROOT)] {
            let inode = SystemInode::from_shared(&read(tag)?).map_err(text("inode"))?;
            self.tree.nodes.insert(ino, Box::new(Node::new(inode.0, None)));
        }
        match results["sessions"].as_ref().map(|a| &a.0[..]) {
            Ok([IoData::Bytes(header), IoData::Omap { pairs, .. }]) => {
                let header = SessionMapHeader::from_shared(header).map_err(text("sessionmap"))?;
                self.tables.sessions = header.version;
                for value in pairs.values() {
                    let info = SessionInfo::from_shared(value).map_err(text("session"))?;
                    // Until it turns out that it lasts, its key is one to remove.
                    self.sessions.ended.insert(info.inst.name.num);
                    self.boot.sessions.insert(info.inst.name.num, info);
                }
            }
            other => return Err(format!("the map of sessions cannot be read: {other:?}")),
        }
        self.know_snaps();
        let header =
            JournalHeader::from_shared(&read("header")?).map_err(text("journal header"))?;
        if &header.magic[..] == MAGIC.as_bytes() {
            let head = Head::from_shared(&read("head")?).map_err(text("journal head"))?;
            self.boot.head = Some(head);
            self.boot.sum = head.sum;
            self.boot.next_object = head.first;
            self.read_on();
            return Ok(());
        }
        // The journal is the peer's: nothing may be in it that matters.
        self.boot.stage = Stage::Stock;
        let (from, to) = (header.expire_pos, header.write_pos);
        let unit = maps::fs::STREAM_START;
        if to < from || to - from > 16 * unit {
            return Err("the peer's journal is not clean: run `ceph fs set NAME down true` there"
                .to_owned());
        }
        self.boot.results.insert("header".to_owned(), results["header"].clone());
        let journal = inos::journal(self.id as u64);
        for n in from / unit..=to / unit {
            self.boot_io(
                format!("o{n}"),
                object_name(journal, n),
                vec![IoOp::Read { off: 0, len: 0 }],
            );
        }
        Ok(())
    }

    fn stock_read(
        &mut self,
        results: &BTreeMap<String, Result<IoAnswer, Errno>>,
    ) -> Result<(), String> {
        let header = bytes_of(results, "header")?;
        let header = JournalHeader::from_shared(&header).map_err(|e| e.to_string())?;
        let unit = maps::fs::STREAM_START;
        let refuse = |why: &str| {
            Err(format!("the peer's journal {why}: run `ceph fs set NAME down true` there"))
        };
        let mut stream = Vec::new();
        for n in header.expire_pos / unit..=header.write_pos / unit {
            match bytes_of(results, &format!("o{n}")) {
                Ok(bytes) => {
                    stream.resize(stream.len().next_multiple_of(unit as usize), 0);
                    stream.extend_from_slice(&bytes);
                }
                Err(_) => break,
            }
        }
        let mut at = header.expire_pos;
        let base = header.expire_pos / unit * unit;
        let starting = self.boot.begun == MdsState::STARTING;
        while !starting && at < header.write_pos {
            let Some(rest) = stream.get((at - base) as usize..) else { return refuse("has a gap") };
            let mut r = denc::Reader::new(rest);
            let Ok(entry) = JournalEntry::decode(&mut r) else { return refuse("has a gap") };
            let Ok(event) = LogEvent::from_shared(&entry.payload) else {
                return refuse("has an event that cannot be read");
            };
            if !event.kind.is_harmless() || entry.start != at {
                return refuse(&format!("has an event of kind {}", event.kind.0));
            }
            at += entry.size();
        }
        self.boot.records.clear();
        self.installed();
        Ok(())
    }

    fn read_on(&mut self) {
        self.boot.stage = Stage::Read;
        let first = self.boot.next_object;
        for n in first..first + 4 {
            let object = journal::data_object(self.id, n);
            self.boot_io(format!("j{n:016x}"), object, vec![IoOp::Read { off: 0, len: 0 }]);
        }
    }

    fn journal_read(
        &mut self,
        results: &BTreeMap<String, Result<IoAnswer, Errno>>,
    ) -> Result<(), String> {
        for result in results.values() {
            match result.as_ref().map(|a| &a.0[..]) {
                Ok([IoData::Bytes(data)]) => {
                    let (records, sum, whole) = journal::read_object(data, self.boot.sum);
                    if !whole {
                        return Err(format!(
                            "journal object {:x} is broken",
                            self.boot.next_object
                        ));
                    }
                    let (n, before) = (self.boot.next_object, self.boot.sum);
                    self.boot.objects.push_back((n, before, data.len() as u64));
                    self.boot.sum = sum;
                    self.boot.records.extend(records);
                    self.boot.next_object += 1;
                }
                Ok(other) => return Err(format!("the journal answers {other:?}")),
                Err(e) if *e == Errno::NOENT => {
                    self.touched_fragments();
                    return Ok(());
                }
                Err(e) => return Err(format!("the journal cannot be read: {e:?}")),
            }
        }
        self.read_on();
        Ok(())
    }

    fn touched_fragments(&mut self) {
        self.boot.stage = Stage::Fragments;
        for change in self.boot.records.iter().flat_map(|r| &r.changes) {
            if let Change::Frag { dir, .. } | Change::Gone(dir) | Change::Cleared(dir) = change {
                self.boot.raw.entry(*dir).or_default();
            }
        }
        let dirs: Vec<DirFrag> = self.boot.raw.keys().copied().collect();
        for dir in &dirs {
            let ops =
                vec![IoOp::OmapHeader, IoOp::OmapRange { after: Bytes::new(), max: KEYS_MAX }];
            let tag = format!("{:016x}.{:08x}", dir.ino.0, dir.frag.raw());
            self.boot_io(tag, object_name(dir.ino, dir.frag.raw().into()), ops);
        }
        if dirs.is_empty()
            && let Err(why) = self.fragments_read(&BTreeMap::new())
        {
            self.damaged(why);
        }
    }

    fn fragments_read(
        &mut self,
        results: &BTreeMap<String, Result<IoAnswer, Errno>>,
    ) -> Result<(), String> {
        for (dir, raw) in &mut self.boot.raw {
            let tag = format!("{:016x}.{:08x}", dir.ino.0, dir.frag.raw());
            match results.get(&tag).map(|r| r.as_ref().map(|a| &a.0[..])) {
                Some(Ok([IoData::Bytes(header), IoData::Omap { pairs, .. }])) => {
                    if !header.is_empty() {
                        raw.fnode =
                            Some(Fnode::from_bytes(header).map_err(|e| format!("{dir}: {e}"))?);
                    }
                    raw.entries.clone_from(pairs);
                }
                Some(Err(e)) if *e == Errno::NOENT => {}
                other => return Err(format!("directory {dir} cannot be read: {other:?}")),
            }
        }
        let records = std::mem::take(&mut self.boot.records);
        for record in &records {
            for change in &record.changes {
                self.apply(change);
            }
        }
        self.boot.records = records;
        // Everything goes to the tree before anything is served.
        self.boot.stage = Stage::WriteBack;
        let raw = std::mem::take(&mut self.boot.raw);
        for (dir, raw) in &raw {
            let object = object_name(dir.ino, dir.frag.raw().into());
            if raw.gone {
                self.boot_io(
                    format!("{dir}"),
                    object,
                    vec![IoOp::Create { exclusive: false }, IoOp::Remove],
                );
                continue;
            }
            let Some(fnode) = raw.fnode else {
                if raw.cleared {
                    let create = IoOp::Create { exclusive: false };
                    let end = if dir.frag == Frag::ROOT { IoOp::OmapClear } else { IoOp::Remove };
                    self.boot_io(format!("{dir}"), object, vec![create, end]);
                }
                continue;
            };
            for (key, value) in &raw.entries {
                self.hint(*dir, key, value);
            }
            if !raw.changed {
                continue;
            }
            let (mut sets, mut removes) = (Vec::new(), Vec::new());
            for key in &raw.touched {
                match raw.entries.get(key) {
                    Some(value) => sets.push((key.clone(), value.clone())),
                    None => removes.push(key.clone()),
                }
            }
            let mut ops = Vec::new();
            if raw.fresh {
                ops.push(IoOp::Create { exclusive: false });
            }
            if raw.cleared {
                ops.push(IoOp::OmapClear);
            }
            if !removes.is_empty() {
                ops.push(IoOp::OmapRemove(removes));
            }
            if !sets.is_empty() {
                ops.push(IoOp::OmapSet(sets));
            }
            ops.push(IoOp::OmapSetHeader(fnode.to_bytes()));
            self.boot_io(format!("{dir}"), object, ops);
        }
        for ino in [inos::ROOT, inos::mds_dir(self.id as u64)] {
            let ops = vec![IoOp::WriteFull(self.tree.system_inode(ino))];
            self.boot_io(format!("{ino}"), system_inode_object(ino), ops);
        }
        Ok(())
    }

    /// Where inodes are whose backtrace may be older.
    fn hint(&mut self, dir: DirFrag, key: &Bytes, value: &Bytes) {
        let Some(parsed) = DentryKey::parse(key).filter(|k| k.last == SnapId::HEAD) else { return };
        let Ok(value) = DentryValue::from_shared(value) else { return };
        if let DentryLink::Primary(store) = value.link {
            self.waiting.hints.insert(store.inode.ino, (dir.ino, parsed.name));
        }
    }

    fn apply(&mut self, change: &Change) {
        match change {
            Change::Frag { dir, fresh, fnode, set, removed } => {
                let raw = self.boot.raw.entry(*dir).or_default();
                if *fresh && raw.fnode.is_none() {
                    raw.fresh = true;
                    raw.fnode = Some(Fnode::default());
                }
                let Some(at) = &mut raw.fnode else {
                    // It was removed later, and that is recorded or about to be.
                    return;
                };
                if fnode.version <= at.version {
                    return;
                }
                *at = **fnode;
                for (key, value) in set {
                    raw.entries.insert(key.clone(), value.clone());
                    raw.touched.insert(key.clone());
                }
                for key in removed {
                    raw.entries.remove(key);
                    raw.touched.insert(key.clone());
                }
                raw.changed = true;
            }
            Change::Gone(dir) => {
                let raw = self.boot.raw.entry(*dir).or_default();
                *raw = Raw { gone: true, ..Raw::default() };
            }
            Change::Cleared(dir) => {
                let raw = self.boot.raw.entry(*dir).or_default();
                *raw = Raw { cleared: true, ..Raw::default() };
            }
            Change::System { ino, version, inode } => {
                if let Ok(SystemInode(store)) = SystemInode::from_shared(inode)
                    && let Some(node) = self.tree.nodes.get_mut(ino)
                    && *version > node.store.inode.versions.version
                {
                    node.store = store;
                }
            }
            other => session::replay(other, &mut self.boot.sessions, &mut self.tables),
        }
    }

    /// The tree on disk is whole. What is left of the journal is kept until backtraces are, too.
    fn installed(&mut self) {
        self.know_snaps();
        let records = std::mem::take(&mut self.boot.records);
        let seq = records.last().map_or(0, |r| r.seq);
        let last = self.boot.next_object.saturating_sub(1);
        let objects = std::mem::take(&mut self.boot.objects);
        self.journal = Journal::resume(seq, last, self.boot.sum, objects);
        // Inodes that records name, and that are where records say, get their backtraces.
        let mut named = BTreeSet::new();
        for change in records.iter().flat_map(|r| &r.changes) {
            let Change::Frag { set, .. } = change else { continue };
            for (_, value) in set {
                if let Ok(DentryValue { link: DentryLink::Primary(store), .. }) =
                    DentryValue::from_shared(value)
                {
                    named.insert(store.inode.ino);
                }
            }
        }
        for ino in named {
            if self.waiting.hints.contains_key(&ino) {
                self.waiting.rejoining.insert(ino);
                self.boot.reconnects.entry(ino).or_default();
            }
        }
        let sessions = std::mem::take(&mut self.boot.sessions);
        for (client, info) in sessions {
            self.sessions.ended.remove(&client);
            let peer = crate::Peer {
                name: info.auth_name.clone(),
                id: info.inst.name,
                caps: auth::MdsCap::default(),
                addr: info.inst.addr,
                features: Features::ALL,
            };
            let awaited = session::Session::new(peer, None, info, self.world.ms());
            let awaited = session::Session { awaited: true, ..awaited };
            self.sessions.by_client.insert(client, awaited);
        }
        self.take_over();
        self.tables.dirty_since = Some(self.journal.span().0);
    }

    /// From here on the journal is ours, and the peer's servers refuse the rank.
    fn take_over(&mut self) {
        self.boot.stage = Stage::TakeOver;
        if self.boot.head.is_none() {
            // Objects of an earlier journal may be left: none of them is taken for one of this.
            let (number, sum) = (self.world.now.wall_ns / 1_000_000, self.world.now.wall_ns as u32);
            self.journal = Journal::resume(0, number, sum, VecDeque::new());
            self.boot.sum = sum;
        }
        let rank = self.id as u64;
        let mut header = JournalHeader::empty(self.world.meta());
        header.magic = MAGIC.into();
        header.stream_format = FOREIGN_FORMAT;
        // It is written in any case: what follows may be of a newer version than what is there.
        let new = Head { first: self.journal.span().0, sum: self.boot.sum };
        let head = self.boot.head.unwrap_or(new);
        let ops = vec![IoOp::WriteFull(head.to_bytes())];
        self.boot_io("head", journal::head_object(self.id), ops);
        let object = object_name(inos::journal(rank), 0);
        self.boot_io("header", object, vec![IoOp::WriteFull(header.to_bytes())]);
    }

    fn ready(&mut self) {
        self.boot.stage = Stage::Ready;
        self.wish = Some(match self.boot.begun {
            MdsState::REPLAY => MdsState::RECONNECT,
            _ => MdsState::ACTIVE,
        });
        for ino in self.waiting.rejoining.clone() {
            self.open_ino(ino, 0);
        }
        let replayed: Vec<Ino> = self.tree.nodes.keys().copied().collect();
        self.find_cuts(replayed);
        let state = self.state();
        self.entered(state);
    }

    /// The map says that the rank is in another state.
    pub fn entered(&mut self, state: MdsState) {
        if !self.boot.is_done() {
            return;
        }
        match state {
            MdsState::RECONNECT => {
                let timeout = self.world.config.options.reconnect_timeout_ms;
                self.sessions.reconnect_until_ms = self.world.ms() + timeout;
                self.end_blocklisted();
                self.run_early_reconnects();
                self.reconnect_check();
            }
            MdsState::REJOIN => self.rejoin_check(),
            MdsState::CLIENTREPLAY => self.begin_replay(),
            MdsState::ACTIVE => {
                self.wish = None;
                self.end_replay();
                let stale: Vec<i64> = self
                    .sessions
                    .by_client
                    .iter()
                    .filter(|(_, s)| s.awaited)
                    .map(|(c, _)| *c)
                    .collect();
                for client in stale {
                    self.evict(client);
                }
                // What they flushed when they gave it back is taken before others get it.
                self.run_later(|_, _, what| matches!(what, Later::Caps(..)));
                // What clients said that they want, and have not got.
                let sessions = self.sessions.by_client.values();
                let held: BTreeSet<Ino> = sessions.flat_map(|s| s.caps.iter().copied()).collect();
                for ino in held {
                    self.eval(ino);
                }
                self.run_later(|_, _, _| true);
            }
            MdsState::STOPPING => self.begin_stop(),
            _ => {}
        }
    }

    /// Whether all clients are back, or it is too late for the others.
    pub fn reconnect_check(&mut self) {
        let late = self.world.ms() >= self.sessions.reconnect_until_ms;
        let awaited = self.sessions.by_client.values().any(|s| s.awaited);
        if self.state() == MdsState::RECONNECT && (late || !awaited) {
            self.wish = Some(MdsState::REJOIN);
        }
    }

    pub fn rejoin_check(&mut self) {
        let opening = self.boot.reconnects.values().any(|clients| !clients.is_empty());
        if self.state() == MdsState::REJOIN && !opening {
            let replays = self.has_replays();
            self.wish = Some(if replays { MdsState::CLIENTREPLAY } else { MdsState::ACTIVE });
        }
    }

    /// An inode that was looked for is in memory, or nowhere.
    pub fn rejoined(&mut self, ino: Ino) {
        if self.waiting.rejoining.remove(&ino) && self.tree.node(ino).is_some() {
            let oldest = self.journal.span().0;
            self.tree.at_mut(ino).trace_since = Some(oldest);
            self.tree.traces.insert(ino);
        }
        if let Some(clients) = self.boot.reconnects.remove(&ino) {
            if self.tree.node(ino).is_none() {
                // Perhaps a request that is replayed makes it.
                self.boot.replays.homeless.insert(ino, clients);
            } else {
                for (client, cap) in clients {
                    self.restore_cap(client, ino, &cap);
                }
            }
            self.rejoin_check();
        }
    }

    /// A client held this before the server began.
    pub fn restore_cap(&mut self, client: i64, ino: Ino, r: &CapReconnect) {
        let Some(session) = self.sessions.by_client.get_mut(&client) else { return };
        if self.tree.node(ino).is_none() {
            tracing::warn!(%ino, client, "a client holds an inode that is nowhere");
            return;
        }
        session.caps.insert(ino);
        self.sessions.next_cap = self.sessions.next_cap.max(r.cap_id);
        let node = self.tree.at_mut(ino);
        let cap = crate::capset::Cap {
            id: r.cap_id,
            pending: r.issued,
            issued: r.issued,
            wanted: r.wanted,
            ..crate::capset::Cap::default()
        };
        node.caps.by_client.insert(client, Box::new(cap));
        if let Ok(held) = messages::fs::HeldLocks::from_shared(&r.flock) {
            let room = CLIENT_LOCKS_MAX.saturating_sub(session.locks);
            session.locks += node.locks.restore(client, &held, room);
        }
    }

    // A clean stop.

    fn begin_stop(&mut self) {
        if self.boot.stage != Stage::Ready {
            return;
        }
        self.boot.stage = Stage::Stopping;
        let clients: Vec<i64> = self.sessions.by_client.keys().copied().collect();
        for client in clients {
            self.end_session(client, true);
        }
    }

    /// Begins a clean stop that leaves the sessions as they are. `false` when there is nothing to
    /// write: the rank is not served yet, or is stopping.
    pub fn leave(&mut self) -> bool {
        if !self.is_active() || self.boot.stage != Stage::Ready || self.read_only.is_some() {
            return self.boot.leaves;
        }
        self.boot.stage = Stage::Stopping;
        self.boot.leaves = true;
        true
    }

    /// Goes on with a clean stop once all is written back.
    pub fn stop_tick(&mut self) {
        let purging =
            if self.boot.leaves { self.purger.is_at_work() } else { !self.purger.is_idle() };
        if self.boot.stage != Stage::Stopping
            || self.boot.stop_step > 0
            || !self.is_clean()
            || purging
        {
            return;
        }
        self.stop_step(Ok(()));
    }

    pub fn stop_step(&mut self, result: Result<(), Errno>) {
        if let Err(e) = result
            && e != Errno::NOENT
        {
            self.give_up(format!("the clean state cannot be written: {e:?}"));
            return;
        }
        self.boot.stop_step += 1;
        let rank = self.id as u64;
        let meta = self.world.meta();
        let start = maps::fs::STREAM_START;
        let entry = JournalEntry { payload: LogEvent::reset_journal().to_bytes(), start };
        let mut header = JournalHeader::empty(meta);
        header.write_pos += entry.size();
        let whole = |bytes: Bytes| vec![IoOp::WriteFull(bytes)];
        let journal = inos::journal(rank);
        // Our journal goes last: until then the peer refuses the rank.
        let (object, ops) = match self.boot.stop_step {
            1 => (object_name(journal, 1), whole(entry.to_bytes())),
            2 => (
                object_name(inos::journal_pointer(rank), 0),
                whole(JournalPointer { front: journal.0, back: 0 }.to_bytes()),
            ),
            3 => (
                openfiles_object(self.id),
                vec![
                    IoOp::Create { exclusive: false },
                    IoOp::OmapClear,
                    IoOp::OmapSetHeader(
                        OpenFilesHeader { version: 1, ..Default::default() }.to_bytes(),
                    ),
                ],
            ),
            4 => (object_name(journal, 0), whole(header.to_bytes())),
            5 => (journal::head_object(self.id), vec![IoOp::Remove]),
            n => {
                let (first, last) = self.journal.span();
                let object = first + u64::from(n - 6);
                if object > last {
                    self.boot.stage = Stage::Stopped;
                    let end = if self.boot.leaves { MdsState::DNE } else { MdsState::STOPPED };
                    self.wish = Some(end);
                    return;
                }
                (journal::data_object(self.id, object), vec![IoOp::Remove])
            }
        };
        self.meta_io(object, ops, Job::Stopping);
    }
}

fn empty_omap(header: Bytes) -> Vec<IoOp> {
    vec![IoOp::Create { exclusive: false }, IoOp::OmapClear, IoOp::OmapSetHeader(header)]
}

fn bytes_of(
    results: &BTreeMap<String, Result<IoAnswer, Errno>>,
    tag: &str,
) -> Result<Bytes, String> {
    match results.get(tag).map(|r| r.as_ref().map(|a| &a.0[..])) {
        Some(Ok([IoData::Bytes(bytes)])) => Ok(bytes.clone()),
        Some(Err(e)) => Err(format!("{tag} cannot be read: {e:?}")),
        _ => Err(format!("{tag} was not read")),
    }
}
