//! Options of upstream's clients and of daemons that are not here: what they are called and
//! what their values look like, so that a client never gets a value it cannot read.
//!
//! Source: `config help` of release 20.2.4.

use crate::OptionKind;

/// The type of an option that only clients know. `None` for one that is unknown here too.
#[must_use]
pub fn client_option(name: &str) -> Option<OptionKind> {
    let kinds = [
        (OptionKind::Bool, BOOL),
        (OptionKind::Int, INT),
        (OptionKind::Uint, UINT),
        (OptionKind::Size, SIZE),
        (OptionKind::Float, FLOAT),
        (OptionKind::Secs, SECS),
        (OptionKind::Str, STR),
    ];
    let found = kinds.into_iter().find(|(_, names)| names.split(' ').any(|n| n == name));
    found.map(|(kind, _)| kind)
}

const BOOL: &str = "client_check_pool_perm client_collect_and_send_global_metrics \
     client_debug_force_sync_read client_debug_getattr_caps \
     client_die_on_failed_dentry_invalidate client_die_on_failed_remount \
     client_dirsize_rbytes client_force_lazyio client_inject_fixed_oldest_tid \
     client_inject_release_failure client_oc client_permissions client_quota client_quota_df \
     client_reconnect_stale client_try_dentry_invalidate client_use_faked_inos \
     client_use_random_mds fuse_allow_other fuse_atomic_o_trunc fuse_big_writes fuse_debug \
     fuse_default_permissions fuse_disable_pagecache fuse_multithreaded \
     fuse_require_active_mds fuse_set_user_groups fuse_splice_move fuse_splice_read \
     fuse_splice_write fuse_syncfs_on_mksnap fuse_use_invalidate_cb log_coarse_timestamps \
     log_flush_on_exit log_to_file log_to_graylog log_to_journald log_to_stderr log_to_syslog \
     mds_abort_on_newly_corrupt_dentry mds_allow_async_dirops mds_allow_batched_ops \
     mds_bal_export_pin mds_bal_fragment_dirs mds_cache_quiesce_splitauth \
     mds_connect_bootstrapping mds_debug_auth_pins mds_debug_frag mds_debug_scatterstat \
     mds_debug_subtrees mds_defer_session_stale mds_deny_all_reconnect mds_dir_prefetch \
     mds_dump_cache_after_rejoin mds_dump_cache_on_map mds_early_reply mds_enable_op_tracker \
     mds_enforce_unique_name mds_export_ephemeral_distributed mds_export_ephemeral_random \
     mds_forward_all_requests_to_auth mds_go_bad_corrupt_dentry \
     mds_hack_allow_loading_invalid_metadata mds_inject_health_dummy \
     mds_inject_migrator_session_race mds_inject_skip_replaying_inotable \
     mds_kill_after_journal_logs_flushed mds_log_pause mds_log_skip_corrupt_events \
     mds_log_skip_unbounded_events mds_oft_prefetch_dirfrags \
     mds_replay_unsafe_with_closed_session \
     mds_snap_rstat mds_standby_replay_damaged \
     mds_symlink_recovery mds_valgrind_exit mds_verify_scatter mds_wipe_ino_prealloc \
     mds_wipe_sessions mgr_debug_aggressive_pg_num_changes mgr_enable_op_tracker mgr_pool \
     mgr_standby_modules mgr_stats_period_autotune mgr_test_metadata_error ms_async_rdma_cm \
     ms_async_rdma_enable_hugepage ms_async_rdma_support_srq ms_bind_before_connect \
     ms_bind_ipv4 ms_bind_ipv6 ms_bind_msgr2 ms_bind_prefer_ipv4 \
     ms_blackhole_client ms_blackhole_mds ms_blackhole_mgr ms_blackhole_mon ms_blackhole_osd \
     ms_compress_secure ms_crc_data ms_crc_header ms_die_on_bad_msg ms_die_on_bug \
     ms_die_on_old_message ms_die_on_skipped_message ms_die_on_unhandled_msg \
     ms_dpdk_debug_allow_loopback ms_dpdk_enable_tso ms_dpdk_hw_flow_control ms_dpdk_lro \
     ms_dump_on_send ms_learn_addr_from_peer ms_tcp_nodelay \
     objecter_debug_inject_relock_delay objecter_inject_no_watch_ping \
     objecter_retry_writes_after_first_reply rados_replica_read_policy_on_objclass \
     rados_tracing rbd_auto_exclusive_lock_until_manual_request rbd_balance_parent_reads \
     rbd_balance_snap_reads rbd_blkin_trace_all rbd_blocklist_on_break_lock rbd_cache \
     rbd_cache_block_writes_upfront rbd_cache_writethrough_until_flush rbd_clone_copy_on_read \
     rbd_disable_zero_copy_writes rbd_discard_on_zeroed_write_same rbd_enable_alloc_hint \
     rbd_invalidate_object_map_on_timeout rbd_journal_object_writethrough_until_flush \
     rbd_localize_parent_reads rbd_localize_snap_reads rbd_mirror_memory_autotune \
     rbd_mirroring_resync_after_disconnect rbd_move_parent_to_trash_on_remove \
     rbd_move_to_trash_on_remove rbd_non_blocking_aio rbd_parent_cache_enabled \
     rbd_skip_partial_discard rbd_tracing rbd_validate_names rbd_validate_pool \
     rgw_allow_notification_secrets_in_cleartext rgw_asio_assert_yielding \
     rgw_beast_enable_async rgw_bucket_counters_cache \
     rgw_bucket_index_transaction_instrumentation rgw_cache_enabled rgw_content_length_compat \
     rgw_copy_obj_progress rgw_crypt_require_ssl rgw_crypt_sse_s3_vault_verify_ssl \
     rgw_crypt_suppress_logs rgw_crypt_vault_verify_ssl rgw_d3n_l1_evict_cache_on_start \
     rgw_d3n_l1_local_datacache_enabled rgw_d4n_l1_evict_cache_on_start \
     rgw_debug_inject_olh_cancel_modification_err rgw_disable_s3select rgw_dynamic_resharding \
     rgw_dynamic_resharding_may_reduce rgw_enable_gc_threads rgw_enable_jwks_url_verification \
     rgw_enable_lc_threads rgw_enable_mdsearch rgw_enable_ops_log rgw_enable_quota_threads \
     rgw_enable_restore_threads rgw_enable_static_website rgw_enable_usage_log \
     rgw_enforce_swift_acls rgw_expose_bucket rgw_graceful_stop rgw_ignore_get_invalid_range \
     rgw_keystone_service_token_enabled rgw_keystone_verify_ssl rgw_log_nonexistent_bucket \
     rgw_log_object_name_utc rgw_lua_enable rgw_nfs_run_gc_threads rgw_nfs_run_lc_threads \
     rgw_nfs_run_quota_threads rgw_nfs_run_restore_threads rgw_nfs_run_sync_thread \
     rgw_nfs_s3_fast_attrs rgw_op_tracing rgw_opa_verify_ssl rgw_ops_log_rados \
     rgw_policy_reject_invalid_principals rgw_print_continue \
     rgw_print_prohibited_content_length rgw_rados_tracing rgw_relaxed_region_enforcement \
     rgw_relaxed_s3_bucket_names rgw_resolve_cname rgw_rest_getusage_op_compat \
     rgw_run_sync_thread rgw_s3_auth_disable_signature_url rgw_s3_auth_use_keystone \
     rgw_s3_auth_use_ldap rgw_s3_auth_use_rados rgw_s3_auth_use_sts rgw_sigv4_insecure \
     rgw_swift_account_in_url rgw_swift_enforce_content_length rgw_swift_need_stats \
     rgw_swift_versioning_enabled rgw_sync_obj_etag_verify rgw_topic_require_publish_policy \
     rgw_torrent_flag rgw_trust_forwarded_https rgw_use_opa_authz rgw_user_counters_cache \
     rgw_user_quota_sync_idle_users rgw_user_unique_email rgw_verify_ssl";

