//! What Linux's client sends in another way than upstream's.

use messages::fs::{CapFile, ClientCaps, cap_op};

use super::early::{OTHER, Scene};
use super::*;
use crate::capset::bits;

/// It names no pool when it makes a file: it leaves zeros where others do.
#[test]
fn files_are_made_without_a_pool() {
    let mut w = World::new();
    let open = |pool| OpenArgs { flags: 0o101, mode: 0o644, pool, ..OpenArgs::default() };
    let create = |pool| request(mds_op::CREATE, 1, "f", &Args::Open(open(pool)));
    let named = w.ask(&create(0)).expect("an answer");
    assert_eq!(named.result, Errno::INVAL.0, "pool 0 is none of the file system's");

    let features = Features(Features::ALL.0 & !Features::CREATEPOOLID.0);
    let linux = Peer { features, ..peer(CLIENT + 1) };
    w.conns += 1;
    let conn = w.conn();
    let hello = ClientSession {
        op: session_op::REQUEST_OPEN,
        detail: Some(Box::default()),
        ..ClientSession::default()
    };
    let hello = hello.envelope(features);
    w.call(|m, now, out| m.on_message(now, conn, &linux, hello, out));
    let stamp = UTime::from_nanos(w.now().wall_ns);
    let make = ClientRequest { stamp, ..create(0) }.envelope(features).with_tid(1);
    w.heard.clear();
    w.call(|m, now, out| m.on_message(now, conn, &linux, make, out));
    w.ticks(4);
    let is_it = |(_, e): &&(ConnId, Envelope)| e.kind == ClientReply::KIND && e.tid == 1;
    let (_, reply) = w.heard.iter().find(is_it).expect("an answer");
    assert_eq!(ClientReply::decode(reply).expect("an answer").result, 0);
}

/// It waits for as much as it asked for and asks once: a write far behind a file's end gets all of it, up
/// to the largest file.
#[test]
fn a_write_far_behind_the_end_may_be() {
    let mut s = Scene::new();
    let made = s.create(CLIENT, "both/x");
    let stat = s.said(CLIENT, made).remove(0).target.expect("an inode");
    let (ino, caps) = (stat.ino, stat.cap.caps);
    assert!(caps & bits::FW != 0, "{caps:x}");
    let largest = 1 << 40;
    for (wish, least) in [((1 << 38) + 6, (1 << 38) + 6), (1 << 50, largest)] {
        let ask = ClientCaps {
            op: cap_op::UPDATE,
            ino,
            cap_id: stat.cap.cap_id,
            seq: stat.cap.seq,
            caps,
            wanted: caps,
            file: CapFile { max_size: wish, truncate_seq: 1, ..CapFile::default() },
            ..ClientCaps::default()
        };
        s.message(CLIENT, &ask, 0);
        s.write_all();
        let told = s.caps(CLIENT, ino).iter().map(|m| m.file.max_size).max();
        let told = told.expect("a message about its caps");
        assert!(told >= least && told < largest * 3, "{wish}: {told}");
    }
}

/// It does not tell how often the file was cut, where others do.
#[test]
fn sizes_are_told_without_a_count_of_cuts() {
    let mut s = Scene::new();
    let made = s.create(CLIENT, "both/x");
    let stat = s.said(CLIENT, made).remove(0).target.expect("an inode");
    let (ino, caps) = (stat.ino, stat.cap.caps);
    let flush = ClientCaps {
        op: cap_op::FLUSH,
        ino,
        cap_id: stat.cap.cap_id,
        seq: stat.cap.seq,
        caps: caps & !bits::EXCLUSIVE & !bits::FW,
        dirty: bits::FW,
        file: CapFile { size: 4096, ..CapFile::default() },
        ..ClientCaps::default()
    };
    s.message(CLIENT, &flush, 5);
    s.write_all();
    assert!(s.caps(CLIENT, ino).iter().any(|m| m.op == cap_op::FLUSH_ACK));
    let seen = s.op(OTHER, mds_op::GETATTR, "both/x", &Args::Mask(bits::FS));
    s.write_all();
    assert_eq!(s.said(OTHER, seen)[0].target.as_ref().unwrap().size.size, 4096);
}

/// It opens by a name that it has not looked up, and knows nothing of that name but what the answer says.
#[test]
fn an_open_tells_of_the_name() {
    let mut w = World::new();
    w.mkdir("d");
    let ino = w.create("d/f");
    w.done(mds_op::MKSNAP, 1, "d//s", &Args::Mode(0o755));
    let open = Args::Open(OpenArgs { pool: -1, ..OpenArgs::default() });
    for (path, snap) in [("d/f", types::SnapId::HEAD), ("d//s/f", types::SnapId(2))] {
        let reply = w.ask(&request(mds_op::OPEN, 1, path, &open)).expect("an answer");
        assert_eq!(reply.result, 0, "{path}");
        let target = reply.target.expect("an inode");
        assert_eq!((target.ino, target.snapid), (ino, snap), "{path}");
        assert_eq!(&reply.dentry.expect("a name").name[..], b"f", "{path}");
    }
}

/// On its way from a file with several names to a directory with a quota it looks up each realm's inode,
/// and does not end before that is in the realm that it is.
#[test]
fn the_realm_of_what_has_several_names_is_an_inode() {
    let mut w = World::new();
    let global = Ino(3);
    let reply = w.ask(&request(mds_op::LOOKUPINO, global.0, "", &Args::None)).expect("an answer");
    let cap = reply.target.expect("an inode").cap;
    assert_eq!((cap.realm, cap.caps & bits::PIN), (global, bits::PIN));
    let told = maps::fs::SnapRealmInfo::from_bytes(&reply.snap_trace).expect("a realm");
    assert_eq!((told.ino, told.parent), (global, Ino(0)));
}
