//! The 64-bit feature word that two peers exchange, and that chooses encodings.

use std::fmt;
use std::ops::{BitAnd, BitOr};

/// A set of feature bits. Bits were recycled: later meanings count only together with an
/// incarnation marker (bit 57, or 57 and 28), which the constants here include.
///
/// Source: the peer's `include/ceph_features.h`; words seen live in `docs/protocols/`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Features(pub u64);

const INC2: u64 = 1 << 57;
const INC3: u64 = 1 << 57 | 1 << 28;

macro_rules! bits {
    ($($(#[$doc:meta])* $name:ident = $bits:expr;)*) => {
        impl Features {
            $($(#[$doc])* pub const $name: Self = Self($bits);)*
        }
    };
}
bits! {
    /// No feature.
    NONE = 0;
    /// Every bit; encodes each type in its newest form.
    ALL = !0;
    /// What 16.2.15 daemons and clients advertise.
    PACIFIC_WORD = 0x3f01_cfbd_fffd_ffff;
    /// What 18.2.7 advertises.
    REEF_WORD = 0x3f01_cfbf_fffd_ffff;
    /// What 20.2.4 advertises.
    TENTACLE_WORD = 0x3f07_ffff_fffd_ffff;
    /// Addresses as vectors; map forms of release 14.
    SERVER_NAUTILUS = 1 << 2 | INC3;
    /// Subscriptions without renewal.
    SUBSCRIBE2 = 1 << 4;
    /// 64-bit pool ids.
    PGID64 = 1 << 9;
    /// Replies carry the object's op vector.
    OSDREPLYMUX = 1 << 12;
    /// Self-describing OSD encodings.
    OSDENC = 1 << 13;
    /// Release 11.
    SERVER_KRAKEN = 1 << 14 | INC2;
    /// Self-describing monitor encodings.
    MONENC = 1 << 15;
    /// Release 15.
    SERVER_OCTOPUS = 1 << 16 | INC3;
    /// CRUSH tunables, first set.
    CRUSH_TUNABLES = 1 << 18;
    /// Release 16.
    SERVER_PACIFIC = 1 << 20 | INC3;
    /// Release 12, and with it resend on split, backoff, upmap, choose_args.
    SERVER_LUMINOUS = 1 << 21 | INC2;
    /// The acceptor of a v1 connection tells what it has received (v1).
    RECONNECT_SEQ = 1 << 6;
    /// Signed messages (v1).
    MSG_AUTH = 1 << 23;
    /// CRUSH tunables, second set.
    CRUSH_TUNABLES2 = 1 << 25;
    /// A client that makes a file names its pool; the others leave zeros there.
    CREATEPOOLID = 1 << 26;
    /// Release 13.
    SERVER_MIMIC = 1 << 28 | INC2;
    /// Pools hashed with their id.
    OSDHASHPSPOOL = 1 << 30;
    /// Release 18; release 16 sets the bit with its old meaning.
    SERVER_REEF = 1 << 31 | INC3;
    /// Release 17.
    SERVER_QUINCY = 1 << 33 | INC3;
    /// CRUSH rules of version 2 (indep, set steps).
    CRUSH_V2 = 1 << 36;
    /// Rules with several OSDs per failure domain.
    CRUSH_MSR = 1 << 38 | INC2;
    /// CRUSH tunables 3, primary affinity.
    CRUSH_TUNABLES3 = 1 << 41;
    /// Straw2 buckets.
    CRUSH_V4 = 1 << 48;
    /// Release 19.
    SERVER_SQUID = 1 << 49 | INC2;
    /// Release 20.
    SERVER_TENTACLE = 1 << 50 | INC2;
    /// New form of the osd_op message.
    NEW_OSDOP_ENCODING = 1 << 56;
    /// Subscriptions kept by the monitor; release 10.
    MON_STATEFUL_SUB = 1 << 57;
    /// CRUSH tunables 5, new osd_op_reply form.
    CRUSH_TUNABLES5 = 1 << 58;
    /// Addresses in their second form.
    MSG_ADDR2 = 1 << 59;
    /// Challenge in cephx authorizers.
    CEPHX_V2 = 1 << 61;
}

impl Features {
    /// Whether every bit of `wanted` is set.
    #[must_use]
    pub const fn has(self, wanted: Self) -> bool {
        self.0 & wanted.0 == wanted.0
    }

    /// The bits of `wanted` that are missing here.
    #[must_use]
    pub const fn missing(self, wanted: Self) -> Self {
        Self(wanted.0 & !self.0)
    }
}

impl BitAnd for Features {
    type Output = Self;
    fn bitand(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

impl BitOr for Features {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl fmt::Debug for Features {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#018x}", self.0)
    }
}
