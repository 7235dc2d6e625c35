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
            if s.quorum.raft.metrics().borrow().snapshot.is_some() {
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
