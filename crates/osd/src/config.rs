//! Options in the form in which the hot path reads them.

use crate::exec::{ClassList, Limits};
use crate::pace::PaceConf;
use crate::pg::Bound;
use crate::pg::scrub::ScrubConf;

/// The option's default, the peer's.
const CLASSES: &str = "cephfs hello journal lock log numops otp rbd refcount rgw rgw_gc \
                       timeindex user version cas cmpomap queue 2pc_queue fifo";

/// Values of options, read once whenever one changes. Names are the options'.
#[derive(Clone, Debug)]
pub struct Config {
    /// `osd_max_object_size` and so on.
    pub limits: Limits,
    /// `osd_max_write_size`, bytes.
    pub write_size_max: usize,
    /// `osd_client_message_size_cap`, and at most an eighth of `osd_memory_target`.
    pub request_bytes_max: u64,
    /// `osd_target_pg_log_entries_per_osd`.
    pub log_entries_per_osd: usize,
    /// `osd_min_pg_log_entries`.
    pub log_entries_min: usize,
    /// `osd_max_pg_log_entries`.
    pub log_entries_max: usize,
    /// `osd_pg_log_dups_tracked`.
    pub dups_max: usize,
    /// `osd_target_pg_log_bytes_per_osd`, and at most a sixteenth of `osd_memory_target`.
    pub log_bytes_per_osd: u64,
    /// Bytes of the store's log (`osd_journal_size`): a copy takes over a PG's log in one transaction.
    pub journal_bytes: u64,
    /// `osd_async_recovery_min_cost`.
    pub act_cost_max: u64,
    /// `osd_recovery_max_active`.
    pub recoveries_max: usize,
    /// `osd_max_trimming_pgs`.
    pub trimming_pgs_max: usize,
    /// `osd_agent_max_ops`.
    pub agent_ops_max: usize,
    /// `osd_pg_max_concurrent_snap_trims`.
    pub snap_trims_max: usize,
    /// `osd_snap_trim_sleep`, ms.
    pub snap_trim_sleep_ms: u64,
    /// `osd_heartbeat_interval`, ms.
    pub heartbeat_interval_ms: u64,
    /// `osd_heartbeat_grace`, ms.
    pub heartbeat_grace_ms: u64,
    /// `mon_warn_on_slow_ping_time`, or its part of the grace; microseconds.
    pub slow_ping_us: u64,
    /// `osd_beacon_report_interval`, ms.
    pub beacon_interval_ms: u64,
    /// `osd_mon_report_interval` for statistics, ms.
    pub report_interval_ms: u64,
    /// `osd_failsafe_full_ratio`.
    pub failsafe_full_ratio: f64,
    /// Records of objects kept in memory, for each PG.
    pub object_contexts_max: usize,
    /// `osd_op_complaint_time`, ms.
    pub complaint_ms: u64,
    /// `osd_op_history_size`.
    pub history_size: usize,
    /// `osd_class_load_list`.
    pub classes: ClassList,
    /// The device is a disk that turns.
    pub rotates: bool,
    /// Scrubs.
    pub scrub: ScrubConf,
    /// `osd_max_backfills`: PGs recovered at once, and copied at once.
    pub backfills_max: usize,
    /// How fast work in the background goes beside clients.
    pub pace: PaceConf,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            limits: Limits::default(),
            write_size_max: 90 << 20,
            request_bytes_max: 500 << 20,
            log_entries_per_osd: 300_000,
            log_entries_min: 250,
            log_entries_max: 2_000,
            dups_max: 3_000,
            log_bytes_per_osd: 256 << 20,
            journal_bytes: 256 << 20,
            act_cost_max: 100,
            recoveries_max: 16,
            trimming_pgs_max: 2,
            agent_ops_max: 4,
            snap_trims_max: 2,
            snap_trim_sleep_ms: 0,
            heartbeat_interval_ms: 6_000,
            heartbeat_grace_ms: 20_000,
            slow_ping_us: 1_000_000,
            beacon_interval_ms: 300_000,
            report_interval_ms: 1_000,
            failsafe_full_ratio: 0.97,
            object_contexts_max: 1_024,
            complaint_ms: 30_000,
            history_size: 20,
            classes: ClassList::new(CLASSES),
            rotates: false,
            scrub: ScrubConf::default(),
            backfills_max: 1,
            pace: PaceConf::default(),
        }
    }
}

