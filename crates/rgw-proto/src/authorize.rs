//! The one place that says yes.
//!
//! ```text
//!   administrator ─────────────────────────────────> yes
//!   a deny in any policy ──────────────────────────> no
//!   same account: bucket's policy or user's ───────> yes
//!   other account: bucket's policy and user's ─────> yes
//!   no account: bucket's policy, or the user's ────> yes
//!   the owner's user without an account, or an ACL ─> yes
//!   else ──────────────────────────────────────────> no
//! ```
//!
//! A subuser's key bounds all of this. A session's policy bounds whatever its role's policies allow. Public access blocks take away what a public policy
//! or a grant to a group gives.
//!
//! Source: `rgw_common.cc` (`evaluate_iam_policies`, `verify_bucket_permission`, `verify_object_permission`).

use crate::acl::{Acl, Permission};
use crate::error::{Code, Error, Result};
use crate::operation::Operation;
use crate::policy::{Ask, Context, Policy, Principal, Verdict};
use crate::sig::{Claim, Proof};
use crate::swift::token::Ticket;
use crate::swift::{self, temp_url};

/// Who asks: proven by a signature, or nobody.
#[derive(Clone, Debug)]
pub struct Identity {
    /// As policies name it.
    pub principal: Principal,
    /// As ACLs and owners name it: `[TENANT$]UID` or an account's id; `None` for the anonymous user.
    pub id: Option<String>,
    /// Whether the user belongs to an account (and not only to a tenant).
    pub in_account: bool,
    /// Whether it is an administrator, or a system user.
    pub is_admin: bool,
    /// Policies of the user, its groups or its role.
    pub policies: Vec<Policy>,
    /// The session's own policies; empty where there are none.
    pub session_policies: Vec<Policy>,
    /// What a subuser's key lets do, in the bits of lists: 1 reads, 2 writes; [`ALL`] for everything else.
    pub mask: u32,
}

/// The mask that takes nothing away: full control.
pub const ALL: u32 = 15;

impl Identity {
    /// Nobody known.
    #[must_use]
    pub fn anonymous() -> Self {
        Self {
            principal: Principal::Anonymous,
            id: None,
            in_account: false,
            is_admin: false,
            policies: Vec::new(),
            session_policies: Vec::new(),
            mask: ALL,
        }
    }
}

/// The switches of a public access block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "S3's four switches")]
pub struct PublicAccessBlock {
    /// No ACL that grants to a group is taken.
    pub block_acls: bool,
    /// Grants to groups count for nothing.
    pub ignore_acls: bool,
    /// No public policy is taken.
    pub block_policy: bool,
    /// A public policy serves the bucket's owner alone.
    pub restrict_buckets: bool,
}

/// What is known of the bucket, as it is stored.
#[derive(Clone, Copy, Debug)]
pub struct BucketFacts<'a> {
    /// Its owner, as in [`Identity::id`].
    pub owner: &'a str,
    /// Its owner's account or tenant.
    pub account: &'a str,
    /// Its list.
    pub acl: &'a Acl,
    /// Its policy.
    pub policy: Option<&'a Policy>,
    /// Its public access block.
    pub block: PublicAccessBlock,
}

/// Who sent a request and what it asks for, as its signature proves. There is no other way to make one, so that nothing
/// is judged that was not proven.
#[derive(Clone, Debug)]
pub struct Sender {
    identity: Identity,
    operation: Operation,
}

impl Sender {
    /// The user whose signature was right.
    ///
    /// # Errors
    /// [`Code::AccessDenied`] where the signature does not cover what chose the operation.
    pub fn proven(
        _proof: &Proof,
        claim: &Claim,
        operation: Operation,
        identity: Identity,
    ) -> Result<Self> {
        operation.check_covered(claim)?;
        Ok(Self { identity, operation })
    }

    /// The user whose signature over a form's policy was right.
    #[must_use]
    pub fn of_form(_proof: &Proof, identity: Identity) -> Self {
        Self { identity, operation: Operation::PostObject }
    }

