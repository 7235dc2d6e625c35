//! Configurations of a bucket that are few fields: versioning, tags, encryption, object lock, public access block,
//! location, who pays.

use std::collections::BTreeMap;

use super::malformed;
use crate::authorize::PublicAccessBlock;
use crate::error::{Code, Error, Result};
use crate::time::Time;
use crate::xml::{Element, Writer};

/// Tags of an object.
pub const OBJECT_TAGS_MAX: usize = 10;
/// Tags of a bucket.
pub const BUCKET_TAGS_MAX: usize = 50;

/// Whether a bucket keeps versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Versioning {
    /// It never did.
    Off,
    /// It does.
    Enabled,
    /// It did.
    Suspended,
}

impl Versioning {
    /// Reads `<VersioningConfiguration>`.
    ///
    /// # Errors
    /// [`Code::MalformedXML`]; [`Code::NotImplemented`] for deletes by a second factor.
    pub fn parse(body: &[u8]) -> Result<Self> {
        let root = Element::parse_as(body, "VersioningConfiguration")?;
        if root.text_of("MfaDelete")?.is_some_and(|v| v != "Disabled") {
            return Err(Error::new(Code::NotImplemented, "MfaDelete is not built."));
        }
        match root.need_text("Status")? {
            "Enabled" => Ok(Self::Enabled),
            "Suspended" => Ok(Self::Suspended),
            _ => Err(malformed("Status is Enabled or Suspended.")),
        }
    }

    /// The answer's body.
    #[must_use]
    pub fn to_xml(self) -> String {
        let mut w = Writer::document();
        w.open_root("VersioningConfiguration");
        match self {
            Self::Off => {}
            Self::Enabled => _ = w.text("Status", "Enabled"),
            Self::Suspended => _ = w.text("Status", "Suspended"),
        }
        w.close("VersioningConfiguration");
        w.finish()
    }
}

/// Tags by key.
pub type Tags = BTreeMap<String, String>;

fn add_tag(tags: &mut Tags, key: String, value: String, most: usize) -> Result<()> {
    let bad = |text: &str| Err(Error::new(Code::InvalidTag, text));
    if key.is_empty() || key.chars().count() > 128 || value.chars().count() > 256 {
        return bad("A tag's key has 1 to 128 characters, its value at most 256.");
    }
    if tags.insert(key, value).is_some() {
        return bad("A tag's key is there twice.");
    }
    if tags.len() > most {
        return bad(&format!("There may be at most {most} tags."));
    }
    Ok(())
}

/// Reads `<Tagging>` with at most `most` tags.
///
/// # Errors
/// [`Code::MalformedXML`], [`Code::InvalidTag`].
pub fn tags(body: &[u8], most: usize) -> Result<Tags> {
    let root = Element::parse_as(body, "Tagging")?;
    let mut out = Tags::new();
    for tag in root.need("TagSet")?.all("Tag") {
        add_tag(&mut out, tag.need("Key")?.text.clone(), tag.need("Value")?.text.clone(), most)?;
    }
    Ok(out)
}

/// Reads `x-amz-tagging`: tags as a query.
///
/// # Errors
/// [`Code::InvalidTag`], [`Code::InvalidArgument`].
pub fn header_tags(text: &str) -> Result<Tags> {
    let mut out = Tags::new();
    for (key, value) in crate::uri::Query::parse(text)?.iter() {
        add_tag(&mut out, key.into(), value.unwrap_or_default().into(), OBJECT_TAGS_MAX)?;
    }
    Ok(out)
}

/// The answer's body.
#[must_use]
pub fn tags_to_xml(tags: &Tags) -> String {
    let mut w = Writer::document();
    w.open_root("Tagging").open("TagSet");
    for (key, value) in tags {
        w.open("Tag").text("Key", key).text("Value", value).close("Tag");
    }
    w.close("TagSet").close("Tagging");
    w.finish()
}

/// Reads the location of `<CreateBucketConfiguration>`, `ZONEGROUP[:PLACEMENT]`; empty for an empty body.
///
/// # Errors
/// [`Code::MalformedXML`].
pub fn location(body: &[u8]) -> Result<String> {
    if body.iter().all(u8::is_ascii_whitespace) {
        return Ok(String::new());
    }
    let root = Element::parse_as(body, "CreateBucketConfiguration")?;
    Ok(root.text_of("LocationConstraint")?.unwrap_or_default().to_owned())
}

