//! A collection as a stream of bytes, for carrying it to another store.
//!
//! Eight bytes `ARGOEXPT`, u32 format, then parts: u8 kind, u32 length, u32 crc32c of the
//! kind and the body, body. The form of each stands in `docs/formats/store.md`.

use std::io::{Read, Write};
use std::ops::Bound;

use bytes::Bytes;
use denc::{DecodeError, Denc, Features, Reader, Writer};
use types::{HObject, OsdId, SpgId, Uuid};

use crate::{Coll, Store, StoreError, Transaction};

type Result<T> = std::result::Result<T, StoreError>;

const MAGIC: [u8; 8] = *b"ARGOEXPT";
const FORMAT: u32 = 1;
/// Bytes of data, or of pairs, in one part, about.
const PART: u64 = 1 << 20;
/// No part is larger.
const PART_MAX: u32 = 64 << 20;

const HEAD: u8 = 1;
const OBJECT: u8 = 2;
const DATA: u8 = 3;
const ATTRS: u8 = 4;
const OMAP_HEADER: u8 = 5;
const OMAP: u8 = 6;
const KEYS: u8 = 7;
const END: u8 = 8;

/// What a stream held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exported {
    /// The PG.
    pub pg: SpgId,
    /// Of which cluster.
    pub fsid: Uuid,
    /// From which OSD.
    pub osd: OsdId,
    /// Objects, clones among them.
    pub objects: u64,
    /// Bytes of data, without holes.
    pub bytes: u64,
    /// Omap pairs.
    pub omap: u64,
    /// Keys of the collection.
    pub keys: u64,
}

type Pairs = Vec<(Bytes, Bytes)>;

struct Out<'a> {
    to: &'a mut dyn Write,
}

impl Out<'_> {
    fn raw(&mut self, bytes: &[u8]) -> Result<()> {
        self.to.write_all(bytes).map_err(StoreError::io("writing the export"))
    }

    fn part(&mut self, kind: u8, body: impl FnOnce(&mut Writer)) -> Result<()> {
        let mut w = Writer::new(Features::ALL);
        body(&mut w);
        let body = w.finish();
        let len = u32::try_from(body.len()).ok().filter(|n| *n <= PART_MAX);
        let len = len.ok_or(StoreError::Invalid("a part of the export is too large"))?;
        self.raw(&[kind])?;
        self.raw(&len.to_le_bytes())?;
        self.raw(&crc(kind, &body).to_le_bytes())?;
        self.raw(&body)
    }

    fn pairs(&mut self, kind: u8, pairs: &mut Pairs) -> Result<u64> {
        let n = pairs.len() as u64;
        if n > 0 {
            self.part(kind, |w| pairs.encode(w))?;
            pairs.clear();
        }
        Ok(n)
    }
}

fn crc(kind: u8, body: &[u8]) -> u32 {
    stdx::crc32c(stdx::crc32c(!0, &[kind]), body)
}

fn bytes_of(pairs: &Pairs) -> u64 {
    pairs.iter().map(|(k, v)| (k.len() + v.len() + 8) as u64).sum()
}

/// What a walk gave for one part, and where to go on.
fn collect(
    walk: impl FnOnce(&mut dyn FnMut(&[u8], &Bytes) -> bool) -> Result<()>,
) -> Result<(Pairs, Option<Bytes>)> {
    let (mut pairs, mut bytes, mut more) = (Pairs::new(), 0, false);
    walk(&mut |k, v| {
        more = bytes >= PART;
        if !more {
            bytes += (k.len() + v.len() + 8) as u64;
            pairs.push((Bytes::copy_from_slice(k), v.clone()));
        }
        !more
    })?;
    let last = if more { pairs.last().map(|(k, _)| k.clone()) } else { None };
    Ok((pairs, last))
}

