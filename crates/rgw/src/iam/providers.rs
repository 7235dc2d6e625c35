//! Providers of identities.

use rgw_core::providers::Provider;
use rgw_proto::web_identity::without_scheme;
use rgw_proto::{Code, Error, Result};

use super::Asked;
use crate::answer::Answer;
use crate::request::now;
use crate::server::Server;

/// Bytes of a URL, clients and bytes of one, thumbprints and letters of one: as stock bounds them.
const URL_BYTES_MAX: usize = 255;
const CLIENTS_MAX: usize = 100;
const CLIENT_BYTES_MAX: usize = 255;
const THUMBPRINTS_MAX: usize = 5;
const THUMBPRINT_LEN: usize = 40;

fn invalid(text: impl Into<String>) -> Error {
    Error::new(Code::InvalidArgument, text)
}

impl Asked<'_> {
    /// The URL without its scheme, of the ARN that is named.
    fn provider_url(&self) -> Result<&str> {
        let prefix = format!("arn:aws:iam::{}:oidc-provider/", self.account());
        let arn = self.call.need("OpenIDConnectProviderArn")?;
        let url = arn.strip_prefix(prefix.as_str()).filter(|url| !url.is_empty());
        url.ok_or_else(|| {
            invalid(format!(
                "OpenIDConnectProviderArn begins with {prefix}: providers are the account's own."
            ))
        })
    }

    fn thumbprints(&self) -> Result<Vec<String>> {
        let all = self.members("ThumbprintList", "", THUMBPRINTS_MAX)?;
        let fits =
            |one: &&str| one.len() == THUMBPRINT_LEN && one.bytes().all(|b| b.is_ascii_hexdigit());
        if all.is_empty() || !all.iter().all(fits) {
            return Err(invalid(
                "ThumbprintList has 1 to 5 SHA-1 sums of certificates, 40 hex digits each.",
            ));
        }
        Ok(all.into_iter().map(str::to_owned).collect())
    }
}

fn client(name: &str) -> Result<String> {
    match (1..=CLIENT_BYTES_MAX).contains(&name.len()) {
        true => Ok(name.to_owned()),
        false => Err(invalid("A client's id has 1 to 255 bytes.")),
    }
}

impl Server {
    pub(super) async fn on_provider(&self, asked: &Asked<'_>) -> Result<Answer> {
        let realm = asked.account();
        match asked.call.action {
            "CreateOpenIDConnectProvider" => return self.create_provider(asked).await,
            "ListOpenIDConnectProviders" => {
                asked.allow(&format!("arn:aws:iam::{realm}:oidc-provider/"))?;
                let mut out = asked.result();
                out.0.open("OpenIDConnectProviderList");
                for arn in self.gateway.providers(realm).await? {
                    out.0.open("member").text("Arn", &arn).close("member");
                }
                out.0.close("OpenIDConnectProviderList");
                return Ok(out.answer(asked));
            }
            _ => {}
        }
        let url = asked.provider_url()?;
        asked.allow(asked.call.need("OpenIDConnectProviderArn")?)?;
        match asked.call.action {
            "GetOpenIDConnectProvider" => {
                let found = self.gateway.provider(realm, url).await?.ok_or_else(|| {
                    Error::new(Code::NoSuchEntity, "No identity provider has this ARN.")
                })?;
                let mut out = asked.result();
                for (list, members) in
                    [("ClientIDList", &found.clients), ("ThumbprintList", &found.thumbprints)]
                {
                    out.0.open(list);
                    members.iter().for_each(|member| _ = out.0.text("member", member));
                    out.0.close(list);
                }
                out.0.text("CreateDate", &found.created).text("Url", &found.url);
                return Ok(out.answer(asked));
            }
            "DeleteOpenIDConnectProvider" => self.gateway.remove_provider(realm, url).await?,
            "UpdateOpenIDConnectProviderThumbprint" => {
                let thumbprints = asked.thumbprints()?;
                let change = |provider: &mut Provider| -> Result<()> {
                    provider.thumbprints = thumbprints;
                    Ok(())
                };
                self.gateway.alter_provider(realm, url, change).await?;
            }
            action => {
                let name = client(asked.call.need("ClientID")?)?;
                let adds = action == "AddClientIDToOpenIDConnectProvider";
                let change = |provider: &mut Provider| -> Result<()> {
                    provider.clients.retain(|known| *known != name);
                    if adds {
                        provider.clients.push(name);
                    } else if provider.clients.is_empty() {
                        // Without any, a token for anybody would be taken.
                        return Err(Error::new(
                            Code::DeleteConflict,
                            "The last client of a provider stays: remove the provider.",
                        ));
                    }
                    match provider.clients.len() <= CLIENTS_MAX {
                        true => Ok(()),
                        false => Err(Code::LimitExceeded.into()),
                    }
                };
                self.gateway.alter_provider(realm, url, change).await?;
            }
        }
        Ok(asked.done())
    }

    async fn create_provider(&self, asked: &Asked<'_>) -> Result<Answer> {
        let (realm, full) = (asked.account(), asked.call.need("Url")?);
        let url = without_scheme(full);
        let arn = format!("arn:aws:iam::{realm}:oidc-provider/{url}");
        asked.allow(&arn)?;
        let fits = full.len() <= URL_BYTES_MAX && full.bytes().all(|b| b.is_ascii_graphic());
        if !fits || url.is_empty() || url.contains(['?', '#', '@']) {
            return Err(invalid(
                "Url has at most 255 printable characters, no query, and no user.",
            ));
        }
        let clients = asked.members("ClientIDList", "", CLIENTS_MAX)?;
        let provider = Provider {
            url: full.to_owned(),
            arn,
            created: now().to_string(),
            realm: realm.to_owned(),
            clients: clients.into_iter().map(client).collect::<Result<_>>()?,
            thumbprints: asked.thumbprints()?,
            ..Provider::default()
        };
        self.gateway.make_provider(&provider, url).await?;
        let mut out = asked.result();
        out.0.text("OpenIDConnectProviderArn", &provider.arn);
        Ok(out.answer(asked))
    }
}
