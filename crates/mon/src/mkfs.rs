//! A cluster's first state.

use std::collections::BTreeMap;

use auth::{CryptoKey, KeyServer, Keyring};
use bytes::Bytes;
use denc::Denc;
use maps::{FsMap, MgrMap, MonMap, OsdMap};
use types::{EntityKind, EntityName, Epoch, UTime, Uuid};

use crate::{ClusterLog, ClusterState, ConfigDb, OsdHistory};

/// The release whose map forms and rules a new cluster requires of its OSDs.
pub const REQUIRE_OSD_RELEASE: u8 = 18;
/// The first global id.
pub(crate) const FIRST_GLOBAL_ID: u64 = 4100;

/// What a cluster begins with.
#[derive(Clone, Debug, Default)]
pub struct Mkfs {
    /// The cluster; random.
    pub fsid: Uuid,
    /// When.
    pub now: UTime,
    /// The first monitors.
    pub monmap: MonMap,
    /// Keys to file, with their caps: `mon.`, `client.admin`, `osd.0`, ...
    pub keyring: Keyring,
    /// Central settings: section, option, value.
    pub config: Vec<(String, String, String)>,
    /// The type that replicas are spread over by the first rule: 1 hosts, 0 OSDs.
    pub chooseleaf_kind: u16,
}

/// Caps that an entity gets when its keyring names none.
pub(crate) fn default_caps(name: &EntityName) -> BTreeMap<String, String> {
    let caps: &[(&str, &str)] = match (name.kind, name.id.as_str()) {
        (EntityKind::MON, _) => &[("mon", "allow *")],
        (EntityKind::CLIENT, "admin") => {
            &[("mds", "allow *"), ("mgr", "allow *"), ("mon", "allow *"), ("osd", "allow *")]
        }
        (EntityKind::OSD, _) => {
            &[("mgr", "allow profile osd"), ("mon", "allow profile osd"), ("osd", "allow *")]
        }
        (EntityKind::MDS, _) => &[
            ("mds", "allow"),
            ("mgr", "allow profile mds"),
            ("mon", "allow profile mds"),
            ("osd", "allow rw tag cephfs *=*"),
        ],
        (EntityKind::MGR, _) => {
            &[("mds", "allow *"), ("mon", "allow profile mgr"), ("osd", "allow *")]
        }
        _ => &[],
    };
    caps.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
}

impl Mkfs {
    /// The first state, as `quorum::create` stores it. Every monitor of a new cluster is
    /// given the same.
    #[must_use]
    pub fn state(&self) -> ClusterState {
        let now = self.now;
        let mut monmap = self.monmap.clone();
        monmap.fsid = self.fsid;
        monmap.epoch = Epoch(monmap.epoch.0.max(1));
        if monmap.created.is_zero() {
            monmap.created = now;
            monmap.last_changed = now;
        }
        let crush = crush::CrushMap::build_initial(self.chooseleaf_kind);
        let mut osdmap = OsdMap::new(self.fsid, Epoch(1), now, REQUIRE_OSD_RELEASE);
        osdmap.crush = maps::CrushPart::new(crush);
        osdmap.erasure_code_profiles = std::sync::Arc::new(BTreeMap::from([(
            "default".to_owned(),
            [("k", "2"), ("m", "2"), ("plugin", "isa"), ("technique", "reed_sol_van")]
                .into_iter()
                .map(|(k, v)| (k.to_owned(), v.to_owned()))
                .collect(),
        )]));
        let mut keys = KeyServer::default();
        for (name, entity) in &self.keyring.entities {
            let caps =
                if entity.caps.is_empty() { default_caps(name) } else { entity.caps.clone() };
            keys.set(name.clone(), entity.key.clone(), caps);
        }
        let mut config = ConfigDb::default();
        for (who, name, value) in &self.config {
            config.set(who, name, Some(value));
        }
        ClusterState {
            fsid: self.fsid,
            created: now,
            monmap,
            osd_history: OsdHistory::begin(&osdmap),
            osdmap,
            mgrmap: MgrMap { epoch: Epoch(1), ..MgrMap::default() },
            fsmap: FsMap::new(Epoch(1), now),
            servicemap: maps::ServiceMap { epoch: Epoch(1), ..maps::ServiceMap::default() },
            config,
            config_key: BTreeMap::new(),
            classes: crate::classes::Classes::default(),
            auth: keys,
            log: ClusterLog::default(),
            osd_metadata: BTreeMap::new(),
            mon_metadata: BTreeMap::new(),
            mds_metadata: BTreeMap::new(),
            mgr_metadata: BTreeMap::new(),
            health_mutes: BTreeMap::new(),
            global_ids_below: FIRST_GLOBAL_ID,
            answered: std::collections::VecDeque::new(),
        }
    }

    /// The state of monitors that are made anew for OSDs which are there: with their maps. Numbers of
    /// clients begin far above those that the lost monitors gave, for OSDs know requests by them.
    #[must_use]
    pub fn state_of_osds(&self, newest: OsdMap, history: OsdHistory) -> ClusterState {
        // A second makes room for 65,536 clients, more than monitors let in.
        let ids = FIRST_GLOBAL_ID + (u64::from(self.now.sec) << 16);
        let created = newest.created;
        ClusterState {
            created,
            osdmap: newest,
            osd_history: history,
            global_ids_below: ids,
            ..self.state()
        }
    }

    /// [`Mkfs::state`] as bytes.
    #[must_use]
    pub fn to_state_bytes(&self) -> Bytes {
        self.state().to_bytes()
    }

    /// Adds a key with an entity's usual caps.
    pub fn add_key(&mut self, name: EntityName, key: CryptoKey) {
        let caps = default_caps(&name);
        let entity = auth::EntityAuth { key, caps, ..Default::default() };
        self.keyring.entities.insert(name, entity);
    }
}
