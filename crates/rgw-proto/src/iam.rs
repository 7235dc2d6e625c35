//! Actions of IAM, STS and SNS: forms that are posted to `/`, what they are called in policies, and who may.
//!
//! Source: `rgw_rest_iam.cc`, `rgw_rest_role.cc`, `rgw_rest_user_policy.cc`, `rgw_rest_iam_user.cc`, `rgw_rest_sts.cc`,
//! `rgw_rest_pubsub.cc`.

use crate::authorize::Identity;
use crate::error::{Code, Error, Result};
use crate::policy::{Ask, Context, Policy, Principal, Verdict};
use crate::sig::Proof;
use crate::uri::Query;

/// Bytes of a form.
pub const FORM_BYTES_MAX: u64 = 256 << 10;

/// What answers an action: it has its name space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// Users, roles, policies.
    Iam,
    /// Sessions with temporary keys.
    Sts,
    /// Topics of notifications: judged by [`Asker::authorize_topic`].
    Sns,
}

impl Service {
    /// The name space of answers.
    #[must_use]
    pub fn namespace(self) -> &'static str {
        match self {
            Self::Iam => "https://iam.amazonaws.com/doc/2010-05-08/",
            Self::Sts => "https://sts.amazonaws.com/doc/2011-06-15/",
            Self::Sns => "https://sns.amazonaws.com/doc/2010-03-31/",
        }
    }
}

/// Action, service, the cap by which users without an account may, whether it writes, whether only users of accounts
/// may.
const TABLE: &[(&str, Service, &str, bool, bool)] = &[
    ("CreateRole", Service::Iam, "roles", true, false),
    ("GetRole", Service::Iam, "roles", false, false),
    ("ListRoles", Service::Iam, "roles", false, false),
    ("DeleteRole", Service::Iam, "roles", true, false),
    ("UpdateRole", Service::Iam, "roles", true, false),
    ("UpdateAssumeRolePolicy", Service::Iam, "roles", true, false),
    ("PutRolePolicy", Service::Iam, "roles", true, false),
    ("GetRolePolicy", Service::Iam, "roles", false, false),
    ("ListRolePolicies", Service::Iam, "roles", false, false),
    ("DeleteRolePolicy", Service::Iam, "roles", true, false),
    ("AttachRolePolicy", Service::Iam, "roles", true, true),
    ("DetachRolePolicy", Service::Iam, "roles", true, true),
    ("ListAttachedRolePolicies", Service::Iam, "roles", false, true),
    ("TagRole", Service::Iam, "roles", true, false),
    ("UntagRole", Service::Iam, "roles", true, false),
    ("ListRoleTags", Service::Iam, "roles", false, false),
    ("PutUserPolicy", Service::Iam, "user-policy", true, false),
    ("GetUserPolicy", Service::Iam, "user-policy", false, false),
    ("ListUserPolicies", Service::Iam, "user-policy", false, false),
    ("DeleteUserPolicy", Service::Iam, "user-policy", true, false),
    ("AttachUserPolicy", Service::Iam, "user-policy", true, true),
    ("DetachUserPolicy", Service::Iam, "user-policy", true, true),
    ("ListAttachedUserPolicies", Service::Iam, "user-policy", false, true),
    ("CreateUser", Service::Iam, "", true, true),
    ("GetUser", Service::Iam, "", false, true),
    ("ListUsers", Service::Iam, "", false, true),
    ("UpdateUser", Service::Iam, "", true, true),
    ("DeleteUser", Service::Iam, "", true, true),
    ("CreateAccessKey", Service::Iam, "", true, true),
    ("ListAccessKeys", Service::Iam, "", false, true),
    ("UpdateAccessKey", Service::Iam, "", true, true),
    ("DeleteAccessKey", Service::Iam, "", true, true),
    ("CreateGroup", Service::Iam, "", true, true),
    ("GetGroup", Service::Iam, "", false, true),
    ("UpdateGroup", Service::Iam, "", true, true),
    ("DeleteGroup", Service::Iam, "", true, true),
    ("ListGroups", Service::Iam, "", false, true),
    ("AddUserToGroup", Service::Iam, "", true, true),
    ("RemoveUserFromGroup", Service::Iam, "", true, true),
    ("ListGroupsForUser", Service::Iam, "", false, true),
    ("PutGroupPolicy", Service::Iam, "", true, true),
    ("GetGroupPolicy", Service::Iam, "", false, true),
    ("ListGroupPolicies", Service::Iam, "", false, true),
    ("DeleteGroupPolicy", Service::Iam, "", true, true),
    ("AttachGroupPolicy", Service::Iam, "", true, true),
    ("DetachGroupPolicy", Service::Iam, "", true, true),
    ("ListAttachedGroupPolicies", Service::Iam, "", false, true),
    ("CreateOpenIDConnectProvider", Service::Iam, "oidc-provider", true, false),
    ("GetOpenIDConnectProvider", Service::Iam, "oidc-provider", false, false),
    ("ListOpenIDConnectProviders", Service::Iam, "oidc-provider", false, false),
    ("DeleteOpenIDConnectProvider", Service::Iam, "oidc-provider", true, false),
    ("AddClientIDToOpenIDConnectProvider", Service::Iam, "oidc-provider", true, false),
    ("RemoveClientIDFromOpenIDConnectProvider", Service::Iam, "oidc-provider", true, false),
    ("UpdateOpenIDConnectProviderThumbprint", Service::Iam, "oidc-provider", true, false),
    ("AssumeRole", Service::Sts, "", true, false),
    ("AssumeRoleWithWebIdentity", Service::Sts, "", true, false),
    ("GetSessionToken", Service::Sts, "", true, false),
    ("CreateTopic", Service::Sns, "", true, false),
    ("DeleteTopic", Service::Sns, "", true, false),
    ("ListTopics", Service::Sns, "", false, false),
    ("GetTopic", Service::Sns, "", false, false),
    ("GetTopicAttributes", Service::Sns, "", false, false),
    ("SetTopicAttributes", Service::Sns, "", true, false),
];

