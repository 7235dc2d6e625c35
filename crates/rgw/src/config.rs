//! What buckets are configured with, and locks of objects.

use std::collections::BTreeSet;

use rgw_core::formats::{
    LegalHold, Lifecycle, LockRule, ObjectLock, ObjectRetention, bucket_flags,
};
use rgw_core::gateway::attr_text;
use rgw_core::meta::{Attrs, BucketAt};
use rgw_core::object::ObjectAt;
use rgw_proto::body::lifecycle::{self, Expiration, When};
use rgw_proto::body::{config, cors};
use rgw_proto::operation::Operation as Op;
use rgw_proto::policy::{Kind, Policy};
use rgw_proto::request::Headers;
use rgw_proto::time::Time;
use rgw_proto::{Code, Error, Result};
use types::{Bytes, Denc, Features, Writer};

use crate::acl;
use crate::answer::Answer;
use crate::body::Received;
use crate::crypt::{self, BucketDefault};
use crate::objects::{stored_tags, tag_bytes};
use crate::request::{Asked, Rules, block_bytes, now, stored_block};
use crate::server::Server;

/// Seconds of a day.
const DAY_S: i64 = 86_400;

/// Bits of methods in stored CORS rules.
const METHODS: [(&str, u8); 5] = [("GET", 1), ("PUT", 2), ("HEAD", 4), ("POST", 8), ("DELETE", 16)];

/// How CORS rules are stored: `RGWCORSConfiguration`, `ENCODE_START(1, 1)`.
pub(crate) fn cors_bytes(rules: &[cors::Rule]) -> Bytes {
    let mut w = Writer::new(Features::ALL);
    w.framed(1, 1, |w| {
        w.seq(rules, |w, rule| {
            w.framed(1, 1, |w| {
                w.u32(rule.max_age_s.unwrap_or(u32::MAX));
                let bits =
                    METHODS.iter().filter(|(name, _)| rule.methods.iter().any(|m| m == name));
                w.u8(bits.map(|(_, bit)| bit).sum());
                w.str(&rule.id);
                rule.headers.iter().cloned().collect::<BTreeSet<String>>().encode(w);
                rule.origins.iter().cloned().collect::<BTreeSet<String>>().encode(w);
                rule.expose.encode(w);
            });
        });
    });
    w.finish()
}

fn stored_cors(attrs: &Attrs) -> Option<Vec<cors::Rule>> {
    let bytes = attrs.get("cors")?;
    let mut r = types::Reader::shared(bytes);
    let rules = r.framed("RGWCORSConfiguration", 1, |r, _| {
        r.seq(|r| {
            r.framed("RGWCORSRule", 1, |r, _| {
                let (age, bits, id) = (r.u32()?, r.u8()?, r.string()?);
                let headers: BTreeSet<String> = Denc::decode(r)?;
                let origins: BTreeSet<String> = Denc::decode(r)?;
                let methods = METHODS.iter().filter(|(_, bit)| bits & bit != 0);
                Ok(cors::Rule {
                    id,
                    methods: methods.map(|(name, _)| (*name).to_owned()).collect(),
                    origins: origins.into_iter().collect(),
                    headers: headers.into_iter().collect(),
                    expose: Denc::decode(r)?,
                    max_age_s: (age != u32::MAX).then_some(age),
                })
            })
        })
    });
    rules.ok()
}

/// The attribute of ownership controls, in releases after 20.2: `OwnershipControls`, `ENCODE_START(1, 1)`.
const OWNERSHIP: &str = "ownership-controls";

/// Who owns new objects of a bucket; `None` where that was not said.
///
/// # Errors
/// [`Code::InternalError`] where it cannot be read.
pub fn stored_ownership(attrs: &Attrs) -> Result<Option<config::Ownership>> {
    let Some(bytes) = attrs.get(OWNERSHIP) else { return Ok(None) };
    let number = types::Reader::shared(bytes).framed("OwnershipControls", 1, |r, _| r.u8());
    let found = number.ok().and_then(config::Ownership::of_number);
    let bad = || Error::new(Code::InternalError, "The bucket's ownership cannot be read.");
    found.map(Some).ok_or_else(bad)
}

