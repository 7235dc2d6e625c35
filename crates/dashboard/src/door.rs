//! The HTTP side: connections, TLS, limits, headers. What is answered is [`App`]'s to say.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use hyper::body::{Body as _, Frame, Incoming, SizeHint};
use hyper::header::{
    AUTHORIZATION, CACHE_CONTROL, CONNECTION, CONTENT_SECURITY_POLICY, CONTENT_TYPE, COOKIE, HOST,
    HeaderMap, HeaderName, HeaderValue, LOCATION, ORIGIN, REFERRER_POLICY, SERVER, SET_COOKIE,
    X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use mgr::web::Whole;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use crate::app::{App, Asked, Body, Reply, World};

/// Where a port is taken, so many of the next ones are tried.
const PORTS: u16 = 100;
/// Connections at once; more wait to be accepted.
const CONNECTIONS_MAX: usize = 128;
/// Connections of one address at once; more are closed.
const ADDRESS_CONNECTIONS_MAX: usize = 32;
/// How long a handshake, a head or a body may take to come.
const COME_MAX: Duration = Duration::from_secs(10);
/// Bytes of a head.
const HEAD_BYTES_MAX: usize = 16 << 10;
/// Bytes of a body.
const BODY_BYTES_MAX: usize = 64 << 10;
/// How long an answer may take to be made.
const ANSWER_MAX: Duration = Duration::from_secs(60);
/// How long a connection may last, whatever its other end does.
const CONNECTION_MAX: Duration = Duration::from_secs(300);
/// Between two signs of life of what is live.
const LIFE: Duration = Duration::from_secs(20);
/// The cookie with the session's token.
const SESSION: &str = "argonaut_session";
/// What pages may do: nothing but what is served here.
const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; \
                      connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'";

/// One listener.
pub struct Door<W> {
    app: Rc<App<W>>,
    generation: Rc<Cell<u64>>,
    tls: Rc<RefCell<Option<TlsAcceptor>>>,
    by_address: Rc<RefCell<BTreeMap<IpAddr, usize>>>,
    accepts: Rc<RefCell<Option<JoinHandle<()>>>>,
}

impl<W> Clone for Door<W> {
    fn clone(&self) -> Self {
        Self {
            app: self.app.clone(),
            generation: self.generation.clone(),
            tls: self.tls.clone(),
            by_address: self.by_address.clone(),
            accepts: self.accepts.clone(),
        }
    }
}

/// A connection's place among those of its address.
struct Place(Rc<RefCell<BTreeMap<IpAddr, usize>>>, IpAddr);

impl Drop for Place {
    fn drop(&mut self) {
        let mut all = self.0.borrow_mut();
        if let Some(n) = all.get_mut(&self.1) {
            *n -= 1;
            if *n == 0 {
                all.remove(&self.1);
            }
        }
    }
}

impl<W: World + 'static> Door<W> {
    /// Listens nowhere yet.
    pub fn new(app: Rc<App<W>>) -> Self {
        Self {
            app,
            generation: Rc::default(),
            tls: Rc::default(),
            by_address: Rc::default(),
            accepts: Rc::default(),
        }
    }

    /// Speaks TLS, or plain HTTP, on connections to come.
    pub fn speak(&self, tls: Option<TlsAcceptor>) {
        self.tls.replace(tls);
    }

    /// Listens at the first free port from `at` on, in place of where it listened before. Returns where.
    ///
    /// # Errors
    /// When no port is free, or the address is not this host's.
    pub async fn listen(&self, at: SocketAddr) -> io::Result<SocketAddr> {
        self.close().await;
        let mut last = io::ErrorKind::AddrInUse.into();
        for more in 0..PORTS {
            let Some(port) = at.port().checked_add(more) else { break };
            match TcpListener::bind((at.ip(), port)).await {
                Ok(listener) => {
                    let at = listener.local_addr()?;
                    let (this, mine) = (self.clone(), self.generation.get());
                    let task = async move { this.accept(listener, mine).await };
                    *self.accepts.borrow_mut() = Some(tokio::task::spawn_local(task));
                    return Ok(at);
                }
                Err(err) if err.kind() == io::ErrorKind::AddrInUse => last = err,
                Err(err) => return Err(err),
            }
        }
        Err(last)
    }

    /// Listens no more; what comes by connections that are open is refused.
    pub async fn close(&self) {
        self.generation.set(self.generation.get() + 1);
        let accepts = self.accepts.borrow_mut().take();
        if let Some(task) = accepts {
            task.abort();
            task.await.ok(); // now the port is free
        }
    }

    fn place(&self, from: IpAddr) -> Option<Place> {
        let mut all = self.by_address.borrow_mut();
        let n = all.entry(from).or_default();
        if *n >= ADDRESS_CONNECTIONS_MAX {
            return None;
        }
        *n += 1;
        Some(Place(self.by_address.clone(), from))
    }

    async fn accept(&self, listener: TcpListener, mine: u64) {
        let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        loop {
            let free = places.clone().acquire_owned().await.expect("it is never closed");
            let (stream, peer) = match listener.accept().await {
                Ok(accepted) => accepted,
                Err(err) => {
                    tracing::warn!("a connection to the dashboard was not accepted: {err}");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            };
            let Some(place) = self.place(peer.ip()) else { continue };
            stream.set_nodelay(true).ok();
            let (this, tls) = (self.clone(), self.tls.borrow().clone());
            tokio::task::spawn_local(async move {
                let whole = async {
                    match tls {
                        None => this.converse(stream, (peer.ip(), false), mine).await,
                        Some(tls) => match tokio::time::timeout(COME_MAX, tls.accept(stream)).await
                        {
                            Ok(Ok(stream)) => this.converse(stream, (peer.ip(), true), mine).await,
                            Ok(Err(err)) => tracing::debug!("{peer}: {err}"),
                            Err(_) => tracing::debug!("{peer}: the handshake took too long"),
                        },
                    }
                };
                tokio::time::timeout(CONNECTION_MAX, whole).await.ok();
                drop((free, place));
            });
        }
    }

    async fn converse<S>(&self, stream: S, (from, is_tls): (IpAddr, bool), mine: u64)
    where
        S: AsyncRead + AsyncWrite + Unpin + 'static,
    {
        let service = service_fn(|request: Request<Incoming>| async move {
            if self.generation.get() != mine {
                return Ok(self.sent(plain(503, "the dashboard is off, or has moved\n"), is_tls));
            }
            Ok::<_, Infallible>(self.answer(request, from, is_tls).await)
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(COME_MAX)
            .max_buf_size(HEAD_BYTES_MAX)
            .serve_connection(TokioIo::new(stream), service);
        if let Err(err) = connection.await {
            tracing::debug!("a browser at {from}: {err}");
        }
    }

    async fn answer(
        &self,
        request: Request<Incoming>,
        from: IpAddr,
        is_tls: bool,
    ) -> Response<Sent> {
        let (parts, body) = request.into_parts();
        let is_post = match parts.method {
            Method::GET | Method::HEAD => false,
            Method::POST => true,
            _ => return self.sent(plain(405, "GET and POST are served\n"), is_tls),
        };
        let body = match tokio::time::timeout(COME_MAX, whole(body)).await {
            Ok(Some(body)) => body,
            Ok(None) => return self.sent(plain(413, "the body is too large\n"), is_tls),
            Err(_) => return self.sent(plain(408, "the body took too long\n"), is_tls),
        };
        let asked = Asked {
            is_post,
            path: parts.uri.path().to_owned(),
            query: parts.uri.query().unwrap_or_default().to_owned(),
            host: word(&parts.headers, &HOST).unwrap_or_default(),
            origin: word(&parts.headers, &ORIGIN),
            site: word(&parts.headers, &HeaderName::from_static("sec-fetch-site")),
            cookie: cookie(&parts.headers),
            bearer: word(&parts.headers, &AUTHORIZATION)
                .and_then(|text| text.strip_prefix("Bearer ").map(str::to_owned)),
            body,
            from: from.to_string(),
        };
        match tokio::time::timeout(ANSWER_MAX, self.app.answer(&asked)).await {
            Ok(reply) => self.sent(reply, is_tls),
            Err(_) => self.sent(plain(504, "the monitors took too long\n"), is_tls),
        }
    }

    fn sent(&self, reply: Reply, is_tls: bool) -> Response<Sent> {
        let body = match reply.body {
            Body::Whole(bytes) => Sent::Whole(Whole(Some(bytes))),
            Body::Events(token) => Sent::Events(self.events(token)),
        };
        let mut response = Response::new(body);
        *response.status_mut() = StatusCode::from_u16(reply.status).expect("a status");
        let headers = response.headers_mut();
        for (name, value) in [
            (CONTENT_TYPE, reply.kind),
            (CONTENT_SECURITY_POLICY, POLICY),
            (X_CONTENT_TYPE_OPTIONS, "nosniff"),
            (X_FRAME_OPTIONS, "DENY"),
            (REFERRER_POLICY, "same-origin"),
            (CACHE_CONTROL, "no-store"),
            (SERVER, "Ceph-Dashboard"),
        ] {
            headers.insert(name, HeaderValue::from_static(value));
        }
        if matches!(reply.status, 405 | 408 | 413 | 503) {
            // A body may be on its way that nobody read.
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        if let Some(path) = reply.location {
            // A URL of another manager that is no header's value leads nowhere.
            let path = HeaderValue::from_str(&path).unwrap_or(HeaderValue::from_static("/"));
            headers.insert(LOCATION, path);
        }
        if let Some(token) = reply.cookie {
            let secure = if is_tls { "; Secure" } else { "" };
            let end = if token.is_empty() { "; Max-Age=0" } else { "" };
            let text = format!("{SESSION}={token}; Path=/; HttpOnly; SameSite=Strict{secure}{end}");
            headers.insert(SET_COOKIE, HeaderValue::from_str(&text).expect("hexadecimal digits"));
        }
        response
    }

    /// What is live, as server-sent events, until the session or the reader ends.
    fn events(&self, token: String) -> mpsc::Receiver<Bytes> {
        let (to, events) = mpsc::channel(1);
        let (app, mut live) = (self.app.clone(), self.app.live());
        let (generation, mine) = (self.generation.clone(), self.generation.get());
        tokio::task::spawn_local(async move {
            loop {
                let next = tokio::time::timeout(LIFE, live.changed()).await;
                if generation.get() != mine || !app.holds(&token, rt::now().mono_ms()) {
                    return;
                }
                let event = match next {
                    Ok(Ok(())) => {
                        let text = String::from_utf8_lossy(&live.borrow_and_update()).into_owned();
                        Bytes::from(format!("data: {}\n\n", text.replace(['\r', '\n'], " ")))
                    }
                    Ok(Err(_)) => return,
                    Err(_) => Bytes::from_static(b": still here\n\n"),
                };
                if to.send(event).await.is_err() {
                    return;
                }
            }
        });
        events
    }
}

fn plain(status: u16, text: &'static str) -> Reply {
    let body = Body::Whole(text.into());
    Reply { status, kind: "text/plain", location: None, cookie: None, body }
}

fn word(headers: &HeaderMap, name: &HeaderName) -> Option<String> {
    headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned)
}

fn cookie(headers: &HeaderMap) -> Option<String> {
    let all = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut all = all.flat_map(|text| text.split(';'));
    all.find_map(|one| one.trim().strip_prefix(SESSION)?.strip_prefix('=').map(str::to_owned))
}

/// A request's whole body; `None`: it is too large, or its connection ended.
async fn whole(mut body: Incoming) -> Option<Bytes> {
    let mut all = BytesMut::new();
    while let Some(frame) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
        if let Ok(data) = frame.ok()?.into_data() {
            if all.len() + data.remaining() > BODY_BYTES_MAX {
                return None;
            }
            all.extend_from_slice(&data);
        }
    }
    Some(all.freeze())
}

/// An answer's body.
enum Sent {
    Whole(Whole),
    Events(mpsc::Receiver<Bytes>),
}

impl hyper::body::Body for Sent {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.get_mut() {
            Self::Whole(body) => Pin::new(body).poll_frame(cx),
            Self::Events(events) => {
                events.poll_recv(cx).map(|event| event.map(|event| Ok(Frame::data(event))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(body) => body.is_end_stream(),
            Self::Events(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(body) => body.size_hint(),
            Self::Events(_) => SizeHint::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

    use super::*;
    use crate::app::tests::{Fake, app};

    async fn talk(at: SocketAddr, request: &str) -> String {
        let mut stream = TcpStream::connect(at).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.unwrap();
        String::from_utf8(answer).unwrap()
    }

    async fn door() -> (Door<Fake>, SocketAddr) {
        let door = Door::new(Rc::new(app()));
        let at = door.listen("127.0.0.1:0".parse().unwrap()).await.unwrap();
        (door, at)
    }

    fn request(line: &str, more: &str, body: &str) -> String {
        let length = body.len();
        format!(
            "{line} HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: {length}\r\n{more}\r\n{body}"
        )
    }

    /// A browser logs in, reads, and is followed by what is live.
    #[test]
    fn a_browser() {
        rt::run_local(async {
            let (door, at) = door().await;
            let page = talk(at, &request("GET /login", "", "")).await;
            assert!(page.starts_with("HTTP/1.1 200"), "{page}");
            let head = page.to_lowercase();
            for header in [
                "content-security-policy: default-src 'none'; style-src 'self'; script-src 'self'",
                "x-content-type-options: nosniff",
                "x-frame-options: deny",
                "cache-control: no-store",
            ] {
                assert!(head.contains(header), "{header} is missing: {head}");
            }
            let body = "username=bob&password=correct+horse";
            let answer = talk(at, &request("POST /login", "", body)).await;
            assert!(answer.starts_with("HTTP/1.1 303"), "{answer}");
            let set = answer.split("argonaut_session=").nth(1).expect("a cookie");
            let (token, rest) = set.split_at(64);
            assert!(rest.starts_with("; Path=/; HttpOnly; SameSite=Strict\r\n"), "{rest}");
            let cookie = format!("Cookie: other=1; argonaut_session={token}\r\n");
            let page = talk(at, &request("GET /osds", &cookie, "")).await;
            assert!(page.starts_with("HTTP/1.1 200") && page.contains("OSDs and hosts"), "{page}");
            let head = talk(at, &request("HEAD /osds", &cookie, "")).await;
            assert!(head.starts_with("HTTP/1.1 200") && !head.contains("<html"), "{head}");
            let mut stream = TcpStream::connect(at).await.unwrap();
            stream.write_all(request("GET /events", &cookie, "").as_bytes()).await.unwrap();
            let mut seen = String::new();
            let mut piece = [0; 4096];
            while !seen.contains("data: <div id=\"live\">") {
                if seen.contains("\r\n\r\n") {
                    door.app.take(crate::state::tests::answers());
                }
                let n = stream.read(&mut piece).await.unwrap();
                assert!(n > 0, "it ended: {seen}");
                seen += &String::from_utf8_lossy(&piece[..n]);
            }
            door.app.end_all_of("bob");
            door.app.take(crate::state::tests::answers());
            let mut rest = Vec::new();
            stream.read_to_end(&mut rest).await.unwrap();
        })
        .unwrap();
    }

    #[test]
    fn limits() {
        rt::run_local(async {
            let (door, at) = door().await;
            let long = "x".repeat(BODY_BYTES_MAX + 1);
            let answer = talk(at, &request("POST /login", "", &long)).await;
            assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
            assert!(talk(at, &request("PUT /", "", "")).await.starts_with("HTTP/1.1 405"));
            let head = format!("X: {}\r\n", "x".repeat(2 * HEAD_BYTES_MAX));
            let answer = talk(at, &request("GET /", &head, "")).await;
            assert!(answer.starts_with("HTTP/1.1 431"), "{answer}");
            // One address has so many connections, and another one's are taken still.
            let mut open = Vec::new();
            for _ in 0..ADDRESS_CONNECTIONS_MAX + 1 {
                open.push(TcpStream::connect(at).await.unwrap());
            }
            let mut last = open.pop().unwrap();
            assert_eq!(last.read(&mut [0]).await.unwrap(), 0, "it is closed");
            assert_eq!(door.by_address.borrow().values().sum::<usize>(), ADDRESS_CONNECTIONS_MAX);
            drop(open);
            while !door.by_address.borrow().is_empty() {
                tokio::task::yield_now().await;
            }
        })
        .unwrap();
    }

    /// Where the port is taken the next one is.
    #[test]
    fn the_next_port() {
        rt::run_local(async {
            let taken = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
            let at = taken.local_addr().unwrap();
            let got = Door::new(Rc::new(app())).listen(at).await.unwrap();
            assert!(got.port() > at.port());
            // Who listens anew, where it did, finds its own port free.
            let door = Door::new(Rc::new(app()));
            let first = door.listen("127.0.0.1:0".parse().unwrap()).await.unwrap();
            assert_eq!(door.listen(first).await.unwrap(), first);
            door.close().await;
            assert!(TcpStream::connect(first).await.is_err());
        })
        .unwrap();
    }
}
