//! Requests that were answered and lost, or answered and not: what is left of them.

use messages::fs::{CapFile, CapReconnect};

use super::early::{OTHER, Scene};
use super::*;
use crate::capset::bits;

const SAFE: (i32, bool) = (0, true);
const EARLY: (i32, bool) = (0, false);

fn found(s: &mut Scene, client: i64, path: &str) -> Result<Ino, i32> {
    let tid = s.lookup(client, path);
    for _ in 0..4 {
        s.w.ticks(1);
        s.listen();
    }
    let reply = s.said(client, tid).pop().expect("an answer");
    if reply.result == 0 { Ok(target(&reply)) } else { Err(reply.result) }
}

/// What was not durable is gone with the server and a client that does not come back with it.
#[test]
fn nothing_is_left_of_what_nobody_replays() {
    let mut s = Scene::new();
    let made = s.create(CLIENT, "both/x");
    assert_eq!(s.results(CLIENT, made), [EARLY]);
    s.die();
    s.w.conns += 1;
    s.conns.insert(CLIENT, s.w.conns);
    s.message(CLIENT, &ClientReconnect::default(), 0);
    s.come_back(OTHER, BTreeMap::new());
    s.go_on();
    assert_eq!(found(&mut s, OTHER, "both/x"), Err(Errno::NOENT.0));
}

/// It is made again with the number that its client knows, and answered for good.
#[test]
fn what_is_replayed_is_as_it_was() {
    let mut s = Scene::new();
    let tids = [
        s.create(CLIENT, "both/x"),
        s.op(CLIENT, mds_op::MKDIR, "both/d", &Args::Mode(0o755)),
        s.create(CLIENT, "both/d/y"),
        s.op(CLIENT, mds_op::UNLINK, "both/old", &Args::None),
    ];
    let inos: Vec<Ino> = tids[..3].iter().map(|t| target(&s.said(CLIENT, *t)[0])).collect();
    let unseen = s.lookup(OTHER, "both/x");
    assert_eq!(s.results(OTHER, unseen), []);
    s.die();
    s.come_back(OTHER, BTreeMap::new());
    s.come_back(CLIENT, BTreeMap::new());
    s.go_on();
    for tid in tids {
        assert_eq!(s.results(CLIENT, tid), [EARLY, SAFE]);
    }
    let now: Vec<_> = ["both/x", "both/d", "both/d/y"].map(|p| found(&mut s, OTHER, p)).into();
    assert_eq!(now, inos.into_iter().map(Ok).collect::<Vec<_>>());
    assert_eq!(found(&mut s, OTHER, "both/old"), Err(Errno::NOENT.0));
    // And no number is given twice.
    let next = s.create(CLIENT, "both/z");
    s.w.ticks(2);
    let next = target(&s.said(CLIENT, next)[0]);
    assert!(now.iter().all(|ino| *ino != Ok(next)));
}

/// The record was durable, and its client did not hear so: nothing is done twice.
#[test]
fn what_was_done_is_not_done_again() {
    let mut s = Scene::new();
    let made = s.create(CLIENT, "both/x");
    let ino = target(&s.said(CLIENT, made)[0]);
    let gone = s.op(CLIENT, mds_op::UNLINK, "both/old", &Args::None);
    let again = s.op(CLIENT, mds_op::MKDIR, "both/old", &Args::Mode(0o755));
    // The server dies before it hears of the write.
    while let Some(io) = s.w.journal.as_mut().and_then(VecDeque::pop_front) {
        s.w.pools.run(&io).unwrap();
        let (id, answer) = (io.id, Ok(IoAnswer(vec![IoData::Done])));
        let mut out = Outbox::new();
        let now = s.w.now();
        s.w.mds.on_done(now, id, answer, &mut out);
        let left = out.drain().filter(|e| matches!(e, Effect::Io(_)));
        let left: Vec<Effect> = left.collect();
        for effect in left {
            if let Effect::Io(io) = effect {
                s.w.pools.run(&io).unwrap();
            }
        }
    }
    s.die();
    s.come_back(CLIENT, BTreeMap::new());
    s.come_back(OTHER, BTreeMap::new());
    s.go_on();
    for tid in [made, gone, again] {
        assert_eq!(s.results(CLIENT, tid), [EARLY, SAFE]);
    }
    assert_eq!(found(&mut s, OTHER, "both/x"), Ok(ino));
    assert!(found(&mut s, OTHER, "both/old").is_ok(), "the directory of that name");
}

