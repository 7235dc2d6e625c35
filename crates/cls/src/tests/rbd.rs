//! `rbd`: headers, snapshots, clones, directories, groups, object maps, data.

use std::collections::{BTreeMap, BTreeSet};

use bytes::{Bytes, BytesMut};
use denc::Denc;
use types::{Errno, UTime};

use super::{Mem, Nothing, bytes};
use crate::rbd::*;
use crate::{BADF, NOEXEC, NXIO, STALE, XDEV};

const CLASS: &str = "rbd";

fn run(o: &mut Mem, method: &str, input: &impl Denc) -> Result<(), Errno> {
    o.run(CLASS, method, input)
}

fn ask<T: Denc>(o: &mut Mem, method: &str, input: &impl Denc) -> Result<T, Errno> {
    o.ask(CLASS, method, input)
}

fn create_op(features: u64) -> ((u64, u8), (u64, Bytes)) {
    ((1 << 30, 22), (features, bytes("rbd_data.1")))
}

fn image(features: u64) -> Mem {
    let mut o = Mem::new();
    run(&mut o, "create", &create_op(features)).unwrap();
    o
}

fn snap(o: &mut Mem, name: &str, id: u64) -> Result<(), Errno> {
    run(o, "snapshot_add", &((bytes(name), id), SnapKind::User))
}

#[test]
fn header() {
    let mut o = Mem::new();
    assert_eq!(run(&mut o, "get_size", &HEAD), Err(Errno::NOENT));
    assert_eq!(run(&mut o, "create", &create_op(1 << 40)), Err(Errno::NOSYS));
    assert_eq!(run(&mut o, "create", &create_op(feature::OPERATIONS)), Err(Errno::INVAL));
    assert_eq!(run(&mut o, "create", &create_op(feature::DATA_POOL)), Err(Errno::INVAL));
    assert_eq!(run(&mut o, "create", &(create_op(0), 5i64)), Err(Errno::INVAL));
    assert_eq!(run(&mut o, "create", &((1u64, 22u8), (0u64, bytes("")))), Err(Errno::INVAL));
    run(&mut o, "create", &(create_op(feature::DATA_POOL | feature::LAYERING), 5i64)).unwrap();
    assert_eq!(run(&mut o, "create", &create_op(0)), Err(Errno::EXIST));
    assert_eq!(ask::<(u8, u64)>(&mut o, "get_size", &HEAD), Ok((22, 1 << 30)));
    assert_eq!(run(&mut o, "get_size", &5u64), Err(Errno::NOENT));
    assert_eq!(ask::<(u64, u64)>(&mut o, "get_features", &(HEAD, true)), Ok((129, 129)));
    assert_eq!(ask::<(u64, u64)>(&mut o, "get_features", &HEAD), Ok((129, 129)));
    assert_eq!(ask::<Bytes>(&mut o, "get_object_prefix", &Nothing), Ok(bytes("rbd_data.1")));
    assert_eq!(ask::<i64>(&mut o, "get_data_pool", &Nothing), Ok(5));
    assert_eq!(ask::<i64>(&mut image(0), "get_data_pool", &Nothing), Ok(-1));
    assert_eq!(run(&mut Mem::new(), "get_data_pool", &Nothing), Err(Errno::NOENT));
    assert_eq!(ask::<u64>(&mut o, "get_all_features", &Nothing), Ok(feature::ALL));
    assert_eq!(ask::<(u64, Vec<u64>)>(&mut o, "get_snapcontext", &Nothing), Ok((0, vec![])));
    for time in ["create", "access", "modify"] {
        let method = format!("get_{time}_timestamp");
        assert_eq!(ask::<UTime>(&mut o, &method, &Nothing), Ok(o.now));
    }
    o.now.sec += 1;
    run(&mut o, "set_access_timestamp", &Nothing).unwrap();
    run(&mut o, "set_modify_timestamp", &Nothing).unwrap();
    assert_eq!(ask::<UTime>(&mut o, "get_access_timestamp", &Nothing), Ok(o.now));
    assert_eq!(run(&mut Mem::new(), "set_access_timestamp", &Nothing), Err(Errno::NOENT));
    o.refuses_short_input(CLASS, &["create", "get_features", "set_features", "get_size"]);
    o.omap.insert(bytes("size"), bytes("x"));
    assert_eq!(run(&mut o, "get_size", &HEAD), Err(Errno::IO));
}

