//! `config ...` and `config-key ...`.

use std::collections::BTreeMap;
use std::fmt::Write;

use bytes::Bytes;
use cli::{Align, TextTable};
use types::{EntityKind, EntityName};

use super::{EFBIG, EINVAL, ENOENT, EPERM, ERANGE, Fail, Run, fail, ok, out, propose};
use crate::managers;
use crate::{CommandCtx, ConfigPlace, Mutation, Outcome, Reply, normalize, parse_who};

/// Bytes of a value in the key/value store.
const VALUE_BYTES_MAX: usize = 65_536;
/// Changes of settings that are remembered.
const HISTORY_MAX: u64 = 200;
const HISTORY: &str = "config-history/";
const SETTINGS: &str = "config/";

/// Modules of the peer's manager that have settings in scripts and are not built in.
const MGR_MODULES: &[&str] = &["cephadm", "dashboard", "restful"];

pub(super) fn run(ctx: &mut CommandCtx<'_>, what: &str) -> Run {
    match what {
        "set" => set(ctx),
        "rm" => rm(ctx),
        "get" => get(ctx),
        "dump" => dump(ctx),
        "help" => help(ctx),
        "ls" => ls(ctx),
        "log" => log(ctx),
        "reset" => reset(ctx),
        "show" | "show-with-defaults" => show(ctx, what != "show"),
        "assimilate-conf" => assimilate(ctx),
        "generate-minimal-conf" => minimal_conf(ctx),
        _ => Err(fail(EINVAL, "command not known")),
    }
}

/// A value of that type in the form in which it is kept, or the peer's sentence against it.
fn canonical(kind: conf::OptionKind, value: &str) -> Result<String, String> {
    use conf::OptionKind::{Bool, Float, Int, Secs, Size, Str, Uint};
    match kind {
        Str => Ok(value.to_owned()),
        Bool => match value.to_ascii_lowercase().as_str() {
            "true" | "1" | "yes" | "on" => Ok("true".into()),
            "false" | "0" | "no" | "off" => Ok("false".into()),
            _ => Err(format!("Expected option value to be integer, got '{value}'")),
        },
        Size => match conf::parse_size(value) {
            Some(bytes) => Ok(bytes.to_string()),
            None => cli::parse_iec(value).map(|n| n.to_string()),
        },
        Float => match value.parse::<f64>() {
            Ok(n) if n.is_finite() => Ok(value.to_owned()),
            _ => Err(format!("strict_strtod: expected double, got: '{value}'")),
        },
        Int if value.parse::<i64>().is_ok() => Ok(value.to_owned()),
        Int | Uint | Secs => cli::parse_si(value).map(|n| n.to_string()),
    }
}

/// A level of messages, `N` or `N/M`, in the form in which it is kept.
fn debug_level(value: &str) -> Result<String, Fail> {
    let (log, memory) = value.split_once('/').unwrap_or((value, value));
    let (Ok(log), Ok(memory)) = (log.parse::<i64>(), memory.parse::<i64>()) else {
        let why = "value must take the form N or N/M, where N and M are integers";
        return Err(fail(EINVAL, format!("error parsing value: {why}")));
    };
    if [log, memory].iter().any(|level| !(0..=99).contains(level)) {
        return Err(fail(ERANGE, "error parsing value: value must be in range [0, 99]"));
    }
    Ok(format!("{log}/{memory}"))
}

/// Refuses a promise of security that would not be kept.
fn promised(name: &str, value: &str) -> Result<(), Fail> {
    match crate::security::refusal(name, value) {
        Some(why) => Err(fail(EINVAL, format!("{name} = {value}: {why}"))),
        None => Ok(()),
    }
}

