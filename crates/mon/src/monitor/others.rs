//! The other monitors: whom this one follows, who can be reached, who agrees.
//!
//! ```text
//!              Standing{leader: other}                 Began{node: this}
//!  Following ◀────────────────────────── Electing ──────────────────────▶ Leading
//!      └───────── a later ballot ──────────▶ ◀──────── a later ballot ───────┘
//! ```
//! What may be trusted:
//! - *Leading*: the state is the newest there is while [`Others::is_fresh`]: a majority has
//!   said since less than the lease that it follows this monitor, so nobody else leads.
//!   Otherwise nothing is served: what comes waits.
//! - *Following*: the state is what was committed at some time; subscriptions are served
//!   from it. Reads that must see what was acknowledged before ask the leader how far the
//!   log has to be known; all else goes to the leader.
//! - *Electing*: nothing is served; what clients ask waits for a leader.
//!
//! A monitor that neither leads nor hears of a leader for [`ALONE_MS`] closes its clients'
//! connections and takes no new ones, so that they look for another.

use std::collections::{BTreeMap, BTreeSet};

use env::{ConnId, Now};
use messages::LogPriority;
use types::Epoch;

use super::{Monitor, Wish};
use crate::peer::{PeerSays, QuorumNews};
use crate::quorum::{Ballot, LEASE_MS};
use crate::vitals::{self, Disk, Vitals};
use crate::{MonError, Mutation};

/// Subtracted from the lease for clocks that run unequally.
const LEASE_SPARE_MS: u64 = 100;
/// A follower is in touch with a leader that it heard of within this time.
const TOUCH_MS: u64 = 2_000;
/// After so long out of touch, clients are sent away.
const ALONE_MS: u64 = 2_000;
/// A connected monitor that has not followed for so long is out of the quorum.
const SILENT_MS: u64 = 3_000;
/// A new leader counts connected monitors as following for so long.
const YOUNG_MS: u64 = 1_500;
/// After hearing for so long that it is no monitor any more, one believes it.
const REMOVED_MS: u64 = 3_000;
/// How often monitors tell each other whom they follow.
const STATUS_MS: u64 = 250;
/// How often followers hear who agrees.
const NEWS_MS: u64 = 1_000;
/// After a start, how much later than its predecessor each rank stands for election.
const STAGGER_MS: u64 = 150;
/// Elections that nobody wins for so long: each monitor stands in some rounds only, as the coin
/// falls. The log's timeouts are drawn once, so that two monitors may ask for votes at the
/// same moment each time, and who cannot win may be ahead of who can.
const VAIN_MS: u64 = 3_000;
/// Such a round: each who stands in it asks for votes once at least.
const ROUND_MS: u64 = 1_400;
/// A tick that comes so long after the one before it finds a monitor that stood still itself (its
/// machine was suspended, or had no time): what it did not hear meanwhile says nothing of the others.
const LATE_MS: u64 = 1_000;
/// Pause between two questions for statistics.
const STATS_MS: u64 = 2_000;
/// Pause between two questions for global ids.
const IDS_MS: u64 = 50;

/// Whether a monitor lets others try; two rounds of three.
fn sits_out(node: u64, now_ms: u64) -> bool {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut coin = DefaultHasher::new();
    (node, now_ms / ROUND_MS).hash(&mut coin);
    !coin.finish().is_multiple_of(3)
}

/// The number that upstream's tools know an election by.
pub(super) fn election_epoch(ballot: Ballot) -> u32 {
    (ballot.term * 2) as u32 + 2
}

/// What a monitor does in its quorum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    Electing,
    Following(u64),
    Leading,
}

/// Another monitor.
#[derive(Debug, Default)]
struct Peer {
    connected: bool,
    /// When it was last told something that it admitted (monotonic milliseconds).
    admitted_ms: u64,
    /// The leader it follows.
    leader: Option<u64>,
}

/// Whether an election may begin, and whether to begin one now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elections {
    /// See `Quorum::allow_elections`.
    pub allowed: bool,
    /// See `Quorum::elect`.
    pub begin: bool,
}

/// What a leader does next so that those count whom the monitor map names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MembershipStep {
    /// Makes these the monitors that count: number to name. See `Quorum::change_members`.
    Change(BTreeMap<u64, String>),
    /// Lets this one lead, as it is to leave itself. See `Quorum::yield_to`.
    Yield(u64),
}

