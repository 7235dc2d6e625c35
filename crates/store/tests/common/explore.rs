//! Power cuts, explored: a workload runs on a disk that records; then, for each interval
//! between two flushes, disks are made that did any part of what was not flushed, and each
//! is opened and judged. The workload goes on, on one of them, so that the log of one life
//! lies under that of the next. Or the process alone ended: then the next one finds all that
//! was written, and the power may still take what was not flushed.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use env::{Disk, Random};
use store::{
    Algorithm, Coll, DiskEvent, LogPlacement, MkfsOptions, OpenOptions, Seq, SimDisk, Store,
    StoreError, Transaction,
};
use types::Uuid;

use super::{Dice, Model, Scale, algorithm, compress, difference};

/// How much is tried.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Times the power goes, or the process ends, and the work goes on.
    pub lives: u64,
    /// Steps of work in each.
    pub steps: u64,
    /// States tried for each interval between two flushes, about.
    pub states: u64,
}

/// What was seen.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    /// Contents of a disk that were opened and judged.
    pub states: u64,
    /// Those among them left by a cut while opening.
    pub recoveries: u64,
    /// Intervals between two flushes.
    pub intervals: u64,
    pub transactions: u64,
    /// Transactions refused because the store was full.
    pub refused: u64,
    pub checkpoints: u64,
    pub merges: u64,
    /// Collections removed, and steps of work before which some were not swept.
    pub removals: u64,
    pub sweeping: u64,
    /// States judged with some of a removed collection left.
    pub half_swept: u64,
    /// Transactions all of whose large data was there before them.
    pub ahead: u64,
    /// Lives that begin with something of the last one not flushed.
    pub unflushed: u64,
}

impl Seen {
    pub fn add(&mut self, other: &Self) {
        self.states += other.states;
        self.recoveries += other.recoveries;
        self.intervals += other.intervals;
        self.transactions += other.transactions;
        self.refused += other.refused;
        self.checkpoints += other.checkpoints;
        self.merges += other.merges;
        self.removals += other.removals;
        self.sweeping += other.sweeping;
        self.half_swept += other.half_swept;
        self.ahead += other.ahead;
        self.unflushed += other.unflushed;
    }
}

/// What kind of work a seed does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Mixed,
    /// Checkpoints all the time, so that tables merge.
    Compacting,
    /// Few objects, small writes into the same blocks.
    Overwriting,
    /// A device that holds hardly more than what lives.
    Full,
    /// Data that goes to extents, clones of it.
    Large,
}

struct Plan {
    kind: Kind,
    log: LogPlacement,
    size: u64,
    scale: Scale,
    discard: bool,
    algorithm: Option<Algorithm>,
    sweep_objects: usize,
    map_changes_bytes: u64,
    table_cache_bytes: u64,
}

impl Plan {
    fn new(seed: u64, dice: &mut Dice) -> Self {
        let kind = [Kind::Mixed, Kind::Compacting, Kind::Overwriting, Kind::Full, Kind::Large]
            [(seed % 5) as usize];
        let (size, objects, bytes) = match kind {
            Kind::Mixed => (64 << 20, 3 + dice.below(12), 4096 << dice.below(7)),
            Kind::Compacting => (48 << 20, 4 + dice.below(20), 4096 << dice.below(3)),
            Kind::Overwriting => (48 << 20, 1 + dice.below(3), 4096 << dice.below(5)),
            Kind::Full => (11 << 20, 24, 262_144),
            Kind::Large => (64 << 20, 3 + dice.below(6), 262_144 << dice.below(2)),
        };
        let log = match seed / 5 % 4 {
            1 => LogPlacement::Own,
            3 => LogPlacement::Memory,
            _ => LogPlacement::Device,
        };
        let discard = seed % 3 == 1;
        let algorithm = algorithm(seed / 2);
        dice.repeats = algorithm.is_some();
        let scale = Scale { objects, size: bytes };
        let sweep_objects = 1 + dice.below(3) as usize;
        // The whole map in each checkpoint, or many behind one another.
        let map_changes_bytes = [0, 64 << 10, 8 << 10][(seed / 7 % 3) as usize];
        // Indices of tables that stay in memory, or are read each time.
        let table_cache_bytes = [16 << 20, 0][(seed / 11 % 2) as usize];
        Self {
            kind,
            log,
            size,
            scale,
            discard,
            algorithm,
            sweep_objects,
            map_changes_bytes,
            table_cache_bytes,
        }
    }
}