/// What an option may be set to; the value as it is kept.
fn check(name: &str, value: &str) -> Result<String, Fail> {
    let name = normalize(name);
    promised(&name, value)?;
    let known = conf::known(&name);
    let mut flags = known.and_then(|o| o.upstream()).into_iter().flat_map(|o| conf::items(o.flags));
    if flags.any(|flag| flag == "no_mon_update") {
        return Err(fail(EINVAL, format!("{name} is special and cannot be stored by the mon")));
    }
    let wrong = |why: String| fail(EINVAL, format!("error parsing value: {why}"));
    if name.starts_with("debug_") {
        return debug_level(value);
    }
    if let Some(option) = known {
        let starts_well = value.starts_with(|c: char| c.is_ascii_digit());
        let duration = ["secs", "millisecs"].contains(&option.type_name());
        if option.effect() != conf::Effect::Obeyed && duration && !starts_well {
            return Err(wrong("expected digit".into()));
        }
        let kept = canonical(option.kind(), value).map_err(wrong)?;
        option.check_bounds(&kept).map_err(wrong)?;
        return Ok(kept);
    }
    let module = name.strip_prefix("mgr/").and_then(|rest| rest.split('/').next());
    let is_built_in = |m: &str| managers::built_in().any(|own| own == m);
    if module.is_some_and(|m| MGR_MODULES.contains(&m) || is_built_in(m)) {
        return Ok(value.to_owned());
    }
    Err(fail(EINVAL, format!("unrecognized config option '{name}'")))
}

/// Whom a setting is for, in the form in which it is kept: the section, then its masks.
///
/// # Errors
/// `EINVAL` for what names nobody.
fn target(who: &str) -> Result<String, Fail> {
    let (mut section, mask) = parse_who(who).map_err(|why| fail(EINVAL, why))?;
    if let Some(class) = mask.device_class {
        section += &format!("/class:{class}");
    }
    if let Some((kind, name)) = mask.location {
        section += &format!("/{kind}:{name}");
    }
    Ok(section)
}

/// A change of settings and its line in the history.
fn with_history(ctx: &CommandCtx<'_>, changes: Vec<(String, String, Option<String>)>) -> Mutation {
    let number = history_last(ctx) + 1;
    let mut all = Vec::new();
    let stamp = Bytes::from(ctx.wall().to_string());
    all.push(Mutation::ConfigKey { key: format!("{HISTORY}{number}/"), value: Some(stamp) });
    for (who, name, value) in changes {
        let old = ctx.state.config.sections.get(&who).and_then(|s| s.get(&name));
        if let Some(old) = old {
            let key = format!("{HISTORY}{number}/-{who}/{name}");
            all.push(Mutation::ConfigKey { key, value: Some(Bytes::from(old.clone())) });
        }
        if let Some(value) = &value {
            let key = format!("{HISTORY}{number}/+{who}/{name}");
            all.push(Mutation::ConfigKey { key, value: Some(Bytes::from(value.clone())) });
        }
        all.push(Mutation::Config { who, name, value });
    }
    for (n, keys) in history(ctx) {
        if n + HISTORY_MAX <= number {
            all.extend(keys.into_iter().map(|key| Mutation::ConfigKey { key, value: None }));
        }
    }
    Mutation::Batch(all)
}

/// Keys of the history by number.
fn history(ctx: &CommandCtx<'_>) -> BTreeMap<u64, Vec<String>> {
    let mut all: BTreeMap<u64, Vec<String>> = BTreeMap::new();
    for key in ctx.state.config_key.keys() {
        let Some(rest) = key.strip_prefix(HISTORY) else { continue };
        if let Some(number) = rest.split('/').next().and_then(|n| n.parse().ok()) {
            all.entry(number).or_default().push(key.clone());
        }
    }
    all
}

fn history_last(ctx: &CommandCtx<'_>) -> u64 {
    history(ctx).keys().next_back().copied().unwrap_or(1)
}

fn set(ctx: &mut CommandCtx<'_>) -> Run {
    let who = ctx.cmd.str_or_empty("who")?;
    let name = normalize(ctx.cmd.str_or_empty("name")?);
    let value = ctx.cmd.str_or_empty("value")?;
    promised(&name, value)?;
    let value = if ctx.cmd.flag("force") { value.to_owned() } else { check(&name, value)? };
    let who = target(who)?;
    let now = ctx.state.config.sections.get(&who).and_then(|s| s.get(&name));
    if now == Some(&value) {
        return ok("");
    }
    propose(with_history(ctx, vec![(who, name, Some(value))]), "")
}