/// The answer's body.
#[must_use]
pub fn location_to_xml(location: &str) -> String {
    let mut w = Writer::document();
    w.open_root("LocationConstraint");
    let mut out = w.finish();
    let mut text = Writer::default();
    text.text("x", location);
    let text = text.finish();
    out += &text["<x>".len()..text.len() - "</x>".len()];
    out + "</LocationConstraint>"
}

impl PublicAccessBlock {
    /// Reads `<PublicAccessBlockConfiguration>`; what is missing is off.
    ///
    /// # Errors
    /// [`Code::MalformedXML`].
    pub fn parse(body: &[u8]) -> Result<Self> {
        let root = Element::parse_as(body, "PublicAccessBlockConfiguration")?;
        let flag = |name| root.flag(name).map(|f| f.unwrap_or(false));
        Ok(Self {
            block_acls: flag("BlockPublicAcls")?,
            ignore_acls: flag("IgnorePublicAcls")?,
            block_policy: flag("BlockPublicPolicy")?,
            restrict_buckets: flag("RestrictPublicBuckets")?,
        })
    }

    /// The answer's body.
    #[must_use]
    pub fn to_xml(self) -> String {
        let mut w = Writer::document();
        w.open_root("PublicAccessBlockConfiguration");
        w.value("BlockPublicAcls", self.block_acls).value("IgnorePublicAcls", self.ignore_acls);
        w.value("BlockPublicPolicy", self.block_policy)
            .value("RestrictPublicBuckets", self.restrict_buckets);
        w.close("PublicAccessBlockConfiguration");
        w.finish()
    }
}

/// The answer about a policy.
#[must_use]
pub fn policy_status_to_xml(is_public: bool) -> String {
    let mut w = Writer::document();
    w.open_root("PolicyStatus").value("IsPublic", is_public).close("PolicyStatus");
    w.finish()
}

/// How a lock may be lifted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockMode {
    /// By users with the permission to bypass it.
    Governance,
    /// By nobody.
    Compliance,
}

impl LockMode {
    /// Reads a name.
    ///
    /// # Errors
    /// [`Code::MalformedXML`].
    pub fn parse(text: &str) -> Result<Self> {
        match text {
            "GOVERNANCE" => Ok(Self::Governance),
            "COMPLIANCE" => Ok(Self::Compliance),
            _ => Err(malformed("The mode is GOVERNANCE or COMPLIANCE.")),
        }
    }

    /// As XML and headers have it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Governance => "GOVERNANCE",
            Self::Compliance => "COMPLIANCE",
        }
    }
}

/// How long new objects are locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Period {
    /// So many days, 1 to 36,500.
    Days(u32),
    /// So many years, 1 to 100.
    Years(u32),
}

/// The lock of a bucket: on, and perhaps a rule for new objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectLock {
    /// What new objects get.
    pub default: Option<(LockMode, Period)>,
}

impl ObjectLock {
    /// Reads `<ObjectLockConfiguration>`.
    ///
    /// # Errors
    /// [`Code::MalformedXML`]; [`Code::InvalidRetentionPeriod`] for zero days or more than 100 years.
    pub fn parse(body: &[u8]) -> Result<Self> {
        let root = Element::parse_as(body, "ObjectLockConfiguration")?;
        if root.need_text("ObjectLockEnabled")? != "Enabled" {
            return Err(malformed("ObjectLockEnabled is Enabled."));
        }
        let Some(rule) = root.child("Rule")? else { return Ok(Self { default: None }) };
        let rule = rule.need("DefaultRetention")?;
        let mode = LockMode::parse(rule.need_text("Mode")?)?;
        let period = match (rule.number::<i64>("Days")?, rule.number::<i64>("Years")?) {
            (Some(n), None) => {
                (1..=36_500).contains(&n).then(|| u32::try_from(n).map(Period::Days))
            }
            (None, Some(n)) => (1..=100).contains(&n).then(|| u32::try_from(n).map(Period::Years)),
            _ => return Err(malformed("DefaultRetention has either Days or Years.")),
        };
        let period = period
            .and_then(std::result::Result::ok)
            .ok_or_else(|| Error::from(Code::InvalidRetentionPeriod))?;
        Ok(Self { default: Some((mode, period)) })
    }

