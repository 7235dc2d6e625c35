//! Options in the form in which the hot path reads them.

use conf::key;

use crate::exec::{ClassList, Limits};
use crate::pace::PaceConf;
use crate::pg::Bound;
use crate::pg::scrub::ScrubConf;

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
    /// Between reports of statistics to the manager's role, ms.
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
        Self::read(&conf::Config::new(&conf::ConfFile::default(), "osd", "0", "", 0), false)
    }
}

/// A number of things in memory.
fn count(n: u64) -> usize {
    usize::try_from(n).unwrap_or(usize::MAX)
}

fn ms(seconds: f64) -> u64 {
    (seconds.max(0.0) * 1_000.0) as u64
}

impl Config {
    /// The values of `conf`, for a device that `rotates` or does not.
    #[must_use]
    pub fn read(conf: &conf::Config, rotates: bool) -> Self {
        let memory = conf.get(key::OSD_MEMORY_TARGET);
        let cap = match conf.get(key::OSD_CLIENT_MESSAGE_SIZE_CAP) {
            0 => u64::MAX,
            cap => cap,
        };
        let grace = conf.get(key::OSD_HEARTBEAT_GRACE);
        let slow_ms = conf.get(key::MON_WARN_ON_SLOW_PING_TIME).max(0.0);
        let part_ms = grace.as_secs_f64() * 1_000.0 * conf.get(key::MON_WARN_ON_SLOW_PING_RATIO);
        let log_bytes = conf.get(key::OSD_TARGET_PG_LOG_BYTES_PER_OSD);
        let mut c = Self {
            limits: limits(conf),
            write_size_max: count(conf.get(key::OSD_MAX_WRITE_SIZE)).min(1 << 12) << 20,
            request_bytes_max: cap.min((memory / 8).max(64 << 20)),
            log_entries_per_osd: count(conf.get(key::OSD_TARGET_PG_LOG_ENTRIES_PER_OSD)),
            log_entries_min: count(conf.get(key::OSD_MIN_PG_LOG_ENTRIES)),
            log_entries_max: count(conf.get(key::OSD_MAX_PG_LOG_ENTRIES)),
            dups_max: count(conf.get(key::OSD_PG_LOG_DUPS_TRACKED)),
            log_bytes_per_osd: log_bytes.min(memory / 16),
            journal_bytes: conf.get(key::OSD_JOURNAL_SIZE),
            act_cost_max: conf.get(key::OSD_ASYNC_RECOVERY_MIN_COST),
            recoveries_max: 16,
            trimming_pgs_max: count(conf.get(key::OSD_MAX_TRIMMING_PGS)),
            agent_ops_max: count(conf.get(key::OSD_AGENT_MAX_OPS)),
            snap_trims_max: count(conf.get(key::OSD_PG_MAX_CONCURRENT_SNAP_TRIMS)).max(1),
            snap_trim_sleep_ms: ms(conf.get(key::OSD_SNAP_TRIM_SLEEP)),
            heartbeat_interval_ms: ms(conf.get(key::OSD_HEARTBEAT_INTERVAL).as_secs_f64()).max(100),
            heartbeat_grace_ms: ms(grace.as_secs_f64()),
            slow_ping_us: (if slow_ms > 0.0 { slow_ms } else { part_ms } * 1_000.0) as u64,
            beacon_interval_ms: ms(conf.get(key::OSD_BEACON_REPORT_INTERVAL).as_secs_f64()),
            report_interval_ms: 1_000,
            failsafe_full_ratio: conf.get(key::OSD_FAILSAFE_FULL_RATIO),
            object_contexts_max: 1_024,
            complaint_ms: ms(conf.get(key::OSD_OP_COMPLAINT_TIME)),
            history_size: count(conf.get(key::OSD_OP_HISTORY_SIZE)),
            classes: ClassList::new(&conf.get(key::OSD_CLASS_LOAD_LIST)),
            rotates,
            scrub: ScrubConf::read(conf),
            backfills_max: 1,
            pace: PaceConf::default(),
        };
        c.read_background(conf);
        c
    }

