//! `version`: a version of the user's own in an attribute, with conditions on it.

use bytes::Bytes;
use denc::Denc;
use types::{Errno, OpResult};

use crate::{Class, DONE, Object, READS, Reply, WRITES, method, params, record, stored};

pub(crate) const CLASS: Class = Class {
    name: "version",
    methods: &[
        method("set", READS | WRITES, set),
        method("inc", READS | WRITES, inc),
        method("inc_conds", READS | WRITES, inc),
        method("read", READS, read),
        method("check_conds", READS, check),
    ],
};

const ATTR: &[u8] = b"ceph.objclass.version";
const TAG_LEN: usize = 24;

record! {
    /// `obj_version`.
    Version(1, 1) { ver: u64, tag: Bytes, }
}
record! { SetOp(1, 1) { version: Version, } }
record! { Condition(1, 1) { version: Version, kind: u32, } }
record! { IncOp(1, 1) { version: Version, conditions: Vec<Condition>, } }

impl Condition {
    fn holds(&self, v: &Version) -> bool {
        let wanted = &self.version;
        match self.kind {
            1 => v == wanted,
            2 => v.ver > wanted.ver,
            3 => v.ver >= wanted.ver,
            4 => v.ver < wanted.ver,
            5 => v.ver <= wanted.ver,
            6 => v.tag == wanted.tag,
            7 => v.tag != wanted.tag,
            _ => true,
        }
    }
}

/// The version; zero without one.
fn load(o: &mut dyn Object) -> OpResult<Option<Version>> {
    match o.attr(ATTR) {
        Ok(raw) => stored(&raw).map(Some),
        Err(Errno::NOENT | Errno::NODATA) => Ok(None),
        Err(e) => Err(e),
    }
}

fn save(o: &mut dyn Object, version: &Version) -> OpResult<Reply> {
    o.set_attr(ATTR, version.to_bytes())?;
    Ok(DONE)
}

fn check_all(conditions: &[Condition], version: &Version) -> OpResult<()> {
    if conditions.iter().all(|c| c.holds(version)) { Ok(()) } else { Err(Errno::CANCELED) }
}

fn set(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let op: SetOp = params(input)?;
    save(o, &op.version)
}

fn inc(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let op: IncOp = params(input)?;
    let mut version = match load(o)? {
        Some(version) => version,
        None => {
            const LETTERS: &[u8; 64] =
                b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
            let mut tag = [0; TAG_LEN];
            o.random(&mut tag);
            let tag = tag.iter().map(|b| LETTERS[usize::from(b & 63)]).collect();
            Version { ver: 1, tag }
        }
    };
    check_all(&op.conditions, &version)?;
    version.ver += 1;
    save(o, &version)
}

fn read(o: &mut dyn Object, _: &Bytes) -> OpResult<Reply> {
    let version = load(o)?.unwrap_or_default();
    Ok(SetOp { version }.to_bytes().into())
}

fn check(o: &mut dyn Object, input: &Bytes) -> OpResult<Reply> {
    let op: IncOp = params(input)?;
    check_all(&op.conditions, &load(o)?.unwrap_or_default())?;
    Ok(DONE)
}
