//! `.meta` of a subvolume: sections of words, as Python's `configparser` writes them.

/// Bytes of a `.meta`; a longer one is not read.
pub(super) const BYTES_MAX: u64 = 1 << 20;

pub(super) const GLOBAL: &str = "GLOBAL";
pub(super) const SOURCE: &str = "source";
pub(super) const CLONES: &str = "clone snaps";
pub(super) const USER: &str = "USER_METADATA";
pub(super) const FAILURE: &str = "CLONE_FAILURE";

/// The section of a snapshot's own words.
pub(super) fn of_snapshot(name: &str) -> String {
    format!("SNAP_METADATA_{name}")
}

type Section = (String, Vec<(String, String)>);

/// Sections in order, words in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Meta(Vec<Section>);

impl Meta {
    /// Reads it; lines without meaning are left out. A line that begins with a blank goes on with the
    /// value before.
    pub fn parse(text: &str) -> Self {
        let mut all: Vec<Section> = Vec::new();
        for line in text.lines() {
            let is_more = line.starts_with([' ', '\t']);
            let line = line.trim();
            if line.is_empty() || line.starts_with(['#', ';']) {
                continue;
            }
            let words = all.last_mut().map(|(_, words)| words);
            if is_more && let Some((_, value)) = words.and_then(|w| w.last_mut()) {
                value.push('\n');
                value.push_str(line);
            } else if let Some(name) = line.strip_prefix('[').and_then(|l| l.strip_suffix(']')) {
                all.push((name.to_owned(), Vec::new()));
            } else if let Some((_, words)) = all.last_mut()
                && let Some((key, value)) = line.split_once('=')
            {
                words.push((key.trim().to_owned(), value.trim().to_owned()));
            }
        }
        Self(all)
    }

    pub fn text(&self) -> String {
        let mut text = String::new();
        for (name, words) in &self.0 {
            text.push_str(&format!("[{name}]\n"));
            for (key, value) in words {
                text.push_str(&format!("{key} = {}\n", value.replace('\n', "\n\t")));
            }
            text.push('\n');
        }
        text
    }

    pub fn section(&self, name: &str) -> &[(String, String)] {
        let found = self.0.iter().find(|(n, _)| n == name);
        found.map_or(&[], |(_, words)| words)
    }

    pub fn get(&self, section: &str, key: &str) -> Option<&str> {
        self.section(section).iter().find(|(k, _)| k == key).map(|(_, v)| &**v)
    }

    pub fn set(&mut self, section: &str, key: &str, value: &str) {
        let at = match self.0.iter().position(|(n, _)| n == section) {
            Some(at) => at,
            None => {
                self.0.push((section.to_owned(), Vec::new()));
                self.0.len() - 1
            }
        };
        let words = &mut self.0[at].1;
        match words.iter_mut().find(|(k, _)| k == key) {
            Some((_, old)) => value.clone_into(old),
            None => words.push((key.to_owned(), value.to_owned())),
        }
    }

    /// Removes a word, and its section with the last one; `false` where it is not there.
    pub fn remove(&mut self, section: &str, key: &str) -> bool {
        let Some((_, words)) = self.0.iter_mut().find(|(n, _)| n == section) else { return false };
        let before = words.len();
        words.retain(|(k, _)| k != key);
        let removed = words.len() < before;
        if words.is_empty() {
            self.remove_section(section);
        }
        removed
    }

    pub fn remove_section(&mut self, section: &str) {
        self.0.retain(|(n, _)| n != section);
    }
}

/// Whether a word and its value can be kept as they are.
pub(super) fn is_key(key: &str) -> bool {
    let bad = |c: char| c.is_control() || matches!(c, '=' | ':' | '[' | ']');
    !key.is_empty() && !key.contains(bad) && key.trim() == key && !key.starts_with(['#', ';'])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As 20.2.4 wrote one of a clone.
    const STOCK: &str = "[GLOBAL]\nversion = 2\ntype = clone\npath = /volumes/_nogroup/c1/u\nstate = complete\n\n[source]\nvolume = v\nsubvolume = sv1\nsnapshot = sn1\n\n";

    #[test]
    fn reads_and_writes_as_the_peer() {
        let mut meta = Meta::parse(STOCK);
        assert_eq!(meta.text(), STOCK);
        assert_eq!(meta.get(GLOBAL, "type"), Some("clone"));
        meta.set(USER, "k", "two\nlines");
        let again = Meta::parse(&meta.text());
        assert_eq!(again, meta);
        assert!(meta.remove(USER, "k") && !meta.remove(USER, "k"));
        assert_eq!(meta.text(), STOCK);
        assert_eq!(
            Meta::parse("x = 1\n[a]\nnonsense\n# k = v\nb = c = d\n").get("a", "b"),
            Some("c = d")
        );
        assert!(is_key("csi.storage.k8s.io/pvc/name") && !is_key("a=b") && !is_key("[x"));
    }
}
