//! Topics: one object each, the buckets that tell it something, and the queue of a persistent one.
//!
//! ```text
//!   topics: topic.REALM:NAME (the topic), buckets.REALM:NAME (omap: buckets)      accounts: topics.ID (names)
//!   notif:  queues_list_object (omap: queues), REALM:NAME (class 2pc_queue)
//! ```
//!
//! A realm is an account's id or a tenant. Source: `driver/rados/topic.cc`, `rgw_pubsub.cc`, `rgw_notify.cc`.

use std::collections::BTreeMap;

use cls::client::user::{Resource, ResourceAddOp, ResourceOp};
use cls::client::{two_phase_queue as queue, version};
use rgw_proto::{Code, Error, Result};
use types::{Bytes, Denc, Errno};

use crate::accounts::is_id;
use crate::formats::{BucketTopics, Owner, Pool, Topic};
use crate::gateway::{Gateway, decoded, failed};
use crate::meta::{Attrs, BucketAt};
use crate::objects::{Objects, Place, PoolUse, Step, Vector};

/// Topics of a page: as stock's.
const PAGE: usize = 100;
/// Bytes of a queue: as stock makes it.
const QUEUE_BYTES: u64 = 128_000_000;
/// The object that has the names of all queues.
pub(crate) const QUEUES: &str = "queues_list_object";
/// The attribute of buckets that has their notifications.
pub const NOTIFICATIONS: &str = "bucket-notification";

/// A topic as it was read, and its version.
#[derive(Clone, Debug)]
pub struct TopicAt {
    /// What it says.
    pub topic: Topic,
    version: version::Version,
}

/// What names a bucket in a topic's list: `[TENANT/]NAME`.
fn bucket_name(bucket: &BucketAt) -> Bytes {
    let bucket = &bucket.info.bucket;
    match bucket.tenant.as_str() {
        "" => bucket.name.clone().into(),
        tenant => format!("{tenant}/{}", bucket.name).into(),
    }
}

/// The notifications of a bucket.
///
/// # Errors
/// [`Code::InternalError`] where they cannot be read.
pub fn notifications_of(attrs: &Attrs) -> Result<BucketTopics> {
    match attrs.get(NOTIFICATIONS) {
        None => Ok(BucketTopics::default()),
        Some(bytes) => decoded(bytes, "The bucket's notifications"),
    }
}

impl<O: Objects> Gateway<O> {
    fn topic_place(&self, realm: &str, name: &str) -> Place {
        Place::new(&self.zone.iam.topics, format!("topic.{realm}:{name}"))
    }

    fn topic_buckets(&self, realm: &str, name: &str) -> Place {
        Place::new(&self.zone.iam.topics, format!("buckets.{realm}:{name}"))
    }

    pub(crate) fn queue_place(&self, name: &str) -> Place {
        Place::new(&self.zone.logs.notif, name)
    }

    /// A topic, from the cache where it is there; `None` where there is none.
    ///
    /// # Errors
    /// Of RADOS.
    pub async fn topic(&self, realm: &str, name: &str) -> Result<Option<Topic>> {
        match self.known_meta(&self.topic_place(realm, name)).await {
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(failed("reading the topic")(errno)),
            Ok(raw) => decoded(&raw.data, "The topic").map(Some),
        }
    }

    /// A topic as it is now.
    ///
    /// # Errors
    /// Of RADOS.
    pub async fn topic_now(&self, realm: &str, name: &str) -> Result<Option<TopicAt>> {
        match self.read_meta(&self.topic_place(realm, name)).await {
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(failed("reading the topic")(errno)),
            Ok(raw) => {
                Ok(Some(TopicAt { topic: decoded(&raw.data, "The topic")?, version: raw.version }))
            }
        }
    }

