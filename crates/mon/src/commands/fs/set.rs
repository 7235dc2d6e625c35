//! Settings of file systems.

use maps::{MdsMap, MdsState, mds_flag};

use super::{Run, commit, parse_bool, remove_feature};
use crate::CommandCtx;
use crate::commands::{EBUSY, EEXIST, EINVAL, EPERM, ERANGE, Fail, fail};
use crate::fs::{Edit, health};

/// Ranks of one file system.
const RANKS_MAX: i64 = 256;
/// `CEPH_MIN_STRIPE_UNIT`: no file system's files may be bound to less.
const FILE_SIZE_MIN: i64 = 65_536;
/// Seconds; shorter sessions would end before a client renews them.
const SESSION_MIN_S: i64 = 30;

pub(super) fn flag(ctx: &mut CommandCtx<'_>) -> Run {
    let (name, text) = (ctx.cmd.str_or_empty("flag_name")?, ctx.cmd.str_or_empty("val")?);
    if name != "enable_multiple" {
        return Err(fail(EINVAL, format!("Unknown flag '{name}'")));
    }
    let on = parse_bool(text)
        .map_err(|e| fail(e.errno, format!("{}Invalid boolean value '{text}'", e.why)))?;
    let mut edit = ctx.fs_edit();
    edit.map.enable_multiple = on;
    edit.map.ever_enabled_multiple |= on;
    edit.touch();
    commit(edit, "")
}

pub(super) fn set(ctx: &mut CommandCtx<'_>) -> Run {
    let fscid = ctx.need_fs()?.fscid;
    let (var, value) = (ctx.cmd.str_or_empty("var")?, ctx.cmd.str_or_empty("val")?);
    let mut edit = ctx.fs_edit();
    let said = apply(ctx, &mut edit, fscid, var, value)?;
    if !edit.is_dirty() {
        return super::super::ok(said);
    }
    commit(edit, said)
}

fn number(var: &str, value: &str) -> Result<i64, Fail> {
    value.parse().map_err(|_| fail(EINVAL, format!("{var} requires an integer value")))
}

fn at_least(var: &str, value: &str, least: i64) -> Result<u32, Fail> {
    let n = number(var, value)?;
    if n < least {
        return Err(fail(ERANGE, format!("{var} must be at least {least}s")));
    }
    u32::try_from(n).map_err(|_| fail(ERANGE, format!("{var} must be below 2^32")))
}

fn put(map: &mut MdsMap, bit: u32, on: bool) {
    map.flags = if on { map.flags | bit } else { map.flags & !bit };
}

