//! `auth ...`: entities, their keys and caps.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use ::auth::{CryptoKey, EntityAuth, KeyKind, Keyring};
use bytes::Bytes;
use cli::Formatter;
use types::{EntityKind, EntityName};

use super::{EACCES, EINVAL, ENOENT, EPERM, Fail, Run, fail, ok, out, propose};
use crate::{AuthChange, CommandCtx, Mutation, Outcome, Reply};

pub(super) fn has(prefix: &str) -> bool {
    prefix.starts_with("auth ")
}

pub(super) fn run(ctx: &mut CommandCtx<'_>, prefix: &str) -> Run {
    let done = match prefix.strip_prefix("auth ").unwrap_or_default() {
        "ls" | "list" => ls(ctx),
        "get" => get(ctx),
        "get-key" | "print-key" | "print_key" => get_key(ctx),
        "export" => export(ctx),
        "import" => import(ctx),
        "add" => add(ctx),
        "get-or-create" => get_or_create(ctx, false),
        "get-or-create-key" => get_or_create(ctx, true),
        "caps" => set_caps(ctx),
        "rm" | "del" => remove(ctx),
        "rotate" => rotate(ctx),
        "dump-keys" => dump_keys(ctx),
        "wipe-rotating-service-keys" => wipe(ctx),
        _ => Err(fail(EINVAL, "command not known")),
    }?;
    keeps_an_administrator(ctx, &done)?;
    Ok(done)
}

/// Whether an entity may do everything at the monitors, from everywhere.
pub(super) fn is_full(name: &EntityName, caps: &BTreeMap<String, String>) -> bool {
    let cap = ::auth::MonCap::parse_lenient(caps.get("mon").map_or("", String::as_str));
    name.kind != EntityKind::MON
        && cap.is_capable(&::auth::MonAccess {
            name,
            addr: &types::EntityAddr::default(),
            service: "",
            command: "",
            args: &BTreeMap::new(),
            wants: ::auth::Rights::ANY,
        })
}

/// Refuses what would leave nobody with full rights, unless that is really meant.
fn keeps_an_administrator(ctx: &CommandCtx<'_>, done: &Outcome) -> Result<(), Fail> {
    let Outcome::Propose { mutation, .. } = done else { return Ok(()) };
    if ctx.cmd.flag("yes_i_really_mean_it") {
        return Ok(());
    }
    let full = |(name, entity): (&EntityName, &EntityAuth)| {
        is_full(name, &entity.caps).then(|| name.clone())
    };
    let before: BTreeSet<EntityName> = ctx.state.auth.entities.iter().filter_map(full).collect();
    let mut after = before.clone();
    let steps = match mutation {
        Mutation::Batch(steps) => steps.as_slice(),
        one => std::slice::from_ref(one),
    };
    for step in steps {
        match step {
            Mutation::Auth(AuthChange::Set { name, caps, .. }) if is_full(name, caps) => {
                after.insert(name.clone());
            }
            Mutation::Auth(AuthChange::Set { name, .. } | AuthChange::Remove(name)) => {
                after.remove(name);
            }
            _ => {}
        }
    }
    if after.is_empty() && !before.is_empty() {
        let names: Vec<String> = before.iter().map(ToString::to_string).collect();
        let why = format!(
            "nobody would have full rights any more after this: only {} has them; pass \
             --yes-i-really-mean-it if that is meant",
            names.join(", ")
        );
        return Err(fail(EPERM, why));
    }
    Ok(())
}

fn keyring_text(name: &EntityName, entity: &EntityAuth) -> String {
    Keyring { entities: [(name.clone(), entity.clone())].into() }.to_string()
}

fn dump(f: &mut Formatter, name: &EntityName, entity: &EntityAuth) {
    f.object("auth_entities", |f| {
        f.display("entity", name);
        f.string("key", entity.key.to_base64());
        if !entity.pending_key.is_none() {
            f.string("pending_key", entity.pending_key.to_base64());
        }
        f.object("caps", |f| {
            for (service, caps) in &entity.caps {
                f.string(service, caps);
            }
        });
    });
}

/// One entity as a keyring, or as a list of one in other formats.
pub(super) fn one(ctx: &CommandCtx<'_>, name: &EntityName, entity: &EntityAuth) -> Bytes {
    match ctx.formatter() {
        None => keyring_text(name, entity).into(),
        Some(mut f) => {
            f.array("auth", |f| dump(f, name, entity));
            f.finish().into()
        }
    }
}

/// All entities but the monitors: their key is not shown, as with the peer.
fn shown<'a>(ctx: &CommandCtx<'a>) -> impl Iterator<Item = (&'a EntityName, &'a EntityAuth)> {
    ctx.state.auth.entities.iter().filter(|(name, _)| name.kind != EntityKind::MON)
}

