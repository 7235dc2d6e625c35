//! What the peer's manager and its modules answer, and the answer to commands nobody knows.

use std::collections::BTreeMap;

use cli::{Align, Formatter, TextTable};
use maps::{MgrMap, ModuleInfo};

use super::{
    EINVAL, ENOENT, EOPNOTSUPP, EPERM, Run, dump_addrvec, fail, legacy_text, mons, ok, out,
    release_name,
};
use crate::managers::{self, ALWAYS_ON};
use crate::{CommandCtx, Mutation, Outcome, Reply};

pub(super) fn run(ctx: &mut CommandCtx<'_>, prefix: &str) -> Run {
    match prefix {
        "mgr stat" => mgr_stat(ctx),
        "mgr dump" => mgr_dump(ctx),
        "mgr digest" => digest(ctx),
        "mgr fail" => {
            let who = ctx.cmd.str_or_empty("who")?.to_owned();
            Ok(Outcome::FailManager { who })
        }
        "mgr services" => mgr_services(ctx),
        "mgr metadata" => mgr_metadata(ctx),
        "mgr count-metadata" => {
            let property = ctx.cmd.str_or_empty("property")?.to_owned();
            mons::count(ctx, &property, all_metadata(ctx).into_values())
        }
        "mgr versions" => mons::count(ctx, "ceph_version", all_metadata(ctx).into_values()),
        "mgr module ls" => module_ls(ctx),
        "mgr module enable" => module_enable(ctx),
        "mgr module disable" => module_disable(ctx),
        "service dump" => service_dump(ctx),
        "service status" => service_status(ctx),
        "device ls" => device_ls(ctx),
        _ => module(ctx, prefix),
    }
}

/// Commands of modules, by their first word.
fn module(ctx: &mut CommandCtx<'_>, prefix: &str) -> Run {
    match prefix {
        "iostat" => iostat(ctx),
        "progress" => progress(ctx),
        "progress json" => progress_json(ctx),
        "progress clear" => Ok(Outcome::ClearProgress(Reply::ok(""))),
        "telemetry status" => out(TELEMETRY_STATUS),
        "telemetry off" => out("Telemetry is currently not enabled, nothing to turn off.\n"),
        p if p == "orch" || p.starts_with("orch ") => {
            Err(fail(ENOENT, "No orchestrator configured (try `ceph orch set backend`)"))
        }
        _ => Err(fail(EINVAL, "command not known")),
    }
}

/// What clients do, by the last statistics; clients that poll ask every second.
fn iostat(ctx: &mut CommandCtx<'_>) -> Run {
    const COLUMNS: [&str; 6] = ["Read", "Write", "Total", "Read IOPS", "Write IOPS", "Total IOPS"];
    let width = ctx.cmd.int("width")?.unwrap_or(80).clamp(40, 1_000) as usize;
    let cell = (width - 7) / 6;
    let r = &ctx.volatile.pgmap.rates;
    let (rd, wr) = (r.rd_bytes.max(0.0) as u64, r.wr_bytes.max(0.0) as u64);
    let (rd_ops, wr_ops) = (r.rd_ops.max(0.0) as u64, r.wr_ops.max(0.0) as u64);
    let bytes = [rd, wr, rd + wr].map(|n| format!("{}/s", cli::bytes_u(n)));
    let ops = [rd_ops, wr_ops, rd_ops + wr_ops].map(|n| n.to_string());
    let row = |cells: Vec<String>| {
        let w = cell - 1;
        cells.iter().map(|text| format!("|{text:>w$} ")).collect::<String>() + "|\n"
    };
    let rule = format!("+{}", "-".repeat(cell)).repeat(6) + "+\n";
    let mut text = String::new();
    // Clients that poll say when they want it.
    if ctx.cmd.flag("print_header") || !ctx.cmd.has("print_header") {
        text += &format!("{rule}{}{rule}", row(COLUMNS.map(str::to_owned).into()));
    }
    text += &row(bytes.into_iter().chain(ops).collect());
    out(text)
}

