//! Changes that wait until more is written back.

use super::early::{OTHER, Scene};
use super::*;

/// Files that are made and not written back.
const FILES: usize = 600;

/// A server whose memory is at its limit, and little of it is written back: no write to the tree is
/// answered.
fn full() -> Scene {
    let mut s = Scene::new();
    s.w.journal = None;
    s.w.tree = Some(VecDeque::new());
    for n in 0..FILES {
        let tid = s.create(CLIENT, &format!("a/f{n}"));
        assert!(is_done(&mut s, CLIENT, tid));
    }
    s.w.mds.on_memory(s.w.options.cache_bytes_max);
    s
}

fn is_done(s: &mut Scene, client: i64, tid: u64) -> bool {
    s.said(client, tid).last().is_some_and(|r| r.safe && r.result == 0)
}

fn ticks(s: &mut Scene, n: usize) {
    s.w.ticks(n);
    s.listen();
}

#[test]
fn a_change_waits_until_others_are_written_back() {
    let mut s = full();
    let args = SetattrArgs { mode: 0o600, mask: SetattrArgs::MODE, ..SetattrArgs::default() };
    let changes = [
        s.create(CLIENT, "a/late"),
        s.send(CLIENT, &request(mds_op::MKDIR, 1, "a/dir", &Args::Mode(0o755))),
        s.send(CLIENT, &request(mds_op::SETATTR, 1, "a/f1", &Args::Setattr(args))),
        s.send(CLIENT, &request(mds_op::UNLINK, 1, "a/f2", &Args::None)),
    ];
    ticks(&mut s, 12);
    for tid in changes {
        assert_eq!(s.said(CLIENT, tid).len(), 0, "request {tid}");
    }
    // What is asked, and what is said about the session, is answered.
    let read = s.send(CLIENT, &request(mds_op::GETATTR, 1, "a/f3", &Args::Mask(0)));
    let missing = s.send(CLIENT, &request(mds_op::LOOKUP, 1, "a/late", &Args::Mask(0)));
    ticks(&mut s, 1);
    assert!(is_done(&mut s, CLIENT, read));
    assert_eq!(s.said(CLIENT, missing)[0].result, Errno::NOENT.0);
    s.w.write_tree();
    ticks(&mut s, 4);
    for tid in changes {
        assert!(is_done(&mut s, CLIENT, tid), "request {tid}");
    }
}

#[test]
fn who_makes_little_does_not_wait_for_who_makes_much() {
    let mut s = full();
    let late = s.create(CLIENT, "a/late");
    for n in 0..20 {
        let tid = s.create(OTHER, &format!("b/f{n}"));
        ticks(&mut s, 1);
        assert!(is_done(&mut s, OTHER, tid), "file {n}");
    }
    assert_eq!(s.said(CLIENT, late).len(), 0);
    // While nothing is written, its share ends as well.
    let tids: Vec<u64> = (0..FILES).map(|n| s.create(OTHER, &format!("b/more{n}"))).collect();
    ticks(&mut s, 1);
    let done = tids.iter().filter(|tid| is_done(&mut s, OTHER, **tid)).count();
    assert!((1..FILES).contains(&done), "{done}");
    for _ in 0..12 {
        s.w.write_tree();
        ticks(&mut s, 4);
    }
    assert!(is_done(&mut s, CLIENT, late));
    let late = tids.iter().filter(|tid| !is_done(&mut s, OTHER, **tid)).count();
    assert_eq!(late, 0);
}

/// What waits when the server leaves is done by the next one, once.
#[test]
fn what_waits_is_not_lost_with_the_server() {
    for stops in [true, false] {
        let mut s = full();
        let late = s.create(CLIENT, "a/late");
        assert_eq!(s.said(CLIENT, late).len(), 0);
        if stops {
            s.w.call(|m, now, out| m.on_stop(now, true, out));
            s.w.write_tree();
            s.w.tree = None;
            s.w.ticks(20);
            assert!(s.w.ended, "a request that waits holds up the stop");
        }
        s.w.tree = None;
        s.die();
        for client in [CLIENT, OTHER] {
            s.come_back(client, BTreeMap::new());
        }
        ticks(&mut s, 8);
        assert_eq!(s.w.state(), MdsState::ACTIVE);
        let find = request(mds_op::LOOKUP, 1, "a/late", &Args::Mask(0));
        let before = s.send(CLIENT, &find);
        ticks(&mut s, 2);
        assert_eq!(s.said(CLIENT, before)[0].result, Errno::NOENT.0);
        let again = s.create(CLIENT, "a/late");
        ticks(&mut s, 2);
        assert!(is_done(&mut s, CLIENT, again));
    }
}

/// The rank ends though requests wait.
#[test]
fn a_rank_that_is_given_up_does_not_wait() {
    let mut s = full();
    let late = s.create(CLIENT, "a/late");
    s.w.begin(MdsState::STOPPING);
    s.w.write_tree();
    s.w.tree = None;
    s.w.ticks(FILES / 8);
    assert_eq!(s.w.state(), MdsState::STOPPED);
    assert_eq!(s.said(CLIENT, late).len(), 0);
}
