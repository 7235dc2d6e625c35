//! Which manager is active: what beacons, silence and commands make of the manager map.
//!
//! ```text
//!            beacon                        beacon, nobody active
//!  (unknown) ──────▶ standby ─────────────────────────────▶ active, not available
//!                      │  ▲ the first by session takes over      │ its beacon says so
//!            silence   ▼  └──────────── silence, fail ◀── active, available
//!          forgotten                      the old one and its clients are blocklisted
//! ```
//! Where no manager process is registered the map names the leading monitor's own role, under a
//! number that no session has ([`is_registered`]).
//!
//! Source: the peer's `mon/MgrMonitor.cc`.

use std::collections::{BTreeMap, BTreeSet};

use maps::{Incremental, MgrMap, MgrStandby};
use messages::{LogPriority, MgrBeacon};
use types::{AddrKind, AddrVec, Epoch, UTime};

use crate::ClusterState;

/// Numbers below are of the monitors' own roles; sessions begin far above.
const SESSIONS_FROM: u64 = 1000;
/// Managers that may wait; more are not taken.
const STANDBYS_MAX: usize = 64;
/// Modules that cannot be turned off.
pub(crate) const ALWAYS_ON: [&str; 10] = [
    "balancer",
    "crash",
    "devicehealth",
    "orchestrator",
    "pg_autoscaler",
    "progress",
    "rbd_support",
    "status",
    "telemetry",
    "volumes",
];
/// Modules that are on until an operator turns them off.
const ON_AT_FIRST: [&str; 2] = ["iostat", "prometheus"];
/// Modules that are off until an operator turns them on.
const OFF_AT_FIRST: [&str; 1] = ["dashboard"];
/// Releases for which the map says what is always on.
const RELEASES: [u32; 3] = [18, 19, 20];

/// Modules that are built in, by name: those of the manager's process, and those that the monitors
/// run for it.
pub fn built_in() -> impl Iterator<Item = &'static str> {
    let all = ALWAYS_ON.into_iter().chain(ON_AT_FIRST).chain(OFF_AT_FIRST);
    BTreeSet::from_iter(all).into_iter()
}

/// Whether the active manager is a process of its own, and not the leading monitor's role.
#[must_use]
pub fn is_registered(map: &MgrMap) -> bool {
    map.active_gid >= SESSIONS_FROM
}

/// When managers were heard last; the leader's alone.
#[derive(Clone, Debug, Default)]
pub struct Watch {
    heard_ms: BTreeMap<u64, u64>,
}

/// The leading monitor's own role, which serves where no manager is registered.
#[derive(Clone, Debug, Default)]
pub(crate) struct OwnRole {
    /// The monitor's name.
    pub name: String,
    /// Its rank.
    pub rank: u32,
    /// Where the role listens; blank when it does not.
    pub addrs: AddrVec,
}

/// A change of the manager map in the making.
#[derive(Debug)]
pub(crate) struct Edit {
    pub map: MgrMap,
    own: OwnRole,
    now: UTime,
    is_dirty: bool,
    /// Who lost the role: to be blocklisted.
    fence: Vec<AddrVec>,
    /// Lines for the cluster's log.
    pub lines: Vec<(LogPriority, String)>,
}

impl Edit {
    pub fn new(map: &MgrMap, own: OwnRole, now: UTime) -> Self {
        let map = map.clone();
        Self { map, own, now, is_dirty: false, fence: Vec::new(), lines: Vec::new() }
    }

    pub fn is_dirty(&self) -> bool {
        self.is_dirty
    }

    fn say(&mut self, prio: LogPriority, text: String) {
        self.lines.push((prio, text));
    }

    /// Takes a manager's beacon, which its session has proven to be its own.
    pub fn take(&mut self, watch: &mut Watch, beacon: &MgrBeacon, now_ms: u64) {
        let (gid, name) = (beacon.gid, &beacon.name);
        if is_registered(&self.map) && self.map.active_name == *name && self.map.active_gid != gid {
            self.say(LogPriority::INFO, format!("Active manager daemon {name} restarted"));
            self.drop_active(watch);
            self.promote();
        }
        let same = |s: &&MgrStandby| s.name == *name && s.gid != gid;
        if let Some(old) = self.map.standbys.values().find(same).map(|s| s.gid) {
            self.say(LogPriority::DEBUG, format!("Standby manager daemon {name} restarted"));
            self.drop_standby(watch, old);
        }
        if self.map.active_gid == gid {
            watch.heard_ms.insert(gid, now_ms);
            return self.active_said(beacon);
        }
        let (features, modules) = (beacon.features, beacon.modules.clone());
        let old_modules = modules.iter().map(|m| m.name.clone()).collect();
        let standby = MgrStandby { gid, name: name.clone(), old_modules, modules, features };
        let known = self.map.standbys.get(&gid);
        if known.is_none() && self.map.standbys.len() >= STANDBYS_MAX {
            let why = format!("manager daemon {name} is not taken: {STANDBYS_MAX} wait already");
            return self.say(LogPriority::WARN, why);
        }
        watch.heard_ms.insert(gid, now_ms);
        if known != Some(&standby) {
            if known.is_none() {
                self.say(LogPriority::DEBUG, format!("Standby manager daemon {name} started"));
            }
            self.map.standbys.insert(gid, standby);
            self.is_dirty = true;
        }
        if !is_registered(&self.map) {
            self.promote();
        }
    }