/// The lifecycle rules that are stored; `None` where there are none.
///
/// # Errors
/// [`Code::InternalError`] where they cannot be read.
fn stored_rules(bucket: &BucketAt) -> Result<Option<Vec<lifecycle::Rule>>> {
    let Some(bytes) = bucket.attrs.get("lc") else { return Ok(None) };
    let rules = Lifecycle::from_bytes(bytes);
    let bad = |_| Error::new(Code::InternalError, "The bucket's lifecycle rules cannot be read.");
    rules.map(|rules| Some(rules.0)).map_err(bad)
}

/// When an object expires, and by which rule: the value of `x-amz-expiration`. Days end at midnight.
pub fn expiration(
    bucket: &BucketAt,
    name: &str,
    attrs: &Attrs,
    size: u64,
    mtime: Time,
) -> Option<String> {
    let rules = stored_rules(bucket).ok().flatten()?;
    let tags = stored_tags(attrs);
    let fits = |rule: &&lifecycle::Rule| rule.is_enabled && rule.filter.fits(name, &tags, size);
    let ends = rules.iter().filter(fits).filter_map(|rule| {
        let Some(Expiration::At(when)) = rule.expiration else { return None };
        let at = match when {
            When::Date(date) => date,
            When::Days(days) => {
                let midnight = mtime.0 - mtime.0.rem_euclid(DAY_S) + DAY_S;
                Time(midnight + i64::from(days) * DAY_S)
            }
        };
        Some((at, &rule.id))
    });
    let (at, id) = ends.min()?;
    Some(format!("expiry-date=\"{}\", rule-id=\"{id}\"", at.http()))
}

fn lock_config(lock: &ObjectLock) -> Result<config::ObjectLock> {
    let default = lock.rule.as_ref().map(|rule| -> Result<_> {
        let number = |n: i32| u32::try_from(n).unwrap_or(0);
        let period = match rule.days {
            0 => config::Period::Years(number(rule.years)),
            days => config::Period::Days(number(days)),
        };
        Ok((config::LockMode::parse(&rule.mode)?, period))
    });
    Ok(config::ObjectLock { default: default.transpose()? })
}

/// The headers that tell of an object's lock.
pub fn lock_headers(answer: Answer, object: &ObjectAt) -> Answer {
    let mut answer = answer;
    if let Some(lock) = retention(object) {
        let until = Time(i64::try_from(lock.until_ns / 1_000_000_000).unwrap_or(i64::MAX));
        answer = answer
            .header("x-amz-object-lock-mode", lock.mode)
            .header("x-amz-object-lock-retain-until-date", until.to_string());
    }
    answer.maybe("x-amz-object-lock-legal-hold", hold(object))
}

fn retention(object: &ObjectAt) -> Option<ObjectRetention> {
    ObjectRetention::from_bytes(object.attrs.get("object-retention")?).ok()
}

fn hold(object: &ObjectAt) -> Option<String> {
    LegalHold::from_bytes(object.attrs.get("object-legal-hold")?).ok().map(|hold| hold.0)
}

fn stored_retention(retention: &config::Retention) -> Bytes {
    let until_ns = u64::try_from(retention.until.0).unwrap_or(0).saturating_mul(1_000_000_000);
    ObjectRetention { mode: retention.mode.name().into(), until_ns }.to_bytes()
}

