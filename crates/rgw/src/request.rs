//! A request, from its first line to the operation that is allowed.

use std::cell::RefCell;
use std::rc::Rc;

use rgw_core::formats::{AccountInfo, Owner as BucketOwner, UserInfo};
use rgw_core::gateway::{Gateway, attr_text};
use rgw_core::meta::{Attrs, BucketAt};
use rgw_core::object::ObjectAt;
use rgw_core::ratelimit::Ratelimit;
use rgw_proto::acl::{Acl, Owner};
use rgw_proto::authorize::{
    self, BucketFacts, Identity, PublicAccessBlock, Request, Sender, authorize,
};
use rgw_proto::name::{BucketName, Key};
use rgw_proto::operation::Operation;
use rgw_proto::policy::{Context, Kind, Policy, Principal};
use rgw_proto::request::{Head, Target, virtual_bucket};
use rgw_proto::session::Session;
use rgw_proto::sig::{Claim, Facts, Proof};
use rgw_proto::time::Time;
use rgw_proto::{Code, Error, Result};
use types::{Denc, Reader};

use crate::OnRados;
use crate::acl;
use crate::iam::policies::{GROUP, Held, USER};
use crate::record::{self, Noted};
use crate::server::Server;

/// A request whose sender is known.
#[derive(Clone)]
pub struct Asked {
    /// Its head.
    pub head: Head,
    /// What it is about.
    pub target: Target,
    /// What it asks for.
    pub operation: Operation,
    /// That the signature is right; `None` of anonymous requests.
    pub proof: Option<Proof>,
    /// Who asks.
    pub sender: Sender,
    /// The user; `None` of anonymous requests.
    pub user: Option<UserInfo>,
    /// The user's account.
    pub account: Option<AccountInfo>,
    /// The user's own limit of rates.
    pub ratelimit: Option<Ratelimit>,
    /// How it came.
    pub came: Came,
}

/// How a request came.
#[derive(Clone, Debug)]
pub struct Came {
    /// The request's id.
    pub id: String,
    /// Address of the sender.
    pub peer: String,
    /// Whether over TLS.
    pub is_secret: bool,
    /// What the logs learn of it.
    pub noted: Rc<RefCell<Noted>>,
}

/// The time in whole seconds.
pub fn now() -> Time {
    Time(i64::try_from(rt::now().wall_ns / 1_000_000_000).unwrap_or(i64::MAX))
}

/// What a root user of an account may do within it.
const ALL: &str = r#"{"Statement": {"Effect": "Allow", "Action": "*", "Resource": "*"}}"#;
/// `TYPE_ROOT`: the root user of an account.
pub const ROOT: u32 = 6;
/// The attribute of users and buckets that has their limit of rates.
pub const RATELIMIT: &str = "ratelimit";

/// Policies of AWS that are attached by name and that this gateway's operations ask for; others allow nothing here.
/// Source: `rgw_iam_managed_policy.cc`.
pub const MANAGED: [(&str, &str); 6] = [
    (
        "arn:aws:iam::aws:policy/IAMFullAccess",
        r#"{"Statement": {"Effect": "Allow", "Action": "iam:*", "Resource": "*"}}"#,
    ),
    (
        "arn:aws:iam::aws:policy/IAMReadOnlyAccess",
        r#"{"Statement": {"Effect": "Allow", "Action": ["iam:Get*", "iam:List*"], "Resource": "*"}}"#,
    ),
    (
        "arn:aws:iam::aws:policy/AmazonSNSFullAccess",
        r#"{"Statement": {"Effect": "Allow", "Action": "sns:*", "Resource": "*"}}"#,
    ),
    (
        "arn:aws:iam::aws:policy/AmazonSNSReadOnlyAccess",
        r#"{"Statement": {"Effect": "Allow", "Action": ["sns:GetTopicAttributes", "sns:List*"], "Resource": "*"}}"#,
    ),
    (
        "arn:aws:iam::aws:policy/AmazonS3FullAccess",
        r#"{"Statement": {"Effect": "Allow", "Action": "s3:*", "Resource": "*"}}"#,
    ),
    (
        "arn:aws:iam::aws:policy/AmazonS3ReadOnlyAccess",
        r#"{"Statement": {"Effect": "Allow", "Action": ["s3:Get*", "s3:List*", "s3:Describe*"], "Resource": "*"}}"#,
    ),
];