fn progress(ctx: &CommandCtx<'_>) -> Run {
    let p = &ctx.volatile.progress;
    let mut text: String = p.event.iter().map(|e| e.lines(4) + "\n").collect();
    for done in &p.completed {
        let secs = done.ended_ns.saturating_sub(done.began_ns) / 1_000_000_000;
        let (message, bar) = (crate::progress::MESSAGE, crate::progress::bar(1.0));
        let age = cli::age(secs * 1_000);
        text += &format!("[Complete]: {message} ({age})\n    {bar}\n");
    }
    if text.is_empty() { ok("Nothing in progress") } else { out(text) }
}

fn progress_json(ctx: &CommandCtx<'_>) -> Run {
    use serde_json::json;
    let p = &ctx.volatile.progress;
    let secs = |ns: u64| ns as f64 / 1e9;
    let events: Vec<_> = p
        .event
        .iter()
        .map(|e| {
            json!({
                "add_to_ceph_s": true,
                "duration": e.age_ms as f64 / 1e3,
                "id": e.id.to_string(),
                "message": e.lines(4),
                "progress": e.progress,
                "refs": ["global"],
                "started_at": secs(e.began_ns),
                "time_remaining": e.remaining_s(),
            })
        })
        .collect();
    let completed: Vec<_> = p
        .completed
        .iter()
        .map(|c| {
            json!({
                "add_to_ceph_s": true,
                "finished_at": secs(c.ended_ns),
                "id": c.id.to_string(),
                "message": crate::progress::MESSAGE,
                "refs": ["global"],
                "started_at": secs(c.began_ns),
            })
        })
        .collect();
    out(as_python(&json!({ "completed": completed, "events": events })))
}

/// Json as the peer's modules write it.
pub(super) fn as_python(value: &serde_json::Value) -> String {
    use serde::Serialize;
    let mut text = Vec::new();
    let form = serde_json::ser::PrettyFormatter::with_indent(b"    ");
    let mut to = serde_json::Serializer::with_formatter(&mut text, form);
    value.serialize(&mut to).expect("numbers and text into memory");
    text.push(b'\n');
    String::from_utf8(text).expect("json is text")
}

/// Nothing is ever sent; in the peer's form, which is the same in every format.
const TELEMETRY_STATUS: &str = "{
    \"channel_basic\": false,
    \"channel_crash\": false,
    \"channel_device\": false,
    \"channel_ident\": false,
    \"channel_perf\": false,
    \"contact\": null,
    \"description\": null,
    \"enabled\": false,
    \"last_upload\": null,
    \"leaderboard\": false,
    \"organization\": null,
    \"proxy\": null
}
";

/// What the managers that are active or wait say of themselves, by name. Where none is registered
/// it is the monitor whose role is active.
pub(super) fn all_metadata<'a>(
    ctx: &CommandCtx<'a>,
) -> BTreeMap<&'a str, &'a BTreeMap<String, String>> {
    let map = &ctx.state.mgrmap;
    let mut all = BTreeMap::new();
    let registered = managers::is_registered(map);
    if registered || map.available {
        let of = if registered { &ctx.state.mgr_metadata } else { &ctx.state.mon_metadata };
        all.extend(of.get(&map.active_name).map(|own| (map.active_name.as_str(), own)));
    }
    for standby in map.standbys.values() {
        let own = ctx.state.mgr_metadata.get(&standby.name);
        all.extend(own.map(|own| (standby.name.as_str(), own)));
    }
    all
}

fn mgr_stat(ctx: &mut CommandCtx<'_>) -> Run {
    let map = &ctx.state.mgrmap;
    let mut f = ctx.formatter_or_pretty();
    f.object("stat", |f| {
        f.int("epoch", map.epoch.0);
        f.bool("available", map.available);
        f.string("active_name", &map.active_name);
        f.len("num_standby", map.standbys.len());
    });
    out(f.finish())
}

fn mgr_dump(ctx: &mut CommandCtx<'_>) -> Run {
    let map = &ctx.state.mgrmap;
    let epoch = ctx.cmd.int("epoch")?.unwrap_or(0);
    if epoch != 0 && epoch != i64::from(map.epoch.0) {
        return Err(fail(ENOENT, format!("there is no map for epoch {epoch}")));
    }
    let mut f = ctx.formatter_or_pretty();
    f.object("mgrmap", |f| dump_mgrmap(f, map));
    out(f.finish())
}

