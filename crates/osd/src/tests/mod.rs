//! Several OSDs wired in memory: stores that lose what was not flushed, connections that
//! break, processes that end at any moment.

mod backfill;
mod classes;
mod cluster;
mod coded;
mod conform;
mod copies;
mod drain;
mod golden;
mod hits;
mod large;
mod logs;
mod ops;
mod parked;
mod room;
mod rules;
mod scrub;
mod snaps;
mod survive;
mod tier;
mod unite;
