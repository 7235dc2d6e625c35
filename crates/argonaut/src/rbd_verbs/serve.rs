//! `argonaut rbd serve`: images as network block devices.
//!
//! One task reads a connection's requests, one for each of them works, one writes the answers
//! as they come. A write is answered when it is durable on all its OSDs, so a flush has
//! nothing to wait for, and connections of one client may be mixed at will.

use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use anyhow::{Context, Result};
use bytes::{Bytes, BytesMut};
use clap::Args;
use nbd::{Chosen, Command, Export, Handshake, Request, Step, Tls};
use nbd::{REQUEST_LEN, command_flag, errno, export_flag, reply};
use rados::Cluster;
use rbd::{Image, Mode};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, UnixListener};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Semaphore, mpsc};

use tokio_rustls::TlsAcceptor;

use super::spec::{self, Spec};
use super::tls;

/// Longest read or write, in bytes; what clients take for granted.
const DATA_MAX: u32 = 32 << 20;
/// Requests of a connection at work at once.
const REQUESTS_MAX: usize = 128;
/// Connections at once.
const CONNECTIONS_MAX: usize = 256;
/// Bytes of zeros written at once, where they must take space.
const ZEROS_STEP: u64 = 4 << 20;
/// Longest range that one answer tells the allocation of.
const STATUS_MAX: u64 = 1 << 30;
/// Seconds a client may take to agree on an export.
const HANDSHAKE_SECS: u64 = 30;

/// What is served, and where.
#[derive(Args, Debug)]
pub struct Serve {
    /// Images; a snapshot is read-only. Clients name them as they stand here.
    #[arg(required = true)]
    images: Vec<Spec>,
    /// Address to listen at. Without --tls-verify-peer whoever reaches it reads and writes:
    /// others than this machine are let in on a trusted network only.
    #[arg(long, default_value = "127.0.0.1:10809", conflicts_with = "unix")]
    listen: String,
    /// A socket in the file system instead.
    #[arg(long)]
    unix: Option<PathBuf>,
    /// Refuse writes, and take no lock.
    #[arg(long)]
    read_only: bool,
    /// Speak TLS only, with server-cert.pem and server-key.pem of this directory.
    #[arg(long, value_name = "DIR")]
    tls_certificates: Option<PathBuf>,
    /// Let in only clients with a certificate that ca-cert.pem of that directory vouches for.
    #[arg(long, requires = "tls_certificates")]
    tls_verify_peer: bool,
}

struct Device {
    name: String,
    image: Image,
    snap: Option<u64>,
    read_only: bool,
}

impl Device {
    fn size(&self) -> u64 {
        let header = self.image.header();
        match self.snap {
            None => header.size,
            Some(id) => header.snaps.iter().find(|s| s.id == id).map_or(0, |s| s.size),
        }
    }

    fn export(&self) -> Export {
        let writes = export_flag::SEND_FLUSH
            | export_flag::SEND_FUA
            | export_flag::SEND_TRIM
            | export_flag::SEND_WRITE_ZEROES
            | export_flag::SEND_FAST_ZERO;
        let kind = if self.read_only { export_flag::READ_ONLY } else { writes };
        Export {
            name: self.name.clone(),
            description: format!("RADOS block device {}", self.name),
            size: self.size(),
            flags: kind | export_flag::SEND_DF | export_flag::CAN_MULTI_CONN,
            block_sizes: (1, 4096, DATA_MAX),
        }
    }
}

/// The error number of the protocol, and words for people.
type Failure = (u32, String);

fn failure(err: &rbd::Error, write: bool) -> Failure {
    let number = match err {
        rbd::Error::Beyond { .. } if write => errno::NOSPC,
        rbd::Error::Beyond { .. } | rbd::Error::Invalid(_) => errno::INVAL,
        rbd::Error::ReadOnly => errno::PERM,
        other => match other.errno() {
            1 | 13 => errno::PERM,
            28 | 122 => errno::NOSPC,
            108 => errno::SHUTDOWN,
            _ => errno::IO,
        },
    };
    (number, err.to_string())
}