fn dump_names<'a>(f: &mut Formatter, list: &str, names: impl Iterator<Item = &'a String>) {
    f.array(list, |f| {
        for name in names {
            f.string("module", name);
        }
    });
}

fn dump_module(f: &mut Formatter, module: &ModuleInfo) {
    f.object("module", |f| {
        f.string("name", &module.name);
        f.bool("can_run", module.can_run);
        f.string("error_string", &module.error);
        f.object("module_options", |f| {
            for (name, option) in &module.options {
                f.object(name, |f| {
                    f.string("name", &option.name);
                    f.string("type", option_kind(option.kind));
                    f.string("level", option_level(option.level));
                    f.int("flags", option.flags);
                    f.string("default_value", &option.default_value);
                    f.string("min", &option.min);
                    f.string("max", &option.max);
                    for (list, item, values) in [
                        ("enum_allowed", "value", &option.enum_allowed),
                        ("tags", "tag", &option.tags),
                        ("see_also", "option", &option.see_also),
                    ] {
                        if list == "tags" {
                            f.string("desc", &option.desc);
                            f.string("long_desc", &option.long_desc);
                        }
                        f.array(list, |f| {
                            for value in values {
                                f.string(item, value);
                            }
                        });
                    }
                });
            }
        });
    });
}

fn option_kind(kind: u8) -> &'static str {
    const KINDS: [&str; 11] = [
        "uint",
        "int",
        "str",
        "float",
        "bool",
        "addr",
        "addrvec",
        "uuid",
        "size",
        "secs",
        "millisecs",
    ];
    KINDS.get(usize::from(kind)).copied().unwrap_or("unknown")
}

fn option_level(level: u8) -> &'static str {
    ["basic", "advanced", "dev"].get(usize::from(level)).copied().unwrap_or("unknown")
}

fn dump_mgrmap(f: &mut Formatter, map: &MgrMap) {
    f.int("epoch", map.epoch.0);
    f.int("flags", map.flags);
    f.int("active_gid", map.active_gid);
    f.string("active_name", &map.active_name);
    dump_addrvec(f, "active_addrs", &map.active_addrs);
    f.string("active_addr", legacy_text(&map.active_addrs.legacy()));
    f.display("active_change", map.active_change);
    f.int("active_mgr_features", map.active_mgr_features);
    f.bool("available", map.available);
    f.array("standbys", |f| {
        for standby in map.standbys.values() {
            f.object("standby", |f| {
                f.int("gid", standby.gid);
                f.string("name", &standby.name);
                f.int("mgr_features", standby.features);
                f.array("available_modules", |f| {
                    for module in &standby.modules {
                        dump_module(f, module);
                    }
                });
            });
        }
    });
    dump_names(f, "modules", map.modules.iter());
    f.array("available_modules", |f| {
        for module in &map.available_modules {
            dump_module(f, module);
        }
    });
    f.object("services", |f| {
        for (name, url) in &map.services {
            f.string(name, url);
        }
    });
    f.object("always_on_modules", |f| {
        for (release, modules) in &map.always_on_modules {
            let release = u8::try_from(*release).map_or("unknown", release_name);
            dump_names(f, release, modules.iter());
        }
    });
    f.object("force_disabled_modules", |f| {
        for name in &map.force_disabled_modules {
            f.string("module", name);
        }
    });
    f.int("last_failure_osd_epoch", map.last_failure_osd_epoch.0);
    f.array("active_clients", |f| {
        for (name, addrs) in map.clients_names.iter().zip(&map.clients_addrs) {
            f.object("client", |f| {
                f.string("name", name);
                f.array("addrvec", |f| {
                    for addr in &addrs.0 {
                        f.object("addr", |f| {
                            f.string("type", super::addr_kind(addr));
                            f.string("addr", super::sock_text(addr));
                            f.int("nonce", addr.nonce);
                        });
                    }
                });
            });
        }
    });
}