impl Server {
    pub(crate) async fn configure(
        &self,
        asked: &Asked,
        bucket: BucketAt,
        body: Received,
    ) -> Result<Answer> {
        let none = |code: Code| Err(Error::from(code));
        match asked.operation {
            Op::GetBucketLocation => {
                Ok(Answer::xml(config::location_to_xml(&self.gateway.group.api_name)))
            }
            Op::GetBucketVersioning => {
                let state = match (bucket.is_versioned(), bucket.keeps_versions()) {
                    (false, _) => config::Versioning::Off,
                    (true, true) => config::Versioning::Enabled,
                    (true, false) => config::Versioning::Suspended,
                };
                Ok(Answer::xml(state.to_xml()))
            }
            Op::PutBucketVersioning => {
                let state = config::Versioning::parse(&self.document(asked, body).await?)?;
                self.set_versioning(&bucket, state).await
            }
            Op::GetBucketAcl => Ok(Answer::xml(acl::of(&bucket.attrs).to_xml())),
            Op::PutBucketAcl => {
                let now = acl::of(&bucket.attrs);
                let list = self.acl_of_request(asked, &bucket, now, body).await?;
                self.set_attr(&bucket, "acl", Some(acl::encode(&list))).await
            }
            Op::GetBucketPolicy => match bucket.attrs.get("iam-policy") {
                Some(text) => Ok(Answer::new(200)
                    .header("Content-Type", "application/json")
                    .bytes(attr_text(text).into())),
                None => none(Code::NoSuchBucketPolicy),
            },
            Op::PutBucketPolicy => {
                let text = String::from_utf8(self.document(asked, body).await?);
                let text = text.map_err(|_| Error::from(Code::MalformedPolicyDocument))?;
                let policy = Policy::parse(&text, Kind::Resource)?;
                if policy.is_public() && Rules::of(&bucket)?.block.block_policy {
                    let text = "The bucket blocks public policies.";
                    return Err(Error::new(Code::AccessDenied, text));
                }
                self.set_attr(&bucket, "iam-policy", Some(text.into())).await?;
                Ok(Answer::new(204))
            }
            Op::DeleteBucketPolicy => self.unset(&bucket, "iam-policy").await,
            Op::GetBucketPolicyStatus => {
                let rules = Rules::of(&bucket)?;
                let is_public = rules.policy.as_ref().is_some_and(Policy::is_public)
                    || acl::of(&bucket.attrs).is_public();
                Ok(Answer::xml(config::policy_status_to_xml(is_public)))
            }
            Op::GetPublicAccessBlock => match stored_block(&bucket.attrs).ok().flatten() {
                Some(block) => Ok(Answer::xml(block.to_xml())),
                None => none(Code::NoSuchPublicAccessBlockConfiguration),
            },
            Op::PutPublicAccessBlock => {
                let body = self.document(asked, body).await?;
                let block = rgw_proto::authorize::PublicAccessBlock::parse(&body)?;
                self.set_attr(&bucket, "public-access", Some(block_bytes(block))).await
            }
            Op::DeletePublicAccessBlock => self.unset(&bucket, "public-access").await,
            Op::GetBucketTagging => match bucket.attrs.contains_key("x-amz-tagging") {
                true => Ok(Answer::xml(config::tags_to_xml(&stored_tags(&bucket.attrs)))),
                false => none(Code::NoSuchTagSet),
            },
            Op::PutBucketTagging => {
                let body = self.document(asked, body).await?;
                let tags = config::tags(&body, config::BUCKET_TAGS_MAX)?;
                self.set_attr(&bucket, "x-amz-tagging", Some(tag_bytes(tags))).await
            }
            Op::DeleteBucketTagging => self.unset(&bucket, "x-amz-tagging").await,
            Op::GetBucketCors => match stored_cors(&bucket.attrs) {
                Some(rules) => Ok(Answer::xml(cors::to_xml(&rules))),
                None => none(Code::NoSuchCORSConfiguration),
            },
            Op::PutBucketCors => {
                let rules = cors::parse(&self.document(asked, body).await?)?;
                self.set_attr(&bucket, "cors", Some(cors_bytes(&rules))).await
            }
            Op::DeleteBucketCors => self.unset(&bucket, "cors").await,
            Op::GetBucketNotification => self.get_notifications(asked, &bucket),
            Op::PutBucketNotification => self.put_notifications(asked, &bucket, body).await,
            Op::DeleteBucketNotification => self.delete_notifications(asked, &bucket).await,
            Op::GetBucketRequestPayment => {
                let pays = bucket.info.requester_pays;
                Ok(Answer::xml(config::requester_pays_to_xml(pays)))
            }
            Op::PutBucketRequestPayment => {
                let pays = config::requester_pays(&self.document(asked, body).await?)?;
                let change = |now: &mut BucketAt| -> Result<()> {
                    now.info.requester_pays = pays;
                    Ok(())
                };
                self.gateway.change_bucket(&bucket.info.bucket, change).await?;
                Ok(Answer::new(200))
            }
            Op::GetBucketEncryption => match BucketDefault::of(&bucket.attrs)? {
                Some(default) => {
                    let BucketDefault { algorithm, key_id, bucket_key } = default;
                    let config = config::Encryption { algorithm, key_id, bucket_key };
                    Ok(Answer::xml(config.to_xml()))
                }
                None => none(Code::ServerSideEncryptionConfigurationNotFoundError),
            },
            Op::PutBucketEncryption => {
                let config = config::Encryption::parse(&self.document(asked, body).await?)?;
                let config::Encryption { algorithm, key_id, bucket_key } = config;
                let default = BucketDefault { algorithm, key_id, bucket_key };
                self.set_attr(&bucket, crypt::DEFAULT, Some(default.to_bytes())).await
            }
            Op::DeleteBucketEncryption => self.unset(&bucket, crypt::DEFAULT).await,
            Op::GetBucketOwnershipControls => match stored_ownership(&bucket.attrs)? {
                Some(ownership) => Ok(Answer::xml(ownership.to_xml())),
                None => none(Code::OwnershipControlsNotFoundError),
            },
            Op::PutBucketOwnershipControls => {
                let ownership = config::Ownership::parse(&self.document(asked, body).await?)?;
                self.set_ownership(&bucket, ownership).await
            }
            Op::DeleteBucketOwnershipControls => self.unset(&bucket, OWNERSHIP).await,
            Op::GetBucketLifecycle => match stored_rules(&bucket)? {
                Some(rules) => Ok(Answer::xml(lifecycle::to_xml(&rules))),
                None => none(Code::NoSuchLifecycleConfiguration),
            },
            Op::PutBucketLifecycle => {
                let body = self.document(asked, body).await?;
                self.set_lifecycle(&bucket, lifecycle::parse(&body)?).await
            }
            Op::DeleteBucketLifecycle => {
                self.unset(&bucket, "lc").await?;
                self.gateway.forget_lifecycle(&bucket).await?;
                Ok(Answer::new(204))
            }
            Op::GetObjectLockConfiguration => match &bucket.info.lock {
                Some(lock) => Ok(Answer::xml(lock_config(lock)?.to_xml())),
                None => none(Code::ObjectLockConfigurationNotFoundError),
            },
            Op::PutObjectLockConfiguration => {
                let config = config::ObjectLock::parse(&self.document(asked, body).await?)?;
                self.set_lock(&bucket, config).await
            }
            Op::GetBucketWebsite | Op::PutBucketWebsite | Op::DeleteBucketWebsite => {
                self.on_website(asked, &bucket, body).await
            }
            _ => Err(Error::new(
                Code::NotImplemented,
                format!(
                    "{:?} is not built here: stock radosgw does it on the same bucket.",
                    asked.operation
                ),
            )),
        }
    }

