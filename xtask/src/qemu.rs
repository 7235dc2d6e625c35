//! A Debian that boots from an image: QEMU's own driver on librbd, OSDs killed meanwhile, a
//! snapshot while it writes, and a clone of that snapshot booted.

use std::path::Path;
use std::process::{Child, Stdio};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::cluster::Cluster;
use crate::report::Report;
use crate::{lab, sh};

/// How long a boot may take until the machine is off again; it is emulated where there is no KVM.
const BOOT_MAX: Duration = Duration::from_secs(900);

/// Boots in the root of `suite`: its QEMU, its librbd.
///
/// # Errors
/// When the disk cannot be made or the cluster does not start; what failed is in the report.
pub fn run(suite: &str) -> Result<Report> {
    let mut report = Report::default();
    lab::root(suite)?;
    let packages = "qemu-system-x86 qemu-utils qemu-block-extra";
    sh::output(&mut lab::exec(
        suite,
        &format!(
            "dpkg -s {packages} >/dev/null 2>&1 || {{ export DEBIAN_FRONTEND=noninteractive; apt-get update -q && \
             apt-get install -yq --no-install-recommends {packages}; }}"
        ),
    ))?;
    let cluster = Cluster::up("qemu", &["--osds", "4", "--osd-bytes", "6G"])?;
    println!("argonaut up: {:.2} s", cluster.up_s);
    let dir = cluster.dir.display().to_string();
    sh::output(sh::bash("exec \"$0\" disk \"$1\"").arg(sh::repo().join("lab/guest")).arg(&dir))?;
    let conf = cluster.conf();
    let rbd = |image: &str| format!("rbd:vm/{image}:conf={}", conf.display());
    let client =
        |line: &str| sh::output(&mut cluster.client(suite, &format!("timeout 600 {line}")));
    report.check("qemu-img create, convert, compare", || {
        client("ceph osd pool create vm 16")?;
        client("rbd pool init vm")?;
        client(&format!("qemu-img create -f raw {} 1G", rbd("empty")))?;
        client(&format!("qemu-img convert -f raw -O raw {dir}/disk.raw {}", rbd("debian")))?;
        client(&format!("qemu-img compare -f raw -F raw {dir}/disk.raw {}", rbd("debian")))?;
        Ok(())
    });
    report.check("boot, an OSD killed twice, a snapshot meanwhile", || {
        let mut machine = Machine::start(&cluster, suite, &rbd("debian"))?;
        machine.wait_for("EXT4-fs (vda): mounted")?;
        outage(&cluster, "osd.1", Duration::from_secs(12))?;
        machine.wait_for("PROOF-EARLIER 0 files")?;
        outage(&cluster, "osd.2", Duration::ZERO)?;
        machine.wait_for("PROOF-FILE 5")?;
        client("rbd --no-progress snap create vm/debian@live")?;
        machine.well("PROOF-DONE boot 1, 12 files")
    });
    report.check("boot again: what it wrote is there", || {
        let machine = Machine::start(&cluster, suite, &rbd("debian"))?;
        machine.well("PROOF-DONE boot 2, 24 files")
    });
    report.check("a clone of the snapshot boots", || {
        client("rbd --no-progress export vm/debian - | sha256sum > $(dirname $CEPH_CONF)/before")?;
        client("rbd snap protect vm/debian@live")?;
        client("rbd clone vm/debian@live vm/clone")?;
        let mut machine = Machine::start(&cluster, suite, &rbd("clone"))?;
        // Its file system was in use at the snapshot, as after a power cut; what it had told
        // of by then is there.
        machine.wait_for("PROOF-EARLIER")?;
        let files = machine
            .said()
            .lines()
            .find_map(|l| l.split_once("PROOF-EARLIER ")?.1.split(' ').next()?.parse::<u32>().ok());
        if files.is_none_or(|n| !(5..=12).contains(&n)) {
            bail!("{files:?} files are there");
        }
        outage(&cluster, "osd.3", Duration::ZERO)?;
        machine.well("PROOF-DONE boot 1")?;
        client(
            "rbd --no-progress export vm/debian - | sha256sum | cmp - $(dirname $CEPH_CONF)/before",
        )?;
        Ok(())
    });
    for image in ["debian", "clone"] {
        report.check(&format!("file system and object map of {image}"), || {
            let raw = format!("{dir}/{image}.raw");
            client(&format!("qemu-img convert -f raw -O raw {} {raw}", rbd(image)))?;
            sh::output(&mut sh::bash(&format!("e2fsck -fn {raw}")))?;
            client(&format!("rbd object-map check --no-progress vm/{image}"))?;
            Ok(std::fs::remove_file(raw)?)
        });
    }
    report.check("qcow2 in an image: qemu-img check, compare", || {
        client(&format!("qemu-img convert -f raw -O qcow2 {} {}", rbd("clone"), rbd("qcow2")))?;
        client(&format!("qemu-img check -f qcow2 {}", rbd("qcow2")))?;
        client(&format!("qemu-img compare -f raw -F qcow2 {} {}", rbd("clone"), rbd("qcow2")))?;
        Ok(())
    });
    Ok(report)
}

