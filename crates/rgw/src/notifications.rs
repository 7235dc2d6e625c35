//! Notifications of buckets, and events of requests.

use rgw_core::formats::{BucketTopic, StoredFilter};
use rgw_core::meta::{Attrs, BucketAt};
use rgw_core::notify::{Doer, Happened, Reserved};
use rgw_core::topics::{NOTIFICATIONS, notifications_of};
use rgw_proto::body::notification::{self, Event, NOTIFICATIONS_MAX};
use rgw_proto::sns::TopicFacts;
use rgw_proto::{Code, Error, Result};

use crate::answer::Answer;
use crate::body::Received;
use crate::deliver::Patience;
use crate::request::Asked;
use crate::server::Server;

/// What operators set of topics.
#[derive(Clone, Copy, Debug, Default)]
pub struct TopicSettings {
    /// Whether `rgw_enable_apis` has them.
    pub are_served: bool,
    /// Whether secrets may go over plain HTTP: `rgw_allow_notification_secrets_in_cleartext`.
    pub secrets_in_clear: bool,
    /// Whether others may publish by a topic's policy alone: `rgw_topic_require_publish_policy`.
    pub publish_wants_policy: bool,
    /// Of persistent topics.
    pub patience: Patience,
}

impl Server {
    /// The notification that `?notification=ID` names; empty for all.
    fn notification_id(asked: &Asked) -> &str {
        asked.head.query.get("notification").unwrap_or_default()
    }

    pub(crate) fn get_notifications(&self, asked: &Asked, bucket: &BucketAt) -> Result<Answer> {
        self.has_topics()?;
        let id = Self::notification_id(asked);
        let all = notifications_of(&bucket.attrs)?.0;
        let shown =
            all.values().filter(|one| !one.id.is_empty() && (id.is_empty() || one.id == id));
        let shown: Vec<notification::Shown<'_>> = shown
            .map(|one| (&one.id[..], &one.topic.arn[..], &one.events[..], &one.filter.0))
            .collect();
        if !id.is_empty() && shown.is_empty() {
            let text = "The bucket has no notification of this id.";
            return Err(Error::new(Code::NoSuchKey, text));
        }
        Ok(Answer::xml(notification::to_xml(shown)))
    }

    /// Adds notifications, each in place of the one of its id; an empty list takes all away, as at stock.
    pub(crate) async fn put_notifications(
        &self,
        asked: &Asked,
        bucket: &BucketAt,
        body: Received,
    ) -> Result<Answer> {
        self.has_topics()?;
        if !Self::notification_id(asked).is_empty() {
            let text = "A PUT of ?notification has no value: the ids stand in the body.";
            return Err(Error::new(Code::InvalidArgument, text));
        }
        let body = self.document(asked, body).await?;
        if body.is_empty() {
            let text = "The body is a NotificationConfiguration; an empty one takes all away.";
            return Err(Error::new(Code::InvalidArgument, text));
        }
        let mut new = Vec::new();
        for one in notification::parse(&body)? {
            let found = self.gateway.topic(&one.topic.account, &one.topic.name).await?;
            let arn = one.topic.to_string();
            let topic = found.ok_or_else(|| {
                Error::new(Code::NoSuchKey, format!("No topic has the ARN {arn}: make it first."))
            })?;
            let owner = topic.owner.text();
            let facts = TopicFacts { owner: &owner, policy: &topic.policy };
            let wants_policy = self.settings.topics.publish_wants_policy;
            asked.sender.may_publish(&arn, facts, &asked.context(), wants_policy)?;
            new.push(BucketTopic {
                topic,
                events: one.events.iter().map(|event| event.name().to_owned()).collect(),
                id: one.id,
                filter: StoredFilter(one.filter),
            });
        }
        let change = |all: &mut std::collections::BTreeMap<String, BucketTopic>| {
            if new.is_empty() {
                all.clear();
            }
            for one in &new {
                all.retain(|_, known| known.id != one.id);
                all.insert(format!("{}_{}", one.id, one.topic.name), one.clone());
            }
            match all.len() <= NOTIFICATIONS_MAX {
                true => Ok(()),
                false => {
                    let text = "A bucket has at most 100 notifications.";
                    Err(Error::new(Code::InvalidArgument, text))
                }
            }
        };
        self.gateway.change_notifications(bucket, change).await?;
        Ok(Answer::new(200))
    }

