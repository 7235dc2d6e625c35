//! The text that Prometheus reads, made of `counter dump` and `counter schema`.
//!
//! Source: upstream's `exporter/DaemonMetricCollector.cc`.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde_json::Value;

use crate::PRIORITY_USEFUL;

/// Families of many daemons, each with its samples.
#[derive(Clone, Debug, Default)]
pub struct Exposition {
    families: BTreeMap<String, Family>,
}

#[derive(Clone, Debug)]
struct Family {
    about: String,
    kind: String,
    /// Labels and value.
    samples: Vec<(String, String)>,
}

/// Bit of a type that says: sum and number.
const AVERAGE: u64 = 4;

/// A name as Prometheus takes it, with `ceph_` before it.
#[must_use]
pub fn metric_name(text: &str) -> String {
    let text = text.replace("::", "_").replace('+', "_plus");
    let text = match text.strip_suffix('-') {
        Some(start) => format!("{start}_minus"),
        None => text,
    };
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '_' { c } else { '_' };
    format!("ceph_{}", text.chars().map(plain).collect::<String>())
}

/// The value of a label, between its quotes.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

impl Exposition {
    /// Takes what one daemon (`osd.0`) told; counters below `priority_min` are left out. What does not
    /// have the form is, too.
    pub fn add(&mut self, daemon: &str, dump: &Value, schema: &Value, priority_min: u64) {
        for (logger, groups) in dump.as_object().into_iter().flatten() {
            for (at, group) in groups.as_array().into_iter().flatten().enumerate() {
                let mut labels = format!("ceph_daemon=\"{}\"", escaped(daemon));
                for (name, value) in group["labels"].as_object().into_iter().flatten() {
                    let value = escaped(value.as_str().unwrap_or_default());
                    let name = metric_name(name);
                    let _ = write!(labels, ",{}=\"{value}\"", &name["ceph_".len()..]);
                }
                let about = &schema[logger][at]["counters"];
                for (name, value) in group["counters"].as_object().into_iter().flatten() {
                    let about = &about[name];
                    let useful = about["priority"].as_u64().unwrap_or(u64::from(PRIORITY_USEFUL));
                    if about.is_object() && useful >= priority_min {
                        self.put(&metric_name(&format!("{logger}_{name}")), about, &labels, value);
                    }
                }
            }
        }
    }

    /// Adds one sample of a gauge.
    pub fn gauge(&mut self, name: &str, about: &str, labels: &str, value: u64) {
        self.sample(name, about, "gauge", labels, value.to_string());
    }

    fn put(&mut self, name: &str, about: &Value, labels: &str, value: &Value) {
        let help = about["description"].as_str().unwrap_or_default();
        if about["type"].as_u64().unwrap_or(0) & AVERAGE == 0 {
            let kind = about["metric_type"].as_str().unwrap_or("untyped");
            if value.is_number() {
                self.sample(name, help, kind, labels, value.to_string());
            }
            return;
        }
        for (part, key) in [("sum", "sum"), ("count", "avgcount")] {
            if value[key].is_number() {
                let name = format!("{name}_{part}");
                let about = match part {
                    "sum" => format!("{help} Total"),
                    _ => format!("{help} Count"),
                };
                self.sample(&name, &about, "counter", labels, value[key].to_string());
            }
        }
    }

    fn sample(&mut self, name: &str, about: &str, kind: &str, labels: &str, value: String) {
        let family = self.families.entry(name.to_owned()).or_insert_with(|| Family {
            about: about.replace('\\', "\\\\").replace('\n', "\\n"),
            kind: kind.to_owned(),
            samples: Vec::new(),
        });
        family.samples.push((labels.to_owned(), value));
    }

    /// All of it, by name.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::new();
        for (name, family) in &self.families {
            let _ = writeln!(text, "# HELP {name} {}", family.about);
            let _ = writeln!(text, "# TYPE {name} {}", family.kind);
            for (labels, value) in &family.samples {
                let _ = writeln!(text, "{name}{{{labels}}} {value}");
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn names_are_plain() {
        for (text, name) in [
            ("osd_op", "ceph_osd_op"),
            ("mds_mem_ino+", "ceph_mds_mem_ino_plus"),
            ("mds_mem_ino-", "ceph_mds_mem_ino_minus"),
            ("AsyncMessenger::Worker-1_x y", "ceph_AsyncMessenger_Worker_1_x_y"),
        ] {
            assert_eq!(metric_name(text), name);
        }
    }

    #[test]
    fn a_daemons_counters_become_samples() {
        let counter = |kind: &str, bits: u64, priority: u64| json!({"type": bits, "metric_type": kind, "description": "d", "priority": priority});
        let schema = json!({"osd": [{"labels": {}, "counters": {
            "op": counter("counter", 10, 10),
            "op_latency": counter("gauge", 5, 9),
            "hidden": counter("gauge", 2, 4),
        }}], "rgw_op": [{"labels": {"bucket": "x"}, "counters": {"put": counter("counter", 10, 5)}}]});
        let dump = json!({"osd": [{"labels": {}, "counters": {
            "op": 7, "op_latency": {"avgcount": 2, "sum": 1.5, "avgtime": 0.75}, "hidden": 1,
            "unknown": 3,
        }}], "rgw_op": [{"labels": {"bucket": "a\"b"}, "counters": {"put": 1}}]});
        let mut all = Exposition::default();
        all.add("osd.0", &dump, &schema, 5);
        let told = all.text();
        let told: Vec<&str> = told.lines().filter(|l| !l.starts_with("# HELP")).collect();
        assert_eq!(
            told,
            [
                "# TYPE ceph_osd_op counter",
                "ceph_osd_op{ceph_daemon=\"osd.0\"} 7",
                "# TYPE ceph_osd_op_latency_count counter",
                "ceph_osd_op_latency_count{ceph_daemon=\"osd.0\"} 2",
                "# TYPE ceph_osd_op_latency_sum counter",
                "ceph_osd_op_latency_sum{ceph_daemon=\"osd.0\"} 1.5",
                "# TYPE ceph_rgw_op_put counter",
                "ceph_rgw_op_put{ceph_daemon=\"osd.0\",bucket=\"a\\\"b\"} 1",
            ]
        );
        all.add("osd.1", &json!({"osd": 3}), &schema, 5);
        all.add("osd.1", &json!([]), &json!(null), 5);
    }
}
