//! What images are like, for people and as JSON.

use anyhow::Result;
use rados::Cluster;
use rbd::{Image, Mode, SnapKind, pool, trash};
use serde_json::{Value, json};

use super::spec::{self, Spec};
use super::with_image;

/// Bytes for people: `10 GiB`.
fn bytes(n: u64) -> String {
    const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut unit = 0;
    let mut x = n as f64;
    while x >= 1024.0 && unit + 1 < UNITS.len() {
        x /= 1024.0;
        unit += 1;
    }
    if x.fract() < 0.05 {
        format!("{x:.0} {}", UNITS[unit])
    } else {
        format!("{x:.1} {}", UNITS[unit])
    }
}

fn print(value: &Value) {
    say!("{value:#}");
}

pub async fn list(cluster: &Cluster, pool: &str, as_json: bool) -> Result<()> {
    let io = spec::pool(cluster, pool).await?;
    let found = pool::list(&io).await?;
    if as_json {
        print(&json!(found.iter().map(|(name, _)| name).collect::<Vec<_>>()));
    } else {
        found.iter().for_each(|(name, _)| say!("{name}"));
    }
    Ok(())
}

pub async fn trash(cluster: &Cluster, pool: &str, as_json: bool) -> Result<()> {
    let io = spec::pool(cluster, pool).await?;
    let found = trash::list(&io).await?;
    if as_json {
        let entry = |t: &trash::Trashed| {
            json!({"id": t.id, "name": t.name, "deleted": t.deleted.to_string(),
                "kept_until": t.deferred.to_string(), "source": t.source})
        };
        print(&json!(found.iter().map(entry).collect::<Vec<_>>()));
    } else {
        found.iter().for_each(|t| say!("{} {}", t.id, t.name));
    }
    Ok(())
}

pub async fn info(cluster: &Cluster, what: &Spec, as_json: bool) -> Result<()> {
    with_image(cluster, what, Mode::Read, async |image| {
        let header = image.header().clone();
        let (size, overlap, protected) = match &what.snap {
            None => (header.size, header.overlap, None),
            Some(name) => {
                let snap = header.snap(name)?;
                (snap.size, snap.overlap, Some(snap.is_protected()))
            }
        };
        let layout = image.layout();
        let mut value = json!({
            "name": image.name(),
            "id": image.id(),
            "size": size,
            "objects": layout.object_count(size),
            "order": layout.order(),
            "object_size": layout.object_size(),
            "snapshot_count": header.snaps.iter().filter(|s| s.is_users()).count(),
            "block_name_prefix": image.prefix(),
            "format": 2,
            "features": rbd::feature_names(header.features),
            "flags": flags(header.flags),
            "create_timestamp": header.created.to_string(),
            "access_timestamp": header.accessed.to_string(),
            "modify_timestamp": header.modified.to_string(),
        });
        if layout.is_fancy() {
            value["stripe_unit"] = json!(layout.stripe_unit());
            value["stripe_count"] = json!(layout.stripe_count());
        }
        if image.data_io().pool_id() != image.io().pool_id() {
            let map = cluster.map();
            value["data_pool"] = json!(map.pool_name(image.data_io().pool_id()));
        }
        if let Some(protected) = protected {
            value["protected"] = json!(protected);
        }
        if let (Some(parent), Some(overlap)) = (image.parent_info(), overlap) {
            let io = cluster.pool_by_id(parent.pool).namespace(parent.nspace.clone());
            let trashed = pool::name_of(&io, &parent.id).await?;
            let map = cluster.map();
            value["parent"] = json!({
                "pool": map.pool_name(parent.pool),
                "pool_namespace": parent.nspace,
                "image": trashed.clone().unwrap_or_else(|| parent.id.clone()),
                "id": parent.id,
                "snapshot": parent.snap,
                "trash": trashed.is_none(),
                "overlap": overlap,
            });
        }
        if as_json {
            print(&value);
            return Ok(());
        }
        say!("rbd image '{}':", image.name());
        say!("\tsize {} in {} objects", bytes(size), layout.object_count(size));
        say!("\torder {} ({} objects)", layout.order(), bytes(layout.object_size()));
        say!("\tsnapshot_count: {}", value["snapshot_count"]);
        say!("\tid: {}", image.id());
        if let Some(pool) = value.get("data_pool").and_then(Value::as_str) {
            say!("\tdata_pool: {pool}");
        }
        say!("\tblock_name_prefix: {}", image.prefix());
        say!("\tformat: 2");
        say!("\tfeatures: {}", rbd::feature_names(header.features).join(", "));
        say!("\tflags: {}", flags(header.flags).join(", "));
        say!("\tcreate_timestamp: {}", header.created);
        say!("\tmodify_timestamp: {}", header.modified);
        if let Some(protected) = protected {
            say!("\tprotected: {protected}");
        }
        if let Some(parent) = value.get("parent") {
            let text = |key: &str| parent[key].as_str().unwrap_or("?").to_owned();
            let place = spec::full_name(&text("pool"), &text("pool_namespace"), &text("image"));
            say!("\tparent: {place}@{}", text("snapshot"));
            say!("\toverlap: {}", bytes(overlap.unwrap_or(0)));
        }
        if layout.is_fancy() {
            say!("\tstripe unit: {}", bytes(layout.stripe_unit()));
            say!("\tstripe count: {}", layout.stripe_count());
        }
        Ok(())
    })
    .await
}

