//! Extended attributes that are no bytes in the inode: layouts, quotas, pins.

use auth::MdsMay;
use bytes::Bytes;
use maps::fs::{Charmap, Inode, Pins, Quota, SnapRealm};
use striper::FileLayout;
use types::{Denc, Errno, Ino, PoolId};

use super::snap::Place;
use crate::errno::NOTEMPTY;
use crate::rank::Rank;
use crate::request::{Answer, Call, Extra, Op};
use crate::session::CHARMAP;

/// Longest name of an extended attribute, as Linux has it.
pub(super) const MAX_XATTR_NAME: usize = 255;
/// One more than the largest rank. The peer's `MAX_MDS`.
const RANKS: i64 = 0x100;
/// The peer's `mds_export_ephemeral_random_max`.
const RANDOM_MAX: f64 = 0.01;
const EDOM: Errno = Errno(-33);

/// What setting an attribute of a directory changes.
#[derive(Clone, Debug)]
enum DirChange {
    Quota(Quota),
    Pins(Pins),
    Subvolume(bool),
    Charmap(Charmap),
}

/// How names are compared where only a part of that was set. The peer's `charmap_md_t`.
fn charmap_default() -> Charmap {
    let text = Bytes::from_static;
    Charmap { case_sensitive: true, normalization: text(b"nfd"), encoding: text(b"utf8") }
}

impl Rank {
    /// A field of a layout, by the name behind `ceph.file.layout.`.
    fn put_layout(&self, layout: &mut FileLayout, field: &str, value: &str) -> Op<()> {
        let number = || value.parse::<u32>().map_err(|_| Errno::INVAL);
        match field {
            "stripe_unit" => layout.stripe_unit = number()?,
            "stripe_count" => layout.stripe_count = number()?,
            "object_size" => layout.object_size = number()?,
            "pool" | "pool_id" | "pool_name" => {
                let by_name = self.world.osd.pools.iter().find(|(_, name)| *name == value);
                let by_id = || value.parse().ok().map(PoolId);
                let pool = by_name.map(|(id, _)| *id).or_else(by_id).ok_or(Errno::INVAL)?;
                layout.pool = pool;
            }
            "pool_namespace" => layout.pool_ns = Bytes::copy_from_slice(value.as_bytes()),
            "json" => {
                let all: serde_json::Map<String, serde_json::Value> =
                    serde_json::from_str(value).map_err(|_| Errno::INVAL)?;
                for (field, value) in &all {
                    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                    match &field[..] {
                        // What a reading of it says besides.
                        "inheritance" | "json" => {}
                        field => self.put_layout(layout, field, &text)?,
                    }
                }
            }
            _ => return Err(Errno::NODATA.into()),
        }
        Ok(())
    }

    pub(super) fn set_vxattr(&mut self, call: &mut Call, ino: Ino, name: &[u8]) -> Op<Answer> {
        let name = std::str::from_utf8(name).map_err(|_| Errno::INVAL)?;
        let data = call.m.data.clone();
        let value = std::str::from_utf8(&data).map_err(|_| Errno::INVAL)?.trim_end_matches('\0');
        let value = value.trim().to_owned();
        self.check(call, ino, MdsMay(MdsMay::WRITE.0 | MdsMay::SET_VXATTR.0))?;
        let is_dir = self.tree.at(ino).is_dir();
        let layout = name.strip_prefix(if is_dir { "ceph.dir.layout" } else { "ceph.file.layout" });
        if let Some(field) = layout {
            let mut layout = self.layout_for(ino);
            if !is_dir {
                layout = self.tree.at(ino).store.inode.layout.clone();
            }
            match field.strip_prefix('.') {
                Some(field) => self.put_layout(&mut layout, field, &value)?,
                None if field.is_empty() => {
                    for word in value.split_whitespace() {
                        let (field, value) = word.split_once('=').ok_or(Errno::INVAL)?;
                        self.put_layout(&mut layout, field, value)?;
                    }
                }
                None => return Err(Errno::INVAL.into()),
            }
            self.set_layout(call, ino, layout)?;
            return Ok(Answer { target: Some(ino), ..Answer::default() });
        }
        if !is_dir {
            return Err(Errno::INVAL.into());
        }
        let change = self.dir_change(ino, name, &value)?;
        self.tree.cow(&mut call.txn, ino);
        let i = &mut self.tree.at_mut(ino).store.inode;
        match &change {
            DirChange::Quota(quota) => i.dir.quota = *quota,
            DirChange::Pins(pins) => i.pins = *pins,
            DirChange::Charmap(charmap) => i.optmetadata.set_charmap(Some(charmap.clone())),
            DirChange::Subvolume(_) => {}
        }
        i.times.ctime = i.times.ctime.max(call.txn.time);
        i.versions.change_attr += 1;
        self.tree.touch(&mut call.txn, ino);
        match change {
            DirChange::Quota(_) => {
                self.begin_realm(call, ino);
                self.send_quota(ino);
            }
            DirChange::Subvolume(is) => {
                self.begin_realm(call, ino);
                let mut realm = self.tree.at(ino).realm();
                realm.flags &= !SnapRealm::SUBVOLUME;
                realm.flags |= if is { SnapRealm::SUBVOLUME } else { 0 };
                self.tree.at_mut(ino).store.snap_realm = realm.to_bytes();
                self.tree.touch(&mut call.txn, ino);
            }
            DirChange::Pins(_) | DirChange::Charmap(_) => {}
        }
        Ok(Answer { target: Some(ino), ..Answer::default() })
    }

