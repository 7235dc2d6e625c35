//! What a bucket tells of: `<NotificationConfiguration>`, events by name, and filters.
//!
//! Source: `rgw_pubsub.cc`, `rgw_notify_event_type.cc`, `rgw_s3_filter.h`.

use std::collections::BTreeMap;

use regex_lite::RegexBuilder;

use super::config::Tags;
use super::malformed;
use crate::error::{Code, Error, Result};
use crate::sns::Arn;
use crate::xml::{Element, Writer};

/// Notifications of a bucket.
pub const NOTIFICATIONS_MAX: usize = 100;
/// Bytes of a notification's id, and of a rule's name or value.
const TEXT_MAX: usize = 1_024;
/// Rules of one filter, and events of one notification.
const RULES_MAX: usize = 50;
/// Bytes that a compiled expression may take.
const REGEX_BYTES_MAX: usize = 256 << 10;

/// A kind of event, or several: bits of stock's `EventType`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Event(u32);

macro_rules! events {
    ($($name:ident $bits:literal $text:literal;)*) => {
        impl Event {
            $(#[doc = concat!("`", $text, "`")] pub const $name: Self = Self($bits);)*
        }
        /// Each event with its name in configurations.
        const NAMES: &[(Event, &str)] = &[$((Event($bits), $text),)*];
    };
}

events! {
    CREATED 0xf "s3:ObjectCreated:*";
    PUT 0x1 "s3:ObjectCreated:Put";
    POST 0x2 "s3:ObjectCreated:Post";
    COPY 0x4 "s3:ObjectCreated:Copy";
    COMPLETE 0x8 "s3:ObjectCreated:CompleteMultipartUpload";
    REMOVED 0xf0 "s3:ObjectRemoved:*";
    DELETE 0x10 "s3:ObjectRemoved:Delete";
    MARKER 0x20 "s3:ObjectRemoved:DeleteMarkerCreated";
    LIFECYCLE 0xff00 "s3:ObjectLifecycle:*";
    EXPIRATION 0xf00 "s3:ObjectLifecycle:Expiration:*";
    EXPIRED_CURRENT 0x100 "s3:ObjectLifecycle:Expiration:Current";
    EXPIRED_NONCURRENT 0x200 "s3:ObjectLifecycle:Expiration:NonCurrent";
    EXPIRED_MARKER 0x400 "s3:ObjectLifecycle:Expiration:DeleteMarker";
    ABORTED 0x800 "s3:ObjectLifecycle:Expiration:AbortMultipartUpload";
    TRANSITION 0xf000 "s3:ObjectLifecycle:Transition:*";
    MOVED_CURRENT 0x1000 "s3:ObjectLifecycle:Transition:Current";
    MOVED_NONCURRENT 0x2000 "s3:ObjectLifecycle:Transition:NonCurrent";
    SYNCED 0xf_0000 "s3:ObjectSynced:*";
    SYNCED_CREATE 0x1_0000 "s3:ObjectSynced:Create";
    SYNCED_DELETE 0x2_0000 "s3:ObjectSynced:Delete";
    SYNCED_MARKER 0x4_0000 "s3:ObjectSynced:DeletionMarkerCreated";
    S3_EXPIRATION 0xf0_0000 "s3:LifecycleExpiration:*";
    S3_EXPIRED 0x10_0000 "s3:LifecycleExpiration:Delete";
    S3_EXPIRED_MARKER 0x20_0000 "s3:LifecycleExpiration:DeleteMarkerCreated";
    S3_TRANSITION 0xf00_0000 "s3:LifecycleTransition";
    REPLICATION 0xf000_0000 "s3:Replication:*";
    REPLICATION_CREATE 0x1000_0000 "s3:Replication:Create";
    REPLICATION_DELETE 0x2000_0000 "s3:Replication:Delete";
    REPLICATION_MARKER 0x4000_0000 "s3:Replication:DeletionMarkerCreated";
}

/// Further names that are taken, of earlier releases and of records.
const OTHER_NAMES: [(&str, Event); 3] = [
    ("s3:ObjectLifecycle:Expiration:Noncurrent", Event::EXPIRED_NONCURRENT),
    ("s3:ObjectLifecycle:Transition:Noncurrent", Event::MOVED_NONCURRENT),
    ("s3:ObjectLifecycle:Expiration:AbortMPU", Event::ABORTED),
];

impl Event {
    /// An event by its name in a configuration; `None` for names that are not known.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let known = NAMES.iter().find(|(_, name)| *name == text).map(|(event, _)| *event);
        known.or_else(|| OTHER_NAMES.iter().find(|(name, _)| *name == text).map(|(_, e)| *e))
    }

    /// The name in configurations, as stock reads it from what is stored.
    #[must_use]
    pub fn name(self) -> &'static str {
        NAMES.iter().find(|(event, _)| *event == self).map_or("", |(_, name)| name)
    }

    /// The name in records: without `s3:`, and as stock writes it there.
    #[must_use]
    pub fn record_name(self) -> &'static str {
        match self {
            Self::ABORTED => "ObjectLifecycle:Expiration:AbortMPU",
            event => event.name().strip_prefix("s3:").unwrap_or_default(),
        }
    }

    /// Whether one of two is the other, or among its kinds.
    #[must_use]
    pub fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

