//! `tidy`: rules of the house that no compiler checks. Each rule is a table here; a breach names file and line.

mod held;
mod options;
mod supply;

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::sh;

/// The layers of ARCHITECTURE.md, lowest first. A crate may use crates of lower layers, and those that stand before
/// it in its own.
const LAYERS: &[(&str, &[&str])] = &[
    ("base", &["stdx", "denc", "env", "metrics"]),
    ("domain", &["types", "crush", "cli", "auth", "conf", "ec", "nbd", "striper", "rgw-proto"]),
    ("wire", &["maps", "messages", "msgr"]),
    ("engines", &["store", "monc", "osdc", "fsc", "cls", "rgw-core"]),
    ("roles", &["mon", "osd", "mds"]),
    ("worlds", &["rt", "sim"]),
    ("surfaces", &["rados", "rbd", "fs", "rgw", "mgr", "dashboard", "daemon", "argonaut"]),
];

/// Crates of one layer that never use one another: they meet in messages.
const STRANGERS: &[&str] = &["mon", "osd", "mds"];

/// A longer file wants a room of its own for a part of it.
const FILE_LINES_MAX: usize = 1_000;

/// Doc comments that are one word in all, which say no more than the name. The number may only fall.
const ONE_WORD_DOCS_MAX: usize = 210;

/// Texts that name one machine, and no reader's. In parts, so that this file holds none either.
const MACHINE_PATHS: &[&str] =
    &[concat!("/", "work/"), concat!("/", "farm/"), concat!("/", "root/.")];

/// Files with code that the compiler cannot check, and in how many places. `cargo xtask unsafe` runs
/// their tests under Miri and a sanitizer.
const UNSAFE: &[(&str, usize)] = &[
    ("crates/argonaut/src/memory.rs", 4),
    ("crates/argonaut/src/osd_daemon.rs", 1),
    ("crates/crush/src/hash.rs", 1),
    ("crates/ec/src/region.rs", 2),
    ("crates/store/src/buf.rs", 2),
    ("crates/store/src/uring.rs", 3),
];

/// Checks every rule.
///
/// # Errors
/// All breaches, a line each.
pub fn tidy() -> Result<()> {
    let mut breaches = Vec::new();
    let metadata = supply::metadata()?;
    arrows(&metadata, &mut breaches);
    supply::check(&metadata, &mut breaches);
    documented(&metadata, &mut breaches)?;
    texts(&mut breaches)?;
    held::check(&mut breaches)?;
    options::check(&mut breaches)?;
    if breaches.is_empty() {
        return Ok(());
    }
    bail!("{} breaches of the rules in xtask/src/tidy.rs:\n{}", breaches.len(), breaches.join("\n"))
}

/// Crates of ours and whether a build dependency or test asks for it too; the direct dependencies of each.
fn ours(metadata: &serde_json::Value) -> BTreeMap<&str, Vec<&str>> {
    let packages = metadata["packages"].as_array().map(Vec::as_slice).unwrap_or_default();
    let own = packages.iter().filter(|p| p["source"].is_null());
    own.map(|package| {
        let all = package["dependencies"].as_array().map(Vec::as_slice).unwrap_or_default();
        let used = all.iter().filter(|d| d["kind"] != "dev").filter_map(|d| d["name"].as_str());
        (package["name"].as_str().unwrap_or_default(), used.collect())
    })
    .collect()
}

/// Arrows between crates point down, or left within a row.
fn arrows(metadata: &serde_json::Value, breaches: &mut Vec<String>) {
    let mut place = BTreeMap::new();
    for (layer, (_, crates)) in LAYERS.iter().enumerate() {
        place.extend(crates.iter().enumerate().map(|(at, name)| (*name, (layer, at))));
    }
    let ours = ours(metadata);
    for (name, used) in &ours {
        if *name == "xtask" {
            continue;
        }
        let Some(own) = place.get(name) else {
            breaches.push(format!("crate {name} stands in no layer of LAYERS"));
            continue;
        };
        for other in used.iter().filter(|u| ours.contains_key(*u)) {
            let strangers = STRANGERS.contains(name) && STRANGERS.contains(other);
            if strangers || place.get(other).is_none_or(|at| at >= own) {
                breaches.push(format!(
                    "crate {name} must not use {other}: arrows point down, or left in a row"
                ));
            }
        }
    }
}

