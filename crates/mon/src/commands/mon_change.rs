//! Monitors that come and go: `mon add`, `mon rm`, features, weights.
//!
//! The map says who is to be a monitor; the quorum follows it, one at a time, and counts a
//! new monitor from when it is there and knows the log.
//!
//! Source: the peer's `mon/MonmapMonitor.cc`.

use maps::{MonFeatures, MonInfo, MonMap};
use types::{AddrKind, AddrVec, EntityAddr};

use super::mons::{addrs_text, feature_names};
use super::{EBUSY, EEXIST, EINVAL, ENOENT, EOPNOTSUPP, EPERM, Run, fail, ok, propose};
use crate::{CommandCtx, Mutation};

/// Where a monitor listens unless told otherwise: messenger v2, and v1.
const PORTS: [u16; 2] = [3300, 6789];

pub(super) fn changed(ctx: &CommandCtx<'_>, change: impl FnOnce(&mut MonMap)) -> Mutation {
    let mut map = ctx.state.monmap.clone();
    change(&mut map);
    map.last_changed = ctx.wall();
    Mutation::MonMap(Box::new(map))
}

pub(super) fn add(ctx: &mut CommandCtx<'_>) -> Run {
    let name = ctx.cmd.need_str("name")?.to_owned();
    let text = ctx.cmd.need_str("addr")?.to_owned();
    let bad = || fail(EINVAL, format!("addr {text} does not parse"));
    let given: AddrVec = text.parse().map_err(|_| bad())?;
    let addrs = match given.0[..] {
        // As with the peer: who names the old port or none means both at their usual ports.
        [EntityAddr { sock: Some(sock), .. }] if [0, PORTS[1]].contains(&sock.port()) => {
            let at = |port| EntityAddr::msgr2((sock.ip(), port).into(), 0);
            AddrVec(vec![at(PORTS[0]), at(PORTS[1]).with_kind(AddrKind::LEGACY)])
        }
        _ => listened_at(given)?,
    };
    let shown = addrs_text(&addrs);
    let map = &ctx.state.monmap;
    if let Some(known) = map.mons.get(&name) {
        let at = addrs_text(&known.addrs);
        if known.addrs == addrs {
            return ok(format!("mon.{name} at {at} already exists"));
        }
        return Err(fail(EEXIST, format!("mon.{name} already exists at address {at}")));
    }
    if let Some(other) = map.mons.values().find(|m| m.addrs == addrs) {
        let why = format!("mon.{} already exists at address {shown}", other.name);
        return Err(fail(EEXIST, why));
    }
    let rs = format!("adding mon.{name} at {shown}");
    let info = MonInfo { name: name.clone(), addrs, ..MonInfo::default() };
    let mutation = changed(ctx, |map| {
        map.mons.insert(name.clone(), info);
        map.ranks.push(name);
    });
    propose(mutation, rs)
}

/// The addresses that a monitor is to have.
fn listened_at(mut addrs: AddrVec) -> Result<AddrVec, super::Fail> {
    for addr in &mut addrs.0 {
        addr.nonce = 0;
        if addr.sock.is_none_or(|sock| sock.port() == 0) {
            return Err(fail(EINVAL, format!("monitor must bind to a non-zero port, not {addr}")));
        }
    }
    let of = |kind| addrs.0.iter().filter(|a| a.kind == kind).count();
    let (v2, v1) = (of(AddrKind::MSGR2), of(AddrKind::LEGACY));
    if v2 != 1 || v1 > 1 || v1 + v2 != addrs.0.len() {
        let why =
            "a monitor of this cluster has one v2 address, and with it one v1 address or none";
        return Err(fail(EINVAL, why));
    }
    // What is tried first stands first.
    addrs.0.sort_by_key(|a| a.kind != AddrKind::MSGR2);
    Ok(addrs)
}

/// Another address of messenger v1 is taken up at once, another one of v2 when the monitor is started
/// anew.
pub(super) fn set_addrs(ctx: &mut CommandCtx<'_>) -> Run {
    let name = ctx.cmd.need_str("name")?.to_owned();
    let text = ctx.cmd.need_str("addrs")?.to_owned();
    let map = &ctx.state.monmap;
    if !map.mons.contains_key(&name) {
        return Err(fail(ENOENT, format!("mon.{name} does not exist")));
    }
    let bad = |_| fail(EINVAL, format!("failed to parse addrs '{text}'"));
    let addrs = listened_at(text.parse().map_err(bad)?)?;
    let taken =
        |mon: &&MonInfo| mon.name != name && mon.addrs.0.iter().any(|a| addrs.0.contains(a));
    if let Some(other) = map.mons.values().find(taken) {
        let why = format!("mon.{} has one of the addresses {addrs}", other.name);
        return Err(fail(EEXIST, why));
    }
    let mutation = changed(ctx, |map| {
        if let Some(info) = map.mons.get_mut(&name) {
            info.addrs = addrs;
        }
    });
    propose(mutation, "")
}