const INT: &str = "cephfs_mirror_perf_stats_prio client_mount_gid client_mount_uid client_notify_timeout \
     client_oc_max_objects client_readahead_max_periods journaler_write_head_interval \
     log_graylog_port log_max_new log_max_recent mds_bal_fragment_interval \
     mds_bal_interval mds_bal_max mds_bal_max_until \
     mds_bal_mode mds_bal_overload_epochs mds_bal_split_bits \
     mds_damage_table_max_entries \
     mds_default_dir_hash mds_dir_keys_per_op mds_dir_max_commit_size \
     mds_health_summarize_threshold mds_kill_create_at mds_kill_dirfrag_at mds_kill_export_at \
     mds_kill_import_at mds_kill_journal_at mds_kill_journal_expire_at \
     mds_kill_journal_replay_at mds_kill_link_at mds_kill_mdstable_at mds_kill_openc_at \
     mds_kill_rename_at mds_log_max_events mds_max_scrub_ops_in_progress mds_numa_node \
     mds_op_log_threshold mds_root_ino_gid mds_root_ino_uid mds_shutdown_check mds_skip_ino \
     mds_thrash_exports mds_thrash_fragments mgr_max_pg_num_change mgr_op_log_threshold \
     mgr_stats_period mgr_stats_period_autotune_queue_threshold mgr_stats_threshold \
     ms_async_rdma_dscp ms_async_rdma_gid_idx ms_async_rdma_roce_ver ms_async_rdma_sl \
     ms_bind_port_max ms_bind_port_min ms_bind_retry_count ms_bind_retry_delay \
     ms_dpdk_port_id ms_dpdk_rx_buffer_count_per_core ms_dump_corrupt_message_level \
     ms_max_accept_failures ms_tcp_listen_backlog rbd_mirror_image_perf_stats_prio \
     rbd_mirror_perf_stats_prio rgw_account_default_quota_max_objects \
     rgw_account_default_quota_max_size rgw_acl_grants_max_num \
     rgw_bucket_default_quota_max_objects rgw_bucket_default_quota_max_size \
     rgw_bucket_quota_cache_size rgw_bucket_quota_ttl rgw_bucket_sync_spawn_window \
     rgw_cache_lru_size rgw_cors_rules_max_num rgw_curl_buffersize rgw_curl_low_speed_limit \
     rgw_curl_low_speed_time rgw_curl_tcp_keepalive rgw_curl_wait_timeout_ms \
     rgw_d3n_l1_fadvise rgw_d3n_libaio_aio_num rgw_d3n_libaio_aio_threads \
     rgw_d4n_cache_cleaning_interval rgw_d4n_l1_fadvise rgw_d4n_libaio_aio_num \
     rgw_d4n_libaio_aio_threads rgw_data_log_changes_size rgw_data_log_num_shards \
     rgw_data_log_window rgw_data_notify_interval_msec rgw_data_sync_poll_interval \
     rgw_data_sync_spawn_window rgw_delete_multi_obj_max_num rgw_exit_timeout_secs \
     rgw_gc_max_concurrent_io rgw_gc_max_objs rgw_gc_max_trim_chunk rgw_gc_obj_min_wait \
     rgw_gc_processor_max_time rgw_gc_processor_period rgw_init_timeout \
     rgw_keystone_expired_token_cache_expiration rgw_keystone_token_cache_size \
     rgw_lc_debug_interval rgw_lc_lock_max_time rgw_lc_max_objs rgw_lc_max_worker \
     rgw_lc_max_wp_worker rgw_lc_thread_delay rgw_lfuda_sync_frequency \
     rgw_list_bucket_min_readahead rgw_list_buckets_max_chunk rgw_max_concurrent_requests \
     rgw_max_control_aio rgw_max_copy_obj_concurrent_io rgw_max_slo_entries \
     rgw_md_log_max_shards rgw_md_notify_interval_msec rgw_meta_sync_poll_interval \
     rgw_meta_sync_spawn_window rgw_mp_lock_max_time rgw_multipart_part_upload_limit \
     rgw_nfs_fhcache_partitions rgw_nfs_fhcache_size rgw_nfs_lru_lane_hiwat rgw_nfs_lru_lanes \
     rgw_nfs_max_gc rgw_nfs_namespace_expire_secs rgw_nfs_write_completion_interval_s \
     rgw_num_async_rados_threads rgw_num_control_oids rgw_numa_node \
     rgw_obj_tombstone_cache_size rgw_olh_pending_timeout_sec rgw_op_thread_suicide_timeout \
     rgw_op_thread_timeout rgw_posix_cache_lanes rgw_posix_cache_lmdb_count \
     rgw_posix_cache_max_buckets rgw_posix_cache_partitions rgw_reshard_debug_interval \
     rgw_restore_debug_interval rgw_restore_lock_max_time rgw_restore_max_objs \
     rgw_restore_processor_period rgw_s3_client_max_sig_ver rgw_s3_success_create_obj_status \
     rgw_safe_max_objects_per_shard rgw_swift_token_expiration rgw_sync_lease_period \
     rgw_sync_log_trim_concurrent_buckets rgw_sync_log_trim_interval \
     rgw_sync_log_trim_max_buckets rgw_sync_log_trim_min_cold_buckets \
     rgw_sync_trace_per_node_log_size rgw_sync_trace_servicemap_update_interval \
     rgw_thread_pool_size rgw_usage_log_flush_threshold rgw_usage_log_tick_interval \
     rgw_usage_max_shards rgw_usage_max_user_shards rgw_user_default_quota_max_objects \
     rgw_user_default_quota_max_size rgw_user_max_buckets rgw_user_policies_max_num \
     rgw_user_quota_bucket_sync_interval rgw_user_quota_sync_interval \
     rgw_user_quota_sync_wait_time rgw_website_routing_rules_max_num";

