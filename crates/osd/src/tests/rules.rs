//! Who may, when not, and who waits.

use bytes::Bytes;
use denc::Features;
use maps::PoolFlags;
use messages::{Message, OsdMapMsg, OsdOp, WatchNotify, op};
use types::{Denc, EntityAddr, EntityId, EntityKind, EntityName, PoolId, UTime};

use super::cluster::{Cluster, client_addr};
use crate::PeerInfo;
use crate::backing::Coll;
use crate::object::{INFO_ATTR, ObjectInfo};

const POOL: PoolId = PoolId(1);

pub fn full(data: &'static [u8]) -> Vec<OsdOp> {
    vec![OsdOp::extent(op::WRITEFULL, 0, data.len() as u64, Bytes::from_static(data))]
}

pub fn read() -> Vec<OsdOp> {
    vec![OsdOp::extent(op::READ, 0, 0, Bytes::new())]
}

pub fn settle_maps(c: &mut Cluster) {
    for _ in 0..4 {
        while c.step() {}
        c.tick(300);
    }
}

#[test]
fn capabilities_are_enforced() {
    let mut c = Cluster::ready(1, 1, 1, 1);
    assert_eq!(c.run(POOL, "pub_x", full(b"x")).result, 0);
    for (caps, write, read_result) in [
        ("allow r", -1, 0),
        ("allow rw", 0, 0),
        ("allow w", 0, -1),
        ("allow rw pool=pool1", 0, 0),
        ("allow rw pool=other", -1, -1),
        ("allow rw object_prefix pub_", 0, 0),
        ("allow rw object_prefix priv_", -1, -1),
        ("allow *", 0, 0),
        ("allow * network 10.0.0.0/8", -1, -1),
        ("allow * network 127.0.0.0/8", 0, 0),
        ("allow rw network 10.0.0.0/8", -1, -1),
        ("no such grammar", -1, -1),
        ("", -1, -1),
    ] {
        c.caps = caps.into();
        c.break_client(0);
        assert_eq!(c.run(POOL, "pub_x", full(b"x")).result, write, "{caps}");
        let r = c.run(POOL, "pub_x", read());
        assert_eq!(r.result, read_result, "{caps}");
        assert!(read_result == 0 || r.ops[0].data.is_empty(), "{caps}: nothing leaks");
    }
}

/// Whoever copies an object must be allowed to read it, wherever it is.
#[test]
fn sources_of_copies_are_judged() {
    let mut c = Cluster::ready(1, 1, 1, 1);
    c.make_pool(1, 1);
    c.settle();
    let other = PoolId(2);
    assert_eq!(c.run(POOL, "sec1", full(b"x")).result, 0);
    for (caps, result) in [
        ("allow rw pool=pool2", -1),
        ("allow rw pool=pool2, allow w pool=pool1", -1),
        ("allow rw pool=pool2, allow r pool=pool1 object_prefix pub", -1),
        ("allow rw pool=pool2, allow r pool=pool1 namespace=n", -1),
        ("allow rw pool=pool2, allow r pool=pool1 object_prefix sec", 0),
        ("allow rw pool=pool2, allow r pool=pool1", 0),
        ("allow rw", 0),
        ("allow *", 0),
    ] {
        c.caps = caps.into();
        c.break_client(0);
        for code in [op::COPY_FROM, op::COPY_FROM2] {
            let mut copy = super::copies::copy("sec1", 0);
            copy[0].code = code;
            // Among others, too.
            let vector = [full(b"first"), copy].concat();
            assert_eq!(c.run(other, "stolen", vector).result, result, "{caps} {code:x}");
        }
    }
}

/// Classes and methods that are not here are told from what is not allowed, as by the peer: before
/// anybody's caps are asked for.
#[test]
fn missing_classes_come_before_caps() {
    let mut c = Cluster::ready(1, 1, 1, 1);
    assert_eq!(c.run(POOL, "o", full(b"x")).result, 0);
    let call = |class: &str, method: &str| {
        let input = Bytes::from([class, method].concat());
        let mut o = OsdOp::new(op::CALL, input);
        (o.raw[0], o.raw[1]) = (class.len() as u8, method.len() as u8);
        vec![o]
    };
    for caps in ["allow *", "allow rwx", "allow rw", "allow r", "allow r pool=other", ""] {
        c.caps = caps.into();
        c.break_client(0);
        let mut calls = |class, method| c.run(POOL, "o", call(class, method)).result;
        assert_eq!(calls("nosuch", "nosuch"), -1, "{caps}");
        assert_eq!(calls("rbd", "nosuch"), -95, "{caps}");
        if !caps.contains('x') && !caps.contains('*') {
            assert_eq!(calls("rbd", "get_size"), -1, "{caps}");
        }
    }
}