#[test]
fn features_and_flags() {
    let mut o = image(feature::LAYERING | feature::DEEP_FLATTEN);
    let lock = feature::EXCLUSIVE_LOCK;
    run(&mut o, "set_features", &(lock, lock)).unwrap();
    run(&mut o, "set_features", &(0u64, feature::DEEP_FLATTEN)).unwrap();
    assert_eq!(ask::<(u64, u64)>(&mut o, "get_features", &HEAD), Ok((5, 5)));
    for (bits, mask) in [
        (feature::DEEP_FLATTEN, feature::DEEP_FLATTEN),
        (0, feature::LAYERING),
        (feature::OPERATIONS, feature::OPERATIONS),
    ] {
        assert_eq!(run(&mut o, "set_features", &(bits, mask)), Err(Errno::INVAL));
    }
    run(&mut o, "set_flags", &(3u64, 1u64)).unwrap();
    assert_eq!(ask::<u64>(&mut o, "get_flags", &HEAD), Ok(1));
    assert_eq!(run(&mut o, "set_flags", &((3u64, 1u64), 9u64)), Err(Errno::NOENT));
    snap(&mut o, "a", 9).unwrap();
    run(&mut o, "set_flags", &((2u64, 2u64), 9u64)).unwrap();
    assert_eq!(ask::<u64>(&mut o, "get_flags", &9u64), Ok(3));
    assert_eq!(ask::<u64>(&mut o, "op_features_get", &Nothing), Ok(0));
    assert_eq!(run(&mut o, "op_features_set", &(16u64, 16u64)), Err(Errno::INVAL));
    run(&mut o, "op_features_set", &(1u64, 1u64)).unwrap();
    assert_eq!(ask::<(u64, u64)>(&mut o, "get_features", &HEAD).unwrap().0, 5 | 256);
    run(&mut o, "op_features_set", &(0u64, 1u64)).unwrap();
    assert_eq!(ask::<(u64, u64)>(&mut o, "get_features", &HEAD).unwrap().0, 5);
    assert_eq!(run(&mut o, "get_stripe_unit_count", &Nothing), Err(NOEXEC));
    let mut o = image(feature::STRIPINGV2);
    assert_eq!(ask::<(u64, u64)>(&mut o, "get_stripe_unit_count", &Nothing), Ok((1 << 22, 1)));
    assert_eq!(run(&mut o, "set_stripe_unit_count", &(0u64, 1u64)), Err(Errno::INVAL));
    assert_eq!(run(&mut o, "set_stripe_unit_count", &(1000u64, 1u64)), Err(Errno::INVAL));
    run(&mut o, "set_stripe_unit_count", &(4096u64, 4u64)).unwrap();
    assert_eq!(ask::<(u64, u64)>(&mut o, "get_stripe_unit_count", &Nothing), Ok((4096, 4)));
}

#[test]
fn metadata() {
    let mut o = image(0);
    let pairs: BTreeMap<_, _> = (0..100).map(|n| (bytes(&format!("{n:03}")), bytes("v"))).collect();
    run(&mut o, "metadata_set", &pairs).unwrap();
    let list = |o: &mut Mem, start: &str, max: u64| {
        ask::<BTreeMap<Bytes, Bytes>>(o, "metadata_list", &(bytes(start), max)).unwrap()
    };
    assert_eq!(list(&mut o, "", 0).len(), 64);
    assert_eq!(list(&mut o, "", 1000).len(), 100);
    assert_eq!(list(&mut o, "097", 10).len(), 2);
    assert_eq!(ask::<Bytes>(&mut o, "metadata_get", &bytes("001")), Ok(bytes("v")));
    run(&mut o, "metadata_remove", &bytes("001")).unwrap();
    assert_eq!(run(&mut o, "metadata_get", &bytes("001")), Err(Errno::NOENT));
}

