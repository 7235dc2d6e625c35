//! `argonaut store`: looks at and changes the store of an OSD that is down.

use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Write};
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use clap::{Args, Subcommand};
use store::{Coll, OpenOptions, Store, StoreError, Transaction};
use types::{HObject, PgId, PoolId, ShardId, SnapId, SpgId};

#[derive(Args)]
pub struct StoreTool {
    /// The data directory of the OSD, which must be down; `rebuild-mon` takes several.
    #[arg(long, required = true)]
    data_path: Vec<PathBuf>,
    /// Look at a store whose log is damaged: what was written before the damage is there, and nothing
    /// that the verb writes stays.
    #[arg(long)]
    past_damage: bool,
    #[command(subcommand)]
    verb: StoreVerb,
}

#[derive(Subcommand)]
enum StoreVerb {
    /// Compare space, references and statistics with what there is.
    Fsck {
        /// Also read and verify all data.
        #[arg(long)]
        deep: bool,
    },
    /// Show the device, its pools and whose store it is; or one object.
    Stat {
        /// The object's PG, as 3.1f.
        #[arg(requires = "object")]
        pg: Option<String>,
        /// The object's name.
        object: Option<String>,
        #[command(flatten)]
        which: Which,
    },
    /// List the collections; or the objects of one.
    List {
        /// A PG, as 3.1f; `meta` is the OSD's own collection.
        pg: Option<String>,
    },
    /// Print what is stored.
    #[command(subcommand)]
    Get(Get),
    /// Change what is stored. The OSD's own records of the object stay: a scrub compares them.
    #[command(subcommand)]
    Set(Set),
    /// Write a PG to a file.
    Export {
        /// The PG.
        pg: String,
        /// The file; - is standard output.
        file: PathBuf,
    },
    /// Bring a PG from a file that `export` wrote.
    Import {
        /// The file; - is standard input.
        file: PathBuf,
        /// Also from another cluster.
        #[arg(long)]
        force: bool,
    },
    /// Make a monitor of what OSDs know, where every monitor is lost.
    RebuildMon(crate::mon_rebuild::Asked),
    /// Write and read objects of the tool's own, then remove them.
    Bench {
        /// Bytes of each write.
        #[arg(long, default_value = "4K", value_parser = crate::size)]
        bytes: u64,
        /// Seconds.
        #[arg(long, default_value_t = 5)]
        secs: u64,
        /// Writes in flight.
        #[arg(long, default_value_t = 16)]
        depth: usize,
    },
}

/// An object, by name.
#[derive(Args)]
struct Named {
    /// Its PG, as 3.1f; `meta` is the OSD's own collection.
    pg: String,
    /// Its name.
    object: String,
    #[command(flatten)]
    which: Which,
}

/// What else tells an object from others.
#[derive(Args, Clone)]
struct Which {
    /// Its namespace.
    #[arg(short = 'N', long, default_value = "")]
    namespace: String,
    /// Its locator key.
    #[arg(long, default_value = "")]
    key: String,
    /// A snapshot's number; the object itself without.
    #[arg(long)]
    snap: Option<u64>,
}

#[derive(Subcommand)]
enum Get {
    /// Its data.
    Bytes {
        #[command(flatten)]
        object: Named,
        /// The file to write; - is standard output.
        #[arg(default_value = "-")]
        file: PathBuf,
    },
    /// Its attributes; of one the value alone. A user's attribute has a _ before its name.
    Attrs {
        #[command(flatten)]
        object: Named,
        /// Only this one.
        name: Option<String>,
    },
    /// Its omap; of one key the value alone.
    Omap {
        #[command(flatten)]
        object: Named,
        /// Only this key.
        name: Option<String>,
    },
}

#[derive(Subcommand)]
enum Set {
    /// Its data, all of it.
    Bytes {
        #[command(flatten)]
        object: Named,
        /// The file to read; - is standard input.
        file: PathBuf,
    },
    /// One attribute.
    Attrs {
        #[command(flatten)]
        object: Named,
        /// Its name as stored: a user's has a _ before it.
        name: String,
        /// Its value; absent to remove it.
        value: Option<String>,
    },
    /// One omap key.
    Omap {
        #[command(flatten)]
        object: Named,
        /// The key.
        name: String,
        /// Its value; absent to remove it.
        value: Option<String>,
    },
}

