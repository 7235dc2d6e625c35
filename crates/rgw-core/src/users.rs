//! Making, changing and removing users, as `radosgw-admin user` and `key` do.

use rgw_proto::{Code, Error, Result};
use types::{Bytes, Denc, Errno};

use crate::accounts::{Kind, Member};
use crate::formats::{AccessKey, AccountInfo, Owner, Pool, UserId, UserInfo};
use crate::gateway::{Gateway, decoded, failed};
use crate::meta::Attrs;
use crate::objects::{Objects, Place, PoolUse, Step, Vector};

/// Letters of an access key that is made up, and of a secret.
const ACCESS_KEY_LEN: usize = 20;
const SECRET_LEN: usize = 40;
/// Bytes of an id or key.
const NAME_BYTES_MAX: usize = 256;
/// Bytes of a name for people, of an address or path.
const TEXT_BYTES_MAX: usize = 1_024;
/// Keys of a user, and subusers.
const KEYS_OF_USER_MAX: usize = 1_000;
/// How often a change is tried while others change the same user.
const TRIES: u32 = 10;
/// Buckets that a new user may have: `rgw_user_max_buckets`.
const BUCKETS_MAX: i32 = 1_000;
/// Reading, writing and deleting.
const ALL_OPERATIONS: u32 = 7;
/// `TYPE_RGW`.
const KIND: u32 = 1;

/// A user to be made.
#[derive(Clone, Debug, Default)]
pub struct NewUser {
    /// Its id.
    pub id: UserId,
    /// For people.
    pub display_name: String,
    /// May be empty.
    pub email: String,
    /// Access key and secret; what is missing is made up.
    pub key: (Option<String>, Option<String>),
}

/// A user as metadata tells of it.
#[derive(Clone, Debug)]
pub struct UserRecord {
    /// The user.
    pub user: UserInfo,
    /// Its attributes.
    pub attrs: Attrs,
    /// Number and tag of its version.
    pub version: (u64, String),
    /// When it was written.
    pub written: types::UTime,
}

fn check_name(what: &str, name: &str) -> Result<()> {
    let fits = |c: char| c.is_ascii_graphic() && !"$:/\\\"'".contains(c);
    if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.chars().all(fits) {
        let text = format!("{what} has 1 to 256 printable characters without $ : / \\ and quotes.");
        return Err(Error::new(Code::InvalidArgument, text));
    }
    Ok(())
}

/// What a user may be called.
fn check_user(user: &UserInfo) -> Result<()> {
    let bounded = [&user.display_name, &user.email, &user.path, &user.placement.default];
    let fits = |text: &&String| text.len() <= TEXT_BYTES_MAX && !text.chars().any(char::is_control);
    if !bounded.iter().all(fits) {
        let text = "A name, address, path or placement has at most 1024 bytes, all printable.";
        return Err(Error::new(Code::InvalidArgument, text));
    }
    let few = user.keys.s3.len() + user.keys.swift.len() <= KEYS_OF_USER_MAX
        && user.subusers.len() <= KEYS_OF_USER_MAX;
    if !few {
        let text = "A user has at most 1000 keys and 1000 subusers here.";
        return Err(Error::new(Code::InvalidArgument, text));
    }
    Ok(())
}

/// A user in the list of its account.
fn member_of(user: &UserInfo) -> Member {
    let path = if user.path.is_empty() { "/".to_owned() } else { user.path.clone() };
    Member { name: user.display_name.clone(), path, id: user.id.text() }
}

impl<O: Objects> Gateway<O> {
    fn key_place(&self, access_key: &str) -> Place {
        Place::new(&self.zone.users.keys, access_key)
    }

    fn user_place(&self, uid: &str) -> Place {
        Place::new(&self.zone.users.uid, uid)
    }

    async fn is_there(&self, at: &Place) -> Result<bool> {
        match self.objects.operate(at, Vector::read().step(Step::Stat)).await {
            Ok(_) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(errno) => Err(failed("looking for the user")(errno)),
        }
    }

    /// Has a key, an address or another name lead to a user or account.
    pub(crate) async fn lead(&self, at: &Place, uid: &str) -> Result<()> {
        let vector = Vector::write()
            .try_step(Step::Remove)
            .step(Step::Create(false))
            .step(Step::WriteFull(uid.to_owned().to_bytes()));
        let led = self.objects.operate(at, vector).await;
        self.cache.forget(at, self.objects.now());
        led.map_err(failed("writing what leads to the user"))?;
        self.tell(at).await;
        Ok(())
    }

