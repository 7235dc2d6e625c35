//! Events: room is reserved before an object changes, the event is committed or sent after, and workers deliver what
//! waits in queues.
//!
//! ```text
//!   reserve (queues: 2pc_queue_reserve) ── the change ──┬── commit: queues take the event; others are pushed now
//!                                                       └── abort
//!   queue held (lock QUEUE_lock, 90 s) ── page ── each pushed ── those of its front that are done are removed
//! ```
//!
//! A change that was answered has its event in the queue. Who dies between the change and the commit leaves a
//! reservation, which the queue's holder ends; his client has no answer. An event that was pushed by a worker that died
//! before it removed it is pushed again.
//!
//! Source: `rgw_notify.cc`.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;

use cls::client as lock;
use cls::client::two_phase_queue as queue;
use rgw_proto::body::notification::Event;
use rgw_proto::record::{OfBucket, OfObject, Record};
use rgw_proto::{Code, Error, Result};
use types::{Bytes, Denc, Errno, OpResult, UTime};

use crate::formats::{ObjectTags, QueuedEvent, StoredRecord, Topic};
use crate::gateway::{Gateway, attr_text, decoded, failed};
use crate::meta::{Attrs, BucketAt};
use crate::objects::{Objects, Vector};
use crate::topics::{NOTIFICATIONS, QUEUES, notifications_of};

/// How long a queue is held without a sign of life, s: as stock's.
const HELD_S: u32 = 90;
/// A reservation that is older was left behind, s: as stock's.
const STALE_S: u32 = 120;
/// Bytes of an entry beside its texts.
const ENTRY_BYTES: u64 = 2_048;
/// Queues that are looked at.
const QUEUES_MAX: usize = 10_000;
/// Names of a page of queues.
const PAGE: u64 = 1_000;

/// An event that is pushed now.
#[derive(Clone, Debug)]
pub struct Push {
    /// The topic, of today.
    pub topic: Topic,
    /// What is sent.
    pub record: Record,
}

/// The way out for events: sends, and says what went wrong. It has its own bounds of time and number.
pub trait Outlet {
    /// Sends an event once; the text says why that failed.
    fn push(&self, push: Push) -> Pin<Box<dyn Future<Output = std::result::Result<(), String>>>>;

    /// An event did not get away, though what it tells of was done.
    fn lost(&self, topic: &str, why: &str);

    /// A queue has an entry more.
    fn queued(&self, queue: &str);
}

/// Who did something.
#[derive(Clone, Debug, Default)]
pub struct Doer {
    /// `[TENANT$]UID`, or an account's id.
    pub user: String,
    /// The request's id.
    pub request: String,
}

/// The object that something happened to.
#[derive(Clone, Debug, Default)]
pub struct Happened {
    /// Its key.
    pub key: String,
    /// Its bytes.
    pub size: u64,
    /// Its ETag.
    pub etag: String,
    /// Its version; empty where there is none.
    pub version: String,
    /// When it happened.
    pub at: UTime,
}

/// An event that has a topic.
struct Held {
    configuration: String,
    event: Event,
    topic: Topic,
    /// The reservation in the topic's queue.
    reservation: Option<u32>,
}

/// Events that are sent once what they tell of is done. To be committed or aborted.
#[must_use]
#[derive(Default)]
pub struct Reserved {
    held: Vec<Held>,
    metadata: BTreeMap<String, String>,
    tags: Vec<(String, String)>,
}

impl Reserved {
    /// Whether nobody wants to know.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }
}

/// Entries of a queue's front.
#[derive(Clone, Debug, Default)]
pub struct QueuePage {
    /// Markers and entries; `None` for bytes that are no event.
    pub entries: Vec<(Bytes, Option<QueuedEvent>)>,
    /// The marker behind the last.
    pub end: Bytes,
}

fn lock_name(queue: &str) -> Bytes {
    format!("{queue}_lock").into()
}

