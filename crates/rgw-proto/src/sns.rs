//! Topics: their names, ARNs, attributes in forms, where they push to, and who may do what with them.
//!
//! Source: `rgw_rest_pubsub.cc`, `rgw_pubsub_push.cc`, `rgw_url.cc`.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::authorize::{Identity, Sender};
use crate::error::{Code, Error, Result};
use crate::iam::Asker;
use crate::policy::{Ask, Context, Policy, Verdict};
use crate::uri::{self, Query};

/// Bytes of a topic's name.
const NAME_MAX: usize = 256;
/// Attributes of one form.
const ATTRIBUTES_MAX: usize = 50;
/// Bytes of an endpoint, of opaque data, and of further arguments together.
const TEXT_MAX: usize = 4_096;
/// A number that is not set: the gateway's option holds.
pub const UNSET: u32 = u32::MAX;

/// The ARN of a topic: `arn:aws:sns:REGION:ACCOUNT:NAME`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Arn {
    /// The zone group's name.
    pub region: String,
    /// The account's id or the tenant; empty for most.
    pub account: String,
    /// The topic's name.
    pub name: String,
}

impl Arn {
    /// Reads it.
    ///
    /// # Errors
    /// [`Code::InvalidArgument`].
    pub fn parse(text: &str) -> Result<Self> {
        let bad = || {
            let text = "The topic's ARN is arn:aws:sns:ZONEGROUP:TENANT:NAME.";
            Error::new(Code::InvalidArgument, text)
        };
        let rest = text.strip_prefix("arn:aws:sns:").ok_or_else(bad)?;
        let parts: Vec<&str> = rest.split(':').collect();
        let [region, account, name] = parts[..] else { return Err(bad()) };
        check_name(name).map_err(|_| bad())?;
        let plain =
            |text: &str| text.len() <= NAME_MAX && text.bytes().all(|b| b.is_ascii_graphic());
        if !plain(region) || !plain(account) {
            return Err(bad());
        }
        Ok(Self { region: region.into(), account: account.into(), name: name.into() })
    }
}

impl fmt::Display for Arn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "arn:aws:sns:{}:{}:{}", self.region, self.account, self.name)
    }
}

/// Refuses what is no name of a topic. Names have no `:`, so that a name of a queue with its tenant is never another
/// topic's.
///
/// # Errors
/// [`Code::InvalidArgument`].
pub fn check_name(name: &str) -> Result<()> {
    let fits = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
    if name.is_empty() || name.len() > NAME_MAX || !name.bytes().all(fits) {
        let text = "A topic's name has 1 to 256 ASCII letters, digits, _ and -.";
        return Err(Error::new(Code::InvalidArgument, text));
    }
    Ok(())
}

/// By what an endpoint is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// Plain HTTP.
    Http,
    /// HTTP over TLS.
    Https,
    /// AMQP 0.9.1.
    Amqp,
    /// AMQP 0.9.1 over TLS.
    Amqps,
    /// Kafka, over TLS where `use-ssl` is set.
    Kafka,
}

/// Where a topic pushes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// By what.
    pub scheme: Scheme,
    /// Name or address, without brackets.
    pub host: String,
    /// The port.
    pub port: u16,
    /// `Host` of the request: as the URL has it.
    pub authority: String,
    /// Path and query, from `/` on.
    pub path: String,
    /// `user:password`, decoded.
    pub secret: Option<String>,
}