/// See the module's page.
pub(super) struct Others {
    pub(super) standing: Standing,
    /// The newest election heard of.
    ballot: Ballot,
    /// The last one that this monitor won.
    led: Ballot,
    /// Since when it leads, or runs again after it stood still: who was silent until then counts as
    /// following for [`YOUNG_MS`].
    leading_since_ms: u64,
    ticked_ms: Option<u64>,
    /// Who counts: number to name.
    members: BTreeMap<u64, String>,
    /// It has counted itself: not being there any more means that it was removed.
    was_member: bool,
    /// It was in the cluster's monitor map.
    was_named: bool,
    /// Since when others say so, and whether that is long enough.
    told_removed_ms: Option<u64>,
    told_removed: bool,
    peers: BTreeMap<u64, Peer>,
    names: BTreeMap<u64, String>,
    /// When the leader was last heard of.
    heard_ms: u64,
    in_touch_ms: u64,
    /// The newest news of a monitor that this one did not follow.
    early_news: Option<(u64, QuorumNews)>,
    reach_since_ms: Option<u64>,
    began_ms: Option<u64>,
    /// Since when it may stand for election, and nobody wins.
    hunts_since_ms: Option<u64>,
    status_at_ms: u64,
    news_at_ms: u64,
    ids_at_ms: u64,
    stats_at_ms: u64,
    wishes: Vec<Mutation>,
    pub(super) wish_sent: bool,
}

impl Others {
    pub(super) fn new(now: Now) -> Self {
        Self {
            standing: Standing::Electing,
            ballot: Ballot::default(),
            led: Ballot::default(),
            leading_since_ms: 0,
            ticked_ms: None,
            members: BTreeMap::new(),
            was_member: false,
            was_named: false,
            told_removed_ms: None,
            told_removed: false,
            peers: BTreeMap::new(),
            names: BTreeMap::new(),
            heard_ms: 0,
            in_touch_ms: now.mono_ms(),
            early_news: None,
            reach_since_ms: None,
            began_ms: None,
            hunts_since_ms: None,
            status_at_ms: 0,
            news_at_ms: 0,
            ids_at_ms: 0,
            stats_at_ms: 0,
            wishes: Vec::new(),
            wish_sent: false,
        }
    }

    pub(super) fn leads(&self) -> bool {
        self.standing == Standing::Leading
    }

    /// Those that can be spoken to.
    pub(super) fn connected(&self) -> impl Iterator<Item = u64> {
        self.peers.iter().filter(|(_, p)| p.connected).map(|(id, _)| *id)
    }

    fn is_connected(&self, node: u64) -> bool {
        self.peers.get(&node).is_some_and(|p| p.connected)
    }

    /// Whether this leader is certain that nobody else leads.
    pub(super) fn is_fresh(&self, me: u64, now_ms: u64) -> bool {
        if !self.leads() {
            return false;
        }
        let mut admitted: Vec<u64> = self
            .members
            .keys()
            .map(|id| match self.peers.get(id) {
                _ if *id == me => now_ms,
                Some(peer) => peer.admitted_ms,
                None => 0,
            })
            .collect();
        if admitted.len() < 2 {
            return true;
        }
        admitted.sort_unstable_by(|a, b| b.cmp(a));
        admitted[admitted.len() / 2] + LEASE_MS - LEASE_SPARE_MS > now_ms
    }

    fn is_in_touch(&self, me: u64, now_ms: u64) -> bool {
        match self.standing {
            Standing::Leading => self.is_fresh(me, now_ms),
            Standing::Following(leader) => {
                self.is_connected(leader) && now_ms < self.heard_ms + TOUCH_MS
            }
            Standing::Electing => false,
        }
    }

    /// A leader: numbers of those that follow it, itself among them.
    fn followers(&self, me: u64, now_ms: u64) -> BTreeSet<u64> {
        let young = now_ms < self.leading_since_ms + YOUNG_MS;
        let follows = |p: &Peer| p.connected && (young || now_ms < p.admitted_ms + SILENT_MS);
        let peers = self.peers.iter().filter(|(id, p)| self.members.contains_key(id) && follows(p));
        peers.map(|(id, _)| *id).chain([me]).collect()
    }
}

impl Monitor {
    /// Whether it leads.
    #[must_use]
    pub fn leads(&self) -> bool {
        self.others.leads()
    }

