//! Several futures at once, on one task.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

type Boxed<T> = Pin<Box<dyn Future<Output = T>>>;

/// Runs all to their ends; what they returned, in their order.
pub async fn all<T, F: Future<Output = T>>(futures: impl IntoIterator<Item = F>) -> Vec<T> {
    let mut futures: Vec<_> = futures.into_iter().map(|f| (Box::pin(f), None)).collect();
    poll_fn(|cx| {
        for (future, out) in futures.iter_mut().filter(|(_, out)| out.is_none()) {
            if let Poll::Ready(value) = future.as_mut().poll(cx) {
                *out = Some(value);
            }
        }
        if futures.iter().all(|(_, out)| out.is_some()) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    futures.into_iter().map(|(_, out)| out.expect("all are done")).collect()
}

/// Work under way, at most as much as its owner waits for.
pub struct Flight<T> {
    futures: Vec<Boxed<T>>,
}

impl<T> Default for Flight<T> {
    fn default() -> Self {
        Self { futures: Vec::new() }
    }
}

impl<T> Flight<T> {
    /// Begins; what a future returned that was done at once.
    pub fn begin(&mut self, future: impl Future<Output = T> + 'static) -> Option<T> {
        let mut future: Boxed<T> = Box::pin(future);
        match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(value) => Some(value),
            Poll::Pending => {
                self.futures.push(future);
                None
            }
        }
    }

    /// How much is under way.
    #[must_use]
    pub fn len(&self) -> usize {
        self.futures.len()
    }

    /// Whether nothing is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.futures.is_empty()
    }

    /// Waits for the next that ends; `None` where nothing is under way.
    pub async fn next(&mut self) -> Option<T> {
        if self.futures.is_empty() {
            return None;
        }
        poll_fn(|cx| {
            for n in 0..self.futures.len() {
                if let Poll::Ready(value) = self.futures[n].as_mut().poll(cx) {
                    drop(self.futures.swap_remove(n));
                    return Poll::Ready(Some(value));
                }
            }
            Poll::Pending
        })
        .await
    }
}