const LOG: u64 = 1 << 20;

/// The store's device, and the log's where it has its own: parts of one disk, so that
/// writes to both stand in one order.
fn parts(disk: &Arc<SimDisk>, plan: &Plan) -> (Arc<dyn Disk>, Option<Arc<dyn Disk>>) {
    if plan.log != LogPlacement::Own {
        return (disk.clone(), None);
    }
    let log = disk.part(plan.size, LOG + 4096);
    (Arc::new(disk.part(0, plan.size)), Some(Arc::new(log)))
}

fn open(disk: &Arc<SimDisk>, plan: &Plan) -> Result<Store, StoreError> {
    let Plan { discard, sweep_objects, map_changes_bytes, table_cache_bytes, .. } = *plan;
    let options = OpenOptions {
        threads: false,
        discard,
        sweep_objects,
        map_changes_bytes,
        table_cache_bytes,
        ..OpenOptions::default()
    };
    let (disk, log) = parts(disk, plan);
    let mut store = Store::open_with(disk, log, options)?;
    if let Some(algorithm) = plan.algorithm {
        compress(&mut store, algorithm);
    }
    Ok(store)
}

/// What is durable after a flush goes to the platter; the rest stays pending.
fn flush(event: &DiskEvent, pending: &mut Vec<DiskEvent>, platter: &SimDisk) {
    let part = match event {
        DiskEvent::FlushPart(off, len) => *off..off + len,
        _ => 0..u64::MAX,
    };
    // Of two writes to one place the older does not come later.
    pending.retain(|e| {
        let DiskEvent::Write(off, data) = e else { return true };
        let done = *off < part.end && part.start < off + data.len() as u64;
        if done {
            platter.apply(e);
        }
        !done
    });
}

/// What is left of `events` when the power goes: of what was not flushed, nothing.
pub fn durable(before: &SimDisk, events: &[DiskEvent]) -> SimDisk {
    let platter = before.copy(false);
    play(events, &platter);
    platter
}

/// Makes durable what `events` flush; what they leave pending.
fn play(events: &[DiskEvent], platter: &SimDisk) -> Vec<DiskEvent> {
    let mut pending = Vec::new();
    for event in events {
        match event {
            DiskEvent::Write(..) => pending.push(event.clone()),
            event => flush(event, &mut pending, platter),
        }
    }
    pending
}

/// What the store should hold after each transaction.
type Models = BTreeMap<Seq, Model>;

/// What one life leaves to the next.
struct Left {
    /// What the next one finds.
    disk: Arc<SimDisk>,
    /// What of it is durable.
    platter: SimDisk,
    /// What is not, in the order in which it was written: nothing when the power went.
    pending: Vec<DiskEvent>,
    /// The last transaction that is known to be durable.
    acked: Seq,
    /// From that one on.
    models: Models,
}

impl Left {
    /// A disk of which all is durable.
    fn whole(disk: Arc<SimDisk>, acked: Seq, models: Models) -> Self {
        Self { platter: disk.copy(false), disk, pending: Vec::new(), acked, models }
    }
}

struct Run {
    seed: u64,
    dice: Dice,
    plan: Plan,
    effort: Effort,
    seen: Seen,
}

/// Explores the work of one seed.
///
/// # Panics
/// When a state is not what it must be; says which.
pub fn explore(seed: u64, effort: Effort) -> Seen {
    let mut dice = Dice::new(seed ^ 0x00ee_5b1c);
    let plan = Plan::new(seed, &mut dice);
    let disk = Arc::new(SimDisk::new(plan.size + LOG + 4096, true));
    let options = MkfsOptions {
        fsid: Uuid([1; 16]),
        osd_uuid: Uuid([2; 16]),
        log_bytes: LOG,
        log: plan.log,
        ..MkfsOptions::default()
    };
    let (block, log) = parts(&disk, &plan);
    Store::mkfs_with(block, log, &options).expect("makes a store");
    let mut run = Run { seed, dice, plan, effort, seen: Seen::default() };
    let mut left = Left::whole(disk, 0, Models::from([(0, Model::default())]));
    for life in 0..effort.lives {
        run.seen.unflushed += u64::from(!left.pending.is_empty());
        left.disk.forget_events();
        let models = run.live(&left);
        left = run.cut(life, left, models);
    }
    run.seen
}