/// A user's identity, as policies and lists name it, with the user's own policies.
///
/// # Errors
/// [`Code::AccessDenied`] where the policies cannot be read: what one denies must not be allowed.
fn identity(user: &UserInfo, attrs: &Attrs) -> Result<Identity> {
    let account =
        if user.account_id.is_empty() { user.id.tenant.clone() } else { user.account_id.clone() };
    let in_account = !user.account_id.is_empty();
    let id = if in_account { user.account_id.clone() } else { user.id.text() };
    let mut policies = Vec::new();
    if in_account && user.kind == ROOT {
        policies.push(Policy::parse(ALL, Kind::Identity)?);
    }
    let held = Held::of(attrs, &USER);
    let bad = |_| Error::new(Code::AccessDenied, "The user's policies cannot be read.");
    policies.extend(held.map_err(bad)?.parsed()?);
    // Users of accounts are named as IAM names them.
    let name = match in_account {
        true => format!("{}{}", user.path.trim_start_matches('/'), user.display_name),
        false => user.id.id.clone(),
    };
    Ok(Identity {
        principal: Principal::User { account, name },
        id: Some(id),
        in_account,
        is_admin: user.limits.is_admin,
        policies,
        session_policies: Vec::new(),
        mask: authorize::ALL,
    })
}

/// As [`identity`], with the policies of the user's groups.
///
/// # Errors
/// As there; of RADOS.
pub async fn identity_of(
    gateway: &Gateway<OnRados>,
    user: &UserInfo,
    attrs: &Attrs,
) -> Result<Identity> {
    let mut identity = identity(user, attrs)?;
    let bad =
        |_| Error::new(Code::AccessDenied, "The policies of the user's groups cannot be read.");
    for id in &user.group_ids {
        // A group that is gone gives and denies nothing.
        if let Some((_, attrs)) = gateway.group(id).await? {
            identity.policies.extend(Held::of(&attrs, &GROUP).map_err(bad)?.parsed()?);
        }
    }
    Ok(identity)
}

/// The secret of a user's access key. A key of a subuser would have that subuser's rights only: none is taken here.
///
/// # Errors
/// [`Code::InvalidAccessKeyId`] where the key is not the user's, or not active; [`Code::AccessDenied`] of subusers.
pub fn secret_of<'a>(user: &'a UserInfo, access_key: &str) -> Result<&'a str> {
    let key = user.keys.s3.get(access_key).filter(|key| key.is_active);
    let key = key.ok_or_else(|| Error::from(Code::InvalidAccessKeyId))?;
    if !key.subuser.is_empty() {
        let text = "Keys of subusers are not for S3 here: use a key of the user.";
        return Err(Error::new(Code::AccessDenied, text));
    }
    Ok(&key.key)
}

/// The account that a user belongs to.
///
/// # Errors
/// As [`Gateway::account`].
pub async fn account_of(
    gateway: &Gateway<OnRados>,
    user: &UserInfo,
) -> Result<Option<AccountInfo>> {
    match user.account_id.as_str() {
        "" => Ok(None),
        id => gateway.account(id).await.map(Some),
    }
}

/// Refuses what a user's mask of operations leaves out: 1 reads, 2 writes, 4 deletes.
///
/// # Errors
/// [`Code::AccessDenied`].
pub fn check_mask(user: &UserInfo, operation: Operation) -> Result<()> {
    let bit = if operation.is_delete() {
        4
    } else if operation.is_read() {
        1
    } else {
        2
    };
    if user.limits.op_mask & bit == 0 {
        let text =
            "The user's mask of operations (radosgw-admin user modify --op-mask) leaves this out.";
        return Err(Error::new(Code::AccessDenied, text));
    }
    Ok(())
}

