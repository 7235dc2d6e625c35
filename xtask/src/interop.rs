//! Upstream's clients of every release against a cluster of ours.

use anyhow::{Context, Result, bail};

use crate::cluster::Cluster;
use crate::report::Report;
use crate::{lab, sh, test};

/// Scripts of a minute and more.
const LONG: &[&str] = &["keys", "rbd"];

/// Runs `tests/interop/*.sh` in each suite's root, in crc and in secure mode; only a `share` of
/// them: long ones in one mode of each suite.
///
/// # Errors
/// When the cluster does not start; failed cases are in the report.
pub fn run(suites: &[&str], share_only: bool) -> Result<Report> {
    let mut report = Report::default();
    let all: Vec<&str> = lab::SUITES.iter().map(|(s, _)| *s).collect();
    let suites = if suites.is_empty() { &all } else { suites };
    let cluster = Cluster::up("interop", &["--osds", "3"])?;
    println!("argonaut up: {:.2} s", cluster.up_s);
    let share = cluster.dir.join("interop");
    std::fs::create_dir_all(&share)?;
    let mut scripts: Vec<_> = std::fs::read_dir(sh::repo().join("tests/interop"))?
        .filter_map(|e| Some(e.ok()?.path()))
        .collect();
    scripts.sort();
    for path in &scripts {
        std::fs::copy(path, share.join(path.file_name().context("a file")?))?;
    }
    // Our own client, for the scripts that set it beside upstream's.
    std::fs::copy(crate::cluster::binary()?, share.join("argonaut"))?;
    report.check("the example of an object class", || {
        std::fs::copy(example_class()?, share.join("tally.wasm"))?;
        Ok(())
    });
    let has_class = share.join("tally.wasm").exists();
    scripts.retain(|p| has_class || !p.ends_with("classes.sh"));
    for suite in suites {
        lab::root(suite)?;
        for mode in ["crc", "secure"] {
            for script in scripts.iter().filter(|p| p.extension().is_some_and(|e| e == "sh")) {
                let name = script.file_stem().and_then(|s| s.to_str()).context("a name")?;
                let turn = if *suite == "trixie" { "secure" } else { "crc" };
                if share_only && LONG.contains(&name) && mode != turn {
                    continue;
                }
                let line = format!(
                    "cd {dir} && SUITE={suite} MODE={mode} CEPH_ARGS='--ms_client_mode={mode} --ms_mon_client_mode={mode}' \
                     timeout 300 bash -euE -c 'trap \"echo {name}.sh:\\$LINENO: \\$BASH_COMMAND >&2\" ERR; . ./{name}.sh'",
                    dir = share.display()
                );
                report.check(&format!("{name} {suite} {mode}"), || {
                    sh::output(&mut cluster.client(suite, &line)).map(drop)
                });
            }
        }
    }
    report.check("health after the clients", || {
        let health = sh::output(&mut cluster.client(suites[0], "ceph health"))?;
        if !health.starts_with("HEALTH_OK") {
            bail!("{health}");
        }
        Ok(())
    });
    Ok(report)
}

/// Builds the example of an object class; the module.
fn example_class() -> Result<std::path::PathBuf> {
    test::wasm_target()?;
    let target = test::WASM;
    let to = sh::repo().join("target/examples");
    sh::run(
        sh::cargo(&["build", "--quiet", "--release", "--target", target])
            .arg("--manifest-path")
            .arg(sh::repo().join("examples/cls/Cargo.toml"))
            .arg("--target-dir")
            .arg(&to),
    )?;
    Ok(to.join(target).join("release/tally.wasm"))
}

/// Our own client library against a cluster of ours and a stock one.
#[must_use]
pub fn client_library() -> Report {
    let mut report = Report::default();
    let test = |conf: &std::path::Path| {
        // Of the workspace: for one crate alone, what it needs would be built anew.
        let mut cargo = sh::cargo(&["test", "--quiet", "--workspace", "--test", "live"]);
        sh::output(cargo.env("ARGONAUT_TEST_CONF", conf)).map(drop)
    };
    report.check("client library, our cluster", || {
        let cluster = Cluster::up("library", &[])?;
        test(&cluster.conf())
    });
    report.check("client library, stock 20.2.4", || {
        lab::peer_down("library").ok();
        let tested = lab::peer_up("library", 3, 3).and_then(|conf| test(&conf));
        lab::peer_down("library")?;
        tested
    });
    report
}
