//! Roles: found by id, and by name within an account or tenant.
//!
//! ```text
//!   roles.ID (the role) <── [TENANT or ACCOUNT]role_names.NAME (its id; in accounts in lower case)
//!                       <── [TENANT]role_paths.PATH roles.ID (empty; of tenants), or the account's list of roles
//! ```
//!
//! Source: `rgw_role.cc`, `driver/rados/role.cc`.

use rgw_proto::{Code, Error, Result};
use types::{Bytes, Denc, Errno};

use crate::accounts::{Kind, Member};
use crate::cache::Raw;
use crate::formats::{NamedId, Role};
use crate::gateway::{Gateway, decoded, failed};
use crate::meta::Attrs;
use crate::objects::{Objects, Place};

/// Roles of a page.
const PAGE: u32 = 1_000;
/// The attribute of a role's tags: bare, see [`crate::meta::BARE`].
const TAGS: &str = "//tagging";

/// Whose a role is: an account, or a tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Realm<'a> {
    /// Id of the account; empty for none.
    pub account: &'a str,
    /// The tenant, where there is no account.
    pub tenant: &'a str,
}

impl<O: Objects> Gateway<O> {
    fn role_place(&self, id: &str) -> Place {
        Place::new(&self.zone.iam.roles, format!("roles.{id}"))
    }

    fn role_name_place(&self, realm: Realm<'_>, name: &str) -> Place {
        let name = match realm.account {
            "" => format!("{}role_names.{name}", realm.tenant),
            account => format!("{account}role_names.{}", name.to_ascii_lowercase()),
        };
        Place::new(&self.zone.iam.roles, name)
    }

    fn role_path_place(&self, role: &Role) -> Place {
        let name = format!("{}role_paths.{}roles.{}", role.tenant, role.path, role.id);
        Place::new(&self.zone.iam.roles, name)
    }

    /// A role by id, from the cache where it is there; `None` where there is none.
    ///
    /// # Errors
    /// Of RADOS.
    pub async fn role(&self, id: &str) -> Result<Option<Role>> {
        match self.known_meta(&self.role_place(id)).await {
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(failed("reading the role")(errno)),
            Ok(raw) => decoded(&raw.data, "The role").map(Some),
        }
    }

    /// A role by name; `None` where there is none.
    ///
    /// # Errors
    /// Of RADOS.
    pub async fn role_by_name(&self, realm: Realm<'_>, name: &str) -> Result<Option<Role>> {
        match self.role_id(realm, name).await? {
            Some(id) => self.role(&id).await,
            None => Ok(None),
        }
    }

    async fn role_id(&self, realm: Realm<'_>, name: &str) -> Result<Option<String>> {
        match self.known_meta(&self.role_name_place(realm, name)).await {
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(failed("reading the role's name")(errno)),
            Ok(raw) => decoded::<NamedId>(&raw.data, "The role's name").map(|id| Some(id.0)),
        }
    }

    /// Tags of a role.
    ///
    /// # Errors
    /// [`Code::NoSuchEntity`]; of RADOS.
    pub async fn role_tags(&self, id: &str) -> Result<Vec<(String, String)>> {
        let raw = match self.known_meta(&self.role_place(id)).await {
            Err(Errno::NOENT) => return Err(Code::NoSuchEntity.into()),
            other => other.map_err(failed("reading the role"))?,
        };
        tags_of(&raw)
    }

    /// Makes a role under a new id.
    ///
    /// # Errors
    /// [`Code::EntityAlreadyExists`], [`Code::LimitExceeded`]; of RADOS.
    pub async fn make_role(
        &self,
        mut role: Role,
        tags: &[(String, String)],
        most: i32,
    ) -> Result<Role> {
        let mut random = [0; 16];
        self.objects.random(&mut random);
        role.id = types::Uuid::from_random(random).to_string();
        let (account, tenant) = (role.account_id.clone(), role.tenant.clone());
        let name_at =
            self.role_name_place(Realm { account: &account, tenant: &tenant }, &role.name);
        // The name first: it is what two requests could both want. Who died behind it left a name to nothing, which is
        // made anew.
        let over = match self.read_meta(&name_at).await {
            Err(Errno::NOENT) => None,
            Err(errno) => return Err(failed("reading the role's name")(errno)),
            Ok(raw) => {
                let known: NamedId = decoded(&raw.data, "The role's name")?;
                if self.role(&known.0).await?.is_some() {
                    return Err(Code::EntityAlreadyExists.into());
                }
                Some(raw.version)
            }
        };
        let written = self
            .write_meta(&name_at, NamedId(role.id.clone()).to_bytes(), &Attrs::new(), over.as_ref())
            .await;
        match written {
            Ok(()) => {}
            Err(Errno::EXIST | Errno::CANCELED) => return Err(Code::EntityAlreadyExists.into()),
            Err(errno) => return Err(failed("writing the role's name")(errno)),
        }
        let attrs = with_tags(Attrs::new(), tags);
        let at = self.role_place(&role.id);
        let written = self.write_meta(&at, role.to_bytes(), &attrs, None).await;
        written.map_err(failed("writing the role"))?;
        if account.is_empty() {
            let at = self.role_path_place(&role);
            let written = self.write_meta(&at, Bytes::new(), &Attrs::new(), None).await;
            written.map_err(failed("writing the role's path"))?;
        } else {
            let (name, path, id) = (role.name.clone(), role.path.clone(), role.id.clone());
            let member = Member { name, path, id };
            let added = self.add_member(&account, Kind::Roles, &member, true, most).await;
            if let Err(error) = added {
                self.drop_role(&role).await?;
                return Err(error);
            }
        }
        Ok(role)
    }

