//! Buckets that are shown as websites: `?website`, and the pages below `rgw_dns_s3website_name`.
//!
//! A page is read as any GET is: what the sender may not read shows the error document, which must be readable too.

use std::rc::Rc;

use hyper::{Request, StatusCode};
use rgw_core::formats::StoredWebsite;
use rgw_core::meta::BucketAt;
use rgw_proto::body::website::{self, Redirect, Website};
use rgw_proto::name::Key;
use rgw_proto::operation::Operation as Op;
use rgw_proto::request::{Head, Method, Target};
use rgw_proto::uri::Query;
use rgw_proto::{Code, Error, Result};

use crate::answer::Answer;
use crate::body::Received;
use crate::request::{Asked, Came};
use crate::server::{Counted, Server};

/// The header that has an object be a redirect.
const REDIRECT: &str = "x-amz-website-redirect-location";

/// Headers that are about the page alone, not about the error document in its place.
const OF_PAGE: [&str; 6] =
    ["range", "if-range", "if-match", "if-none-match", "if-modified-since", "if-unmodified-since"];

/// The page about an error.
pub(crate) fn site_page(error: &Error, bucket: &str, id: &str, host: &str) -> Answer {
    let status = error.code.status();
    let reason = StatusCode::from_u16(status).ok().and_then(|status| status.canonical_reason());
    let page = error.to_html(reason.unwrap_or_default(), bucket, id, host);
    Answer::new(status).header("Content-Type", "text/html").bytes(page.into())
}

fn redirected(to: &Redirect) -> Answer {
    Answer::new(to.status).header("Location", &to.location)
}

/// The length of the name that a host is, or is below; `None` for another host.
fn fits(host: &str, names: &[String]) -> Option<usize> {
    let below = |name: &&String| {
        let rest = host.strip_suffix(name.as_str());
        rest.is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    };
    names.iter().filter(below).map(String::len).max()
}

impl Server {
    /// Whether a request is for a website, by its host: the longest name that fits says so.
    pub(crate) fn is_site(&self, request: &Request<Received>) -> bool {
        let Some(names) = &self.settings.websites else { return false };
        let host = request.headers().get("host").and_then(|h| h.to_str().ok()).unwrap_or_default();
        let host = host.rsplit_once(':').map_or(host, |(name, _)| name).to_ascii_lowercase();
        fits(&host, names) > fits(&host, &self.settings.dns_names)
    }

    /// `?website` of a bucket.
    pub(crate) async fn on_website(
        &self,
        asked: &Asked,
        bucket: &BucketAt,
        body: Received,
    ) -> Result<Answer> {
        if self.settings.websites.is_none() {
            let text = "Buckets are no websites here: rgw_enable_static_website is false.";
            return Err(Error::new(Code::MethodNotAllowed, text));
        }
        let (site, status) = match asked.operation {
            Op::GetBucketWebsite => {
                let StoredWebsite(site) = bucket
                    .info
                    .website
                    .as_ref()
                    .ok_or_else(|| Error::from(Code::NoSuchWebsiteConfiguration))?;
                return Ok(Answer::xml(site.to_xml()));
            }
            Op::PutBucketWebsite => {
                let site = Website::parse(&self.document(asked, body).await?)?;
                (Some(StoredWebsite(site)), 200)
            }
            _ => (None, 204),
        };
        let change = |now: &mut BucketAt| -> Result<()> {
            now.info.website = site.clone();
            Ok(())
        };
        self.gateway.change_bucket(&bucket.info.bucket, change).await?;
        Ok(Answer::new(status))
    }

    /// Answers a request for a page. Its query names nothing here but what signs it.
    pub(crate) async fn serve_site(
        self: &Rc<Self>,
        head: Head,
        body: Received,
        came: Came,
    ) -> Result<Answer> {
        let operation = match head.method {
            Method::Get => Op::GetObject,
            Method::Head => Op::HeadObject,
            _ => {
                let text = "A website is read alone: send GET or HEAD.";
                return Err(Error::new(Code::MethodNotAllowed, text));
            }
        };
        let names = self.settings.websites.as_deref().unwrap_or_default();
        let target = Target::of(&head, names)?;
        let mut asked = Asked::of_known(self, head, came, target, operation).await?;
        asked.head.query = Query::default();
        if matches!(asked.target, Target::Service) {
            return Err(Code::NoSuchBucket.into());
        }
        self.dispatch(asked, None, body).await
    }

    /// Finds the page that is asked for.
    pub(crate) async fn do_site(
        self: &Rc<Self>,
        asked: &Asked,
        counted: &mut Counted,
    ) -> Result<Answer> {
        let bucket = self.bucket(asked).await?;
        self.admit_to(asked, &bucket, counted)?;
        let site = bucket.info.website.as_ref().map(|StoredWebsite(site)| site);
        let site = site.ok_or_else(|| Error::from(Code::NoSuchWebsiteConfiguration))?;
        let key = match &asked.target {
            Target::Object(_, key) => key.as_str(),
            _ => "",
        };
        let host = asked.head.headers.get("host").unwrap_or_default();
        let from = website::Asked { is_secret: asked.came.is_secret, host };
        if let Some(to) = site.redirects_all(from, key) {
            return Ok(redirected(&to));
        }
        let is_object = !key.is_empty()
            && !key.ends_with('/')
            && self.gateway.object(&bucket, key, None, false).await?.is_ok();
        let document = site.document(key, is_object).ok_or_else(|| {
            Error::new(Code::InvalidArgument, "The bucket's website has no index document.")
        })?;
        if let Some(to) = site.redirect(from, &document, 0, key) {
            return Ok(redirected(&to));
        }
        let error = match self.page(asked, &bucket, &document).await {
            Ok(page) => {
                let to = page.get(REDIRECT).map(website::visible);
                return Ok(match to {
                    Some(location) => redirected(&Redirect { status: 301, location }),
                    None => page,
                });
            }
            Err(error) if error.code.status() < 400 => return Err(error),
            Err(error) => error,
        };
        if let Some(to) = site.redirect(from, key, error.code.status(), key) {
            return Ok(redirected(&to));
        }
        if site.error.is_empty() {
            return Err(error);
        }
        // All of it, whatever the request's conditions and range say of the page.
        let mut plain = asked.clone();
        plain.head.headers = asked.head.headers.without(&OF_PAGE);
        match self.page(&plain, &bucket, &site.error).await {
            Ok(page) => Ok(page.status(error.code.status())),
            Err(_) => Err(error),
        }
    }

    /// An object as a page, where the sender may read it.
    async fn page(
        self: &Rc<Self>,
        asked: &Asked,
        bucket: &BucketAt,
        document: &str,
    ) -> Result<Answer> {
        let mut asked = asked.clone();
        let key = Key::new(document.as_bytes().to_vec())?;
        asked.target = Target::Object(asked.bucket_name()?, key);
        let object = self.found(&asked, bucket).await?;
        self.get_object(&asked, bucket, object)
    }
}

#[cfg(test)]
mod tests {
    use super::fits;

    #[test]
    fn hosts() {
        let names = ["web.test".to_owned(), "a.web.test".to_owned()];
        assert_eq!(fits("b.web.test", &names), Some(8));
        assert_eq!(fits("b.a.web.test", &names), Some(10));
        assert_eq!(fits("web.test", &names), Some(8));
        assert_eq!(
            (fits("bweb.test", &names), fits("test", &names), fits("", &names)),
            (None, None, None)
        );
    }
}