/// Whom the map shuts out, as long as it does: the clock here, by which the second time is long over,
/// has no say.
#[test]
fn fenced_clients_are_told() {
    let mut c = Cluster::ready(1, 1, 1, 1);
    for sec in [u32::MAX, 1] {
        let mut inc = c.inc();
        inc.new_blocklist.insert(client_addr(), UTime { sec, nsec: 0 });
        c.publish(inc);
        settle_maps(&mut c);
        assert_eq!(c.run(POOL, "x", full(b"x")).result, -108, "until {sec}");
        assert_eq!(c.run(POOL, "x", read()).result, -108, "until {sec}");
        let mut inc = c.inc();
        inc.old_blocklist.push(client_addr());
        c.publish(inc);
        settle_maps(&mut c);
        assert_eq!(c.run(POOL, "x", full(b"x")).result, 0);
    }
}

fn at(ip: &str) -> EntityAddr {
    EntityAddr::msgr2(format!("{ip}:0").parse().unwrap(), 4242)
}

/// The client connects to an OSD anew: with these caps, by the address that it says it has, and from
/// where its socket shows.
fn open_from(c: &mut Cluster, osd: usize, caps: &str, says: &str, from: &str) {
    let info = PeerInfo {
        who: EntityId::new(EntityKind::CLIENT, 4100),
        name: EntityName::new(EntityKind::CLIENT, "x"),
        addr: at(says),
        from: at(from),
        features: Features::TENTACLE_WORD,
        caps: caps.into(),
        allow_all: false,
        door: crate::Door::Public,
    };
    c.break_client(osd);
    let conn = c.client_conn(osd);
    c.nodes[osd].osd.as_mut().unwrap().on_open(conn, info);
}

/// Caps that are bound to a network, and the blocklist, go by where the socket says that a client is,
/// whatever it says itself; the blocklist by both.
#[test]
fn networks_are_seen() {
    let mut c = Cluster::ready(1, 1, 1, 1);
    let open = |c: &mut Cluster, caps: &str, says: &str, from: &str| {
        open_from(c, 0, caps, says, from);
    };
    let (here, there) = ("127.0.0.1", "10.0.0.1");
    for (caps, says, from, result) in [
        ("allow rw network 10.0.0.0/8", there, here, -1),
        ("allow * network 10.0.0.0/8", there, here, -1),
        ("allow rw network 10.0.0.0/8", here, there, 0),
        ("allow rw network 127.0.0.0/8", there, here, 0),
        ("allow rw", there, here, 0),
    ] {
        open(&mut c, caps, says, from);
        assert_eq!(c.run(POOL, "x", full(b"x")).result, result, "{caps} {says} {from}");
    }
    let mut inc = c.inc();
    inc.new_blocklist.insert(at(here), UTime { sec: u32::MAX, nsec: 0 });
    c.publish(inc);
    settle_maps(&mut c);
    for (says, from, result) in [(there, here, -108), (here, there, -108), (there, there, 0)] {
        open(&mut c, "allow rw", says, from);
        assert_eq!(c.run(POOL, "x", full(b"x")).result, result, "{says} {from}");
    }
}

/// A request without operations is EINVAL, before anybody's caps are asked for.
#[test]
fn nothing_is_no_request() {
    let mut c = Cluster::ready(1, 1, 1, 1);
    for caps in ["allow *", "allow r", "allow r pool=other", ""] {
        c.caps = caps.into();
        c.break_client(0);
        assert_eq!(c.run(POOL, "x", Vec::new()).result, -22, "{caps}");
    }
}

/// A write is under way and a read waits for it when their client is fenced by `addr`: what had begun
/// ends, what waits is refused.
fn fence_what_waits(c: &mut Cluster, addr: EntityAddr) {
    let osds = c.nodes.len();
    c.held = (0..osds * osds).map(|n| (n / osds, n % osds)).collect();
    let w = c.ask(POOL, "x", full(b"under way"));
    let behind = c.ask(POOL, "x", read());
    c.client_step();
    while c.step() {}
    assert!(c.answers.is_empty(), "one waits for the copies, the other for the first");
    let mut inc = c.inc();
    inc.new_blocklist.insert(addr, UTime { sec: u32::MAX, nsec: 0 });
    c.publish(inc);
    while c.step() {}
    c.held.clear();
    c.settle();
    assert_eq!((c.answers[&w].result, c.answers[&behind].result), (0, -108));
}

