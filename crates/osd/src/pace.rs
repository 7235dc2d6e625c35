//! How fast work in the background goes: recovery, copies, scrubs, snapshot trimming.
//!
//! Without clients it goes as fast as it can. While clients are served here it has so many
//! bytes a second, more as long as they do not feel it and less as soon as they do:
//!
//! ```text
//!   clients' answers took    slowdown = sum of what they took / sum of what such answers
//!   at most `target` times ─▶ rate up a little          usually take without background
//!   more ─────────────────▶ rate down, by how much more; never below `floor`
//! ```
//!
//! What answers usually take is learned while nothing goes on in the background, and in
//! short pauses of it. Those are at the same wall time on all OSDs: the work of one is felt at
//! others. An answer is compared with ones of its kind (read or write, by size), so a change
//! in what clients do is not taken for a slowdown. Answers that waited for recovery itself
//! do not count.
//!
//! A target is a share: of a disk that clients could use up, a slowdown of `t` leaves the
//! background `1 - 1/t`. Why this and not the peer's dmClock: `docs/adr/0015-pace.md`.

use std::collections::BTreeSet;

use env::Now;
use types::SpgId;

const MIB: f64 = (1 << 20) as f64;
/// Answers are summed up over so long, ns.
const WINDOW_NS: u64 = 200_000_000;
/// Fewer answers decide nothing yet; but after a second any do.
const SAMPLES_MIN: u32 = 8;
const WINDOW_MAX_NS: u64 = 1_000_000_000;
/// Clients count from so many requests in work on average.
const LOAD_MIN: f64 = 0.05;
/// They are gone after so long without.
const GONE_NS: u64 = 1_000_000_000;
/// The pauses: how often, how long, and after how much of one the queues are empty, ms.
const PAUSE_EVERY_MS: u64 = 4_000;
const PAUSE_MS: u64 = 200;
const SETTLE_MS: u64 = 60;
/// Bytes a second when clients are met for the first time.
const RATE_FIRST: f64 = 32.0 * MIB;
/// No limit that is found is above this.
const RATE_MAX: f64 = 16_384.0 * MIB;
/// A part costs so many bytes beside its own.
const PART_COST: u64 = 16 << 10;
/// Parts of an object: without clients, and with.
const PART_ALONE: u64 = 4 << 20;
const PART_BESIDE: u64 = 512 << 10;
/// An answer counts as at most so many times the usual one: single ones that hang say nothing.
const OUTLIER: f64 = 4.0;
/// Kinds of requests: by the power of two of their bytes, reads and writes.
const SIZES: usize = 24;

/// What an operator wants.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PaceConf {
    /// Answers may take so many times as long as without background.
    pub target: f64,
    /// Bytes a second that the background may always have.
    pub floor: f64,
    /// Bytes a second that it never exceeds, clients or not; infinite for none.
    pub ceiling: f64,
    /// Between the begins of two recoveries, ms.
    pub sleep_ms: u64,
}

impl PaceConf {
    /// The values of a profile by its name; `None` for `custom` and unknown ones.
    #[must_use]
    pub fn profile(name: &str) -> Option<Self> {
        let of = |target, floor_mib: f64| Self {
            target,
            floor: floor_mib * MIB,
            ceiling: f64::INFINITY,
            sleep_ms: 0,
        };
        match name {
            "high_client_ops" => Some(of(1.2, 4.0)),
            "balanced" => Some(of(1.5, 8.0)),
            "high_recovery_ops" => Some(of(2.5, 32.0)),
            _ => None,
        }
    }

