//! A connected client: sessions, maps and commands.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use auth::CryptoKey;
use bytes::Bytes;
use denc::Features;
use env::Random;
use maps::OsdMap;
use messages::{Command, Message, Statfs, StatfsReply};
use osdc::Objecter;
use rt::{Messenger, NetEvent, OsRandom, Policy};
use tokio::sync::oneshot;
use types::{AddrVec, EntityAddr, EntityKind, EntityName, Epoch, OsdId, PoolId, Uuid};

use crate::error::{Error, Result};
use crate::inner::{DaemonCommand, Inner};
use crate::{IoCtx, LinkConfig, MonLink, News};

/// How to reach a cluster, and as whom.
#[derive(Clone, Debug)]
pub struct Config {
    /// Whose key it is.
    pub name: EntityName,
    /// The key.
    pub key: CryptoKey,
    /// Monitors to try.
    pub mons: Vec<EntityAddr>,
    /// Methods to authenticate by, in order of preference: `auth::handshake::method`.
    pub methods: Vec<u32>,
    /// Modes of connections to monitors, in order of preference: `ms_mon_client_mode`, see
    /// [`crate::modes`].
    pub mon_modes: Vec<u32>,
    /// The same of connections to OSDs and the manager: `ms_client_mode`.
    pub modes: Vec<u32>,
    /// How long [`Cluster::connect`] may take.
    pub connect_timeout: Duration,
}
/// A connected client. Clones share it. Lives on one thread, within [`rt::run_local`].
#[derive(Clone)]
pub struct Cluster(pub(crate) Rc<Inner>);

impl Cluster {
    /// Opens a session with a monitor and waits for the first OSD map.
    ///
    /// # Errors
    /// [`Error::Timeout`].
    pub async fn connect(config: Config) -> Result<Self> {
        Self::open(config, &[], None, |_| {}).await
    }

    /// As [`Cluster::connect`], for a client of other daemons, too: with tickets for `services`, it tells
    /// `news` what the monitors send beside its own, and `events` what other connections of its
    /// messenger do.
    ///
    /// # Errors
    /// As there.
    pub async fn connect_beside(
        config: Config,
        services: &[EntityKind],
        news: impl Fn(News) + 'static,
        events: impl FnMut(NetEvent) + 'static,
    ) -> Result<Self> {
        Self::open(config, services, Some(Box::new(news)), events).await
    }

    async fn open(
        config: Config,
        services: &[EntityKind],
        news: Option<Box<dyn Fn(News)>>,
        events: impl FnMut(NetEvent) + 'static,
    ) -> Result<Self> {
        let patience = config.connect_timeout;
        let cluster = Self::begin(config, services, news, events);
        let first_map = cluster.0.wait_map(Epoch(1));
        cluster.start(&[]);
        match tokio::time::timeout(patience, first_map).await {
            Ok(Ok(())) => Ok(cluster),
            _ => Err(Error::Timeout(patience.as_secs())),
        }
    }

    /// A client of the monitors alone, whose caps need not let it see maps: [`Cluster::mon_command`] and
    /// [`Cluster::mon`] work, and wait until a session is open. It has no OSD map: what asks for one
    /// panics.
    #[must_use]
    pub fn of_monitors(config: Config) -> Self {
        let cluster = Self::begin(config, &[], None, |_| {});
        cluster.start(&[]);
        cluster
    }

    /// Why the last connection to a monitor ended; `None` while none did.
    #[must_use]
    pub fn last_refusal(&self) -> Option<String> {
        self.0.refusal.borrow().clone()
    }

