//! Methods on an object in memory.

use std::collections::BTreeMap;

use bytes::Bytes;
use denc::Denc;
use types::{Errno, UTime};

use super::types::{
    BiEntry, Dir, DirEntry, EntryVer, Header, Key, Meta, Packed, Resharding, Stats, bi, flag,
    modify,
};
use super::{gc, index, keys, lc, list, multipart, object, raw, reshard, usage, versions};
use crate::rgw_gc::{Info, List, Listed, SetEntry};
use crate::tests::{Mem, Nothing, bytes};

fn key(name: &str) -> Key {
    version(name, "")
}

fn version(name: &str, instance: &str) -> Key {
    Key { name: bytes(name), instance: bytes(instance) }
}

fn meta(size: u64) -> Meta {
    Meta { category: 1, size, accounted_size: size, ..Meta::default() }
}

fn shard() -> Mem {
    let mut o = Mem::new();
    o.run("rgw", "bucket_init_index", &Nothing).unwrap();
    o
}

fn prepare(o: &mut Mem, op: u8, tag: &str, key: &Key) -> Result<(), Errno> {
    let op = index::PrepareOp { op, tag: bytes(tag), key: key.clone(), ..Default::default() };
    o.run("rgw", "bucket_prepare_op", &op)
}

fn completion(op: u8, tag: &str, key: &Key, epoch: u64, size: u64) -> index::CompleteOp {
    index::CompleteOp {
        op,
        tag: bytes(tag),
        key: key.clone(),
        epoch,
        ver: EntryVer { pool: 3, epoch },
        meta: meta(size),
        log_op: true,
        ..Default::default()
    }
}

fn complete(o: &mut Mem, op: u8, tag: &str, key: &Key, epoch: u64, size: u64) -> Result<(), Errno> {
    o.run("rgw", "bucket_complete_op", &completion(op, tag, key, epoch, size))
}

fn add(o: &mut Mem, key: &Key, epoch: u64, size: u64) {
    prepare(o, modify::ADD, "t", key).unwrap();
    complete(o, modify::ADD, "t", key, epoch, size).unwrap();
}

fn header(o: &Mem) -> Header {
    Header::from_bytes(&o.header).unwrap()
}

fn main(o: &Mem) -> Stats {
    header(o).stats.get(&1).copied().unwrap_or_default()
}

fn entry(o: &Mem, idx: &[u8]) -> Option<DirEntry> {
    o.omap.get(idx).map(|raw| DirEntry::from_bytes(raw).unwrap())
}

/// Keys without those of the index log.
fn stored_keys(o: &Mem) -> Vec<Bytes> {
    o.omap.keys().filter(|key| !key.starts_with(keys::LOG)).cloned().collect()
}

fn list(o: &mut Mem, op: &list::ListOp) -> list::ListRet {
    o.ask("rgw", "bucket_list", op).unwrap()
}

fn names(dir: &Dir) -> Vec<String> {
    dir.entries.values().map(|e| String::from_utf8(e.key.name.to_vec()).unwrap()).collect()
}

fn log_of(o: &mut Mem) -> Vec<(u8, String)> {
    let op = raw::LogListOp { max: 100, ..Default::default() };
    let ret: raw::LogListRet = o.ask("rgw", "bi_log_list", &op).unwrap();
    let text = |b: &Bytes| String::from_utf8(b.to_vec()).unwrap();
    ret.entries.iter().map(|e| (e.op, text(&e.object))).collect()
}

#[test]
fn an_object_comes_and_goes() {
    let mut o = shard();
    assert_eq!(o.run("rgw", "bucket_init_index2", &Nothing), Err(Errno::INVAL));
    assert_eq!(header(&o).ver, 1);
    let a = key("a");
    assert_eq!(prepare(&mut o, modify::ADD, "", &a), Err(Errno::INVAL));
    prepare(&mut o, modify::ADD, "t1", &a).unwrap();
    assert_eq!(header(&o).ver, 1, "an announcement leaves the header");
    assert_eq!(entry(&o, b"a").unwrap().pending.len(), 1);
    assert_eq!(complete(&mut o, modify::ADD, "t2", &a, 5, 100), Err(Errno::INVAL));
    complete(&mut o, modify::ADD, "t1", &a, 5, 100).unwrap();
    assert_eq!(main(&o), Stats { size: 100, rounded: 4096, entries: 1, actual: 100 });
    let found = entry(&o, b"a").unwrap();
    assert!(found.exists && found.pending.is_empty());
    assert_eq!((found.index_ver, found.tag), (Packed(1), bytes("t1")));

    // Written again: the old one is taken off.
    add(&mut o, &a, 6, 5000);
    assert_eq!(main(&o), Stats { size: 5000, rounded: 8192, entries: 1, actual: 5000 });
    // An older write that ends late changes nothing.
    prepare(&mut o, modify::ADD, "late", &a).unwrap();
    complete(&mut o, modify::ADD, "late", &a, 6, 1).unwrap();
    assert_eq!(main(&o).size, 5000);
    // A canceled one neither.
    prepare(&mut o, modify::DEL, "c", &a).unwrap();
    complete(&mut o, modify::CANCEL, "c", &a, 0, 0).unwrap();
    assert!(entry(&o, b"a").unwrap().exists);

    // Deleted while another operation is under way: the entry stays until that ends.
    prepare(&mut o, modify::ADD, "other", &a).unwrap();
    prepare(&mut o, modify::DEL, "d", &a).unwrap();
    complete(&mut o, modify::DEL, "d", &a, 9, 0).unwrap();
    assert!(!entry(&o, b"a").unwrap().exists);
    assert_eq!(main(&o), Stats::default());
    complete(&mut o, modify::CANCEL, "other", &a, 0, 0).unwrap();
    assert!(entry(&o, b"a").is_none());
    let ops: Vec<_> = log_of(&mut o).into_iter().map(|(op, _)| op).collect();
    assert_eq!(ops, [modify::ADD, modify::ADD, modify::DEL]);
    let h = header(&o);
    assert!(h.max_marker.starts_with(b"000000000"), "{:?}", h.max_marker);
}