/// Serves until it is told to end.
pub async fn run(cluster: &Cluster, wanted: &Serve) -> Result<()> {
    let tls = wanted.tls_certificates.as_deref();
    let tls = tls.map(|dir| tls::acceptor(dir, wanted.tls_verify_peer)).transpose()?;
    let mut devices = Vec::new();
    for spec in &wanted.images {
        let read_only = wanted.read_only || spec.snap.is_some();
        let mode = if read_only { Mode::Read } else { Mode::Write };
        let io = spec.io(cluster).await?;
        let image = Image::open(&io, &spec.image, mode).await?;
        let snap = match &spec.snap {
            None => None,
            Some(name) => Some(image.header().snap(name)?.id),
        };
        if !read_only {
            image.acquire_lock().await?;
        }
        let mut name = spec::full_name(spec.pool(), &spec.nspace, &spec.image);
        if let Some(snap) = &spec.snap {
            name = format!("{name}@{snap}");
        }
        devices.push(Device { name, image, snap, read_only });
    }
    let devices = Rc::new(devices);
    let served = accept(wanted, &devices, tls.as_ref()).await;
    if let Some(path) = &wanted.unix {
        std::fs::remove_file(path).ok();
    }
    for device in devices.iter() {
        if let Err(err) = device.image.clone().close().await {
            tell!("argonaut: {}: {err}", device.name);
        }
    }
    served
}

async fn accept(
    wanted: &Serve,
    devices: &Rc<Vec<Device>>,
    tls: Option<&TlsAcceptor>,
) -> Result<()> {
    let scheme = if tls.is_some() { "nbds" } else { "nbd" };
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let serve = async {
        match &wanted.unix {
            Some(path) => {
                let listener = UnixListener::bind(path)
                    .with_context(|| format!("cannot listen at {}", path.display()))?;
                announce(devices, &format!("{scheme}+unix:///EXPORT?socket={}", path.display()));
                loop {
                    let place = room.clone().acquire_owned().await?;
                    let (stream, _) = listener.accept().await?;
                    start(stream, devices, tls, place);
                }
            }
            None => {
                let listener = TcpListener::bind(&wanted.listen)
                    .await
                    .with_context(|| format!("cannot listen at {}", wanted.listen))?;
                let at = listener.local_addr()?;
                if !at.ip().is_loopback() && !wanted.tls_verify_peer {
                    tell!("argonaut: whoever reaches {at} reads and writes these images");
                }
                announce(devices, &format!("{scheme}://{at}/EXPORT"));
                loop {
                    let place = room.clone().acquire_owned().await?;
                    let (stream, _) = listener.accept().await?;
                    stream.set_nodelay(true).ok();
                    start(stream, devices, tls, place);
                }
            }
        }
    };
    tokio::select! {
        ended = serve => ended,
        _ = term.recv() => Ok(()),
        _ = int.recv() => Ok(()),
    }
}

fn announce(devices: &[Device], uri: &str) {
    for device in devices {
        say!("{}", uri.replace("EXPORT", &device.name));
    }
}

fn start<S>(
    stream: S,
    devices: &Rc<Vec<Device>>,
    tls: Option<&TlsAcceptor>,
    place: tokio::sync::OwnedSemaphorePermit,
) where
    S: AsyncRead + AsyncWrite + Unpin + 'static,
{
    let (devices, tls) = (devices.clone(), tls.cloned());
    tokio::task::spawn_local(async move {
        if let Err(err) = connection(stream, devices, tls).await {
            tracing::info!("a client: {}", crate::say::Why(&err));
        }
        drop(place);
    });
}

/// Negotiates until an export is chosen ([`Step::Go`]), TLS is to begin, or the client goes.
/// `input` holds what came behind the last option.
async fn negotiate<S>(
    stream: &mut S,
    handshake: &mut Handshake,
    input: &mut BytesMut,
) -> Result<Step>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut out = BytesMut::new();
    loop {
        let step = handshake.on_bytes(input, &mut out);
        stream.write_all_buf(&mut out).await?;
        stream.flush().await?;
        match step? {
            Step::More => {}
            step => return Ok(step),
        }
        if stream.read_buf(input).await? == 0 {
            return Ok(Step::Abort);
        }
    }
}

/// What is sent: a head, and data behind it.
type Answer = (Vec<u8>, Bytes);

