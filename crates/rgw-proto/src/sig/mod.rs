//! Signatures: who sent a request, and which parts of it are that user's word.
//!
//! ```text
//!   Head ── Claim::of ──> Claim (nothing is believed) ── verify(secret, now) ──> Proof, or an error
//! ```
//!
//! A claim that verifies covers method, path, the query (all of it in version 4, the subresources in version 2) and
//! every header that decides something. How the body is covered stands in [`Payload`].
//!
//! Source: AWS's "Authenticating Requests" (versions 2 and 4); `rgw_auth_s3.cc`.

pub mod chunked;
pub mod form;
pub mod v2;
pub mod v4;

use aws_lc_rs::{constant_time, digest, hmac};

use crate::error::{Code, Error, Result};
use crate::request::Head;
use crate::time::Time;
use crate::uri;

/// How far a request's time may be from the gateway's, s.
pub const SKEW_S_MAX: i64 = 15 * 60;

/// What a request says about its sender.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claim {
    /// It says nothing: no signature.
    Anonymous,
    /// A signature of version 2.
    V2(v2::V2),
    /// A signature of version 4.
    V4(v4::V4),
}

impl Claim {
    /// Reads the claim. A request that carries two claims is refused, for two readers could each believe another.
    ///
    /// # Errors
    /// [`Code::InvalidArgument`], [`Code::InvalidRequest`] or [`Code::AccessDenied`], with what is wrong.
    pub fn of(head: &Head) -> Result<Self> {
        let header = head.headers.single("authorization")?.filter(|h| !h.is_empty());
        let v4 = head.query.has("X-Amz-Algorithm") || head.query.has("X-Amz-Signature");
        let v2 = head.query.has("Signature") || head.query.has("AWSAccessKeyId");
        if usize::from(header.is_some()) + usize::from(v4) + usize::from(v2) > 1 {
            return Err(Error::new(
                Code::InvalidArgument,
                "Only one way to authenticate may be in a request.",
            ));
        }
        Ok(match header {
            Some(text) if text.starts_with("AWS4-HMAC-SHA256") => {
                Self::V4(v4::V4::from_header(head, text)?)
            }
            Some(text) if text.starts_with("AWS ") => Self::V2(v2::V2::from_header(head, text)?),
            Some(_) => {
                let text = "Authorization begins with AWS4-HMAC-SHA256 or AWS: no other way is known here.";
                return Err(Error::new(Code::InvalidArgument, text));
            }
            None if v4 => Self::V4(v4::V4::from_query(head)?),
            None if v2 => Self::V2(v2::V2::from_query(head)?),
            None => Self::Anonymous,
        })
    }

    /// The access key whose secret [`Claim::verify`] needs.
    #[must_use]
    pub fn access_key(&self) -> Option<&str> {
        match self {
            Self::Anonymous => None,
            Self::V2(v2) => Some(&v2.access_key),
            Self::V4(v4) => Some(&v4.access_key),
        }
    }

    /// The token of the session whose key this is.
    #[must_use]
    pub fn token(&self) -> Option<&str> {
        match self {
            Self::Anonymous => None,
            Self::V2(v2) => v2.token.as_deref(),
            Self::V4(v4) => v4.token.as_deref(),
        }
    }

    /// Whether the signature covers the body of a form: those of version 4 do that name its sum, or leave it out.
    #[must_use]
    pub fn covers_form(&self) -> bool {
        let Self::V4(v4) = self else { return false };
        matches!(v4.payload(), Payload::Whole | Payload::Sha256(_))
    }

    /// Checks the signature with the secret of [`Claim::access_key`]. `body_sha256` (hex) is asked for only where
    /// the claim's payload is [`Payload::Whole`].
    ///
    /// # Errors
    /// [`Code::SignatureDoesNotMatch`], [`Code::RequestTimeTooSkewed`], [`Code::AccessDenied`].
    pub fn verify(&self, head: &Head, secret: &str, now: Time, facts: &Facts<'_>) -> Result<Proof> {
        match self {
            Self::Anonymous => Err(Code::AccessDenied.into()),
            Self::V2(v2) => {
                v2.verify(head, secret, now, facts.bucket_of_host)?;
                Ok(Proof { payload: Payload::Unsigned, chunks: None })
            }
            Self::V4(v4) => v4.verify(head, secret, now, facts.body_sha256),
        }
    }
}

/// What a signature covers and the head alone does not tell.
#[derive(Clone, Copy, Debug, Default)]
pub struct Facts<'a> {
    /// The bucket that the host names (virtual-host style); version 2 covers it.
    pub bucket_of_host: Option<&'a str>,
    /// The SHA-256 of the whole body, in hex, where it is known.
    pub body_sha256: Option<&'a str>,
}

/// How the body is covered by the signature.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Payload {
    /// By its SHA-256, to be compared at the body's end.
    Sha256([u8; 32]),
    /// Not at all.
    Unsigned,
    /// Chunk by chunk; with `trailer`, a signed trailer follows.
    Chunked {
        /// Whether a trailer follows the last chunk.
        trailer: bool,
    },
    /// Chunks without signatures, and a trailer.
    UnsignedTrailer,
    /// By its SHA-256, which the request does not name (forms of IAM and STS).
    Whole,
}

/// That a signature was right.
#[derive(Clone, Debug)]
pub struct Proof {
    /// How the body is covered.
    pub payload: Payload,
    /// What checks the chunks, where the body comes in signed ones.
    pub chunks: Option<chunked::Signer>,
}

/// The SHA-256 of bytes, in hex.
#[must_use]
pub fn sha256(bytes: &[u8]) -> String {
    uri::to_hex(digest::digest(&digest::SHA256, bytes).as_ref())
}

pub(crate) fn hmac_sha256(key: &[u8], text: &[u8]) -> [u8; 32] {
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text);
    tag.as_ref().try_into().expect("SHA-256 has 32 bytes")
}

/// Compares in constant time.
pub(crate) fn same(ours: &[u8], theirs: &[u8]) -> Result<()> {
    constant_time::verify_slices_are_equal(ours, theirs)
        .map_err(|_| Code::SignatureDoesNotMatch.into())
}

/// Refuses a time too far from now.
pub(crate) fn check_skew(then: Time, now: Time) -> Result<()> {
    if then.0.abs_diff(now.0) <= SKEW_S_MAX.unsigned_abs() {
        return Ok(());
    }
    let text = format!(
        "The request is of {then}, the gateway's time is {now}: they may differ by 15 minutes."
    );
    Err(Error::new(Code::RequestTimeTooSkewed, text))
}
