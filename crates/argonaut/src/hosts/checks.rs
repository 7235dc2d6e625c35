//! What is looked at before a host joins: each refusal says what is wrong and where.

use std::fs;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rados::MON_PORTS;

use super::who::{Who, off_ns};
use crate::target::Target;

/// How long a monitor's host may take to take a connection.
const REACH_MAX: Duration = Duration::from_secs(5);
/// Clocks further apart end leases and tickets early: `mon_clock_drift_allowed`, in nanoseconds.
const CLOCK_OFF_MAX_NS: i128 = 50_000_000;
/// Disks that are smaller are not taken by `--disks all`.
const DISK_BYTES_MIN: u64 = 5 << 30;

/// Reaches a monitor. Returns this host's address on the way.
///
/// # Errors
/// When no monitor can be reached; what each said.
pub fn reach(mons: &[SocketAddr]) -> Result<IpAddr> {
    let mut said = Vec::new();
    for mon in mons {
        match TcpStream::connect_timeout(mon, REACH_MAX).and_then(|s| s.local_addr()) {
            Ok(own) => return Ok(own.ip()),
            Err(err) => said.push(format!("{mon}: {err}")),
        }
    }
    bail!(
        "no monitor can be reached; {}. Is the port open to this host?",
        if said.is_empty() { "none is named".to_owned() } else { said.join("; ") }
    )
}

/// # Errors
/// When this host's clock is certainly more than 0.05 s off the monitors'.
pub fn clock(who: &Who) -> Result<()> {
    let off = off_ns(&who.glances()?);
    if off.abs() > CLOCK_OFF_MAX_NS {
        let (s, way) = (off.abs() as f64 / 1e9, if off > 0 { "behind" } else { "ahead of" });
        bail!(
            "this host's clock is {s:.3} s {way} the monitors'; 0.05 s are allowed: run chrony or \
             ntpd on all hosts"
        );
    }
    Ok(())
}

/// # Errors
/// When a monitor could not listen at the address.
pub fn ports(addr: IpAddr) -> Result<()> {
    for port in MON_PORTS {
        match TcpListener::bind((addr, port)) {
            Ok(_) => {}
            Err(e) if e.kind() == ErrorKind::AddrInUse => bail!(
                "port {port} of {addr} is in use, and a monitor listens there: end what has it, or \
                 join with --no-mon"
            ),
            Err(e) => return Err(e).with_context(|| format!("cannot listen at {addr}:{port}")),
        }
    }
    Ok(())
}

/// # Errors
/// When one of them is in use, is no disk, or, without `force`, holds something.
pub fn disks(paths: &[PathBuf], force: bool) -> Result<()> {
    for path in paths {
        fs::metadata(path).with_context(|| path.display().to_string())?;
        Target::inspect(path, force)?;
    }
    Ok(())
}

/// Names below `/dev` of the disks that `--disks all` may mean: whole, fixed, writable, of 5 GiB and
/// more. What is on them is not looked at.
fn candidates(sys: &Path) -> Vec<String> {
    const NO_DISKS: [&str; 9] = ["loop", "ram", "zram", "sr", "fd", "dm-", "md", "nbd", "rbd"];
    let entries = fs::read_dir(sys.join("block")).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.filter_map(|e| e.file_name().into_string().ok()).collect();
    names.sort();
    let number = |name: &str, what: &str| -> Option<u64> {
        let text = fs::read_to_string(sys.join("block").join(name).join(what)).ok()?;
        text.trim().parse().ok()
    };
    names.retain(|name| {
        !NO_DISKS.iter().any(|other| name.starts_with(other))
            && number(name, "removable") != Some(1)
            && number(name, "ro") != Some(1)
            && number(name, "size").is_some_and(|sectors| sectors * 512 >= DISK_BYTES_MIN)
    });
    names
}

/// All disks of this host that are empty and that nothing uses; of the others it says why not.
#[must_use]
pub fn free_disks(known: &[PathBuf]) -> Vec<PathBuf> {
    let all = candidates(Path::new("/sys")).into_iter().map(|name| Path::new("/dev").join(name));
    let is_free = |path: &PathBuf| match Target::inspect(path, false) {
        Ok(_) => true,
        Err(why) => {
            tell!("left alone: {}", crate::say::Why(&why));
            false
        }
    };
    all.filter(|path| !known.contains(path)).filter(is_free).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fixed_disks_are_taken_and_no_others() {
        let sys = std::env::temp_dir().join(format!("argonaut-sys-{}", std::process::id()));
        let disk = |name: &str, removable: u32, ro: u32, gib: u64| {
            let dir = sys.join("block").join(name);
            fs::create_dir_all(&dir).unwrap();
            fs::write(dir.join("removable"), format!("{removable}\n")).unwrap();
            fs::write(dir.join("ro"), format!("{ro}\n")).unwrap();
            fs::write(dir.join("size"), format!("{}\n", gib << 21)).unwrap();
        };
        disk("sdb", 0, 0, 100);
        disk("nvme0n1", 0, 0, 5);
        disk("sdc", 1, 0, 100);
        disk("sdd", 0, 1, 100);
        disk("sde", 0, 0, 4);
        disk("dm-0", 0, 0, 100);
        disk("loop1", 0, 0, 100);
        let found = candidates(&sys);
        fs::remove_dir_all(&sys).unwrap();
        assert_eq!(found, ["nvme0n1", "sdb"]);
    }

    #[test]
    fn what_is_in_the_way_is_named() {
        let addr: IpAddr = [127, 66, 1, 7].into();
        ports(addr).expect("free");
        let held = TcpListener::bind((addr, MON_PORTS[1])).expect("free");
        let why = ports(addr).expect_err("in use").to_string();
        assert!(why.contains("port 6789 of 127.66.1.7 is in use"), "{why}");
        drop(held);
        let closed: SocketAddr = (addr, MON_PORTS[0]).into();
        let why = reach(&[closed]).expect_err("nobody listens").to_string();
        assert!(why.contains("127.66.1.7:3300: Connection refused"), "{why}");
    }
}