fn rm(ctx: &mut CommandCtx<'_>) -> Run {
    let who = ctx.cmd.str_or_empty("who")?;
    let name = normalize(ctx.cmd.str_or_empty("name")?);
    // What an earlier release kept under the words as they were written can be removed too.
    let as_written = ctx.state.config.sections.contains_key(who).then(|| who.to_owned());
    let who = as_written.map_or_else(|| target(who), Ok)?;
    let there = ctx.state.config.sections.get(&who).is_some_and(|s| s.contains_key(&name));
    if !there {
        return ok("");
    }
    propose(with_history(ctx, vec![(who, name, None)]), "")
}

/// Reads `osd.0`, `osd`, `client.x`: whose settings are asked for.
fn entity_of(who: &str) -> Result<EntityName, Fail> {
    let text = if who.contains('.') { who.to_owned() } else { format!("{who}.") };
    text.parse().map_err(|_| fail(EINVAL, format!("unrecognized entity '{who}'")))
}

fn place_of(ctx: &CommandCtx<'_>, entity: &EntityName) -> ConfigPlace {
    let mut place = ConfigPlace::default();
    if entity.kind == EntityKind::OSD
        && let Ok(id) = entity.id.parse::<i32>()
    {
        let crush = &ctx.osdmap().crush;
        place.device_class = crush.class_name_of(id).unwrap_or_default().to_owned();
        place.location = crush.full_location(id);
    }
    place
}

/// `osd/class:hdd` as section and mask.
fn split_who(who: &str) -> (&str, &str) {
    who.split_once('/').unwrap_or((who, ""))
}

/// Whether a change reaches a running daemon.
fn at_runtime(name: &str) -> bool {
    conf::known(name).is_none_or(|spec| spec.runtime())
}

/// For whom a setting is: `basic`, `advanced`, `dev`; those of modules are `advanced`.
fn level(name: &str) -> &'static str {
    conf::known(name).map_or("advanced", |option| option.level())
}

fn settings_table(rows: impl Iterator<Item = (String, String, String)>) -> String {
    let mut table = TextTable::with(&[
        ("WHO", Align::Left, Align::Left),
        ("MASK", Align::Left, Align::Left),
        ("LEVEL", Align::Left, Align::Left),
        ("OPTION", Align::Left, Align::Left),
        ("VALUE", Align::Left, Align::Left),
        ("RO", Align::Left, Align::Left),
    ]);
    for (who, name, value) in rows {
        let (section, mask) = split_who(&who);
        let read_only = if at_runtime(&name) { "" } else { "*" };
        table.row(vec![
            section.to_owned(),
            mask.to_owned(),
            level(&name).to_owned(),
            name,
            value,
            read_only.to_owned(),
        ]);
    }
    table.render()
}

fn get(ctx: &mut CommandCtx<'_>) -> Run {
    let who = ctx.cmd.str_or_empty("who")?;
    let entity = entity_of(who)?;
    let effective = ctx.state.config.effective(&entity, &place_of(ctx, &entity));
    let key = ctx.cmd.str_or_empty("key")?;
    if !key.is_empty() {
        let key = normalize(key);
        if let Some((value, _)) = effective.get(&key) {
            return out(format!("{value}\n"));
        }
        if key == "fsid" {
            return out(format!("{}\n", ctx.state.fsid));
        }
        return match conf::known(&key) {
            Some(spec) => out(format!("{}\n", spec.default())),
            None => Err(fail(ENOENT, format!("unrecognized key '{key}'"))),
        };
    }
    let Some(mut f) = ctx.formatter() else {
        return out(settings_table(
            effective.into_iter().map(|(name, (value, who))| (who, name, value)),
        ));
    };
    f.object("config", |f| {
        for (name, (value, who)) in &effective {
            let (section, mask) = split_who(who);
            f.object(name, |f| {
                f.string("value", value);
                f.string("section", section);
                f.object("mask", |f| dump_mask(f, mask));
                f.bool("can_update_at_runtime", at_runtime(name));
            });
        }
    });
    out(f.finish())
}

