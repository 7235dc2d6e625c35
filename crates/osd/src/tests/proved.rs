//! What peers with a key may say to OSDs that have real stores: an OSD's key in wrong hands, which
//! says in every PG what OSDs say to each other, to those that lead and to those that follow; and
//! clients with all rights, whose requests have any operations with any arguments.
//!
//! The messages are those that OSDs do send, of every kind, changed. Nothing of it may panic, stop
//! an OSD or break what connects two honest ones. Afterwards, with the liar out of the map, a pool
//! of the others serves, and their stores are sound.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use bytes::Bytes;
use denc::{Denc, Writer};
use maps::OsdMapFlags;
use messages::fuzz::Choices;
use messages::{
    Envelope, MOsdOp, Message, OsdMapMsg, OsdOp, OsdPeer, OsdPing, PeerMsg, PgLogEntry, RepOp,
    RepOpReply, op, req_flag,
};
use store::Store;
use types::{
    EVersion, EntityId, EntityKind, Epoch, Features, HObject, ObjectLocator, OsdId, PgId, PoolId,
    ReqId, ShardId, SnapId, SpgId, UTime, Uuid,
};

use super::cluster::{Cluster, on_disk};

/// OSDs, of which the first one lies.
const OSDS: usize = 4;
const LIAR: usize = 0;
/// Things that one input does.
const STEPS_MAX: usize = 30;
/// Messages kept of each kind.
const OF_EACH_MAX: usize = 3;
const REPLICATED: PoolId = PoolId(1);
const CODED: PoolId = PoolId(2);
const OBJECTS: [&str; 4] = ["a", "b", "c", "d"];
/// Rounds in which the new pool has to answer.
const ROUNDS: usize = 60;

fn full(data: &[u8]) -> Vec<OsdOp> {
    let data = Bytes::copy_from_slice(data);
    vec![OsdOp::extent(op::WRITEFULL, 0, data.len() as u64, data)]
}

fn attribute(name: &str, value: &str) -> OsdOp {
    let mut o = OsdOp::new(op::SETXATTR, Bytes::from([name, value].concat()));
    o.put_u32(0, name.len() as u32);
    o.put_u32(4, value.len() as u32);
    o
}

fn omap(key: &str, value: &str) -> OsdOp {
    let mut w = Writer::new(Features::ALL);
    BTreeMap::from([(key.to_owned(), Bytes::copy_from_slice(value.as_bytes()))]).encode(&mut w);
    OsdOp::new(op::OMAPSETVALS, w.finish())
}

/// A copy of an object of the replicated pool.
fn copy_of(from: &str) -> OsdOp {
    let mut w = Writer::new(Features::ALL);
    w.str(from);
    ObjectLocator { pool: REPLICATED, ..ObjectLocator::default() }.encode(&mut w);
    let mut o = OsdOp::new(op::COPY_FROM, w.finish());
    o.put_u64(0, SnapId::HEAD.0);
    o
}

/// A pool of each kind, with some objects; snapshots in the replicated one.
fn filled(c: &mut Cluster) {
    c.settle();
    assert_eq!(c.make_pool(3, 2), REPLICATED);
    c.settle();
    assert_eq!(c.make_coded((2, 1), 2), CODED);
    c.settle();
    for name in OBJECTS {
        let mut ops = full(name.repeat(300).as_bytes());
        ops.extend([attribute("x", "y"), omap("k", "v")]);
        assert_eq!(c.run(REPLICATED, name, ops).result, 0);
        assert_eq!(c.run(CODED, name, full(name.repeat(300).as_bytes())).result, 0);
        let tid = c.ask(REPLICATED, name, full(b"after the snapshot"));
        let msg = &mut c.asked.back_mut().expect("just asked").msg;
        (msg.snap_seq, msg.snaps) = (SnapId(1), vec![SnapId(1)]);
        assert_eq!(c.wait(tid).result, 0);
    }
}