    /// The profile `custom`: the background's share of `disk` bytes a second is its weight
    /// beside the clients'; `reserved` and `limit` are parts of the disk, 0 for none.
    #[must_use]
    pub fn custom(client: f64, background: f64, reserved: f64, limit: f64, disk: f64) -> Self {
        let share = background.max(0.0) / (client.max(0.0) + background.max(0.0)).max(1e-9);
        let part = |p: f64| p.clamp(0.0, 1.0) * disk;
        let target = 1.0 / (1.0 - share.clamp(0.05, 0.9));
        let floor = part(reserved).max(4.0 * MIB);
        let ceiling =
            if limit > 0.0 && limit < 1.0 { part(limit).max(floor) } else { f64::INFINITY };
        Self { target, floor, ceiling, sleep_ms: 0 }
    }
}

impl Default for PaceConf {
    fn default() -> Self {
        Self::profile("balanced").expect("a profile")
    }
}

#[derive(Debug, Default)]
struct Window {
    began_ns: u64,
    /// Answers whose usual time is known.
    answers: u32,
    took_ns: f64,
    usual_ns: f64,
    /// All answers.
    all_ns: f64,
    /// Bytes the background used.
    used: f64,
    /// It was held back.
    held: bool,
}

/// See the module.
#[derive(Debug)]
pub struct Pace {
    rate: f64,
    tokens: f64,
    filled_ns: u64,
    window: Window,
    /// What an answer of each kind takes, ns; 0 when not known.
    usual: [f64; 2 * SIZES],
    /// Clients are served here until then.
    clients_until_ns: u64,
    /// The background did something last.
    used_ns: u64,
    next_start_ms: u64,
    /// The last slowdown that was seen.
    slowdown: f64,
    waiting: BTreeSet<SpgId>,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            rate: RATE_FIRST,
            tokens: 0.0,
            filled_ns: 0,
            window: Window::default(),
            usual: [0.0; 2 * SIZES],
            clients_until_ns: 0,
            used_ns: 0,
            next_start_ms: 0,
            slowdown: 1.0,
            waiting: BTreeSet::new(),
        }
    }
}

impl Pace {
    /// Whether clients are served here.
    #[must_use]
    pub fn has_clients(&self, now: Now) -> bool {
        now.mono_ns < self.clients_until_ns
    }

    /// Bytes a second that the background has now; infinite without clients.
    #[must_use]
    pub fn rate(&self, conf: &PaceConf, now: Now) -> f64 {
        if self.has_clients(now) { self.rate.min(conf.ceiling) } else { conf.ceiling }
    }

    /// How many times as long as usual clients waited lately.
    #[must_use]
    pub fn slowdown(&self) -> f64 {
        self.slowdown
    }

    /// Bytes of data in one part of an object.
    #[must_use]
    pub fn part_bytes(&self, now: Now) -> u64 {
        if self.has_clients(now) { PART_BESIDE } else { PART_ALONE }
    }

    /// Whether another part may go.
    pub fn may(&mut self, conf: &PaceConf, now: Now) -> bool {
        self.roll(conf, now);
        let rate = self.rate(conf, now);
        let paused = self.has_clients(now) && pause(now).is_some();
        if rate.is_finite() {
            let past = now.mono_ns.saturating_sub(self.filled_ns) as f64 / 1e9;
            let most = (rate * 0.02).max(1.0);
            // What was moved while there was no limit is not paid for long.
            self.tokens = (self.tokens.max(-rate) + rate * past).min(most);
        } else {
            self.tokens = 1.0;
        }
        self.filled_ns = now.mono_ns;
        let may = !paused && self.tokens > 0.0;
        self.window.held |= !may && !paused;
        may
    }

    /// As [`Pace::may`], for another object.
    pub fn may_start(&mut self, conf: &PaceConf, now: Now) -> bool {
        now.mono_ms() >= self.next_start_ms && self.may(conf, now)
    }

    /// An object's recovery begins.
    pub fn started(&mut self, conf: &PaceConf, now: Now) {
        self.next_start_ms = now.mono_ms() + conf.sleep_ms;
    }

    /// A part of so many bytes goes.
    pub fn charge(&mut self, bytes: u64, now: Now) {
        self.tokens -= (bytes + PART_COST) as f64;
        self.feel(bytes, now);
    }

