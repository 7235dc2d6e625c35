//! Users, their keys, subusers, caps and quotas.

use std::rc::Rc;

use rgw_core::formats::{AccessKey, Owner, Quota, SubUser, UserId, UserInfo, bucket_flags};
use rgw_core::meta::{Attrs, BucketAt};
use rgw_core::quota::Usage;
use rgw_proto::admin::{Call, READ, parse_caps};
use rgw_proto::{Code, Error, Result};
use serde_json::{Value, json};

use super::{Asked, done, json::quota, said};
use crate::answer::Answer;
use crate::server::Server;

/// Ids of one answer.
const LISTED: usize = 1_000;
/// Random letters of a secret.
const SECRET_LEN: usize = 40;

fn invalid(text: impl Into<String>) -> Error {
    Error::new(Code::InvalidArgument, text)
}

/// Reads `read,write,delete`, or `*`.
fn op_mask(text: &str) -> Result<u32> {
    let mut bits = 0;
    for word in text.split([',', ' ']).filter(|word| !word.is_empty()) {
        bits |= match word {
            "read" => 1,
            "write" => 2,
            "delete" => 4,
            "*" => 7,
            _ => return Err(invalid("op-mask is a list of read, write and delete.")),
        };
    }
    Ok(bits)
}

/// Reads the permissions of a subuser.
fn permissions(text: &str) -> Result<u32> {
    Ok(match text.to_ascii_lowercase().as_str() {
        "" => 0,
        "read" => 1,
        "write" => 2,
        "readwrite" | "read-write" => 3,
        "full" | "full-control" => 15,
        _ => return Err(invalid("access is read, write, readwrite or full.")),
    })
}

/// What kind of key is meant.
#[derive(Clone, Copy, PartialEq, Eq)]
enum KeyKind {
    S3,
    Swift,
}

impl Asked {
    fn key_kind(&self, default: KeyKind) -> Result<KeyKind> {
        match self.text("key-type") {
            "" => Ok(default),
            "s3" => Ok(KeyKind::S3),
            "swift" => Ok(KeyKind::Swift),
            _ => Err(invalid("key-type is s3 or swift.")),
        }
    }

    /// The subuser that is named, `[UID:]NAME`, and its user.
    fn subuser(&self) -> Result<(UserId, String)> {
        let text = self.text("subuser");
        let (uid, name) = match text.split_once(':') {
            Some((uid, name)) => (super::user_id(uid), name),
            None => (self.uid()?, text),
        };
        if name.is_empty() || name.len() > 256 || name.contains([':', '/']) {
            return Err(invalid("subuser is NAME or UID:NAME."));
        }
        Ok((uid, name.to_owned()))
    }

    /// Changes a user as the parameters say that creation and modification both have.
    fn shape(&self, server: &Server, user: &mut UserInfo) -> Result<()> {
        let limits = &mut user.limits;
        if let Some(most) = self.number::<i32>("max-buckets")? {
            limits.buckets_max = most.max(-1);
        }
        if self.head.query.has("suspended") {
            limits.is_suspended = self.flag("suspended")?.unwrap_or_default();
        }
        if let Some(is_system) = self.flag("system")? {
            if is_system && !self.known.user.limits.is_system {
                return Err(invalid("Only a system user makes system users."));
            }
            limits.is_system = is_system;
        }
        match self.text("op-mask") {
            "" => {}
            text => limits.op_mask = op_mask(text)?,
        }
        match self.text("default-placement") {
            "" => {}
            name => {
                let class = self.text("default-storage-class");
                let placement = server.gateway.zone.placements.get(name);
                if placement.is_none_or(|at| at.data_of(class).is_none()) {
                    return Err(invalid("The zone has no such placement and storage class."));
                }
                user.placement.default =
                    if class.is_empty() { name.to_owned() } else { format!("{name}/{class}") };
            }
        }
        match self.text("placement-tags") {
            "" => {}
            text => user.placement.tags = text.split(',').map(str::to_owned).collect(),
        }
        match self.text("account-id") {
            "" => {}
            id if user.account_id.is_empty() => user.account_id = id.to_owned(),
            id if id == user.account_id => {}
            _ => return Err(invalid("A user stays in its account.")),
        }
        match self.text("path") {
            "" => {}
            path if path.starts_with('/') && path.ends_with('/') => user.path = path.to_owned(),
            _ => return Err(invalid("path begins and ends with /.")),
        }
        if let Some(is_root) = self.flag("account-root")? {
            if is_root && user.account_id.is_empty() {
                return Err(invalid("account-root wants account-id."));
            }
            user.kind = if is_root { crate::request::ROOT } else { 1 };
        }
        Ok(())
    }
}

