//! `osd ...` that changes OSDs, flags and ratios.

use std::collections::BTreeMap;

use conf::key;
use maps::{OsdMapFlags, OsdState, WEIGHT_ONE};
use types::{EntityAddr, EntityKind, OsdId, UTime, Uuid};

use super::{
    EBUSY, EINVAL, ENOENT, EPERM, Fail, OsdWord, Run, change, fail, legacy_text, ok, osd_new,
    osd_word, release_by_name, release_name,
};
use crate::{CommandCtx, Mutation, Outcome, Reply};

/// OSD ids that may exist.
pub(super) const OSDS_MAX: i32 = 10_000;

pub(super) fn has(prefix: &str) -> bool {
    let Some(what) = prefix.strip_prefix("osd ") else { return false };
    matches!(
        what,
        "in" | "out"
            | "down"
            | "rm"
            | "stop"
            | "reweight"
            | "reweightn"
            | "primary-affinity"
            | "set"
            | "unset"
            | "set-group"
            | "unset-group"
            | "add-noup"
            | "add-nodown"
            | "add-noin"
            | "add-noout"
            | "rm-noup"
            | "rm-nodown"
            | "rm-noin"
            | "rm-noout"
            | "pause"
            | "unpause"
            | "setmaxosd"
            | "create"
            | "new"
            | "destroy"
            | "purge"
            | "purge-new"
            | "lost"
            | "set-full-ratio"
            | "set-backfillfull-ratio"
            | "set-nearfull-ratio"
            | "require-osd-release"
            | "set-require-min-compat-client"
            | "blocklist"
            | "blacklist"
            | "blocklist clear"
            | "blacklist clear"
    )
}

pub(super) fn run(ctx: &mut CommandCtx<'_>, prefix: &str) -> Run {
    let what = prefix.strip_prefix("osd ").unwrap_or(prefix);
    match what {
        "in" | "out" | "down" | "rm" | "stop" => states(ctx, what),
        "reweight" => reweight(ctx),
        "reweightn" => reweightn(ctx),
        "primary-affinity" => primary_affinity(ctx),
        "set" | "unset" => {
            let key = ctx.cmd.str_or_empty("key")?.to_owned();
            set_flag(ctx, &key, what == "set")
        }
        "pause" | "unpause" => set_flag(ctx, "pause", what == "pause"),
        "set-group" | "unset-group" => set_group(ctx, what == "set-group"),
        "add-noup" | "add-nodown" | "add-noin" | "add-noout" => one_flag(ctx, &what[4..], true),
        "rm-noup" | "rm-nodown" | "rm-noin" | "rm-noout" => one_flag(ctx, &what[3..], false),
        "setmaxosd" => setmaxosd(ctx),
        "create" => osd_new::create(ctx),
        "new" => osd_new::new(ctx),
        "destroy" => osd_new::destroy(ctx),
        "purge" => osd_new::purge(ctx),
        "purge-new" => osd_new::purge_new(ctx),
        "lost" => lost(ctx),
        "set-full-ratio" | "set-backfillfull-ratio" | "set-nearfull-ratio" => set_ratio(ctx, what),
        "require-osd-release" => require_osd_release(ctx),
        "set-require-min-compat-client" => require_min_compat_client(ctx),
        "blocklist clear" | "blacklist clear" => blocklist_clear(ctx),
        _ => blocklist(ctx),
    }
}

