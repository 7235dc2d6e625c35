//! Policies: JSON documents that allow and deny.
//!
//! Grammar and evaluation as AWS's "IAM JSON policy reference"; source of what stock knows: `rgw_iam_policy.h`. A
//! deny counts before any allow. A statement that cannot be read makes the document invalid: nothing is skipped.

mod condition;
mod glob;

use serde_json::{Map, Value};

pub use condition::{Condition, Context};
use glob::Pattern;

use crate::error::{Code, Error, Result};

/// Bytes of a document.
pub const BYTES_MAX: usize = 1 << 20;
/// Statements of a document.
const STATEMENTS_MAX: usize = 1_000;
/// Values in one list of a statement.
const VALUES_MAX: usize = 1_000;

/// Who asks, as policies name users.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Principal {
    /// Nobody known.
    Anonymous,
    /// A user.
    User {
        /// The account's id, else the tenant, else empty.
        account: String,
        /// The user's name (path included) or id.
        name: String,
    },
    /// A session of a role.
    Role {
        /// The account's id or tenant.
        account: String,
        /// The role's name.
        name: String,
    },
    /// Whom a provider of identities knows, by a token of its: who assumes a role, and asks for nothing else.
    Federated {
        /// The provider's URL, without its scheme.
        provider: String,
    },
}

impl Principal {
    /// The account or tenant; `None` for the anonymous user.
    #[must_use]
    pub fn account(&self) -> Option<&str> {
        match self {
            Self::Anonymous | Self::Federated { .. } => None,
            Self::User { account, .. } | Self::Role { account, .. } => Some(account),
        }
    }
}

/// Who a statement is about.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Named {
    Everybody,
    /// All of an account.
    Account(String),
    User(String, String),
    Role(String, String),
    /// Whom a provider of identities knows, by its URL without the scheme.
    Provider(String),
    /// What no request of this gateway comes from: services.
    Other,
}

impl Named {
    fn fits(&self, who: &Principal) -> bool {
        match (self, who) {
            (Self::Everybody, _) => true,
            (Self::Account(account), who) => who.account() == Some(account),
            (Self::User(account, name), Principal::User { account: a, name: n })
            | (Self::Role(account, name), Principal::Role { account: a, name: n }) => {
                account == a && name == n
            }
            (Self::Provider(url), Principal::Federated { provider }) => url == provider,
            _ => false,
        }
    }
}

/// A list, or all but it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Except<T> {
    not: bool,
    list: Vec<T>,
}

impl<T> Except<T> {
    fn fits(&self, one: impl FnMut(&T) -> bool) -> bool {
        self.list.iter().any(one) != self.not
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Statement {
    allow: bool,
    /// `None` in policies of users, groups and roles.
    principals: Option<Except<Named>>,
    actions: Except<Pattern>,
    resources: Except<[Pattern; 6]>,
    conditions: Vec<Condition>,
}

/// What a policy says to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Denied, whatever else allows.
    Deny,
    /// Allowed, unless something denies.
    Allow,
    /// It does not speak of this.
    Silent,
}

/// What is asked.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    /// Who asks.
    pub who: &'a Principal,
    /// `s3:GetObject`.
    pub action: &'a str,
    /// `arn:aws:s3:::BUCKET/KEY`.
    pub resource: &'a str,
    /// Values of condition keys.
    pub context: &'a Context,
}

/// Where a policy is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// To a resource: each statement names principals.
    Resource,
    /// To a user, group, role or session: no statement does.
    Identity,
    /// To a role, saying who may assume it: each statement names principals, and none a resource but the role.
    Trust,
}

/// A document that was read whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    statements: Vec<Statement>,
}

fn malformed(text: impl Into<String>) -> Error {
    Error::new(Code::MalformedPolicyDocument, text)
}

impl Policy {
    /// Reads a document. The text is to be stored as it came.
    ///
    /// # Errors
    /// [`Code::MalformedPolicyDocument`], with the place.
    pub fn parse(text: &str, kind: Kind) -> Result<Self> {
        if text.len() > BYTES_MAX {
            return Err(malformed("A policy has at most 1 MiB."));
        }
        let value: Unique = serde_json::from_str(text)
            .map_err(|e| malformed(format!("The policy is no JSON: {e}.")))?;
        let Value::Object(document) = value.0 else {
            return Err(malformed("A policy is an object."));
        };
        known(&document, &["Version", "Id", "Statement"])?;
        match document.get("Version") {
            None => {}
            Some(Value::String(v)) if v == "2012-10-17" || v == "2008-10-17" => {}
            Some(_) => return Err(malformed("Version is 2012-10-17 or 2008-10-17.")),
        }
        let statements = match document.get("Statement") {
            Some(Value::Array(all)) if all.len() <= STATEMENTS_MAX => all.iter().collect(),
            Some(one @ Value::Object(_)) => vec![one],
            _ => return Err(malformed("Statement is a list of at most 1000 statements.")),
        };
        let statements = statements.into_iter().enumerate().map(|(n, s)| {
            statement(s, kind).map_err(|e| malformed(format!("Statement {}: {}", n + 1, e.message)))
        });
        Ok(Self { statements: statements.collect::<Result<_>>()? })
    }

