//! Errors of S3: code, HTTP status and a message that says what to change.
//!
//! Source: `rgw_http_errors.h`, `rgw_common.cc`; statuses as stock radosgw 20.2.4 answers them. Stock leaves most
//! messages empty, which clients print as "None"; ours never are.

use std::fmt;

use crate::xml::Writer;

macro_rules! codes {
    ($($name:ident $status:literal $text:literal;)*) => {
        /// The code of an error, by its name in the answer's `<Code>`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[allow(missing_docs, reason = "the names are S3's; their messages stand beside them")]
        pub enum Code { $($name,)* }

        impl Code {
            /// All codes, in the table's order.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The text of `<Code>`.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Self::$name => stringify!($name),)* }
            }

            /// The HTTP status.
            #[must_use]
            pub fn status(self) -> u16 {
                match self { $(Self::$name => $status,)* }
            }

            /// What is told when whoever made the error had nothing closer to say.
            #[must_use]
            pub fn message(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }
        }
    };
}

codes! {
    PermanentRedirect 301 "The bucket belongs to another zone group: send the request to the endpoint named here.";
    NotModified 304 "The object has not changed.";
    AccessControlListNotSupported 400 "The bucket's owner owns all objects (BucketOwnerEnforced): leave out the list of access.";
    BadDigest 400 "The checksum sent does not fit the body.";
    EntityTooLarge 400 "The body is larger than allowed.";
    EntityTooSmall 400 "The body, or a part that is not the last, is smaller than allowed.";
    IllegalLocationConstraintException 400 "The location constraint names no zone group or placement of this cluster.";
    InvalidArgument 400 "An argument of the request is not valid.";
    InvalidBucketName 400 "A bucket's name has 3 to 63 of a-z, 0-9, '-' and '.', begins and ends with a letter or digit, and is no address.";
    InvalidCapability 400 "A cap is NAME=read, write or *, of the names that the Admin API knows.";
    InvalidDigest 400 "Content-MD5 or a checksum is not valid base64 of the right length.";
    InvalidEncryptionAlgorithmError 400 "The encryption algorithm is not known: AES256 and aws:kms are.";
    InvalidLocationConstraint 400 "The location constraint is not valid.";
    InvalidObjectName 400 "A key is UTF-8 of 1 to 1024 bytes without NUL.";
    InvalidPart 400 "A part of the list was not uploaded, or its ETag is another one.";
    InvalidPartOrder 400 "The parts of the list are not in ascending order.";
    InvalidRequest 400 "The request does not fit the state of what it names.";
    InvalidRetentionPeriod 400 "The retention period is not valid.";
    ExpiredToken 400 "The session has ended: assume the role anew.";
    InvalidToken 400 "The session token is none of this gateway's.";
    InvalidTag 400 "A tag's key or value is not valid, or a key is there twice.";
    MalformedACLError 400 "The access control list does not fit its schema.";
    MalformedPolicyDocument 400 "The policy is not valid.";
    MalformedXML 400 "The body is not well-formed XML, or does not fit its schema.";
    RequestTimeout 400 "The body did not arrive in time.";
    TooManyBuckets 400 "The user has as many buckets as allowed.";
    UnresolvableGrantByEmailAddress 400 "No user has the email address of a grant.";
    XAmzContentSHA256Mismatch 400 "The body's SHA-256 is not the x-amz-content-sha256 of the request.";
    ZonegroupDefaultPlacementMisconfiguration 400 "The zone group has no usable default placement.";
    AuthorizationError 403 "The request is not allowed: the topic is another user's, or a policy denies it.";
    AccessDenied 403 "The request is not allowed: no policy or ACL grants it to this user, or one denies it.";
    InvalidAccessKeyId 403 "No user has this access key.";
    InvalidObjectState 403 "The object must be restored before it can be read.";
    QuotaExceeded 403 "The quota of the user or of the bucket is used up.";
    RequestTimeTooSkewed 403 "The request's time differs from the gateway's by more than 15 minutes.";
    SignatureDoesNotMatch 403 "The signature does not fit the request and the user's secret key.";
    UserSuspended 403 "The user is suspended.";
    NoSuchBucket 404 "No bucket has this name.";
    NoSuchBucketPolicy 404 "The bucket has no policy.";
    NoSuchCORSConfiguration 404 "The bucket has no CORS rules.";
    NoSuchEntity 404 "No user, role, key or policy of this name is there.";
    NoSuchKey 404 "The bucket has no object with this key.";
    NoSuchLifecycleConfiguration 404 "The bucket has no lifecycle rules.";
    NoSuchPublicAccessBlockConfiguration 404 "The bucket has no public access block.";
    NoSuchTagSet 404 "The bucket has no tags.";
    NoSuchSubUser 404 "The user has no subuser of this name.";
    NoSuchUser 404 "No user has this id.";
    NoSuchUpload 404 "No upload has this id: it was completed, aborted, or never begun.";
    NoSuchWebsiteConfiguration 404 "The bucket has no website configuration.";
    OwnershipControlsNotFoundError 404 "The bucket has no ownership controls.";
    NotFound 404 "Not found.";
    ObjectLockConfigurationNotFoundError 404 "The bucket has no object lock configuration.";
    ServerSideEncryptionConfigurationNotFoundError 404 "The bucket has no default encryption.";
    MethodNotAllowed 405 "What the URL names does not take this method.";
    AccountAlreadyExists 409 "An account of this id or name is there already.";
    BucketAlreadyExists 409 "Another user has a bucket of this name.";
    BucketNotEmpty 409 "The bucket holds objects, versions or delete markers.";
    ConcurrentModification 409 "Another request changed the same thing at the same time: send this one again.";
    DeleteConflict 409 "Something belongs to it: remove that first.";
    EmailExists 409 "Another user has this email address.";
    EntityAlreadyExists 409 "Something of this name is there already.";
    InvalidBucketState 409 "The bucket's versioning or object lock does not allow this.";
    KeyExists 409 "Another user has this access key.";
    LimitExceeded 409 "As many are there as the account's bound allows.";
    ObjectNotAppendable 409 "The object was not made by appending.";
    OperationAborted 409 "Another operation on the same bucket is under way: send this one again.";
    PositionNotEqualToLength 409 "The position is not the object's length.";
    RestoreAlreadyInProgress 409 "The object is being restored.";
    SubUserExists 409 "The user has a subuser of this name.";
    UserAlreadyExists 409 "A user of this id is there already.";
    MissingContentLength 411 "The request needs a Content-Length.";
    BadURL 412 "The URL, or a header that has one, names no container and object.";
    PreconditionFailed 412 "A condition of the request (If-Match, If-None-Match, a date) is not met.";
    InvalidRange 416 "The range begins behind the object's end.";
    UnprocessableEntity 422 "The body does not fit its ETag.";
    InternalError 500 "The gateway could not do this: its log has more.";
    NotImplemented 501 "This operation is not built.";
    ServiceUnavailable 503 "The gateway is busy: send the request again.";
    SlowDown 503 "Too much is asked for at once: send the request later.";
    InsufficientCapacity 507 "The cluster is full.";
}