/// `in`, `out`, `down`, `rm` of a list of OSDs.
fn states(ctx: &mut CommandCtx<'_>, what: &str) -> Run {
    let map = ctx.osdmap();
    let mut inc = ctx.osd_change();
    let mut said = String::new();
    let (mut errno, mut removed) = (0, Vec::new());
    let mut osds = Vec::new();
    for word in ctx.cmd.list("ids")? {
        match osd_word(&word)? {
            OsdWord::All => {
                let fits = |o: &OsdId| match what {
                    "in" => map.is_out(*o),
                    "out" => map.is_in(*o),
                    "down" | "stop" => map.is_up(*o),
                    _ => false,
                };
                osds.extend(map.osds().filter(fits));
            }
            OsdWord::One(osd) => osds.push(osd),
        }
    }
    let definitely_dead = ctx.cmd.flag("definitely_dead");
    for osd in osds {
        if !map.exists(osd) {
            said += &format!("osd.{osd} does not exist. ");
            continue;
        }
        match what {
            "in" if map.is_in(osd) => said += &format!("osd.{osd} is already in. "),
            "in" => {
                let x = map.xinfo(osd);
                let old = if x.old_weight > 0 { x.old_weight } else { WEIGHT_ONE };
                inc.new_weight.insert(osd, old);
                said += &format!("marked in osd.{osd}. ");
            }
            "out" if map.is_out(osd) => said += &format!("osd.{osd} is already out. "),
            "out" => {
                inc.new_weight.insert(osd, 0);
                let weight = map.weight(osd);
                if weight > 0 {
                    let mut x = map.xinfo(osd);
                    x.old_weight = weight;
                    inc.new_xinfo.insert(osd, x);
                }
                said += &format!("marked out osd.{osd}. ");
            }
            "down" if map.is_down(osd) => said += &format!("osd.{osd} is already down. "),
            "down" => {
                inc.new_state.insert(osd, OsdState::UP.0);
                if definitely_dead {
                    let mut x = map.xinfo(osd);
                    x.dead_epoch = inc.epoch;
                    inc.new_xinfo.insert(osd, x);
                }
                said += &format!("marked down osd.{osd}. ");
            }
            "stop" if map.is_down(osd) => said += &format!("osd.{osd} is already down. "),
            // It does not boot again by itself: its map says that it was stopped.
            "stop" => {
                inc.new_state.insert(osd, OsdState::UP.0 | OsdState::STOP.0);
                said += &format!("stop osd.{osd}. ");
            }
            _ if map.is_up(osd) => {
                said += &format!("osd.{osd} is still up; must be down before removal. ");
                errno = EBUSY;
            }
            _ => {
                forget(map, osd, &mut inc);
                removed.push(osd);
            }
        }
    }
    if !removed.is_empty() {
        let names: Vec<String> = removed.iter().map(|o| format!("osd.{o}")).collect();
        said += &format!("removed {}", names.join(", "));
    }
    if inc.is_empty() {
        return if errno == 0 { ok(said) } else { Err(fail(errno, said)) };
    }
    let then = Reply { r: -errno, rs: said, ..Reply::default() };
    let metadata = removed.iter().map(|osd| Mutation::OsdMetadata { osd: *osd, metadata: None });
    let mut all = vec![Mutation::Osd(Box::new(inc))];
    all.extend(metadata);
    Ok(Outcome::Propose { mutation: one_or_batch(all), then })
}

pub(super) fn one_or_batch(mut all: Vec<Mutation>) -> Mutation {
    if all.len() == 1 { all.remove(0) } else { Mutation::Batch(all) }
}

/// The changes that remove an OSD's id from the map.
pub(super) fn forget(map: &maps::OsdMap, osd: OsdId, inc: &mut maps::Incremental) {
    let state = map.state(osd).0;
    inc.new_state.insert(osd, if state == 0 { OsdState::EXISTS.0 } else { state });
    inc.new_uuid.insert(osd, Uuid::default());
}

fn reweight(ctx: &mut CommandCtx<'_>) -> Run {
    let osd = existing(ctx, "id")?;
    let weight = ctx.cmd.need_float("weight")?;
    if !(0.0..=65_535.0).contains(&weight) {
        return Err(fail(EINVAL, "weight must be >= 0"));
    }
    // Single precision, like the peer: the number shows in the answer.
    let fixed = ((weight as f32) * 65_536.0) as u32;
    let mut inc = ctx.osd_change();
    inc.new_weight.insert(osd, fixed);
    let shown = cli::float_text(weight, 6);
    change(inc, format!("reweighted osd.{osd} to {shown} ({fixed:x})"))
}

