//! `rbd`: mirroring of a pool's images.

use std::collections::BTreeMap;

use bytes::Bytes;
use denc::Denc;
use types::{EntityAddr, EntityId, EntityInst, EntityKind, Errno};

use super::{Mem, Nothing, bytes};
use crate::STALE;
use crate::rbd::*;

fn run(o: &mut Mem, method: &str, input: &impl Denc) -> Result<(), Errno> {
    o.run("rbd", method, input)
}

fn ask<T: Denc>(o: &mut Mem, method: &str, input: &impl Denc) -> Result<T, Errno> {
    o.ask("rbd", method, input)
}

fn mirroring() -> Mem {
    let mut o = Mem::new();
    run(&mut o, "mirror_uuid_set", &bytes("here")).unwrap();
    run(&mut o, "mirror_mode_set", &2u32).unwrap();
    o
}

fn peer(uuid: &str, site: &str) -> MirrorPeer {
    let (uuid, site, client) = (bytes(uuid), bytes(site), bytes("client"));
    MirrorPeer { uuid, site, client, ..MirrorPeer::default() }
}

#[test]
fn modes_and_peers() {
    let mut o = Mem::new();
    assert_eq!(run(&mut o, "mirror_mode_set", &1u32), Err(Errno::INVAL));
    assert_eq!(run(&mut o, "mirror_uuid_set", &bytes("")), Err(Errno::INVAL));
    assert_eq!(run(&mut o, "mirror_mode_get", &Nothing), Err(Errno::NOENT));
    assert_eq!(run(&mut o, "mirror_peer_list", &Nothing), Err(Errno::NOENT));
    for list in ["mirror_image_list", "mirror_image_map_list", "mirror_image_status_list"] {
        assert_eq!(run(&mut o, list, &(bytes(""), 0u64)), Err(Errno::NOENT));
    }
    assert_eq!(run(&mut o, "mirror_peer_add", &peer("u", "s")), Err(Errno::INVAL));
    o = mirroring();
    assert_eq!(run(&mut o, "mirror_mode_set", &4u32), Err(Errno::INVAL));
    assert_eq!(run(&mut o, "mirror_uuid_set", &bytes("other")), Err(Errno::INVAL));
    assert_eq!(ask::<Bytes>(&mut o, "mirror_uuid_get", &Nothing), Ok(bytes("here")));
    assert_eq!(ask::<u32>(&mut o, "mirror_mode_get", &Nothing), Ok(2));
    assert_eq!(run(&mut o, "mirror_remote_namespace_set", &bytes("n")), Err(Errno::INVAL));
    run(&mut o, "mirror_peer_add", &peer("1", "a")).unwrap();
    assert_eq!(run(&mut o, "mirror_peer_add", &peer("1", "b")), Err(STALE));
    assert_eq!(run(&mut o, "mirror_peer_add", &peer("2", "a")), Err(Errno::EXIST));
    assert_eq!(run(&mut o, "mirror_peer_add", &peer("here", "b")), Err(Errno::INVAL));
    assert_eq!(run(&mut o, "mirror_peer_add", &peer("2", "")), Err(Errno::INVAL));
    run(&mut o, "mirror_peer_add", &peer("2", "b")).unwrap();
    assert_eq!(run(&mut o, "mirror_mode_set", &0u32), Err(Errno::BUSY));
    let named = (bytes("2"), bytes("a"));
    assert_eq!(run(&mut o, "mirror_peer_set_cluster", &named), Err(Errno::EXIST));
    let named = (bytes("3"), bytes("c"));
    assert_eq!(run(&mut o, "mirror_peer_set_cluster", &named), Err(Errno::NOENT));
    run(&mut o, "mirror_peer_set_cluster", &(bytes("2"), bytes("c"))).unwrap();
    run(&mut o, "mirror_peer_set_client", &(bytes("2"), bytes("me"))).unwrap();
    run(&mut o, "mirror_peer_set_direction", &(bytes("2"), RX)).unwrap();
    let none = run(&mut o, "mirror_peer_set_direction", &(bytes("3"), RX));
    assert_eq!(none, Err(Errno::NOENT));
    // A ping of a receiver makes it both; one of a stranger adds it as one that sends.
    let ping = |site: &str, uuid: &str| ((bytes(site), bytes(uuid)), TX);
    let wrong = run(&mut o, "mirror_peer_ping", &((bytes("c"), bytes("m")), RX));
    assert_eq!(wrong, Err(Errno::INVAL));
    assert_eq!(run(&mut o, "mirror_peer_ping", &ping("", "m")), Err(Errno::INVAL));
    run(&mut o, "mirror_peer_ping", &ping("c", "m")).unwrap();
    run(&mut o, "mirror_peer_ping", &ping("stranger", "x")).unwrap();
    run(&mut o, "mirror_peer_ping", &ping("renamed", "x")).unwrap();
    let peers: Vec<MirrorPeer> = ask(&mut o, "mirror_peer_list", &Nothing).unwrap();
    assert_eq!(peers.len(), 3);
    let c = peers.iter().find(|p| p.site == "c").unwrap();
    assert_eq!((c.direction, &c.mirror_uuid[..]), (RX_TX, &b"m"[..]));
    assert_eq!(c.last_seen, o.now);
    assert!(peers.iter().any(|p| p.site == "renamed" && p.direction == TX));
    for peer in peers {
        run(&mut o, "mirror_peer_remove", &peer.uuid).unwrap();
    }
    run(&mut o, "mirror_mode_set", &0u32).unwrap();
    assert_eq!(run(&mut o, "mirror_uuid_get", &Nothing), Err(Errno::NOENT));
    run(&mut o, "mirror_remote_namespace_set", &bytes("n")).unwrap();
    assert_eq!(ask::<Bytes>(&mut o, "mirror_remote_namespace_get", &Nothing), Ok(bytes("n")));
}

