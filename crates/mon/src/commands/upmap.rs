//! Exceptions to placement: `pg-upmap`, `pg-upmap-items`, `pg-temp`, `primary-temp`.

use maps::OsdMap;
use types::{OsdId, PgId};

use super::{EINVAL, ENOENT, EPERM, Fail, Run, change, fail, ok, osd_list, release_name};
use crate::CommandCtx;

pub(super) fn has(prefix: &str) -> bool {
    matches!(
        prefix,
        "osd pg-upmap"
            | "osd rm-pg-upmap"
            | "osd pg-upmap-items"
            | "osd rm-pg-upmap-items"
            | "osd pg-upmap-primary"
            | "osd rm-pg-upmap-primary"
            | "osd rm-pg-upmap-primary-all"
            | "osd pg-temp"
            | "osd primary-temp"
            | "osd rm-primary-temp"
    )
}

/// The PG an argument names; it must exist.
pub(super) fn need_pg(ctx: &CommandCtx<'_>) -> Result<PgId, Fail> {
    let text = ctx.cmd.str_or_empty("pgid")?;
    let pg: PgId = text.parse().map_err(|_| fail(EINVAL, format!("invalid pgid '{text}'")))?;
    if !ctx.osdmap().have_pg(pg) {
        return Err(fail(ENOENT, format!("pgid '{pg}' does not exist")));
    }
    Ok(pg)
}

/// Clients must be new enough to follow the exception.
fn check_clients(map: &OsdMap, release: u8, what: &str) -> Result<(), Fail> {
    let required = map.require_min_compat_client;
    if required >= release {
        return Ok(());
    }
    let (now, need) = (release_name(required), release_name(release));
    Err(fail(
        EPERM,
        format!(
            "min_compat_client {now} < {need}, which is required for {what}. Try 'ceph osd set-require-min-compat-client {need}' before using the new interface"
        ),
    ))
}

fn osds(ctx: &CommandCtx<'_>, map: &OsdMap) -> Result<Vec<OsdId>, Fail> {
    let mut list = Vec::new();
    for id in ctx.cmd.ints("id")? {
        let osd = i32::try_from(id).map(OsdId).unwrap_or(OsdId(-1));
        if osd != OsdId::NONE && !map.exists(osd) {
            return Err(fail(ENOENT, format!("osd.{id} does not exist")));
        }
        list.push(osd);
    }
    Ok(list)
}

