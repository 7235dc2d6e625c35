//! Swift v1: accounts, containers and objects, which are users, buckets and objects of S3.
//!
//! ```text
//!   /auth ───────────> a token                                  (auth)
//!   /swift/v1/… ──> Call ── who (token, temporary URL, nobody) ──> Asked, as of S3
//!                     └──> account, container, object, large     each judged by authorize, stored by the same sequences
//! ```
//!
//! Invariants: a token or URL that is not right is refused, never taken for nobody; nothing is done in another account
//! than that of the token; what is not built answers 501.
//!
//! Source: `rgw_rest_swift.cc`, `rgw_swift_auth.cc`.

mod account;
mod auth;
mod container;
mod large;
mod object;

use std::rc::Rc;

use hyper::Request;
use rgw_core::meta::BucketAt;
use rgw_proto::operation::Operation as Op;
use rgw_proto::request::{Head, Method, virtual_bucket};
pub(crate) use rgw_proto::swift::request::Call;
use rgw_proto::swift::request::{Paths, Route, Subject};
use rgw_proto::swift::{self as proto, Format};
use rgw_proto::{Code, Error, Result};
use types::UTime;

use crate::answer::Answer;
use crate::body::Received;
use crate::request::{Asked, Came};
use crate::server::{Counted, Server, not_suspended};

/// What operators set.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where it is served.
    pub paths: Paths,
    /// Whether accounts, containers and objects are served: `rgw_enable_apis` has `swift`.
    pub serves_storage: bool,
    /// Whether tokens are given: `rgw_enable_apis` has `swift_auth`.
    pub serves_auth: bool,
    /// What stands before the prefix in the URL that logins answer; empty: the host that was asked. `rgw_swift_url`.
    pub url: String,
    /// Seconds that a token holds: `rgw_swift_token_expiration`.
    pub token_s: i64,
    /// Whether lists of containers count what those hold: `rgw_swift_need_stats`.
    pub needs_stats: bool,
    /// Whether containers whose objects have versions elsewhere are refused, which stock would write:
    /// `rgw_swift_versioning_enabled`.
    pub has_versions: bool,
}

/// How an answer is written.
#[derive(Clone, Copy, Debug, Default)]
pub struct Dialect {
    format: Format,
    /// Whether the request is about an object and proved no user.
    nobody: bool,
}

impl Dialect {
    /// An error.
    pub(crate) fn answer(self, error: &Error, bucket: &str, id: &str, host: &str) -> Answer {
        let (status, name) = proto::status(error.code, self.nobody);
        let text = proto::error_body(error, name, self.format, bucket, id, host);
        self.body(Answer::new(status), text)
    }

    fn body(self, answer: Answer, text: String) -> Answer {
        answer.header("Content-Type", self.format.content_type()).bytes(text.into())
    }

    /// A list: 204 where there are no lines.
    fn list(self, answer: Answer, text: String) -> Answer {
        let answer = if text.is_empty() { answer.status(204) } else { answer };
        self.body(answer, text)
    }
}

/// `SECONDS.FRACTION`, five digits behind the point.
fn timestamp(at: UTime) -> String {
    format!("{}.{:05}", at.sec, at.nsec / 10_000)
}

/// As lists have times.
fn listed_time(at: UTime) -> String {
    proto::listing::time(crate::buckets::time(at), at.nsec / 1_000_000)
}

fn not_allowed() -> Error {
    Code::MethodNotAllowed.into()
}

impl Server {
    /// What a path is for, where it is one of Swift.
    pub(crate) fn swift_route(&self, request: &Request<Received>) -> Option<Route> {
        let settings = self.settings.swift.as_ref()?;
        let host = request.headers().get("host").and_then(|h| h.to_str().ok()).unwrap_or_default();
        let name = host.rsplit_once(':').map_or(host, |(name, _)| name).to_ascii_lowercase();
        if virtual_bucket(&name, &self.settings.dns_names).is_some() {
            return None;
        }
        settings.paths.route(request.uri().path()).filter(|route| match route {
            Route::Auth => settings.serves_auth,
            _ => settings.serves_storage,
        })
    }

