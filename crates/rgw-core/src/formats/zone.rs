//! Zones and zone groups: where everything is.

use std::collections::BTreeMap;

use types::{DecodeError, Denc, Reader};

use super::{Opaque, Pool};

impl Pool {
    /// Reads `POOL[:NAMESPACE]`.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let (name, ns) = text.split_once(':').unwrap_or((text, ""));
        Self { name: name.into(), ns: ns.into() }
    }
}

/// Where buckets of a placement are: `RGWZonePlacementInfo`.
///
/// Wire: `ENCODE_START(8, 1)`; v6 added the storage classes. Source: `rgw_zone_types.h`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placement {
    /// Of indexes.
    pub index: Pool,
    /// Of data in the class `STANDARD`.
    pub data: Pool,
    /// Of uploads' parts lists, which need omap.
    pub extra: Pool,
    /// Data pools of storage classes that have one.
    pub classes: BTreeMap<String, Option<Pool>>,
    /// Whether new buckets get no index.
    pub is_indexless: bool,
}

impl Placement {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("RGWZonePlacementInfo", 8, |r, v| {
            let (index, data) = (Pool::parse(&r.string()?), Pool::parse(&r.string()?));
            let extra = if v >= 4 { Pool::parse(&r.string()?) } else { Pool::default() };
            let is_indexless = v >= 5 && r.u32()? == 1;
            let mut classes = BTreeMap::new();
            if v >= 6 {
                r.string()?; // compression of the class STANDARD
            }
            if v >= 7 {
                classes = r.framed("RGWZoneStorageClasses", 1, |r, _| {
                    let pairs = r.seq(|r| {
                        let name = r.string()?;
                        let pool =
                            r.framed("RGWZoneStorageClass", 1, |r, _| Option::<Pool>::decode(r))?;
                        Ok((name, pool))
                    })?;
                    Ok(pairs.into_iter().collect())
                })?;
            }
            Ok(Self { index, data, extra, classes, is_indexless })
        })
    }

    /// The data pool of a storage class; empty stands for `STANDARD`. `None` where the placement has no such class.
    #[must_use]
    pub fn data_of(&self, class: &str) -> Option<&Pool> {
        match self.classes.get(class) {
            Some(Some(pool)) => Some(pool),
            Some(None) => Some(&self.data),
            None if class.is_empty() || class == "STANDARD" => Some(&self.data),
            None => None,
        }
    }
}

/// A zone's pools: `RGWZoneParams`, of which only this is read.
///
/// Wire: `ENCODE_START(18, 1)`. Source: `rgw_zone.h`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ZoneParams {
    /// Entry points and instances of buckets.
    pub domain_root: Pool,
    /// Objects that gateways watch.
    pub control: Pool,
    /// Tails to delete.
    pub gc: Pool,
    /// Users by access key, by email address, by Swift name, by id.
    pub users: UserPools,
    /// The zone's id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// By name.
    pub placements: BTreeMap<String, Placement>,
    /// Records of what users did.
    pub usage: Pool,
    /// Buckets with lifecycle rules.
    pub lifecycle: Pool,
    /// Of identities: accounts, groups, roles, providers, topics.
    pub iam: IamPools,
    /// Of logs and queues.
    pub logs: LogPools,
}

/// Pools of identities and of what belongs to accounts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IamPools {
    /// Accounts, and lists of their buckets, users, groups and roles.
    pub accounts: Pool,
    /// Groups of accounts, and who is in them.
    pub groups: Pool,
    /// Roles, by id and by name.
    pub roles: Pool,
    /// Identity providers, by URL.
    pub oidc: Pool,
    /// Topics of notifications.
    pub topics: Pool,
}

/// Pools of logs and queues.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogPools {
    /// What gateways log.
    pub log: Pool,
    /// Intents, of releases long gone.
    pub intent: Pool,
    /// Buckets to be resharded.
    pub reshard: Pool,
    /// Second factors.
    pub otp: Pool,
    /// Queues of notifications.
    pub notif: Pool,
    /// Objects to be restored.
    pub restore: Pool,
    /// Objects found to be the same.
    pub dedup: Pool,
    /// Logs of buckets.
    pub bucket_logging: Pool,
}

impl LogPools {
    /// What releases that wrote less take for them.
    fn of_name(zone: &str) -> (IamPools, Self) {
        let pool =
            |name: &str, ns: &str| Pool { name: format!("{zone}.rgw.{name}"), ns: ns.into() };
        let iam = IamPools {
            accounts: pool("meta", "accounts"),
            groups: pool("meta", "groups"),
            roles: pool("meta", "roles"),
            oidc: pool("meta", "oidc"),
            topics: pool("meta", "topics"),
        };
        let logs = Self {
            log: pool("log", ""),
            intent: pool("log", "intent"),
            reshard: pool("log", "reshard"),
            otp: pool("otp", ""),
            notif: pool("log", "notif"),
            restore: pool("log", "restore"),
            dedup: pool("dedup", ""),
            bucket_logging: pool("log", "logging"),
        };
        (iam, logs)
    }
}