    /// A client that has not yet begun to look for monitors.
    fn begin(
        config: Config,
        services: &[EntityKind],
        news: Option<Box<dyn Fn(News)>>,
        mut events: impl FnMut(NetEvent) + 'static,
    ) -> Self {
        let local = rt::Local {
            kind: EntityKind::CLIENT,
            num: -1,
            addrs: AddrVec::default(),
            nonce: OsRandom.u64() as u32,
            features: Features::PACIFIC_WORD,
        };
        let keys = MonLink::new_keys();
        let door = MonLink::door(EntityKind::CLIENT, keys, false, &[]);
        let messenger = Messenger::new(rt::Config {
            local,
            policy: Box::new(|_| Policy::stateless_server()),
            auth: Box::new(move |_, _| door()),
            limits: rt::Limits::default(),
        });
        let own = [EntityKind::MON, EntityKind::OSD, EntityKind::MGR];
        let link = LinkConfig {
            name: config.name,
            key: config.key,
            mons: config.mons,
            fsid: Uuid::default(),
            hostname: String::new(),
            services: own.into_iter().chain(services.iter().copied()).collect(),
            methods: config.methods,
            mon_modes: config.mon_modes,
            modes: config.modes,
        };
        let link = MonLink::new(messenger.clone(), link, None);
        let inner = Inner::of(messenger.clone(), link, Objecter::new(), news);
        let cluster = Self(Rc::new(inner));
        let weak = Rc::downgrade(&cluster.0);
        messenger.set_handler(move |event| {
            if let Some(inner) = weak.upgrade()
                && let Some(event) = inner.on_event(event)
            {
                events(event);
            }
        });
        cluster.keep_ticking();
        cluster
    }

    /// The messenger of all its connections.
    #[must_use]
    pub fn messenger(&self) -> &Messenger {
        &self.0.messenger
    }

    /// Shows this client's ticket to daemons of a kind.
    #[must_use]
    pub fn redial(&self, service: EntityKind) -> rt::Redial {
        self.0.link.borrow().redial(service)
    }

    /// Usage of the cluster, or of a pool, in KiB.
    ///
    /// # Errors
    /// [`Error::Busy`], [`Error::Gone`].
    pub async fn statfs(&self, pool: Option<PoolId>) -> Result<StatfsReply> {
        let ask =
            Statfs { fsid: self.map().fsid, data_pool: pool.map(|p| p.0), ..Statfs::default() };
        let answer = self.0.ask_mon(ask.envelope(Features::ALL)).await?;
        Ok(StatfsReply::decode(&answer)?)
    }

    /// The newest OSD map this client has.
    ///
    /// # Panics
    /// Never: a connected client has a map.
    #[must_use]
    pub fn map(&self) -> Arc<OsdMap> {
        self.0.objecter.borrow().map().cloned().expect("a connected client has a map")
    }

    /// Sends a command to the monitors: `{"prefix": "status"}`. Result code, line for
    /// people, output.
    ///
    /// # Errors
    /// [`Error::Busy`], [`Error::Gone`]; a refused command is an answer, not an error.
    pub async fn mon_command(&self, json: &str, input: Bytes) -> Result<(i32, String, Bytes)> {
        let (answer, answered) = oneshot::channel();
        let mut tid = None;
        let events = self.0.link.borrow_mut().with(|c, out| tid = c.command(json, input, out));
        self.0.commands.borrow_mut().insert(tid.ok_or(Error::Busy)?, answer);
        self.0.on_mon_events(events);
        let ack = answered.await.map_err(|_| Error::Gone)?;
        Ok((ack.r, ack.rs, ack.output))
    }

    /// As [`Cluster::mon_command`], where everything but success is an error; the output.
    ///
    /// # Errors
    /// [`Error::Errno`] too.
    pub async fn mon(&self, json: &str) -> Result<Bytes> {
        let (r, rs, out) = self.mon_command(json, Bytes::new()).await?;
        if r < 0 { Err(Error::errno(&rs, r)) } else { Ok(out) }
    }

    /// Sends a command to an OSD. As [`Cluster::mon_command`].
    ///
    /// # Errors
    /// [`Error::Errno`] with ENXIO when the OSD is down; [`Error::Gone`] when the
    /// connection breaks.
    pub async fn osd_command(&self, osd: OsdId, json: &str) -> Result<(i32, String, Bytes)> {
        let map = self.map();
        let addrs = map.osd_addrs(osd).filter(|_| map.is_up(osd)).cloned();
        let addrs = addrs.ok_or_else(|| Error::errno(&format!("osd.{osd} is not up"), -6))?;
        self.daemon_command(addrs, EntityKind::OSD, json, Bytes::new()).await
    }

