//! `rgw`: what the object gateway keeps in omaps: the index of each bucket with its versions
//! and logs, and the lists of what is to be deleted, expired, counted and resharded.
//!
//! Invariants:
//! - reads see the object as it was before the call ([`crate::Object`]), so each method
//!   reads all it needs and writes each key's last value;
//! - counters wrap and never panic; a value that cannot be decoded is an error, and lists
//!   read a bounded number of pairs in one call, but for the sums of a whole shard.
//!
//! Source: the peer's `src/cls/rgw`, as of 20.2.4.

#[cfg(test)]
pub(crate) mod corpus;
mod gc;
mod index;
mod keys;
mod lc;
mod list;
mod multipart;
mod object;
mod raw;
mod reshard;
mod suggest;
#[cfg(test)]
mod tests;
pub(crate) mod types;
mod usage;
mod versions;

use crate::{Class, READS, WRITES, method};

/// What a gateway calls the class with, and what it gets.
pub(crate) mod client {
    pub use super::gc::RemoveOp as GcRemoveOp;
    pub use super::index::{CompleteOp, EmptyOp, GuardOp, PrepareOp};
    pub use super::lc::{
        Entry as LcEntry, EntryOp as LcEntryOp, Head as LcHead, HeadOp as LcHeadOp,
        ListOp as LcListOp, ListRet as LcListRet,
    };
    pub use super::list::{ListOp, ListRet};
    pub use super::object::{CheckAttrsOp, RemoveOp, StorePgVerOp};
    pub use super::types::{
        Dir, DirEntry, EntryVer, Header, Key, Meta, Olh, OlhLog, Packed, Pending, Resharding,
        Stats, flag, modify, olh_op,
    };
    pub use super::usage::{
        AddOp as UsageAddOp, Data as UsageData, Entry as UsageEntry, Info as UsageInfo,
        ReadOp as UsageReadOp, ReadRet as UsageReadRet, TrimOp as UsageTrimOp,
    };
    pub use super::versions::{ClearOp, LinkOp, ReadLogOp, ReadLogRet, TrimLogOp, UnlinkOp};
}

const RW: u8 = READS | WRITES;

pub(crate) const CLASS: Class = Class {
    name: "rgw",
    methods: &[
        method("bucket_init_index", RW, index::init),
        // By this name the gateway asks whether the reshard log is known here.
        method("bucket_init_index2", RW, index::init),
        method("bucket_set_tag_timeout", RW, index::set_tag_timeout),
        method("bucket_list", READS, list::list),
        method("bucket_check_index", READS, index::check),
        method("bucket_rebuild_index", RW, index::rebuild),
        method("bucket_update_stats", RW, index::update_stats),
        method("bucket_prepare_op", RW, index::prepare),
        method("bucket_complete_op", RW, index::complete),
        method("bucket_link_olh", RW, versions::link),
        method("bucket_unlink_instance", RW, versions::unlink),
        method("bucket_read_olh_log", READS, versions::read_log),
        method("bucket_trim_olh_log", RW, versions::trim_log),
        method("bucket_clear_olh", RW, versions::clear),
        method("obj_remove", RW, object::remove),
        method("obj_store_pg_ver", WRITES, object::store_pg_ver),
        method("obj_check_attrs_prefix", READS, object::check_attrs_prefix),
        method("obj_check_mtime", READS, object::check_mtime),
        method("bi_get", READS, raw::get),
        method("bi_put", RW, raw::put),
        method("bi_put_entries", RW, raw::put_entries),
        method("bi_list", READS, raw::list),
        method("reshard_log_trim", RW, raw::reshard_log_trim),
        method("bi_log_list", READS, raw::log_list),
        method("bi_log_trim", RW, raw::log_trim),
        method("dir_suggest_changes", RW, suggest::suggest),
        method("bi_log_resync", RW, index::resync),
        method("bi_log_stop", RW, index::stop),
        method("user_usage_log_add", RW, usage::add),
        method("user_usage_log_read", READS, usage::read),
        method("user_usage_log_trim", RW, usage::trim),
        method("usage_log_clear", WRITES, usage::clear),
        method("gc_set_entry", RW, gc::set_entry),
        method("gc_defer_entry", RW, gc::defer_entry),
        method("gc_list", READS, gc::list),
        method("gc_remove", RW, gc::remove),
        method("lc_get_entry", READS, lc::get_entry),
        method("lc_set_entry", RW, lc::set_entry),
        method("lc_rm_entry", RW, lc::rm_entry),
        method("lc_get_next_entry", READS, lc::get_next_entry),
        method("lc_put_head", RW, lc::put_head),
        method("lc_get_head", READS, lc::get_head),
        method("lc_list_entries", READS, lc::list_entries),
        method("mp_upload_part_info_update", RW, multipart::update),
        method("reshard_add", RW, reshard::add),
        method("reshard_list", READS, reshard::list),
        method("reshard_get", READS, reshard::get),
        method("reshard_remove", RW, reshard::remove),
        method("set_bucket_resharding", RW, index::set_resharding),
        method("clear_bucket_resharding", RW, index::clear_resharding),
        method("guard_bucket_resharding", READS, index::guard_resharding),
        method("get_bucket_resharding", READS, index::get_resharding),
    ],
};
