//! Trouble: the menu of faults, after that of the peer's `thrashosds`, and more.

use conf::key;
use osd::memory::MemStore;
use serde_json::json;
use types::OsdId;

use crate::plant::Plant;
use crate::stores::OsdStore;
use crate::world::{Event, MS, Mend, Node, SEC, World};

/// Beyond so many OSDs none is added.
const OSDS_MAX: usize = 22;
/// Beyond so many monitors, gone ones among them, none is added.
const MONS_MAX: usize = 9;

impl World {
    fn count(&mut self, what: &'static str) {
        *self.faults.entry(what).or_default() += 1;
        self.tell(|| format!("fault: {what}"));
    }

    fn alive(&self) -> Vec<usize> {
        (0..self.osds.len()).filter(|i| self.osds[*i].role.is_some()).collect()
    }

    fn dead(&self) -> Vec<usize> {
        let dead = |i: &usize| self.osds[*i].role.is_none() && !self.gone.contains(i);
        (0..self.osds.len()).filter(dead).collect()
    }

    fn some_osd(&mut self) -> usize {
        let all: Vec<usize> = (0..self.osds.len()).filter(|i| !self.gone.contains(i)).collect();
        self.chance.of(&all)
    }

    fn nodes(&self) -> Vec<Node> {
        let osds = (0..self.osds.len()).map(Node::Osd);
        (0..self.mons.len())
            .map(Node::Mon)
            .chain(osds)
            .chain((0..self.operators.len()).map(Node::Operator))
            .chain((0..self.clients.len()).map(Node::Client))
            .collect()
    }

    /// Cuts directions for a while.
    fn cut_wires(&mut self, wires: Vec<(Node, Node)>, ns: u64) {
        for wire in &wires {
            *self.cut.entry(*wire).or_default() += 1;
        }
        self.after(ns, Event::Mend(Mend::Wires(wires)));
    }

    pub(crate) fn mend(&mut self, mend: Mend) {
        match mend {
            Mend::Wires(wires) => {
                for wire in wires {
                    if let Some(n) = self.cut.get_mut(&wire) {
                        *n -= 1;
                        if *n == 0 {
                            self.cut.remove(&wire);
                        }
                    }
                }
            }
            Mend::Disk(i) => self.osds[i].slow = 1,
            Mend::MonDisk(m) => self.mons[m].slow = 1,
            Mend::Room(i) if self.trouble => self.make_room(i),
            Mend::Room(_) => {}
        }
    }

    /// Two groups that do not reach each other; or one does not reach the other.
    fn partition(&mut self) {
        let nodes = self.nodes();
        let two_way = !self.chance.one_in(3);
        let side: Vec<bool> = nodes.iter().map(|_| self.chance.one_in(2)).collect();
        let mut wires = Vec::new();
        for (a, in_a) in nodes.iter().zip(&side) {
            for (b, in_b) in nodes.iter().zip(&side) {
                if *in_a && !*in_b {
                    wires.push((*a, *b));
                    if two_way {
                        wires.push((*b, *a));
                    }
                }
            }
        }
        let ns = self.chance.within(SEC, 50 * SEC);
        self.cut_wires(wires, ns);
    }

    /// One OSD and a client or two, apart from everybody else.
    fn isolate(&mut self) {
        let nodes = self.nodes();
        let osd = Node::Osd(self.some_osd());
        let mut inside = vec![osd];
        for i in 0..self.clients.len() {
            if i % 3 == 2 || self.chance.one_in(4) {
                inside.push(Node::Client(i)); // the readers
            }
        }
        let mut wires = Vec::new();
        for a in nodes.iter().filter(|n| !inside.contains(n)) {
            for b in &inside {
                wires.push((*a, *b));
                wires.push((*b, *a));
            }
        }
        let ns = self.chance.within(2 * SEC, 60 * SEC);
        self.cut_wires(wires, ns);
    }

    fn pause(&mut self, node: Node) {
        let ns = match self.chance.below(3) {
            0 => self.chance.within(100 * MS, 3 * SEC),
            _ => self.chance.within(SEC, 45 * SEC),
        };
        let until = self.now + ns;
        self.paused.insert(node, until);
        self.tell(|| format!("{node:?} stands still until {:.3}", until as f64 / 1e9));
    }

    fn restart_later(&mut self, i: usize, most: u64) {
        let ns = self.chance.within(0, most);
        self.after(ns, Event::Start(Node::Osd(i)));
    }

