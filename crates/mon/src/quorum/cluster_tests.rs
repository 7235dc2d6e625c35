//! Several logs in one process: a network that can be cut and slowed, files that outlive
//! crashes, and time that runs as fast as the work allows.

use super::tests::{Place, path, run};
use super::*;
use std::cell::RefCell;
use std::rc::Rc;

/// What carries calls: who cannot hear whom, and how long it takes.
#[derive(Default)]
struct Wires {
    cut: BTreeSet<(u64, u64)>,
    delay_ms: u64,
    up: BTreeMap<u64, Quorum>,
}

struct Mon {
    path: Place,
    /// What it was told, in order.
    told: Rc<RefCell<Vec<(u64, Bytes)>>>,
    state: Rc<RefCell<Bytes>>,
    leads: Rc<RefCell<u64>>,
    tasks: Vec<tokio::task::JoinHandle<()>>,
}

struct Net {
    wires: Rc<RefCell<Wires>>,
    mons: BTreeMap<u64, Mon>,
    token: u64,
}

impl Net {
    async fn new(name: &str, count: u64) -> Self {
        let founders: BTreeMap<u64, String> = (0..count).map(|i| (i, format!("m{i}"))).collect();
        let mut net = Self { wires: Rc::default(), mons: BTreeMap::new(), token: 0 };
        for node in 0..count {
            let path = path(&format!("{name}-{node}"));
            create(&path, node, &founders, b"first").unwrap();
            net.add(node, path);
            net.start(node).await;
        }
        net
    }

    fn add(&mut self, node: u64, path: Place) {
        let mon = Mon {
            path,
            told: Rc::default(),
            state: Rc::default(),
            leads: Rc::default(),
            tasks: Vec::new(),
        };
        self.mons.insert(node, mon);
    }

