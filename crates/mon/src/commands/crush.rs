//! `osd crush ...`.

use std::collections::BTreeMap;
use std::fmt::Write;

use ::crush::{CrushMap, Location, Profile, Spread};
use bytes::Bytes;
use denc::Denc;
use types::OsdId;

use super::{
    EBUSY, EEXIST, EINVAL, ENOENT, EPERM, Fail, OsdWord, Run, change, crush_dump, fail, ok,
    osd_word, out, out_rs, release_name, tree,
};
use crate::CommandCtx;

/// A map that cannot serve.
const EUCLEAN: i32 = 117;

/// A map's bytes, as an OSD map change carries them.
pub(super) fn bytes_of(map: &CrushMap) -> Bytes {
    map.to_bytes()
}

pub(super) fn run(ctx: &mut CommandCtx<'_>, what: &str) -> Run {
    match what {
        "dump" => {
            let mut f = ctx.formatter_or_pretty();
            f.object("crush_map", |f| crush_dump::all(f, ctx.osdmap()));
            out(f.finish_line())
        }
        "tree" => tree::crush_tree(ctx),
        "ls" => ls(ctx),
        "add-bucket" => add_bucket(ctx),
        "rename-bucket" => rename_bucket(ctx),
        "set" if !ctx.cmd.has("id") => set_map(ctx),
        "set" | "add" => set_item(ctx, what),
        "create-or-move" => create_or_move(ctx),
        "move" | "link" => move_item(ctx, what == "link"),
        "swap-bucket" => swap_bucket(ctx),
        "rm" | "remove" | "unlink" => remove(ctx, what == "unlink"),
        "reweight" => reweight(ctx),
        "reweight-subtree" => reweight_subtree(ctx),
        "reweight-all" => {
            edit(ctx, |map| map.reweight().map(|()| "reweighted crush hierarchy".to_owned()))
        }
        "tunables" => tunables(ctx),
        "set-tunable" => set_tunable(ctx),
        "get-tunable" => get_tunable(ctx),
        "show-tunables" => {
            let mut f = ctx.formatter_or_pretty();
            f.object("crush_map_tunables", |f| crush_dump::tunables(f, &ctx.osdmap().crush));
            out(f.finish_line())
        }
        "set-all-straw-buckets-to-straw2" => straw2(ctx),
        _ if what.starts_with("rule ") => rule(ctx, &what["rule ".len()..]),
        _ if what.starts_with("class ") => class(ctx, &what["class ".len()..]),
        "set-device-class" => set_device_class(ctx),
        "rm-device-class" => rm_device_class(ctx),
        "get-device-class" => get_device_class(ctx),
        _ if what.starts_with("weight-set ") => weight_set(ctx, &what["weight-set ".len()..]),
        _ => Err(fail(EINVAL, "command not known")),
    }
}

/// Changes a copy of the map and asks for it.
fn edit(
    ctx: &CommandCtx<'_>,
    edit: impl FnOnce(&mut CrushMap) -> Result<String, ::crush::CrushError>,
) -> Run {
    let mut map = (**ctx.osdmap().crush.map()).clone();
    let done = edit(&mut map)?;
    propose_map(ctx, &map, done)
}

fn propose_map(ctx: &CommandCtx<'_>, map: &CrushMap, done: impl Into<String>) -> Run {
    propose_with(ctx, ctx.osd_change(), map, done)
}

/// Rules and tunables of this kind came with that release; clients before it place otherwise.
const SQUID: u8 = 19;

/// Refuses a map that clients which are let in do not understand.
///
/// # Errors
/// `EINVAL`.
fn check_clients(osdmap: &maps::OsdMap, map: &CrushMap) -> Result<(), Fail> {
    let required = osdmap.require_min_compat_client;
    let msr = map.has_msr_rules() || map.tunables().need_msr();
    if !msr || required == 0 || required >= SQUID {
        return Ok(());
    }
    Err(fail(
        EINVAL,
        format!(
            "new crush map requires client version squid but require_min_compat_client is {}",
            release_name(required)
        ),
    ))
}

/// Asks for a map together with what else `inc` changes.
fn propose_with(
    ctx: &CommandCtx<'_>,
    mut inc: maps::Incremental,
    map: &CrushMap,
    done: impl Into<String>,
) -> Run {
    check_clients(ctx.osdmap(), map)?;
    inc.crush = bytes_of(map);
    // What cannot be read again must never get into the log.
    CrushMap::from_shared(&inc.crush)
        .map_err(|e| fail(EINVAL, format!("the map would be invalid: {e}")))?;
    change(inc, done)
}

