//! Counts of objects and bytes.

use std::collections::BTreeMap;

use types::{DecodeError, Denc, Reader, Writer};

use crate::wire::record;

/// Fields in wire order with their types, and sums over them.
macro_rules! sums {
    ($name:ident $what:literal $version:literal $compat:literal { $($(#[$doc:meta])* $field:ident: $t:ident,)* }) => {
        /// Counts over a set of objects. The peer's `object_stat_sum_t`, 20/14.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name {
            $($(#[$doc])* pub $field: $t,)*
        }

        impl $name {
            /// Adds all of `other`.
            pub const fn add(&mut self, other: &Self) {
                $(self.$field = self.$field.wrapping_add(other.$field);)*
            }

            /// Takes away all of `other`.
            pub const fn sub(&mut self, other: &Self) {
                $(self.$field = self.$field.wrapping_sub(other.$field);)*
            }

            /// Names and values in wire order, as `pg dump` prints them.
            #[must_use]
            pub fn fields(&self) -> Vec<(&'static str, i64)> {
                vec![$((stringify!($field), i64::from(self.$field)),)*]
            }

            /// Whether all counts are zero.
            #[must_use]
            pub fn is_zero(&self) -> bool {
                *self == Self::default()
            }
        }

        impl Denc for $name {
            fn encode(&self, w: &mut Writer) {
                w.framed($version, $compat, |w| { $(w.$t(self.$field);)* });
            }
            fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
                r.framed($what, $version, |r, v| {
                    r.require(v >= $version, "object sums are read from version 20 on")?;
                    Ok(Self { $($field: r.$t()?,)* })
                })
            }
        }
    };
}

sums! {
    ObjectStatSum "object_stat_sum_t" 20 14 {
        /// Bytes.
        num_bytes: i64,
        /// Objects, clones included.
        num_objects: i64,
        /// Clones.
        num_object_clones: i64,
        /// Copies there should be.
        num_object_copies: i64,
        /// Objects the primary misses.
        num_objects_missing_on_primary: i64,
        /// Copies missing.
        num_objects_degraded: i64,
        /// Objects nobody is known to have.
        num_objects_unfound: i64,
        /// Reads.
        num_rd: i64,
        /// KiB read.
        num_rd_kb: i64,
        /// Writes.
        num_wr: i64,
        /// KiB written.
        num_wr_kb: i64,
        /// Errors found by scrubs.
        num_scrub_errors: i64,
        /// Objects recovered.
        num_objects_recovered: i64,
        /// Bytes recovered.
        num_bytes_recovered: i64,
        /// Keys recovered.
        num_keys_recovered: i64,
        /// Errors found by shallow scrubs.
        num_shallow_scrub_errors: i64,
        /// Errors found by deep scrubs.
        num_deep_scrub_errors: i64,
        /// Objects a cache tier has to flush.
        num_objects_dirty: i64,
        /// Deletions a cache tier has to flush.
        num_whiteouts: i64,
        /// Objects with omap.
        num_objects_omap: i64,
        /// Archived hit sets.
        num_objects_hit_set_archive: i64,
        /// Copies in the wrong place.
        num_objects_misplaced: i64,
        /// Bytes of archived hit sets.
        num_bytes_hit_set_archive: i64,
        /// Flushes.
        num_flush: i64,
        /// KiB flushed.
        num_flush_kb: i64,
        /// Evictions.
        num_evict: i64,
        /// KiB evicted.
        num_evict_kb: i64,
        /// Promotions.
        num_promote: i64,
        /// PGs flushing fast.
        num_flush_mode_high: i32,
        /// PGs flushing.
        num_flush_mode_low: i32,
        /// PGs evicting.
        num_evict_mode_some: i32,
        /// PGs evicting all.
        num_evict_mode_full: i32,
        /// Objects pinned.
        num_objects_pinned: i64,
        /// Objects missing somewhere.
        num_objects_missing: i64,
        /// Snapshot sets in their old form.
        num_legacy_snapsets: i64,
        /// Objects with too much omap.
        num_large_omap_objects: i64,
        /// Objects with manifests.
        num_objects_manifest: i64,
        /// Bytes of omap.
        num_omap_bytes: i64,
        /// Keys of omap.
        num_omap_keys: i64,
        /// Objects repaired.
        num_objects_repaired: i64,
    }
}

record! {
    /// Counts, and counts by category, which nobody uses. The peer's
    /// `object_stat_collection_t`.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    ObjectStatCollection "object_stat_collection_t", compat 2, known 2, |f| 2; {
        /// All.
        sum: ObjectStatSum,
        /// By category.
        categories: BTreeMap<String, ObjectStatSum>,
    }
}

record! {
    /// What a store holds. The peer's `store_statfs_t`; bytes each.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    StoreStatfs "store_statfs_t", compat 1, known 1, |f| 1; {
        /// The device.
        total: u64,
        /// Free.
        available: u64,
        /// Held back for the store itself.
        internally_reserved: u64,
        /// Space objects' data takes.
        allocated: i64,
        /// Data as written.
        data_stored: i64,
        /// Data after compression.
        data_compressed: i64,
        /// Space compressed data takes.
        data_compressed_allocated: i64,
        /// Compressed data before compression.
        data_compressed_original: i64,
        /// omap.
        omap_allocated: i64,
        /// The store's own metadata.
        internal_metadata: i64,
    }
}

impl StoreStatfs {
    /// Adds all of `other`.
    pub const fn add(&mut self, other: &Self) {
        self.total = self.total.wrapping_add(other.total);
        self.available = self.available.wrapping_add(other.available);
        self.internally_reserved = self.internally_reserved.wrapping_add(other.internally_reserved);
        self.allocated = self.allocated.wrapping_add(other.allocated);
        self.data_stored = self.data_stored.wrapping_add(other.data_stored);
        self.data_compressed = self.data_compressed.wrapping_add(other.data_compressed);
        self.data_compressed_allocated =
            self.data_compressed_allocated.wrapping_add(other.data_compressed_allocated);
        self.data_compressed_original =
            self.data_compressed_original.wrapping_add(other.data_compressed_original);
        self.omap_allocated = self.omap_allocated.wrapping_add(other.omap_allocated);
        self.internal_metadata = self.internal_metadata.wrapping_add(other.internal_metadata);
    }

    /// Bytes in use: the device less what is free and held back.
    #[must_use]
    pub const fn used(&self) -> u64 {
        self.total.saturating_sub(self.available).saturating_sub(self.internally_reserved)
    }
}

record! {
    /// What a pool holds. The peer's `pool_stat_t`.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    PoolStat "pool_stat_t", compat 5, known 7, |f| 7; {
        /// Objects.
        stats: ObjectStatCollection,
        /// Log entries.
        log_size: i64,
        /// Log entries on disk.
        ondisk_log_size: i64,
        /// Members of up sets.
        up: i32,
        /// Members of acting sets.
        acting: i32,
        /// Space.
        7 => store_stats: StoreStatfs,
        /// OSDs that counted that.
        7 => num_store_stats: u32,
    }
}

impl PoolStat {
    /// Adds all of `other`; what an OSD reports may be any number, so sums wrap.
    pub fn add(&mut self, other: &Self) {
        self.stats.sum.add(&other.stats.sum);
        self.log_size = self.log_size.wrapping_add(other.log_size);
        self.ondisk_log_size = self.ondisk_log_size.wrapping_add(other.ondisk_log_size);
        self.up = self.up.wrapping_add(other.up);
        self.acting = self.acting.wrapping_add(other.acting);
        self.store_stats.add(&other.store_stats);
        self.num_store_stats = self.num_store_stats.wrapping_add(other.num_store_stats);
    }
}
