//! Groups of accounts, their policies, and who is in them.

use rgw_core::formats::UserInfo;
use rgw_core::groups::Group;
use rgw_core::meta::Attrs;
use rgw_proto::policy::Kind;
use rgw_proto::xml::Writer;
use rgw_proto::{Code, Error, Result};

use super::policies::{GROUP, Held, write_attached};
use super::{Asked, POLICIES_MAX};
use crate::answer::Answer;
use crate::server::Server;

/// Groups that a user may be in, as at AWS.
const GROUPS_OF_USER_MAX: usize = 10;

fn none() -> Error {
    Error::new(Code::NoSuchEntity, "No group of this name is in the account.")
}

fn arn(group: &Group) -> String {
    format!("arn:aws:iam::{}:group{}{}", group.account_id, group.path, group.name)
}

fn write(w: &mut Writer, group: &Group) {
    w.text("Path", &group.path).text("GroupName", &group.name);
    w.text("GroupId", &group.id).text("Arn", &arn(group));
}

impl Server {
    pub(super) async fn on_group(&self, asked: &Asked<'_>) -> Result<Answer> {
        match asked.call.action {
            "CreateGroup" => return self.create_group(asked).await,
            "ListGroups" => return self.list_groups(asked).await,
            "ListGroupsForUser" => return self.list_groups_of(asked).await,
            _ => {}
        }
        let name = asked.name("GroupName")?;
        let found = self.gateway.group_by_name(asked.realm().account, name).await?;
        let resource = match &found {
            Some((group, _)) => arn(group),
            None => format!("arn:aws:iam::{}:group/{name}", asked.account()),
        };
        asked.allow(&resource)?;
        let (group, attrs) = found.ok_or_else(none)?;
        let held = Held::of(&attrs, &GROUP)?;
        let mut out = asked.result();
        let w = &mut out.0;
        match asked.call.action {
            "GetGroup" => {
                w.open("Group");
                write(w, &group);
                w.close("Group").open("Users");
                let (marker, most) = asked.page()?;
                let (all, next) = self.gateway.group_users(&group.id, marker, most).await?;
                for member in all {
                    if let Some(user) = self.gateway.user(&member.id).await? {
                        w.open("member");
                        super::users::write(w, &user);
                        w.close("member");
                    }
                }
                w.close("Users");
                out.more(next.as_deref());
            }
            "GetGroupPolicy" => {
                let policy = asked.name("PolicyName")?;
                let text = held.own.get(policy);
                w.text("GroupName", &group.name).text("PolicyName", policy);
                w.text("PolicyDocument", text.ok_or_else(super::policies::none)?);
            }
            "ListGroupPolicies" => {
                w.open("PolicyNames");
                held.own.keys().for_each(|name| _ = w.text("member", name));
                w.close("PolicyNames");
                out.more(None);
            }
            "ListAttachedGroupPolicies" => {
                write_attached(w, &held.managed);
                out.more(None);
            }
            "DeleteGroup" => {
                if !held.own.is_empty() || !held.managed.is_empty() {
                    let text = "The group cannot be deleted until all group policies are removed.";
                    return Err(Error::new(Code::DeleteConflict, text));
                }
                self.gateway.remove_group(&group).await?;
                return Ok(asked.done());
            }
            "AddUserToGroup" | "RemoveUserFromGroup" => return self.enter(asked, &group).await,
            _ => return self.change_group(asked, &group).await,
        }
        Ok(out.answer(asked))
    }

    async fn enter(&self, asked: &Asked<'_>, group: &Group) -> Result<Answer> {
        let user = self.named(asked, asked.name("UserName")?).await?;
        let user = user.ok_or_else(super::users::none)?;
        let change = |user: &mut UserInfo, _: &mut Attrs| -> Result<()> {
            if asked.call.action == "AddUserToGroup" {
                user.group_ids.insert(group.id.clone());
            } else {
                user.group_ids.remove(&group.id);
            }
            match user.group_ids.len() <= GROUPS_OF_USER_MAX {
                true => Ok(()),
                false => Err(Code::LimitExceeded.into()),
            }
        };
        self.gateway.alter_user(&user.id.text(), change).await?;
        Ok(asked.done())
    }

