//! The same random sequence of an operator's actions on a cluster of ours and on a stock one, with
//! equal CRUSH maps. After each action, both at rest, what can be seen of them is compared.

mod compare;
mod menu;

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use self::compare::{Allowed, State};
use self::menu::{Action, Menu, OSDS, POOLS};
use crate::cluster::Cluster;
use crate::report::Report;
use crate::{lab, sh};

/// The release that ours is compared with.
const SUITE: &str = "forky";
/// The stock cluster's name.
const PEER: &str = "parity-peer";
/// How long both may move after an action.
const MOVING_MAX: Duration = Duration::from_secs(90);
/// How long what differs at rest may take to agree: statistics come once a second.
const LAG_MAX: Duration = Duration::from_secs(15);

/// What the verb's words ask for.
pub struct Asked {
    seed: u64,
    steps: u64,
}

impl Asked {
    /// Reads `--seed N` (the process id) and `--steps M` (30).
    ///
    /// # Errors
    /// For any other word.
    pub fn parse(words: &[&str]) -> Result<Self> {
        let mut asked = Self { seed: std::process::id().into(), steps: 30 };
        for pair in words.chunks(2) {
            let number = pair.get(1).context("a number is missing")?.parse()?;
            match pair[0] {
                "--seed" => asked.seed = number,
                "--steps" => asked.steps = number,
                word => anyhow::bail!("unknown word: {word}"),
            }
        }
        Ok(asked)
    }
}

/// One cluster, its tool and its name in what is told.
struct Side {
    name: &'static str,
    conf: PathBuf,
    /// `None`: the stock cluster.
    ours: Option<Cluster>,
    tool: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Side {
    fn open(name: &'static str, conf: PathBuf, ours: Option<Cluster>) -> Result<Self> {
        let dir = conf.parent().context("a directory")?;
        std::fs::copy(sh::repo().join("tests/interop/parity.py"), dir.join("parity.py"))?;
        let line = format!(
            "export CEPH_CONF={}; exec python3 {}/parity.py",
            conf.display(),
            dir.display()
        );
        let mut tool = lab::exec(SUITE, &line)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("its tool does not start")?;
        let to = tool.stdin.take().context("its input")?;
        let from = BufReader::new(tool.stdout.take().context("its output")?);
        Ok(Self { name, conf, ours, tool, to, from })
    }

    /// Asks the tool; its answer.
    ///
    /// # Errors
    /// When the tool is gone or could not do it.
    fn ask(&mut self, request: &Value) -> Result<Value> {
        writeln!(self.to, "{request}")?;
        let mut line = String::new();
        self.from.read_line(&mut line)?;
        let said: Value = serde_json::from_str(&line)
            .with_context(|| format!("{}: its tool ended at {request}", self.name))?;
        ensure!(said["failed"].is_null(), "{}: {request}: {}", self.name, said["failed"]);
        Ok(said)
    }

    /// Runs a command; its errno and sentence.
    ///
    /// # Errors
    /// As [`Self::ask`].
    fn run(&mut self, line: &str) -> Result<(i64, String)> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let said = self.ask(&json!({"run": words}))?;
        let text = said["err"].as_str().unwrap_or_default().to_owned();
        Ok((said["code"].as_i64().unwrap_or(-1), text))
    }

    /// As [`Self::run`], for commands that must succeed.
    fn must(&mut self, line: &str) -> Result<()> {
        let (code, said) = self.run(line)?;
        ensure!(code == 0, "{}: {line}: {code} {said}", self.name);
        Ok(())
    }

    /// What a command prints as JSON.
    fn show(&mut self, line: &str) -> Result<Value> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let said = self.ask(&json!({"run": words}))?;
        let out = said["out"].as_str().unwrap_or_default();
        serde_json::from_str(out).with_context(|| format!("{}: {line}: {said}", self.name))
    }

    fn state(&mut self) -> Result<State> {
        Ok(State::new(
            &self.show("osd dump")?,
            &self.show("osd crush dump")?,
            &self.show("pg dump pgs_brief")?,
            &self.show("health")?,
            &self.show("config dump")?,
        ))
    }

    /// Sums of all objects of pools that serve, by `POOL/NAME`.
    fn objects(&mut self, state: &State) -> Result<Value> {
        let mut all = serde_json::Map::new();
        for pool in POOLS {
            if !state.serves(pool) {
                continue;
            }
            let said = self.ask(&json!({"objects": pool, "snaps": state.snaps(pool)}))?;
            for (name, sum) in said.as_object().into_iter().flatten() {
                all.insert(format!("{pool}/{name}"), sum.clone());
            }
        }
        Ok(all.into())
    }

    fn stop_osd(&self, osd: u64) -> Result<()> {
        if let Some(ours) = &self.ours {
            return ours.argonaut("stop", &[&format!("osd.{osd}")]).map(drop);
        }
        let pid = self.conf.with_file_name(format!("run/osd.{osd}.pid"));
        let pid = std::fs::read_to_string(pid)?;
        let pid = pid.trim();
        let line = format!(
            "kill {pid}; for i in $(seq 300); do kill -0 {pid} || exit 0; sleep 0.1; done 2>/dev/null; exit 1"
        );
        sh::output(&mut sh::bash(&line)).map(drop)
    }

    fn start_osd(&self, osd: u64) -> Result<()> {
        if let Some(ours) = &self.ours {
            return ours.argonaut("start", &[&format!("osd.{osd}")]).map(drop);
        }
        let line = format!("export CEPH_CONF={}; ceph-osd -i {osd}", self.conf.display());
        sh::output(&mut lab::exec(SUITE, &line)).map(drop)
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        self.tool.kill().ok();
        self.tool.wait().ok();
        if self.ours.is_none() {
            lab::peer_down(PEER).ok();
        }
    }
}

