//! `ceph-mgr`, `ceph-mds` and `radosgw`.
//!
//! Source: upstream's `ceph_mgr.cc`, `ceph_mds.cc`, `rgw/rgw_main.cc`.

use conf::key;

use super::flags::{Own, flag, with_value};
use super::setup::{self, Kind, LOG_FILE, Ready};
use super::{Done, Failed};

const MGR: Kind = Kind {
    entity: "mgr",
    id: "",
    defaults: &[LOG_FILE, (key::KEYRING.name(), "$mgr_data/keyring")],
    flags: &[],
    usage: "usage: ceph-mgr -i <ID> [flags]\n\n",
};

pub const MDS_FLAGS: &[Own] = &[with_value(&["--hot-standby"]), with_value(&["--journal-check"])];

const MDS: Kind = Kind {
    entity: "mds",
    id: "",
    defaults: &[LOG_FILE, (key::KEYRING.name(), "$mds_data/keyring")],
    flags: MDS_FLAGS,
    usage: "usage: ceph-mds -i <ID> [flags]\n\n",
};

const RADOSGW: Kind = Kind {
    entity: "client",
    id: "admin",
    defaults: &[LOG_FILE, (key::KEYRING.name(), "$rgw_data/keyring")],
    flags: &[],
    usage: "usage: radosgw -n client.NAME [options...]\n\n",
};

const EXPORTER_FLAGS: &[Own] = &[
    with_value(&["--sock-dir"]),
    with_value(&["--addrs"]),
    with_value(&["--port"]),
    with_value(&["--prio-limit"]),
    with_value(&["--stats-period"]),
    with_value(&["--cert-file"]),
    with_value(&["--key-file"]),
    flag(&["--tls-options"]),
];

const EXPORTER: Kind = Kind {
    entity: "client",
    id: "admin",
    defaults: &[],
    flags: EXPORTER_FLAGS,
    usage: "usage: ceph-exporter [flags]
  --sock-dir DIR       where the daemons' admin sockets are
  --addrs ADDRESS, --port PORT
  --prio-limit N       least priority of counters that are served
  --stats-period SECS  between two looks at the daemons

",
};

/// `ceph-exporter`.
pub fn exporter(args: &[String]) -> Done {
    let Some(mut ready) = setup::ready(&EXPORTER, args)? else { return Ok(0) };
    nothing_left(&ready)?;
    for (flag, option) in [
        ("--sock-dir", key::EXPORTER_SOCK_DIR.name()),
        ("--addrs", key::EXPORTER_ADDR.name()),
        ("--port", key::EXPORTER_HTTP_PORT.name()),
        ("--prio-limit", key::EXPORTER_PRIO_LIMIT.name()),
        ("--stats-period", key::EXPORTER_STATS_PERIOD.name()),
    ] {
        if let Some(value) = ready.given.value(flag).map(str::to_owned) {
            let set = ready.config.set(conf::Source::CommandLine, option, &value);
            set.map_err(|why| Failed::said(format!("{flag}: {why}")))?;
        }
    }
    for flag in ["--cert-file", "--key-file", "--tls-options"] {
        if ready.given.has(flag) {
            return Err(Failed::said(format!(
                "{flag} is not built: the exporter serves plain HTTP"
            )));
        }
    }
    if let Some(code) = setup::start(&ready)? {
        return Ok(code);
    }
    crate::exporter::main(ready.config, None)?;
    Ok(0)
}

/// `crushtool`.
pub fn crushtool(args: &[String]) -> Done {
    if args.iter().any(|arg| ["-v", "--version"].contains(&arg.as_str())) {
        say!("{}", types::release::version());
        return Ok(0);
    }
    Ok(crate::crushtool(args))
}

/// Refuses what no flag is, in upstream's words.
fn nothing_left(ready: &Ready) -> Result<(), Failed> {
    match ready.given.rest.first() {
        Some(word) => Err(Failed::said(format!("unrecognized arg {word}"))),
        None => Ok(()),
    }
}

/// Refuses the name of another kind.
pub fn is_of(kind: &Kind, ready: &Ready) -> Result<(), Failed> {
    let name = ready.config.expand("$type");
    if name == kind.entity {
        return Ok(());
    }
    let name = ready.config.expand("$name");
    Err(Failed::said(format!("{name} is no name of {} daemon", kind.entity)))
}

/// `ceph-mgr`.
pub fn mgr(args: &[String]) -> Done {
    let Some(ready) = setup::ready(&MGR, args)? else { return Ok(0) };
    nothing_left(&ready)?;
    is_of(&MGR, &ready)?;
    if ready.id.is_empty() {
        return Err(Failed::said("must specify '-i name' with the ceph-mgr instance name"));
    }
    if let Some(code) = setup::start(&ready)? {
        return Ok(code);
    }
    crate::mgr_daemon::main(ready.config, &ready.id)?;
    Ok(0)
}

/// `ceph-mds`.
pub fn mds(args: &[String]) -> Done {
    let Some(ready) = setup::ready(&MDS, args)? else { return Ok(0) };
    nothing_left(&ready)?;
    is_of(&MDS, &ready)?;
    if let Some((flag, _)) = ready.given.own.first() {
        let why = "went with release 15: `ceph fs set NAME allow_standby_replay true`";
        return Err(Failed::said(format!("{flag} {why}")));
    }
    if ready.id.is_empty() {
        return Err(Failed::said("must specify '-i name' with the ceph-mds instance name"));
    }
    if let Some(code) = setup::start(&ready)? {
        return Ok(code);
    }
    crate::mds_daemon::main(ready.config, &ready.id)?;
    Ok(0)
}

/// `radosgw`.
pub fn radosgw(args: &[String]) -> Done {
    let Some(ready) = setup::ready(&RADOSGW, args)? else { return Ok(0) };
    nothing_left(&ready)?;
    is_of(&RADOSGW, &ready)?;
    if let Some(code) = setup::start(&ready)? {
        return Ok(code);
    }
    crate::rgw_daemon::main(ready.config, &ready.id)?;
    Ok(0)
}
