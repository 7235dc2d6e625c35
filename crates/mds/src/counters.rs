//! What a metadata server counts, under upstream's names.
//!
//! Source: the peer's `mds/MDSRank.cc`, `mds/Server.cc`, `mds/MDCache.cc`, `mds/SessionMap.cc`.

use messages::fs::mds_op;
use metrics::{Amount, Family, Group, Shape, Unit};

use crate::rank::Rank;

metrics::group! {
    /// Requests, caps, directories.
    pub struct Served "mds" {
        request Count 10 "req" "Requests of clients"
        reply Count 0 "" "Answers to them"
        reply_latency Time 10 "rlat" "Time of requests, from arrival to answer"
        dir_fetch_complete Count 5 "" "Directory fragments read whole"
        dir_commit Count 5 "" "Directory fragments written"
        dir_split Count 5 "" "Directory fragments split"
        dir_merge Count 5 "" "Directory fragments merged"
        inodes Level 10 "inos" "Inodes in memory"
        inodes_with_caps Level 5 "" "Of these, those that a client has caps of"
        caps Level 8 "caps" "Caps that clients hold"
        subtrees Level 5 "" "Subtrees"
        root_rfiles Level 5 "" "Files of the file system"
        root_rbytes Level 5 "" "Bytes of the file system"
        root_rsnaps Level 5 "" "Snapshots of the file system"
        handle_client_caps Count 8 "hcc" "Messages of clients about caps"
        handle_client_caps_dirty Count 8 "hccd" "Of these, those that bring changes"
        handle_client_cap_release Count 8 "hccr" "Messages of clients that give caps back"
        process_request_cap_release Count 8 "prcr" "Caps given back with a request"
        scrub_backtrace_fetch Level 0 "" "Backtraces that scrubs read"
        scrub_set_tag Level 0 "" "Inodes that an operator's tag was left at"
        scrub_backtrace_repaired Level 0 "" "Backtraces that scrubs had written anew"
        scrub_inotable_repaired Level 0 "" "Inodes in use that were free in the table"
        scrub_dir_inodes Level 0 "" "Directories that scrubs looked at"
        scrub_dir_base_inodes Level 0 "" "Of these, the root and a rank's own directory"
        scrub_dirfrag_rstats Level 0 "" "Directories whose sums scrubs compared"
        scrub_file_inodes Level 0 "" "Inodes that are no directories that scrubs looked at"
    }
}

metrics::group! {
    /// Requests by what they ask.
    pub struct Server "mds_server" {
        handle_client_request Count 8 "hcr" "Requests of clients"
        handle_client_session Count 8 "hcs" "Messages of clients about their session"
        req_create_latency Time 5 "" "Time of create"
        req_getattr_latency Time 5 "" "Time of getattr"
        req_getfilelock_latency Time 5 "" "Time of getfilelock"
        req_getvxattr_latency Time 5 "" "Time of getvxattr"
        req_link_latency Time 5 "" "Time of link"
        req_lookup_latency Time 5 "" "Time of lookup"
        req_lookuphash_latency Time 5 "" "Time of lookuphash"
        req_lookupino_latency Time 5 "" "Time of lookupino"
        req_lookupname_latency Time 5 "" "Time of lookupname"
        req_lookupparent_latency Time 5 "" "Time of lookupparent"
        req_lookupsnap_latency Time 5 "" "Time of lookupsnap"
        req_lssnap_latency Time 5 "" "Time of lssnap"
        req_mkdir_latency Time 5 "" "Time of mkdir"
        req_mknod_latency Time 5 "" "Time of mknod"
        req_mksnap_latency Time 5 "" "Time of mksnap"
        req_open_latency Time 5 "" "Time of open"
        req_readdir_latency Time 5 "" "Time of readdir"
        req_rename_latency Time 5 "" "Time of rename"
        req_renamesnap_latency Time 5 "" "Time of renamesnap"
        req_rmdir_latency Time 5 "" "Time of rmdir"
        req_rmsnap_latency Time 5 "" "Time of rmsnap"
        req_rmxattr_latency Time 5 "" "Time of rmxattr"
        req_setattr_latency Time 5 "" "Time of setattr"
        req_setdirlayout_latency Time 5 "" "Time of setdirlayout"
        req_setfilelock_latency Time 5 "" "Time of setfilelock"
        req_setlayout_latency Time 5 "" "Time of setlayout"
        req_setxattr_latency Time 5 "" "Time of setxattr"
        req_snapdiff_latency Time 5 "" "Time of snapdiff"
        req_symlink_latency Time 5 "" "Time of symlink"
        req_unlink_latency Time 5 "" "Time of unlink"
    }
}

