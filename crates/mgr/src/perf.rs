//! What images do: `rbd perf image stats|counters`, for `rbd perf image iostat|iotop`.
//!
//! While somebody asks, and a minute longer, all OSDs are asked every five seconds for what
//! they counted by image as primaries; they count only while they are asked. Rates are those
//! between the last two answers of each OSD.
//!
//! Source: the peer's `pybind/mgr/rbd_support/perf.py`: names and form of the answers.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use cli::Args;
use rados::Cluster;
use serde_json::{Map, Value, json};
use tokio::task::JoinSet;
use types::{OsdId, PoolId};

use crate::{Answer, EINVAL, ENOENT};

/// In the order of [`Counts`].
const NAMES: [&str; 6] =
    ["write_ops", "read_ops", "write_bytes", "read_bytes", "write_latency", "read_latency"];
/// Between two rounds: the peer's `mgr_stats_period`.
const ROUND: Duration = Duration::from_secs(5);
/// How long an OSD may take to answer.
const PATIENCE: Duration = Duration::from_secs(4);
/// Nobody asked for so long: rounds end.
const ASKED_MS: u64 = 60_000;
/// Images in an answer.
const SHOWN_MAX: usize = 64;
/// Images kept; the quiet ones go first.
const KEPT_MAX: usize = 4096;
/// Names are looked up anew when they are older.
const NAMES_MS: u64 = 300_000;

type Counts = [u64; 6];
/// Pool, namespace, image's id.
type Key = (i64, String, String);
type Table = BTreeMap<Key, Counts>;

#[derive(Debug, Default)]
struct State {
    asked_ms: u64,
    /// Rounds are being made.
    runs: bool,
    /// Of each OSD: when it answered last, monotonic ms, and what.
    last: BTreeMap<OsdId, (u64, Table)>,
    /// What was counted since somebody asks.
    sums: Table,
    /// Per second, in the last round.
    rates: BTreeMap<Key, [f64; 6]>,
    /// When names were looked up last, and what they were: by pool and namespace.
    names: BTreeMap<(i64, String), (u64, BTreeMap<String, String>)>,
}

impl State {
    /// Takes a round's answers: what each OSD counted since it counts.
    fn take(&mut self, now_ms: u64, answers: Vec<(OsdId, Table)>) {
        self.rates.clear();
        for (osd, table) in answers {
            let (since_ms, before) = self.last.remove(&osd).unwrap_or((now_ms, Table::new()));
            let known = since_ms < now_ms;
            for (key, counts) in &table {
                let old = before.get(key).copied().unwrap_or_default();
                // An OSD that began anew counts from nothing.
                let restarted = counts.iter().zip(&old).any(|(new, old)| new < old);
                let old = if restarted { Counts::default() } else { old };
                let secs = (now_ms - since_ms) as f64 / 1e3;
                let sum = self.sums.entry(key.clone()).or_default();
                for i in 0..6 {
                    let more = counts[i] - old[i];
                    sum[i] += more;
                    if known && more > 0 {
                        self.rates.entry(key.clone()).or_default()[i] += more as f64 / secs;
                    }
                }
            }
            self.last.insert(osd, (now_ms, table));
        }
        if self.sums.len() > KEPT_MAX {
            let rates = &self.rates;
            self.sums.retain(|key, _| rates.contains_key(key));
        }
    }

    /// The image's name, once it was looked up.
    fn name(&self, key: &Key) -> Option<&String> {
        self.names.get(&(key.0, key.1.clone()))?.1.get(&key.2)
    }

    /// Where names are to be looked up.
    fn unnamed(&self, now_ms: u64) -> BTreeSet<(i64, String)> {
        let is_old = |at: u64| now_ms > at + NAMES_MS;
        let missing =
            self.sums.keys().filter(|key| match self.names.get(&(key.0, key.1.clone())) {
                None => true,
                Some((at, names)) => {
                    is_old(*at) || (!names.contains_key(&key.2) && now_ms > at + 4_000)
                }
            });
        missing.map(|key| (key.0, key.1.clone())).collect()
    }

