//! The replicated state.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use denc::{DecodeError, Denc, Reader, Writer};
use messages::LogEntry;
use types::{EntityName, Epoch, OsdId, UTime, Uuid};

use crate::mutation::Entry;
use crate::{AuthChange, ConfigDb, Mutation, lines};

/// Lines of the log that are kept, of all channels.
const LOG_LINES_KEPT: usize = 10_000;
/// Bytes of them that are kept: as many lines of 800 bytes, which is what commands take.
const LOG_BYTES_KEPT: usize = 8 << 20;

/// Everything the monitors agree on.
///
/// Stored: 5/1 { fsid, created, then each field in the order below }, in the form of a
/// peer with every feature; v2 added `answered`, v3 `classes`, v4 `mds_metadata`, v5 `mgr_metadata`.
#[derive(Clone, Debug)]
pub struct ClusterState {
    /// The cluster.
    pub fsid: Uuid,
    /// When it was made.
    pub created: UTime,
    /// The monitors.
    pub monmap: maps::MonMap,
    /// The newest OSD map, with every change accepted so far.
    pub osdmap: maps::OsdMap,
    /// Committed OSD maps, by epoch.
    pub osd_history: OsdHistory,
    /// The managers; the leading monitor's own role where none is registered.
    pub mgrmap: maps::MgrMap,
    /// File systems and metadata servers.
    pub fsmap: maps::FsMap,
    /// Daemons that registered themselves: none yet.
    pub servicemap: maps::ServiceMap,
    /// Central settings.
    pub config: ConfigDb,
    /// The key/value store of `ceph config-key`.
    pub config_key: BTreeMap<String, Bytes>,
    /// Keys, caps and rotating service keys.
    pub auth: auth::KeyServer,
    /// Cluster and audit log.
    pub log: ClusterLog,
    /// What OSDs said of themselves when they booted.
    pub osd_metadata: BTreeMap<OsdId, BTreeMap<String, String>>,
    /// What monitors said of themselves.
    pub mon_metadata: BTreeMap<String, BTreeMap<String, String>>,
    /// Muted health codes.
    pub health_mutes: BTreeMap<String, HealthMute>,
    /// Every global id below is handed out or about to be.
    pub global_ids_below: u64,
    /// The last requests that changed something, oldest first: a client whose monitor died
    /// asks again, and is told what it would have been told.
    pub answered: VecDeque<Answered>,
    /// Object classes that operators uploaded.
    pub classes: crate::classes::Classes,
    /// What metadata servers said of themselves when they booted, by session.
    pub mds_metadata: BTreeMap<u64, BTreeMap<String, String>>,
    /// What managers said of themselves, by name; kept while the manager's key is there, also when it
    /// is down.
    pub mgr_metadata: BTreeMap<String, BTreeMap<String, String>>,
}

/// Requests whose answers are remembered.
const ANSWERED_KEPT: usize = 1000;

/// A request that changed something, and its answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answered {
    /// Who asked.
    pub global_id: u64,
    /// The request's kind of message.
    pub kind: u16,
    /// Its number, by the asker.
    pub tid: u64,
    /// The line for people.
    pub rs: String,
    /// The output.
    pub out: Bytes,
}

impl Denc for Answered {
    fn encode(&self, w: &mut Writer) {
        w.u64(self.global_id);
        w.u16(self.kind);
        w.u64(self.tid);
        w.str(&self.rs);
        self.out.encode(w);
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            global_id: r.u64()?,
            kind: r.u16()?,
            tid: r.u64()?,
            rs: r.string()?,
            out: Denc::decode(r)?,
        })
    }
}

/// What a change concerned: who must be told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Effects {
    pub osdmap: bool,
    pub monmap: bool,
    pub mgrmap: bool,
    pub fsmap: bool,
    pub config: bool,
    pub log: bool,
    pub auth: bool,
    pub classes: bool,
}

impl ClusterState {
    /// An empty OSD map change on top of the newest map.
    #[must_use]
    pub fn osd_change(&self) -> maps::Incremental {
        maps::Incremental::new(self.fsid, Epoch(self.osd_history.last.0 + 1))
    }