    /// Nobody known.
    ///
    /// # Errors
    /// [`Code::AccessDenied`] where the request claims to be somebody's.
    pub fn anonymous(claim: &Claim, operation: Operation) -> Result<Self> {
        match claim {
            Claim::Anonymous => Ok(Self { identity: Identity::anonymous(), operation }),
            _ => Err(Code::AccessDenied.into()),
        }
    }

    /// The subuser whose token was right.
    #[must_use]
    pub fn of_token(_ticket: &Ticket, operation: Operation, identity: Identity) -> Self {
        Self { identity, operation }
    }

    /// Who has a temporary URL: the user of its key, for the URL's own operation on its own object.
    ///
    /// # Errors
    /// [`Code::AccessDenied`] for what no temporary URL allows: all that is not about one object.
    pub fn of_temp_url(
        _grant: &temp_url::Grant,
        operation: Operation,
        identity: Identity,
    ) -> Result<Self> {
        use Operation as Op;
        match operation {
            Op::GetObject
            | Op::HeadObject
            | Op::PutObject
            | Op::PutObjectMetadata
            | Op::DeleteObject => Ok(Self { identity, operation }),
            _ => Err(Error::new(
                Code::AccessDenied,
                "A temporary URL reads, writes or deletes one object, and copies none.",
            )),
        }
    }

    /// Nobody known, of a request of Swift.
    ///
    /// # Errors
    /// [`Code::AccessDenied`] where the request claims to be somebody's.
    pub fn nobody(claim: &swift::request::Claim, operation: Operation) -> Result<Self> {
        match claim {
            swift::request::Claim::Nobody => {
                Ok(Self { identity: Identity::anonymous(), operation })
            }
            _ => Err(Code::AccessDenied.into()),
        }
    }

    /// The same sender, for another operation that the request needs: reading what it copies.
    #[must_use]
    pub fn also(&self, operation: Operation) -> Self {
        Self { identity: self.identity.clone(), operation }
    }

    /// What is asked for.
    #[must_use]
    pub fn operation(&self) -> Operation {
        self.operation
    }

    /// Who asks.
    #[must_use]
    pub fn identity(&self) -> &Identity {
        &self.identity
    }
}

/// A request to be judged. Everything in it is stored state, or was covered by the signature.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Who asks, and for what.
    pub who: &'a Sender,
    /// The action that policies are asked for: of [`Operation::action`], or a further one (`s3:PutObjectTagging` of a
    /// put with tags).
    pub action: &'a str,
    /// The ARN of what it is done to.
    pub resource: &'a str,
    /// The bucket; `None` where the request names none or makes one.
    pub bucket: Option<BucketFacts<'a>>,
    /// The list of the object, for operations on one that is there.
    pub object_acl: Option<&'a Acl>,
    /// Values of condition keys.
    pub context: &'a Context,
    /// The page that the request says to come from; empty for none. Swift's lists may grant to pages.
    pub referer: &'a str,
}

/// Judges a request.
///
/// # Errors
/// [`Code::AccessDenied`].
pub fn authorize(request: &Request<'_>) -> Result<()> {
    if allows(request) {
        return Ok(());
    }
    let text = format!(
        "{} on {} is not allowed: no policy or ACL grants it to this user, or one denies it.",
        request.action, request.resource
    );
    Err(Error::new(Code::AccessDenied, text))
}