/// What the active manager makes its metrics of: answers of commands, all of the same moment, and
/// numbers of PGs by pool and state. `slow_ops` and `creating_pgs` are by OSD.
fn digest(ctx: &mut CommandCtx<'_>) -> Run {
    let command = |prefix: &str| cli::Args::new(prefix).with("format", "json");
    let parts = [
        ("health", command("health").with("detail", "detail")),
        ("quorum", command("quorum_status")),
        ("mon_metadata", command("mon metadata")),
        ("mgr", command("mgr dump")),
        ("mgr_metadata", command("mgr metadata")),
        ("fs", command("fs dump")),
        ("mds_metadata", command("mds metadata")),
        ("osd", command("osd dump")),
        ("osd_metadata", command("osd metadata")),
        ("osd_tree", command("osd tree")),
        ("osd_perf", command("osd perf")),
        ("df", command("df").with("detail", "detail")),
        ("pg_pools", command("pg dump").with("dumpcontents", vec!["pools"])),
        ("pool_stats", command("osd pool stats")),
        ("services", command("service dump")),
    ];
    let mut text = String::from("{");
    for (name, args) in &parts {
        let mut part = CommandCtx {
            now: ctx.now,
            state: ctx.state,
            volatile: ctx.volatile,
            session: ctx.session,
            cmd: args,
            inbuf: ctx.inbuf,
            rng: &mut *ctx.rng,
            options: ctx.options,
        };
        let Outcome::Reply(reply) = super::dispatch(&mut part)? else { continue };
        let json = String::from_utf8_lossy(&reply.out);
        let json = if json.trim().is_empty() { "null" } else { json.trim() };
        text += &format!("\"{name}\":{json},");
    }
    let mut pgs: BTreeMap<String, BTreeMap<&str, u64>> = BTreeMap::new();
    let mut creating: BTreeMap<String, u64> = BTreeMap::new();
    let mut states: BTreeMap<(types::PoolId, u64), (u64, String)> = BTreeMap::new();
    for (pg, stat) in &ctx.volatile.pgmap.pgs {
        let state = stat.state;
        let known = states.entry((pg.pool, state.0)).or_insert_with(|| (0, state.to_string()));
        known.0 += 1;
        if state.has(maps::PgState::CREATING) {
            *creating.entry(stat.acting_primary.0.to_string()).or_default() += 1;
        }
    }
    for ((pool, _), (count, names)) in &states {
        let counts = pgs.entry(pool.0.to_string()).or_default();
        *counts.entry("total").or_default() += count;
        for name in names.split('+') {
            *counts.entry(name).or_default() += count;
        }
    }
    let slow = ctx.volatile.pgmap.slow.iter();
    let slow: BTreeMap<String, u32> = slow.map(|(osd, (n, _))| (osd.0.to_string(), *n)).collect();
    let rest = serde_json::json!({"pgs": pgs, "slow_ops": slow, "creating_pgs": creating});
    text += &rest.to_string()[1..];
    out(text)
}

fn mgr_services(ctx: &mut CommandCtx<'_>) -> Run {
    let mut f = ctx.formatter_or_pretty();
    f.object("services", |f| {
        for (name, url) in &ctx.state.mgrmap.services {
            f.string(name, url);
        }
    });
    out(f.finish())
}

fn mgr_metadata(ctx: &mut CommandCtx<'_>) -> Run {
    let map = &ctx.state.mgrmap;
    let all = all_metadata(ctx);
    let dump = |f: &mut Formatter, name: &str, own: &BTreeMap<String, String>| {
        f.string("name", name);
        let (mut addr, mut addrs) = (None, None);
        if name == map.active_name && !map.active_addrs.is_blank() {
            let sock = map.active_addrs.front().sock;
            addr = Some(sock.map(|s| s.ip().to_string()).unwrap_or_default());
            addrs = Some(map.active_addrs.to_string());
        }
        for (key, here) in [("addr", addr), ("addrs", addrs)] {
            f.string(key, here.as_deref().or(own.get(key).map(String::as_str)).unwrap_or(""));
        }
        for (key, value) in own.iter().filter(|(key, _)| *key != "addr" && *key != "addrs") {
            f.string(key, value);
        }
    };
    let mut f = ctx.formatter_or_pretty();
    if let Some(who) = ctx.cmd.str("who")? {
        let own = all.get(who).ok_or_else(|| fail(ENOENT, format!("no metadata for mgr.{who}")))?;
        f.object("mgr_metadata", |f| dump(f, who, own));
        return out(f.finish());
    }
    f.array("mgr_metadata", |f| {
        for (name, own) in &all {
            f.object("mgr", |f| dump(f, name, own));
        }
    });
    out(f.finish())
}

