//! Delivering what waits in queues of persistent topics.
//!
//! ```text
//!   queues listed (30 s) ── each held, if no other gateway holds it ── its front read ── lanes by key ──
//!   each lane in order, until one entry is not taken ── what is done at the front is removed
//! ```
//!
//! An entry behind one that waits is remembered as done, so that it is not sent again by this gateway; the next holder
//! sends it again. Source: `rgw_notify.cc`.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use rgw_core::formats::{QueuedEvent, Topic};
use rgw_core::notify::QueuePage;
use rgw_core::together;
use rgw_proto::sns::UNSET;
use tokio::sync::watch;

use crate::server::Server;

/// Between two looks at the list of queues: a third of what a queue is held for.
const LOOK: Duration = Duration::from_secs(30);
/// Between two ends of reservations that were left behind.
const CLEAN_S: u64 = 30;
/// Entries of a queue that are looked at together.
const PAGE: u64 = 64;
/// Entries of a queue that are under way at once.
const LANES: u64 = 16;
/// Queues that one gateway delivers from.
const QUEUES_MAX: usize = 512;
/// Between two looks at a queue that had nothing, at first and at last.
const IDLE_MS: (u64, u64) = (100, 1_000);
/// Between two tries, at first and at last, where the topic does not say.
const RETRY_MS: (u64, u64) = (100, 2_000);

/// What holds for topics that do not say: seconds and counts, 0 for no bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Patience {
    /// `rgw_topic_persistency_time_to_live`.
    pub keep_s: u32,
    /// `rgw_topic_persistency_max_retries`.
    pub retries: u32,
    /// `rgw_topic_persistency_sleep_duration`.
    pub sleep_s: u32,
}

impl Patience {
    fn of(self, topic: Option<&Topic>, event: &QueuedEvent) -> Self {
        let (keep_s, retries, sleep_s) = match topic {
            Some(topic) => (topic.to.keep_s, topic.to.retries, topic.to.sleep_s),
            None => (event.keep_s, event.retries, event.sleep_s),
        };
        let or = |set: u32, default: u32| if set == UNSET { default } else { set };
        Self {
            keep_s: or(keep_s, self.keep_s),
            retries: or(retries, self.retries),
            sleep_s: or(sleep_s, self.sleep_s),
        }
    }
}

/// Tries of an entry.
#[derive(Clone, Copy, Debug, Default)]
struct Tried {
    count: u32,
    /// When the next may be, ns.
    next: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Judged {
    GiveUp,
    Wait,
    Try,
}

/// What becomes of an entry that has waited since `since_s`, at `now_s`.
fn judge(patience: Patience, tried: Tried, since_s: u64, now_s: u64, now: u64) -> Judged {
    let is_old =
        patience.keep_s != 0 && since_s != 0 && now_s > since_s + u64::from(patience.keep_s);
    if is_old || (patience.retries != 0 && tried.count > patience.retries) {
        return Judged::GiveUp;
    }
    if now < tried.next { Judged::Wait } else { Judged::Try }
}

/// How long is waited behind a try that failed, ns.
fn pause(patience: Patience, count: u32) -> u64 {
    let grown = (RETRY_MS.0 << count.saturating_sub(1).min(10)).min(RETRY_MS.1);
    (u64::from(patience.sleep_s) * 1_000).max(grown) * 1_000_000
}

/// What is known of entries of one queue's front.
#[derive(Default)]
struct Front {
    done: BTreeSet<Bytes>,
    tried: BTreeMap<Bytes, Tried>,
}

impl Front {
    /// How many entries of the front are done.
    fn ended(&self, page: &QueuePage) -> usize {
        page.entries.iter().take_while(|(marker, _)| self.done.contains(marker)).count()
    }

