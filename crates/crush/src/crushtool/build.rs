//! `--build`: layers of buckets over a row of devices.

use super::args::Options;
use super::{Exit, Io};
use crate::model::{BucketAlg, CrushMap};

pub(super) fn build(opts: &Options, io: &mut Io<'_>) -> Result<Result<CrushMap, String>, Exit> {
    if opts.layers.is_empty() {
        return Ok(Err(format!("{}: must specify at least one layer", super::ME)));
    }
    if opts.num_osds >= crate::DEVICES_MAX {
        return Ok(Err(format!("{}: too many osds", super::ME)));
    }
    let mut map = CrushMap::default();
    let mut lower: Vec<(i32, u32)> = (0..opts.num_osds.max(0)).map(|i| (i, 0x10000)).collect();
    for (osd, _) in &lower {
        map.names.set(*osd, format!("osd.{osd}"));
    }
    map.max_devices = opts.num_osds;
    map.set_type_name(0, "osd");
    for (i, layer) in opts.layers.iter().enumerate() {
        let Ok(kind) = u16::try_from(i + 1) else {
            return Ok(Err(format!("{}: too many layers", super::ME)));
        };
        map.set_type_name(kind, &layer.name);
        let Some(alg) = BucketAlg::from_name(&layer.alg) else {
            return Ok(Err(format!("unknown bucket type '{}'", layer.alg)));
        };
        let size = usize::try_from(layer.size).unwrap_or(0);
        let chunk = if size == 0 { lower.len().max(1) } else { size };
        let mut upper = Vec::new();
        for (n, items) in lower.chunks(chunk).enumerate() {
            let weight = items.iter().fold(0u32, |sum, (_, w)| sum.wrapping_add(*w));
            let id = match map.add_bucket(None, Some(alg), kind, items) {
                Ok(id) => id,
                Err(e) => {
                    let why = super::errno_text(e.kind);
                    return Ok(Err(format!(" Couldn't add bucket: {why}")));
                }
            };
            let mut name =
                if size == 0 { layer.name.clone() } else { format!("{}{n}", layer.name) };
            name.truncate((0..=19).rev().find(|n| name.is_char_boundary(*n)).unwrap_or(0));
            let _ = map.set_item_name(id, &name);
            upper.push((id, weight));
        }
        lower = upper;
    }
    let last = &opts.layers[opts.layers.len() - 1];
    let root = if last.size == 0 { last.name.clone() } else { format!("{}0", last.name) };
    let roots = map.roots().len();
    if roots > 1 {
        writeln!(
            io.err,
            "The crush rulesets will use the root {root}\nand ignore the others.\n\
             There are {roots} roots, they can be\n\
             grouped into a single root by appending something like:\n  root straw 0\n"
        )?;
    }
    let failure_domain = map.type_name(1).unwrap_or("").to_owned();
    let rule = map.add_replicated_rule("replicated_rule", &root, &failure_domain, "");
    Ok(rule.map(|_| map).map_err(|e| e.message))
}
