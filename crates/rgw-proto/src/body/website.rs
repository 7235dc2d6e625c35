//! Buckets as static websites: index and error documents, redirects, routing rules.
//!
//! ```text
//!   key ─ all requests redirected? ──────────────────────────────> redirect
//!    └─> document: the key, or KEY/INDEX ─ rule without an error? ─> redirect
//!         └─> read ─ fails ─ rule for this error and the key? ─────> redirect
//!                     └─ error document, else a page about the error
//! ```
//!
//! Source: `rgw_website.cc`, `rgw_rest_s3.cc` (`RGWHandler_REST_S3Website`); statuses as stock radosgw 20.2.4 answers them.

use crate::error::{Code, Error, Result};
use crate::uri;
use crate::xml::{Element, Writer};

/// Routing rules of a bucket: `rgw_website_routing_rules_max_num`.
pub const RULES_MAX: usize = 50;

/// Where a redirect leads: `RGWRedirectInfo`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// `http` or `https`; empty for that of the request.
    pub protocol: String,
    /// Empty for that of the request.
    pub host: String,
    /// The status of the redirect; 0 for 301.
    pub status: u16,
}

/// One routing rule: `RGWBWRoutingRule`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    /// What the key begins with; empty for all keys.
    pub prefix: String,
    /// The status of the error that it is for; 0: before the object is looked for.
    pub error: u16,
    /// Protocol, host, status.
    pub to: Place,
    /// What stands in place of `prefix`; empty for none.
    pub new_prefix: String,
    /// What stands in place of the key; empty for none.
    pub new_key: String,
}

/// A bucket's website: `RGWBucketWebsiteConf`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Website {
    /// Where all requests are redirected; an empty host for nowhere.
    pub all_to: Place,
    /// Name of the document of a directory.
    pub index: String,
    /// Key of the document that is shown with errors; empty for none.
    pub error: String,
    /// In the order that they are tried.
    pub rules: Vec<Rule>,
    /// Of Swift's websites, kept as it came: marker of directories, style sheet of lists, whether lists are shown.
    pub swift: (String, String, bool),
}

/// A redirect: its status, and the value of `Location`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redirect {
    /// 301 unless the rule has another.
    pub status: u16,
    /// Visible ASCII alone.
    pub location: String,
}

/// How a request came: `http` or `https`, and its `Host`.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// Whether over TLS.
    pub is_secret: bool,
    /// The host with its port, as the client named it.
    pub host: &'a str,
}

/// Text as it may stand in a header: what is no visible ASCII is percent-encoded.
#[must_use]
pub fn visible(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_ascii_graphic() {
            out.push(c);
        } else {
            out += &uri::encode(c.encode_utf8(&mut [0; 4]).as_bytes(), false);
        }
    }
    out
}

impl Rule {
    fn fits(&self, key: &str, error: u16) -> bool {
        key.starts_with(&self.prefix) && self.error == error
    }

    /// Where a request for `key` is sent. A key is percent-encoded; what the rule has stands as it was set.
    fn apply(&self, asked: Asked<'_>, key: &str) -> Redirect {
        let protocol = match (self.to.protocol.as_str(), asked.is_secret) {
            ("", true) => "https",
            ("", false) => "http",
            (named, _) => named,
        };
        let host = if self.to.host.is_empty() { asked.host } else { &self.to.host };
        let encoded = |key: &str| uri::encode(key.as_bytes(), true);
        let path = if !self.new_prefix.is_empty() {
            // The key of a directory may be shorter than the prefix, which its document has.
            let rest = key.get(self.prefix.len()..).unwrap_or_default();
            format!("{}{}", visible(&self.new_prefix), encoded(rest))
        } else if !self.new_key.is_empty() {
            visible(&self.new_key)
        } else {
            encoded(key)
        };
        let status = if self.to.status == 0 { 301 } else { self.to.status };
        let location = format!("{}://{}/{path}", visible(protocol), visible(host));
        Redirect { status, location }
    }
}