    /// Takes one notification away, or all. One that is not there is no error.
    pub(crate) async fn delete_notifications(
        &self,
        asked: &Asked,
        bucket: &BucketAt,
    ) -> Result<Answer> {
        self.has_topics()?;
        let id = Self::notification_id(asked);
        let change = |all: &mut std::collections::BTreeMap<String, BucketTopic>| {
            all.retain(|_, one| !id.is_empty() && one.id != id);
            Ok(())
        };
        if bucket.attrs.contains_key(NOTIFICATIONS) {
            self.gateway.change_notifications(bucket, change).await?;
        }
        Ok(Answer::new(200))
    }

    /// Room for the event of a request; `attrs` are those of the object.
    pub(crate) async fn reserve(
        &self,
        bucket: &BucketAt,
        event: Event,
        key: &str,
        attrs: &Attrs,
    ) -> Result<Reserved> {
        self.gateway.reserve_events(bucket, &[event], key, attrs).await
    }

    /// Sends the event of a request that was done.
    pub(crate) async fn tell(
        &self,
        asked: &Asked,
        bucket: &BucketAt,
        reserved: Reserved,
        what: &Happened,
    ) {
        if reserved.is_empty() {
            return;
        }
        let who = Doer { user: asked.owner().id, request: asked.came.id.clone() };
        self.gateway.commit_events(bucket, reserved, &who, what).await;
    }

    /// Does what an event tells of, and sends it where that succeeds.
    pub(crate) async fn telling<T>(
        &self,
        asked: &Asked,
        bucket: &BucketAt,
        (event, attrs, what): (Event, &Attrs, Happened),
        doing: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let reserved = self.reserve(bucket, event, &what.key, attrs).await?;
        match doing.await {
            Ok(done) => {
                self.tell(asked, bucket, reserved, &what).await;
                Ok(done)
            }
            Err(error) => {
                self.gateway.abort_events(reserved).await;
                Err(error)
            }
        }
    }

    /// Deletes an object, or a version, and tells of it where something was there or a marker comes. Returns the
    /// version, and whether it is a delete marker.
    pub(crate) async fn remove(
        &self,
        asked: &Asked,
        bucket: &BucketAt,
        name: &str,
        version: Option<&str>,
    ) -> Result<(Option<String>, bool)> {
        if !bucket.attrs.contains_key(NOTIFICATIONS) {
            return self.remove_untold(asked, bucket, name, version).await;
        }
        let found = self.gateway.object(bucket, name, version, false).await?.ok();
        let marks = version.is_none() && bucket.is_versioned();
        let is_there = found.is_some()
            || marks
            || match version {
                Some(id) if bucket.is_versioned() => {
                    self.gateway.is_marker(bucket, name, id).await?
                }
                _ => false,
            };
        if !is_there {
            return self.remove_untold(asked, bucket, name, version).await;
        }
        let event = match marks && bucket.keeps_versions() {
            true => Event::MARKER,
            false => Event::DELETE,
        };
        let none = Attrs::new();
        let attrs = found.as_ref().map_or(&none, |object| &object.attrs);
        let reserved = self.reserve(bucket, event, name, attrs).await?;
        let done = self.remove_untold(asked, bucket, name, version).await;
        let Ok((id, _)) = &done else {
            self.gateway.abort_events(reserved).await;
            return done;
        };
        let what = Happened {
            key: name.to_owned(),
            size: found.as_ref().map_or(0, |object| object.size),
            etag: found.as_ref().map(|object| object.text("etag")).unwrap_or_default(),
            version: id.clone().filter(|id| id != "null").unwrap_or_default(),
            at: self.gateway.now(),
        };
        self.tell(asked, bucket, reserved, &what).await;
        done
    }
}