/// Messages of each kind, as OSDs sent them in a cluster that had every reason to.
static SENT: LazyLock<Vec<Envelope>> = LazyLock::new(|| {
    let mut c = Cluster::new(OSDS, 5);
    c.heard = Some(Vec::new());
    filled(&mut c);
    // Copies that lag, by a log and by more than one; scrubs; a tier; copies of objects.
    c.kill(3);
    c.mark_down(3);
    for i in 0..40 {
        for pool in [REPLICATED, CODED] {
            c.ask(pool, &format!("o{i}"), full(b"written while one is down"));
        }
    }
    c.settle();
    c.start(3);
    c.settle();
    for osd in 0..OSDS {
        c.scrub_all(osd);
    }
    c.settle();
    let mut inc = c.next_inc();
    let pg = PgId { pool: REPLICATED, ps: 0 };
    let up = c.map.pg_to_up_acting(pg).up;
    let moved: Vec<OsdId> = (0..OSDS as i32).map(OsdId).filter(|o| *o != up[1]).take(3).collect();
    inc.new_pg_upmap.insert(pg, moved);
    c.publish(inc);
    c.settle();
    let base = c.make_pool(2, 2);
    c.settle();
    assert_eq!(c.run(base, "t", full(b"in the base")).result, 0);
    c.make_tier(base, 2, 2);
    c.run(base, "t", full(b"in the cache"));
    c.run(REPLICATED, "copy", vec![copy_of("a")]);
    c.settle();
    c.break_wire(1, 2);
    c.set_flag(OsdMapFlags::NOSCRUB, true);
    c.settle();
    let mut kept: BTreeMap<(u16, String), Vec<Envelope>> = BTreeMap::new();
    for (_, _, e) in c.heard.take().unwrap_or_default() {
        let peer = Some(&e).filter(|e| e.kind == OsdPeer::KIND);
        let peer = peer.and_then(|e| OsdPeer::decode(e).ok());
        let kind = (e.kind, peer.map_or_else(String::new, |m| tag(&m)));
        let of_kind = kept.entry(kind).or_default();
        if of_kind.len() < OF_EACH_MAX {
            of_kind.push(e);
        } else if e.size() > of_kind[0].size() {
            of_kind[0] = e; // where there is more to change
        }
    }
    assert!(kept.len() > 24, "kinds of messages: {:?}", kept.keys());
    let mut all: Vec<Envelope> = kept.into_values().flatten().collect();
    all.extend(seldom().into_iter().map(|body| {
        let (pg, from) = (SpgId::default(), ShardId::NONE);
        let (epoch, interval) = (Epoch(1), Epoch(1));
        OsdPeer { pg, from, epoch, interval, felt: 0, body }.envelope(Features::ALL)
    }));
    all
});

/// What OSDs have to say only in trouble, or to those of another pool.
fn seldom() -> Vec<PeerMsg> {
    let oid = HObject::head(REPLICATED, Bytes::new(), Bytes::new(), Bytes::from_static(b"a"));
    let since = EVersion { epoch: Epoch(3), version: 1 };
    let entry = PgLogEntry { oid: oid.clone(), version: since, ..PgLogEntry::default() };
    let op = MOsdOp { ops: full(b"by a tier"), ..asks(REPLICATED, Bytes::from_static(b"a")) };
    let (who, addr) = (EntityId::new(EntityKind::CLIENT, 4100), super::cluster::client_addr());
    vec![
        PeerMsg::Scan(oid.clone()),
        PeerMsg::Objects {
            begin: HObject::min(),
            end: HObject::max(),
            objects: vec![(oid.clone(), since)],
        },
        PeerMsg::Room { full: true, bare: true },
        PeerMsg::Unrelated { round: 1 },
        PeerMsg::Follow { since, entries: vec![entry.to_bytes()] },
        PeerMsg::TierAsk { id: 1, who, addr, op: Box::new(op) },
        PeerMsg::TierTold { id: 1, reply: Box::default() },
        PeerMsg::GetLog(EVersion::ZERO),
    ]
}

fn asks(pool: PoolId, oid: Bytes) -> MOsdOp {
    MOsdOp {
        pg: SpgId::default(),
        hash: HObject::hash_of(b"", &oid),
        epoch: Epoch(1),
        flags: req_flag::ACK | req_flag::ONDISK,
        reqid: ReqId::default(),
        client_inc: 0,
        mtime: UTime { sec: 1_700_000_001, nsec: 0 },
        locator: ObjectLocator { pool, ..ObjectLocator::default() },
        oid,
        ops: Vec::new(),
        snapid: SnapId::HEAD,
        snap_seq: SnapId(0),
        snaps: Vec::new(),
        retry_attempt: 0,
        features: Features::TENTACLE_WORD.0,
    }
}

