//! Objects that end at a time of their own: Swift's `X-Delete-At`.
//!
//! ```text
//!   head: attribute delete_at ── what is true; who reads by Swift does not see the object after that
//!   log pool: obj_delete_at_hint.N (127, class timeindex) ── where a pass over what has ended looks
//! ```
//!
//! A hint may be of an object that has gone, or that ends later now: the head decides when the pass comes to it.
//! Stock gateways and ours pass over each other's hints, by stock's lock.
//!
//! Source: `rgw_object_expirer_core.cc`; `objexp_hint_entry`, `ENCODE_START(2, 1)`.

use cls::client as lock;
use rgw_proto::{Code, Result};
use types::{Bytes, DecodeError, Denc, Errno, Features, Reader, UTime, Writer};

use crate::gateway::{Gateway, failed};
use crate::meta::{Attrs, BucketAt};
use crate::names::{RawKey, shard_of};
use crate::object::ObjectAt;
use crate::objects::{Objects, Place, PoolUse, Vector};

/// Objects with hints: `rgw_objexp_hints_num_shards`.
pub const HINTS: u32 = 127;
/// The attribute of a head that ends: `utime_t`.
pub const DELETE_AT: &str = "delete_at";
/// Hints of a page.
const PAGE: i32 = 100;
/// How long a pass may hold a shard.
const LOCK_S: u32 = 600;
const LOCK: &str = "gc_process";

/// How an end is stored, s since 1970.
#[must_use]
pub fn encode(at: i64) -> Bytes {
    let sec = u32::try_from(at).unwrap_or(u32::MAX);
    UTime { sec, nsec: 0 }.to_bytes()
}

/// When an object ends; `None` for never. An end that cannot be read is none.
#[must_use]
pub fn of(attrs: &Attrs) -> Option<UTime> {
    let at = attrs.get(DELETE_AT).and_then(|bytes| UTime::from_bytes(bytes).ok());
    // Stock leaves a zero behind where X-Remove-Delete-At took the end away.
    at.filter(|at| *at != UTime::ZERO)
}

/// A hint.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Hint {
    tenant: String,
    bucket: String,
    bucket_id: String,
    name: String,
    instance: String,
    at: UTime,
}

impl Hint {
    /// What its key has behind the time.
    fn key(&self) -> String {
        let tenant =
            if self.tenant.is_empty() { String::new() } else { format!("{}:", self.tenant) };
        format!("{tenant}{}:{}:{}:{}", self.bucket, self.bucket_id, self.name, self.instance)
    }
}

impl Denc for Hint {
    fn encode(&self, w: &mut Writer) {
        w.framed(2, 1, |w| {
            w.str(&self.bucket);
            w.str(&self.bucket_id);
            w.framed(2, 1, |w| {
                w.str(&self.name);
                w.str(&self.instance);
                w.str(""); // the namespace
            });
            self.at.encode(w);
            w.str(&self.tenant);
        });
    }

    fn decode(r: &mut Reader<'_>) -> std::result::Result<Self, DecodeError> {
        r.framed("objexp_hint_entry", 2, |r, v| {
            let (bucket, bucket_id) = (r.string()?, r.string()?);
            let (name, instance) = r.framed("rgw_obj_key", 2, |r, v| {
                let (name, instance) = (r.string()?, r.string()?);
                if v >= 2 {
                    r.string()?;
                }
                Ok((name, instance))
            })?;
            let at = UTime::decode(r)?;
            let tenant = if v >= 2 { r.string()? } else { String::new() };
            Ok(Self { tenant, bucket, bucket_id, name, instance, at })
        })
    }
}

/// A page of hints: `cls_timeindex_list_ret`.
struct Page {
    hints: Vec<Option<Hint>>,
    marker: Bytes,
    is_truncated: bool,
}

impl Page {
    fn decode(bytes: &Bytes) -> std::result::Result<Self, DecodeError> {
        let mut r = Reader::shared(bytes);
        r.framed("cls_timeindex_list_ret", 1, |r, _| {
            let hints = r.seq(|r| {
                r.framed("cls_timeindex_entry", 1, |r, _| {
                    let (_at, _key) = (UTime::decode(r)?, r.blob()?);
                    Ok(Hint::from_bytes(&r.blob()?).ok())
                })
            })?;
            Ok(Self { hints, marker: r.blob()?, is_truncated: r.bool()? })
        })
    }
}

