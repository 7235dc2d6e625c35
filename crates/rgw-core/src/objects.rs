//! What the sequences need of RADOS: operations on one object, all or nothing, and a few things around them.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;

use types::{Bytes, Errno, OpResult, UTime};

use crate::formats::Pool;

/// An object of RADOS by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Pool and namespace.
    pub pool: Pool,
    /// Its name.
    pub name: String,
    /// What is hashed in place of the name.
    pub locator: Option<String>,
}

impl Place {
    /// An object that is placed by its name.
    #[must_use]
    pub fn new(pool: &Pool, name: impl Into<String>) -> Self {
        Self { pool: pool.clone(), name: name.into(), locator: None }
    }
}

/// One step of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Fails with ENOENT where there is no object.
    AssertExists,
    /// Makes the object; EEXIST where it is there and this is set.
    Create(bool),
    /// Removes it.
    Remove,
    /// Replaces its data.
    WriteFull(Bytes),
    /// Writes bytes at an offset: of coded pools a multiple of [`Objects::alignment`], the object's end.
    Write(u64, Bytes),
    /// Says how large it becomes, in bytes.
    AllocHint(u64),
    /// Sets an attribute.
    SetAttr(String, Bytes),
    /// Removes an attribute.
    RmAttr(String),
    /// ECANCELED unless the attribute has this value.
    CmpAttr(String, Bytes),
    /// ECANCELED unless this number is at least the one in the attribute.
    CmpAttrAtLeast(String, u64),
    /// Calls a method of an object class.
    Call(&'static str, &'static str, Bytes),
    /// Sets pairs of the omap.
    SetPairs(BTreeMap<Bytes, Bytes>),
    /// Removes pairs of the omap by key; ENOENT where there is no object.
    RmPairs(BTreeSet<Bytes>),
    /// Reads bytes: offset, length.
    Read(u64, u64),
    /// Reads size and time.
    Stat,
    /// Reads all attributes.
    Attrs,
    /// Reads pairs of the omap behind a key: key, most.
    Pairs(Bytes, u64),
}

/// What a step answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The step answers nothing.
    None,
    /// Bytes of the object, or what a method returned.
    Data(Bytes),
    /// Size in bytes and time of change.
    Stat(u64, UTime),
    /// Attributes by name.
    Attrs(BTreeMap<String, Bytes>),
    /// Pairs in order, and whether there are more.
    Pairs(BTreeMap<Bytes, Bytes>, bool),
}

/// Steps that happen together or not at all. Methods and reads of attributes see the object as it was before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Vector {
    /// Each step, and whether it may fail alone.
    pub steps: Vec<(Step, bool)>,
    /// Whether it changes the object: methods alone do not tell.
    pub writes: bool,
    /// Whether a vector that writes answers what its methods return: a few hundred bytes each.
    pub returns: bool,
    /// The object's time of change after it, where that is not now.
    pub mtime: Option<UTime>,
}

impl Vector {
    /// A vector that reads.
    #[must_use]
    pub fn read() -> Self {
        Self::default()
    }

    /// A vector that writes.
    #[must_use]
    pub fn write() -> Self {
        Self { writes: true, ..Self::default() }
    }

    /// Adds a step.
    #[must_use]
    pub fn step(mut self, step: Step) -> Self {
        self.steps.push((step, false));
        self
    }

    /// Adds a step whose failure does not end the vector.
    #[must_use]
    pub fn try_step(mut self, step: Step) -> Self {
        self.steps.push((step, true));
        self
    }

    /// Adds a call.
    #[must_use]
    pub fn call(self, class: &'static str, method: &'static str, input: Bytes) -> Self {
        self.step(Step::Call(class, method, input))
    }

    /// Has a vector that writes answer what its methods return.
    #[must_use]
    pub fn returning(mut self) -> Self {
        self.returns = true;
        self
    }

    /// Sets the time of change.
    #[must_use]
    pub fn at(mut self, mtime: UTime) -> Self {
        self.mtime = Some(mtime);
        self
    }
}

/// What a vector answered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answers {
    /// The object's version after it.
    pub version: u64,
    /// By step; of writing vectors empty, unless they return something.
    pub steps: Vec<OpResult<Answer>>,
}

impl Answers {
    /// What step `n` returned as bytes.
    ///
    /// # Errors
    /// The step's errno; EIO where it returned no bytes.
    pub fn data(&self, n: usize) -> OpResult<Bytes> {
        match self.steps.get(n) {
            Some(Ok(Answer::Data(data))) => Ok(data.clone()),
            Some(Err(e)) => Err(*e),
            _ => Err(Errno::IO),
        }
    }

    /// Size and time of step `n`.
    ///
    /// # Errors
    /// As [`Answers::data`].
    pub fn stat(&self, n: usize) -> OpResult<(u64, UTime)> {
        match self.steps.get(n) {
            Some(Ok(Answer::Stat(size, mtime))) => Ok((*size, *mtime)),
            Some(Err(e)) => Err(*e),
            _ => Err(Errno::IO),
        }
    }

    /// Attributes of step `n`.
    ///
    /// # Errors
    /// As [`Answers::data`].
    pub fn attrs(&self, n: usize) -> OpResult<BTreeMap<String, Bytes>> {
        match self.steps.get(n) {
            Some(Ok(Answer::Attrs(attrs))) => Ok(attrs.clone()),
            Some(Err(e)) => Err(*e),
            _ => Err(Errno::IO),
        }
    }

    /// Pairs of step `n`.
    ///
    /// # Errors
    /// As [`Answers::data`].
    pub fn pairs(&self, n: usize) -> OpResult<(BTreeMap<Bytes, Bytes>, bool)> {
        match self.steps.get(n) {
            Some(Ok(Answer::Pairs(pairs, more))) => Ok((pairs.clone(), *more)),
            Some(Err(e)) => Err(*e),
            _ => Err(Errno::IO),
        }
    }
}

/// What a pool is for: it decides how it is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolUse {
    /// Many omap pairs: users, indexes, logs.
    Meta,
    /// Objects' data.
    Data,
}

/// RADOS, as the sequences see it. Clones share one client.
pub trait Objects: Clone + 'static {
    /// Runs a vector on one object.
    ///
    /// The errno is that of the first step that failed and was not allowed to; ENOENT also where the pool is missing.
    fn operate(&self, at: &Place, vector: Vector) -> impl Future<Output = OpResult<Answers>>;

    /// Makes a pool and says that the gateway uses it; done where it is there.
    fn make_pool(&self, pool: &Pool, why: PoolUse) -> impl Future<Output = OpResult<()>>;

    /// Tells all who watch an object, and waits for them a while. ENOENT where there is no such object.
    fn notify(&self, at: &Place, payload: Bytes) -> impl Future<Output = OpResult<()>>;

    /// Names of all objects in a pool's namespace, in no order; none where there is no pool. Costs a look at each of the
    /// pool's PGs.
    fn names(&self, pool: &Pool) -> impl Future<Output = OpResult<Vec<String>>>;

    /// The pool's number; `None` where there is none.
    fn pool_id(&self, pool: &Pool) -> Option<i64>;

    /// What offsets in a pool are multiples of, in bytes.
    fn alignment(&self, pool: &Pool) -> u64;

    /// Waits so many milliseconds.
    fn sleep_ms(&self, ms: u64) -> impl Future<Output = ()>;

    /// The time.
    fn now(&self) -> UTime;

    /// Fills with bytes that nobody can guess.
    fn random(&self, out: &mut [u8]);

    /// The number that the monitors gave this client: it is in the ids of buckets that it makes.
    fn client_id(&self) -> u64;
}
