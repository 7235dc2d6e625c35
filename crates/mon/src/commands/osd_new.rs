//! `osd new`, `create`, `destroy`, `purge`: OSDs that come and go, with their secrets.

use std::collections::BTreeMap;

use ::auth::CryptoKey;
use bytes::Bytes;
use maps::{OsdState, WEIGHT_ONE};
use types::{EntityKind, EntityName, OsdId, Uuid};

use super::osd_change::{OSDS_MAX, forget, one_or_batch};
use super::{EBUSY, EEXIST, EINVAL, EPERM, Fail, Run, fail, ok};
use crate::{AuthChange, CommandCtx, Mutation, Outcome, Reply};

/// The first id that no OSD has.
fn free_id(map: &maps::OsdMap) -> OsdId {
    (0..map.max_osd)
        .map(OsdId)
        .find(|o| !map.exists(*o) && !map.state(*o).has(OsdState::DESTROYED))
        .unwrap_or(OsdId(map.max_osd))
}

fn id_by_uuid(map: &maps::OsdMap, uuid: Uuid) -> Option<OsdId> {
    map.osds().find(|o| map.uuid(*o) == uuid)
}

/// The changes that make an OSD exist.
fn make_exist(map: &maps::OsdMap, osd: OsdId, uuid: Uuid, inc: &mut maps::Incremental) {
    let old = map.state(osd);
    let mut flip = old.0 & OsdState::DESTROYED.0;
    if !old.has(OsdState::EXISTS) {
        // It counts as in from now on; a weight makes it exist, so that is not flipped.
        inc.new_weight.insert(osd, WEIGHT_ONE);
    }
    if !old.has(OsdState::NEW) {
        flip |= OsdState::NEW.0;
    }
    if flip != 0 {
        inc.new_state.insert(osd, flip);
    }
    if !uuid.is_zero() {
        inc.new_uuid.insert(osd, uuid);
    }
    if osd.0 >= map.max_osd {
        inc.new_max_osd = Some(osd.0 + 1);
    }
}

fn id_reply(ctx: &CommandCtx<'_>, osd: OsdId) -> Reply {
    let text = match ctx.formatter() {
        None => format!("{osd}\n"),
        Some(mut f) => {
            f.object("created_osd", |f| f.int("osdid", osd.0));
            f.finish()
        }
    };
    Reply::out(text)
}

fn uuid_arg(ctx: &CommandCtx<'_>, why: impl Fn(&str) -> String) -> Result<Option<Uuid>, Fail> {
    let Some(text) = ctx.cmd.str("uuid")? else { return Ok(None) };
    text.parse().map(Some).map_err(|_| fail(EINVAL, why(text)))
}

pub(super) fn create(ctx: &mut CommandCtx<'_>) -> Run {
    let uuid = uuid_arg(ctx, |text| format!("invalid uuid value '{text}'"))?;
    let asked = if ctx.cmd.has("id") { Some(ctx.cmd.need_osd("id")?) } else { None };
    let map = ctx.osdmap();
    if let Some(uuid) = uuid
        && let Some(osd) = id_by_uuid(map, uuid)
    {
        if asked.is_some_and(|asked| asked != osd) {
            return Err(fail(EEXIST, format!("uuid {uuid} already in use for different id {osd}")));
        }
        return Ok(Outcome::Reply(id_reply(ctx, osd)));
    }
    let osd = match asked {
        Some(osd) if map.exists(osd) => {
            return Err(fail(
                EINVAL,
                format!(
                    "id {osd} already in use and does not match uuid {}",
                    uuid.unwrap_or_default()
                ),
            ));
        }
        Some(osd) => osd,
        None => free_id(map),
    };
    check_id(osd)?;
    let mut inc = ctx.osd_change();
    make_exist(map, osd, uuid.unwrap_or_default(), &mut inc);
    Ok(Outcome::Propose { mutation: Mutation::Osd(Box::new(inc)), then: id_reply(ctx, osd) })
}