    /// Makes one change, but for the OSD map's: those are gathered into epochs first.
    pub(crate) fn apply(&mut self, mutation: &Mutation) -> Result<Effects, DecodeError> {
        let mut effects = Effects::default();
        match mutation {
            Mutation::Osd(inc) => {
                self.apply_osd(inc)?;
                effects.osdmap = true;
            }
            Mutation::MonMap(map) => {
                self.monmap =
                    maps::MonMap { epoch: Epoch(self.monmap.epoch.0 + 1), ..(**map).clone() };
                effects.monmap = true;
            }
            Mutation::MgrMap(map) => {
                self.mgrmap =
                    maps::MgrMap { epoch: Epoch(self.mgrmap.epoch.0 + 1), ..(**map).clone() };
                effects.mgrmap = true;
            }
            Mutation::FsMap(map) => {
                self.fsmap =
                    maps::FsMap { epoch: Epoch(self.fsmap.epoch.0 + 1), ..(**map).clone() };
                effects.fsmap = true;
            }
            Mutation::Auth(change) => {
                match change {
                    AuthChange::Set { name, key, caps } => {
                        self.auth.set(name.clone(), key.clone(), caps.clone());
                    }
                    AuthChange::Remove(name) => {
                        self.auth.remove(name);
                    }
                    AuthChange::Rotate { secrets, .. } => self.auth.apply_rotation(secrets)?,
                }
                effects.auth = true;
            }
            Mutation::Config { who, name, value } => {
                effects.config = self.config.set(who, name, value.as_deref());
            }
            Mutation::ConfigKey { key, value } => {
                match value {
                    Some(value) => self.config_key.insert(key.clone(), value.clone()),
                    None => self.config_key.remove(key),
                };
            }
            Mutation::Log(entries) => {
                for entry in entries {
                    self.log.add(entry.clone());
                }
                effects.log = true;
            }
            Mutation::OsdMetadata { osd, metadata } => {
                match metadata {
                    Some(metadata) => self.osd_metadata.insert(*osd, metadata.clone()),
                    None => self.osd_metadata.remove(osd),
                };
            }
            Mutation::MdsMetadata { gid, metadata } => {
                match metadata {
                    Some(metadata) => self.mds_metadata.insert(*gid, metadata.clone()),
                    None => self.mds_metadata.remove(gid),
                };
            }
            Mutation::MgrMetadata { name, metadata } => {
                match metadata {
                    Some(metadata) => self.mgr_metadata.insert(name.clone(), metadata.clone()),
                    None => self.mgr_metadata.remove(name),
                };
            }
            Mutation::MonMetadata { name, metadata } => {
                self.mon_metadata.insert(name.clone(), metadata.clone());
            }
            Mutation::GlobalIds { below } => {
                self.global_ids_below = self.global_ids_below.max(*below);
            }
            Mutation::HealthMute { code, mute } => {
                match mute {
                    Some(mute) => self.health_mutes.insert(code.clone(), mute.clone()),
                    None => self.health_mutes.remove(code),
                };
            }
            Mutation::ClassModule { name, code } => {
                self.classes.set(name, code.as_ref());
                effects.classes = true;
            }
            Mutation::TrimOsdMaps { first } => self.osd_history.trim(*first),
            Mutation::Answered(answered) => {
                if self.answered.len() >= ANSWERED_KEPT {
                    self.answered.pop_front();
                }
                self.answered.push_back(answered.clone());
            }
            Mutation::Batch(all) => {
                for one in all {
                    let more = self.apply(one)?;
                    effects.join(more);
                }
            }
        }
        Ok(effects)
    }

    /// Makes all changes of a committed entry.
    pub(crate) fn apply_entry(&mut self, entry: &Entry) -> Result<Effects, DecodeError> {
        let mut effects = Effects::default();
        for mutation in &entry.mutations {
            effects.join(self.apply(mutation)?);
        }
        Ok(effects)
    }

    /// The state of a monitor that goes on without the others: all that its file holds, with a monitor
    /// map that is newer than each it has seen. What was proposed and maybe never acknowledged is
    /// taken, for what was acknowledged cannot be told from it.
    ///
    /// # Errors
    /// [`DecodeError`] of a file that is damaged.
    pub fn rescued(whole: &crate::quorum::Whole, map: maps::MonMap) -> Result<Self, DecodeError> {
        let mut state = Self::from_shared(&whole.state)?;
        for proposal in &whole.proposals {
            state.apply_entry(&Entry::from_shared(proposal)?)?;
        }
        let newest = state.monmap.epoch.max(map.epoch);
        state.monmap = maps::MonMap { epoch: Epoch(newest.0 + 1), ..map };
        Ok(state)
    }

    fn apply_osd(&mut self, inc: &maps::Incremental) -> Result<(), DecodeError> {
        let what = "osdmap increment";
        let mut again = inc.clone();
        let sealed = again
            .seal(&self.osdmap, self.osdmap.canonical_features())
            .map_err(|_| DecodeError::Invalid { what, rule: "it applies to the newest map" })?;
        if again.full_crc != inc.full_crc {
            return Err(DecodeError::Invalid { what, rule: "it makes the map it was made for" });
        }
        self.record_osdmap(inc.epoch, sealed);
        Ok(())
    }