const UINT: &str = "cephfs_mirror_directory_scan_interval cephfs_mirror_max_concurrent_directory_syncs \
     cephfs_mirror_max_consecutive_failures_per_directory \
     cephfs_mirror_max_snapshot_sync_per_cycle \
     cephfs_mirror_retry_failed_directories_interval client_asio_thread_count \
     client_file_blockdiff_max_concurrent_object_scans client_max_retries_on_remount_failure \
     immutable_object_cache_client_dedicated_thread_num \
     immutable_object_cache_max_inflight_ops immutable_object_cache_qos_bps_burst \
     immutable_object_cache_qos_bps_limit immutable_object_cache_qos_iops_burst \
     immutable_object_cache_qos_iops_limit immutable_object_cache_qos_schedule_tick_min \
     journaler_prefetch_periods journaler_prezero_periods librados_thread_count \
     mds_action_on_write_error mds_asio_thread_count mds_cache_quiesce_delay \
     mds_cache_quiesce_sleep mds_client_delegate_inos_pct \
     mds_client_writeable_range_max_inc_objs mds_delay_journal_replay_for_testing \
     mds_dir_max_entries mds_file_blockdiff_max_concurrent_object_scans \
     mds_heartbeat_reset_grace mds_journal_format mds_kill_shutdown_at \
     mds_log_event_large_threshold mds_log_events_per_segment mds_log_max_segments \
     mds_log_minor_segments_per_major_segment mds_log_trim_upkeep_interval \
     mds_max_completed_flushes mds_max_completed_requests \
     mds_max_file_recover mds_max_purge_ops mds_max_snaps_per_dir \
     mds_min_caps_per_client mds_min_caps_working_set \
     mds_op_history_slow_op_size mds_op_history_slow_op_threshold \
     mds_scrub_stats_review_period mds_server_dispatch_client_request_delay \
     mds_sessionmap_keys_per_op mds_snap_max_uid \
     mds_snap_min_uid mds_verify_backtrace mgr_client_messages mgr_max_pg_creating \
     mgr_mds_messages mgr_module_load_delay mgr_module_load_expiration mgr_mon_messages \
     mgr_num_op_tracker_shard mgr_op_history_duration mgr_op_history_size \
     mgr_op_history_slow_op_size mgr_osd_messages mgr_ttl_cache_expire_seconds \
     ms_async_op_threads ms_async_rdma_polling_us ms_async_rdma_port_num \
     ms_async_rdma_receive_buffers ms_async_rdma_receive_queue_len ms_async_rdma_send_buffers \
     ms_async_reap_threshold ms_client_throttle_retry_time_interval \
     ms_connection_idle_timeout ms_connection_ready_timeout ms_inject_network_congestion \
     ms_inject_socket_failures ms_osd_compress_min_size ms_pq_max_tokens_per_priority \
     ms_shutdown_timeout ms_time_events_min_wait_interval \
     objecter_completion_locks_per_session objecter_inflight_ops rbd_atime_update_interval \
     rbd_blocklist_expire_seconds rbd_cache_max_dirty_object rbd_concurrent_management_ops \
     rbd_config_pool_override_update_timestamp rbd_default_format rbd_default_order \
     rbd_default_stripe_count rbd_discard_granularity_bytes rbd_io_scheduler_simple_max_delay \
     rbd_journal_max_concurrent_object_sets rbd_journal_object_flush_interval \
     rbd_journal_object_max_in_flight_appends rbd_journal_order rbd_journal_splay_width \
     rbd_mirror_concurrent_image_deletions rbd_mirror_concurrent_image_syncs \
     rbd_mirror_image_policy_migration_throttle rbd_mirror_image_state_check_interval \
     rbd_mirror_leader_heartbeat_interval rbd_mirror_leader_max_acquire_attempts_before_break \
     rbd_mirror_leader_max_missed_heartbeats rbd_mirror_pool_replayers_refresh_interval \
     rbd_mirroring_delete_delay rbd_mirroring_max_mirroring_snapshots \
     rbd_mirroring_replay_delay rbd_move_to_trash_on_remove_expire_seconds \
     rbd_mtime_update_interval rbd_op_thread_timeout rbd_op_threads rbd_persistent_cache_size \
     rbd_qos_bps_burst rbd_qos_bps_burst_seconds rbd_qos_bps_limit rbd_qos_iops_burst \
     rbd_qos_iops_burst_seconds rbd_qos_iops_limit rbd_qos_read_bps_burst \
     rbd_qos_read_bps_burst_seconds rbd_qos_read_bps_limit rbd_qos_read_iops_burst \
     rbd_qos_read_iops_burst_seconds rbd_qos_read_iops_limit rbd_qos_schedule_tick_min \
     rbd_qos_write_bps_burst rbd_qos_write_bps_burst_seconds rbd_qos_write_bps_limit \
     rbd_qos_write_iops_burst rbd_qos_write_iops_burst_seconds rbd_qos_write_iops_limit \
     rbd_quiesce_notification_attempts rbd_readahead_trigger_requests \
     rbd_request_timed_out_seconds rgw_bucket_counters_cache_size rgw_bucket_index_max_aio \
     rgw_bucket_logging_obj_roll_time rgw_cache_expiry_interval rgw_d4n_l1_write_open_flags \
     rgw_debug_inject_latency_bi_unlink rgw_debug_inject_set_olh_err \
     rgw_dynamic_resharding_reduction_wait rgw_gc_max_deferred \
     rgw_gc_max_deferred_entries_size rgw_gc_max_queue_size rgw_kafka_connection_idle \
     rgw_kafka_message_timeout rgw_kafka_sleep_timeout rgw_lc_max_rules \
     rgw_lua_max_memory_per_state rgw_lua_max_runtime_per_state rgw_max_attrs_num_in_req \
     rgw_max_dynamic_shards rgw_max_listing_results rgw_max_notify_retries \
     rgw_max_objs_per_shard rgw_multi_obj_del_max_aio rgw_objexp_chunk_size \
     rgw_objexp_gc_interval rgw_objexp_hints_num_shards rgw_override_bucket_index_max_shards \
     rgw_pending_bucket_index_op_expiration rgw_rados_pool_recovery_priority \
     rgw_reshard_batch_size rgw_reshard_bucket_lock_duration rgw_reshard_max_aio \
     rgw_reshard_num_logs rgw_reshard_progress_judge_interval rgw_reshard_thread_interval \
     rgw_reshardlog_threshold rgw_sts_max_session_duration rgw_sts_min_session_duration \
     rgw_topic_persistency_max_retries rgw_topic_persistency_sleep_duration \
     rgw_topic_persistency_time_to_live rgw_user_counters_cache_size";

