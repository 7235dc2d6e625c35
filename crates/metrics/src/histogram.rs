//! Histograms with two axes, as `perf histogram dump` tells them.

use serde_json::{Value, json};

/// One axis: buckets that double their width. The first takes what is below `min`, the last all that
/// is beyond.
#[derive(Clone, Copy, Debug)]
pub struct Axis {
    /// Its name, with the unit.
    pub name: &'static str,
    /// Where the second bucket begins.
    pub min: u64,
    /// Width of the second bucket.
    pub quantum: u64,
    /// How many.
    pub buckets: usize,
}

/// Counts by two amounts at once.
#[derive(Clone, Debug)]
pub struct Histogram {
    axes: [Axis; 2],
    /// Row by row of the first axis.
    counts: Vec<u64>,
}

impl Axis {
    /// The bucket of an amount: the second has `quantum` amounts from `min` on, the third as many
    /// more, each later one twice as many as the one before.
    fn bucket(&self, amount: u64) -> usize {
        let Some(over) = amount.checked_sub(self.min) else { return 0 };
        let bits = u64::BITS - (over / self.quantum).leading_zeros();
        (bits as usize + 1).min(self.buckets - 1)
    }

    /// First and last amount of a bucket; `None` where it has no end.
    fn range(&self, bucket: usize) -> (Option<u64>, Option<u64>) {
        let edge = |n: usize| {
            let quanta = if n == 0 { 0 } else { 1u64 << (n - 1).min(62) };
            self.min.saturating_add(quanta.saturating_mul(self.quantum))
        };
        let first = bucket.checked_sub(1).map(edge);
        let last = (bucket + 1 < self.buckets).then(|| edge(bucket).checked_sub(1)).flatten();
        (first, last)
    }

    fn json(&self) -> Value {
        let range = |bucket| match self.range(bucket) {
            (None, last) => json!({ "max": last.map_or(-1, |n| n as i64) }),
            (Some(first), None) => json!({ "min": first }),
            (Some(first), Some(last)) => json!({ "min": first, "max": last }),
        };
        json!({
            "name": self.name,
            "min": self.min,
            "quant_size": self.quantum,
            "buckets": self.buckets,
            "scale_type": "log2",
            "ranges": (0..self.buckets).map(range).collect::<Vec<_>>(),
        })
    }
}

impl Histogram {
    /// Empty.
    #[must_use]
    pub fn new(axes: [Axis; 2]) -> Self {
        Self { axes, counts: vec![0; axes[0].buckets * axes[1].buckets] }
    }

    /// Counts one event by its two amounts.
    pub fn add(&mut self, first: u64, second: u64) {
        let at = self.axes[0].bucket(first) * self.axes[1].buckets + self.axes[1].bucket(second);
        self.counts[at] += 1;
    }

    /// Back to zero.
    pub fn reset(&mut self) {
        self.counts.fill(0);
    }

    /// Axes, and a row of counts for each bucket of the first.
    #[must_use]
    pub fn json(&self) -> Value {
        let rows: Vec<&[u64]> = self.counts.chunks(self.axes[1].buckets).collect();
        json!({ "axes": self.axes.map(|axis| axis.json()), "values": rows })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: Axis = Axis { name: "Request size (bytes)", min: 0, quantum: 512, buckets: 32 };
    const TIME: Axis = Axis { name: "Latency (usec)", min: 0, quantum: 100_000, buckets: 32 };

    /// Every amount is in the bucket whose range holds it.
    #[test]
    fn buckets_are_their_ranges() {
        for axis in [SIZE, Axis { min: 10, quantum: 3, buckets: 6, ..SIZE }] {
            for amount in (0..5_000).chain([1 << 40, u64::MAX]) {
                let (first, last) = axis.range(axis.bucket(amount));
                let inside = first.is_none_or(|n| n <= amount) && last.is_none_or(|n| amount <= n);
                assert!(inside, "{amount}: {first:?} to {last:?}");
            }
        }
        assert_eq!(SIZE.range(1), (Some(0), Some(511)));
        assert_eq!(SIZE.range(2), (Some(512), Some(1023)));
        assert_eq!(SIZE.range(3), (Some(1024), Some(2047)));
    }

    #[test]
    fn told_in_rows() {
        let mut all = Histogram::new([TIME, SIZE]);
        all.add(5, 600);
        all.add(5, 601);
        let told = all.json();
        assert_eq!(told["values"][1][2], 2);
        assert_eq!(told["axes"][0]["name"], "Latency (usec)");
        assert_eq!(told["axes"][1]["ranges"][0], json!({"max": -1}));
        assert_eq!(told["axes"][1]["ranges"][1], json!({"min": 0, "max": 511}));
        all.reset();
        assert_eq!(all.json()["values"][1][2], 0);
    }
}