impl Website {
    /// Reads `<WebsiteConfiguration>`.
    ///
    /// # Errors
    /// [`Code::MalformedXML`]; [`Code::InvalidArgument`] for a configuration that shows nothing, an index document that is
    /// no name, statuses that are none of a redirect or an error, or texts with control characters;
    /// [`Code::InvalidRequest`] for more than [`RULES_MAX`] rules.
    pub fn parse(body: &[u8]) -> Result<Self> {
        let root = Element::parse_as(body, "WebsiteConfiguration")?;
        if let Some(to) = root.child("RedirectAllRequestsTo")? {
            let all_to = place(to)?;
            if all_to.host.is_empty() {
                return Err(invalid("RedirectAllRequestsTo names a HostName."));
            }
            return Ok(Self { all_to, ..Self::default() });
        }
        let Some(index) = root.child("IndexDocument")? else {
            return Err(invalid(
                "A value for IndexDocument Suffix must be provided if RedirectAllRequestsTo is empty",
            ));
        };
        let index = text(index, "Suffix")?;
        if index.is_empty() || index.contains('/') {
            return Err(invalid("The IndexDocument Suffix is a name without '/'."));
        }
        let error = match root.child("ErrorDocument")? {
            Some(error) => text(error, "Key")?,
            None => String::new(),
        };
        let rules = match root.child("RoutingRules")? {
            Some(rules) => rules.all("RoutingRule").map(rule).collect::<Result<Vec<_>>>()?,
            None => Vec::new(),
        };
        if rules.len() > RULES_MAX {
            let text = format!(
                "{} routing rules provided, the number of routing rules in a website configuration is limited to {RULES_MAX}.",
                rules.len()
            );
            return Err(Error::new(Code::InvalidRequest, text));
        }
        Ok(Self { index, error, rules, ..Self::default() })
    }

    /// `<WebsiteConfiguration>`.
    #[must_use]
    pub fn to_xml(&self) -> String {
        let mut w = Writer::document();
        w.open_root("WebsiteConfiguration");
        let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        if !self.all_to.host.is_empty() {
            w.open("RedirectAllRequestsTo").text("HostName", &self.all_to.host);
            w.maybe("Protocol", some(&self.all_to.protocol).as_deref());
            w.close("RedirectAllRequestsTo");
        }
        if !self.index.is_empty() {
            w.open("IndexDocument").text("Suffix", &self.index).close("IndexDocument");
        }
        if !self.error.is_empty() {
            w.open("ErrorDocument").text("Key", &self.error).close("ErrorDocument");
        }
        if !self.rules.is_empty() {
            w.open("RoutingRules");
            for rule in &self.rules {
                w.open("RoutingRule").open("Condition");
                w.maybe("KeyPrefixEquals", some(&rule.prefix).as_deref());
                if rule.error > 0 {
                    w.value("HttpErrorCodeReturnedEquals", rule.error);
                }
                w.close("Condition").open("Redirect");
                w.maybe("Protocol", some(&rule.to.protocol).as_deref());
                w.maybe("HostName", some(&rule.to.host).as_deref());
                if rule.to.status > 0 {
                    w.value("HttpRedirectCode", rule.to.status);
                }
                w.maybe("ReplaceKeyPrefixWith", some(&rule.new_prefix).as_deref());
                w.maybe("ReplaceKeyWith", some(&rule.new_key).as_deref());
                w.close("Redirect").close("RoutingRule");
            }
            w.close("RoutingRules");
        }
        w.close("WebsiteConfiguration");
        w.finish()
    }

    /// Where all requests go, whatever their key.
    #[must_use]
    pub fn redirects_all(&self, asked: Asked<'_>, key: &str) -> Option<Redirect> {
        if self.all_to.host.is_empty() {
            return None;
        }
        let rule = Rule { to: Place { status: 0, ..self.all_to.clone() }, ..Rule::default() };
        Some(rule.apply(asked, key))
    }

    /// The key of the object that answers a request for `key`, which is empty for the site itself. `is_object` says
    /// whether there is an object of that key; it is asked for a key that ends in no `/` alone. `None` where the site has
    /// no index document.
    #[must_use]
    pub fn document(&self, key: &str, is_object: bool) -> Option<String> {
        if self.index.is_empty() {
            return None;
        }
        Some(match key {
            "" => self.index.clone(),
            key if key.ends_with('/') => format!("{key}{}", self.index),
            key if is_object => key.to_owned(),
            key => format!("{key}/{}", self.index),
        })
    }

    /// The redirect of the first rule that fits: for `error` 0 by the document's key, else by the key that was asked for.
    /// `key` is the latter, and comes into the location.
    #[must_use]
    pub fn redirect(
        &self,
        asked: Asked<'_>,
        matched: &str,
        error: u16,
        key: &str,
    ) -> Option<Redirect> {
        let rule = self.rules.iter().find(|rule| rule.fits(matched, error))?;
        Some(rule.apply(asked, key))
    }
}