const SIZE: &str = "client_cache_size client_max_inline_size client_oc_max_dirty client_oc_size \
     client_oc_target_dirty client_readahead_max_bytes client_readahead_min fuse_max_write \
     immutable_object_cache_max_size mds_alternate_name_max \
     mds_cache_quiesce_threshold mds_cache_trim_threshold mds_dump_cache_threshold_file \
     mds_dump_cache_threshold_formatter mds_fscrypt_last_block_max_size mds_log_segment_size \
     mds_log_trim_threshold mds_max_export_size mds_recall_global_max_decay_threshold \
     mds_recall_max_caps mds_recall_max_decay_threshold mds_recall_warning_threshold \
     mds_session_cache_liveness_magnitude mds_session_metadata_threshold mgr_client_bytes \
     mgr_mds_bytes mgr_mon_bytes mgr_osd_bytes ms_async_rdma_buffer_size \
     ms_dispatch_throttle_bytes ms_pq_min_cost ms_tcp_prefetch_max_size ms_tcp_rcvbuf \
     objecter_inflight_op_bytes rbd_cache_max_dirty rbd_cache_size rbd_cache_target_dirty \
     rbd_default_stripe_unit rbd_journal_max_payload_bytes rbd_journal_object_flush_bytes \
     rbd_mirror_memory_base rbd_mirror_memory_cache_min rbd_mirror_memory_target \
     rbd_readahead_disable_after_bytes rbd_readahead_max_bytes \
     rbd_sparse_read_threshold_bytes rgw_copy_obj_progress_every_bytes \
     rgw_d3n_l1_datacache_size rgw_d4n_l1_datacache_size rgw_get_obj_max_req_size \
     rgw_get_obj_window_size rgw_max_attr_name_len rgw_max_attr_size rgw_max_chunk_size \
     rgw_max_put_param_size rgw_max_put_size rgw_multipart_min_part_size rgw_obj_stripe_size \
     rgw_ops_log_data_backlog rgw_parquet_buffer_size rgw_put_obj_max_window_size \
     rgw_put_obj_min_window_size rgw_sync_trace_history_size rgw_torrent_max_size \
     rgw_torrent_sha_unit";