    /// Starts a monitor, or starts it anew: it begins with what its file holds.
    async fn start(&mut self, node: u64) {
        let mon = self.mons.get_mut(&node).unwrap();
        let mut tries = 0;
        let s = loop {
            match start(&mon.path).await {
                Ok(s) => break s,
                // Something of its last life still holds the file.
                Err(e) if tries == 100 => panic!("{e}"),
                Err(_) => tries += 1,
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        };
        mon.told.borrow_mut().clear();
        *mon.state.borrow_mut() = s.state;
        *mon.leads.borrow_mut() = 0;
        s.quorum.allow_elections(true);
        self.wires.borrow_mut().up.insert(node, s.quorum);
        let (told, state, leads) = (mon.told.clone(), mon.state.clone(), mon.leads.clone());
        let mut events = s.events;
        let listen = async move {
            while let Some(event) = events.recv().await {
                match event {
                    Event::Committed { index, data, .. } => told.borrow_mut().push((index, data)),
                    Event::Restored { state: new, .. } => {
                        told.borrow_mut().clear();
                        *state.borrow_mut() = new;
                    }
                    Event::Began { ballot, .. } if ballot.node == node => {
                        *leads.borrow_mut() = ballot.term;
                    }
                    Event::Standing { ballot, .. } if ballot.term > *leads.borrow() => {
                        *leads.borrow_mut() = 0;
                    }
                    _ => {}
                }
            }
        };
        let (wires, mut calls) = (self.wires.clone(), s.calls);
        let carry = async move {
            while let Some(call) = calls.recv().await {
                let wires = wires.clone();
                tokio::task::spawn_local(async move {
                    let open = |from, to| {
                        let w = wires.borrow();
                        let open = !w.cut.contains(&(from, to));
                        (open.then(|| w.up.get(&to).cloned()).flatten(), w.delay_ms)
                    };
                    let (Some(other), delay) = open(node, call.to) else { return };
                    tokio::time::sleep(Duration::from_millis(delay)).await;
                    let answer = other.answer(&call.body).await;
                    tokio::time::sleep(Duration::from_millis(delay)).await;
                    // The asker may be gone, or unreachable, by now.
                    if open(call.to, node).0.is_some() {
                        call.answer.send(answer).ok();
                    }
                });
            }
        };
        mon.tasks = vec![tokio::task::spawn_local(listen), tokio::task::spawn_local(carry)];
    }

    /// Ends a monitor without a word; its file stays.
    async fn crash(&mut self, node: u64) {
        let gone = self.wires.borrow_mut().up.remove(&node);
        for task in std::mem::take(&mut self.mons.get_mut(&node).unwrap().tasks) {
            task.abort();
        }
        if let Some(quorum) = gone {
            quorum.stop().await;
        }
    }

    /// Nobody in `some` hears those outside, nor is heard.
    fn part(&self, some: &[u64]) {
        let mut wires = self.wires.borrow_mut();
        for a in self.mons.keys().filter(|n| some.contains(n)) {
            for b in self.mons.keys().filter(|n| !some.contains(n)) {
                wires.cut.extend([(*a, *b), (*b, *a)]);
            }
        }
    }

    fn heal(&self) {
        self.wires.borrow_mut().cut.clear();
    }

    /// Who leads, by its own word and in the newest term.
    fn leader_among(&self, some: &[u64]) -> Option<u64> {
        let up = &self.wires.borrow().up;
        let terms = some.iter().filter(|n| up.contains_key(n));
        let terms = terms.map(|n| (*self.mons[n].leads.borrow(), *n));
        terms.filter(|(term, _)| *term > 0).max().map(|(_, n)| n)
    }

    async fn until<T>(&self, what: &str, mut done: impl FnMut(&Self) -> Option<T>) -> T {
        for _ in 0..2_000 {
            if let Some(got) = done(self) {
                return got;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("within 20 s: {what}");
    }

    async fn leader(&self, some: &[u64]) -> u64 {
        self.until("a leader", |net| net.leader_among(some)).await
    }

    /// Has something committed by whoever of `some` leads, however often that changes.
    async fn commit(&mut self, some: &[u64], text: &str) {
        let data = Bytes::copy_from_slice(text.as_bytes());
        for _ in 0..50 {
            let leader = self.leader(some).await;
            self.token += 1;
            let quorum = self.wires.borrow().up[&leader].clone();
            quorum.propose(self.token, data.clone()).await.unwrap();
            for _ in 0..100 {
                if self.has(leader, &data) {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
        panic!("{text} was not committed");
    }

    fn has(&self, node: u64, data: &Bytes) -> bool {
        self.mons[&node].told.borrow().iter().any(|(_, d)| d == data)
    }

    async fn all_have(&self, text: &str) {
        let data = Bytes::copy_from_slice(text.as_bytes());
        self.until("everybody knows", |net| {
            net.mons.keys().all(|n| net.has(*n, &data)).then_some(())
        })
        .await;
    }

    /// Entries at the same place are the same everywhere.
    fn agree(&self) {
        let mut known: BTreeMap<u64, Bytes> = BTreeMap::new();
        for mon in self.mons.values() {
            for (index, data) in mon.told.borrow().iter() {
                let first = known.entry(*index).or_insert_with(|| data.clone());
                assert_eq!(first, data, "entry {index}");
            }
        }
    }
}

fn local(f: impl Future<Output = ()>) {
    run(tokio::task::LocalSet::new().run_until(async {
        tokio::time::pause();
        f.await;
    }));
}

/// Leaders crash, one after the other; what was committed stays, and those that come back
/// learn what they missed.
#[test]
fn leaders_crash_and_return() {
    local(async {
        let mut net = Net::new("crash", 3).await;
        let all = [0, 1, 2];
        for round in 0..6 {
            net.commit(&all, &format!("before {round}")).await;
            let gone = net.leader(&all).await;
            net.crash(gone).await;
            net.commit(&all, &format!("without {round}")).await;
            net.start(gone).await;
        }
        net.commit(&all, "end").await;
        net.all_have("end").await;
        net.agree();
        for mon in net.mons.values() {
            for round in 0..6 {
                for what in ["before", "without"] {
                    let want = format!("{what} {round}");
                    assert!(mon.told.borrow().iter().any(|(_, d)| d[..] == *want.as_bytes()));
                }
            }
        }
    });
}

/// A leader that is cut off commits nothing; the others go on; once the net is whole, what
/// it had proposed alone is nowhere.
#[test]
fn a_cut_off_leader_commits_nothing() {
    local(async {
        let mut net = Net::new("cut", 3).await;
        let all = [0, 1, 2];
        net.commit(&all, "first").await;
        let old = net.leader(&all).await;
        let rest: Vec<u64> = all.into_iter().filter(|n| *n != old).collect();
        net.part(&[old]);
        let quorum = net.wires.borrow().up[&old].clone();
        quorum.propose(u64::MAX, Bytes::from_static(b"lost")).await.unwrap();
        net.commit(&rest, "second").await;
        assert!(!net.has(old, &Bytes::from_static(b"lost")));
        assert!(!net.has(old, &Bytes::from_static(b"second")));
        net.heal();
        net.commit(&all, "third").await;
        net.all_have("third").await;
        net.agree();
        for node in all {
            assert!(!net.has(node, &Bytes::from_static(b"lost")));
        }
    });
}

/// Nothing is committed while a majority is away, and everything goes on when it returns;
/// also after all of them stopped.
#[test]
fn no_majority_no_progress() {
    local(async {
        let mut net = Net::new("minority", 5).await;
        let all = [0, 1, 2, 3, 4];
        net.commit(&all, "first").await;
        let leader = net.leader(&all).await;
        let gone: Vec<u64> = all.into_iter().filter(|n| *n != leader).take(3).collect();
        for node in &gone {
            net.crash(*node).await;
        }
        let quorum = net.wires.borrow().up[&leader].clone();
        quorum.propose(1 << 40, Bytes::from_static(b"waits")).await.unwrap();
        drop(quorum);
        tokio::time::sleep(Duration::from_secs(10)).await;
        for node in all {
            assert!(!net.has(node, &Bytes::from_static(b"waits")));
        }
        for node in gone {
            net.start(node).await;
        }
        net.commit(&all, "second").await;
        for node in all {
            net.crash(node).await;
        }
        for node in all {
            net.start(node).await;
        }
        net.commit(&all, "third").await;
        net.all_have("third").await;
        net.agree();
        for node in all {
            for text in [&b"first"[..], b"second"] {
                assert!(net.has(node, &Bytes::copy_from_slice(text)));
            }
        }
    });
}

/// A slow network elects and commits.
#[test]
fn slow_wires() {
    local(async {
        let mut net = Net::new("slow", 3).await;
        net.wires.borrow_mut().delay_ms = 40;
        for n in 0..5 {
            net.commit(&[0, 1, 2], &format!("n{n}")).await;
        }
        net.all_have("n4").await;
        net.agree();
    });
}

/// One that was away while the log was cut gets the state in pieces; so does one that
/// joins; one that is removed no longer counts.
#[test]
fn members_change_and_catch_up() {
    local(async {
        let mut net = Net::new("members", 3).await;
        let all = [0, 1, 2];
        net.commit(&all, "first").await;
        let leader = net.leader(&all).await;
        let away = *all.iter().find(|n| **n != leader).unwrap();
        net.crash(away).await;
        for n in 0..300 {
            net.commit(&all, &format!("n{n}")).await;
        }
        let leader = net.leader(&all).await;
        let last = net.mons[&leader].told.borrow().last().unwrap().0;
        // More than one piece.
        let state = Bytes::from(vec![7u8; wire::SNAPSHOT_PART * 2 + 5]);
        let quorum = net.wires.borrow().up[&leader].clone();
        quorum.offer_snapshot(last, state.clone()).await.unwrap();
        net.until("the log is cut", |_| {
            let metrics = quorum.raft.metrics();
            let purged = metrics.borrow().purged;
            (purged.is_some_and(|id| id.index > 100)).then_some(())
        })
        .await;
        net.start(away).await;
        net.until("the state came", |net| (*net.mons[&away].state.borrow() == state).then_some(()))
            .await;
        net.commit(&all, "after").await;
        net.all_have("after").await;

        let file = path("members-new");
        create(&file, 77, &BTreeMap::new(), b"nothing").unwrap();
        net.add(77, file);
        net.start(77).await;
        let leader = net.leader(&all).await;
        let quorum = net.wires.borrow().up[&leader].clone();
        let mut wanted = quorum.members().0;
        assert_eq!(wanted.len(), 3);
        wanted.insert(77, "d".to_owned());
        quorum.change_members(&wanted).await.unwrap();
        assert_eq!(quorum.members().0, wanted);
        net.commit(&[0, 1, 2, 77], "four").await;
        net.all_have("four").await;
        assert_eq!(*net.mons[&77].state.borrow(), state);

        wanted.remove(&away);
        let leader = net.leader(&[0, 1, 2, 77]).await;
        let quorum = net.wires.borrow().up[&leader].clone();
        quorum.change_members(&wanted).await.unwrap();
        net.crash(away).await;
        let rest: Vec<u64> = wanted.keys().copied().collect();
        net.commit(&rest, "three").await;
        let leader = net.leader(&rest).await;
        assert_eq!(net.wires.borrow().up[&leader].members().0, wanted);
        net.agree();
    });
}

/// Of two monitors the leader is to leave: the other leads before it goes, at once and by the
/// leader's own vote, and then goes on alone, even if what the leader heard last was cut off.
#[test]
fn a_leader_that_leaves_lets_the_other_lead() {
    local(async {
        let mut net = Net::new("leave", 2).await;
        let all = [0, 1];
        net.commit(&all, "first").await;
        let leader = net.leader(&all).await;
        let other = 1 - leader;
        let (leaves, stays) = {
            let up = &net.wires.borrow().up;
            (up[&leader].clone(), up[&other].clone())
        };
        assert!(!stays.yield_to(leader).await.unwrap(), "only a leader yields");
        leaves.allow_elections(false);
        let term = leaves.raft.metrics().borrow().current_term;
        // Not before the other has the whole log, nor right after it was elected itself.
        let mut tries = 0;
        while !leaves.yield_to(other).await.unwrap() {
            tries += 1;
            assert!(tries < 50, "it votes for the other");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let next = net.until("the other leads", |net| {
            let term = *net.mons[&other].leads.borrow();
            (term > 0).then_some(term)
        });
        assert_eq!(next.await, term + 1, "it had the vote");
        stays.change_members(&BTreeMap::from([(other, "m".to_owned())])).await.unwrap();
        net.crash(leader).await;
        net.commit(&[other], "alone").await;
        net.agree();
    });
}
