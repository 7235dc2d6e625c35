//! `osd pool set` and `osd pool get`.

use std::fmt::Write;

use cli::Formatter;
use conf::key;
use maps::{PgPool, PoolFlags, PoolOpt, PoolOptKind, PoolOpts};
use types::PoolId;

use super::tier_set::{self, TIER_ONLY};
use super::{
    EACCES, EINVAL, ENOENT, EOPNOTSUPP, EPERM, ERANGE, Fail, Run, change, ec, fail, out, pool,
};
use crate::CommandCtx;

/// Settings that are flags of the pool.
const FLAGS: &[(&str, PoolFlags)] = &[
    ("hashpspool", PoolFlags::HASHPSPOOL),
    ("nodelete", PoolFlags::NODELETE),
    ("nopgchange", PoolFlags::NOPGCHANGE),
    ("nosizechange", PoolFlags::NOSIZECHANGE),
    ("write_fadvise_dontneed", PoolFlags::WRITE_FADVISE_DONTNEED),
    ("noscrub", PoolFlags::NOSCRUB),
    ("nodeep-scrub", PoolFlags::NODEEP_SCRUB),
    ("eio", PoolFlags::EIO),
    ("bulk", PoolFlags::BULK),
];

const ERASURE_ONLY: &[&str] =
    &["erasure_code_profile", "allow_ec_overwrites", "allow_ec_optimizations"];

/// The order in which `get all` shows settings.
const ALL: &[&str] = &[
    "size",
    "min_size",
    "pg_num",
    "pgp_num",
    "crush_rule",
    "hashpspool",
    "allow_ec_overwrites",
    "nodelete",
    "nopgchange",
    "nosizechange",
    "write_fadvise_dontneed",
    "noscrub",
    "nodeep-scrub",
    "use_gmt_hitset",
    "erasure_code_profile",
    "fast_read",
    "scrub_min_interval",
    "scrub_max_interval",
    "deep_scrub_interval",
    "recovery_priority",
    "recovery_op_priority",
    "scrub_priority",
    "compression_mode",
    "compression_algorithm",
    "compression_required_ratio",
    "compression_max_blob_size",
    "compression_min_blob_size",
    "csum_type",
    "csum_max_block",
    "csum_min_block",
    "fingerprint_algorithm",
    "pg_autoscale_mode",
    "pg_num_min",
    "target_size_bytes",
    "target_size_ratio",
    "pg_autoscale_bias",
    "dedup_tier",
    "dedup_chunk_algorithm",
    "dedup_cdc_chunk_size",
    "eio",
    "bulk",
    "pg_num_max",
    "read_ratio",
    "allow_ec_optimizations",
];

const CSUM_TYPES: &[&str] =
    &["", "none", "xxhash32", "xxhash64", "crc32c", "crc32c_16", "crc32c_8"];

pub(super) fn switch(value: &str) -> Result<bool, Fail> {
    match value {
        "true" | "1" => Ok(true),
        "false" | "0" => Ok(false),
        _ => Err(fail(EINVAL, "expecting value 'true', 'false', '0', or '1'")),
    }
}

/// Whether a pool may have `allow_ec_optimizations`. `nonprimary_shards` stays empty, other
/// than with the peer: all our shards keep the whole log, so each may lead.
fn check_optimizations(ctx: &CommandCtx<'_>, pool: &PgPool) -> Result<(), Fail> {
    let (_, profile) = ec::stored(ctx.osdmap(), &pool.erasure_code_profile)?;
    if !profile.supports_optimizations() {
        return Err(fail(EINVAL, "ec optimizations not currently supported for pool profile."));
    }
    if !(u64::from(pool.stripe_width) / profile.k as u64).is_multiple_of(ec::STRIPE_UNIT_BEST) {
        return Err(fail(
            EINVAL,
            "stripe_unit must be divisible by 4096 to enable ec optimizations",
        ));
    }
    Ok(())
}

pub(super) fn whole(value: &str) -> Result<i64, Fail> {
    value.parse().map_err(|_| {
        let why = format!("Expected option value to be integer, got '{value}'");
        fail(EINVAL, format!("error parsing integer value '{value}': {why}"))
    })
}

pub(super) fn ratio(value: &str) -> Result<f64, Fail> {
    value.parse::<f64>().ok().filter(|v| v.is_finite()).ok_or_else(|| {
        fail(EINVAL, format!("error parsing floating point value '{value}': strict_strtod: expected double, got: '{value}'"))
    })
}

