//! Bytes of an object's shards: asked for where they are, and computed where they are not.
//!
//! The shards that are wanted are asked for, all at once; when one is not to be had, as many
//! others as it takes to compute it. A shard answers only with the version that is wanted, so
//! what comes together belongs together.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use bytes::{Bytes, BytesMut};
use maps::PgShard;
use messages::{PeerMsg, Push};
use types::{EVersion, Epoch, Errno, HObject, ShardId};

use crate::backing::{Fetched, StoreError};
use crate::pg::{Cx, Pg};
use crate::session::ClientOp;

/// A question that is not answered is asked again after this long.
const RETRY_MS: u64 = 2_000;

/// What is gathered.
#[derive(Clone, Debug)]
pub(crate) struct Want {
    pub oid: HObject,
    pub version: EVersion,
    /// First byte of the shards.
    pub off: u64,
    /// How many; what lies beyond a shard's end is zero.
    pub len: u64,
    pub shards: Vec<usize>,
    /// The attributes, too, and how long a shard is.
    pub attrs: bool,
}

/// What it is gathered for.
#[derive(Debug)]
pub(crate) enum For {
    /// A request: bytes of the object, or what a write has to know.
    Op { op: Box<ClientOp>, writes: bool, data: Option<(u64, u64)> },
    /// Shards that lack the object; which try.
    Rebuild(HObject, u64),
    /// A copy of the object elsewhere.
    Copy { push: Push, len: u64 },
    /// A scrub, which looks whether shards agree; which, by its number.
    Scrub(u32),
}

/// Gathering under way.
#[derive(Debug)]
pub(crate) struct Gather {
    want: Want,
    got: BTreeMap<usize, Bytes>,
    /// Who was asked for which shard, under which number, since when, monotonic ms.
    open: BTreeMap<usize, (PgShard, u64, u64)>,
    /// Who cannot give it.
    failed: BTreeSet<PgShard>,
    /// What attributes and size came with the first answer.
    record: Option<Record>,
    pub(super) purpose: For,
}

/// Attributes of an object and bytes of a shard of it.
pub(crate) type Record = (Vec<(Bytes, Bytes)>, u64);

impl Gather {
    /// Answers to its open questions are not waited for any more.
    fn unask(&self, asked: &mut HashMap<u64, (u64, usize)>) {
        for (_, id, _) in self.open.values() {
            asked.remove(id);
        }
    }

    pub(super) fn is_copy_of(&self, oid: &HObject, off: u64) -> bool {
        matches!(&self.purpose, For::Copy { push, .. } if push.oid == *oid && push.off == off)
    }
}

/// Bytes of this shard on their way from the store.
#[derive(Debug)]
pub(crate) struct Serving {
    to: PgShard,
    /// The asking side's, which may be ahead.
    interval: Epoch,
    id: u64,
    size: u64,
    attrs: Vec<(Bytes, Bytes)>,
}

/// What a shard answers: how long it is, the attributes, the bytes.
pub(crate) type Answered = Result<(u64, Vec<(Bytes, Bytes)>, Bytes), Errno>;

/// What one shard has: how long it is, the attributes, the bytes.
type Part = (u64, Vec<(Bytes, Bytes)>, Fetched);

impl Pg {
    /// Who may have which shard of an object in a version; all shards, or these.
    pub(crate) fn shard_sources(
        &self,
        oid: &HObject,
        version: EVersion,
        only: Option<&[usize]>,
        cx: &Cx<'_>,
    ) -> BTreeMap<usize, Vec<PgShard>> {
        let mut all: BTreeMap<usize, Vec<PgShard>> = BTreeMap::new();
        let mut add = |c: PgShard| all.entry(c.shard.0 as usize).or_default().push(c);
        let counts = |c: &PgShard| only.is_none_or(|s| s.contains(&(c.shard.0 as usize)));
        let me = self.me(cx.me);
        if counts(&me) && !self.missing.contains_key(oid) {
            add(me);
        }
        // Those that act first.
        for acting in [true, false] {
            for (c, p) in self.peers.iter().filter(|(c, _)| counts(c)) {
                if self.acts(c) == acting
                    && p.reaches(version)
                    && cx.map.is_up(c.osd)
                    && !p.missing.contains_key(oid)
                    && c.shard != ShardId::NONE
                {
                    add(*c);
                }
            }
        }
        if let Some(vain) = self.not_at(oid) {
            all.values_mut().for_each(|v| v.retain(|c| !vain.contains(c)));
            all.retain(|_, v| !v.is_empty());
        }
        all
    }