/// What waits when its client is fenced is not done later: who fenced it counts on that.
#[test]
fn what_waits_is_fenced_too() {
    let mut c = Cluster::ready(3, 3, 1, 1);
    c.run(POOL, "x", full(b"before"));
    fence_what_waits(&mut c, client_addr());
}

/// So it is for the address that its client really has, whatever the client says; its watches end.
#[test]
fn what_waits_and_watches_is_fenced_by_the_socket() {
    let mut c = Cluster::ready(2, 2, 1, 1);
    c.run(POOL, "x", full(b"before"));
    c.run(POOL, "w", full(b"watched"));
    let pg = c.map.pg_to_up_acting(types::PgId { pool: POOL, ps: 0 });
    let primary = pg.acting_primary.expect("it is led").0 as usize;
    open_from(&mut c, primary, "allow rw", "10.0.0.1", "127.0.0.1");
    assert_eq!(c.run(POOL, "w", watch_op(3)).result, 0);
    fence_what_waits(&mut c, at("127.0.0.1"));
    for i in [primary, 1 - primary, primary] {
        c.event(i, |osd, now, out| osd.on_tick(now, out));
        while c.step() {}
    }
    let store = c.nodes[primary].store.lock();
    let pg = types::PgId { pool: POOL, ps: 0 };
    let objects = &store.now[&Coll::Pg(pg.into())].objects;
    let raw = &objects.iter().find(|(o, _)| o.name == "w").unwrap().1.attrs[INFO_ATTR];
    assert!(ObjectInfo::from_bytes(raw).unwrap().watchers.is_empty());
}

/// Below `min_size` nobody is served; what waited is done once there are enough again.
#[test]
fn too_few_copies_do_not_serve() {
    let mut c = Cluster::ready(3, 3, 1, 1);
    c.run(POOL, "x", full(b"before"));
    for i in [1, 2] {
        c.kill(i);
        c.mark_down(i);
    }
    settle_maps(&mut c);
    let (w, r) = (c.ask(POOL, "x", full(b"after")), c.ask(POOL, "x", read()));
    for _ in 0..10 {
        c.client_step();
        settle_maps(&mut c);
    }
    assert!(!c.answers.contains_key(&w) && !c.answers.contains_key(&r));
    c.start(1);
    c.start(2);
    c.settle();
    assert_eq!(c.answers[&w].result, 0);
    assert_eq!(c.answers[&r].ops[0].data.as_ref(), b"after");
}

/// A read never shows what a crash could take back.
#[test]
fn reads_wait_for_durability() {
    let mut c = Cluster::ready(3, 3, 1, 1);
    c.run(POOL, "x", full(b"old"));
    c.ask(POOL, "x", full(b"new"));
    let r = c.ask(POOL, "x", read());
    c.client_step();
    let mut shown = None;
    while c.step() {
        if shown.is_none() && c.answers.contains_key(&r) {
            shown = Some(c.nodes.iter().map(|n| n.store.lock().queued()).collect::<Vec<_>>());
        }
    }
    assert_eq!(c.answers[&r].ops[0].data.as_ref(), b"new");
    assert_eq!(shown, Some(vec![0, 0, 0]), "all copies were durable when it was answered");
}

/// Old maps are let go at some step, and PGs are saved with it; those that this very step
/// makes are not there yet.
#[test]
fn pools_are_made_while_maps_are_trimmed() {
    let mut c = Cluster::ready(2, 2, 1, 1);
    let mut last = POOL;
    let first = c.map.epoch;
    while c.map.epoch.0 < first.0 + 2 * crate::maphist::KEPT {
        // Maps come one, two and three at a time, so that each kind meets the trimming.
        for _ in 0..c.map.epoch.0 % 3 {
            c.set_pool(last, |p| p.quota_max_objects += 1);
        }
        let old = std::mem::replace(&mut last, c.make_pool(2, 1));
        c.rm_pool(old);
        settle_maps(&mut c);
    }
    assert_eq!(c.run(last, "y", full(b"y")).result, 0);
    assert!(c.nodes.iter().all(|n| n.osd.as_ref().unwrap().c.sb.oldest > first), "trimmed");
}

