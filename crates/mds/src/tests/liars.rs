//! Clients that say what is not so.

use messages::fs::{CapReconnect, ClientCapRelease, ClientCaps, ReleaseItem, ReleasedCap, cap_op};

use super::*;

const LIAR: i64 = 88;

/// Numbers that were never given, of inodes that are nowhere: nothing happens, and others go on.
#[test]
fn caps_that_were_never_given() {
    let mut w = World::new();
    let ino = w.create("f");
    for (ino, cap_id, seq) in [(ino, 999, 1), (Ino(12_345), 1, 1), (ino, 1, u32::MAX)] {
        for op in [cap_op::UPDATE, cap_op::FLUSH, cap_op::FLUSHSNAP, cap_op::DROP, 77] {
            let m = ClientCaps {
                op,
                ino,
                cap_id,
                seq,
                caps: u32::MAX,
                wanted: u32::MAX,
                dirty: u32::MAX,
                snap_follows: types::SnapId(u64::MAX),
                ..ClientCaps::default()
            };
            w.message(CLIENT, &m, 9);
        }
    }
    let caps = vec![ReleasedCap { ino, cap_id: 5, seq: 9, ..ReleasedCap::default() }];
    w.message(CLIENT, &ClientCapRelease { caps, ..ClientCapRelease::default() }, 0);
    assert!(w.stat("f").is_ok());
}

/// Requests with whatever a client may put into them are answered, with an errno.
#[test]
fn requests_that_make_no_sense() {
    let mut w = World::new();
    w.mkdir("d");
    w.create("f");
    let ops = (0..0x30).flat_map(|n| [0x100 + n, 0x300 + n, 0x400 + n, 0x1100 + n, 0x1200 + n]);
    let ops: Vec<u32> = ops.chain([0x1301, 0x1400, 0x1401, 0x1403]).collect();
    let paths = ["", "/", "//", "d/", "f/x", "..", "d//x/y", "/x", "d/../..", "_", "d//_x_1"];
    for op in ops {
        for ino in [0, 1, 2, 3, 0x100, 0x600, 1 << 40, u64::MAX] {
            for path in paths {
                for fill in [0, 0xff] {
                    let mut m = request(op, ino, path, &Args::None);
                    m.args = messages::fs::RawArgs([fill; 56]);
                    m.path2 = m.path.clone();
                    m.releases = vec![ReleaseItem { ino: Ino(ino), ..ReleaseItem::default() }];
                    w.tid += 1;
                    let tid = w.tid;
                    m.oldest_client_tid = tid;
                    w.message(CLIENT, &m, tid);
                }
            }
        }
        w.ticks(1);
        w.heard.clear();
    }
    assert!(w.stat("").is_ok(), "the root");
}

/// What a client claims to hold is believed as far as it goes together with others.
#[test]
fn a_reconnect_with_inodes_that_are_nowhere() {
    let mut w = World::new();
    let ino = w.create("f");
    w.mds = new_mds(options());
    w.begin(MdsState::REPLAY);
    w.conns += 1;
    let cap = CapReconnect { cap_id: 7, wanted: u32::MAX, issued: u32::MAX, ..Default::default() };
    let caps = [(ino, cap.clone()), (Ino(99), cap.clone()), (Ino(u64::MAX), cap)].into();
    w.message(CLIENT, &ClientReconnect { caps, ..ClientReconnect::default() }, 0);
    w.ticks(8);
    assert_eq!(w.state(), MdsState::ACTIVE);
    assert!(w.stat("f").is_ok());
}