fn check_id(osd: OsdId) -> Result<(), Fail> {
    if !(0..OSDS_MAX).contains(&osd.0) {
        return Err(fail(34, format!("cannot create osd.{osd}: ids go up to {}", OSDS_MAX - 1)));
    }
    Ok(())
}

/// What comes with `osd new`, as `-i FILE`.
#[derive(Default)]
struct Params {
    device_class: String,
    key: Option<CryptoKey>,
    /// The key with which an encrypted OSD's host fetches `luks`, and that.
    lockbox: Option<(CryptoKey, String)>,
}

impl Params {
    /// # Errors
    /// `EINVAL` for what is no json object of texts, for bad keys, and for half a lockbox.
    fn read(ctx: &CommandCtx<'_>) -> Result<Self, Fail> {
        let text = std::str::from_utf8(ctx.inbuf).unwrap_or_default().trim();
        if text.is_empty() {
            return Ok(Self::default());
        }
        let params: BTreeMap<String, serde_json::Value> = serde_json::from_str(text)
            .map_err(|_| fail(EINVAL, "parameters must be a json object of texts"))?;
        let get = |name: &str| params.get(name).and_then(|v| v.as_str());
        let device_class = get("crush_device_class").unwrap_or_default().to_owned();
        let (lockbox, luks) = (get("cephx_lockbox_secret"), get("dmcrypt_key"));
        let Some(secret) = get("cephx_secret") else {
            if lockbox.is_some() || luks.is_some() {
                return Err(fail(EINVAL, "requires a cephx secret."));
            }
            return Ok(Self { device_class, ..Self::default() });
        };
        if lockbox.is_some() != luks.is_some() {
            let why = "requires both a cephx lockbox secret and a dm-crypt key.";
            return Err(fail(EINVAL, why));
        }
        let parsed = |secret: &str, what: &str| {
            CryptoKey::from_base64(secret)
                .map_err(|_| fail(EINVAL, format!("invalid cephx {what}secret.")))
        };
        let key = Some(parsed(secret, "")?);
        let lockbox = match (lockbox, luks) {
            (Some(secret), Some(luks)) => Some((parsed(secret, "lockbox ")?, luks.to_owned())),
            _ => None,
        };
        Ok(Self { device_class, key, lockbox })
    }
}

fn luks_key(uuid: Uuid) -> String {
    format!("dm-crypt/osd/{uuid}/luks")
}

/// Who fetches the dm-crypt key of an encrypted OSD.
fn lockbox_name(uuid: Uuid) -> EntityName {
    EntityName::new(EntityKind::CLIENT, format!("osd-lockbox.{uuid}"))
}

/// The change that makes an entity with a key; none where it is there with this key.
///
/// # Errors
/// `EEXIST` where it has another key.
fn entity(
    ctx: &CommandCtx<'_>,
    name: EntityName,
    key: &CryptoKey,
    caps: &[(&str, &str)],
) -> Result<Option<Mutation>, Fail> {
    if let Some(there) = ctx.state.auth.get(&name) {
        if there.key == *key {
            return Ok(None);
        }
        return Err(fail(EEXIST, format!("entity {name} exists but key does not match")));
    }
    let caps = caps.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    Ok(Some(Mutation::Auth(AuthChange::Set { name, key: key.clone(), caps })))
}

