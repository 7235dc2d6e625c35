//! `fifo`: a queue over several objects. One holds what the queue is (the meta object), the
//! others hold entries in order (parts); clients keep a journal of parts to make and to
//! remove in the first.
//!
//! ```text
//! part: 0                512
//!       | header ...     | entry | entry | ...
//! entry: magic u64, 44 u64, header length u64, data length u64, index u64, 0 u32,
//!        header (its time), data
//! ```
//!
//! Parts and their methods had tags once; now these are empty on the wire, and not looked at.

use std::collections::BTreeMap;

use bytes::Bytes;
use denc::{DecodeError, Denc, Reader, Writer};
use types::{Errno, OpResult, UTime};

use crate::keys::answer;
use crate::{Class, DONE, Object, READS, Reply, WRITES, method, params, record, stored};

pub(crate) const CLASS: Class = Class {
    name: "fifo",
    methods: &[
        method("create_meta", READS | WRITES, create_meta),
        method("get_meta", READS, get_meta),
        method("update_meta", READS | WRITES, update_meta),
        method("init_part", READS | WRITES, init_part),
        method("push_part", READS | WRITES, push_part),
        method("trim_part", READS | WRITES, trim_part),
        method("part_list", READS, list_part),
        method("get_part_info", READS, part_info),
    ],
};

/// Room of a part's header, bytes.
const PART_HEADER_ROOM: u64 = 512;
/// Bytes before an entry's own header.
const PRE_HEADER: u64 = 44;
/// Bytes that an entry takes beyond its data.
const OVERHEAD: u32 = PRE_HEADER as u32 + 14;
/// Entries that one listing gives at most.
const LIST_MAX: i32 = 512;
/// Bytes that one listing gives at most, so that it ends.
const LISTED_BYTES_MAX: u64 = 64 << 20;

record! {
    /// `fifo::objv`: the version of the meta object.
    Version(1, 1) { instance: Bytes, ver: u64, }
}
record! {
    /// `fifo::data_params`.
    Params(1, 1) { part_size_max: u64, entry_size_max: u64, full_size_threshold: u64, }
}
record! {
    /// `fifo::info`; the two fields before the journal are no longer in use.
    Info(1, 1) {
        id: Bytes,
        version: Version,
        prefix: Bytes,
        params: Params,
        tail: i64,
        head: i64,
        min_push: i64,
        max_push: i64,
        tags: BTreeMap<i64, Bytes>,
        head_tag: Bytes,
        journal: Vec<(i64, Step)>,
    }
}
record! {
    /// `fifo::part_header`.
    Part(1, 1) {
        tag: Bytes,
        params: Params,
        magic: u64,
        min_ofs: u64,
        last_ofs: u64,
        next_ofs: u64,
        min_index: u64,
        max_index: u64,
        max_time: UTime,
    }
}
record! { EntryHeader(1, 1) { mtime: UTime, } }
record! {
    CreateMeta(1, 1) {
        id: Bytes,
        version: Option<Version>,
        pool_name: Bytes,
        pool_ns: Bytes,
        prefix: Option<Bytes>,
        part_size_max: u64,
        entry_size_max: u64,
        exclusive: bool,
    }
}
record! { GetMeta(1, 1) { version: Option<Version>, } }
record! { Meta(1, 1) { info: Info, part_header_size: u32, part_entry_overhead: u32, } }
record! {
    UpdateMeta(1, 1) {
        version: Version,
        tail: Option<i64>,
        head: Option<i64>,
        min_push: Option<i64>,
        max_push: Option<i64>,
        add: Vec<Step>,
        rm: Vec<Step>,
    }
}
record! { InitPart(1, 1) { tag: Bytes, params: Params, } }
record! { PushPart(1, 1) { tag: Bytes, data: Vec<Bytes>, total_len: u64, } }
record! { TrimPart(1, 1) { tag: Option<Bytes>, ofs: u64, exclusive: bool, } }
record! { ListPart(1, 1) { tag: Option<Bytes>, ofs: u64, max: i32, } }
record! { Entry(1, 1) { data: Bytes, ofs: u64, mtime: UTime, } }
record! { Listed(1, 1) { tag: Bytes, entries: Vec<Entry>, more: bool, is_full: bool, } }
record! { PartInfo(1, 1) { part: Part, } }

