//! Objects and attributes that a stock gateway wrote (`vectors/rgw`).

use rgw_core::formats::{
    AclPolicy, BucketInfo, BucketTopics, EntryPoint, Manifest, Owner, Topic, UserInfo, bucket_flags,
};
use rgw_core::names::shard_of;
use types::{Denc, Reader};

macro_rules! bytes {
    ($name:literal) => {
        include_bytes!(concat!("../../../vectors/rgw/", $name, ".bin"))
    };
}

/// Reads a value that comes out as the same bytes.
fn same<T: Denc>(bytes: &[u8]) -> T {
    let value = T::from_bytes(bytes).expect("stock's bytes are read");
    assert_eq!(value.to_bytes(), bytes);
    value
}

#[test]
fn users() {
    let bytes = bytes!("user");
    let mut r = Reader::new(bytes);
    assert_eq!(r.string().unwrap(), "main");
    let user: UserInfo = same(&bytes[r.offset()..]);
    assert_eq!(user.id.id, "main");
    assert_eq!(user.keys.s3["KEYmain"].key, "secret");
    assert_eq!(user.limits.caps.0["users"], 3);
    // The tool rounds up to whole KiB.
    let quota = user.limits.user_quota;
    assert_eq!((quota.bytes_max, quota.objects_max), (977 << 10, 77));
    assert_eq!((user.limits.op_mask, user.limits.buckets_max), (7, 1_000));
}

#[test]
fn buckets() {
    let entry: EntryPoint = same(bytes!("entry"));
    let info: BucketInfo = same(bytes!("instance-plain"));
    assert_eq!((entry.bucket.name.as_str(), entry.is_linked), ("plain", true));
    assert_eq!(entry.bucket, info.bucket);
    assert!(matches!(&info.owner, Owner::User(user) if user.id == "main"));
    assert_eq!(
        (info.layout.current.index.shards, info.placement.as_str()),
        (11, "default-placement")
    );
    let site: BucketInfo = same(bytes!("instance-site"));
    let site = site.website.expect("it is a website").0;
    assert_eq!((site.index.as_str(), site.error.as_str()), ("index.html", "error.html"));
    let rule = &site.rules[1];
    assert_eq!((rule.error, rule.to.status, rule.new_key.as_str()), (404, 302, "why"));
    same::<EntryPoint>(bytes!("entry-locked"));
    let locked: BucketInfo = same(bytes!("instance-vectors"));
    assert!(
        locked.flags & bucket_flags::OBJECT_LOCK != 0
            && locked.flags & bucket_flags::VERSIONED != 0
    );
    assert!(locked.lock.is_some_and(|lock| lock.rule.is_some()));
}

#[test]
fn lists() {
    let private: AclPolicy = same(bytes!("acl-a"));
    assert_eq!((private.owner.id.as_str(), private.list.users["main"]), ("main", 15));
    let public: AclPolicy = same(bytes!("acl-big"));
    assert_eq!(public.list.groups[&1], 1);
}

/// What is made here is what stock made, and the parts of an upload are read.
#[test]
fn manifests() {
    for (bytes, size) in [(&bytes!("manifest-a")[..], 1), (&bytes!("manifest-big")[..], 9 << 20)] {
        let stock: Manifest = same(bytes);
        let (head, prefix) = (stock.head.clone(), stock.prefix.clone());
        let ours = Manifest::of_put(head, size, 4 << 20, 4 << 20, prefix, "default-placement");
        assert_eq!(ours.to_bytes(), bytes);
    }
    let parts: Manifest = same(bytes!("manifest-multi"));
    assert_eq!((parts.size, parts.head_size, parts.rules[&0].part_size), (10 << 20, 0, 5 << 20));
}

#[test]
fn shards() {
    let text = include_str!("../../../vectors/rgw/shards.txt");
    for line in text.lines() {
        let (shard, name) = line.split_once(' ').unwrap();
        let key = if name.starts_with("__") { &name[1..] } else { name };
        assert_eq!(shard_of(key, 11).to_string(), shard, "{name}");
    }
    assert_eq!(text.lines().count(), 40);
}

#[test]
fn topics() {
    let topic: Topic = same(bytes!("topic"));
    assert_eq!((topic.name.as_str(), topic.arn.as_str()), ("pers", "arn:aws:sns:default::pers"));
    let to = &topic.to;
    assert_eq!(
        (to.is_persistent, to.queue.as_str(), to.keep_s, to.retries),
        (true, ":pers", 600, 9)
    );
    assert_eq!(to.sleep_s, u32::MAX);
    let all: BucketTopics = same(bytes!("notification"));
    assert_eq!(all.0.keys().collect::<Vec<_>>(), ["n1_sync", "n2_pers", "n3_sync"]);
    assert_eq!(all.0["n2_pers"].filter.0.suffix, ".jpg");
    let third = &all.0["n3_sync"];
    assert_eq!((third.filter.0.regex.as_str(), third.filter.0.tags["t"].as_str()), ("a.*", "u"));
    assert_eq!(third.events, ["s3:ObjectLifecycle:Expiration:*", "s3:ObjectSynced:Create"]);
}
