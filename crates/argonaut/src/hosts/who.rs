//! Who asks the monitors: a token, a host, an administrator. Each command has a session of its own,
//! encrypted, since keys come over it; what is lost with a link is asked again by the next run.

use std::fmt;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use auth::{CryptoKey, EntityAuth, Keyring};
use bytes::Bytes;
use rados::Cluster;
use serde_json::{Value, json};
use types::{EntityAddr, EntityKind, EntityName};

/// How long one command may take, the session with it.
const ANSWER_MAX: Duration = Duration::from_secs(30);
/// How often the clock is asked: the answer that came soonest tells most.
const CLOCKS: usize = 8;

/// How a connection ends whose entity the monitors do not know, or with another key.
const UNKNOWN: &str = "refused by the server";
/// A monitor may hear of a new key later than the one that told of it.
const REFUSED_MAX: Duration = Duration::from_secs(4);

/// Ends when monitors have refused for some time.
async fn refused(cluster: &Cluster) {
    let mut since = None;
    loop {
        tokio::time::sleep(Duration::from_millis(200)).await;
        let is_refused = cluster.last_refusal().is_some_and(|why| why.contains(UNKNOWN));
        let now = rt::now().mono_ms();
        since = is_refused.then(|| since.unwrap_or(now));
        if since.is_some_and(|since| now > since + REFUSED_MAX.as_millis() as u64) {
            return;
        }
    }
}

/// An entity with its key, and where monitors are.
#[derive(Clone, Debug)]
pub struct Who {
    pub name: EntityName,
    pub key: CryptoKey,
    pub mons: Vec<SocketAddr>,
}

/// The monitors' refusal.
#[derive(Debug)]
pub struct Refused {
    /// Positive.
    pub errno: i32,
    pub said: String,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = std::io::Error::from_raw_os_error(self.errno);
        if self.said.is_empty() { of.fmt(f) } else { f.write_str(self.said.trim_end()) }
    }
}

impl std::error::Error for Refused {}

/// Monitors answer, and do not know the entity or its key.
#[derive(Debug)]
pub struct Unknown(EntityName);

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.id.starts_with("join.") {
            true => f.write_str(
                "the monitors do not take this token: it was used, revoked, or is over; argonaut \
                 token makes another",
            ),
            false => write!(f, "the monitors do not know {} by its key", self.0),
        }
    }
}

impl std::error::Error for Unknown {}

/// One look at another clock, in nanoseconds: before it was asked, what it said, after.
#[derive(Clone, Copy, Debug)]
pub struct Glance {
    pub before: i128,
    pub said: i128,
    pub after: i128,
}

/// How far this host's clock is off the monitors' at least: what half of the round trip cannot
/// explain. In nanoseconds, and 0 where it explains all.
#[must_use]
pub fn off_ns(glances: &[Glance]) -> i128 {
    let off = |g: &Glance| {
        let (middle, half) = ((g.before + g.after) / 2, (g.after - g.before) / 2);
        let off = g.said - middle;
        off.signum() * (off.abs() - half).max(0)
    };
    // What is certain by any of them is certain.
    glances.iter().map(off).max_by_key(|off| off.abs()).unwrap_or(0)
}

impl Who {
    /// The entity with its key of a keyring file.
    ///
    /// # Errors
    /// When the file cannot be read, or has no such key.
    pub fn of_file(path: &Path, name: EntityName, mons: Vec<SocketAddr>) -> Result<Self> {
        let key = rados::key_in(path, &name)?;
        Ok(Self { name, key, mons })
    }

    /// The key of a host.
    #[must_use]
    pub fn host_name(host: &str) -> EntityName {
        EntityName::new(EntityKind::CLIENT, format!("host.{host}"))
    }

    /// As text of a keyring.
    #[must_use]
    pub fn keyring(&self) -> String {
        let entity = EntityAuth { key: self.key.clone(), ..EntityAuth::default() };
        Keyring { entities: [(self.name.clone(), entity)].into() }.to_string()
    }

