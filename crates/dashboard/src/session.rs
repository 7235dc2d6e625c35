//! Who is logged in, and who has tried too often. Without I/O: clock and chance are handed in.

use std::collections::BTreeMap;

use env::Random;

/// Sessions at once; the one that was idle longest makes room for a further one.
const SESSIONS_MAX: usize = 256;
/// Sessions of one account at once.
const ACCOUNT_SESSIONS_MAX: usize = 32;
/// Milliseconds without a request that end a session.
const IDLE_MS: u64 = 3_600_000;
/// Names and addresses of failed logins that are remembered.
const FAILURES_MAX: usize = 1_024;
/// Failed logins of one address, or to one account, before the next ones wait.
const FREE_FAILURES: u32 = 5;
/// The longest wait, in milliseconds; it begins with one second and doubles.
const WAIT_MS_MAX: u64 = 300_000;
/// Failures are forgotten after so many milliseconds.
const FORGET_MS: u64 = 900_000;
/// Longest text that a session keeps to be shown once.
const NOTE_BYTES_MAX: usize = 2_000;

/// 32 random bytes as hexadecimal digits.
fn token(rng: &mut dyn Random) -> String {
    let mut raw = [0; 32];
    rng.fill(&mut raw);
    raw.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Whether two texts are the same, in a time that does not tell where they differ.
#[must_use]
pub fn same(a: &str, b: &str) -> bool {
    let differs = a.bytes().zip(b.bytes()).fold(0, |known, (a, b)| known | (a ^ b));
    a.len() == b.len() && differs == 0
}

/// A login.
#[derive(Clone, Debug)]
pub struct Session {
    /// The name of the account that logged in.
    pub user: String,
    /// What forms carry, so that no other site can send them.
    pub csrf: String,
    /// What is shown on the next page, once.
    note: Option<String>,
    ends_ms: u64,
    seen_ms: u64,
}

/// All logins, by the SHA-256 of their tokens: the tokens themselves are with the browsers alone.
#[derive(Debug, Default)]
pub struct Sessions(BTreeMap<[u8; 32], Session>);

fn key(token: &str) -> [u8; 32] {
    auth::sha256(token.as_bytes())
}

impl Sessions {
    /// Begins a session, and returns its token. It ends after `ttl_ms`, or an hour without requests.
    pub fn begin(&mut self, user: &str, now_ms: u64, ttl_ms: u64, rng: &mut dyn Random) -> String {
        self.forget(now_ms);
        loop {
            let own = self.0.values().filter(|s| s.user == user).count();
            let of_account = own >= ACCOUNT_SESSIONS_MAX;
            if !of_account && self.0.len() < SESSIONS_MAX {
                break;
            }
            let candidates = self.0.iter().filter(|(_, s)| !of_account || s.user == user);
            let oldest = candidates.min_by_key(|(_, s)| s.seen_ms).map(|(key, _)| *key);
            self.0.remove(&oldest.expect("there is one when there are too many"));
        }
        let token = token(rng);
        let csrf = self::token(rng);
        let (user, ends_ms) = (user.to_owned(), now_ms.saturating_add(ttl_ms));
        let session = Session { user, csrf, note: None, ends_ms, seen_ms: now_ms };
        self.0.insert(key(&token), session);
        token
    }

    fn forget(&mut self, now_ms: u64) {
        self.0.retain(|_, s| now_ms < s.ends_ms && now_ms.saturating_sub(s.seen_ms) < IDLE_MS);
    }

    /// The session that a token is for, which is no longer idle.
    pub fn get(&mut self, token: &str, now_ms: u64) -> Option<Session> {
        self.forget(now_ms);
        let session = self.0.get_mut(&key(token))?;
        session.seen_ms = now_ms;
        Some(session.clone())
    }

    /// Whether a token's session goes on; that somebody asks for this is no request of its own.
    #[must_use]
    pub fn holds(&self, token: &str, now_ms: u64) -> bool {
        let own = self.0.get(&key(token));
        own.is_some_and(|s| now_ms < s.ends_ms && now_ms.saturating_sub(s.seen_ms) < IDLE_MS)
    }

    /// Keeps a text for the session's next page.
    pub fn note(&mut self, token: &str, mut text: String) {
        if let Some(session) = self.0.get_mut(&key(token)) {
            let end = text.floor_char_boundary(NOTE_BYTES_MAX.min(text.len()));
            text.truncate(end);
            session.note = Some(text);
        }
    }

    /// The text kept for the session's next page, once.
    pub fn take_note(&mut self, token: &str) -> Option<String> {
        self.0.get_mut(&key(token))?.note.take()
    }

    /// Ends a session.
    pub fn end(&mut self, token: &str) {
        self.0.remove(&key(token));
    }

    /// Ends all sessions of an account.
    pub fn end_all_of(&mut self, user: &str) {
        self.0.retain(|_, s| s.user != user);
    }

    /// Sessions at the moment.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[derive(Debug)]
struct Failed {
    count: u32,
    last_ms: u64,
    until_ms: u64,
}

/// Failed logins, by account and by address.
#[derive(Debug, Default)]
pub struct Logins(BTreeMap<String, Failed>);

impl Logins {
    fn keys(user: &str, from: &str) -> [String; 2] {
        [format!("user {user}"), format!("from {from}")]
    }

    /// How many milliseconds this account's next login from there has to wait; 0: none.
    #[must_use]
    pub fn wait_ms(&self, user: &str, from: &str, now_ms: u64) -> u64 {
        let known = Self::keys(user, from).into_iter().filter_map(|key| self.0.get(&key));
        known.map(|failed| failed.until_ms.saturating_sub(now_ms)).max().unwrap_or(0)
    }

    /// A login failed.
    pub fn failed(&mut self, user: &str, from: &str, now_ms: u64) {
        self.0.retain(|_, failed| now_ms.saturating_sub(failed.last_ms) < FORGET_MS);
        for key in Self::keys(user, from) {
            if !self.0.contains_key(&key) && self.0.len() >= FAILURES_MAX {
                let oldest = self.0.iter().min_by_key(|(_, failed)| failed.last_ms);
                let oldest = oldest.map(|(key, _)| key.clone());
                self.0.remove(&oldest.expect("there is one when there are too many"));
            }
            let known = Failed { count: 0, last_ms: 0, until_ms: 0 };
            let failed = self.0.entry(key).or_insert(known);
            failed.count = failed.count.saturating_add(1);
            failed.last_ms = now_ms;
            if let Some(over) = failed.count.checked_sub(FREE_FAILURES) {
                let wait = 1_000_u64.saturating_mul(1 << over.min(20)).min(WAIT_MS_MAX);
                failed.until_ms = now_ms + wait;
            }
        }
    }

    /// A login went well: the account's failures are forgotten, those of the address stay.
    pub fn succeeded(&mut self, user: &str) {
        let [of_user, _] = Self::keys(user, "");
        self.0.remove(&of_user);
    }
}

#[cfg(test)]
mod tests {
    use env::Seeded;

    use super::*;

    const DAY_MS: u64 = 86_400_000;

    #[test]
    fn sessions_end() {
        let (mut all, mut rng) = (Sessions::default(), Seeded(1));
        let idle = all.begin("a", 0, DAY_MS, &mut rng);
        let long = all.begin("a", 0, 2 * IDLE_MS, &mut rng);
        assert_ne!(idle, long);
        assert_eq!(idle.len(), 64);
        for at in (0..2 * IDLE_MS).step_by(IDLE_MS as usize / 2) {
            assert!(all.get(&long, at).is_some(), "{at}");
        }
        assert!(!all.holds(&idle, IDLE_MS + 1) && all.holds(&long, IDLE_MS + 1));
        assert!(all.get(&idle, IDLE_MS + 1).is_none(), "idle");
        assert!(all.get(&long, 2 * IDLE_MS).is_none(), "over");
        let one = all.begin("a", 0, DAY_MS, &mut rng);
        let other = all.begin("b", 0, DAY_MS, &mut rng);
        all.end_all_of("a");
        assert!(all.get(&one, 0).is_none() && all.get(&other, 0).is_some());
        all.end(&other);
        assert!(all.is_empty());
    }

    /// There are never more than the bound, and an account cannot push out all others.
    #[test]
    fn sessions_are_bounded() {
        let (mut all, mut rng) = (Sessions::default(), Seeded(1));
        let first = all.begin("other", 0, DAY_MS, &mut rng);
        for at in 1..1_000 {
            all.begin("a", at, DAY_MS, &mut rng);
        }
        assert_eq!(all.len(), ACCOUNT_SESSIONS_MAX + 1);
        assert!(all.get(&first, 1_000).is_some());
        for at in 0..1_000 {
            all.begin(&format!("u{at}"), 2_000 + at, DAY_MS, &mut rng);
        }
        assert_eq!(all.len(), SESSIONS_MAX);
    }

    #[test]
    fn notes_are_shown_once() {
        let (mut all, mut rng) = (Sessions::default(), Seeded(1));
        let token = all.begin("a", 0, DAY_MS, &mut rng);
        all.note(&token, "ü".repeat(NOTE_BYTES_MAX));
        assert_eq!(all.take_note(&token).map(|text| text.len()), Some(NOTE_BYTES_MAX));
        assert_eq!(all.take_note(&token), None);
    }

    #[test]
    fn who_guesses_waits() {
        let mut logins = Logins::default();
        for at in 0..u64::from(FREE_FAILURES) - 1 {
            logins.failed("admin", "10.0.0.1", at);
            assert_eq!(logins.wait_ms("admin", "10.0.0.1", at), 0);
        }
        logins.failed("admin", "10.0.0.1", 10);
        assert_eq!(logins.wait_ms("admin", "10.0.0.1", 10), 1_000);
        assert_eq!(logins.wait_ms("other", "10.0.0.1", 10), 1_000, "by address");
        assert_eq!(logins.wait_ms("admin", "10.0.0.2", 10), 1_000, "by account");
        assert_eq!(logins.wait_ms("other", "10.0.0.2", 10), 0);
        logins.failed("admin", "10.0.0.1", 2_000);
        assert_eq!(logins.wait_ms("admin", "10.0.0.1", 2_000), 2_000);
        for at in 0..100 {
            logins.failed("admin", "10.0.0.1", 3_000 + at);
        }
        assert_eq!(logins.wait_ms("admin", "10.0.0.1", 3_099), WAIT_MS_MAX);
        logins.succeeded("admin");
        assert_eq!(logins.wait_ms("admin", "10.0.0.2", 3_099), 0);
        assert!(logins.wait_ms("admin", "10.0.0.1", 3_099) > 0);
        for n in 0..5_000 {
            logins.failed(&format!("u{n}"), &format!("a{n}"), 4_000 + n);
        }
        assert!(logins.0.len() <= FAILURES_MAX);
        logins.failed("x", "y", 4_000 + DAY_MS);
        assert_eq!(logins.0.len(), 2, "old ones are forgotten");
    }

    #[test]
    fn texts_are_compared_whole() {
        assert!(same("abc", "abc") && same("", ""));
        assert!(!same("abc", "abd") && !same("abc", "ab") && !same("", "a"));
    }
}
