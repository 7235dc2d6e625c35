//! The log alone and among others: order, restarts, snapshots.

use super::*;

/// The file of a store, in a directory that goes with it.
pub(super) struct Place(std::path::PathBuf);

impl std::ops::Deref for Place {
    type Target = std::path::Path;
    fn deref(&self) -> &std::path::Path {
        &self.0
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(self.0.parent().expect("it is in a directory"));
    }
}

pub(super) fn path(name: &str) -> Place {
    let dir = std::env::temp_dir().join(format!("argonaut-quorum-{}-{name}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir).unwrap();
    Place(dir.join("mon.redb"))
}

pub(super) fn run<T>(f: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(f)
}

/// The next entry.
async fn next(events: &mut mpsc::UnboundedReceiver<Event>) -> Event {
    loop {
        let event = tokio::time::timeout(Duration::from_secs(10), events.recv()).await;
        match event.unwrap().unwrap() {
            Event::Began { .. } | Event::Standing { .. } | Event::Members { .. } => {}
            event => return event,
        }
    }
}

/// Until this monitor leads: before that nothing may be proposed.
async fn led(s: &Started) {
    let wait = s.quorum.raft.wait(Some(Duration::from_secs(10)));
    wait.current_leader(s.node, "it leads").await.unwrap();
}

/// Entries come back in order, survive a restart, and are dropped behind a snapshot.
#[test]
fn commits_restarts_and_snapshots() {
    let path = path("restart");
    let founders = BTreeMap::from([(7, "a".to_owned())]);
    create(&path, 7, &founders, b"first").unwrap();
    assert!(matches!(create(&path, 7, &founders, b"x"), Err(StoreError::Exists(_))));
    let mut last = 0;
    run(async {
        let mut s = start(&path).await.unwrap();
        led(&s).await;
        assert_eq!((s.node, &s.state[..]), (7, &b"first"[..]));
        for token in 0..200u64 {
            s.quorum.propose(token, Bytes::from(format!("e{token}"))).await.unwrap();
        }
        for want in 0..200u64 {
            let Event::Committed { index, origin, token, data } = next(&mut s.events).await else {
                panic!("an entry")
            };
            assert_eq!((origin, token, data), (7, want, Bytes::from(format!("e{want}"))));
            assert!(index > last);
            last = index;
        }
        s.quorum.stop().await;
    });
    run(async {
        let mut s = start(&path).await.unwrap();
        led(&s).await;
        assert_eq!(&s.state[..], b"first");
        for want in 0..200u64 {
            let Event::Committed { token, index, .. } = next(&mut s.events).await else {
                panic!("an entry")
            };
            assert_eq!(token, want);
            last = index;
        }
        s.quorum.offer_snapshot(last, Bytes::from_static(b"second")).await.unwrap();
        s.quorum.propose(1, Bytes::from_static(b"after")).await.unwrap();
        assert!(matches!(next(&mut s.events).await, Event::Committed { token: 1, .. }));
        for _ in 0..200 {
            tokio::time::sleep(Duration::from_millis(10)).await;
            let metrics = s.quorum.raft.metrics().borrow().clone();
            // The log is cut a while after the snapshot is there.
            if metrics.snapshot.is_some() && metrics.purged.is_some_and(|id| id.index >= 64) {
                break;
            }
        }
        s.quorum.stop().await;
    });
    run(async {
        let mut s = start(&path).await.unwrap();
        led(&s).await;
        assert_eq!(&s.state[..], b"second");
        let Event::Committed { data, .. } = next(&mut s.events).await else { panic!("an entry") };
        assert_eq!(&data[..], b"after");
        s.quorum.stop().await;
    });
    let (purged, last) = store::Store::open(&path).unwrap().log_ends().unwrap();
    let (purged, last) = (purged.expect("old entries are gone").index, last.unwrap().index);
    assert!(purged >= 64 && last > 200, "{purged} {last}");
}

/// A file that cannot be written ends this monitor's part, and it says why.
#[test]
fn who_cannot_write_says_so() {
    let founders = BTreeMap::from([(7, "a".to_owned())]);
    let file = memory::Memory::new(7, &founders, &Bytes::from_static(b"first"));
    let pause = || tokio::time::sleep(Duration::from_millis(2));
    run(async {
        let disk = file.clone();
        let flushes = tokio::spawn(async move {
            loop {
                disk.flush(8);
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        });
        let s = start_in_memory(file.clone(), 400).await.unwrap();
        led(&s).await;
        assert_eq!(s.quorum.failure(), None);
        flushes.abort();
        pause().await;
        s.quorum.propose(1, Bytes::from_static(b"an entry")).await.unwrap();
        while file.queued() == 0 {
            pause().await;
        }
        file.crash(0);
        for _ in 0..1_000 {
            if s.quorum.failure().is_some() {
                return;
            }
            pause().await;
        }
        panic!("it goes on without its file");
    });
}

/// Entries go to another monitor in messages of a bound; one that is larger goes alone.
#[test]
fn large_entries_go_few_at_a_time() {
    let path = path("large");
    let founders = BTreeMap::from([(7, "a".to_owned())]);
    create(&path, 7, &founders, b"first").unwrap();
    run(async {
        let mut s = start(&path).await.unwrap();
        led(&s).await;
        for (token, len) in [1_000, 1_000, 5_000, 100, 100].into_iter().enumerate() {
            s.quorum.propose(token as u64, Bytes::from(vec![1; len])).await.unwrap();
        }
        for _ in 0..5 {
            assert!(matches!(next(&mut s.events).await, Event::Committed { .. }));
        }
        s.quorum.stop().await;
    });
    let store = store::Store::open(&path).unwrap();
    let (_, last) = store.log_ends().unwrap();
    let end = last.unwrap().index + 1;
    let from = |start: u64, max| -> Vec<u64> {
        let found = store.first_entries(start..end, max).unwrap();
        found.iter().map(|e| e.log_id.index).collect()
    };
    let first = end - 5;
    assert_eq!(from(first, 2_500), [first, first + 1]);
    assert_eq!(from(first + 2, 2_500), [first + 2], "larger than all may be");
    assert_eq!(from(first + 3, 2_500), [first + 3, first + 4]);
    assert_eq!(from(first, 1 << 20).len(), 5);
    assert_eq!(from(end, 100), [] as [u64; 0]);
}

/// A log that ends before what was committed, as after lost votes, is an error at once: what
/// a store lacks, no later state of the same store can cover.
#[test]
fn a_log_that_lost_its_end_is_refused() {
    let path = path("lost-end");
    let founders = BTreeMap::from([(7, "a".to_owned())]);
    create(&path, 7, &founders, b"first").unwrap();
    run(async {
        let mut s = start(&path).await.unwrap();
        led(&s).await;
        for token in 0..20 {
            s.quorum.propose(token, Bytes::from_static(b"x")).await.unwrap();
            assert!(matches!(next(&mut s.events).await, Event::Committed { .. }));
        }
        s.quorum.stop().await;
    });
    run(async {
        // The same entries again, but of an earlier term than what was committed.
        let store = store::Store::open(&path).unwrap();
        let (_, last) = store.log_ends().unwrap();
        let mut entries = store.entries(..).unwrap();
        let mut ahead = last.unwrap();
        ahead.leader_id.term += 1;
        let entry = entries.pop().unwrap();
        store.note_committed(Some(ahead));
        store.append(vec![entry]).await.unwrap();
    });
    let opened = run(async { tokio::time::timeout(Duration::from_secs(10), start(&path)).await });
    let error = opened.expect("opening ends").err().expect("the log is refused").to_string();
    assert!(error.contains("it ends before what was committed; the log is damaged"), "{error}");
}
