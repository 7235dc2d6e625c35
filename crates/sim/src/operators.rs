//! Operators: sessions with monitors that type commands. The first does what the menu of
//! faults says; the others write and read keys, which must be linearizable whatever
//! monitors they ask.

use std::collections::BTreeMap;

use bytes::Bytes;
use messages::{Envelope, Message, MonCommand, MonCommandAck, Paxos, PoolOp, PoolOpReply, pool_op};
use serde_json::json;
use types::{Features, SnapId};

use crate::history::{Ask, Model, Snaps, Told};
use crate::net::Line;
use crate::world::{Event, MS, Node, SEC, World};

/// How many there are.
pub(crate) const OPERATORS: usize = 4;
/// How long an answer may take before another monitor is asked.
const PATIENCE: u64 = 15 * SEC;
/// Keys that are written and read.
const KEYS: usize = 3;
/// Snapshots at a time.
const SNAPS_MAX: usize = 6;
/// Histories of keys are told from those of objects by this.
pub(crate) const KEY_PREFIX: &str = "key ";

/// What is asked of a monitor.
enum Words {
    /// A command.
    Command(String),
    /// A command with a file.
    Upload(String, Bytes),
    /// A new snapshot of the pool.
    MakeSnap,
    /// A snapshot less.
    RemoveSnap(u64),
}

/// A command without an answer.
struct Pending {
    words: Words,
    /// Its place in the history of a key.
    record: Option<(String, usize, Ask)>,
}

/// One operator.
#[derive(Default)]
pub(crate) struct Operator {
    pub(crate) gid: u64,
    mon: Option<usize>,
    open: bool,
    tid: u64,
    pending: BTreeMap<u64, Pending>,
    asked_at: u64,
    sessions: u64,
}

impl World {
    pub(crate) fn add_operators(&mut self) {
        for k in 0..OPERATORS {
            self.operators.push(Operator { gid: 4_100 + k as u64, ..Operator::default() });
            self.after(0, Event::MonDial(Node::Operator(k), 0));
            self.after(SEC, Event::Work(Node::Operator(k)));
        }
    }

    /// Whether every command has its answer.
    pub(crate) fn operators_idle(&self) -> bool {
        self.operators.iter().all(|o| o.pending.is_empty())
    }

    /// What nobody has answered is not asked again.
    pub(crate) fn operators_forget(&mut self) {
        for o in &mut self.operators {
            o.pending.retain(|_, p| {
                p.record.is_some() || !matches!(p.words, Words::Command(_) | Words::Upload(..))
            });
        }
    }

    pub(crate) fn operator_dial(&mut self, k: usize, session: u64) {
        if self.operators[k].mon.is_some() || self.operators[k].sessions != session {
            return;
        }
        let c = self.dial_mon(Node::Operator(k));
        let now = self.now;
        let o = &mut self.operators[k];
        (o.mon, o.open, o.asked_at) = (Some(c), false, now);
    }

    pub(crate) fn operator_opened(&mut self, k: usize, c: usize) {
        if self.operators[k].mon != Some(c) {
            return;
        }
        self.operators[k].open = true;
        self.operators[k].asked_at = self.now;
        let tids: Vec<u64> = self.operators[k].pending.keys().copied().collect();
        for tid in tids {
            self.operator_send(k, tid);
        }
    }

    pub(crate) fn operator_closed(&mut self, k: usize, c: usize) {
        if self.operators[k].mon == Some(c) {
            self.operators[k].mon = None;
            self.operators[k].sessions += 1;
            let (ns, session) = (self.chance.within(50 * MS, 800 * MS), self.operators[k].sessions);
            self.after(ns, Event::MonDial(Node::Operator(k), session));
        }
    }

    fn operator_send(&mut self, k: usize, tid: u64) {
        let o = &self.operators[k];
        let (Some(c), true, Some(p)) = (o.mon, o.open, o.pending.get(&tid)) else { return };
        let (paxos, fsid) = (Paxos::default(), self.fsid);
        let snap_op = |op, snap| PoolOp {
            fsid,
            pool: self.pool.0 as u32,
            op,
            snapid: SnapId(snap),
            ..PoolOp::default()
        };
        let e = match &p.words {
            Words::Command(words) => {
                let cmd = vec![Bytes::from(words.clone())];
                MonCommand { paxos, fsid, cmd, input: Bytes::new() }.envelope(Features::ALL)
            }
            Words::Upload(words, file) => {
                let cmd = vec![Bytes::from(words.clone())];
                MonCommand { paxos, fsid, cmd, input: file.clone() }.envelope(Features::ALL)
            }
            Words::MakeSnap => snap_op(pool_op::CREATE_UNMANAGED_SNAP, 0).envelope(Features::ALL),
            Words::RemoveSnap(snap) => {
                snap_op(pool_op::DELETE_UNMANAGED_SNAP, *snap).envelope(Features::ALL)
            }
        };
        self.send(c, 0, e.with_tid(tid));
    }

    fn operator_asks(&mut self, k: usize, words: Words, record: Option<(String, usize, Ask)>) {
        let now = self.now;
        let o = &mut self.operators[k];
        o.tid += 1;
        if o.pending.is_empty() {
            o.asked_at = now;
        }
        let tid = o.tid;
        o.pending.insert(tid, Pending { words, record });
        self.operator_send(k, tid);
    }

