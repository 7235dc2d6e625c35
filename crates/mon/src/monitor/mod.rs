//! The role: events in, an outbox out.
//!
//! ```text
//!  message ─▶ handler ─▶ Mutation ─▶ head state ─▶ open batch ──poll──▶ log
//!                 └────▶ outputs ──(wait for the batch they depend on)──▶ outbox
//! ```
//! What may be trusted: `state` is the head (see the crate's invariants); `done` is the
//! newest batch known to be committed; outputs in `gated` wait for theirs, in order. All of
//! that is the leader's: at the others `state` is what was committed, and nothing is gated
//! (see `others`, `forward`).

mod auth;
mod command;
mod forward;
mod fs;
mod history;
mod managers;
mod modules;
mod osd;
mod others;
mod pgnum;
mod pools;
mod probes;
mod requests;
mod rounds;
mod services;
mod subs;

use std::collections::{BTreeMap, VecDeque};

pub use others::{Elections, MembershipStep};

use ::auth::{CryptoKey, MonAuth, MonAuthSettings, PeerIdentity, SharedRandom};
use bytes::Bytes;
use conf::{Key, Kind, key};
use denc::{Denc, Features};
use env::{ConnId, Now, Random};
use messages::{Envelope, LogEntry, LogPriority, Message, PRIO_HIGH};
use types::{AddrVec, EntityId, EntityKind, EntityName, Epoch, PgId, UTime};

use crate::mutation::Entry;
use crate::osdinc::OpenOsd;
use crate::peer::PeerSays;
use crate::session::Session;
use crate::state::Effects;
use crate::{ClusterState, HealthReport, Mutation, QuorumInfo, Reply, Volatile, quorum};

/// Outputs that may wait in one monitor; beyond it, connections that ask for more close.
const GATED_MAX: usize = 1 << 20;
/// Entries between two snapshots of the state.
const SNAPSHOT_EVERY: u64 = 500;
/// Bytes of entries between two snapshots of the state.
const SNAPSHOT_BYTES: u64 = 16 << 20;
/// Milliseconds between two rounds of periodic work.
const ROUND_MS: u64 = 1000;

/// What a monitor is told about itself.
#[derive(Clone, Debug, Default)]
pub struct MonConfig {
    /// Its name in the monitor map.
    pub name: String,
    /// Its number in the quorum: the `origin` of its proposals.
    pub node: u64,
    /// Where the manager's role listens, when this process offers it: named in the
    /// manager map, so that `mgr` commands reach it.
    pub mgr_addrs: Option<AddrVec>,
    /// Everybody is who they say (`auth_cluster_required = none`).
    pub auth_none: bool,
    /// What `ceph mon metadata` shows.
    pub metadata: BTreeMap<String, String>,
    /// Options from its `ceph.conf`, command line and defaults of the wiring; the central
    /// settings come on top of them.
    pub options: BTreeMap<String, String>,
    /// The key of `mon.` in the keyring of its data directory: it counts where it was made later than
    /// the store's, which may have missed a rotation.
    pub kept_key: Option<CryptoKey>,
}

/// Whom a new connection belongs to, as its handshake proved.
#[derive(Clone, Debug, Default)]
pub struct PeerInfo {
    /// Name, number and capabilities.
    pub identity: PeerIdentity,
    /// Its kind and the id it gave (`osd.3`, `client.4123`).
    pub entity: EntityId,
    /// What both sides know.
    pub features: Features,
    /// Its addresses; caps that are bound to networks go by the first, whose IP is the socket's.
    pub addrs: AddrVec,
    /// It came to the addresses of the manager's role.
    pub at_mgr: bool,
}

