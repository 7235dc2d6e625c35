//! `cargo xtask sim cluster`: many seeds of the simulated cluster.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Result, bail};
use sim::{Plant, Report, Scenes};

const USAGE: &str = "\
sim [--seeds N] [--seed S] [--verbose] [--plant NAME] [--threads N] [--keep-going]
    [--faults]

  --remap       measure a map change with 1,000 OSDs and 20,000 PGs, and nothing else
  --seeds N     run N seeds (100)
  --seed S      the first seed; alone: this one, with what happens in --verbose
  --faults      say how often each fault was played
  --ec          with erasure-coded pools only; --no-ec with none; else in every fourth seed
  --tier        with a cache tier wherever the pool is not coded; --no-tier with none; else in
                every sixth seed
  --class       with an uploaded class; --no-class without; else in every seventh seed
  --real-store  with the real store on disks that tear; --no-real-store with none; else in
                four seeds of thirteen
  --plant NAME  with a bug planted: lying-disks, empty-writes, forgotten-requests,
                false-pings, short-logs, forgotten-votes, unleased-reads,
                forgotten-snaps, half-copies, forgotten-watchers, deaf-to-room,
                empty-flushes, wrong-calls, loose-checkpoints, forgotten-maps;
                succeeds when a seed finds it
";

struct Args {
    seeds: u64,
    first: u64,
    verbose: bool,
    plant: Option<Plant>,
    threads: usize,
    keep_going: bool,
    faults: bool,
    scenes: Scenes,
}

fn args() -> Result<Args> {
    let (mut seeds, mut first) = (None, None);
    let mut a = Args {
        seeds: 100,
        first: 1,
        verbose: false,
        plant: None,
        threads: std::thread::available_parallelism().map_or(1, usize::from),
        keep_going: false,
        faults: false,
        scenes: Scenes::default(),
    };
    let mut it = std::env::args().skip(1);
    while let Some(word) = it.next() {
        let mut value = || it.next().ok_or_else(|| anyhow::anyhow!("{word} wants a value"));
        match word.as_str() {
            "--seeds" => seeds = Some(value()?.parse()?),
            "--seed" => first = Some(value()?.parse()?),
            "--threads" => a.threads = value()?.parse()?,
            "--verbose" => a.verbose = true,
            "--remap" => {
                sim::remap::measure()?;
                std::process::exit(0);
            }
            "--ec" => a.scenes.coded = Some(true),
            "--no-ec" => a.scenes.coded = Some(false),
            "--tier" => a.scenes.tier = Some(true),
            "--no-tier" => a.scenes.tier = Some(false),
            "--class" => a.scenes.class = Some(true),
            "--no-class" => a.scenes.class = Some(false),
            "--real-store" => a.scenes.real_store = Some(true),
            "--no-real-store" => a.scenes.real_store = Some(false),
            "--keep-going" => a.keep_going = true,
            "--faults" => a.faults = true,
            "--plant" => {
                let name = value()?;
                a.plant = Plant::ALL.into_iter().find(|p| p.name() == name);
                if a.plant.is_none() {
                    bail!("no such bug: {name}");
                }
            }
            _ => bail!("{word}?\n{USAGE}"),
        }
    }
    a.first = first.unwrap_or(1);
    a.seeds = seeds.unwrap_or(if first.is_some() { 1 } else { 100 });
    Ok(a)
}

fn show(r: &Report) {
    println!("seed {} is wrong (trace {:016x}):", r.seed, r.trace);
    for w in &r.wrong {
        println!("  {w}");
    }
}

fn main() -> Result<ExitCode> {
    let a = args()?;
    if a.verbose {
        tracing_subscriber::fmt()
            .with_writer(std::io::stderr)
            .without_time()
            .with_env_filter("osd=debug,mon=warn,sim=debug")
            .init();
    }
    let next = AtomicU64::new(a.first);
    let end = a.first + a.seeds;
    let reports = std::sync::Mutex::new(Vec::new());
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|s| {
        for _ in 0..a.threads.clamp(1, a.seeds.max(1) as usize) {
            s.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= end {
                        break;
                    }
                    let r = sim::run(seed, a.plant, a.scenes, a.verbose);
                    let wrong = !r.wrong.is_empty();
                    if wrong {
                        show(&r);
                        if a.plant.is_some() && !a.keep_going {
                            // Found. With its bug another seed may never come to an end.
                            println!("found at seed {seed}");
                            std::process::exit(0);
                        }
                        if !a.keep_going {
                            stop.store(true, Ordering::Relaxed);
                        }
                    }
                    reports.lock().expect("nobody panics here").push(r);
                }
            });
        }
    });
    let reports = reports.into_inner().expect("nobody panics here");
    let wrong = reports.iter().filter(|r| !r.wrong.is_empty()).count();
    let sum = |f: fn(&Report) -> u64| reports.iter().map(f).sum::<u64>();
    let slowest = reports.iter().max_by(|a, b| a.healed_secs.total_cmp(&b.healed_secs));
    let (healed, slow) = slowest.map_or((0.0, 0), |r| (r.healed_secs, r.seed));
    println!(
        "{} seeds, {wrong} wrong; {} operations, {} maps, {} faults, {} events, {:.1} virtual \
         hours; slowest to heal {healed:.1} s (seed {slow}); {} histories unchecked",
        reports.len(),
        sum(|r| r.operations),
        sum(|r| u64::from(r.epochs)),
        sum(|r| r.faults.values().sum()),
        sum(|r| r.events),
        sum(|r| r.virtual_ns) as f64 / 3.6e12,
        sum(|r| r.unchecked),
    );
    if a.faults {
        let mut all = BTreeMap::<&str, u64>::new();
        for (what, n) in reports.iter().flat_map(|r| r.faults.iter().chain(&r.deeds)) {
            *all.entry(what).or_default() += n;
        }
        let all: Vec<String> = all.into_iter().map(|(what, n)| format!("{what} {n}")).collect();
        println!("{}", all.join(", "));
    }
    if a.plant.is_some() {
        return Ok(if wrong > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    Ok(if wrong == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
