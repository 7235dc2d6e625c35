//! Users of accounts, and their keys.

use rgw_core::accounts::Kind;
use rgw_core::formats::{AccessKey, UserId, UserInfo};
use rgw_core::meta::Attrs;
use rgw_core::objects::Objects;
use rgw_proto::xml::Writer;
use rgw_proto::{Code, Error, Result};

use super::Asked;
use super::policies::{Held, USER};
use crate::admin::time;
use crate::answer::Answer;
use crate::request::ROOT;
use crate::server::Server;

pub fn none() -> Error {
    Error::new(Code::NoSuchEntity, "No user of this name is in the account or tenant.")
}

/// A user's ARN.
pub fn arn(user: &UserInfo) -> String {
    let path = if user.path.is_empty() { "/" } else { &user.path };
    match user.account_id.as_str() {
        "" => format!("arn:aws:iam::{}:user/{}", user.id.tenant, user.id.id),
        id if user.kind == ROOT => format!("arn:aws:iam::{id}:root"),
        id => format!("arn:aws:iam::{id}:user{path}{}", user.display_name),
    }
}

pub fn write(w: &mut Writer, user: &UserInfo) {
    let path = if user.path.is_empty() { "/" } else { &user.path };
    w.text("Path", path).text("UserName", &user.display_name).text("UserId", &user.id.id);
    w.text("Arn", &arn(user)).text("CreateDate", &time(user.created));
}

fn write_key(w: &mut Writer, user: &UserInfo, key: &AccessKey) {
    w.text("UserName", &user.display_name).text("AccessKeyId", &key.id);
    w.text("Status", if key.is_active { "Active" } else { "Inactive" });
    w.text("CreateDate", &time(key.created));
}

impl Server {
    /// The user of a name: in an account by the name for people, else by id in the asker's tenant.
    pub(super) async fn named(&self, asked: &Asked<'_>, name: &str) -> Result<Option<UserInfo>> {
        let realm = asked.realm();
        if realm.account.is_empty() {
            let id = UserId { tenant: realm.tenant.into(), id: name.into(), ns: String::new() };
            let user = self.gateway.user(&id.text()).await?;
            return Ok(user.filter(|user| user.account_id.is_empty()));
        }
        match self.gateway.member(realm.account, Kind::Users, name).await? {
            // Root users are hidden, as at stock's: who may make keys of users must not make one of the root's.
            Some(member) => {
                let user = self.gateway.user(&member.id).await?;
                Ok(user.filter(|user| user.kind != ROOT))
            }
            None => Ok(None),
        }
    }

    pub(super) async fn on_user(&self, asked: &Asked<'_>) -> Result<Answer> {
        match asked.call.action {
            "CreateUser" => return self.create_user(asked).await,
            "ListUsers" => return self.list_users(asked).await,
            _ => {}
        }
        let name = asked.call.text("UserName");
        let found = if name.is_empty() {
            let is_own = asked.known.may_all && asked.call.action != "UpdateUser";
            let own = is_own && asked.call.action != "DeleteUser";
            own.then(|| asked.known.user.clone())
        } else {
            self.named(asked, asked.name("UserName")?).await?
        };
        let resource = match &found {
            Some(user) => arn(user),
            None => format!("arn:aws:iam::{}:user/{name}", asked.account()),
        };
        asked.allow(&resource)?;
        let user = found.ok_or_else(none)?;
        match asked.call.action {
            "GetUser" => {
                let mut out = asked.result();
                out.0.open("User");
                write(&mut out.0, &user);
                out.0.close("User");
                Ok(out.answer(asked))
            }
            "UpdateUser" => self.update_user(asked, &user).await,
            "DeleteUser" => self.delete_user(asked, &user).await,
            _ => self.on_key(asked, &user).await,
        }
    }

    async fn create_user(&self, asked: &Asked<'_>) -> Result<Answer> {
        let (name, path) = (asked.name("UserName")?, asked.path("Path")?);
        asked.allow(&format!("arn:aws:iam::{}:user{path}{name}", asked.account()))?;
        let mut random = [0; 16];
        self.gateway.objects.random(&mut random);
        let id = types::Uuid::from_random(random).to_string();
        let user = UserInfo {
            id: UserId { tenant: asked.known.user.id.tenant.clone(), id, ns: String::new() },
            display_name: name.to_owned(),
            path,
            account_id: asked.known.user.account_id.clone(),
            ..self.gateway.new_user()
        };
        let user = self.gateway.add_user(user).await?;
        let mut out = asked.result();
        out.0.open("User");
        write(&mut out.0, &user);
        out.0.close("User");
        Ok(out.answer(asked))
    }

