//! `journal`: the header of a journal (order, sets, tags) and its clients' positions.

use std::collections::BTreeMap;

use bytes::Bytes;
use denc::Denc;
use types::{Errno, OpResult};

use crate::keys::{self, Step, absent, answer, exists, hex_key, hex_of, key, walk};
use crate::{Class, DONE, Object, READS, Reply, STALE, WRITES, method, params, record, stored};

pub(crate) const CLASS: Class = Class {
    name: "journal",
    methods: &[
        method("create", READS | WRITES, create),
        method("get_order", READS, |o, _| get::<u8>(o, ORDER)),
        method("get_splay_width", READS, |o, _| get::<u8>(o, SPLAY_WIDTH)),
        method("get_pool_id", READS, |o, _| get::<i64>(o, POOL_ID)),
        method("get_minimum_set", READS, |o, _| get::<u64>(o, MINIMUM_SET)),
        method("set_minimum_set", READS | WRITES, set_minimum_set),
        method("get_active_set", READS, |o, _| get::<u64>(o, ACTIVE_SET)),
        method("set_active_set", READS | WRITES, set_active_set),
        method("get_client", READS, get_client),
        method("client_register", READS | WRITES, client_register),
        method("client_update_data", READS | WRITES, client_update_data),
        method("client_update_state", READS | WRITES, client_update_state),
        method("client_unregister", READS | WRITES, client_unregister),
        method("client_commit", READS | WRITES, client_commit),
        method("client_list", READS, client_list),
        method("get_next_tag_tid", READS, |o, _| get::<u64>(o, NEXT_TAG_TID)),
        method("get_tag", READS, get_tag),
        method("tag_create", READS | WRITES, tag_create),
        method("tag_list", READS, tag_list),
        // Appends come behind it in the same vector.
        method("guard_append", READS | WRITES, guard_append),
        method("append", READS | WRITES, append),
    ],
};

const ORDER: &[u8] = b"order";
const SPLAY_WIDTH: &[u8] = b"splay_width";
const POOL_ID: &[u8] = b"pool_id";
const MINIMUM_SET: &[u8] = b"minimum_set";
const ACTIVE_SET: &[u8] = b"active_set";
const NEXT_TAG_TID: &[u8] = b"next_tag_tid";
const NEXT_TAG_CLASS: &[u8] = b"next_tag_class";
const CLIENT: &[u8] = b"client_";
const TAG: &str = "tag_";

const DISCONNECTED: u8 = 1;
/// A tag of a class of its own is wanted.
const CLASS_NEW: u64 = u64::MAX;

record! {
    /// `cls::journal::ObjectPosition`.
    Position(1, 1) { object: u64, tag_tid: u64, entry_tid: u64, }
}
record! {
    /// `cls::journal::ObjectSetPosition`: the newest comes first.
    SetPosition(1, 1) { positions: Vec<Position>, }
}
record! {
    /// `cls::journal::Client`.
    Client(1, 1) { id: Bytes, data: Bytes, commit: SetPosition, state: u8, }
}
record! {
    /// `cls::journal::Tag`.
    Tag(1, 1) { tid: u64, class: u64, data: Bytes, }
}

/// As [`keys::read`]; what cannot be decoded is EINVAL here.
fn read<T: Denc>(o: &mut dyn Object, key: &[u8]) -> OpResult<T> {
    params(&o.omap_get(key)?)
}

fn get<T: Denc>(o: &mut dyn Object, key: &[u8]) -> OpResult<Reply> {
    answer(&read::<T>(o, key)?)
}

fn client_key(id: &[u8]) -> Bytes {
    key(CLIENT, id)
}

fn create(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let ((order, splay_width), pool): ((u8, u8), i64) = params(input)?;
    if exists(o, ORDER)? {
        return Err(Errno::EXIST);
    }
    let pair = |key: &'static [u8], value: Bytes| (Bytes::from_static(key), value);
    o.omap_set(vec![
        pair(ORDER, order.to_bytes()),
        pair(SPLAY_WIDTH, splay_width.to_bytes()),
        pair(POOL_ID, pool.to_bytes()),
        pair(ACTIVE_SET, 0u64.to_bytes()),
        pair(MINIMUM_SET, 0u64.to_bytes()),
        pair(NEXT_TAG_TID, 0u64.to_bytes()),
        pair(NEXT_TAG_CLASS, 0u64.to_bytes()),
    ])?;
    Ok(DONE)
}

