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

/// It knows a realm only by what an answer tells of it, and a listing tells of the directory's alone.
#[test]
fn listings_give_caps_in_the_realm_that_they_tell_of() {
    let mut w = World::new();
    w.mkdir("d");
    let (one, two) = (w.create("d/one"), w.create("d/two"));
    let mut link = request(mds_op::LINK, 1, "d/again", &Args::None);
    link.path2 = messages::fs::FilePath { ino: one, ..messages::fs::FilePath::default() };
    assert_eq!(w.ask(&link).expect("an answer").result, 0);
    let list = Args::Readdir(messages::fs::ReaddirArgs { max_entries: 9, ..Default::default() });
    let reply = w.ask(&request(mds_op::READDIR, 1, "d", &list)).expect("an answer");
    let listing = messages::fs::DirListing::from_bytes(&reply.extra).expect("a listing");
    let caps = |ino| listing.entries.iter().find(|e| e.inode.ino == ino).expect("it").inode.cap;
    assert_eq!(caps(one).caps, 0, "it has two names, and so a realm of its own");
    let dir = reply.target.expect("the directory").cap.realm;
    assert_eq!((caps(two).realm, caps(two).caps & bits::PIN), (dir, bits::PIN));
}

/// It takes a cut under a cap to read for a server's fault.
#[test]
fn a_cut_takes_the_caps_for_data_of_who_asks_for_it() {
    let mut s = Scene::new();
    let made = s.create(CLIENT, "both/x");
    let stat = s.said(CLIENT, made).remove(0).target.expect("an inode");
    let (ino, caps) = (stat.ino, stat.cap.caps);
    let write = ClientCaps {
        op: cap_op::FLUSH,
        ino,
        cap_id: stat.cap.cap_id,
        seq: stat.cap.seq,
        caps: caps & !bits::EXCLUSIVE,
        wanted: caps,
        dirty: bits::FW,
        file: CapFile { size: 4096, ..CapFile::default() },
        ..ClientCaps::default()
    };
    s.stubborn.push(CLIENT);
    s.message(CLIENT, &write, 5);
    s.write_all();
    assert!(write.caps & bits::FR != 0);
    let cut = messages::fs::SetattrArgs {
        mask: messages::fs::SetattrArgs::SIZE,
        size: 5,
        ..messages::fs::SetattrArgs::default()
    };
    let cut = s.op(CLIENT, mds_op::SETATTR, "both/x", &Args::Setattr(cut));
    s.write_all();
    let asked = s.caps(CLIENT, ino);
    let back = asked.iter().rfind(|m| m.op == cap_op::REVOKE).expect("it is asked for them");
    assert_eq!(back.caps & bits::F & !bits::FS, 0);
    assert!(s.said(CLIENT, cut).is_empty(), "not before it gave them back");
}

/// Clients take nothing that is older than what they know: an inode's version grows wherever it goes.
#[test]
fn versions_grow_through_moves() {
    let mut w = World::new();
    w.mkdir("old");
    w.create("old/f");
    for n in 0..20 {
        w.create(&format!("old/other{n}"));
    }
    w.mkdir("new");
    let mut last = 0;
    let mut look = |w: &mut World, path: &str| {
        let reply = w.op(mds_op::GETATTR, 1, path, &Args::Mask(0)).expect("an answer");
        let version = reply.target.expect("an inode").version;
        assert!(version > last, "{path}: {version} after {last}");
        last = version;
    };
    look(&mut w, "old/f");
    w.two(mds_op::RENAME, "new/f", "old/f");
    look(&mut w, "new/f");
    // Its first name goes, and it becomes the other's.
    w.two(mds_op::LINK, "old/hard", "new/f");
    look(&mut w, "new/f");
    w.done(mds_op::UNLINK, 1, "new/f", &Args::None);
    w.ticks(8);
    look(&mut w, "old/hard");
}

/// A file that is cut, made longer, and cut again behind the first end: nothing of what the first cut took
/// comes back, though objects are cut later than answered.
#[test]
fn a_cut_behind_an_earlier_one() {
    let mut s = Scene::new();
    let size = |s: &mut Scene, size| {
        let args = SetattrArgs { size, mask: SetattrArgs::SIZE, ..SetattrArgs::default() };
        s.op(CLIENT, mds_op::SETATTR, "both/old", &Args::Setattr(args))
    };
    s.w.journal = None;
    let made = size(&mut s, 2000);
    s.w.ticks(4);
    let ino = target(&s.said(CLIENT, made)[0]);
    let key = (DATA, maps::fs::object_name(ino, 0));
    s.w.pools.objects.insert(key.clone(), Object { data: vec![7; 2000], ..Object::default() });
    s.w.journal = Some(VecDeque::new());
    let all = [500, 1800, 1000].map(|to| size(&mut s, to));
    assert_eq!(s.w.pools.objects[&key].data.len(), 2000, "no record is durable");
    // A server that takes over now would know of the last cut alone.
    assert_eq!(s.results(CLIENT, all[2]), []);
    for _ in 0..8 {
        s.write_all();
        s.w.ticks(1);
        s.listen();
    }
    for tid in all {
        assert_eq!(s.results(CLIENT, tid).last(), Some(&(0, true)));
    }
    let seen = s.op(OTHER, mds_op::GETATTR, "both/old", &Args::Mask(bits::FS));
    s.w.ticks(2);
    assert_eq!(s.said(OTHER, seen).remove(0).target.expect("it").size.size, 1000);
    let left = s.w.pools.objects[&key].data.iter().filter(|byte| **byte == 7).count();
    assert_eq!(left, 500);
}