fn dump_mask(f: &mut cli::Formatter, mask: &str) {
    for part in mask.split('/').filter(|p| !p.is_empty()) {
        match part.split_once(':') {
            Some(("class", class)) => f.string("device_class", class),
            Some((kind, name)) => {
                f.string("location_type", kind);
                f.string("location_value", name);
            }
            None => {}
        }
    }
}

/// Sections in the order in which they are shown: global, then types, then names.
fn shown_order(who: &str) -> (u8, u8, String) {
    let (section, _) = split_who(who);
    let kind = section.split('.').next().unwrap_or_default();
    let rank = ["global", "mon", "mgr", "osd", "mds", "client"].iter().position(|k| *k == kind);
    (rank.unwrap_or(9) as u8, u8::from(section.contains('.')), who.to_owned())
}

fn dump(ctx: &mut CommandCtx<'_>) -> Run {
    let mut rows: Vec<(String, String, String)> = Vec::new();
    for (who, options) in &ctx.state.config.sections {
        for (name, value) in options {
            rows.push((who.clone(), name.clone(), value.clone()));
        }
    }
    rows.sort_by_key(|(who, name, _)| (shown_order(who), name.clone()));
    let Some(mut f) = ctx.formatter() else { return out(settings_table(rows.into_iter())) };
    f.array("config", |f| {
        for (who, name, value) in &rows {
            let (section, mask) = split_who(who);
            f.object("option", |f| {
                f.string("section", section);
                f.string("name", name);
                f.string("value", value);
                f.string("level", level(name));
                f.bool("can_update_at_runtime", at_runtime(name));
                f.string("mask", mask);
                dump_mask(f, mask);
            });
        }
    });
    out(f.finish())
}

fn help(ctx: &mut CommandCtx<'_>) -> Run {
    let key = normalize(ctx.cmd.str_or_empty("key")?);
    let Some(option) = conf::known(&key) else { return Err(fail(ENOENT, "")) };
    let of = |field: fn(&conf::Upstream) -> &'static str| option.upstream().map_or("", field);
    let list = |field: fn(&conf::Upstream) -> &'static str| -> Vec<&'static str> {
        conf::items(of(field)).collect()
    };
    let services = list(|o| o.services);
    let Some(mut f) = ctx.formatter() else {
        let line = |name: &str, values: &[&str]| match values {
            [] => String::new(),
            all => format!("  {name}: [{}]\n", all.join(",")),
        };
        return out(format!(
            "{} - {}\n  ({}, {})\n  Default: {}\n  Can update at runtime: {}\n{}{}",
            option.name(),
            option.about(),
            option.type_name(),
            option.level(),
            option.default(),
            option.runtime(),
            line("Services", &services),
            line("See also", &list(|o| o.see_also)),
        ));
    };
    let number = |f: &mut cli::Formatter, name: &str, value: &str| match option.type_name() {
        "bool" | "int" | "uint" | "float" if !value.is_empty() => f.unquoted(name, value),
        _ => f.string(name, value),
    };
    f.object("option", |f| {
        f.string("name", option.name());
        f.string("type", option.type_name());
        f.string("level", option.level());
        f.string("desc", option.about());
        f.string("long_desc", "");
        number(f, "default", option.default());
        number(f, "daemon_default", of(|o| o.daemon_default));
        f.array("tags", |f| list(|o| o.tags).iter().for_each(|tag| f.string("tag", tag)));
        f.array("services", |f| services.iter().for_each(|s| f.string("service", s)));
        f.array("see_also", |f| list(|o| o.see_also).iter().for_each(|o| f.string("option", o)));
        let choices = list(|o| o.choices);
        if option.type_name() == "str" {
            f.array("enum_values", |f| choices.iter().for_each(|c| f.string("enum_value", c)));
        }
        number(f, "min", of(|o| o.min));
        number(f, "max", of(|o| o.max));
        f.bool("can_update_at_runtime", option.runtime());
        f.array("flags", |f| list(|o| o.flags).iter().for_each(|flag| f.string("option", flag)));
    });
    out(f.finish())
}