    async fn set_ownership(
        &self,
        bucket: &BucketAt,
        ownership: config::Ownership,
    ) -> Result<Answer> {
        let list = acl::of(&bucket.attrs);
        let is_private = list.grants.iter().all(|grant| {
            matches!(&grant.grantee, rgw_proto::acl::Grantee::User(id) if *id == list.owner.id)
        });
        if ownership == config::Ownership::BucketOwnerEnforced && !is_private {
            let text =
                "The bucket's list of access grants others something: make it private before.";
            return Err(Error::new(Code::InvalidRequest, text));
        }
        let mut w = Writer::new(Features::ALL);
        w.framed(1, 1, |w| w.u8(ownership.number()));
        self.set_attr(bucket, OWNERSHIP, Some(w.finish())).await
    }

    async fn set_lifecycle(
        &self,
        bucket: &BucketAt,
        mut rules: Vec<lifecycle::Rule>,
    ) -> Result<Answer> {
        for rule in &mut rules {
            let classes = rule.transitions.iter().map(|t| &t.1);
            let later = rule.noncurrent_transitions.iter().map(|t| &t.1);
            if let Some(class) =
                classes.chain(later).find(|c| bucket.placement.data_of(c).is_none())
            {
                let text = format!("The bucket's placement has no storage class {class:?}.");
                return Err(Error::new(Code::InvalidArgument, text));
            }
            if rule.id.is_empty() {
                rule.id = self.gateway.new_rule_id();
            }
        }
        let bytes = Lifecycle(rules).to_bytes();
        self.set_attr(bucket, "lc", Some(bytes)).await?;
        self.gateway.note_lifecycle(bucket).await?;
        Ok(Answer::new(200))
    }

