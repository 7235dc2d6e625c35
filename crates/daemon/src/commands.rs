//! Commands that every daemon answers the same way, by admin socket and by `ceph tell`: its options,
//! its version, what else it can be asked. A role brings a table of its own commands beside.
//!
//! Source: the peer's `common/ceph_context.cc`, `common/admin_socket.cc`.

use bytes::Bytes;
use conf::{Config, Source};
use serde_json::{Map, Value, json};
use types::{Errno, release};

/// One command.
#[derive(Clone, Copy, Debug)]
pub struct CommandSpec {
    /// Its words.
    pub name: &'static str,
    /// Arguments as `name:CephType`, with `*` behind what may come several times and `?` behind
    /// what may be left out, `*?` for both.
    pub args: &'static str,
    /// A sentence for people.
    pub help: &'static str,
    /// `r`, or `rw` where it changes something.
    pub perm: &'static str,
}

/// Makes a [`CommandSpec`] from a row of a table.
#[must_use]
pub const fn command(
    name: &'static str,
    args: &'static str,
    help: &'static str,
    perm: &'static str,
) -> CommandSpec {
    CommandSpec { name, args, help, perm }
}

/// What [`common`] answers.
pub const COMMON: &[CommandSpec] = &[
    command("config diff", "", "dump diff of current config and default config", "r"),
    command("config get", "var:CephString", "config get <field>: get the config value", "r"),
    command("config help", "var:CephString?", "get config setting schema and descriptions", "r"),
    command(
        "config set",
        "var:CephString val:CephString*",
        "config set <field> <val> [<val> ...]: set a config variable",
        "rw",
    ),
    command("config show", "", "dump current config settings", "r"),
    command(
        "config unset",
        "var:CephString",
        "config unset <field>: unset a config variable",
        "rw",
    ),
    command("get_command_descriptions", "", "list available commands", "r"),
    command("help", "", "list available commands", "r"),
    command(
        "injectargs",
        "injected_args:CephString*",
        "inject configuration arguments into running daemon",
        "rw",
    ),
    command("log flush", "", "flush log entries to log file", "rw"),
    command("version", "", "get ceph version", "r"),
];

/// A sentence for stderr and the output; or the errno and a sentence.
pub type Done = Result<(String, Value), (Errno, String)>;

/// A text argument.
#[must_use]
pub fn text<'a>(args: &'a Map<String, Value>, name: &str) -> Option<&'a str> {
    args.get(name).and_then(Value::as_str)
}

/// An argument that may be one word or a list of them.
#[must_use]
pub fn words(args: &Map<String, Value>, name: &str) -> Vec<String> {
    match args.get(name) {
        Some(Value::Array(all)) => {
            all.iter().filter_map(|v| v.as_str().map(str::to_owned)).collect()
        }
        Some(Value::String(one)) => vec![one.clone()],
        _ => Vec::new(),
    }
}

/// A command's text as an object with its `prefix`.
///
/// # Errors
/// EINVAL with a sentence.
pub fn parse(command: &str) -> Result<(String, Map<String, Value>), (Errno, String)> {
    let invalid = |why: &str| (Errno::INVAL, why.to_owned());
    // What is behind the command is ignored, as the peer does: some of its programs send it.
    let first = serde_json::Deserializer::from_str(command).into_iter().next();
    let args: Map<String, Value> =
        first.and_then(Result::ok).ok_or_else(|| invalid("invalid json"))?;
    let prefix = text(&args, "prefix").map(str::trim).filter(|p| !p.is_empty());
    let prefix = prefix.ok_or_else(|| invalid("no prefix"))?.to_owned();
    Ok((prefix, args))
}

/// Output as it goes out: text as it is, all else as JSON, indented unless `format` is `json`.
#[must_use]
pub fn render(value: &Value, args: &Map<String, Value>) -> Bytes {
    match value {
        Value::Null => Bytes::new(),
        Value::String(text) => Bytes::copy_from_slice(text.as_bytes()),
        value if text(args, "format") == Some("json") => {
            serde_json::to_vec(value).unwrap_or_default().into()
        }
        value => {
            let mut text = serde_json::to_vec_pretty(value).unwrap_or_default();
            text.push(b'\n');
            text.into()
        }
    }
}