#[test]
fn snapshots() {
    let mut o = image(feature::LAYERING);
    snap(&mut o, "a", 3).unwrap();
    assert_eq!(snap(&mut o, "b", 2), Err(STALE));
    assert_eq!(snap(&mut o, "a", 4), Err(Errno::EXIST));
    assert_eq!(snap(&mut o, "b", 3), Err(Errno::EXIST));
    assert_eq!(snap(&mut o, "b", HEAD), Err(Errno::INVAL));
    run(&mut o, "set_size", &(1u64 << 20)).unwrap();
    snap(&mut o, "b", 12).unwrap();
    let context = ask::<(u64, Vec<u64>)>(&mut o, "get_snapcontext", &Nothing);
    assert_eq!(context, Ok((12, vec![12, 3])));
    assert_eq!(ask::<(u8, u64)>(&mut o, "get_size", &3u64), Ok((22, 1 << 30)));
    assert_eq!(ask::<Bytes>(&mut o, "get_snapshot_name", &3u64), Ok(bytes("a")));
    assert_eq!(run(&mut o, "get_snapshot_name", &HEAD), Err(Errno::INVAL));
    assert_eq!(ask::<UTime>(&mut o, "get_snapshot_timestamp", &3u64), Ok(o.now));
    let info: SnapInfo = ask(&mut o, "snapshot_get", &12u64).unwrap();
    assert_eq!((info.name, info.size), (bytes("b"), 1 << 20));
    assert_eq!(run(&mut o, "snapshot_rename", &(3u64, bytes("b"))), Err(Errno::EXIST));
    assert_eq!(run(&mut o, "snapshot_rename", &(9u64, bytes("c"))), Err(Errno::NOENT));
    run(&mut o, "snapshot_rename", &(3u64, bytes("c"))).unwrap();
    assert_eq!(run(&mut o, "set_protection_status", &(3u64, 3u8)), Err(Errno::INVAL));
    run(&mut o, "set_protection_status", &(3u64, 2u8)).unwrap();
    assert_eq!(ask::<u8>(&mut o, "get_protection_status", &3u64), Ok(2));
    assert_eq!(run(&mut o, "snapshot_remove", &3u64), Err(Errno::BUSY));
    assert_eq!(run(&mut o, "snapshot_trash_add", &3u64), Err(Errno::BUSY));
    run(&mut o, "set_protection_status", &(3u64, 0u8)).unwrap();
    run(&mut o, "snapshot_trash_add", &3u64).unwrap();
    assert_eq!(run(&mut o, "snapshot_trash_add", &3u64), Err(Errno::EXIST));
    assert_eq!(run(&mut o, "snapshot_rename", &(3u64, bytes("d"))), Err(Errno::INVAL));
    let info: SnapInfo = ask(&mut o, "snapshot_get", &3u64).unwrap();
    assert_eq!(info.kind, SnapKind::Trash { name: bytes("c"), kind: 0 });
    assert_eq!(info.name.len(), 36);
    assert_eq!(ask::<u64>(&mut o, "op_features_get", &Nothing), Ok(op_feature::SNAP_TRASH));
    run(&mut o, "snapshot_remove", &3u64).unwrap();
    assert_eq!(ask::<u64>(&mut o, "op_features_get", &Nothing), Ok(0));
    assert_eq!(run(&mut o, "snapshot_remove", &3u64), Err(Errno::NOENT));
    // The limit counts those that are there.
    assert_eq!(ask::<u64>(&mut o, "snapshot_get_limit", &Nothing), Ok(u64::MAX));
    assert_eq!(run(&mut o, "snapshot_set_limit", &0u64), Err(Errno::RANGE));
    run(&mut o, "snapshot_set_limit", &1u64).unwrap();
    assert_eq!(snap(&mut o, "z", 20), Err(Errno::DQUOT));
    run(&mut o, "snapshot_set_limit", &u64::MAX).unwrap();
    snap(&mut o, "z", 20).unwrap();
    o.refuses_short_input(CLASS, &["snapshot_add", "snapshot_remove", "snapshot_get"]);
}

#[test]
fn clones() {
    let mut o = image(feature::LAYERING);
    snap(&mut o, "a", 3).unwrap();
    let child = |n: i64| ChildSpec { pool: n, image: bytes("child"), nspace: bytes("") };
    assert_eq!(run(&mut o, "child_attach", &(4u64, child(1))), Err(Errno::NOENT));
    run(&mut o, "child_attach", &(3u64, child(1))).unwrap();
    assert_eq!(run(&mut o, "child_attach", &(3u64, child(1))), Err(Errno::EXIST));
    run(&mut o, "child_attach", &(3u64, child(2))).unwrap();
    assert_eq!(run(&mut o, "snapshot_remove", &3u64), Err(Errno::BUSY));
    let children: BTreeSet<ChildSpec> = ask(&mut o, "children_list", &3u64).unwrap();
    assert_eq!(children, BTreeSet::from([child(1), child(2)]));
    assert_eq!(ask::<u64>(&mut o, "op_features_get", &Nothing), Ok(op_feature::CLONE_PARENT));
    run(&mut o, "child_detach", &(3u64, child(1))).unwrap();
    assert_eq!(run(&mut o, "child_detach", &(3u64, child(1))), Err(Errno::NOENT));
    run(&mut o, "child_detach", &(3u64, child(2))).unwrap();
    assert_eq!(ask::<u64>(&mut o, "op_features_get", &Nothing), Ok(0));
    assert_eq!(run(&mut o, "children_list", &3u64), Err(Errno::NOENT));
    run(&mut o, "snapshot_trash_add", &3u64).unwrap();
    assert_eq!(run(&mut o, "child_attach", &(3u64, child(1))), Err(Errno::NOENT));
    // The older directory of clones.
    let mut o = Mem::new();
    let parent = ((1u64, bytes("parent")), 3u64);
    assert_eq!(run(&mut o, "get_children", &parent), Err(Errno::NOENT));
    run(&mut o, "add_child", &(parent.clone(), bytes("c"))).unwrap();
    assert_eq!(run(&mut o, "add_child", &(parent.clone(), bytes("c"))), Err(Errno::EXIST));
    let children: Vec<Bytes> = ask(&mut o, "get_children", &parent).unwrap();
    assert_eq!(children, ["c"]);
    assert_eq!(run(&mut o, "remove_child", &(parent.clone(), bytes("d"))), Err(Errno::NOENT));
    run(&mut o, "remove_child", &(parent.clone(), bytes("c"))).unwrap();
    assert_eq!(run(&mut o, "remove_child", &(parent, bytes("c"))), Err(Errno::NOENT));
}