/// Which of the kinds of [`OsdPeer`].
fn tag(m: &OsdPeer) -> String {
    let text = format!("{:?}", m.body);
    text.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default().to_owned()
}

/// PGs that are at `at`, with those first that the liar has a copy of, too.
fn pgs_at(c: &Cluster, at: usize) -> Vec<SpgId> {
    let Some(osd) = &c.nodes[at].osd else { return Vec::new() };
    let liar = OsdId(LIAR as i32);
    let mut all: Vec<SpgId> = osd.pgs.keys().copied().collect();
    all.sort_by_key(|id| !c.map.pg_to_up_acting(id.pg).acting.contains(&liar));
    all
}

/// The liar's place in the PG.
fn shard_of_liar(c: &Cluster, pg: SpgId) -> ShardId {
    if pg.shard == ShardId::NONE {
        return ShardId::NONE;
    }
    let acting = c.map.pg_to_up_acting(pg.pg).acting;
    let place = acting.iter().position(|o| *o == OsdId(LIAR as i32));
    place.map_or(ShardId::NONE, |i| ShardId(i as i8))
}

/// The message as it would be sent now, about a PG of the receiver.
fn timely(c: &Cluster, choices: &mut Choices<'_>, at: usize, e: Envelope) -> Envelope {
    let pgs = pgs_at(c, at);
    if pgs.is_empty() || choices.once_in(8) {
        return e;
    }
    let pg = if choices.once_in(3) { *choices.of(&pgs) } else { pgs[0] };
    let role = &c.nodes[at].osd.as_ref().expect("it has PGs").pgs[&pg];
    let (now, interval, head) = (c.map.epoch, role.interval(), role.log.head());
    let from = shard_of_liar(c, pg);
    let next = EVersion { epoch: now, version: head.version + 1 };
    let object = HObject { pool: pg.pg.pool, ..object_of(choices, &role.log) };
    match e.kind {
        RepOp::KIND => {
            let Ok(mut m) = RepOp::decode(&e) else { return e };
            (m.pg, m.from, m.epoch, m.interval, m.prev) = (pg, from, now, interval, head);
            if let Ok(mut entry) = PgLogEntry::from_bytes(&m.entry) {
                entry.version = next;
                if !choices.once_in(4) {
                    entry.oid = object.clone();
                }
                m.entry = entry.to_bytes();
            }
            for change in &mut m.changes {
                if !choices.once_in(4) {
                    change.oid = object.clone();
                }
            }
            Envelope { priority: e.priority, ..m.envelope(Features::ALL) }
        }
        RepOpReply::KIND => {
            let Ok(mut m) = RepOpReply::decode(&e) else { return e };
            (m.pg, m.from, m.epoch, m.interval) = (pg, from, now, interval);
            m.committed = next;
            m.envelope(Features::ALL)
        }
        OsdPeer::KIND => {
            let Ok(mut m) = OsdPeer::decode(&e) else { return e };
            (m.pg, m.from, m.epoch, m.interval) = (pg, from, now, interval);
            m.envelope(Features::ALL)
        }
        OsdPing::KIND => {
            let Ok(mut m) = OsdPing::decode(&e) else { return e };
            m.epoch = now;
            m.envelope(Features::ALL)
        }
        _ => e,
    }
}

/// One of the objects that the log tells of.
fn object_of(choices: &mut Choices<'_>, log: &crate::pg::PgLog) -> HObject {
    let entries = log.after(EVersion::ZERO);
    let Some(raw) = (!entries.is_empty()).then(|| choices.of(&entries)) else {
        return HObject::min();
    };
    PgLogEntry::from_bytes(raw).map_or_else(|_| HObject::min(), |e| e.oid)
}