    /// What bounds recovery. As upstream has it, the single bounds count when
    /// `osd_mclock_override_recovery_settings` says so; else the profile alone does.
    fn read_background(&mut self, conf: &conf::Config) {
        let rotates = self.rotates;
        self.pace = PaceConf::profile(&conf.get(key::OSD_MCLOCK_PROFILE)).unwrap_or_else(|| {
            let disk = conf.get(if rotates {
                key::OSD_MCLOCK_MAX_SEQUENTIAL_BANDWIDTH_HDD
            } else {
                key::OSD_MCLOCK_MAX_SEQUENTIAL_BANDWIDTH_SSD
            });
            PaceConf::custom(
                conf.get(key::OSD_MCLOCK_SCHEDULER_CLIENT_WGT) as f64,
                conf.get(key::OSD_MCLOCK_SCHEDULER_BACKGROUND_RECOVERY_WGT) as f64,
                conf.get(key::OSD_MCLOCK_SCHEDULER_BACKGROUND_RECOVERY_RES),
                conf.get(key::OSD_MCLOCK_SCHEDULER_BACKGROUND_RECOVERY_LIM),
                disk as f64,
            )
        });
        if !conf.get(key::OSD_MCLOCK_OVERRIDE_RECOVERY_SETTINGS) {
            return;
        }
        // The kind of device decides between two options where the common one is 0.
        let active = match conf.get(key::OSD_RECOVERY_MAX_ACTIVE) {
            0 if rotates => conf.get(key::OSD_RECOVERY_MAX_ACTIVE_HDD),
            0 => conf.get(key::OSD_RECOVERY_MAX_ACTIVE_SSD),
            common => common,
        };
        let sleep = conf.get(key::OSD_RECOVERY_SLEEP);
        let sleep = match (sleep > 0.0, rotates) {
            (true, _) => sleep,
            (false, true) => conf.get(key::OSD_RECOVERY_SLEEP_HDD),
            (false, false) => conf.get(key::OSD_RECOVERY_SLEEP_SSD),
        };
        self.recoveries_max = count(active).max(1);
        self.pace.sleep_ms = ms(sleep);
        self.backfills_max = count(conf.get(key::OSD_MAX_BACKFILLS)).max(1);
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

/// What one request may do.
fn limits(conf: &conf::Config) -> Limits {
    let memory = conf.get(key::OSD_CLASS_MEMORY_MAX);
    Limits {
        object_size_max: conf.get(key::OSD_MAX_OBJECT_SIZE).min(4 << 30),
        attr_name_max: count(conf.get(key::OSD_MAX_ATTR_NAME_LEN)),
        omap_entries_max: conf.get(key::OSD_MAX_OMAP_ENTRIES_PER_REQUEST),
        classes: cls::wasm::Budget {
            fuel: conf.get(key::OSD_CLASS_FUEL_MAX),
            bytes: memory,
            memory,
        },
        settings: cls::Settings {
            reshardlog_threshold: u32::try_from(conf.get(key::RGW_RESHARDLOG_THRESHOLD))
                .unwrap_or(u32::MAX),
            pending_expiration_s: conf.get(key::RGW_PENDING_BUCKET_INDEX_OP_EXPIRATION),
            ..cls::Settings::default()
        },
        attr_size_max: 0,
        omap_bytes_max: 64 << 20,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A class that the table's default names may be called where nobody set the option.
    #[test]
    fn classes_are_those_of_the_table() {
        let file = conf::ConfFile::parse("[osd]\nosd class load list = lock\n").unwrap();
        let set = conf::Config::new(&file, "osd", "0", "host", 1);
        let has = |c: &Config, class: &str| c.classes.has(class.as_bytes());
        assert!(has(&Config::default(), "sem_set") && has(&Config::default(), "lock"));
        let c = Config::read(&set, false);
        assert!(has(&c, "lock") && !has(&c, "sem_set"));
    }

    /// The options say what a PG keeps: a share of the OSD's entries between least and most, a
    /// share of its bytes.
    #[test]
    fn logs_are_bounded_as_options_say() {
        let mut conf = conf::Config::new(&conf::ConfFile::default(), "osd", "0", "host", 1);
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
