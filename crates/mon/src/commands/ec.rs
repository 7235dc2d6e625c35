//! `osd erasure-code-profile ...`.

use std::collections::BTreeMap;
use std::fmt::Write;

use conf::key;
use maps::{Incremental, OsdMap};

use ::ec::{Profile, ProfileError};

use super::{EBUSY, EINVAL, ENOENT, EOPNOTSUPP, EPERM, Fail, Run, change, fail, ok, out};
use crate::CommandCtx;

const EIO: i32 = 5;
/// The `crush-*` keys that every profile has, with their defaults.
const CRUSH_KEYS: [(&str, &str); 5] = [
    ("crush-device-class", ""),
    ("crush-failure-domain", "host"),
    ("crush-num-failure-domains", "0"),
    ("crush-osds-per-failure-domain", "0"),
    ("crush-root", "default"),
];
/// `stripe_unit` had better be a multiple of it, bytes.
pub(super) const STRIPE_UNIT_BEST: u64 = 4096;

impl From<ProfileError> for Fail {
    fn from(why: ProfileError) -> Fail {
        let errno = match why {
            ProfileError::UnknownPlugin(_) => EIO, // the peer fails to load it
            ProfileError::NotBuilt(_) => EOPNOTSUPP,
            ProfileError::UnknownTechnique { .. } => ENOENT,
            _ => EINVAL,
        };
        fail(errno, why.to_string())
    }
}

/// A stored profile by its name, read.
///
/// # Errors
/// The peer's sentence where there is none of that name; those of [`Profile::parse`].
pub(super) fn stored(
    map: &OsdMap,
    name: &str,
) -> Result<(BTreeMap<String, String>, Profile), Fail> {
    let Some(pairs) = map.erasure_code_profiles.get(name) else {
        return Err(fail(
            EINVAL,
            "cannot determine the erasure code plugin because there is no 'plugin' entry in the erasure_code_profile {}",
        ));
    };
    Ok((pairs.clone(), Profile::parse(pairs)?))
}

/// As [`stored`], and the profile `default` is made again in `inc` where somebody removed it:
/// `osd_pool_default_erasure_code_profile`.
///
/// # Errors
/// Those of [`stored`].
pub(super) fn stored_or_default(
    ctx: &CommandCtx<'_>,
    inc: &mut Incremental,
    name: &str,
) -> Result<(BTreeMap<String, String>, Profile), Fail> {
    if name != "default" || ctx.osdmap().erasure_code_profiles.contains_key(name) {
        return stored(ctx.osdmap(), name);
    }
    let words = ctx.option(key::OSD_POOL_DEFAULT_ERASURE_CODE_PROFILE);
    let pairs: BTreeMap<String, String> = words
        .split_whitespace()
        .map(|word| word.split_once('=').unwrap_or((word, "")))
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect();
    let profile = Profile::parse(&pairs)?;
    inc.new_erasure_code_profiles.insert(name.to_owned(), pairs.clone());
    Ok((pairs, profile))
}

pub(super) fn run(ctx: &mut CommandCtx<'_>, what: &str) -> Run {
    let name = ctx.cmd.str_or_empty("name")?.to_owned();
    let profiles = &ctx.osdmap().erasure_code_profiles;
    match what {
        "ls" => {
            let Some(mut f) = ctx.formatter() else {
                let mut text = String::new();
                for name in profiles.keys() {
                    let _ = writeln!(text, "{name}");
                }
                return out(text);
            };
            f.array("erasure-code-profiles", |f| {
                for name in profiles.keys() {
                    f.string("profile", name);
                }
            });
            out(f.finish_line())
        }
        "get" => {
            let Some(profile) = profiles.get(&name) else {
                return Err(fail(ENOENT, format!("unknown erasure code profile '{name}'")));
            };
            let Some(mut f) = ctx.formatter() else {
                let mut text = String::new();
                for (key, value) in profile {
                    let _ = writeln!(text, "{key}={value}");
                }
                return out(text);
            };
            f.object("profile", |f| {
                for (key, value) in profile {
                    f.string(key, value);
                }
            });
            out(f.finish_line())
        }
        "rm" => {
            if !profiles.contains_key(&name) {
                return ok(format!("erasure-code-profile {name} does not exist"));
            }
            let map = ctx.osdmap();
            let users: Vec<&str> = map
                .pools
                .iter()
                .filter(|(_, pool)| pool.is_erasure() && pool.erasure_code_profile == name)
                .filter_map(|(id, _)| map.pool_name(*id))
                .collect();
            if !users.is_empty() {
                let users = users.join(" ");
                return Err(fail(
                    EBUSY,
                    format!("{users} pool(s) are using the erasure code profile '{name}'"),
                ));
            }
            let mut inc = ctx.osd_change();
            inc.old_erasure_code_profiles.push(name);
            change(inc, "")
        }
        "set" => set(ctx, &name),
        _ => Err(fail(EINVAL, "command not known")),
    }
}