    /// Removes what leads to a user or account, or a list of it; done where it is not there.
    pub(crate) async fn lead_no_more(&self, at: &Place) -> Result<()> {
        match self.objects.operate(at, Vector::write().step(Step::Remove)).await {
            Ok(_) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(failed("removing what leads to the user")(errno)),
        }
        self.tell(at).await;
        Ok(())
    }

    /// Writes a new user that nothing leads to.
    pub(crate) async fn write_user(&self, user: &UserInfo) -> types::OpResult<()> {
        let at = self.user_place(&user.id.text());
        self.write_meta(&at, Self::user_bytes(user), &Attrs::new(), None).await
    }

    fn user_bytes(user: &UserInfo) -> Bytes {
        let mut w = types::Writer::new(types::Features::ALL);
        w.str(&user.id.text());
        user.encode(&mut w);
        w.finish()
    }

    /// Makes a user with one key.
    ///
    /// # Errors
    /// [`Code::UserAlreadyExists`], [`Code::KeyExists`], [`Code::EmailExists`]; [`Code::InvalidArgument`].
    pub async fn make_user(&self, new: NewUser) -> Result<UserInfo> {
        check_name("A user's id", &new.id.id)?;
        let pool = Pool { ns: String::new(), ..self.zone.users.uid.clone() };
        self.make_pool(&pool, PoolUse::Meta).await.map_err(failed("making the pool of users"))?;
        let key = self.new_key(new.key.0, new.key.1).await?;
        let mut user = UserInfo {
            id: new.id,
            display_name: new.display_name,
            email: new.email,
            ..self.new_user()
        };
        user.keys.s3.insert(key.id.clone(), key);
        self.add_user(user).await
    }

    /// Random letters for a secret.
    pub fn new_secret(&self, len: usize) -> String {
        self.random_mixed(len)
    }

    /// The time.
    pub fn now(&self) -> types::UTime {
        self.objects.now()
    }

    /// A user as it is now, with attributes, version and time of its last write.
    ///
    /// # Errors
    /// [`Code::NoSuchUser`]; of RADOS.
    pub async fn user_record(&self, uid: &str) -> Result<UserRecord> {
        let Some((user, attrs, version)) = self.user_raw(uid).await? else {
            return Err(Code::NoSuchUser.into());
        };
        let written = self.meta_time(&self.user_place(uid)).await;
        let written = written.map_err(failed("reading the user"))?;
        let tag = String::from_utf8_lossy(&version.tag).into_owned();
        Ok(UserRecord { user, attrs, version: (version.ver, tag), written })
    }

    /// A user with the bounds of a new one.
    pub fn new_user(&self) -> UserInfo {
        let created = self.objects.now();
        let mut user = UserInfo { kind: KIND, created, path: "/".into(), ..UserInfo::default() };
        user.limits.buckets_max = BUCKETS_MAX;
        user.limits.op_mask = ALL_OPERATIONS;
        user
    }

    /// Makes a user as it is given, with its keys.
    ///
    /// # Errors
    /// [`Code::UserAlreadyExists`], [`Code::KeyExists`], [`Code::EmailExists`], [`Code::InvalidArgument`]; those of the
    /// account's list of users.
    pub async fn add_user(&self, user: UserInfo) -> Result<UserInfo> {
        check_name("A user's id", &user.id.id)?;
        if !user.id.tenant.is_empty() {
            check_name("A tenant", &user.id.tenant)?;
        }
        check_user(&user)?;
        let uid = user.id.text();
        self.check_leads(None, &user).await?;
        let account = self.account_of_user(&user).await?;
        let at = self.user_place(&uid);
        if self.is_there(&at).await? {
            return Err(Code::UserAlreadyExists.into());
        }
        // The name in the account first: it is what two requests could both want.
        if let Some(account) = &account {
            let most = account.users_roles_groups_max[0];
            self.add_member(&account.id, Kind::Users, &member_of(&user), true, most).await?;
        }
        match self.write_meta(&at, Self::user_bytes(&user), &Attrs::new(), None).await {
            Ok(()) => {}
            Err(Errno::EXIST) => return Err(Code::UserAlreadyExists.into()),
            Err(errno) => return Err(failed("writing the user")(errno)),
        }
        for at in self.leads_of(&user) {
            self.lead(&at, &uid).await?;
        }
        Ok(user)
    }

