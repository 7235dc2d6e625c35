//! Accounts, and limits of rates.

use rgw_core::formats::AccountInfo;
use rgw_core::meta::{Attrs, BucketAt};
use rgw_core::ratelimit::Ratelimit;
use rgw_proto::{Code, Error, Result};
use serde_json::json;
use types::{Bytes, Denc};

use super::{Asked, done, said};
use crate::answer::Answer;
use crate::request::{RATELIMIT, ratelimit_of};
use crate::server::Server;

fn no_scope() -> Error {
    let text =
        "ratelimit-scope is user (with uid), bucket (with bucket) or, with global=true, anon.";
    Error::new(Code::InvalidArgument, text)
}

impl Asked {
    /// The bounds of an account, as the parameters say.
    fn shape_account(&self, account: &mut AccountInfo) -> Result<()> {
        for (name, to) in [("name", &mut account.name), ("email", &mut account.email)] {
            if self.head.query.has(name) {
                let text = self.text(name);
                if text.len() > 1_024 || text.chars().any(|c| c.is_control() || c == '$') {
                    let text = format!("{name} has at most 1024 printable bytes without $.");
                    return Err(Error::new(Code::InvalidArgument, text));
                }
                *to = text.to_owned();
            }
        }
        let [users, roles, groups] = &mut account.users_roles_groups_max;
        for (name, to) in [
            ("max-users", users),
            ("max-roles", roles),
            ("max-groups", groups),
            ("max-buckets", &mut account.buckets_max),
            ("max-access-keys", &mut account.keys_max),
        ] {
            if let Some(most) = self.number(name)? {
                *to = most;
            }
        }
        Ok(())
    }

    fn ratelimit(&self, old: Ratelimit) -> Result<Ratelimit> {
        let number = |name: &str, old: i64| -> Result<i64> {
            let number = self.number::<i64>(name)?.unwrap_or(old);
            match number {
                0.. => Ok(number),
                _ => Err(Error::new(Code::InvalidArgument, format!("{name} is not below 0."))),
            }
        };
        Ok(Ratelimit {
            write_ops: number("max-write-ops", old.write_ops)?,
            read_ops: number("max-read-ops", old.read_ops)?,
            write_bytes: number("max-write-bytes", old.write_bytes)?,
            read_bytes: number("max-read-bytes", old.read_bytes)?,
            is_enabled: self.flag("enabled")?.unwrap_or(old.is_enabled),
        })
    }
}

impl Server {
    /// The id of the account that is named by `id` or `name`.
    async fn named_account(&self, asked: &Asked) -> Result<String> {
        match (asked.text("id"), asked.text("name")) {
            ("", "") => Err(Error::new(Code::InvalidArgument, "The parameter id is missing.")),
            ("", name) => {
                let found = self.gateway.account_by_name(asked.text("tenant"), name).await?;
                found.ok_or_else(|| Error::new(Code::NoSuchKey, "No account has this name."))
            }
            (id, _) => Ok(id.to_owned()),
        }
    }

    pub(super) async fn account_get(&self, asked: &Asked) -> Result<Answer> {
        let id = self.named_account(asked).await?;
        let account = self.gateway.account_now(&id).await?;
        let account = account.ok_or_else(|| Error::new(Code::NoSuchKey, "No such account."))?;
        Ok(said(&super::json::account(&account)))
    }

    pub(super) async fn account_create(&self, asked: &Asked) -> Result<Answer> {
        let mut account = self.gateway.new_account();
        if !asked.text("id").is_empty() {
            account.id = asked.text("id").to_owned();
        }
        account.tenant = asked.text("tenant").to_owned();
        asked.shape_account(&mut account)?;
        let account = self.gateway.make_account(account).await?;
        Ok(said(&super::json::account(&account)))
    }

    pub(super) async fn account_modify(&self, asked: &Asked) -> Result<Answer> {
        let id = asked.need("id")?;
        let change = |account: &mut AccountInfo| asked.shape_account(account);
        Ok(said(&super::json::account(&self.gateway.alter_account(id, change).await?)))
    }

