//! `ceph-bluestore-tool`: the label of an OSD's device, and its store's check. What is about parts of
//! upstream's store that this one does not have is refused.
//!
//! Source: upstream's `os/bluestore/bluestore_tool.cc`.

use std::fs;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::{Map, Value};
use store::Peeked;

use super::flags::{self, Given, Own, flag, with_value};
use super::osd::MAGIC;
use super::setup::{self, Kind};
use super::{Done, Failed};
use crate::store_tool;
use crate::target::Target;

const FLAGS: &[Own] = &[
    with_value(&["--command", "--op"]),
    with_value(&["--path", "--data-path"]),
    with_value(&["--dev"]),
    with_value(&["--deep"]),
    with_value(&["--key", "-k"]),
    with_value(&["--value", "-v"]),
    with_value(&["--log-file", "-l"]),
    with_value(&["--log-level"]),
    with_value(&["--allocator"]),
    with_value(&["--bdev-type"]),
    with_value(&["--dev-target"]),
    with_value(&["--devs-source"]),
    with_value(&["--out-dir"]),
    with_value(&["--sharding"]),
    flag(&["--yes-i-really-really-mean-it"]),
];

const USAGE: &str = "usage: ceph-bluestore-tool COMMAND [options]
  show-label --dev DEVICE... | --path DIR   what stands on a device beside its store
  prime-osd-dir --dev DEVICE --path DIR     write an OSD's files from its device
  set-label-key --dev DEVICE -k KEY -v VALUE, rm-label-key --dev DEVICE -k KEY
  fsck [--deep 1] --path DIR                compare what the store says with what is there
  repair --path DIR                         the same: a store with errors is made anew from others
  zap-device --dev DEVICE --yes-i-really-really-mean-it
";

const KIND: Kind = setup::tool(FLAGS, USAGE);

/// What upstream's tool can do and this one does not.
const REFUSED: &[&str] = &[
    "allocmap",
    "bluefs-bdev-expand",
    "bluefs-bdev-migrate",
    "bluefs-bdev-new-db",
    "bluefs-bdev-new-wal",
    "bluefs-bdev-sizes",
    "bluefs-export",
    "bluefs-import",
    "bluefs-log-dump",
    "bluefs-stats",
    "bluefs-super-dump",
    "free-dump",
    "free-fragmentation",
    "free-score",
    "qfsck",
    "reshard",
    "restore_cfb",
    "revert-wal-to-plain",
    "show-label-at",
    "show-sharding",
    "trim",
];

/// `ceph-bluestore-tool`.
pub fn run(args: &[String]) -> Done {
    let given = flags::parse(FLAGS, args)?;
    if given.told(USAGE) {
        return Ok(0);
    }
    setup::entity(&KIND, &given)?;
    let verb = match (&given.rest[..], given.value("--command")) {
        ([verb], _) => verb.clone(),
        ([], Some(verb)) => verb.to_owned(),
        ([], None) => return Err(Failed::said("must specify an action; --help for help")),
        ([.., word], _) => return Err(Failed::said(format!("unrecognised option '{word}'"))),
    };
    match verb.as_str() {
        "show-label" => show_label(&given),
        "prime-osd-dir" => prime(&given),
        "set-label-key" | "rm-label-key" => edit_label(&given, verb == "set-label-key"),
        "fsck" | "repair" | "quick-fix" => check(&given, &verb),
        "zap-device" => zap(&given),
        known if REFUSED.contains(&known) => {
            let why = "is about parts of a store that this release's has not";
            Err(Failed::Why(anyhow::anyhow!("{known} {why}")))
        }
        other => Err(Failed::said(format!("unrecognized action {other}"))),
    }
}

fn devices(given: &Given) -> Result<Vec<PathBuf>, Failed> {
    let named: Vec<PathBuf> = given
        .own
        .iter()
        .filter(|(flag, _)| *flag == "--dev")
        .filter_map(|(_, values)| values.first().map(PathBuf::from))
        .collect();
    match (named.is_empty(), given.value("--path")) {
        (false, _) => Ok(named),
        (true, Some(path)) => Ok(vec![Path::new(path).join("block")]),
        (true, None) => Err(Failed::said("no action specified; use --dev or --path")),
    }
}

fn device(given: &Given) -> Result<PathBuf, Failed> {
    match &devices(given)?[..] {
        [one] => Ok(one.clone()),
        _ => Err(Failed::said("only specify one --dev")),
    }
}

fn path(given: &Given) -> Result<PathBuf, Failed> {
    let path = given.value("--path").map(PathBuf::from);
    path.ok_or_else(|| Failed::said("must specify bluestore path"))
}

/// The label as upstream's has it: what the superblock says is part of it.
fn label(peeked: &Peeked) -> Vec<(String, String)> {
    let own = [
        ("ceph_fsid", peeked.fsid.to_string()),
        ("magic", MAGIC.to_owned()),
        ("mkfs_done", "yes".to_owned()),
        ("ready", "ready".to_owned()),
        ("whoami", peeked.osd.0.to_string()),
    ];
    let mut all = peeked.label.clone();
    all.extend(own.map(|(name, value)| (name.to_owned(), value)));
    all.into_iter().collect()
}