#[test]
fn parts_go_with_the_object_they_became() {
    let mut o = shard();
    for n in 0..3 {
        add(&mut o, &key(&format!("_multipart_a.{n}")), 1, 10);
    }
    prepare(&mut o, modify::ADD, "t", &key("a")).unwrap();
    let mut op = completion(modify::ADD, "t", &key("a"), 2, 30);
    op.remove_objs = vec![key("_multipart_a.0"), key("_multipart_a.2"), key("missing")];
    o.run("rgw", "bucket_complete_op", &op).unwrap();
    assert_eq!(stored_keys(&o), ["_multipart_a.1", "a"]);
    assert_eq!((main(&o).entries, main(&o).size), (2, 40));
}

#[test]
fn sums_can_be_set_and_counted_again() {
    let mut o = shard();
    add(&mut o, &key("a"), 1, 10);
    add(&mut o, &key("\u{e4}"), 1, 20);
    let stats = BTreeMap::from([(1, Stats { size: 7, rounded: 7, entries: 7, actual: 7 })]);
    let mut op = index::UpdateStatsOp { absolute: true, stats, ..Default::default() };
    o.run("rgw", "bucket_update_stats", &op).unwrap();
    assert_eq!(main(&o).entries, 7);
    op.absolute = false;
    op.dec_stats = BTreeMap::from([(1, Stats { size: 1, rounded: 1, entries: 20, actual: 1 })]);
    o.run("rgw", "bucket_update_stats", &op).unwrap();
    assert_eq!(main(&o).entries, 14u64.wrapping_sub(20), "counters wrap");
    op.absolute = true;
    assert_eq!(o.run("rgw", "bucket_update_stats", &op), Err(Errno::INVAL));
    let ret: index::CheckRet = o.ask("rgw", "bucket_check_index", &Nothing).unwrap();
    assert_eq!(ret.calculated.stats[&1].entries, 2);
    assert_eq!(ret.existing.stats[&1].entries, 14u64.wrapping_sub(20));
    o.run("rgw", "bucket_rebuild_index", &Nothing).unwrap();
    assert_eq!((main(&o).entries, main(&o).size), (2, 30));
    o.run("rgw", "bucket_set_tag_timeout", &index::TagTimeoutOp { tag_timeout: 9 }).unwrap();
    assert_eq!(header(&o).tag_timeout, 9);
}

#[test]
fn listings_have_pages_prefixes_and_both_regions() {
    let mut o = shard();
    for name in ["a", "b/1", "b/2", "b/3", "c", "\u{e4}"] {
        add(&mut o, &key(name), 1, 1);
    }
    // Special keys lie between c and the last one.
    for n in 0..5 {
        link(&mut o, "v", &format!("i{n}"), false, 0).unwrap();
    }
    let all = list::ListOp { max: 100, ..Default::default() };
    assert_eq!(names(&list(&mut o, &all).dir), ["a", "b/1", "b/2", "b/3", "c", "v", "\u{e4}"]);
    let only = list::ListOp { max: 0, ..all.clone() };
    let ret = list(&mut o, &only);
    assert_eq!((ret.truncated, ret.dir.entries.len()), (false, 0));
    assert_eq!(ret.dir.header, header(&o));

    // Page by page.
    for max in 1..8 {
        let (mut op, mut seen) = (list::ListOp { max, ..all.clone() }, Vec::new());
        loop {
            let ret = list(&mut o, &op);
            seen.extend(names(&ret.dir));
            if !ret.truncated {
                break;
            }
            op.start_after = ret.marker;
        }
        assert_eq!(seen, ["a", "b/1", "b/2", "b/3", "c", "v", "\u{e4}"], "by {max}");
    }
    let op = list::ListOp { delimiter: bytes("/"), ..all.clone() };
    let ret = list(&mut o, &op);
    assert_eq!(names(&ret.dir), ["a", "b/", "c", "v", "\u{e4}"]);
    assert_eq!(ret.dir.entries[&b"b/"[..]].flags, flag::COMMON_PREFIX);
    let op = list::ListOp { start_after: key("b/"), ..op };
    assert_eq!(names(&list(&mut o, &op).dir), ["c", "v", "\u{e4}"]);
    let op = list::ListOp { prefix: bytes("b/"), delimiter: bytes("/"), ..all.clone() };
    assert_eq!(names(&list(&mut o, &op).dir), ["b/1", "b/2", "b/3"]);
    let op = list::ListOp { list_versions: true, prefix: bytes("v"), ..all };
    let ret = list(&mut o, &op);
    let instances: Vec<_> = ret.dir.entries.values().map(|e| e.key.instance.clone()).collect();
    assert_eq!(instances, ["i4", "i3", "i2", "i1", "i0"], "the newest first");
    let op = list::ListOp { start_after: version("v", "i3"), ..op };
    assert_eq!(list(&mut o, &op).dir.entries.len(), 3);
}

