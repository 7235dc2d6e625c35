//! Who may read and write a container's objects, by Swift's lists: `X-Container-Read` and `X-Container-Write`.
//!
//! ```text
//!   .r:*  .r:HOST  .r:.DOMAIN  .r:*.DOMAIN  .r:-HOST     pages that lead here; the last that fits decides
//!   .rlistings                                           kept and shown; who reads objects may list them, as of stock
//!   [TENANT$]UID                                         a user
//! ```
//!
//! They stand in the container's stored list beside the grants of S3, and hold for requests of S3 too.
//!
//! Source: `rgw_acl_swift.cc`, `rgw_acl.cc` (`ACLReferer::is_match`).

use crate::acl::GRANTS_MAX;
use crate::error::{Code, Error, Result};

/// Whom a grant is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Who {
    /// A user by id, or a word like `.rlistings` that names none.
    User(String),
    /// Requests whose `Referer` fits; with `false` they may not.
    Referer(String, bool),
}

/// A grant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// To whom.
    pub who: Who,
    /// Whether it lets write, rather than read.
    pub writes: bool,
}

/// The grants of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grants(pub Vec<Grant>);

/// The words before `:` of grants to pages.
const REFERERS: [&str; 4] = [".r", ".ref", ".referer", ".referrer"];

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split([',', ' ']).map(str::trim).filter(|word| !word.is_empty())
}

fn grant(word: &str, writes: bool) -> Result<Grant> {
    let bad = |text: &str| Err(Error::new(Code::InvalidArgument, format!("{word:?}: {text}")));
    let page = word.split_once(':').filter(|(kind, _)| REFERERS.contains(kind));
    let Some((_, pattern)) = page else {
        return Ok(Grant { who: Who::User(word.to_owned()), writes });
    };
    if writes {
        return bad("pages cannot be allowed to write: name users in X-Container-Write.");
    }
    let (pattern, allows) = match pattern.strip_prefix('-') {
        Some(rest) => (rest, false),
        None => (pattern, true),
    };
    let pattern = match pattern.strip_prefix('*') {
        // One star means all, or all that ends so.
        Some("*") => return bad("one * is enough."),
        Some(rest) if !rest.is_empty() => rest,
        _ => pattern,
    };
    let is_host = pattern == "*" || !pattern.starts_with('-') && !pattern.contains('*');
    if pattern.is_empty() || pattern == "." || !is_host {
        return bad("behind .r: stands a host, a domain with a dot before it, or *.");
    }
    Ok(Grant { who: Who::Referer(pattern.to_ascii_lowercase(), allows), writes })
}

/// The host of a URL.
fn host(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
    host.split(':').next().unwrap_or_default()
}

fn fits(pattern: &str, referer: &str) -> bool {
    if pattern == "*" {
        return true;
    }
    let host = host(referer).to_ascii_lowercase();
    host == pattern || (pattern.starts_with('.') && host.ends_with(pattern))
}

impl Grants {
    /// Reads both headers.
    ///
    /// # Errors
    /// [`Code::InvalidArgument`] for pages that shall write, patterns that are none, and more than 100 grants.
    pub fn parse(read: &str, write: &str) -> Result<Self> {
        let all = words(read).map(|w| grant(w, false)).chain(words(write).map(|w| grant(w, true)));
        let mut out = Vec::new();
        for one in all {
            if out.len() == GRANTS_MAX {
                return Err(Error::new(Code::InvalidArgument, "A list has at most 100 grants."));
            }
            out.push(one?);
        }
        Ok(Self(out))
    }

    /// The header of those who read, or of those who write; empty for nobody.
    #[must_use]
    pub fn header(&self, writes: bool) -> String {
        let of = self.0.iter().filter(|g| g.writes == writes).map(|g| match &g.who {
            Who::User(id) => id.clone(),
            Who::Referer(pattern, true) => format!(".r:{pattern}"),
            Who::Referer(pattern, false) => format!(".r:-{pattern}"),
        });
        of.collect::<Vec<_>>().join(",")
    }

