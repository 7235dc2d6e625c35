//! Clients in the world: their connections, and the work they do.

use messages::{Backoff, Envelope, MOsdOpReply, Message, OsdMapMsg, WatchNotify};
use osdc::{Objecter, Out};
use types::{Epoch, Features, OsdId};

use crate::client::{Client, Open, scaled};
use crate::history::{Ask, Snaps};
use crate::net::Line;
use crate::world::{Event, MS, Node, World};

impl World {
    /// A new client; its number.
    pub(crate) fn add_client(&mut self, depth: usize) -> usize {
        self.next_gid += 1;
        self.clients.push(Client::new(self.next_gid, depth));
        let i = self.clients.len() - 1;
        self.after(0, Event::MonDial(Node::Client(i), self.next_gid));
        let ns = self.chance.within(0, 500 * MS);
        self.after(ns, Event::Work(Node::Client(i)));
        i
    }

    /// A client dies in the middle of what it does, and another takes its place.
    pub(crate) fn replace_client(&mut self, i: usize) {
        self.drop_conns(Node::Client(i));
        let depth = self.clients[i].depth;
        self.next_gid += 1;
        self.watcher_dies(i);
        self.answered += self.clients[i].open.len() as u64;
        let removes = i == self.remover && self.clients[i].tries;
        self.clients[i] = Client::new(self.next_gid, depth);
        self.clients[i].tries |= removes;
        self.after(0, Event::MonDial(Node::Client(i), self.next_gid));
    }

    pub(crate) fn client_do<T>(
        &mut self,
        i: usize,
        f: impl FnOnce(&mut Objecter, &mut Vec<Out>) -> T,
    ) -> T {
        let mut out = Vec::new();
        let value = f(&mut self.clients[i].objecter, &mut out);
        let mut closed = Vec::new();
        for wish in out {
            if let Out::Connect(..) | Out::Close(_) | Out::WantMap(_) = &wish {
                self.tell(|| format!("client {i}: {wish:?}"));
            }
            match wish {
                Out::Connect(osd, _) => {
                    let ns = self.chance.within(0, 150 * MS);
                    self.clients[i].sessions += 1;
                    let session = self.clients[i].sessions;
                    self.clients[i].wanted.insert(osd, session);
                    self.after(ns, Event::ClientDial(i, osd, session));
                }
                Out::Close(osd) => {
                    self.clients[i].wanted.remove(&osd);
                    if let Some(c) = self.clients[i].lines.remove(&osd) {
                        self.hang_up(c, 0);
                    }
                    closed.push(osd);
                }
                Out::Send(osd, e) => {
                    if let Some(&c) = self.clients[i].lines.get(&osd) {
                        self.send(c, 0, e);
                    }
                }
                Out::Done(tid, reply) => self.client_done(i, tid, &reply),
                Out::Failed(tid, r) => self.complain(format!("client {i} tid {tid} fails: {r}")),
                Out::WantMap(_) => {
                    let have = self.clients[i].objecter.map().map_or(0, |m| m.epoch.0);
                    self.subscribe(Node::Client(i), if have == 0 { 0 } else { have as u64 + 1 });
                }
            }
        }
        for osd in closed {
            self.watch_look(i, Some(osd), false);
        }
        value
    }

    fn client_done(&mut self, i: usize, tid: u64, reply: &MOsdOpReply) {
        if self.watch_done(i, tid, reply) {
            return;
        }
        let now = self.now;
        match self.clients[i].done(tid, reply) {
            Ok(Some((open, told))) => {
                self.answered += 1;
                self.tell(|| format!("client {i} {} {:?} -> {told:?}", open.name, open.ask));
                let history = self.histories.get_mut(&open.name).expect("it was asked");
                let names = history.records[open.record].snaps.clone();
                history.end(open.record, told, now);
                self.snaps.on_answer(&open.ask, &names);
            }
            Ok(None) => {}
            Err(e) => self.complain(e),
        }
    }

