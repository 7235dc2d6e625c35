//! The text by which a host joins.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

use anyhow::{Context, Result, bail};
use auth::CryptoKey;
use serde_json::Value;
use types::{EntityKind, EntityName};

use super::who::Who;

/// What a token's text begins with.
const BEGINS: &str = "argonaut1";

/// What a host must know to find a cluster, to be let in, and to know that it is this one.
///
/// Text: `argonaut1_FSID_FINGERPRINT_ID_KEY_MONITORS_NETWORK`, monitors as `IP:PORT,IP:PORT`. No part
/// can hold `_`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    pub fsid: String,
    /// Only monitors with this cluster's `mon.` key can answer with it.
    pub fingerprint: String,
    /// Its name: `host token-ls` and `host token-rm` know it by that.
    pub id: String,
    /// The key of `client.join.ID`.
    pub key: CryptoKey,
    pub mons: Vec<SocketAddr>,
    /// Networks as in `public network`; empty: not said.
    pub network: String,
}

impl Token {
    /// Of the monitors' answer to `host token`.
    ///
    /// # Errors
    /// When parts are missing.
    pub fn of(answer: &Value, network: &str) -> Result<Self> {
        let text = |name: &str| {
            let text = answer[name].as_str().map(str::to_owned);
            text.with_context(|| format!("the monitors said no {name} of the token"))
        };
        let mons = answer["mons"].as_array().into_iter().flatten();
        let mons = mons.filter_map(|m| m.as_str()?.parse().ok()).collect();
        Ok(Self {
            fsid: text("fsid")?,
            fingerprint: text("fingerprint")?,
            id: text("id")?,
            key: CryptoKey::from_base64(&text("key")?)?,
            mons,
            network: network.replace(' ', ""),
        })
    }

    /// # Errors
    /// When an answer is not of the cluster that the token is of.
    pub fn proves(&self, told: &Value) -> Result<()> {
        if told["fsid"] != self.fsid || told["fingerprint"] != self.fingerprint {
            bail!(
                "these are not the monitors that the token is of: cluster {}, fingerprint {}",
                told["fsid"],
                told["fingerprint"]
            );
        }
        Ok(())
    }

    /// Who it lets speak to the monitors.
    #[must_use]
    pub fn who(&self) -> Who {
        let name = EntityName::new(EntityKind::CLIENT, format!("join.{}", self.id));
        Who { name, key: self.key.clone(), mons: self.mons.clone() }
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mons: Vec<String> = self.mons.iter().map(ToString::to_string).collect();
        let (key, mons) = (self.key.to_base64(), mons.join(","));
        let Self { fsid, fingerprint, id, network, .. } = self;
        write!(f, "{BEGINS}_{fsid}_{fingerprint}_{id}_{key}_{mons}_{network}")
    }
}

impl FromStr for Token {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let parts: Vec<&str> = text.trim().split('_').collect();
        let [BEGINS, fsid, fingerprint, id, key, mons, network] = parts[..] else {
            bail!("this is no whole token: `argonaut init` and `argonaut token` print them");
        };
        let mons = mons.split(',').map(str::parse).collect::<Result<Vec<SocketAddr>, _>>();
        Ok(Self {
            fsid: fsid.to_owned(),
            fingerprint: fingerprint.to_owned(),
            id: id.to_owned(),
            key: CryptoKey::from_base64(key).context("the token's key is damaged")?,
            mons: mons.context("the token's monitors are damaged")?,
            network: network.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_read_as_it_was_written() {
        let now = types::UTime { sec: 1, nsec: 2 };
        let token = Token {
            fsid: "5a3e91c4-7c0b-4d0e-9b53-0d2a5c1f7e11".into(),
            fingerprint: "00ff".into(),
            id: "0123456789abcdef".into(),
            key: CryptoKey::generate(auth::KeyKind::AES, now, &mut rt::OsRandom),
            mons: vec!["10.0.0.1:3300".parse().unwrap(), "[fd00::1]:3300".parse().unwrap()],
            network: "10.0.0.0/24,fd00::/64".into(),
        };
        let text = token.to_string();
        assert_eq!(text.parse::<Token>().unwrap(), token);
        let cut = text[..text.len() / 2].parse::<Token>().unwrap_err().to_string();
        assert!(cut.contains("no whole token"), "{cut}");
        let bad = text.replace("_AQ", "_!!").parse::<Token>().unwrap_err().to_string();
        assert!(bad.contains("key is damaged"), "{bad}");
    }
}
