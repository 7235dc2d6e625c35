//! Writing objects: tails as the bytes come, the head last.

use cls::client::rgw::{RemoveOp, StorePgVerOp, modify};
use rgw_proto::condition::{Conditions, Current};
use rgw_proto::time::Time;
use rgw_proto::{Code, Error, Result};
use types::{Bytes, Denc, Errno, OpResult, UTime};

use crate::formats::{Manifest, ObjectName};
use crate::gateway::{ATTR, Gateway, failed, with_nul};
use crate::index::{Done, IndexEntry};
use crate::meta::{Attrs, BucketAt};
use crate::names::RawKey;
use crate::object::{HEAD_BYTES, Led, ObjectAt, TRIES};
use crate::objects::{Objects, Place, PoolUse, Step, Vector};
use crate::together::Flight;

/// Bytes of a RADOS object of a tail: `rgw_obj_stripe_size`.
pub const STRIPE_BYTES: u64 = 4 << 20;
/// Writes of tails that one upload has under way.
const WRITES_MAX: usize = 4;

/// Bytes on their way into RADOS.
pub struct Incoming<O> {
    objects: O,
    names: Names,
    held: Vec<u8>,
    /// Bytes of the head, once there are more than it holds.
    head: Option<Bytes>,
    written: Vec<Place>,
    size: u64,
    flight: Flight<(u64, OpResult<()>)>,
    /// Bytes of writes under way.
    in_flight: u64,
    /// Bytes of one write.
    piece: usize,
    /// Bytes that the last RADOS object of the tail has, while it is not full.
    of_stripe: u64,
    hint: u64,
}

/// How tails are named.
struct Names {
    /// The head, with the names of its tails: `shadow` and a prefix, or a part's.
    pool: crate::formats::Pool,
    marker: String,
    key: RawKey,
    prefix: String,
    /// 0 for a put, else the part's number.
    part: u32,
    /// Bytes that the head holds.
    head_max: u64,
}

impl Names {
    fn stripe(&self, n: u64) -> Place {
        let (name, ns) = match (self.part, n) {
            (0, n) => (format!("{}{n}", self.prefix), "shadow"),
            (part, 0) => (format!("{}.{part}", self.prefix), "multipart"),
            (part, n) => (format!("{}.{part}_{n}", self.prefix), "shadow"),
        };
        let key = RawKey { name, instance: self.key.instance.clone(), ns: ns.into() };
        let (name, locator) = key.object(&self.marker);
        Place { pool: self.pool.clone(), name, locator }
    }
}

/// What was written, before a head names it.
pub struct Written {
    /// The head's bytes.
    pub head: Bytes,
    /// Where everything is.
    pub manifest: Manifest,
    /// RADOS objects of the tail.
    pub tails: Vec<Place>,
}

/// A head to be written.
pub struct NewHead<'a> {
    /// Its key, with the version it gets.
    pub key: RawKey,
    /// Its bytes.
    pub data: Bytes,
    /// Where everything is.
    pub manifest: Manifest,
    /// Attributes: `acl`, `etag`, `content_type`, ...
    pub attrs: Attrs,
    /// When it was changed.
    pub mtime: UTime,
    /// Conditions on what it replaces.
    pub conditions: &'a Conditions,
    /// The tag of a tail that stays as it is, and is not to be collected: a new head over the same tail.
    pub same_tail: Option<Bytes>,
    /// The tag of the tail, where that was chosen before.
    pub tag: Option<String>,
    /// Index entries that go with it: those of an upload's parts.
    pub gone: Vec<RawKey>,
    /// What alone it may be written over; `None` for anything.
    pub over: Option<Over>,
}

/// What a head may be written over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Over {
    /// There is nothing yet.
    Nothing,
    /// The write of this tag.
    Write(Option<Bytes>),
}

impl Over {
    /// What was found.
    #[must_use]
    pub fn of(found: Option<&ObjectAt>) -> Self {
        match found {
            None => Self::Nothing,
            Some(object) => Self::Write(object.id_tag().cloned()),
        }
    }
}

