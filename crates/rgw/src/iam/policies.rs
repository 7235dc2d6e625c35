//! Policies of users.

use std::collections::{BTreeMap, BTreeSet};

use rgw_core::formats::UserInfo;
use rgw_core::meta::Attrs;
use rgw_proto::policy::Kind;
use rgw_proto::xml::Writer;
use rgw_proto::{Code, Error, Result};
use types::{Bytes, Denc, Features, Reader};

use super::{Asked, POLICIES_MAX};
use crate::answer::Answer;
use crate::server::Server;

/// Attributes of users that have their policies.
const OWN: &str = "user-policy";
const MANAGED: &str = "managed-policy";

fn unreadable() -> Error {
    Error::new(Code::InternalError, "The user's policies cannot be read.")
}

/// A user's own policies, by name.
pub fn own_policies(attrs: &Attrs) -> Result<BTreeMap<String, String>> {
    match attrs.get(OWN) {
        None => Ok(BTreeMap::new()),
        Some(bytes) => Denc::decode(&mut Reader::shared(bytes)).map_err(|_| unreadable()),
    }
}

/// ARNs of AWS's policies that a user has.
pub fn managed_policies(attrs: &Attrs) -> Result<BTreeSet<String>> {
    match attrs.get(MANAGED) {
        None => Ok(BTreeSet::new()),
        Some(bytes) => Reader::shared(bytes)
            .framed("ManagedPolicies", 1, |r, _| Denc::decode(r))
            .map_err(|_| unreadable()),
    }
}

/// Lists attached policies.
pub fn write_attached(w: &mut Writer, arns: &BTreeSet<String>) {
    w.open("AttachedPolicies");
    for arn in arns {
        let name = arn.rsplit('/').next().unwrap_or_default();
        w.open("member").text("PolicyName", name).text("PolicyArn", arn).close("member");
    }
    w.close("AttachedPolicies");
}

fn managed_bytes(arns: &BTreeSet<String>) -> Bytes {
    let mut w = types::Writer::new(Features::ALL);
    w.framed(1, 1, |w| arns.encode(w));
    w.finish()
}

impl Server {
    pub(super) async fn on_user_policy(&self, asked: &Asked<'_>) -> Result<Answer> {
        let name = asked.name("UserName")?;
        let found = self.named(asked, name).await?;
        let arn = match &found {
            Some(user) => super::users::arn(user),
            None => format!("arn:aws:iam::{}:user/{name}", asked.account()),
        };
        asked.allow(&arn)?;
        let user = found.ok_or_else(super::users::none)?;
        let uid = user.id.text();
        let attrs = self.gateway.user_record(&uid).await?.attrs;
        let no_policy = || Error::new(Code::NoSuchEntity, "No such PolicyName on the user.");
        let mut out = asked.result();
        let w = &mut out.0;
        match asked.call.action {
            "GetUserPolicy" => {
                let policy = asked.name("PolicyName")?;
                let own = own_policies(&attrs)?;
                w.text("UserName", name).text("PolicyName", policy);
                w.text("PolicyDocument", own.get(policy).ok_or_else(no_policy)?);
                return Ok(out.answer(asked));
            }
            "ListUserPolicies" => {
                w.open("PolicyNames");
                own_policies(&attrs)?.keys().for_each(|name| _ = w.text("member", name));
                w.close("PolicyNames");
                out.more(None);
                return Ok(out.answer(asked));
            }
            "ListAttachedUserPolicies" => {
                write_attached(w, &managed_policies(&attrs)?);
                out.more(None);
                return Ok(out.answer(asked));
            }
            _ => {}
        }
        let change = |_: &mut UserInfo, attrs: &mut Attrs| -> Result<()> {
            let (mut own, mut managed) = (own_policies(attrs)?, managed_policies(attrs)?);
            match asked.call.action {
                "PutUserPolicy" => {
                    let policy = asked.name("PolicyName")?.to_owned();
                    own.insert(policy, asked.document("PolicyDocument", Kind::Identity)?);
                    if own.len() > POLICIES_MAX {
                        return Err(Code::LimitExceeded.into());
                    }
                }
                "DeleteUserPolicy" => {
                    own.remove(asked.name("PolicyName")?).ok_or_else(no_policy)?;
                }
                "AttachUserPolicy" => {
                    let arn = super::roles::managed(asked.call.need("PolicyArn")?)?;
                    managed.insert(arn.to_owned());
                }
                _ => {
                    if !managed.remove(asked.call.need("PolicyArn")?) {
                        return Err(no_policy());
                    }
                }
            }
            for (name, is_empty, bytes) in [
                (OWN, own.is_empty(), own.to_bytes()),
                (MANAGED, managed.is_empty(), managed_bytes(&managed)),
            ] {
                match is_empty {
                    true => drop(attrs.remove(name)),
                    false => drop(attrs.insert(name.to_owned(), bytes)),
                }
            }
            Ok(())
        };
        self.gateway.alter_user(&uid, change).await?;
        Ok(asked.done())
    }
}