    /// The answer's body.
    #[must_use]
    pub fn to_xml(self) -> String {
        let mut w = Writer::document();
        w.open_root("ObjectLockConfiguration").text("ObjectLockEnabled", "Enabled");
        if let Some((mode, period)) = self.default {
            w.open("Rule").open("DefaultRetention").text("Mode", mode.name());
            match period {
                Period::Days(n) => w.value("Days", n),
                Period::Years(n) => w.value("Years", n),
            };
            w.close("DefaultRetention").close("Rule");
        }
        w.close("ObjectLockConfiguration");
        w.finish()
    }
}

/// The lock of one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// How it may be lifted.
    pub mode: LockMode,
    /// Its end.
    pub until: Time,
}

impl Retention {
    /// Reads `<Retention>`.
    ///
    /// # Errors
    /// [`Code::MalformedXML`].
    pub fn parse(body: &[u8]) -> Result<Self> {
        let root = Element::parse_as(body, "Retention")?;
        let until = Time::parse_iso(root.need_text("RetainUntilDate")?);
        let until =
            until.ok_or_else(|| malformed("RetainUntilDate is like 2026-01-02T03:04:05Z."))?;
        Ok(Self { mode: LockMode::parse(root.need_text("Mode")?)?, until })
    }

    /// The answer's body.
    #[must_use]
    pub fn to_xml(self) -> String {
        let mut w = Writer::document();
        w.open_root("Retention")
            .text("Mode", self.mode.name())
            .value("RetainUntilDate", self.until)
            .close("Retention");
        w.finish()
    }
}

/// Reads `<LegalHold>`: whether it is on.
///
/// # Errors
/// [`Code::MalformedXML`].
pub fn legal_hold(body: &[u8]) -> Result<bool> {
    match Element::parse_as(body, "LegalHold")?.need_text("Status")? {
        "ON" => Ok(true),
        "OFF" => Ok(false),
        _ => Err(malformed("Status is ON or OFF.")),
    }
}

/// The answer's body.
#[must_use]
pub fn legal_hold_to_xml(on: bool) -> String {
    let mut w = Writer::document();
    w.open_root("LegalHold").text("Status", if on { "ON" } else { "OFF" }).close("LegalHold");
    w.finish()
}

/// Reads `<RequestPaymentConfiguration>`: whether the requester pays.
///
/// # Errors
/// [`Code::MalformedXML`].
pub fn requester_pays(body: &[u8]) -> Result<bool> {
    match Element::parse_as(body, "RequestPaymentConfiguration")?.need_text("Payer")? {
        "Requester" => Ok(true),
        "BucketOwner" => Ok(false),
        _ => Err(malformed("Payer is Requester or BucketOwner.")),
    }
}

/// The answer's body.
#[must_use]
pub fn requester_pays_to_xml(pays: bool) -> String {
    let mut w = Writer::document();
    let payer = if pays { "Requester" } else { "BucketOwner" };
    w.open_root("RequestPaymentConfiguration")
        .text("Payer", payer)
        .close("RequestPaymentConfiguration");
    w.finish()
}

/// What a bucket encrypts new objects with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Encryption {
    /// `AES256` or `aws:kms`.
    pub algorithm: String,
    /// Of the master key; empty for none.
    pub key_id: String,
    /// Whether one key is to serve many objects: kept.
    pub bucket_key: bool,
}

/// Bytes of the id of a master key.
const KEY_ID_BYTES_MAX: usize = 2_048;

