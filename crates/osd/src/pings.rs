//! How long heartbeats take, by peer and network: averages, minima and maxima of minutes.
//!
//! Source: the peer's `OSD::HeartbeatInfo`, `OSD::handle_osd_ping`; like it, a side is told of from
//! its first full minute on.

use std::collections::VecDeque;

use env::Now;
use maps::{HeartbeatTimes, OsdMap, PingTimes};
use serde_json::{Value, json};
use types::{OsdId, UTime};

/// Minutes that are kept.
const MINUTES: usize = 15;
/// Of them, those that the three spans cover.
const SPANS: [usize; 3] = [1, 5, MINUTES];
const MINUTE_NS: u64 = 60_000_000_000;

/// Some pings of one side, microseconds.
#[derive(Clone, Copy, Debug)]
struct Minute {
    count: u64,
    sum: u64,
    min: u32,
    max: u32,
}

impl Default for Minute {
    fn default() -> Self {
        Self { count: 0, sum: 0, min: u32::MAX, max: 0 }
    }
}

/// Pings on one network.
#[derive(Clone, Debug, Default)]
struct Side {
    now: Minute,
    /// The newest first.
    past: VecDeque<Minute>,
    last: u32,
}

impl Side {
    fn add(&mut self, us: u32) {
        let m = &mut self.now;
        (m.count, m.sum) = (m.count + 1, m.sum + u64::from(us));
        (m.min, m.max) = (m.min.min(us), m.max.max(us));
        self.last = us;
    }

    fn end_minute(&mut self) {
        let minute = std::mem::take(&mut self.now);
        if minute.count > 0 {
            self.past.push_front(minute);
            self.past.truncate(MINUTES);
        }
    }

    fn times(&self) -> PingTimes {
        let mut t = PingTimes { last: self.last, ..PingTimes::default() };
        for (i, span) in SPANS.into_iter().enumerate() {
            let all = self.past.iter().take(span);
            let each = |m: &Minute| m.sum / m.count;
            let n = self.past.len().min(span).max(1) as u64;
            t.average[i] = (all.clone().map(each).sum::<u64>() / n) as u32;
            t.min[i] = all.clone().map(|m| m.min).min().unwrap_or(0);
            t.max[i] = all.map(|m| m.max).max().unwrap_or(0);
        }
        t
    }
}

/// Pings of one peer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pings {
    front: Side,
    back: Side,
    minute_ends_ns: u64,
    /// When the last minute ended, seconds since 1970; 0 before the first.
    updated_s: u32,
}

impl Pings {
    /// A ping was answered after `took_ns`.
    pub fn add(&mut self, now: Now, back: bool, took_ns: u64) {
        if self.minute_ends_ns == 0 {
            self.minute_ends_ns = now.mono_ns + MINUTE_NS;
        } else if now.mono_ns >= self.minute_ends_ns {
            self.minute_ends_ns = now.mono_ns + MINUTE_NS;
            self.front.end_minute();
            self.back.end_minute();
            self.updated_s = (now.wall_ns / 1_000_000_000) as u32;
        }
        let us = u32::try_from(took_ns / 1_000).unwrap_or(u32::MAX);
        if back { self.back.add(us) } else { self.front.add(us) }
    }

    /// What is told of it; `None` in its first minute.
    pub fn times(&self) -> Option<HeartbeatTimes> {
        let (front, back) = (self.front.times(), self.back.times());
        let times = HeartbeatTimes { last_update: self.updated_s, back, front };
        (self.updated_s > 0).then_some(times)
    }
}

/// The answer to `dump_osd_network`: heartbeats that take `threshold_us` and longer, the slowest
/// first.
pub(crate) fn dump<'a>(
    me: OsdId,
    map: &OsdMap,
    now: Now,
    grace_ms: u64,
    threshold_us: u64,
    peers: impl Iterator<Item = (OsdId, &'a Pings)>,
) -> Value {
    let mut all = Vec::new();
    for (osd, pings) in peers {
        let Some(times) = pings.times() else { continue };
        for (name, side) in [("back", times.back), ("front", times.front)] {
            let slowest = side.average.into_iter().max().unwrap_or(0);
            if u64::from(slowest) >= threshold_us {
                all.push((slowest, osd, name, times.last_update, side));
            }
        }
    }
    all.sort_by_key(|(slowest, osd, ..)| (std::cmp::Reverse(*slowest), *osd));
    let wall_s = now.wall_ns / 1_000_000_000;
    let entries = all.into_iter().map(|(_, osd, interface, at, side)| {
        let ms = |us: u32| json!(f64::from(us) / 1_000.0);
        let spans = |t: [u32; 3]| json!({ "1min": ms(t[0]), "5min": ms(t[1]), "15min": ms(t[2]) });
        let stale = map.is_down(osd) || wall_s > u64::from(at) + grace_ms * 60 / 1_000;
        json!({
            "last update": UTime { sec: at, nsec: 0 }.to_string(),
            "stale": stale,
            "from osd": me.0,
            "to osd": osd.0,
            "interface": interface,
            "average": spans(side.average),
            "min": spans(side.min),
            "max": spans(side.max),
            "last": ms(side.last),
        })
    });
    json!({ "threshold": threshold_us / 1_000, "entries": entries.collect::<Vec<_>>() })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Minutes are averaged each, and the three spans over them; the two networks apart.
    #[test]
    fn minutes_are_averaged() {
        let mut pings = Pings::default();
        let at = |s: u64| Now { mono_ns: s * 1_000_000_000, wall_ns: (1_000 + s) * 1_000_000_000 };
        for minute in 0..7 {
            assert_eq!(pings.times().is_some(), minute >= 2, "minute {minute}");
            for s in 0..10 {
                let now = at(10 + minute * 61 + s * 6);
                pings.add(now, false, (minute + 1) * 1_000_000);
                pings.add(now, true, 3_000_000 + s * 1_000_000);
            }
        }
        let times = pings.times().unwrap();
        assert_eq!(times.front.average, [6_000, 4_000, 3_500]);
        assert_eq!(times.front.min, [6_000, 2_000, 1_000]);
        assert_eq!(times.front.max, [6_000, 6_000, 6_000]);
        assert_eq!(times.front.last, 7_000);
        assert_eq!(times.back.average, [7_500; 3]);
        assert_eq!((times.back.min, times.back.max), ([3_000; 3], [12_000; 3]));
        let (me, map) = (OsdId(0), OsdMap::default());
        let told = |threshold| {
            dump(me, &map, at(500), 20_000, threshold, [(OsdId(1), &pings)].into_iter())
        };
        let all = told(0);
        assert_eq!(all["entries"].as_array().unwrap().len(), 2);
        assert_eq!(all["entries"][0]["interface"], "back");
        assert_eq!(all["entries"][0]["average"]["1min"], 7.5);
        assert_eq!(told(7_000)["entries"].as_array().unwrap().len(), 1);
    }
}