/// Names go into text maps and scripts: letters, digits, `-`, `_`, `.`.
fn check_rule_name(name: &str) -> Result<(), Fail> {
    if ::crush::is_valid_name(name) {
        return Ok(());
    }
    Err(fail(EINVAL, format!("invalid rule name '{name}': use letters, digits, '-', '_', '.'")))
}

pub(super) fn get_map(ctx: &mut CommandCtx<'_>) -> Run {
    if ctx.cmd.int("epoch")?.is_some_and(|e| e != 0 && e != i64::from(ctx.osdmap().epoch.0)) {
        let epoch = ctx.cmd.need_int("epoch")?;
        let epoch32 = u32::try_from(epoch).map(types::Epoch);
        let map = epoch32.ok().and_then(|e| ctx.state.osd_history.map(e));
        let map = map.ok_or_else(|| fail(ENOENT, format!("there is no map for epoch {epoch}")))?;
        let bytes = map.crush.bytes_for(ctx.session.features);
        return out_rs(map.crush_version.to_string(), bytes);
    }
    let map = ctx.osdmap();
    out_rs(map.crush_version.to_string(), map.crush.bytes_for(ctx.session.features))
}

/// Replaces the map: `osd setcrushmap`, `osd crush set` without arguments.
pub(super) fn set_map(ctx: &mut CommandCtx<'_>) -> Run {
    let version = ctx.osdmap().crush_version;
    if let Some(prior) = ctx.cmd.int("prior_version")?
        && prior != i64::from(version)
    {
        // The same map once more is a repeated command.
        let same = CrushMap::from_shared(ctx.inbuf)
            .is_ok_and(|map| bytes_of(&map) == bytes_of(ctx.osdmap().crush.map()));
        if prior == i64::from(version) - 1 && same {
            return ok(version.to_string());
        }
        return Err(fail(EPERM, format!("prior_version {prior} != crush version {version}")));
    }
    let map = CrushMap::from_shared(ctx.inbuf)
        .map_err(|e| fail(EINVAL, format!("Failed to parse crushmap: {e}")))?;
    for (id, pool) in ctx.osdmap().pools.iter() {
        if map.rule(u32::from(pool.crush_rule)).is_none() {
            let rule = pool.crush_rule;
            return Err(fail(
                EINVAL,
                format!("pool {id} references crush_rule {rule} but it is not present"),
            ));
        }
    }
    if map.max_devices() > 100_000 {
        return Err(fail(EINVAL, "the crushmap has too many devices"));
    }
    map.smoke_test().map_err(|why| fail(EUCLEAN, format!("Failed crushmap test: {why}")))?;
    propose_map(ctx, &map, (version + 1).to_string())
}

fn ls(ctx: &mut CommandCtx<'_>) -> Run {
    let name = ctx.cmd.str_or_empty("node")?;
    let map = &ctx.osdmap().crush;
    let Some(id) = map.names().id(name) else {
        return Err(fail(ENOENT, format!("node '{name}' does not exist")));
    };
    let mut names: Vec<String> = Vec::new();
    if let Some(bucket) = map.bucket(id) {
        for item in bucket.items() {
            names.push(map.names().get(*item).map_or_else(|| item.to_string(), str::to_owned));
        }
    } else {
        names.push(name.to_owned());
    }
    let Some(mut f) = ctx.formatter() else {
        let mut text = String::new();
        for name in names {
            let _ = writeln!(text, "{name}");
        }
        return out(text);
    };
    f.array("items", |f| {
        for name in &names {
            f.string("item", name);
        }
    });
    out(f.finish())
}

fn location(ctx: &CommandCtx<'_>) -> Result<Location, Fail> {
    ::crush::parse_location(&ctx.cmd.list("args")?)
        .map_err(|_| fail(EINVAL, "(22) Invalid argument"))
}

/// `{host=a,root=default}`.
fn shown(location: &Location) -> String {
    let pairs: Vec<String> = location.iter().map(|(k, v)| format!("{k}={v}")).collect();
    format!("{{{}}}", pairs.join(","))
}

fn add_bucket(ctx: &mut CommandCtx<'_>) -> Run {
    let name = ctx.cmd.str_or_empty("name")?.to_owned();
    let kind = ctx.cmd.str_or_empty("type")?.to_owned();
    let at = location(ctx)?;
    let map = &ctx.osdmap().crush;
    if map.names().id(&name).is_some() {
        return ok(format!("bucket '{name}' already exists"));
    }
    match map.types().id(&kind) {
        None => return Err(fail(EINVAL, format!("type '{kind}' does not exist"))),
        Some(0) => return Err(fail(EINVAL, format!("type '{kind}' is for devices, not buckets"))),
        Some(_) => {}
    }
    if !::crush::is_valid_name(&name) {
        return Err(fail(EINVAL, format!("error setting bucket name to '{name}'")));
    }
    edit(ctx, |map| {
        let id = map.add_named_bucket(&name, &kind)?;
        if at.is_empty() {
            return Ok(format!("added bucket {name} type {kind} to crush map"));
        }
        map.move_bucket(id, &at)?;
        Ok(format!("added bucket {name} type {kind} to location {}", shown(&at)))
    })
}

