//! How other monitors fare: how far their clocks are from the leader's, and how much room their
//! disks have.
//!
//! The leader asks each monitor of the quorum every [`EVERY_MS`]; the question carries the leader's
//! own monotonic time, which comes back with the answer. Half of the time between is unknown, so a
//! clock counts as wrong by what is beyond all of it. The messages are of a kind of their own: a
//! monitor that does not know them leaves them unanswered.
//!
//! Source: the peer's `Monitor::handle_timecheck_leader`, `mon/HealthMonitor.cc`; the page is
//! `docs/protocols/quorum.md`.

use std::collections::BTreeMap;

use denc::{DecodeError, Features, Reader, Writer};
use env::Now;
use messages::Envelope;

use crate::links::own_message;
use crate::{HealthReport, HealthStatus, QuorumInfo};

/// A [`Vitals`] between monitors.
pub const VITALS: u16 = 0x8103;
/// Pause between two questions, ms: the peer's `mon_tick_interval`.
pub(crate) const EVERY_MS: u64 = 5_000;

/// Room for a monitor's data; bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Disk {
    /// Of the file system; 0 where it is not known.
    pub total: u64,
    /// Of that, free for this user.
    pub available: u64,
    /// What the monitor's data takes.
    pub data: u64,
}

/// A question of the leader, or its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vitals {
    /// From the leader.
    Ask {
        /// The leader's monotonic time, ns.
        stamp_ns: u64,
    },
    /// To the leader.
    Answer {
        /// As it was asked.
        stamp_ns: u64,
        /// The sender's wall clock, ns since 1970.
        wall_ns: u64,
        /// The sender's disk.
        disk: Disk,
    },
}

impl Vitals {
    /// As a message.
    #[must_use]
    pub fn envelope(&self) -> Envelope {
        let mut w = Writer::new(Features::ALL);
        match self {
            Self::Ask { stamp_ns } => {
                w.u8(1);
                w.u64(*stamp_ns);
            }
            Self::Answer { stamp_ns, wall_ns, disk } => {
                w.u8(2);
                for n in [*stamp_ns, *wall_ns, disk.total, disk.available, disk.data] {
                    w.u64(n);
                }
            }
        }
        own_message(VITALS, 0, w.finish())
    }

    /// Reads a message of the kind [`VITALS`]. What a later version appends is skipped.
    ///
    /// # Errors
    /// [`DecodeError`] where a field is cut off, or the kind is not known.
    pub fn decode(env: &Envelope) -> Result<Self, DecodeError> {
        let mut r = Reader::shared(&env.front);
        Ok(match r.u8()? {
            1 => Self::Ask { stamp_ns: r.u64()? },
            2 => Self::Answer {
                stamp_ns: r.u64()?,
                wall_ns: r.u64()?,
                disk: Disk { total: r.u64()?, available: r.u64()?, data: r.u64()? },
            },
            _ => {
                return Err(DecodeError::Invalid {
                    what: "vitals of a monitor",
                    rule: "their kind is known",
                });
            }
        })
    }
}

/// What one monitor said last.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Known {
    /// Its clock is ahead of the leader's by so much at least, seconds; negative where it is behind.
    pub skew_s: f64,
    /// From the question to the answer, seconds.
    pub latency_s: f64,
    /// Its disk.
    pub disk: Disk,
}

/// What the leader knows of all monitors, itself included.
#[derive(Clone, Debug, Default)]
pub struct Round {
    /// By name.
    pub known: BTreeMap<String, Known>,
    /// How often was asked.
    pub number: u64,
    /// When was asked last, monotonic ms.
    pub(crate) asked_ms: u64,
    /// Who has not answered yet, by name.
    pub(crate) awaited: std::collections::BTreeSet<String>,
}

impl Round {
    /// Takes an answer.
    pub(crate) fn take(&mut self, name: &str, now: Now, stamp_ns: u64, wall_ns: u64, disk: Disk) {
        let latency_s = now.mono_ns.saturating_sub(stamp_ns) as f64 / 1e9;
        let delta_s = wall_ns as f64 / 1e9 - now.wall_ns as f64 / 1e9;
        let bound = (delta_s.abs() - latency_s).max(0.0);
        let skew_s = if delta_s < 0.0 { -bound } else { bound };
        self.awaited.remove(name);
        self.known.insert(name.to_owned(), Known { skew_s, latency_s, disk });
    }
}

/// From when on monitors' clocks and disks are complained of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// `mon_clock_drift_allowed`, seconds.
    pub drift_s: f64,
    /// `mon_data_avail_warn`, percent.
    pub avail_warn: u64,
    /// `mon_data_avail_crit`, percent.
    pub avail_crit: u64,
    /// `mon_data_size_warn`, bytes.
    pub data_warn: u64,
}

