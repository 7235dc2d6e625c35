//! Topics, notifications of buckets, and events that wait in queues.

use std::collections::BTreeMap;

use rgw_proto::body::notification::Filter;
use rgw_proto::record::{OfBucket, OfObject, Record};
use rgw_proto::sns::UNSET;
use types::{DecodeError, Denc, Reader, UTime, Writer};

use super::{Owner, decode_pairs, encode_pairs};

/// Where a topic pushes to: `rgw_pubsub_dest`.
///
/// Wire: `ENCODE_START(7, 1)`, two empty texts first; v2 added the arguments, v3 the topic's name, v4 `has_secret`,
/// v5 `is_persistent`, v6 the three numbers, v7 the queue. Source: `rgw_pubsub.h`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Destination {
    /// A URL; empty for nowhere.
    pub endpoint: String,
    /// `NAME=VALUE&…`.
    pub args: String,
    /// The topic's name.
    pub topic: String,
    /// Whether the URL or the arguments have a secret.
    pub has_secret: bool,
    /// Whether events wait in a queue until they are delivered.
    pub is_persistent: bool,
    /// How long they wait, s; [`UNSET`]: by option.
    pub keep_s: u32,
    /// How often a delivery is tried again; [`UNSET`]: by option.
    pub retries: u32,
    /// How long is waited between two tries, s; [`UNSET`]: by option.
    pub sleep_s: u32,
    /// The queue's object: `TENANT:NAME`, before v7 the topic's name; empty where there is none.
    pub queue: String,
}

impl Default for Destination {
    fn default() -> Self {
        Self {
            endpoint: String::new(),
            args: String::new(),
            topic: String::new(),
            has_secret: false,
            is_persistent: false,
            keep_s: UNSET,
            retries: UNSET,
            sleep_s: UNSET,
            queue: String::new(),
        }
    }
}

impl Denc for Destination {
    fn encode(&self, w: &mut Writer) {
        w.framed(7, 1, |w| {
            for text in ["", "", &self.endpoint, &self.args, &self.topic] {
                w.str(text);
            }
            w.bool(self.has_secret);
            w.bool(self.is_persistent);
            w.u32(self.keep_s);
            w.u32(self.retries);
            w.u32(self.sleep_s);
            w.str(&self.queue);
        });
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("rgw_pubsub_dest", 8, |r, v| {
            let (_bucket, _prefix) = (r.string()?, r.string()?);
            let mut out = Self { endpoint: r.string()?, ..Self::default() };
            if v >= 2 {
                out.args = r.string()?;
            }
            if v >= 3 {
                out.topic = r.string()?;
            }
            if v >= 4 {
                out.has_secret = r.bool()?;
            }
            if v >= 5 {
                out.is_persistent = r.bool()?;
            }
            if v >= 6 {
                (out.keep_s, out.retries, out.sleep_s) = (r.u32()?, r.u32()?, r.u32()?);
            }
            if v >= 7 {
                out.queue = r.string()?;
            } else if out.is_persistent {
                out.queue.clone_from(&out.topic);
            }
            Ok(out)
        })
    }
}

/// A topic: `rgw_pubsub_topic`.
///
/// Wire: `ENCODE_START(4, 1)`; v2 added destination and ARN, v3 the opaque data, v4 the policy. Source:
/// `rgw_pubsub.h`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Topic {
    /// Its owner; a user without id where releases of old made it.
    pub owner: Owner,
    /// Its name, unique in its account or tenant.
    pub name: String,
    /// Where it pushes to.
    pub to: Destination,
    /// `arn:aws:sns:ZONEGROUP:TENANT:NAME`.
    pub arn: String,
    /// What each record carries.
    pub opaque: String,
    /// JSON; empty for none.
    pub policy: String,
}

impl Topic {
    /// The account or tenant that it is looked up in.
    #[must_use]
    pub fn realm(&self) -> &str {
        match &self.owner {
            Owner::User(user) => &user.tenant,
            Owner::Account(id) => id,
        }
    }
}