fn rename_bucket(ctx: &mut CommandCtx<'_>) -> Run {
    let from = ctx.cmd.str_or_empty("srcname")?.to_owned();
    let to = ctx.cmd.str_or_empty("dstname")?.to_owned();
    let names = ctx.osdmap().crush.names();
    match (names.id(&from).is_some(), names.id(&to).is_some()) {
        (false, true) => {
            return ok(format!(
                "srcname = '{from}' does not exist and dstname = '{to}' already exists"
            ));
        }
        (true, true) => return Err(fail(EEXIST, format!("dstname = '{to}' already exists"))),
        (false, false) => {
            return Err(fail(ENOENT, format!("srcname = '{from}' does not exist")));
        }
        (true, false) => {}
    }
    edit(ctx, |map| {
        map.rename_bucket(&from, &to)?;
        Ok(format!("renamed bucket {from} into {to}"))
    })
}

fn osd_arg(ctx: &CommandCtx<'_>) -> Result<(OsdId, String), Fail> {
    let osd = ctx.cmd.need_osd("id")?;
    Ok((osd, format!("osd.{osd}")))
}

fn weight_arg(ctx: &CommandCtx<'_>) -> Result<(f64, u32), Fail> {
    let weight = ctx.cmd.need_float("weight")?;
    let fixed = ::crush::fixed_weight(weight)
        .map_err(|_| fail(75, "(75) Value too large for defined data type"))?;
    Ok((weight, fixed))
}

fn set_item(ctx: &mut CommandCtx<'_>, action: &str) -> Run {
    let (osd, name) = osd_arg(ctx)?;
    if !ctx.osdmap().exists(osd) {
        return Err(fail(
            ENOENT,
            format!("{name} does not exist. Create it before updating the crush map"),
        ));
    }
    let (weight, fixed) = weight_arg(ctx)?;
    let at = location(ctx)?;
    let text = cli::float_text(weight, 6);
    let there = ctx.osdmap().crush.names().contains(osd.0);
    if action == "set" && !there {
        return Err(fail(
            ENOENT,
            format!(
                "unable to set item id {osd} name '{name}' weight {text} at location {}: does not exist",
                shown(&at)
            ),
        ));
    }
    edit(ctx, |map| {
        if action == "add" {
            if map.check_item_loc(osd.0, &at).is_some() {
                map.update_item(osd.0, fixed, &name, &at)?;
            } else {
                map.insert_item(osd.0, fixed, &name, &at, true)?;
            }
            return Ok(format!(
                "add item id {osd} name '{name}' weight {text} at location {} to crush map",
                shown(&at)
            ));
        }
        map.update_item(osd.0, fixed, &name, &at)?;
        Ok(format!(
            "set item id {osd} name '{name}' weight {text} at location {} to crush map",
            shown(&at)
        ))
    })
}

fn create_or_move(ctx: &mut CommandCtx<'_>) -> Run {
    let (osd, name) = osd_arg(ctx)?;
    if !ctx.osdmap().exists(osd) {
        return Err(fail(
            ENOENT,
            format!("{name} does not exist.  create it before updating the crush map"),
        ));
    }
    let (_, fixed) = weight_arg(ctx)?;
    let at = location(ctx)?;
    let mut map = (**ctx.osdmap().crush.map()).clone();
    let changed = map.create_or_move_item(osd.0, fixed, &name, &at, true)?;
    let weight = cli::float_text(super::weight_float(map.item_weight(osd.0).unwrap_or(fixed)), 6);
    let verb = if changed { "updating" } else { "updated" };
    let done = format!(
        "create-or-move {verb} item name '{name}' weight {weight} at location {} to crush map",
        shown(&at)
    );
    if changed { propose_map(ctx, &map, done) } else { ok(done) }
}

