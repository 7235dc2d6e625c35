//! Lifecycle: buckets with rules are in lists, and a worker does once a day what the rules of each say.
//!
//! ```text
//!   list locked ── next bucket that is due: marked as being worked on ── unlocked ── its rules applied ──
//!   list locked ── marked as done
//! ```
//!
//! An object is removed only while it is the one that was judged.
//!
//! Source: `rgw_lc.cc`.

use cls::client::{
    self as lock,
    rgw::{LcEntry, LcEntryOp, LcHead, LcHeadOp, LcListOp, LcListRet},
};
use rgw_proto::body::lifecycle::{Expiration, Rule, When};
use rgw_proto::body::notification::Event;
use rgw_proto::{Code, Error, Result};
use types::{Bytes, Denc, Errno, OpResult, UTime};

use crate::formats::{Lifecycle, ObjectTags, Pool};
use crate::gateway::{Gateway, decoded, failed};
use crate::list::{Entry, Query};
use crate::meta::{Attrs, BucketAt};
use crate::names::{RawKey, linux_hash};
use crate::notify::{Doer, Happened};
use crate::object::ObjectAt;
use crate::objects::{Objects, Place, PoolUse, Step, Vector};

/// Lists: `rgw_lc_max_objs`.
pub const LISTS: u32 = 32;
/// The prime that upstream takes hashes by.
const PRIME: u32 = 7_877;
/// How long a list is held, s: `rgw_lc_lock_max_time`.
const LOCK_S: u32 = 90;
const LOCK: &str = "lc_process";
/// How often a list that is held is tried, and how long is waited between, ms.
const LOCK_TRIES: u32 = 60;
const LOCK_WAIT_MS: u64 = 500;
/// Entries of one page.
const PAGE: usize = 1_000;
/// What the state of an entry says.
const PROCESSING: u32 = 1;
const FAILED: u32 = 2;
const COMPLETE: u32 = 3;
/// Seconds of a day.
const DAY_S: u64 = 86_400;

/// When rules are applied.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// Seconds of a "day" of rules: 86,400, or `rgw_lc_debug_interval`.
    pub day_s: u64,
}

impl Clock {
    /// Whether something that began at `since` is `days` old. Days of a calendar end at midnight.
    fn is_past(&self, since: UTime, days: u32, now: UTime) -> bool {
        let now = u64::from(now.sec);
        let now = if self.day_s == DAY_S { now - now % DAY_S } else { now };
        now >= u64::from(since.sec) + u64::from(days) * self.day_s
    }

    fn is_due(&self, when: When, since: UTime, now: UTime) -> bool {
        match when {
            When::Days(days) => self.is_past(since, days, now),
            When::Date(date) => i64::from(now.sec) >= date.0,
        }
    }

    /// Whether a bucket that was last begun at `start` is due again.
    fn is_next_day(&self, start: u64, now: UTime) -> bool {
        let now = u64::from(now.sec);
        match self.day_s {
            DAY_S => start / DAY_S < now / DAY_S,
            day_s => start + day_s <= now,
        }
    }
}

/// What a pass did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Passed {
    /// Objects, versions and markers removed.
    pub removed: u64,
    /// Objects moved to another storage class.
    pub moved: u64,
    /// Uploads aborted.
    pub aborted: u64,
    /// What could not be done; the next pass tries again.
    pub failed: u64,
}

/// An entry of a listing with what its rules need to know.
struct Judged<'a> {
    entry: &'a Entry,
    /// Since when it is not the current version; `None` while it is.
    noncurrent_since: Option<UTime>,
    /// How many newer noncurrent versions the key has.
    newer: u32,
    /// Whether the key has nothing else.
    is_alone: bool,
}

enum Doing {
    Nothing,
    Remove,
    Move(String),
}

impl<O: Objects> Gateway<O> {
    fn list_of(&self, key: &str) -> Place {
        let n = linux_hash(key.as_bytes()) % PRIME % LISTS;
        Place::new(&self.zone.lifecycle, format!("lc.{n}"))
    }