/// Which objects a notification is about. All rules must fit; one that is empty fits all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// How keys begin.
    pub prefix: String,
    /// How keys end.
    pub suffix: String,
    /// An expression that fits the whole key: without look-around and back-references.
    pub regex: String,
    /// Metadata that the object has, by `x-amz-meta-NAME`.
    pub metadata: BTreeMap<String, String>,
    /// Tags that the object has.
    pub tags: BTreeMap<String, String>,
}

fn expression(text: &str) -> Option<regex_lite::Regex> {
    let compile = |text: &str| RegexBuilder::new(text).size_limit(REGEX_BYTES_MAX).build().ok();
    compile(text)?;
    compile(&format!("^(?:{text})$"))
}

impl Filter {
    /// Whether it is about an object. An expression that stock stored and this gateway cannot read fits each key: an
    /// event too many is better than none.
    #[must_use]
    pub fn fits(&self, key: &str, metadata: &BTreeMap<String, String>, tags: &Tags) -> bool {
        let has = |of: &BTreeMap<String, String>, all: &BTreeMap<String, String>| {
            of.iter().all(|(name, value)| all.get(name) == Some(value))
        };
        key.starts_with(&self.prefix)
            && key.ends_with(&self.suffix)
            && (self.regex.is_empty() || expression(&self.regex).is_none_or(|e| e.is_match(key)))
            && has(&self.metadata, metadata)
            && has(&self.tags, tags)
    }

    /// Whether it has a rule.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    fn parse(element: &Element) -> Result<Self> {
        let mut out = Self::default();
        if let Some(rules) = element.child("S3Key")? {
            for (name, value) in rules_of(rules)? {
                let rule = match name.to_ascii_lowercase().as_str() {
                    "prefix" => &mut out.prefix,
                    "suffix" => &mut out.suffix,
                    "regex" => &mut out.regex,
                    _ => return Err(malformed("A rule of S3Key is prefix, suffix or regex.")),
                };
                if !rule.is_empty() {
                    return Err(malformed(format!("S3Key has {name} twice.")));
                }
                *rule = value;
            }
        }
        if !out.regex.is_empty() && expression(&out.regex).is_none() {
            let text = "The regex is none that is taken: no look-around, no back-reference, 256 KiB compiled.";
            return Err(Error::new(Code::InvalidArgument, text));
        }
        if let Some(rules) = element.child("S3Metadata")? {
            out.metadata = rules_of(rules)?.into_iter().collect();
        }
        if let Some(rules) = element.child("S3Tags")? {
            out.tags = rules_of(rules)?.into_iter().collect();
        }
        Ok(out)
    }

    fn write(&self, w: &mut Writer) {
        let rule = |w: &mut Writer, name: &str, value: &str| {
            w.open("FilterRule").text("Name", name).text("Value", value).close("FilterRule");
        };
        let keys = [("prefix", &self.prefix), ("suffix", &self.suffix), ("regex", &self.regex)];
        w.open("Filter");
        if keys.iter().any(|(_, value)| !value.is_empty()) {
            w.open("S3Key");
            for (name, value) in keys.iter().filter(|(_, value)| !value.is_empty()) {
                rule(w, name, value);
            }
            w.close("S3Key");
        }
        for (list, pairs) in [("S3Metadata", &self.metadata), ("S3Tags", &self.tags)] {
            if !pairs.is_empty() {
                w.open(list);
                pairs.iter().for_each(|(name, value)| rule(w, name, value));
                w.close(list);
            }
        }
        w.close("Filter");
    }
}

fn rules_of(element: &Element) -> Result<Vec<(String, String)>> {
    let mut out = Vec::new();
    for rule in element.all("FilterRule") {
        let (name, value) = (rule.need_text("Name")?, &rule.need("Value")?.text);
        if out.len() == RULES_MAX || name.len() > TEXT_MAX || value.len() > TEXT_MAX {
            return Err(malformed(
                "A filter has at most 50 rules, of names and values of 1024 bytes.",
            ));
        }
        out.push((name.to_owned(), value.clone()));
    }
    Ok(out)
}

