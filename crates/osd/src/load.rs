//! How much of clients' requests and of answers to them is in hand, by connection and in sum: so
//! that the driver stops reading from a connection that has more than its share.
//!
//! The share of each is a quarter of what is free, so a newcomer finds room however much the
//! others take: one connection alone gets a fifth of all, many together get all. Whoever has
//! nothing in hand may always have one request.
//!
//! Source: the sum is the peer's `osd_client_message_size_cap`; shares are ours, after Choudhury and
//! Hahne's dynamic thresholds for queues.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use messages::{OsdOp, op};

/// What a read is taken to bring when it does not say, or more.
const READ_MAX: u64 = 4 << 20;
/// Answers with less are not counted here; all are that their client does not take.
const ANSWER_MIN: usize = 32 << 10;
/// Answers that a client has not taken yet: with more of them nothing is read from it.
const UNREAD_MAX: u64 = 32 << 20;
/// What a request takes beside its bytes.
const EACH: usize = 1 << 10;
/// How often what a request brings beside an object's data is in memory besides the request: in this
/// log's record, in messages to two other copies, in the records of their logs. An object's data is
/// written from where it came. To its connection it counts so; in the sum of all it does not, since
/// others would be held for it.
const COPIED: usize = 5;
/// A connection may have this part of what is free in hand.
const SHARE_PART: u64 = 4;
/// And so many requests, whatever their size: each takes time here and on other copies, for which
/// the next client's wait. The peer's `osd_client_message_cap` is as many for all clients.
const REQUESTS_MAX: u64 = 256;

/// What all connections have in hand, and may.
#[derive(Debug)]
struct Total {
    bytes: AtomicU64,
    max: AtomicU64,
}

/// What one connection has in hand.
#[derive(Debug, Default)]
struct Own {
    bytes: AtomicU64,
    requests: AtomicU64,
}

/// Requests of one connection that are not answered yet, and their bytes. Clones share it.
#[derive(Clone, Debug)]
pub struct Load {
    total: Arc<Total>,
    own: Arc<Own>,
}

/// One request's part of it, until its last copy is dropped.
#[derive(Debug)]
pub struct Share {
    load: Load,
    bytes: u64,
    /// What its connection is charged besides.
    copied: u64,
    /// What it turned out to hold beside its own bytes: charged likewise.
    held: AtomicU64,
    /// 0 for an answer.
    requests: u64,
}

impl Load {
    /// Of an OSD, whose clients may have `max` bytes in hand.
    pub(crate) fn new(max: u64) -> Self {
        let total = Total { bytes: AtomicU64::new(0), max: AtomicU64::new(max) };
        Self { total: Arc::new(total), own: Arc::default() }
    }

    /// Of one more connection.
    pub(crate) fn another(&self) -> Self {
        Self { total: self.total.clone(), own: Arc::default() }
    }

    /// Changes what all may have.
    pub(crate) fn set_max(&self, max: u64) {
        self.total.max.store(max, Ordering::Relaxed);
    }

    /// Bytes of all connections.
    pub(crate) fn bytes(&self) -> u64 {
        self.total.bytes.load(Ordering::Relaxed)
    }

    /// Whether nothing more should be read from the connection, to whose peer `unread` bytes were
    /// sent that it has not taken. One that is `held` stays so until a quarter of its share is free.
    #[must_use]
    pub fn is_full(&self, unread: usize, held: bool) -> bool {
        let of = |n: &AtomicU64| n.load(Ordering::Relaxed);
        let share = of(&self.total.max).saturating_sub(self.bytes()) / SHARE_PART;
        let most = |max: u64| if held { max / 4 * 3 } else { max };
        of(&self.own.bytes) > most(share)
            || of(&self.own.requests) >= most(REQUESTS_MAX)
            || unread as u64 > most(UNREAD_MAX)
    }