fn image(global: &str, state: u8) -> MirrorImage {
    MirrorImage { global_id: bytes(global), state, mode: 0 }
}

#[test]
fn images_and_statuses() {
    let mut o = mirroring();
    let set = |o: &mut Mem, id: &str, i: MirrorImage| run(o, "mirror_image_set", &(bytes(id), i));
    assert_eq!(set(&mut o, "1", image("g1", 0)), Err(Errno::NOENT));
    set(&mut o, "1", image("g1", 1)).unwrap();
    assert_eq!(set(&mut o, "1", image("g2", 1)), Err(Errno::INVAL));
    assert_eq!(set(&mut o, "2", image("g1", 1)), Err(Errno::EXIST));
    set(&mut o, "2", image("g2", 1)).unwrap();
    assert_eq!(ask::<Bytes>(&mut o, "mirror_image_get_image_id", &bytes("g2")), Ok(bytes("2")));
    assert_eq!(ask(&mut o, "mirror_image_get", &bytes("1")), Ok(image("g1", 1)));
    let listed: Vec<(Bytes, Bytes)> =
        ask(&mut o, "mirror_image_list", &(bytes("1"), 9u64)).unwrap();
    assert_eq!(listed, [(bytes("2"), bytes("g2"))]);

    let status = |site: &str, state| SiteStatus { site: bytes(site), state, ..Default::default() };
    assert_eq!(run(&mut o, "mirror_image_status_get", &bytes("g1")), Err(Errno::NOENT));
    run(&mut o, "mirror_image_status_set", &(bytes("g1"), status("", 4))).unwrap();
    run(&mut o, "mirror_image_status_set", &(bytes("g1"), status("far", 6))).unwrap();
    // What is not mirrored is passed over.
    run(&mut o, "mirror_image_status_set", &(bytes("g9"), status("", 4))).unwrap();
    let got: ImageStatus = ask(&mut o, "mirror_image_status_get", &bytes("g1")).unwrap();
    let local = got.local.unwrap();
    assert_eq!((local.state, local.up, local.updated), (4, false, o.now));
    assert_eq!((got.remote[0].state, &got.remote[0].site[..]), (6, &b"far"[..]));
    assert_eq!(run(&mut o, "mirror_image_instance_get", &bytes("g1")), Err(STALE));
    // Up while its daemon watches.
    let daemon =
        EntityInst { name: EntityId::new(EntityKind::CLIENT, 7), addr: EntityAddr::default() };
    o.watchers.push(daemon);
    let got: ImageStatus = ask(&mut o, "mirror_image_status_get", &bytes("g1")).unwrap();
    assert!(got.local.unwrap().up);
    run(&mut o, "mirror_image_instance_get", &bytes("g1")).unwrap();
    assert_eq!(run(&mut o, "mirror_image_instance_get", &bytes("g2")), Err(Errno::NOENT));
    let instances: Vec<(Bytes, EntityInst)> =
        ask(&mut o, "mirror_image_instance_list", &(bytes(""), 9u64)).unwrap();
    assert_eq!(instances.len(), 1);
    type Statuses = (Vec<(Bytes, MirrorImage)>, Vec<(Bytes, ImageStatus)>);
    let (images, statuses): Statuses =
        ask(&mut o, "mirror_image_status_list", &(bytes(""), 9u64)).unwrap();
    assert_eq!((images.len(), statuses.len()), (2, 1));
    let counts = |o: &mut Mem, peers: Vec<MirrorPeer>| {
        ask::<BTreeMap<u8, i32>>(o, "mirror_image_status_get_summary", &peers).unwrap()
    };
    assert_eq!(counts(&mut o, vec![]), BTreeMap::from([(0, 1), (4, 1)]));
    let far = MirrorPeer { mirror_uuid: bytes("far"), direction: TX, ..peer("1", "far") };
    assert_eq!(counts(&mut o, vec![far]), BTreeMap::from([(0, 1), (6, 1)]));
    run(&mut o, "mirror_image_status_remove_down", &Nothing).unwrap();
    run(&mut o, "mirror_image_status_get", &bytes("g1")).unwrap();
    o.watchers.clear();
    run(&mut o, "mirror_image_status_remove_down", &Nothing).unwrap();
    assert_eq!(run(&mut o, "mirror_image_status_get", &bytes("g1")), Err(Errno::NOENT));

    assert_eq!(run(&mut o, "mirror_image_remove", &bytes("1")), Err(Errno::BUSY));
    set(&mut o, "1", image("g1", 0)).unwrap();
    run(&mut o, "mirror_image_remove", &bytes("1")).unwrap();
    assert_eq!(run(&mut o, "mirror_image_remove", &bytes("1")), Err(Errno::NOENT));
    assert_eq!(run(&mut o, "mirror_image_get_image_id", &bytes("g1")), Err(Errno::NOENT));
}

