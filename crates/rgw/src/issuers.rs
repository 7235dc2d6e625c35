//! Keys that identity providers publish: `URL/.well-known/openid-configuration` names them. Whoever posts a token has them
//! fetched, so that is bounded: providers that are registered alone are asked, a few at once, each once in a while, for a
//! bounded time and bounded answers; redirects are not followed.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use hyper::Request;
use hyper::body::{Body, Incoming};
use rgw_proto::sns::{Endpoint, Scheme};
use rgw_proto::web_identity::{DOCUMENT_BYTES_MAX, Key, keys, keys_url, thumbprint};
use rgw_proto::{Code, Error, Result};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Semaphore;

use crate::answer::Outgoing;
use crate::push::{self, Pusher};

/// How long it may take to fetch a provider's keys.
const FETCH_MAX: Duration = Duration::from_secs(10);
/// Providers that are asked at once; more tokens are told to come later.
const FETCHES_MAX: usize = 8;
/// How long keys are believed, and how soon they are asked for anew where a token has another: a provider changes its keys.
const KEPT_NS: u64 = 300_000_000_000;
const AGAIN_NS: u64 = 10_000_000_000;
/// Providers whose keys are kept.
const ISSUERS_MAX: usize = 64;

/// What a provider publishes.
pub struct Published {
    /// Its keys for signatures.
    pub keys: Vec<Key>,
    /// Thumbprint of the last certificate that came with the keys; `None` where they came by plain HTTP.
    pub last_certificate: Option<String>,
}

/// What was fetched, when; an error counts, too.
type Kept = (u64, Result<Rc<Published>>);

/// What providers publish, kept for a while.
pub struct Issuers {
    places: Semaphore,
    kept: RefCell<BTreeMap<String, Kept>>,
}

impl Default for Issuers {
    fn default() -> Self {
        Self { places: Semaphore::new(FETCHES_MAX), kept: RefCell::default() }
    }
}

impl Issuers {
    /// What a provider publishes. Where that is known and `has_key` says that it does not do, it is asked for anew, but
    /// not too often.
    ///
    /// # Errors
    /// [`Code::AccessDenied`] where the provider is not reached or publishes no keys; [`Code::SlowDown`] where many are
    /// being asked.
    pub async fn of(
        &self,
        issuer: &str,
        pusher: &Pusher,
        has_key: impl Fn(&Published) -> bool,
    ) -> Result<Rc<Published>> {
        let now = rt::now().mono_ns;
        if let Some((at, known)) = self.kept.borrow().get(issuer) {
            let does = known.as_ref().is_ok_and(|published| has_key(published));
            let keep = if does { KEPT_NS } else { AGAIN_NS };
            if now.saturating_sub(*at) < keep {
                return known.clone();
            }
        }
        let _place = self.places.try_acquire().map_err(|_| Error::from(Code::SlowDown))?;
        let failed = |why: String| {
            let text = format!("The keys of the token's provider are not to be had: {why}.");
            Error::new(Code::AccessDenied, text)
        };
        let fetched = match tokio::time::timeout(FETCH_MAX, fetch(issuer, pusher)).await {
            Ok(Ok(published)) => Ok(Rc::new(published)),
            Ok(Err(why)) => Err(failed(why)),
            Err(_) => Err(failed(format!("it took longer than {} s", FETCH_MAX.as_secs()))),
        };
        let mut kept = self.kept.borrow_mut();
        kept.insert(issuer.to_owned(), (now, fetched.clone()));
        if kept.len() > ISSUERS_MAX {
            let oldest = kept.iter().min_by_key(|(_, (at, _))| *at).map(|(name, _)| name.clone());
            oldest.map(|name| kept.remove(&name));
        }
        fetched
    }
}

async fn fetch(issuer: &str, pusher: &Pusher) -> std::result::Result<Published, String> {
    let url = format!("{}/.well-known/openid-configuration", issuer.trim_end_matches('/'));
    let (document, _) = get(&url, pusher).await?;
    let url = keys_url(&document, issuer).map_err(|error| error.message)?;
    let (document, last_certificate) = get(&url, pusher).await?;
    let keys = keys(&document).map_err(|error| error.message)?;
    Ok(Published { keys, last_certificate })
}

/// A document, and the thumbprint of the last certificate of the connection that it came by.
async fn get(url: &str, pusher: &Pusher) -> std::result::Result<(Bytes, Option<String>), String> {
    let to = Endpoint::parse(url).map_err(|_| format!("{url:?} is no URL of HTTP"))?;
    if !matches!(to.scheme, Scheme::Http | Scheme::Https) {
        return Err(format!("{url:?} is no URL of HTTP"));
    }
    let stream = pusher.reach(&to.host, to.port).await?;
    if to.scheme == Scheme::Http {
        return Ok((ask(stream, &to).await?, None));
    }
    let stream = pusher.secure(stream, &to.host, true, None).await?;
    let chain = stream.get_ref().1.peer_certificates().unwrap_or_default();
    let last = chain.last().map(|certificate| thumbprint(certificate));
    Ok((ask(stream, &to).await?, last))
}

async fn ask<S: AsyncRead + AsyncWrite + Unpin + 'static>(
    stream: S,
    to: &Endpoint,
) -> std::result::Result<Bytes, String> {
    let request = Request::get(&to.path)
        .header("Host", &to.authority)
        .header("Accept", "application/json")
        .header("Connection", "close")
        .body(Outgoing::Whole([].into()))
        .map_err(|error| error.to_string())?;
    push::ask(stream, request, async |answer| match answer.status() {
        status if status.is_success() => read(answer.into_body()).await,
        status => Err(format!("the provider answered {status}")),
    })
    .await
}

async fn read(mut body: Incoming) -> std::result::Result<Bytes, String> {
    let mut out = BytesMut::new();
    while let Some(frame) =
        std::future::poll_fn(|cx| std::pin::Pin::new(&mut body).poll_frame(cx)).await
    {
        let frame = frame.map_err(|error| error.to_string())?;
        let Ok(piece) = frame.into_data() else { continue };
        if out.len() + piece.len() > DOCUMENT_BYTES_MAX {
            return Err("the provider's answer is longer than 256 KiB".into());
        }
        out.extend_from_slice(&piece);
    }
    Ok(out.freeze())
}