/// Every direct dependency has a line in docs/dependencies.md.
fn documented(metadata: &serde_json::Value, breaches: &mut Vec<String>) -> Result<()> {
    let file = sh::repo().join("docs/dependencies.md");
    let text = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
    let rows = text.lines().filter(|l| l.starts_with("| ")).filter_map(|l| l.split('|').nth(1));
    let named: Vec<&str> = rows
        .flat_map(|cell| cell.split(|c: char| !(c.is_alphanumeric() || "-_".contains(c))))
        .collect();
    let ours = ours(metadata);
    for (name, used) in &ours {
        for other in used.iter().filter(|u| !ours.contains_key(*u) && !named.contains(u)) {
            breaches.push(format!(
                "crate {name} uses {other}, which has no row in docs/dependencies.md"
            ));
        }
    }
    Ok(())
}

/// What stands in the files that git tracks.
fn texts(breaches: &mut Vec<String>) -> Result<()> {
    let mut git = std::process::Command::new("git");
    let listed = sh::output(git.current_dir(sh::repo()).args(["ls-files"]))?;
    let mut one_word = 0;
    for name in listed.lines().filter(|n| !n.starts_with("vectors/") && !n.ends_with(".lock")) {
        // A file that was removed is listed until that is committed; one that is no text has no rules here.
        let Ok(text) = std::fs::read_to_string(sh::repo().join(name)) else { continue };
        let is_rust = Path::new(name).extension().is_some_and(|e| e == "rs");
        if is_rust && text.lines().count() > FILE_LINES_MAX {
            breaches.push(format!(
                "{name}: {} lines, more than {FILE_LINES_MAX}",
                text.lines().count()
            ));
        }
        for (n, line) in text.lines().enumerate() {
            if let Some(path) = MACHINE_PATHS.iter().find(|p| line.contains(**p)) {
                breaches.push(format!("{name}:{}: names a path of one machine, {path}", n + 1));
            }
        }
        if name.starts_with("crates/") && is_rust {
            let marks = text.matches("allow(unsafe_code").count();
            let known = UNSAFE.iter().find(|(file, _)| *file == name).map_or(0, |(_, n)| *n);
            if marks != known {
                breaches.push(format!(
                    "{name}: {marks} places of unsafe code, and UNSAFE knows {known}"
                ));
            }
        }
        one_word += if is_rust { one_word_docs(&text) } else { 0 };
    }
    if one_word > ONE_WORD_DOCS_MAX {
        breaches.push(format!(
            "{one_word} doc comments of one word; {ONE_WORD_DOCS_MAX} are left to mend"
        ));
    }
    Ok(())
}

/// Doc comments that are one word in all: no line of the comment stands before or behind it.
fn one_word_docs(text: &str) -> usize {
    let is_doc = |line: &str| line.trim_start().starts_with("///");
    let lines: Vec<&str> = text.lines().collect();
    let alone = |n: usize| {
        let before = n.checked_sub(1).is_some_and(|b| is_doc(lines[b]));
        !before && !lines.get(n + 1).is_some_and(|line| is_doc(line))
    };
    (0..lines.len()).filter(|n| is_one_word_doc(lines[*n]) && alone(*n)).count()
}

fn is_one_word_doc(line: &str) -> bool {
    let doc = line.trim_start().strip_prefix("/// ");
    doc.is_some_and(|words| {
        let word = words.trim_end().trim_end_matches('.');
        !word.is_empty()
            && word.len() + 1 == words.trim_end().len()
            && word.chars().all(char::is_alphabetic)
    })
}