/// Pools of users.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserPools {
    /// By access key.
    pub keys: Pool,
    /// By email address.
    pub email: Pool,
    /// By Swift name.
    pub swift: Pool,
    /// By id.
    pub uid: Pool,
}

impl ZoneParams {
    /// Reads it.
    ///
    /// # Errors
    /// Where the bytes are none.
    pub fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("RGWZoneParams", 18, |r, v| {
            r.require(v >= 9, "zones are read from version 9 on")?;
            let (domain_root, control, gc) = (Pool::decode(r)?, Pool::decode(r)?, Pool::decode(r)?);
            let (log, intent, usage) = (Pool::decode(r)?, Pool::decode(r)?, Pool::decode(r)?);
            let (keys, email, swift, uid) =
                (Pool::decode(r)?, Pool::decode(r)?, Pool::decode(r)?, Pool::decode(r)?);
            let users = UserPools { keys, email, swift, uid };
            let (id, name) =
                r.framed("RGWSystemMetaObj", 1, |r, _| Ok((r.string()?, r.string()?)))?;
            Opaque::decode(r)?; // the key that other zones use
            let placements = r.seq(|r| Ok((r.string()?, Placement::decode(r)?)))?;
            let placements = placements.into_iter().collect();
            let _metadata_heap = Pool::decode(r)?;
            let (_realm, lifecycle) = (r.string()?, Pool::decode(r)?);
            let (mut iam, mut logs) = LogPools::of_name(&name);
            (logs.log, logs.intent) = (log, intent);
            if v >= 14 {
                let _tier: BTreeMap<String, String> = Denc::decode(r)?;
                (iam.roles, logs.reshard, logs.otp) =
                    (Pool::decode(r)?, Pool::decode(r)?, Pool::decode(r)?);
                Opaque::decode(r)?; // the tier's settings
                (iam.oidc, logs.notif) = (Pool::decode(r)?, Pool::decode(r)?);
            }
            if v >= 18 {
                (iam.topics, iam.accounts) = (Pool::decode(r)?, Pool::decode(r)?);
                // Each release added one behind; 20.2 has all.
                for pool in
                    [&mut iam.groups, &mut logs.restore, &mut logs.dedup, &mut logs.bucket_logging]
                {
                    if r.left() > 0 {
                        *pool = Pool::decode(r)?;
                    }
                }
            }
            Ok(Self {
                domain_root,
                control,
                gc,
                users,
                id,
                name,
                placements,
                usage,
                lifecycle,
                iam,
                logs,
            })
        })
    }
}

/// A zone group: `RGWZoneGroup`, of which only this is read.
///
/// Wire: `ENCODE_START(6, 1)`. Source: `rgw_zone_types.h`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ZoneGroup {
    /// Its id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Its name in location constraints.
    pub api_name: String,
    /// Ids of its zones.
    pub zones: Vec<String>,
    /// Names of placements that buckets may ask for.
    pub placements: Vec<String>,
    /// `PLACEMENT[/CLASS]`.
    pub default_placement: String,
    /// Names by which buckets are subdomains.
    pub hostnames: Vec<String>,
    /// Names by which buckets are subdomains that are websites.
    pub website_names: Vec<String>,
    /// What is enabled: `notification_v2`, `resharding`.
    pub features: Vec<String>,
}

impl ZoneGroup {
    /// Reads it.
    ///
    /// # Errors
    /// Where the bytes are none.
    pub fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("RGWZoneGroup", 6, |r, v| {
            let (name, api_name, _is_master) = (r.string()?, r.string()?, r.bool()?);
            let _endpoints: Vec<String> = Denc::decode(r)?;
            r.string()?; // the master zone
            let zones = r.seq(|r| {
                let id = r.string()?;
                Opaque::decode(r)?;
                Ok(id)
            })?;
            let placements = r.seq(|r| {
                let name = r.string()?;
                Opaque::decode(r)?;
                Ok(name)
            })?;
            let default_placement = r.string()?;
            let hostnames = if v >= 2 { Denc::decode(r)? } else { Vec::new() };
            let (mut id, mut website_names) = (String::new(), Vec::new());
            if v >= 3 {
                website_names = Denc::decode(r)?;
                id = r.framed("RGWSystemMetaObj", 1, |r, _| r.string())?;
            }
            if v >= 4 {
                r.string()?; // the realm
            }
            if v >= 5 {
                Opaque::decode(r)?; // how zones synchronize
            }
            let features = if v >= 6 { Denc::decode(r)? } else { Vec::new() };
            Ok(Self {
                id,
                name,
                api_name,
                zones,
                placements,
                default_placement,
                hostnames,
                website_names,
                features,
            })
        })
    }
}
