//! `host ...`: hosts that join the cluster and leave it. The peer has nothing like it.
//!
//! A host that is to join is given a token: the key of `client.join.ID`, whose caps are `host join`
//! and `host time` alone. `host join` takes it once, before it ends, for one host name; the host gets
//! the key of `client.host.NAME`, whose caps are the commands below for its own name, and reading of
//! maps. `host arrive` removes the token, and tells `client.admin`'s key where the token was made so.
//!
//! Kept in the key/value store: `argonaut/token/ID` and `argonaut/host/NAME`, as JSON; what all
//! hosts are to know of the cluster in `argonaut/hosts`.

use std::collections::BTreeMap;

use ::auth::{EntityAuth, sha256};
use bytes::Bytes;
use serde_json::{Value, json};
use types::{EntityKind, EntityName, OsdId};

use super::osd_change::one_or_batch;
use super::{
    EACCES, EBUSY, EEXIST, EINVAL, ENOENT, ENOSPC, EOPNOTSUPP, EPERM, Fail, Run, fail, ok, propose,
};
use crate::{AuthChange, CommandCtx, Mutation, Outcome, Reply};

const TOKENS: &str = "argonaut/token/";
const HOSTS: &str = "argonaut/host/";
/// What `argonaut init` said of the cluster.
const SHARED: &str = "argonaut/hosts";
/// Tokens that are there at once: each is a key and two pairs.
const TOKENS_MAX: usize = 64;
/// Hosts that are known at once.
const HOSTS_MAX: usize = 4_096;
/// OSDs of one host.
const HOST_OSDS_MAX: usize = 1_024;
/// Seconds that a token is good for unless it is said: two hours.
const TTL_S: i64 = 7_200;
/// The longest that may be said: a week.
const TTL_MAX_S: i64 = 604_800;
/// A host is made a monitor while there are fewer; with `more`, fewer than the second.
const MONS: [usize; 2] = [3, 5];
/// A host is made a manager while there are fewer.
const MGRS: usize = 2;
/// Of a host's name, as of a label in DNS.
const NAME_BYTES_MAX: usize = 63;

/// The commands that a host's own key is for, each with its name.
const OF_A_HOST: [&str; 9] =
    ["arrive", "mon-add", "mon-rm", "mgr-add", "mds-add", "osd-new", "osd-out", "osd-rm", "leave"];

pub(super) fn run(ctx: &mut CommandCtx<'_>, what: &str) -> Run {
    match what {
        "time" => Ok(answer(&json!({"now_ns": ctx.now.wall_ns, "fingerprint": fingerprint(ctx),
            "fsid": ctx.state.monmap.fsid.to_string()}))),
        "token" => token(ctx),
        "token-ls" => tokens(ctx),
        "token-rm" => token_rm(ctx),
        "ls" => list(ctx),
        "join" => join(ctx),
        own if OF_A_HOST.contains(&own) => {
            let name = host_arg(ctx)?;
            is_own(ctx, &name)?;
            let host = find(ctx, &name)?;
            match own {
                "arrive" => arrive(ctx, &name, host),
                "mon-add" => mon_add(ctx, &name, &host),
                "mon-rm" => super::mon_change::remove(ctx),
                "mgr-add" => key_add(ctx, &name, EntityKind::MGR),
                "mds-add" => key_add(ctx, &name, EntityKind::MDS),
                "osd-new" => osd_new(ctx, &name, host),
                "osd-out" => osd_out(ctx, &host),
                "osd-rm" => osd_rm(ctx, &name, host),
                _ => leave(ctx, &name, &host),
            }
        }
        _ => Err(fail(EOPNOTSUPP, format!("'host {what}' is not supported by this cluster"))),
    }
}

fn answer(value: &Value) -> Outcome {
    Outcome::out(value.to_string())
}

fn then(mutation: Mutation, value: &Value) -> Outcome {
    Outcome::Propose { mutation, then: Reply::out(value.to_string()) }
}

fn key_of(name: &EntityName) -> Mutation {
    Mutation::Auth(AuthChange::Remove(name.clone()))
}

fn pair(key: String, value: Option<&Value>) -> Mutation {
    Mutation::ConfigKey { key, value: value.map(|v| Bytes::from(v.to_string())) }
}

fn joiner(id: &str) -> EntityName {
    EntityName::new(EntityKind::CLIENT, format!("join.{id}"))
}