    async fn list_users(&self, asked: &Asked<'_>) -> Result<Answer> {
        asked.allow(&format!("arn:aws:iam::{}:user/", asked.account()))?;
        let (marker, most) = asked.page()?;
        let (account, path) = (asked.realm().account, asked.call.text("PathPrefix"));
        let (all, next) = self.gateway.members(account, Kind::Users, path, marker, most).await?;
        let mut out = asked.result();
        out.0.open("Users");
        for member in all {
            // Root users are the account itself.
            let user = self.gateway.user(&member.id).await?.filter(|user| user.kind != ROOT);
            if let Some(user) = user {
                out.0.open("member");
                write(&mut out.0, &user);
                out.0.close("member");
            }
        }
        out.0.close("Users");
        out.more(next.as_deref());
        Ok(out.answer(asked))
    }

    async fn update_user(&self, asked: &Asked<'_>, user: &UserInfo) -> Result<Answer> {
        let name = match asked.call.text("NewUserName") {
            "" => None,
            _ => Some(asked.name("NewUserName")?.to_owned()),
        };
        let path = match asked.call.text("NewPath") {
            "" => None,
            _ => Some(asked.path("NewPath")?),
        };
        let change = |user: &mut UserInfo, _: &mut Attrs| -> Result<()> {
            user.display_name = name.clone().unwrap_or_else(|| user.display_name.clone());
            user.path = path.clone().unwrap_or_else(|| user.path.clone());
            Ok(())
        };
        let user = self.gateway.alter_user(&user.id.text(), change).await?;
        let mut out = asked.result();
        out.0.open("User");
        write(&mut out.0, &user);
        out.0.close("User");
        Ok(out.answer(asked))
    }

    async fn delete_user(&self, asked: &Asked<'_>, user: &UserInfo) -> Result<Answer> {
        let attrs = self.gateway.user_record(&user.id.text()).await?.attrs;
        let conflict = |what: &str| {
            let text = format!("The user cannot be deleted until its {what} are removed.");
            Err(Error::new(Code::DeleteConflict, text))
        };
        if !user.keys.s3.is_empty() || !user.keys.swift.is_empty() {
            return conflict("AccessKeys");
        }
        let held = Held::of(&attrs, &USER)?;
        if !held.own.is_empty() || !held.managed.is_empty() {
            return conflict("policies");
        }
        if !user.group_ids.is_empty() {
            return conflict("groups");
        }
        self.gateway.remove_user(&user.id.text()).await?;
        Ok(asked.done())
    }

    async fn on_key(&self, asked: &Asked<'_>, user: &UserInfo) -> Result<Answer> {
        let uid = user.id.text();
        match asked.call.action {
            "ListAccessKeys" => {
                let mut out = asked.result();
                out.0.open("AccessKeyMetadata");
                for key in user.keys.s3.values().filter(|key| key.subuser.is_empty()) {
                    out.0.open("member");
                    write_key(&mut out.0, user, key);
                    out.0.close("member");
                }
                out.0.close("AccessKeyMetadata");
                out.more(None);
                return Ok(out.answer(asked));
            }
            "CreateAccessKey" => {
                let most = asked.known.account.as_ref().map_or(0, |account| account.keys_max);
                let key = self.gateway.new_key(None, None).await?;
                let change = |user: &mut UserInfo, _: &mut Attrs| -> Result<()> {
                    let has = i32::try_from(user.keys.s3.len()).unwrap_or(i32::MAX);
                    if most < 0 || (most > 0 && has >= most) {
                        return Err(Code::LimitExceeded.into());
                    }
                    user.keys.s3.insert(key.id.clone(), key.clone());
                    Ok(())
                };
                let user = self.gateway.alter_user(&uid, change).await?;
                let mut out = asked.result();
                out.0.open("AccessKey");
                write_key(&mut out.0, &user, &key);
                out.0.text("SecretAccessKey", &key.key).close("AccessKey");
                return Ok(out.answer(asked));
            }
            _ => {}
        }
        let id = asked.call.need("AccessKeyId")?;
        let absent = || Error::new(Code::NoSuchEntity, "The user has no such access key.");
        let change = |user: &mut UserInfo, _: &mut Attrs| -> Result<()> {
            if asked.call.action == "DeleteAccessKey" {
                return user.keys.s3.remove(id).map(drop).ok_or_else(absent);
            }
            let key = user.keys.s3.get_mut(id).ok_or_else(absent)?;
            key.is_active = match asked.call.need("Status")? {
                "Active" => true,
                "Inactive" => false,
                _ => {
                    let text = "Status is Active or Inactive.";
                    return Err(Error::new(Code::InvalidArgument, text));
                }
            };
            Ok(())
        };
        self.gateway.alter_user(&uid, change).await?;
        Ok(asked.done())
    }
}