impl Server {
    /// The user that is named by `uid`, or by `access-key`.
    async fn named_user(&self, asked: &Asked) -> Result<UserInfo> {
        match (asked.text("uid"), asked.text("access-key")) {
            ("", "") => Err(invalid("The parameter uid is missing.")),
            ("", key) => match self.gateway.user_by_key(key).await {
                Ok((user, _)) => Ok(user),
                Err(error) if error.code == Code::InvalidAccessKeyId => {
                    Err(Code::NoSuchUser.into())
                }
                Err(error) => Err(error),
            },
            _ => {
                let user = self.gateway.user(&asked.uid()?.text()).await?;
                user.ok_or_else(|| Code::NoSuchUser.into())
            }
        }
    }

    pub(super) async fn user_info(&self, asked: &Asked) -> Result<Answer> {
        let user = self.named_user(asked).await?;
        let used = match asked.flag("stats")? {
            Some(true) => Some(self.used_by(&owner_of(&user), &user.id.tenant).await?),
            _ => None,
        };
        let with_keys = asked.manager.has("users", READ);
        Ok(said(&super::json::user(&user, with_keys, used.as_ref())))
    }

    /// What all buckets of an owner hold together.
    async fn used_by(&self, owner: &Owner, tenant: &str) -> Result<Usage> {
        let mut out = Usage::default();
        for (name, _) in self.gateway.buckets_of(owner).await? {
            match self.gateway.bucket(tenant, &name).await {
                Ok(bucket) => out.add(self.gateway.usage(&bucket).await?),
                Err(error) if error.code == Code::NoSuchBucket => {}
                Err(error) => return Err(error),
            }
        }
        Ok(out)
    }

    pub(super) async fn user_list(&self, asked: &Asked) -> Result<Answer> {
        self.list_section(asked, "user", LISTED, true).await
    }

    pub(super) async fn user_create(&self, asked: &Asked) -> Result<Answer> {
        let mut id = super::user_id(asked.need("uid")?);
        match asked.text("tenant") {
            "" => {}
            tenant => id.tenant = tenant.to_owned(),
        }
        let display_name = asked.need("display-name")?;
        let email = asked.text("email");
        if self.gateway.user(&id.text()).await?.is_some() {
            return Err(Code::UserAlreadyExists.into());
        }
        let mut user = UserInfo {
            id,
            display_name: display_name.to_owned(),
            email: email.to_owned(),
            ..self.gateway.new_user()
        };
        asked.shape(self, &mut user)?;
        match asked.text("user-caps") {
            "" => {}
            text => user.limits.caps.0 = parse_caps(text)?,
        }
        let named = !asked.text("access-key").is_empty() || !asked.text("secret-key").is_empty();
        if named || asked.flag("generate-key")?.unwrap_or(true) {
            self.set_key(asked, &mut user, KeyKind::S3, "").await?;
        }
        let user = self.gateway.add_user(user).await?;
        Ok(said(&super::json::user(&user, true, None)))
    }

    /// Adds the key of the parameters to a user, or changes the one that is there; what is missing is made up.
    async fn set_key(
        &self,
        asked: &Asked,
        user: &mut UserInfo,
        kind: KeyKind,
        subuser: &str,
    ) -> Result<()> {
        let text = |name| Some(asked.text(name).to_owned()).filter(|text| !text.is_empty());
        let (id, secret) = (text("access-key"), text("secret-key"));
        let is_active = asked.flag("active")?;
        if kind == KeyKind::Swift {
            if subuser.is_empty() {
                return Err(invalid("A key of Swift belongs to a subuser."));
            }
            let id = format!("{}:{subuser}", user.id.text());
            let made = secret.unwrap_or_else(|| self.gateway.new_secret(SECRET_LEN));
            let created = user.keys.swift.get(&id).map(|key| key.created);
            let key = AccessKey {
                id: id.clone(),
                key: made,
                subuser: subuser.to_owned(),
                is_active: is_active.unwrap_or(true),
                created: created.unwrap_or_else(|| self.gateway.now()),
            };
            user.keys.swift.insert(id, key);
            return Ok(());
        }
        if let Some(known) = id.as_ref().and_then(|id| user.keys.s3.get_mut(id)) {
            if let Some(secret) = secret {
                known.key = secret;
            }
            known.is_active = is_active.unwrap_or(known.is_active);
            return Ok(());
        }
        let mut key = self.gateway.new_key(id, secret).await?;
        key.subuser = subuser.to_owned();
        key.is_active = is_active.unwrap_or(true);
        user.keys.s3.insert(key.id.clone(), key);
        Ok(())
    }

