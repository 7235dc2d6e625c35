//! Stock radosgw 20.2.4 on OSDs of ours, with boto3 as its client, and our gateway beside it: `tests/s3`.

use std::fs::File;
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::cluster::{self, Cluster};
use crate::report::Report;
use crate::{lab, sh};

/// How long our gateway may take to listen.
const START_MAX: Duration = Duration::from_secs(30);

/// Master keys of objects, for tests; `tests/s3` gives stock the same.
const KMS_KEYS: &str = "testkey-1=YmluCmJvb3N0CmJvb3N0LWJ1aWxkCmNlcGguY29uZgo= testkey-2=aWIKTWFrZWZpbGUKbWFuCm91dApzcmMKVGVzdGluZwo=";

/// Starts a cluster, a gateway of the forky root on it, and runs the cases of `tests/s3/s3.py`.
///
/// # Errors
/// When the cluster does not start; what failed is in the report.
pub fn run() -> Result<Report> {
    let mut report = Report::default();
    lab::root("forky")?;
    let cluster = Cluster::up("radosgw", &["--osds", "3"])?;
    let share = share(&cluster)?;
    let line = format!(
        "cd {} && PORT={} RECEIVER_PORT={} CASES='{}' timeout 900 bash radosgw.sh",
        share.display(),
        http_port(),
        http_port() + 5,
        cases()
    );
    report.check("stock radosgw 20.2.4 with boto3", || {
        sh::output(&mut cluster.client("forky", &line)).map(|out| print!("{out}"))
    });
    Ok(report)
}

/// Starts a cluster, our gateway and stock's on it; the cases against ours, and each against what the other wrote.
///
/// # Errors
/// When the cluster does not start; what failed is in the report.
pub fn ours() -> Result<Report> {
    beside_stock(false)
}

/// As [`ours`], with brokers of AMQP and Kafka's protocol that take events.
///
/// # Errors
/// As [`ours`].
pub fn ours_with_brokers() -> Result<Report> {
    lab::need("forky", BROKERS)?;
    beside_stock(true)
}

/// What [`ours_with_brokers`] needs in the root.
const BROKERS: &str = "rabbitmq-server python3-pika kafkacat";

fn beside_stock(brokers: bool) -> Result<Report> {
    let mut report = Report::default();
    lab::root("forky")?;
    let cluster = Cluster::up("rgw", &["--osds", "3"])?;
    let share = share(&cluster)?;
    report.check("our gateway with boto3, and stock radosgw beside it", || {
        both(&cluster, &share, brokers)
    });
    Ok(report)
}

fn both(cluster: &Cluster, share: &Path, brokers: bool) -> Result<()> {
    let at = share.display();
    sh::output(&mut cluster.client("forky", &format!("cd {at} && bash argonaut.sh start")))?;
    let (port, stock) = (http_port() + 1, http_port());
    let _gateway = Gateway::start(cluster, share, port)?;
    let line = format!(
        "cd {at} && PORT={stock} RECEIVER_PORT={} ENDPOINT=http://127.0.0.1:{port} TLS_ENDPOINT=https://127.0.0.1:{} CASES='{}' \
         BROKERS={} timeout 900 bash argonaut.sh check",
        stock + 5,
        port + 1,
        cases(),
        if brokers { "yes" } else { "" }
    );
    let out = sh::output(&mut cluster.client("forky", &line))?;
    print!("{out}");
    Ok(())
}

/// A gateway of ours that runs until this is dropped.
struct Gateway(Child);

impl Gateway {
    fn start(cluster: &Cluster, share: &Path, port: u16) -> Result<Self> {
        let conf = share.join("rgw.conf");
        let mut text = std::fs::read_to_string(cluster.conf())?;
        text += &format!(
            "\n[client.rgw.a]\nkeyring = {0}/rgw.a.keyring\nlog file = {0}/rgw.a.log\n\
             rgw frontends = beast endpoint=127.0.0.1:{port} ssl_endpoint=127.0.0.1:{1} ssl_certificate={0}/tls.pem\n\
             pid file = {0}/rgw.a.pid\nrgw enable ops log = true\nrgw ops log file path = {0}/access.log\nrgw multipart min part size = 1\n\
             rgw objexp gc interval = 1\nrgw lc debug interval = 2\nrgw enable usage log = true\nrgw usage log tick interval = 1\nrgw crypt require ssl = false\nrgw dns name = s3.test\nrgw dns s3website name = web.test\nrgw enable static website = true\n\
             rgw crypt s3 kms backend = testing\nrgw crypt s3 kms encryption keys = {KMS_KEYS}\n\
             rgw sts key = abcdefghijklmnop\nrgw s3 auth use sts = true\n",
            share.display(),
            port + 1
        );
        std::fs::write(&conf, text)?;
        let mut command = Command::new(cluster::binary()?);
        command.args(["rgw", "-i", "a", "-c"]).arg(&conf);
        command.env("SSL_CERT_FILE", share.join("trusted.pem"));
        let said = File::create(share.join("rgw.a.err"))?;
        let mut started = Self(command.stderr(said).spawn().context("argonaut rgw")?);
        let end = sh::now() + START_MAX;
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            if started.0.try_wait()?.is_some() || sh::now() > end {
                let why = std::fs::read_to_string(share.join("rgw.a.err"))?;
                bail!("argonaut rgw does not serve: {why}");
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(started)
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A directory with the scripts, which the root sees too.
fn share(cluster: &Cluster) -> Result<std::path::PathBuf> {
    let share = cluster.dir.join("s3");
    std::fs::create_dir_all(&share)?;
    for name in [
        "radosgw.sh",
        "argonaut.sh",
        "s3.py",
        "ours.py",
        "further.py",
        "ops.py",
        "iam.py",
        "webidentity.py",
        "both.py",
        "topics.py",
        "events.py",
        "amqp.py",
        "kafka.py",
        "swift.py",
        "swift-both.py",
        "swift-users.sh",
        "clients.sh",
        "admin.sh",
    ] {
        std::fs::copy(sh::repo().join("tests/s3").join(name), share.join(name))?;
    }
    Ok(share)
}

/// Cases that alone are wanted: CASES, names with blanks between; empty for all.
fn cases() -> String {
    std::env::var("CASES").unwrap_or_default().replace('\'', "")
}

/// The gateway's port: of the run's own range where there is one.
fn http_port() -> u16 {
    let base = std::env::var("ARGONAUT_TEST_PORT").ok().and_then(|p| p.parse::<u16>().ok());
    base.map_or(17480, |base| base + 80)
}