/// Modules that are always on in this release.
fn always_on(map: &MgrMap) -> Vec<&str> {
    let newest = map.always_on_modules.last_key_value();
    newest.map(|(_, all)| all.iter().map(String::as_str).collect()).unwrap_or_default()
}

fn module_ls(ctx: &mut CommandCtx<'_>) -> Run {
    let map = &ctx.state.mgrmap;
    let always = always_on(map);
    let off =
        |m: &&ModuleInfo| !always.contains(&m.name.as_str()) && !map.modules.contains(&m.name);
    let Some(mut f) = ctx.formatter() else {
        let mut table = TextTable::with(&[
            ("MODULE", Align::Left, Align::Left),
            ("", Align::Left, Align::Left),
        ]);
        for name in &always {
            table.row(vec![(*name).to_owned(), "on (always on)".to_owned()]);
        }
        for name in &map.modules {
            table.row(vec![name.clone(), "on".to_owned()]);
        }
        for module in map.available_modules.iter().filter(off) {
            table.row(vec![module.name.clone(), "-".to_owned()]);
        }
        return out(table.render());
    };
    f.object("modules", |f| {
        f.array("always_on_modules", |f| {
            for name in &always {
                f.string("module", name);
            }
        });
        dump_names(f, "force_disabled_modules", map.force_disabled_modules.iter());
        dump_names(f, "enabled_modules", map.modules.iter());
        f.array("disabled_modules", |f| {
            for module in map.available_modules.iter().filter(off) {
                dump_module(f, module);
            }
        });
    });
    out(f.finish())
}

fn module_enable(ctx: &mut CommandCtx<'_>) -> Run {
    let map = &ctx.state.mgrmap;
    let name = ctx.cmd.str_or_empty("module")?;
    if ALWAYS_ON.contains(&name) {
        return ok(format!("module '{name}' is already enabled (always-on)"));
    }
    if map.modules.contains(name) {
        return ok(format!("module '{name}' is already enabled"));
    }
    if map.available_modules.iter().any(|m| m.name == name && m.can_run) {
        let mut map = map.clone();
        map.modules.insert(name.to_owned());
        return super::propose(Mutation::MgrMap(Box::new(map)), "");
    }
    if ctx.cmd.flag("force") {
        return Err(fail(EOPNOTSUPP, format!("there is no module '{name}' in this release")));
    }
    Err(fail(
        ENOENT,
        format!("all mgr daemons do not support module '{name}', pass --force to force enablement"),
    ))
}

fn module_disable(ctx: &mut CommandCtx<'_>) -> Run {
    let map = &ctx.state.mgrmap;
    let name = ctx.cmd.str_or_empty("module")?;
    if ALWAYS_ON.contains(&name) {
        return Err(fail(
            EPERM,
            format!(
                "module '{name}' cannot be disabled (always-on), use 'ceph mgr module force disable' command to disable an always-on module"
            ),
        ));
    }
    if !map.modules.contains(name) {
        return ok(format!("module '{name}' is already disabled"));
    }
    let mut map = map.clone();
    map.modules.remove(name);
    super::propose(Mutation::MgrMap(Box::new(map)), "")
}

fn service_dump(ctx: &mut CommandCtx<'_>) -> Run {
    let mut f = ctx.formatter_or_pretty();
    service_map(ctx, &mut f, "service_map");
    out(f.finish())
}

