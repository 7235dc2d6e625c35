//! Topics and events: what is reserved is committed or given back, queues keep what is not delivered, holders take
//! turns.

use std::cell::RefCell;
use std::future::{Future, ready};
use std::pin::Pin;
use std::rc::Rc;

use rgw_proto::Code;
use rgw_proto::body::lifecycle::parse;
use rgw_proto::body::notification::{Event, Filter};

use super::memory::{Memory, now};
use super::*;
use crate::formats::{BucketTopic, Destination, Lifecycle, ObjectTags, StoredFilter, Topic};
use crate::lifecycle::{Clock, LISTS};
use crate::notify::{Doer, Happened, Outlet, Push};
use crate::topics::NOTIFICATIONS;

/// Collects what is pushed.
#[derive(Clone, Default)]
struct Sink {
    pushed: Rc<RefCell<Vec<String>>>,
    lost: Rc<RefCell<Vec<String>>>,
    fails: Rc<RefCell<bool>>,
}

impl Outlet for Sink {
    fn push(&self, push: Push) -> Pin<Box<dyn Future<Output = std::result::Result<(), String>>>> {
        let record = push.record;
        let line = format!(
            "{} {} {} {}",
            record.configuration, record.event, record.object.key, record.object.version
        );
        self.pushed.borrow_mut().push(line.trim_end().to_owned());
        Box::pin(ready(if *self.fails.borrow() { Err("away".to_owned()) } else { Ok(()) }))
    }
    fn lost(&self, topic: &str, why: &str) {
        self.lost.borrow_mut().push(format!("{topic}: {why}"));
    }
    fn queued(&self, _queue: &str) {}
}

fn telling(memory: &Memory) -> (Gateway<Memory>, Sink) {
    let (gateway, sink) = (gateway(memory.clone()), Sink::default());
    assert!(gateway.outlet.set(Box::new(sink.clone())).is_ok());
    (gateway, sink)
}

fn topic(name: &str, is_persistent: bool) -> Topic {
    let to = Destination {
        endpoint: "http://127.0.0.1:1/".into(),
        topic: name.into(),
        is_persistent,
        ..Destination::default()
    };
    let arn = format!("arn:aws:sns:default::{name}");
    Topic { owner: Owner::User(user()), name: name.into(), to, arn, ..Topic::default() }
}

async fn notify(
    gateway: &Gateway<Memory>,
    bucket: &BucketAt,
    id: &str,
    topic: &str,
    events: &[&str],
    filter: Filter,
) -> BucketAt {
    let topic = gateway.topic("", topic).await.unwrap().expect("the topic is there");
    let one = BucketTopic {
        events: events.iter().map(|e| (*e).to_owned()).collect(),
        id: id.into(),
        filter: StoredFilter(filter),
        topic,
    };
    let name = format!("{id}_{}", one.topic.name);
    let add = |all: &mut std::collections::BTreeMap<String, BucketTopic>| {
        all.insert(name.clone(), one.clone());
        Ok(())
    };
    gateway.change_notifications(bucket, add).await.unwrap();
    gateway.bucket_now("", "bkt").await.unwrap()
}

fn what(key: &str) -> Happened {
    Happened { key: key.into(), size: 1, etag: "e".into(), ..Happened::default() }
}

