//! Crashes: the gateway dies before its first, second, ... operation of a sequence.

use super::memory::{Memory, now};
use super::*;

/// What a key holds before and after a sequence.
struct Case<'a> {
    key: &'a str,
    before: Option<Vec<u8>>,
    after: Option<Vec<u8>>,
}

/// Runs `prepare`, then `run` with a gateway that dies before its `n`th operation, for each `n` until it lives to the
/// end. After each: the key is as before or after, listings say the same, and `run` by another gateway ends well.
fn at_each_operation<R: AsyncFn(&Gateway<Memory>, &BucketAt) -> Result<()>>(
    is_versioned: bool,
    prepare: impl AsyncFn(&Gateway<Memory>, &BucketAt),
    case: &Case<'_>,
    run: R,
) {
    let mut deaths = 0;
    for n in 1.. {
        let memory = Memory::new();
        let first = gateway(memory.clone());
        let died = now(async {
            let bucket = if is_versioned { versioned(&first).await } else { made(&first).await };
            let bucket = bucket.unwrap();
            prepare(&first, &bucket).await;
            let doomed = gateway(memory.another());
            doomed.objects.dies_before(n);
            let result = run(&doomed, &bucket).await;
            let died = doomed.objects.is_dead();
            assert!(died || result.is_ok(), "it fails though it lives: {result:?}");
            // The next gateway, later than what was announced counts.
            memory.pass(300);
            let next = gateway(memory.another());
            let got = get(&next, &bucket, case.key, None).await.unwrap();
            assert!(
                got == case.before || got == case.after,
                "death before operation {n}: neither old nor new"
            );
            if !died {
                assert!(got == case.after, "done, and not there");
            }
            for _ in 0..2 {
                let names = listed(&next, &bucket).await.unwrap();
                let is_listed = names.iter().any(|name| name == case.key);
                assert_eq!(
                    is_listed,
                    got.is_some(),
                    "death before operation {n}: the listing lies"
                );
            }
            run(&next, &bucket).await.unwrap();
            let got = get(&next, &bucket, case.key, None).await.unwrap();
            assert!(got == case.after, "death before operation {n}: the second attempt");
            let is_listed =
                listed(&next, &bucket).await.unwrap().iter().any(|name| name == case.key);
            assert_eq!(
                is_listed,
                got.is_some(),
                "death before operation {n}: listed after the second attempt"
            );
            died
        });
        if !died {
            break;
        }
        deaths += 1;
    }
    assert!(deaths >= 3, "the sequence has several operations: {deaths}");
}

#[test]
fn put() {
    let new = data(9 * MIB, 2);
    let case = Case { key: "k", before: None, after: Some(new.clone()) };
    let run = async |gateway: &Gateway<Memory>, bucket: &BucketAt| {
        super::put(gateway, bucket, "k", &new).await.map(drop)
    };
    at_each_operation(false, async |_, _| (), &case, run);
}

#[test]
fn overwrite() {
    let (old, new) = (data(9 * MIB, 1), data(100, 2));
    let case = Case { key: "k", before: Some(old.clone()), after: Some(new.clone()) };
    let prepare = async |gateway: &Gateway<Memory>, bucket: &BucketAt| {
        super::put(gateway, bucket, "k", &old).await.unwrap();
    };
    let run = async |gateway: &Gateway<Memory>, bucket: &BucketAt| {
        super::put(gateway, bucket, "k", &new).await.map(drop)
    };
    at_each_operation(false, prepare, &case, run);
}

#[test]
fn delete() {
    let old = data(9 * MIB, 1);
    let case = Case { key: "k", before: Some(old.clone()), after: None };
    let prepare = async |gateway: &Gateway<Memory>, bucket: &BucketAt| {
        super::put(gateway, bucket, "k", &old).await.unwrap();
    };
    let run = async |gateway: &Gateway<Memory>, bucket: &BucketAt| {
        super::remove(gateway, bucket, "k").await
    };
    at_each_operation(false, prepare, &case, run);
}

#[test]
fn put_of_a_version() {
    let (old, new) = (data(100, 1), data(200, 2));
    let case = Case { key: "k", before: Some(old.clone()), after: Some(new.clone()) };
    let prepare = async |gateway: &Gateway<Memory>, bucket: &BucketAt| {
        super::put(gateway, bucket, "k", &old).await.unwrap();
    };
    let run = async |gateway: &Gateway<Memory>, bucket: &BucketAt| {
        super::put(gateway, bucket, "k", &new).await.map(drop)
    };
    at_each_operation(true, prepare, &case, run);
}

#[test]
fn delete_marker() {
    let old = data(100, 1);
    let case = Case { key: "k", before: Some(old.clone()), after: None };
    let prepare = async |gateway: &Gateway<Memory>, bucket: &BucketAt| {
        super::put(gateway, bucket, "k", &old).await.unwrap();
    };
    let run = async |gateway: &Gateway<Memory>, bucket: &BucketAt| {
        let owner = Some(("main".to_owned(), String::new()));
        gateway.link_version(bucket, "k", &gateway.new_version(), owner).await
    };
    at_each_operation(true, prepare, &case, run);
}

