//! Rules by which objects expire or move to another storage class.

use super::malformed;
use crate::error::{Code, Error, Result};
use crate::time::Time;
use crate::xml::{Element, Writer};

/// Rules of a bucket.
pub const RULES_MAX: usize = 1_000;
/// Characters of a rule's id.
const ID_CHARS_MAX: usize = 255;

/// When something happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// So many days after the object was written, or became noncurrent.
    Days(u32),
    /// From this midnight on.
    Date(Time),
}

/// Which objects a rule is for: all that fit every part.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Keys that begin so.
    pub prefix: String,
    /// Objects with these tags.
    pub tags: Vec<(String, String)>,
    /// Objects larger than that, bytes.
    pub larger_than: Option<u64>,
    /// Objects smaller than that, bytes.
    pub smaller_than: Option<u64>,
}

/// What becomes of current objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expiration {
    /// They are deleted.
    At(When),
    /// A delete marker with no version behind it is removed.
    LoneMarkers,
}

/// One rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Unique in its bucket; empty where the client named none: the gateway makes one up.
    pub id: String,
    /// Whether it is in force.
    pub is_enabled: bool,
    /// Which objects it is for.
    pub filter: Filter,
    /// What becomes of current objects.
    pub expiration: Option<Expiration>,
    /// Days after which noncurrent versions go, and how many of the newest stay.
    pub noncurrent: Option<(u32, Option<u32>)>,
    /// Days after which an upload that was not completed is aborted.
    pub abort_uploads_days: Option<u32>,
    /// When current objects move to which storage class.
    pub transitions: Vec<(When, String)>,
    /// Days after which noncurrent versions move to which storage class.
    pub noncurrent_transitions: Vec<(u32, String)>,
}

fn invalid(text: &str) -> Error {
    Error::new(Code::InvalidArgument, text)
}

/// Reads `<LifecycleConfiguration>`.
///
/// # Errors
/// [`Code::MalformedXML`]; [`Code::InvalidArgument`] for days of 0, a date that is no midnight, ids that are too long or
/// there twice; [`Code::InvalidRequest`] for tags beside an action on what has none. Source: `rgw_lc.cc`,
/// `check_and_add_rule`.
pub fn parse(body: &[u8]) -> Result<Vec<Rule>> {
    let root = Element::parse_as(body, "LifecycleConfiguration")?;
    let rules = root.all("Rule").map(rule).collect::<Result<Vec<_>>>()?;
    if rules.is_empty() || rules.len() > RULES_MAX {
        return Err(malformed("LifecycleConfiguration has 1 to 1000 rules."));
    }
    let mut ids: Vec<&str> =
        rules.iter().map(|r| r.id.as_str()).filter(|i| !i.is_empty()).collect();
    ids.sort_unstable();
    if ids.windows(2).any(|w| w[0] == w[1]) {
        return Err(invalid("The ID of a rule is there twice."));
    }
    Ok(rules)
}

fn days(one: &Element, name: &str, least: u32) -> Result<Option<u32>> {
    let days = one.number::<i64>(name)?;
    let fits =
        |n: i64| u32::try_from(n).ok().filter(|n| (least..=i32::MAX.unsigned_abs()).contains(n));
    days.map(|n| {
        fits(n).ok_or_else(|| invalid(&format!("{name} is a number of days, {least} or more.")))
    })
    .transpose()
}

/// Days or a date, of which one is there.
fn when(one: &Element, least: u32) -> Result<Option<When>> {
    let date = one.text_of("Date")?;
    let midnight = |text: &str| Time::parse_iso(text).filter(|t| t.0 % 86_400 == 0);
    match (days(one, "Days", least)?, date) {
        (Some(n), None) => Ok(Some(When::Days(n))),
        (None, Some(text)) => {
            let time = midnight(text)
                .ok_or_else(|| invalid("Date is a midnight, like 2026-01-02T00:00:00Z."))?;
            Ok(Some(When::Date(time)))
        }
        (None, None) => Ok(None),
        (Some(_), Some(_)) => Err(malformed(format!("{} has both Days and Date.", one.name))),
    }
}