impl Denc for Topic {
    fn encode(&self, w: &mut Writer) {
        w.framed(4, 1, |w| {
            self.owner.encode_converted(w);
            w.str(&self.name);
            self.to.encode(w);
            w.str(&self.arn);
            w.str(&self.opaque);
            w.str(&self.policy);
        });
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("rgw_pubsub_topic", 4, |r, v| {
            let owner = Owner::decode_converted(r)?;
            let mut out = Self { owner, name: r.string()?, ..Self::default() };
            if v >= 2 {
                (out.to, out.arn) = (Denc::decode(r)?, r.string()?);
            }
            if v >= 3 {
                out.opaque = r.string()?;
            }
            if v >= 4 {
                out.policy = r.string()?;
            }
            Ok(out)
        })
    }
}

/// A filter as it is stored: `rgw_s3_filter`, `ENCODE_START(2, 1)` around three parts of version 1; v2 added the tags.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredFilter(pub Filter);

impl Denc for StoredFilter {
    fn encode(&self, w: &mut Writer) {
        let Filter { prefix, suffix, regex, metadata, tags } = &self.0;
        w.framed(2, 1, |w| {
            w.framed(1, 1, |w| [prefix, suffix, regex].iter().for_each(|text| w.str(text)));
            w.framed(1, 1, |w| metadata.encode(w));
            w.framed(1, 1, |w| tags.encode(w));
        });
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let pairs =
            |r: &mut Reader<'_>| r.framed("rgw_s3_key_value_filter", 2, |r, _| Denc::decode(r));
        r.framed("rgw_s3_filter", 2, |r, v| {
            let (prefix, suffix, regex) = r.framed("rgw_s3_key_filter", 2, |r, _| {
                Ok((r.string()?, r.string()?, r.string()?))
            })?;
            let metadata = pairs(r)?;
            let tags = if v >= 2 { pairs(r)? } else { BTreeMap::new() };
            Ok(Self(Filter { prefix, suffix, regex, metadata, tags }))
        })
    }
}

/// A notification of a bucket: `rgw_pubsub_topic_filter`.
///
/// Wire: `ENCODE_START(3, 1)`; v2 added the id, v3 the filter. Source: `rgw_pubsub.h`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BucketTopic {
    /// The topic, as it was then; that of today is read anew.
    pub topic: Topic,
    /// Names of events, also those that are not known here.
    pub events: Vec<String>,
    /// The notification's name.
    pub id: String,
    /// Which objects it is about.
    pub filter: StoredFilter,
}

impl Denc for BucketTopic {
    fn encode(&self, w: &mut Writer) {
        w.framed(3, 1, |w| {
            self.topic.encode(w);
            self.events.encode(w);
            w.str(&self.id);
            self.filter.encode(w);
        });
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("rgw_pubsub_topic_filter", 3, |r, v| {
            let (topic, events) = (Denc::decode(r)?, Denc::decode(r)?);
            let id = if v >= 2 { r.string()? } else { String::new() };
            let filter = if v >= 3 { Denc::decode(r)? } else { StoredFilter::default() };
            Ok(Self { topic, events, id, filter })
        })
    }
}

/// All notifications of a bucket, by `ID_TOPIC`: `rgw_pubsub_bucket_topics`, `ENCODE_START(1, 1)`; the attribute
/// `bucket-notification`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BucketTopics(pub BTreeMap<String, BucketTopic>);

impl Denc for BucketTopics {
    fn encode(&self, w: &mut Writer) {
        w.framed(1, 1, |w| self.0.encode(w));
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("rgw_pubsub_bucket_topics", 1, |r, _| Ok(Self(Denc::decode(r)?)))
    }
}

/// A record as it is stored: `rgw_pubsub_s3_event`.
///
/// Wire: `ENCODE_START(4, 1)`; v2 added the bucket's id and the metadata, v3 the tags, v4 the opaque data. Source:
/// `rgw_pubsub.h`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredRecord(pub Record);

