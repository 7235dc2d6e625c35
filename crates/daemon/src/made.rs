//! Facts for a daemon's metadata: when its data was made and by what, and which interface holds
//! its address.

use std::collections::BTreeMap;
use std::fs;
use std::net::IpAddr;
use std::path::Path;

use anyhow::Result;
use types::{AddrVec, UTime, release};

use crate::write_durably;

/// Files of a data directory, as upstream's, which are keys of the metadata too.
const VERSION: &str = "ceph_version_when_created";
const TIME: &str = "created_at";

/// Notes in a new data directory when it was made, and by which version.
///
/// # Errors
/// When a file cannot be written.
pub fn mark_made(data: &Path, now: UTime) -> Result<()> {
    write_durably(&data.join(VERSION), format!("{}\n", release::version()).as_bytes())?;
    // Upstream has no offset but `Z` here.
    let time = now.to_string().replace("+0000", "Z");
    write_durably(&data.join(TIME), format!("{time}\n").as_bytes())
}

/// What [`mark_made`] noted; empty texts where nobody did.
#[must_use]
pub fn made(data: &Path) -> BTreeMap<String, String> {
    let read = |name: &str| {
        let text = fs::read_to_string(data.join(name)).unwrap_or_default();
        (name.to_owned(), text.trim().to_owned())
    };
    BTreeMap::from([read(VERSION), read(TIME)])
}

metrics::group! {
    /// What the kernel tells of this process.
    struct Process "argonaut" {
        resident_bytes LevelBytes 5 "rss" "Memory of the process"
        cpu_ms Level 5 "cpu" "Time on processors, ms"
        open_files Level 5 "" "Open files and sockets"
    }
}

/// Counters of the process, for daemons whose role has none.
#[must_use]
pub fn process() -> metrics::Group {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let field = |text: &str, n: usize| {
        text.split_whitespace().nth(n).and_then(|word| word.parse::<u64>().ok()).unwrap_or(0)
    };
    // Behind the name, which is in brackets and may hold blanks; both times are in 1/100 s.
    let stat = read("/proc/self/stat");
    let stat = stat.rsplit(')').next().unwrap_or_default();
    let mut own = Process::default();
    own.resident_bytes.0 = field(&read("/proc/self/statm"), 1) * 4096;
    own.cpu_ms.0 = (field(stat, 11) + field(stat, 12)) * 10;
    own.open_files.0 = fs::read_dir("/proc/self/fd").map_or(0, |all| all.count() as u64);
    own.group()
}

/// The network interface that holds a daemon's address; empty where the kernel does not tell.
#[must_use]
pub fn interface_of(addrs: &AddrVec) -> String {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let found = match addrs.front().sock.map(|at| at.ip()) {
        Some(ip) if ip.is_loopback() => Some("lo".to_owned()),
        Some(IpAddr::V4(ip)) => by_route(&read("/proc/net/route"), u32::from(ip)),
        Some(IpAddr::V6(ip)) => by_inet6(&read("/proc/net/if_inet6"), u128::from(ip)),
        None => None,
    };
    found.unwrap_or_default()
}

/// The interface of the narrowest network without a gateway that holds an address.
fn by_route(table: &str, ip: u32) -> Option<String> {
    let rows = table.lines().skip(1).filter_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        // The kernel prints addresses as it has them in memory.
        let number = |at: usize| Some(u32::from_str_radix(fields.get(at)?, 16).ok()?.swap_bytes());
        let (to, gateway, mask) = (number(1)?, number(2)?, number(7)?);
        (gateway == 0 && mask != 0 && ip & mask == to).then(|| (mask, fields[0].to_owned()))
    });
    rows.max_by_key(|(mask, _)| *mask).map(|(_, name)| name)
}

fn by_inet6(table: &str, ip: u128) -> Option<String> {
    let row = table.lines().find(|line| line.starts_with(&format!("{ip:032x} ")))?;
    row.split_whitespace().last().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interfaces_by_their_networks() {
        let route = "Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT\n\
            eth0 00000000 0102A8C0 0003 0 0 0 00000000 0 0 0\n\
            eth0 0002A8C0 00000000 0001 0 0 0 00FFFFFF 0 0 0\n\
            eth1 0000A8C0 00000000 0001 0 0 0 0000FFFF 0 0 0\n";
        let ip = |text: &str| u32::from(text.parse::<std::net::Ipv4Addr>().unwrap());
        assert_eq!(by_route(route, ip("192.168.2.7")).as_deref(), Some("eth0"));
        assert_eq!(by_route(route, ip("192.168.3.7")).as_deref(), Some("eth1"));
        assert_eq!(by_route(route, ip("203.0.113.7")), None);
        let inet6 = "fe80000000000000000000000000000a 02 40 20 80     eth0\n";
        let ip: std::net::Ipv6Addr = "fe80::a".parse().unwrap();
        assert_eq!(by_inet6(inet6, u128::from(ip)).as_deref(), Some("eth0"));
        assert_eq!(by_inet6(inet6, 1), None);
    }

    #[test]
    fn a_process_counts_itself() {
        let told = metrics::perf(&[process()], false, None, None);
        let number = |name: &str| told["argonaut"][name].as_u64().unwrap();
        assert!((1 << 20..1 << 34).contains(&number("resident_bytes")), "{told}");
        assert!((3..100_000).contains(&number("open_files")), "{told}");
    }

    #[test]
    fn it_is_known_when_data_was_made() {
        let dir = std::env::temp_dir().join(format!("argonaut-made-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        assert_eq!(made(&dir)[TIME], "");
        mark_made(&dir, UTime { sec: 1_764_500_000, nsec: 123_456_000 }).unwrap();
        let made = made(&dir);
        fs::remove_dir_all(&dir).unwrap();
        assert_eq!(made[TIME], "2025-11-30T10:53:20.123456Z");
        assert_eq!(made[VERSION], release::version());
    }
}
