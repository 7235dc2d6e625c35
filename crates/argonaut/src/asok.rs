//! Asking a daemon over its admin socket.
//!
//! Wire: the JSON command and a NUL byte; the answer is a big-endian u32 length and that
//! many bytes. Source: the peer's `common/admin_socket.cc`.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};

const ANSWER_BYTES_MAX: u32 = 64 << 20;

/// Sends one command, a JSON object, and gives the answer.
///
/// # Errors
/// When nobody listens there, or the answer does not come within `timeout`.
pub fn ask(socket: &Path, command: &str, timeout: Duration) -> Result<String> {
    let mut stream =
        UnixStream::connect(socket).with_context(|| format!("no daemon answers at {}", socket.display()))?;
    stream.set_read_timeout(Some(timeout))?;
    stream.set_write_timeout(Some(timeout))?;
    stream.write_all(command.as_bytes())?;
    stream.write_all(b"\0")?;
    let mut len = [0; 4];
    stream.read_exact(&mut len).context("the daemon closed the socket without an answer")?;
    let len = u32::from_be_bytes(len);
    if len > ANSWER_BYTES_MAX {
        bail!("the answer claims {len} bytes");
    }
    let mut out = vec![0; len as usize];
    stream.read_exact(&mut out)?;
    Ok(String::from_utf8_lossy(&out).into_owned())
}