fn move_item(ctx: &mut CommandCtx<'_>, link: bool) -> Run {
    let name = ctx.cmd.str_or_empty("name")?.to_owned();
    let at = location(ctx)?;
    let map = &ctx.osdmap().crush;
    let Some(id) = map.names().id(&name) else {
        return Err(fail(ENOENT, format!("item {name} does not exist")));
    };
    let known = at.keys().all(|kind| map.types().id(kind).is_some());
    if !known {
        return Err(fail(EINVAL, "(22) Invalid argument"));
    }
    if link && id >= 0 {
        return Err(fail(
            EINVAL,
            format!("cannot link item id {id} name '{name}' to location {}", shown(&at)),
        ));
    }
    if map.check_item_loc(id, &at).is_some() {
        return ok(format!(
            "no need to move item id {id} name '{name}' to location {} in crush map",
            shown(&at)
        ));
    }
    edit(ctx, |map| {
        if link {
            map.link_bucket(id, &at)?;
            return Ok(format!(
                "linked item id {id} name '{name}' to location {} in crush map",
                shown(&at)
            ));
        }
        if id >= 0 {
            let weight = map.item_weight(id).unwrap_or(0);
            map.update_item(id, weight, &name, &at)?;
        } else {
            map.move_bucket(id, &at)?;
        }
        Ok(format!("moved item id {id} name '{name}' to location {} in crush map", shown(&at)))
    })
    .map_err(sentence)
}

fn swap_bucket(ctx: &mut CommandCtx<'_>) -> Run {
    let (from, to) = (ctx.cmd.str_or_empty("source")?, ctx.cmd.str_or_empty("dest")?);
    let names = ctx.osdmap().crush.names();
    let find = |what: &str, name: &str| {
        names.id(name).ok_or_else(|| fail(ENOENT, format!("{what} item {name} does not exist")))
    };
    let (a, b) = (find("source", from)?, find("dest", to)?);
    if !ctx.cmd.flag("yes_i_really_mean_it") {
        return Err(fail(
            EPERM,
            "this moves all data of both buckets; pass --yes-i-really-mean-it to do it",
        ));
    }
    let done = format!("swapped bucket of {from} to {to}");
    edit(ctx, |map| map.swap_bucket(a, b).map(|()| done))
}

fn remove(ctx: &mut CommandCtx<'_>, unlink: bool) -> Run {
    let name = ctx.cmd.str_or_empty("name")?.to_owned();
    let map = &ctx.osdmap().crush;
    let Some(id) = map.names().id(&name) else {
        return ok(format!("device '{name}' does not appear in the crush map"));
    };
    let ancestor = ctx.cmd.str_or_empty("ancestor")?.to_owned();
    let done = format!("removed item id {id} name '{name}' from crush map");
    let remove = |edit: &dyn Fn(&mut CrushMap) -> Result<(), ::crush::CrushError>| {
        let mut map = (**ctx.osdmap().crush.map()).clone();
        match edit(&mut map) {
            // A bucket that is at no place already is unlinked.
            Err(e) if e.errno() == ENOENT && unlink && ancestor.is_empty() => ok(done.clone()),
            Err(e) if e.errno() == ENOENT && !ancestor.is_empty() => {
                ok(format!("item {id} does not appear in that position"))
            }
            Err(e) => Err(sentence(e.into())),
            Ok(()) => propose_map(ctx, &map, done.clone()),
        }
    };
    if ancestor.is_empty() {
        return remove(&|map| map.remove_item(id, unlink));
    }
    let Some(above) = map.names().id(&ancestor) else {
        return Err(fail(
            ENOENT,
            format!("ancestor item '{ancestor}' does not appear in the crush map"),
        ));
    };
    remove(&|map| map.remove_item_under(id, above, unlink))
}

/// The peer answers some refusals with the error's name alone.
fn sentence(e: Fail) -> Fail {
    match e.errno {
        39 => fail(39, "(39) Directory not empty"),
        40 => fail(40, "(40) Too many levels of symbolic links"),
        _ => e,
    }
}

fn reweight(ctx: &mut CommandCtx<'_>) -> Run {
    let name = ctx.cmd.str_or_empty("name")?.to_owned();
    let map = &ctx.osdmap().crush;
    let Some(id) = map.names().id(&name) else {
        return Err(fail(ENOENT, format!("device '{name}' does not appear in the crush map")));
    };
    if id < 0 {
        return Err(fail(EINVAL, format!("device '{name}' is not a leaf in the crush map")));
    }
    let (weight, fixed) = weight_arg(ctx)?;
    let text = cli::float_text(weight, 6);
    edit(ctx, |map| {
        map.adjust_item_weight(id, fixed, true)?;
        Ok(format!("reweighted item id {id} name '{name}' to {text} in crush map"))
    })
}

fn reweight_subtree(ctx: &mut CommandCtx<'_>) -> Run {
    let name = ctx.cmd.str_or_empty("name")?.to_owned();
    let Some(id) = ctx.osdmap().crush.names().id(&name) else {
        return Err(fail(ENOENT, format!("device '{name}' does not appear in the crush map")));
    };
    if id >= 0 {
        return Err(fail(EINVAL, format!("device '{name}' is not a subtree in the crush map")));
    }
    let (weight, fixed) = weight_arg(ctx)?;
    let text = cli::float_text(weight, 6);
    edit(ctx, |map| {
        map.adjust_subtree_weight(id, fixed, true)?;
        Ok(format!("reweighted subtree id {id} name '{name}' to {text} in crush map"))
    })
}

