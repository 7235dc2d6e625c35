//! Signatures of version 4, in a header or in a URL.

use super::{Payload, Proof, check_skew, chunked, hmac_sha256, same, sha256};
use crate::error::{Code, Error, Result};
use crate::request::Head;
use crate::time::Time;
use crate::uri;

/// Seconds that a URL may be valid: a week.
const EXPIRES_S_MAX: i64 = 604_800;

/// Headers that a signature may name.
const SIGNED_HEADERS_MAX: usize = 128;

/// Day, region and service of a signature; any region and service is taken, as stock does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scope {
    /// `20260102`.
    pub day: String,
    /// As sent.
    pub region: String,
    /// `s3`, `sts`, `iam`, `sns`.
    pub service: String,
}

impl Scope {
    fn text(&self) -> String {
        format!("{}/{}/{}/aws4_request", self.day, self.region, self.service)
    }

    /// The key that signs within this scope.
    #[must_use]
    pub fn key(&self, secret: &str) -> [u8; 32] {
        let day = hmac_sha256(format!("AWS4{secret}").as_bytes(), self.day.as_bytes());
        let region = hmac_sha256(&day, self.region.as_bytes());
        let service = hmac_sha256(&region, self.service.as_bytes());
        hmac_sha256(&service, b"aws4_request")
    }
}

/// Reads `ACCESS/DAY/REGION/SERVICE/aws4_request`.
///
/// # Errors
/// [`Code::InvalidArgument`].
pub fn credential(text: &str) -> Result<(String, Scope)> {
    let parts: Vec<&str> = text.rsplitn(5, '/').collect();
    match parts[..] {
        ["aws4_request", service, region, day, access] if !access.is_empty() => Ok((
            access.into(),
            Scope { day: day.into(), region: region.into(), service: service.into() },
        )),
        _ => Err(malformed("Credential is not ACCESSKEY/DAY/REGION/SERVICE/aws4_request.")),
    }
}

/// Where the signature stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Header,
    /// In a URL that is valid so many seconds.
    Query(i64),
}

/// A claim of version 4.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct V4 {
    /// Whose secret it is said to be signed with.
    pub access_key: String,
    /// Session token, where the key is a temporary one.
    pub token: Option<String>,
    scope: Scope,
    date: Time,
    signed: Vec<String>,
    signature: Vec<u8>,
    place: Place,
    /// Last line of the canonical request; empty where the body's sum goes there.
    payload_line: String,
    payload: Payload,
}

fn malformed(text: impl Into<String>) -> Error {
    Error::new(Code::InvalidArgument, text)
}

impl V4 {
    /// Reads `AWS4-HMAC-SHA256 Credential=…, SignedHeaders=…, Signature=…`, blanks behind commas optional.
    pub(super) fn from_header(head: &Head, text: &str) -> Result<Self> {
        let rest = text.strip_prefix("AWS4-HMAC-SHA256").unwrap_or_default();
        if !rest.starts_with(char::is_whitespace) {
            return Err(malformed("Authorization: a blank follows AWS4-HMAC-SHA256."));
        }
        let mut fields: [Option<&str>; 3] = [None; 3];
        for field in rest.split(',') {
            let (name, value) = field
                .trim()
                .split_once('=')
                .ok_or_else(|| malformed("Authorization has a field without '='."))?;
            let at = ["Credential", "SignedHeaders", "Signature"].iter().position(|n| *n == name);
            let slot = at.map(|at| &mut fields[at]).filter(|slot| slot.is_none());
            *slot.ok_or_else(|| {
                malformed(format!("Authorization has {name} where it should not."))
            })? = Some(value);
        }
        let [Some(credential_text), Some(signed), Some(signature)] = fields else {
            return Err(malformed("Authorization wants Credential, SignedHeaders and Signature."));
        };
        let date = match head.headers.single("x-amz-date")? {
            Some(text) => Time::parse_basic(text).or_else(|| Time::parse_http(text)),
            None => head
                .headers
                .single("date")?
                .and_then(|text| Time::parse_http(text).or_else(|| Time::parse_basic(text))),
        };
        let date = date.ok_or_else(|| {
            Error::new(Code::AccessDenied, "A signed request wants a valid x-amz-date or Date.")
        })?;
        let token = head.headers.single("x-amz-security-token")?.map(str::to_owned);
        let line = head.headers.single("x-amz-content-sha256")?.unwrap_or_default();
        Self::new(credential_text, signed, signature, date, (Place::Header, token, line))
    }