fn count(value: &str) -> Result<u32, Fail> {
    let n = whole(value)?;
    u32::try_from(n).map_err(|_| fail(EINVAL, format!("value '{value}' is out of range")))
}

pub(super) fn set(ctx: &mut CommandCtx<'_>) -> Run {
    let (id, old) = ctx.need_pool("pool")?;
    let var = ctx.cmd.str_or_empty("var")?.to_owned();
    let val = ctx.cmd.str_or_empty("val")?.to_owned();
    let mut inc = ctx.osd_change();
    let mut pool = old.clone();
    let sure = ctx.cmd.flag("yes_i_really_mean_it");
    apply(ctx, id, &mut pool, &var, &val, sure)?;
    let unset = val == "unset" && PoolOpts::key(&var).is_some();
    let said = match unset {
        true => format!("unset pool {id} {var}"),
        false => format!("set pool {id} {var} to {val}"),
    };
    pool.last_change = inc.epoch;
    inc.new_pools.insert(id, pool);
    change(inc, said)
}

#[allow(clippy::too_many_lines)]
fn apply(
    ctx: &CommandCtx<'_>,
    id: PoolId,
    pool: &mut PgPool,
    var: &str,
    val: &str,
    sure: bool,
) -> Result<(), Fail> {
    if TIER_ONLY.contains(&var) || var == "use_gmt_hitset" {
        return tier_set::apply(ctx, pool, var, val);
    }
    match var {
        "size" => {
            if pool.has_flag(PoolFlags::NOSIZECHANGE) {
                return Err(fail(
                    EPERM,
                    "pool size change is disabled; you must unset nosizechange flag for the pool first",
                ));
            }
            if pool.is_erasure() {
                return Err(fail(EOPNOTSUPP, "can not change the size of an erasure-coded pool"));
            }
            let n = whole(val)?;
            if n <= 0 || n > 10 {
                return Err(fail(EINVAL, "pool size must be between 1 and 10"));
            }
            if n == 1 {
                if !ctx.option(key::MON_ALLOW_POOL_SIZE_ONE) {
                    return Err(fail(EPERM, "configuring pool size as 1 is disabled by default."));
                }
                if !sure {
                    return Err(fail(
                        EPERM,
                        "WARNING: setting pool size 1 could lead to data loss without recovery. If you are *ABSOLUTELY CERTAIN* that is what you want, pass the flag --yes-i-really-mean-it.",
                    ));
                }
            }
            let n = n as u8;
            if n > pool.size {
                let map = ctx.osdmap();
                pool::check_pg_num(ctx, map, Some(id), pool.pg_num, u32::from(n), pool.crush_rule)?;
            }
            pool.size = n;
            // It follows at every change: a pool that once had one copy would acknowledge
            // writes on one for ever.
            pool.min_size = pool::default_min_size(ctx, n);
        }
        "min_size" => {
            if pool.has_flag(PoolFlags::NOSIZECHANGE) {
                return Err(fail(
                    EPERM,
                    "pool min size change is disabled; you must unset nosizechange flag for the pool first",
                ));
            }
            let n = whole(val)?;
            // Fewer shards than data chunks serve nothing.
            let least = match pool.is_erasure() {
                true => ec::stored(ctx.osdmap(), &pool.erasure_code_profile)?.1.k as i64,
                false => 1,
            };
            if n < least || n > i64::from(pool.size) {
                return Err(fail(
                    EINVAL,
                    format!(
                        "pool min_size must be between {least} and size, which is set to {}",
                        pool.size
                    ),
                ));
            }
            pool.min_size = n as u8;
        }
        "pg_num" | "pg_num_actual" => {
            if pool.has_flag(PoolFlags::NOPGCHANGE) {
                return Err(fail(
                    EPERM,
                    "pool pg_num change is disabled; you must unset nopgchange flag for the pool first",
                ));
            }
            let n = whole(val)?;
            let n = u32::try_from(n).unwrap_or(0);
            if n == pool.pg_num_target {
                return Ok(());
            }
            let bound = |name: &str| match pool.opts.get(name) {
                Some(PoolOpt::Int(n)) if *n > 0 => Some(*n),
                _ => None,
            };
            if let Some(max) = bound("pg_num_max").filter(|max| i64::from(n) > *max) {
                return Err(fail(EINVAL, format!("specified pg_num {n} > pg_num_max {max}")));
            }
            if let Some(min) = bound("pg_num_min").filter(|min| i64::from(n) < *min) {
                return Err(fail(EINVAL, format!("specified pg_num {n} < pg_num_min {min}")));
            }
            pool::check_pg_num(
                ctx,
                ctx.osdmap(),
                Some(id),
                n,
                u32::from(pool.size),
                pool.crush_rule,
            )?;
            crate::poolops::aim_pg_num(pool, n);
        }
        "pgp_num" | "pgp_num_actual" => {
            if pool.has_flag(PoolFlags::NOPGCHANGE) {
                return Err(fail(
                    EPERM,
                    "pool pgp_num change is disabled; you must unset nopgchange flag for the pool first",
                ));
            }
            let n = whole(val)?;
            if n <= 0 {
                return Err(fail(
                    EINVAL,
                    "specified pgp_num must > 0, but you set to ".to_owned() + val,
                ));
            }
            if n > i64::from(pool.pg_num_target) {
                return Err(fail(
                    EINVAL,
                    format!("specified pgp_num {n} > pg_num {}", pool.pg_num_target),
                ));
            }
            pool.pgp_num_target = n as u32;
            if var == "pgp_num_actual" {
                pool.pgp_num = pool.pg_num.min(n as u32);
            }
        }
        "pg_autoscale_mode" => {
            pool.pg_autoscale_mode = match val {
                "off" => 0,
                "warn" => 1,
                "on" => 2,
                _ => return Err(fail(EINVAL, format!("specified invalid mode {val}"))),
            };
        }
        "crush_rule" => {
            let map = ctx.osdmap();
            let rule = map.crush.rule_names().id(val).and_then(|r| u8::try_from(r).ok());
            let Some(rule) = rule else {
                return Err(fail(ENOENT, format!("crush rule {val} does not exist")));
            };
            if !map.crush.rule_serves(u32::from(rule), pool.kind.0) {
                return Err(fail(EINVAL, format!("crush rule {rule} type does not match pool")));
            }
            pool.crush_rule = rule;
        }
        "fast_read" => {
            if pool.is_replicated() {
                return Err(fail(EINVAL, "fast read is not supported in replication pool"));
            }
            pool.fast_read = switch(val)?;
        }
        "allow_ec_overwrites" | "allow_ec_optimizations" => {
            if !pool.is_erasure() {
                let what = if var == "allow_ec_overwrites" { "ec overwrites" } else { var };
                return Err(fail(
                    EINVAL,
                    format!("{what} can only be enabled for an erasure coded pool"),
                ));
            }
            let on = switch(val)?;
            let (flag, what) = match var {
                "allow_ec_overwrites" => (PoolFlags::EC_OVERWRITES, "ec overwrites"),
                _ => (PoolFlags::EC_OPTIMIZATIONS, var),
            };
            if !on && pool.has_flag(flag) {
                return Err(fail(EINVAL, format!("{what} cannot be disabled once enabled")));
            }
            if on && flag == PoolFlags::EC_OPTIMIZATIONS {
                check_optimizations(ctx, pool)?;
            }
            pool.flags.set(flag, on);
        }
        _ => {
            if let Some((_, flag)) = FLAGS.iter().find(|(name, _)| *name == var) {
                let on = switch(val)?;
                if var == "hashpspool" && !sure {
                    return Err(fail(
                        EPERM,
                        "are you SURE?  this will remap all placement groups in this pool, this triggers large data movement, pass --yes-i-really-mean-it if you really do.",
                    ));
                }
                pool.flags.set(*flag, on);
                return Ok(());
            }
            return set_option(ctx, pool, var, val);
        }
    }
    Ok(())
}