fn flags(bits: u64) -> Vec<&'static str> {
    let all = [
        (rbd::FLAG_OBJECT_MAP_INVALID, "object map invalid"),
        (rbd::FLAG_FAST_DIFF_INVALID, "fast diff invalid"),
    ];
    all.iter().filter(|(bit, _)| bits & bit != 0).map(|(_, name)| *name).collect()
}

pub async fn status(cluster: &Cluster, what: &Spec, as_json: bool) -> Result<()> {
    with_image(cluster, what.plain()?, Mode::Read, async |image| {
        let watchers = image.watchers().await?;
        let owners = image.lock_owners().await?;
        if as_json {
            let watcher = |w: &rados::Watcher| {
                json!({"address": w.addr.to_string(), "client": w.who.to_string(),
                    "cookie": w.cookie})
            };
            let owner = |o: &rbd::Owner| {
                json!({"client": o.who, "address": o.addr, "cookie": o.cookie, "tag": o.tag})
            };
            print(&json!({
                "watchers": watchers.iter().map(watcher).collect::<Vec<_>>(),
                "lockers": owners.iter().map(owner).collect::<Vec<_>>(),
            }));
            return Ok(());
        }
        if watchers.is_empty() {
            say!("Watchers: none");
        } else {
            say!("Watchers:");
        }
        for w in &watchers {
            say!("\twatcher={} {} cookie={}", w.addr, w.who, w.cookie);
        }
        for o in &owners {
            say!("Lock owner: {} at {} (cookie '{}')", o.who, o.addr, o.cookie);
        }
        Ok(())
    })
    .await
}

pub async fn snapshots(cluster: &Cluster, what: &Spec, all: bool, as_json: bool) -> Result<()> {
    with_image(cluster, what, Mode::Read, async |image| {
        let header = image.header().clone();
        let snaps: Vec<_> = header.snaps.iter().filter(|s| all || s.is_users()).collect();
        if as_json {
            let snap = |s: &&rbd::Snapshot| {
                json!({"id": s.id, "name": s.name, "size": s.size,
                    "protected": s.is_protected(), "timestamp": s.time.to_string()})
            };
            print(&json!(snaps.iter().map(snap).collect::<Vec<_>>()));
            return Ok(());
        }
        say!("{:>6} {:<24} {:>10} {:<9} TIMESTAMP", "SNAPID", "NAME", "SIZE", "PROTECTED");
        for s in snaps {
            let name = match &s.kind {
                SnapKind::Trash { name, .. } => {
                    format!("{} (in the trash)", String::from_utf8_lossy(name))
                }
                _ => s.name.clone(),
            };
            let protected = if s.is_protected() { "yes" } else { "" };
            let size = bytes(s.size);
            say!("{:>6} {name:<24} {size:>10} {protected:<9} {}", s.id, s.time);
        }
        Ok(())
    })
    .await
}