    /// What it says to a request.
    #[must_use]
    pub fn judge(&self, ask: &Ask<'_>) -> Verdict {
        let mut verdict = Verdict::Silent;
        for statement in self.statements.iter().filter(|s| s.fits(ask)) {
            if !statement.allow {
                return Verdict::Deny;
            }
            verdict = Verdict::Allow;
        }
        verdict
    }

    /// Whether it lets everybody do something, as `PolicyStatus` tells and public access blocks judge it.
    #[must_use]
    pub fn is_public(&self) -> bool {
        self.statements.iter().any(|s| {
            let everybody =
                s.principals.as_ref().is_some_and(|p| p.not || p.list.contains(&Named::Everybody));
            s.allow && everybody && !s.conditions.iter().any(Condition::is_narrow)
        })
    }
}

impl Statement {
    fn fits(&self, ask: &Ask<'_>) -> bool {
        let service = ask.resource.splitn(6, ':').collect::<Vec<_>>();
        let Ok(parts): std::result::Result<[&str; 6], _> = service.try_into() else { return false };
        let who = match (ask.who, &self.principals) {
            // "Everybody" and "all but" let nobody in whom this gateway has never heard of.
            (Principal::Federated { .. }, Some(p)) if self.allow => {
                let is_named = |named: &Named| *named != Named::Everybody && named.fits(ask.who);
                !p.not && p.list.iter().any(is_named)
            }
            (_, principals) => {
                principals.as_ref().is_none_or(|p| p.fits(|named| named.fits(ask.who)))
            }
        };
        let lower = ask.action.to_ascii_lowercase();
        who && self.actions.fits(|a| a.fits(&lower, ask.context))
            && self
                .resources
                .fits(|r| r.iter().zip(parts).all(|(p, text)| p.fits(text, ask.context)))
            && self.conditions.iter().all(|c| c.holds(ask.context))
    }
}

/// Refuses fields that no one knows: what they were to restrict would be lost.
fn known(object: &Map<String, Value>, names: &[&str]) -> Result<()> {
    match object.keys().find(|k| !names.contains(&k.as_str())) {
        Some(name) => Err(malformed(format!("The field {name:?} is not known."))),
        None => Ok(()),
    }
}

/// A text or a list of texts.
fn texts(value: &Value) -> Result<Vec<&str>> {
    let bad = || malformed("A value is a text or a list of at most 1000 texts.");
    match value {
        Value::String(text) => Ok(vec![text]),
        Value::Array(all) if all.len() <= VALUES_MAX => {
            all.iter().map(|v| v.as_str().ok_or_else(bad)).collect()
        }
        _ => Err(bad()),
    }
}

/// The values of one of two fields, of which one must be there, and only one.
fn either<'a>(object: &'a Map<String, Value>, name: &str) -> Result<(bool, &'a Value)> {
    match (object.get(name), object.get(&format!("Not{name}"))) {
        (Some(value), None) => Ok((false, value)),
        (None, Some(value)) => Ok((true, value)),
        _ => Err(malformed(format!("Either {name} or Not{name} is needed."))),
    }
}

fn statement(value: &Value, kind: Kind) -> Result<Statement> {
    let Value::Object(object) = value else { return Err(malformed("It is no object.")) };
    let fields = [
        "Sid",
        "Effect",
        "Principal",
        "NotPrincipal",
        "Action",
        "NotAction",
        "Resource",
        "NotResource",
        "Condition",
    ];
    known(object, &fields)?;
    let allow = match object.get("Effect").and_then(Value::as_str) {
        Some("Allow") => true,
        Some("Deny") => false,
        _ => return Err(malformed("Effect is Allow or Deny.")),
    };
    let has_principals = object.contains_key("Principal") || object.contains_key("NotPrincipal");
    let principals = match (kind, has_principals) {
        (Kind::Resource | Kind::Trust, _) => {
            let (not, value) = either(object, "Principal")?;
            Some(Except { not, list: principals(value)? })
        }
        (Kind::Identity, false) => None,
        (Kind::Identity, true) => {
            return Err(malformed("A policy of a user, group or role names no Principal."));
        }
    };
    let (not, value) = either(object, "Action")?;
    let list = texts(value)?.into_iter().map(|t| Pattern::plain(&t.to_ascii_lowercase())).collect();
    let actions = Except { not, list };
    let is_trust = kind == Kind::Trust && !object.contains_key("NotResource");
    let resources = if is_trust && !object.contains_key("Resource") {
        Except { not: false, list: vec![resource("*")?] }
    } else {
        let (not, value) = either(object, "Resource")?;
        Except { not, list: texts(value)?.into_iter().map(resource).collect::<Result<_>>()? }
    };
    let conditions = object.get("Condition").map(condition::parse).transpose()?.unwrap_or_default();
    Ok(Statement { allow, principals, actions, resources, conditions })
}

