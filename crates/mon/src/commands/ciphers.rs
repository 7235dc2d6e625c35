//! `mon set`: which kinds of cephx keys the cluster takes, makes and seals tickets with.
//!
//! Source: the peer's `mon/MonmapMonitor.cc`, `mon/AuthMonitor.cc`; live 20.2.4.

use std::collections::BTreeSet;

use auth::KeyKind;
use conf::key;
use maps::MonMapAuth;
use types::{EntityKind, EntityName};

use super::{EINVAL, EPERM, Fail, Run, fail, ok, propose};
use crate::CommandCtx;
use crate::health_auth::{INSECURE, insecure_may_log_in};

fn kind(name: &str) -> Result<KeyKind, Fail> {
    KeyKind::cipher_named(name).ok_or_else(|| fail(EINVAL, "(22) Invalid argument"))
}

/// `mon set auth_service_cipher|auth_allowed_ciphers|auth_preferred_cipher VALUE`. Takes effect at
/// once.
///
/// # Errors
/// EINVAL for what is no cipher, and for an empty list; EPERM where nobody could change it back, or
/// the monitors could not talk to each other. The peer takes both.
pub(super) fn set(ctx: &mut CommandCtx<'_>) -> Run {
    let value = ctx.cmd.need_str("value")?.to_owned();
    let before = ctx.state.monmap.auth.clone().unwrap_or_default();
    let mut auth = before.clone();
    match ctx.cmd.need_str("name")? {
        "auth_service_cipher" => auth.service_cipher = i32::from(kind(&value)?.0),
        "auth_preferred_cipher" => auth.preferred_cipher = i32::from(kind(&value)?.0),
        "auth_allowed_ciphers" => {
            let names = value.split(',').map(str::trim).filter(|name| !name.is_empty());
            let kinds = names.map(|name| kind(name).map(|k| i32::from(k.0)));
            auth.allowed_ciphers = kinds.collect::<Result<BTreeSet<i32>, Fail>>()?;
            if auth.allowed_ciphers.is_empty() {
                return Err(fail(EINVAL, "name at least one cipher: nobody gets in without"));
            }
            keeps_in(ctx, &auth)?;
        }
        other => {
            let known = "auth_service_cipher|auth_allowed_ciphers|auth_preferred_cipher";
            return Err(fail(EINVAL, format!("{other} not in {known}")));
        }
    }
    if auth == before {
        return ok("already set");
    }
    propose(super::mon_change::changed(ctx, |map| map.auth = Some(auth)), "")
}

/// Refuses what would shut out the monitors, or everybody who has full rights.
fn keeps_in(ctx: &CommandCtx<'_>, auth: &MonMapAuth) -> Result<(), Fail> {
    let allowed = |kind: KeyKind| auth.allowed_ciphers.contains(&i32::from(kind.0));
    let all = &ctx.state.auth;
    let mon = EntityName::new(EntityKind::MON, "");
    if all.get(&mon).is_some_and(|mon| !allowed(mon.key.kind)) {
        let why = "the monitors' own key is of a kind that would not be allowed: `ceph auth rotate \
                   mon.` first";
        return Err(fail(EPERM, why));
    }
    let mut full = all.entities.iter().filter(|(name, e)| super::auth::is_full(name, &e.caps));
    if full.any(|(_, entity)| allowed(entity.key.kind)) {
        return Ok(());
    }
    let why = "nobody who has full rights could log in any more: `ceph auth rotate client.admin \
               --key-type ...` first";
    Err(fail(EPERM, why))
}

/// Refuses to make a key of a kind that can be broken, where such keys are not allowed:
/// `mon_auth_allow_insecure_key`, which follows what may log in until somebody sets it.
///
/// # Errors
/// EINVAL.
pub(super) fn may_make(ctx: &CommandCtx<'_>, kind: KeyKind) -> Result<(), Fail> {
    let may = || {
        let set = ctx.option_set(key::MON_AUTH_ALLOW_INSECURE_KEY);
        set.unwrap_or_else(|| insecure_may_log_in(&ctx.state.monmap))
    };
    if i32::from(kind.0) != INSECURE || may() {
        return Ok(());
    }
    let why = format!("creating key with insecure key type (\"{kind}\") not allowed");
    Err(fail(EINVAL, why))
}