impl Run {
    fn what(&self, life: u64, more: &str) -> String {
        let Plan { kind, log, .. } = &self.plan;
        format!("seed {} ({kind:?}, log {log:?}), life {life}, {more}", self.seed)
    }

    /// Works on a recording disk.
    fn live(&mut self, left: &Left) -> Models {
        let (seed, disk) = (self.seed, &left.disk);
        let mut store = open(disk, &self.plan).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        let at = store.opened_at();
        assert!(at >= left.acked, "seed {seed}: nothing is lost between lives");
        let mut models: Models =
            left.models.range(..=at).map(|(seq, model)| (*seq, model.clone())).collect();
        let mut model = models.values().next_back().expect("the first is there").clone();
        models.insert(at, model.clone());
        assert_eq!(difference(&store, &model), None, "seed {seed}: between lives");
        disk.mark(store.durable());
        if model.colls.is_empty() && self.plan.kind == Kind::Full {
            model = self.fill(&mut store, &mut models);
        }
        let mut full = false;
        let often = if self.plan.kind == Kind::Compacting { 3 } else { 1 };
        for _ in 0..self.effort.steps {
            let dice = &mut self.dice;
            self.seen.sweeping += u64::from(store.dead_collections() > 0);
            match dice.below(19 + often) {
                0 => {
                    if store.step_checkpoint() {
                        self.seen.checkpoints += 1;
                    } else if store.step_merge() {
                        self.seen.merges += 1;
                    }
                }
                1 => drop(store.begin_group()),
                2 => drop(store.end_group() || store.step()),
                3 => drop(store.step()),
                4..=5 => drop(store.step_two() || store.step()),
                6..=7 => drop(store.complete().expect("goes well")),
                8 if dice.below(4) == 0 => self.settle(&mut store, disk, false),
                9 if dice.below(12) == 0 => {
                    self.settle(&mut store, disk, false);
                    store.close().expect("closes");
                    store = open(disk, &self.plan).expect("opens what was closed");
                }
                19.. => self.settle(&mut store, disk, true),
                n => {
                    let before = model.clone();
                    let mut txn = model.random(dice, self.plan.scale);
                    let must = n == 10 && full;
                    if must {
                        // A full store must let go.
                        (txn, model) = remove_some(dice, &before);
                    }
                    if (11..=15).contains(&n) && self.plan.kind == Kind::Full {
                        model = before.clone();
                        let scale = Scale { size: 200_000, ..self.plan.scale };
                        txn = model.random_fill(dice, scale);
                    }
                    if n == 16 && dice.below(3) == 0 && !before.colls.is_empty() {
                        (txn, model) = remove_all(dice, &before, self.plan.scale);
                        self.seen.removals += 1;
                    }
                    if n >= 17 && self.plan.kind != Kind::Overwriting {
                        model = before.clone();
                        txn = model.random_blocks(dice, self.plan.scale);
                    }
                    let ahead = self.stage_some(&mut store, &txn);
                    let submitted = store.submit(txn);
                    let free = store.statfs().available;
                    ahead.iter().for_each(|data| store.unstage(data));
                    // What was used is the transaction's.
                    self.seen.ahead +=
                        u64::from(!ahead.is_empty() && store.statfs().available == free);
                    match submitted {
                        Ok(seq) => {
                            self.seen.transactions += 1;
                            full &= !must;
                            models.insert(seq, model.clone());
                        }
                        Err(StoreError::NoSpace { .. }) if !must => {
                            self.seen.refused += 1;
                            full = true;
                            model = before;
                        }
                        // The log is small here, and takes no more of it.
                        Err(StoreError::TooLarge { .. }) => model = before,
                        Err(e) => panic!("seed {}: {e}", self.seed),
                    }
                }
            }
            disk.mark(store.durable());
        }
        if self.dice.below(3) == 0 {
            self.settle(&mut store, disk, false);
            drop(store);
        }
        models
    }

