//! From text to the map: what the elements mean, and what they may not say.

use std::collections::{BTreeMap, BTreeSet};

use super::parse::{self, Element, Source, Step as Said};
use crate::error::ErrorKind;
use crate::model::{self, BucketAlg, ChooseArg, ChooseArgs, CrushMap, Op, Rule, Step};
use crate::query::is_valid_name;
use crate::tunables::Tunables;

/// Most a device may weigh: 100.
const DEVICE_WEIGHT_MAX: u32 = 100 * 0x10000;
/// Most a bucket may weigh.
const BUCKET_WEIGHT_MAX: u32 = 65535 * 0x10000;
/// Bounds on what a few words can make large.
const BUCKET_ITEMS_MAX: usize = 1 << 20;

/// A map, and what to warn about.
#[derive(Debug)]
pub struct Compiled {
    /// The map.
    pub map: CrushMap,
    /// Lines for the operator.
    pub warnings: Vec<String>,
}

/// Why a text is no map.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct CompileError {
    /// Whole lines for the operator, as the peer words them. Those about grammar begin
    /// with the text's name and the line's number.
    pub message: String,
    /// What was warned about before.
    pub warnings: Vec<String>,
}

/// Reads a map's text. `name` stands for it in messages.
///
/// # Errors
/// [`CompileError`], with the line's number when it is the grammar that is broken.
pub fn compile(name: &str, input: &str) -> Result<Compiled, CompileError> {
    let source = Source::new(input);
    let mut elements = source.parse().map_err(|stop| CompileError {
        message: format!("{name}:{} error: parse error at '{}'", stop.line, stop.rest),
        warnings: Vec::new(),
    })?;
    // Old text means the same for ever: what it does not say is as it was at first.
    let map = CrushMap { tunables: Tunables::legacy(), ..CrushMap::default() };
    let mut c = Compiler { map, ..Compiler::default() };
    match order_buckets(&mut elements).and_then(|()| c.all(&elements)) {
        Ok(()) => Ok(Compiled { map: c.map, warnings: c.warnings }),
        Err(message) => Err(CompileError { message, warnings: c.warnings }),
    }
}