impl Store {
    /// Writes a PG's collection to `to`: objects with data, attributes and omap, then the
    /// collection's keys. What clones share is in there once for each.
    ///
    /// # Errors
    /// [`StoreError::NoCollection`], [`StoreError::Corrupt`], [`StoreError::Io`]: what was
    /// written so far is no export.
    pub fn export(&self, pg: SpgId, to: &mut dyn Write) -> Result<Exported> {
        let c = Coll::Pg(pg);
        if !self.collection_exists(c) {
            return Err(StoreError::NoCollection(c));
        }
        let (fsid, osd, _) = self.identity();
        let mut done = Exported { pg, fsid, osd, ..Exported::default() };
        let mut out = Out { to };
        out.raw(&MAGIC)?;
        out.raw(&FORMAT.to_le_bytes())?;
        out.part(HEAD, |w| {
            fsid.encode(w);
            osd.encode(w);
            pg.encode(w);
        })?;
        let mut from = HObject::min();
        while !from.max {
            let listing = self.list(c, &from, 256)?;
            for o in &listing.objects {
                self.export_object(c, o, &mut out, &mut done)?;
            }
            from = listing.next;
        }
        let mut after = None;
        loop {
            let start = after.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
            let (mut pairs, next) = collect(|f| self.coll_walk(c, start, Bound::Unbounded, f))?;
            done.keys += out.pairs(KEYS, &mut pairs)?;
            after = next;
            if after.is_none() {
                break;
            }
        }
        out.part(END, |w| {
            for n in [done.objects, done.bytes, done.omap, done.keys] {
                w.u64(n);
            }
        })?;
        out.to.flush().map_err(StoreError::io("writing the export"))?;
        Ok(done)
    }

    fn export_object(
        &self,
        c: Coll,
        o: &HObject,
        out: &mut Out<'_>,
        done: &mut Exported,
    ) -> Result<()> {
        let size = self.stat(c, o)?.size;
        out.part(OBJECT, |w| {
            o.encode(w);
            w.u64(size);
        })?;
        done.objects += 1;
        for (at, len) in self.fiemap(c, o, 0, size)? {
            let (mut at, end) = (at, at + len);
            while at < end {
                let data = self.read(c, o, at, PART.min(end - at))?;
                out.part(DATA, |w| {
                    w.u64(at);
                    w.blob(&data);
                })?;
                done.bytes += data.len() as u64;
                at += data.len() as u64;
            }
        }
        out.pairs(ATTRS, &mut self.get_attrs(c, o)?.into_iter().collect())?;
        let header = self.omap_get_header(c, o)?;
        if !header.is_empty() {
            out.part(OMAP_HEADER, |w| w.blob(&header))?;
        }
        let mut after: Option<Bytes> = None;
        loop {
            let start = after.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
            let (mut pairs, next) = collect(|f| self.omap_walk(c, o, start, f))?;
            done.omap += out.pairs(OMAP, &mut pairs)?;
            after = next;
            if after.is_none() {
                return Ok(());
            }
        }
    }

    /// Makes a PG's collection of what [`Store::export`] wrote, and makes it durable. Its
    /// keys come last, in one transaction: a collection without keys is an import that was
    /// cut off, which the next one begins anew.
    ///
    /// # Errors
    /// [`StoreError::Invalid`] when the PG is there already, [`StoreError::Foreign`] when it
    /// is another cluster's and not `any_cluster`, [`StoreError::Format`] when the
    /// stream is cut off or damaged, and what [`Store::submit`] says. The collection is gone
    /// again then, as far as that is possible.
    pub fn import(&mut self, from: &mut dyn Read, any_cluster: bool) -> Result<Exported> {
        let mut source = In { from, at: 0 };
        let mut done = source.head()?;
        let (mine, ..) = self.identity();
        if done.fsid != mine && !any_cluster {
            return Err(StoreError::Foreign { found: done.fsid, mine });
        }
        let c = Coll::Pg(done.pg);
        let mut txn = Transaction::new();
        if self.collection_exists(c) {
            if !self.coll_iter(c, Bound::Unbounded, 1)?.is_empty() {
                return Err(StoreError::Invalid("the PG is in this store already"));
            }
            txn.remove_collection(c);
        }
        txn.create_collection(c);
        self.submit(txn)?;
        let result = self.import_parts(c, &mut source, &mut done).and_then(|()| self.sync());
        if let Err(e) = result {
            let mut txn = Transaction::new();
            txn.remove_collection(c);
            if self.submit(txn).is_ok() {
                self.sync()?;
            }
            return Err(e);
        }
        Ok(done)
    }

