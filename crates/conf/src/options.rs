//! The options this release knows. Names, types and defaults are the peer's where it has
//! the option; one that is accepted and has no effect yet says so.

/// What a value looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptionKind {
    /// Any text.
    Str,
    /// `true`/`false`, `1`/`0`, `yes`/`no`, `on`/`off`.
    Bool,
    /// A whole number, with sign.
    Int,
    /// A whole number from 0.
    Uint,
    /// Bytes: a number with `K`, `M`, `G`, `T` (times 1024), `Ki`, ..., or `B`.
    Size,
    /// A number.
    Float,
    /// Seconds.
    Secs,
}

impl OptionKind {
    /// The peer's name of the type.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Str => "str",
            Self::Bool => "bool",
            Self::Int => "int",
            Self::Uint => "uint",
            Self::Size => "size",
            Self::Float => "float",
            Self::Secs => "secs",
        }
    }

    /// Whether a value fits.
    ///
    /// # Errors
    /// What would fit.
    pub fn check(self, value: &str) -> Result<(), String> {
        let (fits, wanted) = match self {
            Self::Str => return Ok(()),
            Self::Bool => (parse_bool(value).is_some(), "true or false"),
            Self::Int => (value.parse::<i64>().is_ok(), "a whole number"),
            Self::Uint | Self::Secs => (value.parse::<u64>().is_ok(), "a whole number from 0"),
            Self::Size => (parse_size(value).is_some(), "bytes, for example 4096, 64K, 4G"),
            Self::Float => (value.parse::<f64>().is_ok_and(f64::is_finite), "a number"),
        };
        if fits { Ok(()) } else { Err(format!("'{value}' is not {wanted}")) }
    }
}

pub(crate) fn parse_bool(value: &str) -> Option<bool> {
    match value.to_ascii_lowercase().as_str() {
        "true" | "1" | "yes" | "on" => Some(true),
        "false" | "0" | "no" | "off" => Some(false),
        _ => None,
    }
}

/// Reads `4096`, `64K`, `4GiB`: bytes.
#[must_use]
pub fn parse_size(value: &str) -> Option<u64> {
    let value = value.trim();
    let digits = value.find(|c: char| !c.is_ascii_digit()).unwrap_or(value.len());
    let number: u64 = value[..digits].parse().ok()?;
    let shift = match value[digits..].trim().to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "ki" | "kib" | "kb" => 10,
        "m" | "mi" | "mib" | "mb" => 20,
        "g" | "gi" | "gib" | "gb" => 30,
        "t" | "ti" | "tib" | "tb" => 40,
        "p" | "pi" | "pib" | "pb" => 50,
        _ => return None,
    };
    number.checked_mul(1 << shift)
}

/// One option.
#[derive(Clone, Copy, Debug)]
pub struct OptionSpec {
    /// Its normalized name.
    pub name: &'static str,
    /// Its type.
    pub kind: OptionKind,
    /// Its value when nobody sets it.
    pub default: &'static str,
    /// Whether a running daemon takes a new value at once.
    pub runtime: bool,
    /// What it does.
    pub about: &'static str,
}

impl OptionSpec {
    /// Whether a value fits the type, the bounds and the choices.
    ///
    /// # Errors
    /// A sentence.
    pub fn check(&self, value: &str) -> Result<(), String> {
        self.kind.check(value)?;
        let Some(limit) = crate::limit(self.name) else { return Ok(()) };
        let bytes = if self.kind == Size { parse_size(value) } else { None };
        let value = bytes.map_or_else(|| value.to_owned(), |n| n.to_string());
        limit.check(&value, self.kind != Float)
    }
}

/// The option with this normalized name.
#[must_use]
pub fn option(name: &str) -> Option<&'static OptionSpec> {
    let at = OPTIONS.binary_search_by(|spec| spec.name.cmp(name)).ok()?;
    Some(&OPTIONS[at])
}

const fn opt(
    name: &'static str,
    kind: OptionKind,
    default: &'static str,
    runtime: bool,
    about: &'static str,
) -> OptionSpec {
    OptionSpec { name, kind, default, runtime, about }
}

use OptionKind::{Bool, Float, Int, Secs, Size, Str, Uint};