fn keeper(host: &str) -> EntityName {
    EntityName::new(EntityKind::CLIENT, format!("host.{host}"))
}

/// Pairs below a prefix: what is behind it, and the value.
fn below<'a>(ctx: &CommandCtx<'a>, prefix: &'static str) -> impl Iterator<Item = (&'a str, Value)> {
    let range = ctx.state.config_key.range(prefix.to_owned()..);
    let ours = range.map_while(move |(key, value)| Some((key.strip_prefix(prefix)?, value)));
    ours.filter_map(|(id, value)| Some((id, serde_json::from_slice(value).ok()?)))
}

fn get(ctx: &CommandCtx<'_>, key: &str) -> Option<Value> {
    serde_json::from_slice(ctx.state.config_key.get(key)?).ok()
}

fn host_arg(ctx: &CommandCtx<'_>) -> Result<String, Fail> {
    let name = ctx.cmd.need_str("name")?;
    let bytes = name.as_bytes();
    let is_word = bytes.iter().all(|b| b.is_ascii_alphanumeric() || *b == b'-');
    if !is_word
        || name.len() > NAME_BYTES_MAX
        || name.starts_with('-')
        || !bytes.iter().any(u8::is_ascii_alphabetic)
    {
        let why = format!(
            "'{name}' is no name of a host: letters, digits and '-', {NAME_BYTES_MAX} at most, one \
             of them a letter"
        );
        return Err(fail(EINVAL, why));
    }
    Ok(name.to_owned())
}

/// Refuses who is neither that host nor an administrator.
fn is_own(ctx: &CommandCtx<'_>, host: &str) -> Result<(), Fail> {
    if ctx.session.name == keeper(host) || crate::session::is_administrator(ctx.session) {
        return Ok(());
    }
    Err(fail(EACCES, format!("{} does not speak for host {host}", ctx.session.name)))
}

fn find(ctx: &CommandCtx<'_>, host: &str) -> Result<Value, Fail> {
    let found = get(ctx, &format!("{HOSTS}{host}"));
    found.ok_or_else(|| fail(ENOENT, format!("{host} is no host that joined: `host ls`")))
}

/// Shows that an answer comes from monitors that hold this cluster's `mon.` key.
fn fingerprint(ctx: &CommandCtx<'_>) -> String {
    let key = ctx.state.auth.get(&EntityName::new(EntityKind::MON, ""));
    let key = key.map(|e| e.key.to_base64()).unwrap_or_default();
    let sum = sha256(format!("argonaut join {} {key}", ctx.state.monmap.fsid).as_bytes());
    sum[..16].iter().map(|b| format!("{b:02x}")).collect()
}

fn now_s(ctx: &CommandCtx<'_>) -> u64 {
    ctx.now.wall_ns / 1_000_000_000
}

fn is_over(ctx: &CommandCtx<'_>, token: &Value) -> bool {
    token["ends"].as_u64().unwrap_or(0) <= now_s(ctx)
}

/// Tokens whose time is over are forgotten whenever another is made or used.
fn sweep(ctx: &CommandCtx<'_>) -> Vec<Mutation> {
    let over = below(ctx, TOKENS).filter(|(_, token)| is_over(ctx, token));
    over.flat_map(|(id, _)| [key_of(&joiner(id)), pair(format!("{TOKENS}{id}"), None)]).collect()
}

fn token(ctx: &mut CommandCtx<'_>) -> Run {
    let ttl = ctx.cmd.int("ttl")?.unwrap_or(TTL_S).clamp(1, TTL_MAX_S) as u64;
    let mut all = sweep(ctx);
    if below(ctx, TOKENS).filter(|(_, token)| !is_over(ctx, token)).count() >= TOKENS_MAX {
        let why = format!("{TOKENS_MAX} tokens are there: `host token-rm` removes one");
        return Err(fail(ENOSPC, why));
    }
    let only = if ctx.cmd.has("name") { Some(host_arg(ctx)?) } else { None };
    let admin = ctx.cmd.flag("with_admin");
    if admin && !crate::session::is_administrator(ctx.session) {
        return Err(fail(EACCES, "the key of client.admin is for 'allow *' alone"));
    }
    let key = super::auth::new_key(ctx)?;
    let id = format!("{:016x}", ctx.rng.u64());
    let (made, ends) = (now_s(ctx), now_s(ctx) + ttl);
    let caps = "allow command \"host join\", allow command \"host time\"".to_owned();
    let mons = ctx.state.monmap.mons.values().filter_map(|m| m.addrs.msgr2());
    let mons: Vec<String> = mons.filter_map(|a| Some(a.sock?.to_string())).collect();
    let told = json!({"id": id, "key": key.to_base64(), "fsid": ctx.state.monmap.fsid.to_string(),
        "fingerprint": fingerprint(ctx), "mons": mons, "ends": ends,
        "shared": get(ctx, SHARED)});
    all.push(Mutation::Auth(AuthChange::Set {
        name: joiner(&id),
        key,
        caps: [("mon".to_owned(), caps)].into(),
    }));
    all.push(pair(
        format!("{TOKENS}{id}"),
        Some(&json!({"made": made, "ends": ends, "only": only,
        "admin": admin})),
    ));
    Ok(then(Mutation::Batch(all), &told))
}

