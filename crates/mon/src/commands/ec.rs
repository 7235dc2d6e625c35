//! `osd erasure-code-profile ...`.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::{EBUSY, EINVAL, ENOENT, EPERM, Fail, Run, change, fail, ok, out};
use crate::CommandCtx;

const EIO: i32 = 5;
/// Plugins and their techniques, the default first.
const PLUGINS: &[(&str, &[&str])] = &[
    ("isa", &["reed_sol_van", "cauchy"]),
    (
        "jerasure",
        &[
            "reed_sol_van",
            "reed_sol_r6_op",
            "cauchy_orig",
            "cauchy_good",
            "liberation",
            "blaum_roth",
            "liber8tion",
        ],
    ),
];

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
                let users = users.join(", ");
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

/// A profile with everything filled in that users leave out.
fn complete(words: &[String]) -> Result<BTreeMap<String, String>, Fail> {
    let mut profile = BTreeMap::new();
    for word in words {
        let (key, value) = word.split_once('=').unwrap_or((word, ""));
        if word != "--force" {
            profile.insert(key.to_owned(), value.to_owned());
        }
    }
    if profile.is_empty() {
        profile.insert("plugin".into(), "isa".into());
        profile.insert("k".into(), "2".into());
        profile.insert("m".into(), "2".into());
    }
    let plugin = profile.entry("plugin".into()).or_insert_with(|| "isa".into()).clone();
    if matches!(plugin.as_str(), "lrc" | "shec" | "clay") {
        return Ok(profile);
    }
    let Some((_, techniques)) = PLUGINS.iter().find(|(name, _)| *name == plugin) else {
        return Err(fail(EIO, format!("erasure code plugin '{plugin}' is not known")));
    };
    let technique = profile.entry("technique".into()).or_insert_with(|| techniques[0].into());
    if !techniques.contains(&technique.as_str()) {
        let list = techniques.join(",");
        return Err(fail(
            ENOENT,
            format!(
                "technique={technique} is not a valid coding technique.  Choose one of the following: {list}"
            ),
        ));
    }
    for (key, default) in [("k", "7"), ("m", "3")] {
        let value = profile.entry(key.into()).or_insert_with(|| default.into());
        let n: Result<u8, _> = value.parse();
        if n.map_or(true, |n| n == 0) {
            return Err(fail(
                EINVAL,
                format!(
                    "could not convert {key}={value} to int because Expected option value to be integer, got '{value}', set to default {default}"
                ),
            ));
        }
    }
    for (key, default) in [
        ("crush-device-class", ""),
        ("crush-failure-domain", "host"),
        ("crush-num-failure-domains", "0"),
        ("crush-osds-per-failure-domain", "0"),
        ("crush-root", "default"),
    ] {
        profile.entry(key.into()).or_insert_with(|| default.into());
    }
    Ok(profile)
}

fn shown(profile: &BTreeMap<String, String>) -> String {
    let pairs: Vec<String> = profile.iter().map(|(k, v)| format!("{k}={v}")).collect();
    format!("{{{}}}", pairs.join(","))
}

fn set(ctx: &mut CommandCtx<'_>, name: &str) -> Run {
    let words = ctx.cmd.list("profile")?;
    let profile = complete(&words)?;
    if let Some(old) = ctx.osdmap().erasure_code_profiles.get(name) {
        if *old == profile {
            return ok("");
        }
        let force = ctx.cmd.flag("force") || words.iter().any(|w| w == "--force");
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