/// Sets one variable; returns what the user is told.
pub(super) fn apply(
    ctx: &CommandCtx<'_>,
    edit: &mut Edit,
    fscid: i32,
    var: &str,
    value: &str,
) -> Result<String, Fail> {
    // Switches that only set a flag: which, and what is said.
    match var {
        "max_mds" => return max_mds(ctx, edit, fscid, value),
        "down" => return down(edit, fscid, value),
        "joinable" | "cluster_down" => return joinable(edit, fscid, var, value),
        "allow_standby_replay" => return standby_replay(edit, fscid, value),
        "refuse_client_session" | "refuse_standby_for_another_fs" => {
            return refuse(edit, fscid, var, value);
        }
        "allow_dirfrags" => {
            return Ok("Directory fragmentation is now permanently enabled. This command is DEPRECATED and will be REMOVED from future releases.".to_owned());
        }
        _ => {}
    }
    let sure = ctx.cmd.flag("yes_i_really_really_mean_it");
    let quiet = || Ok(String::new());
    // The value is judged before anything is touched.
    let mut change: Box<dyn FnOnce(&mut MdsMap)> = Box::new(|_| {});
    let said = match var {
        "inline_data" => {
            let on = parse_bool(value)?;
            if on && !sure {
                return Err(fail(
                    EPERM,
                    "Inline data support is deprecated and will be removed in a future release. Add --yes-i-really-really-mean-it if you are certain you want this enabled.",
                ));
            }
            change = Box::new(move |m| m.inline_data = on);
            Ok(format!("inline data {}", if on { "enabled" } else { "disabled" }))
        }
        "balancer" => {
            let name = value.to_owned();
            change = Box::new(move |m| m.balancer = name);
            Ok(match value {
                "" => "unsetting the metadata load balancer".to_owned(),
                name => format!("setting the metadata load balancer to {name}"),
            })
        }
        "bal_rank_mask" => {
            check_mask(value)?;
            let mask = value.to_owned();
            change = Box::new(move |m| m.bal_rank_mask = mask);
            Ok(format!("setting the metadata balancer rank mask to {value}"))
        }
        "max_file_size" => {
            let n = number(var, value)?;
            if n < FILE_SIZE_MIN {
                return Err(fail(ERANGE, format!("{var} must at least {FILE_SIZE_MIN}")));
            }
            change = Box::new(move |m| m.max_file_size = n.unsigned_abs());
            quiet()
        }
        "max_xattr_size" => {
            let n = number(var, value)?;
            let n = u64::try_from(n)
                .map_err(|_| fail(ERANGE, format!("{var} must be non-negative")))?;
            change = Box::new(move |m| m.max_xattr_size = n);
            quiet()
        }
        "allow_new_snaps" => {
            let on = parse_bool(value)?;
            change = Box::new(move |m| {
                put(m, mds_flag::ALLOW_SNAPS, on);
                if on {
                    m.ever_allowed_features |= 2;
                    m.explicitly_allowed_features |= 2;
                }
            });
            Ok(format!("{} new snapshots", if on { "enabled" } else { "disabled" }))
        }
        "standby_count_wanted" => {
            let n = number(var, value)?;
            if n < 0 {
                return Err(fail(ERANGE, format!("{var} must be non-negative")));
            }
            let n = i32::try_from(n).unwrap_or(i32::MAX);
            change = Box::new(move |m| m.standby_count_wanted = n);
            quiet()
        }
        "session_timeout" => {
            let n = at_least(var, value, SESSION_MIN_S)?;
            change = Box::new(move |m| m.session_timeout = n);
            quiet()
        }
        "session_autoclose" => {
            let n = at_least(var, value, SESSION_MIN_S)?;
            change = Box::new(move |m| m.session_autoclose = n);
            quiet()
        }
        "balance_automate" => {
            let on = parse_bool(value)?;
            change = Box::new(move |m| put(m, mds_flag::BALANCE_AUTOMATE, on));
            quiet()
        }
        "min_compat_client" => {
            let release = super::super::release_by_name(value)
                .ok_or_else(|| fail(EINVAL, format!("version {value} is not recognized")))?;
            change = Box::new(move |m| m.required_client_features = features_of(release));
            Ok("WARNING: setting min_compat_client is deprecated and may not do what you want.\nThe oldest release to set is octopus.\nPlease migrate to `ceph fs required_client_features ...`.".to_owned())
        }
        _ => Err(fail(EINVAL, format!("unknown variable {var}"))),
    }?;
    if let Some(map) = edit.mds_map(fscid) {
        change(map);
    }
    Ok(said)
}

/// The newest feature that clients of a release have.
fn features_of(release: u8) -> maps::FeatureBits {
    let bit = match release {
        15.. => 13,
        14 => 12,
        13 => 8,
        12 => 7,
        11 => 6,
        10 => 5,
        _ => return maps::FeatureBits::default(),
    };
    let mut bits = maps::FeatureBits::default();
    bits.set(bit, true);
    bits
}

fn max_mds(ctx: &CommandCtx<'_>, edit: &mut Edit, fscid: i32, value: &str) -> Result<String, Fail> {
    let refuse = |errno, why: String| Err(fail(errno, why));
    let n: i64 = value
        .parse()
        .map_err(|_| fail(EINVAL, format!("Expected option value to be integer, got '{value}'")))?;
    if n <= 0 {
        return refuse(EINVAL, "You must specify at least one MDS".to_owned());
    }
    if n > RANKS_MAX {
        return refuse(EINVAL, format!("may not have more than {RANKS_MAX} MDS ranks"));
    }
    let Some(map) = edit.map.by_id(fscid).map(|fs| &fs.mds_map) else {
        return Ok(String::new());
    };
    let old_snaps = map.ever_allowed_features & 2 != 0;
    if n > i64::from(map.max_mds)
        && n > 1
        && old_snaps
        && !map.has_flag(mds_flag::ALLOW_MULTIMDS_SNAPS)
    {
        let why = "multi-active MDS is not allowed while there are snapshots possibly created by pre-mimic MDS";
        return refuse(EINVAL, why.to_owned());
    }
    let slow = ctx.volatile.mds.complains(&[health::TRIM, health::CACHE_OVERSIZED]);
    if slow && !ctx.cmd.flag("yes_i_really_mean_it") {
        let why = "One or more file system health warnings are present. Modifying the file system setting variable \"max_mds\" may not help troubleshoot or recover from these warnings and may further destabilize the system. If you really wish to proceed, run again with --yes-i-really-mean-it";
        return refuse(EPERM, why.to_owned());
    }
    if let Some(map) = edit.mds_map(fscid) {
        map.max_mds = i32::try_from(n).unwrap_or(1);
        put(map, mds_flag::NOT_JOINABLE, false);
    }
    Ok(String::new())
}

