//! Lifecycle rules of a bucket.

use rgw_proto::body::lifecycle::{Expiration, Filter, Rule, When};
use rgw_proto::time::Time;
use types::{DecodeError, Denc, Reader, Writer};

use super::ObjectTags;

/// What the attribute `lc` of a bucket holds: `RGWLifecycleConfiguration`, `ENCODE_START(1, 1)`, rules by id.
///
/// Numbers and dates of rules are text; a filter has a flag for archive zones, whose rules delete nothing here.
/// Source: `rgw_lc.h`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lifecycle(pub Vec<Rule>);

/// A filter for archive zones alone.
const ARCHIVE_ZONE: u32 = 1;

fn number(text: &str) -> Option<u32> {
    text.trim().parse().ok()
}

/// `LCExpiration`, `ENCODE_START(4, 2)`: days, date, how many noncurrent versions stay.
fn write_expiration(w: &mut Writer, days: &str, date: &str, newer: &str) {
    w.framed(4, 2, |w| {
        w.str(days);
        w.str(date);
        w.str(newer);
    });
}

/// Days, date, how many noncurrent versions stay.
type Expires = (Option<u32>, Option<Time>, Option<u32>);

fn read_expiration(r: &mut Reader<'_>) -> Result<Expires, DecodeError> {
    r.framed("LCExpiration", 4, |r, v| {
        let days = number(&r.string()?);
        let date = if v >= 3 { Time::parse_iso(&r.string()?) } else { None };
        let newer = if v >= 4 { number(&r.string()?) } else { None };
        Ok((days, date, newer))
    })
}

/// `map<string, LCTransition>`: by class; days, date, class, `ENCODE_START(1, 1)`.
fn write_transitions<'a>(w: &mut Writer, all: impl Iterator<Item = (When, &'a String)>) {
    let mut sorted: Vec<_> = all.collect();
    sorted.sort_by_key(|(_, class)| *class);
    w.seq(&sorted, |w, (when, class)| {
        w.str(class);
        w.framed(1, 1, |w| {
            let (days, date) = texts(*when);
            w.str(&days);
            w.str(&date);
            w.str(class);
        });
    });
}

fn read_transitions(r: &mut Reader<'_>) -> Result<Vec<(When, String)>, DecodeError> {
    r.seq(|r| {
        let class = r.string()?;
        r.framed("LCTransition", 1, |r, _| {
            let (days, date) = (number(&r.string()?), Time::parse_iso(&r.string()?));
            let _class = r.string()?;
            let when = days.map(When::Days).or(date.map(When::Date));
            r.require(when.is_some(), "a transition has days or a date")?;
            Ok((when.expect("it was just checked"), class))
        })
    })
}

fn texts(when: When) -> (String, String) {
    match when {
        When::Days(days) => (days.to_string(), String::new()),
        When::Date(date) => (String::new(), date.to_string()),
    }
}

fn text<T: ToString>(number: Option<T>) -> String {
    number.map(|n| n.to_string()).unwrap_or_default()
}

/// `LCFilter`, `ENCODE_START(4, 1)`.
fn write_filter(w: &mut Writer, filter: &Filter) {
    w.framed(4, 1, |w| {
        w.str(&filter.prefix);
        let mut tags = filter.tags.clone();
        tags.sort();
        ObjectTags(tags).encode(w);
        w.u32(0);
        w.str(&text(filter.larger_than));
        w.str(&text(filter.smaller_than));
    });
}

fn read_filter(r: &mut Reader<'_>) -> Result<(Filter, u32), DecodeError> {
    r.framed("LCFilter", 4, |r, v| {
        let mut out = Filter { prefix: r.string()?, ..Filter::default() };
        let mut flags = 0;
        if v >= 2 {
            out.tags = ObjectTags::decode(r)?.0;
        }
        if v >= 3 {
            flags = r.u32()?;
        }
        if v >= 4 {
            out.larger_than = r.string()?.parse().ok();
            out.smaller_than = r.string()?.parse().ok();
        }
        Ok((out, flags))
    })
}

