//! Signatures of version 2, in a header or in a URL.

use aws_lc_rs::hmac;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::{check_skew, same};
use crate::error::{Code, Error, Result};
use crate::request::Head;
use crate::time::Time;

/// Parameters of the query that the signature covers, sorted. What stands in no such list could be changed on the
/// way; [`covers`] is asked before one of them chooses the operation.
const SIGNED: &[&str] = &[
    "acl",
    "cors",
    "delete",
    "encryption",
    "lifecycle",
    "location",
    "logging",
    "notification",
    "object-lock",
    "partNumber",
    "policy",
    "policyStatus",
    "publicAccessBlock",
    "requestPayment",
    "response-cache-control",
    "response-content-disposition",
    "response-content-encoding",
    "response-content-language",
    "response-content-type",
    "response-expires",
    "tagging",
    "torrent",
    "uploadId",
    "uploads",
    "versionId",
    "versioning",
    "versions",
    "website",
];

/// Whether signatures of version 2 cover a parameter.
#[must_use]
pub fn covers(parameter: &str) -> bool {
    SIGNED.binary_search(&parameter).is_ok()
}

/// A claim of version 2.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct V2 {
    /// Whose secret it is said to be signed with.
    pub access_key: String,
    /// Session token, where the key is a temporary one.
    pub token: Option<String>,
    signature: Vec<u8>,
    /// The URL's last valid second; `None` where the signature is in a header.
    expires: Option<Time>,
}

fn malformed(text: &str) -> Error {
    Error::new(Code::InvalidArgument, text)
}

impl V2 {
    pub(super) fn from_header(head: &Head, text: &str) -> Result<Self> {
        let rest = text.strip_prefix("AWS ").unwrap_or_default().trim();
        let (access, signature) = rest
            .rsplit_once(':')
            .ok_or_else(|| malformed("Authorization is not AWS ACCESSKEY:SIGNATURE."))?;
        let token = head.headers.single("x-amz-security-token")?.map(str::to_owned);
        Self::new(access, signature, token, None)
    }

    pub(super) fn from_query(head: &Head) -> Result<Self> {
        let get = |name: &str| {
            head.query.get(name).ok_or_else(|| {
                malformed("The URL is signed and wants AWSAccessKeyId, Expires and Signature.")
            })
        };
        let expires = get("Expires")?
            .parse()
            .map_err(|_| Error::new(Code::AccessDenied, "Expires is in seconds since 1970."))?;
        let token = head.query.get("x-amz-security-token").map(str::to_owned);
        Self::new(get("AWSAccessKeyId")?, get("Signature")?, token, Some(Time(expires)))
    }

    fn new(
        access: &str,
        signature: &str,
        token: Option<String>,
        expires: Option<Time>,
    ) -> Result<Self> {
        let signature = STANDARD
            .decode(signature)
            .map_err(|_| Error::new(Code::SignatureDoesNotMatch, "The signature is no base64."))?;
        Ok(Self { access_key: access.into(), token, signature, expires })
    }

    /// The text that is signed.
    fn text(&self, head: &Head, bucket_of_host: Option<&str>) -> String {
        let get = |name| head.headers.get(name).unwrap_or_default();
        let date = match self.expires {
            Some(time) => time.0.to_string(),
            None if head.headers.get("x-amz-date").is_some() => String::new(),
            None => get("date").to_owned(),
        };
        let mut text = format!(
            "{}\n{}\n{}\n{date}\n",
            head.method.name(),
            get("content-md5"),
            get("content-type")
        );
        let mut names: Vec<&str> = head.headers.with_prefix("x-amz-").map(|(n, _)| n).collect();
        names.sort_unstable();
        names.dedup();
        for name in names {
            text += &format!("{name}:{}\n", head.headers.joined(name));
        }
        if let Some(bucket) = bucket_of_host {
            text += &format!("/{bucket}");
        }
        text += &head.path;
        let mut parameters: Vec<_> = head.query.iter().filter(|(n, _)| covers(n)).collect();
        parameters.sort_unstable();
        for (at, (name, value)) in parameters.iter().enumerate() {
            text.push(if at == 0 { '?' } else { '&' });
            text += name;
            if let Some(value) = value.filter(|v| !v.is_empty()) {
                text += &format!("={value}");
            }
        }
        text
    }

    /// Checks time and signature.
    pub(super) fn verify(
        &self,
        head: &Head,
        secret: &str,
        now: Time,
        bucket_of_host: Option<&str>,
    ) -> Result<()> {
        if let Some(expires) = self.expires {
            if now > expires {
                return Err(Error::new(Code::AccessDenied, "The URL has expired."));
            }
        } else {
            let date = head
                .headers
                .single("x-amz-date")?
                .or(head.headers.single("date")?)
                .unwrap_or_default();
            let date = Time::parse_http(date).or_else(|| Time::parse_basic(date));
            check_skew(
                date.ok_or_else(|| {
                    Error::new(
                        Code::AccessDenied,
                        "A signed request wants a valid x-amz-date or Date.",
                    )
                })?,
                now,
            )?;
        }
        same(sign(secret, self.text(head, bucket_of_host).as_bytes()).as_ref(), &self.signature)
    }
}

fn sign(secret: &str, text: &[u8]) -> hmac::Tag {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, secret.as_bytes()), text)
}

/// Checks the signature of a form's policy (`signature` in base64).
///
/// # Errors
/// [`Code::InvalidArgument`], [`Code::SignatureDoesNotMatch`].
pub fn verify_form(policy: &str, signature: &str, secret: &str) -> Result<()> {
    let theirs =
        STANDARD.decode(signature).map_err(|_| malformed("The signature is no base64."))?;
    same(sign(secret, policy.as_bytes()).as_ref(), &theirs)
}
