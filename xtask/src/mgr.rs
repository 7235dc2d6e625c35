//! Manager processes: who serves, who takes over, what the metrics say; asked by a stock client.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::cluster::{self, Cluster};
use crate::report::Report;
use crate::{lab, sh};

/// The release whose client asks.
const SUITE: &str = "forky";
/// Seconds of silence that cost a manager its role here.
const GRACE_S: u64 = 6;
/// How long something may take to come true, in seconds.
const WAIT_S: u64 = 45;

/// A command to the active manager by librados: `mgr CLIENT KEYRING COMMAND`.
const MGR: &str = r#"mgr() { timeout 20 python3 -c '
import json, rados, sys
conf = {"keyring": sys.argv[2]} if sys.argv[2] else {}
with rados.Rados(conffile="", name=sys.argv[1], conf=conf) as c:
    r, out, rs = c.mgr_command(json.dumps({"prefix": sys.argv[3]}), b"")
    print(out.decode(), rs)
    sys.exit(-r)
' "$@"; }"#;
const PG_STAT: &str = "mgr client.admin '' 'pg stat'";

struct Managers {
    cluster: Cluster,
}

/// Samples by name and labels.
type Samples = BTreeMap<String, f64>;

impl Managers {
    fn up() -> Result<Self> {
        let args = ["--mons", "3", "--osds", "3", "--mgrs", "2", "--osd-bytes", "4G"];
        let this = Self { cluster: Cluster::up("mgr", &args)? };
        println!("argonaut up: {:.2} s", this.cluster.up_s);
        this.ceph(&format!(
            "ceph config set mon mon_mgr_beacon_grace {GRACE_S}; \
             ceph config set mgr mgr/prometheus/scrape_interval 1"
        ))?;
        Ok(this)
    }

    fn ceph(&self, line: &str) -> Result<String> {
        sh::output(&mut self.cluster.client(SUITE, &format!("set -e; {line}")))
    }

    fn json(&self, command: &str) -> Result<Value> {
        let text = self.ceph(&format!("ceph {command} -f json"))?;
        serde_json::from_str(text.trim()).with_context(|| format!("{command}: {text}"))
    }

    fn wait(&self, what: &str, mut is: impl FnMut() -> Result<bool>) -> Result<()> {
        let end = sh::now() + Duration::from_secs(WAIT_S);
        while !is()? {
            ensure!(sh::now() < end, "no {what} within {WAIT_S} s: {}", self.ceph("ceph -s")?);
            std::thread::sleep(Duration::from_millis(300));
        }
        Ok(())
    }

    /// The active manager and how many wait, once it serves.
    fn serving(&self) -> Result<(String, u64)> {
        let stat = self.json("mgr stat")?;
        let name = stat["active_name"].as_str().unwrap_or_default().to_owned();
        let is_process = self.cluster.pids()?.iter().any(|(n, _)| *n == format!("mgr.{name}"));
        let available = stat["available"] == true && is_process;
        Ok((
            if available { name } else { String::new() },
            stat["num_standby"].as_u64().unwrap_or(0),
        ))
    }

    fn served(&self, standbys: u64) -> Result<String> {
        let mut active = String::new();
        self.wait(&format!("active manager and {standbys} that wait"), || {
            let (name, waiting) = self.serving()?;
            active.clone_from(&name);
            Ok(!name.is_empty() && waiting == standbys)
        })?;
        Ok(active)
    }

    fn pid(&self, name: &str) -> Result<u32> {
        let pids = self.cluster.pids()?;
        let found = pids.into_iter().find(|(n, _)| n == name);
        found.map(|(_, pid)| pid).with_context(|| format!("{name} has no pid"))
    }

    /// Where `mgr services` says that metrics are.
    fn url(&self) -> Result<String> {
        let mut url = None;
        self.wait("URL of metrics", || {
            let services = self.json("mgr services")?;
            url = services["prometheus"].as_str().map(str::to_owned);
            Ok(url.is_some())
        })?;
        url.context("waited for it")
    }

    /// The metrics, once they are there.
    fn scrape(&self) -> Result<String> {
        let url = self.url()?;
        let at = url.trim_start_matches("http://").trim_end_matches('/').to_owned();
        let mut text = String::new();
        self.wait("metrics", || {
            let Ok((status, body)) = get(&at, "/metrics") else { return Ok(false) };
            text = body;
            Ok(status == 200 && !text.is_empty())
        })?;
        Ok(text)
    }