/// Both clusters.
struct Pair {
    ours: Side,
    stock: Side,
}

impl Pair {
    fn up() -> Result<Self> {
        let osds = OSDS.to_string();
        let cluster = Cluster::up("parity", &["--osds", &osds, "--osd-bytes", "2G"])?;
        lab::peer_down(PEER).ok();
        let conf = lab::peer_up(PEER, u32::try_from(OSDS)?, 3)?;
        let stock = Side::open("stock", conf, None)?;
        let ours = Side::open("ours", cluster.conf(), Some(cluster))?;
        let mut pair = Self { ours, stock };
        pair.prepare()?;
        Ok(pair)
    }

    /// Equal settings, CRUSH maps and pools.
    fn prepare(&mut self) -> Result<()> {
        for side in [&mut self.ours, &mut self.stock] {
            for line in [
                "config set osd osd_crush_update_on_start false",
                "config set osd osd_class_update_on_start false",
                "config set global osd_pool_default_pg_autoscale_mode off",
                "config set global mon_allow_pool_delete true",
                "config set global mon_allow_pool_size_one true",
                "config set mgr mgr_stats_period 1",
                "config set mon mon_osd_down_out_interval 3600",
                "config set mon mon_data_avail_warn 1",
                "config set mon mon_data_avail_crit 0",
                "balancer off",
            ] {
                side.must(line)?;
            }
        }
        // As stock's ceph.conf has it, which stands above central settings.
        self.ours.must("config set global osd_pool_default_min_size 1")?;
        for host in 0..3 {
            self.ours.must(&format!("osd crush add-bucket h{host} host"))?;
            self.ours.must(&format!("osd crush move h{host} root=default"))?;
        }
        for osd in 0..OSDS {
            self.ours.must(&format!(
                "osd crush set osd.{osd} 1.0 root=default host=h{}",
                osd / (OSDS / 3)
            ))?;
        }
        let tree = self.ours.show("osd crush tree")?;
        for node in tree["nodes"].as_array().into_iter().flatten() {
            let name = node["name"].as_str().unwrap_or_default();
            if node["type"] == "host" && !matches!(name, "h0" | "h1" | "h2") {
                self.ours.must(&format!("osd crush rm {name}"))?;
            }
        }
        let map = self.ours.ask(&json!({"run": ["osd", "getcrushmap"], "raw": true}))?;
        let put = json!({"run": ["osd", "setcrushmap"], "input": map["out"]});
        let said = self.stock.ask(&put)?;
        ensure!(said["code"] == 0, "stock takes our CRUSH map: {said}");
        // Stock's manager makes a pool of its own, the first.
        let pool = wait(Duration::from_secs(60), || {
            Ok(self.stock.show("osd pool ls")?.as_array().is_some_and(|a| !a.is_empty()))
        })?;
        ensure!(pool, "stock's manager has made no pool");
        self.ours.must("osd pool create .mgr 1 --yes-i-really-mean-it")?;
        self.ours.must("osd pool application enable .mgr mgr")?;
        self.ours.ask(&json!({"write": ".mgr", "names": ["main.db"], "text": "as stock's "}))?;
        for side in [&mut self.ours, &mut self.stock] {
            for line in [
                "osd pool set .mgr size 3",
                "osd pool set .mgr min_size 2",
                "osd pool set .mgr pg_num_min 1",
                "osd pool set .mgr pg_num_max 32",
                "osd pool create data 8",
                "osd pool set data min_size 2",
                "osd pool create two 4 4 replicated --size 2",
                "osd erasure-code-profile set k2m1 k=2 m=1 crush-failure-domain=osd plugin=jerasure technique=reed_sol_van",
                "osd pool create ec 4 4 erasure k2m1",
                "osd pool application enable data rados",
                "osd pool application enable two rados",
                "osd pool application enable ec rados",
            ] {
                side.must(line)?;
            }
        }
        Ok(())
    }

