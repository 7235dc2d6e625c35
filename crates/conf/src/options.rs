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

/// Rows of `NAME KIND DEFAULT WHEN ABOUT`, by name.
macro_rules! options {
    ($($name:ident $kind:ident $default:literal $when:ident $about:literal)*) => {
        /// Every option that something here obeys, by name.
        pub const OPTIONS: &[OptionSpec] = &[$(OptionSpec {
            name: stringify!($name),
            kind: OptionKind::$kind,
            default: $default,
            runtime: matches!(When::$when, When::Live),
            about: $about,
        }),*];
    };
}

options! {
    admin_socket Str "$run_dir/$cluster-$name.asok" Restart "Unix socket for `ceph daemon`."
    auth_allow_insecure_global_id_reclaim Bool "false" Live "Let old clients take back a global id without proof."
    auth_client_required Str "cephx, none" Restart "Methods a client accepts from monitors."
    auth_cluster_required Str "cephx" Restart "Methods between daemons."
    auth_mon_ticket_ttl Secs "259200" Live "Life of a ticket for the monitors."
    auth_service_cipher Str "aes" Live "Type of new service keys: aes or aes256k."
    auth_service_required Str "cephx" Restart "Methods daemons accept from clients."
    auth_service_ticket_ttl Secs "3600" Live "Life of a ticket for a daemon, and of a service key."
    bdev_enable_discard Bool "false" Restart "Tell the device what has become free: a sparse file shrinks."
    bluestore_compression_algorithm Str "snappy" Live "For pools without `compression_algorithm`: snappy, zstd or lz4."
    bluestore_compression_max_blob_size Size "65536" Live "Bytes compressed as one."
    bluestore_compression_min_blob_size Size "65536" Live "Less is not compressed."
    bluestore_compression_mode Str "none" Live "For pools without `compression_mode`: none, passive (what clients hint at), aggressive, force."
    bluestore_compression_required_ratio Float "0.875" Live "Compressed bytes per byte at most, else data stays as it is."
    cephx_require_signatures Bool "false" Restart "Turn clients of messenger v1 away that cannot sign messages."
    cephx_service_require_signatures Bool "false" Restart "cephx_require_signatures."
    cephx_sign_messages Bool "true" Restart "Sign messages of clients by messenger v1 that can, and refuse unsigned ones."
    cluster_addr Str "" Restart "Address for traffic between OSDs."
    cluster_network Str "" Restart "As `public_network`, for OSDs among each other; by default that."
    crush_location Str "" Restart "Where an OSD stands: `root=default host=a`."
    debug_mds Str "1/5" Live "Log level of the metadata server."
    debug_mon Str "1/5" Live "Log level of the monitor."
    debug_ms Str "0/0" Live "Log level of the messenger."
    debug_osd Str "1/5" Live "Log level of the OSD."
    exporter_addr Str "0.0.0.0" Restart "Where `argonaut exporter` listens."
    exporter_http_port Int "9926" Restart "Its port."
    exporter_prio_limit Int "5" Restart "Least priority of counters that it serves."
    exporter_sock_dir Str "/var/run/ceph/" Restart "Where it looks for daemons' admin sockets."
    exporter_stats_period Int "5" Restart "Seconds between two looks at the daemons' counters."
    fsid Str "" Restart "The cluster's id."
    host Str "" Restart "The host's name; by default what the system says."
    keyring Str "/etc/ceph/$cluster.$name.keyring,/etc/ceph/$cluster.keyring,/etc/ceph/keyring" Restart "Files with the entity's key; the first that exists."
    log_file Str "" Restart "Where a daemon logs; empty is stderr."
    mds_bal_fragment_size_max Uint "100000" Live "Entries of one directory fragment; more are refused."
    mds_bal_merge_size Uint "50" Live "The fragments of a directory with fewer entries are merged."
    mds_bal_split_size Uint "10000" Live "Entries of a directory's fragment beyond which it is split."
    mds_beacon_grace Float "15" Live "Seconds of silence after which a metadata server loses its rank."
    mds_beacon_interval Float "4" Restart "Seconds between two beacons of a metadata server."
    mds_cache_memory_limit Size "4294967296" Live "Bytes that a metadata server's inodes may take before it drops what nobody uses."
    mds_cap_acquisition_throttle_retry_request_timeout Float "0.5" Live "Seconds after which a listing that was held back is tried again."
    mds_client_prealloc_inos Uint "1000" Live "Inode numbers that a session holds in advance."
    mds_data Str "/var/lib/ceph/mds/$cluster-$id" Restart "A metadata server's directory: its keyring."
    mds_join_fs Str "" Live "The file system that a metadata server prefers to serve."
    mds_max_caps_per_client Uint "1048576" Live "Inodes that a client may hold before it is asked to give some back."
    mds_max_purge_files Uint "64" Live "Files whose objects are being removed at a time."
    mds_mon_shutdown_timeout Float "5" Live "Seconds that a metadata server that ends waits for the monitors to hear it."
    mds_op_complaint_time Float "30" Live "Seconds after which a request in hand counts as blocked."
    mds_op_history_duration Uint "600" Live "Seconds for which requests that ended are kept for dump_historic_ops."
    mds_op_history_size Uint "20" Live "Requests that ended and are kept for dump_historic_ops."
    mds_reconnect_timeout Float "45" Restart "Seconds that clients have to come back to a metadata server that takes a rank over."
    mds_session_blocklist_on_evict Bool "true" Restart "Clients that are evicted are shut out by the OSDs, too."
    mds_session_blocklist_on_timeout Bool "true" Restart "The same for clients that were silent for too long."
    mds_session_cap_acquisition_decay_rate Float "30" Live "Seconds after which half of what listings gave a client counts."
    mds_session_cap_acquisition_throttle Uint "100000" Live "Inodes that listings may give a client lately, while it holds many, before listings are held back."
    mds_session_max_caps_throttle_ratio Float "1.1" Live "Of mds_max_caps_per_client: a client that holds more may be held back."
    mgr_data Str "/var/lib/ceph/mgr/$cluster-$id" Restart "A manager's directory: its keyring."
    mgr_tick_period Float "2" Restart "Seconds between two beacons of a manager."
    mon_allow_pool_delete Bool "false" Live "Pools may be removed."
    mon_allow_pool_size_one Bool "false" Live "Pools may have a single replica."
    mon_cache_target_full_warn_ratio Float "0.66" Live "How far a cache pool may grow from where it evicts to its target before health warns."
    mon_data Str "/var/lib/ceph/mon/$cluster-$id" Restart "A monitor's directory."
    mon_host Str "" Restart "The monitors' addresses."
    mon_initial_members Str "" Restart "Names of the first monitors."
    mon_max_pg_per_osd Uint "250" Live "PG replicas per OSD above which pools are not created."
    mon_max_pool_pg_num Uint "65536" Live "Most PGs of one pool."
    mon_mgr_beacon_grace Float "30" Live "Seconds of silence after which a manager loses its role or place."
    mon_mgr_blocklist_interval Float "86400" Live "Seconds that a manager which lost its role is shut out for."
    mon_min_osdmap_epochs Uint "500" Live "OSD maps that are kept at least, also when nobody needs them."
    mon_osd_auto_mark_auto_out_in Bool "true" Live "OSDs that the monitor marked out are marked in when they boot."
    mon_osd_auto_mark_new_in Bool "true" Live "New OSDs are marked in when they boot."
    mon_osd_down_out_interval Int "600" Live "After how many seconds a down OSD is marked out; 0 and below is never."
    mon_osd_force_trim_to Int "0" Live "OSD maps before this one are forgotten, whoever needs them: what was written may be lost. 0: none."
    mon_osd_min_down_reporters Uint "2" Live "How many must report an OSD before it is marked down."
    mon_osd_min_in_ratio Float "0.75" Live "Below this part of OSDs in, none is marked out."
    mon_osd_min_up_ratio Float "0.3" Live "Below this part of OSDs up, none is marked down."
    mon_osd_prime_pg_temp Bool "true" Live "PGs that move are served by those that have them, from the epoch on that moves them."
    mon_osd_report_timeout Secs "900" Live "Silence after which an OSD is marked down."
    mon_osd_reporter_subtree_level Str "host" Live "Reports from one bucket of this type count as one."
    mon_pg_stuck_threshold Secs "60" Live "Seconds after which a PG counts as stuck."
    mon_target_pg_per_osd Uint "100" Live "Copies of PGs that each OSD should hold, as the autoscaler sees it."
    mon_warn_on_cache_pools_without_hit_sets Bool "true" Live "Health warns of cache pools that do not record hits."
    mon_warn_on_crush_straw_calc_version_zero Bool "true" Live "Health warns of a CRUSH map with straw_calc_version 0."
    mon_warn_on_legacy_crush_tunables Bool "true" Live "Health warns of CRUSH tunables from before release 0.94."
    mon_warn_on_pool_no_app Bool "true" Live "Health warns of pools without an application."
    mon_warn_on_pool_no_redundancy Bool "true" Live "Health warns of pools with one replica."
    mon_warn_on_pool_pg_num_not_power_of_two Bool "true" Live "Health warns of pools whose pg_num is no power of two."
    mon_warn_on_too_few_osds Bool "true" Live "Health warns of fewer OSDs than replicas."
    mon_warn_pg_not_deep_scrubbed_ratio Float "0.75" Live "Part of osd_deep_scrub_interval beyond it after which a PG is reported; 0 never."
    mon_warn_pg_not_scrubbed_ratio Float "0.5" Live "Part of osd_scrub_max_interval beyond it after which a PG is reported; 0 never."
    ms_bind_msgr1 Bool "true" Restart "Listen for clients by messenger v1, too, where no mode is `secure` alone."
    ms_client_mode Str "crc secure" Restart "Modes of a client's connections to OSDs, by preference."
    ms_cluster_mode Str "crc secure" Restart "Modes between OSDs, by preference; those an OSD accepts of another."
    ms_mon_client_mode Str "secure crc" Restart "Modes of connections to monitors, by preference."
    ms_mon_cluster_mode Str "secure crc" Live "Modes between monitors, by preference; those a monitor accepts of another."
    ms_mon_service_mode Str "secure crc" Live "Modes a monitor accepts."
    ms_service_mode Str "crc secure" Restart "Modes an OSD accepts at its public address."
    osd_agent_max_ops Uint "4" Live "Objects an OSD flushes or evicts at once."
    osd_async_recovery_min_cost Uint "100" Live "Writes or objects that a copy may lack and still act while it is brought up."
    osd_beacon_report_interval Secs "300" Live "Seconds between beacons to the monitors."
    osd_class_fuel_max Uint "20000000" Live "Steps that methods of uploaded object classes may take in one request."
    osd_class_load_list Str "cephfs hello journal lock log numops otp rbd refcount rgw rgw_gc timeindex user version cas cmpomap queue 2pc_queue fifo sem_set" Live "Object classes that may be called, or * for all there are; others are EPERM."
    osd_class_memory_max Size "16M" Live "Bytes that a method of an uploaded object class may take for itself, and for its changes and output."
    osd_class_update_on_start Bool "true" Restart "An OSD without a device class takes that of its device, hdd or ssd."
    osd_client_message_size_cap Size "500M" Live "Bytes of clients' requests in hand at an OSD; a connection is read while it has less than a quarter of what is free of them. 0 for no bound of its own."
    osd_crush_chooseleaf_type Int "1" Restart "Failure domain of the first rule: 0 osd, 1 host."
    osd_crush_update_on_start Bool "true" Restart "A starting OSD puts itself where it stands."
    osd_data Str "/var/lib/ceph/osd/$cluster-$id" Restart "An OSD's directory."
    osd_deep_scrub_interval Float "604800" Live "Seconds between deep scrubs of a PG."
    osd_device_bytes Size "12G" Restart "Size of the block file made at mkfs."
    osd_failsafe_full_ratio Float "0.97" Live "Used part of the device above which no data is taken."
    osd_heartbeat_grace Secs "20" Live "Silence after which an OSD is reported."
    osd_heartbeat_interval Secs "6" Live "Seconds between heartbeats."
    osd_journal Str "" Restart "Where mkfs puts the store's log: a file or device; empty for the store's own device; memory for none, which loses acknowledged writes in a crash."
    osd_journal_size Size "256M" Restart "Bytes of the store's log."
    osd_max_attr_name_len Uint "100" Live "Longest name of an attribute."
    osd_max_backfills Uint "1" Live "PGs of an OSD that are recovered, and copied, at once, to it and from it each; with osd_mclock_override_recovery_settings."
    osd_max_object_size Size "128M" Live "Largest object."
    osd_max_omap_entries_per_request Uint "1024" Live "Most omap entries of one answer."
    osd_max_pg_log_entries Uint "2000" Live "Longest log of a PG."
    osd_max_scrubs Uint "3" Live "Scrubs that an OSD takes part in at once, for PGs led here and elsewhere each."
    osd_max_trimming_pgs Uint "2" Live "PGs an OSD trims snapshots of at once."
    osd_max_write_size Uint "90" Live "Largest write, in MiB."
    osd_mclock_max_sequential_bandwidth_hdd Size "150M" Live "Bytes a second of a disk that turns; for the profile custom."
    osd_mclock_max_sequential_bandwidth_ssd Size "1200M" Live "Bytes a second of a disk that does not turn; for the profile custom."
    osd_mclock_override_recovery_settings Bool "false" Live "Let osd_max_backfills, osd_recovery_max_active and osd_recovery_sleep count beside the profile."
    osd_mclock_profile Str "balanced" Live "How much recovery may slow clients down: high_client_ops, balanced, high_recovery_ops, custom."
    osd_mclock_scheduler_background_recovery_lim Float "0" Live "Profile custom: most of the disk that recovery takes, 0 to 1; 0 is no limit."
    osd_mclock_scheduler_background_recovery_res Float "0" Live "Profile custom: the part of the disk that recovery always has, 0 to 1."
    osd_mclock_scheduler_background_recovery_wgt Uint "1" Live "Profile custom: recovery's weight beside clients."
    osd_mclock_scheduler_client_wgt Uint "1" Live "Profile custom: the clients' weight beside recovery."
    osd_memory_target Size "4G" Live "Memory an OSD tries to stay within."
    osd_min_pg_log_entries Uint "250" Live "Shortest log of a PG."
    osd_mon_report_interval Secs "5" Live "Seconds between reports to the monitors."
    osd_objectstore Str "bluestore" Restart "The store's engine."
    osd_op_complaint_time Float "30" Live "Seconds after which an operation is slow."
    osd_op_history_size Uint "20" Live "Finished operations kept for dump_historic_ops."
    osd_pg_log_dups_tracked Uint "3000" Live "Answered requests a PG remembers beyond its log."
    osd_pg_max_concurrent_snap_trims Uint "2" Live "Clones that a PG trims at once."
    osd_pool_default_crush_rule Int "-1" Live "The CRUSH rule of new replicated pools by its number; -1 is the first that serves."
    osd_pool_default_erasure_code_profile Str "plugin=isa technique=reed_sol_van k=2 m=2" Live "What the erasure code profile 'default' holds when it is made."
    osd_pool_default_flag_nodelete Bool "false" Live "New pools cannot be removed."
    osd_pool_default_hit_set_bloom_fpp Float "0.05" Live "How often the hit sets of new cache pools are wrong."
    osd_pool_default_min_size Uint "0" Live "min_size of new pools; 0 is size - size / 2."
    osd_pool_default_pg_autoscale_mode Str "on" Live "PG autoscaling of new pools."
    osd_pool_default_pg_num Uint "32" Live "PGs of new pools."
    osd_pool_default_pgp_num Uint "0" Live "Placement groups for placement of new pools; 0 is pg_num."
    osd_pool_default_size Uint "3" Live "Replicas of new pools."
    osd_recovery_max_active Uint "0" Live "Objects an OSD recovers at once, with osd_mclock_override_recovery_settings; 0 is chosen."
    osd_recovery_max_active_hdd Uint "3" Live "As osd_recovery_max_active where that is 0, on a disk that turns."
    osd_recovery_max_active_ssd Uint "10" Live "As osd_recovery_max_active where that is 0, on a disk that does not turn."
    osd_recovery_sleep Float "0" Live "Seconds between the begins of two recoveries, with osd_mclock_override_recovery_settings."
    osd_recovery_sleep_hdd Float "0.1" Live "As osd_recovery_sleep where that is 0, on a disk that turns."
    osd_recovery_sleep_ssd Float "0" Live "As osd_recovery_sleep where that is 0, on a disk that does not turn."
    osd_scrub_auto_repair Bool "false" Live "Mend what scrubs find, up to osd_scrub_auto_repair_num_errors."
    osd_scrub_auto_repair_num_errors Uint "5" Live "With more errors than this nothing is mended unasked."
    osd_scrub_begin_hour Int "0" Live "Hour, in UTC, from which scrubs begin; with the same osd_scrub_end_hour always."
    osd_scrub_begin_week_day Int "0" Live "Day, 0 for Sunday, from which scrubs begin."
    osd_scrub_chunk_max Uint "15" Live "Objects that a deep scrub compares at once."
    osd_scrub_during_recovery Bool "false" Live "Begin scrubs while the OSD recovers objects."
    osd_scrub_end_hour Int "0" Live "Hour, in UTC, from which no scrub begins."
    osd_scrub_end_week_day Int "0" Live "Day from which no scrub begins."
    osd_scrub_interval_randomize_ratio Float "0.5" Live "Part of osd_scrub_min_interval over which scrubs are spread."
    osd_scrub_load_threshold Float "10" Live "No scrub begins above this load for each CPU."
    osd_scrub_max_interval Float "604800" Live "Seconds without a scrub after which hours and load do not count."
    osd_scrub_max_preemptions Uint "5" Live "How often writes may end a scrub's chunk before they wait for it."
    osd_scrub_min_interval Float "86400" Live "Seconds between light scrubs of a PG."
    osd_scrub_sleep Float "0" Live "Seconds between the chunks of a scrub that nobody asked for."
    osd_shallow_scrub_chunk_max Uint "50" Live "Objects that a light scrub compares at once."
    osd_snap_trim_sleep Float "0" Live "Seconds between two clones that a PG trims; 0 for no pause."
    osd_target_pg_log_bytes_per_osd Size "256M" Live "Bytes of the logs of all PGs of an OSD together."
    osd_target_pg_log_entries_per_osd Uint "300000" Live "Log entries of all PGs of an OSD together."
    osd_tier_default_cache_hit_set_count Uint "4" Live "Hit sets of `osd tier add-cache`."
    osd_tier_default_cache_hit_set_period Secs "1200" Live "Seconds of a hit set, with `osd tier add-cache`."
    osd_tier_default_cache_hit_set_type Str "bloom" Live "Hit sets of `osd tier add-cache`: bloom, explicit_hash or explicit_object."
    osd_tier_default_cache_min_read_recency_for_promote Uint "1" Live "Hit sets a read object must be in to be promoted, with `osd tier add-cache`."
    osd_tier_default_cache_min_write_recency_for_promote Uint "1" Live "Hit sets a written object must be in to be promoted, with `osd tier add-cache`."
    osd_tier_default_cache_mode Str "writeback" Live "Mode of `osd tier add-cache`."
    osd_uuid Str "" Restart "An OSD's incarnation, at mkfs."
    paxos_service_trim_min Uint "250" Live "OSD maps are forgotten so many at a time, at least."
    pid_file Str "" Restart "Where a daemon writes its process id."
    public_addr Str "" Restart "Address for clients."
    public_network Str "" Restart "Networks (192.0.2.0/24) of which a daemon without `public_addr` takes its address."
    rgw_admin_entry Str "admin" Restart "First part of the paths of the Admin API."
    rgw_allow_notification_secrets_in_cleartext Bool "false" Restart "Topics with a user and a password are set and shown by plain HTTP, too."
    rgw_cache_enabled Bool "true" Restart "A gateway keeps users, buckets and other small objects, and watches for their changes."
    rgw_crypt_default_encryption_key Str "" Restart "Master key of objects that nothing else encrypts: 32 bytes in base64."
    rgw_crypt_require_ssl Bool "true" Restart "Clients send keys of their own by TLS only."
    rgw_crypt_s3_kms_backend Str "barbican" Restart "Where master keys of objects are: of testing alone they are read, from rgw_crypt_s3_kms_encryption_keys."
    rgw_crypt_s3_kms_encryption_keys Str "" Restart "Master keys of objects: ID=BASE64, 32 bytes each."
    rgw_dns_name Str "" Restart "Host name whose names below it are buckets."
    rgw_enable_apis Str "s3, s3website, swift, swift_auth, admin, sts, iam, notifications" Restart "Which APIs are served: of swift, swift_auth, admin and notifications those that it has; S3 always."
    rgw_enable_gc_threads Bool "true" Restart "A gateway removes the data of deleted objects."
    rgw_enable_lc_threads Bool "true" Restart "A gateway carries lifecycle rules out."
    rgw_enable_ops_log Bool "false" Restart "Write a line for each request."
    rgw_enable_usage_log Bool "false" Restart "Count requests and bytes of users."
    rgw_frontends Str "beast port=7480" Restart "Where a gateway listens: endpoint=, port=, ssl_endpoint=, ssl_port=, ssl_certificate=, ssl_private_key=."
    rgw_gc_processor_period Int "3600" Restart "Seconds between removals of deleted objects' data."
    rgw_lc_debug_interval Int "-1" Restart "Length of a day of lifecycle rules, in seconds, for tests."
    rgw_lifecycle_work_time Str "00:00-06:00" Restart "When lifecycle rules are carried out, HH:MM-HH:MM."
    rgw_multipart_min_part_size Size "5M" Restart "Least size of a part of an upload, but for the last."
    rgw_objexp_gc_interval Uint "600" Restart "Seconds between removals of objects that end at a time of their own (X-Delete-At)."
    rgw_ops_log_file_path Str "/var/log/ceph/ops-log-$cluster-$name.log" Restart "Where the line for each request goes."
    rgw_pending_bucket_index_op_expiration Uint "120" Live "Seconds after which an operation on a bucket's index that was announced counts as lost."
    rgw_reshardlog_threshold Uint "30000" Live "Changes to a bucket that is being resharded after which writes to it wait."
    rgw_s3_auth_use_sts Bool "false" Restart "A gateway gives and takes temporary keys of roles and users."
    rgw_sts_key Str "" Restart "What session tokens are sealed with: 16 characters or more, the same at all gateways."
    rgw_swift_account_in_url Bool "false" Restart "The paths of Swift name the account: /swift/v1/AUTH_UID."
    rgw_swift_auth_entry Str "auth" Restart "First part of the paths of Swift's logins."
    rgw_swift_need_stats Bool "true" Restart "Lists of Swift's containers count what each holds."
    rgw_swift_token_expiration Int "86400" Restart "Seconds that a token of Swift holds."
    rgw_swift_url Str "" Restart "What a login of Swift answers before the prefix; empty: the host that was asked."
    rgw_swift_url_prefix Str "swift" Restart "First part of the paths of Swift; / for none."
    rgw_swift_versioning_enabled Bool "false" Restart "Writes to Swift's containers with X-Versions-Location are refused rather than done without versions."
    rgw_topic_persistency_max_retries Uint "0" Restart "How often an event of a persistent topic is tried again; 0 for no bound."
    rgw_topic_persistency_sleep_duration Uint "0" Restart "Seconds between two tries of an event."
    rgw_topic_persistency_time_to_live Uint "0" Restart "Seconds that an event of a persistent topic waits; 0 for no bound."
    rgw_topic_require_publish_policy Bool "false" Restart "Buckets of others publish to a topic by its policy alone."
    rgw_usage_log_tick_interval Int "30" Restart "Seconds between writes of the usage log."
    rgw_zone Str "" Restart "Zone that a gateway serves; empty: the default."
    run_dir Str "/var/run/ceph" Restart "Directory of sockets and process ids."
    target_max_misplaced_ratio Float "0.05" Live "The most of all copies that may be misplaced for PGs to be moved further."
}

#[cfg(test)]
mod tests;
