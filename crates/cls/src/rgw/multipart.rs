//! Parts of an upload: a part that is uploaded again keeps the names of what it replaces, so
//! that this is deleted in the end.

use std::collections::BTreeSet;

use bytes::Bytes;
use denc::{DecodeError, Denc, Reader, Writer};
use types::{Errno, OpResult, UTime};

use crate::keys::{absent, read, write};
use crate::{DONE, Object, Reply, params, record};

/// A versioned struct that is passed on as it came.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Opaque(Bytes);

impl Denc for Opaque {
    fn encode(&self, w: &mut Writer) {
        w.raw(&self.0);
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let (version, compat) = (r.u8()?, r.u8()?);
        let body = r.blob()?;
        let mut w = Writer::new(denc::Features::ALL);
        w.u8(version);
        w.u8(compat);
        w.blob(&body);
        Ok(Self(w.finish()))
    }
}

/// `RGWObjManifest`: of its fields only these are of interest here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Manifest {
    raw: Opaque,
    pub(crate) prefix: Bytes,
    /// Whether it has no rules (or, of the oldest form, no parts).
    pub(crate) is_empty: bool,
}

impl Denc for Manifest {
    fn encode(&self, w: &mut Writer) {
        self.raw.encode(w);
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let raw = Opaque::decode(r)?;
        let (prefix, is_empty) = Reader::shared(&raw.0).framed("RGWObjManifest", 8, |r, v| {
            r.u64()?;
            let parts = r.seq(|r| Ok((r.u64()?, Opaque::decode(r)?)))?;
            if v < 3 {
                return Ok((Bytes::new(), parts.is_empty()));
            }
            let has_parts = r.bool()?;
            Opaque::decode(r)?;
            r.u64()?;
            r.u64()?;
            let prefix = r.blob()?;
            let rules = r.u32()?;
            Ok((prefix, if has_parts { parts.is_empty() } else { rules == 0 }))
        })?;
        Ok(Self { raw, prefix, is_empty })
    }
}

/// `RGWUploadPartInfo`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Part {
    number: u32,
    size: u64,
    etag: Bytes,
    modified: UTime,
    pub(crate) manifest: Manifest,
    compression: Opaque,
    accounted_size: u64,
    pub(crate) past_prefixes: BTreeSet<Bytes>,
    checksum: Option<Opaque>,
}

impl Denc for Part {
    fn encode(&self, w: &mut Writer) {
        w.framed(6, 2, |w| {
            w.u32(self.number);
            w.u64(self.size);
            w.blob(&self.etag);
            self.modified.encode(w);
            self.manifest.encode(w);
            self.compression.encode(w);
            w.u64(self.accounted_size);
            self.past_prefixes.encode(w);
            self.checksum.encode(w);
        });
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("RGWUploadPartInfo", 6, |r, v| {
            r.require(v >= 4, "parts of releases before 10 are not known")?;
            Ok(Self {
                number: r.u32()?,
                size: r.u64()?,
                etag: r.blob()?,
                modified: Denc::decode(r)?,
                manifest: Denc::decode(r)?,
                compression: Denc::decode(r)?,
                accounted_size: r.u64()?,
                past_prefixes: if v >= 5 { Denc::decode(r)? } else { BTreeSet::new() },
                checksum: if v >= 6 { Denc::decode(r)? } else { None },
            })
        })
    }
}

record! {
    /// `cls_rgw_mp_upload_part_info_update_op`.
    UpdateOp(1, 1) { key: Bytes, part: Part, }
}

/// Replaces a part; EEXIST for a prefix that it had before.
pub(super) fn update(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let UpdateOp { key, mut part } = params(input)?;
    if let Some(mut before) = absent(read::<Part>(o, &key))? {
        if !before.manifest.is_empty {
            part.past_prefixes.insert(before.manifest.prefix);
        }
        part.past_prefixes.append(&mut before.past_prefixes);
    }
    if part.past_prefixes.contains(&part.manifest.prefix) {
        return Err(Errno::EXIST);
    }
    write(o, &key, &part)?;
    Ok(DONE)
}
