//! Metadata servers to monitors.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use denc::{DecodeError, Denc, Reader, Writer};
use maps::fs::MdsHealth;
use maps::{CompatSet, MdsState};
use types::Uuid;

use crate::{Message, PRIO_HIGH, Paxos, plain_message};

/// A metadata server is there and in a state, or wants another; and the monitor's answer,
/// with compat sets and health empty. `MMDSBeacon`, 8/6.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MdsBeacon {
    /// The newest file-system map that the server has; in an answer, the epoch that counts
    /// for it.
    pub paxos: Paxos,
    /// The cluster.
    pub fsid: Uuid,
    /// The server's session with the monitors.
    pub gid: u64,
    /// The state it is in or wants.
    pub state: MdsState,
    /// Counts beacons; an answer repeats it.
    pub seq: u64,
    /// The server's name.
    pub name: String,
    /// What it knows.
    pub compat: CompatSet,
    /// What it complains about.
    pub health: MdsHealth,
    /// What `ceph mds metadata` shows; only in [`MdsState::BOOT`].
    pub sys_info: BTreeMap<String, String>,
    /// Its feature word.
    pub features: u64,
    /// The file system that it prefers; empty for any.
    pub fs: String,
}

impl Message for MdsBeacon {
    const KIND: u16 = 100;
    const VERSION: u16 = 8;
    const COMPAT: u16 = 6;
    const PRIORITY: u16 = PRIO_HIGH;

    fn encode_front(&self, w: &mut Writer) {
        self.paxos.encode(w);
        self.fsid.encode(w);
        w.u64(self.gid);
        self.state.encode(w);
        w.u64(self.seq);
        w.str(&self.name);
        w.i32(-1); // a rank and a name to follow, long gone
        w.str("");
        self.compat.encode(w);
        self.health.encode(w);
        if self.state == MdsState::BOOT {
            self.sys_info.encode(w);
        }
        w.u64(self.features);
        w.i32(-1); // a file system to follow, and whether; long gone
        w.bool(false);
        w.str(&self.fs);
    }

    fn decode_front(r: &mut Reader<'_>, version: u16, _: &Bytes) -> Result<Self, DecodeError> {
        r.require(version >= 6, "beacons are read from version 6 on")?;
        let mut m = Self {
            paxos: Denc::decode(r)?,
            fsid: Denc::decode(r)?,
            gid: r.u64()?,
            state: Denc::decode(r)?,
            seq: r.u64()?,
            name: r.string()?,
            ..Self::default()
        };
        let _ = (r.i32()?, r.blob_ref()?);
        m.compat = Denc::decode(r)?;
        m.health = Denc::decode(r)?;
        if m.state == MdsState::BOOT {
            m.sys_info = Denc::decode(r)?;
        }
        m.features = r.u64()?;
        r.i32()?;
        if version >= 7 {
            r.bool()?;
        }
        if version >= 8 {
            m.fs = r.string()?;
        }
        Ok(m)
    }
}

plain_message! {
    /// To which ranks a metadata server gives directories. `MMDSLoadTargets`.
    MdsLoadTargets, 0x20a;
    {
        /// Leads the message.
        paxos: Paxos,
        /// The server's session with the monitors.
        gid: u64,
        /// Those ranks.
        targets: BTreeSet<i32>,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use denc::Features;

    #[test]
    fn boot_and_later() {
        let mut m = MdsBeacon {
            paxos: Paxos { version: 7 },
            gid: 4120,
            state: MdsState::BOOT,
            seq: 1,
            name: "a".into(),
            compat: maps::fs::compat_supported(),
            sys_info: BTreeMap::from([("arch".into(), "x86_64".into())]),
            fs: "cephfs".into(),
            ..MdsBeacon::default()
        };
        m.health.metrics.push(maps::fs::MdsHealthMetric {
            kind: 1,
            severity: 1,
            ..Default::default()
        });
        let env = m.envelope(Features::ALL);
        assert_eq!((env.version, env.compat, env.priority), (8, 6, 196));
        assert_eq!(MdsBeacon::decode(&env), Ok(m.clone()));
        m.state = MdsState::STANDBY;
        let later = MdsBeacon::decode(&m.envelope(Features::ALL)).unwrap();
        assert!(later.sys_info.is_empty() && later.fs == "cephfs");
        let empty = MdsBeacon { name: "a".into(), ..MdsBeacon::default() };
        assert_eq!(empty.envelope(Features::ALL).front.len(), 130);
    }
}