    /// What setting an attribute of a directory changes; EINVAL, EDOM.
    fn dir_change(&self, ino: Ino, name: &str, value: &str) -> Op<DirChange> {
        let i = &self.tree.at(ino).store.inode;
        let (mut quota, mut pins) = (i.dir.quota, i.pins);
        let flag = || match value {
            "0" | "false" => Ok(false),
            "1" | "true" => Ok(true),
            _ => Err(Errno::INVAL),
        };
        let is_root = ino == maps::fs::inos::ROOT;
        Ok(match name {
            "ceph.quota" => {
                for word in value.split_whitespace() {
                    let (field, value) = word.split_once('=').ok_or(Errno::INVAL)?;
                    match field {
                        "max_bytes" => quota.max_bytes = quantity(value)?,
                        "max_files" => quota.max_files = quantity(value)?,
                        _ => return Err(Errno::INVAL.into()),
                    }
                }
                DirChange::Quota(quota)
            }
            "ceph.quota.max_bytes" => {
                quota.max_bytes = quantity(value)?;
                DirChange::Quota(quota)
            }
            "ceph.quota.max_files" => {
                quota.max_files = quantity(value)?;
                DirChange::Quota(quota)
            }
            "ceph.dir.pin" => {
                let rank: i64 = value.parse().map_err(|_| Errno::INVAL)?;
                if is_root {
                    return Err(Errno::INVAL.into());
                }
                if !(-1..RANKS).contains(&rank) {
                    return Err(EDOM.into());
                }
                pins.export_pin = rank as i32;
                DirChange::Pins(pins)
            }
            "ceph.dir.pin.random" => {
                let part: f64 = value.parse().map_err(|_| Errno::INVAL)?;
                if !(0.0..=RANDOM_MAX).contains(&part) {
                    return Err(EDOM.into());
                }
                pins.random = part;
                DirChange::Pins(pins)
            }
            "ceph.dir.pin.distributed" => {
                pins.flags &= !Pins::DISTRIBUTED;
                pins.flags |= if flag()? { Pins::DISTRIBUTED } else { 0 };
                DirChange::Pins(pins)
            }
            "ceph.dir.subvolume" => {
                let is = flag()?;
                let above = self.subvolume_of(ino).filter(|s| *s != ino);
                if is_root || (is && above.is_some()) {
                    return Err(Errno::INVAL.into());
                }
                DirChange::Subvolume(is)
            }
            "ceph.dir.casesensitive" | "ceph.dir.normalization" | "ceph.dir.encoding" => {
                self.may_remap(ino)?;
                let mut charmap = i.optmetadata.charmap().cloned().unwrap_or_else(charmap_default);
                let default = charmap_default();
                let or = |default: Bytes| match value {
                    "" => default,
                    value => Bytes::copy_from_slice(value.as_bytes()),
                };
                match name {
                    "ceph.dir.casesensitive" => charmap.case_sensitive = flag()?,
                    "ceph.dir.normalization" => charmap.normalization = or(default.normalization),
                    _ => charmap.encoding = or(default.encoding),
                }
                DirChange::Charmap(charmap)
            }
            _ => return Err(Errno::INVAL.into()),
        })
    }