fn reweightn(ctx: &mut CommandCtx<'_>) -> Run {
    let text = ctx.cmd.str_or_empty("weights")?;
    let wrong = || fail(EINVAL, format!("unable to parse 'weights' value '{text}'"));
    // The peer takes the weights as text: {"0":"65536"}.
    let weights: BTreeMap<String, serde_json::Value> =
        serde_json::from_str(text).map_err(|_| wrong())?;
    let mut inc = ctx.osd_change();
    for (osd, weight) in &weights {
        let osd = osd.parse().map(OsdId).map_err(|_| wrong())?;
        if !ctx.osdmap().exists(osd) {
            return Err(fail(ENOENT, wrong().why));
        }
        let weight = weight.as_str().ok_or_else(wrong)?;
        let weight: u32 = weight.parse().map_err(|_| wrong())?;
        inc.new_weight.insert(osd, weight);
    }
    change(inc, "")
}

fn primary_affinity(ctx: &mut CommandCtx<'_>) -> Run {
    let osd = existing(ctx, "id")?;
    let weight = ctx.cmd.need_float("weight")?;
    if weight.is_nan() || weight < 0.0 {
        return Err(fail(EINVAL, "weight must be >= 0"));
    }
    let fixed = ((weight as f32) * 65_536.0).min(u32::MAX as f32) as u32;
    let mut inc = ctx.osd_change();
    inc.new_primary_affinity.insert(osd, fixed.min(WEIGHT_ONE));
    let shown = cli::float_text(weight, 6);
    // The 8 and the 2 are the peer's: stream manipulators that it prints as numbers.
    change(inc, format!("set osd.{osd} primary-affinity to {shown} (8{fixed}2)"))
}

fn existing(ctx: &CommandCtx<'_>, name: &str) -> Result<OsdId, Fail> {
    let osd = ctx.cmd.need_osd(name)?;
    if !ctx.osdmap().exists(osd) {
        return Err(fail(ENOENT, format!("osd.{osd} does not exist")));
    }
    Ok(osd)
}

/// Flags of the map that users may set.
const SETTABLE: &[(&str, OsdMapFlags)] = &[
    ("noup", OsdMapFlags::NOUP),
    ("nodown", OsdMapFlags::NODOWN),
    ("noout", OsdMapFlags::NOOUT),
    ("noin", OsdMapFlags::NOIN),
    ("nobackfill", OsdMapFlags::NOBACKFILL),
    ("norebalance", OsdMapFlags::NOREBALANCE),
    ("norecover", OsdMapFlags::NORECOVER),
    ("noscrub", OsdMapFlags::NOSCRUB),
    ("nodeep-scrub", OsdMapFlags::NODEEP_SCRUB),
    ("notieragent", OsdMapFlags::NOTIERAGENT),
    ("nosnaptrim", OsdMapFlags::NOSNAPTRIM),
    ("noautoscale", OsdMapFlags::NOAUTOSCALE),
];

fn set_flag(ctx: &mut CommandCtx<'_>, key: &str, on: bool) -> Run {
    let said = if on { "set" } else { "unset" };
    let flags = match key {
        "pause" => OsdMapFlags(OsdMapFlags::PAUSERD.0 | OsdMapFlags::PAUSEWR.0),
        "pglog_hardlimit" if on => OsdMapFlags::PGLOG_HARDLIMIT,
        _ => match SETTABLE.iter().find(|(name, _)| *name == key) {
            Some((_, flag)) => *flag,
            None => return Err(fail(EINVAL, format!("unrecognized flag '{key}'"))),
        },
    };
    let name = if key == "pause" { "pauserd,pausewr" } else { key };
    let mut new = ctx.osdmap().flags;
    new.set(flags, on);
    let mut inc = ctx.osd_change();
    inc.new_flags = Some(new);
    change(inc, format!("{name} is {said}"))
}