/// What a monitor wants done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// A message for a peer; dropped when the connection is gone.
    Send {
        /// To whom.
        conn: ConnId,
        /// What.
        env: Envelope,
    },
    /// The end of a connection, after what was sent before.
    Close {
        /// Which.
        conn: ConnId,
    },
    /// An entry for the log: `Quorum::propose`.
    Propose {
        /// Comes back with the commit.
        token: u64,
        /// The entry.
        data: Bytes,
    },
    /// The state right after an entry: `Quorum::offer_snapshot`.
    Snapshot {
        /// The entry.
        index: u64,
        /// The state.
        state: Bytes,
    },
    /// A command for a module of the manager: [`Monitor::on_module_answer`].
    Module {
        /// The monitor's number for it.
        id: u64,
        /// The command.
        args: cli::Args,
        /// Whose it is, and what of it the module may do.
        caller: Box<::auth::MgrCaller>,
    },
    /// The answer to [`Monitor::on_admin_command`].
    Local {
        /// The caller's number.
        id: u64,
        /// The answer.
        reply: Reply,
    },
    /// An address to dial: [`Monitor::on_refused`] where nobody listens there.
    Probe {
        /// Whose it is.
        osd: types::OsdId,
        /// The addresses of its public side.
        addrs: AddrVec,
    },
    /// A message for another monitor; dropped when it cannot be reached.
    Peer {
        /// Its number.
        node: u64,
        /// What.
        env: Envelope,
    },
}

/// What is to leave, before it is known how: clients may be another monitor's.
#[derive(Debug)]
enum Wish {
    Do(Output),
    /// Something for another monitor.
    Says {
        node: u64,
        says: PeerSays,
    },
    /// Nothing more comes for a message that came by a monitor, or from a client here.
    Served {
        to: Option<u64>,
        rid: u64,
    },
    /// Another monitor's client lacks OSD maps.
    CatchUp {
        node: u64,
        conn: ConnId,
        has: Epoch,
        subscribe: bool,
    },
}

impl Wish {
    fn sends_to(&self, to: ConnId) -> bool {
        matches!(self, Self::Do(Output::Send { conn, .. }) if *conn == to)
    }
}

impl From<Output> for Wish {
    fn from(output: Output) -> Self {
        Self::Do(output)
    }
}

/// Why a monitor cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MonError {
    /// The stored state is damaged or of a later version.
    #[error("monitor state: {0}")]
    State(#[from] denc::DecodeError),
}

/// Changes that are gathered, not proposed yet.
#[derive(Default)]
struct Open {
    mutations: Vec<Mutation>,
    osd: Option<OpenOsd>,
    /// Whether outputs wait for it (log lines alone make nobody wait).
    gates: bool,
    /// Whether keys change.
    auth: bool,
    /// Whether the monitors change.
    monmap: bool,
}

/// The batch being committed.
struct InFlight {
    seq: u64,
    token: u64,
    gates: bool,
    /// Whether the monitors change.
    monmap: bool,
    /// The state right after it.
    snapshot: Option<Bytes>,
}

/// One monitor.
pub struct Monitor {
    config: MonConfig,
    rank: u32,
    state: ClusterState,
    volatile: Volatile,
    rng: Box<dyn Random>,
    now: Now,
    sessions: BTreeMap<ConnId, Session>,
    osd: osd::OsdService,
    map_use: history::MapUse,
    open: Open,
    in_flight: Option<InFlight>,
    /// Number of the open batch.
    seq: u64,
    /// The newest committed batch.
    done: u64,
    token: u64,
    entries_since_snapshot: u64,
    bytes_since_snapshot: u64,
    gated: VecDeque<(u64, Wish)>,
    /// What sessions were taken to have been told by what is in `gated`.
    unsaid: VecDeque<(u64, subs::Unsaid)>,
    out: Vec<Wish>,
    /// The newest entry of the log that is in the state.
    applied: u64,
    others: others::Others,
    forwards: forward::Forwards,
    /// What other monitors asked before this leader was sure of itself.
    held: VecDeque<(u64, PeerSays)>,
    /// The message being answered: the monitor it came by, and its number.
    serving: Option<(Option<u64>, u64)>,
    pumping: bool,
    /// The state holds what was not committed and is to be made anew.
    rewind: bool,
    /// The term to lead in once that is done.
    lead_then: Option<quorum::Ballot>,
    next_round_ms: u64,
    log_seq: u64,
    map_cache: subs::MapCache,
    waiting: Vec<command::Waiting>,
    auth: MonAuth,
    /// The handshakes' copy of the keys is not the newest.
    auth_stale: bool,
    /// Global ids asked of the log, and the batch that holds them.
    ids_asked: Option<(u64, std::ops::Range<u64>)>,
    /// The map that `volatile.mapping` was computed from.
    mapped: Option<maps::OsdMap>,
    health_stale: bool,
    /// What the cluster log was told of last.
    health_told: HealthReport,
    modules: modules::Asked,
    probes: probes::Probes,
    /// Room for this monitor's data.
    disk: crate::vitals::Disk,
}

