//! Accounts, and what belongs to one: users, groups and roles, listed by name.
//!
//! Source: `rgw_account.cc`, `driver/rados/account.cc`, `driver/rados/users.cc`, `groups.cc`, `roles.cc`.

use cls::client::user::{
    Resource, ResourceAddOp, ResourceListOp, ResourceListed, ResourceOp, ResourceRet,
};
use rgw_proto::{Code, Error, Result};
use types::{Bytes, Denc, Errno, Features, Reader, UTime, Writer};

use crate::formats::{AccountInfo, Owner, Quota};
use crate::gateway::{Gateway, decoded, failed};
use crate::meta::Attrs;
use crate::objects::{Objects, Place, Vector};

/// Length of an account's id: `RGW` and 17 digits.
const ID_LEN: usize = 20;
/// Users, roles and groups, buckets that a new account may have; access keys of each of its users.
const RESOURCES_MAX: i32 = 1_000;
const KEYS_MAX: i32 = 4;
/// EUSERS: the class refuses one more than the bound.
const USERS: Errno = Errno(-87);
/// Resources of a page.
const PAGE: u32 = 1_000;

/// What an account has lists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Users, by display name.
    Users,
    /// Groups, by name.
    Groups,
    /// Roles, by name.
    Roles,
}

impl Kind {
    fn prefix(self) -> &'static str {
        match self {
            Self::Users => "users",
            Self::Groups => "groups",
            Self::Roles => "roles",
        }
    }
}

/// A member of such a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// The name, unique in the account whatever the case of its letters.
    pub name: String,
    /// `/` or `/division/`.
    pub path: String,
    /// The id of what has this name.
    pub id: String,
}

/// Whether a text is an account's id.
#[must_use]
pub fn is_id(text: &str) -> bool {
    let digits = text.strip_prefix("RGW");
    text.len() == ID_LEN && digits.is_some_and(|d| d.bytes().all(|b| b.is_ascii_digit()))
}

/// `resource_metadata` of users, groups and roles: `ENCODE_START(1, 1)` around the id.
fn id_bytes(id: &str) -> Bytes {
    let mut w = Writer::new(Features::ALL);
    w.framed(1, 1, |w| w.str(id));
    w.finish()
}

fn member(entry: &Resource) -> Result<Member> {
    let text = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned();
    let id = Reader::shared(&entry.metadata).framed("resource_metadata", 1, |r, _| r.string());
    let id = id.map_err(|_| crate::gateway::garbled("A list of the account"))?;
    Ok(Member { name: text(&entry.name), path: text(&entry.path), id })
}

impl<O: Objects> Gateway<O> {
    fn account_place(&self, id: &str) -> Place {
        Place::new(&self.zone.iam.accounts, format!("account.{id}"))
    }

    fn list_place(&self, account: &str, kind: Kind) -> Place {
        Place::new(&self.zone.iam.accounts, format!("{}.{account}", kind.prefix()))
    }

    /// What leads to an account by name and by address: bare texts with the account's id.
    fn account_leads(&self, account: &AccountInfo) -> Vec<Place> {
        let name = format!("name.{}${}", account.tenant, account.name);
        let name = (!account.name.is_empty()).then(|| Place::new(&self.zone.iam.accounts, name));
        let email = account.email.to_lowercase();
        let email = (!email.is_empty()).then(|| Place::new(&self.zone.users.email, email));
        name.into_iter().chain(email).collect()
    }

    /// An account as it is now; `None` where there is none.
    ///
    /// # Errors
    /// Of RADOS.
    pub async fn account_now(&self, id: &str) -> Result<Option<AccountInfo>> {
        match self.read_meta(&self.account_place(id)).await {
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(failed("reading the account")(errno)),
            Ok(raw) => decoded(&raw.data, "The account").map(Some),
        }
    }

    /// An account with number and tag of its version and the time of its last write.
    ///
    /// # Errors
    /// [`Code::NoSuchKey`]; of RADOS.
    pub async fn account_record(&self, id: &str) -> Result<(AccountInfo, (u64, String), UTime)> {
        let at = self.account_place(id);
        let raw = match self.read_meta(&at).await {
            Err(Errno::NOENT) => return Err(no_account()),
            other => other.map_err(failed("reading the account"))?,
        };
        let written = self.meta_time(&at).await.map_err(failed("reading the account"))?;
        let tag = String::from_utf8_lossy(&raw.version.tag).into_owned();
        Ok((decoded(&raw.data, "The account")?, (raw.version.ver, tag), written))
    }

    /// The id of the account with a name.
    ///
    /// # Errors
    /// Of RADOS.
    pub async fn account_by_name(&self, tenant: &str, name: &str) -> Result<Option<String>> {
        let at = Place::new(&self.zone.iam.accounts, format!("name.{tenant}${name}"));
        match self.known_lead(&at).await {
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(failed("reading the account's name")(errno)),
            Ok(data) => decoded(&data, "The account's name").map(Some),
        }
    }

