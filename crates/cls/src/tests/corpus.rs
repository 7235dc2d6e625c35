//! Objects that releases 16 to 20 encoded: read, and written again byte for byte.
//!
//! `ARGONAUT_CORPUS` names the unpacked corpus: `RELEASE/objects/TYPE/HASH`.

use std::path::Path;

use denc::{Denc, Reader};

use crate::rgw::corpus as rgw;
use crate::{
    cas, journal, log, queue, rbd, refcount, timeindex, two_phase_queue as tpq, user, version,
};

/// Reads every object of a type; how many. Those that `is_old` were written by versions
/// that are written as newer ones.
pub(crate) fn check<T: Denc>(release: &Path, name: &str, is_old: fn(&[u8]) -> bool) -> usize {
    let Ok(dir) = std::fs::read_dir(release.join("objects").join(name)) else { return 0 };
    let mut n = 0;
    for entry in dir {
        let path = entry.unwrap().path();
        let raw = std::fs::read(&path).unwrap();
        let mut r = Reader::new(&raw);
        let value = T::decode(&mut r).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        assert_eq!(r.left(), 0, "{}: bytes are left", path.display());
        if !is_old(&raw) {
            assert_eq!(value.to_bytes(), raw, "{}", path.display());
        }
        for cut in 0..raw.len().min(600) {
            let _ = T::decode(&mut Reader::new(&raw[..cut]));
        }
        n += 1;
    }
    n
}

pub(crate) fn v1(raw: &[u8]) -> bool {
    raw[0] < 2
}

pub(crate) fn never(_: &[u8]) -> bool {
    false
}

/// Maps that the peer writes in the order of its hash table.
fn has_no_order(raw: &[u8]) -> bool {
    raw.len() > 60 || raw[0] < 2
}

