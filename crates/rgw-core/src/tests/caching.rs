//! Two gateways that keep metadata: each sees what the other, or its tool, changed.

use rgw_proto::Code;

use super::{gateway, memory::Memory, memory::now, new_bucket, user};
use crate::cache::NOTIFY_OBJECTS;
use crate::gateway::Gateway;
use crate::objects::Objects;
use crate::users::NewUser;
use types::Bytes;

/// Delivers what was told to both.
fn deliver(told: Vec<(String, Bytes)>, all: &[&Gateway<Memory>]) {
    for (name, payload) in told {
        let n = name.strip_prefix("notify.").expect("an object to notify").parse::<u32>().unwrap();
        assert!(n < NOTIFY_OBJECTS);
        for gateway in all {
            gateway.cache.told(&payload, &gateway.zone.domain_root, gateway.objects.now()).unwrap();
        }
    }
}

#[test]
fn what_others_change_is_read_anew() {
    now(async {
        let memory = Memory::new();
        let (ours, other) = (gateway(memory.clone()), gateway(memory.another()));
        for gateway in [&ours, &other] {
            (0..NOTIFY_OBJECTS).for_each(|n| gateway.cache.hears(n, gateway.objects.now()));
        }
        let key = (Some("KEY".to_owned()), Some("secret".to_owned()));
        let new = NewUser { id: user(), display_name: "m".into(), key, ..NewUser::default() };
        other.make_user(new).await.unwrap();
        other.make_bucket(new_bucket(), 10).await.unwrap();
        deliver(memory.told(), &[&ours, &other]);
        let looks = async |gateway: &Gateway<Memory>| {
            gateway.user_by_key("KEY").await.unwrap();
            gateway.bucket("", "bkt").await.unwrap()
        };
        looks(&ours).await;
        let before = memory.asked();
        let bucket = looks(&ours).await;
        assert_eq!(memory.asked(), before, "all of it is known");
        // A bucket, a user, a key.
        let change = |bucket: &mut crate::meta::BucketAt| {
            bucket.attrs.insert("x".into(), Bytes::from_static(b"1"));
            Ok(())
        };
        other.change_bucket(&bucket.info.bucket, change).await.unwrap();
        assert!(!looks(&ours).await.attrs.contains_key("x"), "nobody told yet");
        deliver(memory.told(), &[&ours]);
        assert!(looks(&ours).await.attrs.contains_key("x"));
        other.remove_key("main", "KEY").await.unwrap();
        deliver(memory.told(), &[&ours]);
        let error = ours.user_by_key("KEY").await.unwrap_err();
        assert_eq!(error.code, Code::InvalidAccessKeyId);
        // What a gateway changes itself it knows at once.
        ours.change_bucket(&bucket.info.bucket, |bucket| {
            bucket.attrs.insert("y".into(), Bytes::from_static(b"1"));
            Ok(())
        })
        .await
        .unwrap();
        assert!(ours.bucket("", "bkt").await.unwrap().attrs.contains_key("y"));
    });
}
