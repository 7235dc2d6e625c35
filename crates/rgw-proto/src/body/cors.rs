//! Rules by which browsers may ask from other origins.

use super::malformed;
use crate::error::Result;
use crate::request::Method;
use crate::xml::{Element, Writer};

/// Rules of a bucket.
pub const RULES_MAX: usize = 100;

/// One rule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    /// Free text; may be empty.
    pub id: String,
    /// Each with one `*` at most.
    pub origins: Vec<String>,
    /// HTTP's names.
    pub methods: Vec<String>,
    /// Headers that a request may have; each with one `*` at most.
    pub headers: Vec<String>,
    /// Headers of an answer that a page may see.
    pub expose: Vec<String>,
    /// How long an answer to a preflight holds, s.
    pub max_age_s: Option<u32>,
}

/// Whether a text fits a pattern with one `*` at most.
fn fits(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((head, tail)) => {
            text.len() >= head.len() + tail.len() && text.starts_with(head) && text.ends_with(tail)
        }
    }
}

impl Rule {
    /// Whether it allows an origin to use a method with these headers.
    #[must_use]
    pub fn allows(&self, origin: &str, method: &str, headers: &[&str]) -> bool {
        let header = |h: &str| {
            let h = h.trim().to_ascii_lowercase();
            self.headers.iter().any(|p| fits(&p.to_ascii_lowercase(), &h))
        };
        self.origins.iter().any(|o| fits(o, origin))
            && self.methods.iter().any(|m| m == method)
            && headers.iter().filter(|h| !h.trim().is_empty()).all(|h| header(h))
    }

    /// Whether its origin is `*` alone: then the answer says `*`, not the origin's name.
    #[must_use]
    pub fn is_for_all(&self) -> bool {
        self.origins.iter().any(|o| o == "*")
    }
}

/// Reads `<CORSConfiguration>`.
///
/// # Errors
/// [`crate::Code::MalformedXML`]; also for two `*`, an unknown method, or control characters, which would come into headers
/// of answers (CVE-2021-3524).
pub fn parse(body: &[u8]) -> Result<Vec<Rule>> {
    let root = Element::parse_as(body, "CORSConfiguration")?;
    let rules = root.all("CORSRule").map(rule).collect::<Result<Vec<_>>>()?;
    if rules.is_empty() || rules.len() > RULES_MAX {
        return Err(malformed("CORSConfiguration has 1 to 100 rules."));
    }
    Ok(rules)
}

fn rule(one: &Element) -> Result<Rule> {
    let list = |name: &str, stars: usize| {
        let all = one.all(name).map(|e| e.text.trim().to_owned());
        let all: Vec<String> = all.collect();
        if all.iter().any(|t| {
            t.is_empty() || t.chars().any(char::is_control) || t.matches('*').count() > stars
        }) {
            return Err(malformed(format!(
                "{name} is text with at most {stars} '*' and no control characters."
            )));
        }
        Ok(all)
    };
    let (origins, methods) = (list("AllowedOrigin", 1)?, list("AllowedMethod", 0)?);
    let known = |m: &String| Method::parse(m).is_ok_and(|m| m != Method::Options);
    if origins.is_empty() || methods.is_empty() || !methods.iter().all(known) {
        return Err(malformed(
            "A rule has AllowedOrigin, and AllowedMethod of GET, PUT, POST, DELETE, HEAD.",
        ));
    }
    Ok(Rule {
        id: one.text_of("ID")?.unwrap_or_default().into(),
        origins,
        methods,
        headers: list("AllowedHeader", 1)?,
        expose: list("ExposeHeader", 0)?,
        max_age_s: one.number("MaxAgeSeconds")?,
    })
}

/// The answer's body.
#[must_use]
pub fn to_xml(rules: &[Rule]) -> String {
    let mut w = Writer::document();
    w.open_root("CORSConfiguration");
    for rule in rules {
        w.open("CORSRule").maybe("ID", Some(rule.id.as_str()).filter(|i| !i.is_empty()));
        let lists = [
            ("AllowedMethod", &rule.methods),
            ("AllowedOrigin", &rule.origins),
            ("AllowedHeader", &rule.headers),
            ("ExposeHeader", &rule.expose),
        ];
        for (name, list) in lists {
            for text in list {
                w.text(name, text);
            }
        }
        if let Some(s) = rule.max_age_s {
            w.value("MaxAgeSeconds", s);
        }
        w.close("CORSRule");
    }
    w.close("CORSConfiguration");
    w.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(inner: &str) -> Result<Vec<Rule>> {
        parse(
            format!("<CORSConfiguration><CORSRule>{inner}</CORSRule></CORSConfiguration>")
                .as_bytes(),
        )
    }

    const RULE: &str = "<AllowedOrigin>https://*.example.com</AllowedOrigin><AllowedMethod>PUT</AllowedMethod>\
        <AllowedHeader>X-*</AllowedHeader><ExposeHeader>ETag</ExposeHeader><MaxAgeSeconds>60</MaxAgeSeconds>";

    #[test]
    fn rules() {
        let rules = of(RULE).unwrap();
        assert_eq!(parse(to_xml(&rules).as_bytes()).unwrap(), rules);
        let rule = &rules[0];
        assert!(rule.allows("https://a.example.com", "PUT", &["x-one", " X-Two", ""]));
        assert!(
            !rule.allows("https://a.example.com", "GET", &[])
                && !rule.allows("https://example.org", "PUT", &[])
        );
        assert!(!rule.allows("https://a.example.com", "PUT", &["authorization"]));
        assert!(!fits("ab*bc", "abc") && fits("ab*bc", "abbc") && fits("*", ""));
    }

    #[test]
    fn what_is_refused() {
        for bad in [
            "",
            &RULE.replace("*.", "*.*."),
            &RULE.replace("PUT", "PATCH"),
            &RULE.replace("PUT", "OPTIONS"),
            &RULE.replace("ETag", "ETag&#13;&#10;Set-Cookie: x"),
            &RULE.replace("ETag", "*"),
            &RULE.replace("60", "x"),
        ] {
            assert!(of(bad).is_err(), "{bad}");
        }
    }
}