fn show_label(given: &Given) -> Done {
    let (mut shown, mut code) = (Vec::new(), 0);
    for device in devices(given)? {
        let name = Value::from(device.display().to_string());
        let peeked = match store::peek(&device) {
            Ok(peeked) => peeked,
            Err(err) => {
                tell!("unable to read label for {}: {err}", device.display());
                shown.push(format!("    {name}: {{}}"));
                code = 1;
                continue;
            }
        };
        let made = peeked.label.get("created_at").cloned().unwrap_or_default();
        let head = [
            ("osd_uuid", Value::from(peeked.osd_uuid.to_string())),
            ("size", Value::from(peeked.size)),
            ("btime", Value::from(made.replace('Z', "+0000"))),
            ("description", Value::from("main")),
        ];
        let rest = label(&peeked).into_iter().map(|(k, v)| (k, Value::from(v)));
        let all = head.into_iter().map(|(k, v)| (k.to_owned(), v)).chain(rest);
        let lines: Vec<String> =
            all.map(|(k, v)| format!("        {}: {v}", Value::from(k))).collect();
        shown.push(format!("    {name}: {{\n{}\n    }}", lines.join(",\n")));
    }
    say!("{{\n{}\n}}", shown.join(",\n"));
    Ok(code)
}

/// Writes the files by which an OSD is started, from what its device says.
fn prime(given: &Given) -> Done {
    let (device, dir) = (device(given)?, path(given)?);
    let peeked = store::peek(&device).map_err(|err| {
        Failed::said(format!("failed to read label for {}: {err}", device.display()))
    })?;
    let all: Map<String, Value> = label(&peeked).into_iter().map(|(k, v)| (k, v.into())).collect();
    let value = |name: &str| all.get(name).and_then(Value::as_str).map(str::to_owned);
    let mut files = vec![("fsid".to_owned(), peeked.osd_uuid.to_string())];
    for name in ["ceph_fsid", "osdspec_affinity", "ready", "require_osd_release", "type", "whoami"]
    {
        files.extend(value(name).map(|value| (name.to_owned(), value)));
    }
    if let Some(key) = value("osd_key") {
        let text = format!("[osd.{}]\nkey = {key}", peeked.osd.0);
        files.push(("keyring".to_owned(), text));
    }
    for (name, value) in files {
        let at = dir.join(&name);
        let open = fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&at)
            .with_context(|| at.display().to_string());
        std::io::Write::write_all(&mut open?, format!("{value}\n").as_bytes())?;
    }
    Ok(0)
}

fn edit_label(given: &Given, set: bool) -> Done {
    let device = device(given)?;
    let Some(key) = given.value("--key") else {
        return Err(Failed::said("must specify a key name"));
    };
    let mut peeked = store::peek(&device).map_err(|err| {
        Failed::said(format!("unable to read label for {}: {err}", device.display()))
    })?;
    let fixed = ["osd_uuid", "size", "ceph_fsid", "whoami", "magic", "mkfs_done", "ready"];
    if fixed.contains(&key) {
        let why = "is the store's own, and cannot be changed";
        return Err(Failed::Why(anyhow::anyhow!("'{key}' {why}")));
    }
    match (set, given.value("--value")) {
        (true, Some(value)) => {
            peeked.label.insert(key.to_owned(), value.to_owned());
        }
        (true, None) => return Err(Failed::said("must specify a value")),
        (false, _) if peeked.label.remove(key).is_none() => {
            return Err(Failed::said(format!("key '{key}' not present")));
        }
        (false, _) => {}
    }
    store::write_label(&device, &peeked.label)?;
    Ok(0)
}

fn check(given: &Given, verb: &str) -> Done {
    let dir = path(given)?;
    let deep = given.value("--deep").is_some_and(|value| ["1", "true", "yes"].contains(&value));
    let errors = store_tool::errors(&dir, deep)?;
    if errors.is_empty() {
        say!("{verb} success");
        return Ok(0);
    }
    errors.iter().for_each(|error| tell!("error: {error}"));
    if verb != "fsck" {
        tell!(
            "nothing was changed: `argonaut osd replace` makes the OSD anew, filled from the others"
        );
    }
    Err(Failed::said(format!("{verb} status: remaining {} error(s) and warning(s)", errors.len())))
}

fn zap(given: &Given) -> Done {
    let device = device(given)?;
    if !given.has("--yes-i-really-really-mean-it") {
        return Err(Failed::said(
            "zap-osd is a DESTRUCTIVE operation, it causes OSD data loss, please confirm with \
             --yes-i-really-really-mean-it option",
        ));
    }
    fs::metadata(&device).with_context(|| device.display().to_string())?;
    Target::inspect(&device, true)?.clear()?;
    Ok(0)
}
