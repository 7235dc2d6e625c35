//! From the map to text.

use std::collections::BTreeSet;
use std::fmt::{self, Write};

use crate::model::{Bucket, BucketAlg, CrushMap, Op, Rule, Step};
use crate::query::is_valid_name;
use crate::tunables::Tunables;

/// The map as text.
#[must_use]
pub fn decompile(map: &CrushMap) -> String {
    let mut out = String::new();
    write(map, &mut out).expect("a string takes all");
    out
}

/// A weight, with the decimals the text form has.
struct Fixed(u32);

impl fmt::Display for Fixed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.5}", f64::from(self.0 as i32 as f32 / 65536.0))
    }
}

fn write(map: &CrushMap, out: &mut String) -> fmt::Result {
    out.push_str("# begin crush map\n");
    tunables(map.tunables(), out)?;

    out.push_str("\n# devices\n");
    for (id, name) in map.names.iter().filter(|(id, _)| (0..map.max_devices).contains(id)) {
        write!(out, "device {id} {name}")?;
        if let Some(class) = map.class_name_of(id) {
            write!(out, " class {class}")?;
        }
        out.push('\n');
    }

    out.push_str("\n# types\n");
    if !map.types.is_empty() && !map.types.contains(0) {
        out.push_str("type 0 osd\n");
    }
    for (id, name) in map.types.iter().filter(|(id, _)| *id >= 0) {
        writeln!(out, "type {id} {name}")?;
    }

    out.push_str("\n# buckets\n");
    let mut done = BTreeSet::new();
    for b in map.buckets() {
        bucket_and_below(map, b, &mut done, out)?;
    }

    out.push_str("\n# rules\n");
    for (id, r) in map.rules() {
        rule(map, id, r, out)?;
    }

    if !map.choose_args.is_empty() {
        out.push_str("\n# choose_args\n");
        for (id, args) in &map.choose_args {
            // The peer prints it unsigned.
            writeln!(out, "choose_args {} {{", *id as u64)?;
            for (bucket, arg) in args.iter() {
                writeln!(out, "  {{\n    bucket_id {bucket}")?;
                if !arg.weight_set().is_empty() {
                    out.push_str("    weight_set [\n");
                    for weights in arg.weight_set() {
                        out.push_str("      [ ");
                        for weight in weights {
                            write!(out, "{} ", Fixed(*weight))?;
                        }
                        out.push_str("]\n");
                    }
                    out.push_str("    ]\n");
                }
                if !arg.ids().is_empty() {
                    out.push_str("    ids [ ");
                    for id in arg.ids() {
                        write!(out, "{id} ")?;
                    }
                    out.push_str("]\n");
                }
                out.push_str("  }\n");
            }
            out.push_str("}\n");
        }
    }
    out.push_str("\n# end crush map\n");
    Ok(())
}

/// Only those that differ from a map's before there were tunables.
fn tunables(t: &Tunables, out: &mut String) -> fmt::Result {
    let old = Tunables::legacy();
    let lines = [
        ("choose_local_tries", t.choose_local_tries, old.choose_local_tries),
        (
            "choose_local_fallback_tries",
            t.choose_local_fallback_tries,
            old.choose_local_fallback_tries,
        ),
        ("choose_total_tries", t.choose_total_tries, old.choose_total_tries),
        ("chooseleaf_descend_once", t.chooseleaf_descend_once, old.chooseleaf_descend_once),
        ("chooseleaf_vary_r", t.chooseleaf_vary_r.into(), old.chooseleaf_vary_r.into()),
        ("chooseleaf_stable", t.chooseleaf_stable.into(), old.chooseleaf_stable.into()),
        ("straw_calc_version", t.straw_calc_version.into(), old.straw_calc_version.into()),
    ];
    for (name, value, old) in lines {
        if value != old {
            writeln!(out, "tunable {name} {}", value as i32)?;
        }
    }
    if t.allowed_bucket_algs != old.allowed_bucket_algs {
        writeln!(out, "tunable allowed_bucket_algs {}", t.allowed_bucket_algs)?;
    }
    if t.need_msr() {
        writeln!(out, "tunable msr_descents {}", t.msr_descents as i32)?;
        writeln!(out, "tunable msr_collision_tries {}", t.msr_collision_tries as i32)?;
    }
    Ok(())
}

fn type_name(map: &CrushMap, kind: i32) -> String {
    match map.types.get(kind) {
        Some(name) => name.to_owned(),
        None if kind == 0 => "device".to_owned(),
        None => format!("type{kind}"),
    }
}

fn item_name(map: &CrushMap, item: i32) -> String {
    match map.names.get(item) {
        Some(name) => name.to_owned(),
        None if item >= 0 => format!("device{item}"),
        None => format!("bucket{}", -1 - i64::from(item)),
    }
}

/// Items first, so that the text can be read in order.
fn bucket_and_below(
    map: &CrushMap,
    b: &Bucket,
    done: &mut BTreeSet<i32>,
    out: &mut String,
) -> fmt::Result {
    if !done.insert(b.id) {
        return Ok(());
    }
    for below in b.items.iter().filter_map(|item| map.bucket(*item)) {
        bucket_and_below(map, below, done, out)?;
    }
    bucket(map, b, out)
}