impl Config {
    /// The values of `conf`; options that the table does not have keep their default here.
    #[must_use]
    pub fn read(conf: &conf::Config, rotates: bool) -> Self {
        let mut c = Self { rotates, ..Self::default() };
        let known = |name: &str| conf::option(name).is_some();
        let int = |name: &str, to: &mut usize| {
            if known(name) && conf.is_set(name) {
                *to = usize::try_from(conf.u64(name)).unwrap_or(usize::MAX);
            }
        };
        let secs = |name: &str, to: &mut u64| {
            if known(name) && conf.is_set(name) {
                *to = (conf.f64(name).max(0.0) * 1000.0) as u64;
            }
        };
        let mut size = c.limits.object_size_max as usize;
        int("osd_max_object_size", &mut size);
        c.limits.object_size_max = (size as u64).min(4 << 30);
        int("osd_max_attr_name_len", &mut c.limits.attr_name_max);
        let mut entries = c.limits.omap_entries_max as usize;
        int("osd_max_omap_entries_per_request", &mut entries);
        c.limits.omap_entries_max = entries as u64;
        let settings = &mut c.limits.settings;
        settings.reshardlog_threshold =
            u32::try_from(conf.u64("rgw_reshardlog_threshold")).unwrap_or(u32::MAX);
        settings.pending_expiration_s = conf.u64("rgw_pending_bucket_index_op_expiration");
        c.limits.classes.fuel = conf.u64("osd_class_fuel_max");
        c.limits.classes.memory = conf.u64("osd_class_memory_max");
        c.limits.classes.bytes = c.limits.classes.memory;
        let mut mib = c.write_size_max >> 20;
        int("osd_max_write_size", &mut mib);
        c.write_size_max = mib.min(1 << 12) << 20;
        let memory = conf.u64("osd_memory_target");
        let cap = conf.u64("osd_client_message_size_cap");
        c.request_bytes_max = if cap == 0 { u64::MAX } else { cap };
        c.request_bytes_max = c.request_bytes_max.min((memory / 8).max(64 << 20));
        int("osd_target_pg_log_entries_per_osd", &mut c.log_entries_per_osd);
        int("osd_min_pg_log_entries", &mut c.log_entries_min);
        int("osd_max_pg_log_entries", &mut c.log_entries_max);
        int("osd_pg_log_dups_tracked", &mut c.dups_max);
        c.log_bytes_per_osd = conf.u64("osd_target_pg_log_bytes_per_osd").min(memory / 16);
        c.journal_bytes = conf.u64("osd_journal_size");
        c.act_cost_max = conf.u64("osd_async_recovery_min_cost");
        int("osd_max_trimming_pgs", &mut c.trimming_pgs_max);
        int("osd_agent_max_ops", &mut c.agent_ops_max);
        int("osd_pg_max_concurrent_snap_trims", &mut c.snap_trims_max);
        c.snap_trims_max = c.snap_trims_max.max(1);
        secs("osd_snap_trim_sleep", &mut c.snap_trim_sleep_ms);
        secs("osd_heartbeat_interval", &mut c.heartbeat_interval_ms);
        secs("osd_heartbeat_grace", &mut c.heartbeat_grace_ms);
        let slow_ms = conf.f64("mon_warn_on_slow_ping_time").max(0.0);
        let part_ms = c.heartbeat_grace_ms as f64 * conf.f64("mon_warn_on_slow_ping_ratio");
        c.slow_ping_us = (if slow_ms > 0.0 { slow_ms } else { part_ms } * 1_000.0) as u64;
        secs("osd_beacon_report_interval", &mut c.beacon_interval_ms);
        secs("osd_op_complaint_time", &mut c.complaint_ms);
        int("osd_op_history_size", &mut c.history_size);
        if known("osd_failsafe_full_ratio") && conf.is_set("osd_failsafe_full_ratio") {
            c.failsafe_full_ratio = conf.f64("osd_failsafe_full_ratio");
        }
        if known("osd_class_load_list") && conf.is_set("osd_class_load_list") {
            c.classes = ClassList::new(&conf.get("osd_class_load_list"));
        }
        c.scrub.read(conf);
        c.read_background(conf);
        c.heartbeat_interval_ms = c.heartbeat_interval_ms.max(100);
        c
    }

    /// What bounds recovery. As upstream has it, the single bounds count when
    /// `osd_mclock_override_recovery_settings` says so; else the profile alone does.
    fn read_background(&mut self, conf: &conf::Config) {
        let kind = if self.rotates { "hdd" } else { "ssd" };
        let profile = conf.get("osd_mclock_profile");
        self.pace = PaceConf::profile(&profile).unwrap_or_else(|| {
            let number = |name: &str| conf.f64(&format!("osd_mclock_scheduler_{name}"));
            PaceConf::custom(
                number("client_wgt"),
                number("background_recovery_wgt"),
                number("background_recovery_res"),
                number("background_recovery_lim"),
                conf.u64(&format!("osd_mclock_max_sequential_bandwidth_{kind}")) as f64,
            )
        });
        if !conf.bool("osd_mclock_override_recovery_settings") {
            return;
        }
        // The kind of device decides between two options where the common one is 0.
        let media = |name: &str| {
            let common = conf.f64(name);
            if common > 0.0 { common } else { conf.f64(&format!("{name}_{kind}")) }
        };
        self.recoveries_max = (media("osd_recovery_max_active") as usize).max(1);
        self.pace.sleep_ms = (media("osd_recovery_sleep").max(0.0) * 1_000.0) as u64;
        self.backfills_max = usize::try_from(conf.u64("osd_max_backfills")).unwrap_or(1).max(1);
    }