#[test]
fn instances_and_maps() {
    let mut o = Mem::created();
    run(&mut o, "mirror_instances_add", &bytes("5")).unwrap();
    run(&mut o, "mirror_instances_add", &bytes("6")).unwrap();
    run(&mut o, "mirror_instances_remove", &bytes("5")).unwrap();
    assert_eq!(ask::<Vec<Bytes>>(&mut o, "mirror_instances_list", &Nothing), Ok(vec![bytes("6")]));
    let map = ImageMap { instance: bytes("6"), ..ImageMap::default() };
    run(&mut o, "mirror_image_map_update", &(bytes("g"), map.clone())).unwrap();
    let maps: Vec<(Bytes, ImageMap)> =
        ask(&mut o, "mirror_image_map_list", &(bytes(""), 9u64)).unwrap();
    assert_eq!(maps, [(bytes("g"), map)]);
    run(&mut o, "mirror_image_map_remove", &bytes("g")).unwrap();
    run(&mut o, "mirror_image_map_remove", &bytes("g")).unwrap();
}

#[test]
fn mirror_snapshots() {
    let mut o = Mem::new();
    run(&mut o, "create", &((1u64 << 20, 22u8), (0u64, bytes("p")))).unwrap();
    let mirror = MirrorSnap { state: 2, peers: [bytes("peer")].into(), ..MirrorSnap::default() };
    let add = ((bytes("m"), 5u64), SnapKind::Mirror(Box::new(mirror)));
    run(&mut o, "snapshot_add", &add).unwrap();
    run(&mut o, "snapshot_add", &(bytes("user"), 6u64)).unwrap();
    const UNLINK: &str = "mirror_image_snapshot_unlink_peer";
    const PROGRESS: &str = "mirror_image_snapshot_set_copy_progress";
    assert_eq!(run(&mut o, UNLINK, &(7u64, bytes("peer"))), Err(Errno::NOENT));
    assert_eq!(run(&mut o, UNLINK, &(6u64, bytes("peer"))), Err(Errno::INVAL));
    assert_eq!(run(&mut o, UNLINK, &(5u64, bytes("other"))), Err(Errno::NOENT));
    run(&mut o, UNLINK, &(5u64, bytes("peer"))).unwrap();
    assert_eq!(run(&mut o, PROGRESS, &((6u64, true), 9u64)), Err(Errno::INVAL));
    run(&mut o, PROGRESS, &((5u64, true), 9u64)).unwrap();
    let info: SnapInfo = ask(&mut o, "snapshot_get", &5u64).unwrap();
    let SnapKind::Mirror(m) = info.kind else { panic!("a mirror snapshot") };
    assert!(m.complete && m.peers.is_empty() && m.last_copied == 9);
}
