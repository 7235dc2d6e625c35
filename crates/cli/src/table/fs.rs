//! Commands about file systems.

use super::{Entry, e};

/// Signature, module, permissions, flags, help.
#[rustfmt::skip]
pub(super) const TABLE: &[Entry] = &[
    e("mds stat", "mds", "r", 32, "metadata servers in one line"),
    e("fs dump [epoch:Int(0)]", "mds", "r", 0, "the file system map"),
    e("mds metadata [who:String]", "mds", "r", 0, "what metadata servers say of themselves"),
    e("mds count-metadata property:String",
      "mds", "r", 0, "count metadata servers by what they say of themselves"),
    e("mds versions", "mds", "r", 0, "versions of the metadata servers"),
    e("mds ok-to-stop ids:String...", "mds", "r", 0, "whether these metadata servers can stop"),
    e("mds fail role_or_gid:String [yes_i_really_mean_it:Bool]",
      "mds", "rw", 0, "mark a metadata server failed"),
    e("fs new fs_name:String<[A-Za-z0-9-_.]> metadata:String data:String [force:Bool] [allow_dangerous_metadata_overlay:Bool] [fscid:Int(0)] [recover:Bool] [yes_i_really_really_mean_it:Bool] [set:String...]",
      "fs", "rw", 0, "make a file system of two pools"),
    e("fs fail fs_name:String [yes_i_really_mean_it:Bool]", "fs", "rw", 0, "stop a file system"),
    e("fs rm fs_name:String [yes_i_really_mean_it:Bool]", "fs", "rw", 0, "remove a file system"),
    e("fs ls", "fs", "r", 0, "file systems"),
    e("fs get fs_name:String", "fs", "r", 0, "one file system's map"),
    e("fs set fs_name:String var:{max_mds|allow_dirfrags|allow_new_snaps|allow_standby_replay|bal_rank_mask|balance_automate|balancer|cluster_down|down|inline_data|joinable|max_file_size|max_xattr_size|min_compat_client|refuse_client_session|refuse_standby_for_another_fs|session_autoclose|session_timeout|standby_count_wanted} val:String [yes_i_really_mean_it:Bool] [yes_i_really_really_mean_it:Bool]",
      "mds", "rw", 0, "change a setting of a file system"),
    e("fs flag set flag_name:{enable_multiple} val:String [yes_i_really_mean_it:Bool]",
      "fs", "rw", 0, "change a setting of all file systems"),
    e("fs feature ls", "mds", "r", 0, "features of file system clients"),
    e("fs add_data_pool fs_name:String pool:String",
      "mds", "rw", 0, "add a data pool to a file system"),
    e("fs rm_data_pool fs_name:String pool:String",
      "mds", "rw", 0, "take a data pool from a file system"),
    e("fs set-default fs_name:String", "fs", "rw", 0, "which file system clients get"),
];
