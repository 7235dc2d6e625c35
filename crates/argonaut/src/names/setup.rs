//! From a command line to a program's options: which file, which sections, which defaults.
//!
//! Source: upstream's `global/global_init.cc`, `common/config.cc` (`parse_config_files`).

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::Context;
use conf::{ConfFile, Config, Source, key};

use super::flags::{self, Given, Own, Show};
use super::{Done, Failed, background, privileges};

/// What a kind of program is, before its command line says more.
pub struct Kind {
    /// `osd`, `client`, ...
    pub entity: &'static str,
    /// Its id where nobody names one.
    pub id: &'static str,
    /// Defaults that are not the option's own.
    pub defaults: &'static [(&'static str, &'static str)],
    /// Its own flags.
    pub flags: &'static [Own],
    /// What `--help` prints before the flags that all share.
    pub usage: &'static str,
}

/// A client's kind, for tools.
pub const fn tool(flags: &'static [Own], usage: &'static str) -> Kind {
    Kind { entity: "client", id: "admin", defaults: &[], flags, usage }
}

/// Where a daemon of upstream's logs.
pub const LOG_FILE: (&str, &str) = (key::LOG_FILE.name(), "/var/log/ceph/$cluster-$name.log");

const SHARED_USAGE: &str = "\
  -c, --conf FILE        read this configuration file
  -i, --id ID            the id in the name: a of mon.a
  -n, --name TYPE.ID     the whole name
  --cluster NAME         the cluster's name (ceph)
  -k, --keyring FILE     where the key is
  -m, --mon-host ADDRS   where the monitors are
  --setuser USER         become this user, by name or number
  --setgroup GROUP       become this group
  -f                     stay in the foreground
  -d                     the same, and log to standard error
  --OPTION VALUE         any option, also --OPTION=VALUE, --no-OPTION, --default-OPTION=VALUE
  --show-config-value OPTION, --show-config, --version
";

/// A program's name and options.
pub struct Ready {
    pub given: Given,
    pub config: Config,
    pub id: String,
}

/// Reads a command line, with `CEPH_ARGS` before it, and what it names. `None` where the program has
/// printed all that was asked for.
///
/// # Errors
/// What cannot be read or parsed.
pub fn ready(kind: &Kind, args: &[String]) -> Result<Option<Ready>, Failed> {
    let env = std::env::var("CEPH_ARGS").unwrap_or_default();
    let args: Vec<String> =
        env.split_whitespace().map(str::to_owned).chain(args.iter().cloned()).collect();
    let given = flags::parse(kind.flags, &args)?;
    if given.told(format_args!("{}{SHARED_USAGE}", kind.usage)) {
        return Ok(None);
    }
    let (config, id) = options(kind, &given)?;
    given.wrong.iter().for_each(|wrong| tell!("{wrong}\n"));
    match &given.show {
        Some(show) => self::show(show, &config).map(|_| None),
        None => Ok(Some(Ready { given, config, id })),
    }
}

pub fn show(show: &Show, config: &Config) -> Done {
    match show {
        Show::One(name) => match config.raw(name) {
            Some(_) => say!("{}", config.text(name)),
            None => {
                let words = format!("failed to get config option '{name}': option not found");
                return Err(Failed::said(words));
            }
        },
        Show::All => {
            say!("name = {}", config.expand("$name"));
            say!("cluster = {}", config.cluster());
            config.all().for_each(|(name, value)| say!("{name} = {value}"));
        }
    }
    Ok(0)
}

/// The kind and the id that a command line names.
///
/// # Errors
/// A name that is none.
pub fn entity(kind: &Kind, given: &Given) -> Result<(String, String), Failed> {
    let Some(name) = &given.name else {
        let id = given.id.as_deref().unwrap_or(kind.id);
        return Ok((kind.entity.to_owned(), id.to_owned()));
    };
    const TYPES: [&str; 6] = ["auth", "mon", "osd", "mds", "mgr", "client"];
    match name.split_once('.').filter(|(entity, _)| TYPES.contains(entity)) {
        Some((entity, id)) => {
            Ok((entity.to_owned(), given.id.clone().unwrap_or_else(|| id.to_owned())))
        }
        None => Err(Failed::said(format!(
            "error parsing '{name}': expected string of the form TYPE.ID, valid types are: {}",
            TYPES.join(", ")
        ))),
    }
}

/// The options of a command line, and the id.
///
/// # Errors
/// As [`ready`].
pub fn options(kind: &Kind, given: &Given) -> Result<(Config, String), Failed> {
    file_and_options(kind, given).map(|(_, config, id)| (config, id))
}

