//! The CRUSH map inside an OSD map.

use std::ops::Deref;
use std::sync::Arc;

use crush::CrushMap;
use types::{Bytes, DecodeError, Denc, Features, Reader, Writer};

use super::SIGNIFICANT_FEATURES;

/// A CRUSH map and its bytes, shared by all epochs that have it.
///
/// OSD maps carry it written with their significant features only, whatever else the
/// reader knows; those bytes are made once.
#[derive(Clone, Debug)]
pub struct CrushPart {
    map: Arc<CrushMap>,
    /// Written with [`SIGNIFICANT_FEATURES`].
    canonical: Bytes,
}

impl CrushPart {
    /// From a map.
    #[must_use]
    pub fn new(map: CrushMap) -> Self {
        let canonical = map.to_bytes_for(SIGNIFICANT_FEATURES);
        Self { map: Arc::new(map), canonical }
    }

    /// From a map's bytes, whatever features they were written with; no bytes are an empty
    /// map.
    ///
    /// # Errors
    /// As the map's own decoding.
    pub fn from_bytes(bytes: &Bytes) -> Result<Self, DecodeError> {
        if bytes.is_empty() {
            return Ok(Self::default());
        }
        CrushMap::from_shared(bytes).map(Self::new)
    }

    /// The map.
    #[must_use]
    pub fn map(&self) -> &Arc<CrushMap> {
        &self.map
    }

    /// Its bytes inside an OSD map for a peer with `features`.
    #[must_use]
    pub fn bytes_for(&self, features: Features) -> Bytes {
        if features.has(Features::SERVER_LUMINOUS | Features::CRUSH_TUNABLES5) {
            self.canonical.clone()
        } else {
            self.map.to_bytes_for(features & SIGNIFICANT_FEATURES)
        }
    }
}

impl Deref for CrushPart {
    type Target = CrushMap;
    fn deref(&self) -> &CrushMap {
        &self.map
    }
}

impl Default for CrushPart {
    fn default() -> Self {
        Self::new(CrushMap::default())
    }
}

impl PartialEq for CrushPart {
    fn eq(&self, other: &Self) -> bool {
        self.canonical == other.canonical
    }
}

impl Denc for CrushPart {
    fn encode(&self, w: &mut Writer) {
        w.blob(&self.bytes_for(w.features()));
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Self::from_bytes(&r.blob()?)
    }
}