    pub(super) async fn user_modify(&self, asked: &Asked) -> Result<Answer> {
        let uid = asked.uid()?.text();
        let Some(known) = self.gateway.user(&uid).await? else {
            return Err(Code::NoSuchUser.into());
        };
        let named = !asked.text("access-key").is_empty() || !asked.text("secret-key").is_empty();
        let mut keys = known.keys.clone();
        if named || asked.flag("generate-key")?.unwrap_or_default() {
            let mut user = known.clone();
            self.set_key(asked, &mut user, KeyKind::S3, "").await?;
            keys = user.keys;
        }
        let change = |user: &mut UserInfo, _: &mut Attrs| {
            match asked.text("display-name") {
                "" => {}
                name => user.display_name = name.to_owned(),
            }
            if asked.head.query.has("email") {
                user.email = asked.text("email").to_owned();
            }
            for (id, key) in keys.s3.iter().filter(|(id, key)| known.keys.s3.get(*id) != Some(key))
            {
                user.keys.s3.insert(id.clone(), key.clone());
            }
            asked.shape(self, user)
        };
        let user = self.gateway.alter_user(&uid, change).await?;
        if user.limits.is_suspended != known.limits.is_suspended {
            self.suspend_buckets(&user).await?;
        }
        Ok(said(&super::json::user(&user, true, None)))
    }

    /// Has buckets of a user be refused while it is suspended, as stock does.
    async fn suspend_buckets(&self, user: &UserInfo) -> Result<()> {
        if !user.account_id.is_empty() {
            return Ok(());
        }
        for (name, _) in self.gateway.buckets_of(&owner_of(user)).await? {
            let bucket = match self.gateway.bucket_now(&user.id.tenant, &name).await {
                Err(error) if error.code == Code::NoSuchBucket => continue,
                other => other?,
            };
            let change = |now: &mut BucketAt| -> Result<()> {
                match user.limits.is_suspended {
                    true => now.info.flags |= bucket_flags::SUSPENDED,
                    false => now.info.flags &= !bucket_flags::SUSPENDED,
                }
                Ok(())
            };
            self.gateway.change_bucket(&bucket.info.bucket, change).await?;
        }
        Ok(())
    }

    pub(super) async fn user_remove(self: &Rc<Self>, asked: &Asked) -> Result<Answer> {
        let id = asked.uid()?;
        let Some(user) = self.gateway.user(&id.text()).await? else {
            return Err(Code::NoSuchUser.into());
        };
        if asked.flag("purge-data")?.unwrap_or_default() && user.account_id.is_empty() {
            for (name, _) in self.gateway.buckets_of(&owner_of(&user)).await? {
                let bucket = match self.gateway.bucket_now(&id.tenant, &name).await {
                    Err(error) if error.code == Code::NoSuchBucket => continue,
                    other => other?,
                };
                self.purge(&bucket).await?;
                self.delete_bucket(&bucket).await?;
            }
        }
        self.gateway.remove_user(&id.text()).await?;
        Ok(done())
    }

    pub(super) async fn subuser_set(&self, asked: &Asked) -> Result<Answer> {
        let (id, name) = asked.subuser()?;
        let is_new = asked.call == Call::SubuserCreate;
        let bits = permissions(asked.text("access"))?;
        let kind = asked.key_kind(KeyKind::Swift)?;
        let flag = |name| asked.flag(name).map(Option::unwrap_or_default);
        let with_key = !asked.text("secret-key").is_empty()
            || !asked.text("access-key").is_empty()
            || flag("generate-secret")?
            || flag("gen-access-key")?;
        let Some(known) = self.gateway.user(&id.text()).await? else {
            return Err(Code::NoSuchUser.into());
        };
        match (known.subusers.contains_key(&name), is_new) {
            (true, true) => {
                let text = "The user has a subuser of this name.";
                return Err(Error::new(Code::SubUserExists, text));
            }
            (false, false) => return Err(Code::NoSuchSubUser.into()),
            _ => {}
        }
        let mut made = known.clone();
        if with_key {
            self.set_key(asked, &mut made, kind, &name).await?;
        }
        let change = |user: &mut UserInfo, _: &mut Attrs| {
            let sub = user.subusers.entry(name.clone());
            let sub = sub.or_insert_with(|| SubUser { name: name.clone(), permissions: 0 });
            if is_new || !asked.text("access").is_empty() {
                sub.permissions = bits;
            }
            user.keys.s3.extend(made.keys.s3.clone());
            user.keys.swift.extend(made.keys.swift.clone());
            Ok(())
        };
        let user = self.gateway.alter_user(&id.text(), change).await?;
        Ok(said(&super::json::subusers(&user)))
    }

