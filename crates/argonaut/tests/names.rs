//! A cluster by Ceph's names alone: links to the binary, and the command lines of upstream's manual
//! deployment page. Upstream's `ceph` talks to it.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_macros,
    reason = "a test waits for real processes"
)]

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const NAMES: [&str; 13] = [
    "ceph-mon",
    "ceph-osd",
    "ceph-mgr",
    "ceph-mds",
    "radosgw",
    "ceph-authtool",
    "monmaptool",
    "ceph-conf",
    "ceph-bluestore-tool",
    "ceph-objectstore-tool",
    "ceph-exporter",
    "ceph-crash",
    "crushtool",
];
const FSID: &str = "a7f64266-0894-4f1e-a635-d0aeaca0e993";
const LIMIT: Duration = Duration::from_secs(90);

fn text(raw: &[u8]) -> String {
    String::from_utf8_lossy(raw).into_owned()
}

/// A directory with links, data and processes; all of them go with it.
struct Place {
    dir: PathBuf,
    running: Vec<(String, Child)>,
    /// Daemons that went to the background, by name.
    behind: Vec<(String, u32)>,
    /// The user that daemons become, where that can be tried.
    user: Option<u32>,
}

impl Place {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("argonaut-{name}-{}", std::process::id()));
        fs::remove_dir_all(&dir).ok();
        for part in ["bin", "run", "log", "mon", "osd", "mgr/ceph-x", "mds/ceph-a", "radosgw"] {
            fs::create_dir_all(dir.join(part)).unwrap();
        }
        for program in NAMES {
            symlink(env!("CARGO_BIN_EXE_argonaut"), dir.join("bin").join(program)).unwrap();
        }
        let passwd = fs::read_to_string("/etc/passwd").unwrap_or_default();
        let ceph = passwd.lines().find_map(|line| line.strip_prefix("ceph:x:")?.split(':').next());
        let is_root = fs::metadata("/proc/self")
            .is_ok_and(|meta| std::os::unix::fs::MetadataExt::uid(&meta) == 0);
        let user = ceph.and_then(|uid| uid.parse().ok()).filter(|_| is_root);
        Self { dir, running: Vec::new(), behind: Vec::new(), user }
    }

    fn path(&self, name: &str) -> String {
        self.dir.join(name).display().to_string()
    }

    /// A command line, with `$D` for the directory.
    fn command(&self, line: &[&str]) -> Command {
        let words: Vec<String> =
            line.iter().map(|word| word.replace("$D", &self.dir.display().to_string())).collect();
        let own = self.dir.join("bin").join(&words[0]);
        let mut command = if own.exists() { Command::new(own) } else { Command::new(&words[0]) };
        command.args(&words[1..]).env("CEPH_CONF", self.dir.join("ceph.conf")).current_dir("/");
        command
    }

    fn output(&self, line: &[&str], input: &str) -> Output {
        let mut command = self.command(line);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|err| panic!("{}: {err}", line[0]));
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        child.wait_with_output().unwrap()
    }

    fn run(&self, line: &[&str], input: &str) -> String {
        let out = self.output(line, input);
        let told = text(&out.stderr);
        assert!(out.status.success(), "{line:?}: {:?} {}{told}", out.status, text(&out.stdout));
        text(&out.stdout)
    }

    fn ceph(&self, words: &[&str]) -> String {
        self.run(&[&["ceph", "-c", "$D/ceph.conf", "--connect-timeout", "60"], words].concat(), "")
    }

    fn own(&self, dir: &str) {
        if self.user.is_some() {
            self.run(&["chown", "-R", "ceph:ceph", dir], "");
        }
    }

    /// Starts a daemon as its unit does.
    fn start(&mut self, line: &[&str]) {
        let mut line = line.to_vec();
        if self.user.is_some() {
            line.extend(["--setuser", "ceph", "--setgroup", "ceph"]);
        }
        let child = self.command(&line).stdin(Stdio::null()).spawn().unwrap();
        self.running.push((line.join(" "), child));
    }

    fn until(&mut self, what: &str, mut is_so: impl FnMut(&Self) -> bool) {
        let end = Instant::now() + LIMIT;
        while !is_so(self) {
            for (line, child) in &mut self.running {
                let ended = child.try_wait().unwrap();
                assert!(ended.is_none(), "{line}: {ended:?} before {what}");
            }
            if Instant::now() > end {
                let told = self.output(&["ceph", "-c", "$D/ceph.conf", "-s"], "");
                panic!("{what}: not within {LIMIT:?}\n{}", text(&told.stdout));
            }
            std::thread::sleep(Duration::from_millis(300));
        }
    }

    /// SIGTERM to each daemon; all of them end.
    fn stop(&mut self) {
        let own = self.running.iter().map(|(_, child)| child.id());
        let pids: Vec<u32> = own.chain(self.behind.iter().map(|(_, pid)| *pid)).collect();
        for pid in &pids {
            Command::new("kill").args(["-TERM", &pid.to_string()]).status().unwrap();
        }
        let end = Instant::now() + Duration::from_secs(40);
        for (line, mut child) in self.running.drain(..) {
            while child.try_wait().unwrap().is_none() {
                assert!(Instant::now() < end, "{line} does not end on SIGTERM");
                std::thread::sleep(Duration::from_millis(50));
            }
            assert!(child.wait().unwrap().success(), "{line}");
        }
        for (name, pid) in self.behind.drain(..) {
            while is_alive(pid) {
                assert!(Instant::now() < end, "{name} does not end on SIGTERM");
                std::thread::sleep(Duration::from_millis(50));
            }
        }
    }
}

