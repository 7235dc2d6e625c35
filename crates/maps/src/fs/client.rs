//! Clients: what they say of themselves, and what is stored of their sessions.

use std::collections::{BTreeMap, BTreeSet};

use types::{DecodeError, Denc, EntityId, EntityInst, EntityName, Ino, Reader, Writer};

use super::{ByteMap, InoIntervals};
use crate::features::FeatureBits;
use crate::wire::record;

record! {
    /// Which measurements a client sends. The peer's `metric_spec_t`.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    MetricSpec "metric_spec_t", compat 1, known 1, |f| 1; {
        /// A bit for each kind.
        kinds: FeatureBits,
    }
}

record! {
    /// What a client says of itself. The peer's `client_metadata_t`.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    ClientMetadata "client_metadata_t", compat 1, known 3, |f| 3; {
        /// Words and values: `hostname`, `mount_point`, `root`, …
        kv: ByteMap,
        /// Features of file systems.
        2 => features: FeatureBits,
        /// The measurements that it sends.
        3 => metrics: MetricSpec,
    }
}

/// A session as it is stored. The peer's `session_info_t`, 7/7.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionInfo {
    /// The client and its address.
    pub inst: EntityInst,
    /// Requests that were done and that it may ask for again, with the inode each made.
    pub completed_requests: BTreeMap<u64, Ino>,
    /// Inode numbers reserved for it.
    pub prealloc_inos: InoIntervals,
    /// Flushes of caps that were done.
    pub completed_flushes: BTreeSet<u64>,
    /// By which key it proved itself.
    pub auth_name: EntityName,
    /// What it says of itself.
    pub metadata: ClientMetadata,
}

impl Denc for SessionInfo {
    fn encode(&self, w: &mut Writer) {
        w.framed(7, 7, |w| {
            self.inst.encode(w);
            self.completed_requests.encode(w);
            self.prealloc_inos.encode(w);
            w.u32(0); // numbers in use, long gone
            self.completed_flushes.encode(w);
            self.auth_name.encode(w);
            self.metadata.encode(w);
        });
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("session_info_t", 7, |r, v| {
            r.require(v >= 7, "sessions are read from version 7 on")?;
            let inst = Denc::decode(r)?;
            let completed_requests = Denc::decode(r)?;
            let prealloc_inos = Denc::decode(r)?;
            let _: InoIntervals = Denc::decode(r)?;
            Ok(Self {
                inst,
                completed_requests,
                prealloc_inos,
                completed_flushes: Denc::decode(r)?,
                auth_name: Denc::decode(r)?,
                metadata: Denc::decode(r)?,
            })
        })
    }
}

record! {
    /// The omap header of a rank's session map.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    SessionMapHeader "SessionMap", compat 1, known 1, |f| 1; {
        /// Counts changes.
        version: u64,
    }
}

/// The omap key of a client's session: `client.4120`.
#[must_use]
pub fn session_key(client: EntityId) -> String {
    client.to_string()
}
