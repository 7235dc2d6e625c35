//! The full OSD map's bytes: wrapper 8/7 { client section, OSD section, u32 crc }.
//!
//! The crc (CRC-32C, seed -1) covers everything from the wrapper's first byte to the crc
//! field, and what a later version puts behind it.
//!
//! Client section: v10 for peers with SERVER_REEF, else 9; 7 without NAUTILUS, 6 without
//! MIMIC, 3 without LUMINOUS. OSD section: v9, 10 in stretch mode, 11 with ranges shut
//! out, 12 with crimson; 6 without NAUTILUS, 5 without MIMIC, 1 without LUMINOUS.

use std::collections::BTreeMap;
use std::sync::Arc;

use stdx::crc32c;
use types::{AddrVec, Bytes, DecodeError, Denc, Epoch, Features, Reader, Writer};

use super::{OsdMap, OsdMapFlags, OsdState, Stretch};
use crate::wire::put_addr_map;

/// A legacy address by OSD, for peers without addrvecs.
fn put_single_addrs(w: &mut Writer, addrs: &[AddrVec]) {
    w.seq(addrs, |w, a| a.legacy().encode(w));
}

fn arc<T: Denc>(r: &mut Reader<'_>) -> Result<Arc<T>, DecodeError> {
    T::decode(r).map(Arc::new)
}

pub(super) fn client_version(f: Features) -> u8 {
    if !f.has(Features::SERVER_LUMINOUS) {
        3
    } else if !f.has(Features::SERVER_MIMIC) {
        6
    } else if !f.has(Features::SERVER_NAUTILUS) {
        7
    } else if !f.has(Features::SERVER_REEF) {
        9
    } else {
        10
    }
}

impl OsdMap {
    fn osd_version(&self, f: Features) -> u8 {
        let base = if !f.has(Features::SERVER_LUMINOUS) {
            1
        } else if !f.has(Features::SERVER_MIMIC) {
            5
        } else if !f.has(Features::SERVER_NAUTILUS) {
            6
        } else {
            9
        };
        if self.allow_crimson {
            12
        } else if !self.range_blocklist.is_empty() {
            11
        } else if self.stretch.enabled {
            10
        } else {
            base
        }
    }

    fn encode_client(&self, w: &mut Writer, v: u8) {
        self.fsid.encode(w);
        self.epoch.encode(w);
        self.created.encode(w);
        self.modified.encode(w);
        self.pools.encode(w);
        self.pool_names.encode(w);
        w.i32(self.pool_max);
        if v < 4 && self.require_osd_release >= 12 {
            OsdMapFlags(
                self.flags.0 | OsdMapFlags::REQUIRE_LUMINOUS.0 | OsdMapFlags::RECOVERY_DELETES.0,
            )
            .encode(w);
        } else {
            self.flags.encode(w);
        }
        w.i32(self.max_osd);
        if v >= 5 {
            self.osd_state.encode(w);
        } else {
            w.seq(self.osd_state.iter(), |w, s| w.u8(s.0 as u8));
        }
        self.osd_weight.encode(w);
        if v >= 8 {
            self.client_addrs.encode(w);
        } else {
            put_single_addrs(w, &self.client_addrs);
        }
        self.pg_temp.encode(w);
        self.primary_temp.encode(w);
        self.primary_affinity.encode(w);
        self.crush.encode(w);
        self.erasure_code_profiles.encode(w);
        if v >= 4 {
            self.pg_upmap.encode(w);
            self.pg_upmap_items.encode(w);
        }
        if v >= 6 {
            w.i32(self.crush_version);
        }
        if v >= 7 {
            self.new_removed_snaps.encode(w);
            self.new_purged_snaps.encode(w);
        }
        if v >= 9 {
            self.last_up_change.encode(w);
            self.last_in_change.encode(w);
        }
        if v >= 10 {
            self.pg_upmap_primaries.encode(w);
        }
    }

