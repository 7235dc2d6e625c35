//! Encoded structs, by what they describe.

mod acl;
mod attrs;
mod bucket;
mod lifecycle;
mod manifest;
mod realm;
mod role;
mod topic;
mod upload;
mod user;
mod website;
mod zone;

pub use acl::{AclGrant, AclList, AclOwner, AclPolicy, GranteeType, Referer};
pub use attrs::{LegalHold, ObjectRetention, ObjectTags, OlhInfo, OlhPending};
pub use bucket::{
    Bucket, BucketInfo, EntryPoint, Index, IndexGeneration, Layout, LockRule, LogGeneration,
    ObjectLock, Owner, Pool, bucket_flags,
};
pub use lifecycle::Lifecycle;
pub use manifest::{Manifest, ManifestPart, ManifestRule, ObjectName};
pub use realm::{LatestEpoch, NamedId, Realm};
pub use role::Role;
pub use topic::{
    BucketTopic, BucketTopics, Destination, QueuedEvent, StoredFilter, StoredRecord, Topic,
};
pub use upload::{Upload, UploadPart};
pub use user::{
    AccessKey, AccountInfo, Caps, Quota, SubUser, UserId, UserInfo, UserKeys, UserLimits,
    UserPlacement,
};
pub use website::StoredWebsite;
pub use zone::{IamPools, LogPools, Placement, UserPools, ZoneGroup, ZoneParams};

use types::{Bytes, DecodeError, Denc, Reader, Writer};

/// A versioned struct that is kept as it came: nothing here looks into it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opaque(Bytes);

impl Opaque {
    /// A struct whose fields `body` writes.
    pub(crate) fn of(version: u8, compat: u8, body: impl FnOnce(&mut Writer)) -> Self {
        let mut w = Writer::new(types::Features::ALL);
        w.framed(version, compat, body);
        Self(w.finish())
    }

    /// Its bytes.
    #[must_use]
    pub fn bytes(&self) -> &Bytes {
        &self.0
    }
}

impl Denc for Opaque {
    fn encode(&self, w: &mut Writer) {
        w.raw(&self.0);
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let [version, compat] = r.array()?;
        let body = r.blob()?;
        let mut w = Writer::new(types::Features::ALL);
        w.u8(version);
        w.u8(compat);
        w.blob(&body);
        Ok(Self(w.finish()))
    }
}

/// A `multimap`: pairs in the order of their keys, keys more than once.
pub(crate) fn encode_pairs<V: Denc>(w: &mut Writer, pairs: &[(String, V)]) {
    w.seq(pairs, |w, (key, value)| {
        w.str(key);
        value.encode(w);
    });
}

pub(crate) fn decode_pairs<V: Denc>(r: &mut Reader<'_>) -> Result<Vec<(String, V)>, DecodeError> {
    r.seq(|r| Ok((r.string()?, V::decode(r)?)))
}