    /// Whether a directory's names may be compared in another way from now on: there are none.
    /// ENOTEMPTY, EINVAL for the root.
    fn may_remap(&self, ino: Ino) -> Op<()> {
        if ino == maps::fs::inos::ROOT {
            return Err(Errno::INVAL.into());
        }
        let sums = self.tree.totals(ino);
        let empty = sums.files + sums.dirs == 0;
        if empty && self.tree.snaps_of(ino).is_empty() { Ok(()) } else { Err(NOTEMPTY.into()) }
    }

    /// Whether a client may give a name in a directory: where names are compared in another way
    /// than byte by byte it has to know how. EPERM.
    pub(super) fn may_name(&self, call: &Call, dir: Ino) -> Op<()> {
        let plain = self.tree.at(dir).store.inode.optmetadata.charmap().is_none();
        let session = self.sessions.by_client.get(&call.client);
        if plain || session.is_some_and(|s| s.info.metadata.features.has(CHARMAP)) {
            Ok(())
        } else {
            Err(Errno::PERM.into())
        }
    }

    /// The subvolume that an inode is in, or is.
    pub fn subvolume_of(&self, ino: Ino) -> Option<Ino> {
        let mut up = std::iter::once(ino).chain(self.tree.ancestors(ino));
        up.find(|i| {
            let node = self.tree.above(*i);
            node.is_some_and(|n| n.is_dir() && n.realm().flags & SnapRealm::SUBVOLUME != 0)
        })
    }

    /// Everybody who has something of a directory hears what its limits are.
    fn send_quota(&mut self, ino: Ino) {
        let (quota, nest) = (self.tree.at(ino).store.inode.dir.quota, self.tree.totals(ino).nest);
        let message = messages::fs::ClientQuota {
            ino,
            rctime: nest.rctime,
            rbytes: nest.rbytes,
            rfiles: nest.rfiles,
            rsubdirs: nest.rsubdirs,
            quota,
        };
        let clients: Vec<i64> = self.tree.at(ino).caps.by_client.keys().copied().collect();
        for client in clients {
            if let Some(session) = self.sessions.by_client.get_mut(&client) {
                session.pushes += 1;
            }
            self.send(client, &message, 0);
        }
    }

    pub(super) fn remove_vxattr(&mut self, call: &mut Call, ino: Ino, name: &[u8]) -> Op<Answer> {
        self.check(call, ino, MdsMay(MdsMay::WRITE.0 | MdsMay::SET_VXATTR.0))?;
        let node = self.tree.at(ino);
        let answer = Answer { target: Some(ino), ..Answer::default() };
        let unset: fn(&mut Inode) = match name {
            _ if !node.is_dir() => return Err(Errno::NODATA.into()),
            b"ceph.dir.charmap" => {
                if node.store.inode.optmetadata.charmap().is_none() {
                    return Ok(answer); // none is as good as removed, as the peer has it
                }
                self.may_remap(ino)?;
                |i| i.optmetadata.set_charmap(None)
            }
            b"ceph.dir.layout" => {
                if ino == maps::fs::inos::ROOT {
                    return Err(Errno::INVAL.into());
                }
                if node.store.inode.layout.is_none() {
                    return Err(Errno::NODATA.into());
                }
                |i| i.layout = FileLayout::default()
            }
            _ => return Err(Errno::NODATA.into()),
        };
        self.tree.cow(&mut call.txn, ino);
        let i = &mut self.tree.at_mut(ino).store.inode;
        unset(i);
        i.times.ctime = i.times.ctime.max(call.txn.time);
        i.versions.change_attr += 1;
        self.tree.touch(&mut call.txn, ino);
        Ok(answer)
    }