impl<O: Objects> Gateway<O> {
    /// Begins to take an object's bytes. `class` is its storage class, empty for the bucket's.
    ///
    /// # Errors
    /// [`Code::InvalidArgument`] where the placement has no such class.
    pub async fn begin(&self, bucket: &BucketAt, key: &RawKey, class: &str) -> Result<Incoming<O>> {
        let class = if class.is_empty() { bucket_class(bucket) } else { class };
        let Some(pool) = bucket.placement.data_of(class).cloned() else {
            let text = format!("The bucket's placement has no storage class {class:?}.");
            return Err(Error::new(Code::InvalidArgument, text));
        };
        let made = self.make_pool(&bucket.placement.data, PoolUse::Data).await;
        made.map_err(failed("making the pool of data"))?;
        self.make_pool(&pool, PoolUse::Data).await.map_err(failed("making the pool of data"))?;
        // In another pool than the head's nothing of the data can be in the head.
        let head_max = if pool == bucket.placement.data { HEAD_BYTES } else { 0 };
        Ok(self.incoming(bucket, key, pool, &format!(".{}_", self.random_mixed(31)), 0, head_max))
    }

    pub(crate) fn incoming(
        &self,
        bucket: &BucketAt,
        key: &RawKey,
        pool: crate::formats::Pool,
        prefix: &str,
        part: u32,
        head_max: u64,
    ) -> Incoming<O> {
        let marker = bucket.info.bucket.marker.clone();
        let prefix = prefix.to_owned();
        let names = Names { pool, marker, key: key.clone(), prefix, part, head_max };
        Incoming {
            objects: self.objects.clone(),
            names,
            held: Vec::new(),
            head: None,
            written: Vec::new(),
            size: 0,
            flight: Flight::default(),
            in_flight: 0,
            piece: STRIPE_BYTES as usize,
            of_stripe: 0,
            hint: STRIPE_BYTES,
        }
    }

    /// Writes a head: announces it in the index, writes it over what is there, completes, and has the tail that it
    /// replaced collected.
    ///
    /// # Errors
    /// [`Code::PreconditionFailed`] and [`Code::NoSuchKey`] of the conditions; of RADOS.
    pub async fn write_head(&self, bucket: &BucketAt, new: NewHead<'_>) -> Result<()> {
        let at = self.head_place(bucket, &new.key);
        let tag = self.new_tag();
        let (announced, state) = {
            let announce = self.announce(bucket, &new.key, modify::ADD, &tag);
            let state = self.state_at(&at, &new.key, false);
            both(announce, state).await
        };
        let announced = announced?;
        let written = match state {
            Ok(state) => self.put_head(bucket, &at, &tag, &new, state).await,
            Err(error) => Err(error),
        };
        let (epoch, replaced) = match written {
            Ok(done) => done,
            Err(error) => {
                self.cancel(bucket, announced).await;
                return Err(error);
            }
        };
        let text = |name: &str| new.attrs.get(name).map(|v| crate::gateway::attr_text(v));
        let acl = new.attrs.get("acl").and_then(|b| crate::formats::AclPolicy::from_bytes(b).ok());
        let owner = acl.map(|acl| acl.owner).unwrap_or_default();
        let entry = IndexEntry {
            size: new.manifest.size,
            mtime: new.mtime,
            etag: text("etag").unwrap_or_default(),
            owner: (owner.id, owner.display_name),
            content_type: text("content_type").unwrap_or_default(),
            storage_class: text("storage_class").unwrap_or_default(),
            category: 1,
        };
        let pool = self.objects.pool_id(&at.pool).unwrap_or(-1);
        self.complete(bucket, announced, Done { pool, epoch }, &entry, &new.gone).await?;
        if let Some(old) = replaced
            && let Some(manifest) = &old.manifest
            && new.same_tail.is_none()
        {
            self.collect(bucket, manifest, &old.tail_tag()).await;
        }
        Ok(())
    }

