//! The client library against a running cluster, stock or ours: ARGONAUT_TEST_CONF names
//! its ceph.conf; without it the test says so and passes.

use std::collections::BTreeMap;
use std::path::PathBuf;

use bytes::Bytes;
use rados::{Checksum, Cluster, Cmp, Config, Error, ReadOp, SnapContext, WatchEvent, WriteOp};
use types::{EntityKind, EntityName, OsdId, SnapId};

fn bytes(text: &'static str) -> Bytes {
    Bytes::from_static(text.as_bytes())
}

async fn calls(cluster: &Cluster) -> Result<(), Error> {
    let name = format!("rados-crate-{}", std::process::id());
    cluster.mon(&format!(r#"{{"prefix":"osd pool create","pool":"{name}","pg_num":8}}"#)).await?;
    let io = cluster.pool(&name).await?;

    io.write_full(b"a", bytes("0123456789")).await?;
    assert_eq!(io.read(b"a", 0, 100).await?, "0123456789");
    io.write(b"a", 4, bytes("xy")).await?;
    io.append(b"a", bytes("!")).await?;
    assert_eq!(io.read(b"a", 3, 8).await?, "3xy6789!");
    io.truncate(b"a", 5).await?;
    assert_eq!(io.stat(b"a").await?.size, 5);
    assert_eq!(io.read(b"nosuch", 0, 1).await.unwrap_err().code(), Some(2));
    assert_eq!(io.create(b"a", true).await.unwrap_err().code(), Some(17));

    io.set_xattr(b"a", "k", b"v\0w").await?;
    assert_eq!(&io.get_xattr(b"a", "k").await?[..], b"v\0w");
    assert_eq!(io.get_xattrs(b"a").await?.len(), 1);
    let pairs: BTreeMap<Bytes, Bytes> =
        (0..50).map(|i| (format!("k{i:02}").into(), Bytes::from(vec![i]))).collect();
    io.set_omap(b"a", pairs.clone()).await?;
    let (first, more) = io.get_omap(b"a", b"", 30).await?;
    assert!(more && first.len() == 30);
    let (rest, more) = io.get_omap(b"a", b"k29", 30).await?;
    assert!(!more && first.into_iter().chain(rest).eq(pairs));

    let big = Bytes::from((0..5_000_000u32).map(|i| (i * 7) as u8).collect::<Vec<_>>());
    io.write_full(b"big", big.clone()).await?;
    assert_eq!(io.read(b"big", 0, 10 << 20).await?, big);

    let other = io.namespace("ns");
    other.write_full(b"b", bytes("x")).await?;
    let names = |list: Vec<rados::Listed>| list.into_iter().map(|o| o.name).collect::<Vec<_>>();
    assert_eq!(names(other.list().await?), ["b"]);
    let mut all = names(io.list().await?);
    all.sort();
    assert_eq!(all, ["a", "big"]);

    let mut waiting = Vec::new();
    for i in 0..300u32 {
        let io = io.clone();
        waiting.push(tokio::task::spawn_local(async move {
            io.write_full(format!("n{i}").as_bytes(), Bytes::from(i.to_le_bytes().to_vec())).await
        }));
    }
    for one in waiting {
        one.await.expect("no panic")?;
    }
    assert_eq!(&io.read(b"n299", 0, 4).await?[..], 299u32.to_le_bytes());
    assert_eq!(io.list().await?.len(), 302);
    io.remove(b"a").await?;
    assert_eq!(io.stat(b"a").await.unwrap_err().code(), Some(2));
    compound(cluster, &name).await?;
    snapshots(cluster, &name).await?;
    watch(cluster, &name).await?;

    let (r, _, out) = cluster.osd_command(OsdId(0), r#"{"prefix":"version"}"#).await?;
    assert!(r == 0 && String::from_utf8_lossy(&out).contains("version"));
    let (r, rs, _) = cluster.mon_command(r#"{"prefix":"nonsense"}"#, Bytes::new()).await?;
    assert_eq!(r, -22, "{rs}");

    let sure = r#""yes_i_really_really_mean_it":true"#;
    cluster
        .mon(&format!(r#"{{"prefix":"osd pool rm","pool":"{name}","pool2":"{name}",{sure}}}"#))
        .await?;
    cluster.wait_for_latest_map().await?;
    assert_eq!(cluster.pool(&name).await.err().and_then(|e| e.code()), Some(2));
    Ok(())
}

/// Steps put together happen all or not at all, and each answer has its type.
async fn compound(cluster: &Cluster, name: &str) -> Result<(), Error> {
    let io = cluster.pool(name).await?;
    let mut op = WriteOp::new();
    op.create(true).write(0, bytes("abcdefgh")).truncate(12).zero(2, 2);
    op.set_xattr("kind", b"7").set_omap(&[(bytes("k"), bytes("v"))].into());
    op.set_omap_header(bytes("head")).alloc_hint(4 << 20, 4096, 0);
    io.write_op(b"c", op.clone()).await?;
    assert_eq!(io.write_op(b"c", op).await.unwrap_err().code(), Some(17));

    let mut op = ReadOp::new();
    op.assert_exists().cmp_xattr("kind", Cmp::Eq, b"7").cmp_ext(0, bytes("ab"));
    op.cmp_omap(bytes("k"), Cmp::Eq, bytes("v"));
    let (stat, data, sparse) = (op.stat(), op.read(0, 100), op.sparse_read(0, 100));
    let (keys, header) = (op.get_omap_keys(b"", 10), op.get_omap_header());
    let by_keys = op.get_omap_by_keys(&[bytes("k"), bytes("no")].into());
    let sum = op.checksum(Checksum::Crc32c, &u32::MAX.to_le_bytes(), 0, 8, 0);
    let missing = op.get_xattr("no");
    op.may_fail();
    let reply = io.read_op(b"c", op).await?;
    assert_eq!(reply.get(stat)?.size, 12);
    assert_eq!(reply.get(data)?, &b"ab\0\0efgh\0\0\0\0"[..]);
    assert!(reply.get(sparse)?.data.len() <= 12);
    assert_eq!(reply.get(keys)?, ([bytes("k")].into(), false));
    assert_eq!(reply.get(header)?, "head");
    assert_eq!(reply.get(by_keys)?.len(), 1);
    assert_eq!(reply.get(sum)?.len(), 4);
    assert_eq!(reply.get(missing).unwrap_err().code(), Some(61));

    let mut op = ReadOp::new();
    op.cmp_ext(0, bytes("aX"));
    assert_eq!(io.read_op(b"c", op).await.unwrap_err().code(), Some(4096));
    let mut op = ReadOp::new();
    op.assert_version(reply.version() + 1);
    assert_eq!(io.read_op(b"c", op).await.unwrap_err().code(), Some(75));
    let mut op = WriteOp::new();
    op.assert_exists().write_full(bytes("x"));
    assert_eq!(io.write_op(b"none", op).await.unwrap_err().code(), Some(2));
    assert_eq!(io.stat(b"none").await.unwrap_err().code(), Some(2));

    let said = io.exec(b"c", "hello", "say_hello", b"you").await?;
    assert_eq!(said, "Hello, you!");
    let mut op = WriteOp::new();
    op.rm_omap_keys(&[bytes("k")].into()).rm_xattr("kind").clear_omap();
    io.write_op(b"c", op).await?;

    let keyed = io.locator("where");
    keyed.write_full(b"c", bytes("other")).await?;
    assert_eq!(keyed.read(b"c", 0, 9).await?, "other");
    assert_eq!(io.list().await?.iter().filter(|o| o.name == "c").count(), 2);
    Ok(())
}

/// A snapshot of one's own shows what was there when it was made, until it is removed.
async fn snapshots(cluster: &Cluster, name: &str) -> Result<(), Error> {
    let io = cluster.pool(name).await?;
    io.write_full(b"s", bytes("old")).await?;
    let snap = io.create_own_snap().await?;
    let io = io.with_snaps(SnapContext { seq: snap, snaps: vec![snap] });
    io.write_full(b"s", bytes("newer")).await?;
    assert_eq!(io.read(b"s", 0, 9).await?, "newer");
    assert_eq!(io.at_snap(snap).read(b"s", 0, 9).await?, "old");
    let mut op = ReadOp::new();
    let slot = op.list_snaps();
    let versions = io.at_snap(SnapId::DIR).read_op(b"s", op).await?.get(slot)?;
    assert_eq!(versions.clones.iter().map(|c| c.id).collect::<Vec<_>>(), [snap, SnapId::HEAD]);
    io.rollback(b"s", snap).await?;
    assert_eq!(io.read(b"s", 0, 9).await?, "old");
    io.remove_own_snap(snap).await?;
    assert_eq!(io.remove_own_snap(SnapId(1 << 40)).await.unwrap_err().code(), Some(2));
    assert_eq!(io.create_pool_snap("p").await.unwrap_err().code(), Some(22));
    Ok(())
}

/// The watcher hears what is said, the notifier gets its answer; one that does not answer is
/// told of.
async fn watch(cluster: &Cluster, name: &str) -> Result<(), Error> {
    let io = cluster.pool(name).await?;
    let long = std::time::Duration::from_secs(10);
    let missing = io.watch(b"none", long).await.err().and_then(|e| e.code());
    assert_eq!(missing, Some(2));
    io.write_full(b"w", bytes("")).await?;
    let mut watch = io.watch(b"w", long).await?;
    let mut op = ReadOp::new();
    let slot = op.list_watchers();
    let watchers = io.read_op(b"w", op).await?.get(slot)?;
    assert_eq!(watchers.len(), 1);
    assert_eq!(
        (watchers[0].cookie, watchers[0].who.num as u64),
        (watch.cookie(), cluster.global_id())
    );
    let notify = io.notify(b"w", bytes("hear"), long);
    let answer = async {
        let Some(WatchEvent::Notify(n)) = watch.next().await else { panic!("a notification") };
        assert_eq!(n.payload, "hear");
        n.ack(&io, b"w", bytes("heard")).await
    };
    let (reply, acked) = tokio::join!(notify, answer);
    acked?;
    let reply = reply?;
    assert_eq!(reply.acks.len(), 1);
    assert_eq!(
        (reply.acks[0].0, &reply.acks[0].1[..]),
        ((cluster.global_id(), watch.cookie()), &b"heard"[..])
    );
    let reply = io.notify(b"w", bytes("?"), std::time::Duration::from_secs(1)).await?;
    assert_eq!(reply.timeouts, [(cluster.global_id(), watch.cookie())]);
    // Every OSD goes once: what the object's primary knew of the watch is lost with it.
    for osd in 0..cluster.map().max_osd {
        cluster.mon(&format!(r#"{{"prefix":"osd down","ids":["{osd}"]}}"#)).await?;
        let notify = io.notify(b"w", bytes("still"), long);
        // One that was sent to another OSD again is heard twice.
        let answer = async {
            while let Some(WatchEvent::Notify(n)) = watch.next().await {
                n.ack(&io, b"w", bytes("here")).await?;
            }
            Ok::<_, Error>(())
        };
        let reply = tokio::select! {
            reply = notify => reply?,
            ended = answer => panic!("osd.{osd}: the watch goes on: {ended:?}"),
        };
        assert_eq!(reply.acks.len(), 1, "osd.{osd}: {reply:?}");
        let up = || cluster.map().is_up(OsdId(osd));
        for _ in 0..300 {
            if up() {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
        assert!(up(), "osd.{osd} comes back");
    }
    watch.unwatch().await?;
    assert_eq!(io.notify(b"w", bytes("?"), long).await?, Default::default());
    Ok(())
}

#[test]
fn calls_of_the_client_library() {
    let Some(conf) = std::env::var_os("ARGONAUT_TEST_CONF").map(PathBuf::from) else {
        println!("skipped: ARGONAUT_TEST_CONF names no ceph.conf");
        return;
    };
    let name = EntityName::new(EntityKind::CLIENT, "admin");
    for mode in ["crc", "secure"] {
        let modes = rados::modes(mode);
        let config =
            Config { modes, ..Config::from_conf(&conf, &name).expect("a usable ceph.conf") };
        let done = rt::run_local(async { calls(&Cluster::connect(config).await?).await });
        done.expect("a runtime").unwrap_or_else(|err| panic!("{mode}: {err}"));
    }
}