fn tokens(ctx: &mut CommandCtx<'_>) -> Run {
    let mut all: Vec<(String, Value)> =
        below(ctx, TOKENS).map(|(id, token)| (id.to_owned(), token)).collect();
    all.retain(|(_, token)| !is_over(ctx, token));
    if let Some(mut f) = ctx.formatter() {
        f.array("tokens", |f| {
            for (id, token) in &all {
                f.object("token", |f| {
                    f.string("id", id);
                    f.int("seconds_left", token["ends"].as_u64().unwrap_or(0) - now_s(ctx));
                    f.string("host", token["name"].as_str().unwrap_or_default());
                });
            }
        });
        return super::out(f.finish());
    }
    let line = |(id, token): &(String, Value)| {
        let left = token["ends"].as_u64().unwrap_or(0) - now_s(ctx);
        let host = token["name"].as_str();
        let host = host.map(|name| format!(", taken by {name}")).unwrap_or_default();
        format!("{id} for {left} s{host}\n")
    };
    super::out(all.iter().map(line).collect::<String>())
}

fn token_rm(ctx: &mut CommandCtx<'_>) -> Run {
    let id = ctx.cmd.need_str("id")?.to_owned();
    if get(ctx, &format!("{TOKENS}{id}")).is_none() {
        return ok(format!("there is no token {id}"));
    }
    let all = vec![key_of(&joiner(&id)), pair(format!("{TOKENS}{id}"), None)];
    propose(Mutation::Batch(all), format!("token {id} is good for nothing any more"))
}

/// What the cluster has of a name already.
fn taken(ctx: &CommandCtx<'_>, name: &str) -> Option<String> {
    let crush = &ctx.osdmap().crush;
    let bucket = crush.names().id(name).filter(|id| *id < 0);
    let holds = bucket.and_then(|id| crush.map().bucket(id)).is_some_and(|b| !b.items().is_empty());
    let has = |kind| ctx.state.auth.get(&EntityName::new(kind, name)).is_some();
    match () {
        () if get(ctx, &format!("{HOSTS}{name}")).is_some() => Some(format!(
            "a host of this cluster is {name}; if it is lost: argonaut leave --lost {name}"
        )),
        () if ctx.state.monmap.mons.contains_key(name) => Some(format!("there is a mon.{name}")),
        () if has(EntityKind::MGR) => Some(format!("there is a mgr.{name}")),
        () if has(EntityKind::MDS) => Some(format!("there is a mds.{name}")),
        () if holds => Some(format!("the CRUSH map has a bucket {name} with items")),
        () => None,
    }
}

/// What a host's key may do: the commands for its own name, and reading of maps.
fn host_caps(name: &str) -> BTreeMap<String, String> {
    let own = OF_A_HOST.map(|what| format!("allow command \"host {what}\" with name=\"{name}\""));
    let reads = ["mon", "osd", "pg", "mgr"].map(|service| format!("allow service {service} r"));
    let all = [own.to_vec(), reads.to_vec(), vec!["allow command \"host time\"".to_owned()]];
    [("mon".to_owned(), all.concat().join(", "))].into()
}