impl<O: Objects> Gateway<O> {
    fn hints_place(&self, n: u32) -> Place {
        Place::new(&self.zone.logs.log, format!("obj_delete_at_hint.{n:010}"))
    }

    /// Notes that an object ends, before its head says so: an end without a hint would never come.
    ///
    /// # Errors
    /// Of RADOS.
    pub async fn note_end(&self, bucket: &BucketAt, key: &RawKey, at: i64) -> Result<()> {
        let of = &bucket.info.bucket;
        let hint = Hint {
            tenant: of.tenant.clone(),
            bucket: of.name.clone(),
            bucket_id: of.id.clone(),
            name: key.name.clone(),
            instance: key.instance.clone(),
            at: UTime { sec: u32::try_from(at).unwrap_or(u32::MAX), nsec: 0 },
        };
        let place = self.hints_place(shard_of(&format!("{}{}", key.name, key.instance), HINTS));
        let made = self.make_pool(&place.pool, PoolUse::Meta).await;
        made.map_err(failed("making the pool of logs"))?;
        let mut w = Writer::new(Features::ALL);
        w.framed(1, 1, |w| {
            w.seq([&hint], |w, hint| {
                w.framed(1, 1, |w| {
                    hint.at.encode(w);
                    w.str(&hint.key());
                    w.blob(&hint.to_bytes());
                });
            });
        });
        let vector = Vector::write().call("timeindex", "add", w.finish());
        let noted = self.objects.operate(&place, vector).await;
        noted.map(drop).map_err(failed("noting when the object ends"))
    }

    /// Removes what has ended by now, of the hints in shard `n`. Returns how many objects that were.
    ///
    /// # Errors
    /// Of RADOS; hints of what could not be removed stay for the next pass.
    pub async fn end_objects(&self, n: u32) -> Result<u64> {
        let at = self.hints_place(n);
        let cookie = self.random_mixed(16);
        let op = lock::LockOp {
            name: LOCK.into(),
            kind: lock::EXCLUSIVE,
            cookie: cookie.clone().into(),
            duration: UTime { sec: LOCK_S, nsec: 0 },
            ..lock::LockOp::default()
        };
        // A look first: a lock would make the object.
        if self.hints(&at, &Bytes::new(), self.objects.now()).await?.hints.is_empty() {
            return Ok(0);
        }
        let locked = Vector::write().call("lock", "lock", op.to_bytes());
        match self.objects.operate(&at, locked).await {
            Ok(_) => {}
            Err(Errno::BUSY | Errno::EXIST | Errno::NOENT) => return Ok(0),
            Err(errno) => return Err(failed("locking hints of ends")(errno)),
        }
        let done = self.end_of_shard(&at).await;
        let op = lock::UnlockOp { name: LOCK.into(), cookie: cookie.into() };
        let vector = Vector::write().call("lock", "unlock", op.to_bytes());
        // A lock that stays ends by itself.
        let _ = self.objects.operate(&at, vector).await;
        done
    }

    async fn end_of_shard(&self, at: &Place) -> Result<u64> {
        let now = self.objects.now();
        let (mut count, mut marker) = (0, Bytes::new());
        loop {
            let page = self.hints(at, &marker, now).await?;
            for hint in page.hints.iter().flatten() {
                count += u64::from(self.end_one(hint, now).await?);
            }
            if !page.is_truncated || page.hints.is_empty() {
                break;
            }
            marker = page.marker;
        }
        // By time, and not by the marker of a page: that is of a hint behind what was listed, whose time is to come.
        let mut w = Writer::new(Features::ALL);
        w.framed(1, 1, |w| {
            UTime::ZERO.encode(w);
            UTime { sec: now.sec.saturating_sub(1), nsec: now.nsec }.encode(w);
            w.str("");
            w.str("");
        });
        let trim = w.finish();
        loop {
            let vector = Vector::write().call("timeindex", "trim", trim.clone());
            match self.objects.operate(at, vector).await {
                Ok(_) => {}
                Err(Errno::NODATA | Errno::NOENT) => return Ok(count),
                Err(errno) => return Err(failed("trimming hints of ends")(errno)),
            }
        }
    }

