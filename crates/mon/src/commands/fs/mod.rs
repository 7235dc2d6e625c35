//! `fs ...` and `mds ...`: what there is, and changes of it.
//!
//! Source: the peer's `mon/{FSCommands,MDSMonitor}.cc`; captures in `vectors/commands/fs.txt`.

mod authorize;
mod dump;
mod lifecycle;
mod mds;
mod mirror;
mod pools;
mod set;
mod show;

pub(super) use dump::summary;
pub(super) use mds::metadata_of_all;

use std::borrow::Cow;

use maps::{CompatSet, Filesystem, FsMap};

use super::{EINVAL, ENOENT, EPERM, Fail, Run, fail};
use crate::fs::Edit;
use crate::{CommandCtx, Outcome, Reply};

pub(super) fn has(prefix: &str) -> bool {
    matches!(prefix.split(' ').next(), Some("fs" | "mds"))
}

pub(super) fn run(ctx: &mut CommandCtx<'_>, prefix: &str) -> Run {
    match prefix {
        "fs ls" => show::ls(ctx),
        "fs dump" => show::dump(ctx),
        "fs get" => show::get(ctx),
        "fs status" => show::status(ctx),
        "fs lsflags" => show::lsflags(ctx),
        "fs feature ls" => show::features(ctx),
        "fs volume ls" => show::volumes(ctx),
        "fs compat show" => show::compat(ctx),
        "fs authorize" => authorize::authorize(ctx),
        "fs new" => lifecycle::new(ctx),
        "fs rm" => lifecycle::remove(ctx),
        "fs reset" => lifecycle::reset(ctx),
        "fs fail" => lifecycle::fail_all(ctx),
        "fs rename" => lifecycle::rename(ctx),
        "fs swap" => lifecycle::swap(ctx),
        "fs set-default" | "fs set_default" => lifecycle::set_default(ctx),
        "fs flag set" => set::flag(ctx),
        "fs set" => set::set(ctx),
        "fs compat" => set::compat(ctx),
        "fs required_client_features" => set::required_features(ctx),
        "fs add_data_pool" | "mds add_data_pool" => pools::add(ctx),
        "fs rm_data_pool" | "mds rm_data_pool" => pools::remove(ctx),
        p if p.starts_with("fs mirror ") => mirror::run(ctx, &p["fs mirror ".len()..]),
        p if p.starts_with("mds ") => mds::run(ctx, &p["mds ".len()..]),
        _ => Err(fail(EINVAL, "command not known")),
    }
}

impl CommandCtx<'_> {
    /// What the asker may know of.
    fn fsmap(&self) -> Cow<'_, FsMap> {
        crate::fs::visible(&self.state.fsmap, self.session)
    }

    /// Refuses changes of a file system that the asker's caps are not for.
    fn may_change(&self, name: &str) -> Result<(), Fail> {
        if crate::fs::may(self.session, name, ::auth::Rights::W) {
            return Ok(());
        }
        Err(fail(EPERM, format!("Permission denied: '{name}'")))
    }

    /// Likewise, of a server.
    fn may_change_server(&self, gid: u64) -> Result<(), Fail> {
        let fs = self.state.fsmap.of_server(gid);
        fs.map_or(Ok(()), |fs| self.may_change(&fs.mds_map.fs_name))
    }

    /// Likewise, by its number.
    fn may_change_id(&self, fscid: i32) -> Result<(), Fail> {
        let fs = self.state.fsmap.by_id(fscid);
        fs.map_or(Ok(()), |fs| self.may_change(&fs.mds_map.fs_name))
    }

    fn fs_edit(&self) -> Edit {
        Edit::new(&self.state.fsmap, self.wall())
    }

    /// The file system that an argument names, for commands that change one.
    fn need_fs(&self) -> Result<&Filesystem, Fail> {
        let name = self.cmd.str_or_empty("fs_name")?;
        let found = self.state.fsmap.by_name(name);
        let fs = found.ok_or_else(|| fail(ENOENT, format!("Filesystem not found: '{name}'")))?;
        self.may_change(name)?;
        Ok(fs)
    }

    /// Likewise, for commands that show one.
    fn shown_fs(&self) -> Result<&Filesystem, Fail> {
        let name = self.cmd.str_or_empty("fs_name")?;
        let may = |_: &&Filesystem| crate::fs::may(self.session, name, ::auth::Rights::R);
        let found = self.state.fsmap.by_name(name).filter(may);
        found.ok_or_else(|| fail(ENOENT, format!("filesystem '{name}' not found")))
    }
}

fn commit(edit: Edit, rs: impl Into<String>) -> Run {
    Ok(Outcome::FileSystems { edit: Box::new(edit), then: Reply::ok(rs) })
}

/// What a server that was not found is called.
fn no_such_server(who: &str) -> String {
    format!("MDS named '{who}' does not exist, or is not up")
}

/// `true|yes|1` or `false|no|0`.
fn parse_bool(text: &str) -> Result<bool, Fail> {
    match text {
        "true" | "yes" | "y" | "1" => Ok(true),
        "false" | "no" | "n" | "0" => Ok(false),
        _ => Err(fail(EINVAL, "value must be false|no|0 or true|yes|1")),
    }
}

/// Takes a feature out of a set of the two that clients and servers may lack; whether it was there.
fn remove_feature(compat: &mut CompatSet, kind: &str, feature: u64) -> bool {
    match kind {
        "compat" => compat.compat.remove(feature),
        _ => compat.incompat.remove(feature),
    }
}
