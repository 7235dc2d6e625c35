//! The client library against a running cluster, stock or ours: ARGONAUT_TEST_CONF names
//! its ceph.conf; without it the test says so and passes.

use std::collections::BTreeMap;
use std::path::PathBuf;

use bytes::Bytes;
use rados::{Cluster, Config, Error};
use types::{EntityKind, EntityName, OsdId};

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

#[test]
fn calls_of_the_client_library() {
    let Some(conf) = std::env::var_os("ARGONAUT_TEST_CONF").map(PathBuf::from) else {
        println!("skipped: ARGONAUT_TEST_CONF names no ceph.conf");
        return;
    };
    let name = EntityName::new(EntityKind::CLIENT, "admin");
    for secure in [false, true] {
        let config =
            Config { secure, ..Config::from_conf(&conf, &name).expect("a usable ceph.conf") };
        let done = rt::run_local(async { calls(&Cluster::connect(config).await?).await });
        done.expect("a runtime").unwrap_or_else(|err| panic!("secure {secure}: {err}"));
    }
}
