//! Logins, and who sent a request.

use rgw_core::formats::{Owner, UserInfo};
use rgw_core::gateway::attr_text;
use rgw_core::meta::{Attrs, BucketAt};
use rgw_proto::authorize::{ALL, Sender};
use rgw_proto::name::BucketName;
use rgw_proto::operation::Operation;
use rgw_proto::request::{Head, Method, Target};
use rgw_proto::swift::request::{Call, Claim, Subject};
use rgw_proto::swift::temp_url::{Signed, TempUrl};
use rgw_proto::swift::token::{self, Token};
use rgw_proto::time::Time;
use rgw_proto::{Code, Error, Result, uri};

use super::Dialect;
use crate::answer::Answer;
use crate::record;
use crate::request::{Asked, Came, account_of, check_mask, identity_of, now, ratelimit_of};
use crate::server::{Server, not_suspended};

/// Attributes of a container that sign temporary URLs.
pub(super) const URL_KEYS: [&str; 2] = ["x-amz-meta-temp-url-key", "x-amz-meta-temp-url-key-2"];

/// One answer for an unknown name and a wrong key: who asks does not learn which names there are.
fn refused() -> Error {
    Error::new(Code::InvalidToken, "X-Auth-User and X-Auth-Key are a subuser and its secret.")
}

/// A subuser's secret of Swift; `None` where it has none that may be used.
fn secret_of<'a>(user: &'a UserInfo, name: &str) -> Option<&'a str> {
    let key = user.keys.swift.get(name).filter(|key| key.is_active)?;
    Some(key.key.as_str()).filter(|secret| !secret.is_empty())
}

/// What the subuser of a key may do of what its user may: nothing where there is no such subuser.
fn mask_of(user: &UserInfo, name: &str) -> u32 {
    match name.rsplit_once(':') {
        None => ALL,
        Some((_, subuser)) => user.subusers.get(subuser).map_or(0, |s| s.permissions & ALL),
    }
}

/// Who a request is from.
struct Known {
    sender: Sender,
    user: Option<UserInfo>,
    attrs: Attrs,
    tenant: String,
}

impl Server {
    /// Gives a token.
    pub(super) async fn log_in(&self, head: &Head, came: &Came) -> Result<Answer> {
        let settings = self.settings.swift.as_ref().ok_or(Code::MethodNotAllowed)?;
        if head.method != Method::Get {
            return Err(Code::MethodNotAllowed.into());
        }
        came.noted.borrow_mut().operation = "swift_auth_get";
        let needed = |name: &str| head.headers.single(name)?.ok_or_else(refused);
        let (name, sent) = (needed("x-auth-user")?, needed("x-auth-key")?);
        let user = match self.gateway.user_by_swift(name).await {
            Err(error) if error.code == Code::NoSuchUser => return Err(refused()),
            other => other?.0,
        };
        let secret = secret_of(&user, name).ok_or_else(refused)?;
        if !token::is_secret(secret, sent) {
            return Err(refused());
        }
        if user.limits.is_suspended {
            return Err(Code::UserSuspended.into());
        }
        came.noted.borrow_mut().user = user.id.text();
        let mut nonce = [0; token::NONCE_LEN];
        rgw_core::objects::Objects::random(&self.gateway.objects, &mut nonce);
        let ends = Time(now().0.saturating_add(settings.token_s));
        let token = token::seal(name, secret, ends, nonce);
        let base = match settings.url.trim_end_matches('/') {
            "" => {
                let scheme = if came.is_secret { "https" } else { "http" };
                format!("{scheme}://{}", head.headers.get("host").unwrap_or_default())
            }
            url => url.to_owned(),
        };
        let prefix = match settings.paths.prefix.as_str() {
            "" => String::new(),
            prefix => format!("/{prefix}"),
        };
        let account = match settings.paths.account_in_url {
            true => format!("/AUTH_{}", uri::encode(user.id.text().as_bytes(), false)),
            false => String::new(),
        };
        Ok(Answer::new(204)
            .header("X-Storage-Url", format!("{base}{prefix}/v1{account}"))
            .header("X-Storage-Token", &token)
            .header("X-Auth-Token", &token)
            .header("X-Auth-Token-Expires", settings.token_s.to_string())
            .header("Content-Type", "text/plain; charset=utf-8"))
    }