    /// Commands that go to the manager, and such that come to a monitor, as a stock client sends
    /// them.
    fn commands(&self) -> Result<()> {
        let active = self.served(1)?;
        let line = format!(
            "ceph tell mgr.{active} version | grep -q 20.2.4; \
             ceph tell mgr status | grep -q '\"state\": \"active\"'; \
             ceph tell mgr.{active} config get mgr_tick_period | grep -q 2; \
             ceph mgr dump | grep -q available_modules; \
             ceph mgr metadata {active} | grep -q ceph_version; \
             test $(ceph mgr metadata -f json | grep -o hostname | wc -l) = 2; \
             ceph -s | grep -q 'mgr: {active}(active, since'; \
             ceph mgr module ls | grep -q 'prometheus *on'; \
             ceph mgr fail nobody 2>&1 | grep -q 'Daemon not found'; \
             ceph prometheus file_sd_config | grep -q targets; \
             ceph healthcheck history ls >/dev/null; \
             python3 -c '
import json, rados
with rados.Rados(conffile=\"\") as c:
    for cmd in [\"pg stat\", \"balancer status\", \"rbd task list\", \"progress json\"]:
        r, out, rs = c.mgr_command(json.dumps({{\"prefix\": cmd}}), b\"\")
        assert r == 0, (cmd, r, rs)
    r, out, rs = c.mgr_command(json.dumps({{\"prefix\": \"osd dump\"}}), b\"\")
    assert r == -22 and \"No handler\" in rs, (r, rs)
'"
        );
        self.ceph(&line).map(drop)
    }

    /// What each daemon counts, as `argonaut exporter` serves it: every daemon answers, and writes
    /// count as often as they were made.
    fn exporter(&self) -> Result<()> {
        const WRITES: u32 = 40;
        let dir = &self.cluster.dir;
        let conf = dir.join("exporter.conf");
        let text = std::fs::read_to_string(self.cluster.conf())?;
        // A port that is free now; the next one is taken where it is not any more.
        let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let own = "exporter addr = 127.0.0.1\nexporter stats period = 1\n";
        std::fs::write(&conf, format!("{text}\n[client]\n{own}exporter http port = {port}\n"))?;
        let mut command = Command::new(cluster::binary()?);
        command.args(["exporter", "--sock-dir"]).arg(dir.join("run")).arg("-c").arg(&conf);
        let _exporter = Running(command.spawn().context("argonaut exporter")?);
        let at = format!("127.0.0.1:{port}");
        let mut text = String::new();
        let mut seen = |name: &str| {
            let Ok((200, body)) = get(&at, "/metrics") else { return None };
            text = body;
            let samples = text.lines().filter(|l| l.starts_with(&format!("{name}{{")));
            Some(
                samples
                    .filter_map(|l| l.rsplit(' ').next()?.parse::<f64>().ok())
                    .collect::<Vec<_>>(),
            )
        };
        let mut before = 0.0;
        self.wait("every daemon to be up", || {
            before = seen("ceph_osd_op_w").unwrap_or_default().iter().sum();
            // Three monitors, three OSDs, two managers, which tell of their process.
            Ok(seen("ceph_daemon_socket_up").is_some_and(|up| up == [1.0; 8]))
        })?;
        self.ceph(&format!(
            "ceph osd pool create counted 8; ceph osd pool application enable counted x; \
             for i in $(seq {WRITES}); do rados -p counted put o$i /etc/hostname; done"
        ))?;
        self.wait("all writes to be counted", || {
            let now: f64 = seen("ceph_osd_op_w").unwrap_or_default().iter().sum();
            ensure!(now <= before + 2.0 * f64::from(WRITES), "{now} writes, {before} before");
            Ok(now >= before + f64::from(WRITES))
        })
    }

    /// Who may not, is refused by the manager itself.
    fn caps(&self) -> Result<()> {
        let weak = format!("{MGR}; k={}/weak.keyring", self.cluster.dir.display());
        self.ceph(&format!(
            "{weak}; ceph auth get-or-create client.weak mon 'allow r' -o $k; \
             ! mgr client.weak $k 'pg stat' 2>/dev/null; \
             ceph auth caps client.weak mon 'allow r' mgr 'allow r'; \
             mgr client.weak $k 'pg stat' | grep -q pgs; \
             ! mgr client.weak $k 'balancer off' 2>/dev/null; \
             ! ceph -n client.weak -k $k tell mgr config show 2>/dev/null; \
             ceph auth rm client.weak"
        ))
        .map(drop)
    }

    fn load(&self) -> Result<()> {
        self.ceph(
            "ceph osd pool create data 16; ceph osd pool application enable data rados; \
             ceph osd pool create rbd 8; rbd pool init rbd; rbd create -s 64M rbd/one; \
             rados -p data bench 3 write -b 65536 --no-cleanup >/dev/null; \
             rados -p data bench 2 seq >/dev/null; ceph osd pool set-quota data max_objects 1000000",
        )
        .map(drop)
    }

    /// Each family of the recorded stock output is there, and values are those of the commands.
    fn values(&self) -> Result<()> {
        let recorded = sh::repo().join("vectors/mgr/prometheus-20.2.4.txt");
        let recorded = std::fs::read_to_string(recorded)?;
        // Statistics of the load have come, and nothing changes any more.
        let mut last = Value::Null;
        self.wait("end of changes", || {
            std::thread::sleep(Duration::from_secs(3));
            let df = self.json("df detail")?["pools"].clone();
            Ok(std::mem::replace(&mut last, df.clone()) == df)
        })?;
        std::thread::sleep(Duration::from_secs(3));
        let text = self.scrape()?;
        for line in recorded.lines().filter(|l| l.starts_with('#')) {
            ensure!(text.lines().any(|l| l == line), "{line} is missing");
        }
        let ours = samples(&text);
        let get = |key: &str| ours.get(key).copied().with_context(|| format!("no {key}"));
        let mut compared = 0;
        for pool in self.json("df detail")?["pools"].as_array().context("pools")? {
            let id = &pool["id"];
            for stat in [
                "stored",
                "objects",
                "rd",
                "rd_bytes",
                "wr",
                "wr_bytes",
                "bytes_used",
                "quota_objects",
            ] {
                let key = format!("ceph_pool_{stat}{{pool_id=\"{id}\"}}");
                let (own, theirs) = (get(&key)?, pool["stats"][stat].as_f64().context("a number")?);
                ensure!(near(own, theirs), "{key} is {own}, df says {theirs}");
                compared += 1;
            }
            ensure!(pool["name"] != "data" || pool["stats"]["wr"].as_f64() > Some(0.0), "no load");
        }
        let mut pgs: BTreeMap<String, u64> = BTreeMap::new();
        for pg in
            self.json("pg dump pgs_brief 2>/dev/null")?["pg_stats"].as_array().context("PGs")?
        {
            let id = pg["pgid"].as_str().unwrap_or_default().split('.').next().unwrap_or_default();
            *pgs.entry(id.to_owned()).or_default() += 1;
        }
        for (pool, count) in pgs {
            let key = format!("ceph_pg_total{{pool_id=\"{pool}\"}}");
            ensure!(near(get(&key)?, count as f64), "{key}: {count}");
            compared += 1;
        }
        let stats = self.json("df")?["stats"]["total_bytes"].as_f64().context("total")?;
        ensure!(near(get("ceph_cluster_total_bytes")?, stats), "total_bytes");
        ensure!(near(get("ceph_health_status")?, 0.0), "the cluster is healthy");
        for osd in 0..3 {
            ensure!(
                near(get(&format!("ceph_osd_up{{ceph_daemon=\"osd.{osd}\"}}"))?, 1.0),
                "osd.{osd}"
            );
        }
        ensure!(text.contains("image_name=\"one\""), "the image is not named");
        println!("  {} samples, {compared} values of df and pg dump compared", ours.len());
        Ok(())
    }

    /// What a health check says reaches the metrics.
    fn health(&self) -> Result<()> {
        self.ceph("ceph osd set noout")?;
        let key = "ceph_health_detail{name=\"OSDMAP_FLAGS\",severity=\"HEALTH_WARN\"}";
        let seen = |value: f64| {
            self.wait("health check in the metrics", || {
                Ok(samples(&self.scrape()?).get(key).is_some_and(|v| near(*v, value)))
            })
        };
        seen(1.0)?;
        ensure!(self.ceph("ceph healthcheck history ls")?.contains("OSDMAP_FLAGS"), "not listed");
        self.ceph("ceph osd unset noout")?;
        seen(0.0)
    }

    /// The active manager is killed, and nobody starts it: the other takes over, the first and its
    /// clients are shut out.
    fn killed(&self) -> Result<()> {
        let first = self.served(1)?;
        let before = self.json("osd blocklist ls 2>/dev/null")?.as_array().map_or(0, Vec::len);
        let supervisor = self.pid("supervise")?.to_string();
        sh::run(Command::new("kill").args(["-STOP", &supervisor]))?;
        let pid = self.pid(&format!("mgr.{first}"))?.to_string();
        sh::run(Command::new("kill").args(["-KILL", &pid]))?;
        let start = sh::now();
        let taken = self.wait("other active manager", || {
            let (name, _) = self.serving()?;
            Ok(!name.is_empty() && name != first)
        });
        let took = (sh::now() - start).as_secs_f64();
        let scraped = taken.and_then(|()| self.scrape());
        sh::run(Command::new("kill").args(["-CONT", &supervisor]))?;
        let text = scraped?;
        println!("  mgr.{first} was replaced after {took:.1} s");
        ensure!(samples(&text).len() > 100, "the new one serves few metrics");
        let after = self.json("osd blocklist ls 2>/dev/null")?.as_array().map_or(0, Vec::len);
        ensure!(after >= before + 2, "{before} blocklist entries became {after}");
        self.ceph(&format!("{MGR}; ceph rbd task list >/dev/null; {PG_STAT} >/dev/null"))?;
        self.served(1).map(drop)
    }

    /// `mgr fail` has the other one serve, and the first one wait.
    fn failed(&self) -> Result<()> {
        let first = self.served(1)?;
        self.ceph("ceph mgr fail")?;
        self.wait("other active manager", || {
            let (name, standbys) = self.serving()?;
            Ok(!name.is_empty() && name != first && standbys == 1)
        })?;
        ensure!(samples(&self.scrape()?).len() > 100, "the new one serves few metrics");
        Ok(())
    }

    /// Without a manager health says so, and light commands are answered.
    fn without(&self) -> Result<()> {
        for name in ["mgr.x", "mgr.y"] {
            self.cluster.argonaut("stop", &[name])?;
        }
        self.wait("MGR_DOWN", || Ok(self.ceph("ceph health detail")?.contains("MGR_DOWN")))?;
        self.ceph(&format!(
            "{MGR}; ceph pg stat | grep -q pgs; ceph balancer status >/dev/null; {PG_STAT} >/dev/null"
        ))?;
        for name in ["mgr.x", "mgr.y"] {
            self.cluster.argonaut("start", &[name])?;
        }
        self.served(1)?;
        self.wait("end of MGR_DOWN", || Ok(!self.ceph("ceph health detail")?.contains("MGR_DOWN")))
    }

    /// A monitor that leads dies: the manager goes on with the next one.
    fn leader_lost(&self) -> Result<()> {
        let active = self.served(1)?;
        let leader =
            self.json("quorum_status")?["quorum_leader_name"].as_str().unwrap_or("a").to_owned();
        let pid = self.pid(&format!("mon.{leader}"))?.to_string();
        sh::run(Command::new("kill").args(["-KILL", &pid]))?;
        self.wait("manager after another election", || {
            let answered = self.ceph(&format!("{MGR}; {PG_STAT}; timeout 20 ceph rbd task list"));
            Ok(answered.is_ok_and(|text| text.contains("pgs")))
        })?;
        ensure!(self.served(1)? == active, "the manager changed with the leading monitor");
        Ok(())
    }

    /// An account of the dashboard is made, changed and removed as Rook's operator does it, by a stock client;
    /// then the dashboard moves to plain HTTP, as the options say, and asks who comes to log in.
    fn dashboard(&self) -> Result<()> {
        let file = format!("{}.password", self.cluster.dir.display());
        let made = self.ceph(&format!(
            "f={file}; printf 'rook-secret-1' > $f; \
             ceph dashboard ac-user-show 2>&1 | grep -q 'ceph mgr module enable dashboard'; \
             ceph mgr module enable dashboard; \
             for i in $(seq 60); do ceph mgr services | grep -q dashboard && break; sleep 0.5; done; \
             ceph dashboard create-self-signed-cert | grep -q 'Self-signed certificate created'; \
             ceph dashboard ac-user-create admin -i $f administrator | grep -q '\"roles\": \\[\"administrator\"\\]'; \
             ceph dashboard ac-user-create admin -i $f administrator | grep -q 'already exists'; \
             ceph dashboard ac-user-set-password admin -i $f --force-password | grep -q lastUpdate; \
             ceph dashboard ac-user-show admin | grep -q '\"enabled\": true'; \
             ceph dashboard ac-role-show | grep -q smb-manager; \
             ceph dashboard ac-role-show read-only | grep -q scopes_permissions; \
             ceph config-key get mgr/dashboard/crt | openssl x509 -noout -subject | grep -q ceph-dashboard; \
             ceph config-key get mgr/dashboard/crt > $f.crt; ceph config-key get mgr/dashboard/key > $f.key; \
             ceph dashboard set-ssl-certificate -i $f.crt | grep -q 'SSL certificate updated'; \
             ceph dashboard set-ssl-certificate-key -i $f.key | grep -q 'SSL certificate key updated'; \
             openssl verify -CAfile $f.crt $f.crt; \
             ceph dashboard ac-user-delete admin | grep -q \"User 'admin' deleted\"; \
             ! ceph auth get client.dashboard.admin 2>/dev/null; \
             ceph config set mgr mgr/dashboard/ssl false"
        ));
        self.ceph(&format!("rm -f {file} {file}.crt {file}.key"))?;
        made?;
        let mut at = String::new();
        self.wait("dashboard on plain HTTP", || {
            let url =
                self.json("mgr services")?["dashboard"].as_str().unwrap_or_default().to_owned();
            at = url.trim_start_matches("http://").trim_end_matches('/').to_owned();
            Ok(url.starts_with("http://"))
        })?;
        let (status, page) = get(&at, "/login")?;
        ensure!(status == 200 && page.contains("ac-user-create"), "{status}: {page}");
        ensure!(get(&at, "/")?.0 == 303, "pages are shown without a login");
        // The other manager, at the next free port, sends browsers here.
        let (host, port) = at.rsplit_once(':').context("a port")?;
        let next = format!("{host}:{}", port.parse::<u16>()? + 1);
        self.wait("redirect of the manager that waits", || {
            let Ok(mut stream) = TcpStream::connect(&next) else { return Ok(false) };
            write!(stream, "GET /osds HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            Ok(answer.contains(&format!("location: http://{at}/")))
        })?;
        self.ceph("ceph mgr module disable dashboard").map(drop)
    }

    /// Crash reports are kept, listed, archived, and warned of.
    fn crashes(&self) -> Result<()> {
        self.ceph(
            "id=$(date -u +%Y-%m-%dT%H:%M:%S.000000Z)_1; \
             printf '{\"crash_id\": \"%s\", \"timestamp\": \"%s\", \"entity_name\": \"osd.0\", \
             \"utsname_hostname\": \"h1\", \"process_name\": \"ceph-osd\", \"backtrace\": []}' \
             \"$id\" \"${id%_1}\" | ceph crash post -i -; \
             ceph crash ls | grep -q \"$id *osd.0 *\\*\"; ceph crash info $id | grep -q stack_sig; \
             for i in $(seq 20); do ceph health | grep -q 'recently crashed' && break; sleep 0.5; done; \
             ceph health detail | grep -q 'osd.0 crashed on host h1'; \
             ceph crash archive $id; test -z \"$(ceph crash ls-new)\"; ceph crash rm $id; \
             test \"$(ceph crash stat)\" = '0 crashes recorded'",
        )
        .map(drop)
    }
}

fn near(a: f64, b: f64) -> bool {
    (a - b).abs() <= b.abs() * 1e-9
}

fn samples(text: &str) -> Samples {
    let lines = text.lines().filter(|l| !l.starts_with('#'));
    lines
        .filter_map(|l| l.rsplit_once(' '))
        .filter_map(|(k, v)| Some((k.to_owned(), v.parse().ok()?)))
        .collect()
}

/// Status and body of a page.
/// A program that ends with the test.
struct Running(std::process::Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn get(at: &str, path: &str) -> Result<(u16, String)> {
    let mut stream = TcpStream::connect(at)?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").context("no end of the head")?;
    let status = head.split(' ').nth(1).and_then(|s| s.parse().ok()).context("no status")?;
    Ok((status, body.to_owned()))
}

/// Two managers, a stock client, kills and failovers.
///
/// # Errors
/// When the cluster does not start; failed cases are in the report.
pub fn run() -> Result<Report> {
    let mut report = Report::default();
    lab::root(SUITE)?;
    let managers = Managers::up()?;
    report.check("one serves and one waits", || managers.served(1).map(drop));
    report.check("commands by both ways", || managers.commands());
    report.check("who may not is refused", || managers.caps());
    report.check("counters of all daemons of a host", || managers.exporter());
    report.check("a load", || managers.load());
    report.check("metrics are stock's families with our values", || managers.values());
    report.check("health in the metrics", || managers.health());
    report.check("kill -9 of the active manager", || managers.killed());
    report.check("ceph mgr fail", || managers.failed());
    report.check("kill -9 of the leading monitor", || managers.leader_lost());
    report.check("without a manager", || managers.without());
    report.check("crash reports", || managers.crashes());
    report.check("the dashboard's commands", || managers.dashboard());
    Ok(report)
}