fn down(edit: &mut Edit, fscid: i32, value: &str) -> Result<String, Fail> {
    let down = parse_bool(value)?;
    let Some(map) = edit.mds_map(fscid) else { return Ok(String::new()) };
    if down {
        if map.max_mds > 0 {
            (map.old_max_mds, map.max_mds) = (map.max_mds, 0);
        }
        return Ok(format!("{} marked down. ", map.fs_name));
    }
    map.max_mds = if map.old_max_mds > 0 { map.old_max_mds } else { 1 };
    Ok(format!("{} marked up, max_mds = {}", map.fs_name, map.max_mds))
}

fn joinable(edit: &mut Edit, fscid: i32, var: &str, value: &str) -> Result<String, Fail> {
    let old = var == "cluster_down";
    let joinable = parse_bool(value)? != old;
    let Some(map) = edit.mds_map(fscid) else { return Ok(String::new()) };
    put(map, mds_flag::NOT_JOINABLE, !joinable);
    let what = match joinable {
        true => "joinable; MDS may join as newly active.",
        false => "not joinable; MDS cannot join as newly active.",
    };
    let warning = match old {
        true => {
            " WARNING: cluster_down flag is deprecated and will be removed in a future version. Please use \"joinable\"."
        }
        false => "",
    };
    Ok(format!("{} marked {what}{warning}", map.fs_name))
}

/// Whoever follows a rank does not any more, where that is no longer wanted.
fn standby_replay(edit: &mut Edit, fscid: i32, value: &str) -> Result<String, Fail> {
    let on = parse_bool(value)?;
    let Some(map) = edit.mds_map(fscid) else { return Ok(String::new()) };
    put(map, mds_flag::ALLOW_STANDBY_REPLAY, on);
    if on {
        map.ever_allowed_features |= 0x20;
        map.explicitly_allowed_features |= 0x20;
    }
    let followers = map.mds_info.values().filter(|i| i.state == MdsState::STANDBY_REPLAY);
    for gid in followers.map(|i| i.gid).collect::<Vec<_>>() {
        if !on {
            edit.fail(gid);
        }
    }
    Ok(String::new())
}

fn refuse(edit: &mut Edit, fscid: i32, var: &str, value: &str) -> Result<String, Fail> {
    let on = parse_bool(value)?;
    let clients = var == "refuse_client_session";
    let bit = if clients {
        mds_flag::REFUSE_CLIENT_SESSION
    } else {
        mds_flag::REFUSE_STANDBY_FOR_ANOTHER_FS
    };
    let is = edit.map.by_id(fscid).is_some_and(|fs| fs.mds_map.has_flag(bit));
    let said = match (clients, on, is == on) {
        (true, true, false) => "client(s) blocked from establishing new session(s)",
        (true, true, true) => "client(s) already blocked from establishing new session(s)",
        (true, false, false) => "client(s) allowed to establish new session(s)",
        (true, false, true) => "client(s) already allowed to establish new session(s)",
        (false, true, false) => "set to refuse standby for another fs",
        (false, true, true) => "to refuse standby for another fs is already set",
        (false, false, false) => "allowed to use standby for another fs",
        (false, false, true) => "to use standby for another fs is already allowed",
    };
    if is != on
        && let Some(map) = edit.mds_map(fscid)
    {
        put(map, bit, on);
    }
    Ok(said.to_owned())
}

