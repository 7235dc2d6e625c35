//! Limits of requests and bytes per minute, of users and buckets: how they are stored, and how they are counted.
//!
//! ```text
//!   tokens: full at first, refilled evenly over a minute, never beyond the limit
//!   a request takes one of its kind at once, or is refused; its bytes are taken when they are known, also below zero
//! ```
//!
//! Each gateway counts by itself, as stock's do.
//!
//! Source: `rgw_ratelimit.h`, `rgw_common.h` (`RGWRateLimitInfo`), `rgw_zone.h` (`RGWPeriodConfig`).

use std::cell::RefCell;
use std::collections::BTreeMap;

use rgw_proto::{Code, Error, Result};
use types::{Bytes, DecodeError, Denc, Errno, Reader, Writer};

use crate::formats::{Pool, Quota};
use crate::gateway::{Gateway, decoded, failed};
use crate::objects::{Objects, Place, Step, Vector};

/// Nanoseconds in which empty tokens are full again: `rgw_ratelimit_interval`.
const FULL_NS: u128 = 60_000_000_000;
/// Users and buckets that are counted at once; beyond, those whose tokens are full are forgotten.
const COUNTED_MAX: usize = 10_000;

/// Most operations and bytes of a minute: `RGWRateLimitInfo`, `ENCODE_START(1, 1)`. 0 stands for no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ratelimit {
    /// Operations that write.
    pub write_ops: i64,
    /// Operations that read.
    pub read_ops: i64,
    /// Bytes of requests' bodies.
    pub write_bytes: i64,
    /// Bytes of answers' bodies.
    pub read_bytes: i64,
    /// Whether it is in force.
    pub is_enabled: bool,
}

impl Denc for Ratelimit {
    fn encode(&self, w: &mut Writer) {
        w.framed(1, 1, |w| {
            w.i64(self.write_ops);
            w.i64(self.read_ops);
            w.i64(self.write_bytes);
            w.i64(self.read_bytes);
            w.bool(self.is_enabled);
        });
    }

    fn decode(r: &mut Reader<'_>) -> std::result::Result<Self, DecodeError> {
        r.framed("RGWRateLimitInfo", 1, |r, _| {
            Ok(Self {
                write_ops: r.i64()?,
                read_ops: r.i64()?,
                write_bytes: r.i64()?,
                read_bytes: r.i64()?,
                is_enabled: r.bool()?,
            })
        })
    }
}

/// What holds for all of a zone group's users and buckets that have nothing of their own: `RGWPeriodConfig`.
///
/// Wire: `ENCODE_START(2, 1)`; v2 added the limits of rates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeriodConfig {
    /// Quotas of buckets and of users.
    pub quotas: [Quota; 2],
    /// Of each bucket.
    pub buckets: Ratelimit,
    /// Of each user.
    pub users: Ratelimit,
    /// Of all anonymous users together.
    pub anonymous: Ratelimit,
}

impl Denc for PeriodConfig {
    fn encode(&self, w: &mut Writer) {
        w.framed(2, 1, |w| {
            self.quotas.iter().for_each(|quota| quota.encode(w));
            for limit in [&self.buckets, &self.users, &self.anonymous] {
                limit.encode(w);
            }
        });
    }

    fn decode(r: &mut Reader<'_>) -> std::result::Result<Self, DecodeError> {
        r.framed("RGWPeriodConfig", 2, |r, v| {
            let quotas = [Denc::decode(r)?, Denc::decode(r)?];
            if v < 2 {
                return Ok(Self { quotas, ..Self::default() });
            }
            let (buckets, users) = (Denc::decode(r)?, Denc::decode(r)?);
            Ok(Self { quotas, buckets, users, anonymous: Denc::decode(r)? })
        })
    }
}

/// Tokens of one user or bucket, in billionths of an operation or byte.
#[derive(Clone, Copy, Debug)]
struct Tokens {
    at_ns: u64,
    ops: [i128; 2],
    bytes: [i128; 2],
}

const ONE: i128 = 1_000_000_000;

fn full(most: i64) -> i128 {
    i128::from(most.max(0)) * ONE
}