impl Endpoint {
    /// Reads a URL.
    ///
    /// # Errors
    /// [`Code::InvalidArgument`] for what is none.
    pub fn parse(url: &str) -> Result<Self> {
        let bad = |text: &str| Error::new(Code::InvalidArgument, text);
        if url.len() > TEXT_MAX || !url.bytes().all(|b| b.is_ascii_graphic()) {
            return Err(bad("push-endpoint is a URL of at most 4096 printable ASCII characters."));
        }
        let malformed = || {
            bad(
                "push-endpoint is http://HOST[:PORT][/PATH], https://, or amqp://HOST[:PORT][/VHOST], amqps://, or kafka://HOST[:PORT].",
            )
        };
        let (scheme, rest) = url.split_once("://").ok_or_else(malformed)?;
        let (scheme, port) = match scheme {
            "http" => (Scheme::Http, 80),
            "https" => (Scheme::Https, 443),
            "amqp" => (Scheme::Amqp, 5672),
            "amqps" => (Scheme::Amqps, 5671),
            "kafka" => (Scheme::Kafka, 9092),
            _ => return Err(malformed()),
        };
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        let path = path.split('#').next().unwrap_or_default();
        let (secret, authority) = match authority.rsplit_once('@') {
            Some((secret, authority)) => (Some(secret), authority),
            None => (None, authority),
        };
        let (host, port) = match authority.strip_prefix('[') {
            Some(rest) => {
                let (host, rest) = rest.split_once(']').ok_or_else(malformed)?;
                host.parse::<std::net::Ipv6Addr>().map_err(|_| malformed())?;
                match rest.strip_prefix(':') {
                    Some(port) => (host, port.parse().map_err(|_| malformed())?),
                    None if rest.is_empty() => (host, port),
                    None => return Err(malformed()),
                }
            }
            None => match authority.split_once(':') {
                Some((host, port)) => (host, port.parse().map_err(|_| malformed())?),
                None => (authority, port),
            },
        };
        let plain = |b: u8| b.is_ascii_alphanumeric() || b"-._:".contains(&b);
        if host.is_empty() || host.len() > 255 || port == 0 || !host.bytes().all(plain) {
            return Err(malformed());
        }
        let secret = match secret {
            Some(secret) => {
                let (user, password) = secret.split_once(':').ok_or_else(malformed)?;
                if user.is_empty() || password.is_empty() {
                    return Err(malformed());
                }
                Some(format!(
                    "{}:{}",
                    uri::decode_text(user, false)?,
                    uri::decode_text(password, false)?
                ))
            }
            None => None,
        };
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        let (host, authority) = (host.to_owned(), authority.to_owned());
        Ok(Self { scheme, host, port, authority, path, secret })
    }

    /// The value of `Authorization`, where the URL has a user and a password.
    #[must_use]
    pub fn authorization(&self) -> Option<String> {
        self.secret.as_ref().map(|secret| format!("Basic {}", STANDARD.encode(secret)))
    }
}

/// What can be set of a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// Where it pushes to; empty for nowhere.
    pub endpoint: String,
    /// Further arguments, as they are stored: `NAME=VALUE&…`.
    pub args: String,
    /// What each record carries.
    pub opaque: String,
    /// Its policy: JSON.
    pub policy: String,
    /// Whether events are kept until they are delivered.
    pub is_persistent: bool,
    /// How long they are kept, s; [`UNSET`]: by option.
    pub keep_s: u32,
    /// How often a delivery is tried again.
    pub retries: u32,
    /// How long is waited between two tries, s.
    pub sleep_s: u32,
}

impl Default for Attributes {
    fn default() -> Self {
        Self {
            endpoint: String::new(),
            args: String::new(),
            opaque: String::new(),
            policy: String::new(),
            is_persistent: false,
            keep_s: UNSET,
            retries: UNSET,
            sleep_s: UNSET,
        }
    }
}

fn flag(name: &str, text: &str) -> Result<bool> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "1" | "yes" | "on" => Ok(true),
        "" | "false" | "0" | "no" | "off" => Ok(false),
        _ => Err(Error::new(Code::InvalidArgument, format!("{name} is true or false."))),
    }
}

impl Attributes {
    /// The attributes of a new topic: `Attributes.entry.N.key` and `.value`, and fields of their own.
    ///
    /// # Errors
    /// As [`Attributes::set`].
    pub fn of_form(form: &Query) -> Result<Self> {
        let mut out = Self::default();
        let mut pairs: Vec<(&str, &str)> = Vec::new();
        for (name, value) in form.iter() {
            let value = value.unwrap_or_default();
            match name.strip_prefix("Attributes.entry.") {
                Some(rest) => {
                    let Some(n) = rest.strip_suffix(".key") else { continue };
                    let at = format!("Attributes.entry.{n}.value");
                    pairs.push((value, form.get(&at).unwrap_or_default()));
                }
                // Tags are AWS's; the version is that of the protocol.
                None if ["Action", "Name", "Version"].contains(&name) => {}
                None if name.starts_with("Tags.") => {}
                None => pairs.push((name, value)),
            }
        }
        if pairs.len() > ATTRIBUTES_MAX {
            let text = "A topic has at most 50 attributes.";
            return Err(Error::new(Code::InvalidArgument, text));
        }
        pairs.sort_unstable();
        for (name, value) in pairs {
            out.set(name, value)?;
        }
        let is_amqp = Endpoint::parse(&out.endpoint)
            .is_ok_and(|to| matches!(to.scheme, Scheme::Amqp | Scheme::Amqps));
        if is_amqp && argument(&out.args, "amqp-exchange").is_none() {
            let text = "A topic of AMQP names its exchange: amqp-exchange.";
            return Err(Error::new(Code::InvalidArgument, text));
        }
        Ok(out)
    }

