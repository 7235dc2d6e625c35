//! Rows of a comparison: which of them run, and what each says beside its aim.

use std::fmt::Write as _;

use anyhow::{Context, Result, bail};

use crate::bench::ROUNDS;

/// What stands behind `cargo xtask bench fs` or `bench s3`.
#[derive(Debug)]
pub(crate) struct Options {
    /// Fewer operations, one round unless `--rounds` says more.
    pub quick: bool,
    rows: Vec<String>,
    numbers: Vec<(String, u64)>,
    remark: Option<String>,
}

impl Options {
    /// Reads `--quick`, `--rows a,b`, `--rounds N` (odd), `--remark TEXT`, and what of `numbers` has a number behind it.
    ///
    /// # Errors
    /// When a word or a row is not known, or a value is missing.
    pub fn parse(words: &[&str], rows: &[&str], numbers: &[&str]) -> Result<Self> {
        let mut this = Self { quick: false, rows: Vec::new(), numbers: Vec::new(), remark: None };
        let mut words = words.iter();
        while let Some(&word) = words.next() {
            let mut value = || words.next().with_context(|| format!("{word} wants a value"));
            match word {
                "--quick" => this.quick = true,
                "--remark" => this.remark = Some((*value()?).to_owned()),
                "--rows" => {
                    for row in value()?.split(',') {
                        if !rows.contains(&row) {
                            bail!("no row {row}: one of {}", rows.join(", "));
                        }
                        this.rows.push(row.to_owned());
                    }
                }
                _ if word == "--rounds" || numbers.contains(&word) => {
                    let text = value()?;
                    let number = text.parse().with_context(|| format!("{word} {text}"))?;
                    this.numbers.push((word.to_owned(), number));
                }
                _ => bail!(
                    "unknown option {word}: --quick, --rows, --rounds, --remark, {}",
                    numbers.join(", ")
                ),
            }
        }
        Ok(this)
    }

    /// Whether a row is to run.
    pub fn has(&self, row: &str) -> bool {
        self.rows.is_empty() || self.rows.iter().any(|r| r == row)
    }

    /// The value of an option that has one.
    pub fn number(&self, name: &str) -> Option<u64> {
        self.numbers.iter().find(|(n, _)| n == name).map(|(_, number)| *number)
    }

    /// How often each side has its turn.
    pub fn rounds(&self) -> usize {
        self.number("--rounds").map_or(if self.quick { 1 } else { ROUNDS }, |n| {
            usize::try_from(n.max(1)).unwrap_or(ROUNDS)
        })
    }

    /// The command for the page, without the remark that stands there anyway.
    pub fn command(verb: &str, words: &[&str]) -> String {
        let mut words = words.iter();
        let mut text = verb.to_owned();
        while let Some(&word) = words.next() {
            if word == "--remark" {
                words.next();
            } else {
                text = format!("{text} {word}");
            }
        }
        text
    }

    /// What the page says of the machine's state.
    pub fn remark(&self) -> String {
        self.remark.as_ref().map(|text| format!("; {text}")).unwrap_or_default()
    }

    /// What two sides did, turn by turn, given the side and the round; who was last begins the next round.
    ///
    /// # Errors
    /// The first of `of`.
    pub fn in_turn<T>(&self, mut of: impl FnMut(usize, usize) -> Result<T>) -> Result<[Vec<T>; 2]> {
        let mut found = [Vec::new(), Vec::new()];
        for round in 0..self.rounds() {
            for i in [round % 2, 1 - round % 2] {
                found[i].push(of(i, round)?);
            }
        }
        Ok(found)
    }
}

/// An aim of a rate.
#[derive(Clone, Copy)]
pub(crate) struct Wanted {
    /// Ours by theirs; 0 where there is no aim.
    pub ratio: f64,
    /// CPU of our clients per operation, us: what it leaves of two cores is the most that a server can do.
    pub client_us: f64,
}

/// Cores of the machine, as the pages say.
const CORES: f64 = 2.0;
/// The share of what clients leave that an aim may ask for.
const OF_CEILING: f64 = 0.8;

impl Wanted {
    fn ceiling(self) -> f64 {
        CORES * 1e6 / self.client_us.max(0.001)
    }

    /// The aim in words, and whether it is met.
    fn judge(self, [ours, theirs]: [f64; 2]) -> (String, bool) {
        if self.ratio == 0.0 {
            return ("–".to_owned(), true);
        }
        let (by_ratio, by_client) = (self.ratio * theirs, OF_CEILING * self.ceiling());
        if by_ratio <= by_client {
            (format!("{:.1}", self.ratio), ours >= by_ratio)
        } else {
            (
                format!("{:.2} (clients leave no {:.1})", by_client / theirs, self.ratio),
                ours >= by_client,
            )
        }
    }
}