/// `*`, or the six parts of an ARN, each a pattern.
fn resource(text: &str) -> Result<[Pattern; 6]> {
    if text == "*" {
        return Ok(std::array::from_fn(|_| Pattern::plain("*")));
    }
    let parts: Vec<&str> = text.splitn(6, ':').collect();
    match <[&str; 6]>::try_from(parts) {
        Ok(parts) if parts[0] == "arn" => Ok(parts.map(Pattern::with_variables)),
        _ => Err(malformed(format!("The resource {text:?} is no ARN (arn:aws:s3:::BUCKET/KEY)."))),
    }
}

fn principals(value: &Value) -> Result<Vec<Named>> {
    let object = match value {
        Value::String(text) if text == "*" => return Ok(vec![Named::Everybody]),
        Value::Object(object) => object,
        _ => return Err(malformed("Principal is \"*\" or an object.")),
    };
    known(object, &["AWS", "Federated", "Service", "CanonicalUser"])?;
    let mut out = Vec::new();
    for (kind, value) in object {
        for text in texts(value)? {
            out.push(match kind.as_str() {
                "AWS" => aws_principal(text)?,
                "CanonicalUser" => {
                    let (account, name) = text.split_once('$').unwrap_or(("", text));
                    Named::User(account.into(), name.into())
                }
                "Federated" => match text.split_once(":oidc-provider/") {
                    Some((arn, url)) if arn.starts_with("arn:") => Named::Provider(url.into()),
                    _ => Named::Other,
                },
                _ => Named::Other,
            });
        }
    }
    Ok(out)
}

fn aws_principal(text: &str) -> Result<Named> {
    let bad = || {
        malformed(format!(
            "The principal {text:?} is no account and no ARN of a user, role or account."
        ))
    };
    if text == "*" {
        return Ok(Named::Everybody);
    }
    if !text.contains(':') {
        return Ok(Named::Account(text.into()));
    }
    let parts: Vec<&str> = text.splitn(6, ':').collect();
    let ["arn", _, service, "", account, rest] = parts[..] else { return Err(bad()) };
    let (account, (kind, name)) = (account.to_owned(), rest.split_once('/').unwrap_or((rest, "")));
    match (service, kind, name) {
        ("iam", "root", "") => Ok(Named::Account(account)),
        ("iam", "user", name) if !name.is_empty() => Ok(Named::User(account, name.into())),
        ("iam", "role", name) if !name.is_empty() => Ok(Named::Role(account, name.into())),
        ("sts", "assumed-role", name) if !name.is_empty() => {
            let name = name.split('/').next().unwrap_or_default();
            Ok(Named::Role(account, name.into()))
        }
        _ => Err(bad()),
    }
}

/// JSON where no object has a name twice: two readers could each take another value. Depth is bounded by `serde_json`.
pub(crate) struct Unique(pub(crate) Value);

impl<'de> serde::Deserialize<'de> for Unique {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> std::result::Result<Self, D::Error> {
        d.deserialize_any(UniqueVisitor)
    }
}

struct UniqueVisitor;

impl<'de> serde::de::Visitor<'de> for UniqueVisitor {
    type Value = Unique;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> std::result::Result<Unique, E> {
        Ok(Unique(Value::Null))
    }

    fn visit_bool<E>(self, v: bool) -> std::result::Result<Unique, E> {
        Ok(Unique(v.into()))
    }

    fn visit_i64<E>(self, v: i64) -> std::result::Result<Unique, E> {
        Ok(Unique(v.into()))
    }

    fn visit_u64<E>(self, v: u64) -> std::result::Result<Unique, E> {
        Ok(Unique(v.into()))
    }

    fn visit_f64<E>(self, v: f64) -> std::result::Result<Unique, E> {
        Ok(Unique(v.into()))
    }

    fn visit_str<E>(self, v: &str) -> std::result::Result<Unique, E> {
        Ok(Unique(v.into()))
    }

    fn visit_seq<A: serde::de::SeqAccess<'de>>(
        self,
        mut seq: A,
    ) -> std::result::Result<Unique, A::Error> {
        let mut out = Vec::new();
        while let Some(Unique(value)) = seq.next_element()? {
            out.push(value);
        }
        Ok(Unique(out.into()))
    }

    fn visit_map<A: serde::de::MapAccess<'de>>(
        self,
        mut map: A,
    ) -> std::result::Result<Unique, A::Error> {
        let mut out = Map::new();
        while let Some((name, Unique(value))) = map.next_entry::<String, Unique>()? {
            if out.contains_key(&name) {
                return Err(serde::de::Error::custom(format_args!("{name:?} is there twice")));
            }
            out.insert(name, value);
        }
        Ok(Unique(out.into()))
    }
}

#[cfg(test)]
mod tests;