/// Topics come and go with their queues and lists, and a bucket tells those alone that it names.
#[test]
fn topics_and_their_buckets() {
    now(async {
        let memory = Memory::new();
        let (gateway, _) = telling(&memory);
        let bucket = made(&gateway).await.unwrap();
        for (name, is_persistent) in [("plain", false), ("kept", true)] {
            gateway.write_topic(&mut topic(name, is_persistent), None).await.unwrap();
        }
        let found = gateway.topic_now("", "kept").await.unwrap().unwrap();
        assert_eq!(found.topic.to.queue, ":kept");
        // Made again by two at once: one of them is told.
        let again = gateway.write_topic(&mut topic("kept", true), None).await;
        assert_eq!(again.unwrap_err().code, Code::ConcurrentModification);
        assert_eq!(gateway.queues().await.unwrap(), [":kept"]);
        assert_eq!(gateway.topics("", "").await.unwrap().0.len(), 2);
        assert_eq!(gateway.topics("other", "").await.unwrap().0.len(), 0);
        let bucket =
            notify(&gateway, &bucket, "n", "plain", &["s3:ObjectCreated:*"], Filter::default())
                .await;
        let bucket = notify(&gateway, &bucket, "m", "kept", &[], Filter::default()).await;
        assert!(memory.names("meta").contains(&"buckets.:plain".to_owned()));
        let none = |all: &mut std::collections::BTreeMap<String, BucketTopic>| {
            all.clear();
            Ok(())
        };
        gateway.change_notifications(&bucket, none).await.unwrap();
        assert!(!gateway.bucket_now("", "bkt").await.unwrap().attrs.contains_key(NOTIFICATIONS));
        gateway.remove_topic(&found).await.unwrap();
        assert_eq!(gateway.queues().await.unwrap(), [""; 0]);
        assert!(!memory.names("meta").iter().any(|name| name.ends_with(":kept")));
        assert!(!memory.names("log").contains(&":kept".to_owned()));
    });
}

/// Events go to the notifications that want them, and to no others.
#[test]
fn events_find_their_notifications() {
    now(async {
        let memory = Memory::new();
        let (gateway, sink) = telling(&memory);
        let bucket = made(&gateway).await.unwrap();
        let who = Doer::default();
        let reserved =
            gateway.reserve_events(&bucket, &[Event::PUT], "k", &Attrs::new()).await.unwrap();
        assert!(reserved.is_empty(), "nobody asked for it");
        gateway.write_topic(&mut topic("t", false), None).await.unwrap();
        let tagged =
            Filter { tags: [("t".to_owned(), "u".to_owned())].into(), ..Filter::default() };
        let keyed = Filter { suffix: ".jpg".into(), ..Filter::default() };
        let meta = Filter {
            metadata: [("x-amz-meta-a".to_owned(), "1".to_owned())].into(),
            ..Filter::default()
        };
        let mut bucket =
            notify(&gateway, &bucket, "all", "t", &["s3:ObjectCreated:*"], Filter::default()).await;
        for (id, filter) in [("jpg", keyed), ("meta", meta), ("tag", tagged)] {
            bucket = notify(
                &gateway,
                &bucket,
                id,
                "t",
                &["s3:ObjectCreated:Put", "s3:FutureEvent"],
                filter,
            )
            .await;
        }
        let tags = ObjectTags(vec![("t".into(), "u".into())]).to_bytes();
        let attrs: Attrs = [
            ("x-amz-meta-a".to_owned(), Bytes::from_static(b"1\0")),
            ("x-amz-tagging".to_owned(), tags),
        ]
        .into();
        let told = async |event: Event, key: &str, attrs: &Attrs| {
            let reserved = gateway.reserve_events(&bucket, &[event], key, attrs).await.unwrap();
            gateway.commit_events(&bucket, reserved, &who, &what(key)).await;
            std::mem::take(&mut *sink.pushed.borrow_mut())
        };
        assert_eq!(told(Event::PUT, "a", &Attrs::new()).await, ["all ObjectCreated:Put a"]);
        assert_eq!(
            told(Event::PUT, "a.jpg", &attrs).await,
            [
                "all ObjectCreated:Put a.jpg",
                "jpg ObjectCreated:Put a.jpg",
                "meta ObjectCreated:Put a.jpg",
                "tag ObjectCreated:Put a.jpg"
            ]
        );
        assert_eq!(told(Event::COPY, "a.jpg", &attrs).await, ["all ObjectCreated:Copy a.jpg"]);
        assert_eq!(told(Event::DELETE, "a.jpg", &attrs).await, [""; 0]);
        *sink.fails.borrow_mut() = true;
        told(Event::COPY, "b", &attrs).await;
        assert_eq!(*sink.lost.borrow(), ["t: away"]);
        // A topic that is gone is told nothing, and nothing fails for it.
        let at = gateway.topic_now("", "t").await.unwrap().unwrap();
        gateway.remove_topic(&at).await.unwrap();
        assert_eq!(told(Event::PUT, "a", &Attrs::new()).await, [""; 0]);
        // Notifications that nobody can read stop what they might tell of.
        bucket.attrs.insert(NOTIFICATIONS.into(), Bytes::from_static(b"\x01"));
        let garbled = gateway.reserve_events(&bucket, &[Event::PUT], "k", &Attrs::new()).await;
        assert_eq!(garbled.err().map(|e| e.code), Some(Code::InternalError));
    });
}

