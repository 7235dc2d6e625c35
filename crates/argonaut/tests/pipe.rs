//! What a verb does when nobody reads what it prints any more.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

#[test]
fn a_reader_may_go_away() {
    let dir = std::env::temp_dir().join(format!("argonaut-pipe-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(dir.join("log")).unwrap();
    std::fs::write(dir.join("ceph.conf"), "").unwrap();
    // More than any pipe holds.
    std::fs::write(dir.join("log/osd.0.log"), "a line\n".repeat(1 << 20)).unwrap();
    let mut logs = Command::new(env!("CARGO_BIN_EXE_argonaut"));
    logs.args(["logs", "osd.0", "--dir"]).arg(&dir);
    let mut logs = logs.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut first = String::new();
    BufReader::new(logs.stdout.take().unwrap()).read_line(&mut first).unwrap();
    assert_eq!(first, "osd.0    a line\n");
    let end = logs.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&end.stderr), "");
    assert_eq!(end.status.code(), Some(141), "as of a program that SIGPIPE ended");
    std::fs::remove_dir_all(&dir).unwrap();
}