    /// Sets one.
    ///
    /// # Errors
    /// [`Code::InvalidArgument`], [`Code::MalformedPolicyDocument`]; as [`Endpoint::parse`].
    pub fn set(&mut self, name: &str, value: &str) -> Result<()> {
        let bad = |text: String| Error::new(Code::InvalidArgument, text);
        if value.len() > TEXT_MAX && name != "Policy" {
            return Err(bad(format!("{name} has at most 4096 bytes.")));
        }
        let number = || match value {
            "" | "None" => Ok(UNSET),
            text => text.parse().map_err(|_| bad(format!("{name} is a number from 0 on."))),
        };
        match name {
            "push-endpoint" => {
                if !value.is_empty() {
                    Endpoint::parse(value)?;
                }
                value.clone_into(&mut self.endpoint);
            }
            "OpaqueData" => value.clone_into(&mut self.opaque),
            "Policy" => {
                if !value.is_empty() {
                    Policy::parse(value, crate::policy::Kind::Resource)?;
                }
                value.clone_into(&mut self.policy);
            }
            "persistent" => self.is_persistent = flag(name, value)?,
            "time_to_live" => self.keep_s = number()?,
            "max_retries" => self.retries = number()?,
            "retry_sleep_duration" => self.sleep_s = number()?,
            _ => {
                if ["verify-ssl", "cloudevents", "use-ssl"].contains(&name) {
                    flag(name, value)?;
                }
                if name == "kafka-ack-level" && !["none", "broker"].contains(&value) {
                    return Err(bad(format!("{name} is none or broker.")));
                }
                let mechanisms = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"];
                if name == "mechanism" && !mechanisms.contains(&value) {
                    let text = "The mechanism is PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512: others are not built.";
                    return Err(Error::new(Code::NotImplemented, text));
                }
                if name == "amqp-ack-level" && !["none", "broker", "routable"].contains(&value) {
                    return Err(bad(format!("{name} is none, broker or routable.")));
                }
                // They are stored side by side, as a query whose parts nothing escapes.
                let plain = |text: &str| text.bytes().all(|b| b.is_ascii_graphic() && b != b'&');
                if name.is_empty() || name.contains('=') || !plain(name) || !plain(value) {
                    let text = format!("{name:?} and its value are printable ASCII without &.");
                    return Err(bad(text));
                }
                let kept = self.args.split('&').filter(|arg| !arg.is_empty());
                let others =
                    kept.filter(|arg| arg.split_once('=').map_or(*arg, |(n, _)| n) != name);
                let mut args: Vec<String> = others.map(str::to_owned).collect();
                args.push(format!("{name}={value}"));
                self.args = args.join("&");
                if self.args.len() > TEXT_MAX {
                    return Err(bad("A topic's arguments have at most 4096 bytes.".into()));
                }
            }
        }
        Ok(())
    }

    /// Whether a secret is in it: then it goes over TLS alone.
    #[must_use]
    pub fn has_secret(&self) -> bool {
        let in_url =
            Endpoint::parse(&self.endpoint).is_ok_and(|endpoint| endpoint.secret.is_some());
        in_url || ["user-name", "password"].iter().any(|name| argument(&self.args, name).is_some())
    }
}