    /// Whether enough shards of an object are known to be somewhere.
    pub(crate) fn is_readable(&self, oid: &HObject, version: EVersion) -> bool {
        let vain = self.not_at(oid);
        let has = |(c, p): &(&PgShard, &crate::pg::Peer)| {
            p.reaches(version)
                && !p.missing.contains_key(oid)
                && !vain.is_some_and(|v| v.contains(c))
        };
        let mut shards: BTreeSet<ShardId> =
            self.peers.iter().filter(has).map(|(c, _)| c.shard).collect();
        if !self.missing.contains_key(oid) {
            shards.insert(self.id.shard);
        }
        shards.len() >= self.pool.readable_by()
    }

    /// Gathers bytes; `purpose` is told.
    pub(crate) fn gather(&mut self, want: Want, purpose: For, cx: &mut Cx<'_>) {
        self.coded.next += 1;
        let id = self.coded.next;
        let mut got = BTreeMap::new();
        if matches!(purpose, For::Op { .. }) && !self.missing.contains_key(&want.oid) {
            let at_hand = |s: usize| {
                let data = self.shard_at_hand(&*cx.store, s, &want.oid, want.off, want.len);
                Some((s, data?))
            };
            got.extend(want.shards.iter().filter_map(|s| at_hand(*s)));
        }
        let gather = Gather {
            want,
            got,
            open: BTreeMap::new(),
            failed: BTreeSet::new(),
            record: None,
            purpose,
        };
        self.coded.gathers.insert(id, gather);
        self.pump_gather(id, cx);
    }

    /// Asks whoever is to be asked; ends when all is there, or nothing helps.
    fn pump_gather(&mut self, id: u64, cx: &mut Cx<'_>) {
        loop {
            let Some(g) = self.coded.gathers.get(&id) else { return };
            let sources = |only| {
                let mut all = self.shard_sources(&g.want.oid, g.want.version, only, cx);
                all.values_mut().for_each(|v| v.retain(|c| !g.failed.contains(c)));
                all.retain(|_, v| !v.is_empty());
                all
            };
            // As a rule all that are wanted are here or to be had.
            let lack: Vec<usize> =
                g.want.shards.iter().copied().filter(|s| !g.got.contains_key(s)).collect();
            let mut from =
                if lack.is_empty() { BTreeMap::new() } else { sources(Some(lack.as_slice())) };
            let need = if lack.iter().all(|s| from.contains_key(s)) {
                g.want.shards.clone()
            } else {
                let Some(c) = self.pool.coding.as_ref() else { return };
                from = sources(None);
                let can: Vec<usize> =
                    (0..c.n()).filter(|s| g.got.contains_key(s) || from.contains_key(s)).collect();
                let Some(need) = c.minimum(&g.want.shards, &can) else {
                    self.end_gather(id, false, cx);
                    return;
                };
                need
            };
            let todo: Vec<usize> =
                need.iter().copied().filter(|s| !g.got.contains_key(s)).collect();
            if todo.is_empty() {
                self.end_gather(id, true, cx);
                return;
            }
            let ask: Vec<(usize, PgShard)> = todo
                .into_iter()
                .filter(|s| !g.open.contains_key(s))
                .map(|s| (s, from[&s][0]))
                .collect();
            if ask.is_empty() {
                return;
            }
            let mut again = false;
            for (shard, copy) in ask {
                again |= self.ask_shard(id, shard, copy, cx);
            }
            if !again {
                return;
            }
        }
    }

    /// Asks one shard; whether the answer is there already.
    fn ask_shard(&mut self, gather: u64, shard: usize, copy: PgShard, cx: &mut Cx<'_>) -> bool {
        self.coded.next += 1;
        let id = self.coded.next;
        let Some(g) = self.coded.gathers.get_mut(&gather) else { return false };
        let (want, interval) = (g.want.clone(), Epoch(0));
        g.open.insert(shard, (copy, id, cx.now.mono_ms()));
        self.coded.asked.insert(id, (gather, shard));
        if copy != self.me(cx.me) {
            let body = PeerMsg::ShardRead {
                id,
                oid: want.oid,
                version: want.version,
                off: want.off,
                len: want.len,
                attrs: want.attrs,
            };
            self.say(cx, copy, body);
            return false;
        }
        match self.read_shard(&want, cx) {
            Ok((size, attrs, Fetched::Here(data))) => {
                self.take_shard(copy, id, Ok((size, attrs, data)), cx);
                true
            }
            Ok((size, attrs, Fetched::Later(fetch))) => {
                cx.fetches.insert(fetch, self.id);
                self.coded.serving.insert(fetch, Serving { to: copy, interval, id, size, attrs });
                false
            }
            Err(e) => {
                self.take_shard(copy, id, Err(e), cx);
                true
            }
        }
    }