    /// Whom it follows and reaches, in a line for people.
    #[must_use]
    pub fn standing_text(&self) -> String {
        let o = &self.others;
        let reach: Vec<(u64, Option<u64>)> =
            o.peers.iter().filter(|(_, p)| p.connected).map(|(id, p)| (*id, p.leader)).collect();
        format!(
            "{:?} term {} osdmap {} under way {} open {} {} reaches {reach:?}",
            o.standing,
            o.ballot.term,
            self.state.osdmap.epoch,
            self.in_flight.is_some(),
            self.open.mutations.len(),
            self.open.osd.is_some()
        )
    }

    /// Another monitor can be spoken to.
    pub fn on_peer_up(&mut self, now: Now, node: u64, name: &str) {
        self.now = now;
        self.others.names.insert(node, name.to_owned());
        let peer = self.others.peers.entry(node).or_default();
        *peer = Peer { connected: true, admitted_ms: peer.admitted_ms, leader: None };
        self.others.status_at_ms = 0;
        self.others.news_at_ms = 0;
        if self.others.standing == Standing::Following(node) {
            self.leader_changed(); // it may have lost what was on its way
        }
    }

    /// Another monitor dialled this one, which can speak to it already.
    pub fn on_peer_dialled(&mut self, now: Now, node: u64) {
        self.now = now;
        if self.others.standing == Standing::Following(node) {
            self.leader_changed(); // its answers may be lost
            self.pump();
        }
    }

    /// Another monitor cannot be spoken to any more.
    pub fn on_peer_down(&mut self, now: Now, node: u64) {
        self.now = now;
        if let Some(peer) = self.others.peers.get_mut(&node) {
            peer.connected = false;
            peer.leader = None;
        }
        self.others.status_at_ms = 0;
        self.forget_proxies_of(node);
    }

    /// Another monitor's log admitted what was sent to it at `sent_ms`: it follows this one.
    pub fn on_admitted(&mut self, node: u64, sent_ms: u64) {
        let peer = self.others.peers.entry(node).or_default();
        peer.admitted_ms = peer.admitted_ms.max(sent_ms);
    }

    /// This monitor's log admitted what a leader sent.
    pub fn on_heard(&mut self, now: Now) {
        self.others.heard_ms = now.mono_ms();
    }

    /// What this monitor's log may do about elections. `voters` are those that count for
    /// them: in the newest entry that names any, committed or not.
    #[must_use]
    pub fn elections(&mut self, now: Now, up_ms: u64, voters: &BTreeMap<u64, String>) -> Elections {
        let now_ms = now.mono_ms();
        let o = &mut self.others;
        if voters.len() < 2 {
            return Elections { allowed: true, begin: false };
        }
        let reach = voters
            .keys()
            .filter(|id| **id == self.config.node || o.peers.get(id).is_some_and(|p| p.connected))
            .count();
        let majority = reach > voters.len() / 2;
        o.reach_since_ms = majority.then(|| o.reach_since_ms.unwrap_or(now_ms));
        let me = self.config.node;
        let led = o.peers.iter().any(|(id, p)| {
            voters.contains_key(id) && p.connected && p.leader.is_some_and(|l| l != me)
        });
        let Some(since) = o.reach_since_ms.filter(|_| !led) else {
            o.hunts_since_ms = None;
            return Elections { allowed: false, begin: false };
        };
        // Who was just started does not wait for timeouts: the first rank stands at once.
        let hold = if self.applied > 0 || o.ballot.term > 0 { LEASE_MS + 50 } else { 0 };
        let turn = u64::from(self.rank) * STAGGER_MS;
        let ready = now_ms >= since + turn && up_ms >= hold + turn;
        // Who is to leave lets those that stay lead, unless they cannot.
        let map = &self.state.monmap.mons;
        let leaves = !map.is_empty() && !map.contains_key(&self.config.name);
        let hunts = ready && o.standing == Standing::Electing;
        let begin = hunts && !leaves && o.began_ms.is_none();
        if begin {
            o.began_ms = Some(now_ms);
        }
        o.hunts_since_ms = hunts.then(|| o.hunts_since_ms.unwrap_or(now_ms));
        let vain = o.hunts_since_ms.is_some_and(|since| now_ms >= since + VAIN_MS);
        let turn = if vain { !sits_out(me, now_ms) } else { !leaves };
        Elections { allowed: ready && turn, begin }
    }