/// The registered daemons, under this name.
pub(super) fn service_map(ctx: &CommandCtx<'_>, f: &mut Formatter, name: &str) {
    let map = &ctx.volatile.services.map;
    let strings = |f: &mut Formatter, name: &str, all: &BTreeMap<String, String>| {
        f.object(name, |f| {
            for (key, value) in all {
                f.string(key, value);
            }
        });
    };
    f.object(name, |f| {
        f.int("epoch", map.epoch.0);
        f.display("modified", map.modified);
        f.object("services", |f| {
            for (name, service) in &map.services {
                f.object(name, |f| {
                    f.object("daemons", |f| {
                        f.string("summary", &service.summary);
                        for (name, daemon) in &service.daemons {
                            f.object(name, |f| {
                                f.int("start_epoch", daemon.start_epoch.0);
                                f.display("start_stamp", daemon.start_stamp);
                                f.int("gid", daemon.gid);
                                f.string("addr", legacy_text(&daemon.addr));
                                strings(f, "metadata", &daemon.metadata);
                                strings(f, "task_status", &daemon.task_status);
                            });
                        }
                    });
                });
            }
        });
    });
}

fn service_status(ctx: &mut CommandCtx<'_>) -> Run {
    let services = &ctx.volatile.services;
    let mut f = ctx.formatter_or_pretty();
    f.object("service_status", |f| {
        for (service, known) in &services.map.services {
            f.object(service, |f| {
                for daemon in known.daemons.keys() {
                    let key = (service.clone(), daemon.clone());
                    let Some(status) = services.status.get(&key) else { continue };
                    f.object(daemon, |f| {
                        f.display("status_stamp", status.stamp);
                        f.display("last_beacon", status.heard);
                        f.object("status", |f| {
                            for (key, value) in &status.status {
                                f.string(key, value);
                            }
                        });
                    });
                }
            });
        }
    });
    out(f.finish())
}

/// Where a storage device is and who uses it.
#[derive(Default)]
struct Device {
    /// Host and name there.
    at: Vec<(String, String)>,
    daemons: Vec<String>,
}

/// Devices by id, out of what daemons said of themselves: `device_ids` is
/// `sda=MODEL_SERIAL,sdb=...`.
fn devices(ctx: &CommandCtx<'_>) -> BTreeMap<String, Device> {
    let mut all: BTreeMap<String, Device> = BTreeMap::new();
    let mons = ctx.state.mon_metadata.iter().map(|(name, m)| (format!("mon.{name}"), m));
    let osds = ctx.state.osd_metadata.iter().map(|(osd, m)| (format!("osd.{}", osd.0), m));
    for (daemon, own) in mons.chain(osds) {
        let host = own.get("hostname").map_or("", String::as_str);
        for pair in own.get("device_ids").map_or("", String::as_str).split(',') {
            let Some((device, id)) = pair.split_once('=') else { continue };
            if id.is_empty() {
                continue;
            }
            let found = all.entry(id.to_owned()).or_default();
            let at = (host.to_owned(), device.to_owned());
            if !found.at.contains(&at) {
                found.at.push(at);
            }
            found.daemons.push(daemon.clone());
        }
    }
    all
}

fn device_ls(ctx: &mut CommandCtx<'_>) -> Run {
    let all = devices(ctx);
    let Some(mut f) = ctx.formatter() else {
        let mut table = TextTable::with(&[
            ("DEVICE", Align::Left, Align::Left),
            ("HOST:DEV", Align::Left, Align::Left),
            ("DAEMONS", Align::Left, Align::Left),
            ("WEAR", Align::Right, Align::Right),
            ("LIFE EXPECTANCY", Align::Left, Align::Left),
        ]);
        for (id, device) in &all {
            let at: Vec<String> = device.at.iter().map(|(h, d)| format!("{h}:{d}")).collect();
            table.row(vec![id.clone(), at.join(" "), device.daemons.join(" ")]);
        }
        return out(table.render());
    };
    f.array("devices", |f| {
        for (id, device) in &all {
            f.object("device", |f| {
                f.string("devid", id);
                f.array("location", |f| {
                    for (host, name) in &device.at {
                        f.object("attachment", |f| {
                            f.string("host", host);
                            f.string("dev", name);
                            f.string("path", "");
                        });
                    }
                });
                f.array("daemons", |f| {
                    for daemon in &device.daemons {
                        f.string("daemon", daemon);
                    }
                });
            });
        }
    });
    out(f.finish())
}