    /// An id for a rule that has none.
    #[must_use]
    pub fn new_rule_id(&self) -> String {
        self.random_mixed(48)
    }

    fn lifecycle_key(bucket: &BucketAt) -> String {
        let bucket = &bucket.info.bucket;
        format!("{}:{}:{}", bucket.tenant, bucket.name, bucket.marker)
    }

    async fn lock_list(&self, at: &Place, cookie: &str) -> OpResult<()> {
        let op = lock::LockOp {
            name: LOCK.into(),
            kind: lock::EXCLUSIVE,
            cookie: cookie.to_owned().into(),
            duration: UTime { sec: LOCK_S, nsec: 0 },
            ..lock::LockOp::default()
        };
        let vector = Vector::write().call("lock", "lock", op.to_bytes());
        self.objects.operate(at, vector).await.map(drop)
    }

    async fn unlock_list(&self, at: &Place, cookie: &str) {
        let op = lock::UnlockOp { name: LOCK.into(), cookie: cookie.to_owned().into() };
        let vector = Vector::write().call("lock", "unlock", op.to_bytes());
        // A lock that stays ends by itself.
        let _ = self.objects.operate(at, vector).await;
    }

    /// Runs a writing method on a list while it is held.
    async fn change_list(&self, at: &Place, method: &'static str, input: Bytes) -> Result<()> {
        let pool = Pool { ns: String::new(), ..at.pool.clone() };
        self.make_pool(&pool, PoolUse::Meta).await.map_err(failed("making the pool of logs"))?;
        let cookie = self.random_mixed(16);
        for _ in 0..LOCK_TRIES {
            match self.lock_list(at, &cookie).await {
                Ok(()) => {
                    let vector = Vector::write().call("rgw", method, input);
                    let done = self.objects.operate(at, vector).await;
                    self.unlock_list(at, &cookie).await;
                    return done.map(drop).map_err(failed("changing the list of lifecycles"));
                }
                Err(Errno::BUSY | Errno::EXIST) => self.objects.sleep_ms(LOCK_WAIT_MS).await,
                Err(errno) => return Err(failed("locking the list of lifecycles")(errno)),
            }
        }
        Err(Error::new(Code::ServiceUnavailable, "The list of lifecycles is busy: ask again."))
    }

    /// Adds a bucket to those whose rules are applied.
    ///
    /// # Errors
    /// [`Code::ServiceUnavailable`] where its list is held for long; of RADOS.
    pub async fn note_lifecycle(&self, bucket: &BucketAt) -> Result<()> {
        let key = Self::lifecycle_key(bucket);
        let at = self.list_of(&key);
        let entry = LcEntry { bucket: key.into(), start_time: 0, status: 0 };
        self.change_list(&at, "lc_set_entry", LcEntryOp { entry }.to_bytes()).await
    }

    /// Takes a bucket from them.
    ///
    /// # Errors
    /// As [`Gateway::note_lifecycle`].
    pub async fn forget_lifecycle(&self, bucket: &BucketAt) -> Result<()> {
        let key = Self::lifecycle_key(bucket);
        let at = self.list_of(&key);
        let entry = LcEntry { bucket: key.into(), start_time: 0, status: 0 };
        self.change_list(&at, "lc_rm_entry", LcEntryOp { entry }.to_bytes()).await
    }

    /// Applies the rules of all buckets of list `n` that are due.
    ///
    /// # Errors
    /// Of RADOS, at the list itself; what fails in a bucket is counted.
    pub async fn lifecycle_pass(&self, n: u32, clock: Clock) -> Result<Passed> {
        let at = Place::new(&self.zone.lifecycle, format!("lc.{n}"));
        let mut out = Passed::default();
        let mut after = Bytes::new();
        while let Some(entry) = self.next_bucket(&at, &after, clock).await? {
            after = entry.bucket.clone();
            let key = String::from_utf8_lossy(&entry.bucket).into_owned();
            let done = self.lifecycle_of(&key, clock, &mut out).await;
            match done {
                Ok(true) => {
                    let status = if out.failed == 0 { COMPLETE } else { FAILED };
                    let entry = LcEntry { status, ..entry };
                    self.change_list(&at, "lc_set_entry", LcEntryOp { entry }.to_bytes()).await?;
                }
                // The bucket is gone, or has no rules any more.
                Ok(false) => {
                    self.change_list(&at, "lc_rm_entry", LcEntryOp { entry }.to_bytes()).await?;
                }
                Err(_) => out.failed += 1,
            }
        }
        Ok(out)
    }