    /// As the leader: what to do next where those who count are not those of the map. At
    /// most one monitor more or less than now, and only by a map that is committed: a change
    /// of who counts can overtake one of the map, and outlive it.
    #[must_use]
    pub fn membership_step(&self) -> Option<MembershipStep> {
        let o = &self.others;
        if !o.leads() || o.members.is_empty() || !self.is_monmap_settled() {
            return None;
        }
        let change = self.wanted_members().map(MembershipStep::Change);
        change.or_else(|| self.successor().map(MembershipStep::Yield))
    }

    fn wanted_members(&self) -> Option<BTreeMap<u64, String>> {
        let o = &self.others;
        let named = |id: &u64, name: &String| match name.as_str() {
            "" if *id == self.config.node => self.config.name.clone(),
            name => name.to_owned(),
        };
        let members: BTreeMap<u64, String> =
            o.members.iter().map(|(id, name)| (*id, named(id, name))).collect();
        let map = &self.state.monmap;
        let mut wanted = members.clone();
        let new = o.names.iter().find(|(id, name)| {
            o.is_connected(**id)
                && map.mons.contains_key(*name)
                && !members.contains_key(id)
                && !members.values().any(|n| n == *name)
        });
        if let Some((id, name)) = new {
            wanted.insert(*id, name.clone());
            return Some(wanted);
        }
        // Those out of reach first, for the others need no word from them.
        let left = members.iter().filter(|(_, n)| !map.mons.contains_key(*n)).map(|(id, _)| *id);
        let left = left.filter(|id| *id != self.config.node);
        let id = left.min_by_key(|id| o.is_connected(*id))?;
        wanted.remove(&id);
        Some(wanted)
    }

    fn successor(&self) -> Option<u64> {
        let (o, map) = (&self.others, &self.state.monmap.mons);
        if map.is_empty() || map.contains_key(&self.config.name) {
            return None;
        }
        let may = |id: &&u64| {
            o.is_connected(**id) && o.names.get(*id).is_some_and(|n| map.contains_key(n))
        };
        let last_said = |id: &u64| o.peers.get(id).map(|p| p.admitted_ms);
        o.members.keys().filter(may).copied().max_by_key(last_said)
    }

    /// Whether the monitor map no longer has this monitor, and the others go on without it: by what
    /// it knows itself, or because they say so. Who stops counting may not hear of it, for the log
    /// is not sent to it any more.
    #[must_use]
    pub fn is_removed(&self) -> bool {
        let o = &self.others;
        let gone = !self.state.monmap.mons.contains_key(&self.config.name)
            && !o.members.contains_key(&self.config.node);
        (o.was_member && gone) || o.told_removed
    }

    /// Another has a monitor map without this monitor. A map that adds it again is newer, and
    /// comes soon; who was never there is yet to be added.
    fn on_told_removed(&mut self, epoch: Epoch) {
        let (map, o) = (&self.state.monmap, &mut self.others);
        let known = o.was_member || o.was_named;
        if !known || (map.epoch >= epoch && map.mons.contains_key(&self.config.name)) {
            o.told_removed_ms = None;
            return;
        }
        let now_ms = self.now.mono_ms();
        let since = *o.told_removed_ms.get_or_insert(now_ms);
        o.told_removed |= now_ms >= since + REMOVED_MS;
    }

    /// Whether the cluster goes on without this one, as this monitor knows from a leader: it is no
    /// monitor in the map, or was followed by another of its name.
    fn is_stranger(&self, node: u64) -> bool {
        let o = &self.others;
        let awaited = |name: &String| {
            self.state.monmap.mons.contains_key(name) && !o.members.values().any(|n| n == name)
        };
        self.is_monmap_settled()
            && o.is_in_touch(self.config.node, self.now.mono_ms())
            && !o.members.is_empty()
            && !o.members.contains_key(&node)
            && o.names.get(&node).is_some_and(|name| !awaited(name))
    }

    // ----- what the log says -----

    pub(super) fn on_members(&mut self, voters: BTreeMap<u64, String>) {
        self.others.was_member |= voters.contains_key(&self.config.node);
        self.others.names.extend(voters.iter().map(|(id, n)| (*id, n.clone())));
        let me = (self.config.node, &self.config.name);
        let name = |(id, n): (&u64, &String)| if *id == me.0 { me.1.clone() } else { n.clone() };
        self.volatile.quorum.voters = voters.iter().map(name).collect();
        self.others.members = voters;
    }

