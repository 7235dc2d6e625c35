//! The flags that all of Ceph's programs share, parsed as upstream parses them: `-i`, `-c`, `-k`, ...,
//! and every option of the table in crate `conf` as `--NAME=VALUE`, `--NAME VALUE`, `--no-NAME` and
//! `--default-NAME`. Dashes and underscores are the same. What is left is the program's own.
//!
//! Source: upstream's `common/ceph_argparse.cc`, `common/config.cc` (`parse_argv`, `parse_option`).

use conf::key;
use conf::{OptionKind, Source, normalize};

use super::Failed;

/// A flag of one program alone.
pub struct Own {
    /// Its spellings, with dashes; the first one is its name in [`Given::own`].
    pub names: &'static [&'static str],
    /// How many values follow it.
    pub values: u8,
}

/// A flag without a value.
pub const fn flag(names: &'static [&'static str]) -> Own {
    Own { names, values: 0 }
}

/// A flag with one value.
pub const fn with_value(names: &'static [&'static str]) -> Own {
    Own { names, values: 1 }
}

/// An option given on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// `CommandLine`, or `Default` for `--default-NAME`.
    pub source: Source,
    /// As the table has it.
    pub name: String,
    pub value: String,
}

/// What a program prints of its options before it ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Show {
    One(String),
    All,
}

/// A command line, taken apart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Given {
    pub version: bool,
    pub help: bool,
    /// `TYPE.ID`, by `-n`.
    pub name: Option<String>,
    /// By `-i`: counts before the one in `name`.
    pub id: Option<String>,
    pub cluster: Option<String>,
    /// Files, separated by commas; the first that is there counts.
    pub conf: Option<String>,
    pub no_config_file: bool,
    pub foreground: bool,
    /// Of a file with a key, `-` for standard input.
    pub keyfile: Option<String>,
    pub show: Option<Show>,
    /// In their order.
    pub settings: Vec<Setting>,
    /// The program's own flags with their values, in their order.
    pub own: Vec<(&'static str, Vec<String>)>,
    /// What nothing knows, in its order.
    pub rest: Vec<String>,
    /// Sentences about values that do not fit and were left out.
    pub wrong: Vec<String>,
}

impl Given {
    /// Prints the version or the usage, where it was asked for that: then there is nothing else to do.
    pub fn told(&self, usage: impl std::fmt::Display) -> bool {
        if self.version {
            say!("{}", types::release::version());
        } else if self.help {
            say!("{usage}");
        }
        self.version || self.help
    }

    /// Whether one of the program's own flags was given.
    pub fn has(&self, name: &str) -> bool {
        self.own.iter().any(|(own, _)| *own == name)
    }

    /// The last value of one of the program's own flags.
    pub fn value(&self, name: &str) -> Option<&str> {
        let mut given = self.own.iter().rev().filter(|(own, _)| *own == name);
        given.next().and_then(|(_, values)| values.first()).map(String::as_str)
    }

    fn set(&mut self, name: &str, value: &str) {
        let (name, value) = (name.to_owned(), value.to_owned());
        self.settings.push(Setting { source: Source::CommandLine, name, value });
    }
}

