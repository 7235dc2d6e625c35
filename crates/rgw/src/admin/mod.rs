//! The Admin Ops API: users, buckets, accounts, usage, limits and metadata over HTTP, in stock's JSON.
//!
//! ```text
//!   Head ── Call (rgw_proto::admin) ── who (signature, user) ── may they (caps) ── call ── JSON
//! ```

mod accounts;
mod buckets;
mod json;
mod metadata;
mod usage;
mod users;

pub(crate) use json::time;

use std::rc::Rc;

use rgw_core::formats::UserId;
use rgw_proto::admin::{self, Call, Manager};
use rgw_proto::request::Head;
use rgw_proto::sig::{Claim, Proof};
use rgw_proto::{Code, Error, Result};
use serde_json::Value;

use crate::answer::Answer;
use crate::body::{Reader, Received};
use crate::request::{Came, Known, authenticate};
use crate::server::Server;

/// Bytes of a document of this API: quotas, the largest, have 1,024 at stock's.
const DOCUMENT_BYTES_MAX: u64 = 4 << 10;

/// A call whose sender may make it.
pub struct Asked {
    head: Head,
    call: Call,
    /// Section of metadata.
    rest: String,
    proof: Proof,
    known: Known,
    manager: Manager,
}

/// 200 with JSON.
fn said(value: &Value) -> Answer {
    let text = value.to_string();
    Answer::new(200).header("Content-Type", "application/json").bytes(text.into())
}

fn done() -> Answer {
    Answer::new(200)
}

/// Reads `[TENANT$]ID`.
fn user_id(text: &str) -> UserId {
    let (tenant, id) = text.split_once('$').unwrap_or(("", text));
    UserId { tenant: tenant.into(), id: id.into(), ns: String::new() }
}

impl Asked {
    /// A parameter; empty where it is missing.
    fn text(&self, name: &str) -> &str {
        self.head.query.get(name).unwrap_or_default()
    }

    /// A parameter that must be there.
    fn need(&self, name: &str) -> Result<&str> {
        match self.text(name) {
            "" => {
                Err(Error::new(Code::InvalidArgument, format!("The parameter {name} is missing.")))
            }
            text => Ok(text),
        }
    }

    /// A parameter that says yes or no; a bare one says yes.
    fn flag(&self, name: &str) -> Result<Option<bool>> {
        if !self.head.query.has(name) {
            return Ok(None);
        }
        match self.text(name) {
            "" | "1" => Ok(Some(true)),
            "0" => Ok(Some(false)),
            text if text.eq_ignore_ascii_case("true") => Ok(Some(true)),
            text if text.eq_ignore_ascii_case("false") => Ok(Some(false)),
            _ => Err(Error::new(Code::InvalidArgument, format!("{name} is true or false."))),
        }
    }

    fn number<T: std::str::FromStr>(&self, name: &str) -> Result<Option<T>> {
        match self.text(name) {
            "" => Ok(None),
            text => text.parse().map(Some).map_err(|_| {
                Error::new(Code::InvalidArgument, format!("{name} is no number that fits."))
            }),
        }
    }

    /// The user that is named: `uid`, and `tenant` where `uid` has none.
    fn uid(&self) -> Result<UserId> {
        let mut id = user_id(self.need("uid")?);
        match self.text("tenant") {
            "" => {}
            tenant if id.tenant.is_empty() || id.tenant == tenant => id.tenant = tenant.to_owned(),
            _ => {
                let text = "tenant is another one than that of uid.";
                return Err(Error::new(Code::InvalidArgument, text));
            }
        }
        Ok(id)
    }
}

