//! A monitor that follows another.

mod alone;

use alone::{Alone, follow, mkfs};
use messages::*;
use mon::{peer::PeerSays, quorum};
use types::Epoch;

impl Alone {
    /// The question of how far the log must be known, of those said to the leader.
    fn asked(&mut self) -> Option<u64> {
        self.poll();
        let asked =
            std::mem::take(&mut self.said).into_iter().find_map(|(node, says)| match says {
                PeerSays::ReadAsk { id } => Some((node, id)),
                _ => None,
            });
        asked.map(|(node, id)| {
            assert_eq!(node, 0);
            id
        })
    }

    fn told(&mut self, says: PeerSays) {
        self.mon.on_peer_says(self.now, 0, says);
        self.poll();
    }

    /// Learns what another committed.
    fn learn(&mut self, from: &Self) {
        for (token, data) in &from.log[self.log.len()..] {
            self.log.push((*token, data.clone()));
            let (index, token, data) = (self.log.len() as u64, *token, data.clone());
            let event = quorum::Event::Committed { index, origin: 0, token, data };
            self.mon.on_quorum(self.now, event).unwrap();
        }
        self.poll();
    }
}

/// A client judges by its map what exists. One that connects to another monitor after something
/// was acknowledged to it must not be given a map of before.
#[test]
fn first_map_is_not_older_than_the_question() {
    let state = mkfs().to_state_bytes();
    let (mut leader, mut follower) =
        (Alone::start(state.clone(), Vec::new()), Alone::following(state));
    follower.learn(&leader);
    let admin = leader.admin();
    assert_eq!(leader.pool_op(admin, pool_op::CREATE, 0, "new", 0).r, 0);

    let client = follower.admin();
    follower.subscribe(client, &[("monmap", 0, 0), ("osdmap", 0, 0)]);
    let id = follower.asked().expect("a question to the leader");
    let kinds: Vec<u16> = follower.heard(client).iter().map(|e| e.kind).collect();
    assert_eq!(kinds, [MonMapMsg::KIND], "what does not hang on it comes at once");
    follower.told(PeerSays::ReadAt { id, index: leader.log.len() as u64 });
    assert!(follower.heard(client).is_empty(), "it does not know the log that far");
    follower.learn(&leader);
    let mut map = None;
    follow(&mut map, &follower.heard(client));
    let map = map.expect("the map");
    assert_eq!(map.epoch, leader.map().epoch);
    assert!(map.pool_by_name("new").is_some());

    // Later ones come by themselves.
    assert_eq!(leader.pool_op(admin, pool_op::CREATE, 0, "newer", 0).r, 0);
    follower.learn(&leader);
    let mut map = Some(map);
    follow(&mut map, &follower.heard(client));
    assert!(map.unwrap().pool_by_name("newer").is_some());
}

/// Monitors dial each other. Where only the leader's connection broke, its answer is lost, and the
/// follower learns of it when the leader dials again.
#[test]
fn answers_lost_with_the_leaders_connection() {
    let state = mkfs().to_state_bytes();
    let mut follower = Alone::following(state);
    let client = follower.admin();
    follower.subscribe(client, &[("osdmap", 0, 0)]);
    let lost = follower.asked().expect("a question to the leader");
    follower.mon.on_peer_dialled(follower.now, 2);
    assert_eq!(follower.asked(), None, "that one does not lead");
    follower.mon.on_peer_dialled(follower.now, 0);
    let again = follower.asked().expect("the question again");
    follower.told(PeerSays::ReadAt { id: lost, index: 0 });
    assert!(follower.heard(client).is_empty(), "an answer to what is not asked any more");
    follower.told(PeerSays::ReadAt { id: again, index: 0 });
    let mut map = None;
    follow(&mut map, &follower.heard(client));
    assert_eq!(map.expect("the map").epoch, Epoch(1));
}

/// A leader that wins again has forgotten what it was asked, and the follower may never have seen
/// that it did not lead in between. It may even have been asked before it knew of its own reign.
#[test]
fn a_leader_that_wins_again_is_asked_again() {
    let state = mkfs().to_state_bytes();
    let mut follower = Alone::following(state);
    let client = follower.admin();
    follower.subscribe(client, &[("osdmap", 0, 0)]);
    let mut asked = follower.asked().expect("a question to the leader");
    let (same, ballot) = (quorum::Ballot { term: 1, node: 0 }, quorum::Ballot { term: 3, node: 0 });
    let standing = |ballot| quorum::Event::Standing { ballot, leader: Some(0) };
    for (event, again) in [
        (standing(same), false),
        (standing(ballot), true),
        (standing(ballot), false),
        (quorum::Event::Began { index: 0, ballot }, true),
    ] {
        follower.mon.on_quorum(follower.now, event).unwrap();
        follower.news(ballot);
        let next = follower.asked();
        assert_eq!(next.is_some(), again);
        asked = next.unwrap_or(asked);
    }
    follower.told(PeerSays::ReadAt { id: asked, index: 0 });
    let mut map = None;
    follow(&mut map, &follower.heard(client));
    assert_eq!(map.expect("the map").epoch, Epoch(1));
}