    pub(super) fn on_standing(
        &mut self,
        ballot: Ballot,
        leader: Option<u64>,
    ) -> Result<(), MonError> {
        if ballot < self.others.ballot || (self.others.leads() && ballot <= self.others.led) {
            return Ok(());
        }
        let newer = ballot > self.others.ballot;
        self.others.ballot = ballot;
        if self.others.leads() {
            self.step_down();
        }
        let standing = match leader {
            Some(node) if node != self.config.node => Standing::Following(node),
            _ => Standing::Electing, // this monitor itself leads once `Began` tells so
        };
        let other = standing != self.others.standing;
        if other {
            self.others.standing = standing;
            self.others.heard_ms = self.now.mono_ms();
        }
        // The same leader in a later reign has forgotten what it was asked in the one before.
        if other || newer {
            self.forget_news();
            if let Standing::Following(_) = standing {
                self.held.clear();
            }
            self.leader_changed();
        }
        self.others.status_at_ms = 0;
        Ok(())
    }

    /// The first entry of a reign is known. What its leader was asked before may have come to it
    /// while it did not know of that reign itself, and gone with the one before.
    pub(super) fn reign_began(&mut self, ballot: Ballot) {
        if self.others.standing == Standing::Following(ballot.node) {
            self.leader_changed();
        }
    }

    /// Whether the first entry after `ballot` makes this monitor lead.
    pub(super) fn begins(&self, ballot: Ballot) -> bool {
        ballot >= self.others.ballot && ballot > self.others.led && !self.rewind
    }

    /// Whether `ballot` came after the last one that this monitor won.
    pub(super) fn is_later(&self, ballot: Ballot) -> bool {
        ballot > self.others.led
    }

    /// Enters leadership; what the log holds was applied.
    pub(super) fn enter_leading(&mut self, ballot: Ballot) {
        let now_ms = self.now.mono_ms();
        let o = &mut self.others;
        o.standing = Standing::Leading;
        (o.ballot, o.led) = (o.ballot.max(ballot), ballot);
        o.leading_since_ms = now_ms;
        o.in_touch_ms = now_ms;
        o.status_at_ms = 0;
        o.news_at_ms = 0;
    }

    /// The log holds what this monitor did not propose: whoever did leads, or has led since.
    /// That may be heard before the term is.
    pub(super) fn deposed(&mut self) {
        if self.others.leads() {
            self.step_down();
            self.others.standing = Standing::Electing;
            self.others.status_at_ms = 0;
            self.leader_changed();
        }
    }

    /// Another monitor may lead: what was not committed is not ours to keep.
    fn step_down(&mut self) {
        tracing::info!("mon.{} no longer leads", self.config.name);
        self.rewind |=
            self.in_flight.is_some() || !self.open.mutations.is_empty() || self.open.osd.is_some();
        self.in_flight = None;
        self.open = super::Open::default();
        for (_, wish) in std::mem::take(&mut self.gated) {
            if let super::Wish::Do(super::Output::Send { conn, env }) = wish {
                self.take_back(conn, &env);
            }
        }
        self.unsay();
        self.waiting.clear();
        self.ids_asked = None;
        self.serving = None;
        self.done = self.seq;
        self.seq += 1;
        self.forget_all_proxies();
    }

    /// Which entry the state has to be made anew up to, from the log: it holds what was not
    /// committed. Answer by [`Monitor::on_rewound`] before anything else.
    #[must_use]
    pub fn rewind_to(&self) -> Option<u64> {
        self.rewind.then_some(self.applied)
    }

    /// The state as the log has it: `state` and then `entries`, up to `index`.
    ///
    /// # Errors
    /// [`MonError`] when it cannot be read.
    pub fn on_rewound(
        &mut self,
        now: Now,
        index: u64,
        state: &bytes::Bytes,
        entries: &[bytes::Bytes],
    ) -> Result<(), MonError> {
        self.now = now;
        self.rewind = false;
        self.replace_state(index, state, entries)?;
        if let Some(ballot) = self.lead_then.take().filter(|ballot| self.begins(*ballot)) {
            self.lead(now, ballot);
        }
        Ok(())
    }

    // ----- what the others say -----