const FLOAT: &str = "client_cache_mid client_oc_max_dirty_age immutable_object_cache_watermark \
     log_stop_at_utilization mds_bal_fragment_fast_factor mds_bal_idle_threshold \
     mds_bal_midchunk mds_bal_min_rebalance mds_bal_min_start mds_bal_minchunk \
     mds_bal_need_max mds_bal_need_min mds_bal_replicate_threshold mds_bal_sample_interval \
     mds_bal_split_rd mds_bal_split_wr mds_bal_target_decay mds_bal_unreplicate_threshold \
     mds_cache_mid mds_cache_quiesce_decay_rate \
     mds_cache_reservation mds_cache_trim_decay_rate \
     mds_cap_revoke_eviction_timeout \
     mds_decay_halflife mds_dirstat_min_interval mds_export_ephemeral_distributed_factor \
     mds_export_ephemeral_random_max mds_freeze_tree_timeout mds_health_cache_threshold \
     mds_heartbeat_grace mds_inject_journal_corrupt_dentry_first \
     mds_inject_rename_corrupt_dentry_first mds_inject_traceless_reply_probability \
     mds_log_trim_decay_rate mds_log_warn_factor mds_max_purge_ops_per_pg \
     mds_purge_queue_busy_flush_period \
     mds_recall_max_decay_rate mds_recall_warning_decay_rate \
     mds_replay_interval mds_request_load_average_decay_rate mds_scatter_nudge_interval \
     mds_server_dispatch_killpoint_random mds_session_cache_liveness_decay_rate \
     \
     mds_sleep_rank_change mds_task_status_update_interval mds_tick_interval \
     mgr_client_service_daemon_unregister_timeout mgr_connect_retry_interval \
     mgr_op_complaint_time mgr_op_history_slow_op_threshold \
     mgr_osd_upgrade_check_convergence_factor mgr_service_beacon_grace \
     ms_dpdk_hw_queue_weight ms_initial_backoff ms_inject_delay_max \
     ms_inject_delay_probability ms_inject_internal_delays ms_max_backoff \
     objecter_tick_interval objecter_timeout rbd_cache_max_dirty_age rbd_journal_commit_age \
     rbd_journal_object_flush_age rbd_mirror_delete_retry_interval \
     rbd_mirror_image_policy_rebalance_timeout \
     rbd_mirror_image_policy_update_throttle_interval rbd_mirror_journal_commit_age \
     rbd_mirror_journal_poll_age rbd_mirror_memory_cache_autotune_interval \
     rbd_mirror_memory_cache_resize_interval rbd_mirror_memory_expected_fragmentation \
     rbd_mirror_sync_point_update_age rgw_dmclock_admin_lim rgw_dmclock_admin_res \
     rgw_dmclock_admin_wgt rgw_dmclock_auth_lim rgw_dmclock_auth_res rgw_dmclock_auth_wgt \
     rgw_dmclock_data_lim rgw_dmclock_data_res rgw_dmclock_data_wgt rgw_dmclock_metadata_lim \
     rgw_dmclock_metadata_res rgw_dmclock_metadata_wgt rgw_inject_delay_sec \
     rgw_inject_notify_timeout_probability rgw_period_push_interval \
     rgw_period_push_interval_max rgw_rados_pool_autoscale_bias \
     rgw_reshard_progress_judge_ratio rgw_shard_warning_threshold \
     rgw_sync_data_full_inject_err_probability rgw_sync_data_inject_err_probability \
     rgw_sync_meta_inject_err_probability";

