//! Uploads in parts.

use std::collections::BTreeSet;

use types::{DecodeError, Denc, Reader, UTime, Writer};

use super::{LegalHold, Manifest, ObjectRetention, Opaque};

/// What an upload's object holds: `multipart_upload_info`.
///
/// Wire: `ENCODE_START(4, 1)`; v2 added the lock, v3 and v4 the checksum's type and flags. Source: `rgw_sal_rados.h`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Upload {
    /// `PLACEMENT[/CLASS]` of the parts.
    pub placement: String,
    /// The lock that the object gets.
    pub retention: Option<ObjectRetention>,
    /// Whether it is held.
    pub hold: Option<LegalHold>,
    /// As the attribute `cksum` numbers them; 0 for none.
    pub sum_type: u16,
    /// As there.
    pub sum_flags: u16,
}

impl Denc for Upload {
    fn encode(&self, w: &mut Writer) {
        w.framed(4, 1, |w| {
            w.str(&self.placement);
            w.bool(self.retention.is_some());
            w.bool(self.hold.is_some());
            self.retention.clone().unwrap_or_default().encode(w);
            self.hold.clone().unwrap_or_default().encode(w);
            w.u16(self.sum_type);
            w.u16(self.sum_flags);
        });
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("multipart_upload_info", 4, |r, v| {
            let mut out = Self { placement: r.string()?, ..Self::default() };
            if v >= 2 {
                let (locked, held) = (r.bool()?, r.bool()?);
                out.retention = Some(Denc::decode(r)?).filter(|_| locked);
                out.hold = Some(Denc::decode(r)?).filter(|_| held);
            }
            if v >= 3 {
                out.sum_type = r.u16()?;
            }
            if v >= 4 {
                out.sum_flags = r.u16()?;
            }
            Ok(out)
        })
    }
}

/// A part: `RGWUploadPartInfo`.
///
/// Wire: `ENCODE_START(6, 2)`; v5 added the prefixes, v6 the checksum. Source: `rgw_basic_types.h`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UploadPart {
    /// Its number.
    pub number: u32,
    /// Bytes stored.
    pub size: u64,
    /// Without quotes.
    pub etag: String,
    /// When it was uploaded.
    pub modified: UTime,
    /// Where it is.
    pub manifest: Manifest,
    /// How it is compressed: `RGWCompressionInfo`.
    pub compression: Opaque,
    /// Bytes before compression.
    pub accounted_size: u64,
    /// Prefixes of uploads of this part that were replaced.
    pub past_prefixes: BTreeSet<String>,
    /// `rgw::cksum::Cksum`.
    pub sum: Option<Opaque>,
}

impl UploadPart {
    /// `RGWCompressionInfo` of what is not compressed: `ENCODE_START(2, 1)`.
    #[must_use]
    pub fn uncompressed() -> Opaque {
        Opaque::of(2, 1, |w| {
            w.str("none");
            w.u64(0);
            w.u8(0);
            w.u32(0);
        })
    }
}

impl Denc for UploadPart {
    fn encode(&self, w: &mut Writer) {
        w.framed(6, 2, |w| {
            w.u32(self.number);
            w.u64(self.size);
            w.str(&self.etag);
            self.modified.encode(w);
            self.manifest.encode(w);
            self.compression.encode(w);
            w.u64(self.accounted_size);
            self.past_prefixes.encode(w);
            self.sum.encode(w);
        });
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("RGWUploadPartInfo", 6, |r, v| {
            r.require(v >= 4, "parts are read from version 4 on")?;
            Ok(Self {
                number: r.u32()?,
                size: r.u64()?,
                etag: r.string()?,
                modified: Denc::decode(r)?,
                manifest: Denc::decode(r)?,
                compression: Denc::decode(r)?,
                accounted_size: r.u64()?,
                past_prefixes: if v >= 5 { Denc::decode(r)? } else { BTreeSet::new() },
                sum: if v >= 6 { Denc::decode(r)? } else { None },
            })
        })
    }
}
