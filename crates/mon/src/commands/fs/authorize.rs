//! `fs authorize`: an entity may use a file system, or a part of it.

use std::collections::BTreeMap;

use ::auth::EntityAuth;
use ::auth::caps::{MdsCap, MdsGrant};

use super::Run;
use crate::commands::{EINVAL, Fail, auth, fail, ok};
use crate::{CommandCtx, Outcome, Reply};

/// What is asked for: a path and what may be done below it.
struct Part {
    path: String,
    perm: String,
    root_squash: bool,
}

fn check_perm(perm: &str) -> Result<(), Fail> {
    let refuse = |why: &str| Err(fail(EINVAL, why));
    if perm == "*" {
        return Ok(());
    }
    let flags = perm.strip_prefix("rw").unwrap_or(perm);
    let mut last = None;
    for flag in flags.chars() {
        if last >= Some(flag) {
            return refuse(
                "Permission flags (except 'rw') must be specified in alphabetical order.",
            );
        }
        if !"rwps".contains(flag) {
            return refuse(&format!("Unknown permission flag '{flag}'."));
        }
        last = Some(flag);
    }
    if !perm.starts_with('r') {
        return refuse(
            "Permission flags in MDS capability string must be '*' or 'all' or must start with 'r'",
        );
    }
    Ok(())
}

fn parts(words: &[String]) -> Result<Vec<Part>, Fail> {
    let mut parts = Vec::new();
    let mut words = words.iter().peekable();
    while let Some(path) = words.next() {
        let Some(perm) = words.next() else {
            if parts.is_empty() {
                let why = "mds capability parse failed, stopped at '' of ''";
                return Err(fail(EINVAL, why));
            }
            break; // as the peer: a path without anything is nothing
        };
        check_perm(perm)?;
        let root_squash = words.next_if(|word| *word == "root_squash").is_some();
        parts.push(Part { path: path.clone(), perm: perm.clone(), root_squash });
    }
    Ok(parts)
}

/// ` fsname=F path=P root_squash`, as far as they say something.
fn place(fs_name: &str, path: &str, root_squash: bool) -> String {
    let mut text = String::new();
    if !fs_name.is_empty() && fs_name != "*" {
        text += &format!(" fsname={fs_name}");
    }
    if !path.is_empty() && path != "/" {
        let plain = path.chars().all(|c| c.is_ascii_alphanumeric() || "/._-".contains(c));
        let quote = if plain { "" } else { "\"" };
        text += &format!(" path={quote}{path}{quote}");
    }
    if root_squash {
        text += " root_squash";
    }
    text
}

/// A grant that stays, in the words of those that are added.
fn grant_text(grant: &MdsGrant) -> String {
    let m = &grant.matches;
    let all = grant.to_string();
    if m.uid != -1 || !m.gids.is_empty() || grant.network.is_some() {
        return all;
    }
    let may = all.split(' ').nth(1).unwrap_or("r");
    format!("allow {may}{}", place(&m.fs_name, &m.path, m.root_squash))
}

/// Adds `item` to a list of grants, behind or in place of what `replaces`.
fn put(list: &str, item: &str, replaces: impl Fn(&str) -> bool) -> String {
    let mut items: Vec<&str> = list.split(", ").filter(|i| !i.is_empty()).collect();
    match items.iter().position(|i| replaces(i)) {
        Some(at) => items[at] = item,
        None => items.push(item),
    }
    items.join(", ")
}

/// The caps at the metadata servers with `asked` added: a grant for the same path is replaced.
fn merged(old: &str, fs_name: &str, asked: &[Part]) -> Result<String, Fail> {
    let bad = |e: ::auth::caps::CapError| fail(EINVAL, e.to_string());
    if old.is_empty() {
        let one = |p: &Part| format!("allow {}{}", p.perm, place(fs_name, &p.path, p.root_squash));
        return Ok(asked.iter().map(one).collect::<Vec<_>>().join(", "));
    }
    let fs = if fs_name == "*" { "" } else { fs_name };
    let before = MdsCap::parse(old).map_err(bad)?.grants().to_vec();
    let mut grants = before.clone();
    for part in asked {
        let text = format!("allow {}{}", part.perm, place(fs_name, &part.path, part.root_squash));
        let new = MdsCap::parse(&text).map_err(bad)?;
        let Some(new) = new.grants().first().cloned() else { continue };
        let same = |g: &MdsGrant| {
            let m = &g.matches;
            let whole = m.uid == -1 && m.gids.is_empty() && g.network.is_none() && !g.all;
            whole && m.fs_name == fs && m.path == new.matches.path
        };
        match grants.iter().position(same) {
            Some(at) => grants[at] = new,
            None => grants.push(new),
        }
    }
    if grants == before {
        return Ok(old.to_owned());
    }
    Ok(grants.iter().map(grant_text).collect::<Vec<_>>().join(", "))
}