fn write_rule(w: &mut Writer, rule: &Rule) {
    w.framed(6, 1, |w| {
        w.str(&rule.id);
        w.str("");
        w.str(if rule.is_enabled { "Enabled" } else { "Disabled" });
        let (days, date) = match rule.expiration {
            Some(Expiration::At(when)) => texts(when),
            _ => Default::default(),
        };
        write_expiration(w, &days, &date, "");
        let noncurrent = rule.noncurrent;
        write_expiration(
            w,
            &text(noncurrent.map(|n| n.0)),
            "",
            &text(noncurrent.and_then(|n| n.1)),
        );
        write_expiration(w, &text(rule.abort_uploads_days), "", "");
        w.bool(rule.expiration == Some(Expiration::LoneMarkers));
        write_filter(w, &rule.filter);
        write_transitions(w, rule.transitions.iter().map(|(when, class)| (*when, class)));
        let noncurrent = rule.noncurrent_transitions.iter();
        write_transitions(w, noncurrent.map(|(days, class)| (When::Days(*days), class)));
    });
}

/// A rule, and whether it is in force here: one for archive zones is kept and does nothing.
fn read_rule(r: &mut Reader<'_>) -> Result<Rule, DecodeError> {
    r.framed("LCRule", 6, |r, v| {
        r.require(v >= 6, "lifecycle rules are read from version 6 on")?;
        let (id, prefix, status) = (r.string()?, r.string()?, r.string()?);
        let (days, date, _) = read_expiration(r)?;
        let (noncurrent, _, newer) = read_expiration(r)?;
        let (abort, ..) = read_expiration(r)?;
        let lone_markers = r.bool()?;
        let (mut filter, flags) = read_filter(r)?;
        if filter.prefix.is_empty() {
            filter.prefix = prefix;
        }
        let at = days.map(When::Days).or(date.map(When::Date)).map(Expiration::At);
        let transitions = read_transitions(r)?;
        let later = read_transitions(r)?.into_iter();
        let later = later.filter_map(|(when, class)| match when {
            When::Days(days) => Some((days, class)),
            When::Date(_) => None,
        });
        Ok(Rule {
            id,
            is_enabled: status == "Enabled" && flags & ARCHIVE_ZONE == 0,
            filter,
            expiration: at.or(lone_markers.then_some(Expiration::LoneMarkers)),
            noncurrent: noncurrent.map(|days| (days, newer)),
            abort_uploads_days: abort,
            transitions,
            noncurrent_transitions: later.collect(),
        })
    })
}

impl Denc for Lifecycle {
    fn encode(&self, w: &mut Writer) {
        let mut rules: Vec<&Rule> = self.0.iter().collect();
        rules.sort_by(|a, b| a.id.cmp(&b.id));
        w.framed(1, 1, |w| {
            w.seq(&rules, |w, rule| {
                w.str(&rule.id);
                write_rule(w, rule);
            });
        });
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("RGWLifecycleConfiguration", 1, |r, _| {
            Ok(Self(r.seq(|r| {
                let _id = r.string()?;
                read_rule(r)
            })?))
        })
    }
}

#[cfg(test)]
mod tests {
    use rgw_proto::body::lifecycle::parse;

    use super::*;

    #[test]
    fn rules_come_back() {
        let xml = b"<LifecycleConfiguration><Rule><ID>a</ID><Status>Enabled</Status><Filter><And><Prefix>p/</Prefix>\
            <Tag><Key>k</Key><Value>v</Value></Tag><ObjectSizeGreaterThan>5</ObjectSizeGreaterThan></And></Filter>\
            <Expiration><Days>3</Days></Expiration><NoncurrentVersionExpiration><NoncurrentDays>4</NoncurrentDays>\
            <NewerNoncurrentVersions>2</NewerNoncurrentVersions></NoncurrentVersionExpiration>\
            <Transition><Date>2026-01-02T00:00:00Z</Date><StorageClass>COLD</StorageClass></Transition></Rule>\
            <Rule><ID>b</ID><Status>Disabled</Status><Prefix>q</Prefix><Expiration>\
            <ExpiredObjectDeleteMarker>true</ExpiredObjectDeleteMarker></Expiration><AbortIncompleteMultipartUpload>\
            <DaysAfterInitiation>1</DaysAfterInitiation></AbortIncompleteMultipartUpload></Rule></LifecycleConfiguration>";
        let rules = Lifecycle(parse(xml).unwrap());
        let bytes = rules.to_bytes();
        assert_eq!(Lifecycle::from_bytes(&bytes).unwrap(), rules);
        for cut in 0..bytes.len() {
            assert!(Lifecycle::from_bytes(&bytes[..cut]).is_err(), "cut at {cut}");
        }
    }
}
