//! A store as simple as can be, and random work for both.

#![allow(dead_code)] // each test uses a part

pub mod explore;

use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::PathBuf;

use bytes::Bytes;
use env::{Random, Seeded};
use store::{Algorithm, Coll, Compression, Store, Transaction};
use types::{HObject, PgId, PoolId, ShardId, SnapId, SpgId};

/// A directory for one test, gone with it.
pub struct Dir(pub PathBuf);

impl Dir {
    pub fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("store-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).unwrap();
        Self(dir)
    }

    pub fn block(&self) -> PathBuf {
        self.0.join("block")
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Object {
    pub data: Bytes,
    pub attrs: BTreeMap<Bytes, Bytes>,
    pub omap: BTreeMap<Bytes, Bytes>,
    pub header: Bytes,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Collection {
    pub objects: BTreeMap<HObject, Object>,
    pub keys: BTreeMap<Bytes, Bytes>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Model {
    pub colls: BTreeMap<Coll, Collection>,
}

pub struct Dice {
    pub random: Seeded,
    /// Much of the data repeats itself.
    pub repeats: bool,
}

impl Dice {
    pub fn new(seed: u64) -> Self {
        let random = Seeded(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5555);
        Self { random, repeats: false }
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.random.u64() % n.max(1)
    }

    pub fn bytes(&mut self, n: usize) -> Bytes {
        let mut out = vec![0; n];
        self.random.fill(&mut out);
        if self.repeats && n > 4096 && self.below(4) > 0 {
            let word = 1 + self.below(2000) as usize;
            let from = self.below(n as u64 / 2) as usize;
            for at in from + word..n {
                out[at] = out[at - word];
            }
        }
        out.into()
    }

    fn short(&mut self) -> Bytes {
        let n = self.below(40) as usize;
        self.bytes(n)
    }

    /// Offsets and lengths that like the edges of blocks.
    fn place(&mut self, max: u64) -> u64 {
        let near = [0, 1, 4095, 4096, 4097, 65_535, 65_536][self.below(7) as usize];
        let n = match self.below(4) {
            0 => self.below(max),
            1 => self.below(max / 4096 + 1) * 4096,
            2 => near,
            _ => self.below(9000),
        };
        n.min(max)
    }
}

/// Compresses all that it takes from now on.
pub fn compress(store: &mut Store, algorithm: Algorithm) {
    let how = Compression {
        algorithm,
        unasked: true,
        always: false,
        required_ratio: 0.875,
        part: 64 << 10,
        least: 8192,
    };
    store.set_compression(PoolId(1), Some(how));
}

/// The algorithm of a seed, for every other one.
pub fn algorithm(seed: u64) -> Option<Algorithm> {
    let all = [Algorithm::Snappy, Algorithm::Zstd, Algorithm::Lz4];
    (seed % 2 == 1).then(|| all[(seed / 2 % 3) as usize])
}

fn pg(n: u32) -> Coll {
    Coll::Pg(SpgId { pg: PgId::new(1, n), shard: ShardId::NONE })
}

fn splice(data: &Bytes, off: usize, with: &[u8], size: usize) -> Bytes {
    let mut out = data.to_vec();
    out.resize(size.max(data.len()), 0);
    out[off..off + with.len()].copy_from_slice(with);
    out.into()
}

/// Sizes of data in a workload.
#[derive(Clone, Copy)]
pub struct Scale {
    pub objects: u64,
    pub size: u64,
}

impl Model {
    fn object(&mut self, c: Coll, o: &HObject) -> &mut Object {
        let coll = self.colls.get_mut(&c).expect("chosen from what there is");
        coll.objects.entry(o.clone()).or_default()
    }

    /// The object is this data, and nothing else.
    pub fn put(&mut self, c: Coll, o: &HObject, data: Bytes) {
        *self.object(c, o) = Object { data, ..Object::default() };
    }

    fn some_object(&self, dice: &mut Dice, c: Coll) -> Option<HObject> {
        let objects = &self.colls[&c].objects;
        let n = dice.below(objects.len() as u64) as usize;
        objects.keys().nth(n).cloned()
    }

    /// A random transaction, applied here.
    pub fn random(&mut self, dice: &mut Dice, scale: Scale) -> Transaction {
        let mut txn = Transaction::new();
        if self.colls.is_empty() {
            txn.create_collection(pg(0));
            self.colls.entry(pg(0)).or_default();
        }
        for _ in 0..=dice.below(4) {
            self.random_op(dice, &mut txn, scale);
        }
        txn
    }

    /// A transaction that takes space, applied here.
    pub fn random_fill(&mut self, dice: &mut Dice, scale: Scale) -> Transaction {
        let mut txn = Transaction::new();
        if self.colls.is_empty() {
            txn.create_collection(pg(0));
            self.colls.entry(pg(0)).or_default();
        }
        let c = *self.colls.keys().next().expect("one at least");
        let name = Bytes::from(format!("o{}", dice.below(scale.objects)));
        let o = HObject::head(PoolId(1), Bytes::new(), Bytes::new(), name);
        let x = self.object(c, &o);
        let len = scale.size / 2 + dice.below(scale.size / 2);
        let (off, data) = (x.data.len(), dice.bytes(len as usize));
        x.data = splice(&x.data, off, &data, off + data.len());
        txn.write(c, &o, off as u64, data);
        txn
    }

    /// Whole blocks of large data, which may be on the device before their transaction.
    pub fn random_blocks(&mut self, dice: &mut Dice, scale: Scale) -> Transaction {
        let mut txn = Transaction::new();
        let Some(c) = self.colls.keys().next().copied() else { return txn };
        let name = Bytes::from(format!("o{}", dice.below(scale.objects)));
        let o = HObject::head(PoolId(1), Bytes::new(), Bytes::new(), name);
        let off = dice.place(scale.size) & !4095;
        let blocks = 16 + dice.below(9) as usize;
        let data = dice.bytes(blocks << 12);
        let x = self.object(c, &o);
        x.data = splice(&x.data, off as usize, &data, off as usize + data.len());
        txn.write(c, &o, off, data);
        txn
    }

    #[allow(clippy::too_many_lines)] // one arm for each kind of change
    fn random_op(&mut self, dice: &mut Dice, txn: &mut Transaction, scale: Scale) {
        let n = dice.below(self.colls.len() as u64) as usize;
        let c = *self.colls.keys().nth(n).unwrap();
        let name = Bytes::from(format!("o{}", dice.below(scale.objects)));
        let mut o = HObject::head(PoolId(1), Bytes::new(), Bytes::new(), name);
        // Several PGs hold any object here: which one is the caller's affair.
        if dice.below(4) == 0 {
            o.snap = SnapId(dice.below(3));
        }
        let size = scale.size;
        match dice.below(40) {
            0..=9 => {
                let (off, len) = (dice.place(size), dice.place(6000).max(1));
                let data = dice.bytes(len as usize);
                let x = self.object(c, &o);
                x.data = splice(&x.data, off as usize, &data, (off + len) as usize);
                txn.write(c, &o, off, data);
            }
            10..=12 => {
                let (off, len) = (dice.place(size), dice.place(size).max(1));
                let data = dice.bytes(len as usize);
                let x = self.object(c, &o);
                x.data = splice(&x.data, off as usize, &data, (off + len) as usize);
                txn.write(c, &o, off, data);
            }
            13 => {
                let len = dice.place(size) as usize;
                let data = dice.bytes(len);
                self.object(c, &o).data = data.clone();
                txn.write_full(c, &o, data);
            }
            14..=15 => {
                let (off, len) = (dice.place(size), dice.place(size));
                let x = self.object(c, &o);
                if len > 0 {
                    let zeros = vec![0; len as usize];
                    x.data = splice(&x.data, off as usize, &zeros, (off + len) as usize);
                }
                txn.zero(c, &o, off, len);
            }
            16..=17 => {
                let size = dice.place(size);
                let x = self.object(c, &o);
                let mut data = x.data.to_vec();
                data.resize(size as usize, 0);
                x.data = data.into();
                txn.truncate(c, &o, size);
            }
            18..=19 => {
                self.colls.get_mut(&c).unwrap().objects.remove(&o);
                txn.remove(c, &o);
            }
            20..=22 => {
                if let Some(src) = self.some_object(dice, c) {
                    if src != o {
                        let copy = self.object(c, &src).clone();
                        *self.object(c, &o) = copy;
                    }
                    txn.clone_object(c, &src, &o);
                }
            }
            23..=25 => {
                if let Some(src) = self.some_object(dice, c) {
                    let data = self.object(c, &src).data.clone();
                    let from = dice.place(data.len() as u64);
                    let len = dice.place(data.len() as u64 - from);
                    let to = dice.place(size);
                    let x = self.object(c, &o);
                    let part = &data[from as usize..(from + len) as usize];
                    if len > 0 {
                        x.data = splice(&x.data, to as usize, part, (to + len) as usize);
                    }
                    txn.clone_range(c, &src, &o, from, len, to).touch(c, &o);
                }
            }
            26 => {
                if let Some(src) = self.some_object(dice, c)
                    && src != o
                {
                    let coll = self.colls.get_mut(&c).unwrap();
                    let x = coll.objects.remove(&src).unwrap();
                    coll.objects.insert(o.clone(), x);
                    txn.rename(c, &src, &o);
                }
            }
            27..=29 => {
                let (k, v) = (Bytes::from(format!("a{}", dice.below(4))), dice.short());
                self.object(c, &o).attrs.insert(k.clone(), v.clone());
                txn.set_attr(c, &o, k, v);
            }
            30 => {
                let k = Bytes::from(format!("a{}", dice.below(4)));
                self.object(c, &o).attrs.remove(&k);
                txn.rm_attr(c, &o, k);
            }
            31..=32 => {
                let key = |d: &mut Dice| Bytes::from(format!("k{}", d.below(20)));
                let pairs: Vec<_> = (0..5).map(|_| (key(dice), dice.short())).collect();
                self.object(c, &o).omap.extend(pairs.iter().cloned());
                txn.omap_set(c, &o, pairs);
            }
            33 => {
                let k = Bytes::from(format!("k{}", dice.below(20)));
                let x = self.object(c, &o);
                if dice.below(2) == 0 {
                    x.omap.remove(&k);
                    txn.omap_rm_keys(c, &o, [k]);
                } else {
                    let end = Bytes::from(format!("k{}", dice.below(20)));
                    x.omap.retain(|key, _| *key < k || *key >= end);
                    txn.omap_rm_range(c, &o, k, end);
                }
            }
            34 => {
                let header = dice.short();
                self.object(c, &o).header = header.clone();
                txn.omap_set_header(c, &o, header);
            }
            35 => {
                let x = self.object(c, &o);
                x.omap.clear();
                x.header = Bytes::new();
                txn.omap_clear(c, &o);
            }
            36..=37 => {
                let keys = &mut self.colls.get_mut(&c).unwrap().keys;
                let k = Bytes::from(format!("log{}", dice.below(50)));
                match dice.below(4) {
                    0 => {
                        keys.remove(&k);
                        txn.coll_rm(c, k);
                    }
                    1 => {
                        keys.retain(|key, _| *key >= k);
                        txn.coll_rm_range(c, "", k);
                    }
                    _ => {
                        let v = dice.short();
                        keys.insert(k.clone(), v.clone());
                        txn.coll_set(c, k, v);
                    }
                }
            }
            38 => self.random_collection_op(dice, txn, c),
            _ => {
                self.object(c, &o);
                txn.touch(c, &o);
            }
        }
    }

    fn random_collection_op(&mut self, dice: &mut Dice, txn: &mut Transaction, c: Coll) {
        let other = pg(dice.below(4) as u32);
        let Coll::Pg(pg) = other else { unreachable!() };
        match dice.below(4) {
            0 => {
                self.colls.entry(other).or_default();
                txn.create_collection(other);
            }
            1 if self.colls.len() > 1 => {
                self.colls.remove(&c);
                txn.remove_collection(c);
            }
            2 if self.colls.contains_key(&other) && c != other => {
                let all = std::mem::take(&mut self.colls.get_mut(&c).unwrap().objects);
                self.colls.get_mut(&other).unwrap().objects.extend(all);
                txn.merge_collection(c, other);
            }
            3 if self.colls.contains_key(&other) && c != other => {
                let all = std::mem::take(&mut self.colls.get_mut(&c).unwrap().objects);
                let (go, stay): (Vec<_>, Vec<_>) =
                    all.into_iter().partition(|(o, _)| o.hash & 3 == pg.pg.ps & 3);
                self.colls.get_mut(&c).unwrap().objects.extend(stay);
                self.colls.get_mut(&other).unwrap().objects.extend(go);
                txn.split_collection(c, pg, 2);
            }
            _ => {}
        }
    }
}

/// What differs; `None` when the store holds just this.
pub fn difference(store: &Store, model: &Model) -> Option<String> {
    let colls: Vec<Coll> = model.colls.keys().copied().collect();
    if store.list_collections() != colls {
        return Some(format!("collections {:?}, not {colls:?}", store.list_collections()));
    }
    for (c, coll) in &model.colls {
        let (c, mut from, mut names) = (*c, HObject::min(), Vec::new());
        while !from.max {
            let part = store.list(c, &from, 7).unwrap();
            names.extend(part.objects);
            from = part.next;
        }
        if !names.iter().eq(coll.objects.keys()) {
            return Some(format!("{c} lists {names:?}, not {:?}", coll.objects.keys()));
        }
        let keys = store.coll_iter(c, Bound::Unbounded, 1000).unwrap();
        if !keys.iter().map(|(k, v)| (k, v)).eq(&coll.keys) {
            return Some(format!("{c} has keys {keys:?}, not {:?}", coll.keys));
        }
        for (o, x) in &coll.objects {
            let size = store.stat(c, o).unwrap().size;
            let data = match store.read(c, o, 0, u64::MAX) {
                Ok(data) => data,
                Err(e) => return Some(format!("{c} {o}: {e}")),
            };
            if size != x.data.len() as u64 || data != x.data {
                let at = data.iter().zip(&x.data).position(|(a, b)| a != b);
                let want = x.data.len();
                return Some(format!("{c} {o}: size {size}, not {want}; differs at {at:?}"));
            }
            let (from, len) = (size / 3, size / 2);
            let part = store.read(c, o, from, len).unwrap();
            if part != x.data[from as usize..(from + len) as usize] {
                return Some(format!("{c} {o}: part {from}~{len} differs"));
            }
            let mut hole = 0;
            for (at, len) in store.fiemap(c, o, 0, u64::MAX).unwrap().into_iter().chain([(size, 0)])
            {
                // By pieces that compare as memory: a loop over bytes takes long unoptimised.
                let zeros = [0; 4096];
                let gap = x.data[hole as usize..at as usize].chunks(4096);
                if gap.into_iter().any(|part| *part != zeros[..part.len()]) {
                    return Some(format!("{c} {o}: data in a hole"));
                }
                hole = at + len;
            }
            if store.get_attrs(c, o).unwrap() != x.attrs {
                return Some(format!("{c} {o}: attributes differ"));
            }
            let omap = store.omap_iter(c, o, Bound::Unbounded, 1000).unwrap();
            if !omap.iter().map(|(k, v)| (k, v)).eq(&x.omap) {
                return Some(format!("{c} {o}: omap {omap:?}, not {:?}", x.omap));
            }
            if store.omap_get_header(c, o).unwrap() != x.header {
                return Some(format!("{c} {o}: omap header differs"));
            }
        }
    }
    None
}

/// Seeds of this run: `STORE_SEED` for one, `STORE_SEEDS` for how many from `STORE_FIRST` on.
pub fn seeds(default: u64) -> std::ops::Range<u64> {
    let number = |name| std::env::var(name).ok().and_then(|v| v.parse::<u64>().ok());
    match number("STORE_SEED") {
        Some(seed) => seed..seed + 1,
        None => {
            let first = number("STORE_FIRST").unwrap_or(0);
            first..first + number("STORE_SEEDS").unwrap_or(default)
        }
    }
}
