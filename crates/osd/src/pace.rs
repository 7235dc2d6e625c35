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
//! What answers usually take is learned in short pauses of the background. Those are at the
//! same wall time on all OSDs: the work of one is felt at others. An answer is compared with
//! ones of its kind (read or write, by size), so a change in what clients do is not taken for
//! a slowdown. Answers that waited for recovery itself do not count.
//!
//! A part that another OSD is asked for is paid when it is asked for. An answer that is late
//! by much stops the background for a moment, above its floor: requests have gathered.
//!
//! Who moves a part is not always who hears of it: with each message about one, OSDs tell
//! each other how long their clients wait, and the worse of both ends counts. Until all had
//! the time to say so, clients are presumed.
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
/// When background begins, they are presumed for so long: others may have some.
const DOUBT_NS: u64 = 200_000_000;
/// The pauses: how often, how long, and after how much of one the queues are empty, ms.
const PAUSE_EVERY_MS: u64 = 1_000;
const PAUSE_MS: u64 = 100;
const SETTLE_MS: u64 = 50;
/// Bytes a second at most when the background begins, or clients come: what was found right for
/// others, or under another profile, says nothing of these.
const RATE_FIRST: f64 = 32.0 * MIB;
/// No limit that is found is above this.
const RATE_MAX: f64 = 16_384.0 * MIB;
/// A part costs so many bytes beside its own.
const PART_COST: u64 = 16 << 10;
/// Parts of an object: without clients, and with.
const PART_ALONE: u64 = 4 << 20;
const PART_BESIDE: u64 = 512 << 10;
/// Between the begins of two copies of PGs beside clients, ms: each costs its OSDs turns as long
/// as the PG's log, and everybody two maps; of several in a row all that clients ask waits for.
const COPY_EVERY_MS: u64 = 100;
/// How much a part changes what the next are presumed to take.
const PART_SMOOTH: f64 = 0.125;
/// An answer counts as at most so many times the usual one: those that hang say nothing, but where one
/// of ten meets a flush that takes ten times as long, that is what clients feel. The same in pauses
/// and out of them: else what has a long tail seems slow where nothing disturbs it.
const OUTLIER: f64 = 12.0;
/// One that took so many times the usual is late: something has stopped, and requests have
/// gathered. The background leaves them the machine for so long; but it has its floor.
const LATE: f64 = 4.0;
const LATE_NS: u64 = 10_000_000;
/// So many answers in pauses give a mean, and the median of so many means is what is usual: a
/// burst of late ones in a pause is not.
const LEARN_MIN: u32 = 8;
const LEARNT: usize = 7;
/// How much a window changes what the slowdown is taken to be, when it has so many answers; fewer
/// say less.
const SMOOTH: f64 = 0.5;
const SAMPLES_SURE: f64 = 64.0;
/// A window changes the rate by the power `GAIN` of target to slowdown, within `STEP`. What it does
/// is felt two windows later, so more than this swings: from a third of what is right to twice it.
const GAIN: f64 = 0.4;
const STEP: (f64, f64) = (0.8, 1.12);
/// Who lets clients wait longer than so many times the usual wants speed.
const GENTLE_MAX: f64 = 5.0;
/// Where a durable write takes less than so long nothing waits in the device's cache: flushes do not pay
/// for what was written before them.
const FLUSH_DEAR_NS: u64 = 250_000;
/// What it takes is the least in so long: the others waited for something.
const LEAST_NS: u64 = 1_000_000_000;
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
            "balanced" => Some(of(1.45, 30.0)),
            "high_recovery_ops" => Some(of(2.5, 40.0)),
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
    /// The worst slowdown that other ends of its work told of; 0 for none.
    heard: f64,
    /// Bytes the background used.
    used: f64,
    /// It was held back.
    held: bool,
}

/// What answers of a kind take, ns.
#[derive(Clone, Copy, Debug, Default)]
struct Usual {
    /// 0 when not known.
    ns: f64,
    /// Answers in the present pause, or since there were enough.
    count: u32,
    sum_ns: f64,
    /// Means of pauses, the oldest first to go; and how many there were.
    means: [f64; LEARNT],
    learnt: usize,
}

impl Usual {
    /// Whether an answer to what came `at_ms` into a pause counts for what is usual: others paused
    /// too by then, and do as long as it counts.
    fn counts(&self, at_ms: u64) -> bool {
        let most_ms = (self.ns * OUTLIER / 1e6) as u64;
        at_ms >= SETTLE_MS && at_ms + most_ms.min((PAUSE_MS - SETTLE_MS) / 2) < PAUSE_MS
    }