/// A client that goes while the leader is asked leaves nothing behind, and one that says which maps
/// it has is not kept waiting.
#[test]
fn first_map_of_one_that_left() {
    let mut follower = Alone::following(mkfs().to_state_bytes());
    let (gone, stays) = (follower.admin(), follower.admin());
    follower.subscribe(gone, &[("osdmap", 0, 0)]);
    follower.subscribe(stays, &[("osdmap", 1, 0)]);
    let id = follower.asked().expect("a question to the leader");
    let mut map = None;
    follow(&mut map, &follower.heard(stays));
    assert_eq!(map.expect("the map").epoch, Epoch(1));
    follower.mon.on_closed(follower.now, gone);
    follower.told(PeerSays::ReadAt { id, index: 0 });
    assert!(follower.heard(gone).is_empty());
}

/// What waits for the leader's answer is counted to whoever asked: he is held, others are not, and he
/// is read again when the answers came.
#[test]
fn who_asks_too_much_is_held() {
    let mut follower = Alone::following(mkfs().to_state_bytes());
    let (greedy, modest) = (follower.admin(), follower.admin());
    let mut rids = Vec::new();
    let fsid = follower.mon.state().fsid;
    let command = |input: usize| MonCommand {
        fsid,
        cmd: vec![r#"{"prefix": "config-key set", "key": "k"}"#.into()],
        input: vec![0; input].into(),
        ..MonCommand::default()
    };
    follower.say(modest, &command(0));
    for _ in 0..8 {
        assert!(!follower.mon.is_held(greedy));
        follower.say(greedy, &command(4 << 20));
    }
    follower.poll();
    for (_, says) in std::mem::take(&mut follower.said) {
        if let PeerSays::Forward { rid, .. } = says {
            rids.push(rid);
        }
    }
    assert_eq!(rids.len(), 9);
    assert!(follower.mon.is_held(greedy) && !follower.mon.is_held(modest));
    for rid in rids.drain(..) {
        follower.told(PeerSays::Done { rid });
    }
    assert!(!follower.mon.is_held(greedy));
    // Small ones count too.
    for _ in 0..256 {
        follower.say(greedy, &command(0));
    }
    assert!(follower.mon.is_held(greedy));
}

/// Answers tell who leads and who agrees: what is asked right after an election waits until the new
/// leader has told, though it may have told before its election was heard of.
#[test]
fn reads_wait_for_the_leaders_news() {
    let leader_of = |follower: &Alone| follower.mon.volatile().quorum.leader.clone();
    for early in [false, true] {
        let mut follower = Alone::following(mkfs().to_state_bytes());
        let client = follower.admin();
        let stood = |leader, term| quorum::Event::Standing {
            ballot: quorum::Ballot { term, node: 0 },
            leader,
        };
        follower.mon.on_quorum(follower.now, stood(None, 2)).unwrap();
        assert_eq!(leader_of(&follower), "");
        follower.subscribe(client, &[("osdmap", 0, 0)]);
        let won = quorum::Ballot { term: 3, node: 0 };
        if early {
            follower.news(won);
        }
        follower.mon.on_quorum(follower.now, stood(Some(0), 3)).unwrap();
        if !early {
            assert_eq!(follower.asked(), None, "nobody told it who agrees");
            follower.news(won);
        }
        assert!(follower.asked().is_some());
        assert_eq!(leader_of(&follower), "a");
    }
}

/// A machine that stood still for seconds had monitors that heard nothing: they were silent all, and
/// nobody is to blame. Clients stay; the leader knows itself and its followers.
#[test]
fn a_pause_of_the_machine_sends_nobody_away() {
    let mut follower = Alone::following(mkfs().to_state_bytes());
    let client = follower.admin();
    follower.tick(100);
    follower.now.mono_ns += 10_000_000_000;
    follower.mon.on_tick(follower.now);
    follower.poll();
    assert!(!follower.closed.contains(&client));
    for _ in 0..30 {
        follower.tick(100);
    }
    follower.poll();
    assert!(follower.closed.contains(&client), "now it is its leader that is silent");
}