/// The limit of a user or bucket that has one of its own.
///
/// # Errors
/// [`Code::InternalError`] where it cannot be read.
pub fn ratelimit_of(attrs: &Attrs) -> Result<Option<Ratelimit>> {
    let Some(bytes) = attrs.get(RATELIMIT) else { return Ok(None) };
    let read = Ratelimit::decode(&mut Reader::shared(bytes));
    read.map(Some).map_err(|_| Error::new(Code::InternalError, "The rate limit cannot be read."))
}

/// Whose signature was right: a user, or a session.
pub struct Known {
    /// The user; of a role's session the user of what it makes.
    pub user: UserInfo,
    /// The user's attributes; none of a role's session.
    pub attrs: Attrs,
    /// The account that it belongs to.
    pub account: Option<AccountInfo>,
    /// As policies and lists name it.
    pub identity: Identity,
    /// Who signed in the end: `[TENANT$]UID` of a user, also behind a session.
    pub asker: String,
    /// Whether it asks with all its rights, by a key of its own.
    pub may_all: bool,
}

/// Finds out who sent a request; `None` for anonymous ones. `body_sha256` is that of a form, in hex.
///
/// # Errors
/// Where the request claims to be somebody's and does not prove it; [`Code::UserSuspended`].
pub async fn authenticate(
    server: &Server,
    head: &Head,
    claim: &Claim,
    came: &Came,
    body_sha256: Option<&str>,
) -> Result<Option<(Known, Proof)>> {
    let Some(access_key) = claim.access_key() else { return Ok(None) };
    let gateway = &server.gateway;
    let names = if came.noted.borrow().is_site {
        server.settings.websites.as_deref().unwrap_or_default()
    } else {
        &server.settings.dns_names
    };
    let bucket_of_host = virtual_bucket(&head.host(), names);
    let facts = Facts { bucket_of_host: bucket_of_host.as_deref(), body_sha256 };
    let (known, proof) = if let Some(token) = claim.token() {
        let Some(sealer) = &server.settings.sealer else {
            let text = "Session tokens are not taken here (rgw_sts_key, rgw_s3_auth_use_sts).";
            return Err(Error::new(Code::InvalidToken, text));
        };
        let session = sealer.open(token, now())?;
        if session.access_key != access_key {
            return Err(Code::InvalidAccessKeyId.into());
        }
        let proof = claim.verify(head, &session.secret, now(), &facts)?;
        (of_session(gateway, &session).await?, proof)
    } else {
        let (user, attrs) = gateway.user_by_key(access_key).await?;
        let proof = claim.verify(head, secret_of(&user, access_key)?, now(), &facts)?;
        if user.limits.is_suspended {
            return Err(Code::UserSuspended.into());
        }
        let identity = identity_of(gateway, &user, &attrs).await?;
        let account = account_of(gateway, &user).await?;
        let asker = user.id.text();
        (Known { user, attrs, account, identity, asker, may_all: true }, proof)
    };
    {
        let mut noted = came.noted.borrow_mut();
        (noted.user, noted.access_key) = (known.user.id.text(), access_key.to_owned());
    }
    Ok(Some((known, proof)))
}

