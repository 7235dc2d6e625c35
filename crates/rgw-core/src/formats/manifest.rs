//! Which RADOS objects hold an object's bytes.

use std::collections::BTreeMap;

use types::{DecodeError, Denc, Reader, Writer};

use super::{Bucket, Opaque};

/// An object's full name: `rgw_obj`, `ENCODE_START(6, 6)`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectName {
    /// Its bucket.
    pub bucket: Bucket,
    /// `multipart`, `shadow`; empty for most.
    pub ns: String,
    /// Its key.
    pub name: String,
    /// Its version; empty for plain ones.
    pub instance: String,
}

impl Denc for ObjectName {
    fn encode(&self, w: &mut Writer) {
        w.framed(6, 6, |w| {
            self.bucket.encode(w);
            w.str(&self.ns);
            w.str(&self.name);
            w.str(&self.instance);
        });
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("rgw_obj", 6, |r, v| {
            r.require(v >= 6, "names of objects are read from version 6 on")?;
            Ok(Self {
                bucket: Denc::decode(r)?,
                ns: r.string()?,
                name: r.string()?,
                instance: r.string()?,
            })
        })
    }
}

/// A part of an explicit manifest: `RGWObjManifestPart`, `ENCODE_START(2, 2)`. Only objects of old releases have some.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManifestPart {
    /// Where it is.
    pub at: ObjectName,
    /// From this byte of it on.
    pub offset: u64,
    /// Length in bytes.
    pub size: u64,
}

impl Denc for ManifestPart {
    fn encode(&self, w: &mut Writer) {
        w.framed(2, 2, |w| {
            self.at.encode(w);
            w.u64(self.offset);
            w.u64(self.size);
        });
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("RGWObjManifestPart", 2, |r, _| {
            Ok(Self { at: Denc::decode(r)?, offset: r.u64()?, size: r.u64()? })
        })
    }
}

/// How a run of bytes is cut: `RGWObjManifestRule`.
///
/// Wire: `ENCODE_START(2, 1)`; v2 added the prefix. Source: `rgw_obj_manifest.h`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ManifestRule {
    /// Number of the run's first part; 0 where it is no upload in parts.
    pub start_part: u32,
    /// The run's first byte.
    pub start: u64,
    /// Bytes of each part; 0 where there are none.
    pub part_size: u64,
    /// Bytes of each RADOS object but the last of a part.
    pub stripe_max: u64,
    /// In place of the manifest's prefix: a part that was uploaded again.
    pub prefix: String,
}

impl Denc for ManifestRule {
    fn encode(&self, w: &mut Writer) {
        w.framed(2, 1, |w| {
            w.u32(self.start_part);
            w.u64(self.start);
            w.u64(self.part_size);
            w.u64(self.stripe_max);
            w.str(&self.prefix);
        });
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("RGWObjManifestRule", 2, |r, v| {
            let (start_part, start, part_size, stripe_max) =
                (r.u32()?, r.u64()?, r.u64()?, r.u64()?);
            let prefix = if v >= 2 { r.string()? } else { String::new() };
            Ok(Self { start_part, start, part_size, stripe_max, prefix })
        })
    }
}

/// Which RADOS objects hold an object: `RGWObjManifest`.
///
/// Wire: `ENCODE_START(8, 6)`; v8 added the tier. Source: `rgw_obj_manifest.h`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// Bytes of the object.
    pub size: u64,
    /// By first byte; only of old releases.
    pub parts: BTreeMap<u64, ManifestPart>,
    /// Whether `parts` counts, and not `rules`.
    pub is_explicit: bool,
    /// The head.
    pub head: ObjectName,
    /// Bytes in the head.
    pub head_size: u64,
    /// Bytes that a head may have.
    pub head_size_max: u64,
    /// What names of stripes begin with.
    pub prefix: String,
    /// By first byte.
    pub rules: BTreeMap<u64, ManifestRule>,
    /// Bucket of the tail, where it is another than the head's.
    pub tail_bucket: Option<Bucket>,
    /// Version in names of the tail, where it is another than the head's.
    pub tail_instance: Option<String>,
    /// `PLACEMENT[/CLASS]` of the head.
    pub head_placement: String,
    /// The same of the tail.
    pub tail_placement: String,
    /// Type of a tier elsewhere (`cloud-s3`), and `RGWObjTier`.
    pub tier: (String, Opaque),
}

/// `RGWObjTier` of an object that is in no tier, `ENCODE_START(2, 2)`: a name, an empty placement, and whether it came
/// in parts.
fn no_tier() -> Opaque {
    let mut w = Writer::new(types::Features::ALL);
    w.framed(2, 2, |w| {
        w.str("none");
        w.framed(4, 1, |w| {
            w.str("");
            w.str("");
            w.bool(false);
            w.bool(false);
            w.u64(1);
            w.str("STANDARD");
        });
        w.bool(false);
    });
    Opaque(w.finish())
}

impl Denc for Manifest {
    fn encode(&self, w: &mut Writer) {
        w.framed(8, 6, |w| {
            w.u64(self.size);
            self.parts.encode(w);
            w.bool(self.is_explicit);
            self.head.encode(w);
            w.u64(self.head_size);
            w.u64(self.head_size_max);
            w.str(&self.prefix);
            self.rules.encode(w);
            self.tail_bucket.encode(w);
            self.tail_instance.encode(w);
            w.str(&self.head_placement);
            w.str(&self.tail_placement);
            w.str(&self.tier.0);
            self.tier.1.encode(w);
        });
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("RGWObjManifest", 8, |r, v| {
            r.require(v >= 7, "manifests are read from version 7 on")?;
            Ok(Self {
                size: r.u64()?,
                parts: Denc::decode(r)?,
                is_explicit: r.bool()?,
                head: Denc::decode(r)?,
                head_size: r.u64()?,
                head_size_max: r.u64()?,
                prefix: r.string()?,
                rules: Denc::decode(r)?,
                tail_bucket: Denc::decode(r)?,
                tail_instance: Denc::decode(r)?,
                head_placement: r.string()?,
                tail_placement: r.string()?,
                tier: if v >= 8 {
                    (r.string()?, Denc::decode(r)?)
                } else {
                    (String::new(), no_tier())
                },
            })
        })
    }
}

impl Manifest {
    /// The manifest of an object that was put whole: up to `head_size_max` bytes in the head, the rest in stripes of
    /// `stripe` bytes whose names begin with `prefix`.
    #[must_use]
    pub fn of_put(
        head: ObjectName,
        size: u64,
        head_size_max: u64,
        stripe: u64,
        prefix: String,
        placement: &str,
    ) -> Self {
        let rule =
            ManifestRule { start: head_size_max, stripe_max: stripe, ..ManifestRule::default() };
        Self {
            size,
            parts: BTreeMap::new(),
            is_explicit: false,
            head,
            head_size: size.min(head_size_max),
            head_size_max,
            prefix,
            rules: BTreeMap::from([(0, rule)]),
            tail_bucket: None,
            tail_instance: None,
            head_placement: placement.to_owned(),
            tail_placement: placement.to_owned(),
            tier: (String::new(), no_tier()),
        }
    }
}