    /// Writes the head alone; its version, and what it replaced.
    async fn put_head(
        &self,
        bucket: &BucketAt,
        at: &Place,
        tag: &str,
        new: &NewHead<'_>,
        mut state: Option<ObjectAt>,
    ) -> Result<(u64, Option<ObjectAt>)> {
        for _ in 0..TRIES {
            let there = state.as_ref().filter(|s| !s.is_link_only());
            if new.over.as_ref().is_some_and(|over| *over != Over::of(state.as_ref())) {
                return Err(Code::PositionNotEqualToLength.into());
            }
            self.check_write(bucket, new, there).await?;
            let mut vector = Vector::write();
            match &state {
                None => vector = vector.step(Step::Create(true)),
                Some(old) => {
                    vector = match old.id_tag() {
                        Some(old) => {
                            vector.step(Step::CmpAttr(format!("{ATTR}idtag"), old.clone()))
                        }
                        None => vector.step(Step::AssertExists),
                    };
                    let keep = RemoveOp { keep_prefixes: vec![format!("{ATTR}olh.").into()] };
                    vector =
                        vector.step(Step::Create(false)).call("rgw", "obj_remove", keep.to_bytes());
                }
            }
            let tail_tag = match &new.same_tail {
                Some(same) => same.clone(),
                None => with_nul(new.tag.as_deref().unwrap_or(tag)),
            };
            let set = |v: Vector, name: &str, value| {
                v.step(Step::SetAttr(format!("{ATTR}{name}"), value))
            };
            vector = set(vector, "idtag", with_nul(tag));
            vector = set(vector, "tail_tag", tail_tag);
            vector = vector.step(Step::WriteFull(new.data.clone()));
            vector = set(vector, "manifest", new.manifest.to_bytes());
            for (name, value) in &new.attrs {
                vector = set(vector, name, value.clone());
            }
            let pg_ver = StorePgVerOp { attr: format!("{ATTR}pg_ver").into() };
            vector = vector.call("rgw", "obj_store_pg_ver", pg_ver.to_bytes());
            vector = set(vector, "source_zone", 0u32.to_bytes());
            match self.objects.operate(at, vector.at(new.mtime)).await {
                Ok(answers) => return Ok((answers.version, state)),
                // Another write or removal came first: this one is judged by what is there now.
                Err(Errno::EXIST | Errno::CANCELED | Errno::NOENT) => {
                    state = self.state_at(at, &new.key, false).await?;
                }
                Err(errno) => return Err(failed("writing the object")(errno)),
            }
        }
        Err(Code::ConcurrentModification.into())
    }

    /// Whether the conditions of a write hold: in buckets with versions they are about the current one.
    async fn check_write(
        &self,
        bucket: &BucketAt,
        new: &NewHead<'_>,
        there: Option<&ObjectAt>,
    ) -> Result<()> {
        if new.conditions.is_empty() {
            return Ok(());
        }
        let led = match bucket.is_versioned() {
            true => Some(self.led(bucket, &new.key.name, false).await?),
            false => None,
        };
        let now = match &led {
            Some(Led::Object(state)) => Some(&**state),
            Some(_) => None,
            None => there,
        };
        let etag = now.map(|state| state.text("etag")).unwrap_or_default();
        let modified = now.map(|state| Time(i64::from(state.mtime.sec))).unwrap_or(Time(0));
        let current = Current { etag: &etag, modified };
        new.conditions.check_write(now.map(|_| current))
    }

    /// The name that manifests have of an object.
    #[must_use]
    pub fn object_name(&self, bucket: &BucketAt, key: &RawKey) -> ObjectName {
        ObjectName {
            bucket: bucket.info.bucket.clone(),
            ns: key.ns.clone(),
            name: key.name.clone(),
            instance: key.instance.clone(),
        }
    }

    /// A fresh version's id.
    #[must_use]
    pub fn new_version(&self) -> String {
        self.random_mixed(32)
    }
}

/// The storage class that a bucket's placement names; empty for `STANDARD`.
fn bucket_class(bucket: &BucketAt) -> &str {
    bucket.info.placement.split_once('/').map_or("", |(_, class)| class)
}

