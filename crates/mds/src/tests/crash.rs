//! A server that dies between any two of its writes: what was answered is there afterwards.

use super::*;

type Step = (&'static str, fn(&mut World) -> Option<ClientReply>);

fn make(w: &mut World, name: &str) -> Option<ClientReply> {
    let args = OpenArgs { flags: 0o101, mode: 0o644, pool: -1, ..OpenArgs::default() };
    w.op(mds_op::CREATE, 1, name, &Args::Open(args))
}

fn moved(w: &mut World, to: &str, from: &str, op: u32) -> Option<ClientReply> {
    let mut m = request(op, 1, to, &Args::None);
    m.path2 = FilePath { ino: Ino(1), path: Bytes::copy_from_slice(from.as_bytes()) };
    w.ask(&m)
}

/// What is done, and then what has to be there.
const STEPS: &[(Step, &[&str], &[&str])] = &[
    (("mkdir", |w| w.op(mds_op::MKDIR, 1, "a", &Args::Mode(0o755))), &["a"], &[]),
    (("mkdir", |w| w.op(mds_op::MKDIR, 1, "b", &Args::Mode(0o755))), &["b"], &[]),
    (("create", |w| make(w, "a/one")), &["a/one"], &[]),
    (("create", |w| make(w, "a/two")), &["a/two"], &[]),
    (("link", |w| moved(w, "b/hard", "a/one", mds_op::LINK)), &["b/hard"], &[]),
    (("rename", |w| moved(w, "b/two", "a/two", mds_op::RENAME)), &["b/two"], &["a/two"]),
    (("unlink", |w| w.op(mds_op::UNLINK, 1, "a/one", &Args::None)), &["b/hard"], &["a/one"]),
    (("snap", |w| w.op(mds_op::MKSNAP, 1, "b//s", &Args::Mode(0o755))), &["b//s/two"], &[]),
    (("over", |w| make(w, "b/three")), &["b/three"], &["b//s/three"]),
    (("rename", |w| moved(w, "b/two", "b/three", mds_op::RENAME)), &["b//s/two"], &["b/three"]),
    (("rmdir", |w| w.op(mds_op::RMDIR, 1, "a", &Args::None)), &["b/two"], &["a"]),
    (("unlink", |w| w.op(mds_op::UNLINK, 1, "b/two", &Args::None)), &["b//s/two"], &["b/two"]),
];

/// Runs the steps with so many writes let through. Returns how many writes all of it takes, when
/// it got through.
fn run(writes: Option<usize>) -> bool {
    let mut w = World::new();
    w.writes_left = writes;
    let mut done = 0;
    for ((what, step), _, _) in STEPS {
        match step(&mut w) {
            Some(reply) => assert_eq!(reply.result, 0, "{what}"),
            None => break,
        }
        done += 1;
        // Some of it is written back in between.
        w.ticks(5);
    }
    w.ticks(12);
    let through = w.writes_left != Some(0);
    w.restart();
    let mut there = BTreeMap::new();
    for (_, has, has_not) in &STEPS[..done] {
        there.extend(has_not.iter().map(|path| (*path, false)));
        there.extend(has.iter().map(|path| (*path, true)));
    }
    // The step that got no answer may have happened.
    if let Some((_, has, has_not)) = STEPS.get(done) {
        for path in has.iter().chain(*has_not) {
            there.remove(path);
        }
    }
    for (path, is) in there {
        let found = w.stat(path);
        assert_eq!(found.is_ok(), is, "{path} after {done} steps and {writes:?} writes: {found:?}");
    }
    through
}

#[test]
fn what_was_answered_is_there_after_a_crash() {
    assert!(run(None));
    for writes in 0.. {
        if run(Some(writes)) {
            assert!(writes > 50, "{writes}");
            return;
        }
        assert!(writes < 2_000, "it never ends");
    }
}