/// A table in the making; rows are printed as they come.
pub(crate) struct Table {
    /// The table as Markdown.
    pub text: String,
}

fn met(is: bool) -> &'static str {
    if is { "yes" } else { "**no**" }
}

/// A figure with as many digits as it deserves.
fn digits(figure: f64) -> String {
    if figure.abs() >= 100.0 { format!("{figure:.0}") } else { format!("{figure:.2}") }
}

impl Table {
    /// Begins a table whose columns of CPU have these names.
    pub fn new(work: &str, servers: &str, clients: &str) -> Self {
        let mut text = String::new();
        let _ = writeln!(
            text,
            "\n| {work} | ours /s | theirs /s | ratio | wanted | met | {servers} | ratio | wanted | met | {clients} |\n\
             |---|---|---|---|---|---|---|---|---|---|---|"
        );
        Self { text }
    }

    /// A row of rates, with the CPU of two kinds of servers in it, and an aim for their sum.
    pub fn rate(
        &mut self,
        work: &str,
        rates: [f64; 2],
        wanted: Wanted,
        servers: [(f64, f64); 2],
        cpu: Option<f64>,
        clients: [f64; 2],
    ) {
        let (aim, is) = wanted.judge(rates);
        let [ours, theirs] = servers;
        let ratio = (ours.0 + ours.1) / (theirs.0 + theirs.1);
        let (cpu_aim, cpu_met) = match cpu {
            Some(aim) => (format!("{aim:.2}"), met(ratio <= aim)),
            None => ("–".to_owned(), "–"),
        };
        let both = |(first, second): (f64, f64)| {
            if second == 0.0 {
                digits(first)
            } else {
                format!("{} + {}", digits(first), digits(second))
            }
        };
        self.add(&format!(
            "| {work} | {} | {} | {:.2} | {aim} | {} | {} / {} | {ratio:.2} | {cpu_aim} | {cpu_met} | {} / {}; {:.0} |",
            digits(rates[0]),
            digits(rates[1]),
            rates[0] / rates[1],
            if wanted.ratio == 0.0 { "–" } else { met(is) },
            both(ours),
            both(theirs),
            digits(clients[0]),
            digits(clients[1]),
            wanted.ceiling(),
        ));
    }

    /// A row of another figure.
    pub fn figure(
        &mut self,
        work: &str,
        found: [f64; 2],
        unit: &str,
        aim: &str,
        is: impl Fn([f64; 2]) -> bool,
    ) {
        self.add(&format!(
            "| {work} | {} {unit} | {} {unit} | {:.2} | {aim} | {} | | | | | |",
            digits(found[0]),
            digits(found[1]),
            found[0] / found[1],
            met(is(found)),
        ));
    }

    /// A row that could not be measured.
    pub fn failed(&mut self, row: &str, error: &anyhow::Error) {
        eprintln!("row {row}: {error:#}");
        let text = format!("{error:#}").replace('|', "/");
        let last = text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default();
        let last: String = last.chars().skip(last.chars().count().saturating_sub(160)).collect();
        self.add(&format!("| {row} | **failed**: {last} | | | | | | | | | |"));
    }

    fn add(&mut self, row: &str) {
        println!("{row}");
        self.text.push_str(row);
        self.text.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_name_rows_and_numbers() {
        let options =
            Options::parse(&["--rows", "a,b", "--names", "7"], &["a", "b", "c"], &["--names"])
                .expect("known");
        assert!(options.has("a") && !options.has("c") && !options.quick);
        assert_eq!(options.number("--names"), Some(7));
        for wrong in [&["--rows", "d"][..], &["--names"], &["--names", "x"], &["--fast"]] {
            assert!(Options::parse(wrong, &["a"], &["--names"]).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn an_aim_is_no_higher_than_what_clients_leave() {
        // 100 us an operation leave 20,000/s of two cores, and 16,000 are asked for at most.
        let wanted = Wanted { ratio: 4.0, client_us: 100.0 };
        assert!(!wanted.judge([3_900.0, 1_000.0]).1 && wanted.judge([4_000.0, 1_000.0]).1);
        assert!(!wanted.judge([15_900.0, 8_000.0]).1 && wanted.judge([16_000.0, 8_000.0]).1);
    }
}