/// Numbers that mean something in this cluster.
fn known(c: &Cluster) -> Vec<u64> {
    let epoch = u64::from(c.map.epoch.0);
    vec![epoch, 5, 6, 0x1201, 0x2201, 300, 900]
}

const CODES: &[u16] = &[
    op::READ,
    op::STAT,
    op::MAPEXT,
    op::SPARSE_READ,
    op::NOTIFY,
    op::NOTIFY_ACK,
    op::ASSERT_VER,
    op::LIST_WATCHERS,
    op::LIST_SNAPS,
    op::SYNC_READ,
    op::TMAPGET,
    op::OMAPGETKEYS,
    op::OMAPGETVALS,
    op::OMAPGETHEADER,
    op::OMAPGETVALSBYKEYS,
    op::OMAP_CMP,
    op::COPY_GET,
    op::CHECKSUM,
    op::CMPEXT,
    op::ISDIRTY,
    op::GETXATTR,
    op::GETXATTRS,
    op::CMPXATTR,
    op::CALL,
    op::PGLS,
    op::PGLS_FILTER,
    op::PG_HITSET_LS,
    op::PG_HITSET_GET,
    op::PGNLS,
    op::PGNLS_FILTER,
    op::SCRUBLS,
    op::WRITE,
    op::WRITEFULL,
    op::TRUNCATE,
    op::ZERO,
    op::DELETE,
    op::APPEND,
    op::SETTRUNC,
    op::TRIMTRUNC,
    op::TMAPUP,
    op::TMAPPUT,
    op::CREATE,
    op::ROLLBACK,
    op::WATCH,
    op::OMAPSETVALS,
    op::OMAPSETHEADER,
    op::OMAPCLEAR,
    op::OMAPRMKEYS,
    op::COPY_FROM,
    op::UNDIRTY,
    op::SETALLOCHINT,
    op::CACHE_PIN,
    op::CACHE_UNPIN,
    op::WRITESAME,
    op::OMAPRMKEYRANGE,
    op::COPY_FROM2,
    op::SETXATTR,
    op::SETXATTRS,
    op::RESETXATTRS,
    op::RMXATTR,
    op::CACHE_FLUSH,
    op::CACHE_EVICT,
    op::CACHE_TRY_FLUSH,
    0x2fff,
    0,
];

fn operation(c: &mut Choices<'_>) -> OsdOp {
    let data = match c.below(6) {
        0 => Bytes::new(),
        1 => omap("key", "value").data,
        2 => attribute("x", "value").data,
        3 => copy_of("a").data,
        4 => vec![b'z'; c.below(3_000) as usize].into(),
        _ => (0..c.below(40)).map(|_| c.byte()).collect::<Vec<_>>().into(),
    };
    let data = if c.once_in(3) { c.changed(&data, &[]) } else { data };
    let len = data.len() as u64;
    let mut o = OsdOp::extent(*c.of(CODES), c.edge(&[1 << 22]), c.edge(&[len, len]), data);
    if !c.once_in(3) {
        o.put_u64(8, len);
    }
    if c.once_in(3) {
        o.put_u64(0, 0);
    }
    for _ in 0..c.below(3) {
        let at = c.below(20) as usize;
        o.put_u64(at, c.edge(&[]));
    }
    o.flags = if c.once_in(3) { u32::from(c.byte()) } else { 0 };
    o
}