fn coll(text: &str) -> Result<Coll> {
    if text == "meta" {
        return Ok(Coll::Meta);
    }
    Ok(Coll::Pg(spg(text)?))
}

/// `3.1f`, or `3.1fs0` for a shard.
pub fn spg(text: &str) -> Result<SpgId> {
    let shard = |(pg, shard): (_, &str)| shard.parse().ok().map(|n| (pg, ShardId(n)));
    let (pg, shard) = text.rsplit_once('s').and_then(shard).unwrap_or((text, ShardId::NONE));
    let pg: PgId = pg.parse().map_err(anyhow::Error::msg).with_context(|| text.to_owned())?;
    Ok(SpgId { pg, shard })
}

impl Named {
    fn find(&self) -> Result<(Coll, HObject)> {
        let c = coll(&self.pg)?;
        let pool = match c {
            Coll::Pg(pg) => pg.pg.pool,
            Coll::Meta => PoolId(-1),
        };
        let bytes = |s: &String| Bytes::copy_from_slice(s.as_bytes());
        let o = HObject::head(
            pool,
            bytes(&self.which.namespace),
            bytes(&self.which.key),
            bytes(&self.object),
        );
        Ok((c, self.which.snap.map_or(o.clone(), |snap| o.with_snap(SnapId(snap)))))
    }

    /// The object, which is there.
    fn existing(&self, store: &Store) -> Result<(Coll, HObject)> {
        let (c, o) = self.find()?;
        if !store.collection_exists(c) {
            bail!("no PG {c} in this store");
        }
        if !store.exists(c, &o)? {
            bail!("no object {} in {c}", self.object);
        }
        Ok((c, o))
    }
}

fn open(data: &Path, past_damage: bool) -> Result<(Store, Receiver<()>)> {
    let block = data.join("block");
    if !block.exists() {
        bail!("{} holds no OSD: there is no {}", data.display(), block.display());
    }
    let (sender, woken) = sync_channel(1);
    let waker = Box::new(move || {
        let _ = sender.try_send(());
    });
    let opened = if past_damage {
        Store::look(&block, waker)
    } else {
        Store::open(&block, OpenOptions { waker, ..OpenOptions::default() })
    };
    let store = opened.map_err(|e| match e {
        StoreError::InUse(_) => anyhow::Error::new(e).context("the OSD must be down"),
        StoreError::Corrupt { .. } if !past_damage => anyhow::Error::new(e).context(format!(
            "{}: other copies are whole, or `argonaut store --past-damage` shows what can be read",
            block.display()
        )),
        e => anyhow::Error::new(e).context(block.display().to_string()),
    })?;
    Ok((store, woken))
}