fn ls(ctx: &mut CommandCtx<'_>) -> Run {
    let entities = shown(ctx);
    let Some(mut f) = ctx.formatter() else {
        let mut text = String::new();
        for (name, entity) in entities {
            let _ = writeln!(text, "{name}\n\tkey: {}", entity.key.to_base64());
            for (service, caps) in &entity.caps {
                let _ = writeln!(text, "\tcaps: [{service}] {caps}");
            }
        }
        return out(text);
    };
    f.object("auth", |f| {
        f.array("auth_dump", |f| {
            for (name, entity) in entities {
                dump(f, name, entity);
            }
        });
    });
    out(f.finish())
}

pub(super) fn entity_arg(ctx: &CommandCtx<'_>, wrong: &str) -> Result<EntityName, Fail> {
    let text = ctx.cmd.str_or_empty("entity")?;
    let name: EntityName = text.parse().map_err(|_| fail(EINVAL, wrong.replace("{}", text)))?;
    not_the_monitors(ctx, &name)?;
    Ok(name)
}

/// With the monitors' own key everything can be forged: it is for `allow *` alone, whatever is
/// asked or changed.
fn not_the_monitors(ctx: &CommandCtx<'_>, name: &EntityName) -> Result<(), Fail> {
    if name.kind == EntityKind::MON && !crate::session::is_administrator(ctx.session) {
        return Err(fail(EACCES, format!("the key of {name} is for 'allow *' alone")));
    }
    Ok(())
}

fn get(ctx: &mut CommandCtx<'_>) -> Run {
    let name = entity_arg(ctx, "invalid entity_auth {}")?;
    match ctx.state.auth.get(&name) {
        Some(entity) => out(one(ctx, &name, entity)),
        None => Err(fail(ENOENT, format!("failed to find {name} in keyring"))),
    }
}

fn key_reply(ctx: &CommandCtx<'_>, key: &CryptoKey) -> Reply {
    match ctx.formatter() {
        None => Reply::out(key.to_base64()),
        Some(mut f) => {
            f.object("auth", |f| f.string("key", key.to_base64()));
            Reply::out(f.finish())
        }
    }
}

fn get_key(ctx: &mut CommandCtx<'_>) -> Run {
    let name = entity_arg(ctx, "invalid entity_auth {}")?;
    match ctx.state.auth.get(&name) {
        Some(entity) => Ok(Outcome::Reply(key_reply(ctx, &entity.key))),
        None => Err(fail(ENOENT, format!("don't have {name}"))),
    }
}

fn export(ctx: &mut CommandCtx<'_>) -> Run {
    if ctx.cmd.has("entity") {
        let name = entity_arg(ctx, "invalid entity_auth {}")?;
        return match ctx.state.auth.get(&name) {
            Some(entity) => out(one(ctx, &name, entity)),
            None => Err(fail(ENOENT, format!("no key for {name}"))),
        };
    }
    let shown = shown(ctx);
    let Some(mut f) = ctx.formatter() else {
        let entities = shown.map(|(name, entity)| (name.clone(), entity.clone())).collect();
        return out(Keyring { entities }.to_string());
    };
    f.array("auth", |f| {
        for (name, entity) in shown {
            dump(f, name, entity);
        }
    });
    out(f.finish())
}

fn read_keyring(ctx: &CommandCtx<'_>) -> Result<Keyring, Fail> {
    let wrong = |why: String| fail(EINVAL, format!("error decoding keyring {why}"));
    let text = std::str::from_utf8(ctx.inbuf).map_err(|e| wrong(e.to_string()))?;
    Keyring::parse(text).map_err(|e| wrong(e.to_string()))
}

fn import(ctx: &mut CommandCtx<'_>) -> Run {
    if ctx.inbuf.is_empty() {
        return Err(fail(EINVAL, "auth import: no data supplied"));
    }
    let keyring = read_keyring(ctx)?;
    for (name, entity) in &keyring.entities {
        not_the_monitors(ctx, name)?;
        if entity.caps.is_empty() && name.kind != EntityKind::MON {
            return Err(fail(EINVAL, format!("auth import: no caps supplied for {name}")));
        }
        check_caps(&entity.caps)?;
    }
    let sets = keyring.entities.into_iter().map(|(name, entity)| {
        Mutation::Auth(AuthChange::Set { name, key: entity.key, caps: entity.caps })
    });
    propose(Mutation::Batch(sets.collect()), "")
}

