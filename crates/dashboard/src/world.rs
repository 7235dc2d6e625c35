//! The real cluster: the manager's own session for what it asks, and one session for each account at work.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

use auth::CryptoKey;
use bytes::Bytes;
use mgr::Answer;
use rados::{Cluster, Config};
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};
use types::EntityName;

use crate::accounts;
use crate::app::{ObjectNames, World};
use crate::commands::Mons;

/// A command that the manager is to send by its own session: json, input, where the answer goes.
pub type Ask = (String, Bytes, oneshot::Sender<Answer>);

/// How long the monitors may take to answer.
const ANSWER_MAX: Duration = Duration::from_secs(30);
/// Accounts' sessions at once; the one that was idle longest makes room.
const USERS_MAX: usize = 16;
/// An account's session is begun anew after so many milliseconds, with the caps that it has then.
const USER_MS: u64 = 300_000;
/// How long lists of images are shown, in milliseconds.
const IMAGES_MS: u64 = 30_000;

struct User {
    cluster: Cluster,
    until_ms: u64,
    used_ms: u64,
}

/// Images by pool, and until when they are shown.
type Images = (u64, BTreeMap<i64, Vec<String>>);

/// The cluster.
pub struct OnRados {
    /// As whom the manager is a client.
    config: Config,
    asks: mpsc::UnboundedSender<Ask>,
    users: RefCell<BTreeMap<String, User>>,
    own: RefCell<Option<Cluster>>,
    images: RefCell<Option<Images>>,
}

fn failed(errno: i32, why: impl Into<String>) -> Answer {
    Answer { r: -errno, rs: why.into(), ..Answer::default() }
}

impl OnRados {
    /// `config` is the manager's; `asks` are sent by its own session.
    pub fn new(config: Config, asks: mpsc::UnboundedSender<Ask>) -> Self {
        Self {
            config,
            asks,
            users: RefCell::default(),
            own: RefCell::default(),
            images: RefCell::default(),
        }
    }

    /// Ends an account's session.
    pub fn forget(&self, user: &str) {
        self.users.borrow_mut().remove(user);
    }

    async fn user(&self, user: &str) -> Result<Cluster, Answer> {
        let now_ms = rt::now().mono_ms();
        if let Some(known) = self.users.borrow_mut().get_mut(user)
            && now_ms < known.until_ms
            && !known.cluster.is_blocklisted()
        {
            known.used_ms = now_ms;
            return Ok(known.cluster.clone());
        }
        let entity = accounts::entity(user);
        let key = self.ask(json!({"prefix": "auth get-key", "entity": entity}), Bytes::new()).await;
        if key.r != 0 {
            return Err(failed(
                13,
                format!("{entity} has no key: 'ceph auth get-or-create' makes one"),
            ));
        }
        let text = String::from_utf8_lossy(&key.out);
        let key = CryptoKey::from_base64(text.trim()).map_err(|err| failed(22, err.to_string()))?;
        let name: EntityName = entity.parse().map_err(|err: &str| failed(22, err))?;
        let config = Config { name, key, ..self.config.clone() };
        let cluster = Cluster::connect(config).await;
        let cluster = cluster.map_err(|err| {
            failed(110, format!("{entity} gets no session with the monitors ({err}): has it caps?"))
        })?;
        let mut users = self.users.borrow_mut();
        while users.len() >= USERS_MAX && !users.contains_key(user) {
            let idle = users.iter().min_by_key(|(_, known)| known.used_ms);
            let idle = idle.map(|(name, _)| name.clone()).expect("there are too many");
            users.remove(&idle);
        }
        let known = User { cluster: cluster.clone(), until_ms: now_ms + USER_MS, used_ms: now_ms };
        users.insert(user.to_owned(), known);
        Ok(cluster)
    }

    /// The manager as a client of pools.
    async fn own(&self) -> Result<Cluster, rados::Error> {
        let known = self.own.borrow().clone().filter(|cluster| !cluster.is_blocklisted());
        if let Some(known) = known {
            return Ok(known);
        }
        let cluster = Cluster::connect(self.config.clone()).await?;
        *self.own.borrow_mut() = Some(cluster.clone());
        Ok(cluster)
    }
}

impl Mons for OnRados {
    async fn ask(&self, command: Value, input: Bytes) -> Answer {
        let (to, answered) = oneshot::channel();
        let gone = || failed(11, "the manager ends: ask again");
        if self.asks.send((command.to_string(), input, to)).is_err() {
            return gone();
        }
        match tokio::time::timeout(ANSWER_MAX, answered).await {
            Ok(answer) => answer.unwrap_or_else(|_| gone()),
            Err(_) => failed(110, "no answer of the monitors"),
        }
    }
}

impl World for OnRados {
    async fn ask_as(&self, user: &str, command: Value) -> Answer {
        let cluster = match self.user(user).await {
            Ok(cluster) => cluster,
            Err(answer) => return answer,
        };
        let json = command.to_string();
        let ask = cluster.mon_command(&json, Bytes::new());
        match tokio::time::timeout(ANSWER_MAX, ask).await {
            Ok(Ok((r, rs, out))) => Answer { r, rs, out },
            Ok(Err(err)) => failed(11, err.to_string()),
            Err(_) => failed(110, "no answer of the monitors"),
        }
    }

    async fn object_names(&self, user: &str, pool: &str) -> Result<ObjectNames, Answer> {
        let cluster = self.user(user).await?;
        let list = async {
            let io = cluster.pool(pool).await?;
            let users = io.namespace("users.uid").list().await?;
            Ok((users, io.namespace("root").list().await?))
        };
        let listed = tokio::time::timeout(ANSWER_MAX, list).await;
        let listed = listed.map_err(|_| failed(110, "the OSDs did not answer in time"))?;
        let (users, buckets) = listed.map_err(|err: rados::Error| {
            failed(err.code().unwrap_or(5), format!("{pool} cannot be read: {err}"))
        })?;
        // Beside each user is the list of its buckets, beside each bucket its instances.
        let names = |all: Vec<rados::Listed>, is_name: fn(&str) -> bool| {
            let all = all.iter().map(|one| String::from_utf8_lossy(&one.name).into_owned());
            let mut all: Vec<String> = all.filter(|name| is_name(name)).collect();
            all.sort();
            all
        };
        Ok(ObjectNames {
            users: names(users, |name| !name.ends_with(".buckets")),
            buckets: names(buckets, |name| !name.starts_with(".bucket.meta.")),
        })
    }

    async fn images(&self) -> BTreeMap<i64, Vec<String>> {
        let now_ms = rt::now().mono_ms();
        if let Some((until_ms, images)) = &*self.images.borrow()
            && now_ms < *until_ms
        {
            return images.clone();
        }
        let cluster = match self.own().await {
            Ok(cluster) => cluster,
            Err(err) => {
                tracing::warn!("images were not listed: {err}");
                return BTreeMap::new();
            }
        };
        let images = mgr::image_names(&cluster).await;
        *self.images.borrow_mut() = Some((now_ms + IMAGES_MS, images.clone()));
        images
    }
}
