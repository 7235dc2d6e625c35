//! What the tool's arguments ask for.

use std::collections::BTreeMap;

use crate::Location;

pub(super) const USAGE: &str = "\
usage: crushtool [-i MAP] [ACTION...] [-o MAP]

Reads, changes, shows and tests CRUSH maps, in this order: input, tunables, changes,
output for reading, output for writing.

input
  -i, --infn MAP              read a map
  -d, --decompile MAP         read a map, and show its text (to -o FILE if given)
  -c, --compile TEXT          make a map from text
  --build --num-osds N {NAME (uniform|list|tree|straw|straw2) SIZE}...
                              make a map from layers of buckets; SIZE 0 is for one bucket

tunables
  --set-choose-local-tries N           --set-choose-local-fallback-tries N
  --set-choose-total-tries N           --set-chooseleaf-descend-once 0|1
  --set-chooseleaf-vary-r N            --set-chooseleaf-stable 0|1
  --set-straw-calc-version 0|1         --set-allowed-bucket-algs BITS
  --set-msr-descents N                 --set-msr-collision-tries N

changes
  --add-item ID WEIGHT NAME {--loc TYPE NAME}...
  --update-item ID WEIGHT NAME {--loc TYPE NAME}...
  --remove-item NAME
  --reweight-item NAME WEIGHT
  --add-bucket NAME TYPE {--loc TYPE NAME}...
  --move NAME {--loc TYPE NAME}...
  --reweight                  sum up all weights anew
  --rebuild-class-roots       make all shadow trees anew
  --create-simple-rule NAME ROOT TYPE firstn|indep
  --create-replicated-rule NAME ROOT TYPE
  --device-class CLASS        for the rules above
  --remove-rule NAME
  --set-subtree-class BUCKET CLASS

shows and tests
  --dump                      as JSON
  --tree
  --bucket-tree --bucket-name NAME
  --show-location ID
  --check [MAX-ID]
  --test                      map inputs with
      --num-rep N | --min-rep N --max-rep N
      --x X | --min-x X --max-x X      --rule R | --min-rule R --max-rule R
      --pool-id POOL                   -w, --weight DEVICE WEIGHT
      and show
      --show-mappings  --show-bad-mappings  --show-statistics
      --show-utilization  --show-utilization-all  --show-choose-tries
  --compare MAP               map inputs by both

output
  -o, --outfn FILE            write the map that was made or changed
";

#[derive(Debug)]
pub(super) struct Layer {
    pub name: String,
    pub alg: String,
    pub size: i64,
}

#[derive(Debug)]
pub(super) struct AddItem {
    pub update: bool,
    pub id: i32,
    pub weight: f32,
    pub name: String,
}

#[derive(Debug)]
pub(super) struct CreateRule {
    pub name: String,
    pub root: String,
    pub kind: String,
    pub mode: Option<String>,
}

#[derive(Debug, Default)]
pub(super) struct Options {
    pub infn: Option<String>,
    pub outfn: Option<String>,
    pub compile: Option<String>,
    pub compare: Option<String>,
    pub decompile: bool,
    pub build: bool,
    pub num_osds: i32,
    pub layers: Vec<Layer>,
    pub verbose: bool,
    pub test: bool,
    pub tree: bool,
    pub bucket_tree: bool,
    pub bucket_name: Option<String>,
    pub dump: bool,
    pub check: bool,
    pub max_id: i32,
    pub show_location: Option<i32>,
    pub tunables: Vec<(&'static str, i32)>,
    pub reweight: bool,
    pub rebuild_class_roots: bool,
    pub reweight_item: Option<(String, f32)>,
    pub remove_item: Option<String>,
    pub add_item: Option<AddItem>,
    pub add_bucket: Option<(String, String)>,
    pub move_item: Option<String>,
    pub create_rule: Option<CreateRule>,
    pub remove_rule: Option<String>,
    pub device_class: Option<String>,
    pub subtree_classes: BTreeMap<String, String>,
    pub location: Location,
    pub min_rep: i32,
    pub max_rep: i32,
    pub min_x: i32,
    pub max_x: i32,
    pub min_rule: i32,
    pub max_rule: i32,
    pub pool_id: i64,
    pub weights: BTreeMap<i32, u32>,
    pub show_mappings: bool,
    pub show_bad_mappings: bool,
    pub show_statistics: bool,
    pub show_utilization: bool,
    pub show_utilization_all: bool,
    pub show_choose_tries: bool,
}

const TUNABLES: [&str; 10] = [
    "choose_local_tries",
    "choose_local_fallback_tries",
    "choose_total_tries",
    "chooseleaf_descend_once",
    "chooseleaf_vary_r",
    "chooseleaf_stable",
    "straw_calc_version",
    "allowed_bucket_algs",
    "msr_descents",
    "msr_collision_tries",
];

/// The arguments behind an option.
struct Args<'a> {
    rest: std::slice::Iter<'a, String>,
    option: String,
    /// The part behind `=`.
    inline: Option<String>,
}

