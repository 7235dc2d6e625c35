//! Between OSDs: our own messages, version 1 each.