    /// The next bucket that is due, marked as being worked on.
    async fn next_bucket(
        &self,
        at: &Place,
        after: &Bytes,
        clock: Clock,
    ) -> Result<Option<LcEntry>> {
        let cookie = self.random_mixed(16);
        match self.lock_list_if_there(at, &cookie).await {
            Ok(()) => {}
            Err(Errno::NOENT | Errno::BUSY | Errno::EXIST) => return Ok(None),
            Err(errno) => return Err(failed("locking the list of lifecycles")(errno)),
        }
        let next = self.mark_next(at, after, clock).await;
        self.unlock_list(at, &cookie).await;
        next
    }

    async fn lock_list_if_there(&self, at: &Place, cookie: &str) -> OpResult<()> {
        if self.objects.pool_id(&Pool { ns: String::new(), ..at.pool.clone() }).is_none() {
            return Err(Errno::NOENT);
        }
        let there = Vector::read().step(Step::Stat);
        self.objects.operate(at, there).await?;
        self.lock_list(at, cookie).await
    }

    async fn mark_next(&self, at: &Place, after: &Bytes, clock: Clock) -> Result<Option<LcEntry>> {
        let mut marker = after.clone();
        let now = self.objects.now();
        loop {
            let op = LcListOp { version: LcListRet::NEWEST, marker, max: 100 };
            let vector = Vector::read().call("rgw", "lc_list_entries", op.to_bytes());
            let answers = self.objects.operate(at, vector).await;
            let data = answers.and_then(|a| a.data(0));
            let data = data.map_err(failed("reading the list of lifecycles"))?;
            let page: LcListRet = decoded(&data, "The list of lifecycles")?;
            let is_due = |entry: &&LcEntry| {
                // A worker that died is given a day to come back.
                let again = if entry.status == PROCESSING { clock.day_s } else { 0 };
                clock.is_next_day(entry.start_time + again, now)
            };
            if let Some(found) = page.entries.iter().find(is_due) {
                let start_time = u64::from(now.sec);
                let entry = LcEntry { start_time, status: PROCESSING, ..found.clone() };
                let head = LcHead {
                    start_date: start_time,
                    marker: entry.bucket.clone(),
                    rollover_date: start_time,
                };
                let vector = Vector::write().call(
                    "rgw",
                    "lc_set_entry",
                    LcEntryOp { entry: entry.clone() }.to_bytes(),
                );
                let marked = self.objects.operate(at, vector).await;
                marked.map_err(failed("marking a lifecycle"))?;
                let vector =
                    Vector::write().call("rgw", "lc_put_head", LcHeadOp { head }.to_bytes());
                let marked = self.objects.operate(at, vector).await;
                marked.map_err(failed("marking a lifecycle"))?;
                return Ok(Some(entry));
            }
            match page.entries.last() {
                Some(last) if page.truncated => marker = last.bucket.clone(),
                _ => return Ok(None),
            }
        }
    }

    /// Applies a bucket's rules; `false` where it has none, or is gone.
    async fn lifecycle_of(&self, key: &str, clock: Clock, out: &mut Passed) -> Result<bool> {
        let mut fields = key.splitn(3, ':');
        let (tenant, name) = (fields.next().unwrap_or_default(), fields.next().unwrap_or_default());
        let marker = fields.next().unwrap_or_default();
        let bucket = match self.bucket_now(tenant, name).await {
            Ok(bucket) if bucket.info.bucket.marker == marker => bucket,
            Ok(_) => return Ok(false),
            Err(error) if error.code == Code::NoSuchBucket => return Ok(false),
            Err(error) => return Err(error),
        };
        let Some(bytes) = bucket.attrs.get("lc") else { return Ok(false) };
        let rules: Lifecycle = decoded(bytes, "The bucket's lifecycle rules")?;
        for rule in rules.0.iter().filter(|rule| rule.is_enabled) {
            self.apply_rule(&bucket, rule, clock, out).await?;
            if let Some(days) = rule.abort_uploads_days {
                self.abort_old(&bucket, rule, days, clock, out).await?;
            }
        }
        Ok(true)
    }