    /// Takes a finished epoch of the OSD map.
    pub(crate) fn record_osdmap(&mut self, epoch: Epoch, sealed: maps::SealedEpoch) {
        self.osdmap = sealed.map;
        self.osd_history.push(epoch, sealed.full, sealed.incremental);
    }

    /// The entity's caps for the monitors; empty when there are none.
    #[must_use]
    pub fn mon_caps(&self, name: &EntityName) -> &str {
        self.auth.caps(name, types::EntityKind::MON).unwrap_or("")
    }
}

impl Effects {
    pub(crate) const ALL: Self = Self {
        osdmap: true,
        monmap: true,
        mgrmap: true,
        fsmap: true,
        config: true,
        log: true,
        auth: true,
        classes: true,
    };

    fn join(&mut self, other: Self) {
        self.osdmap |= other.osdmap;
        self.monmap |= other.monmap;
        self.mgrmap |= other.mgrmap;
        self.fsmap |= other.fsmap;
        self.config |= other.config;
        self.log |= other.log;
        self.auth |= other.auth;
        self.classes |= other.classes;
    }
}

/// Committed OSD maps: a full one, what changed since, and the newest full one.
#[derive(Clone, Debug, Default)]
pub struct OsdHistory {
    /// The oldest epoch that can be told.
    pub first: Epoch,
    /// The newest committed epoch.
    pub last: Epoch,
    /// Encoded changes, `first + 1 ..= last`.
    pub incrementals: BTreeMap<Epoch, Bytes>,
    /// The full map of `first`, encoded.
    pub base: Bytes,
    /// The full map of `last`, encoded.
    pub newest: Bytes,
}

impl OsdHistory {
    /// A history that begins with `map`.
    #[must_use]
    pub fn begin(map: &maps::OsdMap) -> Self {
        let bytes = map.to_bytes_for(map.canonical_features());
        Self {
            first: map.epoch,
            last: map.epoch,
            incrementals: BTreeMap::new(),
            base: bytes.clone(),
            newest: bytes,
        }
    }

    /// A history from `base` to `newest`, with the encoded change to each epoch between, as OSDs
    /// keep them.
    #[must_use]
    pub fn kept(
        base: &maps::OsdMap,
        changes: impl IntoIterator<Item = (Epoch, Bytes)>,
        newest: &maps::OsdMap,
    ) -> Self {
        let mut history = Self::begin(base);
        history.incrementals.extend(changes);
        history.newest = newest.to_bytes_for(newest.canonical_features());
        history.last = newest.epoch;
        history
    }

    fn push(&mut self, epoch: Epoch, full: Bytes, incremental: Bytes) {
        self.newest = full;
        self.incrementals.insert(epoch, incremental);
        self.last = epoch;
    }

    /// The full map of an epoch, encoded; made from the oldest where it is neither the
    /// oldest nor the newest, at the price of one application per epoch between.
    #[must_use]
    pub fn full(&self, epoch: Epoch) -> Option<Bytes> {
        if epoch == self.last {
            return Some(self.newest.clone());
        }
        if epoch == self.first {
            return Some(self.base.clone());
        }
        let map = self.map(epoch)?;
        Some(map.to_bytes_for(map.canonical_features()))
    }

    /// As [`OsdHistory::full`], decoded.
    #[must_use]
    pub fn map(&self, epoch: Epoch) -> Option<maps::OsdMap> {
        if epoch == self.last {
            return maps::OsdMap::from_shared(&self.newest).ok();
        }
        if epoch < self.first || epoch > self.last {
            return None;
        }
        let mut map = maps::OsdMap::from_shared(&self.base).ok()?;
        for (_, inc) in self.incrementals.range(..=epoch) {
            map.apply_incremental(&maps::Incremental::from_shared(inc).ok()?).ok()?;
        }
        Some(map)
    }

    /// Forgets epochs before `first`; those that are forgotten already, or not there yet, change
    /// nothing.
    fn trim(&mut self, first: Epoch) {
        if first <= self.first {
            return;
        }
        let Some(base) = self.full(first) else { return };
        self.base = base;
        self.first = first;
        self.incrementals = self.incrementals.split_off(&Epoch(first.0 + 1));
    }
}

/// The last lines of the cluster and audit logs.
#[derive(Clone, Debug, Default)]
pub struct ClusterLog {
    /// Lines so far; a line's number is its version for subscribers.
    pub version: u64,
    /// The last lines, oldest first, with their numbers.
    pub entries: VecDeque<(u64, LogEntry)>,
    /// What they take, about.
    bytes: usize,
}