/// A profile with everything filled in that users leave out, in the peer's order of checks.
fn complete(map: &OsdMap, words: &[String], force: bool) -> Result<BTreeMap<String, String>, Fail> {
    let mut given = BTreeMap::new();
    for word in words.iter().filter(|word| *word != "--force") {
        let (key, value) = word.split_once('=').unwrap_or((word, ""));
        if let Some(newer) = key.strip_prefix("ruleset-") {
            return Err(fail(
                EINVAL,
                format!("property '{key}' is no longer supported; try 'crush-{newer}' instead"),
            ));
        }
        given.insert(key.to_owned(), value.to_owned());
    }
    // The default profile lies under what is given, unless another plugin is asked for.
    if given.get("plugin").is_none_or(|plugin| plugin == "isa") {
        for (key, value) in
            [("plugin", "isa"), ("technique", "reed_sol_van"), ("k", "2"), ("m", "2")]
        {
            given.entry(key.to_owned()).or_insert_with(|| value.to_owned());
        }
    }
    let profile = Profile::parse(&given)?;
    for key in ["crush-num-failure-domains", "crush-osds-per-failure-domain"] {
        let Some(value) = given.get(key).filter(|v| !v.is_empty()) else { continue };
        if value.parse::<i32>().is_err() {
            let why = format!("Expected option value to be integer, got '{value}'");
            return Err(fail(
                EINVAL,
                format!("could not convert {key}={value} to int because {why}, set to default 0"),
            ));
        }
    }
    let keep_or = |given: &mut BTreeMap<String, String>, key: &str, value: &str| {
        let slot = given.entry(key.to_owned()).or_default();
        if slot.is_empty() {
            value.clone_into(slot);
        }
    };
    for (key, value) in profile.filled() {
        keep_or(&mut given, &key, &value);
    }
    if let Some(domain) = given.get("crush-failure-domain").filter(|d| !d.is_empty())
        && map.crush.types().id(domain).is_none()
    {
        return Err(fail(
            EINVAL,
            format!(
                "erasure-code-profile {} contains an invalid failure-domain \"{domain}\"",
                shown(&given)
            ),
        ));
    }
    let unit = profile.stripe_unit;
    if given.contains_key("stripe_unit") {
        let padded = profile.chunk_size(unit * profile.k as u64);
        if padded != unit {
            return Err(fail(
                EINVAL,
                format!(
                    "stripe_unit {unit} does not match ec profile alignment. Would be padded to {padded}"
                ),
            ));
        }
        if !unit.is_multiple_of(STRIPE_UNIT_BEST) && !force {
            return Err(fail(
                EINVAL,
                format!(
                    "stripe_unit should be a multiple of {STRIPE_UNIT_BEST} bytes for best performance.use --force to override this check"
                ),
            ));
        }
    }
    for (key, default) in CRUSH_KEYS {
        keep_or(&mut given, key, default);
    }
    Ok(given)
}

fn shown(profile: &BTreeMap<String, String>) -> String {
    let pairs: Vec<String> = profile.iter().map(|(k, v)| format!("{k}={v}")).collect();
    format!("{{{}}}", pairs.join(","))
}

fn set(ctx: &mut CommandCtx<'_>, name: &str) -> Run {
    let words = ctx.cmd.list("profile")?;
    let force = ctx.cmd.flag("force") || words.iter().any(|w| w == "--force");
    let profile = complete(ctx.osdmap(), &words, force)?;
    if let Some(old) = ctx.osdmap().erasure_code_profiles.get(name) {
        if *old == profile {
            return ok("");
        }
        if !force {
            return Err(fail(
                EPERM,
                format!(
                    "will not override erasure code profile {name} because the existing profile {} is different from the proposed profile {}",
                    shown(old),
                    shown(&profile)
                ),
            ));
        }
        if !ctx.cmd.flag("yes_i_really_mean_it") {
            return Err(fail(
                EPERM,
                "overriding erasure code profile can be DANGEROUS; add --yes-i-really-mean-it to do it anyway",
            ));
        }
    }
    let mut inc = ctx.osd_change();
    inc.new_erasure_code_profiles.insert(name.to_owned(), profile);
    change(inc, "")
}