    async fn set_lock(&self, bucket: &BucketAt, config: config::ObjectLock) -> Result<Answer> {
        let rule = config.default.map(|(mode, period)| {
            let (days, years) = match period {
                config::Period::Days(days) => (days, 0),
                config::Period::Years(years) => (0, years),
            };
            let small = |n: u32| i32::try_from(n).unwrap_or(i32::MAX);
            LockRule { mode: mode.name().into(), days: small(days), years: small(years) }
        });
        let change = |now: &mut BucketAt| -> Result<()> {
            if !now.keeps_versions() {
                let text = "Object lock wants a bucket that keeps versions.";
                return Err(Error::new(Code::InvalidBucketState, text));
            }
            now.info.flags |= bucket_flags::OBJECT_LOCK;
            now.info.lock = Some(ObjectLock { is_enabled: true, rule: rule.clone() });
            Ok(())
        };
        self.gateway.change_bucket(&bucket.info.bucket, change).await?;
        Ok(Answer::new(200))
    }

    async fn set_versioning(&self, bucket: &BucketAt, state: config::Versioning) -> Result<Answer> {
        let change = |now: &mut BucketAt| -> Result<()> {
            let flags = &mut now.info.flags;
            match state {
                config::Versioning::Enabled => {
                    *flags |= bucket_flags::VERSIONED;
                    *flags &= !bucket_flags::VERSIONS_SUSPENDED;
                }
                config::Versioning::Suspended if *flags & bucket_flags::OBJECT_LOCK != 0 => {
                    return Err(Code::InvalidBucketState.into());
                }
                config::Versioning::Suspended => {
                    *flags |= bucket_flags::VERSIONED | bucket_flags::VERSIONS_SUSPENDED;
                }
                config::Versioning::Off => return Err(Code::MalformedXML.into()),
            }
            Ok(())
        };
        self.gateway.change_bucket(&bucket.info.bucket, change).await?;
        Ok(Answer::new(200))
    }

    async fn set_attr(
        &self,
        bucket: &BucketAt,
        name: &str,
        value: Option<Bytes>,
    ) -> Result<Answer> {
        let change = |now: &mut BucketAt| -> Result<()> {
            match &value {
                Some(value) => now.attrs.insert(name.to_owned(), value.clone()),
                None => now.attrs.remove(name),
            };
            Ok(())
        };
        self.gateway.change_bucket(&bucket.info.bucket, change).await?;
        Ok(Answer::new(200))
    }

    async fn unset(&self, bucket: &BucketAt, name: &str) -> Result<Answer> {
        self.set_attr(bucket, name, None).await?;
        Ok(Answer::new(204))
    }

