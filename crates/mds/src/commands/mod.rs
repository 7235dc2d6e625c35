//! Commands of administrators.

use bytes::Bytes;
use serde_json::{Value, json};
use types::Errno;

use crate::rank::Rank;
use crate::session::Life;
use crate::{AskId, Effect};

/// What [`crate::Mds::on_command`] answers: prefix, arguments as `name:CephType`, with `*` where there may be several, help, rights.
pub const COMMANDS: &[(&str, &str, &str, &str)] = &[
    ("session ls", "filters:CephString*?", "List client sessions based on a filter", "r"),
    ("client ls", "filters:CephString*?", "List client sessions based on a filter", "r"),
    ("session evict", "filters:CephString*?", "Evict client session(s) based on a filter", "rw"),
    ("client evict", "filters:CephString*?", "Evict client session(s) based on a filter", "rw"),
    ("flush journal", "", "Flush the journal to the tree", "rw"),
    ("dump inode", "number:CephInt", "dump inode by inode number", "r"),
    ("cache status", "", "show cache status", "r"),
];

impl Rank {
    pub fn on_command(&mut self, ask: AskId, command: &Value) {
        let prefix = command["prefix"].as_str().unwrap_or_default();
        let answer = match prefix {
            "session ls" | "client ls" => Ok(self.session_ls()),
            "session evict" | "client evict" => self.session_evict(command),
            "flush journal" => {
                self.flushes.push(ask);
                return;
            }
            "dump inode" => self.dump_inode(command),
            "perf dump" => Ok(self.perf_dump()),
            "cache status" => Ok(json!({"pool": {"items": self.tree.nodes.len(), "bytes": 0}})),
            _ => Err((Errno::NOSYS, format!("unknown command '{prefix}'"))),
        };
        let (r, rs, output) = match answer {
            Ok(value) => {
                let text = serde_json::to_string_pretty(&value).unwrap_or_default();
                (0, String::new(), Bytes::from(text))
            }
            Err((e, text)) => (e.0, text, Bytes::new()),
        };
        self.fx.push(Effect::Answer { ask, r, rs, output });
    }

    fn session_ls(&self) -> Value {
        let one = |(client, s): (&i64, &crate::session::Session)| {
            let state = match s.life {
                Life::Open => "open",
                Life::Stale => "stale",
                Life::Killing => "killing",
            };
            let kv = s.info.metadata.kv.iter().map(|(k, v)| {
                let text = |b: &Bytes| String::from_utf8_lossy(b).into_owned();
                (text(k), Value::String(text(v)))
            });
            json!({
                "id": client,
                "entity": {
                    "name": {"type": "client", "num": client},
                    "addr": {"type": "any", "addr": s.info.inst.addr.sock.map(|a| a.to_string()), "nonce": s.info.inst.addr.nonce},
                },
                "state": state,
                "num_leases": 0,
                "num_caps": s.caps.len(),
                "request_load_avg": 0,
                "uptime": 0.0,
                "requests_in_flight": self.requests.all.values().filter(|r| r.client == *client).count(),
                "num_completed_requests": s.info.completed_requests.len(),
                "num_completed_flushes": s.info.completed_flushes.len(),
                "reconnecting": s.awaited,
                "inst": format!("{} {}", s.info.inst.name, s.info.inst.addr),
                "completed_requests": [],
                "prealloc_inos": s.info.prealloc_inos.iter().map(|(start, length)| json!({"start": start, "length": length})).collect::<Vec<_>>(),
                "client_metadata": Value::Object(kv.collect()),
            })
        };
        Value::Array(self.sessions.by_client.iter().map(one).collect())
    }

    fn session_evict(&mut self, command: &Value) -> Result<Value, (Errno, String)> {
        let words = command["filters"].as_array().cloned().unwrap_or_default();
        let ids: Vec<i64> = words
            .iter()
            .filter_map(|w| w.as_str()?.trim_start_matches("id=").parse().ok())
            .collect();
        if ids.is_empty() {
            let why = "Invalid or missing filters; use id=<client>".to_owned();
            return Err((Errno::INVAL, why));
        }
        for id in ids {
            self.evict(id);
        }
        Ok(json!({}))
    }

    fn dump_inode(&self, command: &Value) -> Result<Value, (Errno, String)> {
        let number = &command["number"];
        let ino = number.as_u64().or_else(|| number.as_str()?.parse().ok());
        let ino = types::Ino(ino.ok_or((Errno::INVAL, "invalid inode number".to_owned()))?);
        let Some(node) = self.tree.node(ino) else {
            return Err((Errno::NOENT, "inode not found".to_owned()));
        };
        let i = &node.store.inode;
        Ok(json!({
            "ino": i.ino.0,
            "path": format!("/{}", String::from_utf8_lossy(&self.tree.path(ino))),
            "mode": i.mode, "uid": i.uid, "gid": i.gid, "nlink": i.nlink,
            "size": i.file.size, "version": i.versions.version,
            "client_caps": node.caps.by_client.iter().map(|(client, cap)| json!({
                "client_id": client, "pending": cap.pending, "issued": cap.issued,
                "wanted": cap.wanted, "last_sent": cap.seq,
            })).collect::<Vec<_>>(),
        }))
    }

    fn perf_dump(&self) -> Value {
        let dirs = self.tree.nodes.values().map(|n| n.frags.len()).sum::<usize>();
        let caps: usize = self.sessions.by_client.values().map(|s| s.caps.len()).sum();
        json!({
            "mds_mem": {"ino": self.tree.nodes.len(), "dir": dirs, "cap": caps},
            "mds_sessions": {"session_count": self.sessions.by_client.len()},
            "mds_cache": {"num_strays": self.purger.look.len() + self.purger.active.len()},
            "mds_log": {"wrpos": self.journal.bytes(), "seq": self.journal.submitted},
        })
    }
}