/// Deleted pools leave nothing behind, and a client with an old map is given the new one.
#[test]
fn deleted_pools_are_gone() {
    let mut c = Cluster::ready(2, 2, 4, 1);
    c.run(POOL, "x", full(b"x"));
    c.rm_pool(POOL);
    settle_maps(&mut c);
    for n in &c.nodes {
        assert!(n.osd.as_ref().unwrap().pgs.is_empty());
        assert_eq!(n.store.lock().now.len(), 1, "only the OSD's own collection is left");
    }
    let pool = c.make_pool(2, 4);
    settle_maps(&mut c);
    c.run(pool, "y", full(b"y"));
    let newest = c.map.epoch;
    c.set_pool(pool, |p| p.flags.set(PoolFlags::NODELETE, true));
    for i in 0..2 {
        c.send_maps(i);
    }
    c.told.clear();
    // The client has not looked at the newest map.
    c.ask(pool, "y", read());
    c.send_with_old_map(newest);
    settle_maps(&mut c);
    let maps: Vec<OsdMapMsg> = c
        .told
        .iter()
        .filter(|e| e.kind == OsdMapMsg::KIND)
        .map(|e| OsdMapMsg::decode(e).unwrap())
        .collect();
    assert_eq!(maps.len(), 1);
    assert_eq!(maps[0].incrementals.keys().next().map(|e| e.0), Some(newest.0 + 1));
}

/// A client that is far behind is led to the newest map by each step, as it wants them; one that is
/// further behind than maps are kept is told that there are none before the newest.
#[test]
fn clients_catch_up_from_afar() {
    let mut c = Cluster::ready(2, 2, 1, 1);
    c.run(POOL, "x", full(b"x"));
    let first = c.map.epoch;
    let lead = |c: &Cluster| c.map.pg_to_up_acting(types::PgId::new(1, 0)).acting_primary.unwrap();
    let shared = |c: &mut Cluster, known: types::Epoch| -> Vec<OsdMapMsg> {
        c.break_client(lead(c).0 as usize);
        c.told.clear();
        c.ask(POOL, "x", read());
        c.send_with_old_map(known);
        settle_maps(c);
        let maps = c.told.iter().filter(|e| e.kind == OsdMapMsg::KIND);
        maps.map(|e| OsdMapMsg::decode(e).unwrap()).collect()
    };
    let later = |c: &mut Cluster, n: u32| {
        let until = c.map.epoch.0 + n;
        while c.map.epoch.0 < until {
            c.set_pool(POOL, |p| p.quota_max_objects += 1);
            settle_maps(c);
        }
    };
    later(&mut c, 130);
    let maps = shared(&mut c, first);
    let steps: Vec<u32> = maps.iter().flat_map(|m| m.incrementals.keys().map(|e| e.0)).collect();
    assert_eq!(steps, (first.0 + 1..=c.map.epoch.0).collect::<Vec<_>>());
    assert!(maps.iter().all(|m| m.incrementals.len() <= 40 && m.newest == c.map.epoch));
    later(&mut c, 2 * crate::maphist::KEPT);
    let maps = shared(&mut c, first);
    assert_eq!(maps.len(), 1);
    assert_eq!(maps[0].fulls.keys().collect::<Vec<_>>(), [&c.map.epoch]);
    assert_eq!((maps[0].oldest, maps[0].incrementals.len()), (c.map.epoch, 0));
}

/// An OSD that has no maps between goes to the oldest that monitors have, and on no other OSD's word:
/// that one may have passed over steps itself.
#[test]
fn monitors_say_which_maps_are_gone() {
    let mut c = Cluster::ready(2, 2, 1, 1);
    let have = c.map.epoch;
    for _ in 0..3 {
        c.set_pool(POOL, |p| p.quota_max_objects += 1);
    }
    let newest = c.map.epoch;
    let whole = c.map.to_bytes_for(denc::Features::TENTACLE_WORD);
    let message = OsdMapMsg {
        fsid: c.nodes[0].osd.as_ref().unwrap().c.id.fsid,
        oldest: newest,
        newest,
        fulls: [(newest, whole)].into(),
        ..OsdMapMsg::default()
    };
    for (by_mon, then) in [(false, have), (true, newest)] {
        c.event(0, |osd, now, out| osd.on_maps(now, &message, by_mon, out));
        assert_eq!(c.nodes[0].osd.as_ref().unwrap().c.map.epoch, then);
    }
}

/// An operator had an OSD lead that does not act (`primary_temp`), beside the only copy: that it knows of
/// the end of it is asked, for what it was promised is renewed as long as it lives.
#[test]
fn who_led_without_acting_is_asked() {
    let mut c = Cluster::ready(3, 1, 1, 1);
    c.run(POOL, "x", full(b"x"));
    c.make_pool(3, 8); // all OSDs have something in common, and heartbeats
    settle_maps(&mut c);
    let pg = types::PgId::new(1, 0);
    let acting = c.map.pg_to_up_acting(pg).acting;
    let other = (0..3).map(types::OsdId).find(|o| !acting.contains(o)).unwrap();
    for leads in [other, types::OsdId(-1)] {
        let mut inc = c.inc();
        inc.new_primary_temp.insert(pg, leads);
        c.publish(inc);
        settle_maps(&mut c);
        // As other PGs would have it.
        let mut inc = c.inc();
        inc.new_up_thru.insert(other, c.map.epoch);
        c.publish(inc);
        settle_maps(&mut c);
    }
    assert_eq!(c.run(POOL, "x", read()).ops[0].data.as_ref(), b"x");
}

