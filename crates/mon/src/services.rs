//! The services that clients registered, by connection and by name.

use std::collections::BTreeMap;

use env::ConnId;
use maps::{ServiceDaemon, ServiceMap};
use types::{Epoch, UTime};

/// How a daemon said it does, and when it was last heard.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServiceStatus {
    /// When the status came.
    pub stamp: UTime,
    /// When it was heard last.
    pub heard: UTime,
    /// What it said.
    pub status: BTreeMap<String, String>,
}

/// All of them.
#[derive(Clone, Debug, Default)]
pub struct Services {
    /// Who they are.
    pub map: ServiceMap,
    /// How they do, by service and daemon.
    pub status: BTreeMap<(String, String), ServiceStatus>,
    by_conn: BTreeMap<ConnId, (String, String)>,
}

impl Services {
    /// How many daemons there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_conn.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_conn.is_empty()
    }

    /// A daemon registers; one of the same name before it is replaced.
    pub fn register(
        &mut self,
        conn: ConnId,
        service: String,
        name: String,
        daemon: ServiceDaemon,
        status: BTreeMap<String, String>,
        now: UTime,
    ) {
        self.forget(conn);
        self.changed(now);
        let key = (service.clone(), name.clone());
        self.by_conn.retain(|_, other| *other != key);
        self.map.services.entry(service).or_default().daemons.insert(name, daemon);
        self.status.insert(key.clone(), ServiceStatus { stamp: now, heard: now, status });
        self.by_conn.insert(conn, key);
    }

    /// A daemon reports.
    pub fn report(&mut self, conn: ConnId, status: Option<BTreeMap<String, String>>, now: UTime) {
        let Some(key) = self.by_conn.get(&conn) else { return };
        let Some(known) = self.status.get_mut(key) else { return };
        known.heard = now;
        if let Some(status) = status {
            (known.stamp, known.status) = (now, status);
        }
    }

    /// Takes what the manager's process has heard, in place of all that was known.
    pub fn replace(&mut self, report: messages::ManagerReport) {
        let said = report.status.into_iter();
        let status = said.map(|s| {
            let how = ServiceStatus { stamp: s.stamp, heard: s.heard, status: s.status };
            ((s.service, s.daemon), how)
        });
        *self = Self { map: report.map, status: status.collect(), by_conn: BTreeMap::new() };
    }

    /// As [`Services::replace`] takes it.
    #[must_use]
    pub fn report_of(&self, gid: u64) -> messages::ManagerReport {
        let status = self.status.iter().map(|((service, daemon), how)| messages::ServiceSaid {
            service: service.clone(),
            daemon: daemon.clone(),
            stamp: how.stamp,
            heard: how.heard,
            status: how.status.clone(),
        });
        messages::ManagerReport { gid, map: self.map.clone(), status: status.collect() }
    }

    /// The connection is gone, and its daemon with it.
    pub fn forget(&mut self, conn: ConnId) {
        let Some(key) = self.by_conn.remove(&conn) else { return };
        self.status.remove(&key);
        if let Some(service) = self.map.services.get_mut(&key.0) {
            service.daemons.remove(&key.1);
            if service.daemons.is_empty() {
                self.map.services.remove(&key.0);
            }
        }
        self.map.epoch = Epoch(self.map.epoch.0 + 1);
    }

    fn changed(&mut self, now: UTime) {
        self.map.epoch = Epoch(self.map.epoch.0 + 1);
        self.map.modified = now;
    }
}

/// The line about a service in `ceph -s`: how many daemons, of which kind, on how many hosts
/// and in how many zones.
#[must_use]
pub fn summary(service: &maps::Service) -> String {
    if !service.summary.is_empty() {
        return service.summary.clone();
    }
    if service.daemons.is_empty() {
        return "no daemons active".to_owned();
    }
    let told = |key: &str| {
        let all = service.daemons.values().filter_map(|d| d.metadata.get(key));
        all.collect::<Vec<_>>()
    };
    let kind = told("daemon_type").last().map_or("daemon", |kind| kind.as_str());
    let n = service.daemons.len();
    let mut text = format!("{n} {kind}{} active", if n > 1 { "s" } else { "" });
    let groups = [("host", "hostname"), ("zone", "zone_id")].map(|(name, key)| {
        let mut distinct = told(key);
        distinct.sort();
        distinct.dedup();
        (distinct.len(), name)
    });
    let groups = groups.iter().filter(|(n, _)| *n > 0);
    let groups: Vec<String> = groups.map(|(n, name)| format!("{n} {name}s")).collect();
    if !groups.is_empty() {
        text.push_str(&format!(" ({})", groups.join(", ")));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn daemon(pairs: &[(&str, &str)]) -> ServiceDaemon {
        let metadata = pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        ServiceDaemon { metadata, ..ServiceDaemon::default() }
    }

    /// A daemon is there as long as its connection, and one of its name replaces it.
    #[test]
    fn daemons_follow_their_connections() {
        let (mut s, now) = (Services::default(), UTime { sec: 5, nsec: 0 });
        let add = |s: &mut Services, conn, name: &str, pairs: &[(&str, &str)]| {
            let status = BTreeMap::new();
            s.register(ConnId(conn), "foo".into(), name.into(), daemon(pairs), status, now);
        };
        add(&mut s, 1, "a", &[("hostname", "h1"), ("daemon_type", "portal"), ("zone_id", "z1")]);
        add(&mut s, 2, "b", &[("hostname", "h1"), ("zone_id", "z2")]);
        add(&mut s, 3, "b", &[("hostname", "h1"), ("zone_id", "z3")]);
        assert_eq!(summary(&s.map.services["foo"]), "2 portals active (1 hosts, 2 zones)");
        s.report(ConnId(3), Some(BTreeMap::from([("k".into(), "v".into())])), now);
        assert_eq!(s.status[&("foo".to_owned(), "b".to_owned())].status["k"], "v");
        s.forget(ConnId(2)); // long replaced
        s.forget(ConnId(1));
        assert_eq!(summary(&s.map.services["foo"]), "1 daemon active (1 hosts, 1 zones)");
        s.forget(ConnId(3));
        assert!(s.map.services.is_empty() && s.is_empty() && s.status.is_empty());
    }
}