fn group_flag(name: &str) -> Option<OsdState> {
    Some(match name {
        "noup" => OsdState::NOUP,
        "nodown" => OsdState::NODOWN,
        "noin" => OsdState::NOIN,
        "noout" => OsdState::NOOUT,
        _ => return None,
    })
}

fn one_flag(ctx: &mut CommandCtx<'_>, flag: &str, on: bool) -> Run {
    let words = ctx.cmd.list("ids")?;
    let flag = group_flag(flag).ok_or_else(|| fail(EINVAL, "unknown flag"))?;
    group(ctx, flag, &words, on)
}

fn set_group(ctx: &mut CommandCtx<'_>, on: bool) -> Run {
    let text = ctx.cmd.str_or_empty("flags")?;
    let mut flags = 0;
    for name in text.split([',', ' ']) {
        let unknown = || {
            let all = "{noup,nodown,noin,noout}";
            fail(EINVAL, format!("unrecognized flag '{name}', must be one of {all}"))
        };
        flags |= group_flag(name).ok_or_else(unknown)?.0;
    }
    let words = ctx.cmd.list("who")?;
    if words.is_empty() {
        return Err(fail(EINVAL, "must specify at least one or more targets to set/unset"));
    }
    group(ctx, OsdState(flags), &words, on)
}

/// Sets or clears flags of OSDs, CRUSH nodes and device classes.
fn group(ctx: &CommandCtx<'_>, flags: OsdState, words: &[String], on: bool) -> Run {
    let map = ctx.osdmap();
    let mut inc = ctx.osd_change();
    let (mut said, mut known) = (String::new(), false);
    let merged = |old: u32| if on { old | flags.0 } else { old & !flags.0 };
    for word in words {
        let as_osd = osd_word(word);
        let osds: Vec<OsdId> = match as_osd {
            Ok(OsdWord::All) => map.osds().collect(),
            Ok(OsdWord::One(osd)) if map.exists(osd) => vec![osd],
            Ok(OsdWord::One(osd)) => {
                known = true;
                said += &format!("osd.{osd} does not exist. ");
                continue;
            }
            Err(_) => Vec::new(),
        };
        let before = said.len();
        if !osds.is_empty() {
            for osd in osds {
                let old = map.state(osd).0;
                let flip = old ^ merged(old);
                if flip != 0 {
                    inc.new_state.insert(osd, flip);
                }
            }
        } else if let Some(node) = map.crush.names().id(word) {
            let old = map.crush_node_flags.get(&node).copied().unwrap_or(0);
            inc.new_crush_node_flags.insert(node, merged(old));
        } else if let Some(class) = map.crush.class_names().id(word) {
            let old = map.device_class_flags.get(&class).copied().unwrap_or(0);
            inc.new_device_class_flags.insert(class, merged(old));
        } else {
            said += &format!("unable to parse osd id or crush node or device class: \"{word}\". ");
        }
        known |= said.len() == before;
    }
    if !known {
        return Err(fail(EINVAL, said));
    }
    if inc.is_empty() { ok(said) } else { change(inc, said) }
}

fn setmaxosd(ctx: &mut CommandCtx<'_>) -> Run {
    let newmax = ctx.cmd.need_int("newmax")?;
    let map = ctx.osdmap();
    let most = ctx.option(key::MON_MAX_OSD);
    if newmax > most {
        return Err(fail(
            34,
            format!("cannot set max_osd to {newmax} which is > conf.mon_max_osd ({most})"),
        ));
    }
    if let Some(osd) = map.osds().find(|o| i64::from(o.0) >= newmax) {
        return Err(fail(
            EBUSY,
            format!(
                "cannot shrink max_osd to {newmax} because osd.{osd} (and possibly others) still in use"
            ),
        ));
    }
    let newmax = i32::try_from(newmax).unwrap_or(0).max(0);
    let mut inc = ctx.osd_change();
    inc.new_max_osd = Some(newmax);
    change(inc, format!("set new max_osd = {newmax}"))
}