    /// Forgets all but what is on the page, from its `from`th entry on.
    fn keep(&mut self, page: &QueuePage, from: usize) {
        let kept: BTreeSet<&Bytes> =
            page.entries[from..].iter().map(|(marker, _)| marker).collect();
        self.done.retain(|marker| kept.contains(marker));
        self.tried.retain(|marker, _| kept.contains(marker));
    }
}

/// Begins to deliver.
pub fn start(server: &Rc<Server>, stop: &watch::Receiver<bool>) {
    let (server, stop) = (server.clone(), stop.clone());
    tokio::task::spawn_local(async move { manage(server, stop).await });
}

async fn manage(server: Rc<Server>, mut stop: watch::Receiver<bool>) {
    let cookie: Rc<str> = server.gateway.new_cookie().into();
    let held: Rc<RefCell<BTreeSet<String>>> = Rc::default();
    loop {
        let queues = server.gateway.queues().await;
        let queues = queues.unwrap_or_else(|error| {
            tracing::warn!("events wait until queues can be listed: {error}");
            Vec::new()
        });
        for queue in queues {
            if *stop.borrow() {
                return;
            }
            let is_mine = held.borrow().contains(&queue);
            if !is_mine && held.borrow().len() >= QUEUES_MAX {
                continue;
            }
            match server.gateway.hold_queue(&queue, &cookie).await {
                Ok(true) if !is_mine => {
                    held.borrow_mut().insert(queue.clone());
                    let (server, stop, held) = (server.clone(), stop.clone(), held.clone());
                    let cookie = cookie.clone();
                    tokio::task::spawn_local(async move {
                        deliver(&server, &queue, &cookie, stop).await;
                        server.gateway.release_queue(&queue, &cookie).await;
                        held.borrow_mut().remove(&queue);
                    });
                }
                Ok(_) => {}
                Err(error) => tracing::warn!("the queue {queue} is not held: {error}"),
            }
        }
        tokio::select! {
            () = tokio::time::sleep(LOOK) => {}
            () = server.wakes.made.notified() => {}
            _ = stop.wait_for(|stop| *stop) => return,
        }
    }
}

/// Waits for an entry, at most so long; `false` once the gateway stops.
async fn waits(server: &Server, ms: u64, stop: &mut watch::Receiver<bool>, wakes: bool) -> bool {
    tokio::select! {
        () = tokio::time::sleep(Duration::from_millis(ms)) => true,
        () = server.wakes.queued.notified(), if wakes => true,
        _ = stop.wait_for(|stop| *stop) => false,
    }
}

/// Delivers from a queue until it is held no more, or the gateway stops.
async fn deliver(server: &Server, queue: &str, cookie: &str, mut stop: watch::Receiver<bool>) {
    let (mut front, mut idle, mut clean) = (Front::default(), IDLE_MS.0, 0);
    while !*stop.borrow() {
        let now_s = rt::now().mono_ns / 1_000_000_000;
        if now_s >= clean {
            clean = now_s + CLEAN_S;
            match server.gateway.expire_reservations(queue, cookie).await {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => tracing::warn!("{queue}: {error}"),
            }
        }
        let page = match server.gateway.queue_page(queue, cookie, PAGE).await {
            Ok(Some(page)) => page,
            Ok(None) => return,
            Err(error) => {
                tracing::warn!("{queue}: its events wait: {error}");
                if !waits(server, IDLE_MS.1, &mut stop, false).await {
                    return;
                }
                continue;
            }
        };
        front.keep(&page, 0);
        if page.entries.is_empty() {
            if !waits(server, idle, &mut stop, true).await {
                return;
            }
            idle = (idle * 2).min(IDLE_MS.1);
            continue;
        }
        idle = IDLE_MS.0;
        send_page(server, queue, &page, &mut front).await;
        let ended = front.ended(&page);
        if ended > 0 {
            let end = page.entries.get(ended).map_or(&page.end, |(marker, _)| marker);
            let count = u32::try_from(ended).expect("a page is short");
            match server.gateway.remove_entries(queue, cookie, end, count).await {
                Ok(true) => front.keep(&page, ended),
                Ok(false) => return,
                // They are remembered as done.
                Err(error) => tracing::warn!("{queue}: {error}"),
            }
        } else if !waits(server, RETRY_MS.0, &mut stop, false).await {
            return;
        }
    }
}

/// Sends what of a page is due: keys side by side, the events of a key in their order.
async fn send_page(server: &Server, queue: &str, page: &QueuePage, front: &mut Front) {
    let topic = match queue.rsplit_once(':') {
        Some((realm, name)) => server.gateway.topic(realm, name).await.ok().flatten(),
        None => None,
    };
    let mut lanes: BTreeMap<u64, Vec<(&Bytes, &QueuedEvent)>> = BTreeMap::new();
    for (marker, event) in &page.entries {
        if front.done.contains(marker) {
            continue;
        }
        let Some(event) = event else {
            tracing::warn!("{queue}: the entry {marker:?} is no event, and is removed");
            front.done.insert(marker.clone());
            continue;
        };
        let key = event.record.0.object.key.as_bytes();
        let lane = u64::from(rgw_core::names::linux_hash(key)) % LANES;
        lanes.entry(lane).or_default().push((marker, event));
    }
    let known = RefCell::new(front);
    let (known, topic) = (&known, topic.as_ref());
    let lanes = lanes.into_values().map(|lane| async move {
        for (marker, event) in lane {
            let tried = known.borrow().tried.get(marker).copied().unwrap_or_default();
            match send_one(server, queue, topic, event, tried).await {
                None => _ = known.borrow_mut().done.insert(marker.clone()),
                Some(tried) => {
                    known.borrow_mut().tried.insert(marker.clone(), tried);
                    break;
                }
            }
        }
    });
    together::all(lanes).await;
}

/// Sends an event where that is due. Returns `None` once it is done with, else how often it was tried.
async fn send_one(
    server: &Server,
    queue: &str,
    topic: Option<&Topic>,
    event: &QueuedEvent,
    tried: Tried,
) -> Option<Tried> {
    let patience = server.settings.topics.patience.of(topic, event);
    let (wall, mono) = (rt::now().wall_ns / 1_000_000_000, rt::now().mono_ns);
    let key = &event.record.0.object.key;
    match judge(patience, tried, u64::from(event.since.sec), wall, mono) {
        Judged::Wait => return Some(tried),
        Judged::GiveUp => {
            tracing::warn!("{queue}: an event of {key} is given up after {} tries", tried.count);
            return None;
        }
        Judged::Try => {}
    }
    // As the topic is today.
    let mut record = event.record.0.clone();
    let (url, args) = match topic {
        Some(topic) => {
            record.opaque.clone_from(&topic.opaque);
            (&topic.to.endpoint, &topic.to.args)
        }
        None => (&event.endpoint, &event.args),
    };
    if url.is_empty() {
        return None;
    }
    match server.pusher.send(url, args, &event.topic, &record).await {
        Ok(()) => None,
        Err(why) => {
            let count = tried.count.saturating_add(1);
            if count == 1 {
                tracing::info!("{queue}: an event of {key} is tried again: {why}");
            }
            Some(Tried { count, next: rt::now().mono_ns + pause(patience, count) })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_long_an_event_is_tried() {
        let none = Patience::default();
        let tried = |count, next| Tried { count, next };
        for (patience, tried, now_s, now, want) in [
            (none, tried(0, 0), 9_999_999, 0, Judged::Try),
            (none, tried(99_999, 5), 9_999_999, 4, Judged::Wait),
            (Patience { keep_s: 10, ..none }, tried(0, 0), 1_010, 0, Judged::Try),
            (Patience { keep_s: 10, ..none }, tried(0, 0), 1_011, 0, Judged::GiveUp),
            (Patience { retries: 3, ..none }, tried(3, 0), 0, 0, Judged::Try),
            (Patience { retries: 3, ..none }, tried(4, 0), 0, 0, Judged::GiveUp),
        ] {
            assert_eq!(judge(patience, tried, 1_000, now_s, now), want, "{patience:?} {tried:?}");
        }
        assert_eq!(pause(none, 1), 100_000_000);
        assert_eq!(pause(none, 60), 2_000_000_000);
        assert_eq!(pause(Patience { sleep_s: 30, ..none }, 1), 30_000_000_000);
    }

    /// Only what is done without a gap is removed; what is done behind one is not sent again.
    #[test]
    fn the_front_is_removed() {
        let marker = |n: u8| Bytes::copy_from_slice(&[b'0' + n]);
        let page = |ns: &[u8]| QueuePage {
            entries: ns.iter().map(|n| (marker(*n), None)).collect(),
            end: marker(9),
        };
        let done = [0, 1, 3].map(marker).into();
        let mut front = Front { done, ..Front::default() };
        front.tried.insert(marker(2), Tried { count: 1, next: 0 });
        let all = page(&[0, 1, 2, 3]);
        assert_eq!(front.ended(&all), 2);
        front.keep(&all, 2);
        assert_eq!(front.done, [marker(3)].into());
        assert_eq!(front.tried.len(), 1);
        let rest = page(&[2, 3]);
        assert_eq!(front.ended(&rest), 0);
        front.done.insert(marker(2));
        assert_eq!(front.ended(&rest), 2);
    }
}