    fn active_said(&mut self, beacon: &MgrBeacon) {
        let before = self.map.clone();
        let map = &mut self.map;
        map.active_addrs = beacon.addrs.clone();
        map.active_mgr_features = beacon.features;
        map.services = beacon.services.clone();
        map.clients_names = beacon.clients.iter().map(|(name, _)| name.clone()).collect();
        map.clients_addrs = beacon.clients.iter().map(|(_, addrs)| addrs.clone()).collect();
        map.available_modules = beacon.modules.clone();
        if beacon.available && !map.available {
            map.available = true;
            let line = format!("Manager daemon {} is now available", beacon.name);
            self.say(LogPriority::INFO, line);
        }
        self.is_dirty |= self.map != before;
    }

    /// Forgets who was silent for too long, and has another one take over.
    pub fn round(&mut self, watch: &mut Watch, now_ms: u64, grace_ms: u64) {
        let map = &self.map;
        let active = Some(map.active_gid).filter(|_| is_registered(map));
        let all: BTreeSet<u64> = map.standbys.keys().copied().chain(active).collect();
        watch.heard_ms.retain(|gid, _| all.contains(gid));
        let mut silent = Vec::new();
        for gid in all {
            // A new leader has heard nobody yet, and gives each a whole grace.
            let heard = *watch.heard_ms.entry(gid).or_insert(now_ms);
            if now_ms.saturating_sub(heard) > grace_ms {
                silent.push(gid);
            }
        }
        // Standbys first: a silent one is no replacement.
        for gid in silent.iter().filter(|gid| Some(**gid) != active) {
            self.drop_standby(watch, *gid);
        }
        if let Some(gid) = active.filter(|gid| silent.contains(gid)) {
            debug_assert_eq!(gid, self.map.active_gid);
            let name = self.map.active_name.clone();
            let next = self.map.standbys.first_key_value().map(|(_, s)| s.name.clone());
            let line = match next {
                Some(next) => format!(
                    "Manager daemon {name} is unresponsive, replacing it with standby daemon {next}"
                ),
                None => {
                    format!("Manager daemon {name} is unresponsive.  No standby daemons available.")
                }
            };
            self.say(LogPriority::INFO, line);
            self.drop_active(watch);
            self.promote();
        } else if active.is_none() && !self.map.standbys.is_empty() {
            self.promote();
        }
    }

    /// Has the active manager, or one by name or session, be replaced or forgotten. Returns the
    /// line for people.
    pub fn fail(&mut self, watch: &mut Watch, who: &str) -> String {
        let own = !is_registered(&self.map);
        if who.is_empty() && own {
            return "Currently no active mgr".to_owned();
        }
        let gid: Option<u64> = who.parse().ok();
        let is_active = who.is_empty()
            || gid == Some(self.map.active_gid)
            || (gid.is_none() && who == self.map.active_name);
        if is_active && !own {
            self.drop_active(watch);
            self.promote();
            return String::new();
        }
        let is_it = |s: &&MgrStandby| gid == Some(s.gid) || (gid.is_none() && s.name == who);
        match self.map.standbys.values().find(is_it).map(|s| s.gid) {
            Some(gid) => {
                self.drop_standby(watch, gid);
                String::new()
            }
            None => format!("Daemon not found '{who}', already failed?"),
        }
    }

    /// The leading monitor's role, where nobody is registered.
    pub fn serve_self(&mut self) {
        if is_registered(&self.map) {
            return;
        }
        let available = !self.own.addrs.is_blank();
        let map = &mut self.map;
        if map.active_addrs == self.own.addrs
            && map.available == available
            && (!available || map.active_name == self.own.name)
        {
            return;
        }
        map.active_addrs = self.own.addrs.clone();
        map.available = available;
        map.active_name = if available { self.own.name.clone() } else { String::new() };
        map.active_gid = if available { 1 + u64::from(self.own.rank) } else { 0 };
        map.active_change = self.now;
        map.active_mgr_features = if available { types::Features::REEF_WORD.0 } else { 0 };
        map.services.clear();
        map.clients_names.clear();
        map.clients_addrs.clear();
        self.is_dirty = true;
    }