    /// An account with the bounds of a new one, under an id that nobody guesses.
    pub fn new_account(&self) -> AccountInfo {
        let mut bytes = [0; 8];
        self.objects.random(&mut bytes);
        let number = u64::from_le_bytes(bytes) % 100_000_000_000_000_000;
        AccountInfo {
            id: format!("RGW{number:017}"),
            users_roles_groups_max: [RESOURCES_MAX; 3],
            buckets_max: RESOURCES_MAX,
            keys_max: KEYS_MAX,
            quota: Quota::default(),
            bucket_quota: Quota::default(),
            ..AccountInfo::default()
        }
    }

    /// Refuses a name or address that leads elsewhere.
    async fn check_account(&self, places: &[Place], id: &str) -> Result<()> {
        for at in places {
            match self.known_lead(at).await {
                Err(Errno::NOENT) => {}
                Err(errno) => return Err(failed("looking for the account")(errno)),
                Ok(data) if decoded::<String>(&data, "The account's name")? == id => {}
                Ok(_) if at.pool == self.zone.users.email => return Err(Code::EmailExists.into()),
                Ok(_) => return Err(Code::AccountAlreadyExists.into()),
            }
        }
        Ok(())
    }

    /// Makes an account.
    ///
    /// # Errors
    /// [`Code::AccountAlreadyExists`], [`Code::EmailExists`]; [`Code::InvalidArgument`] for an id that is none.
    pub async fn make_account(&self, account: AccountInfo) -> Result<AccountInfo> {
        if !is_id(&account.id) {
            let text = "An account's id is RGW and 17 digits: leave it out to have one made.";
            return Err(Error::new(Code::InvalidArgument, text));
        }
        let leads = self.account_leads(&account);
        self.check_account(&leads, "").await?;
        let at = self.account_place(&account.id);
        match self.write_meta(&at, account.to_bytes(), &Attrs::new(), None).await {
            Ok(()) => {}
            Err(Errno::EXIST) => return Err(Code::AccountAlreadyExists.into()),
            Err(errno) => return Err(failed("writing the account")(errno)),
        }
        for at in &leads {
            self.lead(at, &account.id).await?;
        }
        Ok(account)
    }

    /// Reads an account, changes it, writes it.
    ///
    /// # Errors
    /// [`Code::NoSuchKey`] where there is none, as stock; as [`Gateway::make_account`]; those of `change`.
    pub async fn alter_account(
        &self,
        id: &str,
        change: impl FnOnce(&mut AccountInfo) -> Result<()>,
    ) -> Result<AccountInfo> {
        let at = self.account_place(id);
        let raw = match self.read_meta(&at).await {
            Err(Errno::NOENT) => return Err(no_account()),
            other => other.map_err(failed("reading the account"))?,
        };
        let old: AccountInfo = decoded(&raw.data, "The account")?;
        let mut new = old.clone();
        change(&mut new)?;
        let (before, after) = (self.account_leads(&old), self.account_leads(&new));
        self.check_account(&after, id).await?;
        let written = self.write_meta(&at, new.to_bytes(), &raw.attrs, Some(&raw.version)).await;
        written.map_err(failed("writing the account"))?;
        for at in after.iter().filter(|at| !before.contains(at)) {
            self.lead(at, id).await?;
        }
        for at in before.iter().filter(|at| !after.contains(at)) {
            self.lead_no_more(at).await?;
        }
        Ok(new)
    }

    /// Removes an account that has nothing.
    ///
    /// # Errors
    /// [`Code::NoSuchKey`]; [`Code::BucketNotEmpty`] where users, groups, roles or buckets are there.
    pub async fn remove_account(&self, id: &str) -> Result<()> {
        let raw = match self.read_meta(&self.account_place(id)).await {
            Err(Errno::NOENT) => return Err(no_account()),
            other => other.map_err(failed("reading the account"))?,
        };
        let account: AccountInfo = decoded(&raw.data, "The account")?;
        for kind in [Kind::Users, Kind::Groups, Kind::Roles] {
            if !self.members(id, kind, "", "", 1).await?.0.is_empty() {
                let what = kind.prefix();
                let text = format!("The account cannot be deleted until all {what} are removed.");
                return Err(Error::new(Code::BucketNotEmpty, text));
            }
        }
        if !self.buckets_of(&Owner::Account(id.to_owned())).await?.is_empty() {
            let text = "The account cannot be deleted until all buckets are removed.";
            return Err(Error::new(Code::BucketNotEmpty, text));
        }
        let removed = self.remove_meta(&self.account_place(id), &raw.version).await;
        removed.map_err(failed("removing the account"))?;
        for at in self.account_leads(&account) {
            self.lead_no_more(&at).await?;
        }
        for kind in [Kind::Users, Kind::Groups, Kind::Roles] {
            self.lead_no_more(&self.list_place(id, kind)).await?;
        }
        self.lead_no_more(&Place::new(&self.zone.iam.accounts, format!("buckets.{id}"))).await
    }

