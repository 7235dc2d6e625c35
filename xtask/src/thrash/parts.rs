//! Trouble for a cluster that stands on hosts: OSDs and monitors that some others do not hear, or
//! that do not hear them, and disks that are full for a while.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::{OSDS, Running, Thrasher};
use crate::hosts::{Host, Hosts};
use crate::sh;

/// How often disks are filled, from one end to the next begin.
const FILL_EVERY: Duration = Duration::from_secs(25);
/// How long filling may take.
const FILL_MAX: Duration = Duration::from_secs(60);
const MONS: u64 = 3;

/// How far the filling of disks is.
pub(super) enum Filling {
    /// It begins then.
    Next(Instant),
    /// A pool grows, until then at most; looked at again at the second.
    Grows(Running, Instant, Instant),
    /// Too full for writes, until then.
    Full(Running, Instant),
}

/// Who does not hear whom.
pub(super) struct Parted {
    until: Instant,
    /// Those who lose something of what they send.
    senders: BTreeSet<Host>,
}

/// All OSDs' hosts but one.
fn other_osds(than: Host) -> Vec<Host> {
    (0..OSDS).map(Host::osd).filter(|h| *h != than).collect()
}

fn mons() -> impl Iterator<Item = Host> {
    (0..MONS).map(Host::mon)
}

impl Thrasher<'_> {
    fn hosts(&self) -> Option<&Hosts> {
        self.cluster.hosts.as_ref()
    }

    /// An OSD is cut off: of all, of some OSDs, of the monitors; both ways or one way.
    pub(super) fn part(&mut self, osd: u64) -> Result<()> {
        let me = Host::osd(osd);
        let mut far = other_osds(me);
        let what = match self.below(4) {
            0 => {
                far.extend(mons().chain([Host::CLIENTS]));
                "cut off from all"
            }
            1 => {
                far = mons().collect();
                "cut off from monitors"
            }
            2 => "cut off from OSDs",
            _ => {
                let stays = self.below(far.len() as u64) as usize;
                far.remove(stays);
                "cut off from two OSDs"
            }
        };
        self.count(what);
        self.cut(me, &far)
    }

    /// A monitor and the two others do not hear each other, or one way.
    pub(super) fn part_mon(&mut self, mon: u64) -> Result<()> {
        self.count("monitors cut off");
        let me = Host::mon(mon);
        let far: Vec<Host> = mons().filter(|h| *h != me).collect();
        self.cut(me, &far)
    }

    fn cut(&mut self, me: Host, far: &[Host]) -> Result<()> {
        let (out, back) =
            [(true, true), (true, true), (true, false), (false, true)][self.below(4) as usize];
        if out != back {
            self.count("of these one way");
        }
        let secs = [1, 4, 8, 15][self.below(4) as usize];
        let Some(hosts) = self.hosts() else { return Ok(()) };
        let mut senders = BTreeSet::new();
        if out {
            hosts.cut(me, far)?;
            senders.insert(me);
        }
        for other in far.iter().filter(|_| back) {
            hosts.cut(*other, &[me])?;
            senders.insert(*other);
        }
        self.parted.push(Parted { until: sh::now() + Duration::from_secs(secs), senders });
        Ok(())
    }

    /// What was cut for long enough is joined; all, where `all`.
    pub(super) fn join(&mut self, all: bool) -> Result<()> {
        let over: Vec<Parted> =
            self.parted.extract_if(.., |p| all || sh::now() >= p.until).collect();
        for host in over.into_iter().flat_map(|p| p.senders) {
            if let Some(hosts) = self.hosts() {
                hosts.join(host)?;
            }
        }
        Ok(())
    }

    /// Fills two disks over the full ratio, and empties them, again and again.
    pub(super) fn fill(&mut self) -> Result<()> {
        let Some(filling) = self.filling.take() else { return Ok(()) };
        let now = sh::now();
        self.filling = Some(match filling {
            Filling::Next(at) if now >= at => {
                let make = "osd pool create filler 1 1 --size 2 --autoscale-mode=off";
                self.ceph(make)?;
                self.ceph("osd pool set filler min_size 1")?;
                let line = format!(
                    "timeout {0} rados -p filler bench {0} write -b 4194304 -t 4 --no-cleanup",
                    FILL_MAX.as_secs()
                );
                let running = Running::start(self.cluster, "filler", &line)?;
                Filling::Grows(running, now + FILL_MAX, now)
            }
            Filling::Grows(running, until, look) if now >= look => {
                let s: serde_json::Value =
                    serde_json::from_str(&self.ceph("-s -f json")?).context("status")?;
                let full = s["health"]["checks"].get("OSD_FULL").is_some();
                if full || now >= until {
                    self.count(if full { "disks filled" } else { "disks not filled in time" });
                    let secs = 2 + self.below(12);
                    Filling::Full(running, sh::now() + Duration::from_secs(secs))
                } else {
                    Filling::Grows(running, until, sh::now() + Duration::from_secs(2))
                }
            }
            Filling::Full(running, until) if now >= until => {
                self.empty(running)?;
                Filling::Next(sh::now() + FILL_EVERY)
            }
            other => other,
        });
        Ok(())
    }

    /// No disk is filled any more.
    pub(super) fn end_filling(&mut self) -> Result<()> {
        match self.filling.take() {
            Some(Filling::Grows(running, ..) | Filling::Full(running, _)) => self.empty(running),
            _ => Ok(()),
        }
    }

    /// Whoever writes there finds the pool gone, or is at its end soon.
    fn empty(&mut self, filler: Running) -> Result<()> {
        self.ceph("osd pool rm filler filler --yes-i-really-really-mean-it")?;
        filler.end();
        Ok(())
    }
}