/// The changes that keep the secrets of OSD `osd`; none for what is kept already.
///
/// # Errors
/// `EEXIST` where others are kept, and, of an OSD that is not `fresh`, where none are.
fn keep_secrets(
    ctx: &CommandCtx<'_>,
    (osd, uuid, fresh): (OsdId, Uuid, bool),
    params: &Params,
) -> Result<Vec<Mutation>, Fail> {
    let Some(key) = &params.key else { return Ok(Vec::new()) };
    let mut all = Vec::new();
    let name = EntityName::new(EntityKind::OSD, osd.to_string());
    let caps = [("mgr", "allow profile osd"), ("mon", "allow profile osd"), ("osd", "allow *")];
    all.extend(entity(ctx, name, key, &caps)?);
    if let Some((key, luks)) = &params.lockbox {
        let at = luks_key(uuid);
        let caps = format!("allow command \"config-key get\" with key=\"{at}\"");
        all.extend(entity(ctx, lockbox_name(uuid), key, &[("mon", &caps)])?);
        let value = Bytes::from(luks.clone());
        match ctx.state.config_key.get(&at) {
            Some(there) if *there == value => {}
            Some(_) => {
                return Err(fail(EEXIST, "dm-crypt key already exists and does not match"));
            }
            None => all.push(Mutation::ConfigKey { key: at, value: Some(value) }),
        }
    }
    if !fresh && !all.is_empty() {
        return Err(fail(EEXIST, format!("osd.{osd} exists but secrets do not match")));
    }
    Ok(all)
}

pub(super) fn new(ctx: &mut CommandCtx<'_>) -> Run {
    let Some(uuid) = uuid_arg(ctx, |text| format!("invalid UUID value '{text}'."))? else {
        return Err(fail(EINVAL, "requires the OSD's UUID to be specified."));
    };
    let asked = if ctx.cmd.has("id") { Some(ctx.cmd.need_osd("id")?) } else { None };
    let map = ctx.osdmap();
    let (osd, fresh) = match (id_by_uuid(map, uuid), asked) {
        (Some(osd), Some(asked)) if asked != osd => {
            return Err(fail(EEXIST, format!("uuid {uuid} already in use for different id {osd}")));
        }
        (Some(osd), _) => (osd, map.state(osd).has(OsdState::DESTROYED)),
        (None, Some(asked)) if map.exists(asked) && !map.state(asked).has(OsdState::DESTROYED) => {
            return Err(fail(
                EINVAL,
                format!("id {asked} already in use and does not match uuid {uuid}"),
            ));
        }
        (None, Some(asked)) => (asked, true),
        (None, None) => (free_id(map), true),
    };
    check_id(osd)?;
    let params = Params::read(ctx)?;
    let mut all = keep_secrets(ctx, (osd, uuid, fresh), &params)?;
    if fresh {
        let mut inc = ctx.osd_change();
        make_exist(map, osd, uuid, &mut inc);
        if map.exists(osd) {
            // A destroyed OSD comes back with another incarnation; its weight stays.
            inc.new_uuid.insert(osd, uuid);
        }
        if !params.device_class.is_empty() {
            let mut crush = (**map.crush.map()).clone();
            // As the peer: a class that cannot be leaves the OSD without.
            match super::crush::put_in_class(&mut crush, osd, &params.device_class) {
                Ok(true) => inc.crush = super::crush::bytes_of(&crush),
                Ok(false) => {}
                Err(why) => tracing::warn!("osd.{osd} gets no device class: {why}"),
            }
        }
        all.push(Mutation::Osd(Box::new(inc)));
    }
    let then = id_reply(ctx, osd);
    if all.is_empty() {
        return Ok(Outcome::Reply(then));
    }
    Ok(Outcome::Propose { mutation: one_or_batch(all), then })
}

fn must_be_sure(ctx: &CommandCtx<'_>, tool: &str) -> Result<(), Fail> {
    let sure = ctx.cmd.flag("yes_i_really_mean_it")
        || ctx.cmd.flag("yes_i_really_really_mean_it")
        || ctx.cmd.flag("force");
    if sure {
        return Ok(());
    }
    Err(fail(
        EPERM,
        format!(
            "Are you SURE?  Did you verify with '{tool}osd safe-to-destroy'?  This will mean real, permanent data loss, as well as deletion of cephx and lockbox keys. Pass --yes-i-really-mean-it if you really do."
        ),
    ))
}