/// A notification reaches the watcher; the notifier hears who answered and who did not.
#[test]
fn watch_and_notify() {
    let mut c = Cluster::ready(1, 1, 1, 1);
    c.run(POOL, "w", full(b"x"));
    let mut watch = OsdOp::new(op::WATCH, Bytes::new());
    watch.put_u64(0, 77);
    watch.raw[16] = 3;
    assert_eq!(c.run(POOL, "none", vec![watch.clone()]).result, -2);
    assert_eq!(c.run(POOL, "w", vec![watch.clone()]).result, 0);
    let mut notify =
        OsdOp::new(op::NOTIFY, Bytes::from_static(b"\x01\0\0\0\x05\0\0\0\x02\0\0\0hi"));
    notify.put_u64(0, 99);
    let answer = |c: &mut Cluster| {
        let r = c.run(POOL, "w", vec![notify.clone()]);
        let id = u64::from_le_bytes(r.ops[0].data[..].try_into().unwrap());
        while c.step() {}
        id
    };
    let told = |c: &mut Cluster, opcode: u8| -> WatchNotify {
        let all = c.told.iter().filter(|e| e.kind == WatchNotify::KIND);
        let found = all.map(|e| WatchNotify::decode(e).unwrap()).find(|m| m.opcode == opcode);
        found.expect("it was told")
    };
    let id = answer(&mut c);
    let m = told(&mut c, 1);
    assert_eq!((m.cookie, m.notify_id, m.payload.as_ref()), (77, id, &b"hi"[..]));
    let mut ack = id.to_le_bytes().to_vec();
    ack.extend(77u64.to_le_bytes());
    ack.extend(b"\x03\0\0\0yes");
    c.run(POOL, "w", vec![OsdOp::new(op::NOTIFY_ACK, ack.into())]);
    let m = told(&mut c, 2);
    assert_eq!((m.cookie, m.return_code), (99, 0));
    assert_eq!(m.replies.len(), 4 + 8 + 8 + 4 + 3 + 4);
    // Nobody answers this one.
    c.told.clear();
    answer(&mut c);
    c.tick(6_000);
    while c.step() {}
    assert_eq!(told(&mut c, 2).return_code, -110);
    // And a silent watcher is forgotten in the end.
    c.tick(31_000);
    while c.step() {}
    let r = c.run(POOL, "w", vec![OsdOp::new(op::LIST_WATCHERS, Bytes::new())]);
    assert_eq!(r.ops[0].data.as_ref(), b"\x01\x01\x04\0\0\0\0\0\0\0");
}

/// A watcher whose connection broke hears what was said meanwhile when it is back, by a
/// reconnect or by its next sign of life.
#[test]
fn notifications_wait_for_their_watcher() {
    for back in [5, 7] {
        let mut c = Cluster::ready(1, 1, 1, 1);
        c.run(POOL, "w", full(b"x"));
        let watch = |what: u8| {
            let mut op = OsdOp::new(op::WATCH, Bytes::new());
            op.put_u64(0, 77);
            op.raw[16] = what;
            vec![op]
        };
        assert_eq!(c.run(POOL, "w", watch(3)).result, 0);
        c.break_client(0);
        let notify =
            OsdOp::new(op::NOTIFY, Bytes::from_static(b"\x01\0\0\0\x05\0\0\0\x02\0\0\0hi"));
        c.told.clear();
        assert_eq!(c.run(POOL, "w", vec![notify]).result, 0);
        while c.step() {}
        let told = |c: &Cluster| c.told.iter().filter(|e| e.kind == WatchNotify::KIND).count();
        assert_eq!(told(&c), 0, "nobody is there to hear it");
        assert_eq!(c.run(POOL, "w", watch(back)).result, 0);
        while c.step() {}
        assert_eq!(told(&c), 1, "operation {back}");
        assert_eq!(c.run(POOL, "w", watch(back)).result, 0);
    }
}

fn watch_op(kind: u8) -> Vec<OsdOp> {
    let mut watch = OsdOp::new(op::WATCH, Bytes::new());
    watch.put_u64(0, 77);
    watch.raw[16] = kind;
    vec![watch]
}