/// Clients keep names in 255 bytes, and kernels ran over with longer ones: none is ever made.
#[test]
fn names_stay_within_clients_limits() {
    const ENAMETOOLONG: i32 = -36;
    let mut w = World::new();
    w.mkdir("d");
    w.create("f");
    for (bytes, want) in [(255, 0), (256, ENAMETOOLONG), (4_000, ENAMETOOLONG)] {
        let name = |kind: &str| format!("d/{}", kind.repeat(bytes));
        let open = OpenArgs { flags: 0o101, mode: 0o644, pool: -1, ..OpenArgs::default() };
        for (op, path, args) in [
            (mds_op::MKDIR, name("m"), Args::Mode(0o755)),
            (mds_op::CREATE, name("c"), Args::Open(open)),
            (mds_op::MKNOD, name("n"), Args::Mode(0o100_644)),
            // Beside its inode's number, in another realm's directory: `_NAME_NUMBER`.
            (mds_op::MKSNAP, format!("d//{}", "s".repeat(bytes - 15)), Args::Mode(0o755)),
        ] {
            let reply = w.op(op, 1, &path, &args).expect("an answer");
            assert_eq!(reply.result, want, "{op:#x} of {bytes} bytes");
        }
        for (op, to) in [(mds_op::SYMLINK, name("y")), (mds_op::LINK, name("l"))] {
            let mut m = request(op, 1, &to, &Args::None);
            m.path2 = FilePath { ino: Ino(1), path: Bytes::from_static(b"f") };
            assert_eq!(w.ask(&m).expect("an answer").result, want, "{op:#x} of {bytes} bytes");
        }
        let mut m = request(mds_op::RENAME, 1, &name("r"), &Args::None);
        m.path2 = FilePath { ino: Ino(1), path: Bytes::from_static(b"f") };
        assert_eq!(w.ask(&m).expect("an answer").result, want, "rename to {bytes} bytes");
        w.create("f");
    }
    assert!(w.names(mds_op::READDIR, "d").iter().all(|n| n.len() <= 255));
}

/// Requests that wait are bounded in bytes as well as in number; so is what comes before the rank
/// is active, what a client says of itself, and what it claims to hold.
#[test]
fn what_waits_is_bounded_in_bytes() {
    const BYTES: usize = 4 << 20;
    // Nobody answers what has to be read: requests wait.
    let mut w = World::new();
    w.open(LIAR);
    let mut sent = 0;
    let mut waits = request(mds_op::GETATTR, 1 << 41, "", &Args::Mask(0));
    waits.data = vec![b'x'; BYTES].into();
    w.deaf = true;
    while w.blocklisted == 0 && sent < 40 {
        sent += 1;
        w.message(LIAR, &waits, sent);
    }
    assert_eq!(sent, 8, "32 MiB of requests, of 4 MiB each");
    // Before the rank is active.
    let mut w = World::new();
    w.mds = new_mds(options());
    w.slow_map = true;
    w.begin(MdsState::REPLAY);
    w.closed.clear();
    for n in 0..100 {
        w.message(CLIENT, &waits, n);
    }
    assert!(!w.closed.is_empty(), "100 requests of 4 MiB are not kept");
    // Words of itself.
    let mut w = World::new();
    w.conns += 1;
    let metadata = [("hostname".into(), vec![b'h'; 70 << 10].into())].into();
    let detail = messages::fs::SessionDetail { metadata, ..Default::default() };
    let open = ClientSession {
        op: session_op::REQUEST_OPEN,
        detail: Some(Box::new(detail)),
        ..ClientSession::default()
    };
    w.heard.clear();
    w.message(LIAR, &open, 0);
    let (_, answer) = w.heard.pop_front().expect("an answer");
    assert_eq!(ClientSession::decode(&answer).unwrap().op, session_op::REJECT);
    // Caps that it says it has.
    let mut w = World::new();
    w.options.caps_per_client_max = 10;
    w.mds = new_mds(w.options.clone());
    w.begin(MdsState::REPLAY);
    w.conns += 1;
    let cap = CapReconnect { cap_id: 7, ..Default::default() };
    for n in 0..5u64 {
        let caps = (0..10).map(|i| (Ino((1 << 42) + n * 10 + i), cap.clone())).collect();
        let m = ClientReconnect { caps, more: true, ..ClientReconnect::default() };
        assert_eq!(w.blocklisted, 0, "after {n} messages");
        w.message(CLIENT, &m, 0);
    }
    assert_eq!(w.blocklisted, 1, "50 caps, where 10 are given");
}