    /// How long an OSD's promise to another holds. The peer's
    /// `osd_pool_default_read_lease_ratio` of the grace.
    #[must_use]
    pub fn lease_ms(&self) -> u64 {
        self.heartbeat_grace_ms / 10 * 8
    }

    /// The newest entries of a PG's log that any copy has.
    #[must_use]
    pub fn log_least(&self) -> usize {
        self.log_entries_min.max(16)
    }

    /// What the log of each of `pgs` PGs may take. The peer's `get_target_pg_log_entries`, and
    /// a share of the bytes: half of it for the log, half for requests remembered beyond it;
    /// together they fit into one message, and into one transaction of the store.
    #[must_use]
    pub fn log_bound(&self, pgs: usize) -> Bound {
        const BYTES: (u64, u64) = (8 << 10, 4 << 20);
        /// A transaction may take a sixth of the store's log.
        const PART_OF_JOURNAL: u64 = 32;
        let pgs = pgs.max(1);
        let min = self.log_least();
        let share = self.log_entries_per_osd / pgs;
        let bytes = self.log_bytes_per_osd / 2 / pgs as u64;
        let bytes = bytes.min(self.journal_bytes / PART_OF_JOURNAL).clamp(BYTES.0, BYTES.1);
        Bound {
            entries: share.clamp(min, self.log_entries_max.max(min)),
            dups: share.max(256).min(self.dups_max),
            bytes: bytes as usize,
        }
    }

    /// Whether a store of `total` bytes, with so many `available`, takes no more data,
    /// whatever the map says.
    #[must_use]
    pub fn is_store_full(&self, (total, available): (u64, u64)) -> bool {
        let used = total.saturating_sub(available) as f64;
        total > 0 && used >= total as f64 * self.failsafe_full_ratio
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The options say what a PG keeps: a share of the OSD's entries between least and most, a
    /// share of its bytes.
    #[test]
    fn logs_are_bounded_as_options_say() {
        let mut conf = conf::Config::new(&conf::ConfFile::default(), "osd", "0", "host", 1);
        let shown = Config::read(&conf, false);
        let same = (shown.log_entries_per_osd, shown.log_entries_min, shown.log_entries_max);
        let d = Config::default();
        assert_eq!(same, (d.log_entries_per_osd, d.log_entries_min, d.log_entries_max));
        let shown = |name: &str| conf.u64(name) as usize;
        assert_eq!(same.0, shown("osd_target_pg_log_entries_per_osd"));
        assert_eq!(same.1, shown("osd_min_pg_log_entries"));
        assert_eq!(same.2, shown("osd_max_pg_log_entries"));
        assert_eq!(d.dups_max, shown("osd_pg_log_dups_tracked"));
        assert_eq!(d.act_cost_max, conf.u64("osd_async_recovery_min_cost"));

        for (name, value) in [
            ("osd_target_pg_log_entries_per_osd", "100000"),
            ("osd_min_pg_log_entries", "300"),
            ("osd_max_pg_log_entries", "5000"),
            ("osd_pg_log_dups_tracked", "4000"),
            ("osd_target_pg_log_bytes_per_osd", "64M"),
        ] {
            conf.set(conf::Source::Override, name, value).unwrap();
        }
        let c = Config::read(&conf, false);
        assert_eq!(c.log_bound(10), Bound { entries: 5_000, dups: 4_000, bytes: 3_355_443 });
        assert_eq!(c.log_bound(100), Bound { entries: 1_000, dups: 1_000, bytes: 335_544 });
        assert_eq!(c.log_bound(1_000), Bound { entries: 300, dups: 256, bytes: 33_554 });
        conf.set(conf::Source::Override, "osd_journal_size", "64M").unwrap();
        assert_eq!(Config::read(&conf, false).log_bound(10).bytes, 2 << 20);
        conf.set(conf::Source::Override, "osd_pg_log_dups_tracked", "0").unwrap();
        conf.set(conf::Source::Override, "osd_memory_target", "512M").unwrap();
        let c = Config::read(&conf, false);
        assert_eq!(c.log_bound(10), Bound { entries: 5_000, dups: 0, bytes: 1_677_721 });
    }
}
