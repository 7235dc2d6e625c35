//! Topics: the actions of SNS.
//!
//! Source: `rgw_rest_pubsub.cc`; answers as a live stock 20.2.4 gives them.

use rgw_core::formats::{Destination, Topic};
use rgw_core::topics::TopicAt;
use rgw_proto::iam::Asker;
use rgw_proto::sns::{ARGUMENTS, Arn, Attributes, FIELDS, TopicFacts, UNSET, check_name};
use rgw_proto::xml::Writer;
use rgw_proto::{Code, Error, Result};
use serde_json::json;

use super::Asked;
use crate::answer::Answer;
use crate::buckets::owner_of;
use crate::server::Server;

fn number(n: u32) -> String {
    if n == UNSET { "None".into() } else { n.to_string() }
}

fn truth(is: bool) -> &'static str {
    if is { "True" } else { "False" }
}

fn write(w: &mut Writer, topic: &Topic) {
    let to = &topic.to;
    w.text("User", &topic.owner.text()).text("Name", &topic.name).open("EndPoint");
    w.text("EndpointAddress", &to.endpoint).text("EndpointArgs", &to.args);
    w.text("EndpointTopic", &to.topic).text("HasStoredSecret", truth(to.has_secret));
    w.text("Persistent", truth(to.is_persistent)).text("TimeToLive", &number(to.keep_s));
    w.text("MaxRetries", &number(to.retries)).text("RetrySleepDuration", &number(to.sleep_s));
    w.close("EndPoint").text("TopicArn", &topic.arn).text("OpaqueData", &topic.opaque);
    w.text("Policy", &topic.policy);
}

fn write_attributes(w: &mut Writer, topic: &Topic) {
    let to = &topic.to;
    let endpoint = json!({
        "EndpointAddress": to.endpoint,
        "EndpointArgs": to.args,
        "EndpointTopic": to.topic,
        "HasStoredSecret": to.has_secret,
        "Persistent": to.is_persistent,
        "TimeToLive": number(to.keep_s),
        "MaxRetries": number(to.retries),
        "RetrySleepDuration": number(to.sleep_s),
    });
    w.open("Attributes");
    for (key, value) in [
        ("User", topic.owner.text()),
        ("Name", topic.name.clone()),
        ("EndPoint", endpoint.to_string()),
        ("TopicArn", topic.arn.clone()),
        ("OpaqueData", topic.opaque.clone()),
        ("Policy", topic.policy.clone()),
    ] {
        w.open("entry").text("key", key).text("value", &value).close("entry");
    }
    w.close("Attributes");
}

/// What a topic's attributes are, to be changed.
fn attributes_of(topic: &Topic) -> Attributes {
    let to = topic.to.clone();
    Attributes {
        endpoint: to.endpoint,
        args: to.args,
        opaque: topic.opaque.clone(),
        policy: topic.policy.clone(),
        is_persistent: to.is_persistent,
        keep_s: to.keep_s,
        retries: to.retries,
        sleep_s: to.sleep_s,
    }
}

fn none() -> Error {
    Error::new(Code::NotFound, "No topic has this ARN in the user's account or tenant.")
}

impl Asked<'_> {
    fn allow_topic(&self, action: &str, arn: &str, topic: Option<&Topic>) -> Result<()> {
        let no_caps = std::collections::BTreeMap::new();
        let asker = Asker::proven(self.proof, &self.known.identity, &no_caps);
        let owner = topic.map(|topic| topic.owner.text()).unwrap_or_default();
        let facts = topic.map(|topic| TopicFacts { owner: &owner, policy: &topic.policy });
        asker.authorize_topic(action, arn, facts, &self.context)
    }
}

impl Server {
    /// Refuses topics where the zone group keeps them as releases before 19 did.
    pub(crate) fn has_topics(&self) -> Result<()> {
        let group = &self.gateway.group;
        if !self.settings.topics.are_served {
            let text = "Notifications are not served here: rgw_enable_apis leaves them out.";
            return Err(Error::new(Code::NotImplemented, text));
        }
        if !group.features.iter().any(|feature| feature == "notification_v2") {
            let text = format!(
                "The zone group {0} keeps topics as releases before 19 did: radosgw-admin zonegroup modify \
                 --rgw-zonegroup {0} --enable-feature notification_v2, and the gateways anew.",
                group.name
            );
            return Err(Error::new(Code::NotImplemented, text));
        }
        Ok(())
    }

    /// Refuses to carry a secret over plain HTTP.
    fn may_tell(&self, has_secret: bool, is_secret: bool) -> Result<()> {
        if has_secret && !is_secret && !self.settings.topics.secrets_in_clear {
            let text = "The topic has a secret, which goes over TLS alone: \
                rgw_allow_notification_secrets_in_cleartext lets it go in the clear.";
            return Err(Error::new(Code::InvalidArgument, text));
        }
        Ok(())
    }

