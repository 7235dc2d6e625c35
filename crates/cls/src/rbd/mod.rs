//! `rbd`: images of block devices, as the peer's `librbd` and the kernel keep them.
//!
//! | object | what it holds |
//! | --- | --- |
//! | `rbd_header.ID` | an image: omap keys `size`, `order`, `features`, `snapshot_...`, ... |
//! | `rbd_id.NAME` | the image's id, in its data |
//! | `rbd_directory`, `rbd_group_directory` | names and ids, both ways |
//! | `rbd_object_map.ID` | two bits for each data object |
//! | `rbd_trash`, `rbd_namespace`, `rbd_children` | images that wait to go; namespaces; clones |
//! | `rbd_mirroring` | mode, peers, mirrored images, the daemons' words on them |
//! | `rbd_group_header.ID` | a group's images and snapshots |
//! | `NAME.rbd` | an image of the first format |
//!
//! Source: the peer's `cls_rbd.cc`, `cls_rbd_types.h`, `rbd_types.h`, `bit_vector.hpp`.

mod data;
mod directory;
mod group;
mod header;
mod mirror;
mod object_map;
mod old;
mod parent;
mod snap;
mod types;

pub use object_map::{ObjectMap, state};
pub use types::*;

use bytes::Bytes;

use crate::keys::hex_key;
use crate::{Class, READS, WRITES, method};

/// `RBD_FEATURE_*`.
#[allow(missing_docs)]
pub mod feature {
    pub const LAYERING: u64 = 1;
    pub const STRIPINGV2: u64 = 1 << 1;
    pub const EXCLUSIVE_LOCK: u64 = 1 << 2;
    pub const OBJECT_MAP: u64 = 1 << 3;
    pub const FAST_DIFF: u64 = 1 << 4;
    pub const DEEP_FLATTEN: u64 = 1 << 5;
    pub const JOURNALING: u64 = 1 << 6;
    pub const DATA_POOL: u64 = 1 << 7;
    pub const OPERATIONS: u64 = 1 << 8;
    pub const MIGRATING: u64 = 1 << 9;
    pub const NON_PRIMARY: u64 = 1 << 10;
    pub const DIRTY_CACHE: u64 = 1 << 11;

    pub const ALL: u64 = (1 << 12) - 1;
    /// Not even read by clients that do not know them.
    pub const INCOMPATIBLE: u64 = LAYERING | STRIPINGV2 | DATA_POOL;
    /// Not written by them.
    pub const RW_INCOMPATIBLE: u64 = ALL;
    pub const MUTABLE: u64 =
        EXCLUSIVE_LOCK | OBJECT_MAP | FAST_DIFF | JOURNALING | NON_PRIMARY | DIRTY_CACHE;
    pub const DISABLE_ONLY: u64 = DEEP_FLATTEN;
    /// Set by operations alone.
    pub const INTERNAL: u64 = OPERATIONS | MIGRATING;
}

/// `RBD_OPERATION_FEATURE_*`.
#[allow(missing_docs)]
pub mod op_feature {
    pub const CLONE_PARENT: u64 = 1;
    pub const CLONE_CHILD: u64 = 1 << 1;
    pub const GROUP: u64 = 1 << 2;
    pub const SNAP_TRASH: u64 = 1 << 3;
    pub const ALL: u64 = (1 << 4) - 1;
}

/// The key of a snapshot in an image's header.
fn snap_key(id: u64) -> Bytes {
    hex_key(snap::PREFIX, id)
}