/// Where a page shows nothing, the caller is told to go on, and from where.
#[test]
fn a_page_of_delete_markers_is_passed_over() {
    let mut o = shard();
    for n in 0..20 {
        link(&mut o, &format!("{n:02}"), "x", true, 0).unwrap();
    }
    let op = list::ListOp { max: 1, ..Default::default() };
    let reply = o.call("rgw", "bucket_list", &op.to_bytes()).unwrap();
    assert_eq!(reply.value, Errno::FBIG.0);
    let ret = list::ListRet::from_bytes(&reply.data).unwrap();
    assert!(ret.truncated && ret.dir.entries.is_empty());
    // Eight reads of a pair each, a placeholder and a marker for each name.
    assert_eq!(ret.marker.name, "03\x01");
}

fn link_op(name: &str, instance: &str, delete_marker: bool, olh_epoch: u64) -> versions::LinkOp {
    versions::LinkOp {
        key: version(name, instance),
        olh_tag: bytes("olh"),
        op_tag: bytes("op"),
        delete_marker,
        meta: Meta { category: if delete_marker { 0 } else { 1 }, ..Meta::default() },
        olh_epoch,
        log_op: true,
        ..Default::default()
    }
}

/// Links a version; its own entry is made before, as the gateway does.
fn link(o: &mut Mem, name: &str, instance: &str, marker: bool, epoch: u64) -> Result<(), Errno> {
    if !marker {
        add(o, &version(name, instance), 1, 1);
    }
    o.run("rgw", "bucket_link_olh", &link_op(name, instance, marker, epoch))
}

fn unlink(o: &mut Mem, name: &str, instance: &str) -> Result<(), Errno> {
    let op = versions::UnlinkOp {
        key: version(name, instance),
        op_tag: bytes("un"),
        olh_tag: bytes("olh"),
        log_op: true,
        ..Default::default()
    };
    o.run("rgw", "bucket_unlink_instance", &op)
}

fn olh(o: &Mem, name: &str) -> super::types::Olh {
    super::types::Olh::from_bytes(&o.omap[&keys::olh_key(name.as_bytes())]).unwrap()
}

fn current(o: &mut Mem, name: &str) -> Option<Bytes> {
    let op = list::ListOp { max: 9, prefix: bytes(name), ..Default::default() };
    list(o, &op).dir.entries.into_values().next().map(|e| e.key.instance)
}

#[test]
fn versions_are_linked_and_unlinked() {
    let mut o = shard();
    add(&mut o, &key("k"), 1, 50);
    let without = link_op("k", "none", false, 0);
    assert_eq!(o.run("rgw", "bucket_link_olh", &without), Err(Errno::NOENT));
    link(&mut o, "k", "v1", false, 0).unwrap();
    // The plain entry became the null version, under a placeholder.
    assert_eq!(entry(&o, b"k").unwrap().flags, flag::VER_MARKER);
    let null = entry(&o, b"\x801000_k\0i").unwrap();
    assert_eq!((null.versioned_epoch, null.flags), (1, flag::VER));
    assert_eq!(olh(&o, "k").epoch, 2);
    assert_eq!(current(&mut o, "k").unwrap(), "v1");
    link(&mut o, "k", "v2", false, 0).unwrap();
    assert_eq!(entry(&o, b"k\0v912\0iv2").unwrap().flags, flag::VER | flag::CURRENT);
    assert_eq!(entry(&o, b"k\0v913\0iv1").unwrap().flags, flag::VER);
    assert_eq!((main(&o).entries, main(&o).size), (3, 52));

    // A marker hides it; taken away, v2 is back.
    link(&mut o, "k", "m", true, 0).unwrap();
    assert_eq!(current(&mut o, "k"), None);
    assert!(olh(&o, "k").delete_marker);
    unlink(&mut o, "k", "m").unwrap();
    assert_eq!(current(&mut o, "k").unwrap(), "v2");
    assert!(!o.omap.contains_key(&b"\x801000_k\0im"[..]), "the marker's own entry is gone");
    unlink(&mut o, "k", "v2").unwrap();
    assert_eq!(current(&mut o, "k").unwrap(), "v1");
    unlink(&mut o, "k", "v1").unwrap();
    assert_eq!(current(&mut o, "k").unwrap(), "", "the null version");
    assert_eq!(unlink(&mut o, "k", "gone"), Err(Errno::NOENT));
    unlink(&mut o, "k", "").unwrap();
    let last = olh(&o, "k");
    assert!(last.pending_removal && !last.exists);
    assert_eq!(last.key, key("k"), "the name stays");

    // What the gateway has to do, in order.
    let op = versions::ReadLogOp { olh: key("k"), ver_marker: 0, olh_tag: bytes("olh") };
    let ret: versions::ReadLogRet = o.ask("rgw", "bucket_read_olh_log", &op).unwrap();
    let ops: Vec<Vec<u8>> = ret.log.values().map(|l| l.iter().map(|e| e.op).collect()).collect();
    let wanted: [&[u8]; 7] = [&[1], &[1], &[1], &[1], &[1, 3], &[1, 3], &[2, 3]];
    assert_eq!(ops, wanted);
    let trim = versions::TrimLogOp { olh: key("k"), ver: 7, olh_tag: bytes("olh") };
    o.run("rgw", "bucket_trim_olh_log", &trim).unwrap();
    assert_eq!(olh(&o, "k").log.len(), 1);
    for tag in ["other", ""] {
        let op = versions::ReadLogOp { olh_tag: bytes(tag), ..op.clone() };
        assert_eq!(o.run("rgw", "bucket_read_olh_log", &op), Err(Errno::CANCELED));
        let trim = versions::TrimLogOp { olh_tag: bytes(tag), ..trim.clone() };
        assert_eq!(o.run("rgw", "bucket_trim_olh_log", &trim), Err(Errno::CANCELED));
    }
    let wrong = versions::ReadLogOp { olh: version("k", "x"), ..op };
    assert_eq!(o.run("rgw", "bucket_read_olh_log", &wrong), Err(Errno::INVAL));
    let clear = versions::ClearOp { key: key("k"), olh_tag: bytes("olh") };
    o.run("rgw", "bucket_clear_olh", &clear).unwrap();
    assert!(entry(&o, b"k").is_none(), "the placeholder is gone, too");
    assert_eq!(o.run("rgw", "bucket_clear_olh", &clear), Err(Errno::NOENT));
    // An empty log is no accident.
    let op = versions::ReadLogOp { olh: key("none"), ..Default::default() };
    let ret: versions::ReadLogRet = o.ask("rgw", "bucket_read_olh_log", &op).unwrap();
    assert!(ret.log.is_empty() && !ret.truncated);
}