/// Moves buckets behind their items, where two stand the wrong way round.
fn order_buckets(elements: &mut [Element<'_>]) -> Result<(), String> {
    let mut items: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut places: BTreeMap<String, usize> = BTreeMap::new();
    let mut names = Vec::new();
    for (i, element) in elements.iter().enumerate() {
        if let Element::Bucket(b) = element {
            names.push(b.name.to_owned());
            places.insert(b.name.to_owned(), i);
            let of = items.entry(b.name.to_owned()).or_default();
            of.extend(b.items.iter().map(|item| item.name.to_owned()));
        }
    }
    if names.len() > 4096 {
        return Ok(()); // quadratic; text this long was written by a program, in order
    }
    for (i, a) in names.iter().enumerate() {
        for b in &names[i + 1..] {
            if items[a].contains(b) {
                if items[b].contains(a) {
                    return Err(format!("bucket  '{a}' and bucket '{b}' are included each other"));
                }
                elements.swap(places[a], places[b]);
            }
        }
    }
    Ok(())
}

#[derive(Default)]
struct Compiler {
    map: CrushMap,
    warnings: Vec<String>,
    item_id: BTreeMap<String, i32>,
    type_id: BTreeMap<String, i32>,
    rule_id: BTreeSet<String>,
    /// Ids that text gives to buckets and their shadows, or that were given.
    used_ids: BTreeSet<i32>,
    /// Weights of buckets, for items that say none.
    weights: BTreeMap<i32, u32>,
    shadows: BTreeMap<i32, BTreeMap<i32, i32>>,
}

fn fixed(weight: f32) -> u32 {
    // As the peer's machines convert: through 64 bits.
    (weight * 65536.0) as i64 as u32
}

impl Compiler {
    fn all(&mut self, elements: &[Element<'_>]) -> Result<(), String> {
        for element in elements {
            if let Element::Bucket(b) = element {
                self.used_ids.extend(b.ids.iter().map(|(id, _)| *id));
            }
        }
        let mut saw_rule = false;
        for element in elements {
            match element {
                Element::Tunable { name, value } => self.tunable(name, *value)?,
                Element::Device { id, name, class } => self.device(*id, name, *class)?,
                Element::Type { id, name } => {
                    self.type_id.insert((*name).to_owned(), *id);
                    self.map.types.set(*id, *name);
                }
                Element::Bucket(_) if saw_rule => {
                    return Err("buckets must be defined before rules".to_owned());
                }
                Element::Bucket(b) => self.bucket(b)?,
                Element::Rule(rule) => {
                    if !saw_rule {
                        saw_rule = true;
                        self.map.check_shape()?;
                        let shadows = std::mem::take(&mut self.shadows);
                        // Rules that need a shadow that could not be made say so.
                        let _ = self.map.populate_classes(&shadows);
                    }
                    self.rule(rule)?;
                }
                Element::ChooseArgs { id, args } => self.choose_args(*id, args)?,
            }
        }
        self.map.check_shape()?;
        self.map.finalize();
        Ok(())
    }

    fn tunable(&mut self, name: &str, value: i32) -> Result<(), String> {
        let t = &mut self.map.tunables;
        match name {
            "choose_local_tries" => t.choose_local_tries = value as u32,
            "choose_local_fallback_tries" => t.choose_local_fallback_tries = value as u32,
            "choose_total_tries" => t.choose_total_tries = value as u32,
            "chooseleaf_descend_once" => t.chooseleaf_descend_once = u32::from(value != 0),
            "chooseleaf_vary_r" => t.chooseleaf_vary_r = value as u8,
            "chooseleaf_stable" => t.chooseleaf_stable = value as u8,
            "straw_calc_version" => t.straw_calc_version = value as u8,
            "allowed_bucket_algs" => t.allowed_bucket_algs = value as u32,
            "msr_descents" => t.msr_descents = value as u32,
            "msr_collision_tries" => t.msr_collision_tries = value as u32,
            _ => return Err(format!("tunable {name} not recognized")),
        }
        Ok(())
    }

    fn device(&mut self, id: i32, name: &str, class: Option<&str>) -> Result<(), String> {
        if is_valid_name(name) {
            self.map.names.set(id, name);
        }
        if self.item_id.insert(name.to_owned(), id).is_some() {
            return Err(format!("item {name} defined twice"));
        }
        self.used_ids.insert(id);
        if let Some(class) = class {
            let class = self.map.class_id(class);
            self.map.class_of.insert(id, class);
        }
        Ok(())
    }

    fn bucket(&mut self, b: &parse::Bucket<'_>) -> Result<(), String> {
        let name = b.name;
        let Some(kind) = self.type_id.get(b.kind).copied() else {
            return Err(format!("bucket type '{}' is not defined", b.kind));
        };
        let Ok(kind) = u16::try_from(kind) else {
            return Err(format!("bucket type '{}' is out of range", b.kind));
        };
        if self.item_id.contains_key(name) {
            return Err(format!("bucket or device '{name}' is already defined"));
        }
        let mut id = 0;
        let mut class_ids = BTreeMap::new();
        for (given, class) in &b.ids {
            let Some(class_name) = class else {
                id = *given;
                continue;
            };
            let class = self.map.class_id(class_name);
            if class_ids.insert(class, *given).is_some() {
                return Err(format!("duplicate device class {class_name} for bucket {name}"));
            }
        }
        let Some(alg) = BucketAlg::from_name(b.alg) else {
            return Err(format!("unknown bucket alg '{}'\n", b.alg));
        };
        let hash = match b.hash {
            None | Some("rjenkins1") => crate::HASH_RJENKINS1,
            Some(number) => number.parse::<i64>().unwrap_or(0) as u8,
        };
        let items = self.items(b, alg)?;
        let sum = items.iter().fold(0u32, |sum, (_, weight)| sum.wrapping_add(*weight));
        if id == 0 {
            id = -1;
            while self.used_ids.contains(&id) {
                id -= 1;
            }
        }
        for (class, shadow) in class_ids {
            self.shadows.entry(id).or_default().insert(class, shadow);
        }
        self.used_ids.insert(id);
        self.item_id.insert(name.to_owned(), id);
        self.weights.insert(id, sum);
        let version = self.map.tunables.straw_calc_version;
        let made = model::Bucket::new(alg, hash, kind, &items, version)
            .and_then(|bucket| self.map.add_made_bucket(Some(id), bucket));
        match made {
            Ok(_) => {
                self.map.names.set(id, name);
                Ok(())
            }
            Err(e) if e.kind == ErrorKind::Exists => Err(format!("Duplicate bucket id {id}")),
            Err(e) => Err(format!("add_bucket failed {e}")),
        }
    }

    /// The items in their places, with their weights.
    fn items(&self, b: &parse::Bucket<'_>, alg: BucketAlg) -> Result<Vec<(i32, u32)>, String> {
        let name = b.name;
        let mut taken = BTreeSet::new();
        for item in &b.items {
            if let Some(pos) = item.pos
                && !taken.insert(pos)
            {
                return Err(format!(
                    "item '{}' in bucket '{name}' has explicit pos {pos}, which is occupied",
                    item.name
                ));
            }
        }
        let last = taken.last().copied().unwrap_or(0).max(0) as usize;
        let size = b.items.len().max(last);
        if size > BUCKET_ITEMS_MAX {
            return Err(format!("bucket '{name}' is too large"));
        }
        let mut out = vec![(0, 0); size];
        let mut next = 0;
        let mut sum = 0u32;
        let mut same = None;
        for item in &b.items {
            let Some(id) = self.item_id.get(item.name).copied() else {
                return Err(format!("item '{}' in bucket '{name}' is not defined", item.name));
            };
            let mut weight = self.weights.get(&id).copied().unwrap_or(0x10000);
            if let Some(said) = item.weight {
                weight = fixed(said);
                if weight > DEVICE_WEIGHT_MAX && id >= 0 {
                    return Err(format!(
                        "device weight limited to {}",
                        DEVICE_WEIGHT_MAX / 0x10000
                    ));
                }
                if weight > BUCKET_WEIGHT_MAX && id < 0 {
                    return Err(format!(
                        "bucket weight limited to {} to prevent overflow",
                        BUCKET_WEIGHT_MAX / 0x10000
                    ));
                }
            }
            if alg == BucketAlg::Uniform {
                let first = *same.get_or_insert(weight);
                if first != weight {
                    return Err(format!(
                        "item '{}' in uniform bucket '{name}' has weight {weight} but previous \
                         item(s) have weight {}; uniform bucket items must all have identical \
                         weights.",
                        item.name,
                        first as f32 / 65536.0
                    ));
                }
            }
            let pos = match item.pos {
                Some(pos) if usize::try_from(pos).is_ok_and(|pos| pos < size) => pos as usize,
                Some(pos) => {
                    return Err(format!(
                        "item '{}' in bucket '{name}' has pos {pos} >= size {size}",
                        item.name
                    ));
                }
                None => {
                    while taken.contains(&next) {
                        next += 1;
                    }
                    next += 1;
                    next as usize - 1
                }
            };
            if let Some(place) = out.get_mut(pos) {
                *place = (id, weight);
            }
            sum = sum.checked_add(weight).ok_or(
                "oh no! our bucket weights are overflowing all over the place, better lower \
                 the item weights",
            )?;
        }
        Ok(out)
    }

    fn rule(&mut self, rule: &parse::Rule<'_>) -> Result<(), String> {
        let name = rule.name.unwrap_or("");
        if rule.name.is_some() && self.rule_id.contains(name) {
            return Err(format!("rule name '{name}' already defined\n"));
        }
        for (has, word) in [(rule.has_min_size, "min_size"), (rule.has_max_size, "max_size")] {
            if has {
                let warning = format!("WARNING: {word} is no longer supported, ignoring");
                self.warnings.push(warning);
            }
        }
        let id = rule.id as u32;
        if self.map.rule(id).is_some() {
            return Err(format!("rule {} already exists", rule.id));
        }
        let empty = Rule::new(rule.kind, Vec::new());
        if self.map.place_rule(Some(id), empty).is_err() {
            return Err(format!("unable to add rule id {} for rule '{name}'", rule.id));
        }
        if rule.name.is_some() {
            self.map.rule_names.set(rule.id, name);
            self.rule_id.insert(name.to_owned());
        }
        let mut steps = Vec::with_capacity(rule.steps.len());
        for step in &rule.steps {
            steps.push(match step {
                Said::Take { item, class } => {
                    Step::new(Op::Take, self.take(name, item, *class)?, 0)
                }
                Said::Set { op, value } => Step::new(*op, *value, 0),
                Said::Emit => Step::new(Op::Emit, 0, 0),
                Said::Choose { op, count, kind } => {
                    let Some(kind) = self.type_id.get(*kind) else {
                        return Err(format!("in rule '{name}' type '{kind}' not defined"));
                    };
                    Step::new(*op, *count, *kind)
                }
            });
        }
        if let Some(Some(made)) = self.map.rules.get_mut(id as usize) {
            made.steps = steps;
        }
        Ok(())
    }

    fn take(&self, rule: &str, item: &str, class: Option<&str>) -> Result<i32, String> {
        let Some(id) = self.item_id.get(item).copied() else {
            return Err(format!("in rule '{rule}' item '{item}' not defined"));
        };
        let Some(class_name) = class else { return Ok(id) };
        let Some(class) = self.map.class_names.id(class_name) else {
            return Err(String::new()); // the peer fails without a word
        };
        let Some(shadows) = self.map.class_buckets.get(&id) else {
            return Err(format!("in rule '{rule}' step take {item} has no class information"));
        };
        shadows.get(&class).copied().ok_or_else(|| {
            format!("in rule '{rule}' step take {item} no matching bucket for class {class_name}")
        })
    }

    fn choose_args(&mut self, id: i32, said: &[parse::Arg]) -> Result<(), String> {
        let key = i64::from(id);
        if self.map.choose_args.contains_key(&key) {
            return Err(format!("{id} duplicated"));
        }
        let mut args = ChooseArgs::default();
        for arg in said {
            let bucket = arg.bucket;
            let in_range = model::slot(bucket).is_some_and(|at| at < self.map.buckets.len());
            if !in_range {
                return Err(format!("{bucket} is out of range"));
            }
            let Some(size) = self.map.bucket(bucket).map(|b| b.items.len()) else {
                return Err(format!("{bucket} does not exist"));
            };
            let slot: &mut ChooseArg = args.slot_mut(bucket);
            if let Some(rows) = &arg.weight_set {
                if let Some(row) = rows.iter().find(|row| row.len() != size) {
                    return Err(format!(
                        "{bucket} needs exactly {size} weights but got {}",
                        row.len()
                    ));
                }
                slot.weight_set =
                    rows.iter().map(|row| row.iter().map(|w| fixed(*w)).collect()).collect();
            }
            if let Some(ids) = &arg.ids {
                if ids.len() != size {
                    return Err(format!("{bucket} needs exactly {size} ids but got {}", ids.len()));
                }
                slot.ids.clone_from(ids);
            }
        }
        self.map.choose_args.insert(key, args);
        Ok(())
    }
}
