//! `osd pool set` and `osd pool get` of what only cache tiers have.

use maps::{HitSetParams, PgPool};

use super::pool_set::{Shown, ratio, whole};
use super::{EACCES, EINVAL, Fail, fail, tier};
use crate::CommandCtx;

/// Settings of cache tiers only.
pub(super) const TIER_ONLY: &[&str] = &[
    "hit_set_type",
    "hit_set_period",
    "hit_set_count",
    "hit_set_fpp",
    "target_max_objects",
    "target_max_bytes",
    "cache_target_dirty_ratio",
    "cache_target_dirty_high_ratio",
    "cache_target_full_ratio",
    "cache_min_flush_age",
    "cache_min_evict_age",
    "min_read_recency_for_promote",
    "min_write_recency_for_promote",
    "hit_set_grade_decay_rate",
    "hit_set_search_last_n",
];

fn refuse<T>(why: impl Into<String>) -> Result<T, Fail> {
    Err(fail(EINVAL, why.into()))
}

/// A whole number from 0.
fn natural(var: &str, val: &str) -> Result<u32, Fail> {
    let n = whole(val)?;
    if n < 0 {
        return refuse(format!("{var} should be non-negative"));
    }
    u32::try_from(n).or_else(|_| refuse(format!("value '{val}' is out of range")))
}

/// A part of one, in millionths.
fn part(val: &str) -> Result<u32, Fail> {
    let f = ratio(val)?;
    if !(0.0..=1.0).contains(&f) {
        return refuse("value must be in the range 0..1");
    }
    Ok((f * 1e6).round() as u32)
}

/// Bytes, with a unit of 1024 where there is one.
fn bytes(val: &str) -> Result<u64, Fail> {
    cli::parse_iec(val).or_else(|why| refuse(format!("error parsing int '{val}': {why}")))
}

/// A count, with a unit of 1000 where there is one.
fn objects(val: &str) -> Result<u64, Fail> {
    cli::parse_si(val).or_else(|why| refuse(format!("error parsing int '{val}': {why}")))
}

/// Sets one of them, or `use_gmt_hitset`.
pub(super) fn apply(
    ctx: &CommandCtx<'_>,
    pool: &mut PgPool,
    var: &str,
    val: &str,
) -> Result<(), Fail> {
    if !pool.is_tier() {
        return Err(fail(EACCES, "(13) Permission denied"));
    }
    if var == "use_gmt_hitset" {
        if !matches!(val, "true" | "1") {
            return refuse("expecting value 'true' or '1'");
        }
        pool.use_gmt_hitset = true;
        return Ok(());
    }
    match var {
        "hit_set_type" => {
            let Some(params) = HitSetParams::from_name(val, tier::default_fpp(ctx)) else {
                return refuse(format!("unrecognized hit_set type '{val}'"));
            };
            pool.hit_set_params = params;
        }
        "hit_set_fpp" => {
            let f = ratio(val)?;
            if !(0.0..=1.0).contains(&f) {
                return refuse("hit_set_fpp should be in the range 0..1");
            }
            if !pool.hit_set_params.is_bloom() {
                return refuse(
                    "hit set is not of type Bloom; invalid to set a false positive rate!",
                );
            }
            pool.hit_set_params.set_fpp(f);
        }
        "hit_set_period" => pool.hit_set_period = natural(var, val)?,
        "hit_set_count" => pool.hit_set_count = natural(var, val)?,
        "hit_set_grade_decay_rate" => match natural(var, val)? {
            n @ 0..=100 => pool.hit_set_grade_decay_rate = n,
            _ => return refuse("value out of range,valid range is 0 - 100"),
        },
        "hit_set_search_last_n" => {
            let n = natural(var, val)?;
            if n > pool.hit_set_count {
                return refuse("value out of range,valid range is 0 - hit_set_count");
            }
            pool.hit_set_search_last_n = n;
        }
        "target_max_objects" => pool.target_max_objects = objects(val)?,
        "target_max_bytes" => pool.target_max_bytes = bytes(val)?,
        "cache_target_dirty_ratio" => pool.cache_target_dirty_ratio_micro = part(val)?,
        "cache_target_dirty_high_ratio" => {
            pool.cache_target_dirty_high_ratio_micro = part(val)?;
        }
        "cache_target_full_ratio" => pool.cache_target_full_ratio_micro = part(val)?,
        "cache_min_flush_age" => pool.cache_min_flush_age = natural(var, val)?,
        "cache_min_evict_age" => pool.cache_min_evict_age = natural(var, val)?,
        "min_read_recency_for_promote" => {
            pool.min_read_recency_for_promote = natural(var, val)?;
        }
        "min_write_recency_for_promote" => {
            pool.min_write_recency_for_promote = natural(var, val)?;
        }
        _ => return refuse(format!("unrecognized variable '{var}'")),
    }
    Ok(())
}

/// The value of one of them; `None` where it has none.
pub(super) fn shown(pool: &PgPool, var: &str) -> Option<Shown> {
    let int = |n: u64| Some(Shown::Int(n as i64));
    let part = |micro: u32| Some(Shown::Float(f64::from(micro) / 1e6));
    match var {
        "hit_set_type" => Some(Shown::Text(pool.hit_set_params.name().to_owned())),
        "hit_set_fpp" => part(pool.hit_set_params.bloom()?.fpp_micro),
        "hit_set_period" => int(pool.hit_set_period.into()),
        "hit_set_count" => int(pool.hit_set_count.into()),
        "hit_set_grade_decay_rate" => int(pool.hit_set_grade_decay_rate.into()),
        "hit_set_search_last_n" => int(pool.hit_set_search_last_n.into()),
        "target_max_objects" => int(pool.target_max_objects),
        "target_max_bytes" => int(pool.target_max_bytes),
        "cache_target_dirty_ratio" => part(pool.cache_target_dirty_ratio_micro),
        "cache_target_dirty_high_ratio" => part(pool.cache_target_dirty_high_ratio_micro),
        "cache_target_full_ratio" => part(pool.cache_target_full_ratio_micro),
        "cache_min_flush_age" => int(pool.cache_min_flush_age.into()),
        "cache_min_evict_age" => int(pool.cache_min_evict_age.into()),
        "min_read_recency_for_promote" => int(pool.min_read_recency_for_promote.into()),
        "min_write_recency_for_promote" => int(pool.min_write_recency_for_promote.into()),
        _ => None,
    }
}