/// A persistent topic's events wait in order; one holder at a time sees them; what is removed is gone.
#[test]
fn queues_keep_events() {
    now(async {
        let memory = Memory::new();
        let (gateway, sink) = telling(&memory);
        let bucket = made(&gateway).await.unwrap();
        gateway.write_topic(&mut topic("q", true), None).await.unwrap();
        let bucket =
            notify(&gateway, &bucket, "n", "q", &["s3:ObjectCreated:*"], Filter::default()).await;
        let who = Doer { user: "main".into(), request: "r".into() };
        let long = "k".repeat(1_000);
        for key in ["a", "b", &long] {
            let reserved =
                gateway.reserve_events(&bucket, &[Event::PUT], key, &attrs("e")).await.unwrap();
            gateway.commit_events(&bucket, reserved, &who, &what(key)).await;
        }
        let undone =
            gateway.reserve_events(&bucket, &[Event::PUT], "undone", &attrs("e")).await.unwrap();
        gateway.abort_events(undone).await;
        // Left by a gateway that died.
        let left =
            gateway.reserve_events(&bucket, &[Event::PUT], "left", &attrs("e")).await.unwrap();
        drop(left);
        assert_eq!(*sink.pushed.borrow(), [""; 0]);
        let queue = gateway.queues().await.unwrap().remove(0);
        let (mine, other) = (gateway.new_cookie(), gateway.new_cookie());
        assert!(gateway.queue_page(&queue, &mine, 10).await.unwrap().is_none(), "it is not held");
        assert!(
            gateway.hold_queue(&queue, &mine).await.unwrap()
                && gateway.hold_queue(&queue, &mine).await.unwrap()
        );
        assert!(!gateway.hold_queue(&queue, &other).await.unwrap());
        assert!(gateway.queue_page(&queue, &other, 10).await.unwrap().is_none());
        let page = gateway.queue_page(&queue, &mine, 10).await.unwrap().unwrap();
        let keys: Vec<&str> = page
            .entries
            .iter()
            .map(|(_, e)| e.as_ref().unwrap().record.0.object.key.as_str())
            .collect();
        assert_eq!(keys, ["a", "b", &long]);
        let first = page.entries[0].1.as_ref().unwrap();
        assert_eq!(
            (first.record.0.user.as_str(), first.record.0.configuration.as_str()),
            ("main", "n")
        );
        assert_eq!(first.record.0.bucket.arn, "arn:aws:s3:::bkt");
        // The first alone is done.
        assert!(gateway.remove_entries(&queue, &mine, &page.entries[1].0, 1).await.unwrap());
        assert!(!gateway.remove_entries(&queue, &other, &page.end, 1).await.unwrap());
        assert_eq!(gateway.queue_page(&queue, &mine, 10).await.unwrap().unwrap().entries.len(), 2);
        gateway.release_queue(&queue, &mine).await;
        assert!(gateway.hold_queue(&queue, &other).await.unwrap());
        memory.pass(91);
        assert!(gateway.hold_queue(&queue, &mine).await.unwrap(), "its holder has died");
        memory.pass(60);
        assert!(gateway.expire_reservations(&queue, &mine).await.unwrap());
        // Room is counted with all that an entry will carry.
        let mut heavy = Topic { opaque: "o".repeat(15_000_000), ..topic("full", true) };
        gateway.write_topic(&mut heavy, None).await.unwrap();
        let bucket =
            notify(&gateway, &bucket, "f", "full", &["s3:ObjectCreated:Post"], Filter::default())
                .await;
        let mut count = 0;
        let refused = loop {
            match gateway.reserve_events(&bucket, &[Event::POST], "k", &attrs("e")).await {
                Ok(held) => drop(held),
                Err(error) => break error,
            }
            count += 1;
            assert!(count < 10);
        };
        assert_eq!(refused.code, Code::SlowDown, "after {count}");
    });
}

