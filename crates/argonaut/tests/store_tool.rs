//! `argonaut store`, through the binary.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use bytes::Bytes;
use store::{MkfsOptions, OpenOptions, Store, Transaction};
use types::{HObject, OsdId, PgId, PoolId, ShardId, SnapId, SpgId, Uuid};

const PG: SpgId = SpgId { pg: PgId { pool: PoolId(3), ps: 0x1f }, shard: ShardId::NONE };

fn object(name: &'static str) -> HObject {
    HObject::head(PoolId(3), Bytes::new(), Bytes::new(), Bytes::from_static(name.as_bytes()))
}

/// An OSD's data directory with a store.
fn osd(dir: &Path, n: i32, fsid: u8) -> PathBuf {
    let data = dir.join(format!("osd.{n}"));
    std::fs::create_dir_all(&data).unwrap();
    let options = MkfsOptions {
        fsid: Uuid([fsid; 16]),
        osd: OsdId(n),
        osd_uuid: Uuid([n as u8 + 1; 16]),
        size: 64 << 20,
        log_bytes: 8 << 20,
        ..MkfsOptions::default()
    };
    Store::mkfs(&data.join("block"), &options).unwrap();
    data
}

fn run(data: &Path, line: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_argonaut"));
    command.arg("store").arg("--data-path").arg(data).args(line).output().unwrap()
}

/// What a line that works prints.
fn says(data: &Path, line: &[&str]) -> String {
    let out = run(data, line);
    let text = |raw: &[u8]| String::from_utf8_lossy(raw).into_owned();
    assert!(out.status.success(), "{line:?}: {}{}", text(&out.stdout), text(&out.stderr));
    text(&out.stdout)
}

/// Why a line does not work.
fn refuses(data: &Path, line: &[&str]) -> String {
    let out = run(data, line);
    assert!(!out.status.success(), "{line:?} works");
    String::from_utf8_lossy(&out.stderr).into_owned()
}

#[test]
fn a_store_is_looked_at_changed_and_carried() {
    let dir = std::env::temp_dir().join(format!("argonaut-store-tool-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    let (one, two, other) = (osd(&dir, 0, 1), osd(&dir, 1, 1), osd(&dir, 2, 9));
    let file = |name: &str| dir.join(name).display().to_string();

    let mut store = Store::open(&one.join("block"), OpenOptions::default()).unwrap();
    let (apple, pear) = (object("apple"), object("pear"));
    let mut txn = Transaction::new();
    txn.create_collection(PG);
    txn.write(PG, &apple, 0, Bytes::from(vec![7; 200_000]));
    txn.set_attr(PG, &apple, "_colour", "green".into());
    txn.clone_object(PG, &apple, &apple.with_snap(SnapId(4)));
    txn.omap_set(PG, &pear, [("k1".into(), "v1".into()), ("k2".into(), "v2".into())]);
    txn.coll_set(PG, "i", "info".into());
    store.submit(txn).unwrap();
    store.sync().unwrap();

    // Running: refused.
    let why = refuses(&one, &["stat"]);
    assert!(why.contains("the OSD must be down") && why.contains("in use"), "{why}");
    store.close().unwrap();
    let why = refuses(&dir.join("nothing"), &["stat"]);
    assert!(why.contains("holds no OSD"), "{why}");

    let stat = says(&one, &["stat"]);
    assert!(stat.contains("osd.0 of cluster 01010101-"), "{stat}");
    assert!(stat.contains("pool 3: 3 objects, 400000 bytes"), "{stat}");
    assert!(says(&one, &["stat", "3.1f", "apple"]).contains("200000 bytes"));
    assert_eq!(says(&one, &["list"]), "3.1f\n");
    assert_eq!(says(&one, &["list", "3.1f"]).lines().count(), 3);
    assert_eq!(says(&one, &["fsck"]), "3 objects, 0 bytes verified, 0 errors\n");
    assert_eq!(says(&one, &["fsck", "--deep"]), "3 objects, 400000 bytes verified, 0 errors\n");

    assert_eq!(run(&one, &["get", "bytes", "3.1f", "apple"]).stdout, vec![7; 200_000]);
    assert_eq!(says(&one, &["get", "attrs", "3.1f", "apple"]), "_colour\tgreen\n");
    assert_eq!(says(&one, &["get", "attrs", "3.1f", "apple", "_colour"]), "green");
    assert_eq!(says(&one, &["get", "omap", "3.1f", "pear"]), "k1\tv1\nk2\tv2\n");
    assert!(refuses(&one, &["get", "bytes", "3.1f", "plum"]).contains("no object plum in 3.1f"));
    assert!(refuses(&one, &["get", "bytes", "3.20", "apple"]).contains("no PG 3.20"));
    assert!(refuses(&one, &["list", "rubbish"]).contains("a PG is POOL.HEX"));

    std::fs::write(file("new"), vec![9; 5_000_000]).unwrap();
    says(&one, &["set", "bytes", "3.1f", "apple", &file("new")]);
    says(&one, &["set", "attrs", "3.1f", "apple", "_colour", "red"]);
    says(&one, &["set", "omap", "3.1f", "pear", "k1"]);
    assert_eq!(run(&one, &["get", "bytes", "3.1f", "apple"]).stdout, vec![9; 5_000_000]);
    let old = run(&one, &["get", "bytes", "--snap", "4", "3.1f", "apple"]);
    assert_eq!(old.stdout, vec![7; 200_000], "the clone stays");
    assert_eq!(says(&one, &["get", "attrs", "3.1f", "apple", "_colour"]), "red");
    assert_eq!(says(&one, &["get", "omap", "3.1f", "pear"]), "k2\tv2\n");

    says(&one, &["export", "3.1f", &file("pg")]);
    assert!(refuses(&one, &["export", "3.2", &file("no")]).contains("no collection 3.2"));
    assert!(refuses(&one, &["import", &file("pg")]).contains("in this store already"));
    assert!(refuses(&other, &["import", &file("pg")]).contains("--force"));
    assert!(refuses(&other, &["import", &file("new")]).contains("not an export"));
    says(&other, &["import", "--force", &file("pg")]);
    says(&two, &["import", &file("pg")]);
    for data in [&two, &other] {
        assert_eq!(says(data, &["list", "3.1f"]), says(&one, &["list", "3.1f"]));
        assert_eq!(run(data, &["get", "bytes", "3.1f", "apple"]).stdout, vec![9; 5_000_000]);
        assert_eq!(says(data, &["fsck", "--deep"]), says(&one, &["fsck", "--deep"]));
    }

    let bench = says(&two, &["bench", "--secs", "1", "--bytes", "8K"]);
    assert!(bench.contains("durable writes: ") && bench.contains("random reads"), "{bench}");
    assert_eq!(says(&two, &["list"]), "3.1f\n", "the bench leaves nothing");

    // One bit of the data flips: found, and said.
    let block = one.join("block");
    let mut raw = std::fs::read(&block).unwrap();
    let at = raw.windows(4096).position(|w| w.iter().all(|b| *b == 9)).unwrap();
    raw[at + 10] ^= 1;
    std::fs::write(&block, raw).unwrap();
    assert_eq!(says(&one, &["fsck"]), "3 objects, 0 bytes verified, 0 errors\n");
    let out = run(&one, &["fsck", "--deep"]);
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(!out.status.success() && text.contains("checksum mismatch"), "{text}");
    std::fs::remove_dir_all(&dir).unwrap();
}