/// Answers one of [`COMMON`]; `None` for any other, which is the role's. `own` are the role's
/// commands. Options may have changed afterwards.
pub fn common(
    config: &mut Config,
    module: &str,
    own: &[CommandSpec],
    prefix: &str,
    args: &Map<String, Value>,
) -> Option<Done> {
    let ok = |v: Value| Ok((String::new(), v));
    let var = || text(args, "var").ok_or((Errno::INVAL, "no variable is named".to_owned()));
    Some(match prefix {
        "get_command_descriptions" => ok(descriptions(module, own)),
        "help" => {
            let all = all(own).into_iter().map(|c| (c.name.to_owned(), json!(c.help)));
            ok(Value::Object(all.collect()))
        }
        "version" => ok(json!({
            "version": release::NUMBER, "release": release::NAME, "release_type": release::TYPE,
            "implementation": release::IMPLEMENTATION,
        })),
        "config show" => {
            ok(Value::Object(config.all().map(|(k, v)| (k.to_owned(), json!(v))).collect()))
        }
        "config diff" => {
            let mut diff = Map::new();
            for (name, value, source) in config.overridden() {
                let default = conf::known(&name).map_or("", |o| o.default());
                let v = json!({ "default": default, source.name(): value, "final": value });
                diff.insert(name, v);
            }
            ok(json!({ "diff": diff }))
        }
        "config get" => var().and_then(|var| {
            let name = conf::normalize(var);
            if conf::known(&name).is_none() {
                let why = format!("error getting '{var}': (2) No such file or directory");
                return Err((Errno::NOENT, why));
            }
            ok(json!({ name.as_str(): config.text(&name) }))
        }),
        "config set" => var().and_then(|var| {
            set(config, var, &words(args, "val").join(" "))?;
            ok(json!({ "success": "" }))
        }),
        "config unset" => var().and_then(|var| {
            config.unset(Source::Override, var);
            ok(json!({ "success": "" }))
        }),
        "config help" => ok(help(text(args, "var"))),
        "injectargs" => inject(config, &words(args, "injected_args").join(" ")),
        "log flush" => ok(json!({})),
        _ => return None,
    })
}

/// Commands that [`counters`] answers.
pub const COUNTERS: [CommandSpec; 4] = [
    command("perf dump", "logger:CephString? counter:CephString?", "dump perfcounters value", "r"),
    command(
        "perf schema",
        "logger:CephString? counter:CephString?",
        "dump perfcounters schema",
        "r",
    ),
    command("counter dump", "", "dump all labeled and non-labeled counters and their values", "r"),
    command("counter schema", "", "dump all labeled and non-labeled counters schemas", "r"),
];

/// Answers one of [`COUNTERS`] with these; `None` for any other command.
#[must_use]
pub fn counters(
    prefix: &str,
    args: &Map<String, Value>,
    groups: &[metrics::Group],
) -> Option<Value> {
    let (logger, counter) = (text(args, "logger"), text(args, "counter"));
    metrics::answer(prefix, groups, logger, counter)
}

fn all(own: &[CommandSpec]) -> Vec<&CommandSpec> {
    let mut all: Vec<&CommandSpec> = COMMON.iter().chain(own).collect();
    all.sort_by_key(|c| c.name);
    all
}

/// Signatures in the form that `get_command_descriptions` gives.
fn descriptions(module: &str, own: &[CommandSpec]) -> Value {
    let mut described = Map::new();
    for (i, spec) in all(own).into_iter().enumerate() {
        let mut sig: Vec<Value> = spec.name.split(' ').map(|w| json!(w)).collect();
        for arg in spec.args.split_whitespace() {
            let (name, kind) = arg.split_once(':').unwrap_or((arg, "CephString"));
            let required = kind.trim_end_matches('?');
            let one = required.trim_end_matches('*');
            let (optional, many) = (required != kind, one != required);
            let kind = one;
            let (kind, strings) = kind.split_once('=').map_or((kind, None), |(k, s)| (k, Some(s)));
            let mut entry = Map::new();
            entry.insert("name".into(), json!(name));
            entry.insert("type".into(), json!(kind));
            if let Some(strings) = strings {
                entry.insert("strings".into(), json!(strings));
            }
            if optional {
                entry.insert("req".into(), json!("false"));
            }
            if many {
                entry.insert("n".into(), json!("N"));
            }
            sig.push(Value::Object(entry));
        }
        let one = json!({
            "sig": sig, "help": spec.help, "module": module, "perm": spec.perm, "flags": 0,
        });
        described.insert(format!("cmd{i:03}"), one);
    }
    Value::Object(described)
}

