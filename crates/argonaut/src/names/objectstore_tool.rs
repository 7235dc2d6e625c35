//! `ceph-objectstore-tool`: the store of an OSD that is down, as far as `argonaut store` goes.
//!
//! Source: upstream's `tools/ceph_objectstore_tool.cc`.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use store::Coll;
use types::HObject;

use super::flags::{self, Given, Own, flag, with_value};
use super::{Done, Failed, reason};
use crate::store_tool::{self, Change, Look};

const FLAGS: &[Own] = &[
    with_value(&["--data-path"]),
    with_value(&["--journal-path"]),
    with_value(&["--type"]),
    with_value(&["--pgid"]),
    with_value(&["--pool"]),
    with_value(&["--op"]),
    with_value(&["--epoch"]),
    with_value(&["--file"]),
    with_value(&["--format"]),
    with_value(&["--namespace"]),
    flag(&["--force"]),
    flag(&["--debug"]),
    flag(&["--head"]),
    flag(&["--dry-run"]),
    flag(&["--tty"]),
    flag(&["--no-superblock"]),
    flag(&["--skip-journal-replay"]),
    flag(&["--skip-mount-omap"]),
];

const OPS: &str = "list, list-pgs, meta-list, export, export-remove, import, remove, fsck, statfs";

const USAGE: &str = "usage: ceph-objectstore-tool --data-path DIR --op OP [--pgid PG] [--file FILE]
       ceph-objectstore-tool --data-path DIR OBJECT VERB [KEY] [FILE]
  OP      list, list-pgs, meta-list, export, export-remove, import, remove, fsck, statfs
  OBJECT  its name, or what `list` prints of it
  VERB    get-bytes set-bytes list-attrs get-attr set-attr rm-attr list-omap get-omap set-omap rm-omap
  FILE    - or nothing is standard input or output
";

/// What upstream's tool can do and this one does not.
const REFUSED: &[&str] = &[
    "apply-layout-settings",
    "dump-export",
    "dump-super",
    "dup",
    "fix-lost",
    "fuse",
    "get-inc-osdmap",
    "get-osdmap",
    "get-superblock",
    "info",
    "list-slow-omap",
    "log",
    "mark-complete",
    "mkfs",
    "repair",
    "reset-last-complete",
    "set-inc-osdmap",
    "set-osdmap",
    "set-superblock",
    "trim-pg-log",
    "trim-pg-log-dups",
    "update-mon-db",
];

/// `ceph-objectstore-tool`.
pub fn run(args: &[String]) -> Done {
    let given = flags::parse(FLAGS, args)?;
    if given.told(USAGE) {
        return Ok(0);
    }
    let Some(data) = given.value("--data-path").map(PathBuf::from) else {
        return Err(Failed::said(format!("Must provide --data-path\n{USAGE}")));
    };
    let op = given.value("--op");
    if op.is_none() && given.rest.is_empty() {
        return Err(Failed::said(format!("Must provide --op or object command...\n{USAGE}")));
    }
    if let Err(err) = std::fs::metadata(&data) {
        let text = reason(&err);
        let text = text.split_once(") ").map_or(&*text, |(_, words)| words);
        return Err(Failed::said(format!("data-path: {}: {text}", data.display())));
    }
    match op {
        Some(op) => operate(&given, &data, op),
        None => on_object(&given, &data),
    }
}

fn pg(given: &Given) -> Result<Option<&str>, Failed> {
    match given.value("--pgid") {
        None => Ok(None),
        Some("meta") => Ok(Some("meta")),
        Some(text) if store_tool::spg(text).is_ok() => Ok(Some(text)),
        Some(text) => Err(Failed::said(format!("Invalid pgid '{text}' specified"))),
    }
}

fn operate(given: &Given, data: &Path, op: &str) -> Done {
    let pgid = pg(given)?;
    let need_pg = || pgid.ok_or_else(|| Failed::said(format!("Must provide pgid\n{USAGE}")));
    let file = Path::new(given.value("--file").unwrap_or("-"));
    let no_pg = |look: &Look, pgid: &str| match look.has(pgid)? {
        true => Ok(()),
        false => Err(Failed::said(format!("PG '{pgid}' not found"))),
    };
    match op {
        "fsck" => {
            let errors = store_tool::errors(data, true)?;
            errors.iter().for_each(|error| tell!("error: {error}"));
            if errors.is_empty() {
                say!("fsck success");
                return Ok(0);
            }
            Err(Failed::said(format!("fsck found {} errors", errors.len())))
        }
        "list-pgs" => {
            let look = Look::open(data)?;
            look.collections().iter().filter(|c| **c != Coll::Meta).for_each(|c| say!("{c}"));
            Ok(0)
        }
        "list" | "meta-list" => {
            let look = Look::open(data)?;
            let wanted = if op == "meta-list" { Some("meta") } else { pgid };
            if let Some(pgid) = wanted {
                no_pg(&look, pgid)?;
            }
            let is_wanted = |c: &Coll| match wanted {
                Some(pgid) => c.to_string() == pgid,
                None => *c != Coll::Meta,
            };
            for c in look.collections().into_iter().filter(is_wanted) {
                for object in look.objects(c)? {
                    let name = given.rest.first();
                    if name.is_none_or(|name| name.as_bytes() == &object.name[..]) {
                        say!("{}", describe(c, &object));
                    }
                }
            }
            Ok(0)
        }
        "statfs" => {
            let s = Look::open(data)?.statfs();
            let shown = json!({"total": s.total, "available": s.available, "allocated": s.allocated,
                "data_stored": s.stored, "omap_allocated": s.omap,
                "internal_metadata": s.internal});
            say!("{shown:#}");
            Ok(0)
        }
        "export" | "export-remove" | "remove" => {
            let pgid = need_pg()?;
            if op == "remove" && !given.has("--force") {
                let words = "Please use export-remove or you must use --force option";
                return Err(Failed::said(words));
            }
            no_pg(&Look::open(data)?, pgid)?;
            if op != "remove" {
                store_tool::export_pg(data, pgid, file)?;
                tell!("Export successful");
            }
            if op != "export" && !given.has("--dry-run") {
                store_tool::remove_pg(data, pgid)?;
                tell!("Remove successful");
            }
            Ok(0)
        }
        "import" => {
            store_tool::import_pg(data, file, given.has("--force"))?;
            tell!("Import successful");
            Ok(0)
        }
        known if REFUSED.contains(&known) => {
            let why = format!("is not built for this release's store; there is {OPS}");
            Err(Failed::Why(anyhow::anyhow!("--op {known} {why}")))
        }
        _ => Err(Failed::said(format!("Must provide --op ({OPS})\n{USAGE}"))),
    }
}

