//! The monitors' map.

use std::collections::{BTreeMap, BTreeSet};

use types::{AddrVec, DecodeError, Denc, EntityAddr, Epoch, Features, Reader, UTime, Uuid, Writer};

use crate::wire::record;

record! {
    /// Features of the monitors as a quorum. The peer's `mon_feature_t`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    MonFeatures "mon_feature_t", compat 1, known 1, |f| 1; {
        /// The bits.
        bits: u64,
    }
}

impl MonFeatures {
    /// kraken, luminous, mimic, osdmap_prune, nautilus, octopus, pacific, elector_pinging:
    /// what a fresh 16.2.15 cluster has.
    pub const PACIFIC: Self = Self { bits: 0xff };
    /// What a fresh 18.2.7 cluster has.
    pub const REEF: Self = Self { bits: 0x3ff };
    /// What a fresh 20.2.4 cluster has, ciphers aside (bit 31) and gateways (bit 32).
    pub const TENTACLE: Self = Self { bits: 0xfff };

    /// Each bit's name, as `ceph mon feature ls` prints it.
    pub const NAMES: &'static [(u32, &'static str)] = &[
        (0, "kraken"),
        (1, "luminous"),
        (2, "mimic"),
        (3, "osdmap-prune"),
        (4, "nautilus"),
        (5, "octopus"),
        (6, "pacific"),
        (7, "elector-pinging"),
        (8, "quincy"),
        (9, "reef"),
        (10, "squid"),
        (11, "tentacle"),
        (31, "cephx_auth_aes256k"),
        (32, "nvmeof_beacon_diff"),
    ];
}

/// One monitor. The peer's `mon_info_t`.
///
/// Wire: compat 1, v5, or v6 with [`Self::time_added`]; v2 with one legacy address without
/// NAUTILUS.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MonInfo {
    /// Its name.
    pub name: String,
    /// Where it listens.
    pub addrs: AddrVec,
    /// Lower is asked first.
    pub priority: u16,
    /// Chance to be asked among those of the same priority.
    pub weight: u16,
    /// Where it stands.
    pub crush_loc: BTreeMap<String, String>,
    /// When it joined; `None` from releases before 20.2.4.
    pub time_added: Option<UTime>,
}

impl Denc for MonInfo {
    fn encode(&self, w: &mut Writer) {
        if !w.has(Features::SERVER_NAUTILUS) {
            return w.framed(2, 1, |w| {
                w.str(&self.name);
                self.addrs.legacy().encode(w);
                w.u16(self.priority);
            });
        }
        w.framed(if self.time_added.is_some() { 6 } else { 5 }, 1, |w| {
            w.str(&self.name);
            self.addrs.encode(w);
            w.u16(self.priority);
            w.u16(self.weight);
            self.crush_loc.encode(w);
            if let Some(added) = self.time_added {
                added.encode(w);
            }
        });
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("mon_info_t", 6, |r, v| {
            Ok(Self {
                name: r.string()?,
                addrs: Denc::decode(r)?, // reads single addresses too
                priority: if v >= 2 { r.u16()? } else { 0 },
                weight: if v >= 4 { r.u16()? } else { 0 },
                crush_loc: if v >= 5 { Denc::decode(r)? } else { BTreeMap::new() },
                time_added: if v >= 6 { Some(Denc::decode(r)?) } else { None },
            })
        })
    }
}

/// Which cephx ciphers the cluster uses; in MonMaps of release 20.2.4. Numbers are key
/// types: 1 aes, 2 aes256k.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MonMapAuth {
    /// Raised to make everybody drop tickets.
    pub epoch: u32,
    /// Type of new service keys.
    pub service_cipher: i32,
    /// Key types that may authenticate.
    pub allowed_ciphers: BTreeSet<i32>,
    /// Type of newly created keys.
    pub preferred_cipher: i32,
}