/// Why a request is not done. Whoever answers the request logs it, once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// Which error; it has the HTTP status.
    pub code: Code,
    /// What to change, for a person; never empty.
    pub message: String,
}

/// The outcome of a step of a request.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An error with words of its own.
    #[must_use]
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    /// The answer's body. `bucket` is empty where the request names none.
    ///
    /// # Source
    /// Order of elements as `rgw_rest_s3.cc` `dump_start` and `end_header` write them.
    #[must_use]
    pub fn to_xml(&self, bucket: &str, request_id: &str, host_id: &str) -> String {
        let mut w = Writer::document();
        w.open("Error");
        w.text("Code", self.code.name()).text("Message", &self.message);
        if !bucket.is_empty() {
            w.text("BucketName", bucket);
        }
        w.text("RequestId", request_id).text("HostId", host_id);
        w.close("Error");
        w.finish()
    }

    /// The answer's body in IAM and STS.
    #[must_use]
    pub fn to_service_xml(&self, namespace: &str, request_id: &str, host_id: &str) -> String {
        let mut w = Writer::document();
        w.open(&format!("ErrorResponse xmlns=\"{namespace}\"")).open("Error");
        w.text("Code", self.code.name()).text("Message", &self.message);
        w.text("RequestId", request_id).text("HostId", host_id);
        w.close("Error").close("ErrorResponse");
        w.finish()
    }

    /// The page about an error, where a bucket is a website. `reason` is HTTP's text of the status.
    #[must_use]
    pub fn to_html(&self, reason: &str, bucket: &str, request_id: &str, host_id: &str) -> String {
        let title = format!("{} {reason}", self.code.status());
        let mut w = Writer::default();
        w.open("html").open("head").text("title", &title).close("head").open("body");
        w.text("h1", &title).open("ul");
        let bucket = ("BucketName", bucket);
        for (name, text) in [
            ("Code", self.code.name()),
            ("Message", &self.message),
            bucket,
            ("RequestId", request_id),
            ("HostId", host_id),
        ] {
            if !text.is_empty() {
                w.text("li", &format!("{name}: {text}"));
            }
        }
        w.close("ul").close("body").close("html");
        w.finish()
    }

    /// The answer's body in the Admin API.
    #[must_use]
    pub fn to_json(&self, request_id: &str, host_id: &str) -> String {
        serde_json::json!({
            "Code": self.code.name(),
            "Message": self.message,
            "RequestId": request_id,
            "HostId": host_id,
        })
        .to_string()
    }
}

impl From<Code> for Error {
    fn from(code: Code) -> Self {
        Self::new(code, code.message())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code.name(), self.message)
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::{Code, Error};

    #[test]
    fn every_error_says_something() {
        for code in Code::ALL {
            assert!(!code.message().is_empty() && (300..600).contains(&code.status()), "{code:?}");
        }
    }

    #[test]
    fn pages_are_escaped() {
        let page = Error::new(Code::NoSuchKey, "a<b>&").to_html("Not Found", "b\"", "tx1", "h");
        assert_eq!(
            page,
            "<html><head><title>404 Not Found</title></head><body><h1>404 Not Found</h1><ul><li>Code: NoSuchKey</li>\
             <li>Message: a&lt;b&gt;&amp;</li><li>BucketName: b&quot;</li><li>RequestId: tx1</li><li>HostId: h</li></ul></body></html>"
        );
    }

    #[test]
    fn text_is_escaped() {
        let xml = Error::new(Code::NoSuchKey, "a<b>&\"c\"").to_xml("b", "tx1", "h");
        assert_eq!(
            xml,
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?><Error><Code>NoSuchKey</Code><Message>a&lt;b&gt;&amp;&quot;c&quot;\
             </Message><BucketName>b</BucketName><RequestId>tx1</RequestId><HostId>h</HostId></Error>"
        );
    }
}