fn lost(ctx: &mut CommandCtx<'_>) -> Run {
    if !ctx.cmd.flag("yes_i_really_mean_it") {
        return Err(fail(
            EPERM,
            "are you SURE?  this might mean real, permanent data loss.  pass --yes-i-really-mean-it if you really do.",
        ));
    }
    let osd = existing(ctx, "id")?;
    let map = ctx.osdmap();
    if !map.is_down(osd) {
        return Err(fail(EBUSY, format!("osd.{osd} is not down")));
    }
    let down_at = map.info(osd).down_at;
    let mut inc = ctx.osd_change();
    inc.new_lost.insert(osd, down_at);
    change(inc, format!("marked osd lost in epoch {down_at}"))
}

fn set_ratio(ctx: &mut CommandCtx<'_>, what: &str) -> Run {
    let ratio = ctx.cmd.need_float("ratio")?;
    if !(0.0..=1.0).contains(&ratio) {
        return Err(fail(EINVAL, "ratio must be between 0 and 1"));
    }
    let mut inc = ctx.osd_change();
    let value = Some(ratio as f32);
    match what {
        "set-full-ratio" => inc.new_full_ratio = value,
        "set-backfillfull-ratio" => inc.new_backfillfull_ratio = value,
        _ => inc.new_nearfull_ratio = value,
    }
    change(inc, format!("osd {what} {}", cli::float_text(ratio, 6)))
}

fn require_osd_release(ctx: &mut CommandCtx<'_>) -> Run {
    let name = ctx.cmd.str_or_empty("release")?;
    let Some(release) = release_by_name(name) else {
        return Err(fail(EINVAL, format!("unrecognized release {name}")));
    };
    let map = ctx.osdmap();
    let now = map.require_osd_release;
    if release == now {
        return ok("");
    }
    if release < now {
        let oldest = crate::REQUIRE_OSD_RELEASE.saturating_sub(2);
        let why = match release < oldest {
            true => "not supported for this release",
            false => "require_osd_release cannot be lowered once it has been set",
        };
        return Err(fail(EPERM, why));
    }
    let mut inc = ctx.osd_change();
    inc.new_require_osd_release = Some(release);
    change(inc, "")
}

fn require_min_compat_client(ctx: &mut CommandCtx<'_>) -> Run {
    let name = ctx.cmd.str_or_empty("version")?;
    let Some(release) = release_by_name(name) else {
        return Err(fail(EINVAL, format!("version {name} is not recognized")));
    };
    let map = ctx.osdmap();
    let needed = super::osd_dump::min_compat_client(map);
    if release < needed {
        let needed = release_name(needed);
        return Err(fail(
            EPERM,
            format!(
                "osdmap current utilizes features that require {needed}; cannot set require_min_compat_client below that to {name}"
            ),
        ));
    }
    if !ctx.cmd.flag("yes_i_really_mean_it") {
        let too_old: u32 = ctx
            .volatile
            .groups
            .iter()
            .filter(|g| {
                g.kind == EntityKind::CLIENT && !super::mons::can_follow(g.features, release)
            })
            .map(|g| g.count)
            .sum();
        if too_old > 0 {
            return Err(fail(
                EPERM,
                format!(
                    "cannot set require_min_compat_client to {name}: {too_old} connected client(s) look older; add --yes-i-really-mean-it to do it anyway"
                ),
            ));
        }
    }
    let mut inc = ctx.osd_change();
    inc.new_require_min_compat_client = Some(release);
    change(inc, format!("set require_min_compat_client to {name}"))
}

fn blocklist_clear(ctx: &mut CommandCtx<'_>) -> Run {
    let map = ctx.osdmap();
    let mut inc = ctx.osd_change();
    inc.old_blocklist = map.blocklist.keys().copied().collect();
    inc.old_range_blocklist = map.range_blocklist.keys().copied().collect();
    change(inc, " removed all blocklist entries")
}