/// Why a clock is wrong, or nothing.
pub(crate) fn skew_text(known: &Known, drift_s: f64) -> Option<String> {
    let text = |s: f64| cli::float_text(s, 6);
    let skew = known.skew_s.abs();
    (skew > drift_s).then(|| format!("clock skew {}s > max {}s", text(skew), text(drift_s)))
}

/// The checks of monitors' clocks and disks.
pub(crate) fn check(
    round: &Round,
    quorum: &QuorumInfo,
    bounds: &Bounds,
    report: &mut HealthReport,
) {
    if quorum.quorum.len() > 1 {
        check_clocks(round, bounds, report);
    }
    check_disks(round, bounds, report);
}

fn check_clocks(round: &Round, bounds: &Bounds, report: &mut HealthReport) {
    let (mut names, mut detail) = (Vec::new(), Vec::new());
    for (name, known) in &round.known {
        if let Some(why) = skew_text(known, bounds.drift_s) {
            names.push(format!("mon.{name}"));
            let latency = cli::float_text(known.latency_s, 6);
            detail.push(format!("mon.{name} {why} (latency {latency}s)"));
        }
    }
    if !detail.is_empty() {
        let summary = format!("clock skew detected on {}", names.join(", "));
        report.add("MON_CLOCK_SKEW", HealthStatus::Warn, detail.len(), summary, detail);
    }
}

fn check_disks(round: &Round, bounds: &Bounds, report: &mut HealthReport) {
    let (mut low, mut crit, mut big) = (Vec::new(), Vec::new(), Vec::new());
    for (name, Known { disk, .. }) in &round.known {
        if disk.total > 0 {
            let percent = (u128::from(disk.available) * 100 / u128::from(disk.total)) as u64;
            let line = (name.as_str(), format!("mon.{name} has {percent}% avail"));
            if percent <= bounds.avail_crit {
                crit.push(line);
            } else if percent <= bounds.avail_warn {
                low.push(line);
            }
        }
        if disk.data >= bounds.data_warn {
            let (data, max) = (cli::bytes_u(disk.data), cli::bytes_u(bounds.data_warn));
            big.push((name, format!("mon.{name} is {data} >= mon_data_size_warn ({max})")));
        }
    }
    let mut add = |code: &str, severity, lines: Vec<(&str, String)>, words: &str| {
        let (names, detail): (Vec<&str>, Vec<String>) = lines.into_iter().unzip();
        let (s, is) = if names.len() > 1 { ("s", "are") } else { ("", "is") };
        if !names.is_empty() {
            let summary = format!("mon{s} {} {is} {words}", names.join(","));
            report.add(code, severity, detail.len(), summary, detail);
        }
    };
    add("MON_DISK_CRIT", HealthStatus::Err, crit, "very low on available space");
    add("MON_DISK_LOW", HealthStatus::Warn, low, "low on available space");
    let big = big.into_iter().map(|(name, line)| (name.as_str(), line)).collect();
    add("MON_DISK_BIG", HealthStatus::Warn, big, "using a lot of disk space");
}

#[cfg(test)]
impl Default for Bounds {
    fn default() -> Self {
        Self { drift_s: 0.05, avail_warn: 30, avail_crit: 5, data_warn: 15 << 30 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Both messages read back as the same bytes; every cut-off copy is refused.
    #[test]
    fn messages_round_trip() {
        let disk = Disk { total: 9, available: 8, data: 7 };
        let answer = Vitals::Answer { stamp_ns: 1, wall_ns: 2, disk };
        for vitals in [Vitals::Ask { stamp_ns: 5 }, answer] {
            let env = vitals.envelope();
            assert_eq!(Vitals::decode(&env), Ok(vitals));
            for cut in 0..env.front.len() {
                let short = Envelope { front: env.front.slice(..cut), ..env.clone() };
                assert!(Vitals::decode(&short).is_err());
            }
        }
    }

    /// A clock is wrong by what the way there and back cannot explain.
    #[test]
    fn what_latency_explains_is_no_skew() {
        let mut round = Round::default();
        let now = Now { mono_ns: 10_400_000_000, wall_ns: 1_000_000_000_000 };
        let mut skew = |wall_ns| {
            round.take("b", now, 10_000_000_000, wall_ns, Disk::default());
            round.known["b"].skew_s
        };
        assert_eq!(skew(1_000_300_000_000), 0.0);
        assert_eq!(skew(999_700_000_000), 0.0);
        assert!((skew(1_001_400_000_000) - 1.0).abs() < 1e-6);
        assert!((skew(998_600_000_000) + 1.0).abs() < 1e-6);
    }
}