    /// Reads the parameters `X-Amz-*` of a URL.
    pub(super) fn from_query(head: &Head) -> Result<Self> {
        let get = |name: &str| {
            head.query
                .get(name)
                .ok_or_else(|| malformed(format!("The URL is signed and wants {name}.")))
        };
        if get("X-Amz-Algorithm")? != "AWS4-HMAC-SHA256" {
            return Err(malformed("X-Amz-Algorithm is AWS4-HMAC-SHA256: no other is known here."));
        }
        let date = Time::parse_basic(get("X-Amz-Date")?)
            .ok_or_else(|| malformed("X-Amz-Date is like 20260102T030405Z."))?;
        let expires: i64 = get("X-Amz-Expires")?.parse().unwrap_or(-1);
        if !(1..=EXPIRES_S_MAX).contains(&expires) {
            return Err(malformed("X-Amz-Expires is 1 to 604800 seconds."));
        }
        let token = head.query.get("X-Amz-Security-Token").map(str::to_owned);
        let line = match head.query.get("X-Amz-Content-Sha256") {
            Some(line) => line,
            None => head.headers.single("x-amz-content-sha256")?.unwrap_or("UNSIGNED-PAYLOAD"),
        };
        let (credential_text, signed) = (get("X-Amz-Credential")?, get("X-Amz-SignedHeaders")?);
        Self::new(
            credential_text,
            signed,
            get("X-Amz-Signature")?,
            date,
            (Place::Query(expires), token, line),
        )
    }

    fn new(
        credential_text: &str,
        signed: &str,
        signature: &str,
        date: Time,
        rest: (Place, Option<String>, &str),
    ) -> Result<Self> {
        let (place, token, line) = rest;
        let (access_key, scope) = credential(credential_text)?;
        if scope.day != date.basic()[..8] {
            return Err(malformed("The day in Credential is not that of the request's date."));
        }
        let signed: Vec<String> = signed.split(';').map(str::to_ascii_lowercase).collect();
        if signed.len() > SIGNED_HEADERS_MAX {
            return Err(malformed("SignedHeaders names more than 128 headers."));
        }
        let signature = uri::from_hex(signature).filter(|s| s.len() == 32);
        // Signed as if it were there: go-ceph's client of the Admin API leaves it out, and stock takes that.
        let line = if line.is_empty() && scope.service == "s3" { "UNSIGNED-PAYLOAD" } else { line };
        let signature = signature.ok_or_else(|| {
            Error::new(Code::SignatureDoesNotMatch, "Signature is 64 hex digits.")
        })?;
        let payload = match line {
            "UNSIGNED-PAYLOAD" => Payload::Unsigned,
            "STREAMING-AWS4-HMAC-SHA256-PAYLOAD" => Payload::Chunked { trailer: false },
            "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER" => Payload::Chunked { trailer: true },
            "STREAMING-UNSIGNED-PAYLOAD-TRAILER" => Payload::UnsignedTrailer,
            "" => Payload::Whole,
            hex => {
                let sum = uri::from_hex(hex).and_then(|sum| sum.try_into().ok());
                let what = "x-amz-content-sha256 is 64 hex digits or the name of a payload form that is known here.";
                Payload::Sha256(sum.ok_or_else(|| malformed(what))?)
            }
        };
        Ok(Self {
            access_key,
            token,
            scope,
            date,
            signed,
            signature,
            place,
            payload_line: line.into(),
            payload,
        })
    }