    pub(super) async fn subuser_remove(&self, asked: &Asked) -> Result<Answer> {
        let (id, name) = asked.subuser()?;
        let purge = asked.flag("purge-keys")?.unwrap_or(true);
        let change = |user: &mut UserInfo, _: &mut Attrs| {
            if user.subusers.remove(&name).is_none() {
                return Err(Code::NoSuchSubUser.into());
            }
            if purge {
                user.keys.s3.retain(|_, key| key.subuser != name);
                user.keys.swift.retain(|_, key| key.subuser != name);
            }
            Ok(())
        };
        self.gateway.alter_user(&id.text(), change).await?;
        Ok(done())
    }

    pub(super) async fn key_create(&self, asked: &Asked) -> Result<Answer> {
        let (id, subuser) = match asked.text("subuser") {
            "" => (asked.uid()?, String::new()),
            _ => asked.subuser()?,
        };
        let default = if subuser.is_empty() { KeyKind::S3 } else { KeyKind::Swift };
        let kind = asked.key_kind(default)?;
        let Some(known) = self.gateway.user(&id.text()).await? else {
            return Err(Code::NoSuchUser.into());
        };
        if !subuser.is_empty() && !known.subusers.contains_key(&subuser) {
            return Err(Code::NoSuchSubUser.into());
        }
        let lacks = asked.text("access-key").is_empty() || asked.text("secret-key").is_empty();
        if lacks && !asked.flag("generate-key")?.unwrap_or(true) {
            return Err(invalid("Without generate-key both access-key and secret-key are needed."));
        }
        let mut made = known.clone();
        self.set_key(asked, &mut made, kind, &subuser).await?;
        let changed = |id: &String, key: &AccessKey, of: &UserInfo| {
            of.keys.s3.get(id) != Some(key) && of.keys.swift.get(id) != Some(key)
        };
        let change = |user: &mut UserInfo, _: &mut Attrs| {
            for (id, key) in made.keys.s3.iter().filter(|(id, key)| changed(id, key, &known)) {
                user.keys.s3.insert(id.clone(), key.clone());
            }
            for (id, key) in made.keys.swift.iter().filter(|(id, key)| changed(id, key, &known)) {
                user.keys.swift.insert(id.clone(), key.clone());
            }
            Ok(())
        };
        let user = self.gateway.alter_user(&id.text(), change).await?;
        Ok(said(&match kind {
            KeyKind::S3 => super::json::keys(&user, false),
            KeyKind::Swift => super::json::swift_keys(&user, false),
        }))
    }

    pub(super) async fn key_remove(&self, asked: &Asked) -> Result<Answer> {
        let default = match (asked.text("subuser"), asked.text("access-key")) {
            (sub, "") if !sub.is_empty() => KeyKind::Swift,
            _ => KeyKind::S3,
        };
        let kind = asked.key_kind(default)?;
        if kind == KeyKind::Swift {
            let (id, name) = asked.subuser()?;
            let change = |user: &mut UserInfo, _: &mut Attrs| match user
                .keys
                .swift
                .remove(&format!("{}:{name}", id.text()))
            {
                Some(_) => Ok(()),
                None => Err(Code::InvalidAccessKeyId.into()),
            };
            self.gateway.alter_user(&id.text(), change).await?;
            return Ok(done());
        }
        let key = asked.need("access-key")?;
        let uid = match asked.text("uid") {
            "" => match self.gateway.user_by_key(key).await {
                Ok((user, _)) => user.id.text(),
                Err(error) if error.code == Code::InvalidAccessKeyId => {
                    return Err(invalid("No user has this key: name uid, or another key."));
                }
                Err(error) => return Err(error),
            },
            _ => asked.uid()?.text(),
        };
        self.gateway.remove_key(&uid, key).await?;
        Ok(done())
    }

