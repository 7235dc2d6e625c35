//! Byte streams from nowhere against every listening port.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use env::{Random, Seeded};

use crate::cluster::Cluster;
use crate::report::Report;
use crate::{lab, sh};

/// Sends `streams` random and mutated streams, with a valid client at work meanwhile.
///
/// # Errors
/// When the cluster does not start; what broke is in the report.
pub fn run(streams: u64) -> Result<Report> {
    let mut report = Report::default();
    lab::root("forky")?;
    let cluster = Cluster::up("hostile", &["--osds", "3"])?;
    let seed = std::process::id().into();
    println!("seed {seed}");
    let pids = cluster.pids()?;
    let ports = ports(&pids.iter().map(|(_, p)| *p).collect::<Vec<_>>())?;
    println!("{} daemons, {} listening ports", pids.len(), ports.len());
    sh::output(&mut cluster.client("forky", "ceph osd pool create hostile 8"))?;
    let (_, before) = cluster.usage("")?;
    let mut random = Seeded(seed);
    let mut worst = 0.0f64;
    report.check(&format!("{streams} hostile streams"), || {
        for n in 0..streams {
            let port = ports[(random.u64() % ports.len() as u64) as usize];
            send(port, &stream(&mut random))
                .with_context(|| format!("stream {n} to port {port}"))?;
            if n % (streams / 20).max(1) == 0 {
                let line =
                    "rados -p hostile put x /etc/hostname && rados -p hostile get x - >/dev/null";
                sh::output(&mut cluster.client("forky", &format!("timeout 20 bash -ec '{line}'")))
                    .with_context(|| format!("valid client after stream {n}"))?;
                worst = worst.max(cluster.usage("")?.1);
            }
        }
        Ok(())
    });
    report.check("daemons alive, memory bounded", || {
        if cluster.pids()? != pids {
            bail!("daemons were restarted");
        }
        let (_, after) = cluster.usage("").context("a daemon is gone")?;
        println!("        resident: {before:.0} MiB before, {worst:.0} at worst, {after:.0} after");
        if worst.max(after) > before + 64.0 * pids.len() as f64 {
            bail!("memory grew from {before:.0} to {:.0} MiB", worst.max(after));
        }
        Ok(())
    });
    Ok(report)
}

/// TCP ports that any of the processes listens on.
fn ports(pids: &[u32]) -> Result<Vec<u16>> {
    let mut inodes = Vec::new();
    for pid in pids {
        for fd in std::fs::read_dir(format!("/proc/{pid}/fd"))? {
            let Ok(link) = std::fs::read_link(fd?.path()) else { continue };
            if let Some(inode) = link.to_str().and_then(|l| l.strip_prefix("socket:[")) {
                inodes.push(inode.trim_end_matches(']').to_owned());
            }
        }
    }
    let mut ports = Vec::new();
    for line in std::fs::read_to_string("/proc/net/tcp")?.lines().skip(1) {
        let f: Vec<&str> = line.split_whitespace().collect();
        if f[3] == "0A" && inodes.iter().any(|i| i == f[9]) {
            ports.push(u16::from_str_radix(f[1].rsplit(':').next().context("a port")?, 16)?);
        }
    }
    if ports.is_empty() {
        bail!("no daemon listens");
    }
    Ok(ports)
}

fn noise(random: &mut Seeded, max: u64) -> Vec<u8> {
    let mut out = vec![0; (random.u64() % max) as usize];
    random.fill(&mut out);
    out
}