    /// Finds out what a request asks for and who sent it.
    pub(super) async fn swift_asked(
        &self,
        head: Head,
        path: &str,
        came: Came,
    ) -> Result<(Asked, Call)> {
        let settings = self.settings.swift.as_ref().ok_or(Code::MethodNotAllowed)?;
        let call = Call::of(&head, path, &settings.paths)?;
        {
            let mut noted = came.noted.borrow_mut();
            noted.operation = record::name(call.operation);
            noted.bucket = call.container().unwrap_or_default().to_owned();
        }
        let known = match Claim::of(&head)? {
            claim @ Claim::Nobody => {
                let is_preflight = call.operation == Operation::Preflight;
                if matches!(call.subject, Subject::Object(..)) && !is_preflight {
                    let mut noted = came.noted.borrow_mut();
                    noted.swift = noted.swift.map(|d| Dialect { nobody: true, ..d });
                }
                let sender = Sender::nobody(&claim, call.operation)?;
                let tenant = match &call.account {
                    Some(account) => self.tenant_of(account).await?,
                    None => String::new(),
                };
                Known { sender, user: None, attrs: Attrs::new(), tenant }
            }
            Claim::Token(token) => self.of_token(&token, &call).await?,
            Claim::TempUrl(url) => self.of_temp_url(&url, &head, &call, &came).await?,
        };
        let account = match &known.user {
            Some(user) => account_of(&self.gateway, user).await?,
            None => None,
        };
        if let Some(user) = &known.user {
            came.noted.borrow_mut().user = user.id.text();
            check_mask(user, call.operation)?;
        }
        let bucket = |name: &str| -> BucketName { Call::bucket(name, &known.tenant) };
        let target = match &call.subject {
            Subject::Account => Target::Service,
            Subject::Container(name) => Target::Bucket(bucket(name)),
            Subject::Object(name, key) => Target::Object(bucket(name), key.clone()),
        };
        let asked = Asked {
            head,
            target,
            operation: call.operation,
            proof: None,
            sender: known.sender,
            user: known.user,
            account,
            ratelimit: ratelimit_of(&known.attrs)?,
            came,
        };
        Ok((asked, call))
    }

    /// The tenant of the account that a path names.
    async fn tenant_of(&self, account: &str) -> Result<String> {
        let user = self.gateway.user(account).await?;
        let user = user.ok_or_else(|| {
            Error::new(Code::AccessDenied, "The path's account is none of this gateway's.")
        })?;
        Ok(user.id.tenant)
    }

    async fn of_token(&self, token: &Token, call: &Call) -> Result<Known> {
        let bad = || Error::from(Code::InvalidToken);
        let (user, attrs) = match self.gateway.user_by_swift(token.says()).await {
            Err(error) if error.code == Code::NoSuchUser => return Err(bad()),
            other => other?,
        };
        let secret = secret_of(&user, token.says()).ok_or_else(bad)?;
        let ticket = token.verify(secret, now())?;
        if user.limits.is_suspended {
            return Err(Code::UserSuspended.into());
        }
        let mut identity = identity_of(&self.gateway, &user, &attrs).await?;
        identity.mask = mask_of(&user, ticket.name());
        let tenant = match &call.account {
            None => user.id.tenant.clone(),
            Some(account) if *account == user.id.text() => user.id.tenant.clone(),
            // Containers of another account, where their lists allow it. The account itself is not this user's.
            Some(account) => match &call.subject {
                Subject::Account => return Err(other_account()),
                _ if call.operation == Operation::CreateBucket => {
                    return Err(other_account());
                }
                _ => self.tenant_of(account).await?,
            },
        };
        let sender = Sender::of_token(&ticket, call.operation, identity);
        Ok(Known { sender, user: Some(user), attrs, tenant })
    }