    /// Answers a request of Swift.
    pub(crate) async fn serve_swift(
        self: &Rc<Self>,
        head: Head,
        route: Route,
        body: Received,
        came: Came,
    ) -> Result<Answer> {
        let format = Format::of(head.query.get("format"), &head.headers);
        came.noted.borrow_mut().swift = Some(Dialect { format, nobody: false });
        let is_get = matches!(head.method, Method::Get | Method::Head);
        match route {
            Route::Auth => self.log_in(&head, &came).await,
            Route::Storage(path) => {
                let (asked, call) = self.swift_asked(head, &path, came).await?;
                self.dispatch(asked, Some(&call), body).await
            }
            _ if !is_get => Err(not_allowed()),
            Route::Healthcheck => Ok(Answer::new(200)),
            Route::Info => Ok(self.swift_info()),
            Route::CrossDomain => {
                let text = "<?xml version=\"1.0\"?>\n<!DOCTYPE cross-domain-policy SYSTEM \
                     \"http://www.adobe.com/xml/dtds/cross-domain-policy.dtd\" >\n<cross-domain-policy>\n\
                     </cross-domain-policy>";
                Ok(Answer::xml(text.into()))
            }
            Route::Unknown => Err(not_allowed()),
        }
    }

    /// What the gateway can: bounds, and what of Swift's middleware is built.
    fn swift_info(&self) -> Answer {
        let default = &self.gateway.group.default_placement;
        let default = default.split('/').next().unwrap_or_default();
        let policies = self.gateway.zone.placements.keys().map(|name| {
            let is_default = name == default;
            match is_default {
                true => serde_json::json!({ "name": name, "default": true }),
                false => serde_json::json!({ "name": name }),
            }
        });
        let text = serde_json::json!({
            "swift": {
                "version": env!("CARGO_PKG_VERSION"),
                "max_file_size": crate::body::PUT_BYTES_MAX,
                "max_object_name_size": rgw_proto::name::KEY_BYTES_MAX,
                "max_container_name_length": proto::request::CONTAINER_BYTES_MAX,
                "container_listing_limit": proto::listing::LISTED_MAX,
                "account_listing_limit": proto::listing::LISTED_MAX,
                "strict_cors_mode": true,
                "policies": policies.collect::<Vec<_>>(),
            },
            "bulk_delete": { "max_deletes_per_request": large::DELETES_MAX },
            "slo": { "max_manifest_segments": proto::large::SEGMENTS_MAX },
            "tempurl": {
                "methods": ["GET", "HEAD", "PUT", "POST", "DELETE"],
                "allowed_digests": ["sha1", "sha256", "sha512"],
            },
            "container_quotas": {},
            "account_quotas": {},
            "tempauth": { "account_acls": false },
        });
        let dialect = Dialect { format: Format::Json, nobody: false };
        dialect.body(Answer::new(200), text.to_string())
    }

    fn dialect(asked: &Asked) -> Dialect {
        asked.came.noted.borrow().swift.unwrap_or_default()
    }

    /// The container that is named, of the tenant that the request is in.
    async fn container(&self, asked: &Asked, name: &str) -> Result<BucketAt> {
        let tenant = asked.target.bucket().map_or("", |bucket| bucket.tenant.as_str());
        not_suspended(self.gateway.bucket(tenant, name).await?)
    }

    /// Does what a request asks for.
    pub(crate) async fn do_swift(
        self: &Rc<Self>,
        asked: &Asked,
        call: &Call,
        body: Received,
        counted: &mut Counted,
    ) -> Result<Answer> {
        match (&call.subject, asked.operation) {
            (Subject::Account, Op::DeleteObjects) => return self.bulk_delete(asked, body).await,
            (Subject::Account, Op::PutAccountMetadata) => return self.post_account(asked).await,
            (Subject::Account, Op::ListBuckets) => return self.list_account(asked).await,
            (Subject::Account, _) => return Err(not_allowed()),
            (Subject::Container(_), Op::CreateBucket) => {
                return self.put_container(asked, call).await;
            }
            _ => {}
        }
        let name = call.container().unwrap_or_default();
        let bucket = self.container(asked, name).await?;
        self.admit_to(asked, &bucket, counted)?;
        if asked.operation == Op::Preflight {
            return self.preflight(asked, &bucket);
        }
        let answer = match &call.subject {
            Subject::Object(_, key) => {
                let key = key.as_str();
                return self.on_swift_object(asked, call, &bucket, key, body).await;
            }
            _ => self.on_container(asked, call, &bucket).await?,
        };
        Ok(self.cors_headers(asked, &bucket, answer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        let at = UTime { sec: 1_796_012_939, nsec: 627_951_234 };
        assert_eq!(timestamp(at), "1796012939.62795");
        assert_eq!(listed_time(at), "2026-11-30T04:28:59.627Z");
    }
}
