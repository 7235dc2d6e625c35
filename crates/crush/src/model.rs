//! The map's parts.

use std::collections::BTreeMap;

use crate::{NameMap, Tunables};

/// "No device": a hole in an indep mapping.
pub const ITEM_NONE: i32 = 0x7fff_ffff;
/// "Not chosen yet"; never in a result.
pub const ITEM_UNDEF: i32 = 0x7fff_fffe;
/// The weight set that serves all pools without their own.
pub const DEFAULT_CHOOSE_ARGS: i64 = -1;
/// Most buckets that may stand in one another.
pub const DEPTH_MAX: usize = 64;
/// Most nodes of the tree when each reference to a bucket counts.
pub const NODES_MAX: u64 = 1 << 22;

/// One more than the highest id a device may have.
pub const DEVICES_MAX: i32 = 1 << 20;

/// [`Rule::kind`] of replicated pools.
pub const RULE_TYPE_REPLICATED: u8 = 1;
/// [`Rule::kind`] of erasure-coded pools.
pub const RULE_TYPE_ERASURE: u8 = 3;
/// [`Rule::kind`] of MSR rules that move replicas up.
pub const RULE_TYPE_MSR_FIRSTN: u8 = 4;
/// [`Rule::kind`] of MSR rules that keep positions.
pub const RULE_TYPE_MSR_INDEP: u8 = 5;

/// How a bucket chooses among its items.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum BucketAlg {
    /// All items weigh the same; a permutation.
    Uniform = 1,
    /// Newest item first, by chance of its share of the sum.
    List = 2,
    /// A binary tree of weights.
    Tree = 3,
    /// The longest straw wins; straws depend on the weights of all.
    Straw = 4,
    /// The longest straw wins; each depends on its own weight only.
    Straw2 = 5,
}

impl BucketAlg {
    /// All of them, in order of their numbers.
    pub const ALL: [Self; 5] = [Self::Uniform, Self::List, Self::Tree, Self::Straw, Self::Straw2];

    /// By number.
    #[must_use]
    pub fn from_number(n: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|alg| *alg as u8 == n)
    }

    /// By name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|alg| alg.name() == name)
    }

    /// The name in text and dumps.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Uniform => "uniform",
            Self::List => "list",
            Self::Tree => "tree",
            Self::Straw => "straw",
            Self::Straw2 => "straw2",
        }
    }
}

/// The weights of a bucket, in the shape its algorithm needs. All are 16.16 fixed point,
/// and all lists are as long as the items, but for a tree's nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Weights {
    Uniform { item: u32 },
    List { items: Vec<u32>, sums: Vec<u32> },
    Tree { nodes: Vec<u32> },
    Straw { items: Vec<u32>, straws: Vec<u32> },
    Straw2 { items: Vec<u32> },
}

/// An inner node of the hierarchy: items (devices from 0 up, buckets below 0) with
/// weights. Type `crush_bucket`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bucket {
    pub(crate) id: i32,
    pub(crate) kind: u16,
    pub(crate) hash: u8,
    pub(crate) weight: u32,
    pub(crate) items: Vec<i32>,
    pub(crate) weights: Weights,
}

impl Bucket {
    /// The id, below 0.
    #[must_use]
    pub fn id(&self) -> i32 {
        self.id
    }

    /// The number of its type ("host", "rack").
    #[must_use]
    pub fn kind(&self) -> u16 {
        self.kind
    }

    /// How it chooses.
    #[must_use]
    pub fn alg(&self) -> BucketAlg {
        match self.weights {
            Weights::Uniform { .. } => BucketAlg::Uniform,
            Weights::List { .. } => BucketAlg::List,
            Weights::Tree { .. } => BucketAlg::Tree,
            Weights::Straw { .. } => BucketAlg::Straw,
            Weights::Straw2 { .. } => BucketAlg::Straw2,
        }
    }

    /// The number of its hash; 0 is the only one there is.
    #[must_use]
    pub fn hash(&self) -> u8 {
        self.hash
    }

    /// Its weight, 16.16.
    #[must_use]
    pub fn weight(&self) -> u32 {
        self.weight
    }

    /// Its items.
    #[must_use]
    pub fn items(&self) -> &[i32] {
        &self.items
    }