#[test]
fn null_versions_replace_each_other() {
    let mut o = shard();
    link(&mut o, "n", "", false, 0).unwrap();
    assert_eq!(current(&mut o, "n").unwrap(), "");
    link(&mut o, "n", "", true, 0).unwrap();
    assert_eq!(current(&mut o, "n"), None);
    assert!(o.omap.contains_key(&b"\x801000_n\0i\0d"[..]));
    add(&mut o, &key("n"), 3, 1);
    o.run("rgw", "bucket_link_olh", &link_op("n", "", false, 0)).unwrap();
    assert_eq!(current(&mut o, "n").unwrap(), "");
    assert!(!o.omap.contains_key(&b"\x801000_n\0i\0d"[..]), "the marker was replaced");
    let op = list::ListOp { max: 9, list_versions: true, ..Default::default() };
    assert_eq!(list(&mut o, &op).dir.entries.len(), 1);
}

#[test]
fn old_epochs_tags_and_times_are_told() {
    let mut o = shard();
    link(&mut o, "k", "b", false, 50).unwrap();
    // Another zone's older version is not the current one.
    link(&mut o, "k", "a", false, 20).unwrap();
    assert_eq!((current(&mut o, "k").unwrap(), olh(&o, "k").epoch), (bytes("b"), 50));
    // Of the same epoch, the smaller instance is.
    link(&mut o, "k", "a2", false, 50).unwrap();
    assert_eq!(current(&mut o, "k").unwrap(), "a2");
    link(&mut o, "k", "c", false, 50).unwrap();
    assert_eq!(current(&mut o, "k").unwrap(), "a2");
    add(&mut o, &version("k", "d"), 1, 1);
    let op = versions::LinkOp { olh_tag: bytes("x"), ..link_op("k", "d", false, 0) };
    assert_eq!(o.run("rgw", "bucket_link_olh", &op), Err(Errno::CANCELED));
    // Changed since: nothing is done.
    let unmod_since = UTime { sec: 5, nsec: 0 };
    let mut late = completion(modify::ADD, "t", &version("k", "e"), 1, 1);
    late.meta.mtime = UTime { sec: 5, nsec: 9 };
    prepare(&mut o, modify::ADD, "t", &late.key).unwrap();
    o.run("rgw", "bucket_complete_op", &late).unwrap();
    let before = o.omap.clone();
    let op = versions::LinkOp { unmod_since, ..link_op("k", "e", false, 0) };
    o.run("rgw", "bucket_link_olh", &op).unwrap();
    assert_eq!(o.omap, before);
    let ops: Vec<_> = log_of(&mut o).into_iter().map(|(op, _)| op).collect();
    assert!(ops.contains(&modify::LINK_OLH));
}

#[test]
fn a_reshard_blocks_or_logs() {
    let mut o = shard();
    add(&mut o, &key("a"), 1, 1);
    let status = |o: &mut Mem, n| {
        let op = index::ReshardingOp { entry: Resharding(n) };
        o.run("rgw", "set_bucket_resharding", &op).unwrap();
    };
    let guard = index::GuardOp { ret_err: -2300 };
    let guarded =
        |o: &mut Mem| o.call("rgw", "guard_bucket_resharding", &guard.to_bytes()).unwrap().value;
    status(&mut o, Resharding::IN_PROGRESS);
    let busy = Err(index::BUSY_RESHARDING);
    assert_eq!(prepare(&mut o, modify::ADD, "t", &key("b")), busy);
    assert_eq!(complete(&mut o, modify::ADD, "t", &key("b"), 1, 1), busy);
    assert_eq!(o.run("rgw", "bucket_rebuild_index", &Nothing), busy);
    assert_eq!(o.run("rgw", "dir_suggest_changes", &Nothing), busy);
    assert_eq!(o.run("rgw", "bi_put_entries", &raw::PutEntriesOp::default()), busy);
    assert_eq!(guarded(&mut o), -2300);
    let ret: index::ReshardingOp =
        o.ask("rgw", "get_bucket_resharding", &index::EmptyOp {}).unwrap();
    assert_eq!(ret.entry, Resharding(1));

    status(&mut o, Resharding::IN_LOGRECORD);
    assert_eq!(guarded(&mut o), 0);
    add(&mut o, &key("b"), 1, 1);
    prepare(&mut o, modify::DEL, "d", &key("a")).unwrap();
    complete(&mut o, modify::DEL, "d", &key("a"), 2, 0).unwrap();
    let op = raw::ListOp { max: 10, reshardlog: true, ..Default::default() };
    let ret: raw::ListRet = o.ask("rgw", "bi_list", &op).unwrap();
    let found: Vec<_> = ret.entries.iter().map(|e| (e.kind, e.idx.clone())).collect();
    assert_eq!(found, [(bi::DELETED, bytes("a")), (bi::PLAIN, bytes("b"))]);
    o.settings.reshardlog_threshold = 2;
    assert_eq!(guarded(&mut o), -2300, "the log is long enough");
    o.run("rgw", "reshard_log_trim", &Nothing).unwrap();
    assert_eq!((guarded(&mut o), header(&o).reshardlog_entries), (0, 0));
    assert_eq!(o.run("rgw", "reshard_log_trim", &Nothing), Err(Errno::NODATA));
    o.run("rgw", "clear_bucket_resharding", &index::EmptyOp {}).unwrap();
    assert_eq!(header(&o).resharding, Resharding(0));
}