/// A notification: what happens to which objects is told to which topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notification {
    /// Its name in the bucket.
    pub id: String,
    /// The topic.
    pub topic: Arn,
    /// What is told, as it was asked for.
    pub events: Vec<Event>,
    /// Of which objects.
    pub filter: Filter,
}

/// Reads `<NotificationConfiguration>`; an empty list takes all notifications away.
///
/// # Errors
/// [`Code::MalformedXML`]; [`Code::InvalidArgument`] for events, topics and expressions that are none;
/// [`Code::NotImplemented`] for what is no topic: queues, functions.
pub fn parse(body: &[u8]) -> Result<Vec<Notification>> {
    let root = Element::parse_as(body, "NotificationConfiguration")?;
    let mut out: Vec<Notification> = Vec::new();
    for element in &root.children {
        if element.name != "TopicConfiguration" {
            let text = format!("{} is not built: a TopicConfiguration is.", element.name);
            return Err(Error::new(Code::NotImplemented, text));
        }
        let bad = |text: &str| Error::new(Code::InvalidArgument, text);
        let id = element.text_of("Id")?.unwrap_or_default();
        if id.is_empty() || id.len() > TEXT_MAX {
            return Err(bad("Each notification has an Id of 1 to 1024 bytes."));
        }
        if out.iter().any(|known| known.id == id) {
            return Err(bad("An Id is there twice."));
        }
        if out.len() == NOTIFICATIONS_MAX {
            return Err(bad("A bucket has at most 100 notifications."));
        }
        let mut events = Vec::new();
        for event in element.all("Event") {
            let name = event.text.trim();
            let event = Event::parse(name).ok_or_else(|| {
                bad(&format!("{name} is no event that is known, in the notification {id}."))
            })?;
            if !events.contains(&event) {
                events.push(event);
            }
        }
        if events.is_empty() {
            events = vec![Event::CREATED, Event::REMOVED];
        }
        let filter = element.child("Filter")?.map(Filter::parse).transpose()?;
        out.push(Notification {
            id: id.to_owned(),
            topic: Arn::parse(element.need_text("Topic")?)?,
            events,
            filter: filter.unwrap_or_default(),
        });
    }
    Ok(out)
}

/// A notification in an answer: id, ARN of the topic, names of events, filter.
pub type Shown<'a> = (&'a str, &'a str, &'a [String], &'a Filter);