/// A request of a client with all rights.
fn request(c: &Cluster, choices: &mut Choices<'_>) -> (usize, Envelope) {
    let pool = *choices.of(&[REPLICATED, REPLICATED, CODED, PoolId(3), PoolId(-1)]);
    let oid = Bytes::from_static(choices.of(&OBJECTS).as_bytes());
    let hash = HObject::hash_of(b"", &oid);
    let raw = PgId { pool, ps: hash };
    let pg = c.map.raw_pg_to_pg(raw).unwrap_or(raw);
    let leads = c.map.pg_to_up_acting(pg).acting_primary.map_or(1, |o| o.0 as usize);
    let at = if choices.once_in(6) { choices.below(OSDS as u64) as usize } else { leads };
    let epoch = match choices.below(12) {
        0 => Epoch(choices.edge(&[u64::from(c.map.epoch.0)]) as u32),
        _ => c.map.epoch,
    };
    let ops: Vec<OsdOp> = (0..choices.below(6)).map(|_| operation(choices)).collect();
    let snaps = (0..choices.below(3)).map(|_| SnapId(choices.edge(&[1, 2]))).collect();
    let msg = MOsdOp {
        pg: pg.into(),
        epoch,
        flags: req_flag::ACK | req_flag::ONDISK | choices.edge(&[0, 0, 0x20, 0x30]) as u32,
        reqid: ReqId { tid: choices.edge(&[]), ..ReqId::default() },
        ops,
        snapid: SnapId(*choices.of(&[SnapId::HEAD.0, SnapId::HEAD.0, 1, SnapId::DIR.0, 0])),
        snap_seq: SnapId(choices.edge(&[1, 2])),
        snaps: if choices.once_in(3) { snaps } else { Vec::new() },
        ..asks(pool, oid)
    };
    let e = msg.envelope(Features::TENTACLE_WORD).with_tid(1 << 40);
    let e = if choices.once_in(4) { choices.changed_message(&e, &known(c)) } else { e };
    (at, e)
}

/// A map that no monitor made, as the next one.
fn forged_map(c: &Cluster, choices: &mut Choices<'_>) -> Option<Envelope> {
    let mut inc = c.next_inc();
    let osd = OsdId(choices.edge(&[1, 2]) as i32);
    let pg = PgId { pool: REPLICATED, ps: choices.edge(&[]) as u32 };
    match choices.below(8) {
        0 => inc.new_max_osd = Some(choices.edge(&[]).min(1_000) as i32),
        1 => drop(inc.new_state.insert(osd, choices.edge(&[]) as u32)),
        2 => drop(inc.new_pg_temp.insert(pg, vec![osd; choices.below(50) as usize])),
        3 => drop(inc.new_pg_upmap.insert(pg, vec![osd; choices.below(50) as usize])),
        4 => drop(inc.old_pools.insert(REPLICATED)),
        5 => {
            let pool = inc.pool_mut(&c.map, REPLICATED)?;
            pool.size = choices.byte();
            pool.min_size = choices.byte();
            pool.pg_num = choices.edge(&[]).min(300) as u32;
            pool.pgp_num = choices.edge(&[]).min(300) as u32;
            pool.crush_rule = choices.edge(&[]) as u8;
        }
        6 => drop(inc.new_weight.insert(osd, choices.edge(&[]) as u32)),
        _ => drop(inc.new_primary_affinity.insert(osd, choices.edge(&[]) as u32)),
    }
    let sealed = inc.seal(&c.map, Features::TENTACLE_WORD).ok()?;
    let epoch = sealed.map.epoch;
    let (mut fulls, mut incrementals) = (BTreeMap::new(), BTreeMap::new());
    match choices.once_in(2) {
        true => incrementals.insert(epoch, sealed.incremental),
        // Also under an epoch that is not its own.
        false => fulls.insert(Epoch(epoch.0 + choices.below(2) as u32), sealed.full),
    };
    let m = OsdMapMsg {
        fsid: Uuid([7; 16]),
        incrementals,
        fulls,
        oldest: Epoch(1),
        newest: Epoch(epoch.0 + choices.below(3) as u32),
    };
    Some(m.envelope(Features::TENTACLE_WORD))
}

/// Takes an input as what peers do; see the module.
///
/// # Panics
/// When something of it breaks what must hold.
pub fn run(input: &[u8]) {
    let mut choices = Choices::new(input);
    let mut c = Cluster::on_disks(OSDS, 9);
    filled(&mut c);
    let mut forged = false;
    for _ in 0..STEPS_MAX {
        if choices.is_over() {
            break;
        }
        match choices.below(16) {
            0 => c.tick(100 << choices.below(6)),
            1 => {
                let pool = *choices.of(&[REPLICATED, CODED]);
                let name = *choices.of(&OBJECTS);
                c.ask(pool, name, full(b"an honest client's"));
                c.client_step();
            }
            2..=5 => {
                let (at, e) = request(&c, &mut choices);
                let conn = c.client_conn(at);
                c.event(at, |osd, now, out| osd.on_message(now, conn, e, out));
            }
            6 if choices.once_in(6) => {
                let Some(e) = forged_map(&c, &mut choices) else { continue };
                forged = true;
                tell(&mut c, 1 + choices.below(3) as usize, e);
            }
            _ => {
                let at = 1 + choices.below(OSDS as u64 - 1) as usize;
                let e = choices.of(&SENT).clone();
                let e = timely(&c, &mut choices, at, e);
                let e = choices.changed_message(&e, &known(&c));
                tell(&mut c, at, e);
            }
        }
        for _ in 0..choices.below(40) {
            c.step();
        }
        assert!(c.stopped.is_empty(), "an OSD stopped: {:?}", c.stopped);
    }
    holds(c, forged);
}