#[test]
fn parents() {
    let spec = |nspace: &str| ParentSpec {
        pool: 1,
        nspace: bytes(nspace),
        image: bytes("parent"),
        snap: 3,
    };
    assert_eq!(run(&mut Mem::new(), "parent_get", &Nothing), Err(Errno::NOENT));
    assert_eq!(run(&mut image(0), "parent_attach", &(spec(""), 5u64)), Err(NOEXEC));
    let mut o = image(feature::LAYERING);
    assert_eq!(run(&mut o, "parent_attach", &(spec(""), 0u64)), Err(Errno::INVAL));
    assert_eq!(run(&mut o, "parent_detach", &Nothing), Err(Errno::NOENT));
    let overlap = |o: &mut Mem, snap: u64| ask::<Option<u64>>(o, "parent_overlap_get", &snap);
    run(&mut o, "parent_attach", &(spec("ns"), 1u64 << 40)).unwrap();
    assert_eq!(run(&mut o, "parent_attach", &(spec("ns"), 5u64)), Err(Errno::EXIST));
    run(&mut o, "parent_attach", &((spec("ns"), 1u64 << 40), true)).unwrap();
    assert_eq!(ask(&mut o, "parent_get", &Nothing), Ok(spec("ns")));
    assert_eq!(overlap(&mut o, HEAD), Ok(Some(1 << 30)));
    assert_eq!(run(&mut o, "get_parent", &HEAD), Err(XDEV));
    assert_eq!(run(&mut o, "remove_parent", &Nothing), Err(XDEV));
    snap(&mut o, "a", 7).unwrap();
    run(&mut o, "set_size", &4096u64).unwrap();
    assert_eq!(overlap(&mut o, HEAD), Ok(Some(4096)));
    assert_eq!(overlap(&mut o, 7), Ok(Some(1 << 30)));
    // The snapshot keeps the parent until it goes itself.
    run(&mut o, "parent_detach", &Nothing).unwrap();
    assert_eq!(run(&mut o, "parent_detach", &Nothing), Err(Errno::NOENT));
    assert_eq!(overlap(&mut o, HEAD), Ok(None));
    assert_eq!(ask(&mut o, "parent_get", &Nothing), Ok(spec("ns")));
    run(&mut o, "snapshot_remove", &7u64).unwrap();
    assert!(!o.omap.contains_key(&bytes("parent")));
    // With deep flatten it does not.
    let mut o = image(feature::LAYERING | feature::DEEP_FLATTEN);
    run(&mut o, "set_parent", &((1i64, bytes("parent")), (3u64, 100u64))).unwrap();
    type Old = ((i64, Bytes), (u64, u64));
    let expected: Old = ((1, bytes("parent")), (3, 100));
    assert_eq!(ask::<Old>(&mut o, "get_parent", &HEAD), Ok(expected.clone()));
    snap(&mut o, "a", 7).unwrap();
    assert_eq!(ask::<Old>(&mut o, "get_parent", &7u64), Ok(expected));
    run(&mut o, "remove_parent", &Nothing).unwrap();
    let none: Old = ((-1, bytes("")), (HEAD, 0));
    assert_eq!(ask::<Old>(&mut o, "get_parent", &7u64), Ok(none));
    assert_eq!(overlap(&mut o, 7), Ok(None));
}

#[test]
fn migrations() {
    let spec = |header| Migration { header, pool: 2, ..Migration::default() };
    let mut o = image(0);
    assert_eq!(run(&mut o, "migration_get", &Nothing), Err(Errno::INVAL));
    run(&mut o, "migration_set", &spec(1)).unwrap();
    assert_eq!(run(&mut o, "migration_set", &spec(1)), Err(Errno::EXIST));
    run(&mut o, "migration_set_state", &(3u8, bytes("well"))).unwrap();
    let got: Migration = ask(&mut o, "migration_get", &Nothing).unwrap();
    assert_eq!((got.state, got.description, got.pool), (3, bytes("well"), 2));
    run(&mut o, "migration_remove", &Nothing).unwrap();
    assert_eq!(ask::<(u64, u64)>(&mut o, "get_features", &HEAD), Ok((0, 0)));
    // Headers of the first format say it in their first line.
    let mut o = old_header();
    assert_eq!(run(&mut o, "migration_set", &spec(2)), Err(Errno::INVAL));
    run(&mut o, "migration_set", &spec(1)).unwrap();
    assert!(o.data.starts_with(b"<<< Migrating RBD Image"));
    run(&mut o, "migration_get", &Nothing).unwrap();
    run(&mut o, "migration_remove", &Nothing).unwrap();
    assert!(o.data.starts_with(b"<<< Rados Block Device Image >>>\n\0"));
    assert_eq!(run(&mut Mem::created(), "migration_set", &spec(1)), Err(NXIO));
}