fn set_option(ctx: &CommandCtx<'_>, pool: &mut PgPool, var: &str, val: &str) -> Result<(), Fail> {
    let unknown = || fail(EINVAL, format!("unrecognized variable '{var}'"));
    let (_, kind) = PoolOpts::key(var).ok_or_else(unknown)?;
    if matches!(var, "read_lease_interval" | "pct_update_delay") {
        return Err(unknown());
    }
    if val == "unset" && kind == PoolOptKind::Str {
        pool.opts.unset(var);
        return Ok(());
    }
    match var {
        "compression_mode" if !["none", "passive", "aggressive", "force"].contains(&val) => {
            return Err(fail(EINVAL, format!("unrecognized compression mode '{val}'")));
        }
        "compression_algorithm"
            if !["", "none", "snappy", "zlib", "zstd", "lz4", "brotli"].contains(&val) =>
        {
            return Err(fail(EINVAL, format!("unrecognized compression_algorithm '{val}'")));
        }
        "compression_algorithm" if matches!(val, "zlib" | "brotli") => {
            return Err(fail(
                EINVAL,
                format!("compression_algorithm '{val}' is not built: one of snappy, zstd, lz4"),
            ));
        }
        "compression_required_ratio" if !(0.0..=1.0).contains(&ratio(val)?) => {
            return Err(fail(
                EINVAL,
                format!("compression_required_ratio is out of range (0-1): '{val}'"),
            ));
        }
        "target_size_ratio" if ratio(val)? < 0.0 => {
            return Err(fail(EINVAL, "target_size_ratio cannot be negative"));
        }
        "recovery_priority" if !(-10..=10).contains(&whole(val)?) => {
            return Err(fail(EINVAL, "pool recovery_priority must be between -10 and 10"));
        }
        "pg_autoscale_bias" if !(0.0..=1000.0).contains(&ratio(val)?) => {
            return Err(fail(EINVAL, "pg_autoscale_bias must be between 0 and 1000"));
        }
        "fingerprint_algorithm" if !["none", "sha1", "sha256", "sha512"].contains(&val) => {
            return Err(fail(EINVAL, format!("unrecognized fingerprint_algorithm '{val}'")));
        }
        "dedup_chunk_algorithm" if !["fastcdc", "fixed"].contains(&val) => {
            return Err(fail(EINVAL, format!("unrecognized dedup_chunk_algorithm '{val}'")));
        }
        "read_ratio" if !pool.is_replicated() => {
            return Err(fail(EACCES, "(13) Permission denied"));
        }
        "read_ratio" if !(0..=100).contains(&whole(val)?) => {
            return Err(fail(ERANGE, "read_ratio must be between 0 and 100"));
        }
        _ => {}
    }
    let value = match (var, kind) {
        ("csum_type", _) => {
            let at = CSUM_TYPES.iter().position(|t| *t == val && !t.is_empty());
            PoolOpt::Int(
                at.ok_or_else(|| fail(EINVAL, format!("unrecognized csum_type '{val}'")))? as i64,
            )
        }
        ("dedup_tier", _) => {
            let at = ctx.osdmap().pool_by_name(val);
            PoolOpt::Int(at.ok_or_else(|| fail(EINVAL, "expecting value 'pool name'"))?.0)
        }
        (
            "target_size_bytes"
            | "compression_max_blob_size"
            | "compression_min_blob_size"
            | "csum_max_block"
            | "csum_min_block",
            _,
        ) => {
            let n = cli::parse_iec(val)
                .map_err(|why| fail(EINVAL, format!("error parsing unit value '{val}': {why}")))?;
            PoolOpt::Int(i64::try_from(n).map_err(|_| fail(EINVAL, "value is too large"))?)
        }
        (_, PoolOptKind::Int) => PoolOpt::Int(whole(val)?),
        (_, PoolOptKind::Double) => PoolOpt::Double(ratio(val)?),
        (_, PoolOptKind::Str) => PoolOpt::Str(val.to_owned()),
    };
    if matches!(var, "pg_num_min" | "pg_num_max") {
        let (n, now) = (count(val)?, pool.pg_num_target);
        if n > 0 && var == "pg_num_max" && n < now {
            return Err(fail(EINVAL, format!("specified pg_num_max {n} < pg_num {now}")));
        }
        if var == "pg_num_min" && n > now {
            return Err(fail(EINVAL, format!("specified pg_num_min {n} > pg_num {now}")));
        }
    }
    // Zero takes these options away again.
    let zero =
        matches!(&value, PoolOpt::Int(0)) || matches!(&value, PoolOpt::Double(d) if *d == 0.0);
    if zero && kind != PoolOptKind::Str {
        pool.opts.unset(var);
    } else {
        pool.opts.set(var, value);
    }
    Ok(())
}