impl Args<'_> {
    fn next(&mut self) -> Result<String, String> {
        if let Some(value) = self.inline.take() {
            return Ok(value);
        }
        let missing = || format!("expecting additional argument to {}", self.option);
        self.rest.next().cloned().ok_or_else(missing)
    }

    fn int(&mut self) -> Result<i32, String> {
        self.long().and_then(|n| i32::try_from(n).map_err(|_| not_int(&n.to_string())))
    }

    fn long(&mut self) -> Result<i64, String> {
        let word = self.next()?;
        word.parse().map_err(|_| not_int(&word))
    }

    /// As `atof`: what is no number is 0.
    fn float(&mut self) -> Result<f32, String> {
        let word = self.next()?;
        let digits = word.trim_start();
        let end = (0..=digits.len())
            .rev()
            .filter(|n| digits.is_char_boundary(*n))
            .find_map(|n| digits[..n].parse::<f64>().ok());
        Ok(end.unwrap_or(0.0) as f32)
    }
}

fn not_int(word: &str) -> String {
    format!("The option value '{word}' is invalid")
}

impl Options {
    /// Whether `--test` shows anything.
    pub(super) fn shows(&self) -> bool {
        self.show_mappings
            || self.show_bad_mappings
            || self.show_statistics
            || self.show_utilization
            || self.show_utilization_all
            || self.show_choose_tries
    }

    pub(super) fn parse(args: &[String]) -> Result<Self, String> {
        let mut o = Self {
            max_id: -1,
            min_rep: -1,
            max_rep: -1,
            min_x: -1,
            max_x: -1,
            min_rule: -1,
            max_rule: -1,
            pool_id: -1,
            ..Self::default()
        };
        let mut a = Args { rest: args.iter(), option: String::new(), inline: None };
        let mut left = Vec::new();
        let mut actions = false;
        while let Some(word) = a.rest.next() {
            if word == "--" {
                left.extend(a.rest.by_ref().cloned());
                break;
            }
            let (option, inline) = match word.split_once('=') {
                Some((option, value)) if word.starts_with("--") => (option, Some(value.into())),
                _ => (word.as_str(), None),
            };
            a.option = option.replace('_', "-");
            a.inline = inline;
            let name = a.option.clone();
            if !option.starts_with('-') || !o.option(&name, &mut a, &mut actions)? {
                left.push(word.clone());
            }
        }
        o.settle(&left, actions)?;
        Ok(o)
    }

    /// What the options say together.
    fn settle(&mut self, left: &[String], actions: bool) -> Result<(), String> {
        let inputs = [self.decompile, self.compile.is_some(), self.build];
        if inputs.iter().filter(|on| **on).count() > 1 {
            return Err("cannot specify more than one of compile, decompile, and build".into());
        }
        if !actions {
            return Err("no action specified; -h for help".into());
        }
        let listed = format!("[{}]", left.join(","));
        if !self.build && !left.is_empty() {
            return Err(format!("unrecognized arguments: {listed}"));
        }
        let (layers, odd) = left.as_chunks::<3>();
        if !odd.is_empty() {
            return Err(format!(
                "remaining args: {listed}\n\
                 layers must be specified with 3-tuples of (name, buckettype, size)"
            ));
        }
        for [name, alg, size] in layers {
            let size = size.parse().unwrap_or(0);
            self.layers.push(Layer { name: name.clone(), alg: alg.clone(), size });
        }
        Ok(())
    }

