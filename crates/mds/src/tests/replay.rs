//! Requests that are replayed.