    /// A monitor said something; it is one of this cluster.
    pub fn on_peer_says(&mut self, now: Now, node: u64, says: PeerSays) {
        self.now = now;
        match says {
            PeerSays::Hello { .. } => {}
            PeerSays::Status { leader, .. } => {
                self.others.peers.entry(node).or_default().leader = leader;
            }
            PeerSays::Quorum(news) => self.on_news(node, news),
            PeerSays::Wish(mutations) => {
                if self.others.leads() {
                    for mutation in mutations {
                        self.propose_wish(mutation);
                    }
                }
            }
            PeerSays::IdsAsk => {
                if self.others.leads() {
                    let (from, below) = self.take_ids();
                    self.propose(Mutation::GlobalIds { below });
                    self.emit(Wish::Says { node, says: PeerSays::Ids { from, below } });
                }
            }
            PeerSays::Ids { from, below } => self.auth.add_global_ids(from..below),
            PeerSays::Stats { front } => self.on_peer_stats(&front),
            PeerSays::Removed { epoch } => self.on_told_removed(epoch),
            PeerSays::StatsAsk => {
                for front in self.stats_for_peers() {
                    self.out.push(Wish::Says { node, says: PeerSays::Stats { front } });
                }
            }
            other => self.on_forwarding(node, other),
        }
    }

    fn propose_wish(&mut self, mutation: Mutation) {
        match mutation {
            // Lines make nobody wait.
            Mutation::Log(_) => self.take_in(mutation),
            other => self.propose(other),
        }
    }

    /// A leader's news of the election before are none: reads wait until it has told who agrees
    /// now. It may have told before this monitor heard of its election.
    fn forget_news(&mut self) {
        self.volatile.quorum.leader.clear();
        let (ballot, standing) = (self.others.ballot, self.others.standing);
        if let Some((from, news)) = self.others.early_news.take()
            && standing == Standing::Following(from)
            && news.election_epoch >= election_epoch(ballot)
        {
            self.on_news(from, news);
        }
    }

    fn on_news(&mut self, from: u64, news: QuorumNews) {
        if self.others.standing != Standing::Following(from) {
            self.others.early_news = Some((from, news));
            return;
        }
        let ranks = news.names.iter().filter_map(|n| self.state.monmap.rank_of(n));
        let mut ranks: Vec<u32> = ranks.map(|r| r as u32).collect();
        ranks.sort_unstable();
        let q = &mut self.volatile.quorum;
        q.election_epoch = news.election_epoch;
        q.leader = news.leader;
        q.quorum = ranks;
        q.since_mono_ms = self.now.mono_ms().saturating_sub(news.age_ms);
        self.health_stale = true;
        self.ask_reads();
    }

    // ----- periodic -----

    /// A change that this monitor wants and does not lead to make itself.
    pub(super) fn wish(&mut self, mutation: Mutation) {
        if self.others.wishes.len() < 1000 {
            self.others.wishes.push(mutation);
        }
    }

    pub(super) fn others_tick(&mut self) {
        let now_ms = self.now.mono_ms();
        let me = self.config.node;
        // The first map is of its own making.
        let map = &self.state.monmap;
        let named = map.epoch > Epoch(1) && map.mons.contains_key(&self.config.name);
        self.others.was_named |= named;
        if now_ms >= self.others.status_at_ms {
            self.others.status_at_ms = now_ms + STATUS_MS;
            let leader = match self.others.standing {
                Standing::Leading => Some(me),
                Standing::Following(node) if self.others.is_in_touch(me, now_ms) => Some(node),
                _ => None,
            };
            let term = self.others.ballot.term;
            for node in self.others.connected().collect::<Vec<_>>() {
                self.out.push(Wish::Says { node, says: PeerSays::Status { term, leader } });
                if self.is_stranger(node) {
                    let epoch = self.state.monmap.epoch;
                    self.out.push(Wish::Says { node, says: PeerSays::Removed { epoch } });
                }
            }
        }
        self.late_tick(now_ms);
        self.touch_tick(now_ms);
        match self.others.standing {
            Standing::Leading => self.quorum_tick(now_ms),
            Standing::Following(leader) if self.others.is_connected(leader) => {
                self.follower_tick(now_ms, leader);
            }
            _ => {}
        }
        self.pump();
    }

    /// Forgives the others a silence that was this monitor's own. What a leader may answer
    /// depends on [`Others::is_fresh`], which forgives nothing.
    fn late_tick(&mut self, now_ms: u64) {
        let o = &mut self.others;
        let paused_ms = o.ticked_ms.replace(now_ms).map_or(0, |at| now_ms.saturating_sub(at));
        if paused_ms < LATE_MS {
            return;
        }
        tracing::info!("this monitor stood still for {paused_ms} ms");
        o.in_touch_ms = (o.in_touch_ms + paused_ms).min(now_ms);
        o.leading_since_ms = o.leading_since_ms.max(now_ms);
    }

