//! IAM, STS and SNS: forms that are posted to `/`.
//!
//! ```text
//!   form (bounded) ── Call (rgw_proto::iam) ── who (signature, covers the body) ── may they ── action ── XML
//! ```

mod groups;
pub mod policies;
mod providers;
mod roles;
mod sessions;
mod topics;
mod users;
mod web_identity;

use rgw_core::roles::Realm;
use rgw_proto::iam::{Asker, Call, FORM_BYTES_MAX, Service};
use rgw_proto::policy::{Context, Kind, Policy};
use rgw_proto::request::Head;
use rgw_proto::sig::{Claim, Proof, sha256};
use rgw_proto::xml::Writer;
use rgw_proto::{Code, Error, Result};

use crate::answer::Answer;
use crate::body::{Reader, Received};
use crate::request::{Came, Known, authenticate, context_of};
use crate::server::Server;

/// Members of one answer.
const LISTED_MAX: u32 = 1_000;
/// Policies of a role or user: `rgw_user_policies_max_num`.
const POLICIES_MAX: usize = 100;
/// Members of a list of fields: tags, keys of tags.
const MEMBERS_MAX: usize = 50;

/// A call and who makes it.
struct Asked<'a> {
    call: &'a Call,
    known: &'a Known,
    proof: &'a Proof,
    context: Context,
    /// The request's id.
    id: &'a str,
}

/// An answer's XML, as far as the result's end.
struct Answering(Writer, &'static str, bool);

impl Asked<'_> {
    /// The account or tenant that a name is looked up in.
    fn realm(&self) -> Realm<'_> {
        Realm { account: &self.known.user.account_id, tenant: &self.known.user.id.tenant }
    }

    /// What stands for it in ARNs.
    fn account(&self) -> &str {
        match self.known.user.account_id.as_str() {
            "" => &self.known.user.id.tenant,
            id => id,
        }
    }

    /// Refuses what the asker may not.
    fn allow(&self, resource: &str) -> Result<()> {
        let (caps, none) = (&self.known.user.limits.caps.0, Default::default());
        let caps = if self.known.may_all { caps } else { &none };
        let asker = Asker::proven(self.proof, &self.known.identity, caps);
        asker.authorize(self.call, resource, &self.context)
    }

    fn allow_assume(&self, trust: &Policy, role: &str, account: &str) -> Result<()> {
        let none = std::collections::BTreeMap::new();
        let asker = Asker::proven(self.proof, &self.known.identity, &none);
        asker.may_assume(trust, role, account, &self.context)
    }

    /// A page's bounds: `Marker` and `MaxItems`.
    fn page(&self) -> Result<(&str, u32)> {
        let most = match self.call.text("MaxItems") {
            "" => 100,
            text => {
                text.parse().ok().filter(|n| (1..=LISTED_MAX).contains(n)).ok_or_else(|| {
                    Error::new(Code::InvalidArgument, "MaxItems is a number from 1 to 1000.")
                })?
            }
        };
        Ok((self.call.text("Marker"), most))
    }

    /// `NAME.member.1…`, as far as they go.
    fn members(&self, name: &str, field: &str, most: usize) -> Result<Vec<&str>> {
        let mut out = Vec::new();
        while let Some(text) =
            self.call.fields.get(&format!("{name}.member.{}{field}", out.len() + 1))
        {
            if out.len() == most {
                let text = format!("{name} has at most {most} members.");
                return Err(Error::new(Code::InvalidArgument, text));
            }
            out.push(text);
        }
        Ok(out)
    }

    fn tags(&self) -> Result<Vec<(String, String)>> {
        let (keys, values) = (
            self.members("Tags", ".Key", MEMBERS_MAX)?,
            self.members("Tags", ".Value", MEMBERS_MAX)?,
        );
        let fits = |(key, value): (&&str, &&str)| {
            !key.is_empty() && key.len() <= 128 && value.len() <= 256
        };
        if keys.len() != values.len() || !keys.iter().zip(&values).all(fits) {
            let text = "Each tag has a Key of 1 to 128 bytes and a Value of at most 256.";
            return Err(Error::new(Code::InvalidArgument, text));
        }
        Ok(keys.into_iter().map(str::to_owned).zip(values.into_iter().map(str::to_owned)).collect())
    }

    /// A name in the form's field.
    fn name(&self, field: &str) -> Result<&str> {
        name_in(self.call, field)
    }

    /// `Path`, or the default.
    fn path(&self, field: &str) -> Result<String> {
        let path = self.call.text(field);
        let path = if path.is_empty() { "/" } else { path };
        let is_whole = path.starts_with('/') && path.ends_with('/') && path.len() <= 512;
        if !is_whole || !path.bytes().all(|b| b.is_ascii_graphic()) {
            let text =
                format!("{field} begins and ends with / and has at most 512 printable characters.");
            return Err(Error::new(Code::InvalidArgument, text));
        }
        Ok(path.to_owned())
    }

    /// A policy in the form's field, as it is to be stored.
    fn document(&self, field: &str, kind: Kind) -> Result<String> {
        let text = self.call.need(field)?;
        Policy::parse(text, kind)?;
        Ok(text.to_owned())
    }

    fn result(&self) -> Answering {
        Answering::of(self.call)
    }

    /// An answer without a result.
    fn done(&self) -> Answer {
        let action = self.call.action;
        let mut w = Writer::document();
        w.open(&format!("{action}Response xmlns=\"{}\"", self.call.service.namespace()));
        Answering(w, action, false).answer(self)
    }
}