    fn some_mon(&mut self) -> usize {
        let all: Vec<usize> = (0..self.mons.len()).filter(|m| !self.mons[*m].gone).collect();
        self.chance.of(&all)
    }

    /// Something goes wrong with the monitors.
    fn mon_fault(&mut self) {
        let m = self.some_mon();
        match self.chance.below(12) {
            0..=2 => {
                self.count("kill a monitor");
                self.kill_mon(m);
                let ns = self.chance.within(0, 15 * SEC);
                self.after(ns, Event::Start(Node::Mon(m)));
            }
            3 => {
                self.count("kill the leading monitor");
                let m = self.leader().unwrap_or(m);
                self.kill_mon(m);
                let ns = self.chance.within(0, 15 * SEC);
                self.after(ns, Event::Start(Node::Mon(m)));
            }
            4 => {
                self.count("kill all monitors");
                for m in 0..self.mons.len() {
                    self.kill_mon(m);
                    let ns = self.chance.within(0, 10 * SEC);
                    self.after(ns, Event::Start(Node::Mon(m)));
                }
            }
            5..=7 => {
                self.count("isolate a monitor");
                let m = self.leader().filter(|_| !self.chance_is_rare()).unwrap_or(m);
                self.isolate_mon(m);
            }
            8 => {
                self.count("stop and continue a monitor");
                self.pause(Node::Mon(m));
            }
            9 => {
                self.count("slow disk of a monitor");
                self.mons[m].slow = self.chance.within(3, 100);
                let ns = self.chance.within(SEC, 20 * SEC);
                self.after(ns, Event::Mend(Mend::MonDisk(m)));
            }
            10 => {
                self.count("add a monitor");
                if self.mons.len() < MONS_MAX
                    && let Some(m) = self.add_mon()
                {
                    let addr = crate::mons::mon_addr(m).to_string();
                    let name = self.mons[m].name.clone();
                    self.command(json!({"prefix": "mon add", "name": name, "addr": addr}));
                }
            }
            _ => {
                self.count("remove a monitor");
                if self.mons.iter().filter(|p| !p.gone).count() > 2 {
                    let name = self.mons[m].name.clone();
                    self.command(json!({"prefix": "mon rm", "name": name}));
                }
            }
        }
    }

    fn chance_is_rare(&mut self) -> bool {
        self.chance.one_in(3)
    }

    /// A monitor, with some of the others that are no monitors, apart from all else; or
    /// only in one direction.
    fn isolate_mon(&mut self, m: usize) {
        let nodes = self.nodes();
        let mut inside = vec![Node::Mon(m)];
        for node in &nodes {
            if !matches!(node, Node::Mon(_)) && self.chance.one_in(3) {
                inside.push(*node);
            }
        }
        let way = self.chance.below(4);
        let mut wires = Vec::new();
        for a in nodes.iter().filter(|n| !inside.contains(n)) {
            for b in &inside {
                if way != 0 {
                    wires.push((*a, *b));
                }
                if way != 1 {
                    wires.push((*b, *a));
                }
            }
        }
        let ns = self.chance.within(SEC, 30 * SEC);
        self.cut_wires(wires, ns);
    }

