//! Pushing events to endpoints of topics, by HTTP, AMQP and Kafka. A user names the endpoint, so what that can cost is bounded here:
//! time, connections at once, bytes of the answer's head; the answer's body is not read and no redirect is followed.
//!
//! Source: `rgw_pubsub_push.cc`.

use std::cell::OnceCell;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use rgw_core::notify::{Outlet, Push};
use rgw_proto::record::Record;
use rgw_proto::sns::{Endpoint, Scheme, argument, is_set};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::{Notify, Semaphore};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::client::danger::{
    HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier,
};
use tokio_rustls::rustls::crypto::aws_lc_rs::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::{
    ClientConfig, ConfigBuilder, DigitallySignedStruct, Error as TlsError, RootCertStore,
    SignatureScheme, WantsVerifier,
};

use crate::amqp;
use crate::answer::Outgoing;
use crate::kafka::Clusters;
use crate::lines::{Lines, Stream};

/// How long a connection may take, with its handshake.
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// How long a push may take in all.
const PUSH_MAX: Duration = Duration::from_secs(10);
/// Pushes at once.
const PUSHES_MAX: usize = 64;
/// Bytes of an answer's head.
const HEAD_BYTES_MAX: usize = 16 << 10;
/// Addresses of a name that are tried.
const ADDRESSES_MAX: usize = 4;
/// Where systems keep the certificates that they trust.
const ROOTS: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];

/// Takes any certificate: what `verify-ssl=false` asks for.
#[derive(Debug)]
struct Unverified;

impl ServerCertVerifier for Unverified {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, TlsError> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        default_provider().signature_verification_algorithms.supported_schemes()
    }
}

/// Whether a push may go to an address. Not to those that reach whoever is nearest instead of a receiver: link-local
/// ones, where clouds keep credentials of the host, groups, and none at all.
fn may_reach(at: IpAddr) -> bool {
    match at {
        IpAddr::V4(at) => {
            !(at.is_link_local() || at.is_multicast() || at.is_broadcast() || at.is_unspecified())
        }
        IpAddr::V6(at) => match at.to_ipv4_mapped() {
            Some(at) => may_reach(at.into()),
            None => !(at.is_unicast_link_local() || at.is_multicast() || at.is_unspecified()),
        },
    }
}

fn late(_: tokio::time::error::Elapsed) -> String {
    format!("no connection within {} s", CONNECT_MAX.as_secs())
}

/// Certificates of a file; `None` where it has none that can be read.
fn certificates(file: &str) -> Option<RootCertStore> {
    let mut store = RootCertStore::empty();
    // One that cannot be read trusts nobody.
    store.add_parsable_certificates(CertificateDer::pem_file_iter(file).ok()?.flatten());
    Some(store).filter(|store| !store.is_empty())
}

fn unread() -> String {
    "ca-location names no file of certificates at the gateway".into()
}

fn roots() -> Result<RootCertStore, String> {
    let named = std::env::var("SSL_CERT_FILE").ok();
    let files = named.iter().map(String::as_str).chain(ROOTS);
    let found = files.into_iter().find_map(certificates);
    found.ok_or_else(|| "the system has no file of certificates that it trusts".into())
}

fn tls_client() -> Result<ConfigBuilder<ClientConfig, WantsVerifier>, String> {
    let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()));
    builder.with_safe_default_protocol_versions().map_err(|e| e.to_string())
}

/// A client that trusts these certificates.
fn trusting(roots: RootCertStore) -> Result<Arc<ClientConfig>, String> {
    Ok(Arc::new(tls_client()?.with_root_certificates(roots).with_no_client_auth()))
}

/// Sends events.
pub struct Pusher {
    places: Semaphore,
    verified: OnceCell<Arc<ClientConfig>>,
    unverified: OnceCell<Arc<ClientConfig>>,
    /// Connections to brokers, of each kind.
    pub(crate) amqp: Lines<amqp::Line>,
    pub(crate) kafka: Clusters,
    /// Makes random letters.
    pub(crate) letters: Box<dyn Fn(usize) -> String>,
}

impl Pusher {
    /// Sends; `letters` makes random ones.
    pub fn new(letters: Box<dyn Fn(usize) -> String>) -> Self {
        let places = Semaphore::new(PUSHES_MAX);
        let (verified, unverified) = (OnceCell::new(), OnceCell::new());
        let (amqp, kafka) = (Lines::default(), Clusters::default());
        Self { places, verified, unverified, amqp, kafka, letters }
    }

    fn tls(&self, verifies: bool) -> Result<Arc<ClientConfig>, String> {
        let kept = if verifies { &self.verified } else { &self.unverified };
        if let Some(known) = kept.get() {
            return Ok(known.clone());
        }
        let config = match verifies {
            true => trusting(roots()?)?,
            false => {
                let builder = tls_client()?.dangerous();
                let builder = builder.with_custom_certificate_verifier(Arc::new(Unverified));
                Arc::new(builder.with_no_client_auth())
            }
        };
        Ok(kept.get_or_init(|| config).clone())
    }

