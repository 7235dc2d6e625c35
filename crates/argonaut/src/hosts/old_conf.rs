//! A `ceph.conf` as `mkcephfs` and `ceph-deploy` took it, which says on which host each daemon is: what
//! it means for `argonaut deploy`, and which of its words mean nothing there.
//!
//! Source: the peer's `mkcephfs.in`, `init-ceph.in` and `sample.ceph.conf` of releases 0.2x to 0.6x.

use std::collections::BTreeMap;

use anyhow::{Result, bail};
use conf::{ConfFile, Effect, key};

use super::host_conf::KEPT;

/// What is wanted on a host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    pub mon: bool,
    pub mds: bool,
    /// OSDs on devices.
    pub disks: Vec<String>,
    /// OSDs in files.
    pub files: u32,
}

/// What a file comes to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// In the order of monitors, then of OSDs, then of the rest.
    pub hosts: Vec<(String, Wanted)>,
    pub network: Option<String>,
    pub cluster_network: Option<String>,
    /// Sections for every host's `ceph.conf`.
    pub options: String,
    /// A line for each word that is not obeyed as it stands.
    pub said: Vec<String>,
}

const AUTH_CLUSTER_REQUIRED: &str = key::AUTH_CLUSTER_REQUIRED.name();
const AUTH_SERVICE_REQUIRED: &str = key::AUTH_SERVICE_REQUIRED.name();
const AUTH_CLIENT_REQUIRED: &str = key::AUTH_CLIENT_REQUIRED.name();
const PUBLIC_NETWORK: &str = key::PUBLIC_NETWORK.name();
const CLUSTER_NETWORK: &str = key::CLUSTER_NETWORK.name();
const PUBLIC_ADDR: &str = key::PUBLIC_ADDR.name();
const CLUSTER_ADDR: &str = key::CLUSTER_ADDR.name();
const OSD_JOURNAL: &str = key::OSD_JOURNAL.name();
const OSD_JOURNAL_SIZE: &str = key::OSD_JOURNAL_SIZE.name();
const FSID: &str = key::FSID.name();
const MON_HOST: &str = key::MON_HOST.name();
const MON_INITIAL_MEMBERS: &str = key::MON_INITIAL_MEMBERS.name();

/// The smallest log of a store, in MB.
const JOURNAL_MB_MIN: u64 = 64;

/// `osd0`, `osd.0`, `mon.a`: kind and id. `None` for a kind's own section.
fn daemon(section: &str) -> Option<(&str, &str)> {
    let kind = ["mon", "osd", "mds"].into_iter().find(|kind| section.starts_with(kind))?;
    let id = section[kind.len()..].trim_start_matches(['.', ' ']);
    (!id.is_empty()).then_some((kind, id))
}

/// Old words for what has another name.
fn devices(name: &str) -> bool {
    matches!(name, "devs" | "btrfs_devs" | "osd_devs")
}

