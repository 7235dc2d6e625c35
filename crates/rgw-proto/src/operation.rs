//! Which operation a request asks for.
//!
//! A table says for each subresource which methods it takes. What no row has is refused: a known subresource with
//! another method is [`Code::MethodNotAllowed`], an unknown one is [`Code::NotImplemented`]. (Stock takes
//! `PUT ?accelerate` for the making of a bucket, and `GET ?accelerate` for a listing.)

use crate::error::{Code, Error, Result};
use crate::request::{Head, Method, Target};
use crate::sig::{Claim, v2};

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "names of AWS's API reference")]
pub enum Operation {
    ListBuckets,
    CreateBucket,
    HeadBucket,
    DeleteBucket,
    ListObjects,
    ListObjectVersions,
    ListMultipartUploads,
    GetBucketLocation,
    GetBucketVersioning,
    PutBucketVersioning,
    GetBucketAcl,
    PutBucketAcl,
    GetBucketPolicy,
    PutBucketPolicy,
    DeleteBucketPolicy,
    GetBucketPolicyStatus,
    GetPublicAccessBlock,
    PutPublicAccessBlock,
    DeletePublicAccessBlock,
    GetBucketTagging,
    PutBucketTagging,
    DeleteBucketTagging,
    GetBucketCors,
    PutBucketCors,
    DeleteBucketCors,
    GetBucketLifecycle,
    PutBucketLifecycle,
    DeleteBucketLifecycle,
    GetObjectLockConfiguration,
    PutObjectLockConfiguration,
    GetBucketEncryption,
    PutBucketEncryption,
    DeleteBucketEncryption,
    GetBucketRequestPayment,
    PutBucketRequestPayment,
    GetBucketOwnershipControls,
    PutBucketOwnershipControls,
    DeleteBucketOwnershipControls,
    GetBucketNotification,
    PutBucketNotification,
    DeleteBucketNotification,
    GetBucketWebsite,
    PutBucketWebsite,
    DeleteBucketWebsite,
    DeleteObjects,
    PostObject,
    Preflight,
    GetObject,
    HeadObject,
    PutObject,
    AppendObject,
    CopyObject,
    DeleteObject,
    GetObjectAcl,
    PutObjectAcl,
    GetObjectTagging,
    PutObjectTagging,
    DeleteObjectTagging,
    GetObjectRetention,
    PutObjectRetention,
    GetObjectLegalHold,
    PutObjectLegalHold,
    GetObjectAttributes,
    CreateMultipartUpload,
    UploadPart,
    UploadPartCopy,
    CompleteMultipartUpload,
    AbortMultipartUpload,
    ListParts,
    PutAccountMetadata,
    PutBucketMetadata,
    PutObjectMetadata,
}

use Method::{Delete, Get, Head as HeadMethod, Post, Put};
use Operation as Op;

/// What of the URL a row is about.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Service,
    Bucket,
    Object,
}

use Level::{Bucket, Object, Service};