impl Server {
    /// Counts a request that took `ns`.
    fn add(&mut self, op: u32, ns: u64) {
        let time = match op {
            mds_op::CREATE => &mut self.req_create_latency,
            mds_op::GETATTR => &mut self.req_getattr_latency,
            mds_op::GETFILELOCK => &mut self.req_getfilelock_latency,
            mds_op::GETVXATTR => &mut self.req_getvxattr_latency,
            mds_op::LINK => &mut self.req_link_latency,
            mds_op::LOOKUP => &mut self.req_lookup_latency,
            mds_op::LOOKUPHASH => &mut self.req_lookuphash_latency,
            mds_op::LOOKUPINO => &mut self.req_lookupino_latency,
            mds_op::LOOKUPNAME => &mut self.req_lookupname_latency,
            mds_op::LOOKUPPARENT => &mut self.req_lookupparent_latency,
            mds_op::LOOKUPSNAP => &mut self.req_lookupsnap_latency,
            mds_op::LSSNAP => &mut self.req_lssnap_latency,
            mds_op::MKDIR => &mut self.req_mkdir_latency,
            mds_op::MKNOD => &mut self.req_mknod_latency,
            mds_op::MKSNAP => &mut self.req_mksnap_latency,
            mds_op::OPEN => &mut self.req_open_latency,
            mds_op::READDIR => &mut self.req_readdir_latency,
            mds_op::RENAME => &mut self.req_rename_latency,
            mds_op::RENAMESNAP => &mut self.req_renamesnap_latency,
            mds_op::RMDIR => &mut self.req_rmdir_latency,
            mds_op::RMSNAP => &mut self.req_rmsnap_latency,
            mds_op::RMXATTR => &mut self.req_rmxattr_latency,
            mds_op::SETATTR => &mut self.req_setattr_latency,
            mds_op::SETDIRLAYOUT => &mut self.req_setdirlayout_latency,
            mds_op::SETFILELOCK => &mut self.req_setfilelock_latency,
            mds_op::SETLAYOUT => &mut self.req_setlayout_latency,
            mds_op::SETXATTR => &mut self.req_setxattr_latency,
            mds_op::READDIR_SNAPDIFF => &mut self.req_snapdiff_latency,
            mds_op::SYMLINK => &mut self.req_symlink_latency,
            mds_op::UNLINK => &mut self.req_unlink_latency,
            _ => return,
        };
        time.add(ns);
    }
}

/// What a rank has counted since it began.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub mds: Served,
    pub server: Server,
}

impl Counters {
    /// Counts a request that was answered after `ns`.
    pub fn answered(&mut self, op: u32, ns: u64) {
        self.mds.reply += 1;
        self.mds.reply_latency.add(ns);
        self.server.add(op, ns);
    }

    /// Back to zero.
    pub fn reset(&mut self) {
        self.mds.reset();
        self.server.reset();
    }
}

fn level(name: &'static str, priority: u8, nick: &'static str, n: usize) -> (Family, Amount) {
    let (shape, unit) = (Shape::Gauge, Unit::None);
    // Its name says it.
    (Family { name, about: name, nick, priority, shape, unit }, Amount::Number(n as u64))
}

impl Rank {
    /// Every counter, with what is looked up only when somebody asks: the time goes with the inodes
    /// in memory.
    pub(crate) fn counters(&mut self) -> Vec<Group> {
        let nodes = self.tree.nodes.values();
        let dirs = nodes.clone().map(|n| n.frags.len()).sum::<usize>();
        let names = self.tree.nodes.values().flat_map(|n| n.frags.values());
        let names: usize = names.map(|f| f.entries.len()).sum();
        let with_caps = nodes.filter(|n| !n.caps.by_client.is_empty()).count();
        let sessions = self.sessions.by_client.values();
        let caps: usize = sessions.clone().map(|s| s.caps.len()).sum();
        let open = sessions.filter(|s| s.conn.is_some()).count();
        let root = self.tree.node(maps::fs::inos::ROOT).map(|n| n.store.inode.dir.rstat);
        let mds = &mut self.counted.mds;
        mds.inodes.0 = self.tree.nodes.len() as u64;
        mds.inodes_with_caps.0 = with_caps as u64;
        mds.caps.0 = caps as u64;
        mds.subtrees.0 = 2; // the root and this rank's own directory
        if let Some(root) = root {
            mds.root_rfiles.0 = root.rfiles.max(0) as u64;
            mds.root_rbytes.0 = root.rbytes.max(0) as u64;
            mds.root_rsnaps.0 = root.rsnaps.max(0) as u64;
        }
        let strays = self.purger.look.len() + self.purger.active.len();
        vec![
            self.counted.mds.group(),
            self.counted.server.group(),
            Group::new(
                "mds_mem",
                vec![
                    level("ino", 8, "ino", self.tree.nodes.len()),
                    level("dir", 5, "", dirs),
                    level("dn", 8, "dn", names),
                    level("cap", 5, "", caps),
                ],
            ),
            Group::new(
                "mds_sessions",
                vec![
                    level("session_count", 8, "sess", self.sessions.by_client.len()),
                    level("sessions_open", 5, "", open),
                ],
            ),
            Group::new("mds_cache", vec![level("num_strays", 8, "stry", strays)]),
            Group::new("mds_log", vec![level("wrpos", 0, "", self.journal.bytes() as usize)]),
            Group::new("purge_queue", vec![level("pq_executing", 5, "", self.purger.active.len())]),
        ]
    }
}
