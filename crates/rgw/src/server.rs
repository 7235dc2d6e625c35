//! The server: connections, requests, and which operation answers.

use std::cell::RefCell;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use rgw_core::gateway::Gateway;
use rgw_core::meta::{Attrs, BucketAt};
use rgw_core::objects::Objects;
use rgw_core::ratelimit::{Limiter, PeriodConfig, Ratelimit};
use rgw_proto::iam::Service;
use rgw_proto::operation::Operation as Op;
use rgw_proto::request::{Head, Headers, Method, Target, virtual_bucket};
use rgw_proto::session::Sealer;
use rgw_proto::{Code, Error, Result};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use tokio_rustls::TlsAcceptor;

use crate::OnRados;
use crate::answer::{Answer, Outgoing};
use crate::body::{PUT_BYTES_MAX, Reader, Received};
use crate::crypt::{self, CustomerKey, Masters, ObjectKey};
use crate::deliver;
use crate::issuers::Issuers;
use crate::memory::Budget;
use crate::notifications::TopicSettings;
use crate::push::{Out, Pusher, Wakes};
use crate::record::{self, Done, Noted, Records};
use crate::request::{Asked, Came, ratelimit_of};
use crate::site::site_page;
use crate::stall::Stalling;
use crate::swift;
use crate::watching;
use crate::worker::{self, Work};

/// How long a client may take to send the head of a request.
const HEAD_MAX: Duration = Duration::from_secs(30);
/// Bytes of a head: `max_header_size` of stock's front end.
const HEAD_BYTES_MAX: usize = 16 << 10;
/// Connections at once; more wait to be accepted.
const CONNECTIONS_MAX: usize = 1_024;
/// Bytes of a document that configures something, or lists keys.
const DOCUMENT_BYTES_MAX: u64 = 2 << 20;
/// Bytes that bodies of all requests may take together, and bodies of all answers.
const BODIES_BYTES: u64 = 256 << 20;
/// Bytes that documents, lists and copies of small objects may take together.
const NEEDED_BYTES: u64 = 256 << 20;
/// Copies of objects larger than a head at once, of 28 MiB each.
const COPIES_MAX: usize = 10;
/// How long a client may take nothing of an answer.
const STALL_MAX: Duration = Duration::from_secs(60);
/// How long the end of a watch may take when the gateway stops.
const UNWATCH_MAX: Duration = Duration::from_secs(2);
/// How long requests that are under way may go on when the gateway stops.
const STOP_MAX: Duration = Duration::from_secs(10);

/// What operators set.
#[derive(Clone)]
pub struct Settings {
    /// Names by which buckets are subdomains: `rgw_dns_name` and the zone group's.
    pub dns_names: Vec<String>,
    /// Names below which buckets are websites: `rgw_dns_s3website_name` and the zone group's. `None`: there are no websites
    /// (`rgw_enable_static_website`).
    pub websites: Option<Vec<String>>,
    /// Least bytes of a part that is not the last: `rgw_multipart_min_part_size`.
    pub part_bytes_min: u64,
    /// What seals sessions: `rgw_sts_key`, where `rgw_s3_auth_use_sts`. `None`: there are none.
    pub sealer: Option<Rc<Sealer>>,
    /// Master keys of objects.
    pub masters: Masters,
    /// Whether keys of clients are refused over plain HTTP: `rgw_crypt_require_ssl`.
    pub keys_want_tls: bool,
    /// The first part of the paths of the Admin API: `rgw_admin_entry`. `None`: it is not served.
    pub admin_entry: Option<String>,
    /// Whether metadata is kept between requests: `rgw_cache_enabled`.
    pub caches: bool,
    /// When the workers work.
    pub work: Work,
    /// Logs of requests.
    pub records: Rc<Records>,
    /// Swift; `None`: it is not served.
    pub swift: Option<swift::Settings>,
    /// Topics of notifications.
    pub topics: TopicSettings,
}

/// A gateway that serves.
pub struct Server {
    pub(crate) gateway: Gateway<OnRados>,
    pub(crate) settings: Settings,
    /// Memory of bodies that come.
    pub(crate) received: Budget,
    /// Memory of bodies that go.
    pub(crate) sent: Budget,
    /// Memory of what has no small form, apart from bodies, so that slow ones do not stop it: documents, lists, and
    /// copies of small objects.
    pub(crate) needed: Budget,
    /// What holds for all users and buckets that have no limit of their own.
    pub(crate) limits: RefCell<PeriodConfig>,
    /// Requests of the last minute.
    pub(crate) limiter: Limiter,
    /// Copies of large objects: each holds what is read, the head, a stripe that fills and those under way.
    pub(crate) copies: Semaphore,
    /// Sends events.
    pub(crate) pusher: Rc<Pusher>,
    /// What identity providers publish.
    pub(crate) issuers: Issuers,
    /// Wakes who delivers them.
    pub(crate) wakes: Rc<Wakes>,
}

