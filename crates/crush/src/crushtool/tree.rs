//! `--tree`: the hierarchy as a table.

use std::io::{self, Write};

use crate::model::{CrushMap, DEFAULT_CHOOSE_ARGS};

/// A weight as tables show it.
fn weight(w: f32) -> String {
    if w < -0.01 {
        "-".to_owned()
    } else if w < 0.000_001 {
        "0".to_owned()
    } else {
        format!("{:.5}", f64::from(w))
    }
}

/// The rows, the heading first; all columns are right-aligned but for the last, and the
/// headings.
fn rows(map: &CrushMap) -> Vec<Vec<String>> {
    let mut heading = vec!["ID".to_owned(), "CLASS".to_owned(), "WEIGHT".to_owned()];
    heading.extend(map.choose_args.keys().map(|id| match *id {
        DEFAULT_CHOOSE_ARGS => "(compat)".to_owned(),
        id => id.to_string(),
    }));
    heading.push("TYPE NAME".to_owned());
    let mut rows = vec![heading];
    for node in map.tree(true, |_| true) {
        let class = map.class_name_of(node.id).unwrap_or("").to_owned();
        let mut row = vec![node.id.to_string(), class, weight(node.weight)];
        for (_, w) in map.weight_set_weights(node.parent, node.id) {
            row.push(w.map_or_else(String::new, weight));
        }
        let name = if node.is_bucket() {
            let kind = map.item_kind(node.id).and_then(|kind| map.type_name(kind));
            format!("{} {}", kind.unwrap_or(""), map.names.get(node.id).unwrap_or(""))
        } else {
            format!("osd.{}", node.id)
        };
        row.push(format!("{}{name}", "    ".repeat(node.depth)));
        rows.push(row);
    }
    rows
}

pub(super) fn print(map: &CrushMap, out: &mut dyn Write) -> io::Result<()> {
    let rows = rows(map);
    let columns = rows[0].len();
    let width = |c: usize| rows.iter().map(|row| row[c].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    for (i, row) in rows.iter().enumerate() {
        let mut line = String::new();
        for (c, (cell, width)) in row.iter().zip(&widths).enumerate() {
            if c > 0 {
                line.push_str("  ");
            }
            if i == 0 || c + 1 == columns {
                line.push_str(&format!("{cell:<width$}"));
            } else {
                line.push_str(&format!("{cell:>width$}"));
            }
        }
        writeln!(out, "{line}")?;
    }
    Ok(())
}
