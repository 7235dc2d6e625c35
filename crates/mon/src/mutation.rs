//! Changes of the replicated state: what the log holds.

use std::collections::BTreeMap;

use bytes::Bytes;
use messages::LogEntry;
use types::{EntityName, OsdId, UTime};

use crate::HealthMute;

/// One change of [`crate::ClusterState`]. Everything a state machine needs is inside: no
/// clock and no chance is asked when it is applied.
#[derive(Clone, Debug)]
pub enum Mutation {
    /// A change of the OSD map, on top of the newest (see `CommandCtx::osd_change`). The
    /// monitor joins all of a batch into one epoch and fills in the crcs.
    Osd(Box<maps::Incremental>),
    /// A new monitor map; its epoch is set when applied.
    MonMap(Box<maps::MonMap>),
    /// A new manager map; its epoch is set when applied.
    MgrMap(Box<maps::MgrMap>),
    /// A new file system map; its epoch is set when applied.
    FsMap(Box<maps::FsMap>),
    /// Keys and caps.
    Auth(AuthChange),
    /// One setting: `None` removes it. `who` is a section as the user wrote it: `global`,
    /// `osd`, `osd.3`, `client.x`, with masks `osd/class:ssd`, `osd/host:a`.
    Config {
        /// The section.
        who: String,
        /// The option.
        name: String,
        /// Its value.
        value: Option<String>,
    },
    /// One pair of the key/value store: `None` removes it.
    ConfigKey {
        /// The key.
        key: String,
        /// Its value.
        value: Option<Bytes>,
    },
    /// Lines of the cluster and audit logs; sequence numbers are set when applied.
    Log(Vec<LogEntry>),
    /// What an OSD says of itself at boot: `None` forgets it.
    OsdMetadata {
        /// Which.
        osd: OsdId,
        /// Name to value.
        metadata: Option<BTreeMap<String, String>>,
    },
    /// What a monitor says of itself.
    MonMetadata {
        /// Its name.
        name: String,
        /// Name to value.
        metadata: BTreeMap<String, String>,
    },
    /// Global ids below this number are handed out or about to be.
    GlobalIds {
        /// The new bound.
        below: u64,
    },
    /// A health code muted (`Some`) or heard again (`None`).
    HealthMute {
        /// The code.
        code: String,
        /// How.
        mute: Option<HealthMute>,
    },
    /// All of them, in order; nothing comes between.
    Batch(Vec<Mutation>),
}

/// A change of the key database.
#[derive(Clone, Debug)]
pub enum AuthChange {
    /// Creates or replaces an entity.
    Set {
        /// Whose.
        name: EntityName,
        /// Its key.
        key: auth::CryptoKey,
        /// Service to caps text: `mon` -> `allow r`.
        caps: BTreeMap<String, String>,
    },
    /// Forgets an entity.
    Remove(EntityName),
    /// New service keys: an encoded set per service, as made by the leader.
    Rotate {
        /// When they were made.
        at: UTime,
        /// The sets, encoded.
        secrets: Bytes,
    },
}