fn join(ctx: &mut CommandCtx<'_>) -> Run {
    let name = host_arg(ctx)?;
    let nonce = ctx.cmd.need_str("nonce")?.to_owned();
    let addr: std::net::IpAddr =
        ctx.cmd.need_str("addr")?.parse().map_err(|_| fail(EINVAL, "addr is an IP address"))?;
    if nonce.len() < 16 || nonce.len() > 64 {
        return Err(fail(EINVAL, "nonce has 16 to 64 characters"));
    }
    let id = ctx.session.name.id.strip_prefix("join.").unwrap_or_default().to_owned();
    if ctx.session.name != joiner(&id) {
        return Err(fail(EACCES, "hosts join by a token: argonaut token"));
    }
    let place = format!("{TOKENS}{id}");
    let Some(mut token) = get(ctx, &place) else {
        return Err(fail(EACCES, "this token was used, or revoked: argonaut token makes another"));
    };
    if is_over(ctx, &token) {
        return Err(fail(EACCES, "this token's time is over: argonaut token makes another"));
    }
    let told = |key: &str, ctx: &CommandCtx<'_>| {
        json!({"key": key, "fsid": ctx.state.monmap.fsid.to_string(),
            "fingerprint": fingerprint(ctx)})
    };
    if let Some(by) = token["name"].as_str() {
        let same = by == name && token["nonce"] == *nonce;
        let there = ctx.state.auth.get(&keeper(&name)).filter(|_| same);
        return match there {
            Some(there) => Ok(answer(&told(&there.key.to_base64(), ctx))),
            None => {
                let why = format!("this token was used by {by}: argonaut token makes another");
                Err(fail(EACCES, why))
            }
        };
    }
    match token["only"].as_str() {
        Some(only) if only != name => {
            return Err(fail(EACCES, format!("this token is for host {only}")));
        }
        // An administrator named it: what there is of this name becomes the host's.
        Some(_) if get(ctx, &format!("{HOSTS}{name}")).is_none() => {}
        _ => {
            if let Some(why) = taken(ctx, &name) {
                return Err(fail(EEXIST, format!("the name {name} is taken: {why}")));
            }
        }
    }
    if let Some((other, _)) = below(ctx, HOSTS).find(|(_, h)| h["addr"] == addr.to_string()) {
        return Err(fail(EEXIST, format!("the address {addr} is host {other}'s")));
    }
    if below(ctx, HOSTS).count() >= HOSTS_MAX {
        return Err(fail(ENOSPC, format!("{HOSTS_MAX} hosts are there, the most there may be")));
    }
    let key = super::auth::new_key(ctx)?;
    let told = told(&key.to_base64(), ctx);
    token["name"] = name.clone().into();
    token["nonce"] = nonce.into();
    let host = json!({"addr": addr.to_string(), "joined": now_s(ctx), "token": id, "osds": [],
        "admin": token["admin"]});
    let all = vec![
        pair(place, Some(&token)),
        pair(format!("{HOSTS}{name}"), Some(&host)),
        super::auth::set(
            &keeper(&name),
            EntityAuth { key, caps: host_caps(&name), ..EntityAuth::default() },
        ),
    ];
    Ok(then(Mutation::Batch(all), &told))
}

/// The host has its own key: what let it in goes. Tells what all hosts are to know.
fn arrive(ctx: &mut CommandCtx<'_>, name: &str, mut host: Value) -> Run {
    let admin = ctx.state.auth.get(&EntityName::new(EntityKind::CLIENT, "admin"));
    let admin = admin.filter(|_| host["admin"] == true).map(|e| e.key.to_base64());
    let told = json!({"fsid": ctx.state.monmap.fsid.to_string(), "shared": get(ctx, SHARED),
        "admin": admin});
    let Some(id) = host["token"].as_str().map(str::to_owned) else { return Ok(answer(&told)) };
    let mut all = sweep(ctx);
    all.extend([key_of(&joiner(&id)), pair(format!("{TOKENS}{id}"), None)]);
    host["token"] = Value::Null;
    all.push(pair(format!("{HOSTS}{name}"), Some(&host)));
    Ok(then(Mutation::Batch(all), &told))
}

/// Has the cluster know a monitor of the host, at its address, and tells the monitors' key; where
/// there are enough, tells that.
fn mon_add(ctx: &mut CommandCtx<'_>, name: &str, host: &Value) -> Run {
    let mons = &ctx.state.monmap.mons;
    let max = MONS[usize::from(ctx.cmd.flag("more"))];
    if !mons.contains_key(name) && mons.len() >= max {
        return Ok(answer(&json!({"enough": mons.len()})));
    }
    if ctx.cmd.need_str("addr")? != host["addr"].as_str().unwrap_or_default() {
        return Err(fail(EPERM, format!("host {name} has the address {}", host["addr"])));
    }
    let there = ctx.state.auth.get(&EntityName::new(EntityKind::MON, ""));
    let key = there.map(|e| e.key.to_base64()).unwrap_or_default();
    let told = json!({"key": key, "fingerprint": fingerprint(ctx)});
    match super::mon_change::add(ctx)? {
        Outcome::Propose { mutation, .. } => Ok(then(mutation, &told)),
        _ => Ok(answer(&told)),
    }
}

