//! Signatures of forms: over the form's policy, in fields.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::{Payload, Proof, v2, v4};
use crate::error::{Code, Error, Result};
use crate::form::Fields;

/// What a form says of its sender. The policy is what is signed; it says what may be uploaded, and until when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FormClaim {
    /// Whose secret it is said to be signed with.
    pub access_key: String,
    /// The field `policy`, base64.
    pub policy: String,
    kind: Kind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    V2(String),
    V4(v4::Scope, String),
}

fn malformed(text: &str) -> Error {
    Error::new(Code::InvalidArgument, text)
}

impl FormClaim {
    /// Reads the claim; `None` of a form that names no sender.
    ///
    /// # Errors
    /// [`Code::InvalidArgument`] where fields are missing, wrong, or of both versions.
    pub fn of(fields: &Fields) -> Result<Option<Self>> {
        let (algorithm, old) = (fields.get("x-amz-algorithm"), fields.get("awsaccesskeyid"));
        let signed = ["signature", "x-amz-signature", "x-amz-credential"];
        if algorithm.is_none() && old.is_none() {
            return match signed.iter().find(|name| fields.get(name).is_some()) {
                Some(name) => Err(malformed(&format!(
                    "The form has {name} and neither x-amz-algorithm nor AWSAccessKeyId."
                ))),
                None => Ok(None),
            };
        }
        if algorithm.is_some() && old.is_some() {
            return Err(malformed("Only one way to authenticate may be in a form."));
        }
        let need = |name: &str| {
            let text = format!("The form is signed and wants the field {name}.");
            fields.get(name).ok_or_else(|| malformed(&text))
        };
        let policy = need("policy")?.to_owned();
        if STANDARD.decode(policy.trim()).is_err() {
            return Err(malformed("The form's policy is no base64."));
        }
        if let Some(access_key) = old {
            let kind = Kind::V2(need("signature")?.to_owned());
            return Ok(Some(Self { access_key: access_key.into(), policy, kind }));
        }
        if algorithm != Some("AWS4-HMAC-SHA256") {
            return Err(malformed("x-amz-algorithm is AWS4-HMAC-SHA256: no other is known here."));
        }
        let (access_key, scope) = v4::credential(need("x-amz-credential")?)?;
        let signature = need("x-amz-signature")?.to_owned();
        Ok(Some(Self { access_key, policy, kind: Kind::V4(scope, signature) }))
    }

    /// Checks the signature with the secret of `access_key`. When it ends the policy itself says: the caller checks that.
    ///
    /// # Errors
    /// [`Code::SignatureDoesNotMatch`].
    pub fn verify(&self, secret: &str) -> Result<Proof> {
        match &self.kind {
            Kind::V2(signature) => v2::verify_form(&self.policy, signature, secret)?,
            Kind::V4(scope, signature) => v4::verify_form(&self.policy, scope, signature, secret)?,
        }
        Ok(Proof { payload: Payload::Unsigned, chunks: None })
    }
}

#[cfg(test)]
mod tests {
    use super::super::hmac_sha256;
    use super::*;
    use crate::uri;

    fn fields(all: &[(&str, &str)]) -> Fields {
        let mut form = String::new();
        for (name, value) in all {
            form += &format!(
                "--x\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n"
            );
        }
        form += "--x\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\n\r\n--x--\r\n";
        let mut decoder = crate::form::Decoder::new("multipart/form-data; boundary=x").unwrap();
        decoder.push(form.as_bytes(), &mut Vec::new()).unwrap();
        decoder.finish().unwrap()
    }

    #[test]
    fn forms_are_signed_or_anonymous() {
        assert_eq!(FormClaim::of(&fields(&[("key", "k")])).unwrap(), None);
        let policy = "eyJleHAiOiAxfQ==";
        let scope = v4::Scope { day: "20260102".into(), region: "r".into(), service: "s3".into() };
        let signature = uri::to_hex(&hmac_sha256(&scope.key("secret"), policy.as_bytes()));
        let good = [
            ("policy", policy),
            ("x-amz-algorithm", "AWS4-HMAC-SHA256"),
            ("x-amz-credential", "KEY/20260102/r/s3/aws4_request"),
            ("X-Amz-Signature", &signature),
        ];
        let claim = FormClaim::of(&fields(&good)).unwrap().unwrap();
        assert_eq!(claim.access_key, "KEY");
        assert!(claim.verify("secret").is_ok());
        assert_eq!(claim.verify("Secret").unwrap_err().code, Code::SignatureDoesNotMatch);
        // A policy that was changed is not what was signed.
        let mut other = good;
        other[0].1 = "eyJleHAiOiAyfQ==";
        let claim = FormClaim::of(&fields(&other)).unwrap().unwrap();
        assert_eq!(claim.verify("secret").unwrap_err().code, Code::SignatureDoesNotMatch);
        for n in 0..good.len() {
            let mut less = good.to_vec();
            less.remove(n);
            assert!(FormClaim::of(&fields(&less)).is_err(), "without {}", good[n].0);
        }
        let both = [&good[..], &[("AWSAccessKeyId", "KEY"), ("signature", "x")]].concat();
        assert!(FormClaim::of(&fields(&both)).is_err());
    }
}