    pub(super) fn op_getvxattr(&mut self, call: &Call) -> Op<Answer> {
        let ino = match self.place_of(call.m.path.ino, &call.m.path.path)? {
            Place::Now(ino) | Place::Snaps(ino) => ino,
            Place::Then(seen) => self.inode(seen.ino())?,
        };
        self.check(call, ino, MdsMay::READ)?;
        let name = String::from_utf8_lossy(&call.m.path2.path).into_owned();
        let node = self.tree.at(ino);
        let i = &node.store.inode;
        let value = match &name[..] {
            "ceph.dir.pin" if node.is_dir() => i.pins.export_pin.to_string(),
            "ceph.dir.pin.random" if node.is_dir() => i.pins.random.to_string(),
            "ceph.dir.subvolume" if node.is_dir() => {
                u8::from(node.realm().flags & SnapRealm::SUBVOLUME != 0).to_string()
            }
            "ceph.dir.pin.distributed" if node.is_dir() => {
                u8::from(i.pins.flags & maps::fs::Pins::DISTRIBUTED != 0).to_string()
            }
            "ceph.dir.charmap"
            | "ceph.dir.casesensitive"
            | "ceph.dir.normalization"
            | "ceph.dir.encoding" => {
                let charmap = i.optmetadata.charmap().ok_or(Errno::NODATA)?;
                let text = |b: &Bytes| String::from_utf8_lossy(b).into_owned();
                match &name[..] {
                    "ceph.dir.casesensitive" => u8::from(charmap.case_sensitive).to_string(),
                    "ceph.dir.normalization" => text(&charmap.normalization),
                    "ceph.dir.encoding" => text(&charmap.encoding),
                    _ => format!(
                        "{{\"casesensitive\":{},\"normalization\":{},\"encoding\":{}}}",
                        charmap.case_sensitive,
                        serde_json::Value::String(text(&charmap.normalization)),
                        serde_json::Value::String(text(&charmap.encoding)),
                    ),
                }
            }
            _ => {
                let kind = if node.is_dir() { "ceph.dir.layout" } else { "ceph.file.layout" };
                let field = name.strip_prefix(kind).ok_or(Errno::NODATA)?;
                let inherits = node.is_dir() && i.layout.is_none();
                if inherits && field != ".json" {
                    return Err(Errno::NODATA.into());
                }
                let layout = if inherits { self.layout_for(ino) } else { i.layout.clone() };
                let from = if inherits {
                    let own = |i: &Ino| !self.tree.at(*i).store.inode.layout.is_none();
                    self.tree.ancestors(ino).find(own)
                } else {
                    Some(ino)
                };
                let from = match from {
                    Some(maps::fs::inos::ROOT) | None => "@default",
                    Some(i) if i == ino => "@set",
                    Some(_) => "@inherited",
                };
                self.show_layout(&layout, field, from)?
            }
        };
        // The peer's answer: 1/1 { string }.
        let mut w = denc::Writer::new(denc::Features::ALL);
        w.framed(1, 1, |w| w.str(&value));
        Ok(Answer { extra: Extra::Bytes(w.finish()), ..Answer::default() })
    }

    fn show_layout(&self, l: &FileLayout, field: &str, from: &str) -> Op<String> {
        let pool =
            self.world.osd.pools.get(&l.pool).cloned().unwrap_or_else(|| l.pool.0.to_string());
        let ns = String::from_utf8_lossy(&l.pool_ns).into_owned();
        Ok(match field {
            ".json" => format!(
                "{{\"stripe_unit\": {}, \"stripe_count\": {}, \"object_size\": {}, \
                 \"pool_name\": {}, \"pool_id\": {}, \"pool_namespace\": {}, \
                 \"inheritance\": {}}}",
                l.stripe_unit,
                l.stripe_count,
                l.object_size,
                serde_json::Value::String(pool),
                l.pool.0,
                serde_json::Value::String(ns),
                serde_json::Value::String(from.to_owned()),
            ),
            "" => {
                let mut text = format!(
                    "stripe_unit={} stripe_count={} object_size={} pool={pool}",
                    l.stripe_unit, l.stripe_count, l.object_size
                );
                if !ns.is_empty() {
                    text += &format!(" pool_namespace={ns}");
                }
                text
            }
            ".stripe_unit" => l.stripe_unit.to_string(),
            ".stripe_count" => l.stripe_count.to_string(),
            ".object_size" => l.object_size.to_string(),
            ".pool" | ".pool_name" => pool,
            ".pool_id" => l.pool.0.to_string(),
            ".pool_namespace" => ns,
            _ => return Err(Errno::NODATA.into()),
        })
    }
}

/// A number, perhaps with a suffix of 1024s; EINVAL below zero.
fn quantity(text: &str) -> Result<i64, Errno> {
    let text = text.trim_end_matches('B').trim_end_matches('i');
    let shift = match text.bytes().last() {
        Some(b'K') => 10,
        Some(b'M') => 20,
        Some(b'G') => 30,
        Some(b'T') => 40,
        _ => 0,
    };
    let digits = if shift == 0 { text } else { &text[..text.len() - 1] };
    let number: i64 = digits.parse().map_err(|_| Errno::INVAL)?;
    number.checked_mul(1 << shift).filter(|n| *n >= 0).ok_or(Errno::INVAL)
}