/// What an option of `[global]`, `[mon]`, `[osd]`, `[mds]` or `[client]` comes to: a line for every host,
/// or why there is none.
fn shared(name: &str, value: &str, plan: &mut Plan) -> Result<String, String> {
    match name {
        "auth_supported" | AUTH_CLUSTER_REQUIRED | AUTH_SERVICE_REQUIRED | AUTH_CLIENT_REQUIRED => {
            match value {
                "cephx" => Ok(String::new()),
                _ => Err("hosts join by keys: cephx is used".to_owned()),
            }
        }
        PUBLIC_NETWORK => {
            plan.network = Some(value.to_owned());
            Ok(String::new())
        }
        CLUSTER_NETWORK => {
            plan.cluster_network = Some(value.to_owned());
            Ok(String::new())
        }
        OSD_JOURNAL_SIZE => {
            // Without a unit it is MB, there and here.
            let mb = value.parse::<u64>();
            match mb {
                Ok(mb) if mb < JOURNAL_MB_MIN => {
                    plan.said.push(format!(
                        "osd journal size = {value}: a store's log has at least {JOURNAL_MB_MIN} MB; \
                         that is used"
                    ));
                    Ok(format!("osd journal size = {JOURNAL_MB_MIN}M"))
                }
                Ok(mb) => Ok(format!("osd journal size = {mb}M")),
                Err(_) => Ok(format!("osd journal size = {value}")),
            }
        }
        OSD_JOURNAL => Err("a store has its log within itself".to_owned()),
        FSID | MON_HOST | MON_INITIAL_MEMBERS => {
            Err("argonaut init says it for the cluster that it makes".to_owned())
        }
        name if KEPT.contains(&name) => Err("each host has its files in its own directory".into()),
        name => match conf::known(name).map(|option| option.effect()) {
            Some(Effect::Obeyed | Effect::Clients) => Ok(format!("{name} = {value}")),
            Some(Effect::None) => Err("it has no effect in this cluster".to_owned()),
            None => Err("no such option is known".to_owned()),
        },
    }
}

/// An option of one daemon's section.
fn of_daemon(
    (kind, id): (&str, &str),
    (name, value): (&str, &str),
    wanted: &mut Wanted,
) -> Result<(), String> {
    match name {
        "host" => Ok(()),
        "mon_addr" | PUBLIC_ADDR | CLUSTER_ADDR => match value.rsplit_once(':') {
            Some((_, port)) if name == "mon_addr" && port != "6789" => {
                Err(format!("monitors listen at ports 3300 and 6789, not {port}"))
            }
            _ => Ok(()),
        },
        name if devices(name) && kind == "osd" => {
            wanted
                .disks
                .extend(value.split([' ', ',']).filter(|d| !d.is_empty()).map(str::to_owned));
            Ok(())
        }
        name if KEPT.contains(&name) || name == OSD_JOURNAL => {
            Err("each host has its files in its own directory".to_owned())
        }
        _ => Err(format!("options of one daemon are set by `ceph config set {kind}.{id}`")),
    }
}

