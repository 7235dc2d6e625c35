//! Policies that users and groups hold.

use std::collections::{BTreeMap, BTreeSet};

use rgw_core::formats::UserInfo;
use rgw_core::meta::Attrs;
use rgw_proto::policy::{Kind, Policy};
use rgw_proto::xml::Writer;
use rgw_proto::{Code, Error, Result};
use types::{Bytes, Denc, Features, Reader};

use super::{Asked, POLICIES_MAX};
use crate::answer::Answer;
use crate::request::MANAGED;
use crate::server::Server;

/// Attributes that have own and attached policies.
pub struct Names {
    own: &'static str,
    managed: &'static str,
}

/// Of users.
pub const USER: Names = Names { own: "user-policy", managed: "managed-policy" };
/// Of groups.
pub const GROUP: Names = Names { own: "iam-policy", managed: "managed-policy" };

/// The policies that a user or group holds.
pub struct Held {
    /// Its own, by name.
    pub own: BTreeMap<String, String>,
    /// ARNs of AWS's policies that are attached.
    pub managed: BTreeSet<String>,
}

impl Held {
    /// Reads them.
    ///
    /// # Errors
    /// [`Code::InternalError`] where they cannot be read.
    pub fn of(attrs: &Attrs, names: &Names) -> Result<Self> {
        let bad = |_| Error::new(Code::InternalError, "The policies cannot be read.");
        let own = attrs.get(names.own).map(|bytes| Denc::decode(&mut Reader::shared(bytes)));
        let managed = attrs.get(names.managed).map(|bytes| {
            Reader::shared(bytes).framed("ManagedPolicies", 1, |r, _| Denc::decode(r))
        });
        Ok(Self {
            own: own.transpose().map_err(bad)?.unwrap_or_default(),
            managed: managed.transpose().map_err(bad)?.unwrap_or_default(),
        })
    }

    /// Has the attributes say so.
    pub fn store(&self, attrs: &mut Attrs, names: &Names) {
        let mut w = types::Writer::new(Features::ALL);
        w.framed(1, 1, |w| self.managed.encode(w));
        let managed: Bytes = w.finish();
        for (name, is_empty, bytes) in [
            (names.own, self.own.is_empty(), self.own.to_bytes()),
            (names.managed, self.managed.is_empty(), managed),
        ] {
            match is_empty {
                true => drop(attrs.remove(name)),
                false => drop(attrs.insert(name.to_owned(), bytes)),
            }
        }
    }

    /// All of them, read.
    ///
    /// # Errors
    /// [`Code::AccessDenied`] where one cannot be read: what it denies must not be allowed.
    pub fn parsed(&self) -> Result<Vec<Policy>> {
        let bad = |_| Error::new(Code::AccessDenied, "The user's policies cannot be read.");
        let known = MANAGED.iter().filter(|(arn, _)| self.managed.contains(*arn));
        let texts = self.own.values().map(String::as_str).chain(known.map(|(_, text)| *text));
        texts.map(|text| Policy::parse(text, Kind::Identity).map_err(bad)).collect()
    }
}

pub fn none() -> Error {
    Error::new(Code::NoSuchEntity, "No policy of this name is held.")
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
        let held = Held::of(&attrs, &USER)?;
        let mut out = asked.result();
        let w = &mut out.0;
        match asked.call.action {
            "GetUserPolicy" => {
                let policy = asked.name("PolicyName")?;
                w.text("UserName", name).text("PolicyName", policy);
                w.text("PolicyDocument", held.own.get(policy).ok_or_else(none)?);
                return Ok(out.answer(asked));
            }
            "ListUserPolicies" => {
                w.open("PolicyNames");
                held.own.keys().for_each(|name| _ = w.text("member", name));
                w.close("PolicyNames");
                out.more(None);
                return Ok(out.answer(asked));
            }
            "ListAttachedUserPolicies" => {
                write_attached(w, &held.managed);
                out.more(None);
                return Ok(out.answer(asked));
            }
            _ => {}
        }
        let change = |_: &mut UserInfo, attrs: &mut Attrs| -> Result<()> {
            let mut held = Held::of(attrs, &USER)?;
            match asked.call.action {
                "PutUserPolicy" => {
                    let policy = asked.name("PolicyName")?.to_owned();
                    held.own.insert(policy, asked.document("PolicyDocument", Kind::Identity)?);
                    if held.own.len() > POLICIES_MAX {
                        return Err(Code::LimitExceeded.into());
                    }
                }
                "DeleteUserPolicy" => {
                    held.own.remove(asked.name("PolicyName")?).ok_or_else(none)?;
                }
                "AttachUserPolicy" => {
                    let arn = super::roles::managed(asked.call.need("PolicyArn")?)?;
                    held.managed.insert(arn.to_owned());
                }
                _ => {
                    if !held.managed.remove(asked.call.need("PolicyArn")?) {
                        return Err(none());
                    }
                }
            }
            held.store(attrs, &USER);
            Ok(())
        };
        self.gateway.alter_user(&uid, change).await?;
        Ok(asked.done())
    }
}