    /// The account that a user says to be of.
    async fn account_of_user(&self, user: &UserInfo) -> Result<Option<AccountInfo>> {
        if user.account_id.is_empty() {
            return Ok(None);
        }
        let account = self.account_now(&user.account_id).await?;
        let account = account.ok_or_else(|| {
            Error::new(Code::InvalidArgument, "No account has this id: make it before its users.")
        })?;
        if account.tenant != user.id.tenant {
            let text = "The user's tenant is another one than the account's.";
            return Err(Error::new(Code::InvalidArgument, text));
        }
        Ok(Some(account))
    }

    /// What leads to a user: keys, Swift's names, the address.
    fn leads_of(&self, user: &UserInfo) -> Vec<Place> {
        let pools = &self.zone.users;
        let s3 = user.keys.s3.keys().map(|id| Place::new(&pools.keys, id.clone()));
        let swift = user.keys.swift.keys().map(|name| Place::new(&pools.swift, name.clone()));
        let email = user.email.to_lowercase();
        let email = (!email.is_empty()).then(|| Place::new(&pools.email, email));
        s3.chain(swift).chain(email).collect()
    }

    /// Refuses keys and addresses of others.
    async fn check_leads(&self, before: Option<&UserInfo>, user: &UserInfo) -> Result<()> {
        let had = before.map(|user| self.leads_of(user)).unwrap_or_default();
        for at in self.leads_of(user).iter().filter(|at| !had.contains(at)) {
            match self.known_lead(at).await {
                Err(Errno::NOENT) => {}
                Err(errno) => return Err(failed("looking for the user")(errno)),
                Ok(data) if decoded::<String>(&data, "What leads to a user")? == user.id.text() => {
                }
                Ok(_) if at.pool == self.zone.users.email => return Err(Code::EmailExists.into()),
                Ok(_) => return Err(Code::KeyExists.into()),
            }
        }
        Ok(())
    }

    /// Has the lists of groups agree with a user's: who is in one is in its list by name.
    async fn move_between_groups(&self, old: &UserInfo, new: &UserInfo) -> Result<()> {
        let is_renamed = !old.display_name.eq_ignore_ascii_case(&new.display_name);
        for id in &old.group_ids {
            if is_renamed || !new.group_ids.contains(id) {
                let at = self.group_users_place(id);
                self.remove_member_at(&at, &old.display_name).await?;
            }
        }
        for id in &new.group_ids {
            if is_renamed || !old.group_ids.contains(id) {
                let at = self.group_users_place(id);
                self.add_member_at(&at, &member_of(new), false, 0).await?;
            }
        }
        Ok(())
    }

    /// Reads a user and its attributes, changes them, writes them, and has what leads to the user agree; again where
    /// another writer came between.
    ///
    /// # Errors
    /// [`Code::NoSuchUser`]; as [`Gateway::add_user`]; those of `change`.
    pub async fn alter_user(
        &self,
        uid: &str,
        mut change: impl FnMut(&mut UserInfo, &mut Attrs) -> Result<()>,
    ) -> Result<UserInfo> {
        let mut tries = 0;
        loop {
            let Some((old, mut attrs, version)) = self.user_raw(uid).await? else {
                return Err(Code::NoSuchUser.into());
            };
            let mut new = old.clone();
            change(&mut new, &mut attrs)?;
            if new != old {
                check_user(&new)?;
                self.check_leads(Some(&old), &new).await?;
            }
            let moved = (&old.account_id, member_of(&old)) != (&new.account_id, member_of(&new));
            let account = if moved { self.account_of_user(&new).await? } else { None };
            if let Some(account) = &account {
                let is_new = old.account_id != new.account_id
                    || !old.display_name.eq_ignore_ascii_case(&new.display_name);
                let most = account.users_roles_groups_max[0];
                let member = member_of(&new);
                self.add_member(&account.id, Kind::Users, &member, is_new, most).await?;
            }
            let at = self.user_place(uid);
            let bytes = Self::user_bytes(&new);
            match self.write_meta(&at, bytes, &attrs, Some(&version)).await {
                Ok(()) => {}
                Err(Errno::CANCELED) if tries < TRIES => {
                    tries += 1;
                    continue;
                }
                Err(errno) => return Err(failed("writing the user")(errno)),
            }
            let gone = old.account_id != new.account_id
                || !old.display_name.eq_ignore_ascii_case(&new.display_name);
            if gone && !old.account_id.is_empty() {
                self.remove_member(&old.account_id, Kind::Users, &old.display_name).await?;
            }
            self.move_between_groups(&old, &new).await?;
            let (before, after) = (self.leads_of(&old), self.leads_of(&new));
            for at in after.iter().filter(|at| !before.contains(at)) {
                self.lead(at, uid).await?;
            }
            for at in before.iter().filter(|at| !after.contains(at)) {
                self.lead_no_more(at).await?;
            }
            return Ok(new);
        }
    }