/// An object as `list` prints it.
fn describe(c: Coll, o: &HObject) -> String {
    let text = |bytes: &[u8]| Value::from(String::from_utf8_lossy(bytes).into_owned());
    let shard = match c {
        Coll::Pg(pg) if pg.shard.0 >= 0 => format!(",\"shard_id\":{}", pg.shard.0),
        _ => String::new(),
    };
    format!(
        "[{},{{\"oid\":{},\"key\":{},\"snapid\":{},\"hash\":{},\"max\":0,\"pool\":{},\"namespace\":{}{shard},\"max\":0}}]",
        Value::from(c.to_string()),
        text(&o.name),
        text(&o.key),
        o.snap.0 as i64,
        o.hash,
        o.pool.0,
        text(&o.nspace),
    )
}

/// The object that a command names: in JSON as `list` prints it, or by its name alone.
fn find(look: &Look, given: &Given, word: &str) -> Result<(Coll, HObject), Failed> {
    let none = || Failed::said(format!("No object id '{word}' found or invalid JSON specified"));
    let pgid = pg(given)?;
    let json = serde_json::from_str::<Value>(word).ok();
    let (pgid, wanted) = match &json {
        Some(Value::Array(parts)) => (parts.first().and_then(Value::as_str), parts.get(1)),
        Some(object @ Value::Object(_)) => (pgid, Some(object)),
        _ => (pgid, None),
    };
    let is_it = |c: Coll, o: &HObject| match wanted {
        Some(wanted) => {
            let described = serde_json::from_str::<Value>(&describe(c, o)).unwrap_or_default();
            ["oid", "key", "snapid", "pool", "namespace"]
                .iter()
                .all(|field| wanted.get(*field).is_none_or(|value| *value == described[1][*field]))
        }
        None => o.name[..] == *word.as_bytes(),
    };
    let mut found = Vec::new();
    for c in look.collections() {
        let fits = pgid.map_or(c != Coll::Meta, |pgid| c.to_string() == pgid);
        if fits {
            found.extend(look.objects(c)?.into_iter().filter(|o| is_it(c, o)).map(|o| (c, o)));
        }
    }
    match found.len() {
        0 => Err(none()),
        1 => Ok(found.remove(0)),
        n => Err(Failed::said(format!(
            "Found {n} objects with id '{word}', please use a JSON spec \
             from --op list instead"
        ))),
    }
}

fn on_object(given: &Given, data: &Path) -> Done {
    let [object, rest @ ..] = &given.rest[..] else { return Err(Failed::said(USAGE)) };
    let Some((verb, rest)) = rest.split_first() else {
        return Err(Failed::said(format!("Must provide an object command\n{USAGE}")));
    };
    let look = Look::open(data)?;
    let at = find(&look, given, object)?;
    let key = || match rest.first() {
        Some(key) => Ok(key.as_str()),
        None => Err(Failed::said(format!("Missing arguments: {verb} KEY"))),
    };
    let file = |n: usize| Path::new(rest.get(n).map_or("-", String::as_str));
    match verb.as_str() {
        "get-bytes" => look.get_bytes(&at, file(0))?,
        "list-attrs" => look.names(&at, false)?.iter().for_each(|name| say!("{name}")),
        "list-omap" => look.names(&at, true)?.iter().for_each(|name| say!("{name}")),
        "get-attr" => look.value(&at, key()?, false)?,
        "get-omap" => look.value(&at, key()?, true)?,
        "set-bytes" => look.change(&at, Change::Bytes(file(0)))?,
        "set-attr" => look.change(&at, Change::SetAttr(key()?, file(1)))?,
        "set-omap" => look.change(&at, Change::SetOmap(key()?, file(1)))?,
        "rm-attr" => look.change(&at, Change::RemoveAttr(key()?))?,
        "rm-omap" => look.change(&at, Change::RemoveOmap(key()?))?,
        other => {
            return Err(Failed::said(format!("Unknown object command '{other}'\n{USAGE}")));
        }
    }
    Ok(0)
}