    async fn change_group(&self, asked: &Asked<'_>, group: &Group) -> Result<Answer> {
        let change = |group: &mut Group, attrs: &mut Attrs| -> Result<()> {
            let mut held = Held::of(attrs, &GROUP)?;
            match asked.call.action {
                "UpdateGroup" => {
                    if !asked.call.text("NewGroupName").is_empty() {
                        group.name = asked.name("NewGroupName")?.to_owned();
                    }
                    if !asked.call.text("NewPath").is_empty() {
                        group.path = asked.path("NewPath")?;
                    }
                }
                "PutGroupPolicy" => {
                    let policy = asked.name("PolicyName")?.to_owned();
                    held.own.insert(policy, asked.document("PolicyDocument", Kind::Identity)?);
                    if held.own.len() > POLICIES_MAX {
                        return Err(Code::LimitExceeded.into());
                    }
                }
                "DeleteGroupPolicy" => {
                    let policy = held.own.remove(asked.name("PolicyName")?);
                    policy.ok_or_else(super::policies::none)?;
                }
                "AttachGroupPolicy" => {
                    let arn = super::roles::managed(asked.call.need("PolicyArn")?)?;
                    held.managed.insert(arn.to_owned());
                }
                _ => {
                    if !held.managed.remove(asked.call.need("PolicyArn")?) {
                        return Err(super::policies::none());
                    }
                }
            }
            held.store(attrs, &GROUP);
            Ok(())
        };
        let group = self.gateway.alter_group(&group.id, change).await?;
        if asked.call.action != "UpdateGroup" {
            return Ok(asked.done());
        }
        let mut out = asked.result();
        out.0.open("Group");
        write(&mut out.0, &group);
        out.0.close("Group");
        Ok(out.answer(asked))
    }

    async fn create_group(&self, asked: &Asked<'_>) -> Result<Answer> {
        let group = Group {
            tenant: asked.known.user.id.tenant.clone(),
            name: asked.name("GroupName")?.to_owned(),
            path: asked.path("Path")?,
            account_id: asked.known.user.account_id.clone(),
            ..Group::default()
        };
        asked.allow(&arn(&group))?;
        let account = asked.known.account.as_ref();
        let most = account.map_or(0, |account| account.users_roles_groups_max[2]);
        let group = self.gateway.make_group(group, most).await?;
        let mut out = asked.result();
        out.0.open("Group");
        write(&mut out.0, &group);
        out.0.close("Group");
        Ok(out.answer(asked))
    }

    async fn list_groups(&self, asked: &Asked<'_>) -> Result<Answer> {
        asked.allow(&format!("arn:aws:iam::{}:group/", asked.account()))?;
        let (marker, most) = asked.page()?;
        let (account, path) = (asked.realm().account, asked.call.text("PathPrefix"));
        let kind = rgw_core::accounts::Kind::Groups;
        let (all, next) = self.gateway.members(account, kind, path, marker, most).await?;
        let ids = all.into_iter().map(|member| member.id);
        self.write_groups(asked, ids, next.as_deref()).await
    }

    async fn list_groups_of(&self, asked: &Asked<'_>) -> Result<Answer> {
        let name = asked.name("UserName")?;
        let found = self.named(asked, name).await?;
        let resource = match &found {
            Some(user) => super::users::arn(user),
            None => format!("arn:aws:iam::{}:user/{name}", asked.account()),
        };
        asked.allow(&resource)?;
        let user = found.ok_or_else(super::users::none)?;
        self.write_groups(asked, user.group_ids.into_iter(), None).await
    }

    async fn write_groups(
        &self,
        asked: &Asked<'_>,
        ids: impl Iterator<Item = String>,
        next: Option<&str>,
    ) -> Result<Answer> {
        let mut out = asked.result();
        out.0.open("Groups");
        for id in ids {
            if let Some((group, _)) = self.gateway.group(&id).await? {
                out.0.open("member");
                write(&mut out.0, &group);
                out.0.close("member");
            }
        }
        out.0.close("Groups");
        out.more(next);
        Ok(out.answer(asked))
    }
}