    pub(crate) fn client_dial(&mut self, i: usize, osd: OsdId, session: u64) {
        if self.clients[i].wanted.get(&osd) != Some(&session) {
            return; // it was given up since
        }
        let node = Node::Client(i);
        let Some(map) = self.clients[i].objecter.map().cloned() else { return };
        let known = map.osd_addrs(osd).and_then(|a| a.0.first().map(|a| a.nonce));
        let there = osd.0 >= 0 && (osd.0 as usize) < self.osds.len();
        if let Some(nonce) = known.filter(|_| there) {
            let c = self.dial(node, Node::Osd(osd.0 as usize), Line::Client(osd), nonce);
            self.clients[i].lines.insert(osd, c);
        } else {
            self.client_do(i, |o, out| o.on_closed(osd, out));
        }
    }

    pub(crate) fn client_opened(&mut self, i: usize, c: usize) {
        match self.conns[c].line {
            Line::Mon => {
                let have = self.clients[i].objecter.map().map_or(0, |m| u64::from(m.epoch.0));
                self.subscribe(Node::Client(i), if have == 0 { 0 } else { have + 1 });
            }
            Line::Client(osd) if self.clients[i].lines.get(&osd) == Some(&c) => {
                self.client_do(i, |o, out| o.on_opened(osd, Features::TENTACLE_WORD, out));
            }
            _ => {}
        }
    }

    pub(crate) fn client_closed(&mut self, i: usize, c: usize) {
        match self.conns[c].line {
            Line::Mon if self.clients[i].mon == Some(c) => {
                self.clients[i].mon = None;
                let ns = self.chance.within(200 * MS, 1_500 * MS);
                let gid = self.clients[i].gid;
                self.after(ns, Event::MonDial(Node::Client(i), gid));
            }
            Line::Client(osd) if self.clients[i].lines.get(&osd) == Some(&c) => {
                self.clients[i].lines.remove(&osd);
                self.client_do(i, |o, out| o.on_closed(osd, out));
                self.watch_look(i, Some(osd), false);
            }
            _ => {}
        }
    }

    pub(crate) fn client_message(&mut self, i: usize, c: usize, e: &Envelope) {
        match e.kind {
            MOsdOpReply::KIND => {
                let Line::Client(osd) = self.conns[c].line else { return };
                match MOsdOpReply::decode(e) {
                    Ok(m) => self.client_do(i, |o, out| o.on_reply(osd, e.tid, m, out)),
                    Err(e) => self.complain(format!("an answer to client {i}: {e}")),
                }
            }
            Backoff::KIND => {
                let Line::Client(osd) = self.conns[c].line else { return };
                match Backoff::decode(e) {
                    Ok(m) => self.client_do(i, |o, out| o.on_backoff(osd, m, out)),
                    Err(e) => self.complain(format!("a backoff of client {i}: {e}")),
                }
            }
            WatchNotify::KIND => match WatchNotify::decode(e) {
                Ok(m) => self.watch_message(i, &m),
                Err(e) => self.complain(format!("a notification to client {i}: {e}")),
            },
            OsdMapMsg::KIND => {
                let Ok(m) = OsdMapMsg::decode(e) else { return };
                if let Some(map) = self.clients[i].next_map(&m) {
                    let before = self.clients[i].objecter.map().map_or(0, |m| m.epoch.0);
                    let jumped = map.epoch.0 > before + 1;
                    self.client_do(i, |o, out| o.on_map(map, out));
                    self.watch_look(i, None, jumped);
                } else if m.last() > self.clients[i].objecter.map().map(|m| m.epoch) {
                    let have = self.clients[i].objecter.map().map_or(Epoch(0), |m| m.epoch);
                    self.subscribe(Node::Client(i), u64::from(have.0) + 1);
                }
            }
            _ => {}
        }
    }