pub(super) fn check_caps(caps: &BTreeMap<String, String>) -> Result<(), Fail> {
    for (service, text) in caps {
        ::auth::caps::check(service, text).map_err(|e| fail(EINVAL, e.to_string()))?;
    }
    Ok(())
}

/// Reads `mon 'allow r' osd 'allow *'`.
fn caps_arg(ctx: &CommandCtx<'_>) -> Result<BTreeMap<String, String>, Fail> {
    let words = ctx.cmd.list("caps")?;
    if words.len() % 2 != 0 {
        return Err(fail(EINVAL, "bad capabilities request; odd number of arguments"));
    }
    let caps = cli::caps_pairs(&words);
    check_caps(&caps)?;
    Ok(caps)
}

/// The kind of a new key: asked for, or what the monitor map prefers.
fn key_kind(ctx: &CommandCtx<'_>) -> Result<KeyKind, Fail> {
    let preferred = || {
        let kind = ctx.state.monmap.auth.as_ref().map_or(1, |a| a.preferred_cipher);
        KeyKind::cipher(kind).unwrap_or(KeyKind::AES)
    };
    let asked = ctx.cmd.str_or_empty("key_type")?;
    match asked {
        "" | "preferred" => Ok(preferred()),
        name => KeyKind::cipher_named(name)
            .ok_or_else(|| fail(EINVAL, format!("invalid key type: {name}"))),
    }
}

pub(super) fn new_key(ctx: &mut CommandCtx<'_>) -> Result<CryptoKey, Fail> {
    let kind = key_kind(ctx)?;
    super::ciphers::may_make(ctx, kind)?;
    let now = ctx.wall();
    Ok(CryptoKey::generate(kind, now, ctx.rng))
}

pub(super) fn set(name: &EntityName, entity: EntityAuth) -> Mutation {
    Mutation::Auth(AuthChange::Set { name: name.clone(), key: entity.key, caps: entity.caps })
}

fn add(ctx: &mut CommandCtx<'_>) -> Run {
    let name = entity_arg(ctx, "bad entity name")?;
    let mut caps = caps_arg(ctx)?;
    key_kind(ctx)?;
    let mut key = None;
    if !ctx.inbuf.is_empty() {
        let keyring = read_keyring(ctx)?;
        let Some(given) = keyring.entities.get(&name) else {
            return Err(fail(EINVAL, format!("key for {name} not found in provided keyring")));
        };
        if !given.caps.is_empty() && !caps.is_empty() && given.caps != caps {
            return Err(fail(EINVAL, "caps cannot be specified both in keyring and in command"));
        }
        if caps.is_empty() {
            caps = given.caps.clone();
            check_caps(&caps)?;
        }
        key = Some(given.key.clone());
    }
    if let Some(there) = ctx.state.auth.get(&name) {
        let same_key = key.as_ref().is_none_or(|k| *k == there.key);
        if !same_key {
            return Err(fail(EINVAL, format!("entity {name} exists but key does not match")));
        }
        if there.caps != caps {
            return Err(fail(EINVAL, format!("entity {name} exists but caps do not match")));
        }
        return ok("");
    }
    let key = match key {
        Some(key) => key,
        None => new_key(ctx)?,
    };
    let entity = EntityAuth { key, caps, ..EntityAuth::default() };
    propose(set(&name, entity), format!("added key for {name}"))
}

fn get_or_create(ctx: &mut CommandCtx<'_>, key_only: bool) -> Run {
    let name = entity_arg(ctx, "bad entity name")?;
    let caps = caps_arg(ctx)?;
    let reply = |ctx: &CommandCtx<'_>, entity: &EntityAuth| {
        if key_only && ctx.formatter().is_none() {
            return Reply::out(format!("{}\n", entity.key.to_base64()));
        }
        if key_only {
            return key_reply(ctx, &entity.key);
        }
        match ctx.formatter() {
            // Key alone: what goes in a client's keyring file.
            None => Reply::out(keyring_text(
                &name,
                &EntityAuth { caps: BTreeMap::new(), ..entity.clone() },
            )),
            Some(_) => Reply::out(one(ctx, &name, entity)),
        }
    };
    if let Some(there) = ctx.state.auth.get(&name) {
        for (service, text) in &caps {
            if there.caps.get(service) != Some(text) {
                return Err(fail(
                    EINVAL,
                    format!("key for {name} exists but cap {service} does not match"),
                ));
            }
        }
        return Ok(Outcome::Reply(reply(ctx, there)));
    }
    let entity = EntityAuth { key: new_key(ctx)?, caps, ..EntityAuth::default() };
    let then = reply(ctx, &entity);
    Ok(Outcome::Propose { mutation: set(&name, entity), then })
}