    /// Who has a temporary URL: the user who owns the container, for this one request.
    async fn of_temp_url(
        &self,
        url: &TempUrl,
        head: &Head,
        call: &Call,
        came: &Came,
    ) -> Result<Known> {
        let denied = || {
            Error::new(
                Code::AccessDenied,
                "The temporary URL names no object of an account that has keys for such URLs.",
            )
        };
        let Subject::Object(name, key) = &call.subject else { return Err(denied()) };
        let tenant = match &call.account {
            Some(account) => self.tenant_of(account).await?,
            None => String::new(),
        };
        let bucket: BucketAt = match self.gateway.bucket(&tenant, name).await {
            Err(error) if error.code == Code::NoSuchBucket => return Err(denied()),
            other => not_suspended(other?)?,
        };
        let Owner::User(owner) = &bucket.info.owner else { return Err(denied()) };
        let known = self.gateway.known_user(&owner.text()).await?;
        let (user, attrs) = known.ok_or_else(denied)?;
        if user.limits.is_suspended {
            return Err(Code::UserSuspended.into());
        }
        let of_container = URL_KEYS.iter().filter_map(|name| bucket.attrs.get(*name));
        let of_container: Vec<String> = of_container.map(|value| attr_text(value)).collect();
        let of_account = user.keys.temp_urls.values();
        let keys = of_account.chain(&of_container).map(String::as_str);
        let path = uri::decode_text(&head.path, false)?;
        let settings = self.settings.swift.as_ref().ok_or(Code::MethodNotAllowed)?;
        let signed = Signed {
            method: head.method,
            path: &path,
            entry_len: settings.paths.entry_len(),
            object: key.as_str(),
            peer: came.peer.parse().ok(),
        };
        let grant = url.verify(&signed, keys, now())?;
        let refers =
            head.query.has("multipart-manifest") || head.headers.get("x-object-manifest").is_some();
        if refers && !matches!(head.method, Method::Get | Method::Head) {
            let text = "A temporary URL makes and removes no large object: it is for one object.";
            return Err(Error::new(Code::InvalidArgument, text));
        }
        let identity = identity_of(&self.gateway, &user, &attrs).await?;
        let sender = Sender::of_temp_url(&grant, call.operation, identity)?;
        Ok(Known { sender, user: Some(user), attrs, tenant })
    }
}

fn other_account() -> Error {
    Error::new(Code::AccessDenied, "The path's account is another one than the token's.")
}

#[cfg(test)]
mod tests {
    use rgw_core::formats::{AccessKey, SubUser};
    use types::UTime;

    use super::*;

    #[test]
    fn keys_of_subusers() {
        let mut user = UserInfo::default();
        for (subuser, permissions) in [("read", 1), ("full", 15)] {
            let sub = SubUser { name: subuser.into(), permissions };
            user.subusers.insert(subuser.into(), sub);
            let id = format!("main:{subuser}");
            let is_active = subuser == "full";
            let key = AccessKey {
                id: id.clone(),
                key: format!("secret of {subuser}"),
                subuser: subuser.into(),
                is_active,
                created: UTime::ZERO,
            };
            user.keys.swift.insert(id, key);
        }
        assert_eq!(secret_of(&user, "main:full"), Some("secret of full"));
        assert_eq!(secret_of(&user, "main:read"), None, "it is not active");
        assert_eq!(secret_of(&user, "main:none"), None);
        assert_eq!((mask_of(&user, "main:read"), mask_of(&user, "main:full")), (1, ALL));
        assert_eq!(mask_of(&user, "main:gone"), 0);
        assert_eq!(mask_of(&user, "main"), ALL);
    }
}