const SECS: &str = "cephfs_mirror_action_update_interval cephfs_mirror_mount_timeout \
     cephfs_mirror_restart_mirror_on_blocklist_interval \
     cephfs_mirror_restart_mirror_on_failure_interval client_caps_release_delay \
     client_debug_inject_tick_delay client_mount_timeout client_shutdown_timeout \
     client_tick_interval immutable_object_cache_qos_bps_burst_seconds \
     immutable_object_cache_qos_iops_burst_seconds mds_beacon_mon_down_grace \
     mds_cache_release_free_interval mds_cache_trim_interval \
     mds_extraordinary_events_dump_interval mds_metrics_update_interval mds_ping_grace \
     mds_ping_interval rados_mon_op_timeout rados_osd_op_timeout";

const STR: &str = "client_acl_type client_debug_inject_features client_fs client_mds_namespace \
     client_metadata client_mountpoint client_snapdir client_trace \
     immutable_object_cache_path immutable_object_cache_sock log_file log_graylog_host \
     log_stderr_prefix mgr_disabled_modules mgr_initial_modules \
     mgr_module_load_delay_name mgr_module_path mgr_subinterpreter_modules \
     ms_async_rdma_device_name ms_async_rdma_local_gid ms_async_rdma_type ms_client_mode \
     ms_cluster_mode ms_cluster_type ms_dpdk_coremask ms_dpdk_devs_allowlist \
     ms_dpdk_gateway_ipv4_addr ms_dpdk_host_ipv4_addr ms_dpdk_hugepages \
     ms_dpdk_memory_channel ms_dpdk_netmask_ipv4_addr ms_dpdk_pmd ms_inject_delay_type \
     ms_mon_client_mode ms_mon_cluster_mode ms_mon_service_mode ms_osd_compress_mode \
     ms_osd_compression_algorithm ms_public_type ms_service_mode ms_type \
     rados_replica_read_policy rbd_cache_policy rbd_compression_hint rbd_default_clone_format \
     rbd_default_data_pool rbd_default_features rbd_default_map_options rbd_default_pool \
     rbd_default_snapshot_quiesce_mode rbd_io_scheduler rbd_journal_pool \
     rbd_mirror_image_policy_type rbd_persistent_cache_mode rbd_persistent_cache_path \
     rbd_plugins rbd_qos_exclude_ops rbd_read_from_replica_policy rgw_admin_entry \
     rgw_backend_store rgw_barbican_url rgw_config_store rgw_cross_domain_policy \
     rgw_crypt_default_encryption_key rgw_crypt_kmip_addr rgw_crypt_kmip_ca_path \
     rgw_crypt_kmip_client_cert rgw_crypt_kmip_client_key rgw_crypt_kmip_kms_key_template \
     rgw_crypt_kmip_password rgw_crypt_kmip_s3_key_template rgw_crypt_kmip_username \
     rgw_crypt_s3_kms_backend rgw_crypt_s3_kms_encryption_keys rgw_crypt_sse_s3_backend \
     rgw_crypt_sse_s3_key_template rgw_crypt_sse_s3_vault_addr rgw_crypt_sse_s3_vault_auth \
     rgw_crypt_sse_s3_vault_namespace rgw_crypt_sse_s3_vault_prefix \
     rgw_crypt_sse_s3_vault_secret_engine rgw_crypt_sse_s3_vault_ssl_cacert \
     rgw_crypt_sse_s3_vault_ssl_clientcert rgw_crypt_sse_s3_vault_ssl_clientkey \
     rgw_crypt_sse_s3_vault_token_file rgw_crypt_vault_addr rgw_crypt_vault_auth \
     rgw_crypt_vault_namespace rgw_crypt_vault_prefix rgw_crypt_vault_secret_engine \
     rgw_crypt_vault_ssl_cacert rgw_crypt_vault_ssl_clientcert rgw_crypt_vault_ssl_clientkey \
     rgw_crypt_vault_token_file rgw_d3n_l1_datacache_persistent_path \
     rgw_d3n_l1_eviction_policy rgw_d4n_address rgw_d4n_backend_address \
     rgw_d4n_l1_datacache_address rgw_d4n_l1_datacache_persistent_path rgw_data \
     rgw_default_data_log_backing rgw_default_realm_info_oid rgw_default_region_info_oid \
     rgw_default_zone_info_oid rgw_default_zonegroup_info_oid rgw_defer_to_bucket_acls \
     rgw_dns_name rgw_dns_s3website_name rgw_enable_apis rgw_extended_http_attrs rgw_filter \
     rgw_frontend_defaults rgw_frontends rgw_healthcheck_disabling_path \
     rgw_inject_delay_pattern rgw_json_config rgw_keystone_accepted_admin_roles \
     rgw_keystone_accepted_reader_roles rgw_keystone_accepted_roles rgw_keystone_admin_domain \
     rgw_keystone_admin_password rgw_keystone_admin_password_path rgw_keystone_admin_project \
     rgw_keystone_admin_tenant rgw_keystone_admin_token rgw_keystone_admin_token_path \
     rgw_keystone_admin_user rgw_keystone_barbican_domain rgw_keystone_barbican_password \
     rgw_keystone_barbican_project rgw_keystone_barbican_tenant rgw_keystone_barbican_user \
     rgw_keystone_implicit_tenants rgw_keystone_service_token_accepted_roles rgw_keystone_url \
     rgw_ldap_binddn rgw_ldap_dnattr rgw_ldap_searchdn rgw_ldap_searchfilter rgw_ldap_secret \
     rgw_ldap_uri rgw_lifecycle_work_time rgw_log_http_headers rgw_log_object_name \
     rgw_luarocks_location rgw_mime_types_file rgw_nfs_frontends rgw_opa_token rgw_opa_url \
     rgw_ops_log_file_path rgw_ops_log_socket_path rgw_period_latest_epoch_info_oid \
     rgw_period_root_pool rgw_posix_base_path rgw_posix_database_root rgw_realm rgw_realm_id \
     rgw_realm_root_pool rgw_region rgw_region_root_pool rgw_remote_addr_param \
     rgw_request_uri rgw_s3_auth_order rgw_scheduler_type rgw_script_uri \
     rgw_service_provider_name rgw_sts_client_id rgw_sts_client_secret rgw_sts_entry \
     rgw_sts_key rgw_sts_token_introspection_url rgw_swift_auth_entry rgw_swift_auth_url \
     rgw_swift_custom_header rgw_swift_tenant_name rgw_swift_url rgw_swift_url_prefix \
     rgw_torrent_comment rgw_torrent_createby rgw_torrent_encoding rgw_torrent_origin \
     rgw_torrent_tracker rgw_zone rgw_zone_id rgw_zone_root_pool rgw_zonegroup \
     rgw_zonegroup_id rgw_zonegroup_root_pool";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_one_type() {
        assert_eq!(client_option("rbd_cache"), Some(OptionKind::Bool));
        assert_eq!(client_option("rbd_cache_size"), Some(OptionKind::Size));
        assert_eq!(client_option("client_mount_timeout"), Some(OptionKind::Secs));
        assert_eq!(client_option("rbd_nonsense"), None);
        assert_eq!(client_option(""), None);
        let all: Vec<&str> =
            [BOOL, INT, UINT, SIZE, FLOAT, SECS, STR].iter().flat_map(|l| l.split(' ')).collect();
        let unique: std::collections::BTreeSet<&&str> = all.iter().collect();
        assert_eq!(unique.len(), all.len());
    }
}