    fn add(&self, bytes: usize, copied: usize, requests: u64) -> Share {
        let (bytes, copied) = (bytes as u64, copied as u64);
        self.total.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.own.bytes.fetch_add(bytes + copied, Ordering::Relaxed);
        self.own.requests.fetch_add(requests, Ordering::Relaxed);
        Share { load: self.clone(), bytes, copied, held: AtomicU64::new(0), requests }
    }

    /// A request of so many bytes is there, of which so many more are taken by copies.
    pub(crate) fn share(&self, bytes: usize, copied: usize) -> Arc<Share> {
        Arc::new(self.add(bytes + EACH, copied, 1))
    }
}

impl Share {
    /// Of a request that is answered: counts nothing.
    pub(crate) fn none() -> Arc<Self> {
        Arc::new(Load::new(0).add(0, 0, 0))
    }

    /// It holds so many bytes more until it is answered: a small change of an object with large
    /// attributes, which are written with it. Others' requests go on meanwhile.
    pub(crate) fn hold(&self, bytes: u64) {
        self.load.own.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.held.fetch_add(bytes, Ordering::Relaxed);
    }

    /// An answer's data, which counts until it has left.
    pub fn carry(&self, data: Bytes) -> Bytes {
        if data.len() < ANSWER_MIN {
            return data;
        }
        let _share = self.load.add(data.len(), 0, 0);
        Bytes::from_owner(Carried { data, _share })
    }
}

struct Carried {
    data: Bytes,
    _share: Share,
}

impl AsRef<[u8]> for Carried {
    fn as_ref(&self) -> &[u8] {
        &self.data
    }
}

/// Bytes that a vector will bring from the store, about.
pub fn expected(ops: &[OsdOp]) -> usize {
    let reads = ops.iter().filter(|o| matches!(o.code, op::READ | op::SYNC_READ | op::SPARSE_READ));
    let each = |o: &OsdOp| match o.len() {
        0 => READ_MAX,
        len => len.min(READ_MAX),
    };
    reads.map(each).sum::<u64>() as usize
}

/// Bytes that a vector takes here and on other copies beside those that came: of attributes, omap and
/// what classes are given, which are copied where data is not.
pub fn copied(ops: &[OsdOp]) -> usize {
    let is_data = |o: &OsdOp| {
        matches!(o.code, op::WRITE | op::WRITEFULL | op::APPEND | op::WRITESAME | op::CMPEXT)
    };
    let writes = ops.iter().filter(|o| (o.is_write() || o.code == op::CALL) && !is_data(o));
    writes.map(|o| o.data.len()).sum::<usize>() * COPIED
}