/// `fifo::journal_entry`: a part to create (1), to make the head (2), to remove (3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Step {
    pub op: i32,
    pub part: i64,
}

impl Denc for Step {
    fn encode(&self, w: &mut Writer) {
        w.framed(1, 1, |w| {
            self.op.encode(w);
            self.part.encode(w);
            Bytes::new().encode(w); // a tag, once
        });
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("fifo::journal_entry", 1, |r, _| {
            let (op, part) = (Denc::decode(r)?, Denc::decode(r)?);
            let _tag: Bytes = Denc::decode(r)?;
            r.require((1..=3).contains(&op) && part >= 0, "a step of a part that may be")?;
            Ok(Self { op, part })
        })
    }
}

impl Part {
    fn is_full(&self) -> bool {
        self.next_ofs > self.params.full_size_threshold
    }
}

/// Letters and digits by chance.
fn name_by_chance(o: &mut dyn Object, len: usize) -> Vec<u8> {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut raw = vec![0; len];
    o.random(&mut raw);
    raw.iter().map(|b| ALPHABET[usize::from(b % 64)]).collect()
}

/// The meta object; ECANCELED when it has another version than the one that is meant.
fn read_meta(o: &mut dyn Object, version: Option<&Version>) -> OpResult<Info> {
    let (size, _) = o.stat()?;
    let raw = o.read(0, size)?;
    if raw.is_empty() {
        return Err(Errno::NODATA);
    }
    let info: Info = stored(&raw)?;
    match version {
        Some(version) if *version != info.version => Err(Errno::CANCELED),
        _ => Ok(info),
    }
}

fn create_meta(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let op: CreateMeta = params(input)?;
    let sizes_fit = op.entry_size_max > 0 && op.entry_size_max <= op.part_size_max;
    if op.id.is_empty() || !sizes_fit {
        return Err(Errno::INVAL);
    }
    match o.stat() {
        Ok(_) if op.exclusive => return Err(Errno::EXIST),
        Ok((size, _)) => {
            let old: Info = stored(&o.read(0, size)?)?;
            let same = old.id == op.id
                && op.prefix.is_none_or(|prefix| prefix == old.prefix)
                && op.version.is_none_or(|version| version == old.version);
            return if same { Ok(DONE) } else { Err(Errno::EXIST) };
        }
        Err(Errno::NOENT) => {}
        Err(e) => return Err(e),
    }
    let version = match op.version {
        Some(version) => version,
        None => Version { instance: name_by_chance(o, 16).into(), ver: 1 },
    };
    let prefix = match op.prefix {
        Some(prefix) => prefix,
        None => [&op.id[..], b".", &name_by_chance(o, 12)].concat().into(),
    };
    let info = Info {
        id: op.id,
        version,
        prefix,
        params: Params {
            part_size_max: op.part_size_max,
            entry_size_max: op.entry_size_max,
            // As the peer's, it may wrap around: such a part is never full by its size.
            full_size_threshold: op
                .part_size_max
                .wrapping_sub(op.entry_size_max)
                .wrapping_sub(u64::from(OVERHEAD)),
        },
        head: -1,
        max_push: -1,
        ..Info::default()
    };
    o.write_full(info.to_bytes())?;
    Ok(DONE)
}

fn get_meta(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let op: GetMeta = params(input)?;
    let info = read_meta(o, op.version.as_ref())?;
    let part_header_size = PART_HEADER_ROOM as u32;
    answer(&Meta { info, part_header_size, part_entry_overhead: OVERHEAD })
}

