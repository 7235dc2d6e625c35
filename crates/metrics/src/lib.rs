//! Counters of daemons, under upstream's names: what each is (its [`Family`]), its value, and the
//! answers of `perf dump`, `perf schema`, `perf histogram dump`, `counter dump` and `counter schema`.
//!
//! A role has its counters in a struct that [`group!`] makes: counting is an addition without a lock.
//! What is counted elsewhere becomes a [`Group`] when somebody asks.
//!
//! Source: upstream's `common/perf_counters.cc`, `common/perf_counters_collection.cc`,
//! `common/perf_histogram.cc`.

mod exposition;
mod histogram;

use serde_json::{Map, Value, json};

pub use exposition::{Exposition, metric_name};
pub use histogram::{Axis, Histogram};

/// What a value means and how it looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Only grows.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Sum and number of durations.
    Time,
    /// Sum and number of amounts.
    Average,
}

/// What a value counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Things.
    None,
    /// Bytes.
    Bytes,
}

/// From this priority on a counter is told to who collects all that matter.
pub const PRIORITY_USEFUL: u8 = 5;

/// What one counter is.
#[derive(Clone, Copy, Debug)]
pub struct Family {
    /// Upstream's name of it.
    pub name: &'static str,
    /// What it counts, in a few words.
    pub about: &'static str,
    /// Heading of a column of `daemonperf`; empty: none.
    pub nick: &'static str,
    /// 0 (for developers) to 10 (for everybody).
    pub priority: u8,
    /// What its value means.
    pub shape: Shape,
    /// What its value counts.
    pub unit: Unit,
}

/// One value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    /// Of a counter or gauge.
    Number(u64),
    /// Of a time or an average: their sum (ns for a time) and their number.
    Sum(u64, u64),
}

/// The counters of one logger, with their values.
#[derive(Clone, Debug)]
pub struct Group {
    /// Upstream's name of the logger.
    pub logger: &'static str,
    /// Name and value of each label: several groups of one logger differ in them.
    pub labels: Vec<(&'static str, String)>,
    /// Each counter.
    pub counters: Vec<(Family, Amount)>,
}

impl Family {
    /// Upstream's number of the type: 1 time, 2 number, 4 average, 8 counter.
    #[must_use]
    pub fn type_bits(&self) -> u32 {
        match self.shape {
            Shape::Counter => 10,
            Shape::Gauge => 2,
            Shape::Time => 5,
            Shape::Average => 6,
        }
    }

    /// As `perf schema` tells it.
    #[must_use]
    pub fn schema(&self) -> Value {
        let metric = if self.shape == Shape::Counter { "counter" } else { "gauge" };
        let value = match self.shape {
            Shape::Counter | Shape::Gauge => "integer",
            Shape::Time => "real-integer-pair",
            Shape::Average => "integer-integer-pair",
        };
        json!({
            "type": self.type_bits(),
            "metric_type": metric,
            "value_type": value,
            "description": self.about,
            "nick": self.nick,
            "priority": self.priority,
            "units": match self.unit {
                Unit::None => "none",
                Unit::Bytes => "bytes",
            },
        })
    }

    fn value(&self, amount: Amount) -> Value {
        match amount {
            Amount::Number(n) => json!(n),
            Amount::Sum(sum, count) if self.shape == Shape::Time => {
                let sum = sum as f64 / 1e9;
                let average = if count == 0 { 0.0 } else { sum / count as f64 };
                json!({ "avgcount": count, "sum": sum, "avgtime": average })
            }
            Amount::Sum(sum, count) => json!({ "avgcount": count, "sum": sum }),
        }
    }
}

impl Group {
    /// Without labels.
    #[must_use]
    pub fn new(logger: &'static str, counters: Vec<(Family, Amount)>) -> Self {
        Self { logger, labels: Vec::new(), counters }
    }