fn tunables(ctx: &mut CommandCtx<'_>) -> Run {
    let name = ctx.cmd.str_or_empty("profile")?.to_owned();
    let Some(profile) = Profile::from_name(&name) else {
        return Err(fail(EINVAL, format!("unrecognized profile '{name}'")));
    };
    edit(ctx, |map| {
        map.tunables_mut().set_profile(profile);
        Ok(format!("adjusted tunables profile to {name}"))
    })
}

fn set_tunable(ctx: &mut CommandCtx<'_>) -> Run {
    let name = ctx.cmd.str_or_empty("tunable")?.to_owned();
    let value = ctx.cmd.int("value")?.unwrap_or(-1);
    if name != "straw_calc_version" {
        return Err(fail(EINVAL, format!("unrecognized tunable '{name}'")));
    }
    if !(0..=1).contains(&value) {
        return Err(fail(EINVAL, format!("value must be 0 or 1; got {value}")));
    }
    edit(ctx, |map| {
        map.tunables_mut().straw_calc_version = value as u8;
        Ok(format!("adjusted tunable {name} to {value}"))
    })
}

fn get_tunable(ctx: &mut CommandCtx<'_>) -> Run {
    if ctx.cmd.str_or_empty("tunable")? != "straw_calc_version" {
        return Err(fail(EINVAL, ""));
    }
    let value = ctx.osdmap().crush.tunables().straw_calc_version;
    match ctx.formatter() {
        None => out(format!("{value}\n")),
        Some(mut f) => {
            f.object("tunable", |f| f.int("straw_calc_version", value));
            out(f.finish())
        }
    }
}

fn straw2(ctx: &mut CommandCtx<'_>) -> Run {
    let map = ctx.osdmap().crush.map();
    if !map.buckets().any(|b| b.alg() == ::crush::BucketAlg::Straw) {
        return ok("");
    }
    edit(ctx, |map| {
        map.straw_to_straw2();
        Ok(String::new())
    })
}

fn rule(ctx: &mut CommandCtx<'_>, what: &str) -> Run {
    let map = &ctx.osdmap().crush;
    let name = ctx.cmd.str_or_empty("name")?.to_owned();
    let list = |ctx: &CommandCtx<'_>, names: Vec<&str>| {
        let Some(mut f) = ctx.formatter() else {
            return out(names.iter().map(|n| format!("{n}\n")).collect::<String>());
        };
        f.array("rules", |f| {
            for name in names {
                f.string("name", name);
            }
        });
        out(f.finish())
    };
    match what {
        "ls" | "list" => list(ctx, map.rule_names().iter().map(|(_, name)| name).collect()),
        "ls-by-class" => {
            let class = ctx.cmd.str_or_empty("class")?;
            if map.class_names().id(class).is_none() {
                return Err(fail(ENOENT, format!("failed to get rules by class '{class}'")));
            }
            let rules = map.rules_of_class(class);
            list(ctx, rules.iter().filter_map(|id| map.rule_names().get(*id as i32)).collect())
        }
        "dump" => {
            let mut f = ctx.formatter_or_pretty();
            if name.is_empty() {
                f.array("rules", |f| {
                    for (id, _) in map.rules() {
                        crush_dump::rule(f, map, id);
                    }
                });
            } else {
                let id = map.rule_names().id(&name);
                let id = id.ok_or_else(|| fail(ENOENT, format!("unknown crush rule '{name}'")))?;
                crush_dump::rule(&mut f, map, id as u32);
            }
            out(f.finish_line())
        }
        "rm" => {
            let Some(id) = map.rule_names().id(&name) else {
                return ok(format!("rule {name} does not exist"));
            };
            if ctx.osdmap().pools.values().any(|p| i32::from(p.crush_rule) == id) {
                return Err(fail(EBUSY, format!("crush rule {name} ({id}) is in use")));
            }
            edit(ctx, |map| map.remove_rule(id as u32).map(|()| String::new()))
        }
        "rename" => {
            let from = ctx.cmd.str_or_empty("srcname")?.to_owned();
            let to = ctx.cmd.str_or_empty("dstname")?.to_owned();
            check_rule_name(&to)?;
            let there = |name: &str| map.rule_names().id(name).is_some();
            if !there(&from) && there(&to) {
                return ok(format!("already renamed to '{to}'"));
            }
            edit(ctx, |map| map.rename_rule(&from, &to).map(|()| String::new()))
        }
        "create-simple" | "create-replicated" => {
            check_rule_name(&name)?;
            if map.rule_names().id(&name).is_some() {
                return ok(format!("rule {name} already exists"));
            }
            let root = ctx.cmd.str_or_empty("root")?.to_owned();
            let kind = ctx.cmd.str_or_empty("type")?.to_owned();
            let class = ctx.cmd.str_or_empty("class")?.to_owned();
            let indep = ctx.cmd.str_or_empty("mode")? == "indep";
            if map.names().id(&root).is_none() {
                return Err(fail(ENOENT, format!("root item {root} does not exist")));
            }
            if map.types().id(&kind).is_none() {
                return Err(fail(EINVAL, format!("unknown type {kind}")));
            }
            if !class.is_empty() && map.class_names().id(&class).is_none() {
                return Err(fail(EINVAL, format!("device class {class} does not exist")));
            }
            edit(ctx, |map| {
                if indep {
                    let spread = spread(&root, &kind, &class);
                    map.add_simple_rule(&name, spread, true, ::crush::RULE_TYPE_REPLICATED)?;
                } else {
                    map.add_replicated_rule(&name, &root, &kind, &class)?;
                }
                Ok(String::new())
            })
        }
        "create-erasure" => create_erasure(ctx, &name),
        _ => Err(fail(EINVAL, "command not known")),
    }
}

