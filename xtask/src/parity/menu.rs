//! What an operator may do next.

use std::fmt;

use env::{Random, Seeded};
use serde_json::{Value, json};

use super::compare::State;

/// OSDs of each cluster, two on each host.
pub const OSDS: u64 = 6;
/// Pools with clients' objects: three copies, two copies, coded.
pub const POOLS: [&str; 3] = ["data", "two", "ec"];

/// What is done to both clusters.
#[derive(Debug)]
pub enum Action {
    /// A command of the monitors or the manager, without `ceph`.
    Run(String),
    /// Clients write or remove.
    Objects(Value),
    /// An OSD ends in good order.
    Stop(u64),
    /// It comes back.
    Start(u64),
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Run(line) => write!(f, "ceph {line}"),
            Self::Objects(request) => write!(f, "{request}"),
            Self::Stop(osd) => write!(f, "stop osd.{osd}"),
            Self::Start(osd) => write!(f, "start osd.{osd}"),
        }
    }
}

/// Chooses actions by a seed and what the stock cluster shows.
pub struct Menu {
    random: Seeded,
    stopped: Vec<u64>,
    step: u64,
}

impl Menu {
    /// A menu of that seed.
    pub const fn new(seed: u64) -> Self {
        Self { random: Seeded(seed), stopped: Vec::new(), step: 0 }
    }

    fn below(&mut self, n: u64) -> u64 {
        self.random.u64() % n
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        let at = self.below(all.len() as u64);
        all[usize::try_from(at).expect("an index")]
    }

    /// The next action. Every fourth writes, where a pool serves.
    pub fn choose(&mut self, state: &State) -> Action {
        self.step += 1;
        let pool = self.one_of(&POOLS);
        if self.step % 4 == 1 && state.serves(pool) {
            return self.objects(pool);
        }
        let osd = self.below(OSDS);
        let line = match self.below(20) {
            0 | 1 => return self.power(osd),
            2 => format!("osd out {osd}"),
            3 => format!("osd in {osd}"),
            4 => format!("osd reweight {osd} {}", self.one_of(&["0.25", "0.5", "0.75", "1", "0"])),
            5 => {
                format!("osd crush reweight osd.{osd} {}", self.one_of(&["0.5", "1", "2", "3.5"]))
            }
            6 => format!(
                "osd crush set osd.{osd} {} root=default host=h{}",
                self.one_of(&["1", "2"]),
                self.below(3)
            ),
            7 => return self.rule(pool),
            8 | 9 => return self.upmap(state, osd),
            10 => {
                let flag = self.one_of(&[
                    "noout",
                    "norebalance",
                    "nobackfill",
                    "norecover",
                    "noin",
                    "nosnaptrim",
                    "noscrub",
                    "nodeep-scrub",
                    "notieragent",
                ]);
                format!("osd {} {flag}", self.one_of(&["set", "unset", "unset"]))
            }
            11 => {
                format!("osd pool set {pool} size {}", self.one_of(&[1, 2, 3, 4]))
                    + self.one_of(&["", " --yes-i-really-mean-it"])
            }
            12 => format!("osd pool set {pool} min_size {}", self.one_of(&[1, 2, 3])),
            13 => format!("osd pool set {pool} pg_num {}", self.one_of(&[4, 6, 8, 12, 16])),
            14 => {
                let verb = self.one_of(&["mksnap", "mksnap", "rmsnap"]);
                format!("osd pool {verb} {pool} s{}", self.below(3))
            }
            15 => format!(
                "osd pool set-quota {pool} {}",
                self.one_of(&["max_objects 5", "max_objects 0", "max_bytes 4096", "max_bytes 0"])
            ),
            16 => {
                let ratio = self.one_of(&["nearfull", "backfillfull", "full"]);
                format!("osd set-{ratio}-ratio {}", self.one_of(&["0.8", "0.85", "0.9", "0.95"]))
            }
            17 => self.setting(osd),
            18 => {
                format!("osd primary-affinity {osd} {}", self.one_of(&["0", "0.5", "1"]))
            }
            _ => format!("osd down {osd}"),
        };
        Action::Run(line)
    }

    fn objects(&mut self, pool: &str) -> Action {
        let first = self.below(12);
        let names: Vec<String> = (first..first + 4).map(|n| format!("o{n}")).collect();
        if self.below(5) == 0 {
            return Action::Objects(json!({"remove": pool, "names": names}));
        }
        Action::Objects(
            json!({"write": pool, "names": names, "text": format!("step {} ", self.step)}),
        )
    }

    /// Stops an OSD, or starts one that is stopped; two are stopped at most.
    fn power(&mut self, osd: u64) -> Action {
        if let Some(at) = self.stopped.iter().position(|s| *s == osd) {
            self.stopped.remove(at);
            return Action::Start(osd);
        }
        if self.stopped.len() >= 2 {
            return Action::Start(self.stopped.remove(0));
        }
        self.stopped.push(osd);
        Action::Stop(osd)
    }

    fn rule(&mut self, pool: &str) -> Action {
        let kind = self.one_of(&["host", "osd"]);
        Action::Run(if self.below(2) == 0 {
            format!("osd crush rule create-replicated by-{kind} default {kind}")
        } else {
            format!("osd pool set {pool} crush_rule by-{kind}")
        })
    }

    fn upmap(&mut self, state: &State, osd: u64) -> Action {
        let pgs = state.pgs();
        let at = self.below(pgs.len().max(1) as u64);
        let Some((pg, up)) = pgs.get(usize::try_from(at).expect("an index")) else {
            return Action::Run("osd unset noin".to_owned());
        };
        let from = if up.is_empty() { 0 } else { self.one_of(up) };
        Action::Run(match self.below(4) {
            0 => format!("osd rm-pg-upmap-items {pg}"),
            _ => format!("osd pg-upmap-items {pg} {from} {osd}"),
        })
    }

    fn setting(&mut self, osd: u64) -> String {
        let one = format!("osd.{osd}");
        let who = self.one_of(&["osd", one.as_str(), "global"]);
        let what = self.one_of(&[
            "osd_max_backfills 3",
            "osd_recovery_max_active 7",
            "osd_scrub_begin_hour 25",
            "osd_pool_default_size 2",
            "mon_max_pg_per_osd 100",
            "osd_scrub_sleep x",
            "osd_heartbeat_grace 30",
            "debug_osd 5/5",
            "no_such_option 1",
        ]);
        match self.below(3) {
            0 => format!("config rm {who} {}", what.split(' ').next().unwrap_or_default()),
            _ => format!("config set {who} {what}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_seed_gives_one_sequence_and_stops_two_osds_at_most() {
        let state = State::default();
        let sequence = |seed| -> Vec<String> {
            let mut menu = Menu::new(seed);
            (0..400)
                .map(|_| {
                    let action = menu.choose(&state).to_string();
                    assert!(menu.stopped.len() <= 2, "{action}");
                    action
                })
                .collect()
        };
        assert_eq!(sequence(1), sequence(1));
        assert_ne!(sequence(1), sequence(2));
        assert!(sequence(1).iter().any(|a| a.starts_with("start osd.")));
    }
}
