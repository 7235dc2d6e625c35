//! The zone of a cluster that has none yet: what stock's gateway and `radosgw-admin` make at their first start.
//!
//! Source: `rgw_zone.cc` (`init_zone_pool_names`, `create_default`).

use cls::client::version;
use rgw_proto::Result;
use types::{Bytes, Denc, Errno, Features, Reader, UTime, Writer};

use crate::formats::{AccessKey, NamedId, Pool, ZoneGroup};
use crate::gateway::{decoded, failed, garbled};
use crate::objects::{Objects, Place, PoolUse, Step, Vector};

/// Name of the zone and of its group.
const DEFAULT: &str = "default";
const PLACEMENT: &str = "default-placement";
const STANDARD: &str = "STANDARD";
/// What a new zone group has, and a new zone can do.
const FEATURES: [&str; 2] = ["notification_v2", "resharding"];
/// Shards of new indexes: `RGWZone::bucket_index_max_shards`.
const SHARDS: u32 = 11;

fn pool(name: &str, ns: &str) -> Pool {
    Pool { name: format!("{DEFAULT}.rgw.{name}"), ns: ns.into() }
}

fn names(w: &mut Writer, all: &[&str]) {
    w.seq(all, |w, name| w.str(name));
}

/// Id and name of a zone or group: `RGWSystemMetaObj`.
fn named(w: &mut Writer, id: &str) {
    w.framed(1, 1, |w| {
        w.str(id);
        w.str(DEFAULT);
    });
}

/// `RGWZoneParams`, `ENCODE_START(18, 1)`.
fn zone_params(id: &str) -> Bytes {
    let mut w = Writer::new(Features::ALL);
    w.framed(18, 1, |w| {
        for (name, ns) in [
            ("meta", "root"),
            ("control", ""),
            ("log", "gc"),
            ("log", ""),
            ("log", "intent"),
            ("log", "usage"),
            ("meta", "users.keys"),
            ("meta", "users.email"),
            ("meta", "users.swift"),
            ("meta", "users.uid"),
        ] {
            pool(name, ns).encode(w);
        }
        named(w, id);
        AccessKey {
            id: String::new(),
            key: String::new(),
            subuser: String::new(),
            is_active: true,
            created: UTime::ZERO,
        }
        .encode(w);
        w.seq([PLACEMENT], |w, name| {
            w.str(name);
            placement(w);
        });
        Pool::default().encode(w); // a heap that is long gone
        w.str(""); // no realm
        pool("log", "lc").encode(w);
        w.u32(0); // tiers of releases long gone
        for (name, ns) in [("meta", "roles"), ("log", "reshard"), ("otp", "")] {
            pool(name, ns).encode(w);
        }
        // JSONFormattable without a value.
        w.framed(2, 1, |w| {
            w.u8(0);
            w.str("");
            w.u32(0);
            w.u32(0);
            w.bool(false);
        });
        for (name, ns) in [
            ("meta", "oidc"),
            ("log", "notif"),
            ("meta", "topics"),
            ("meta", "accounts"),
            ("meta", "groups"),
            ("log", "restore"),
            ("dedup", ""),
            ("log", "logging"),
        ] {
            pool(name, ns).encode(w);
        }
    });
    w.finish()
}

/// `RGWZonePlacementInfo`, `ENCODE_START(8, 1)`.
fn placement(w: &mut Writer) {
    let data = pool("buckets.data", "");
    w.framed(8, 1, |w| {
        w.str(&pool("buckets.index", "").name);
        w.str(&data.name);
        w.str(&pool("buckets.non-ec", "").name);
        w.u32(0);
        w.str("");
        w.framed(1, 1, |w| {
            w.seq([STANDARD], |w, name| {
                w.str(name);
                w.framed(1, 1, |w| {
                    Some(data.clone()).encode(w);
                    None::<String>.encode(w);
                });
            });
        });
        w.bool(true); // a head holds data
    });
}

/// `RGWZoneGroup`, `ENCODE_START(6, 1)`.
fn zone_group(id: &str, zone: &str) -> Bytes {
    let mut w = Writer::new(Features::ALL);
    w.framed(6, 1, |w| {
        w.str(DEFAULT);
        w.str(DEFAULT);
        w.bool(true);
        names(w, &[]); // end points
        w.str(zone);
        w.seq([zone], |w, zone| {
            w.str(zone);
            // RGWZone
            w.framed(8, 1, |w| {
                w.str(DEFAULT);
                names(w, &[]);
                w.bool(false);
                w.bool(false);
                w.u32(SHARDS);
                w.str(zone);
                w.bool(false);
                w.str("");
                w.bool(true);
                names(w, &[]);
                w.str("");
                names(w, &FEATURES);
            });
        });
        w.seq([PLACEMENT], |w, name| {
            w.str(name);
            // RGWZoneGroupPlacementTarget
            w.framed(3, 1, |w| {
                w.str(name);
                names(w, &[]);
                names(w, &[]);
                w.u32(0);
            });
        });
        w.str(PLACEMENT);
        names(w, &[]);
        names(w, &[]);
        named(w, id);
        w.str("");
        w.framed(1, 1, |w| w.u32(0)); // policies of synchronization
        names(w, &FEATURES);
    });
    w.finish()
}