    /// Waits until both are at rest and agree, or until neither will; returns what differs then, and
    /// stock's state. Nobody waits for what differed before.
    fn settle(
        &mut self,
        allowed: &Allowed,
        known: &BTreeSet<String>,
    ) -> Result<(BTreeSet<String>, State)> {
        let began = sh::now();
        let mut last = (self.ours.state()?, self.stock.state()?);
        let mut rests: Option<Instant> = None;
        loop {
            std::thread::sleep(Duration::from_millis(1200));
            let now = (self.ours.state()?, self.stock.state()?);
            let still = now == last && now.0.rests() && now.1.rests();
            last = now;
            let late = began.elapsed() > MOVING_MAX;
            if !still && !late {
                continue;
            }
            let since = *rests.get_or_insert_with(sh::now);
            let mut differs = allowed.without(compare::differ(&last.0, &last.1));
            if differs.is_subset(known) || since.elapsed() > LAG_MAX || late {
                if !last.0.rests() || !last.1.rests() {
                    let (ours, stock) = (last.0.moving(), last.1.moving());
                    if ours != stock {
                        differs.insert(format!("moving: ours {ours:?}, stock {stock:?}"));
                    }
                }
                let objects = (self.ours.objects(&last.0)?, self.stock.objects(&last.1)?);
                differs.extend(allowed.without(compare::objects(&objects.0, &objects.1)));
                return Ok((differs, last.1));
            }
        }
    }

    /// Does it on both; what differs in their answers.
    fn act(&mut self, action: &Action) -> Result<Vec<String>> {
        let sides = [&mut self.ours, &mut self.stock];
        match action {
            Action::Stop(osd) => {
                for side in sides {
                    side.stop_osd(*osd)?;
                }
            }
            Action::Start(osd) => {
                for side in sides {
                    side.start_osd(*osd)?;
                }
                for side in [&mut self.ours, &mut self.stock] {
                    wait(Duration::from_secs(20), || side.state().map(|s| s.is_up(*osd)))?;
                }
            }
            Action::Run(line) => {
                let [ours, stock] = [self.ours.run(line)?, self.stock.run(line)?];
                if ours.0 != stock.0 {
                    return Ok(vec![format!("answer {line}: ours {ours:?}, stock {stock:?}")]);
                }
            }
            Action::Objects(request) => {
                let [ours, stock] = [self.ours.ask(request)?, self.stock.ask(request)?];
                if ours != stock {
                    return Ok(vec![format!("answer {request}: ours {ours}, stock {stock}")]);
                }
            }
        }
        Ok(vec![])
    }
}

/// Asks until it is so; whether it came to be in time.
fn wait(most: Duration, mut is: impl FnMut() -> Result<bool>) -> Result<bool> {
    let end = sh::now() + most;
    while sh::now() < end {
        if is()? {
            return Ok(true);
        }
        std::thread::sleep(Duration::from_millis(300));
    }
    Ok(false)
}

/// Runs the sequence of a seed. What differs is told once, when it begins to.
///
/// # Errors
/// When a cluster does not come up, or a tool ends.
pub fn run(asked: &Asked) -> Result<Report> {
    let mut report = Report::default();
    let allowed = Allowed::read()?;
    let mut pair = Pair::up()?;
    println!("seed {}", asked.seed);
    let (mut known, mut state) = pair.settle(&allowed, &BTreeSet::new())?;
    report.check("at the start", || told(&known, &BTreeSet::new()));
    let mut menu = Menu::new(asked.seed);
    for step in 1..=asked.steps {
        let action = menu.choose(&state);
        let mut before = BTreeSet::new();
        report.check(&format!("{step}: {action}"), || {
            let said = pair.act(&action)?;
            let settled = pair.settle(&allowed, &known)?;
            state = settled.1;
            before = std::mem::replace(&mut known, settled.0);
            known.extend(allowed.without(said.into_iter().collect()));
            told(&known, &before)
        });
    }
    println!("seed {}: {} divergences at the end", asked.seed, known.len());
    Ok(report)
}

/// Fails with what was not known before.
fn told(now: &BTreeSet<String>, before: &BTreeSet<String>) -> Result<()> {
    let new: Vec<&str> = now.difference(before).map(String::as_str).collect();
    ensure!(new.is_empty(), "{} divergences\n  {}", new.len(), new.join("\n  "));
    Ok(())
}