/// Reads a file. Each of its words is in the plan or in [`Plan::said`].
///
/// # Errors
/// When it cannot be parsed, or names no host.
pub fn read(text: &str) -> Result<Plan> {
    let file = ConfFile::parse(text)?;
    let mut plan = Plan::default();
    let mut sections: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut hosts: Vec<(u8, u64, String, Wanted)> = Vec::new();
    let mut guessed = None;
    for section in file.sections() {
        let Some((kind, id)) = daemon(section) else {
            for (name, value) in file.section(section) {
                match shared(name, value, &mut plan) {
                    Ok(line) if line.is_empty() => {}
                    Ok(line) => sections.entry(section.to_owned()).or_default().push(line),
                    Err(why) => plan.said.push(format!("[{section}] {name} = {value}: {why}")),
                }
            }
            continue;
        };
        let get = |wanted: &str| file.section(section).find(|(n, _)| *n == wanted);
        let Some((_, host)) = get("host") else {
            plan.said.push(format!("[{section}]: it names no host, and is passed over"));
            continue;
        };
        if let Some((_, addr)) = get("mon_addr") {
            let ip = addr.rsplit_once(':').map_or(addr, |(ip, _)| ip);
            guessed = guessed.or_else(|| Some(format!("{ip}/24")));
        }
        let mut wanted = Wanted { mon: kind == "mon", mds: kind == "mds", ..Wanted::default() };
        for pair in file.section(section) {
            if let Err(why) = of_daemon((kind, id), pair, &mut wanted) {
                plan.said.push(format!("[{section}] {} = {}: {why}", pair.0, pair.1));
            }
        }
        wanted.files = u32::from(kind == "osd" && wanted.disks.is_empty());
        if kind != "osd" && id != host {
            plan.said
                .push(format!("[{section}]: {kind}.{id} is called {kind}.{host}, as its host"));
        }
        let order = ["mon", "osd", "mds"].iter().position(|k| *k == kind).unwrap_or(0) as u8;
        hosts.push((order, id.parse().unwrap_or(0), host.to_owned(), wanted));
    }
    hosts.sort_by_key(|(order, id, ..)| (*order, *id));
    for (_, _, host, wanted) in hosts {
        let at = plan.hosts.iter().position(|(name, _)| *name == host).unwrap_or(plan.hosts.len());
        if at == plan.hosts.len() {
            plan.hosts.push((host, Wanted::default()));
        }
        let there = &mut plan.hosts[at].1;
        there.mon |= wanted.mon;
        there.mds |= wanted.mds;
        there.disks.extend(wanted.disks);
        there.files += wanted.files;
    }
    if plan.hosts.is_empty() {
        bail!("no section of a daemon says `host = ...`: name the hosts on the command line");
    }
    if plan.network.is_none()
        && let Some(network) = guessed
    {
        plan.said
            .push(format!("no public network is named: that of the first mon addr, {network}"));
        plan.network = Some(network);
    }
    let section =
        |(name, lines): (String, Vec<String>)| format!("[{name}]\n{}\n", lines.join("\n"));
    plan.options = sections.into_iter().map(section).collect();
    Ok(plan)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: &str = "\
; as of the evaluations
[global]
    auth supported = cephx ; since 0.21
    keyring = /etc/ceph/keyring.admin
    max open files = 131072
[mon]
    mon data = /data/mon$id
[mon0]
    host = alpha
    mon addr = 10.0.0.1:6789
[mds.alpha]
    host = alpha
[osd]
    osd data = /data/osd$id
    osd journal = /data/osd$id/journal
    osd journal size = 1000
    filestore xattr use omap = true
    osd pool default size = 2
[osd0]
    host = beta
    btrfs devs = /dev/sdb
[osd1]
    host = alpha
[osd.2]
    host = beta
    devs = /dev/sdc
[osd3]
    weight = 2
";

    /// Each word of an old file is obeyed, or a line says why not.
    #[test]
    fn old_words_are_obeyed_or_named() {
        let plan = read(OLD).unwrap();
        let alpha = Wanted { mon: true, mds: true, files: 1, ..Wanted::default() };
        let disks = ["/dev/sdb", "/dev/sdc"].map(str::to_owned).to_vec();
        let beta = Wanted { disks, ..Wanted::default() };
        assert_eq!(plan.hosts, [("alpha".to_owned(), alpha), ("beta".to_owned(), beta)]);
        assert_eq!(plan.network.as_deref(), Some("10.0.0.1/24"));
        assert_eq!(plan.options, "[osd]\nosd journal size = 1000M\nosd_pool_default_size = 2\n");
        for (word, why) in [
            ("keyring", "own directory"),
            ("mon_data", "own directory"),
            ("osd_data", "own directory"),
            ("osd_journal =", "within itself"),
            ("filestore_xattr_use_omap", "no "),
            ("max_open_files", "no "),
            ("mon.0 is called mon.alpha", ""),
            ("[osd3]", "names no host"),
            ("10.0.0.1/24", "no public network"),
        ] {
            let said = plan.said.iter().find(|line| line.contains(word));
            assert!(said.is_some_and(|line| line.contains(why)), "{word}: {:#?}", plan.said);
        }
        assert_eq!(plan.said.len(), 9, "{:#?}", plan.said);
        let none = read("[global]\nauth supported = none\n[mon.a]\nhost = a\n").unwrap();
        assert!(none.said[0].contains("cephx is used"), "{:#?}", none.said);
        let small = read("[osd]\nosd journal size = 8\n[osd.0]\nhost = a\n").unwrap();
        assert!(small.options.contains("= 64M") && small.said[0].contains("64 MB"));
        assert!(read("[global]\n").is_err());
    }
}