/// Kills a daemon, and again whenever it is back, for so long.
///
/// # Errors
/// When it does not run.
pub fn outage(cluster: &Cluster, daemon: &str, long: Duration) -> Result<()> {
    let end = sh::now() + long;
    let mut killed = 0;
    loop {
        if let Some((_, pid)) = cluster.pids()?.into_iter().find(|(n, _)| n == daemon)
            && Path::new(&format!("/proc/{pid}")).exists()
        {
            sh::output(&mut sh::bash(&format!("kill -9 {pid} 2>/dev/null; true")))?;
            killed += 1;
        }
        if sh::now() >= end {
            break;
        }
        sleep(Duration::from_millis(200));
    }
    if killed == 0 {
        bail!("{daemon} does not run");
    }
    Ok(())
}

/// A virtual machine; killed when dropped.
struct Machine {
    child: Child,
    console: std::path::PathBuf,
    end: std::time::Instant,
}

impl Machine {
    fn start(cluster: &Cluster, suite: &str, drive: &str) -> Result<Self> {
        let dir = cluster.dir.display();
        let console = cluster.dir.join("console.log");
        std::fs::remove_file(&console).ok();
        // A device without vmx or svm exists too; a stock kernel gets nowhere on it.
        let line = format!(
            "accel=tcg,thread=multi cpu=max; grep -qwE 'vmx|svm' /proc/cpuinfo && [ -w /dev/kvm ] && accel=kvm cpu=host; \
             exec qemu-system-x86_64 -nodefaults -no-user-config -no-reboot -display none -accel $accel -cpu $cpu \
             -smp 2 -m 768 -kernel {dir}/vmlinux -initrd {dir}/initramfs \
             -append 'console=ttyS0 panic=-1 mitigations=off' -serial file:{} \
             -drive 'file={drive},format=raw,if=virtio,cache=writeback,discard=unmap'",
            console.display()
        );
        let child = cluster.client(suite, &line).stdin(Stdio::null()).spawn().context("qemu")?;
        Ok(Self { child, console, end: sh::now() + BOOT_MAX })
    }

    fn said(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.console).unwrap_or_default()).into_owned()
    }

    fn wait_for(&mut self, words: &str) -> Result<()> {
        loop {
            let said = self.said();
            if said.contains(words) {
                return Ok(());
            }
            let ended = self.child.try_wait()?;
            if said.contains("PROOF-FAILED") || ended.is_some() || sh::now() > self.end {
                let lines: Vec<&str> = said.lines().collect();
                let last = lines[lines.len().saturating_sub(40)..].join("\n");
                bail!("'{words}' was not said ({ended:?}); the console:\n{last}");
            }
            sleep(Duration::from_millis(100));
        }
    }

    /// It says these words and switches itself off.
    fn well(mut self, words: &str) -> Result<()> {
        self.wait_for(words)?;
        self.wait_for("reboot: Power down")?;
        while sh::now() < self.end {
            if let Some(status) = self.child.try_wait()? {
                if !status.success() {
                    bail!("qemu ended with {status}");
                }
                let said = self.said();
                for wrong in ["I/O error", "EXT4-fs error", "Call Trace", "PROOF-FAILED"] {
                    if said.contains(wrong) {
                        bail!("the console has '{wrong}'");
                    }
                }
                for line in said.lines().filter(|l| {
                    (l.contains("PROOF-") && !l.contains("-FILE")) || l.contains("recovery")
                }) {
                    println!("        {}", line.trim());
                }
                return Ok(());
            }
            sleep(Duration::from_millis(100));
        }
        bail!("qemu does not end after the machine is off")
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
