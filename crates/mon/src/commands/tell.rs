//! Commands sent to this monitor itself: `ceph tell mon.X`, `ceph daemon mon.X`, the admin
//! socket. What is not the daemon's own goes to the cluster's commands.
//!
//! Settings changed this way are filed under `mon.X` in the central settings, which is where
//! a monitor reads its options: they hold at once, and `config unset` takes them back.

use std::collections::BTreeMap;

use cli::Formatter;
use maps::PgState;
use metrics::{Amount, Family, Group, Shape, Unit};
use serde_json::Value;
use types::{EntityKind, EntityName};

use super::{EINVAL, ENOENT, Fail, Run, dispatch, fail, mons, out};
use crate::{CommandCtx, ConfigPlace, Mutation, Outcome, Reply};

/// Whether a command is this daemon's own, whoever leads.
pub(super) fn is_own(args: &cli::Args) -> bool {
    let prefix = args.prefix();
    match prefix {
        "config show" | "config get" | "config set" => !args.has("who"),
        "config help" => !args.has("key"),
        _ => matches!(
            prefix,
            "get_command_descriptions"
                | "help"
                | "version"
                | "git_version"
                | "config unset"
                | "config diff"
                | "config diff get"
                | "injectargs"
                | "counter dump"
                | "counter schema"
                | "perf dump"
                | "perf schema"
                | "ops"
                | "dump_historic_ops"
                | "log flush"
                | "log reopen"
                | "quorum_status"
                | "mon_status"
                | "sessions"
        ),
    }
}

pub(super) fn run(ctx: &mut CommandCtx<'_>) -> Run {
    let prefix = ctx.cmd.prefix().to_owned();
    // `config set` of the cluster names whose setting it is, the daemon's own does not.
    let central = ctx.cmd.has("who");
    match prefix.as_str() {
        "get_command_descriptions" => out(cli::mon_tell_descriptions()),
        "help" => help(ctx),
        "version" => version(ctx),
        "git_version" => {
            let mut f = ctx.formatter_or_pretty();
            f.object("version", |f| f.string("git_version", types::release::commit()));
            out(f.finish())
        }
        "config show" if !central => config_show(ctx),
        "config get" if !central => config_get(ctx),
        "config set" if !central => config_set(ctx),
        "config unset" => config_unset(ctx),
        "config diff" => config_diff(ctx, None),
        "config diff get" => {
            let var = need_option(ctx, "getting")?;
            config_diff(ctx, Some(&var))
        }
        "config help" if !ctx.cmd.has("key") => config_help(ctx),
        "injectargs" => inject(ctx),
        "perf dump" | "perf schema" | "counter dump" | "counter schema" => {
            told_counters(ctx, &prefix)
        }
        "ops" | "dump_historic_ops" => ops(ctx, &prefix),
        "log flush" | "log reopen" => {
            let mut f = ctx.formatter_or_pretty();
            f.object("log", |_| {});
            out(f.finish())
        }
        "quorum_status" | "mon_status" | "sessions" => mons::run(ctx, &prefix),
        _ => dispatch(ctx).map_err(|e| match e {
            Fail { errno: EINVAL, why } if why == "command not known" => {
                fail(EINVAL, format!("unknown command prefix {prefix}"))
            }
            other => other,
        }),
    }
}

/// Signatures and what they do.
fn help(ctx: &mut CommandCtx<'_>) -> Run {
    let mut f = ctx.formatter_or_pretty();
    let all: BTreeMap<&str, &str> = cli::MON_TELL.iter().copied().collect();
    f.object("help", |f| {
        for (signature, about) in all {
            f.string(signature, about);
        }
    });
    out(f.finish())
}

fn version(ctx: &mut CommandCtx<'_>) -> Run {
    let own = ctx.state.mon_metadata.get(&ctx.volatile.quorum.name);
    let short = own.and_then(|m| m.get("ceph_version_short")).cloned();
    let release = own.and_then(|m| m.get("ceph_release")).cloned();
    let mut f = ctx.formatter_or_pretty();
    f.object("version", |f| {
        f.string("version", short.as_deref().unwrap_or(types::release::NUMBER));
        f.string("release", release.as_deref().unwrap_or(types::release::NAME));
        f.string("release_type", types::release::TYPE);
    });
    out(f.finish())
}

fn own_name(ctx: &CommandCtx<'_>) -> EntityName {
    EntityName::new(EntityKind::MON, ctx.volatile.quorum.name.clone())
}

/// Settings from the monitors' database that hold for this monitor.
fn own_settings(ctx: &CommandCtx<'_>) -> BTreeMap<String, (String, String)> {
    ctx.state.config.effective(&own_name(ctx), &ConfigPlace::default())
}

