//! How fast an image is.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use anyhow::{Result, bail};
use bytes::Bytes;
use clap::ValueEnum;
use env::Random;
use rbd::Image;

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum IoType {
    Write,
    Read,
    /// Half of each.
    Readwrite,
}

/// Where.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Pattern {
    Seq,
    Rand,
}

/// All of it.
pub struct Wanted {
    pub io_type: IoType,
    pub size: u64,
    pub threads: usize,
    pub total: u64,
    pub pattern: Pattern,
}

impl Wanted {
    pub fn writes(&self) -> bool {
        self.io_type != IoType::Read
    }
}

pub async fn run(image: &Image, wanted: &Wanted) -> Result<()> {
    let slots = image.size().checked_div(wanted.size).unwrap_or(0);
    if slots == 0 {
        bail!("the image has {} bytes, less than one operation", image.size());
    }
    if wanted.writes() {
        image.acquire_lock().await?;
    }
    let count = wanted.total.div_ceil(wanted.size);
    let mut random = rt::OsRandom;
    let data = Bytes::from((0..wanted.size).map(|i| ((i * 131) >> 3) as u8).collect::<Vec<_>>());
    let next = Rc::new(Cell::new(0u64));
    let taken = Rc::new(RefCell::new(Vec::<u64>::with_capacity(count as usize)));
    let start = rt::now();
    let mut tasks = Vec::new();
    for _ in 0..wanted.threads.max(1) {
        let (image, data) = (image.clone(), data.clone());
        let (next, taken) = (next.clone(), taken.clone());
        let (io_type, size, pattern) = (wanted.io_type, wanted.size, wanted.pattern);
        let mut seed = random.u64() | 1;
        tasks.push(tokio::task::spawn_local(async move {
            loop {
                let n = next.get();
                if n >= count {
                    return Ok::<_, rbd::Error>(());
                }
                next.set(n + 1);
                // xorshift: places need no better chance.
                seed ^= seed << 13;
                seed ^= seed >> 7;
                seed ^= seed << 17;
                let slot = if pattern == Pattern::Seq { n % slots } else { seed % slots };
                let write = match io_type {
                    IoType::Write => true,
                    IoType::Read => false,
                    IoType::Readwrite => seed >> 40 & 1 == 0,
                };
                let before = rt::now().mono_ns;
                if write {
                    image.write(slot * size, data.clone()).await?;
                } else {
                    image.read(slot * size, size).await?;
                }
                taken.borrow_mut().push(rt::now().mono_ns - before);
            }
        }));
    }
    for task in tasks {
        task.await??;
    }
    let secs = (rt::now().mono_ns - start.mono_ns) as f64 / 1e9;
    let mut taken = taken.take();
    taken.sort_unstable();
    let at = |part: f64| {
        let i = (taken.len() as f64 * part) as usize;
        taken.get(i.min(taken.len().saturating_sub(1))).map_or(0.0, |ns| *ns as f64 / 1e6)
    };
    let ops = taken.len() as f64;
    say!("operations   {ops}");
    say!("seconds      {secs:.2}");
    say!("per second   {:.0}", ops / secs);
    say!("MiB/s        {:.1}", ops * wanted.size as f64 / secs / f64::from(1 << 20));
    say!("latency ms   p50 {:.2}  p99 {:.2}  max {:.2}", at(0.5), at(0.99), at(1.0));
    Ok(())
}
