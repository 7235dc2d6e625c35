//! Scrub: begun, held, told of.
//!
//! Source: the peer's `MDSRank::command_scrub_*`, `ScrubStack::scrub_status`.

use bytes::Bytes;
use maps::fs::inos;
use serde_json::{Map, Value, json};
use types::Errno;

use super::{Done, Said, fail};
use crate::AskId;
use crate::rank::Rank;
use crate::scrub::{Start, State, Wish};

/// A tag is stored at each inode's object: longer ones are refused.
const TAG_MAX: usize = 255;

/// Words of an argument that may come several times, or with commas between.
fn words(value: &Value) -> Vec<&str> {
    let all = match value {
        Value::Array(all) => all.iter().filter_map(Value::as_str).collect(),
        Value::String(one) => vec![one.as_str()],
        _ => Vec::new(),
    };
    all.into_iter().flat_map(|w| w.split(',')).filter(|w| !w.is_empty()).collect()
}

impl Rank {
    pub(super) fn on_scrub_start(&mut self, ask: AskId, command: &Value) {
        match self.wished_scrub(ask, command) {
            Ok(start) => {
                if !self.scrub_start(start) {
                    self.say_start(ask, Err(Errno::BUSY));
                }
            }
            Err((e, why)) => self.say_words(ask, e.0, why),
        }
    }

    /// A scrub of everything below, for the tag that it leaves.
    pub(super) fn on_tag_path(&mut self, ask: AskId, command: &Value) {
        let (path, tag) = (&command["path"], &command["tag"]);
        if tag.as_str().is_none_or(str::is_empty) {
            return self.say_words(ask, Errno::INVAL.0, "name a tag".to_owned());
        }
        let scrub = json!({"path": path, "tag": tag, "scrubops": ["recursive", "force"]});
        self.on_scrub_start(ask, &scrub);
    }

    fn wished_scrub(&mut self, ask: AskId, command: &Value) -> Result<Start, (Errno, String)> {
        if !self.is_active() {
            return fail(Errno::AGAIN, "the rank is not active yet: try again");
        }
        let path = command["path"].as_str().unwrap_or_default();
        let mut wish = Wish::default();
        for word in words(&command["scrubops"]) {
            match word {
                "force" => wish.force = true,
                "recursive" => wish.recursive = true,
                "repair" => wish.repair = true,
                "scrub_mdsdir" => wish.mds_dir = path == "/",
                _ => return fail(Errno::INVAL, format!("scrub knows no '{word}'")),
            }
        }
        if wish.repair && self.read_only.is_some() {
            return fail(crate::errno::ROFS, "the server is read-only: nothing can be repaired");
        }
        let tag = command["tag"].as_str().unwrap_or_default().to_owned();
        if tag.len() > TAG_MAX {
            return fail(Errno::INVAL, format!("a tag has at most {TAG_MAX} bytes"));
        }
        wish.tagged = !tag.is_empty();
        let tag = if wish.tagged { tag } else { self.new_scrub_tag() };
        let own = inos::mds_dir(self.id as u64);
        let (at, names) = match path.strip_prefix("~mds") {
            Some("dir") => (own, ""),
            Some(rank) if rank.parse() == Ok(self.id) => (own, ""),
            _ => (inos::ROOT, path),
        };
        let names = names.split('/').filter(|n| !n.is_empty());
        let rest = names.rev().map(|n| Bytes::copy_from_slice(n.as_bytes())).collect();
        Ok(Start { ask, at, rest, tag, wish })
    }

    /// Answers `scrub start` with its tag. An error is no error of the command, as on a stock
    /// server.
    pub fn say_start(&mut self, ask: AskId, result: Result<String, Errno>) {
        let value = match result {
            Ok(tag) => json!({"return_code": 0, "scrub_tag": tag, "mode": "asynchronous"}),
            Err(e) => json!({"return_code": e.0}),
        };
        self.say(ask, 0, &value);
    }

    /// Answers `scrub pause` and `scrub abort`.
    pub fn say_control(&mut self, ask: AskId, result: Errno) {
        self.say(ask, 0, &json!({"message": "", "return_code": result.0}));
    }

    pub(super) fn on_scrub_pause(&mut self, ask: AskId) {
        if let Some(result) = self.scrub_pause(ask) {
            self.say_control(ask, result);
        }
    }

    pub(super) fn on_scrub_abort(&mut self, ask: AskId) {
        if let Some(result) = self.scrub_abort(ask) {
            self.say_control(ask, result);
        }
    }

    pub(super) fn scrub_status(&self) -> Value {
        let s = &self.scrubs;
        let stacked = format!("({} inodes in the stack)", s.stacked());
        let status = match (s.state, s.aborts) {
            (State::Idle, _) if s.all.is_empty() => "no active scrubs running".to_owned(),
            (State::Idle, _) => "IDLE (waiting for more scrubs)".to_owned(),
            (State::Running, false) => format!("scrub active {stacked}"),
            (State::Running, true) => format!("ABORTING {stacked}"),
            (state, false) => format!("{} {stacked}", state.text()),
            (state, true) => format!("{}+ABORTING {stacked}", state.text()),
        };
        let mut scrubs = Map::new();
        for (tag, scrub) in &s.all {
            let (path, options) = (self.scrub_path(scrub.origin), scrub.wish.text());
            let one = json!({"path": path, "tag": **tag, "options": options});
            scrubs.insert(tag.to_string(), one);
        }
        let mut stats = Map::new();
        for (tag, stat) in &s.stats {
            let one = json!({
                "start_time": stat.began.to_string(),
                "path": stat.path,
                "uninline_started": 0,
                "uninline_passed": 0,
                "uninline_failed": 0,
                "uninline_skipped": 0,
            });
            stats.insert(tag.to_string(), one);
        }
        json!({"status": status, "scrubs": scrubs, "scrub_stats": stats})
    }

    /// Forgets what is told of one scrub, or of all of them.
    pub(super) fn scrub_purge_status(&mut self, command: &Value) -> Done {
        match command["tag"].as_str() {
            None | Some("") => return fail(Errno::INVAL, "name a tag, or all"),
            Some("all") => self.scrubs.stats.clear(),
            Some(tag) => drop(self.scrubs.stats.remove(tag)),
        }
        Ok(Said::Words(String::new()))
    }
}
