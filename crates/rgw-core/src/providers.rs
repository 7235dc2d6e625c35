//! Providers of identities (OpenID Connect): `[TENANT or ACCOUNT]oidc_url.URL`, the URL without its scheme; and the users
//! that stand for whom they know.
//!
//! Source: `rgw_oidc_provider.cc`, `driver/rados/rgw_sal_rados.cc`, `rgw_auth.cc` (`WebIdentityApplier`).

use rgw_proto::{Code, Error, Result};
use types::{DecodeError, Denc, Errno, Reader, UTime, Writer};

use crate::formats::UserId;
use crate::gateway::{Gateway, decoded, failed};
use crate::meta::Attrs;
use crate::objects::{Objects, Place};

/// Providers of an account or tenant.
pub const PROVIDERS_MAX: usize = 100;
/// The name space of users that stand for whom providers know.
pub const NAMESPACE: &str = "oidc";

/// A provider: `RGWOIDCProviderInfo`, `ENCODE_START(3, 1)`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Provider {
    /// Empty in all that stock writes.
    pub id: String,
    /// As it was registered, with its scheme.
    pub url: String,
    /// `arn:aws:iam::ACCOUNT:oidc-provider/URL`, without the scheme.
    pub arn: String,
    /// When it was made, ISO 8601.
    pub created: String,
    /// The account or tenant.
    pub realm: String,
    /// Audiences of tokens that are taken; empty for any.
    pub clients: Vec<String>,
    /// SHA-1 of certificates, in hex of any case.
    pub thumbprints: Vec<String>,
}

impl Denc for Provider {
    fn encode(&self, w: &mut Writer) {
        w.framed(3, 1, |w| {
            for text in [&self.id, &self.url, &self.arn, &self.created, &self.realm] {
                w.str(text);
            }
            self.clients.encode(w);
            self.thumbprints.encode(w);
        });
    }

    fn decode(r: &mut Reader<'_>) -> std::result::Result<Self, DecodeError> {
        r.framed("RGWOIDCProviderInfo", 3, |r, _| {
            Ok(Self {
                id: r.string()?,
                url: r.string()?,
                arn: r.string()?,
                created: r.string()?,
                realm: r.string()?,
                clients: Denc::decode(r)?,
                thumbprints: Denc::decode(r)?,
            })
        })
    }
}

fn none() -> Error {
    Error::new(Code::NoSuchEntity, "No identity provider of this URL is in the account or tenant.")
}

impl<O: Objects> Gateway<O> {
    fn provider_place(&self, realm: &str, url: &str) -> Place {
        Place::new(&self.zone.iam.oidc, format!("{realm}oidc_url.{url}"))
    }

    /// A provider by its URL without the scheme, from the cache where it is there; `None` where there is none.
    ///
    /// # Errors
    /// Of RADOS.
    pub async fn provider(&self, realm: &str, url: &str) -> Result<Option<Provider>> {
        match self.known_meta(&self.provider_place(realm, url)).await {
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(failed("reading the identity provider")(errno)),
            Ok(raw) => decoded(&raw.data, "The identity provider").map(Some),
        }
    }

    /// ARNs of the providers of an account or tenant. Costs a listing of all providers.
    ///
    /// # Errors
    /// Of RADOS.
    pub async fn providers(&self, realm: &str) -> Result<Vec<String>> {
        let prefix = format!("{realm}oidc_url.");
        let names = self.objects.names(&self.zone.iam.oidc).await;
        let names = names.map_err(failed("listing identity providers"))?;
        let mut found = Vec::new();
        for url in names.iter().filter_map(|name| name.strip_prefix(prefix.as_str())) {
            found.extend(self.provider(realm, url).await?.map(|provider| provider.arn));
        }
        found.sort_unstable();
        Ok(found)
    }