/// A child of nobody here that has ended may wait for whoever takes it in.
fn is_alive(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')').next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with(" Z"))
}

impl Drop for Place {
    fn drop(&mut self) {
        for (_, child) in &mut self.running {
            child.kill().ok();
            child.wait().ok();
        }
        for (_, pid) in &self.behind {
            Command::new("kill").args(["-KILL", &pid.to_string()]).status().ok();
        }
        if std::thread::panicking() {
            for entry in fs::read_dir(self.dir.join("log")).into_iter().flatten().flatten() {
                let log = fs::read_to_string(entry.path()).unwrap_or_default();
                let lines: Vec<&str> = log.lines().collect();
                let last = lines[lines.len().saturating_sub(8)..].join("\n");
                eprintln!("== {}\n{last}", entry.path().display());
            }
        }
        fs::remove_dir_all(&self.dir).ok();
    }
}

fn port() -> u16 {
    std::env::var("ARGONAUT_TEST_PORT").ok().and_then(|port| port.parse().ok()).unwrap_or(25500)
}

fn conf(place: &Place) -> String {
    let (dir, at) = (place.dir.display(), port());
    format!(
        "[global]
fsid = {FSID}
mon initial members = node1
mon host = [v2:127.0.0.1:{at},v1:127.0.0.1:{}]
public addr = 127.0.0.1
cluster addr = 127.0.0.1
run dir = {dir}/run
log file = {dir}/log/$cluster-$name.log
osd pool default size = 2
osd crush chooseleaf type = 0
osd pool default pg autoscale mode = off
osd pool default pg num = 8
mon max pg per osd = 2000
keyring = {dir}/ceph.client.admin.keyring
[mon]
mon data avail warn = 0
mon data = {dir}/mon/$cluster-$id
keyring = {dir}/mon/$cluster-$id/keyring
[osd]
osd data = {dir}/osd/$cluster-$id
keyring = {dir}/osd/$cluster-$id/keyring
osd device bytes = 4G
osd memory target = 512M
[mgr]
mgr data = {dir}/mgr/$cluster-$id
keyring = {dir}/mgr/$cluster-$id/keyring
pid file = {dir}/run/$name.pid
[mds]
mds data = {dir}/mds/$cluster-$id
keyring = {dir}/mds/$cluster-$id/keyring
[client.rgw.a]
keyring = {dir}/radosgw/keyring
rgw frontends = beast endpoint=127.0.0.1:{}
[client]
admin socket =
",
        at + 1,
        at + 2
    )
}