#[test]
fn pairs_are_read_written_and_listed() {
    let mut from = shard();
    add(&mut from, &key("a"), 1, 10);
    add(&mut from, &key("\u{e4}"), 1, 20);
    link(&mut from, "k", "i", false, 0).unwrap();
    link(&mut from, "kk", "j", false, 0).unwrap();
    let op = raw::ListOp { max: 100, ..Default::default() };
    let all: raw::ListRet = from.ask("rgw", "bi_list", &op).unwrap();
    let kinds: Vec<_> = all.entries.iter().map(|e| e.kind).collect();
    assert_eq!(kinds, [1, 1, 1, 1, 1, 2, 2, 3, 3, 1]);
    for max in 1..12 {
        let (mut op, mut seen) = (raw::ListOp { max, ..op.clone() }, Vec::new());
        loop {
            let ret: raw::ListRet = from.ask("rgw", "bi_list", &op).unwrap();
            assert!(ret.entries.len() <= max as usize);
            seen.extend(ret.entries);
            if !ret.truncated {
                break;
            }
            op.marker = seen.last().unwrap().idx.clone();
        }
        assert_eq!(seen, all.entries, "by {max}");
    }
    let one = raw::ListOp { name: bytes("k"), ..op };
    let ret: raw::ListRet = from.ask("rgw", "bi_list", &one).unwrap();
    let kinds: Vec<_> = ret.entries.iter().map(|e| e.kind).collect();
    assert_eq!(kinds, [1, 1, 2, 3], "of one object");

    // All of them, in another shard, are the same sums.
    let mut to = shard();
    let op = raw::PutEntriesOp { entries: all.entries.clone(), check_existing: false };
    to.run("rgw", "bi_put_entries", &op).unwrap();
    assert_eq!(header(&to).stats, header(&from).stats);
    to.run("rgw", "bi_put_entries", &raw::PutEntriesOp { check_existing: true, ..op }).unwrap();
    assert_eq!(header(&to).stats, header(&from).stats, "what was there is taken off");
    let gone = BiEntry { kind: bi::DELETED, idx: bytes("a"), data: Bytes::new() };
    let op = raw::PutEntriesOp { entries: vec![gone.clone()], check_existing: true };
    to.run("rgw", "bi_put_entries", &op).unwrap();
    assert_eq!(main(&to).entries, main(&from).entries - 1);
    to.settings.omap_entries_max = 1;
    let op = raw::PutEntriesOp { entries: all.entries, check_existing: false };
    assert_eq!(to.run("rgw", "bi_put_entries", &op), Err(Errno::TOOBIG));

    let get = |kind, key| raw::GetOp { kind, key };
    let ret: raw::EntryOp =
        from.ask("rgw", "bi_get", &get(bi::INSTANCE, version("k", "i"))).unwrap();
    assert_eq!(ret.entry.idx, b"\x801000_k\0ii"[..]);
    assert_eq!(from.run("rgw", "bi_get", &get(bi::OLH, key("none"))), Err(Errno::NOENT));
    assert_eq!(from.run("rgw", "bi_get", &get(9, key("a"))), Err(Errno::INVAL));
    from.run("rgw", "bi_put", &raw::EntryOp { entry: gone }).unwrap();
    assert!(entry(&from, b"a").is_none());
    from.run("rgw", "bi_put", &ret).unwrap();
}

#[test]
fn the_index_log_is_listed_trimmed_and_stopped() {
    let mut o = shard();
    for name in ["a", "b", "c"] {
        add(&mut o, &key(name), 1, 1);
    }
    let op = raw::LogListOp { max: 2, ..Default::default() };
    let ret: raw::LogListRet = o.ask("rgw", "bi_log_list", &op).unwrap();
    assert_eq!((ret.entries.len(), ret.truncated), (2, true));
    let op = raw::LogListOp { marker: ret.entries[1].id.clone(), max: 2 };
    let rest: raw::LogListRet = o.ask("rgw", "bi_log_list", &op).unwrap();
    assert_eq!((rest.entries.len(), rest.truncated), (1, false));
    let op = raw::LogTrimOp { start: Bytes::new(), end: ret.entries[1].id.clone() };
    o.run("rgw", "bi_log_trim", &op).unwrap();
    assert_eq!(log_of(&mut o), [(modify::ADD, "c".into())]);
    assert_eq!(o.run("rgw", "bi_log_trim", &op), Err(Errno::NODATA));
    o.run("rgw", "bi_log_stop", &Nothing).unwrap();
    assert!(header(&o).syncstopped);
    add(&mut o, &key("d"), 1, 1);
    o.run("rgw", "bi_log_resync", &Nothing).unwrap();
    let ops: Vec<_> = log_of(&mut o).into_iter().map(|(op, _)| op).collect();
    assert_eq!(ops, [modify::ADD, modify::SYNCSTOP, modify::RESYNC]);
    o.run("rgw", "bi_log_trim", &raw::LogTrimOp::default()).unwrap();
    assert!(log_of(&mut o).is_empty());
    assert_eq!(stored_keys(&o), ["a", "b", "c", "d"]);
}

