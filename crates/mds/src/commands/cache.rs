//! What is in memory, by inode or by line; which files are open; where the work is.
//!
//! Source: the peer's `MDCache::dump_cache`, `dump_openfiles`, `MDBalancer::dump_loads`, and the
//! operators `<<` of `CInode`, `CDir` and `CDentry`.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use maps::fs::{DirFrag, FragInfo, NestInfo, inos};
use serde_json::{Value, json};
use types::{Errno, Ino};

use super::{Done, Said, fail, int};
use crate::capset::caps_text;
use crate::heat::{HALF_LIFE_MS, Load};
use crate::rank::Rank;
use crate::tree::Link;

/// Inodes that one command tells of at most.
const INODES_MAX: usize = 100_000;

/// `f(v0 m2026-11-30T04:28:54.382538+0000 4=4+0)`
fn files(f: &FragInfo) -> String {
    let mut text = format!("f(v{}", f.version);
    if !f.mtime.is_zero() {
        write!(text, " m{}", f.mtime).expect("a string takes all");
    }
    if (f.nfiles, f.nsubdirs) != (0, 0) {
        let sum = f.nfiles + f.nsubdirs;
        write!(text, " {sum}={}+{}", f.nfiles, f.nsubdirs).expect("a string takes all");
    }
    text + ")"
}

/// `n(v0 rc2026-11-30T04:28:54.382953+0000 b4000 5=4+1)`
fn below(n: &NestInfo) -> String {
    let mut text = format!("n(v{}", n.version);
    if !n.rctime.is_zero() {
        write!(text, " rc{}", n.rctime).expect("a string takes all");
    }
    if n.rbytes != 0 {
        write!(text, " b{}", n.rbytes).expect("a string takes all");
    }
    if n.rsnaps != 0 {
        write!(text, " rs{}", n.rsnaps).expect("a string takes all");
    }
    if (n.rfiles, n.rsubdirs) != (0, 0) {
        let sum = n.rfiles + n.rsubdirs;
        write!(text, " {sum}={}+{}", n.rfiles, n.rsubdirs).expect("a string takes all");
    }
    text + ")"
}

impl Rank {
    /// Everything in memory: as JSON, or with a path as lines of text, which the driver writes there.
    pub(super) fn dump_cache(&self, command: &Value) -> Done {
        if self.tree.nodes.len() > INODES_MAX {
            let why = format!("more than {INODES_MAX} inodes: `dump tree PATH DEPTH` shows some");
            return fail(Errno::NOSPC, why);
        }
        if command["path"].as_str().is_some_and(|p| !p.is_empty()) {
            let mut text = String::new();
            for ino in self.tree.nodes.keys() {
                self.describe(*ino, &mut text);
            }
            return Ok(Said::Text(text));
        }
        let all = self.tree.nodes.keys().map(|ino| {
            let mut fields = self.show_with_frags(*ino);
            fields.shift_remove("path");
            Value::Object(fields)
        });
        Ok(Said::Value(all.collect()))
    }

    /// An inode and the fragments under it, a line each, and one for each entry.
    fn describe(&self, ino: Ino, text: &mut String) {
        let node = self.tree.at(ino);
        let i = &node.store.inode;
        let path = self.path_text(ino);
        let path = if node.is_dir() && path != "/" { path + "/" } else { path };
        let mut line = format!("[inode {ino:#x} [{},head] {path} auth", node.first().0);
        let mut add = |word: String| line.push_str(&format!(" {word}"));
        if i.is_symlink() {
            add(format!("symlink='{}'", String::from_utf8_lossy(&node.store.symlink)));
        }
        add(format!("v{}", i.versions.version));
        if node.trace_since.is_some() {
            add("DIRTYPARENT".to_owned());
        }
        if node.is_dir() {
            add(files(&i.dir.dirstat));
        } else {
            add(format!("s={}", i.file.size));
        }
        add(below(&i.dir.rstat));
        if !node.caps.by_client.is_empty() {
            let one = |(client, cap): (&i64, &crate::capset::Cap)| {
                let (pending, wanted) = (caps_text(cap.pending), caps_text(cap.wanted));
                format!("{client}={pending}/{wanted}@{}", cap.seq)
            };
            let caps: Vec<String> =
                node.caps.by_client.iter().map(|(c, cap)| (c, &**cap)).map(one).collect();
            add(format!("caps={{{}}}", caps.join(",")));
        }
        writeln!(text, "{line}]").expect("a string takes all");
        for (frag, f) in &node.frags {
            let dir = DirFrag { ino, frag: *frag };
            let (fnode, dirty) = (&f.fnode, f.dirty.names.len() + f.dirty.past.len());
            let (stat, nest) = (files(&fnode.fragstat), below(&fnode.rstat));
            writeln!(
                text,
                " [dir {dir} {path} [{},head] auth v={} {stat} {nest} hs={}+0,ss={}+0 dirty={dirty}]",
                node.first().0,
                fnode.version,
                f.entries.len(),
                f.past.len(),
            )
            .expect("a string takes all");
            for (name, entry) in &f.entries {
                let name = String::from_utf8_lossy(name);
                let link = match entry.link {
                    Link::Primary(ino) => format!("ino={ino:#x}"),
                    Link::Remote { ino, .. } => format!("REMOTE ino={ino:#x}"),
                };
                let first = entry.first.0;
                writeln!(text, "  [dentry #0x1{path}{name} [{first},head] auth {link}]")
                    .expect("a string takes all");
            }
        }
    }