/// Keys, monitor map and the first monitor.
fn monitor(place: &mut Place) {
    let run = |line: &[&str]| place.run(line, "");
    run(&[
        "ceph-authtool",
        "--create-keyring",
        "$D/ceph.mon.keyring",
        "--gen-key",
        "-n",
        "mon.",
        "--cap",
        "mon",
        "allow *",
    ]);
    run(&[
        "ceph-authtool",
        "--create-keyring",
        "$D/ceph.client.admin.keyring",
        "--gen-key",
        "-n",
        "client.admin",
        "--cap",
        "mon",
        "allow *",
        "--cap",
        "osd",
        "allow *",
        "--cap",
        "mds",
        "allow *",
        "--cap",
        "mgr",
        "allow *",
    ]);
    run(&[
        "ceph-authtool",
        "--create-keyring",
        "$D/bootstrap-osd.keyring",
        "--gen-key",
        "-n",
        "client.bootstrap-osd",
        "--cap",
        "mon",
        "profile bootstrap-osd",
        "--cap",
        "mgr",
        "allow r",
    ]);
    run(&[
        "ceph-authtool",
        "$D/ceph.mon.keyring",
        "--import-keyring",
        "$D/ceph.client.admin.keyring",
    ]);
    run(&["ceph-authtool", "$D/ceph.mon.keyring", "--import-keyring", "$D/bootstrap-osd.keyring"]);
    let at = port();
    let addrs = format!("[v2:127.0.0.1:{at},v1:127.0.0.1:{}]", at + 1);
    let made =
        run(&["monmaptool", "--create", "--addv", "node1", &addrs, "--fsid", FSID, "$D/monmap"]);
    assert!(
        made.ends_with(&format!("writing epoch 0 to {} (1 monitors)\n", place.path("monmap"))),
        "{made}"
    );
    fs::create_dir(place.dir.join("mon/ceph-node1")).unwrap();
    run(&[
        "ceph-mon",
        "--mkfs",
        "-i",
        "node1",
        "--monmap",
        "$D/monmap",
        "--keyring",
        "$D/ceph.mon.keyring",
    ]);
    let again = place.output(&["ceph-mon", "--mkfs", "-i", "node1"], "");
    assert!(again.status.success() && text(&again.stderr).contains("monitor may already exist"));
    run(&["ceph-mon", "-i", "node1", "--extract-monmap", "$D/extracted"]);
    let shown = run(&["monmaptool", "--print", "$D/extracted"]);
    assert!(
        shown.contains(FSID) && shown.contains(&format!("0: [v2:127.0.0.1:{at}/0,")),
        "{shown}"
    );
    for dir in ["mon", "osd", "mgr", "mds", "radosgw", "run", "log"] {
        place.own(&place.path(dir));
    }
    place.start(&["ceph-mon", "-f", "--cluster", "ceph", "--id", "node1"]);
    let fsid = place.ceph(&["fsid"]);
    assert_eq!(fsid.trim(), FSID);
}

/// An OSD as the page's long form makes it.
fn osd(place: &mut Place) -> String {
    let uuid = fs::read_to_string("/proc/sys/kernel/random/uuid").unwrap();
    let uuid = uuid.trim();
    let secret = place.run(&["ceph-authtool", "--gen-print-key"], "");
    let secret = secret.trim();
    let id = place.run(
        &[
            "ceph",
            "-c",
            "$D/ceph.conf",
            "osd",
            "new",
            uuid,
            "-i",
            "-",
            "-n",
            "client.bootstrap-osd",
            "-k",
            "$D/bootstrap-osd.keyring",
        ],
        &format!("{{\"cephx_secret\": \"{secret}\"}}"),
    );
    let id = id.trim().to_owned();
    let data = place.path(&format!("osd/ceph-{id}"));
    fs::create_dir(&data).unwrap();
    let keyring = format!("{data}/keyring");
    let name = format!("osd.{id}");
    place.run(
        &["ceph-authtool", "--create-keyring", &keyring, "--name", &name, "--add-key", secret],
        "",
    );
    place.run(&["ceph-osd", "-i", &id, "--mkfs", "--osd-uuid", uuid], "");
    place.run(&["ceph-osd", "-i", &id, "--mkfs", "--osd-uuid", uuid], ""); // done already
    let other = place.output(&["ceph-osd", "-i", &id, "--mkfs", "--osd-uuid", FSID], "");
    assert_eq!(other.status.code(), Some(1), "{}", text(&other.stderr));
    let told = |flag: &str| place.run(&["ceph-osd", "-i", &id, flag], "").trim().to_owned();
    assert_eq!((told("--get-osd-fsid"), told("--get-cluster-fsid")), (uuid.into(), FSID.into()));
    let device = format!("{data}/block");
    assert_eq!(place.run(&["ceph-osd", "--get-device-fsid", &device], "").trim(), uuid);
    let file = |name: &str| fs::read_to_string(format!("{data}/{name}")).unwrap();
    assert_eq!(
        ["fsid", "whoami", "type", "ceph_fsid"].map(file),
        [format!("{uuid}\n"), format!("{id}\n"), "bluestore\n".into(), format!("{FSID}\n")]
    );
    place.own(&data);
    place.start(&["ceph-osd", "-f", "--cluster", "ceph", "--id", &id]);
    id
}