/// Reads what users write for a client: `IP`, `IP:PORT/NONCE`, with or without `v2:`.
fn client_addr(text: &str) -> Option<EntityAddr> {
    let text = ["v1:", "v2:", "any:"].iter().find_map(|p| text.strip_prefix(p)).unwrap_or(text);
    let (sock, nonce) = match text.split_once('/') {
        Some((sock, nonce)) => (sock, nonce.parse().ok()?),
        None => (text, 0),
    };
    let sock = match sock.parse::<std::net::SocketAddr>() {
        Ok(sock) => sock,
        Err(_) => {
            let ip = sock.trim_start_matches('[').trim_end_matches(']');
            std::net::SocketAddr::new(ip.parse().ok()?, 0)
        }
    };
    Some(EntityAddr { kind: types::AddrKind::ANY, nonce, sock: Some(sock) })
}

/// `10.0.0.0/8`: the length of the prefix is kept in the nonce.
///
/// # Errors
/// `EINVAL` for what is no range, and for more bits than the address has.
fn range_addr(text: &str) -> Result<EntityAddr, Fail> {
    let none = || {
        let shown = client_addr(text)
            .map_or_else(|| text.to_owned(), |a| format!("v2:{}", legacy_text(&a)));
        let why =
            format!("You specified a range command, but {shown} does not parse as a CIDR range");
        fail(EINVAL, why)
    };
    let (ip, bits) = text.split_once('/').ok_or_else(none)?;
    let bits: u32 = bits.parse().map_err(|_| none())?;
    // A port says nothing here, but tools write one: 100.64.0.6:0/32.
    let ip = match ip.parse::<std::net::SocketAddr>() {
        Ok(sock) => sock.ip(),
        Err(_) => ip.trim_start_matches('[').trim_end_matches(']').parse().map_err(|_| none())?,
    };
    if bits > if ip.is_ipv4() { 32 } else { 128 } {
        return Err(fail(EINVAL, "Too many bits in range for that protocol!"));
    }
    let sock = Some(std::net::SocketAddr::new(ip, 0));
    Ok(EntityAddr { kind: types::AddrKind::CIDR, nonce: bits, sock })
}

fn blocklist(ctx: &mut CommandCtx<'_>) -> Run {
    // The old name has no ranges, and each name its own verb: caps are judged by these.
    let new_name = ctx.cmd.prefix() == "osd blocklist";
    let range = new_name && ctx.cmd.str("range")?.is_some();
    let text = ctx.cmd.str_or_empty("addr")?;
    let addr = match range {
        true => range_addr(text)?,
        false => client_addr(text)
            .ok_or_else(|| fail(EINVAL, format!("unable to parse address {text}")))?,
    };
    let op = ctx.cmd.str_or_empty(if new_name { "blocklistop" } else { "blacklistop" })?;
    let map = ctx.osdmap();
    let shown = if range { addr.to_string() } else { legacy_text(&addr) };
    let mut inc = ctx.osd_change();
    match op {
        "add" => {
            let asked = ctx.cmd.float("expire")?.filter(|e| e.is_finite());
            let secs = asked.unwrap_or(3600.0).clamp(-1e9, 1e9);
            let until = ctx.now.wall_ns.saturating_add_signed((secs * 1e9) as i64);
            let until = UTime::from_nanos(until);
            if range {
                inc.new_range_blocklist.insert(addr, until);
            } else {
                inc.new_blocklist.insert(addr, until);
            }
            let secs = cli::float_text(secs, 6);
            change(inc, format!("blocklisting {shown} until {until} ({secs} sec)"))
        }
        "rm" => {
            let listed = if range {
                map.range_blocklist.keys().copied().find(|a| a.same_instance(&addr))
            } else {
                map.blocklist.keys().copied().find(|a| a.same_instance(&addr))
            };
            let Some(listed) = listed else {
                return ok(format!("{shown} isn't blocklisted"));
            };
            if range {
                inc.old_range_blocklist.push(listed);
            } else {
                inc.old_blocklist.push(listed);
            }
            change(inc, format!("un-blocklisting {shown}"))
        }
        _ => Err(fail(EINVAL, format!("unknown operation '{op}'"))),
    }
}