/// A setting's value, as it is shown.
pub(super) enum Shown {
    Int(i64),
    Bool(bool),
    Float(f64),
    Text(String),
}

fn shown(ctx: &CommandCtx<'_>, pool: &PgPool, var: &str) -> Option<Shown> {
    if let Some((_, flag)) = FLAGS.iter().find(|(name, _)| *name == var) {
        return Some(Shown::Bool(pool.has_flag(*flag)));
    }
    Some(match var {
        "size" => Shown::Int(pool.size.into()),
        "min_size" => Shown::Int(pool.min_size.into()),
        "pg_num" => Shown::Int(pool.pg_num.into()),
        "pgp_num" => Shown::Int(pool.pgp_num.into()),
        "crush_rule" => {
            let id = i32::from(pool.crush_rule);
            let name = ctx.osdmap().crush.rule_names().get(id).map(str::to_owned);
            Shown::Text(name.unwrap_or_else(|| id.to_string()))
        }
        "use_gmt_hitset" => Shown::Int(pool.use_gmt_hitset.into()),
        _ if TIER_ONLY.contains(&var) => tier_set::shown(pool, var)?,
        "fast_read" => Shown::Int(pool.fast_read.into()),
        "erasure_code_profile" => Shown::Text(pool.erasure_code_profile.clone()),
        "allow_ec_overwrites" => Shown::Bool(pool.has_flag(PoolFlags::EC_OVERWRITES)),
        "allow_ec_optimizations" => Shown::Bool(pool.has_flag(PoolFlags::EC_OPTIMIZATIONS)),
        "pg_autoscale_mode" => {
            let mode = ["off", "warn", "on"].get(usize::from(pool.pg_autoscale_mode));
            Shown::Text((*mode.unwrap_or(&"off")).to_owned())
        }
        "csum_type" => match pool.opts.get(var)? {
            PoolOpt::Int(n) => {
                let at = usize::try_from(*n).unwrap_or(0);
                Shown::Text((*CSUM_TYPES.get(at).unwrap_or(&"")).to_owned())
            }
            _ => return None,
        },
        _ => match pool.opts.get(var)? {
            PoolOpt::Int(n) => Shown::Int(*n),
            PoolOpt::Double(d) => Shown::Float(*d),
            PoolOpt::Str(text) => Shown::Text(text.clone()),
        },
    })
}

