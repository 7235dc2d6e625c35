//! Clients beside recovery: what they do, and how long it takes them.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::disk::Stop;
use super::{LOAD_TOOL, SUITE};
use crate::cluster::Cluster;

/// Of all that clients ask, a disk that stands still may spoil so much; a measurement with more
/// says nothing.
const SPOILT_MAX: f64 = 0.2;
/// The slowest are counted by slices of so long, s.
const SLICE: f64 = 0.2;

/// A client at work.
pub struct Load(Child);

/// An operation: when it was due, s since 1970, and how long it took from then, s.
#[derive(Clone, Copy, Debug)]
struct Answer {
    due: f64,
    took: f64,
    wrote: bool,
}

/// What a client's operations took, ms; without those that met a disk that stood still.
#[derive(Debug)]
pub struct Figures {
    pub ops_s: f64,
    pub p99: f64,
    text: String,
}

impl std::fmt::Display for Figures {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

impl Load {
    /// Begins `secs` seconds of operations, as many as it can or `rate` a second.
    ///
    /// # Errors
    /// When it does not begin.
    pub fn begin(cluster: &Cluster, secs: u64, rate: Option<f64>) -> Result<Self> {
        let rate = rate.map_or_else(String::new, |r| r.to_string());
        let tool = cluster.dir.join(LOAD_TOOL);
        let line = format!("exec timeout 700 python3 {} load {secs} {rate}", tool.display());
        let mut client = cluster.client(SUITE, &line);
        let child =
            client.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let mut load = Self(child);
        // It writes its objects first.
        let stderr = load.0.stderr.take().context("its standard error")?;
        if !BufReader::new(stderr).lines().next().is_some_and(|l| l.is_ok_and(|l| l == "ready")) {
            bail!("the client does not begin");
        }
        std::thread::sleep(Duration::from_secs(2));
        Ok(load)
    }

    /// Waits for its end, and gives what its operations took; `stops` are asked for those of
    /// the disk since a time.
    ///
    /// # Errors
    /// When an operation failed, or the disk stood still for too much of it.
    pub fn answer(self, stops: impl Fn(f64) -> Vec<Stop>) -> Result<Figures> {
        let out = self.0.wait_with_output()?;
        if !out.status.success() {
            bail!("the client ended with {}", out.status);
        }
        let all: Value = serde_json::from_slice(&out.stdout)?;
        let answer = |a: &Value| {
            Some(Answer { due: a[0].as_f64()?, took: a[1].as_f64()?, wrote: a[2].as_bool()? })
        };
        let answers: Option<Vec<Answer>> =
            all.as_array().and_then(|a| a.iter().map(answer).collect());
        let answers = answers.context("its operations")?;
        let began = answers.iter().map(|a| a.due).fold(f64::MAX, f64::min);
        figures(&answers, &stops(began))
    }

