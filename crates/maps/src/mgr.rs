//! The managers' map and the services' map.

use std::collections::{BTreeMap, BTreeSet};

use types::{AddrVec, DecodeError, Denc, Epoch, Features, Reader, UTime, Writer};

use crate::wire::{record, release};

record! {
    /// An option of a manager module. The peer's `MgrMap::ModuleOption`.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    ModuleOption "MgrMap::ModuleOption", compat 1, known 1, |f| 1; {
        /// Its name.
        name: String,
        /// The kind of its value.
        kind: u8,
        /// 0 basic, 1 advanced, 2 developer.
        level: u8,
        /// Flags.
        flags: u32,
        /// Its value unless set.
        default_value: String,
        /// The least value.
        min: String,
        /// The greatest value.
        max: String,
        /// The values allowed.
        enum_allowed: BTreeSet<String>,
        /// A line about it.
        desc: String,
        /// A text about it.
        long_desc: String,
        /// Tags.
        tags: BTreeSet<String>,
        /// Related options.
        see_also: BTreeSet<String>,
    }
}

record! {
    /// A manager module. The peer's `MgrMap::ModuleInfo`.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    ModuleInfo "MgrMap::ModuleInfo", compat 1, known 2, |f| 2; {
        /// Its name.
        name: String,
        /// Whether it can run.
        can_run: bool,
        /// Why it cannot.
        error: String,
        /// Its options.
        2 => options: BTreeMap<String, ModuleOption>,
    }
}

record! {
    /// A manager that waits. The peer's `MgrMap::StandbyInfo`.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    MgrStandby "MgrMap::StandbyInfo", compat 1, known 4, |f| 4; {
        /// Its session.
        gid: u64,
        /// Its name.
        name: String,
        /// Modules by name alone, as before v3.
        2 => old_modules: BTreeSet<String>,
        /// Modules.
        3 => modules: Vec<ModuleInfo>,
        /// What it advertises.
        4 => features: u64,
    }
}

/// Which manager is active. The peer's `MgrMap`.
///
/// Wire: compat 6; v14 for peers of release 20, v13 for 18, else v12. Read from v6.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MgrMap {
    /// Version of this map.
    pub epoch: Epoch,
    /// Where the active manager listens; blank when there is none.
    pub active_addrs: AddrVec,
    /// Its session; 0 for none.
    pub active_gid: u64,
    /// Whether it serves.
    pub available: bool,
    /// Its name.
    pub active_name: String,
    /// Managers that wait, by session.
    pub standbys: BTreeMap<u64, MgrStandby>,
    /// Modules enabled.
    pub modules: BTreeSet<String>,
    /// What modules offer, by name: URLs.
    pub services: BTreeMap<String, String>,
    /// Modules there are.
    pub available_modules: Vec<ModuleInfo>,
    /// When the active manager changed.
    pub active_change: UTime,
    /// Modules that cannot be disabled, by release.
    pub always_on_modules: BTreeMap<u32, BTreeSet<String>>,
    /// What the active manager advertises.
    pub active_mgr_features: u64,
    /// OSD map epoch in which its predecessor was shut out.
    pub last_failure_osd_epoch: Epoch,
    /// Addresses of its clients, shut out with it.
    pub clients_addrs: Vec<AddrVec>,
    /// Their names.
    pub clients_names: Vec<String>,
    /// Flags (v13).
    pub flags: u64,
    /// Always-on modules disabled by force (v14).
    pub force_disabled_modules: BTreeSet<String>,
}

impl Denc for MgrMap {
    fn encode(&self, w: &mut Writer) {
        let v = match release(w.features()) {
            20.. => 14,
            18..=19 => 13,
            _ => 12,
        };
        w.framed(v, 6, |w| {
            self.epoch.encode(w);
            if w.has(Features::SERVER_NAUTILUS) {
                self.active_addrs.encode(w);
            } else {
                self.active_addrs.legacy().encode(w);
            }
            w.u64(self.active_gid);
            w.bool(self.available);
            w.str(&self.active_name);
            self.standbys.encode(w);
            self.modules.encode(w);
            self.services.encode(w);
            self.available_modules.encode(w);
            self.active_change.encode(w);
            self.always_on_modules.encode(w);
            w.u64(self.active_mgr_features);
            self.last_failure_osd_epoch.encode(w);
            self.clients_addrs.encode(w);
            self.clients_names.encode(w);
            if v >= 13 {
                w.u64(self.flags);
            }
            if v >= 14 {
                self.force_disabled_modules.encode(w);
            }
        });
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("MgrMap", 14, |r, v| {
            r.require(v >= 6, "manager maps are read from version 6 on")?;
            let mut m = Self {
                epoch: Denc::decode(r)?,
                active_addrs: Denc::decode(r)?,
                active_gid: r.u64()?,
                available: r.bool()?,
                active_name: r.string()?,
                standbys: Denc::decode(r)?,
                modules: Denc::decode(r)?,
                services: Denc::decode(r)?,
                available_modules: Denc::decode(r)?,
                ..Self::default()
            };
            if v >= 7 {
                m.active_change = Denc::decode(r)?;
            }
            if v >= 8 {
                m.always_on_modules = Denc::decode(r)?;
            }
            if v >= 9 {
                m.active_mgr_features = r.u64()?;
            }
            if v >= 10 {
                m.last_failure_osd_epoch = Denc::decode(r)?;
            }
            if v >= 11 {
                m.clients_addrs = Denc::decode(r)?;
            }
            if v >= 12 {
                m.clients_names = Denc::decode(r)?;
            }
            if v >= 13 {
                m.flags = r.u64()?;
            }
            if v >= 14 {
                m.force_disabled_modules = Denc::decode(r)?;
            }
            Ok(m)
        })
    }
}

/// One daemon of a service. The peer's `ServiceMap::Daemon`, 2/1.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServiceDaemon {
    /// Its session.
    pub gid: u64,
    /// Its address.
    pub addr: types::EntityAddr,
    /// OSD map epoch at its start.
    pub start_epoch: Epoch,
    /// When it started.
    pub start_stamp: UTime,
    /// What it says of itself.
    pub metadata: BTreeMap<String, String>,
    /// Its task's progress (v2).
    pub task_status: BTreeMap<String, String>,
}

impl Denc for ServiceDaemon {
    fn encode(&self, w: &mut Writer) {
        w.framed(2, 1, |w| {
            w.u64(self.gid);
            self.addr.encode(w);
            self.start_epoch.encode(w);
            self.start_stamp.encode(w);
            self.metadata.encode(w);
            self.task_status.encode(w);
        });
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("ServiceMap::Daemon", 2, |r, v| {
            Ok(Self {
                gid: r.u64()?,
                addr: Denc::decode(r)?,
                start_epoch: Denc::decode(r)?,
                start_stamp: Denc::decode(r)?,
                metadata: Denc::decode(r)?,
                task_status: if v >= 2 { Denc::decode(r)? } else { BTreeMap::new() },
            })
        })
    }
}

record! {
    /// A service and its daemons. The peer's `ServiceMap::Service`.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    Service "ServiceMap::Service", compat 1, known 1, |f| 1; {
        /// The daemons by name.
        daemons: BTreeMap<String, ServiceDaemon>,
        /// A line about them.
        summary: String,
    }
}

record! {
    /// Daemons beyond the cluster's own: gateways, mirrors. The peer's `ServiceMap`.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    ServiceMap "ServiceMap", compat 1, known 1, |f| 1; {
        /// Version of this map.
        epoch: Epoch,
        /// When it changed.
        modified: UTime,
        /// Services by kind.
        services: BTreeMap<String, Service>,
    }
}
