//! Options are asked for by their keys, `conf::key`: a name in a string is found wrong when it runs, a key
//! when it is compiled. What needs the text all the same has a line in `options.txt`.

use std::collections::BTreeSet;

use anyhow::Result;

use crate::sh;

const LIST: &str = "xtask/src/tidy/options.txt";
/// Lines of the list. The number may only fall.
const LINES_MAX: usize = 12;
/// How the text of an option is asked for by what an operator wrote: no literal belongs there.
const READS: [&str; 3] = ["text", "raw", "unset"];

/// Compares the sources with the table of options and with the list.
///
/// # Errors
/// When a file cannot be read.
pub fn check(breaches: &mut Vec<String>) -> Result<()> {
    let mut git = std::process::Command::new("git");
    let listed = sh::output(git.current_dir(sh::repo()).args(["ls-files", "crates/*/src/*.rs"]))?;
    let mut found = BTreeSet::new();
    let mut keys = BTreeSet::new();
    for file in listed.lines().filter(|f| !f.starts_with("crates/conf/")) {
        // A file that was removed is listed until that is committed.
        let Ok(text) = std::fs::read_to_string(sh::repo().join(file)) else { continue };
        if file.contains("/tests/") || file.ends_with("tests.rs") {
            continue;
        }
        let text = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
        // The simulation sets options, and obeys none.
        if !file.starts_with("crates/sim/") {
            keys.extend(keys_of(text));
        }
        found.extend(names_of(text).map(|name| format!("{file} {name}")));
        reads(file, text, breaches);
    }
    compare(&found, &std::fs::read_to_string(sh::repo().join(LIST))?, breaches);
    let unused = conf::OPTIONS.iter().filter(|o| !keys.contains(&o.name.to_uppercase()));
    breaches.extend(unused.map(|o| {
        format!(
            "no code asks for conf::key::{}: the table says it is obeyed",
            o.name.to_uppercase()
        )
    }));
    Ok(())
}

fn compare(found: &BTreeSet<String>, list: &str, breaches: &mut Vec<String>) {
    let mut allowed = BTreeSet::new();
    for line in list.lines().filter(|l| !l.starts_with('#')) {
        match line.split_once(": ") {
            Some((place, reason)) if !reason.trim().is_empty() => {
                allowed.insert(place.to_owned());
            }
            _ => breaches.push(format!("{LIST}: no reason in {line:?}")),
        }
    }
    for place in found.difference(&allowed) {
        breaches.push(format!("{place}: the name of an option in a string; ask by conf::key"));
    }
    for place in allowed.difference(found) {
        breaches.push(format!("{LIST}: there is no string {place}"));
    }
    if allowed.len() > LINES_MAX {
        breaches.push(format!("{LIST}: {} lines; {LINES_MAX} are left to mend", allowed.len()));
    }
}

/// Constants of `conf::key` that are named.
fn keys_of(text: &str) -> impl Iterator<Item = String> {
    let is_part = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
    text.split("key::").skip(1).filter_map(move |rest| {
        let len = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
        (len > 0).then(|| rest[..len].to_owned())
    })
}

/// String literals that are names of options in whole. Those of one word are words of other things, too.
fn names_of(text: &str) -> impl Iterator<Item = &str> {
    let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    let words = code.flat_map(|line| line.split('"').skip(1));
    words.filter(|word| word.contains('_') && conf::option(word).is_some())
}

fn reads(file: &str, text: &str, breaches: &mut Vec<String>) {
    for (n, line) in text.lines().enumerate() {
        for read in READS {
            for receiver in ["config", "conf", "options", "config()", "borrow()"] {
                let asked = line.split_once(&format!("{receiver}.{read}(\""));
                let name = asked.and_then(|(_, rest)| rest.split('"').next());
                // Those of the manager's modules are upstream's.
                if let Some(name) = name.filter(|name| !name.starts_with("mgr/")) {
                    breaches.push(format!("{file}:{}: asks for {name} without its key", n + 1));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = r#"
        // "osd_journal" in a comment
        let bytes = config.get(key::OSD_JOURNAL_SIZE);
        let old = config.text("fsid");
        let data = json!({"osd_data": 1, "key": 2, "osd_dat": 3});
        let module = config.text("mgr/prometheus/server_port");
    "#;

    #[test]
    fn finds_names_in_strings() {
        assert_eq!(names_of(SOURCE).collect::<Vec<_>>(), ["osd_data"]);
        assert_eq!(keys_of(SOURCE).collect::<Vec<_>>(), ["OSD_JOURNAL_SIZE"]);
        let mut breaches = Vec::new();
        reads("a.rs", SOURCE, &mut breaches);
        assert_eq!(breaches, ["a.rs:4: asks for fsid without its key"]);
    }

    #[test]
    fn the_list_is_what_is_there() {
        let found = ["a.rs osd_data", "a.rs mon_data"].map(str::to_owned).into();
        let list =
            "# comment\na.rs osd_data: a key of the answer\na.rs gone: why\na.rs mon_data:\n";
        let mut breaches = Vec::new();
        compare(&found, list, &mut breaches);
        assert_eq!(breaches.len(), 3, "{breaches:?}");
        assert!(breaches[0].contains("no reason in \"a.rs mon_data:\""));
        assert!(breaches[1].starts_with("a.rs mon_data: the name of an option"));
        assert!(breaches[2].contains("no string a.rs gone"));
    }
}
