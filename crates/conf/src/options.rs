//! The options that something here obeys. Names, types and defaults are upstream's where it has
//! the option; `known` has its others.

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

/// The option with this normalized name.
#[must_use]
pub fn option(name: &str) -> Option<&'static OptionSpec> {
    let at = OPTIONS.binary_search_by(|spec| spec.name.cmp(name)).ok()?;
    Some(&OPTIONS[at])
}

use crate::kinds::OptionKind;

/// When a change of an option counts.
#[allow(dead_code)]
enum When {
    /// At once.
    Live,
    /// At the daemon's next start.
    Restart,
}

/// Rows of `NAME KIND DEFAULT WHEN ABOUT`, by name. A name is that of the option's key, and in lower case
/// the option's.
macro_rules! options {
    ($($name:ident $kind:ident $default:literal $when:ident $about:literal)*) => {
        /// Every option that something here obeys, by name.
        pub const OPTIONS: &[OptionSpec] = &[$(OptionSpec {
            name: keys::$name.name(),
            kind: OptionKind::$kind,
            default: $default,
            runtime: matches!(When::$when, When::Live),
            about: $about,
        }),*];

        /// The key of each option.
        pub(crate) mod keys {
            use crate::key::{self, Key};

            $(
                #[doc = $about]
                pub const $name: Key<key::$kind> = Key::new(
                    {
                        const NAME: [u8; stringify!($name).len()] = key::lower(stringify!($name));
                        key::text(&NAME)
                    },
                    $default,
                );
            )*
        }
    };
}

