//! Recorded traffic.