impl Tokens {
    fn of(limit: &Ratelimit, at_ns: u64) -> Self {
        Self {
            at_ns,
            ops: [full(limit.read_ops), full(limit.write_ops)],
            bytes: [full(limit.read_bytes), full(limit.write_bytes)],
        }
    }

    fn refill(&mut self, limit: &Ratelimit, now_ns: u64) {
        // Three minutes make up for all that can be owed.
        let passed = u128::from(now_ns.saturating_sub(self.at_ns)).min(3 * FULL_NS) as i128;
        self.at_ns = now_ns.max(self.at_ns);
        let most = Self::of(limit, 0);
        let all = self.ops.iter_mut().zip(most.ops).chain(self.bytes.iter_mut().zip(most.bytes));
        for (tokens, most) in all {
            *tokens = (*tokens + most * passed / FULL_NS as i128).min(most);
        }
    }

    fn is_full(&self, limit: &Ratelimit) -> bool {
        let most = Self::of(limit, 0);
        self.ops == most.ops && self.bytes == most.bytes
    }
}

/// Counts requests of users and buckets.
#[derive(Debug, Default)]
pub struct Limiter(RefCell<BTreeMap<String, (Ratelimit, Tokens)>>);

impl Limiter {
    /// Takes a token for a request of `who`, where its limit has one left.
    ///
    /// # Errors
    /// [`Code::SlowDown`].
    pub fn admit(&self, who: &str, limit: &Ratelimit, is_read: bool, now_ns: u64) -> Result<()> {
        if !limit.is_enabled {
            return Ok(());
        }
        let mut all = self.0.borrow_mut();
        if all.len() >= COUNTED_MAX && !all.contains_key(who) {
            for (limit, tokens) in all.values_mut() {
                tokens.refill(&limit.clone(), now_ns);
            }
            all.retain(|_, (limit, tokens)| !tokens.is_full(limit));
            if all.len() >= COUNTED_MAX {
                return Err(slow("the gateway"));
            }
        }
        let entry = all.entry(who.to_owned());
        let (known, tokens) = entry.or_insert_with(|| (*limit, Tokens::of(limit, now_ns)));
        if *known != *limit {
            (*known, *tokens) = (*limit, Tokens::of(limit, now_ns));
        }
        tokens.refill(limit, now_ns);
        let (n, ops, bytes) = match is_read {
            true => (0, limit.read_ops, limit.read_bytes),
            false => (1, limit.write_ops, limit.write_bytes),
        };
        let is_used_up = (ops > 0 && tokens.ops[n] < ONE) || (bytes > 0 && tokens.bytes[n] < 0);
        if is_used_up {
            return Err(slow(who));
        }
        if ops > 0 {
            tokens.ops[n] -= ONE;
        }
        Ok(())
    }

    /// Takes the bytes of a request that was admitted; or gives its token back, where it was not allowed after all.
    pub fn count(&self, who: &str, is_read: bool, bytes: u64, was_allowed: bool) {
        let mut all = self.0.borrow_mut();
        let Some((limit, tokens)) = all.get_mut(who) else { return };
        let n = usize::from(!is_read);
        let (ops, most) = match is_read {
            true => (limit.read_ops, limit.read_bytes),
            false => (limit.write_ops, limit.write_bytes),
        };
        if !was_allowed {
            tokens.ops[n] = (tokens.ops[n] + ONE).min(full(ops));
        } else if most > 0 {
            // Two minutes' worth at most are owed, as at stock's.
            tokens.bytes[n] = (tokens.bytes[n] - i128::from(bytes) * ONE).max(-2 * full(most));
        }
    }
}

fn slow(whose: &str) -> Error {
    Error::new(Code::SlowDown, format!("The rate limit of {whose} is used up: send it later."))
}

impl<O: Objects> Gateway<O> {
    async fn period_config_place(&self) -> Result<Place> {
        let root = Pool { name: ".rgw.root".into(), ns: String::new() };
        let vector = Vector::read().step(Step::Read(0, 4_096));
        let realm = match self.objects.operate(&Place::new(&root, "default.realm"), vector).await {
            Err(Errno::NOENT) => "default".to_owned(),
            other => {
                let data = other.and_then(|a| a.data(0)).map_err(failed("reading the realm"))?;
                decoded::<crate::formats::NamedId>(&data, "The realm")?.0
            }
        };
        Ok(Place::new(&root, format!("period_config.{realm}")))
    }