pub(super) fn run(ctx: &mut CommandCtx<'_>, prefix: &str) -> Run {
    let map = ctx.osdmap();
    match prefix {
        "osd pg-upmap-primary" | "osd rm-pg-upmap-primary" | "osd rm-pg-upmap-primary-all" => {
            check_clients(map, 18, "pg-upmap-primary")?;
        }
        "osd pg-temp" | "osd primary-temp" | "osd rm-primary-temp" => {}
        _ => check_clients(map, 12, "pg-upmap")?,
    }
    let mut inc = ctx.osd_change();
    if prefix == "osd rm-pg-upmap-primary-all" {
        inc.old_pg_upmap_primary = map.pg_upmap_primaries.keys().copied().collect();
        return change(inc, "cleared all pg_upmap_primary mappings");
    }
    let pg = need_pg(ctx)?;
    match prefix {
        "osd pg-upmap" => {
            let list = osds(ctx, map)?;
            let Some(pool) = map.pool(pg.pool) else {
                return Err(fail(ENOENT, format!("pgid '{pg}' does not exist")));
            };
            let (least, most) = (usize::from(pool.min_size), usize::from(pool.size));
            if list.len() < least {
                return Err(fail(
                    EINVAL,
                    format!("num of osds ({}) < pool min size ({least})", list.len()),
                ));
            }
            if list.len() > most {
                return Err(fail(
                    EINVAL,
                    format!("num of osds ({}) > pool size ({most})", list.len()),
                ));
            }
            let (mut unique, mut said) = (Vec::new(), String::new());
            for osd in list {
                if osd != OsdId::NONE && unique.contains(&osd) {
                    said += &format!("osd.{osd} already exists, ");
                } else {
                    unique.push(osd);
                }
            }
            let shown = osd_list(&unique, "NONE");
            inc.new_pg_upmap.insert(pg, unique);
            change(inc, format!("{said}set {pg} pg_upmap mapping to {shown}"))
        }
        "osd rm-pg-upmap" => {
            inc.old_pg_upmap.insert(pg);
            change(inc, format!("clear {pg} pg_upmap mapping"))
        }
        "osd pg-upmap-items" => {
            let list = osds(ctx, map)?;
            if list.is_empty() || list.len() % 2 != 0 {
                return Err(fail(EINVAL, "you must specify pairs of from and to"));
            }
            let mut pairs: Vec<(OsdId, OsdId)> = Vec::new();
            let mut said = String::new();
            for pair in list.chunks_exact(2) {
                let (from, to) = (pair[0], pair[1]);
                if from == to {
                    said += &format!("from osd.{from} == to osd.{to}, ");
                } else if pairs.contains(&(from, to)) {
                    said += &format!("osd.{from} -> osd.{to} already exists, ");
                } else {
                    pairs.push((from, to));
                }
            }
            if pairs.is_empty() {
                return Err(fail(
                    EINVAL,
                    format!("no valid upmap items(pairs) are specified: {said}"),
                ));
            }
            let text: Vec<String> = pairs.iter().map(|(a, b)| format!("{a}->{b}")).collect();
            inc.new_pg_upmap_items.insert(pg, pairs);
            change(inc, format!("{said}set {pg} pg_upmap_items mapping to [{}]", text.join(",")))
        }
        "osd rm-pg-upmap-items" => {
            inc.old_pg_upmap_items.insert(pg);
            change(inc, format!("clear {pg} pg_upmap_items mapping"))
        }
        "osd pg-upmap-primary" => {
            let osd = OsdId(ctx.cmd.need_int("id")? as i32);
            let sets = map.pg_to_up_acting(pg);
            if !map.exists(osd) {
                return Err(fail(ENOENT, format!("osd.{osd} does not exist")));
            }
            if !sets.acting.contains(&osd) {
                return Err(fail(EINVAL, format!("osd.{osd} is not in acting set for pg {pg}")));
            }
            if sets.acting_primary == Some(osd) {
                return Err(fail(EINVAL, format!("osd.{osd} is already primary for pg {pg}")));
            }
            inc.new_pg_upmap_primary.insert(pg, osd);
            change(inc, format!("change primary for pg {pg} to osd.{osd}"))
        }
        "osd rm-pg-upmap-primary" => {
            inc.old_pg_upmap_primary.insert(pg);
            change(inc, format!("clear {pg} pg_upmap_primary mapping"))
        }
        "osd pg-temp" => {
            let list = osds(ctx, map)?;
            if list.is_empty() {
                if !map.pg_temp.contains_key(&pg) {
                    return ok(format!("done cleaning up pg_temp of {pg}"));
                }
                inc.new_pg_temp.insert(pg, Vec::new());
                return change(inc, format!("done cleaning up pg_temp of {pg}"));
            }
            let pool = map.pool(pg.pool);
            let least = pool.map_or(1, |p| usize::from(p.min_size));
            let most = pool.map_or(1, |p| usize::from(p.size));
            if list.len() < least || list.len() > most {
                return Err(fail(
                    EINVAL,
                    format!(
                        "num of osds ({}) must be between pool min size ({least}) and size ({most})",
                        list.len()
                    ),
                ));
            }
            let done = format!("set {pg} pg_temp mapping to {}", osd_list(&list, "NONE"));
            inc.new_pg_temp.insert(pg, list);
            change(inc, done)
        }
        "osd primary-temp" => {
            let id = ctx.cmd.need_int("id")?;
            let osd = i32::try_from(id).map(OsdId).unwrap_or(OsdId(-1));
            if !map.exists(osd) {
                return Err(fail(ENOENT, format!("osd.{id} does not exist")));
            }
            inc.new_primary_temp.insert(pg, osd);
            change(inc, format!("set {pg} primary_temp mapping to {osd}"))
        }
        _ => {
            inc.new_primary_temp.insert(pg, OsdId(-1));
            change(inc, format!("set {pg} primary_temp mapping to -1"))
        }
    }
}