    /// Sends a command to a daemon at these addresses, for which this client has tickets: see
    /// [`Cluster::connect_beside`]. As [`Cluster::mon_command`].
    ///
    /// # Errors
    /// [`Error::Gone`] when the connection breaks.
    pub async fn daemon_command(
        &self,
        addrs: AddrVec,
        kind: EntityKind,
        json: &str,
        input: Bytes,
    ) -> Result<(i32, String, Bytes)> {
        let redial = self.0.link.borrow().redial(kind);
        let conn = self.0.messenger.connect(addrs, kind, Policy::lossy_client(), redial);
        let command = Command {
            fsid: self.map().fsid,
            cmd: vec![Bytes::copy_from_slice(json.as_bytes())],
            input,
        };
        let (answer, answered) = oneshot::channel();
        self.0.daemon_commands.borrow_mut().insert(conn, DaemonCommand { command, answer });
        let reply = answered.await.map_err(|_| Error::Gone)?;
        Ok((reply.r, reply.rs, reply.output))
    }

    /// Waits until this client has the newest OSD map the monitors have.
    ///
    /// # Errors
    /// [`Error::Gone`].
    pub async fn wait_for_latest_map(&self) -> Result<()> {
        let out = self.mon(r#"{"prefix":"osd stat","format":"json"}"#).await?;
        let text = String::from_utf8_lossy(&out);
        let digits = text.split("\"epoch\":").nth(1).unwrap_or_default();
        let digits: String = digits
            .chars()
            .filter(|c| !c.is_whitespace())
            .take_while(char::is_ascii_digit)
            .collect();
        let epoch = Epoch(digits.parse().unwrap_or(0));
        self.0.wait_map(epoch).await.map_err(|_| Error::Gone)
    }

    /// A pool by name, looked up in the newest map when this client's does not have it.
    ///
    /// # Errors
    /// [`Error::Errno`] with ENOENT.
    pub async fn pool(&self, name: &str) -> Result<IoCtx> {
        if self.map().pool_by_name(name).is_none() {
            self.wait_for_latest_map().await?;
        }
        let pool = self.map().pool_by_name(name);
        let pool = pool.ok_or_else(|| Error::errno(&format!("no pool '{name}'"), -2))?;
        Ok(IoCtx::new(self.clone(), pool))
    }

    /// A pool by number. Nothing is checked: operations fail with ENOENT where it is gone.
    #[must_use]
    pub fn pool_by_id(&self, pool: PoolId) -> IoCtx {
        IoCtx::new(self.clone(), pool)
    }

    /// The number that the monitors gave this client: `client.4711` in lists of watchers.
    #[must_use]
    pub fn global_id(&self) -> u64 {
        self.0.link.borrow().global_id()
    }

    /// Shuts a client out, by its address as lists of watchers and lockers show it: from the
    /// next map on OSDs refuse it. Returns when this client has that map; from then on what
    /// it writes comes behind everything the other one still got done.
    ///
    /// # Errors
    /// [`Error::Errno`] with EACCES without the right to.
    pub async fn blocklist_add(&self, addr: EntityAddr, expire: Option<Duration>) -> Result<()> {
        let plain = addr.with_kind(types::AddrKind::ANY).to_string();
        let addr = plain.trim_start_matches("any:");
        let expire = expire.map_or(String::new(), |d| format!(r#","expire":{}.0"#, d.as_secs()));
        self.mon(&format!(
            r#"{{"prefix":"osd blocklist","blocklistop":"add","addr":"{addr}"{expire}}}"#
        ))
        .await?;
        self.wait_for_latest_map().await
    }

    /// The address by which this client is shut out; none before its first session.
    #[must_use]
    pub fn addr(&self) -> Option<EntityAddr> {
        let mut sock = self.0.link.borrow().seen_as()?;
        sock.set_port(0);
        let nonce = self.0.messenger.local().nonce;
        Some(EntityAddr { kind: types::AddrKind::ANY, nonce, sock: Some(sock) })
    }

    /// Whether the newest map this client has shuts it out: its writes fail from then on, and
    /// only another client, a new [`Cluster::connect`], gets further.
    #[must_use]
    pub fn is_blocklisted(&self) -> bool {
        self.addr().is_some_and(|me| self.map().blocklisted_until(&me).is_some())
    }

    /// Ends a [`Cluster::blocklist_add`].
    ///
    /// # Errors
    /// As there.
    pub async fn blocklist_rm(&self, addr: EntityAddr) -> Result<()> {
        let plain = addr.with_kind(types::AddrKind::ANY).to_string();
        let addr = plain.trim_start_matches("any:");
        self.mon(&format!(r#"{{"prefix":"osd blocklist","blocklistop":"rm","addr":"{addr}"}}"#))
            .await?;
        self.wait_for_latest_map().await
    }
}
