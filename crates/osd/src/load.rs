//! How much of clients' requests and of answers to them is in hand: so that the driver stops
//! reading from them when it is too much. Source: the peer's `osd_client_message_size_cap`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use messages::{OsdOp, op};

/// What a read is taken to bring when it does not say, or more.
const READ_MAX: u64 = 4 << 20;
/// Answers with less are not counted.
const ANSWER_MIN: usize = 32 << 10;

/// Bytes of requests that are not answered yet.
#[derive(Clone, Debug, Default)]
pub(crate) struct Load(Arc<AtomicU64>);

/// One request's part of it, until its last copy is dropped.
#[derive(Debug, Default)]
pub struct Share {
    load: Load,
    bytes: u64,
}

impl Load {
    pub fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub fn share(&self, bytes: usize) -> Arc<Share> {
        let bytes = bytes as u64;
        self.0.fetch_add(bytes, Ordering::Relaxed);
        Arc::new(Share { load: self.clone(), bytes })
    }
}

impl Share {
    /// An answer's data, which counts until it has left.
    pub fn carry(&self, data: Bytes) -> Bytes {
        if data.len() < ANSWER_MIN {
            return data;
        }
        let _share = self.load.share(data.len());
        Bytes::from_owner(Carried { data, _share })
    }
}

struct Carried {
    data: Bytes,
    _share: Arc<Share>,
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

impl Drop for Share {
    fn drop(&mut self) {
        self.load.0.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_copy_gives_back() {
        let load = Load::default();
        let (one, two) = (load.share(100), load.share(7));
        let copy = one.clone();
        drop(one);
        assert_eq!(load.bytes(), 107);
        drop((copy, two));
        assert_eq!(load.bytes(), 0);
    }

    #[test]
    fn an_answer_counts_until_it_has_left() {
        let load = Load::default();
        let data = load.share(10).carry(Bytes::from(vec![7; 100_000]));
        let part = data.slice(5..10);
        drop(data);
        assert_eq!((load.bytes(), &part[..]), (100_000, &[7; 5][..]));
        drop(part);
        assert_eq!(load.bytes(), 0);
        assert_eq!(load.share(0).carry(Bytes::from_static(b"small")), "small");
    }
}