impl<O: Objects> Gateway<O> {
    /// Reserves room for what some events will tell, where notifications of the bucket want them. `attrs` are those of
    /// the object: of the new one, or of the one that goes. Without notifications this costs nothing.
    ///
    /// # Errors
    /// [`Code::SlowDown`] where a queue is full; of RADOS.
    pub async fn reserve_events(
        &self,
        bucket: &BucketAt,
        events: &[Event],
        key: &str,
        attrs: &Attrs,
    ) -> Result<Reserved> {
        let mut out = Reserved::default();
        if !bucket.attrs.contains_key(NOTIFICATIONS) {
            return Ok(out);
        }
        let all = notifications_of(&bucket.attrs)?;
        let metadata = attrs.iter().filter(|(name, _)| name.starts_with("x-amz-meta-"));
        out.metadata = metadata.map(|(name, value)| (name.clone(), attr_text(value))).collect();
        let tags = attrs.get("x-amz-tagging").and_then(|bytes| ObjectTags::from_bytes(bytes).ok());
        out.tags = tags.unwrap_or_default().0;
        let by_key = out.tags.iter().cloned().collect();
        for one in all.0.values() {
            let wanted: Vec<Event> =
                one.events.iter().filter_map(|name| Event::parse(name)).collect();
            for event in events {
                let wants = wanted.is_empty() && one.events.is_empty()
                    || wanted.iter().any(|wanted| wanted.meets(*event));
                if !wants || !one.filter.0.fits(key, &out.metadata, &by_key) {
                    continue;
                }
                // The notification has the topic as it was then. One that is gone is told nothing.
                let topic = match self.topic(one.topic.realm(), &one.topic.to.topic).await {
                    Ok(Some(topic)) => topic,
                    Ok(None) => continue,
                    Err(error) => {
                        self.abort_events(out).await;
                        return Err(error);
                    }
                };
                let mut reservation = None;
                if topic.to.is_persistent && !topic.to.queue.is_empty() {
                    match self.reserve_in(&topic, key, &out).await {
                        Ok(id) => reservation = Some(id),
                        Err(errno) => {
                            self.abort_events(out).await;
                            return Err(match errno {
                                Errno::NOSPC => Error::new(
                                    Code::SlowDown,
                                    format!("The queue of the topic {} is full.", topic.name),
                                ),
                                errno => failed("reserving room for an event")(errno),
                            });
                        }
                    }
                }
                let configuration = one.id.clone();
                out.held.push(Held { configuration, event: *event, topic, reservation });
            }
        }
        Ok(out)
    }

    async fn reserve_in(&self, topic: &Topic, key: &str, of: &Reserved) -> OpResult<u32> {
        let pairs = of.metadata.iter().map(|(k, v)| k.len() + v.len());
        let pairs = pairs.chain(of.tags.iter().map(|(k, v)| k.len() + v.len()));
        let texts = [&topic.to.endpoint, &topic.to.args, &topic.opaque, &topic.name];
        let texts = pairs.map(|len| len + 8).chain(texts.iter().map(|text| text.len()));
        let size = ENTRY_BYTES + (key.len() + texts.sum::<usize>()) as u64;
        let op = queue::ReserveOp { size, entries: 1 };
        let vector = Vector::write().call("2pc_queue", "2pc_queue_reserve", op.to_bytes());
        let at = self.queue_place(&topic.to.queue);
        let answers = self.objects.operate(&at, vector.returning()).await?;
        queue::Id::from_bytes(&answers.data(0)?).map(|id| id.id).map_err(|_| Errno::IO)
    }

    /// Gives back what was reserved: what the events would have told was not done.
    pub async fn abort_events(&self, reserved: Reserved) {
        for held in reserved.held {
            if let Some(id) = held.reservation {
                let op = queue::Id { id };
                let vector = Vector::write().call("2pc_queue", "2pc_queue_abort", op.to_bytes());
                // One that stays ends by itself.
                let _ = self.objects.operate(&self.queue_place(&held.topic.to.queue), vector).await;
            }
        }
    }

