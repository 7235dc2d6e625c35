//! What users with all kinds of caps may do, beside what stock 20.2.4 let them do.
//!
//! `tests/caps/matrix.py` asks everything once and writes an outcome for each cell: a user, at a door
//! (OSDs, monitors, manager, tell), for a place, with a request. Outcomes of stock stand in
//! `vectors/caps/`; where ours is another on purpose, `exceptions.txt` beside it says why.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::cluster::Cluster;
use crate::report::Report;
use crate::{lab, sh};

/// Cells that differ and are shown.
const SHOWN_MAX: usize = 60;

/// Where a cell is: door, user, place, request.
type At = [String; 4];

/// Outcomes by cell: `.` is done, a letter or `{N}` an errno (`matrix.py` has the list).
#[derive(Debug, Default, PartialEq)]
struct Outcomes(BTreeMap<At, String>);

/// Cells where ours is meant to be another than stock's.
#[derive(Debug)]
struct Exception {
    /// Patterns; `*` stands for any text.
    at: At,
    stock: String,
    ours: String,
}

/// A cell that differs; `ours` is empty where it is missing.
#[derive(Debug, PartialEq)]
struct Difference {
    at: At,
    stock: String,
    ours: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: stock {}, ours {}", self.at.join(" "), self.stock, self.ours)
    }
}

/// Where records are.
fn vectors() -> PathBuf {
    sh::repo().join("vectors/caps")
}

fn record_path() -> PathBuf {
    vectors().join("stock-20.2.4.txt")
}

/// Judges ours by the record.
///
/// # Errors
/// When the cluster does not start; what differs is in the report.
pub fn ours() -> Result<Report> {
    let mut report = Report::default();
    lab::root("forky")?;
    let cluster = Cluster::up("caps", &["--osds", "2"])?;
    report.check("caps: each outcome as recorded of stock 20.2.4", || {
        let record = std::fs::read_to_string(record_path()).context("the record of stock")?;
        let exceptions = std::fs::read_to_string(vectors().join("exceptions.txt"))?;
        let text = ask(&cluster.dir, Some(&record_path()))?;
        judge(&record, &text, &exceptions)
    });
    Ok(report)
}

/// The same of stock, and of ours after it.
///
/// # Errors
/// When a cluster does not start.
pub fn peer() -> Result<Report> {
    let mut report = Report::default();
    report.check("caps: stock 20.2.4 as recorded", || {
        let record = std::fs::read_to_string(record_path()).context("the record of stock")?;
        judge(&record, &of_stock(Some(&record_path()))?, "")
    });
    report.add(ours()?);
    Ok(report)
}

/// Writes the record anew.
///
/// # Errors
/// When the stock cluster does not start or stops answering.
pub fn record() -> Result<()> {
    let text = of_stock(None)?;
    let cells = Outcomes::parse(&text)?.0.len();
    std::fs::create_dir_all(vectors())?;
    let head = "# Stock 20.2.4: outcomes by door, user and place, a letter for a request (tests/caps/matrix.py).\n\
                # Made by `cargo xtask caps record`; users made by chance come from a seed.\n";
    std::fs::write(record_path(), format!("{head}{text}"))?;
    println!("{cells} cells in {}", record_path().display());
    Ok(())
}

fn of_stock(generated: Option<&Path>) -> Result<String> {
    lab::peer_down("caps").ok();
    let asked = lab::peer_up("caps", 2, 2)
        .and_then(|conf| ask(conf.parent().context("a directory")?, generated));
    lab::peer_down("caps")?;
    asked
}

/// Runs the matrix against the cluster in `dir`, which is seen inside the root too.
fn ask(dir: &Path, generated: Option<&Path>) -> Result<String> {
    let (to, out) = (dir.join("matrix"), dir.join("outcomes.txt"));
    std::fs::create_dir_all(&to)?;
    for entry in std::fs::read_dir(sh::repo().join("tests/caps"))? {
        let path = entry?.path();
        if path.is_file() {
            std::fs::copy(&path, to.join(path.file_name().context("a file")?))?;
        }
    }
    let mut line =
        format!("cd {} && timeout 600 python3 matrix.py {}/ceph.conf", to.display(), dir.display());
    if let Some(path) = generated {
        std::fs::copy(path, to.join("recorded.txt"))?;
        line += " recorded.txt";
    }
    sh::output(&mut lab::exec("forky", &format!("{line} > {}", out.display())))?;
    Ok(std::fs::read_to_string(out)?)
}

