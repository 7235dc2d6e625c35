//! Several OSDs wired in memory: stores that lose what was not flushed, connections that
//! break, processes that end at any moment. Fuzz targets use some of it.
#![cfg_attr(fuzzing, allow(missing_docs, dead_code, reason = "a world of tests"))]

#[cfg(test)]
mod backfill;
mod backing_off;
#[cfg(test)]
mod backoffs;
#[cfg(test)]
mod classes;
mod cluster;
#[cfg(test)]
mod coded;
#[cfg(test)]
mod conform;
#[cfg(test)]
mod copies;
#[cfg(test)]
mod drain;
#[cfg(test)]
mod golden;
#[cfg(test)]
mod hits;
#[cfg(test)]
mod large;
#[cfg(test)]
mod logs;
#[cfg(test)]
mod ops;
#[cfg(test)]
mod parked;
pub mod proved;
#[cfg(test)]
mod room;
#[cfg(test)]
mod rules;
#[cfg(test)]
mod scrub;
#[cfg(test)]
mod snaps;
#[cfg(test)]
mod survive;
#[cfg(test)]
mod tier;
#[cfg(test)]
mod unite;