fn uuid(random: [u8; 16]) -> String {
    types::Uuid::from_random(random).to_string()
}

/// Makes the zone and zone group `default`, where the cluster has none.
///
/// # Errors
/// Of RADOS.
pub async fn make_default<O: Objects>(objects: &O) -> Result<()> {
    let root = Pool { name: ".rgw.root".into(), ns: String::new() };
    if objects.pool_id(&root).is_none() {
        let made = objects.make_pool(&root, PoolUse::Meta).await;
        made.map_err(failed("making the pool .rgw.root"))?;
    }
    let there = async |name: &str| -> Result<bool> {
        let at = Place::new(&root, name);
        match objects.operate(&at, Vector::read().step(Step::Stat)).await {
            Ok(_) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(errno) => Err(failed("looking for the zone")(errno)),
        }
    };
    if there("zone_names.default").await? || there("default.realm").await? {
        return Ok(());
    }
    let mut random = [[0; 16]; 2];
    random.iter_mut().for_each(|r| objects.random(r));
    let [zone, group] = random.map(uuid);
    let write = async |name: String, data: Bytes| -> Result<()> {
        let mut tag = [0; 12];
        objects.random(&mut tag);
        let tag = Bytes::from(rgw_proto::uri::to_hex(&tag));
        let set = version::SetOp { version: version::Version { ver: 1, tag } }.to_bytes();
        let vector = Vector::write()
            .step(Step::Create(true))
            .call("version", "set", set)
            .step(Step::WriteFull(data));
        match objects.operate(&Place::new(&root, name), vector).await {
            // Another first start came first.
            Ok(_) | Err(Errno::EXIST) => Ok(()),
            Err(errno) => Err(failed("writing the zone")(errno)),
        }
    };
    write(format!("zonegroup_info.{group}"), zone_group(&group, &zone)).await?;
    write("zonegroups_names.default".into(), NamedId(group).to_bytes()).await?;
    // Whose group has the name, whose zone it is: another first start may have come between, or died here.
    let zone = zone_of_group(objects, &root).await?;
    write(format!("zone_info.{zone}"), zone_params(&zone)).await?;
    // Last: who finds the name finds all of it.
    write("zone_names.default".into(), NamedId(zone).to_bytes()).await?;
    let meta = pool("meta", "");
    for (at, why) in [
        (meta, PoolUse::Meta),
        (pool("log", ""), PoolUse::Meta),
        (pool("control", ""), PoolUse::Meta),
    ] {
        if objects.pool_id(&at).is_none() {
            objects.make_pool(&at, why).await.map_err(failed("making the zone's pools"))?;
        }
    }
    Ok(())
}

/// The id of the zone in the zone group `default`.
async fn zone_of_group<O: Objects>(objects: &O, root: &Pool) -> Result<String> {
    let read = async |name: String| -> Result<Bytes> {
        let vector = Vector::read().step(Step::Read(0, 1 << 20));
        let answers = objects.operate(&Place::new(root, name), vector).await;
        answers.and_then(|a| a.data(0)).map_err(failed("reading the zone group"))
    };
    let id: NamedId = decoded(&read("zonegroups_names.default".into()).await?, "The zone group")?;
    let bytes = read(format!("zonegroup_info.{}", id.0)).await?;
    let group = ZoneGroup::decode(&mut Reader::shared(&bytes));
    let group = group.map_err(|_| garbled("The zone group"))?;
    group.zones.into_iter().next().ok_or_else(|| garbled("The zone group, which has no zone,"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::ZoneParams;

    /// Byte for byte what radosgw-admin 20.2.4 makes.
    #[test]
    fn what_is_made_is_stocks() {
        let text = include_str!("../testdata/default-zone.txt");
        let mut lines = text.lines().filter(|line| !line.starts_with('#'));
        let mut next = || rgw_proto::uri::from_hex(lines.next().unwrap()).unwrap();
        let (zone, group) = (next(), next());
        let (z, g) =
            ("3a253e9d-2ca1-4cd9-b600-5dc37617e812", "f979ca3f-c615-47b3-9b10-e88a29b1ef19");
        assert_eq!(zone_params(z)[..], zone[..]);
        assert_eq!(zone_group(g, z)[..], group[..]);
    }

    #[test]
    fn what_is_made_is_read() {
        let bytes = zone_params("Z");
        let zone = ZoneParams::decode(&mut Reader::shared(&bytes)).unwrap();
        assert_eq!((zone.id.as_str(), zone.name.as_str()), ("Z", "default"));
        assert_eq!(zone.lifecycle, pool("log", "lc"));
        assert_eq!(
            zone.placements[PLACEMENT].data_of("").unwrap().name,
            "default.rgw.buckets.data"
        );
        let bytes = zone_group("G", "Z");
        let group = ZoneGroup::decode(&mut Reader::shared(&bytes)).unwrap();
        assert_eq!((group.id.as_str(), group.zones.as_slice()), ("G", &["Z".to_owned()][..]));
        assert_eq!(group.default_placement, PLACEMENT);
    }
}