/// Notifies with so many seconds to answer; its number.
fn notify(c: &mut Cluster, secs: u8) -> u64 {
    let body = [1, 0, 0, 0, secs, 0, 0, 0, 2, 0, 0, 0, b'h', b'i'];
    let mut o = OsdOp::new(op::NOTIFY, Bytes::copy_from_slice(&body));
    o.put_u64(0, 99);
    let r = c.run(POOL, "w", vec![o]);
    let id = u64::from_le_bytes(r.ops[0].data[..].try_into().unwrap());
    while c.step() {}
    id
}

fn told(c: &mut Cluster, opcode: u8) -> Vec<WatchNotify> {
    let all = std::mem::take(&mut c.told);
    let all = all.iter().filter(|e| e.kind == WatchNotify::KIND);
    all.map(|e| WatchNotify::decode(e).unwrap()).filter(|m| m.opcode == opcode).collect()
}

/// A request to watch whose answer was lost comes again: the watch is this connection's now, or,
/// when it has ended since, that is the answer.
#[test]
fn watching_is_asked_again() {
    for ends in [false, true] {
        let mut c = Cluster::ready(1, 1, 1, 1);
        c.run(POOL, "w", full(b"x"));
        let tid = c.ask(POOL, "w", watch_op(3));
        c.client_step();
        c.run_unheard();
        assert!(c.has_answer(0));
        c.break_client(0);
        if ends {
            for secs in [31, 1] {
                c.now.mono_ns += secs * 1_000_000_000;
                c.event(0, |osd, now, out| osd.on_tick(now, out));
                c.run_unheard();
            }
        }
        c.told.clear();
        let r = c.wait(tid);
        assert_eq!(r.result, if ends { -107 } else { 0 });
        notify(&mut c, 5);
        assert_eq!(told(&mut c, 1).len(), usize::from(!ends), "who watches hears it");
    }
}

/// A watch's time begins when its client hears of it, however long the write took.
#[test]
fn a_watch_lives_from_its_answer_on() {
    let mut c = Cluster::ready(1, 1, 1, 1);
    c.run(POOL, "w", full(b"x"));
    while c.step() {}
    let mut watch = watch_op(3);
    watch[0].put_u32(21, 3);
    let tid = c.ask(POOL, "w", watch);
    c.client_step();
    assert!(c.step() && c.nodes[0].store.lock().queued() > 0, "it is to be flushed");
    c.now.mono_ns += 2_500_000_000;
    assert_eq!(c.wait(tid).result, 0);
    let watchers = |c: &mut Cluster, ms: u64| {
        c.now.mono_ns += ms * 1_000_000;
        for _ in 0..2 {
            c.event(0, |osd, now, out| osd.on_tick(now, out));
            while c.step() {}
        }
        let r = c.run(POOL, "w", vec![OsdOp::new(op::LIST_WATCHERS, Bytes::new())]);
        r.ops[0].data[6]
    };
    assert_eq!(watchers(&mut c, 2_000), 1);
    assert_eq!(watchers(&mut c, 2_000), 0, "and ends without a sign of life");
}

/// A watch that was not heard of for long ends for notifications when it has ended on all
/// copies: before, it may come back with its record.
#[test]
fn watches_end_when_all_copies_know() {
    let mut c = Cluster::ready(2, 2, 1, 1);
    c.run(POOL, "w", full(b"x"));
    let mut watch = watch_op(3);
    watch[0].put_u32(21, 3);
    assert_eq!(c.run(POOL, "w", watch).result, 0);
    while c.step() {}
    notify(&mut c, 200);
    c.told.clear();
    let pg = types::PgId { pool: POOL, ps: 0 };
    let primary = c.map.pg_to_up_acting(pg).acting_primary.expect("it is led").0 as usize;
    let watchers = |c: &Cluster| {
        let store = c.nodes[1 - primary].store.lock();
        let objects = &store.now[&Coll::Pg(pg.into())].objects;
        let raw = &objects.iter().find(|(o, _)| o.name == "w").unwrap().1.attrs[INFO_ATTR];
        ObjectInfo::from_bytes(raw).unwrap().watchers.len()
    };
    assert_eq!(watchers(&c), 1);
    for _ in 0..40 {
        c.now.mono_ns += 250_000_000;
        for i in [1 - primary, primary] {
            c.event(i, |osd, now, out| osd.on_tick(now, out));
        }
        if c.has_answer(primary) {
            break;
        }
        while c.step() {}
    }
    assert!(c.has_answer(primary) && watchers(&c) == 0, "the other copy knows");
    while c.step() {}
    let done = told(&mut c, 2);
    assert_eq!(done.iter().map(|m| m.return_code).collect::<Vec<_>>(), [0]);
    assert_eq!(done[0].replies.as_ref(), [0; 8], "nobody was there any more");
    assert_eq!(c.run(POOL, "w", watch_op(5)).result, -107);
}