/// Each option's value in force.
fn values(ctx: &CommandCtx<'_>) -> BTreeMap<String, String> {
    let mut all: BTreeMap<String, String> =
        conf::all_known().map(|o| (o.name().to_owned(), o.default().to_owned())).collect();
    all.extend(ctx.options.iter().map(|(name, value)| (name.clone(), value.clone())));
    all.insert("fsid".to_owned(), ctx.state.fsid.to_string());
    all.extend(own_settings(ctx).into_iter().map(|(name, (value, _))| (name, value)));
    all
}

/// The option an argument names, as far as this monitor knows it.
fn need_option(ctx: &CommandCtx<'_>, doing: &str) -> Result<String, Fail> {
    let var = ctx.cmd.need_str("var")?;
    let name = conf::normalize(var);
    if values(ctx).contains_key(&name) {
        return Ok(name);
    }
    Err(fail(ENOENT, format!("error {doing} '{var}': (2) No such file or directory")))
}

fn config_show(ctx: &mut CommandCtx<'_>) -> Run {
    let mut f = ctx.formatter_or_pretty();
    f.object("config_show", |f| {
        f.display("name", own_name(ctx));
        f.string("cluster", "ceph");
        for (name, value) in values(ctx) {
            f.string(&name, value);
        }
    });
    out(f.finish())
}

fn config_get(ctx: &mut CommandCtx<'_>) -> Run {
    let name = need_option(ctx, "getting")?;
    let value = values(ctx).remove(&name).unwrap_or_default();
    let mut f = ctx.formatter_or_pretty();
    f.object("config_get", |f| f.string(&name, value));
    out(f.finish())
}

/// A change of one of this monitor's own settings; `None` takes it back.
fn change(ctx: &CommandCtx<'_>, name: &str, value: Option<String>) -> Mutation {
    Mutation::Config { who: own_name(ctx).to_string(), name: name.to_owned(), value }
}

fn checked(name: &str, value: &str) -> Result<(), String> {
    conf::known(name).map_or(Ok(()), |spec| spec.kind().check(value))
}

fn config_set(ctx: &mut CommandCtx<'_>) -> Run {
    // Some clients send the value as a list of words.
    let value = match ctx.cmd.list("val") {
        Ok(words) => words.join(" "),
        Err(_) => ctx.cmd.need_str("val")?.to_owned(),
    };
    let var = ctx.cmd.need_str("var")?;
    let name = conf::normalize(var);
    let error = |errno: i32, what: &str| {
        fail(errno, format!("error setting '{var}' to '{value}': ({errno}) {what}"))
    };
    let spec = conf::known(&name).ok_or_else(|| error(ENOENT, "No such file or directory"))?;
    checked(&name, &value).map_err(|_| error(EINVAL, "Invalid argument"))?;
    let plain = ctx.formatter().is_none();
    let mut f = ctx.formatter_or_pretty();
    let note = if spec.runtime() { "" } else { "(not observed, change may require restart) " };
    let text = if plain { format!("{name} = '' {note}") } else { note.to_owned() };
    f.object("config_set", |f| f.string("success", text));
    let then = Reply::out(f.finish());
    Ok(Outcome::Propose { mutation: change(ctx, &name, Some(value)), then })
}

fn config_unset(ctx: &mut CommandCtx<'_>) -> Run {
    let var = ctx.cmd.need_str("var")?;
    let name = conf::normalize(var);
    let known = conf::known(&name).is_some() || own_settings(ctx).contains_key(&name);
    if !known {
        let why = format!("error unsetting '{var}': (2) No such file or directory");
        return Err(fail(ENOENT, why));
    }
    let plain = ctx.formatter().is_none();
    let mut f = ctx.formatter_or_pretty();
    f.object("config_unset", |f| {
        f.string("success", if plain { format!("{name} = '' ") } else { String::new() });
    });
    let then = Reply::out(f.finish());
    Ok(Outcome::Propose { mutation: change(ctx, &name, None), then })
}

/// Options whose value is not the default, with where it comes from.
fn config_diff(ctx: &mut CommandCtx<'_>, only: Option<&str>) -> Run {
    let (settings, file) = (own_settings(ctx), ctx.options);
    let mut f = ctx.formatter_or_pretty();
    f.object("config_diff", |f| {
        f.object("diff", |f| {
            for (name, value) in values(ctx) {
                let default = conf::known(&name).map_or("", |spec| spec.default());
                let set = settings.get(&name).map(|(value, _)| value);
                // Where the default has variables, only what they stand for is known here.
                let is_default = |value: &str| value == default || default.contains('$');
                let started = file.get(&name).filter(|value| !is_default(value));
                if only.is_some_and(|o| o != name) || set.or(started).is_none() {
                    continue;
                }
                f.object(&name, |f| {
                    f.string("default", default);
                    if let Some(value) = set {
                        f.string("mon", value);
                    }
                    if let Some(value) = started {
                        f.string("file", value);
                    }
                    f.string("final", value);
                });
            }
        });
    });
    out(f.finish())
}