    /// What holds for all users and buckets that have nothing of their own.
    ///
    /// # Errors
    /// Of RADOS.
    pub async fn period_config(&self) -> Result<PeriodConfig> {
        let vector = Vector::read().step(Step::Read(0, 1 << 20));
        match self.objects.operate(&self.period_config_place().await?, vector).await {
            Err(Errno::NOENT) => Ok(PeriodConfig::default()),
            other => {
                let data = other.and_then(|a| a.data(0));
                decoded(
                    &data.map_err(failed("reading the period's configuration"))?,
                    "The period's configuration",
                )
            }
        }
    }

    /// Writes it.
    ///
    /// # Errors
    /// Of RADOS.
    pub async fn set_period_config(&self, config: &PeriodConfig) -> Result<()> {
        let at = self.period_config_place().await?;
        let data: Bytes = config.to_bytes();
        let vector = Vector::write().step(Step::Create(false)).step(Step::WriteFull(data));
        let written = self.objects.operate(&at, vector).await;
        written.map(drop).map_err(failed("writing the period's configuration"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// The bytes that stock 20.2.4 stored for `max-read-ops=5&max-write-ops=6&enabled=true`.
    #[test]
    fn what_stock_stores() {
        let limit =
            Ratelimit { write_ops: 6, read_ops: 5, is_enabled: true, ..Ratelimit::default() };
        let mut want = vec![1, 1, 33, 0, 0, 0, 6];
        want.extend([0; 7]);
        want.push(5);
        want.extend([0; 23]);
        want.push(1);
        assert_eq!(limit.to_bytes()[..], want[..]);
        let config = PeriodConfig { users: limit, ..PeriodConfig::default() };
        assert_eq!(PeriodConfig::decode(&mut Reader::shared(&config.to_bytes())).unwrap(), config);
    }

    #[test]
    fn operations_are_limited_and_come_back() {
        let limit = Ratelimit { read_ops: 2, is_enabled: true, ..Ratelimit::default() };
        let limiter = Limiter::default();
        let may = |who: &str, is_read, at| limiter.admit(who, &limit, is_read, at).is_ok();
        assert!(may("a", true, 0) && may("a", true, 0) && !may("a", true, SECOND));
        assert!(may("b", true, 0) && may("a", false, 0), "others, and other kinds");
        assert!(!may("a", true, 29 * SECOND) && may("a", true, 31 * SECOND));
        assert!(!may("a", true, 32 * SECOND));
        limiter.count("a", true, 0, false);
        assert!(may("a", true, 32 * SECOND), "a refused request gives its token back");
        assert!(
            may("a", true, 600 * SECOND)
                && may("a", true, 600 * SECOND)
                && !may("a", true, 600 * SECOND)
        );
        let off = Ratelimit { is_enabled: false, ..limit };
        assert!((0..10).all(|_| limiter.admit("a", &off, true, 600 * SECOND).is_ok()));
    }

    #[test]
    fn bytes_are_owed() {
        let limit = Ratelimit { write_bytes: 60, is_enabled: true, ..Ratelimit::default() };
        let limiter = Limiter::default();
        let may = |at| limiter.admit("a", &limit, false, at).is_ok();
        assert!(may(0));
        limiter.count("a", false, 1_000, true);
        assert!(!may(SECOND) && !may(119 * SECOND) && may(121 * SECOND));
    }

    /// What is counted has a bound, and idle ones make room.
    #[test]
    fn counted_are_bounded() {
        let limit = Ratelimit { read_ops: 1, is_enabled: true, ..Ratelimit::default() };
        let limiter = Limiter::default();
        for n in 0..COUNTED_MAX {
            limiter.admit(&n.to_string(), &limit, true, 0).unwrap();
        }
        assert!(limiter.admit("new", &limit, true, SECOND).is_err());
        assert!(limiter.admit("new", &limit, true, 61 * SECOND).is_ok());
        assert_eq!(limiter.0.borrow().len(), 1);
    }
}