/// Makes the key of a daemon of the host, `mgr.NAME` or `mds.NAME`, or tells it again; where there
/// are enough managers, tells that.
fn key_add(ctx: &mut CommandCtx<'_>, name: &str, kind: EntityKind) -> Run {
    let daemon = EntityName::new(kind, name);
    if let Some(there) = ctx.state.auth.get(&daemon) {
        return Ok(answer(&json!({"key": there.key.to_base64()})));
    }
    let count = ctx.state.auth.entities.keys().filter(|n| n.kind == EntityKind::MGR).count();
    if kind == EntityKind::MGR && count >= MGRS {
        return Ok(answer(&json!({"enough": count})));
    }
    let key = super::auth::new_key(ctx)?;
    let told = json!({"key": key.to_base64()});
    let caps = crate::mkfs::default_caps(&daemon);
    let entity = EntityAuth { key, caps, ..EntityAuth::default() };
    Ok(then(super::auth::set(&daemon, entity), &told))
}

fn uuids(host: &Value) -> Vec<String> {
    let all = host["osds"].as_array().into_iter().flatten();
    all.filter_map(|u| u.as_str().map(str::to_owned)).collect()
}

/// `osd new`, remembered as the host's.
fn osd_new(ctx: &mut CommandCtx<'_>, name: &str, mut host: Value) -> Run {
    let uuid: types::Uuid =
        ctx.cmd.need_str("uuid")?.parse().map_err(|_| fail(EINVAL, "uuid does not parse"))?;
    if uuid.is_zero() {
        return Err(fail(EINVAL, "an OSD without a uuid is another host's that was destroyed"));
    }
    let mut all = uuids(&host);
    let made = super::osd_new::new(ctx)?;
    if all.contains(&uuid.to_string()) {
        return Ok(made);
    }
    if all.len() >= HOST_OSDS_MAX {
        return Err(fail(ENOSPC, format!("host {name} has {HOST_OSDS_MAX} OSDs already")));
    }
    let Outcome::Propose { mutation, then } = made else {
        return Err(fail(EEXIST, format!("an OSD of another host has the uuid {uuid}")));
    };
    all.push(uuid.to_string());
    host["osds"] = all.into();
    let steps = vec![mutation, pair(format!("{HOSTS}{name}"), Some(&host))];
    Ok(Outcome::Propose { mutation: one_or_batch(steps), then })
}

fn osds(ctx: &CommandCtx<'_>, host: &Value) -> Vec<(OsdId, String)> {
    let (map, own) = (ctx.osdmap(), uuids(host));
    let of = |osd: OsdId| (osd, map.uuid(osd).to_string());
    map.osds().map(of).filter(|(_, uuid)| own.contains(uuid)).collect()
}

/// Takes the OSDs out for good. Their CRUSH weight goes, too: while the host has a share of the draws
/// a PG may find no other place, and data would move again once the host is gone.
fn osd_out(ctx: &mut CommandCtx<'_>, host: &Value) -> Run {
    let mut inc = ctx.osd_change();
    let mut crush = (**ctx.osdmap().crush.map()).clone();
    let mut reweighted = false;
    for (osd, _) in osds(ctx, host) {
        if ctx.osdmap().is_in(osd) {
            inc.new_weight.insert(osd, 0);
        }
        if crush.names().contains(osd.0) && crush.item_weight(osd.0).is_some_and(|w| w > 0) {
            crush.adjust_item_weight(osd.0, 0, true)?;
            reweighted = true;
        }
    }
    if reweighted {
        inc.crush = super::crush::bytes_of(&crush);
    }
    match inc.new_weight.is_empty() && !reweighted {
        true => ok("all OSDs of it are out already"),
        false => super::change(inc, ""),
    }
}

