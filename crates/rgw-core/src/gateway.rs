//! A gateway: a zone, and a way to RADOS.

use std::cell::{Cell, OnceCell};

use rgw_proto::{Code, Error, Result};
use types::{Bytes, Denc, Errno, Reader};

use crate::cache::Cache;
use crate::formats::{NamedId, Pool, ZoneGroup, ZoneParams};
use crate::notify::Outlet;
use crate::objects::{Objects, Place, Step, Vector};

/// Attributes of the gateway begin so.
pub const ATTR: &str = "user.rgw.";

/// Bytes that a metadata object may have; a bound on what one read asks for.
const META_BYTES_MAX: u64 = 64 << 20;

/// A gateway of one zone.
pub struct Gateway<O> {
    /// The way to RADOS.
    pub objects: O,
    /// The zone.
    pub zone: ZoneParams,
    /// Its group.
    pub group: ZoneGroup,
    /// Metadata that is kept between requests.
    pub cache: Cache,
    /// The way out for events; empty until the gateway serves.
    pub outlet: OnceCell<Box<dyn Outlet>>,
    requests: Cell<u64>,
    buckets: Cell<u64>,
}

/// What an errno of RADOS is to a client of S3; `what` says what was tried.
pub fn failed(what: &str) -> impl Fn(Errno) -> Error {
    let what = what.to_owned();
    move |errno| {
        let code = match errno {
            Errno::NOSPC | Errno::DQUOT => Code::InsufficientCapacity,
            Errno::BUSY | Errno::TIMEDOUT | BUSY_RESHARDING => Code::ServiceUnavailable,
            Errno::CANCELED => Code::ConcurrentModification,
            _ => Code::InternalError,
        };
        Error::new(code, format!("{what}: errno {}", -errno.0))
    }
}

/// What a shard's class answers while it is resharded.
pub const BUSY_RESHARDING: Errno = Errno(-2_300);

/// Bytes that cannot be read.
pub(crate) fn garbled(what: &str) -> Error {
    Error::new(Code::InternalError, format!("{what} cannot be read: its bytes are not upstream's"))
}

/// Reads a struct from all of `bytes`.
pub(crate) fn decoded<T: Denc>(bytes: &Bytes, what: &str) -> Result<T> {
    T::decode(&mut Reader::shared(bytes)).map_err(|_| garbled(what))
}

/// Letters of random names: those of upstream's `gen_rand_alphanumeric_lower` and `gen_rand_alphanumeric`.
const LOWER: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";
const UPPER: &[u8; 36] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";
const MIXED: &[u8; 62] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";

impl<O: Objects> Gateway<O> {
    /// Reads the zone from `.rgw.root`: that named `zone`, else the default of the default realm, else `default`.
    ///
    /// # Errors
    /// [`Code::InternalError`] where there is no such zone or it belongs to no zone group.
    pub async fn open(objects: O, zone: &str) -> Result<Self> {
        let root = Pool { name: ".rgw.root".into(), ns: String::new() };
        let read = async |name: String| -> Result<Option<Bytes>> {
            let vector = Vector::read().step(Step::Read(0, META_BYTES_MAX));
            match objects.operate(&Place::new(&root, name.clone()), vector).await {
                Ok(answers) => Ok(Some(answers.data(0).map_err(failed(&name))?)),
                Err(Errno::NOENT) => Ok(None),
                Err(errno) => Err(failed(&format!("reading {name} in .rgw.root"))(errno)),
            }
        };
        let id_at = async |name: String| -> Result<Option<String>> {
            let found = read(name.clone()).await?;
            found.map(|bytes| decoded::<NamedId>(&bytes, &name).map(|id| id.0)).transpose()
        };
        let realm = id_at("default.realm".into()).await?.unwrap_or_default();
        let mut zone_id = None;
        if zone.is_empty() {
            zone_id = id_at(format!("default.zone.{realm}")).await?;
        }
        if zone_id.is_none() {
            let name = if zone.is_empty() { "default" } else { zone };
            zone_id = id_at(format!("zone_names.{name}")).await?;
        }
        let absent = |what: &str| {
            let text = format!("{what}: make one with radosgw-admin zone create, zonegroup create");
            Error::new(Code::InternalError, text)
        };
        let zone_id = zone_id.ok_or_else(|| absent("The cluster has no such zone"))?;
        let bytes = read(format!("zone_info.{zone_id}")).await?;
        let bytes = bytes.ok_or_else(|| absent("The zone's parameters are missing"))?;
        let params = ZoneParams::decode(&mut Reader::shared(&bytes));
        let zone = params.map_err(|_| garbled("The zone"))?;
        let mut group_id = id_at(format!("default.zonegroup.{realm}")).await?;
        if group_id.is_none() {
            group_id = id_at("zonegroups_names.default".into()).await?;
        }
        let group_id = group_id.ok_or_else(|| absent("The cluster has no default zone group"))?;
        let bytes = read(format!("zonegroup_info.{group_id}")).await?;
        let bytes = bytes.ok_or_else(|| absent("The zone group is missing"))?;
        let group = ZoneGroup::decode(&mut Reader::shared(&bytes));
        let group = group.map_err(|_| garbled("The zone group"))?;
        Ok(Self::new(objects, zone, group))
    }

    /// A gateway of a zone that is known.
    pub fn new(objects: O, zone: ZoneParams, group: ZoneGroup) -> Self {
        let (requests, buckets) = (Cell::new(0), Cell::new(0));
        let (cache, outlet) = (Cache::default(), OnceCell::new());
        Self { objects, zone, group, cache, outlet, requests, buckets }
    }

    /// A number that no other request of this gateway has.
    pub fn next_request(&self) -> u64 {
        let n = self.requests.get() + 1;
        self.requests.set(n);
        n
    }

    /// The tag of a request: `ZONEID.INSTANCE.COUNTER`.
    pub(crate) fn new_tag(&self) -> String {
        format!("{}.{}.{}", self.zone.id, self.objects.client_id(), self.next_request())
    }

    /// The id of a new bucket.
    pub(crate) fn new_bucket_id(&self) -> String {
        let n = self.buckets.get() + 1;
        self.buckets.set(n);
        format!("{}.{}.{n}", self.zone.id, self.objects.client_id())
    }

    /// Random digits and small letters.
    pub(crate) fn random_lower(&self, len: usize) -> String {
        self.random_of(LOWER, len)
    }

    /// Random digits and letters.
    pub(crate) fn random_mixed(&self, len: usize) -> String {
        self.random_of(MIXED, len)
    }

    /// Random digits and capitals.
    pub(crate) fn random_upper(&self, len: usize) -> String {
        self.random_of(UPPER, len)
    }

    /// Each letter as likely as the others: bytes behind the last whole round of letters are drawn again.
    fn random_of(&self, letters: &[u8], len: usize) -> String {
        let fair = 256 / letters.len() * letters.len();
        let mut out = String::with_capacity(len);
        let mut bytes = [0; 64];
        while out.len() < len {
            self.objects.random(&mut bytes);
            let drawn = bytes.iter().map(|b| usize::from(*b)).filter(|b| *b < fair);
            out.extend(drawn.take(len - out.len()).map(|b| char::from(letters[b % letters.len()])));
        }
        out
    }
}

/// Text with the NUL that upstream keeps behind it in most attributes.
pub(crate) fn with_nul(text: &str) -> Bytes {
    let mut bytes = text.as_bytes().to_vec();
    bytes.push(0);
    bytes.into()
}

/// An attribute's text, without a NUL behind it.
#[must_use]
pub fn attr_text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}