    /// Takes one option; false if there is none of that name.
    fn option(&mut self, name: &str, a: &mut Args<'_>, actions: &mut bool) -> Result<bool, String> {
        if let Some(tunable) = name.strip_prefix("--set-") {
            let known = TUNABLES.iter().find(|t| t.replace('_', "-") == tunable);
            if let Some(known) = known {
                let value = a.int()?;
                if value >= 0 {
                    self.tunables.push((known, value));
                }
                *actions = true;
                return Ok(true);
            }
        }
        if self.setting(name, a)? {
            return Ok(true);
        }
        match name {
            "-d" | "--decompile" => {
                self.infn = Some(a.next()?);
                self.decompile = true;
            }
            "-c" | "--compile" => self.compile = Some(a.next()?),
            "--build" => self.build = true,
            "--compare" => self.compare = Some(a.next()?),
            "-t" | "--test" => self.test = true,
            "--tree" => self.tree = true,
            "--bucket-tree" => self.bucket_tree = true,
            "--dump" => self.dump = true,
            "--check" => {
                self.check = true;
                // The number may be left out.
                let given = a.inline.is_some()
                    || a.rest.as_slice().first().is_some_and(|w| w.parse::<i32>().is_ok());
                if given {
                    self.max_id = a.int()?;
                }
            }
            "--show-location" => self.show_location = Some(a.int()?).filter(|id| *id >= 0),
            "--reweight" => self.reweight = true,
            "--rebuild-class-roots" => self.rebuild_class_roots = true,
            "--add-item" | "--update-item" => {
                self.add_item = Some(AddItem {
                    update: name == "--update-item",
                    id: a.int()?,
                    weight: a.float()?,
                    name: a.next()?,
                })
                .filter(|add| add.id >= 0);
            }
            "--add-bucket" => self.add_bucket = Some((a.next()?, a.next()?)),
            "--move" => self.move_item = Some(a.next()?),
            "--create-simple-rule" | "--create-replicated-rule" => {
                self.create_rule = Some(CreateRule {
                    name: a.next()?,
                    root: a.next()?,
                    kind: a.next()?,
                    mode: if name == "--create-simple-rule" { Some(a.next()?) } else { None },
                });
            }
            "--remove-rule" => self.remove_rule = Some(a.next()?),
            "--remove-item" => self.remove_item = Some(a.next()?),
            "--reweight-item" => self.reweight_item = Some((a.next()?, a.float()?)),
            _ => return Ok(false),
        }
        *actions = true;
        Ok(true)
    }

    /// Options that are no action by themselves.
    fn setting(&mut self, name: &str, a: &mut Args<'_>) -> Result<bool, String> {
        match name {
            "-i" | "--infn" => self.infn = Some(a.next()?),
            "-o" | "--outfn" => self.outfn = Some(a.next()?),
            "-v" | "--verbose" => self.verbose = true,
            "--enable-unsafe-tunables" => {}
            "-f" | "--format" => {
                let format = a.next()?;
                if format != "json-pretty" {
                    return Err(format!("format '{format}' is not there; use json-pretty"));
                }
            }
            "--bucket-name" => self.bucket_name = Some(a.next()?),
            "--device-class" => self.device_class = Some(a.next()?),
            "--num-osds" => self.num_osds = a.int()?,
            "--set-subtree-class" => {
                self.subtree_classes.insert(a.next()?, a.next()?);
            }
            "--loc" => {
                self.location.insert(a.next()?, a.next()?);
            }
            "--num-rep" => {
                self.min_rep = a.int()?;
                self.max_rep = self.min_rep;
            }
            "--min-rep" => self.min_rep = a.int()?,
            "--max-rep" => self.max_rep = a.int()?,
            "--x" => {
                self.min_x = a.int()?;
                self.max_x = self.min_x;
            }
            "--min-x" => self.min_x = a.int()?,
            "--max-x" => self.max_x = a.int()?,
            "--rule" => {
                self.min_rule = a.int()?;
                self.max_rule = self.min_rule;
            }
            "--min-rule" => self.min_rule = a.int()?,
            "--max-rule" => self.max_rule = a.int()?,
            "--pool-id" => self.pool_id = a.long()?,
            "--batches" => drop(a.int()?),
            "-w" | "--weight" => {
                let device = a.int()?;
                let weight = (a.float()? * 65536.0) as i32;
                self.weights.insert(device, weight.clamp(0, 0x10000) as u32);
            }
            "--show-mappings" => self.show_mappings = true,
            "--show-bad-mappings" => self.show_bad_mappings = true,
            "--show-statistics" => self.show_statistics = true,
            "--show-utilization" => self.show_utilization = true,
            "--show-utilization-all" => self.show_utilization_all = true,
            "--show-choose-tries" => self.show_choose_tries = true,
            _ => return Ok(false),
        }
        Ok(true)
    }
}
