//! Sessions of clients: listed by filters, evicted, configured.
//!
//! Source: the peer's `SessionFilter::parse`, `Session::dump`.

use bytes::Bytes;
use serde_json::{Map, Value, json};
use types::Errno;

use super::{Done, Said, fail, int};
use crate::capset::caps_text;
use crate::rank::Rank;
use crate::session::{Life, Session};

/// Which sessions are meant.
#[derive(Debug, Default, PartialEq)]
struct Filter {
    id: Option<i64>,
    auth_name: Option<String>,
    state: Option<String>,
    reconnecting: Option<bool>,
    metadata: Vec<(String, String)>,
}

impl Filter {
    /// Reads `KEY=VALUE` words; a number alone is an id. EINVAL for other words.
    fn parse(words: &[&str]) -> Result<Self, (Errno, String)> {
        let mut filter = Self::default();
        for word in words {
            let (key, value) = match word.split_once('=') {
                Some(pair) => pair,
                None if word.parse::<i64>().is_ok() => ("id", *word),
                None => return fail(Errno::INVAL, format!("Invalid filter '{word}'")),
            };
            match key {
                "id" => match value.parse() {
                    Ok(id) => filter.id = Some(id),
                    Err(_) => return fail(Errno::INVAL, format!("Invalid id '{value}'")),
                },
                "auth_name" => filter.auth_name = Some(value.to_owned()),
                "state" => filter.state = Some(value.to_owned()),
                "reconnecting" => match value {
                    "true" | "1" => filter.reconnecting = Some(true),
                    "false" | "0" => filter.reconnecting = Some(false),
                    _ => return fail(Errno::INVAL, format!("Invalid boolean '{value}'")),
                },
                _ => match key.strip_prefix("client_metadata.") {
                    Some(name) => filter.metadata.push((name.to_owned(), value.to_owned())),
                    None => return fail(Errno::INVAL, format!("Invalid filter key '{key}'")),
                },
            }
        }
        Ok(filter)
    }

    fn fits(&self, client: i64, s: &Session) -> bool {
        let kv = |name: &str| s.info.metadata.kv.get(name.as_bytes());
        self.id.is_none_or(|id| id == client)
            && self.auth_name.as_ref().is_none_or(|name| *name == s.info.auth_name.id)
            && self.state.as_ref().is_none_or(|state| state == state_of(s))
            && self.reconnecting.is_none_or(|r| r == s.awaited)
            && self.metadata.iter().all(|(k, v)| kv(k).is_some_and(|have| have == v.as_bytes()))
    }
}

fn state_of(s: &Session) -> &'static str {
    match s.life {
        Life::Open => "open",
        Life::Stale => "stale",
        Life::Killing => "killing",
    }
}

fn words(command: &Value) -> Vec<&str> {
    let list = command["filters"].as_array().map(|all| all.iter().filter_map(Value::as_str));
    list.map_or_else(|| command["filters"].as_str().into_iter().collect(), Iterator::collect)
}

impl Rank {
    pub(super) fn session_ls(&self, command: &Value) -> Done {
        let filter = Filter::parse(&words(command))?;
        let with_caps = command["cap_dump"].as_bool().unwrap_or(false);
        let found = self.sessions.by_client.iter().filter(|(client, s)| filter.fits(**client, s));
        let one = |(client, s): (&i64, &Session)| self.show_session(*client, s, with_caps);
        Ok(Said::Value(found.map(one).collect()))
    }

