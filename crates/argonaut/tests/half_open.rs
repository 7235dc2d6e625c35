//! A monitor that may open 1,024 files, and 3,000 sockets that say nothing but their banner.

use std::io::Write;
use std::net::TcpStream;
use std::process::Command;
use std::time::{Duration, Instant};

#[test]
#[allow(clippy::disallowed_methods, reason = "it measures")]
fn an_administrator_is_answered_beside_half_open_sockets() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();
    let dir = std::env::temp_dir().join(format!("argonaut-half-open-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    let bin = env!("CARGO_BIN_EXE_argonaut");
    let up = format!(
        "ulimit -n 1024; exec {bin} up --minimal --mons 1 --osds 1 --size 1 --osd-bytes 1G --port 25300 --dir {}",
        dir.display()
    );
    let up = Command::new("sh").args(["-c", &up]).output().unwrap();
    assert!(up.status.success(), "{}", String::from_utf8_lossy(&up.stderr));
    let conf = std::fs::read_to_string(dir.join("ceph.conf")).unwrap();
    let at = conf.split_once("mon host = [v2:").unwrap().1.split_once(']').unwrap().0;
    let (at, v1) = at.split_once(",v1:").unwrap();
    let mut strangers = Vec::new();
    for i in 0..3000 {
        let (at, hello) = if i % 2 == 0 { (at, "ceph v2\n") } else { (v1, "ceph v027") };
        // The backlog of the listener may be full for a moment.
        let Ok(mut stranger) =
            TcpStream::connect_timeout(&at.parse().unwrap(), Duration::from_secs(2))
        else {
            continue;
        };
        let _ = stranger.write_all(hello.as_bytes());
        strangers.push(stranger);
    }
    assert!(strangers.len() > 1024, "more than it may open: {}", strangers.len());
    // The machine may be busy; one of three answers shows that nothing is in the way.
    let times: Vec<Duration> = (0..3)
        .map(|_| {
            let start = Instant::now();
            let mut health = Command::new(bin);
            let health = health.args(["ceph", "-c"]).arg(dir.join("ceph.conf")).arg("health");
            let out = health.output().unwrap();
            assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
            start.elapsed()
        })
        .collect();
    drop(strangers);
    Command::new(bin).args(["rm", "--yes", "--dir"]).arg(&dir).output().unwrap();
    assert!(times.iter().any(|t| *t < Duration::from_secs(1)), "{times:?}");
}