fn update_meta(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let op: UpdateMeta = params(input)?;
    if op.version.instance.is_empty() {
        return Err(Errno::INVAL);
    }
    let old = read_meta(o, Some(&op.version))?;
    let mut info = old.clone();
    let set = |to: &mut i64, value: Option<i64>| *to = value.unwrap_or(*to);
    set(&mut info.tail, op.tail);
    set(&mut info.min_push, op.min_push);
    set(&mut info.max_push, op.max_push);
    set(&mut info.head, op.head);
    let mut journal: Vec<Step> = info.journal.iter().map(|(_, step)| *step).collect();
    journal.extend(op.add);
    journal.sort_unstable();
    journal.dedup();
    journal.retain(|step| !op.rm.contains(step));
    info.journal = journal.into_iter().map(|step| (step.part, step)).collect();
    if info != old {
        info.version.ver += 1;
        o.write_full(info.to_bytes())?;
    }
    Ok(DONE)
}

fn read_part(o: &mut dyn Object) -> OpResult<Part> {
    stored(&o.read(0, PART_HEADER_ROOM)?)
}

fn write_part(o: &mut dyn Object, part: &Part) -> OpResult<Reply> {
    let raw = part.to_bytes();
    if raw.len() as u64 > PART_HEADER_ROOM {
        return Err(Errno::IO);
    }
    o.write(0, raw)?;
    Ok(DONE)
}

fn init_part(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let op: InitPart = params(input)?;
    match o.stat() {
        Ok((size, _)) if size > 0 => {
            let same = read_part(o)?.params == op.params;
            return if same { Ok(DONE) } else { Err(Errno::EXIST) };
        }
        Ok(_) | Err(Errno::NOENT) => {}
        Err(e) => return Err(e),
    }
    let mut magic = [0; 8];
    o.random(&mut magic);
    let part = Part {
        params: op.params,
        magic: u64::from_le_bytes(magic),
        min_ofs: PART_HEADER_ROOM,
        next_ofs: PART_HEADER_ROOM,
        max_time: o.now(),
        ..Part::default()
    };
    write_part(o, &part)
}

/// Gives how many entries found room.
fn push_part(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let op: PushPart = params(input)?;
    let mut part = read_part(o)?;
    let total: u64 = op.data.iter().map(|data| data.len() as u64).sum();
    let all = op.data.len() as u64 * u64::from(OVERHEAD) + total;
    if total != op.total_len || all > part.params.part_size_max {
        return Err(Errno::INVAL);
    }
    if part.is_full() {
        return Err(Errno::RANGE);
    }
    let mtime = o.now();
    let header = EntryHeader { mtime }.to_bytes();
    let at = part.next_ofs;
    let mut w = Writer::with_capacity(o.features(), all as usize);
    let mut pushed = 0;
    for data in &op.data {
        if part.is_full() {
            break;
        }
        w.u64(part.magic);
        w.u64(PRE_HEADER);
        w.u64(header.len() as u64);
        w.u64(data.len() as u64);
        w.u64(part.max_index);
        w.u32(0);
        w.raw(&header);
        w.raw(data);
        part.last_ofs = part.next_ofs;
        part.next_ofs += PRE_HEADER + (header.len() + data.len()) as u64;
        part.max_index += 1;
        pushed += 1;
    }
    if pushed == 0 {
        return Err(FAULT); // nothing was given
    }
    part.max_time = mtime;
    o.write(at, w.finish())?;
    write_part(o, &part)?;
    Ok(Reply { value: pushed, data: Bytes::new() })
}

const FAULT: Errno = Errno(-14);

/// An entry as it lies in a part.
struct Found {
    index: u64,
    mtime: UTime,
    data: Bytes,
    /// Where the next one begins.
    end: u64,
}

