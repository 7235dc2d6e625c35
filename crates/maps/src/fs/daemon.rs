//! Metadata servers and their clients towards the monitors: health, features, rights.

use std::collections::BTreeMap;

use crate::features::{CompatSet, FeatureSet};
use crate::wire::record;

record! {
    /// One complaint of a metadata server. The peer's `MDSHealthMetric`.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    MdsHealthMetric "MDSHealthMetric", compat 1, known 1, |f| 1; {
        /// Which: the peer's `mds_metric_t`, from 1 on.
        kind: u16,
        /// 0 error, 1 warning, 2 well.
        severity: u8,
        /// The text.
        message: String,
        /// Words and values behind the text.
        metadata: BTreeMap<String, String>,
    }
}

record! {
    /// A metadata server's complaints. The peer's `MDSHealth`.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    MdsHealth "MDSHealth", compat 1, known 1, |f| 1; {
        /// All of them.
        metrics: Vec<MdsHealthMetric>,
    }
}

const INCOMPAT: [(u64, &str); 12] = [
    (1, "base v0.20"),
    (2, "client writeable ranges"),
    (3, "default file layouts on dirs"),
    (4, "dir inode in separate object"),
    (5, "mds uses versioned encoding"),
    (6, "dirfrag is stored in omap"),
    (7, "mds uses inline data"),
    (8, "no anchor table"),
    (9, "file layout v2"),
    (10, "snaprealm v2"),
    (11, "minor log segments"),
    (12, "quiesce subvolumes"),
];

/// What a metadata server of release 20 knows. The peer's `get_compat_set_all`.
#[must_use]
pub fn compat_supported() -> CompatSet {
    CompatSet { incompat: FeatureSet::new(&INCOMPAT), ..CompatSet::default() }
}

/// What new file systems need: all but inline data. The peer's `get_compat_set_default`.
#[must_use]
pub fn compat_default() -> CompatSet {
    let mut compat = compat_supported();
    compat.incompat.names.remove(&7);
    compat
}

/// Features of clients of file systems, by bit. The peer's `cephfs_features`; the first five
/// are spent.
pub const FEATURE_NAMES: [&str; 24] = [
    "reserved",
    "reserved",
    "reserved",
    "reserved",
    "reserved",
    "jewel",
    "kraken",
    "luminous",
    "mimic",
    "reply_encoding",
    "reclaim_client",
    "lazy_caps_wanted",
    "multi_reconnect",
    "deleg_ino",
    "metric_collect",
    "alternate_name",
    "notify_session_state",
    "op_getvxattr",
    "32bits_retry_fwd",
    "new_snaprealm_info",
    "has_owner_uidgid",
    "client_mds_auth_caps",
    "charmap",
    "blockdiff",
];

/// The name of a feature; `unknown` for later ones.
#[must_use]
pub fn feature_name(bit: usize) -> &'static str {
    FEATURE_NAMES.get(bit).copied().unwrap_or("unknown")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compat_sets() {
        assert_eq!(compat_supported().incompat.mask(), 0x1ffe);
        assert_eq!(compat_default().incompat.mask(), 0x1f7e);
        assert_eq!((feature_name(18), feature_name(99)), ("32bits_retry_fwd", "unknown"));
    }
}
