//! `ceph-conf`: what a configuration file says.
//!
//! Source: upstream's `tools/ceph_conf.cc`.

use std::path::Path;

use conf::{ConfFile, Config, normalize};

use super::flags::{self, Given, Own, Show, flag, with_value};
use super::setup::{self, Kind};
use super::{Done, Failed};

const FLAGS: &[Own] = &[
    flag(&["--list-all-sections", "-L"]),
    flag(&["--resolve-search", "-r"]),
    flag(&["--dump-all", "-D"]),
    with_value(&["--list-sections", "-l"]),
    with_value(&["--filter-key"]),
    with_value(&["--filter-key-value"]),
    with_value(&["--lookup"]),
    with_value(&["--section", "-s"]),
    with_value(&["--format"]),
    with_value(&["--pid"]),
];

const USAGE: &str = "Ceph configuration query tool

USAGE
ceph-conf <flags> <action>

ACTIONS
  -L, --list-all-sections         list all sections
  -l, --list-sections PREFIX      list the sections that begin so
  --filter-key KEY                of these, only those that set the key
  --filter-key-value KEY=VALUE    of these, only those that set it to the value
  --lookup KEY                    print what the file says; exit code 1 where it says nothing
  -r, --resolve-search            of the list of files that was looked up, the first that is there
  -D, --dump-all                  print all options
  --show-config-value KEY         print an option's value, also its default

FLAGS
  --name TYPE.ID                  whose options
  -s SECTION                      look here first
  --format plain|json|json-pretty how to dump
  --pid PID                       what $pid is

Without an action, a word is looked up.";

const KIND: Kind = setup::tool(FLAGS, USAGE);

/// `ceph-conf`.
pub fn run(args: &[String]) -> Done {
    let given = flags::parse(FLAGS, args)?;
    if given.told(USAGE) {
        return Ok(0);
    }
    let (file, config, _) = setup::file_and_options(&KIND, &given)?;
    let config = match given.value("--pid").map(str::parse) {
        None => config,
        Some(Ok(pid)) => config.with_pid(pid),
        Some(Err(_)) => return Err(Failed::said("--pid wants a number")),
    };
    if let Some(show) = &given.show {
        return setup::show(show, &config);
    }
    if given.has("--dump-all") {
        return dump(&config, given.value("--format").unwrap_or("plain"));
    }
    if given.has("--list-all-sections") || given.has("--list-sections") {
        list(&file, &given, given.value("--list-sections").unwrap_or(""));
        return Ok(0);
    }
    let key = match (given.value("--lookup"), &given.rest[..]) {
        (Some(key), []) => key,
        (None, [key]) if !key.starts_with('-') => key,
        (None, []) => {
            return Err(Failed::said(
                "You must give an action, such as --lookup or --list-all-sections.\n\
                 Pass --help for more help.",
            ));
        }
        (_, [.., word]) => {
            return Err(Failed::said(format!("unable to parse option: '{word}'\n{USAGE}")));
        }
    };
    Ok(lookup(&file, &config, &given, key))
}

fn lookup(file: &ConfFile, config: &Config, given: &Given, key: &str) -> u8 {
    let asked = given.own.iter().filter(|(flag, _)| *flag == "--section");
    let asked = asked.filter_map(|(_, values)| values.first().cloned());
    let own = ["$name", "$type"].map(|section| config.expand(section));
    let sections: Vec<String> = asked.chain(own).chain(["global".to_owned()]).collect();
    let key = normalize(key);
    let find = |section: &String| file.section(section).find(|(name, _)| *name == key);
    let Some((_, value)) = sections.iter().find_map(find) else { return 1 };
    let value = config.expand(value);
    let first = value.split([',', ';', ' ']).map(str::trim).find(|path| Path::new(path).exists());
    match first.filter(|_| given.has("--resolve-search")) {
        Some(path) => say!("{path}"),
        None => say!("{value}"),
    }
    0
}

fn list(file: &ConfFile, given: &Given, prefix: &str) {
    let says = |section: &str, key: &str, value: Option<&str>| {
        let key = normalize(key);
        let found = file.section(section).find(|(name, _)| *name == key);
        found.is_some_and(|(_, there)| value.is_none_or(|value| value.trim() == there))
    };
    for section in file.sections().filter(|section| section.starts_with(prefix)) {
        let passes = given.own.iter().all(|(flag, values)| {
            let filter = values.first().map_or("", String::as_str);
            match (*flag, filter.split_once('=')) {
                ("--filter-key", _) => says(section, filter, None),
                ("--filter-key-value", Some((key, value))) => says(section, key, Some(value)),
                ("--filter-key-value", None) => says(section, filter, Some("")),
                _ => true,
            }
        });
        if passes {
            say!("{section}");
        }
    }
}

fn dump(config: &Config, format: &str) -> Done {
    let (indent, between, colon) = match format {
        "plain" => return setup::show(&Show::All, config),
        "json" => ("", ",", ":"),
        "json-pretty" => ("\n    ", ",", ": "),
        other => return Err(Failed::said(format!("there is no format '{other}'"))),
    };
    let own = [("name", config.expand("$name")), ("cluster", config.cluster().to_owned())];
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    let lines = own.into_iter().chain(config.all());
    let lines =
        lines.map(|(name, value)| format!("{indent}{}{colon}{}", quoted(name), quoted(&value)));
    let end = if indent.is_empty() { "" } else { "\n" };
    say!("{{{}{end}}}", lines.collect::<Vec<_>>().join(between));
    Ok(0)
}