fn get(port: u16) -> Option<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
    stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer)
}

#[test]
fn a_cluster_by_names_and_the_manual_pages_lines() {
    let mut place = Place::new("names");
    fs::write(place.dir.join("ceph.conf"), conf(&place)).unwrap();
    let looked_up = place.run(&["ceph-conf", "--name", "osd.7", "--lookup", "osd data"], "");
    assert_eq!(looked_up.trim(), place.path("osd/ceph-7"));
    monitor(&mut place);

    place.ceph(&[
        "auth",
        "get-or-create",
        "mgr.x",
        "mon",
        "allow profile mgr",
        "osd",
        "allow *",
        "mds",
        "allow *",
        "-o",
        &place.path("mgr/ceph-x/keyring"),
    ]);
    place.own(&place.path("mgr"));
    // Without -f it is in the background once it serves.
    let line = ["ceph-mgr", "-i", "x", "--setuser", "ceph", "--setgroup", "ceph"];
    place.run(if place.user.is_some() { &line } else { &line[..3] }, "");
    let pid: u32 = fs::read_to_string(place.path("run/mgr.x.pid")).unwrap().trim().parse().unwrap();
    place.behind.push(("ceph-mgr".to_owned(), pid));
    if let Some(user) = place.user {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let uids = status.lines().find(|line| line.starts_with("Uid:")).unwrap();
        assert_eq!(uids.split_whitespace().skip(1).collect::<Vec<_>>(), vec![user.to_string(); 4]);
    }

    let ids = [osd(&mut place), osd(&mut place)];
    assert_eq!(ids, ["0", "1"]);
    let keyring = place.path("mds/ceph-a/keyring");
    place.run(&["ceph-authtool", "--create-keyring", &keyring, "--gen-key", "-n", "mds.a"], "");
    place.ceph(&[
        "auth",
        "add",
        "mds.a",
        "osd",
        "allow rwx",
        "mds",
        "allow *",
        "mon",
        "allow profile mds",
        "-i",
        &keyring,
    ]);
    place.own(&place.path("mds"));
    let mon = format!("127.0.0.1:{}", port());
    place.start(&["ceph-mds", "--cluster", "ceph", "-i", "a", "-m", &mon, "-f"]);
    place.ceph(&["osd", "pool", "create", "cephfs_data", "8"]);
    place.ceph(&["osd", "pool", "create", "cephfs_metadata", "8"]);
    place.ceph(&["fs", "new", "cephfs", "cephfs_metadata", "cephfs_data"]);
    place.ceph(&[
        "auth",
        "get-or-create",
        "client.rgw.a",
        "mon",
        "allow rw",
        "osd",
        "allow rwx",
        "-o",
        &place.path("radosgw/keyring"),
    ]);
    place.own(&place.path("radosgw"));
    place.start(&["radosgw", "-f", "--cluster", "ceph", "--name", "client.rgw.a"]);

    place.until("S3 is served", |_| {
        get(port() + 2).is_some_and(|answer| answer.contains("ListAllMyBucketsResult"))
    });
    place.until("the file system has its server", |place| {
        place.ceph(&["fs", "status"]).contains("active")
    });
    place.until("health is OK", |place| place.ceph(&["health"]).starts_with("HEALTH_OK"));
    let status = place.ceph(&["-s"]);
    for part in ["mgr: x(active", "osd: 2 osds: 2 up", "mds: 1/1 daemons up"] {
        assert!(status.contains(part), "{part}: {status}");
    }
    crash(&place);
    place.run(&["ceph", "-c", "$D/ceph.conf", "osd", "getcrushmap", "-o", "$D/crush"], "");
    let crush = place.run(&["crushtool", "-d", "$D/crush"], "");
    assert!(crush.contains("device 1 osd.1") && crush.ends_with("# end crush map\n"), "{crush}");
    place.stop();
    store_tools(&place);
}

