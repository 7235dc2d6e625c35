//! When a disk stood still: it had requests, and completed none.
//!
//! Virtual disks do that for a tenth of a second and more, whatever is asked of them; nobody who
//! waits for one can be measured meanwhile.

use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::sh;

/// A disk with requests stands still when it completes none for so long, s. The slowest hundredth
/// of what stores ask of one takes a fiftieth of that.
const STILL: f64 = 0.03;
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// A time in which a disk stood still: begin and end, s since 1970.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stop {
    pub began: f64,
    pub ended: f64,
}

impl Stop {
    pub fn secs(&self) -> f64 {
        self.ended - self.began
    }

    /// Until when it is felt: what has gathered has to be done, which takes as long again.
    pub fn felt_until(&self) -> f64 {
        self.ended + self.secs()
    }
}

/// Looks at a disk until it is dropped.
pub struct Disk {
    stops: Arc<Mutex<Vec<Stop>>>,
    end: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Disk {
    /// The disk that holds the file at `path`; `None` where the kernel counts nothing of it (a
    /// file system over several, or in memory).
    ///
    /// # Errors
    /// When there is no such file, or no thread to be had.
    pub fn of(path: &Path) -> Result<Option<Self>> {
        let dev = std::fs::metadata(path)?.dev();
        // As makedev(3) packs them.
        let major = (dev >> 8 & 0xfff) | (dev >> 32 & !0xfff);
        let minor = (dev & 0xff) | (dev >> 12 & 0xfff00);
        let Ok(counts) = File::open(format!("/sys/dev/block/{major}:{minor}/stat")) else {
            return Ok(None);
        };
        let (stops, end) = (Arc::default(), Arc::new(AtomicBool::new(false)));
        let (ours, ended) = (Arc::clone(&stops), Arc::clone(&end));
        let thread = std::thread::Builder::new()
            .name("disk".into())
            .spawn(move || watch(&counts, &ours, &ended))?;
        Ok(Some(Self { stops, end, thread: Some(thread) }))
    }

    /// The times it stood still that ended after `since`.
    pub fn stops(&self, since: f64) -> Vec<Stop> {
        let stops = self.stops.lock().expect("nobody panics with it");
        stops.iter().copied().filter(|s| s.ended > since).collect()
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        self.end.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
    }
}

fn watch(counts: &File, stops: &Mutex<Vec<Stop>>, end: &AtomicBool) {
    let mut still = Still::default();
    let mut last = sh::wall();
    while !end.load(Ordering::Relaxed) {
        let mut text = [0; 512];
        let seen = counts.read_at(&mut text, 0).map_err(anyhow::Error::from);
        let seen = seen.and_then(|n| completed(&String::from_utf8_lossy(&text[..n])));
        // Nothing is known of a time in which this thread was held up itself.
        let now = sh::wall();
        let late = now - std::mem::replace(&mut last, now) > STILL / 2.0;
        let Ok(seen) = seen else { return };
        if let Some(stop) = still.see(seen, late, now) {
            stops.lock().expect("nobody panics with it").push(stop);
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// Requests a disk has completed, and whether it has more; of its `stat` in sysfs (the kernel's
/// Documentation/block/stat.rst).
fn completed(stat: &str) -> Result<(u64, bool)> {
    let fields: Vec<u64> = stat.split_whitespace().map(str::parse).collect::<Result<_, _>>()?;
    let field = |n: usize| fields.get(n).copied();
    // Reads, writes, discards, flushes; older kernels do not count the last two.
    let done = [0, 4, 11, 15].into_iter().filter_map(field).sum();
    Ok((done, field(8).context("requests in flight")? > 0))
}

/// Since when a disk completes nothing of what it has.
#[derive(Debug, Default)]
struct Still {
    done: u64,
    since: Option<f64>,
}

impl Still {
    /// What [`completed`] says now; when it stood still, once it goes on.
    fn see(&mut self, (done, more): (u64, bool), late: bool, now: f64) -> Option<Stop> {
        let moved = done != self.done || late;
        let since = self.since.filter(|_| moved && !late);
        if moved || !more {
            self.since = more.then_some(now);
        } else {
            self.since = self.since.or(Some(now));
        }
        self.done = done;
        let stop = Stop { began: since?, ended: now };
        (stop.secs() >= STILL).then_some(stop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn completed_requests_are_of_all_kinds() {
        let stat = "  10 0 80 5  20 0 160 9   3 7 14 30 0 240 1 40 2\n";
        assert_eq!(completed(stat).unwrap(), (100, true));
        let older = "10 0 80 5 20 0 160 9 0 7 14";
        assert_eq!(completed(older).unwrap(), (30, false));
        assert!(completed("10 0 80").is_err());
        assert!(completed("no figures").is_err());
    }

    #[test]
    fn a_disk_stands_still_when_it_has_requests_and_completes_none() {
        let mut still = Still::default();
        assert_eq!(still.see((5, true), false, 1.0), None);
        assert_eq!(still.see((5, true), false, 1.06), None, "it does still");
        let stop = Stop { began: 1.0, ended: 1.062 };
        assert_eq!(still.see((6, false), false, 1.062), Some(stop));
        assert_eq!(still.see((6, false), false, 1.2), None);
        assert_eq!(still.see((7, true), false, 1.4), None, "it had nothing to do");
        assert_eq!(still.see((8, true), false, 1.42), None, "soon enough");
        assert_eq!(still.see((9, true), true, 1.5), None, "nobody looked");
    }
}
