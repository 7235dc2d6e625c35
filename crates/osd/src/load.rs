//! How much of clients' requests is in hand: so that the driver stops reading from them
//! when it is too much. Source: the peer's `osd_client_message_size_cap`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

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
}