/// The entry at `at`; ERANGE where there is none.
fn entry_at(o: &mut dyn Object, part: &Part, at: u64) -> OpResult<Found> {
    if at >= part.next_ofs {
        return Err(Errno::NOENT);
    }
    let raw = o.read(at, PRE_HEADER)?;
    let mut r = Reader::new(&raw);
    let mut next = || r.u64().map_err(|_| Errno::RANGE);
    let (magic, pre, header_len, data_len, index) = (next()?, next()?, next()?, next()?, next()?);
    let len = pre.checked_add(header_len).and_then(|n| n.checked_add(data_len));
    let len = len.filter(|len| *len <= part.next_ofs - at);
    let Some(len) = len.filter(|_| magic == part.magic) else { return Err(Errno::RANGE) };
    let body = o.read(at + pre, header_len + data_len)?;
    if body.len() as u64 != header_len + data_len {
        return Err(Errno::RANGE);
    }
    let header: EntryHeader = stored(&body.slice(..header_len as usize))?;
    let data = body.slice(header_len as usize..);
    Ok(Found { index, mtime: header.mtime, data, end: at + len })
}

fn trim_part(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let op: TrimPart = params(input)?;
    let mut part = read_part(o)?;
    if op.ofs < part.min_ofs || op.exclusive && op.ofs == part.min_ofs {
        return Ok(DONE);
    }
    if op.ofs >= part.next_ofs {
        if part.is_full() {
            // Nothing will be pushed any more, and all is trimmed.
            o.remove()?;
            return Ok(DONE);
        }
        part.min_ofs = part.next_ofs;
        part.min_index = part.max_index;
    } else {
        let found = entry_at(o, &part, op.ofs)?;
        if op.exclusive {
            (part.min_ofs, part.min_index) = (op.ofs, found.index);
        } else {
            (part.min_ofs, part.min_index) = (found.end, found.index + 1);
        }
    }
    write_part(o, &part)
}

fn list_part(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let op: ListPart = params(input)?;
    let part = read_part(o)?;
    let mut at = op.ofs.max(part.min_ofs);
    if op.ofs >= part.min_ofs && at < part.next_ofs {
        at = entry_at(o, &part, at)?.end; // entries behind the one that is named
    }
    let mut listed = Listed { is_full: part.is_full(), ..Listed::default() };
    let mut bytes = 0;
    let max = op.max.clamp(0, LIST_MAX) as usize;
    while at < part.next_ofs && listed.entries.len() < max && bytes < LISTED_BYTES_MAX {
        let found = entry_at(o, &part, at)?;
        bytes += found.data.len() as u64;
        listed.entries.push(Entry { data: found.data, ofs: at, mtime: found.mtime });
        at = found.end;
    }
    listed.more = at < part.next_ofs;
    answer(&listed)
}