/// Whether any grant for a file system writes.
fn writes(mds: &str, fs_name: &str) -> bool {
    let fs = if fs_name == "*" { "" } else { fs_name };
    let caps = MdsCap::parse_lenient(mds);
    let writing = |g: &&MdsGrant| g.all || g.allow.0 & ::auth::caps::MdsMay::WRITE.0 != 0;
    caps.grants().iter().filter(writing).any(|g| g.matches.fs_name == fs)
}

pub(super) fn authorize(ctx: &mut CommandCtx<'_>) -> Run {
    let fs_name = ctx.cmd.str_or_empty("filesystem")?.to_owned();
    let name = auth::entity_arg(ctx, "bad entity name")?;
    let asked = parts(&ctx.cmd.list("caps")?)?;
    if fs_name != "*" && ctx.fsmap().by_name(&fs_name).is_none() {
        return Err(fail(EINVAL, format!("filesystem {fs_name} does not exist.")));
    }
    let there = ctx.state.auth.get(&name).cloned();
    let old = there.as_ref().map(|e| e.caps.clone()).unwrap_or_default();
    let of = |service: &str| old.get(service).map_or("", String::as_str);
    let mds = merged(of("mds"), &fs_name, &asked)?;
    let mon = format!("allow r{}", place(&fs_name, "", false));
    let mon = put(of("mon"), &mon, |item| item == mon);
    let may = if writes(&mds, &fs_name) { "rw" } else { "r" };
    let tag = format!(" tag cephfs data={fs_name}");
    let osd = format!("allow {may}{tag}");
    let osd = put(of("osd"), &osd, |item| {
        ["allow r", "allow rw"].iter().any(|a| item.strip_prefix(a) == Some(&tag))
    });
    let mut caps = old.clone();
    let new = [("mds", mds), ("mon", mon), ("osd", osd)];
    caps.extend(new.into_iter().map(|(k, v)| (k.to_owned(), v)).collect::<BTreeMap<_, _>>());
    auth::check_caps(&caps)?;
    let (entity, rs) = match there {
        Some(there) if there.caps == caps => {
            return ok(format!("no update for caps of {name}"));
        }
        Some(there) => (EntityAuth { caps, ..there }, format!("updated caps for {name}")),
        None => {
            let key = auth::new_key(ctx)?;
            (EntityAuth { key, caps, ..EntityAuth::default() }, String::new())
        }
    };
    let then = Reply { r: 0, rs, out: auth::one(ctx, &name, &entity) };
    Ok(Outcome::Propose { mutation: auth::set(&name, entity), then })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(words: &str) -> Vec<Part> {
        parts(&words.split(' ').map(str::to_owned).collect::<Vec<_>>()).unwrap()
    }

    /// What is not for the same path stays as it was, and a path is granted once.
    #[test]
    fn grants_are_merged() {
        let first = merged("", "a", &ask("/ r /sub rw")).unwrap();
        assert_eq!(first, "allow r fsname=a, allow rw fsname=a path=/sub");
        assert_eq!(merged(&first, "a", &ask("/ r /sub rw")).unwrap(), first);
        let more = merged(&first, "a", &ask("/other rwps")).unwrap();
        assert_eq!(
            more,
            "allow r fsname=a, allow rw fsname=a path=sub, allow rwps fsname=a path=other"
        );
        let less = merged(&more, "a", &ask("/sub r root_squash")).unwrap();
        assert!(less.contains("allow r fsname=a path=sub root_squash"), "{less}");
        assert!(writes(&less, "a") && !writes(&less, "b"));
        let all = merged("allow *", "a", &ask("/ r")).unwrap();
        assert_eq!(all, "allow *, allow r fsname=a");
        let uid = merged("allow rw uid=7", "a", &ask("/ r")).unwrap();
        assert_eq!(uid, "allow rw uid=7, allow r fsname=a");
    }

    #[test]
    fn permissions_are_checked() {
        for perm in ["r", "rw", "rwp", "rws", "rwps", "*"] {
            assert!(check_perm(perm).is_ok(), "{perm}");
        }
        for (perm, word) in [
            ("w", "must start with 'r'"),
            ("", "must start with 'r'"),
            ("q", "Unknown permission flag 'q'"),
            ("rwf", "Unknown permission flag 'f'"),
            ("rp", "alphabetical"),
            ("ws", "alphabetical"),
            ("rwsp", "alphabetical"),
            ("rr", "alphabetical"),
            ("rwpsf", "alphabetical"),
        ] {
            assert!(check_perm(perm).unwrap_err().why.contains(word), "{perm}");
        }
    }
}