/// The answer's body.
#[must_use]
pub fn to_xml<'a>(all: impl IntoIterator<Item = Shown<'a>>) -> String {
    let mut w = Writer::document();
    w.open_root("NotificationConfiguration");
    for (id, topic, events, filter) in all {
        w.open("TopicConfiguration").text("Id", id).text("Topic", topic);
        if !filter.is_empty() {
            filter.write(&mut w);
        }
        events.iter().for_each(|event| _ = w.text("Event", event));
        w.close("TopicConfiguration");
    }
    w.close("NotificationConfiguration");
    w.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOPIC: &str = "<Topic>arn:aws:sns:default::t</Topic>";

    fn of(inner: &str) -> Result<Vec<Notification>> {
        parse(
            format!("<NotificationConfiguration xmlns=\"x\">{inner}</NotificationConfiguration>")
                .as_bytes(),
        )
    }

    fn one(inner: &str) -> Result<Notification> {
        of(&format!("<TopicConfiguration><Id>n</Id>{TOPIC}{inner}</TopicConfiguration>"))
            .map(|mut all| all.remove(0))
    }

    #[test]
    fn events_by_name() {
        for (event, name) in NAMES {
            assert_eq!(Event::parse(name), Some(*event), "{name}");
            assert_eq!(event.name(), *name);
        }
        assert!(Event::CREATED.meets(Event::POST) && Event::POST.meets(Event::POST));
        assert!(
            !Event::CREATED.meets(Event::DELETE) && !Event::EXPIRATION.meets(Event::MOVED_CURRENT)
        );
        assert!(
            Event::LIFECYCLE.meets(Event::ABORTED) && Event::LIFECYCLE.meets(Event::MOVED_CURRENT)
        );
        assert_eq!(Event::ABORTED.record_name(), "ObjectLifecycle:Expiration:AbortMPU");
        assert_eq!(Event::PUT.record_name(), "ObjectCreated:Put");
        // As stock 20.2.4 refuses them.
        for none in [
            "OBJECT_CREATE",
            "s3:ObjectTagging:*",
            "s3:ObjectRestore:*",
            "s3:ObjectAcl:Put",
            "",
            "s3:*",
        ] {
            assert_eq!(Event::parse(none), None, "{none}");
        }
    }

    #[test]
    fn configurations() {
        let all = one("<Event>s3:ObjectCreated:Put</Event><Event>s3:ObjectLifecycle:Expiration:Noncurrent</Event>").unwrap();
        assert_eq!(all.events, [Event::PUT, Event::EXPIRED_NONCURRENT]);
        assert_eq!(one("").unwrap().events, [Event::CREATED, Event::REMOVED]);
        assert_eq!(of("").unwrap(), []);
        let filter = "<Filter><S3Key><FilterRule><Name>prefix</Name><Value>a b/</Value></FilterRule>\
            <FilterRule><Name>regex</Name><Value>[a-z]+</Value></FilterRule></S3Key>\
            <S3Metadata><FilterRule><Name>x-amz-meta-a</Name><Value>1</Value></FilterRule></S3Metadata>\
            <S3Tags><FilterRule><Name>t</Name><Value>u</Value></FilterRule></S3Tags></Filter>";
        let read = one(filter).unwrap();
        assert_eq!((read.filter.prefix.as_str(), read.filter.regex.as_str()), ("a b/", "[a-z]+"));
        let names: Vec<String> = read.events.iter().map(|e| e.name().to_owned()).collect();
        let text =
            to_xml([(read.id.as_str(), read.topic.to_string().as_str(), &names[..], &read.filter)]);
        assert_eq!(parse(text.as_bytes()).unwrap(), [read]);
    }

    #[test]
    fn what_is_refused() {
        let rule = |name: &str, value: &str| {
            format!(
                "<Filter><S3Key><FilterRule><Name>{name}</Name><Value>{value}</Value></FilterRule></S3Key></Filter>"
            )
        };
        for (inner, code) in [
            ("<Event>s3:ObjectTagging:Put</Event>".to_owned(), Code::InvalidArgument),
            (rule("infix", "a"), Code::MalformedXML),
            (rule("regex", "a("), Code::InvalidArgument),
            (rule("regex", "a)(b"), Code::InvalidArgument),
            (rule("regex", "(?=a)"), Code::InvalidArgument),
            (rule("regex", "((a{999}){999}){999}"), Code::InvalidArgument),
            (TOPIC.to_owned(), Code::MalformedXML),
        ] {
            assert_eq!(one(&inner).unwrap_err().code, code, "{inner}");
        }
        let topic = |id: &str, topic: &str| {
            format!("<TopicConfiguration><Id>{id}</Id><Topic>{topic}</Topic></TopicConfiguration>")
        };
        let good = "arn:aws:sns:default::t";
        for (inner, code) in [
            (topic("", good), Code::InvalidArgument),
            (topic("n", "t"), Code::InvalidArgument),
            (topic("n", good) + &topic("n", good), Code::InvalidArgument),
            ("<QueueConfiguration></QueueConfiguration>".to_owned(), Code::NotImplemented),
            (
                (0..=NOTIFICATIONS_MAX).map(|n| topic(&n.to_string(), good)).collect(),
                Code::InvalidArgument,
            ),
        ] {
            assert_eq!(of(&inner).unwrap_err().code, code, "{inner:.200}");
        }
    }

    #[test]
    fn filters() {
        let pairs = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
            pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
        };
        let none = BTreeMap::new();
        let key = |prefix: &str, suffix: &str, regex: &str| Filter {
            prefix: prefix.into(),
            suffix: suffix.into(),
            regex: regex.into(),
            ..Filter::default()
        };
        for (filter, name, fits) in [
            (key("", "", ""), "any", true),
            (key("a/", ".jpg", ""), "a/b.jpg", true),
            (key("a/", ".jpg", ""), "b/b.jpg", false),
            (key("a/", ".jpg", ""), "a/b.png", false),
            (key("", "", "[a-z]+"), "abc", true),
            // The whole key, as stock has it.
            (key("", "", "[a-z]+"), "abc1", false),
            (key("", "", "a|b"), "ab", false),
            // What only stock can read.
            (key("", "", "(?=a)a"), "zzz", true),
        ] {
            assert_eq!(filter.fits(name, &none, &none), fits, "{filter:?} {name}");
        }
        let tagged = Filter { tags: pairs(&[("t", "u")]), ..Filter::default() };
        assert!(tagged.fits("k", &none, &pairs(&[("t", "u"), ("x", "y")])));
        assert!(!tagged.fits("k", &pairs(&[("t", "u")]), &none));
        let meta = Filter { metadata: pairs(&[("x-amz-meta-a", "1")]), ..Filter::default() };
        assert!(meta.fits("k", &pairs(&[("x-amz-meta-a", "1")]), &none));
        assert!(!meta.fits("k", &pairs(&[("x-amz-meta-a", "2")]), &none));
    }
}