fn old_header() -> Mem {
    let mut o = Mem::created();
    o.data = BytesMut::zeroed(112);
    o.data[..33].copy_from_slice(b"<<< Rados Block Device Image >>>\n");
    o.data[80..88].copy_from_slice(&4096u64.to_le_bytes());
    o
}

#[test]
fn old_snapshots() {
    type Listed = ((u64, u32), ((u64, u64), Bytes));
    let mut o = old_header();
    run(&mut o, "snap_add", &(bytes("one"), 1u64)).unwrap();
    run(&mut o, "snap_add", &(bytes("two"), 2u64)).unwrap();
    assert_eq!(run(&mut o, "snap_add", &(bytes("two"), 3u64)), Err(Errno::EXIST));
    assert_eq!(run(&mut o, "snap_add", &(bytes("old"), 1u64)), Err(STALE));
    assert_eq!(run(&mut o, "snap_rename", &(2u64, bytes("one"))), Err(Errno::EXIST));
    run(&mut o, "snap_rename", &(2u64, bytes("three"))).unwrap();
    assert_eq!(run(&mut o, "snap_rename", &(9u64, bytes("four"))), Err(Errno::NOENT));
    assert_eq!(run(&mut o, "snap_remove", &bytes("two")), Err(Errno::NOENT));
    run(&mut o, "snap_remove", &bytes("one")).unwrap();
    let listed: Listed = ask(&mut o, "snap_list", &Nothing).unwrap();
    assert_eq!(listed, ((2, 1), ((2, 4096), bytes("three"))));
    assert_eq!(run(&mut o, "snapshot_set_limit", &0u64), Err(Errno::RANGE));
    run(&mut o, "snapshot_set_limit", &1u64).unwrap();
    assert_eq!(run(&mut o, "snap_add", &(bytes("four"), 5u64)), Err(Errno::DQUOT));
    assert_eq!(run(&mut Mem::created(), "snap_list", &Nothing), Err(Errno::INVAL));
    // Counts that the object cannot hold.
    o.data[96..100].fill(0xff);
    assert_eq!(run(&mut o, "snap_list", &Nothing), Err(Errno::INVAL));
    o.data[104..112].fill(0xff);
    assert_eq!(run(&mut o, "snap_list", &Nothing), Err(Errno::INVAL));
}

#[test]
fn directories() {
    for prefix in ["dir_", "group_dir_"] {
        let name =
            |verb: &str| format!("{prefix}{verb}{}", if prefix == "dir_" { "_image" } else { "" });
        let mut o = Mem::new();
        let pair = |name: &str, id: &str| (bytes(name), bytes(id));
        assert_eq!(run(&mut o, &name("add"), &pair("", "1")), Err(Errno::INVAL));
        assert_eq!(run(&mut o, &name("add"), &pair("a", "1_")), Err(Errno::INVAL));
        assert!(!o.is_there);
        run(&mut o, &name("add"), &pair("a", "1")).unwrap();
        assert_eq!(run(&mut o, &name("add"), &pair("a", "2")), Err(Errno::EXIST));
        assert_eq!(run(&mut o, &name("add"), &pair("b", "1")), Err(BADF));
        run(&mut o, &name("add"), &pair("b", "2")).unwrap();
        assert_eq!(
            run(&mut o, &name("rename"), &((bytes("a"), bytes("b")), bytes("1"))),
            Err(Errno::EXIST)
        );
        assert_eq!(
            run(&mut o, &name("rename"), &((bytes("a"), bytes("a")), bytes("1"))),
            Err(Errno::EXIST)
        );
        assert_eq!(
            run(&mut o, &name("rename"), &((bytes("x"), bytes("y")), bytes("1"))),
            Err(Errno::NOENT)
        );
        run(&mut o, &name("rename"), &((bytes("a"), bytes("c")), bytes("1"))).unwrap();
        let list = |o: &mut Mem, start: &str, max: u64| {
            ask::<Vec<(Bytes, Bytes)>>(o, &format!("{prefix}list"), &(bytes(start), max)).unwrap()
        };
        assert_eq!(list(&mut o, "", 9), [pair("b", "2"), pair("c", "1")]);
        assert_eq!(list(&mut o, "b", 9), [pair("c", "1")]);
        assert_eq!(list(&mut o, "", 1), [pair("b", "2")]);
        assert_eq!(run(&mut o, &name("remove"), &pair("b", "1")), Err(STALE));
        run(&mut o, &name("remove"), &pair("b", "2")).unwrap();
        assert_eq!(run(&mut o, &name("remove"), &pair("b", "2")), Err(Errno::NOENT));
    }
    let mut o = Mem::new();
    assert_eq!(run(&mut o, "dir_state_set", &1u8), Err(Errno::NOENT));
    run(&mut o, "dir_add_image", &(bytes("a"), bytes("1"))).unwrap();
    assert_eq!(ask::<Bytes>(&mut o, "dir_get_id", &bytes("a")), Ok(bytes("1")));
    assert_eq!(ask::<Bytes>(&mut o, "dir_get_name", &bytes("1")), Ok(bytes("a")));
    assert_eq!(run(&mut o, "dir_get_id", &bytes("b")), Err(Errno::NOENT));
    assert_eq!(run(&mut o, "dir_state_set", &1u8), Err(Errno::BUSY));
    assert_eq!(run(&mut o, "dir_state_set", &2u8), Err(Errno::INVAL));
    assert_eq!(run(&mut o, "dir_state_assert", &0u8), Err(Errno::NOENT));
    run(&mut o, "dir_state_set", &0u8).unwrap();
    run(&mut o, "dir_state_assert", &0u8).unwrap();
    assert_eq!(run(&mut o, "dir_state_assert", &1u8), Err(Errno::NOENT));
}

