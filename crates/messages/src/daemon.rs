//! What OSDs tell the monitors: our own messages, version 1 each, numbered from 0x8001.
//! Clients never see them.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use types::{AddrVec, EVersion, Epoch, OsdId, PgId, PoolId, Uuid};

use crate::plain_message;

plain_message! {
    /// An OSD came up and wants to be in the map.
    OsdBoot, 0x8001;
    {
        /// Which OSD.
        osd: OsdId,
        /// Its incarnation on disk; must equal the map's, where the map has one.
        uuid: Uuid,
        /// The newest map it has.
        epoch: Epoch,
        /// In which epoch this process was first marked up; 0 where it was not yet.
        boot_epoch: Epoch,
        /// Where clients reach it.
        client: AddrVec,
        /// Where other OSDs reach it.
        cluster: AddrVec,
        /// Where heartbeats go, public side.
        hb_front: AddrVec,
        /// Where heartbeats go, cluster side.
        hb_back: AddrVec,
        /// What `ceph osd metadata` shows.
        metadata: BTreeMap<String, String>,
        /// Its feature word.
        features: u64,
        /// Bytes of its device: the initial CRUSH weight is this in TiB.
        device_bytes: u64,
        /// Device class: `ssd`, `hdd`, ...; empty to leave it unset.
        device_class: String,
        /// CRUSH location as `type=name` pairs, root first; empty is `root=default host=<hostname>`.
        location: BTreeMap<String, String>,
    }
}
plain_message! {
    /// An OSD wants `up_thru` raised before it serves.
    OsdAlive, 0x8002;
    {
        /// Which OSD.
        osd: OsdId,
        /// The newest map it has.
        epoch: Epoch,
        /// The epoch wanted.
        want_up_thru: Epoch,
    }
}
plain_message! {
    /// One OSD hears nothing from another, or hears from it again.
    OsdFailure, 0x8003;
    {
        /// Who reports.
        reporter: OsdId,
        /// Who is silent.
        target: OsdId,
        /// The address it had.
        target_addrs: AddrVec,
        /// For how long, in milliseconds.
        failed_for_ms: u64,
        /// Taken back: it answers again.
        alive: bool,
        /// Its port refuses connections: there is no process.
        immediate: bool,
        /// The reporter's map.
        epoch: Epoch,
    }
}
plain_message! {
    /// An OSD is alive even if it has nothing to report.
    OsdBeacon, 0x8004;
    {
        /// Which OSD.
        osd: OsdId,
        /// The newest map it has.
        epoch: Epoch,
        /// The oldest epoch one of its PGs was clean in.
        min_last_epoch_clean: Epoch,
    }
}
plain_message! {
    /// An OSD is about to stop and wants to be marked down; answered by the map.
    OsdMarkMeDown, 0x8005;
    {
        /// Which OSD.
        osd: OsdId,
        /// The newest map it has.
        epoch: Epoch,
    }
}
plain_message! {
    /// A primary asks for another acting set until the mapped one is ready.
    PgTemp, 0x8006;
    {
        /// Who asks.
        osd: OsdId,
        /// The newest map it has.
        epoch: Epoch,
        /// PG to OSDs; an empty list ends the exception.
        pgs: BTreeMap<PgId, Vec<OsdId>>,
    }
}
plain_message! {
    /// Two PGs that the map is about to merge are at rest, or cannot be. The peer's
    /// `MOSDPGReadyToMerge`.
    PgReadyToMerge, 0x800c;
    {
        /// Who leads both.
        osd: OsdId,
        /// The newest map it has, by which both are as it says.
        epoch: Epoch,
        /// The PG that is to go.
        source: PgId,
        /// Its last write.
        source_version: EVersion,
        /// The last write of the PG it goes to.
        target_version: EVersion,
        /// The newest interval of both that was activated.
        last_epoch_started: Epoch,
        /// The oldest epoch in which both were known whole.
        last_epoch_clean: Epoch,
        /// `false`: they cannot be merged now.
        ready: bool,
    }
}
plain_message! {
    /// Statistics of an OSD and of the PGs it leads.
    PgStats, 0x8007;
    {
        /// Which OSD.
        osd: OsdId,
        /// The newest map it has.
        epoch: Epoch,
        /// Encoded `maps::OsdStat`.
        osd_stat: Bytes,
        /// Encoded `maps::PgStat` of each PG led.
        pgs: BTreeMap<PgId, Bytes>,
        /// PGs that are gone.
        removed: Vec<PgId>,
        /// Operations that take longer than `osd_op_complaint_time`.
        slow_ops: u32,
        /// How long the oldest of them takes, ms.
        slow_ms: u64,
        /// Pools with compressed data on the OSD: bytes it takes, bytes it is.
        compressed: BTreeMap<PoolId, (u64, u64)>,
    }
}
plain_message! {
    /// The monitor has taken the statistics.
    PgStatsAck, 0x8008;
    {
        /// Which PGs.
        pgs: Vec<PgId>,
    }
}
plain_message! {
    /// A monitor wants PGs scrubbed; to the OSD that leads them.
    ScrubRequest, 0x8009;
    {
        /// Which; all that the OSD leads when empty.
        pgs: Vec<PgId>,
        /// Data and omap too.
        deep: bool,
        /// What is found is mended.
        repair: bool,
    }
}
plain_message! {
    /// Object classes that operators uploaded, from a monitor to an OSD that subscribed to `cls`;
    /// one for each module, so that none is larger than a message may be.
    ClassModules, 0x800b;
    {
        /// Of the module; in the last of several, of all changes so far.
        version: u64,
        /// Names of all that are there; any other that is known is gone.
        present: BTreeSet<String>,
        /// Those that came since the version asked for, with their bytes.
        changed: BTreeMap<String, Bytes>,
    }
}
plain_message! {
    /// An operator wants PGs recovered, and copied, before others, or not any more; to the OSD
    /// that leads them.
    ForceRecovery, 0x800a;
    {
        /// Which.
        pgs: Vec<PgId>,
        /// Before others.
        on: bool,
    }
}