/// Level, subresource, method, operation. The subresource is empty where none may be there.
const TABLE: &[(Level, &str, Method, Operation)] = &[
    (Service, "", Get, Op::ListBuckets),
    (Service, "", HeadMethod, Op::ListBuckets),
    (Bucket, "", Get, Op::ListObjects),
    (Bucket, "", HeadMethod, Op::HeadBucket),
    (Bucket, "", Put, Op::CreateBucket),
    (Bucket, "", Delete, Op::DeleteBucket),
    (Bucket, "", Post, Op::PostObject),
    (Bucket, "acl", Get, Op::GetBucketAcl),
    (Bucket, "acl", Put, Op::PutBucketAcl),
    (Bucket, "cors", Get, Op::GetBucketCors),
    (Bucket, "cors", Put, Op::PutBucketCors),
    (Bucket, "cors", Delete, Op::DeleteBucketCors),
    (Bucket, "delete", Post, Op::DeleteObjects),
    (Bucket, "encryption", Get, Op::GetBucketEncryption),
    (Bucket, "encryption", Put, Op::PutBucketEncryption),
    (Bucket, "encryption", Delete, Op::DeleteBucketEncryption),
    (Bucket, "lifecycle", Get, Op::GetBucketLifecycle),
    (Bucket, "lifecycle", Put, Op::PutBucketLifecycle),
    (Bucket, "lifecycle", Delete, Op::DeleteBucketLifecycle),
    (Bucket, "location", Get, Op::GetBucketLocation),
    (Bucket, "notification", Get, Op::GetBucketNotification),
    (Bucket, "notification", Put, Op::PutBucketNotification),
    (Bucket, "notification", Delete, Op::DeleteBucketNotification),
    (Bucket, "object-lock", Get, Op::GetObjectLockConfiguration),
    (Bucket, "object-lock", Put, Op::PutObjectLockConfiguration),
    (Bucket, "ownershipControls", Get, Op::GetBucketOwnershipControls),
    (Bucket, "ownershipControls", Put, Op::PutBucketOwnershipControls),
    (Bucket, "ownershipControls", Delete, Op::DeleteBucketOwnershipControls),
    (Bucket, "policy", Get, Op::GetBucketPolicy),
    (Bucket, "policy", Put, Op::PutBucketPolicy),
    (Bucket, "policy", Delete, Op::DeleteBucketPolicy),
    (Bucket, "policyStatus", Get, Op::GetBucketPolicyStatus),
    (Bucket, "publicAccessBlock", Get, Op::GetPublicAccessBlock),
    (Bucket, "publicAccessBlock", Put, Op::PutPublicAccessBlock),
    (Bucket, "publicAccessBlock", Delete, Op::DeletePublicAccessBlock),
    (Bucket, "requestPayment", Get, Op::GetBucketRequestPayment),
    (Bucket, "requestPayment", Put, Op::PutBucketRequestPayment),
    (Bucket, "tagging", Get, Op::GetBucketTagging),
    (Bucket, "tagging", Put, Op::PutBucketTagging),
    (Bucket, "tagging", Delete, Op::DeleteBucketTagging),
    (Bucket, "uploads", Get, Op::ListMultipartUploads),
    (Bucket, "versioning", Get, Op::GetBucketVersioning),
    (Bucket, "versioning", Put, Op::PutBucketVersioning),
    (Bucket, "versions", Get, Op::ListObjectVersions),
    (Bucket, "website", Get, Op::GetBucketWebsite),
    (Bucket, "website", Put, Op::PutBucketWebsite),
    (Bucket, "website", Delete, Op::DeleteBucketWebsite),
    (Object, "", Get, Op::GetObject),
    (Object, "", HeadMethod, Op::HeadObject),
    (Object, "", Put, Op::PutObject),
    (Object, "", Delete, Op::DeleteObject),
    (Object, "acl", Get, Op::GetObjectAcl),
    (Object, "acl", Put, Op::PutObjectAcl),
    (Object, "append", Put, Op::AppendObject),
    (Object, "attributes", Get, Op::GetObjectAttributes),
    (Object, "legal-hold", Get, Op::GetObjectLegalHold),
    (Object, "legal-hold", Put, Op::PutObjectLegalHold),
    (Object, "retention", Get, Op::GetObjectRetention),
    (Object, "retention", Put, Op::PutObjectRetention),
    (Object, "tagging", Get, Op::GetObjectTagging),
    (Object, "tagging", Put, Op::PutObjectTagging),
    (Object, "tagging", Delete, Op::DeleteObjectTagging),
    (Object, "uploadId", Get, Op::ListParts),
    (Object, "uploadId", Put, Op::UploadPart),
    (Object, "uploadId", Post, Op::CompleteMultipartUpload),
    (Object, "uploadId", Delete, Op::AbortMultipartUpload),
    (Object, "uploads", Post, Op::CreateMultipartUpload),
];

/// Subresources of S3 and of stock that are not built. With a value, too, they never are a parameter that is ignored.
const NOT_BUILT: &[&str] = &[
    "Action",
    "accelerate",
    "analytics",
    "intelligent-tiering",
    "inventory",
    "layout",
    "logging",
    "mdsearch",
    "metadataTable",
    "metrics",
    "renameObject",
    "replication",
    "restore",
    "select",
    "session",
    "torrent",
    "usage",
];

/// Parameters that may stand without a value.
const PARAMETERS: &[&str] = &[
    "allow-unordered",
    "delimiter",
    "encoding-type",
    "fetch-owner",
    "key-marker",
    "list-type",
    "marker",
    "max-keys",
    "max-parts",
    "max-uploads",
    "part-number-marker",
    "partNumber",
    "position",
    "prefix",
    "read-stats",
    "start-after",
    "continuation-token",
    "upload-id-marker",
    "version-id-marker",
    "versionId",
    "x-id",
];