#[test]
fn ids_trash_namespaces() {
    let mut o = Mem::new();
    assert_eq!(run(&mut o, "set_id", &bytes("1a")), Err(Errno::NOENT));
    assert_eq!(run(&mut o, "get_id", &Nothing), Err(Errno::NOENT));
    o = Mem::created();
    assert_eq!(run(&mut o, "get_id", &Nothing), Err(Errno::NOENT));
    assert_eq!(run(&mut o, "set_id", &bytes("1/")), Err(Errno::INVAL));
    run(&mut o, "set_id", &bytes("1a")).unwrap();
    assert_eq!(run(&mut o, "set_id", &bytes("1b")), Err(Errno::EXIST));
    assert_eq!(ask::<Bytes>(&mut o, "get_id", &Nothing), Ok(bytes("1a")));
    let mut o = Mem::new();
    let spec = TrashSpec { name: bytes("image"), ..TrashSpec::default() };
    assert_eq!(run(&mut o, "trash_add", &(bytes("-"), spec.clone())), Err(Errno::INVAL));
    run(&mut o, "trash_add", &(bytes("1"), spec.clone())).unwrap();
    assert_eq!(run(&mut o, "trash_add", &(bytes("1"), spec.clone())), Err(Errno::EXIST));
    assert_eq!(ask(&mut o, "trash_get", &bytes("1")), Ok(spec));
    assert_eq!(run(&mut o, "trash_state_set", &((bytes("1"), 2u8), 1u8)), Err(STALE));
    run(&mut o, "trash_state_set", &((bytes("1"), 2u8), 0u8)).unwrap();
    run(&mut o, "trash_state_set", &((bytes("1"), 2u8), 0u8)).unwrap();
    let listed: Vec<(Bytes, TrashSpec)> = ask(&mut o, "trash_list", &(bytes(""), 9u64)).unwrap();
    assert_eq!((listed.len(), listed[0].1.state), (1, 2));
    run(&mut o, "trash_remove", &bytes("1")).unwrap();
    assert_eq!(run(&mut o, "trash_remove", &bytes("1")), Err(Errno::NOENT));
    assert_eq!(run(&mut o, "trash_get", &bytes("1")), Err(Errno::NOENT));
    let mut o = Mem::new();
    run(&mut o, "namespace_add", &bytes("a")).unwrap();
    assert_eq!(run(&mut o, "namespace_add", &bytes("a")), Err(Errno::EXIST));
    run(&mut o, "namespace_add", &bytes("b")).unwrap();
    assert_eq!(
        ask::<Vec<Bytes>>(&mut o, "namespace_list", &(bytes("a"), 9u64)),
        Ok(vec![bytes("b")])
    );
    run(&mut o, "namespace_remove", &bytes("a")).unwrap();
    assert_eq!(run(&mut o, "namespace_remove", &bytes("a")), Err(Errno::NOENT));
}