/// The same, with the file that they are from.
///
/// # Errors
/// As [`ready`].
pub fn file_and_options(kind: &Kind, given: &Given) -> Result<(ConfFile, Config, String), Failed> {
    let (entity, id) = entity(kind, given)?;
    let asked = given.conf.clone().or_else(|| std::env::var("CEPH_CONF").ok());
    let cluster = match (&given.cluster, &asked) {
        (Some(cluster), _) => cluster.clone(),
        // Upstream takes it from the file's name.
        (None, Some(list)) => {
            let first = Path::new(list.split(',').next().unwrap_or_default().trim());
            let stem = first.file_stem().filter(|_| first.extension().is_some_and(|e| e == "conf"));
            stem.map_or("ceph".to_owned(), |stem| stem.to_string_lossy().into_owned())
        }
        (None, None) => "ceph".to_owned(),
    };
    let file = if given.no_config_file {
        ConfFile::default()
    } else {
        conf_file(asked.as_deref(), &cluster)?
    };
    let host = daemon::hostname();
    let config = Config::new(&file, &entity, &id, &host, std::process::id());
    let mut config = config.with_cluster(&cluster);
    let mut set = |source, name: &str, value: &str| {
        config.set(source, name, value).map_err(|why| Failed::said(format!("{name}: {why}")))
    };
    for (name, value) in kind.defaults {
        set(Source::Default, name, value)?;
    }
    if let Ok(keyring) = std::env::var("CEPH_KEYRING") {
        set(Source::CommandLine, key::KEYRING.name(), &keyring)?;
    }
    for setting in &given.settings {
        set(setting.source, &setting.name, &setting.value)?;
    }
    Ok((file, config, id))
}

/// The file that was asked for, or the first of the usual ones that is there.
fn conf_file(asked: Option<&str>, cluster: &str) -> Result<ConfFile, Failed> {
    let home = std::env::var("HOME").unwrap_or_default();
    let usual = [
        format!("/etc/ceph/{cluster}.conf"),
        format!("{home}/.ceph/{cluster}.conf"),
        format!("{cluster}.conf"),
    ];
    let list: Vec<PathBuf> = match asked {
        Some(list) => {
            list.split(',').map(|path| path.trim().replace("$cluster", cluster).into()).collect()
        }
        None => usual.iter().map(PathBuf::from).collect(),
    };
    let found = list.iter().find_map(|path| Some((path, fs::read_to_string(path).ok()?)));
    match (found, asked) {
        (Some((path, text)), _) => ConfFile::parse(&text).map_err(|err| {
            Failed::said(format!(
                "global_init: error parsing config file.\n{}: {err}",
                path.display()
            ))
        }),
        (None, Some(list)) => {
            let words = "global_init: unable to open config file from search list";
            Err(Failed::said(format!("{words} {list}")))
        }
        (None, None) => {
            tell!("did not load config file, using default settings.");
            Ok(ConfFile::default())
        }
    }
}

/// The key in the file of `--keyfile`, or of the option `key`.
///
/// # Errors
/// A file that cannot be read.
pub fn key(ready: &Ready) -> Result<Option<auth::CryptoKey>, Failed> {
    let text = match ready.given.keyfile.as_deref() {
        Some("-") => {
            let mut text = String::new();
            std::io::stdin().take(KEY_BYTES_MAX).read_to_string(&mut text)?;
            text
        }
        Some(path) => fs::read_to_string(path).with_context(|| path.to_owned())?,
        None => ready.config.get(key::KEY),
    };
    match text.trim() {
        "" => Ok(None),
        text => match auth::CryptoKey::from_base64(text) {
            Ok(key) => Ok(Some(key)),
            Err(err) => Err(Failed::Why(anyhow::anyhow!("the key that was given: {err}"))),
        },
    }
}

/// More is no key.
const KEY_BYTES_MAX: u64 = 4096;

/// Before a daemon's data is touched: its user, what this process makes, its directory of sockets.
///
/// # Errors
/// When the user is none, or the system denies it.
pub fn become_daemon(config: &Config) -> Result<(), Failed> {
    let owner = privileges::Owner::wanted(config)?;
    daemon::private::umask();
    privileges::make_run_dir(config, owner.as_ref());
    if let Some(owner) = owner {
        owner.become_it()?;
    }
    Ok(())
}

/// As [`become_daemon`] for one that runs: without `-f` or `-d` it goes on in another process, and the
/// exit code of this one is returned once that serves, or has ended.
///
/// # Errors
/// As [`become_daemon`].
pub fn start(ready: &Ready) -> Result<Option<u8>, Failed> {
    if !ready.given.foreground
        && ready.config.get(key::DAEMONIZE)
        && let Some(code) = background::go()?
    {
        return Ok(Some(code));
    }
    become_daemon(&ready.config)?;
    Ok(None)
}