pub(crate) const CLASS: Class = Class {
    name: "rbd",
    methods: &[
        method("create", READS | WRITES, header::create),
        method("get_features", READS, header::get_features),
        method("set_features", READS | WRITES, header::set_features),
        method("get_all_features", READS, header::get_all_features),
        method("get_size", READS, header::get_size),
        method("set_size", READS | WRITES, header::set_size),
        method("get_object_prefix", READS, header::get_object_prefix),
        method("get_data_pool", READS, header::get_data_pool),
        method("get_stripe_unit_count", READS, header::get_stripe),
        method("set_stripe_unit_count", READS | WRITES, header::set_stripe),
        method("get_create_timestamp", READS, header::get_create_timestamp),
        method("get_access_timestamp", READS, header::get_access_timestamp),
        method("get_modify_timestamp", READS, header::get_modify_timestamp),
        method("set_access_timestamp", READS | WRITES, header::set_access_timestamp),
        method("set_modify_timestamp", READS | WRITES, header::set_modify_timestamp),
        method("get_flags", READS, header::get_flags),
        method("set_flags", READS | WRITES, header::set_flags),
        method("op_features_get", READS, header::op_features_get),
        method("op_features_set", READS | WRITES, header::op_features_set),
        method("metadata_list", READS, header::metadata_list),
        method("metadata_set", READS | WRITES, header::metadata_set),
        method("metadata_remove", READS | WRITES, header::metadata_remove),
        method("metadata_get", READS, header::metadata_get),
        method("assert_snapc_seq", READS | WRITES, header::assert_snapc_seq),
        method("get_snapcontext", READS, snap::get_snapcontext),
        method("get_snapshot_name", READS, snap::get_name),
        method("get_snapshot_timestamp", READS, snap::get_timestamp),
        method("snapshot_get", READS, snap::get),
        method("snapshot_add", READS | WRITES, snap::add),
        method("snapshot_remove", READS | WRITES, snap::remove),
        method("snapshot_rename", READS | WRITES, snap::rename),
        method("snapshot_trash_add", READS | WRITES, snap::trash_add),
        method("get_protection_status", READS, snap::get_protection),
        method("set_protection_status", READS | WRITES, snap::set_protection),
        method("snapshot_get_limit", READS, snap::get_limit),
        method("snapshot_set_limit", READS | WRITES, snap::set_limit),
        method("child_attach", READS | WRITES, snap::child_attach),
        method("child_detach", READS | WRITES, snap::child_detach),
        method("children_list", READS, snap::children_list),
        method("add_child", READS | WRITES, snap::add_child),
        method("remove_child", READS | WRITES, snap::remove_child),
        method("get_children", READS, snap::get_children),
        method("get_parent", READS, parent::get_old),
        method("set_parent", READS | WRITES, parent::set_old),
        method("remove_parent", READS | WRITES, parent::remove_old),
        method("parent_get", READS, parent::get),
        method("parent_overlap_get", READS, parent::get_overlap),
        method("parent_attach", READS | WRITES, parent::attach_method),
        method("parent_detach", READS | WRITES, parent::detach_method),
        method("migration_set", READS | WRITES, parent::migration_set),
        method("migration_set_state", READS | WRITES, parent::migration_set_state),
        method("migration_get", READS, parent::migration_get),
        method("migration_remove", READS | WRITES, parent::migration_remove),
        method("get_id", READS, directory::get_id),
        method("set_id", READS | WRITES, directory::set_id),
        method("dir_get_id", READS, directory::dir_get_id),
        method("dir_get_name", READS, directory::dir_get_name),
        method("dir_list", READS, directory::dir_list),
        method("dir_add_image", READS | WRITES, directory::dir_add),
        method("dir_remove_image", READS | WRITES, directory::dir_remove),
        method("dir_rename_image", READS | WRITES, directory::dir_rename),
        method("dir_state_assert", READS, directory::dir_state_assert),
        method("dir_state_set", READS | WRITES, directory::dir_state_set),
        method("group_dir_list", READS, directory::dir_list),
        method("group_dir_add", READS | WRITES, directory::dir_add),
        method("group_dir_remove", READS | WRITES, directory::dir_remove),
        method("group_dir_rename", READS | WRITES, directory::dir_rename),
        method("trash_add", READS | WRITES, directory::trash_add),
        method("trash_remove", READS | WRITES, directory::trash_remove),
        method("trash_list", READS, directory::trash_list),
        method("trash_get", READS, directory::trash_get),
        method("trash_state_set", READS | WRITES, directory::trash_state_set),
        method("namespace_add", READS | WRITES, directory::namespace_add),
        method("namespace_remove", READS | WRITES, directory::namespace_remove),
        method("namespace_list", READS, directory::namespace_list),
        method("object_map_load", READS, object_map::load),
        method("object_map_save", READS | WRITES, object_map::save),
        method("object_map_resize", READS | WRITES, object_map::resize),
        method("object_map_update", READS | WRITES, object_map::update),
        method("object_map_snap_add", READS | WRITES, object_map::snap_add),
        method("object_map_snap_remove", READS | WRITES, object_map::snap_remove),
        method("group_image_remove", READS | WRITES, group::image_remove),
        method("group_image_list", READS, group::image_list),
        method("group_image_set", READS | WRITES, group::image_set),
        method("image_group_add", READS | WRITES, group::of_image_add),
        method("image_group_remove", READS | WRITES, group::of_image_remove),
        method("image_group_get", READS, group::of_image_get),
        method("group_snap_set", READS | WRITES, group::snap_set),
        method("group_snap_remove", READS | WRITES, group::snap_remove),
        method("group_snap_get_by_id", READS, group::snap_get),
        method("group_snap_list", READS, group::snap_list),
        method("group_snap_list_order", READS, group::snap_list_order),
        method("mirror_uuid_get", READS, mirror::uuid_get),
        method("mirror_uuid_set", READS | WRITES, mirror::uuid_set),
        method("mirror_mode_get", READS, mirror::mode_get),
        method("mirror_mode_set", READS | WRITES, mirror::mode_set),
        method("mirror_remote_namespace_get", READS, mirror::remote_namespace_get),
        method("mirror_remote_namespace_set", READS | WRITES, mirror::remote_namespace_set),
        method("mirror_peer_ping", READS | WRITES, mirror::peer_ping),
        method("mirror_peer_list", READS, mirror::peer_list),
        method("mirror_peer_add", READS | WRITES, mirror::peer_add),
        method("mirror_peer_remove", READS | WRITES, mirror::peer_remove),
        method("mirror_peer_set_client", READS | WRITES, mirror::peer_set_client),
        method("mirror_peer_set_cluster", READS | WRITES, mirror::peer_set_cluster),
        method("mirror_peer_set_direction", READS | WRITES, mirror::peer_set_direction),
        method("mirror_image_list", READS, mirror::image_list),
        method("mirror_image_get_image_id", READS, mirror::image_get_id),
        method("mirror_image_get", READS, mirror::image_get),
        method("mirror_image_set", READS | WRITES, mirror::image_set),
        method("mirror_image_remove", READS | WRITES, mirror::image_remove),
        method("mirror_image_status_set", READS | WRITES, mirror::status_set),
        method("mirror_image_status_remove", READS | WRITES, mirror::status_remove),
        method("mirror_image_status_get", READS, mirror::status_get),
        method("mirror_image_status_list", READS, mirror::status_list),
        method("mirror_image_status_get_summary", READS, mirror::status_summary),
        method("mirror_image_status_remove_down", READS | WRITES, mirror::status_remove_down),
        method("mirror_image_instance_get", READS, mirror::instance_get),
        method("mirror_image_instance_list", READS, mirror::instance_list),
        method("mirror_instances_list", READS, mirror::instances_list),
        method("mirror_instances_add", READS | WRITES, mirror::instances_add),
        method("mirror_instances_remove", READS | WRITES, mirror::instances_remove),
        method("mirror_image_map_list", READS, mirror::map_list),
        method("mirror_image_map_update", WRITES, mirror::map_update),
        method("mirror_image_map_remove", WRITES, mirror::map_remove),
        method("mirror_image_snapshot_unlink_peer", READS | WRITES, mirror::snapshot_unlink_peer),
        method(
            "mirror_image_snapshot_set_copy_progress",
            READS | WRITES,
            mirror::snapshot_set_progress,
        ),
        method("copyup", READS | WRITES, data::copyup),
        method("sparse_copyup", READS | WRITES, data::sparse_copyup),
        method("sparsify", READS | WRITES, data::sparsify),
        method("snap_list", READS, old::list),
        method("snap_add", READS | WRITES, old::add),
        method("snap_remove", READS | WRITES, old::remove),
        method("snap_rename", READS | WRITES, old::rename),
    ],
};