#[test]
fn groups() {
    let mut o = Mem::created();
    let of = |id: &str, pool| GroupImage { image: bytes(id), pool };
    let status = |id, pool, state| GroupImageStatus { spec: of(id, pool), state };
    run(&mut o, "group_image_set", &status("b", 1, 0)).unwrap();
    run(&mut o, "group_image_set", &status("a", 2, 0)).unwrap();
    run(&mut o, "group_image_set", &status("b", 1, 1)).unwrap();
    assert!(o.omap.contains_key(&bytes("image_0000000000000001_b")));
    let list = |o: &mut Mem, start: GroupImage, max: u64| {
        ask::<Vec<GroupImageStatus>>(o, "group_image_list", &(start, max)).unwrap()
    };
    assert_eq!(list(&mut o, of("", -1), 9), [status("b", 1, 1), status("a", 2, 0)]);
    assert_eq!(list(&mut o, of("b", 1), 9), [status("a", 2, 0)]);
    run(&mut o, "group_image_remove", &of("b", 1)).unwrap();
    assert_eq!(list(&mut o, of("", -1), 9).len(), 1);
    let snap = |id: &str, name: &str, state| GroupSnap {
        id: bytes(id),
        name: bytes(name),
        state,
        ..GroupSnap::default()
    };
    assert_eq!(run(&mut o, "group_snap_set", &snap("", "n", 0)), Err(Errno::INVAL));
    assert_eq!(run(&mut o, "group_snap_set", &snap("i", "", 0)), Err(Errno::INVAL));
    run(&mut o, "group_snap_set", &snap("z", "first", 0)).unwrap();
    assert_eq!(run(&mut o, "group_snap_set", &snap("z", "first", 0)), Err(Errno::EXIST));
    assert_eq!(run(&mut o, "group_snap_set", &snap("y", "first", 0)), Err(Errno::EXIST));
    run(&mut o, "group_snap_set", &snap("z", "first", 1)).unwrap();
    run(&mut o, "group_snap_set", &snap("a", "second", 0)).unwrap();
    assert_eq!(ask(&mut o, "group_snap_get_by_id", &bytes("z")), Ok(snap("z", "first", 1)));
    let listed: Vec<GroupSnap> = ask(&mut o, "group_snap_list", &(snap("", "", 0), 9u64)).unwrap();
    assert_eq!(listed, [snap("a", "second", 0), snap("z", "first", 1)]);
    let order: Vec<(Bytes, u64)> =
        ask(&mut o, "group_snap_list_order", &(bytes(""), 9u64)).unwrap();
    assert_eq!(order, [(bytes("a"), 2), (bytes("z"), 1)]);
    run(&mut o, "group_snap_remove", &bytes("z")).unwrap();
    assert_eq!(run(&mut o, "group_snap_get_by_id", &bytes("z")), Err(Errno::NOENT));
    let mut o = image(0);
    let group = |id: &str| GroupSpec { pool: 1, group: bytes(id) };
    assert_eq!(ask(&mut o, "image_group_get", &Nothing), Ok(GroupSpec::default()));
    assert_eq!(run(&mut o, "image_group_remove", &group("g")), Err(Errno::NOENT));
    run(&mut o, "image_group_add", &group("g")).unwrap();
    run(&mut o, "image_group_add", &group("g")).unwrap();
    assert_eq!(run(&mut o, "image_group_add", &group("h")), Err(Errno::EXIST));
    assert_eq!(ask::<u64>(&mut o, "op_features_get", &Nothing), Ok(op_feature::GROUP));
    assert_eq!(run(&mut o, "image_group_remove", &group("h")), Err(BADF));
    run(&mut o, "image_group_remove", &group("g")).unwrap();
    assert_eq!(ask::<u64>(&mut o, "op_features_get", &Nothing), Ok(0));
}

