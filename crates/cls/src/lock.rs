//! `lock`: advisory locks on an object, each in an attribute `lock.NAME`.

use std::collections::BTreeMap;

use bytes::Bytes;
use denc::Denc;
use types::{EntityAddr, EntityId, Errno, OpResult, UTime};

use crate::{Class, DONE, Object, READS, Reply, WRITES, method, params, record, stored};

pub(crate) const CLASS: Class = Class {
    name: "lock",
    methods: &[
        method("lock", READS | WRITES, lock),
        method("unlock", READS | WRITES, unlock),
        method("break_lock", READS | WRITES, break_lock),
        method("get_info", READS, get_info),
        method("list_locks", READS, list_locks),
        method("assert_locked", READS, assert_locked),
        method("set_cookie", READS | WRITES, set_cookie),
    ],
};

const PREFIX: &[u8] = b"lock.";

/// One locker at a time.
pub const EXCLUSIVE: u8 = 1;
/// Any number of lockers.
pub const SHARED: u8 = 2;
/// As exclusive; the object goes with its last locker.
const EPHEMERAL: u8 = 3;

/// Flag: who has it may take it anew.
pub const MAY_RENEW: u8 = 1;
const MUST_RENEW: u8 = 2;

record! {
    /// Who holds a lock.
    Locker(1, 1) { who: EntityId, cookie: Bytes, }
}
record! {
    /// Since when, from where and what for.
    Info(1, 1) { expires: UTime, addr: EntityAddr, description: Bytes, }
}
record! {
    /// A lock: what the attribute holds, and what `get_info` answers.
    Lock(1, 1) { lockers: BTreeMap<Locker, Info>, kind: u8, tag: Bytes, }
}
record! {
    /// Parameters of `lock`.
    LockOp(1, 1) {
        name: Bytes,
        kind: u8,
        cookie: Bytes,
        tag: Bytes,
        description: Bytes,
        duration: UTime,
        flags: u8,
    }
}
record! {
/// Of `unlock`.
UnlockOp(1, 1) { name: Bytes, cookie: Bytes, } }
record! {
/// Of `break_lock`.
BreakOp(1, 1) { name: Bytes, who: EntityId, cookie: Bytes, } }
record! {
/// Of `get_info`.
NameOp(1, 1) { name: Bytes, } }
record! {
/// Of `assert_locked`.
AssertOp(1, 1) { name: Bytes, kind: u8, cookie: Bytes, tag: Bytes, } }
record! {
    /// Of `set_cookie`.
    SetCookieOp(1, 1) { name: Bytes, kind: u8, cookie: Bytes, tag: Bytes, new_cookie: Bytes, }
}
record! {
/// What `list_locks` answers.
Names(1, 1) { names: Vec<Bytes>, } }

impl PartialOrd for Locker {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Locker {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.who, &self.cookie).cmp(&(other.who, &other.cookie))
    }
}

fn attr(name: &Bytes) -> Bytes {
    [PREFIX, name].concat().into()
}

/// The lock without the lockers whose time is over.
fn read(o: &mut dyn Object, name: &Bytes) -> OpResult<Lock> {
    let mut lock: Lock = match o.attr(&attr(name)) {
        Ok(raw) => stored(&raw)?,
        Err(Errno::NODATA) => return Ok(Lock::default()),
        Err(e) => return Err(e),
    };
    let now = o.now();
    lock.lockers.retain(|_, info| info.expires.is_zero() || info.expires >= now);
    Ok(lock)
}

fn write(o: &mut dyn Object, name: &Bytes, lock: &Lock) -> OpResult<Reply> {
    o.set_attr(&attr(name), lock.to_bytes())?;
    Ok(DONE)
}

fn is_kind(kind: u8) -> bool {
    matches!(kind, EXCLUSIVE | SHARED | EPHEMERAL)
}

fn lock(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let op: LockOp = params(input)?;
    let both = MAY_RENEW | MUST_RENEW;
    if !is_kind(op.kind) || op.name.is_empty() || op.flags & both == both {
        return Err(Errno::INVAL);
    }
    let mut lock = match read(o, &op.name) {
        Err(Errno::NOENT) => Lock::default(),
        other => other?,
    };
    let (id, addr) = o.caller();
    let locker = Locker { who: id, cookie: op.cookie };
    if !lock.lockers.is_empty() && lock.tag != op.tag {
        return Err(Errno::BUSY);
    }
    if lock.lockers.contains_key(&locker) {
        if op.flags & both == 0 {
            return Err(Errno::EXIST);
        }
        lock.lockers.remove(&locker);
    } else if op.flags & MUST_RENEW != 0 {
        return Err(Errno::NOENT);
    }
    if !lock.lockers.is_empty() && (op.kind != SHARED || lock.kind != op.kind) {
        return Err(Errno::BUSY);
    }
    lock.kind = op.kind;
    lock.tag = op.tag;
    let expires = if op.duration.is_zero() {
        UTime::ZERO
    } else {
        UTime::from_nanos(o.now().nanos().saturating_add(op.duration.nanos()))
    };
    lock.lockers.insert(locker, Info { expires, addr, description: op.description });
    write(o, &op.name, &lock)
}

fn remove(o: &mut dyn Object, name: &Bytes, locker: &Locker) -> OpResult<Reply> {
    let mut lock = read(o, name)?;
    lock.lockers.remove(locker).ok_or(Errno::NOENT)?;
    if lock.lockers.is_empty() && lock.kind == EPHEMERAL {
        o.remove()?;
        return Ok(DONE);
    }
    write(o, name, &lock)
}

fn unlock(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let op: UnlockOp = params(input)?;
    let locker = Locker { who: o.caller().0, cookie: op.cookie };
    remove(o, &op.name, &locker)
}

fn break_lock(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let op: BreakOp = params(input)?;
    remove(o, &op.name, &Locker { who: op.who, cookie: op.cookie })
}

fn get_info(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let op: NameOp = params(input)?;
    let lock = read(o, &op.name)?;
    Ok(lock.to_bytes_for(o.features()).into())
}

fn list_locks(o: &mut dyn Object, _: &Bytes) -> OpResult<Reply> {
    let names = o
        .attrs()?
        .into_iter()
        .filter(|(name, _)| name.starts_with(PREFIX))
        .map(|(name, _)| name.slice(PREFIX.len()..))
        .collect();
    Ok(Names { names }.to_bytes().into())
}

/// The lock, if the caller holds it in this way.
fn held(
    o: &mut dyn Object,
    name: &Bytes,
    kind: u8,
    tag: &Bytes,
    cookie: &Bytes,
) -> OpResult<(Lock, Locker)> {
    if !is_kind(kind) || name.is_empty() {
        return Err(Errno::INVAL);
    }
    let lock = read(o, name)?;
    let locker = Locker { who: o.caller().0, cookie: cookie.clone() };
    if lock.kind != kind || lock.tag != *tag || !lock.lockers.contains_key(&locker) {
        return Err(Errno::BUSY);
    }
    Ok((lock, locker))
}

fn assert_locked(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let op: AssertOp = params(input)?;
    held(o, &op.name, op.kind, &op.tag, &op.cookie)?;
    Ok(DONE)
}

fn set_cookie(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let op: SetCookieOp = params(input)?;
    let (mut lock, old) = held(o, &op.name, op.kind, &op.tag, &op.cookie)?;
    let new = Locker { who: old.who, cookie: op.new_cookie };
    if lock.lockers.contains_key(&new) {
        return Err(Errno::BUSY);
    }
    let info = lock.lockers.remove(&old).expect("held");
    lock.lockers.insert(new, info);
    write(o, &op.name, &lock)
}