    pub(super) async fn on_topic(&self, asked: &Asked<'_>, is_secret: bool) -> Result<Answer> {
        self.has_topics()?;
        let action = asked.call.policy_action();
        match asked.call.action {
            "CreateTopic" => return self.create_topic(asked, is_secret).await,
            "ListTopics" => return self.list_topics(asked, is_secret).await,
            _ => {}
        }
        let arn = Arn::parse(asked.call.need("TopicArn")?)?;
        // Of one's own account or tenant alone, as at stock.
        let found = self.gateway.topic_now(asked.account(), &arn.name).await?;
        let topic = found.as_ref().map(|at| &at.topic);
        let arn = arn.to_string();
        asked.allow_topic(&action, &arn, topic)?;
        if asked.call.action == "DeleteTopic" {
            if let Some(at) = &found {
                self.gateway.remove_topic(at).await?;
            }
            return Ok(asked.done());
        }
        let at = found.ok_or_else(none)?;
        if asked.call.action == "SetTopicAttributes" {
            return self.set_topic(asked, at, is_secret).await;
        }
        self.may_tell(at.topic.to.has_secret, is_secret)?;
        let mut out = asked.result();
        if asked.call.action == "GetTopic" {
            out.0.open("Topic");
            write(&mut out.0, &at.topic);
            out.0.close("Topic");
        } else {
            write_attributes(&mut out.0, &at.topic);
        }
        Ok(out.answer(asked))
    }

    async fn create_topic(&self, asked: &Asked<'_>, is_secret: bool) -> Result<Answer> {
        let name = asked.call.text("Name");
        check_name(name)?;
        let (region, account) = (self.gateway.group.name.clone(), asked.account().to_owned());
        let arn = Arn { region, account, name: name.to_owned() }.to_string();
        let found = self.gateway.topic_now(asked.account(), name).await?;
        let known = found.as_ref().map(|at| &at.topic);
        asked.allow_topic("sns:CreateTopic", &arn, known)?;
        let set = Attributes::of_form(&asked.call.fields)?;
        let mut topic = Topic {
            owner: owner_of(&asked.known.user),
            name: name.to_owned(),
            arn: arn.clone(),
            ..Topic::default()
        };
        self.write_topic(&mut topic, set, found.as_ref(), is_secret).await?;
        let mut out = asked.result();
        out.0.text("TopicArn", &arn);
        Ok(out.answer(asked))
    }

    async fn set_topic(&self, asked: &Asked<'_>, at: TopicAt, is_secret: bool) -> Result<Answer> {
        let (name, value) = (asked.call.need("AttributeName")?, asked.call.text("AttributeValue"));
        if !FIELDS.contains(&name) && !ARGUMENTS.contains(&name) {
            let text = format!("{name} is no attribute that can be set.");
            return Err(Error::new(Code::InvalidArgument, text));
        }
        let mut set = attributes_of(&at.topic);
        set.set(name, value)?;
        let mut topic = at.topic.clone();
        self.write_topic(&mut topic, set, Some(&at), is_secret).await?;
        // One that is persistent no more has no queue: what waits there goes with it, as at stock.
        let queue = &at.topic.to.queue;
        if !topic.to.is_persistent && !queue.is_empty() {
            let now =
                self.gateway.topic_now(asked.account(), &topic.name).await?.ok_or_else(none)?;
            topic.to.queue = String::new();
            self.gateway.unqueue_topic(&topic, &now, queue).await?;
        }
        Ok(asked.done())
    }

    async fn write_topic(
        &self,
        topic: &mut Topic,
        set: Attributes,
        over: Option<&TopicAt>,
        is_secret: bool,
    ) -> Result<()> {
        let has_secret = set.has_secret();
        self.may_tell(has_secret, is_secret)?;
        let Attributes { endpoint, args, opaque, policy, is_persistent, keep_s, retries, sleep_s } =
            set;
        topic.to = Destination {
            endpoint,
            args,
            topic: topic.name.clone(),
            has_secret,
            is_persistent,
            keep_s,
            retries,
            sleep_s,
            queue: String::new(),
        };
        (topic.opaque, topic.policy) = (opaque, policy);
        self.gateway.write_topic(topic, over).await?;
        self.wakes.made.notify_one();
        Ok(())
    }

    async fn list_topics(&self, asked: &Asked<'_>, is_secret: bool) -> Result<Answer> {
        let in_account = asked.known.identity.in_account;
        if in_account {
            let all = format!("arn:aws:sns:{}:{}:*", self.gateway.group.name, asked.account());
            asked.allow_topic("sns:ListTopics", &all, None)?;
        }
        let (topics, next) =
            self.gateway.topics(asked.account(), asked.call.text("NextToken")).await?;
        // Users without an account see what they may look into.
        let may = |topic: &&Topic| {
            in_account
                || asked.allow_topic("sns:GetTopicAttributes", &topic.arn, Some(*topic)).is_ok()
        };
        let topics: Vec<&Topic> = topics.iter().filter(may).collect();
        self.may_tell(topics.iter().any(|topic| topic.to.has_secret), is_secret)?;
        let mut out = asked.result();
        out.0.open("Topics");
        for topic in topics {
            out.0.open("member");
            write(&mut out.0, topic);
            out.0.close("member");
        }
        out.0.close("Topics");
        out.0.maybe("NextToken", next.as_deref());
        Ok(out.answer(asked))
    }
}
