//! A daemon that is a client on its own messenger: its operations are executed in the order in which
//! they were begun, and end with the blocklist entry for the address that it listens at.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use conf::ConfFile;
use daemon::{Doors, bind, link_config};
use rados::{Cluster, News, WriteOp};
use rt::Policy;
use tokio::sync::mpsc;
use types::{EntityId, EntityKind, EntityName};

struct Up {
    dir: PathBuf,
}

impl Up {
    fn run(&self, args: &[&str], last: &[&str]) -> String {
        let mut command = Command::new(env!("CARGO_BIN_EXE_argonaut"));
        let out = command.args(args).args(last).output().unwrap();
        let text = |raw: &[u8]| String::from_utf8_lossy(raw).into_owned();
        assert!(out.status.success(), "{args:?}: {}{}", text(&out.stdout), text(&out.stderr));
        text(&out.stdout)
    }

    fn up(&self, args: &[&str]) {
        self.run(args, &["--dir", &self.dir.to_string_lossy()]);
    }

    fn ceph(&self, words: &[&str]) -> String {
        self.run(&["ceph", "-c", &self.dir.join("ceph.conf").to_string_lossy()], words)
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        self.up(&["rm", "--yes"]);
    }
}

#[test]
fn operations_keep_their_order_and_end_with_the_blocklist() {
    let dir = std::env::temp_dir().join(format!("argonaut-joined-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    let up = Up { dir };
    up.up(&["up", "--minimal", "--mons", "1", "--osds", "1", "--size", "1", "--osd-bytes", "1G"]
        .into_iter()
        .chain(["--port", "25400", "--mds", "1", "--fs"])
        .collect::<Vec<_>>());
    let text = std::fs::read_to_string(up.dir.join("ceph.conf")).unwrap();
    let mut config = conf::Config::new(&ConfFile::parse(&text).unwrap(), "mds", "b", "h", 1);
    let keyring = up.dir.join("mds.a/keyring").display().to_string();
    let caps = ["mon", "allow profile mds", "osd", "allow rw tag cephfs *=*"];
    let key = up.ceph(&[&["auth", "get-or-create", "mds.b"], &caps[..]].concat());
    let both = std::fs::read_to_string(&keyring).unwrap() + &key;
    std::fs::write(&keyring, both).unwrap();
    config.set(conf::Source::CommandLine, "keyring", &keyring).unwrap();
    rt::run_local(act(&up, &config)).unwrap();
}

async fn act(up: &Up, config: &conf::Config) {
    let doors = Doors::new(config, EntityId::new(EntityKind::MDS, -1), 7);
    let messenger = doors.messenger(&[], |_| Policy::stateless_server());
    let (addrs, _) = bind(&messenger, [127, 0, 0, 1].into(), None).unwrap();
    let services = vec![EntityKind::MON, EntityKind::OSD];
    let link = link_config(config, EntityName::new(EntityKind::MDS, "b"), services).unwrap();
    let (tell, mut heard) = mpsc::unbounded_channel();
    let listener = move |news| {
        tell.send(news).ok();
    };
    let cluster = Cluster::join(messenger.clone(), link, doors.keys(), listener);
    let to = cluster.clone();
    messenger.set_handler(move |event| {
        to.on_event(event);
    });
    cluster.start(&["mdsmap"]);
    let limit = Duration::from_secs(20);
    let (mut session, mut osd_map, mut mds_map) = (false, false, false);
    while !(session && osd_map && mds_map) {
        match tokio::time::timeout(limit, heard.recv()).await.unwrap().unwrap() {
            News::Session => session = true,
            News::OsdMap => osd_map = true,
            News::Message(_) => mds_map = true,
        }
    }
    assert!(cluster.global_id() > 0);

    // Written over each other: the last one begun is what stays.
    let pool = cluster.pool("cephfs_metadata").await.unwrap().even_full();
    let begun: Vec<_> = (0..200)
        .map(|i| {
            let mut op = WriteOp::new();
            op.write_full(format!("{i}").into());
            pool.begin_write(b"object", op)
        })
        .collect();
    let mut read = rados::ReadOp::new();
    let slot = read.read(0, 0);
    let last = pool.begin_read(b"object", read);
    assert_eq!(last.answer().await.unwrap().get(slot).unwrap(), "199");
    for one in begun {
        one.answer().await.unwrap();
    }
    let other = cluster.pool("cephfs_data").await.unwrap();
    other.write_full(b"object", "x".into()).await.unwrap();

    let addr = addrs.front().to_string();
    let addr = addr.trim_start_matches("v2:").to_owned();
    let command = serde_json::json!({
        "prefix": "osd blocklist", "blocklistop": "add", "addr": addr,
    });
    let socket = up.dir.join("run/ceph-mon.a.asok");
    daemon::asok::ask(&socket, &command.to_string(), limit).unwrap();
    let refused = tokio::time::timeout(limit, async {
        loop {
            if let Err(err) = pool.write_full(b"object", "late".into()).await {
                return err;
            }
        }
    });
    assert_eq!(refused.await.unwrap().code(), Some(108), "ESHUTDOWN");
    let map = cluster.newest_map().unwrap();
    assert!(!map.blocklist.is_empty());
}