    /// A page of topics behind `after`, and where the next page begins. Costs a listing of all topics.
    ///
    /// # Errors
    /// Of RADOS.
    pub async fn topics(&self, realm: &str, after: &str) -> Result<(Vec<Topic>, Option<String>)> {
        let prefix = format!("topic.{realm}:");
        let names = self.objects.names(&self.zone.iam.topics).await;
        let names = names.map_err(failed("listing topics"))?;
        let found = names.iter().filter_map(|name| name.strip_prefix(prefix.as_str()));
        let mut found: Vec<&str> = found.filter(|name| *name > after).collect();
        found.sort_unstable();
        let more = found.len() > PAGE;
        found.truncate(PAGE);
        let next = found.last().filter(|_| more).map(|last| (*last).to_owned());
        let mut topics = Vec::with_capacity(found.len());
        for name in found {
            topics.extend(self.topic(realm, name).await?);
        }
        Ok((topics, next))
    }

    /// Writes a topic: a new one, or over what was read. A persistent one has its queue first, so that no event finds
    /// none.
    ///
    /// # Errors
    /// [`Code::ConcurrentModification`]; of RADOS.
    pub async fn write_topic(&self, topic: &mut Topic, over: Option<&TopicAt>) -> Result<()> {
        let needs = topic.to.is_persistent && !topic.to.endpoint.is_empty();
        let had = over.map_or("", |over| over.topic.to.queue.as_str());
        match (needs, had) {
            (true, "") => {
                topic.to.queue = format!("{}:{}", topic.realm(), topic.name);
                self.make_queue(&topic.to.queue).await?;
            }
            (_, had) => had.clone_into(&mut topic.to.queue),
        }
        let at = self.topic_place(topic.realm(), &topic.name);
        let version = over.map(|over| &over.version);
        match self.write_meta(&at, topic.to_bytes(), &Attrs::new(), version).await {
            Ok(()) => {}
            Err(Errno::EXIST) => return Err(Code::ConcurrentModification.into()),
            Err(errno) => return Err(failed("writing the topic")(errno)),
        }
        if let Owner::Account(id) = &topic.owner {
            let entry = Resource { name: topic.name.clone().into(), ..Resource::default() };
            let op = ResourceAddOp { entry, exclusive: false, limit: u32::MAX };
            let vector = Vector::write().call("user", "account_resource_add", op.to_bytes());
            let listed = self.objects.operate(&self.topics_of_account(id), vector).await;
            listed.map_err(failed("adding the topic to the account's"))?;
        }
        Ok(())
    }

    fn topics_of_account(&self, id: &str) -> Place {
        Place::new(&self.zone.iam.accounts, format!("topics.{id}"))
    }

    /// Removes a topic, its list of buckets and its queue with all that waits there.
    ///
    /// # Errors
    /// [`Code::ConcurrentModification`]; of RADOS.
    pub async fn remove_topic(&self, at: &TopicAt) -> Result<()> {
        let (realm, name) = (at.topic.realm(), at.topic.name.as_str());
        match self.remove_meta(&self.topic_place(realm, name), &at.version).await {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(failed("removing the topic")(errno)),
        }
        let vector = Vector::write().step(Step::Remove);
        match self.objects.operate(&self.topic_buckets(realm, name), vector).await {
            Ok(_) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(failed("removing the topic's list of buckets")(errno)),
        }
        if is_id(realm) {
            let op = ResourceOp { name: name.to_owned().into() };
            let vector = Vector::write().call("user", "account_resource_rm", op.to_bytes());
            match self.objects.operate(&self.topics_of_account(realm), vector).await {
                Ok(_) | Err(Errno::NOENT) => {}
                Err(errno) => return Err(failed("taking the topic from the account's")(errno)),
            }
        }
        if !at.topic.to.queue.is_empty() {
            self.remove_queue(&at.topic.to.queue).await?;
        }
        Ok(())
    }

    async fn make_queue(&self, name: &str) -> Result<()> {
        if name == QUEUES {
            return Err(Error::new(Code::InvalidArgument, "The topic's name is that of a list."));
        }
        let at = self.queue_place(name);
        let pool = Pool { ns: String::new(), ..at.pool.clone() };
        self.make_pool(&pool, PoolUse::Meta).await.map_err(failed("making the pool of logs"))?;
        let op = queue::InitOp { size: QUEUE_BYTES, ..queue::InitOp::default() };
        let vector = Vector::write().step(Step::Create(true));
        let vector = vector.call("2pc_queue", "2pc_queue_init", op.to_bytes());
        match self.objects.operate(&at, vector).await {
            Ok(_) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(failed("making the topic's queue")(errno)),
        }
        let listed = [(Bytes::from(name.to_owned()), Bytes::new())].into();
        let vector = Vector::write().step(Step::SetPairs(listed));
        let listed = self.objects.operate(&self.queue_place(QUEUES), vector).await;
        listed.map(drop).map_err(failed("adding the queue to the list"))
    }