/// Who a session is: its user with no more rights than that, or its role. Both must still be there.
async fn of_session(gateway: &Gateway<OnRados>, session: &Session) -> Result<Known> {
    let gone = || Error::new(Code::InvalidToken, "The session's user or role is gone.");
    let asker = session.user.clone();
    let found = match asker.as_str() {
        // Whom an identity provider knows: of roles of accounts alone.
        "" if !session.role.is_empty() => None,
        uid => Some(gateway.known_user(uid).await?.ok_or_else(gone)?),
    };
    if found.as_ref().is_some_and(|(user, _)| user.limits.is_suspended) {
        return Err(Code::UserSuspended.into());
    }
    let bad = |_| Error::new(Code::AccessDenied, "The session's policy cannot be read.");
    let session_policies = match session.policy.as_str() {
        "" => Vec::new(),
        text => vec![Policy::parse(text, Kind::Identity).map_err(bad)?],
    };
    if session.role.is_empty() {
        let (user, attrs) = found.ok_or_else(gone)?;
        let own = identity_of(gateway, &user, &attrs).await?;
        let identity = Identity { is_admin: false, session_policies, ..own };
        let account = account_of(gateway, &user).await?;
        return Ok(Known { user, attrs, account, identity, asker, may_all: false });
    }
    let role = gateway.role(&session.role).await?.ok_or_else(gone)?;
    let bad = |_| Error::new(Code::AccessDenied, "The role's policies cannot be read.");
    let mut policies = Vec::new();
    for text in role.policies.values() {
        policies.push(Policy::parse(text, Kind::Identity).map_err(bad)?);
    }
    for (_, text) in MANAGED.iter().filter(|(arn, _)| role.managed.contains(*arn)) {
        policies.push(Policy::parse(text, Kind::Identity)?);
    }
    let in_account = !role.account_id.is_empty();
    let account = if in_account { role.account_id.clone() } else { role.tenant.clone() };
    let name = format!("{}{}", role.path.trim_start_matches('/'), role.name);
    let identity = Identity {
        principal: Principal::Role { account, name },
        id: in_account.then(|| role.account_id.clone()),
        in_account,
        is_admin: false,
        policies,
        session_policies,
        mask: authorize::ALL,
    };
    let (user, account) = if in_account {
        let account = gateway.account(&role.account_id).await?;
        let mut made = gateway.new_user();
        (made.id.id, made.id.tenant) = (role.id.clone(), account.tenant.clone());
        (made.display_name, made.account_id) = (role.name.clone(), role.account_id.clone());
        (made, Some(account))
    } else {
        // What it makes is its user's; the user's own rights it has not.
        let (user, _) = found.ok_or_else(gone)?;
        (UserInfo { account_id: String::new(), ..user }, None)
    };
    Ok(Known { user, attrs: Attrs::new(), account, identity, asker, may_all: false })
}

/// Values of condition keys that any request has, whoever sent it.
pub fn context_of_sender(head: &Head, came: &Came) -> Context {
    let mut context = Context::default();
    context.add("aws:SourceIp", came.peer.clone());
    context.add("aws:SecureTransport", came.is_secret.to_string());
    context.add("aws:CurrentTime", now().to_string());
    context.add("aws:EpochTime", now().0.to_string());
    for (header, key) in [("user-agent", "aws:UserAgent"), ("referer", "aws:Referer")] {
        if let Some(value) = head.headers.get(header) {
            context.add(key, value);
        }
    }
    context
}

/// Values of condition keys that any request of a user has.
pub fn context_of(head: &Head, came: &Came, user: &UserInfo) -> Context {
    let mut context = context_of_sender(head, came);
    context.add("aws:username", user.id.id.clone());
    context.add("aws:userid", user.id.text());
    context
}

impl Asked {
    /// Finds out what a request asks for and who sent it.
    ///
    /// # Errors
    /// What is wrong with it.
    pub async fn of(server: &Server, head: Head, came: Came) -> Result<Self> {
        let target = Target::of(&head, &server.settings.dns_names)?;
        let operation = Operation::of(&head, &target)?;
        Self::of_known(server, head, came, target, operation).await
    }

    /// As [`Asked::of`], where it is known what is asked for.
    ///
    /// # Errors
    /// As there.
    pub(crate) async fn of_known(
        server: &Server,
        head: Head,
        came: Came,
        target: Target,
        operation: Operation,
    ) -> Result<Self> {
        {
            let mut noted = came.noted.borrow_mut();
            noted.operation = record::name(operation);
            noted.bucket = target.bucket().map(|b| b.name.clone()).unwrap_or_default();
        }
        let claim = Claim::of(&head)?;
        let known = authenticate(server, &head, &claim, &came, None).await?;
        let Some((known, proof)) = known else {
            let sender = Sender::anonymous(&claim, operation)?;
            let (proof, user, account, ratelimit) = (None, None, None, None);
            return Ok(Self {
                head,
                target,
                operation,
                proof,
                sender,
                user,
                account,
                ratelimit,
                came,
            });
        };
        let ratelimit = ratelimit_of(&known.attrs)?;
        let Known { user, account, identity, .. } = known;
        let sender = Sender::proven(&proof, &claim, operation, identity)?;
        check_mask(&user, operation)?;
        let (proof, user) = (Some(proof), Some(user));
        Ok(Self { head, target, operation, proof, sender, user, account, ratelimit, came })
    }