impl Monitor {
    /// A monitor with the state its log starts from. The log's events follow by
    /// [`Monitor::on_quorum`]; then [`Monitor::lead`] begins service.
    ///
    /// # Errors
    /// [`MonError`].
    pub fn new(
        config: MonConfig,
        state: &Bytes,
        now: Now,
        mut rng: Box<dyn Random>,
        auth_rng: SharedRandom,
    ) -> Result<Self, MonError> {
        let state = ClusterState::from_shared(state)?;
        let rank = state.monmap.rank_of(&config.name).unwrap_or(0) as u32;
        let token = rng.u64();
        let auth = MonAuth::new(MonAuthSettings::default(), auth_rng);
        auth.set_open(false);
        let volatile = Volatile {
            quorum: QuorumInfo {
                name: config.name.clone(),
                rank,
                started_mono_ms: now.mono_ms(),
                ..QuorumInfo::default()
            },
            ..Volatile::default()
        };
        let mut this = Self {
            rank,
            config,
            state,
            volatile,
            rng,
            now,
            sessions: BTreeMap::new(),
            osd: osd::OsdService::default(),
            map_use: history::MapUse::default(),
            open: Open::default(),
            in_flight: None,
            modules: modules::Asked::default(),
            probes: probes::Probes::default(),
            disk: crate::vitals::Disk::default(),
            seq: 1,
            done: 0,
            token,
            entries_since_snapshot: 0,
            bytes_since_snapshot: 0,
            gated: VecDeque::new(),
            unsaid: VecDeque::new(),
            out: Vec::new(),
            applied: 0,
            others: others::Others::new(now),
            forwards: forward::Forwards::default(),
            held: VecDeque::new(),
            serving: None,
            pumping: false,
            rewind: false,
            lead_then: None,
            next_round_ms: 0,
            log_seq: 0,
            map_cache: subs::MapCache::default(),
            waiting: Vec::new(),
            auth,
            auth_stale: true,
            ids_asked: None,
            mapped: None,
            health_stale: true,
            health_told: HealthReport::default(),
        };
        this.refresh_auth_settings();
        this.refresh_auth_keys();
        Ok(this)
    }

    /// The newest state, with what is not committed yet.
    #[must_use]
    pub fn state(&self) -> &ClusterState {
        &self.state
    }

    /// The newest entry of the log that is in the state.
    #[must_use]
    pub fn applied(&self) -> u64 {
        self.applied
    }