    /// Tells what was done: queues take it, other endpoints are waited for. What fails is told to the outlet, for what
    /// was done cannot be undone.
    pub async fn commit_events(
        &self,
        bucket: &BucketAt,
        reserved: Reserved,
        who: &Doer,
        what: &Happened,
    ) {
        let Reserved { held, metadata, tags } = reserved;
        for Held { configuration, event, topic, reservation } in held {
            let region = self.group.api_name.clone();
            let now = self.objects.now();
            let (sequencer, id) = Record::ids((now.sec, now.nsec), &what.etag);
            let of = &bucket.info.bucket;
            let host =
                format!("{}-{}-{}", self.objects.client_id(), self.zone.name, self.group.name);
            let record = Record {
                version: "2.2".into(),
                source: "ceph:s3".into(),
                at: (what.at.sec, what.at.nsec),
                event: event.record_name().into(),
                user: who.user.clone(),
                address: String::new(),
                request: (who.request.clone(), host),
                schema: "1.0".into(),
                configuration,
                bucket: OfBucket {
                    name: of.name.clone(),
                    owner: bucket.info.owner.text(),
                    arn: format!("arn:aws:s3:{region}:{}:{}", of.tenant, of.name),
                    id: of.id.clone(),
                },
                object: OfObject {
                    key: what.key.clone(),
                    size: what.size,
                    etag: what.etag.clone(),
                    version: what.version.clone(),
                    sequencer,
                    metadata: metadata.clone().into_iter().collect(),
                    tags: tags.clone(),
                },
                region,
                id,
                opaque: topic.opaque.clone(),
            };
            let Some(outlet) = self.outlet.get() else { continue };
            let sent = match reservation {
                Some(reservation) => {
                    let done = self.enqueue_event(&topic, record, reservation, now).await;
                    outlet.queued(&topic.to.queue);
                    done.map_err(|errno| format!("its queue does not take it: errno {}", -errno.0))
                }
                None if topic.to.endpoint.is_empty() => Ok(()),
                None => outlet.push(Push { topic: topic.clone(), record }).await,
            };
            if let Err(why) = sent {
                outlet.lost(&topic.name, &why);
            }
        }
    }

    async fn enqueue_event(
        &self,
        topic: &Topic,
        record: Record,
        id: u32,
        since: UTime,
    ) -> OpResult<()> {
        let entry = QueuedEvent {
            record: StoredRecord(record),
            endpoint: topic.to.endpoint.clone(),
            args: topic.to.args.clone(),
            topic: topic.to.topic.clone(),
            since,
            keep_s: topic.to.keep_s,
            retries: topic.to.retries,
            sleep_s: topic.to.sleep_s,
        };
        let op = queue::CommitOp { id, entries: vec![entry.to_bytes()] };
        let vector = Vector::write().call("2pc_queue", "2pc_queue_commit", op.to_bytes());
        self.objects.operate(&self.queue_place(&topic.to.queue), vector).await.map(drop)
    }

    /// Names of all queues, of topics of all tenants and accounts.
    ///
    /// # Errors
    /// Of RADOS.
    pub async fn queues(&self) -> Result<Vec<String>> {
        let mut out = Vec::new();
        let mut after = Bytes::new();
        while out.len() < QUEUES_MAX {
            let vector = Vector::read().step(crate::objects::Step::Pairs(after, PAGE));
            let answers = match self.objects.operate(&self.queue_place(QUEUES), vector).await {
                Err(Errno::NOENT) => return Ok(out),
                other => other.map_err(failed("listing queues"))?,
            };
            let (pairs, more) = answers.pairs(0).map_err(failed("listing queues"))?;
            out.extend(pairs.keys().map(|name| String::from_utf8_lossy(name).into_owned()));
            match pairs.last_key_value() {
                Some((last, _)) if more => after = last.clone(),
                _ => break,
            }
        }
        Ok(out)
    }

    /// Holds a queue for 90 s, or holds it longer; `false` where another gateway does, or it is gone.
    ///
    /// # Errors
    /// Of RADOS.
    pub async fn hold_queue(&self, name: &str, cookie: &str) -> Result<bool> {
        let op = lock::LockOp {
            name: lock_name(name),
            kind: lock::EXCLUSIVE,
            cookie: cookie.to_owned().into(),
            duration: UTime { sec: HELD_S, nsec: 0 },
            flags: lock::MAY_RENEW,
            ..lock::LockOp::default()
        };
        let vector = Vector::write().step(crate::objects::Step::AssertExists);
        let vector = vector.call("lock", "lock", op.to_bytes());
        self.change_queue(name, vector, "holding a queue").await
    }