/// The liar says it to that OSD.
fn tell(c: &mut Cluster, at: usize, e: Envelope) {
    let conn = c.conn(at, LIAR);
    c.event(at, |osd, now, out| osd.on_message(now, conn, e, out));
}

/// What must hold whatever was said.
fn holds(mut c: Cluster, forged: bool) {
    for round in 0..6 {
        for _ in 0..3_000 {
            if !c.step() {
                break;
            }
        }
        c.tick(500 << (round % 3));
    }
    // Who is known to lie is stopped and taken out of the map.
    c.kill(LIAR);
    let mut inc = c.next_inc();
    if c.map.is_up(OsdId(LIAR as i32)) {
        inc.new_state.insert(OsdId(LIAR as i32), 2);
    }
    inc.new_weight.insert(OsdId(LIAR as i32), 0);
    c.publish(inc);
    c.asked.clear();
    if !forged {
        let pool = c.make_pool(2, 2);
        for name in OBJECTS {
            let wrote = c.ask(pool, name, full(name.as_bytes()));
            assert_eq!(answered(&mut c, wrote), Some(0), "a write in a pool of the others");
            let whole = OsdOp::extent(op::READ, 0, 0, Bytes::new());
            let read = c.ask(pool, name, vec![whole]);
            assert_eq!(answered(&mut c, read), Some(0), "a read in a pool of the others");
        }
    }
    assert!(c.stopped.is_empty(), "an OSD stopped: {:?}", c.stopped);
    for (at, conn) in &c.closed {
        let to = (0..OSDS).find(|peer| peer != at && c.conn(*at, *peer) == *conn);
        assert!(to.is_none_or(|to| to == LIAR || *at == LIAR), "osd.{at} closed osd.{to:?}");
    }
    let disks = c.disks.clone();
    drop(c);
    for (osd, disk) in disks.into_iter().enumerate().skip(1) {
        let mut store = Store::open_on(disk, on_disk()).expect("a store is opened again");
        let errors = store.fsck(true).expect("it can be looked at").errors;
        assert_eq!(errors, Vec::<String>::new(), "osd.{osd}");
    }
}

fn answered(c: &mut Cluster, tid: u64) -> Option<i32> {
    for _ in 0..ROUNDS {
        c.client_step();
        for _ in 0..5_000 {
            if let Some(reply) = c.answers.remove(&tid) {
                return Some(reply.result);
            }
            if !c.step() {
                break;
            }
        }
        c.tick(400);
    }
    None
}

#[cfg(test)]
mod tests {
    use env::{Random, Seeded};

    /// Bytes of one input.
    const INPUT: usize = 1_200;
    /// Inputs of each test run; `ARGONAUT_FUZZ` asks for more.
    const INPUTS: u64 = 60;

    #[test]
    fn osds_take_whatever_proved_peers_say() {
        let number = |name: &str| std::env::var(name).ok().and_then(|n| n.parse::<u64>().ok());
        let first = number("ARGONAUT_FUZZ_FROM").unwrap_or(0);
        let mut broke = Vec::new();
        for seed in first..first + number("ARGONAUT_FUZZ").unwrap_or(INPUTS) {
            let mut input = vec![0; INPUT];
            Seeded(seed).fill(&mut input);
            if std::panic::catch_unwind(|| super::run(&input)).is_err() {
                eprintln!("seed {seed}");
                broke.push(seed);
            }
        }
        assert!(broke.is_empty(), "of seeds {broke:?}");
    }
}
