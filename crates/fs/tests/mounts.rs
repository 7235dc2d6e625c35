//! The client library against a running cluster with a file system, stock or ours: ARGONAUT_TEST_CONF
//! names its ceph.conf; without it the test says so and passes. ARGONAUT_TEST_FAILOVER is a command
//! that has another metadata server take over.

use std::time::Duration;

use fs::{Fs, Options, Result, SetAttr, open_flag};
use types::{EntityKind, EntityName, SnapId, UTime};

const RW: u32 = open_flag::RDWR | open_flag::CREAT;

fn errno<T>(done: Result<T>) -> i32 {
    done.err().map_or(0, |err| err.errno())
}

fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|n| (n as u32).wrapping_mul(2_654_435_761).to_le_bytes()[3] ^ seed).collect()
}

async fn names(fs: &Fs, path: &str) -> Result<Vec<String>> {
    let all = fs.read_dir(path).await?;
    Ok(all.iter().map(|e| String::from_utf8_lossy(&e.name).into_owned()).collect())
}

async fn tree(one: &Fs, two: &Fs) -> Result<()> {
    one.mkdir_all("t/a/b", 0o755).await?;
    one.mkdir_all("t/a/b", 0o755).await?;
    assert_eq!(errno(one.mkdir("t/a", 0o755).await), 17);
    assert_eq!(errno(one.rmdir("t/a").await), 39);
    assert_eq!(errno(two.stat("t/a/c").await), 2);
    let set = SetAttr {
        mode: Some(0o4751),
        uid: Some(7),
        gid: Some(8),
        mtime: Some(UTime { sec: 1_000_000_000, nsec: 5 }),
        ..SetAttr::default()
    };
    two.set_attr("t/a/b", set).await?;
    let stat = one.stat("t/a/b").await?;
    assert_eq!((stat.mode, stat.uid, stat.gid), (0o44_751, 7, 8));
    assert_eq!(stat.times.mtime, UTime { sec: 1_000_000_000, nsec: 5 });
    one.write_file("t/f", b"0123456789", 0o640).await?;
    assert_eq!(two.read_file("t/f", 100).await?, "0123456789");
    assert_eq!(errno(two.read_file("t/f", 9).await), 27);
    one.link("t/f", "t/g").await?;
    assert_eq!(two.lstat("t/g").await?.nlink, 2);
    one.symlink("a/b", "t/l").await?;
    one.symlink("/t/l", "t/m").await?;
    one.write_file("t/m/x", b"by links", 0o600).await?;
    assert_eq!(two.read_file("t/a/b/x", 100).await?, "by links");
    assert_eq!(two.read_link("t/l").await?, "a/b");
    assert_eq!(two.stat("t/m").await?.ino, two.lstat("t/a/b").await?.ino);
    one.symlink("loop", "t/loop").await?;
    assert_eq!(errno(two.stat("t/loop").await), 40);
    assert_eq!(errno(one.unlink("t/a").await), 21);
    one.rename("t/g", "t/a/h").await?;
    assert_eq!(names(two, "t").await?, ["a", "f", "l", "loop", "m"]);
    assert_eq!(names(two, "t/l").await?, ["x"]);
    one.unlink("t/f").await?;
    assert_eq!(two.read_file("t/a/h", 100).await?, "0123456789");
    assert_eq!(errno(one.open("t/a", open_flag::RDONLY, 0).await), 21);
    one.remove_tree("t", || true).await?;
    assert_eq!(errno(two.lstat("t").await), 2);
    Ok(())
}

/// Two mounts write one file at once; holes, cuts, objects of several.
async fn data(one: &Fs, two: &Fs) -> Result<()> {
    let a = one.open("d", RW, 0o644).await?;
    let big = pattern(9 << 20, 1);
    a.write(0, &big).await?;
    assert_eq!(two.stat("d").await?.size.size, 9 << 20, "the writer is asked for the size");
    let b = two.open("d", RW, 0).await?;
    assert_eq!(b.read(0, 10 << 20).await?, big);
    b.write(5 << 20, b"middle").await?;
    assert_eq!(a.read(5 << 20, 6).await?, "middle");
    b.write(20 << 20, b"end").await?;
    assert_eq!(a.stat().await?.size.size, (20 << 20) + 3);
    let tail = a.read((20 << 20) - 5, 100).await?;
    assert_eq!(tail, &b"\0\0\0\0\0end"[..]);
    a.truncate(6 << 20).await?;
    assert_eq!(b.read((6 << 20) - 1, 10).await?.len(), 1);
    b.truncate(7 << 20).await?;
    let after = a.read(6 << 20, 1 << 20).await?;
    assert!(after.len() == 1 << 20 && after.iter().all(|x| *x == 0), "what was cut is zeros");
    a.fsync().await?;
    b.fsync().await?;
    assert_eq!(errno(one.open("d", open_flag::RDONLY, 0).await?.write(0, b"x").await), 9);
    a.close().await?;
    b.close().await?;
    // Opened with a cut, and made once only.
    let flags = open_flag::WRONLY | open_flag::TRUNC;
    one.open("d", flags, 0).await?.close().await?;
    assert_eq!(two.stat("d").await?.size.size, 0);
    let excl = open_flag::CREAT | open_flag::EXCL | open_flag::WRONLY;
    assert_eq!(errno(two.open("d", excl, 0o644).await), 17);
    one.unlink("d").await
}