    fn touch_tick(&mut self, now_ms: u64) {
        if self.others.is_in_touch(self.config.node, now_ms) {
            self.others.in_touch_ms = now_ms;
            self.auth.set_open(true);
            return;
        }
        if now_ms < self.others.in_touch_ms + ALONE_MS {
            return;
        }
        self.auth.set_open(false);
        self.volatile.quorum.quorum.clear();
        self.volatile.quorum.leader.clear();
        let conns: Vec<ConnId> =
            self.sessions.keys().copied().filter(|c| !super::forward::is_proxy(*c)).collect();
        if !conns.is_empty() {
            tracing::info!("no quorum: {} clients are sent away", conns.len());
        }
        for conn in conns {
            self.forget_session(conn);
            self.out.push(Wish::Do(super::Output::Close { conn }));
        }
    }

    fn follower_tick(&mut self, now_ms: u64, leader: u64) {
        if self.auth.global_ids_left() < super::auth::GLOBAL_IDS_LOW
            && now_ms >= self.others.ids_at_ms
        {
            self.others.ids_at_ms = now_ms + IDS_MS;
            self.out.push(Wish::Says { node: leader, says: PeerSays::IdsAsk });
        }
        let lacks = self.volatile.pgmap.osds.is_empty()
            && self.state.osdmap.osd_counts().1 > 0
            && now_ms >= self.others.stats_at_ms;
        if lacks {
            self.others.stats_at_ms = now_ms + STATS_MS;
            self.out.push(Wish::Says { node: leader, says: PeerSays::StatsAsk });
        }
        let name = &self.config.name;
        let known = self.state.mon_metadata.get(name) == Some(&self.config.metadata);
        if !known && !self.others.wish_sent && self.state.monmap.mons.contains_key(name) {
            self.others.wish_sent = true;
            let metadata = self.config.metadata.clone();
            let name = name.clone();
            self.others.wishes.push(Mutation::MonMetadata { name, metadata });
        }
        if !self.others.wishes.is_empty() {
            let wishes = std::mem::take(&mut self.others.wishes);
            self.out.push(Wish::Says { node: leader, says: PeerSays::Wish(wishes) });
        }
    }

    /// The leader keeps account of who follows, and tells.
    fn quorum_tick(&mut self, now_ms: u64) {
        let ranks = self.quorum_ranks();
        let name = &self.config.name;
        if ranks != self.volatile.quorum.quorum || *name != self.volatile.quorum.leader {
            self.volatile.quorum.quorum = ranks;
            // Not there after it was out of touch with the others.
            self.volatile.quorum.leader.clone_from(name);
            self.volatile.quorum.since_mono_ms = now_ms;
            self.health_stale = true;
            self.others.news_at_ms = 0;
            let line = self.quorum_line();
            self.log(LogPriority::INFO, line);
            self.volatile.vitals.asked_ms = 0; // who is new is asked at once
        }
        self.vitals_tick(now_ms);
        if now_ms < self.others.news_at_ms {
            return;
        }
        self.others.news_at_ms = now_ms + NEWS_MS;
        let q = &self.volatile.quorum;
        let name = |r: &u32| self.state.monmap.by_rank(*r as usize).map(|m| m.name.clone());
        let news = QuorumNews {
            election_epoch: q.election_epoch,
            leader: q.leader.clone(),
            names: q.quorum.iter().filter_map(name).collect(),
            age_ms: now_ms.saturating_sub(q.since_mono_ms),
        };
        for node in self.others.connected().collect::<Vec<_>>() {
            self.out.push(Wish::Says { node, says: PeerSays::Quorum(news.clone()) });
        }
    }

    /// How much room the data of this monitor has; to be told every few seconds.
    pub fn on_disk(&mut self, disk: Disk) {
        self.disk = disk;
    }

