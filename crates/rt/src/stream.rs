//! What carries a connection's bytes: TCP, or between daemons on one host a Unix socket, which
//! takes two thirds of the CPU for small messages and a half for large ones.
//!
//! Beside a TCP port a daemon may listen on a socket in the abstract namespace that is named after its
//! address. Such names are of a network namespace, as addresses are: who finds the name is on the
//! same host, and where nobody has it TCP is tried as ever. It is another way for the same bytes: who
//! is at the other end is proved by the handshake.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::BufMut;
use rustix::net::sockopt;
use tokio::io::{AsyncReadExt, Interest};
use tokio::net::{TcpStream, UnixListener, UnixStream};

/// Bytes that wait in a Unix socket; the kernel takes it for twice as many.
const NEAR_BUFFER: usize = 2 << 20;

/// How long what was sent to another daemon may stay unacknowledged.
const CUT_MS: u32 = 10_000;
/// After so much silence the other daemon's kernel is asked whether it is there.
const KEEP_IDLE: Duration = Duration::from_secs(5);

pub(crate) enum Stream {
    Tcp(TcpStream),
    Near(UnixStream),
}

impl Stream {
    /// Small frames leave at once, large ones without many turns of both sides.
    pub fn set_up(&self) -> io::Result<()> {
        match self {
            Self::Tcp(s) => s.set_nodelay(true),
            // TCP's grow to as much by themselves.
            Self::Near(s) => Ok(sockopt::set_socket_send_buffer_size_force(s, NEAR_BUFFER)
                .or_else(|_| sockopt::set_socket_send_buffer_size(s, NEAR_BUFFER))?),
        }
    }

    /// Between daemons: a connection over which nothing comes through any more ends soon. TCP would
    /// wait ever longer before it sends again, a minute and more after a cut of that length.
    pub fn end_when_cut(&self) -> io::Result<()> {
        let Self::Tcp(s) = self else { return Ok(()) };
        sockopt::set_tcp_user_timeout(s, CUT_MS)?;
        sockopt::set_socket_keepalive(s, true)?;
        sockopt::set_tcp_keepidle(s, KEEP_IDLE)?;
        sockopt::set_tcp_keepintvl(s, KEEP_IDLE)?;
        Ok(())
    }

    pub fn try_write_vectored(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Self::Tcp(s) => s.try_write_vectored(slices),
            Self::Near(s) => s.try_write_vectored(slices),
        }
    }

    pub fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tcp(s) => s.poll_write_ready(cx),
            Self::Near(s) => s.poll_write_ready(cx),
        }
    }

    /// Whether the peer has closed its side, as far as the event queue has told: what it sent before
    /// may still be unread.
    pub fn is_closed_by_peer(&self) -> bool {
        let cx = &mut Context::from_waker(Waker::noop());
        let ready = match self {
            Self::Tcp(s) => pin!(s.ready(Interest::READABLE)).poll(cx),
            Self::Near(s) => pin!(s.ready(Interest::READABLE)).poll(cx),
        };
        matches!(ready, Poll::Ready(Ok(ready)) if ready.is_read_closed())
    }

    pub fn poll_read_buf(
        &mut self,
        cx: &mut Context<'_>,
        buf: &mut impl BufMut,
    ) -> Poll<io::Result<usize>> {
        match self {
            Self::Tcp(s) => pin!(s.read_buf(buf)).poll(cx),
            Self::Near(s) => pin!(s.read_buf(buf)).poll(cx),
        }
    }
}

/// The name, in the abstract namespace, of who listens at `at`.
fn name(at: SocketAddr) -> PathBuf {
    format!("\0argonaut/{at}").into()
}

/// Whether at the other end is a process of this user, or of root: names can be taken by anybody.
pub(crate) fn is_trusted(stream: &UnixStream) -> bool {
    let me = rustix::process::geteuid().as_raw();
    stream.peer_cred().is_ok_and(|peer| peer.uid() == me || peer.uid() == 0)
}

pub(crate) fn listen(at: SocketAddr) -> io::Result<UnixListener> {
    UnixListener::bind(name(at))
}

/// A connection to who listens at `at`, if that is on this host and can be had at once.
pub(crate) async fn connect(at: SocketAddr) -> Option<UnixStream> {
    let stream = UnixStream::connect(name(at)).await.ok()?;
    is_trusted(&stream).then_some(stream)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_connection_between_daemons_ends() {
        let work = crate::run_local(async {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
            let to = listener.local_addr().expect("bound");
            let stream = TcpStream::connect(to).await.expect("it listens");
            Stream::Tcp(stream)
        });
        let stream = work.expect("an event queue");
        stream.end_when_cut().expect("options are set");
        let Stream::Tcp(socket) = &stream else { panic!("made so") };
        assert_eq!(sockopt::tcp_user_timeout(socket).expect("readable"), CUT_MS);
        assert!(sockopt::socket_keepalive(socket).expect("readable"));
        assert_eq!(sockopt::tcp_keepidle(socket).expect("readable"), KEEP_IDLE);
    }
}