fn ls(ctx: &mut CommandCtx<'_>) -> Run {
    let Some(mut f) = ctx.formatter() else {
        let mut text = String::new();
        for spec in conf::all_known() {
            let _ = writeln!(text, "{}", spec.name());
        }
        return out(text);
    };
    f.array("options", |f| {
        for spec in conf::all_known() {
            f.string("option", spec.name());
        }
    });
    out(f.finish())
}

/// One entry of the history: when, and what went and came.
struct Change {
    number: u64,
    stamp: String,
    /// `who/name` to old and new value.
    values: BTreeMap<String, (Option<String>, Option<String>)>,
}

fn changes(ctx: &CommandCtx<'_>) -> Vec<Change> {
    let text = |key: &str| {
        let value = ctx.state.config_key.get(key);
        value.map(|v| String::from_utf8_lossy(v).into_owned()).unwrap_or_default()
    };
    let mut all = Vec::new();
    for (number, keys) in history(ctx).into_iter().rev() {
        let head = format!("{HISTORY}{number}/");
        let mut change = Change { number, stamp: text(&head), values: BTreeMap::new() };
        for key in &keys {
            let Some(rest) = key.strip_prefix(&head) else { continue };
            if let Some(name) = rest.strip_prefix('-') {
                change.values.entry(name.to_owned()).or_default().0 = Some(text(key));
            } else if let Some(name) = rest.strip_prefix('+') {
                change.values.entry(name.to_owned()).or_default().1 = Some(text(key));
            }
        }
        all.push(change);
    }
    all
}

fn log(ctx: &mut CommandCtx<'_>) -> Run {
    let num = ctx.cmd.int("num")?.and_then(|n| usize::try_from(n).ok()).unwrap_or(10);
    let mut all = changes(ctx);
    all.push(Change { number: 1, stamp: "0.000000".into(), values: BTreeMap::new() });
    all.truncate(num);
    let Some(mut f) = ctx.formatter() else {
        let mut text = String::new();
        for change in &all {
            let _ = writeln!(text, "--- {} --- {} ---", change.number, change.stamp);
            for (name, (old, new)) in &change.values {
                if let Some(old) = old {
                    let _ = writeln!(text, "- {name} = {old}");
                }
                if let Some(new) = new {
                    let _ = writeln!(text, "+ {name} = {new}");
                }
            }
        }
        return out(text);
    };
    f.array("changesets", |f| {
        for change in &all {
            f.object("changeset", |f| {
                f.int("version", change.number);
                f.string("timestamp", &change.stamp);
                f.string("name", "");
                f.array("changes", |f| {
                    for (name, (old, new)) in &change.values {
                        f.object("change", |f| {
                            f.string("name", name);
                            if let Some(old) = old {
                                f.string("previous_value", old);
                            }
                            if let Some(new) = new {
                                f.string("new_value", new);
                            }
                        });
                    }
                });
            });
        }
    });
    out(f.finish())
}

/// `who/name` apart, from the right: names have slashes only in manager modules.
fn split_change(text: &str) -> Option<(String, String)> {
    let at = text.find("/mgr/").or_else(|| text.rfind('/'))?;
    Some((text[..at].to_owned(), text[at + 1..].to_owned()))
}

fn reset(ctx: &mut CommandCtx<'_>) -> Run {
    let num = ctx.cmd.need_int("num")?;
    let last = history_last(ctx);
    let to = u64::try_from(num).ok().filter(|n| *n >= 1 && *n <= last).ok_or_else(|| {
        fail(EINVAL, "must specify a valid historical version to revert to; see 'ceph config log' for a list of avialable configuration historical versions")
    })?;
    let mut wanted: BTreeMap<(String, String), Option<String>> = BTreeMap::new();
    for change in changes(ctx).into_iter().filter(|c| c.number > to) {
        for (name, (old, _)) in change.values {
            if let Some(at) = split_change(&name) {
                wanted.insert(at, old);
            }
        }
    }
    if wanted.is_empty() {
        return ok("");
    }
    let list = wanted.into_iter().map(|((who, name), value)| (who, name, value)).collect();
    propose(with_history(ctx, list), "")
}