impl Default for MonMapAuth {
    /// What readers assume of a map without it.
    fn default() -> Self {
        Self {
            epoch: 0,
            service_cipher: 1,
            allowed_ciphers: BTreeSet::from([1, 2]),
            preferred_cipher: 1,
        }
    }
}

/// The monitors, their names, ranks and addresses. The peer's `MonMap`.
///
/// Wire: compat 6, v10 with [`Self::auth`], else v9; v5/3 without NAUTILUS. Read from v5.
/// Source: `MonMap::encode`; corpus, live 16.2.15 and 20.2.4.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MonMap {
    /// The cluster.
    pub fsid: Uuid,
    /// Version of this map.
    pub epoch: Epoch,
    /// When it changed.
    pub last_changed: UTime,
    /// When the cluster was made.
    pub created: UTime,
    /// Features every monitor must have.
    pub persistent_features: MonFeatures,
    /// Features every monitor has.
    pub optional_features: MonFeatures,
    /// The monitors by name.
    pub mons: BTreeMap<String, MonInfo>,
    /// Names by rank.
    pub ranks: Vec<String>,
    /// The oldest release a monitor may be.
    pub min_mon_release: u8,
    /// Ranks removed since the last election.
    pub removed_ranks: BTreeSet<u32>,
    /// How leaders are elected: 1 classic, 2 disallow, 3 connectivity.
    pub strategy: u8,
    /// Names that may not lead.
    pub disallowed_leaders: BTreeSet<String>,
    /// Stretched over two sites.
    pub stretch_mode: bool,
    /// The third site's monitor.
    pub tiebreaker: String,
    /// Monitors marked down in stretch mode.
    pub stretch_marked_down: BTreeSet<String>,
    /// Ciphers; `None` in maps of releases before 20.2.4, which means
    /// [`MonMapAuth::default`].
    pub auth: Option<MonMapAuth>,
}

impl Default for MonMap {
    fn default() -> Self {
        Self {
            fsid: Uuid::default(),
            epoch: Epoch(0),
            last_changed: UTime::ZERO,
            created: UTime::ZERO,
            persistent_features: MonFeatures::default(),
            optional_features: MonFeatures::default(),
            mons: BTreeMap::new(),
            ranks: Vec::new(),
            min_mon_release: 0,
            removed_ranks: BTreeSet::new(),
            strategy: 1,
            disallowed_leaders: BTreeSet::new(),
            stretch_mode: false,
            tiebreaker: String::new(),
            stretch_marked_down: BTreeSet::new(),
            auth: None,
        }
    }
}

impl MonMap {
    /// A first map of a cluster with these monitors, ranked by address as the peer's
    /// `monmaptool` does.
    #[must_use]
    pub fn new(fsid: Uuid, now: UTime, min_mon_release: u8, mons: Vec<MonInfo>) -> Self {
        let mut map = Self {
            fsid,
            epoch: Epoch(1),
            last_changed: now,
            created: now,
            persistent_features: match min_mon_release {
                20.. => MonFeatures::TENTACLE,
                18..=19 => MonFeatures::REEF,
                _ => MonFeatures::PACIFIC,
            },
            min_mon_release,
            ..Self::default()
        };
        for mon in mons {
            map.mons.insert(mon.name.clone(), mon);
        }
        map.calc_ranks();
        map
    }

    /// Ranks all monitors by address.
    pub fn calc_ranks(&mut self) {
        let mut by_addr: Vec<_> = self.mons.values().map(|m| (&m.addrs, &m.name)).collect();
        by_addr.sort();
        self.ranks = by_addr.into_iter().map(|(_, name)| name.clone()).collect();
    }

    /// The monitor with this rank.
    #[must_use]
    pub fn by_rank(&self, rank: usize) -> Option<&MonInfo> {
        self.mons.get(self.ranks.get(rank)?)
    }