    /// Whether they let somebody read or write. `referer` is the page that the request says to come from, empty for
    /// none; with `ignore_public` pages count for nothing.
    #[must_use]
    pub fn permit(
        &self,
        who: Option<&str>,
        referer: &str,
        writes: bool,
        ignore_public: bool,
    ) -> bool {
        let mut by_page = false;
        for grant in self.0.iter().filter(|g| g.writes == writes) {
            match &grant.who {
                Who::User(id) if who == Some(id.as_str()) => return true,
                Who::User(_) => {}
                Who::Referer(pattern, allows) if fits(pattern, referer) => by_page = *allows,
                Who::Referer(..) => {}
            }
        }
        by_page && !ignore_public
    }

    /// Whether users that nobody named are granted anything.
    #[must_use]
    pub fn is_public(&self) -> bool {
        self.0.iter().any(|g| matches!(g.who, Who::Referer(_, true)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn who_may_what() {
        let page = "http://www.good.org:80/x";
        // The list, who asks, from which page, whether that reads.
        for (list, who, referer, want) in [
            ("", Some("other"), "", false),
            ("other", Some("other"), "", true),
            ("other", Some("othe"), "", false),
            ("other", None, "", false),
            ("other:swift", Some("other"), "", false),
            ("*:*", Some("other"), "", false),
            (".rlistings", None, "", false),
            (".r:*", None, "", true),
            (".r:*", Some("other"), page, true),
            (".r:.good.org", None, page, true),
            (".r:*.good.org", None, page, true),
            (".r:good.org", None, page, false),
            (".r:www.good.org", None, page, true),
            (".r:.good.org", None, "http://x/www.good.org", false),
            (".r:.good.org", None, "http://evil.org@www.good.org.evil/", false),
            (".r:.good.org", None, "", false),
            (".r:*,.r:-www.good.org", None, page, false),
            (".r:*,.r:-www.good.org", None, "", true),
            (".r:-www.good.org,.r:*", None, page, true),
            ("other,.r:-www.good.org", Some("other"), page, true),
        ] {
            let grants = Grants::parse(list, "").unwrap();
            assert_eq!(grants.permit(who, referer, false, false), want, "{list} {who:?} {referer}");
            assert!(!grants.permit(who, referer, true, false), "reading is not writing: {list}");
            if who.is_none() {
                assert!(!grants.permit(who, referer, false, true), "a block holds: {list}");
            }
        }
        let grants = Grants::parse("", "other").unwrap();
        assert!(grants.permit(Some("other"), "", true, true));
        assert!(!grants.permit(Some("other"), "", false, false), "writing is not reading");
    }

    #[test]
    fn headers() {
        let back = |read: &str, write: &str| {
            let grants = Grants::parse(read, write).unwrap();
            (grants.header(false), grants.header(true))
        };
        assert_eq!(
            back(" .referrer:*.good.org ,  other,nobody ", "main,other"),
            (".r:.good.org,other,nobody".into(), "main,other".into())
        );
        assert_eq!(
            back(".r:*,.rlistings,.r:-bad.org", ""),
            (".r:*,.rlistings,.r:-bad.org".into(), String::new())
        );
        let bad = [".r:", ".r:-", ".r:.", ".r:*-x", ".r:--x", ".r:**", ".r:**x", ".r:x*"];
        for (read, write) in bad.map(|read| (read, "")).into_iter().chain([("", ".r:*")]) {
            assert_eq!(Grants::parse(read, write).unwrap_err().code, Code::InvalidArgument);
        }
        assert!(Grants::parse(&"a,".repeat(101), "").is_err());
        assert!(Grants::parse(".r:*", "").unwrap().is_public());
        assert!(!Grants::parse(".r:-x,a", "b").unwrap().is_public());
    }

    proptest! {
        /// A list comes back from its headers, and no text makes the parser panic.
        #[test]
        fn lists_come_back(
            read in prop_oneof![any::<String>(), "(\\.r:[-*.a]{0,4},?){0,3}"],
            write in "[a-z$:*.,]{0,20}",
        ) {
            if let Ok(grants) = Grants::parse(&read, &write) {
                let again = Grants::parse(&grants.header(false), &grants.header(true)).unwrap();
                prop_assert_eq!(&again, &grants);
                let _ = grants.permit(Some("a"), &read, false, false);
            }
        }
    }
}