fn spread<'a>(root: &'a str, failure_domain: &'a str, class: &'a str) -> Spread<'a> {
    Spread { root, failure_domain, failure_domains: 0, class }
}

fn create_erasure(ctx: &mut CommandCtx<'_>, name: &str) -> Run {
    check_rule_name(name)?;
    let map = &ctx.osdmap().crush;
    if map.rule_names().id(name).is_some() {
        return ok(format!("rule {name} already exists"));
    }
    let profile = ctx.cmd.str("profile")?.filter(|p| !p.is_empty()).unwrap_or("default");
    let mut inc = ctx.osd_change();
    let (profile, _) = super::ec::stored_or_default(ctx, &mut inc, profile)?;
    let mut map = (**ctx.osdmap().crush.map()).clone();
    let id = add_erasure_rule(ctx.osdmap(), &mut map, name, &profile)?;
    propose_with(ctx, inc, &map, format!("created rule {name} at {id}"))
}

/// Adds the rule that an erasure code profile asks for.
pub(super) fn add_erasure_rule(
    osdmap: &maps::OsdMap,
    map: &mut CrushMap,
    name: &str,
    profile: &BTreeMap<String, String>,
) -> Result<u32, Fail> {
    let get = |key: &str, default: &'static str| {
        profile.get(key).map(String::as_str).filter(|v| !v.is_empty()).unwrap_or(default)
    };
    let number = |key: &str| -> Result<i32, Fail> {
        let value = get(key, "0");
        value.parse().map_err(|_| {
            let why = format!("Expected option value to be integer, got '{value}'");
            fail(EINVAL, format!("could not convert {key}={value} to int because {why}"))
        })
    };
    let per_domain = number("crush-osds-per-failure-domain")?;
    let spread = Spread {
        failure_domains: number("crush-num-failure-domains")?,
        ..spread(
            get("crush-root", "default"),
            get("crush-failure-domain", "host"),
            get("crush-device-class", ""),
        )
    };
    let id = map.add_erasure_rule(name, spread, per_domain)?;
    check_clients(osdmap, map)?;
    Ok(id)
}

fn class(ctx: &mut CommandCtx<'_>, what: &str) -> Run {
    let map = &ctx.osdmap().crush;
    let name = ctx.cmd.str_or_empty("class")?.to_owned();
    match what {
        "ls" => {
            let mut f = ctx.formatter_or_pretty();
            f.array("crush_classes", |f| {
                for (_, name) in map.class_names().iter() {
                    f.string("class", name);
                }
            });
            out(f.finish())
        }
        "ls-osd" => {
            let osds = map.devices_of_class(&name);
            let Some(mut f) = ctx.formatter() else {
                return out(osds.iter().map(|o| format!("{o}\n")).collect::<String>());
            };
            f.array("osds", |f| {
                for osd in osds {
                    f.int("osd", osd);
                }
            });
            out(f.finish())
        }
        "create" => {
            if map.class_names().id(&name).is_some() {
                return ok(format!("class '{name}' already exists"));
            }
            edit(ctx, |map| {
                let id = map.get_or_create_class(&name)?;
                Ok(format!("created class {name} with id {id} to crush map"))
            })
        }
        "rm" => {
            let Some(id) = map.class_names().id(&name) else { return ok("") };
            let used = map.rules_using_class(id);
            if !used.is_empty() {
                let rules: Vec<String> = used.iter().map(u32::to_string).collect();
                return Err(fail(
                    EBUSY,
                    format!(
                        "class '{name}' still referenced by crush rule(s): {}",
                        rules.join(",")
                    ),
                ));
            }
            edit(ctx, |map| {
                map.remove_class(&name)?;
                Ok(format!("removed class {name} with id {id} from crush map"))
            })
        }
        "rename" => {
            let from = ctx.cmd.str_or_empty("srcname")?.to_owned();
            let to = ctx.cmd.str_or_empty("dstname")?.to_owned();
            if map.class_names().id(&from).is_none() && map.class_names().id(&to).is_some() {
                return ok(format!("already renamed to '{to}'"));
            }
            edit(ctx, |map| {
                map.rename_class(&from, &to)?;
                Ok(format!("rename class '{from}' to '{to}'"))
            })
            .map_err(|e| match e.errno {
                ENOENT => {
                    let why = "(2) No such file or directory";
                    fail(ENOENT, format!("fail to rename '{from}' to '{to}' : {why}"))
                }
                _ => e,
            })
        }
        _ => Err(fail(EINVAL, "command not known")),
    }
}