    async fn apply_rule(
        &self,
        bucket: &BucketAt,
        rule: &Rule,
        clock: Clock,
        out: &mut Passed,
    ) -> Result<()> {
        let mut query = Query {
            prefix: rule.filter.prefix.clone(),
            max: PAGE,
            versions: bucket.is_versioned(),
            ..Query::default()
        };
        // The newer version of the same key, and how many noncurrent ones came so far.
        let mut above: Option<(String, UTime, u32)> = None;
        loop {
            let page = self.list(bucket, &query).await?;
            for (n, entry) in page.entries.iter().enumerate() {
                let same = above.take().filter(|(name, ..)| *name == entry.key.name);
                let (noncurrent_since, newer) = match &same {
                    Some((_, since, newer)) if !entry.is_latest => (Some(*since), *newer),
                    _ => (None, 0),
                };
                let next = match page.entries.get(n + 1) {
                    Some(next) => Some(&next.key.name),
                    // Whether more of it follows is on the next page: then it is not judged to be alone.
                    None if page.next.is_some() => Some(&entry.key.name),
                    None => None,
                };
                let is_alone = same.is_none() && next != Some(&entry.key.name);
                let judged = Judged { entry, noncurrent_since, newer, is_alone };
                if let Err(error) = self.apply_to(bucket, rule, &judged, clock, out).await {
                    // One object that cannot be changed now does not keep the others.
                    if error.code == Code::InternalError {
                        out.failed += 1;
                    }
                }
                let newer = newer + u32::from(noncurrent_since.is_some());
                above = Some((entry.key.name.clone(), entry.mtime, newer));
            }
            match page.next {
                Some(next) => query.after = next,
                None => return Ok(()),
            }
        }
    }

    fn judge(&self, rule: &Rule, at: &Judged<'_>, clock: Clock, is_versioned: bool) -> Doing {
        let now = self.objects.now();
        let entry = at.entry;
        if let Some(since) = at.noncurrent_since {
            if rule.noncurrent.is_some_and(|(days, keep)| {
                clock.is_past(since, days, now) && at.newer >= keep.unwrap_or(0)
            }) {
                return Doing::Remove;
            }
            let due = rule.noncurrent_transitions.iter().filter(|t| clock.is_past(since, t.0, now));
            return match due.max_by_key(|t| t.0) {
                Some((_, class)) if !entry.is_marker => Doing::Move(class.clone()),
                _ => Doing::Nothing,
            };
        }
        if entry.is_marker {
            // A marker with nothing behind it; by days, too, as S3 has it.
            let is_old = match rule.expiration {
                Some(Expiration::LoneMarkers) => true,
                Some(Expiration::At(when)) => clock.is_due(when, entry.mtime, now),
                None => false,
            };
            return if is_versioned && at.is_alone && is_old {
                Doing::Remove
            } else {
                Doing::Nothing
            };
        }
        if let Some(Expiration::At(when)) = rule.expiration
            && clock.is_due(when, entry.mtime, now)
        {
            return Doing::Remove;
        }
        let due = rule.transitions.iter().filter(|t| clock.is_due(t.0, entry.mtime, now));
        let age = |when: &When| match when {
            When::Days(days) => i64::from(*days) * 86_400 + i64::from(entry.mtime.sec),
            When::Date(date) => date.0,
        };
        match due.max_by_key(|t| age(&t.0)) {
            Some((_, class)) => Doing::Move(class.clone()),
            None => Doing::Nothing,
        }
    }