/// A name in a form's field.
fn name_in<'a>(call: &'a Call, field: &str) -> Result<&'a str> {
    let name = call.need(field)?;
    let fits = |c: char| c.is_ascii_alphanumeric() || "+=,.@_-".contains(c);
    if name.len() > 64 || !name.chars().all(fits) {
        let text = format!("{field} has 1 to 64 letters, digits and + = , . @ _ -.");
        return Err(Error::new(Code::InvalidArgument, text));
    }
    Ok(name)
}

impl Answering {
    /// Begins the result of a call.
    fn of(call: &Call) -> Self {
        let action = call.action;
        let mut w = Writer::document();
        w.open(&format!("{action}Response xmlns=\"{}\"", call.service.namespace()));
        w.open(&format!("{action}Result"));
        Self(w, action, true)
    }

    fn answer(self, asked: &Asked<'_>) -> Answer {
        self.end(asked.id)
    }

    /// Ends the answer to the request of an id.
    fn end(mut self, id: &str) -> Answer {
        if self.2 {
            self.0.close(&format!("{}Result", self.1));
        }
        self.0.open("ResponseMetadata").text("RequestId", id).close("ResponseMetadata");
        self.0.close(&format!("{}Response", self.1));
        Answer::xml(self.0.finish())
    }

    /// Says whether there are more members, and where they begin.
    fn more(&mut self, next: Option<&str>) {
        self.0.value("IsTruncated", next.is_some()).maybe("Marker", next);
    }
}

fn note(call: &Call, came: &Came) {
    let mut noted = came.noted.borrow_mut();
    (noted.operation, noted.namespace) = (call.action, call.service.namespace());
}

impl Server {
    /// Answers a form that nobody signed: the token in it says whom it is about.
    async fn serve_unsigned(&self, head: &Head, body: Received, came: &Came) -> Result<Answer> {
        let unsigned = || Error::new(Code::AccessDenied, "Forms of IAM and STS are signed.");
        let _held = self.needed.need(FORM_BYTES_MAX)?;
        let form = Reader::new(body, head, None, FORM_BYTES_MAX, true)?.document().await?;
        let call = Call::parse(&form).map_err(|_| unsigned())?;
        if call.action != "AssumeRoleWithWebIdentity" {
            return Err(unsigned());
        }
        note(&call, came);
        self.assume_by_token(&call, head, came).await
    }

    /// Answers a form of IAM or STS.
    pub(crate) async fn serve_form(
        &self,
        head: Head,
        body: Received,
        came: &Came,
    ) -> Result<Answer> {
        let claim = Claim::of(&head)?;
        if claim.access_key().is_none() {
            return self.serve_unsigned(&head, body, came).await;
        }
        if !claim.covers_form() {
            let text = "The signature does not cover the form: sign with version 4, and the body's SHA-256.";
            return Err(Error::new(Code::AccessDenied, text));
        }
        let _held = self.needed.need(FORM_BYTES_MAX)?;
        let form = Reader::new(body, &head, None, FORM_BYTES_MAX, true)?.document().await?;
        let sum = sha256(&form);
        let known = authenticate(self, &head, &claim, came, Some(&sum)).await?;
        let (known, proof) = known.ok_or_else(|| Error::from(Code::AccessDenied))?;
        if let rgw_proto::sig::Payload::Sha256(told) = &proof.payload
            && rgw_proto::uri::to_hex(told) != sum
        {
            return Err(Code::XAmzContentSHA256Mismatch.into());
        }
        let call = Call::parse(&form)?;
        note(&call, came);
        if call.action == "AssumeRoleWithWebIdentity" {
            return self.assume_by_token(&call, &head, came).await;
        }
        let context = context_of(&head, came, &known.user);
        let asked = Asked { call: &call, known: &known, proof: &proof, context, id: &came.id };
        match call.action {
            "AssumeRole" => self.assume_role(&asked).await,
            "GetSessionToken" => self.session_token(&asked),
            name if name.contains("OpenIDConnectProvider") => self.on_provider(&asked).await,
            name if name.contains("Role") => self.on_role(&asked).await,
            name if name.contains("Group") => self.on_group(&asked).await,
            name if name.ends_with("UserPolicy") || name.ends_with("UserPolicies") => {
                self.on_user_policy(&asked).await
            }
            _ if call.service == Service::Sns => self.on_topic(&asked, came.is_secret).await,
            _ => self.on_user(&asked).await,
        }
    }
}