    /// The answer: busiest first by `sort`, at most [`SHOWN_MAX`].
    fn report(
        &self,
        stats: bool,
        sort: usize,
        pools: &BTreeMap<PoolId, String>,
        wanted: impl Fn(&Key) -> bool,
    ) -> Map<String, Value> {
        let rate = |key: &Key| self.rates.get(key).map_or([0.0; 6], per_op);
        let mut keys: Vec<(f64, &Key)> =
            self.sums.keys().filter(|k| wanted(k)).map(|key| (rate(key)[sort], key)).collect();
        keys.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(b.1)));
        let mut seen: Vec<String> = Vec::new();
        let mut rows = Vec::new();
        for (_, key) in keys.into_iter().take(SHOWN_MAX) {
            let (Some(pool), Some(name)) = (pools.get(&PoolId(key.0)), self.name(key)) else {
                continue;
            };
            let values = if stats { json!(rate(key)) } else { json!(self.sums[key]) };
            let is_zero = |v: &Value| v.as_f64() == Some(0.0);
            if values.as_array().is_some_and(|all| all.iter().all(is_zero)) {
                continue;
            }
            let place = if key.1.is_empty() { pool.clone() } else { format!("{pool}/{}", key.1) };
            let at = seen.iter().position(|s| *s == place).unwrap_or_else(|| {
                seen.push(place);
                seen.len() - 1
            });
            rows.push(json!({ format!("{at}/{name}"): values }));
        }
        let what = if stats { "stat" } else { "counter" };
        let places = seen.into_iter().enumerate().map(|(i, s)| (i.to_string(), json!(s)));
        Map::from_iter([
            (format!("{what}_descriptors"), json!(NAMES)),
            ("pool_descriptors".to_owned(), Value::Object(places.collect())),
            (format!("{what}s"), Value::Array(rows)),
        ])
    }
}

/// Latencies as averages of an operation, in ns.
fn per_op(rate: &[f64; 6]) -> [f64; 6] {
    let mut shown = *rate;
    for (ops, latency) in [(0, 4), (1, 5)] {
        shown[latency] = if rate[ops] > 0.0 { rate[latency] / rate[ops] } else { 0.0 };
    }
    shown
}

/// What an OSD answered.
fn table(text: &[u8]) -> Option<Table> {
    let all: Vec<Value> = serde_json::from_slice(text).ok()?;
    let one = |v: &Value| {
        let text = |name: &str| v.get(name)?.as_str().map(str::to_owned);
        let numbers: Option<Vec<u64>> =
            v.get("counters")?.as_array()?.iter().map(Value::as_u64).collect();
        let key = (v.get("pool")?.as_i64()?, text("namespace")?, text("image")?);
        Some((key, Counts::try_from(numbers?).ok()?))
    };
    all.iter().map(one).collect()
}

/// The counters. Clones share them.
#[derive(Clone)]
pub(crate) struct Perf(Rc<(Cluster, RefCell<State>)>);

impl Perf {
    pub fn new(cluster: Cluster) -> Self {
        Self(Rc::new((cluster, RefCell::default())))
    }

