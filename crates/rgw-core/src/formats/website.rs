//! Buckets as websites.

use rgw_proto::body::website::{Place, Rule, Website};
use types::{DecodeError, Denc, Reader, Writer};

/// A bucket's website, in its instance: `RGWBucketWebsiteConf`.
///
/// Wire: `ENCODE_START(2, 1)`; v2 added Swift's fields. The structs in it, `RGWBWRoutingRules`, `RGWBWRoutingRule`,
/// `RGWBWRoutingRuleCondition`, `RGWBWRedirectInfo` and `RGWRedirectInfo`, are `ENCODE_START(1, 1)` each. Source:
/// `rgw_website.h`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredWebsite(pub Website);

fn write_place(w: &mut Writer, place: &Place) {
    w.framed(1, 1, |w| {
        w.str(&place.protocol);
        w.str(&place.host);
        w.u16(place.status);
    });
}

fn read_place(r: &mut Reader<'_>) -> Result<Place, DecodeError> {
    r.framed("RGWRedirectInfo", 1, |r, _| {
        Ok(Place { protocol: r.string()?, host: r.string()?, status: r.u16()? })
    })
}

fn write_rule(w: &mut Writer, rule: &Rule) {
    w.framed(1, 1, |w| {
        w.framed(1, 1, |w| {
            w.str(&rule.prefix);
            w.u16(rule.error);
        });
        w.framed(1, 1, |w| {
            write_place(w, &rule.to);
            w.str(&rule.new_prefix);
            w.str(&rule.new_key);
        });
    });
}

fn read_rule(r: &mut Reader<'_>) -> Result<Rule, DecodeError> {
    r.framed("RGWBWRoutingRule", 1, |r, _| {
        let (prefix, error) =
            r.framed("RGWBWRoutingRuleCondition", 1, |r, _| Ok((r.string()?, r.u16()?)))?;
        r.framed("RGWBWRedirectInfo", 1, |r, _| {
            let to = read_place(r)?;
            Ok(Rule { prefix, error, to, new_prefix: r.string()?, new_key: r.string()? })
        })
    })
}

impl Denc for StoredWebsite {
    fn encode(&self, w: &mut Writer) {
        let site = &self.0;
        w.framed(2, 1, |w| {
            w.str(&site.index);
            w.str(&site.error);
            w.framed(1, 1, |w| w.seq(&site.rules, write_rule));
            write_place(w, &site.all_to);
            let (marker, style, lists) = &site.swift;
            w.str(marker);
            w.str(style);
            w.bool(*lists);
        });
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("RGWBucketWebsiteConf", 2, |r, v| {
            let (index, error) = (r.string()?, r.string()?);
            let rules = r.framed("RGWBWRoutingRules", 1, |r, _| r.seq(read_rule))?;
            let all_to = read_place(r)?;
            let swift = match v {
                0 | 1 => Default::default(),
                _ => (r.string()?, r.string()?, r.bool()?),
            };
            Ok(Self(Website { all_to, index, error, rules, swift }))
        })
    }
}