#[test]
fn suggestions_correct_the_index() {
    let mut o = shard();
    add(&mut o, &key("a"), 1, 10);
    add(&mut o, &key("b"), 1, 10);
    let suggest = |o: &mut Mem, op: u8, e: &DirEntry| {
        let input: Bytes = [&[op][..], &e.to_bytes()].concat().into();
        o.call("rgw", "dir_suggest_changes", &input).map(drop)
    };
    let a = entry(&o, b"a").unwrap();
    let stale = DirEntry { index_ver: Packed(0), ..a.clone() };
    suggest(&mut o, b'r', &stale).unwrap();
    assert!(entry(&o, b"a").is_some(), "an older view counts for nothing");
    prepare(&mut o, modify::ADD, "x", &key("a")).unwrap();
    suggest(&mut o, b'r', &a).unwrap();
    assert!(entry(&o, b"a").is_some(), "an operation is under way");
    suggest(&mut o, b'?', &a).unwrap();
    o.now.sec += 121;
    let before = header(&o).ver;
    suggest(&mut o, b'r' | 0x80, &a).unwrap();
    assert!(entry(&o, b"a").is_none());
    assert_eq!((main(&o).entries, header(&o).ver), (1, before + 1));
    assert_eq!(log_of(&mut o).last().unwrap(), &(modify::DEL, "a".into()));
    let mut b = entry(&o, b"b").unwrap();
    b.meta = meta(99);
    suggest(&mut o, b'u', &b).unwrap();
    assert_eq!((main(&o).entries, main(&o).size), (1, 99));
    suggest(&mut o, b'u', &DirEntry { key: key("none"), ..b }).unwrap();
    assert_eq!(o.call("rgw", "dir_suggest_changes", &bytes("r")).unwrap_err(), Errno::INVAL);
}

#[test]
fn heads_keep_attributes_and_are_checked() {
    let mut o = Mem::created();
    o.attrs.insert(bytes("user.rgw.olh.info"), bytes("1"));
    o.attrs.insert(bytes("user.rgw.acl"), bytes("2"));
    let check =
        |prefix: &str, fail_if_exist| object::CheckAttrsOp { prefix: bytes(prefix), fail_if_exist };
    let method = "obj_check_attrs_prefix";
    assert_eq!(o.run("rgw", method, &check("user.rgw.olh.", true)), Err(Errno::CANCELED));
    assert_eq!(o.run("rgw", method, &check("user.rgw.olh.", false)), Ok(()));
    assert_eq!(o.run("rgw", method, &check("user.rgx", false)), Err(Errno::CANCELED));
    assert_eq!(o.run("rgw", method, &check("", false)), Err(Errno::INVAL));
    o.run("rgw", "obj_store_pg_ver", &object::StorePgVerOp { attr: bytes("pg") }).unwrap();
    assert_eq!(o.attrs[&b"pg"[..]], 100u64.to_le_bytes()[..]);
    let time = |sec, compare| object::CheckMtimeOp {
        mtime: UTime { sec, nsec: 5 },
        compare,
        high_precision: false,
    };
    // The object's time is 1000 s.
    for (sec, held) in [(999, [3, 4].as_slice()), (1000, &[0, 2, 4]), (1001, &[1, 2])] {
        for compare in 0..5 {
            let wanted = if held.contains(&compare) { Ok(()) } else { Err(Errno::CANCELED) };
            assert_eq!(o.run("rgw", "obj_check_mtime", &time(sec, compare)), wanted);
        }
    }
    assert_eq!(o.run("rgw", "obj_check_mtime", &time(0, 5)), Err(Errno::INVAL));
    let op = object::RemoveOp { keep_prefixes: vec![bytes("user.rgw.olh.")] };
    o.run("rgw", "obj_remove", &op).unwrap();
    assert_eq!(o.attrs.keys().collect::<Vec<_>>(), ["user.rgw.olh.info"]);
    o.run("rgw", "obj_remove", &object::RemoveOp::default()).unwrap();
    assert!(!o.is_there);
    assert_eq!(o.run("rgw", "obj_remove", &op), Err(Errno::NOENT));
    assert_eq!(o.run("rgw", "obj_check_mtime", &time(1, 1)), Ok(()), "no object: time 0");
}

