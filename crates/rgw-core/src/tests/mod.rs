//! Sequences over objects in memory. A gateway dies before each of its operations in turn: whatever it had done by
//! then, the next gateway finds each object whole, old or new, lists what it finds, and can do the same again.

mod appending;
mod background;
mod caching;
mod crash;
mod listing;
mod memory;
mod notifying;

use rgw_proto::body::Part;
use rgw_proto::condition::Conditions;
use rgw_proto::{Code, Result};

use crate::formats::{
    AclOwner, AclPolicy, IamPools, LogPools, Owner, Placement, Pool, Upload, UserId, UserPools,
    ZoneGroup, ZoneParams,
};
use crate::gateway::Gateway;
use crate::list::Query;
use crate::meta::{Attrs, BucketAt, NewBucket};
use crate::multipart::Completion;
use crate::names::RawKey;
use crate::put::{Incoming, NewHead};
use memory::{Memory, now};
use types::{Bytes, Denc};

const MIB: usize = 1 << 20;

fn gateway(objects: Memory) -> Gateway<Memory> {
    let pool = |text: &str| Pool::parse(text);
    let placement = Placement {
        index: pool("index"),
        data: pool("data"),
        extra: pool("extra"),
        classes: [("STANDARD".to_owned(), None), ("COLD".to_owned(), Some(pool("cold")))].into(),
        is_indexless: false,
    };
    let users = UserPools {
        keys: pool("meta:keys"),
        email: pool("meta:email"),
        swift: pool("meta:swift"),
        uid: pool("meta:uid"),
    };
    let zone = ZoneParams {
        domain_root: pool("meta:root"),
        control: pool("control"),
        gc: pool("log:gc"),
        lifecycle: pool("log:lc"),
        iam: IamPools {
            accounts: pool("meta:accounts"),
            groups: pool("meta:groups"),
            roles: pool("meta:roles"),
            oidc: pool("meta:oidc"),
            topics: pool("meta:topics"),
        },
        logs: LogPools {
            reshard: pool("log:reshard"),
            notif: pool("log:notif"),
            ..LogPools::default()
        },
        usage: pool("log:usage"),
        users,
        id: "z".into(),
        name: "default".into(),
        placements: [("default-placement".to_owned(), placement)].into(),
    };
    let group = ZoneGroup { id: "g".into(), ..ZoneGroup::default() };
    for name in ["meta", "control", "log"] {
        now(crate::objects::Objects::make_pool(
            &objects,
            &pool(name),
            crate::objects::PoolUse::Meta,
        ))
        .unwrap();
    }
    Gateway::new(objects, zone, group)
}

fn user() -> UserId {
    UserId { id: "main".into(), ..UserId::default() }
}

fn attrs(etag: &str) -> Attrs {
    let owner = AclOwner { id: "main".into(), display_name: "Main".into() };
    let acl = AclPolicy { owner, ..AclPolicy::default() };
    [("acl".to_owned(), acl.to_bytes()), ("etag".to_owned(), Bytes::from(etag.to_owned()))].into()
}

fn new_bucket() -> NewBucket {
    NewBucket {
        name: "bkt".into(),
        owner: Owner::User(user()),
        attrs: attrs(""),
        ..NewBucket::default()
    }
}

async fn made(gateway: &Gateway<Memory>) -> Result<BucketAt> {
    gateway.make_bucket(new_bucket(), 1_000).await?;
    gateway.bucket("", "bkt").await
}

async fn versioned(gateway: &Gateway<Memory>) -> Result<BucketAt> {
    let bucket = made(gateway).await?;
    let flag = crate::formats::bucket_flags::VERSIONED;
    let on = |now: &mut BucketAt| {
        now.info.flags |= flag;
        Ok(())
    };
    gateway.change_bucket(&bucket.info.bucket, on).await?;
    gateway.bucket("", "bkt").await
}

