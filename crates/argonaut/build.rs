//! Names the commit that a release build is made of. Other builds name none, so that a commit does
//! not make them anew.

#![allow(clippy::disallowed_macros, reason = "cargo reads what this prints")]

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var("PROFILE").as_deref() != Ok("release") {
        return println!("cargo::rustc-env=ARGONAUT_COMMIT=");
    }
    let git = |args: &[&str]| {
        let out = Command::new("git").args(args).output().ok().filter(|out| out.status.success());
        out.and_then(|out| String::from_utf8(out.stdout).ok()).unwrap_or_default()
    };
    // What changes when another commit is checked out or made.
    for name in ["HEAD", "logs/HEAD"] {
        let path = git(&["rev-parse", "--git-path", name]);
        let path = std::path::absolute(path.trim()).ok().filter(|path| path.is_file());
        if let Some(path) = path {
            println!("cargo::rerun-if-changed={}", path.display());
        }
    }
    println!("cargo::rustc-env=ARGONAUT_COMMIT={}", git(&["rev-parse", "HEAD"]).trim());
}
