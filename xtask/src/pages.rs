//! Documentation that is run: the commands of a page's `console` blocks, in order, in one shell,
//! and whether they print what the page shows.
//!
//! A line that begins with `$ ` is a command (it goes on after a `\` at its end), the lines below it
//! are of its output, in order; `...` stands for what is left out, lines or the rest of one. Numbers may differ, and so may
//! spaces. `/home/me` is the directory in which the page is followed.

use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, Result, bail};

use crate::report::Report;
use crate::{cluster, lab, sh};

/// Pages that are followed.
const PAGES: &[&str] = &["docs/start.md", "docs/ops/disaster.md"];

/// A command of a page and what it shows of the output.
#[derive(Debug, Default, PartialEq, Eq)]
struct Step {
    command: String,
    shown: Vec<String>,
}

fn steps(page: &str) -> Vec<Step> {
    let mut found: Vec<Step> = Vec::new();
    let (mut inside, mut goes_on) = (false, false);
    for line in page.lines() {
        if line.starts_with("```") {
            (inside, goes_on) = (line == "```console", false);
        } else if inside && goes_on {
            let last = found.last_mut().expect("a command goes on");
            goes_on = line.ends_with('\\');
            last.command.push('\n');
            last.command.push_str(line);
        } else if inside && let Some(command) = line.strip_prefix("$ ") {
            goes_on = line.ends_with('\\');
            found.push(Step { command: command.to_owned(), shown: Vec::new() });
        } else if inside && let Some(last) = found.last_mut() {
            last.shown.push(line.to_owned());
        }
    }
    found
}

/// A line without what differs each time: numbers become `0`, runs of spaces one.
fn same(line: &str) -> String {
    let mut out = String::new();
    for word in line.split_whitespace() {
        if !out.is_empty() {
            out.push(' ');
        }
        let mut number = false;
        for c in word.chars() {
            let of_number = c.is_ascii_digit() || number && c == '.';
            if of_number && !number {
                out.push('0');
            } else if !of_number {
                out.push(c);
            }
            number = of_number;
        }
    }
    out
}

/// The first line shown that is not in the output, after those before it.
fn missing<'a>(shown: &'a [String], output: &str) -> Option<&'a String> {
    let mut lines = output.lines().map(same);
    let mut wanted = shown.iter().filter(|l| l.trim() != "..." && !l.trim().is_empty());
    wanted.find(|line| {
        let line = same(line);
        !lines.any(|l| line.strip_suffix("...").map_or(l == line, |begin| l.starts_with(begin)))
    })
}

/// Follows pages: those named, or all.
///
/// # Errors
/// When a page cannot be read; what it promises and does not hold is in the report.
pub fn run(pages: &[&str]) -> Result<Report> {
    lab::root("forky")?;
    let mut report = Report::default();
    for page in if pages.is_empty() { PAGES } else { pages } {
        let text =
            std::fs::read_to_string(sh::repo().join(page)).with_context(|| (*page).to_owned())?;
        report.check(page, || follow(page, &steps(&text)));
    }
    Ok(report)
}

fn follow(page: &str, steps: &[Step]) -> Result<()> {
    let stem = Path::new(page).file_stem().and_then(|s| s.to_str()).context("a name")?;
    let dir = Path::new(lab::SHARE).join(format!("pages-{stem}-{}", std::process::id()));
    std::fs::create_dir_all(dir.join("bin"))?;
    let program = dir.join("bin/argonaut");
    std::fs::copy(cluster::binary()?, &program)?;
    let followed = follow_in(&dir, steps);
    // What a page that was not followed to its end has left.
    for entry in std::fs::read_dir(&dir)?.flatten() {
        if entry.path().join("ceph.conf").exists() {
            let mut down = std::process::Command::new(&program);
            sh::output(down.arg("down").arg("--dir").arg(entry.path())).ok();
        }
    }
    std::fs::remove_dir_all(&dir)?;
    followed
}

fn follow_in(dir: &Path, steps: &[Step]) -> Result<()> {
    const MARK: &str = "@@ step ";
    let mut script = format!("exec 2>&1\ncd {0}\nexport PATH={0}/bin:$PATH\n", dir.display());
    for (i, step) in steps.iter().enumerate() {
        script.push_str(&format!("echo '{MARK}{i}'\n{}\n", step.command));
    }
    let file = dir.join("steps.sh");
    std::fs::write(&file, script)?;
    let line = format!("timeout 300 bash -e {}", file.display());
    let out = lab::exec("forky", &line).stdin(Stdio::null()).output()?;
    let text = String::from_utf8_lossy(&out.stdout).replace(&*dir.to_string_lossy(), "/home/me");
    let mut parts: Vec<&str> = text.split(MARK).skip(1).collect();
    parts.iter_mut().for_each(|p| *p = p.split_once('\n').map_or("", |(_, rest)| rest));
    for (step, output) in steps.iter().zip(&parts) {
        if let Some(line) = missing(&step.shown, output) {
            bail!("$ {}\ndid not print\n{line}\nbut\n{output}", step.command);
        }
    }
    if !out.status.success() {
        let last = steps.get(parts.len().wrapping_sub(1)).map_or("nothing", |s| &s.command);
        let printed = parts.last().copied().unwrap_or_default();
        bail!("$ {last}\nended with {}:\n{printed}", out.status);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_taken_apart() {
        let page = "# Page\n\n```console\n$ one \\\n  more\nout 1.5 s\n...\nend\n$ two\n```\n\n```sh\n$ not\n```\n";
        let found = steps(page);
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].command, "one \\\n  more");
        assert_eq!(found[0].shown, ["out 1.5 s", "...", "end"]);
        assert_eq!(found[1], Step { command: "two".into(), shown: Vec::new() });
    }

    #[test]
    fn what_is_not_printed_is_found() {
        let shown: Vec<String> =
            ["up after 1.9 s", "...", "  health: HEALTH_OK"].map(Into::into).into();
        assert_eq!(missing(&shown, "up after 22 s\nid: x\nhealth:   HEALTH_OK\n"), None);
        assert_eq!(missing(&shown, "up after 22 s\nhealth: HEALTH_WARN\n"), Some(&shown[2]));
        let cut: Vec<String> = ["mgr: a(active, ...".into()].into();
        assert_eq!(missing(&cut, "mgr: a(active, since 3ms)\n"), None);
        assert!(missing(&cut, "mgr: b(active, since 3ms)\n").is_some());
        // In another order.
        assert_eq!(missing(&shown, "health: HEALTH_OK\nup after 2 s\n"), Some(&shown[2]));
    }
}