/// Stores an object as the gateway does; its version.
async fn put(
    gateway: &Gateway<Memory>,
    bucket: &BucketAt,
    name: &str,
    data: &[u8],
) -> Result<String> {
    let instance = if bucket.keeps_versions() { gateway.new_version() } else { String::new() };
    let key = RawKey { name: name.into(), instance, ns: String::new() };
    let mut incoming = gateway.begin(bucket, &key, "").await?;
    incoming.push(data).await?;
    store(gateway, bucket, key, incoming, data.len()).await
}

/// Ends a put.
async fn store(
    gateway: &Gateway<Memory>,
    bucket: &BucketAt,
    key: RawKey,
    mut incoming: Incoming<Memory>,
    len: usize,
) -> Result<String> {
    let name = key.name.as_str();
    incoming.flush().await?;
    let written = incoming.written(gateway.object_name(bucket, &key), "default-placement");
    let conditions = Conditions::default();
    let new = NewHead {
        key: key.clone(),
        data: written.head,
        manifest: written.manifest,
        attrs: attrs(&format!("{len}")),
        mtime: crate::objects::Objects::now(&gateway.objects),
        conditions: &conditions,
        same_tail: None,
        tag: None,
        gone: Vec::new(),
        over: None,
    };
    gateway.write_head(bucket, new).await?;
    if bucket.is_versioned() {
        gateway.link_version(bucket, name, &key.instance, None).await?;
    }
    Ok(key.instance)
}

/// Appends as the gateway does; the object's ETag.
async fn append(
    gateway: &Gateway<Memory>,
    bucket: &BucketAt,
    name: &str,
    position: usize,
    data: &[u8],
) -> Result<String> {
    let to = gateway.appending(bucket, name).await?;
    if to.size() != position as u64 {
        return Err(Code::PositionNotEqualToLength.into());
    }
    end_append(gateway, bucket, to, data).await
}

async fn end_append(
    gateway: &Gateway<Memory>,
    bucket: &BucketAt,
    to: crate::append::Appending,
    data: &[u8],
) -> Result<String> {
    let mut incoming = gateway.begin_append(bucket, &to, "").await?;
    incoming.push(data).await?;
    if !data.is_empty() {
        incoming.flush().await?;
    }
    let mtime = crate::objects::Objects::now(&gateway.objects);
    let (conditions, placement) = (Conditions::default(), "default-placement");
    let (attrs, md5) = (attrs(""), rgw_proto::checksum::md5(data));
    let added = crate::append::Added { attrs, md5, mtime, conditions: &conditions, placement };
    Ok(gateway.append(bucket, to, incoming, added).await?.0)
}

/// An object's bytes; `None` where there is none.
async fn get(
    gateway: &Gateway<Memory>,
    bucket: &BucketAt,
    name: &str,
    version: Option<&str>,
) -> Result<Option<Vec<u8>>> {
    let Ok(object) = gateway.object(bucket, name, version, true).await? else { return Ok(None) };
    let mut out = Vec::new();
    for read in gateway.reads(bucket, &object, 0, object.size) {
        out.extend_from_slice(&gateway.read(bucket, &object, &read).await?);
    }
    assert_eq!(out.len() as u64, object.size);
    Ok(Some(out))
}

async fn remove(gateway: &Gateway<Memory>, bucket: &BucketAt, name: &str) -> Result<()> {
    let key = RawKey { name: name.into(), ..RawKey::default() };
    gateway.remove_exact(bucket, &key, |_| Ok(())).await.map(drop)
}

/// Names that a listing has.
async fn listed(gateway: &Gateway<Memory>, bucket: &BucketAt) -> Result<Vec<String>> {
    let query = Query { max: 1_000, ..Query::default() };
    let page = gateway.list(bucket, &query).await?;
    assert_eq!(page.next, None);
    Ok(page.entries.into_iter().map(|e| e.key.name).collect())
}