    /// How the body is said to be covered.
    #[must_use]
    pub fn payload(&self) -> &Payload {
        &self.payload
    }

    /// `s3`, `sts`, `iam` or `sns`, as the signer said.
    #[must_use]
    pub fn service(&self) -> &str {
        &self.scope.service
    }

    /// Refuses headers that decide something and are not signed, by name.
    fn check_signed(&self, head: &Head) -> Result<()> {
        let all = head.headers.with_prefix("").map(|(name, _)| name);
        let decides =
            |name: &str| matches!(name, "host" | "content-type") || name.starts_with("x-amz-");
        let unsigned =
            all.filter(|n| decides(n)).find(|name| !self.signed.iter().any(|s| s == name));
        if let Some(name) = unsigned {
            let text =
                format!("The header {name} is not in SignedHeaders: sign it, or leave it out.");
            return Err(Error::new(Code::AccessDenied, text));
        }
        if head.headers.get("host").is_none() {
            return Err(Error::new(
                Code::AccessDenied,
                "The request has no host, which a signature covers.",
            ));
        }
        Ok(())
    }

    /// The text whose SHA-256 is signed.
    fn canonical(&self, head: &Head, payload_line: &str) -> Result<String> {
        let mut path = Vec::new();
        for part in head.path.split('/') {
            path.push(uri::encode(&uri::decode(part, false)?, false));
        }
        let mut headers = String::new();
        for name in &self.signed {
            let value = head.headers.canonical(name);
            let missing = || {
                Error::new(
                    Code::AccessDenied,
                    format!("SignedHeaders names {name}, which did not come."),
                )
            };
            headers += &format!("{name}:{}\n", value.ok_or_else(missing)?);
        }
        let query = head.query.canonical("X-Amz-Signature");
        let signed = self.signed.join(";");
        Ok([head.method.name(), &path.join("/"), &query, &headers, &signed, payload_line]
            .join("\n"))
    }

    /// Checks time, coverage and signature.
    pub(super) fn verify(
        &self,
        head: &Head,
        secret: &str,
        now: Time,
        body_sha256: Option<&str>,
    ) -> Result<Proof> {
        match self.place {
            Place::Header => check_skew(self.date, now)?,
            Place::Query(expires_s) => {
                if self.date.0 > now.0 {
                    check_skew(self.date, now)?;
                }
                if now.0 > self.date.0 + expires_s {
                    return Err(Error::new(Code::AccessDenied, "The URL has expired."));
                }
            }
        }
        self.check_signed(head)?;
        let line = match &self.payload {
            Payload::Whole => body_sha256.ok_or_else(|| Error::from(Code::InvalidRequest))?,
            _ => &self.payload_line,
        };
        let date = self.date.basic();
        let scope = self.scope.text();
        let sum = sha256(self.canonical(head, line)?.as_bytes());
        let key = self.scope.key(secret);
        let ours =
            hmac_sha256(&key, format!("AWS4-HMAC-SHA256\n{date}\n{scope}\n{sum}").as_bytes());
        same(&ours, &self.signature)?;
        let chunks = matches!(self.payload, Payload::Chunked { .. })
            .then(|| chunked::Signer::new(key, date, scope, &self.signature));
        Ok(Proof { payload: self.payload.clone(), chunks })
    }
}

/// Checks the signature of a form's policy: `x-amz-credential`, `x-amz-date`, `x-amz-signature` of its fields.
///
/// # Errors
/// [`Code::InvalidArgument`], [`Code::SignatureDoesNotMatch`]. The policy's own expiration bounds its time.
pub fn verify_form(policy: &str, scope: &Scope, signature: &str, secret: &str) -> Result<()> {
    let theirs =
        uri::from_hex(signature).ok_or_else(|| malformed("x-amz-signature is 64 hex digits."))?;
    same(&hmac_sha256(&scope.key(secret), policy.as_bytes()), &theirs)
}