/// Actions that stock has and this gateway has not.
const NOT_BUILT: &[&str] = &["GetAccountSummary"];

/// A form's action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// Its name.
    pub action: &'static str,
    /// What answers it.
    pub service: Service,
    /// The form's fields.
    pub fields: Query,
    cap: &'static str,
    writes: bool,
    of_accounts: bool,
}

impl Call {
    /// Reads a form, `application/x-www-form-urlencoded`.
    ///
    /// # Errors
    /// [`Code::InvalidArgument`] for what is no form; [`Code::NotImplemented`] for what stock has and this gateway has
    /// not; [`Code::MethodNotAllowed`] for other actions.
    pub fn parse(body: &[u8]) -> Result<Self> {
        let bad = || Error::new(Code::InvalidArgument, "The body is no form in UTF-8.");
        let fields = Query::parse(std::str::from_utf8(body).map_err(|_| bad())?)?;
        let name = fields.get("Action").unwrap_or_default();
        if let Some(name) = NOT_BUILT.iter().find(|known| **known == name) {
            let text = format!("The action {name} is not built here: see COMPAT.md.");
            return Err(Error::new(Code::NotImplemented, text));
        }
        let row = TABLE.iter().find(|row| row.0 == name);
        let row = row.ok_or_else(|| {
            Error::new(Code::MethodNotAllowed, "The form's Action is none that is known.")
        })?;
        let (action, service, cap, writes, of_accounts) = *row;
        Ok(Self { action, service, fields, cap, writes, of_accounts })
    }

    /// The action, as policies name it.
    #[must_use]
    pub fn policy_action(&self) -> String {
        match self.service {
            Service::Iam => format!("iam:{}", self.action),
            Service::Sts => format!("sts:{}", self.action),
            // What tells all of a topic asks as its attributes do.
            Service::Sns if self.action == "GetTopic" => "sns:GetTopicAttributes".into(),
            Service::Sns => format!("sns:{}", self.action),
        }
    }

    /// A field; empty where it is missing.
    #[must_use]
    pub fn text(&self, name: &str) -> &str {
        self.fields.get(name).unwrap_or_default()
    }

    /// A field that must be there.
    ///
    /// # Errors
    /// [`Code::InvalidArgument`].
    pub fn need(&self, name: &str) -> Result<&str> {
        match self.text(name) {
            "" => Err(Error::new(Code::InvalidArgument, format!("The field {name} is missing."))),
            text => Ok(text),
        }
    }
}

/// Who sent a form: a user or session whose signature, which covers the body, was right.
#[derive(Clone, Debug)]
pub struct Asker<'a> {
    identity: &'a Identity,
    caps: &'a dyn Caps,
}

/// A user's caps.
pub trait Caps: std::fmt::Debug {
    /// The bits of a cap: 1 read, 2 write.
    fn bits(&self, name: &str) -> u32;
}

impl Caps for std::collections::BTreeMap<String, u32> {
    fn bits(&self, name: &str) -> u32 {
        self.get(name).copied().unwrap_or_default()
    }
}