    /// A key that nobody has; what is missing is made up.
    ///
    /// # Errors
    /// [`Code::KeyExists`], [`Code::InvalidArgument`].
    pub async fn new_key(&self, id: Option<String>, secret: Option<String>) -> Result<AccessKey> {
        let id = id.unwrap_or_else(|| self.random_upper(ACCESS_KEY_LEN));
        check_name("An access key", &id)?;
        let key = secret.unwrap_or_else(|| self.random_mixed(SECRET_LEN));
        if key.is_empty() || key.len() > NAME_BYTES_MAX || key.chars().any(char::is_control) {
            let text = "A secret has 1 to 256 printable characters.";
            return Err(Error::new(Code::InvalidArgument, text));
        }
        if self.is_there(&self.key_place(&id)).await? {
            return Err(Code::KeyExists.into());
        }
        let (subuser, created) = (String::new(), self.objects.now());
        Ok(AccessKey { id, key, subuser, is_active: true, created })
    }

    /// Gives a user one more key.
    ///
    /// # Errors
    /// [`Code::NoSuchUser`], [`Code::KeyExists`], [`Code::InvalidArgument`].
    pub async fn add_key(
        &self,
        uid: &str,
        id: Option<String>,
        secret: Option<String>,
    ) -> Result<AccessKey> {
        let key = self.new_key(id, secret).await?;
        let added = key.clone();
        let change = |user: &mut UserInfo, _: &mut Attrs| {
            user.keys.s3.insert(added.id.clone(), added.clone());
            Ok(())
        };
        self.alter_user(uid, change).await?;
        Ok(key)
    }

    /// Takes a key from a user.
    ///
    /// # Errors
    /// [`Code::NoSuchUser`]; [`Code::InvalidAccessKeyId`] where the user has no such key.
    pub async fn remove_key(&self, uid: &str, id: &str) -> Result<()> {
        let change = |user: &mut UserInfo, _: &mut Attrs| match user.keys.s3.remove(id) {
            Some(_) => Ok(()),
            None => Err(Code::InvalidAccessKeyId.into()),
        };
        self.alter_user(uid, change).await.map(drop)
    }

    /// Removes a user who has no buckets.
    ///
    /// # Errors
    /// [`Code::NoSuchUser`]; [`Code::BucketNotEmpty`] where the user has buckets.
    pub async fn remove_user(&self, uid: &str) -> Result<()> {
        let Some((user, _, version)) = self.user_raw(uid).await? else {
            return Err(Code::NoSuchUser.into());
        };
        // Buckets of users of an account are the account's.
        let owner = Owner::User(user.id.clone());
        if user.account_id.is_empty() && !self.buckets_of(&owner).await?.is_empty() {
            let text = "The user has buckets: remove them, or give them to another user, before.";
            return Err(Error::new(Code::BucketNotEmpty, text));
        }
        for at in self.leads_of(&user) {
            self.lead_no_more(&at).await?;
        }
        let list = Place::new(&self.zone.users.uid, format!("{uid}.buckets"));
        match self.objects.operate(&list, Vector::write().step(Step::Remove)).await {
            Ok(_) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(failed("removing the user's list of buckets")(errno)),
        }
        let removed = self.remove_meta(&self.user_place(uid), &version).await;
        removed.map_err(failed("removing the user"))?;
        let gone = UserInfo { group_ids: Default::default(), ..user.clone() };
        self.move_between_groups(&user, &gone).await?;
        if !user.account_id.is_empty() {
            self.remove_member(&user.account_id, Kind::Users, &user.display_name).await?;
        }
        Ok(())
    }
}