/// Where a gateway listens.
pub struct Door {
    /// The socket.
    pub listener: TcpListener,
    /// What TLS is spoken with there; the owner may change it for connections to come. `None`: plain HTTP.
    pub tls: Option<Rc<RefCell<TlsAcceptor>>>,
}

/// Serves at all doors until `stop` says so; then ends what is under way.
///
/// # Errors
/// None but those of a door that cannot be listened at: there are none today.
pub async fn serve(
    gateway: Gateway<OnRados>,
    settings: Settings,
    doors: Vec<Door>,
    stop: watch::Receiver<bool>,
) -> std::io::Result<()> {
    let work = settings.work;
    let (received, sent) = (Budget::new(BODIES_BYTES), Budget::new(BODIES_BYTES));
    let (needed, copies) = (Budget::new(NEEDED_BYTES), Semaphore::new(COPIES_MAX));
    let limits = gateway.period_config().await.map_err(std::io::Error::other)?;
    let (limits, limiter) = (RefCell::new(limits), Limiter::default());
    let random = gateway.objects.clone();
    let letters = move |len: usize| {
        let mut bytes = vec![0; len];
        random.random(&mut bytes);
        bytes.iter().map(|b| char::from(b'a' + b % 26)).collect()
    };
    let (pusher, wakes) = (Rc::new(Pusher::new(Box::new(letters))), Rc::new(Wakes::default()));
    let out = Out { pusher: pusher.clone(), wakes: wakes.clone() };
    assert!(gateway.outlet.set(Box::new(out)).is_ok(), "a gateway serves once");
    let server = Rc::new(Server {
        gateway,
        settings,
        received,
        sent,
        needed,
        limits,
        limiter,
        copies,
        pusher,
        issuers: Issuers::default(),
        wakes,
    });
    if server.settings.topics.are_served {
        deliver::start(&server, &stop);
    }
    worker::start(&server, work, &stop);
    record::start(&server, &stop);
    let watches = match server.settings.caches {
        true => watching::start(&server, &stop),
        false => Vec::new(),
    };
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut open = Vec::new();
    for door in doors {
        let (server, stop, places) = (server.clone(), stop.clone(), places.clone());
        open.push(tokio::task::spawn_local(accept(server, door, places, stop)));
    }
    for door in open {
        door.await.map_err(std::io::Error::other)?;
    }
    let all = u32::try_from(CONNECTIONS_MAX).expect("it fits");
    let _ = tokio::time::timeout(STOP_MAX, places.acquire_many(all)).await;
    for watch in watches {
        let _ = tokio::time::timeout(UNWATCH_MAX, watch).await;
    }
    Ok(())
}