impl Operation {
    /// What `head` asks for at `target`.
    ///
    /// # Errors
    /// [`Code::NotImplemented`] for a subresource that is not known or not built, or two at once;
    /// [`Code::MethodNotAllowed`].
    pub fn of(head: &Head, target: &Target) -> Result<Self> {
        let level = match target {
            Target::Service => Service,
            Target::Bucket(_) => Bucket,
            Target::Object(..) => Object,
        };
        if head.method == Method::Options {
            return Ok(Op::Preflight);
        }
        let subresource = subresource(head, level)?;
        let of_level = TABLE.iter().filter(|row| row.0 == level && row.1 == subresource);
        let row = of_level.into_iter().find(|row| row.2 == head.method);
        let operation = row.ok_or_else(|| Error::from(Code::MethodNotAllowed))?.3;
        Ok(match operation {
            Op::PutObject if head.headers.get("x-amz-copy-source").is_some() => Op::CopyObject,
            Op::UploadPart if head.headers.get("x-amz-copy-source").is_some() => Op::UploadPartCopy,
            Op::AppendObject if head.headers.get("x-amz-copy-source").is_some() => {
                let text = "An append has a body: it copies nothing.";
                return Err(Error::new(Code::NotImplemented, text));
            }
            Op::PostObject if !head.headers.get("content-type").is_some_and(is_form) => {
                return Err(Error::new(
                    Code::MethodNotAllowed,
                    "A POST to a bucket is a form, multipart/form-data.",
                ));
            }
            operation => operation,
        })
    }

    /// Whether it deletes objects or configurations.
    #[must_use]
    pub fn is_delete(self) -> bool {
        let row = TABLE.iter().find(|row| row.3 == self);
        self == Op::DeleteObjects || row.is_some_and(|row| row.2 == Delete)
    }

    /// Whether it changes nothing.
    #[must_use]
    pub fn is_read(self) -> bool {
        let row = TABLE.iter().find(|row| row.3 == self);
        self == Op::Preflight || row.is_some_and(|row| matches!(row.2, Get | HeadMethod))
    }

    /// Refuses what a claim of version 2 does not cover: the subresource that chose this operation.
    ///
    /// # Errors
    /// [`Code::AccessDenied`].
    pub fn check_covered(self, claim: &Claim) -> Result<()> {
        let row = TABLE.iter().find(|row| row.3 == self);
        let subresource = row.map_or("", |row| row.1);
        if matches!(claim, Claim::V2(_)) && !subresource.is_empty() && !v2::covers(subresource) {
            let text = format!(
                "A signature of version 2 does not cover ?{subresource}: sign with version 4."
            );
            return Err(Error::new(Code::AccessDenied, text));
        }
        Ok(())
    }