    /// As [`Load::answer`], at once.
    ///
    /// # Errors
    /// As there.
    pub fn answer_now(mut self, stops: impl Fn(f64) -> Vec<Stop>) -> Result<Figures> {
        writeln!(self.0.stdin.take().context("its standard input")?, "end")?;
        self.answer(stops)
    }
}

fn spoils(stop: &Stop, answer: &Answer) -> bool {
    answer.due < stop.felt_until() && answer.due + answer.took > stop.began
}

/// How much of the time from `began` to `ended` the stops are felt, s.
fn felt(stops: &[Stop], began: f64, ended: f64) -> f64 {
    let (mut felt, mut until) = (0.0, began);
    for stop in stops {
        let (from, to) = (stop.began.max(until), stop.felt_until().min(ended));
        felt += (to - from).max(0.0);
        until = until.max(to);
    }
    felt
}

fn figures(answers: &[Answer], stops: &[Stop]) -> Result<Figures> {
    let good: Vec<Answer> =
        answers.iter().copied().filter(|a| !stops.iter().any(|s| spoils(s, a))).collect();
    let spoilt = answers.len() - good.len();
    if good.is_empty() || spoilt as f64 > answers.len() as f64 * SPOILT_MAX {
        bail!(
            "the disk stood still: {spoilt} of {} operations met that; measure again on a better one",
            answers.len()
        );
    }
    let (began, ended) =
        good.iter().fold((f64::MAX, 0.0_f64), |(b, e), a| (b.min(a.due), e.max(a.due + a.took)));
    let ops_s = good.len() as f64 / (ended - began - felt(stops, began, ended)).max(1e-9);
    let sorted = |of: &dyn Fn(&Answer) -> bool| {
        let mut took: Vec<f64> = good.iter().filter(|a| of(a)).map(|a| a.took * 1e3).collect();
        took.sort_by(f64::total_cmp);
        took
    };
    let at = |took: &[f64], part: f64| {
        let n = (took.len() as f64 * part) as usize;
        took.get(n.min(took.len().saturating_sub(1))).copied().unwrap_or(0.0)
    };
    let all = sorted(&|_| true);
    let p99 = at(&all, 0.99);
    let mean = all.iter().sum::<f64>() / all.len() as f64;
    let mut text = format!(
        "{ops_s:.0} a second, ms: mean {mean:.2}, p50 {:.2}, p90 {:.2}, p99 {p99:.2} (reads {:.2}, \
         writes {:.2}); slowest at",
        at(&all, 0.5),
        at(&all, 0.9),
        at(&sorted(&|a| !a.wrote), 0.99),
        at(&sorted(&|a| a.wrote), 0.99),
    );
    for (slice, slow, longest) in slowest(&good, began, p99) {
        text += &format!(" {:.1} s: {slow} up to {longest:.0},", slice as f64 * SLICE);
    }
    text += &match stops.iter().map(Stop::secs).fold(0.0, f64::max) {
        0.0 => " the disk never stood still".into(),
        longest => format!(
            " the disk stood still {} times, up to {:.0} ms, and spoilt {:.1} %",
            stops.len(),
            longest * 1e3,
            spoilt as f64 * 100.0 / answers.len() as f64
        ),
    };
    Ok(Figures { ops_s, p99, text })
}

/// The three slices of time that most of the slowest hundredth began in: which, how many, and the
/// longest, ms.
fn slowest(answers: &[Answer], began: f64, p99: f64) -> Vec<(u64, usize, f64)> {
    let mut slices = std::collections::BTreeMap::<u64, (usize, f64)>::new();
    for a in answers.iter().filter(|a| a.took * 1e3 >= p99) {
        let slice = slices.entry(((a.due - began) / SLICE) as u64).or_default();
        *slice = (slice.0 + 1, slice.1.max(a.took * 1e3));
    }
    let mut slices: Vec<_> = slices.into_iter().map(|(at, (n, ms))| (at, n, ms)).collect();
    slices.sort_by_key(|s| std::cmp::Reverse(s.1));
    slices.truncate(3);
    slices
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answers() -> Vec<Answer> {
        let of = |n| Answer { due: 1000.0 + f64::from(n) / 100.0, took: 0.001, wrote: n % 2 == 0 };
        (0..1000).map(of).collect()
    }

    #[test]
    fn what_met_a_disk_that_stood_still_does_not_count() {
        let mut all = answers();
        for a in &mut all[500..520] {
            a.took = 1005.19 - a.due;
        }
        assert!(figures(&all, &[]).unwrap().p99 > 100.0);
        let stop = Stop { began: 1004.9995, ended: 1005.1895 };
        let f = figures(&all, &[stop]).unwrap();
        assert!((f.p99 - 1.0).abs() < 1e-6, "{f}");
        assert!((f.ops_s - 100.0).abs() < 0.5, "{f}");
        assert!(f.text.contains("stood still 1 times, up to 190 ms, and spoilt 3.8 %"), "{f}");
    }

    #[test]
    fn a_disk_that_stands_still_for_long_spoils_the_measurement() {
        let long = Stop { began: 1001.0, ended: 1003.0 };
        assert!(figures(&answers(), &[long]).is_err());
    }

    #[test]
    fn what_is_slow_elsewhere_counts() {
        let mut all = answers();
        for a in &mut all[300..320] {
            a.took = 0.05;
        }
        let stop = Stop { began: 1005.0, ended: 1005.1 };
        let f = figures(&all, &[stop]).unwrap();
        assert!((f.p99 - 50.0).abs() < 1e-6, "{f}");
        assert_eq!(slowest(&all, 1000.0, f.p99)[0].1, 20, "all in one slice");
    }
}