    /// Runs a change of a queue; `false` where another gateway holds it, or it is gone. `what` says
    /// in errors what was tried.
    async fn change_queue(&self, name: &str, vector: Vector, what: &str) -> Result<bool> {
        match self.objects.operate(&self.queue_place(name), vector).await {
            Ok(_) => Ok(true),
            Err(Errno::BUSY | Errno::NOENT) => Ok(false),
            Err(errno) => Err(failed(what)(errno)),
        }
    }

    /// Lets a queue go, so that another gateway need not wait.
    pub async fn release_queue(&self, name: &str, cookie: &str) {
        let op = lock::UnlockOp { name: lock_name(name), cookie: cookie.to_owned().into() };
        let vector = Vector::write().step(crate::objects::Step::AssertExists);
        let vector = vector.call("lock", "unlock", op.to_bytes());
        let _ = self.objects.operate(&self.queue_place(name), vector).await;
    }

    /// A vector that fails with EBUSY where the queue is another's.
    fn while_held(vector: Vector, name: &str, cookie: &str) -> Vector {
        let op = lock::AssertOp {
            name: lock_name(name),
            kind: lock::EXCLUSIVE,
            cookie: cookie.to_owned().into(),
            tag: Bytes::new(),
        };
        let vector = vector.step(crate::objects::Step::AssertExists);
        vector.call("lock", "assert_locked", op.to_bytes())
    }

    /// The front of a queue that is held; `None` where it is held no more, or gone.
    ///
    /// # Errors
    /// Of RADOS.
    pub async fn queue_page(
        &self,
        name: &str,
        cookie: &str,
        most: u64,
    ) -> Result<Option<QueuePage>> {
        let op = queue::ListOp { max: most, ..queue::ListOp::default() };
        let vector = Self::while_held(Vector::read(), name, cookie);
        let vector = vector.call("2pc_queue", "2pc_queue_list_entries", op.to_bytes());
        let answers = match self.objects.operate(&self.queue_place(name), vector).await {
            Err(Errno::BUSY | Errno::NOENT) => return Ok(None),
            other => other.map_err(failed("reading a queue"))?,
        };
        let data = answers.data(2).map_err(failed("reading a queue"))?;
        let listed: queue::Listed = decoded(&data, "The queue's entries")?;
        let entry = |entry: queue::Entry| (entry.marker, QueuedEvent::from_bytes(&entry.data).ok());
        let entries = listed.entries.into_iter().map(entry).collect();
        Ok(Some(QueuePage { entries, end: listed.next }))
    }

    /// Removes `count` entries from the front of a queue that is held, up to the marker `end`, which stays. Returns
    /// whether it is held still.
    ///
    /// # Errors
    /// Of RADOS.
    pub async fn remove_entries(
        &self,
        name: &str,
        cookie: &str,
        end: &Bytes,
        count: u32,
    ) -> Result<bool> {
        let op = queue::RemoveOp { end: end.clone(), count };
        let vector = Self::while_held(Vector::write(), name, cookie);
        let vector = vector.call("2pc_queue", "2pc_queue_remove_entries", op.to_bytes());
        self.change_queue(name, vector, "removing entries of a queue").await
    }

    /// Ends reservations that were left behind in a queue that is held. Returns whether it is held still.
    ///
    /// # Errors
    /// Of RADOS.
    pub async fn expire_reservations(&self, name: &str, cookie: &str) -> Result<bool> {
        let now = self.objects.now();
        let before = UTime { sec: now.sec.saturating_sub(STALE_S), nsec: 0 };
        let op = queue::ExpireOp { before };
        let vector = Self::while_held(Vector::write(), name, cookie);
        let vector = vector.call("2pc_queue", "2pc_queue_expire_reservations", op.to_bytes());
        self.change_queue(name, vector, "ending reservations of a queue").await
    }

    /// What names a holder of queues.
    #[must_use]
    pub fn new_cookie(&self) -> String {
        self.random_mixed(16)
    }
}