fn config_help(ctx: &mut CommandCtx<'_>) -> Run {
    let var = ctx.cmd.str("var")?.map(conf::normalize);
    if let Some(var) = &var
        && conf::known(var).is_none()
    {
        return Err(fail(ENOENT, format!("Setting not found: '{var}'")));
    }
    let dump = |f: &mut Formatter, spec: conf::Known| {
        f.string("name", spec.name());
        f.string("type", spec.type_name());
        f.string("level", spec.level());
        f.string("desc", spec.about());
        f.string("default", spec.default());
        f.bool("can_update_at_runtime", spec.runtime());
    };
    let mut f = ctx.formatter_or_pretty();
    match var.as_deref().and_then(conf::known) {
        Some(spec) => f.object("option", |f| dump(f, spec)),
        None => f.array("options", |f| {
            for spec in conf::all_known() {
                f.object("option", |f| dump(f, spec));
            }
        }),
    }
    out(f.finish())
}

/// Reads `--name=value` and `--name value`, separated by blanks, as `injectargs` takes them.
fn injected(words: &[String]) -> Result<Vec<(String, String)>, Fail> {
    let text = words.join(" ");
    let mut words = text.split_whitespace().peekable();
    let (mut all, mut bad) = (Vec::new(), Vec::new());
    while let Some(word) = words.next() {
        let Some(option) = word.strip_prefix("--") else {
            bad.push(word.to_owned());
            continue;
        };
        let (name, value) = match option.split_once('=') {
            Some((name, value)) => (name, value.to_owned()),
            None => {
                let value = words.next_if(|w| !w.starts_with("--")).unwrap_or("true");
                (option, value.to_owned())
            }
        };
        let name = conf::normalize(name);
        if conf::known(&name).is_some() && checked(&name, &value).is_ok() {
            all.push((name, value));
        } else {
            bad.push(word.to_owned());
        }
    }
    if bad.is_empty() {
        return Ok(all);
    }
    Err(fail(EINVAL, format!(" failed to parse arguments: {}\n", bad.join(","))))
}

/// Changes settings of this monitor.
pub(super) fn inject(ctx: &mut CommandCtx<'_>) -> Run {
    let words = match ctx.cmd.list("injected_args") {
        Ok(words) => words,
        Err(_) => vec![ctx.cmd.need_str("injected_args")?.to_owned()],
    };
    let all = injected(&words)?;
    let mut f = ctx.formatter_or_pretty();
    f.object("injectargs", |_| {});
    let then = Reply::out(f.finish());
    let changes: Vec<Mutation> =
        all.into_iter().map(|(name, value)| change(ctx, &name, Some(value))).collect();
    if changes.is_empty() {
        return Ok(Outcome::Reply(then));
    }
    Ok(Outcome::Propose { mutation: Mutation::Batch(changes), then })
}

/// Operations end as soon as they are looked at: none is ever under way.
fn ops(ctx: &mut CommandCtx<'_>, prefix: &str) -> Run {
    let mut f = ctx.formatter_or_pretty();
    f.object(prefix, |f| {
        f.array("ops", |_| {});
        f.int("num_ops", 0);
    });
    out(f.finish())
}

fn gauge(name: &'static str, value: impl TryInto<u64>, about: &'static str) -> (Family, Amount) {
    let unit = if name.contains("bytes") { Unit::Bytes } else { Unit::None };
    let family = Family { name, about, nick: "", priority: 0, shape: Shape::Gauge, unit };
    (family, Amount::Number(value.try_into().unwrap_or(0)))
}

fn counter(
    name: &'static str,
    nick: &'static str,
    value: u64,
    about: &'static str,
) -> (Family, Amount) {
    let (shape, priority) = (Shape::Counter, metrics::PRIORITY_USEFUL);
    (Family { name, about, nick, priority, shape, unit: Unit::None }, Amount::Number(value))
}