    /// Bytes of this shard.
    fn read_shard(&self, w: &Want, cx: &mut Cx<'_>) -> Result<Part, Errno> {
        let fail = |e: StoreError| {
            tracing::error!(pg = %self.id, oid = %w.oid, "{e}");
            Errno::IO
        };
        if self.missing.contains_key(&w.oid) {
            return Err(Errno::NOENT);
        }
        let state = Self::read_state(cx.store, self.coll, &w.oid).map_err(fail)?;
        if !state.is_stored() || state.info.version != w.version {
            return Err(Errno::NOENT);
        }
        let size = cx.store.size(self.coll, &w.oid).map_err(fail)?.unwrap_or(0);
        let attrs =
            if w.attrs { cx.store.attrs(self.coll, &w.oid).map_err(fail)? } else { Vec::new() };
        if w.off >= size {
            return Ok((size, attrs, Fetched::Here(Bytes::new())));
        }
        let data = cx.store.fetch(self.coll, &w.oid, w.off, w.len.min(size - w.off));
        Ok((size, attrs, data.map_err(fail)?.unwrap_or(Fetched::Here(Bytes::new()))))
    }

    /// The primary wants bytes of this shard.
    pub(crate) fn on_shard_read(
        &mut self,
        from: PgShard,
        interval: Epoch,
        id: u64,
        w: &Want,
        cx: &mut Cx<'_>,
    ) {
        let answer = match self.read_shard(w, cx) {
            Ok((size, attrs, Fetched::Here(data))) => Ok((size, attrs, data)),
            Ok((size, attrs, Fetched::Later(fetch))) => {
                cx.fetches.insert(fetch, self.id);
                self.coded.serving.insert(fetch, Serving { to: from, interval, id, size, attrs });
                return;
            }
            Err(e) => Err(e),
        };
        self.say_shard(from, interval, id, answer, cx);
    }

    fn say_shard(&self, to: PgShard, interval: Epoch, id: u64, answer: Answered, cx: &mut Cx<'_>) {
        let body = match answer {
            Ok((size, attrs, data)) => PeerMsg::ShardData { id, result: 0, size, attrs, data },
            Err(e) => PeerMsg::ShardData {
                id,
                result: e.0,
                size: 0,
                attrs: Vec::new(),
                data: Bytes::new(),
            },
        };
        self.reply(to, interval, body, cx);
    }

    /// The store has read something; whether it was of this shard.
    pub(crate) fn shard_fetched(
        &mut self,
        fetch: u64,
        data: &Result<Bytes, StoreError>,
        cx: &mut Cx<'_>,
    ) -> bool {
        let Some(s) = self.coded.serving.remove(&fetch) else { return false };
        let answer = match data {
            Ok(data) => Ok((s.size, s.attrs, data.clone())),
            Err(e) => {
                tracing::error!(pg = %self.id, "{e}");
                Err(Errno::IO)
            }
        };
        if s.to != self.me(cx.me) {
            self.say_shard(s.to, s.interval, s.id, answer, cx);
        } else if let Some(gather) = self.take_shard(s.to, s.id, answer, cx) {
            self.pump_gather(gather, cx);
        }
        true
    }

    /// A shard answers.
    pub(crate) fn on_shard_data(
        &mut self,
        from: PgShard,
        id: u64,
        answer: Answered,
        cx: &mut Cx<'_>,
    ) {
        if let Some(gather) = self.take_shard(from, id, answer, cx) {
            self.pump_gather(gather, cx);
        }
    }