/// Compares two records.
///
/// # Errors
/// With cells that differ, and exceptions that do not hold.
fn judge(stock: &str, ours: &str, exceptions: &str) -> Result<()> {
    let (stock, ours) = (Outcomes::parse(stock)?, Outcomes::parse(ours)?);
    let exceptions = exceptions_of(exceptions)?;
    let differences = stock.differences(&ours);
    let (mut wrong, mut excepted) = (Vec::new(), 0);
    for d in &differences {
        if exceptions.iter().any(|e| e.covers(&d.at, &d.stock) && e.ours == d.ours) {
            excepted += 1;
        } else {
            wrong.push(d.to_string());
        }
    }
    println!("        {} cells, {excepted} differ on purpose", stock.0.len());
    let total = wrong.len();
    if let Ok(path) = std::env::var("ARGONAUT_CAPS_DIFFERENCES") {
        std::fs::write(path, wrong.join("\n"))?;
    }
    if total > SHOWN_MAX {
        wrong.truncate(SHOWN_MAX);
        wrong.push(format!("... and {} more", total - SHOWN_MAX));
    }
    for e in &exceptions {
        let which = e.at.join(" ");
        let differs = differences.iter().any(|d| e.covers(&d.at, &d.stock) && e.ours == d.ours);
        // One that holds is a difference, looked at above; where both are alike there is none.
        let alike =
            stock.0.iter().find(|(at, code)| e.covers(at, code) && ours.0.get(*at) == Some(*code));
        match alike {
            Some((at, _)) => {
                wrong.push(format!("the exception {which} holds no more at {}", at.join(" ")));
            }
            None if !differs => wrong.push(format!("the exception {which} is about no cell")),
            None => {}
        }
    }
    if !wrong.is_empty() {
        bail!("{total} cells differ\n{}", wrong.join("\n"));
    }
    Ok(())
}

impl Outcomes {
    fn parse(text: &str) -> Result<Self> {
        let mut requests: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        let mut out = BTreeMap::new();
        for line in text.lines().filter(|l| !l.is_empty() && !l.starts_with('#')) {
            let mut words = line.split(' ');
            let mut word = || words.next().with_context(|| format!("a line ends early: {line}"));
            let first = word()?;
            if first == "requests" {
                let door = word()?;
                requests.entry(door).or_default().extend(words);
                continue;
            }
            let (user, place, codes) = (word()?, word()?, word()?);
            let names = requests.get(first).map_or(&[][..], Vec::as_slice);
            let at = |request: &str| [first, user, place, request].map(str::to_owned);
            let (codes, shut) = match codes.split_once("shut:") {
                Some((codes, shut)) => (codes, Some(shut)),
                None => (codes, None),
            };
            let codes = split(codes);
            if codes.len() > names.len() {
                bail!("{} outcomes of {} requests: {line}", codes.len(), names.len());
            }
            for (name, code) in names.iter().zip(&codes) {
                out.insert(at(name), (*code).to_owned());
            }
            if let Some(shut) = shut {
                out.insert(at("connect"), shut.to_owned());
            }
        }
        Ok(Self(out))
    }

    /// Cells that differ, and those that only one side has.
    fn differences(&self, ours: &Self) -> Vec<Difference> {
        let of = |o: &Self, at: &At| o.0.get(at).cloned().unwrap_or_default();
        let mut all: Vec<&At> = self.0.keys().chain(ours.0.keys()).collect();
        all.sort();
        all.dedup();
        all.into_iter()
            .map(|at| Difference { at: at.clone(), stock: of(self, at), ours: of(ours, at) })
            .filter(|d| d.stock != d.ours)
            .collect()
    }
}