impl<'a> Asker<'a> {
    /// Who was proven.
    #[must_use]
    pub fn proven(_proof: &Proof, identity: &'a Identity, caps: &'a dyn Caps) -> Self {
        Self { identity, caps }
    }

    /// Who was proven.
    pub(crate) fn identity(&self) -> &Identity {
        self.identity
    }

    fn judge(policies: &[Policy], ask: &Ask<'_>) -> Verdict {
        let verdicts: Vec<Verdict> = policies.iter().map(|p| p.judge(ask)).collect();
        match (verdicts.contains(&Verdict::Deny), verdicts.contains(&Verdict::Allow)) {
            (true, _) => Verdict::Deny,
            (false, true) => Verdict::Allow,
            _ => Verdict::Silent,
        }
    }

    /// What the asker's own policies say, within its session's.
    fn own(&self, action: &str, resource: &str, context: &Context) -> Verdict {
        let who = self.identity;
        let ask = Ask { who: &who.principal, action, resource, context };
        let (own, session) =
            (Self::judge(&who.policies, &ask), Self::judge(&who.session_policies, &ask));
        if own == Verdict::Deny || session == Verdict::Deny {
            return Verdict::Deny;
        }
        match !who.session_policies.is_empty() && session != Verdict::Allow {
            true => Verdict::Silent,
            false => own,
        }
    }

    /// Judges an action on a resource: the one place that says yes, but for roles that are assumed.
    ///
    /// # Errors
    /// [`Code::AccessDenied`]; [`Code::MethodNotAllowed`] for what only users of accounts have.
    pub fn authorize(&self, call: &Call, resource: &str, context: &Context) -> Result<()> {
        let who = self.identity;
        if call.of_accounts && !who.in_account {
            let text = format!("{} is for users of accounts only.", call.action);
            return Err(Error::new(Code::MethodNotAllowed, text));
        }
        let action = call.policy_action();
        let verdict = self.own(&action, resource, context);
        let need = if call.writes { 2 } else { 1 };
        // Caps are users' own, never a session's.
        let has_cap = !call.cap.is_empty()
            && who.session_policies.is_empty()
            && self.caps.bits(call.cap) & need != 0;
        match verdict {
            _ if who.is_admin => Ok(()),
            Verdict::Allow => Ok(()),
            Verdict::Silent if has_cap => Ok(()),
            _ => Err(Error::new(
                Code::AccessDenied,
                format!(
                    "{action} on {resource} is not allowed: no policy or cap grants it, or a policy denies it."
                ),
            )),
        }
    }

    /// Judges whether a role may be assumed: its trust policy allows it, no policy of the asker's denies it, and where
    /// the role is another account's, one allows it.
    ///
    /// # Errors
    /// [`Code::AccessDenied`].
    pub fn may_assume(
        &self,
        trust: &Policy,
        role: &str,
        account: &str,
        context: &Context,
    ) -> Result<()> {
        let who = self.identity;
        let ask = Ask { who: &who.principal, action: "sts:AssumeRole", resource: role, context };
        let own = self.own("sts:AssumeRole", role, context);
        let is_same = who.principal.account() == Some(account);
        let may = trust.judge(&ask) == Verdict::Allow
            && own != Verdict::Deny
            && (own == Verdict::Allow
                || (is_same && who.session_policies.is_empty())
                || !who.in_account);
        match may {
            true => Ok(()),
            false => Err(Error::new(
                Code::AccessDenied,
                format!(
                    "sts:AssumeRole on {role} is not allowed: its trust policy does not name this user, or a policy denies it."
                ),
            )),
        }
    }
}