async fn attributes(one: &Fs, two: &Fs) -> Result<()> {
    one.mkdir("x", 0o755).await?;
    one.set_xattr("x", "user.k", b"v\0w", Some(true)).await?;
    assert_eq!(errno(two.set_xattr("x", "user.k", b"", Some(true)).await), 17);
    assert_eq!(errno(two.set_xattr("x", "user.n", b"", Some(false)).await), 61);
    assert_eq!(two.get_xattr("x", "user.k").await?, &b"v\0w"[..]);
    assert_eq!(two.list_xattrs("x").await?.len(), 1);
    two.remove_xattr("x", "user.k").await?;
    assert_eq!(errno(one.get_xattr("x", "user.k").await), 61);
    assert_eq!(errno(one.get_xattr("x", "ceph.quota").await), 61);
    one.set_xattr("x", "ceph.quota.max_bytes", b"1000000", None).await?;
    // Others see limits and layouts when they are durable.
    one.sync().await?;
    assert_eq!(two.get_xattr("x", "ceph.quota.max_bytes").await?, "1000000");
    assert_eq!(two.get_xattr("x", "ceph.quota").await?, "max_bytes=1000000 max_files=0");
    let pool = one.get_xattr("x", "ceph.dir.layout.pool").await;
    assert_eq!(errno(pool), 61, "a directory without a layout of its own");
    let pool = two.map().expect("a map").data_pools[0];
    let pool = two.cluster().map().pool_names[&pool].clone();
    one.set_xattr("x", "ceph.dir.layout.pool", pool.as_bytes(), None).await?;
    one.set_xattr("x", "ceph.dir.layout.pool_namespace", b"ns", None).await?;
    one.sync().await?;
    assert_eq!(two.get_xattr("x", "ceph.dir.layout.pool").await?, pool);
    one.write_file("x/f", &pattern(100_000, 2), 0o644).await?;
    assert_eq!(two.get_xattr("x/f", "ceph.file.layout.pool_namespace").await?, "ns");
    assert_eq!(two.read_file("x/f", 1 << 20).await?, pattern(100_000, 2));
    one.set_xattr("x", "ceph.dir.pin", b"0", None).await?;
    one.sync().await?;
    assert_eq!(two.get_xattr("x", "ceph.dir.pin").await?, "0");
    assert_eq!(two.get_xattr("x", "ceph.dir.entries").await?, "1");
    assert_eq!(errno(one.set_xattr("x", "ceph.quota.max_bytes", b"many", None).await), 22);
    assert!(one.statfs().await?.kb_avail > 0);
    one.remove_tree("x", || true).await
}