    /// An answer that no background was beside; `sure` if others had none either.
    fn see(&mut self, took: f64, sure: bool) {
        let counted = took.min(if self.ns > 0.0 { self.ns * OUTLIER } else { f64::MAX });
        if sure {
            self.count += 1;
            self.sum_ns += counted;
        }
        if self.ns == 0.0 {
            self.ns = took;
        } else if self.learnt == 0 {
            self.ns += (counted - self.ns) / 32.0;
        }
    }

    /// A pause is over.
    fn learn(&mut self) {
        if self.count < LEARN_MIN {
            return;
        }
        self.means[self.learnt % LEARNT] = self.sum_ns / f64::from(self.count);
        self.learnt += 1;
        (self.count, self.sum_ns) = (0, 0.0);
        let mut means = self.means;
        let means = &mut means[..self.learnt.min(LEARNT)];
        means.sort_by(f64::total_cmp);
        self.ns = means[(means.len() - 1) / 2];
    }
}

/// See the module.
#[derive(Debug)]
pub struct Pace {
    rate: f64,
    tokens: f64,
    /// Bytes of parts that were asked for, lately.
    part: f64,
    filled_ns: u64,
    window: Window,
    /// By kind.
    usual: [Usual; 2 * SIZES],
    /// Of which pause that is, by the wall clock.
    pauses: u64,
    /// Clients are served here until then.
    clients_until_ns: u64,
    /// Others, whose parts come here or go there from here, serve some until then.
    heard_until_ns: u64,
    /// Requests have gathered, until then at least.
    late_until_ns: u64,
    /// The last part that was charged, and its bytes.
    charged: (u64, u64),
    /// The background did something last, and before that not for long.
    used_ns: u64,
    begun_ns: u64,
    next_start_ms: u64,
    next_copy_ms: u64,
    /// The last slowdown that was seen.
    slowdown: f64,
    waiting: BTreeSet<SpgId>,
    /// A transaction by its number, and when the store was given it.
    given: Option<(u64, u64)>,
    /// Transactions that were timed since the last report, and their times' sum in ns.
    took: (u64, u64),
    /// Their mean at the last report.
    latency_ns: u64,
    /// The least that one took to be durable, ns, now and in the window before.
    least_ns: [u64; 2],
    least_since_ns: u64,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            rate: RATE_FIRST,
            tokens: 0.0,
            part: PART_BESIDE as f64,
            filled_ns: 0,
            window: Window::default(),
            usual: [Usual::default(); 2 * SIZES],
            pauses: 0,
            clients_until_ns: 0,
            heard_until_ns: 0,
            late_until_ns: 0,
            charged: (0, 0),
            used_ns: 0,
            begun_ns: 0,
            next_start_ms: 0,
            next_copy_ms: 0,
            slowdown: 1.0,
            waiting: BTreeSet::new(),
            given: None,
            took: (0, 0),
            latency_ns: 0,
            least_ns: [u64::MAX; 2],
            least_since_ns: 0,
        }
    }
}

impl Pace {
    /// Whether clients are served here, or where the background's work is felt.
    #[must_use]
    pub fn has_clients(&self, now: Now) -> bool {
        self.knows_clients(now) || now.mono_ns < self.begun_ns + DOUBT_NS
    }

    /// As [`Pace::has_clients`], and they are not only presumed.
    fn knows_clients(&self, now: Now) -> bool {
        now.mono_ns < self.clients_until_ns.max(self.heard_until_ns)
    }

    /// There are clients, here or elsewhere; maybe after a while without.
    fn met(&mut self, now: Now) {
        if !self.knows_clients(now) {
            self.rate = self.rate.min(RATE_FIRST);
        }
    }

    /// What others are told: how many times as long as usual clients wait here, in hundredths;
    /// 0 when none are served here.
    #[must_use]
    pub fn felt(&self, now: Now) -> u16 {
        let served = now.mono_ns < self.clients_until_ns;
        if served { (self.slowdown * 100.0).clamp(100.0, 10_000.0) as u16 } else { 0 }
    }