async fn both<A, B>(a: impl Future<Output = A>, b: impl Future<Output = B>) -> (A, B) {
    let (mut a, mut b) = (std::pin::pin!(a), std::pin::pin!(b));
    let (mut got_a, mut got_b) = (None, None);
    std::future::poll_fn(|cx| {
        use std::task::Poll;
        if got_a.is_none()
            && let Poll::Ready(value) = a.as_mut().poll(cx)
        {
            got_a = Some(value);
        }
        if got_b.is_none()
            && let Poll::Ready(value) = b.as_mut().poll(cx)
        {
            got_b = Some(value);
        }
        if got_a.is_some() && got_b.is_some() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    (got_a.expect("it is done"), got_b.expect("it is done"))
}

impl<O: Objects> Incoming<O> {
    /// Takes bytes.
    ///
    /// # Errors
    /// Of RADOS. Then [`Incoming::abandon`] is due.
    pub async fn push(&mut self, mut bytes: &[u8]) -> Result<()> {
        self.size += bytes.len() as u64;
        while !bytes.is_empty() {
            if self.held.len() == self.room() {
                let full = Bytes::from(std::mem::take(&mut self.held));
                if self.fills_head() {
                    self.head = Some(full);
                } else {
                    self.write(full).await?;
                }
            }
            let n = bytes.len().min(self.room() - self.held.len());
            self.held.extend_from_slice(&bytes[..n]);
            bytes = &bytes[n..];
        }
        Ok(())
    }

    fn fills_head(&self) -> bool {
        self.head.is_none() && self.names.head_max > 0
    }

    /// Bytes of the write that is being filled.
    fn room(&self) -> usize {
        match self.fills_head() {
            true => self.names.head_max as usize,
            false => self.piece.min((STRIPE_BYTES - self.of_stripe) as usize),
        }
    }

    /// Bytes that a put may hold at once, at least: its head's, and one write.
    #[must_use]
    pub fn needs(&self) -> u64 {
        self.names.head_max + STRIPE_BYTES
    }

    /// Bytes that are held now.
    #[must_use]
    pub fn holds(&self) -> u64 {
        let head = self.head.as_ref().map_or(0, |head| head.len() as u64);
        self.held.len() as u64 + head + self.in_flight
    }

    /// Has a put without bytes hold two pieces at most: all goes into the tail, one small write after the other.
    ///
    /// # Panics
    /// If bytes were taken.
    pub fn save_memory(&mut self, piece: u64) {
        assert_eq!(self.size, 0, "the head's bytes are held from the first one on");
        let aligned = piece.next_multiple_of(self.objects.alignment(&self.names.pool));
        self.piece = aligned.min(STRIPE_BYTES) as usize;
        self.names.head_max = 0;
    }

    /// Waits for the writes that are under way.
    ///
    /// # Errors
    /// Of RADOS. Then [`Incoming::abandon`] is due.
    pub async fn settle(&mut self) -> Result<()> {
        while self.one_done().await? {}
        Ok(())
    }

    /// Waits for one write; `false` where none is under way.
    async fn one_done(&mut self) -> Result<bool> {
        let Some((len, done)) = self.flight.next().await else { return Ok(false) };
        self.in_flight -= len;
        done.map_err(failed("writing the object's data"))?;
        Ok(true)
    }

    async fn write(&mut self, data: Bytes) -> Result<()> {
        let (len, begins) = (data.len() as u64, self.of_stripe);
        self.of_stripe = (begins + len) % STRIPE_BYTES;
        if begins > 0 {
            let at = self.written.last().expect("it has bytes").clone();
            return self.send(at, Vector::write().step(Step::Write(begins, data)), len).await;
        }
        let n = self.written.len() as u64 + u64::from(self.names.head_max > 0);
        let at = self.names.stripe(n);
        let mut vector = Vector::write();
        if self.names.part > 0 && n == 0 {
            // A part that is uploaded again must not write into what the first upload of it wrote. A hint makes the
            // object: it comes behind.
            vector = vector.step(Step::Create(true));
        }
        let vector = vector.step(Step::AllocHint(self.hint)).step(Step::WriteFull(data));
        self.written.push(at.clone());
        if self.names.part > 0 && n == 0 {
            let done = self.objects.operate(&at, vector.clone()).await;
            return match done {
                Err(Errno::EXIST) => {
                    self.written.pop();
                    let mut random = [0; 32];
                    self.objects.random(&mut random);
                    let random: String = random.iter().map(|b| char::from(b'a' + b % 26)).collect();
                    self.names.prefix = format!("{}.{random}", self.names.key.name);
                    let at = self.names.stripe(0);
                    self.written.push(at.clone());
                    let done = self.objects.operate(&at, vector).await;
                    done.map(drop).map_err(failed("writing the object's data"))
                }
                other => other.map(drop).map_err(failed("writing the object's data")),
            };
        }
        self.send(at, vector, len).await
    }

    /// Has a write under way; waits where that are too many.
    async fn send(&mut self, at: Place, vector: Vector, len: u64) -> Result<()> {
        let objects = self.objects.clone();
        self.in_flight += len;
        let write = async move { (len, objects.operate(&at, vector).await.map(drop)) };
        if let Some((len, done)) = self.flight.begin(write) {
            self.in_flight -= len;
            done.map_err(failed("writing the object's data"))?;
        }
        let most = if self.piece < STRIPE_BYTES as usize { 1 } else { WRITES_MAX };
        while self.flight.len() >= most {
            self.one_done().await?;
        }
        Ok(())
    }

    /// The same, with names in the tail of another bucket: that of an object which was copied from there.
    pub(crate) fn in_tail_of(mut self, marker: &str) -> Self {
        marker.clone_into(&mut self.names.marker);
        self
    }

    /// Bytes taken so far.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The prefix of the tail's names.
    #[must_use]
    pub fn prefix(&self) -> &str {
        &self.names.prefix
    }

    /// Waits until all bytes but those of the head are in RADOS.
    ///
    /// # Errors
    /// Of RADOS. Then [`Incoming::abandon`] is due.
    pub async fn flush(&mut self) -> Result<()> {
        let rest = std::mem::take(&mut self.held);
        if self.head.is_none() && self.names.head_max > 0 {
            self.head = Some(rest.into());
        } else if !rest.is_empty() || (self.names.part > 0 && self.written.is_empty()) {
            self.write(rest.into()).await?;
        }
        self.settle().await
    }

    /// What was written, after [`Incoming::flush`].
    #[must_use]
    pub fn written(&mut self, head: ObjectName, placement: &str) -> Written {
        let manifest = if self.names.part > 0 {
            let prefix = &self.names.prefix;
            Manifest::of_part(head, self.names.part, self.size, STRIPE_BYTES, prefix, placement)
        } else {
            let prefix = self.names.prefix.clone();
            let head_max = self.names.head_max;
            Manifest::of_put(head, self.size, head_max, STRIPE_BYTES, prefix, placement)
        };
        let head = self.head.take().unwrap_or_default();
        Written { head, manifest, tails: std::mem::take(&mut self.written) }
    }

    /// Removes what was written: no head will name it.
    pub async fn abandon(mut self) {
        while self.flight.next().await.is_some() {}
        for at in std::mem::take(&mut self.written) {
            let _ = self.objects.operate(&at, Vector::write().step(Step::Remove)).await;
        }
    }
}

impl<O: Objects> Gateway<O> {
    /// Removes RADOS objects that no head names.
    pub async fn remove_places(&self, all: &[Place]) {
        let removals = all.iter().map(|at| {
            let vector = Vector::write().step(Step::Remove);
            self.objects.operate(at, vector)
        });
        crate::together::all(removals).await;
    }

    /// Copies an object under another key. Tails are not copied: they get one more owner, where both are in one pool.
    ///
    /// # Errors
    /// Of RADOS.
    #[allow(clippy::too_many_arguments, reason = "from, to, and how")]
    pub async fn copy(
        &self,
        from: &BucketAt,
        object: &ObjectAt,
        bucket: &BucketAt,
        key: RawKey,
        attrs: Attrs,
        mtime: UTime,
        placement: &str,
    ) -> Result<()> {
        let name = self.object_name(bucket, &key);
        let tails = object.manifest.as_ref().map(|m| self.tail_places(from, m)).unwrap_or_default();
        let class = placement.split_once('/').map_or("", |(_, class)| class);
        let pool = bucket.placement.data_of(class).unwrap_or(&bucket.placement.data);
        let conditions = Conditions::default();
        let mut new = NewHead {
            key: key.clone(),
            data: Bytes::new(),
            manifest: Manifest::of_put(
                name.clone(),
                object.size,
                HEAD_BYTES,
                STRIPE_BYTES,
                format!(".{}_", self.random_mixed(31)),
                placement,
            ),
            attrs,
            mtime,
            conditions: &conditions,
            same_tail: None,
            tag: None,
            gone: Vec::new(),
            over: None,
        };
        let is_shared = !tails.is_empty() && tails.iter().all(|at| at.pool == *pool);
        let Some(manifest) = object.manifest.as_ref().filter(|_| is_shared) else {
            return self.copy_bytes(from, object, bucket, new, class).await;
        };
        let head_len = manifest.head_size.min(object.size);
        if head_len > 0 {
            new.data =
                self.read(from, object, &(self.head_place(from, &object.key), 0, head_len)).await?;
        }
        new.manifest = manifest.clone();
        new.manifest.head = name.clone();
        new.manifest.head_placement = bucket.info.placement.clone();
        let tail_bucket = manifest.tail_bucket.as_ref().unwrap_or(&manifest.head.bucket);
        new.manifest.tail_bucket = (*tail_bucket != name.bucket).then(|| tail_bucket.clone());
        let instance = manifest.tail_instance.as_ref().unwrap_or(&manifest.head.instance);
        new.manifest.tail_instance = (*instance != name.instance).then(|| instance.clone());
        if self.head_place(from, &object.key) == self.head_place(bucket, &key) {
            // The same head: its tail keeps the owner that it has.
            new.same_tail = Some(object.tail_tag());
            return self.write_head(bucket, new).await;
        }
        let tag = self.random_lower(32);
        let op = cls::client::refcount::TagOp { tag: with_nul(&tag), implicit: true };
        let gets = tails.iter().map(|at| {
            let vector = Vector::write().call("refcount", "get", op.to_bytes());
            self.objects.operate(at, vector)
        });
        let got = crate::together::all(gets).await;
        if let Some(Err(errno)) = got.iter().find(|r| r.is_err()) {
            self.put_back(&tails, &tag).await;
            return Err(failed("keeping the source's data")(*errno));
        }
        new.tag = Some(tag);
        self.write_head(bucket, new).await
    }

    async fn put_back(&self, tails: &[Place], tag: &str) {
        let op = cls::client::refcount::TagOp { tag: with_nul(tag), implicit: true };
        let puts = tails.iter().map(|at| {
            let vector = Vector::write().call("refcount", "put", op.to_bytes());
            self.objects.operate(at, vector)
        });
        crate::together::all(puts).await;
    }

    async fn copy_bytes(
        &self,
        from: &BucketAt,
        object: &ObjectAt,
        bucket: &BucketAt,
        mut new: NewHead<'_>,
        class: &str,
    ) -> Result<()> {
        let mut incoming = self.begin(bucket, &new.key, class).await?;
        for read in self.reads(from, object, 0, object.size) {
            let mut pushed = self.read(from, object, &read).await;
            if let Ok(bytes) = &pushed
                && let Err(error) = incoming.push(bytes).await
            {
                pushed = Err(error);
            }
            if let Err(error) = pushed {
                incoming.abandon().await;
                return Err(error);
            }
        }
        if let Err(error) = incoming.flush().await {
            incoming.abandon().await;
            return Err(error);
        }
        let placement = new.manifest.tail_placement.clone();
        let written = incoming.written(self.object_name(bucket, &new.key), &placement);
        (new.data, new.manifest) = (written.head, written.manifest);
        self.write_head(bucket, new).await
    }
}
