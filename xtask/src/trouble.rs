//! Daemons that are killed, and stay dead for a while, and such that are stopped and go on.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::cluster::Cluster;
use crate::sh;

/// Who of a cluster is dead or stands still, and until when.
pub struct Trouble<'a> {
    cluster: &'a Cluster,
    /// Killed whenever they come back, until then.
    dead: BTreeMap<String, Instant>,
    /// Stopped, until then; with the pid.
    stopped: BTreeMap<String, (u32, Instant)>,
}

/// Sends a signal; to nobody where the process is gone.
///
/// # Errors
/// When `kill` cannot be run.
pub fn signal(pid: u32, signal: &str) -> Result<()> {
    sh::output(&mut sh::bash(&format!("kill -{signal} {pid} 2>/dev/null; true"))).map(drop)
}

impl<'a> Trouble<'a> {
    /// Nobody is in trouble.
    pub const fn new(cluster: &'a Cluster) -> Self {
        Self { cluster, dead: BTreeMap::new(), stopped: BTreeMap::new() }
    }

    /// A daemon's process, where it has one.
    pub fn pid(&self, name: &str) -> Option<u32> {
        let pids = self.cluster.pids().ok()?;
        pids.into_iter().find(|(n, _)| n == name).map(|(_, pid)| pid)
    }

    /// How many daemons whose names begin so are dead or stopped.
    pub fn count(&self, kind: &str) -> usize {
        let all = self.dead.keys().chain(self.stopped.keys());
        all.filter(|name| name.starts_with(kind)).count()
    }

    /// Whether a daemon is stopped.
    pub fn has_stopped(&self, name: &str) -> bool {
        self.stopped.contains_key(name)
    }

    /// Kills a daemon, and has it stay dead for so long.
    ///
    /// # Errors
    /// As [`signal`].
    pub fn kill(&mut self, name: String, long: Duration) -> Result<()> {
        if let Some(pid) = self.pid(&name) {
            signal(pid, "KILL")?;
        }
        self.dead.insert(name, sh::now() + long);
        Ok(())
    }

    /// Stops a daemon that runs, for so long.
    ///
    /// # Errors
    /// As [`signal`].
    pub fn stop(&mut self, name: String, long: Duration) -> Result<()> {
        if let Some(pid) = self.pid(&name) {
            signal(pid, "STOP")?;
            self.stopped.insert(name, (pid, sh::now() + long));
        }
        Ok(())
    }

    /// The dead stay dead and the stopped stopped, as long as they are to.
    ///
    /// # Errors
    /// As [`signal`].
    pub fn keep(&mut self) -> Result<()> {
        let now = sh::now();
        self.dead.retain(|_, until| *until > now);
        for name in self.dead.keys() {
            if let Some(pid) = self.pid(name) {
                signal(pid, "KILL")?;
            }
        }
        let over: Vec<_> = self.stopped.extract_if(.., |_, (_, at)| *at <= now).collect();
        over.into_iter().try_for_each(|(_, (pid, _))| signal(pid, "CONT"))
    }

    /// All of it ends.
    ///
    /// # Errors
    /// As [`signal`].
    pub fn end(&mut self) -> Result<()> {
        self.dead.clear();
        std::mem::take(&mut self.stopped).into_values().try_for_each(|(pid, _)| signal(pid, "CONT"))
    }
}
