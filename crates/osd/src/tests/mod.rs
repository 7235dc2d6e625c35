//! Several OSDs wired in memory: stores that lose what was not flushed, connections that
//! break, processes that end at any moment.

mod cluster;
mod conform;
mod golden;
mod mem;
mod ops;
mod rules;
mod survive;