/// Moves a set on, never back.
fn advance(o: &mut dyn Object, key: &[u8], set: u64) -> OpResult<Reply> {
    let current: u64 = read(o, key)?;
    match set.cmp(&current) {
        std::cmp::Ordering::Less => Err(STALE),
        std::cmp::Ordering::Equal => Ok(DONE),
        std::cmp::Ordering::Greater => keys::write(o, key, &set).map(keys::done),
    }
}

fn set_minimum_set(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let set: u64 = params(input)?;
    if read::<u64>(o, ACTIVE_SET)? < set {
        return Err(Errno::INVAL);
    }
    advance(o, MINIMUM_SET, set)
}

fn set_active_set(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let set: u64 = params(input)?;
    if read::<u64>(o, MINIMUM_SET)? > set {
        return Err(Errno::INVAL);
    }
    advance(o, ACTIVE_SET, set)
}

fn get_client(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let id: Bytes = params(input)?;
    get::<Client>(o, &client_key(&id))
}

/// The position of the client that is furthest behind; empty when one has none.
fn least_position(o: &mut dyn Object) -> OpResult<SetPosition> {
    let mut least: Option<(u64, u64, SetPosition)> = None;
    let mut empty = false;
    walk(o, b"", CLIENT, |_, raw| {
        let client: Client = stored(raw)?;
        let Some(first) = client.commit.positions.first() else {
            empty = true;
            return Ok(Step::Enough);
        };
        let (tag, entry) = (first.tag_tid, first.entry_tid);
        if least.as_ref().is_none_or(|(t, e, _)| (*t, *e) > (tag, entry)) {
            least = Some((tag, entry, client.commit));
        }
        Ok(Step::Next)
    })?;
    Ok(least.filter(|_| !empty).map(|(_, _, p)| p).unwrap_or_default())
}

fn client_register(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let (id, data): (Bytes, Bytes) = params(input)?;
    read::<u8>(o, ORDER)?;
    let key = client_key(&id);
    if exists(o, &key)? {
        return Err(Errno::EXIST);
    }
    let commit = least_position(o)?;
    keys::write(o, &key, &Client { id, data, commit, state: 0 }).map(keys::done)
}

fn client_update_data(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let (id, data): (Bytes, Bytes) = params(input)?;
    let key = client_key(&id);
    let client: Client = read(o, &key)?;
    keys::write(o, &key, &Client { data, ..client }).map(keys::done)
}

fn client_update_state(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let (id, state): (Bytes, u8) = params(input)?;
    let key = client_key(&id);
    let client: Client = read(o, &key)?;
    keys::write(o, &key, &Client { state, ..client }).map(keys::done)
}

fn client_unregister(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let id: Bytes = params(input)?;
    let key = client_key(&id);
    o.omap_get(&key)?;
    keys::remove(o, &key)?;
    expire_tags(o).map(keys::done)
}

fn client_commit(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let (id, commit): (Bytes, SetPosition) = params(input)?;
    let splay_width: u8 = read(o, SPLAY_WIDTH)?;
    if commit.positions.len() > usize::from(splay_width) {
        return Err(Errno::INVAL);
    }
    let key = client_key(&id);
    let client: Client = read(o, &key)?;
    if client.commit == commit {
        return Ok(DONE);
    }
    keys::write(o, &key, &Client { commit, ..client }).map(keys::done)
}

fn client_list(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let (start, max): (Bytes, u64) = params(input)?;
    // Pages end where the omap's do, so that an answer has a bound.
    let start = if start.is_empty() { Bytes::new() } else { client_key(&start) };
    let (pairs, _) = o.omap_page(&start, CLIENT, max)?;
    let clients = pairs.iter().map(|(_, raw)| stored(raw)).collect::<OpResult<Vec<Client>>>()?;
    answer(&clients)
}

fn get_tag(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let tid: u64 = params(input)?;
    get::<Tag>(o, &hex_key(TAG, tid))
}