    /// So many bytes were moved that another OSD asked for: it limits itself, and clients of
    /// this one feel it.
    pub fn feel(&mut self, bytes: u64, now: Now) {
        self.window.used += (bytes + PART_COST) as f64;
        self.used_ns = now.mono_ns;
    }

    /// A client has its answer. `bytes` are what was written, or read.
    pub fn on_answer(
        &mut self,
        conf: &PaceConf,
        (writes, bytes): (bool, u64),
        came_ns: u64,
        now: Now,
    ) {
        let took = now.mono_ns.saturating_sub(came_ns) as f64;
        if took == 0.0 {
            return; // answered from memory at once: it says nothing
        }
        self.window.all_ns += took;
        let kind = kind(writes, bytes);
        let quiet = came_ns > self.used_ns.saturating_add(SETTLE_MS * 2_000_000)
            || self.has_clients(now) && {
                // Where in the pause it came.
                let age_ms = now.mono_ns.saturating_sub(came_ns) / 1_000_000;
                pause(now).is_some_and(|at| at >= SETTLE_MS + age_ms)
            };
        let usual = &mut self.usual[kind];
        if quiet {
            let weight = if *usual == 0.0 { 1.0 } else { 1.0 / 32.0 };
            let seen = if *usual == 0.0 { took } else { took.min(*usual * OUTLIER) };
            *usual += (seen - *usual) * weight;
        } else if *usual > 0.0 {
            self.window.answers += 1;
            self.window.took_ns += took.min(*usual * OUTLIER);
            self.window.usual_ns += *usual;
        }
        self.roll(conf, now);
    }

    /// Ends the window when it is time, and draws its conclusion.
    fn roll(&mut self, conf: &PaceConf, now: Now) {
        let w = &self.window;
        let age = now.mono_ns.saturating_sub(w.began_ns);
        if age < WINDOW_NS || (age < WINDOW_MAX_NS && w.answers < SAMPLES_MIN) {
            let load = w.all_ns / age.max(WINDOW_NS) as f64;
            if load >= LOAD_MIN {
                self.clients_until_ns = now.mono_ns + GONE_NS;
            }
            return;
        }
        let w = std::mem::take(&mut self.window);
        self.window.began_ns = now.mono_ns;
        if w.all_ns / age as f64 >= LOAD_MIN {
            self.clients_until_ns = now.mono_ns + GONE_NS;
        }
        self.rate = self.rate.max(conf.floor);
        if w.usual_ns == 0.0 || w.used == 0.0 {
            return;
        }
        self.slowdown = w.took_ns / w.usual_ns;
        if self.slowdown > conf.target {
            let step = (conf.target / self.slowdown).clamp(0.6, 0.97);
            self.rate = (self.rate * step).max(conf.floor);
        } else if w.held {
            // No limit is raised that was not felt.
            self.rate = (self.rate * 1.08 + MIB).min(RATE_MAX);
        }
    }

    /// The PG has work that may not go yet.
    pub fn wait(&mut self, pg: SpgId) {
        self.waiting.insert(pg);
    }

    /// A PG whose turn it is, when something may go.
    pub fn next_waiting(&mut self, conf: &PaceConf, now: Now, after: SpgId) -> Option<SpgId> {
        if self.waiting.is_empty() || !self.may_start(conf, now) {
            return None;
        }
        let next = self.waiting.range(after..).find(|pg| **pg != after);
        let pg = *next.or_else(|| self.waiting.first())?;
        self.waiting.remove(&pg);
        Some(pg)
    }
}

/// How long the pause that is now lasts already, ms.
fn pause(now: Now) -> Option<u64> {
    let at = now.wall_ns / 1_000_000 % PAUSE_EVERY_MS;
    (at < PAUSE_MS).then_some(at)
}

