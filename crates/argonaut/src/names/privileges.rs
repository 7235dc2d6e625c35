//! `--setuser` and `--setgroup`: a daemon that is started by root becomes another user before it opens
//! its data. Names are those of /etc/passwd and /etc/group.
//!
//! Source: upstream's `global/global_init.cc`.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::Context;
use conf::{Config, key};
use rustix::process::{Gid, Uid};

use super::Failed;

/// Whom a daemon becomes.
#[derive(Debug, PartialEq, Eq)]
pub struct Owner {
    /// `None` keeps the user.
    uid: Option<u32>,
    gid: Option<u32>,
    /// Groups whose member the user is.
    groups: Vec<u32>,
}

/// The lines of a table as /etc/passwd is: names and the other fields.
fn rows(table: &str) -> impl Iterator<Item = Vec<&str>> {
    table.lines().map(|line| line.split(':').collect::<Vec<_>>()).filter(|row| row.len() >= 4)
}

/// A user's number, name and group. `text` is a name or a number, as upstream takes it.
fn user(passwd: &str, text: &str) -> Option<(u32, Option<String>, Option<u32>)> {
    let number = text.parse::<u32>().ok();
    let fits = |row: &Vec<&str>| row[0] == text || number.is_some_and(|n| row[2].parse() == Ok(n));
    match rows(passwd).find(fits) {
        Some(row) => Some((row[2].parse().ok()?, Some(row[0].to_owned()), row[3].parse().ok())),
        None => number.map(|n| (n, None, None)),
    }
}

fn group(groups: &str, text: &str) -> Option<u32> {
    let found = rows(groups).find(|row| row[0] == text).and_then(|row| row[2].parse().ok());
    found.or_else(|| text.parse().ok())
}

/// Groups that name the user as a member.
fn groups_of(groups: &str, user: &str) -> Vec<u32> {
    let is_member = |row: &Vec<&str>| row[3].split(',').any(|member| member == user);
    rows(groups).filter(is_member).filter_map(|row| row[2].parse().ok()).collect()
}

impl Owner {
    /// Whom the options ask for; `None` where they ask for nobody, or where this process may not:
    /// then it says so, as upstream does.
    ///
    /// # Errors
    /// When there is no such user or group, or `setuser_match_path` is not there.
    pub fn wanted(config: &Config) -> Result<Option<Self>, Failed> {
        let (user, group) = (config.get(key::SETUSER), config.get(key::SETGROUP));
        if user.is_empty() && group.is_empty() {
            return Ok(None);
        }
        if !rustix::process::geteuid().is_root() {
            for (flag, value) in [("--setuser", &user), ("--setgroup", &group)] {
                if !value.is_empty() {
                    tell!("ignoring {flag} {value} since I am not root");
                }
            }
            return Ok(None);
        }
        let read = |path: &str| fs::read_to_string(path).with_context(|| path.to_owned());
        let owner = Self::find(&read("/etc/passwd")?, &read("/etc/group")?, &user, &group)?;
        let path = config.get(key::SETUSER_MATCH_PATH);
        if path.is_empty() {
            return Ok(Some(owner));
        }
        let meta = fs::metadata(&path).map_err(|err| {
            Failed::said(format!("unable to stat setuser_match_path {path}: {err}"))
        })?;
        if owner.owns(&meta) {
            return Ok(Some(owner));
        }
        tell!(
            "WARNING: will not setuid/gid: {path} owned by {}:{} and not requested {}:{}",
            meta.uid(),
            meta.gid(),
            owner.uid.unwrap_or(0),
            owner.gid.unwrap_or(0)
        );
        Ok(None)
    }

    fn owns(&self, meta: &fs::Metadata) -> bool {
        self.uid.is_none_or(|uid| uid == meta.uid()) && self.gid.is_none_or(|gid| gid == meta.gid())
    }

    fn find(passwd: &str, groups: &str, who: &str, gid: &str) -> Result<Self, Failed> {
        let mut owner = Self { uid: None, gid: None, groups: Vec::new() };
        if !who.is_empty() {
            let none = || Failed::said(format!("unable to look up user '{who}'"));
            let (uid, name, own) = user(passwd, who).ok_or_else(none)?;
            owner.uid = Some(uid);
            owner.gid = own;
            owner.groups = name.map(|name| groups_of(groups, &name)).unwrap_or_default();
        }
        if !gid.is_empty() {
            let none = || Failed::said(format!("unable to look up group '{gid}'"));
            owner.gid = Some(group(groups, gid).ok_or_else(none)?);
        }
        Ok(owner)
    }

    /// Becomes it: groups, group, user, for good. Nothing else runs in this process yet: the system
    /// changes one thread, and later ones are as that is.
    ///
    /// # Errors
    /// When the system denies it, or other threads run.
    pub fn become_it(&self) -> Result<(), Failed> {
        let threads = fs::read_dir("/proc/self/task").map_or(1, Iterator::count);
        if threads != 1 {
            let why = format!("{threads} threads run before the user is changed");
            return Err(Failed::Why(anyhow::Error::msg(why)));
        }
        let denied = |what: String| {
            move |err: rustix::io::Errno| Failed::said(format!("unable to {what}: {err}"))
        };
        if let Some(gid) = self.gid {
            let mut all: Vec<Gid> = self.groups.iter().map(|gid| Gid::from_raw(*gid)).collect();
            all.push(Gid::from_raw(gid));
            rustix::thread::set_thread_groups(&all).map_err(denied("setgroups".to_owned()))?;
            let gid = Gid::from_raw(gid);
            rustix::thread::set_thread_res_gid(gid, gid, gid)
                .map_err(denied(format!("setgid {gid}")))?;
        }
        if let Some(uid) = self.uid {
            let uid = Uid::from_raw(uid);
            rustix::thread::set_thread_res_uid(uid, uid, uid)
                .map_err(denied(format!("setuid {uid}")))?;
        }
        Ok(())
    }
}

/// Makes the directory of sockets and pid files where it is missing, as its owner's.
pub fn make_run_dir(config: &Config, owner: Option<&Owner>) {
    let dir = config.get(key::RUN_DIR);
    if dir.is_empty() || Path::new(&dir).exists() {
        return;
    }
    if let Err(err) = fs::create_dir(&dir) {
        return tell!("warning: unable to create {dir}: {err}");
    }
    if let Some(owner) = owner
        && let Err(err) = std::os::unix::fs::chown(&dir, owner.uid, owner.gid)
    {
        tell!("warning: unable to chown() {dir}: {err}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &str =
        "root:x:0:0:root:/root:/bin/sh\nceph:x:167:168:Ceph:/var/lib/ceph:/bin/false\nshort:x\n";
    const GROUP: &str = "root:x:0:\nceph:x:168:\ndisk:x:6:backup,ceph\n";

    #[test]
    fn users_by_name_and_number() {
        let find = |user, group| Owner::find(PASSWD, GROUP, user, group);
        let ceph = Owner { uid: Some(167), gid: Some(168), groups: vec![6] };
        assert_eq!(find("ceph", "").unwrap(), ceph);
        assert_eq!(find("167", "ceph").unwrap(), ceph);
        assert_eq!(find("", "disk").unwrap(), Owner { uid: None, gid: Some(6), groups: vec![] });
        assert_eq!(find("4711", "").unwrap(), Owner { uid: Some(4711), gid: None, groups: vec![] });
        let told = find("nobodyx", "").unwrap_err().to_string();
        assert_eq!(told, "unable to look up user 'nobodyx'");
        assert!(find("ceph", "none").is_err() && find("short", "").is_err());
    }
}