    /// Writes some of a transaction's data ahead of it; other things may come in between.
    fn stage_some(&mut self, store: &mut Store, txn: &Transaction) -> Vec<Bytes> {
        let mut ahead = Vec::new();
        for data in txn.written() {
            if self.dice.below(2) == 0 && store.stage(data).expect("goes well").is_some() {
                ahead.push(data.clone());
            }
        }
        match self.dice.below(8) {
            0 if !ahead.is_empty() => store.begin_checkpoint().expect("goes well"),
            1 if !ahead.is_empty() => drop(store.step_checkpoint()),
            // It is for nothing.
            2 => ahead.drain(..).for_each(|data| store.unstage(&data)),
            _ => {}
        }
        ahead
    }

    /// Fills the store to the brim.
    fn fill(&mut self, store: &mut Store, models: &mut Models) -> Model {
        let mut model = Model::default();
        loop {
            let before = model.clone();
            let scale = Scale { size: 100_000, ..self.plan.scale };
            let txn = model.random_fill(&mut self.dice, scale);
            match store.submit(txn) {
                Ok(seq) => drop(models.insert(seq, model.clone())),
                Err(StoreError::NoSpace { .. }) => return before,
                Err(e) => panic!("seed {}: {e}", self.seed),
            }
            store.step();
        }
    }

    /// Everything durable, group by group; with a checkpoint behind it.
    fn settle(&mut self, store: &mut Store, disk: &Arc<SimDisk>, checkpoint: bool) {
        while store.step() {
            disk.mark(store.durable());
        }
        store.sync().expect("goes well");
        if checkpoint {
            self.seen.checkpoints += 1;
            store.checkpoint().expect("goes well");
            disk.mark(store.durable());
            self.seen.merges += u64::from(store.step_merge());
            store.complete().expect("goes well");
        }
    }

    /// Tries states of all intervals. Returns one that was found good, or what the process
    /// leaves when it ends at one of them.
    fn cut(&mut self, life: u64, begin: Left, models: Models) -> Left {
        let events = begin.disk.events();
        let (flushed, mut acked, mut pending) = (begin.platter, begin.acked, begin.pending);
        let found = flushed.copy(false);
        pending.iter().for_each(|e| found.apply(e));
        let is_flush = |e: &&DiskEvent| matches!(e, DiskEvent::Flush | DiskEvent::FlushPart(..));
        let intervals = 1 + events.iter().filter(is_flush).count() as u64;
        let go_on_at = intervals / 2 + self.dice.below(intervals.div_ceil(2));
        // Where the process alone ends, it is in the middle of that interval.
        let ends = self.dice.below(2) == 0;
        let ends_after = self.dice.below(4);
        let (mut go_on, mut left) = (None, None);
        let (mut interval, mut opened) = (0, false);
        // While the store opens, it may yet be found further than this life has found it:
        // without a log, by a superblock that was torn and is made whole.
        let mut known = &begin.models;
        for event in events.iter().chain([&DiskEvent::Flush]) {
            match event {
                DiskEvent::Write(..) => {
                    pending.push(event.clone());
                    found.apply(event);
                    let written = pending.len() as u64;
                    if ends && left.is_none() && interval >= go_on_at && written > ends_after {
                        left = Some(Left {
                            disk: Arc::new(found.copy(true)),
                            platter: flushed.copy(false),
                            pending: pending.clone(),
                            acked,
                            models: known.clone(),
                        });
                    }
                }
                // Without a log only checkpoints hold, and any of them may be there.
                DiskEvent::Mark(_) if opened && self.plan.log == LogPlacement::Memory => {}
                DiskEvent::Mark(n) => {
                    acked = acked.max(*n);
                    opened = true;
                    known = &models;
                }
                DiskEvent::Flush | DiskEvent::FlushPart(..) => {
                    let what = self.what(life, &format!("interval {interval}"));
                    let state = self.interval(&what, &flushed, &pending, known, acked);
                    if interval <= go_on_at
                        && let Some((disk, at)) = state
                    {
                        go_on = Some((disk, at, opened));
                    }
                    flush(event, &mut pending, &flushed);
                    interval += 1;
                    self.seen.intervals += 1;
                }
            }
        }
        left.unwrap_or_else(|| {
            let (disk, at, opened) = go_on.unwrap_or_else(|| {
                let disk = Arc::new(flushed.copy(true));
                let (at, _) = judge("the state it ended with", &self.plan, &disk, &models, acked);
                (Arc::new(flushed.copy(true)), at, true)
            });
            Left::whole(disk, at, if opened { models } else { begin.models })
        })
    }

