//! What the leader knows and may lose.

use std::collections::{BTreeMap, BTreeSet};

use maps::PgMapping;
use types::{EntityKind, Features};

use crate::PgMap;

/// Everything the leader keeps in memory only.
#[derive(Clone, Debug, Default)]
pub struct Volatile {
    /// PGs and OSDs as they last reported.
    pub pgmap: PgMap,
    /// Who serves each PG by the newest map.
    pub mapping: PgMapping,
    /// Connected peers by what they are, for `ceph features`.
    pub groups: Vec<SessionGroup>,
    /// OSDs that were made a while ago and never came up.
    pub(crate) never_up: BTreeSet<types::OsdId>,
    /// OSDs that asked to boot with another store than the map has, and until when that is
    /// told (monotonic milliseconds).
    pub(crate) refused_boots: BTreeMap<types::OsdId, u64>,
    /// The state of the cluster, as of the last tick or map change.
    pub health: HealthReport,
    /// Daemons that registered themselves with the manager's role.
    pub services: crate::services::Services,
    /// What the balancer did last.
    pub balancer: Balancer,
    /// When numbers of PGs were last looked at (monotonic milliseconds).
    pub(crate) autoscaled_ms: u64,
    /// Pools whose PGs could not be merged, and until when it is not tried again (monotonic
    /// milliseconds).
    pub(crate) merges_put_off: BTreeMap<types::PoolId, u64>,
    /// What was heard of metadata servers.
    pub mds: crate::fs::Watch,
    /// When managers were heard.
    pub managers: crate::managers::Watch,
    /// How far recovery is.
    pub progress: crate::progress::Progress,
    /// The monitors that agree.
    pub quorum: QuorumInfo,
    /// Clocks and disks of the monitors.
    pub vitals: crate::vitals::Round,
}

/// Peers with the same type and features.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionGroup {
    /// Their type.
    pub kind: EntityKind,
    /// Their features.
    pub features: Features,
    /// How many.
    pub count: u32,
}

/// How serious.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum HealthStatus {
    /// `HEALTH_ERR`
    Err,
    /// `HEALTH_WARN`
    Warn,
    /// `HEALTH_OK`
    #[default]
    Ok,
}

/// One health check that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthCheck {
    /// How serious.
    pub severity: HealthStatus,
    /// One line.
    pub summary: String,
    /// What it counts (OSDs down, ...), for mutes.
    pub count: i64,
    /// More lines, for `health detail`.
    pub detail: Vec<String>,
}

/// All failed checks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HealthReport {
    /// By code: `OSD_DOWN`.
    pub checks: BTreeMap<String, HealthCheck>,
}

/// What the balancer did last.
#[derive(Clone, Debug, Default)]
pub struct Balancer {
    /// When, monotonic milliseconds.
    pub at_ms: u64,
    /// When, wall clock.
    pub began: types::UTime,
    /// One sentence.
    pub result: String,
    /// Nothing was left to do.
    pub even: bool,
    /// Plans made by hand, by their names.
    pub plans: BTreeMap<String, crate::balancer::Plan>,
}

impl Balancer {
    /// Notes what a command did.
    pub(crate) fn take(&mut self, step: crate::BalancerStep, wall: types::UTime) {
        match step {
            crate::BalancerStep::Keep { plan, result, even } => {
                (self.began, self.result, self.even) = (wall, result, even);
                self.plans.extend(plan.map(|plan| (plan.name.clone(), plan)));
            }
            crate::BalancerStep::Forget(Some(name)) => drop(self.plans.remove(&name)),
            crate::BalancerStep::Forget(None) => self.plans.clear(),
        }
    }
}

/// Which monitors agree.
#[derive(Clone, Debug, Default)]
pub struct QuorumInfo {
    /// Names of those that count in the log, whether they are in the map or not.
    pub voters: BTreeSet<String>,
    /// This monitor's name.
    pub name: String,
    /// This monitor's rank.
    pub rank: u32,
    /// Even while a quorum stands.
    pub election_epoch: u32,
    /// Ranks of the quorum, ascending.
    pub quorum: Vec<u32>,
    /// Name of the leader.
    pub leader: String,
    /// Since when (monotonic milliseconds).
    pub since_mono_ms: u64,
    /// This monitor's start (monotonic milliseconds).
    pub started_mono_ms: u64,
}