    /// Sends one record to an endpoint: by HTTP an answer of 2xx takes it, by AMQP and Kafka the broker, as the topic wants it. The
    /// text says why it was not taken.
    ///
    /// # Errors
    /// Where the endpoint is none, is not reached, takes too long or answers something else.
    pub async fn send(
        &self,
        url: &str,
        args: &str,
        topic: &str,
        record: &Record,
    ) -> Result<(), String> {
        let to = Endpoint::parse(url).map_err(|error| error.message)?;
        let sending = async {
            let _place = self.places.acquire().await.map_err(|e| e.to_string())?;
            match to.scheme {
                Scheme::Amqp | Scheme::Amqps => {
                    self.publish(&to, (url, args), topic, record.to_json().as_bytes()).await
                }
                Scheme::Kafka => {
                    let body = record.to_json();
                    let what = (record.object.key.as_str(), body.as_bytes());
                    self.produce(&to, (url, args), topic, what).await
                }
                _ => self.exchange(&to, args, record).await,
            }
        };
        let late = |_| format!("it took longer than {} s", PUSH_MAX.as_secs());
        tokio::time::timeout(PUSH_MAX, sending).await.map_err(late)?
    }

    /// Connects to one of a name's addresses.
    ///
    /// # Errors
    /// Where there is none that may be reached, or it takes too long.
    pub(crate) async fn reach(&self, host: &str, port: u16) -> Result<TcpStream, String> {
        let connecting = async {
            let found = tokio::net::lookup_host((host, port)).await;
            let found = found.map_err(|error| error.to_string())?;
            let mut why = format!("{host} leads to no address that may be reached");
            for at in found.filter(|at: &SocketAddr| may_reach(at.ip())).take(ADDRESSES_MAX) {
                match TcpStream::connect(at).await {
                    Ok(stream) => return Ok(stream),
                    Err(error) => why = error.to_string(),
                }
            }
            Err(why)
        };
        let stream = tokio::time::timeout(CONNECT_MAX, connecting).await.map_err(late)??;
        let _ = stream.set_nodelay(true);
        Ok(stream)
    }

    /// Speaks TLS over a connection. `trusted` is a file of certificates that are trusted in place of the system's.
    ///
    /// # Errors
    /// Where the other side's certificate is not trusted, or it takes too long.
    pub(crate) async fn secure(
        &self,
        stream: TcpStream,
        host: &str,
        verifies: bool,
        trusted: Option<&str>,
    ) -> Result<TlsStream<TcpStream>, String> {
        let name = ServerName::try_from(host.to_owned()).map_err(|e| e.to_string())?;
        let config = match trusted {
            Some(file) if verifies => trusting(certificates(file).ok_or_else(unread)?)?,
            _ => self.tls(verifies)?,
        };
        let connector = TlsConnector::from(config);
        let stream = tokio::time::timeout(CONNECT_MAX, connector.connect(name, stream)).await;
        stream.map_err(late)?.map_err(|error| error.to_string())
    }

    /// A connection to a broker, by TLS where `secured`, as the topic's `verify-ssl` and `ca-location` want it.
    ///
    /// # Errors
    /// As [`Self::reach`] and [`Self::secure`].
    pub(crate) async fn stream(
        &self,
        (host, port): (&str, u16),
        secured: bool,
        args: &str,
    ) -> Result<Box<dyn Stream>, String> {
        let stream = self.reach(host, port).await?;
        if !secured {
            return Ok(Box::new(stream));
        }
        let (verifies, trusted) = (is_set(args, "verify-ssl", true), argument(args, "ca-location"));
        Ok(Box::new(self.secure(stream, host, verifies, trusted).await?))
    }

    async fn exchange(&self, to: &Endpoint, args: &str, record: &Record) -> Result<(), String> {
        let stream = self.reach(&to.host, to.port).await?;
        if to.scheme == Scheme::Http {
            return self.post(stream, to, args, record).await;
        }
        let stream = self.secure(stream, &to.host, is_set(args, "verify-ssl", true), None).await?;
        self.post(stream, to, args, record).await
    }

    async fn post<S: AsyncRead + AsyncWrite + Unpin + 'static>(
        &self,
        stream: S,
        to: &Endpoint,
        args: &str,
        record: &Record,
    ) -> Result<(), String> {
        let mut request = Request::post(&to.path)
            .header("Host", &to.authority)
            .header("Accept", "*/*")
            .header("Content-Type", "application/json")
            .header("Connection", "close");
        if let Some(secret) = to.authorization() {
            request = request.header("Authorization", secret);
        }
        if is_set(args, "cloudevents", false) {
            for (name, value) in record.cloud_headers() {
                request = request.header(name, value);
            }
        }
        let body = Outgoing::Whole([record.to_json().into()].into());
        let request = request.body(body).map_err(|error| error.to_string())?;
        let status = ask(stream, request, async |answer| Ok(answer.status())).await?;
        match status.is_success() {
            true => Ok(()),
            false => Err(format!("the endpoint answered {status}")),
        }
    }
}