    /// The weight of the item at `pos`, 16.16; 0 beyond the last.
    #[must_use]
    pub fn item_weight(&self, pos: usize) -> u32 {
        let at = |list: &Vec<u32>| list.get(pos).copied().unwrap_or(0);
        match &self.weights {
            Weights::Uniform { item } => *item,
            Weights::List { items, .. }
            | Weights::Straw { items, .. }
            | Weights::Straw2 { items } => at(items),
            Weights::Tree { nodes } => {
                nodes.get(crate::builder::tree_node(pos)).copied().unwrap_or(0)
            }
        }
    }
}

/// A rule: how to find devices for a number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// What pools it serves: one of the `RULE_TYPE_` constants.
    pub kind: u8,
    /// Was: smallest pool it serves. Without meaning since release 17.
    pub min_size: u8,
    /// Was: largest pool it serves. Without meaning since release 17.
    pub max_size: u8,
    /// What to do, in order.
    pub steps: Vec<Step>,
}

impl Rule {
    /// A rule as new ones are made.
    #[must_use]
    pub fn new(kind: u8, steps: Vec<Step>) -> Self {
        Self { kind, min_size: 1, max_size: 100, steps }
    }

    /// Whether the steps are run by the multi-step-retry mapper.
    #[must_use]
    pub fn is_msr(&self) -> bool {
        matches!(self.kind, RULE_TYPE_MSR_FIRSTN | RULE_TYPE_MSR_INDEP)
    }
}

/// One step of a rule. The number is kept as it came: steps that are not known do nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// [`Op`] by its number.
    pub op: u32,
    /// An item for `take`, else a count.
    pub arg1: i32,
    /// A type for the choosing steps.
    pub arg2: i32,
}

impl Step {
    /// A step.
    #[must_use]
    pub fn new(op: Op, arg1: i32, arg2: i32) -> Self {
        Self { op: op as u32, arg1, arg2 }
    }

    /// What it does, if it is known.
    #[must_use]
    pub fn known(self) -> Option<Op> {
        Op::from_number(self.op)
    }
}

