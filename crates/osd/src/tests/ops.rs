//! The op table through a whole cluster.