    /// The action that policies name; `versioned` where the request names a version.
    #[must_use]
    pub fn action(self, versioned: bool) -> &'static str {
        match (self, versioned) {
            (Op::GetObject | Op::HeadObject, false) => "s3:GetObject",
            (Op::GetObject | Op::HeadObject, true) => "s3:GetObjectVersion",
            (Op::GetObjectAttributes, false) => "s3:GetObjectAttributes",
            (Op::GetObjectAttributes, true) => "s3:GetObjectVersionAttributes",
            (Op::DeleteObject | Op::DeleteObjects, false) => "s3:DeleteObject",
            (Op::DeleteObject | Op::DeleteObjects, true) => "s3:DeleteObjectVersion",
            (Op::GetObjectAcl, false) => "s3:GetObjectAcl",
            (Op::GetObjectAcl, true) => "s3:GetObjectVersionAcl",
            (Op::PutObjectAcl, false) => "s3:PutObjectAcl",
            (Op::PutObjectAcl, true) => "s3:PutObjectVersionAcl",
            (Op::GetObjectTagging, false) => "s3:GetObjectTagging",
            (Op::GetObjectTagging, true) => "s3:GetObjectVersionTagging",
            (Op::PutObjectTagging, false) => "s3:PutObjectTagging",
            (Op::PutObjectTagging, true) => "s3:PutObjectVersionTagging",
            (Op::DeleteObjectTagging, false) => "s3:DeleteObjectTagging",
            (Op::DeleteObjectTagging, true) => "s3:DeleteObjectVersionTagging",
            (operation, _) => operation.plain_action(),
        }
    }

    fn plain_action(self) -> &'static str {
        match self {
            Op::ListBuckets => "s3:ListAllMyBuckets",
            Op::CreateBucket => "s3:CreateBucket",
            Op::DeleteBucket => "s3:DeleteBucket",
            Op::HeadBucket | Op::ListObjects => "s3:ListBucket",
            Op::ListObjectVersions => "s3:ListBucketVersions",
            Op::ListMultipartUploads => "s3:ListBucketMultipartUploads",
            Op::GetBucketLocation => "s3:GetBucketLocation",
            Op::GetBucketVersioning => "s3:GetBucketVersioning",
            Op::PutBucketVersioning => "s3:PutBucketVersioning",
            Op::GetBucketAcl => "s3:GetBucketAcl",
            Op::PutBucketAcl => "s3:PutBucketAcl",
            Op::GetBucketPolicy => "s3:GetBucketPolicy",
            Op::PutBucketPolicy => "s3:PutBucketPolicy",
            Op::DeleteBucketPolicy => "s3:DeleteBucketPolicy",
            Op::GetBucketPolicyStatus => "s3:GetBucketPolicyStatus",
            Op::GetPublicAccessBlock => "s3:GetBucketPublicAccessBlock",
            Op::PutPublicAccessBlock | Op::DeletePublicAccessBlock => {
                "s3:PutBucketPublicAccessBlock"
            }
            Op::GetBucketTagging => "s3:GetBucketTagging",
            Op::PutBucketTagging | Op::DeleteBucketTagging => "s3:PutBucketTagging",
            Op::GetBucketCors => "s3:GetBucketCORS",
            Op::PutBucketCors | Op::DeleteBucketCors => "s3:PutBucketCORS",
            Op::GetBucketLifecycle => "s3:GetLifecycleConfiguration",
            Op::PutBucketLifecycle | Op::DeleteBucketLifecycle => "s3:PutLifecycleConfiguration",
            Op::GetObjectLockConfiguration => "s3:GetBucketObjectLockConfiguration",
            Op::PutObjectLockConfiguration => "s3:PutBucketObjectLockConfiguration",
            Op::GetBucketEncryption => "s3:GetEncryptionConfiguration",
            Op::PutBucketEncryption | Op::DeleteBucketEncryption => "s3:PutEncryptionConfiguration",
            Op::GetBucketRequestPayment => "s3:GetBucketRequestPayment",
            Op::PutBucketRequestPayment => "s3:PutBucketRequestPayment",
            Op::GetBucketOwnershipControls => "s3:GetBucketOwnershipControls",
            Op::PutBucketOwnershipControls | Op::DeleteBucketOwnershipControls => {
                "s3:PutBucketOwnershipControls"
            }
            Op::GetBucketNotification => "s3:GetBucketNotification",
            Op::PutBucketNotification | Op::DeleteBucketNotification => "s3:PutBucketNotification",
            Op::GetBucketWebsite => "s3:GetBucketWebsite",
            Op::PutBucketWebsite => "s3:PutBucketWebsite",
            Op::DeleteBucketWebsite => "s3:DeleteBucketWebsite",
            Op::GetObjectRetention => "s3:GetObjectRetention",
            Op::PutObjectRetention => "s3:PutObjectRetention",
            Op::GetObjectLegalHold => "s3:GetObjectLegalHold",
            Op::PutObjectLegalHold => "s3:PutObjectLegalHold",
            Op::AbortMultipartUpload => "s3:AbortMultipartUpload",
            Op::ListParts => "s3:ListMultipartUploadParts",
            // Of Swift, which sets lists of access by the same requests as metadata.
            Op::PutAccountMetadata => "s3:PutAccountMetadata",
            Op::PutBucketMetadata => "s3:PutBucketAcl",
            // Those that `action` has, by whether a version is named, and all that write an object.
            _ => "s3:PutObject",
        }
    }
}

fn is_form(content_type: &str) -> bool {
    let kind = content_type.split(';').next().unwrap_or_default();
    kind.trim().eq_ignore_ascii_case("multipart/form-data")
}

/// The one subresource in the query; empty where there is none.
fn subresource(head: &Head, level: Level) -> Result<&str> {
    let unknown = |name: &str| {
        let text = format!(
            "The subresource ?{name} is not built here: leave it out, or see COMPAT.md for what is."
        );
        Err(Error::new(Code::NotImplemented, text))
    };
    let mut found = "";
    for (name, value) in head.query.iter() {
        let known = !name.is_empty() && TABLE.iter().any(|row| row.0 == level && row.1 == name);
        let elsewhere = TABLE.iter().any(|row| row.1 == name);
        if known && found.is_empty() {
            found = name;
        } else if known {
            return Err(Error::new(
                Code::NotImplemented,
                format!("?{found} and ?{name} cannot be asked for at once."),
            ));
        } else {
            let bare =
                value.is_none_or(str::is_empty) && !PARAMETERS.contains(&name) && !signs(name);
            if bare || NOT_BUILT.contains(&name) || (elsewhere && !name.is_empty()) {
                return unknown(name);
            }
        }
    }
    Ok(found)
}

