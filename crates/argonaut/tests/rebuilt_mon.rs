//! Every monitor is lost: one is made of what the OSDs know.

mod mons;

use std::process::Command;

use mons::{Mons, ceph, run, until};

const UP: [&str; 10] =
    ["up", "--minimal", "--mons", "1", "--size", "2", "--osd-bytes", "1G", "--port", "28350"];

#[test]
#[allow(clippy::disallowed_methods, reason = "real processes run in real time")]
fn a_monitor_is_made_of_what_osds_know() {
    let dir = std::env::temp_dir().join(format!("argonaut-rebuild-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    let (at, conf) = (dir.to_str().unwrap(), dir.join("ceph.conf"));
    let conf = conf.to_str().unwrap();
    let file = |name: &str| dir.join(name).to_str().unwrap().to_owned();
    run(&[&UP[..], &["--dir", at]].concat()).unwrap();
    let mut mons = Mons { dir: &dir, conf, running: Vec::new() };
    let rados = |words: &[&str]| run(&[&["rados", "-c", conf, "-p", "kept"], words].concat());
    ceph(conf, &["osd", "pool", "create", "kept", "8"]).unwrap();
    ceph(conf, &["osd", "pool", "application", "enable", "kept", "rados"]).unwrap();
    std::fs::write(dir.join("said"), "what was written").unwrap();
    for n in 0..10 {
        rados(&["put", &format!("o{n}"), &file("said")]).unwrap();
    }
    ceph(conf, &["osd", "set", "noout"]).unwrap();
    ceph(conf, &["osd", "pool", "mksnap", "kept", "s"]).unwrap();
    let keys = file("keys");
    let admin = ceph(conf, &["auth", "get", "client.admin"]).unwrap();
    run(&["down", "--dir", at]).unwrap();

    // The map that the caller gives, and the keys that were kept.
    let kept = std::fs::read_to_string(dir.join("mon.a/keyring")).unwrap();
    std::fs::write(&keys, format!("{kept}\n{admin}")).unwrap();
    std::fs::rename(dir.join("mon.a"), dir.join("lost")).unwrap();
    let text = std::fs::read_to_string(conf).unwrap();
    let fsid = text.lines().find_map(|l| l.split_once("fsid = ")).unwrap().1;
    let map = file("map");
    let tool = ["monmaptool", "--create", "--clobber", "--fsid"];
    let addr = "[v2:127.0.0.1:28350]";
    run(&[&tool[..], &[fsid, "--addv", "a", addr, &map]].concat()).unwrap();

    let osds: Vec<String> = (0..3).map(|n| file(&format!("osd.{n}"))).collect();
    let data = file("mon.a");
    let rebuild = |osds: &[String]| {
        let mut words = vec!["store"];
        osds.iter().for_each(|osd| words.extend(["--data-path", osd]));
        words.extend(["rebuild-mon", "--id", "a", "--mon-data", &data]);
        words.extend(["--monmap", &map, "--keyring", &keys]);
        run(&words)
    };
    rebuild(&osds[..2])
        .map(|said| assert!(said.contains("no key is known of osd.2"), "{said}"))
        .unwrap();
    let refused = rebuild(&osds).unwrap_err();
    assert!(refused.contains("holds a monitor"), "{refused}");
    std::fs::remove_dir_all(&data).unwrap();
    let said = rebuild(&osds).unwrap();
    assert!(said.contains("mon.a is made") && !said.contains("no key"), "{said}");

    mons.start("a");
    until(conf, "a pool is lost", &["osd", "pool", "ls"], "kept");
    until(conf, "a flag is lost", &["osd", "dump"], "noout");
    let mut daemons = Vec::new();
    for n in 0..3 {
        let mut osd = Command::new(env!("CARGO_BIN_EXE_argonaut"));
        daemons.push(osd.args(["osd", "-i", &n.to_string(), "-c", conf]).spawn().unwrap());
    }
    until(conf, "PGs are not whole", &["pg", "stat"], "8 active+clean");
    until(conf, "OSDs do not join", &["osd", "stat"], "3 up");
    for n in 0..10 {
        rados(&["get", &format!("o{n}"), &file("back")]).unwrap();
        assert_eq!(std::fs::read_to_string(dir.join("back")).unwrap(), "what was written");
    }
    // New clients are not taken for old ones whose requests the OSDs remember.
    std::fs::write(dir.join("said"), "written after").unwrap();
    for n in 0..10 {
        rados(&["put", &format!("o{n}"), &file("said")]).unwrap();
        rados(&["get", &format!("o{n}"), &file("back")]).unwrap();
        assert_eq!(std::fs::read_to_string(dir.join("back")).unwrap(), "written after");
    }
    for mut osd in daemons {
        osd.kill().unwrap();
        osd.wait().unwrap();
    }
    mons.kill("a");
    for name in ["map", "keys", "said", "back"] {
        std::fs::remove_file(dir.join(name)).unwrap();
    }
    std::fs::rename(dir.join("lost"), dir.join("mon.b")).unwrap();
}