fn allows(request: &Request<'_>) -> bool {
    let who = &request.who.identity;
    if who.mask & needs(request.who.operation) != needs(request.who.operation) {
        return false;
    }
    if who.is_admin {
        return true;
    }
    let ask = Ask {
        who: &who.principal,
        action: request.action,
        resource: request.resource,
        context: request.context,
    };
    let judge = |policies: &[Policy]| {
        let verdicts: Vec<Verdict> = policies.iter().map(|p| p.judge(&ask)).collect();
        let has = |v| verdicts.contains(&v);
        if has(Verdict::Deny) {
            Verdict::Deny
        } else if has(Verdict::Allow) {
            Verdict::Allow
        } else {
            Verdict::Silent
        }
    };
    let identity = judge(&who.policies);
    let session = judge(&who.session_policies);
    let bucket_policy = request.bucket.and_then(|b| b.policy);
    let resource = bucket_policy.map_or(Verdict::Silent, |p| p.judge(&ask));
    if [identity, session, resource].contains(&Verdict::Deny) {
        return false;
    }
    let bounded = who.session_policies.is_empty() || session == Verdict::Allow;
    let by_identity = identity == Verdict::Allow && bounded;
    let Some(bucket) = request.bucket else {
        // Lists of one's own buckets, and new buckets. Users without an account may, unless a policy denies it.
        return by_identity || (who.id.is_some() && !who.in_account && bounded);
    };
    let owns = who.id.as_deref() == Some(bucket.owner);
    let same_account = who.principal.account() == Some(bucket.account);
    let restricted =
        bucket.block.restrict_buckets && !owns && bucket_policy.is_some_and(Policy::is_public);
    let by_resource = resource == Verdict::Allow && bounded && !restricted;
    let by_policy = if who.in_account && !same_account {
        by_identity && by_resource
    } else {
        by_identity || by_resource
    };
    if by_policy {
        return true;
    }
    // What a session may not do by its policies, it may not do by lists either.
    if !bounded || (who.in_account && owns) {
        return false;
    }
    owns && owner_may(request.who.operation) || by_acl(request, bucket)
}

/// What a key's mask must have: the bits of reading and writing, or all.
fn needs(operation: Operation) -> u32 {
    use Operation as Op;
    match (operation, acl_need(operation)) {
        (_, Some((_, permission))) => permission.bits(),
        (Op::ListBuckets, None) => Permission::Read.bits(),
        (
            Op::CreateBucket | Op::DeleteBucket | Op::PutAccountMetadata | Op::PutBucketMetadata,
            None,
        ) => Permission::Write.bits(),
        (Op::Preflight, None) => 0,
        _ => ALL,
    }
}

/// What a bucket's owner without an account may do with it whatever its list says: all but reading others' objects.
fn owner_may(operation: Operation) -> bool {
    !matches!(acl_need(operation), Some((Place::Object, _)))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Bucket,
    Object,
}

/// The permission by which lists allow an operation; `None` where only owners and policies can.
fn acl_need(operation: Operation) -> Option<(Place, Permission)> {
    use Operation as Op;
    Some(match operation {
        Op::ListObjects | Op::ListObjectVersions | Op::HeadBucket | Op::ListMultipartUploads => {
            (Place::Bucket, Permission::Read)
        }
        Op::PutObject
        | Op::AppendObject
        | Op::CopyObject
        | Op::PostObject
        | Op::DeleteObject
        | Op::DeleteObjects
        | Op::CreateMultipartUpload
        | Op::UploadPart
        | Op::UploadPartCopy
        | Op::CompleteMultipartUpload
        | Op::AbortMultipartUpload
        | Op::ListParts => (Place::Bucket, Permission::Write),
        Op::GetBucketAcl => (Place::Bucket, Permission::ReadAcp),
        Op::PutBucketAcl => (Place::Bucket, Permission::WriteAcp),
        Op::GetObject | Op::HeadObject | Op::GetObjectAttributes | Op::GetObjectTagging => {
            (Place::Object, Permission::Read)
        }
        Op::GetObjectRetention | Op::GetObjectLegalHold => (Place::Object, Permission::Read),
        Op::PutObjectTagging | Op::DeleteObjectTagging | Op::PutObjectMetadata => {
            (Place::Object, Permission::Write)
        }
        Op::GetObjectAcl => (Place::Object, Permission::ReadAcp),
        Op::PutObjectAcl => (Place::Object, Permission::WriteAcp),
        _ => return None,
    })
}