    /// Tries states of one interval, in which `pending` was written.
    fn interval(
        &mut self,
        what: &str,
        flushed: &SimDisk,
        pending: &[DiskEvent],
        models: &Models,
        acked: Seq,
    ) -> Option<(Arc<SimDisk>, Seq)> {
        if pending.is_empty() {
            return None;
        }
        let mut last = None;
        let n = pending.len() as u64;
        for i in 0..self.effort.states.min(2 + 4 * n) {
            let disk = flushed.copy(true);
            // Each write may have been the last that was begun.
            let begun = &pending[..(1 + self.dice.below(n)) as usize];
            let one = self.dice.below(n) as usize;
            let how = match i {
                0 => {
                    pending.iter().for_each(|e| disk.apply(e));
                    "all kept".to_owned()
                }
                1 => "all dropped".to_owned(),
                _ => match self.dice.below(5) {
                    0 => {
                        disk.apply(&pending[one]);
                        format!("write {one} of {n} alone")
                    }
                    1 => {
                        let kept = pending.iter().enumerate().filter(|(i, _)| *i != one);
                        kept.for_each(|(_, e)| disk.apply(e));
                        format!("all but write {one} of {n}")
                    }
                    2 => {
                        begun.iter().for_each(|e| disk.apply(e));
                        tear(&disk, begun.last().expect("one at least"), &mut self.dice);
                        format!("{} of {n}, the last torn", begun.len())
                    }
                    _ => {
                        disk.apply_unflushed(begun, &mut self.dice.random);
                        format!("any part of {} of {n}", begun.len())
                    }
                },
            };
            let before = disk.copy(false);
            let disk = Arc::new(disk);
            let what = format!("{what}, state {i} ({how})");
            let (at, opening) = judge(&what, &self.plan, &disk, models, acked);
            self.seen.states += 1;
            self.sweep_out(&what, &before, models);
            if self.dice.below(3) == 0 {
                self.cut_recovery(&what, before.copy(false), opening, models, at, 0);
            }
            last = Some((Arc::new(before.copy(true)), at));
        }
        last
    }

    /// Where a removed collection was not swept, it goes on, and nothing is left in the end.
    fn sweep_out(&mut self, what: &str, disk: &SimDisk, models: &Models) {
        let mut store = open(&Arc::new(disk.copy(false)), &self.plan).expect("was judged before");
        if store.dead_collections() == 0 {
            return;
        }
        self.seen.half_swept += 1;
        let (_, model) = models.range(..=store.opened_at()).next_back().expect("was judged");
        while store.dead_collections() > 0 {
            let worked = store.step() || store.step_checkpoint();
            assert!(worked, "{what}: sweeping goes on by itself");
            store.complete().unwrap_or_else(|e| panic!("{what}: {e}"));
        }
        assert_eq!(difference(&store, model), None, "{what}: swept");
        let report = store.fsck(true).unwrap_or_else(|e| panic!("{what}: fsck: {e}"));
        assert_eq!(report.errors, Vec::<String>::new(), "{what}: swept");
        let objects = model.colls.values().map(|c| c.objects.len() as u64).sum::<u64>();
        assert_eq!(report.objects, objects, "{what}: swept");
    }