fn invalid(text: impl Into<String>) -> Error {
    Error::new(Code::InvalidArgument, text)
}

fn text(of: &Element, name: &str) -> Result<String> {
    let text = of.text_of(name)?.unwrap_or_default();
    if text.chars().any(char::is_control) {
        return Err(invalid(format!("{name} has no control characters.")));
    }
    Ok(text.to_owned())
}

fn place(of: &Element) -> Result<Place> {
    let (protocol, host) = (text(of, "Protocol")?, text(of, "HostName")?);
    if !["", "http", "https"].contains(&protocol.as_str()) {
        return Err(invalid("A redirect's Protocol is http or https."));
    }
    if host.contains(['/', '\\', '?', '#', '@', ' ']) {
        return Err(invalid("A redirect's HostName is a host, with a port or without."));
    }
    Ok(Place { protocol, host, status: 0 })
}

fn rule(one: &Element) -> Result<Rule> {
    let mut rule = Rule::default();
    if let Some(condition) = one.child("Condition")? {
        rule.prefix = text(condition, "KeyPrefixEquals")?;
        if let Some(error) = condition.number::<u16>("HttpErrorCodeReturnedEquals")? {
            if !(400..600).contains(&error) {
                return Err(invalid("HttpErrorCodeReturnedEquals is 400 to 599."));
            }
            rule.error = error;
        }
    }
    let to = one.need("Redirect")?;
    rule.to = place(to)?;
    if let Some(status) = to.number::<u16>("HttpRedirectCode")? {
        if !(301..400).contains(&status) {
            return Err(invalid("HttpRedirectCode is 301 to 399."));
        }
        rule.to.status = status;
    }
    let both = to.child("ReplaceKeyPrefixWith")?.is_some() && to.child("ReplaceKeyWith")?.is_some();
    if both {
        return Err(invalid("A redirect has ReplaceKeyPrefixWith or ReplaceKeyWith, not both."));
    }
    rule.new_prefix = text(to, "ReplaceKeyPrefixWith")?;
    rule.new_key = text(to, "ReplaceKeyWith")?;
    Ok(rule)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HERE: Asked<'_> = Asked { is_secret: false, host: "b.web.test:80" };

    fn site(inner: &str) -> Result<Website> {
        Website::parse(format!("<WebsiteConfiguration>{inner}</WebsiteConfiguration>").as_bytes())
    }

    const INDEX: &str = "<IndexDocument><Suffix>index.html</Suffix></IndexDocument>";

    #[test]
    fn what_is_refused() {
        for (inner, code) in [
            (String::new(), Code::InvalidArgument),
            ("<ErrorDocument><Key>e</Key></ErrorDocument>".into(), Code::InvalidArgument),
            ("<IndexDocument><Suffix></Suffix></IndexDocument>".into(), Code::InvalidArgument),
            ("<IndexDocument><Suffix>a/b</Suffix></IndexDocument>".into(), Code::InvalidArgument),
            ("<RedirectAllRequestsTo/>".into(), Code::InvalidArgument),
            (
                "<RedirectAllRequestsTo><HostName>h/x</HostName></RedirectAllRequestsTo>".into(),
                Code::InvalidArgument,
            ),
            (rule_of("", "<Protocol>javascript</Protocol>"), Code::InvalidArgument),
            (rule_of("", "<HttpRedirectCode>300</HttpRedirectCode>"), Code::InvalidArgument),
            (rule_of("", "<HttpRedirectCode>70000</HttpRedirectCode>"), Code::MalformedXML),
            (
                rule_of("<HttpErrorCodeReturnedEquals>399</HttpErrorCodeReturnedEquals>", ""),
                Code::InvalidArgument,
            ),
            (
                rule_of(
                    "",
                    "<ReplaceKeyWith>a</ReplaceKeyWith><ReplaceKeyPrefixWith>b</ReplaceKeyPrefixWith>",
                ),
                Code::InvalidArgument,
            ),
            (
                rule_of("", "<ReplaceKeyWith>a&#13;&#10;X: y</ReplaceKeyWith>"),
                Code::InvalidArgument,
            ),
            (format!("{INDEX}<RoutingRules><RoutingRule/></RoutingRules>"), Code::MalformedXML),
            (
                format!(
                    "{INDEX}<RoutingRules>{}</RoutingRules>",
                    "<RoutingRule><Redirect/></RoutingRule>".repeat(51)
                ),
                Code::InvalidRequest,
            ),
        ] {
            assert_eq!(site(&inner).expect_err(&inner).code, code, "{inner}");
        }
        assert_eq!(Website::parse(b"<x/>").unwrap_err().code, Code::MalformedXML);
    }

    fn rule_of(condition: &str, redirect: &str) -> String {
        format!(
            "{INDEX}<RoutingRules><RoutingRule><Condition>{condition}</Condition><Redirect>{redirect}</Redirect></RoutingRule></RoutingRules>"
        )
    }

    #[test]
    fn documents() {
        let site = site(INDEX).unwrap();
        for (key, is_object, want) in [
            ("", false, "index.html"),
            ("sub/", true, "sub/index.html"),
            ("sub", false, "sub/index.html"),
            ("page", true, "page"),
        ] {
            assert_eq!(site.document(key, is_object).unwrap(), want);
        }
        assert_eq!(Website::default().document("k", true), None);
    }

    /// As stock redirected, but that keys are encoded.
    #[test]
    fn redirects() {
        let rules = "<RoutingRule><Condition><KeyPrefixEquals>docs/</KeyPrefixEquals></Condition><Redirect><ReplaceKeyPrefixWith>documents/</ReplaceKeyPrefixWith></Redirect></RoutingRule>\
            <RoutingRule><Condition><KeyPrefixEquals>old</KeyPrefixEquals></Condition><Redirect><HostName>new.example</HostName><Protocol>https</Protocol><HttpRedirectCode>302</HttpRedirectCode></Redirect></RoutingRule>\
            <RoutingRule><Condition><KeyPrefixEquals>gone/</KeyPrefixEquals><HttpErrorCodeReturnedEquals>404</HttpErrorCodeReturnedEquals></Condition><Redirect><ReplaceKeyWith>why.html?x=y</ReplaceKeyWith></Redirect></RoutingRule>";
        let text = format!(
            "{INDEX}<ErrorDocument><Key>e</Key></ErrorDocument><RoutingRules>{rules}</RoutingRules>"
        );
        let site = site(&text).unwrap();
        let to = |matched: &str, error, key: &str| {
            let found = site.redirect(HERE, matched, error, key);
            found.map(|r| (r.status, r.location))
        };
        assert_eq!(
            to("docs/a", 0, "docs/a"),
            Some((301, "http://b.web.test:80/documents/a".into()))
        );
        assert_eq!(
            to("docs/index.html", 0, "docs"),
            Some((301, "http://b.web.test:80/documents/".into()))
        );
        assert_eq!(
            to("old/x", 0, "old/x y?ä"),
            Some((302, "https://new.example/old/x%20y%3F%C3%A4".into()))
        );
        assert_eq!(
            to("gone/x", 404, "gone/x"),
            Some((301, "http://b.web.test:80/why.html?x=y".into()))
        );
        assert_eq!(
            (to("gone/x", 0, "gone/x"), to("gone/x", 403, "gone/x"), to("gon", 404, "gon")),
            (None, None, None)
        );
        assert_eq!(to("docs/a", 404, "docs/a"), None);
        let again = Website::parse(site.to_xml().as_bytes()).unwrap();
        assert_eq!(again, site);
    }

    #[test]
    fn all_redirected() {
        let host = "<RedirectAllRequestsTo><HostName>all.example</HostName><Protocol>https</Protocol></RedirectAllRequestsTo>";
        let found = site(host).unwrap();
        let to = found.redirects_all(HERE, "a/b").unwrap();
        assert_eq!((to.status, to.location.as_str()), (301, "https://all.example/a/b"));
        assert_eq!(Website::parse(found.to_xml().as_bytes()).unwrap(), found);
        assert_eq!(site(INDEX).unwrap().redirects_all(HERE, "a"), None);
    }

    proptest! {
        /// Whatever a key or a stored rule holds, a location is one line of visible ASCII.
        #[test]
        fn locations(key in any::<String>(), host in any::<String>(), new in any::<String>(), prefix in any::<String>()) {
            let to = Place { host, ..Place::default() };
            let by_prefix = Rule { to: to.clone(), prefix: prefix.clone(), new_prefix: new.clone(), ..Rule::default() };
            let by_key = Rule { to, new_key: new, ..Rule::default() };
            for rule in [by_prefix, by_key] {
                let at = rule.apply(HERE, &key);
                prop_assert!(at.location.bytes().all(|b| b.is_ascii_graphic()));
            }
        }
    }
}
