//! A cluster whose keys are all of kind `aes256k`; the keys of one that runs are rotated; and `argonaut
//! ceph` asks whoever is meant.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

struct Cluster(PathBuf);

impl Drop for Cluster {
    fn drop(&mut self) {
        let out = self.run(&["rm", "--yes", "--dir", &self.0.to_string_lossy()]);
        std::fs::remove_dir_all(self.beside("")).ok();
        assert!(out.status.success() || std::thread::panicking(), "{}", text(&out.stderr));
    }
}

fn text(raw: &[u8]) -> String {
    String::from_utf8_lossy(raw).into_owned()
}

impl Cluster {
    fn up(name: &str, port: &str, more: &[&str]) -> Self {
        let dir = std::env::temp_dir().join(format!("argonaut-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        let this = Self(dir);
        let path = this.0.to_string_lossy();
        let args = [
            "up",
            "--dir",
            &path,
            "--osds",
            "2",
            "--size",
            "2",
            "--osd-bytes",
            "1G",
            "--port",
            port,
        ];
        let out = this.run(&[&args[..], more].concat());
        assert!(out.status.success(), "{}{}", text(&out.stdout), text(&out.stderr));
        // It is to be healthy on a machine whose disk is mostly used, too.
        this.said(&["config", "set", "mon", "mon_data_avail_warn", "1"]);
        this
    }

    fn run(&self, args: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_argonaut")).args(args).output().unwrap()
    }

    /// A file that is not the cluster's.
    fn beside(&self, name: &str) -> PathBuf {
        let dir = self.0.with_extension("files");
        std::fs::create_dir_all(&dir).unwrap();
        dir.join(name)
    }

    fn conf(&self) -> String {
        self.0.join("ceph.conf").to_string_lossy().into_owned()
    }

    fn ceph(&self, words: &[&str]) -> Output {
        self.run(&[&["ceph", "-c", &self.conf()], words].concat())
    }

    /// What a command prints that is to succeed.
    fn said(&self, words: &[&str]) -> String {
        let out = self.ceph(words);
        assert!(out.status.success(), "{words:?}: {}{}", text(&out.stdout), text(&out.stderr));
        text(&out.stdout)
    }

    /// Rotates a key and puts it where the entity looks for it.
    fn rotate(&self, who: &str, file: &Path) {
        let new = self.said(&["auth", "rotate", who, "--key_type=aes256k", "-f", "plain"]);
        assert!(new.contains("key = Ag"), "{new}");
        std::fs::write(file, new).unwrap();
    }

    #[allow(clippy::disallowed_methods, reason = "it waits for real processes")]
    fn within(&self, secs: u64, what: &str, mut is: impl FnMut(&Self) -> bool) {
        let end = Instant::now() + Duration::from_secs(secs);
        while !is(self) {
            assert!(Instant::now() < end, "{what}: {}", text(&self.ceph(&["-s"]).stdout));
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    fn is_healthy(&self) -> bool {
        let out = self.ceph(&["health"]);
        out.status.success() && text(&out.stdout).starts_with("HEALTH_OK")
    }
}

fn holds(path: &Path, what: &str) -> bool {
    std::fs::read_to_string(path).is_ok_and(|all| all.contains(what))
}

/// All roles start and serve with keys of the newer kind; daemons are asked one by one.
#[test]
fn the_newer_kind_alone() {
    let c = Cluster::up("aes256k", "27500", &["--auth", "aes256k", "--mons", "1"]);
    let dump = c.said(&["mon", "dump"]);
    assert!(dump.contains("\nauth_allowed_ciphers aes256k\n"), "{dump}");
    assert!(
        holds(&c.0.join("keyring"), "key = Ag") && holds(&c.0.join("osd.0/keyring"), "key = Ag")
    );
    // Tools for one daemon, by each way to name one.
    for who in ["mon.a", "osd.0", "osd.*", "mds.*", "mds.0", "mds.cephfs:0", "mgr"] {
        let out = c.ceph(&["tell", who, "version"]);
        assert!(
            text(&out.stdout).contains("version"),
            "{who}: {}{}",
            text(&out.stdout),
            text(&out.stderr)
        );
    }
    let twice = c.said(&["tell", "osd.*", "config", "get", "osd_max_backfills"]);
    assert!(twice.contains("osd.0:") && twice.contains("osd.1:"), "{twice}");
    assert!(c.said(&["daemon", "osd.1", "perf", "dump"]).contains("\"osd\""));
    // The manager's commands, with a file on either side.
    let (named, made) = (c.beside("in"), c.beside("out"));
    assert!(c.said(&["pg", "dump", "pgs_brief"]).contains("PG_STAT"));
    c.said(&["fs", "subvolume", "create", "cephfs", "one"]);
    assert!(c.said(&["fs", "subvolume", "ls", "cephfs"]).contains("\"one\""));
    std::fs::write(&named, "value").unwrap();
    c.said(&["config-key", "set", "a", "-i", &named.to_string_lossy()]);
    c.said(&["config-key", "get", "a", "-o", &made.to_string_lossy()]);
    assert!(holds(&made, "value"));
    for (words, why) in [
        (&["tell", "osd.7", "version"][..], "osd.7 is not up"),
        (&["tell", "mds.nobody", "version"], "no metadata server is 'nobody'"),
        (&["tell", "mon.z", "version"], "no monitor is 'z'"),
        (&["tell", "osd.0"], "wanted: tell NAME COMMAND"),
        (&["tell", "client.admin", "version"], "no daemon that can be told"),
        (&["tell", "osd.0", "no such thing"], "no command begins with"),
        (&["mon", "set", "auth_allowed_ciphers", "aes"], "auth rotate mon."),
    ] {
        let out = c.ceph(words);
        assert!(
            !out.status.success() && text(&out.stderr).contains(why),
            "{words:?}: {}",
            text(&out.stderr)
        );
    }
    let path = c.0.to_string_lossy();
    let again = c.run(&["up", "--dir", &path, "--auth", "aes"]);
    assert!(!again.status.success() && text(&again.stderr).contains("--auth is for a new cluster"));
}

/// A cluster of three monitors is changed over while it runs, as the page on security says.
#[test]
fn all_keys_are_changed() {
    let c = Cluster::up("rotated", "27700", &["--mons", "3", "--no-fs", "--no-s3", "--mgrs", "1"]);
    let older = c.said(&["auth", "get-or-create", "client.x", "mon", "allow r"]);
    assert!(older.contains("key = AQ"), "{older}");
    c.said(&["mon", "set", "auth_preferred_cipher", "aes256k"]);
    let path = c.0.to_string_lossy().into_owned();
    // One that is away meanwhile gets the new key by its keyring.
    let out = c.run(&["stop", "--dir", &path, "mon.c"]);
    assert!(out.status.success(), "{}", text(&out.stderr));
    c.within(30, "two monitors", |c| c.said(&["mon", "stat"]).contains("quorum 0,1 "));
    c.rotate("mon.", &c.0.join("mon.c/keyring"));
    // The two that are there keep it: one that starts anew may know less of the log than the other.
    let new = std::fs::read_to_string(c.0.join("mon.c/keyring")).unwrap();
    let new = new.lines().find(|line| line.contains("key = ")).unwrap().trim().to_owned();
    for mon in ["mon.a", "mon.b"] {
        c.within(10, mon, |c| holds(&c.0.join(mon).join("keyring"), &new));
    }
    let out = c.run(&["restart", "--dir", &path, "mon.a"]);
    assert!(out.status.success(), "{}", text(&out.stderr));
    c.within(30, "two monitors", |c| {
        text(&c.ceph(&["mon", "stat"]).stdout).contains("quorum 0,1 ")
    });
    let out = c.run(&["start", "--dir", &path, "mon.c"]);
    assert!(out.status.success(), "{}", text(&out.stderr));
    c.within(30, "three monitors", |c| c.said(&["mon", "stat"]).contains("quorum 0,1,2"));
    // A follower starts anew and is taken back by those that run on.
    for daemon in ["mon.b", "mon.c", "mon.a"] {
        let out = c.run(&["restart", "--dir", &path, daemon]);
        assert!(out.status.success(), "{}", text(&out.stderr));
        c.within(30, "three monitors", |c| c.said(&["mon", "stat"]).contains("quorum 0,1,2"));
    }
    for daemon in ["osd.0", "osd.1", "mgr.x"] {
        c.rotate(daemon, &c.0.join(daemon).join("keyring"));
        let out = c.run(&["restart", "--dir", &path, daemon]);
        assert!(out.status.success(), "{}", text(&out.stderr));
    }
    let ours = c.said(&["auth", "ls", "-f", "json"]);
    let ours: serde_json::Value = serde_json::from_str(&ours).unwrap();
    for one in ours["auth_dump"].as_array().unwrap() {
        let name = one["entity"].as_str().unwrap();
        if one["key"].as_str().unwrap().starts_with("AQ") && name != "client.admin" {
            c.said(&["auth", "rotate", name]);
        }
    }
    c.rotate("client.admin", &c.0.join("keyring"));
    c.said(&["mon", "set", "auth_service_cipher", "aes256k"]);
    c.said(&["auth", "wipe-rotating-service-keys"]);
    c.said(&["mon", "set", "auth_allowed_ciphers", "aes256k"]);
    c.within(30, "only AUTH's own keys are left", |c| {
        let said = c.said(&["health", "detail"]);
        said.contains("rotating service keys for auth") && said.matches("\n[").count() == 1
    });
    c.said(&["health", "mute", "AUTH_INSECURE_ROTATING_SERVICE_KEY_TYPE"]);
    c.within(60, "healthy", Cluster::is_healthy);
    let out = c.run(&["restart", "--dir", &path, "osd.1"]);
    assert!(out.status.success(), "{}", text(&out.stderr));
    c.within(60, "healthy", Cluster::is_healthy);
}
