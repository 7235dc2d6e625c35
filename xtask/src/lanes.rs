//! Tests side by side: most of their time is waiting. Each runs in a process of this program
//! with ports of its own; what it printed is shown when it ends.

use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::sync::Mutex;

use anyhow::{Context, Result, bail};

use crate::report::{Report, failure};
use crate::{caps, fs, fs_stock, interop, mgr, pages, radosgw, sh, suites, volumes};

/// How many run at the same time.
const LANES: u16 = 2;
/// The ports of a lane begin here, and those of each other one so many later.
const PORTS: (u16, u16) = (18_300, 1_000);

/// A share of the tests that needs no quiet machine.
type Share = (&'static str, fn() -> Result<Report>);

/// Those that take longest stand first: no lane ends much later than the others.
const SHARES: &[Share] = &[
    ("suites", || suites::run(&[])),
    ("interop-forky", || interop::run(&["forky"], true)),
    ("interop-bookworm", || interop::run(&["bookworm"], true)),
    ("interop-trixie", || interop::run(&["trixie"], true)),
    ("rgw", radosgw::ours),
    ("fs", fs::run),
    ("radosgw", radosgw::run),
    ("caps", caps::ours),
    ("mgr", mgr::run),
    ("volumes", volumes::run),
    ("library", || Ok(interop::client_library())),
    ("fs-stock", fs_stock::run),
    ("pages", || pages::run(&[])),
];

/// Runs one of [`run`]'s shares by its name.
///
/// # Errors
/// When it fails, or there is none of that name.
pub fn share(name: &str) -> Result<()> {
    let Some((_, body)) = SHARES.iter().find(|(n, _)| *n == name) else {
        let all: Vec<&str> = SHARES.iter().map(|(n, _)| *n).collect();
        bail!("no share of the tests is named {name}: one of {}", all.join(", "));
    };
    body()?.end()
}

/// Runs all shares, in [`LANES`] lanes.
///
/// # Errors
/// When a process cannot be started.
pub fn run() -> Result<Report> {
    let left = Mutex::new(SHARES.iter());
    let total = Mutex::new(Report::default());
    let lane = |lane: u16| -> Result<()> {
        loop {
            let Some((name, _)) = left.lock().expect("no lane panics").next() else {
                return Ok(());
            };
            let text = run_one(name, PORTS.0 + lane * PORTS.1)?;
            let mut total = total.lock().expect("no lane panics");
            print!("{text}");
            std::io::stdout().flush()?;
            total.add(Report::read(&text));
        }
    };
    std::thread::scope(|scope| {
        let lanes: Vec<_> = (0..LANES).map(|n| scope.spawn(move || lane(n))).collect();
        lanes.into_iter().try_for_each(|l| l.join().expect("no lane panics"))
    })?;
    total.into_inner().context("no lane panics")
}

/// What a share printed, with a failure of its own when it ended before its report did.
fn run_one(name: &str, port: u16) -> Result<String> {
    let start = sh::now();
    let (mut output, input) = std::io::pipe()?;
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["share", name]).env("ARGONAUT_TEST_PORT", port.to_string());
    command.stdin(Stdio::null()).stdout(input.try_clone()?).stderr(input);
    let mut child = command.spawn().context("a share of the tests does not start")?;
    drop(command); // and with it our ends of the pipe
    let mut text = String::new();
    output.read_to_string(&mut text)?;
    let ended = child.wait()?;
    let failures = Report::read(&text).is_failure();
    let secs = start.elapsed().as_secs_f64();
    text.insert_str(0, &format!("\n{name} ({secs:.1} s)\n"));
    if !ended.success() && !failures {
        text.push_str(&failure(name, &format!("ended with {ended}")));
    }
    Ok(text)
}