#[test]
fn corpus() {
    let Some(corpus) = std::env::var_os("ARGONAUT_CORPUS") else {
        eprintln!("skipped: ARGONAUT_CORPUS does not name the unpacked object corpus");
        return;
    };
    let mut total = 0;
    for release in std::fs::read_dir(&corpus).expect("the corpus can be read") {
        let release = release.unwrap().path();
        let r = release.as_path();
        if !r.join("objects").is_dir() {
            continue;
        }
        let small = [
            check::<cas::CreateOp>(r, "cls_cas_chunk_create_or_get_ref_op", never),
            check::<cas::RefOp>(r, "cls_cas_chunk_get_ref_op", never),
            check::<cas::RefOp>(r, "cls_cas_chunk_put_ref_op", never),
            check::<cas::Refs>(r, "chunk_refs_t", never),
            check::<refcount::TagOp>(r, "cls_refcount_get_op", never),
            check::<refcount::TagOp>(r, "cls_refcount_put_op", never),
            check::<version::SetOp>(r, "cls_version_set_op", never),
            check::<version::SetOp>(r, "cls_version_read_ret", never),
            check::<version::IncOp>(r, "cls_version_inc_op", never),
            check::<version::IncOp>(r, "cls_version_check_op", never),
        ];
        let logs = [
            check::<log::Entry>(r, "cls_log_entry", v1),
            check::<log::Entry>(r, "cls::log::entry", v1),
            check::<log::Header>(r, "cls_log_header", never),
            check::<log::Header>(r, "cls::log::header", never),
            check::<log::AddOp>(r, "cls_log_add_op", v1),
            check::<log::AddOp>(r, "cls::log::ops::add_op", v1),
            check::<log::ListOp>(r, "cls_log_list_op", never),
            check::<log::ListOp>(r, "cls::log::ops::list_op", never),
            check::<log::Listed>(r, "cls_log_list_ret", never),
            check::<log::Listed>(r, "cls::log::ops::list_ret", never),
            check::<log::TrimOp>(r, "cls_log_trim_op", v1),
            check::<log::TrimOp>(r, "cls::log::ops::trim_op", v1),
            check::<log::InfoOp>(r, "cls_log_info_op", never),
            check::<log::InfoOp>(r, "cls::log::ops::info_op", never),
            check::<timeindex::Entry>(r, "cls_timeindex_entry", never),
            check::<timeindex::ListOp>(r, "cls_timeindex_list_op", never),
            check::<timeindex::Listed>(r, "cls_timeindex_list_ret", never),
        ];
        let users = [
            check::<user::Bucket>(r, "cls_user_bucket", never),
            check::<user::BucketEntry>(r, "cls_user_bucket_entry", never),
            check::<user::Stats>(r, "cls_user_stats", never),
            check::<user::Header>(r, "cls_user_header", never),
            check::<user::SetOp>(r, "cls_user_set_buckets_op", never),
            check::<user::RemoveOp>(r, "cls_user_remove_bucket_op", never),
            check::<user::ListOp>(r, "cls_user_list_buckets_op", v1),
            check::<user::Listed>(r, "cls_user_list_buckets_ret", never),
            check::<user::HeaderOp>(r, "cls_user_get_header_op", never),
            check::<user::HeaderRet>(r, "cls_user_get_header_ret", never),
            check::<user::TimeOp>(r, "cls_user_complete_stats_sync_op", never),
            check::<user::Resource>(r, "cls_user_account_resource", never),
            check::<user::AccountHeader>(r, "cls_user_account_header", never),
            check::<user::ResourceAddOp>(r, "cls_user_account_resource_add_op", never),
            check::<user::ResourceOp>(r, "cls_user_account_resource_get_op", never),
            check::<user::ResourceOp>(r, "cls_user_account_resource_rm_op", never),
            check::<user::ResourceRet>(r, "cls_user_account_resource_get_ret", never),
            check::<user::ResourceListOp>(r, "cls_user_account_resource_list_op", never),
            check::<user::ResourceListed>(r, "cls_user_account_resource_list_ret", never),
        ];
        let queues = [
            check::<queue::Marker>(r, "cls_queue_marker", never),
            check::<queue::Head>(r, "cls_queue_head", never),
            check::<queue::Entry>(r, "cls_queue_entry", never),
            check::<queue::InitOp>(r, "cls_queue_init_op", never),
            check::<queue::EnqueueOp>(r, "cls_queue_enqueue_op", never),
            check::<queue::ListOp>(r, "cls_queue_list_op", v1),
            check::<queue::Listed>(r, "cls_queue_list_ret", never),
            check::<queue::RemoveOp>(r, "cls_queue_remove_op", never),
            check::<queue::CapacityRet>(r, "cls_queue_get_capacity_ret", never),
            check::<tpq::Reservation>(r, "cls_2pc_reservation", v1),
            check::<tpq::Reserved>(r, "cls_2pc_urgent_data", has_no_order),
            check::<tpq::ReserveOp>(r, "cls_2pc_queue_reserve_op", never),
            check::<tpq::Id>(r, "cls_2pc_queue_reserve_ret", never),
            check::<tpq::Id>(r, "cls_2pc_queue_abort_op", never),
            check::<tpq::CommitOp>(r, "cls_2pc_queue_commit_op", never),
            check::<tpq::ExpireOp>(r, "cls_2pc_queue_expire_op", never),
            check::<tpq::RemoveOp>(r, "cls_2pc_queue_remove_op", v1),
            check::<tpq::StatsRet>(r, "cls_queue_get_stats_ret", never),
            check::<tpq::ReservationsRet>(r, "cls_2pc_queue_reservations_ret", |_| true),
        ];
        let journals = [
            check::<journal::Position>(r, "cls::journal::ObjectPosition", never),
            check::<journal::SetPosition>(r, "cls::journal::ObjectSetPosition", never),
            check::<journal::Client>(r, "cls::journal::Client", never),
            check::<journal::Tag>(r, "cls::journal::Tag", never),
        ];
        let images = [
            check::<rbd::ParentSpec>(r, "cls::rbd::ParentImageSpec", never),
            check::<rbd::ChildSpec>(r, "cls::rbd::ChildImageSpec", v1),
            check::<rbd::Parent>(r, "cls_rbd_parent", v1),
            // Older ones name their parents.
            check::<rbd::Snap>(r, "cls_rbd_snap", |raw| raw[0] < 8),
            check::<rbd::SnapKind>(r, "cls::rbd::SnapshotNamespace", never),
            check::<rbd::SnapInfo>(r, "cls::rbd::SnapshotInfo", never),
            check::<rbd::Migration>(r, "cls::rbd::MigrationSpec", |raw| raw[0] < 3),
            check::<rbd::TrashSpec>(r, "TrashImageSpec", v1),
            check::<rbd::GroupImage>(r, "cls::rbd::GroupImageSpec", never),
            check::<rbd::GroupImageStatus>(r, "cls::rbd::GroupImageStatus", never),
            check::<rbd::GroupSpec>(r, "cls::rbd::GroupSpec", never),
            check::<rbd::GroupSnap>(r, "cls::rbd::GroupSnapshot", never),
            check::<rbd::ImageSnap>(r, "cls::rbd::ImageSnapshotSpec", never),
            check::<rbd::ObjectMap>(r, "BitVector<2>", never),
            check::<rbd::ObjectMap>(r, "ceph::BitVector<2>", never),
        ];
        let mirrors = [
            check::<rbd::MirrorImage>(r, "cls::rbd::MirrorImage", v1),
            check::<rbd::ImageMap>(r, "cls::rbd::MirrorImageMap", never),
            check::<rbd::MirrorPeer>(r, "cls::rbd::MirrorPeer", v1),
            check::<rbd::SiteStatus>(r, "cls::rbd::MirrorImageSiteStatus", never),
            check::<rbd::StoredStatus>(r, "cls::rbd::MirrorImageSiteStatusOnDisk", never),
            check::<rbd::ImageStatus>(r, "cls::rbd::MirrorImageStatus", v1),
        ];
        total += rgw::check_all(r);
        total += images.iter().chain(&mirrors).sum::<usize>();
        total +=
            small.iter().chain(&logs).chain(&users).chain(&queues).chain(&journals).sum::<usize>();
    }
    assert!(total > 100, "only {total} objects found in {}", Path::new(&corpus).display());
    eprintln!("{total} objects");
}