    fn encode_osd(&self, w: &mut Writer, v: u8) {
        if v < 7 {
            put_single_addrs(w, &self.hb_back_addrs);
        } else {
            self.hb_back_addrs.encode(w);
        }
        self.osd_info.encode(w);
        put_addr_map(w, self.blocklist.iter());
        if v < 7 {
            put_single_addrs(w, &self.cluster_addrs);
        } else {
            self.cluster_addrs.encode(w);
        }
        self.cluster_snapshot_epoch.encode(w);
        w.str(&self.cluster_snapshot);
        self.osd_uuid.encode(w);
        self.osd_xinfo.encode(w);
        if v < 7 {
            put_single_addrs(w, &self.hb_front_addrs);
        } else {
            self.hb_front_addrs.encode(w);
        }
        if v >= 2 {
            w.f32(self.nearfull_ratio);
            w.f32(self.full_ratio);
            w.f32(self.backfillfull_ratio);
        }
        if v >= 5 {
            w.u8(self.require_min_compat_client);
            w.u8(self.require_osd_release);
        }
        if v >= 6 {
            self.removed_snaps_queue.encode(w);
        }
        if v >= 8 {
            self.crush_node_flags.encode(w);
        }
        if v >= 9 {
            self.device_class_flags.encode(w);
        }
        if v >= 10 {
            w.bool(self.stretch.enabled);
            w.u32(self.stretch.bucket_count);
            w.u32(self.stretch.degraded);
            w.u32(self.stretch.recovering);
            w.i32(self.stretch.bucket);
        }
        if v >= 11 {
            put_addr_map(w, self.range_blocklist.iter());
        }
        if v >= 12 {
            w.bool(self.allow_crimson);
        }
    }

    /// Appends the map and gives its crc.
    fn put(&self, w: &mut Writer) -> u32 {
        let start = w.len();
        let mut crc_at = 0;
        w.framed(8, 7, |w| {
            let v = client_version(w.features());
            w.framed(v, 1, |w| self.encode_client(w, v));
            let v = self.osd_version(w.features());
            w.framed(v, 1, |w| self.encode_osd(w, v));
            crc_at = w.len();
            w.u32(0);
        });
        let crc = crc32c(!0, &w.as_slice()[start..crc_at]);
        w.patch(crc_at, &crc.to_le_bytes());
        crc
    }

    /// Encoded for a peer with `features`, and the crc in it.
    #[must_use]
    pub fn encode_with_crc(&self, features: Features) -> (Bytes, u32) {
        let mut w = Writer::with_capacity(features, 4096);
        let crc = self.put(&mut w);
        (w.finish(), crc)
    }

    /// Reads a map and the crc in it, which was checked.
    ///
    /// # Errors
    /// As [`Denc::decode`].
    pub fn decode_with_crc(r: &mut Reader<'_>) -> Result<(Self, u32), DecodeError> {
        Self::get(r, true)
    }

    /// Reads a map whatever its crc, for fuzzing.
    pub(crate) fn decode_unchecked(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Self::get(r, false).map(|(map, _)| map)
    }

    fn get(r: &mut Reader<'_>, check: bool) -> Result<(Self, u32), DecodeError> {
        let start = r.offset();
        r.framed("OSDMap", 8, |r, v| {
            r.require(v >= 7, "OSD maps are read from version 7 on")?;
            let mut m = Self::default();
            r.framed("OSDMap client section", 10, |r, v| m.decode_client(r, v))?;
            r.framed("OSDMap OSD section", 12, |r, v| m.decode_osd(r, v))?;
            if v >= 8 {
                let crc_at = r.offset();
                let crc = r.u32()?;
                let tail = r.rest();
                let computed = crc32c(crc32c(!0, r.passed(start, crc_at)), &tail);
                r.require(crc == computed || !check, "an OSD map's crc fits its bytes")?;
                m.check_lengths(r)?;
                Ok((m, crc))
            } else {
                m.check_lengths(r)?;
                Ok((m, 0))
            }
        })
    }