impl Encryption {
    /// Reads `ServerSideEncryptionConfiguration` with its one rule.
    ///
    /// # Errors
    /// [`Code::MalformedXML`]; [`Code::InvalidEncryptionAlgorithmError`]. Stock takes documents without rules and
    /// algorithms that it does not know.
    pub fn parse(body: &[u8]) -> Result<Self> {
        let root = Element::parse_as(body, "ServerSideEncryptionConfiguration")?;
        let rule = root.need("Rule")?;
        let default = rule.need("ApplyServerSideEncryptionByDefault")?;
        let algorithm = default.need_text("SSEAlgorithm")?.to_owned();
        let key_id = default.text_of("KMSMasterKeyID")?.unwrap_or_default().to_owned();
        let bucket_key = rule.flag("BucketKeyEnabled")?.unwrap_or_default();
        match algorithm.as_str() {
            "AES256" if !key_id.is_empty() => {
                Err(malformed("KMSMasterKeyID goes with aws:kms only."))
            }
            "aws:kms" if key_id.is_empty() || key_id.len() > KEY_ID_BYTES_MAX => {
                Err(malformed("aws:kms wants a KMSMasterKeyID of at most 2048 bytes."))
            }
            "AES256" | "aws:kms" => Ok(Self { algorithm, key_id, bucket_key }),
            _ => Err(Code::InvalidEncryptionAlgorithmError.into()),
        }
    }

    /// The answer's body.
    #[must_use]
    pub fn to_xml(&self) -> String {
        let mut w = Writer::document();
        w.open_root("ServerSideEncryptionConfiguration").open("Rule");
        w.open("ApplyServerSideEncryptionByDefault").text("SSEAlgorithm", &self.algorithm);
        w.maybe("KMSMasterKeyID", Some(self.key_id.as_str()).filter(|id| !id.is_empty()));
        w.close("ApplyServerSideEncryptionByDefault");
        if self.algorithm == "aws:kms" {
            w.value("BucketKeyEnabled", self.bucket_key);
        }
        w.close("Rule").close("ServerSideEncryptionConfiguration");
        w.finish()
    }
}

/// Who owns new objects of a bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ownership {
    /// The bucket's owner; lists of access count for nothing.
    BucketOwnerEnforced,
    /// The bucket's owner, where the writer says so by `bucket-owner-full-control`.
    BucketOwnerPreferred,
    /// Who wrote it.
    #[default]
    ObjectWriter,
}

impl Ownership {
    const ALL: [(Self, &str); 3] = [
        (Self::BucketOwnerEnforced, "BucketOwnerEnforced"),
        (Self::BucketOwnerPreferred, "BucketOwnerPreferred"),
        (Self::ObjectWriter, "ObjectWriter"),
    ];

    /// Reads `OwnershipControls` with its one rule.
    ///
    /// # Errors
    /// [`Code::MalformedXML`].
    pub fn parse(body: &[u8]) -> Result<Self> {
        let root = Element::parse_as(body, "OwnershipControls")?;
        let text = root.need("Rule")?.need_text("ObjectOwnership")?;
        let found = Self::ALL.iter().find(|(_, name)| *name == text);
        found.map(|(ownership, _)| *ownership).ok_or_else(|| {
            malformed(
                "ObjectOwnership is BucketOwnerEnforced, BucketOwnerPreferred or ObjectWriter.",
            )
        })
    }

    /// The answer's body.
    #[must_use]
    pub fn to_xml(self) -> String {
        let name = Self::ALL.iter().find(|(ownership, _)| *ownership == self).map_or("", |o| o.1);
        let mut w = Writer::document();
        w.open_root("OwnershipControls").open("Rule").text("ObjectOwnership", name);
        w.close("Rule").close("OwnershipControls");
        w.finish()
    }

    /// Its number, as upstream stores it.
    #[must_use]
    pub fn number(self) -> u8 {
        match self {
            Self::BucketOwnerEnforced => 0,
            Self::BucketOwnerPreferred => 1,
            Self::ObjectWriter => 2,
        }
    }

