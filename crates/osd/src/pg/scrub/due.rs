//! When a PG is scrubbed without being asked for.

use super::Order;
use crate::pg::{Cx, Pg};
use conf::{Key, key};
use maps::{OsdMapFlags, PoolFlags};

/// Options of scrubs; names are the options', without `osd_scrub_` or `osd_`.
#[derive(Clone, Copy, Debug)]
pub struct ScrubConf {
    /// `osd_max_scrubs`.
    pub max: usize,
    /// `osd_scrub_min_interval`, seconds.
    pub min_interval: f64,
    /// `osd_scrub_max_interval`, seconds: from then on hours and load do not count.
    pub max_interval: f64,
    /// `osd_deep_scrub_interval`, seconds.
    pub deep_interval: f64,
    /// `osd_scrub_interval_randomize_ratio`.
    pub randomize: f64,
    /// `osd_scrub_begin_hour`, UTC.
    pub begin_hour: u64,
    /// `osd_scrub_end_hour`.
    pub end_hour: u64,
    /// `osd_scrub_begin_week_day`; 0 is Sunday.
    pub begin_week_day: u64,
    /// `osd_scrub_end_week_day`.
    pub end_week_day: u64,
    /// `osd_scrub_sleep`, ms.
    pub sleep_ms: u64,
    /// `osd_scrub_chunk_max`.
    pub chunk: usize,
    /// `osd_shallow_scrub_chunk_max`.
    pub shallow_chunk: usize,
    /// `osd_scrub_max_preemptions`.
    pub preemptions: u32,
    /// `osd_scrub_during_recovery`.
    pub during_recovery: bool,
    /// `osd_scrub_auto_repair`.
    pub auto_repair: bool,
    /// `osd_scrub_auto_repair_num_errors`.
    pub auto_repair_max: u32,
    /// `osd_scrub_load_threshold`, for each CPU.
    pub load_max: f64,
}

/// Whether `at` is within `from..to`, which may go over the end; equal bounds mean always.
fn within(from: u64, to: u64, at: u64) -> bool {
    match from.cmp(&to) {
        std::cmp::Ordering::Equal => true,
        std::cmp::Ordering::Less => from <= at && at < to,
        std::cmp::Ordering::Greater => at >= from || at < to,
    }
}

impl ScrubConf {
    /// The values of `conf`.
    pub(crate) fn read(conf: &conf::Config) -> Self {
        let float = |key: Key<key::Float>| conf.get(key).max(0.0);
        let hour = |key: Key<key::Int>| conf.get(key).max(0) as u64;
        let size = |key: Key<key::Uint>| usize::try_from(conf.get(key)).unwrap_or(usize::MAX);
        let errors = conf.get(key::OSD_SCRUB_AUTO_REPAIR_NUM_ERRORS);
        Self {
            max: size(key::OSD_MAX_SCRUBS),
            min_interval: float(key::OSD_SCRUB_MIN_INTERVAL),
            max_interval: float(key::OSD_SCRUB_MAX_INTERVAL),
            deep_interval: float(key::OSD_DEEP_SCRUB_INTERVAL),
            randomize: float(key::OSD_SCRUB_INTERVAL_RANDOMIZE_RATIO),
            begin_hour: hour(key::OSD_SCRUB_BEGIN_HOUR),
            end_hour: hour(key::OSD_SCRUB_END_HOUR),
            begin_week_day: hour(key::OSD_SCRUB_BEGIN_WEEK_DAY),
            end_week_day: hour(key::OSD_SCRUB_END_WEEK_DAY),
            sleep_ms: (float(key::OSD_SCRUB_SLEEP) * 1_000.0) as u64,
            chunk: size(key::OSD_SCRUB_CHUNK_MAX).clamp(1, 1_000),
            shallow_chunk: size(key::OSD_SHALLOW_SCRUB_CHUNK_MAX).clamp(1, 1_000),
            preemptions: conf.get(key::OSD_SCRUB_MAX_PREEMPTIONS).min(30) as u32,
            during_recovery: conf.get(key::OSD_SCRUB_DURING_RECOVERY),
            auto_repair: conf.get(key::OSD_SCRUB_AUTO_REPAIR),
            auto_repair_max: u32::try_from(errors).unwrap_or(u32::MAX),
            load_max: float(key::OSD_SCRUB_LOAD_THRESHOLD),
        }
    }

    /// Whether this is an hour for scrubs. Hours and days are those of UTC.
    pub(crate) fn is_time(&self, wall_ns: u64) -> bool {
        let hours = wall_ns / 3_600_000_000_000;
        // 1970-01-01 was a Thursday.
        let day = (hours / 24 + 4) % 7;
        within(self.begin_hour, self.end_hour % 24, hours % 24)
            && within(self.begin_week_day, self.end_week_day % 7, day)
    }
}

impl Pg {
    /// Part of a whole, the same for a PG every time: scrubs are spread by it.
    fn scrub_share(&self) -> f64 {
        let x =
            self.id.pg.ps.wrapping_mul(2_654_435_761) ^ (self.id.pg.pool.0 as u32).rotate_left(16);
        f64::from(x.wrapping_mul(0x9e37_79b1) >> 8) / f64::from(1u32 << 24)
    }