/// A file that was made and written, and whose server died: its caps and what was told under them are
/// its maker's again.
#[test]
fn caps_of_what_is_made_again() {
    let mut s = Scene::new();
    let made = s.create(CLIENT, "both/x");
    let stat = s.said(CLIENT, made).remove(0).target.expect("an inode");
    let (ino, caps) = (stat.ino, stat.cap.caps);
    assert!(caps & bits::FW != 0 && stat.size.max_size > 0, "{caps:x}");
    s.die();
    let cap = CapReconnect {
        cap_id: stat.cap.cap_id,
        wanted: caps,
        issued: caps,
        ..CapReconnect::default()
    };
    s.come_back(CLIENT, [(ino, cap)].into());
    // It tells of what it wrote before all is as it was.
    let flush = ClientCaps {
        op: cap_op::FLUSH,
        ino,
        cap_id: stat.cap.cap_id,
        caps,
        wanted: caps,
        dirty: bits::FW,
        file: CapFile { size: 4096, truncate_seq: 1, ..CapFile::default() },
        ..ClientCaps::default()
    };
    s.message(CLIENT, &flush, 5);
    s.come_back(OTHER, BTreeMap::new());
    s.go_on();
    assert_eq!(s.results(CLIENT, made), [EARLY, SAFE]);
    let acks = s.caps(CLIENT, ino);
    assert!(acks.iter().any(|m| m.op == cap_op::FLUSH_ACK));
    let seen = s.op(OTHER, mds_op::GETATTR, "both/x", &Args::Mask(bits::FS));
    s.w.ticks(4);
    assert_eq!(s.said(OTHER, seen)[0].target.as_ref().unwrap().size.size, 4096);
    // What it holds was known: it was asked for it.
    let asked = s.caps(CLIENT, ino);
    assert!(asked.iter().any(|m| m.op == cap_op::REVOKE && m.cap_id == stat.cap.cap_id));
}

/// Nothing new is done before what is replayed is durable.
#[test]
fn new_requests_wait_for_replayed_ones() {
    let mut s = Scene::new();
    let made = s.create(CLIENT, "both/x");
    s.die();
    s.w.journal = Some(VecDeque::new());
    s.come_back(OTHER, BTreeMap::new());
    let new = s.create(OTHER, "both/x");
    s.come_back(CLIENT, BTreeMap::new());
    s.w.ticks(8);
    assert_eq!(s.w.state(), MdsState::CLIENTREPLAY);
    assert_eq!((s.results(OTHER, new), s.results(CLIENT, made)), (vec![], vec![EARLY]));
    s.write_all();
    s.w.journal = None;
    s.go_on();
    assert_eq!(s.results(CLIENT, made), [EARLY, SAFE]);
    assert_eq!(s.results(OTHER, new), [(Errno::EXIST.0, true)]);
}

/// Caps are their client's again with the request that makes their inode, and not only when all is
/// done: what it tells of under them is taken at once.
#[test]
fn caps_come_back_with_their_inode() {
    let mut s = Scene::new();
    let made = s.create(CLIENT, "both/x");
    let stat = s.said(CLIENT, made).remove(0).target.expect("an inode");
    let caps = stat.cap.caps;
    s.die();
    s.w.journal = Some(VecDeque::new());
    let cap = CapReconnect {
        cap_id: stat.cap.cap_id,
        wanted: caps,
        issued: caps,
        ..CapReconnect::default()
    };
    s.come_back(CLIENT, [(stat.ino, cap)].into());
    s.come_back(OTHER, BTreeMap::new());
    s.w.ticks(4);
    assert_eq!(s.w.state(), MdsState::CLIENTREPLAY);
    let flush = ClientCaps {
        op: cap_op::FLUSH,
        ino: stat.ino,
        cap_id: stat.cap.cap_id,
        caps,
        wanted: caps,
        dirty: bits::FW,
        file: CapFile { size: 4096, truncate_seq: 1, ..CapFile::default() },
        ..ClientCaps::default()
    };
    s.w.slow_map = true;
    s.message(CLIENT, &flush, 5);
    s.write_all();
    assert!(s.caps(CLIENT, stat.ino).iter().any(|m| m.op == cap_op::FLUSH_ACK));
    assert_eq!(s.w.state(), MdsState::CLIENTREPLAY);
    s.w.slow_map = false;
    s.w.journal = None;
    s.go_on();
}