    async fn apply_to(
        &self,
        bucket: &BucketAt,
        rule: &Rule,
        at: &Judged<'_>,
        clock: Clock,
        out: &mut Passed,
    ) -> Result<()> {
        let entry = at.entry;
        let doing = self.judge(rule, at, clock, bucket.is_versioned());
        if matches!(doing, Doing::Nothing) {
            return Ok(());
        }
        if let Doing::Move(class) = &doing
            && (entry.storage_class == *class
                || (entry.storage_class.is_empty() && class == "STANDARD"))
        {
            return Ok(());
        }
        let name = entry.key.name.as_str();
        let version = bucket.is_versioned().then_some(entry.key.instance.as_str());
        let mut object = None;
        if !entry.is_marker {
            // Gone, or another one, by now: the next pass judges that.
            let found = self.object(bucket, name, version, true).await?;
            let Ok(found) = found else { return Ok(()) };
            let tags = stored_tags(&found.attrs);
            if found.mtime != entry.mtime || !rule.filter.fits(name, &tags, found.size) {
                return Ok(());
            }
            object = Some(found);
        }
        match (doing, object) {
            (Doing::Remove, object) => {
                let events = match (at.noncurrent_since, entry.is_marker) {
                    (Some(_), _) => [Event::S3_EXPIRED, Event::EXPIRED_NONCURRENT],
                    (None, true) => [Event::EXPIRED_MARKER, Event::S3_EXPIRED_MARKER],
                    (None, false) => [Event::EXPIRED_CURRENT, Event::S3_EXPIRED],
                };
                let attrs = object.as_ref().map(|o| o.attrs.clone()).unwrap_or_default();
                let expired = self.expire(bucket, at, object);
                let count = self.telling(bucket, entry, &events, &attrs, expired).await?;
                out.removed += count;
                Ok(())
            }
            (Doing::Move(class), Some(object)) => {
                let event = match at.noncurrent_since {
                    Some(_) => Event::MOVED_NONCURRENT,
                    None => Event::MOVED_CURRENT,
                };
                let events = [event, Event::S3_TRANSITION];
                let moved = async { self.move_to(bucket, &object, &class).await.map(|()| 1) };
                out.moved += self.telling(bucket, entry, &events, &object.attrs, moved).await?;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Does what events tell of; they are sent where it says that something was done.
    async fn telling(
        &self,
        bucket: &BucketAt,
        entry: &Entry,
        events: &[Event],
        attrs: &Attrs,
        doing: impl Future<Output = Result<u64>>,
    ) -> Result<u64> {
        let reserved = self.reserve_events(bucket, events, &entry.key.name, attrs).await?;
        let done = doing.await;
        if !matches!(done, Ok(count) if count > 0) {
            self.abort_events(reserved).await;
            return done;
        }
        let instance = entry.key.instance.as_str();
        let what = Happened {
            key: entry.key.name.clone(),
            size: if entry.is_marker { 0 } else { entry.size },
            etag: if entry.is_marker { String::new() } else { entry.etag.clone() },
            version: if instance == "null" { String::new() } else { instance.to_owned() },
            at: self.objects.now(),
        };
        // As stock's worker names itself and its requests.
        let who = Doer { user: "rgw lifecycle".into(), request: "0".into() };
        self.commit_events(bucket, reserved, &who, &what).await;
        done
    }

    async fn expire(
        &self,
        bucket: &BucketAt,
        at: &Judged<'_>,
        object: Option<ObjectAt>,
    ) -> Result<u64> {
        let key = &at.entry.key;
        if !bucket.is_versioned() {
            let judged = object.map(|o| (o.mtime, o.attrs.get("idtag").cloned()));
            let same = |now: Option<&ObjectAt>| match (now, &judged) {
                (Some(now), Some((mtime, tag)))
                    if now.mtime == *mtime && now.attrs.get("idtag") == tag.as_ref() =>
                {
                    Ok(())
                }
                (None, _) => Ok(()),
                _ => Err(Code::ConcurrentModification.into()),
            };
            let plain = RawKey { name: key.name.clone(), ..RawKey::default() };
            return self.remove_exact(bucket, &plain, same).await.map(u64::from);
        }
        let instance = if key.instance == "null" { "" } else { key.instance.as_str() };
        if at.noncurrent_since.is_some() || at.entry.is_marker {
            if object.is_some_and(|o| is_locked(&o.attrs, self.objects.now())) {
                return Ok(0);
            }
            self.unlink_version(bucket, &key.name, instance).await?;
            return Ok(1);
        }
        // The current version stays, behind a marker; in buckets that keep none any more the plain one makes room.
        let marker = match bucket.keeps_versions() {
            true => self.new_version(),
            false => String::new(),
        };
        let owner = bucket.info.owner.text();
        self.link_version(bucket, &key.name, &marker, Some((owner, String::new()))).await?;
        Ok(1)
    }

    async fn move_to(&self, bucket: &BucketAt, object: &ObjectAt, class: &str) -> Result<()> {
        let rule = bucket.info.placement.split('/').next().unwrap_or_default();
        let placement = format!("{rule}/{class}");
        let own = ["idtag", "tail_tag", "manifest", "pg_ver", "source_zone", "storage_class"];
        let mut attrs: Attrs = object.attrs.clone();
        attrs.retain(|name, _| !own.contains(&name.as_str()) && !name.starts_with("olh."));
        attrs.insert("storage_class".into(), Bytes::from(class.to_owned()));
        let key = object.key.clone();
        self.copy(bucket, object, bucket, key, attrs, object.mtime, &placement).await
    }

    async fn abort_old(
        &self,
        bucket: &BucketAt,
        rule: &Rule,
        days: u32,
        clock: Clock,
        out: &mut Passed,
    ) -> Result<()> {
        let mut query = Query { prefix: rule.filter.prefix.clone(), max: PAGE, ..Query::default() };
        loop {
            let page = self.uploads(bucket, &query).await?;
            for entry in &page.entries {
                if !clock.is_past(entry.mtime, days, self.objects.now()) {
                    continue;
                }
                let upload = match self.upload(bucket, &entry.key.name, &entry.key.instance).await {
                    Ok(upload) => upload,
                    Err(error) if error.code == Code::NoSuchUpload => continue,
                    Err(error) => return Err(error),
                };
                let aborting = async { self.abort_upload(bucket, &upload).await.map(|()| 1) };
                // Its entry's instance is the upload's id.
                let key = RawKey { name: entry.key.name.clone(), ..RawKey::default() };
                let entry = Entry { key, size: 0, etag: String::new(), ..entry.clone() };
                let events = [Event::ABORTED];
                match self.telling(bucket, &entry, &events, &upload.attrs, aborting).await {
                    Ok(count) => out.aborted += count,
                    Err(error) if error.code == Code::NoSuchUpload => {}
                    Err(_) => out.failed += 1,
                }
            }
            match page.next {
                Some(next) => query.after = next,
                None => return Ok(()),
            }
        }
    }
}

fn stored_tags(attrs: &Attrs) -> rgw_proto::body::config::Tags {
    let tags = attrs.get("x-amz-tagging").and_then(|bytes| ObjectTags::from_bytes(bytes).ok());
    tags.map(|tags| tags.0.into_iter().collect()).unwrap_or_default()
}

/// Whether an object may not be removed now: what cannot be read is taken for a lock.
fn is_locked(attrs: &Attrs, now: UTime) -> bool {
    let held = attrs.get("object-legal-hold").map(|b| crate::formats::LegalHold::from_bytes(b));
    let kept =
        attrs.get("object-retention").map(|b| crate::formats::ObjectRetention::from_bytes(b));
    let now_ns = u64::from(now.sec) * 1_000_000_000 + u64::from(now.nsec);
    held.is_some_and(|held| held.map_or(true, |hold| hold.0 != "OFF"))
        || kept.is_some_and(|kept| kept.map_or(true, |lock| lock.until_ns > now_ns))
}
