//! What is kept in memory.

use serde_json::json;

use bytes::Bytes;
use maps::fs::InodeStore;

use super::*;
use crate::tree::{Node, Tree, Txn};

const DIRS: usize = 25;
const FILES: usize = 60;

/// A tree whose client is gone, written back and in memory whole.
fn tree() -> World {
    let mut w = World::new();
    for d in 0..DIRS {
        w.mkdir(&format!("d{d}"));
        for f in 0..FILES {
            w.create(&format!("d{d}/{f}"));
        }
    }
    w.ok("session evict", json!({"filters": ["id=77"]}));
    w.ticks(DIRS * FILES / 8);
    w.ok("flush journal", json!({}));
    assert!(w.mds_inodes() > DIRS * FILES);
    w
}

/// The limit is one of bytes: inodes with large attributes are dropped though they are few.
#[test]
fn the_limit_is_held_against_measured_memory() {
    let mut w = tree();
    let all = w.mds_inodes();
    // A fifth is for what the allocator's slabs have beside.
    let limit = w.options.cache_bytes_max / 5 * 4;
    w.mds.on_memory(limit - 1);
    w.ticks(8);
    assert_eq!(w.mds_inodes(), all, "all fits");
    w.mds.on_memory(limit / 100 * 125);
    w.ticks(8);
    let left = w.mds_inodes();
    let wanted = all * 100 / 125;
    assert!((wanted - wanted / 20 - 2 * FILES..=wanted).contains(&left), "{left} of {all}");
    // What is served does not depend on what is in memory.
    let status = w.ok("cache status", json!({}));
    assert!(status["pool"]["bytes"].as_u64().unwrap() <= limit, "{status}");
    w.mds.on_memory(limit * 1_000);
    w.ticks(20);
    assert!(w.mds_inodes() >= 1_000 - 2 * FILES, "a thousand stay, whatever is measured");
}

/// What is known of a file does not keep the messages that it came by.
#[test]
fn names_do_not_keep_messages() {
    let mut tree = Tree::default();
    let mut txn = Txn::at(UTime::ZERO);
    let store = |ino, mode| {
        let mut store = InodeStore::default();
        (store.inode.ino, store.inode.mode) = (ino, mode);
        store
    };
    let root = Node::new(store(Ino(1), 0o040_755), None);
    tree.nodes.insert(Ino(1), Box::new(root));
    tree.begin_dir(&mut txn, Ino(1));
    let message = Bytes::from(vec![b'n'; 4096]);
    let (one, two) = (message.slice(..20), message.slice(..30));
    let file = Node::new(store(Ino(9), 0o100_644), None);
    tree.link(&mut txn, Ino(1), &one, file, Bytes::new());
    tree.link_remote(&mut txn, Ino(1), &two, Ino(9), 8);
    drop((one, two, txn));
    assert_eq!(tree.lookup(Ino(1), &[b'n'; 20]).unwrap().map(|e| e.link.ino()), Some(Ino(9)));
    assert!(message.is_unique());
    // One inode, and one cap, are each one allocation of this size class.
    assert!(size_of::<Node>() <= 1024, "{}", size_of::<Node>());
    assert!(size_of::<crate::capset::Cap>() <= 64);
}