fn bucket(map: &CrushMap, b: &Bucket, out: &mut String) -> fmt::Result {
    if map.names.get(b.id).is_some_and(|name| !is_valid_name(name)) {
        return Ok(()); // a shadow
    }
    const KEEP: &str = "\t\t# do not change unnecessarily";
    writeln!(out, "{} {} {{", type_name(map, b.kind.into()), item_name(map, b.id))?;
    writeln!(out, "\tid {}{KEEP}", b.id)?;
    for (class, shadow) in map.class_buckets.get(&b.id).into_iter().flatten() {
        if let Some(class) = map.class_names.get(*class) {
            writeln!(out, "\tid {shadow} class {class}{KEEP}")?;
        }
    }
    writeln!(out, "\t# weight {}", Fixed(b.weight))?;
    write!(out, "\talg {}", b.alg().name())?;
    match b.alg() {
        BucketAlg::Uniform => {
            write!(out, "\t# do not change bucket size ({}) unnecessarily", b.items.len())?;
        }
        BucketAlg::List => {
            out.push_str("\t# add new items at the end; do not change order unnecessarily");
        }
        BucketAlg::Tree => {
            out.push_str("\t# do not change pos for existing items unnecessarily");
        }
        BucketAlg::Straw | BucketAlg::Straw2 => {}
    }
    let hash = if b.hash == crate::HASH_RJENKINS1 { "rjenkins1" } else { "unknown" };
    writeln!(out, "\n\thash {}\t# {hash}", b.hash)?;
    let with_pos = matches!(b.alg(), BucketAlg::Uniform | BucketAlg::Tree);
    for (i, item) in b.items.iter().enumerate() {
        write!(out, "\titem {} weight {}", item_name(map, *item), Fixed(b.item_weight(i)))?;
        if with_pos {
            write!(out, " pos {i}")?;
        }
        out.push('\n');
    }
    out.push_str("}\n");
    Ok(())
}

fn rule(map: &CrushMap, id: u32, rule: &Rule, out: &mut String) -> fmt::Result {
    writeln!(out, "rule {} {{", map.rule_names.get(id as i32).unwrap_or(""))?;
    writeln!(out, "\tid {id}")?;
    match rule_type_name(rule.kind) {
        Some(name) => writeln!(out, "\ttype {name}")?,
        None => writeln!(out, "\ttype {}", rule.kind)?,
    }
    for step in &rule.steps {
        self::step(map, *step, out)?;
    }
    out.push_str("}\n");
    Ok(())
}

pub(super) const RULE_TYPES: [(&str, u8); 4] = [
    ("replicated", crate::RULE_TYPE_REPLICATED),
    ("erasure", crate::RULE_TYPE_ERASURE),
    ("msr_firstn", crate::RULE_TYPE_MSR_FIRSTN),
    ("msr_indep", crate::RULE_TYPE_MSR_INDEP),
];

fn rule_type_name(kind: u8) -> Option<&'static str> {
    RULE_TYPES.iter().find(|(_, k)| *k == kind).map(|(name, _)| *name)
}

/// Steps with one argument, and their names in text.
pub(super) const SET_STEPS: [(&str, Op); 8] = [
    ("set_choose_tries", Op::SetChooseTries),
    ("set_choose_local_tries", Op::SetChooseLocalTries),
    ("set_choose_local_fallback_tries", Op::SetChooseLocalFallbackTries),
    ("set_chooseleaf_tries", Op::SetChooseleafTries),
    ("set_chooseleaf_vary_r", Op::SetChooseleafVaryR),
    ("set_chooseleaf_stable", Op::SetChooseleafStable),
    ("set_msr_descents", Op::SetMsrDescents),
    ("set_msr_collision_tries", Op::SetMsrCollisionTries),
];

fn step(map: &CrushMap, step: Step, out: &mut String) -> fmt::Result {
    let Some(op) = step.known() else { return Ok(()) };
    let choose = match op {
        Op::Noop => return out.write_str("\tstep noop\n"),
        Op::Emit => return out.write_str("\tstep emit\n"),
        Op::Take => {
            let (item, class) = map.split_id_class(step.arg1).unwrap_or((step.arg1, None));
            write!(out, "\tstep take {}", item_name(map, item))?;
            if let Some(class) = class.and_then(|class| map.class_names.get(class)) {
                write!(out, " class {class}")?;
            }
            out.push('\n');
            return Ok(());
        }
        Op::ChooseFirstn => "choose firstn",
        Op::ChooseIndep => "choose indep",
        Op::ChooseleafFirstn => "chooseleaf firstn",
        Op::ChooseleafIndep => "chooseleaf indep",
        Op::ChooseMsr => "choosemsr",
        _ => {
            let name = SET_STEPS.iter().find(|(_, o)| *o == op).map_or("", |(name, _)| *name);
            return writeln!(out, "\tstep {name} {}", step.arg1);
        }
    };
    writeln!(out, "\tstep {choose} {} type {}", step.arg1, type_name(map, step.arg2))
}
