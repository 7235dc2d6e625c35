//! Inodes, directories and snapshots as they are in memory. Locks, pins and counts of references
//! are left out: the peer's are of its own kind.
//!
//! Source: the peer's `CInode::dump`, `CDir::dump`, `CDentry::dump`, `inode_t::dump`.

use bytes::Bytes;
use maps::fs::{DirFrag, Frag, Inode, InodeStore, Pins, inos};
use serde_json::{Map, Value, json};
use striper::FileLayout;
use types::{Errno, Ino, SnapId};

use super::{Done, Said, fail, int};
use crate::capset::caps_text;
use crate::rank::Rank;
use crate::tree::{Entry, Fragment, Link, Node};

/// Inodes that one `dump tree` tells of at most.
const TREE_MAX: usize = 100_000;

fn text(b: &Bytes) -> String {
    String::from_utf8_lossy(b).into_owned()
}

fn layout(l: &FileLayout) -> Value {
    json!({
        "stripe_unit": l.stripe_unit,
        "stripe_count": l.stripe_count,
        "object_size": l.object_size,
        "pool_id": l.pool.0,
        "pool_ns": text(&l.pool_ns),
    })
}

/// What `inode_t::dump` prints.
fn inode_fields(i: &Inode) -> Map<String, Value> {
    let ranges = i.file.client_ranges.iter().map(|(client, r)| {
        json!({
            "client": client,
            "byte range": {"first": r.first, "last": r.last},
            "follows": r.follows.0,
        })
    });
    let nest = |n: &maps::fs::NestInfo| {
        json!({
            "version": n.version,
            "rbytes": n.rbytes,
            "rfiles": n.rfiles,
            "rsubdirs": n.rsubdirs,
            "rsnaps": n.rsnaps,
            "rctime": n.rctime.to_string(),
        })
    };
    let (stat, cut) = (&i.dir.dirstat, &i.file.truncate);
    let value = json!({
        "ino": i.ino.0,
        "rdev": i.rdev,
        "ctime": i.times.ctime.to_string(),
        "btime": i.times.btime.to_string(),
        "mode": i.mode,
        "uid": i.uid,
        "gid": i.gid,
        "nlink": i.nlink,
        "dir_layout": {"dir_hash": i.dir.hash, "unused1": 0, "unused2": 0, "unused3": 0},
        "layout": layout(&i.layout),
        "old_pools": i.file.old_pools.iter().map(|p| p.0).collect::<Vec<_>>(),
        "size": i.file.size,
        "truncate_seq": cut.seq,
        "truncate_size": cut.size,
        "truncate_from": cut.from,
        "truncate_pending": cut.pending,
        "mtime": i.times.mtime.to_string(),
        "atime": i.times.atime.to_string(),
        "time_warp_seq": i.times.time_warp_seq,
        "change_attr": i.versions.change_attr,
        "export_pin": i.pins.export_pin,
        "export_ephemeral_random_pin": i.pins.random,
        "export_ephemeral_distributed_pin": i.pins.flags & Pins::DISTRIBUTED != 0,
        "quiesce_block": i.pins.flags & Pins::QUIESCE_BLOCK != 0,
        "client_ranges": ranges.collect::<Vec<_>>(),
        "dirstat": {
            "version": stat.version,
            "mtime": stat.mtime.to_string(),
            "num_files": stat.nfiles,
            "num_subdirs": stat.nsubdirs,
            "change_attr": stat.change_attr,
        },
        "rstat": nest(&i.dir.rstat),
        "accounted_rstat": nest(&i.dir.accounted_rstat),
        "version": i.versions.version,
        "file_data_version": i.versions.file_data,
        "xattr_version": i.versions.xattr,
        "backtrace_version": i.versions.backtrace,
        "inline_data_version": i.file.inline.version,
        "inline_data_length": i.file.inline.data.len(),
        "stray_prior_path": text(&i.stray_prior_path),
        "max_size_ever": i.file.max_size_ever,
        "quota": {"max_bytes": i.dir.quota.max_bytes, "max_files": i.dir.quota.max_files},
        "last_scrub_stamp": i.scrub.stamp.to_string(),
        "last_scrub_version": i.scrub.version,
    });
    match value {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}

/// What `InodeStore::dump` prints.
fn store_fields(store: &InodeStore) -> Map<String, Value> {
    let mut fields = inode_fields(&store.inode);
    let xattrs = store.xattrs.iter().map(|(k, v)| json!({"key": text(k), "val": text(v)}));
    let splits = store.fragtree.splits().map(|(f, by)| json!({"frag": f.text(), "children": by}));
    let old = store.old_inodes.iter().map(|(last, old)| {
        let mut fields = inode_fields(&old.inode);
        fields.insert("last".to_owned(), json!(last.0));
        fields.insert("first".to_owned(), json!(old.first.0));
        Value::Object(fields)
    });
    fields.insert("symlink".to_owned(), json!(text(&store.symlink)));
    fields.insert("xattrs".to_owned(), xattrs.collect());
    fields.insert("dirfragtree".to_owned(), json!({"splits": splits.collect::<Vec<_>>()}));
    fields.insert("old_inodes".to_owned(), old.collect());
    fields.insert("oldest_snap".to_owned(), json!(store.oldest_snap.0));
    fields.insert("damage_flags".to_owned(), json!(store.damage_flags));
    fields
}

/// What is the same of everything that the only rank holds.
fn authority(fields: &mut Map<String, Value>, states: &[&str]) {
    fields.insert("is_auth".to_owned(), json!(true));
    fields.insert("auth_state".to_owned(), json!({"replicas": {}}));
    let authority = json!({"authority": [0, -2], "replica_nonce": 0});
    fields.insert("replica_state".to_owned(), authority);
    fields.insert("auth_pins".to_owned(), json!(0));
    fields.insert("is_frozen".to_owned(), json!(false));
    fields.insert("is_freezing".to_owned(), json!(false));
    fields.insert("states".to_owned(), json!(states));
}

impl Rank {
    fn caps_of(&self, node: &Node) -> Value {
        let one = |(client, cap): (&i64, &crate::capset::Cap)| {
            json!({
                "client_id": client,
                "pending": caps_text(cap.pending),
                "issued": caps_text(cap.issued),
                "wanted": caps_text(cap.wanted),
                "last_sent": cap.seq,
            })
        };
        node.caps.by_client.iter().map(|(c, cap)| (c, &**cap)).map(one).collect()
    }

    pub(super) fn show_inode(&self, ino: Ino) -> Map<String, Value> {
        let node = self.tree.at(ino);
        let mut fields = store_fields(&node.store);
        fields.insert("path".to_owned(), json!(self.path_text(ino)));
        let mut states = vec!["auth"];
        if node.trace_since.is_some() {
            states.push("dirtyparent");
        }
        authority(&mut fields, &states);
        fields.insert("client_caps".to_owned(), self.caps_of(node));
        let loner = match node.caps.by_client.len() {
            1 => node.caps.by_client.keys().next().copied().unwrap_or(-1),
            _ => -1,
        };
        fields.insert("loner".to_owned(), json!(loner));
        fields.insert("want_loner".to_owned(), json!(loner));
        fields.insert("mds_caps_wanted".to_owned(), json!([]));
        fields.insert("is_subvolume".to_owned(), json!(self.subvolume_of(ino) == Some(ino)));
        fields
    }

    /// `/a/b`, `~mds0`, `~mds0/stray1`; of a stray the path that it had.
    pub(crate) fn path_text(&self, ino: Ino) -> String {
        let own = inos::mds_dir(self.id as u64);
        let path = String::from_utf8_lossy(&self.tree.path(ino)).into_owned();
        if ino == own {
            return format!("~mds{}", self.id);
        }
        let is_below = self.tree.node(ino).is_some_and(|n| !n.is_stray())
            && self.tree.ancestors(ino).last() == Some(own);
        if is_below { format!("~mds{}/{path}", self.id) } else { format!("/{path}") }
    }

    fn show_fragment(&self, ino: Ino, frag: Frag, f: &Fragment, entries: bool) -> Value {
        let path = match self.path_text(ino) {
            root if root == "/" => String::new(),
            path => path,
        };
        let version = f.fnode.version.to_string();
        let mut states = vec!["auth"];
        if f.dirty.since.is_some() {
            states.push("dirty");
        }
        states.push("complete");
        let mut fields = Map::new();
        fields.insert("path".to_owned(), json!(path));
        fields.insert("dirfrag".to_owned(), json!(DirFrag { ino, frag }.to_string()));
        fields.insert("snapid_first".to_owned(), json!(self.tree.at(ino).first.0));
        fields.insert("projected_version".to_owned(), json!(version));
        fields.insert("version".to_owned(), json!(version));
        fields.insert("is_rep".to_owned(), json!(false));
        fields.insert("dir_auth".to_owned(), json!(""));
        authority(&mut fields, &states);
        if entries {
            let all = f.entries.iter().map(|(name, e)| self.show_entry(&path, ino, name, e));
            fields.insert("dentries".to_owned(), all.collect());
        }
        Value::Object(fields)
    }

    fn show_entry(&self, path: &str, dir: Ino, name: &Bytes, entry: &Entry) -> Value {
        let (remote, target) = match &entry.link {
            Link::Primary(ino) => (false, *ino),
            Link::Remote { ino, .. } => (true, *ino),
        };
        let version = self.tree.node(target).map_or(0, |n| n.store.inode.versions.version);
        json!({
            "path": format!("{}/{}", path.trim_start_matches('/'), text(name)),
            "alternate_name": text(&entry.alternate_name),
            "path_ino": dir.0,
            "snap_first": entry.first.0,
            "snap_last": SnapId::HEAD.0,
            "is_primary": !remote,
            "is_remote": remote,
            "is_null": false,
            "is_new": false,
            "inode": target.0,
            "version": version,
            "projected_version": version,
            "is_auth": true,
        })
    }

    pub(super) fn dump_inode(&self, command: &Value) -> Done {
        let number = int(&command["number"]).and_then(|n| u64::try_from(n).ok());
        match number.map(Ino).filter(|ino| self.tree.node(*ino).is_some()) {
            Some(ino) => Ok(Said::Value(Value::Object(self.show_inode(ino)))),
            // As a stock server, which calls that no error.
            None => Ok(Said::Words(
                "dump inode failed, wrong inode number or the inode is not cached".to_owned(),
            )),
        }
    }

    /// An inode with its fragments in memory, and their entries.
    pub(super) fn show_with_frags(&self, ino: Ino) -> Map<String, Value> {
        let mut fields = self.show_inode(ino);
        let frags = self.tree.at(ino).frags.iter();
        let frags = frags.map(|(frag, f)| self.show_fragment(ino, *frag, f, true));
        fields.insert("dirfrags".to_owned(), frags.collect());
        fields
    }

    /// Inodes below a path, those of a directory before it, with its fragments.
    pub(super) fn dump_tree(&self, command: &Value) -> Done {
        let path = command["root"].as_str().unwrap_or_default();
        let Some(root) = self.cached(path) else {
            let why = format!("inode for path '#0x1{path}' is not in cache");
            return Ok(Said::Words(why));
        };
        let depth = int(&command["depth"]).and_then(|d| usize::try_from(d).ok());
        let mut all = Vec::new();
        let mut open = vec![(root, depth, false)];
        while let Some((ino, depth, is_opened)) = open.pop() {
            if all.len() >= TREE_MAX {
                return fail(Errno::NOSPC, format!("more than {TREE_MAX} inodes: name a depth"));
            }
            let node = self.tree.at(ino);
            if !is_opened && depth != Some(0) {
                open.push((ino, depth, true));
                let below = depth.map(|d| d - 1);
                let entries = node.frags.values().flat_map(|f| f.entries.values());
                let primary = entries.filter_map(|e| match e.link {
                    Link::Primary(ino) => self.tree.node(ino).map(|_| (ino, below, false)),
                    Link::Remote { .. } => None,
                });
                open.extend(primary);
                continue;
            }
            all.push(Value::Object(self.show_with_frags(ino)));
        }
        Ok(Said::Value(Value::Array(all)))
    }

    pub(super) fn dump_dir(&self, command: &Value) -> Done {
        let path = command["path"].as_str().unwrap_or_default();
        let Some(ino) = self.cached(path).filter(|ino| self.tree.at(*ino).is_dir()) else {
            return fail(Errno::NOENT, "directory inode not in cache");
        };
        let entries = command["dentry_dump"].as_bool().unwrap_or(false);
        let frags = self.tree.at(ino).frags.iter();
        let frags = frags.map(|(frag, f)| self.show_fragment(ino, *frag, f, entries));
        Ok(Said::Value(frags.collect()))
    }

    /// Inodes without a name, as far as they are in memory.
    pub(super) fn dump_stray(&self) -> Said {
        let strays =
            self.tree.nodes.iter().filter(|(ino, n)| n.is_stray() && !inos::is_system(**ino));
        let one = |(ino, node): (&Ino, &Node)| {
            json!({
                "ino: ": ino.0,
                "stray_prior_path: ": text(&node.store.inode.stray_prior_path),
                "client_caps": self.caps_of(node),
                "is_subvolume": false,
            })
        };
        Said::Value(strays.map(|(ino, node)| (ino, &**node)).map(one).collect())
    }

    pub(super) fn dump_snaps(&self, server: bool) -> Said {
        let table = &self.tables.snaps.table;
        let one = |(id, info): (&SnapId, &maps::fs::SnapInfo)| {
            let metadata = info.metadata.iter().map(|(k, v)| (text(k), Value::String(text(v))));
            json!({
                "snapid": id.0,
                "ino": info.ino.0,
                "stamp": info.stamp.to_string(),
                "name": text(&info.name),
                "metadata": Value::Object(metadata.collect()),
            })
        };
        let snaps: Vec<Value> = self.tree.snaps.iter().map(one).collect();
        let mut value = json!({
            "last_created": table.last_created.0,
            "last_destroyed": table.last_destroyed.0,
            "snaps": snaps,
        });
        if server {
            value["last_snap"] = json!(table.last_snap.0);
            for name in ["pending_noop", "pending_update", "pending_destroy"] {
                value[name] = json!([]);
            }
        }
        Said::Value(value)
    }

    /// The tree, and the rank's own directory: one rank has all of both.
    pub(super) fn subtrees(&self) -> Said {
        let roots = [inos::ROOT, inos::mds_dir(self.id as u64)];
        let one = |ino: &Ino| {
            let (frag, f) = self.tree.node(*ino)?.frags.iter().next()?;
            Some(json!({
                "is_auth": true,
                "auth_first": self.id,
                "auth_second": -2,
                "export_pin": -1,
                "distributed_ephemeral_pin": false,
                "random_ephemeral_pin": false,
                "export_pin_target": -1,
                "dir": self.show_fragment(*ino, *frag, f, false),
            }))
        };
        Said::Value(roots.iter().filter_map(one).collect())
    }
}