    /// The first operator types a command.
    pub(crate) fn command(&mut self, words: serde_json::Value) {
        self.tell(|| format!("operator: {words}"));
        self.operator_asks(0, Words::Command(words.to_string()), None);
    }

    /// The first operator types a command that takes a file.
    pub(crate) fn upload(&mut self, words: serde_json::Value, file: Bytes) {
        self.tell(|| format!("operator: {words} with {} bytes", file.len()));
        self.operator_asks(0, Words::Upload(words.to_string(), file), None);
    }

    /// Takes a snapshot that clients manage, or removes one.
    pub(crate) fn some_snap(&mut self) {
        if self.snaps.live.len() < SNAPS_MAX && !self.chance.one_in(3) {
            return self.operator_asks(0, Words::MakeSnap, None);
        }
        let Some(snap) = self.snaps.some(&mut self.chance).filter(|s| self.snaps.is_idle(*s))
        else {
            return;
        };
        self.tell(|| format!("snapshot {snap} is removed"));
        self.snaps.remove(snap);
        let now = self.now;
        self.histories.values_mut().for_each(|h| h.forget(snap, now));
        self.operator_asks(0, Words::RemoveSnap(snap), None);
    }

    /// Every snapshot that nobody asks for just now is removed.
    pub(crate) fn remove_all_snaps(&mut self) {
        let now = self.now;
        for snap in self.snaps.live.iter().copied().collect::<Vec<_>>() {
            if self.snaps.is_idle(snap) {
                self.snaps.remove(snap);
                self.histories.values_mut().for_each(|h| h.forget(snap, now));
                self.operator_asks(0, Words::RemoveSnap(snap), None);
            }
        }
    }

    fn on_pool_op(&mut self, words: &Words, m: &PoolOpReply) {
        self.tell(|| format!("a snapshot's answer: {} {:?}", m.r, m.data));
        if m.r != 0 {
            return self.complain(format!("a snapshot is answered by {}", m.r));
        }
        if let (Words::MakeSnap, Some(raw)) = (words, m.data.as_deref())
            && let Ok(raw) = raw.try_into()
        {
            self.snaps.on_made(u64::from_le_bytes(raw));
        }
    }

    pub(crate) fn operator_message(&mut self, k: usize, c: usize, e: &Envelope) {
        if self.operators[k].mon != Some(c) {
            return;
        }
        if e.kind == PoolOpReply::KIND
            && let Ok(m) = PoolOpReply::decode(e)
            && let Some(p) = self.operators[k].pending.remove(&e.tid)
        {
            self.operators[k].asked_at = self.now;
            return self.on_pool_op(&p.words, &m);
        }
        if e.kind != MonCommandAck::KIND {
            return;
        }
        let Ok(m) = MonCommandAck::decode(e) else { return };
        let now = self.now;
        let o = &mut self.operators[k];
        o.asked_at = now;
        let Some(p) = o.pending.remove(&e.tid) else { return };
        if let Words::Command(words) | Words::Upload(words, _) = &p.words {
            self.tell(|| format!("operator {k}: {words} -> {} {}", m.r, m.rs));
        }
        let Some((name, record, ask)) = p.record else { return };
        let told = match (&ask, m.r) {
            (Ask::Read, 0) => {
                match std::str::from_utf8(&m.output).ok().and_then(|t| t.parse().ok()) {
                    Some(v) => {
                        let data = vec![v];
                        Told::Object(Model { exists: true, data, ..Model::default() })
                    }
                    None => return self.complain(format!("{name} reads as {:?}", m.output)),
                }
            }
            (_, r) => Told::Code(r),
        };
        self.answered += 1;
        let history = self.histories.get_mut(&name).expect("it was asked");
        history.end(record, told, now);
    }

    /// Time for an operator: impatience, and work.
    pub(crate) fn operator_work(&mut self, k: usize) {
        let o = &self.operators[k];
        if !o.pending.is_empty()
            && self.now > o.asked_at + PATIENCE
            && let Some(c) = o.mon
        {
            self.hang_up(c, 0);
            self.operator_closed(k, c);
        }
        if k > 0 && self.working && self.operators[k].pending.is_empty() {
            let name = format!("{KEY_PREFIX}{}", self.chance.index(KEYS));
            self.operator_key(k, name);
        }
        let ns = self.chance.within(100 * MS, 1_500 * MS);
        self.after(ns, Event::Work(Node::Operator(k)));
    }

    fn operator_key(&mut self, k: usize, name: String) {
        self.value += 1;
        let v = self.value;
        let ask = if self.chance.one_in(3) { Ask::WriteFull(v) } else { Ask::Read };
        let words = match ask {
            Ask::WriteFull(v) => {
                json!({"prefix": "config-key set", "key": name, "val": v.to_string()})
            }
            _ => json!({"prefix": "config-key get", "key": name}),
        };
        let now = self.now;
        let who = self.operators[k].gid;
        let history = self.histories.entry(name.clone()).or_default();
        let record = history.begin(who, ask.clone(), Snaps::default(), now);
        self.asked += 1;
        self.tell(|| format!("operator {k}: {words}"));
        self.operator_asks(k, Words::Command(words.to_string()), Some((name, record, ask)));
    }

    /// A process dials one of the monitors.
    pub(crate) fn dial_mon(&mut self, node: Node) -> usize {
        let all: Vec<usize> = (0..self.mons.len()).filter(|m| !self.mons[*m].gone).collect();
        let m = self.chance.of(&all);
        self.dial(node, Node::Mon(m), Line::Mon, 0)
    }
}