/// Sends one request over a connection, and has `read` take the answer, whose head is bounded.
///
/// # Errors
/// Where the connection fails; what `read` fails with.
pub(crate) async fn ask<S: AsyncRead + AsyncWrite + Unpin + 'static, T>(
    stream: S,
    request: Request<Outgoing>,
    read: impl AsyncFnOnce(Response<Incoming>) -> Result<T, String>,
) -> Result<T, String> {
    let mut builder = http1::Builder::new();
    builder.max_buf_size(HEAD_BYTES_MAX);
    let (mut sender, connection) =
        builder.handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
    let asking = async {
        let answer = sender.send_request(request).await.map_err(|error| error.to_string())?;
        read(answer).await
    };
    let mut asking = std::pin::pin!(asking);
    tokio::select! {
        answer = asking.as_mut() => answer,
        // It may have ended with the answer in hand.
        _ = connection => asking.await,
    }
}

/// Wakes those who deliver from queues.
#[derive(Default)]
pub struct Wakes {
    /// A queue has an entry more.
    pub queued: Notify,
    /// There is a queue more.
    pub made: Notify,
}

/// The gateway's way out for events.
pub struct Out {
    /// What sends them.
    pub pusher: Rc<Pusher>,
    /// Told of what waits.
    pub wakes: Rc<Wakes>,
}

impl Outlet for Out {
    fn push(&self, push: Push) -> Pin<Box<dyn Future<Output = Result<(), String>>>> {
        let pusher = self.pusher.clone();
        Box::pin(async move {
            let Push { topic, record } = &push;
            pusher.send(&topic.to.endpoint, &topic.to.args, &topic.name, record).await
        })
    }

    fn lost(&self, topic: &str, why: &str) {
        tracing::warn!("an event of the topic {topic} is lost: {why}");
    }

    fn queued(&self, _queue: &str) {
        self.wakes.queued.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    #[test]
    fn addresses() {
        for (at, may) in [
            ("127.0.0.1", true),
            ("10.0.0.1", true),
            ("::1", true),
            ("169.254.169.254", false),
            ("::ffff:169.254.169.254", false),
            ("fe80::1", false),
            ("0.0.0.0", false),
            ("::", false),
            ("224.0.0.1", false),
            ("255.255.255.255", false),
        ] {
            assert_eq!(may_reach(at.parse().unwrap()), may, "{at}");
        }
    }

    /// Answers one connection with `answer`; what came.
    async fn one(listener: TcpListener, answer: &'static [u8]) -> String {
        let (mut stream, _) = listener.accept().await.unwrap();
        let (mut came, mut piece) = (Vec::new(), [0; 4096]);
        while !came.ends_with(b"]}") {
            let n = stream.read(&mut piece).await.unwrap();
            assert!(n > 0, "it ends early");
            came.extend_from_slice(&piece[..n]);
        }
        stream.write_all(answer).await.unwrap();
        String::from_utf8(came).unwrap()
    }

    #[test]
    fn what_takes_an_event() {
        rt::run_local(async {
            let pusher = Pusher::new(Box::new(|len| "a".repeat(len)));
            let mut record = Record::default();
            record.object.key = "a\r\nX-Evil: 1".into();
            for (answer, takes) in [
                (&b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"[..], true),
                (b"HTTP/1.1 204 No Content\r\n\r\n", true),
                // Nobody waits for this body, and nobody goes where that one leads.
                (b"HTTP/1.1 202 Accepted\r\nContent-Length: 99999999\r\n\r\nx", true),
                (b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n", false),
                (b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n", false),
                (b"nonsense\r\n\r\n", false),
                (b"", false),
            ] {
                let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
                let url = format!("http://u:p@{}/x?y=1", listener.local_addr().unwrap());
                let came = tokio::task::spawn_local(one(listener, answer));
                let sent = pusher.send(&url, "cloudevents=true", "t", &record).await;
                assert_eq!(sent.is_ok(), takes, "{sent:?}");
                let came = came.await.unwrap();
                assert!(came.starts_with("POST /x?y=1 HTTP/1.1\r\n"), "{came}");
                let lower = came.to_ascii_lowercase();
                assert!(lower.contains("\r\nauthorization: basic dtpw\r\n"), "{came}");
                assert!(lower.contains("\r\nce-specversion: 1.0\r\n") && !lower.contains("\r\nx-evil"));
            }
            for bad in ["http://169.254.169.254/", "http://0.0.0.0:1/", "amqp://127.0.0.1/", "http://127.0.0.1:1/"] {
                assert!(pusher.send(bad, "", "t", &record).await.is_err(), "{bad}");
            }
        })
        .unwrap();
    }
}