/// Noise, a broken handshake, or well-formed frames in a wrong place or with wrong content.
fn stream(random: &mut Seeded) -> Vec<u8> {
    let kind = random.u64() % 8;
    let mut out = Vec::new();
    match kind {
        0 => return noise(random, 2000),
        5.. => return stream_v1(random),
        _ => {}
    }
    out.extend(b"ceph v2\n\x10\0\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0");
    if kind == 1 {
        out.extend(noise(random, 600));
        return out;
    }
    let hello = [
        8, 1, 1, 1, 0x1c, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0x10, 0, 0, 0, 2, 0, 0x1a, 0x90, 127, 0,
        0, 1, 0, 0, 0, 0, 0, 0, 0, 0,
    ];
    frame(&mut out, 1, &hello);
    let mut auth = vec![
        2, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 22, 0, 0, 0, 10, 8, 0, 0, 0, 5, 0, 0, 0,
    ];
    auth.extend(b"admin\0\0\0\0\0\0\0\0");
    frame(&mut out, 2, &auth);
    match kind {
        2 => frame(&mut out, (random.u64() % 40) as u8, &noise(random, 300)),
        3 => {
            for _ in 0..4 {
                frame(&mut out, 5, &noise(random, 200));
            }
        }
        _ => {}
    }
    for _ in 0..=random.u64() % 4 {
        let at = (random.u64() % out.len() as u64) as usize;
        out[at] = random.u64() as u8;
    }
    out
}

/// The same for ports of messenger v1.
fn stream_v1(random: &mut Seeded) -> Vec<u8> {
    let mut out = b"ceph v027".to_vec();
    out.extend([0; 136]);
    let protocol = [15, 24, 32][(random.u64() % 3) as usize];
    for _ in 0..1 + random.u64() % 3 {
        let authorizer = if protocol == 15 { Vec::new() } else { noise(random, 300) };
        out.extend(0x3f01_cfbd_fffd_ffff_u64.to_le_bytes());
        let method = 2 * u32::from(protocol != 15);
        for word in [8, 1, 0, protocol, method, authorizer.len() as u32] {
            out.extend(word.to_le_bytes());
        }
        out.push(1);
        out.extend(authorizer);
        if protocol == 15 {
            break;
        }
    }
    out.extend([0; 8]);
    for seq in 1..=random.u64() % 4 {
        let mut front = vec![0; 22];
        if random.u64().is_multiple_of(2) {
            front.extend(
                b"\x1e\0\0\0\x01\x01\0\0\0\x02\0\0\0\x08\0\0\0\x05\0\0\0admin\0\0\0\0\0\0\0\0",
            );
        } else {
            front[18] = (random.u64() % 3) as u8;
            front.extend(noise(random, 200));
        }
        let mut head = seq.to_le_bytes().to_vec();
        head.extend([0; 8]);
        head.extend([17, 0, 127, 0, 1, 0]);
        head.extend((front.len() as u32).to_le_bytes());
        head.extend([0; 10]);
        head.extend([8, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0]);
        let crc = stdx::crc32c(0, &head);
        out.push(7);
        out.extend(head);
        out.extend(crc.to_le_bytes());
        out.extend(&front);
        out.extend(stdx::crc32c(0, &front).to_le_bytes());
        out.extend([0; 16]);
        out.push(1);
    }
    for _ in 0..random.u64() % 4 {
        let at = (random.u64() % out.len() as u64) as usize;
        out[at] = random.u64() as u8;
    }
    out
}

/// A control frame with correct checksums.
fn frame(out: &mut Vec<u8>, tag: u8, payload: &[u8]) {
    let mut head = [0u8; 32];
    head[0] = tag;
    head[1] = 1;
    head[2..6].copy_from_slice(&(payload.len() as u32).to_le_bytes());
    head[6] = 8;
    let crc = stdx::crc32c(0, &head[..28]);
    head[28..].copy_from_slice(&crc.to_le_bytes());
    out.extend(head);
    out.extend(payload);
    if !payload.is_empty() {
        out.extend(stdx::crc32c(!0, payload).to_le_bytes());
    }
}

fn send(port: u16, bytes: &[u8]) -> Result<()> {
    let addr = SocketAddr::from(([127, 0, 0, 1], port));
    let mut socket =
        TcpStream::connect_timeout(&addr, Duration::from_secs(10)).context("connect")?;
    socket.set_read_timeout(Some(Duration::from_millis(1)))?;
    socket.set_write_timeout(Some(Duration::from_secs(5)))?;
    // The daemon may have closed already: that is an answer too.
    let _ = socket.write_all(bytes);
    let _ = socket.read(&mut [0; 4096]);
    Ok(())
}