    pub(super) async fn account_remove(&self, asked: &Asked) -> Result<Answer> {
        let id = self.named_account(asked).await?;
        self.gateway.remove_account(&id).await?;
        Ok(done())
    }

    pub(super) async fn account_quota(&self, asked: &Asked) -> Result<Answer> {
        let id = asked.need("id")?;
        let change = |account: &mut AccountInfo| {
            let of = match asked.text("quota-type") {
                "account" => &mut account.quota,
                "bucket" => &mut account.bucket_quota,
                _ => {
                    let text = "quota-type is account or bucket.";
                    return Err(Error::new(Code::InvalidArgument, text));
                }
            };
            *of = asked.quota(None, *of)?;
            Ok(())
        };
        Ok(said(&super::json::account(&self.gateway.alter_account(id, change).await?)))
    }

    pub(super) async fn ratelimit_get(&self, asked: &Asked) -> Result<Answer> {
        let value = super::json::ratelimit;
        if asked.flag("global")?.unwrap_or_default() {
            let config = self.gateway.period_config().await?;
            return Ok(said(&json!({
                "bucket_ratelimit": value(&config.buckets),
                "user_ratelimit": value(&config.users),
                "anonymous_ratelimit": value(&config.anonymous),
            })));
        }
        match asked.text("ratelimit-scope") {
            "user" => {
                let found = self.gateway.known_user(&asked.uid()?.text()).await?;
                let (_, attrs) =
                    found.ok_or_else(|| Error::new(Code::NoSuchKey, "No such user."))?;
                let limit = ratelimit_of(&attrs)?.unwrap_or_default();
                Ok(said(&json!({"user_ratelimit": value(&limit)})))
            }
            "bucket" => {
                let bucket = self.limited_bucket(asked).await?;
                let limit = ratelimit_of(&bucket.attrs)?.unwrap_or_default();
                Ok(said(&json!({"bucket_ratelimit": value(&limit)})))
            }
            _ => Err(no_scope()),
        }
    }

    async fn limited_bucket(&self, asked: &Asked) -> Result<BucketAt> {
        match self.gateway.bucket_now(asked.text("tenant"), asked.need("bucket")?).await {
            Err(error) if error.code == Code::NoSuchBucket => Err(Code::NoSuchKey.into()),
            other => other,
        }
    }

    pub(super) async fn ratelimit_set(&self, asked: &Asked) -> Result<Answer> {
        let scope = asked.text("ratelimit-scope");
        if asked.flag("global")?.unwrap_or_default() {
            let mut config = self.gateway.period_config().await?;
            let of = match scope {
                "user" => &mut config.users,
                "bucket" => &mut config.buckets,
                "anon" => &mut config.anonymous,
                _ => return Err(no_scope()),
            };
            *of = asked.ratelimit(*of)?;
            self.gateway.set_period_config(&config).await?;
            self.limits.replace(config);
            return Ok(done());
        }
        let changed = |attrs: &mut Attrs| -> Result<()> {
            let limit = asked.ratelimit(ratelimit_of(attrs)?.unwrap_or_default())?;
            let bytes: Bytes = limit.to_bytes();
            attrs.insert(RATELIMIT.to_owned(), bytes);
            Ok(())
        };
        match scope {
            "user" => {
                let change = |_: &mut _, attrs: &mut Attrs| changed(attrs);
                match self.gateway.alter_user(&asked.uid()?.text(), change).await {
                    Err(error) if error.code == Code::NoSuchUser => {
                        Err(Error::new(Code::NoSuchKey, "No such user."))
                    }
                    other => other.map(|_| done()),
                }
            }
            "bucket" => {
                let bucket = self.limited_bucket(asked).await?;
                let change = |now: &mut BucketAt| changed(&mut now.attrs);
                self.gateway.change_bucket(&bucket.info.bucket, change).await?;
                Ok(done())
            }
            _ => Err(no_scope()),
        }
    }
}
