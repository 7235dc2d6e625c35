//! What a single daemon answers: `ceph tell`, `ceph daemon`.

use std::sync::OnceLock;

use serde_json::{Map, Value, json};

use crate::Sig;

/// A command of one daemon: signature and help.
pub type TellCommand = (&'static str, &'static str);

/// What an OSD answers.
#[rustfmt::skip]
pub const OSD_TELL: &[TellCommand] = &[
    ("bench [count:Int] [size:Int] [object_size:Int] [object_num:Int]", "write that many bytes in pieces of that size and time it"),
    ("cache drop", "drop all caches"),
    ("cache status", "what is cached"),
    ("cluster_log level:{error|warning|info|debug} message:String...", "write a line to the cluster log"),
    ("config diff", "settings that differ from the defaults"),
    ("config diff get var:String", "one setting and its default"),
    ("config get var:String", "a setting"),
    ("config help [var:String]", "options: type, default, meaning"),
    ("config set var:String val:String...", "change a setting until restart"),
    ("config show", "all settings"),
    ("config unset var:String", "undo config set"),
    ("counter dump", "counters, in the form with labels"),
    ("counter schema", "what the counters mean, in the form with labels"),
    ("deep-scrub [pgid:Pgid]", "scrub a PG and read all its data"),
    ("dump_blocklist", "clients kept out"),
    ("dump_historic_ops [filterstr:String...]", "operations of the last minutes"),
    ("dump_ops_in_flight [filterstr:String...]", "operations under way"),
    ("dump_pgstate_history", "how PGs came to their state"),
    ("dump_watchers", "watches on objects"),
    ("flush_pg_stats", "report PG statistics now"),
    ("get_command_descriptions", "what can be asked"),
    ("get_latest_osdmap", "catch up with the OSD map"),
    ("get_mapped_pools", "pools with a PG here"),
    ("help", "what can be asked"),
    ("injectargs injected_args:String...", "change settings until restart"),
    ("list_unfound [pgid:Pgid] [offset:String]", "objects no OSD has"),
    ("ops [filterstr:String...]", "operations under way"),
    ("perf dump [logger:String] [counter:String]", "counters"),
    ("perf reset var:String", "set counters back"),
    ("perf schema", "what the counters mean"),
    ("pg pgid:Pgid cmd:{query}", "a PG's state"),
    ("pg pgid:Pgid cmd:{list_unfound} [offset:String]", "objects no OSD has"),
    ("pg pgid:Pgid cmd:{scrub}", "scrub a PG"),
    ("pg pgid:Pgid cmd:{deep-scrub}", "scrub a PG and read all its data"),
    ("query", "a PG's state"),
    ("scrub [pgid:Pgid]", "scrub a PG"),
    ("status", "this OSD at a glance"),
    ("version", "this daemon's version"),
];

/// What a monitor answers when asked itself.
#[rustfmt::skip]
pub const MON_TELL: &[TellCommand] = &[
    ("compact", "compact the store"),
    ("config diff", "settings that differ from the defaults"),
    ("config diff get var:String", "one setting and its default"),
    ("config get var:String", "a setting"),
    ("config help [var:String]", "options: type, default, meaning"),
    ("config set var:String val:String...", "change a setting until restart"),
    ("config show", "all settings"),
    ("config unset var:String", "undo config set"),
    ("counter dump", "counters, in the form with labels"),
    ("counter schema", "what the counters mean, in the form with labels"),
    ("dump_historic_ops", "operations of the last minutes"),
    ("get_command_descriptions", "what can be asked"),
    ("help", "what can be asked"),
    ("injectargs injected_args:String...", "change settings until restart"),
    ("mon_status", "this monitor's state"),
    ("ops", "operations under way"),
    ("perf dump [logger:String] [counter:String]", "counters"),
    ("perf schema", "what the counters mean"),
    ("quorum_status", "the quorum"),
    ("sessions", "clients connected here"),
    ("status", "the cluster at a glance"),
    ("version", "this daemon's version"),
];

fn render(table: &[TellCommand]) -> String {
    let mut out = Map::new();
    for (i, (text, help)) in table.iter().enumerate() {
        if let Some(sig) = Sig::parse(text) {
            let entry = json!({
                "sig": sig.to_json(false), "help": help, "module": "", "perm": "", "flags": 0,
            });
            out.insert(format!("cmd{i:03}"), entry);
        }
    }
    Value::Object(out).to_string()
}

/// An OSD's answer to `get_command_descriptions`.
#[must_use]
pub fn osd_tell_descriptions() -> &'static str {
    static TEXT: OnceLock<String> = OnceLock::new();
    TEXT.get_or_init(|| render(OSD_TELL))
}

/// A monitor's answer to `get_command_descriptions` when asked itself.
#[must_use]
pub fn mon_tell_descriptions() -> &'static str {
    static TEXT: OnceLock<String> = OnceLock::new();
    TEXT.get_or_init(|| render(MON_TELL))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_well_formed() {
        for (text, help) in OSD_TELL.iter().chain(MON_TELL) {
            assert!(Sig::parse(text).is_some() && !help.is_empty(), "{text}");
        }
        let parsed: Value = serde_json::from_str(osd_tell_descriptions()).unwrap();
        assert_eq!(parsed.as_object().unwrap().len(), OSD_TELL.len());
    }
}