    /// A client asks for something, and will again.
    pub(crate) fn work(&mut self, i: usize) {
        let depth = self.clients[i].depth;
        if self.working
            && self.asked < self.settings.operations
            && self.clients[i].open.len() < depth
        {
            let at = self.chance.index(self.settings.objects);
            let ask = self.some_ask(i, at);
            let name = format!("o{at}");
            self.ask(i, name, ask);
        }
        if self.working {
            // Bursts, and pauses between them.
            let mean = self.settings.trouble / (self.settings.operations / 3 + 1);
            let ns = if self.chance.one_in(3) {
                self.chance.within(0, 2 * mean * self.settings.clients as u64)
            } else {
                self.chance.within(0, 20 * MS)
            };
            self.after(ns, Event::Work(Node::Client(i)));
        }
    }

    /// What client `i` asks of the object with this number.
    fn some_ask(&mut self, i: usize, at: usize) -> Ask {
        self.value += 1;
        let v = self.value;
        let k = self.chance.below(5) as u8;
        let v = self.sized(v);
        let snap = self.snaps.some(&mut self.chance);
        // Sources are never copied to, so that each history can be told by itself.
        let source = 3 * self.chance.index(self.settings.objects.div_ceil(3));
        let coded = self.settings.coded.is_some();
        if self.settings.class && i % 3 != 2 && self.chance.one_in(6) {
            return Ask::Call(v);
        }
        // Every third only reads: nothing of its own waits when a part is cut off.
        match (self.chance.below(26), snap) {
            (0..=4, Some(snap)) => Ask::ReadAt(snap),
            _ if i % 3 == 2 => Ask::Read,
            (5, Some(snap)) => Ask::Rollback(snap),
            (0..=10, _) => Ask::Read,
            (11..=12, _) => Ask::WriteFull(v),
            (13..=15, _) => Ask::Append(v),
            (16, _) => Ask::SetAttr(v),
            // Erasure-coded pools have no omap.
            (17 | 19, _) if coded => Ask::Append(v),
            (18, _) if coded => Ask::SetAttr(v),
            (17, _) => Ask::SetOmap(k, v),
            (18, _) => Ask::RmOmap(k),
            (19, _) => Ask::All(k, v),
            (20, _) => Ask::Create,
            (21..=22, _) => Ask::Delete,
            _ if at.is_multiple_of(3) || !self.copies() => Ask::Append(v),
            _ => Ask::CopyFrom(format!("o{source}")),
        }
    }

    /// The real store is given values of all sizes, up to such that are not written to its log.
    fn sized(&mut self, v: u64) -> u64 {
        if !self.settings.real_store {
            return v;
        }
        let most = if self.settings.coded.is_some() { 13 } else { 16 };
        match self.chance.below(most) {
            0..=8 => v,
            9..=13 => scaled(v, 16),
            _ => scaled(v, 160),
        }
    }

    /// Whether clients copy objects.
    fn copies(&self) -> bool {
        self.settings.tier.as_ref().is_none_or(|plan| !plan.swaps)
    }

    /// A client asks.
    pub(crate) fn ask(&mut self, i: usize, name: String, ask: Ask) {
        let now = self.now;
        let snaps = if ask.is_read() { Snaps::default() } else { self.snaps.known() };
        let who = self.clients[i].gid;
        let small = self.has_small_disks();
        let history = self.histories.entry(name.clone()).or_default();
        history.no_room = small;
        let record = history.begin(who, ask.clone(), snaps.clone(), now);
        self.asked += 1;
        self.snaps.on_ask(&ask, &snaps);
        let wall = self.clock(Node::Client(i)).wall_ns;
        let mut request = Client::request(self.pool, &name, &ask, &snaps, wall);
        if small && self.clients[i].tries {
            request.flags |= messages::req_flag::FULL_TRY;
        }
        // The answer may only come later: the objecter never answers at once.
        let tid = self.client_do(i, |o, out| o.submit(request, out));
        self.tell(|| format!("client {i} asks {name} {ask:?} tid {tid}"));
        self.clients[i].open.insert(tid, Open { name, record, ask });
    }
}