    /// What a browser asks before it sends a request of another site's page.
    pub(crate) fn preflight(&self, asked: &Asked, bucket: &BucketAt) -> Result<Answer> {
        let headers = &asked.head.headers;
        let needed = |name: &str| {
            headers.single(name)?.ok_or_else(|| {
                Error::new(Code::InvalidRequest, format!("A preflight request has {name}."))
            })
        };
        let origin = needed("origin")?;
        let method = needed("access-control-request-method")?;
        let asks = headers.joined("access-control-request-headers");
        let names: Vec<&str> = asks.split(',').collect();
        let rules = stored_cors(&bucket.attrs).unwrap_or_default();
        let rule = rules.iter().find(|rule| rule.allows(origin, method, &names));
        let Some(rule) = rule else {
            return Err(Error::new(Code::AccessDenied, "No CORS rule of the bucket allows this."));
        };
        Ok(self
            .allowed(Answer::new(200), rule, origin)
            .header("Access-Control-Allow-Methods", method)
            .maybe("Access-Control-Allow-Headers", Some(asks).filter(|a| !a.is_empty()))
            .maybe("Access-Control-Max-Age", rule.max_age_s.map(|s| s.to_string())))
    }

    fn allowed(&self, answer: Answer, rule: &cors::Rule, origin: &str) -> Answer {
        let who = if rule.is_for_all() { "*" } else { origin };
        let exposed = rule.expose.join(",");
        answer
            .header("Access-Control-Allow-Origin", who)
            .header("Vary", "Origin")
            .maybe("Access-Control-Expose-Headers", Some(exposed).filter(|e| !e.is_empty()))
    }

    /// Adds what a page of another site needs to see of an answer.
    pub(crate) fn cors_headers(&self, asked: &Asked, bucket: &BucketAt, answer: Answer) -> Answer {
        let Some(origin) = asked.head.headers.get("origin") else { return answer };
        let rules = stored_cors(&bucket.attrs).unwrap_or_default();
        let method = asked.head.method.name();
        match rules.iter().find(|rule| rule.allows(origin, method, &[])) {
            Some(rule) => self.allowed(answer, rule, origin),
            None => answer,
        }
    }

    /// Takes a new object's lock from its headers.
    pub(crate) fn lock_of_headers(
        &self,
        bucket: &BucketAt,
        headers: &Headers,
        attrs: &mut Attrs,
    ) -> Result<()> {
        let mode = headers.single("x-amz-object-lock-mode")?;
        let until = headers.single("x-amz-object-lock-retain-until-date")?;
        let held = headers.single("x-amz-object-lock-legal-hold")?;
        if mode.is_none() && until.is_none() {
            let rule = bucket.info.lock.as_ref().and_then(|lock| lock.rule.as_ref());
            if let Some(rule) = rule {
                let days = i64::from(rule.days) + 365 * i64::from(rule.years);
                let until = Time(now().0 + days * DAY_S);
                let mode = config::LockMode::parse(&rule.mode)?;
                let retention = config::Retention { mode, until };
                attrs.insert("object-retention".into(), stored_retention(&retention));
            }
            if held.is_none() {
                return Ok(());
            }
        }
        self.need_lock(bucket)?;
        match (mode, until) {
            (Some(mode), Some(until)) => {
                let mode = config::LockMode::parse(mode)?;
                let until = Time::parse_iso(until).or_else(|| Time::parse_http(until));
                let until = until.filter(|until| *until > now()).ok_or_else(|| {
                    Error::new(Code::InvalidArgument, "A retention ends at a date to come.")
                })?;
                let retention = config::Retention { mode, until };
                attrs.insert("object-retention".into(), stored_retention(&retention));
            }
            (None, None) => {}
            _ => {
                let text = "A lock has both a mode and a date.";
                return Err(Error::new(Code::InvalidArgument, text));
            }
        }
        if let Some(held) = held {
            if !["ON", "OFF"].contains(&held) {
                return Err(Error::new(Code::InvalidArgument, "A legal hold is ON or OFF."));
            }
            attrs.insert("object-legal-hold".into(), LegalHold(held.into()).to_bytes());
        }
        Ok(())
    }