/// Removes the tags that no client needs: of each class, those before the last one that is
/// not beyond the least position.
fn expire_tags(o: &mut dyn Object) -> OpResult<()> {
    let mut least = u64::MAX;
    let mut uncommitted = false;
    walk(o, b"", CLIENT, |_, raw| {
        let client: Client = stored(raw)?;
        if client.state == DISCONNECTED {
            return Ok(Step::Next);
        }
        uncommitted |= client.commit.positions.is_empty();
        for position in &client.commit.positions {
            least = least.min(position.tag_tid);
        }
        Ok(if uncommitted { Step::Enough } else { Step::Next })
    })?;
    if uncommitted || least == u64::MAX {
        return Ok(());
    }
    let mut tags = Vec::new();
    walk(o, TAG.as_bytes(), TAG.as_bytes(), |key, raw| {
        let tag: Tag = stored(raw)?;
        if hex_of(key, TAG.as_bytes()) != Some(tag.tid) {
            return Err(Errno::INVAL);
        }
        let is_last = tag.tid >= least;
        tags.push((key.clone(), tag.class, tag.tid));
        Ok(if is_last { Step::Enough } else { Step::Next })
    })?;
    let needed: BTreeMap<u64, u64> = tags.iter().map(|(_, class, tid)| (*class, *tid)).collect();
    let gone: Vec<_> =
        tags.into_iter().filter(|(_, class, tid)| *tid < needed[class]).map(|(k, ..)| k).collect();
    if gone.is_empty() { Ok(()) } else { o.omap_rm(gone) }
}

fn tag_create(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let ((tid, mut class), data): ((u64, u64), Bytes) = params(input)?;
    let key = hex_key(TAG, tid);
    if exists(o, &key)? {
        return Err(Errno::EXIST);
    }
    if tid != read::<u64>(o, NEXT_TAG_TID)? {
        return Err(STALE);
    }
    let next_class: u64 = read(o, NEXT_TAG_CLASS)?;
    if class == CLASS_NEW {
        class = next_class;
        keys::write(o, NEXT_TAG_CLASS, &class.wrapping_add(1))?;
    } else if class >= next_class {
        return Err(Errno::INVAL);
    }
    expire_tags(o)?;
    keys::write(o, NEXT_TAG_TID, &tid.wrapping_add(1))?;
    keys::write(o, &key, &Tag { tid, class, data }).map(keys::done)
}

fn tag_list(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    type Op = ((u64, u64), (Bytes, Option<u64>));
    let ((start, max), (client, wanted)): Op = params(input)?;
    let client: Client = read(o, &client_key(&client))?;
    let least = client.commit.positions.iter().map(|p| p.tag_tid).min();
    let mut needed: BTreeMap<u64, u64> = BTreeMap::new();
    if let Some(least) = least {
        walk(o, TAG.as_bytes(), TAG.as_bytes(), |_, raw| {
            let tag: Tag = stored(raw)?;
            needed.insert(tag.class, tag.tid);
            Ok(if tag.tid >= least { Step::Enough } else { Step::Next })
        })?;
    }
    let mut tags: Vec<Tag> = Vec::new();
    walk(o, TAG.as_bytes(), TAG.as_bytes(), |_, raw| {
        let tag: Tag = stored(raw)?;
        let is_new = start == 0 || tag.tid > start;
        let is_needed = tag.tid >= needed.get(&tag.class).copied().unwrap_or(0);
        if is_new && is_needed && wanted.is_none_or(|class| class == tag.class) {
            tags.push(tag);
        }
        Ok(if tags.len() as u64 >= max { Step::Enough } else { Step::Next })
    })?;
    answer(&tags)
}

/// EOVERFLOW once the object is as large as it should be.
fn guard(o: &mut dyn Object, soft_max: u64) -> OpResult<()> {
    match absent(o.stat())? {
        Some((size, _)) if size >= soft_max => Err(Errno::OVERFLOW),
        _ => Ok(()),
    }
}

fn guard_append(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    guard(o, params(input)?).map(keys::done)
}

fn append(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let (soft_max, data): (u64, Bytes) = params(input)?;
    guard(o, soft_max)?;
    let end = absent(o.stat())?.map_or(0, |(size, _)| size);
    o.write(end, data)?;
    Ok(DONE)
}