/// Runs it.
///
/// # Errors
/// With what could not be done.
pub fn run(tool: &StoreTool) -> Result<ExitCode> {
    let writes =
        matches!(tool.verb, StoreVerb::Set(_) | StoreVerb::Import { .. } | StoreVerb::Bench { .. });
    if writes && tool.past_damage {
        bail!("with --past-damage nothing is written: export, and make the OSD anew");
    }
    if let StoreVerb::RebuildMon(asked) = &tool.verb {
        crate::mon_rebuild::run(&tool.data_path, tool.past_damage, asked)?;
        return Ok(ExitCode::SUCCESS);
    }
    let [data] = &tool.data_path[..] else { bail!("give --data-path once") };
    let (mut store, woken) = open(data, tool.past_damage)?;
    let out = &mut crate::say::out();
    match &tool.verb {
        StoreVerb::RebuildMon(_) => unreachable!("done above"),
        StoreVerb::Fsck { deep } => return fsck(&mut store, *deep, out),
        StoreVerb::Stat { pg: Some(pg), object: Some(object), which } => {
            let (pg, object, which) = (pg.clone(), object.clone(), which.clone());
            let (c, o) = Named { pg, object, which }.existing(&store)?;
            let stat = store.stat(c, &o)?;
            let omap = store.omap_iter(c, &o, Bound::Unbounded, usize::MAX)?.len();
            writeln!(
                out,
                "{o}: {} bytes, {} allocated, {} attributes, {omap} omap keys",
                stat.size,
                stat.allocated,
                store.get_attrs(c, &o)?.len(),
            )?;
        }
        StoreVerb::Stat { .. } => stat(&store, out)?,
        StoreVerb::List { pg: None } => {
            for c in store.list_collections() {
                writeln!(out, "{c}")?;
            }
        }
        StoreVerb::List { pg: Some(pg) } => {
            let (c, mut from) = (coll(pg)?, HObject::min());
            while !from.max {
                let part = store.list(c, &from, 1000)?;
                for o in &part.objects {
                    writeln!(out, "{o}")?;
                }
                from = part.next;
            }
        }
        StoreVerb::Get(what) => get(&store, what, out)?,
        StoreVerb::Set(what) => {
            set(&mut store, what)?;
            store.close()?;
        }
        StoreVerb::Export { pg, file } => {
            let mut to = writer(file)?;
            let done = store.export(spg(pg)?, &mut to)?;
            tell!(
                "{}: {} objects, {} bytes of data, {} omap pairs, {} keys",
                done.pg,
                done.objects,
                done.bytes,
                done.omap,
                done.keys
            );
        }
        StoreVerb::Import { file, force } => import(&mut store, file, *force)?,
        StoreVerb::Bench { bytes, secs, depth } => {
            bench(&mut store, &woken, (*bytes, *secs, (*depth).max(1)), out)?;
            store.close()?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// What is wrong in the store of an OSD that is down, in sentences.
///
/// # Errors
/// When it cannot be opened, or read.
pub fn errors(data: &Path, deep: bool) -> Result<Vec<String>> {
    Ok(open(data, false)?.0.fsck(deep)?.errors)
}

/// Writes a PG of an OSD that is down to a file.
///
/// # Errors
/// When it is not there, or cannot be written.
pub fn export_pg(data: &Path, pg: &str, file: &Path) -> Result<()> {
    let mut to = writer(file)?;
    open(data, false)?.0.export(spg(pg)?, &mut to)?;
    Ok(to.flush()?)
}

/// Brings a PG to an OSD that is down from a file that [`export_pg`] wrote.
///
/// # Errors
/// When it cannot be read, or, without `force`, is another cluster's.
pub fn import_pg(data: &Path, file: &Path, force: bool) -> Result<()> {
    import(&mut open(data, false)?.0, file, force)
}

/// Removes a PG from an OSD that is down.
///
/// # Errors
/// When it cannot be written.
pub fn remove_pg(data: &Path, pg: &str) -> Result<()> {
    let (mut store, _) = open(data, false)?;
    let mut txn = Transaction::new();
    txn.remove_collection(Coll::Pg(spg(pg)?));
    store.submit(txn)?;
    store.sync()?;
    Ok(store.close()?)
}

/// What is changed of an object; values are read from files, `-` is standard input.
pub enum Change<'a> {
    Bytes(&'a Path),
    SetAttr(&'a str, &'a Path),
    RemoveAttr(&'a str),
    SetOmap(&'a str, &'a Path),
    RemoveOmap(&'a str),
}

/// The OSD maps in the store of an OSD that is down; nothing is written.
///
/// # Errors
/// When it cannot be opened, or a map is missing or damaged.
pub fn maps(data: &Path, past_damage: bool) -> Result<Option<osd::KeptMaps>> {
    let backing = osd::StoreBacking::new(open(data, past_damage)?.0, osd::DataCache::default());
    let maps = osd::KeptMaps::load(&backing).map_err(anyhow::Error::msg);
    maps.with_context(|| data.display().to_string())
}

/// The open store of an OSD that is down.
pub struct Look(Store);

impl Look {
    /// Opens it.
    ///
    /// # Errors
    /// When there is none, or the OSD runs.
    pub fn open(data: &Path) -> Result<Self> {
        Ok(Self(open(data, false)?.0))
    }

    /// Its collections.
    pub fn collections(&self) -> Vec<Coll> {
        self.0.list_collections().into_iter().collect()
    }

    /// Whether it has the PG, or `meta`.
    ///
    /// # Errors
    /// When the name is none.
    pub fn has(&self, pg: &str) -> Result<bool> {
        Ok(self.0.collection_exists(coll(pg)?))
    }

    /// The objects of a collection, in their order.
    ///
    /// # Errors
    /// What the store says.
    pub fn objects(&self, c: Coll) -> Result<Vec<HObject>> {
        let (mut all, mut from) = (Vec::new(), HObject::min());
        while !from.max {
            let part = self.0.list(c, &from, 1000)?;
            all.extend(part.objects);
            from = part.next;
        }
        Ok(all)
    }

    /// Its space.
    pub fn statfs(&self) -> store::StatFs {
        self.0.statfs()
    }

    /// Writes an object's data to a file.
    ///
    /// # Errors
    /// When it cannot be read or written.
    pub fn get_bytes(&self, (c, o): &(Coll, HObject), file: &Path) -> Result<()> {
        copy_bytes(&self.0, *c, o, file)
    }

    /// The names of an object's attributes, or of its omap keys.
    ///
    /// # Errors
    /// What the store says.
    pub fn names(&self, (c, o): &(Coll, HObject), omap: bool) -> Result<Vec<String>> {
        let mut names = Vec::new();
        if omap {
            self.0.omap_walk(*c, o, Bound::Unbounded, &mut |k, _| {
                names.push(show(k));
                true
            })?;
        } else {
            names.extend(self.0.get_attrs(*c, o)?.into_keys().map(|k| show(&k)));
        }
        Ok(names)
    }

    /// Prints the value of an attribute, or of an omap key.
    ///
    /// # Errors
    /// When there is none.
    pub fn value(&self, (c, o): &(Coll, HObject), name: &str, omap: bool) -> Result<()> {
        let value = if omap {
            let key = Bytes::copy_from_slice(name.as_bytes());
            self.0.omap_get_keys(*c, o, &[key])?.into_values().next()
        } else {
            self.0.get_attr(*c, o, name.as_bytes())?
        };
        let value =
            value.with_context(|| format!("getattr: '{name}': no such attribute or key"))?;
        Ok(crate::say::out().write_all(&value)?)
    }

    /// Changes an object, durably.
    ///
    /// # Errors
    /// When the file cannot be read, or the store says so.
    pub fn change(mut self, (c, o): &(Coll, HObject), change: Change<'_>) -> Result<()> {
        let bytes = |text: &str| Bytes::copy_from_slice(text.as_bytes());
        let file = |path: &Path| -> Result<Bytes> {
            let mut data = Vec::new();
            reader(path)?.read_to_end(&mut data)?;
            Ok(data.into())
        };
        let mut txn = Transaction::new();
        match change {
            Change::Bytes(path) => replace_bytes(&mut txn, *c, o, &file(path)?),
            Change::SetAttr(name, path) => {
                txn.set_attr(*c, o, bytes(name), file(path)?);
            }
            Change::RemoveAttr(name) => {
                txn.rm_attr(*c, o, bytes(name));
            }
            Change::SetOmap(name, path) => {
                txn.omap_set(*c, o, [(bytes(name), file(path)?)]);
            }
            Change::RemoveOmap(name) => {
                txn.omap_rm_keys(*c, o, [bytes(name)]);
            }
        }
        self.0.submit(txn)?;
        self.0.sync()?;
        Ok(self.0.close()?)
    }
}

fn fsck(store: &mut Store, deep: bool, out: &mut impl Write) -> Result<ExitCode> {
    let report = store.fsck(deep)?;
    for error in &report.errors {
        writeln!(out, "error: {error}")?;
    }
    let n = report.errors.len();
    writeln!(out, "{} objects, {} bytes verified, {n} errors", report.objects, report.verified)?;
    Ok(if n == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn stat(store: &Store, out: &mut impl Write) -> Result<()> {
    let (fsid, osd, uuid) = store.identity();
    let s = store.statfs();
    writeln!(out, "osd.{} of cluster {fsid}, incarnation {uuid}", osd.0)?;
    writeln!(
        out,
        "bytes: {} in all, {} used, {} available; {} of data take {}, {} of omap, {} internal",
        s.total, s.used, s.available, s.stored, s.allocated, s.omap, s.internal
    )?;
    for (pool, p) in &s.pools {
        writeln!(
            out,
            "pool {pool}: {} objects, {} bytes of data take {}",
            p.objects, p.stored, p.allocated
        )?;
    }
    Ok(())
}

fn writer(file: &Path) -> Result<BufWriter<Box<dyn Write>>> {
    let to: Box<dyn Write> = if file == Path::new("-") {
        Box::new(crate::say::out())
    } else {
        Box::new(crate::target::output(file)?)
    };
    Ok(BufWriter::with_capacity(1 << 20, to))
}

fn reader(file: &Path) -> Result<Box<dyn Read>> {
    if file == Path::new("-") {
        return Ok(Box::new(std::io::stdin()));
    }
    let file = File::open(file).with_context(|| file.display().to_string())?;
    Ok(Box::new(BufReader::with_capacity(1 << 20, file)))
}

fn show(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string()
}

fn copy_bytes(store: &Store, c: Coll, o: &HObject, file: &Path) -> Result<()> {
    let size = store.stat(c, o)?.size;
    let (mut to, mut at) = (writer(file)?, 0);
    while at < size {
        let data = store.read(c, o, at, 4 << 20)?;
        to.write_all(&data)?;
        at += data.len() as u64;
    }
    Ok(to.flush()?)
}

fn get(store: &Store, what: &Get, out: &mut impl Write) -> Result<()> {
    match what {
        Get::Bytes { object, file } => {
            let (c, o) = object.existing(store)?;
            copy_bytes(store, c, &o, file)?;
        }
        Get::Attrs { object, name: Some(name) } => {
            let (c, o) = object.existing(store)?;
            let value = store.get_attr(c, &o, name.as_bytes())?;
            out.write_all(&value.with_context(|| format!("no attribute {name}"))?)?;
        }
        Get::Attrs { object, name: None } => {
            let (c, o) = object.existing(store)?;
            for (k, v) in store.get_attrs(c, &o)? {
                writeln!(out, "{}\t{}", show(&k), show(&v))?;
            }
        }
        Get::Omap { object, name: Some(name) } => {
            let (c, o) = object.existing(store)?;
            let key = Bytes::copy_from_slice(name.as_bytes());
            let found = store.omap_get_keys(c, &o, &[key])?;
            let value = found.into_values().next();
            out.write_all(&value.with_context(|| format!("no omap key {name}"))?)?;
        }
        Get::Omap { object, name: None } => {
            let (c, o) = object.existing(store)?;
            let mut failed = None;
            store.omap_walk(c, &o, Bound::Unbounded, &mut |k, v| {
                failed = writeln!(out, "{}\t{}", show(k), show(v)).err();
                failed.is_none()
            })?;
            failed.map_or(Ok(()), Err)?;
        }
    }
    Ok(())
}

/// Bytes of data in one transaction.
const PART: usize = 4 << 20;

/// All of it in one transaction, so that nobody meets half of it.
fn replace_bytes(txn: &mut Transaction, c: Coll, o: &HObject, data: &Bytes) {
    txn.touch(c, o).truncate(c, o, 0).truncate(c, o, data.len() as u64);
    for (i, at) in (0..data.len()).step_by(PART).enumerate() {
        let part = data.slice(at..data.len().min(at + PART));
        txn.write(c, o, (i * PART) as u64, part);
    }
}

fn set(store: &mut Store, what: &Set) -> Result<()> {
    let value = |v: &String| Bytes::copy_from_slice(v.as_bytes());
    let mut txn = Transaction::new();
    match what {
        Set::Bytes { object, file } => {
            let (c, o) = object.find()?;
            if !store.collection_exists(c) {
                bail!("no PG {c} in this store");
            }
            let mut data = Vec::new();
            reader(file)?.read_to_end(&mut data)?;
            let data = Bytes::from(data);
            replace_bytes(&mut txn, c, &o, &data);
        }
        Set::Attrs { object, name, value: Some(v) } => {
            let (c, o) = object.existing(store)?;
            txn.set_attr(c, &o, value(name), value(v));
        }
        Set::Attrs { object, name, value: None } => {
            let (c, o) = object.existing(store)?;
            txn.rm_attr(c, &o, value(name));
        }
        Set::Omap { object, name, value: Some(v) } => {
            let (c, o) = object.existing(store)?;
            txn.omap_set(c, &o, [(value(name), value(v))]);
        }
        Set::Omap { object, name, value: None } => {
            let (c, o) = object.existing(store)?;
            txn.omap_rm_keys(c, &o, [value(name)]);
        }
    }
    store.submit(txn)?;
    Ok(store.sync()?)
}

fn import(store: &mut Store, file: &Path, force: bool) -> Result<()> {
    let done = store.import(&mut reader(file)?, force).map_err(|e| match e {
        StoreError::Foreign { .. } => {
            anyhow::Error::new(e).context("--force brings it all the same")
        }
        e => e.into(),
    })?;
    tell!(
        "{} from osd.{}: {} objects, {} bytes of data, {} omap pairs, {} keys",
        done.pg,
        done.osd.0,
        done.objects,
        done.bytes,
        done.omap,
        done.keys
    );
    Ok(store.checkpoint()?)
}

/// A collection that no cluster has.
const BENCH: SpgId = SpgId { pg: PgId { pool: PoolId(i64::MAX), ps: 0 }, shard: ShardId::NONE };

#[allow(clippy::disallowed_methods, reason = "a bench asks for the time")]
fn bench(
    store: &mut Store,
    woken: &Receiver<()>,
    (bytes, secs, depth): (u64, u64, usize),
    out: &mut impl Write,
) -> Result<()> {
    if bytes == 0 || bytes > 64 << 20 {
        bail!("a write has 1 byte to 64 MiB");
    }
    let mut txn = Transaction::new();
    txn.remove_collection(BENCH).create_collection(BENCH);
    store.submit(txn)?;
    let mut data = vec![0; bytes as usize];
    env::Random::fill(&mut env::Seeded(bytes), &mut data);
    let data = Bytes::from(data);
    // So many that they take a quarter of what is free at most.
    let objects = (store.statfs().available / 4 / (bytes.max(4096) + 4096)).clamp(1, 10_000);
    let object = |n: u64| {
        let name = Bytes::from(format!("bench{}", n % objects));
        HObject::head(BENCH.pg.pool, Bytes::new(), Bytes::new(), name)
    };
    let report = |out: &mut dyn Write, what: &str, ops: u64, secs: f64| {
        let (rate, mib) = (ops as f64 / secs, (ops * bytes) as f64 / secs / 1_048_576.0);
        writeln!(out, "{what}: {ops} in {secs:.2} s, {rate:.0}/s, {mib:.1} MiB/s")
    };
    let start = Instant::now();
    let (mut ops, mut flying) = (0u64, std::collections::VecDeque::new());
    while start.elapsed().as_secs() < secs {
        let mut txn = Transaction::new();
        txn.write(BENCH, &object(ops), 0, data.clone());
        flying.push_back(store.submit(txn)?);
        ops += 1;
        while flying.len() >= depth && flying.front().is_some_and(|seq| *seq > store.durable()) {
            let _ = woken.recv_timeout(Duration::from_millis(100));
        }
        let durable = store.complete()?;
        while flying.front().is_some_and(|seq| *seq <= durable) {
            flying.pop_front();
        }
    }
    store.sync()?;
    report(out, "durable writes", ops, start.elapsed().as_secs_f64())?;
    store.checkpoint()?;
    let (start, written, mut reads) = (Instant::now(), ops.min(objects), 0u64);
    while start.elapsed().as_secs() < secs.div_ceil(2) {
        let n = reads.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
        store.read(BENCH, &object(n % written), 0, bytes)?;
        reads += 1;
    }
    report(out, "random reads, one at a time", reads, start.elapsed().as_secs_f64())?;
    let mut txn = Transaction::new();
    txn.remove_collection(BENCH);
    store.submit(txn)?;
    Ok(store.sync()?)
}