    fn drop_active(&mut self, watch: &mut Watch) {
        let map = &mut self.map;
        watch.heard_ms.remove(&map.active_gid);
        self.fence.push(std::mem::take(&mut map.active_addrs));
        self.fence.append(&mut map.clients_addrs);
        map.clients_names.clear();
        map.services.clear();
        map.active_name.clear();
        (map.active_gid, map.available) = (0, false);
        map.active_change = self.now;
        self.is_dirty = true;
    }

    fn drop_standby(&mut self, watch: &mut Watch, gid: u64) {
        watch.heard_ms.remove(&gid);
        self.is_dirty |= self.map.standbys.remove(&gid).is_some();
    }

    /// The longest registered of those that wait becomes the active one; else this monitor serves.
    fn promote(&mut self) {
        let Some((gid, standby)) = self.map.standbys.pop_first() else { return self.serve_self() };
        self.say(LogPriority::INFO, format!("Activating manager daemon {}", standby.name));
        let map = &mut self.map;
        if map.available_modules.is_empty() {
            map.modules = ON_AT_FIRST.map(str::to_owned).into();
        }
        let always: BTreeSet<String> = ALWAYS_ON.map(str::to_owned).into();
        map.always_on_modules = RELEASES.map(|release| (release, always.clone())).into();
        map.active_gid = gid;
        map.active_name = standby.name;
        map.available_modules = standby.modules;
        map.active_mgr_features = standby.features;
        map.active_addrs = AddrVec::default();
        map.available = false;
        map.active_change = self.now;
        map.services.clear();
        self.is_dirty = true;
    }

    /// The OSD map's part: who lost the role is shut out for `blocked_s` seconds.
    pub fn osd_change(&self, state: &ClusterState, blocked_s: u64) -> Option<Incremental> {
        let mut inc = state.osd_change();
        let sec = u64::from(self.now.sec).saturating_add(blocked_s);
        let until = UTime { sec: u32::try_from(sec).unwrap_or(u32::MAX), ..self.now };
        let all = self.fence.iter().flat_map(|addrs| &addrs.0);
        for addr in all.filter(|addr| addr.sock.is_some()) {
            inc.new_blocklist.insert(addr.with_kind(AddrKind::ANY), until);
        }
        (!inc.new_blocklist.is_empty()).then_some(inc)
    }