    /// Another OSD, with which parts are exchanged, has told its [`Pace::felt`].
    pub fn hear(&mut self, felt: u16, now: Now) {
        if felt > 0 {
            self.met(now);
            self.heard_until_ns = now.mono_ns + GONE_NS;
            self.window.heard = self.window.heard.max(f64::from(felt) / 100.0);
        }
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

    /// Whether parts are written ahead, in small steps: what nobody is to wait for takes longer so,
    /// and where flushes are cheap it only costs.
    #[must_use]
    pub fn is_gentle(&self, conf: &PaceConf, now: Now) -> bool {
        let dear = self.least_ns[0].min(self.least_ns[1]) >= FLUSH_DEAR_NS;
        conf.target <= GENTLE_MAX && dear && self.has_clients(now)
    }

    /// The store was given transaction `number`.
    pub fn on_given(&mut self, number: u64, now: Now) {
        self.given.get_or_insert((number, now.mono_ns));
    }

    /// All transactions up to `number` are durable.
    pub fn on_durable(&mut self, number: u64, now: Now) {
        let Some((_, at)) = self.given.take_if(|given| given.0 <= number) else { return };
        if now.mono_ns >= self.least_since_ns + LEAST_NS {
            self.least_ns = [u64::MAX, self.least_ns[0]];
            self.least_since_ns = now.mono_ns;
        }
        let took = now.mono_ns.saturating_sub(at);
        self.least_ns[0] = self.least_ns[0].min(took);
        self.took = (self.took.0 + 1, self.took.1.saturating_add(took));
    }

    /// How long a transaction takes to become durable, ns: the mean since the last call, or the one
    /// before where nothing was written. One is timed at a time.
    pub fn commit_latency_ns(&mut self) -> u64 {
        let (count, sum_ns) = std::mem::take(&mut self.took);
        self.latency_ns = sum_ns.checked_div(count).unwrap_or(self.latency_ns);
        self.latency_ns
    }

    /// Whether another part may go.
    pub fn may(&mut self, conf: &PaceConf, now: Now) -> bool {
        self.roll(conf, now);
        self.begin(now);
        let rate = self.rate(conf, now);
        let paused = self.knows_clients(now) && pause(now).is_some();
        if rate.is_finite() {
            let past = now.mono_ns.saturating_sub(self.filled_ns) as f64 / 1e9;
            let most = (rate * 0.02).max(1.0);
            // What was moved while there was no limit is not paid for long.
            self.tokens = (self.tokens.max(-rate) + rate * past).min(most);
        } else {
            self.tokens = 1.0;
        }
        self.filled_ns = now.mono_ns;
        let (at, bytes) = self.charged;
        let fed = now.mono_ns.saturating_sub(at) as f64 / 1e9 * conf.floor < bytes as f64;
        let late = now.mono_ns < self.late_until_ns && fed;
        let may = !paused && !late && self.tokens > 0.0;
        self.window.held |= !may && !paused && !late;
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

    /// Whether another PG may begin to be copied to where it should be.
    #[must_use]
    pub fn may_copy(&self, now: Now) -> bool {
        now.mono_ms() >= self.next_copy_ms || !self.has_clients(now)
    }

    /// A PG begins to be copied.
    pub fn copy_begun(&mut self, now: Now) {
        self.next_copy_ms = now.mono_ms() + COPY_EVERY_MS;
    }

    /// A part of so many bytes goes.
    pub fn charge(&mut self, bytes: u64, now: Now) {
        self.tokens -= (bytes + PART_COST) as f64;
        self.charged = (now.mono_ns, bytes + PART_COST);
        self.feel(bytes, now);
    }

    /// A part is asked of another OSD, that will take what parts took lately: the bytes that are
    /// presumed. Charged at once: a part that is paid when it comes lets others pass before.
    pub fn ask(&mut self, now: Now) -> u64 {
        let bytes = (self.part as u64).min(self.part_bytes(now));
        self.charge(bytes, now);
        bytes
    }

    /// What was asked for has come, or will not.
    pub fn came(&mut self, asked: u64, bytes: u64, now: Now) {
        let more = bytes as f64 - asked as f64;
        self.tokens -= more;
        self.window.used = (self.window.used + more).max(0.0);
        self.used_ns = now.mono_ns;
        self.part += (bytes as f64 - self.part) * PART_SMOOTH;
    }

    /// So many bytes were moved that another OSD asked for: it limits itself, and clients of
    /// this one feel it.
    pub fn feel(&mut self, bytes: u64, now: Now) {
        self.begin(now);
        self.window.used += (bytes + PART_COST) as f64;
        self.used_ns = now.mono_ns;
    }

    /// The background works now.
    fn begin(&mut self, now: Now) {
        if now.mono_ns > self.used_ns.max(self.begun_ns) + GONE_NS {
            self.begun_ns = now.mono_ns;
            self.rate = self.rate.min(RATE_FIRST);
        }
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
        let number = now.wall_ns / (PAUSE_EVERY_MS * 1_000_000);
        if std::mem::replace(&mut self.pauses, number) != number {
            self.usual.iter_mut().for_each(Usual::learn);
        }
        let came_wall = Now { wall_ns: now.wall_ns.saturating_sub(took as u64), ..now };
        let quiet = came_ns > self.used_ns.saturating_add(SETTLE_MS * 2_000_000);
        let usual = &mut self.usual[kind(writes, bytes)];
        let sure = pause(came_wall).is_some_and(|at| usual.counts(at));
        if sure || quiet {
            usual.see(took, sure);
        } else if usual.ns > 0.0 {
            if took > usual.ns * LATE {
                self.late_until_ns = now.mono_ns + LATE_NS;
            }
            self.window.answers += 1;
            self.window.took_ns += took.min(usual.ns * OUTLIER);
            self.window.usual_ns += usual.ns;
        }
        self.roll(conf, now);
    }

    /// Ends the window when it is time, and draws its conclusion.
    fn roll(&mut self, conf: &PaceConf, now: Now) {
        let w = &self.window;
        let age = now.mono_ns.saturating_sub(w.began_ns);
        let known = w.answers >= SAMPLES_MIN || w.heard > 0.0;
        if w.all_ns / age.max(WINDOW_NS) as f64 >= LOAD_MIN {
            self.met(now);
            self.clients_until_ns = now.mono_ns + GONE_NS;
        }
        if age < WINDOW_NS || (age < WINDOW_MAX_NS && !known) {
            return;
        }
        let w = std::mem::take(&mut self.window);
        self.window.began_ns = now.mono_ns;
        self.rate = self.rate.max(conf.floor);
        let own = if w.usual_ns > 0.0 && w.used > 0.0 { w.took_ns / w.usual_ns } else { 0.0 };
        let seen = if own > 0.0 { own } else { 1.0 };
        let sure = (f64::from(w.answers) / SAMPLES_SURE).clamp(0.1, 1.0);
        self.slowdown += (seen - self.slowdown) * SMOOTH * sure;
        let worst = self.slowdown.max(w.heard);
        if own.max(w.heard) == 0.0 || w.used == 0.0 {
            return;
        }
        let (rate, used) = (self.rate / MIB, w.used / MIB);
        tracing::debug!(own, heard = w.heard, answers = w.answers, used, rate, "pace");
        let step = (conf.target / worst).powf(GAIN).clamp(STEP.0, STEP.1);
        // No limit is raised that was not felt.
        if step < 1.0 || w.held {
            self.rate = (self.rate * step).min(RATE_MAX).max(conf.floor);
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
    /// moved in the last 50 ms. Gives the background's bytes a second over the last 10 s and
    /// what answers took on average in them, ms.
    fn live(conf: &PaceConf, clients: bool, per_mib: f64) -> (f64, f64) {
        let mut pace = Pace::default();
        let (mut sent, mut took) = (Vec::<(u64, u64)>::new(), Vec::new());
        for ms in 0..30_000u64 {
            let recent: u64 = sent.iter().rev().take_while(|s| s.0 + 50 > ms).map(|s| s.1).sum();
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
            [("high_client_ops", 2.2, 2.6), ("balanced", 2.6, 3.1), ("high_recovery_ops", 4.0, 5.4)]
        {
            let conf = PaceConf::profile(name).unwrap();
            let (rate, took) = live(&conf, true, 0.4);
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

    /// What one recovery was given says nothing of the next, nor of clients that come later.
    #[test]
    fn what_begins_begins_slowly() {
        let conf = PaceConf::default();
        let most = RATE_FIRST * 1.2 + PART_BESIDE as f64;
        let sent = |pace: &mut Pace, from: u64| {
            let mut sent = 0;
            for ms in from..from + 200 {
                pace.hear(100, at(ms));
                while pace.may(&conf, at(ms)) {
                    let bytes = pace.part_bytes(at(ms));
                    pace.charge(bytes, at(ms));
                    sent += bytes;
                }
            }
            sent as f64 * 5.0
        };
        // Clients and background were there last at `clients` and `used`; no pause is near.
        let begun = 5_200;
        let busy = |clients: u64, used: u64| {
            let mut pace = Pace::default();
            pace.hear(100, at(clients));
            (pace.rate, pace.used_ns) = (4_000.0 * MIB, at(used).mono_ns);
            sent(&mut pace, begun)
        };
        assert!(busy(begun - 100, begun - 100) > 3_000.0 * MIB, "it goes on");
        assert!(busy(begun - 100, begun - 2_000) < most, "it begins");
        assert!(busy(begun - 2_000, begun - 100) < most, "clients come");
    }

    /// Copies begin apart from one another where there are clients, and at once where there are
    /// none.
    #[test]
    fn copies_begin_one_by_one() {
        let mut pace = Pace::default();
        assert!(pace.may_copy(at(5_000)));
        pace.copy_begun(at(5_000));
        assert!(pace.may_copy(at(5_000)), "nobody would feel it");
        pace.hear(100, at(5_000));
        assert!(!pace.may_copy(at(5_000)) && !pace.may_copy(at(5_000 + COPY_EVERY_MS - 1)));
        assert!(pace.may_copy(at(5_000 + COPY_EVERY_MS)));
    }

    /// A floor may be above all limits that are found: an operator can say so of a disk.
    #[test]
    fn a_floor_may_be_high() {
        let conf = PaceConf { floor: 2.0 * RATE_MAX, ..PaceConf::default() };
        let (rate, _) = live(&conf, true, 1.0);
        assert!(rate > 400.0 * MIB, "{rate}");
    }

    /// However much clients feel it, it ends some day.
    #[test]
    fn the_floor_is_kept() {
        let conf = PaceConf::default();
        let (rate, _) = live(&conf, true, 1_000.0);
        assert!((conf.floor * 0.8..conf.floor * 1.3).contains(&rate), "{rate}");
    }

    /// An OSD that no client asks anything is held by what others tell it, from its first part
    /// on; and goes as fast as it can once they tell nothing any more.
    #[test]
    fn what_others_tell_counts() {
        let (mut pace, conf) = (Pace::default(), PaceConf::default());
        let mut sent = [0; 6];
        for ms in 5_000..11_000u64 {
            if ms < 8_000 && ms % 20 == 0 {
                pace.hear(200, at(ms));
            }
            if pace.may(&conf, at(ms)) {
                let bytes = pace.part_bytes(at(ms));
                pace.charge(bytes, at(ms));
                sent[ms as usize / 1_000 - 5] += bytes;
            }
        }
        let sent = sent.map(|bytes| bytes >> 20);
        assert!((1..=32).contains(&sent[0]), "{sent:?}");
        let floor = (conf.floor / MIB) as u64;
        assert!((floor * 3 / 4..=floor).contains(&sent[2]), "at the floor: {sent:?}");
        assert!(sent[5] > 3_000, "{sent:?}");
    }

    const BEGUN_MS: u64 = 6_000 + PAUSE_MS;

    /// Clients at 8 MiB/s of background, and what was moved from then on in steps of 10 ms: the
    /// first 90 are between two pauses.
    fn moved(steps: u64, mut each: impl FnMut(&mut Pace, u64) -> u64) -> Vec<u64> {
        let mut pace = Pace { rate: 8.0 * MIB, ..Pace::default() };
        for ms in BEGUN_MS - 1_000..BEGUN_MS {
            let came = ms * 1_000_000 - 2_000_000;
            pace.on_answer(&PaceConf::default(), (true, 4096), came, at(ms));
        }
        pace.rate = 8.0 * MIB;
        (0..steps)
            .map(|step| (0..10).map(|n| each(&mut pace, BEGUN_MS + step * 10 + n)).sum())
            .collect()
    }

    /// Parts that are asked for are paid then: not as many at once as there are objects to ask
    /// for, and small ones as what they are.
    #[test]
    fn what_is_asked_for_is_paid_at_once() {
        let conf = PaceConf { floor: 8.0 * MIB, ..PaceConf::default() };
        for (size, most) in [(PART_BESIDE, PART_BESIDE), (4096, 80 << 10)] {
            let mut coming: Vec<(u64, u64)> = Vec::new();
            let sent = moved(90, |pace, ms| {
                while let Some((_, asked)) = coming.pop_if(|c| c.0 + 3 <= ms) {
                    pace.came(asked, size, at(ms));
                }
                let mut bytes = 0;
                while coming.len() < 4 && pace.may(&conf, at(ms)) {
                    coming.insert(0, (ms, pace.ask(at(ms))));
                    bytes += size;
                }
                bytes
            });
            let later = &sent[50..];
            assert!(later.iter().all(|b| *b <= most), "{size}: {sent:?}");
            let costs = (size + PART_COST) as f64 / size as f64;
            let rate = later.iter().sum::<u64>() as f64 * 2.5 * costs;
            assert!((6.0 * MIB..10.0 * MIB).contains(&rate), "{size}: {rate}");
        }
    }

    /// When answers are late, the background waits until they are not, but keeps its floor.
    #[test]
    fn late_answers_hold_it_back() {
        let conf = PaceConf { floor: MIB, ..PaceConf::default() };
        let part = 64 << 10;
        let sent = moved(60, |pace, ms| {
            if (BEGUN_MS + 200..BEGUN_MS + 400).contains(&ms) {
                pace.on_answer(&conf, (true, 4096), ms * 1_000_000 - 10_000_000, at(ms));
                pace.rate = 8.0 * MIB; // what is looked at is not how the rate comes down
            }
            let may = pace.may(&conf, at(ms));
            if may {
                pace.charge(part, at(ms));
            }
            if may { part } else { 0 }
        });
        let of = |steps: std::ops::Range<usize>| sent[steps].iter().sum::<u64>() as f64 / MIB;
        assert!((1.2..1.8).contains(&of(0..20)), "8 MiB/s for 200 ms: {sent:?}");
        assert!((0.12..0.35).contains(&of(20..40)), "1 MiB/s: {sent:?}");
        assert!((0.8..1.8).contains(&of(41..60)), "goes on: {sent:?}");
    }

    /// A bad pause, or a bad time without background here, is not taken for what is usual.
    #[test]
    fn usual_is_not_what_one_bad_moment_takes() {
        let mut usual = Usual::default();
        (0..100).for_each(|_| usual.see(1e6, true));
        usual.learn();
        (0..500).for_each(|_| usual.see(50e6, false));
        (0..500).for_each(|_| usual.see(50e6, true));
        usual.learn();
        assert!(usual.ns <= 1.5e6, "{usual:?}");
        (0..100).for_each(|_| usual.see(1e6, true));
        usual.learn();
        assert!(usual.ns <= 1.25e6, "{usual:?}");
    }

    /// One answer of ten meets something slow, with background or without.
    #[test]
    fn a_long_tail_is_no_slowdown() {
        let (mut pace, conf) =
            (Pace::default(), PaceConf::profile("high_client_ops").expect("a profile"));
        let mut sent = 0;
        for ms in 5_000..25_000u64 {
            let took = if ms % 10 == 7 { 5_000_000 } else { 1_000_000 };
            let now = Now { mono_ns: ms * 1_000_000 + took, ..at(ms) };
            pace.on_answer(&conf, (true, 4096), ms * 1_000_000, now);
            if ms > 8_000 && pace.may(&conf, at(ms)) {
                pace.charge(PART_BESIDE, at(ms));
                sent += if ms >= 15_000 { PART_BESIDE } else { 0 };
            }
        }
        let rate = sent as f64 / 10.0;
        assert!(rate > 100.0 * MIB, "{}", rate / MIB);
    }

    /// Parts are written ahead where flushes are dear, or nobody knows yet: one that waited for
    /// others says nothing.
    #[test]
    fn it_is_gentle_where_flushes_are_dear() {
        let (mut pace, conf) = (Pace::default(), PaceConf::default());
        assert!(pace.is_gentle(&conf, at(0)));
        let mut number = 0;
        let mut gentle_after = |from: u64, to: u64, took: &dyn Fn(u64) -> u64| {
            for ms in from..to {
                number += 1;
                pace.hear(100, at(ms));
                pace.on_given(number, at(ms));
                pace.on_given(number + 1, at(ms)); // in the same group
                number += 1;
                let now = Now { mono_ns: at(ms).mono_ns + took(ms), ..at(ms) };
                pace.on_durable(number, now);
            }
            pace.is_gentle(&conf, at(to))
        };
        assert!(gentle_after(5_000, 5_001, &|_| 400_000));
        assert!(!gentle_after(5_001, 5_500, &|ms| if ms % 10 == 0 { 90_000 } else { 900_000 }));
        assert!(gentle_after(5_500, 8_000, &|_| 400_000), "the device has changed its ways");
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
