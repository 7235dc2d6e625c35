//! Groups of accounts: a name, policies, and users who have them.
//!
//! ```text
//!   info.ID (the group; policies in attributes) <── name.ACCOUNT$name (its id, lower case), the account's list of groups
//!   users.ID (who is in it, by name)            ──> each user's own list of group ids
//! ```
//!
//! Source: `rgw_group.cc`, `driver/rados/group.cc`, `driver/rados/users.cc`.

use rgw_proto::{Code, Error, Result};
use types::{DecodeError, Denc, Errno, Reader, Writer};

use crate::accounts::{Kind, Member};
use crate::gateway::{Gateway, decoded, failed};
use crate::meta::Attrs;
use crate::objects::{Objects, Place};

/// A group: `RGWGroupInfo`, `ENCODE_START(1, 1)`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Group {
    /// A UUID.
    pub id: String,
    /// The account's tenant; empty for most.
    pub tenant: String,
    /// Its name.
    pub name: String,
    /// `/` or `/division/`.
    pub path: String,
    /// Its account.
    pub account_id: String,
}

impl Denc for Group {
    fn encode(&self, w: &mut Writer) {
        w.framed(1, 1, |w| {
            for text in [&self.id, &self.tenant, &self.name, &self.path, &self.account_id] {
                w.str(text);
            }
        });
    }

    fn decode(r: &mut Reader<'_>) -> std::result::Result<Self, DecodeError> {
        r.framed("RGWGroupInfo", 1, |r, _| {
            Ok(Self {
                id: r.string()?,
                tenant: r.string()?,
                name: r.string()?,
                path: r.string()?,
                account_id: r.string()?,
            })
        })
    }
}

impl Group {
    fn member(&self) -> Member {
        Member { name: self.name.clone(), path: self.path.clone(), id: self.id.clone() }
    }
}

impl<O: Objects> Gateway<O> {
    fn group_place(&self, id: &str) -> Place {
        Place::new(&self.zone.iam.groups, format!("info.{id}"))
    }

    fn group_name_place(&self, group: &Group) -> Place {
        let name = format!("name.{}${}", group.account_id, group.name.to_ascii_lowercase());
        Place::new(&self.zone.iam.groups, name)
    }

    /// The list of who is in a group.
    pub(crate) fn group_users_place(&self, id: &str) -> Place {
        Place::new(&self.zone.iam.groups, format!("users.{id}"))
    }

    /// A group with its attributes, from the cache where it is there; `None` where there is none.
    ///
    /// # Errors
    /// Of RADOS.
    pub async fn group(&self, id: &str) -> Result<Option<(Group, Attrs)>> {
        match self.known_meta(&self.group_place(id)).await {
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(failed("reading the group")(errno)),
            Ok(raw) => Ok(Some((decoded(&raw.data, "The group")?, raw.attrs))),
        }
    }

    /// A group by name; `None` where there is none.
    ///
    /// # Errors
    /// Of RADOS.
    pub async fn group_by_name(&self, account: &str, name: &str) -> Result<Option<(Group, Attrs)>> {
        match self.member(account, Kind::Groups, name).await? {
            Some(member) => self.group(&member.id).await,
            None => Ok(None),
        }
    }

    /// Makes a group under a new id.
    ///
    /// # Errors
    /// [`Code::EntityAlreadyExists`], [`Code::LimitExceeded`]; of RADOS.
    pub async fn make_group(&self, mut group: Group, most: i32) -> Result<Group> {
        let mut random = [0; 16];
        self.objects.random(&mut random);
        group.id = types::Uuid::from_random(random).to_string();
        // The name in the account first: it is what two requests could both want.
        self.add_member(&group.account_id, Kind::Groups, &group.member(), true, most).await?;
        let at = self.group_place(&group.id);
        let written = self.write_meta(&at, group.to_bytes(), &Attrs::new(), None).await;
        written.map_err(failed("writing the group"))?;
        self.lead(&self.group_name_place(&group), &group.id).await?;
        Ok(group)
    }

    /// Reads a group and its attributes, changes them, writes them, and has what leads to it agree.
    ///
    /// # Errors
    /// [`Code::NoSuchEntity`], [`Code::EntityAlreadyExists`]; those of `change`.
    pub async fn alter_group(
        &self,
        id: &str,
        change: impl FnOnce(&mut Group, &mut Attrs) -> Result<()>,
    ) -> Result<Group> {
        let at = self.group_place(id);
        let raw = match self.read_meta(&at).await {
            Err(Errno::NOENT) => return Err(Code::NoSuchEntity.into()),
            other => other.map_err(failed("reading the group"))?,
        };
        let old: Group = decoded(&raw.data, "The group")?;
        let (mut new, mut attrs) = (old.clone(), raw.attrs);
        change(&mut new, &mut attrs)?;
        let is_renamed = !old.name.eq_ignore_ascii_case(&new.name);
        if old != new {
            let member = new.member();
            self.add_member(&new.account_id, Kind::Groups, &member, is_renamed, 0).await?;
        }
        let written = self.write_meta(&at, new.to_bytes(), &attrs, Some(&raw.version)).await;
        written.map_err(failed("writing the group"))?;
        if is_renamed {
            self.remove_member(&old.account_id, Kind::Groups, &old.name).await?;
            self.lead(&self.group_name_place(&new), id).await?;
            self.lead_no_more(&self.group_name_place(&old)).await?;
        }
        Ok(new)
    }

    /// Removes a group that nobody is in; the caller has looked for policies.
    ///
    /// # Errors
    /// [`Code::DeleteConflict`]; of RADOS.
    pub async fn remove_group(&self, group: &Group) -> Result<()> {
        let users = self.group_users_place(&group.id);
        if !self.members_at(&users, "", "", 1).await?.0.is_empty() {
            let text = "The group cannot be deleted until all users are removed from it.";
            return Err(Error::new(Code::DeleteConflict, text));
        }
        self.remove_member(&group.account_id, Kind::Groups, &group.name).await?;
        self.lead_no_more(&self.group_name_place(group)).await?;
        self.lead_no_more(&self.group_place(&group.id)).await?;
        self.lead_no_more(&users).await
    }

    /// A page of a group's users, and where the next page begins.
    ///
    /// # Errors
    /// Of RADOS.
    pub async fn group_users(
        &self,
        id: &str,
        after: &str,
        most: u32,
    ) -> Result<(Vec<Member>, Option<String>)> {
        self.members_at(&self.group_users_place(id), "", after, most).await
    }
}