struct Usage {
    name: String,
    snap: Option<String>,
    size: u64,
    used: u64,
}

async fn usage_of(image: &Image, only: Option<&str>) -> Result<Vec<Usage>> {
    let header = image.header().clone();
    let mut rows = Vec::new();
    let mut from = None;
    for snap in &header.snaps {
        let wanted = only.is_none_or(|name| snap.is_users() && snap.name == name);
        if wanted {
            let used = image.used(from, Some(snap.id)).await?;
            let (name, size) = (image.name(), snap.size);
            rows.push(Usage { name, snap: Some(snap.name.clone()), size, used });
        }
        from = Some(snap.id);
    }
    if let Some(name) = only {
        header.snap(name)?;
    } else {
        let used = image.used(from, None).await?;
        rows.push(Usage { name: image.name(), snap: None, size: header.size, used });
    }
    Ok(rows)
}

pub async fn usage(cluster: &Cluster, what: &Spec, as_json: bool) -> Result<()> {
    // A name without a slash may be an image of the default pool, or a pool.
    let as_pool = what.pool.is_none() && what.snap.is_none();
    let is_pool = as_pool && cluster.map().pool_by_name(&what.image).is_some();
    let mut rows = Vec::new();
    if is_pool {
        let io = cluster.pool(&what.image).await?;
        for (name, _) in pool::list(&io).await? {
            let image = Image::open(&io, &name, Mode::Read).await?;
            rows.extend(usage_of(&image, None).await?);
        }
    } else {
        rows = with_image(cluster, what, Mode::Read, async |image| {
            usage_of(image, what.snap.as_deref()).await
        })
        .await?;
    }
    let used: u64 = rows.iter().map(|r| r.used).sum();
    let provisioned: u64 = rows.iter().filter(|r| r.snap.is_none()).map(|r| r.size).sum();
    if as_json {
        let row = |r: &Usage| {
            let mut value =
                json!({"name": r.name, "provisioned_size": r.size, "used_size": r.used});
            if let Some(snap) = &r.snap {
                value["snapshot"] = json!(snap);
            }
            value
        };
        print(&json!({
            "images": rows.iter().map(row).collect::<Vec<_>>(),
            "total_provisioned_size": provisioned,
            "total_used_size": used,
        }));
        return Ok(());
    }
    say!("{:<40} {:>12} {:>12}", "NAME", "PROVISIONED", "USED");
    for r in &rows {
        let name = match &r.snap {
            None => r.name.clone(),
            Some(snap) => format!("{}@{snap}", r.name),
        };
        say!("{name:<40} {:>12} {:>12}", bytes(r.size), bytes(r.used));
    }
    if rows.len() > 1 {
        say!("{:<40} {:>12} {:>12}", "<TOTAL>", bytes(provisioned), bytes(used));
    }
    Ok(())
}

pub async fn diff(
    cluster: &Cluster,
    what: &Spec,
    from: Option<&str>,
    whole: bool,
    as_json: bool,
) -> Result<()> {
    with_image(cluster, what, Mode::Read, async |image| {
        let id = |name: Option<&str>| -> Result<Option<u64>> {
            name.map(|name| Ok(image.header().snap(name)?.id)).transpose()
        };
        let (from, to) = (id(from)?, id(what.snap.as_deref())?);
        let mut found = Vec::new();
        image
            .diff(from, to, whole, &mut |c| {
                found.push(c);
                Ok(())
            })
            .await?;
        if as_json {
            let entry = |c: &rbd::Changed| {
                json!({"offset": c.off, "length": c.len,
                    "exists": if c.exists { "true" } else { "false" }})
            };
            print(&json!(found.iter().map(entry).collect::<Vec<_>>()));
            return Ok(());
        }
        say!("{:<16} {:<12} Type", "Offset", "Length");
        for c in found {
            say!("{:<16} {:<12} {}", c.off, c.len, if c.exists { "data" } else { "zero" });
        }
        Ok(())
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::bytes;

    #[test]
    fn sizes_are_readable() {
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(10 << 30), "10 GiB");
        assert_eq!(bytes(1536), "1.5 KiB");
    }
}
