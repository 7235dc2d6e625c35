//! Changes of the replicated state: what the log holds.

use std::collections::BTreeMap;

use bytes::Bytes;
use denc::{DecodeError, Denc, Reader, Writer};
use messages::LogEntry;
use types::{EntityName, Epoch, OsdId, UTime};

use crate::HealthMute;
use crate::state::Answered;

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
    /// What a metadata server says of itself at boot: `None` forgets it.
    MdsMetadata {
        /// Its session.
        gid: u64,
        /// Name to value.
        metadata: Option<BTreeMap<String, String>>,
    },
    /// What a manager says of itself: `None` forgets it.
    MgrMetadata {
        /// Its name.
        name: String,
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
    /// An object class that operators uploaded: `None` removes it.
    ClassModule {
        /// The class.
        name: String,
        /// The module.
        code: Option<Bytes>,
    },
    /// OSD maps before that one are forgotten.
    TrimOsdMaps {
        /// The oldest that stays.
        first: Epoch,
    },
    /// A request that changed something was answered like this.
    Answered(Answered),
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

/// What one log entry holds: a batch, all of it or nothing.
///
/// Stored: 1/1 { stamp, u32 count, then per mutation u8 kind and its fields }.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// When it was proposed.
    pub stamp: UTime,
    /// In order.
    pub mutations: Vec<Mutation>,
}

impl Denc for Entry {
    fn encode(&self, w: &mut Writer) {
        w.framed(1, 1, |w| {
            self.stamp.encode(w);
            self.mutations.encode(w);
        });
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("Entry", 1, |r, _| {
            Ok(Self { stamp: Denc::decode(r)?, mutations: Denc::decode(r)? })
        })
    }
}

impl Denc for AuthChange {
    fn encode(&self, w: &mut Writer) {
        match self {
            Self::Set { name, key, caps } => {
                w.u8(0);
                name.encode(w);
                key.encode(w);
                caps.encode(w);
            }
            Self::Remove(name) => {
                w.u8(1);
                name.encode(w);
            }
            Self::Rotate { at, secrets } => {
                w.u8(2);
                at.encode(w);
                secrets.encode(w);
            }
        }
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(match r.u8()? {
            0 => {
                Self::Set { name: Denc::decode(r)?, key: Denc::decode(r)?, caps: Denc::decode(r)? }
            }
            1 => Self::Remove(Denc::decode(r)?),
            2 => Self::Rotate { at: Denc::decode(r)?, secrets: Denc::decode(r)? },
            _ => return Err(unknown("AuthChange")),
        })
    }
}

fn unknown(what: &'static str) -> DecodeError {
    DecodeError::Invalid { what, rule: "its kind is known" }
}

fn boxed<T: Denc>(r: &mut Reader<'_>) -> Result<Box<T>, DecodeError> {
    T::decode(r).map(Box::new)
}

impl Denc for Mutation {
    fn encode(&self, w: &mut Writer) {
        match self {
            Self::Osd(inc) => {
                w.u8(0);
                inc.encode(w);
            }
            Self::MonMap(map) => {
                w.u8(1);
                map.encode(w);
            }
            Self::MgrMap(map) => {
                w.u8(2);
                map.encode(w);
            }
            Self::FsMap(map) => {
                w.u8(3);
                map.encode(w);
            }
            Self::Auth(change) => {
                w.u8(4);
                change.encode(w);
            }
            Self::Config { who, name, value } => {
                w.u8(5);
                who.encode(w);
                name.encode(w);
                value.encode(w);
            }
            Self::ConfigKey { key, value } => {
                w.u8(6);
                key.encode(w);
                value.encode(w);
            }
            Self::Log(entries) => {
                w.u8(7);
                entries.encode(w);
            }
            Self::OsdMetadata { osd, metadata } => {
                w.u8(8);
                osd.encode(w);
                metadata.encode(w);
            }
            Self::MonMetadata { name, metadata } => {
                w.u8(9);
                name.encode(w);
                metadata.encode(w);
            }
            Self::GlobalIds { below } => {
                w.u8(10);
                w.u64(*below);
            }
            Self::HealthMute { code, mute } => {
                w.u8(11);
                code.encode(w);
                mute.encode(w);
            }
            Self::Answered(answered) => {
                w.u8(13);
                answered.encode(w);
            }
            Self::ClassModule { name, code } => {
                w.u8(14);
                name.encode(w);
                code.encode(w);
            }
            Self::TrimOsdMaps { first } => {
                w.u8(15);
                first.encode(w);
            }
            Self::MdsMetadata { gid, metadata } => {
                w.u8(16);
                w.u64(*gid);
                metadata.encode(w);
            }
            Self::MgrMetadata { name, metadata } => {
                w.u8(17);
                name.encode(w);
                metadata.encode(w);
            }
            Self::Batch(all) => {
                w.u8(12);
                w.sized(|w| all.encode(w));
            }
        }
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(match r.u8()? {
            0 => Self::Osd(boxed(r)?),
            1 => Self::MonMap(boxed(r)?),
            2 => Self::MgrMap(boxed(r)?),
            3 => Self::FsMap(boxed(r)?),
            4 => Self::Auth(Denc::decode(r)?),
            5 => Self::Config {
                who: Denc::decode(r)?,
                name: Denc::decode(r)?,
                value: Denc::decode(r)?,
            },
            6 => Self::ConfigKey { key: Denc::decode(r)?, value: Denc::decode(r)? },
            7 => Self::Log(Denc::decode(r)?),
            8 => Self::OsdMetadata { osd: Denc::decode(r)?, metadata: Denc::decode(r)? },
            9 => Self::MonMetadata { name: Denc::decode(r)?, metadata: Denc::decode(r)? },
            10 => Self::GlobalIds { below: r.u64()? },
            11 => Self::HealthMute { code: Denc::decode(r)?, mute: Denc::decode(r)? },
            13 => Self::Answered(Denc::decode(r)?),
            14 => Self::ClassModule { name: Denc::decode(r)?, code: Denc::decode(r)? },
            15 => Self::TrimOsdMaps { first: Denc::decode(r)? },
            16 => Self::MdsMetadata { gid: r.u64()?, metadata: Denc::decode(r)? },
            17 => Self::MgrMetadata { name: Denc::decode(r)?, metadata: Denc::decode(r)? },
            // Batches are flattened before they are stored.
            _ => return Err(unknown("Mutation")),
        })
    }
}