options! {
    ADMIN_SOCKET Str "$run_dir/$cluster-$name.asok" Restart "Unix socket for `ceph daemon`."
    AUTH_ALLOW_INSECURE_GLOBAL_ID_RECLAIM Bool "false" Live "Let old clients take back a global id without proof."
    AUTH_CLIENT_REQUIRED Str "cephx, none" Restart "Methods a client accepts from monitors."
    AUTH_CLUSTER_REQUIRED Str "cephx" Restart "Methods between daemons."
    AUTH_MON_TICKET_TTL Secs "259200" Live "Life of a ticket for the monitors."
    AUTH_SERVICE_REQUIRED Str "cephx" Restart "Methods daemons accept from clients."
    AUTH_SERVICE_TICKET_TTL Secs "3600" Live "Life of a ticket for a daemon, and of a service key."
    BDEV_ENABLE_DISCARD Bool "false" Restart "Tell the device what has become free: a sparse file shrinks."
    BLUESTORE_BLOCK_SIZE Size "107374182400" Restart "For `ceph-osd --mkfs`, where `osd_device_bytes` is not set: that."
    BLUESTORE_COMPRESSION_ALGORITHM Str "snappy" Live "For pools without `compression_algorithm`: snappy, zstd or lz4."
    BLUESTORE_COMPRESSION_MAX_BLOB_SIZE Size "65536" Live "Bytes compressed as one."
    BLUESTORE_COMPRESSION_MIN_BLOB_SIZE Size "65536" Live "Less is not compressed."
    BLUESTORE_COMPRESSION_MODE Str "none" Live "For pools without `compression_mode`: none, passive (what clients hint at), aggressive, force."
    BLUESTORE_COMPRESSION_REQUIRED_RATIO Float "0.875" Live "Compressed bytes per byte at most, else data stays as it is."
    CEPHX_REQUIRE_SIGNATURES Bool "false" Restart "Turn clients of messenger v1 away that cannot sign messages."
    CEPHX_SERVICE_REQUIRE_SIGNATURES Bool "false" Restart "cephx_require_signatures."
    CEPHX_SIGN_MESSAGES Bool "true" Restart "Sign messages of clients by messenger v1 that can, and refuse unsigned ones."
    CLUSTER_ADDR Str "" Restart "Address for traffic between OSDs."
    CLUSTER_NETWORK Str "" Restart "As `public_network`, for OSDs among each other; by default that."
    CRUSH_LOCATION Str "" Restart "Where an OSD stands: `root=default host=a`."
    DAEMONIZE Bool "true" Restart "By its name of Ceph's a daemon goes to the background, unless `-f` or `-d` is given."
    DEBUG_MDS Str "1/5" Live "Log level of the metadata server."
    DEBUG_MON Str "1/5" Live "Log level of the monitor."
    DEBUG_MS Str "0/0" Live "Log level of the messenger."
    DEBUG_OSD Str "1/5" Live "Log level of the OSD."
    EXPORTER_ADDR Str "0.0.0.0" Restart "Where `argonaut exporter` listens."
    EXPORTER_HTTP_PORT Int "9926" Restart "Its port."
    EXPORTER_PRIO_LIMIT Int "5" Restart "Least priority of counters that it serves."
    EXPORTER_SOCK_DIR Str "/var/run/ceph/" Restart "Where it looks for daemons' admin sockets."
    EXPORTER_STATS_PERIOD Int "5" Restart "Seconds between two looks at the daemons' counters."
    FSID Str "" Restart "The cluster's id."
    KEY Str "" Restart "With `ceph-osd --mkfs`: the OSD's key."
    KEYRING Str "/etc/ceph/$cluster.$name.keyring,/etc/ceph/$cluster.keyring,/etc/ceph/keyring" Restart "Files with the entity's key; the first that exists."
    LOG_FILE Str "" Restart "Where a daemon logs; empty is stderr."
    LOG_TO_FILE Bool "true" Restart "Log to `log_file`."
    LOG_TO_STDERR Bool "false" Restart "Log to standard error, too."
    MDS_BAL_FRAGMENT_SIZE_MAX Uint "100000" Live "Entries of one directory fragment; more are refused."
    MDS_BAL_MERGE_SIZE Uint "50" Live "The fragments of a directory with fewer entries are merged."
    MDS_BAL_SPLIT_SIZE Uint "10000" Live "Entries of a directory's fragment beyond which it is split."
    MDS_BEACON_GRACE Float "15" Live "Seconds of silence after which a metadata server loses its rank."
    MDS_BEACON_INTERVAL Float "4" Restart "Seconds between two beacons of a metadata server."
    MDS_BEACON_MON_DOWN_GRACE Secs "60" Live "Seconds after an election or with a monitor away for which no metadata server loses its rank for silence."
    MDS_CACHE_MEMORY_LIMIT Size "4294967296" Live "Bytes that a metadata server's inodes may take before it drops what nobody uses."
    MDS_CAP_ACQUISITION_THROTTLE_RETRY_REQUEST_TIMEOUT Float "0.5" Live "Seconds after which a listing that was held back is tried again."
    MDS_CLIENT_PREALLOC_INOS Uint "1000" Live "Inode numbers that a session holds in advance."
    MDS_DATA Str "/var/lib/ceph/mds/$cluster-$id" Restart "A metadata server's directory: its keyring."
    MDS_EARLY_REPLY Bool "true" Live "Changes are answered before they are durable, to the client that asked for them."
    MDS_ENFORCE_UNIQUE_NAME Bool "true" Live "A metadata server that comes up takes the place of an older one of its name."
    MDS_JOIN_FS Str "" Live "The file system that a metadata server prefers to serve."
    MDS_MAX_CAPS_PER_CLIENT Uint "1048576" Live "Inodes that a client may hold before it is asked to give some back."
    MDS_MAX_PURGE_FILES Uint "64" Live "Files whose objects are being removed at a time."
    MDS_MON_SHUTDOWN_TIMEOUT Float "5" Live "Seconds that a metadata server that ends waits for the monitors to hear it."
    MDS_OP_COMPLAINT_TIME Float "30" Live "Seconds after which a request in hand counts as blocked."
    MDS_OP_HISTORY_DURATION Uint "600" Live "Seconds for which requests that ended are kept for dump_historic_ops."
    MDS_OP_HISTORY_SIZE Uint "20" Live "Requests that ended and are kept for dump_historic_ops."
    MDS_RECONNECT_TIMEOUT Float "45" Restart "Seconds that clients have to come back to a metadata server that takes a rank over."
    MDS_SESSION_BLOCKLIST_ON_EVICT Bool "true" Restart "Clients that are evicted are shut out by the OSDs, too."
    MDS_SESSION_CAP_ACQUISITION_DECAY_RATE Float "30" Live "Seconds after which half of what listings gave a client counts."
    MDS_SESSION_CAP_ACQUISITION_THROTTLE Uint "100000" Live "Inodes that listings may give a client lately, while it holds many, before listings are held back."
    MDS_SESSION_MAX_CAPS_THROTTLE_RATIO Float "1.1" Live "Of mds_max_caps_per_client: a client that holds more may be held back."
    MGR_DATA Str "/var/lib/ceph/mgr/$cluster-$id" Restart "A manager's directory: its keyring."
    MGR_TICK_PERIOD Float "2" Restart "Seconds between two beacons of a manager."
    MON_ALLOW_POOL_DELETE Bool "false" Live "Pools may be removed."
    MON_ALLOW_POOL_SIZE_ONE Bool "false" Live "Pools may have a single replica."
    MON_AUTH_ALLOW_INSECURE_KEY Bool "false" Live "Keys of kind aes may be made; unless it is set, while such keys may log in."
    MON_AUTH_EMERGENCY_ALLOWED_CIPHERS Str "" Restart "Kinds of keys that may log in, whatever `mon set auth_allowed_ciphers` said."
    MON_CACHE_TARGET_FULL_WARN_RATIO Float "0.66" Live "How far a cache pool may grow from where it evicts to its target before health warns."
    MON_CLOCK_DRIFT_ALLOWED Float "0.05" Live "Seconds that a monitor's clock may be off before health warns."
    MON_DATA Str "/var/lib/ceph/mon/$cluster-$id" Restart "A monitor's directory."
    MON_DATA_AVAIL_CRIT Int "5" Live "Percent of a monitor's file system that are free, at and below which health says MON_DISK_CRIT."
    MON_DATA_AVAIL_WARN Int "30" Live "The same for MON_DISK_LOW."
    MON_DATA_SIZE_WARN Size "16106127360" Live "Size of a monitor's data from which health warns."
    MON_DEBUG_UNSAFE_ALLOW_TIER_WITH_NONEMPTY_SNAPS Bool "false" Live "`osd tier add --force-nonempty` takes a pool with snapshots, too."
    MON_HOST Str "" Restart "The monitors' addresses."
    MON_INITIAL_MEMBERS Str "" Restart "Names of the first monitors."
    MON_MAX_OSD Int "10000" Live "The most that `osd setmaxosd` takes."
    MON_MAX_PG_PER_OSD Uint "250" Live "PG replicas per OSD above which pools are not created."
    MON_MAX_POOL_PG_NUM Uint "65536" Live "Most PGs of one pool."
    MON_MDS_BLOCKLIST_INTERVAL Float "86400" Live "Seconds for which a metadata server that lost its rank is shut out by the OSDs."
    MON_MGR_BEACON_GRACE Float "30" Live "Seconds of silence after which a manager loses its role or place."
    MON_MGR_BLOCKLIST_INTERVAL Float "86400" Live "Seconds that a manager which lost its role is shut out for."
    MON_MIN_OSDMAP_EPOCHS Uint "500" Live "OSD maps that are kept at least, also when nobody needs them."
    MON_OSD_AUTO_MARK_AUTO_OUT_IN Bool "true" Live "OSDs that the monitor marked out are marked in when they boot."
    MON_OSD_AUTO_MARK_NEW_IN Bool "true" Live "New OSDs are marked in when they boot."
    MON_OSD_DOWN_OUT_INTERVAL Int "600" Live "After how many seconds a down OSD is marked out; 0 and below is never."
    MON_OSD_FORCE_TRIM_TO Int "0" Live "OSD maps before this one are forgotten, whoever needs them: what was written may be lost. 0: none."
    MON_OSD_MIN_DOWN_REPORTERS Uint "2" Live "How many must report an OSD before it is marked down."
    MON_OSD_MIN_IN_RATIO Float "0.75" Live "Below this part of OSDs in, none is marked out."
    MON_OSD_MIN_UP_RATIO Float "0.3" Live "Below this part of OSDs up, none is marked down."
    MON_OSD_PRIME_PG_TEMP Bool "true" Live "PGs that move are served by those that have them, from the epoch on that moves them."
    MON_OSD_REPORT_TIMEOUT Secs "900" Live "Silence after which an OSD is marked down."
    MON_OSD_REPORTER_SUBTREE_LEVEL Str "host" Live "Reports from one bucket of this type count as one."
    MON_OSD_SNAP_TRIM_QUEUE_WARN_ON Int "32768" Live "Snapshots that wait to be trimmed in a PG, from which health warns."
    MON_OSD_WARN_NUM_REPAIRED Uint "10" Live "Repaired reads of an OSD above which health warns."
    MON_PG_STUCK_THRESHOLD Secs "60" Live "Seconds after which a PG counts as stuck."
    MON_PG_WARN_MAX_OBJECT_SKEW Float "10" Live "Health warns of pools with so many times the average of objects in each PG; 0 never."
    MON_PG_WARN_MIN_OBJECTS Int "10000" Live "In clusters of fewer objects it does not."
    MON_PG_WARN_MIN_POOL_OBJECTS Int "1000" Live "Of pools with fewer objects it does not."
    MON_POOL_QUOTA_CRIT_THRESHOLD Int "0" Live "Percent of a quota from which health says POOL_FULL; 0 never."
    MON_POOL_QUOTA_WARN_THRESHOLD Int "0" Live "Percent of a quota from which health says POOL_NEAR_FULL; 0 never."
    MON_REWEIGHT_MAX_CHANGE Float "0.05" Live "The most by which `osd reweight-by-utilization` changes a weight."
    MON_TARGET_PG_PER_OSD Uint "100" Live "Copies of PGs that each OSD should hold, as the autoscaler sees it."
    MON_WARN_ON_CACHE_POOLS_WITHOUT_HIT_SETS Bool "true" Live "Health warns of cache pools that do not record hits."
    MON_WARN_ON_CRUSH_STRAW_CALC_VERSION_ZERO Bool "true" Live "Health warns of a CRUSH map with straw_calc_version 0."
    MON_WARN_ON_LEGACY_CRUSH_TUNABLES Bool "true" Live "Health warns of CRUSH tunables from before release 0.94."
    MON_WARN_ON_MISPLACED Bool "false" Live "Health warns of misplaced objects."
    MON_WARN_ON_OSD_DOWN_OUT_INTERVAL_ZERO Bool "true" Live "Health warns where OSDs that are down are never marked out (mon_osd_down_out_interval 0)."
    MON_WARN_ON_POOL_NO_APP Bool "true" Live "Health warns of pools without an application."
    MON_WARN_ON_POOL_NO_REDUNDANCY Bool "true" Live "Health warns of pools with one replica."
    MON_WARN_ON_POOL_PG_NUM_NOT_POWER_OF_TWO Bool "true" Live "Health warns of pools whose pg_num is no power of two."
    MON_WARN_ON_SLOW_PING_RATIO Float "0.05" Live "Part of osd_heartbeat_grace from which a heartbeat's way there and back is told as slow."
    MON_WARN_ON_SLOW_PING_TIME Float "0" Live "The same in milliseconds; 0 leaves it to the ratio."
    MON_WARN_ON_TOO_FEW_OSDS Bool "true" Live "Health warns of fewer OSDs than replicas."
    MON_WARN_PG_NOT_DEEP_SCRUBBED_RATIO Float "0.75" Live "Part of osd_deep_scrub_interval beyond it after which a PG is reported; 0 never."
    MON_WARN_PG_NOT_SCRUBBED_RATIO Float "0.5" Live "Part of osd_scrub_max_interval beyond it after which a PG is reported; 0 never."
    MONMAP Str "" Restart "With `ceph-mon --mkfs` and `ceph-osd --mkfs`: a file with the monitor map."
    MS_BIND_MSGR1 Bool "true" Restart "Listen for clients by messenger v1, too, where no mode is `secure` alone."
    MS_CLIENT_MODE Str "crc secure" Restart "Modes of a client's connections to OSDs, by preference."
    MS_CLUSTER_MODE Str "crc secure" Restart "Modes between OSDs, by preference; those an OSD accepts of another."
    MS_MON_CLIENT_MODE Str "secure crc" Restart "Modes of connections to monitors, by preference."
    MS_MON_CLUSTER_MODE Str "secure crc" Live "Modes between monitors, by preference; those a monitor accepts of another."
    MS_MON_SERVICE_MODE Str "secure crc" Live "Modes a monitor accepts."
    MS_SERVICE_MODE Str "crc secure" Restart "Modes an OSD accepts at its public address."
    OSD_AGENT_MAX_OPS Uint "4" Live "Objects an OSD flushes or evicts at once."
    OSD_ASYNC_RECOVERY_MIN_COST Uint "100" Live "Writes or objects that a copy may lack and still act while it is brought up."
    OSD_BEACON_REPORT_INTERVAL Secs "300" Live "Seconds between beacons to the monitors."
    OSD_CLASS_FUEL_MAX Uint "20000000" Live "Steps that methods of uploaded object classes may take in one request."
    OSD_CLASS_LOAD_LIST Str "cephfs hello journal lock log numops otp rbd refcount rgw rgw_gc timeindex user version cas cmpomap queue 2pc_queue fifo sem_set" Live "Object classes that may be called, or * for all there are; others are EPERM."
    OSD_CLASS_MEMORY_MAX Size "16M" Live "Bytes that a method of an uploaded object class may take for itself, and for its changes and output."
    OSD_CLASS_UPDATE_ON_START Bool "true" Restart "An OSD without a device class takes that of its device, hdd or ssd."
    OSD_CLIENT_MESSAGE_SIZE_CAP Size "500M" Live "Bytes of clients' requests in hand at an OSD; a connection is read while it has less than a quarter of what is free of them. 0 for no bound of its own."
    OSD_CRUSH_CHOOSELEAF_TYPE Int "1" Restart "Failure domain of the first rule: 0 osd, 1 host."
    OSD_CRUSH_UPDATE_ON_START Bool "true" Restart "A starting OSD puts itself where it stands."
    OSD_DATA Str "/var/lib/ceph/osd/$cluster-$id" Restart "An OSD's directory."
    OSD_DEEP_SCRUB_INTERVAL Float "604800" Live "Seconds between deep scrubs of a PG."
    OSD_DEVICE_BYTES Size "12G" Restart "Size of the block file made at mkfs."
    OSD_FAILSAFE_FULL_RATIO Float "0.97" Live "Used part of the device above which no data is taken."
    OSD_HEARTBEAT_GRACE Secs "20" Live "Silence after which an OSD is reported."
    OSD_HEARTBEAT_INTERVAL Secs "6" Live "Seconds between heartbeats."
    OSD_JOURNAL Str "" Restart "Where mkfs puts the store's log: a file or device; empty for the store's own device; memory for none, which loses acknowledged writes in a crash."
    OSD_JOURNAL_SIZE Size "256M" Restart "Bytes of the store's log."
    OSD_MAX_ATTR_NAME_LEN Uint "100" Live "Longest name of an attribute."
    OSD_MAX_BACKFILLS Uint "1" Live "PGs of an OSD that are recovered, and copied, at once, to it and from it each; with osd_mclock_override_recovery_settings."
    OSD_MAX_OBJECT_SIZE Size "128M" Live "Largest object."
    OSD_MAX_OMAP_ENTRIES_PER_REQUEST Uint "1024" Live "Most omap entries of one answer."
    OSD_MAX_PG_LOG_ENTRIES Uint "2000" Live "Longest log of a PG."
    OSD_MAX_SCRUBS Uint "3" Live "Scrubs that an OSD takes part in at once, for PGs led here and elsewhere each."
    OSD_MAX_TRIMMING_PGS Uint "2" Live "PGs an OSD trims snapshots of at once."
    OSD_MAX_WRITE_SIZE Uint "90" Live "Largest write, in MiB."
    OSD_MCLOCK_MAX_SEQUENTIAL_BANDWIDTH_HDD Size "150M" Live "Bytes a second of a disk that turns; for the profile custom."
    OSD_MCLOCK_MAX_SEQUENTIAL_BANDWIDTH_SSD Size "1200M" Live "Bytes a second of a disk that does not turn; for the profile custom."
    OSD_MCLOCK_OVERRIDE_RECOVERY_SETTINGS Bool "false" Live "Let osd_max_backfills, osd_recovery_max_active and osd_recovery_sleep count beside the profile."
    OSD_MCLOCK_PROFILE Str "balanced" Live "How much recovery may slow clients down: high_client_ops, balanced, high_recovery_ops, custom."
    OSD_MCLOCK_SCHEDULER_BACKGROUND_RECOVERY_LIM Float "0" Live "Profile custom: most of the disk that recovery takes, 0 to 1; 0 is no limit."
    OSD_MCLOCK_SCHEDULER_BACKGROUND_RECOVERY_RES Float "0" Live "Profile custom: the part of the disk that recovery always has, 0 to 1."
    OSD_MCLOCK_SCHEDULER_BACKGROUND_RECOVERY_WGT Uint "1" Live "Profile custom: recovery's weight beside clients."
    OSD_MCLOCK_SCHEDULER_CLIENT_WGT Uint "1" Live "Profile custom: the clients' weight beside recovery."
    OSD_MEMORY_TARGET Size "4G" Live "Memory an OSD tries to stay within."
    OSD_MIN_PG_LOG_ENTRIES Uint "250" Live "Shortest log of a PG."
    OSD_OBJECTSTORE Str "bluestore" Restart "The store's engine."
    OSD_OP_COMPLAINT_TIME Float "30" Live "Seconds after which an operation is slow."
    OSD_OP_HISTORY_SIZE Uint "20" Live "Finished operations kept for dump_historic_ops."
    OSD_PG_LOG_DUPS_TRACKED Uint "3000" Live "Answered requests a PG remembers beyond its log."
    OSD_PG_MAX_CONCURRENT_SNAP_TRIMS Uint "2" Live "Clones that a PG trims at once."
    OSD_POOL_DEFAULT_CRUSH_RULE Int "-1" Live "The CRUSH rule of new replicated pools by its number; -1 is the first that serves."
    OSD_POOL_DEFAULT_EC_FAST_READ Bool "false" Live "New erasure coded pools read from all shards and take the first that suffice."
    OSD_POOL_DEFAULT_ERASURE_CODE_PROFILE Str "plugin=isa technique=reed_sol_van k=2 m=2" Live "What the erasure code profile 'default' holds when it is made."
    OSD_POOL_DEFAULT_FLAG_NODELETE Bool "false" Live "New pools cannot be removed."
    OSD_POOL_DEFAULT_HIT_SET_BLOOM_FPP Float "0.05" Live "How often the hit sets of new cache pools are wrong."
    OSD_POOL_DEFAULT_MIN_SIZE Uint "0" Live "min_size of new pools; 0 is size - size / 2."
    OSD_POOL_DEFAULT_PG_AUTOSCALE_MODE Str "on" Live "PG autoscaling of new pools."
    OSD_POOL_DEFAULT_PG_NUM Uint "32" Live "PGs of new pools."
    OSD_POOL_DEFAULT_PGP_NUM Uint "0" Live "Placement groups for placement of new pools; 0 is pg_num."
    OSD_POOL_DEFAULT_SIZE Uint "3" Live "Replicas of new pools."
    OSD_POOL_ERASURE_CODE_STRIPE_UNIT Size "4096" Live "Bytes of a chunk in new pools whose profile has no stripe_unit."
    OSD_RECOVERY_MAX_ACTIVE Uint "0" Live "Objects an OSD recovers at once, with osd_mclock_override_recovery_settings; 0 is chosen."
    OSD_RECOVERY_MAX_ACTIVE_HDD Uint "3" Live "As osd_recovery_max_active where that is 0, on a disk that turns."
    OSD_RECOVERY_MAX_ACTIVE_SSD Uint "10" Live "As osd_recovery_max_active where that is 0, on a disk that does not turn."
    OSD_RECOVERY_SLEEP Float "0" Live "Seconds between the begins of two recoveries, with osd_mclock_override_recovery_settings."
    OSD_RECOVERY_SLEEP_HDD Float "0.1" Live "As osd_recovery_sleep where that is 0, on a disk that turns."
    OSD_RECOVERY_SLEEP_SSD Float "0" Live "As osd_recovery_sleep where that is 0, on a disk that does not turn."
    OSD_SCRUB_AUTO_REPAIR Bool "false" Live "Mend what scrubs find, up to osd_scrub_auto_repair_num_errors."
    OSD_SCRUB_AUTO_REPAIR_NUM_ERRORS Uint "5" Live "With more errors than this nothing is mended unasked."
    OSD_SCRUB_BEGIN_HOUR Int "0" Live "Hour, in UTC, from which scrubs begin; with the same osd_scrub_end_hour always."
    OSD_SCRUB_BEGIN_WEEK_DAY Int "0" Live "Day, 0 for Sunday, from which scrubs begin."
    OSD_SCRUB_CHUNK_MAX Uint "15" Live "Objects that a deep scrub compares at once."
    OSD_SCRUB_DURING_RECOVERY Bool "false" Live "Begin scrubs while the OSD recovers objects."
    OSD_SCRUB_END_HOUR Int "0" Live "Hour, in UTC, from which no scrub begins."
    OSD_SCRUB_END_WEEK_DAY Int "0" Live "Day from which no scrub begins."
    OSD_SCRUB_INTERVAL_RANDOMIZE_RATIO Float "0.5" Live "Part of osd_scrub_min_interval over which scrubs are spread."
    OSD_SCRUB_LOAD_THRESHOLD Float "10" Live "No scrub begins above this load for each CPU."
    OSD_SCRUB_MAX_INTERVAL Float "604800" Live "Seconds without a scrub after which hours and load do not count."
    OSD_SCRUB_MAX_PREEMPTIONS Uint "5" Live "How often writes may end a scrub's chunk before they wait for it."
    OSD_SCRUB_MIN_INTERVAL Float "86400" Live "Seconds between light scrubs of a PG."
    OSD_SCRUB_SLEEP Float "0" Live "Seconds between the chunks of a scrub that nobody asked for."
    OSD_SHALLOW_SCRUB_CHUNK_MAX Uint "50" Live "Objects that a light scrub compares at once."
    OSD_SNAP_TRIM_SLEEP Float "0" Live "Seconds between two clones that a PG trims; 0 for no pause."
    OSD_TARGET_PG_LOG_BYTES_PER_OSD Size "256M" Live "Bytes of the logs of all PGs of an OSD together."
    OSD_TARGET_PG_LOG_ENTRIES_PER_OSD Uint "300000" Live "Log entries of all PGs of an OSD together."
    OSD_TIER_DEFAULT_CACHE_HIT_SET_COUNT Uint "4" Live "Hit sets of `osd tier add-cache`."
    OSD_TIER_DEFAULT_CACHE_HIT_SET_GRADE_DECAY_RATE Uint "20" Live "By how many percent a hit set counts less than the next newer one, with `osd tier add-cache`."
    OSD_TIER_DEFAULT_CACHE_HIT_SET_PERIOD Secs "1200" Live "Seconds of a hit set, with `osd tier add-cache`."
    OSD_TIER_DEFAULT_CACHE_HIT_SET_SEARCH_LAST_N Uint "1" Live "Hit sets that are asked for an object's temperature, with `osd tier add-cache`."
    OSD_TIER_DEFAULT_CACHE_HIT_SET_TYPE Str "bloom" Live "Hit sets of `osd tier add-cache`: bloom, explicit_hash or explicit_object."
    OSD_TIER_DEFAULT_CACHE_MIN_READ_RECENCY_FOR_PROMOTE Uint "1" Live "Hit sets a read object must be in to be promoted, with `osd tier add-cache`."
    OSD_TIER_DEFAULT_CACHE_MIN_WRITE_RECENCY_FOR_PROMOTE Uint "1" Live "Hit sets a written object must be in to be promoted, with `osd tier add-cache`."
    OSD_TIER_DEFAULT_CACHE_MODE Str "writeback" Live "Mode of `osd tier add-cache`."
    OSD_UUID Str "" Restart "An OSD's incarnation, at mkfs."
    PAXOS_SERVICE_TRIM_MIN Uint "250" Live "OSD maps are forgotten so many at a time, at least."
    PID_FILE Str "" Restart "Where a daemon writes its process id."
    PUBLIC_ADDR Str "" Restart "Address for clients."
    PUBLIC_BIND_ADDR Str "" Restart "Where a monitor listens in place of its address in the monitor map."
    PUBLIC_NETWORK Str "" Restart "Networks (192.0.2.0/24) of which a daemon without `public_addr` takes its address."
    RGW_ADMIN_ENTRY Str "admin" Restart "First part of the paths of the Admin API."
    RGW_ALLOW_NOTIFICATION_SECRETS_IN_CLEARTEXT Bool "false" Restart "Topics with a user and a password are set and shown by plain HTTP, too."
    RGW_CACHE_ENABLED Bool "true" Restart "A gateway keeps users, buckets and other small objects, and watches for their changes."
    RGW_CRYPT_DEFAULT_ENCRYPTION_KEY Str "" Restart "Master key of objects that nothing else encrypts: 32 bytes in base64."
    RGW_CRYPT_REQUIRE_SSL Bool "true" Restart "Clients send keys of their own by TLS only."
    RGW_CRYPT_S3_KMS_BACKEND Str "barbican" Restart "Where master keys of objects are: of testing alone they are read, from rgw_crypt_s3_kms_encryption_keys."
    RGW_CRYPT_S3_KMS_ENCRYPTION_KEYS Str "" Restart "Master keys of objects: ID=BASE64, 32 bytes each."
    RGW_DNS_NAME Str "" Restart "Host name whose names below it are buckets."
    RGW_DNS_S3WEBSITE_NAME Str "" Restart "Host name whose names below it are buckets that are shown as websites."
    RGW_ENABLE_APIS Str "s3, s3website, swift, swift_auth, admin, sts, iam, notifications" Restart "Which APIs are served: of s3website, swift, swift_auth, admin and notifications those that it has; S3 always."
    RGW_ENABLE_GC_THREADS Bool "true" Restart "A gateway removes the data of deleted objects."
    RGW_ENABLE_LC_THREADS Bool "true" Restart "A gateway carries lifecycle rules out."
    RGW_ENABLE_OPS_LOG Bool "false" Restart "Write a line for each request."
    RGW_ENABLE_STATIC_WEBSITE Bool "false" Restart "Buckets may be websites: ?website sets them, names below rgw_dns_s3website_name show them."
    RGW_ENABLE_USAGE_LOG Bool "false" Restart "Count requests and bytes of users."
    RGW_FRONTENDS Str "beast port=7480" Restart "Where a gateway listens: endpoint=, port=, ssl_endpoint=, ssl_port=, ssl_certificate=, ssl_private_key=."
    RGW_GC_PROCESSOR_PERIOD Int "3600" Restart "Seconds between removals of deleted objects' data."
    RGW_LC_DEBUG_INTERVAL Int "-1" Restart "Length of a day of lifecycle rules, in seconds, for tests."
    RGW_LIFECYCLE_WORK_TIME Str "00:00-06:00" Restart "When lifecycle rules are carried out, HH:MM-HH:MM."
    RGW_MULTIPART_MIN_PART_SIZE Size "5M" Restart "Least size of a part of an upload, but for the last."
    RGW_OBJEXP_GC_INTERVAL Uint "600" Restart "Seconds between removals of objects that end at a time of their own (X-Delete-At)."
    RGW_OPS_LOG_FILE_PATH Str "/var/log/ceph/ops-log-$cluster-$name.log" Restart "Where the line for each request goes."
    RGW_PENDING_BUCKET_INDEX_OP_EXPIRATION Uint "120" Live "Seconds after which an operation on a bucket's index that was announced counts as lost."
    RGW_RESHARDLOG_THRESHOLD Uint "30000" Live "Changes to a bucket that is being resharded after which writes to it wait."
    RGW_S3_AUTH_USE_STS Bool "false" Restart "A gateway gives and takes temporary keys of roles and users."
    RGW_STS_KEY Str "" Restart "What session tokens are sealed with: 16 characters or more, the same at all gateways."
    RGW_SWIFT_ACCOUNT_IN_URL Bool "false" Restart "The paths of Swift name the account: /swift/v1/AUTH_UID."
    RGW_SWIFT_AUTH_ENTRY Str "auth" Restart "First part of the paths of Swift's logins."
    RGW_SWIFT_NEED_STATS Bool "true" Restart "Lists of Swift's containers count what each holds."
    RGW_SWIFT_TOKEN_EXPIRATION Int "86400" Restart "Seconds that a token of Swift holds."
    RGW_SWIFT_URL Str "" Restart "What a login of Swift answers before the prefix; empty: the host that was asked."
    RGW_SWIFT_URL_PREFIX Str "swift" Restart "First part of the paths of Swift; / for none."
    RGW_SWIFT_VERSIONING_ENABLED Bool "false" Restart "Writes to Swift's containers with X-Versions-Location are refused rather than done without versions."
    RGW_TOPIC_PERSISTENCY_MAX_RETRIES Uint "0" Restart "How often an event of a persistent topic is tried again; 0 for no bound."
    RGW_TOPIC_PERSISTENCY_SLEEP_DURATION Uint "0" Restart "Seconds between two tries of an event."
    RGW_TOPIC_PERSISTENCY_TIME_TO_LIVE Uint "0" Restart "Seconds that an event of a persistent topic waits; 0 for no bound."
    RGW_TOPIC_REQUIRE_PUBLISH_POLICY Bool "false" Restart "Buckets of others publish to a topic by its policy alone."
    RGW_USAGE_LOG_TICK_INTERVAL Int "30" Restart "Seconds between writes of the usage log."
    RGW_ZONE Str "" Restart "Zone that a gateway serves; empty: the default."
    RUN_DIR Str "/var/run/ceph" Restart "Directory of sockets and process ids."
    SETGROUP Str "" Restart "By its name of Ceph's a daemon that root starts becomes this group."
    SETUSER Str "" Restart "By its name of Ceph's a daemon that root starts becomes this user."
    SETUSER_MATCH_PATH Str "" Restart "Only where this path is theirs, a daemon becomes another user and group."
    TARGET_MAX_MISPLACED_RATIO Float "0.05" Live "The most of all copies that may be misplaced for PGs to be moved further."
}

#[cfg(test)]
mod tests;