    /// Something goes wrong, and the next time is set.
    pub(crate) fn fault(&mut self) {
        if !self.trouble {
            return;
        }
        let now = self.now;
        self.paused.retain(|_, until| *until > now);
        let ns = self.chance.within(0, 2 * self.settings.fault_every);
        self.after(ns, Event::Fault);
        if self.chance.one_in(2) {
            self.some_snap();
        }
        if self.plant == Some(Plant::ForgottenMaps)
            && let Some(map) = self.newest()
        {
            let before = (map.epoch.0 - 1).to_string();
            self.command(json!({
                "prefix": "config set", "who": "mon", "name": key::MON_OSD_FORCE_TRIM_TO.name(), "value": before,
            }));
        }
        if self.plant == Some(Plant::FalsePings) && self.chance.one_in(2) {
            self.count("isolate an OSD");
            return self.isolate();
        }
        if self.settings.tier.is_some() && self.chance.one_in(2) {
            self.tier_step();
        }
        if self.settings.class && self.chance.one_in(3) {
            self.class_step();
        }
        if self.is_mending() {
            return;
        }
        if self.has_small_disks() && self.chance.one_in(3) {
            self.count("full disk");
            let i = self.some_osd();
            return self.fill_disk(i);
        }
        if self.settings.real_store && self.chance.one_in(14) {
            self.count("failing disk");
            let (i, n) = (self.some_osd(), self.chance.within(1, 40));
            return self.fail_disk(i, n);
        }
        match self.chance.below(24) {
            0..=2 => {
                let what = self.menu();
                return self.count(what);
            }
            3..=5 => {
                self.spoil_some();
                if self.spoiled() > 0 {
                    return;
                }
            }
            _ => {}
        }
        let mons = matches!(self.plant, Some(Plant::ForgottenVotes | Plant::UnleasedReads));
        if mons || self.chance.one_in(6) {
            return self.mon_fault();
        }
        let i = self.some_osd();
        let id = i.to_string();
        match self.chance.below(36) {
            0..=3 => {
                self.count("kill an OSD");
                self.kill_osd(i);
                if self.chance.one_in(2) {
                    self.restart_later(i, 30 * SEC);
                }
            }
            4..=6 => {
                self.count("start OSDs");
                for i in self.dead() {
                    self.restart_later(i, 5 * SEC);
                }
            }
            7 => {
                self.count("kill several OSDs");
                for i in self.alive() {
                    if self.chance.one_in(2) {
                        self.kill_osd(i);
                        self.restart_later(i, 40 * SEC);
                    }
                }
            }
            8 => {
                self.count("kill all OSDs");
                for i in self.alive() {
                    self.kill_osd(i);
                    self.restart_later(i, 20 * SEC);
                }
            }
            9..=10 => {
                self.count("partition");
                self.partition();
            }
            11..=12 | 34..=35 => {
                self.count("isolate an OSD");
                self.isolate();
            }
            13 => {
                self.count("cut one direction");
                let nodes = self.nodes();
                let (a, b) = (self.chance.of(&nodes), self.chance.of(&nodes));
                let ns = self.chance.within(SEC, 60 * SEC);
                if a != b {
                    self.cut_wires(vec![(a, b)], ns);
                }
            }
            14..=16 => {
                self.count("break connections");
                let n = self.chance.within(1, 20);
                let open: Vec<usize> =
                    (0..self.conns.len()).filter(|c| !self.conns[*c].dead).collect();
                for _ in 0..n {
                    if !open.is_empty() {
                        let c = self.chance.of(&open);
                        self.break_conn(c);
                    }
                }
            }
            17..=18 => {
                self.count("stop and continue");
                self.pause(Node::Osd(i));
            }
            19 => {
                self.count("slow disk");
                self.osds[i].slow = self.chance.within(5, 200);
                let ns = self.chance.within(SEC, 30 * SEC);
                self.after(ns, Event::Mend(Mend::Disk(i)));
            }
            20 => {
                self.count("clock steps");
                let nodes = self.nodes();
                let node = self.chance.of(&nodes);
                let by = self.chance.within(0, 7_200 * SEC) as i64 - 3_600 * SEC as i64;
                self.clock(node);
                self.clocks.get_mut(&node).expect("just read").step(by);
            }
            21 => {
                self.count("kill a monitor");
                let m = self.some_mon();
                self.kill_mon(m);
                let ns = self.chance.within(0, 15 * SEC);
                self.after(ns, Event::Start(Node::Mon(m)));
            }
            22 => {
                self.count("out");
                self.command(json!({"prefix": "osd out", "ids": [id]}));
            }
            23 => {
                self.count("in");
                self.command(json!({"prefix": "osd in", "ids": [id]}));
            }
            24 => {
                self.count("reweight");
                let w = self.chance.within(1, 11) as f64 / 10.0;
                self.command(json!({"prefix": "osd reweight", "id": i, "weight": w}));
            }
            25 => {
                self.count("crush reweight");
                let w = self.chance.within(2, 30) as f64 / 10.0;
                self.command(json!({"prefix": "osd crush reweight",
                    "name": format!("osd.{i}"), "weight": w}));
            }
            26 => {
                self.count("primary affinity");
                let w = self.chance.within(0, 11) as f64 / 10.0;
                self.command(json!({"prefix": "osd primary-affinity", "id": i, "weight": w}));
            }
            27 => {
                self.count("marked down");
                self.command(json!({"prefix": "osd down", "ids": [id]}));
            }
            28 => {
                let more = self.chance.within(0, 2) == 0;
                self.count(if more { "more PGs" } else { "fewer PGs" });
                let by = self.chance.within(1, 6);
                let now = u64::from(self.settings.pg_num);
                let n = if more { now + by } else { now.saturating_sub(by).max(1) };
                if n <= 32 {
                    self.settings.pg_num = n as u32;
                    self.set_pool("pg_num", n);
                    self.set_pool("pgp_num", n);
                }
            }
            29 => {
                if self.settings.coded.is_some() {
                    return;
                }
                self.count("size");
                let most = (self.osds.len() - self.gone.len()).min(4) as u64;
                let n = self.chance.within(2.min(most), most + 1);
                self.settings.size = n as usize;
                self.set_pool("size", n);
            }
            30 => {
                self.count("min_size");
                let least = self.settings.coded.map_or(1, |(k, _)| k as u64);
                let n = self.chance.within(least, self.settings.size as u64 + 1);
                self.set_pool("min_size", n);
            }
            31 => {
                self.count("add an OSD");
                if self.osds.len() < OSDS_MAX {
                    self.add_osd();
                }
            }
            32 => {
                self.count("remove an OSD");
                let left = self.osds.len() - self.gone.len();
                if left > self.settings.size.max(3) && self.is_clean() {
                    self.remove_osd(i);
                }
            }
            _ => {
                self.count("a client dies");
                let i = self.chance.index(self.clients.len());
                self.replace_client(i);
            }
        }
    }

