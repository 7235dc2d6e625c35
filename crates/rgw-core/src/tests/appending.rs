//! Objects that grow at their end.

use super::memory::{Memory, now};
use super::*;

/// Of two appends that began at one place one is done; the other changes nothing and leaves nothing.
#[test]
fn one_of_two_wins() {
    now(async {
        let gateway = gateway(Memory::new());
        let bucket = made(&gateway).await.unwrap();
        append(&gateway, &bucket, "k", 0, b"begun ").await.unwrap();
        let (one, two) = (
            gateway.appending(&bucket, "k").await.unwrap(),
            gateway.appending(&bucket, "k").await.unwrap(),
        );
        let (first, second) = (data(5 * MIB, 1), data(9 * MIB, 2));
        end_append(&gateway, &bucket, one, &first).await.unwrap();
        let names = gateway.objects.names("data");
        let lost = end_append(&gateway, &bucket, two, &second).await.unwrap_err();
        assert_eq!(lost.code, Code::PositionNotEqualToLength);
        assert_eq!(gateway.objects.names("data"), names, "nothing is left");
        let want = [b"begun ", &first[..]].concat();
        assert_eq!(get(&gateway, &bucket, "k", None).await.unwrap(), Some(want));
    });
}

/// A whole put, or a removal, between an append's beginning and its end is not undone.
#[test]
fn what_came_between_stays() {
    now(async {
        let gateway = gateway(Memory::new());
        let bucket = made(&gateway).await.unwrap();
        append(&gateway, &bucket, "k", 0, b"begun ").await.unwrap();
        let to = gateway.appending(&bucket, "k").await.unwrap();
        put(&gateway, &bucket, "k", b"whole").await.unwrap();
        let lost = end_append(&gateway, &bucket, to, b"more").await.unwrap_err();
        assert_eq!(lost.code, Code::PositionNotEqualToLength);
        assert_eq!(get(&gateway, &bucket, "k", None).await.unwrap().unwrap(), b"whole");
        assert_eq!(
            gateway.appending(&bucket, "k").await.err().unwrap().code,
            Code::ObjectNotAppendable
        );
        append(&gateway, &bucket, "l", 0, b"begun ").await.unwrap();
        let to = gateway.appending(&bucket, "l").await.unwrap();
        remove(&gateway, &bucket, "l").await.unwrap();
        assert!(end_append(&gateway, &bucket, to, b"more").await.is_err());
        assert_eq!(get(&gateway, &bucket, "l", None).await.unwrap(), None);
        let bucket = versioned(&gateway).await.unwrap();
        assert_eq!(
            gateway.appending(&bucket, "n").await.err().unwrap().code,
            Code::InvalidBucketState
        );
    });
}

/// A copy shares the parts that were there, and each grows by parts of its own; what is removed takes nothing of the other.
#[test]
fn copies_grow_apart() {
    now(async {
        let gateway = gateway(Memory::new());
        let bucket = made(&gateway).await.unwrap();
        let shared = data(9 * MIB, 1);
        append(&gateway, &bucket, "k", 0, &shared).await.unwrap();
        let from = gateway.object(&bucket, "k", None, true).await.unwrap().unwrap();
        let key = RawKey { name: "copy".into(), ..RawKey::default() };
        let mtime = crate::objects::Objects::now(&gateway.objects);
        let mut with = from.attrs.clone();
        for own in ["idtag", "tail_tag", "manifest", "pg_ver", "source_zone"] {
            with.remove(own);
        }
        let placement = "default-placement";
        gateway.copy(&bucket, &from, &bucket, key, with, mtime, placement).await.unwrap();
        let (one, two) = (data(5 * MIB, 2), data(6 * MIB, 3));
        append(&gateway, &bucket, "copy", shared.len(), &one).await.unwrap();
        append(&gateway, &bucket, "k", shared.len(), &two).await.unwrap();
        let (copy, source) = ([&shared[..], &one].concat(), [&shared[..], &two].concat());
        assert_eq!(get(&gateway, &bucket, "copy", None).await.unwrap(), Some(copy.clone()));
        assert_eq!(get(&gateway, &bucket, "k", None).await.unwrap(), Some(source));
        remove(&gateway, &bucket, "k").await.unwrap();
        assert_eq!(get(&gateway, &bucket, "copy", None).await.unwrap(), Some(copy));
    });
}