    fn told(&self, schema: bool, only: Option<&str>) -> Map<String, Value> {
        let asked = self.counters.iter().filter(|(f, _)| only.is_none_or(|name| name == f.name));
        let tell = |(family, amount): &(Family, Amount)| {
            let value = if schema { family.schema() } else { family.value(*amount) };
            (family.name.to_owned(), value)
        };
        asked.map(tell).collect()
    }
}

/// Answers `perf dump` or `perf schema`: all loggers without labels, one's counters, or one counter.
#[must_use]
pub fn perf(groups: &[Group], schema: bool, logger: Option<&str>, counter: Option<&str>) -> Value {
    let asked = groups.iter().filter(|g| g.labels.is_empty());
    let asked = asked.filter(|g| logger.is_none_or(|name| name == g.logger));
    let told = asked.map(|g| (g.logger.to_owned(), Value::Object(g.told(schema, counter))));
    Value::Object(told.collect())
}

/// Answers `counter dump` or `counter schema`: every logger's groups, each with its labels.
#[must_use]
pub fn labelled(groups: &[Group], schema: bool) -> Value {
    let mut all: Map<String, Value> = Map::new();
    for group in groups {
        let labels = group.labels.iter().map(|(name, value)| ((*name).to_owned(), json!(value)));
        let labels: Map<String, Value> = labels.collect();
        let one = json!({ "labels": labels, "counters": group.told(schema, None) });
        let list = all.entry(group.logger).or_insert_with(|| json!([]));
        if let Some(list) = list.as_array_mut() {
            list.push(one);
        }
    }
    Value::Object(all)
}

/// Answers one of the four commands about counters; `None` for any other.
#[must_use]
pub fn answer(
    prefix: &str,
    groups: &[Group],
    logger: Option<&str>,
    counter: Option<&str>,
) -> Option<Value> {
    match prefix {
        "perf dump" | "perf schema" => Some(perf(groups, prefix == "perf schema", logger, counter)),
        "counter dump" | "counter schema" => Some(labelled(groups, prefix == "counter schema")),
        _ => None,
    }
}

/// Where a daemon's `counter schema` tells other than upstream's of the same logger and name: a
/// sentence each. `recorded` has a line for each of upstream's: kind of daemon, logger, name, type,
/// priority, unit, nick, separated by tabs. Logger `argonaut` is ours alone. For tests.
#[must_use]
pub fn differences(daemon: &str, schema: &Value, recorded: &str) -> Vec<String> {
    let mut all = Vec::new();
    for (logger, groups) in schema.as_object().into_iter().flatten() {
        let counters = groups[0]["counters"].as_object().into_iter().flatten();
        for (name, told) in counters.filter(|_| logger != "argonaut") {
            let text = |key: &str| match &told[key] {
                Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            let start = format!("{daemon}\t{logger}\t{name}\t");
            let rest = ["type", "priority", "units", "nick"].map(text).join("\t");
            match recorded.lines().find_map(|line| line.strip_prefix(&start)) {
                None => all.push(format!("{start}: not upstream's")),
                Some(theirs) if theirs != rest => {
                    all.push(format!("{start}: {rest}, upstream has {theirs}"));
                }
                Some(_) => {}
            }
        }
    }
    all
}

/// A kind of counter: the type of a field that [`group!`] makes.
pub trait Cell: Default {
    /// What its value means.
    const SHAPE: Shape;
    /// What its value counts.
    const UNIT: Unit = Unit::None;
    /// Whether `perf reset` sets it to zero.
    const RESETS: bool = true;

    /// The value now.
    fn amount(&self) -> Amount;
}

macro_rules! number {
    ($(#[$doc:meta] $name:ident $shape:ident $unit:ident $resets:literal)*) => { $(
        #[$doc]
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name(pub u64);

        impl Cell for $name {
            const SHAPE: Shape = Shape::$shape;
            const UNIT: Unit = Unit::$unit;
            const RESETS: bool = $resets;

            fn amount(&self) -> Amount {
                Amount::Number(self.0)
            }
        }

        impl std::ops::AddAssign<u64> for $name {
            fn add_assign(&mut self, more: u64) {
                self.0 = self.0.wrapping_add(more);
            }
        }
    )* };
}

number! {
    /// How often something happened.
    Count Counter None true
    /// Bytes that went some way.
    Bytes Counter Bytes true
    /// How many there are.
    Level Gauge None false
    /// How many bytes there are.
    LevelBytes Gauge Bytes false
}

/// Durations: their sum and their number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Time {
    /// Together, ns.
    pub sum_ns: u64,
    /// How many.
    pub count: u64,
}

impl Time {
    /// Counts one that took `ns`.
    pub fn add(&mut self, ns: u64) {
        self.sum_ns = self.sum_ns.wrapping_add(ns);
        self.count += 1;
    }
}

impl Cell for Time {
    const SHAPE: Shape = Shape::Time;