    fn show_session(&self, client: i64, s: &Session, with_caps: bool) -> Value {
        let now = self.world.ms();
        let half_life_ms = self.world.config.options.throttle.half_life_ms;
        let hex = |n: u64| format!("{n:#x}");
        let text = |b: &Bytes| String::from_utf8_lossy(b).into_owned();
        let mut metadata: Map<String, Value> =
            s.info.metadata.kv.iter().map(|(k, v)| (text(k), Value::String(text(v)))).collect();
        let features = s.info.metadata.features.text();
        metadata.insert("client_features".to_owned(), json!({"feature_bits": features}));
        let metrics = s.info.metadata.metrics.kinds.text();
        let metrics = json!({"metric_flags": {"feature_bits": metrics}});
        metadata.insert("metric_spec".to_owned(), metrics);
        let done = s.info.completed_requests.iter();
        let done = done.map(|(tid, ino)| json!({"tid": tid, "created_ino": hex(ino.0)}));
        let inos = s.info.prealloc_inos.iter();
        let inos = inos.map(|(start, length)| json!({"start": hex(start), "length": length}));
        let name = &s.info.auth_name;
        let addr = &s.info.inst.addr;
        let mut value = json!({
            "id": client,
            "auth_name": {"type": name.kind.0, "type_str": name.kind.name(), "id": name.id},
            "entity": {
                "name": {"type": "client", "num": client},
                "addr": {
                    "type": "any",
                    "addr": addr.sock.map(|a| a.to_string()),
                    "nonce": addr.nonce,
                },
            },
            "state": state_of(s),
            "num_leases": 0,
            "num_caps": s.caps.len(),
            "request_load_avg": 0,
            "uptime": now.saturating_sub(s.since_ms) as f64 / 1000.0,
            "requests_in_flight": self.requests.all.values().filter(|r| r.client == client).count(),
            "num_completed_requests": s.info.completed_requests.len(),
            "num_completed_flushes": s.info.completed_flushes.len(),
            "reconnecting": s.awaited,
            "importing_count": 0,
            "cap_acquisition": {
                "value": s.acquired.get(now, half_life_ms),
                "halflife": half_life_ms as f64 / 1000.0,
            },
            "delegated_inos": [],
            "inst": format!("{} {addr}", s.info.inst.name),
            "completed_requests": done.collect::<Vec<_>>(),
            "prealloc_inos": inos.collect::<Vec<_>>(),
            "client_metadata": metadata,
        });
        if with_caps {
            let caps = s.caps.iter().filter_map(|ino| {
                let cap = self.tree.node(*ino)?.caps.by_client.get(&client)?;
                Some(json!({
                    "ino": hex(ino.0),
                    "last_sent": cap.seq,
                    "pending": caps_text(cap.pending),
                    "issued": caps_text(cap.issued),
                    "wanted": caps_text(cap.wanted),
                }))
            });
            value["caps"] = caps.collect();
        }
        value
    }

    pub(super) fn session_evict(&mut self, command: &Value) -> Done {
        let words = words(command);
        if words.is_empty() {
            return fail(Errno::INVAL, "Invalid or missing filters; use id=CLIENT");
        }
        let filter = Filter::parse(&words)?;
        let all = self.sessions.by_client.iter();
        let found: Vec<i64> = all.filter(|(c, s)| filter.fits(**c, s)).map(|(c, _)| *c).collect();
        if found.is_empty() {
            return Ok(Said::Words("no hosts match".to_owned()));
        }
        for client in found {
            self.evict(client);
        }
        Ok(Said::Words(String::new()))
    }

    /// Sets after how many seconds of silence one session ends; without a value as all others.
    pub(super) fn session_config(&mut self, command: &Value) -> Done {
        let Some(client) = int(&command["client_id"]) else {
            return fail(Errno::INVAL, "Invalid client_id specified");
        };
        let option = command["option"].as_str().unwrap_or_default();
        let value = command["value"].as_str().unwrap_or_default();
        let Some(session) = self.sessions.by_client.get_mut(&client) else {
            return fail(Errno::NOENT, format!("session {client} not in sessionmap!"));
        };
        if option != "timeout" {
            return fail(Errno::INVAL, format!("Invalid config option: {option}"));
        }
        if value.is_empty() {
            session.info.metadata.kv.remove(&b"timeout"[..]);
        } else if value.parse::<u32>().is_ok() {
            let value = Bytes::copy_from_slice(value.as_bytes());
            session.info.metadata.kv.insert(Bytes::from_static(b"timeout"), value);
        } else {
            return fail(Errno::INVAL, format!("'{value}' is no number of seconds"));
        }
        session.dirty = true;
        let info = Some(Box::new(session.info.clone()));
        self.note_session(client, info);
        Ok(Said::Words(String::new()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_are_read() {
        let words = [
            "4120",
            "auth_name=admin",
            "state=open",
            "reconnecting=0",
            "client_metadata.root=/a=b",
        ];
        let want = Filter {
            id: Some(4120),
            auth_name: Some("admin".to_owned()),
            state: Some("open".to_owned()),
            reconnecting: Some(false),
            metadata: vec![("root".to_owned(), "/a=b".to_owned())],
        };
        assert_eq!(Filter::parse(&words).unwrap(), want);
        for (word, why) in [
            ("foo=1", "Invalid filter key 'foo'"),
            ("foo", "Invalid filter 'foo'"),
            ("id=x", "Invalid id 'x'"),
            ("reconnecting=maybe", "Invalid boolean 'maybe'"),
        ] {
            assert_eq!(Filter::parse(&[word]), Err((Errno::INVAL, why.to_owned())));
        }
    }
}