    /// A page of hints whose time is over, behind a marker.
    async fn hints(&self, at: &Place, marker: &Bytes, now: UTime) -> Result<Page> {
        let mut w = Writer::new(Features::ALL);
        w.framed(1, 1, |w| {
            UTime::ZERO.encode(w);
            w.blob(marker);
            now.encode(w);
            w.i32(PAGE);
        });
        let vector = Vector::read().call("timeindex", "list", w.finish());
        let data = match self.objects.operate(at, vector).await.and_then(|a| a.data(0)) {
            Err(Errno::NOENT) => {
                return Ok(Page { hints: Vec::new(), marker: Bytes::new(), is_truncated: false });
            }
            other => other.map_err(failed("reading hints of ends"))?,
        };
        let bad = |_| failed("reading hints of ends: they are not upstream's")(Errno::IO);
        Page::decode(&data).map_err(bad)
    }

    /// Removes one object where its head says, too, that it has ended. Objects that are locked stay.
    async fn end_one(&self, hint: &Hint, now: UTime) -> Result<bool> {
        let bucket = match self.bucket(&hint.tenant, &hint.bucket).await {
            Ok(bucket) => bucket,
            Err(error) if error.code == Code::NoSuchBucket => return Ok(false),
            Err(error) => return Err(error),
        };
        if bucket.info.bucket.id != hint.bucket_id {
            return Ok(false);
        }
        let has_ended = |object: &ObjectAt| {
            let is_locked = object.attrs.contains_key("object-retention")
                || object.attrs.contains_key("object-legal-hold");
            !is_locked && of(&object.attrs).is_some_and(|at| at <= now)
        };
        let key =
            RawKey { name: hint.name.clone(), instance: hint.instance.clone(), ns: String::new() };
        if !hint.instance.is_empty() {
            let found = self.object(&bucket, &hint.name, Some(&hint.instance), false).await?.ok();
            let ends = found.is_some_and(|object| has_ended(&object));
            if ends {
                self.unlink_version(&bucket, &hint.name, &hint.instance).await?;
            }
            return Ok(ends);
        }
        // The check's refusal is told from RADOS's by its code, which RADOS never gives.
        let check = |object: Option<&ObjectAt>| match object {
            Some(object) if !has_ended(object) => Err(Code::PreconditionFailed.into()),
            _ => Ok(()),
        };
        match self.remove_exact(&bucket, &key, check).await {
            Err(error) if error.code == Code::PreconditionFailed => Ok(false),
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As stock 20.2.4 wrote it.
    #[test]
    fn hints_are_those_of_stock() {
        let hint = Hint {
            tenant: String::new(),
            bucket: "obj".into(),
            bucket_id: "1c308841-78cf-499c-8b6d-ed8c297f9379.6108.5".into(),
            name: "b".into(),
            instance: String::new(),
            at: UTime { sec: 1_796_013_441, nsec: 0 },
        };
        let id = "31633330383834312d373863662d343939632d386236642d6564386332393766393337392e363130382e35";
        let hex = format!(
            "020155000000030000006f626a2b000000{id}02010d0000000100000062000000000000000081fd0c6b0000000000000000"
        );
        let bytes = rgw_proto::uri::from_hex(&hex).unwrap();
        assert_eq!(hint.to_bytes(), bytes);
        assert_eq!(Hint::from_bytes(&bytes).unwrap(), hint);
        assert_eq!(hint.key(), "obj:1c308841-78cf-499c-8b6d-ed8c297f9379.6108.5:b:");
        assert_eq!(shard_of("b", HINTS), 110);
        let tenant = Hint { tenant: "ten".into(), ..hint };
        assert!(tenant.key().starts_with("ten:obj:"));
        let attrs = [(DELETE_AT.to_owned(), encode(1_796_013_441))].into();
        assert_eq!(of(&attrs), Some(UTime { sec: 1_796_013_441, nsec: 0 }));
        assert_eq!(of(&[(DELETE_AT.to_owned(), encode(0))].into()), None, "stock's zero is no end");
    }
}