impl ClusterLog {
    fn add(&mut self, entry: LogEntry) {
        self.version += 1;
        self.keep(self.version, entry);
    }

    /// Adds a line, cut and without secrets whoever wrote it, and drops the oldest beyond the
    /// bounds.
    fn keep(&mut self, number: u64, mut entry: LogEntry) {
        lines::tidy(&mut entry);
        self.bytes += lines::bytes(&entry);
        self.entries.push_back((number, entry));
        while self.entries.len() > LOG_LINES_KEPT || self.bytes > LOG_BYTES_KEPT {
            let Some((_, old)) = self.entries.pop_front() else { break };
            self.bytes -= lines::bytes(&old);
        }
    }
}

/// How a health code is muted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HealthMute {
    /// Until when; zero is for ever.
    pub until: UTime,
    /// Also when it clears and comes back.
    pub sticky: bool,
    /// What it said when muted.
    pub summary: String,
    /// How many it counted when muted.
    pub count: i64,
}

impl Denc for HealthMute {
    fn encode(&self, w: &mut Writer) {
        self.until.encode(w);
        w.bool(self.sticky);
        w.str(&self.summary);
        w.i64(self.count);
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            until: Denc::decode(r)?,
            sticky: r.bool()?,
            summary: r.string()?,
            count: r.i64()?,
        })
    }
}

impl Denc for OsdHistory {
    fn encode(&self, w: &mut Writer) {
        self.first.encode(w);
        self.last.encode(w);
        self.incrementals.encode(w);
        self.base.encode(w);
        self.newest.encode(w);
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            first: Denc::decode(r)?,
            last: Denc::decode(r)?,
            incrementals: Denc::decode(r)?,
            base: Denc::decode(r)?,
            newest: Denc::decode(r)?,
        })
    }
}

impl Denc for ClusterLog {
    fn encode(&self, w: &mut Writer) {
        w.u64(self.version);
        w.seq(&self.entries, |w, (n, entry)| {
            w.u64(*n);
            entry.encode(w);
        });
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let version = r.u64()?;
        let entries: Vec<(u64, LogEntry)> = r.seq(|r| Ok((r.u64()?, Denc::decode(r)?)))?;
        let mut log = Self { version, ..Self::default() };
        for (number, entry) in entries {
            log.keep(number, entry);
        }
        Ok(log)
    }
}

impl Denc for ClusterState {
    fn encode(&self, w: &mut Writer) {
        w.framed(5, 1, |w| {
            self.fsid.encode(w);
            self.created.encode(w);
            self.monmap.encode(w);
            self.osd_history.encode(w); // its newest full map is `osdmap`
            self.mgrmap.encode(w);
            self.fsmap.encode(w);
            self.servicemap.encode(w);
            self.config.encode(w);
            self.config_key.encode(w);
            self.auth.encode(w);
            self.log.encode(w);
            self.osd_metadata.encode(w);
            self.mon_metadata.encode(w);
            self.health_mutes.encode(w);
            w.u64(self.global_ids_below);
            w.seq(&self.answered, |w, a| a.encode(w));
            self.classes.encode(w);
            self.mds_metadata.encode(w);
            self.mgr_metadata.encode(w);
        });
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("ClusterState", 5, |r, v| {
            let (fsid, created, monmap) = (Denc::decode(r)?, Denc::decode(r)?, Denc::decode(r)?);
            let osd_history = OsdHistory::decode(r)?;
            Ok(Self {
                fsid,
                created,
                monmap,
                osdmap: maps::OsdMap::from_shared(&osd_history.newest)?,
                osd_history,
                mgrmap: Denc::decode(r)?,
                fsmap: Denc::decode(r)?,
                servicemap: Denc::decode(r)?,
                config: Denc::decode(r)?,
                config_key: Denc::decode(r)?,
                auth: Denc::decode(r)?,
                log: Denc::decode(r)?,
                osd_metadata: Denc::decode(r)?,
                mon_metadata: Denc::decode(r)?,
                health_mutes: Denc::decode(r)?,
                global_ids_below: r.u64()?,
                answered: if v >= 2 { r.seq(Denc::decode)?.into() } else { VecDeque::new() },
                classes: if v >= 3 { Denc::decode(r)? } else { Default::default() },
                mds_metadata: if v >= 4 { Denc::decode(r)? } else { BTreeMap::new() },
                mgr_metadata: if v >= 5 { Denc::decode(r)? } else { BTreeMap::new() },
            })
        })
    }
}
