//! What clients measure.

use bytes::Bytes;
use denc::{DecodeError, Denc, Reader, Writer};
use types::UTime;

use crate::plain_message;

/// One measurement. The peer's `ClientMetricMessage`: u32 kind, versioned struct.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum ClientMetric {
    /// Kinds 0, caps, and 4, leases of entries: hits and misses, and how many there are.
    Cache { kind: u32, hits: u64, misses: u64, total: u64 },
    /// Kinds 1 to 3, reads, writes, metadata: the sum of latencies since the last message in
    /// release 16, the last one since; the mean, the sum of squares and the count (v2).
    Latency { kind: u32, latency: UTime, mean: UTime, squares: u64, count: u64 },
    /// Kinds 5 to 9: open files, pinned caps, open inodes of all inodes; reads and writes
    /// and their bytes.
    Pair { kind: u32, value: u64, total: u64 },
    /// A kind that is not known here.
    Other { kind: u32, version: u8, compat: u8, body: Bytes },
}

impl Denc for ClientMetric {
    fn encode(&self, w: &mut Writer) {
        match self {
            Self::Cache { kind, hits, misses, total } => {
                w.u32(*kind);
                w.framed(1, 1, |w| [hits, misses, total].map(|x| w.u64(*x)));
            }
            Self::Latency { kind, latency, mean, squares, count } => {
                w.u32(*kind);
                let version = if maps::release(w.features()) == 16 { 1 } else { 2 };
                w.framed(version, 1, |w| {
                    latency.encode(w);
                    if version >= 2 {
                        mean.encode(w);
                        w.u64(*squares);
                        w.u64(*count);
                    }
                });
            }
            Self::Pair { kind, value, total } => {
                w.u32(*kind);
                w.framed(1, 1, |w| [value, total].map(|x| w.u64(*x)));
            }
            Self::Other { kind, version, compat, body } => {
                w.u32(*kind);
                w.framed(*version, *compat, |w| w.raw(body));
            }
        }
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let kind = r.u32()?;
        match kind {
            0 | 4 => r.framed("ClientMetric", 1, |r, _| {
                Ok(Self::Cache { kind, hits: r.u64()?, misses: r.u64()?, total: r.u64()? })
            }),
            1..=3 => r.framed("ClientMetric", 2, |r, v| {
                let latency = Denc::decode(r)?;
                let (mean, squares, count) = if v >= 2 {
                    (Denc::decode(r)?, r.u64()?, r.u64()?)
                } else {
                    (UTime::ZERO, 0, 0)
                };
                Ok(Self::Latency { kind, latency, mean, squares, count })
            }),
            5..=9 => r.framed("ClientMetric", 1, |r, _| {
                Ok(Self::Pair { kind, value: r.u64()?, total: r.u64()? })
            }),
            _ => {
                let (version, compat) = (r.u8()?, r.u8()?);
                Ok(Self::Other { kind, version, compat, body: r.blob()? })
            }
        }
    }
}

plain_message! {
    /// Measurements. `MClientMetrics`.
    ClientMetrics, 29;
    {
        /// One of each kind.
        metrics: Vec<ClientMetric>,
    }
}