#[test]
fn delete_of_all_versions() {
    let old = data(100, 1);
    let case = Case { key: "k", before: Some(old.clone()), after: None };
    let prepare = async |gateway: &Gateway<Memory>, bucket: &BucketAt| {
        super::put(gateway, bucket, "k", &old).await.unwrap();
    };
    let run = async |gateway: &Gateway<Memory>, bucket: &BucketAt| {
        let query = Query { max: 10, versions: true, ..Query::default() };
        for entry in gateway.list(bucket, &query).await?.entries {
            gateway.unlink_version(bucket, "k", &entry.key.instance).await?;
        }
        Ok(())
    };
    at_each_operation(true, prepare, &case, run);
}

#[test]
fn copy_over_another() {
    let (old, new) = (data(100, 1), data(9 * MIB, 2));
    let case = Case { key: "k", before: Some(old.clone()), after: Some(new.clone()) };
    let prepare = async |gateway: &Gateway<Memory>, bucket: &BucketAt| {
        super::put(gateway, bucket, "k", &old).await.unwrap();
        super::put(gateway, bucket, "from", &new).await.unwrap();
    };
    let run = async |gateway: &Gateway<Memory>, bucket: &BucketAt| {
        let from = gateway.object(bucket, "from", None, true).await?.expect("it is there");
        let key = RawKey { name: "k".into(), ..RawKey::default() };
        let mtime = crate::objects::Objects::now(&gateway.objects);
        let attrs = attrs("e");
        gateway.copy(bucket, &from, bucket, key, attrs, mtime, "default-placement").await
    };
    at_each_operation(false, prepare, &case, run);
}

#[test]
fn completion_of_an_upload() {
    let (old, new) = (data(9 * MIB, 1), data(5 * MIB, 2));
    let case = Case { key: "big", before: Some(old.clone()), after: Some(new.clone()) };
    let prepare = async |gateway: &Gateway<Memory>, bucket: &BucketAt| {
        super::put(gateway, bucket, "big", &old).await.unwrap();
        upload(gateway, bucket, &[&new]).await.unwrap();
    };
    let run = async |gateway: &Gateway<Memory>, bucket: &BucketAt| {
        let page = gateway.uploads(bucket, &Query { max: 10, ..Query::default() }).await?;
        // None left: an attempt before this one came to its end.
        let Some(entry) = page.entries.first() else { return Ok(()) };
        // A lock that a dead gateway holds ends by itself.
        gateway.objects.pass(700);
        let id = &entry.key.instance;
        let at = gateway.upload(bucket, "big", id).await?;
        let parts = gateway.parts(bucket, &at).await?;
        let part = |p: &crate::formats::UploadPart| Part {
            number: p.number,
            etag: p.etag.clone(),
            sum: None,
        };
        let parts: Vec<_> = parts.values().map(part).collect();
        complete(gateway, bucket, id, &parts).await
    };
    at_each_operation(false, prepare, &case, run);
}

#[test]
fn append() {
    let (old, more) = (data(5 * MIB, 1), data(9 * MIB, 2));
    let new = [&old[..], &more].concat();
    let case = Case { key: "k", before: Some(old.clone()), after: Some(new) };
    let prepare = async |gateway: &Gateway<Memory>, bucket: &BucketAt| {
        super::append(gateway, bucket, "k", 0, &old).await.unwrap();
    };
    let run = async |gateway: &Gateway<Memory>, bucket: &BucketAt| {
        match super::append(gateway, bucket, "k", old.len(), &more).await {
            // An attempt before this one came to its end.
            Err(error) if error.code == Code::PositionNotEqualToLength => Ok(()),
            other => other.map(drop),
        }
    };
    at_each_operation(false, prepare, &case, run);
}

/// A bucket is there with its index, or a second attempt makes it.
#[test]
fn buckets() {
    for n in 1.. {
        let memory = Memory::new();
        gateway(memory.clone());
        let died = now(async {
            let doomed = gateway(memory.another());
            doomed.objects.dies_before(n);
            let _ = doomed.make_bucket(new_bucket(), 1_000).await;
            let died = doomed.objects.is_dead();
            let next = gateway(memory.another());
            if next.bucket("", "bkt").await.is_err() {
                assert!(next.make_bucket(new_bucket(), 1_000).await.unwrap(), "it is new");
            }
            let bucket = next.bucket("", "bkt").await.unwrap();
            super::put(&next, &bucket, "k", b"x").await.unwrap();
            assert_eq!(listed(&next, &bucket).await.unwrap(), ["k"]);
            // Made again, it is among the user's buckets whatever happened.
            assert!(!next.make_bucket(new_bucket(), 1_000).await.unwrap());
            let names: Vec<_> = next
                .buckets_of(&crate::formats::Owner::User(user()))
                .await
                .unwrap()
                .into_iter()
                .map(|b| b.0)
                .collect();
            assert_eq!(names, ["bkt"], "death before operation {n}");
            died
        });
        if !died {
            break;
        }
    }
}