async fn connection<S>(
    mut stream: S,
    devices: Rc<Vec<Device>>,
    tls: Option<TlsAcceptor>,
) -> Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin + 'static,
{
    // Images of others may have changed since; written ones are watched.
    for device in devices.iter().filter(|d| d.read_only && d.snap.is_none()) {
        device.image.refresh().await?;
    }
    let exports = devices.iter().map(Device::export).collect();
    let kind = if tls.is_some() { Tls::Required } else { Tls::Off };
    let mut handshake = Handshake::new(exports, kind);
    let mut greeting = BytesMut::new();
    handshake.greet(&mut greeting);
    let mut input = BytesMut::new();
    let patience = std::time::Duration::from_secs(HANDSHAKE_SECS);
    let deadline = tokio::time::Instant::now() + patience;
    const LATE: &str = "no export was agreed on in time";
    let clear = async {
        stream.write_all_buf(&mut greeting).await?;
        negotiate(&mut stream, &mut handshake, &mut input).await
    };
    match tokio::time::timeout_at(deadline, clear).await.context(LATE)?? {
        Step::Go(chosen) => requests(stream, devices, chosen, input).await,
        Step::StartTls => {
            let acceptor = tls.context("TLS without certificates")?;
            let secure = async {
                let mut stream = acceptor.accept(stream).await.context("TLS")?;
                handshake.secured();
                let step = negotiate(&mut stream, &mut handshake, &mut input).await?;
                anyhow::Ok((stream, step))
            };
            match tokio::time::timeout_at(deadline, secure).await.context(LATE)?? {
                (stream, Step::Go(chosen)) => requests(stream, devices, chosen, input).await,
                _ => Ok(()),
            }
        }
        Step::More | Step::Abort => Ok(()),
    }
}

/// Carries out requests until the client goes; `early` came with the handshake's end.
async fn requests<S>(
    stream: S,
    devices: Rc<Vec<Device>>,
    chosen: Chosen,
    early: BytesMut,
) -> Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin + 'static,
{
    let (mut reader, mut writer) = tokio::io::split(stream);
    let (answers, mut answered) = mpsc::channel::<Answer>(REQUESTS_MAX);
    let sender = tokio::task::spawn_local(async move {
        while let Some((head, data)) = answered.recv().await {
            writer.write_all(&head).await?;
            writer.write_all(&data).await?;
            if answered.is_empty() {
                writer.flush().await?;
            }
        }
        writer.shutdown().await
    });
    let mut input = (&early[..]).chain(&mut reader);
    let room = Arc::new(Semaphore::new(REQUESTS_MAX));
    let work = Rc::new(Work { devices, chosen, answers });
    let ended = loop {
        let mut raw = [0; REQUEST_LEN];
        if let Err(err) = input.read_exact(&mut raw).await {
            let at_end = err.kind() == std::io::ErrorKind::UnexpectedEof;
            break if at_end { Ok(()) } else { Err(err.into()) };
        }
        let request = match Request::decode(&raw) {
            Ok(request) => request,
            Err(err) => break Err(err.into()),
        };
        let mut data = Bytes::new();
        if request.command == Command::Write {
            if request.len > 2 * DATA_MAX {
                break Err(anyhow::anyhow!("a write of {} bytes", request.len));
            }
            let mut buffer = BytesMut::zeroed(request.len as usize);
            if let Err(err) = input.read_exact(&mut buffer).await {
                break Err(err.into());
            }
            data = buffer.freeze();
        }
        if request.command == Command::Disconnect {
            break Ok(());
        }
        let place = room.clone().acquire_owned().await?;
        let work = work.clone();
        tokio::task::spawn_local(async move {
            work.run(request, data).await;
            drop(place);
        });
        if sender.is_finished() {
            break Ok(());
        }
    };
    // Requests that are at work still answer.
    let _all = room.acquire_many(REQUESTS_MAX as u32).await?;
    drop(work);
    sender.await??;
    ended
}

/// A connection that agreed on an export.
struct Work {
    devices: Rc<Vec<Device>>,
    chosen: Chosen,
    answers: mpsc::Sender<Answer>,
}

impl Work {
    fn device(&self) -> &Device {
        &self.devices[self.chosen.export]
    }

    async fn run(&self, request: Request, data: Bytes) {
        let answer = match self.carry_out(request, data).await {
            Ok(answer) => answer,
            Err((number, why)) => {
                tracing::debug!("{}: {request:?}: {why}", self.device().name);
                let head = if self.chosen.structured {
                    reply::failed(request.cookie, number, &why)
                } else {
                    reply::simple(request.cookie, number)
                };
                (head, Bytes::new())
            }
        };
        self.answers.send(answer).await.ok();
    }