    /// Notes an answer; for which gathering it was.
    fn take_shard(
        &mut self,
        from: PgShard,
        id: u64,
        answer: Answered,
        cx: &mut Cx<'_>,
    ) -> Option<u64> {
        let (gather, shard) = self.coded.asked.remove(&id)?;
        let g = self.coded.gathers.get_mut(&gather)?;
        g.open.remove(&shard);
        match answer {
            Ok((size, attrs, data)) => {
                if g.want.attrs && g.record.is_none() {
                    let own = |b: &Bytes| Bytes::copy_from_slice(b);
                    let attrs = attrs.iter().map(|(k, v)| (own(k), own(v))).collect();
                    g.record = Some((attrs, size));
                }
                g.got.insert(shard, padded(data, g.want.len));
            }
            Err(e) => {
                g.failed.insert(from);
                let (oid, version) = (g.want.oid.clone(), g.want.version);
                if e == Errno::IO && self.acts(&from) {
                    self.shard_is_damaged(from, &oid, version, cx);
                }
            }
        }
        Some(gather)
    }

    /// Questions that were not answered are asked again.
    pub(crate) fn ask_shards_again(&mut self, cx: &mut Cx<'_>) {
        let now = cx.now.mono_ms();
        let (rebuilds, asked) = (&self.recovery.rebuilds, &mut self.coded.asked);
        self.coded.gathers.retain(|_, g| {
            let For::Rebuild(oid, number) = &g.purpose else { return true };
            let goes_on = rebuilds.get(oid).is_some_and(|r| r.number == *number);
            if !goes_on {
                g.unask(asked);
            }
            goes_on
        });
        let late: Vec<(u64, u64, usize)> = self
            .coded
            .gathers
            .iter()
            .flat_map(|(g, x)| x.open.iter().map(move |(s, o)| (*g, o.1, *s, o.2, o.0)))
            .filter(|(_, _, _, since, copy)| now >= since + RETRY_MS && *copy != self.me(cx.me))
            .map(|(g, id, shard, ..)| (g, id, shard))
            .collect();
        for (gather, id, shard) in late {
            self.coded.asked.remove(&id);
            if let Some(g) = self.coded.gathers.get_mut(&gather) {
                g.open.remove(&shard);
            }
            self.pump_gather(gather, cx);
        }
    }

    /// What was asked of an OSD may be lost: it is asked again.
    pub(crate) fn reset_gathers(&mut self, copy: PgShard, cx: &mut Cx<'_>) {
        self.coded.told = EVersion::ZERO;
        for g in self.coded.gathers.values_mut() {
            for o in g.open.values_mut().filter(|o| o.0 == copy) {
                o.2 = 0;
            }
        }
        self.ask_shards_again(cx);
    }

    fn end_gather(&mut self, id: u64, good: bool, cx: &mut Cx<'_>) {
        let Some(mut g) = self.coded.gathers.remove(&id) else { return };
        g.unask(&mut self.coded.asked);
        let Some(c) = self.pool.coding.clone() else { return };
        let mut shards: Vec<Option<Bytes>> = (0..c.n()).map(|s| g.got.remove(&s)).collect();
        let good = good && c.rebuild(&mut shards, &g.want.shards);
        match g.purpose {
            For::Op { op, writes, data } => {
                let got = good.then_some(shards);
                let of = (&g.want.oid, g.want.version);
                self.on_gathered(op, writes, data, of, g.want.off, got, cx);
            }
            For::Rebuild(oid, number) => {
                let got = good.then_some((shards, g.record));
                self.on_rebuilt_part((&oid, number), got, g.failed, cx);
            }
            For::Scrub(scrub) => {
                let all = good && shards.iter().all(Option::is_some);
                self.on_scrub_gathered(scrub, all.then_some(shards), cx);
            }
            For::Copy { mut push, len } => {
                if good {
                    push.data = c.join(&shards, g.want.off, push.off, len);
                    self.coded.copied.clear(); // what nobody came back for
                    self.coded.copied.insert((push.oid.clone(), push.off), push);
                } else if !self.is_lacking(&push.oid) {
                    let key = (push.oid, push.off);
                    let push = crate::copy::unreadable(key.0.clone(), push.version, key.1);
                    self.coded.copied.insert(key, push);
                }
            }
        }
    }
}

/// Zeros follow up to `len`.
fn padded(data: Bytes, len: u64) -> Bytes {
    let len = len as usize;
    if data.len() >= len {
        return data.slice(..len);
    }
    let mut all = BytesMut::with_capacity(len);
    all.extend_from_slice(&data);
    all.resize(len, 0);
    all.freeze()
}