    /// An OSD's disk burns; everything is on other disks too. It is taken out of the map.
    fn remove_osd(&mut self, i: usize) {
        self.kill_osd(i);
        self.gone.insert(i);
        self.osds[i].store = OsdStore::Memory(MemStore::default());
        self.command(json!({"prefix": "osd down", "ids": [i.to_string()]}));
        self.command(json!({"prefix": "osd purge", "id": i, "yes_i_really_mean_it": true}));
    }

    /// A write or flush of a disk fails soon, and all after it: its OSD stops.
    fn fail_disk(&mut self, i: usize, n: u64) {
        if let Some(store) = self.osds[i].store.real() {
            store.disk().fail_in(n);
        }
    }

    pub(crate) fn set_pool(&mut self, var: &str, val: u64) {
        self.command(json!({"prefix": "osd pool set", "pool": "p", "var": var,
            "val": val.to_string()}));
    }

    /// No more trouble: everything runs, everybody is in.
    pub(crate) fn heal(&mut self) {
        self.tell(|| "all heals".into());
        self.trouble = false;
        self.cut.clear();
        let now = self.now;
        for until in self.paused.values_mut() {
            *until = (*until).min(now);
        }
        self.paused.clear();
        for i in 0..self.osds.len() {
            self.osds[i].slow = 1;
            if let Some(store) = self.osds[i].store.real() {
                store.disk().fail_in(0);
            }
            let stops = self.osds[i].stops;
            self.make_room(i);
            self.osds[i].stops = stops;
        }
        self.operators_forget();
        for m in 0..self.mons.len() {
            self.mons[m].slow = 1;
            self.start_mon(m);
        }
        for i in self.dead() {
            self.after(0, Event::Start(Node::Osd(i)));
        }
        self.menu_heal();
        self.tier_heal();
        let size = self.settings.size as u64;
        match self.settings.coded {
            Some((k, m)) => self.set_pool("min_size", (k + usize::from(m > 1)) as u64),
            None => {
                self.set_pool("size", size);
                self.set_pool("min_size", size / 2 + 1);
            }
        }
        for i in 0..self.osds.len() {
            if self.gone.contains(&i) {
                let id = json!({"prefix": "osd purge", "id": i, "yes_i_really_mean_it": true});
                self.command(json!({"prefix": "osd down", "ids": [i.to_string()]}));
                self.command(id);
                continue;
            }
            self.command(json!({"prefix": "osd in", "ids": [i.to_string()]}));
            self.command(json!({"prefix": "osd reweight", "id": i, "weight": 1.0}));
            let name = format!("osd.{i}");
            self.command(json!({"prefix": "osd crush reweight", "name": name, "weight": 1.0}));
        }
    }

    /// Where an OSD is, for checks.
    pub(crate) fn osd_index(osd: OsdId) -> usize {
        osd.0 as usize
    }
}