async fn snapshots(one: &Fs, two: &Fs) -> Result<()> {
    one.mkdir_all("s/d", 0o755).await?;
    let file = one.open("s/d/f", RW, 0o644).await?;
    file.write(0, &pattern(5 << 20, 3)).await?;
    two.mkdir("s/.snap/first", 0o755).await?;
    // Its server tells this mount of the snapshot before it answers anything later.
    assert_eq!(names(one, "s/.snap").await?, ["first"]);
    file.write(1 << 20, &pattern(5 << 20, 4)).await?;
    file.fsync().await?;
    let then = two.read_file("s/.snap/first/d/f", 10 << 20).await?;
    assert!(then == pattern(5 << 20, 3), "the snapshot has what was written before it");
    assert_eq!(two.stat("s/d/f").await?.size.size, 6 << 20);
    assert!(two.stat("s/.snap/first").await?.snapid != SnapId::HEAD);
    two.rename("s/.snap/first", "s/.snap/second").await?;
    assert_eq!(names(one, "s/.snap").await?, ["second"]);
    let below = names(one, "s/d/.snap").await?;
    assert!(below.len() == 1 && below[0].starts_with("_second_"), "{below:?}");
    assert_eq!(names(one, "s/.snap/second/d").await?, ["f"]);
    assert_eq!(errno(one.write_file("s/.snap/second/d/f", b"x", 0).await), 30);
    one.mkdir("copy", 0o755).await?;
    let copied = one.copy_tree("s/.snap/second", "copy", |_| true).await?;
    assert_eq!((copied.files, copied.bytes), (1, 5 << 20));
    assert!(two.read_file("copy/d/f", 10 << 20).await? == pattern(5 << 20, 3));
    file.close().await?;
    assert_eq!(errno(one.copy_tree("s", "copy", |_| false).await), 125);
    assert_eq!(errno(one.rmdir("s/.snap/first").await), 2);
    one.rmdir("s/.snap/second").await?;
    assert_eq!(names(two, "s/.snap").await?, [""; 0]);
    one.remove_tree("s", || true).await?;
    one.remove_tree("copy", || true).await
}

/// More names than one answer has.
async fn many(one: &Fs, two: &Fs) -> Result<()> {
    one.mkdir("many", 0o755).await?;
    let mut begun = Vec::new();
    for n in 0..1500u32 {
        let fs = one.clone();
        begun.push(tokio::task::spawn_local(async move {
            fs.symlink("x", format!("many/{n:05}")).await
        }));
    }
    for one in begun {
        one.await.expect("a task")?;
    }
    let all = names(two, "many").await?;
    assert!(all.len() == 1500 && all[0] == "00000" && all[1499] == "01499", "{}", all.len());
    two.remove_tree("many", || true).await
}

/// Another server takes over while a file is written; nothing that was synced is lost.
async fn failover(one: &Fs, two: &Fs, command: &str) -> Result<()> {
    one.mkdir("o", 0o755).await?;
    let file = one.open("o/f", RW, 0o644).await?;
    file.write(0, &pattern(1 << 20, 5)).await?;
    one.sync().await?;
    let ended = tokio::process::Command::new("bash").args(["-c", command]).status().await;
    assert!(ended.is_ok_and(|s| s.success()), "{command}");
    for n in 0..40u64 {
        one.mkdir(format!("o/{n}"), 0o755).await?;
        file.write((n + 1) << 20, &pattern(1000, n as u8)).await?;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    file.fsync().await?;
    let again = two.open("o/f", open_flag::RDONLY, 0).await?;
    assert_eq!(again.read(0, 1 << 20).await?, pattern(1 << 20, 5));
    assert_eq!(again.read(40 << 20, 2000).await?, pattern(1000, 39));
    again.close().await?;
    file.close().await?;
    assert_eq!(names(two, "o").await?.len(), 41);
    one.remove_tree("o", || true).await
}

async fn all(config: rados::Config) -> Result<()> {
    let missing = Options { fs_name: Some("nosuch".to_owned()), ..Options::default() };
    assert_eq!(errno(Fs::mount(config.clone(), missing).await), 2);
    let name = format!("live-{}", std::process::id());
    let whole = Fs::mount(config.clone(), Options::default()).await?;
    whole.mkdir(&name, 0o755).await?;
    let at = Options {
        fs_name: Some("cephfs".to_owned()),
        root: format!("/{name}"),
        ..Options::default()
    };
    let one = Fs::mount(config.clone(), at.clone()).await?;
    let two = Fs::mount(config.clone(), at).await?;
    tree(&one, &two).await?;
    data(&one, &two).await?;
    attributes(&one, &two).await?;
    snapshots(&one, &two).await?;
    many(&one, &two).await?;
    if let Ok(command) = std::env::var("ARGONAUT_TEST_FAILOVER") {
        failover(&one, &two, &command).await?;
    }
    one.unmount().await?;
    two.unmount().await?;
    whole.remove_tree(&name, || true).await?;
    whole.unmount().await
}

#[test]
fn calls_of_the_file_system_library() {
    let Ok(conf) = std::env::var("ARGONAUT_TEST_CONF") else {
        eprintln!("skipped: ARGONAUT_TEST_CONF names no cluster");
        return;
    };
    let name = EntityName::new(EntityKind::CLIENT, "admin");
    let config = rados::Config::from_conf(conf.as_ref(), &name).unwrap();
    let done =
        rt::run_local(async { tokio::time::timeout(Duration::from_secs(120), all(config)).await });
    done.unwrap().expect("it ends within two minutes").unwrap();
}