    /// Keeps a new provider; `url` is its own without the scheme.
    ///
    /// # Errors
    /// [`Code::EntityAlreadyExists`], [`Code::LimitExceeded`]; of RADOS.
    pub async fn make_provider(&self, provider: &Provider, url: &str) -> Result<()> {
        if self.providers(&provider.realm).await?.len() >= PROVIDERS_MAX {
            let text = format!("An account or tenant has at most {PROVIDERS_MAX} providers.");
            return Err(Error::new(Code::LimitExceeded, text));
        }
        let at = self.provider_place(&provider.realm, url);
        match self.write_meta(&at, provider.to_bytes(), &Attrs::new(), None).await {
            Ok(()) => Ok(()),
            Err(Errno::EXIST) => Err(Code::EntityAlreadyExists.into()),
            Err(errno) => Err(failed("writing the identity provider")(errno)),
        }
    }

    /// Reads a provider, changes it, writes it.
    ///
    /// # Errors
    /// [`Code::NoSuchEntity`], [`Code::ConcurrentModification`]; those of `change`.
    pub async fn alter_provider(
        &self,
        realm: &str,
        url: &str,
        change: impl FnOnce(&mut Provider) -> Result<()>,
    ) -> Result<()> {
        let at = self.provider_place(realm, url);
        let raw = match self.read_meta(&at).await {
            Err(Errno::NOENT) => return Err(none()),
            other => other.map_err(failed("reading the identity provider"))?,
        };
        let mut provider: Provider = decoded(&raw.data, "The identity provider")?;
        change(&mut provider)?;
        let written =
            self.write_meta(&at, provider.to_bytes(), &raw.attrs, Some(&raw.version)).await;
        written.map_err(failed("writing the identity provider"))
    }

    /// Removes a provider.
    ///
    /// # Errors
    /// [`Code::NoSuchEntity`], [`Code::ConcurrentModification`]; of RADOS.
    pub async fn remove_provider(&self, realm: &str, url: &str) -> Result<()> {
        let at = self.provider_place(realm, url);
        let raw = match self.read_meta(&at).await {
            Err(Errno::NOENT) => return Err(none()),
            other => other.map_err(failed("reading the identity provider"))?,
        };
        match self.remove_meta(&at, &raw.version).await {
            Ok(()) => Ok(()),
            Err(Errno::NOENT) => Err(none()),
            Err(errno) => Err(failed("removing the identity provider")(errno)),
        }
    }

    /// The id of the user that stands for whom a provider knows, made where there is none: it owns what a session of a
    /// role without an account makes. The caller has bounded `subject`; it has no `$`.
    ///
    /// # Errors
    /// Of RADOS.
    pub async fn shadow(&self, tenant: &str, subject: &str, display_name: &str) -> Result<UserId> {
        assert!(!subject.contains('$'), "the parts of an id are told apart by $");
        let (tenant, id, ns) = (tenant.to_owned(), subject.to_owned(), NAMESPACE.to_owned());
        let id = UserId { tenant, id, ns };
        if self.known_user(&id.text()).await?.is_some() {
            return Ok(id);
        }
        let mut user = self.new_user();
        (user.id, user.kind, user.created) = (id.clone(), 0, UTime::ZERO);
        user.display_name = display_name.chars().filter(|c| !c.is_control()).take(255).collect();
        match self.write_user(&user).await {
            Ok(()) | Err(Errno::EXIST) => Ok(id),
            Err(errno) => Err(failed("writing the user")(errno)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes that radosgw 20.2.4 stored.
    #[test]
    fn what_stock_stores() {
        let provider = Provider {
            url: "https://idp.example/realms/x".into(),
            arn: "arn:aws:iam:::oidc-provider/idp.example/realms/x".into(),
            created: "2026-12-01T00:17:11.896Z".into(),
            clients: vec!["two".into(), "three".into()],
            thumbprints: vec!["B".repeat(40)],
            ..Provider::default()
        };
        let want = "0301bc000000000000001c00000068747470733a2f2f6964702e6578616d706c652f7265616c6d732f783000000061726e3a6177733a69616d3a3a3a6f\
                    6964632d70726f76696465722f6964702e6578616d706c652f7265616c6d732f7818000000323032362d31322d30315430303a31373a31312e3839365a\
                    00000000020000000300000074776f0500000074687265650100000028000000";
        let want = format!("{want}{}", "42".repeat(40));
        assert_eq!(rgw_proto::uri::to_hex(&provider.to_bytes()), want);
        assert_eq!(Provider::from_bytes(&provider.to_bytes()).unwrap(), provider);
    }
}