    /// The user, who is known.
    ///
    /// # Errors
    /// [`Code::AccessDenied`] of anonymous requests.
    pub fn user(&self) -> Result<&UserInfo> {
        self.user.as_ref().ok_or_else(|| Code::AccessDenied.into())
    }

    /// Who owns what this request makes.
    pub fn owner(&self) -> Owner {
        match (&self.account, &self.user) {
            (Some(account), _) => {
                Owner { id: account.id.clone(), display_name: account.name.clone() }
            }
            (None, Some(user)) => {
                Owner { id: user.id.text(), display_name: user.display_name.clone() }
            }
            (None, None) => Owner { id: "anonymous".into(), display_name: String::new() },
        }
    }

    /// Whether the bucket is the sender's, or the sender's account's.
    fn owns(&self, bucket: &BucketAt) -> bool {
        self.sender.identity().id.as_deref() == Some(bucket.info.owner.text().as_str())
    }

    /// Whether the sender is the user who owns the bucket, or the root user of the account that does.
    pub fn owns_alone(&self, bucket: &BucketAt) -> bool {
        let may = |user: &UserInfo| user.account_id.is_empty() || user.kind == ROOT;
        self.owns(bucket) && self.user.as_ref().is_some_and(may)
    }

    /// The bucket's name; its tenant is the user's where none is named.
    ///
    /// # Errors
    /// [`Code::InvalidBucketName`] where no bucket is named.
    pub fn bucket_name(&self) -> Result<BucketName> {
        let name = self.target.bucket().ok_or_else(|| Error::from(Code::InvalidBucketName))?;
        Ok(self.with_tenant(name))
    }

    /// A name with the tenant that is meant.
    pub fn with_tenant(&self, name: &BucketName) -> BucketName {
        let mut name = name.clone();
        if name.tenant.is_empty()
            && let Some(user) = &self.user
        {
            name.tenant = user.id.tenant.clone();
        }
        name
    }

    /// The object's key.
    ///
    /// # Errors
    /// [`Code::InvalidRequest`] where no object is named.
    pub fn key(&self) -> Result<&Key> {
        match &self.target {
            Target::Object(_, key) => Ok(key),
            _ => Err(Error::new(Code::InvalidRequest, "The request names no object.")),
        }
    }

    /// The version that is named.
    pub fn version(&self) -> Option<&str> {
        self.head.query.get("versionId").filter(|v| !v.is_empty())
    }

    /// Whether the sender pays for a bucket of another, whose requesters pay.
    pub fn pays(&self, bucket: &BucketAt) -> bool {
        bucket.info.requester_pays && !self.owns(bucket) && !self.sender.identity().is_admin
    }

    /// Refuses who does not say to pay.
    fn check_payer(&self, bucket: &BucketAt) -> Result<()> {
        let says = self.head.headers.get("x-amz-request-payer");
        let says = says.or_else(|| self.head.query.get("x-amz-request-payer"));
        let pays = self.user.is_some() && says == Some("requester");
        if self.pays(bucket) && !pays {
            let text =
                "The requester pays in this bucket: say so with x-amz-request-payer: requester.";
            return Err(Error::new(Code::AccessDenied, text));
        }
        Ok(())
    }

