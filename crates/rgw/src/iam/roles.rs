//! Roles, their policies and tags.

use rgw_core::formats::Role;
use rgw_proto::policy::Kind;
use rgw_proto::xml::Writer;
use rgw_proto::{Code, Error, Result};

use super::{Asked, POLICIES_MAX};
use crate::answer::Answer;
use crate::request::{MANAGED, now};
use crate::server::Server;

/// Bounds of a role's longest session, s.
const SESSION_S: std::ops::RangeInclusive<u64> = 3_600..=43_200;
const TAGS_MAX: usize = 50;

fn none() -> Error {
    Error::new(Code::NoSuchEntity, "No role of this name is in the account or tenant.")
}

fn write(w: &mut Writer, role: &Role) {
    w.text("RoleId", &role.id).text("RoleName", &role.name).text("Path", &role.path);
    w.text("Arn", &role.arn).text("CreateDate", &role.created);
    w.text("Description", &role.description).value("MaxSessionDuration", role.session_s_max);
    w.text("AssumeRolePolicyDocument", &role.trust);
}

fn write_tags(w: &mut Writer, tags: &[(String, String)]) {
    w.open("Tags");
    for (key, value) in tags {
        w.open("member").text("Key", key).text("Value", value).close("member");
    }
    w.close("Tags");
}

impl Asked<'_> {
    fn session_s(&self) -> Result<Option<u64>> {
        match self.call.text("MaxSessionDuration") {
            "" => Ok(None),
            text => {
                text.parse().ok().filter(|s| SESSION_S.contains(s)).map(Some).ok_or_else(|| {
                    Error::new(Code::InvalidArgument, "MaxSessionDuration is from 3600 to 43200.")
                })
            }
        }
    }

    fn description(&self) -> Result<&str> {
        let text = self.call.text("Description");
        match text.len() <= 1_000 {
            true => Ok(text),
            false => Err(Error::new(Code::InvalidArgument, "Description has at most 1000 bytes.")),
        }
    }
}

/// A policy of AWS's that may be attached.
pub fn managed(arn: &str) -> Result<&str> {
    match MANAGED.iter().any(|(known, _)| *known == arn) {
        true => Ok(arn),
        false => Err(Error::new(
            Code::NoSuchEntity,
            "PolicyArn is none of AWS's that are known here: AmazonS3FullAccess, AmazonS3ReadOnlyAccess, IAMFullAccess, IAMReadOnlyAccess, AmazonSNSFullAccess, AmazonSNSReadOnlyAccess.",
        )),
    }
}

impl Server {
    pub(super) async fn on_role(&self, asked: &Asked<'_>) -> Result<Answer> {
        match asked.call.action {
            "CreateRole" => return self.create_role(asked).await,
            "ListRoles" => return self.list_roles(asked).await,
            _ => {}
        }
        let name = asked.name("RoleName")?;
        let role = self.gateway.role_by_name(asked.realm(), name).await?;
        let arn = match &role {
            Some(role) => role.arn.clone(),
            None => format!("arn:aws:iam::{}:role/{name}", asked.account()),
        };
        // Whoever may not do it does not learn whether there is such a role.
        asked.allow(&arn)?;
        let role = role.ok_or_else(none)?;
        let policy = || asked.name("PolicyName").map(str::to_owned);
        let no_policy = || Error::new(Code::NoSuchEntity, "The role has no policy of this name.");
        let mut out = asked.result();
        let w = &mut out.0;
        match asked.call.action {
            "GetRole" => {
                w.open("Role");
                write(w, &role);
                write_tags(w, &self.gateway.role_tags(&role.id).await?);
                w.close("Role");
            }
            "GetRolePolicy" => {
                let policy = policy()?;
                let text = role.policies.get(&policy).ok_or_else(no_policy)?;
                w.text("RoleName", &role.name).text("PolicyName", &policy);
                w.text("PolicyDocument", text);
            }
            "ListRolePolicies" => {
                w.open("PolicyNames");
                role.policies.keys().for_each(|name| _ = w.text("member", name));
                w.close("PolicyNames");
                out.more(None);
            }
            "ListAttachedRolePolicies" => {
                super::policies::write_attached(w, &role.managed);
                out.more(None);
            }
            "ListRoleTags" => {
                write_tags(w, &self.gateway.role_tags(&role.id).await?);
                out.more(None);
            }
            "DeleteRole" => {
                self.gateway.remove_role(&role).await?;
                return Ok(asked.done());
            }
            _ => return self.change_role(asked, &role).await,
        }
        Ok(out.answer(asked))
    }