/// Forgets an OSD of the host that is down, with its keys and its place.
fn osd_rm(ctx: &mut CommandCtx<'_>, name: &str, mut host: Value) -> Run {
    let osd = ctx.cmd.need_osd("id")?;
    let Some((_, uuid)) = osds(ctx, &host).into_iter().find(|(own, _)| *own == osd) else {
        return match ctx.osdmap().exists(osd) {
            true => Err(fail(EPERM, format!("osd.{osd} is not host {name}'s"))),
            false => ok(format!("osd.{osd} does not exist")),
        };
    };
    if ctx.osdmap().is_up(osd) {
        return Err(fail(EBUSY, format!("osd.{osd} is not down")));
    }
    let mut all = uuids(&host);
    all.retain(|other| *other != uuid);
    host["osds"] = all.into();
    let Outcome::Propose { mutation, then } = super::osd_new::purged(ctx, osd)? else {
        return ok("");
    };
    let steps = vec![mutation, pair(format!("{HOSTS}{name}"), Some(&host))];
    Ok(Outcome::Propose { mutation: Mutation::Batch(steps), then })
}

/// The last step: keys, bucket and record of a host that has neither OSDs nor a monitor any more.
fn leave(ctx: &mut CommandCtx<'_>, name: &str, host: &Value) -> Run {
    if let Some((osd, _)) = osds(ctx, host).first() {
        return Err(fail(EBUSY, format!("osd.{osd} of host {name} is there")));
    }
    if ctx.state.monmap.mons.contains_key(name) {
        return Err(fail(EBUSY, format!("mon.{name} is there")));
    }
    let mut all = vec![pair(format!("{HOSTS}{name}"), None)];
    if let Some(id) = host["token"].as_str() {
        all.extend([key_of(&joiner(id)), pair(format!("{TOKENS}{id}"), None)]);
    }
    let of = |kind| EntityName::new(kind, name);
    for entity in [of(EntityKind::MGR), of(EntityKind::MDS), keeper(name)] {
        if ctx.state.auth.get(&entity).is_some() {
            all.push(key_of(&entity));
        }
    }
    let held = &ctx.osdmap().crush;
    if let Some(id) = held.names().id(name).filter(|id| *id < 0)
        && held.map().bucket(id).is_some_and(|b| b.items().is_empty())
    {
        let mut crush = (**held.map()).clone();
        match crush.remove_item(id, false) {
            Ok(()) => {
                let mut inc = ctx.osd_change();
                inc.crush = super::crush::bytes_of(&crush);
                all.push(Mutation::Osd(Box::new(inc)));
            }
            // A rule may begin at it.
            Err(why) => tracing::warn!("bucket {name} stays: {why}"),
        }
    }
    propose(Mutation::Batch(all), format!("host {name} has left"))
}

fn list(ctx: &mut CommandCtx<'_>) -> Run {
    let hosts: Vec<(String, Value)> =
        below(ctx, HOSTS).map(|(name, host)| (name.to_owned(), host)).collect();
    let (map, mons) = (ctx.osdmap(), &ctx.state.monmap.mons);
    let has = |kind, name: &str| ctx.state.auth.get(&EntityName::new(kind, name)).is_some();
    if let Some(mut f) = ctx.formatter() {
        f.array("hosts", |f| {
            for (name, host) in &hosts {
                f.object("host", |f| {
                    f.string("name", name);
                    f.string("addr", host["addr"].as_str().unwrap_or_default());
                    f.bool("mon", mons.contains_key(name));
                    f.bool("mgr", has(EntityKind::MGR, name));
                    f.bool("mds", has(EntityKind::MDS, name));
                    f.array("osds", |f| {
                        for (osd, uuid) in osds(ctx, host) {
                            f.object("osd", |f| {
                                f.int("id", osd.0);
                                f.string("uuid", uuid);
                                f.bool("up", map.is_up(osd));
                                f.bool("in", map.is_in(osd));
                            });
                        }
                    });
                });
            }
        });
        return super::out(f.finish());
    }
    let line = |(name, host): &(String, Value)| {
        let mut words = vec![name.clone(), host["addr"].as_str().unwrap_or_default().to_owned()];
        words.extend(mons.contains_key(name).then(|| format!("mon.{name}")));
        words.extend(has(EntityKind::MGR, name).then(|| format!("mgr.{name}")));
        words.extend(has(EntityKind::MDS, name).then(|| format!("mds.{name}")));
        words.extend(osds(ctx, host).iter().map(|(osd, _)| format!("osd.{osd}")));
        words.join(" ") + "\n"
    };
    super::out(hosts.iter().map(line).collect::<String>())
}