    /// The power goes again while the store opens, and perhaps once more.
    fn cut_recovery(
        &mut self,
        what: &str,
        disk: SimDisk,
        recovery: Vec<DiskEvent>,
        models: &Models,
        at: Seq,
        depth: u32,
    ) {
        if recovery.is_empty() {
            return;
        }
        let n = 1 + self.dice.below(recovery.len() as u64) as usize;
        let pending = play(&recovery[..n], &disk);
        disk.apply_unflushed(&pending, &mut self.dice.random);
        let disk = Arc::new(disk.copy(true));
        let before = disk.copy(false);
        let what = format!("{what}, cut again at {n} of opening");
        let (again, opening) = judge(&what, &self.plan, &disk, models, at);
        assert!(again >= at, "{what}: what one opening found the next finds, too");
        // Without a log only the superblock tells. One that was torn is whole when, of what is
        // written over it, only that arrives in which both are the same.
        let exact = self.plan.log != LogPlacement::Memory;
        assert!(again == at || !exact, "{what}: opening has found {at}, then {again}");
        self.seen.states += 1;
        self.seen.recoveries += 1;
        if depth < 3 && self.dice.below(2) == 0 {
            self.cut_recovery(&what, before, opening, models, at, depth + 1);
        }
    }
}

/// Some objects go, and nothing comes.
fn remove_some(dice: &mut Dice, before: &Model) -> (store::Transaction, Model) {
    let (mut txn, mut model) = (store::Transaction::new(), before.clone());
    let colls: Vec<Coll> = model.colls.keys().copied().collect();
    for c in colls {
        let objects = &mut model.colls.get_mut(&c).expect("just seen").objects;
        let gone: Vec<_> = objects.keys().filter(|_| dice.below(3) == 0).cloned().collect();
        for o in gone {
            objects.remove(&o);
            txn.remove(c, &o);
        }
    }
    (txn, model)
}

/// A collection goes, and perhaps comes again at once, with an object of the same name.
fn remove_all(dice: &mut Dice, before: &Model, scale: Scale) -> (store::Transaction, Model) {
    let (mut txn, mut model) = (store::Transaction::new(), before.clone());
    let n = dice.below(model.colls.len() as u64) as usize;
    let (c, was) = before.colls.iter().nth(n).expect("one at least");
    model.colls.remove(c);
    txn.remove_collection(*c);
    // Only removals must fit where nothing else does.
    if dice.below(2) == 0 {
        model.colls.entry(*c).or_default();
        txn.create_collection(*c);
        if let Some(o) = was.objects.keys().next() {
            let len = 1 + dice.below(scale.size);
            let data = dice.bytes(len as usize);
            model.put(*c, o, data.clone());
            txn.write(*c, o, 0, data);
        }
    }
    (txn, model)
}

/// A write of which some sectors arrived.
fn tear(disk: &SimDisk, event: &DiskEvent, dice: &mut Dice) {
    let DiskEvent::Write(off, data) = event else { return };
    // Sectors of the write come in a row, or each by itself.
    let sectors = data.len() as u64 / 512;
    let (mood, cut) = (dice.below(3), dice.below(sectors + 1));
    for s in 0..sectors {
        let keep = match mood {
            0 => s < cut,
            1 => s >= cut,
            _ => dice.random.u64().is_multiple_of(2),
        };
        if !keep {
            // What lay there before is not known any more here: anything may.
            let (from, to) = ((s * 512) as usize, ((s + 1) * 512) as usize);
            let junk = if dice.below(2) == 0 { vec![0; 512] } else { dice.bytes(512).to_vec() };
            assert_eq!(data[from..to].len(), junk.len());
            disk.apply(&DiskEvent::Write(off + s * 512, junk.into()));
        }
    }
}

/// Opens what a power cut left, and judges it. Returns what it holds, and what opening did to the
/// disk.
fn judge(
    what: &str,
    plan: &Plan,
    disk: &Arc<SimDisk>,
    models: &Models,
    acked: Seq,
) -> (Seq, Vec<DiskEvent>) {
    let mut store = open(disk, plan).unwrap_or_else(|e| panic!("{what}: {e}"));
    // A check may write transactions of the store's own, which count.
    let opening = disk.events();
    let at = store.opened_at();
    assert!(at >= acked, "{what}: holds {at} transactions, {acked} were acknowledged");
    let model = models.range(..=at).next_back();
    let (_, model) = model.unwrap_or_else(|| panic!("{what}: {at} is older than the first"));
    assert_eq!(difference(&store, model), None, "{what}: after {at} transactions");
    let report = store.fsck(true).unwrap_or_else(|e| panic!("{what}: fsck: {e}"));
    assert_eq!(report.errors, Vec::<String>::new(), "{what}: after {at} transactions");
    (at, opening)
}