/// A report in the crash directory comes to the cluster.
fn crash(place: &Place) {
    let crash = place.dir.join("crash/one");
    fs::create_dir_all(&crash).unwrap();
    let report = r#"{"crash_id": "2026-11-30T09:00:00.000000Z_a7f64266-0894-4f1e-a635-d0aeaca0e993",
        "timestamp": "2026-11-30T09:00:00.000000Z", "entity_name": "osd.9", "backtrace": ["one"],
        "utsname_hostname": "h"}"#;
    fs::write(crash.join("meta"), report).unwrap();
    place.run(&["ceph-crash", "-p", "$D/crash", "-d", "0", "-n", "client.admin"], "");
    assert!(crash.exists(), "nothing is brought before it is whole");
    fs::write(crash.join("done"), "").unwrap();
    place.run(&["ceph-crash", "-p", "$D/crash", "-d", "0", "-n", "client.admin"], "");
    assert!(!crash.exists() && place.dir.join("crash/posted/one/meta").exists());
    assert!(place.ceph(&["crash", "ls"]).contains("osd.9"));
}

/// What ceph-volume and people do with the device of an OSD that is down.
fn store_tools(place: &Place) {
    let run = |line: &[&str]| place.run(line, "");
    let block = place.path("osd/ceph-0/block");
    let label = run(&["ceph-bluestore-tool", "show-label", "--dev", &block]);
    for part in [
        format!("{{\n    \"{block}\": {{\n        \"osd_uuid\": \""),
        format!("        \"ceph_fsid\": \"{FSID}\",\n"),
        "        \"magic\": \"ceph osd volume v026\",\n".to_owned(),
        "        \"whoami\": \"0\"\n    }\n}\n".to_owned(),
    ] {
        assert!(label.contains(&part), "{part}: {label}");
    }
    fs::create_dir(place.dir.join("prime")).unwrap();
    run(&[
        "ceph-bluestore-tool",
        "--cluster=ceph",
        "prime-osd-dir",
        "--dev",
        &block,
        "--path",
        "$D/prime",
        "--no-mon-config",
    ]);
    let read = |name: &str| fs::read_to_string(place.path(name)).unwrap();
    for name in ["fsid", "ceph_fsid", "whoami", "type"] {
        assert_eq!(read(&format!("prime/{name}")), read(&format!("osd/ceph-0/{name}")), "{name}");
    }
    let printed = |file: &str| place.run(&["ceph-authtool", "-p", file, "-n", "osd.0"], "");
    assert_eq!(printed("$D/prime/keyring"), printed("$D/osd/ceph-0/keyring"));
    run(&["ceph-bluestore-tool", "set-label-key", "--dev", &block, "-k", "foo", "-v", "bar"]);
    assert!(
        run(&["ceph-bluestore-tool", "show-label", "--path", "$D/osd/ceph-0"])
            .contains("\"foo\": \"bar\"")
    );
    run(&["ceph-bluestore-tool", "rm-label-key", "--dev", &block, "-k", "foo"]);
    assert_eq!(run(&["ceph-bluestore-tool", "fsck", "--path", "$D/osd/ceph-0"]), "fsck success\n");

    let tool = |words: &[&str]| {
        place.output(
            &[&["ceph-objectstore-tool", "--data-path", "$D/osd/ceph-0"], words].concat(),
            "",
        )
    };
    let all = tool(&["--op", "list"]);
    // An object of the gateway's zone, which both OSDs have.
    let line = text(&all.stdout)
        .lines()
        .find(|line| line.contains("\"oid\":\"zone_info."))
        .map(str::to_owned);
    let line = line.unwrap_or_else(|| panic!("{}{}", text(&all.stdout), text(&all.stderr)));
    let pg = line.split('"').nth(1).unwrap().to_owned();
    let data = tool(&[&line, "get-bytes"]);
    assert!(data.status.success() && !data.stdout.is_empty(), "{}", text(&data.stderr));
    let has = || text(&tool(&["--op", "list-pgs"]).stdout).lines().any(|one| one == pg);
    assert!(has());
    let file = place.path("exported");
    assert!(tool(&["--op", "export", "--pgid", &pg, "--file", &file]).status.success());
    let refused = tool(&["--op", "remove", "--pgid", &pg]);
    assert_eq!((refused.status.code(), has()), (Some(1), true));
    assert!(tool(&["--op", "remove", "--pgid", &pg, "--force"]).status.success());
    assert!(!has());
    assert!(tool(&["--op", "import", "--file", &file]).status.success());
    assert_eq!(tool(&[&line, "get-bytes"]).stdout, data.stdout);
    assert_eq!(text(&tool(&["--op", "fsck"]).stdout), "fsck success\n");
    assert!(text(&tool(&["--op", "info"]).stderr).contains("is not built"));
    let told = text(&tool(&["--op", "export", "--pgid", "99.0", "--file", &file]).stderr);
    assert_eq!(told, "PG '99.0' not found\n");
}