    fn decode_client(&mut self, r: &mut Reader<'_>, v: u8) -> Result<(), DecodeError> {
        self.fsid = Denc::decode(r)?;
        self.epoch = Denc::decode(r)?;
        self.created = Denc::decode(r)?;
        self.modified = Denc::decode(r)?;
        self.pools = arc(r)?;
        self.pool_names = arc(r)?;
        self.pool_max = r.i32()?;
        self.flags = Denc::decode(r)?;
        self.max_osd = r.i32()?;
        self.osd_state =
            if v >= 5 { arc(r)? } else { Arc::new(r.seq(|r| Ok(OsdState(u32::from(r.u8()?))))?) };
        self.osd_weight = arc(r)?;
        self.client_addrs = arc(r)?; // reads single addresses too
        self.pg_temp = arc(r)?;
        self.primary_temp = arc(r)?;
        self.primary_affinity = arc(r)?;
        self.crush = Denc::decode(r)?;
        self.erasure_code_profiles = arc(r)?;
        if v >= 4 {
            self.pg_upmap = arc(r)?;
            self.pg_upmap_items = arc(r)?;
        }
        if v >= 6 {
            self.crush_version = r.i32()?;
        }
        if v >= 7 {
            self.new_removed_snaps = Denc::decode(r)?;
            self.new_purged_snaps = Denc::decode(r)?;
        }
        if v >= 9 {
            self.last_up_change = Denc::decode(r)?;
            self.last_in_change = Denc::decode(r)?;
        }
        if v >= 10 {
            self.pg_upmap_primaries = arc(r)?;
        }
        Ok(())
    }

    fn decode_osd(&mut self, r: &mut Reader<'_>, v: u8) -> Result<(), DecodeError> {
        self.hb_back_addrs = arc(r)?;
        self.osd_info = arc(r)?;
        self.blocklist = arc(r)?;
        self.cluster_addrs = arc(r)?;
        self.cluster_snapshot_epoch = Denc::decode(r)?;
        self.cluster_snapshot = r.string()?;
        self.osd_uuid = arc(r)?;
        self.osd_xinfo = arc(r)?;
        self.hb_front_addrs = arc(r)?;
        if v >= 2 {
            self.nearfull_ratio = r.f32()?;
            self.full_ratio = r.f32()?;
            self.backfillfull_ratio = r.f32()?;
        }
        if v >= 5 {
            self.require_min_compat_client = r.u8()?;
            self.require_osd_release = r.u8()?;
        }
        if v >= 6 {
            self.removed_snaps_queue = arc(r)?;
        }
        if v >= 8 {
            self.crush_node_flags = Denc::decode(r)?;
        }
        if v >= 9 {
            self.device_class_flags = Denc::decode(r)?;
        }
        if v >= 10 {
            self.stretch = Stretch {
                enabled: r.bool()?,
                bucket_count: r.u32()?,
                degraded: r.u32()?,
                recovering: r.u32()?,
                bucket: r.i32()?,
            };
        }
        if v >= 11 {
            self.range_blocklist = Denc::decode(r)?;
        }
        if v >= 12 {
            self.allow_crimson = r.bool()?;
        }
        Ok(())
    }

    /// Everything that is indexed by OSD must be as long as `max_osd` says.
    fn check_lengths(&self, r: &Reader<'_>) -> Result<(), DecodeError> {
        let n = usize::try_from(self.max_osd).unwrap_or(usize::MAX);
        let all = [
            self.osd_state.len(),
            self.osd_weight.len(),
            self.client_addrs.len(),
            self.hb_back_addrs.len(),
            self.osd_info.len(),
            self.cluster_addrs.len(),
            self.osd_uuid.len(),
            self.osd_xinfo.len(),
            self.hb_front_addrs.len(),
        ];
        let affinity = self.primary_affinity.len();
        r.require(
            all.iter().all(|len| *len == n) && (affinity == 0 || affinity == n),
            "vectors by OSD are as long as max_osd",
        )
    }
}

impl Denc for OsdMap {
    fn encode(&self, w: &mut Writer) {
        self.put(w);
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Self::decode_with_crc(r).map(|(map, _)| map)
    }
}

/// The epoch and cluster of an encoded full map, without reading all of it.
///
/// # Errors
/// As [`Denc::decode`].
pub fn peek_epoch(bytes: &[u8]) -> Result<(types::Uuid, Epoch), DecodeError> {
    Reader::new(bytes).framed("OSDMap", 8, |r, _| {
        r.framed("OSDMap client section", 10, |r, _| Ok((Denc::decode(r)?, Denc::decode(r)?)))
    })
}

/// Maps by address are kept in our order and written in the peer's.
pub(super) type AddrMap<V> = BTreeMap<types::EntityAddr, V>;
