//! The commands of `ceph ...`: one function each.