/// Lifecycle rules tell what they do, and tell nothing of what they do not.
#[test]
fn lifecycle_tells() {
    now(async {
        let memory = Memory::new();
        let (gateway, sink) = telling(&memory);
        let bucket = versioned(&gateway).await.unwrap();
        gateway.write_topic(&mut topic("t", false), None).await.unwrap();
        let events = ["s3:ObjectLifecycle:*", "s3:LifecycleExpiration:Delete"];
        let bucket = notify(&gateway, &bucket, "n", "t", &events, Filter::default()).await;
        let first = put(&gateway, &bucket, "k", b"1").await.unwrap();
        let second = put(&gateway, &bucket, "k", b"22").await.unwrap();
        let info = Upload { placement: "default-placement".into(), ..Upload::default() };
        gateway.begin_upload(&bucket, "up", &info, attrs("")).await.unwrap();
        let rules = "<LifecycleConfiguration><Rule><ID>r</ID><Status>Enabled</Status><Filter/><Expiration><Days>1</Days></Expiration>\
            <NoncurrentVersionExpiration><NoncurrentDays>1</NoncurrentDays></NoncurrentVersionExpiration>\
            <AbortIncompleteMultipartUpload><DaysAfterInitiation>1</DaysAfterInitiation></AbortIncompleteMultipartUpload></Rule></LifecycleConfiguration>";
        let bytes = Lifecycle(parse(rules.as_bytes()).unwrap()).to_bytes();
        let set = |now: &mut BucketAt| {
            now.attrs.insert("lc".into(), bytes.clone());
            Ok(())
        };
        gateway.change_bucket(&bucket.info.bucket, set).await.unwrap();
        gateway.note_lifecycle(&bucket).await.unwrap();
        let pass = async || {
            for n in 0..LISTS {
                gateway.lifecycle_pass(n, Clock { day_s: 10 }).await.unwrap();
            }
            let mut told = std::mem::take(&mut *sink.pushed.borrow_mut());
            told.sort();
            told
        };
        assert_eq!(pass().await, [""; 0], "nothing is due");
        memory.pass(30);
        assert_eq!(
            pass().await,
            [
                format!("n LifecycleExpiration:Delete k {first}"),
                format!("n LifecycleExpiration:Delete k {second}"),
                format!("n ObjectLifecycle:Expiration:Current k {second}"),
                format!("n ObjectLifecycle:Expiration:NonCurrent k {first}"),
                "n ObjectLifecycle:Expiration:AbortMPU up".to_owned(),
            ]
            .tap_sorted()
        );
        memory.pass(30);
        let told = pass().await;
        assert!(
            told.contains(&format!("n ObjectLifecycle:Expiration:NonCurrent k {second}")),
            "{told:?}"
        );
        memory.pass(30);
        let told = pass().await;
        assert!(
            told.iter()
                .any(|line| line.starts_with("n ObjectLifecycle:Expiration:DeleteMarker k ")),
            "{told:?}"
        );
    });
}

trait Sorted {
    fn tap_sorted(self) -> Self;
}

impl<const N: usize> Sorted for [String; N] {
    fn tap_sorted(mut self) -> Self {
        self.sort();
        self
    }
}
