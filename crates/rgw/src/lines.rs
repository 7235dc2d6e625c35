//! Connections to brokers that wait for another event.

use std::cell::RefCell;
use std::collections::BTreeMap;

use tokio::io::{AsyncRead, AsyncWrite};

/// Connections that wait, and how long they do.
const IDLE_MAX: usize = 32;
const IDLE_NS: u64 = 30_000_000_000;

/// A connection, in the clear or not.
pub trait Stream: AsyncRead + AsyncWrite + Unpin {}
impl<S: AsyncRead + AsyncWrite + Unpin> Stream for S {}

/// Connections that wait for another event, by what they are good for; with the time since when.
pub struct Lines<T>(RefCell<BTreeMap<String, Vec<(u64, T)>>>);

impl<T> Default for Lines<T> {
    fn default() -> Self {
        Self(RefCell::default())
    }
}

impl<T> Lines<T> {
    /// One that waits.
    pub fn take(&self, name: &str) -> Option<T> {
        let now = rt::now().mono_ns;
        let mut all = self.0.borrow_mut();
        all.retain(|_, lines| {
            lines.retain(|(since, _)| now.saturating_sub(*since) < IDLE_NS);
            !lines.is_empty()
        });
        all.get_mut(name)?.pop().map(|(_, line)| line)
    }

    /// Keeps one; closes it where many wait.
    pub fn keep(&self, name: String, line: T) {
        let mut all = self.0.borrow_mut();
        if all.values().map(Vec::len).sum::<usize>() < IDLE_MAX {
            all.entry(name).or_default().push((rt::now().mono_ns, line));
        }
    }
}
