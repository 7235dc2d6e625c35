//! What comes from others: licences, sources, versions of the same crate side by side.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};

use crate::sh;

/// Licences under which others' code may be in the binary (SPDX names).
const LICENCES: &[&str] =
    &["Apache-2.0", "MIT", "BSD-2-Clause", "BSD-3-Clause", "ISC", "Unicode-3.0", "Zlib"];

/// Crates that the tree may hold in more than one version, and in how many: others ask for them. Numbers may only fall.
const SEVERAL_VERSIONS: &[(&str, usize)] = &[
    ("crypto-common", 2),
    ("foldhash", 2),
    ("getrandom", 3),
    ("hashbrown", 2),
    ("r-efi", 2),
    ("rand", 3),
    ("rand_chacha", 2),
    ("rand_core", 3),
    ("spin", 2),
    ("syn", 2),
    ("thiserror", 2),
    ("thiserror-impl", 2),
    ("wasmparser", 2),
    ("windows-sys", 2),
];

/// The resolved tree, as `cargo metadata` prints it.
///
/// # Errors
/// When cargo fails, among others because Cargo.lock does not fit the manifests.
pub fn metadata() -> Result<serde_json::Value> {
    let text = sh::output(&mut sh::cargo(&["metadata", "--format-version", "1", "--locked"]))?;
    serde_json::from_str(&text).context("cargo metadata prints JSON")
}

/// Checks licences, sources and versions of all packages that are not ours.
pub fn check(metadata: &serde_json::Value, breaches: &mut Vec<String>) {
    let packages = metadata["packages"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for package in packages.iter().filter(|p| !p["source"].is_null()) {
        let text = |key: &str| package[key].as_str().unwrap_or_default();
        let (name, version, source) = (text("name"), text("version"), text("source"));
        versions.entry(name).or_default().insert(version);
        if !source.starts_with("registry+") || !source.ends_with("/crates.io-index") {
            breaches.push(format!("{name} {version} comes from {source}, not from the registry"));
        }
        if !licence_fits(text("license")) {
            breaches.push(format!(
                "{name} {version}: licence {:?} is not in LICENCES",
                text("license")
            ));
        }
    }
    for (name, found) in versions.iter().filter(|(_, v)| v.len() > 1) {
        let allowed = SEVERAL_VERSIONS.iter().find(|(n, _)| n == name).map_or(1, |(_, most)| *most);
        if found.len() > allowed {
            breaches.push(format!("{name} is in the tree {} times: {found:?}", found.len()));
        }
    }
}

/// Whether an SPDX expression can be met with [`LICENCES`]. `/` is the old spelling of OR.
fn licence_fits(expression: &str) -> bool {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut at = 0;
    let fits = any(&words, &mut at);
    fits && at == words.len()
}

/// Alternatives: one of them must fit. All are read, so that `at` ends behind them.
fn any(words: &[&str], at: &mut usize) -> bool {
    let mut fits = every(words, at);
    while words.get(*at) == Some(&"OR") {
        *at += 1;
        fits |= every(words, at);
    }
    fits
}

fn every(words: &[&str], at: &mut usize) -> bool {
    let mut fits = single(words, at);
    while words.get(*at) == Some(&"AND") {
        *at += 1;
        fits &= single(words, at);
    }
    fits
}

/// One licence, with its exception (which only gives rights), or an expression in brackets.
fn single(words: &[&str], at: &mut usize) -> bool {
    let Some(word) = words.get(*at) else { return false };
    *at += 1;
    if *word == "(" {
        let fits = any(words, at);
        *at += 1;
        return fits && words.get(*at - 1) == Some(&")");
    }
    if words.get(*at) == Some(&"WITH") {
        *at += 2;
    }
    LICENCES.contains(word)
}

#[cfg(test)]
mod tests {
    use super::licence_fits;

    #[test]
    fn expressions_are_met_or_not() {
        for fits in [
            "MIT",
            "Unlicense OR MIT",
            "MIT/Apache-2.0",
            "(MIT OR Apache-2.0) AND Unicode-3.0",
            "GPL-3.0 WITH x OR Apache-2.0 WITH LLVM-exception",
            "ISC AND (GPL-2.0 OR ISC OR (MIT AND Zlib))",
        ] {
            assert!(licence_fits(fits), "{fits}");
        }
        for bad in
            ["", "GPL-3.0", "MIT AND GPL-3.0", "ISC AND (GPL-2.0 OR LGPL-2.1)", "(MIT", "MIT MIT"]
        {
            assert!(!licence_fits(bad), "{bad}");
        }
    }
}