/// Whatever a request waits for, who asks what is under way is told of it.
#[test]
fn what_waits_is_told() {
    let mut c = Cluster::ready(2, 2, 1, 1);
    c.run(POOL, "x", full(b"x"));
    let pg = types::PgId { pool: POOL, ps: 0 };
    let lead = c.map.pg_to_up_acting(pg).acting_primary.unwrap().0 as usize;
    let points = |c: &Cluster| -> Vec<String> {
        let told = c.nodes[lead].osd.as_ref().unwrap().ops_in_flight(c.now, 0);
        let of = |o: &serde_json::Value| o["type_data"]["flag_point"].as_str().map(str::to_owned);
        told["ops"].as_array().unwrap().iter().filter_map(of).collect()
    };
    let ask = |c: &mut Cluster| {
        let tid = c.ask(POOL, "x", read());
        c.client_step();
        c.client_to(lead);
        tid
    };
    // Promises of the other copy are too old.
    c.now.mono_ns += 60_000_000_000;
    let unleased = ask(&mut c);
    assert_eq!(points(&c), ["waiting for readable"]);
    // The client has heard of a map that the OSD has not.
    let inc = c.inc();
    c.publish(inc);
    let early = ask(&mut c);
    assert_eq!(points(&c), ["waiting for readable", "waiting for map"]);
    let now = env::Now { mono_ns: c.now.mono_ns + 40_000_000_000, ..c.now };
    assert_eq!(c.nodes[lead].osd.as_ref().unwrap().slow_ops(now), (2, 40_000));
    c.settle();
    assert!(points(&c).is_empty() && [unleased, early].iter().all(|t| c.answers.contains_key(t)));
}