#[test]
fn garbage_is_listed_by_time() {
    let mut o = Mem::new();
    let set = |o: &mut Mem, tag: &str, expiration_s| {
        let info = Info { tag: bytes(tag), ..Info::default() };
        o.run("rgw", "gc_set_entry", &SetEntry { expiration_s, info }).unwrap();
    };
    let tags = |o: &mut Mem, expired_only| -> Vec<Bytes> {
        let op = List { max: 2, expired_only, ..List::default() };
        let ret: Listed = o.ask("rgw", "gc_list", &op).unwrap();
        assert_eq!(ret.truncated, !ret.next.is_empty());
        ret.entries.into_iter().map(|info| info.tag).collect()
    };
    set(&mut o, "late", 100);
    set(&mut o, "soon", 5);
    assert_eq!(tags(&mut o, false), ["soon", "late"]);
    assert!(tags(&mut o, true).is_empty());
    o.now.sec += 6;
    assert_eq!(tags(&mut o, true), ["soon"]);
    let defer = gc::DeferOp { expiration_s: 500, tag: bytes("soon") };
    o.run("rgw", "gc_defer_entry", &defer).unwrap();
    assert_eq!(tags(&mut o, false), ["late", "soon"]);
    let none = gc::DeferOp { tag: bytes("none"), ..defer };
    assert_eq!(o.run("rgw", "gc_defer_entry", &none), Err(Errno::NOENT));
    let op = gc::RemoveOp { tags: vec![bytes("none"), bytes("late")] };
    o.run("rgw", "gc_remove", &op).unwrap();
    assert_eq!(tags(&mut o, false), ["soon"]);
    assert_eq!(o.omap.len(), 2);
}

#[test]
fn lifecycles_have_entries_and_a_head() {
    let mut o = Mem::created();
    let ret: lc::HeadOp = o.ask("rgw", "lc_get_head", &Nothing).unwrap();
    assert_eq!(ret, lc::HeadOp::default());
    let head = lc::Head { start_date: 5, marker: bytes("b"), rollover_date: 6 };
    o.run("rgw", "lc_put_head", &lc::HeadOp { head: head.clone() }).unwrap();
    let ret: lc::HeadOp = o.ask("rgw", "lc_get_head", &Nothing).unwrap();
    assert_eq!(ret.head, head);
    let entry = |bucket: &str| lc::Entry { bucket: bytes(bucket), start_time: 9, status: 1 };
    for bucket in ["b1", "b2"] {
        o.run("rgw", "lc_set_entry", &lc::EntryOp { entry: entry(bucket) }).unwrap();
    }
    // As a release before 16 wrote it.
    o.omap.insert(bytes("b3"), (bytes("b3"), 2u32).to_bytes());
    let at = |marker: &str| lc::MarkerOp { marker: bytes(marker) };
    let ret: lc::EntryOp = o.ask("rgw", "lc_get_entry", &at("b1")).unwrap();
    assert_eq!(ret.entry, entry("b1"));
    assert_eq!(o.run("rgw", "lc_get_entry", &at("b")), Err(Errno::NOENT));
    let ret: lc::EntryOp = o.ask("rgw", "lc_get_next_entry", &at("b1")).unwrap();
    assert_eq!(ret.entry, entry("b2"));
    let ret: lc::EntryOp = o.ask("rgw", "lc_get_next_entry", &at("b3")).unwrap();
    assert_eq!(ret.entry, lc::Entry::default());
    for version in [1, 3] {
        let op = lc::ListOp { version, marker: Bytes::new(), max: 10 };
        let ret: lc::ListRet = o.ask("rgw", "lc_list_entries", &op).unwrap();
        assert_eq!((ret.version, ret.entries.len(), ret.truncated), (version, 3, false));
        assert_eq!(ret.entries[2].status, 2);
    }
    o.run("rgw", "lc_rm_entry", &lc::EntryOp { entry: entry("b1") }).unwrap();
    assert_eq!(o.omap.len(), 2);
}

#[test]
fn usage_adds_up_by_user_and_time() {
    let mut o = Mem::created();
    let record = |user: &str, epoch, sent| {
        let data = usage::Data { sent, ops: 1, ..Default::default() };
        usage::Entry {
            owner: bytes(user),
            bucket: bytes("b"),
            epoch,
            by_category: BTreeMap::from([(bytes("put_obj"), data.clone())]),
            total: data,
            ..Default::default()
        }
    };
    let entries = vec![record("u", 3600, 10), record("u", 3600, 5), record("w", 7200, 1)];
    let op = usage::AddOp { info: usage::Info { entries }, user: bytes("u") };
    o.run("rgw", "user_usage_log_add", &op).unwrap();
    o.run("rgw", "user_usage_log_add", &op).unwrap();
    assert_eq!(o.omap.len(), 4, "two keys for each hour");
    let read = usage::ReadOp { end: u64::MAX, ..Default::default() };
    let ret: usage::ReadRet = o.ask("rgw", "user_usage_log_read", &read).unwrap();
    let sent: Vec<_> = ret.usage.values().map(|e| (e.total.sent, e.total.ops)).collect();
    assert_eq!(sent, [(30, 4), (2, 2)]);
    let by_user = usage::ReadOp { owner: bytes("w"), ..read.clone() };
    let ret: usage::ReadRet = o.ask("rgw", "user_usage_log_read", &by_user).unwrap();
    assert_eq!(ret.usage.len(), 1);
    let page = usage::ReadOp { max: 1, ..read.clone() };
    let ret: usage::ReadRet = o.ask("rgw", "user_usage_log_read", &page).unwrap();
    assert!(ret.truncated);
    let page = usage::ReadOp { iter: ret.next, ..page };
    let ret: usage::ReadRet = o.ask("rgw", "user_usage_log_read", &page).unwrap();
    assert_eq!(ret.usage.keys().next().unwrap().user, "w");
    let other = usage::ReadOp { bucket: bytes("c"), ..read };
    let ret: usage::ReadRet = o.ask("rgw", "user_usage_log_read", &other).unwrap();
    assert!(ret.usage.is_empty());
    let trim = usage::TrimOp { end: 7200, ..Default::default() };
    o.run("rgw", "user_usage_log_trim", &trim).unwrap();
    assert_eq!(o.omap.len(), 2);
    assert_eq!(o.run("rgw", "user_usage_log_trim", &trim), Err(Errno::NODATA));
    o.run("rgw", "usage_log_clear", &Nothing).unwrap();
    assert!(o.omap.is_empty());
    let mut none = Mem::new();
    none.run("rgw", "usage_log_clear", &Nothing).unwrap();
    assert_eq!(none.run("rgw", "user_usage_log_trim", &trim), Err(Errno::NOENT));
}