    fn state(&self) -> std::cell::RefMut<'_, State> {
        self.0.1.borrow_mut()
    }

    /// The answer to `rbd perf image stats|counters`.
    pub async fn command(&self, args: &Args) -> Answer {
        let text = |name| args.str_or_empty(name).unwrap_or_default();
        let sort = match text("sort_by") {
            "" => 0,
            name => match NAMES.iter().position(|n| *n == name) {
                Some(at) => at,
                None => return Answer::err(EINVAL, format!("there is no counter '{name}'")),
            },
        };
        let spec = text("pool_spec");
        let (pool, nspace) = spec.split_once('/').unwrap_or((spec, ""));
        let bad = pool.is_empty() != spec.is_empty() || nspace.contains('/') || spec.ends_with('/');
        if bad {
            return Answer::err(EINVAL, format!("Invalid pool spec: {spec}"));
        }
        let pools = crate::image_pools(&self.0.0);
        // Of a pool that is not for images nothing is told; that it is there is enough.
        let wanted = self.0.0.map().pool_by_name(pool).map(|id| id.0);
        if !pool.is_empty() && wanted.is_none() {
            return Answer::err(ENOENT, format!("Pool '{pool}' not found"));
        }
        self.ask().await;
        let is_wanted = |key: &Key| wanted.is_none_or(|id| key.0 == id && key.1 == nspace);
        let stats = args.prefix() == "rbd perf image stats";
        let mut report = self.state().report(stats, sort, &pools, is_wanted);
        report.insert("timestamp".to_owned(), json!((rt::now().wall_ns / 1_000_000_000) as f64));
        Answer::out(Value::Object(report).to_string())
    }

    /// Notes that somebody wants to know; the first who does waits for all to count.
    async fn ask(&self) {
        let begins = {
            let mut state = self.state();
            state.asked_ms = rt::now().mono_ms();
            !std::mem::replace(&mut state.runs, true)
        };
        if !begins {
            return;
        }
        self.round().await;
        let this = self.clone();
        tokio::task::spawn_local(async move {
            loop {
                tokio::time::sleep(ROUND).await;
                if rt::now().mono_ms() > this.state().asked_ms + ASKED_MS {
                    *this.state() = State::default();
                    return;
                }
                this.round().await;
            }
        });
    }

    async fn round(&self) {
        let cluster = self.0.0.clone();
        let map = cluster.map();
        let mut asked = JoinSet::new();
        for osd in map.osds().filter(|o| map.is_up(*o)) {
            let cluster = cluster.clone();
            asked.spawn_local(async move {
                let ask = cluster.osd_command(osd, r#"{"prefix":"rbd perf image"}"#);
                let (r, rs, out) = match tokio::time::timeout(PATIENCE, ask).await {
                    Ok(Ok(answer)) => answer,
                    Ok(Err(err)) => (-5, err.to_string(), bytes::Bytes::new()),
                    Err(_) => (-110, "no answer".to_owned(), bytes::Bytes::new()),
                };
                let found = if r < 0 { None } else { table(&out) };
                if found.is_none() {
                    tracing::debug!(%osd, r, "what images do: {rs}");
                }
                Some((osd, found?))
            });
        }
        let mut answers = Vec::new();
        while let Some(answer) = asked.join_next().await {
            answers.extend(answer.ok().flatten());
        }
        let now_ms = rt::now().mono_ms();
        let unnamed = {
            let mut state = self.state();
            state.take(now_ms, answers);
            state.unnamed(now_ms)
        };
        for (pool, nspace) in unnamed {
            let io = cluster.pool_by_id(PoolId(pool)).namespace(nspace.clone());
            let names = rbd::pool::list(&io).await.unwrap_or_default();
            let names = names.into_iter().map(|(name, id)| (id, name)).collect();
            self.state().names.insert((pool, nspace), (now_ms, names));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(image: &str) -> Key {
        (1, String::new(), image.to_owned())
    }

    /// Rates are those of the last round, sums go on over restarts, and an OSD's first answer
    /// gives no rate.
    #[test]
    fn rates_and_sums() {
        let mut s = State::default();
        let one = |counts| vec![(OsdId(0), Table::from([(key("a"), counts)]))];
        s.take(1_000, one([10, 0, 100, 0, 1_000, 0]));
        assert!(s.rates.is_empty());
        s.take(6_000, one([20, 5, 300, 50, 3_000, 500]));
        assert_eq!(s.rates[&key("a")], [2.0, 1.0, 40.0, 10.0, 400.0, 100.0]);
        assert_eq!(per_op(&s.rates[&key("a")])[4..], [200.0, 100.0]);
        s.take(11_000, one([5, 0, 5, 0, 5, 0])); // restarted
        assert_eq!(s.sums[&key("a")], [25, 5, 305, 50, 3_005, 500]);
        assert_eq!(s.rates[&key("a")][0], 1.0);
        s.take(16_000, vec![]);
        assert!(s.rates.is_empty());
    }

    /// The form that `rbd perf image iostat` reads; busiest first, without names nothing.
    #[test]
    fn reported() {
        let mut s = State::default();
        let counts = |n| [n, 0, n, 0, n, 0];
        let ns = (1, "ns".to_owned(), "c".to_owned());
        let table = |n| {
            Table::from([(key("a"), counts(n)), (key("b"), counts(2 * n)), (ns.clone(), counts(n))])
        };
        s.take(0, vec![(OsdId(0), table(1))]);
        s.take(1_000, vec![(OsdId(0), table(3))]);
        let names =
            BTreeMap::from([("a".to_owned(), "A".to_owned()), ("b".to_owned(), "B".to_owned())]);
        s.names.insert((1, String::new()), (0, names));
        assert_eq!(s.unnamed(1_000), BTreeSet::from([(1, "ns".to_owned())]));
        let pools = BTreeMap::from([(PoolId(1), "rbd".to_owned())]);
        let report = s.report(true, 0, &pools, |_| true);
        assert_eq!(report["pool_descriptors"], json!({"0": "rbd"}));
        assert_eq!(report["stat_descriptors"], json!(NAMES));
        let b = json!([4.0, 0.0, 4.0, 0.0, 1.0, 0.0]);
        let a = json!([2.0, 0.0, 2.0, 0.0, 1.0, 0.0]);
        assert_eq!(report["stats"], json!([{"0/B": b}, {"0/A": a}]));
        let report = s.report(false, 0, &pools, |k| k.2 == "a");
        assert_eq!(report["counters"], json!([{"0/A": [3, 0, 3, 0, 3, 0]}]));
    }

    #[test]
    fn answers_of_osds() {
        let text = br#"[{"pool":1,"namespace":"","image":"a","counters":[1,2,3,4,5,6]}]"#;
        assert_eq!(table(text), Some(Table::from([(key("a"), [1, 2, 3, 4, 5, 6])])));
        assert_eq!(table(b"[]"), Some(Table::new()));
        for bad in
            [&b"x"[..], b"[{}]", br#"[{"pool":1,"namespace":"","image":"a","counters":[1]}]"#]
        {
            assert_eq!(table(bad), None);
        }
    }
}
