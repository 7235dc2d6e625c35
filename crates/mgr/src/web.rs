//! The manager's HTTP side: `/metrics` for Prometheus, a page that links to it.
//!
//! What is served was collected before: a request costs no question to the monitors. One that waits
//! links to the active manager, and serves no metrics, as the peer's.

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::header::{CONTENT_TYPE, HeaderValue, SERVER};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

/// The port of the peer's module.
pub const PORT: u16 = 9283;
/// Where that is taken, so many of the next ones are tried.
const PORTS: u16 = 100;
/// Connections at once; more wait to be accepted.
const CONNECTIONS_MAX: usize = 64;
/// How long a client may take to send the head of a request.
const HEAD_MAX: Duration = Duration::from_secs(10);
/// Bytes of a head.
const HEAD_BYTES_MAX: usize = 16 << 10;
/// How long a connection may last.
const CONNECTION_MAX: Duration = Duration::from_secs(300);

/// What is served.
#[derive(Clone, Debug, Default)]
pub enum Page {
    /// Another manager is active; its URL, where it has one.
    Standby(Option<String>),
    /// Nothing was collected yet.
    #[default]
    Collecting,
    /// What was collected, and until when it counts (monotonic milliseconds).
    Metrics(Bytes, u64),
    /// The module is turned off.
    Off,
}

/// One listener, and what it serves.
#[derive(Clone, Default)]
pub struct Web {
    page: Rc<RefCell<Page>>,
    generation: Rc<Cell<u64>>,
}

impl Web {
    /// Serves another page from now on.
    pub fn show(&self, page: Page) {
        self.page.replace(page);
    }

    /// Listens at the first free port from `at` on, in place of where it listened before. Returns
    /// where.
    ///
    /// # Errors
    /// When no port is free, or the address is not this host's.
    pub async fn listen(&self, at: SocketAddr) -> io::Result<SocketAddr> {
        let mut last = io::ErrorKind::AddrInUse.into();
        for more in 0..PORTS {
            let Some(port) = at.port().checked_add(more) else { break };
            match TcpListener::bind((at.ip(), port)).await {
                Ok(listener) => {
                    let at = listener.local_addr()?;
                    self.generation.set(self.generation.get() + 1);
                    let (this, mine) = (self.clone(), self.generation.get());
                    tokio::task::spawn_local(async move { this.accept(listener, mine).await });
                    return Ok(at);
                }
                Err(err) if err.kind() == io::ErrorKind::AddrInUse => last = err,
                Err(err) => return Err(err),
            }
        }
        Err(last)
    }

    /// Listens no more.
    pub fn close(&self) {
        self.generation.set(self.generation.get() + 1);
    }