/// The OSDs a command lists, also `all`, in the order given; and what to say of a word that
/// is none.
fn class_words(ctx: &CommandCtx<'_>) -> Result<Vec<Result<OsdId, String>>, Fail> {
    let mut osds = Vec::new();
    for word in ctx.cmd.list("ids")? {
        match osd_word(&word) {
            Ok(OsdWord::All) => osds.extend(ctx.osdmap().osds().map(Ok)),
            Ok(OsdWord::One(osd)) => osds.push(Ok(osd)),
            Err(_) => {
                let why = format!("Expected option value to be integer, got '{word}'");
                osds.push(Err(format!("{why}, unable to parse osd id:\"{word}\". ")));
            }
        }
    }
    Ok(osds)
}

/// As [`class_words`], where each word must be an OSD.
fn class_osds(ctx: &CommandCtx<'_>) -> Result<Vec<OsdId>, Fail> {
    let words = class_words(ctx)?;
    words.into_iter().collect::<Result<_, String>>().map_err(|why| fail(EINVAL, why))
}

/// The OSDs that `get-device-class` lists, refused with its own sentence.
fn class_readers(ctx: &CommandCtx<'_>) -> Result<Vec<OsdId>, Fail> {
    for word in ctx.cmd.list("ids")? {
        if osd_word(&word).is_err() {
            return Err(fail(EINVAL, format!("unable to parse osd id:'{word}'")));
        }
    }
    class_osds(ctx)
}

