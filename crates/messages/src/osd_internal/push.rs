//! Objects on their way to copies that lack them.

use bytes::Bytes;
use denc::{DecodeError, Denc, Reader, Writer};
use types::{EVersion, HObject};

/// One object of a listing: name and version.
pub type Listed = (HObject, EVersion);

/// Part of an object on its way to a copy that lacks it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Push {
    /// The object.
    pub oid: HObject,
    /// Its version.
    pub version: EVersion,
    /// The first part: what is there goes.
    pub first: bool,
    /// Where `data` lies.
    pub off: u64,
    /// Size of the whole object.
    pub size: u64,
    /// All attributes; with the last part.
    pub attrs: Vec<(Bytes, Bytes)>,
    /// The omap header; with the last part.
    pub header: Bytes,
    /// omap entries of this part.
    pub omap: Vec<(Bytes, Bytes)>,
    /// The key after which the next part's omap entries start; what a pull repeats.
    pub omap_after: Bytes,
    /// Nothing of the object follows.
    pub last: bool,
    /// The object does not exist at the source.
    pub absent: bool,
    /// The receiver's copy is damaged even if the receiver does not know: counts the
    /// primary's findings in this interval; 0 when the receiver knows.
    pub repair: u32,
    /// Bytes from `off` on.
    pub data: Bytes,
}

impl Push {
    /// All but `data`, which is the message's data segment.
    pub(super) fn encode(&self, w: &mut Writer) {
        self.oid.encode(w);
        self.version.encode(w);
        w.bool(self.first);
        w.u64(self.off);
        w.u64(self.size);
        self.attrs.encode(w);
        w.blob(&self.header);
        self.omap.encode(w);
        w.blob(&self.omap_after);
        w.bool(self.last);
        w.bool(self.absent);
        w.u32(self.repair);
    }

    pub(super) fn decode(r: &mut Reader<'_>, data: &Bytes) -> Result<Self, DecodeError> {
        Ok(Self {
            oid: Denc::decode(r)?,
            version: Denc::decode(r)?,
            first: r.bool()?,
            off: r.u64()?,
            size: r.u64()?,
            attrs: Denc::decode(r)?,
            header: r.blob()?,
            omap: Denc::decode(r)?,
            omap_after: r.blob()?,
            last: r.bool()?,
            absent: r.bool()?,
            repair: r.u32()?,
            data: data.clone(),
        })
    }
}