impl Shown {
    fn text(&self) -> String {
        match self {
            Self::Int(n) => n.to_string(),
            Self::Bool(on) => on.to_string(),
            Self::Float(d) => cli::float_text(*d, 6),
            Self::Text(text) => text.clone(),
        }
    }

    fn dump(&self, f: &mut Formatter, name: &str) {
        match self {
            // A number in plain text, a switch here: as the peer.
            Self::Int(n) if name == "use_gmt_hitset" => f.bool(name, *n != 0),
            Self::Int(n) => f.int(name, *n),
            Self::Bool(on) => f.bool(name, *on),
            Self::Float(d) => f.float(name, *d),
            Self::Text(text) => f.string(name, text),
        }
    }
}

pub(super) fn get(ctx: &mut CommandCtx<'_>) -> Run {
    let name = ctx.cmd.str_or_empty("pool")?.to_owned();
    let (id, pool) = ctx.need_pool("pool")?;
    let var = ctx.cmd.str_or_empty("var")?;
    let known = ALL.contains(&var) || TIER_ONLY.contains(&var) || var == "all";
    if !known {
        return Err(fail(EINVAL, format!("pool '{name}': invalid variable: '{var}'")));
    }
    if TIER_ONLY.contains(&var) && !pool.is_tier() {
        return Err(fail(
            EACCES,
            format!("pool '{name}' is not a tier pool: variable not applicable"),
        ));
    }
    if var == "read_ratio" && !pool.is_replicated() {
        return Err(fail(
            EACCES,
            format!("pool '{name}' is not a replicated pool: variable not applicable"),
        ));
    }
    if ERASURE_ONLY.contains(&var) && !pool.is_erasure() {
        return Err(fail(
            EACCES,
            format!("pool '{name}' is not a erasure pool: variable not applicable"),
        ));
    }
    let vars: Vec<&str> = if var == "all" {
        let fits = |var: &&str| match pool.is_erasure() {
            true => *var != "read_ratio",
            false => !ERASURE_ONLY.contains(var),
        };
        let all = ALL.iter().copied().filter(fits);
        all.chain(TIER_ONLY.iter().copied().filter(|_| pool.is_tier())).collect()
    } else {
        vec![var]
    };
    let values: Vec<(&str, Shown)> =
        vars.iter().filter_map(|v| Some((*v, shown(ctx, pool, v)?))).collect();
    if values.is_empty() {
        return Err(fail(ENOENT, format!("option '{var}' is not set on pool '{name}'")));
    }
    let Some(mut f) = ctx.formatter() else {
        let mut text = String::new();
        for (var, value) in &values {
            let _ = writeln!(text, "{var}: {}", value.text());
        }
        return out(text);
    };
    f.object("pool", |f| {
        f.string("pool", &name);
        f.int("pool_id", id.0);
        for (var, value) in &values {
            value.dump(f, var);
        }
    });
    out(f.finish())
}