#[test]
fn object_maps() {
    type Update = ((u64, u64), (u8, Option<u8>));
    let mut o = Mem::new();
    assert_eq!(run(&mut o, "object_map_load", &Nothing), Err(Errno::NOENT));
    assert_eq!(run(&mut o, "object_map_resize", &(300_000_000u64, 0u8)), Err(Errno::INVAL));
    run(&mut o, "object_map_resize", &(50_000u64, 0u8)).unwrap();
    // 50,000 objects are 12,500 bytes in 4 blocks.
    assert_eq!(o.data.len(), 18 + 12_500 + 12 + 16);
    let update: Update = ((20_000, 40_000), (1, None));
    run(&mut o, "object_map_update", &update).unwrap();
    let update: Update = ((20_000, 20_001), (2, Some(3)));
    run(&mut o, "object_map_update", &update).unwrap();
    for bad in [(5, 5), (6, 5), (0, 50_001)] {
        let update: Update = (bad, (1, None));
        assert_eq!(run(&mut o, "object_map_update", &update), Err(Errno::RANGE));
    }
    // What is written in part is sound as a whole, and answered without crcs.
    let whole = ObjectMap::from_bytes(&o.data).unwrap();
    assert_eq!(whole.to_bytes(), o.data);
    let loaded = o.call(CLASS, "object_map_load", &Bytes::new()).unwrap().data;
    assert_eq!(loaded.len(), 18 + 12_500 + 4);
    let stored = o.data.clone();
    o.run(CLASS, "object_map_save", &ObjectMap::from_bytes(&loaded).unwrap()).unwrap();
    assert_eq!(o.data, stored);
    assert_eq!(run(&mut o, "object_map_resize", &(30_000u64, 0u8)), Err(STALE));
    run(&mut o, "object_map_resize", &(40_000u64, 0u8)).unwrap();
    // Clean after a snapshot, dirty again when it goes.
    let before = o.data.clone();
    run(&mut o, "object_map_snap_add", &Nothing).unwrap();
    assert_ne!(o.data, before);
    let of_snap = ObjectMap::from_bytes(&before).unwrap();
    run(&mut o, "object_map_snap_remove", &of_snap).unwrap();
    assert_eq!(o.data, before);
    // One wrong bit is found.
    o.data[18 + 5_000] ^= 1;
    assert_eq!(run(&mut o, "object_map_load", &Nothing), Err(Errno::INVAL));
    let update: Update = ((20_000, 20_001), (1, None));
    assert_eq!(run(&mut o, "object_map_update", &update), Err(Errno::INVAL));
    o.refuses_short_input(CLASS, &["object_map_save", "object_map_resize", "object_map_update"]);
}

#[test]
fn data_objects() {
    let mut o = Mem::new();
    o.call(CLASS, "copyup", &bytes("parent")).unwrap();
    o.call(CLASS, "copyup", &bytes("again")).unwrap();
    assert_eq!(&o.data[..], b"parent");
    let extents = BTreeMap::from([(0u64, 2u64), (6, 2)]);
    run(&mut o, "sparse_copyup", &(extents.clone(), bytes("abcd"))).unwrap();
    assert_eq!(&o.data[..], b"parent");
    let mut o = Mem::new();
    assert_eq!(run(&mut o, "sparse_copyup", &(extents.clone(), bytes("abc"))), Err(Errno::INVAL));
    run(&mut o, "sparse_copyup", &(extents, bytes("abcd"))).unwrap();
    assert_eq!(&o.data[..], b"ab\0\0\0\0cd");
    let mut empty = Mem::new();
    run(&mut empty, "sparse_copyup", &(BTreeMap::<u64, u64>::new(), bytes(""))).unwrap();
    assert!(empty.is_there);
    run(&mut o, "sparsify", &(2u64, true)).unwrap();
    assert_eq!(&o.data[..], b"ab\0\0\0\0cd");
    o.data.fill(0);
    run(&mut o, "sparsify", &(2u64, false)).unwrap();
    assert!(o.data.is_empty() && o.is_there);
    run(&mut o, "sparsify", &(2u64, true)).unwrap();
    assert!(!o.is_there);
    assert_eq!(run(&mut o, "sparsify", &(2u64, true)), Err(Errno::NOENT));
    assert_eq!(run(&mut Mem::new(), "assert_snapc_seq", &(5u64, 0u8)), Ok(()));
    o = Mem::created();
    o.snapset_seq = 5;
    assert_eq!(run(&mut o, "assert_snapc_seq", &(6u64, 0u8)), Ok(()));
    assert_eq!(run(&mut o, "assert_snapc_seq", &(5u64, 0u8)), Err(Errno::RANGE));
    assert_eq!(run(&mut o, "assert_snapc_seq", &(5u64, 1u8)), Ok(()));
    assert_eq!(run(&mut o, "assert_snapc_seq", &(6u64, 1u8)), Err(Errno::RANGE));
    assert_eq!(run(&mut o, "assert_snapc_seq", &(6u64, 9u8)), Err(Errno::OPNOTSUPP));
}

/// A map as clients make it has the bytes that come back from `object_map_load`.
#[test]
fn clients_make_object_maps() {
    use crate::client::{ObjectMap, state};
    for count in [0, 1, 3, 4, 5, 20_000] {
        let mut map = ObjectMap::new(count, state::EXISTS);
        assert!((0..count).all(|i| map.state(i) == state::EXISTS), "{count}");
        assert_eq!(map.state(count), state::NONEXISTENT, "beyond its end");
        map.set_state(count, state::EXISTS);
        if count > 2 {
            map.set_state(2, state::PENDING);
            assert_eq!([map.state(1), map.state(2)], [state::EXISTS, state::PENDING]);
        }
        assert_eq!(ObjectMap::from_bytes(&map.to_bytes()), Ok(map));
    }
}