    /// Whether the state holds nothing that is not committed.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.in_flight.is_none() && self.open.mutations.is_empty() && self.open.osd.is_none()
    }

    /// What the leader knows and may lose.
    #[must_use]
    pub fn volatile(&self) -> &Volatile {
        &self.volatile
    }

    /// Begins service as the leader; `ballot` is the election it won. Old entries must
    /// have been applied: [`quorum::Event::Began`] does this.
    pub fn lead(&mut self, now: Now, ballot: quorum::Ballot) {
        self.now = now;
        self.enter_leading(ballot);
        let q = &mut self.volatile.quorum;
        q.election_epoch = others::election_epoch(ballot);
        q.leader = self.config.name.clone();
        q.since_mono_ms = now.mono_ms();
        self.volatile.quorum.quorum = self.quorum_ranks();
        self.next_round_ms = 0;
        self.osd.begin();
        self.probes = probes::Probes::default();
        self.volatile.mds = crate::fs::Watch::default();
        self.volatile.vitals = crate::vitals::Round::default();
        self.map_use = history::MapUse::default();
        let line = self.quorum_line();
        self.log(LogPriority::INFO, line);
        let map = &self.state.monmap;
        let mons: Vec<String> =
            map.iter().map(|(_, m)| format!("{}={}", m.name, m.addrs)).collect();
        let line =
            format!("monmap e{}: {} mons at {{{}}}", map.epoch, map.mons.len(), mons.join(","));
        self.log(LogPriority::DEBUG, line);
        self.log(LogPriority::DEBUG, self.osdmap_line());
        if !self.volatile.pgmap.osds.is_empty() {
            // The leader before this one has told of what it found.
            self.health_stale = true;
            self.refresh_health();
            self.health_told = self.volatile.health.clone();
        }
        self.ask_stats();
        self.start_services();
        let status = self.volatile.health.status(&self.state).name();
        self.log(LogPriority::INFO, format!("overall {status}"));
        self.leader_changed();
        self.others_tick();
    }

    /// Every change of the log, in order. While [`Monitor::rewind_to`] asks for it, the
    /// state must be made anew first.
    ///
    /// # Errors
    /// [`MonError`] when the log holds what cannot be read.
    pub fn on_quorum(&mut self, now: Now, event: quorum::Event) -> Result<(), MonError> {
        self.now = now;
        match event {
            quorum::Event::Committed { index, origin, token, data } => {
                if index <= self.applied {
                    return Ok(()); // in the state already
                }
                self.applied = index;
                self.entries_since_snapshot += 1;
                self.bytes_since_snapshot += data.len() as u64;
                let ours = origin == self.config.node
                    && self.in_flight.as_ref().is_some_and(|f| f.token == token);
                if !ours {
                    self.deposed();
                }
                if self.rewind {
                    return Ok(()); // with all before it, this entry is in the state to come
                }
                if ours {
                    let done = self.in_flight.take().expect("just seen");
                    self.done = done.seq;
                    if let Some(state) = done.snapshot {
                        self.out.push(Output::Snapshot { index, state }.into());
                    }
                    self.auth_committed();
                    self.release();
                } else {
                    let entry = Entry::from_shared(&data)?;
                    let effects = self.state.apply_entry(&entry)?;
                    self.on_applied(effects);
                    if self.snapshot_is_due() {
                        let state = self.state.to_bytes();
                        self.out.push(Output::Snapshot { index, state }.into());
                    }
                }
            }
            quorum::Event::Restored { index, state } => {
                // Who joins a young cluster is given the founders' state, which covers entry 0.
                if index >= self.applied {
                    self.deposed();
                    self.rewind = false;
                    self.replace_state(index, &state, &[])?;
                }
            }
            quorum::Event::Began { index, ballot } => {
                let ours = ballot.node == self.config.node;
                // In a later reign of its own, too, what it had under way may be lost.
                if !ours || self.is_later(ballot) {
                    self.deposed();
                }
                self.reign_began(ballot);
                self.applied = self.applied.max(index);
                if ours && self.rewind {
                    self.lead_then = Some(ballot);
                } else if ours && self.begins(ballot) {
                    self.lead(now, ballot);
                }
            }
            quorum::Event::Standing { ballot, leader } => self.on_standing(ballot, leader)?,
            quorum::Event::Members { voters, .. } => self.on_members(voters),
        }
        self.deliver_later();
        self.pump();
        Ok(())
    }

    /// The state is another; everybody is told what that changes.
    fn replace_state(
        &mut self,
        index: u64,
        state: &Bytes,
        entries: &[Bytes],
    ) -> Result<(), MonError> {
        let mut state = ClusterState::from_shared(state)?;
        for entry in entries {
            state.apply_entry(&Entry::from_shared(entry)?)?;
        }
        self.state = state;
        self.applied = index;
        self.map_cache = subs::MapCache::default();
        self.on_applied(Effects::ALL);
        self.deliver_later();
        Ok(())
    }

    /// What somebody else changed is in the state: those are told whom it concerns.
    fn on_applied(&mut self, effects: Effects) {
        if effects.auth {
            self.refresh_auth_keys();
            self.refresh_auth_settings();
        }
        if effects.config || effects.monmap {
            self.refresh_auth_settings();
        }
        if effects.monmap {
            self.refresh_rank();
        }
        if effects.osdmap {
            self.answer_waiting();
            self.push_osdmap();
            self.pgmap_follows();
        }
        self.push_effects(effects);
        self.health_stale = true;
    }

    fn refresh_rank(&mut self) {
        if let Some(rank) = self.state.monmap.rank_of(&self.config.name) {
            self.rank = rank as u32;
            self.volatile.quorum.rank = self.rank;
        }
    }

    fn snapshot_is_due(&mut self) -> bool {
        let due = self.entries_since_snapshot >= SNAPSHOT_EVERY
            || self.bytes_since_snapshot >= SNAPSHOT_BYTES;
        if due {
            self.entries_since_snapshot = 0;
            self.bytes_since_snapshot = 0;
        }
        due
    }

    /// Offers a snapshot with the next batch, however few entries there are.
    pub fn snapshot_soon(&mut self) {
        self.entries_since_snapshot = SNAPSHOT_EVERY;
        self.log(LogPriority::DEBUG, "the log is cut for a new monitor".to_owned());
    }

    /// A peer has been authenticated.
    pub fn on_opened(&mut self, now: Now, conn: ConnId, peer: PeerInfo) {
        self.now = now;
        self.sessions.insert(conn, Session::new(conn, peer));
    }

    /// The ways to an OSD: more than one while it changes its monitor and one of them does not
    /// know yet that it is gone.
    fn conns_of_osd(&self, osd: types::OsdId) -> Vec<ConnId> {
        let is_its = |s: &Session| {
            s.info.name.kind == EntityKind::OSD && !s.at_mgr && s.info.name.id.parse() == Ok(osd.0)
        };
        self.sessions.iter().filter(|(_, s)| is_its(s)).map(|(conn, _)| *conn).collect()
    }

    /// A connection is gone.
    pub fn on_closed(&mut self, now: Now, conn: ConnId) {
        self.now = now;
        self.forget_session(conn);
    }

    /// A message came. Bytes that cannot be read close the connection.
    pub fn on_message(&mut self, now: Now, conn: ConnId, env: &Envelope) {
        self.now = now;
        if !self.sessions.contains_key(&conn) {
            return; // it came behind its own end
        }
        let is_over = self.sessions.get(&conn).is_some_and(|s| s.aside.is_over());
        if is_over || self.gated.len() > GATED_MAX {
            return self.drop_session(conn, "too much is waiting for commits");
        }
        self.take(conn, env);
    }

    fn dispatch_or_drop(&mut self, conn: ConnId, env: &Envelope) {
        if let Err(e) = self.dispatch(conn, env) {
            self.drop_session(conn, &format!("message {:#x}: {e}", env.kind));
        }
    }

    fn drop_session(&mut self, conn: ConnId, why: &str) {
        if let Some(s) = self.sessions.get(&conn) {
            tracing::warn!("{} {} dropped: {why}", s.info.name, s.info.addrs);
        }
        let close = self.close_output(conn);
        self.out.push(close);
        self.forget_session(conn);
    }

    /// Time has passed; to be called about ten times a second.
    pub fn on_tick(&mut self, now: Now) {
        self.now = now;
        self.others_tick();
        if !self.leads() {
            return;
        }
        self.probe_tick();
        if now.mono_ms() >= self.next_round_ms {
            self.next_round_ms = now.mono_ms() + ROUND_MS;
            self.round();
        }
        if self.in_flight.is_none() && !self.open.mutations.is_empty() {
            self.flush(); // log lines that nobody waits for
        }
    }

    /// Takes what is to be done. To be called when the events at hand are handled: what
    /// they changed becomes one batch.
    pub fn poll(&mut self) -> Vec<Output> {
        if self.in_flight.is_none() && (self.open.gates || self.open.osd.is_some()) {
            self.flush();
        }
        let mut outputs = Vec::with_capacity(self.out.len());
        for wish in std::mem::take(&mut self.out) {
            let said = match wish {
                Wish::Do(Output::Send { conn, env }) if forward::is_proxy(conn) => {
                    let (index, env) = (self.applied, Some(env));
                    let to = self.route_to(conn);
                    to.map(|(node, conn)| (node, PeerSays::Route { conn, index, env }))
                }
                Wish::Do(output) => {
                    outputs.push(output);
                    None
                }
                Wish::Says { node, says } => Some((node, says)),
                Wish::Served { to, rid } => self.served(to, rid),
                Wish::CatchUp { node, conn, has, subscribe } => {
                    let index = self.applied;
                    Some((node, PeerSays::CatchUp { conn, index, has, subscribe }))
                }
            };
            if let Some((node, says)) = said {
                outputs.push(Output::Peer { node, env: says.envelope() });
            }
        }
        outputs
    }

    // ----- changes -----

    /// Makes a change of the head; it is committed with the open batch.
    fn propose(&mut self, mutation: Mutation) {
        self.open.gates |= self.leads();
        self.take_in(mutation);
    }

    fn take_in(&mut self, mut mutation: Mutation) {
        if let Mutation::Log(entries) = &mut mutation {
            entries.iter_mut().for_each(crate::lines::tidy); // before it is said or written
        }
        if !self.leads() {
            return self.wish(mutation);
        }
        match mutation {
            Mutation::Batch(all) => all.into_iter().for_each(|m| self.take_in(m)),
            Mutation::Osd(inc) => self.change_osd(*inc),
            Mutation::Log(mut entries) => {
                for entry in &mut entries {
                    if entry.seq == 0 {
                        self.log_seq += 1;
                        entry.seq = self.log_seq;
                    }
                }
                self.apply_and_keep(Mutation::Log(entries));
            }
            other => self.apply_and_keep(other),
        }
    }

    fn apply_and_keep(&mut self, mutation: Mutation) {
        let effects = match self.state.apply(&mutation) {
            Ok(effects) => effects,
            Err(e) => {
                tracing::error!("a change was refused by the state: {e}");
                return;
            }
        };
        self.open.mutations.push(mutation);
        if effects.auth {
            self.open.auth = true;
            self.auth_stale = true;
        }
        if effects.config || effects.monmap {
            self.refresh_auth_settings();
        }
        if effects.monmap {
            self.open.monmap = true;
            self.refresh_rank();
        }
        self.push_effects(effects);
    }

    /// Whether the monitor map is as it was committed.
    fn is_monmap_settled(&self) -> bool {
        !self.open.monmap && !self.in_flight.as_ref().is_some_and(|f| f.monmap)
    }

    /// Adds to the OSD map epoch being filled; what does not apply is dropped and logged.
    fn change_osd(&mut self, mut inc: maps::Incremental) {
        if let Some(mut open) = self.open.osd.clone() {
            if open.join(&inc) {
                return self.take_open(open);
            }
            self.close_osd();
            inc.epoch = Epoch(self.state.osd_history.last.0 + 1);
        }
        self.take_open(OpenOsd::new(self.state.osdmap.clone(), inc));
    }

    fn take_open(&mut self, open: OpenOsd) {
        match open.result() {
            Ok(map) => {
                self.state.osdmap = map;
                self.open.osd = Some(open);
            }
            Err(e) => tracing::error!("an osdmap change was refused: {e}"),
        }
    }

    /// Ends the OSD map epoch being filled.
    fn close_osd(&mut self) {
        let Some(open) = self.open.osd.take() else { return };
        let pgs = &self.volatile.pgmap.pgs;
        let writes = |pg: PgId| pgs.get(&pg).map_or(0, |stat| stat.version.version);
        let few = self.option(key::OSD_ASYNC_RECOVERY_MIN_COST);
        let primes = self.option(key::MON_OSD_PRIME_PG_TEMP);
        match open.finish(self.wall(), primes.then_some((&writes, few))) {
            Ok((inc, sealed)) => {
                self.state.record_osdmap(inc.epoch, sealed);
                self.open.mutations.push(Mutation::Osd(Box::new(inc)));
            }
            Err(e) => panic!("an osdmap change that applied no longer does: {e}"),
        }
    }

    /// Proposes the open batch.
    fn flush(&mut self) {
        debug_assert!(self.in_flight.is_none(), "one batch at a time");
        self.close_osd();
        let open = std::mem::take(&mut self.open);
        let had_osd = open.mutations.iter().any(|m| matches!(m, Mutation::Osd(_)));
        let entry = Entry { stamp: self.wall(), mutations: open.mutations };
        let data = entry.to_bytes();
        self.token = self.token.wrapping_add(1);
        let snapshot = self.snapshot_is_due().then(|| self.state.to_bytes());
        self.in_flight = Some(InFlight {
            seq: self.seq,
            token: self.token,
            gates: open.gates,
            monmap: open.monmap,
            snapshot,
        });
        self.seq += 1;
        self.out.push(Output::Propose { token: self.token, data }.into());
        if had_osd {
            self.answer_waiting();
            self.push_osdmap();
            self.pgmap_follows();
            self.log(LogPriority::DEBUG, self.osdmap_line());
        }
    }

    /// `osdmap e5: 3 total, 3 up, 3 in`
    fn osdmap_line(&self) -> String {
        let map = &self.state.osdmap;
        let (known, up, r#in) = map.osd_counts();
        format!("osdmap e{}: {known} total, {up} up, {} in", map.epoch, r#in)
    }

    /// The leader's first acts.
    fn start_services(&mut self) {
        self.refresh_auth_settings();
        self.refresh_auth_keys();
        if self.state.mon_metadata.get(&self.config.name) != Some(&self.config.metadata) {
            let metadata = self.config.metadata.clone();
            self.propose(Mutation::MonMetadata { name: self.config.name.clone(), metadata });
        }
        self.managers_begin();
        self.pgmap_follows();
        self.fs_begin();
        self.round();
    }

    /// Periodic work.
    fn round(&mut self) {
        self.auth_round();
        self.osd_round();
        self.pool_round();
        self.fs_round();
        self.managers_round();
        self.pg_num_round();
        self.autoscale_round();
        self.balance_round();
        self.trim_round();
        self.health_round();
    }

    // ----- outputs -----

    /// The batch that an output made now depends on.
    fn depends_on(&self) -> u64 {
        if self.open.gates || self.open.osd.is_some() {
            self.seq
        } else {
            self.in_flight.as_ref().filter(|f| f.gates).map_or(0, |f| f.seq)
        }
    }

    /// The batch that an output made now waits for, behind those that wait.
    fn gate(&self) -> Option<u64> {
        let seq = self.depends_on().max(self.gated.back().map_or(0, |g| g.0));
        (seq > self.done).then_some(seq)
    }

    fn emit(&mut self, wish: impl Into<Wish>) {
        let wish = wish.into();
        if let Some(seq) = self.gate() {
            if let Wish::Do(Output::Send { conn, env }) = &wish {
                self.put_aside(*conn, env);
            }
            self.gated.push_back((seq, wish));
        } else {
            self.out.push(wish);
        }
    }

    fn release(&mut self) {
        while self.gated.front().is_some_and(|g| g.0 <= self.done) {
            let (_, wish) = self.gated.pop_front().expect("just seen");
            if let Wish::Do(Output::Send { conn, env }) = &wish {
                self.take_back(*conn, env);
            }
            self.out.push(wish);
        }
        while self.unsaid.front().is_some_and(|u| u.0 <= self.done) {
            self.unsaid.pop_front();
        }
    }

    fn send(&mut self, conn: ConnId, env: Envelope) {
        self.emit(Output::Send { conn, env });
    }

    /// Sends a message in the form its peer reads.
    fn tell<M: Message>(&mut self, conn: ConnId, tid: u64, message: &M) {
        let Some(session) = self.sessions.get(&conn) else { return };
        let env = message.envelope(session.info.features).with_tid(tid);
        self.send(conn, env.with_priority(PRIO_HIGH));
    }

    // ----- small things -----

    fn wall(&self) -> UTime {
        UTime::from_nanos(self.now.wall_ns)
    }

    /// This monitor's name as an entity.
    fn name(&self) -> EntityName {
        EntityName::new(EntityKind::MON, self.config.name.clone())
    }

    fn line(&self, prio: LogPriority, channel: &str, msg: String) -> LogEntry {
        let addrs = self.state.monmap.mons.get(&self.config.name);
        LogEntry {
            name: self.name(),
            rank: EntityId::new(EntityKind::MON, i64::from(self.rank)),
            addrs: addrs.map(|m| m.addrs.clone()).unwrap_or_default(),
            stamp: self.wall(),
            seq: 0,
            prio,
            msg,
            channel: channel.to_owned(),
        }
    }

    /// Adds a line to the cluster log; nobody waits for it.
    fn log(&mut self, prio: LogPriority, msg: String) {
        tracing::info!("cluster [{}] {msg}", prio.short());
        let entry = self.line(prio, "cluster", msg);
        self.take_in(Mutation::Log(vec![entry]));
    }

    /// Adds a line to the audit log; nobody waits for it.
    fn audit(&mut self, prio: LogPriority, msg: String) {
        let entry = self.line(prio, "audit", msg);
        self.take_in(Mutation::Log(vec![entry]));
    }

    /// The text of an option as it applies to this monitor: of the central settings, then its own.
    fn option_text<K>(&self, key: Key<K>) -> Option<String> {
        let name = key.name();
        self.state.config.get(&self.name(), name).or_else(|| self.config.options.get(name).cloned())
    }

    /// An option as it applies to this monitor; the default where nobody set it, or to what is no value.
    fn option<K: Kind>(&self, key: Key<K>) -> K::Value {
        let text = self.option_text(key);
        text.and_then(|text| key.parse(&text)).unwrap_or_else(|| key.default())
    }

    /// An option that the peer's OSDs obey: as it is set for this OSD, else for this monitor.
    fn option_of_osd<K: Kind>(&self, osd: types::OsdId, key: Key<K>) -> K::Value {
        let osd = EntityName::new(EntityKind::OSD, osd.0.to_string());
        let text = self.state.config.get(&osd, key.name()).or_else(|| self.option_text(key));
        text.and_then(|text| key.parse(&text)).unwrap_or_else(|| key.default())
    }

    /// An option that the peer's manager obeys: as it is set for managers, else for this monitor.
    fn option_of_mgr<K: Kind>(&self, key: Key<K>) -> K::Value {
        let mgr = EntityName::new(EntityKind::MGR, "x");
        let text = self.state.config.get(&mgr, key.name()).or_else(|| self.option_text(key));
        text.and_then(|text| key.parse(&text)).unwrap_or_else(|| key.default())
    }
}
