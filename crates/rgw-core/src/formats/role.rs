//! Roles.

use std::collections::{BTreeMap, BTreeSet};

use types::{DecodeError, Denc, Reader, Writer};

/// A role: `RGWRoleInfo`.
///
/// Wire: `ENCODE_START(4, 1)`; v2 added the tenant, v3 the session's bound, v4 the account and what follows it. Source:
/// `rgw_role.h`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Role {
    /// A UUID.
    pub id: String,
    /// Its name, unique in its account or tenant.
    pub name: String,
    /// `/` or `/division/`.
    pub path: String,
    /// `arn:aws:iam::ACCOUNT:role/PATH/NAME`.
    pub arn: String,
    /// When it was made, ISO 8601.
    pub created: String,
    /// Who may assume it: JSON.
    pub trust: String,
    /// Policies by name: JSON.
    pub policies: BTreeMap<String, String>,
    /// Empty for most, and for those of accounts.
    pub tenant: String,
    /// Longest session, s.
    pub session_s_max: u64,
    /// Its account; empty for most.
    pub account_id: String,
    /// For people.
    pub description: String,
    /// ARNs of AWS's policies that are attached: `ManagedPolicies`, `ENCODE_START(1, 1)`.
    pub managed: BTreeSet<String>,
}

impl Denc for Role {
    fn encode(&self, w: &mut Writer) {
        w.framed(4, 1, |w| {
            for text in [&self.id, &self.name, &self.path, &self.arn, &self.created, &self.trust] {
                w.str(text);
            }
            self.policies.encode(w);
            w.str(&self.tenant);
            w.u64(self.session_s_max);
            w.str(&self.account_id);
            w.str(&self.description);
            w.framed(1, 1, |w| self.managed.encode(w));
        });
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("RGWRoleInfo", 4, |r, v| {
            let mut role = Self {
                id: r.string()?,
                name: r.string()?,
                path: r.string()?,
                arn: r.string()?,
                created: r.string()?,
                trust: r.string()?,
                policies: Denc::decode(r)?,
                ..Self::default()
            };
            if v >= 2 {
                role.tenant = r.string()?;
            }
            if v >= 3 {
                role.session_s_max = r.u64()?;
            }
            if v >= 4 {
                role.account_id = r.string()?;
                role.description = r.string()?;
                role.managed = r.framed("ManagedPolicies", 1, |r, _| Denc::decode(r))?;
            }
            Ok(role)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes that radosgw-admin 20.2.4 stored for a role of an account.
    #[test]
    fn what_stock_stores() {
        let role = Role {
            id: "246ddea5-c88a-4ecd-ac32-e26ed532a993".into(),
            name: "AR".into(),
            path: "/".into(),
            arn: "arn:aws:iam::RGW00000000000000005:role/AR".into(),
            created: "2026-11-30T01:10:27.352Z".into(),
            trust: r#"{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"AWS":["*"]},"Action":["sts:AssumeRole"]}]}"#.into(),
            session_s_max: 3_600,
            account_id: "RGW00000000000000005".into(),
            ..Role::default()
        };
        let bytes = role.to_bytes();
        assert_eq!(bytes[..6], [4, 1, 0x25, 1, 0, 0]);
        let tail = "0000000000000000100e0000000000001400000052475730303030303030303030303030303030350000000001010400000000000000";
        assert_eq!(rgw_proto::uri::to_hex(&bytes[bytes.len() - tail.len() / 2..]), tail);
        assert_eq!(Role::decode(&mut Reader::shared(&bytes)).unwrap(), role);
    }
}
