//! Who comes back after a start, who is not waited for, and what a server leaves that ends.

use std::sync::Arc;

use maps::OsdMap;
use maps::fs::JournalHeader;

use super::*;

fn object<'a>(w: &'a World, name: &str) -> Option<&'a Object> {
    w.pools.objects.get(&(META, name.to_owned()))
}

/// The map of OSDs shuts every client here out.
fn blocklist(w: &mut World) {
    let until = UTime { sec: 2_000_000_000, nsec: 0 };
    let list = [(EntityAddr::default().with_kind(types::AddrKind::ANY), until)].into();
    let map = OsdMap { blocklist: Arc::new(list), ..OsdMap::default() };
    w.osd.epoch.0 += 1;
    w.osd.map = Arc::new(map);
    let osd = w.osd.clone();
    w.call(|m, now, out| m.on_osd_map(now, &osd, out));
}

fn sessions(w: &World) -> usize {
    object(w, "mds0_sessionmap").expect("it was written").omap.len()
}

#[test]
fn nobody_waits_for_a_client_that_is_shut_out() {
    let mut w = World::new();
    w.ticks(8);
    assert_eq!(sessions(&w), 1);
    w.mds = new_mds(options());
    w.begin(MdsState::REPLAY);
    assert_eq!(w.state(), MdsState::RECONNECT, "a client is waited for");
    blocklist(&mut w);
    w.ticks(8);
    assert_eq!((w.state(), sessions(&w)), (MdsState::ACTIVE, 0));
    // Nor has it a session while the server goes on.
    w.heard.clear();
    w.open(CLIENT);
    w.ticks(8);
    let (_, heard) = w.heard.pop_front().expect("an answer");
    let heard = ClientSession::decode(&heard).unwrap();
    assert_eq!((heard.op, heard.detail.unwrap().flags), (session_op::REJECT, 1));
    assert_eq!(sessions(&w), 0);
    // And where the map says so before the start.
    w.mds = new_mds(options());
    w.begin(MdsState::REPLAY);
    w.ticks(1);
    assert_eq!(w.state(), MdsState::ACTIVE);
}

#[test]
fn a_session_ends_with_the_map_that_shuts_its_client_out() {
    let mut w = World::new();
    w.ticks(8);
    blocklist(&mut w);
    w.ticks(8);
    assert_eq!(sessions(&w), 0);
    assert_eq!(w.closed, [w.conn()]);
}

/// The monitors' word that clients may come back is at a client before it is here.
#[test]
fn a_client_comes_back_before_the_map_says_so() {
    let mut w = World::new();
    w.create("f");
    w.ticks(8);
    w.mds = new_mds(options());
    w.slow_map = true;
    w.begin(MdsState::REPLAY);
    assert_eq!(w.state(), MdsState::REPLAY);
    w.conns += 1;
    w.heard.clear();
    w.message(CLIENT, &ClientReconnect::default(), 0);
    assert!(w.heard.is_empty(), "it is not sent away");
    w.slow_map = false;
    w.ticks(8);
    assert_eq!(w.state(), MdsState::ACTIVE);
    assert!(w.stat("f").is_ok());
}

/// A server that ends with nobody to follow leaves the tree whole, a clean journal of the peer's,
/// and the sessions; the next one goes on with them.
#[test]
fn what_is_left_when_nobody_stands_by() {
    let mut w = World::new();
    w.create("f");
    w.mkdir("d");
    w.chmod("f", 0o600);
    w.call(|m, now, out| m.on_stop(now, true, out));
    assert!(!w.ended, "something is to be written");
    w.heard.clear();
    w.tid += 1;
    let tid = w.tid;
    w.message(CLIENT, &request(mds_op::MKDIR, 1, "late", &Args::Mode(0o755)), tid);
    w.ticks(12);
    assert!(w.ended && w.heard.is_empty(), "it ends, and does nothing new");
    let header = JournalHeader::from_bytes(&object(&w, "200.00000000").unwrap().data).unwrap();
    assert_eq!(
        header,
        JournalHeader { write_pos: header.expire_pos + 48, ..JournalHeader::empty(META) }
    );
    assert_eq!(object(&w, "200.00000001").unwrap().data.len(), 48);
    let ours = w.pools.objects.keys().filter(|(_, name)| name.starts_with("argo."));
    assert_eq!(ours.collect::<Vec<_>>(), Vec::<&(PoolId, String)>::new());
    assert_eq!(sessions(&w), 1);
    w.ended = false;
    w.restart();
    assert_eq!(w.stat("f").unwrap().0 & 0o777, 0o600);
    assert!(w.stat("d").is_ok() && w.stat("late").is_err());
    // The request that nobody answered is sent again, by its number.
    w.message(CLIENT, &request(mds_op::MKDIR, 1, "late", &Args::Mode(0o755)), tid);
    w.ticks(2);
    assert!(w.stat("late").is_ok());
}

/// With a standby it hands over at once; one that never had the rank just ends.
#[test]
fn a_server_with_a_standby_ends_at_once() {
    let mut w = World::new();
    w.create("f");
    w.call(|m, now, out| m.on_stop(now, false, out));
    assert!(w.ended);
    let mut new = new_mds(options());
    let mut out = Outbox::new();
    new.on_stop(w.now(), true, &mut out);
    let last = out.drain().last();
    assert!(matches!(last, Some(Effect::Beacon(b)) if b.state == MdsState::DNE));
}

/// What a client opened at the dead server it may use here, though it is not told of it again.
#[test]
fn a_client_gets_what_it_wants_after_it_came_back() {
    use crate::capset::bits;
    use messages::fs::CapReconnect;
    let mut w = World::new();
    let ino = w.create("f");
    let made = w.tid;
    w.ticks(8);
    w.mds = new_mds(options());
    w.begin(MdsState::REPLAY);
    w.conns += 1;
    w.heard.clear();
    let (issued, wanted) = (bits::PIN | bits::AS, bits::PIN | bits::FW | bits::FB);
    let cap = CapReconnect { cap_id: 7, wanted, issued, ..Default::default() };
    let m = ClientReconnect { caps: [(ino, cap)].into(), ..ClientReconnect::default() };
    w.message(CLIENT, &m, 0);
    w.ticks(8);
    assert_eq!(w.state(), MdsState::ACTIVE);
    let caps = w.heard.iter().filter(|(_, e)| e.kind == ClientCaps::KIND);
    let given = caps.fold(0, |all, (_, e)| all | ClientCaps::decode(e).unwrap().caps);
    assert_eq!(given & wanted, wanted, "{given:x}");
    // The create that it did not hear of is answered with what was made, and makes nothing.
    w.mds = new_mds(options());
    w.begin(MdsState::REPLAY);
    w.conns += 1;
    w.message(CLIENT, &ClientReconnect::default(), 0);
    w.ticks(8);
    w.heard.clear();
    let args = OpenArgs { flags: 0o301, mode: 0o644, pool: -1, ..OpenArgs::default() };
    w.message(CLIENT, &request(mds_op::CREATE, 1, "f", &Args::Open(args)), made);
    w.ticks(2);
    let (_, reply) = w.heard.iter().find(|(_, e)| e.kind == ClientReply::KIND).expect("an answer");
    let reply = ClientReply::decode(reply).unwrap();
    assert_eq!((reply.result, target(&reply)), (0, ino));
    assert_eq!(reply.target.unwrap().cap.caps & wanted, wanted);
}