/// Every option, by name.
pub const OPTIONS: &[OptionSpec] = &[
    opt(
        "admin_socket",
        Str,
        "$run_dir/$cluster-$name.asok",
        false,
        "Unix socket for `ceph daemon`.",
    ),
    opt(
        "auth_allow_insecure_global_id_reclaim",
        Bool,
        "false",
        true,
        "Let old clients take back a global id without proof.",
    ),
    opt(
        "auth_client_required",
        Str,
        "cephx, none",
        false,
        "Methods a client accepts from monitors.",
    ),
    opt("auth_cluster_required", Str, "cephx", false, "Methods between daemons."),
    opt("auth_mon_ticket_ttl", Secs, "259200", true, "Life of a ticket for the monitors."),
    opt("auth_service_cipher", Str, "aes", true, "Type of new service keys: aes or aes256k."),
    opt("auth_service_required", Str, "cephx", false, "Methods daemons accept from clients."),
    opt(
        "auth_service_ticket_ttl",
        Secs,
        "3600",
        true,
        "Life of a ticket for a daemon, and of a service key.",
    ),
    opt(
        "bdev_enable_discard",
        Bool,
        "false",
        false,
        "Tell the device what has become free: a sparse file shrinks.",
    ),
    opt(
        "bluestore_compression_algorithm",
        Str,
        "snappy",
        true,
        "For pools without `compression_algorithm`: snappy, zstd or lz4.",
    ),
    opt("bluestore_compression_max_blob_size", Size, "65536", true, "Bytes compressed as one."),
    opt("bluestore_compression_min_blob_size", Size, "65536", true, "Less is not compressed."),
    opt(
        "bluestore_compression_mode",
        Str,
        "none",
        true,
        "For pools without `compression_mode`: none, passive (what clients hint at), aggressive, force.",
    ),
    opt(
        "bluestore_compression_required_ratio",
        Float,
        "0.875",
        true,
        "Compressed bytes per byte at most, else data stays as it is.",
    ),
    opt(
        "cephx_require_signatures",
        Bool,
        "false",
        false,
        "Turn clients of messenger v1 away that cannot sign messages.",
    ),
    opt("cephx_service_require_signatures", Bool, "false", false, "cephx_require_signatures."),
    opt(
        "cephx_sign_messages",
        Bool,
        "true",
        false,
        "Sign messages of clients by messenger v1 that can, and refuse unsigned ones.",
    ),
    opt("cluster_addr", Str, "", false, "Address for traffic between OSDs."),
    opt(
        "cluster_network",
        Str,
        "",
        false,
        "As `public_network`, for OSDs among each other; by default that.",
    ),
    opt("crush_location", Str, "", false, "Where an OSD stands: `root=default host=a`."),
    opt("debug_mds", Str, "1/5", true, "Log level of the metadata server."),
    opt("debug_mon", Str, "1/5", true, "Log level of the monitor."),
    opt("debug_ms", Str, "0/0", true, "Log level of the messenger."),
    opt("debug_osd", Str, "1/5", true, "Log level of the OSD."),
    opt("fsid", Str, "", false, "The cluster's id."),
    opt("host", Str, "", false, "The host's name; by default what the system says."),
    opt(
        "keyring",
        Str,
        "/etc/ceph/$cluster.$name.keyring,/etc/ceph/$cluster.keyring,/etc/ceph/keyring",
        false,
        "Files with the entity's key; the first that exists.",
    ),
    opt("log_file", Str, "", false, "Where a daemon logs; empty is stderr."),
    opt(
        "mds_bal_fragment_size_max",
        Uint,
        "100000",
        true,
        "Entries of one directory fragment; more are refused.",
    ),
    opt(
        "mds_bal_merge_size",
        Uint,
        "50",
        true,
        "The fragments of a directory with fewer entries are merged.",
    ),
    opt(
        "mds_bal_split_size",
        Uint,
        "10000",
        true,
        "Entries of a directory's fragment beyond which it is split.",
    ),
    opt(
        "mds_beacon_grace",
        Float,
        "15",
        true,
        "Seconds of silence after which a metadata server loses its rank.",
    ),
    opt(
        "mds_beacon_interval",
        Float,
        "4",
        false,
        "Seconds between two beacons of a metadata server.",
    ),
    opt(
        "mds_cache_memory_limit",
        Size,
        "4294967296",
        true,
        "Bytes that a metadata server's inodes may take before it drops what nobody uses.",
    ),
    opt(
        "mds_cap_acquisition_throttle_retry_request_timeout",
        Float,
        "0.5",
        true,
        "Seconds after which a listing that was held back is tried again.",
    ),
    opt(
        "mds_client_prealloc_inos",
        Uint,
        "1000",
        true,
        "Inode numbers that a session holds in advance.",
    ),
    opt(
        "mds_data",
        Str,
        "/var/lib/ceph/mds/$cluster-$id",
        false,
        "A metadata server's directory: its keyring.",
    ),
    opt("mds_join_fs", Str, "", true, "The file system that a metadata server prefers to serve."),
    opt(
        "mds_max_caps_per_client",
        Uint,
        "1048576",
        true,
        "Inodes that a client may hold before it is asked to give some back.",
    ),
    opt(
        "mds_max_purge_files",
        Uint,
        "64",
        true,
        "Files whose objects are being removed at a time.",
    ),
    opt(
        "mds_mon_shutdown_timeout",
        Float,
        "5",
        true,
        "Seconds that a metadata server that ends waits for the monitors to hear it.",
    ),
    opt(
        "mds_op_complaint_time",
        Float,
        "30",
        true,
        "Seconds after which a request in hand counts as blocked.",
    ),
    opt(
        "mds_op_history_duration",
        Uint,
        "600",
        true,
        "Seconds for which requests that ended are kept for dump_historic_ops.",
    ),
    opt(
        "mds_op_history_size",
        Uint,
        "20",
        true,
        "Requests that ended and are kept for dump_historic_ops.",
    ),
    opt(
        "mds_reconnect_timeout",
        Float,
        "45",
        false,
        "Seconds that clients have to come back to a metadata server that takes a rank over.",
    ),
    opt(
        "mds_session_blocklist_on_evict",
        Bool,
        "true",
        false,
        "Clients that are evicted are shut out by the OSDs, too.",
    ),
    opt(
        "mds_session_blocklist_on_timeout",
        Bool,
        "true",
        false,
        "The same for clients that were silent for too long.",
    ),
    opt(
        "mds_session_cap_acquisition_decay_rate",
        Float,
        "30",
        true,
        "Seconds after which half of what listings gave a client counts.",
    ),
    opt(
        "mds_session_cap_acquisition_throttle",
        Uint,
        "100000",
        true,
        "Inodes that listings may give a client lately, while it holds many, before listings are held back.",
    ),
    opt(
        "mds_session_max_caps_throttle_ratio",
        Float,
        "1.1",
        true,
        "Of mds_max_caps_per_client: a client that holds more may be held back.",
    ),
    opt(
        "mgr_data",
        Str,
        "/var/lib/ceph/mgr/$cluster-$id",
        false,
        "A manager's directory: its keyring.",
    ),
    opt("mgr_tick_period", Float, "2", false, "Seconds between two beacons of a manager."),
    opt("mon_allow_pool_delete", Bool, "false", true, "Pools may be removed."),
    opt("mon_allow_pool_size_one", Bool, "false", true, "Pools may have a single replica."),
    opt(
        "mon_cache_target_full_warn_ratio",
        Float,
        "0.66",
        true,
        "How far a cache pool may grow from where it evicts to its target before health warns.",
    ),
    opt("mon_data", Str, "/var/lib/ceph/mon/$cluster-$id", false, "A monitor's directory."),
    opt("mon_host", Str, "", false, "The monitors' addresses."),
    opt("mon_initial_members", Str, "", false, "Names of the first monitors."),
    opt(
        "mon_max_pg_per_osd",
        Uint,
        "250",
        true,
        "PG replicas per OSD above which pools are not created.",
    ),
    opt("mon_max_pool_pg_num", Uint, "65536", true, "Most PGs of one pool."),
    opt(
        "mon_mgr_beacon_grace",
        Float,
        "30",
        true,
        "Seconds of silence after which a manager loses its role or place.",
    ),
    opt(
        "mon_mgr_blocklist_interval",
        Float,
        "86400",
        true,
        "Seconds that a manager which lost its role is shut out for.",
    ),
    opt(
        "mon_min_osdmap_epochs",
        Uint,
        "500",
        true,
        "OSD maps that are kept at least, also when nobody needs them.",
    ),
    opt(
        "mon_osd_auto_mark_auto_out_in",
        Bool,
        "true",
        true,
        "OSDs that the monitor marked out are marked in when they boot.",
    ),
    opt("mon_osd_auto_mark_new_in", Bool, "true", true, "New OSDs are marked in when they boot."),
    opt(
        "mon_osd_down_out_interval",
        Int,
        "600",
        true,
        "After how many seconds a down OSD is marked out; 0 and below is never.",
    ),
    opt(
        "mon_osd_force_trim_to",
        Int,
        "0",
        true,
        "OSD maps before this one are forgotten, whoever needs them: what was written may be lost. 0: none.",
    ),
    opt(
        "mon_osd_min_down_reporters",
        Uint,
        "2",
        true,
        "How many must report an OSD before it is marked down.",
    ),
    opt(
        "mon_osd_min_in_ratio",
        Float,
        "0.75",
        true,
        "Below this part of OSDs in, none is marked out.",
    ),
    opt(
        "mon_osd_min_up_ratio",
        Float,
        "0.3",
        true,
        "Below this part of OSDs up, none is marked down.",
    ),
    opt(
        "mon_osd_prime_pg_temp",
        Bool,
        "true",
        true,
        "PGs that move are served by those that have them, from the epoch on that moves them.",
    ),
    opt("mon_osd_report_timeout", Secs, "900", true, "Silence after which an OSD is marked down."),
    opt(
        "mon_osd_reporter_subtree_level",
        Str,
        "host",
        true,
        "Reports from one bucket of this type count as one.",
    ),
    opt("mon_pg_stuck_threshold", Secs, "60", true, "Seconds after which a PG counts as stuck."),
    opt(
        "mon_target_pg_per_osd",
        Uint,
        "100",
        true,
        "Copies of PGs that each OSD should hold, as the autoscaler sees it.",
    ),
    opt(
        "mon_warn_on_cache_pools_without_hit_sets",
        Bool,
        "true",
        true,
        "Health warns of cache pools that do not record hits.",
    ),
    opt(
        "mon_warn_on_crush_straw_calc_version_zero",
        Bool,
        "true",
        true,
        "Health warns of a CRUSH map with straw_calc_version 0.",
    ),
    opt(
        "mon_warn_on_legacy_crush_tunables",
        Bool,
        "true",
        true,
        "Health warns of CRUSH tunables from before release 0.94.",
    ),
    opt(
        "mon_warn_on_pool_no_app",
        Bool,
        "true",
        true,
        "Health warns of pools without an application.",
    ),
    opt(
        "mon_warn_on_pool_no_redundancy",
        Bool,
        "true",
        true,
        "Health warns of pools with one replica.",
    ),
    opt(
        "mon_warn_on_pool_pg_num_not_power_of_two",
        Bool,
        "true",
        true,
        "Health warns of pools whose pg_num is no power of two.",
    ),
    opt(
        "mon_warn_on_too_few_osds",
        Bool,
        "true",
        true,
        "Health warns of fewer OSDs than replicas.",
    ),
    opt(
        "mon_warn_pg_not_deep_scrubbed_ratio",
        Float,
        "0.75",
        true,
        "Part of osd_deep_scrub_interval beyond it after which a PG is reported; 0 never.",
    ),
    opt(
        "mon_warn_pg_not_scrubbed_ratio",
        Float,
        "0.5",
        true,
        "Part of osd_scrub_max_interval beyond it after which a PG is reported; 0 never.",
    ),
    opt(
        "ms_bind_msgr1",
        Bool,
        "true",
        false,
        "Listen for clients by messenger v1, too, where no mode is `secure` alone.",
    ),
    opt(
        "ms_client_mode",
        Str,
        "crc secure",
        false,
        "Modes of a client's connections to OSDs, by preference.",
    ),
    opt(
        "ms_cluster_mode",
        Str,
        "crc secure",
        false,
        "Modes between OSDs, by preference; those an OSD accepts of another.",
    ),
    opt(
        "ms_mon_client_mode",
        Str,
        "secure crc",
        false,
        "Modes of connections to monitors, by preference.",
    ),
    opt(
        "ms_mon_cluster_mode",
        Str,
        "secure crc",
        true,
        "Modes between monitors, by preference; those a monitor accepts of another.",
    ),
    opt("ms_mon_service_mode", Str, "secure crc", true, "Modes a monitor accepts."),
    opt("ms_service_mode", Str, "crc secure", false, "Modes an OSD accepts at its public address."),
    opt("osd_agent_max_ops", Uint, "4", true, "Objects an OSD flushes or evicts at once."),
    opt(
        "osd_async_recovery_min_cost",
        Uint,
        "100",
        true,
        "Writes or objects that a copy may lack and still act while it is brought up.",
    ),
    opt(
        "osd_beacon_report_interval",
        Secs,
        "300",
        true,
        "Seconds between beacons to the monitors.",
    ),
    opt(
        "osd_class_fuel_max",
        Uint,
        "20000000",
        true,
        "Steps that methods of uploaded object classes may take in one request.",
    ),
    opt(
        "osd_class_load_list",
        Str,
        "cephfs hello journal lock log numops otp rbd refcount rgw rgw_gc timeindex user version \
         cas cmpomap queue 2pc_queue fifo",
        true,
        "Object classes that may be called, or * for all there are; others are EPERM.",
    ),
    opt(
        "osd_class_memory_max",
        Size,
        "16M",
        true,
        "Bytes that a method of an uploaded object class may take for itself, and for its changes and output.",
    ),
    opt(
        "osd_class_update_on_start",
        Bool,
        "true",
        false,
        "An OSD without a device class takes that of its device, hdd or ssd.",
    ),
    opt(
        "osd_client_message_size_cap",
        Size,
        "500M",
        true,
        "Bytes of clients' requests in hand at an OSD; a connection is read while it has less than a quarter of what is free of them. 0 for no bound of its own.",
    ),
    opt(
        "osd_crush_chooseleaf_type",
        Int,
        "1",
        false,
        "Failure domain of the first rule: 0 osd, 1 host.",
    ),
    opt(
        "osd_crush_update_on_start",
        Bool,
        "true",
        false,
        "A starting OSD puts itself where it stands.",
    ),
    opt("osd_data", Str, "/var/lib/ceph/osd/$cluster-$id", false, "An OSD's directory."),
    opt("osd_deep_scrub_interval", Float, "604800", true, "Seconds between deep scrubs of a PG."),
    opt("osd_device_bytes", Size, "12G", false, "Size of the block file made at mkfs."),
    opt(
        "osd_failsafe_full_ratio",
        Float,
        "0.97",
        true,
        "Used part of the device above which no data is taken.",
    ),
    opt("osd_heartbeat_grace", Secs, "20", true, "Silence after which an OSD is reported."),
    opt("osd_heartbeat_interval", Secs, "6", true, "Seconds between heartbeats."),
    opt(
        "osd_journal",
        Str,
        "",
        false,
        "Where mkfs puts the store's log: a file or device; empty for the store's own device; \
         memory for none, which loses acknowledged writes in a crash.",
    ),
    opt("osd_journal_size", Size, "256M", false, "Bytes of the store's log."),
    opt("osd_max_attr_name_len", Uint, "100", true, "Longest name of an attribute."),
    opt(
        "osd_max_backfills",
        Uint,
        "1",
        true,
        "PGs of an OSD that are recovered, and copied, at once, to it and from it each; with \
         osd_mclock_override_recovery_settings.",
    ),
    opt("osd_max_object_size", Size, "128M", true, "Largest object."),
    opt("osd_max_omap_entries_per_request", Uint, "1024", true, "Most omap entries of one answer."),
    opt("osd_max_pg_log_entries", Uint, "2000", true, "Longest log of a PG."),
    opt(
        "osd_max_scrubs",
        Uint,
        "3",
        true,
        "Scrubs that an OSD takes part in at once, for PGs led here and elsewhere each.",
    ),
    opt("osd_max_trimming_pgs", Uint, "2", true, "PGs an OSD trims snapshots of at once."),
    opt("osd_max_write_size", Uint, "90", true, "Largest write, in MiB."),
    opt(
        "osd_mclock_max_sequential_bandwidth_hdd",
        Size,
        "150M",
        true,
        "Bytes a second of a disk that turns; for the profile custom.",
    ),
    opt(
        "osd_mclock_max_sequential_bandwidth_ssd",
        Size,
        "1200M",
        true,
        "Bytes a second of a disk that does not turn; for the profile custom.",
    ),
    opt(
        "osd_mclock_override_recovery_settings",
        Bool,
        "false",
        true,
        "Let osd_max_backfills, osd_recovery_max_active and osd_recovery_sleep count beside the profile.",
    ),
    opt(
        "osd_mclock_profile",
        Str,
        "balanced",
        true,
        "How much recovery may slow clients down: high_client_ops, balanced, high_recovery_ops, custom.",
    ),
    opt(
        "osd_mclock_scheduler_background_recovery_lim",
        Float,
        "0",
        true,
        "Profile custom: most of the disk that recovery takes, 0 to 1; 0 is no limit.",
    ),
    opt(
        "osd_mclock_scheduler_background_recovery_res",
        Float,
        "0",
        true,
        "Profile custom: the part of the disk that recovery always has, 0 to 1.",
    ),
    opt(
        "osd_mclock_scheduler_background_recovery_wgt",
        Uint,
        "1",
        true,
        "Profile custom: recovery's weight beside clients.",
    ),
    opt(
        "osd_mclock_scheduler_client_wgt",
        Uint,
        "1",
        true,
        "Profile custom: the clients' weight beside recovery.",
    ),
    opt("osd_memory_target", Size, "4G", true, "Memory an OSD tries to stay within."),
    opt("osd_min_pg_log_entries", Uint, "250", true, "Shortest log of a PG."),
    opt("osd_mon_report_interval", Secs, "5", true, "Seconds between reports to the monitors."),
    opt("osd_objectstore", Str, "argonaut", false, "The store's engine."),
    opt("osd_op_complaint_time", Float, "30", true, "Seconds after which an operation is slow."),
    opt("osd_op_history_size", Uint, "20", true, "Finished operations kept for dump_historic_ops."),
    opt(
        "osd_pg_log_dups_tracked",
        Uint,
        "3000",
        true,
        "Answered requests a PG remembers beyond its log.",
    ),
    opt("osd_pg_max_concurrent_snap_trims", Uint, "2", true, "Clones that a PG trims at once."),
    opt(
        "osd_pool_default_crush_rule",
        Int,
        "-1",
        true,
        "The CRUSH rule of new replicated pools by its number; -1 is the first that serves.",
    ),
    opt(
        "osd_pool_default_erasure_code_profile",
        Str,
        "plugin=isa technique=reed_sol_van k=2 m=2",
        true,
        "What the erasure code profile 'default' holds when it is made.",
    ),
    opt("osd_pool_default_flag_nodelete", Bool, "false", true, "New pools cannot be removed."),
    opt(
        "osd_pool_default_hit_set_bloom_fpp",
        Float,
        "0.05",
        true,
        "How often the hit sets of new cache pools are wrong.",
    ),
    opt(
        "osd_pool_default_min_size",
        Uint,
        "0",
        true,
        "min_size of new pools; 0 is size - size / 2.",
    ),
    opt("osd_pool_default_pg_autoscale_mode", Str, "on", true, "PG autoscaling of new pools."),
    opt("osd_pool_default_pg_num", Uint, "32", true, "PGs of new pools."),
    opt(
        "osd_pool_default_pgp_num",
        Uint,
        "0",
        true,
        "Placement groups for placement of new pools; 0 is pg_num.",
    ),
    opt("osd_pool_default_size", Uint, "3", true, "Replicas of new pools."),
    opt(
        "osd_recovery_max_active",
        Uint,
        "0",
        true,
        "Objects an OSD recovers at once, with osd_mclock_override_recovery_settings; 0 is chosen.",
    ),
    opt(
        "osd_recovery_max_active_hdd",
        Uint,
        "3",
        true,
        "As osd_recovery_max_active where that is 0, on a disk that turns.",
    ),
    opt(
        "osd_recovery_max_active_ssd",
        Uint,
        "10",
        true,
        "As osd_recovery_max_active where that is 0, on a disk that does not turn.",
    ),
    opt(
        "osd_recovery_sleep",
        Float,
        "0",
        true,
        "Seconds between the begins of two recoveries, with osd_mclock_override_recovery_settings.",
    ),
    opt(
        "osd_recovery_sleep_hdd",
        Float,
        "0.1",
        true,
        "As osd_recovery_sleep where that is 0, on a disk that turns.",
    ),
    opt(
        "osd_recovery_sleep_ssd",
        Float,
        "0",
        true,
        "As osd_recovery_sleep where that is 0, on a disk that does not turn.",
    ),
    opt(
        "osd_scrub_auto_repair",
        Bool,
        "false",
        true,
        "Mend what scrubs find, up to osd_scrub_auto_repair_num_errors.",
    ),
    opt(
        "osd_scrub_auto_repair_num_errors",
        Uint,
        "5",
        true,
        "With more errors than this nothing is mended unasked.",
    ),
    opt(
        "osd_scrub_begin_hour",
        Int,
        "0",
        true,
        "Hour, in UTC, from which scrubs begin; with the same osd_scrub_end_hour always.",
    ),
    opt("osd_scrub_begin_week_day", Int, "0", true, "Day, 0 for Sunday, from which scrubs begin."),
    opt("osd_scrub_chunk_max", Uint, "15", true, "Objects that a deep scrub compares at once."),
    opt(
        "osd_scrub_during_recovery",
        Bool,
        "false",
        true,
        "Begin scrubs while the OSD recovers objects.",
    ),
    opt("osd_scrub_end_hour", Int, "0", true, "Hour, in UTC, from which no scrub begins."),
    opt("osd_scrub_end_week_day", Int, "0", true, "Day from which no scrub begins."),
    opt(
        "osd_scrub_interval_randomize_ratio",
        Float,
        "0.5",
        true,
        "Part of osd_scrub_min_interval over which scrubs are spread.",
    ),
    opt(
        "osd_scrub_load_threshold",
        Float,
        "10",
        true,
        "No scrub begins above this load for each CPU.",
    ),
    opt(
        "osd_scrub_max_interval",
        Float,
        "604800",
        true,
        "Seconds without a scrub after which hours and load do not count.",
    ),
    opt(
        "osd_scrub_max_preemptions",
        Uint,
        "5",
        true,
        "How often writes may end a scrub's chunk before they wait for it.",
    ),
    opt("osd_scrub_min_interval", Float, "86400", true, "Seconds between light scrubs of a PG."),
    opt(
        "osd_scrub_sleep",
        Float,
        "0",
        true,
        "Seconds between the chunks of a scrub that nobody asked for.",
    ),
    opt(
        "osd_shallow_scrub_chunk_max",
        Uint,
        "50",
        true,
        "Objects that a light scrub compares at once.",
    ),
    opt(
        "osd_snap_trim_sleep",
        Float,
        "0",
        true,
        "Seconds between two clones that a PG trims; 0 for no pause.",
    ),
    opt(
        "osd_target_pg_log_bytes_per_osd",
        Size,
        "256M",
        true,
        "Bytes of the logs of all PGs of an OSD together.",
    ),
    opt(
        "osd_target_pg_log_entries_per_osd",
        Uint,
        "300000",
        true,
        "Log entries of all PGs of an OSD together.",
    ),
    opt(
        "osd_tier_default_cache_hit_set_count",
        Uint,
        "4",
        true,
        "Hit sets of `osd tier add-cache`.",
    ),
    opt(
        "osd_tier_default_cache_hit_set_period",
        Secs,
        "1200",
        true,
        "Seconds of a hit set, with `osd tier add-cache`.",
    ),
    opt(
        "osd_tier_default_cache_hit_set_type",
        Str,
        "bloom",
        true,
        "Hit sets of `osd tier add-cache`: bloom, explicit_hash or explicit_object.",
    ),
    opt(
        "osd_tier_default_cache_min_read_recency_for_promote",
        Uint,
        "1",
        true,
        "Hit sets a read object must be in to be promoted, with `osd tier add-cache`.",
    ),
    opt(
        "osd_tier_default_cache_min_write_recency_for_promote",
        Uint,
        "1",
        true,
        "Hit sets a written object must be in to be promoted, with `osd tier add-cache`.",
    ),
    opt("osd_tier_default_cache_mode", Str, "writeback", true, "Mode of `osd tier add-cache`."),
    opt("osd_uuid", Str, "", false, "An OSD's incarnation, at mkfs."),
    opt(
        "paxos_service_trim_min",
        Uint,
        "250",
        true,
        "OSD maps are forgotten so many at a time, at least.",
    ),
    opt("pid_file", Str, "", false, "Where a daemon writes its process id."),
    opt("public_addr", Str, "", false, "Address for clients."),
    opt(
        "public_network",
        Str,
        "",
        false,
        "Networks (192.0.2.0/24) of which a daemon without `public_addr` takes its address.",
    ),
    opt(
        "rgw_pending_bucket_index_op_expiration",
        Uint,
        "120",
        true,
        "Seconds after which an operation on a bucket's index that was announced counts as lost.",
    ),
    opt(
        "rgw_reshardlog_threshold",
        Uint,
        "30000",
        true,
        "Changes to a bucket that is being resharded after which writes to it wait.",
    ),
    opt("run_dir", Str, "/var/run/ceph", false, "Directory of sockets and process ids."),
    opt(
        "target_max_misplaced_ratio",
        Float,
        "0.05",
        true,
        "The most of all copies that may be misplaced for PGs to be moved further.",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    /// What `docs/ops/options.md` says, made of [`OPTIONS`].
    fn page() -> String {
        let mut page = String::from(
            "# Options\n\n\
             Every option that daemons of ours obey, made from `conf/src/options.rs`. Upstream's other options are taken where their value\n\
             fits and have no effect; `ceph config help NAME` says so. *at once*: a change takes effect without a restart.\n\
             Set one by `ceph config set WHO NAME VALUE` (WHO: `global`, `mon`, `osd`, `osd.3`, `mds`, `client`, ...), in `ceph.conf`, or for one\n\
             process by `ceph tell DAEMON config set NAME VALUE`.\n",
        );
        let area = |name: &str| name.split('_').next().unwrap_or_default().to_owned();
        let mut last = String::new();
        for o in OPTIONS {
            if area(o.name) != last {
                last = area(o.name);
                page += &format!(
                    "\n## {last}\n\n| option | type | default | at once | what it is |\n|---|---|---|---|---|\n"
                );
            }
            let default =
                if o.default.is_empty() { String::new() } else { format!("`{}`", o.default) };
            let about = o.about.replace('|', "\\|");
            let runtime = if o.runtime { "yes" } else { "" };
            page += &format!(
                "| `{}` | {} | {default} | {runtime} | {about} |\n",
                o.name,
                o.kind.name()
            );
        }
        page
    }

    /// The page is what the table says. `ARGONAUT_WRITE_DOCS=1` writes it.
    #[test]
    fn page_is_up_to_date() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/ops/options.md");
        if std::env::var_os("ARGONAUT_WRITE_DOCS").is_some() {
            std::fs::write(path, page()).expect("the page can be written");
        }
        let is = std::fs::read_to_string(path).unwrap_or_default();
        assert!(is == page(), "run `ARGONAUT_WRITE_DOCS=1 cargo test -p conf page_is_up_to_date`");
    }

    #[test]
    fn sorted_and_fitting() {
        assert!(OPTIONS.windows(2).all(|w| w[0].name < w[1].name), "binary search needs order");
        for spec in OPTIONS {
            spec.kind.check(spec.default).unwrap_or_else(|why| panic!("{}: {why}", spec.name));
        }
    }

    #[test]
    fn sizes() {
        assert_eq!(parse_size("64K"), Some(65536));
        assert_eq!(parse_size("4GiB"), Some(4 << 30));
        assert_eq!(parse_size("99999999999P"), None);
        assert_eq!(parse_size("4X"), None);
        assert_eq!(parse_size(""), None);
    }
}