impl Drop for Share {
    fn drop(&mut self) {
        self.load.total.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
        let own = self.bytes + self.copied + self.held.load(Ordering::Relaxed);
        self.load.own.bytes.fetch_sub(own, Ordering::Relaxed);
        self.load.own.requests.fetch_sub(self.requests, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_copy_gives_back() {
        let load = Load::new(10_000);
        let (one, two) = (load.share(100, 0), load.another().share(7, 0));
        let copy = one.clone();
        drop(one);
        assert_eq!(load.bytes(), 107 + 2 * EACH as u64);
        drop((copy, two));
        assert_eq!(load.bytes(), 0);
    }

    #[test]
    fn an_answer_counts_until_it_has_left() {
        let load = Load::new(10_000);
        let data = load.share(10, 0).carry(Bytes::from(vec![7; 100_000]));
        let part = data.slice(5..10);
        drop(data);
        assert_eq!((load.bytes(), &part[..]), (100_000, &[7; 5][..]));
        drop(part);
        assert_eq!(load.bytes(), 0);
        assert_eq!(load.share(0, 0).carry(Bytes::from_static(b"small")), "small");
    }

    /// Who changes objects with large attributes has few of them in hand; others do not feel it.
    #[test]
    fn what_a_request_holds_counts_to_its_connection() {
        let load = Load::new(400 << 20);
        let other = load.another();
        let (one, two) = (load.share(100, 0), load.share(100, 0));
        one.hold(60 << 20);
        assert!(!load.is_full(0, false));
        two.hold(60 << 20);
        assert!(load.is_full(0, false) && !other.is_full(0, false));
        assert_eq!(load.bytes(), 2 * (100 + EACH as u64));
        drop(two);
        assert!(!load.is_full(0, true));
        drop(one);
        assert_eq!(load.own.bytes.load(Ordering::Relaxed), 0);
    }

    /// Of what is copied again and again less may be in hand than of data.
    #[test]
    fn copies_count() {
        let bytes = || Bytes::from(vec![0; 1000]);
        let of = |code| copied(&[OsdOp::new(code, bytes())]);
        for code in [op::WRITE, op::WRITEFULL, op::APPEND, op::READ, op::OMAPGETVALSBYKEYS] {
            assert_eq!(of(code), 0, "{code:#x}");
        }
        for code in [op::SETXATTR, op::OMAPSETVALS, op::OMAPSETHEADER, op::CALL] {
            assert_eq!(of(code), 1000 * COPIED, "{code:#x}");
        }
        // Of requests with 18 MB of omap a connection has two in hand, of data six.
        let load = Load::new(500 << 20);
        let omap = vec![OsdOp::new(op::OMAPSETVALS, vec![0; 18 << 20].into())];
        let in_hand = |copied: usize| {
            let mut held = Vec::new();
            while !load.is_full(0, false) {
                held.push(load.share(18 << 20, copied));
            }
            assert_eq!(load.bytes(), held.len() as u64 * ((18 << 20) + EACH as u64), "not to all");
            held.len()
        };
        assert_eq!((in_hand(copied(&omap)), in_hand(0)), (2, 6));
        assert_eq!(load.bytes(), 0);
    }

    /// Small requests are bounded by their number.
    #[test]
    fn requests_are_counted() {
        let load = Load::new(u64::MAX);
        let mut held: Vec<_> = (1..REQUESTS_MAX).map(|_| load.share(10, 0)).collect();
        assert!(!load.is_full(0, false));
        held.push(load.share(10, 0));
        assert!(load.is_full(0, false));
        held.truncate(REQUESTS_MAX as usize / 4 * 3);
        assert!(!load.is_full(0, false) && load.is_full(0, true));
        held.pop();
        assert!(!load.is_full(0, true));
    }

    /// However many connections take what they can get, all stay within the sum, but for one request
    /// each; and a newcomer is read.
    #[test]
    fn whoever_takes_all_he_can_leaves_room() {
        const MAX: u64 = 500 << 20;
        const ONE: usize = 1 << 20;
        for connections in [1, 3, 40, 400] {
            let first = Load::new(MAX);
            let loads: Vec<Load> = (0..connections).map(|_| first.another()).collect();
            let mut held = Vec::new();
            for round in 0.. {
                let before = held.len();
                for load in &loads {
                    if !load.is_full(0, false) {
                        held.push(load.share(ONE, 0));
                    }
                }
                if held.len() == before {
                    break;
                }
                assert!(round < 1000, "it ends");
            }
            let most = MAX + (connections * (ONE + EACH)) as u64;
            assert!(first.bytes() <= most, "{connections}: {}", first.bytes());
            if connections == 1 {
                assert!((100 << 20..103 << 20).contains(&first.bytes()), "{}", first.bytes());
            }
            let newcomer = first.another();
            assert!(!newcomer.is_full(0, false));
            assert!(newcomer.is_full(UNREAD_MAX as usize + 1, false), "it takes no answers");
            // Those that are held are read again when there is room, not at once.
            assert!(loads.iter().all(|load| load.is_full(0, true)));
            held.truncate(held.len() / 4);
            assert!(loads.iter().any(|load| !load.is_full(0, true)));
            drop(held);
            assert_eq!(first.bytes(), 0);
        }
    }
}