    fn config(&self) -> rados::Config {
        let addr = |sock: &SocketAddr| EntityAddr::msgr2(*sock, 0);
        rados::Config {
            name: self.name.clone(),
            key: self.key.clone(),
            mons: self.mons.iter().map(addr).collect(),
            methods: vec![auth::handshake::method::CEPHX],
            mon_modes: rados::modes("secure"),
            modes: rados::modes("secure"),
            connect_timeout: ANSWER_MAX,
        }
    }

    /// What is asked in one session of 30 s at most.
    fn session<T>(&self, ask: impl AsyncFnOnce(&Cluster) -> Result<T>) -> Result<T> {
        rt::run_local(async {
            let cluster = Cluster::of_monitors(self.config());
            let asked = tokio::select! {
                asked = ask(&cluster) => Some(asked),
                () = refused(&cluster) => None,
                () = tokio::time::sleep(ANSWER_MAX) => None,
            };
            asked.unwrap_or_else(|| {
                let mons: Vec<String> = self.mons.iter().map(ToString::to_string).collect();
                let why = cluster.last_refusal();
                if why.as_ref().is_some_and(|why| why.contains(UNKNOWN)) {
                    return Err(Unknown(self.name.clone()).into());
                }
                let why = why.map(|why| format!(": {why}")).unwrap_or_default();
                anyhow::bail!("no monitor of {} answers {}{why}", mons.join(", "), self.name)
            })
        })?
    }

    /// Sends a command with what goes with it; returns its output.
    ///
    /// # Errors
    /// [`Refused`], and when no monitor answers within 30 s.
    pub fn ask(&self, words: &Value, input: String) -> Result<Bytes> {
        self.session(async |cluster| {
            let done = cluster.mon_command(&words.to_string(), Bytes::from(input)).await?;
            match done {
                (r, said, _) if r < 0 => Err(Refused { errno: -r, said }.into()),
                (_, _, out) => Ok(out),
            }
        })
    }

    /// Whether monitors answer and do not know this entity by this key.
    #[must_use]
    pub fn is_unknown(&self) -> bool {
        let asked = self.ask(&json!({"prefix": "host time"}), String::new());
        asked.is_err_and(|err| err.downcast_ref::<Unknown>().is_some())
    }

    /// As [`Who::ask`], of an answer in JSON.
    ///
    /// # Errors
    /// As there.
    pub fn json(&self, words: &Value) -> Result<Value> {
        let out = self.ask(words, String::new())?;
        let shown = || format!("{}: {}", words["prefix"], String::from_utf8_lossy(&out));
        serde_json::from_slice(&out).with_context(shown)
    }

    /// Looks at the leading monitor's clock a few times.
    ///
    /// # Errors
    /// As [`Who::ask`].
    pub fn glances(&self) -> Result<Vec<Glance>> {
        let wall = || i128::from(rt::now().wall_ns);
        let words = json!({"prefix": "host time"}).to_string();
        self.session(async |cluster| {
            let mut all = Vec::new();
            for _ in 0..CLOCKS {
                let before = wall();
                let out = cluster.mon(&words).await?;
                let after = wall();
                let said: Value = serde_json::from_slice(&out)?;
                let said = said["now_ns"].as_u64().context("the monitor tells no time")?;
                all.push(Glance { before, said: said.into(), after });
            }
            Ok(all)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Only what the round trip cannot explain counts, to either side, and the best look decides.
    #[test]
    fn half_of_the_round_trip_is_forgiven() {
        let ms = |n: i128| n * 1_000_000;
        let at =
            |before, said, after| Glance { before: ms(before), said: ms(said), after: ms(after) };
        assert_eq!(off_ns(&[at(100, 103, 106)]), 0);
        assert_eq!(off_ns(&[at(100, 200, 300)]), 0);
        assert_eq!(off_ns(&[at(100, 400, 300)]), ms(100));
        assert_eq!(off_ns(&[at(100, 20, 120)]), -ms(80));
        assert_eq!(off_ns(&[at(0, 500, 1000), at(1000, 1072, 1004)]), ms(68));
        assert_eq!(off_ns(&[]), 0);
    }
}
