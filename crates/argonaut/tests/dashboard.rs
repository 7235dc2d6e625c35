//! The dashboard of a real cluster: turned on, an account made with `ceph dashboard`, a login over TLS, pages, and
//! what an account may and may not do, as the audit log has it.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio_rustls::rustls::crypto::aws_lc_rs::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

struct Cluster(PathBuf);

impl Drop for Cluster {
    fn drop(&mut self) {
        let out = self.run(&["rm", "--yes", "--dir", &self.0.to_string_lossy()]);
        assert!(out.status.success() || std::thread::panicking(), "{}", text(&out.stderr));
    }
}

fn text(raw: &[u8]) -> String {
    String::from_utf8_lossy(raw).into_owned()
}

fn port() -> u16 {
    let told = std::env::var("ARGONAUT_TEST_PORT").ok().and_then(|port| port.parse().ok());
    told.unwrap_or(28_900)
}

impl Cluster {
    fn up() -> Self {
        let dir = std::env::temp_dir().join(format!("argonaut-dashboard-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        let this = Self(dir);
        let (path, port) = (this.0.to_string_lossy().into_owned(), port().to_string());
        let args =
            ["up", "--minimal", "--mons", "1", "--osds", "3", "--mgrs", "1", "--port", &port];
        let more = ["--osd-bytes", "1G", "--dir", &path];
        let out = this.run(&[&args[..], &more].concat());
        assert!(out.status.success(), "{}{}", text(&out.stdout), text(&out.stderr));
        this
    }

    fn run(&self, args: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_argonaut")).args(args).output().unwrap()
    }

    fn ceph(&self, words: &[&str]) -> Output {
        let conf = self.0.join("ceph.conf").to_string_lossy().into_owned();
        self.run(&[&["ceph", "-c", &conf], words].concat())
    }

    /// What a command prints that is to succeed.
    fn said(&self, words: &[&str]) -> String {
        let out = self.ceph(words);
        assert!(out.status.success(), "{words:?}: {}{}", text(&out.stdout), text(&out.stderr));
        text(&out.stdout)
    }

    fn json(&self, words: &[&str]) -> Value {
        let said = self.said(&[words, &["-f", "json"]].concat());
        serde_json::from_str(said.trim()).unwrap_or_else(|err| panic!("{words:?}: {err}: {said}"))
    }

    #[allow(clippy::disallowed_methods, reason = "it waits for real processes")]
    fn within<T>(&self, secs: u64, what: &str, mut is: impl FnMut(&Self) -> Option<T>) -> T {
        let end = Instant::now() + Duration::from_secs(secs);
        loop {
            if let Some(found) = is(self) {
                return found;
            }
            assert!(Instant::now() < end, "{what}: {}", text(&self.ceph(&["-s"]).stdout));
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// Makes an account with a password.
    fn account(&self, name: &str, role: &str) {
        let file = self.0.join("password");
        std::fs::write(&file, format!("{name}-secret\n")).unwrap();
        let path = file.to_string_lossy().into_owned();
        let user = self.said(&["dashboard", "ac-user-create", name, role, "-i", &path]);
        std::fs::remove_file(file).unwrap();
        let user: Value = serde_json::from_str(user.trim()).unwrap();
        assert_eq!(
            (user["username"].as_str(), user["roles"][0].as_str()),
            (Some(name), Some(role))
        );
        assert!(
            user["password"].as_str().is_some_and(|hash| hash.starts_with("$2b$12$")),
            "{user}"
        );
    }
}

/// A browser that trusts the dashboard's own certificate.
struct Browser {
    at: String,
    tls: Arc<ClientConfig>,
    cookie: String,
}

impl Browser {
    fn new(at: &str, certificate: &str) -> Self {
        let mut roots = RootCertStore::empty();
        for one in CertificateDer::pem_slice_iter(certificate.as_bytes()) {
            roots.add(one.unwrap()).unwrap();
        }
        let tls = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        Self { at: at.to_owned(), tls: Arc::new(tls), cookie: String::new() }
    }

    fn ask(&self, line: &str, more: &str, body: &str) -> (u16, String) {
        let name = ServerName::try_from("127.0.0.1").unwrap();
        let stream = TcpStream::connect(&self.at).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let connection = ClientConnection::new(self.tls.clone(), name).unwrap();
        let mut stream = StreamOwned::new(connection, stream);
        write!(
            stream,
            "{line} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nCookie: argonaut_session={}\r\n\
             Content-Length: {}\r\n{more}\r\n{body}",
            self.at,
            self.cookie,
            body.len()
        )
        .unwrap();
        let mut answer = Vec::new();
        // The end of a TCP stream without that of TLS is an end, too.
        let _ = stream.read_to_end(&mut answer);
        let answer = text(&answer);
        let status = answer.split(' ').nth(1).and_then(|s| s.parse().ok());
        (status.unwrap_or_else(|| panic!("{line}: {answer}")), answer)
    }

    fn get(&self, path: &str) -> (u16, String) {
        self.ask(&format!("GET {path}"), "", "")
    }

    fn login(&mut self, name: &str) {
        let body = format!("username={name}&password={name}-secret");
        let (status, answer) = self.ask("POST /login", "", &body);
        assert_eq!(status, 303, "{answer}");
        let cookie = answer.split("argonaut_session=").nth(1).expect("a cookie");
        assert!(
            cookie[64..].starts_with("; Path=/; HttpOnly; SameSite=Strict; Secure"),
            "{cookie}"
        );
        self.cookie = cookie[..64].to_owned();
    }

    fn act(&self, action: &str, fields: &str) -> (u16, String) {
        let (_, page) = self.get("/osds");
        let csrf = page.split("name=\"csrf\" value=\"").nth(1).expect("a form");
        self.ask(&format!("POST /do/{action}"), "", &format!("csrf={}&{fields}", &csrf[..64]))
    }
}

#[test]
fn a_cluster_is_looked_at_and_changed() {
    let c = Cluster::up();
    c.within(60, "a manager", |c| (c.json(&["mgr", "stat"])["available"] == true).then_some(()));
    let off = c.ceph(&["dashboard", "ac-user-show"]);
    assert!(!off.status.success() && text(&off.stderr).contains("is not enabled"), "{off:?}");
    c.said(&["config", "set", "mgr", "mgr/dashboard/ssl_server_port", &(port() + 90).to_string()]);
    c.said(&["mgr", "module", "enable", "dashboard"]);
    let url = c.within(60, "the dashboard's URL", |c| {
        c.json(&["mgr", "services"])["dashboard"].as_str().map(str::to_owned)
    });
    let at = url.strip_prefix("https://").expect("TLS").trim_end_matches('/').to_owned();
    c.account("root", "administrator");
    c.account("eye", "read-only");
    assert_eq!(c.said(&["dashboard", "ac-user-show"]).trim(), "[\"root\", \"eye\"]");
    let crt = c.said(&["config-key", "get", "mgr/dashboard/crt"]);
    let mut root = Browser::new(&at, &crt);
    let mut eye = Browser::new(&at, &crt);
    assert_eq!(root.get("/").0, 303, "first one logs in");
    root.login("root");
    eye.login("eye");
    c.said(&["osd", "pool", "create", "<script>", "8"]);
    let fsid = c.json(&["osd", "dump"])["fsid"].as_str().unwrap().to_owned();
    for browser in [&root, &eye] {
        for (path, holds) in [
            ("/", fsid.as_str()),
            ("/why", "Why"),
            ("/osds", "3 of 3"),
            ("/placement", "PGs"),
            ("/images", "images"),
            ("/files", "File systems"),
            ("/objects", "gateways"),
            ("/log?channel=audit", "client.dashboard.root"),
            ("/settings", "mgr/dashboard/ssl_server_port"),
            ("/confirm/osd-out?id=1", "ok-to-stop"),
        ] {
            let (status, page) = browser.get(path);
            assert!(status == 200 && page.contains(holds), "{path}: {page}");
        }
    }
    c.within(30, "a pool on its page", |_| {
        let (_, page) = root.get("/pools");
        assert!(!page.contains("<script>"), "{page}");
        page.contains("&lt;script&gt;").then_some(())
    });
    let (status, page) = root.get("/keys");
    assert!(status == 200 && page.contains("client.admin") && !page.contains("AQ"), "{page}");
    assert_eq!(eye.get("/keys").0, 403);

    let is_in = |c: &Cluster| c.json(&["osd", "dump"])["osds"][1]["in"] == 1;
    let (status, page) = eye.act("osd-out", "id=1");
    assert!(status == 403 && page.contains("client.dashboard.eye may not"), "{page}");
    assert!(is_in(&c));
    let (status, page) = root.act("osd-out", "id=1");
    assert_eq!(status, 303, "{page}");
    assert!(!is_in(&c));
    let audit = c.said(&["log", "last", "200", "debug", "audit"]);
    let line = |entity: &str, what: &str| {
        let entity = format!("entity='client.dashboard.{entity}'");
        audit.lines().any(|l| l.contains(&entity) && l.contains("osd out") && l.contains(what))
    };
    assert!(line("root", "finished") && line("eye", "access denied"), "{audit}");

    // Monitoring reads with a token; an account that goes is out at once, with its key.
    let body = r#"{"username": "eye", "password": "eye-secret"}"#;
    let (status, answer) = root.ask("POST /api/auth", "", body);
    assert_eq!(status, 201, "{answer}");
    let answer = answer.split("\r\n\r\n").nth(1).unwrap();
    let token =
        serde_json::from_str::<Value>(answer).unwrap()["token"].as_str().unwrap().to_owned();
    let bearer = format!("Authorization: Bearer {token}\r\n");
    let (status, minimal) = root.ask("GET /api/health/minimal", &bearer, "");
    assert!(status == 200 && minimal.contains("\"osd_map\""), "{minimal}");
    assert_eq!(c.said(&["dashboard", "ac-user-delete", "eye"]).trim(), "User 'eye' deleted");
    assert_eq!(eye.get("/").0, 303);
    assert_eq!(root.ask("GET /api/health/minimal", &bearer, "").0, 401);
    assert!(!c.ceph(&["auth", "get", "client.dashboard.eye"]).status.success());

    c.said(&["mgr", "module", "disable", "dashboard"]);
    c.within(60, "its end", |c| c.json(&["mgr", "services"])["dashboard"].is_null().then_some(()));
    c.within(10, "an end of listening", |_| TcpStream::connect(&at).err());
}