/// A client that holds what a replayed request needs, and says nothing, is not waited for without
/// end.
#[test]
fn a_silent_client_does_not_hold_up_the_others() {
    let mut s = Scene::new();
    s.w.journal = None;
    let ino = found(&mut s, OTHER, "both/old").unwrap();
    s.w.ticks(8);
    s.w.journal = Some(VecDeque::new());
    let mode = SetattrArgs { mode: 0o600, mask: SetattrArgs::MODE, ..SetattrArgs::default() };
    let changed = s.op(CLIENT, mds_op::SETATTR, "both/old", &Args::Setattr(mode));
    assert_eq!(s.results(CLIENT, changed), [EARLY]);
    s.die();
    s.stubborn.push(OTHER);
    let cap = CapReconnect {
        cap_id: 99,
        wanted: bits::PIN,
        issued: bits::PIN | bits::AS,
        ..CapReconnect::default()
    };
    s.come_back(OTHER, [(ino, cap)].into());
    s.come_back(CLIENT, BTreeMap::new());
    s.w.ticks(20);
    assert_eq!(s.w.state(), MdsState::CLIENTREPLAY);
    for _ in 0..20 {
        s.w.ticks(12);
        let renew = ClientSession { op: session_op::REQUEST_RENEWCAPS, ..Default::default() };
        s.message(CLIENT, &renew, 0);
    }
    assert_eq!((s.w.state(), s.w.blocklisted), (MdsState::ACTIVE, 1));
    assert_eq!(s.results(CLIENT, changed), [EARLY, SAFE]);
}

/// What one client knows of a name.
#[derive(Clone, Debug, Default)]
struct Known {
    /// Of the request that made it, and of the one that removed it.
    made: Option<(i64, u64)>,
    gone: Option<(i64, u64)>,
    /// Lookups of others, by their numbers: what they found.
    looks: Vec<(i64, u64)>,
}

/// Two clients make, look up and remove names in one directory and in their own; the journal is
/// written now and then, and the server dies somewhere. What was told as safe, and what anybody was
/// told of another's doing, holds without any replay; and with it all that was answered does.
#[test]
fn what_was_told_holds_after_a_crash() {
    let (mut early, mut lost) = (0, 0);
    for seed in 0..60u64 {
        for replays in [false, true] {
            let (e, l) = crash(seed, replays);
            early += e;
            lost += l;
        }
    }
    assert!(early > 300 && lost > 100, "{early} {lost}: not much was tried");
}

/// Returns how many requests were answered early, and how many of these were not durable.
fn crash(seed: u64, replays: bool) -> (usize, usize) {
    let mut s = Scene::new();
    let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = |n: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random >> 11) % n
    };
    let mut names: BTreeMap<String, Known> = BTreeMap::new();
    for n in 0..8 + next(24) {
        let client = if next(2) == 0 { CLIENT } else { OTHER };
        let dir = ["both", "both", "a", "b"][next(4) as usize];
        let some = names.len() as u64;
        let pick = |names: &BTreeMap<String, Known>, at: u64| {
            names.keys().nth(at as usize).cloned().expect("a name")
        };
        match next(7) {
            0..=2 => {
                let path = format!("{dir}/n{n}");
                let tid = s.create(client, &path);
                names.entry(path).or_default().made = Some((client, tid));
            }
            3 if some > 0 => {
                let path = pick(&names, next(some));
                if names[&path].gone.is_none() {
                    let tid = s.op(client, mds_op::UNLINK, &path, &Args::None);
                    names.get_mut(&path).unwrap().gone = Some((client, tid));
                }
            }
            4 | 5 if some > 0 => {
                let path = pick(&names, next(some));
                let tid = s.lookup(client, &path);
                names.get_mut(&path).unwrap().looks.push((client, tid));
            }
            _ => drop(s.w.write_journal()),
        }
        s.listen();
    }
    let what = format!("seed {seed}, replays: {replays}");
    // What was heard before the crash.
    let answers = |s: &mut Scene, by: Option<(i64, u64)>| {
        by.map(|(client, tid)| s.results(client, tid)).unwrap_or_default()
    };
    let (mut early, mut lost, mut expected) = (0, 0, Vec::new());
    for (path, known) in &names {
        let (made, gone) = (answers(&mut s, known.made), answers(&mut s, known.gone));
        for all in [&made, &gone] {
            early += usize::from(all.first() == Some(&EARLY));
            lost += usize::from(all[..] == [EARLY]);
        }
        let is_sure = |all: &[(i32, bool)]| match replays {
            true => all.first().is_some_and(|(r, _)| *r == 0),
            false => all.last() == Some(&SAFE),
        };
        let asked_to_go = known.gone.is_some();
        let told = known.looks.iter().filter_map(|(client, tid)| {
            let (result, _) = *s.results(*client, *tid).first()?;
            Some((*client, result))
        });
        let told: Vec<(i64, i32)> = told.collect();
        let maker = known.made.map(|(client, _)| client);
        let remover = known.gone.map(|(client, _)| client);
        let seen = told.iter().any(|(c, r)| Some(*c) != maker && *r == 0);
        // Nobody looks a name up before it is made.
        let missed = told.iter().any(|(c, r)| Some(*c) != remover && *r == Errno::NOENT.0);
        if missed {
            assert!(asked_to_go || !seen, "{what}: {path} was there, and then not");
        }
        if is_sure(&gone) || missed && asked_to_go && seen {
            expected.push((path.clone(), None));
        } else if (is_sure(&made) || seen) && !asked_to_go {
            let ino = known.made.and_then(|(c, tid)| s.said(c, tid).first().map(target));
            expected.push((path.clone(), Some(ino)));
        }
    }
    s.die();
    for client in [OTHER, CLIENT] {
        if replays {
            s.come_back(client, BTreeMap::new());
        } else {
            s.w.conns += 1;
            s.conns.insert(client, s.w.conns);
            s.message(client, &ClientReconnect::default(), 0);
        }
    }
    s.go_on();
    for (path, ino) in expected {
        match (found(&mut s, CLIENT, &path), ino) {
            (Err(e), None) if e == Errno::NOENT.0 => {}
            (Ok(found), Some(ino)) => {
                assert!(ino.is_none_or(|ino| ino == found), "{what}: {path} is another");
            }
            (found, _) => panic!("{what}: {path} is {found:?}, {:?}", names[&path]),
        }
    }
    (early, lost)
}

