//! Asking a daemon over its admin socket.
//!
//! Wire: the JSON command and a NUL byte; the answer is a big-endian u32 length and that
//! many bytes. Source: the peer's `common/admin_socket.cc`.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use bytes::Bytes;

const ANSWER_BYTES_MAX: u32 = 64 << 20;

/// Sends one command, a JSON object, and gives the answer.
///
/// # Errors
/// When nobody listens there, or the answer does not come within `timeout`.
pub fn ask(socket: &Path, command: &str, timeout: Duration) -> Result<String> {
    let mut stream = UnixStream::connect(socket)
        .with_context(|| format!("no daemon answers at {}", socket.display()))?;
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

/// A command that came over the socket; the answer goes back through `answer`.
pub struct Asked {
    /// The JSON text.
    pub command: String,
    /// Where the answer goes.
    pub answer: tokio::sync::oneshot::Sender<Vec<u8>>,
}

/// Longest command that is read.
const COMMAND_BYTES_MAX: usize = 1 << 20;
/// How long a client may take to send its command.
const COMMAND_MAX: Duration = Duration::from_secs(10);

/// Listens at `path`, replacing a socket that a killed process left there, and hands
/// commands to `asked`. Only the owner may connect.
///
/// # Errors
/// When the socket cannot be made.
pub fn listen(path: &Path, asked: tokio::sync::mpsc::Sender<Asked>) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    remove_stale(path)?;
    let listener = tokio::net::UnixListener::bind(path)
        .with_context(|| format!("cannot listen at {}", path.display()))?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o700))?;
    tokio::task::spawn_local(async move {
        loop {
            match listener.accept().await {
                Ok((stream, _)) => {
                    let asked = asked.clone();
                    tokio::task::spawn_local(async move {
                        if let Err(err) = serve(stream, asked).await {
                            tracing::debug!("admin socket: {err:#}");
                        }
                    });
                }
                Err(err) => {
                    tracing::warn!("admin socket: {err}");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    });
    Ok(())
}

/// Removes the socket that a killed process left.
///
/// # Errors
/// When something else is there, or somebody listens at it.
pub fn remove_stale(path: &Path) -> Result<()> {
    use std::os::unix::fs::FileTypeExt;
    let Ok(meta) = std::fs::symlink_metadata(path) else { return Ok(()) };
    if !meta.file_type().is_socket() {
        bail!("{} is no socket: it is not replaced by one", path.display());
    }
    if UnixStream::connect(path).is_ok() {
        bail!("{}: another process listens there", path.display());
    }
    std::fs::remove_file(path).with_context(|| path.display().to_string())
}

async fn serve(
    mut stream: tokio::net::UnixStream,
    asked: tokio::sync::mpsc::Sender<Asked>,
) -> Result<()> {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut command = Vec::new();
    let read = async {
        let mut chunk = [0; 4096];
        loop {
            let n = stream.read(&mut chunk).await?;
            command.extend_from_slice(&chunk[..n]);
            if n == 0 || command.contains(&0) {
                return Ok(());
            }
            if command.len() > COMMAND_BYTES_MAX {
                bail!("a command is at most {COMMAND_BYTES_MAX} bytes");
            }
        }
    };
    tokio::time::timeout(COMMAND_MAX, read).await.context("no command came")??;
    let end = command.iter().position(|b| *b == 0).context("the command does not end")?;
    let command = String::from_utf8_lossy(&command[..end]).into_owned();
    let (answer, answered) = tokio::sync::oneshot::channel();
    asked.send(Asked { command, answer }).await.ok().context("the daemon stops")?;
    let out = answered.await.context("the daemon stops")?;
    stream.write_all(&(out.len() as u32).to_be_bytes()).await?;
    stream.write_all(&out).await?;
    Ok(())
}

/// What the admin socket answers: the output, or the line for people where there is none.
pub fn local_text(r: i32, rs: &str, out: Bytes) -> Vec<u8> {
    if r < 0 {
        let text = std::io::Error::from_raw_os_error(-r);
        return format!("ERROR: {text}: {rs}\n").into_bytes();
    }
    if out.is_empty() && !rs.is_empty() { format!("{rs}\n").into_bytes() } else { out.to_vec() }
}