/// `-1`, `0x0`, or ranks as the bits of a hexadecimal number.
fn check_mask(mask: &str) -> Result<(), Fail> {
    if mask.is_empty() {
        return Err(fail(EINVAL, "bal_rank_mask may not be empty"));
    }
    if mask == "-1" {
        return Ok(());
    }
    let digits = mask.strip_prefix("0x").unwrap_or(mask);
    let wide = digits.len() > usize::try_from(RANKS_MAX / 4).unwrap_or(64);
    if mask != "0x0" && !wide && digits.chars().all(|c| c == '0') {
        return Err(fail(EINVAL, "at least one rank must be set"));
    }
    if wide || !digits.chars().all(|c| c.is_ascii_hexdigit()) {
        return Err(fail(EINVAL, "invalid hex value "));
    }
    Ok(())
}

pub(super) fn compat(ctx: &mut CommandCtx<'_>) -> Run {
    let fs = ctx.need_fs()?;
    let subop = ctx.cmd.str_or_empty("subop")?;
    let Some((verb @ ("add" | "rm"), kind @ ("compat" | "incompat"))) = subop.split_once('_')
    else {
        return Err(fail(
            EINVAL,
            format!(
                "subop `{subop}' not recognized. Must be one of: add_compat,add_incompat,rm_compat,rm_incompat"
            ),
        ));
    };
    let feature = ctx.cmd.int("feature")?.and_then(|n| u64::try_from(n).ok());
    let feature =
        feature.filter(|n| (1..64).contains(n)).ok_or_else(|| fail(EINVAL, "Invalid feature"))?;
    if !fs.mds_map.up.is_empty() {
        return Err(fail(
            EBUSY,
            "file system must be failed or down; use `ceph fs fail` to bring down",
        ));
    }
    let mut sets = fs.mds_map.compat.clone();
    let said = if verb == "rm" {
        let was = remove_feature(&mut sets, kind, feature);
        let done = if was { "removed" } else { "already removed" };
        format!("{done} {kind} feature {feature}")
    } else {
        let name = ctx.cmd.str_or_empty("feature_str")?;
        if name.is_empty() {
            return Err(fail(EINVAL, "adding a feature requires a feature string"));
        }
        let set = if kind == "compat" { &mut sets.compat } else { &mut sets.incompat };
        match set.names.get(&feature) {
            Some(there) if there == name => "feature already exists".to_owned(),
            Some(there) => {
                let why = format!("feature with differing name `{there}' exists");
                return Err(fail(EEXIST, why));
            }
            None => {
                set.insert(feature, name);
                format!("added {kind} feature F({feature}, \"{name}\")")
            }
        }
    };
    let fscid = fs.fscid;
    let mut edit = ctx.fs_edit();
    if let Some(map) = edit.mds_map(fscid) {
        map.compat = sets;
    }
    commit(edit, said)
}

pub(super) fn required_features(ctx: &mut CommandCtx<'_>) -> Run {
    let fs = ctx.need_fs()?;
    let (subop, text) = (ctx.cmd.str_or_empty("subop")?, ctx.cmd.str_or_empty("val")?);
    let on = match subop {
        "add" => true,
        "rm" => false,
        _ => {
            let why = format!("Must either add or rm a feature; {subop} is not recognized");
            return Err(fail(EINVAL, why));
        }
    };
    if text.is_empty() {
        return Err(fail(EINVAL, "Missing feature id/name"));
    }
    let names = &maps::fs::FEATURE_NAMES;
    let named = names.iter().position(|name| *name == text && text != "reserved");
    let bit = match (named, text.parse::<i64>()) {
        (Some(bit), _) => bit,
        (None, Err(_)) => return Err(fail(EINVAL, format!("Invalid feature name: {text}"))),
        (None, Ok(n)) => usize::try_from(n)
            .ok()
            .filter(|n| *n < names.len())
            .ok_or_else(|| fail(EINVAL, format!("Invalid feature id: {n}")))?,
    };
    let (fscid, is) = (fs.fscid, fs.mds_map.required_client_features.has(bit));
    let name = maps::fs::feature_name(bit);
    let mut edit = ctx.fs_edit();
    if let Some(map) = edit.mds_map(fscid) {
        map.required_client_features.set(bit, on);
    }
    let said = match (on, is) {
        (true, false) => format!("added feature '{name}' to required_client_features"),
        (true, true) => format!("feature '{name}' is already set"),
        (false, true) => format!("removed feature '{name}' from required_client_features"),
        (false, false) => format!("feature '{name}' is already unset"),
    };
    commit(edit, said)
}