async fn upload(
    gateway: &Gateway<Memory>,
    bucket: &BucketAt,
    parts: &[&[u8]],
) -> Result<(String, Vec<Part>)> {
    let info = Upload { placement: "default-placement".into(), ..Upload::default() };
    let id = gateway.begin_upload(bucket, "big", &info, attrs("")).await?;
    let upload = gateway.upload(bucket, "big", &id).await?;
    let mut out = Vec::new();
    for (n, data) in (1..).zip(parts) {
        let mut incoming = gateway.begin_part(bucket, &upload, n).await?;
        incoming.push(data).await?;
        incoming.flush().await?;
        let etag = format!("{:032x}", data.len());
        gateway.end_part(bucket, &upload, n, incoming, attrs(&etag), None).await?;
        out.push(Part { number: n, etag, sum: None });
    }
    Ok((id, out))
}

async fn complete(
    gateway: &Gateway<Memory>,
    bucket: &BucketAt,
    id: &str,
    parts: &[Part],
) -> Result<()> {
    let upload = gateway.upload(bucket, "big", id).await?;
    let key = RawKey { name: "big".into(), ..RawKey::default() };
    let conditions = Conditions::default();
    let made = |_: &[&crate::formats::UploadPart]| Ok(Attrs::new());
    let completion = Completion { key, parts, conditions: &conditions, part_min: 1, made: &made };
    gateway.complete_upload(bucket, &upload, completion).await.map(drop)
}

fn data(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|n| (n as u8).wrapping_mul(31).wrapping_add(seed) ^ (n >> 12) as u8).collect()
}

#[test]
fn what_is_put_is_read_listed_and_removed() {
    now(async {
        let memory = Memory::new();
        let gateway = gateway(memory.clone());
        let bucket = made(&gateway).await.unwrap();
        for (name, len) in [("a", 0), ("_b", 5), ("c", 4 * MIB), ("d", 9 * MIB + 1)] {
            put(&gateway, &bucket, name, &data(len, 1)).await.unwrap();
            let back = get(&gateway, &bucket, name, None).await.unwrap();
            assert_eq!(back, Some(data(len, 1)), "{name}");
        }
        assert_eq!(listed(&gateway, &bucket).await.unwrap(), ["_b", "a", "c", "d"]);
        assert!(!gateway.is_empty(&bucket).await.unwrap());
        for name in ["a", "_b", "c", "d"] {
            remove(&gateway, &bucket, name).await.unwrap();
            assert_eq!(get(&gateway, &bucket, name, None).await.unwrap(), None);
        }
        assert!(gateway.is_empty(&bucket).await.unwrap());
        // The tail waits for its collector; the heads are gone.
        assert_eq!(memory.names("data").len(), 2, "{:?}", memory.names("data"));
        gateway.remove_bucket(&bucket).await.unwrap();
        assert!(gateway.bucket("", "bkt").await.is_err());
        assert_eq!(memory.names("index"), [""; 0]);
    });
}

/// A put that may hold little goes into the tail by small writes, and is the same object.
#[test]
fn puts_that_save_memory() {
    const PIECE: u64 = 60 << 10; // a multiple of the pool's alignment
    now(async {
        let memory = Memory::new();
        let gateway = gateway(memory.clone());
        let bucket = made(&gateway).await.unwrap();
        for (name, len) in [("a", 0), ("b", 5), ("c", 4 * MIB), ("d", 9 * MIB + 1)] {
            let bytes = data(len, 3);
            let key = RawKey { name: name.into(), ..RawKey::default() };
            let mut incoming = gateway.begin(&bucket, &key, "").await.unwrap();
            incoming.save_memory(PIECE - 7);
            for chunk in bytes.chunks(10_007) {
                incoming.push(chunk).await.unwrap();
                assert!(incoming.holds() <= PIECE, "{}", incoming.holds());
            }
            store(&gateway, &bucket, key, incoming, len).await.unwrap();
            let back = get(&gateway, &bucket, name, None).await.unwrap();
            assert!(back == Some(bytes), "{name}");
        }
        assert_eq!(memory.names("data").len(), 4 + 1 + 1 + 3, "{:?}", memory.names("data"));
        for name in ["a", "b", "c", "d"] {
            remove(&gateway, &bucket, name).await.unwrap();
        }
        memory.pass(7_201);
        for queue in 0..crate::gc::QUEUES {
            gateway.collect_queue(queue).await.unwrap();
        }
        assert_eq!(memory.names("data"), [""; 0]);
    });
}