    fn need_lock(&self, bucket: &BucketAt) -> Result<()> {
        if bucket.info.flags & bucket_flags::OBJECT_LOCK == 0 {
            return Err(Error::new(Code::InvalidRequest, "The bucket has no object lock."));
        }
        Ok(())
    }

    /// Whether a sender may end a governance retention.
    fn may_bypass(&self, asked: &Asked, bucket: &BucketAt) -> bool {
        let header = asked.head.headers.get("x-amz-bypass-governance-retention");
        header.is_some_and(|v| v.eq_ignore_ascii_case("true")) && asked.owns_alone(bucket)
    }

    /// Refuses the removal of what is locked.
    pub(crate) fn check_unlocked(
        &self,
        asked: &Asked,
        bucket: &BucketAt,
        object: &ObjectAt,
    ) -> Result<()> {
        let locked = |text: &str| Err(Error::new(Code::AccessDenied, text));
        if object.attrs.contains_key("object-legal-hold") && hold(object).as_deref() != Some("OFF")
        {
            return locked("The object is under legal hold.");
        }
        if !object.attrs.contains_key("object-retention") {
            return Ok(());
        }
        let Some(lock) = retention(object) else {
            return locked("The object's lock cannot be read.");
        };
        if lock.until_ns <= rt::now().wall_ns {
            return Ok(());
        }
        if lock.mode == "GOVERNANCE" && self.may_bypass(asked, bucket) {
            return Ok(());
        }
        locked("The object is locked until its retention ends.")
    }

    pub(crate) async fn lock_of_object(
        &self,
        asked: &Asked,
        bucket: &BucketAt,
        object: &ObjectAt,
        body: Received,
    ) -> Result<Answer> {
        self.need_lock(bucket)?;
        let none =
            || Error::new(Code::ObjectLockConfigurationNotFoundError, "The object has none.");
        match asked.operation {
            Op::GetObjectRetention => {
                let lock = retention(object).ok_or_else(none)?;
                let mode = config::LockMode::parse(&lock.mode)?;
                let until = Time(i64::try_from(lock.until_ns / 1_000_000_000).unwrap_or(i64::MAX));
                Ok(Answer::xml(config::Retention { mode, until }.to_xml()))
            }
            Op::PutObjectRetention => {
                let new = config::Retention::parse(&self.document(asked, body).await?)?;
                if new.until <= now() {
                    let text = "A retention ends at a date to come.";
                    return Err(Error::new(Code::InvalidArgument, text));
                }
                if let Some(old) = retention(object).filter(|l| l.until_ns > rt::now().wall_ns) {
                    let until =
                        u64::try_from(new.until.0).unwrap_or(0).saturating_mul(1_000_000_000);
                    let weaker = until < old.until_ns || new.mode.name() != old.mode;
                    let free = old.mode == "GOVERNANCE" && self.may_bypass(asked, bucket);
                    if weaker && !free {
                        let text = "The object is locked until its retention ends.";
                        return Err(Error::new(Code::AccessDenied, text));
                    }
                }
                let set = [("object-retention".to_owned(), stored_retention(&new))].into();
                self.gateway.change_attrs(bucket, object, set, &[]).await?;
                Ok(Answer::new(200))
            }
            Op::GetObjectLegalHold => {
                let on = hold(object).ok_or_else(none)? == "ON";
                Ok(Answer::xml(config::legal_hold_to_xml(on)))
            }
            Op::PutObjectLegalHold => {
                let on = config::legal_hold(&self.document(asked, body).await?)?;
                let text = if on { "ON" } else { "OFF" };
                let value = LegalHold(text.into()).to_bytes();
                let set = [("object-legal-hold".to_owned(), value)].into();
                self.gateway.change_attrs(bucket, object, set, &[]).await?;
                Ok(Answer::new(200))
            }
            _ => Err(Code::NotImplemented.into()),
        }
    }
}