fn filter(one: &Element) -> Result<Filter> {
    let mut out = Filter::default();
    let parts = match one.child("And")? {
        Some(and) => and,
        None if one.children.len() > 1 => {
            return Err(malformed("A Filter with several parts has them in And."));
        }
        None => one,
    };
    out.prefix = parts.child("Prefix")?.map(|p| p.text.clone()).unwrap_or_default();
    for tag in parts.all("Tag") {
        out.tags.push((tag.need("Key")?.text.clone(), tag.need("Value")?.text.clone()));
    }
    out.larger_than = parts.number("ObjectSizeGreaterThan")?;
    out.smaller_than = parts.number("ObjectSizeLessThan")?;
    // What is not known here restricted the rule: without it, more would be deleted.
    let known = ["Prefix", "Tag", "ObjectSizeGreaterThan", "ObjectSizeLessThan", "And"];
    if let Some(other) = parts.children.iter().find(|c| !known.contains(&c.name.as_str())) {
        return Err(Error::new(
            Code::NotImplemented,
            format!("A Filter by {} is not built.", other.name),
        ));
    }
    if out.larger_than.zip(out.smaller_than).is_some_and(|(l, s)| l >= s) {
        return Err(invalid("ObjectSizeGreaterThan is not below ObjectSizeLessThan."));
    }
    Ok(out)
}

fn rule(one: &Element) -> Result<Rule> {
    let id = one.text_of("ID")?.unwrap_or_default().to_owned();
    if id.chars().count() > ID_CHARS_MAX {
        return Err(invalid("The ID of a rule has at most 255 characters."));
    }
    let is_enabled = match one.need_text("Status")? {
        "Enabled" => true,
        "Disabled" => false,
        _ => return Err(malformed("Status is Enabled or Disabled.")),
    };
    let filter = match (one.child("Filter")?, one.child("Prefix")?) {
        (Some(f), None) => filter(f)?,
        (None, Some(p)) => Filter { prefix: p.text.clone(), ..Filter::default() },
        (None, None) => return Err(malformed("A rule has Filter or Prefix.")),
        (Some(_), Some(_)) => return Err(malformed("A rule has both Filter and Prefix.")),
    };
    let expiration = match one.child("Expiration")? {
        None => None,
        Some(e) => match (when(e, 1)?, e.flag("ExpiredObjectDeleteMarker")?) {
            (Some(at), None) => Some(Expiration::At(at)),
            (None, Some(true)) => Some(Expiration::LoneMarkers),
            (None, Some(false)) => None,
            _ => {
                return Err(malformed(
                    "Expiration has one of Days, Date and ExpiredObjectDeleteMarker.",
                ));
            }
        },
    };
    let noncurrent = one.child("NoncurrentVersionExpiration")?.map(|e| {
        let after =
            days(e, "NoncurrentDays", 1)?.ok_or_else(|| malformed("NoncurrentDays is missing."))?;
        Ok::<_, Error>((after, e.number("NewerNoncurrentVersions")?))
    });
    let abort = one.child("AbortIncompleteMultipartUpload")?;
    let abort = abort.map(|a| {
        days(a, "DaysAfterInitiation", 1)?
            .ok_or_else(|| malformed("DaysAfterInitiation is missing."))
    });
    let class = |e: &Element| e.need_text("StorageClass").map(str::to_owned);
    let transitions = one.all("Transition").map(|t| {
        Ok((when(t, 0)?.ok_or_else(|| malformed("Transition has Days or Date."))?, class(t)?))
    });
    let noncurrent_transitions = one.all("NoncurrentVersionTransition").map(|t| {
        Ok((
            days(t, "NoncurrentDays", 0)?.ok_or_else(|| malformed("NoncurrentDays is missing."))?,
            class(t)?,
        ))
    });
    let rule = Rule {
        id,
        is_enabled,
        filter,
        expiration,
        noncurrent: noncurrent.transpose()?,
        abort_uploads_days: abort.transpose()?,
        transitions: transitions.collect::<Result<_>>()?,
        noncurrent_transitions: noncurrent_transitions.collect::<Result<_>>()?,
    };
    let moves = !rule.transitions.is_empty() || !rule.noncurrent_transitions.is_empty();
    if rule.expiration.is_none()
        && rule.noncurrent.is_none()
        && rule.abort_uploads_days.is_none()
        && !moves
    {
        return Err(invalid("A rule has at least one action."));
    }
    // Uploads and delete markers have no tags: the rule would be for none.
    if !rule.filter.tags.is_empty()
        && (rule.abort_uploads_days.is_some() || rule.expiration == Some(Expiration::LoneMarkers))
    {
        let text = "AbortIncompleteMultipartUpload and ExpiredObjectDeleteMarker go without tags: \
            put them into a rule of their own.";
        return Err(Error::new(Code::InvalidRequest, text));
    }
    Ok(rule)
}