/// What no program takes is refused with upstream's exit code and words.
#[test]
fn unknown_flags_are_refused() {
    let place = Place::new("names-refused");
    let refused = |line: &[&str], code: i32, words: &str| {
        let out = place.output(line, "");
        let told = text(&out.stderr);
        assert_eq!(out.status.code(), Some(code), "{line:?}: {told}");
        assert!(told.contains(words), "{line:?}: {told}");
    };
    refused(
        &["ceph-mon", "-c", "/dev/null", "-i", "a", "--bogus"],
        1,
        "too many arguments: [--bogus]",
    );
    refused(&["ceph-osd", "-c", "/dev/null", "-i", "0", "--bogus"], 1, "unrecognized arg --bogus");
    refused(&["ceph-osd", "-c", "/dev/null", "stray"], 1, "unrecognized arg stray");
    refused(
        &["ceph-osd", "-c", "/dev/null", "-i", "x"],
        1,
        "must specify '-i #' where # is the osd number",
    );
    refused(&["ceph-mgr", "-c", "/dev/null", "-i", "x", "--bogus"], 1, "unrecognized arg --bogus");
    refused(&["ceph-mds", "-c", "/dev/null"], 1, "must specify '-i name'");
    refused(&["radosgw", "-c", "/dev/null", "-n", "osd.1"], 1, "osd.1 is no name of");
    let file = "global_init: unable to open config file from search list /nonexist";
    refused(&["ceph-mds", "-c", "/nonexist", "-i", "a"], 1, file);
    refused(&["ceph-mon", "-i"], 1, "Option -i requires an argument.");
    let name = "error parsing 'bogus': expected string of the form TYPE.ID";
    refused(&["ceph-osd", "-c", "/dev/null", "-n", "bogus"], 1, name);
    refused(
        &["ceph-osd", "-c", "/dev/null", "-i", "0", "--show-config-value", "nope"],
        1,
        "option not found",
    );
    if place.user.is_some() {
        let line = [
            "ceph-osd",
            "-c",
            "/dev/null",
            "-i",
            "0",
            "-f",
            "--osd-data",
            "/nonexist",
            "--fsid",
            FSID,
            "--setuser",
            "nobodyx",
        ];
        refused(&line, 1, "unable to look up user 'nobodyx'");
    }
    refused(
        &["monmaptool", "--print", "/nonexist"],
        255,
        "couldn't open /nonexist: (2) No such file or directory",
    );
    refused(&["monmaptool", "--bogus", "m"], 1, "too many arguments");
    refused(&["monmaptool", "--add", "a", "bogus", "m"], 255, "invalid ip:port 'bogus'");
    refused(&["ceph-authtool", "k", "--bogus"], 1, "unexpected '--bogus'");
    refused(
        &["ceph-authtool", "/nonexist", "-l"],
        1,
        "can't open /nonexist: can't open /nonexist: (2)",
    );
    refused(&["ceph-conf", "-c", "/dev/null"], 1, "You must give an action");
    refused(&["ceph-bluestore-tool", "fsck"], 1, "must specify bluestore path");
    refused(&["ceph-bluestore-tool", "bogus", "--path", "/"], 1, "unrecognized action bogus");
    refused(
        &["ceph-bluestore-tool", "show-label", "--dev", "/nonexist"],
        1,
        "unable to read label",
    );
    refused(&["ceph-bluestore-tool", "zap-device", "--dev", "/nonexist"], 1, "DESTRUCTIVE");
    refused(&["ceph-bluestore-tool", "free-score", "--path", "/"], 1, "free-score is about");
    refused(&["ceph-objectstore-tool", "--op", "list"], 1, "Must provide --data-path");
    refused(
        &["ceph-objectstore-tool", "--data-path", "/nonexist", "--op", "list"],
        1,
        "data-path: /nonexist: No such file or directory",
    );
    refused(&["ceph-exporter", "-c", "/dev/null", "--bogus"], 1, "unrecognized arg --bogus");
    refused(&["ceph-crash", "-c", "/dev/null", "--bogus"], 1, "unrecognized arguments: --bogus");
    let shown = place
        .run(&["ceph-osd", "-c", "/dev/null", "-i", "7", "--show-config-value", "keyring"], "");
    assert_eq!(shown, "/var/lib/ceph/osd/ceph-7/keyring\n");
    for program in NAMES {
        assert!(place.run(&[program, "--version"], "").starts_with("ceph version 20.2.4 ("));
    }
    let argonaut =
        Command::new(env!("CARGO_BIN_EXE_argonaut")).args(["ceph-osd", "-v"]).output().unwrap();
    assert!(text(&argonaut.stdout).starts_with("ceph version "));
}

