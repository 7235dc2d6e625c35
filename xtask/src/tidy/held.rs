//! Every collection in the state of a role has a bound, and the bound is written down: `held.txt`.
//!
//! What a peer makes grow is what it can end a daemon with. A field with a list, queue or map that
//! has no line there is a breach, and so are a line without its field and a bound that names a
//! constant which does not exist.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;

use crate::sh;

const LIST: &str = "xtask/src/tidy/held.txt";
/// Where roles are.
const ROLES: [&str; 3] = ["crates/mon/src/", "crates/osd/src/", "crates/mds/src/"];
const COLLECTIONS: [&str; 8] =
    ["Vec<", "VecDeque<", "BTreeMap<", "BTreeSet<", "HashMap<", "HashSet<", "FastMap<", "FastSet<"];

/// Compares the list with the sources.
///
/// # Errors
/// When one of them cannot be read.
pub fn check(breaches: &mut Vec<String>) -> Result<()> {
    let mut git = std::process::Command::new("git");
    let listed = sh::output(git.current_dir(sh::repo()).args(["ls-files"]))?;
    let mut fields = BTreeSet::new();
    let mut constants = BTreeSet::new();
    for name in listed.lines().filter(|n| ROLES.iter().any(|r| n.starts_with(r))) {
        // A file that was removed is listed until that is committed.
        let Ok(text) = std::fs::read_to_string(sh::repo().join(name)) else { continue };
        constants.extend(constants_of(&text));
        if !name.contains("/tests/") && !name.ends_with("tests.rs") {
            fields.extend(collections_of(&text).into_iter().map(|f| format!("{name} {f}")));
        }
    }
    let text = std::fs::read_to_string(sh::repo().join(LIST))?;
    compare(&fields, &constants, &text, breaches);
    Ok(())
}

fn compare(
    fields: &BTreeSet<String>,
    constants: &BTreeSet<String>,
    list: &str,
    breaches: &mut Vec<String>,
) {
    let mut bounds = BTreeMap::new();
    for line in list.lines().filter(|l| !l.starts_with('#')) {
        match line.split_once(": ") {
            Some((field, bound)) if !bound.trim().is_empty() => {
                bounds.insert(field.to_owned(), bound);
            }
            _ => breaches.push(format!("{LIST}: no bound in {line:?}")),
        }
    }
    for field in fields.iter().filter(|f| !bounds.contains_key(*f)) {
        breaches.push(format!("{field} grows, and has no line with its bound in {LIST}"));
    }
    for (field, bound) in bounds {
        if !fields.contains(&field) {
            breaches.push(format!("{LIST}: there is no collection {field}"));
        }
        let words = bound.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
        let named = words.filter(|w| w.contains('_') && w.chars().all(|c| !c.is_ascii_lowercase()));
        for word in named.filter(|w| !constants.contains(*w)) {
            breaches.push(format!("{LIST}: {field} names {word}, which is no constant"));
        }
    }
}

fn constants_of(text: &str) -> impl Iterator<Item = String> {
    let names = text.lines().filter_map(|line| {
        let rest = line.trim_start().split_once("const ")?.1;
        Some(rest.split_once(':')?.0.to_owned())
    });
    names.filter(|n| n.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_'))
}

/// Fields of structs, `Struct.field`, whose types have a collection in them. Tests are not looked at.
fn collections_of(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut inside = None;
    for line in text.lines() {
        if line.starts_with("#[cfg(test)]") {
            break;
        }
        if let Some(name) = struct_of(line) {
            inside = Some(name);
        } else if line.starts_with('}') {
            inside = None;
        } else if let Some(name) = inside
            && let Some((field, kind)) = field_of(line)
            && COLLECTIONS.iter().any(|c| kind.contains(c))
        {
            found.push(format!("{name}.{field}"));
        }
    }
    found
}

fn without_visibility(line: &str) -> &str {
    let line = line.strip_prefix("pub").unwrap_or(line);
    line.strip_prefix("(crate)")
        .or_else(|| line.strip_prefix("(super)"))
        .unwrap_or(line)
        .trim_start()
}

fn struct_of(line: &str) -> Option<&str> {
    // Those without named fields are a value of another type, which has a line.
    let rest = without_visibility(line).strip_prefix("struct ").filter(|_| line.ends_with('{'))?;
    rest.split(|c: char| !c.is_alphanumeric()).next()
}

fn field_of(line: &str) -> Option<(&str, &str)> {
    let line = line.strip_prefix("    ").filter(|l| !l.starts_with([' ', '/', '#']))?;
    without_visibility(line).split_once(": ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "
const QUEUE_MAX: usize = 3;

/// Something.
pub(crate) struct Queue<'a> {
    /// Doc: Vec<u8> of no field.
    pub list: Vec<u8>,
    pub(crate) by_name: Option<BTreeMap<String, u8>>,
    count: usize,
    part: Cow<'a, str>,
}

pub struct Shared(Rc<Queue>);

impl Shared {
    pub fn set(&self, all: Vec<u8>) {
    }
}

#[cfg(test)]
mod tests {
struct Mine {
    list: Vec<u8>,
}
}
";

    #[test]
    fn finds_what_has_no_bound() {
        assert_eq!(collections_of(SOURCE), ["Queue.list", "Queue.by_name"]);
        let fields = ["a.rs Queue.list", "a.rs Queue.by_name"].map(str::to_owned).into();
        let constants = constants_of(SOURCE).collect();
        let list = "# comment\na.rs Queue.list: QUEUE_MAX\na.rs Queue.gone: OTHER_MAX\n";
        let mut breaches = Vec::new();
        compare(&fields, &constants, list, &mut breaches);
        assert_eq!(breaches.len(), 3, "{breaches:?}");
        assert!(breaches[0].starts_with("a.rs Queue.by_name grows"));
        assert!(breaches[1].contains("no collection a.rs Queue.gone"));
        assert!(breaches[2].contains("OTHER_MAX"));
    }
}