/// `.P{52}` is three codes.
fn split(codes: &str) -> Vec<&str> {
    let mut out = Vec::new();
    let mut rest = codes;
    while !rest.is_empty() {
        let len =
            if rest.starts_with('{') { rest.find('}').map_or(rest.len(), |at| at + 1) } else { 1 };
        let (one, more) = rest.split_at(len);
        out.push(one);
        rest = more;
    }
    out
}

impl Exception {
    fn covers(&self, at: &At, stock: &str) -> bool {
        self.stock == stock && self.at.iter().zip(at).all(|(pattern, text)| fits(pattern, text))
    }
}

/// Lines `DOOR USER PLACE REQUEST STOCK OURS REASON`, `#` before a comment.
fn exceptions_of(text: &str) -> Result<Vec<Exception>> {
    let parse = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [door, user, place, request, stock, ours, reason @ ..] = words.as_slice() else {
            bail!("an exception ends early: {line}");
        };
        if reason.is_empty() {
            bail!("an exception without a reason: {line}");
        }
        // A cell that is missing on one side.
        let code = |s: &str| if s == "none" { String::new() } else { s.to_owned() };
        Ok(Exception {
            at: [door, user, place, request].map(|s| (*s).to_owned()),
            stock: code(stock),
            ours: code(ours),
        })
    };
    text.lines()
        .map(str::trim)
        .filter(|l| !l.is_empty() && !l.starts_with('#'))
        .map(parse)
        .collect()
}

/// Whether `text` is `pattern`, where `*` is any text and `|` parts patterns.
fn fits(pattern: &str, text: &str) -> bool {
    pattern.split('|').any(|one| fits_one(one, text))
}

fn fits_one(pattern: &str, text: &str) -> bool {
    let Some((head, tail)) = pattern.split_once('*') else { return pattern == text };
    let Some(rest) = text.strip_prefix(head) else { return false };
    (0..=rest.len()).filter(|at| rest.is_char_boundary(*at)).any(|at| fits_one(tail, &rest[at..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    const STOCK: &str =
        "requests osd read write\nrequests osd copy\nosd r a/ .P{52}\nosd none a/ shut:T\n";

    #[test]
    fn cells_are_found_by_door_user_place_and_request() {
        let cells = Outcomes::parse(STOCK).expect("a record").0;
        let at = |user: &str, name: &str| ["osd", user, "a/", name].map(str::to_owned);
        assert_eq!(cells.len(), 4);
        assert_eq!(cells[&at("r", "write")], "P");
        assert_eq!(cells[&at("r", "copy")], "{52}");
        assert_eq!(cells[&at("none", "connect")], "T");
        assert!(Outcomes::parse("osd r a/ .").is_err(), "a door without requests");
    }

    #[test]
    fn a_difference_fails_unless_it_is_excepted_with_its_outcome() {
        let ours = STOCK.replace(".P", ".A");
        let error = |e: &str| judge(STOCK, &ours, e).expect_err("it differs").to_string();
        assert!(judge(STOCK, STOCK, "").is_ok());
        assert!(error("").contains("osd r a/ write: stock P, ours A"));
        assert!(judge(STOCK, &ours, "osd * a/ write P A because").is_ok());
        assert!(error("osd * a/ write P I because").contains("1 cells differ"));
    }

    #[test]
    fn an_exception_that_is_none_fails() {
        let judged = |e: &str| judge(STOCK, STOCK, e).expect_err("no difference").to_string();
        assert!(judged("osd * a/ write P A because").contains("holds no more at osd r a/ write"));
        assert!(judged("osd * a/ nosuch P A because").contains("is about no cell"));
        assert!(judge(STOCK, STOCK, "osd r a/ write P A").is_err(), "a reason is missing");
    }

    #[test]
    fn patterns_take_any_text_and_alternatives() {
        assert!(fits("boot-*-forged|x", "boot-rbd-forged") && fits("boot-*-forged|x", "x"));
        assert!(!fits("boot-*-forged", "boot-rbd") && fits("*", "") && !fits("a", "ab"));
    }
}