    /// Writes a topic that has no queue any more, and removes that.
    ///
    /// # Errors
    /// [`Code::ConcurrentModification`]; of RADOS.
    pub async fn unqueue_topic(&self, topic: &Topic, over: &TopicAt, queue: &str) -> Result<()> {
        let at = self.topic_place(topic.realm(), &topic.name);
        let none = Attrs::new();
        let written = self.write_meta(&at, topic.to_bytes(), &none, Some(&over.version)).await;
        written.map_err(failed("writing the topic"))?;
        self.remove_queue(queue).await
    }

    /// Removes a queue with all that waits there.
    ///
    /// # Errors
    /// Of RADOS.
    pub async fn remove_queue(&self, name: &str) -> Result<()> {
        match self
            .objects
            .operate(&self.queue_place(name), Vector::write().step(Step::Remove))
            .await
        {
            Ok(_) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(failed("removing the topic's queue")(errno)),
        }
        let gone = [Bytes::from(name.to_owned())].into();
        let vector = Vector::write().step(Step::RmPairs(gone));
        match self.objects.operate(&self.queue_place(QUEUES), vector).await {
            Ok(_) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(failed("taking the queue from the list")(errno)),
        }
    }

    /// Changes the notifications of a bucket, and then the topics' lists of buckets: what is new in them, and what no
    /// notification names any more.
    ///
    /// # Errors
    /// Those of `change`; of RADOS.
    pub async fn change_notifications(
        &self,
        bucket: &BucketAt,
        change: impl Fn(&mut BTreeMap<String, crate::formats::BucketTopic>) -> Result<()>,
    ) -> Result<()> {
        let (mut before, mut after) = (BucketTopics::default(), BucketTopics::default());
        let write = |now: &mut BucketAt| {
            before = notifications_of(&now.attrs)?;
            after = before.clone();
            change(&mut after.0)?;
            if after.0.is_empty() {
                now.attrs.remove(NOTIFICATIONS);
            } else {
                now.attrs.insert(NOTIFICATIONS.into(), after.to_bytes());
            }
            Ok(())
        };
        self.change_bucket(&bucket.info.bucket, write).await?;
        let named = |of: &BucketTopics| -> BTreeMap<(String, String), ()> {
            let topics = of.0.values().map(|one| &one.topic);
            topics.map(|t| ((t.realm().to_owned(), t.name.clone()), ())).collect()
        };
        let (had, has) = (named(&before), named(&after));
        for (realm, name) in has.keys().filter(|key| !had.contains_key(key)) {
            self.note_bucket(realm, name, bucket, true).await?;
        }
        for (realm, name) in had.keys().filter(|key| !has.contains_key(key)) {
            self.note_bucket(realm, name, bucket, false).await?;
        }
        Ok(())
    }

    async fn note_bucket(
        &self,
        realm: &str,
        name: &str,
        bucket: &BucketAt,
        is_new: bool,
    ) -> Result<()> {
        let key = bucket_name(bucket);
        let step = match is_new {
            true => Step::SetPairs([(key, Bytes::new())].into()),
            false => Step::RmPairs([key].into()),
        };
        let at = self.topic_buckets(realm, name);
        match self.objects.operate(&at, Vector::write().step(step)).await {
            Ok(_) => Ok(()),
            Err(Errno::NOENT) if !is_new => Ok(()),
            Err(errno) => Err(failed("changing the topic's list of buckets")(errno)),
        }
    }

    /// Takes a bucket that goes from the lists of its topics.
    ///
    /// # Errors
    /// Of RADOS.
    pub async fn forget_topics(&self, bucket: &BucketAt) -> Result<()> {
        for one in notifications_of(&bucket.attrs)?.0.values() {
            self.note_bucket(one.topic.realm(), &one.topic.name, bucket, false).await?;
        }
        Ok(())
    }
}