    /// The map to commit; with the OSD map's part, if any, in `osd_epoch`.
    pub fn finish(mut self, osd_epoch: Option<Epoch>) -> MgrMap {
        if let Some(epoch) = osd_epoch {
            self.map.last_failure_osd_epoch = epoch;
        }
        self.map
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::EntityAddr;

    const GRACE_MS: u64 = 30_000;

    fn at(port: u16) -> AddrVec {
        let sock = std::net::SocketAddr::from(([127, 0, 0, 1], port));
        EntityAddr::msgr2(sock, u32::from(port)).into()
    }

    fn beacon(gid: u64, name: &str, available: bool) -> MgrBeacon {
        let clients = vec![("rbd_support".to_owned(), at(gid as u16 + 1))];
        let (name, addrs) = (name.to_owned(), at(gid as u16));
        MgrBeacon { gid, name, available, addrs, clients, ..MgrBeacon::default() }
    }

    /// A map, what was heard, and edits on them.
    struct Scene {
        map: MgrMap,
        watch: Watch,
        now_ms: u64,
        fenced: usize,
    }

    impl Scene {
        fn new() -> Self {
            let mut this =
                Self { map: MgrMap::default(), watch: Watch::default(), now_ms: 1, fenced: 0 };
            this.edit(|edit, _, _| edit.serve_self());
            this
        }

        fn edit(&mut self, what: impl FnOnce(&mut Edit, &mut Watch, u64)) -> bool {
            let own = OwnRole { name: "a".into(), rank: 0, addrs: at(6800) };
            let mut edit = Edit::new(&self.map, own, UTime::ZERO);
            what(&mut edit, &mut self.watch, self.now_ms);
            self.fenced += edit.fence.iter().map(|f| f.0.len()).sum::<usize>();
            let is_dirty = edit.is_dirty();
            self.map = edit.finish(None);
            is_dirty
        }

        fn beacon(&mut self, gid: u64, name: &str, available: bool) -> bool {
            self.edit(|edit, watch, now| edit.take(watch, &beacon(gid, name, available), now))
        }

        fn round(&mut self) -> bool {
            self.edit(|edit, watch, now| edit.round(watch, now, GRACE_MS))
        }

        fn names(&self) -> (String, Vec<String>) {
            let standbys = self.map.standbys.values().map(|s| s.name.clone()).collect();
            (self.map.active_name.clone(), standbys)
        }
    }

    /// The monitor's own role until a manager registers; then that one, the others wait.
    #[test]
    fn the_first_serves_and_the_others_wait() {
        let mut s = Scene::new();
        assert_eq!(s.names(), ("a".into(), vec![]));
        assert!(s.map.available && !is_registered(&s.map));
        assert!(s.beacon(4200, "x", false));
        assert_eq!(s.names(), ("x".into(), vec![]));
        assert!(is_registered(&s.map) && !s.map.available, "until it says so");
        assert!(s.map.active_addrs.is_blank());
        assert!(s.map.modules.contains("prometheus"));
        assert!(s.beacon(4200, "x", true));
        assert!(s.map.available && s.map.active_addrs == at(4200));
        assert!(!s.beacon(4200, "x", true), "nothing new");
        assert!(s.beacon(4300, "y", false));
        assert_eq!(s.names(), ("x".into(), vec!["y".into()]));
        assert_eq!(s.fenced, 0, "nobody lost a role that others could write in");
    }

    /// Silence costs the active one its role, and a standby its place; the last one gone, the
    /// monitor serves again.
    #[test]
    fn silence() {
        let mut s = Scene::new();
        s.beacon(4200, "x", true);
        s.beacon(4200, "x", true);
        s.beacon(4300, "y", false);
        s.now_ms += GRACE_MS;
        assert!(!s.round(), "not yet");
        s.beacon(4300, "y", false);
        s.now_ms += 1;
        assert!(s.round());
        assert_eq!(s.names(), ("y".into(), vec![]));
        assert_eq!(s.fenced, 2, "x and its client");
        s.beacon(4300, "y", true);
        s.now_ms += GRACE_MS + 1;
        assert!(s.round());
        assert_eq!(s.names(), ("a".into(), vec![]));
        assert!(!is_registered(&s.map) && s.map.available);
        // A new leader has heard nobody, and waits a whole grace.
        s.beacon(4400, "z", true);
        s.watch = Watch::default();
        s.now_ms += 10 * GRACE_MS;
        assert!(!s.round());
        s.now_ms += GRACE_MS + 1;
        assert!(s.round());
    }

    /// What comes back under its name with another session: the old one is shut out.
    #[test]
    fn restarts() {
        let mut s = Scene::new();
        s.beacon(4200, "x", true);
        s.beacon(4200, "x", true);
        s.beacon(4300, "y", false);
        s.beacon(4400, "y", false);
        assert_eq!(s.map.standbys.keys().collect::<Vec<_>>(), [&4400]);
        assert_eq!(s.fenced, 0);
        s.beacon(4500, "x", false);
        assert_eq!(s.names(), ("y".into(), vec!["x".into()]), "who waited goes first");
        assert_eq!(s.fenced, 2);
    }

    #[test]
    fn fail() {
        let mut s = Scene::new();
        let fail = |s: &mut Scene, who: &str| {
            let mut said = String::new();
            s.edit(|edit, watch, _| said = edit.fail(watch, who));
            said
        };
        assert_eq!(fail(&mut s, ""), "Currently no active mgr");
        assert_eq!(fail(&mut s, "a"), "Daemon not found 'a', already failed?");
        s.beacon(4200, "x", true);
        s.beacon(4300, "y", false);
        assert_eq!(fail(&mut s, "nobody"), "Daemon not found 'nobody', already failed?");
        assert_eq!(fail(&mut s, ""), "");
        assert_eq!(s.names(), ("y".into(), vec![]));
        s.beacon(4200, "x", false);
        assert_eq!(fail(&mut s, "4300"), "");
        assert_eq!(s.names(), ("x".into(), vec![]));
        s.beacon(4300, "y", false);
        assert_eq!(fail(&mut s, "y"), "");
        assert_eq!(s.names(), ("x".into(), vec![]));
    }

    /// Which modules are on is the operator's, whoever serves.
    #[test]
    fn modules_stay_as_they_were_set() {
        let mut s = Scene::new();
        let mut first = beacon(4200, "x", true);
        first.modules = vec![maps::ModuleInfo { name: "prometheus".into(), ..Default::default() }];
        s.edit(|edit, watch, now| edit.take(watch, &first, now));
        s.edit(|edit, watch, now| edit.take(watch, &first, now));
        s.map.modules.remove("prometheus");
        s.beacon(4300, "y", false);
        s.edit(|edit, watch, _| drop(edit.fail(watch, "")));
        assert!(!s.map.modules.contains("prometheus"));
    }
}