    /// The leader asks how this monitor fares, or another answers this leader.
    pub fn on_vitals(&mut self, now: Now, node: u64, vitals: Vitals) {
        self.now = now;
        match vitals {
            Vitals::Ask { stamp_ns } => {
                let answer = Vitals::Answer { stamp_ns, wall_ns: now.wall_ns, disk: self.disk };
                self.out.push(Wish::Do(super::Output::Peer { node, env: answer.envelope() }));
            }
            Vitals::Answer { stamp_ns, wall_ns, disk } => {
                let name = self.others.members.get(&node).filter(|_| self.others.leads());
                if let Some(name) = name {
                    self.volatile.vitals.take(name, now, stamp_ns, wall_ns, disk);
                    self.health_stale = true;
                }
            }
        }
    }

    /// Asks those that follow this leader about their clocks and disks, now and then.
    fn vitals_tick(&mut self, now_ms: u64) {
        let round = &mut self.volatile.vitals;
        if now_ms < round.asked_ms + vitals::EVERY_MS {
            return;
        }
        round.asked_ms = now_ms;
        let me = self.config.node;
        let followers = self.others.followers(me, now_ms);
        let names: BTreeMap<u64, String> = self
            .others
            .members
            .iter()
            .filter(|(id, _)| followers.contains(id) && **id != me)
            .map(|(id, name)| (*id, name.clone()))
            .collect();
        if !names.is_empty() {
            round.number += 1; // one that is alone asks nobody
        }
        round.awaited = names.values().cloned().collect();
        round.known.retain(|name, _| round.awaited.contains(name));
        let own = vitals::Known { disk: self.disk, ..vitals::Known::default() };
        round.known.insert(self.config.name.clone(), own);
        let ask = Vitals::Ask { stamp_ns: self.now.mono_ns }.envelope();
        for node in names.into_keys() {
            self.out.push(Wish::Do(super::Output::Peer { node, env: ask.clone() }));
        }
    }

    /// Ranks of those that follow this leader.
    pub(super) fn quorum_ranks(&self) -> Vec<u32> {
        let now_ms = self.now.mono_ms();
        let followers = self.others.followers(self.config.node, now_ms);
        let name = |id: &u64| match self.others.members.get(id) {
            _ if *id == self.config.node => Some(&self.config.name),
            other => other,
        };
        let ranks = followers.iter().filter_map(name);
        let mut ranks: Vec<u32> =
            ranks.filter_map(|n| Some(self.state.monmap.rank_of(n)? as u32)).collect();
        ranks.sort_unstable();
        ranks
    }

    /// `mon.a is new leader, mons a,b in quorum (ranks 0,1)`
    pub(super) fn quorum_line(&self) -> String {
        let quorum = &self.volatile.quorum.quorum;
        let name = |r: &u32| self.state.monmap.by_rank(*r as usize).map(|m| m.name.as_str());
        let names: Vec<&str> = quorum.iter().filter_map(name).collect();
        let ranks: Vec<String> = quorum.iter().map(u32::to_string).collect();
        format!(
            "mon.{} is new leader, mons {} in quorum (ranks {})",
            self.config.name,
            names.join(","),
            ranks.join(",")
        )
    }

    /// A new leader that was just started asks the others what they remember.
    pub(super) fn ask_stats(&mut self) {
        if self.volatile.pgmap.osds.is_empty() && self.state.osdmap.osd_counts().1 > 0 {
            for node in self.others.connected().collect::<Vec<_>>() {
                self.out.push(Wish::Says { node, says: PeerSays::StatsAsk });
            }
        }
    }

    /// Whether this leader has only just begun, in a cluster that was there before: what it
    /// does not know yet is no news.
    pub(super) fn is_young(&self) -> bool {
        self.others.members.len() > 1
            && self.others.ballot.term > 1
            && self.now.mono_ms() < self.others.leading_since_ms + YOUNG_MS
    }

    /// The leader's statistics, kept by all so that the next leader has them.
    pub(super) fn tell_stats(&mut self, front: &bytes::Bytes) {
        for node in self.others.connected().collect::<Vec<_>>() {
            let says = PeerSays::Stats { front: front.clone() };
            self.out.push(Wish::Says { node, says });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where nobody wins, each of five monitors soon has a round of its own.
    #[test]
    fn each_stands_alone_in_some_round() {
        for node in 0..5 {
            let alone = |round: &u64| {
                let now_ms = round * ROUND_MS;
                (0..5).all(|n| sits_out(n, now_ms) == (n != node))
            };
            let rounds: Vec<u64> = (0..200).filter(alone).collect();
            let longest = rounds.windows(2).map(|w| w[1] - w[0]).max();
            assert!(longest.is_some_and(|n| n < 80), "monitor {node}: {rounds:?}");
        }
    }
}