fn write_when(w: &mut Writer, when: When) {
    match when {
        When::Days(n) => w.value("Days", n),
        When::Date(time) => w.value("Date", time),
    };
}

impl Filter {
    /// Whether a rule with this filter is for an object.
    #[must_use]
    pub fn fits(&self, key: &str, tags: &super::config::Tags, size: u64) -> bool {
        key.starts_with(&self.prefix)
            && self.tags.iter().all(|(name, value)| tags.get(name) == Some(value))
            && self.larger_than.is_none_or(|least| size > least)
            && self.smaller_than.is_none_or(|most| size < most)
    }

    fn write(&self, w: &mut Writer) {
        let parts = usize::from(!self.prefix.is_empty())
            + self.tags.len()
            + usize::from(self.larger_than.is_some())
            + usize::from(self.smaller_than.is_some());
        w.open("Filter");
        if parts > 1 {
            w.open("And");
        }
        if parts == 0 || !self.prefix.is_empty() {
            w.text("Prefix", &self.prefix);
        }
        for (key, value) in &self.tags {
            w.open("Tag").text("Key", key).text("Value", value).close("Tag");
        }
        if let Some(n) = self.larger_than {
            w.value("ObjectSizeGreaterThan", n);
        }
        if let Some(n) = self.smaller_than {
            w.value("ObjectSizeLessThan", n);
        }
        if parts > 1 {
            w.close("And");
        }
        w.close("Filter");
    }
}