    /// Files that clients have open, with their caps.
    pub(super) fn openfiles_ls(&self) -> Done {
        let is_open = |ino: &&Ino| {
            let node = self.tree.at(**ino);
            !node.is_dir() && node.caps.by_client.values().any(|cap| cap.wanted != 0)
        };
        let open: Vec<&Ino> = self.tree.nodes.keys().filter(is_open).take(INODES_MAX + 1).collect();
        if open.len() > INODES_MAX {
            return fail(Errno::NOSPC, format!("more than {INODES_MAX} files are open"));
        }
        let drop = [
            "is_auth",
            "auth_state",
            "replica_state",
            "auth_pins",
            "is_frozen",
            "is_freezing",
            "states",
        ];
        let one = |ino: &&Ino| {
            let mut fields = self.show_inode(**ino);
            fields.retain(|name, _| !drop.contains(&&name[..]));
            Value::Object(fields)
        };
        Ok(Said::Value(open.iter().map(one).collect()))
    }

    /// What was asked of each fragment lately, and of all below it.
    pub(super) fn dump_loads(&self, command: &Value) -> Done {
        let depth = match &command["depth"] {
            Value::Null => usize::MAX,
            given => match int(given).and_then(|d| usize::try_from(d).ok()) {
                Some(depth) => depth,
                None => return fail(Errno::INVAL, "depth is a number of directories from 0"),
            },
        };
        let now = self.world.ms();
        let mut all: BTreeMap<DirFrag, (Load, Load)> = BTreeMap::new();
        for (ino, node) in self.tree.nodes.iter().filter(|(ino, _)| !inos::is_private(**ino)) {
            for (frag, fragment) in &node.frags {
                let own = fragment.heat.get().get(now);
                let mut at = Some(DirFrag { ino: *ino, frag: *frag });
                all.entry(DirFrag { ino: *ino, frag: *frag }).or_default().0 = own;
                while let Some(dir) = at {
                    let nested = &mut all.entry(dir).or_default().1;
                    nested.iter_mut().zip(own).for_each(|(n, o)| *n += o);
                    at = self.tree.frag_above(dir.ino);
                }
            }
        }
        let depth_of = |dir: &DirFrag| self.tree.ancestors(dir.ino).count();
        all.retain(|dir, _| {
            let is_shown = self.tree.fragment(*dir).is_some() && !inos::is_private(dir.ino);
            is_shown && depth_of(dir) <= depth
        });
        if all.len() > INODES_MAX {
            let why = format!("more than {INODES_MAX} fragments: name a smaller depth");
            return fail(Errno::NOSPC, why);
        }
        let load = |l: &Load| {
            let half_life = HALF_LIFE_MS / 1000;
            let one = |value: &f64| json!({"value": value, "halflife": half_life});
            json!({"Decay Counters": l.iter().map(one).collect::<Vec<_>>()})
        };
        let one = |(dir, (own, nested)): (&DirFrag, &(Load, Load))| {
            let path = self.path_text(dir.ino);
            let nested = load(nested);
            json!({
                "path": path.trim_end_matches('/'),
                "dirfrag": dir.to_string(),
                "pop_me": load(own),
                "pop_nested": nested,
                "pop_auth_subtree": nested,
                "pop_auth_subtree_nested": nested,
            })
        };
        Ok(Said::Value(json!({
            "dirfrags": all.iter().map(one).collect::<Vec<_>>(),
            "mds_load": {},
            "mds_meta_load": {},
            "mds_import_map": {},
        })))
    }
}