#[test]
fn versions_come_and_go() {
    now(async {
        let gateway = gateway(Memory::new());
        let bucket = versioned(&gateway).await.unwrap();
        let one = put(&gateway, &bucket, "k", b"1").await.unwrap();
        let two = put(&gateway, &bucket, "k", b"22").await.unwrap();
        assert_eq!(get(&gateway, &bucket, "k", None).await.unwrap(), Some(b"22".to_vec()));
        assert_eq!(get(&gateway, &bucket, "k", Some(&one)).await.unwrap(), Some(b"1".to_vec()));
        let marker = gateway.new_version();
        let owner = Some(("main".to_owned(), "Main".to_owned()));
        gateway.link_version(&bucket, "k", &marker, owner).await.unwrap();
        assert_eq!(get(&gateway, &bucket, "k", None).await.unwrap(), None);
        let query = Query { max: 10, versions: true, ..Query::default() };
        let page = gateway.list(&bucket, &query).await.unwrap();
        let ids: Vec<_> =
            page.entries.iter().map(|e| (e.key.instance.as_str(), e.is_latest)).collect();
        assert_eq!(ids, [(marker.as_str(), true), (two.as_str(), false), (one.as_str(), false)]);
        gateway.unlink_version(&bucket, "k", &marker).await.unwrap();
        gateway.unlink_version(&bucket, "k", &two).await.unwrap();
        assert_eq!(get(&gateway, &bucket, "k", None).await.unwrap(), Some(b"1".to_vec()));
        gateway.unlink_version(&bucket, "k", &one).await.unwrap();
        assert!(gateway.is_empty(&bucket).await.unwrap());
        assert_eq!(gateway.objects.names("data"), [""; 0], "not even the plain name is left");
    });
}

#[test]
fn uploads_are_whole_or_not_there() {
    now(async {
        let gateway = gateway(Memory::new());
        let bucket = made(&gateway).await.unwrap();
        let (one, two) = (data(5 * MIB, 1), data(7, 2));
        let (id, parts) = upload(&gateway, &bucket, &[&one, &two]).await.unwrap();
        assert_eq!(get(&gateway, &bucket, "big", None).await.unwrap(), None);
        let page = gateway.uploads(&bucket, &Query { max: 10, ..Query::default() }).await.unwrap();
        assert_eq!(page.entries[0].key.name, "big");
        complete(&gateway, &bucket, &id, &parts).await.unwrap();
        let back = get(&gateway, &bucket, "big", None).await.unwrap().unwrap();
        assert_eq!(back, [one, two].concat());
        assert_eq!(listed(&gateway, &bucket).await.unwrap(), ["big"]);
        assert_eq!(gateway.objects.names("extra"), [""; 0]);
        let page = gateway.uploads(&bucket, &Query { max: 10, ..Query::default() }).await.unwrap();
        assert_eq!(page.entries, []);
    });
}

/// Names that S3 tells apart must not meet in RADOS or the index.
#[test]
fn uploads_of_keys_like_internal_names() {
    now(async {
        let gateway = gateway(Memory::new());
        let bucket = made(&gateway).await.unwrap();
        for name in ["_multipart_big.2~x.meta", "big.2~x.meta", "_shadow_x", "__x", "_:a_b"] {
            put(&gateway, &bucket, name, name.as_bytes()).await.unwrap();
        }
        let mut names = listed(&gateway, &bucket).await.unwrap();
        names.sort();
        assert_eq!(names, ["_:a_b", "__x", "_multipart_big.2~x.meta", "_shadow_x", "big.2~x.meta"]);
        let page = gateway.uploads(&bucket, &Query { max: 10, ..Query::default() }).await.unwrap();
        assert_eq!(page.entries, []);
    });
}