    pub(super) async fn caps(&self, asked: &Asked) -> Result<Answer> {
        let uid = asked.uid()?.text();
        if self.gateway.user(&uid).await?.is_none() {
            return Err(Code::NoSuchUser.into());
        }
        let caps = parse_caps(asked.text("user-caps"))?;
        let change = |user: &mut UserInfo, _: &mut Attrs| {
            let all = &mut user.limits.caps.0;
            for (name, bits) in &caps {
                match asked.call {
                    Call::CapsAdd => *all.entry(name.clone()).or_default() |= bits,
                    _ => {
                        let left = all.get(name).copied().unwrap_or_default() & !bits;
                        match left {
                            0 => drop(all.remove(name)),
                            left => drop(all.insert(name.clone(), left)),
                        }
                    }
                }
            }
            Ok(())
        };
        let user = self.gateway.alter_user(&uid, change).await?;
        Ok(said(&super::json::caps(&user.limits.caps)))
    }

    pub(super) async fn user_quota(&self, asked: &Asked) -> Result<Answer> {
        let user = self.gateway.user(&asked.uid()?.text()).await?;
        let limits = user.ok_or_else(|| Error::from(Code::NoSuchUser))?.limits;
        let (bucket, user) = (quota(&limits.bucket_quota), quota(&limits.user_quota));
        Ok(said(&match asked.text("quota-type") {
            "" => json!({"bucket_quota": bucket, "user_quota": user}),
            "user" => user,
            "bucket" => bucket,
            _ => return Err(invalid("quota-type is user or bucket.")),
        }))
    }

    pub(super) async fn set_user_quota(
        &self,
        asked: &Asked,
        document: Option<Value>,
    ) -> Result<Answer> {
        let uid = asked.uid()?.text();
        let kind = asked.text("quota-type");
        if !["", "user", "bucket"].contains(&kind) {
            return Err(invalid("quota-type is user or bucket."));
        }
        let change = |user: &mut UserInfo, _: &mut Attrs| {
            let limits = &mut user.limits;
            match (kind, &document) {
                ("", Some(document)) => {
                    limits.user_quota = quota_of(document.get("user_quota"))?;
                    limits.bucket_quota = quota_of(document.get("bucket_quota"))?;
                }
                ("", None) => return Err(invalid("quota-type is needed where no body is sent.")),
                (kind, document) => {
                    let of = match kind {
                        "user" => &mut limits.user_quota,
                        _ => &mut limits.bucket_quota,
                    };
                    *of = asked.quota(document.as_ref(), *of)?;
                }
            }
            Ok(())
        };
        self.gateway.alter_user(&uid, change).await?;
        Ok(done())
    }
}

/// Reads a quota from JSON; what is missing is 0 or off, as at stock's.
fn quota_of(value: Option<&Value>) -> Result<Quota> {
    let Some(Value::Object(value)) = value else {
        return Err(invalid("The body is a quota, or has user_quota and bucket_quota."));
    };
    let number = |name: &str| -> Result<Option<i64>> {
        match value.get(name) {
            None => Ok(None),
            Some(value) => {
                let text = value.as_str().and_then(|text| text.parse().ok());
                let number = value.as_i64().or(text);
                number.map(Some).ok_or_else(|| invalid(format!("{name} is no number.")))
            }
        }
    };
    let flag = |name: &str| match value.get(name) {
        Some(Value::Bool(flag)) => *flag,
        Some(Value::String(text)) => text == "true",
        _ => false,
    };
    let kib = number("max_size_kb")?.map(|kib| kib.saturating_mul(1_024));
    Ok(Quota {
        bytes_max: number("max_size")?.or(kib).unwrap_or_default(),
        objects_max: number("max_objects")?.unwrap_or_default(),
        is_enabled: flag("enabled"),
        on_raw: flag("check_on_raw"),
    })
}

impl Asked {
    /// A quota from the body, or from parameters over the one that is there.
    pub(super) fn quota(&self, document: Option<&Value>, old: Quota) -> Result<Quota> {
        if document.is_some() {
            return quota_of(document);
        }
        let kib = self.number::<i64>("max-size-kb")?.map(|kib| kib.saturating_mul(1_024));
        let bytes = kib.or(self.number("max-size")?);
        Ok(Quota {
            bytes_max: bytes.unwrap_or(old.bytes_max),
            objects_max: self.number("max-objects")?.unwrap_or(old.objects_max),
            is_enabled: self.flag("enabled")?.unwrap_or(old.is_enabled),
            on_raw: old.on_raw,
        })
    }
}

/// Who owns a user's buckets.
fn owner_of(user: &UserInfo) -> Owner {
    match user.account_id.as_str() {
        "" => Owner::User(user.id.clone()),
        id => Owner::Account(id.to_owned()),
    }
}