/// Parameters of signatures and overrides of answers' headers.
fn signs(name: &str) -> bool {
    name.starts_with("X-Amz-") || name.starts_with("x-amz-") || name.starts_with("response-")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::request::Headers;

    fn of(method: Method, target: &str, headers: &[(&str, &str)]) -> Result<Operation> {
        let head = Head::new(method, target, Headers::new(headers.iter().copied())?)?;
        let target = Target::of(&head, &[])?;
        Operation::of(&head, &target)
    }

    #[test]
    fn operations() {
        let copy = [("x-amz-copy-source", "/b/k")];
        let form = [("content-type", "multipart/form-data; boundary=x")];
        for (method, target, headers, want) in [
            (Get, "/", &[][..], Op::ListBuckets),
            (Get, "/bkt?list-type=2&prefix=&x-id=ListObjectsV2", &[], Op::ListObjects),
            (Get, "/bkt?versions&prefix=acl", &[], Op::ListObjectVersions),
            (Put, "/bkt", &[], Op::CreateBucket),
            (Post, "/bkt?delete=", &[], Op::DeleteObjects),
            (Post, "/bkt", &form, Op::PostObject),
            (Get, "/bkt/k?partNumber=1&versionId=x", &[], Op::GetObject),
            (Put, "/bkt/k", &copy, Op::CopyObject),
            (Put, "/bkt/k?append&position=0", &[], Op::AppendObject),
            (Put, "/bkt/k?partNumber=1&uploadId=x", &[], Op::UploadPart),
            (Put, "/bkt/k?partNumber=1&uploadId=x", &copy, Op::UploadPartCopy),
            (Post, "/bkt/k?uploads", &[], Op::CreateMultipartUpload),
            (Get, "/bkt/k?uploadId=x&max-parts=1", &[], Op::ListParts),
            (Get, "/bkt/k?acl&versionId=x", &[], Op::GetObjectAcl),
            (Method::Options, "/bkt/k?acl", &[], Op::Preflight),
        ] {
            assert_eq!(of(method, target, headers).unwrap(), want, "{method:?} {target}");
        }
    }

    /// What is not built is never another operation.
    #[test]
    fn nothing_falls_through() {
        for target in ["/bkt", "/bkt/k"] {
            for name in NOT_BUILT.iter().chain(&["unheard-of", "Acl", "policy%00"]) {
                for method in [Get, Put, Post, Delete, HeadMethod] {
                    let error = of(method, &format!("{target}?{name}"), &[]).unwrap_err();
                    assert_eq!(error.code, Code::NotImplemented, "{method:?} {target}?{name}");
                }
            }
        }
        assert_eq!(of(Get, "/bkt?accelerate=1", &[]).unwrap_err().code, Code::NotImplemented);
        assert_eq!(of(Get, "/bkt?acl&policy", &[]).unwrap_err().code, Code::NotImplemented);
        assert_eq!(of(Get, "/bkt/k?policy", &[]).unwrap_err().code, Code::NotImplemented);
        assert_eq!(of(Post, "/bkt?acl", &[]).unwrap_err().code, Code::MethodNotAllowed);
        assert_eq!(of(Post, "/bkt", &[]).unwrap_err().code, Code::MethodNotAllowed);
        assert_eq!(of(Delete, "/", &[]).unwrap_err().code, Code::MethodNotAllowed);
    }

    #[test]
    fn version_2_must_cover_the_subresource() {
        let head = Head::new(
            Get,
            "/bkt/k?retention",
            Headers::new([("Authorization", "AWS a:AAAA")]).unwrap(),
        )
        .unwrap();
        let claim = Claim::of(&head).unwrap();
        assert_eq!(
            Op::GetObjectRetention.check_covered(&claim).unwrap_err().code,
            Code::AccessDenied
        );
        assert!(
            Op::GetObjectAcl.check_covered(&claim).is_ok()
                && Op::GetObject.check_covered(&claim).is_ok()
        );
    }

    proptest! {
        /// A parameter that is no parameter of S3 either has a value and changes nothing, or is refused.
        #[test]
        fn strange_parameters(name in "[a-z-]{1,12}", value in "[a-z]{0,3}") {
            prop_assume!(!PARAMETERS.contains(&name.as_str()) && !TABLE.iter().any(|r| r.1 == name));
            match of(Get, &format!("/bkt?{name}={value}"), &[]) {
                Ok(operation) => prop_assert!(operation == Op::ListObjects && !value.is_empty() || signs(&name)),
                Err(error) => prop_assert_eq!(error.code, Code::NotImplemented),
            }
        }
    }
}