/// Attributes that `SetTopicAttributes` takes beside those that have a field here.
pub const ARGUMENTS: [&str; 10] = [
    "verify-ssl",
    "use-ssl",
    "ca-location",
    "amqp-ack-level",
    "amqp-exchange",
    "kafka-ack-level",
    "mechanism",
    "cloudevents",
    "user-name",
    "password",
];
/// Those that have one.
pub const FIELDS: [&str; 7] = [
    "push-endpoint",
    "OpaqueData",
    "Policy",
    "persistent",
    "time_to_live",
    "max_retries",
    "retry_sleep_duration",
];

/// An argument of those that are stored.
#[must_use]
pub fn argument<'a>(args: &'a str, name: &str) -> Option<&'a str> {
    args.split('&').filter_map(|arg| arg.split_once('=')).find(|(n, _)| *n == name).map(|(_, v)| v)
}

/// An argument that is true or false.
#[must_use]
pub fn is_set(args: &str, name: &str, default: bool) -> bool {
    argument(args, name).and_then(|text| flag(name, text).ok()).unwrap_or(default)
}

/// A topic that is there, as it is stored.
#[derive(Clone, Copy, Debug)]
pub struct TopicFacts<'a> {
    /// Its owner, as in [`Identity::id`]; empty where releases of old did not store it.
    pub owner: &'a str,
    /// Its policy: JSON; empty for none.
    pub policy: &'a str,
}

/// Judges an action on a topic, or on one that is not there.
fn judge(
    who: &Identity,
    action: &str,
    arn: &str,
    topic: Option<TopicFacts<'_>>,
    context: &Context,
    publish_wants_policy: bool,
) -> Result<()> {
    if who.is_admin {
        return Ok(());
    }
    let no = |text: String| Err(Error::new(Code::AuthorizationError, text));
    let ask = Ask { who: &who.principal, action, resource: arn, context };
    let verdict = |policies: &[Policy]| {
        let all: Vec<Verdict> = policies.iter().map(|policy| policy.judge(&ask)).collect();
        match (all.contains(&Verdict::Deny), all.contains(&Verdict::Allow)) {
            (true, _) => Verdict::Deny,
            (false, true) => Verdict::Allow,
            _ => Verdict::Silent,
        }
    };
    let (own, session) = (verdict(&who.policies), verdict(&who.session_policies));
    let policy = match topic.map_or("", |topic| topic.policy) {
        "" => None,
        text => match Policy::parse(text, crate::policy::Kind::Resource) {
            Ok(policy) => Some(policy),
            // What it denies must not be allowed.
            Err(_) => {
                return no(format!("The policy of {arn} cannot be read: its owner sets another."));
            }
        },
    };
    let of_topic = policy.as_ref().map_or(Verdict::Silent, |policy| policy.judge(&ask));
    if [own, session, of_topic].contains(&Verdict::Deny) {
        return no(format!("{action} on {arn} is denied by a policy."));
    }
    if !who.session_policies.is_empty() && session != Verdict::Allow {
        return no(format!("The session's policy does not allow {action} on {arn}."));
    }
    let Some(topic) = topic else {
        // Users of accounts want it allowed, others not denied.
        return match own == Verdict::Allow || (!who.in_account && who.id.is_some()) {
            true => Ok(()),
            false => no(format!("No policy allows {action} on {arn}.")),
        };
    };
    let owns = who.id.as_deref() == Some(topic.owner);
    let allowed = if who.in_account {
        match owns {
            true => own == Verdict::Allow || of_topic == Verdict::Allow,
            false => own == Verdict::Allow && of_topic == Verdict::Allow,
        }
    } else {
        let unguarded = policy.is_none()
            && who.id.is_some()
            && (topic.owner.is_empty() || (action == "sns:Publish" && !publish_wants_policy));
        own == Verdict::Allow || of_topic == Verdict::Allow || owns || unguarded
    };
    match allowed {
        true => Ok(()),
        false => no(format!("{arn} was made by another user, and no policy allows {action}.")),
    }
}

impl Asker<'_> {
    /// Judges an action on a topic; `topic` is `None` where there is none of this name.
    ///
    /// # Errors
    /// [`Code::AuthorizationError`].
    pub fn authorize_topic(
        &self,
        action: &str,
        arn: &str,
        topic: Option<TopicFacts<'_>>,
        context: &Context,
    ) -> Result<()> {
        judge(self.identity(), action, arn, topic, context, true)
    }
}

