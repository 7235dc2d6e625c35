//! Objects of the class that releases 16 to 20 encoded.

use std::path::Path;

use super::types::{
    BiEntry, BiLog, Deleted, Dir, DirEntry, EntryVer, Header, Key, Meta, Olh, OlhLog, Pending,
    Resharding, Stats,
};
use super::{gc, index, lc, list, multipart, object, raw, reshard, usage, versions};
use crate::rgw_gc::{Chain, Info, List, Listed, SetEntry, Target};
use crate::tests::corpus::{check, never, v1};

/// Versions before the one that is written.
fn before<const N: u8>(raw: &[u8]) -> bool {
    raw[0] < N
}

/// The header within it came to version 8.
fn is_before_20(release: &Path) -> bool {
    !release.file_name().is_some_and(|name| name.to_string_lossy().starts_with("20"))
}

/// Those whose bytes hold a header or an entry of [`Resharding`] that older releases wrote
/// otherwise.
fn always(_: &[u8]) -> bool {
    true
}

pub(crate) fn check_all(r: &Path) -> usize {
    let nests: fn(&[u8]) -> bool = if is_before_20(r) { always } else { never };
    let kept = [
        check::<BiLog>(r, "rgw_bi_log_entry", before::<4>),
        check::<Stats>(r, "rgw_bucket_category_stats", never),
        check::<Deleted>(r, "rgw_bucket_deleted_entry", never),
        check::<Dir>(r, "rgw_bucket_dir", nests),
        check::<DirEntry>(r, "rgw_bucket_dir_entry", never),
        check::<Meta>(r, "rgw_bucket_dir_entry_meta", never),
        check::<Header>(r, "rgw_bucket_dir_header", nests),
        check::<EntryVer>(r, "rgw_bucket_entry_ver", never),
        check::<Olh>(r, "rgw_bucket_olh_entry", never),
        check::<OlhLog>(r, "rgw_bucket_olh_log_entry", never),
        check::<Pending>(r, "rgw_bucket_pending_info", never),
        check::<Resharding>(r, "cls_rgw_bucket_instance_entry", nests),
        check::<Vec<bytes::Bytes>>(r, "rgw_zone_set", never),
        check::<bytes::Bytes>(r, "rgw_zone_set_entry", never),
        check::<Key>(r, "rgw_obj_index_key", never),
        check::<Key>(r, "cls_rgw_obj_key", never),
        check::<Target>(r, "cls_rgw_obj", v1),
        check::<Chain>(r, "cls_rgw_obj_chain", never),
        check::<Info>(r, "cls_rgw_gc_obj_info", never),
        check::<usage::Data>(r, "rgw_usage_data", never),
        check::<usage::Select>(r, "rgw_s3select_usage_data", never),
        check::<usage::Entry>(r, "rgw_usage_log_entry", before::<4>),
        check::<usage::Info>(r, "rgw_usage_log_info", nests),
        check::<usage::UserBucket>(r, "rgw_user_bucket", never),
        check::<multipart::Part>(r, "RGWUploadPartInfo", before::<6>),
        check::<multipart::Manifest>(r, "RGWObjManifest", never),
        check::<lc::Entry>(r, "cls_rgw_lc_entry", never),
        check::<reshard::Entry>(r, "cls_rgw_reshard_entry", nests),
    ];
    let of_index = [
        check::<BiEntry>(r, "rgw_cls_bi_entry", never),
        check::<raw::GetOp>(r, "rgw_cls_bi_get_op", never),
        check::<raw::EntryOp>(r, "rgw_cls_bi_get_ret", never),
        check::<raw::EntryOp>(r, "rgw_cls_bi_put_op", never),
        check::<raw::PutEntriesOp>(r, "rgw_cls_bi_put_entries_op", never),
        check::<raw::ListOp>(r, "rgw_cls_bi_list_op", v1),
        check::<raw::ListRet>(r, "rgw_cls_bi_list_ret", never),
        check::<raw::LogListOp>(r, "cls_rgw_bi_log_list_op", never),
        check::<raw::LogListRet>(r, "cls_rgw_bi_log_list_ret", never),
        check::<raw::LogTrimOp>(r, "cls_rgw_bi_log_trim_op", never),
        check::<versions::ClearOp>(r, "rgw_cls_bucket_clear_olh_op", never),
        check::<versions::LinkOp>(r, "rgw_cls_link_olh_op", never),
        check::<versions::ReadLogOp>(r, "rgw_cls_read_olh_log_op", never),
        check::<versions::ReadLogRet>(r, "rgw_cls_read_olh_log_ret", never),
        check::<versions::TrimLogOp>(r, "rgw_cls_trim_olh_log_op", never),
        check::<versions::UnlinkOp>(r, "rgw_cls_unlink_instance_op", never),
        check::<index::CheckRet>(r, "rgw_cls_check_index_ret", nests),
        check::<index::CompleteOp>(r, "rgw_cls_obj_complete_op", never),
        check::<index::PrepareOp>(r, "rgw_cls_obj_prepare_op", never),
        check::<index::TagTimeoutOp>(r, "rgw_cls_tag_timeout_op", never),
        check::<index::ReshardingOp>(r, "cls_rgw_set_bucket_resharding_op", nests),
        check::<index::EmptyOp>(r, "cls_rgw_clear_bucket_resharding_op", never),
        check::<index::GuardOp>(r, "cls_rgw_guard_bucket_resharding_op", never),
        check::<list::ListOp>(r, "rgw_cls_list_op", before::<6>),
        check::<list::ListRet>(r, "rgw_cls_list_ret", nests),
    ];
    let others = [
        check::<object::CheckAttrsOp>(r, "rgw_cls_obj_check_attrs_prefix", never),
        check::<object::CheckMtimeOp>(r, "rgw_cls_obj_check_mtime", never),
        check::<object::RemoveOp>(r, "rgw_cls_obj_remove_op", never),
        check::<object::StorePgVerOp>(r, "rgw_cls_obj_store_pg_ver_op", never),
        check::<usage::AddOp>(r, "rgw_cls_usage_log_add_op", nests),
        check::<usage::ReadOp>(r, "rgw_cls_usage_log_read_op", never),
        check::<usage::ReadRet>(r, "rgw_cls_usage_log_read_ret", nests),
        check::<usage::TrimOp>(r, "rgw_cls_usage_log_trim_op", never),
        check::<SetEntry>(r, "cls_rgw_gc_set_entry_op", never),
        check::<gc::DeferOp>(r, "cls_rgw_gc_defer_entry_op", never),
        check::<List>(r, "cls_rgw_gc_list_op", never),
        check::<Listed>(r, "cls_rgw_gc_list_ret", never),
        check::<gc::RemoveOp>(r, "cls_rgw_gc_remove_op", never),
        check::<lc::EntryOp>(r, "cls_rgw_lc_get_entry_ret", never),
        check::<lc::EntryOp>(r, "cls_rgw_lc_rm_entry_op", never),
        check::<lc::EntryOp>(r, "cls_rgw_lc_set_entry_op", never),
        check::<multipart::UpdateOp>(r, "cls_rgw_mp_upload_part_info_update_op", nests),
        check::<reshard::AddOp>(r, "cls_rgw_reshard_add_op", nests),
        check::<reshard::EntryOp>(r, "cls_rgw_reshard_get_op", nests),
        check::<reshard::EntryOp>(r, "cls_rgw_reshard_get_ret", nests),
        check::<reshard::ListOp>(r, "cls_rgw_reshard_list_op", never),
        check::<reshard::ListRet>(r, "cls_rgw_reshard_list_ret", nests),
        check::<reshard::RemoveOp>(r, "cls_rgw_reshard_remove_op", never),
    ];
    let total = kept.iter().chain(&of_index).chain(&others).sum();
    eprintln!("{total} objects of rgw in {}", r.display());
    total
}