#[test]
fn reshards_are_queued() {
    let mut o = Mem::created();
    let entry = |bucket: &str| reshard::Entry {
        bucket: bytes(bucket),
        bucket_id: bytes("id"),
        new_shards: 11,
        ..Default::default()
    };
    let add = |bucket, create_only| reshard::AddOp { entry: entry(bucket), create_only };
    o.run("rgw", "reshard_add", &add("a", true)).unwrap();
    assert_eq!(o.run("rgw", "reshard_add", &add("a", true)), Err(Errno::EXIST));
    o.run("rgw", "reshard_add", &add("a", false)).unwrap();
    o.run("rgw", "reshard_add", &add("b", true)).unwrap();
    let op = reshard::ListOp { max: 1, marker: Bytes::new() };
    let ret: reshard::ListRet = o.ask("rgw", "reshard_list", &op).unwrap();
    assert_eq!((ret.entries, ret.truncated), (vec![entry("a")], true));
    let get = |bucket| reshard::EntryOp { entry: entry(bucket) };
    let ret: reshard::EntryOp = o.ask("rgw", "reshard_get", &get("b")).unwrap();
    assert_eq!(ret, get("b"));
    assert_eq!(o.run("rgw", "reshard_get", &get("c")), Err(Errno::NOENT));
    let remove = |id: &str| reshard::RemoveOp {
        bucket: bytes("b"),
        bucket_id: bytes(id),
        ..Default::default()
    };
    o.run("rgw", "reshard_remove", &remove("other")).unwrap();
    assert_eq!(o.omap.len(), 2);
    o.run("rgw", "reshard_remove", &remove("")).unwrap();
    assert_eq!(o.run("rgw", "reshard_remove", &remove("")), Err(Errno::NOENT));
}

/// `RGWUploadPartInfo` of one stripe rule, whose tail has this prefix.
fn part(prefix: &str) -> multipart::UpdateOp {
    use denc::{Features, Writer};
    let mut w = Writer::new(Features::ALL);
    w.blob(b"part.00000001");
    w.framed(6, 2, |w| {
        w.u32(1);
        w.u64(10);
        w.blob(b"etag");
        UTime::ZERO.encode(w);
        w.framed(8, 6, |w| {
            w.u64(10);
            w.u32(0);
            w.bool(false);
            w.framed(6, 6, |_| ());
            w.u64(0);
            w.u64(0);
            w.blob(prefix.as_bytes());
            w.u32(1);
            w.u64(0);
        });
        w.framed(2, 1, |_| ());
        w.u64(10);
        w.u32(0);
        w.bool(false);
    });
    let body = w.finish();
    let mut w = Writer::new(Features::ALL);
    w.framed(1, 1, |w| w.raw(&body));
    multipart::UpdateOp::from_bytes(&w.finish()).unwrap()
}

#[test]
fn parts_uploaded_again_keep_their_prefixes() {
    let mut o = Mem::created();
    for prefix in ["p1", "p2", "p3"] {
        o.run("rgw", "mp_upload_part_info_update", &part(prefix)).unwrap();
    }
    let stored = multipart::Part::from_bytes(&o.omap[&b"part.00000001"[..]]).unwrap();
    assert_eq!(stored.past_prefixes.iter().collect::<Vec<_>>(), ["p1", "p2"]);
    assert_eq!(stored.manifest.prefix, "p3");
    for prefix in ["p1", "p3"] {
        let result = o.run("rgw", "mp_upload_part_info_update", &part(prefix));
        assert_eq!(result, Err(Errno::EXIST));
    }
}

/// Bytes of any kind, as parameters and as what is stored: errors, and no panic.
#[test]
fn odd_bytes_are_errors() {
    let mut seed = 7u64;
    let mut random = |len: usize| -> Bytes {
        let next = |_| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 56) as u8
        };
        (0..len).map(next).collect()
    };
    for round in 0..40 {
        let mut o = Mem::created();
        if round % 2 == 0 {
            o.header = random(round);
        }
        for name in [&b"a"[..], b"\x801000_a\0i", b"\x801001_a", b"\x800_1", b"\x802001_a", b"\xff"]
        {
            o.omap.insert(Bytes::copy_from_slice(name), random(round));
        }
        for method in super::CLASS.methods {
            for len in [0, 1, 6, 30] {
                let _ = o.call("rgw", method.name, &random(len));
                // A sound frame with odd fields.
                let body = [&[1, 1, len as u8, 0, 0, 0][..], &random(len)].concat();
                let _ = o.call("rgw", method.name, &body.into());
            }
        }
    }
    let no_input = [
        "bucket_init_index",
        "bucket_init_index2",
        "bucket_check_index",
        "bucket_rebuild_index",
        "reshard_log_trim",
        "bi_log_resync",
        "bi_log_stop",
        "usage_log_clear",
        "lc_get_head",
    ];
    let mut o = shard();
    for method in super::CLASS.methods.iter().filter(|m| !no_input.contains(&m.name)) {
        o.refuses_short_input("rgw", &[method.name]);
    }
}
