//! One of three monitors is left, and carries the cluster on alone.

mod mons;

use mons::{Mons, ceph, run, until};

#[test]
#[allow(clippy::disallowed_methods, reason = "real processes run in real time")]
fn one_monitor_of_three_goes_on() {
    let dir = std::env::temp_dir().join(format!("argonaut-rescue-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    let (at, conf) = (dir.to_str().unwrap(), dir.join("ceph.conf"));
    let conf = conf.to_str().unwrap();
    let up = [
        "up",
        "--minimal",
        "--mons",
        "3",
        "--osds",
        "1",
        "--size",
        "1",
        "--osd-bytes",
        "1G",
        "--port",
        "28330",
        "--dir",
        at,
    ];
    run(&up).unwrap();
    let mut mons = Mons { dir: &dir, conf, running: Vec::new() };
    let ceph = |words: &[&str]| ceph(conf, words);
    let until = |what: &str, words: &[&str], shown: &str| until(conf, what, words, shown);
    ceph(&["osd", "pool", "create", "kept", "8"]).unwrap();
    ceph(&["config-key", "set", "kept", "value"]).unwrap();
    run(&["down", "--dir", at]).unwrap();
    for lost in ["mon.a", "mon.c"] {
        std::fs::rename(dir.join(lost), dir.join(format!("lost-{lost}"))).unwrap();
    }
    let map = dir.join("map");
    let map = map.to_str().unwrap();
    let (mon, tool) = (["ceph-mon", "-c", conf, "-i", "b"], ["monmaptool", map]);
    run(&[&mon[..], &["--extract-monmap", map]].concat()).unwrap();
    let refused = run(&[&mon[..], &["--inject-monmap", map]].concat()).unwrap_err();
    assert!(refused.contains("is to name 'b' alone"), "{refused}");
    run(&[&tool[..], &["--rm", "a", "--rm", "c"]].concat()).unwrap();
    run(&[&mon[..], &["--inject-monmap", map]].concat()).unwrap();
    mons.start("b");
    until("it does not lead alone", &["mon", "stat"], "quorum 0 b");
    until("a pool is lost", &["osd", "pool", "ls"], "kept");
    until("a key is lost", &["config-key", "get", "kept"], "value");
    // Another joins, as after any other loss.
    let key = dir.join("mon.b/keyring");
    let key = key.to_str().unwrap();
    let text = std::fs::read_to_string(conf).unwrap();
    let host = "mon host = v2:127.0.0.1:28331";
    let line = |l: &str| if l.contains("mon host") { host.to_owned() } else { l.to_owned() };
    let text: Vec<String> = text.lines().map(line).collect();
    std::fs::write(conf, text.join("\n") + "\n").unwrap();
    let addr = "v2:127.0.0.1:28340";
    run(&["mon", "join", "-i", "d", "-c", conf, "--keyring", key, "--addr", addr]).unwrap();
    mons.start("d");
    until("a new one does not join", &["mon", "stat"], "quorum 0,1 b,d");
    for lost in ["mon.a", "mon.c"] {
        std::fs::rename(dir.join(format!("lost-{lost}")), dir.join(lost)).unwrap();
    }
    mons.kill("b");
    mons.kill("d");
    std::fs::remove_file(map).unwrap();
}