fn show(ctx: &mut CommandCtx<'_>, defaults: bool) -> Run {
    let who = ctx.cmd.str_or_empty("who")?;
    let entity = entity_of(who)?;
    let there = match entity.kind {
        EntityKind::OSD => entity.id.parse().is_ok_and(|id| ctx.osdmap().exists(types::OsdId(id))),
        EntityKind::MON => ctx.state.monmap.mons.contains_key(&entity.id),
        EntityKind::MGR => ctx.state.mgrmap.active_name == entity.id,
        _ => false,
    };
    if !there {
        return Err(fail(ENOENT, format!("no config state for daemon {who}")));
    }
    let effective = ctx.state.config.effective(&entity, &place_of(ctx, &entity));
    let key = normalize(ctx.cmd.str_or_empty("key")?);
    if !key.is_empty() {
        let value = effective.get(&key).map(|(value, _)| value.clone());
        let value = value.or_else(|| conf::known(&key).map(|s| s.default().to_owned()));
        return match value {
            Some(value) => out(format!("{value}\n")),
            None => Err(fail(ENOENT, "")),
        };
    }
    let mut rows: BTreeMap<String, (String, &str)> = BTreeMap::new();
    if defaults {
        for spec in conf::all_known() {
            rows.insert(spec.name().to_owned(), (spec.default().to_owned(), "default"));
        }
    }
    for (name, (value, _)) in effective {
        rows.insert(name, (value, "mon"));
    }
    let Some(mut f) = ctx.formatter() else {
        let mut table = TextTable::with(&[
            ("NAME", Align::Left, Align::Left),
            ("VALUE", Align::Left, Align::Left),
            ("SOURCE", Align::Left, Align::Left),
            ("OVERRIDES", Align::Left, Align::Left),
            ("IGNORES", Align::Left, Align::Left),
        ]);
        for (name, (value, source)) in rows {
            let effect = conf::known(&name).map(|option| option.effect());
            let ignored = if effect == Some(conf::Effect::None) && source != "default" {
                "without effect".to_owned()
            } else {
                String::new()
            };
            table.row(vec![name, value, source.to_owned(), String::new(), ignored]);
        }
        return out(table.render());
    };
    f.array("config", |f| {
        for (name, (value, source)) in &rows {
            f.object("value", |f| {
                f.string("name", name);
                f.string("value", value);
                f.string("source", source);
            });
        }
    });
    out(f.finish())
}

fn assimilate(ctx: &mut CommandCtx<'_>) -> Run {
    let text = String::from_utf8_lossy(ctx.inbuf);
    let (mut list, mut rest) = (Vec::new(), BTreeMap::<String, Vec<(String, String)>>::new());
    let mut section = "global".to_owned();
    for line in text.lines() {
        let line = line.split(['#', ';']).next().unwrap_or_default().trim();
        if let Some(name) = line.strip_prefix('[').and_then(|l| l.strip_suffix(']')) {
            section = name.trim().to_owned();
        } else if let Some((name, value)) = line.split_once('=') {
            let (name, value) = (normalize(name), value.trim().trim_matches('"').to_owned());
            let there = ctx.state.config.sections.get(&section).and_then(|s| s.get(&name));
            let differs = there.is_some_and(|v| *v != value);
            match check(&name, &value) {
                Ok(value) if !differs && target(&section).is_ok() => {
                    if there.is_none() {
                        list.push((section.clone(), name, Some(value)));
                    }
                }
                _ => rest.entry(section.clone()).or_default().push((name, value)),
            }
        }
    }
    let mut back = String::new();
    for (section, mut values) in rest {
        values.sort();
        let _ = writeln!(back, "\n[{section}]");
        for (name, value) in values {
            let _ = writeln!(back, "\t{name} = {value}");
        }
    }
    let then = Reply::out(back);
    if list.is_empty() {
        return Ok(Outcome::Reply(then));
    }
    Ok(Outcome::Propose { mutation: with_history(ctx, list), then })
}