/// Every counter, by logger.
fn counters(ctx: &CommandCtx<'_>) -> Vec<Group> {
    let (state, volatile) = (ctx.state, ctx.volatile);
    let (osds, up, inn) = state.osdmap.osd_counts();
    let (total, avail, used) = super::df::totals(ctx);
    let sum = super::status::pool_total(ctx);
    let pgs = |fits: &dyn Fn(PgState) -> bool| {
        volatile.pgmap.pgs.values().filter(|stat| fits(stat.state)).count()
    };
    let clean = |s: PgState| s.has(PgState::ACTIVE) && s.has(PgState::CLEAN);
    let quorum = &volatile.quorum;
    let sessions: u64 = volatile.groups.iter().map(|g| u64::from(g.count)).sum();
    let cluster = vec![
        gauge("num_mon", state.monmap.mons.len(), "Monitors"),
        gauge("num_mon_quorum", quorum.quorum.len(), "Monitors in quorum"),
        gauge("num_osd", osds, "OSDs"),
        gauge("num_osd_up", up, "OSDs that are up"),
        gauge("num_osd_in", inn, "OSDs in state \"in\" (they are in cluster)"),
        gauge("osd_epoch", state.osdmap.epoch.0, "Current epoch of OSD map"),
        gauge("osd_bytes", total, "Total capacity of cluster"),
        gauge("osd_bytes_used", used, "Used space"),
        gauge("osd_bytes_avail", avail, "Available space"),
        gauge("num_pool", state.osdmap.pools.len(), "Pools"),
        gauge("num_pg", volatile.pgmap.pgs.len(), "Placement groups"),
        gauge("num_pg_active_clean", pgs(&clean), "Placement groups in active+clean state"),
        gauge(
            "num_pg_active",
            pgs(&|s| s.has(PgState::ACTIVE)),
            "Placement groups in active state",
        ),
        gauge(
            "num_pg_peering",
            pgs(&|s| s.has(PgState::PEERING)),
            "Placement groups in peering state",
        ),
        gauge("num_object", sum.num_objects, "Objects"),
        gauge(
            "num_object_degraded",
            sum.num_objects_degraded,
            "Degraded (missing replicas) objects",
        ),
        gauge(
            "num_object_misplaced",
            sum.num_objects_misplaced,
            "Misplaced (wrong location in the cluster) objects",
        ),
        gauge("num_object_unfound", sum.num_objects_unfound, "Unfound objects"),
        gauge("num_bytes", sum.num_bytes, "Size of all objects"),
    ];
    let mut sessions = gauge("num_sessions", sessions, "Open sessions");
    (sessions.0.nick, sessions.0.priority) = ("sess", metrics::PRIORITY_USEFUL);
    let elections = u64::from(quorum.election_epoch / 2);
    let mon =
        vec![sessions, counter("num_elections", "ecnt", elections, "Elections participated in")];
    let own = vec![
        gauge("monmap_epoch", state.monmap.epoch.0, "Current epoch of monitor map"),
        counter("log_version", "", state.log.version, "Lines of the cluster log"),
        counter("config_version", "", state.config.version, "Changes of central settings"),
        counter("auth_version", "", state.auth.version, "Changes of keys"),
        counter("pg_reports", "", volatile.pgmap.version, "Statistics reports of OSDs"),
        gauge("osdmap_first_committed", state.osd_history.first.0, "Oldest OSD map kept"),
        gauge("osdmap_last_committed", state.osd_history.last.0, "Newest OSD map"),
    ];
    vec![Group::new("cluster", cluster), Group::new("mon", mon), Group::new("argonaut", own)]
}

fn told_counters(ctx: &mut CommandCtx<'_>, prefix: &str) -> Run {
    let word = |name| -> Result<Option<String>, Fail> {
        Ok(ctx.cmd.str(name)?.filter(|word| !word.is_empty()).map(str::to_owned))
    };
    let (logger, one) = (word("logger")?, word("counter")?);
    let told = metrics::answer(prefix, &counters(ctx), logger.as_deref(), one.as_deref());
    let root = match prefix {
        "perf dump" => "perf_dump",
        "perf schema" => "perf_schema",
        _ => "counters",
    };
    tell(ctx, root, &told.unwrap_or_default())
}

/// Tells a value in the format that was asked for.
fn tell(ctx: &mut CommandCtx<'_>, name: &str, value: &Value) -> Run {
    let mut f = ctx.formatter_or_pretty();
    put(&mut f, name, value);
    out(f.finish())
}

fn put(f: &mut Formatter, name: &str, value: &Value) {
    match value {
        Value::Object(all) => f.object(name, |f| all.iter().for_each(|(k, v)| put(f, k, v))),
        Value::Array(all) => f.array(name, |f| all.iter().for_each(|v| put(f, name, v))),
        Value::String(text) => f.string(name, text),
        other => f.unquoted(name, &other.to_string()),
    }
}