    async fn accept(&self, listener: TcpListener, mine: u64) {
        let places = std::sync::Arc::new(Semaphore::new(CONNECTIONS_MAX));
        while self.generation.get() == mine {
            let place = places.clone().acquire_owned().await.expect("it is never closed");
            // It looks up now and then, for it may have been moved elsewhere.
            let next = tokio::time::timeout(Duration::from_millis(500), listener.accept()).await;
            let stream = match next {
                Ok(Ok((stream, _))) => stream,
                Ok(Err(err)) => {
                    tracing::warn!("a connection to the metrics was not accepted: {err}");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
                Err(_) => continue,
            };
            let this = self.clone();
            tokio::task::spawn_local(async move {
                let service = service_fn(|request: Request<Incoming>| {
                    let answer = this.answer(&request);
                    async move { Ok::<_, Infallible>(answer) }
                });
                let connection = http1::Builder::new()
                    .timer(TokioTimer::new())
                    .header_read_timeout(HEAD_MAX)
                    .max_buf_size(HEAD_BYTES_MAX)
                    .serve_connection(TokioIo::new(stream), service);
                let ended = tokio::time::timeout(CONNECTION_MAX, connection).await;
                if let Ok(Err(err)) = ended {
                    tracing::debug!("a reader of metrics: {err}");
                }
                drop(place);
            });
        }
    }

    fn answer(&self, request: &Request<Incoming>) -> Response<Whole> {
        let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
        let (status, kind, body) = match request.uri().path() {
            _ if !is_read => (405, "text/plain", "read only\n".into()),
            path => page(&self.page.borrow(), path, rt::now().mono_ms()),
        };
        let mut response = Response::new(Whole(Some(body)));
        *response.status_mut() = StatusCode::from_u16(status).expect("a status");
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        headers.insert(SERVER, HeaderValue::from_static("Ceph-Prometheus"));
        response
    }
}

const HTML: &str = "text/html;charset=utf-8";
const TEXT: &str = "text/plain;charset=utf-8";

/// The page that links to a manager's metrics; `url` ends with a slash and is escaped.
fn links_to(url: &str) -> Bytes {
    let body = format!(
        "<!DOCTYPE html>\n<html>\n    <head><title>Ceph Exporter</title></head>\n    \
         <body>\n        <h1>Ceph Exporter</h1>\n        \
         <p><a href='{url}metrics'>Metrics</a></p>\n    </body>\n</html>"
    );
    body.into()
}

/// Status, kind and body of an answer.
fn page(page: &Page, path: &str, now_ms: u64) -> (u16, &'static str, Bytes) {
    match (path, page) {
        ("/", Page::Standby(Some(url))) => {
            // It comes from the manager map, which a manager wrote: as text alone.
            let url = url.replace('&', "&amp;").replace('<', "&lt;").replace('\'', "&#39;");
            (200, HTML, links_to(&url))
        }
        ("/", Page::Standby(None)) => (503, HTML, "no manager is active\n".into()),
        ("/", _) => (200, HTML, links_to("/")),
        ("/metrics", Page::Standby(_)) => (200, TEXT, Bytes::new()),
        ("/metrics", Page::Collecting) => (503, TEXT, "No cached data available yet\n".into()),
        ("/metrics", Page::Metrics(text, until_ms)) if now_ms <= *until_ms => {
            (200, TEXT, text.clone())
        }
        ("/metrics", Page::Metrics(..)) => {
            (503, TEXT, "the monitors did not answer in time: what is cached is too old\n".into())
        }
        ("/metrics", Page::Off) => {
            (503, TEXT, "the module is off: ceph mgr module enable prometheus\n".into())
        }
        _ => (404, TEXT, "there is / and /metrics\n".into()),
    }
}

/// A body in one piece; `None` once it was sent.
#[derive(Debug)]
pub struct Whole(pub Option<Bytes>);

impl Body for Whole {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let body = self.get_mut().0.take().filter(|body| !body.is_empty());
        Poll::Ready(body.map(|body| Ok(Frame::data(body))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.as_ref().is_none_or(Bytes::is_empty)
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0.as_ref().map_or(0, |body| body.len() as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Metrics that nobody renewed are not served, and a standby serves none.
    #[test]
    fn pages() {
        let metrics = Page::Metrics("x 1.0\n".into(), 100);
        assert_eq!(page(&metrics, "/metrics", 100).2, "x 1.0\n");
        assert_eq!(page(&metrics, "/metrics", 101).0, 503);
        assert_eq!(page(&Page::Collecting, "/metrics", 0).0, 503);
        let standby = Page::Standby(Some("http://h'<x>/".into()));
        assert_eq!(page(&standby, "/metrics", 0).2, "");
        let link = String::from_utf8(page(&standby, "/", 0).2.to_vec()).unwrap();
        assert!(link.contains("http://h&#39;&lt;x>/metrics"), "{link}");
        assert_eq!(page(&metrics, "/other", 0).0, 404);
        assert_eq!(page(&Page::Off, "/metrics", 0).0, 503);
    }

    /// Where the port is taken the next one is.
    #[test]
    fn the_next_port() {
        rt::run_local(async {
            let taken = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
            let at = taken.local_addr().unwrap();
            let got = Web::default().listen(at).await.unwrap();
            assert!(got.port() > at.port());
        })
        .unwrap();
    }
}