fn help(var: Option<&str>) -> Value {
    let one = |o: conf::Known| {
        json!({ "name": o.name(), "type": o.type_name(), "level": o.level(), "desc": o.about(),
                "default": o.default(), "can_update_at_runtime": o.runtime() })
    };
    match var {
        Some(var) => conf::known(&conf::normalize(var)).map_or(json!({}), one),
        None => Value::Array(conf::all_known().map(one).collect()),
    }
}

fn set(config: &mut Config, var: &str, val: &str) -> Result<(), (Errno, String)> {
    config
        .set(Source::Override, var, val)
        .map_err(|why| (Errno::INVAL, format!("error setting '{var}' to '{val}': {why}")))
}

/// `--name value`, `--name=value`, several.
fn inject(config: &mut Config, text: &str) -> Done {
    let mut said = Vec::new();
    let mut rest = text.split_whitespace().peekable();
    while let Some(word) = rest.next() {
        let Some(name) = word.strip_prefix("--") else {
            return Err((Errno::INVAL, format!("failed to parse arguments: {text}")));
        };
        let (name, value) = match name.split_once('=') {
            Some((n, v)) => (n, v.to_owned()),
            None => match rest.next_if(|w| !w.starts_with("--")) {
                Some(v) => (name, v.to_owned()),
                None => (name, "true".to_owned()),
            },
        };
        set(config, name, &value)?;
        said.push(format!("{} = '{value}' ", conf::normalize(name)));
    }
    Ok((said.concat(), Value::Null))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(config: &mut Config, command: &str) -> Option<Done> {
        let (prefix, args) = parse(command).expect("an object");
        common(config, "mds", &[command_of_role()], &prefix, &args)
    }

    const fn command_of_role() -> CommandSpec {
        command("session evict", "all:CephBool? filters:CephString*?", "evict", "rw")
    }

    fn config() -> Config {
        Config::new(&conf::ConfFile::parse("").expect("empty"), "mds", "a", "h", 1)
    }

    /// The order is by name, as the peer's, with the role's among the common ones.
    #[test]
    fn the_roles_commands_are_described_too() {
        let mut config = config();
        let (_, v) = ask(&mut config, r#"{"prefix":"get_command_descriptions"}"#)
            .expect("common")
            .expect("answered");
        let all: Vec<&Value> = v.as_object().expect("an object").values().collect();
        assert_eq!(all.len(), COMMON.len() + 1);
        let evict = all.iter().find(|v| v["sig"][1] == "evict").expect("there");
        let many = json!({"name": "filters", "type": "CephString", "req": "false", "n": "N"});
        assert_eq!(evict["sig"][3], many);
        let all = json!({"name": "all", "type": "CephBool", "req": "false"});
        assert_eq!(evict["sig"][2], all);
        assert_eq!(evict["module"], "mds");
        assert_eq!(ask(&mut config, r#"{"prefix":"session evict"}"#), None, "the role's");
    }

    #[test]
    fn options_are_shown_and_set() {
        let mut config = config();
        let mut done = |command: &str| ask(&mut config, command).expect("common");
        let set = r#"{"prefix":"config set","var":"debug-mds","val":["3"]}"#;
        assert!(done(set).is_ok());
        let get = r#"{"prefix":"config get","var":"debug_mds"}"#;
        assert_eq!(done(get), Ok((String::new(), json!({"debug_mds": "3"}))));
        let wrong = r#"{"prefix":"config set","var":"mds_beacon_interval","val":"soon"}"#;
        assert_eq!(done(wrong).expect_err("no number").0, Errno::INVAL);
        let unknown = r#"{"prefix":"config get","var":"mds_nonsense"}"#;
        assert_eq!(done(unknown).expect_err("unknown").0, Errno::NOENT);
        let inject = r#"{"prefix":"injectargs","injected_args":["--debug_mds=5 --mds_join_fs x"]}"#;
        assert_eq!(done(inject).expect("both").0, "debug_mds = '5' mds_join_fs = 'x' ");
        assert!(done(r#"{"prefix":"config unset","var":"debug_mds"}"#).is_ok());
        let (_, diff) = done(r#"{"prefix":"config diff"}"#).expect("answered");
        assert_eq!(diff["diff"]["mds_join_fs"]["override"], "x");
        assert!(diff["diff"].get("debug_mds").is_none());
    }

    #[test]
    fn what_is_no_command_is_refused() {
        for wrong in ["", "[]", "{}", r#"{"prefix":" "}"#] {
            assert_eq!(parse(wrong).expect_err("no command").0, Errno::INVAL, "{wrong}");
        }
    }
}