/// The answer's body.
#[must_use]
pub fn to_xml(rules: &[Rule]) -> String {
    let mut w = Writer::document();
    w.open_root("LifecycleConfiguration");
    for rule in rules {
        w.open("Rule").maybe("ID", Some(rule.id.as_str()).filter(|i| !i.is_empty()));
        rule.filter.write(&mut w);
        w.text("Status", if rule.is_enabled { "Enabled" } else { "Disabled" });
        match rule.expiration {
            None => {}
            Some(Expiration::At(at)) => {
                w.open("Expiration");
                write_when(&mut w, at);
                w.close("Expiration");
            }
            Some(Expiration::LoneMarkers) => {
                w.open("Expiration").value("ExpiredObjectDeleteMarker", true).close("Expiration");
            }
        }
        if let Some((after, newer)) = rule.noncurrent {
            w.open("NoncurrentVersionExpiration").value("NoncurrentDays", after);
            if let Some(newer) = newer {
                w.value("NewerNoncurrentVersions", newer);
            }
            w.close("NoncurrentVersionExpiration");
        }
        if let Some(after) = rule.abort_uploads_days {
            w.open("AbortIncompleteMultipartUpload")
                .value("DaysAfterInitiation", after)
                .close("AbortIncompleteMultipartUpload");
        }
        for (at, class) in &rule.transitions {
            w.open("Transition");
            write_when(&mut w, *at);
            w.text("StorageClass", class).close("Transition");
        }
        for (after, class) in &rule.noncurrent_transitions {
            w.open("NoncurrentVersionTransition")
                .value("NoncurrentDays", after)
                .text("StorageClass", class);
            w.close("NoncurrentVersionTransition");
        }
        w.close("Rule");
    }
    w.close("LifecycleConfiguration");
    w.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(inner: &str) -> Result<Vec<Rule>> {
        parse(
            format!("<LifecycleConfiguration><Rule>{inner}</Rule></LifecycleConfiguration>")
                .as_bytes(),
        )
    }

    const RULE: &str = "<ID>r</ID><Status>Enabled</Status><Filter><And><Prefix>a/</Prefix><Tag><Key>k</Key><Value>v</Value></Tag>\
        <ObjectSizeGreaterThan>5</ObjectSizeGreaterThan></And></Filter><Expiration><Days>3</Days></Expiration>\
        <NoncurrentVersionExpiration><NoncurrentDays>4</NoncurrentDays><NewerNoncurrentVersions>2</NewerNoncurrentVersions>\
        </NoncurrentVersionExpiration><Transition><Date>2026-01-02T00:00:00Z</Date><StorageClass>COLD</StorageClass></Transition>";

    const TAG: &str = "<Tag><Key>k</Key><Value>v</Value></Tag>";
    const ABORT: &str = "<AbortIncompleteMultipartUpload><DaysAfterInitiation>1</DaysAfterInitiation>\
        </AbortIncompleteMultipartUpload>";

    #[test]
    fn rules_come_back() {
        let with = |from: &str, to: &str| RULE.replace(from, to);
        for text in [
            RULE.to_owned(),
            with(TAG, "").replace(
                "<Days>3</Days>",
                "<ExpiredObjectDeleteMarker>true</ExpiredObjectDeleteMarker>",
            ),
            with(TAG, "").replace("<Transition>", &format!("{ABORT}<Transition>")),
            with("<ID>r</ID>", ""),
            "<Status>Disabled</Status><Prefix/><Expiration><Days>1</Days></Expiration>".into(),
        ] {
            let rules = of(&text).unwrap();
            assert_eq!(parse(to_xml(&rules).as_bytes()).unwrap(), rules, "{text}");
        }
    }

    #[test]
    fn what_is_refused() {
        let with = |from: &str, to: &str| of(&RULE.replace(from, to)).unwrap_err().code;
        assert_eq!(with("<Days>3</Days>", "<Days>0</Days>"), Code::InvalidArgument);
        assert_eq!(
            with("<Days>3</Days>", "<Days>3</Days><Date>2026-01-02</Date>"),
            Code::MalformedXML
        );
        let marker = "<ExpiredObjectDeleteMarker>true</ExpiredObjectDeleteMarker>";
        assert_eq!(with("<Days>3</Days>", marker), Code::InvalidRequest, "markers have no tags");
        let aborting = format!("{ABORT}<Transition>");
        assert_eq!(with("<Transition>", &aborting), Code::InvalidRequest, "nor have uploads");
        assert_eq!(with("T00:00:00Z", "T01:00:00Z"), Code::InvalidArgument);
        assert_eq!(with("Enabled", "enabled"), Code::MalformedXML);
        assert_eq!(with("<And>", "<And><Prefix>b</Prefix>"), Code::MalformedXML);
        assert_eq!(
            with("<And>", "<And><ArchiveZone/>"),
            Code::NotImplemented,
            "what restricts a rule is never ignored"
        );
        assert_eq!(
            with("<ID>r</ID>", &format!("<ID>{}</ID>", "r".repeat(256))),
            Code::InvalidArgument
        );
        assert_eq!(
            of("<Status>Enabled</Status><Prefix/>").unwrap_err().code,
            Code::InvalidArgument
        );
        let twice = format!(
            "<LifecycleConfiguration><Rule>{RULE}</Rule><Rule>{RULE}</Rule></LifecycleConfiguration>"
        );
        assert_eq!(parse(twice.as_bytes()).unwrap_err().code, Code::InvalidArgument);
    }
}