    fn done(&self, cookie: u64) -> Answer {
        let head =
            if self.chosen.structured { reply::done(cookie) } else { reply::simple(cookie, 0) };
        (head, Bytes::new())
    }

    async fn carry_out(&self, request: Request, data: Bytes) -> Result<Answer, Failure> {
        let device = self.device();
        let image = &device.image;
        let (off, len) = (request.off, u64::from(request.len));
        let known = command_flag::FUA
            | command_flag::NO_HOLE
            | command_flag::DF
            | command_flag::REQ_ONE
            | command_flag::FAST_ZERO;
        if request.flags & !known != 0 {
            return Err((errno::INVAL, "flags that were not offered".to_owned()));
        }
        let changes =
            matches!(request.command, Command::Write | Command::Trim | Command::WriteZeroes);
        if changes && device.read_only {
            return Err((errno::PERM, "the export is read-only".to_owned()));
        }
        let moves = matches!(request.command, Command::Read | Command::Write);
        if moves && request.len > DATA_MAX {
            return Err((errno::OVERFLOW, format!("more than {DATA_MAX} bytes at once")));
        }
        let failed = |err: rbd::Error| failure(&err, changes);
        if off.checked_add(len).is_none() {
            return Err((
                if changes { errno::NOSPC } else { errno::INVAL },
                "no such range".into(),
            ));
        }
        match request.command {
            Command::Read => {
                let data = image.read_at(device.snap, off, len).await.map_err(failed)?;
                Ok(self.read_answer(request, data))
            }
            Command::Write => {
                image.write(off, data).await.map_err(failed)?;
                Ok(self.done(request.cookie))
            }
            Command::Flush => {
                image.flush().await.map_err(failed)?;
                Ok(self.done(request.cookie))
            }
            Command::Trim => {
                image.discard(off, len).await.map_err(failed)?;
                Ok(self.done(request.cookie))
            }
            Command::WriteZeroes => {
                if !request.has(command_flag::NO_HOLE) {
                    image.write_zeroes(off, len).await.map_err(failed)?;
                } else if request.has(command_flag::FAST_ZERO) {
                    let why = "zeros that keep their space are written as any data";
                    return Err((errno::NOTSUP, why.to_owned()));
                } else {
                    let zeros = Bytes::from(vec![0; len.min(ZEROS_STEP) as usize]);
                    for at in (off..off + len).step_by(ZEROS_STEP as usize) {
                        let some = zeros.slice(..(off + len - at).min(ZEROS_STEP) as usize);
                        image.write(at, some).await.map_err(failed)?;
                    }
                }
                Ok(self.done(request.cookie))
            }
            Command::BlockStatus => {
                let Some(context) = self.chosen.allocation else {
                    return Err((errno::INVAL, "no context was agreed on".to_owned()));
                };
                if len == 0 {
                    return Err((errno::INVAL, "the allocation of nothing".to_owned()));
                }
                let found = image.allocated(device.snap, off, len.min(STATUS_MAX)).await;
                let mut extents: Vec<(u32, u32)> = Vec::new();
                for part in found.map_err(failed)? {
                    let flags = if part.exists { 0 } else { reply::HOLE | reply::ZERO };
                    extents.push((part.len as u32, flags));
                }
                if request.has(command_flag::REQ_ONE) {
                    extents.truncate(1);
                }
                Ok((reply::status(request.cookie, context, &extents), Bytes::new()))
            }
            Command::Disconnect => Ok(self.done(request.cookie)),
            Command::Other(number) => {
                Err((errno::NOTSUP, format!("command {number} was not offered")))
            }
        }
    }

    fn read_answer(&self, request: Request, data: Bytes) -> Answer {
        let Request { cookie, off, len, .. } = request;
        if !self.chosen.structured {
            return (reply::simple(cookie, 0), data);
        }
        if len == 0 {
            return self.done(cookie);
        }
        if rbd::is_zero(&data) {
            return (reply::hole(cookie, off, len, true), Bytes::new());
        }
        (reply::data(cookie, off, len, true), data)
    }
}