fn by_acl(request: &Request<'_>, bucket: BucketFacts<'_>) -> bool {
    let Some((place, permission)) = acl_need(request.who.operation) else { return false };
    let id = request.who.identity.id.as_deref();
    // A container's lists are for its objects, whoever owns those.
    let by_swift = match permission {
        Permission::Read => Some(false),
        Permission::Write => Some(true),
        _ => None,
    };
    let ignores = bucket.block.ignore_acls;
    if by_swift.is_some_and(|w| bucket.acl.swift.permit(id, request.referer, w, ignores)) {
        return true;
    }
    let acl = match place {
        Place::Bucket => bucket.acl,
        Place::Object => match request.object_acl {
            Some(acl) => acl,
            // Of an object that is not there: who may list the bucket may know it.
            None => {
                let may_list = |acl: &Acl| acl.permits(id, Permission::Read, ignores);
                return may_list(bucket.acl)
                    || bucket.acl.swift.permit(id, request.referer, false, ignores);
            }
        },
    };
    acl.permits(id, permission, ignores)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::acl::Owner;
    use crate::policy::Kind;

    fn identity(id: &str, account: &str, in_account: bool) -> Identity {
        let principal = Principal::User { account: account.into(), name: id.into() };
        Identity { principal, id: Some(id.into()), in_account, ..Identity::anonymous() }
    }

    fn policy(effect: &str, principal: &str, action: &str, kind: Kind) -> Policy {
        let principal = if principal.is_empty() {
            String::new()
        } else {
            format!("\"Principal\": {principal}, ")
        };
        let text = format!(
            r#"{{"Statement": {{"Effect": "{effect}", {principal}"Action": "{action}", "Resource": "*"}}}}"#
        );
        Policy::parse(&text, kind).unwrap()
    }

    struct Case {
        policy: Option<Policy>,
        block: PublicAccessBlock,
        bucket_acl: &'static str,
        object_acl: Option<&'static str>,
        account: &'static str,
    }

    const PLAIN: Case = Case {
        policy: None,
        block: PublicAccessBlock {
            block_acls: false,
            ignore_acls: false,
            block_policy: false,
            restrict_buckets: false,
        },
        bucket_acl: "private",
        object_acl: Some("private"),
        account: "",
    };

    fn may(case: &Case, who: &Identity, operation: Operation) -> bool {
        let owner = || Owner { id: "owner".into(), display_name: String::new() };
        let acl = Acl::canned(case.bucket_acl, owner(), "owner").unwrap();
        let object_acl = case.object_acl.map(|name| Acl::canned(name, owner(), "owner").unwrap());
        let bucket = BucketFacts {
            owner: "owner",
            account: case.account,
            acl: &acl,
            policy: case.policy.as_ref(),
            block: case.block,
        };
        let request = Request {
            who: &Sender { identity: who.clone(), operation },
            action: operation.action(false),
            resource: "arn:aws:s3:::b/k",
            bucket: Some(bucket),
            object_acl: object_acl.as_ref(),
            context: &Context::default(),
            referer: "",
        };
        authorize(&request).is_ok()
    }

    use Operation::{
        DeleteObject, GetObject, GetObjectAcl, ListObjects, PutBucketPolicy, PutObject,
    };

    /// Anonymous users and strangers get nothing that was not granted.
    #[test]
    fn nothing_by_default() {
        let (nobody, other) = (Identity::anonymous(), identity("other", "", false));
        for operation in
            [GetObject, ListObjects, PutObject, DeleteObject, GetObjectAcl, PutBucketPolicy]
        {
            assert!(
                !may(&PLAIN, &nobody, operation) && !may(&PLAIN, &other, operation),
                "{operation:?}"
            );
            assert!(may(&PLAIN, &identity("owner", "", false), operation), "{operation:?}");
        }
        // Of an object that is not there, only who may list learns it.
        let absent = Case { object_acl: None, ..PLAIN };
        assert!(
            !may(&absent, &other, GetObject)
                && may(&absent, &identity("owner", "", false), GetObject)
        );
    }

    #[test]
    fn lists() {
        let (nobody, other) = (Identity::anonymous(), identity("other", "", false));
        let case = Case { object_acl: Some("public-read"), ..PLAIN };
        assert!(
            may(&case, &nobody, GetObject)
                && !may(&case, &nobody, ListObjects)
                && !may(&case, &nobody, PutObject)
        );
        let case = Case { bucket_acl: "public-read-write", ..PLAIN };
        assert!(
            may(&case, &nobody, PutObject)
                && may(&case, &nobody, ListObjects)
                && !may(&case, &other, GetObject)
        );
        assert!(!may(&case, &other, PutBucketPolicy));
        let block = PublicAccessBlock { ignore_acls: true, ..Default::default() };
        let case = Case { block, ..case };
        assert!(!may(&case, &nobody, PutObject) && !may(&case, &other, ListObjects));
        let case = Case { object_acl: Some("authenticated-read"), ..PLAIN };
        assert!(may(&case, &other, GetObject) && !may(&case, &nobody, GetObject));
    }

    /// Swift's lists of a container hold for its objects, whoever owns them and by whatever API they are asked for.
    #[test]
    fn lists_of_swift() {
        use Operation::{
            HeadBucket, HeadObject, PutBucketAcl, PutBucketMetadata, PutObjectMetadata,
        };
        let ask = |read: &str, write: &str, who: &Identity, referer: &str, block, operation| {
            let owner = || Owner { id: "owner".into(), display_name: String::new() };
            let swift = swift::acl::Grants::parse(read, write).unwrap();
            let acl = Acl { swift, ..Acl::private(owner()) };
            let third = Acl::private(Owner { id: "third".into(), display_name: String::new() });
            let bucket =
                BucketFacts { owner: "owner", account: "", acl: &acl, policy: None, block };
            let request = Request {
                who: &Sender { identity: who.clone(), operation },
                action: operation.action(false),
                resource: "arn:aws:s3:::b/k",
                bucket: Some(bucket),
                object_acl: Some(&third),
                context: &Context::default(),
                referer,
            };
            authorize(&request).is_ok()
        };
        let none = PublicAccessBlock::default();
        let (nobody, other) = (Identity::anonymous(), identity("other", "", false));
        let reads = [GetObject, HeadObject, ListObjects, HeadBucket];
        let writes = [PutObject, DeleteObject, PutObjectMetadata];
        let never = [PutBucketAcl, PutBucketMetadata, PutBucketPolicy, GetObjectAcl];
        for operation in reads.into_iter().chain(writes).chain(never) {
            let (is_read, is_write) = (reads.contains(&operation), writes.contains(&operation));
            let may = |read, write, who| ask(read, write, who, "", none, operation);
            assert_eq!(may("other", "", &other), is_read, "{operation:?}");
            assert_eq!(may("", "other", &other), is_write, "{operation:?}");
            assert_eq!(may(".r:*", "", &nobody), is_read, "{operation:?}");
            assert!(!may("other", "other", &nobody), "{operation:?}");
            assert!(!may(".rlistings,*:*", "*", &other), "{operation:?}");
            let page = |r| ask(".r:.good.org", "", &nobody, r, none, operation);
            assert_eq!(page("http://a.good.org/"), is_read, "{operation:?}");
            assert!(!page("http://a.bad.org/") && !page(""), "{operation:?}");
            let block = PublicAccessBlock { ignore_acls: true, ..none };
            assert!(!ask(".r:*", "", &nobody, "", block, operation), "{operation:?}");
            assert_eq!(ask("other", "", &other, "", block, operation), is_read, "{operation:?}");
        }
    }

    /// What a subuser's key lets do bounds the user's own rights, an administrator's too.
    #[test]
    fn keys_of_subusers() {
        use Operation::{
            CopyObject, CreateBucket, DeleteBucket, HeadObject, ListBuckets, PutAccountMetadata,
            PutBucketMetadata, PutObjectMetadata,
        };
        let reads = [GetObject, HeadObject, ListObjects, ListBuckets];
        let writes = [
            PutObject,
            CopyObject,
            DeleteObject,
            CreateBucket,
            DeleteBucket,
            PutAccountMetadata,
            PutBucketMetadata,
            PutObjectMetadata,
        ];
        for is_admin in [false, true] {
            let owner = Identity { is_admin, ..identity("owner", "", false) };
            for operation in reads.into_iter().chain(writes) {
                let masked = |mask| may(&PLAIN, &Identity { mask, ..owner.clone() }, operation);
                assert_eq!(masked(1), reads.contains(&operation), "{operation:?}");
                assert_eq!(masked(2), writes.contains(&operation), "{operation:?}");
                assert!(masked(3) && masked(ALL) && !masked(0), "{operation:?}");
            }
            assert!(!may(&PLAIN, &Identity { mask: 3, ..owner.clone() }, PutBucketPolicy));
        }
    }

    /// A temporary URL is for one object.
    #[test]
    fn temporary_urls() {
        use crate::request::{Head, Headers, Method};
        let head = Head::new(
            Method::Get,
            "/v1/c/o?temp_url_sig=d7252d5400de575f250a9389e5b1aad036300501&temp_url_expires=9",
            Headers::default(),
        );
        let url = temp_url::TempUrl::of(&head.unwrap()).unwrap().unwrap();
        let signed = temp_url::Signed {
            method: Method::Get,
            path: "/v1/c/o",
            entry_len: 0,
            object: "o",
            peer: None,
        };
        let claim = swift::request::Claim::TempUrl(url.clone());
        assert!(Sender::nobody(&claim, GetObject).is_err(), "a claim is proven, or refused");
        let Ok(grant) = url.verify(&signed, ["key"], crate::time::Time(0)) else {
            panic!("the signature is that of `key`");
        };
        let of = |operation| Sender::of_temp_url(&grant, operation, identity("owner", "", false));
        assert!(of(GetObject).is_ok() && of(PutObject).is_ok() && of(DeleteObject).is_ok());
        for operation in [ListObjects, Operation::CopyObject, Operation::DeleteObjects] {
            assert!(of(operation).is_err(), "{operation:?}");
        }
    }

    #[test]
    fn policies() {
        let allow = policy("Allow", "\"*\"", "s3:GetObject", Kind::Resource);
        let (nobody, other, owner) =
            (Identity::anonymous(), identity("other", "", false), identity("owner", "", false));
        let case = Case { policy: Some(allow.clone()), ..PLAIN };
        assert!(
            may(&case, &nobody, GetObject)
                && may(&case, &other, GetObject)
                && !may(&case, &other, PutObject)
        );
        let block = PublicAccessBlock { restrict_buckets: true, ..Default::default() };
        let case = Case { policy: Some(allow.clone()), block, ..PLAIN };
        assert!(!may(&case, &nobody, GetObject) && may(&case, &owner, GetObject));
        let deny = policy("Deny", "\"*\"", "s3:*", Kind::Resource);
        let case = Case { policy: Some(deny), bucket_acl: "public-read-write", ..PLAIN };
        assert!(!may(&case, &owner, GetObject) && !may(&case, &other, PutObject));
        assert!(may(&case, &Identity { is_admin: true, ..other.clone() }, PutObject));
        let mut bounded = identity("owner", "", false);
        bounded.session_policies = vec![policy("Allow", "", "s3:GetObject", Kind::Identity)];
        assert!(
            may(&PLAIN, &bounded, GetObject) && !may(&PLAIN, &bounded, PutObject),
            "a session's bound"
        );
    }

    #[test]
    fn accounts() {
        let user = |account: &str, action: &str| {
            let mut user = identity("user", account, true);
            user.policies = vec![policy("Allow", "", action, Kind::Identity)];
            user
        };
        let case = Case { account: "RGW1", ..PLAIN };
        assert!(
            may(&case, &user("RGW1", "s3:*"), GetObject)
                && !may(&case, &user("RGW1", "s3:Put*"), GetObject)
        );
        assert!(!may(&case, &user("RGW2", "s3:*"), GetObject), "across accounts both must allow");
        let shared = Case {
            policy: Some(policy("Allow", "{\"AWS\": \"RGW2\"}", "s3:GetObject", Kind::Resource)),
            account: "RGW1",
            ..PLAIN
        };
        assert!(
            may(&shared, &user("RGW2", "s3:*"), GetObject)
                && !may(&shared, &user("RGW2", "s3:Put*"), GetObject)
        );
        assert!(!may(&shared, &user("RGW3", "s3:*"), GetObject));
    }
}