/// Takes connections at one door.
async fn accept(
    server: Rc<Server>,
    door: Door,
    places: Arc<Semaphore>,
    mut stop: watch::Receiver<bool>,
) {
    loop {
        let place = places.clone().acquire_owned().await.expect("it is never closed");
        let accepted = tokio::select! {
            accepted = door.listener.accept() => accepted,
            _ = stop.wait_for(|stop| *stop) => return,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of files, or a connection that went: neither ends the gateway.
                tracing::warn!("a connection was not accepted: {error}");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let _ = stream.set_nodelay(true);
        let (server, stop) = (server.clone(), stop.clone());
        let tls = door.tls.as_ref().map(|tls| tls.borrow().clone());
        tokio::task::spawn_local(async move {
            let Some(tls) = tls else {
                converse(server, stream, (peer, false), stop).await;
                return drop(place);
            };
            match tokio::time::timeout(HEAD_MAX, tls.accept(stream)).await {
                Ok(Ok(stream)) => converse(server, stream, (peer, true), stop).await,
                Ok(Err(error)) => tracing::debug!("{peer}: {error}"),
                Err(_) => tracing::debug!("{peer}: the handshake took too long"),
            }
            drop(place);
        });
    }
}

/// Answers the requests of one connection.
async fn converse<S: AsyncRead + AsyncWrite + Unpin + 'static>(
    server: Rc<Server>,
    stream: S,
    peer: (SocketAddr, bool),
    mut stop: watch::Receiver<bool>,
) {
    let service = service_fn(|request| {
        let server = server.clone();
        async move { Ok::<_, Infallible>(server.answer(request, peer).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_MAX)
        .max_buf_size(HEAD_BYTES_MAX.max(64 << 10))
        .serve_connection(TokioIo::new(Stalling::new(stream, STALL_MAX)), service);
    let mut connection = std::pin::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        _ = stop.wait_for(|stop| *stop) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!("{}: {error}", peer.0);
    }
}

/// Refuses a bucket whose owner is suspended.
pub(crate) fn not_suspended(bucket: BucketAt) -> Result<BucketAt> {
    match bucket.info.flags & rgw_core::formats::bucket_flags::SUSPENDED {
        0 => Ok(bucket),
        _ => Err(Code::UserSuspended.into()),
    }
}

/// Whose limits a request counts to.
pub(crate) struct Counted {
    who: Vec<String>,
    is_read: bool,
    received: u64,
}

impl Counted {
    fn of(asked: &Asked) -> Self {
        let is_read = matches!(asked.head.method, Method::Get | Method::Head | Method::Options);
        let received = asked.head.headers.get("content-length");
        let received = received.and_then(|text| text.parse().ok()).unwrap_or(0);
        Self { who: Vec::new(), is_read, received }
    }
}

impl Server {
    async fn answer(
        self: &Rc<Self>,
        request: Request<Incoming>,
        (peer, is_secret): (SocketAddr, bool),
    ) -> Response<Outgoing> {
        let begin = rt::now().wall_ns;
        let n = self.gateway.next_request();
        let id = format!("tx{n:021x}-{:x}-{}", crate::request::now().0, self.gateway.zone.name);
        let is_head = request.method() == hyper::Method::HEAD;
        let is_admin = self.admin_path(request.uri().path()).is_some();
        let line = format!("{} {}", request.method(), request.uri().path());
        let bucket = request.uri().path().trim_start_matches('/').split('/').next();
        let bucket = bucket.unwrap_or_default().to_owned();
        let received = request.headers().get(hyper::header::CONTENT_LENGTH);
        let received = received.and_then(|v| v.to_str().ok()?.parse().ok()).unwrap_or(0);
        let noted = Rc::new(RefCell::new(Noted::default()));
        let came =
            Came { id: id.clone(), peer: peer.ip().to_string(), is_secret, noted: noted.clone() };
        let mut failed = "";
        let (head, body) = request.into_parts();
        let (body, unread) = Received::new(body);
        let request = Request::from_parts(head, body);
        let answer = match self.run(request, came).await {
            Ok(answer) => answer,
            Err(error) => {
                failed = error.code.name();
                // Who is over a limit is told; a line each would fill the log.
                if error.code.status() >= 500 && error.code != Code::SlowDown {
                    tracing::warn!("{line}: {error}");
                }
                let host = format!("{}-{}", self.gateway.zone.name, self.gateway.group.name);
                let answer = Answer::new(error.code.status());
                if error.code == Code::NotModified {
                    answer
                } else if let Some(dialect) = noted.borrow().swift {
                    dialect.answer(&error, &noted.borrow().bucket, &id, &host)
                } else if noted.borrow().is_site {
                    site_page(&error, &noted.borrow().bucket, &id, &host)
                } else if is_admin {
                    let text = error.to_json(&id, &host);
                    answer.header("Content-Type", "application/json").bytes(text.into())
                } else if !noted.borrow().namespace.is_empty() {
                    let text = error.to_service_xml(noted.borrow().namespace, &id, &host);
                    answer.header("Content-Type", "application/xml").bytes(text.into())
                } else {
                    let text = error.to_xml(&bucket, &id, &host);
                    let next = noted.borrow().next_append.map(|next| next.to_string());
                    let answer = answer.maybe(crate::append::NEXT, next);
                    answer.header("Content-Type", "application/xml").bytes(text.into())
                }
            }
        };
        let status = answer.code();
        tracing::debug!("{peer} {line}: {status}");
        let sent = if is_head { 0 } else { answer.len() };
        self.settings.records.note(&Done {
            noted: &noted.borrow(),
            id: &id,
            line: &line,
            peer: &peer.ip().to_string(),
            status,
            error: failed,
            bytes: (sent, received),
            took_ms: rt::now().wall_ns.saturating_sub(begin) / 1_000_000,
        });
        let answer = match noted.borrow().swift {
            Some(_) => answer.header("X-Trans-Id", &id).header("X-Openstack-Request-Id", &id),
            None => answer,
        };
        let answer = match unread.get() {
            true => answer.header("Connection", "close"),
            false => answer,
        };
        let answer = answer.header("x-amz-request-id", id).header("Server", "Argonaut");
        answer.into_response(is_head)
    }

    /// The rest of a path of the Admin API.
    fn admin_path<'a>(&self, path: &'a str) -> Option<&'a str> {
        let entry = self.settings.admin_entry.as_deref()?;
        rgw_proto::admin::path_of(path, entry)
    }

    async fn run(self: &Rc<Self>, request: Request<Received>, came: Came) -> Result<Answer> {
        let is_site = self.is_site(&request);
        came.noted.borrow_mut().is_site = is_site;
        let route = self.swift_route(&request).filter(|_| !is_site);
        if route.is_some() {
            came.noted.borrow_mut().swift = Some(swift::Dialect::default());
        }
        let (parts, body) = request.into_parts();
        let method = Method::parse(parts.method.as_str())?;
        let headers = parts.headers.iter().map(|(name, value)| {
            let text = std::str::from_utf8(value.as_bytes());
            let bad =
                |_| Error::new(Code::InvalidRequest, format!("The header {name} is no UTF-8."));
            text.map(|v| (name.as_str(), v)).map_err(bad)
        });
        let headers = Headers::new(headers.collect::<Result<Vec<_>>>()?)?;
        let target = parts.uri.path_and_query().map_or("/", |t| t.as_str());
        let head = Head::new(method, target, headers)?;
        if is_site {
            return self.serve_site(head, body, came).await;
        }
        if let Some(route) = route {
            return self.serve_swift(head, route, body, came).await;
        }
        if let Some(path) = self.admin_path(&head.path).map(str::to_owned) {
            return self.administer(head, &path, body, &came).await;
        }
        let is_form = head.method == Method::Post && head.path == "/";
        if is_form && virtual_bucket(&head.host(), &self.settings.dns_names).is_none() {
            came.noted.borrow_mut().namespace = Service::Iam.namespace();
            return self.serve_form(head, body, &came).await;
        }
        let asked = Asked::of(self, head, came).await?;
        self.dispatch(asked, None, body).await
    }

    /// Whether keys may go over this connection.
    fn may_carry_keys(&self, asked: &Asked) -> bool {
        asked.came.is_secret || !self.settings.keys_want_tls
    }

    /// The key that an object's bytes want: the client's, or one of the gateway's. `prefix` is that of the client's headers.
    pub(crate) fn object_key(
        &self,
        asked: &Asked,
        attrs: &Attrs,
        prefix: &str,
    ) -> Result<Option<ObjectKey>> {
        let may = self.may_carry_keys(asked);
        let brought = CustomerKey::of(&asked.head.headers, prefix, may)?;
        crypt::wanted(attrs, brought, may, &self.settings.masters)
    }

    /// The key of a new object; `headers` are the request's, or those that a form stands for.
    pub(crate) fn new_key(
        &self,
        asked: &Asked,
        bucket: &BucketAt,
        headers: &Headers,
        key: &str,
    ) -> Result<Option<ObjectKey>> {
        let mut selector = [0; 32];
        self.gateway.objects.random(&mut selector);
        let owner = bucket.info.owner.text();
        let at = crypt::Place { owner: &owner, bucket: &bucket.info.bucket.name, key };
        let (may, masters) = (self.may_carry_keys(asked), &self.settings.masters);
        crypt::for_new(headers, may, masters, &bucket.attrs, at, selector)
    }

    /// Reads a document after its request is allowed.
    pub(crate) async fn document(&self, asked: &Asked, body: Received) -> Result<Vec<u8>> {
        let is_its = asked.operation != Op::CompleteMultipartUpload;
        let proof = asked.proof.as_ref();
        let reader = Reader::new(body, &asked.head, proof, DOCUMENT_BYTES_MAX, is_its)?;
        // While it comes: what is made of it is done with before the next request is looked at.
        let _held = self.needed.need(reader.len.unwrap_or(DOCUMENT_BYTES_MAX))?;
        reader.document().await
    }

    /// A reader of an object's bytes.
    pub(crate) fn data(&self, asked: &Asked, body: Received) -> Result<Reader> {
        Reader::new(body, &asked.head, asked.proof.as_ref(), PUT_BYTES_MAX, true)
    }

    /// The bucket that is named.
    pub(crate) async fn bucket(&self, asked: &Asked) -> Result<BucketAt> {
        let name = asked.bucket_name()?;
        let found = self.gateway.bucket(&name.tenant, &name.name).await;
        let bucket = match found {
            // A bucket without tenant, asked for by a user of one.
            Err(error) if error.code == Code::NoSuchBucket && !name.tenant.is_empty() => {
                let named = asked.target.bucket().is_some_and(|b| !b.tenant.is_empty());
                if named {
                    return Err(error);
                }
                self.gateway.bucket("", &name.name).await?
            }
            other => other?,
        };
        not_suspended(bucket)
    }

    /// Has a request's operation done, within limits of rates. `call` is that of Swift.
    pub(crate) async fn dispatch(
        self: &Rc<Self>,
        asked: Asked,
        call: Option<&swift::Call>,
        body: Received,
    ) -> Result<Answer> {
        let mut counted = Counted::of(&asked);
        self.admit_user(&asked, &mut counted)?;
        let done = match call {
            Some(call) => self.do_swift(&asked, call, body, &mut counted).await,
            None if asked.came.noted.borrow().is_site => self.do_site(&asked, &mut counted).await,
            None => self.do_it(&asked, body, &mut counted).await,
        };
        // Whoever may not do it uses up nobody's limit.
        let refused = [Code::AccessDenied, Code::NoSuchBucket, Code::SlowDown];
        let was_allowed = done.as_ref().err().is_none_or(|error| !refused.contains(&error.code));
        let sent = done.as_ref().map_or(0, Answer::len);
        for who in &counted.who {
            let bytes = if counted.is_read { sent } else { counted.received };
            self.limiter.count(who, counted.is_read, bytes, was_allowed);
        }
        done
    }

    /// Takes a token of the user's limit: its own, else that of all users.
    fn admit_user(&self, asked: &Asked, counted: &mut Counted) -> Result<()> {
        let limits = self.limits.borrow();
        let (limit, uid) = match &asked.user {
            None => (limits.anonymous, String::new()),
            Some(user) if user.limits.is_admin || user.limits.is_system => return Ok(()),
            Some(user) => (asked.ratelimit.unwrap_or(limits.users), user.id.text()),
        };
        let who =
            || if uid.is_empty() { "anonymous users".to_owned() } else { format!("user {uid}") };
        self.admit(&limit, who, counted)
    }

    fn admit(
        &self,
        limit: &Ratelimit,
        who: impl FnOnce() -> String,
        counted: &mut Counted,
    ) -> Result<()> {
        if !limit.is_enabled {
            return Ok(());
        }
        let who = who();
        self.limiter.admit(&who, limit, counted.is_read, rt::now().mono_ns)?;
        counted.who.push(who);
        Ok(())
    }

    /// Takes a token of the bucket's limit, and notes whose bucket it is.
    pub(crate) fn admit_to(
        &self,
        asked: &Asked,
        bucket: &BucketAt,
        counted: &mut Counted,
    ) -> Result<()> {
        asked.came.noted.borrow_mut().owner = bucket.info.owner.text();
        let is_free = asked.user.as_ref().is_some_and(|u| u.limits.is_admin || u.limits.is_system);
        if is_free {
            return Ok(());
        }
        let limit = ratelimit_of(&bucket.attrs)?.unwrap_or(self.limits.borrow().buckets);
        self.admit(&limit, || format!("bucket {}", bucket.key()), counted)
    }

    async fn do_it(
        self: &Rc<Self>,
        asked: &Asked,
        body: Received,
        counted: &mut Counted,
    ) -> Result<Answer> {
        match asked.operation {
            Op::ListBuckets => return self.list_buckets(asked).await,
            Op::CreateBucket => {
                let body = self.document(asked, body).await?;
                return self.create_bucket(asked, body).await;
            }
            _ => {}
        }
        let bucket = self.bucket(asked).await?;
        self.admit_to(asked, &bucket, counted)?;
        let charged = asked.pays(&bucket).then_some("requester");
        let answer = match &asked.target {
            Target::Object(..) => self.on_object(asked, &bucket, body).await?,
            _ => self.on_bucket(asked, bucket, body).await?,
        };
        Ok(answer.maybe("x-amz-request-charged", charged))
    }

    async fn on_bucket(&self, asked: &Asked, bucket: BucketAt, body: Received) -> Result<Answer> {
        match asked.operation {
            Op::Preflight => return self.preflight(asked, &bucket),
            // Each key is judged by itself; the form brings its own signature.
            Op::DeleteObjects => return self.delete_objects(asked, &bucket, body).await,
            Op::PostObject => return self.post_object(asked, &bucket, body).await,
            _ => asked.check(Some(&bucket), None, None)?,
        }
        match asked.operation {
            Op::HeadBucket => self.head_bucket(asked, &bucket).await,
            Op::DeleteBucket => self.delete_bucket(&bucket).await,
            Op::ListObjects => self.list_objects(asked, &bucket).await,
            Op::ListObjectVersions => self.list_versions(asked, &bucket).await,
            Op::ListMultipartUploads => self.list_uploads(asked, &bucket).await,
            _ => self.configure(asked, bucket, body).await,
        }
    }
}
