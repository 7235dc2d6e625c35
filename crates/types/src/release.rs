//! Who we say we are: the release of Ceph whose protocols we speak, and what we are.

use std::sync::OnceLock;

/// The release as three numbers.
pub const NUMBER: &str = "20.2.4";
/// The release's name.
pub const NAME: &str = "tentacle";
/// How finished a build of that release is.
pub const TYPE: &str = "stable";
/// What speaks in its name.
pub const IMPLEMENTATION: &str = concat!("argonaut ", env!("CARGO_PKG_VERSION"));

/// Names of upstream's releases, from 1 on.
const NAMES: [&str; 20] = [
    "argonaut",
    "bobtail",
    "cuttlefish",
    "dumpling",
    "emperor",
    "firefly",
    "giant",
    "hammer",
    "infernalis",
    "jewel",
    "kraken",
    "luminous",
    "mimic",
    "nautilus",
    "octopus",
    "pacific",
    "quincy",
    "reef",
    "squid",
    "tentacle",
];

/// The name of a release of upstream's by its number; `None` for one that is not known.
#[must_use]
pub fn name_of(number: u8) -> Option<&'static str> {
    NAMES.get(usize::from(number.checked_sub(1)?)).copied()
}

static COMMIT: OnceLock<&'static str> = OnceLock::new();

/// Names the commit that the program was built of: 40 hex digits. The program's first act.
pub fn set_commit(commit: &'static str) {
    let hex = commit.len() == 40 && commit.bytes().all(|b| b.is_ascii_hexdigit());
    if hex {
        COMMIT.set(commit).ok();
    }
}

/// The commit that the program was built of; zeros where nobody knows.
#[must_use]
pub fn commit() -> &'static str {
    COMMIT.get().copied().unwrap_or("0000000000000000000000000000000000000000")
}

/// The line that every daemon and program prints of itself, as upstream's tools take it apart:
/// `ceph version NUMBER (COMMIT) NAME (TYPE - IMPLEMENTATION)`.
#[must_use]
pub fn version() -> String {
    format!("ceph version {NUMBER} ({}) {NAME} ({TYPE} - {IMPLEMENTATION})", commit())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What tools look for: `ceph version (\d+)\.(\d+)\.(\d+)`, and the commit in brackets.
    #[test]
    fn tools_can_take_it_apart() {
        set_commit("not a commit");
        let version = version();
        let rest = version.strip_prefix("ceph version 20.2.4 (").unwrap();
        let (commit, rest) = rest.split_once(") ").unwrap();
        assert_eq!((commit, commit.len()), ("0".repeat(40).as_str(), 40));
        assert!(rest.starts_with("tentacle (stable - argonaut ") && rest.ends_with(')'));
    }
}