/// Files are upstream's to the byte, where its tools are there to compare: keyrings that both write
/// from the same keys, and what they print of the same map.
#[test]
fn files_are_read_back() {
    let place = Place::new("names-files");
    let key = "AQAaQ2dl+FnaLxAAGZwuWS2kKoIIU0pIVCWjtQ==";
    place.run(
        &[
            "ceph-authtool",
            "-C",
            "$D/k",
            "-n",
            "client.x",
            "--add-key",
            key,
            "--cap",
            "osd",
            "allow \"r\" 'x'",
            "--cap",
            "mon",
            "allow r",
        ],
        "",
    );
    place.run(&["ceph-authtool", "-C", "$D/k2", "-n", "mon.", "-a", key, "--mode", "0644"], "");
    place.run(&["ceph-authtool", "$D/k", "--import-keyring", "$D/k2"], "");
    let keyring = fs::read_to_string(place.path("k")).unwrap();
    let want = format!(
        "[mon.]\n\tkey = {key}\n[client.x]\n\tkey = {key}\n\tcaps mon = \"allow r\"\n\tcaps osd = \"allow \\\"r\\\" 'x'\"\n"
    );
    assert_eq!(keyring, want);
    let mode = |name: &str| {
        let meta = fs::metadata(place.path(name)).unwrap();
        std::os::unix::fs::PermissionsExt::mode(&meta.permissions()) & 0o777
    };
    assert_eq!((mode("k"), mode("k2")), (0o600, 0o644));
    let printed = place.run(&["ceph-authtool", "-p", "$D/k", "-n", "client.x"], "");
    assert_eq!(printed.trim(), key);

    place.run(
        &[
            "monmaptool",
            "--create",
            "--clobber",
            "--fsid",
            FSID,
            "--addv",
            "a",
            "[v2:127.0.0.1:25560,v1:127.0.0.1:25561]",
            "--add",
            "b",
            "127.0.0.2",
            "--add",
            "c",
            "127.0.0.3:3300",
            "$D/m",
        ],
        "",
    );
    let shown = place.run(&["monmaptool", "--print", "$D/m"], "");
    let ranks: Vec<&str> = shown.lines().filter(|line| line.contains(" mon.")).collect();
    assert_eq!(
        ranks,
        [
            "0: v1:127.0.0.2:6789/0 mon.b",
            "1: [v2:127.0.0.1:25560/0,v1:127.0.0.1:25561/0] mon.a",
            "2: v2:127.0.0.3:3300/0 mon.c"
        ]
    );
    place.run(&["monmaptool", "--rm", "b", "$D/m"], "");
    let twice = place.output(&["monmaptool", "--add", "a", "192.0.2.1", "$D/m"], "");
    assert!(text(&twice.stderr).starts_with("monmaptool: map already contains mon.a\n"));
    let upstream = Path::new("/usr/bin/ceph-authtool");
    if upstream.exists() {
        let path = place.path("theirs");
        let line = [
            "-C",
            &path,
            "-n",
            "client.x",
            "--add-key",
            key,
            "--cap",
            "osd",
            "allow \"r\" 'x'",
            "--cap",
            "mon",
            "allow r",
        ];
        assert!(Command::new(upstream).args(line).status().unwrap().success());
        let add = [
            "ceph-authtool",
            "-C",
            "$D/ours",
            "-n",
            "client.x",
            "--add-key",
            key,
            "--cap",
            "osd",
            "allow \"r\" 'x'",
            "--cap",
            "mon",
            "allow r",
        ];
        place.run(&add, "");
        let read = |name: &str| fs::read_to_string(place.path(name)).unwrap();
        assert_eq!(read("ours"), read("theirs"));
    }
}