    async fn change_role(&self, asked: &Asked<'_>, role: &Role) -> Result<Answer> {
        let no_policy = || Error::new(Code::NoSuchEntity, "The role has no policy of this name.");
        let action = asked.call.action;
        let change = |role: &mut Role, tags: &mut Vec<(String, String)>| -> Result<()> {
            match action {
                "UpdateRole" => {
                    if asked.call.fields.has("Description") {
                        role.description = asked.description()?.to_owned();
                    }
                    role.session_s_max = asked.session_s()?.unwrap_or(role.session_s_max);
                }
                "UpdateAssumeRolePolicy" => {
                    role.trust = asked.document("PolicyDocument", Kind::Trust)?;
                }
                "PutRolePolicy" => {
                    let (name, text) = (
                        asked.name("PolicyName")?.to_owned(),
                        asked.document("PolicyDocument", Kind::Identity)?,
                    );
                    role.policies.insert(name, text);
                    if role.policies.len() > POLICIES_MAX {
                        return Err(Code::LimitExceeded.into());
                    }
                }
                "DeleteRolePolicy" => {
                    role.policies.remove(asked.name("PolicyName")?).ok_or_else(no_policy)?;
                }
                "AttachRolePolicy" => {
                    role.managed.insert(managed(asked.call.need("PolicyArn")?)?.to_owned());
                }
                "DetachRolePolicy" => {
                    if !role.managed.remove(asked.call.need("PolicyArn")?) {
                        return Err(no_policy());
                    }
                }
                "TagRole" => {
                    for (key, value) in asked.tags()? {
                        tags.retain(|(known, _)| *known != key);
                        tags.push((key, value));
                    }
                    if tags.len() > TAGS_MAX {
                        return Err(Code::LimitExceeded.into());
                    }
                }
                _ => {
                    let keys = asked.members("TagKeys", "", TAGS_MAX)?;
                    tags.retain(|(known, _)| !keys.contains(&known.as_str()));
                }
            }
            Ok(())
        };
        self.gateway.alter_role(&role.id, change).await?;
        // The only one of them whose answer clients look into.
        Ok(match action {
            "UpdateRole" => asked.result().answer(asked),
            _ => asked.done(),
        })
    }

    async fn create_role(&self, asked: &Asked<'_>) -> Result<Answer> {
        let (name, path) = (asked.name("RoleName")?, asked.path("Path")?);
        let arn = format!("arn:aws:iam::{}:role{path}{name}", asked.account());
        asked.allow(&arn)?;
        let realm = asked.realm();
        let role = Role {
            name: name.to_owned(),
            path,
            arn,
            created: now().to_string(),
            trust: asked.document("AssumeRolePolicyDocument", Kind::Trust)?,
            tenant: if realm.account.is_empty() { realm.tenant.to_owned() } else { String::new() },
            session_s_max: asked.session_s()?.unwrap_or(*SESSION_S.start()),
            account_id: realm.account.to_owned(),
            description: asked.description()?.to_owned(),
            ..Role::default()
        };
        let most =
            asked.known.account.as_ref().map_or(0, |account| account.users_roles_groups_max[1]);
        let role = self.gateway.make_role(role, &asked.tags()?, most).await?;
        let mut out = asked.result();
        out.0.open("Role");
        write(&mut out.0, &role);
        out.0.close("Role");
        Ok(out.answer(asked))
    }

    async fn list_roles(&self, asked: &Asked<'_>) -> Result<Answer> {
        asked.allow(&format!("arn:aws:iam::{}:role/", asked.account()))?;
        let (marker, most) = asked.page()?;
        let path = asked.call.text("PathPrefix");
        let (roles, next) = self.gateway.roles(asked.realm(), path, marker, most).await?;
        let mut out = asked.result();
        out.0.open("Roles");
        for role in &roles {
            out.0.open("member");
            write(&mut out.0, role);
            out.0.close("member");
        }
        out.0.close("Roles");
        out.more(next.as_deref());
        Ok(out.answer(asked))
    }
}