    /// Reads a role and its tags, changes them, writes them.
    ///
    /// # Errors
    /// [`Code::NoSuchEntity`], [`Code::ConcurrentModification`]; those of `change`.
    pub async fn alter_role(
        &self,
        id: &str,
        change: impl FnOnce(&mut Role, &mut Vec<(String, String)>) -> Result<()>,
    ) -> Result<Role> {
        let at = self.role_place(id);
        let raw = match self.read_meta(&at).await {
            Err(Errno::NOENT) => return Err(Code::NoSuchEntity.into()),
            other => other.map_err(failed("reading the role"))?,
        };
        let mut role: Role = decoded(&raw.data, "The role")?;
        let mut tags = tags_of(&raw)?;
        change(&mut role, &mut tags)?;
        let attrs = with_tags(raw.attrs, &tags);
        let written = self.write_meta(&at, role.to_bytes(), &attrs, Some(&raw.version)).await;
        written.map_err(failed("writing the role"))?;
        Ok(role)
    }

    /// Removes a role that has no policies.
    ///
    /// # Errors
    /// [`Code::DeleteConflict`]; of RADOS.
    pub async fn remove_role(&self, role: &Role) -> Result<()> {
        if !role.policies.is_empty() || !role.managed.is_empty() {
            let text = "The role cannot be deleted until all role policies are removed.";
            return Err(Error::new(Code::DeleteConflict, text));
        }
        if !role.account_id.is_empty() {
            self.remove_member(&role.account_id, Kind::Roles, &role.name).await?;
        }
        self.drop_role(role).await
    }

    async fn drop_role(&self, role: &Role) -> Result<()> {
        let realm = Realm { account: &role.account_id, tenant: &role.tenant };
        if role.account_id.is_empty() {
            self.lead_no_more(&self.role_path_place(role)).await?;
        }
        self.lead_no_more(&self.role_place(&role.id)).await?;
        self.lead_no_more(&self.role_name_place(realm, &role.name)).await
    }

    /// A page of roles behind `after` whose path begins so, and where the next page begins. Those of tenants cost a
    /// listing of all roles.
    ///
    /// # Errors
    /// Of RADOS.
    pub async fn roles(
        &self,
        realm: Realm<'_>,
        path: &str,
        after: &str,
        most: u32,
    ) -> Result<(Vec<Role>, Option<String>)> {
        let most = most.clamp(1, PAGE);
        let (ids, next) = if realm.account.is_empty() {
            let prefix = format!("{}role_paths.", realm.tenant);
            let names = self.objects.names(&self.zone.iam.roles).await;
            let names = names.map_err(failed("listing roles"))?;
            let found = names.iter().filter_map(|name| name.strip_prefix(prefix.as_str()));
            let found = found.filter(|rest| rest.starts_with(path));
            let mut found: Vec<&str> = found.filter(|rest| *rest > after).collect();
            found.sort_unstable();
            let more = found.len() > most as usize;
            found.truncate(most as usize);
            let next = found.last().filter(|_| more).map(|last| (*last).to_owned());
            let id = |rest: &&str| rest.rsplit_once("roles.").map(|(_, id)| id.to_owned());
            (found.iter().filter_map(id).collect::<Vec<_>>(), next)
        } else {
            let (all, next) = self.members(realm.account, Kind::Roles, path, after, most).await?;
            (all.into_iter().map(|member| member.id).collect(), next)
        };
        let mut roles = Vec::with_capacity(ids.len());
        for id in ids {
            roles.extend(self.role(&id).await?);
        }
        Ok((roles, next))
    }
}

fn tags_of(raw: &Raw) -> Result<Vec<(String, String)>> {
    let Some(bytes) = raw.attrs.get(TAGS) else { return Ok(Vec::new()) };
    let read = crate::formats::decode_pairs(&mut types::Reader::shared(bytes));
    read.map_err(|_| crate::gateway::garbled("The role's tags"))
}

/// Attributes with tags: a multimap without a frame.
fn with_tags(mut attrs: Attrs, tags: &[(String, String)]) -> Attrs {
    if tags.is_empty() {
        attrs.remove(TAGS);
        return attrs;
    }
    let mut w = types::Writer::new(types::Features::ALL);
    let mut sorted = tags.to_vec();
    sorted.sort();
    crate::formats::encode_pairs(&mut w, &sorted);
    attrs.insert(TAGS.to_owned(), w.finish());
    attrs
}