impl Denc for StoredRecord {
    fn encode(&self, w: &mut Writer) {
        let Record { bucket, object, .. } = &self.0;
        w.framed(4, 1, |w| {
            for text in [&self.0.version, &self.0.source, &self.0.region] {
                w.str(text);
            }
            UTime { sec: self.0.at.0, nsec: self.0.at.1 }.encode(w);
            for text in [
                &self.0.event,
                &self.0.user,
                &self.0.address,
                &self.0.request.0,
                &self.0.request.1,
                &self.0.schema,
                &self.0.configuration,
                &bucket.name,
                &bucket.owner,
                &bucket.arn,
                &object.key,
            ] {
                w.str(text);
            }
            w.u64(object.size);
            for text in [&object.etag, &object.version, &object.sequencer, &self.0.id, &bucket.id] {
                w.str(text);
            }
            encode_pairs(w, &object.metadata);
            encode_pairs(w, &object.tags);
            w.str(&self.0.opaque);
        });
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("rgw_pubsub_s3_event", 4, |r, v| {
            let (version, source, region) = (r.string()?, r.string()?, r.string()?);
            let at = UTime::decode(r)?;
            let (event, user, address) = (r.string()?, r.string()?, r.string()?);
            let request = (r.string()?, r.string()?);
            let (schema, configuration) = (r.string()?, r.string()?);
            let (name, owner, arn) = (r.string()?, r.string()?, r.string()?);
            let (key, size, etag) = (r.string()?, r.u64()?, r.string()?);
            let (of_version, sequencer, id) = (r.string()?, r.string()?, r.string()?);
            let mut bucket = OfBucket { name, owner, arn, id: String::new() };
            let mut object =
                OfObject { key, size, etag, version: of_version, sequencer, ..OfObject::default() };
            if v >= 2 {
                bucket.id = r.string()?;
                object.metadata = decode_pairs(r)?;
            }
            if v >= 3 {
                object.tags = decode_pairs(r)?;
            }
            let opaque = if v >= 4 { r.string()? } else { String::new() };
            let at = (at.sec, at.nsec);
            Ok(Self(Record {
                version,
                source,
                region,
                at,
                event,
                user,
                address,
                request,
                schema,
                configuration,
                bucket,
                object,
                id,
                opaque,
            }))
        })
    }
}

/// An event that waits in a queue: `event_entry_t`.
///
/// Wire: `ENCODE_START(3, 1)`; v2 added the time, v3 the three numbers. Source: `rgw_pubsub.h`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueuedEvent {
    /// What is sent.
    pub record: StoredRecord,
    /// Where it goes to, should the topic be gone.
    pub endpoint: String,
    /// The arguments of it.
    pub args: String,
    /// The topic's name.
    pub topic: String,
    /// Since when it waits; zero of releases of old.
    pub since: UTime,
    /// As in [`Destination`].
    pub keep_s: u32,
    /// As in [`Destination`].
    pub retries: u32,
    /// As in [`Destination`].
    pub sleep_s: u32,
}

impl Denc for QueuedEvent {
    fn encode(&self, w: &mut Writer) {
        w.framed(3, 1, |w| {
            self.record.encode(w);
            w.str(&self.endpoint);
            w.str(&self.args);
            w.str(&self.topic);
            self.since.encode(w);
            w.u32(self.keep_s);
            w.u32(self.retries);
            w.u32(self.sleep_s);
        });
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("event_entry_t", 3, |r, v| {
            let record = Denc::decode(r)?;
            let (endpoint, args, topic) = (r.string()?, r.string()?, r.string()?);
            let since = if v >= 2 { Denc::decode(r)? } else { UTime::ZERO };
            let (keep_s, retries, sleep_s) =
                if v >= 3 { (r.u32()?, r.u32()?, r.u32()?) } else { (UNSET, UNSET, UNSET) };
            Ok(Self { record, endpoint, args, topic, since, keep_s, retries, sleep_s })
        })
    }
}