/// Judges whether whom a token is about may assume a role: the role's trust policy alone says so. `provider` is the URL
/// without its scheme; the context has the token's claims.
///
/// # Errors
/// [`Code::AccessDenied`].
pub fn may_assume_by_token(
    trust: &Policy,
    role: &str,
    provider: &str,
    context: &Context,
) -> Result<()> {
    let who = Principal::Federated { provider: provider.to_owned() };
    let action = "sts:AssumeRoleWithWebIdentity";
    let ask = Ask { who: &who, action, resource: role, context };
    match trust.judge(&ask) {
        Verdict::Allow => Ok(()),
        _ => Err(Error::new(
            Code::AccessDenied,
            format!(
                "{action} on {role} is not allowed: its trust policy does not name this provider, or asks for other claims."
            ),
        )),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::policy::Kind;

    fn identity(account: &str, in_account: bool, policy: Option<&str>) -> Identity {
        let principal = Principal::User { account: account.into(), name: "u".into() };
        let policies = policy.map(|text| Policy::parse(text, Kind::Identity).unwrap());
        Identity {
            principal,
            id: Some("u".into()),
            in_account,
            policies: policies.into_iter().collect(),
            ..Identity::anonymous()
        }
    }

    fn call(action: &str) -> Call {
        Call::parse(format!("Action={action}&RoleName=a%2Bb+c").as_bytes()).unwrap()
    }

    const ALLOW: &str =
        r#"{"Statement":{"Effect":"Allow","Action":["iam:*","sts:*","sns:*"],"Resource":"*"}}"#;
    const DENY: &str = r#"{"Statement":{"Effect":"Deny","Action":"*","Resource":"*"}}"#;

    fn may(who: &Identity, caps: &[(&str, u32)], action: &str) -> bool {
        let caps: BTreeMap<String, u32> = caps.iter().map(|(n, b)| ((*n).to_owned(), *b)).collect();
        let asker = Asker { identity: who, caps: &caps };
        asker.authorize(&call(action), "arn:aws:iam:::role/R", &Context::default()).is_ok()
    }

    #[test]
    fn policies_and_caps_decide() {
        let plain = identity("", false, None);
        for row in TABLE {
            assert!(!may(&plain, &[], row.0), "{}: nothing by default", row.0);
            assert!(!may(
                &identity("A", true, Some(DENY)),
                &[("roles", 3), ("user-policy", 3)],
                row.0
            ));
            assert!(may(&identity("A", true, Some(ALLOW)), &[], row.0), "{}", row.0);
        }
        assert!(
            may(&plain, &[("roles", 1)], "GetRole")
                && !may(&plain, &[("roles", 1)], "PutRolePolicy")
        );
        assert!(
            may(&plain, &[("roles", 2)], "PutRolePolicy")
                && !may(&plain, &[("roles", 3)], "PutUserPolicy")
        );
        assert!(!may(&plain, &[("roles", 3)], "AttachRolePolicy"), "of accounts only");
        let mut bounded = identity("A", true, Some(ALLOW));
        let narrow = r#"{"Statement":{"Effect":"Allow","Action":"iam:GetRole","Resource":"*"}}"#;
        bounded.session_policies = vec![Policy::parse(narrow, Kind::Identity).unwrap()];
        assert!(may(&bounded, &[], "GetRole") && !may(&bounded, &[("roles", 3)], "DeleteRole"));
        assert_eq!(call("GetRole").text("RoleName"), "a+b c");
        for (form, want) in [
            (&b"Action=Bogus"[..], Code::MethodNotAllowed),
            (b"", Code::MethodNotAllowed),
            (b"Action=GetAccountSummary", Code::NotImplemented),
            (b"Action=GetRole&Action=DeleteRole", Code::InvalidArgument),
            (b"\xff", Code::InvalidArgument),
        ] {
            assert_eq!(Call::parse(form).unwrap_err().code, want);
        }
    }

    #[test]
    fn roles_are_assumed_by_whom_they_trust() {
        let trusts = |principal: &str| {
            let text = format!(
                r#"{{"Statement":[{{"Effect":"Allow","Principal":{{"AWS":["{principal}"]}},"Action":["sts:AssumeRole"]}}]}}"#
            );
            Policy::parse(&text, Kind::Trust).unwrap()
        };
        let may = |who: &Identity, trust: &Policy, account: &str| {
            let caps = BTreeMap::new();
            let asker = Asker { identity: who, caps: &caps };
            asker.may_assume(trust, "arn:aws:iam:::role/R", account, &Context::default()).is_ok()
        };
        let (one, other) = (identity("A", true, None), identity("B", true, None));
        let all = trusts("*");
        assert!(
            may(&one, &all, "A") && !may(&other, &all, "A"),
            "another account's wants a policy"
        );
        assert!(may(&identity("B", true, Some(ALLOW)), &all, "A"));
        assert!(!may(&identity("A", true, Some(DENY)), &all, "A"));
        assert!(may(&one, &trusts("arn:aws:iam::A:user/u"), "A"));
        assert!(!may(&one, &trusts("arn:aws:iam::A:user/v"), "A"));
        assert!(may(&identity("", false, None), &all, ""));
        assert!(!may(&Identity::anonymous(), &trusts("arn:aws:iam:::user/u"), ""));
    }

    proptest! {
        /// No bytes make it panic.
        #[test]
        fn any_form(bytes in any::<Vec<u8>>()) {
            let _ = Call::parse(&bytes);
        }
    }
}