fn part_info(o: &mut dyn Object, _: &Bytes) -> OpResult<Reply> {
    answer(&PartInfo { part: read_part(o)? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::Mem;

    fn pushed(o: &mut Mem, data: &[&'static [u8]]) -> OpResult<i32> {
        let data: Vec<Bytes> = data.iter().map(|d| Bytes::from_static(d)).collect();
        let total_len = data.iter().map(|d| d.len() as u64).sum();
        let op = PushPart { tag: Bytes::new(), data, total_len };
        o.call("fifo", "push_part", &op.to_bytes()).map(|reply| reply.value)
    }

    fn list(o: &mut Mem, ofs: u64, max: i32) -> Listed {
        o.ask("fifo", "part_list", &ListPart { tag: None, ofs, max }).unwrap()
    }

    /// A part takes entries until it is full, lists those behind a place, trims, and goes
    /// when it is full and all of it is trimmed.
    #[test]
    fn a_part_lives() {
        let mut o = Mem::new();
        let params = Params { part_size_max: 1000, entry_size_max: 100, full_size_threshold: 800 };
        let init = InitPart { tag: Bytes::new(), params: params.clone() };
        o.run("fifo", "init_part", &init).unwrap();
        o.run("fifo", "init_part", &init).unwrap();
        let other = InitPart { params: Params::default(), ..init };
        assert_eq!(o.run("fifo", "init_part", &other), Err(Errno::EXIST));

        assert_eq!(pushed(&mut o, &[b"a", b"bb"]), Ok(2));
        assert_eq!(pushed(&mut o, &[b"ccc", b"dddd"]), Ok(2));
        assert_eq!(pushed(&mut o, &[&[7; 1000]]), Err(Errno::INVAL));
        assert_eq!(pushed(&mut o, &[]), Err(FAULT));
        let all = list(&mut o, 0, 100);
        let data: Vec<&[u8]> = all.entries.iter().map(|e| &e.data[..]).collect();
        assert_eq!(data, [&b"a"[..], b"bb", b"ccc", b"dddd"]);
        assert!(!all.more && !all.is_full);
        assert!(list(&mut o, 0, 3).more);
        let behind = list(&mut o, all.entries[1].ofs, 1);
        assert_eq!(&behind.entries[0].data[..], b"ccc");

        let trim = |ofs, exclusive| TrimPart { tag: None, ofs, exclusive };
        o.run("fifo", "trim_part", &trim(all.entries[1].ofs, true)).unwrap();
        assert_eq!(list(&mut o, 0, 9).entries.len(), 3);
        o.run("fifo", "trim_part", &trim(all.entries[1].ofs, false)).unwrap();
        assert_eq!(list(&mut o, 0, 9).entries.len(), 2);
        assert_eq!(
            o.run("fifo", "trim_part", &trim(all.entries[3].ofs + 1, false)),
            Err(Errno::RANGE)
        );
        assert_eq!(pushed(&mut o, &[b"e"]), Ok(1));
        assert_eq!(pushed(&mut o, &[b"f"]), Err(Errno::RANGE));
        let info: PartInfo = o.ask("fifo", "get_part_info", &Bytes::new()).unwrap();
        assert_eq!((info.part.min_index, info.part.max_index), (2, 5));
        o.run("fifo", "trim_part", &trim(info.part.next_ofs, false)).unwrap();
        assert!(!o.is_there);
    }

    /// The meta object changes only for who knows its version, and only once.
    #[test]
    fn meta_is_versioned() {
        let mut o = Mem::new();
        let create = CreateMeta {
            id: Bytes::from_static(b"q"),
            part_size_max: 4096,
            entry_size_max: 64,
            ..CreateMeta::default()
        };
        let bad = CreateMeta { entry_size_max: 5000, ..create.clone() };
        assert_eq!(o.run("fifo", "create_meta", &bad), Err(Errno::INVAL));
        o.run("fifo", "create_meta", &create).unwrap();
        o.run("fifo", "create_meta", &create).unwrap();
        let exclusive = CreateMeta { exclusive: true, ..create.clone() };
        assert_eq!(o.run("fifo", "create_meta", &exclusive), Err(Errno::EXIST));

        let meta: Meta = o.ask("fifo", "get_meta", &GetMeta::default()).unwrap();
        assert_eq!((meta.info.head, meta.part_entry_overhead), (-1, 58));
        assert!(meta.info.prefix.starts_with(b"q."));
        let step = Step { op: 1, part: 0 };
        let update = UpdateMeta {
            version: meta.info.version.clone(),
            head: Some(0),
            add: vec![step, step],
            ..UpdateMeta::default()
        };
        o.run("fifo", "update_meta", &update).unwrap();
        assert_eq!(o.run("fifo", "update_meta", &update), Err(Errno::CANCELED));
        let meta: Meta = o.ask("fifo", "get_meta", &GetMeta::default()).unwrap();
        assert_eq!(meta.info.journal, [(0, step)]);
        assert_eq!(meta.info.version.ver, update.version.ver + 1);
        let old = GetMeta { version: Some(update.version) };
        assert_eq!(o.run("fifo", "get_meta", &old), Err(Errno::CANCELED));
        o.refuses_short_input("fifo", &["create_meta", "get_meta", "init_part", "push_part"]);
    }
}