    /// The rank of the monitor with this name.
    #[must_use]
    pub fn rank_of(&self, name: &str) -> Option<usize> {
        self.ranks.iter().position(|n| n == name)
    }

    /// The rank of the monitor that listens on `addr`.
    #[must_use]
    pub fn rank_at(&self, addr: &EntityAddr) -> Option<usize> {
        self.ranks.iter().position(|name| {
            self.mons.get(name).is_some_and(|m| m.addrs.0.iter().any(|a| a.same_instance(addr)))
        })
    }

    /// Monitors in order of rank.
    pub fn iter(&self) -> impl Iterator<Item = (usize, &MonInfo)> {
        self.ranks.iter().enumerate().filter_map(|(i, name)| Some((i, self.mons.get(name)?)))
    }

    /// How many make a majority.
    #[must_use]
    pub fn quorum_min(&self) -> usize {
        self.mons.len() / 2 + 1
    }

    fn encode_legacy(&self, w: &mut Writer) {
        w.framed(5, 3, |w| {
            self.fsid.encode(w);
            self.epoch.encode(w);
            w.seq(&self.mons, |w, (name, mon)| {
                w.str(name);
                mon.addrs.legacy().encode(w);
            });
            self.last_changed.encode(w);
            self.created.encode(w);
            self.persistent_features.encode(w);
            self.optional_features.encode(w);
            self.mons.encode(w);
        });
    }
}

impl Denc for MonMap {
    fn encode(&self, w: &mut Writer) {
        if !w.has(Features::SERVER_NAUTILUS) {
            return self.encode_legacy(w);
        }
        w.framed(if self.auth.is_some() { 10 } else { 9 }, 6, |w| {
            self.fsid.encode(w);
            self.epoch.encode(w);
            self.last_changed.encode(w);
            self.created.encode(w);
            self.persistent_features.encode(w);
            self.optional_features.encode(w);
            self.mons.encode(w);
            self.ranks.encode(w);
            w.u8(self.min_mon_release);
            self.removed_ranks.encode(w);
            w.u8(self.strategy);
            self.disallowed_leaders.encode(w);
            w.bool(self.stretch_mode);
            w.str(&self.tiebreaker);
            self.stretch_marked_down.encode(w);
            if let Some(auth) = &self.auth {
                w.u32(auth.epoch);
                w.i32(auth.service_cipher);
                auth.allowed_ciphers.encode(w);
                w.i32(auth.preferred_cipher);
            }
        });
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("MonMap", 10, |r, v| {
            r.require(v >= 5, "monitor maps are read from version 5 on")?;
            let mut m = Self { fsid: Denc::decode(r)?, epoch: Denc::decode(r)?, ..Self::default() };
            if v < 6 {
                let _legacy: BTreeMap<String, EntityAddr> = Denc::decode(r)?;
            }
            m.last_changed = Denc::decode(r)?;
            m.created = Denc::decode(r)?;
            m.persistent_features = Denc::decode(r)?;
            m.optional_features = Denc::decode(r)?;
            m.mons = Denc::decode(r)?;
            if v < 6 {
                m.calc_ranks();
            } else {
                m.ranks = Denc::decode(r)?;
            }
            if v >= 7 {
                m.min_mon_release = r.u8()?;
            }
            if v >= 8 {
                m.removed_ranks = Denc::decode(r)?;
                m.strategy = r.u8()?;
                m.disallowed_leaders = Denc::decode(r)?;
            }
            if v >= 9 {
                m.stretch_mode = r.bool()?;
                m.tiebreaker = r.string()?;
                m.stretch_marked_down = Denc::decode(r)?;
            }
            if v >= 10 {
                m.auth = Some(MonMapAuth {
                    epoch: r.u32()?,
                    service_cipher: r.i32()?,
                    allowed_ciphers: Denc::decode(r)?,
                    preferred_cipher: r.i32()?,
                });
            }
            Ok(m)
        })
    }
}
