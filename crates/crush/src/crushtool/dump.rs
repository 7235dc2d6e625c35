//! `--dump`: the map as JSON for people.

use std::fmt::Write;

use super::format::General;
use crate::dump::Value;
use crate::model::CrushMap;

pub(super) fn json(map: &CrushMap) -> String {
    let mut out = String::new();
    value(&map.dump(), 0, &mut out);
    out.push_str("\n\n");
    out
}

fn text(text: &str, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            c if (c as u32) < 0x20 || c as u32 == 0x7f => {
                let _ = write!(out, "\\u{:04x}", c as u32);
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

fn value(v: &Value, depth: usize, out: &mut String) {
    let line = |depth: usize, out: &mut String| {
        out.push('\n');
        out.push_str(&"    ".repeat(depth));
    };
    match v {
        Value::Int(n) => {
            let _ = write!(out, "{n}");
        }
        Value::Float(x) => {
            let _ = write!(out, "{:.17}", General(*x));
        }
        Value::Text(t) => text(t, out),
        Value::Array { values, .. } => {
            out.push('[');
            for (i, v) in values.iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                line(depth + 1, out);
                value(v, depth + 1, out);
            }
            if !values.is_empty() {
                line(depth, out);
            }
            out.push(']');
        }
        Value::Object(fields) => {
            out.push('{');
            for (i, (name, v)) in fields.iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                line(depth + 1, out);
                text(name, out);
                out.push_str(": ");
                value(v, depth + 1, out);
            }
            if !fields.is_empty() {
                line(depth, out);
            }
            out.push('}');
        }
    }
}