impl Server {
    /// Answers a call; `path` is what stands behind the API's entry.
    pub(crate) async fn administer(
        self: &Rc<Self>,
        head: Head,
        path: &str,
        body: Received,
        came: &Came,
    ) -> Result<Answer> {
        let call = admin::Asked::of(path, &head)?;
        came.noted.borrow_mut().operation = name(call.call);
        let claim = Claim::of(&head)?;
        let known = authenticate(self, &head, &claim, came, None).await?;
        let Some((known, proof)) = known else {
            let text = "The Admin API takes signed requests of users with caps only.";
            return Err(Error::new(Code::AccessDenied, text));
        };
        let limits = &known.user.limits;
        let is_admin = known.may_all && (limits.is_admin || limits.is_system);
        let caps = if known.may_all { limits.caps.0.clone() } else { Default::default() };
        let manager = Manager::proven(&proof, &caps, is_admin);
        admin::authorize(&manager, call.call)?;
        let asked = Asked { head, call: call.call, rest: call.rest, proof, known, manager };
        match asked.call {
            Call::UserInfo => self.user_info(&asked).await,
            Call::UserList => self.user_list(&asked).await,
            Call::UserCreate => self.user_create(&asked).await,
            Call::UserModify => self.user_modify(&asked).await,
            Call::UserRemove => self.user_remove(&asked).await,
            Call::SubuserCreate | Call::SubuserModify => self.subuser_set(&asked).await,
            Call::SubuserRemove => self.subuser_remove(&asked).await,
            Call::KeyCreate => self.key_create(&asked).await,
            Call::KeyRemove => self.key_remove(&asked).await,
            Call::CapsAdd | Call::CapsRemove => self.caps(&asked).await,
            Call::QuotaGet => self.user_quota(&asked).await,
            Call::QuotaSet => {
                let document = self.admin_document(&asked, body).await?;
                self.set_user_quota(&asked, document).await
            }
            Call::BucketInfo => self.bucket_info(&asked).await,
            Call::BucketPolicy => self.bucket_policy(&asked).await,
            Call::BucketLink => self.bucket_link(&asked).await,
            Call::BucketUnlink => self.bucket_unlink(&asked).await,
            Call::BucketRemove => self.bucket_remove(&asked).await,
            Call::BucketQuota => {
                let document = self.admin_document(&asked, body).await?;
                self.set_bucket_quota(&asked, document).await
            }
            Call::ObjectRemove => self.object_remove(&asked).await,
            Call::UsageGet => self.usage_get(&asked).await,
            Call::UsageTrim => self.usage_trim(&asked).await,
            Call::RatelimitGet => self.ratelimit_get(&asked).await,
            Call::RatelimitSet => self.ratelimit_set(&asked).await,
            Call::AccountGet => self.account_get(&asked).await,
            Call::AccountCreate => self.account_create(&asked).await,
            Call::AccountModify => self.account_modify(&asked).await,
            Call::AccountRemove => self.account_remove(&asked).await,
            Call::AccountQuota => self.account_quota(&asked).await,
            Call::MetadataGet => self.metadata_get(&asked).await,
            Call::MetadataMyself => self.user_metadata(&asked.known.user.id.text()).await,
            Call::Info => Ok(self.info()),
            Call::Zone => self.zone_info(&asked),
        }
    }

    /// The body of a call, read after it is allowed; `None` where it has none.
    async fn admin_document(&self, asked: &Asked, body: Received) -> Result<Option<Value>> {
        let headers = &asked.head.headers;
        let is_there = headers.get("content-length").is_some_and(|len| len != "0")
            || headers.get("transfer-encoding").is_some();
        if !is_there {
            return Ok(None);
        }
        let reader = Reader::new(body, &asked.head, Some(&asked.proof), DOCUMENT_BYTES_MAX, true)?;
        let bytes = reader.document().await?;
        if bytes.is_empty() {
            return Ok(None);
        }
        let bad = |e| Error::new(Code::InvalidArgument, format!("The body is no JSON: {e}."));
        serde_json::from_slice(&bytes).map(Some).map_err(bad)
    }
}

/// What stock calls a call in its logs.
fn name(call: Call) -> &'static str {
    match call {
        Call::UserInfo => "get_user_info",
        Call::UserList => "list_user",
        Call::UserCreate => "create_user",
        Call::UserModify => "modify_user",
        Call::UserRemove => "remove_user",
        Call::SubuserCreate => "create_subuser",
        Call::SubuserModify => "modify_subuser",
        Call::SubuserRemove => "remove_subuser",
        Call::KeyCreate => "create_access_key",
        Call::KeyRemove => "remove_access_key",
        Call::CapsAdd => "add_user_caps",
        Call::CapsRemove => "remove_user_caps",
        Call::QuotaGet => "get_quota_info",
        Call::QuotaSet => "set_quota_info",
        Call::BucketInfo => "get_bucket_info",
        Call::BucketPolicy => "get_policy",
        Call::BucketLink => "link_bucket",
        Call::BucketUnlink => "unlink_bucket",
        Call::BucketRemove => "remove_bucket",
        Call::BucketQuota => "set_bucket_quota",
        Call::ObjectRemove => "remove_object",
        Call::UsageGet => "get_usage",
        Call::UsageTrim => "trim_usage",
        Call::RatelimitGet => "get_ratelimit_info",
        Call::RatelimitSet => "put_ratelimit_info",
        Call::AccountGet => "get_account_info",
        Call::AccountCreate => "create_account",
        Call::AccountModify => "modify_account",
        Call::AccountRemove => "delete_account",
        Call::AccountQuota => "set_account_quota_info",
        Call::MetadataGet | Call::MetadataMyself => "get_metadata",
        Call::Info => "get_info",
        Call::Zone => "get_zone_config",
    }
}