    /// Values of condition keys.
    pub(crate) fn context(&self) -> Context {
        let mut context = Context::default();
        context.add("aws:SourceIp", self.came.peer.clone());
        context.add("aws:SecureTransport", self.came.is_secret.to_string());
        context.add("aws:CurrentTime", now().to_string());
        context.add("aws:EpochTime", now().0.to_string());
        if let Some(user) = &self.user {
            context.add("aws:username", user.id.id.clone());
            context.add("aws:userid", user.id.text());
        }
        for (header, key) in [
            ("user-agent", "aws:UserAgent"),
            ("referer", "aws:Referer"),
            ("x-amz-acl", "s3:x-amz-acl"),
            ("x-amz-copy-source", "s3:x-amz-copy-source"),
            ("x-amz-metadata-directive", "s3:x-amz-metadata-directive"),
            ("x-amz-storage-class", "s3:x-amz-storage-class"),
        ] {
            if let Some(value) = self.head.headers.get(header) {
                context.add(key, value);
            }
        }
        for (parameter, key) in [
            ("prefix", "s3:prefix"),
            ("delimiter", "s3:delimiter"),
            ("max-keys", "s3:max-keys"),
            ("versionId", "s3:VersionId"),
        ] {
            if let Some(value) = self.head.query.get(parameter) {
                context.add(key, value);
            }
        }
        context
    }

    /// Asks whether this request may do its operation on a bucket, or on an object of it.
    ///
    /// # Errors
    /// [`Code::AccessDenied`].
    pub fn check(
        &self,
        bucket: Option<&BucketAt>,
        key: Option<(&str, Option<&str>)>,
        object: Option<&ObjectAt>,
    ) -> Result<()> {
        self.check_as(self.sender.clone(), bucket, key, object)
    }

    /// As [`Asked::check`], for another operation that this one needs too.
    ///
    /// # Errors
    /// [`Code::AccessDenied`].
    pub fn check_as(
        &self,
        sender: Sender,
        bucket: Option<&BucketAt>,
        key: Option<(&str, Option<&str>)>,
        object: Option<&ObjectAt>,
    ) -> Result<()> {
        if let Some(bucket) = bucket {
            self.check_payer(bucket)?;
        }
        let context = self.context();
        let name = bucket.map(|b| (b.info.bucket.tenant.as_str(), b.info.bucket.name.as_str()));
        let resource = match (name, key) {
            (None, _) => match self.target.bucket() {
                Some(name) => format!("arn:aws:s3::{}:{}", name.tenant, name.name),
                None => "arn:aws:s3:::*".to_owned(),
            },
            (Some((tenant, name)), None) => format!("arn:aws:s3::{tenant}:{name}"),
            (Some((tenant, name)), Some((key, _))) => format!("arn:aws:s3::{tenant}:{name}/{key}"),
        };
        let action = sender.operation().action(key.is_some_and(|k| k.1.is_some()));
        let object_acl = object.map(|o| acl::of(&o.attrs));
        let rules = bucket.map(Rules::of).transpose()?;
        let bucket = rules.as_ref().map(Rules::facts);
        authorize(&Request {
            who: &sender,
            action,
            resource: &resource,
            bucket,
            object_acl: object_acl.as_ref(),
            context: &context,
            referer: self.head.headers.get("referer").unwrap_or_default(),
        })
    }
}

/// What a bucket says of who may do what.
pub struct Rules {
    owner: String,
    account: String,
    acl: Acl,
    /// Its policy.
    pub policy: Option<Policy>,
    /// Its block of public access.
    pub block: PublicAccessBlock,
}

impl Rules {
    /// Reads them.
    ///
    /// # Errors
    /// [`Code::InternalError`] where the policy or block that is stored cannot be read: then nobody may do anything.
    pub fn of(bucket: &BucketAt) -> Result<Self> {
        let (owner, account) = match &bucket.info.owner {
            BucketOwner::User(user) => (user.text(), user.tenant.clone()),
            BucketOwner::Account(id) => (id.clone(), id.clone()),
        };
        let garbled = |what: &str| {
            Error::new(Code::InternalError, format!("The bucket's {what} cannot be read."))
        };
        let policy = bucket.attrs.get("iam-policy").map(|bytes| {
            Policy::parse(&attr_text(bytes), Kind::Resource).map_err(|_| garbled("policy"))
        });
        let block = stored_block(&bucket.attrs).map_err(|_| garbled("block of public access"))?;
        Ok(Self {
            owner,
            account,
            acl: acl::of(&bucket.attrs),
            policy: policy.transpose()?,
            block: block.unwrap_or_default(),
        })
    }

