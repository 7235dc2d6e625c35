//! Realms, and what leads to them: the pool `.rgw.root`.

use types::{DecodeError, Denc, Reader, Writer};

/// An id that a name or "default" leads to: `RGWNameToId` and `RGWDefaultSystemMetaObjInfo`, each `ENCODE_START(1, 1)`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamedId(pub String);

impl Denc for NamedId {
    fn encode(&self, w: &mut Writer) {
        w.framed(1, 1, |w| w.str(&self.0));
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("RGWNameToId", 1, |r, _| Ok(Self(r.string()?)))
    }
}

/// The newest epoch of a period: `RGWPeriodLatestEpochInfo`, `ENCODE_START(1, 1)`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LatestEpoch(pub u32);

impl Denc for LatestEpoch {
    fn encode(&self, w: &mut Writer) {
        w.framed(1, 1, |w| w.u32(self.0));
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("RGWPeriodLatestEpochInfo", 1, |r, _| Ok(Self(r.u32()?)))
    }
}

/// A realm: `RGWRealm`, `ENCODE_START(1, 1)` around one more with id and name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Realm {
    /// Its id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// The period in force.
    pub current_period: String,
    /// Counts periods.
    pub epoch: u32,
}

impl Denc for Realm {
    fn encode(&self, w: &mut Writer) {
        w.framed(1, 1, |w| {
            w.framed(1, 1, |w| {
                w.str(&self.id);
                w.str(&self.name);
            });
            w.str(&self.current_period);
            w.u32(self.epoch);
        });
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("RGWRealm", 1, |r, _| {
            let (id, name) =
                r.framed("RGWSystemMetaObj", 1, |r, _| Ok((r.string()?, r.string()?)))?;
            Ok(Self { id, name, current_period: r.string()?, epoch: r.u32()? })
        })
    }
}