    fn import_parts(&mut self, c: Coll, source: &mut In<'_>, done: &mut Exported) -> Result<()> {
        let mut keys = Pairs::new();
        let mut object: Option<(HObject, u64)> = None;
        loop {
            let (kind, body) = source.part()?;
            let mut r = Reader::shared(&body);
            let broken = |e: DecodeError| StoreError::Format(format!("the export: {e}"));
            let mut txn = Transaction::new();
            match (kind, &object) {
                (OBJECT, _) => {
                    let (o, size) =
                        HObject::decode(&mut r).and_then(|o| Ok((o, r.u64()?))).map_err(broken)?;
                    txn.touch(c, &o).truncate(c, &o, size);
                    done.objects += 1;
                    object = Some((o, size));
                }
                (DATA, Some((o, size))) => {
                    let (at, data) = r.u64().and_then(|at| Ok((at, r.blob()?))).map_err(broken)?;
                    if at.checked_add(data.len() as u64).is_none_or(|end| end > *size) {
                        return Err(StoreError::Format("the export: data behind its end".into()));
                    }
                    done.bytes += data.len() as u64;
                    txn.write(c, o, at, data);
                }
                (ATTRS, Some((o, _))) => {
                    txn.set_attrs(c, o, Pairs::decode(&mut r).map_err(broken)?);
                }
                (OMAP_HEADER, Some((o, _))) => {
                    txn.omap_set_header(c, o, r.blob().map_err(broken)?);
                }
                (OMAP, Some((o, _))) => {
                    let pairs = Pairs::decode(&mut r).map_err(broken)?;
                    done.omap += pairs.len() as u64;
                    txn.omap_set(c, o, pairs);
                }
                (KEYS, _) => {
                    let pairs = Pairs::decode(&mut r).map_err(broken)?;
                    done.keys += pairs.len() as u64;
                    keys.extend(pairs);
                    if bytes_of(&keys) > u64::from(PART_MAX) {
                        return Err(StoreError::Format("the export: too many keys".into()));
                    }
                }
                (END, _) => {
                    for n in [done.objects, done.bytes, done.omap, done.keys] {
                        if r.u64().map_err(broken)? != n {
                            let what = "the export: its end counts other things than it holds";
                            return Err(StoreError::Format(what.into()));
                        }
                    }
                    for (k, v) in keys {
                        txn.coll_set(c, k, v);
                    }
                    return self.submit(txn).map(drop);
                }
                _ => return Err(StoreError::Format(format!("the export: part {kind} here"))),
            }
            if !txn.is_empty() {
                self.submit(txn)?;
            }
        }
    }
}

struct In<'a> {
    from: &'a mut dyn Read,
    at: u64,
}

impl In<'_> {
    fn fill(&mut self, buf: &mut [u8]) -> Result<()> {
        self.from.read_exact(buf).map_err(|e| match e.kind() {
            std::io::ErrorKind::UnexpectedEof => {
                StoreError::Format(format!("the export is cut off at byte {}", self.at))
            }
            _ => StoreError::io("reading the export")(e),
        })?;
        self.at += buf.len() as u64;
        Ok(())
    }

    fn head(&mut self) -> Result<Exported> {
        let mut raw = [0; 12];
        self.fill(&mut raw)?;
        if raw[..8] != MAGIC {
            return Err(StoreError::Format("not an export of a PG".into()));
        }
        let found = u32::from_le_bytes(raw[8..].try_into().expect("four bytes"));
        if found > FORMAT {
            return Err(StoreError::NewerFormat { found, known: FORMAT });
        }
        let (kind, body) = self.part()?;
        let mut r = Reader::shared(&body);
        let head = Uuid::decode(&mut r)
            .and_then(|fsid| Ok((fsid, OsdId::decode(&mut r)?, SpgId::decode(&mut r)?)));
        match head {
            Ok((fsid, osd, pg)) if kind == HEAD => {
                Ok(Exported { fsid, osd, pg, ..Exported::default() })
            }
            _ => Err(StoreError::Format("the export does not begin with its head".into())),
        }
    }

    fn part(&mut self) -> Result<(u8, Bytes)> {
        let at = self.at;
        let mut head = [0; 9];
        self.fill(&mut head)?;
        let word = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().expect("four"));
        let (kind, len, want) = (head[0], word(1), word(5));
        if len > PART_MAX {
            return Err(StoreError::Format(format!("the export is damaged at byte {at}")));
        }
        // Memory only for what is there.
        let mut body = Vec::new();
        let read = self.from.take(u64::from(len)).read_to_end(&mut body);
        read.map_err(StoreError::io("reading the export"))?;
        self.at += body.len() as u64;
        if body.len() as u32 != len {
            return Err(StoreError::Format(format!("the export is cut off at byte {}", self.at)));
        }
        if crc(kind, &body) != want {
            return Err(StoreError::Format(format!("the export is damaged at byte {at}")));
        }
        Ok((kind, body.into()))
    }
}