    fn facts(&self) -> BucketFacts<'_> {
        BucketFacts {
            owner: &self.owner,
            account: &self.account,
            acl: &self.acl,
            policy: self.policy.as_ref(),
            block: self.block,
        }
    }
}

/// The block of public access that is stored: `PublicAccessBlockConfiguration`, `ENCODE_START(1, 1)`.
///
/// # Errors
/// Where the bytes are none.
pub fn stored_block(
    attrs: &Attrs,
) -> std::result::Result<Option<PublicAccessBlock>, types::DecodeError> {
    let Some(bytes) = attrs.get("public-access") else { return Ok(None) };
    let mut r = Reader::shared(bytes);
    r.framed("PublicAccessBlockConfiguration", 1, |r, _| {
        Ok(Some(PublicAccessBlock {
            block_acls: r.bool()?,
            ignore_acls: r.bool()?,
            block_policy: r.bool()?,
            restrict_buckets: r.bool()?,
        }))
    })
}

/// How a block of public access is stored.
pub fn block_bytes(block: PublicAccessBlock) -> types::Bytes {
    let mut w = types::Writer::new(types::Features::ALL);
    w.framed(1, 1, |w| {
        block.block_acls.encode(w);
        block.ignore_acls.encode(w);
        block.block_policy.encode(w);
        block.restrict_buckets.encode(w);
    });
    w.finish()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use rgw_proto::policy::{Ask, Verdict};

    use super::*;

    /// What a user's own policies say to an action.
    fn says(identity: &Identity, action: &str) -> Vec<Verdict> {
        let context = Context::default();
        let resource = "arn:aws:s3:::b/k";
        let ask = Ask { who: &identity.principal, action, resource, context: &context };
        identity.policies.iter().map(|policy| policy.judge(&ask)).collect()
    }

    #[test]
    fn users_of_accounts() {
        let mut user = UserInfo { display_name: "Ann".into(), ..UserInfo::default() };
        user.id.id = "1234".into();
        let plain = identity(&user, &Attrs::new()).unwrap();
        assert_eq!((plain.id.as_deref(), plain.in_account), (Some("1234"), false));
        (user.account_id, user.path) = ("RGW1".into(), "/shop/".into());
        let mut w = types::Writer::new(types::Features::ALL);
        let arns = [
            "arn:aws:iam::aws:policy/AmazonS3ReadOnlyAccess",
            "arn:aws:iam::aws:policy/AmazonEC2FullAccess",
        ];
        w.framed(1, 1, |w| arns.map(str::to_owned).into_iter().collect::<BTreeSet<_>>().encode(w));
        let attrs: Attrs = [("managed-policy".to_owned(), w.finish())].into();
        let clerk = identity(&user, &attrs).unwrap();
        let name = Principal::User { account: "RGW1".into(), name: "shop/Ann".into() };
        assert_eq!((&clerk.principal, clerk.id.as_deref()), (&name, Some("RGW1")));
        assert_eq!(says(&clerk, "s3:GetObject"), [Verdict::Allow]);
        assert_eq!(says(&clerk, "s3:PutObject"), [Verdict::Silent]);
        user.kind = ROOT;
        assert_eq!(
            says(&identity(&user, &Attrs::new()).unwrap(), "s3:PutObject"),
            [Verdict::Allow]
        );
        let garbled: Attrs =
            [("managed-policy".to_owned(), types::Bytes::from_static(b"\x01\x01"))].into();
        assert_eq!(identity(&user, &garbled).unwrap_err().code, Code::AccessDenied);
    }
}
