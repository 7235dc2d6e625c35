//! What a gateway does beside requests: it deletes tails whose time has come, and applies lifecycle rules.

use std::rc::Rc;
use std::time::Duration;

use rgw_core::expiry::HINTS;
use rgw_core::gc::QUEUES;
use rgw_core::lifecycle::{Clock, LISTS};
use tokio::sync::watch;

use crate::server::Server;

/// When the workers work.
#[derive(Clone, Copy, Debug)]
pub struct Work {
    /// Between two passes over the queues of tails: `rgw_gc_processor_period`. `None`: never.
    pub gc_every: Option<Duration>,
    /// Seconds of a "day" of lifecycle rules: `rgw_lc_debug_interval`, else 86,400. `None`: rules are not applied here.
    pub day_s: Option<u64>,
    /// Between two passes over objects that end at a time of their own: `rgw_objexp_gc_interval`.
    pub end_every: Duration,
    /// Between two writes of the usage log: `rgw_usage_log_tick_interval`.
    pub usage_every: Duration,
    /// Minutes of the day between which rules are applied: `rgw_lifecycle_work_time`. Both zero: always.
    pub hours: (u32, u32),
}

impl Work {
    /// Reads `HH:MM-HH:MM`.
    #[must_use]
    pub fn parse_hours(text: &str) -> Option<(u32, u32)> {
        let minutes = |text: &str| {
            let (hours, minutes) = text.trim().split_once(':')?;
            let (hours, minutes): (u32, u32) = (hours.parse().ok()?, minutes.parse().ok()?);
            (hours < 24 && minutes < 60).then_some(hours * 60 + minutes)
        };
        let (from, to) = text.split_once('-')?;
        Some((minutes(from)?, minutes(to)?))
    }

    /// Whether rules are applied at this second since 1970, UTC.
    fn is_open(&self, now_s: u64) -> bool {
        let minute = (now_s % 86_400 / 60) as u32;
        match self.hours {
            (from, to) if from == to => true,
            (from, to) if from < to => (from..=to).contains(&minute),
            (from, to) => minute >= from || minute <= to,
        }
    }
}

/// Between two looks at the lists of lifecycles, where rules have days of 24 hours.
const LOOK_S: u64 = 60;

pub fn start(server: &Rc<Server>, work: Work, stop: &watch::Receiver<bool>) {
    if let Some(every) = work.gc_every {
        let (server, stop) = (server.clone(), stop.clone());
        tokio::task::spawn_local(async move { collect(&server, every, stop).await });
    }
    {
        let (server, stop) = (server.clone(), stop.clone());
        tokio::task::spawn_local(async move { end(&server, work.end_every, stop).await });
    }
    if let Some(day_s) = work.day_s {
        let (server, stop) = (server.clone(), stop.clone());
        tokio::task::spawn_local(async move { expire(&server, work, day_s, stop).await });
    }
}

/// Waits; `false` once the gateway stops.
async fn waits(how_long: Duration, stop: &mut watch::Receiver<bool>) -> bool {
    tokio::select! {
        () = tokio::time::sleep(how_long) => true,
        _ = stop.wait_for(|stop| *stop) => false,
    }
}

async fn collect(server: &Server, every: Duration, mut stop: watch::Receiver<bool>) {
    while waits(every, &mut stop).await {
        for n in 0..QUEUES {
            match server.gateway.collect_queue(n).await {
                Ok(0) => {}
                Ok(count) => tracing::debug!("gc.{n}: the tails of {count} objects are deleted"),
                Err(error) => tracing::warn!("gc.{n}: tails stay until the next pass: {error}"),
            }
            if *stop.borrow() {
                return;
            }
        }
    }
}

async fn end(server: &Server, every: Duration, mut stop: watch::Receiver<bool>) {
    while waits(every, &mut stop).await {
        for n in 0..HINTS {
            match server.gateway.end_objects(n).await {
                Ok(0) => {}
                Ok(count) => tracing::debug!("hints {n}: {count} objects have ended"),
                Err(error) => tracing::warn!("hints {n}: they wait for the next pass: {error}"),
            }
            if *stop.borrow() {
                return;
            }
        }
    }
}

async fn expire(server: &Server, work: Work, day_s: u64, mut stop: watch::Receiver<bool>) {
    let look = Duration::from_secs(day_s.min(LOOK_S));
    while waits(look, &mut stop).await {
        if day_s == 86_400 && !work.is_open(rt::now().wall_ns / 1_000_000_000) {
            continue;
        }
        for n in 0..LISTS {
            match server.gateway.lifecycle_pass(n, Clock { day_s }).await {
                Ok(done) if done == Default::default() => {}
                Ok(done) => tracing::info!(
                    "lc.{n}: {} removed, {} moved, {} uploads aborted, {} failed",
                    done.removed,
                    done.moved,
                    done.aborted,
                    done.failed
                ),
                Err(error) => tracing::warn!("lc.{n}: its rules wait for the next pass: {error}"),
            }
            if *stop.borrow() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hours() {
        assert_eq!(Work::parse_hours("00:00-06:00"), Some((0, 360)));
        for bad in ["", "0-6", "24:00-01:00", "00:60-01:00"] {
            assert_eq!(Work::parse_hours(bad), None, "{bad}");
        }
        let at = |hours, minute: u64| {
            let none = Duration::ZERO;
            Work { gc_every: None, day_s: None, usage_every: none, end_every: none, hours }
                .is_open(minute * 60)
        };
        assert!(at((0, 360), 60) && !at((0, 360), 400));
        assert!(at((1_380, 60), 1_400) && at((1_380, 60), 30) && !at((1_380, 60), 100));
        assert!(at((0, 0), 700));
    }
}