fn minimal_conf(ctx: &mut CommandCtx<'_>) -> Run {
    let map = &ctx.state.monmap;
    let hosts: Vec<String> = map
        .iter()
        .map(|(_, mon)| {
            let addrs: Vec<String> = mon.addrs.0.iter().map(ToString::to_string).collect();
            if addrs.len() == 1 { addrs.concat() } else { format!("[{}]", addrs.join(",")) }
        })
        .collect();
    out(format!(
        "# minimal ceph.conf for {fsid}\n[global]\n\tfsid = {fsid}\n\tmon_host = {}\n",
        hosts.join(" "),
        fsid = ctx.state.fsid
    ))
}

/// The key/value store as users see it: the settings are in it, as with the peer.
fn store(ctx: &CommandCtx<'_>) -> BTreeMap<String, Bytes> {
    let mut all = ctx.state.config_key.clone();
    for (who, options) in &ctx.state.config.sections {
        for (name, value) in options {
            all.insert(format!("{SETTINGS}{who}/{name}"), Bytes::from(value.clone()));
        }
    }
    all
}

/// Text that can be shown in a terminal.
fn shown(value: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(value).ok()?;
    let fits = |c: char| !c.is_control() || matches!(c, '\n' | '\t' | '\r');
    text.chars().all(fits).then_some(text)
}

pub(super) fn key_value(ctx: &mut CommandCtx<'_>, what: &str) -> Run {
    let store = store(ctx);
    let key = ctx.cmd.str_or_empty("key")?.to_owned();
    match what {
        "get" => match store.get(&key) {
            Some(value) => out(value.clone()),
            None => Err(fail(ENOENT, "")),
        },
        "set" | "put" => {
            let value = match ctx.cmd.str("val")? {
                Some(text) => Bytes::copy_from_slice(text.as_bytes()),
                None => ctx.inbuf.clone(),
            };
            if value.len() > VALUE_BYTES_MAX {
                return Err(fail(
                    EFBIG,
                    format!(
                        "error: entry size limited to {VALUE_BYTES_MAX} bytes. Use 'mon config key max entry size' to manually adjust"
                    ),
                ));
            }
            if key.is_empty() || key.starts_with(HISTORY) || key.starts_with(SETTINGS) {
                return Err(fail(EPERM, "this key is not for users; see 'ceph config'"));
            }
            let done = format!("set {key}");
            propose(Mutation::ConfigKey { key, value: Some(value) }, done)
        }
        "rm" | "del" => {
            if !ctx.state.config_key.contains_key(&key) {
                return ok("key deleted");
            }
            propose(Mutation::ConfigKey { key, value: None }, "key deleted")
        }
        "exists" if store.contains_key(&key) => ok(format!("key '{key}' exists")),
        "exists" => Err(fail(ENOENT, format!("key '{key}' doesn't exist"))),
        "ls" | "list" => {
            let mut f = ctx.formatter_or_pretty();
            f.array("keys", |f| {
                for key in store.keys() {
                    f.string("key", key);
                }
            });
            out(f.finish_line())
        }
        "dump" => {
            let mut f = ctx.formatter_or_pretty();
            f.object("config-key store", |f| {
                for (name, value) in
                    store.range(key.clone()..).take_while(|(k, _)| k.starts_with(&key))
                {
                    match shown(value) {
                        Some(text) => f.string(name, text),
                        None => {
                            f.string(
                                name,
                                format!("<<< binary blob of length {} >>>", value.len()),
                            );
                        }
                    }
                }
            });
            out(f.finish_line())
        }
        _ => Err(fail(EINVAL, "command not known")),
    }
}
