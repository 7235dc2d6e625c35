//! Daemons that are not the cluster's own, at the manager: gateways, mirrors and whatever
//! calls `rados_service_register`.
//!
//! Source: the peer's `MMgrOpen`, `MMgrConfigure`, `MMgrReport`, `MMgrClose`.

use std::collections::BTreeMap;

use bytes::Bytes;
use denc::{DecodeError, Denc, Reader, Writer};

use crate::{Message, plain_message};

/// A daemon is there, or a client. `MMgrOpen`, v2 is read; later versions add its settings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MgrOpen {
    /// Which daemon of the service.
    pub daemon: String,
    /// The service; empty for what the cluster knows anyway.
    pub service: String,
    /// For a service's daemon: what it says of itself, and how it is.
    pub registered: Option<(BTreeMap<String, String>, BTreeMap<String, String>)>,
}

impl Message for MgrOpen {
    const KIND: u16 = 0x700;
    const VERSION: u16 = 2;

    fn encode_front(&self, w: &mut Writer) {
        self.daemon.encode(w);
        self.service.encode(w);
        w.bool(self.registered.is_some());
        if let Some((metadata, status)) = &self.registered {
            metadata.encode(w);
            status.encode(w);
        }
    }

    fn decode_front(r: &mut Reader<'_>, version: u16, _: &Bytes) -> Result<Self, DecodeError> {
        let mut open = Self { daemon: Denc::decode(r)?, ..Self::default() };
        if version >= 2 {
            open.service = Denc::decode(r)?;
            if r.bool()? {
                open.registered = Some((Denc::decode(r)?, Denc::decode(r)?));
            }
        }
        Ok(open)
    }
}

/// How often to report. `MMgrConfigure`, v2; later versions ask for more statistics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MgrConfigure {
    /// Seconds between reports.
    pub stats_period_s: u32,
    /// Counters of at least this priority.
    pub stats_threshold: u32,
}

impl Message for MgrConfigure {
    const KIND: u16 = 0x701;
    const VERSION: u16 = 2;

    fn encode_front(&self, w: &mut Writer) {
        w.u32(self.stats_period_s);
        w.u32(self.stats_threshold);
    }

    fn decode_front(r: &mut Reader<'_>, version: u16, _: &Bytes) -> Result<Self, DecodeError> {
        let stats_period_s = r.u32()?;
        let stats_threshold = if version >= 2 { r.u32()? } else { 0 };
        Ok(Self { stats_period_s, stats_threshold })
    }
}

/// How a daemon is. `MMgrReport`; of its counters nothing is read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MgrReport {
    /// Which daemon of the service.
    pub daemon: String,
    /// The service.
    pub service: String,
    /// Its status, when it changed.
    pub status: Option<BTreeMap<String, String>>,
}

impl Message for MgrReport {
    const KIND: u16 = 0x702;
    const VERSION: u16 = 4;

    fn encode_front(&self, w: &mut Writer) {
        self.daemon.encode(w);
        w.u32(0); // counters declared
        w.u32(0); // their values
        w.u32(0); // counters withdrawn
        self.service.encode(w);
        w.bool(self.status.is_some());
        if let Some(status) = &self.status {
            status.encode(w);
        }
    }

    fn decode_front(r: &mut Reader<'_>, version: u16, _: &Bytes) -> Result<Self, DecodeError> {
        let daemon = Denc::decode(r)?;
        r.seq(|r| r.framed("PerfCounterType", u8::MAX, |_, _| Ok(())))?;
        r.blob_ref()?;
        let _: Vec<Bytes> = Denc::decode(r)?;
        let service = if version >= 3 { Denc::decode(r)? } else { String::new() };
        let status = if version >= 4 && r.bool()? { Some(Denc::decode(r)?) } else { None };
        Ok(Self { daemon, service, status })
    }
}

plain_message! {
    /// A daemon ends, or the manager has noted that. `MMgrClose`.
    MgrClose, 0x708;
    {
        /// Which daemon of the service.
        daemon: String,
        /// The service.
        service: String,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use denc::Features;

    /// Both sides read what the other writes; a cut-off copy is refused.
    #[test]
    fn round_trips() {
        let pairs = BTreeMap::from([("a".to_owned(), "b".to_owned())]);
        let open = MgrOpen {
            daemon: "x".into(),
            service: "laundry".into(),
            registered: Some((pairs.clone(), BTreeMap::new())),
        };
        assert_eq!(MgrOpen::decode(&open.envelope(Features::ALL)), Ok(open));
        let report =
            MgrReport { daemon: "x".into(), service: "laundry".into(), status: Some(pairs) };
        let mut env = report.envelope(Features::ALL);
        assert_eq!(MgrReport::decode(&env), Ok(report));
        env.front.truncate(env.front.len() - 1);
        assert!(MgrReport::decode(&env).is_err());
        let configure = MgrConfigure { stats_period_s: 5, stats_threshold: 5 };
        assert_eq!(MgrConfigure::decode(&configure.envelope(Features::ALL)), Ok(configure));
    }
}
