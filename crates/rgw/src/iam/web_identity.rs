//! Roles that are assumed by a token of an identity provider.
//!
//! ```text
//!   token (read, not believed) ── provider of the role's account ── issuer, audience, times ── keys of the issuer
//!     ── signature ── role's trust policy over the claims ── session
//! ```
//!
//! Source: `rgw_rest_sts.cc`, `rgw_auth.cc` (`WebIdentityApplier`).

use rgw_proto::iam::{Call, may_assume_by_token};
use rgw_proto::policy::{Context, Kind, Policy};
use rgw_proto::request::Head;
use rgw_proto::web_identity::{Token, thumbprint, without_scheme};
use rgw_proto::{Code, Error, Result};

use super::Answering;
use super::sessions::{parts, realm_of};
use crate::answer::Answer;
use crate::issuers::Published;
use crate::request::{Came, context_of_sender, now};
use crate::server::Server;

fn denied(text: impl Into<String>) -> Error {
    Error::new(Code::AccessDenied, text)
}

/// That the token is signed by a key of what its provider publishes. A key with certificates is known by one of them,
/// which must be registered; one without by the last certificate of the HTTPS connection that it came by.
fn verify(token: &Token<'_>, published: &Published, thumbprints: &[String]) -> Result<()> {
    let is_registered = |print: &str| thumbprints.iter().any(|t| t.eq_ignore_ascii_case(print));
    let key = token.key(&published.keys)?;
    if key.certificates.is_empty() {
        return match published.last_certificate.as_deref().is_some_and(is_registered) {
            true => token.verify(key),
            false => Err(denied(
                "The provider's key has no certificate, and did not come by HTTPS with a certificate that is registered as thumbprint.",
            )),
        };
    }
    let known = key.certificates.iter().find(|der| is_registered(&thumbprint(der)));
    let known = known.ok_or_else(|| {
        denied("No certificate of the provider's key is registered as thumbprint.")
    })?;
    token.verify_by(known)
}

impl Server {
    /// `AssumeRoleWithWebIdentity`: a session for whom the token is about.
    pub(super) async fn assume_by_token(
        &self,
        call: &Call,
        head: &Head,
        came: &Came,
    ) -> Result<Answer> {
        self.sealer()?;
        let arn = call.need("RoleArn")?;
        let (account, name) = parts(arn)?;
        let token = Token::parse(call.need("WebIdentityToken")?)?;
        let issuer = token.issuer()?;
        let url = without_scheme(issuer);
        let provider = self.gateway.provider(account, url).await?.ok_or_else(|| {
            denied("The token's iss is no identity provider of the role's account or tenant.")
        })?;
        token.check(&provider.url, &provider.clients, now())?;
        let found =
            self.issuers.of(issuer, &self.pusher, |published| token.key(&published.keys).is_ok());
        let published = found.await?;
        verify(&token, &published, &provider.thumbprints)?;

        let mut context: Context = context_of_sender(head, came);
        token.add_claims(url, &mut context)?;
        // Whether there is such a role is nobody's business who may not assume it.
        let refused = || denied(format!("sts:AssumeRoleWithWebIdentity on {arn} is not allowed."));
        let role = self.gateway.role_by_name(realm_of(account), name).await?;
        let role = role.filter(|role| role.arn == arn).ok_or_else(refused)?;
        let trust = Policy::parse(&role.trust, Kind::Trust)
            .map_err(|_| denied("The role's trust policy cannot be read."))?;
        may_assume_by_token(&trust, arn, url, &context)?;

        let subject = token.subject()?;
        let user = match role.account_id.as_str() {
            "" => self.gateway.shadow(&role.tenant, subject, token.display_name()).await?.text(),
            // The account owns what the session makes.
            _ => String::new(),
        };
        came.noted.borrow_mut().user.clone_from(&user);
        let mut out = Answering::of(call);
        let audiences = token.audiences();
        out.0.text("SubjectFromWebIdentityToken", subject);
        out.0.text("Audience", audiences.first().copied().unwrap_or_default());
        self.begin_session(call, &role, account, &user, &mut out.0)?;
        out.0.text("Provider", issuer);
        Ok(out.end(&came.id))
    }
}