macro_rules! ops {
    ($($(#[$doc:meta])* $name:ident = $number:literal,)*) => {
        /// What a step does.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(u32)]
        pub enum Op { $($(#[$doc])* $name = $number,)* }

        impl Op {
            /// By number.
            #[must_use]
            pub fn from_number(n: u32) -> Option<Self> {
                match n {
                    $($number => Some(Self::$name),)*
                    _ => None,
                }
            }
        }
    };
}
ops! {
    /// Nothing.
    Noop = 0,
    /// Begin with item `arg1`.
    Take = 1,
    /// Choose `arg1` items of type `arg2`; failed ones are left out.
    ChooseFirstn = 2,
    /// Choose `arg1` items of type `arg2`; failed ones leave holes.
    ChooseIndep = 3,
    /// Add what was chosen to the result.
    Emit = 4,
    /// As `ChooseFirstn`, then a device beneath each.
    ChooseleafFirstn = 6,
    /// As `ChooseIndep`, then a device beneath each.
    ChooseleafIndep = 7,
    /// Override `choose_total_tries` (counted as tries).
    SetChooseTries = 8,
    /// Tries of the descent to a device.
    SetChooseleafTries = 9,
    /// Override `choose_local_tries`.
    SetChooseLocalTries = 10,
    /// Override `choose_local_fallback_tries`.
    SetChooseLocalFallbackTries = 11,
    /// Override `chooseleaf_vary_r`.
    SetChooseleafVaryR = 12,
    /// Override `chooseleaf_stable`.
    SetChooseleafStable = 13,
    /// Override `msr_descents`.
    SetMsrDescents = 14,
    /// Override `msr_collision_tries`.
    SetMsrCollisionTries = 15,
    /// Choose `arg1` items of type `arg2`, retried as one with the steps around it.
    ChooseMsr = 16,
}

/// Other weights (and ids) for one straw2 bucket. Type `crush_choose_arg`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChooseArg {
    /// Per position in the result, the items' weights; positions beyond use the last.
    pub(crate) weight_set: Vec<Vec<u32>>,
    /// Ids to hash in place of the items'.
    pub(crate) ids: Vec<i32>,
}

impl ChooseArg {
    /// Per position in the result, the items' weights; positions beyond use the last.
    #[must_use]
    pub fn weight_set(&self) -> &[Vec<u32>] {
        &self.weight_set
    }

    /// Ids to hash in place of the items'; empty for "the items'".
    #[must_use]
    pub fn ids(&self) -> &[i32] {
        &self.ids
    }

    /// Whether it changes nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.weight_set.is_empty() && self.ids.is_empty()
    }
}

/// One weight set: a [`ChooseArg`] for each bucket slot. Type `crush_choose_arg_map`.
#[derive(Debug, Clone, Default)]
pub struct ChooseArgs {
    /// By slot, `-1 - id`; slots beyond its end have none.
    pub(crate) args: Vec<ChooseArg>,
}

/// Slots that have none are the same as slots that are not there.
impl PartialEq for ChooseArgs {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for ChooseArgs {}

impl ChooseArgs {
    pub(crate) fn get_mut(&mut self, id: i32) -> Option<&mut ChooseArg> {
        self.args.get_mut(slot(id)?)
    }

    /// As [`ChooseArgs::get_mut`], but makes the slot. For buckets that exist.
    pub(crate) fn slot_mut(&mut self, id: i32) -> &mut ChooseArg {
        let at = slot(id).expect("bucket ids are below 0");
        if self.args.len() <= at {
            self.args.resize(at + 1, ChooseArg::default());
        }
        &mut self.args[at]
    }

    /// What is set for the bucket `id`.
    #[must_use]
    pub fn get(&self, id: i32) -> Option<&ChooseArg> {
        self.args.get(slot(id)?).filter(|arg| !arg.is_empty())
    }

    /// The buckets it changes, from -1 down.
    pub fn iter(&self) -> impl Iterator<Item = (i32, &ChooseArg)> {
        (0i32..).map(|i| -1 - i).zip(&self.args).filter(|(_, arg)| !arg.is_empty())
    }

    /// How many positions its weight sets have.
    #[must_use]
    pub fn positions(&self) -> usize {
        self.args.iter().map(|a| a.weight_set.len()).find(|n| *n > 0).unwrap_or(1)
    }
}

/// The whole map. Types `crush_map` and `CrushWrapper`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CrushMap {
    pub(crate) buckets: Vec<Option<Bucket>>,
    pub(crate) rules: Vec<Option<Rule>>,
    pub(crate) max_devices: i32,
    pub(crate) types: NameMap,
    pub(crate) names: NameMap,
    pub(crate) rule_names: NameMap,
    pub(crate) tunables: Tunables,
    /// Item to class; shadow buckets have theirs too.
    pub(crate) class_of: BTreeMap<i32, i32>,
    pub(crate) class_names: NameMap,
    /// Bucket to class to shadow bucket.
    pub(crate) class_buckets: BTreeMap<i32, BTreeMap<i32, i32>>,
    pub(crate) choose_args: BTreeMap<i64, ChooseArgs>,
}

impl Default for CrushMap {
    /// An empty map with the tunables of new maps.
    fn default() -> Self {
        Self {
            buckets: Vec::new(),
            rules: Vec::new(),
            max_devices: 0,
            types: NameMap::default(),
            names: NameMap::default(),
            rule_names: NameMap::default(),
            tunables: Tunables::default(),
            class_of: BTreeMap::new(),
            class_names: NameMap::default(),
            class_buckets: BTreeMap::new(),
            choose_args: BTreeMap::new(),
        }
    }
}

/// The slot of a bucket id.
pub(crate) fn slot(id: i32) -> Option<usize> {
    usize::try_from(-1 - i64::from(id)).ok()
}

impl CrushMap {
    /// The bucket `id`.
    #[must_use]
    pub fn bucket(&self, id: i32) -> Option<&Bucket> {
        self.buckets.get(slot(id)?)?.as_ref()
    }

    pub(crate) fn bucket_mut(&mut self, id: i32) -> Option<&mut Bucket> {
        self.buckets.get_mut(slot(id)?)?.as_mut()
    }

    /// All buckets, from id -1 down.
    pub fn buckets(&self) -> impl Iterator<Item = &Bucket> {
        self.buckets.iter().flatten()
    }

    /// Bucket slots, used or not.
    #[must_use]
    pub fn max_buckets(&self) -> usize {
        self.buckets.len()
    }

    /// One more than the highest device.
    #[must_use]
    pub fn max_devices(&self) -> i32 {
        self.max_devices
    }

    /// The rule `id`.
    #[must_use]
    pub fn rule(&self, id: u32) -> Option<&Rule> {
        self.rules.get(id as usize)?.as_ref()
    }

    /// All rules with their ids.
    pub fn rules(&self) -> impl Iterator<Item = (u32, &Rule)> {
        (0u32..).zip(&self.rules).filter_map(|(id, rule)| Some((id, rule.as_ref()?)))
    }

    /// Rule slots, used or not.
    #[must_use]
    pub fn max_rules(&self) -> usize {
        self.rules.len()
    }

    /// Names of types.
    #[must_use]
    pub fn types(&self) -> &NameMap {
        &self.types
    }

    /// Names of devices and buckets.
    #[must_use]
    pub fn names(&self) -> &NameMap {
        &self.names
    }

    /// Names of rules.
    #[must_use]
    pub fn rule_names(&self) -> &NameMap {
        &self.rule_names
    }

    /// Names of device classes.
    #[must_use]
    pub fn class_names(&self) -> &NameMap {
        &self.class_names
    }

    /// The tunables.
    #[must_use]
    pub fn tunables(&self) -> &Tunables {
        &self.tunables
    }

    /// The tunables, to change.
    pub fn tunables_mut(&mut self) -> &mut Tunables {
        &mut self.tunables
    }

    /// The weight sets by their ids: pools, or [`DEFAULT_CHOOSE_ARGS`].
    #[must_use]
    pub fn choose_args(&self) -> &BTreeMap<i64, ChooseArgs> {
        &self.choose_args
    }

    /// Bucket to class to shadow bucket.
    #[must_use]
    pub fn class_buckets(&self) -> &BTreeMap<i32, BTreeMap<i32, i32>> {
        &self.class_buckets
    }

    /// The class of an item, by number.
    #[must_use]
    pub fn class_of(&self, item: i32) -> Option<i32> {
        self.class_of.get(&item).copied()
    }

    /// The class of an item, by name.
    #[must_use]
    pub fn class_name_of(&self, item: i32) -> Option<&str> {
        self.class_names.get(self.class_of(item)?)
    }

    /// The type of an item: 0 for devices; `None` for buckets that are not there.
    #[must_use]
    pub fn item_kind(&self, item: i32) -> Option<u16> {
        if item >= 0 { Some(0) } else { self.bucket(item).map(Bucket::kind) }
    }

    /// Whether every walk down from any bucket ends, and soon, and devices can be counted:
    /// see [`DEPTH_MAX`], [`NODES_MAX`] and [`DEVICES_MAX`].
    pub(crate) fn check_shape(&self) -> Result<(), &'static str> {
        let items = self.buckets().flat_map(|b| &b.items).copied();
        if items.chain(self.names.last_id()).any(|id| id >= DEVICES_MAX) {
            return Err("device id out of range");
        }
        #[derive(Clone, Copy)]
        enum Mark {
            New,
            Open,
            Done { depth: usize, nodes: u64 },
        }
        let mut marks = vec![Mark::New; self.buckets.len()];
        for start in 0..self.buckets.len() {
            if !matches!(marks[start], Mark::New) {
                continue;
            }
            // Depth first with an own stack: (slot, next item, depth and nodes so far).
            let mut stack = vec![(start, 0usize, 1usize, 1u64)];
            marks[start] = Mark::Open;
            while let Some((at, next, depth, nodes)) = stack.pop() {
                let items = self.buckets[at].as_ref().map_or(&[][..], |b| &b.items);
                let Some(&item) = items.get(next) else {
                    if depth > DEPTH_MAX {
                        return Err("buckets nested too deep");
                    }
                    if nodes > NODES_MAX {
                        return Err("hierarchy too large");
                    }
                    marks[at] = Mark::Done { depth, nodes };
                    if let Some((_, _, up_depth, up_nodes)) = stack.last_mut() {
                        *up_depth = depth.saturating_add(1).max(*up_depth);
                        *up_nodes = up_nodes.saturating_add(nodes);
                    }
                    continue;
                };
                stack.push((at, next + 1, depth, nodes));
                let top = stack.last_mut().expect("just pushed");
                let child = slot(item).filter(|s| matches!(self.buckets.get(*s), Some(Some(_))));
                match child.map(|child| (child, marks[child])) {
                    None => top.3 = top.3.saturating_add(1),
                    Some((_, Mark::Open)) => return Err("a bucket beneath itself"),
                    Some((_, Mark::Done { depth, nodes })) => {
                        top.2 = top.2.max(depth + 1);
                        top.3 = top.3.saturating_add(nodes);
                    }
                    Some((child, Mark::New)) => {
                        marks[child] = Mark::Open;
                        stack.push((child, 0, 1, 1));
                    }
                }
            }
        }
        Ok(())
    }
}
