//! Fragments of directories: listed, split, merged; what could not be read.
//!
//! Source: the peer's `MDSRank::command_dirfrag_*`, `DamageTable`.

use maps::fs::{DirFrag, Frag};
use serde_json::{Value, json};
use types::{Errno, Ino};

use super::{Done, Said, fail, int};
use crate::damage::Damage;
use crate::rank::Rank;

/// By so many bits a fragment is split at once, at most.
const BITS_MAX: u32 = 8;

fn frag_of(command: &Value) -> Result<Frag, (Errno, String)> {
    let text = command["frag"].as_str().unwrap_or_default();
    Frag::parse(text).ok_or_else(|| (Errno::INVAL, format!("frag {text} failed to parse")))
}

impl Rank {
    fn dir_named(&self, path: &str) -> Result<Ino, (Errno, String)> {
        match self.cached(path) {
            None => fail(Errno::NOENT, "directory inode not in cache"),
            Some(ino) if !self.tree.at(ino).is_dir() => fail(crate::errno::NOTDIR, "not a dir"),
            Some(ino) => Ok(ino),
        }
    }

    /// The fragments of a directory, the last one by hash first.
    pub(super) fn dirfrag_ls(&self, path: &str) -> Done {
        let ino = self.dir_named(path)?;
        let one = |f: Frag| json!({"value": f.value(), "bits": f.bits(), "str": f.text()});
        let mut all: Vec<Value> = self.tree.at(ino).store.fragtree.leaves().map(one).collect();
        all.reverse();
        Ok(Said::Value(Value::Array(all)))
    }

    pub(super) fn dirfrag_split(&mut self, command: &Value) -> Done {
        let ino = self.dir_named(command["path"].as_str().unwrap_or_default())?;
        let frag = frag_of(command)?;
        let bits = int(&command["bits"]).and_then(|b| u32::try_from(b).ok()).unwrap_or(0);
        if bits == 0 {
            return fail(Errno::INVAL, "must split by >0 bits");
        }
        if bits > BITS_MAX || frag.bits() + bits > Frag::BITS_MAX {
            return fail(Errno::INVAL, format!("must split by at most {BITS_MAX} bits"));
        }
        if self.tree.fragment(DirFrag { ino, frag }).is_none() {
            return fail(Errno::NOENT, format!("frag {} not in cache", frag.text()));
        }
        self.refragment(ino, &[frag], &frag.split(bits).collect::<Vec<_>>())
    }

    pub(super) fn dirfrag_merge(&mut self, command: &Value) -> Done {
        let ino = self.dir_named(command["path"].as_str().unwrap_or_default())?;
        let frag = frag_of(command)?;
        let leaves: Vec<Frag> = self.tree.at(ino).store.fragtree.leaves_under(frag).collect();
        if leaves.len() < 2 {
            let known = leaves == [frag];
            let why = if known { "nothing to merge" } else { "no such fragment" };
            return fail(if known { Errno::INVAL } else { Errno::NOENT }, why);
        }
        let has = |f: &Frag| self.tree.at(ino).frags.contains_key(f);
        let missing: Vec<Frag> = leaves.iter().copied().filter(|f| !has(f)).collect();
        if !missing.is_empty() {
            for frag in missing {
                self.fetch(DirFrag { ino, frag }, 0);
            }
            return fail(Errno::AGAIN, "not all fragments are in cache yet: try again");
        }
        self.refragment(ino, &leaves, &[frag])
    }

    fn refragment(&mut self, ino: Ino, old: &[Frag], new: &[Frag]) -> Done {
        if self.tree.at(ino).at.is_none() {
            return fail(Errno::INVAL, "a root directory stays in one fragment");
        }
        if self.read_only.is_some() {
            return fail(crate::errno::ROFS, "the server is read-only");
        }
        if !self.fragment(ino, old, new) {
            return fail(Errno::AGAIN, "the directory is being written: try again");
        }
        Ok(Said::Words(String::new()))
    }

    pub(super) fn damage_ls(&self) -> Said {
        let one = |damage: &Damage<'_>| match damage {
            Damage::Frag(dir) => json!({
                "damage_type": "dir_frag",
                "id": damage.id(),
                "ino": dir.ino.0,
                "frag": dir.frag.to_string(),
                "path": self.path_text(dir.ino),
            }),
            Damage::Trace(ino, path) => json!({
                "damage_type": "backtrace",
                "id": damage.id(),
                "ino": ino.0,
                "path": path,
            }),
        };
        Said::Value(self.tree.damaged.all().iter().map(one).collect())
    }

    /// Forgets one: a fragment is read again when somebody wants it.
    pub(super) fn damage_rm(&mut self, command: &Value) -> Done {
        if let Some(id) = int(&command["damage_id"]) {
            self.tree.damaged.forget(id);
        }
        Ok(Said::Words(String::new()))
    }
}
