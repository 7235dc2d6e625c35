//! Making, changing and removing users, as `radosgw-admin user` and `key` do.

use rgw_proto::{Code, Error, Result};
use types::{Bytes, Denc, Errno};

use crate::formats::{AccessKey, Owner, Pool, UserId, UserInfo};
use crate::gateway::{Gateway, failed};
use crate::meta::Attrs;
use crate::objects::{Objects, Place, PoolUse, Step, Vector};

/// Letters of an access key that is made up, and of a secret.
const ACCESS_KEY_LEN: usize = 20;
const SECRET_LEN: usize = 40;
/// Bytes of an id or key.
const NAME_BYTES_MAX: usize = 256;
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

fn check_name(what: &str, name: &str) -> Result<()> {
    let fits = |c: char| c.is_ascii_graphic() && !"$:/\\\"'".contains(c);
    if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.chars().all(fits) {
        let text = format!("{what} has 1 to 256 printable characters without $ : / \\ and quotes.");
        return Err(Error::new(Code::InvalidArgument, text));
    }
    Ok(())
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

    /// Has a key or address lead to a user.
    async fn lead(&self, at: &Place, uid: &str) -> Result<()> {
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

    async fn lead_no_more(&self, at: &Place) -> Result<()> {
        match self.objects.operate(at, Vector::write().step(Step::Remove)).await {
            Ok(_) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(failed("removing what leads to the user")(errno)),
        }
        self.tell(at).await;
        Ok(())
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
        if !new.id.tenant.is_empty() {
            check_name("A tenant", &new.id.tenant)?;
        }
        let pool = Pool { ns: String::new(), ..self.zone.users.uid.clone() };
        self.make_pool(&pool, PoolUse::Meta).await.map_err(failed("making the pool of users"))?;
        let uid = new.id.text();
        let key = self.new_key(new.key.0, new.key.1).await?;
        let email = (!new.email.is_empty()).then(|| new.email.to_lowercase());
        let email = email.map(|email| Place::new(&self.zone.users.email, email));
        if let Some(at) = &email
            && self.is_there(at).await?
        {
            return Err(Code::EmailExists.into());
        }
        let mut user = UserInfo {
            id: new.id,
            display_name: new.display_name,
            email: new.email,
            kind: KIND,
            created: self.objects.now(),
            ..UserInfo::default()
        };
        user.limits.buckets_max = BUCKETS_MAX;
        user.limits.op_mask = ALL_OPERATIONS;
        user.keys.s3.insert(key.id.clone(), key.clone());
        let at = self.user_place(&uid);
        match self.write_meta(&at, Self::user_bytes(&user), &Attrs::new(), None).await {
            Ok(()) => {}
            Err(Errno::EXIST) => return Err(Code::UserAlreadyExists.into()),
            Err(errno) => return Err(failed("writing the user")(errno)),
        }
        if let Some(at) = &email {
            self.lead(at, &uid).await?;
        }
        self.lead(&self.key_place(&key.id), &uid).await?;
        Ok(user)
    }

    /// A key that nobody has.
    async fn new_key(&self, id: Option<String>, secret: Option<String>) -> Result<AccessKey> {
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

    /// Reads a user, changes it, writes it.
    async fn change_user(
        &self,
        uid: &str,
        change: impl FnOnce(&mut UserInfo) -> Result<()>,
    ) -> Result<UserInfo> {
        let at = self.user_place(uid);
        let (mut user, attrs, version) = match self.user_raw(uid).await? {
            Some(found) => found,
            None => return Err(Code::NoSuchUser.into()),
        };
        change(&mut user)?;
        let written = self.write_meta(&at, Self::user_bytes(&user), &attrs, Some(&version)).await;
        written.map_err(failed("writing the user"))?;
        Ok(user)
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
        let change = |user: &mut UserInfo| {
            user.keys.s3.insert(added.id.clone(), added);
            Ok(())
        };
        self.change_user(uid, change).await?;
        self.lead(&self.key_place(&key.id), uid).await?;
        Ok(key)
    }

    /// Takes a key from a user.
    ///
    /// # Errors
    /// [`Code::NoSuchUser`]; [`Code::InvalidAccessKeyId`] where the user has no such key.
    pub async fn remove_key(&self, uid: &str, id: &str) -> Result<()> {
        let change = |user: &mut UserInfo| match user.keys.s3.remove(id) {
            Some(_) => Ok(()),
            None => Err(Code::InvalidAccessKeyId.into()),
        };
        self.change_user(uid, change).await?;
        self.lead_no_more(&self.key_place(id)).await
    }

    /// Removes a user who has no buckets.
    ///
    /// # Errors
    /// [`Code::NoSuchUser`]; [`Code::BucketNotEmpty`] where the user has buckets.
    pub async fn remove_user(&self, uid: &str) -> Result<()> {
        let Some((user, _, version)) = self.user_raw(uid).await? else {
            return Err(Code::NoSuchUser.into());
        };
        if !self.buckets_of(&Owner::User(user.id.clone())).await?.is_empty() {
            let text = "The user has buckets: remove them, or give them to another user, before.";
            return Err(Error::new(Code::BucketNotEmpty, text));
        }
        for id in user.keys.s3.keys() {
            self.lead_no_more(&self.key_place(id)).await?;
        }
        for name in user.keys.swift.keys() {
            self.lead_no_more(&Place::new(&self.zone.users.swift, name.clone())).await?;
        }
        if !user.email.is_empty() {
            let at = Place::new(&self.zone.users.email, user.email.to_lowercase());
            self.lead_no_more(&at).await?;
        }
        let list = Place::new(&self.zone.users.uid, format!("{uid}.buckets"));
        match self.objects.operate(&list, Vector::write().step(Step::Remove)).await {
            Ok(_) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(failed("removing the user's list of buckets")(errno)),
        }
        let removed = self.remove_meta(&self.user_place(uid), &version).await;
        removed.map_err(failed("removing the user"))
    }
}