    fn amount(&self) -> Amount {
        Amount::Sum(self.sum_ns, self.count)
    }
}

/// Makes a struct of one logger's counters. Each row is `NAME KIND PRIORITY "NICK" "ABOUT"`.
#[macro_export]
macro_rules! group {
    ($(#[$doc:meta])* $vis:vis struct $group:ident $logger:literal {
        $($name:ident $kind:ident $priority:literal $nick:literal $about:literal)*
    }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Default)]
        $vis struct $group {
            $(#[doc = $about] pub $name: $crate::$kind,)*
        }

        impl $group {
            /// Each counter with its value now.
            #[must_use]
            pub fn group(&self) -> $crate::Group {
                use $crate::Cell as _;
                let counters = vec![$((
                    $crate::Family {
                        name: stringify!($name),
                        about: $about,
                        nick: $nick,
                        priority: $priority,
                        shape: <$crate::$kind as $crate::Cell>::SHAPE,
                        unit: <$crate::$kind as $crate::Cell>::UNIT,
                    },
                    self.$name.amount(),
                )),*];
                $crate::Group::new($logger, counters)
            }

            /// Back to zero; what shows a state stays.
            pub fn reset(&mut self) {
                $(if <$crate::$kind as $crate::Cell>::RESETS {
                    self.$name = Default::default();
                })*
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    group! {
        /// For the tests.
        struct Own "osd" {
            op Count 10 "ops" "requests"
            op_in_bytes Bytes 8 "wr" "bytes written"
            op_latency Time 9 "l" "time of requests"
            numpg Level 5 "pgs" "PGs"
            stat_bytes LevelBytes 5 "size" "size"
        }
    }

    fn counted() -> Own {
        let mut own = Own::default();
        own.op += 2;
        own.op_in_bytes += 100;
        own.op_latency.add(1_000_000_000);
        own.op_latency.add(3_000_000_000);
        own.numpg.0 = 7;
        own
    }

    #[test]
    fn told_in_upstreams_form() {
        let groups = [counted().group()];
        let all = perf(&groups, false, None, None);
        assert_eq!(all["osd"]["op"], 2);
        assert_eq!(all["osd"]["op_latency"], json!({"avgcount": 2, "sum": 4.0, "avgtime": 2.0}));
        assert_eq!(perf(&groups, false, Some("osd"), Some("op")), json!({"osd": {"op": 2}}));
        assert_eq!(perf(&groups, false, Some("mds"), None), json!({}));
        let schema = perf(&groups, true, None, None);
        assert_eq!(
            schema["osd"]["op"],
            json!({"type": 10, "metric_type": "counter", "value_type": "integer",
                   "description": "requests", "nick": "ops", "priority": 10, "units": "none"})
        );
        assert_eq!(
            (&schema["osd"]["op_latency"]["type"], &schema["osd"]["numpg"]["type"]),
            (&json!(5), &json!(2))
        );
        assert_eq!(schema["osd"]["op_in_bytes"]["units"], "bytes");
    }

    #[test]
    fn labels_make_several_of_one_logger() {
        let mut groups = vec![counted().group(), counted().group()];
        groups[1].labels.push(("bucket", "b".to_owned()));
        let all = labelled(&groups, false);
        assert_eq!(all["osd"][0]["labels"], json!({}));
        assert_eq!(all["osd"][1]["labels"], json!({"bucket": "b"}));
        assert_eq!(all["osd"][1]["counters"]["op"], 2);
        assert_eq!(labelled(&groups, true)["osd"][0]["counters"]["numpg"]["type"], 2);
        assert_eq!(perf(&groups, false, None, None)["osd"]["op"], 2, "those without labels");
    }

    #[test]
    fn states_stay_at_a_reset() {
        let mut own = counted();
        own.reset();
        assert_eq!((own.op, own.numpg, own.op_latency), (Count(0), Level(7), Time::default()));
    }
}
