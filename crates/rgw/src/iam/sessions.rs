//! Sessions: temporary keys of roles and users.

use rgw_core::formats::Role;
use rgw_core::objects::Objects;
use rgw_core::roles::Realm;
use rgw_proto::iam::Call;
use rgw_proto::policy::{Kind, Policy};
use rgw_proto::session::{Sealer, Session};
use rgw_proto::time::Time;
use rgw_proto::xml::Writer;
use rgw_proto::{Code, Error, Result};

use super::{Asked, name_in};
use crate::answer::Answer;
use crate::request::now;
use crate::server::Server;

/// Shortest and, of users, longest session, s: `rgw_sts_min_session_duration`, `rgw_sts_max_session_duration`.
const SESSION_S_MIN: u64 = 900;
const SESSION_S_MAX: u64 = 43_200;
/// Where none is asked for.
const SESSION_S: u64 = 3_600;
/// Bytes of a session's policy.
const POLICY_BYTES_MAX: usize = 2_048;
/// Letters of a temporary key and of its secret.
const KEY_LEN: usize = 20;
const SECRET_LEN: usize = 40;

fn invalid(text: impl Into<String>) -> Error {
    Error::new(Code::InvalidArgument, text)
}

pub(super) fn write(w: &mut Writer, session: &Session, token: &str) {
    w.open("Credentials").text("AccessKeyId", &session.access_key);
    w.text("SecretAccessKey", &session.secret).text("SessionToken", token);
    w.value("Expiration", Time(session.until)).close("Credentials");
}

/// Account or tenant and name of a role's ARN.
pub(super) fn parts(arn: &str) -> Result<(&str, &str)> {
    let parts: Vec<&str> = arn.splitn(6, ':').collect();
    let bad = || invalid("RoleArn is like arn:aws:iam::ACCOUNT:role/NAME.");
    let ["arn", _, "iam", "", account, rest] = parts[..] else { return Err(bad()) };
    let name = rest.strip_prefix("role/").and_then(|rest| rest.rsplit('/').next());
    Ok((account, name.filter(|name| !name.is_empty()).ok_or_else(bad)?))
}

/// Where a role of an ARN's account is looked up.
pub(super) fn realm_of(account: &str) -> Realm<'_> {
    match rgw_core::accounts::is_id(account) {
        true => Realm { account, tenant: "" },
        false => Realm { account: "", tenant: account },
    }
}

impl Server {
    pub(super) fn sealer(&self) -> Result<&Sealer> {
        self.settings.sealer.as_deref().ok_or_else(|| {
            let text = "Sessions want rgw_sts_key (16 characters or more) and rgw_s3_auth_use_sts.";
            Error::new(Code::NotImplemented, text)
        })
    }

    pub(super) fn seconds(call: &Call, most: u64) -> Result<u64> {
        let most = most.clamp(SESSION_S_MIN, SESSION_S_MAX);
        match call.text("DurationSeconds") {
            "" => Ok(SESSION_S.min(most)),
            text => {
                text.parse().ok().filter(|s| (SESSION_S_MIN..=most).contains(s)).ok_or_else(|| {
                    invalid(format!("DurationSeconds is from {SESSION_S_MIN} to {most}."))
                })
            }
        }
    }

    /// A session of a user, `[TENANT$]UID`.
    pub(super) fn new_session(&self, user: &str, seconds: u64) -> Session {
        Session {
            access_key: self.gateway.new_secret(KEY_LEN),
            secret: self.gateway.new_secret(SECRET_LEN),
            until: now().0 + i64::try_from(seconds).unwrap_or_default(),
            user: user.to_owned(),
            role: String::new(),
            name: String::new(),
            policy: String::new(),
        }
    }

    pub(super) fn seal(&self, session: &Session) -> Result<String> {
        let mut nonce = [0; 12];
        self.gateway.objects.random(&mut nonce);
        self.sealer()?.seal(session, nonce)
    }

    pub(super) async fn assume_role(&self, asked: &Asked<'_>) -> Result<Answer> {
        self.sealer()?;
        let arn = asked.call.need("RoleArn")?;
        let (account, name) = parts(arn)?;
        let role = self.gateway.role_by_name(realm_of(account), name).await?;
        let role = role.filter(|role| role.arn == arn);
        let role = role.ok_or_else(|| Error::from(Code::NoSuchEntity))?;
        let trust = Policy::parse(&role.trust, Kind::Trust).map_err(|_| {
            Error::new(Code::AccessDenied, "The role's trust policy cannot be read.")
        })?;
        asked.allow_assume(&trust, arn, account)?;
        let mut out = asked.result();
        self.begin_session(asked.call, &role, account, &asked.known.asker, &mut out.0)?;
        Ok(out.answer(asked))
    }

    /// Makes a session of a role that may be assumed, and writes it. `user` owns what it makes where the role has no
    /// account.
    pub(super) fn begin_session(
        &self,
        call: &Call,
        role: &Role,
        account: &str,
        user: &str,
        w: &mut Writer,
    ) -> Result<()> {
        let session_name = name_in(call, "RoleSessionName")?;
        if session_name.len() < 2 {
            return Err(invalid("RoleSessionName has 2 to 64 characters."));
        }
        let policy = call.text("Policy");
        if policy.len() > POLICY_BYTES_MAX {
            return Err(invalid("A session's policy has at most 2048 bytes."));
        }
        if !policy.is_empty() {
            Policy::parse(policy, Kind::Identity)?;
        }
        if user.is_empty() && role.account_id.is_empty() {
            let text = "A session of an account's role assumes roles of accounts alone.";
            return Err(Error::new(Code::AccessDenied, text));
        }
        let seconds = Self::seconds(call, role.session_s_max)?;
        let session = Session {
            role: role.id.clone(),
            name: session_name.to_owned(),
            policy: policy.to_owned(),
            ..self.new_session(user, seconds)
        };
        let token = self.seal(&session)?;
        let path = role.path.trim_start_matches('/');
        write(w, &session, &token);
        w.open("AssumedRoleUser");
        w.text(
            "Arn",
            &format!("arn:aws:sts::{account}:assumed-role/{path}{}/{session_name}", role.name),
        );
        w.text("AssumedRoleId", &format!("{}:{session_name}", role.id)).close("AssumedRoleUser");
        w.value("PackedPolicySize", 0);
        Ok(())
    }

    pub(super) fn session_token(&self, asked: &Asked<'_>) -> Result<Answer> {
        self.sealer()?;
        if !asked.known.may_all {
            let text = "A session gets no session: sign with a key of the user.";
            return Err(Error::new(Code::AccessDenied, text));
        }
        asked.allow(&format!(
            "arn:aws:iam::{}:user/{}",
            asked.account(),
            asked.known.user.id.id
        ))?;
        let session =
            self.new_session(&asked.known.asker, Self::seconds(asked.call, SESSION_S_MAX)?);
        let token = self.seal(&session)?;
        let mut out = asked.result();
        write(&mut out.0, &session, &token);
        Ok(out.answer(asked))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arns() {
        assert_eq!(parts("arn:aws:iam::A:role/app/R").unwrap(), ("A", "R"));
        assert_eq!(parts("arn:aws:iam:::role/R").unwrap(), ("", "R"));
        for bad in ["", "R", "arn:aws:iam::A:user/R", "arn:aws:iam::A:role/", "arn:aws:s3:::role/R"]
        {
            assert!(parts(bad).is_err(), "{bad}");
        }
    }
}