    /// Seconds between light scrubs, the longest time between them, and between deep ones.
    pub(crate) fn scrub_intervals(&self, cx: &Cx<'_>) -> (f64, f64, f64) {
        let c = &cx.conf.scrub;
        let pool = cx.map.pool(self.id.pg.pool);
        let of = |name: &str, default: f64| match pool.and_then(|p| p.opts.get(name)) {
            Some(maps::PoolOpt::Double(x)) if *x > 0.0 => *x,
            _ => default,
        };
        (
            of("scrub_min_interval", c.min_interval),
            of("scrub_max_interval", c.max_interval),
            of("deep_scrub_interval", c.deep_interval),
        )
    }

    fn flags(&self, cx: &Cx<'_>) -> (bool, bool) {
        let pool = PoolFlags(self.pool.flags);
        (
            cx.map.has_flag(OsdMapFlags::NOSCRUB) || pool.has(PoolFlags::NOSCRUB),
            cx.map.has_flag(OsdMapFlags::NODEEP_SCRUB) || pool.has(PoolFlags::NODEEP_SCRUB),
        )
    }

    /// Whether flags end what nobody asked for.
    pub(super) fn scrub_forbidden(&self, order: Order, cx: &Cx<'_>) -> bool {
        let (no_scrub, no_deep) = self.flags(cx);
        !order.required && if order.deep { no_deep } else { no_scrub }
    }

    /// What the monitors show of the next scrub, or of the one under way.
    pub(crate) fn scrub_schedule(&self, now: env::Now) -> maps::ScrubSchedule {
        let h = &self.info.scrub;
        let running = self.scrub.running();
        let asked = self.scrub.asked();
        let of = running.or(asked).unwrap_or_default();
        let since = self.scrub.since_ms().map_or(0, |ms| now.mono_ms().saturating_sub(ms) / 1_000);
        // The peer's numbers: unknown, not queued, active, scheduled, queued.
        let status = match (running, asked) {
            (Some(_), _) => 2,
            (None, Some(_)) => 4,
            (None, None) if self.leads => 3,
            (None, None) => 0,
        };
        maps::ScrubSchedule {
            scheduled_at: types::UTime::from_nanos(h.last_ns + self.scrub_after_ns),
            duration_seconds: since as i32,
            status,
            is_active: running.is_some(),
            is_deep: of.deep,
            is_periodic: running.or(asked).is_none_or(|o| !o.required),
            ..maps::ScrubSchedule::default()
        }
    }

    /// The PG's next scrub as `dump_scrubs` shows it.
    pub(crate) fn scrub_json(&mut self, cx: &Cx<'_>) -> serde_json::Value {
        let due = self.scrub_due(cx);
        let of = self.scrub.running().or(self.scrub.asked()).or(due).unwrap_or_default();
        let at = self.scrub_schedule(cx.now).scheduled_at.to_string();
        serde_json::json!({
            "pgid": self.id.to_string(), "sched_time": at, "orig_sched_time": at,
            "forced": of.required, "level": if of.deep { "deep" } else { "shallow" },
            "urgency": match (of.required, of.repair) {
                (true, true) => "must-repair",
                (true, false) => "operator-requested",
                (false, _) => "periodic-regular",
            },
            "eligible": due.is_some(),
            "last_issue": if self.scrub.waits_for_slots() { "reservation failure" } else { "ok" },
        })
    }

    /// What is due now.
    pub(super) fn scrub_due(&mut self, cx: &Cx<'_>) -> Option<Order> {
        let h = self.info.scrub;
        if h.last_ns == 0 {
            return None;
        }
        let c = &cx.conf.scrub;
        let (min, max, deep) = self.scrub_intervals(cx);
        let (no_scrub, no_deep) = self.flags(cx);
        let age = |since_ns: u64| cx.now.wall_ns.saturating_sub(since_ns) as f64 / 1e9;
        let share = self.scrub_share();
        let deep_due = !no_deep && age(h.last_deep_ns) >= deep * (1.0 + 0.2 * share);
        self.scrub_after_ns = (min * (1.0 + c.randomize * share) * 1e9) as u64;
        let light_due = !no_scrub && age(h.last_ns) >= min * (1.0 + c.randomize * share);
        if !deep_due && !light_due {
            return None;
        }
        let late = age(h.last_ns) >= max;
        if !late && (!c.is_time(cx.now.wall_ns) || cx.load > c.load_max) {
            return None;
        }
        Some(Order { deep: deep_due, repair: false, required: false })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2023-11-14 22:13 UTC, a Tuesday.
    #[test]
    fn hours_and_days() {
        let at = 1_700_000_000_000_000_000;
        let c = |begin_hour, end_hour, begin_week_day, end_week_day| ScrubConf {
            begin_hour,
            end_hour,
            begin_week_day,
            end_week_day,
            ..crate::config::Config::default().scrub
        };
        for (c, yes) in [
            (c(0, 0, 0, 0), true),
            (c(22, 6, 0, 0), true),
            (c(23, 6, 0, 0), false),
            (c(8, 23, 0, 0), true),
            (c(8, 22, 0, 0), false),
            (c(0, 24, 2, 3), true),
            (c(0, 0, 3, 2), false),
        ] {
            assert_eq!(c.is_time(at), yes, "{c:?}");
        }
    }
}
