//! One OSD's part of the map.

use std::fmt;

use types::{DecodeError, Denc, Epoch, Features, Reader, UTime, Writer};

/// State bits of an OSD; the peer's `CEPH_OSD_*`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct OsdState(pub u32);

macro_rules! states {
    ($($(#[$doc:meta])* $name:ident = $bit:expr, $text:literal;)*) => {
        impl OsdState {
            $($(#[$doc])* pub const $name: Self = Self($bit);)*
            /// Bits and their names.
            pub const NAMES: &'static [(Self, &'static str)] = &[$((Self::$name, $text)),*];
        }
    };
}
states! {
    /// It has been created.
    EXISTS = 1, "exists";
    /// It serves.
    UP = 1 << 1, "up";
    /// Marked out by the monitors, so marked in again when it boots.
    AUTOOUT = 1 << 2, "autoout";
    /// Never booted yet.
    NEW = 1 << 3, "new";
    /// Full.
    FULL = 1 << 4, "full";
    /// Nearly full.
    NEARFULL = 1 << 5, "nearfull";
    /// Too full for backfill.
    BACKFILLFULL = 1 << 6, "backfillfull";
    /// Destroyed; its number waits for a successor.
    DESTROYED = 1 << 7, "destroyed";
    /// Not to be marked up.
    NOUP = 1 << 8, "noup";
    /// Not to be marked down.
    NODOWN = 1 << 9, "nodown";
    /// Not to be marked in.
    NOIN = 1 << 10, "noin";
    /// Not to be marked out.
    NOOUT = 1 << 11, "noout";
    /// To stop.
    STOP = 1 << 12, "stop";
}

impl OsdState {
    /// Whether all bits of `other` are set.
    #[must_use]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// `exists,up`: the names of the bits, as `ceph osd dump` has them.
impl fmt::Display for OsdState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> =
            Self::NAMES.iter().filter(|(bit, _)| self.has(*bit)).map(|(_, name)| *name).collect();
        f.write_str(&names.join(","))
    }
}

impl Denc for OsdState {
    fn encode(&self, w: &mut Writer) {
        w.u32(self.0);
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.u32().map(Self)
    }
}

/// When an OSD was what. The peer's `osd_info_t`: u8 1, then six epochs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OsdInfo {
    /// First epoch of the last interval that ended cleanly.
    pub last_clean_begin: Epoch,
    /// Last epoch of it.
    pub last_clean_end: Epoch,
    /// When it was marked up last.
    pub up_from: Epoch,
    /// It has asked to be known alive through this epoch.
    pub up_thru: Epoch,
    /// When it was marked down last.
    pub down_at: Epoch,
    /// Declared lost as of this epoch.
    pub lost_at: Epoch,
}

impl Denc for OsdInfo {
    fn encode(&self, w: &mut Writer) {
        w.u8(1);
        self.last_clean_begin.encode(w);
        self.last_clean_end.encode(w);
        self.up_from.encode(w);
        self.up_thru.encode(w);
        self.down_at.encode(w);
        self.lost_at.encode(w);
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let v = r.u8()?;
        r.require(v >= 1, "osd_info_t is version 1 or later")?;
        Ok(Self {
            last_clean_begin: Denc::decode(r)?,
            last_clean_end: Denc::decode(r)?,
            up_from: Denc::decode(r)?,
            up_thru: Denc::decode(r)?,
            down_at: Denc::decode(r)?,
            lost_at: Denc::decode(r)?,
        })
    }
}

/// More about an OSD. The peer's `osd_xinfo_t`, 4/1 (3 without OCTOPUS).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct OsdXInfo {
    /// When it was marked down last.
    pub down_stamp: UTime,
    /// How often it only lagged, in parts of 2^32 - 1 on the wire; here 0 to 1 as raw.
    pub laggy_probability: u32,
    /// Seconds.
    pub laggy_interval: u32,
    /// What it advertised at boot.
    pub features: u64,
    /// Its weight before it was marked out automatically.
    pub old_weight: u32,
    /// When its purged snapshots were scrubbed last.
    pub last_purged_snaps_scrub: UTime,
    /// Not to be declared dead before this epoch is clean.
    pub dead_epoch: Epoch,
}

impl Denc for OsdXInfo {
    fn encode(&self, w: &mut Writer) {
        let v = if w.has(Features::SERVER_OCTOPUS) { 4 } else { 3 };
        w.framed(v, 1, |w| {
            self.down_stamp.encode(w);
            w.u32(self.laggy_probability);
            w.u32(self.laggy_interval);
            w.u64(self.features);
            w.u32(self.old_weight);
            if v >= 4 {
                self.last_purged_snaps_scrub.encode(w);
                self.dead_epoch.encode(w);
            }
        });
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.framed("osd_xinfo_t", 4, |r, v| {
            let mut x = Self {
                down_stamp: Denc::decode(r)?,
                laggy_probability: r.u32()?,
                laggy_interval: r.u32()?,
                ..Self::default()
            };
            if v >= 2 {
                x.features = r.u64()?;
            }
            if v >= 3 {
                x.old_weight = r.u32()?;
            }
            if v >= 4 {
                x.last_purged_snaps_scrub = Denc::decode(r)?;
                x.dead_epoch = Denc::decode(r)?;
            }
            Ok(x)
        })
    }
}
