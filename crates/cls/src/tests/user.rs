//! `user`: buckets and their sums; resources of accounts.

use bytes::Bytes;
use types::{Errno, UTime};

use super::{Mem, bytes};
use crate::USERS;
use crate::user::*;

fn entry(name: &str, size: u64, count: u64) -> BucketEntry {
    let bucket = Bucket { name: bytes(name), ..Bucket::default() };
    BucketEntry { bucket, size, size_rounded: size * 2, count, ..BucketEntry::default() }
}

fn stats(o: &mut Mem) -> (u64, u64, u64) {
    let ret: HeaderRet = o.ask("user", "get_header", &HeaderOp::default()).unwrap();
    let s = ret.header.stats;
    (s.entries, s.bytes, s.bytes_rounded)
}

#[test]
fn buckets_are_summed() {
    let mut o = Mem::new();
    assert_eq!(o.run("user", "get_header", &HeaderOp::default()), Err(Errno::NOENT));
    let set = |entries, add| SetOp { entries, add, time: UTime { sec: 5, nsec: 0 } };
    o.run("user", "set_buckets_info", &set(vec![entry("a", 10, 1), entry("b", 20, 2)], true))
        .unwrap();
    assert_eq!(stats(&mut o), (3, 30, 60));
    // Others are not added by an update; adding what is there keeps its size.
    o.run("user", "set_buckets_info", &set(vec![entry("a", 15, 3), entry("c", 9, 9)], false))
        .unwrap();
    assert_eq!(stats(&mut o), (5, 35, 70));
    o.run("user", "set_buckets_info", &set(vec![entry("a", 99, 99)], true)).unwrap();
    assert_eq!(stats(&mut o), (5, 35, 70));
    let unnamed = set(vec![entry("", 1, 1)], true);
    assert_eq!(o.run("user", "set_buckets_info", &unnamed), Err(Errno::INVAL));
    let list = ListOp { max: 1, ..ListOp::default() };
    let listed: Listed = o.ask("user", "list_buckets", &list).unwrap();
    assert!(listed.truncated && listed.marker == "a");
    let list = ListOp { marker: bytes("a"), max: 10, end_marker: bytes("b") };
    let listed: Listed = o.ask("user", "list_buckets", &list).unwrap();
    assert!(!listed.truncated && listed.entries.is_empty());
    let time = TimeOp { time: UTime { sec: 7, nsec: 0 } };
    o.run("user", "complete_stats_sync", &time).unwrap();
    let remove = RemoveOp { bucket: entry("a", 0, 0).bucket };
    o.run("user", "remove_bucket", &remove).unwrap();
    o.run("user", "remove_bucket", &remove).unwrap();
    assert_eq!(stats(&mut o), (2, 20, 40));
    o.header = Bytes::new();
    o.run("user", "reset_user_stats", &time).unwrap();
    assert_eq!(stats(&mut o), (2, 20, 40));
    let ret: ResetRet = o.ask("user", "reset_user_stats2", &ResetOp::default()).unwrap();
    assert!(!ret.truncated && ret.marker == "b" && ret.stats.bytes == 20);
    o.header = bytes("?");
    assert_eq!(o.run("user", "get_header", &HeaderOp::default()), Err(Errno::IO));
    o.refuses_short_input(
        "user",
        &["set_buckets_info", "remove_bucket", "list_buckets", "reset_user_stats2"],
    );
}

#[test]
fn account_resources() {
    let mut o = Mem::new();
    let add = |name: &str, path: &str, exclusive, limit| ResourceAddOp {
        entry: Resource { name: bytes(name), path: bytes(path), metadata: Bytes::new() },
        exclusive,
        limit,
    };
    let call = |o: &mut Mem, op: &ResourceAddOp| o.run("user", "account_resource_add", op);
    assert_eq!(call(&mut o, &add("User1", "/a/", true, 0)), Err(USERS));
    call(&mut o, &add("User1", "/a/", true, 2)).unwrap();
    assert_eq!(call(&mut o, &add("uSER1", "/a/", true, 2)), Err(Errno::EXIST));
    call(&mut o, &add("USER1", "/b/", false, 1)).unwrap();
    call(&mut o, &add("user2", "/a/", true, 2)).unwrap();
    assert_eq!(call(&mut o, &add("user3", "/a/", true, 2)), Err(USERS));
    let get = ResourceOp { name: bytes("user1") };
    let ret: ResourceRet = o.ask("user", "account_resource_get", &get).unwrap();
    assert_eq!((ret.entry.name, ret.entry.path), (bytes("USER1"), bytes("/b/")));
    let list = ResourceListOp { path_prefix: bytes("/a"), max: 1, ..Default::default() };
    let listed: ResourceListed = o.ask("user", "account_resource_list", &list).unwrap();
    assert_eq!(listed.entries.len(), 1);
    assert_eq!(listed.entries[0].name, "user2");
    assert!(!listed.truncated);
    o.run("user", "account_resource_rm", &get).unwrap();
    assert_eq!(o.run("user", "account_resource_rm", &get), Err(Errno::NOENT));
    assert_eq!(o.run("user", "account_resource_get", &get), Err(Errno::NOENT));
    call(&mut o, &add("user3", "/a/", true, 2)).unwrap();
}