/// Options by command, and errors as the peer's.
#[test]
fn commands() {
    let mut c = Cluster::ready(1, 1, 1, 1);
    let mut tell = |cmd: &str| c.admin(0, cmd);
    assert_eq!(tell("version").0, -22);
    assert_eq!(tell("{}").0, -22);
    assert_eq!(tell(r#"{"prefix":""}"#).0, -22);
    assert_eq!(tell(r#"{"prefix":"no such thing"}"#).0, -22);
    assert_eq!(tell(r#"{"prefix":"version"}"#).0, 0);
    let set = r#"{"prefix":"config set","var":"osd_max_write_size","val":["7"]}"#;
    assert_eq!(tell(set).0, 0);
    let get = r#"{"prefix":"config get","var":"osd_max_write_size","format":"json"}"#;
    assert_eq!(tell(get), (0, r#"{"osd_max_write_size":"7"}"#.into()));
    assert_eq!(tell(r#"{"prefix":"config get","var":"nope"}"#).0, -2);
    assert_eq!(tell(r#"{"prefix":"config set","var":"nope","val":["1"]}"#).0, -22);
    let inject = r#"{"prefix":"injectargs","injected_args":["--osd-max-write-size 8"]}"#;
    assert_eq!(tell(inject).0, 0);
    assert_eq!(tell(get).1, r#"{"osd_max_write_size":"8"}"#);
    let pg = r#"{"prefix":"pg","cmd":"query","pgid":"1.0"}"#;
    assert!(tell(pg).1.contains("active+clean"));
    let all = tell(r#"{"prefix":"get_command_descriptions","format":"json"}"#).1;
    let all: serde_json::Value = serde_json::from_str(&all).unwrap();
    let sig = all.as_object().unwrap().values().find(|c| c["sig"][0] == "pg").unwrap();
    let action = &sig["sig"][3];
    assert_eq!((&action["strings"], &action["req"]), (&"revert|delete".into(), &"false".into()));
    let query: serde_json::Value = serde_json::from_str(&tell(pg).1).unwrap();
    for path in [
        "/info/history/last_interval_started",
        "/info/stats/stat_sum/num_read_kb",
        "/info/last_user_version",
        "/recovery_state/0/enter_time",
        "/recovery_state/0/recovery_progress/backfill_targets",
        "/snap_trimq_len",
    ] {
        assert!(query.pointer(path).is_some(), "{path}: {query}");
    }
    assert_eq!(query["recovery_state"][0]["name"], "Started/Primary/Active");
    assert_eq!(query["recovery_state"][1]["name"], "Started");
    assert_eq!(tell(r#"{"prefix":"query","pgid":"9.0"}"#).0, -2);
    assert_eq!(tell(r#"{"prefix":"query","pgid":"x"}"#).0, -22);
    for known in [
        "get_command_descriptions",
        "status",
        "perf dump",
        "perf schema",
        "config show",
        "config diff",
        "dump_ops_in_flight",
        "dump_historic_ops",
        "dump_blocked_ops",
        "dump_watchers",
        "dump_blocked_ops_count",
        "git_version",
        "list_devices",
        "log dump",
        "objecter_requests",
        "help",
    ] {
        let (r, out) = tell(&format!(r#"{{"prefix":"{known}","format":"json"}}"#));
        assert_eq!(r, 0, "{known}");
        assert!(serde_json::from_str::<serde_json::Value>(&out).is_ok(), "{known}: {out}");
    }
    let scrubs: serde_json::Value =
        serde_json::from_str(&tell(r#"{"prefix":"dump_scrubs","format":"json"}"#).1).unwrap();
    assert_eq!((&scrubs[0]["pgid"], &scrubs[0]["level"]), (&"1.0".into(), &"shallow".into()));
    assert_eq!(tell(r#"{"prefix":"get_mapped_pools","format":"json"}"#), (0, "[1]".into()));
    for quiet in ["compact", "send_beacon", "reset_pg_recovery_stats"] {
        assert_eq!(tell(&format!(r#"{{"prefix":"{quiet}"}}"#)), (0, String::new()), "{quiet}");
    }
    let bench = r#"{"prefix":"bench","count":1000000,"size":100000,"format":"json"}"#;
    assert!(tell(bench).1.contains(r#""bytes_written":1000000"#));
    assert_eq!(c.nodes[0].store.lock().now[&crate::Coll::Meta].objects.len(), 0, "tidied");
}

/// An object has so many watches, of one client and of all; who has one may renew it, and who ends
/// one makes room.
#[test]
fn watches_are_bounded() {
    let mut c = Cluster::ready(1, 1, 1, 1);
    assert_eq!(c.run(POOL, "o", full(b"x")).result, 0);
    let watch = |cookie: u64, kind: u8| {
        let mut o = OsdOp::new(op::WATCH, Bytes::new());
        o.put_u64(0, cookie);
        o.raw[16] = kind;
        o
    };
    let many = |from: u64, to: u64| (from..to).map(|n| watch(n, 3)).collect::<Vec<_>>();
    assert_eq!(c.run(POOL, "o", many(0, 1000)).result, 0);
    assert_eq!(c.run(POOL, "o", many(1000, 1025)).result, -24, "all or nothing");
    assert_eq!(c.run(POOL, "o", many(1000, 1024)).result, 0);
    assert_eq!(c.run(POOL, "o", many(1024, 1025)).result, -24);
    assert_eq!(c.run(POOL, "o", many(7, 8)).result, 0, "it is there");
    assert_eq!(c.run(POOL, "o", vec![watch(7, 0)]).result, 0);
    assert_eq!(c.run(POOL, "o", many(1024, 1025)).result, 0);
}

/// Notifications that nobody answers are bounded by their client's payloads; what is beyond ends at
/// once with EMFILE, and there is room again when their time is over.
#[test]
fn open_notifications_are_bounded() {
    let mut c = Cluster::ready(1, 1, 1, 1);
    c.run(POOL, "w", full(b"x"));
    assert_eq!(c.run(POOL, "w", watch_op(3)).result, 0);
    let ended = |c: &mut Cluster| {
        let mut body = vec![1, 0, 0, 0, 60, 0, 0, 0];
        body.extend((3u32 << 20).to_le_bytes());
        body.extend(vec![b'n'; 3 << 20]);
        assert_eq!(c.run(POOL, "w", vec![OsdOp::new(op::NOTIFY, body.into())]).result, 0);
        while c.step() {}
        told(c, 2).iter().map(|m| m.return_code).collect::<Vec<_>>()
    };
    assert_eq!(ended(&mut c), [0; 0], "it waits for its watcher");
    assert_eq!(ended(&mut c), [-24]);
    notify(&mut c, 60);
    assert_eq!(told(&mut c, 2), [], "a small one has room");
    c.run(POOL, "w", watch_op(7));
    c.tick(20_000);
    c.run(POOL, "w", watch_op(7));
    c.tick(20_000);
    c.run(POOL, "w", watch_op(7));
    c.tick(21_000);
    while c.step() {}
    assert_eq!(told(&mut c, 2).len(), 2, "their time is over");
    assert_eq!(ended(&mut c), [0; 0]);
}