fn kind(writes: bool, bytes: u64) -> usize {
    let size = (u64::BITS - bytes.leading_zeros()) as usize;
    size.min(SIZES - 1) + if writes { SIZES } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Now {
        Now { mono_ns: ms * 1_000_000, wall_ns: ms * 1_000_000 }
    }

    /// An OSD whose answers take 2 ms, and `per_mib` ms more for each MiB that the background
    /// moved in the last 100 ms. Gives the background's bytes a second over the last 10 s and
    /// what answers took on average in them, ms.
    fn live(conf: &PaceConf, clients: bool, per_mib: f64) -> (f64, f64) {
        let mut pace = Pace::default();
        let (mut sent, mut took) = (Vec::<(u64, u64)>::new(), Vec::new());
        for ms in 0..30_000u64 {
            let recent: u64 = sent.iter().rev().take_while(|s| s.0 + 100 > ms).map(|s| s.1).sum();
            let ns = 2e6 + recent as f64 / MIB * per_mib * 1e6;
            if clients && ms % 2 == 0 {
                let now = Now { mono_ns: ms * 1_000_000 + ns as u64, ..at(ms) };
                pace.on_answer(conf, (true, 4096), ms * 1_000_000, now);
                if ms > 20_000 {
                    took.push(ns / 1e6);
                }
            }
            // A disk that moves a part each ms, from the fourth second on.
            if ms > 4_000 && pace.may(conf, at(ms)) {
                let bytes = pace.part_bytes(at(ms));
                pace.charge(bytes, at(ms));
                sent.push((ms, bytes));
            }
        }
        let bytes: u64 = sent.iter().filter(|s| s.0 > 20_000).map(|s| s.1).sum();
        (bytes as f64 / 10.0, took.iter().sum::<f64>() / took.len().max(1) as f64)
    }

    /// Nobody is in the way: all that the disk gives.
    #[test]
    fn full_speed_without_clients() {
        let (rate, _) = live(&PaceConf::default(), false, 1.0);
        assert!(rate > 3_900.0 * MIB, "{rate}");
    }

    /// Clients that feel it hold it where their answers take as long as the profile allows.
    #[test]
    fn a_profile_is_a_slowdown() {
        for (name, low, high) in
            [("high_client_ops", 2.2, 2.6), ("balanced", 2.6, 3.2), ("high_recovery_ops", 4.0, 5.4)]
        {
            let conf = PaceConf::profile(name).unwrap();
            let (rate, took) = live(&conf, true, 0.2);
            assert!((low..high).contains(&took), "{name}: {took} ms at {} MiB/s", rate / MIB);
            assert!(rate >= conf.floor, "{name}: {rate}");
        }
    }

    /// Clients that do not feel it do not hold it.
    #[test]
    fn what_nobody_feels_goes_on() {
        let (rate, took) = live(&PaceConf::default(), true, 0.0);
        assert!(rate > 200.0 * MIB, "{rate}");
        assert!(took < 2.1);
    }

    /// However much clients feel it, it ends some day.
    #[test]
    fn the_floor_is_kept() {
        let conf = PaceConf::default();
        let (rate, _) = live(&conf, true, 1_000.0);
        assert!((conf.floor * 0.8..conf.floor * 1.3).contains(&rate), "{rate}");
    }

    /// PGs that wait are asked in turn.
    #[test]
    fn turns() {
        let (mut pace, conf) = (Pace::default(), PaceConf::default());
        let pgs = [0, 1, 2].map(|ps| SpgId::from(types::PgId::new(1, ps)));
        pgs.iter().for_each(|pg| pace.wait(*pg));
        let mut last = pgs[0];
        let mut order = Vec::new();
        while let Some(pg) = pace.next_waiting(&conf, at(5_000), last) {
            order.push(pg);
            last = pg;
        }
        assert_eq!(order, [pgs[1], pgs[2], pgs[0]]);
    }
}