impl Sender {
    /// Judges whether a bucket's notifications may publish to a topic: `sns:Publish`. Without a policy all users may,
    /// unless `wants_policy`: `rgw_topic_require_publish_policy`.
    ///
    /// # Errors
    /// [`Code::AccessDenied`].
    pub fn may_publish(
        &self,
        arn: &str,
        topic: TopicFacts<'_>,
        context: &Context,
        wants_policy: bool,
    ) -> Result<()> {
        let judged = judge(self.identity(), "sns:Publish", arn, Some(topic), context, wants_policy);
        judged.map_err(|error| Error::new(Code::AccessDenied, error.message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{Kind, Principal};

    #[test]
    fn arns() {
        let arn = Arn::parse("arn:aws:sns:default:acme:a_b-1").unwrap();
        assert_eq!((arn.account.as_str(), arn.name.as_str()), ("acme", "a_b-1"));
        assert_eq!(arn.to_string(), "arn:aws:sns:default:acme:a_b-1");
        for bad in [
            "",
            "xx",
            "arn:aws:sns:default::",
            "arn:aws:s3:default::t",
            "arn:aws:sns:default:t",
            "arn:aws:sns:::a:b",
            "arn:aws:sns:d::a.b",
        ] {
            assert_eq!(Arn::parse(bad).unwrap_err().code, Code::InvalidArgument, "{bad}");
        }
    }

    #[test]
    fn endpoints() {
        let of = |url: &str| Endpoint::parse(url).unwrap();
        let plain = of("http://a.example");
        assert_eq!(
            (plain.port, plain.path.as_str(), plain.authority.as_str()),
            (80, "/", "a.example")
        );
        let full = of("https://u:p%40s@[::1]:8443/x?y=1#z");
        assert_eq!((full.scheme, full.host.as_str(), full.port), (Scheme::Https, "::1", 8443));
        assert_eq!((full.path.as_str(), full.authority.as_str()), ("/x?y=1", "[::1]:8443"));
        assert_eq!(full.authorization().as_deref(), Some("Basic dTpwQHM="));
        assert_eq!(of("http://a?q=1").path, "/?q=1");
        for bad in [
            "nourl",
            "gopher://a/",
            "http://",
            "http:///x",
            "http://a:0/",
            "http://a:70000",
            "http://a b/",
            "http://a\r\nX: y/",
            "http://u@a/",
            "http://u:@a/",
            "http://[::1/",
            "http://[x]/",
            "http://a%20b/",
            "HTTP://a/",
            "file:///etc/passwd",
        ] {
            assert_eq!(Endpoint::parse(bad).unwrap_err().code, Code::InvalidArgument, "{bad}");
        }
        for (url, scheme, port) in [
            ("amqp://u:p@a/v", Scheme::Amqp, 5672),
            ("amqps://a", Scheme::Amqps, 5671),
            ("kafka://a", Scheme::Kafka, 9092),
        ] {
            let found = Endpoint::parse(url).unwrap();
            assert_eq!((found.scheme, found.port), (scheme, port), "{url}");
        }
    }

    #[test]
    fn attributes() {
        let form = "Action=CreateTopic&Name=t&Version=2010-03-31&Attributes.entry.2.value=true&Attributes.entry.2.key=persistent\
            &Attributes.entry.1.key=push-endpoint&Attributes.entry.1.value=http%3A%2F%2Fa%2Fb&verify-ssl=false\
            &Attributes.entry.3.key=cloudevents&Attributes.entry.3.value=true&Attributes.entry.4.key=max_retries&Attributes.entry.4.value=9";
        let mut all = Attributes::of_form(&Query::parse(form).unwrap()).unwrap();
        assert_eq!(
            (all.endpoint.as_str(), all.is_persistent, all.retries, all.keep_s),
            ("http://a/b", true, 9, UNSET)
        );
        assert_eq!(all.args, "cloudevents=true&verify-ssl=false");
        assert!(
            is_set(&all.args, "cloudevents", false)
                && !is_set(&all.args, "verify-ssl", true)
                && !all.has_secret()
        );
        all.set("cloudevents", "false").unwrap();
        assert_eq!(all.args, "verify-ssl=false&cloudevents=false");
        all.set("push-endpoint", "http://u:p@a/").unwrap();
        assert!(all.has_secret());
        for (name, value) in [
            ("persistent", "maybe"),
            ("time_to_live", "-1"),
            ("push-endpoint", "x"),
            ("a", "b&push-endpoint=c"),
            ("a=b", "c"),
            ("", "x"),
        ] {
            assert_eq!(
                all.set(name, value).unwrap_err().code,
                Code::InvalidArgument,
                "{name}={value}"
            );
        }
        assert_eq!(all.set("Policy", "{nope").unwrap_err().code, Code::MalformedPolicyDocument);
    }

    fn user(id: &str) -> Identity {
        let principal = Principal::User { account: String::new(), name: id.into() };
        Identity { principal, id: Some(id.into()), ..Identity::anonymous() }
    }

    fn policy(effect: &str, action: &str) -> Policy {
        let text = format!(
            r#"{{"Statement":{{"Effect":"{effect}","Action":"{action}","Resource":"*"}}}}"#
        );
        Policy::parse(&text, Kind::Identity).unwrap()
    }

    #[test]
    fn who_may() {
        let arn = "arn:aws:sns:default::t";
        let open = r#"{"Statement":{"Effect":"Allow","Principal":"*","Action":"sns:Publish","Resource":"*"}}"#;
        let shut =
            r#"{"Statement":{"Effect":"Deny","Principal":"*","Action":"sns:*","Resource":"*"}}"#;
        let context = Context::default();
        let may = |who: &Identity, action: &str, topic: Option<(&str, &str)>, wants: bool| {
            let topic = topic.map(|(owner, policy)| TopicFacts { owner, policy });
            judge(who, action, arn, topic, &context, wants).is_ok()
        };
        let (ann, bob, nobody) = (user("ann"), user("bob"), Identity::anonymous());
        let (get, publish) = ("sns:GetTopicAttributes", "sns:Publish");
        assert!(
            may(&ann, get, Some(("ann", "")), true) && may(&ann, "sns:CreateTopic", None, true)
        );
        assert!(!may(&bob, get, Some(("ann", "")), true));
        assert!(
            may(&bob, publish, Some(("ann", "")), false)
                && !may(&bob, publish, Some(("ann", "")), true)
        );
        assert!(
            may(&bob, publish, Some(("ann", open)), true)
                && !may(&bob, get, Some(("ann", open)), true)
        );
        assert!(
            !may(&ann, get, Some(("ann", shut)), true) && !may(&ann, get, Some(("ann", "{")), true)
        );
        assert!(may(&bob, get, Some(("", "")), true));
        for action in [get, publish] {
            assert!(
                !may(&nobody, action, Some(("ann", "")), false)
                    && !may(&nobody, action, Some(("", "")), false)
            );
            assert!(!may(&nobody, action, None, false));
        }
        let denied = Identity { policies: vec![policy("Deny", "sns:*")], ..user("ann") };
        assert!(
            !may(&denied, get, Some(("ann", "")), true)
                && !may(&denied, "sns:CreateTopic", None, true)
        );
        let bounded = Identity { session_policies: vec![policy("Allow", "s3:*")], ..user("ann") };
        assert!(!may(&bounded, get, Some(("ann", "")), true));
        // Users of accounts are allowed by policies alone, and of other accounts by both.
        let of_account = Identity { in_account: true, ..user("RGW1") };
        let clerk = Identity { policies: vec![policy("Allow", "sns:*")], ..of_account.clone() };
        assert!(
            !may(&of_account, get, Some(("RGW1", "")), true)
                && may(&clerk, get, Some(("RGW1", "")), true)
        );
        assert!(
            !may(&of_account, "sns:CreateTopic", None, true)
                && may(&clerk, "sns:CreateTopic", None, true)
        );
        assert!(
            !may(&clerk, publish, Some(("RGW2", "")), false)
                && may(&clerk, publish, Some(("RGW2", open)), false)
        );
        assert!(!may(&of_account, publish, Some(("RGW2", open)), false));
        assert!(may(&Identity { is_admin: true, ..user("root") }, get, Some(("ann", shut)), true));
    }
}