pub(super) fn remove(ctx: &mut CommandCtx<'_>) -> Run {
    let name = ctx.cmd.need_str("name")?.to_owned();
    let map = &ctx.state.monmap;
    let Some(info) = map.mons.get(&name) else {
        return ok(format!("mon.{name} does not exist or has already been removed"));
    };
    if map.mons.len() == 1 {
        return Err(fail(EINVAL, format!("error: refusing removal of last monitor {name}")));
    }
    // Whoever is added counts once it is there; only those that count can let it in.
    let voters = &ctx.volatile.quorum.voters;
    let stay = map.mons.keys().any(|n| *n != name && voters.contains(n));
    if !stay && !voters.is_empty() {
        let why = format!("mon.{name} is the last that has joined; start the others first");
        return Err(fail(EBUSY, why));
    }
    let rs = format!(
        "removing mon.{name} at {}, there will be {} monitors",
        addrs_text(&info.addrs),
        map.mons.len() - 1
    );
    let mutation = changed(ctx, |map| {
        if let Some(rank) = map.rank_of(&name) {
            map.ranks.remove(rank);
            map.removed_ranks.insert(rank as u32);
        }
        map.mons.remove(&name);
        map.disallowed_leaders.remove(&name);
    });
    propose(mutation, rs)
}

pub(super) fn set_weight(ctx: &mut CommandCtx<'_>) -> Run {
    let name = ctx.cmd.need_str("name")?.to_owned();
    let weight = ctx.cmd.int("weight")?.unwrap_or(0);
    if !ctx.state.monmap.mons.contains_key(&name) {
        return Err(fail(ENOENT, format!("mon.{name} does not exist")));
    }
    let weight = u16::try_from(weight).map_err(|_| fail(EINVAL, "weight is out of range"))?;
    let mutation = changed(ctx, |map| {
        if let Some(info) = map.mons.get_mut(&name) {
            info.weight = weight;
        }
    });
    propose(mutation, "")
}

/// Monitors of this kind listen at v2 addresses from the start.
pub(super) fn enable_msgr2(ctx: &mut CommandCtx<'_>) -> Run {
    let v2 = |mon: &MonInfo| mon.addrs.0.iter().any(|addr| addr.kind == AddrKind::MSGR2);
    match ctx.state.monmap.mons.values().find(|mon| !v2(mon)) {
        // The word is the peer's.
        None => ok("all monitors have already enabled msrg2"),
        Some(mon) => Err(fail(
            EOPNOTSUPP,
            format!("mon.{} has no v2 address: remove it and add it with one", mon.name),
        )),
    }
}

/// `mon set election_strategy`: who leads is a matter of the log here, so only the peer's
/// default can be asked for.
pub(super) fn strategy(ctx: &mut CommandCtx<'_>) -> Run {
    match ctx.cmd.need_str("strategy")? {
        "classic" => ok("You are already in classic election strategy"),
        "disallow" | "connectivity" => Err(fail(
            EOPNOTSUPP,
            "monitors of this cluster elect by their log: there is only 'classic'",
        )),
        _ => Err(fail(EINVAL, "(22) Invalid argument")),
    }
}

pub(super) fn feature_set(ctx: &mut CommandCtx<'_>) -> Run {
    let name = ctx.cmd.need_str("feature_name")?.to_owned();
    let known = MonFeatures::NAMES.iter().find(|(_, n)| *n == name);
    let Some((bit, _)) = known else {
        return Err(fail(ENOENT, format!("unknown feature '{name}'")));
    };
    if !ctx.cmd.flag("yes_i_really_mean_it") {
        return Err(fail(
            EPERM,
            format!(
                "please specify '--yes-i-really-mean-it' if you really, **really** want to set \
                 feature '{name}' in the monmap."
            ),
        ));
    }
    let have = ctx.state.monmap.persistent_features;
    if have.bits >> bit & 1 == 1 {
        return ok(format!("setting feature '{name}'"));
    }
    Err(fail(
        EINVAL,
        format!(
            "current quorum does not support feature '{name}'; supported features: [{}]",
            feature_names(have).join(",")
        ),
    ))
}