fn joined(osds: &[OsdId]) -> String {
    osds.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

/// Puts an OSD into a class; an OSD that CRUSH does not know yet gets its name there.
pub(super) fn put_in_class(
    map: &mut CrushMap,
    osd: OsdId,
    class: &str,
) -> Result<bool, ::crush::CrushError> {
    if !map.names().contains(osd.0) {
        map.set_item_name(osd.0, &format!("osd.{osd}"))?;
    }
    map.update_device_class(osd.0, class)
}

fn set_device_class(ctx: &mut CommandCtx<'_>) -> Run {
    let class = ctx.cmd.str_or_empty("class")?.to_owned();
    let mut map = (**ctx.osdmap().crush.map()).clone();
    let (mut said, mut set) = (String::new(), Vec::new());
    for osd in class_words(ctx)? {
        let osd = match osd {
            Ok(osd) => osd,
            Err(why) => {
                said += &why;
                continue;
            }
        };
        if !ctx.osdmap().exists(osd) {
            said += &format!("osd.{osd} does not exist. ");
            continue;
        }
        if map.class_name_of(osd.0) == Some(&class) {
            said += &format!("osd.{osd} already set to class {class}. ");
            said += &format!(
                "set-device-class item id {osd} name 'osd.{osd}' device_class '{class}': no change. "
            );
            continue;
        }
        if put_in_class(&mut map, osd, &class)? {
            set.push(osd);
        }
    }
    said += &format!("set osd(s) {} to class '{class}'", joined(&set));
    if set.is_empty() { ok(said) } else { propose_map(ctx, &map, said) }
}

fn rm_device_class(ctx: &mut CommandCtx<'_>) -> Run {
    let mut map = (**ctx.osdmap().crush.map()).clone();
    let (mut said, mut removed) = (String::new(), Vec::new());
    for osd in class_osds(ctx)? {
        if !ctx.osdmap().exists(osd) {
            said += &format!("osd.{osd} does not exist. ");
        } else if map.class_of(osd.0).is_none() {
            said += &format!("osd.{osd} belongs to no class, ");
        } else if map.remove_device_class(osd.0)? {
            removed.push(osd);
        }
    }
    said += &format!("done removing class of osd(s): {}", joined(&removed));
    if removed.is_empty() { ok(said) } else { propose_map(ctx, &map, said) }
}

fn get_device_class(ctx: &mut CommandCtx<'_>) -> Run {
    let osds = class_readers(ctx)?;
    let map = ctx.osdmap();
    for osd in &osds {
        if !map.exists(*osd) {
            return Err(fail(EINVAL, format!("osd.{osd} does not exist")));
        }
    }
    let class = |osd: OsdId| map.crush.class_name_of(osd.0).unwrap_or("").to_owned();
    let Some(mut f) = ctx.formatter() else {
        if let [one] = osds.as_slice() {
            return out(class(*one) + "\n");
        }
        return out(osds.iter().map(|o| format!("osd.{o} {}\n", class(*o))).collect::<String>());
    };
    f.array("osd_device_classes", |f| {
        for osd in osds {
            f.object("osd_device_class", |f| {
                f.int("osd", osd.0);
                f.string("device_class", class(osd));
            });
        }
    });
    out(f.finish())
}

fn weight_set(ctx: &mut CommandCtx<'_>, what: &str) -> Run {
    let map = &ctx.osdmap().crush;
    let compat = ::crush::DEFAULT_CHOOSE_ARGS;
    let sets = map.choose_args();
    let new_enough = |ctx: &CommandCtx<'_>| {
        let required = ctx.osdmap().require_min_compat_client;
        if required >= 12 {
            return Ok(());
        }
        let now = release_name(required);
        Err(fail(
            EPERM,
            format!(
                "require_min_compat_client {now} < luminous, which is required for per-pool weight-sets. Try 'ceph osd set-require-min-compat-client luminous' before using the new interface"
            ),
        ))
    };
    match what {
        "ls" => {
            let osdmap = ctx.osdmap();
            let names = sets.keys().map(|set| match *set {
                s if s == compat => "(compat)".to_owned(),
                s => {
                    osdmap.pool_name(types::PoolId(s)).map_or_else(|| s.to_string(), str::to_owned)
                }
            });
            let Some(mut f) = ctx.formatter() else {
                return out(names.map(|n| n + "\n").collect::<String>());
            };
            f.array("weight_sets", |f| {
                for name in names {
                    f.string("pool", name);
                }
            });
            out(f.finish())
        }
        "dump" => {
            let mut f = ctx.formatter_or_pretty();
            f.object("weight_sets", |f| crush_dump::choose_args(f, map));
            out(f.finish())
        }
        "create-compat" => {
            if sets.contains_key(&compat) {
                return ok("compat weight-set already created");
            }
            edit(ctx, |map| {
                map.create_choose_args(compat, 1);
                Ok(String::new())
            })
        }
        "create" => {
            new_enough(ctx)?;
            let name = ctx.cmd.str_or_empty("pool")?.to_owned();
            let (id, pool) = ctx.need_pool("pool")?;
            let positional = ctx.cmd.str_or_empty("mode")? == "positional";
            let positions = if positional { usize::from(pool.size) } else { 1 };
            if sets.contains_key(&id.0) {
                return ok(format!("weight-set for pool '{name}' already created"));
            }
            edit(ctx, |map| {
                map.create_choose_args(id.0, positions);
                Ok(String::new())
            })
        }
        "rm" | "rm-compat" => {
            let id = if what == "rm" { ctx.need_pool("pool")?.0.0 } else { compat };
            if !sets.contains_key(&id) {
                return ok("");
            }
            edit(ctx, |map| {
                map.remove_choose_args(id);
                Ok(String::new())
            })
        }
        "reweight" | "reweight-compat" => {
            let set = if what == "reweight" { ctx.need_pool("pool")?.0.0 } else { compat };
            if !sets.contains_key(&set) {
                let name = ctx.cmd.str_or_empty("pool")?;
                let why = if what == "reweight" {
                    format!("no weight-set for pool '{name}'")
                } else {
                    "no backward-compatible weight-set".to_owned()
                };
                return Err(fail(ENOENT, why));
            }
            let item = ctx.cmd.str_or_empty("item")?;
            let Some(id) = map.names().id(item) else {
                return Err(fail(ENOENT, format!("item '{item}' does not exist")));
            };
            let weights: Option<Vec<u32>> = ctx
                .cmd
                .list("weight")?
                .iter()
                .map(|w| ::crush::fixed_weight(w.parse().ok()?).ok())
                .collect();
            let Some(weights) = weights.filter(|w| !w.is_empty()) else {
                return Err(fail(EINVAL, "weights must be numbers from 0"));
            };
            edit(ctx, |map| {
                map.choose_args_adjust_item_weight(set, id, &weights)?;
                Ok(String::new())
            })
        }
        _ => Err(fail(EINVAL, "command not known")),
    }
}