/// `destroy` and `purge` begin alike: gone already is success, up is refused.
fn gone_or_down(ctx: &CommandCtx<'_>) -> Result<Result<OsdId, String>, Fail> {
    let osd = ctx.cmd.need_osd("id")?;
    let map = ctx.osdmap();
    if !map.exists(osd) {
        return Ok(Err(format!("osd.{osd} does not exist")));
    }
    must_be_sure(ctx, "")?;
    if map.is_up(osd) {
        return Err(fail(EBUSY, format!("osd.{osd} is not `down`.")));
    }
    Ok(Ok(osd))
}

/// The changes that forget what is kept beside the maps for an OSD: its keys, its lockbox.
fn forget_secrets(ctx: &CommandCtx<'_>, osd: OsdId) -> Vec<Mutation> {
    let uuid = ctx.osdmap().uuid(osd);
    let own = EntityName::new(EntityKind::OSD, osd.to_string());
    let names = [own, lockbox_name(uuid)];
    let there = names.into_iter().filter(|name| ctx.state.auth.get(name).is_some());
    let mut all: Vec<Mutation> =
        there.map(|name| Mutation::Auth(AuthChange::Remove(name))).collect();
    let below = [format!("dm-crypt/osd/{uuid}/"), format!("daemon-private/osd.{osd}/")];
    let keys = ctx.state.config_key.keys().filter(|k| below.iter().any(|b| k.starts_with(b)));
    all.extend(keys.map(|key| Mutation::ConfigKey { key: key.clone(), value: None }));
    all.push(Mutation::OsdMetadata { osd, metadata: None });
    all
}

pub(super) fn destroy(ctx: &mut CommandCtx<'_>) -> Run {
    let osd = match gone_or_down(ctx)? {
        Ok(osd) => osd,
        Err(why) => return ok(why),
    };
    let map = ctx.osdmap();
    if map.state(osd).has(OsdState::DESTROYED) {
        return ok(format!("destroyed osd.{osd}"));
    }
    let mut inc = ctx.osd_change();
    inc.new_state.insert(osd, OsdState::DESTROYED.0);
    inc.new_uuid.insert(osd, Uuid::default());
    let mut all = vec![Mutation::Osd(Box::new(inc))];
    all.extend(forget_secrets(ctx, osd));
    super::propose(Mutation::Batch(all), format!("destroyed osd.{osd}"))
}

pub(super) fn purge(ctx: &mut CommandCtx<'_>) -> Run {
    match gone_or_down(ctx)? {
        Ok(osd) => purged(ctx, osd),
        Err(why) => ok(why),
    }
}

/// `osd purge-new`: takes back an `osd new`. An OSD that was up once is refused.
pub(super) fn purge_new(ctx: &mut CommandCtx<'_>) -> Run {
    must_be_sure(ctx, "ceph ")?;
    let osd = ctx.cmd.need_osd("id")?;
    let map = ctx.osdmap();
    if !map.exists(osd) {
        return ok(format!("osd.{osd} does not exist"));
    }
    if map.is_up(osd) {
        return Err(fail(EBUSY, format!("osd.{osd} is not `down`.")));
    }
    if !map.state(osd).has(OsdState::NEW) {
        return Err(fail(EPERM, format!("osd.{osd} is not new")));
    }
    purged(ctx, osd)
}

pub(super) fn purged(ctx: &CommandCtx<'_>, osd: OsdId) -> Run {
    let map = ctx.osdmap();
    let mut inc = ctx.osd_change();
    forget(map, osd, &mut inc);
    if map.crush.names().contains(osd.0) {
        let mut crush = (**map.crush.map()).clone();
        crush.remove_item(osd.0, false)?;
        inc.crush = super::crush::bytes_of(&crush);
    }
    let mut all = vec![Mutation::Osd(Box::new(inc))];
    all.extend(forget_secrets(ctx, osd));
    super::propose(Mutation::Batch(all), format!("purged osd.{osd}"))
}