/// A client flushes what it changed and gives the caps back in one message, and the server dies before
/// it takes that. The client sends it again, ahead of the caps that it still claims: it counts.
#[test]
fn what_was_flushed_as_caps_were_given_back() {
    let mut s = Scene::new();
    s.w.journal = None;
    let made = s.create(CLIENT, "both/x");
    s.w.ticks(4);
    let stat = s.said(CLIENT, made).remove(0).target.expect("an inode");
    let (ino, cap_id) = (stat.ino, stat.cap.cap_id);
    assert!(stat.cap.caps & bits::FW != 0);
    s.die();
    let left = bits::PIN | bits::AS | bits::LS | bits::XS | bits::FS;
    let flush = ClientCaps {
        op: cap_op::FLUSH,
        ino,
        cap_id,
        caps: left,
        dirty: bits::FW | bits::AX,
        attrs: messages::fs::CapAttrs { mode: 0o640, ..Default::default() },
        file: CapFile { size: 4096, truncate_seq: 1, ..CapFile::default() },
        ..ClientCaps::default()
    };
    s.w.conns += 1;
    s.conns.insert(CLIENT, s.w.conns);
    s.message(CLIENT, &flush, 5);
    let cap = CapReconnect { cap_id, issued: left, ..CapReconnect::default() };
    s.message(CLIENT, &ClientReconnect { caps: [(ino, cap)].into(), ..Default::default() }, 0);
    s.come_back(OTHER, BTreeMap::new());
    s.go_on();
    assert!(s.caps(CLIENT, ino).iter().any(|m| m.op == cap_op::FLUSH_ACK));
    let seen = s.op(OTHER, mds_op::GETATTR, "both/x", &Args::Mask(bits::FS | bits::AS));
    s.w.ticks(4);
    let seen = s.said(OTHER, seen).remove(0).target.expect("an inode");
    assert_eq!((seen.size.size, seen.mode & 0o777), (4096, 0o640));
    // Once it is active a client changes what it holds alone.
    let late =
        ClientCaps { file: CapFile { size: 1 << 20, truncate_seq: 1, ..flush.file }, ..flush };
    s.message(CLIENT, &late, 6);
    s.w.ticks(4);
    let seen = s.op(OTHER, mds_op::GETATTR, "both/x", &Args::Mask(bits::FS));
    s.w.ticks(4);
    assert_eq!(s.said(OTHER, seen).remove(0).target.expect("an inode").size.size, 4096);
}