    /// By its number.
    #[must_use]
    pub fn of_number(number: u8) -> Option<Self> {
        Self::ALL.iter().map(|(ownership, _)| *ownership).find(|o| o.number() == number)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn all_come_back() {
        for v in [Versioning::Enabled, Versioning::Suspended] {
            assert_eq!(Versioning::parse(v.to_xml().as_bytes()).unwrap(), v);
        }
        let block =
            PublicAccessBlock { ignore_acls: true, block_policy: true, ..Default::default() };
        assert_eq!(PublicAccessBlock::parse(block.to_xml().as_bytes()).unwrap(), block);
        for default in [
            None,
            Some((LockMode::Governance, Period::Days(1))),
            Some((LockMode::Compliance, Period::Years(2))),
        ] {
            let lock = ObjectLock { default };
            assert_eq!(ObjectLock::parse(lock.to_xml().as_bytes()).unwrap(), lock);
        }
        let retention = Retention { mode: LockMode::Compliance, until: Time(1_800_000_000) };
        assert_eq!(Retention::parse(retention.to_xml().as_bytes()).unwrap(), retention);
        for on in [true, false] {
            assert_eq!(legal_hold(legal_hold_to_xml(on).as_bytes()).unwrap(), on);
            assert_eq!(requester_pays(requester_pays_to_xml(on).as_bytes()).unwrap(), on);
        }
        assert!(location_to_xml("a&b").ends_with(">a&amp;b</LocationConstraint>"));
        assert_eq!(location(b" ").unwrap(), "");
    }

    #[test]
    fn encryption_and_ownership() {
        let one = |algorithm: &str, key_id: &str, bucket_key| Encryption {
            algorithm: algorithm.into(),
            key_id: key_id.into(),
            bucket_key,
        };
        for config in [one("AES256", "", false), one("aws:kms", "k<1>", true)] {
            assert_eq!(Encryption::parse(config.to_xml().as_bytes()).unwrap(), config);
        }
        for bad in [one("AES256", "k", false), one("aws:kms", "", false), one("rot13", "", false)] {
            assert!(Encryption::parse(bad.to_xml().as_bytes()).is_err(), "{bad:?}");
        }
        let empty = b"<ServerSideEncryptionConfiguration/>";
        assert_eq!(Encryption::parse(empty).unwrap_err().code, Code::MalformedXML);
        for (ownership, _) in Ownership::ALL {
            assert_eq!(Ownership::parse(ownership.to_xml().as_bytes()).unwrap(), ownership);
            assert_eq!(Ownership::of_number(ownership.number()), Some(ownership));
        }
        assert!(Ownership::parse(b"<OwnershipControls><Rule><ObjectOwnership>x</ObjectOwnership></Rule></OwnershipControls>").is_err());
        assert_eq!(Ownership::of_number(3), None);
    }

    #[test]
    fn what_is_refused() {
        let lock = |text: &str| {
            let text = format!(
                "<ObjectLockConfiguration><ObjectLockEnabled>Enabled</ObjectLockEnabled><Rule><DefaultRetention>\
                <Mode>GOVERNANCE</Mode>{text}</DefaultRetention></Rule></ObjectLockConfiguration>"
            );
            ObjectLock::parse(text.as_bytes()).unwrap_err().code
        };
        assert_eq!(lock(""), Code::MalformedXML);
        assert_eq!(lock("<Days>1</Days><Years>1</Years>"), Code::MalformedXML);
        for zero in ["<Days>0</Days>", "<Years>-1</Years>", "<Days>99999999</Days>"] {
            assert_eq!(lock(zero), Code::InvalidRetentionPeriod);
        }
        let twice = "<Tagging><TagSet><Tag><Key>a</Key><Value/></Tag><Tag><Key>a</Key><Value/></Tag></TagSet></Tagging>";
        assert_eq!(tags(twice.as_bytes(), 10).unwrap_err().code, Code::InvalidTag);
        assert_eq!(
            header_tags(&format!("{}=1", "k".repeat(129))).unwrap_err().code,
            Code::InvalidTag
        );
        let eleven: Vec<String> = (0..11).map(|n| format!("k{n}=v")).collect();
        assert_eq!(header_tags(&eleven.join("&")).unwrap_err().code, Code::InvalidTag);
    }

    proptest! {
        #[test]
        fn tags_come_back(all in prop::collection::btree_map("[ -~]{1,9}", "[ -~äß]{0,9}", 0..10)) {
            prop_assert_eq!(tags(tags_to_xml(&all).as_bytes(), 10).unwrap(), all);
        }

        /// No text makes a reader panic.
        #[test]
        fn any_text(text in any::<String>()) {
            let b = text.as_bytes();
            let _ = (Versioning::parse(b), tags(b, 9), location(b), ObjectLock::parse(b), Retention::parse(b), Encryption::parse(b));
        }
    }
}