    /// Adds a member to a list of an account, or changes it.
    ///
    /// # Errors
    /// [`Code::EntityAlreadyExists`] where `is_new` and the name is taken; [`Code::LimitExceeded`] where there are as
    /// many as `most` says (negative: none at all, 0: no bound).
    pub async fn add_member(
        &self,
        account: &str,
        kind: Kind,
        member: &Member,
        is_new: bool,
        most: i32,
    ) -> Result<()> {
        self.add_member_at(&self.list_place(account, kind), member, is_new, most).await
    }

    /// As [`Gateway::add_member`], of any such list.
    pub(crate) async fn add_member_at(
        &self,
        at: &Place,
        member: &Member,
        is_new: bool,
        most: i32,
    ) -> Result<()> {
        let limit = match most {
            i32::MIN..=-1 => 0,
            0 => u32::MAX,
            most => most.unsigned_abs(),
        };
        let entry = Resource {
            name: member.name.clone().into(),
            path: member.path.clone().into(),
            metadata: id_bytes(&member.id),
        };
        let op = ResourceAddOp { entry, exclusive: is_new, limit };
        let vector = Vector::write().call("user", "account_resource_add", op.to_bytes());
        match self.objects.operate(at, vector).await {
            Ok(_) => Ok(()),
            Err(Errno::EXIST) => Err(Code::EntityAlreadyExists.into()),
            Err(USERS) => Err(Code::LimitExceeded.into()),
            Err(errno) => Err(failed("adding to a list of the account")(errno)),
        }
    }

    /// Takes a member from a list of an account; done where it is not there.
    ///
    /// # Errors
    /// Of RADOS.
    pub async fn remove_member(&self, account: &str, kind: Kind, name: &str) -> Result<()> {
        self.remove_member_at(&self.list_place(account, kind), name).await
    }

    pub(crate) async fn remove_member_at(&self, at: &Place, name: &str) -> Result<()> {
        let op = ResourceOp { name: name.to_owned().into() };
        let vector = Vector::write().call("user", "account_resource_rm", op.to_bytes());
        match self.objects.operate(at, vector).await {
            Ok(_) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(failed("taking from a list of the account")(errno)),
        }
    }

    /// A member by name; `None` where there is none.
    ///
    /// # Errors
    /// Of RADOS.
    pub async fn member(&self, account: &str, kind: Kind, name: &str) -> Result<Option<Member>> {
        let op = ResourceOp { name: name.to_owned().into() };
        let vector = Vector::read().call("user", "account_resource_get", op.to_bytes());
        let what = "reading a list of the account";
        let answers = match self.objects.operate(&self.list_place(account, kind), vector).await {
            Err(Errno::NOENT) => return Ok(None),
            other => other.map_err(failed(what))?,
        };
        let data = answers.data(0).map_err(failed(what))?;
        let found: ResourceRet = decoded(&data, "A list of the account")?;
        member(&found.entry).map(Some)
    }

    /// A page of a list: members behind `after` whose path begins so, and where the next page begins.
    ///
    /// # Errors
    /// Of RADOS.
    pub async fn members(
        &self,
        account: &str,
        kind: Kind,
        path: &str,
        after: &str,
        most: u32,
    ) -> Result<(Vec<Member>, Option<String>)> {
        self.members_at(&self.list_place(account, kind), path, after, most).await
    }

    /// As [`Gateway::members`], of any such list.
    pub(crate) async fn members_at(
        &self,
        at: &Place,
        path: &str,
        after: &str,
        most: u32,
    ) -> Result<(Vec<Member>, Option<String>)> {
        let op = ResourceListOp {
            marker: after.to_owned().into(),
            path_prefix: path.to_owned().into(),
            max: most.min(PAGE),
        };
        let vector = Vector::read().call("user", "account_resource_list", op.to_bytes());
        let what = "reading a list of the account";
        let answers = match self.objects.operate(at, vector).await {
            Err(Errno::NOENT) => return Ok((Vec::new(), None)),
            other => other.map_err(failed(what))?,
        };
        let data = answers.data(0).map_err(failed(what))?;
        let page: ResourceListed = decoded(&data, "A list of the account")?;
        let all = page.entries.iter().map(member).collect::<Result<Vec<_>>>()?;
        let next = page.truncated.then(|| String::from_utf8_lossy(&page.marker).into_owned());
        Ok((all, next))
    }
}

fn no_account() -> Error {
    Error::new(Code::NoSuchKey, "No account has this id.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids() {
        assert!(is_id("RGW00000000000000001"));
        for bad in
            ["", "RGW", "RGW0000000000000000", "RGW0000000000000000x", "XXX00000000000000001"]
        {
            assert!(!is_id(bad), "{bad}");
        }
    }
}