fn set_caps(ctx: &mut CommandCtx<'_>) -> Run {
    let name = entity_arg(ctx, "bad entity name")?;
    let Some(there) = ctx.state.auth.get(&name) else {
        return Err(fail(ENOENT, format!("couldn't find entry {name}")));
    };
    let entity = EntityAuth { caps: caps_arg(ctx)?, ..there.clone() };
    let text = one(ctx, &name, &entity);
    let then = Reply { r: 0, rs: format!("updated caps for {name}"), out: text };
    Ok(Outcome::Propose { mutation: set(&name, entity), then })
}

fn remove(ctx: &mut CommandCtx<'_>) -> Run {
    let name = entity_arg(ctx, "bad entity name")?;
    // The monitors cannot do without theirs; the peer does not file it here at all.
    if name.kind == EntityKind::MON || ctx.state.auth.get(&name).is_none() {
        return ok("");
    }
    propose(Mutation::Auth(AuthChange::Remove(name)), "")
}

fn rotate(ctx: &mut CommandCtx<'_>) -> Run {
    let name = entity_arg(ctx, "bad entity name")?;
    let Some(there) = ctx.state.auth.get(&name).cloned() else {
        return Err(fail(ENOENT, "entity does not exist"));
    };
    let entity = EntityAuth { key: new_key(ctx)?, ..there };
    let then = Reply::out(one(ctx, &name, &entity));
    Ok(Outcome::Propose { mutation: set(&name, entity), then })
}

fn wipe(ctx: &mut CommandCtx<'_>) -> Run {
    let mut policy = ::auth::TicketPolicy::default();
    if let Some(auth) = &ctx.state.monmap.auth
        && let Some(kind) = KeyKind::cipher(auth.service_cipher)
    {
        policy.service_cipher = kind;
    }
    let now = ctx.wall();
    let secrets = ctx.state.auth.plan_wipe(now, &policy, ctx.rng);
    let mut steps = vec![Mutation::Auth(AuthChange::Rotate { at: now, secrets })];
    if let Some(auth) = ctx.state.monmap.auth.clone() {
        // By it readers of the map see that tickets of before are worthless.
        let epoch = u32::try_from(ctx.state.auth.version).unwrap_or(u32::MAX).max(auth.epoch + 1);
        let raised = maps::MonMapAuth { epoch, ..auth };
        steps.push(super::mon_change::changed(ctx, |map| map.auth = Some(raised)));
    }
    propose(Mutation::Batch(steps), "wiped rotating service keys!")
}

fn dump_kind(f: &mut Formatter, name: &str, key: &CryptoKey) {
    f.object(name, |f| {
        f.int("type", key.kind.0);
        f.display("type_str", key.kind);
        f.display("created", key.created);
    });
}

fn dump_name(f: &mut Formatter, kind: EntityKind, id: &str) {
    f.object("entity", |f| {
        f.int("type", kind.0);
        f.string("type_str", kind.name());
        f.string("id", id);
    });
}

/// Everything about keys but the secrets.
fn dump_keys(ctx: &mut CommandCtx<'_>) -> Run {
    let Some(mut f) = ctx.formatter() else {
        return Err(fail(
            EINVAL,
            format!("format type \"{}\" not supported by this command; try json", ctx.cmd.format()),
        ));
    };
    let keys = &ctx.state.auth;
    f.open_object("keys");
    f.open_object("data");
    f.int("version", keys.version);
    f.int("rotating_version", keys.rotating_version);
    f.array("secrets", |f| {
        for (name, entity) in shown(ctx) {
            f.object("secret", |f| {
                dump_name(f, name.kind, &name.id);
                f.object("auth", |f| {
                    dump_kind(f, "key", &entity.key);
                    dump_kind(f, "pending_key", &entity.pending_key);
                    f.array("caps", |f| {
                        for (service, caps) in &entity.caps {
                            f.object("cap", |f| {
                                f.string("service_name", service);
                                f.string("access_spec", caps);
                            });
                        }
                    });
                });
            });
        }
    });
    f.array("rotating_secrets", |f| {
        for (service, set) in &keys.rotating {
            f.object("rotating_secret", |f| {
                let kind = u8::try_from(*service).map_or(EntityKind::ANY, EntityKind);
                dump_name(f, kind, "*");
                f.object("secrets", |f| {
                    f.int("max_ver", set.max_ver);
                    f.array("keys", |f| {
                        for (id, secret) in &set.secrets {
                            f.object("secret", |f| {
                                f.int("id", *id);
                                f.object("expiring_key", |f| {
                                    dump_kind(f, "key", &secret.key);
                                    f.display("expiration", secret.expiration);
                                });
                            });
                        }
                    });
                });
            });
        }
    });
    out(f.finish_line())
}