#[derive(Clone, Copy)]
enum Common {
    Version,
    Help,
    Id,
    Name,
    Cluster,
    Conf,
    NoConfigFile,
    Foreground,
    ToStderr,
    Keyfile,
    ShowOne,
    ShowAll,
    /// Nothing hangs on it here: daemons start with their file, and hear the monitors' settings later.
    Nothing,
    /// Another name of an option.
    Option(&'static str),
}

impl Common {
    fn has_value(self) -> bool {
        matches!(
            self,
            Self::Id
                | Self::Name
                | Self::Cluster
                | Self::Conf
                | Self::Keyfile
                | Self::ShowOne
                | Self::Option(_)
        )
    }
}

const COMMON: &[(&str, Common)] = &[
    ("--bind", Common::Option(key::PUBLIC_ADDR.name())),
    ("--client-mountpoint", Common::Option("client_mountpoint")),
    ("--cluster", Common::Cluster),
    ("--conf", Common::Conf),
    ("--foreground", Common::Foreground),
    ("--help", Common::Help),
    ("--id", Common::Id),
    ("--keyfile", Common::Keyfile),
    ("--keyring", Common::Option(key::KEYRING.name())),
    ("--log-early", Common::Nothing),
    ("--mon-config", Common::Nothing),
    ("--mon-host", Common::Option(key::MON_HOST.name())),
    ("--monmap", Common::Option(key::MONMAP.name())),
    ("--name", Common::Name),
    ("--no-config-file", Common::NoConfigFile),
    ("--no-mon-config", Common::Nothing),
    ("--show-config", Common::ShowAll),
    ("--show-config-value", Common::ShowOne),
    ("--user", Common::Id),
    ("--version", Common::Version),
    ("-K", Common::Keyfile),
    ("-M", Common::Option(key::MONMAP.name())),
    ("-c", Common::Conf),
    ("-d", Common::ToStderr),
    ("-f", Common::Foreground),
    ("-h", Common::Help),
    ("-i", Common::Id),
    ("-k", Common::Option(key::KEYRING.name())),
    ("-m", Common::Option(key::MON_HOST.name())),
    ("-n", Common::Name),
    ("-v", Common::Version),
];

/// Takes a command line apart. The program's `own` flags go before what all programs share.
///
/// # Errors
/// A flag without its value.
pub fn parse(own: &'static [Own], args: &[String]) -> Result<Given, Failed> {
    let mut given = Given::default();
    let mut args = args.iter().map(String::as_str).peekable();
    while let Some(arg) = args.next() {
        if arg == "--" {
            given.rest.extend(args.by_ref().map(str::to_owned));
            break;
        }
        if !arg.starts_with('-') || arg == "-" {
            given.rest.push(arg.to_owned());
            continue;
        }
        let (flag, inline) = match arg.split_once('=') {
            Some((flag, value)) if arg.starts_with("--") => (flag, Some(value)),
            _ => (arg, None),
        };
        let spelled = spelled(flag);
        let mut next = |inline: Option<&str>| match inline.or_else(|| args.next()) {
            Some(value) => Ok(value.to_owned()),
            None => Err(Failed::said(format!("Option {flag} requires an argument."))),
        };
        if let Some(own) = own.iter().find(|own| own.names.contains(&&*spelled)) {
            let mut values = Vec::new();
            for at in 0..own.values {
                values.push(next(inline.filter(|_| at == 0))?);
            }
            given.own.push((own.names[0], values));
            continue;
        }
        if let Some((_, common)) = COMMON.iter().find(|(name, _)| *name == spelled) {
            let value = if common.has_value() { next(inline)? } else { String::new() };
            take_common(&mut given, *common, value);
            continue;
        }
        if !take_option(&mut given, &spelled, inline, &mut args) {
            given.rest.push(arg.to_owned());
        }
    }
    Ok(given)
}

/// A long flag with dashes alone.
fn spelled(flag: &str) -> String {
    match flag.strip_prefix("--") {
        Some(name) => format!("--{}", name.replace('_', "-")),
        None => flag.to_owned(),
    }
}

fn take_common(given: &mut Given, common: Common, value: String) {
    match common {
        Common::Version => given.version = true,
        Common::Help => given.help = true,
        Common::Id => given.id = Some(value),
        Common::Name => {
            given.name = Some(value);
            given.id = None;
        }
        Common::Cluster => given.cluster = Some(value),
        Common::Conf => given.conf = Some(value),
        Common::NoConfigFile => given.no_config_file = true,
        Common::Foreground => given.foreground = true,
        Common::ToStderr => {
            given.foreground = true;
            given.set(key::LOG_TO_STDERR.name(), "true");
            given.set(key::LOG_TO_FILE.name(), "false");
        }
        Common::Keyfile => given.keyfile = Some(value),
        Common::ShowOne => given.show = Some(Show::One(value)),
        Common::ShowAll => given.show = Some(Show::All),
        Common::Nothing => {}
        Common::Option(name) => given.set(name, &value),
    }
}

/// Takes an option of the table; `false` where the flag names none.
fn take_option<'a>(
    given: &mut Given,
    flag: &str,
    inline: Option<&'a str>,
    args: &mut std::iter::Peekable<impl Iterator<Item = &'a str>>,
) -> bool {
    let Some(word) = flag.strip_prefix("--") else { return false };
    let whole = normalize(word);
    let default = whole.strip_prefix("default_").filter(|_| conf::known(&whole).is_none());
    let source = if default.is_some() { Source::Default } else { Source::CommandLine };
    let name = default.unwrap_or(&whole);
    let (known, negated) = match conf::known(name) {
        Some(known) => (known, false),
        None => match name.strip_prefix("no_").and_then(conf::known) {
            Some(known) if known.kind() == OptionKind::Bool => (known, true),
            _ => return false,
        },
    };
    let value = match (known.kind(), inline) {
        (OptionKind::Bool, None) if negated => "false".to_owned(),
        (_, Some(value)) => value.to_owned(),
        (OptionKind::Bool, None) => match args.next_if(|next| matches!(*next, "true" | "false")) {
            Some(value) => value.to_owned(),
            None => "true".to_owned(),
        },
        (_, None) => match args.next() {
            Some(value) => value.to_owned(),
            None => {
                let why = format!("(Option {flag} requires an argument.)");
                given.wrong.push(format!("parse error setting '{}' to '' {why}", known.name()));
                return true;
            }
        },
    };
    // What other options fill in is known later.
    match known.check(&value) {
        Err(why) if !value.contains('$') => {
            let name = known.name();
            given.wrong.push(format!("parse error setting '{name}' to '{value}' ({why})"));
        }
        _ => given.settings.push(Setting { source, name: known.name().to_owned(), value }),
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: &[Own] = &[flag(&["--mkfs"]), with_value(&["--get-device-fsid"])];

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    fn set(given: &Given) -> Vec<String> {
        let say = |s: &Setting| format!("{} {}={}", s.source.name(), s.name, s.value);
        given.settings.iter().map(say).collect()
    }

    #[test]
    fn flags_that_all_programs_share() {
        let line = "--cluster=c --id a -c /x,/y -k /k -m 192.0.2.1 -f --no-mon-config --mkfs \
                    --osd_data /d --osd-max-backfills=3 stray --bogus --get-device-fsid=/dev/sdx";
        let given = parse(OWN, &words(line)).unwrap();
        assert_eq!(given.cluster.as_deref(), Some("c"));
        assert_eq!((given.id.as_deref(), given.conf.as_deref()), (Some("a"), Some("/x,/y")));
        assert!(given.foreground && given.has("--mkfs") && !given.version);
        assert_eq!(given.value("--get-device-fsid"), Some("/dev/sdx"));
        assert_eq!(
            set(&given),
            [
                "cmdline keyring=/k",
                "cmdline mon_host=192.0.2.1",
                "cmdline osd_data=/d",
                "cmdline osd_max_backfills=3"
            ]
        );
        assert_eq!(given.rest, ["stray", "--bogus"]);
    }

    #[test]
    fn switches_defaults_and_wrong_values() {
        let line = "--default-log-to-file=false --default_log-to-stderr --bdev-enable-discard false \
                    --no-osd-crush-update-on-start --osd-max-backfills=x --public-addr= \
                    --osd-scrub-begin-hour 99 --osd-max-scrubs";
        let given = parse(OWN, &words(line)).unwrap();
        assert_eq!(
            set(&given),
            [
                "default log_to_file=false",
                "default log_to_stderr=true",
                "cmdline bdev_enable_discard=false",
                "cmdline osd_crush_update_on_start=false",
                "cmdline public_addr="
            ]
        );
        assert_eq!(given.wrong.len(), 3, "{:?}", given.wrong);
        assert!(given.wrong[0].starts_with("parse error setting 'osd_max_backfills' to 'x' ("));
        assert!(given.rest.is_empty());
    }

    #[test]
    fn a_name_counts_until_an_id_is_given() {
        let given = parse(OWN, &words("-i 3 -n osd.4")).unwrap();
        assert_eq!((given.name.as_deref(), given.id), (Some("osd.4"), None));
        let given = parse(OWN, &words("-- -i 3")).unwrap();
        assert_eq!((given.id, given.rest), (None, words("-i 3")));
        let failed = parse(OWN, &words("-i")).unwrap_err();
        assert_eq!(failed.to_string(), "Option -i requires an argument.");
    }

    /// Nothing that stands on a command line stops the parser.
    #[test]
    fn garbage_is_taken_apart() {
        let parts = ["-", "--", "=", "--=", "-i", "--no-", "--default-", "é", "", "--id=", "\0"];
        for a in parts {
            for b in parts {
                for line in [vec![a, b], vec![b, a, b], vec![&format!("{a}{b}")]] {
                    let line: Vec<String> = line.into_iter().map(str::to_owned).collect();
                    let _ = parse(OWN, &line);
                }
            }
        }
    }
}
